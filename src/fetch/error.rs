//! Failures to fetch an image, by what may still help.

use asm2464::interrupt::Interrupted;
use derive_more::Display;

use crate::failure::AnyFailure;

/// A failure to fetch an image. The variant tells what may still help.
#[derive(Debug, Display)]
pub enum FetchError {
    /// A server can't be reached, or falls silent. Another one, or the same one later, may have the image.
    #[display("{_0}")]
    Unreachable(AnyFailure),
    /// What was found is not what was asked for. Another source may have it.
    #[display("{_0}")]
    NotTheImage(AnyFailure),
    /// The cause is on this machine: a file, the time limit of the download, or Ctrl-C. Another source does not help.
    #[display("{_0}")]
    Local(AnyFailure),
}

impl From<FetchError> for AnyFailure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Unreachable(failure) | FetchError::NotTheImage(failure) | FetchError::Local(failure) => failure,
        }
    }
}

impl From<Interrupted> for FetchError {
    fn from(interrupted: Interrupted) -> Self {
        Self::Local(interrupted.into())
    }
}
