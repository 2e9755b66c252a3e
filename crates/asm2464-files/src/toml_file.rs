//! Parses TOML files that people write, and shows errors at their place.

use std::ops::Range;

use asm2464::escape::{self, Escape as _};
use asm2464::{Coded, Kind, Label, Quote};
use serde::de::DeserializeOwned;
use thiserror::Error;

/// TOML that does not parse, or does not fit the expected type: unknown keys, wrong types, bad values.
#[derive(Debug, Error)]
#[error("{origin}: {message}")]
pub struct TomlError {
    origin: String,
    message: String,
    shown_origin: String,
    shown_text: String,
    at: Option<Range<usize>>,
}

impl Coded for TomlError {
    fn label(&self) -> Label {
        Kind::BadInput.code("asm2464::toml::invalid")
    }

    fn quote(&self) -> Option<Quote<'_>> {
        Some(Quote { name: &self.shown_origin, text: &self.shown_text, at: self.at.clone() })
    }
}

/// Parses TOML. `origin` names the file in errors.
///
/// # Errors
/// [`TomlError`], boxed because it carries the text to show.
pub fn parse<T: DeserializeOwned>(origin: &str, text: &str) -> Result<T, Box<TomlError>> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        Box::new(TomlError {
            origin: origin.to_owned(),
            message: error.message().to_owned(),
            at: error.span().map(|span| shown_span(text, span)),
            // The text quoted below the message comes from the file, which anybody may have written.
            shown_origin: origin.shown().to_string(),
            shown_text: escape::lines(text),
        })
    })
}

/// Returns the span in the text as it is shown, with harmful characters escaped.
fn shown_span(text: &str, span: Range<usize>) -> Range<usize> {
    let shown_len = |part: Range<usize>| escape::lines(text.get(part).unwrap_or_default()).len();
    let start = shown_len(0..span.start);
    start..start + shown_len(span)
}

/// Formats a TOML basic string, with quotes, that a parser reads back as `text`.
pub fn string(text: &str) -> String {
    let escaped = escape::replaced(text, |c| match c {
        '"' | '\\' => Some(format!("\\{c}")),
        c => escape::is_harmful(c).then(|| format!("\\U{:08X}", u32::from(c))),
    });
    format!("\"{escaped}\"")
}

/// Describes what is wrong with TOML, in one line with the line number.
pub fn reason(text: &str, error: &toml::de::Error) -> String {
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, error.message()),
        None => error.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quoted_file_is_escaped_and_the_error_still_marked_at_its_place() {
        let text = "# \u{202E}\u{9b}2J\nserial = 7\n";
        let error = parse::<std::collections::BTreeMap<String, String>>("evil\nname", text).unwrap_err();
        let quote = error.quote().unwrap();
        assert_eq!((quote.name, quote.at), ("evil\\nname", Some(28..29)));
        assert!(quote.text.contains("# \\u{202e}\\u{9b}2J"), "{}", quote.text);
    }

    #[test]
    fn a_reason_names_its_line() {
        let text = "a = 1\nb = = 2\n";
        let error = toml::from_str::<toml::Table>(text).unwrap_err();
        assert!(reason(text, &error).starts_with("line 2: "), "{}", reason(text, &error));
    }

    proptest! {
        #[test]
        fn a_string_reads_back_as_it_was_and_nothing_in_it_is_harmful(text: String) {
            let written = super::string(&text);
            prop_assert!(!written.chars().any(asm2464::escape::is_harmful));
            let read: toml::Table = format!("key = {written}").parse().unwrap();
            prop_assert_eq!(read["key"].as_str(), Some(text.as_str()));
        }
    }
}
