//! Registers that no block models: which the firmware touched, and where it did so first.

use crate::mcu::AccessKind;
use crate::scsi::XdataAddress;

/// The first access of its kind to a register that is not modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownAccess {
    /// The register.
    pub at: XdataAddress,
    /// Read or write.
    pub kind: AccessKind,
    /// The instruction's address, with SFR 0x96 (the code bank) in bit 16.
    pub pc: u32,
}

/// One bit an address and kind of access, and the list. Both are bounded by the address space.
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
            self.list.push(UnknownAccess { at: super::xdata::address(index), kind, pc });
        }
    }

    pub(super) fn list(&self) -> &[UnknownAccess] {
        &self.list
    }
}
