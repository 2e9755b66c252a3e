//! How an error becomes what the user sees: text, a JSON object, and the exit status. Both have the steps that
//! [`steps`](super::steps) words. Text is safe to show: nothing from outside can break a message into several lines.

use std::collections::HashSet;
use std::error::Error;
use std::io::IsTerminal as _;
use std::{fmt, iter};

use asm2464::escape::{self, Escape as _};
use asm2464::{AnyFailure, Coded, Kind, Quote};
use asm2464_host::usb::sysfs::{TunnelledDevice, TunnelledDock, Tunnels};
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde::Serialize;

use super::{Exit, steps};
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::{WordedStep, lines};
use crate::cli::words::{print, terminal};
use crate::failure::shown_code;
use crate::unit::NoUnit;

/// Reports the failure that ends a command: as the JSON document if one is wanted and none is printed yet, otherwise as
/// text. Returns the exit status.
pub fn report_end(failure: &AnyFailure, wants_json: bool, invocation: &Invocation) -> Exit {
    if wants_json && !print::has_json() {
        print::json(&FailureJson { error: ErrorJson::of(failure.coded(), invocation) });
        return Exit::from(failure.kind());
    }
    if failure.kind() == Kind::Interrupted && std::io::stderr().is_terminal() {
        // The terminal's echo of Ctrl-C begins the line.
        errln!("");
    }
    report(failure.coded(), invocation)
}

/// Prints an error to stderr: code, message with its causes, and what to do about it after this command. Returns the exit
/// status.
pub fn report(error: &(dyn Coded + 'static), invocation: &Invocation) -> Exit {
    report_with(error, &steps(error, invocation), invocation)
}

/// Prints an error to stderr with these steps in place of its own. Returns the exit status.
pub fn report_with(error: &(dyn Coded + 'static), steps: &[WordedStep], invocation: &Invocation) -> Exit {
    let shown = ShownError::new(error, steps, invocation);
    let theme = if std::io::stderr().is_terminal() { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
    let width = terminal::text_width(terminal::stderr_width());
    let text = shown.render(theme);
    print::err(text.trim_end().lines().flat_map(|line| folded(line, width)));
    Exit::from(error.kind())
}

/// A failure as `--json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailureJson {
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
    help: String,
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
    /// An error with what to do about it after this command.
    pub fn of(error: &(dyn Coded + 'static), invocation: &Invocation) -> Self {
        Self::with(error, steps(error, invocation))
    }

    /// An error with these steps in place of its own.
    pub fn with(error: &(dyn Coded + 'static), steps: Vec<WordedStep>) -> Self {
        let Tunnels { devices, docks, .. } = match (error as &dyn Error).downcast_ref() {
            Some(NoUnit { tunnels, .. }) => tunnels.clone(),
            None => Tunnels::default(),
        };
        Self {
            code: shown_code(error),
            message: with_causes(error),
            help: lines(&steps).join("\n"),
            steps,
            device: None,
            tunnelled: devices,
            tunnelled_docks: docks,
        }
    }

    /// Adds the unit's port.
    pub fn at(self, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..self }
    }
}

/// Folds a line of a failure unless it quotes a file: the line below a quote marks a place in it.
fn folded(line: &str, width: usize) -> Vec<String> {
    let quotes = |c: char| c.is_ascii_digit() || c == ':' || c == '·';
    if line.trim_start().starts_with(quotes) {
        return vec![line.to_owned()];
    }
    terminal::fold(line, width).split('\n').map(str::to_owned).collect()
}

/// An error with escaped messages, as miette prints it. Codes are ours; quoted source is escaped where it is read
/// ([`asm2464_files::toml_file`]).
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct ShownError<'a> {
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
    /// Copies an error and escapes everything in it that is shown, with these steps, after this command. The same help is
    /// shown once.
    fn new(original: &'a (dyn Coded + 'static), own: &[WordedStep], invocation: &Invocation) -> Self {
        let help = Some(escape::lines(&lines(own).join("\n")));
        let related = original.related().into_iter();
        let mut related: Vec<Self> =
            related.map(|error| Self::new(error, &steps(error, invocation), invocation)).collect();
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

    /// Puts it into lines, which are not folded.
    fn render(&self, theme: GraphicalTheme) -> String {
        let mut text = String::new();
        let handler = GraphicalReportHandler::new_themed(theme).with_wrap_lines(false);
        // Writing into a String cannot fail. If a Display fails, that is a bug, and the plain message must do.
        if handler.render_report(&mut text, self).is_err() {
            text = self.to_string();
        }
        text
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
pub fn with_causes(error: &dyn Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_docks_that_may_tunnel_where_no_unit_is_connected() {
        let device = TunnelledDevice { name: "0-1".into(), what: "ASMedia UT3G".into(), ..TunnelledDevice::default() };
        let json = |error: &NoUnit| serde_json::to_value(ErrorJson::of(error, &Invocation::default())).unwrap();
        let found =
            json(&NoUnit { tunnels: Tunnels { devices: vec![device], ..Tunnels::default() }, ..NoUnit::default() });
        let device = &found["tunnelled"][0];
        assert_eq!((&device["name"], &device["is_authorized"]), (&"0-1".into(), &false.into()), "{found:#}");
        assert!(json(&NoUnit::default()).get("tunnelled").is_none());
    }

    fn rendered(error: &(dyn Coded + 'static)) -> String {
        let run = Invocation::default();
        ShownError::new(error, &steps(error, &run), &run).render(GraphicalTheme::none())
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
        let error = asm2464_files::toml_file::parse::<std::collections::BTreeMap<String, String>>("evil\nname", text)
            .unwrap_err();
        let shown = rendered(&error);
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
        let text = rendered(&error);
        for line in ["a\\nWrite this unit? [y/N] y is bad", "b\\u{1b}[2J\\u{202e} is bad", "c\\r\\nok is bad"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("asmpatch::file::folder"), "{text}");
        // The related error has the same help.
        assert_eq!(text.matches("name the file in it").count(), 1, "{text}");
    }
}
