//! The 8051: what is around the `i8051` crate's CPU core, from instruction to memory.
//!
//! [`CpuBus`] joins the core to its memories: [`Sfrs`], the special function registers that the core does not hold itself;
//! XDATA, which the chip maps ([`XdataMemory`] is its two pages); and [`CodeSpace`], 64 KiB of code for each bank that SFR
//! 0x96 selects. An [`Observer`] sees each [`Step`] before the core executes it; [`Trace`] is one, and [`assembly()`] writes
//! an instruction as text.
//! [`chip`](crate::chip) models the whole ASM2464PD around it.

use std::collections::VecDeque;
use std::fmt;

use asm2464::firmware::{CodeAddress, Image};
use asm2464::scsi::{XDATA_PAGE_LEN, XdataAddress, XdataPage};
use i8051::sfr::SFR_BASE;
use i8051::{Cpu, CpuContext, CpuView, Instruction, MemoryMapper, Operand, PortMapper, ReadOnlyMemoryMapper, Register};

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
    /// Whether it looks at the instructions. If not, passes of a loop that are known to be alike count as executed without
    /// being executed one by one.
    const LOOKS: bool = true;

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
    const LOOKS: bool = false;

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

/// The CPU core's memories.
pub struct CpuBus<X> {
    /// Special function registers.
    pub sfrs: Sfrs,
    /// XDATA.
    pub xdata: X,
    /// Code.
    pub code: CodeSpace,
}

impl<X: MemoryMapper> CpuContext for CpuBus<X> {
    type Ports = Sfrs;
    type Xdata = X;
    type Code = CodeSpace;

    #[inline(always)]
    fn ports(&self) -> &Sfrs {
        &self.sfrs
    }

    #[inline(always)]
    fn xdata(&self) -> &X {
        &self.xdata
    }

    #[inline(always)]
    fn code(&self) -> &CodeSpace {
        &self.code
    }

    #[inline(always)]
    fn ports_mut(&mut self) -> &mut Sfrs {
        &mut self.sfrs
    }

    #[inline(always)]
    fn xdata_mut(&mut self) -> &mut X {
        &mut self.xdata
    }

    #[inline(always)]
    fn code_mut(&mut self) -> &mut CodeSpace {
        &mut self.code
    }
}

/// Selects the code bank at 0x8000 with bit 0. Source: the bank-switch stubs at 0x0300 and 0x0311 of image 240417.
pub const SFR_CODE_BANK: u8 = 0x96;
/// Selects the XDATA page that MOVX reaches: 0 the main one, 1 the other. Source: the far-pointer routines at 0x0AC1
/// (read) and 0x0ADC (write) of image 240417, which write the pointer type minus 1 here around one MOVX.
pub const SFR_XDATA_PAGE: u8 = 0x93;

/// The 128 special function registers, which hold what was written. At reset all are 0, except the ports, which are
/// 0xFF.
#[derive(Clone, PartialEq, Eq)]
pub struct Sfrs {
    bytes: [u8; 128],
}

impl Default for Sfrs {
    fn default() -> Self {
        let mut sfrs = Self { bytes: [0; 128] };
        for port in [0x80, 0x90, 0xA0, 0xB0] {
            sfrs.set(port, 0xFF);
        }
        sfrs
    }
}

impl Sfrs {
    /// Reads a register.
    #[inline(always)]
    pub fn get(&self, at: u8) -> u8 {
        self.bytes[usize::from(at.wrapping_sub(SFR_BASE) & 0x7F)]
    }

    /// Writes a register.
    #[inline(always)]
    pub fn set(&mut self, at: u8, value: u8) {
        self.bytes[usize::from(at.wrapping_sub(SFR_BASE) & 0x7F)] = value;
    }
}

impl PortMapper for Sfrs {
    type WriteValue = (u8, u8);

    #[inline(always)]
    fn interest<C: CpuView>(&self, _cpu: &C, _addr: u8) -> bool {
        true
    }

    #[inline(always)]
    fn pc_extension<C: CpuView>(&self, _cpu: &C) -> u16 {
        u16::from(self.get(SFR_CODE_BANK) & 1)
    }

    #[inline(always)]
    fn read<C: CpuView>(&self, _cpu: &C, addr: u8) -> u8 {
        self.get(addr)
    }

    /// Reads a port's latch, which is what was written, because nothing drives the pins. The CPU core also uses P2's
    /// latch as the high byte of `MOVX @Ri`, and panics without this method.
    #[inline(always)]
    fn read_latch<C: CpuView>(&self, _cpu: &C, addr: u8) -> u8 {
        self.get(addr)
    }

    #[inline(always)]
    fn prepare_write<C: CpuView>(&self, _cpu: &C, addr: u8, value: u8) -> (u8, u8) {
        (addr, value)
    }

    #[inline(always)]
    fn write(&mut self, (addr, value): (u8, u8)) {
        self.set(addr, value);
    }
}

const SPACE: usize = 0x1_0000;

/// An image's body, laid out so that a fetch is one index: `bank << 16 | address`.
///
/// Both halves contain the common area, because a fetch below 0x8000 does not depend on the bank.
#[derive(Clone)]
pub struct CodeSpace {
    bytes: Box<[u8; 2 * SPACE]>,
}

impl CodeSpace {
    /// Lays out the code of an image.
    pub fn new(image: &Image) -> Self {
        Self::from_body(image.body())
    }

    /// Lays out the code of a body: common area, bank 0, bank 1. Ignores bytes past the end of bank 1.
    pub fn from_body(body: &[u8]) -> Self {
        let mut bytes = Box::new([0; 2 * SPACE]);
        for (index, byte) in bytes.iter_mut().enumerate() {
            let at = CodeAddress::fetched((index / SPACE) as u8, index as u16);
            *byte = at.and_then(|at| body.get(at.body_offset().0 as usize)).copied().unwrap_or(0);
        }
        Self { bytes }
    }

    /// Returns the byte that the CPU fetches at `addr` while SFR 0x96 holds `bank`; 0 if there is no code.
    #[inline(always)]
    pub fn byte(&self, bank: u8, addr: u16) -> u8 {
        self.bytes[usize::from(bank & 1) * SPACE + usize::from(addr)]
    }
}

impl ReadOnlyMemoryMapper for CodeSpace {
    fn len(&self) -> u32 {
        self.bytes.len() as u32
    }

    #[inline(always)]
    fn read<C: CpuView>(&self, _cpu: &C, addr: u32) -> u8 {
        self.bytes[addr as usize & (2 * SPACE - 1)]
    }
}

/// Whether an access reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    /// MOVX A,@...
    Read,
    /// MOVX @...,A
    Write,
}

/// The bytes of both pages. Access through this type reaches no registers.
#[derive(Clone)]
pub struct XdataMemory {
    bytes: Box<[u8; 2 * XDATA_PAGE_LEN]>,
}

impl Default for XdataMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for XdataMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdataMemory").finish_non_exhaustive()
    }
}

impl XdataMemory {
    /// Creates both pages, filled with zeros.
    pub fn new() -> Self {
        Self { bytes: Box::new([0; 2 * XDATA_PAGE_LEN]) }
    }

    /// Returns the main page.
    pub fn main(&self) -> &[u8] {
        &self.bytes[..XDATA_PAGE_LEN]
    }

    /// Returns the main page for changing it.
    pub fn main_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..XDATA_PAGE_LEN]
    }

    /// Returns a word of the main page, with its high byte first, as the chip's registers hold it.
    pub(crate) fn word(&self, at: u16) -> u16 {
        let at = usize::from(at);
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Returns one page.
    pub fn page(&self, page: XdataPage) -> &[u8] {
        let (main, other) = self.bytes.split_at(XDATA_PAGE_LEN);
        match page {
            XdataPage::Main => main,
            XdataPage::Other => other,
        }
    }

    /// Returns the address that an index into both pages stands for.
    pub(crate) fn address(index: usize) -> XdataAddress {
        let page = if index < XDATA_PAGE_LEN { XdataPage::Main } else { XdataPage::Other };
        XdataAddress { page, addr: index as u16 }
    }

    /// Returns the byte at an index into both pages, the main one first.
    #[inline(always)]
    pub fn at(&self, index: usize) -> u8 {
        self.bytes[index & (2 * XDATA_PAGE_LEN - 1)]
    }

    /// Sets the byte at an index into both pages.
    #[inline(always)]
    pub fn set(&mut self, index: usize, value: u8) {
        self.bytes[index & (2 * XDATA_PAGE_LEN - 1)] = value;
    }
}

/// Returns an instruction as SDCC's assembler accepts it.
pub fn assembly(instruction: &Instruction) -> String {
    let mut text = instruction.mnemonic().as_str().to_ascii_lowercase();
    for (at, operand) in instruction.operands().as_slice().iter().enumerate() {
        text.push_str(if at == 0 { " " } else { ", " });
        text.push_str(&operand_text(instruction, operand));
    }
    text
}

fn operand_text(instruction: &Instruction, operand: &Operand) -> String {
    match *operand {
        Operand::A => "a".to_owned(),
        Operand::C => "c".to_owned(),
        Operand::AB => "ab".to_owned(),
        Operand::Dptr => "dptr".to_owned(),
        Operand::IndirectDptr => "@dptr".to_owned(),
        Operand::IndirectADptr => "@a+dptr".to_owned(),
        Operand::IndirectAPc => "@a+pc".to_owned(),
        Operand::Reg(n) => format!("r{n}"),
        Operand::IndirectReg(n) => format!("@r{n}"),
        Operand::Direct(at) => direct(at),
        Operand::Bit(at) => bit(at),
        Operand::BitNot(at) => format!("/{}", bit(at)),
        Operand::Imm8(value) => format!("#0x{value:02X}"),
        Operand::Imm16(value) => format!("#0x{value:04X}"),
        Operand::Rel(_) | Operand::Addr11(_) | Operand::Addr16(_) => {
            format!("0x{:04X}", instruction.target().unwrap_or_default())
        }
    }
}

/// Names of the special function registers that every 8051 has and the ASM2464PD shares.
const SFRS: [(u8, &str); 6] = [(0x81, "sp"), (0x82, "dpl"), (0x83, "dph"), (0xD0, "psw"), (0xE0, "acc"), (0xF0, "b")];

fn sfr(at: u8) -> Option<&'static str> {
    SFRS.iter().find(|(known, _)| *known == at).map(|(_, name)| *name)
}

fn direct(at: u8) -> String {
    sfr(at).map_or_else(|| format!("0x{at:02X}"), str::to_owned)
}

fn bit(at: u8) -> String {
    match sfr(at & 0xF8) {
        Some(register) if at >= 0x80 => format!("{register}.{}", at & 7),
        _ => format!("0x{at:02X}"),
    }
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{BANK_LEN, BANK1_BODY_START, Bank, BodyOffset};

    use super::*;

    #[test]
    fn every_byte_of_a_body_is_fetched_where_its_code_address_says() {
        let body: Vec<u8> = (0..BANK1_BODY_START + BANK_LEN).map(|offset| ((offset * 31) >> 4) as u8).collect();
        let code = CodeSpace::from_body(&body);
        let mut expected = [vec![0; SPACE], vec![0; SPACE]];
        for (offset, byte) in (0..).zip(body) {
            let at = BodyOffset(offset).code_address().unwrap();
            let selected: &[usize] = match at.bank() {
                Bank::Common => &[0, 1],
                Bank::Bank0 => &[0],
                Bank::Bank1 => &[1],
            };
            selected.iter().for_each(|selected| expected[*selected][usize::from(at.addr())] = byte);
        }
        for selected in [0, 1] {
            for addr in 0..=u16::MAX {
                let expected = expected[usize::from(selected)][usize::from(addr)];
                assert_eq!(code.byte(selected, addr), expected, "bank {selected} address {addr:#06x}");
            }
        }
    }
}
