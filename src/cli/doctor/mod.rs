//! The `asmpatch doctor` command: checks whether a GPU runtime could start on a unit.

#[cfg(test)]
mod tests;
mod usb4;

use std::error::Error;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use super::arguments::{BackupPlace, PatchDirs, PortArgs};
use super::flash::steps::lines;
use crate::doctor::{Diagnosis, DoctorOptions, Report, Verdict, Wanted, diagnose, diagnose_tunnels, examine};
use crate::fetch::{DEFAULT_IMAGE, OPEN_IMAGE};
use crate::file_kind::{FileKind, MAX_TEXT};
use crate::flash::backup_folder;
use crate::flash::decide::Permission;
use crate::flash::fitting::{fitting, offers};
use crate::flash::recovery::{Act, ImageRef, NextStep, Why};
use crate::gpus::PciId;
use crate::image::Images;
use crate::shell;
use crate::unit::facts::{Facts, FlashChip};
use crate::unit::{self, NoUnit};
use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_chip::code::TextKind;
use asm2464_dock::files::{atomic, file};
use asm2464_host::bridge::UnitInfo;
use asm2464_host::usb::sysfs::{PciPort, Sysfs, TunnelledDevice, TunnelledDock, Tunnels};
use owo_colors::OwoColorize as _;
use serde::Serialize;

use super::context::Context;
use super::flash::steps::WordedStep;
use super::{command_line, print, user_files};
use crate::cli::errors::Exit;
use crate::cli::interrupt;
use crate::cli::invocation::Invocation;

/// Check whether a GPU runtime could start on a unit, and what prevents it.
///
/// Checks USB speed, permissions, firmware, PCIe link, supply and GPU, and runs a short bench: a line each, with what
/// to do. -v and --report also show the part and its flash. What it writes lasts until the power goes at most: bus
/// numbers of PCIe bridges that have none, a byte of the bridge's memory, and on open firmware 64 bytes through the
/// bulk pipes; there it also switches PCIe on if the link is down, as a runtime does. Writes nothing over an SSD, or
/// while a runtime holds its lock. Ends with status 0 only if a GPU runtime could start.
///
/// On Linux it also looks at a dock on USB4 or Thunderbolt, which is no USB device there: authorisation, NVM, suspended
/// ports, PCIe link, and the GPU with its driver. It only reads.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch doctor\n  asmpatch doctor --report unit.json\n  asmpatch doctor --from unit.json"
)]
pub struct Args {
    /// Write nothing to the unit. Then doctor doesn't know whether the bulk pipes of open firmware move data, and doesn't
    /// see devices behind PCIe bridges without bus numbers.
    #[arg(long)]
    no_write: bool,

    /// Write what a maintainer needs to FILE, as JSON: everything that was found, and some answers beside those of the
    /// same firmware on the chip model. Serial numbers are hashed; firmware, memory, names of files and programs, and
    /// models of drives are left out.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Diagnose what this report has found, whatever version of asmpatch wrote it. Looks at no unit and at nothing on
    /// this host.
    #[arg(long, value_name = "REPORT", conflicts_with_all = ["report", "no_write", "device", "usb_ids", "device_dirs", "pcap"])]
    from: Option<PathBuf>,

    /// Replace FILE if it exists.
    #[arg(long, requires = "report")]
    force: bool,

    /// Look for this device behind the bridge, in place of a GPU that tinygrad drives: an accelerator, or a GPU for a
    /// runtime of your own. Its PCI IDs are in hexadecimal, as in 1e60:2864.
    #[arg(long, value_name = "VENDOR:DEVICE")]
    expect: Option<PciId>,

    #[command(flatten)]
    port: PortArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DoctorJson<'a> {
    /// The unit; nothing of it if no unit is connected over USB, but devices are over USB4 or Thunderbolt.
    #[serde(flatten)]
    unit: Option<&'a UnitInfo>,
    /// The diagnosis of the unit; without a unit, that of USB4 and Thunderbolt.
    #[serde(flatten)]
    diagnosis: &'a Diagnosis<String>,
    /// Beside a unit, the diagnosis of USB4 and Thunderbolt; missing if nothing is connected there.
    #[serde(skip_serializing_if = "Option::is_none")]
    usb4: Option<&'a Diagnosis<String>>,
    /// The part's revision: XDATA 0xC8FF; missing if it can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    part_revision: Option<u8>,
    /// The flash behind the bridge; missing if the firmware gives no access to it, and with --no-write.
    #[serde(skip_serializing_if = "Option::is_none")]
    flash_part: Option<FlashChip>,
    /// The commands that give a unit in its boot loader its firmware and its own identity again, from its backups, in
    /// the order in which to try them.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    recovery: &'a [WordedStep],
    /// The devices that are connected over USB4 or Thunderbolt, one of which may be another dock; missing if there are
    /// none, and for a unit in software.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tunnelled: &'a [TunnelledDevice],
    /// The docks that the host sees on PCIe, over USB4; missing if there are none, and for a unit in software.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tunnelled_docks: &'a [TunnelledDock],
    /// The PCIe ports that lead to these docks; if none is known to, those that may hide a dock. Missing if there are none,
    /// and for a unit in software.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tunnel_ports: &'a [PciPort],
}

impl print::Document for DoctorJson<'_> {
    const VERSION: u32 = 3;
}

/// Whether a file is an earlier report, which the next one may replace.
fn is_report(path: &Path) -> bool {
    let Ok(text) = file::read_regular_text(path, MAX_TEXT) else { return false };
    let Ok(report) = serde_json::from_str::<serde_json::Value>(&text) else { return false };
    report["schema"].is_u64() && report["tool"].is_string()
}

/// Reads the facts of an earlier report.
///
/// # Errors
/// As for [`user_files::look`] and [`Report::parse`], and if the file is something else that asmpatch recognises.
fn facts_in(path: &Path) -> Result<Facts, AnyFailure> {
    let (bytes, kind) = user_files::look(path)?;
    if !matches!(kind, FileKind::Report | FileKind::Text(TextKind::Json)) {
        let label = Kind::BadInput.code("asmpatch::doctor::not_a_report");
        let message = format!("{} is {kind}, expected a report of `asmpatch doctor`", path.display());
        return Err(Failure::new(label, message).into());
    }
    let text = user_files::text_in(path, &bytes)?;
    Ok(Report::parse(&path.display().to_string(), &text)?.facts)
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, several are found and none is selected, a report can't be written, or on Ctrl-C. Problems
/// of the unit are results, not errors.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let interrupt = interrupt::install();
    if let Some(path) = &args.report {
        user_files::refuse_existing(path, args.force || is_report(path))?;
    }
    let images = Images::from(PatchDirs::default().load()?);
    let is_local = args.from.is_none();
    let facts = match &args.from {
        Some(path) => facts_in(path)?,
        None => {
            let (_recording, mut port) = match args.port.open() {
                Ok(opened) => opened,
                Err(error) => return without_unit(args, error),
            };
            let info = port.attached()?;
            let options = DoctorOptions { no_write: args.no_write, compare: args.report.is_some() };
            examine(&mut *port, info, options, &images, interrupt)?
        }
    };
    let gpus = crate::embedded::gpus()?;
    let runtime = crate::embedded::runtime()?;
    let diagnosis = diagnose(&facts, Wanted { gpus: &gpus, runtime: &runtime, expected: args.expect });
    let mut diagnosis =
        diagnosis.worded(|advice| command_line::advice_in_words(advice, &facts.unit.location, &context.invocation));
    let recovery = if is_local && facts.unit.state == BridgeState::BootLoader {
        let connected = unit::list(&args.port.ids.load()?).unwrap_or_default();
        Some(Recovery::of(&facts.unit, &connected, &images, &context.invocation))
    } else {
        None
    };
    if let Some(recovery) = &recovery {
        recovery.advise(&mut diagnosis);
    }
    let tunnels = if is_local && !facts.unit.is_virtual() { Sysfs::system().tunnels() } else { Tunnels::default() };
    if !args.json {
        let is_whole = context.is_verbose() || args.report.is_some() || !is_local;
        shown(&facts.unit, &diagnosis, is_whole).iter().for_each(|line| outln!("{line}"));
    }
    let beside = if tunnels.is_empty() { None } else { Some(usb4_diagnosis(&tunnels, args.expect)?) };
    if let Some(beside) = beside.as_ref().filter(|_| !args.json) {
        let head = format!("also connected, over USB4 or Thunderbolt: {tunnels}");
        shown(&head, beside, true).iter().for_each(|line| outln!("{line}"));
    }
    if args.json {
        print::json(&DoctorJson {
            unit: Some(&facts.unit),
            diagnosis: &diagnosis,
            usb4: beside.as_ref(),
            part_revision: facts.part_revision.answer().copied(),
            flash_part: facts.flash_part.answer().copied(),
            recovery: recovery.as_ref().map(|recovery| recovery.steps.as_slice()).unwrap_or_default(),
            tunnelled: &tunnels.devices,
            tunnelled_docks: &tunnels.docks,
            tunnel_ports: &tunnels.ports,
        });
    }
    let exit = if diagnosis.runtime.is_some() { Exit::Done } else { Exit::CheckFailed };
    if let Some(path) = &args.report {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let report = Report::new(&facts, kernel.as_deref());
        atomic::write(path, report.to_json().as_bytes())?;
        if !args.json {
            let form = issue_form(env!("CARGO_PKG_REPOSITORY"));
            let sent = match form {
                Some(form) => format!("please send it, because asmpatch has never run on silicon: {form}"),
                None => "keep it: there is no address yet to which it can be sent".to_owned(),
            };
            outln!("wrote {}: {sent}", shell::path(path).shown());
        }
    }
    Ok(exit)
}

/// Examines USB4 and Thunderbolt, if no unit is connected over USB and something is there; else returns the error of the
/// unit that can't be opened.
fn without_unit(args: &Args, error: AnyFailure) -> Result<Exit, AnyFailure> {
    let tunnels = match (error.coded() as &dyn Error).downcast_ref() {
        Some(NoUnit(tunnels)) if !tunnels.is_empty() && args.report.is_none() => tunnels,
        _ => return Err(error),
    };
    let diagnosis = usb4_diagnosis(tunnels, args.expect)?;
    if args.json {
        print::json(&DoctorJson {
            unit: None,
            diagnosis: &diagnosis,
            usb4: None,
            part_revision: None,
            flash_part: None,
            recovery: &[],
            tunnelled: &tunnels.devices,
            tunnelled_docks: &tunnels.docks,
            tunnel_ports: &tunnels.ports,
        });
    } else {
        let head = format!("over USB4 or Thunderbolt, and not over USB: {tunnels}");
        shown(&head, &diagnosis, true).iter().for_each(|line| outln!("{line}"));
    }
    Ok(if diagnosis.runtime.is_some() { Exit::Done } else { Exit::CheckFailed })
}

fn usb4_diagnosis(tunnels: &Tunnels, expected: Option<PciId>) -> Result<Diagnosis<String>, AnyFailure> {
    Ok(diagnose_tunnels(tunnels, &crate::embedded::gpus()?, expected).worded(usb4::words))
}

/// Returns the address at which the project takes reports; `None` while its repository is the placeholder of Cargo.toml.
fn issue_form(repository: &str) -> Option<String> {
    if repository.contains("/_owner_/") {
        return None;
    }
    Some(format!("{repository}/issues/new?template=dock.yml"))
}

/// Topics that don't affect the result. They are shown on request.
const DETAILS: [&str; 2] = ["part", "flash"];

/// Returns the page: a line for each finding, and whether a runtime can start.
fn shown(head: &impl Display, diagnosis: &Diagnosis<String>, is_whole: bool) -> Vec<String> {
    let mut page = vec![head.to_string()];
    for line in diagnosis.lines.iter().filter(|line| is_whole || !DETAILS.contains(&line.topic)) {
        let verdict = format!("{:<4}", line.verdict.to_string());
        let verdict = match line.verdict {
            Verdict::Good => verdict.green().to_string(),
            Verdict::Note | Verdict::Unknown => verdict.yellow().to_string(),
            Verdict::Bad => verdict.red().to_string(),
        };
        page.push(format!("  {verdict}  {:<10}  {}", line.topic, line.found));
        let advice = line.advice.iter().flat_map(|advice| advice.lines());
        page.extend(advice.map(|part| format!("                    {part}")));
    }
    let because = diagnosis.because.join(", ");
    page.push(match diagnosis.runtime {
        Some(runtime) => format!("a GPU runtime can start: {runtime}"),
        None if diagnosis.is_bad() => format!("no GPU runtime can start, because of: {because}"),
        None => format!("asmpatch doesn't know whether a GPU runtime can start: see {because}"),
    });
    page
}

/// The backups of a unit in its boot loader, as commands.
pub(super) struct Recovery {
    /// The commands, in the order in which to try them.
    steps: Vec<WordedStep>,
    /// Why none of them is from a backup, if so.
    otherwise: Option<String>,
    /// The commands for a new board, if it is not certain that one of the others is right.
    new_board: Vec<WordedStep>,
}

impl Recovery {
    /// Looks for the backups of a unit in its boot loader where `flash` and `backup` put them. `connected` are the units
    /// of this host.
    pub(super) fn of(unit: &UnitInfo, connected: &[UnitInfo], images: &Images, run: &Invocation) -> Self {
        let filed = BackupPlace::default()
            .folder()
            .map_err(|error| error.to_string())
            .and_then(|folder| Ok((backup_folder::filed(&folder).map_err(|error| error.to_string())?, folder)));
        let (steps, otherwise) = match &filed {
            Ok((filed, folder)) => {
                let fitting = fitting(unit, &[None, None], None, filed, connected);
                let offers = offers(&fitting, None, &[], &unit.location, images);
                (offers, format!("no backup in {} fits this unit", folder.shown()))
            }
            Err(why) => (Vec::new(), format!("asmpatch couldn't look for its backups: {}", why.shown())),
        };
        let otherwise = steps.is_empty().then(|| {
            format!(
                "{otherwise}. If its backups are elsewhere, set ASMPATCH_BACKUP_DIR to their folder and run this again"
            )
        });
        // Without the permission, `flash --yes` keeps to the backups.
        let permissions = if steps.is_empty() { Vec::new() } else { vec![Permission::CloneIdentity] };
        let mut new_board = Vec::new();
        if steps.iter().all(|step| step.only_if.is_some()) {
            for (why, id) in [(Why::NewBoard, OPEN_IMAGE), (Why::OrNewBoard, DEFAULT_IMAGE)] {
                let image = ImageRef::Known(id.to_owned());
                let permissions = permissions.clone();
                new_board
                    .push(NextStep::new(why, Act::Flash { image, permissions, blocks_from: None, backs_up: false }));
            }
        }
        let worded = |steps: &[NextStep]| WordedStep::each(steps, run, None, &unit.location);
        Self { steps: worded(&steps), otherwise, new_board: worded(&new_board) }
    }

    /// The commands as notes on the unit.
    pub(super) fn notes(&self) -> Vec<String> {
        let steps = self.steps.iter().chain(&self.new_board).map(WordedStep::note);
        self.otherwise.iter().cloned().chain(steps).collect()
    }

    /// Puts the commands into the diagnosis, in place of its advice on the firmware.
    fn advise(&self, diagnosis: &mut Diagnosis<String>) {
        let steps = [&self.steps[..], &self.new_board].concat();
        let advice: Vec<String> = self.otherwise.iter().cloned().chain(lines(&steps)).collect();
        if let Some(line) = diagnosis.lines.iter_mut().find(|line| line.topic == "firmware") {
            line.advice = Some(advice.join("\n"));
        }
    }
}
