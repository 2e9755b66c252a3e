//! A function at a fixed bus, device and function number: configuration space and one memory BAR.

use std::ops::Range;

use super::config::{BAR0, ConfigSpace, LEN};

/// The upper half of BAR0's address.
const BAR1: usize = BAR0 + 4;
/// A BAR's lowest bits: 64 bits wide and prefetchable, like a GPU's memory. A GPU runtime puts such a BAR above 4 GiB.
const WIDE_PREFETCHABLE: u8 = 0x0C;
/// What is read-only besides BAR0: IDs, class, header type, and the BARs that the function does not have.
const READ_ONLY: [Range<usize>; 4] = [0x00..0x04, 0x08..0x0C, 0x0E..0x10, 0x18..0x28];

/// A function with a configuration space and one 64-bit, prefetchable memory BAR.
#[derive(Debug)]
pub struct MemoryFunction {
    config: ConfigSpace,
    initial: ConfigSpace,
    memory: Vec<u8>,
}

impl MemoryFunction {
    /// Creates a function with these IDs and class code. BAR0 has `len` bytes, rounded up to a power of two of at least
    /// 16; 0 means no BAR.
    pub fn new(vendor: u16, device: u16, class: u32, len: usize) -> Self {
        let len = if len == 0 { 0 } else { len.max(16).next_power_of_two() };
        let mut config = ConfigSpace::new();
        config.put(0, &vendor.to_le_bytes());
        config.put(2, &device.to_le_bytes());
        config.put(9, &class.to_le_bytes()[..3]);
        // A bridge has a header of type 1.
        config.put(14, &[u8::from(class >> 8 == 0x06_04)]);
        config.allow(0, &[0xFF; LEN]);
        for bytes in READ_ONLY {
            config.allow(bytes.start, &vec![0; bytes.len()]);
        }
        match (len as u32).checked_sub(1) {
            // The BAR's low bits encode its size, the lowest four its type.
            Some(low) => {
                config.put(BAR0, &[WIDE_PREFETCHABLE]);
                config.allow(BAR0, &(!low & !0x0F).to_le_bytes());
            }
            None => config.allow(BAR0, &[0; 8]),
        }
        Self { initial: config.clone(), config, memory: vec![0; len] }
    }

    fn decode(&self, addr: u64) -> Option<usize> {
        let base = u64::from(self.config.dword(BAR1)) << 32 | u64::from(self.config.dword(BAR0) & !0x0F);
        let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
        (base != 0 && offset < self.memory.len()).then_some(offset & !3)
    }

    /// Reads a dword of configuration space.
    pub(super) fn config_read(&self, offset: u16) -> u32 {
        self.config.dword(usize::from(offset) & (LEN - 4))
    }

    /// Writes to a dword of configuration space. Bit n of `enables` selects byte n.
    pub(super) fn config_write(&mut self, offset: u16, value: u32, enables: u8) {
        self.config.write(usize::from(offset) & (LEN - 4), value, enables);
    }

    /// Reads a dword of memory; `None` if the BAR does not decode the address.
    pub(super) fn memory_read(&self, addr: u64) -> Option<u32> {
        let at = self.decode(addr)?;
        self.memory[at..].first_chunk().copied().map(u32::from_le_bytes)
    }

    /// Writes to a dword of memory; `enables` as above. Returns `false` if the BAR does not decode the address.
    pub(super) fn memory_write(&mut self, addr: u64, value: u32, enables: u8) -> bool {
        let Some(at) = self.decode(addr) else { return false };
        for byte in (0..4).filter(|byte| enables >> byte & 1 != 0) {
            self.memory[at + byte] = value.to_le_bytes()[byte];
        }
        true
    }

    /// Loses its power: configuration and memory are as at power-on.
    pub(super) fn lose_power(&mut self) {
        self.config.clone_from(&self.initial);
        self.memory.fill(0);
    }
}
