//! Brings an image into the cache: takes it from there if it verifies, otherwise from the mirrors in order, or from the
//! file or address that the user names.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use miette::Diagnostic;
use thiserror::Error;

use super::cache::{Cache, CacheError};
use super::http;
use super::http_error::HttpError;
use super::limits::Limits;
use super::manifest::{Manifest, Manifests, Mirror};
use super::partial::Partial;
use super::progress::{FetchEvent, FetchProgress};
use super::unpack::{self, UnpackError, Verified, Wanted};
use crate::file;
use crate::interrupt::{Interrupt, Interrupted};

/// The place from which the user wants the image: a zip, a bare image, or an updater.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// An http or https address.
    Url(String),
}

impl From<&str> for Source {
    /// Text that begins like an address is an address.
    fn from(text: &str) -> Self {
        if text.starts_with("http://") || text.starts_with("https://") {
            Self::Url(text.to_owned())
        } else {
            Self::File(text.into())
        }
    }
}

/// The origin of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was already in the cache.
    Cache,
    /// It came from a file; with its place inside the file.
    File(PathBuf, Option<String>),
    /// It came from an address; with its place inside the downloaded file.
    Url(String, Option<String>),
}

/// An image that is verified and in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// The image file's bytes.
    pub bytes: Vec<u8>,
    /// The path in the cache.
    pub path: PathBuf,
    /// Where they came from.
    pub origin: Origin,
}

/// Reasons there is no image.
#[derive(Debug, Error, Diagnostic)]
pub enum FetchError {
    /// The network is needed, but not allowed.
    #[error("image {id} is not in the cache, and downloads are switched off")]
    #[diagnostic(code(asmpatch::fetch::offline))]
    Offline {
        /// The image.
        id: String,
    },
    /// An address was given, but the network is not allowed.
    #[error("{url} needs the network, and downloads are switched off")]
    #[diagnostic(code(asmpatch::fetch::offline_url))]
    OfflineUrl {
        /// The address.
        url: String,
    },
    /// The manifest lists no mirrors.
    #[error("the manifest of image {id} names no mirrors")]
    #[diagnostic(code(asmpatch::fetch::no_mirrors))]
    NoMirrors {
        /// The image.
        id: String,
    },
    /// Every mirror failed.
    #[error("none of the {} mirrors of image {id} provided it", attempts.len())]
    #[diagnostic(code(asmpatch::fetch::mirrors))]
    Mirrors {
        /// The image.
        id: String,
        /// What happened at each, in order.
        #[related]
        attempts: Vec<FetchError>,
    },
    /// A file can't be read.
    #[error("cannot read {}", path.display())]
    #[diagnostic(code(asmpatch::fetch::read))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is larger than any firmware.
    #[error("{} has more than {limit} bytes", path.display())]
    #[diagnostic(code(asmpatch::fetch::too_large))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
    },
    /// The transfer failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Http(#[from] HttpError),
    /// The fetched file is not the image.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Unpack(#[from] UnpackError),
    /// The cache can't be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Cache(#[from] CacheError),
    /// Ctrl-C.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Interrupted(#[from] Interrupted),
}

impl FetchError {
    /// Whether another mirror would fail in the same way: the disk is full, the time is up, or the user wants to stop.
    fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Cache(_)
                | Self::Interrupted(_)
                | Self::Unpack(UnpackError::Interrupted(_))
                | Self::Http(HttpError::Write { .. } | HttpError::Interrupted(_) | HttpError::Deadline { .. })
        )
    }
}

/// Everything that fetching needs.
pub struct Fetcher<'a> {
    /// The known images.
    pub known: &'a Manifests,
    /// The cache.
    pub cache: &'a Cache,
    /// How long a transfer may take, and how much it may transfer.
    pub limits: &'a Limits,
    /// Whether the network is off limits.
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
    /// [`FetchError`]; the cache then holds nothing new, except perhaps a transfer that can be resumed.
    pub fn acquire(&mut self, manifest: &Manifest, source: Option<&Source>) -> Result<Acquired, FetchError> {
        match source {
            Some(Source::File(path)) => {
                let bytes = read_file(path, self.limits.bytes, self.interrupt)?;
                let image =
                    unpack::unpack(&path.display().to_string(), bytes, self.wanted(manifest, None), self.interrupt)?;
                let place = image.place().map(str::to_owned);
                self.keep(manifest, image, Origin::File(path.clone(), place))
            }
            Some(Source::Url(url)) if self.offline => Err(FetchError::OfflineUrl { url: url.clone() }),
            Some(Source::Url(url)) => {
                let _lock = self.cache.lock(manifest, self.interrupt)?;
                self.fetch_url(manifest, url, None, Instant::now() + self.limits.deadline)
            }
            None => self.fetch_mirrors(manifest),
        }
    }

    fn fetch_mirrors(&mut self, manifest: &Manifest) -> Result<Acquired, FetchError> {
        if let Some(acquired) = self.cached(manifest)? {
            return Ok(acquired);
        }
        if self.offline {
            return Err(FetchError::Offline { id: manifest.id.clone() });
        }
        if manifest.mirrors.is_empty() {
            return Err(FetchError::NoMirrors { id: manifest.id.clone() });
        }
        let _lock = self.cache.lock(manifest, self.interrupt)?;
        // Another process may have fetched it while this one waited.
        if let Some(acquired) = self.cached(manifest)? {
            return Ok(acquired);
        }
        // All mirrors share one deadline: several slow mirrors must not multiply the user's wait.
        let deadline = Instant::now() + self.limits.deadline;
        let mut attempts = Vec::new();
        for Mirror { url, member } in &manifest.mirrors {
            match self.fetch_url(manifest, url, member.as_deref(), deadline) {
                Err(error) if !error.is_final() => {
                    self.progress.event(FetchEvent::Retry(&error.to_string()));
                    attempts.push(error);
                }
                result => return result,
            }
        }
        Err(FetchError::Mirrors { id: manifest.id.clone(), attempts })
    }

    fn cached(&self, manifest: &Manifest) -> Result<Option<Acquired>, FetchError> {
        let path = self.cache.path(manifest);
        Ok(self.cache.load(manifest)?.map(|bytes| Acquired { bytes, path, origin: Origin::Cache }))
    }

    fn fetch_url(
        &mut self,
        manifest: &Manifest,
        url: &str,
        member: Option<&str>,
        deadline: Instant,
    ) -> Result<Acquired, FetchError> {
        let folder = self.cache.partial_folder();
        let write = |path: &Path, source| HttpError::Write { path: path.to_owned(), source };
        let mut partial = Partial::open(&folder, url, self.interrupt).map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => Interrupted.into(),
            _ => write(&folder, source),
        })?;
        if let Err(error) = http::download(url, &mut partial, self.limits, deadline, self.progress, self.interrupt) {
            // On a full disk, the partial file would only be in the way.
            if matches!(error, HttpError::Write { .. }) {
                partial.discard();
            }
            return Err(error.into());
        }
        let bytes = partial.read_all(self.limits.bytes).map_err(|source| write(partial.path(), source))?;
        // The transfer is complete, so there is nothing to resume: bytes that turn out wrong must not be reused.
        partial.discard();
        let image = unpack::unpack(url, bytes, self.wanted(manifest, member), self.interrupt)?;
        let place = image.place().map(str::to_owned);
        self.keep(manifest, image, Origin::Url(url.to_owned(), place))
    }

    fn wanted<'b>(&'b self, manifest: &'b Manifest, member: Option<&'b str>) -> Wanted<'b> {
        Wanted { manifest, member, known: self.known }
    }

    fn keep(&self, manifest: &Manifest, image: Verified, origin: Origin) -> Result<Acquired, FetchError> {
        let path = self.cache.store(manifest, &image)?;
        Ok(Acquired { bytes: image.into_bytes(), path, origin })
    }
}

fn read_file(path: &Path, limit: u64, interrupt: Interrupt<'_>) -> Result<Vec<u8>, FetchError> {
    let max = usize::try_from(limit).unwrap_or(usize::MAX - 1);
    file::read(path, max, interrupt).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => FetchError::TooLarge { path: path.to_owned(), limit },
        io::ErrorKind::Interrupted => Interrupted.into(),
        _ => FetchError::Read { path: path.to_owned(), source },
    })
}
