//! Fetches known images.
//!
//! Manifests list the images with their sources. A [`Fetcher`] brings an image into the [`Cache`] from a mirror, a file
//! or an address, and keeps nothing whose size and SHA-256 differ from the manifest's.

mod acquire;
mod archive;
mod budget;
mod cache;
mod http;
mod http_error;
mod limits;
mod manifest;
mod partial;
mod progress;
mod proxy;
mod unpack;
mod updater;

pub use acquire::{Acquired, FetchError, Fetcher, Origin, Source};
pub use archive::{Archive, ArchiveError};
pub use budget::{Budget, MAX_EXPANDED};
pub use cache::{Cache, CacheError, FetchLock};
pub use http::download;
pub use http_error::HttpError;
pub use limits::Limits;
pub use manifest::{DEFAULT_IMAGE, Manifest, ManifestError, Manifests, Mirror};
pub use partial::Partial;
pub use progress::{FetchEvent, FetchProgress};
pub use unpack::{Mismatch, UnpackError, Verified, Wanted, unpack};
pub use updater::{EmbeddedImage, UpdaterError, find_images};
