//! TOML that people write: what is wrong with it is shown at its place.

use miette::{Diagnostic, NamedSource, SourceSpan};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::failure::{Exit, Failure};

/// TOML that does not parse, or not into what is expected: unknown keys, wrong types, bad values.
#[derive(Debug, Error, Diagnostic)]
#[error("{origin}: {message}")]
#[diagnostic(code(asmpatch::toml::invalid), help("correct the marked place; docs/formats.md describes every key"))]
pub struct TomlError {
    origin: String,
    message: String,
    #[source_code]
    text: NamedSource<String>,
    #[label("here")]
    at: Option<SourceSpan>,
}

impl Failure for TomlError {
    fn exit(&self) -> Exit {
        Exit::BadInput
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
            at: error.span().map(SourceSpan::from),
            text: NamedSource::new(origin, text.to_owned()),
        })
    })
}
