//! Errors with a kind and a stable code: callers act by the kind; programs and documents refer to the code.

use std::error::Error;
use std::ops::Range;

/// Kinds of errors that a caller may have to distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The unit has left the bus.
    Gone,
    /// The unit did not answer in time.
    NoAnswer,
    /// The unit sent fewer bytes than requested.
    Short,
    /// The unit refused the command: CHECK CONDITION, or a STALL.
    Rejected,
    /// The received bytes violate the protocol.
    Wire,
    /// The system could not open the unit.
    Unopened,
    /// The disk behind the unit is in use.
    DiskInUse,
    /// Any other failure of a unit or its connection.
    Device,
    /// The content of a unit or a file failed a check.
    CheckFailed,
    /// The caller asked for something impossible. Nothing was sent.
    Usage,
    /// A file, an archive, a manifest or a server's answer is wrong.
    BadInput,
    /// The system failed: a disk that is full, a file without rights, the network, threads.
    System,
    /// Refused because it could do harm.
    Refused,
    /// Stopped by Ctrl-C.
    Interrupted,
}

/// An error's kind and code, which belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// The kind.
    pub kind: Kind,
    /// The code, such as `asm2464::usb::permission`. It stays the same across versions.
    pub code: &'static str,
}

impl Kind {
    /// Labels an error of this kind with its code.
    pub const fn code(self, code: &'static str) -> Label {
        Label { kind: self, code }
    }
}

/// An error with a kind and a stable code.
pub trait Coded: Error {
    /// Returns the kind and the code.
    fn label(&self) -> Label;

    /// Returns the kind.
    fn kind(&self) -> Kind {
        self.label().kind
    }

    /// Returns the code, such as `asm2464::usb::permission`.
    fn code(&self) -> &'static str {
        self.label().code
    }

    /// Returns the error that this one only passes on.
    fn passed_on(&self) -> Option<&dyn Coded> {
        None
    }

    /// Returns what to do about it, if that depends on more than the code.
    fn help(&self) -> Option<String> {
        self.passed_on().and_then(Coded::help)
    }

    /// Returns what it names that advice on its code refers to by a placeholder, such as `PLACE`: the placeholder and
    /// the value.
    fn values(&self) -> Vec<(&'static str, String)> {
        self.passed_on().map(Coded::values).unwrap_or_default()
    }

    /// Returns the text that contains the error, and the error's place in it.
    fn quote(&self) -> Option<Quote<'_>> {
        self.passed_on().and_then(Coded::quote)
    }

    /// Returns the errors that together led to this one, such as one for each mirror.
    fn related(&self) -> Vec<&dyn Coded> {
        self.passed_on().map(Coded::related).unwrap_or_default()
    }
}

/// A text with the place of an error in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote<'a> {
    /// The text's name, such as its file's. Safe to show.
    pub name: &'a str,
    /// The text. Safe to show.
    pub text: &'a str,
    /// The bytes of `text` that are wrong, if they are known.
    pub at: Option<Range<usize>>,
}

impl<E: Coded> Coded for Box<E> {
    fn label(&self) -> Label {
        (**self).label()
    }

    fn passed_on(&self) -> Option<&dyn Coded> {
        Some(&**self)
    }
}

/// Gives an error type its kind and code, or each variant of an enum its own. A variant that only passes on another
/// error, written `Variant(cause) => cause`, has that error's kind and code.
///
/// ```
/// # #[derive(Debug, thiserror::Error)]
/// # #[error("stopped")]
/// # struct Stopped;
/// # #[derive(Debug, thiserror::Error)]
/// # enum ReadError { #[error("missing")] Missing { name: String }, #[error(transparent)] Stopped(Stopped) }
/// asm2464::coded!(Stopped => Interrupted "example::stopped");
/// asm2464::coded!(ReadError {
///     Missing => BadInput "example::missing",
///     Stopped(cause) => cause,
/// });
/// # use asm2464::{Coded as _, Kind};
/// let error = ReadError::Stopped(Stopped);
/// assert_eq!((error.kind(), error.code()), (Kind::Interrupted, "example::stopped"));
/// ```
#[macro_export]
macro_rules! coded {
    ($type:ident => $kind:ident $code:literal) => {
        impl $crate::Coded for $type {
            fn label(&self) -> $crate::Label {
                $crate::Kind::$kind.code($code)
            }
        }
    };
    ($type:ident { $($arms:tt)* }) => {
        $crate::coded!(@impl [] $type { $($arms)* });
    };
    ($type:ident<$cause:ident> { $($arms:tt)* }) => {
        $crate::coded!(@impl [<$cause: $crate::Coded + 'static>] $type<$cause> { $($arms)* });
    };
    (@impl [$($generics:tt)*] $type:ty { $($arms:tt)* }) => {
        impl $($generics)* $crate::Coded for $type {
            fn label(&self) -> $crate::Label {
                $crate::coded!(@label self [] $($arms)*)
            }

            fn passed_on(&self) -> Option<&dyn $crate::Coded> {
                $crate::coded!(@passed_on self [] $($arms)*)
            }
        }
    };
    (@$what:ident $self:ident [$($arms:tt)*]) => {
        match $self { $($arms)* }
    };
    (@label $self:ident [$($arms:tt)*] $variant:ident => $kind:ident $code:literal, $($rest:tt)*) => {
        $crate::coded!(@label $self [$($arms)* Self::$variant { .. } => $crate::Kind::$kind.code($code),] $($rest)*)
    };
    (@label $self:ident [$($arms:tt)*] $variant:ident $fields:tt => $cause:ident, $($rest:tt)*) => {
        $crate::coded!(@label $self [$($arms)* Self::$variant $fields => $crate::Coded::label($cause),] $($rest)*)
    };
    (@passed_on $self:ident [$($arms:tt)*] $variant:ident => $kind:ident $code:literal, $($rest:tt)*) => {
        $crate::coded!(@passed_on $self [$($arms)* Self::$variant { .. } => None,] $($rest)*)
    };
    (@passed_on $self:ident [$($arms:tt)*] $variant:ident $fields:tt => $cause:ident, $($rest:tt)*) => {
        $crate::coded!(@passed_on $self [$($arms)* Self::$variant $fields => Some($cause),] $($rest)*)
    };
}
