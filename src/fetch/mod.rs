//! Fetches known images.
//!
//! Manifests list the images with their sources. A [`Fetcher`] brings an image into the [`Cache`] from a mirror, a file
//! or an address, and keeps it only if its size and SHA-256 are the manifest's.

mod acquire;
mod address;
mod archive;
mod budget;
mod cache;
mod client;
mod error;
mod http;
mod manifest;
mod unpack;
mod updater;

pub use acquire::{Acquired, Fetcher, Source};
pub use cache::Cache;
pub use client::Limits;
pub use error::FetchError;
pub use http::{FetchEvent, FetchProgress};
pub use manifest::{DEFAULT_IMAGE, ImageVersion, Manifest, Manifests, Mirror};
