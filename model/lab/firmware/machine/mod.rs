//! The 8051 with an image's code and memory, to call single routines without a chip or interrupts.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a panic is how a test fails")]

use std::cell::RefCell;

use asm2464::firmware::{Bank, CodeAddress, Image};
use asm2464::scsi::{XdataAddress, XdataPage};
use asm2464_chip::mcu::{AccessKind, CodeSpace, CpuBus, SFR_CODE_BANK, SFR_XDATA_PAGE, Sfrs, XdataMemory};
use i8051::{Cpu, CpuView, MemoryMapper};

/// SP when the firmware's main program begins. Source: `MOV SP,#72h` at 0x4320 of image 240417.
pub const STACK_START: u8 = 0x72;
/// Return address of a called routine: past the end of every bank, where no code can be.
const SENTINEL: u16 = 0xFFF0;
/// IDATA address of the low byte of the current bank's return stub, which the bank-switch stubs at 0x0300 and 0x0311
/// push.
const RETURN_STUB: usize = 0x08;
const PAGE: usize = 0x1_0000;

/// Registers in the main page of XDATA.
pub trait Registers {
    /// Returns the value that the CPU reads at `addr`, where memory holds `stored`.
    fn read(&mut self, addr: u16, stored: u8) -> u8;
}

/// No registers: every address is plain memory.
pub struct PlainMemory;

impl Registers for PlainMemory {
    fn read(&mut self, _addr: u16, stored: u8) -> u8 {
        stored
    }
}

/// One access to XDATA.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Access {
    pub kind: AccessKind,
    pub at: XdataAddress,
    pub value: u8,
}

/// XDATA: memory, registers, and a record of all accesses in order.
pub struct Xdata<R> {
    pub memory: XdataMemory,
    // The CPU core reads through a shared reference, but a read may change a register.
    watched: RefCell<(R, Vec<Access>)>,
}

fn place<C: CpuView>(cpu: &C, addr: u32) -> XdataAddress {
    let page = if cpu.sfr(SFR_XDATA_PAGE) & 1 == 0 { XdataPage::Main } else { XdataPage::Other };
    XdataAddress { page, addr: addr as u16 }
}

impl<R: Registers> MemoryMapper for Xdata<R> {
    type WriteValue = (XdataAddress, u8);

    fn len(&self) -> u32 {
        PAGE as u32
    }

    fn read<C: CpuView>(&self, cpu: &C, addr: u32) -> u8 {
        let at = place(cpu, addr);
        let (registers, accesses) = &mut *self.watched.borrow_mut();
        let stored = self.memory.page(at.page)[usize::from(at.addr)];
        let value = if at.page == XdataPage::Main { registers.read(at.addr, stored) } else { stored };
        accesses.push(Access { kind: AccessKind::Read, at, value });
        value
    }

    fn prepare_write<C: CpuView>(&self, cpu: &C, addr: u32, value: u8) -> (XdataAddress, u8) {
        (place(cpu, addr), value)
    }

    fn write(&mut self, (at, value): (XdataAddress, u8)) {
        self.watched.get_mut().1.push(Access { kind: AccessKind::Write, at, value });
        let page = if at.page == XdataPage::Main { 0 } else { PAGE };
        self.memory.set(page + usize::from(at.addr), value);
    }
}

/// Result of a routine that returned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Returned {
    /// Number of executed instructions, including the routine's RET.
    pub instructions: u64,
    /// The highest SP. The return address takes the bytes below `entry SP + 3`.
    pub stack_high_water: u8,
    /// R7, in which Keil C51 returns 8-bit values.
    pub r7: u8,
}

/// The CPU with its memories.
pub struct Machine<R> {
    cpu: Cpu,
    bus: CpuBus<Xdata<R>>,
}

impl<R: Registers> Machine<R> {
    /// Makes a machine with an image's code and zeroed memories.
    pub fn new(image: &Image, registers: R) -> Self {
        let mut cpu = Cpu::new();
        cpu.sp_set(STACK_START);
        let xdata = Xdata { memory: XdataMemory::new(), watched: RefCell::new((registers, Vec::new())) };
        Self { cpu, bus: CpuBus { sfrs: Sfrs::default(), xdata, code: CodeSpace::new(image) } }
    }

    pub fn memory(&mut self) -> &mut XdataMemory {
        &mut self.bus.xdata.memory
    }

    pub fn registers(&mut self) -> &mut R {
        &mut self.bus.xdata.watched.get_mut().0
    }

    /// Takes the accesses since the last call, in order.
    pub fn take_accesses(&mut self) -> Vec<Access> {
        std::mem::take(&mut self.bus.xdata.watched.get_mut().1)
    }

    pub fn idata(&mut self) -> &mut [u8; 256] {
        &mut self.cpu.internal_ram
    }

    pub fn sfr(&self, at: u8) -> u8 {
        self.bus.sfrs.get(at)
    }

    /// Calls a routine as the bank-switch stubs do, and runs it until it returns. A routine in the common area runs
    /// with the selected bank. Panics if the routine doesn't return within `budget` instructions, leaves its code, or
    /// pops more than it pushed.
    pub fn call(&mut self, entry: CodeAddress, budget: u64) -> Returned {
        let selected = match entry.bank() {
            Bank::Common => None,
            Bank::Bank0 => Some((0, 0x0A)),
            Bank::Bank1 => Some((1, 0x1B)),
        };
        if let Some((bank, stub)) = selected {
            self.bus.sfrs.set(SFR_CODE_BANK, bank);
            self.cpu.internal_ram[RETURN_STUB] = stub;
        }
        let entry_sp = self.cpu.sp();
        self.cpu.push_stack16(SENTINEL);
        self.cpu.pc = entry.addr();
        let mut stack_high_water = self.cpu.sp();
        for instructions in 1..=budget {
            let (bank, pc) = (self.bus.sfrs.get(SFR_CODE_BANK) & 1, self.cpu.pc);
            assert!(
                CodeAddress::fetched(bank, pc).is_some(),
                "{entry} runs to {pc:#06x} in bank {bank}, outside its code"
            );
            assert!(self.cpu.step(&mut self.bus), "{entry} stops in a jump to itself at {pc:#06x} in bank {bank}");
            let sp = self.cpu.sp();
            if sp == entry_sp && self.cpu.pc == SENTINEL {
                return Returned { instructions, stack_high_water, r7: self.cpu.r(7) };
            }
            assert!(
                sp > entry_sp,
                "{entry} takes more from the stack than it put there, or overflows it, at {pc:#06x}"
            );
            stack_high_water = stack_high_water.max(sp);
        }
        panic!("{entry} does not return within {budget} instructions")
    }
}
