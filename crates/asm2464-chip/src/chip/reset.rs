//! Power-on: the values of the registers, from recordings of real chips, and the code that the ROM loads.

use std::sync::LazyLock;

use asm2464::firmware::{CONTAINER_EXTRA, FlashAddress, Image, Part};
use serde::Deserialize;

use super::pcie::EarlyLanes;
use super::serial::SupplySensor;
use crate::mcu::{SpiFlash, XdataMemory};

/// 0xC650: levels of the GPIOs. .1 is the supply's fault line, low while it is active. Source: open firmware.
const GPIO_LEVELS: u16 = 0xC650;
const NO_FAULT: u8 = 0x02;
/// 0xC8FF: the chip's revision.
const PART_REVISION: u16 = 0xC8FF;

/// The chip's revision, as 0xC8FF shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum PartRevision {
    /// Source: recordings of 231204 (line 756) and 240417.
    #[default]
    #[serde(rename = "04")]
    R04,
    /// Newer chips. Source: open firmware's pull request 63.
    #[serde(rename = "07")]
    R07,
}

/// What differs between boards on which the same firmware runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Board {
    /// The chip's revision.
    pub part_revision: PartRevision,
    /// What the PCIe link does if its lanes are on before its training begins.
    pub early_lanes: EarlyLanes,
    /// The supply's sensor, if the board has one.
    pub supply: Option<SupplySensor>,
}

impl Board {
    /// Sets the registers that show the board's properties.
    pub(super) fn show(self, memory: &mut XdataMemory) {
        let page = memory.main_mut();
        page[usize::from(PART_REVISION)] = match self.part_revision {
            PartRevision::R04 => 0x04,
            PartRevision::R07 => 0x07,
        };
        if self.supply.is_some_and(|supply| supply.fault) {
            page[usize::from(GPIO_LEVELS)] &= !NO_FAULT;
        }
    }
}

/// Addresses in the main page, each with its value at power-on.
static RESET_VALUES: LazyLock<Vec<(u16, u8)>> = LazyLock::new(|| {
    let rows = include_str!("reset.txt").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let mut fields = row.split(' ');
        let addr = u16::from_str_radix(fields.next()?, 16).ok()?;
        Some((addr, u8::from_str_radix(fields.next()?, 16).ok()?))
    })
    .collect()
});

/// Sets the registers that do not power on as 0.
pub(super) fn load(memory: &mut XdataMemory, board: Board) {
    let page = memory.main_mut();
    for (addr, value) in RESET_VALUES.iter() {
        page[usize::from(*addr)] = *value;
    }
    board.show(memory);
}

/// What a register holds at power-on.
pub(super) fn value(addr: u16) -> u8 {
    RESET_VALUES.iter().find(|(at, _)| *at == addr).map_or(0, |(_, value)| *value)
}

/// Returns the image in the first slot of the flash, if its container is valid: length, magic, checksum and CRC-32.
/// Without a valid image the boot loader starts.
pub fn image_in(flash: &impl SpiFlash) -> Option<Image> {
    let read = |at: FlashAddress, len: usize| {
        let mut bytes = vec![0; len];
        flash.read(at, &mut bytes);
        bytes
    };
    let header: [u8; 4] = read(Part::One.flash_address(), 4).try_into().ok()?;
    let len = usize::try_from(u32::from_le_bytes(header)).ok()?.checked_add(CONTAINER_EXTRA)?;
    let first = len.min(Part::One.max_len());
    let second = len - first;
    if second > Part::Two.max_len() {
        return None;
    }
    let mut file = read(Part::One.flash_address(), first);
    file.extend(read(Part::Two.flash_address(), second));
    Image::parse(&file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcu::MemoryFlash;

    #[test]
    fn every_row_of_the_table_is_a_register_once() {
        let rows = include_str!("reset.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(RESET_VALUES.len(), rows);
        assert!(RESET_VALUES.is_sorted_by(|before, next| before.0 < next.0 && next.0 >= 0x9000));
        assert_eq!((value(0xE795), value(0x9000)), (0x3B, 0));
    }

    fn flash_with(file: &[u8]) -> MemoryFlash {
        let mut flash = MemoryFlash::erased();
        for part in Part::ALL {
            let start = part.flash_address().0 as usize;
            let bytes = part.of(file);
            flash.cells[start..start + bytes.len()].copy_from_slice(bytes);
        }
        flash
    }

    #[test]
    fn an_image_in_one_part_or_in_two_is_loaded_as_it_was_written() {
        for len in [1_000, 0x1_7ED6] {
            let image = Image::from_body((0..len).map(|at: u32| (at * 7) as u8).collect()).unwrap();
            assert_eq!(image_in(&flash_with(&image.to_file())), Some(image));
        }
    }

    #[test]
    fn an_erased_flash_and_one_wrong_bit_load_nothing() {
        assert_eq!(image_in(&MemoryFlash::erased()), None);
        let mut file = Image::from_body(vec![0x11; 70_000]).unwrap().to_file();
        file[66_000] ^= 1;
        assert_eq!(image_in(&flash_with(&file)), None);
    }
}
