//! Errors with a kind and a stable code: callers act by the kind; programs and documents refer to the code.
//!
//! A [`Failure`] is an error that no caller tells from others of its kind. An error that callers match on has a type of
//! its own, with kinds and codes from [`coded!`](crate::coded). [`AnyFailure`] boxes either. A [`ParseError`] says what is
//! wrong with a text or with bytes, and has neither.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use derive_more::Display;

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
    fn passed_on(&self) -> Option<&(dyn Coded + 'static)> {
        None
    }

    /// Returns what it names, for advice on its code.
    fn named(&self) -> Vec<Named> {
        self.passed_on().map(Coded::named).unwrap_or_default()
    }

    /// Returns the text that contains the error, and the error's place in it.
    fn quote(&self) -> Option<Quote<'_>> {
        self.passed_on().and_then(Coded::quote)
    }

    /// Returns the errors that together led to this one, such as one for each mirror.
    fn related(&self) -> Vec<&(dyn Coded + 'static)> {
        self.passed_on().map(Coded::related).unwrap_or_default()
    }
}

/// Something that an error names, and that advice on it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A known image, by its ID.
    Image(String),
    /// A file or a folder, as the user named it.
    File(String),
    /// A unit's port.
    Port(String),
    /// The USB ID of a unit.
    UsbId(String),
    /// A disk that can't be checked, such as `sda`.
    Disk(String),
    /// The folder on which a disk is mounted.
    Mount(String),
    /// A swap device, such as `/dev/sda2`.
    Swap(String),
    /// The UUID of a device on USB4 or Thunderbolt.
    Uuid(String),
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

impl<E: Coded + 'static> Coded for Box<E> {
    fn label(&self) -> Label {
        (**self).label()
    }

    fn passed_on(&self) -> Option<&(dyn Coded + 'static)> {
        Some(&**self)
    }
}

/// An error that no caller handles by its type: a kind and a code, what happened and where, and why.
///
/// ```
/// use asm2464::{Coded as _, Failure, Kind};
///
/// let failure = Failure::new(Kind::BadInput.code("example::empty"), "fw.bin is empty");
/// assert_eq!((failure.kind(), failure.to_string().as_str()), (Kind::BadInput, "fw.bin is empty"));
/// ```
#[derive(Debug, Display)]
#[display("{message}")]
pub struct Failure {
    label: Label,
    message: String,
    named: Box<[Named]>,
    cause: Cause,
    related: Box<[AnyFailure]>,
}

/// What led to a [`Failure`].
#[derive(Debug)]
enum Cause {
    /// Nothing else.
    Itself,
    /// An error of which only the text counts, such as the system's.
    Uncoded(Box<dyn Error + Send + Sync>),
    /// An error that is passed on, and shown as the cause.
    Shown(AnyFailure),
    /// An error that is passed on, and whose message is already part of the failure's message.
    Included(AnyFailure),
}

impl Failure {
    /// Makes a failure that says what happened and where.
    pub fn new(label: Label, message: impl Into<String>) -> Self {
        Self { label, message: message.into(), named: Box::default(), cause: Cause::Itself, related: Box::default() }
    }

    /// Adds the error that led to it, of which only the text counts, such as the system's.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: Cause::Uncoded(cause.into()), ..self }
    }

    /// Adds what it names, for the advice on its code.
    #[must_use]
    pub fn naming(self, named: Named) -> Self {
        Self { named: [self.named.into_vec(), vec![named]].concat().into(), ..self }
    }

    /// Adds the errors that together led to it, such as that of each mirror.
    #[must_use]
    pub fn after(self, related: Vec<AnyFailure>) -> Self {
        Self { related: related.into(), ..self }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Itself => None,
            Cause::Uncoded(cause) => Some(&**cause),
            Cause::Shown(cause) => Some(cause.coded()),
            Cause::Included(cause) => cause.coded().source(),
        }
    }
}

impl Coded for Failure {
    fn label(&self) -> Label {
        self.label
    }

    fn passed_on(&self) -> Option<&(dyn Coded + 'static)> {
        match &self.cause {
            Cause::Itself | Cause::Uncoded(_) => None,
            Cause::Shown(cause) | Cause::Included(cause) => Some(cause.coded()),
        }
    }

    fn named(&self) -> Vec<Named> {
        let passed_on = self.passed_on().map(Coded::named).unwrap_or_default();
        self.named.iter().cloned().chain(passed_on).collect()
    }

    fn related(&self) -> Vec<&(dyn Coded + 'static)> {
        let passed_on = self.passed_on().map(Coded::related).unwrap_or_default();
        self.related.iter().map(AnyFailure::coded).chain(passed_on).collect()
    }
}

/// A text, or bytes, without the expected form: what was found, safe to show, and what was expected.
///
/// It has no code: who reads the text knows where it stands, such as in which argument or file.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub struct ParseError(pub String);

impl Error for ParseError {}

/// Any error of this library, boxed. It says what happened and where, and has a stable [code](Coded::code).
#[derive(Debug, Display)]
pub struct AnyFailure(pub Box<dyn Coded + Send + Sync>);

impl AnyFailure {
    /// Returns the error.
    pub fn coded(&self) -> &(dyn Coded + 'static) {
        &*self.0
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.0.kind()
    }

    /// Returns the code.
    pub fn code(&self) -> &'static str {
        self.0.code()
    }

    /// Makes it the cause of an error that says what it stopped. Kind, code and advice stay.
    #[must_use]
    pub fn stopping(self, what: impl Into<String>) -> Self {
        let failure = Failure::new(self.0.label(), what);
        Failure { cause: Cause::Shown(self), ..failure }.into()
    }

    /// Puts the name of what it is about, such as a file, before its message.
    #[must_use]
    pub fn about(self, name: impl fmt::Display) -> Self {
        let failure = Failure::new(self.0.label(), format!("{name}: {self}"));
        Failure { cause: Cause::Included(self), ..failure }.into()
    }
}

impl<E: Coded + Send + Sync + 'static> From<E> for AnyFailure {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl Error for AnyFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
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

            fn passed_on(&self) -> Option<&(dyn $crate::Coded + 'static)> {
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
