//! Detects idle firmware: a loop that ends where it began, with the state unchanged, runs until something happens
//! outside the CPU.

use i8051::{Cpu, Register};

use crate::mcu::Sfrs;

/// Instructions from news (an event that firmware may react to) to the first check, and from one check to the next.
const PAUSE: u64 = 512;
/// Maximum pause between two long checks that find nothing.
const LONGEST_PAUSE: u64 = 1 << 16;
/// Maximum number of instructions in one pass through a loop: a main loop (image 240417's has some 700), and a wait for
/// a register anywhere.
const MAIN_LOOP: u64 = 4_096;
const WAIT_LOOP: u64 = 64;
/// Stack depth in bytes up to which code counts as a main loop's subroutine and not as an interrupt handler.
const SUBROUTINES: u8 = 8;

/// Decides when to check whether the firmware idles, and for how many instructions. A check costs more than plain
/// execution, so a long one is made only if the stack is about as low as in the main loop.
pub(super) struct Schedule {
    /// Time of the next check.
    pub(super) at: u64,
    pause: u64,
    /// SP when the firmware was last found in its main loop.
    main_sp: u8,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self { at: PAUSE, pause: PAUSE, main_sp: u8::MAX }
    }

    /// Postpones the check: after news, firmware is not idle for a while.
    pub(super) fn news(&mut self, now: u64) {
        (self.at, self.pause) = (now + PAUSE, PAUSE);
    }

    /// Number of instructions to check, with the stack at `sp`.
    pub(super) fn reach(&self, sp: u8) -> u64 {
        if sp <= self.main_sp.saturating_add(SUBROUTINES) { MAIN_LOOP } else { WAIT_LOOP }
    }

    /// Records that the firmware idles in a loop of `len` instructions with the stack at `sp`.
    pub(super) fn found(&mut self, len: u64, sp: u8) {
        if len > WAIT_LOOP {
            self.main_sp = sp;
        }
    }

    /// Records that a check of `reach` instructions found no idle loop.
    pub(super) fn not_found(&mut self, reach: u64, now: u64) {
        self.at = now + self.pause;
        if reach == MAIN_LOOP {
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
    }
}

/// The CPU's state at a moment. Memory and blocks are watched separately: by the journal of writes and by the count of
/// changes.
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
