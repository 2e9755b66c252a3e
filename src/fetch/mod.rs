//! Gets images: manifests, downloads, archives, the cache.
