//! The settings that every subcommand shares: colours, quiet, and how to report a failure.

use std::error::Error;
use std::io::IsTerminal;

use crate::failure::{AnyFailure, shown_code};
use crate::image::Images;
use crate::patch::Library;
use crate::unit::ConnectError;
use asm2464::digest::Sha256Digest;
use asm2464::{Coded, Kind};
use asm2464_chip::chip::ProofBudget;
use asm2464_host::usb::sysfs::{TunnelledDevice, TunnelledDock, Tunnels};
use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{GraphicalReportHandler, GraphicalTheme};
use serde::Serialize;

use super::command_line::CommandLine;
use super::errors::{self, Exit};
use super::log::LogArgs;
use super::shown_error::{ShownError, with_causes};
use super::{fold, interrupt, print, terminal};

/// The settings of one run that every subcommand needs.
#[derive(Debug)]
pub struct Context {
    /// Whether to print only results and errors.
    pub(super) is_quiet: bool,
    /// Whether to print everything: whole digests, and details that are otherwise left out.
    is_verbose: bool,
    /// Whether the log shows each step on stderr.
    is_logged: bool,
    json: bool,
    /// The command line, as far as advice depends on it.
    pub(super) command_line: CommandLine,
}

/// A failure as `--json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FailureJson {
    /// Why there is no result.
    error: ErrorJson,
}

impl print::Document for FailureJson {
    const VERSION: u32 = 2;
}

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
    device: Option<String>,
    /// If no unit is connected: the devices that are connected over USB4 or Thunderbolt, one of which may be a dock
    /// that shows no USB device. Missing otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnelled: Vec<TunnelledDevice>,
    /// If no unit is connected: the docks that the host sees on PCIe, over USB4. Missing otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnelled_docks: Vec<TunnelledDock>,
}

impl ErrorJson {
    /// Takes code, message with causes, and help from an error.
    pub fn of(error: &(dyn Coded + 'static), line: &CommandLine) -> Self {
        let tunnels = match (error as &dyn Error).downcast_ref() {
            Some(ConnectError::Tunnelled(tunnels) | ConnectError::Unauthorised(tunnels)) => tunnels.clone(),
            _ => Tunnels::default(),
        };
        Self {
            code: shown_code(error),
            message: with_causes(error),
            help: Some(errors::help(error, line)),
            device: None,
            tunnelled: tunnels.devices,
            tunnelled_docks: tunnels.docks,
        }
    }

    /// Adds the unit's port.
    pub fn at(self, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..self }
    }

    /// Replaces the help.
    pub fn helped(self, help: Option<String>) -> Self {
        Self { help, ..self }
    }
}

/// Shortens a digest to its first 16 digits.
pub fn short(digest: &str) -> String {
    format!("{}…", digest.get(..16).unwrap_or(digest))
}

/// Folds a line of a failure unless it quotes a file: the line below a quote marks a place in it.
fn folded(line: &str, width: usize) -> String {
    let quotes = |c: char| c.is_ascii_digit() || c == ':' || c == '·';
    if line.trim_start().starts_with(quotes) { line.to_owned() } else { fold::fold(line, width) }
}

impl Context {
    /// Sets the colour choice for the whole process: everything is printed through `anstream`. With `--verbose`
    /// everything is printed, `json` says whether the result is printed as JSON.
    pub fn new(color: ColorChoice, is_quiet: bool, log: &LogArgs, json: bool, command_line: CommandLine) -> Self {
        match color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self { is_quiet, is_verbose: log.is_verbose(), is_logged: log.is_on_stderr(), json, command_line }
    }

    /// The settings of a command that this one runs, with its own command line.
    pub fn of_step(&self, json: bool, command_line: CommandLine) -> Self {
        Self {
            is_quiet: self.is_quiet || json,
            is_verbose: self.is_verbose,
            is_logged: self.is_logged,
            json,
            command_line,
        }
    }

    /// Returns a digest as a person reads it: its first 16 digits, or all of them with `--verbose`.
    pub fn digest(&self, digest: &Sha256Digest) -> String {
        let whole = digest.to_string();
        if self.is_verbose { whole } else { short(&whole) }
    }

    /// Whether the log shows each step on stderr, so that nothing else has to.
    pub const fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Whether to print everything: whole digests, and details that are otherwise left out.
    pub const fn is_verbose(&self) -> bool {
        self.is_verbose
    }

    /// Whether to draw progress: not with `--quiet`, and not into a pipe.
    pub fn shows_progress(&self) -> bool {
        !self.is_quiet && std::io::stderr().is_terminal()
    }

    /// Reports the failure that ends the command: as the JSON document if one is wanted and none is printed yet,
    /// otherwise as text. Returns its exit status.
    pub fn report_end(&self, failure: &AnyFailure) -> Exit {
        if !self.json || print::has_json() {
            if failure.kind() == Kind::Interrupted && std::io::stderr().is_terminal() {
                // The terminal's echo of Ctrl-C begins the line.
                err!("\n");
            }
            return self.report(failure.coded());
        }
        print::json(&FailureJson { error: ErrorJson::of(failure.coded(), &self.command_line) });
        Exit::from(failure.kind())
    }

    /// Prints a failure to stderr: code, message with its causes, help. Returns its exit status.
    pub fn report(&self, error: &dyn Coded) -> Exit {
        report(error, &self.command_line);
        Exit::from(error.kind())
    }

    /// Returns what is known of images in this run: nothing yet. A proof that takes long is shown as a bar.
    pub fn images(&self, library: Library) -> Images {
        let shows_progress = self.shows_progress();
        Images::new(library, move || {
            let bars = terminal::bars(shows_progress);
            let mut bar = None;
            ProofBudget::new(interrupt::install(), move |instructions| {
                bar.get_or_insert_with(|| bars.add(proof_bar())).set_position(instructions);
            })
        })
    }
}

fn proof_bar() -> ProgressBar {
    let bar = ProgressBar::new(ProofBudget::INSTRUCTIONS);
    let template = "booting the image on the chip model [{bar:20}] {human_pos} of at most {human_len} instructions";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Prints a failure to stderr, for code that has no [`Context`].
pub fn report(error: &dyn Coded, line: &CommandLine) {
    let shown = ShownError::new(error, line);
    let mut text = String::new();
    let theme = if std::io::stderr().is_terminal() { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
    let handler = GraphicalReportHandler::new_themed(theme).with_wrap_lines(false);
    // Writing into a String cannot fail. If a Display fails, that is a bug, and the plain message must do.
    if handler.render_report(&mut text, &shown).is_err() {
        text = shown.to_string();
    }
    let width = terminal::text_width(terminal::stderr_width());
    errln!("{}", text.trim_end().lines().map(|line| folded(line, width)).collect::<Vec<_>>().join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_docks_that_may_tunnel_where_no_unit_is_connected() {
        let device =
            TunnelledDevice { name: "0-1".into(), what: "ASMedia UT3G".into(), is_authorized: false, waits: None };
        let json = |error: &ConnectError| serde_json::to_value(ErrorJson::of(error, &CommandLine::default())).unwrap();
        let found = json(&ConnectError::over(Tunnels { devices: vec![device], docks: Vec::new() }));
        assert_eq!(
            found["tunnelled"],
            serde_json::json!([{ "name": "0-1", "what": "ASMedia UT3G", "is_authorized": false }])
        );
        assert!(json(&ConnectError::None).get("tunnelled").is_none());
    }
}
