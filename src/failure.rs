//! What every error has in common: a stable code, a help line, and the exit status that it ends in.

use std::fmt;

use miette::Diagnostic;

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
