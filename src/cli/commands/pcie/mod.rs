//! The `asmpatch pcie` command: shows and reaches what is behind a unit on PCIe.

pub(in crate::cli) mod power;
pub(in crate::cli) mod show;

use std::time::{Duration, Instant};

use crate::restart::cycle_pcie;
use crate::unit::ask::{LINK_STEP_MS, LINK_STEPS};
use crate::unit::{Live, Purpose};
use asm2464::digest::{parse_hex, to_hex};
use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Bdf, Coded as _, Failure, Kind, text};
use asm2464_host::bridge::open::Supply;
use asm2464_host::pcie::{Link, Patience, Pcie, PcieError, Scope, Survey, TlpEngine};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::given::arguments::{DeviceArgs, OpenedUnit};
use crate::cli::given::context::Context;
use crate::cli::words::errors::Exit;
use crate::cli::words::interrupt;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::{print, terminal};

/// Show what is behind a unit on PCIe: link, devices, memory.
///
/// Answers the first question after a flash: is my GPU there, and how fast is its link? Works on the vendor's firmware,
/// patched or not, and on open firmware. A device's memory is behind its BARs, address ranges that the host assigns:
/// here only with --assign. PCIe bridges without bus numbers get some, and their windows are set if no BAR in the tree
/// has an address; the output says so. A unit with an SSD is left alone: its firmware drives the SSD through the same
/// registers.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  asmpatch pcie\n  asmpatch pcie -xxx --json\n  asmpatch pcie --assign\n  \
asmpatch pcie read --assign 0x10000000 64\n\nWhat it changes, and what it can't know: `asmpatch help pcie.md`.")]
pub struct Args {
    #[command(subcommand)]
    action: Option<PcieCommand>,

    #[command(flatten)]
    show: ShowArgs,
}

impl Args {
    /// Whether the command only shows something.
    pub const fn only_prints(&self) -> bool {
        matches!(self.action, None | Some(PcieCommand::Read { .. }))
    }
}

#[derive(Debug, clap::Subcommand)]
enum PcieCommand {
    /// Read memory on the PCIe side: what a BAR decodes.
    #[command(after_help = "Examples:\n  asmpatch pcie read --assign 0x10000000 64")]
    Read {
        /// PCIe address, such as 0x10000000.
        #[arg(value_parser = parse_number)]
        address: u64,

        /// Number of bytes, such as 64 or 0x40; at most 1 MiB.
        #[arg(value_parser = parse_len::<READ_MAX>)]
        len: usize,

        #[command(flatten)]
        options: PcieOptions,
    },
    /// Write memory on the PCIe side.
    ///
    /// A write has no answer, so this first looks for the device whose BAR takes all of the bytes, and refuses to send
    /// what no device takes.
    #[command(after_help = "Examples:\n  asmpatch pcie write 0x10000000 00ff10aa")]
    Write {
        /// PCIe address, such as 0x10000000.
        #[arg(value_parser = parse_number)]
        address: u64,

        /// The bytes in hexadecimal, the one at ADDRESS first, such as 00ff10.
        #[arg(value_parser = parse_bytes)]
        bytes: Box<[u8]>,

        /// Send the bytes without looking for a device that takes them.
        #[arg(long)]
        force: bool,

        #[command(flatten)]
        options: PcieOptions,
    },
    /// Reset everything behind the bridge, then show it.
    ///
    /// On open firmware, PCIe's power is switched off and on. On the vendor's, and on open builds without that request,
    /// the root port sends a hot reset. Bus numbers, windows and BARs behind the bridge are lost.
    #[command(after_help = "Examples:\n  asmpatch pcie reset --device 3-1.2")]
    Reset(ShowArgs),
    /// Switch PCIe's power off, and say when the dock's supply may be cut.
    ///
    /// For open firmware. Sends F3 and waits until the PCIe link is down, at most 3 s. Says so if a build keeps the link
    /// up. Refuses a unit whose lock a GPU runtime holds. `asmpatch pcie on`, `asmpatch doctor` and each runtime switch
    /// PCIe on again.
    #[command(after_help = "Examples:\n  asmpatch pcie off --device 3-1.2")]
    Off(power::PowerArgs),
    /// Switch PCIe's power on, and wait for its link.
    ///
    /// For open firmware. Leaves a link alone that is up. Sends F3, as a GPU runtime does when it starts, and waits at most
    /// 3 s. Refuses a unit whose lock a GPU runtime holds.
    #[command(after_help = "Examples:\n  asmpatch pcie on --device 3-1.2")]
    On(power::PowerArgs),
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Show configuration space in hexadecimal: the header with -x, 256 bytes with -xxx, all of it and the extended
    /// capabilities with -xxxx.
    #[arg(short = 'x', action = clap::ArgAction::Count)]
    hex: u8,

    /// Write nothing at all: no bus numbers, no windows, and no probing of BAR sizes.
    #[arg(long, conflicts_with = "assign")]
    read_only: bool,

    #[command(flatten)]
    options: PcieOptions,
}

/// Options of every action.
#[derive(Debug, clap::Args)]
struct PcieOptions {
    /// Assign windows and BARs anew first. Whatever uses a device behind the bridge loses it.
    #[arg(long)]
    assign: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    device: DeviceArgs,
}

/// The most bytes that one command reads.
const READ_MAX: usize = 1 << 20;
/// How long a survey of a dock may take. A tree that answers takes a fraction of a second. A virtual unit's takes as long as
/// this host needs for it.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(30);

pub(in crate::cli) fn parse_number(text: &str) -> Result<u64, String> {
    text::parse_number(text).ok_or_else(|| "expected a number, as 4096 or 0x1000".to_owned())
}

/// Parses a number of bytes from 1 to `MAX`.
pub(in crate::cli) fn parse_len<const MAX: usize>(text: &str) -> Result<usize, String> {
    let len = usize::try_from(parse_number(text)?).ok().filter(|len| (1..=MAX).contains(len));
    len.ok_or_else(|| format!("expected 1 to {MAX:#x} bytes"))
}

pub(in crate::cli) fn parse_bytes(text: &str) -> Result<Box<[u8]>, String> {
    let bytes = parse_hex(text).ok().filter(|bytes| !bytes.is_empty());
    bytes.map(Vec::into_boxed_slice).ok_or_else(|| "expected pairs of hexadecimal digits, as 00ff10".to_owned())
}

/// The survey that finds which BAR decodes an address: it probes sizes of BARs, but sets no bus numbers and windows.
const SIZES: Scope = Scope { buses: false, windows: false, sizes: true, extended: false };

/// Waits by the clock until the deadline, if there is one, and stops on Ctrl-C.
struct UntilDeadline {
    interrupt: Interrupt<'static>,
    until: Option<Instant>,
}

impl Patience for UntilDeadline {
    fn wait(&mut self, milliseconds: u64) {
        self.interrupt.wait(milliseconds);
    }

    fn goes_on(&mut self) -> bool {
        self.interrupt.goes_on() && self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// Opens a unit without an SSD behind it.
///
/// # Errors
/// Fails if no unit is found, it has an SSD, or its firmware carries no PCIe requests.
fn open(args: &DeviceArgs) -> Result<OpenedUnit<'_>, AnyFailure> {
    let mut opened = args.open(Purpose::Pcie)?;
    // On vendor firmware this also sends the first SCSI commands, at which the firmware brings the link up.
    opened.live.spare_ssd(&opened.unit.info.location.to_string(), Purpose::Pcie)?;
    Ok(opened)
}

/// What is behind a unit.
struct Reached<'a> {
    engine: Box<dyn TlpEngine + 'a>,
    patience: UntilDeadline,
    device: String,
    firmware: BridgeState,
    supply: Option<Supply>,
    /// Whether the link may be down because nothing has switched PCIe on.
    may_be_off: bool,
    /// The command that was run, for this unit.
    invocation: Invocation,
}

impl<'a> Reached<'a> {
    /// Reaches what is behind the unit, within [`SURVEY_TIMEOUT`] from now on.
    fn through(opened: &'a mut OpenedUnit<'_>, context: &Context) -> Result<Self, AnyFailure> {
        let supply = match &mut opened.live {
            Live::Open(unit) => unit.supply()?,
            Live::Vendor(_) => None,
        };
        let info = &opened.unit.info;
        let until = if info.location.is_virtual() { None } else { Some(Instant::now() + SURVEY_TIMEOUT) };
        Ok(Self {
            engine: opened.live.engine(),
            patience: UntilDeadline { interrupt: interrupt::install(), until },
            device: info.location.to_string(),
            firmware: info.state,
            supply,
            may_be_off: info.state == BridgeState::OpenFirmware,
            invocation: context.invocation.at(&info.location),
        })
    }

    fn pcie(&mut self) -> Pcie<'_> {
        Pcie::new(&mut *self.engine, &mut self.patience)
    }

    /// The failure of a request. A link that is down needs hands, unless PCIe may be switched off. A survey that is
    /// stopped, if not by Ctrl-C, took too long.
    fn failed(&self, error: PcieError) -> AnyFailure {
        match error {
            PcieError::LinkDown { .. } if !self.may_be_off => power::stays_down(&self.device, &error).into(),
            PcieError::Stopped { at } => {
                let after = format!("{}: the survey was ended after {SURVEY_TIMEOUT:?}, at {at}", self.device);
                Failure::new(error.kind().code(error.code()), after).into()
            }
            error => error.into(),
        }
    }

    fn survey(&mut self, assigns: bool, scope: Scope) -> Result<Survey, AnyFailure> {
        // An assignment would replace windows that the survey sets.
        let scope = Scope { windows: scope.windows && !assigns, ..scope };
        let mut pcie = self.pcie();
        let found = pcie.survey(scope).and_then(|mut survey| {
            if assigns {
                pcie.assign(&mut survey)?;
            }
            Ok(survey)
        });
        // A survey stopped by Ctrl-C returns an error that says so.
        if matches!(found, Err(PcieError::Stopped { .. })) {
            self.patience.interrupt.check()?;
        }
        found.map_err(|error| self.failed(error))
    }

    /// Makes memory reachable with `--assign`; without it, only checks the link.
    fn assign(&mut self, is_wanted: bool) -> Result<(), AnyFailure> {
        if is_wanted {
            self.survey(true, Scope::USUAL)?;
            return Ok(());
        }
        let Link { ltssm, is_up } = self.pcie().trained_link()?;
        if is_up { Ok(()) } else { Err(self.failed(PcieError::LinkDown { ltssm })) }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, it has an SSD or no firmware, the link is down, or a request fails.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    interrupt::install();
    match &args.action {
        None => {
            let mut opened = open(&args.show.options.device)?;
            show_tree(&args.show, &mut Reached::through(&mut opened, context)?)?;
        }
        Some(PcieCommand::Reset(args)) => reset(args, context)?,
        Some(PcieCommand::Off(args)) => power::switch(args, false)?,
        Some(PcieCommand::On(args)) => power::switch(args, true)?,
        Some(PcieCommand::Read { address, len, options }) => read(*address, *len, options, context)?,
        Some(PcieCommand::Write { address, bytes, force, options }) => {
            write(*address, bytes, *force, options, context)?;
        }
    }
    Ok(Exit::Done)
}

/// Resets everything behind the bridge, and shows it.
fn reset(args: &ShowArgs, context: &Context) -> Result<(), AnyFailure> {
    let mut opened = open(&args.options.device)?;
    let is_power_cycled = match &mut opened.live {
        Live::Open(unit) => cycle_pcie(unit)?,
        Live::Vendor(_) => false,
    };
    let mut reached = Reached::through(&mut opened, context)?;
    reached.may_be_off = false;
    if !is_power_cycled {
        reached.pcie().hot_reset()?;
    }
    let link = reached.pcie().wait_for_link(LINK_STEPS, LINK_STEP_MS);
    link.map_err(|error| reached.failed(error))?;
    show_tree(args, &mut reached)
}

fn show_tree(args: &ShowArgs, reached: &mut Reached<'_>) -> Result<(), AnyFailure> {
    let scope = if args.read_only { Scope::READ_ONLY } else { Scope::USUAL };
    let scope = Scope { extended: args.hex >= 4, ..scope };
    let survey = reached.survey(args.options.assign, scope)?;
    let dwords = match args.hex {
        0 => 0,
        1 | 2 => 16,
        3 => 64,
        4.. => 1024,
    };
    let mut spaces = Vec::new();
    if dwords > 0 {
        for function in &survey.functions {
            reached.patience.interrupt.check()?;
            spaces.push(reached.pcie().config_dwords(function.at, 0, dwords)?);
        }
    }
    let names = show::names(&survey);
    // A link that went down meanwhile is as down as one that was down before.
    let Link { ltssm, is_up } = survey.link;
    if !args.options.json {
        show::print(reached, &survey, &names, &spaces);
    } else if is_up {
        print::json(&show::json(reached, &survey, &names, &spaces));
    }
    if is_up { Ok(()) } else { Err(reached.failed(PcieError::LinkDown { ltssm })) }
}

/// The bytes that were read or written.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct MemoryJson<'a> {
    /// The unit's port, as `--device` takes it.
    device: &'a str,
    /// The address of the first byte on the PCIe side.
    address: u64,
    /// The bytes that were read or written, in hexadecimal.
    bytes: String,
    /// With `write`: the function whose BAR takes the bytes; left out after `--force`, which does not look.
    #[serde(skip_serializing_if = "Option::is_none")]
    decoder: Option<Bdf>,
}

impl print::Document for MemoryJson<'_> {}

fn read(address: u64, len: usize, options: &PcieOptions, context: &Context) -> Result<(), AnyFailure> {
    let mut opened = open(&options.device)?;
    let mut reached = Reached::through(&mut opened, context)?;
    reached.assign(options.assign)?;
    let mut bytes = vec![0; len];
    let bar = terminal::bars(context.shows_progress()).add(ProgressBar::new(len as u64));
    if let Ok(style) = ProgressStyle::with_template("[{bar:20}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left") {
        bar.set_style(style);
    }
    // Read in pieces, so that Ctrl-C ends a long read.
    let mut next = address;
    for piece in bytes.chunks_mut(256) {
        reached.patience.interrupt.check()?;
        reached.pcie().memory_read(next, piece)?;
        next = next.wrapping_add(piece.len() as u64);
        bar.inc(piece.len() as u64);
    }
    bar.finish_and_clear();
    if options.json {
        print::json(&MemoryJson { device: &reached.device, address, bytes: to_hex(&bytes, ""), decoder: None });
    } else {
        print::out(show::dump(address, &bytes));
    }
    Ok(())
}

fn write(address: u64, bytes: &[u8], force: bool, options: &PcieOptions, context: &Context) -> Result<(), AnyFailure> {
    let mut opened = open(&options.device)?;
    let mut reached = Reached::through(&mut opened, context)?;
    reached.assign(options.assign)?;
    let len = bytes.len();
    let mut decoder = None;
    if !force {
        decoder = reached.survey(false, SIZES)?.decoder(address, len as u64);
        if decoder.is_none() {
            let device = &reached.device;
            let message = format!("{device}: no BAR behind the bridge takes all of the {len} bytes at {address:#x}");
            return Err(Failure::new(Kind::Refused.code("asmpatch::pcie::unclaimed"), message).into());
        }
    }
    reached.pcie().memory_write(address, bytes)?;
    let device = reached.device.as_str();
    match decoder {
        _ if options.json => print::json(&MemoryJson { device, address, bytes: to_hex(bytes, ""), decoder }),
        Some(decoder) => outln!("{}: {len} bytes written at {address:#x}, to {decoder}", device.shown()),
        None => {
            outln!("{}: {len} bytes sent to {address:#x}, but not known whether a device took them", device.shown())
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_taken_as_people_write_them() {
        assert_eq!((parse_number("0x10"), parse_number("10")), (Ok(16), Ok(10)));
        assert!(parse_number("x").is_err() && parse_number("0x").is_err() && parse_number("-1").is_err());
        assert_eq!(parse_bytes("00fF10"), Ok([0, 0xFF, 0x10].into()));
        assert!(parse_bytes("0").is_err() && parse_bytes("").is_err() && parse_bytes("zz").is_err());
        let parse_len = parse_len::<READ_MAX>;
        assert!(parse_len("0").is_err() && parse_len("0x100001").is_err() && parse_len("0x100000").is_ok());
    }
}
