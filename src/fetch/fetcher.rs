//! Brings an image into the cache: from the file or address that the user names. Without one, uses the cached image if
//! it verifies, or tries the mirrors in order.
//!
//! In the cache, images are named by their SHA-256. A file gets its name only after its bytes are verified, and is
//! verified again each time it is used.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::MAX_FILE_LEN;
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::{AnyFailure, Failure, Kind, Named};
use asm2464_files::{atomic, file};
use asm2464_host::usb::sysfs::Sysfs;
use derive_more::Display;
use etcetera::BaseStrategy;

use super::http::{FetchError, FetchEvent, FetchProgress, Limits, Transfer, is_address, shown_address};
use super::manifest::{Manifest, Manifests, Mirror};
use super::unpack::{Inside, Search, Verified};
use crate::practice;

/// Where an image comes from: a zip, a bare image, or an updater.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum Source {
    /// A file.
    #[display("{}", _0.display())]
    File(PathBuf),
    /// An address, shown without its user's name and password.
    #[display("{}", shown_address(_0))]
    Url(String),
}

impl From<&str> for Source {
    /// Text that begins like an address is an address.
    fn from(text: &str) -> Self {
        if is_address(text) { Self::Url(text.to_owned()) } else { Self::File(text.into()) }
    }
}

/// An image that is verified and in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// The image file's bytes.
    pub bytes: Vec<u8>,
    /// The path in the cache.
    pub path: PathBuf,
    /// Where the bytes came from; `None` if they were already in the cache.
    pub source: Option<Source>,
    /// The image's place inside the source, if that holds more than the image.
    pub place: Option<String>,
}

/// Everything that fetching needs.
pub struct Fetcher<'a> {
    /// The known images.
    pub known: &'a Manifests,
    /// The cache.
    pub cache: &'a Cache,
    /// How long a transfer may take, and how much it may transfer.
    pub limits: &'a Limits,
    /// Whether the network must not be used.
    pub offline: bool,
    /// Receives the progress.
    pub progress: &'a mut FetchProgress<'a>,
    /// Lets the user stop it.
    pub interrupt: Interrupt<'a>,
}

impl Fetcher<'_> {
    /// Brings an image into the cache, verified. Without a source, an image that is already there stays as it is.
    ///
    /// # Errors
    /// [`FetchError`]; the cache then holds nothing new.
    pub fn acquire(&mut self, manifest: &Manifest, source: Option<&Source>) -> Result<Acquired, FetchError> {
        match source {
            Some(Source::File(path)) => {
                let bytes = read_file(path, self.limits.bytes, self.interrupt)?;
                self.keep(manifest, None, bytes, Source::File(path.clone()))
            }
            Some(Source::Url(url)) if self.offline => {
                let label = Kind::Usage.code("asmpatch::fetch::offline_url");
                let message = format!("{} needs the network, and downloads are switched off", shown_address(url));
                Err(FetchError::Local(Failure::new(label, message).into()))
            }
            Some(Source::Url(url)) => {
                let _lock = self.lock(manifest)?;
                self.fetch_url(manifest, None, url, Instant::now() + self.limits.deadline)
            }
            None => self.fetch_mirrors(manifest),
        }
    }

    fn fetch_mirrors(&mut self, manifest: &Manifest) -> Result<Acquired, FetchError> {
        if let Some(acquired) = self.cached(manifest)? {
            return Ok(acquired);
        }
        let id = &manifest.id;
        let without = |label, message: String| Failure::new(label, message).naming(Named::Image(id.clone()));
        if self.offline {
            let label = Kind::BadInput.code("asmpatch::fetch::offline");
            let message = format!("image {id} is not in the cache, and downloads are switched off");
            return Err(FetchError::Source(without(label, message).into()));
        }
        if manifest.mirrors.is_empty() {
            let label = Kind::BadInput.code("asmpatch::fetch::no_mirrors");
            let message = format!("the manifest of image {id} names no mirrors");
            return Err(FetchError::Source(without(label, message).into()));
        }
        let _lock = self.lock(manifest)?;
        // Another process may have fetched it while this one waited.
        if let Some(acquired) = self.cached(manifest)? {
            return Ok(acquired);
        }
        // All mirrors share one deadline: several slow mirrors must not multiply the user's wait.
        let deadline = Instant::now() + self.limits.deadline;
        let mut attempts = Vec::new();
        for Mirror { url, member } in &manifest.mirrors {
            match self.fetch_url(manifest, member.as_deref(), url, deadline) {
                Err(FetchError::Source(failure)) => {
                    self.progress.event(FetchEvent::Retry(&failure.to_string()));
                    attempts.push(failure);
                }
                result => return result,
            }
        }
        if attempts.len() == 1 {
            let failure = attempts.remove(0).stopping(format!("the only mirror of image {id} did not provide it"));
            return Err(FetchError::Source(failure));
        }
        let is_network = attempts.iter().all(|failure| failure.kind() == Kind::System);
        let label = if is_network {
            Kind::System.code("asmpatch::fetch::no_network")
        } else {
            Kind::BadInput.code("asmpatch::fetch::mirrors")
        };
        let message = format!("none of the {} mirrors of image {id} provided it", attempts.len());
        Err(FetchError::Source(without(label, message).after(attempts).into()))
    }

    fn cached(&self, manifest: &Manifest) -> Result<Option<Acquired>, FetchError> {
        let path = self.cache.path(manifest);
        let bytes = self.cache.load(manifest).map_err(FetchError::Local)?;
        Ok(bytes.map(|bytes| Acquired { bytes, path, source: None, place: None }))
    }

    fn lock(&mut self, manifest: &Manifest) -> Result<File, FetchError> {
        let waits = |lock: &Path| {
            let holders: Vec<String> = Sysfs::system().lock_holders_at(lock).iter().map(ToString::to_string).collect();
            let holder = if holders.is_empty() { "another process".to_owned() } else { holders.join(", ") };
            let lock = lock.display().to_string();
            self.progress.event(FetchEvent::Waiting(&format!("{holder} (its lock: {})", lock.shown())));
        };
        self.cache.lock(manifest, waits, self.interrupt).map_err(FetchError::Local)
    }

    fn fetch_url(
        &mut self,
        manifest: &Manifest,
        member: Option<&str>,
        url: &str,
        deadline: Instant,
    ) -> Result<Acquired, FetchError> {
        let (limits, interrupt) = (self.limits, self.interrupt);
        let transfer = Transfer { url, limits, deadline, progress: self.progress, interrupt };
        let bytes = transfer.download()?;
        self.keep(manifest, member, bytes, Source::Url(url.to_owned()))
    }

    /// Takes the image out of a fetched file and stores it. `member` is its name in the file, if known.
    fn keep(
        &self,
        manifest: &Manifest,
        member: Option<&str>,
        bytes: Vec<u8>,
        source: Source,
    ) -> Result<Acquired, FetchError> {
        let search = Search::new(Some(manifest), member, self.known, self.interrupt);
        let image = search.unpack(&source.to_string(), bytes)?;
        let path = self.cache.store(manifest, &image).map_err(FetchError::Local)?;
        Ok(Acquired { bytes: image.bytes, path, source: Some(source), place: image.place })
    }
}

/// Returns the known images that are in this file: as itself, in an archive, or in an updater.
pub fn images_in<'a>(path: &Path, known: &'a Manifests, interrupt: Interrupt<'a>) -> Inside<'a> {
    match read_file(path, Limits::default().bytes, interrupt) {
        Ok(bytes) => Search::images(known, bytes, interrupt),
        Err(_) => Inside { known: Vec::new(), others: Vec::new() },
    }
}

fn read_file(path: &Path, limit: u64, interrupt: Interrupt<'_>) -> Result<Vec<u8>, FetchError> {
    let max = usize::try_from(limit).unwrap_or(usize::MAX - 1);
    file::read(path, max, || (), interrupt).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => {
            let label = Kind::BadInput.code("asmpatch::fetch::too_large");
            FetchError::Local(Failure::new(label, format!("{} has more than {limit} bytes", path.display())).into())
        }
        io::ErrorKind::Interrupted => Interrupted.into(),
        kind => {
            let label = match kind {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    Kind::BadInput.code("asmpatch::file::not_found")
                }
                _ => Kind::System.code("asmpatch::file::read"),
            };
            FetchError::Local(Failure::new(label, format!("cannot read {}", path.display())).because(source).into())
        }
    })
}

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
            Ok(bytes) if Sha256Digest::of(&bytes) == manifest.sha256 => Ok(Some(bytes)),
            Ok(_) => Ok(None),
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

    /// Puts the practice image, in these bytes, beside the known ones, which come from elsewhere. Returns its path.
    ///
    /// # Errors
    /// Fails if the file can't be written.
    pub fn keep_practice(&self, bytes: &[u8]) -> Result<PathBuf, AnyFailure> {
        let path = self.make_folder("images")?.join(format!("{}.bin", practice::ID));
        if file::read_regular(&path, MAX_FILE_LEN).is_ok_and(|there| there == bytes) {
            return Ok(path);
        }
        atomic::write(&path, bytes)?;
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
