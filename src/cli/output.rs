//! Output files: they must not exist yet, or `--force` must allow replacing them.

use std::path::{Path, PathBuf};

use asm2464_dock::files::file;
use thiserror::Error;

/// Reasons a file is not written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The file already exists.
    #[error("{} already exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The path names something other than a regular file.
    #[error("{} is {kind}, expected a regular file or nothing", path.display())]
    Irregular {
        /// The path.
        path: PathBuf,
        /// What it names.
        kind: &'static str,
    },
    /// The output is the input.
    #[error("{} is the input itself", path.display())]
    IsInput {
        /// The file.
        path: PathBuf,
    },
}

asm2464::coded!(OutputError {
    Exists => Refused "asmpatch::file::exists",
    Irregular => Refused "asmpatch::file::irregular",
    IsInput => Refused "asmpatch::file::input_is_output",
});

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

/// Checks that `path` may be written: it is a regular file or nothing, is not the input, and exists only with `force`.
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

/// Checks that `path` may be written by a command without an input file.
///
/// # Errors
/// [`OutputError`].
pub fn refuse_existing(path: &Path, force: bool) -> Result<(), OutputError> {
    refuse_irregular(path)?;
    if !force && path.symlink_metadata().is_ok() { Err(OutputError::Exists { path: path.to_owned() }) } else { Ok(()) }
}

/// Returns the name of the receipt beside an image: `OUT.toml`.
pub fn receipt_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".toml");
    name.into()
}
