//! Whether the firmware idles: a loop that ends where it began, with everything as it was, goes on for ever unless
//! something comes from outside.

use i8051::{Cpu, Register};

use crate::mcu::Sfrs;

/// The CPU's state at a moment. Memory and blocks are watched apart from it: by the journal of writes, and by the count
/// of changes.
pub(super) struct Snapshot {
    pc: u16,
    registers: [u16; 8],
    internal_ram: [u8; 256],
    sfrs: Sfrs,
}

impl Snapshot {
    /// Instructions that one pass through an idle loop may have. Image 240417's main loop has 672.
    pub(super) const LONGEST_LOOP: u64 = 4_096;

    pub(super) fn of(cpu: &Cpu, sfrs: &Sfrs) -> Self {
        Self { pc: cpu.pc, registers: registers(cpu), internal_ram: cpu.internal_ram, sfrs: sfrs.clone() }
    }

    /// Whether the CPU is in this state again.
    #[inline(always)]
    pub(super) fn is_met_again(&self, cpu: &Cpu, sfrs: &Sfrs) -> bool {
        self.pc == cpu.pc
            && self.registers == registers(cpu)
            && self.internal_ram == cpu.internal_ram
            && self.sfrs == *sfrs
    }
}

fn registers(cpu: &Cpu) -> [u16; 8] {
    use Register::{A, B, DPTR, IE, IP, PC, PSW, SP};
    [A, B, DPTR, PSW, SP, IP, IE, PC].map(|register| cpu.register(register))
}
