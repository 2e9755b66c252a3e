//! Compresses the pages that `asmpatch help PAGE` prints: as text, and all of them, they take more room than the binary has
//! left.

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Pages for those who work on asmpatch or build on it: they have the repository.
const IN_THE_REPOSITORY: [&str; 4] = ["architecture", "ci", "clients", "packaging"];
/// The laboratory's pages that firmware authors need: registers, and the card of a virtual unit.
const OF_THE_LABORATORY: [&str; 2] = ["chip", "tiny-gpu"];
/// README's sections that are pages of the program, too. A page has its title's section and those after it.
const OF_THE_README: [(&str, &[&str]); 2] = [
    ("first-steps.md", &["First steps"]),
    ("which-firmware.md", &["Which firmware you need", "Flash the open firmware", "Flash the patched vendor firmware"]),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=docs");
    println!("cargo::rerun-if-changed=README.md");
    let (mut pages, mut left_out) = (Vec::new(), String::new());
    for path in pages_of("docs")? {
        let name = name_of(&path);
        if IN_THE_REPOSITORY.contains(&&*name) {
            left_out += &format!("docs/{name}.md\n");
        } else {
            pages.push((format!("{name}.md"), fs::read_to_string(path)?));
        }
    }
    for path in pages_of("docs/lab")? {
        let name = name_of(&path);
        if OF_THE_LABORATORY.contains(&&*name) {
            pages.push((format!("{name}.md"), fs::read_to_string(path)?));
        } else {
            left_out += &format!("docs/lab/{name}.md\n");
        }
    }
    // A checkout on Windows may have its ends of lines.
    let readme = fs::read_to_string("README.md")?.replace("\r\n", "\n");
    for (name, headings) in OF_THE_README {
        let mut page = String::new();
        for heading in headings {
            page += section(&readme, heading).ok_or("README.md lacks a section that is a page")?;
        }
        // The first heading is the page's title.
        pages.push((name.to_owned(), page[1..].to_owned()));
    }
    // Where the other pages are.
    pages.push(("left-out".to_owned(), left_out));
    // A table for src/embedded.rs: each page's name and its compressed text.
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let mut table = String::new();
    for (name, text) in pages {
        let mut compressed = ZlibEncoder::new(Vec::new(), Compression::best());
        compressed.write_all(text.as_bytes())?;
        fs::write(out.join(format!("{name}.z")), compressed.finish()?)?;
        table += &format!("({name:?}, include_bytes!(\"{name}.z\")),\n");
    }
    fs::write(out.join("pages.rs"), format!("&[\n{table}]\n"))?;
    Ok(())
}

/// Lists a folder's pages. They are in order, so that the same source gives the same bytes.
fn pages_of(folder: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

fn name_of(page: &Path) -> String {
    page.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns a section of a page, with its heading of the second level.
fn section<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let start = page.find(&format!("\n## {heading}\n"))? + 1;
    let end = page[start..].find("\n## ").map_or(page.len(), |end| start + end + 1);
    Some(&page[start..end])
}
