//! The boxed error of any operation, and panics as errors. Every error is [`Coded`].

use std::panic::{self, AssertUnwindSafe};

use asm2464::Coded;
use derive_more::Display;
use thiserror::Error;

/// A bug in asmpatch: a panic that stopped the work on one unit only.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a bug in asmpatch stopped the work on this unit: {message}")]
pub struct Panicked {
    /// The panic's message.
    pub message: String,
}

asm2464::coded!(Panicked => Device "asmpatch::bug");

/// Runs `work` and turns a panic in it into an error. The panic hook has already printed where it happened.
///
/// # Errors
/// [`Panicked`].
pub fn fenced<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let message = panic.downcast_ref::<&str>().map(ToString::to_string);
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        Panicked { message: message.unwrap_or_else(|| "a panic without a message".to_owned()) }
    })
}

/// The program's name.
const PROGRAM: &str = "asmpatch";

/// Returns an error's code as asmpatch shows it: under the program's name, whichever library the error is from.
pub fn shown_code(error: &dyn Coded) -> String {
    let code = error.code();
    format!("{PROGRAM}::{}", code.split_once("::").map_or(code, |(_, rest)| rest))
}

/// Any error of this library, boxed. It says what happened and where, and has a stable [code](Coded::code).
#[derive(Debug, Display)]
pub struct AnyFailure(pub Box<dyn Coded + Send + Sync>);

impl AnyFailure {
    /// Returns the error.
    pub fn coded(&self) -> &(dyn Coded + 'static) {
        &*self.0
    }
}

impl<E: Coded + Send + Sync + 'static> From<E> for AnyFailure {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}
