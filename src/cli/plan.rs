//! A patch plan as text and as JSON: every hunk with its addresses, bytes and instructions, every field.

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::digest::{Sha256Digest, to_hex};
use crate::escape::Escape as _;
use crate::firmware::{Image, UsbId};
use crate::flash::open_image::OpenImage;
use crate::mcu::Line;
use crate::patch::{ConfigEdits, Hunk, Instructions, Patch};

/// The keys of a patch in `--json`.
#[derive(Serialize)]
pub struct PatchJson<'a> {
    id: &'a str,
    title: &'a str,
    digest: Sha256Digest,
    hunks: Vec<HunkJson>,
    config: &'a ConfigEdits,
}

#[derive(Serialize)]
struct HunkJson {
    file_offset: u32,
    address: Option<String>,
    expected: String,
    new: String,
    #[serde(flatten)]
    instructions: Instructions,
}

impl<'a> PatchJson<'a> {
    /// A patch on an image, which is there unpatched and patched.
    pub fn new(patch: &'a Patch, base: &Sha256Digest, unpatched: &Image, patched: &Image) -> Self {
        let hunk = |hunk: &Hunk| HunkJson {
            file_offset: hunk.at.file_offset().0,
            address: hunk.at.code_address().map(|address| address.to_string()),
            expected: to_hex(&hunk.expect, ""),
            new: to_hex(&hunk.new, ""),
            instructions: Instructions::of(hunk, unpatched, patched),
        };
        Self {
            id: patch.id(),
            title: patch.title(),
            digest: patch.digest(base),
            hunks: patch.hunks(base).iter().map(hunk).collect(),
            config: patch.config(),
        }
    }
}

/// The keys of open firmware in `--json`.
#[derive(Serialize)]
pub struct OpenJson {
    product: String,
    build: String,
    usb_id: UsbId,
}

impl From<&OpenImage> for OpenJson {
    fn from(open: &OpenImage) -> Self {
        Self { product: open.product.clone(), build: open.build.clone(), usb_id: open.usb_id }
    }
}

/// The hunks as a table: place in the file and in code, bytes and instructions, before and after.
pub fn hunk_table<'a>(hunks: impl Iterator<Item = (&'a Patch, &'a Hunk)>, unpatched: &Image, patched: &Image) -> Table {
    let mut table = new_table();
    table.set_header(["patch", "file offset", "address", "expected", "new", "instructions before", "after"]);
    for (patch, hunk) in hunks {
        let Instructions { before, after } = Instructions::of(hunk, unpatched, patched);
        table.add_row([
            patch.id().shown().to_string(),
            format!("{:#07x}", hunk.at.file_offset().0),
            hunk.at.code_address().map_or_else(|| "-".to_owned(), |address| address.to_string()),
            byte_lines(&hunk.expect),
            byte_lines(&hunk.new),
            instruction_lines(&before),
            instruction_lines(&after),
        ]);
    }
    table
}

/// The configuration fields as a table.
pub fn config_table(config: &ConfigEdits) -> Table {
    let mut table = new_table();
    table.set_header(["configuration field", "new value"]);
    for (field, value) in config.iter() {
        table.add_row([field.name().to_owned(), value.to_string().shown().to_string()]);
    }
    table
}

/// The style of every table here.
pub fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

fn byte_lines(bytes: &[u8]) -> String {
    bytes.chunks(8).map(|line| to_hex(line, " ")).collect::<Vec<_>>().join("\n")
}

fn instruction_lines(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{} {}", line.at, line.text)).collect::<Vec<_>>().join("\n")
}
