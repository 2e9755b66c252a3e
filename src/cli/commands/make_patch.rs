//! The `asmpatch make-patch` command: makes a patch file from code that you linked.

use std::path::{Path, PathBuf};

use crate::failure::in_file;
use crate::fetch::DEFAULT_IMAGE;
use crate::patch::{self, Hunk, hunks_from_elf};
use asm2464::digest::{Sha256Digest, to_hex};
use asm2464::firmware::{CodeAddress, Image};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::toml_file;

use crate::cli::given::arguments::{self, PatchDirs};
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::symbols::code_address;
use crate::cli::given::user_files;
use crate::cli::words::errors::Exit;
use crate::cli::words::print;

/// More than the whole image with its debug information needs, in bytes.
const MAX_ELF_LEN: usize = 4 << 20;

/// Make a patch file from code that you linked.
///
/// Prints it, with the bytes that the image has there now and those of the code. Fill in what it is for, and put it
/// into a folder for `asmpatch patch --patch-dir DIR --patch ID`. docs/formats.md shows how SDCC's output becomes an
/// ELF file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch make-patch code.elf --site b1:0xEF4F > patches/code.toml\n  asmpatch make-patch code.elf --site c:0x2A0D --image stock.bin"
)]
pub struct Args {
    /// The code: an ELF file for the 8051, linked for its place.
    elf: PathBuf,

    /// Where the code begins, such as b1:0xC98D.
    #[arg(long, value_name = "BANK:ADDRESS", value_parser = code_address)]
    site: CodeAddress,

    /// The image that the patch is for; by default the default image from the cache.
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,

    #[command(flatten)]
    patches: PatchDirs,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the ELF file yields no hunks, or if the image is unknown.
pub fn run(args: &Args) -> Result<Exit, AnyFailure> {
    let Args { elf, site, image, patches } = args;
    let library = patches.load()?;
    let (image, sha256) = match image {
        Some(path) => {
            let image = image_file::image(path, Wish::Look)?;
            let sha256 = image.sha256();
            if !library.images().contains_key(&sha256) {
                // Say whether the image is patched already or unknown: hunks made for it would fit no other image.
                let failure = AnyFailure::from(patch::not_a_base(&library, &image, sha256));
                return Err(failure.about(path.display()));
            }
            (image, sha256)
        }
        None => {
            let manifests = crate::embedded::manifests(&[])?;
            let manifest = manifests.by_id(DEFAULT_IMAGE)?;
            let bytes = arguments::cache(None)?.load(manifest)?.ok_or_else(|| {
                let label = Kind::Usage.code("asmpatch::elf::no_image");
                Failure::new(
                    label,
                    format!("no image is named, and the default image {DEFAULT_IMAGE} is not in the cache"),
                )
            })?;
            (Image::parse(&bytes)?, manifest.sha256)
        }
    };
    let bytes = user_files::read(elf, MAX_ELF_LEN)?;
    let hunks = hunks_from_elf(&bytes, *site, &image).map_err(in_file(elf))?;
    print::whole(&patch_file(elf, *site, &library.image_name(&sha256), &sha256, &hunks));
    Ok(Exit::Done)
}

fn patch_file(elf: &Path, site: CodeAddress, image: &str, sha256: &Sha256Digest, hunks: &[Hunk]) -> String {
    let stem = elf.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let id = if plain.is_empty() { "patch" } else { &plain };
    let name = toml_file::string(image);
    let title = toml_file::string(&format!("{} at {site}", elf.file_name().unwrap_or_default().to_string_lossy()));
    let mut text = format!(
        "# Made from an ELF file for {site}. Say what it is for and where that is known from: `asmpatch help formats`.\n\
         id = \"{id}\"\ntitle = {title}\npurpose = \"\"\nsource = \"\"\ndefault = false\n\n\
         [[images]]\nsha256 = \"{sha256}\"\nname = {name}\n"
    );
    for hunk in hunks {
        let at = hunk
            .at
            .code_address()
            .map_or_else(|| format!("file:{:#x}", hunk.at.file_offset().0), |address| address.to_string());
        text.push_str(&format!(
            "\n# File offset {:#x}, {} bytes.\n[[images.hunks]]\nat = \"{at}\"\nexpect = {}\nnew = {}\n",
            hunk.at.file_offset().0,
            hunk.new.len(),
            hex_value(&hunk.expect),
            hex_value(&hunk.new),
        ));
    }
    text
}

fn hex_value(bytes: &[u8]) -> String {
    if bytes.len() <= 16 {
        return format!("\"{}\"", to_hex(bytes, " "));
    }
    let lines: Vec<String> = bytes.chunks(16).map(|line| to_hex(line, " ")).collect();
    format!("\"\"\"\n{}\n\"\"\"", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use crate::patch::{Library, Patch, PatchSet, Selection};
    use asm2464_chip::practice;

    use super::*;

    #[test]
    fn what_is_printed_is_a_patch_that_applies() {
        let image = practice::image();
        let sha256 = image.sha256();
        let site: CodeAddress = "b1:0xEF4F".parse().unwrap();
        let start = site.body_offset().0 as usize;
        let hunk = Hunk {
            at: site.body_offset(),
            expect: image.body()[start..start + 40].to_vec(),
            new: (1..=40).collect(),
            instruction: None,
            note: None,
        };
        let text = patch_file(Path::new("dir/My Code.elf"), site, "practice", &sha256, std::slice::from_ref(&hunk));
        let patch = Patch::parse("printed", &text).unwrap();
        assert_eq!((patch.hunks(&sha256), patch.title.as_str()), (&[hunk][..], "My Code.elf at b1:0xEF4F"));
        let mut library = Library::default();
        library.add("printed", &text).unwrap();
        let selection = Selection { no_defaults: true, add: vec!["my-code".to_owned()] };
        let patched = PatchSet::resolve(&library, &selection, &image, sha256).unwrap().apply().unwrap().image;
        assert_eq!(patched.body()[start..start + 40], (1..=40).collect::<Vec<u8>>());
    }
}
