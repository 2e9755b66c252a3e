//! Watching instructions go by.

use std::collections::VecDeque;
use std::fmt;

use i8051::{Cpu, Instruction, Register};

use super::code_space::CodeSpace;
use crate::firmware::CodeAddress;

/// The moment before one instruction.
pub struct Step<'a> {
    /// Where it stands.
    pub at: CodeAddress,
    /// Its number, from 0.
    pub number: u64,
    /// Simulated time, in instructions: those before it, and those that were left out while an idle firmware waited.
    pub now: u64,
    /// The CPU's registers and IDATA.
    pub cpu: &'a Cpu,
    /// The instruction's first byte.
    pub opcode: u8,
    /// SFR 0x96, bit 0.
    pub bank: u8,
    /// Code, for the operands.
    pub code: &'a CodeSpace,
}

impl Step<'_> {
    /// The instruction, decoded.
    pub fn instruction(&self) -> Instruction {
        let addr = self.at.addr();
        let bytes = [0, 1, 2].map(|offset| self.code.byte(self.bank, addr.wrapping_add(offset)));
        Instruction::decode_from_bytes(u32::from(addr), &bytes)
    }
}

/// Sees each instruction before it is executed.
pub trait Observer {
    /// Called before each instruction.
    fn before(&mut self, step: &Step<'_>);

    /// Whether the run is to end now, as after a breakpoint.
    #[inline(always)]
    fn wants_to_stop(&self) -> bool {
        false
    }
}

/// Sees nothing, at no cost.
impl Observer for () {
    #[inline(always)]
    fn before(&mut self, _step: &Step<'_>) {}
}

/// One line of a trace: an instruction, and the registers before it.
#[derive(Debug, Clone)]
pub struct TraceLine {
    /// The instruction's number, from 0.
    pub number: u64,
    /// Where it stands.
    pub at: CodeAddress,
    /// The instruction.
    pub instruction: Instruction,
    /// The accumulator.
    pub a: u8,
    /// DPTR.
    pub dptr: u16,
    /// The stack pointer.
    pub sp: u8,
    /// PSW.
    pub psw: u8,
    /// R0 to R7 of the selected register bank.
    pub r: [u8; 8],
}

/// Keeps the last instructions.
#[derive(Debug, Clone)]
pub struct Trace {
    keep: usize,
    lines: VecDeque<TraceLine>,
}

impl Trace {
    /// A trace of the last `keep` instructions.
    pub fn last(keep: usize) -> Self {
        Self { keep, lines: VecDeque::new() }
    }

    /// Whether it keeps anything.
    pub fn is_on(&self) -> bool {
        self.keep > 0
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &TraceLine> {
        self.lines.iter()
    }
}

impl Observer for Trace {
    fn before(&mut self, step: &Step<'_>) {
        if self.keep == 0 {
            return;
        }
        if self.lines.len() == self.keep {
            self.lines.pop_front();
        }
        let register = |register| step.cpu.register(register);
        self.lines.push_back(TraceLine {
            number: step.number,
            at: step.at,
            instruction: step.instruction(),
            a: register(Register::A) as u8,
            dptr: register(Register::DPTR),
            sp: register(Register::SP) as u8,
            psw: register(Register::PSW) as u8,
            r: [0, 1, 2, 3, 4, 5, 6, 7].map(|n| step.cpu.r(n)),
        });
    }
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = self.r;
        write!(
            f,
            "{:>8}  {:<10} {:<24} A={:02X} DPTR={:04X} SP={:02X} PSW={:02X} \
             R={r0:02X}{r1:02X}{r2:02X}{r3:02X}{r4:02X}{r5:02X}{r6:02X}{r7:02X}",
            self.number,
            self.at.to_string(),
            self.instruction.as_string(),
            self.a,
            self.dptr,
            self.sp,
            self.psw,
        )
    }
}
