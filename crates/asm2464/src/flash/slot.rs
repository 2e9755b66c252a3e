//! Layout of a dock's flash: where things are in a slot, how a slot is built, and how it is read.
//!
//! | in the slot | in the flash | what |
//! | --- | --- | --- |
//! | 0x00000, 0x00080 | 0x000000, 0x000080 | configuration blocks 0 and 1 |
//! | 0x00100 | 0x000100 | part 1: the first 0xFF00 bytes of the image's file |
//! | 0x10000 | 0x010000 | part 2: the rest of the file, at most 0x10000 bytes |
//! | | 0x020000 | the second slot, laid out alike, which no known tool uses |
//!
//! The ROM starts the image in the first slot if its container is valid, and its boot loader otherwise. Source: E0 to E3
//! of image 240417, executed (`docs/lab/firmware.md`); copies of whole flashes that owners have published.

use super::SECTOR_LEN;
use crate::Failure;
use crate::firmware::{BlockIndex, CONFIG_BLOCK_LEN, FlashAddress, Image, Part, container_len};

/// Bytes of the whole flash of the docks that owners have copied. Source: Macronix C2 28 15, by public copies.
pub const DUMP_LEN: usize = 0x20_0000;
/// Bytes of a slot: two 64 KiB blocks of the flash, which E1 of block 0 erases. Source: its handler in 240417.
pub const SLOT_LEN: usize = Part::Two.flash_address().0 as usize + Part::Two.max_len();
/// Where the first slot begins.
pub const FIRST_SLOT: FlashAddress = FlashAddress(0);
/// Where the second slot begins. Commands select it by the lowest bit of their mode.
pub const SECOND_SLOT: FlashAddress = FlashAddress(SLOT_LEN as u32);
/// Bytes of both configuration blocks, with which a slot begins.
pub const CONFIG_LEN: usize = Part::One.flash_address().0 as usize;

/// The bytes of a configuration block.
pub type BlockBytes = [u8; CONFIG_BLOCK_LEN];

impl BlockIndex {
    /// Returns the block's address in the first slot.
    pub const fn flash_address(self) -> FlashAddress {
        FlashAddress(self.number() as u32 * CONFIG_BLOCK_LEN as u32)
    }
}

/// Contents of a slot: the configuration blocks, the image, and the bytes behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot(Vec<u8>);

impl Slot {
    /// Builds a slot of these configuration blocks and this image file, with FF behind it, as E1 and E3 leave it. The
    /// file has at most [`MAX_FILE_LEN`](crate::firmware::MAX_FILE_LEN) bytes; without any, the slot has no image.
    pub fn of(blocks: [&BlockBytes; 2], file: &[u8]) -> Self {
        let mut cells = [&blocks[0][..], blocks[1], file].concat();
        cells.resize(SLOT_LEN, 0xFF);
        Self(cells)
    }

    /// Reads the slot that begins at this address of a flash. What `flash` lacks is FF.
    pub fn at(start: FlashAddress, flash: &[u8]) -> Self {
        let there = flash.get(start.0 as usize..).unwrap_or_default();
        let mut cells = there[..there.len().min(SLOT_LEN)].to_vec();
        cells.resize(SLOT_LEN, 0xFF);
        Self(cells)
    }

    /// The bytes: [`SLOT_LEN`] of them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Both configuration blocks, valid or not.
    pub fn blocks(&self) -> [BlockBytes; 2] {
        let (blocks, _) = self.0.as_chunks();
        [blocks[0], blocks[1]]
    }

    /// Both parts, as E2 reads them: [`Part::max_len`] bytes each, including the bytes behind the image.
    pub fn parts(&self) -> [&[u8]; 2] {
        Part::ALL.map(|part| &self.0[part.flash_address().0 as usize..][..part.max_len()])
    }

    /// The image's file, as [`image_file`] extracts it.
    pub fn image_file(&self) -> Vec<u8> {
        image_file(&self.parts())
    }

    /// Parses the image that would start from this slot.
    ///
    /// # Errors
    /// As [`Image::parse`].
    pub fn image(&self) -> Result<Image, Failure> {
        Image::parse(&self.image_file())
    }

    /// A sector's bytes. The address is in the slot.
    pub fn sector(&self, at: FlashAddress) -> &[u8] {
        &self.0[at.0 as usize..][..SECTOR_LEN]
    }

    /// The address of every sector, in the slot.
    pub fn sectors() -> impl Iterator<Item = FlashAddress> {
        (0..SLOT_LEN as u32).step_by(SECTOR_LEN).map(FlashAddress)
    }
}

/// Extracts the image file from the two parts by its own length field. If the field is invalid, returns everything, so
/// that the container's checks report the reason.
pub fn image_file(parts: &[impl AsRef<[u8]>; 2]) -> Vec<u8> {
    let [one, two] = parts;
    let mut file = one.as_ref().to_vec();
    // If part 1 is short, part 2 does not continue the image.
    if file.len() == Part::One.max_len() {
        file.extend_from_slice(two.as_ref());
    }
    if let Some(len) = file.first_chunk().and_then(|field| container_len(*field)) {
        file.truncate(len);
    }
    file
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::firmware::{MAX_BODY_LEN, MAX_FILE_LEN};

    #[test]
    fn blocks_and_parts_fill_a_slot_and_the_second_slot_follows() {
        assert_eq!(BlockIndex::ALL.map(BlockIndex::flash_address), [0, 0x80].map(FlashAddress));
        assert_eq!(Part::ALL.map(Part::flash_address), [0x100, 0x1_0000].map(FlashAddress));
        assert_eq!(Part::ALL.map(Part::max_len), [0xFF00, 0x1_0000]);
        assert_eq!((SECOND_SLOT, CONFIG_LEN + MAX_FILE_LEN), (FlashAddress(0x2_0000), SLOT_LEN));
    }

    #[test]
    fn a_short_first_part_is_not_continued_by_the_second() {
        let image = Image::from_body(vec![0x11; 70_000]).unwrap();
        let file = image.to_file();
        let parts = Part::ALL.map(|part| part.of(&file));
        assert_eq!(Image::parse(&image_file(&parts)).unwrap(), image);
        let [one, _] = parts;
        let short = &one[..one.len() - 1];
        assert!(image_file(&[short, &[0x11; 0x1_0000]]) == short);
    }

    #[test]
    fn an_erased_slot_and_one_wrong_bit_start_nothing() {
        assert!(Slot::at(FIRST_SLOT, &[]).image().is_err());
        let file = Image::from_body(vec![0x11; 70_000]).unwrap().to_file();
        let mut cells = Slot::of([&[0; 128], &[1; 128]], &file).bytes().to_vec();
        assert!(Slot::at(FIRST_SLOT, &cells).image().is_ok());
        cells[CONFIG_LEN + 66_000] ^= 1;
        assert!(Slot::at(FIRST_SLOT, &cells).image().is_err());
    }

    proptest! {
        #[test]
        fn a_slot_that_is_built_is_read_back_at_either_place(
            zero: BlockBytes,
            one: BlockBytes,
            len in prop_oneof![1..=MAX_BODY_LEN, Just(MAX_BODY_LEN), 0xFEF0usize..0xFF10],
            seed: u8,
            other: u8,
            is_second: bool,
        ) {
            let image = Image::from_body((0..len).map(|at| (at * 7) as u8 ^ seed).collect()).unwrap();
            let file = image.to_file();
            let slot = Slot::of([&zero, &one], &file);
            let (here, there) = if is_second { (SECOND_SLOT, FIRST_SLOT) } else { (FIRST_SLOT, SECOND_SLOT) };
            let mut flash = vec![other; DUMP_LEN];
            flash[here.0 as usize..][..SLOT_LEN].copy_from_slice(slot.bytes());

            let found = Slot::at(here, &flash);
            prop_assert!(found == slot);
            prop_assert_eq!(found.blocks(), [zero, one]);
            prop_assert!(found.image().unwrap() == image);
            prop_assert!(Slot::at(there, &flash).bytes().iter().all(|cell| *cell == other));
            // What commands write at their own addresses is the same slot.
            let mut written = vec![0xFF; SLOT_LEN];
            let blocks = BlockIndex::ALL.map(BlockIndex::flash_address).into_iter().zip([&zero[..], &one]);
            let parts = Part::ALL.into_iter().map(|part| (part.flash_address(), part.of(&file)));
            for (at, bytes) in blocks.chain(parts) {
                written[at.0 as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            prop_assert!(found.bytes() == written);
            let sectors: Vec<u8> = Slot::sectors().flat_map(|at| found.sector(at).to_vec()).collect();
            prop_assert!(sectors == written);
            for (part, found) in Part::ALL.into_iter().zip(found.parts()) {
                let (image, behind) = found.split_at(part.of(&file).len());
                prop_assert!(image == part.of(&file) && behind.iter().all(|cell| *cell == 0xFF));
            }
        }

        #[test]
        fn any_bytes_are_a_slot_that_ends_in_ff(bytes: Vec<u8>, start in 0..300u32) {
            let there = bytes.get(start as usize..).unwrap_or_default();
            let slot = Slot::at(FlashAddress(start), &bytes);
            prop_assert_eq!(slot.bytes().len(), SLOT_LEN);
            prop_assert!(slot.bytes().starts_with(there));
            prop_assert!(slot.bytes()[there.len()..].iter().all(|cell| *cell == 0xFF));
            let _ = slot.image();
        }
    }
}
