//! The `asmpatch doctor` command: checks whether a GPU runtime could start on a unit.

pub(in crate::cli) mod fix;
mod recovery;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use crate::advice::Applicability;
use crate::cli::given::arguments::{PatchDirs, UnitsArgs};
use crate::doctor::{
    Diagnosis, DoctorOptions, Report, TopicLine, Verdict, Wanted, at_work, diagnose, diagnose_tunnels, examine,
};
use crate::file_kind::{FileKind, MAX_TEXT};
use crate::flash::recovery::{Act, NextStep, Why};
use crate::gpus::PciId;
use crate::image::Images;
use crate::shell;
use crate::unit::facts::{Facts, FlashChip};
use crate::unit::{self, NoUnit};
use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464::{AnyFailure, Failure, Kind, Named};
use asm2464_chip::code::TextKind;
use asm2464_files::{atomic, file};
use asm2464_host::bridge::{Port, UnitInfo};
use asm2464_host::usb::OtherChip;
use asm2464_host::usb::sysfs::{PciPort, Sysfs, TunnelledDevice, TunnelledDock, Tunnels};
use owo_colors::OwoColorize as _;
use serde::Serialize;

use self::fix::plan::Finding;
pub(in crate::cli) use self::recovery::Recovery;
use crate::cli::commands::virtual_unit;
use crate::cli::given::context::Context;
use crate::cli::given::{image_file, user_files};
use crate::cli::words::errors::Exit;
use crate::cli::words::interrupt;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::printed_command::Effect;
use crate::cli::words::worded_step::{StepCommand, WordedStep, lines};
use crate::cli::words::{advice, print};

/// Check whether a GPU runtime could start on a unit, and what prevents it.
///
/// Checks USB speed, permissions, firmware, PCIe link, supply and GPU, and runs a short bench: a line each, with what
/// to do. -v and --report also show the part and its flash. What it writes lasts until the power goes at most: bus
/// numbers of PCIe bridges that have none, a byte of the bridge's memory, and on open firmware 64 bytes through the
/// bulk pipes; there it also switches PCIe on if the link is down, as a runtime does. Writes nothing over an SSD, or
/// while a runtime holds its lock. Ends with status 0 only if a GPU runtime could start; of several docks, on each.
///
/// On Linux, without --device, it also looks at a dock on USB4 or Thunderbolt, which is no USB device there:
/// authorisation, NVM, suspended ports, PCIe link, and the GPU with its driver. It only reads.
#[derive(Debug, Default, clap::Args)]
#[command(mut_arg("all", |all| all.help(ALL)))]
#[command(
    after_help = "Examples:\n  asmpatch doctor\n  asmpatch doctor --fix\n  asmpatch doctor --all --json\n  asmpatch doctor --report unit.json\n  asmpatch doctor --from unit.json"
)]
pub struct Args {
    /// Take the steps that help, one after the other, until a GPU runtime can start: runs asmpatch's own commands, which
    /// ask before they write, and waits for what you do by hand. Asks before each step that is not certain, or that
    /// permits something. Without a terminal, and with --json, does only steps that ask nothing and write no flash.
    #[arg(long, conflicts_with_all = ["all", "from", "report", "no_write", "pcap"])]
    fix: bool,

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
    #[arg(long, value_name = "REPORT", conflicts_with_all = ["report", "no_write", "device", "all", "usb_ids", "device_dirs", "pcap"])]
    from: Option<PathBuf>,

    /// Replace FILE if it exists.
    #[arg(long, requires = "report")]
    force: bool,

    /// Look for this device behind the bridge, in place of a GPU that tinygrad drives: an accelerator, or a GPU for a
    /// runtime of your own. Its PCI IDs are in hexadecimal, as in 1e60:2864.
    #[arg(long, value_name = "VENDOR:DEVICE")]
    expect: Option<PciId>,

    #[command(flatten)]
    units: UnitsArgs,

    /// Print JSON: an object or, with --all or several units, an array.
    #[arg(long)]
    json: bool,
}

const ALL: &str = "Examine all connected units, one after the other, whatever ASMPATCH_DEVICE names. --device more than once \
                   names several";

/// A line of a diagnosis with its advice in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct WordedLine {
    #[serde(flatten)]
    line: TopicLine,
    /// What to do, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// The same as steps, in the order in which to try them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<WordedStep>,
}

impl WordedLine {
    fn advise(&mut self, steps: Vec<WordedStep>) {
        self.advice = if steps.is_empty() { None } else { Some(lines(&steps).join("\n")) };
        self.steps = steps;
    }
}

/// A diagnosis in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct WordedDiagnosis {
    /// The lines.
    lines: Vec<WordedLine>,
    /// The runtime that can start; nothing if none can, if that is not known, or if nothing shows that there is a dock.
    runtime: Option<&'static str>,
    /// The topics that keep a runtime from starting: those that are bad or, if none is, those that are not known.
    because: Vec<&'static str>,
}

impl WordedDiagnosis {
    /// Words a diagnosis of the unit that `invocation` is at.
    fn of(diagnosis: Diagnosis, invocation: &Invocation) -> Self {
        let Diagnosis { lines, runtime, because } = diagnosis;
        let mut worded = Vec::new();
        for line in lines {
            let steps = line.advice.as_ref().map(|advice| advice::steps(advice, invocation)).unwrap_or_default();
            let mut line = WordedLine { line, advice: None, steps: Vec::new() };
            line.advise(steps);
            worded.push(line);
        }
        Self { lines: worded, runtime, because }
    }

    /// What keeps a runtime from starting, with the steps that help.
    fn findings(&self) -> Vec<Finding> {
        let decides =
            |line: &&WordedLine| line.line.verdict >= Verdict::Unknown && self.because.contains(&line.line.topic);
        let is_bad = self.lines.iter().any(|line| line.line.verdict == Verdict::Bad);
        let deciding = self.lines.iter().filter(decides).filter(|line| !is_bad || line.line.verdict == Verdict::Bad);
        let finding = |WordedLine { line, steps, .. }: &WordedLine| Finding {
            topic: line.topic.to_owned(),
            found: line.found.clone(),
            steps: steps.clone(),
        };
        deciding.map(finding).collect()
    }

    /// The same without what to do.
    fn without_advice(&self) -> Self {
        let lines = self.lines.iter().map(|line| WordedLine { advice: None, ..line.clone() });
        Self { lines: lines.collect(), ..self.clone() }
    }

    /// Prints the page: a heading, a line for each finding, and whether a runtime can start.
    fn print(&self, heading: &impl Display, is_whole: bool) {
        shown(heading, self, is_whole).iter().for_each(|line| outln!("{line}"));
    }

    /// Success unless something keeps a runtime from starting.
    const fn exit(&self) -> Exit {
        if self.because.is_empty() { Exit::Done } else { Exit::CheckFailed }
    }
}

#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct DoctorJson {
    /// The unit; nothing of it in the element of an array, or in the only document, that is about USB4 and Thunderbolt.
    #[serde(flatten)]
    unit: Option<UnitInfo>,
    /// The diagnosis of the unit; without a unit, that of USB4 and Thunderbolt.
    #[serde(flatten)]
    diagnosis: WordedDiagnosis,
    /// Beside the only unit, the diagnosis of USB4 and Thunderbolt; missing if nothing is connected there, and with
    /// --device.
    #[serde(skip_serializing_if = "Option::is_none")]
    usb4: Option<WordedDiagnosis>,
    /// The part's revision: XDATA 0xC8FF; missing if it can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    part_revision: Option<u8>,
    /// The flash behind the bridge; missing if the firmware gives no access to it, and with --no-write.
    #[serde(skip_serializing_if = "Option::is_none")]
    flash_part: Option<FlashChip>,
    /// The commands that give a unit in its boot loader its firmware and its own identity again, from its backups, in
    /// the order in which to try them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recovery: Vec<WordedStep>,
    /// The devices that are connected over USB4 or Thunderbolt, one of which may be another dock; missing if there are
    /// none, and with --device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnelled: Vec<TunnelledDevice>,
    /// The docks that the host sees on PCIe, over USB4; missing if there are none, and with --device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnelled_docks: Vec<TunnelledDock>,
    /// The PCIe ports that lead to these docks; if none is known to, those that may hide a dock. Missing if there are none,
    /// and with --device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnel_ports: Vec<PciPort>,
    /// The keys of a virtual unit's bridge.toml that set it apart from a sound dock with a card; missing if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set: Vec<&'static str>,
    /// The command that takes these keys out; missing if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    unset: Option<StepCommand>,
    /// The heading of its page.
    #[serde(skip)]
    heading: String,
    /// Why a runtime may be at work on the unit, if one may be.
    #[serde(skip)]
    at_work: Option<String>,
    /// Takes out what is set for a virtual unit and stops transfers again after each power-up.
    #[serde(skip)]
    take_out: Option<WordedStep>,
    /// The same for what is set and decides one topic.
    #[serde(skip)]
    decided: Vec<(&'static str, WordedStep)>,
}

impl print::Document for DoctorJson {
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
/// As for [`image_file::look`] and [`Report::parse`], and if the file is something else that asmpatch recognises.
fn facts_in(path: &Path) -> Result<Facts, AnyFailure> {
    let (bytes, kind) = image_file::look(path)?;
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
/// of a unit are results, not errors.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    if args.fix {
        return fix::run(args, context);
    }
    interrupt::install();
    if let Some(path) = &args.from {
        let (gpus, runtime) = (crate::embedded::gpus()?, crate::embedded::runtime()?);
        return diagnose_report(path, Wanted { gpus: &gpus, runtime: &runtime, expected: args.expect }, args.json);
    }
    if let Some(path) = &args.report {
        user_files::check_output(path, None, args.force || is_report(path))?;
    }
    let documents = look(args, context, !args.json)?;
    match documents.as_slice() {
        _ if !args.json => {}
        [only] if !args.units.all => print::json(only),
        several => print::json_each(several),
    }
    Ok(worst(&documents))
}

/// Examines the units and, without --device, what is connected over USB4 and Thunderbolt. `is_shown` prints each page as
/// soon as it is known.
fn look(args: &Args, context: &Context, is_shown: bool) -> Result<Vec<DoctorJson>, AnyFailure> {
    let interrupt = interrupt::install();
    let (gpus, runtime) = (crate::embedded::gpus()?, crate::embedded::runtime()?);
    let wanted = Wanted { gpus: &gpus, runtime: &runtime, expected: args.expect };
    let images = Images::from(PatchDirs::default().load()?);
    let recording = args.units.pcap.start()?;
    let (mut ports, tunnels) = match args.units.ports(recording.capture()) {
        Ok(ports) if args.units.device.is_empty() => (ports, Sysfs::system().tunnels()),
        Ok(ports) => (ports, Tunnels::default()),
        Err(error) => match (error.coded() as &dyn Error).downcast_ref() {
            Some(NoUnit { tunnels, .. }) if !tunnels.is_empty() && args.report.is_none() => {
                (Vec::new(), tunnels.clone())
            }
            _ => return Err(error),
        },
    };
    if args.report.is_some() && ports.len() > 1 {
        return Err(report_of_several(&ports).into());
    }
    let units: Vec<UnitInfo> = ports.iter_mut().map(|port| port.attached()).collect::<Result<_, _>>()?;
    let options = DoctorOptions { no_write: args.no_write, compare: args.report.is_some() };
    let mut documents = Vec::new();
    for (port, unit) in ports.iter_mut().zip(units) {
        let facts = examine(&mut **port, unit, options, &images, interrupt)?;
        let mut document = DoctorJson::of(&facts, wanted, &context.invocation);
        if facts.unit.state == BridgeState::BootLoader {
            document.recover(&unit::list(&args.units.ids.load()?).unwrap_or_default(), &images, &context.invocation);
        }
        let invocation = context.invocation.at(&facts.unit.location);
        document.take_out = take_out(unit::set_faults(&facts.unit.location), &invocation);
        document.set = unit::set_keys(&facts.unit.location);
        document.unset = virtual_unit::unset_at(&document.set, &facts.unit.location);
        for (topic, keys) in DECIDE {
            let set = document.set.iter().copied().filter(|key| keys.contains(key)).collect();
            document.decided.extend(take_out(set, &invocation).map(|step| (topic, step)));
        }
        if is_shown {
            if !documents.is_empty() {
                outln!("");
            }
            document.diagnosis.print(&facts.unit, context.is_verbose || args.report.is_some());
        }
        if let Some(path) = &args.report {
            write_report(path, &facts, args.json)?;
        }
        documents.push(document);
    }
    if !tunnels.is_empty() {
        let has_units = !documents.is_empty();
        let heading = tunnels_heading(&tunnels, has_units);
        let diagnosis = diagnose_tunnels(&tunnels, &gpus, args.expect, has_units);
        let diagnosis = WordedDiagnosis::of(diagnosis, &Invocation::default());
        if is_shown {
            diagnosis.print(&heading, true);
        }
        match documents.as_mut_slice() {
            [only] if !args.units.all => only.usb4 = Some(diagnosis),
            _ => documents.push(DoctorJson { heading, diagnosis, ..DoctorJson::default() }),
        }
        if let Some(last) = documents.last_mut() {
            last.tunnelled = tunnels.devices;
            last.tunnelled_docks = tunnels.docks;
            last.tunnel_ports = tunnels.ports;
        }
    }
    Ok(documents)
}

/// The keys of a virtual unit's bridge.toml that decide a topic, whatever the unit's firmware is.
const DECIDE: [(&str, &[&str]); 6] = [
    ("USB", &["speed", "speed-after-reset"]),
    ("firmware", &["state"]),
    ("PCIe link", &["behind", "pcie-starts-off", "pcie-link-lost-after"]),
    ("12 V", &["supply"]),
    ("GPU", &["behind", "pcie-link-lost-after"]),
    ("device", &["behind", "pcie-link-lost-after"]),
];

/// Takes these keys out of a virtual unit's bridge.toml; nothing if there are none.
fn take_out(keys: Vec<&'static str>, invocation: &Invocation) -> Option<WordedStep> {
    if keys.is_empty() {
        return None;
    }
    Some(WordedStep::of(&NextStep::new(Why::WithoutFaults, Act::TakeOut(keys)), invocation))
}

/// The place of the first step that is for hands or writes a flash, or of the one that leads to it; behind all of them if
/// there is none.
fn before_hands(steps: &[WordedStep]) -> usize {
    let is_own =
        |step: &WordedStep| matches!(&step.command, Some(StepCommand::Own(own)) if own.effect() != Effect::Writes);
    let mut at = steps.iter().position(|step| !is_own(step)).unwrap_or(steps.len());
    while at > 0 && steps.get(at).is_some_and(|step| step.follows.is_some()) {
        at -= 1;
    }
    at
}

/// The exit status of several units and of USB4: the worst one.
fn worst(documents: &[DoctorJson]) -> Exit {
    let all = documents.iter().flat_map(|document| iter::once(&document.diagnosis).chain(&document.usb4));
    all.map(WordedDiagnosis::exit).max().unwrap_or(Exit::Done)
}

/// The heading of a unit's page. Another chip's firmware is no unit's, so that chip is named in its place.
fn heading(unit: &UnitInfo) -> String {
    match OtherChip::with(unit.id) {
        Some(chip) => format!("{} {} ({})", unit.location, unit.id, chip.name),
        None => unit.to_string(),
    }
}

/// The heading of the page about USB4 and Thunderbolt, which follows those of units if there are any.
fn tunnels_heading(tunnels: &Tunnels, has_units: bool) -> String {
    let what = match (has_units, tunnels.docks.is_empty()) {
        (false, _) => "over USB4 or Thunderbolt, and not over USB",
        (true, true) => "also connected, over USB4 or Thunderbolt, and perhaps no dock",
        (true, false) => "also connected, over USB4 or Thunderbolt",
    };
    format!("{what}: {tunnels}")
}

/// Diagnoses the unit of an earlier report. What its steps run is for the host of that unit, so they have no command.
fn of_report(facts: &Facts, wanted: Wanted<'_>) -> DoctorJson {
    let mut document = DoctorJson::of(facts, wanted, &Invocation::default());
    for line in &mut document.diagnosis.lines {
        let mut steps = std::mem::take(&mut line.steps);
        for step in &mut steps {
            (step.applicability, step.command) = (Applicability::Hands, None);
        }
        // Steps that differ only in their commands.
        steps.dedup();
        line.advise(steps);
    }
    document
}

fn diagnose_report(path: &Path, wanted: Wanted<'_>, is_json: bool) -> Result<Exit, AnyFailure> {
    let facts = facts_in(path)?;
    let document = of_report(&facts, wanted);
    if is_json {
        print::json(&document);
    } else {
        document.diagnosis.print(&facts.unit, true);
    }
    Ok(document.diagnosis.exit())
}

/// The failure of a report that several units would write.
fn report_of_several(ports: &[Box<dyn Port>]) -> Failure {
    let devices: Vec<String> = ports.iter().map(|port| port.location().to_string()).collect();
    let message = format!("a report is of one unit, and there are {}: {}", devices.len(), devices.join(", "));
    let failure = Failure::new(Kind::Refused.code("asmpatch::doctor::several"), message);
    devices.into_iter().fold(failure, |failure, device| failure.naming(Named::Port(device)))
}

fn write_report(path: &Path, facts: &Facts, is_silent: bool) -> Result<(), AnyFailure> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    atomic::write(path, Report::new(facts, kernel.as_deref()).to_json().as_bytes())?;
    if is_silent {
        return Ok(());
    }
    let sent = match issue_form(env!("CARGO_PKG_REPOSITORY")) {
        Some(form) => format!("please send it, because asmpatch has never run on silicon: {form}"),
        None => "keep it: there is no address yet to which it can be sent".to_owned(),
    };
    outln!("wrote {}: {sent}", shell::path(path).shown());
    Ok(())
}

impl DoctorJson {
    /// Diagnoses a unit. `invocation` is the command that asks.
    fn of(facts: &Facts, wanted: Wanted<'_>, invocation: &Invocation) -> Self {
        Self {
            unit: Some(facts.unit.clone()),
            diagnosis: WordedDiagnosis::of(diagnose(facts, wanted), &invocation.at(&facts.unit.location)),
            part_revision: facts.part_revision.answer().copied(),
            flash_part: facts.flash_part.answer().copied(),
            heading: heading(&facts.unit),
            at_work: at_work(facts),
            ..Self::default()
        }
    }

    /// What keeps a runtime from starting, with the steps that help. What is set for a virtual unit comes again with each
    /// power-up: what stops transfers is taken out first, except that it doesn't decide which firmware the unit runs; and
    /// what decides the topic, before hands and writes, which don't change it.
    fn findings(&self) -> Vec<Finding> {
        let mut findings = self.diagnosis.findings();
        for Finding { topic, steps, .. } in &mut findings {
            if let Some((_, step)) = self.decided.iter().find(|(decides, _)| decides == topic) {
                steps.insert(before_hands(steps), step.clone());
            }
            if topic != "firmware" {
                steps.splice(0..0, self.take_out.clone());
            }
        }
        findings
    }

    /// Adds what gives a unit in its boot loader its firmware again, as the advice on its firmware.
    fn recover(&mut self, connected: &[UnitInfo], images: &Images, invocation: &Invocation) {
        let Some(unit) = &self.unit else { return };
        let Recovery { from_backups, otherwise } = Recovery::of(unit, connected, images, invocation);
        if let Some(line) = self.diagnosis.lines.iter_mut().find(|line| line.line.topic == "firmware") {
            // A doubtful backup's command never comes first.
            let is_doubtful = from_backups.first().is_some_and(|step| step.question.is_some());
            let mut steps = from_backups.clone();
            if is_doubtful {
                let compare =
                    "no backup is certainly this unit's: compare the dock's label with what the questions name";
                steps[0] = steps[0].clone().instead();
                steps.insert(0, WordedStep::hands(compare));
            }
            steps.extend(otherwise);
            line.advise(steps);
        }
        self.recovery = from_backups;
    }
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
fn shown(head: &impl Display, diagnosis: &WordedDiagnosis, is_whole: bool) -> Vec<String> {
    let mut page = vec![head.to_string()];
    let mut is_bad = false;
    for WordedLine { line, advice, .. } in &diagnosis.lines {
        is_bad |= line.verdict == Verdict::Bad;
        if !is_whole && DETAILS.contains(&line.topic) {
            continue;
        }
        let verdict = format!("{:<4}", line.verdict.to_string());
        let verdict = match line.verdict {
            Verdict::Good => verdict.green().to_string(),
            Verdict::Note | Verdict::Unknown => verdict.yellow().to_string(),
            Verdict::Bad => verdict.red().to_string(),
        };
        page.push(format!("  {verdict}  {:<10}  {}", line.topic, line.found));
        let advice = advice.iter().flat_map(|advice| advice.lines());
        page.extend(advice.map(|part| format!("        {part}")));
    }
    let because = diagnosis.because.join(", ");
    match diagnosis.runtime {
        Some(runtime) => page.push(format!("a GPU runtime can start: {runtime}")),
        // Nothing shows that there is a dock.
        None if because.is_empty() => {}
        None if is_bad => page.push(format!("no GPU runtime can start, because of: {because}")),
        None => page.push(format!("asmpatch doesn't know whether a GPU runtime can start: see {because}")),
    }
    page
}
