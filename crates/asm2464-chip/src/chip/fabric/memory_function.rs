//! A function at a fixed bus, device and function number: configuration space and one memory BAR.

use super::{PcieFunction, merged};

const BAR0: usize = 0x10;
const CONFIG_LEN: usize = 0x1000;
/// The upper half of BAR0's address.
const BAR1: usize = 0x14;
/// A BAR's lowest bits: 64 bits wide and prefetchable, like a GPU's memory. A GPU runtime puts such a BAR above 4 GiB.
const WIDE_PREFETCHABLE: u8 = 0x0C;

/// A function with a configuration space and one 64-bit, prefetchable memory BAR.
#[derive(Debug)]
pub struct MemoryFunction {
    config: Box<[u8; CONFIG_LEN]>,
    initial: Box<[u8; CONFIG_LEN]>,
    memory: Vec<u8>,
}

impl MemoryFunction {
    /// Creates a function with these IDs and class code. BAR0 has `len` bytes, rounded up to a power of two of at least
    /// 16; 0 means no BAR.
    pub fn new(vendor: u16, device: u16, class: u32, len: usize) -> Self {
        let mut config = Box::new([0; CONFIG_LEN]);
        config[0..2].copy_from_slice(&vendor.to_le_bytes());
        config[2..4].copy_from_slice(&device.to_le_bytes());
        config[9..12].copy_from_slice(&class.to_le_bytes()[..3]);
        // A bridge has a header of type 1.
        config[14] = u8::from(class >> 8 == 0x06_04);
        let len = if len == 0 { 0 } else { len.max(16).next_power_of_two() };
        config[BAR0] = if len == 0 { 0 } else { WIDE_PREFETCHABLE };
        Self { initial: config.clone(), config, memory: vec![0; len] }
    }

    fn dword(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.config[at], self.config[at + 1], self.config[at + 2], self.config[at + 3]])
    }

    fn decode(&self, addr: u64) -> Option<usize> {
        let base = u64::from(self.dword(BAR1)) << 32 | u64::from(self.dword(BAR0) & !0x0F);
        let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
        (base != 0 && offset < self.memory.len()).then_some(offset & !3)
    }
}

impl PcieFunction for MemoryFunction {
    fn config_read(&mut self, offset: u16) -> u32 {
        self.dword(usize::from(offset) & (CONFIG_LEN - 4))
    }

    fn config_write(&mut self, offset: u16, value: u32, enables: u8) {
        let at = usize::from(offset) & (CONFIG_LEN - 4);
        let writable = match at {
            // IDs, class, header type, and BARs that the function does not have are read-only.
            0x00 | 0x08 | 0x18..=0x24 => 0,
            BAR1 if self.memory.is_empty() => 0,
            0x0C => 0x0000_FFFF,
            // The BAR's low bits encode its size, the lowest four its type.
            BAR0 => (self.memory.len() as u32).checked_sub(1).map_or(0, |low| !low & !0x0F),
            _ => u32::MAX,
        };
        let old = self.dword(at);
        let new = (old & !writable) | (merged(old, value, enables) & writable);
        self.config[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }

    fn memory_read(&mut self, addr: u64) -> Option<u32> {
        let at = self.decode(addr)?;
        let bytes = &self.memory[at..at + 4];
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn memory_write(&mut self, addr: u64, value: u32, enables: u8) -> bool {
        let Some(at) = self.decode(addr) else { return false };
        for byte in (0..4).filter(|byte| enables >> byte & 1 != 0) {
            self.memory[at + byte] = value.to_le_bytes()[byte];
        }
        true
    }

    fn lose_power(&mut self) {
        self.config.clone_from(&self.initial);
        self.memory.fill(0);
    }
}
