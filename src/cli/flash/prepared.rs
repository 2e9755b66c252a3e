//! What a run is going to write, and each unit as far as it has come.

use std::sync::Arc;

use crate::bench::BenchReport;
use crate::failure::AnyFailure;
use crate::flash::decide::{Carried, Subject, Terms};
use crate::flash::fitting::FittingBackup;
use crate::flash::observe::Observation;
use crate::flash::plan::FlashPlan;
use crate::flash::run::FlashReport;
use crate::patch::Library;
use asm2464_host::bridge::Port;

use super::recovery::{Action, FlashFailure, InvokedCommand};

/// What a command is going to write.
pub struct WritingJob {
    /// The image, and where it comes from.
    pub subject: Subject,
    /// The known patches and images.
    pub library: Library,
    /// The image or the backup, in words.
    pub source: String,
    /// The command, for printing it again.
    pub origin: InvokedCommand,
}

/// A unit that was examined, and what to do with it.
pub struct PreparedUnit {
    /// Its port, as `--device` takes it.
    pub device: String,
    /// Its port; `None` if it was not found.
    pub(super) port: Option<Box<dyn Port>>,
    /// What was found on it, and what would be written; `None` if it could not be examined.
    pub seen: Option<(Observation, FlashPlan)>,
    /// The conditions on which it is written.
    pub terms: Terms,
    /// The outcome so far.
    pub outcome: UnitOutcome,
    /// What the recovery commands printed later need to repeat.
    pub carried: Carried,
    /// The earlier backups that may be its own, if its identity is at stake or it tells no version.
    pub(super) backups: Vec<FittingBackup>,
    /// What to do instead of what was refused or is asked about.
    pub instead: Vec<Action>,
    /// The self-test after the write; `None` if there was none.
    pub self_test: Option<Result<BenchReport, AnyFailure>>,
}

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

impl PreparedUnit {
    /// Whether it will be written.
    pub const fn is_to_be_written(&self) -> bool {
        matches!(self.outcome, UnitOutcome::Write)
    }
}
