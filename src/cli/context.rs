//! The settings that every subcommand shares: colours, quiet, and how to report a failure.

use std::io::IsTerminal;

use asm2464::Coded;
use asmpatch_core::failure::AnyFailure;
use clap::ValueEnum;
use miette::{GraphicalReportHandler, GraphicalTheme};
use serde::{Deserialize, Serialize};

use super::errors;
use super::harmless::{Harmless, causes};
use super::print;
use super::settings::Settings;

/// When to colour the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, derive_more::Display)]
#[serde(rename_all = "lowercase")]
#[display(rename_all = "lowercase")]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The settings of one run that every subcommand needs.
#[derive(Debug)]
pub struct Context {
    /// Whether to print only results and errors.
    pub(super) is_quiet: bool,
    json: bool,
    /// The configuration file.
    pub(super) settings: Settings,
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
    /// The port of the unit that failed, if the error is about one unit.
    unit: Option<String>,
}

impl ErrorJson {
    /// Takes code, message with causes, and help from an error.
    pub fn of(error: &dyn Coded) -> Self {
        Self {
            code: error.code().to_owned(),
            message: causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}")),
            help: Some(errors::help(error)),
            unit: None,
        }
    }

    /// Adds the unit's port.
    pub fn at(self, device: &str) -> Self {
        Self { unit: Some(device.to_owned()), ..self }
    }

    /// Replaces the help.
    pub fn helped(self, help: Option<String>) -> Self {
        Self { help, ..self }
    }
}

impl Context {
    /// Sets the colour choice for the whole process: everything is printed through `anstream`. `json` says whether the
    /// result is printed as JSON, `settings` is the configuration file.
    pub fn new(color: ColorChoice, is_quiet: bool, json: bool, settings: Settings) -> Self {
        match color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self { is_quiet, json, settings }
    }

    /// Whether to draw progress: not with `--quiet`, and not into a pipe.
    pub fn shows_progress(&self) -> bool {
        !self.is_quiet && std::io::stderr().is_terminal()
    }

    /// Reports the failure that ends the command: as the JSON document if one is wanted and none is printed yet,
    /// otherwise as text.
    pub fn report_end(&self, failure: &AnyFailure) {
        if !self.json || print::has_json() {
            return self.report(failure.coded());
        }
        print::json(&FailureJson { error: ErrorJson::of(failure.coded()) });
    }

    /// Prints a failure to stderr: code, message with its causes, help.
    pub fn report(&self, error: &dyn Coded) {
        let harmless = Harmless::new(error);
        let mut text = String::new();
        let theme = if std::io::stderr().is_terminal() { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
        // Writing into a String cannot fail. If a Display fails, that is a bug, and the plain message must do.
        if GraphicalReportHandler::new_themed(theme).with_width(100).render_report(&mut text, &harmless).is_err() {
            text = harmless.to_string();
        }
        errln!("{}", text.trim_end());
    }
}
