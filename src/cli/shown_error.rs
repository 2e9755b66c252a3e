//! A failure that is safe to show: text from outside can't break its messages into several lines.

use std::collections::HashSet;
use std::error::Error;
use std::{fmt, iter};

use crate::failure::shown_code;
use asm2464::escape::{self, Escape as _};
use asm2464::{Coded, Quote};
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

use super::command_line::CommandLine;
use super::errors;

/// An error with escaped messages, as miette prints it. Codes are ours; quoted source is escaped where it is read
/// ([`asm2464_dock::files::toml_file`]).
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ShownError<'a> {
    original: &'a dyn Coded,
    text: Option<NamedSource<String>>,
    message: String,
    help: Option<String>,
    source: Option<Box<Cause>>,
    related: Vec<ShownError<'a>>,
}

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Cause {
    message: String,
    source: Option<Box<Cause>>,
}

/// The longest chain of causes that is followed. A longer one would be a loop.
const MAX_CAUSES: usize = 32;

impl<'a> ShownError<'a> {
    /// Copies an error and escapes everything in it that is shown. The same help is shown once.
    pub fn new(original: &'a dyn Coded, line: &CommandLine) -> Self {
        let help = Some(escape::lines(&errors::help(original, line)));
        let mut related: Vec<Self> = original.related().into_iter().map(|error| Self::new(error, line)).collect();
        let mut shown_helps = HashSet::from([help.clone()]);
        for error in &mut related {
            error.help = error.help.take().filter(|help| shown_helps.insert(Some(help.clone())));
        }
        let text = original.quote().map(|Quote { name, text, .. }| NamedSource::new(name, text.to_owned()));
        let causes: Vec<String> = causes(original).take(MAX_CAUSES).map(one_line).collect();
        let source = causes.into_iter().rfold(None, |source, message| Some(Box::new(Cause { message, source })));
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
        let related = self.related.iter().map(|related| related as &dyn Diagnostic);
        (!self.related.is_empty()).then(|| Box::new(related) as _)
    }
}

#[cfg(test)]
mod tests {
    use miette::{GraphicalReportHandler, GraphicalTheme};

    use super::*;

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

        fn related(&self) -> Vec<&dyn Coded> {
            self.others.iter().map(|other| other as &dyn Coded).collect()
        }
    }

    #[test]
    fn what_is_quoted_of_a_file_is_shown_escaped_and_still_marked_at_its_place() {
        let text = "# \u{202E}\u{9b}2J\nserial = 7\n";
        let error =
            asm2464_dock::files::toml_file::parse::<std::collections::BTreeMap<String, String>>("evil\nname", text)
                .unwrap_err();
        let mut shown = String::new();
        GraphicalReportHandler::new_themed(GraphicalTheme::none())
            .render_report(&mut shown, &ShownError::new(&error, &CommandLine::default()))
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
            .render_report(&mut text, &ShownError::new(&error, &CommandLine::default()))
            .unwrap();
        for line in ["a\\nWrite this unit? [y/N] y is bad", "b\\u{1b}[2J\\u{202e} is bad", "c\\r\\nok is bad"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("asmpatch::file::folder"), "{text}");
        // The related error has the same help.
        assert_eq!(text.matches("name the file in it").count(), 1, "{text}");
    }
}
