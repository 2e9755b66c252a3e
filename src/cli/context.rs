//! What every subcommand knows of its surroundings: colours, quiet, and how to report a failure.

use std::io::IsTerminal;

use clap::ValueEnum;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};

use crate::failure::AnyFailure;

/// When to colour the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The surroundings of one run.
#[derive(Debug)]
pub struct Context {
    quiet: bool,
}

impl Context {
    /// Settles the colour choice for the whole process: everything is printed through `anstream`.
    pub fn new(color: ColorChoice, quiet: bool) -> Self {
        match color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self { quiet }
    }

    /// Whether to draw progress: not when asked to be quiet, and not into a pipe.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Whether only results and errors are to be printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a failure to stderr: code, message with its causes, help.
    pub fn report(&self, failure: &AnyFailure) {
        self.report_diagnostic(failure.diagnostic());
    }

    /// The same for a failure that does not end the command.
    pub fn report_diagnostic(&self, diagnostic: &dyn Diagnostic) {
        let mut text = String::new();
        let theme = if std::io::stderr().is_terminal() { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
        // Writing into a String cannot fail; a Display that does is a bug, and the plain message serves then.
        if GraphicalReportHandler::new_themed(theme).with_width(100).render_report(&mut text, diagnostic).is_err() {
            text = diagnostic.to_string();
        }
        anstream::eprintln!("{}", text.trim_end());
    }
}
