//! Fetches known images.
//!
//! Manifests list the images with their sources. A [`Fetcher`] brings an image into the [`Cache`] from a mirror, a file
//! or an address, and keeps nothing whose size and SHA-256 differ from the manifest's.

mod acquire;
mod address;
mod archive;
mod budget;
mod cache;
mod http;
mod http_error;
mod limits;
mod manifest;
mod request;
mod unpack;
mod updater;

pub use acquire::{Acquired, FetchError, Fetcher, Source};
pub use archive::ArchiveError;
pub use cache::{Cache, CacheError};
pub use http::{FetchEvent, FetchProgress};
pub use http_error::HttpError;
pub use limits::Limits;
pub use manifest::{DEFAULT_IMAGE, Manifest, ManifestError, Manifests, Mirror};
pub use unpack::{Mismatch, UnpackError};
pub use updater::UpdaterError;
