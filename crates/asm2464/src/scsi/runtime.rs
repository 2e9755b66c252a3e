//! The E5 writes of a GPU runtime around its WRITE(16): the initialisation, and the freeing of the SRAM's slots.
//!
//! Source: tinygrad's v0.13 client ("Controller Initialization"), executed on 240417 from its reset vector.

use crate::firmware::FirmwareVersion;
use crate::sram::SRAM_SLOT_LEN;

/// The initialisation: XDATA addresses and values, in order. Without an SSD, 240417 answers WRITE(16) with 2/3A before
/// it, and accepts WRITE(16) after it.
///
/// After it, an E6 hangs the unit until it loses power: neither the E6 nor a later command is answered. READ CAPACITY
/// returns another reply's bytes. READ(16) hangs the unit until SET_INTERFACE or a Bulk-Only reset; these also clear
/// the initialisation.
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

/// The variables that show whether the firmware is initialised, and the values that [`INITIALISATION`] leaves there.
/// They are 0 before it. Source: executed on 240417 from its reset vector.
pub const INITIALISED: [(u16, u8); 3] = [INITIALISATION[0], INITIALISATION[2], INITIALISATION[3]];

/// Frees slot 0. A WRITE(16) takes the next free slot of the SRAM, whatever its LBA.
const FREE_ONE: [(u16, u8); 5] = [(0x0171, 0xFF), (0x0172, 0xFF), (0x0173, 0xFF), (0xCE6E, 0x00), (0xCE6F, 0x00)];
/// Clears the bitmap of used slots. A WRITE(16) that takes more than one slot sets several of its bits.
const FREE_ALL: [(u16, u8); 4] = [(0xCE40, 0x00), (0xCE41, 0x00), (0xCE42, 0x00), (0xCE43, 0x00)];
/// Clears counters that an early answer to WRITE(16) leaves at 1. Otherwise, the next READ(16) in the same queue
/// slot never ends.
const COUNTERS: [(u16, u8); 3] = [(0x0517, 0x00), (0x0518, 0x00), (0x0519, 0x00)];

/// Where a version keeps the variables of the initialisation. Source: the operands of the same code in both images; the
/// initialisation was executed on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variables {
    /// At the addresses in [`INITIALISATION`]: in 240417 and the practice image.
    As240417,
    /// At other addresses, in 231204.
    As231204,
}

impl Variables {
    /// All known places.
    pub const ALL: [Self; 2] = [Self::As240417, Self::As231204];

    /// Returns the variables of this version; `None` if they are not known. Another version's addresses hold variables
    /// that mean something else.
    pub const fn of(version: FirmwareVersion) -> Option<Self> {
        match version.0 {
            [0x24, 0x04, 0x17, 0x85, 0x00, 0x00] | [0x26, 0x11, 0x21, 0x00, 0x00, _] => Some(Self::As240417),
            [0x23, 0x12, 0x04, 0x85, 0x00, 0x00] => Some(Self::As231204),
            _ => None,
        }
    }

    /// Returns this version's address of the variable that 240417 keeps at `at`.
    const fn at(self, at: u16) -> u16 {
        match (self, at) {
            (Self::As231204, 0x0517..=0x054E) => at + 1,
            (Self::As231204, 0x05A6..=0x07EF) => at - 3,
            _ => at,
        }
    }

    /// Returns [`INITIALISATION`] at this version's addresses.
    pub fn initialisation(self) -> [(u16, u8); 10] {
        INITIALISATION.map(|(at, value)| (self.at(at), value))
    }

    /// Returns [`INITIALISED`] at this version's addresses.
    pub fn initialised(self) -> [(u16, u8); 3] {
        INITIALISED.map(|(at, value)| (self.at(at), value))
    }

    /// Returns the counters that an early answer to WRITE(16) leaves at 1, and the value that clears them.
    pub fn counters(self) -> [(u16, u8); 3] {
        COUNTERS.map(|(at, value)| (self.at(at), value))
    }

    /// Returns the address of the byte that the initialisation sets to 2, and that is 0 before.
    pub const fn device(self) -> u16 {
        self.at(0x05A8)
    }

    /// Returns the address of the byte that is 1 once the firmware's search of the bus has found an SSD, and 0 when a
    /// search begins. An INQUIRY makes it search. A GPU runtime doesn't write it. Source: b0:0xC023, 0x824F and 0x82F1 of
    /// 240417, and the same code of 231204, by its operand; executed on both, with NVMe drives, GPUs and devices of other
    /// classes behind them.
    pub const fn ssd_found(self) -> u16 {
        self.at(0x05AC)
    }

    /// Returns the address of the byte that is not 0 once the firmware has started an SSD. That start leaves the same
    /// values in [`initialised`](Self::initialised) as a GPU runtime does. Source: b1:0x8DAB of 240417, the only place
    /// that writes it, and the same code of 231204, by its operand; executed on both, with an NVMe drive behind them.
    pub const fn ssd_started(self) -> u16 {
        self.at(0x053E)
    }
}

/// What has set up the bridge, by the variables of a firmware that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetUp {
    /// Nothing yet, or only a search that found no SSD.
    Nothing,
    /// The firmware, for an SSD that it has found: its commands are safe.
    ForSsd,
    /// A GPU runtime, over an SSD that the firmware has found.
    OverSsd,
    /// A GPU runtime.
    ByRuntime,
}

impl SetUp {
    /// Judges the bytes at [`Variables::initialised`], [`Variables::ssd_found`] and [`Variables::ssd_started`].
    ///
    /// An SSD that is found has the state 02, 03, 12 or 13, and no sectors in a slot; when it starts, the firmware sets
    /// the state 04 (ready), the sectors and [`Variables::ssd_started`]. A runtime writes the sectors and the state
    /// alone. Source: executed on 240417 and 231204.
    pub fn of(initialised: [u8; 3], ssd_found: u8, ssd_started: u8) -> Self {
        let (_, ready) = INITIALISED[2];
        let [sectors, _, state] = initialised;
        if ssd_started != 0 {
            return Self::ForSsd;
        }
        if ssd_found != 0 {
            return if sectors == 0 && state != ready { Self::ForSsd } else { Self::OverSsd };
        }
        if initialised == [0; 3] { Self::Nothing } else { Self::ByRuntime }
    }
}

/// Returns the writes of a GPU runtime after a WRITE(16) of `written` bytes, so that the next one goes to slot 0 again:
/// XDATA addresses and values.
pub fn freeing(written: usize) -> impl Iterator<Item = (u16, u8)> {
    let many: &[(u16, u8)] = if written > SRAM_SLOT_LEN { &FREE_ALL } else { &[] };
    FREE_ONE.iter().chain(many).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_version_keeps_the_variables_elsewhere_and_the_registers_where_they_are() {
        let of = |version: &str| Variables::of(version.parse().unwrap());
        assert_eq!(of("240417.85.00.00").unwrap().initialisation(), INITIALISATION);
        let moved = [0x054C, 0x054F, 0x05A5, 0x05F5, 0x07E9, 0x07EA, 0x07EB, 0x07EC, 0xC422, 0x0000];
        let earlier = of("231204.85.00.00").unwrap();
        assert_eq!(earlier.initialisation().map(|(at, _)| at), moved);
        assert_eq!((earlier.counters().map(|(at, _)| at), earlier.device()), ([0x0518, 0x0519, 0x051A], 0x05A5));
        assert_eq!(earlier.initialised(), [(0x054C, 0x20), (0x05A5, 0x02), (0x05F5, 0x04)]);
        assert_eq!((of("240417.85.00.00").unwrap().ssd_started(), earlier.ssd_started()), (0x053E, 0x053F));
        assert_eq!((of("240417.85.00.00").unwrap().ssd_found(), earlier.ssd_found()), (0x05AC, 0x05A9));
        assert_eq!(of("241129.85.00.00"), None);
    }

    #[test]
    fn a_runtimes_initialisation_differs_from_an_ssd_that_was_only_found() {
        for (initialised, found, started, expected) in [
            ([0, 0, 0], 0, 0, SetUp::Nothing),
            ([0, 2, 0x12], 1, 0, SetUp::ForSsd),
            ([0, 2, 0x13], 1, 0, SetUp::ForSsd),
            ([0, 2, 0x03], 1, 0, SetUp::ForSsd),
            ([0x20, 2, 4], 1, 1, SetUp::ForSsd),
            ([0x20, 2, 4], 0, 1, SetUp::ForSsd),
            ([0x20, 2, 4], 0, 0, SetUp::ByRuntime),
            // Half of an initialisation.
            ([0x20, 0, 0], 0, 0, SetUp::ByRuntime),
            ([0, 2, 4], 0, 0, SetUp::ByRuntime),
            ([0, 2, 0x12], 0, 0, SetUp::ByRuntime),
            ([0x20, 2, 4], 1, 0, SetUp::OverSsd),
            ([0x20, 2, 0x12], 1, 0, SetUp::OverSsd),
            ([0, 2, 4], 1, 0, SetUp::OverSsd),
        ] {
            assert_eq!(SetUp::of(initialised, found, started), expected, "{initialised:02x?} {found} {started}");
        }
    }
}
