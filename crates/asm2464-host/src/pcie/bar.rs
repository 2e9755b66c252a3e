//! Base address registers: their contents, and the size of the memory behind them.

use serde::{Deserialize, Serialize};

use super::engine::PcieError;

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
        let size = self.size.filter(|_| self.is_assigned() && self.kind != BarKind::Io).unwrap_or(0);
        let end = offset.checked_add(len as u64).filter(|end| *end <= size);
        end.and_then(|_| self.address.checked_add(offset)).ok_or_else(|| PcieError::Impossible {
            what: format!("{len} bytes at {offset:#x} of BAR {}, behind which {size:#x} can be reached", self.index),
        })
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
