//! The `asmpatch info` command: describes an image.

use std::path::PathBuf;

use crate::failure::AnyFailure;
use crate::flash::open_image::OpenImage;
use crate::patch::{self, Identified, Patch, PatchOnImage};
use asm2464::digest::{Md5Digest, Sha256Digest};
use asm2464::escape::Escape as _;
use asm2464::firmware::{Area, FirmwareVersion, Part, ZeroRun};
use serde::Serialize;

use super::context::Context;
use super::errors::Exit;
use super::input::{self, ImageFile};
use super::known::PatchDirs;
use super::{print, table};

/// The shortest run of zeros that is listed: shorter ones are data as often as free space.
const MIN_FREE: u32 = 64;

/// Describe an image: container, version, base image, patches, map.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch info patched.bin")]
pub struct Args {
    /// The image.
    file: PathBuf,

    #[command(flatten)]
    patches: PatchDirs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct InfoJson<'a> {
    /// The image.
    file: String,
    /// Bytes.
    size: usize,
    /// Its SHA-256.
    sha256: Sha256Digest,
    /// Its MD5.
    md5: Md5Digest,
    /// The version in it; nothing for open firmware.
    version: Option<FirmwareVersion>,
    /// The known image that it is made from.
    image: Option<String>,
    /// What open firmware enumerates as.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<OpenImage>,
    /// The patches in it; nothing if the image is unknown.
    patches: Option<Vec<PatchOnImage<'a>>>,
    /// Its areas, in file order.
    map: Vec<Area>,
}

impl print::Document for InfoJson<'_> {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file can't be read, or if its container is invalid.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let input = ImageFile::read(&args.file)?;
    let receipt = input::receipt_of(&args.file, None).ok().flatten();
    let library = args.patches.load_with(receipt.as_ref(), &args.file)?;
    let identified = patch::identify(&library, &input.image, input.sha256);
    let open = if identified.is_none() { OpenImage::of(&input.image) } else { None };
    let version = Some(input.image.version()).filter(|version| open.is_none() && version.has_date());
    let base_name = identified.as_ref().map(|identified| library.image_words(&identified.base, input.image.version()));
    let md5 = Md5Digest::of(&input.image.to_file());
    let map = input.image.map(MIN_FREE);
    if args.json {
        let patches = identified.as_ref().map(|Identified { base, original, patches }| {
            patches.iter().map(|patch| PatchOnImage::new(patch, base, original, &input.image)).collect()
        });
        let json = InfoJson {
            file: args.file.display().to_string(),
            size: input.len,
            sha256: input.sha256,
            md5,
            version,
            image: base_name.clone(),
            open: open.clone(),
            patches,
            map,
        };
        print::json(&json);
        return Ok(Exit::Done);
    }
    outln!("{}", args.file.shown());
    let valid = format!("{} bytes; length, magic, checksum and CRC-32 are valid", input.len);
    let mut lines = vec![("container", valid)];
    lines.extend(version.map(|version| ("version", version.to_string())));
    lines.extend([("SHA-256", input.sha256.to_string()), ("MD5", md5.to_string())]);
    if let Some(open) = &open {
        lines.push(("image", format!("{open}, which enumerates as {}", open.usb_id)));
        lines.push(("part", format!("one: {} of at most {} bytes", input.len, Part::One.max_len())));
    }
    match &identified {
        None if open.is_some() => {}
        None => {
            lines.push(("image", "unknown: not a known image, with or without the known patches".to_owned()));
        }
        Some(Identified { patches, .. }) => {
            lines.push(("image", base_name.unwrap_or_default().shown().to_string()));
            if patches.is_empty() {
                lines.push(("patches", "none".to_owned()));
            }
            let patch_words = |patch: &&Patch| format!("{}: {}", patch.id.shown(), patch.title.shown());
            lines.extend(table::under("patches", patches.iter().map(patch_words)));
        }
    }
    table::print_labelled(2, lines);
    let row = |Area { kind, file_offset, size, flash_address, first, last, free }: &Area| {
        let code = first.zip(*last).map(|(first, last)| format!("{first}..0x{:04X}", last.addr()));
        [
            kind.to_string(),
            code.unwrap_or_else(|| "-".to_owned()),
            format!("{:#07x}", file_offset.0),
            format!("{:#08x}", flash_address.0),
            size.to_string(),
            free.iter().map(|run| run.size).sum::<u32>().to_string(),
            largest_runs(free),
        ]
    };
    let header = ["area", "addresses", "file", "flash", "bytes", "free", "largest free runs"];
    table::print(header, map.iter().map(row));
    outln!("free: runs of at least {MIN_FREE} zero bytes");
    Ok(Exit::Done)
}

fn largest_runs(free: &[ZeroRun]) -> String {
    let mut runs: Vec<&ZeroRun> = free.iter().collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.size));
    let line = |ZeroRun { address, file_offset, size }: &&ZeroRun| {
        let at = address.map_or_else(|| file_offset.to_string(), |address| address.to_string());
        format!("{at}: {size}")
    };
    runs.iter().take(3).map(line).collect::<Vec<_>>().join("\n")
}
