//! The exit status of each kind of error, and the table that maps each code to a help line.
//!
//! An error says what happened and where, and carries its kind and a stable code. `files` and `units` hold an entry for
//! each code, or for several with the same advice.
//! docs/errors.md is generated from them.

use std::env;
use std::ffi::OsString;

use crate::failure::shown_code;
use crate::shell;
use asm2464::{Coded, Kind};

use super::by_hand;

/// Builds the entries, each written as `"code" | "other code", "help";`.
macro_rules! entries {
    ($($($code:literal)|+, $help:literal;)*) => {
        &[$(ErrorEntry { codes: &[$($code),+], help: $help }),*]
    };
}

mod files;
mod units;

#[cfg(test)]
mod tests;

/// The process's exit statuses, stable across versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// A check failed: `verify` found a difference, or `bench --min-mb-s` was missed.
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

/// One entry of the table.
struct ErrorEntry {
    codes: &'static [&'static str],
    help: &'static str,
}

fn entry(code: &str) -> Option<&'static ErrorEntry> {
    [files::ENTRIES, units::ENTRIES].into_iter().flatten().find(|entry| entry.codes.contains(&code))
}

/// What to make of an error without an entry, which no test of this module lets pass.
const BUG: ErrorEntry = ErrorEntry {
    codes: &[],
    help: "asmpatch knows no advice for this error, which is a bug in asmpatch: please report it with the command and \
           everything it printed",
};

fn entry_of(error: &dyn Coded) -> &'static ErrorEntry {
    let code = shown_code(error);
    let known = entry(&code);
    debug_assert!(known.is_some(), "no entry for the code {code:?} of {error}");
    known.unwrap_or(&BUG)
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Gone | Kind::NoAnswer | Kind::Short | Kind::Rejected | Kind::Wire | Kind::Unopened | Kind::Device => {
                Self::Device
            }
            Kind::CheckFailed => Self::CheckFailed,
            Kind::Usage => Self::Usage,
            Kind::BadInput => Self::BadInput,
            Kind::DiskInUse | Kind::Refused => Self::Refused,
            Kind::Interrupted => Self::Interrupted,
        }
    }
}

/// Returns what to do about an error: its own help if it has some, otherwise that of its code.
pub fn help(error: &dyn Coded) -> String {
    let help = error.help().unwrap_or_else(|| entry_of(error).help.to_owned());
    with_command(by_hand::advice_here(help), env::args_os())
}

/// How help texts name the command that is running.
const THIS_COMMAND: &str = "asmpatch ...";

/// Replaces a help text's command, which adds options to the one that was run, by the whole command.
fn with_command(help: String, run: impl Iterator<Item = OsString>) -> String {
    let Some((before, options, after)) = help
        .split_once(THIS_COMMAND)
        .and_then(|(before, rest)| rest.split_once('`').map(|(options, after)| (before, options, after)))
    else {
        return help;
    };
    let words: Vec<String> = run.skip(1).map(shell::word).collect();
    // Only operands may follow `--`.
    let (own, operands) = words.split_at(words.iter().position(|word| word == "--").unwrap_or(words.len()));
    let spaced = |words: &[String]| words.iter().map(|word| format!(" {word}")).collect::<String>();
    format!("{before}asmpatch{}{options}{}`{after}", spaced(own), spaced(operands))
}

/// Lists each code with what to do about it.
#[cfg(test)]
pub fn each() -> impl Iterator<Item = (&'static str, &'static str)> {
    let entries = [files::ENTRIES, units::ENTRIES].into_iter().flatten();
    entries.flat_map(|entry| entry.codes.iter().map(|code| (*code, entry.help)))
}

/// Returns what to do about an error with this code.
pub fn help_by_code(code: &str) -> Option<&'static str> {
    entry(code).map(|entry| entry.help)
}
