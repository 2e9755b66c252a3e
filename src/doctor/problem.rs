//! An error as a diagnosis keeps it.

use asm2464::Coded;
use asm2464_host::bridge::PortError;

use crate::failure::AnyFailure;

/// An error, as its diagnostic describes it. Its message may name files, programs and folders, so only its code goes into
/// a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The error's code.
    pub code: String,
    /// The error's message: what happened and where.
    pub message: String,
}

impl Problem {
    /// Records an error.
    pub fn of(error: &dyn Coded) -> Self {
        Self { code: error.code().to_owned(), message: error.to_string() }
    }
}

impl From<PortError> for Problem {
    fn from(error: PortError) -> Self {
        Self::of(&error)
    }
}

impl From<AnyFailure> for Problem {
    fn from(failure: AnyFailure) -> Self {
        Self::of(failure.coded())
    }
}
