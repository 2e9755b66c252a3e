//! The report of `asmpatch run`, as text and as JSON.

use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464_chip::chip::UnknownAccess;
use asm2464_chip::mcu::AccessKind;
use asm2464_chip::profile::FunctionCost;
use serde::Serialize;

use super::{place, xdata};
use crate::cli::given::symbols::SymbolsReport;
use crate::cli::words::{print, table};

/// How many functions the table shows.
const SHOWN: usize = 12;

#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct RunReport {
    /// The image.
    pub(super) file: String,
    /// The version in it; null for open firmware, which has none.
    pub(super) version: Option<String>,
    #[serde(skip)]
    pub(super) version_words: String,
    /// What it enumerated as.
    pub(super) state: Option<BridgeState>,
    /// The product string that it enumerated with.
    pub(super) product: Option<String>,
    /// How the run ended, in words; `None` if it ended as it should.
    pub(super) stopped: Option<String>,
    /// The CPU's address at the end.
    pub(super) at: Option<String>,
    /// The function at that address, and the distance from its entry.
    pub(super) function: Option<String>,
    /// Instructions executed since power-on.
    pub(super) instructions: u64,
    /// The highest stack pointer.
    pub(super) stack_high_water: u8,
    /// The output of the serial port.
    pub(super) uart: String,
    /// How many bytes of the serial port were lost.
    pub(super) uart_lost: u64,
    /// The requests of --control.
    pub(super) requests: Vec<RequestReport>,
    /// The commands of --cdb.
    pub(super) commands: Vec<CommandReport>,
    /// The registers that the model does not know, each with its first access.
    pub(super) unknown_registers: Vec<UnknownReport>,
    /// The addresses of --until, if none of them was executed.
    pub(super) not_reached: Vec<String>,
    /// The files of --symbols.
    pub(super) symbols: Vec<SymbolsReport>,
    /// What each function cost. Needs --profile.
    pub(super) functions: Vec<FunctionCost>,
    /// The files that were written.
    pub(super) written: Vec<String>,
}

impl print::Document for RunReport {
    const VERSION: u32 = 2;
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RequestReport {
    /// The SETUP packet: bytes in hexadecimal, with spaces between them.
    pub(super) setup: String,
    /// `done` or `stall`.
    pub(super) answer: &'static str,
    /// The data that it returned: bytes in hexadecimal, with spaces between them.
    pub(super) data: String,
    /// Instructions executed for it.
    pub(super) instructions: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct CommandReport {
    /// The command: bytes in hexadecimal, with spaces between them.
    pub(super) cdb: String,
    /// Its status, and what the unit did after it, in words.
    pub(super) status: String,
    /// With CHECK CONDITION: key, ASC and ASCQ in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sense: Option<String>,
    /// How many bytes fewer moved than the host asked for, as a CSW says.
    pub(super) residue: u32,
    /// The data that it returned: bytes in hexadecimal, with spaces between them.
    pub(super) data: String,
    /// Instructions from the command's arrival to its status, interrupts included.
    pub(super) instructions: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct UnknownReport {
    /// The XDATA address.
    pub(super) at: String,
    /// `read` or `write`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) kind: AccessKind,
    /// The CPU's address.
    pub(super) pc: String,
}

pub(super) fn unknown(access: &UnknownAccess) -> UnknownReport {
    UnknownReport { at: xdata(access.at), kind: access.kind, pc: place(access.pc) }
}

pub(super) fn show(report: &RunReport) {
    outln!("{}: {}", report.file, report.version_words);
    for symbols in &report.symbols {
        outln!("  symbols       {symbols}");
    }
    match (&report.state, &report.product) {
        (Some(state), Some(product)) => outln!("  enumerates    {state}, product {product:?}"),
        _ => outln!("  enumerates    no"),
    }
    for request in &report.requests {
        outln!("  {} {}, {} instructions", request.setup, request.answer, request.instructions);
        show_data(&request.data);
    }
    for command in &report.commands {
        let residue = if command.residue == 0 { String::new() } else { format!(", residue {}", command.residue) };
        outln!("  {:<13} {}{residue}, {} instructions", command.cdb, command.status, command.instructions);
        show_data(&command.data);
    }
    outln!("  instructions  {}", report.instructions);
    outln!("  stack         up to 0x{:02X}", report.stack_high_water);
    if !report.uart.is_empty() {
        let lost = if report.uart_lost == 0 { String::new() } else { format!(" ({} bytes lost)", report.uart_lost) };
        outln!("  serial port   {}{lost}", report.uart.escape_debug());
    }
    let reads = report.unknown_registers.iter().filter(|access| access.kind == AccessKind::Read).count();
    let writes = report.unknown_registers.len() - reads;
    outln!("  not modelled  {reads} registers read, {writes} written; --json lists each with its first place");
    if !report.not_reached.is_empty() {
        outln!("  not reached   {}", report.not_reached.join(", "));
    }
    if let (Some(stopped), Some(at)) = (&report.stopped, &report.at) {
        let function = report.function.as_ref().map_or_else(String::new, |function| format!(" ({function})"));
        outln!("  {stopped}, CPU at {at}{function}");
    }
    show_functions(&report.functions);
    for file in &report.written {
        outln!("wrote {}", file.shown());
    }
}

fn show_data(hex: &str) {
    for line in hex.as_bytes().chunks(48) {
        outln!("                {}", String::from_utf8_lossy(line).trim_end());
    }
}

fn show_functions(functions: &[FunctionCost]) {
    if functions.is_empty() {
        return;
    }
    let all: u64 = functions.iter().map(|function| function.own_cycles).sum();
    let row = |function: &FunctionCost| {
        let FunctionCost { name, calls, own_cycles, total_cycles, .. } = function;
        let share = format!("{:.1} %", 100.0 * *own_cycles as f64 / all.max(1) as f64);
        [own_cycles.to_string(), share, total_cycles.to_string(), calls.to_string(), name.clone()]
    };
    let header = ["own cycles", "of all", "with callees", "calls", "function"];
    table::print(header, functions.iter().take(SHOWN).map(row));
    if functions.len() > SHOWN {
        outln!(" and {} functions more", functions.len() - SHOWN);
    }
}
