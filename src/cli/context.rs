//! What every subcommand knows of its surroundings: colours, quiet, and how to report a failure.

use std::fmt::{self, Display, Formatter};
use std::io::IsTerminal;

use clap::ValueEnum;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use serde::{Deserialize, Serialize};

use super::errors;
use super::harmless::Harmless;
use super::print;
use super::settings::Settings;
use crate::failure::AnyFailure;

/// When to colour the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Display for ColorChoice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

/// The surroundings of one run.
#[derive(Debug)]
pub struct Context {
    quiet: bool,
    json: bool,
    settings: Settings,
}

/// A failure as `--json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FailureJson {
    /// Why there is no result.
    error: ErrorJson,
}

impl print::Document for FailureJson {}

/// An error as `--json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorJson {
    /// Its stable code.
    code: String,
    /// What failed and where, with its causes.
    message: String,
    /// What to do.
    help: Option<String>,
    /// The unit's port, where it is one unit's.
    unit: Option<String>,
}

impl ErrorJson {
    /// Code, message with its causes, help.
    pub fn of(diagnostic: &dyn Diagnostic) -> Self {
        let text = |part: Option<Box<dyn Display + '_>>| part.map(|part| part.to_string());
        Self {
            code: text(diagnostic.code()).unwrap_or_default(),
            message: with_causes(diagnostic),
            help: errors::help(diagnostic),
            unit: None,
        }
    }

    /// The same of one unit.
    pub fn at(self, device: &str) -> Self {
        Self { unit: Some(device.to_owned()), ..self }
    }

    /// The same with other help.
    pub fn helped(self, help: Option<Box<dyn Display + '_>>) -> Self {
        Self { help: help.map(|help| help.to_string()), ..self }
    }
}

impl Context {
    /// Settles the colour choice for the whole process: everything is printed through `anstream`. `json` is whether the
    /// result is printed as JSON, `settings` what the configuration file says.
    pub fn new(color: ColorChoice, quiet: bool, json: bool, settings: Settings) -> Self {
        match color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self { quiet, json, settings }
    }

    /// What the configuration file says.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether to draw progress: not when asked to be quiet, and not into a pipe.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Whether only results and errors are to be printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Reports the failure that ends the command: as the JSON document where one is wanted and none is printed yet, else
    /// in words.
    pub fn report_end(&self, failure: &AnyFailure) {
        if !self.json || print::has_json() {
            return self.report(failure);
        }
        print::json(&FailureJson { error: ErrorJson::of(failure.diagnostic()) });
    }

    /// Prints a failure to stderr: code, message with its causes, help.
    pub fn report(&self, failure: &AnyFailure) {
        self.report_diagnostic(failure.diagnostic());
    }

    /// The same for a failure that does not end the command.
    pub fn report_diagnostic(&self, diagnostic: &dyn Diagnostic) {
        let harmless = Harmless::new(diagnostic);
        let mut text = String::new();
        let theme = if std::io::stderr().is_terminal() { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
        // Writing into a String cannot fail; a Display that does is a bug, and the plain message serves then.
        if GraphicalReportHandler::new_themed(theme).with_width(100).render_report(&mut text, &harmless).is_err() {
            text = harmless.to_string();
        }
        errln!("{}", text.trim_end());
    }
}

/// The message and those of its causes, from the outermost on.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
