//! Where results go: a file that must not be there yet, or may be replaced with `--force`.

use std::path::{Path, PathBuf};

use crate::file;
use miette::Diagnostic;
use thiserror::Error;

/// Why a file is not written.
#[derive(Debug, Error, Diagnostic)]
pub enum OutputError {
    /// There is one.
    #[error("{} is there already", path.display())]
    #[diagnostic(code(asmpatch::file::exists))]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It is no file that can be replaced.
    #[error("{} is {kind}, expected a regular file or nothing", path.display())]
    #[diagnostic(code(asmpatch::file::irregular))]
    Irregular {
        /// What it names.
        path: PathBuf,
        /// What stands there.
        kind: &'static str,
    },
    /// It is the input.
    #[error("{} is the input itself", path.display())]
    #[diagnostic(code(asmpatch::file::input_is_output))]
    IsInput {
        /// The file.
        path: PathBuf,
    },
}

/// Checks that `path` names a regular file or nothing.
///
/// # Errors
/// [`OutputError::Irregular`].
pub fn refuse_irregular(path: &Path) -> Result<(), OutputError> {
    match file::irregular(path) {
        Some(kind) => Err(OutputError::Irregular { path: path.to_owned(), kind }),
        None => Ok(()),
    }
}

/// Checks that `path` may be written: it is a regular file or nothing, not the input, and not there without `force`.
///
/// # Errors
/// [`OutputError`].
pub fn check(path: &Path, input: &Path, force: bool) -> Result<(), OutputError> {
    let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if file::irregular(path).is_none() && same(path, input) {
        return Err(OutputError::IsInput { path: path.to_owned() });
    }
    refuse_existing(path, force)
}

/// The same where nothing is read.
///
/// # Errors
/// [`OutputError`].
pub fn refuse_existing(path: &Path, force: bool) -> Result<(), OutputError> {
    refuse_irregular(path)?;
    if !force && path.symlink_metadata().is_ok() { Err(OutputError::Exists { path: path.to_owned() }) } else { Ok(()) }
}

/// The receipt's name beside an image: `OUT.toml`.
pub fn receipt_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".toml");
    name.into()
}
