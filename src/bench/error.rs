//! Errors that keep a bench from starting or end it early.

use asm2464::interrupt::Interrupted;
use asm2464_dock::tiny_gpu::TinyGpuError;
use asm2464_host::bridge::{CommandError, ControlError, TransportError};
use asm2464_host::pcie::{PcieError, SramReadError};
use derive_more::From;
use thiserror::Error;

use super::report::Outcome;
use crate::unit::Unfit;

/// Reasons a bench gives no report.
#[derive(Debug, Error)]
pub enum BenchError {
    /// WRITE(16) could overwrite an SSD.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The unit did not recover after a path that did not answer.
    #[error("the unit did not come back after {path} got no answer")]
    NotRecovered {
        /// The path, in words.
        path: String,
        /// The error of the recovery.
        source: CommandError,
    },
    /// The check of what is behind the unit failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The transport failed for a reason other than a time-out.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A control request of the open firmware failed so that the row has no result.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The PCIe side can't be reached.
    #[error(transparent)]
    Pcie(#[from] PcieError),
    /// An SRAM read that a GPU should complete failed so that the row has no result.
    #[error(transparent)]
    SramRead(#[from] SramReadError),
    /// The GPU that should complete reads can't be used.
    #[error(transparent)]
    TinyGpu(#[from] TinyGpuError),
    /// You pressed Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

asm2464::coded!(BenchError {
    Unfit(cause) => cause,
    NotRecovered => NoAnswer "asmpatch::bench::recovery",
    Command(cause) => cause,
    Transport(cause) => cause,
    Control(cause) => cause,
    Pcie(cause) => cause,
    SramRead(cause) => cause,
    TinyGpu(cause) => cause,
    Interrupted(cause) => cause,
});

impl BenchError {
    /// Whether another attempt may succeed: the error is neither a final refusal nor Ctrl-C.
    pub(super) const fn is_of_the_wire(&self) -> bool {
        !matches!(self, Self::Unfit(_) | Self::Interrupted(_))
    }
}

/// Reasons a path's measurement or check ends early.
#[derive(Debug, From)]
pub enum Halt {
    /// The path has this result.
    Outcome(Outcome),
    /// Nothing more can be measured.
    Error(BenchError),
}

impl Halt {
    /// The path's result, or the error that ends the bench.
    pub(super) fn outcome(self) -> Result<Outcome, BenchError> {
        match self {
            Self::Outcome(outcome) => Ok(outcome),
            Self::Error(error) => Err(error),
        }
    }
}

impl From<ControlError> for Halt {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Timeout { deadline, .. }
            | ControlError::BulkTimeout { deadline, .. }
            | ControlError::SramBusy { deadline, .. }
            | ControlError::NotTaken { deadline, .. } => Outcome::no_answer(deadline).into(),
            ControlError::Short { expected, found, .. } => Outcome::Short { expected, found }.into(),
            ControlError::Stalled { .. }
            | ControlError::Malformed { .. }
            | ControlError::Completion { .. }
            | ControlError::LinkDown { .. } => Outcome::Refused { reason: error.to_string() }.into(),
            ControlError::Disconnected { .. }
            | ControlError::Length { .. }
            | ControlError::Interrupted(_)
            | ControlError::NotRecorded { .. }
            | ControlError::Io { .. } => Self::Error(error.into()),
        }
    }
}

impl From<SramReadError> for Halt {
    fn from(error: SramReadError) -> Self {
        match error {
            SramReadError::NoCompletion { deadline, .. } => Outcome::no_answer(deadline).into(),
            SramReadError::Short { expected, found, .. } => Outcome::Short { expected, found }.into(),
            SramReadError::Control(error) => error.into(),
            error => Self::Error(error.into()),
        }
    }
}
