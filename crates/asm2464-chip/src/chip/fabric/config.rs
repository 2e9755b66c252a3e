//! A function's configuration space: its bytes, and which of their bits can be written.

use super::merged;

pub(super) const LEN: usize = 0x1000;

pub(super) const COMMAND: usize = 0x04;
/// COMMAND: the function answers memory requests, or a port forwards them.
pub(super) const COMMAND_MEMORY: u16 = 0x02;
/// COMMAND: the function may send requests itself; a port forwards those from below.
pub(super) const COMMAND_MASTER: u16 = 0x04;
pub(super) const BAR0: usize = 0x10;
pub(super) const BUS_NUMBERS: usize = 0x18;
pub(super) const MEMORY_WINDOW: usize = 0x20;
pub(super) const PREFETCHABLE_WINDOW: usize = 0x24;
pub(super) const CAPABILITIES: usize = 0x34;
pub(super) const BRIDGE_CONTROL: usize = 0x3E;
/// BRIDGE_CONTROL: resets everything behind the port while it is set.
pub(super) const SECONDARY_BUS_RESET: u16 = 0x40;

/// 4 KiB of configuration space. Source: PCI Express base specification 4.0, chapter 7.
#[derive(Debug, Clone)]
pub(super) struct ConfigSpace {
    bytes: Box<[u8; LEN]>,
    writable: Box<[u8; LEN]>,
}

impl ConfigSpace {
    /// Creates a space of zeros that is read-only.
    pub(super) fn new() -> Self {
        Self { bytes: Box::new([0; LEN]), writable: Box::new([0; LEN]) }
    }

    /// Stores bytes that writes can't change.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes these bits writable.
    pub(super) fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    pub(super) fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    pub(super) fn dword(&self, at: usize) -> u32 {
        u32::from(self.word(at)) | u32::from(self.word(at + 2)) << 16
    }

    /// Writes a dword as a host does. Bit n of `enables` selects byte n. Read-only bits stay.
    pub(super) fn write(&mut self, at: usize, value: u32, enables: u8) {
        let writable = &self.writable[at..at + 4];
        let writable = u32::from_le_bytes([writable[0], writable[1], writable[2], writable[3]]);
        let old = self.dword(at);
        let new = (old & !writable) | (merged(old, value, enables) & writable);
        self.bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
}
