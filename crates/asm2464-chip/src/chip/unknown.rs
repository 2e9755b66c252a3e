//! Unmodelled registers that the firmware touched, and the place of the first access.

use asm2464::scsi::XdataAddress;

use crate::mcu::{AccessKind, XdataMemory};

/// Start bits of registers that no block models: index into both pages, and the bits that read 0 once the work is done,
/// here at once. 0x1238 of the other page: the USB-C side's start-up sets .0, and waits until it is clear (b0:0xE842).
/// Silicon got past that wait (recording of 231204, line 1553). 0xE41C: sends a message on the CC line (b0:0x9605, and
/// the wait at b0:0xBEDD). 0x9220 and 0xCC33 read 00 after a write of 04 (recording, lines 3016, 3036; 26, 2109).
const STARTS: [(usize, u8); 4] = [(0x1_1238, 0x01), (0xE41C, 0x01), (0x9220, 0x04), (0xCC33, 0x04)];

/// The value that an unmodelled register holds after a write.
pub(super) fn settled(index: usize, value: u8) -> u8 {
    STARTS.iter().find(|(at, _)| *at == index).map_or(value, |(_, starts)| value & !starts)
}

/// The first read or write of an unmodelled register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownAccess {
    /// The register.
    pub at: XdataAddress,
    /// Read or write.
    pub kind: AccessKind,
    /// The instruction's address, with SFR 0x96 (the code bank) in bit 16.
    pub pc: u32,
}

/// The list, and one bit for each address and kind of access that it has. The address space limits both.
#[derive(Debug)]
pub(super) struct UnknownRegisters {
    seen: Box<[u64]>,
    list: Vec<UnknownAccess>,
}

impl Default for UnknownRegisters {
    fn default() -> Self {
        Self { seen: vec![0; 2 * 0x2_0000 / 64].into_boxed_slice(), list: Vec::new() }
    }
}

impl UnknownRegisters {
    pub(super) fn record(&mut self, kind: AccessKind, index: usize, pc: u32) {
        let bit = 2 * index + usize::from(kind == AccessKind::Write);
        let word = &mut self.seen[bit / 64];
        if *word >> (bit % 64) & 1 == 0 {
            *word |= 1 << (bit % 64);
            self.list.push(UnknownAccess { at: XdataMemory::address(index), kind, pc });
        }
    }

    pub(super) fn list(&self) -> &[UnknownAccess] {
        &self.list
    }
}
