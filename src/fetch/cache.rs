//! The cache: images named by their SHA-256, under the platform's cache folder.
//!
//! A file gets its name only after its bytes are verified, and is verified again each time it is used.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use asm2464::Kind;
use asm2464::digest::Sha256Digest;
use asm2464::firmware::MAX_FILE_LEN;
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464_dock::files::atomic;
use asm2464_dock::files::file;
use etcetera::BaseStrategy;

use super::manifest::Manifest;
use super::unpack::Verified;
use crate::failure::{AnyFailure, Failure};

/// The cache folder: `images/SHA256.bin`, `locks/`.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens the user's cache: `$XDG_CACHE_HOME/asmpatch` or the platform's equivalent.
    ///
    /// # Errors
    /// Fails if the system names no cache folder.
    pub fn of_user() -> Result<Self, Failure> {
        let strategy = etcetera::choose_base_strategy().map_err(|error| {
            let label = Kind::System.code("asmpatch::cache::no_folder");
            Failure::new(label, format!("the system names no cache folder: {error}"))
        })?;
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
    /// Fails if something is there that can't be read.
    pub fn load(&self, manifest: &Manifest) -> Result<Option<Vec<u8>>, AnyFailure> {
        let path = self.path(manifest);
        match file::read_regular(&path, MAX_FILE_LEN) {
            Ok(bytes) => Ok((Sha256Digest::of(&bytes) == manifest.sha256).then_some(bytes)),
            // No image is larger than MAX_FILE_LEN: replace such a file like a damaged one.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge) => Ok(None),
            Err(source) => Err(inaccessible(&path, source)),
        }
    }

    /// Stores a verified image: writes a temporary file, syncs its bytes to disk, then renames it. Returns its path.
    ///
    /// # Errors
    /// Fails if the file can't be written; no partly written file remains.
    pub(super) fn store(&self, manifest: &Manifest, image: &Verified) -> Result<PathBuf, AnyFailure> {
        let path = self.path(manifest);
        self.make_folder("images")?;
        atomic::write(&path, &image.bytes)?;
        Ok(path)
    }

    /// Waits until no other process fetches this image. While the returned file is open, this process has the right to
    /// fetch it. Calls `waits` with the lock's path once it has waited for a second.
    ///
    /// # Errors
    /// Fails if the lock's file can't be opened, and on Ctrl-C.
    pub fn lock(
        &self,
        manifest: &Manifest,
        waits: impl FnOnce(&Path),
        interrupt: Interrupt<'_>,
    ) -> Result<File, AnyFailure> {
        let path = self.make_folder("locks")?.join(format!("{}.lock", manifest.sha256));
        file::await_own(&path, || waits(&path), interrupt).map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => Interrupted.into(),
            _ => inaccessible(&path, source),
        })
    }

    fn make_folder(&self, name: &str) -> Result<PathBuf, AnyFailure> {
        let path = self.folder.join(name);
        file::make_folder(&path).map_err(|source| inaccessible(&path, source))?;
        Ok(path)
    }
}

fn inaccessible(path: &Path, cause: io::Error) -> AnyFailure {
    let label = Kind::System.code("asmpatch::cache::access");
    Failure::new(label, format!("cannot use the cache at {}", path.display())).because(cause).into()
}
