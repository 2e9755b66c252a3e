//! A flash plan and its outcome, as text and as JSON.

use std::borrow::Cow;
use std::ops::Not;

use crate::advice::Hands;
use crate::bench::BenchReport;
use crate::flash::behaviour::StartedCode;
use crate::flash::decide::Terms;
use crate::flash::examined::Examined;
use crate::flash::identity::is_nobodys;
use crate::flash::job::{FlashJob, FlashUnit, UnitOutcome};
use crate::flash::observe::Observation;
use crate::flash::plan::{BlockPlan, BlockSource, FieldChange, FlashPlan};
use crate::flash::progress::{StepReport, StoppedState};
use crate::flash::recovery::{FlashFailure, Writes};
use crate::flash::run::FlashReport;
use crate::image::Firmware;
use crate::runtimes::Drives;
use crate::shell;
use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, ConfigField, UsbId};
use asm2464::{AnyFailure, Coded, Label};
use asm2464_host::bridge::{Behind, UnitInfo};
use asm2464_host::usb::DOCKS;
use serde::Serialize;

use super::steps::{self, WordedStep};
use super::summary::UnitResult;
use crate::cli::words::errors::{self, ErrorJson};
use crate::cli::words::invocation::Invocation;
use crate::cli::words::{print, table};

/// What to say about the disk behind a unit that was not opened exclusively.
const UNCHECKED_DISK: &str = if cfg!(target_os = "linux") {
    "no use found, but asmpatch couldn't check whether another namespace or a virtual machine uses it: that takes root \
     and the disk's node"
} else {
    "this system doesn't say whether it is in use: eject it before you go on"
};

/// Returns the line that names a unit, as it is before the write.
pub fn heading(seen: &Observation, job: &FlashJob) -> String {
    let UnitInfo { location, id, serial, .. } = &seen.attached;
    let serial = serial.as_ref().map(|serial| format!(", serial {}", serial.shown())).unwrap_or_default();
    format!(
        "{}: {} under {id}{serial}",
        location.to_string().shown(),
        seen.running.running_firmware(&job.images).to_string().shown()
    )
}

/// Returns the lines that say what will be written to a unit. They and the question fit a terminal of 80 by 24; all that
/// only a maintainer needs (blocks that don't change, T10's names, the parts' lengths) is shown with `is_whole`.
pub fn plan(unit: &Examined, job: &FlashJob, terms: &Terms, is_whole: bool) -> Vec<String> {
    let Examined { seen, plan, .. } = unit;
    let firmware = job.subject.firmware();
    let mut lines = Vec::new();
    let mut line = |label: &str, text: &str| lines.push((label.to_owned(), text.to_owned()));
    line("image", &job.source);
    if !seen.is_disk_checked {
        line("disk", UNCHECKED_DISK);
    }
    line("becomes", &format!("{firmware} under {}", identity_words(plan.usb_id)));
    line("runtime", &runtime_words(job, plan));
    line("behind", &behind_words(seen, firmware).shown().to_string());
    match &job.options.backup_into {
        Some(folder) => line("backup", &format!("first, into {}", folder.shown())),
        None => line("backup", "none"),
    }
    for block in &plan.blocks {
        if !is_whole && block.source == BlockSource::Unit && block.changes.is_empty() {
            continue;
        }
        line(&format!("block {}", block.index.number()), &block_words(block));
        if block.source == BlockSource::Neutral {
            neutral_words(block).iter().for_each(|words| line("", words));
        }
        for FieldChange { field, from, to, .. } in &block.changes {
            if is_whole || !field.starts_with("t10-") {
                line("", &format!("{field} {from} -> {to}"));
            }
        }
    }
    let parts: Vec<String> = plan.parts().map(|(_, bytes)| bytes.len().to_string()).collect();
    let firmware_words = match (&plan.open, plan.version) {
        (Some(open), _) => format!("open, {:?}, ", open.product),
        (None, Some(version)) => format!("version {version}, "),
        (None, None) => String::new(),
    };
    if is_whole {
        line("firmware", &format!("{firmware_words}{} bytes", parts.join(" + ")));
    }
    if let Some(why) = &terms.unknown_neighbours {
        line("serial", &format!("couldn't check whether another unit has the same serial number: {why}"));
    }
    if let Some((from, to)) = terms.other_line {
        line(
            "line",
            &format!(
                "the version's line (its last three bytes) changes from {from} to {to}; nobody knows whether it fits this board"
            ),
        );
    }
    for why in &terms.unproven {
        line("unproven", why);
    }
    for cloned in &terms.cloned {
        line("clone", &format!("the unit gets {cloned}"));
    }
    if let Some(serial) = kept_serial(plan) {
        line("keeps", &format!("serial number {}, which it shows", serial.shown()));
    }
    for lost in terms.loss.words() {
        line("loses", &lost.shown().to_string());
    }
    if let Some(backup) = terms.own_backups.first() {
        let folder = backup.filed.folder.shown();
        line("identity", &format!("not the unit's own, which {folder} may have"));
    }
    if let Some(unread) = terms.unread.first() {
        let folder = unread.folder.shown();
        line("identity", &format!("not the unit's own, which {folder} may have: that backup can't be read"));
    }
    let order = match plan.attached.state {
        BridgeState::Vendor | BridgeState::OpenFirmware => "read back, restart",
        BridgeState::BootLoader => "halt until its power goes",
    };
    line("then", &format!("{order}, come back as {}", identity_words(plan.usb_id)));
    notes(plan, job, terms).iter().for_each(|note| line("note", note));
    table::labelled(2, lines)
}

/// The serial number that the unit shows and keeps, although other blocks stand in for its own.
fn kept_serial(plan: &FlashPlan) -> Option<&str> {
    let shown = plan.attached.serial();
    let is_kept = plan.blocks[0].source.stands_in() && !is_nobodys(shown) && plan.serial().as_deref() == Some(shown);
    if is_kept { Some(shown) } else { None }
}

/// Says whether a GPU runtime will drive the unit, as `doctor` does afterwards.
fn runtime_words(job: &FlashJob, plan: &FlashPlan) -> String {
    let drives = job.runtime.drives(job.subject.firmware(), plan.usb_id);
    let words = job.runtime.words(drives);
    match drives {
        Drives::Open(Some(lacks)) => format!("{words}; {lacks}"),
        _ => words,
    }
}

/// Hints about what the user may want to do differently.
fn notes(plan: &FlashPlan, job: &FlashJob, terms: &Terms) -> Vec<String> {
    let mut notes = Vec::new();
    let (serial, from_backup) = match job.invoked.writes {
        Writes::Fields => ("serial=TEXT", ""),
        Writes::Image => ("--serial TEXT", ", `--config-from DIR` the one in its backup"),
        Writes::Backup => ("config set serial=TEXT", ""),
    };
    if plan.has_known_serial() {
        notes.push(format!(
            "the known block's serial number is the same on every unit that gets it; `{serial}` gives this one its \
             own{from_backup}"
        ));
    }
    let is_drawn = plan.chosen_serial.as_ref().is_some_and(|serial| serial.yields);
    if is_drawn
        && plan.blocks[0].source == BlockSource::Neutral
        && plan.serial().as_deref() != Some(plan.attached.serial())
    {
        notes.push(format!("the serial number is drawn at random; `{serial}` gives the board another"));
    }
    if !terms.twins.is_empty() {
        let twins = terms.twins.join(", ");
        notes.push(format!("{twins} has the same serial number; `{serial}` gives this unit its own"));
    }
    if job.invoked.writes == Writes::Fields {
        notes.extend(new_id_note(plan));
    }
    if plan.open.is_some() && job.invoked.writes == Writes::Fields {
        notes.push(OPEN_CONFIG_NOTE.to_owned());
    }
    if plan.open.is_some() {
        notes.extend(OPEN_NOTES.map(str::to_owned));
    }
    let is_flash = job.invoked.writes == Writes::Image;
    if is_flash && plan.usb_id == Some(UsbId::PATCHED) && job.subject.firmware().is_unpatched() {
        notes.push(format!("the unit stays {}; `--stock-identity` makes it {} again", UsbId::PATCHED, UsbId::STOCK));
    }
    notes
}

/// Note for a user who gives a unit another USB ID: the command that finds it then.
fn new_id_note(plan: &FlashPlan) -> Option<String> {
    let before = ConfigBlock::parse(BlockIndex::Zero, plan.blocks[0].current.as_ref()?).ok()?.usb_id();
    let after = plan.configured_id()?;
    if before == after {
        return None;
    }
    let mut list = "asmpatch list".to_owned();
    let is_known = DOCKS.iter().any(|dock| dock.id == after);
    if !is_known {
        list = format!("{list} --usb-id {after}");
    }
    let location = &plan.attached.location;
    if location.is_virtual() {
        list = format!("{list} --device {}", shell::word(location.to_string()));
    }
    let when = if plan.open.is_some() { "once it runs the vendor's firmware, " } else { "then " };
    let others = if is_known { "" } else { ", and every other command needs that option, too" };
    Some(format!("the USB ID changes from {before} to {after}: {when}`{list}` finds the unit{others}"))
}

/// Note for a user who changes the configuration of a unit with open firmware.
const OPEN_CONFIG_NOTE: &str = "open firmware shows none of these fields: its names are its own, and newer builds take the \
                                serial number from the chip. Nobody sees the change until the unit runs the vendor's firmware";

/// Notes for the owner of a unit with open firmware.
const OPEN_NOTES: [&str; 2] = [
    "with open firmware the unit is no disk and answers no SCSI command: tinygrad drives it from v0.14.0 on, and USB4 and \
     Thunderbolt hosts don't see the GPU behind it",
    "the way back needs no debug cable: `asmpatch flash` and `asmpatch restore` write such a unit through its registers",
];

fn identity_words(usb_id: Option<UsbId>) -> String {
    usb_id.map_or_else(|| "the chip's ROM identity".to_owned(), |id| id.to_string())
}

/// What is behind a unit, in words.
fn behind(seen: &Observation) -> String {
    match seen.behind() {
        Behind::NoMedium if seen.tree.answer().is_some() => "no SSD".to_owned(),
        behind => behind.to_string(),
    }
}

fn behind_words(seen: &Observation, firmware: &Firmware) -> String {
    let behind = behind(seen);
    match seen.behind() {
        Behind::Ssd(_) if firmware.answers_writes() => format!("{behind}: it {SSD_LOST}"),
        Behind::Ssd(_) if firmware.open().is_some() => {
            format!("{behind}: its data stays, and no disk shows while the unit runs open firmware")
        }
        Behind::Ssd(_) => format!("{behind}: its data stays, and the disk disappears while the unit restarts"),
        Behind::CannotTell(_) if firmware.answers_writes() && seen.attached.state == BridgeState::OpenFirmware => {
            format!("{behind}. An SSD {SSD_LOST}")
        }
        Behind::NoMedium | Behind::Initialised(_) | Behind::CannotTell(_) => behind,
    }
}

/// Warning for the owner of an SSD.
pub const SSD_LOST: &str = "can't be used as a disk with patched firmware, which acknowledges writes before the SSD has \
                            stored them; its data stays";

fn block_words(block: &BlockPlan) -> String {
    if ConfigBlock::parse(block.index, &block.new).is_err() {
        return format!("{}, not valid", block.source);
    }
    match (block.changes.is_empty(), block.source, block.differs()) {
        (false, source, _) => format!("{source}, with"),
        (true, BlockSource::Unit, _) | (true, _, false) => format!("{}, unchanged", block.source),
        (true, source, true) => source.to_string(),
    }
}

/// The fields of a neutral block that tell boards apart, or that somebody sees.
fn neutral_words(block: &BlockPlan) -> Vec<String> {
    let Ok(new) = ConfigBlock::parse(block.index, &block.new) else { return Vec::new() };
    let text = |field: ConfigField| new.text(field);
    match block.index {
        BlockIndex::Zero => vec![
            format!("{} {:?} under {}", text(ConfigField::Manufacturer), text(ConfigField::Product), new.usb_id()),
            format!("serial {:?}", text(ConfigField::Serial)),
        ],
        BlockIndex::One => {
            let unique_id = to_hex(new.field(ConfigField::Usb4UniqueId), "");
            let names = (text(ConfigField::Usb4Vendor), text(ConfigField::Usb4Model));
            vec![format!("USB4 {} {:?}, unique ID {unique_id}, drawn at random", names.0, names.1)]
        }
    }
}

/// Prints that a unit already holds what is wanted.
pub fn nothing(seen: &Observation, job: &FlashJob, invocation: &Invocation) {
    // A virtual unit restarts with each command.
    let restart = if seen.attached.location.is_virtual() {
        String::new()
    } else {
        let by_hand = invocation.at(&seen.attached.location).by_hand(Hands::ReplugIt);
        format!(" If the unit has not restarted since, {by_hand}.")
    };
    outln!(
        "{}: nothing to do: flash and configuration already match {} under {}.{restart} `--force` writes it again",
        seen.attached.location,
        job.subject.firmware(),
        seen.attached.id
    );
}

/// Prints a successful outcome and what comes next.
pub fn done(report: &FlashReport, unit: &FlashUnit, job: &FlashJob, invocation: &Invocation) {
    let firmware = job.subject.firmware();
    let device = report.location.to_string();
    match &report.after {
        Some(after) if report.runs != Some(StartedCode::Before) => {
            outln!("{}: done: {firmware} under {}", device.shown(), after.id);
        }
        _ => {
            let readback = match &unit.examined {
                Some(examined) if examined.plan.reads_back() => "is written and verified",
                _ => "is written, but not read back yet",
            };
            outln!("{}: done: {firmware} {readback}", device.shown());
        }
    }
    if let Some(words) = power_words(report, &invocation.at(&report.location)) {
        outln!("  {words}");
    }
    if let Some(command) = steps::way_back(unit, invocation) {
        outln!("  keep the backup, which brings back what was there:");
        outln!("    {command}");
    }
    let mut begin = "next, ";
    for worded in WordedStep::each(&unit.next(job), &invocation.at(&report.location)) {
        outln!("  {begin}{}:", worded.purpose);
        worded.line().iter().for_each(|command| outln!("    {command}"));
        begin = "";
    }
}

/// Prints why writing a unit stopped, its state, and the commands that bring it back.
pub fn stopped(failure: &FlashFailure, invocation: &Invocation) {
    let invocation = &invocation.at(&failure.unit.location);
    errors::report_with(failure, &steps::help(failure, invocation), invocation);
    steps::print_below_error(&WordedStep::each(&failure.steps, invocation));
}

impl Coded for FlashFailure {
    fn label(&self) -> Label {
        self.error.label()
    }
}

/// Returns why the unit has to be unplugged; `None` if it need not be.
fn power_words(report: &FlashReport, invocation: &Invocation) -> Option<String> {
    if !report.needs_power {
        return None;
    }
    if report.location.is_virtual() {
        let words = "a virtual unit loses its power when a command ends: the next command starts the new firmware";
        return Some(words.to_owned());
    }
    let replug = invocation.by_hand(Hands::Replug);
    Some(match report.runs {
        Some(StartedCode::Before) => format!("it still runs the old firmware: {replug}"),
        Some(StartedCode::Unknown | StartedCode::Written) => {
            format!("old and new firmware behave alike, so asmpatch can't tell which one runs. To be sure, {replug}")
        }
        None => format!("{replug}: then it starts the new firmware"),
    })
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct UnitJson<'a> {
    /// The unit's port, as `--device` takes it.
    device: &'a str,
    /// Whether the unit now has what was wanted.
    ok: bool,
    /// The outcome.
    result: UnitResult,
    /// The command to run next, ready for a shell, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Whether anything was written to the unit.
    changed: bool,
    /// Present with --dry-run.
    #[serde(skip_serializing_if = "Not::not")]
    dry_run: bool,
    /// The unit before.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<UnitAndFirmware<'a>>,
    /// What is behind the bridge, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<String>,
    /// What would be or was written; nothing if the unit could not be examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanJson<'a>>,
    /// The unit after, once it is back, with what runs on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<UnitAndFirmware<'a>>,
    /// The firmware that is in its flash now; nothing if it is not what was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    flashed: Option<String>,
    /// The version that it runs now, as the unit reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Whether it runs what was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<StartedCode>,
    /// What the unit still needs before it surely runs what was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'static str>,
    /// Its backup's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<String>,
    /// What was done, in order.
    done: &'a [StepReport],
    /// Why the unit doesn't have what was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<UnitErrorJson>,
    /// With --bench: the report of the self-test, as `bench` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    self_test: Option<&'a BenchReport>,
    /// With --bench: why the self-test failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    self_test_error: Option<ErrorJson>,
}

impl print::Document for UnitJson<'_> {
    const VERSION: u32 = 6;
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnitAndFirmware<'a> {
    #[serde(flatten)]
    unit: &'a UnitInfo,
    /// The firmware, as far as asmpatch can tell.
    firmware: String,
}

/// What would be or was written; empty if the unit already holds it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PlanJson<'a> {
    /// Whether anything has to be written.
    write: bool,
    /// The firmware, in words.
    firmware: String,
    /// The VID:PID that it comes back with; nothing if it is the chip's own.
    usb_id: Option<String>,
    /// The GPU runtime that will drive it, or why none will, in words.
    runtime: String,
    /// The serial number in its configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    /// The fields of its configuration that change.
    changes: Vec<&'a FieldChange>,
    /// What nobody has seen work yet.
    unproven: Vec<Cow<'static, str>>,
    /// What of its identity the unit loses for good, because no backup has it, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loses: Vec<String>,
    /// What the user may want to do differently.
    notes: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnitErrorJson {
    #[serde(flatten)]
    error: ErrorJson,
    /// The state that the unit was left in.
    left: StoppedState,
    /// The steps that recover it, in the order in which to try them.
    recovery: Vec<WordedStep>,
}

/// Prints the outcomes of all units as one JSON array.
///
/// `declined` is why the accepted units were not written: the answer to the question.
pub fn json(
    units: &[FlashUnit],
    job: &FlashJob,
    dry_run: bool,
    invocation: &Invocation,
    declined: Option<&AnyFailure>,
) {
    let of_unit = |unit| unit_json(unit, job, dry_run, invocation, declined);
    print::json_each(&units.iter().map(of_unit).collect::<Vec<_>>());
}

fn unit_json<'a>(
    unit: &'a FlashUnit,
    job: &'a FlashJob,
    dry_run: bool,
    invocation: &Invocation,
    declined: Option<&AnyFailure>,
) -> UnitJson<'a> {
    let firmware = job.subject.firmware();
    let untouched = |failure: &AnyFailure| {
        let error = ErrorJson::of(failure.coded(), &invocation.for_one(unit.location(), &unit.device)).at(&unit.device);
        UnitErrorJson { error, left: StoppedState::Untouched, recovery: steps::instead(unit, invocation) }
    };
    let (report, error) = match &unit.outcome {
        UnitOutcome::Write => (None, declined.map(untouched)),
        UnitOutcome::Unchanged => (None, None),
        UnitOutcome::Written(report) => (Some(report), None),
        UnitOutcome::Refused(failure) => (None, Some(untouched(failure))),
        UnitOutcome::Spared(report, failure) => (Some(report), Some(untouched(failure))),
        UnitOutcome::Stopped(report, failure) => {
            let invocation = &invocation.at(&failure.unit.location);
            let error = ErrorJson::with(&failure.error, steps::help(failure, invocation)).at(&unit.device);
            let recovery = WordedStep::each(&failure.steps, invocation);
            (Some(report), Some(UnitErrorJson { error, left: failure.unit.left, recovery }))
        }
    };
    let seen = unit.examined.as_ref().map(|examined| &examined.seen);
    let plan = unit.examined.as_ref().map(|examined| &examined.plan);
    let left = error.as_ref().map(|error| error.left);
    let after = match (&unit.outcome, report) {
        (UnitOutcome::Unchanged, _) => seen.map(|seen| &seen.attached),
        (_, Some(report)) => report.after.as_ref(),
        (_, None) => None,
    };
    let written = firmware.to_string();
    let before = seen.map(|seen| UnitAndFirmware {
        unit: &seen.attached,
        firmware: seen.running.running_firmware(&job.images).to_string(),
    });
    let after = after.map(|unit| {
        let before = before.as_ref().map(|before| before.firmware.as_str());
        let firmware = match (&error, report) {
            (Some(_), _) => unit.state.to_string(),
            (None, Some(report)) => running_after(report.runs, before, &written),
            (None, None) => before.unwrap_or(&written).to_owned(),
        };
        UnitAndFirmware { unit, firmware }
    });
    let is_in_flash = matches!(unit.outcome, UnitOutcome::Unchanged | UnitOutcome::Written(_));
    let self_test = unit.test.as_ref().map(Result::as_ref);
    UnitJson {
        device: &unit.device,
        ok: error.is_none(),
        result: if declined.is_some() && unit.is_to_be_written() {
            UnitResult::NotWritten
        } else {
            UnitResult::of(unit)
        },
        next: steps::next(unit, job, invocation).map(|command| command.to_string()),
        changed: report.is_some() && left != Some(StoppedState::Untouched),
        dry_run,
        before,
        behind: seen.map(behind),
        plan: plan.map(|plan| plan_json(plan, job, unit)),
        after,
        flashed: is_in_flash.then_some(written),
        version: report.and_then(|report| report.version).map(|version| version.to_string()),
        runs: report.and_then(|report| report.runs),
        needs: if report.is_some_and(|report| report.needs_power) { Some("power") } else { None },
        backup: report.and_then(|report| report.backup.as_ref()).map(|folder| folder.display().to_string()),
        done: report.map_or(&[], |report| &report.steps),
        error,
        self_test: self_test.and_then(Result::ok),
        self_test_error: self_test.and_then(Result::err).map(|failure| ErrorJson::of(failure.coded(), invocation)),
    }
}

/// Says which firmware a unit runs to which `written` was flashed while it ran `before`.
fn running_after(runs: Option<StartedCode>, before: Option<&str>, written: &str) -> String {
    match (runs, before) {
        // The chip's memory has the old code until the power goes.
        (Some(StartedCode::Before), Some(before)) => before.to_owned(),
        (Some(StartedCode::Unknown), Some(before)) if before != written => format!("{before} or {written}"),
        _ => written.to_owned(),
    }
}

fn plan_json<'a>(plan: &'a FlashPlan, job: &FlashJob, unit: &FlashUnit) -> PlanJson<'a> {
    PlanJson {
        write: !matches!(unit.outcome, UnitOutcome::Unchanged | UnitOutcome::Refused(_)),
        firmware: job.subject.firmware().to_string(),
        usb_id: plan.usb_id.map(|usb_id| usb_id.to_string()),
        runtime: runtime_words(job, plan),
        serial: plan.serial(),
        changes: plan.blocks.iter().flat_map(|block| &block.changes).collect(),
        unproven: unit.terms.unproven.clone(),
        loses: unit.terms.loss.words(),
        notes: notes(plan, job, &unit.terms),
    }
}
