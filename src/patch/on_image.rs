//! A patch on one image: what it replaces, with addresses, bytes and instructions.

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BodyOffset, CodeAddress, FileOffset, Image};
use asm2464_chip::disasm::{Line, disassemble_in};
use serde::Serialize;

use super::config_edits::{ConfigEdits, as_hex};
use super::definition::{Hunk, Patch};

/// The longest instruction of the 8051, in bytes.
const LONGEST: usize = 3;

/// What a patch does to one image.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "PatchJson", description = "The keys of a patch in `--json`."))]
pub struct PatchOnImage<'a> {
    /// Its id.
    pub id: &'a str,
    /// What it does, on one line.
    pub title: &'a str,
    /// A digest of what it does to this image.
    pub digest: Sha256Digest,
    /// The bytes that it changes.
    pub hunks: Vec<HunkOnImage<'a>>,
    /// The fields of configuration block 0 that flashing changes.
    pub config: &'a ConfigEdits,
}

/// A hunk with the instructions that it changes.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "HunkJson"))]
#[cfg_attr(feature = "schemas", schemars(description = "The instructions that a hunk changes, before and after."))]
pub struct HunkOnImage<'a> {
    /// Its place in the file, in bytes.
    #[cfg_attr(feature = "schemas", schemars(with = "u32"))]
    pub file_offset: FileOffset,
    /// The code address of its first byte.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
    pub address: Option<CodeAddress>,
    /// The bytes that it replaces, in hexadecimal.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub expected: &'a [u8],
    /// The bytes that it writes there, in hexadecimal.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub new: &'a [u8],
    /// In the unpatched image.
    pub before: Vec<Line>,
    /// In the patched image.
    pub after: Vec<Line>,
}

impl<'a> PatchOnImage<'a> {
    /// Describes a patch on an image, given the image's digest, and the image unpatched and patched.
    pub fn new(patch: &'a Patch, base: &Sha256Digest, unpatched: &Image, patched: &Image) -> Self {
        Self {
            id: &patch.id,
            title: &patch.title,
            digest: patch.digest(base),
            hunks: patch.hunks(base).iter().map(|hunk| HunkOnImage::new(hunk, unpatched, patched)).collect(),
            config: &patch.config,
        }
    }
}

impl<'a> HunkOnImage<'a> {
    /// Disassembles a hunk in both images, from its first instruction to the end of its last.
    fn new(hunk: &'a Hunk, unpatched: &Image, patched: &Image) -> Self {
        let lines = |image: &Image| {
            let start = hunk.instruction.map_or(hunk.at, |at| at.body_offset());
            let end = hunk.range().end;
            let last = (end + LONGEST - 1).min(image.body().len());
            let (Some(at), Some(code)) = (start.code_address(), image.body().get(start.0 as usize..last)) else {
                return Vec::new();
            };
            let mut lines = disassemble_in(image, code, at);
            lines.retain(|line| line.at.body_offset() < BodyOffset(end as u32));
            lines
        };
        Self {
            file_offset: hunk.at.file_offset(),
            address: hunk.at.code_address(),
            expected: &hunk.expect,
            new: &hunk.new,
            before: lines(unpatched),
            after: lines(patched),
        }
    }
}

#[cfg(test)]
mod tests {
    use asm2464_chip::practice;

    use super::super::{Library, PatchSet, Selection};
    use super::*;

    #[test]
    fn a_hunk_inside_an_instruction_shows_the_whole_instruction() {
        let library = Library::of_repository().unwrap();
        let image = practice::image();
        let digest = image.sha256();
        let set = PatchSet::resolve(&library, &Selection::default(), &image, digest).unwrap();
        let patched = set.apply().unwrap().image;
        let (_, hunk) = set.hunks().next().unwrap();
        let shown = HunkOnImage::new(hunk, &image, &patched);
        let text = |lines: &[Line]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>();
        assert_eq!(text(&shown.before), ["mov r7, #0x0A"]);
        assert_eq!(text(&shown.after), ["mov r7, #0x05"]);
    }
}
