//! Files that the user names: read whole, up to a limit, with errors that name the file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{AnyFailure, Failure, in_file};
use crate::file_kind::{FileKind, MAX_LOOKED_AT};
use crate::patch::Receipt;
use asm2464::Kind;
use asm2464::digest::Sha256Digest;
use asm2464::firmware::{Image, MAX_FILE_LEN};
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464_dock::files::file;

use super::other_file;
use super::output;

/// The longest text that asmpatch reads, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Reads a file of at most `max` bytes. A larger file is refused before it is read. Ctrl-C ends the wait for a pipe.
///
/// # Errors
/// Fails if the file can't be read or is too large, and on Ctrl-C.
pub fn read(path: &Path, max: usize) -> Result<Vec<u8>, AnyFailure> {
    file::read(path, max, Interrupt::of_process()).map_err(|cause| unread(path, max, cause))
}

/// The error of a file that could not be read.
fn unread(path: &Path, max: usize, cause: io::Error) -> AnyFailure {
    let shown = path.display();
    let failure = match cause.kind() {
        io::ErrorKind::Interrupted => return Interrupted.into(),
        io::ErrorKind::IsADirectory => {
            let label = Kind::BadInput.code("asmpatch::file::folder");
            Failure::new(label, format!("{shown} is a folder, expected a file"))
        }
        io::ErrorKind::FileTooLarge => {
            let found = fs::metadata(path).ok().map(|metadata| metadata.len()).filter(|len| *len > max as u64);
            let found = found.map_or_else(|| "too many bytes".to_owned(), |found| format!("{found} bytes"));
            let label = Kind::BadInput.code("asmpatch::file::oversized");
            Failure::new(label, format!("{shown} has {found}, expected at most {max} bytes"))
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            let label = Kind::BadInput.code("asmpatch::file::not_found");
            Failure::new(label, format!("cannot read {shown}")).because(cause)
        }
        // A pipe or a device in a folder of patches.
        io::ErrorKind::InvalidInput => {
            let label = Kind::BadInput.code("asmpatch::file::not_regular");
            Failure::new(label, format!("{shown} is not a regular file"))
        }
        _ => {
            let label = Kind::System.code("asmpatch::file::read");
            Failure::new(label, format!("cannot read {shown}")).because(cause)
        }
    };
    failure.into()
}

/// Reads a text file, such as a receipt, of at most 1 MiB.
///
/// # Errors
/// As for [`read`], and if the file is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, AnyFailure> {
    String::from_utf8(read(path, MAX_TEXT)?).map_err(|error| {
        let (shown, offset) = (path.display(), error.utf8_error().valid_up_to());
        let message = format!("{shown} is not UTF-8: the byte at offset {offset:#x} starts no character");
        Failure::new(Kind::BadInput.code("asmpatch::file::not_text"), message).into()
    })
}

/// Reads the receipt of an image: `named`, or else `FILE.toml` beside it, if there is one. Such a file must be a
/// receipt, so that the commands that check an image agree with those that write it.
///
/// # Errors
/// As for [`read_text`] and [`Receipt::parse`].
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
/// Fails if a folder or a file can't be read.
pub fn read_toml_files(folders: &[PathBuf]) -> Result<Vec<(String, String)>, AnyFailure> {
    let mut files = Vec::new();
    for folder in folders {
        for path in file::toml_files(folder).map_err(|cause| unread(folder, MAX_TEXT, cause))? {
            files.push((path.display().to_string(), read_own_text(&path)?));
        }
    }
    Ok(files)
}

/// Reads a text file that must be a regular file of at most 1 MiB.
///
/// # Errors
/// As for [`read`].
pub fn read_own_text(path: &Path) -> Result<String, AnyFailure> {
    file::read_regular_text(path, MAX_TEXT).map_err(|cause| unread(path, MAX_TEXT, cause))
}

/// Reads a file whole, or the first [`MAX_LOOKED_AT`] bytes of a longer one, and looks at what it is.
///
/// # Errors
/// As for [`read`]. The folder of a backup is described.
pub fn look(path: &Path) -> Result<(Vec<u8>, FileKind), AnyFailure> {
    let bytes = match file::read(path, MAX_LOOKED_AT, Interrupt::of_process()) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            file::read_start(path, MAX_LOOKED_AT).map_err(|_| unread(path, MAX_LOOKED_AT, error))?
        }
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            return Err(other_file::backup_folder(path).map_or_else(|| unread(path, MAX_LOOKED_AT, error), Into::into));
        }
        Err(error) => return Err(unread(path, MAX_LOOKED_AT, error)),
    };
    let kind = FileKind::of(&bytes);
    Ok((bytes, kind))
}

/// Reads the file of an image. Its container may be damaged, but a file that is recognised as another kind is refused.
///
/// # Errors
/// As for [`look`], and if the file is something else that asmpatch recognises, or too long for an image.
pub fn read_image(path: &Path) -> Result<Vec<u8>, AnyFailure> {
    let (bytes, kind) = look(path)?;
    image_bytes(path, bytes, &kind)
}

/// Returns a file's bytes if it is an image, damaged or not.
///
/// # Errors
/// As for [`read_image`].
fn image_bytes(path: &Path, bytes: Vec<u8>, kind: &FileKind) -> Result<Vec<u8>, AnyFailure> {
    match kind {
        FileKind::Image(_) | FileKind::DamagedImage | FileKind::Empty | FileKind::Unknown
            if bytes.len() <= MAX_FILE_LEN =>
        {
            Ok(bytes)
        }
        FileKind::Image(_) | FileKind::DamagedImage | FileKind::Unknown => {
            Err(unread(path, MAX_FILE_LEN, io::ErrorKind::FileTooLarge.into()))
        }
        kind => Err(other_file::no_image(kind, path).into()),
    }
}

/// A firmware image that the user named.
#[derive(Debug)]
pub struct ImageFile {
    /// The image.
    pub image: Image,
    /// The file's digest.
    pub sha256: Sha256Digest,
}

impl ImageFile {
    /// Reads an image and checks its container.
    ///
    /// # Errors
    /// As for [`read_image`], and if the container is invalid.
    pub fn read(path: &Path) -> Result<Self, AnyFailure> {
        let (bytes, kind) = look(path)?;
        Self::of(path, bytes, &kind)
    }

    /// Takes the image in a file that was looked at.
    ///
    /// # Errors
    /// As for [`ImageFile::read`].
    pub fn of(path: &Path, bytes: Vec<u8>, kind: &FileKind) -> Result<Self, AnyFailure> {
        let bytes = image_bytes(path, bytes, kind)?;
        let image = Image::parse(&bytes).map_err(in_file(path))?;
        Ok(Self { image, sha256: Sha256Digest::of(&bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_never_ends_is_not_read_to_its_end() {
        if cfg!(unix) {
            let error = read(Path::new("/dev/zero"), 1000).unwrap_err();
            assert_eq!(error.to_string(), "/dev/zero has too many bytes, expected at most 1000 bytes");
        }
    }

    #[test]
    fn a_file_may_have_exactly_as_many_bytes_as_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, [b'a'; 10]).unwrap();
        assert_eq!(read(&path, 10).unwrap().len(), 10);
        assert!(read(&path, 9).unwrap_err().to_string().ends_with("has 10 bytes, expected at most 9 bytes"));
        fs::write(&path, b"ab\xFFc").unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("the byte at offset 0x2 starts"));
        assert_eq!(read(folder.path(), 10).unwrap_err().code(), "asmpatch::file::folder");
    }
}
