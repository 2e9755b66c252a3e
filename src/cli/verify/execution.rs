//! `asmpatch verify --execute`: the checklist, executed on the image.

use asm2464_chip::chip::checklist::{self, Checked, Expected};
use asmpatch_core::patch::{Effect, Verification};
use serde::Serialize;

use crate::cli::table;

// Without an image that can be executed there are no checks.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Executed"))]
pub(super) struct Execution {
    /// Whether every command is answered as it must be.
    pub(super) ok: bool,
    /// The commands, in order.
    checks: Vec<ExecutionCheck>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExecutionCheck {
    /// What is checked.
    what: &'static str,
    /// The command: bytes in hexadecimal, with spaces between them.
    cdb: String,
    /// Whether the check passes.
    ok: bool,
    /// The expected answer, in words.
    expected: String,
    /// The actual answer, in words.
    found: String,
    /// Instructions executed for it.
    instructions: u64,
}

impl Execution {
    /// Executes the list. The expected answers depend on the patches that were found in the image.
    pub(super) fn of(verification: &Verification<'_>) -> Self {
        let has = |effect| verification.effects().any(|there| there == effect);
        let expected = Expected {
            status_patch: has(Effect::AnswersWrites),
            e4_length_16: has(Effect::LongE4),
            read16_sram: has(Effect::ReadsSram),
        };
        let checked = verification.image.as_ref().and_then(|image| checklist::run(image, expected));
        let check = |check: Checked| ExecutionCheck {
            what: check.what,
            cdb: check.cdb.to_string(),
            ok: check.holds(),
            expected: check.expected.to_string(),
            found: found_words(&check),
            instructions: check.instructions,
        };
        let checks: Vec<_> = checked.into_iter().flatten().map(check).collect();
        Self { ok: !checks.is_empty() && checks.iter().all(|check| check.ok), checks }
    }

    pub(super) fn print(&self) {
        if self.checks.is_empty() {
            outln!("  not executed: only image 240417, the practice image and what patches make of them can be");
            return;
        }
        let all = self.checks.len();
        let held = self.checks.iter().filter(|check| check.ok).count();
        let instructions: u64 = self.checks.iter().map(|check| check.instructions).sum();
        outln!("  executed: {held} of {all} commands behaved as required, {instructions} instructions");
        if self.ok {
            return;
        }
        let failed = self.checks.iter().filter(|check| !check.ok);
        let rows = failed.map(|check| [check.cdb.as_str(), check.what, &check.expected, &check.found]);
        table::print(["command", "checks that", "expected", "found"], rows);
    }
}

fn found_words(check: &Checked) -> String {
    match &check.found {
        Ok(reply) if !check.data_holds => format!("{reply} with other data"),
        Ok(reply) => reply.to_string(),
        Err(fault) => fault.to_string(),
    }
}
