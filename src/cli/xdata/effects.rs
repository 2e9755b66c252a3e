//! Registers whose write does more than change a value: what `xdata write` refuses, and what it asks about first.

use asm2464::scsi::{XdataAddress, XdataPage};
use asm2464_chip::chip::unaliased;

/// The flash controller's registers. Commands that are written there erase and change the flash. Source: openpilot's
/// flasher; b0:0xBE02, 0xBE70; cyrozap's notes for the first ones.
pub(super) const FLASH_CONTROLLER: (u16, u16) = (0xC89F, 0xC8AF);

/// A register that takes the unit off the bus, or power from what is behind it.
pub(super) struct Disruption {
    /// Its address.
    pub(super) address: u16,
    /// What a write to it can do.
    pub(super) what: &'static str,
}

impl Disruption {
    /// Whether the unit may leave the bus instead of answering.
    pub(super) fn takes_off_the_bus(&self) -> bool {
        self.what != PCIE_POWER
    }
}

const LEAVES_THE_BUS: &str = "takes the unit off the bus while 0x92C2.6 and 0x91C0.1 are both set";
const PCIE_POWER: &str = "switches the power of what is behind the bridge";

/// Sources: c:0x458A for 0xCC31; b0:0xD916, E8 in mode 0x51, for the others; open firmware's F3 for 0xC656 and 0xC659.
const DISRUPTIONS: [Disruption; 5] = [
    Disruption { address: 0x91C0, what: LEAVES_THE_BUS },
    Disruption { address: 0x92C2, what: LEAVES_THE_BUS },
    Disruption { address: 0xC656, what: PCIE_POWER },
    Disruption { address: 0xC659, what: PCIE_POWER },
    Disruption {
        address: 0xCC31,
        what: "bit 0 restarts the CPU: the unit leaves the bus without an answer; `asmpatch reset` does the same, and \
               waits until it is back",
    },
];

/// Whether a range has a register of the flash controller, at any of its addresses.
pub(super) fn reaches_flash(from: XdataAddress, len: usize) -> bool {
    let (first, last) = FLASH_CONTROLLER;
    registers(from, len).any(|address| (first..=last).contains(&address))
}

/// The registers in a range that disrupt the unit.
pub(super) fn disruptions(from: XdataAddress, len: usize) -> Vec<&'static Disruption> {
    let is_there = |disruption: &&Disruption| registers(from, len).any(|address| address == disruption.address);
    DISRUPTIONS.iter().filter(is_there).collect()
}

/// Returns the addresses in a range, with aliases resolved: none in the other page, which lacks these registers.
fn registers(from: XdataAddress, len: usize) -> impl Iterator<Item = u16> {
    let is_main = from.page == XdataPage::Main;
    (from.addr..=u16::MAX).take(if is_main { len } else { 0 }).map(unaliased)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_merely_overlaps_the_flash_controller_reaches_it_at_either_of_its_addresses() {
        for page in [0xC800_u16, 0xC900] {
            let at = |offset| XdataAddress::main(page + offset);
            assert!(reaches_flash(at(0x9E), 2) && reaches_flash(at(0xAF), 1) && reaches_flash(at(0x00), 256));
            assert!(!reaches_flash(at(0x9E), 1) && !reaches_flash(at(0xB0), 80));
        }
        assert!(!reaches_flash(XdataAddress { page: XdataPage::Other, addr: 0xC8A9 }, 1));
        assert!(!reaches_flash(XdataAddress::main(0xFFFF), 1));
    }

    #[test]
    fn a_range_names_each_register_in_it_that_disrupts_the_unit() {
        let named = |addr, len| {
            disruptions(XdataAddress::main(addr), len).iter().map(|found| found.address).collect::<Vec<_>>()
        };
        assert_eq!(named(0xC650, 10), [0xC656, 0xC659]);
        assert_eq!((named(0xC759, 1), named(0xCC30, 2)), (vec![0xC659], vec![0xCC31]));
        assert_eq!((named(0xCC30, 1), named(0x5FF8, 16)), (vec![], vec![]));
    }
}
