//! What ends a path's measurement or check early.

use asm2464_host::bridge::ControlError;
use derive_more::{Display, From};

use super::report::Outcome;
use crate::failure::AnyFailure;

/// Reasons a path's measurement or check ends early.
#[derive(Debug, Display, From)]
pub enum Halt {
    /// The path has this result.
    Outcome(Outcome),
    /// Nothing more can be measured.
    Error(AnyFailure),
}

impl Halt {
    /// The path's result, or the error that ends the bench.
    pub(super) fn outcome(self) -> Result<Outcome, AnyFailure> {
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
            | ControlError::Io { .. } => Self::Error(error.into()),
        }
    }
}
