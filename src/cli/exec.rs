//! The `asmpatch exec` command: executes a SCSI command on an image's own code.

mod report;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};

use asm2464::digest::to_hex;
use asm2464::scsi::bot::Direction;
use asm2464::scsi::{Cdb, DataLength, XdataAddress, XdataPage, opcode};
use asm2464_chip::chip::boot::{self, BootFault};
use asm2464_chip::chip::{Answer, Chip, Driver, Ending, Outcome, Unanswered, Watch};
use asm2464_chip::mcu::{AccessKind, MemoryFlash, Observer, Step, Trace};
use clap::ValueEnum;
use thiserror::Error;

pub(super) use self::report::ExecReport;
use self::report::{ExecStatus, RegisterAccess};
use super::input::{self, ImageFile};
use super::{AnyFailure, Context, Exit, print};

/// The longest data-out of any command: E3 of part 2.
pub(super) const MAX_DATA_OUT: usize = 0x1_0000;
/// Instructions that `--trace` keeps: enough for every command except those on the flash.
pub(super) const TRACE_KEPT: usize = 20_000;
/// Default number of instructions for each step of a command. E2 of 64 KiB takes about 100,000.
const BUDGET: u64 = 4_000_000;

/// Execute a SCSI command on an image's own code.
///
/// The image boots on the model of the chip with itself and two configuration blocks in its flash, is enumerated,
/// answers INQUIRY, and gets the command as a host sends it. Shows the data, the status or the sense, the instructions
/// from the command's arrival to its status, interrupts included, and the registers touched. Works with every image
/// that boots as a SCSI device.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch exec fw.bin --cdb \"e4 04 50 f0 00 00\" --xdata 0xf000=01020304")]
pub struct Args {
    /// The image.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The command descriptor block, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = hex_bytes)]
    cdb: Box<[u8]>,

    /// Write bytes into XDATA beforehand; may be given more than once. A 24-bit address selects a page as E4 does:
    /// 0x51F000.
    #[arg(long, value_name = "ADDR=HEX", value_parser = preset)]
    xdata: Vec<Preset>,

    /// A file with the data that the host sends, for a command with data-out.
    #[arg(long, value_name = "FILE")]
    data_out: Option<PathBuf>,

    /// The transport that the command comes over.
    #[arg(long, value_enum, default_value_t = ExecTransport::Uas)]
    transport: ExecTransport,

    /// With --transport bot: how many bytes the host says it expects to move; by default what the CDB says.
    #[arg(long, value_name = "N")]
    host_length: Option<u32>,

    /// Instructions that the firmware may take until the next packet, or the status.
    #[arg(long, value_name = "N", default_value_t = BUDGET)]
    budget: u64,

    /// Show each instruction, with the registers before it, on stderr.
    #[arg(long)]
    trace: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExecTransport {
    /// UAS.
    Uas,
    /// Bulk-Only.
    Bot,
}

/// Parses bytes in hexadecimal, with or without spaces.
pub(super) fn hex_bytes(text: &str) -> Result<Box<[u8]>, String> {
    let digits: Vec<char> = text.chars().filter(|char| !char.is_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err(format!("{} hexadecimal digits, expected two for each byte", digits.len()));
    }
    let nibble = |char: char| char.to_digit(16).ok_or_else(|| format!("{char:?} is no hexadecimal digit"));
    digits.chunks(2).map(|pair| Ok((nibble(pair[0])? << 4 | nibble(pair[1])?) as u8)).collect()
}

/// Bytes of XDATA, and where they go.
type Preset = (XdataAddress, Box<[u8]>);

fn preset(text: &str) -> Result<Preset, String> {
    let form = || format!("{text:?} is not of the form 0xF000=01020304");
    let (addr, bytes) = text.split_once('=').ok_or_else(form)?;
    let digits = addr.trim().strip_prefix("0x").or_else(|| addr.trim().strip_prefix("0X")).ok_or_else(form)?;
    let number = u32::from_str_radix(digits, 16).map_err(|_| form())?;
    let page = match number >> 16 {
        0x00 | 0x50 => XdataPage::Main,
        0x51 => XdataPage::Other,
        other => return Err(format!("page {other:#04x}: it is 0x50, 0x51 or left out")),
    };
    Ok((XdataAddress { page, addr: number as u16 }, hex_bytes(bytes)?))
}

#[derive(Debug, Error)]
pub(super) enum ExecError {
    #[error("the CDB has {found} bytes; {}", cdb_length_words(*opcode))]
    CdbLength { found: usize, opcode: Option<u8> },
    #[error("the command takes {expected} bytes of data-out, and there is no --data-out")]
    NoDataOut { expected: u32 },
    #[error("{}: {found} bytes of data-out, expected exactly {expected}", path.display())]
    DataOutLength { path: PathBuf, expected: u32, found: usize },
    #[error("{}: the image does not boot as a SCSI device: {fault}", path.display())]
    Boot { path: PathBuf, fault: BootFault },
    #[error("{}: no answer within {budget} instructions; the firmware is at {at}", path.display())]
    Budget { path: PathBuf, budget: u64, at: String },
    #[error("{}: {fault}", path.display())]
    Stopped { path: PathBuf, fault: BootFault },
}

asm2464::coded!(ExecError {
    CdbLength => "asmpatch::exec::cdb_length",
    NoDataOut => "asmpatch::exec::no_data_out",
    DataOutLength => "asmpatch::exec::data_out_length",
    Boot => "asmpatch::exec::boot",
    Budget => "asmpatch::exec::budget",
    Stopped => "asmpatch::exec::stopped",
});

/// Returns the allowed lengths of an opcode's CDB: SPC-4's command groups, and for vendor commands everything that
/// their handlers read.
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
    let (least, most) = (lengths.start(), lengths.end());
    if least == most { format!("{opcode:#04x} has {least}") } else { format!("{opcode:#04x} has {least} to {most}") }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file is no image or does not boot, the CDB or data-out has the wrong length, or the code hangs.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let (opcode, found) = (args.cdb.first().copied(), args.cdb.len());
    let cdb = match Cdb::new(&args.cdb) {
        Ok(cdb) if opcode.is_some_and(|opcode| cdb_lengths(opcode).contains(&found)) => cdb,
        _ => return Err(ExecError::CdbLength { found, opcode }.into()),
    };
    let file = ImageFile::read(&args.file)?;
    let mut unit = boot::booted(&file.image, u8::from(args.transport == ExecTransport::Uas))
        .map_err(|fault| ExecError::Boot { path: args.file.clone(), fault })?;
    for (at, bytes) in &args.xdata {
        unit.chip.poke(*at, bytes);
    }
    unit.settle();
    unit.set_budget(args.budget);

    let (sender, accesses) = channel();
    unit.chip.set_watch(Some(Box::new(Accesses(sender))));
    let begun = unit.chip.instructions();
    let kept = if args.trace { TRACE_KEPT } else { 0 };
    let recorder = Rc::new(RefCell::new(CommandObserver { begun, trace: Trace::last(kept), stack_high_water: 0 }));
    let eyes = Rc::clone(&recorder);
    unit.set_runner(move |chip, budget| chip.run_observed(budget, &mut *eyes.borrow_mut()));
    let result = args.execute(&mut unit, &cdb);
    for line in recorder.borrow().trace.lines() {
        errln!("{line}");
    }
    let (status, answer, instructions) = result?;
    let report = ExecReport {
        cdb: cdb.to_string(),
        sense: match answer.ending {
            Ending::Check(Some(sense)) => Some(format!("{:x}/{:02x}/{:02x}", sense.key.0, sense.asc, sense.ascq)),
            _ => None,
        },
        waits_at: if status == ExecStatus::NoAnswer { unit.chip.at().map(|at| at.to_string()) } else { None },
        status,
        data: to_hex(&answer.data, ""),
        instructions,
        stack_high_water: recorder.borrow().stack_high_water,
        registers: accesses.try_iter().collect(),
    };
    if args.json {
        print::json(&report);
    } else {
        report::print(&report, &answer.data);
    }
    Ok(Exit::Done)
}

/// Collects the accesses to registers, in order.
struct Accesses(Sender<RegisterAccess>);

impl Watch for Accesses {
    fn register(&mut self, kind: AccessKind, at: XdataAddress, value: u8, _pc: u32) {
        // Skip the flash buffer, the NVMe queues and the SRAM window: they hold data.
        if at.page == XdataPage::Main && matches!(at.addr, 0x9000..=0x9FFF | 0xB200..=0xEFFF) {
            // The chip does not care whether anybody listens.
            let _ = self.0.send(RegisterAccess { kind, address: at.addr, value });
        }
    }
}

/// Observes each instruction of the command.
struct CommandObserver {
    /// Number of instructions before the command.
    begun: u64,
    trace: Trace,
    stack_high_water: u8,
}

impl Observer for CommandObserver {
    fn before(&mut self, step: &Step<'_>) {
        self.stack_high_water = self.stack_high_water.max(step.cpu.sp());
        self.trace.before(&Step { number: step.number - self.begun, ..*step });
    }
}

impl Args {
    /// Executes the command. Returns how it ended, its answer, and the number of instructions.
    fn execute(&self, unit: &mut Driver<MemoryFlash>, cdb: &Cdb) -> Result<(ExecStatus, Answer, u64), AnyFailure> {
        let path = || self.file.clone();
        let (len, direction) = self.moves(cdb);
        let out = self.data_out.as_ref().map(|path| input::read(path, MAX_DATA_OUT)).transpose()?;
        let begun = unit.chip.instructions();
        let answer =
            unit.begin(cdb.as_slice(), len, direction).and_then(|()| unit.finish(out.as_deref().unwrap_or_default()));
        let instructions = unit.chip.instructions() - begun;
        let is_refused = answer.as_ref().is_ok_and(|answer| answer.ending != Ending::Good);
        if let (Some(path), Some(out), Direction::Out, false) = (&self.data_out, &out, direction, is_refused)
            && out.len() != len as usize
        {
            return Err(ExecError::DataOutLength { path: path.clone(), expected: len, found: out.len() }.into());
        }
        // What happens after the status no longer belongs to the command.
        unit.set_runner(Chip::run);
        unit.chip.set_watch(None);
        let (status, answer) = match answer {
            Ok(mut answer) => {
                if answer.ending == Ending::Check(None) {
                    answer.ending = Ending::Check(unit.request_sense().ok().flatten());
                }
                let status = match answer.ending {
                    Ending::Good if unit.settle() == Outcome::Reset => ExecStatus::GoodThenReset,
                    Ending::Good if !unit.chip.is_on_bus() => ExecStatus::GoodThenOffBus,
                    Ending::Good => ExecStatus::Good,
                    Ending::Check(_) => ExecStatus::CheckCondition,
                    Ending::Other(_) => ExecStatus::Other,
                };
                (status, answer)
            }
            Err(Unanswered::Silent(Outcome::Parked)) => {
                if direction == Direction::Out && len > 0 && out.is_none() {
                    return Err(ExecError::NoDataOut { expected: len }.into());
                }
                (ExecStatus::NoAnswer, Answer { data: Vec::new(), ending: Ending::Other(Vec::new()) })
            }
            Err(Unanswered::Silent(Outcome::Budget)) => {
                let at = super::run::place(unit.chip.pc());
                return Err(ExecError::Budget { path: path(), budget: self.budget, at }.into());
            }
            Err(why) => return Err(ExecError::Stopped { path: path(), fault: BootFault::of(why, &unit.chip) }.into()),
        };
        Ok((status, answer, instructions))
    }

    /// Returns how many bytes the host expects to move, and in which direction.
    fn moves(&self, cdb: &Cdb) -> (u32, Direction) {
        let data = DataLength::of(cdb).unwrap_or(DataLength::None);
        let host_length = self.host_length.filter(|_| self.transport == ExecTransport::Bot);
        (host_length.unwrap_or(data.bytes()), data.direction())
    }
}
