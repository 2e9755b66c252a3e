//! How an image comes in: manifests say which are known and where they are to be had.

mod manifest;

pub use manifest::{DEFAULT_IMAGE, Manifest, ManifestError, Manifests, Mirror};
