//! What a session asks its user, and what it reports.

use std::sync::Arc;

use asm2464::firmware::FirmwareVersion;

use crate::failure::AnyFailure;
use crate::flash::fitting::FittingBackup;
use crate::flash::progress::FlashProgress;
use crate::flash::recovery::{FlashFailure, WrittenUnit};
use crate::flash::run::FlashReport;

/// The outcome for one unit.
pub enum UnitOutcome {
    /// It will be written.
    Write,
    /// It already holds everything in the plan.
    Nothing,
    /// It was not written.
    Refused(AnyFailure),
    /// It was prepared, and not written because of another unit.
    Spared(FlashReport, AnyFailure),
    /// It was written.
    Written(FlashReport),
    /// Writing it stopped.
    Stopped(FlashReport, Arc<FlashFailure>),
}

/// A question before a write. An answer other than yes ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question<'a> {
    /// Write this many units?
    Write(usize),
    /// Give this unit the known or a neutral identity, although this backup may have its own?
    KnownIdentity {
        /// The unit's port.
        device: &'a str,
        /// The backup.
        backup: &'a FittingBackup,
    },
    /// Go on, although nobody knows whether another unit has the same serial number?
    UnknownNeighbours {
        /// The unit's port.
        device: &'a str,
        /// Why nobody knows.
        why: &'a str,
    },
    /// Change the line of the version?
    OtherLine {
        /// The unit's port.
        device: &'a str,
        /// The version before.
        from: FirmwareVersion,
        /// The version after.
        to: FirmwareVersion,
    },
}

/// Asks the user for a session, and shows its progress.
pub trait FrontEnd: Sync {
    /// Asks the user.
    ///
    /// # Errors
    /// Fails unless the answer is yes.
    fn confirm(&self, question: Question<'_>) -> Result<(), AnyFailure>;

    /// Says which of several units this thread works on from now on; `None` if there is only one, or after the work.
    fn works_on(&self, device: Option<&str>);

    /// Begins to follow the writes of these units. Returns what each of them reports to, in the same order.
    fn begin(&self, units: Vec<WrittenUnit>) -> Vec<Box<FlashProgress<'static>>>;

    /// Receives the outcome of a unit's write. `unit` is its index among those given to [`FrontEnd::begin`].
    fn ended(&self, unit: usize, outcome: &UnitOutcome);
}
