//! The report of `asmpatch exec`, as text and as JSON.

use serde::Serialize;

use crate::chip::register_name;
use crate::cli::{print, table};
use crate::mcu::AccessKind;

const BYTES_A_LINE: usize = 16;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct ExecReport {
    /// The command: bytes in hexadecimal, with spaces between them.
    pub(super) cdb: String,
    /// How it ended.
    pub(super) status: ExecStatus,
    /// With `check-condition`: key, ASC and ASCQ in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sense: Option<String>,
    /// With `no-answer`: where the firmware waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waits_at: Option<String>,
    /// The data that it returned, in hexadecimal.
    pub(super) data: String,
    /// Instructions executed from the command's arrival to its status, interrupts included.
    pub(super) instructions: u64,
    /// The highest stack pointer during the command.
    pub(super) stack_high_water: u8,
    /// Each access to a register during the command, in order.
    pub(super) registers: Vec<RegisterAccessJson>,
}

impl print::Document for ExecReport {
    const VERSION: u32 = 2;
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum ExecStatus {
    /// GOOD.
    Good,
    /// CHECK CONDITION.
    CheckCondition,
    /// Another status.
    Other,
    /// GOOD, and then the CPU is reset.
    GoodThenReset,
    /// GOOD, and then the unit leaves the bus.
    GoodThenOffBus,
    /// No status: the firmware waits, for example for an NVMe completion.
    NoAnswer,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RegisterAccess"))]
pub(super) struct RegisterAccessJson {
    /// `read` or `write`.
    kind: &'static str,
    /// The XDATA address.
    address: String,
    /// The byte.
    value: u8,
}

impl ExecReport {
    fn status_words(&self) -> String {
        match (self.status, &self.sense, &self.waits_at) {
            (ExecStatus::Good, ..) => "GOOD".to_owned(),
            (ExecStatus::CheckCondition, Some(sense), _) => format!("CHECK CONDITION, sense {sense}"),
            (ExecStatus::CheckCondition, None, _) => "CHECK CONDITION, no sense".to_owned(),
            (ExecStatus::Other, ..) => "neither GOOD nor CHECK CONDITION".to_owned(),
            (ExecStatus::GoodThenReset, ..) => "GOOD, then the CPU is reset".to_owned(),
            (ExecStatus::GoodThenOffBus, ..) => "GOOD, then the unit leaves the bus".to_owned(),
            (ExecStatus::NoAnswer, _, Some(at)) => format!("none: the firmware waits at {at}"),
            (ExecStatus::NoAnswer, _, None) => "none: the firmware waits outside its code".to_owned(),
        }
    }
}

pub(super) fn print(report: &ExecReport, data: &[u8], accesses: &[TracedAccess]) {
    outln!("command       {}", report.cdb);
    outln!("status        {}", report.status_words());
    outln!("instructions  {} from the command's arrival to its status", report.instructions);
    outln!("stack         up to 0x{:02X}", report.stack_high_water);
    outln!("data          {} bytes", data.len());
    for (line, bytes) in data.chunks(BYTES_A_LINE).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        outln!("  {:04x}  {}", line * BYTES_A_LINE, hex.join(" "));
    }
    if !accesses.is_empty() {
        table::print(&register_table(accesses));
    }
}

/// One row per register, in the order of first access.
fn register_table(accesses: &[TracedAccess]) -> comfy_table::Table {
    struct RegisterRow {
        addr: u16,
        reads: usize,
        writes: usize,
        last_write: Option<u8>,
    }
    let mut rows: Vec<RegisterRow> = Vec::new();
    for access in accesses {
        let addr = access.addr;
        let index = rows.iter().position(|row| row.addr == addr).unwrap_or_else(|| {
            rows.push(RegisterRow { addr, reads: 0, writes: 0, last_write: None });
            rows.len() - 1
        });
        match access.kind {
            AccessKind::Read => rows[index].reads += 1,
            AccessKind::Write => {
                rows[index].writes += 1;
                rows[index].last_write = Some(access.value);
            }
        }
    }
    let mut table = table::new();
    table.set_header(["register", "name", "reads", "writes", "last written"]);
    for row in rows {
        table.add_row([
            format!("0x{:04X}", row.addr),
            register_name(row.addr).unwrap_or("?").to_owned(),
            row.reads.to_string(),
            row.writes.to_string(),
            row.last_write.map_or_else(String::new, |byte| format!("{byte:02x}")),
        ]);
    }
    table
}

/// An access of the CPU to a register.
pub(super) struct TracedAccess {
    pub(super) kind: AccessKind,
    pub(super) addr: u16,
    pub(super) value: u8,
}

impl TracedAccess {
    pub(super) fn json(&self) -> RegisterAccessJson {
        let kind = if self.kind == AccessKind::Read { "read" } else { "write" };
        RegisterAccessJson { kind, address: format!("0x{:04X}", self.addr), value: self.value }
    }
}
