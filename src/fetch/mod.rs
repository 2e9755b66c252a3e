//! Fetches known images.
//!
//! Manifests list the images with their sources. A [`Fetcher`] brings an image into the [`Cache`] from a mirror, a file
//! or an address, and keeps it only if its size and SHA-256 are the manifest's.

mod acquire;
mod address;
mod archive;
mod cache;
mod client;
mod http;
mod limits;
mod manifest;
mod unpack;
mod updater;

pub use acquire::{Acquired, Fetcher, Source};
pub use cache::Cache;
pub use http::{FetchError, FetchEvent, FetchProgress};
pub use limits::Limits;
pub use manifest::{DEFAULT_IMAGE, ImageVersion, Manifest, Manifests, Mirror};
