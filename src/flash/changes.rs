//! The order in which the contents of the flash's first slot are replaced. Pure.
//!
//! The ROM starts an image whose length, magic, checksum and CRC-32 are valid, and its boot loader otherwise. It finds
//! all of them through the length at flash address 0x100, in the first sector, behind the configuration blocks. This
//! length is programmed to 0 before anything else. That only clears bits, so it needs no erase and keeps the
//! configuration blocks. From then on no mixture of an old and a new image can start. All other sectors follow. The
//! first sector is written last, and its page with the length is the very last. Whenever the power fails, the unit
//! starts the old image, its boot loader, or the new image.

use std::ops::Range;

use asm2464::firmware::{FlashAddress, Part};
use asm2464::flash::{PAGE_LEN, Slot};

/// Range of the image's length field in the slot.
const HEADER: Range<usize> = {
    let start = Part::One.flash_address().0 as usize;
    start..start + 4
};

/// One change of the flash, complete before the next begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotChange {
    /// Clears the length of the current image, so that no image can start any more.
    Invalidate,
    /// Erases the sector at this address and programs its pages.
    Sector(FlashAddress),
}

/// The changes that turn the slot `old` into `new`, in a safe order. Skips sectors that are equal, unless `all` is set.
pub fn between(old: &Slot, new: &Slot, all: bool) -> Vec<SlotChange> {
    let differs = |at: &FlashAddress| all || old.sector(*at) != new.sector(*at);
    let (first, others): (Vec<_>, Vec<_>) = Slot::sectors().filter(differs).partition(|at| at.0 == 0);
    if others.is_empty() {
        return first.into_iter().map(SlotChange::Sector).collect();
    }
    // Once its length is cleared, the first sector has to be written even if it does not differ.
    let sectors = others.into_iter().chain([FlashAddress(0)]).map(SlotChange::Sector);
    // If the length is erased or already cleared, no image can start.
    let has_length = [0x00, 0xFF].iter().all(|blank| old.bytes()[HEADER].iter().any(|byte| byte != blank));
    let invalidate = has_length.then_some(SlotChange::Invalidate);
    invalidate.into_iter().chain(sectors).collect()
}

/// The page that clears the image's length and leaves everything else unchanged.
pub fn invalidation() -> (FlashAddress, [u8; PAGE_LEN]) {
    let mut page = [0xFF; PAGE_LEN];
    page[..HEADER.len()].fill(0);
    (FlashAddress(HEADER.start as u32), page)
}

/// The pages of a sector in the order of programming: the page with the image's length comes last. Skips blank pages.
pub fn pages(slot: &Slot, sector: FlashAddress) -> Vec<(FlashAddress, [u8; PAGE_LEN])> {
    let (pages, _) = slot.sector(sector).as_chunks::<PAGE_LEN>();
    let addresses = (sector.0..).step_by(PAGE_LEN).map(FlashAddress);
    let mut pages: Vec<_> = addresses.zip(pages.iter().copied()).collect();
    pages.retain(|(_, page)| page.iter().any(|byte| *byte != 0xFF));
    // The sort keeps the order of the others.
    pages.sort_by_key(|(at, _)| at.0 as usize == HEADER.start);
    pages
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{Image, known_blocks};
    use asm2464::flash::{CONFIG_LEN, FIRST_SLOT, SECTOR_LEN, SLOT_LEN};

    use super::super::backup::tests::sample_image;
    use super::*;

    fn slot(image: &Image) -> Slot {
        let [zero, one] = known_blocks();
        Slot::of([zero.bytes(), one.bytes()], &image.to_file())
    }

    fn small(seed: u8) -> Image {
        Image::from_body((0..9_000u32).map(|at| (at.wrapping_mul(37) >> 2) as u8 ^ seed).collect()).unwrap()
    }

    /// Calls `each` with every state of the flash during the changes, including those that a power loss leaves in the
    /// middle of an erase or page.
    fn states(old: &Slot, new: &Slot, each: &mut dyn FnMut(&[u8], bool)) {
        let mut now = old.bytes().to_vec();
        let mut begun = false;
        each(&now, begun);
        for change in between(old, new, false) {
            let pages = match change {
                SlotChange::Invalidate => vec![invalidation()],
                SlotChange::Sector(at) => {
                    begun |= at.0 == 0;
                    // An interrupted erase has set some of the bits.
                    for stop in [0, 1, SECTOR_LEN / 2, SECTOR_LEN] {
                        now[at.0 as usize..][..stop].fill(0xFF);
                        each(&now, begun);
                    }
                    pages(new, at)
                }
            };
            for (at, page) in pages {
                for (offset, byte) in page.iter().enumerate() {
                    now[at.0 as usize + offset] &= byte | 0xF0;
                    each(&now, begun);
                    now[at.0 as usize + offset] &= byte;
                    each(&now, begun);
                }
            }
        }
        assert!(now == new.bytes());
    }

    #[test]
    fn whenever_the_power_goes_the_old_image_starts_or_the_new_one_or_none() {
        for (old, new) in [(small(1), small(2)), (small(1), sample_image(2)), (sample_image(1), small(2))] {
            let (from, to) = (slot(&old), slot(&new));
            let mut seen = [false; 3];
            // Parsing takes most of the time, so only the first 600 states, every 997th and the last are parsed.
            let mut count = 0u32;
            states(&from, &to, &mut |state, begun| {
                if !begun {
                    assert_eq!(
                        state[..CONFIG_LEN],
                        from.bytes()[..CONFIG_LEN],
                        "the configuration stays until its own sector is written"
                    );
                }
                count += 1;
                if !count.is_multiple_of(997) && count > 600 && state != to.bytes() {
                    return;
                }
                let found = Slot::at(FIRST_SLOT, state).image().ok();
                assert!([None, Some(&old), Some(&new)].contains(&found.as_ref()), "something else starts");
                seen[0] |= found.is_none();
                seen[1] |= found.as_ref() == Some(&old);
                seen[2] |= found.as_ref() == Some(&new);
            });
            assert_eq!(seen, [true; 3]);
        }
    }

    #[test]
    fn what_is_the_same_is_left_alone_and_the_first_sector_is_the_last() {
        let (old, mut file) = (slot(&sample_image(1)), sample_image(1).to_file());
        assert_eq!(between(&old, &old, false), []);
        // A changed byte in part 2 also changes the checksum and the CRC, in the last sector.
        let mut image = Image::parse(&file).unwrap();
        assert!(image.replace(asm2464::firmware::BodyOffset(0x1_2345), &[0x77]));
        file = image.to_file();
        let [zero, one] = known_blocks();
        let new = Slot::of([zero.bytes(), one.bytes()], &file);
        let [data, trailer, first] = [0x1_2000, 0x1_7000, 0].map(|at| SlotChange::Sector(FlashAddress(at)));
        assert_eq!(between(&old, &new, false), [SlotChange::Invalidate, data, trailer, first]);
        assert_eq!(between(&old, &old, true).len(), 1 + SLOT_LEN / SECTOR_LEN);

        let mut renamed = zero;
        renamed.set_text(asm2464::firmware::ConfigField::Serial, "MINE").unwrap();
        let new = Slot::of([renamed.bytes(), one.bytes()], &sample_image(1).to_file());
        assert_eq!(between(&old, &new, false), [first], "one sector can't mix two images");
    }

    #[test]
    fn a_single_sector_beside_the_first_is_written_too() {
        let mut image = sample_image(1);
        let old = slot(&image);
        // The last byte of the body is in one sector with the checksum and the CRC, which change with it.
        assert!(image.replace(asm2464::firmware::BodyOffset(image.body().len() as u32 - 1), &[0x77]));
        let [other, first] = [0x1_7000, 0].map(|at| SlotChange::Sector(FlashAddress(at)));
        assert_eq!(between(&old, &slot(&image), false), [SlotChange::Invalidate, other, first]);
    }

    #[test]
    fn the_page_with_the_images_length_is_programmed_last() {
        let slot = slot(&sample_image(1));
        let pages = |sector| pages(&slot, FlashAddress(sector)).into_iter().map(|(at, _)| at.0).collect::<Vec<_>>();
        let Some((last, others)) = pages(0).split_last().map(|(last, others)| (*last, others.to_vec())) else {
            panic!("the first sector is blank")
        };
        assert_eq!(last, 0x100);
        assert_eq!(others[..3], [0, 0x80, 0x180], "the configuration blocks come first");
        assert!(others.is_sorted() && pages(0x1000).is_sorted());
    }

    #[test]
    fn an_image_that_is_gone_already_is_not_cleared_again() {
        let new = slot(&small(1));
        assert!(!between(&Slot::at(FIRST_SLOT, &[]), &new, false).contains(&SlotChange::Invalidate));
    }
}
