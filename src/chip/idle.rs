//! Whether the firmware idles: a loop that ends where it began, with everything as it was, goes on for ever unless
//! something comes from outside.

use i8051::{Cpu, Register};

use crate::mcu::Sfrs;

/// Instructions from news to the first look, and from one look to the next.
const PAUSE: u64 = 512;
/// The most between two looks that are long and find nothing.
const LONGEST_PAUSE: u64 = 1 << 16;
/// Instructions that one pass through a loop may have: a main loop (image 240417's has some 700), and a wait for a
/// register, anywhere.
const MAIN_LOOP: u64 = 4_096;
const WAIT_LOOP: u64 = 64;
/// Bytes on the stack that tell a main loop's subroutines from an interrupt's handler.
const SUBROUTINES: u8 = 8;

/// When to look whether the firmware idles, and how far. A look costs more than running on: a long one is made only
/// where the stack is about as low as it was in the main loop.
pub(super) struct Schedule {
    /// When to look next.
    pub(super) at: u64,
    pause: u64,
    /// SP where the firmware was last found in its main loop.
    main_sp: u8,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self { at: PAUSE, pause: PAUSE, main_sp: u8::MAX }
    }

    /// Something has happened: what follows is not idle for a while.
    pub(super) fn news(&mut self, now: u64) {
        (self.at, self.pause) = (now + PAUSE, PAUSE);
    }

    /// How many instructions to look at, with the stack at `sp`.
    pub(super) fn reach(&self, sp: u8) -> u64 {
        if sp <= self.main_sp.saturating_add(SUBROUTINES) { MAIN_LOOP } else { WAIT_LOOP }
    }

    /// The firmware idles, in a loop of `len` instructions with the stack at `sp`.
    pub(super) fn found(&mut self, len: u64, sp: u8) {
        if len > WAIT_LOOP {
            self.main_sp = sp;
        }
    }

    /// It does not, as far as `reach` instructions tell.
    pub(super) fn not_found(&mut self, reach: u64, now: u64) {
        self.at = now + self.pause;
        if reach == MAIN_LOOP {
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
    }
}

/// The CPU's state at a moment. Memory and blocks are watched apart from it: by the journal of writes, and by the count
/// of changes.
pub(super) struct Snapshot {
    pc: u16,
    registers: [u16; 8],
    internal_ram: [u8; 256],
    sfrs: Sfrs,
}

impl Snapshot {
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
