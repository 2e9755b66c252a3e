//! The report of `asmpatch exec`, as text and as JSON.

use asm2464::digest::to_hex;
use asm2464_chip::chip::register_name;
use asm2464_chip::mcu::AccessKind;
use serde::{Serialize, Serializer};

use crate::cli::{print, table};

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
    pub(super) registers: Vec<RegisterAccess>,
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

// An access of the CPU to a register.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RegisterAccess {
    /// `read` or `write`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) kind: AccessKind,
    /// The XDATA address.
    #[serde(serialize_with = "in_hex")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) address: u16,
    /// The byte.
    pub(super) value: u8,
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

pub(super) fn print(report: &ExecReport, data: &[u8]) {
    outln!("command       {}", report.cdb);
    outln!("status        {}", report.status_words());
    outln!("instructions  {} from the command's arrival to its status", report.instructions);
    outln!("stack         up to 0x{:02X}", report.stack_high_water);
    outln!("data          {} bytes", data.len());
    for (line, bytes) in data.chunks(BYTES_A_LINE).enumerate() {
        outln!("  {:04x}  {}", line * BYTES_A_LINE, to_hex(bytes, " "));
    }
    if !report.registers.is_empty() {
        print_registers(&report.registers);
    }
}

/// Prints one row per register, in the order of first access.
fn print_registers(accesses: &[RegisterAccess]) {
    let mut registers: Vec<u16> = Vec::new();
    for RegisterAccess { address, .. } in accesses {
        if !registers.contains(address) {
            registers.push(*address);
        }
    }
    let row = |register: u16| {
        let of_register = accesses.iter().filter(|access| access.address == register);
        let (reads, writes): (Vec<_>, Vec<_>) = of_register.partition(|access| access.kind == AccessKind::Read);
        [
            format!("0x{register:04X}"),
            register_name(register).unwrap_or("?").to_owned(),
            reads.len().to_string(),
            writes.len().to_string(),
            writes.last().map_or_else(String::new, |access| format!("{:02x}", access.value)),
        ]
    };
    table::print(["register", "name", "reads", "writes", "last written"], registers.into_iter().map(row));
}

fn in_hex<S: Serializer>(address: &u16, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("0x{address:04X}"))
}
