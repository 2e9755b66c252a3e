//! The E5 writes of a GPU runtime around its WRITE(16): the initialisation, and the freeing of the SRAM's slots.
//!
//! Source: tinygrad's v0.13 client ("Controller Initialization"), executed on 240417 from its reset vector.

use crate::firmware::FirmwareVersion;

/// The initialisation. Before it, 240417 answers WRITE(16) without an SSD with 2/3A; after it, 240417 accepts
/// WRITE(16).
///
/// After it, E6 hangs the unit until it loses power, READ CAPACITY returns another reply's bytes, and READ(16) hangs
/// the unit until SET_INTERFACE or a Bulk-Only reset. Those two also clear the initialisation.
pub const INITIALISATION: [(u16, u8); 10] = [
    (0x054B, 0x20),
    (0x054E, 0x04),
    (0x05A8, 0x02),
    (0x05F8, 0x04),
    (0x07EC, 0x01),
    (0x07ED, 0x00),
    (0x07EE, 0x00),
    (0x07EF, 0x00),
    (0xC422, 0x02),
    (0x0000, 0x33),
];

/// Frees slot 0. A WRITE(16) takes the next free slot of the SRAM, whatever its LBA.
const FREE_ONE: [(u16, u8); 5] = [(0x0171, 0xFF), (0x0172, 0xFF), (0x0173, 0xFF), (0xCE6E, 0x00), (0xCE6F, 0x00)];
/// Clears the bitmap of used slots. A WRITE(16) that takes more than one slot sets several of its bits.
const FREE_ALL: [(u16, u8); 4] = [(0xCE40, 0x00), (0xCE41, 0x00), (0xCE42, 0x00), (0xCE43, 0x00)];
/// Clears counters that an early answer to WRITE(16) leaves at 1. Otherwise, the next READ(16) on such a queue slot
/// never ends.
pub const COUNTERS: [(u16, u8); 3] = [(0x0517, 0x00), (0x0518, 0x00), (0x0519, 0x00)];
/// Length of a slot in bytes.
const SLOT_LEN: usize = 0x4000;

/// Returns the initialisation for firmware of this version, with the addresses of its variables. A version that is not
/// known gets 240417's.
pub fn initialisation(version: FirmwareVersion) -> [(u16, u8); 10] {
    INITIALISATION.map(|(at, value)| (in_version(version, at), value))
}

/// Returns [`COUNTERS`] for firmware of this version, as [`initialisation`].
pub fn counters(version: FirmwareVersion) -> [(u16, u8); 3] {
    COUNTERS.map(|(at, value)| (in_version(version, at), value))
}

/// Returns the address of the variable that the initialisation sets to 2, and that is 0 before: 240417's 0x05A8.
pub const fn device_variable(version: FirmwareVersion) -> u16 {
    in_version(version, 0x05A8)
}

/// The address that a variable of 240417 has in another version. Source: the same code in both images, by its operands;
/// the initialisation was executed on 231204.
const fn in_version(version: FirmwareVersion, at: u16) -> u16 {
    match (version.0, at) {
        ([0x23, 0x12, 0x04, 0x85, 0, 0], 0x0517..=0x054E) => at + 1,
        ([0x23, 0x12, 0x04, 0x85, 0, 0], 0x05A6..=0x07EF) => at - 3,
        _ => at,
    }
}

/// Returns the writes of a GPU runtime after a WRITE(16) of `written` bytes, so that the next one goes to slot 0 again:
/// XDATA addresses and values.
pub fn freeing(written: usize) -> impl Iterator<Item = (u16, u8)> {
    let many: &[(u16, u8)] = if written > SLOT_LEN { &FREE_ALL } else { &[] };
    FREE_ONE.iter().chain(many).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_version_keeps_the_variables_elsewhere_and_the_registers_where_they_are() {
        let at = |version: &str| initialisation(version.parse().unwrap()).map(|(at, _)| at);
        assert_eq!(at("240417.85.00.00"), INITIALISATION.map(|(at, _)| at));
        let moved = [0x054C, 0x054F, 0x05A5, 0x05F5, 0x07E9, 0x07EA, 0x07EB, 0x07EC, 0xC422, 0x0000];
        assert_eq!(at("231204.85.00.00"), moved);
        assert_eq!(counters("231204.85.00.00".parse().unwrap()).map(|(at, _)| at), [0x0518, 0x0519, 0x051A]);
    }
}
