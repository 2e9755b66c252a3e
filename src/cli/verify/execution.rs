//! `asmpatch verify --execute`: the checklist, executed on the image.

use serde::Serialize;

use crate::chip::checklist::{self, Checked, Expected};
use crate::cli::table;
use crate::patch::Verification;

const STATUS_PATCH: &str = "status-0x2a12";
const E4_LENGTH_16: &str = "e4-length-16";
const READ16_SRAM: &str = "read16-sram";

/// The results of the list; `None` for an image that can't be executed.
pub(super) struct Execution(Option<Vec<Checked>>);

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Executed {
    /// Whether every command is answered as it must be.
    ok: bool,
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
        let has = |id: &str| verification.patches.iter().any(|patch| patch.id() == id);
        let expected = Expected {
            status_patch: has(STATUS_PATCH),
            e4_length_16: has(E4_LENGTH_16),
            read16_sram: has(READ16_SRAM),
        };
        Self(verification.image.as_ref().and_then(|image| checklist::run(image, expected)))
    }

    pub(super) fn holds(&self) -> bool {
        self.0.as_ref().is_some_and(|checks| checks.iter().all(Checked::holds))
    }

    pub(super) fn print(&self) {
        let Some(checks) = &self.0 else {
            outln!("  not executed: only image 240417, the practice image and what patches make of them can be");
            return;
        };
        let failed: Vec<&Checked> = checks.iter().filter(|check| !check.holds()).collect();
        let instructions: u64 = checks.iter().map(|check| check.instructions).sum();
        outln!(
            "  executed: {} of {} commands as they must be, {instructions} instructions",
            checks.len() - failed.len(),
            checks.len()
        );
        if failed.is_empty() {
            return;
        }
        let mut table = table::new();
        table.set_header(["command", "checks that", "expected", "found"]);
        for check in failed {
            table.add_row([
                check.cdb.to_string(),
                check.what.to_owned(),
                check.expected.to_string(),
                found_words(check),
            ]);
        }
        table::print(&table);
    }

    pub(super) fn json(&self) -> Executed {
        let check = |check: &Checked| ExecutionCheck {
            what: check.what,
            cdb: check.cdb.to_string(),
            ok: check.holds(),
            expected: check.expected.to_string(),
            found: found_words(check),
            instructions: check.instructions,
        };
        Executed { ok: self.holds(), checks: self.0.iter().flatten().map(check).collect() }
    }
}

fn found_words(check: &Checked) -> String {
    match &check.found {
        Ok(reply) if !check.data_holds => format!("{reply} with other data"),
        Ok(reply) => reply.to_string(),
        Err(fault) => fault.to_string(),
    }
}
