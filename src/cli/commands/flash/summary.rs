//! The outcomes of several units, as a table.

use std::iter;

use crate::advice::Hands;
use crate::flash::job::{FlashJob, FlashUnit, UnitOutcome};
use crate::flash::progress::StoppedState;
use asm2464::escape::Escape as _;
use derive_more::Display;
use serde::Serialize;

use super::steps;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::{print, table};

/// The outcome for one unit, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UnitResult {
    /// It would be written; nothing was, with `--dry-run`.
    #[display("to be written")]
    Planned,
    /// It already has everything that would be written.
    #[display("unchanged")]
    Unchanged,
    /// It was written.
    #[display("written")]
    Written,
    /// It was refused; nothing was written to it.
    #[display("refused")]
    Refused,
    /// It was accepted, and nothing was written to it.
    #[display("not written")]
    NotWritten,
    /// Writing it began and failed.
    #[display("FAILED")]
    Failed,
}

impl UnitResult {
    /// All results, from best to worst.
    const ALL: [Self; 6] =
        [Self::Written, Self::Planned, Self::Unchanged, Self::NotWritten, Self::Refused, Self::Failed];

    /// Returns a unit's result.
    pub fn of(unit: &FlashUnit) -> Self {
        match &unit.outcome {
            UnitOutcome::Write => Self::Planned,
            UnitOutcome::Unchanged => Self::Unchanged,
            UnitOutcome::Written(_) => Self::Written,
            UnitOutcome::Refused(_) => Self::Refused,
            UnitOutcome::Spared(..) => Self::NotWritten,
            UnitOutcome::Stopped(_, failure) if matches!(failure.unit.left, StoppedState::Untouched) => {
                Self::NotWritten
            }
            UnitOutcome::Stopped(..) => Self::Failed,
        }
    }
}

/// Prints a table of several units, then how many have each result.
pub fn print(units: &[FlashUnit], job: &FlashJob, invocation: &Invocation) {
    let back = units.iter().filter_map(|unit| steps::way_back(unit, invocation));
    let back: Vec<String> = back.map(|command| format!("    {command}")).collect();
    if !back.is_empty() {
        outln!("keep the backups, which bring back what was there:");
        print::out(back);
    }
    let need_power =
        |unit: &&FlashUnit| unit.written().is_some_and(|report| report.needs_power && !report.location.is_virtual());
    let powerless: Vec<String> = units.iter().filter(need_power).map(|unit| unit.device.shown().to_string()).collect();
    if !powerless.is_empty() {
        outln!("unplug these once, to be sure that they start the new firmware: {}", powerless.join(", "));
        let hand_on = invocation.by_hand(Hands::HandOn);
        if !hand_on.is_empty() {
            outln!("then {hand_on}");
        }
    }
    let row = |unit: &FlashUnit| {
        let serial = serial(unit).map(|serial| serial.shown().to_string());
        [
            unit.device.shown().to_string(),
            serial.filter(|serial| !serial.is_empty()).unwrap_or_else(|| "-".to_owned()),
            UnitResult::of(unit).to_string(),
            steps::next(unit, job, invocation)
                .map_or_else(|| otherwise(UnitResult::of(unit)).to_owned(), |command| command.to_string()),
        ]
    };
    table::print_commands(["unit", "serial", "result", "next"], units.iter().map(row));
    outln!("{}", count(units.iter().map(UnitResult::of)));
}

/// The serial number that the run chose for a unit, once the unit has it or would get it; else the one that it showed.
fn serial(unit: &FlashUnit) -> Option<&str> {
    let plan = &unit.examined.as_ref()?.plan;
    let gets = matches!(UnitResult::of(unit), UnitResult::Written | UnitResult::Planned | UnitResult::Unchanged);
    match &plan.chosen_serial {
        Some(chosen) if gets => Some(&chosen.text),
        _ => Some(plan.attached.serial()),
    }
}

const fn otherwise(result: UnitResult) -> &'static str {
    match result {
        UnitResult::Refused | UnitResult::NotWritten | UnitResult::Failed => "see its error above",
        UnitResult::Planned | UnitResult::Unchanged | UnitResult::Written => "-",
    }
}

fn count(results: impl Iterator<Item = UnitResult> + Clone) -> String {
    let number = |result: UnitResult| results.clone().filter(|other| *other == result).count();
    let counted = UnitResult::ALL.into_iter().map(|result| (number(result), result)).filter(|(number, _)| *number > 0);
    let words = counted.map(|(number, result)| format!("{number} {result}"));
    iter::once(format!("{} units", results.clone().count())).chain(words).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_names_what_was_refused_and_what_failed() {
        let results = [UnitResult::Refused, UnitResult::Written, UnitResult::Failed, UnitResult::Written];
        assert_eq!(count(results.into_iter()), "4 units, 2 written, 1 refused, 1 FAILED");
    }
}
