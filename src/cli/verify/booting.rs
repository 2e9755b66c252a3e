//! `asmpatch verify --boot`: what an image does from power-on, on the chip model.

use crate::image::Images;
use crate::patch::{PatchEffect, Verification};
use asm2464::TransportKind;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupted;
use asm2464_chip::chip::boot::{self, Check, Effects};
use serde::Serialize;

use crate::cli::table;

// Without an image there are no checks.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Booted"))]
pub(super) struct Booting {
    /// Whether every check passes.
    pub(super) ok: bool,
    /// What it enumerates as.
    state: Option<BridgeState>,
    /// The checks, in order.
    checks: Vec<BootCheck>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BootCheck {
    /// The transport on which the check ran.
    transport: TransportKind,
    /// What was checked.
    what: &'static str,
    /// Whether the check passes.
    ok: bool,
    /// What was found, in words.
    found: String,
    /// Instructions executed from power-on to the end of the check.
    instructions: u64,
}

impl Booting {
    /// Boots the image that was verified.
    ///
    /// # Errors
    /// Ctrl-C.
    pub(super) fn of(verification: &Verification<'_>, images: &Images) -> Result<Self, Interrupted> {
        let Some(image) = &verification.image else {
            return Ok(Self { ok: false, state: None, checks: Vec::new() });
        };
        let report = match effects(verification) {
            Some(effects) => boot::check_effects(image, effects, &images.budget())?,
            None => images.prove(&images.identify(image))?.report.clone(),
        };
        let check = |check: &Check| BootCheck {
            transport: check.wire,
            what: check.what,
            ok: check.outcome.is_ok(),
            found: found(check),
            instructions: check.instructions,
        };
        Ok(Self { ok: report.passes(), state: report.state(), checks: report.checks.iter().map(check).collect() })
    }

    pub(super) fn print(&self) {
        let Some(instructions) = self.checks.iter().map(|check| check.instructions).max() else {
            return outln!("  not booted: the file is not an image");
        };
        let state = self.state.map_or_else(|| "nothing".to_owned(), |state| state.to_string());
        if let Some(BootCheck { transport, what, found, .. }) = self.checks.iter().find(|check| !check.ok) {
            outln!("  BOOT FAILED: the check \"{what}\" over {transport}: {found}");
            let row = |check: &BootCheck| {
                let BootCheck { transport, what, found, instructions, .. } = check;
                [transport.to_string(), (*what).to_owned(), found.clone(), instructions.to_string()]
            };
            table::print(["transport", "check", "found", "instructions"], self.checks.iter().map(row));
        } else if self.ok {
            outln!("  booted: {state}, {} checks passed, {instructions} instructions", self.checks.len());
        } else {
            outln!("  booted: {state}, which no image should enumerate as");
        }
    }
}

/// What the patches in a known image are for; `None` for any other image.
fn effects(verification: &Verification<'_>) -> Option<Effects> {
    let has = |effect: PatchEffect| verification.effects().any(|found| found == effect);
    verification.base.map(|_| Effects {
        answers_writes: has(PatchEffect::AnswersWrites),
        e4_length_16: has(PatchEffect::LongE4),
        read16_sram: has(PatchEffect::ReadsSram),
    })
}

fn found(check: &Check) -> String {
    match &check.outcome {
        Ok(found) if found.is_empty() => "ok".to_owned(),
        Ok(found) => found.clone(),
        Err(fault) => fault.to_string(),
    }
}
