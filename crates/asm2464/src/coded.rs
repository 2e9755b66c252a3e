//! Errors with stable codes.

use std::error::Error;
use std::ops::Range;

/// An error with a stable code, by which programs and documents name it.
pub trait Coded: Error {
    /// Returns the code, such as `asm2464::usb::permission`. It stays the same across versions.
    fn code(&self) -> &'static str;

    /// Returns the error that this one only passes on.
    fn passed_on(&self) -> Option<&dyn Coded> {
        None
    }

    /// Returns what to do about it, if that depends on more than the code.
    fn help(&self) -> Option<String> {
        self.passed_on().and_then(Coded::help)
    }

    /// Returns the text that the error is about.
    fn quote(&self) -> Option<Quote<'_>> {
        self.passed_on().and_then(Coded::quote)
    }

    /// Returns the errors that together led to this one, such as that of each mirror.
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
    fn code(&self) -> &'static str {
        (**self).code()
    }

    fn passed_on(&self) -> Option<&dyn Coded> {
        Some(&**self)
    }
}

/// Gives an error type its code, or each variant of an enum its own. A variant that only passes another error on has that
/// error's code, and shows which field holds it.
///
/// ```
/// # #[derive(Debug, thiserror::Error)]
/// # #[error("stopped")]
/// # struct Stopped;
/// # #[derive(Debug, thiserror::Error)]
/// # enum ReadError { #[error("missing")] Missing { name: String }, #[error(transparent)] Stopped(Stopped) }
/// asm2464::coded!(Stopped => "example::stopped");
/// asm2464::coded!(ReadError {
///     Missing => "example::missing",
///     Stopped(cause) => cause,
/// });
/// # use asm2464::Coded as _;
/// assert_eq!(ReadError::Stopped(Stopped).code(), "example::stopped");
/// ```
#[macro_export]
macro_rules! coded {
    ($type:ident => $code:literal) => {
        impl $crate::Coded for $type {
            fn code(&self) -> &'static str {
                $code
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
            fn code(&self) -> &'static str {
                $crate::coded!(@code self [] $($arms)*)
            }

            fn passed_on(&self) -> Option<&dyn $crate::Coded> {
                $crate::coded!(@passed_on self [] $($arms)*)
            }
        }
    };
    (@$what:ident $self:ident [$($arms:tt)*]) => {
        match $self { $($arms)* }
    };
    (@code $self:ident [$($arms:tt)*] $variant:ident => $code:literal, $($rest:tt)*) => {
        $crate::coded!(@code $self [$($arms)* Self::$variant { .. } => $code,] $($rest)*)
    };
    (@code $self:ident [$($arms:tt)*] $variant:ident $fields:tt => $cause:ident, $($rest:tt)*) => {
        $crate::coded!(@code $self [$($arms)* Self::$variant $fields => $crate::Coded::code($cause),] $($rest)*)
    };
    (@passed_on $self:ident [$($arms:tt)*] $variant:ident => $code:literal, $($rest:tt)*) => {
        $crate::coded!(@passed_on $self [$($arms)* Self::$variant { .. } => None,] $($rest)*)
    };
    (@passed_on $self:ident [$($arms:tt)*] $variant:ident $fields:tt => $cause:ident, $($rest:tt)*) => {
        $crate::coded!(@passed_on $self [$($arms)* Self::$variant $fields => Some($cause),] $($rest)*)
    };
}
