//! A transfer that can be taken up again: the bytes so far, and the validator that tells whether the server still has
//! the same file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Sha256Digest;

/// What is on disk of a transfer: `KEY.part` with the bytes, `KEY.toml` with address and validator.
///
/// Without a validator nothing can be taken up again, and both files go when the value is dropped.
#[derive(Debug)]
pub struct Partial {
    file: File,
    path: PathBuf,
    state_path: PathBuf,
    len: u64,
    state: State,
}

/// Where the bytes come from, and the server's name for that version of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    url: String,
    /// A strong ETag, or a Last-Modified date: what If-Range takes (RFC 9110, 13.1.5).
    validator: Option<String>,
}

impl Partial {
    /// What there is of this address in a folder, which is made if it isn't there.
    ///
    /// # Errors
    /// Where folder or file can't be made or read. A state file that makes no sense starts over.
    pub fn open(folder: &Path, url: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let key = &Sha256Digest::of(url.as_bytes()).to_string()[..16];
        let path = folder.join(format!("{key}.part"));
        let state_path = folder.join(format!("{key}.toml"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let state = fs::read_to_string(&state_path)
            .ok()
            .and_then(|text| toml::from_str::<State>(&text).ok())
            .filter(|state| state.url == url && state.validator.is_some())
            .unwrap_or_else(|| State { url: url.to_owned(), validator: None });
        let mut partial = Self { len: file.metadata()?.len(), file, path, state_path, state };
        if partial.state.validator.is_none() {
            partial.restart(None)?;
        } else {
            partial.file.seek(SeekFrom::End(0))?;
        }
        Ok(partial)
    }

    /// How many bytes are there.
    pub fn received(&self) -> u64 {
        self.len
    }

    /// Where the bytes are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From which byte a transfer can go on, and the validator to send with If-Range.
    pub fn resume(&self) -> Option<(u64, &str)> {
        self.state.validator.as_deref().filter(|_| self.len > 0).map(|validator| (self.len, validator))
    }

    /// Starts over, with the validator of the bytes to come.
    ///
    /// # Errors
    /// Where the files can't be written.
    pub fn restart(&mut self, validator: Option<String>) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.len = 0;
        self.state.validator = validator;
        if self.state.validator.is_some() {
            let text = toml::to_string(&self.state).map_err(io::Error::other)?;
            fs::write(&self.state_path, text)?;
        }
        Ok(())
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// Where the disk is full or fails; what is there stays as it was.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        if written.is_err() {
            // Part of them may have been written: the length must stay what the caller knows of.
            self.file.set_len(self.len)?;
            self.file.seek(SeekFrom::End(0))?;
        } else {
            self.len += bytes.len() as u64;
        }
        written
    }

    /// All the bytes.
    ///
    /// # Errors
    /// Where the file can't be read.
    pub fn read_all(&mut self) -> io::Result<Vec<u8>> {
        self.file.rewind()?;
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Forgets everything: the transfer is done with, or its bytes are wrong.
    pub fn discard(mut self) {
        self.state.validator = None;
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.resume().is_none() {
            // Nothing is lost where this fails: the next open starts over.
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(&self.state_path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1/fw.zip";

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn bytes_with_a_validator_are_taken_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(folder.path(), URL).unwrap();
        partial.restart(Some("\"v1\"".to_owned())).unwrap();
        partial.append(b"abc").unwrap();
        drop(partial);
        let mut partial = Partial::open(folder.path(), URL).unwrap();
        assert_eq!(partial.resume(), Some((3, "\"v1\"")));
        partial.append(b"def").unwrap();
        assert_eq!(partial.read_all().unwrap(), b"abcdef");
        partial.discard();
        assert_eq!(names(folder.path()), 0);
    }

    #[test]
    fn bytes_without_a_validator_do_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(folder.path(), URL).unwrap();
        partial.restart(None).unwrap();
        partial.append(b"abc").unwrap();
        assert_eq!(partial.resume(), None);
        drop(partial);
        assert_eq!(names(folder.path()), 0);
    }

    #[test]
    fn another_address_does_not_take_up_these_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(folder.path(), URL).unwrap();
        partial.restart(Some("\"v1\"".to_owned())).unwrap();
        partial.append(b"abc").unwrap();
        assert_eq!(Partial::open(folder.path(), "http://127.0.0.1/other.zip").unwrap().resume(), None);
    }
}
