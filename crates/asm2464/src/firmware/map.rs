//! The map of an image: its areas in the file, in flash and in code, with free space.

use std::ops::Range;

use derive_more::Display;
use serde::{Serialize, Serializer};

use super::address::{BANK_LEN, BANK1_BODY_START, Bank, BodyOffset, COMMON_LEN, CodeAddress, FileOffset, FlashAddress};
use super::image::Image;

/// An area of an image file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "AreaJson", description = ""))]
pub struct Area {
    /// `header`, `common`, `bank 0`, `bank 1`, `unmapped` or `trailer`.
    #[serde(rename = "area")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub kind: AreaKind,
    /// Its place in the file, in bytes.
    #[cfg_attr(feature = "schemas", schemars(with = "u32"))]
    pub file_offset: FileOffset,
    /// Bytes.
    pub size: u32,
    /// Its place in flash, in bytes.
    #[cfg_attr(feature = "schemas", schemars(with = "u32"))]
    pub flash_address: FlashAddress,
    /// The code address of its first byte.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
    pub first: Option<CodeAddress>,
    /// The code address of its last byte.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
    pub last: Option<CodeAddress>,
    /// Runs of zero bytes, ascending: room for new code. Empty if the area is not code.
    #[cfg_attr(feature = "schemas", schemars(description = "Runs of zero bytes, 64 or more."))]
    pub free: Vec<ZeroRun>,
}

/// A run of zero bytes in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "FreeJson", description = ""))]
pub struct ZeroRun {
    /// The code address of its first byte.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
    pub address: Option<CodeAddress>,
    /// Its place in the file, in bytes.
    #[cfg_attr(feature = "schemas", schemars(with = "u32"))]
    pub file_offset: FileOffset,
    /// Bytes.
    pub size: u32,
}

/// The content of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum AreaKind {
    /// The body's length.
    #[display("header")]
    Header,
    /// Code of one bank.
    #[display("{}", match _0 { Bank::Common => "common", Bank::Bank0 => "bank 0", Bank::Bank1 => "bank 1" })]
    Code(Bank),
    /// Body bytes past the end of bank 1, which the CPU doesn't see.
    #[display("unmapped")]
    Unmapped,
    /// Magic, checksum and CRC-32.
    #[display("trailer")]
    Trailer,
}

impl Serialize for AreaKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Area {
    /// Describes the bytes in a range of the file, of which there is at least one.
    fn new(kind: AreaKind, file: Range<u32>, free: Vec<ZeroRun>) -> Self {
        let file_offset = FileOffset(file.start);
        let code = |at: FileOffset| match kind {
            AreaKind::Code(_) => at.body_offset()?.code_address(),
            _ => None,
        };
        Self {
            kind,
            file_offset,
            size: file.end - file.start,
            flash_address: file_offset.flash_address(),
            first: code(file_offset),
            last: code(FileOffset(file.end - 1)),
            free,
        }
    }
}

impl Image {
    /// Returns the image's areas in file order, those with code with their runs of at least `min_free` zero bytes.
    pub fn map(&self, min_free: u32) -> Vec<Area> {
        let body_len = self.body().len() as u32;
        let in_file = |body: u32| BodyOffset(body).file_offset().0;
        let mut areas = vec![Area::new(AreaKind::Header, 0..in_file(0), Vec::new())];
        let banks_end = BANK1_BODY_START + BANK_LEN;
        for (kind, start, end) in [
            (AreaKind::Code(Bank::Common), 0, COMMON_LEN),
            (AreaKind::Code(Bank::Bank0), COMMON_LEN, BANK1_BODY_START),
            (AreaKind::Code(Bank::Bank1), BANK1_BODY_START, banks_end),
            (AreaKind::Unmapped, banks_end, body_len),
        ] {
            let end = end.min(body_len);
            if start < end {
                let free = match kind {
                    AreaKind::Code(_) => zero_runs(self.body(), start..end, min_free),
                    _ => Vec::new(),
                };
                areas.push(Area::new(kind, in_file(start)..in_file(end), free));
            }
        }
        areas.push(Area::new(AreaKind::Trailer, self.trailer_offset().0..self.file_len() as u32, Vec::new()));
        areas
    }
}

/// The runs of at least `min_len` zero bytes in a range of the body.
fn zero_runs(body: &[u8], range: Range<u32>, min_len: u32) -> Vec<ZeroRun> {
    let mut runs = Vec::new();
    let mut at = range.start;
    let bytes = &body[range.start as usize..range.end as usize];
    for run in bytes.chunk_by(|one, next| (*one == 0) == (*next == 0)) {
        let (start, size) = (BodyOffset(at), run.len() as u32);
        at += size;
        if run[0] == 0 && size >= min_len {
            runs.push(ZeroRun { address: start.code_address(), file_offset: start.file_offset(), size });
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(len: usize) -> Image {
        let mut body: Vec<u8> = vec![0xFF; len];
        body[0x300..0x340].fill(0);
        body[0x340 + 8..].iter_mut().take(10).for_each(|byte| *byte = 0);
        Image::from_body(body).unwrap()
    }

    #[test]
    fn the_areas_cover_the_file_without_a_gap() {
        for len in [0x1000, 0x8000, 0xFF6B, 0x17ED6, 0x17ED6 + 7] {
            let image = image(len);
            let map = image.map(16);
            let mut at = 0;
            for area in &map {
                assert_eq!(area.file_offset.0, at, "{len:#x}");
                at += area.size;
            }
            assert_eq!(at as usize, image.file_len(), "{len:#x}");
        }
    }

    #[test]
    fn each_bank_has_its_addresses_and_its_room() {
        let map = image(0x17ED6).map(16);
        let code = map.iter().filter_map(|area| area.first.zip(area.last));
        let names: Vec<_> = code.map(|(a, b)| format!("{a} {b}")).collect();
        assert_eq!(names, ["c:0x0000 c:0x7FFF", "b0:0x8000 b0:0xFF6A", "b1:0x8000 b1:0xFF6A"]);
        let start = BodyOffset(0x300);
        let run = ZeroRun { address: start.code_address(), file_offset: start.file_offset(), size: 0x40 };
        assert_eq!(map[1].free, [run]);
        assert!(map[2].free.is_empty());
    }
}
