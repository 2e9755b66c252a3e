//! The settings that every subcommand shares: colours, quiet, how long to wait, and how to report a failure. A failure is
//! safe to show: text from outside can't break its messages into several lines.

use std::collections::HashSet;
use std::error::Error;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fmt, iter};

use asm2464::digest::Sha256Digest;
use asm2464::escape::{self, Escape as _};
use asm2464::{AnyFailure, Coded, Kind, Quote};
use asm2464_chip::chip::ProofBudget;
use asm2464_host::usb::sysfs::{TunnelledDevice, TunnelledDock, Tunnels};
use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde::Serialize;

use super::errors::{self, Exit};
use super::flash::steps::{WordedStep, lines};
use super::invocation::Invocation;
use super::log::LogArgs;
use super::{interrupt, print, terminal};
use crate::failure::shown_code;
use crate::image::Images;
use crate::patch::Library;
use crate::unit::NoUnit;

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
    /// The command that was run.
    pub(super) invocation: Arc<Invocation>,
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
    /// What to do, as text.
    help: Option<String>,
    /// The same, step by step.
    steps: Vec<WordedStep>,
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
    pub fn of(error: &(dyn Coded + 'static), run: &Invocation) -> Self {
        let tunnels = match (error as &dyn Error).downcast_ref() {
            Some(NoUnit(tunnels)) => tunnels.clone(),
            None => Tunnels::default(),
        };
        Self {
            code: shown_code(error),
            message: with_causes(error),
            help: None,
            steps: Vec::new(),
            device: None,
            tunnelled: tunnels.devices,
            tunnelled_docks: tunnels.docks,
        }
        .with_steps(errors::steps(error, run))
    }

    /// Adds the unit's port.
    pub fn at(self, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..self }
    }

    /// Replaces what to do.
    pub fn with_steps(self, steps: Vec<WordedStep>) -> Self {
        Self { help: Some(lines(&steps).join("\n")), steps, ..self }
    }
}

/// Shortens a digest to its first 16 digits.
pub fn short(digest: &str) -> String {
    format!("{}…", digest.get(..16).unwrap_or(digest))
}

/// Folds a line of a failure unless it quotes a file: the line below a quote marks a place in it.
fn folded(line: &str, width: usize) -> String {
    let quotes = |c: char| c.is_ascii_digit() || c == ':' || c == '·';
    if line.trim_start().starts_with(quotes) { line.to_owned() } else { terminal::fold(line, width) }
}

impl Context {
    /// Sets the colour choice for the whole process: everything is printed through `anstream`. With `--verbose`
    /// everything is printed, `json` says whether the result is printed as JSON.
    pub fn new(color: ColorChoice, is_quiet: bool, log: &LogArgs, json: bool, invocation: Invocation) -> Self {
        match color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self {
            is_quiet,
            is_verbose: log.is_verbose(),
            is_logged: log.is_on_stderr(),
            json,
            invocation: Arc::new(invocation),
        }
    }

    /// The settings of a command that this one runs, with its own command line.
    pub fn of_step(&self, json: bool, invocation: Invocation) -> Self {
        Self {
            is_quiet: self.is_quiet || json,
            is_verbose: self.is_verbose,
            is_logged: self.is_logged,
            json,
            invocation: Arc::new(invocation),
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
        print::json(&FailureJson { error: ErrorJson::of(failure.coded(), &self.invocation) });
        Exit::from(failure.kind())
    }

    /// Prints a failure to stderr: code, message with its causes, help. Returns its exit status.
    pub fn report(&self, error: &(dyn Coded + 'static)) -> Exit {
        report(error, &self.invocation);
        Exit::from(error.kind())
    }

    /// Returns what is known of images in this run: nothing yet. A proof that takes long is shown as a bar.
    pub fn images(&self, library: Library) -> Images {
        let shows_progress = self.shows_progress();
        Images::new(library, move || {
            let bars = terminal::bars(shows_progress);
            let mut bar = None;
            ProofBudget::new(interrupt::install(), move |computed: Duration| {
                let bar = bar.get_or_insert_with(|| bars.add(proof_bar()));
                bar.set_message(format!("{:.1}", computed.as_secs_f32()));
                bar.set_position(computed.as_millis() as u64);
            })
        })
    }
}

fn proof_bar() -> ProgressBar {
    let bar = ProgressBar::new(ProofBudget::LIMIT.as_millis() as u64);
    let limit = ProofBudget::LIMIT.as_secs();
    let template = format!("booting the image on the chip model [{{bar:14}}] {{msg}} of {limit} s at most");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

/// Prints a failure to stderr, for code that has no [`Context`].
pub fn report(error: &(dyn Coded + 'static), run: &Invocation) {
    print_failure(&ShownError::new(error, run));
}

/// Prints a failure to stderr with these steps in place of its own.
pub fn report_with(error: &(dyn Coded + 'static), steps: &[WordedStep]) {
    let help = Some(escape::lines(&lines(steps).join("\n")));
    print_failure(&ShownError { help, ..ShownError::new(error, &Invocation::default()) });
}

fn print_failure(shown: &ShownError<'_>) {
    let mut text = String::new();
    let theme = if std::io::stderr().is_terminal() { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
    let handler = GraphicalReportHandler::new_themed(theme).with_wrap_lines(false);
    // Writing into a String cannot fail. If a Display fails, that is a bug, and the plain message must do.
    if handler.render_report(&mut text, shown).is_err() {
        text = shown.to_string();
    }
    let width = terminal::text_width(terminal::stderr_width());
    errln!("{}", text.trim_end().lines().map(|line| folded(line, width)).collect::<Vec<_>>().join("\n"));
}

/// An error with escaped messages, as miette prints it. Codes are ours; quoted source is escaped where it is read
/// ([`asm2464_dock::toml_file`]).
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ShownError<'a> {
    original: &'a (dyn Coded + 'static),
    text: Option<NamedSource<String>>,
    message: String,
    help: Option<String>,
    source: Option<Box<ShownCause>>,
    related: Vec<ShownError<'a>>,
}

/// A cause of a shown error, with an escaped message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct ShownCause {
    message: String,
    source: Option<Box<ShownCause>>,
}

/// The longest chain of causes that is followed. A longer one would be a loop.
const MAX_CAUSES: usize = 32;

impl<'a> ShownError<'a> {
    /// Copies an error and escapes everything in it that is shown. The same help is shown once.
    pub fn new(original: &'a (dyn Coded + 'static), run: &Invocation) -> Self {
        let help = Some(escape::lines(&errors::help(original, run)));
        let mut related: Vec<Self> = original.related().into_iter().map(|error| Self::new(error, run)).collect();
        let mut shown_helps = HashSet::from([help.clone()]);
        for error in &mut related {
            if !shown_helps.insert(error.help.clone()) {
                error.help = None;
            }
        }
        let text = original.quote().map(|Quote { name, text, .. }| NamedSource::new(name, text.to_owned()));
        let causes: Vec<String> = causes(original).take(MAX_CAUSES).map(one_line).collect();
        let source = causes.into_iter().rfold(None, |source, message| Some(Box::new(ShownCause { message, source })));
        Self { original, text, message: one_line(original), help, source, related }
    }
}

fn one_line(text: &(impl fmt::Display + ?Sized)) -> String {
    text.to_string().shown().to_string()
}

/// Lists an error's causes, outermost first.
fn causes(error: &dyn Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    iter::successors(error.source(), |&cause| cause.source())
}

/// Returns an error's message with those of its causes, as `--json` has it.
pub(super) fn with_causes(error: &dyn Error) -> String {
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Diagnostic for ShownError<'_> {
    fn code<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        Some(Box::new(shown_code(self.original)))
    }

    fn help<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        self.help.as_ref().map(|help| Box::new(help) as _)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.text.as_ref().map(|text| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let at = self.original.quote()?.at?;
        Some(Box::new(iter::once(LabeledSpan::new_with_span(Some("here".to_owned()), at))))
    }

    fn related<'b>(&'b self) -> Option<Box<dyn Iterator<Item = &'b dyn Diagnostic> + 'b>> {
        if self.related.is_empty() {
            return None;
        }
        Some(Box::new(self.related.iter().map(|related| related as &dyn Diagnostic)))
    }
}

/// The variable with a whole number that divides every deadline. For tests only, so that waiting for thousands of lost
/// units takes minutes. Only a build with debug assertions reads it: a variable in a user's environment must not make
/// `flash` give up on a unit that is still starting.
const SHORTEN: &str = "ASMPATCH_TEST_SHORTEN_DEADLINES";

/// How long a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// How long a unit may take to come back by itself.
    pub come_back: Duration,
    /// How long the user may then take to plug it in again.
    pub replug: Duration,
}

impl Deadlines {
    /// Returns the deadlines, shortened if a test asks for it.
    pub fn of_this_run() -> Self {
        let asked = env::var(SHORTEN).ok();
        Self { come_back: Duration::from_secs(15), replug: Duration::from_secs(120) }
            .shortened(divisor(asked.as_deref(), cfg!(debug_assertions)))
    }

    fn shortened(self, divisor: u32) -> Self {
        let divisor = divisor.max(1);
        Self { come_back: self.come_back / divisor, replug: self.replug / divisor }
    }
}

fn divisor(asked: Option<&str>, is_test_build: bool) -> u32 {
    match asked {
        Some(text) if is_test_build => text.parse().unwrap_or(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use miette::{GraphicalReportHandler, GraphicalTheme};

    use super::*;

    #[test]
    fn a_failure_names_the_docks_that_may_tunnel_where_no_unit_is_connected() {
        let device = TunnelledDevice { name: "0-1".into(), what: "ASMedia UT3G".into(), ..TunnelledDevice::default() };
        let json = |error: &NoUnit| serde_json::to_value(ErrorJson::of(error, &Invocation::default())).unwrap();
        let found = json(&NoUnit(Tunnels { devices: vec![device], ..Tunnels::default() }));
        let device = &found["tunnelled"][0];
        assert_eq!((&device["name"], &device["is_authorized"]), (&"0-1".into(), &false.into()), "{found:#}");
        assert!(json(&NoUnit(Tunnels::default())).get("tunnelled").is_none());
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{name} is bad")]
    struct Hostile {
        name: String,
        source: Option<Box<Hostile>>,
        others: Vec<Hostile>,
    }

    impl Coded for Hostile {
        fn label(&self) -> asm2464::Label {
            asm2464::Kind::BadInput.code("asmpatch::file::folder")
        }

        fn related(&self) -> Vec<&(dyn Coded + 'static)> {
            self.others.iter().map(|other| other as &(dyn Coded + 'static)).collect()
        }
    }

    #[test]
    fn what_is_quoted_of_a_file_is_shown_escaped_and_still_marked_at_its_place() {
        let text = "# \u{202E}\u{9b}2J\nserial = 7\n";
        let error = asm2464_dock::toml_file::parse::<std::collections::BTreeMap<String, String>>("evil\nname", text)
            .unwrap_err();
        let mut shown = String::new();
        GraphicalReportHandler::new_themed(GraphicalTheme::none())
            .render_report(&mut shown, &ShownError::new(&error, &Invocation::default()))
            .unwrap();
        assert!(shown.contains("# \\u{202e}\\u{9b}2J") && shown.contains("evil\\nname:2:"), "{shown}");
    }

    #[test]
    fn a_hostile_name_forges_no_line_in_a_message_a_cause_or_a_related_error() {
        let hostile = |name: &str| Hostile { name: name.to_owned(), source: None, others: Vec::new() };
        let error = Hostile {
            name: "a\nWrite this unit? [y/N] y".to_owned(),
            source: Some(Box::new(hostile("b\x1b[2J\u{202E}"))),
            others: vec![hostile("c\r\nok")],
        };
        let mut text = String::new();
        GraphicalReportHandler::new_themed(GraphicalTheme::none())
            .with_width(100)
            .render_report(&mut text, &ShownError::new(&error, &Invocation::default()))
            .unwrap();
        for line in ["a\\nWrite this unit? [y/N] y is bad", "b\\u{1b}[2J\\u{202e} is bad", "c\\r\\nok is bad"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("asmpatch::file::folder"), "{text}");
        // The related error has the same help.
        assert_eq!(text.matches("name the file in it").count(), 1, "{text}");
    }

    #[test]
    fn a_release_waits_as_long_as_it_says_whatever_the_environment_asks_for() {
        assert_eq!(divisor(Some("100"), true), 100);
        assert_eq!(divisor(Some("100"), false), 1);
        assert_eq!((divisor(None, true), divisor(Some("much"), true)), (1, 1));
    }

    #[test]
    fn deadlines_shrink_in_proportion_and_no_divisor_is_zero() {
        let full = Deadlines { come_back: Duration::from_secs(15), replug: Duration::from_secs(120) };
        let short = Deadlines { come_back: Duration::from_millis(150), replug: Duration::from_millis(1200) };
        assert_eq!(full.shortened(100), short);
        assert_eq!(full.shortened(0), full);
    }
}
