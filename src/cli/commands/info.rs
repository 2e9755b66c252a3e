//! The `asmpatch info` command: describes an image.

use std::ops::Range;
use std::path::PathBuf;

use crate::fetch::Md5Digest;
use crate::file_kind::flash_copy::{CopyExtent, FlashCopy};
use crate::file_kind::{FileKind, MAX_LOOKED_AT};
use crate::flash::backup_folder;
use crate::image::OpenImage;
use crate::patch::{self, Expectations, Library, PatchOnImage};
use crate::shell;
use asm2464::digest::{Sha256Digest, to_hex};
use asm2464::escape::Escape as _;
use asm2464::firmware::{
    Area, BlockIndex, ConfigBlock, ConfigField, FileOffset, FirmwareVersion, FlashAddress, Image, Part, UsbId, ZeroRun,
};
use asm2464::flash::{CONFIG_LEN, FIRST_SLOT, SECOND_SLOT};
use asm2464::{AnyFailure, Failure, Kind, ParseError};
use serde::Serialize;

use crate::cli::commands::backup::{self, ListedBackup};
use crate::cli::commands::verify;
use crate::cli::given::arguments::PatchDirs;
use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::{named_image, user_files};
use crate::cli::words::advice_part::AdvicePart;
use crate::cli::words::errors::{Advised, Exit};
use crate::cli::words::print;
use crate::cli::words::printed_command::PrintedCommand;
use crate::cli::words::table::{self, Cell};

/// The shortest run of zeros that is listed: shorter ones are data as often as free space.
const MIN_FREE: u32 = 64;
/// The most ranges of a flash that are listed.
const MAX_RANGES: usize = 4;

/// Describe an image: container, version, base image, patches, map.
///
/// Also describes a copy of a flash, the folder of a backup, and code without its container. Of any other file it says
/// what it is, and which command takes it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch info patched.bin\n  asmpatch info flash.bin --slot 2 -o slot-2.bin")]
pub struct Args {
    /// The image: a file, or the ID of a known one, which is downloaded; or the folder of a backup.
    #[arg(value_name = "FILE|ID")]
    file: PathBuf,

    /// Describe the image in this slot of a copy of a flash.
    #[arg(long, value_name = "1|2", value_parser = slot)]
    slot: Option<FlashAddress>,

    /// Write the image to IMAGE: that in the slot, which is the first without --slot, or the only one in an archive or an
    /// updater.
    #[arg(short, long, value_name = "IMAGE")]
    output: Option<PathBuf>,

    /// Replace IMAGE if it exists.
    #[arg(long, requires = "output")]
    force: bool,

    #[command(flatten)]
    patches: PatchDirs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct InfoJson<'a> {
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
    /// The known image that somebody changed to this one, the patches in it, and where it has other bytes, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<String>,
    /// Its areas, in file order. Of a copy of a flash: those of the image in the slot of --slot, or else in the first.
    map: Vec<Area>,
    /// With -o: the file that was written, the image in the slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<[String; 1]>,
    /// For a copy of a flash: what it holds besides the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    flash: Option<FlashJson>,
    /// For the folder of a backup: the backup, whose firmware the other keys describe.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<ListedBackup>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FlashJson {
    /// How much of a flash it has, in words.
    extent: String,
    /// Configuration blocks 0 and 1, as hexadecimal digits; nothing for one that is not valid.
    blocks: [Option<String>; 2],
    /// The VID:PID in block 0.
    usb_id: Option<UsbId>,
    /// The serial number in block 0.
    serial: Option<String>,
    /// The product in block 0.
    product: Option<String>,
    /// Whether the second slot holds an image that would start.
    second_image: bool,
    /// The version of that image.
    #[serde(skip_serializing_if = "Option::is_none")]
    second_version: Option<FirmwareVersion>,
    /// Bytes behind the blocks and the image that are not erased.
    rest: Vec<RestJson>,
}

impl FlashJson {
    fn of(copy: &FlashCopy) -> Self {
        let zero = copy.block(BlockIndex::Zero);
        let text = |field| zero.as_ref().map(|block| block.text(field));
        let digits = |index| copy.block(index).map(|block| to_hex(block.bytes(), ""));
        let second = copy.image_in(SECOND_SLOT);
        let rest = copy.rest();
        let rest = rest.iter().map(|range| RestJson { flash_address: range.start as u32, size: range.len() });
        Self {
            extent: copy.extent().to_string(),
            blocks: BlockIndex::ALL.map(digits),
            usb_id: zero.as_ref().map(ConfigBlock::usb_id),
            serial: text(ConfigField::Serial),
            product: text(ConfigField::Product),
            second_image: second.is_ok(),
            second_version: second.ok().map(|image| image.version()).filter(|version| version.has_date()),
            rest: rest.collect(),
        }
    }
}

/// A range of a flash that is not erased.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RestJson {
    /// Where it begins.
    flash_address: u32,
    /// Bytes.
    size: usize,
}

impl print::Document for InfoJson<'_> {
    const VERSION: u32 = 2;
}

/// Parses a slot of a flash. Returns where it begins.
fn slot(text: &str) -> Result<FlashAddress, ParseError> {
    match text {
        "1" => Ok(FIRST_SLOT),
        "2" => Ok(SECOND_SLOT),
        _ => Err(ParseError(format!("a flash has the slots 1 and 2, not {text:?}"))),
    }
}

/// Where the described image is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// It is the file, or in a backup.
    File,
    /// The file is its body, perhaps with the trailer.
    Body,
    /// In the slot of a copy of a flash that begins here.
    Slot(FlashAddress),
}

impl Place {
    /// Returns where an offset in the image's file is in the described file; `None` if it is not in it.
    fn of(self, at: FileOffset) -> Option<FileOffset> {
        match self {
            Self::File => Some(at),
            Self::Body => at.body_offset().map(|at| FileOffset(at.0)),
            Self::Slot(start) => Some(FileOffset(start.0 + at.flash_address().0)),
        }
    }

    /// Returns an image's areas that are in a file of `len` bytes, with their places in it.
    fn map(self, image: &Image, len: usize) -> Vec<Area> {
        let mut map = image.map(MIN_FREE);
        map.retain_mut(|area| {
            let Some(at) = self.of(area.file_offset) else { return false };
            area.file_offset = at;
            if let Self::Slot(start) = self {
                area.flash_address.0 += start.0;
            }
            for run in &mut area.free {
                run.file_offset = self.of(run.file_offset).unwrap_or(run.file_offset);
            }
            (at.0 as usize) < len
        });
        map
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file can't be read, if its container is invalid, if it is of a kind that is not described, or if the
/// slot's image can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    if args.slot.is_none() && args.output.is_none() && backup_folder::is_one(&args.file) {
        return backup(args, context);
    }
    let (_, file) = named_image::place(&args.file, context)?;
    let (mut bytes, kind) = image_file::look(&file)?;
    let size = bytes.len();
    let mut flash = None;
    let (image, place, container) = match kind {
        FileKind::Flash(copy) if size < MAX_LOOKED_AT => {
            let start = args.slot.unwrap_or(FIRST_SLOT);
            let at = FlashAddress(start.0 + CONFIG_LEN as u32);
            let (image, words) = match copy.image_in(start) {
                Ok(image) => {
                    let words = format!("{} bytes at flash address 0x{:06X}, valid", image.file_len(), at.0);
                    (Some(image), words)
                }
                Err(error) => (None, no_container(bytes.get(at.0 as usize..).unwrap_or_default(), at, &error)),
            };
            flash = Some(copy);
            (image, Place::Slot(start), words)
        }
        kind if args.slot.is_some() && !matches!(kind, FileKind::Flash(_)) => {
            return Err(no_slot(args, &format!("it is {kind}, not a copy of a flash")));
        }
        FileKind::Body(image) => {
            let words = format!("none: code alone, {size} bytes; `asmpatch wrap` puts it into a container");
            (Some(image), Place::Body, words)
        }
        kind @ (FileKind::Zip | FileKind::Program) if args.output.is_some() => {
            let image = image_file::only_inside(&file, &kind)?;
            bytes = image.to_file();
            (Some(image), Place::File, format!("{} bytes, valid, the only image in {kind}", bytes.len()))
        }
        kind => {
            let image = image_file::image_of(&file, &bytes, kind, Wish::Look)?;
            (Some(image), Place::File, format!("{size} bytes; length, magic, checksum and CRC-32 are valid"))
        }
    };
    if let Some(output) = &args.output {
        let Some(image) = &image else { return Err(no_slot(args, &container)) };
        user_files::write(&[(output, &image.to_file())], Some(&args.file), args.force)?;
    }
    let mut lines = flash.as_ref().map_or_else(Vec::new, flash_lines);
    lines.push(("container", container));
    let library = library(args)?;
    let mut info = described(args, &library, image.as_ref().map(|image| (image, place)), &bytes);
    info.flash = flash.as_ref().map(FlashJson::of);
    show(args, context, &info, image.as_ref(), lines);
    Ok(Exit::Done)
}

/// The failure of a file that has no image in the slot that the user names.
fn no_slot(args: &Args, why: &str) -> AnyFailure {
    let label = Kind::BadInput.code("asmpatch::info::no_slot");
    let failure = Failure::new(label, format!("{} has no such image: {why}", args.file.display()));
    let info = PrintedCommand::named("info").operand(&args.file);
    Advised::with(failure, vec![AdvicePart::Command("see what is in it".into(), info)])
}

/// Describes the folder of a backup: the unit, and the firmware in it.
fn backup(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let saved = backup_folder::load(&args.file)?;
    let filed = backup_folder::describe(&args.file)?;
    let mut lines = backup::lines(&filed);
    let [zero, one] = BlockIndex::ALL.map(|index| saved.block(index).ok());
    lines.extend(block_lines(zero.as_ref(), one.as_ref()));
    let (image, bytes, container) = match saved.firmware() {
        Ok(image) => {
            let bytes = image.to_file();
            let container = format!("{} bytes, valid", bytes.len());
            (Some(image), bytes, container)
        }
        Err(error) => {
            let at = Part::One.flash_address();
            (None, saved.parts.concat(), no_container(&saved.parts[0], at, &error))
        }
    };
    lines.push(("container", container));
    lines.push(("restore", format!("asmpatch restore {}", shell::path(&args.file))));
    let library = library(args)?;
    let mut info = described(args, &library, image.as_ref().map(|image| (image, Place::File)), &bytes);
    info.backup = Some(filed.into());
    show(args, context, &info, image.as_ref(), lines);
    Ok(Exit::Done)
}

/// Says why there is no image at this place in a flash. `first` is what is there: erased where its length field would be,
/// it is no image at all, and what a container lacks tells nobody anything.
fn no_container(first: &[u8], at: FlashAddress, error: &Failure) -> String {
    if first.iter().take(4).all(|byte| *byte == 0xFF) {
        return format!("none: no image at flash address 0x{:06X}", at.0);
    }
    format!("none that would start: {error}")
}

/// Loads the patches, and those that the file's receipt names.
fn library(args: &Args) -> Result<Library, AnyFailure> {
    let receipt = user_files::receipt_of(&args.file, None).ok().flatten();
    args.patches.load_with(receipt.as_ref(), &args.file)
}

/// Returns what is known of an image. `bytes` are the image's, or those of the file that it is in.
fn described<'a>(args: &Args, library: &'a Library, image: Option<(&Image, Place)>, bytes: &[u8]) -> InfoJson<'a> {
    let mut info = InfoJson {
        file: args.file.display().to_string(),
        size: bytes.len(),
        sha256: Sha256Digest::of(bytes),
        md5: Md5Digest::of(bytes),
        version: None,
        image: None,
        open: None,
        patches: None,
        changed: None,
        map: Vec::new(),
        written: args.output.as_ref().map(|output| [output.display().to_string()]),
        flash: None,
        backup: None,
    };
    if let Some((image, place)) = image {
        info.map = place.map(image, bytes.len());
        let originals = |sha256: &Sha256Digest| verify::original(sha256, &[]);
        let expect = Expectations { originals: Some(&originals), ..Expectations::default() };
        let verification = patch::verify(library, image, &expect);
        match &verification.base {
            Some(base) => {
                let mut patches = verify::patches(&verification);
                for hunk in patches.iter_mut().flat_map(|patch| &mut patch.hunks) {
                    hunk.file_offset = place.of(hunk.file_offset).unwrap_or(hunk.file_offset);
                }
                info.patches = Some(patches);
                info.image = Some(library.image_words(base, image.version()));
            }
            None => {
                info.open = OpenImage::of(image, library);
                info.image = info.open.as_ref().and_then(|open| open.image.clone());
                info.changed = if info.open.is_none() { verification.changed_words(library) } else { None };
            }
        }
        let version = image.version();
        info.version = if info.open.is_none() && version.has_date() { Some(version) } else { None };
    }
    info
}

/// Prints it, as text after `lines`.
fn show(
    args: &Args,
    context: &Context,
    info: &InfoJson<'_>,
    image: Option<&Image>,
    mut lines: Vec<(&'static str, String)>,
) {
    if args.json {
        return print::json(info);
    }
    outln!("{}", args.file.shown());
    lines.extend(info.version.map(|version| ("version", version.to_string())));
    lines.extend([("SHA-256", info.sha256.to_string()), ("MD5", info.md5.to_string())]);
    lines.extend(image.map(|image| image_lines(image, info)).unwrap_or_default());
    table::print_labelled(2, lines);
    if image.is_some() {
        print_map(&info.map);
    }
    if let Some((output, image)) = args.output.as_ref().zip(image) {
        let (len, sha256) = (image.file_len(), image.sha256());
        outln!("wrote {}: {len} bytes, SHA-256 {}", output.shown(), context.digest(&sha256));
        if !context.is_quiet {
            outln!("next: asmpatch verify --boot {}", shell::path(output));
        }
    } else if info.flash.as_ref().is_some_and(|flash| flash.second_image) && !context.is_quiet {
        let (file, output) =
            (shell::path(&args.file), shell::path(user_files::free_name(&args.file.with_extension("slot-2.bin"))));
        outln!("next, take the image in slot 2 out of the copy:");
        outln!("  asmpatch info {file} --slot 2 -o {output}");
    }
}

/// Describes what an image is made of.
fn image_lines(image: &Image, info: &InfoJson<'_>) -> Vec<(&'static str, String)> {
    if let Some(open) = &info.open {
        let len = image.file_len();
        return vec![
            ("image", format!("{open}, which enumerates as {}", open.usb_id)),
            ("part", format!("one: {len} of at most {} bytes", Part::One.max_len())),
        ];
    }
    let (Some(base), Some(patches)) = (&info.image, &info.patches) else {
        if let Some(changed) = &info.changed {
            return vec![("image", changed.shown().to_string())];
        }
        return vec![("image", "unknown: not a known image, with or without the known patches".to_owned())];
    };
    let mut lines = vec![("image", base.shown().to_string())];
    if patches.is_empty() {
        lines.push(("patches", "none".to_owned()));
    }
    let words = patches.iter().map(|patch| format!("{}: {}", patch.id.shown(), patch.title.shown()));
    lines.extend(table::under("patches", words));
    lines
}

/// Describes configuration blocks 0 and 1; `None` is a block that is not valid.
fn block_lines(zero: Option<&ConfigBlock>, one: Option<&ConfigBlock>) -> [(&'static str, String); 2] {
    let invalid = || "not valid".to_owned();
    let zero = zero.map_or_else(invalid, |block| {
        let (product, serial) = (block.text(ConfigField::Product), block.text(ConfigField::Serial));
        format!("{} {}, serial {}", block.usb_id(), product.shown(), serial.shown())
    });
    let one = one.map_or_else(invalid, |block| {
        let (vendor, model) = (block.text(ConfigField::Usb4Vendor), block.text(ConfigField::Usb4Model));
        format!("USB4 {} {}", vendor.shown(), model.shown())
    });
    [("block 0", zero), ("block 1", one)]
}

/// Describes a copy of a flash, apart from the image in the slot that is shown.
fn flash_lines(copy: &FlashCopy) -> Vec<(&'static str, String)> {
    let mut lines = vec![("flash", format!("{}, {} bytes", copy.extent(), copy.bytes().len()))];
    let [zero, one] = BlockIndex::ALL.map(|index| copy.block(index));
    lines.extend(block_lines(zero.as_ref(), one.as_ref()));
    if copy.extent() == CopyExtent::Page {
        return lines;
    }
    let second = match copy.image_in(SECOND_SLOT) {
        Ok(image) => format!("an image of {} bytes, {}", image.file_len(), image.version().words()),
        Err(_) => "no image".to_owned(),
    };
    lines.push(("slot 2", second));
    let rest = copy.rest();
    let range = |range: &Range<usize>| format!("0x{:06X}..0x{:06X}, {} bytes", range.start, range.end - 1, range.len());
    let words = match rest.as_slice() {
        [] => "erased".to_owned(),
        [first @ .., last] if first.len() < MAX_RANGES => {
            first.iter().chain([last]).map(range).collect::<Vec<_>>().join("; ")
        }
        all => format!("{} ranges that are not erased, the first {}", all.len(), range(&all[0])),
    };
    lines.push(("rest", words));
    lines
}

fn print_map(map: &[Area]) {
    let row = |Area { kind, file_offset, size, flash_address, first, last, free }: &Area| {
        let code = first.zip(*last).map(|(first, last)| format!("{first}..0x{:04X}", last.addr()));
        [
            kind.to_string().into(),
            code.unwrap_or_else(|| "-".to_owned()).into(),
            format!("{:#07x}", file_offset.0).into(),
            format!("{:#08x}", flash_address.0).into(),
            size.to_string().into(),
            free.iter().map(|run| run.size).sum::<u32>().to_string().into(),
            largest_runs(free),
        ]
    };
    let header = ["area", "addresses", "file", "flash", "bytes", "free", "largest free runs"];
    table::print(header, map.iter().map(row));
    outln!("free: runs of at least {MIN_FREE} zero bytes");
}

fn largest_runs(free: &[ZeroRun]) -> Cell {
    let mut runs: Vec<&ZeroRun> = free.iter().collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.size));
    let line = |ZeroRun { address, file_offset, size }: &&ZeroRun| {
        let at = address.map_or_else(|| file_offset.to_string(), |address| address.to_string());
        format!("{at}: {size}")
    };
    Cell::of(runs.iter().take(3).map(line))
}
