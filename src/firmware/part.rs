//! The two parts in which the flash holds an image.

use super::address::FlashAddress;

/// The file offset at which the file is split into two parts. Source: tinygrad's tools; E3's handler in 240417.
const PART_SPLIT: usize = 0xFF00;

/// Selects one of the two parts.
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

    /// Returns the part's number for people, counted from 1.
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

    /// Returns the part's address in flash. Source: E2's and E3's handlers in image 240417.
    pub const fn flash_address(self) -> FlashAddress {
        match self {
            Self::One => FlashAddress(0x00_0100),
            Self::Two => FlashAddress(0x01_0000),
        }
    }

    /// Returns the most bytes that E3 accepts for this part. Source: E3's handler in image 240417.
    pub const fn max_len(self) -> usize {
        match self {
            Self::One => PART_SPLIT,
            Self::Two => 0x1_0000,
        }
    }

    /// Returns the part's share of an image file.
    pub fn of(self, file: &[u8]) -> &[u8] {
        let split = file.len().min(PART_SPLIT);
        match self {
            Self::One => &file[..split],
            Self::Two => &file[split..],
        }
    }
}
