//! `asmpatch exec`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use miette::Diagnostic;
use serde::Serialize;
use thiserror::Error;

use super::input::{self, ImageFile, InFile};
use super::table;
use super::{Context, print};
use crate::chip;
use crate::cli::errors::Exit;
use crate::failure::AnyFailure;
use crate::firmware::FirmwareVersion;
use crate::mcu::{self, Access, AccessKind, FirmwareCpu, MemoryFlash, Region, Reply, Trace, Wire};
use crate::scsi::bot::Direction;
use crate::scsi::{Cdb, Sense, XdataAddress, XdataPage, opcode};

/// The most data-out that a command takes: E3 of part 2.
const MAX_DATA_OUT: usize = 0x1_0000;
/// Instructions that --trace keeps: all of a command that is not about the flash.
const TRACE_KEPT: usize = 20_000;
const BYTES_A_LINE: usize = 16;

/// Execute a SCSI command on an image's own code.
///
/// The image's dispatcher runs on an emulated 8051, as it would on the chip: with the SPI flash controller and an erased
/// flash behind it, and as much of the USB controller as data needs. Shows the data, the status or the sense, the
/// instructions spent and the registers touched. Those of E4 are counted on the whole chip where the image boots on it:
/// from the command's arrival to its status, with all interrupts. Works with image 240417, the practice image, and what patches make of
/// them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch exec fw.bin --cdb \"e4 04 50 f0 00 00\" --xdata 0xf000=01020304")]
pub struct Args {
    /// The image.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The command descriptor block, in hexadecimal.
    #[arg(long, value_name = "HEX")]
    cdb: HexBytes,

    /// Bytes in XDATA beforehand; may be given more than once. A 24-bit address selects a page as E4 does: 0x51F000.
    #[arg(long, value_name = "ADDR=HEX")]
    xdata: Vec<Preset>,

    /// What the host sends, for a command with data-out.
    #[arg(long, value_name = "FILE")]
    data_out: Option<PathBuf>,

    /// The transport that the command comes over.
    #[arg(long, value_enum, default_value_t = Transport::Uas)]
    transport: Transport,

    /// With --transport bot: the bytes that the host says it expects to move; by default what the CDB says.
    #[arg(long, value_name = "N")]
    host_length: Option<u32>,

    /// Instructions that the command, and each packet of its data-out, may take.
    #[arg(long, value_name = "N", default_value_t = mcu::DEFAULT_BUDGET)]
    budget: u64,

    /// Show each instruction, with the registers before it, on stderr.
    #[arg(long)]
    trace: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// UAS.
    Uas,
    /// Bulk-Only.
    Bot,
}

#[derive(Debug, Clone)]
pub(super) struct HexBytes(pub(super) Vec<u8>);

impl FromStr for HexBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits: Vec<char> = text.chars().filter(|char| !char.is_whitespace()).collect();
        if !digits.len().is_multiple_of(2) {
            return Err(format!("{} hexadecimal digits, expected two for each byte", digits.len()));
        }
        let nibble = |char: char| char.to_digit(16).ok_or_else(|| format!("{char:?} is no hexadecimal digit"));
        digits
            .chunks(2)
            .map(|pair| Ok((nibble(pair[0])? << 4 | nibble(pair[1])?) as u8))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[derive(Debug, Clone)]
struct Preset {
    at: XdataAddress,
    bytes: Vec<u8>,
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is not of the form 0xF000=01020304");
        let (addr, bytes) = text.split_once('=').ok_or_else(form)?;
        let digits = addr.trim().strip_prefix("0x").or_else(|| addr.trim().strip_prefix("0X")).ok_or_else(form)?;
        let number = u32::from_str_radix(digits, 16).map_err(|_| form())?;
        let page = match number >> 16 {
            0x00 | 0x50 => XdataPage::Main,
            0x51 => XdataPage::Other,
            other => return Err(format!("page {other:#04x}: it is 0x50, 0x51 or left out")),
        };
        let HexBytes(bytes) = bytes.parse()?;
        Ok(Self { at: XdataAddress { page, addr: number as u16 }, bytes })
    }
}

#[derive(Debug, Error, Diagnostic)]
enum ExecError {
    #[error("the CDB has {found} bytes; {}", cdb_length_words(*opcode))]
    #[diagnostic(code(asmpatch::exec::cdb_length))]
    CdbLength { found: usize, opcode: Option<u8> },
    #[error("the command takes {expected} bytes of data-out, and there is no --data-out")]
    #[diagnostic(code(asmpatch::exec::no_data_out))]
    NoDataOut { expected: u32 },
    #[error("{}: {found} bytes of data-out, expected exactly {expected}", path.display())]
    #[diagnostic(code(asmpatch::exec::data_out_length))]
    DataOutLength { path: PathBuf, expected: u32, found: usize },
    #[error("{}: nothing is known of the routines of version {version}", path.display())]
    #[diagnostic(code(asmpatch::exec::unknown_image))]
    UnknownImage { path: PathBuf, version: FirmwareVersion },
}

/// The lengths that an opcode's CDB may have: SPC-4's command groups, and for vendor commands all that their handlers
/// read.
fn cdb_lengths(opcode: u8) -> std::ops::RangeInclusive<usize> {
    match opcode {
        0x00..=0x1F => 6..=6,
        0x20..=0x5F => 10..=10,
        0x80..=0x9F => 16..=16,
        0xA0..=0xBF => 12..=12,
        opcode::CONFIG_READ | opcode::CONFIG_WRITE => 3..=16,
        opcode::FLASH_READ..=opcode::XDATA_WRITE => 6..=16,
        opcode::NVME_ADMIN | opcode::RESET => 2..=16,
        _ => 1..=16,
    }
}

fn cdb_length_words(opcode: Option<u8>) -> String {
    let Some(opcode) = opcode else { return "expected 1 to 16".to_owned() };
    let lengths = cdb_lengths(opcode);
    if lengths.start() == lengths.end() {
        format!("{opcode:#04x} has {}", lengths.start())
    } else {
        format!("{opcode:#04x} has {} to {}", lengths.start(), lengths.end())
    }
}

/// Runs the subcommand.
///
/// # Errors
/// A file that is no image or not known, a CDB or data-out of the wrong length, and code that hangs, leaves the image or
/// breaks its stack.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let HexBytes(bytes) = &args.cdb;
    let opcode = bytes.first().copied();
    let fits = |opcode| cdb_lengths(opcode).contains(&bytes.len());
    let cdb = match Cdb::new(bytes) {
        Ok(cdb) if opcode.is_some_and(fits) => cdb,
        _ => return Err(ExecError::CdbLength { found: bytes.len(), opcode }.into()),
    };
    let file = ImageFile::read(&args.file)?;
    if !mcu::conventions::are_kept_by(&file.image) {
        return Err(ExecError::UnknownImage { path: args.file.clone(), version: file.image.version() }.into());
    }
    let mut unit = FirmwareCpu::new(&file.image, MemoryFlash::erased());
    unit.set_budget(args.budget);
    let xdata = unit.machine_mut().xdata_mut();
    for preset in &args.xdata {
        xdata.memory_mut().load(preset.at, &preset.bytes);
    }
    xdata.record(|page, block| page == XdataPage::Main && Region::of(u16::from(block) << 8).is_register());

    let mut trace = Trace::last(if args.trace { TRACE_KEPT } else { 0 });
    let result = execute(args, &mut unit, &cdb, &mut trace);
    for line in trace.lines() {
        errln!("{line}");
    }
    let (reply, data) = result?;
    let accesses = unit.machine_mut().xdata_mut().take_accesses();
    let mut report = ExecReport::new(&cdb, reply, &data, unit.instructions(), unit.stack_high_water(), &accesses);
    if cdb.opcode() == opcode::XDATA_READ {
        // A read of more than one packet goes on in interrupts, which the dispatcher alone does not show.
        if let Some(instructions) = chip::instructions(&file.image, args.wire(&cdb), &cdb, args.budget) {
            (report.instructions, report.counted) = (instructions, Counted::Chip);
        }
    }
    if args.json {
        print::json(&report);
    } else {
        print(&report, &data, &accesses);
    }
    Ok(Exit::Done)
}

fn execute(
    args: &Args,
    unit: &mut FirmwareCpu<MemoryFlash>,
    cdb: &Cdb,
    trace: &mut Trace,
) -> Result<(Reply, Vec<u8>), AnyFailure> {
    let in_file = || InFile::<mcu::RunError>::named(&args.file);
    let mut data = Vec::new();
    // An observer costs: without --trace nothing is observed.
    let reply = if args.trace {
        unit.begin_observed(args.wire(cdb), cdb, &mut data, trace)
    } else {
        unit.begin(args.wire(cdb), cdb, &mut data)
    };
    let reply = reply.map_err(in_file())?;
    let Reply::DataOut(expected) = reply else { return Ok((reply, data)) };
    let path = args.data_out.as_ref().ok_or(ExecError::NoDataOut { expected })?;
    let out = input::read(path, MAX_DATA_OUT)?;
    if out.len() != expected as usize {
        return Err(ExecError::DataOutLength { path: path.clone(), expected, found: out.len() }.into());
    }
    let reply = if args.trace { unit.give_observed(&out, trace) } else { unit.give(&out) };
    Ok((reply.map_err(in_file())?, data))
}

impl Args {
    fn wire(&self, cdb: &Cdb) -> Wire {
        match self.transport {
            Transport::Uas => Wire::Uas,
            Transport::Bot => {
                let direction = if matches!(
                    cdb.opcode(),
                    opcode::CONFIG_WRITE | opcode::FLASH_WRITE | opcode::WRITE_10 | opcode::WRITE_16
                ) {
                    Direction::Out
                } else {
                    Direction::In
                };
                Wire::BulkOnly { host_len: self.host_length.unwrap_or_else(|| natural_length(cdb)), direction }
            }
        }
    }
}

/// The bytes that a host expects of a command, from its CDB.
fn natural_length(cdb: &Cdb) -> u32 {
    let byte = cdb.padded();
    let blocks = |high: u8, low: u8| u32::from(u16::from_be_bytes([high, low])) * 512;
    match cdb.opcode() {
        opcode::REQUEST_SENSE | opcode::INQUIRY | opcode::MODE_SENSE_6 => u32::from(byte[4]),
        opcode::READ_CAPACITY_10 => 8,
        opcode::READ_10 | opcode::WRITE_10 => blocks(byte[7], byte[8]),
        opcode::READ_16 | opcode::WRITE_16 => blocks(byte[12], byte[13]),
        opcode::CONFIG_READ | opcode::CONFIG_WRITE => 128,
        opcode::FLASH_READ | opcode::FLASH_WRITE => u32::from_be_bytes([byte[2], byte[3], byte[4], byte[5]]),
        opcode::XDATA_READ => u32::from(u16::from_be_bytes([byte[5], byte[1]])),
        _ => 0,
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ExecReport {
    /// The command: bytes in hexadecimal, with spaces between them.
    cdb: String,
    /// How it ended: `good`, `check-condition`, `good-then-reset`, `queued`, `waits-for-data`, `no-answer`.
    status: &'static str,
    /// With `check-condition`: key, ASC and ASCQ in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    sense: Option<String>,
    /// With `good-then-reset`: the state that the chip starts over in.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_state: Option<u8>,
    /// With `no-answer`: the firmware's status byte, IDATA 0x6A.
    #[serde(skip_serializing_if = "Option::is_none")]
    status_byte: Option<u8>,
    /// What it brought, in hexadecimal.
    data: String,
    /// Instructions executed.
    instructions: u64,
    /// Where they were counted.
    counted: Counted,
    /// The highest stack pointer.
    stack_high_water: u8,
    /// Each access to a register, in order.
    registers: Vec<RegisterAccess>,
}

impl print::Document for ExecReport {}

/// Where the instructions were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Counted {
    /// In the routines that the command was given to.
    Routines,
    /// On the whole chip, from the command's arrival to its status.
    Chip,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RegisterAccess {
    /// `read` or `write`.
    kind: &'static str,
    /// The XDATA address.
    address: String,
    /// The byte.
    value: u8,
}

impl ExecReport {
    fn new(cdb: &Cdb, reply: Reply, data: &[u8], instructions: u64, stack_high_water: u8, accesses: &[Access]) -> Self {
        let sense = |sense: Sense| format!("{:x}/{:02x}/{:02x}", sense.key.0, sense.asc, sense.ascq);
        let access = |access: &Access| RegisterAccess {
            kind: kind_word(access.kind),
            address: format!("0x{:04X}", access.at.addr),
            value: access.value,
        };
        Self {
            cdb: cdb.to_string(),
            status: match reply {
                Reply::DataIn | Reply::Good => "good",
                Reply::Check(_) => "check-condition",
                Reply::Reset(_) => "good-then-reset",
                Reply::Queued(_) => "queued",
                Reply::DataOut(_) => "waits-for-data",
                Reply::Silent(_) => "no-answer",
            },
            sense: if let Reply::Check(found) = reply { Some(sense(found)) } else { None },
            reset_state: if let Reply::Reset(state) = reply { Some(state) } else { None },
            status_byte: if let Reply::Silent(byte) = reply { Some(byte) } else { None },
            data: data.iter().map(|byte| format!("{byte:02x}")).collect(),
            instructions,
            counted: Counted::Routines,
            stack_high_water,
            registers: accesses.iter().map(access).collect(),
        }
    }

    fn status_words(&self) -> String {
        match (self.status, &self.sense, self.reset_state, self.status_byte) {
            ("check-condition", Some(sense), ..) => format!("CHECK CONDITION, sense {sense}"),
            ("good-then-reset", _, Some(state), _) => format!("GOOD, then the chip starts over (state {state:#04x})"),
            ("queued", ..) => "none yet: queued as NVMe I/O, answered when its completion comes".to_owned(),
            ("no-answer", _, _, Some(byte)) => format!("none: the firmware waits (IDATA 0x6A is {byte:#04x})"),
            ("waits-for-data", ..) => "none yet: the firmware waits for more data".to_owned(),
            _ => "GOOD".to_owned(),
        }
    }
}

fn kind_word(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Read => "read",
        AccessKind::Write => "write",
    }
}

fn print(report: &ExecReport, data: &[u8], accesses: &[Access]) {
    outln!("command       {}", report.cdb);
    outln!("status        {}", report.status_words());
    let span = if report.counted == Counted::Chip { " from the command's arrival to its status" } else { "" };
    outln!("instructions  {}{span}", report.instructions);
    if report.stack_high_water > 0 {
        outln!("stack         up to 0x{:02X}", report.stack_high_water);
    }
    outln!("data          {} bytes", data.len());
    for (line, bytes) in data.chunks(BYTES_A_LINE).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        outln!("  {:04x}  {}", line * BYTES_A_LINE, hex.join(" "));
    }
    if !accesses.is_empty() {
        table::print(&register_table(accesses));
    }
}

/// One row for each register, in the order in which they were first touched.
fn register_table(accesses: &[Access]) -> comfy_table::Table {
    struct Row {
        addr: u16,
        reads: usize,
        writes: usize,
        last_write: Option<u8>,
    }
    let mut rows: Vec<Row> = Vec::new();
    for access in accesses {
        let addr = access.at.addr;
        let index = rows.iter().position(|row| row.addr == addr).unwrap_or_else(|| {
            rows.push(Row { addr, reads: 0, writes: 0, last_write: None });
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
    table.set_header(["register", "in", "reads", "writes", "last written"]);
    for row in rows {
        table.add_row([
            format!("0x{:04X}", row.addr),
            Region::of(row.addr).to_string(),
            row.reads.to_string(),
            row.writes.to_string(),
            row.last_write.map_or_else(String::new, |byte| format!("{byte:02x}")),
        ]);
    }
    table
}
