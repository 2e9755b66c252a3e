//! What to do with a unit after a run: the next command, and the one that brings back what was there.

use crate::flash::run::FlashReport;
use crate::shell;
use asm2464::scsi::runtime::Variables;
use asm2464_host::bridge::Behind;

use super::prepared::{PreparedUnit, UnitOutcome, WritingJob};
use super::recovery::{WritingCommand, again, restore};

/// Returns the command that brings back what was on a unit.
pub fn way_back(report: &FlashReport, unit: &PreparedUnit, suffix: &str) -> Option<String> {
    let (folder, permissions) = (report.backup.as_ref()?, unit.carried.back.as_ref()?);
    Some(restore(folder, &report.location, permissions) + suffix)
}

/// Returns what to do with a unit that was written: the purpose, and the command.
pub fn next(
    report: &FlashReport,
    unit: &PreparedUnit,
    job: &WritingJob,
    suffix: &str,
) -> Option<(&'static str, String)> {
    if unit.self_test.is_some() {
        return None;
    }
    let device = shell::word(report.location.to_string());
    // A unit that was read back neither before its restart nor after it. The command finds nothing to do where all is well.
    if report.after.is_none() && unit.seen.as_ref().is_some_and(|(_, plan)| !plan.reads_back()) {
        let again = again(&job.origin, &unit.carried.again, &report.location, None, false);
        return Some(("once it is back, read it back", again + suffix));
    }
    if job.origin.command == WritingCommand::Config {
        return Some(("see its fields", format!("asmpatch config get --device {device}{suffix}")));
    }
    let firmware = &job.subject.firmware;
    // The bench needs a write that is answered without a device behind the bridge, and it must never write to an SSD.
    let ssd = unit.seen.as_ref().is_some_and(|(seen, _)| matches!(seen.running.behind, Behind::Ssd(_)));
    let is_initialised = |version| Variables::of(version).is_some();
    let is_measurable = firmware.answers_writes() && firmware.version().is_some_and(is_initialised);
    ((is_measurable || firmware.open().is_some()) && !ssd && report.is_back())
        .then(|| ("measure it", format!("asmpatch bench --device {device}{suffix}")))
}

/// Returns the command to run next for a unit.
pub fn next_command(unit: &PreparedUnit, job: &WritingJob, suffix: &str) -> Option<String> {
    let actions = match &unit.outcome {
        UnitOutcome::Written(report) => return next(report, unit, job, suffix).map(|(_, command)| command),
        UnitOutcome::Stopped(_, failure) => &failure.actions,
        _ => &unit.instead,
    };
    // A command under a question is for the user to decide.
    actions.iter().find(|action| action.question.is_none() && action.command.is_some())?.command.clone()
}
