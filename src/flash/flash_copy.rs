//! A copy of a unit's flash, as programmers and other tools read it: whole, or only its beginning. Pure.
//!
//! | at | what |
//! | --- | --- |
//! | 0x000000, 0x000080 | configuration blocks 0 and 1 |
//! | 0x000100 | the image, contiguous over its two parts |
//! | 0x020000 | the second slot, laid out alike, which no known tool uses |
//!
//! Owners keep the whole flash of 2 MiB. openpilot keeps the first 256 bytes, which are the configuration.

use std::ops::Range;

use asm2464::firmware::{BlockIndex, CONFIG_BLOCK_LEN, ConfigBlock, ConfigField, Image, ImageError, Part};
use asm2464::flash::DUMP_LEN;

use super::backup::{BackedUpUnit, Backup, firmware_file};
use super::slot::{BlockBytes, SLOT_LEN};

/// Bytes of both configuration blocks, which begin a slot.
const PAGE_LEN: usize = 2 * CONFIG_BLOCK_LEN;

/// A flash's beginning, or all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashCopy {
    bytes: Vec<u8>,
}

/// How much of a flash a copy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum CopyExtent {
    /// Both configuration blocks and nothing else.
    #[display("the configuration page of a flash")]
    Page,
    /// All 2 MiB.
    #[display("a copy of a whole flash")]
    Whole,
    /// Another length.
    #[display("a copy of a part of a flash")]
    Part,
    /// More than the flash of any known unit has.
    #[display("a copy of a flash that is larger than a unit's")]
    Larger,
}

impl FlashCopy {
    /// Recognises a copy by a valid configuration block at its place; in one of the whole flash's length, an image that
    /// starts is enough. `None` for anything else.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < PAGE_LEN {
            return None;
        }
        let copy = Self { bytes: bytes.to_vec() };
        let has_block = BlockIndex::ALL.into_iter().any(|index| copy.block(index).is_some());
        let has_image = bytes.len() == DUMP_LEN && (copy.image().is_ok() || copy.second_image().is_ok());
        (has_block || has_image).then_some(copy)
    }

    /// How much of a flash it has.
    pub fn extent(&self) -> CopyExtent {
        match self.bytes.len() {
            PAGE_LEN => CopyExtent::Page,
            DUMP_LEN => CopyExtent::Whole,
            len if len > DUMP_LEN => CopyExtent::Larger,
            _ => CopyExtent::Part,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A configuration block of the first slot; `None` if it is not valid.
    pub fn block(&self, index: BlockIndex) -> Option<ConfigBlock> {
        ConfigBlock::parse(index, &self.blocks()[usize::from(index.number())]).ok()
    }

    /// Parses the image in the first slot.
    ///
    /// # Errors
    /// As [`Image::parse`].
    pub fn image(&self) -> Result<Image, ImageError> {
        Image::parse(&firmware_file(&parts(&self.bytes)))
    }

    /// Parses the image in the second slot.
    ///
    /// # Errors
    /// As [`Image::parse`].
    pub fn second_image(&self) -> Result<Image, ImageError> {
        Image::parse(&firmware_file(&parts(self.bytes.get(SLOT_LEN..).unwrap_or_default())))
    }

    /// The ranges behind the blocks and the image that are not erased, in units of 256 bytes; neighbours are
    /// one range.
    pub fn rest(&self) -> Vec<Range<usize>> {
        let image_end = PAGE_LEN + self.image().map_or(0, |image| image.file_len());
        let mut rest: Vec<Range<usize>> = Vec::new();
        for (index, page) in self.bytes.chunks(PAGE_LEN).enumerate() {
            let start = (index * PAGE_LEN).max(image_end);
            let end = index * PAGE_LEN + page.len();
            if start >= end || self.bytes[start..end].iter().all(|byte| *byte == 0xFF) {
                continue;
            }
            match rest.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => rest.push(start..end),
            }
        }
        rest
    }

    /// Makes a backup of it, of a unit that is known only by its configuration. Without an image, as in a
    /// configuration page, its parts are erased.
    pub fn to_backup(&self) -> Backup {
        let text = |field| self.block(BlockIndex::Zero).map_or_else(String::new, |block| block.text(field));
        let image = self.image().ok();
        let version = image.as_ref().map(Image::version).filter(|version| version.has_date());
        let unit = BackedUpUnit {
            device: "a copy of a flash".to_owned(),
            usb_id: self
                .block(BlockIndex::Zero)
                .map_or_else(|| "no VID:PID".to_owned(), |block| block.usb_id().to_string()),
            state: self.extent().to_string(),
            serial: text(ConfigField::Serial),
            product: text(ConfigField::Product),
            firmware_version: version.map(|version| version.to_string()),
        };
        Backup { unit, tool: "another tool".to_owned(), blocks: self.blocks(), parts: parts(&self.bytes) }
    }

    fn blocks(&self) -> [BlockBytes; 2] {
        let (blocks, _) = self.bytes.as_chunks::<CONFIG_BLOCK_LEN>();
        // `of` checks the length.
        [blocks[0], blocks[1]]
    }
}

/// The two parts of the slot that begins these bytes, with FF for what they lack.
fn parts(slot: &[u8]) -> [Vec<u8>; 2] {
    Part::ALL.map(|part| {
        let start = part.flash_address().0 as usize;
        let there = slot.get(start..).unwrap_or_default();
        let mut bytes = there[..there.len().min(part.max_len())].to_vec();
        bytes.resize(part.max_len(), 0xFF);
        bytes
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use asm2464::firmware::known_blocks;
    use asm2464_chip::practice;

    use super::*;

    /// A whole flash with the known blocks and this image.
    pub(crate) fn dump(image: &Image) -> Vec<u8> {
        let [zero, one] = known_blocks();
        let mut bytes = crate::flash::slot::Slot::of([zero.bytes(), one.bytes()], &image.to_file()).bytes().to_vec();
        bytes.resize(DUMP_LEN, 0xFF);
        bytes
    }

    #[test]
    fn a_copy_of_the_whole_flash_has_its_blocks_its_image_and_what_else_is_not_erased() {
        for image in [practice::image(), practice::open_image()] {
            let mut bytes = dump(&image);
            assert!(FlashCopy::of(&bytes).unwrap().rest().is_empty());
            bytes[0x1_FFFE] = 0;
            bytes[0x10_0000..0x10_0300].fill(7);
            let copy = FlashCopy::of(&bytes).unwrap();
            assert_eq!((copy.extent(), copy.image().as_ref()), (CopyExtent::Whole, Ok(&image)));
            assert_eq!(copy.rest(), [0x1_FF00..0x2_0000, 0x10_0000..0x10_0300]);
            assert!(copy.second_image().is_err());
            let backup = copy.to_backup();
            assert_eq!(backup.firmware().as_ref(), Ok(&image));
            assert_eq!((backup.unit.serial.as_str(), backup.unit.is_virtual()), ("AAAABBBB0060", false));
        }
    }

    #[test]
    fn the_second_slot_is_laid_out_like_the_first() {
        let first = dump(&practice::image());
        let mut bytes = first.clone();
        bytes[SLOT_LEN..2 * SLOT_LEN].copy_from_slice(&dump(&practice::open_image())[..SLOT_LEN]);
        assert_eq!(FlashCopy::of(&bytes).unwrap().second_image(), Ok(practice::open_image()));
        // Erased blocks, as on a unit that never got any.
        bytes[..PAGE_LEN].fill(0xFF);
        assert!(FlashCopy::of(&bytes).is_some());
    }

    #[test]
    fn a_copy_says_how_much_of_the_flash_it_has() {
        let bytes = dump(&practice::image());
        for (len, extent) in [
            (0x100, CopyExtent::Page),
            (0x1_0000, CopyExtent::Part),
            (DUMP_LEN - 1, CopyExtent::Part),
            (DUMP_LEN, CopyExtent::Whole),
        ] {
            assert_eq!(FlashCopy::of(&bytes[..len]).unwrap().extent(), extent, "{len:#x}");
        }
        assert_eq!(FlashCopy::of(&[&bytes[..], &bytes].concat()).unwrap().extent(), CopyExtent::Larger);
        assert_eq!(FlashCopy::of(&bytes[..0xFF]), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_behind_a_block_never_panic(bytes: Vec<u8>) {
            let bytes = [&dump(&practice::open_image())[..0x100], &bytes].concat();
            let copy = FlashCopy::of(&bytes).unwrap();
            let _ = (copy.image(), copy.second_image(), copy.rest(), copy.to_backup());
        }
    }
}
