//! Files that the user names: read whole, up to a limit, with errors that name the file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::AnyFailure;
use crate::patch::Receipt;
use asm2464::digest::Sha256Digest;
use asm2464::firmware::{Image, ImageError, MAX_FILE_LEN};
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::{Coded, Label};
use asm2464_dock::files::file;
use thiserror::Error;

use super::other_file::OtherKind;
use super::output;

/// The longest text that asmpatch reads, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// How much of a file that is too long for an image is read to recognise it, in bytes.
const START: usize = 1 << 12;

/// Reasons a file can't be read.
#[derive(Debug, Error)]
pub enum InputError {
    /// The system refuses.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is a folder.
    #[error("{} is a folder, expected a file", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// The file has more bytes than such a file can have.
    #[error("{} has {}, expected at most {max} bytes", path.display(), found.map_or_else(|| "too many bytes".to_owned(), |found| format!("{found} bytes")))]
    Oversized {
        /// The file.
        path: PathBuf,
        /// Its length, if the system tells it in advance.
        found: Option<u64>,
        /// The most bytes that are read.
        max: usize,
    },
    /// Ctrl-C while waiting for a pipe.
    #[error(transparent)]
    Interrupted(Interrupted),
    /// The file is not UTF-8.
    #[error("{} is not UTF-8: the byte at offset {offset:#x} starts no character", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte that is not UTF-8.
        offset: usize,
    },
}

asm2464::coded!(InputError {
    Read => BadInput "asmpatch::file::read",
    Folder => BadInput "asmpatch::file::folder",
    Oversized => BadInput "asmpatch::file::oversized",
    Interrupted(cause) => cause,
    NotText => BadInput "asmpatch::file::not_text",
});

/// An error about a file's content, with the file's name.
#[derive(Debug, Error)]
#[error("{}: {cause}", path.display())]
pub struct InFile<E: Coded + 'static> {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub cause: E,
}

impl<E: Coded + 'static> Coded for InFile<E> {
    fn label(&self) -> Label {
        self.cause.label()
    }

    fn passed_on(&self) -> Option<&dyn Coded> {
        Some(&self.cause)
    }
}

impl<E: Coded + 'static> InFile<E> {
    /// Returns a function that adds the file's name to an error, for `map_err`.
    pub fn named(path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |cause| Self { path, cause }
    }
}

/// Reads a file of at most `max` bytes. A larger file is refused before it is read. Ctrl-C ends the wait for a pipe.
///
/// # Errors
/// [`InputError`].
pub fn read(path: &Path, max: usize) -> Result<Vec<u8>, InputError> {
    let path_buf = || path.to_owned();
    file::read(path, max, Interrupt::of_process()).map_err(|source| match source.kind() {
        io::ErrorKind::IsADirectory => InputError::Folder { path: path_buf() },
        io::ErrorKind::FileTooLarge => {
            let found = fs::metadata(path).ok().map(|metadata| metadata.len()).filter(|len| *len > max as u64);
            InputError::Oversized { path: path_buf(), found, max }
        }
        io::ErrorKind::Interrupted => InputError::Interrupted(Interrupted),
        _ => InputError::Read { path: path_buf(), source },
    })
}

/// Reads a text file, such as a receipt, of at most 1 MiB.
///
/// # Errors
/// [`InputError`].
pub fn read_text(path: &Path) -> Result<String, InputError> {
    let bytes = read(path, MAX_TEXT)?;
    String::from_utf8(bytes)
        .map_err(|error| InputError::NotText { path: path.to_owned(), offset: error.utf8_error().valid_up_to() })
}

/// Reads the receipt of an image: `named`, or else `FILE.toml` beside it, if there is one. What is there must be a receipt:
/// the commands that check an image and those that write it must not differ about that.
///
/// # Errors
/// [`InputError`], and [`asmpatch::patch::ReceiptError`].
pub fn receipt_of(image: &Path, named: Option<&Path>) -> Result<Option<Receipt>, AnyFailure> {
    let beside = output::receipt_path(image);
    let path = match named {
        Some(named) => named,
        None if beside.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) => {
            return Ok(None);
        }
        None => &beside,
    };
    Ok(Some(Receipt::parse(&path.display().to_string(), &read_text(path)?)?))
}

/// Reads every `.toml` file in these folders, sorted by name in each, with its path. Each must be a regular file of at
/// most 1 MiB.
///
/// # Errors
/// [`InputError`].
pub fn read_toml_files(folders: &[PathBuf]) -> Result<Vec<(String, String)>, InputError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| InputError::Read { path, source }
    };
    let mut files = Vec::new();
    for folder in folders {
        for path in file::toml_files(folder).map_err(failed(folder))? {
            files.push((path.display().to_string(), read_own_text(&path)?));
        }
    }
    Ok(files)
}

/// Reads a text file that must be a regular file of at most 1 MiB.
///
/// # Errors
/// [`InputError`].
pub fn read_own_text(path: &Path) -> Result<String, InputError> {
    file::read_regular_text(path, MAX_TEXT).map_err(|source| InputError::Read { path: path.to_owned(), source })
}

/// Reads the file of an image. Its container may be damaged, but what is recognised as something else is refused.
///
/// # Errors
/// [`InputError`]; fails if the file is something else that is recognised.
pub fn read_image(path: &Path) -> Result<Vec<u8>, AnyFailure> {
    let read = read(path, MAX_FILE_LEN);
    let kind = match &read {
        Ok(bytes) if Image::parse(bytes).is_err() => OtherKind::of_file(bytes),
        Err(InputError::Oversized { .. }) => {
            file::read_start(path, START).ok().and_then(|start| OtherKind::of_file(&start))
        }
        Err(InputError::Folder { .. }) => OtherKind::of_folder(path),
        _ => None,
    };
    match kind {
        Some(kind) => Err(kind.failure(path).into()),
        None => Ok(read?),
    }
}

/// A firmware image that the user named.
#[derive(Debug)]
pub struct ImageFile {
    /// Its length in bytes.
    pub len: usize,
    /// The image.
    pub image: Image,
    /// The file's digest.
    pub sha256: Sha256Digest,
}

impl ImageFile {
    /// Reads an image and checks its container.
    ///
    /// # Errors
    /// As for [`read_image`], and [`ImageError`] with the file's name.
    pub fn read(path: &Path) -> Result<Self, AnyFailure> {
        let bytes = read_image(path)?;
        let image = Image::parse(&bytes).map_err(InFile::<ImageError>::named(path))?;
        Ok(Self { len: bytes.len(), image, sha256: Sha256Digest::of(&bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_never_ends_is_not_read_to_its_end() {
        if cfg!(unix) {
            let error = read(Path::new("/dev/zero"), 1000).unwrap_err();
            assert!(matches!(error, InputError::Oversized { found: None, max: 1000, .. }), "{error}");
        }
    }

    #[test]
    fn a_file_may_have_exactly_as_many_bytes_as_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, [b'a'; 10]).unwrap();
        assert_eq!(read(&path, 10).unwrap().len(), 10);
        assert!(matches!(read(&path, 9), Err(InputError::Oversized { found: Some(10), .. })));
        fs::write(&path, b"ab\xFFc").unwrap();
        assert!(matches!(read_text(&path), Err(InputError::NotText { offset: 2, .. })));
        assert!(matches!(read(folder.path(), 10), Err(InputError::Folder { .. })));
    }
}
