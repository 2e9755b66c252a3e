//! What every error has in common: a stable code, a help line, and the exit status that it ends in.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};

use miette::Diagnostic;
use thiserror::Error;

/// The process's exit statuses, stable across versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A check failed: `verify` found a difference, `bench --min-mb-s` was missed.
    CheckFailed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A file, an archive, a manifest or a server's answer is wrong.
    BadInput = 3,
    /// A device or USB failed.
    Device = 4,
    /// Refused because it could do harm.
    Refused = 5,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
}

/// An error as asmpatch reports it: what, where, why it matters, what to do next.
///
/// The message and its sources tell what and where, [`Diagnostic::help`] why it matters and what to do,
/// [`Diagnostic::code`] is stable and greppable, and [`Failure::exit`] is the process's exit status.
pub trait Failure: Diagnostic + Send + Sync + 'static {
    /// The exit status of a command that ends in this error.
    fn exit(&self) -> Exit;
}

/// A bug in asmpatch: a panic, kept to the unit on which it happened.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
#[error("a bug in asmpatch stopped the work on this unit: {message}")]
#[diagnostic(code(asmpatch::bug), help("please report it with the command and everything it printed"))]
pub struct Panicked {
    /// What the panic says.
    pub message: String,
}

impl Failure for Panicked {
    fn exit(&self) -> Exit {
        Exit::Device
    }
}

/// Runs `work`; a panic in it becomes an error. The panic hook has printed where it happened.
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

/// Any failure, boxed.
pub struct AnyFailure(Box<dyn Failure>);

impl AnyFailure {
    /// The exit status of a command that ends in this error.
    pub fn exit(&self) -> Exit {
        self.0.exit()
    }

    /// The failure as miette prints it.
    pub fn diagnostic(&self) -> &(dyn Diagnostic + 'static) {
        &*self.0 as &dyn Diagnostic
    }
}

impl<F: Failure> From<F> for AnyFailure {
    fn from(failure: F) -> Self {
        Self(Box::new(failure))
    }
}

impl fmt::Debug for AnyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for AnyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// As a source in another error.
impl std::error::Error for AnyFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl Diagnostic for AnyFailure {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.code()
    }

    fn severity(&self) -> Option<miette::Severity> {
        self.0.severity()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help()
    }

    fn url<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.url()
    }

    fn diagnostic_source(&self) -> Option<&dyn Diagnostic> {
        self.0.diagnostic_source()
    }
}
