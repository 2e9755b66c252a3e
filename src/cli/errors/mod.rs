//! The exit status of each kind of error, and the table that maps each code to a help line.
//!
//! An error says what happened and where, and carries its kind and a stable code. `files` and `units` hold an entry for
//! each code, or for several with the same advice. docs/errors.md is generated from them.

use crate::failure::shown_code;
use asm2464::{Coded, Kind};

use super::invocation::Invocation;
use crate::advice::Hands;
use crate::shell;

/// Builds the entries, each written as `"code" | "other code", "help";`. A help has texts, names of [`Hands`], in
/// brackets the options with which to run the same command again, and in braces the argument that the error gives
/// several values, for the same command with each.
macro_rules! entries {
    ($($($code:literal)|+, $($first:ident)? $($text:literal $($hands:ident)? $([$options:literal])? $({$id:literal $value:literal})?)*;)*) => {
        &[$(ErrorEntry {
            codes: &[$($code),+],
            help: &[
                $(HelpPart::Hands(Hands::$first),)?
                $(HelpPart::Text($text), $(HelpPart::Hands(Hands::$hands),)? $(HelpPart::Again($options),)?
                    $(HelpPart::EachAgain { id: $id, value: $value },)?)*
            ],
        }),*]
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
    /// The system failed: a disk that is full, a file without rights, the network.
    System = 6,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
}

/// One entry of the table.
struct ErrorEntry {
    codes: &'static [&'static str],
    help: &'static [HelpPart],
}

/// A part of a help text.
enum HelpPart {
    /// The same for every unit.
    Text(&'static str),
    /// What you do with your hands.
    Hands(Hands),
    /// The same command with these options.
    Again(&'static str),
    /// The same command for each value that the error gives an argument, a line each.
    EachAgain {
        /// The argument's ID.
        id: &'static str,
        /// The placeholder of its values.
        value: &'static str,
    },
}

impl ErrorEntry {
    /// Returns the help text for the units that the command line names. `values` are the error's own.
    fn help(&self, values: &[(&'static str, String)], run: &Invocation) -> String {
        let word = |part: &HelpPart| match part {
            HelpPart::Text(text) => (*text).to_owned(),
            HelpPart::Hands(hands) => run.by_hand(*hands).to_owned(),
            HelpPart::EachAgain { id, value } => {
                let mut commands = String::new();
                for (_, value) in values.iter().filter(|(name, _)| name == value) {
                    let again = if run.is_unknown() {
                        format!("asmpatch ... --{id} {}", shell::word(value))
                    } else {
                        run.again().without("all").with(id, value).to_string()
                    };
                    commands = commands + "\n`" + &again + "`";
                }
                if commands.is_empty() { format!(" `--{id} {value}`") } else { commands }
            }
            HelpPart::Again(options) if run.is_unknown() => format!("`{}`", options.trim_start()),
            HelpPart::Again(options) => {
                let command = run.again();
                let has_dashes = command.words().iter().any(|word| word == "--");
                let again = command.to_string();
                match again.split_once(" -- ") {
                    Some((own, operands)) if has_dashes => format!("`{own}{options} -- {operands}`"),
                    _ => format!("`{again}{options}`"),
                }
            }
        };
        self.help.iter().map(word).collect()
    }
}

fn entries() -> impl Iterator<Item = &'static ErrorEntry> {
    files::ENTRIES.iter().chain(units::ENTRIES)
}

fn entry(code: &str) -> Option<&'static ErrorEntry> {
    entries().find(|entry| entry.codes.contains(&code))
}

/// The entry of an error that has none. The tests of this module fail on such an error.
const BUG: ErrorEntry = ErrorEntry {
    codes: &[],
    help: &[HelpPart::Text(
        "asmpatch knows no advice for this error, which is a bug in asmpatch: please report it with the command and \
         everything it printed",
    )],
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
            Kind::System => Self::System,
            Kind::DiskInUse | Kind::Refused => Self::Refused,
            Kind::Interrupted => Self::Interrupted,
        }
    }
}

/// Returns what to do about an error: its own help if it has some, otherwise that of its code.
pub fn help(error: &dyn Coded, run: &Invocation) -> String {
    let values = error.values();
    error.help().unwrap_or_else(|| run.completed_text(&entry_of(error).help(&values, run), &values))
}

/// Lists each code.
pub fn codes() -> impl Iterator<Item = &'static str> {
    entries().flat_map(|entry| entry.codes).copied()
}

/// Lists each code with what to do about it.
#[cfg(test)]
pub fn each(run: &Invocation) -> impl Iterator<Item = (&'static str, String)> {
    entries().flat_map(|entry| {
        let help = run.completed_text(&entry.help(&[], run), &[]);
        entry.codes.iter().map(move |code| (*code, help.clone()))
    })
}

/// Returns what to do about an error with this code and these values of its own.
pub fn help_by_code(code: &str, values: &[(&'static str, String)], run: &Invocation) -> Option<String> {
    entry(code).map(|entry| run.completed_text(&entry.help(values, run), values))
}
