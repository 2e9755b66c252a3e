//! What helps against an error, by its code: `files` and `units` have an entry for each code, or for several with the same
//! advice. docs/errors.md is generated from them.

use asm2464::Named;

use crate::advice::Hands;
use crate::cli::words::advice_part::{AdvicePart, worded};
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::WordedStep;

/// Builds the entries, each written as `"code" | "other code", advice;`. An advice is one part, or several
/// in parentheses: a text; a name of [`Hands`]; in brackets a command and what it is for; in braces what the same command
/// is for, the argument's ID and the slot that the error fills, with `each` before it if each value has its own command;
/// also in braces, a text about an option, with `{}` in the option's place, `if` and the argument's ID, and the value if it
/// is not the one that the help names: an empty one for none.
macro_rules! entries {
    ($($($code:literal)|+, $advice:tt;)*) => {
        &[$(ErrorEntry { codes: &[$($code),+], advice: entries!(@advice $advice) }),*]
    };
    (@advice ($($part:tt)*)) => { &[$(entries!(@part $part)),*] };
    (@advice $part:tt) => { &[entries!(@part $part)] };
    (@part [$purpose:literal $line:literal]) => {
        AdvicePart::Run { purpose: $purpose, line: $line }
    };
    (@part {$purpose:literal $id:literal $slot:literal}) => {
        AdvicePart::Again { purpose: $purpose, id: $id, slot: $slot, is_each: false }
    };
    (@part {$purpose:literal each $id:literal $slot:literal}) => {
        AdvicePart::Again { purpose: $purpose, id: $id, slot: $slot, is_each: true }
    };
    (@part {$text:literal if $id:literal $value:literal}) => {
        AdvicePart::Option { id: $id, value: Some($value), text: $text }
    };
    (@part {$text:literal if $id:literal}) => {
        AdvicePart::Option { id: $id, value: None, text: $text }
    };
    (@part $hands:ident) => { AdvicePart::Hands(Hands::$hands) };
    (@part $text:literal) => { AdvicePart::Text(Cow::Borrowed($text)) };
}

pub(super) mod files;
pub(super) mod units;

/// One entry of the table.
pub(super) struct ErrorEntry {
    pub(super) codes: &'static [&'static str],
    pub(super) advice: &'static [AdvicePart],
}

pub(super) fn entries() -> impl Iterator<Item = &'static ErrorEntry> {
    files::ENTRIES.iter().chain(units::ENTRIES)
}

pub(super) fn entry(code: &str) -> Option<&'static ErrorEntry> {
    entries().find(|entry| entry.codes.contains(&code))
}

/// Lists each code.
pub fn codes() -> impl Iterator<Item = &'static str> {
    entries().flat_map(|entry| entry.codes).copied()
}

/// Returns what to do about an error with this code that names these; nothing for an unknown code.
pub fn steps(code: &str, named: &[Named], invocation: &Invocation) -> Vec<WordedStep> {
    entry(code).map(|entry| worded(entry.advice, invocation, named)).unwrap_or_default()
}
