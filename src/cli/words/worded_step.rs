//! A step in words: what a user, or `doctor --fix`, does next. Below everything that words advice.
//!
//! A step of asmpatch's own has its command as it was put together, so that whoever runs it needs no shell and reads no
//! text. What it prints is made from that. Its words are [lines](Line), which text from outside can't end.

use std::ffi::OsString;
use std::fmt;

use derive_more::Display;
use serde::{Serialize, Serializer};

use crate::advice::Applicability;
use crate::cli::words::line::Line;
use crate::cli::words::print;
use crate::cli::words::printed_command::PrintedCommand;

/// A step in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WordedStep {
    /// What the step is for.
    pub purpose: Line,
    /// Who can take it.
    pub applicability: Applicability,
    /// How it goes with the step before it. Missing if it is the first, or helps where the steps before it didn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<Follows>,
    /// The question that you must have answered with yes before you run the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Line>,
    /// The command, ready for a shell; `None` for something to do by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<StepCommand>,
    /// The folder of the earlier backup that the command uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// One of asmpatch's own commands that lacks one value.
    #[serde(skip)]
    pub lacks: Option<Lacking>,
}

/// A command that lacks one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// Its words without the program's name. The one at `at` stands for the value.
    pub words: Vec<OsString>,
    /// Which word is missing.
    pub at: usize,
}

impl Lacking {
    /// The command with this value.
    pub fn with(&self, value: &str) -> PrintedCommand {
        let mut words = self.words.clone();
        words[self.at] = value.into();
        PrintedCommand::of(words, "")
    }
}

/// How a step goes with the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Follows {
    /// After it, and only if it was done.
    Then,
    /// In its place, and in place of those that it follows.
    Instead,
}

/// The command of a step. Its text is ready for a shell.
#[derive(Debug, Display, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String"))]
pub enum StepCommand {
    /// One of asmpatch's own.
    Own(PrintedCommand),
    /// One of the system's, or of a shell: with a pipe, or a redirection.
    System(Line),
}

impl From<PrintedCommand> for StepCommand {
    fn from(command: PrintedCommand) -> Self {
        if command.is_alone() { Self::Own(command) } else { Self::System(Line::of(command)) }
    }
}

impl From<String> for StepCommand {
    fn from(line: String) -> Self {
        Self::System(Line::of(line))
    }
}

impl From<&str> for StepCommand {
    fn from(line: &str) -> Self {
        Self::System(Line::of(line))
    }
}

impl Serialize for StepCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl WordedStep {
    fn told(purpose: impl fmt::Display, applicability: Applicability, command: Option<StepCommand>) -> Self {
        Self {
            purpose: Line::of(purpose),
            applicability,
            follows: None,
            question: None,
            command,
            backup: None,
            lacks: None,
        }
    }

    /// A step that you take by hand.
    pub fn hands(purpose: impl fmt::Display) -> Self {
        Self::told(purpose, Applicability::Hands, None)
    }

    /// A command that is right without a doubt.
    pub fn run(purpose: impl fmt::Display, command: impl Into<StepCommand>) -> Self {
        Self::told(purpose, Applicability::Certain, Some(command.into()))
    }

    /// A step for which only you know a value.
    pub fn lacking(purpose: impl fmt::Display) -> Self {
        Self::told(purpose, Applicability::NeedsValue, None)
    }

    /// A command to which only you can add the unit.
    pub fn lacking_unit(purpose: impl fmt::Display, command: impl Into<StepCommand>) -> Self {
        Self::told(purpose, Applicability::NeedsValue, Some(command.into()))
    }

    /// A command that is right if you want what its purpose says.
    pub fn if_yes(purpose: impl fmt::Display, command: impl Into<StepCommand>) -> Self {
        Self::told(purpose, Applicability::IfYes, Some(command.into()))
    }

    /// The same, after the step before it.
    #[must_use]
    pub fn then(self) -> Self {
        Self { follows: Some(Follows::Then), ..self }
    }

    /// The same, in place of the step before it.
    #[must_use]
    pub fn instead(self) -> Self {
        Self { follows: Some(Follows::Instead), ..self }
    }

    /// The step on one line.
    pub fn note(&self) -> String {
        let Self { purpose, question, command, .. } = self;
        let question = question.as_ref().map(|question| format!("{question}: ")).unwrap_or_default();
        match command {
            Some(command) => format!("{question}{purpose}: `{command}`"),
            None => format!("{question}{purpose}"),
        }
    }

    /// The command's text.
    pub fn line(&self) -> Option<String> {
        self.command.as_ref().map(ToString::to_string)
    }
}

/// Returns the steps, one per line, for printing as they are: a command broken across lines can't be copied. Commands with
/// one purpose are a sequence, and stand below each other.
pub fn lines(steps: &[WordedStep]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut asked: Option<&str> = None;
    // Several steps for one purpose have it once.
    let mut said: Option<&str> = None;
    for WordedStep { purpose, question, command, .. } in steps {
        let question = question.as_deref();
        if question != asked {
            lines.extend(question.map(|question| format!("{question}:")));
            (asked, said) = (question, None);
        }
        if said != Some(&**purpose) {
            let colon = if command.is_some() { ":" } else { "" };
            lines.push(format!("{purpose}{colon}"));
        }
        lines.extend(command.as_ref().map(|command| format!("    {command}")));
        said = Some(&**purpose);
    }
    lines
}

/// Prints the steps below an error.
pub fn print_below_error(steps: &[WordedStep]) {
    print::err(lines(steps).iter().map(|line| format!("        {line}")));
}
