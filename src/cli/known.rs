//! What is known of images and patches: the arguments that add to it, and the loading.

use std::env;
use std::path::{Path, PathBuf};

use super::input;
use crate::failure::AnyFailure;
use crate::fetch::{Cache, CacheError, Manifests};
use crate::patch::Library;

/// Where more patches are, beside those in the binary.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PatchDirs {
    /// A folder with more patches, one .toml file each; may be given more than once.
    #[arg(long = "patch-dir", value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

impl PatchDirs {
    /// The folders, as given.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// The embedded patches, those in the folders, and the images of the manifests.
    ///
    /// # Errors
    /// Unreadable folders and files, and patches that are wrong, each with its file's name.
    pub fn load(&self, manifests: &Manifests) -> Result<Library, AnyFailure> {
        let mut library = Library::embedded()?;
        for manifest in manifests.iter() {
            library.know(manifest.sha256, &manifest.id);
        }
        for dir in &self.dirs {
            for (path, text) in input::read_toml_files(dir)? {
                library.add(&path.display().to_string(), &text)?;
            }
        }
        Ok(library)
    }
}

/// The cache that `asmpatch download` fills without `--cache-dir`.
///
/// # Errors
/// Where the system names no cache folder.
pub fn cache() -> Result<Cache, CacheError> {
    match env::var_os("ASMPATCH_CACHE_DIR") {
        Some(folder) if !folder.is_empty() => Ok(Cache::at(Path::new(&folder))),
        _ => Cache::of_user(),
    }
}
