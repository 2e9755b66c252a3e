//! A check that no data file of the repository is forgotten.

use std::fs;
use std::path::Path;

use crate::file::toml_files;

/// Asserts that the binary embeds every TOML file of a folder in the repository, and nothing else.
pub fn assert_embedded(folder: &str, embedded: &[(&str, &str)]) {
    let files = toml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    assert_eq!(files.len(), embedded.len());
    for (path, (origin, text)) in files.iter().zip(embedded) {
        assert!(path.ends_with(origin), "{}", path.display());
        assert_eq!(fs::read_to_string(path).unwrap(), *text);
    }
}
