//! The map of an image: its areas in the file, in flash and in code, with free space.

use std::ops::Range;

use super::address::{BANK_LEN, BANK1_BODY_START, Bank, BodyOffset, COMMON_LEN, CodeAddress, FileOffset};
use super::image::Image;

/// An area of an image file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// What the area holds.
    pub kind: AreaKind,
    /// Its first byte in the file.
    pub start: FileOffset,
    /// Its length in bytes.
    pub len: u32,
    /// Runs of zero bytes in it, ascending: room for new code. Empty if the area is not code.
    pub free: Vec<ZeroRun>,
}

/// A run of zero bytes in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroRun {
    /// The first zero byte.
    pub start: BodyOffset,
    /// Its length in bytes.
    pub len: u32,
}

/// The content of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaKind {
    /// The body's length.
    Header,
    /// Code of one bank.
    Code(Bank),
    /// Body bytes past the end of bank 1, which the CPU doesn't see.
    Unmapped,
    /// Magic, checksum and CRC-32.
    Trailer,
}

impl Area {
    /// Returns the first and the last code address; `None` if the area is not code.
    pub fn code(&self) -> Option<(CodeAddress, CodeAddress)> {
        let last = FileOffset(self.start.0 + self.len.checked_sub(1)?);
        match self.kind {
            AreaKind::Code(_) => Some((self.start.body_offset()?.code_address()?, last.body_offset()?.code_address()?)),
            _ => None,
        }
    }
}

impl Image {
    /// Returns the image's areas in file order, those with code with their runs of at least `min_free` zero bytes.
    pub fn map(&self, min_free: u32) -> Vec<Area> {
        let body_len = self.body().len() as u32;
        let trailer = self.trailer_offset();
        let header_len = BodyOffset(0).file_offset().0;
        let mut areas = vec![Area { kind: AreaKind::Header, start: FileOffset(0), len: header_len, free: Vec::new() }];
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
                areas.push(Area { kind, start: BodyOffset(start).file_offset(), len: end - start, free });
            }
        }
        let len = self.file_len() as u32 - trailer.0;
        areas.push(Area { kind: AreaKind::Trailer, start: trailer, len, free: Vec::new() });
        areas
    }
}

/// The runs of at least `min_len` zero bytes in a range of the body.
fn zero_runs(body: &[u8], range: Range<u32>, min_len: u32) -> Vec<ZeroRun> {
    let mut at = range.start;
    let bytes = &body[range.start as usize..range.end as usize];
    let runs = bytes.chunk_by(|one, next| (*one == 0) == (*next == 0)).map(|run| {
        let (start, len) = (BodyOffset(at), run.len() as u32);
        at += len;
        (run[0] == 0 && len >= min_len).then_some(ZeroRun { start, len })
    });
    runs.flatten().collect()
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
                assert_eq!(area.start.0, at, "{len:#x}");
                at += area.len;
            }
            assert_eq!(at as usize, image.file_len(), "{len:#x}");
        }
    }

    #[test]
    fn each_bank_has_its_addresses_and_its_room() {
        let map = image(0x17ED6).map(16);
        let names: Vec<_> = map.iter().filter_map(Area::code).map(|(a, b)| format!("{a} {b}")).collect();
        assert_eq!(names, ["c:0x0000 c:0x7FFF", "b0:0x8000 b0:0xFF6A", "b1:0x8000 b1:0xFF6A"]);
        assert_eq!(map[1].free, [ZeroRun { start: BodyOffset(0x300), len: 0x40 }]);
        assert!(map[2].free.is_empty());
    }
}
