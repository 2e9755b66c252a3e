//! The CPU with its memories, and how a routine is called on it.
//!
//! What the `i8051` crate 0.25 does otherwise than the silicon, and why it does not matter for this firmware: SUBB
//! leaves AC and OV alone and ADD's OV takes the operands as unsigned (Keil C51 compares signed numbers through an
//! XOR with 0x80; the only reader of OV in 240417, the division at 0x0C44, reads DIV's); a write to ACC as a direct
//! address leaves the parity flag (nothing reads P); AJMP and ACALL take their page from their own address rather
//! than from the next one (240417 has none in the last two bytes of a page).

use i8051::{Cpu, Register};

use super::bus::Bus;
use super::code_space::CodeSpace;
use super::error::RunError;
use super::observer::{Observer, Step};
use super::sfr::{SFR_CODE_BANK, Sfrs};
use super::xdata::{Registers, Xdata};
use crate::firmware::{Bank, CodeAddress};

/// What SP holds when the firmware's main program begins. Source: `MOV SP,#72h` at 0x4320 of image 240417.
pub const STACK_START: u8 = 0x72;

/// Where a called routine returns to: past the end of every bank, so that no code can stand there.
const SENTINEL: u16 = 0xFFF0;
/// Low byte of the current bank's return stub, which the bank-switch stubs at 0x0300 and 0x0311 push.
const RETURN_STUB_AT: u8 = 0x08;

/// A CPU register, to set or read between calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reg {
    /// The accumulator.
    A,
    /// B.
    B,
    /// The data pointer.
    Dptr,
    /// The program status word.
    Psw,
    /// The stack pointer.
    Sp,
    /// R0 to R7 of the register bank that PSW selects.
    R(u8),
}

impl Reg {
    fn register(self) -> Register {
        match self {
            Self::A => Register::A,
            Self::B => Register::B,
            Self::Dptr => Register::DPTR,
            Self::Psw => Register::PSW,
            Self::Sp => Register::SP,
            Self::R(n) => Register::R(n & 7),
        }
    }
}

/// A routine that returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Instructions executed, the routine's RET included.
    pub instructions: u64,
    /// The highest SP seen. The return address stands below `entry SP + 3`.
    pub stack_high_water: u8,
    /// R7: what Keil C51's 8-bit functions return.
    pub r7: u8,
}

/// The ASM2464PD's 8051. Interrupts never happen: what is called runs alone.
pub struct Machine<R> {
    cpu: Cpu,
    bus: Bus<Xdata<R>>,
    stack_limit: u8,
}

impl<R: Registers> Machine<R> {
    /// A machine with this code, its memories zero, SP at [`STACK_START`], bank 0 selected.
    pub fn new(code: CodeSpace, registers: R) -> Self {
        let mut cpu = Cpu::new();
        cpu.sp_set(STACK_START);
        let bus = Bus { sfrs: Sfrs::new(), xdata: Xdata::new(registers), code };
        let mut machine = Self { cpu, bus, stack_limit: 0xFF };
        machine.select_bank0();
        machine
    }

    /// XDATA.
    pub fn xdata(&self) -> &Xdata<R> {
        &self.bus.xdata
    }

    /// XDATA, to change.
    pub fn xdata_mut(&mut self) -> &mut Xdata<R> {
        &mut self.bus.xdata
    }

    /// IDATA: the 256 bytes of internal RAM, register banks and stack included.
    pub fn idata(&self) -> &[u8; 256] {
        &self.cpu.internal_ram
    }

    /// IDATA, to change.
    pub fn idata_mut(&mut self) -> &mut [u8; 256] {
        &mut self.cpu.internal_ram
    }

    /// Code.
    pub fn code(&self) -> &CodeSpace {
        &self.bus.code
    }

    /// Code, to change.
    pub fn code_mut(&mut self) -> &mut CodeSpace {
        &mut self.bus.code
    }

    /// A CPU register.
    pub fn reg(&self, reg: Reg) -> u16 {
        self.cpu.register(reg.register())
    }

    /// Sets a CPU register. 8-bit registers take the low byte.
    pub fn set_reg(&mut self, reg: Reg, value: u16) {
        self.cpu.register_set(reg.register(), value);
    }

    /// A special function register outside the CPU core, such as 0x96.
    pub fn sfr(&self, at: u8) -> u8 {
        self.bus.sfrs.get(at)
    }

    /// The highest SP that a routine may reach; 0xFF, the end of IDATA, until this is called.
    pub fn set_stack_limit(&mut self, limit: u8) {
        self.stack_limit = limit;
    }

    /// Calls a routine and runs it until it returns. A routine in a bank is called as the bank-switch stubs call it:
    /// SFR 0x96 selects its bank and IDATA 0x08 holds the low byte of that bank's return stub. One in the common area
    /// runs with the bank that is selected, which is bank 0 until something changes it.
    ///
    /// # Errors
    /// [`RunError`] where it does not return within `budget` instructions, leaves the code, or breaks the stack.
    pub fn call(&mut self, entry: CodeAddress, budget: u64) -> Result<Outcome, RunError> {
        self.call_observed(entry, budget, &mut ())
    }

    /// [`Machine::call`], with each instruction shown to an observer first.
    ///
    /// # Errors
    /// As [`Machine::call`].
    pub fn call_observed<O: Observer>(
        &mut self,
        entry: CodeAddress,
        budget: u64,
        observer: &mut O,
    ) -> Result<Outcome, RunError> {
        match entry.bank() {
            Bank::Common => {}
            Bank::Bank0 => self.select_bank0(),
            Bank::Bank1 => self.select_bank(1, 0x1B),
        }
        let entry_sp = self.cpu.sp();
        self.cpu.push_stack16(SENTINEL);
        self.cpu.pc = entry.addr();
        let result = self.run(entry, entry_sp, budget, observer);
        if result.is_err() {
            self.cpu.sp_set(entry_sp);
        }
        result
    }

    /// As the main program runs: bank 0 selected, and its return stub known to the bank-switch stubs.
    pub(super) fn select_bank0(&mut self) {
        self.select_bank(0, 0x0A);
    }

    fn select_bank(&mut self, bank: u8, return_stub: u8) {
        self.bus.sfrs.set(SFR_CODE_BANK, bank);
        self.cpu.internal_ram[usize::from(RETURN_STUB_AT)] = return_stub;
    }

    fn run<O: Observer>(
        &mut self,
        entry: CodeAddress,
        entry_sp: u8,
        budget: u64,
        observer: &mut O,
    ) -> Result<Outcome, RunError> {
        let mut sp = self.cpu.sp();
        let mut high_water = sp;
        let mut last = entry;
        for number in 0..budget {
            let pc = self.cpu.pc;
            let bank = self.bus.sfrs.get(SFR_CODE_BANK) & 1;
            let inside = pc < self.bus.code.end(bank);
            let Some(at) = CodeAddress::fetched(bank, pc).filter(|_| inside) else {
                return Err(RunError::OutsideCode { entry, from: last, bank, to: pc, end: self.bus.code.end(bank) });
            };
            let opcode = self.bus.code.byte(bank, pc);
            observer.before(&Step { at, number, now: number, cpu: &self.cpu, opcode, bank, code: &self.bus.code });
            last = at;
            let running = self.cpu.step(&mut self.bus);
            let new_sp = self.cpu.sp();
            if new_sp != sp {
                // One instruction pushes at most two bytes: a fall to a lower address is a wrap.
                let pushed = new_sp.wrapping_sub(sp) <= 2;
                if pushed && (new_sp < sp || new_sp > self.stack_limit) {
                    return Err(RunError::StackOverflow { entry, at, limit: self.stack_limit });
                }
                if !pushed && new_sp <= entry_sp {
                    if new_sp == entry_sp && self.cpu.pc == SENTINEL {
                        let r7 = self.cpu.r(7);
                        return Ok(Outcome { instructions: number + 1, stack_high_water: high_water, r7 });
                    }
                    return Err(RunError::StackUnderflow { entry, at });
                }
                sp = new_sp;
                high_water = high_water.max(sp);
            }
            if !running {
                return Err(RunError::Halted { entry, at });
            }
        }
        Err(RunError::Budget { entry, budget, at: last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcu::{AccessKind, PlainMemory, Trace, XdataMemory};
    use crate::scsi::XdataPage;

    const BUDGET: u64 = 10_000;

    fn at(text: &str) -> CodeAddress {
        text.parse().unwrap()
    }

    fn machine_with<R: Registers>(registers: R, hunks: &[(&str, &[u8])]) -> Machine<R> {
        let mut code = CodeSpace::from_body(&[0; 0x17ED6]);
        for (place, bytes) in hunks {
            assert!(code.replace(at(place), bytes));
        }
        Machine::new(code, registers)
    }

    fn machine(hunks: &[(&str, &[u8])]) -> Machine<PlainMemory> {
        machine_with(PlainMemory, hunks)
    }

    #[test]
    fn a_routine_returns_what_it_left_in_r7_with_instructions_and_stack_counted() {
        // MOV R7,#5; LCALL 0x100; RET / RET
        let mut machine = machine(&[("c:0x0000", &[0x7F, 5, 0x12, 0x01, 0x00, 0x22]), ("c:0x0100", &[0x22])]);
        let outcome = machine.call(at("c:0x0000"), BUDGET).unwrap();
        assert_eq!(outcome, Outcome { instructions: 4, stack_high_water: STACK_START + 4, r7: 5 });
        assert_eq!(machine.reg(Reg::Sp), u16::from(STACK_START), "the stack is balanced");
    }

    #[test]
    fn sfr_0x96_selects_the_bank_that_is_fetched_from() {
        // Common: MOV 96h,#1; LCALL 0x8000; MOV 96h,#0; RET. The banks return different values.
        let common = [0x75, 0x96, 1, 0x12, 0x80, 0x00, 0x75, 0x96, 0, 0x22];
        let mut machine =
            machine(&[("c:0x0000", &common), ("b0:0x8000", &[0x7F, 0xB0, 0x22]), ("b1:0x8000", &[0x7F, 0xB1, 0x22])]);
        assert_eq!(machine.call(at("c:0x0000"), BUDGET).unwrap().r7, 0xB1);
        assert_eq!(machine.call(at("b0:0x8000"), BUDGET).unwrap().r7, 0xB0);
        assert_eq!((machine.sfr(SFR_CODE_BANK), machine.idata()[0x08]), (0, 0x0A));
        assert_eq!(machine.call(at("b1:0x8000"), BUDGET).unwrap().r7, 0xB1);
        assert_eq!((machine.sfr(SFR_CODE_BANK), machine.idata()[0x08]), (1, 0x1B));
    }

    #[test]
    fn sfr_0x93_selects_the_xdata_page_that_movx_reaches() {
        // MOV DPTR,#1234; MOV 93h,#1; MOVX A,@DPTR; MOV 93h,#0; MOVX @DPTR,A; RET
        let code = [0x90, 0x12, 0x34, 0x75, 0x93, 1, 0xE0, 0x75, 0x93, 0, 0xF0, 0x22];
        let mut machine = machine(&[("c:0x0000", &code)]);
        machine.xdata_mut().memory_mut().page_mut(XdataPage::Other)[0x1234] = 0x5A;
        machine.xdata_mut().record(|_, block| block == 0x12);
        machine.call(at("c:0x0000"), BUDGET).unwrap();
        assert_eq!(machine.xdata().memory().main()[0x1234], 0x5A);
        let seen = machine.xdata_mut().take_accesses();
        let seen: Vec<_> =
            seen.iter().map(|access| (access.kind, access.at.page, access.at.addr, access.value)).collect();
        assert_eq!(
            seen,
            [(AccessKind::Read, XdataPage::Other, 0x1234, 0x5A), (AccessKind::Write, XdataPage::Main, 0x1234, 0x5A)]
        );
    }

    #[test]
    fn movx_at_ri_takes_its_high_byte_from_p2() {
        // MOV P2,#20; MOV R0,#34; MOVX A,@R0; MOV R7,A; RET
        let mut machine = machine(&[("c:0x0000", &[0x75, 0xA0, 0x20, 0x78, 0x34, 0xE2, 0xFF, 0x22])]);
        machine.xdata_mut().memory_mut().main_mut()[0x2034] = 0x77;
        assert_eq!(machine.call(at("c:0x0000"), BUDGET).unwrap().r7, 0x77);
    }

    struct Counter(u8);

    impl Registers for Counter {
        fn hooks(&self, block: u8) -> bool {
            block == 0xC8
        }
        fn read(&mut self, addr: u16, stored: u8) -> u8 {
            if addr == 0xC8A0 {
                self.0 += 1;
                self.0
            } else {
                stored
            }
        }
        fn write(&mut self, addr: u16, value: u8, memory: &mut XdataMemory) {
            if addr == 0xC8A1 {
                memory.main_mut()[0x7000] = !value;
            }
        }
    }

    #[test]
    fn a_register_changes_when_it_is_read_and_acts_when_it_is_written() {
        // MOV DPTR,#C8A0; MOVX A,@DPTR; MOVX A,@DPTR; INC DPTR; MOVX @DPTR,A; RET
        let code = [0x90, 0xC8, 0xA0, 0xE0, 0xE0, 0xA3, 0xF0, 0x22];
        let mut machine = machine_with(Counter(0), &[("c:0x0000", &code)]);
        machine.call(at("c:0x0000"), BUDGET).unwrap();
        assert_eq!(machine.xdata_mut().registers_mut().0, 2);
        assert_eq!(machine.xdata().memory().main()[0x7000], !2);
    }

    #[test]
    fn a_routine_that_never_returns_ends_at_its_budget() {
        // JNB ACC.0,$
        let mut machine = machine(&[("c:0x0000", &[0x30, 0xE0, 0xFD])]);
        let error = machine.call(at("c:0x0000"), 500).unwrap_err();
        assert_eq!(error, RunError::Budget { entry: at("c:0x0000"), budget: 500, at: at("c:0x0000") });
    }

    #[test]
    fn a_jump_to_itself_is_told_at_once() {
        let mut machine = machine(&[("c:0x0000", &[0x00, 0x80, 0xFE])]);
        let error = machine.call(at("c:0x0000"), u64::MAX).unwrap_err();
        assert_eq!(error, RunError::Halted { entry: at("c:0x0000"), at: at("c:0x0001") });
    }

    #[test]
    fn a_jump_outside_code_names_both_ends() {
        // LJMP 0xFF6B, one byte past the bank.
        let mut machine = machine(&[("c:0x0000", &[0x02, 0xFF, 0x6B])]);
        let error = machine.call(at("c:0x0000"), BUDGET).unwrap_err();
        let expected =
            RunError::OutsideCode { entry: at("c:0x0000"), from: at("c:0x0000"), bank: 0, to: 0xFF6B, end: 0xFF6B };
        assert_eq!(error, expected);
    }

    #[test]
    fn endless_calls_overflow_the_stack() {
        // LCALL 0
        let mut machine = machine(&[("c:0x0000", &[0x12, 0x00, 0x00])]);
        let error = machine.call(at("c:0x0000"), BUDGET).unwrap_err();
        assert_eq!(error, RunError::StackOverflow { entry: at("c:0x0000"), at: at("c:0x0000"), limit: 0xFF });
        machine.set_stack_limit(0x80);
        let error = machine.call(at("c:0x0000"), BUDGET).unwrap_err();
        assert!(matches!(error, RunError::StackOverflow { limit: 0x80, .. }));
    }

    #[test]
    fn popping_the_callers_return_address_is_an_underflow() {
        // POP ACC; RET
        let mut machine = machine(&[("c:0x0000", &[0xD0, 0xE0, 0x22])]);
        let error = machine.call(at("c:0x0000"), BUDGET).unwrap_err();
        assert!(matches!(error, RunError::StackUnderflow { .. }), "{error:?}");
    }

    #[test]
    fn a_trace_keeps_the_last_instructions_with_the_registers_before_them() {
        let mut machine = machine(&[("c:0x0000", &[0x74, 0x11, 0x04, 0x04, 0x22])]);
        let mut trace = Trace::last(2);
        machine.call_observed(at("c:0x0000"), BUDGET, &mut trace).unwrap();
        let lines: Vec<_> = trace.lines().map(|line| (line.number, line.instruction.as_string(), line.a)).collect();
        assert_eq!(lines, [(2, "INC A".to_owned(), 0x12), (3, "RET".to_owned(), 0x13)]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_as_code_end_within_the_budget_without_a_panic(
            code in proptest::collection::vec(proptest::num::u8::ANY, 1..600),
            start in 0u16..300,
        ) {
            let mut body = vec![0; 0x17ED6];
            for (index, byte) in body.iter_mut().enumerate() { *byte = code[index % code.len()]; }
            let mut machine = Machine::new(CodeSpace::from_body(&body), PlainMemory);
            let entry = CodeAddress::new(Bank::Common, start).unwrap();
            if let Ok(outcome) = machine.call(entry, 3_000) {
                proptest::prop_assert!(outcome.instructions <= 3_000);
            }
        }
    }
}
