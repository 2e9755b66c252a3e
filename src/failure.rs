//! The errors of the program: one type for those that callers handle alike, a box for any error, and one for panics.
//! Every error is [`Coded`].

use std::error::Error;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use asm2464::{Coded, Kind, Label};
use derive_more::Display;

/// An error that no caller handles by its type: a kind and a code, what happened and where, and why.
///
/// ```
/// use asm2464::{Coded as _, Kind};
/// use asmpatch::failure::Failure;
///
/// let failure = Failure::new(Kind::BadInput.code("example::empty"), "fw.bin is empty");
/// assert_eq!((failure.kind(), failure.to_string().as_str()), (Kind::BadInput, "fw.bin is empty"));
/// ```
#[derive(Debug, Display)]
#[display("{message}")]
pub struct Failure {
    label: Label,
    message: String,
    help: Option<Box<str>>,
    values: Box<[(&'static str, String)]>,
    cause: Cause,
    related: Box<[AnyFailure]>,
}

/// What led to a [`Failure`].
#[derive(Debug)]
enum Cause {
    /// Nothing else.
    Itself,
    /// An error without a code of its own, such as the system's.
    Uncoded(Box<dyn Error + Send + Sync>),
    /// An error that is passed on, and shown as the cause.
    Shown(AnyFailure),
    /// An error that is passed on, and whose message is already part of the failure's message.
    Included(AnyFailure),
}

impl Failure {
    /// Makes a failure that says what happened and where.
    pub fn new(label: Label, message: impl Into<String>) -> Self {
        Self {
            label,
            message: message.into(),
            help: None,
            values: Box::default(),
            cause: Cause::Itself,
            related: Box::default(),
        }
    }

    /// Adds the error without a code that led to it, such as the system's.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: Cause::Uncoded(cause.into()), ..self }
    }

    /// Adds what to do about it, where that depends on more than the code.
    #[must_use]
    pub fn helped(self, help: impl Into<Option<String>>) -> Self {
        Self { help: help.into().map(Into::into), ..self }
    }

    /// Adds what a placeholder in the help of its code stands for.
    #[must_use]
    pub fn naming(mut self, placeholder: &'static str, value: impl Into<String>) -> Self {
        let mut values = self.values.into_vec();
        values.push((placeholder, value.into()));
        self.values = values.into_boxed_slice();
        self
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

    fn passed_on(&self) -> Option<&dyn Coded> {
        match &self.cause {
            Cause::Itself | Cause::Uncoded(_) => None,
            Cause::Shown(cause) | Cause::Included(cause) => Some(cause.coded()),
        }
    }

    fn help(&self) -> Option<String> {
        self.help.as_deref().map(str::to_owned).or_else(|| self.passed_on()?.help())
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let passed_on = self.passed_on().map(Coded::values).unwrap_or_default();
        self.values.iter().cloned().chain(passed_on).collect()
    }

    fn related(&self) -> Vec<&dyn Coded> {
        let passed_on = self.passed_on().map(Coded::related).unwrap_or_default();
        self.related.iter().map(|failure| failure.coded() as &dyn Coded).chain(passed_on).collect()
    }
}

/// A bug in asmpatch: a panic that stopped the work on one unit only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.0.kind()
    }

    /// Returns the code.
    pub fn code(&self) -> &'static str {
        self.0.code()
    }

    /// Makes it the cause of an error that says what it stopped. Kind, code and help stay.
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

    /// Replaces the help: what to do about it.
    #[must_use]
    pub fn helped(self, help: String) -> Self {
        let failure = Failure::new(self.0.label(), self.to_string()).helped(help);
        Failure { cause: Cause::Included(self), ..failure }.into()
    }
}

/// Returns a function that names the file that an error is about, for `map_err`.
pub fn in_file<E: Into<AnyFailure>>(path: &Path) -> impl Fn(E) -> AnyFailure {
    move |error| error.into().about(path.display())
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
