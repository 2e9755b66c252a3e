//! `asmpatch verify --boot`: what an image does from power-on, on the chip model.

use serde::Serialize;

use crate::chip::boot::{self, BootReport, Check, Wire};
use crate::cli::table;
use crate::firmware::BridgeState;
use crate::patch::Verification;

/// The result of booting; `None` for a file without an image to boot.
pub(super) struct Booting(Option<BootReport>);

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Booted {
    /// Whether every check passes.
    ok: bool,
    /// What it enumerates as.
    state: Option<BridgeState>,
    /// The checks, in order.
    checks: Vec<BootCheck>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BootCheck {
    /// The transport on which the check ran.
    wire: Wire,
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
    pub(super) fn of(verification: &Verification<'_>) -> Self {
        Self(verification.image.as_ref().map(boot::check))
    }

    pub(super) fn holds(&self) -> bool {
        self.0.as_ref().is_some_and(BootReport::holds)
    }

    pub(super) fn print(&self) {
        let Some(report) = &self.0 else { return outln!("  not booted: the file holds no image") };
        let state = report.state().map_or_else(|| "nothing".to_owned(), |state| state.to_string());
        let instructions: u64 = report.checks.iter().map(|check| check.instructions).max().unwrap_or(0);
        match report.failure() {
            None if report.holds() => {
                outln!("  booted: {state}, {} checks hold, {instructions} instructions", report.checks.len());
            }
            None => outln!("  booted: {state}, which no image should enumerate as"),
            Some((check, fault)) => {
                outln!("  BOOT FAILED: over {}, where it {}: {fault}", check.wire, check.what);
                let mut table = table::new();
                table.set_header(["transport", "check", "found", "instructions"]);
                for check in &report.checks {
                    let found = found(check);
                    table.add_row([
                        check.wire.to_string(),
                        check.what.to_owned(),
                        found,
                        check.instructions.to_string(),
                    ]);
                }
                table::print(&table);
            }
        }
    }

    pub(super) fn json(&self) -> Booted {
        let check = |check: &Check| BootCheck {
            wire: check.wire,
            what: check.what,
            ok: check.outcome.is_ok(),
            found: found(check),
            instructions: check.instructions,
        };
        let checks = self.0.iter().flat_map(|report| &report.checks).map(check).collect();
        Booted { ok: self.holds(), state: self.0.as_ref().and_then(BootReport::state), checks }
    }
}

fn found(check: &Check) -> String {
    match &check.outcome {
        Ok(found) if found.is_empty() => "ok".to_owned(),
        Ok(found) => found.clone(),
        Err(fault) => fault.to_string(),
    }
}
