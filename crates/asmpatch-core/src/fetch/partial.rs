//! A transfer that can be resumed: the bytes so far, and the validator that tells whether the server still has the same
//! file.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::atomic;
use crate::digest::Sha256Digest;
use crate::file;
use crate::interrupt::Interrupt;

const PART: &str = "part";
const STATE: &str = "toml";
/// The longest state file, in bytes.
const MAX_STATE_LEN: usize = 1 << 16;

/// The files of a transfer: `KEY.part` with the bytes, `KEY.toml` with address and validator.
///
/// Without a validator the transfer can't be resumed, and dropping the value removes both files.
#[derive(Debug)]
pub struct Partial {
    file: File,
    /// The path of the bytes.
    pub(super) path: PathBuf,
    state_path: PathBuf,
    /// How many bytes have arrived.
    pub(super) received: u64,
    state: PartialState,
}

/// The address of the bytes, and the server's validator for that version of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartialState {
    url: String,
    /// A strong ETag, or a Last-Modified date, as If-Range takes it (RFC 9110, 13.1.5).
    validator: Option<String>,
}

impl Partial {
    /// Opens the transfer of this address in a folder, which is created if missing. One thread of one process holds it
    /// at a time; others wait here. Removes files of killed runs that nobody can resume.
    ///
    /// # Errors
    /// Fails if the folder or a file can't be created or read; [`io::ErrorKind::Interrupted`] on Ctrl-C. An invalid
    /// state file makes the transfer start over.
    pub fn open(folder: &Path, url: &str, interrupt: Interrupt<'_>) -> io::Result<Self> {
        file::make_folder(folder)?;
        let key = &Sha256Digest::of(url.as_bytes()).to_string()[..16];
        let path = folder.join(format!("{key}.part"));
        let state_path = path.with_extension(STATE);
        remove_leftovers(folder);
        let file = open_locked(&path, interrupt)?;
        let state = file::read_regular_text(&state_path, MAX_STATE_LEN)
            .ok()
            .and_then(|text| toml::from_str::<PartialState>(&text).ok())
            .filter(|state| state.url == url && state.validator.is_some())
            .unwrap_or_else(|| PartialState { url: url.to_owned(), validator: None });
        let mut partial = Self { received: file.metadata()?.len(), file, path, state_path, state };
        if partial.state.validator.is_none() {
            partial.restart(None)?;
        } else {
            partial.file.seek(SeekFrom::End(0))?;
        }
        Ok(partial)
    }

    /// Returns the byte from which the transfer can resume, and the validator to send with If-Range.
    pub fn resume(&self) -> Option<(u64, &str)> {
        self.state.validator.as_deref().filter(|_| self.received > 0).map(|validator| (self.received, validator))
    }

    /// Starts over, with the validator of the new bytes.
    ///
    /// # Errors
    /// Fails if the files can't be written.
    pub fn restart(&mut self, validator: Option<String>) -> io::Result<()> {
        // Remove the old validator first: it must never stand beside bytes that are not its own.
        match fs::remove_file(&self.state_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.received = 0;
        self.state.validator = validator;
        if self.state.validator.is_some() {
            let text = toml::to_string(&self.state).map_err(io::Error::other)?;
            atomic::write(&self.state_path, text.as_bytes()).map_err(|error| error.source)?;
        }
        Ok(())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// Fails if the disk is full or broken; the bytes from before stay.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        if written.is_err() {
            // Some of them may have been written. Cut the file back to the length that the caller knows.
            self.file.set_len(self.received)?;
            self.file.seek(SeekFrom::End(0))?;
        } else {
            self.received += bytes.len() as u64;
        }
        written
    }

    /// Returns all the bytes, `limit` at most.
    ///
    /// # Errors
    /// Fails if the file can't be read.
    pub fn read_all(&mut self, limit: u64) -> io::Result<Vec<u8>> {
        self.file.rewind()?;
        let mut bytes = Vec::new();
        (&self.file).take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Removes the files: the transfer is finished, or its bytes are wrong.
    pub fn discard(mut self) {
        self.state.validator = None;
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.resume().is_none() {
            // A failure here loses nothing: the next open starts over.
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(&self.state_path);
        }
    }
}

/// Opens the file and waits until nobody else holds it. The previous holder may have removed it at its end.
fn open_locked(path: &Path, interrupt: Interrupt<'_>) -> io::Result<File> {
    loop {
        match file::await_own(path, interrupt) {
            Ok(file) if is_at(&file, path) => return Ok(file),
            Ok(_) => {}
            // On a file system without locks, several may hold the file.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return file::open_own(path),
            Err(error) => return Err(error),
        }
    }
}

/// Whether an open file still has its name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |metadata: io::Result<fs::Metadata>| metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()));
    of(file.metadata()).is_some_and(|own| of(path.symlink_metadata()) == Some(own))
}

#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// Removes bytes without a validator beside them, because no later run can resume them. Skips files that another
/// process holds.
fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_left =
            path.extension().is_some_and(|extension| extension == PART) && !path.with_extension(STATE).exists();
        if is_left
            && file::irregular(&path).is_none()
            && let Ok(_held) = file::hold(File::options().read(true), &path)
            // Their owner may have written the validator in the meantime, and ended.
            && !path.with_extension(STATE).exists()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const URL: &str = "http://127.0.0.1/fw.zip";

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn bytes_with_a_validator_are_taken_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(folder.path(), URL, Interrupt::never()).unwrap();
        partial.restart(Some("\"v1\"".to_owned())).unwrap();
        partial.append(b"abc").unwrap();
        drop(partial);
        let mut partial = Partial::open(folder.path(), URL, Interrupt::never()).unwrap();
        assert_eq!(partial.resume(), Some((3, "\"v1\"")));
        partial.append(b"def").unwrap();
        assert_eq!(partial.read_all(100).unwrap(), b"abcdef");
        partial.discard();
        assert_eq!(names(folder.path()), 0);
    }

    #[test]
    fn bytes_without_a_validator_do_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(folder.path(), URL, Interrupt::never()).unwrap();
        partial.restart(None).unwrap();
        partial.append(b"abc").unwrap();
        assert_eq!(partial.resume(), None);
        drop(partial);
        assert_eq!(names(folder.path()), 0);
    }

    #[test]
    fn another_address_does_not_take_up_these_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(folder.path(), URL, Interrupt::never()).unwrap();
        partial.restart(Some("\"v1\"".to_owned())).unwrap();
        partial.append(b"abc").unwrap();
        assert_eq!(
            Partial::open(folder.path(), "http://127.0.0.1/other.zip", Interrupt::never()).unwrap().resume(),
            None
        );
    }

    #[test]
    fn bytes_that_start_over_without_a_validator_are_not_taken_up_under_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(folder.path(), URL, Interrupt::never()).unwrap();
        partial.restart(Some("\"v1\"".to_owned())).unwrap();
        partial.append(b"abc").unwrap();
        partial.restart(None).unwrap();
        partial.append(b"xyz").unwrap();
        // Imitate a killed process: nothing is dropped, and the lock goes with the process.
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(folder.path()).unwrap().flatten() {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        assert_eq!(Partial::open(copy.path(), URL, Interrupt::never()).unwrap().resume(), None);
    }

    #[test]
    fn a_transfer_is_one_writers_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(folder.path(), URL, Interrupt::never()).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(true);
        let second = Partial::open(folder.path(), URL, Interrupt::watching(&stop)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::Interrupted);
        partial.restart(Some("\"v1\"".to_owned())).unwrap();
        let waiting = thread::scope(|scope| {
            let second = scope.spawn(|| Partial::open(folder.path(), URL, Interrupt::never()).unwrap());
            partial.append(b"abc").unwrap();
            drop(partial);
            second.join().unwrap()
        });
        assert_eq!(waiting.resume(), Some((3, "\"v1\"")));
    }

    #[test]
    fn what_a_killed_run_left_and_nobody_can_take_up_is_removed_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0123456789abcdef.part"), "bytes without a validator").unwrap();
        drop(Partial::open(folder.path(), URL, Interrupt::never()).unwrap());
        assert_eq!(names(folder.path()), 0);
    }
}
