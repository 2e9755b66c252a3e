//! The header of a function: its identity, its base address registers with the size of the memory behind them, and, for a
//! bridge, its bus numbers and windows.

use asm2464::Bdf;
use serde::{Deserialize, Serialize};

use super::capability::Capabilities;
use super::engine::PcieError;
use super::names::class_name;

/// COMMAND: the function answers or forwards I/O requests.
pub(super) const COMMAND_IO: u16 = 0x01;
/// COMMAND: the function answers or forwards memory requests.
pub const COMMAND_MEMORY: u16 = 0x02;
/// COMMAND: the function may send requests itself.
pub const COMMAND_MASTER: u16 = 0x04;
/// Offset of the COMMAND register in configuration space.
pub const COMMAND: u16 = 0x04;
pub(super) const BUS_NUMBERS: u16 = 0x18;
pub(super) const MEMORY_WINDOW: u16 = 0x20;
pub(super) const PREFETCHABLE_WINDOW: u16 = 0x24;
/// STATUS: the function has a list of capabilities.
pub(super) const STATUS_CAPABILITIES: u16 = 0x10;
/// Offsets of the header dwords that [`Function::parse`] needs, besides the IDs. The last has bits that are always 0.
pub(super) const HEADER_OFFSETS: [u16; 12] =
    [0x04, 0x08, 0x0C, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24, 0x28, 0x2C, CAPABILITIES as u16];
/// Offset of the pointer to the list of capabilities: a byte.
pub(super) const CAPABILITIES: usize = 0x34;

/// A bridge's bus numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Buses {
    /// The bus above it.
    pub primary: u8,
    /// The bus below it; 0 if none is assigned.
    pub secondary: u8,
    /// The highest bus below it.
    pub subordinate: u8,
}

/// A bridge's window: the addresses that it forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Window {
    /// First address.
    pub base: u64,
    /// Last address.
    pub limit: u64,
}

/// Contents of a header that depend on its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Header {
    /// Type 0.
    Endpoint {
        /// Vendor and device ID of the card.
        subsystem: (u16, u16),
    },
    /// Type 1.
    Bridge {
        /// Its bus numbers.
        buses: Buses,
        /// Its window below 4 GiB; `None` if it is closed.
        memory: Option<Window>,
        /// Its window for prefetchable memory; `None` if it is closed.
        prefetchable: Option<Window>,
        /// Whether the prefetchable window takes 64-bit addresses.
        prefetchable_is_64: bool,
    },
    /// Any other type.
    Other {
        /// Bits 6:0 of the header type.
        number: u8,
    },
}

/// A function, by its configuration space.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display, Serialize, Deserialize)]
#[display("{at} {vendor:04x}:{device:04x} {}", class_name(*class).unwrap_or("device"))]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Function {
    /// Its place.
    pub at: Bdf,
    /// The bridge above it, as an index in the survey; none on bus 0.
    pub parent: Option<usize>,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class, subclass and programming interface, 8 bits each.
    pub class: u32,
    /// Revision.
    pub revision: u8,
    /// The COMMAND register.
    pub command: u16,
    /// The STATUS register.
    pub status: u16,
    /// Contents that depend on the header's type.
    pub header: Header,
    /// Its BARs.
    pub bars: Vec<Bar>,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

impl Function {
    /// Parses a header of 16 dwords. Missing dwords count as 0. Leaves the capabilities empty.
    pub fn parse(at: Bdf, parent: Option<usize>, header: &[u32]) -> Self {
        let dword = |offset: usize| header.get(offset / 4).copied().unwrap_or(0);
        let halves = |offset: usize| (dword(offset) as u16, (dword(offset) >> 16) as u16);
        let (vendor, device) = halves(0x00);
        let (command, status) = halves(0x04);
        let header = match (dword(0x0C) >> 16) as u8 & 0x7F {
            0 => Header::Endpoint { subsystem: halves(0x2C) },
            1 => {
                let [primary, secondary, subordinate, _] = dword(0x18).to_le_bytes();
                let high = [dword(0x28), dword(0x2C)];
                Header::Bridge {
                    buses: Buses { primary, secondary, subordinate },
                    memory: window(dword(0x20), [0, 0]),
                    prefetchable: window(dword(0x24), high),
                    prefetchable_is_64: dword(0x24) & 0x0F == 0x01,
                }
            }
            number => Header::Other { number },
        };
        let mut function = Self {
            at,
            parent,
            vendor,
            device,
            class: dword(0x08) >> 8,
            revision: dword(0x08) as u8,
            command,
            status,
            header,
            bars: Vec::new(),
            capabilities: Capabilities::default(),
        };
        let registers: Vec<u32> = (0..function.bar_registers()).map(|index| dword(0x10 + 4 * index)).collect();
        function.bars = Bar::decode(&registers, None);
        function
    }

    /// Number of BAR registers in the header.
    pub const fn bar_registers(&self) -> usize {
        match self.header {
            Header::Endpoint { .. } => 6,
            Header::Bridge { .. } => 2,
            Header::Other { .. } => 0,
        }
    }

    /// The function's bus numbers, if it is a bridge.
    pub const fn buses(&self) -> Option<Buses> {
        match self.header {
            Header::Bridge { buses, .. } => Some(buses),
            _ => None,
        }
    }

    /// Whether the function answers or forwards memory requests.
    pub const fn decodes_memory(&self) -> bool {
        self.command & COMMAND_MEMORY != 0
    }
}

/// Decodes a window's registers; `None` if it is closed, or unset since power-on.
fn window(register: u32, high: [u32; 2]) -> Option<Window> {
    let base = u64::from(high[0]) << 32 | u64::from(register & 0xFFF0) << 16;
    let limit = u64::from(high[1]) << 32 | u64::from(register & 0xFFF0_0000) | 0xF_FFFF;
    (base <= limit && limit > 0xF_FFFF).then_some(Window { base, limit })
}

/// Kind of address that a BAR asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BarKind {
    /// I/O ports, which the bridge's engine has no requests for.
    Io,
    /// Memory below 4 GiB.
    Memory32,
    /// Memory anywhere; it takes two registers.
    Memory64,
}

/// A base address register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Bar {
    /// The BAR's number: 0 is the register at 0x10. A 64-bit BAR also takes the next register.
    pub index: u8,
    /// The kind of BAR.
    pub kind: BarKind,
    /// Reads of its memory have no side effects.
    pub prefetchable: bool,
    /// The address in the BAR; 0 if none is assigned.
    pub address: u64,
    /// Size in bytes, a power of two; `None` if it was not read, or is invalid.
    pub size: Option<u64>,
}

const IO: u32 = 0x01;
const TYPE: u32 = 0x06;
const TYPE_64: u32 = 0x04;
const PREFETCHABLE: u32 = 0x08;

impl Bar {
    /// Decodes registers. `masks` are their values after all ones were written. Without them, a register of 0 is left
    /// out, because it may be no BAR.
    pub fn decode(registers: &[u32], masks: Option<&[u32]>) -> Vec<Self> {
        let mut bars = Vec::new();
        let mut index = 0;
        while let Some(&low) = registers.get(index) {
            let mask = masks.map(|masks| masks.get(index).copied().unwrap_or(0));
            // The type's bits are read-only, so both have them.
            let flags = mask.unwrap_or(low);
            let is_64 = flags & IO == 0 && flags & TYPE == TYPE_64 && index + 1 < registers.len();
            let high = if is_64 { registers[index + 1] } else { 0 };
            let high_mask = match masks {
                Some(masks) if is_64 => masks.get(index + 1).copied().unwrap_or(0),
                _ => 0,
            };
            let (kind, low_bits) = match flags & IO {
                0 if is_64 => (BarKind::Memory64, 0x0F),
                0 => (BarKind::Memory32, 0x0F),
                _ => (BarKind::Io, 0x03),
            };
            if mask.map_or(low | high, |mask| (mask & !low_bits) | high_mask) != 0 {
                let address = u64::from(high) << 32 | u64::from(low & !low_bits);
                let size = mask.and_then(|mask| size(kind, mask & !low_bits, high_mask));
                let prefetchable = kind != BarKind::Io && flags & PREFETCHABLE != 0;
                bars.push(Self { index: index as u8, kind, prefetchable, address, size });
            }
            index += if is_64 { 2 } else { 1 };
        }
        bars
    }

    /// Offset of the BAR's register in configuration space.
    pub const fn offset(&self) -> u16 {
        0x10 + 4 * self.index as u16
    }

    /// Address of `len` bytes at `offset` of the memory behind the BAR.
    ///
    /// # Errors
    /// [`PcieError::Impossible`] for an I/O BAR, one without an address, and bytes outside of its memory.
    pub fn at(&self, offset: u64, len: usize) -> Result<u64, PcieError> {
        let size = match self.size {
            Some(size) if self.is_assigned() && self.kind != BarKind::Io => size,
            _ => 0,
        };
        if let Some(end) = offset.checked_add(len as u64)
            && end <= size
            && let Some(address) = self.address.checked_add(offset)
        {
            return Ok(address);
        }
        let what = format!("{len} bytes at {offset:#x} of BAR {}, behind which {size:#x} can be reached", self.index);
        Err(PcieError::Impossible { what })
    }

    /// Whether the BAR has an address.
    pub const fn is_assigned(&self) -> bool {
        self.address != 0
    }
}

/// Decodes the size from a mask: its lowest set bit, if all bits above it are set.
fn size(kind: BarKind, low: u32, high: u32) -> Option<u64> {
    let mask = match kind {
        BarKind::Memory64 => u64::from(high) << 32 | u64::from(low),
        BarKind::Memory32 => u64::from(low) | 0xFFFF_FFFF_0000_0000,
        // A device may omit the upper half of an I/O BAR.
        BarKind::Io if low >> 16 == 0 => u64::from(low) | 0xFFFF_FFFF_FFFF_0000,
        BarKind::Io => u64::from(low) | 0xFFFF_FFFF_0000_0000,
    };
    let size = mask & mask.wrapping_neg();
    (size != 0 && mask == size.wrapping_neg()).then_some(size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sized(registers: &[u32], masks: &[u32]) -> Vec<Bar> {
        Bar::decode(registers, Some(masks))
    }

    #[test]
    fn each_bar_of_a_gpu_has_its_kind_address_and_size() {
        let registers = [0xC, 8, 0x9000_000C, 0, 0xE001, 0xFE00_0000];
        let masks = [0xC, 0xFFFF_FFFC, 0xFFE0_000C, 0xFFFF_FFFF, 0xFFFF_FF01, 0xFFF8_0000];
        let bars = sized(&registers, &masks);
        let found: Vec<_> = bars.iter().map(|bar| (bar.index, bar.kind, bar.address, bar.size.unwrap())).collect();
        assert_eq!(
            found,
            [
                (0, BarKind::Memory64, 0x8_0000_0000, 16 << 30),
                (2, BarKind::Memory64, 0x9000_0000, 2 << 20),
                (4, BarKind::Io, 0xE000, 256),
                (5, BarKind::Memory32, 0xFE00_0000, 512 << 10),
            ]
        );
        assert!(bars[0].prefetchable && bars[1].prefetchable && !bars[3].prefetchable);
    }

    #[test]
    fn an_address_behind_a_bar_stays_within_its_memory() {
        let bar = sized(&[0x1000_0000], &[0xFFFF_0000])[0];
        assert_eq!(bar.at(0xFFFC, 4), Ok(0x1000_FFFC));
        for (offset, len) in [(0xFFFC, 5), (0x1_0000, 1), (u64::MAX, 1)] {
            assert!(bar.at(offset, len).unwrap_err().to_string().contains("of BAR 0"), "{offset:#x} {len}");
        }
        assert!(sized(&[0], &[0xFFFF_0000])[0].at(0, 4).is_err(), "nobody has assigned an address");
        assert!(sized(&[0xE001], &[0xFF01])[0].at(0, 4).is_err(), "I/O");
    }

    #[test]
    fn a_register_that_ignores_writes_is_not_a_bar() {
        assert_eq!(sized(&[0; 6], &[0; 6]), []);
        assert_eq!(Bar::decode(&[0; 6], None), [], "a register that reads 0 may not be a BAR");
        assert_eq!(Bar::decode(&[0x1000_0000, 0], None)[0].size, None);
    }

    #[test]
    fn a_mask_with_holes_and_a_wide_bar_in_the_last_register_have_no_size_that_makes_sense() {
        assert_eq!(sized(&[0], &[0xFF0F_0000])[0].size, None);
        let cut = sized(&[0, 0, 0, 0, 0, 4], &[0, 0, 0, 0, 0, 0xFFFF_0004])[0];
        assert_eq!((cut.kind, cut.size), (BarKind::Memory32, Some(1 << 16)), "only one register is left");
        assert_eq!(sized(&[0, 0], &[4, 0]), [], "a 64-bit BAR without a size");
        assert_eq!(sized(&[1], &[0xFF01])[0].size, Some(256), "I/O of 16 bits");
    }

    proptest! {
        #[test]
        fn decoding_anything_gives_bars_within_their_registers(
            registers: [u32; 6], masks: [u32; 6], count in 0_usize..=6, with_masks: bool
        ) {
            let bars = Bar::decode(&registers[..count], with_masks.then_some(&masks[..count]));
            for bar in &bars {
                let last = usize::from(bar.index) + usize::from(bar.kind == BarKind::Memory64);
                prop_assert!(last < count);
                prop_assert!(bar.size.is_none_or(u64::is_power_of_two));
            }
        }
    }
}
