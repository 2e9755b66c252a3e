//! Compresses the pages of docs/ that `asmpatch help PAGE` prints: as text, and all of them, they take more room than the
//! binary has left.

use std::error::Error;
use std::io::{Cursor, Write as _};
use std::path::PathBuf;
use std::{env, fs};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// Pages for those who work on asmpatch or build on it: they have the repository.
const IN_THE_REPOSITORY: [&str; 4] = ["architecture", "ci", "clients", "packaging"];
/// The laboratory's pages that firmware authors need: registers, and the card of a virtual unit.
const OF_THE_LABORATORY: [&str; 2] = ["docs/lab/chip.md", "docs/lab/tiny-gpu.md"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=docs");
    let mut pages: Vec<PathBuf> = OF_THE_LABORATORY.map(PathBuf::from).into();
    for entry in fs::read_dir("docs")? {
        let path = entry?.path();
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        let is_left_out = path.file_stem().is_some_and(|name| IN_THE_REPOSITORY.iter().any(|other| name == *other));
        if is_page && !is_left_out {
            pages.push(path);
        }
    }
    // The same source gives the same bytes.
    pages.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for page in pages {
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        zip.start_file(name, SimpleFileOptions::default().compression_level(Some(9)))?;
        zip.write_all(&fs::read(&page)?)?;
    }
    let out = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    fs::write(PathBuf::from(out).join("docs.zip"), zip.finish()?.into_inner())?;
    Ok(())
}
