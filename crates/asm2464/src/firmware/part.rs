//! The two parts in which a slot of the flash holds an image's file.

use super::address::{FileOffset, FlashAddress};
use super::config_block::CONFIG_BLOCK_LEN;

/// Selects one of the two parts in which a slot holds an image's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// File bytes 0x0000 to 0xFEFF, at flash address 0x000100; E2 and E3 with mode 0x50.
    One,
    /// File bytes from 0xFF00 on, at flash address 0x010000; E2 and E3 with mode 0xD0.
    Two,
}

impl Part {
    /// Both parts, in the order in which they are written.
    pub const ALL: [Self; 2] = [Self::One, Self::Two];

    /// Returns the part's number as users see it: 1 or 2.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Returns the mode byte that selects this part of the first slot in E2 and E3.
    pub const fn mode(self) -> u8 {
        match self {
            Self::One => 0x50,
            Self::Two => 0xD0,
        }
    }

    /// Returns the part's address in the first slot. Source: E2's and E3's handlers in image 240417.
    pub const fn flash_address(self) -> FlashAddress {
        match self {
            Self::One => FlashAddress(2 * CONFIG_BLOCK_LEN as u32),
            Self::Two => FlashAddress(0x01_0000),
        }
    }

    /// Returns the maximum number of bytes that E3 accepts for this part: 0xFF00 and 0x10000, up to what follows it.
    /// Source: E3's handler in image 240417.
    pub const fn max_len(self) -> usize {
        match self {
            Self::One => (Self::Two.flash_address().0 - Self::One.flash_address().0) as usize,
            Self::Two => 0x1_0000,
        }
    }

    /// Returns the part's share of an image file.
    pub fn of(self, file: &[u8]) -> &[u8] {
        let (one, two) = file.split_at(file.len().min(Self::One.max_len()));
        match self {
            Self::One => one,
            Self::Two => two,
        }
    }
}

impl FileOffset {
    /// Converts to an address in the flash's first slot, where part 2 begins right behind part 1.
    pub const fn flash_address(self) -> FlashAddress {
        FlashAddress(Part::One.flash_address().0 + self.0)
    }
}
