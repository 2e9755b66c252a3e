//! Brings an image into the cache: takes it from there if it verifies, otherwise from the mirrors in order, or from the
//! file or address that the user names.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::{Coded, Kind, Label};
use asm2464_dock::files::file;
use derive_more::Display;
use thiserror::Error;

use super::address;
use super::cache::{Cache, CacheError};
use super::http::{FetchEvent, FetchProgress, Transfer};
use super::http_error::HttpError;
use super::limits::Limits;
use super::manifest::{Manifest, Manifests, Mirror};
use super::unpack::{self, UnpackError, Wanted};

/// Where an image comes from: a zip, a bare image, or an updater.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum Source {
    /// A file.
    #[display("{}", _0.display())]
    File(PathBuf),
    /// An address, shown without its user's name and password.
    #[display("{}", address::shown(_0))]
    Url(String),
}

impl From<&str> for Source {
    /// Text that begins like an address is an address.
    fn from(text: &str) -> Self {
        if address::is_address(text) { Self::Url(text.to_owned()) } else { Self::File(text.into()) }
    }
}

/// An image that is verified and in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// The image file's bytes.
    pub bytes: Vec<u8>,
    /// The path in the cache.
    pub path: PathBuf,
    /// Where they came from; `None` if they were already in the cache.
    pub source: Option<Source>,
    /// The image's place inside the source, if that holds more than the image.
    pub place: Option<String>,
}

/// Reasons there is no image.
#[derive(Debug, Error)]
pub enum FetchError {
    /// The network is needed, but not allowed.
    #[error("image {id} is not in the cache, and downloads are switched off")]
    Offline {
        /// The image.
        id: String,
    },
    /// An address was given, but the network is not allowed.
    #[error("{url} needs the network, and downloads are switched off")]
    OfflineUrl {
        /// The address.
        url: String,
    },
    /// The manifest lists no mirrors.
    #[error("the manifest of image {id} names no mirrors")]
    NoMirrors {
        /// The image.
        id: String,
    },
    /// Every mirror failed.
    #[error("none of the {} mirrors of image {id} provided it", attempts.len())]
    Mirrors {
        /// The image.
        id: String,
        /// What happened at each, in order.
        attempts: Vec<FetchError>,
    },
    /// A file can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is larger than any firmware.
    #[error("{} has more than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
    },
    /// The transfer failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The fetched file is not the image.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The cache can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl Coded for FetchError {
    fn label(&self) -> Label {
        match self {
            Self::Offline { .. } => Kind::BadInput.code("asmpatch::fetch::offline"),
            Self::OfflineUrl { .. } => Kind::Usage.code("asmpatch::fetch::offline_url"),
            Self::NoMirrors { .. } => Kind::BadInput.code("asmpatch::fetch::no_mirrors"),
            Self::Mirrors { .. } => Kind::BadInput.code("asmpatch::fetch::mirrors"),
            Self::Read { .. } => Kind::BadInput.code("asmpatch::fetch::read"),
            Self::TooLarge { .. } => Kind::BadInput.code("asmpatch::fetch::too_large"),
            Self::Http(cause) => cause.label(),
            Self::Unpack(cause) => cause.label(),
            Self::Cache(cause) => cause.label(),
            Self::Interrupted(cause) => cause.label(),
        }
    }

    fn passed_on(&self) -> Option<&dyn Coded> {
        match self {
            Self::Http(cause) => Some(cause),
            Self::Unpack(cause) => Some(cause),
            Self::Cache(cause) => Some(cause),
            Self::Interrupted(cause) => Some(cause),
            _ => None,
        }
    }

    fn related(&self) -> Vec<&dyn Coded> {
        match self {
            Self::Mirrors { attempts, .. } => attempts.iter().map(|attempt| attempt as &dyn Coded).collect(),
            _ => self.passed_on().map(Coded::related).unwrap_or_default(),
        }
    }
}

impl FetchError {
    /// Whether another mirror would fail in the same way: the disk is full, the time is up, or the user wants to stop.
    fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Cache(_)
                | Self::Interrupted(_)
                | Self::Unpack(UnpackError::Interrupted(_))
                | Self::Http(HttpError::Interrupted(_) | HttpError::Deadline { .. })
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
    /// [`FetchError`]; the cache then holds nothing new.
    pub fn acquire(&mut self, manifest: &Manifest, source: Option<&Source>) -> Result<Acquired, FetchError> {
        let wanted = Wanted { manifest, member: None, known: self.known };
        match source {
            Some(Source::File(path)) => {
                let bytes = read_file(path, self.limits.bytes, self.interrupt)?;
                self.keep(wanted, bytes, Source::File(path.clone()))
            }
            Some(Source::Url(url)) if self.offline => Err(FetchError::OfflineUrl { url: address::shown(url) }),
            Some(Source::Url(url)) => {
                let _lock = self.cache.lock(manifest, self.interrupt)?;
                self.fetch_url(wanted, url, Instant::now() + self.limits.deadline)
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
            let wanted = Wanted { manifest, member: member.as_deref(), known: self.known };
            match self.fetch_url(wanted, url, deadline) {
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
        Ok(self.cache.load(manifest)?.map(|bytes| Acquired { bytes, path, source: None, place: None }))
    }

    fn fetch_url(&mut self, wanted: Wanted<'_>, url: &str, deadline: Instant) -> Result<Acquired, FetchError> {
        let (limits, interrupt) = (self.limits, self.interrupt);
        let transfer = Transfer { url, limits, deadline, progress: self.progress, interrupt };
        let bytes = transfer.download()?;
        self.keep(wanted, bytes, Source::Url(url.to_owned()))
    }

    /// Takes the image out of a fetched file and stores it.
    fn keep(&self, wanted: Wanted<'_>, bytes: Vec<u8>, source: Source) -> Result<Acquired, FetchError> {
        let image = unpack::unpack(&source.to_string(), bytes, wanted, self.interrupt)?;
        let path = self.cache.store(wanted.manifest, &image)?;
        Ok(Acquired { bytes: image.bytes, path, source: Some(source), place: image.place })
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
