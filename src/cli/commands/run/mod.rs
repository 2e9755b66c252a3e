//! The `asmpatch run` command: boots an image on a model of the chip, and traces it.

mod commands;
mod observers;
mod report;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use asm2464::digest::to_hex;
use asm2464::firmware::CodeAddress;
use asm2464::scsi::{Cdb, XdataAddress};
use asm2464::{AnyFailure, Bdf};
use asm2464_chip::chip::boot;
use asm2464_chip::chip::{Driver, MemoryFunction, RunEnd, Speed, Unanswered};
use asm2464_chip::mcu::Trace;
use asm2464_chip::profile::{Coverage, Profile};
use clap::ValueEnum;

use self::commands::PlannedCommand;
use self::observers::{AuthorArgs, Events, InstructionObserver};
pub(in crate::cli) use self::report::RunReport;
use self::report::{RequestReport, show, unknown};
use crate::cli::given::arguments::{PcapArgs, TransportArg};
use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::named_image;
use crate::cli::given::symbols::code_address;
use crate::cli::words::errors::Exit;
use crate::cli::words::print;

/// Instructions that `--trace` keeps: enough for every command except those on the flash.
const TRACE_KEPT: usize = 20_000;

/// Boot an image on a model of the chip, and trace it.
///
/// The image starts at the reset vector with two configuration blocks in its flash, is enumerated by a host, and gets
/// the commands of --cdb. Any firmware for the chip runs: the vendor's, the open firmware, your own. Ends with status 1
/// if the firmware gave no answer, and says where it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  asmpatch run fw.bin                             boot, enumerate, summary
  asmpatch run fw.bin --events usb,registers      also packets and registers
  asmpatch run fw.bin --cdb 'e4 06 50 07 f0 00'   read the version
  asmpatch run fw.bin --until c:0x2814 --trace    show the way to an address
  asmpatch run fw.bin --symbols fw.map --profile fw.folded    write a profile
  flamegraph.pl fw.folded > fw.svg                            draw it")]
pub struct Args {
    /// The image: a file, or the ID of a known one, which is downloaded.
    #[arg(value_name = "FILE|ID")]
    file: PathBuf,

    /// Send this control request after enumeration, before any --cdb: a SETUP packet's 8 bytes in hexadecimal, followed
    /// by the data of a write; may be given more than once.
    #[arg(long, value_name = "HEX", value_parser = control_request)]
    control: Vec<ControlRequest>,

    /// Send this command after enumeration, in hexadecimal; may be given more than once.
    #[arg(long, value_name = "HEX", value_parser = cdb)]
    cdb: Vec<Cdb>,

    /// How many bytes the host asks for with each --cdb that returns data; by default what the CDB says. For Bulk-Only
    /// alone: over UAS the firmware decides.
    #[arg(long = "in", value_name = "N")]
    data_in: Option<u32>,

    /// A file with the data that the host sends with a --cdb; may be given more than once, in the order of the commands
    /// that take data.
    #[arg(long, value_name = "FILE", requires = "cdb")]
    data_out: Vec<PathBuf>,

    /// The transport of --cdb.
    #[arg(long, value_enum, default_value_t)]
    transport: TransportArg,

    /// The speed of the link.
    #[arg(long, value_enum, default_value_t = SpeedArg::Super)]
    speed: SpeedArg,

    /// Put a GPU-class device with a memory BAR of 1 MiB behind the bridge, on bus 1.
    #[arg(long)]
    gpu: bool,

    /// What to show as it happens, on stderr: usb, registers, uart, calls.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND")]
    events: Vec<EventKind>,

    /// Show what the firmware sends on its serial port, line by line, on stderr: as --events uart.
    #[arg(long)]
    serial: bool,

    /// Stop when the instruction at this address has been executed, such as c:0x2814; may be given more than once.
    #[arg(long = "until", value_name = "ADDRESS", value_parser = code_address)]
    until: Vec<CodeAddress>,

    /// Show each instruction with the registers before it, on stderr: the last 20,000.
    #[arg(long)]
    trace: bool,

    #[command(flatten)]
    pcap: PcapArgs,

    #[command(flatten)]
    author: AuthorArgs,

    /// Instructions that each request and command may take. A boot may take 15 s of simulated time.
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    budget: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SpeedArg {
    /// 5 Gbit/s.
    Super,
    /// 480 Mbit/s.
    High,
}

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum EventKind {
    /// Packets and control transfers.
    Usb,
    /// Reads and writes of registers, by name.
    Registers,
    /// Bytes on the serial port.
    Uart,
    /// Calls and returns, indented by their depth.
    Calls,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file is not an image or takes no SCSI commands, if a command's data doesn't fit, or if a capture can't
/// be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let (_, file) = named_image::place(&args.file, context)?;
    let image = image_file::image(&file, Wish::Look)?;
    let commands = commands::planned(args)?;
    let symbols = args.author.symbols(&args.file, &image)?;
    let speed = match args.speed {
        SpeedArg::Super => Speed::Super,
        SpeedArg::High => Speed::High,
    };
    let mut driver = boot::powered_on(&image, speed);
    if args.gpu {
        let gpu = MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 1 << 20);
        driver.chip.fabric_mut().attach(Bdf::new(1, 0, 0), gpu);
    }
    let recording = args.pcap.start()?;
    let wire = recording.capture().map(|capture| capture.bus().attach());
    let recorder = InstructionObserver {
        trace: Trace::last(if args.trace { TRACE_KEPT } else { 0 }),
        calls: if args.events.contains(&EventKind::Calls) { Some(0) } else { None },
        until: args.until.clone(),
        hit: None,
        profile: args.author.profile.as_ref().map(|_| Profile::new(symbols.names.clone())),
        coverage: args.author.coverage.as_ref().map(|_| Coverage::default()),
        symbols,
    };
    let uart = args.serial || args.events.contains(&EventKind::Uart);
    if wire.is_some() || uart || args.events.iter().any(|kind| *kind != EventKind::Calls) {
        driver.chip.set_watch(Some(Box::new(Events::new(&args.events, uart, wire))));
    }
    let is_observed = recorder.is_needed();
    let observer = Rc::new(RefCell::new(recorder));
    driver.set_budget(args.budget);
    if is_observed {
        let observer = Rc::clone(&observer);
        driver.set_runner(move |chip, budget| chip.run_observed(budget, &mut *observer.borrow_mut()));
    }

    let mut report = RunReport {
        file: args.file.display().to_string(),
        version: Some(image.version()).filter(|version| version.has_date()).map(|version| version.to_string()),
        version_words: image.version().words(),
        ..RunReport::default()
    };
    // Waits until the firmware is up, and enumerates the unit as a host does.
    let enumerated = driver.enumerate().and_then(|()| boot::described(&mut driver));
    let answered = match enumerated {
        Ok(unit) => {
            let is_uas = !commands.is_empty() && commands::is_over_uas(args, &unit)?;
            (report.state, report.product) = (Some(unit.state), Some(unit.product));
            exchange(args, &commands, is_uas, &mut driver, &mut report)
        }
        Err(why) => Err(why),
    };
    // Shows the last line of the serial port, too.
    drop(driver.chip.set_watch(None));
    for line in observer.borrow().trace.lines() {
        errln!("{line}{}", observer.borrow().symbols.note(line.at, &line.instruction));
    }
    let hit = observer.borrow().hit;
    let hangs = hit.is_none() && answered.is_err();
    let stopped = hit.map(|at| format!("stopped at {at}")).or_else(|| answered.err().map(words));
    let chip = &mut driver.chip;
    let mut observer = observer.borrow_mut();
    let written = args.author.write(&observer)?;
    if stopped.is_some() {
        report.at = Some(place(chip.pc()));
        report.function = chip.at().and_then(|at| observer.symbols.names.label(at));
    }
    if hit.is_none() {
        report.not_reached = args.until.iter().map(ToString::to_string).collect();
    }
    let report = RunReport {
        stopped,
        instructions: chip.instructions(),
        stack_high_water: chip.stack_high_water(),
        uart: String::from_utf8_lossy(&chip.take_uart()).into_owned(),
        uart_lost: chip.uart_lost(),
        unknown_registers: chip.unknown_registers().iter().map(unknown).collect(),
        functions: observer.profile.as_ref().map(Profile::functions).unwrap_or_default(),
        symbols: std::mem::take(&mut observer.symbols.files),
        written,
        ..report
    };
    if args.json {
        print::json(&report);
    } else {
        show(&report);
    }
    Ok(if hangs { Exit::CheckFailed } else { Exit::Done })
}

/// A SETUP packet, with the data of a write.
type ControlRequest = ([u8; 8], Vec<u8>);

/// Parses bytes in hexadecimal, with or without spaces.
fn hex_bytes(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|char| !char.is_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err(format!("{} hexadecimal digits, expected two for each byte", digits.len()));
    }
    let nibble = |char: char| char.to_digit(16).ok_or_else(|| format!("{char:?} is not a hexadecimal digit"));
    digits.chunks(2).map(|pair| Ok((nibble(pair[0])? << 4 | nibble(pair[1])?) as u8)).collect()
}

fn cdb(text: &str) -> Result<Cdb, String> {
    Cdb::new(&hex_bytes(text)?).map_err(|error| error.to_string())
}

fn control_request(text: &str) -> Result<ControlRequest, String> {
    let bytes = hex_bytes(text)?;
    match bytes.split_first_chunk() {
        Some((setup, data)) => Ok((*setup, data.to_vec())),
        None => Err(format!("{} bytes, expected a SETUP packet's 8", bytes.len())),
    }
}

/// Sends the requests and commands, and reports the answers.
fn exchange(
    args: &Args,
    commands: &[PlannedCommand],
    is_uas: bool,
    driver: &mut Driver,
    report: &mut RunReport,
) -> Result<(), Unanswered> {
    if is_uas {
        driver.set_alternate(1)?;
    }
    for (setup, data) in &args.control {
        let before = driver.chip.instructions();
        let (answer, data) = match driver.control(*setup, data) {
            Ok(data) => ("done", data),
            Err(Unanswered::Stall) => ("stall", Vec::new()),
            Err(why) => return Err(why),
        };
        let instructions = driver.chip.instructions() - before;
        report.requests.push(RequestReport { setup: hex(setup), answer, data: hex(&data), instructions });
    }
    for command in commands {
        report.commands.push(command.send(driver)?);
    }
    Ok(())
}

fn words(why: Unanswered) -> String {
    match why {
        Unanswered::Stall => "a control request was stalled".to_owned(),
        Unanswered::Halted(endpoint) => format!("endpoint {endpoint:#04x} was halted"),
        Unanswered::Silent(RunEnd::Parked | RunEnd::Attention) => "no answer: the firmware waits".to_owned(),
        Unanswered::Silent(RunEnd::Budget) => "no answer within the budget".to_owned(),
        Unanswered::Silent(RunEnd::Reset) => "the firmware reset the chip".to_owned(),
        Unanswered::Silent(RunEnd::Halted) => "the firmware stopped for good".to_owned(),
        Unanswered::Silent(RunEnd::FlashGone) => "the flash lost its power".to_owned(),
    }
}

pub(in crate::cli) fn place(pc: u32) -> String {
    let (bank, addr) = ((pc >> 16) as u8, pc as u16);
    CodeAddress::fetched(bank, addr).map_or_else(|| format!("{addr:#06x}, outside the code"), |at| at.to_string())
}

pub(in crate::cli) fn xdata(at: XdataAddress) -> String {
    match at.page {
        asm2464::scsi::XdataPage::Main => format!("0x{:04X}", at.addr),
        asm2464::scsi::XdataPage::Other => format!("1:0x{:04X}", at.addr),
    }
}

fn hex(bytes: &[u8]) -> String {
    to_hex(bytes, " ")
}
