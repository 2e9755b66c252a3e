//! A copy of a unit's flash, as programmers and other tools read it: whole, or only its beginning. Pure.
//!
//! [`asm2464::flash`] has the layout. Owners keep the whole flash of 2 MiB. openpilot keeps the first 256 bytes, which
//! are the configuration.

use std::ops::Range;

use asm2464::Failure;
use asm2464::firmware::{BlockIndex, CONFIG_BLOCK_LEN, ConfigBlock, FlashAddress, Image};
use asm2464::flash::{CONFIG_LEN, FIRST_SLOT, SECOND_SLOT, SECTOR_LEN, Slot};

/// Bytes that [`FlashCopy::rest`] takes together.
const REST_UNIT: usize = 0x100;

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
    /// Whole sectors, as programmers and [`whole_flash`](crate::flash::whole_flash) read them: all of a flash, or of its
    /// beginning.
    #[display("a copy of a flash")]
    Sectors,
    /// Another length.
    #[display("a copy of a part of a flash")]
    Part,
}

impl FlashCopy {
    /// Recognises a copy by a valid configuration block at its place, or by an image that starts at its place: a board's
    /// blocks may be erased. `None` for anything else.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < CONFIG_BLOCK_LEN {
            return None;
        }
        let copy = Self { bytes: bytes.to_vec() };
        let has_block = BlockIndex::ALL.into_iter().any(|index| copy.block(index).is_some());
        let has_image = copy.image().is_ok() || copy.image_in(SECOND_SLOT).is_ok();
        (has_block || has_image).then_some(copy)
    }

    /// How much of a flash it has.
    pub fn extent(&self) -> CopyExtent {
        match self.bytes.len() {
            CONFIG_LEN => CopyExtent::Page,
            len if len.is_multiple_of(SECTOR_LEN) => CopyExtent::Sectors,
            _ => CopyExtent::Part,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A configuration block of the first slot; `None` if it is not valid.
    pub fn block(&self, index: BlockIndex) -> Option<ConfigBlock> {
        ConfigBlock::parse(index, index.of(&self.slot().blocks()).as_slice()).ok()
    }

    /// Parses the image in the first slot.
    ///
    /// # Errors
    /// As [`Image::parse`].
    pub fn image(&self) -> Result<Image, Failure> {
        self.slot().image()
    }

    /// Parses the image in the slot that begins at this address.
    ///
    /// # Errors
    /// As [`Image::parse`].
    pub fn image_in(&self, slot: FlashAddress) -> Result<Image, Failure> {
        Slot::at(slot, &self.bytes).image()
    }

    /// The ranges behind the blocks and the image that are not erased, in units of 256 bytes; neighbours are
    /// one range.
    pub fn rest(&self) -> Vec<Range<usize>> {
        let image_end = CONFIG_LEN + self.image().map_or(0, |image| image.file_len());
        let mut rest: Vec<Range<usize>> = Vec::new();
        for (index, page) in self.bytes.chunks(REST_UNIT).enumerate() {
            let start = (index * REST_UNIT).max(image_end);
            let end = index * REST_UNIT + page.len();
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

    /// The first slot. What the copy lacks is FF.
    pub fn slot(&self) -> Slot {
        Slot::at(FIRST_SLOT, &self.bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use asm2464::firmware::known_blocks;
    use asm2464::flash::{DUMP_LEN, SLOT_LEN};
    use asm2464_chip::practice;

    use super::*;

    /// A whole flash with the known blocks and this image.
    pub(crate) fn dump(image: &Image) -> Vec<u8> {
        let [zero, one] = known_blocks();
        let mut bytes = Slot::of([zero.bytes(), one.bytes()], &image.to_file()).bytes().to_vec();
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
            assert_eq!((copy.extent(), copy.image().unwrap()), (CopyExtent::Sectors, image));
            assert_eq!(copy.rest(), [0x1_FF00..0x2_0000, 0x10_0000..0x10_0300]);
            assert!(copy.image_in(SECOND_SLOT).is_err());
        }
    }

    #[test]
    fn the_second_slot_is_laid_out_like_the_first() {
        let first = dump(&practice::image());
        let mut bytes = first.clone();
        bytes[SLOT_LEN..2 * SLOT_LEN].copy_from_slice(&dump(&practice::open_image())[..SLOT_LEN]);
        assert_eq!(FlashCopy::of(&bytes).unwrap().image_in(SECOND_SLOT).unwrap(), practice::open_image());
        // An image in the second slot alone.
        let second = [&[0xFF; SLOT_LEN][..], &bytes[SLOT_LEN..]].concat();
        let copy = FlashCopy::of(&second).unwrap();
        assert!(copy.image().is_err() && copy.image_in(SECOND_SLOT).is_ok());
        // Erased blocks, as on a unit that never got any, in copies of any length.
        bytes[..CONFIG_LEN].fill(0xFF);
        let doubled = [&bytes[..], &bytes].concat();
        for copy in [&bytes[..], &bytes[..DUMP_LEN / 2], &doubled] {
            assert!(FlashCopy::of(copy).is_some(), "{:#x}", copy.len());
        }
    }

    #[test]
    fn a_copy_says_how_much_of_the_flash_it_has() {
        let bytes = dump(&practice::image());
        for (len, extent) in [
            (0x80, CopyExtent::Part),
            (0x100, CopyExtent::Page),
            (0x1000, CopyExtent::Sectors),
            (0x1_1000, CopyExtent::Sectors),
            (DUMP_LEN - 1, CopyExtent::Part),
            (DUMP_LEN, CopyExtent::Sectors),
        ] {
            assert_eq!(FlashCopy::of(&bytes[..len]).unwrap().extent(), extent, "{len:#x}");
        }
        assert_eq!(FlashCopy::of(&bytes[..0x7F]), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_behind_a_block_never_panic(bytes: Vec<u8>) {
            let bytes = [&dump(&practice::open_image())[..0x100], &bytes].concat();
            let copy = FlashCopy::of(&bytes).unwrap();
            let _ = (copy.image(), copy.image_in(SECOND_SLOT), copy.rest(), copy.extent());
        }
    }
}
