//! Output files: they must not exist yet with other contents, or `--force` must allow replacing them.

use std::path::{Path, PathBuf};

use crate::failure::{AnyFailure, Failure};
use asm2464::Kind;
use asm2464_dock::files::{atomic, file};

/// Checks that `path` names a regular file or nothing.
///
/// # Errors
/// Fails if it names something else.
pub fn refuse_irregular(path: &Path) -> Result<(), Failure> {
    match file::irregular(path) {
        Some(kind) => {
            let label = Kind::Refused.code("asmpatch::file::irregular");
            let message = format!("{} is {kind}, expected a regular file or nothing", path.display());
            Err(Failure::new(label, message))
        }
        None => Ok(()),
    }
}

/// Checks that `path` may be written: it is a regular file or nothing, is not the input, and exists only with `force`.
///
/// # Errors
/// Fails if it may not.
pub fn check(path: &Path, input: &Path, force: bool) -> Result<(), Failure> {
    let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if file::irregular(path).is_none() && same(path, input) {
        let label = Kind::Refused.code("asmpatch::file::input_is_output");
        return Err(Failure::new(label, format!("{} is the input itself", path.display())));
    }
    refuse_existing(path, force)
}

/// Checks that `path` may be written by a command without an input file.
///
/// # Errors
/// Fails if it may not.
pub fn refuse_existing(path: &Path, force: bool) -> Result<(), Failure> {
    refuse_irregular(path)?;
    if !force && path.symlink_metadata().is_ok() { Err(exists(path)) } else { Ok(()) }
}

/// Writes files that belong together. The same command twice succeeds: files that already have these contents stay as
/// they are. `input` is the file that they are made from.
///
/// # Errors
/// Fails if one is the input, exists with other contents and without `force`, or can't be written.
pub fn write(files: &[(&Path, &[u8])], input: Option<&Path>, force: bool) -> Result<(), AnyFailure> {
    let mut is_there = true;
    for (path, bytes) in files {
        refuse_irregular(path)?;
        // Read only after that: a pipe would wait for its writer.
        if file::read_regular(path, bytes.len()).is_ok_and(|there| there == *bytes) {
            continue;
        }
        is_there = false;
        match input {
            Some(input) => check(path, input, force)?,
            None => refuse_existing(path, force)?,
        }
    }
    if !is_there {
        atomic::write_all(files)?;
    }
    Ok(())
}

/// Returns the error for an output file that already exists.
pub fn exists(path: &Path) -> Failure {
    Failure::new(Kind::Refused.code("asmpatch::file::exists"), format!("{} already exists", path.display()))
}

/// Returns the name of the receipt beside an image: `OUT.toml`.
pub fn receipt_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".toml");
    name.into()
}
