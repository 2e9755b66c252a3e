//! What a GPU runtime writes with E5 around its WRITE(16): the initialisation, and the freeing of the SRAM's slots.
//!
//! Source: tinygrad's v0.13 client ("Controller Initialization"), executed on 240417 from its reset vector.

/// Before these writes 240417 answers WRITE(16) without an SSD with 2/3A, after them it takes it.
///
/// After them E6 hangs the unit until its power goes, READ CAPACITY answers with another reply's bytes, and READ(16)
/// hangs the unit until SET_INTERFACE or a Bulk-Only reset, which clear the initialisation, too.
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

/// A WRITE(16) takes the next free slot of the SRAM, whatever its LBA; these free slot 0.
const FREE_ONE: [(u16, u8); 5] = [(0x0171, 0xFF), (0x0172, 0xFF), (0x0173, 0xFF), (0xCE6E, 0x00), (0xCE6F, 0x00)];
/// The bitmap of used slots, which a WRITE(16) of more than one slot leaves set in several places.
const FREE_ALL: [(u16, u8); 4] = [(0xCE40, 0x00), (0xCE41, 0x00), (0xCE42, 0x00), (0xCE43, 0x00)];
/// Counters that an early answer to WRITE(16) leaves at 1: the next READ(16) on such a queue slot never ends.
pub const COUNTERS: [(u16, u8); 3] = [(0x0517, 0x00), (0x0518, 0x00), (0x0519, 0x00)];
/// Bytes of a slot.
const SLOT_LEN: usize = 0x4000;

/// What a GPU runtime writes after a WRITE(16) of `written` bytes, so that the next one lands in slot 0 again: XDATA
/// addresses and values.
pub fn freeing(written: usize) -> impl Iterator<Item = (u16, u8)> {
    let many: &[(u16, u8)] = if written > SLOT_LEN { &FREE_ALL } else { &[] };
    FREE_ONE.iter().chain(many).copied()
}
