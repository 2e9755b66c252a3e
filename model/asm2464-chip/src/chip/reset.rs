//! Power-on: the values of the registers, from recordings of real chips, and the code that the ROM loads.

use std::sync::LazyLock;

use asm2464::firmware::Image;
use asm2464::flash::{FIRST_SLOT, SLOT_LEN, Slot};
use serde::Deserialize;

use super::pcie::EarlyLanes;
use super::serial::SupplySensor;
use crate::mcu::XdataMemory;
use crate::spi_flash::SpiFlash;

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
pub fn image_in(flash: &SpiFlash) -> Option<Image> {
    let mut cells = vec![0; SLOT_LEN];
    flash.read(FIRST_SLOT, &mut cells);
    Slot::at(FIRST_SLOT, &cells).image().ok()
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::known_blocks;

    use super::*;
    use crate::chip::boot::flash_with;

    #[test]
    fn every_row_of_the_table_is_a_register_once() {
        let rows = include_str!("reset.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(RESET_VALUES.len(), rows);
        assert!(RESET_VALUES.is_sorted_by(|before, next| before.0 < next.0 && next.0 >= 0x9000));
        assert_eq!((value(0xE795), value(0x9000)), (0x3B, 0));
    }

    #[test]
    fn the_image_of_the_first_slot_is_loaded_and_that_of_the_second_is_not() {
        for len in [1_000, 0x1_7ED6] {
            let image = Image::from_body((0..len).map(|at: u32| (at * 7) as u8).collect()).unwrap();
            let mut flash = flash_with(&known_blocks(), &image);
            assert_eq!(image_in(&flash), Some(image));
            flash.cells.rotate_right(SLOT_LEN);
            assert_eq!(image_in(&flash), None);
        }
    }
}
