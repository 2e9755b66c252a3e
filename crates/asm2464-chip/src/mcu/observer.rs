//! Observers of executed instructions, and a trace.

use std::collections::VecDeque;
use std::fmt;

use asm2464::firmware::CodeAddress;
use i8051::{Cpu, Instruction, Register};

use super::assembly::assembly;
use super::bus::CodeSpace;

/// The state before one instruction.
pub struct Step<'a> {
    /// The instruction's code address.
    pub at: CodeAddress,
    /// Its number, from 0.
    pub number: u64,
    /// Simulated time, in instructions: those executed before it, and those skipped while an idle firmware waited.
    pub now: u64,
    /// The CPU's registers and IDATA.
    pub cpu: &'a Cpu,
    /// The instruction's first byte.
    pub opcode: u8,
    /// SFR 0x96, bit 0.
    pub bank: u8,
    /// Code, for reading the operands.
    pub code: &'a CodeSpace,
}

impl Step<'_> {
    /// Decodes the instruction.
    pub fn instruction(&self) -> Instruction {
        let addr = self.at.addr();
        let bytes = [0, 1, 2].map(|offset| self.code.byte(self.bank, addr.wrapping_add(offset)));
        Instruction::decode_from_bytes(u32::from(addr), &bytes)
    }

    /// DPTR, before the instruction.
    pub fn dptr(&self) -> u16 {
        self.cpu.register(Register::DPTR)
    }
}

/// Observes each instruction before it is executed.
pub trait Observer {
    /// Called before each instruction.
    fn before(&mut self, step: &Step<'_>);

    /// Whether the run should end now, for example at a breakpoint.
    #[inline(always)]
    fn wants_to_stop(&self) -> bool {
        false
    }
}

/// Observes nothing, at no cost.
impl Observer for () {
    #[inline(always)]
    fn before(&mut self, _step: &Step<'_>) {}
}

/// One line of a trace: an instruction, and the registers before it.
#[derive(Debug, Clone)]
pub struct TraceLine {
    /// The instruction's number, from 0.
    pub number: u64,
    /// The instruction's code address.
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

/// Keeps the most recent instructions.
#[derive(Debug, Clone)]
pub struct Trace {
    keep: usize,
    lines: VecDeque<TraceLine>,
}

impl Trace {
    /// Creates a trace of the last `keep` instructions.
    pub fn last(keep: usize) -> Self {
        Self { keep, lines: VecDeque::new() }
    }

    /// Whether the trace keeps anything.
    pub fn is_on(&self) -> bool {
        self.keep > 0
    }

    /// Returns the lines, oldest first.
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
            assembly(&self.instruction),
            self.a,
            self.dptr,
            self.sp,
            self.psw,
        )
    }
}
