//! A line of text: what asmpatch says in one, whoever wrote its parts.

use std::fmt;
use std::ops::Deref;

use asm2464::escape::Escape as _;
use derive_more::Display;
use serde::Serialize;

/// Text on one line. Text from outside can't end it: line breaks, and all else that could forge one, are shown by their
/// code.
#[derive(Debug, Display, Clone, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String"))]
#[serde(transparent)]
pub struct Line(String);

impl Line {
    /// Puts text on one line.
    pub fn of(text: impl fmt::Display) -> Self {
        Self(text.to_string().shown().to_string())
    }
}

impl Deref for Line {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Line {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str> + ?Sized> PartialEq<T> for Line {
    fn eq(&self, other: &T) -> bool {
        self.0 == other.as_ref()
    }
}
