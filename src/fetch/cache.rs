//! The cache: images named by their SHA-256, under the platform's cache folder.
//!
//! A file gets its name only after its bytes are verified, and is verified again each time it is used.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use asm2464::digest::Sha256Digest;
use asm2464::firmware::MAX_FILE_LEN;
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464_dock::files::atomic::{self, AtomicWriteError};
use asm2464_dock::files::file;
use etcetera::BaseStrategy;
use thiserror::Error;

use super::manifest::Manifest;
use super::unpack::Verified;

/// The cache folder: `images/SHA256.bin`, `locks/`.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
}

/// Reasons the cache can't be used.
#[derive(Debug, Error)]
pub enum CacheError {
    /// The system names no cache folder.
    #[error("the system names no cache folder: {0}")]
    NoFolder(String),
    /// A folder or file can't be used.
    #[error("cannot use the cache at {}", path.display())]
    Access {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An image can't be written.
    #[error(transparent)]
    Write(#[from] AtomicWriteError),
    /// Ctrl-C while waiting for another process.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

asm2464::coded!(CacheError {
    NoFolder => BadInput "asmpatch::cache::no_folder",
    Access => BadInput "asmpatch::cache::access",
    Write(cause) => cause,
    Interrupted(cause) => cause,
});

impl Cache {
    /// Opens the user's cache: `$XDG_CACHE_HOME/asmpatch` or the platform's equivalent.
    ///
    /// # Errors
    /// [`CacheError::NoFolder`].
    pub fn of_user() -> Result<Self, CacheError> {
        let strategy = etcetera::choose_base_strategy().map_err(|error| CacheError::NoFolder(error.to_string()))?;
        Ok(Self::at(&strategy.cache_dir().join("asmpatch")))
    }

    /// Opens a cache in this folder, which is created when something is stored.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Returns the path of this image, whether it is there or not.
    pub fn path(&self, manifest: &Manifest) -> PathBuf {
        self.folder.join("images").join(format!("{}.bin", manifest.sha256))
    }

    /// Returns the image's bytes if they are there and verify. Damaged bytes count as missing: they are replaced.
    ///
    /// # Errors
    /// [`CacheError::Access`] if something is there that can't be read.
    pub fn load(&self, manifest: &Manifest) -> Result<Option<Vec<u8>>, CacheError> {
        let path = self.path(manifest);
        match file::read_regular(&path, MAX_FILE_LEN) {
            Ok(bytes) => Ok((Sha256Digest::of(&bytes) == manifest.sha256).then_some(bytes)),
            // No image is larger than MAX_FILE_LEN: replace such a file like a damaged one.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge) => Ok(None),
            Err(source) => Err(CacheError::Access { path, source }),
        }
    }

    /// Stores a verified image: writes a temporary file, syncs its bytes to disk, then renames it. Returns its path.
    ///
    /// # Errors
    /// [`CacheError::Access`], [`CacheError::Write`]; no partly written file remains.
    pub(super) fn store(&self, manifest: &Manifest, image: &Verified) -> Result<PathBuf, CacheError> {
        let path = self.path(manifest);
        self.make_folder("images")?;
        atomic::write(&path, &image.bytes)?;
        Ok(path)
    }

    /// Waits until no other process fetches this image. While the returned file is open, this process has the right to
    /// fetch it.
    ///
    /// # Errors
    /// [`CacheError::Access`], [`CacheError::Interrupted`].
    pub fn lock(&self, manifest: &Manifest, interrupt: Interrupt<'_>) -> Result<File, CacheError> {
        let path = self.make_folder("locks")?.join(format!("{}.lock", manifest.sha256));
        file::await_own(&path, interrupt).map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => Interrupted.into(),
            _ => CacheError::Access { path, source },
        })
    }

    fn make_folder(&self, name: &str) -> Result<PathBuf, CacheError> {
        let path = self.folder.join(name);
        file::make_folder(&path).map_err(|source| CacheError::Access { path: path.clone(), source })?;
        Ok(path)
    }
}
