//! What an error means to the user: the exit status of its kind, and what to do about its code.
//!
//! An error says what happened and where, and carries its kind and a stable code. `by_code` has what helps by code. [`steps`] words the entry for
//! the command that was run, and `report` shows error and steps as text or as JSON.

use std::borrow::Cow;
use std::error::Error;

use crate::failure::shown_code;
use asm2464::{AnyFailure, Coded, Kind, Label};
use derive_more::Display;

use self::by_code::ErrorEntry;
use crate::cli::words::advice_part::{AdvicePart, worded};
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::WordedStep;
use crate::unit::NoUnit;

pub(in crate::cli) mod by_code;
mod report;

#[cfg(test)]
pub(in crate::cli) use self::report::FailureJson;
pub(in crate::cli) use self::report::{ErrorJson, report, report_end, report_with, with_causes};

#[cfg(test)]
mod tests;

/// The process's exit statuses, stable across versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// A check failed: `verify` found a difference, or `bench --min-mb-s` was missed.
    CheckFailed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A file, an archive, a manifest or a server's answer is wrong.
    BadInput = 3,
    /// A device or USB failed.
    Device = 4,
    /// Refused because it could do harm.
    Refused = 5,
    /// The system failed: a disk that is full, a file without rights, the network.
    System = 6,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
}

/// An error with advice of its own, in place of its code's.
#[derive(Debug, Display)]
#[display("{error}")]
pub struct Advised {
    /// The error.
    pub error: AnyFailure,
    /// The advice.
    pub advice: Vec<AdvicePart>,
}

impl Advised {
    /// Gives an error advice of its own, if there is some.
    pub fn with(error: impl Into<AnyFailure>, advice: Vec<AdvicePart>) -> AnyFailure {
        let error = error.into();
        if advice.is_empty() { error } else { Self { error, advice }.into() }
    }

    /// Adds a step to what helps against an error.
    pub fn also(error: AnyFailure, step: WordedStep) -> AnyFailure {
        let mut advice = advice(error.coded()).to_vec();
        advice.push(AdvicePart::Step(step));
        Self::with(error, advice)
    }
}

impl Error for Advised {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl Coded for Advised {
    fn label(&self) -> Label {
        self.error.coded().label()
    }

    fn passed_on(&self) -> Option<&(dyn Coded + 'static)> {
        Some(self.error.coded())
    }
}

/// The entry of an error that has none. The tests of this module fail on such an error.
const BUG: ErrorEntry = ErrorEntry {
    codes: &[],
    advice: &[AdvicePart::Text(Cow::Borrowed(
        "asmpatch knows no advice for this error, which is a bug in asmpatch: please report it with the command and \
         everything it printed",
    ))],
};

/// Returns what to do about an error: its own advice if it has some, otherwise that of its code.
pub fn advice<'a>(error: &'a (dyn Coded + 'static)) -> &'a [AdvicePart] {
    let mut inner = Some(error);
    while let Some(error) = inner {
        if let Some(Advised { advice, .. }) = (error as &dyn Error).downcast_ref() {
            return advice;
        }
        inner = error.passed_on();
    }
    let code = shown_code(error);
    let known = by_code::entry(&code);
    debug_assert!(known.is_some(), "no entry for the code {code:?} of {error}");
    known.unwrap_or(&BUG).advice
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Gone | Kind::NoAnswer | Kind::Short | Kind::Rejected | Kind::Wire | Kind::Unopened | Kind::Device => {
                Self::Device
            }
            Kind::CheckFailed => Self::CheckFailed,
            Kind::Usage => Self::Usage,
            Kind::BadInput => Self::BadInput,
            Kind::System => Self::System,
            Kind::DiskInUse | Kind::Refused => Self::Refused,
            Kind::Interrupted => Self::Interrupted,
        }
    }
}

/// Returns what to do about an error, after this command.
pub fn steps(error: &(dyn Coded + 'static), invocation: &Invocation) -> Vec<WordedStep> {
    let mut steps = Vec::new();
    if let Some(no_unit) = (error as &dyn Error).downcast_ref::<NoUnit>() {
        for advice in no_unit.advice() {
            steps.extend(crate::cli::words::advice::steps(&advice, invocation));
        }
    }
    steps.extend(worded(advice(error), invocation, &error.named()));
    steps
}
