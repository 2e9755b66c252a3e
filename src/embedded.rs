//! The data files in the binary: GPUs, runtimes, patches, and manifests of images; and docs/, compressed.

use std::io::Read as _;
use std::path::PathBuf;

use asm2464::AnyFailure;
use asm2464_files::toml_file::TomlError;
use flate2::read::ZlibDecoder;

use crate::fetch::{ImageVersion, Manifests};
use crate::gpus::Gpus;
use crate::patch::Library;
use crate::practice;
use crate::runtimes::Runtime;

/// Names a data file for messages, and embeds its text.
macro_rules! data {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../", $path)))),*]
    };
}

const GPUS: &[(&str, &str)] = data!["gpus/amd.toml", "gpus/nvidia.toml"];
const RUNTIMES: &[(&str, &str)] = data!["runtimes/tinygrad.toml"];
const MANIFESTS: &[(&str, &str)] = data![
    "firmware-manifests/231204.toml",
    "firmware-manifests/240417.toml",
    "firmware-manifests/250123.toml",
    "firmware-manifests/ed4e39b.toml",
];
const PATCHES: &[(&str, &str)] = data![
    "patches/e4-length-16.toml",
    "patches/identity-add1-0001.toml",
    "patches/read16-sram.toml",
    "patches/status-0x2a12.toml",
];

/// The pages of docs/ for users and firmware authors, and sections of README.md, by file name and compressed with zlib:
/// build.rs makes it.
const PAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Returns the page of docs/ with this file name, if there is one.
pub fn page(name: &str) -> Option<String> {
    let (_, compressed) = PAGES.iter().find(|(file, _)| *file == name)?;
    let mut text = String::new();
    ZlibDecoder::new(*compressed).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the names of the pages of docs/, without their ".md".
pub fn page_names() -> Vec<String> {
    let mut names: Vec<String> =
        PAGES.iter().filter_map(|(file, _)| file.strip_suffix(".md")).map(str::to_owned).collect();
    names.sort();
    names
}

/// Returns the paths of the pages of docs/ that the program does not have.
pub fn pages_left_out() -> Vec<String> {
    page("left-out").unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Loads the embedded patches.
///
/// # Errors
/// None in a binary that passed its tests.
pub fn patches() -> Result<Library, AnyFailure> {
    Library::of(PATCHES)
}

/// Whether a patch with this ID is embedded. Its file is named after it.
pub fn has_patch(id: &str) -> bool {
    PATCHES.iter().any(|(path, _)| *path == format!("patches/{id}.toml"))
}

/// Loads the embedded patches, and knows the images of the embedded manifests, and the practice image.
///
/// # Errors
/// None in a binary that passed its tests.
pub fn library() -> Result<Library, AnyFailure> {
    let mut library = patches()?;
    for manifest in manifests(&[])?.iter() {
        match &manifest.version {
            ImageVersion::Vendor(version) => library.know(manifest.sha256, &manifest.id, *version),
            ImageVersion::Open(product) => library.know_open(manifest.sha256, &manifest.id, product),
        }
    }
    library.know(practice::SHA256, practice::ID, practice::VERSION);
    Ok(library)
}

/// Loads the embedded list of GPUs that a GPU runtime drives over USB.
///
/// # Errors
/// None in a binary that passed its tests.
pub fn gpus() -> Result<Gpus, Box<TomlError>> {
    Gpus::of(GPUS)
}

/// Loads what is known of the GPU runtime that drives units over USB.
///
/// # Errors
/// None in a binary that passed its tests.
pub fn runtime() -> Result<Runtime, Box<TomlError>> {
    Runtime::of(RUNTIMES[0])
}

/// Loads the embedded manifests, and those in the folders `dirs`.
///
/// # Errors
/// As for [`Manifests::load`].
pub fn manifests(dirs: &[PathBuf]) -> Result<Manifests, AnyFailure> {
    Manifests::load(MANIFESTS, dirs)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use asm2464_files::file::toml_files;

    use super::*;

    #[test]
    fn the_pages_in_the_binary_are_those_of_the_documents() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let docs = root.join("docs");
        let readme = fs::read_to_string(root.join("README.md")).unwrap();
        for name in page_names() {
            let file = format!("{name}.md");
            if ["first-steps", "which-firmware"].contains(&&*name) {
                // Its first heading is the page's title.
                assert!(readme.contains(&format!("#{}", page(&file).unwrap())), "{name}");
                continue;
            }
            let path = Some(docs.join(&file)).filter(|path| path.exists()).unwrap_or(docs.join("lab").join(&file));
            assert_eq!(page(&file).unwrap(), fs::read_to_string(path).unwrap(), "{name}");
        }
        for name in ["README", "chip", "errors", "recovery", "doctor", "formats", "platforms", "tiny-gpu"] {
            assert!(page_names().iter().any(|page| page == name), "{name}");
        }
        let left_out = pages_left_out();
        assert!(left_out.contains(&"docs/architecture.md".to_owned()), "{left_out:?}");
        assert!(left_out.iter().all(|path| root.join(path).exists()), "{left_out:?}");
    }

    #[test]
    fn every_file_in_the_folders_is_in_the_binary() {
        assert!(patches().unwrap().iter().all(|patch| has_patch(&patch.id)));
        for (folder, embedded) in
            [("gpus", GPUS), ("runtimes", RUNTIMES), ("firmware-manifests", MANIFESTS), ("patches", PATCHES)]
        {
            let files = toml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
            assert_eq!(files.len(), embedded.len());
            for (path, (origin, text)) in files.iter().zip(embedded) {
                assert!(path.ends_with(origin), "{}", path.display());
                assert_eq!(fs::read_to_string(path).unwrap(), *text);
            }
        }
    }
}
