//! XDATA: two 64 KiB pages of memory, registers that hang on them, and a record of what was touched.

use std::cell::RefCell;
use std::fmt;

use i8051::{CpuView, MemoryMapper};

use super::sfr::SFR_XDATA_PAGE;
use crate::scsi::{XdataAddress, XdataPage};

const PAGE: usize = 0x1_0000;
/// 256-byte blocks in both pages: the grain at which accesses are watched.
const BLOCKS: usize = 2 * PAGE / 0x100;
const RECORDED: u8 = 1;
const HOOKED: u8 = 2;

/// Whether an access reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// MOVX A,@...
    Read,
    /// MOVX @...,A
    Write,
}

/// One recorded access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// Read or write.
    pub kind: AccessKind,
    /// Where.
    pub at: XdataAddress,
    /// What was read or written.
    pub value: u8,
}

/// What hangs on XDATA of the main page besides memory.
pub trait Registers: Send {
    /// Whether reads and writes in the 256 bytes from `block << 8` go through [`Registers::read`] and
    /// [`Registers::write`]. Asked once, when the machine is made.
    fn hooks(&self, block: u8) -> bool;

    /// The CPU reads `addr`, where memory holds `stored`. What is returned is what the CPU gets; memory is not changed.
    fn read(&mut self, addr: u16, stored: u8) -> u8;

    /// The CPU writes `value` to `addr`. Memory already holds it, and may be changed further.
    fn write(&mut self, addr: u16, value: u8, memory: &mut XdataMemory);
}

/// No registers: every address is memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainMemory;

impl Registers for PlainMemory {
    fn hooks(&self, _block: u8) -> bool {
        false
    }

    fn read(&mut self, _addr: u16, stored: u8) -> u8 {
        stored
    }

    fn write(&mut self, _addr: u16, _value: u8, _memory: &mut XdataMemory) {}
}

/// The bytes of both pages. Access through this is not recorded and reaches no registers.
#[derive(Clone)]
pub struct XdataMemory {
    bytes: Box<[u8; 2 * PAGE]>,
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
    /// Zeros.
    pub fn new() -> Self {
        Self { bytes: Box::new([0; 2 * PAGE]) }
    }

    /// Sets both pages to zero.
    pub fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// The main page.
    pub fn main(&self) -> &[u8] {
        &self.bytes[..PAGE]
    }

    /// The main page, to change.
    pub fn main_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..PAGE]
    }

    /// One page.
    pub fn page(&self, page: XdataPage) -> &[u8] {
        match page {
            XdataPage::Main => &self.bytes[..PAGE],
            XdataPage::Other => &self.bytes[PAGE..],
        }
    }

    /// One page, to change.
    pub fn page_mut(&mut self, page: XdataPage) -> &mut [u8] {
        match page {
            XdataPage::Main => &mut self.bytes[..PAGE],
            XdataPage::Other => &mut self.bytes[PAGE..],
        }
    }

    /// The byte at an index into both pages, the main one first.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> u8 {
        self.bytes[index & (2 * PAGE - 1)]
    }

    /// Sets the byte at an index into both pages.
    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, value: u8) {
        self.bytes[index & (2 * PAGE - 1)] = value;
    }

    /// Copies bytes into a page. They wrap from 0xFFFF to 0x0000, as an address that is counted up does.
    pub fn load(&mut self, at: XdataAddress, bytes: &[u8]) {
        let page = self.page_mut(at.page);
        for (index, byte) in bytes.iter().enumerate() {
            page[(usize::from(at.addr) + index) & (PAGE - 1)] = *byte;
        }
    }
}

/// XDATA as the CPU sees it.
pub struct Xdata<R> {
    memory: XdataMemory,
    watch: Box<[u8; BLOCKS]>,
    // The CPU core reads through a shared reference, and a register may change when it is read.
    watched: RefCell<Watched<R>>,
}

struct Watched<R> {
    registers: R,
    accesses: Vec<Access>,
}

impl<R: Registers> Xdata<R> {
    pub(super) fn new(registers: R) -> Self {
        let mut watch = Box::new([0; BLOCKS]);
        for block in 0..=u8::MAX {
            if registers.hooks(block) {
                watch[usize::from(block)] = HOOKED;
            }
        }
        Self { memory: XdataMemory::new(), watch, watched: RefCell::new(Watched { registers, accesses: Vec::new() }) }
    }

    /// Memory.
    pub fn memory(&self) -> &XdataMemory {
        &self.memory
    }

    /// Memory, to change.
    pub fn memory_mut(&mut self) -> &mut XdataMemory {
        &mut self.memory
    }

    /// The registers.
    pub fn registers_mut(&mut self) -> &mut R {
        &mut self.watched.get_mut().registers
    }

    /// Records accesses from now on, where `wanted` says so of a page and a 256-byte block (`address >> 8`).
    pub fn record(&mut self, wanted: impl Fn(XdataPage, u8) -> bool) {
        for (index, watch) in self.watch.iter_mut().enumerate() {
            let page = if index < 0x100 { XdataPage::Main } else { XdataPage::Other };
            if wanted(page, (index & 0xFF) as u8) {
                *watch |= RECORDED;
            } else {
                *watch &= !RECORDED;
            }
        }
    }

    /// The accesses recorded since the last call, in order.
    pub fn take_accesses(&mut self) -> Vec<Access> {
        std::mem::take(&mut self.watched.get_mut().accesses)
    }

    #[cold]
    fn read_watched(&self, index: usize, watch: u8) -> u8 {
        let mut watched = self.watched.borrow_mut();
        let mut value = self.memory.bytes[index];
        if watch & HOOKED != 0 {
            value = watched.registers.read(index as u16, value);
        }
        if watch & RECORDED != 0 {
            watched.accesses.push(Access { kind: AccessKind::Read, at: address(index), value });
        }
        value
    }

    #[cold]
    fn write_watched(&mut self, index: usize, value: u8, watch: u8) {
        let watched = self.watched.get_mut();
        if watch & RECORDED != 0 {
            watched.accesses.push(Access { kind: AccessKind::Write, at: address(index), value });
        }
        if watch & HOOKED != 0 {
            watched.registers.write(index as u16, value, &mut self.memory);
        }
    }
}

fn address(index: usize) -> XdataAddress {
    let page = if index < PAGE { XdataPage::Main } else { XdataPage::Other };
    XdataAddress { page, addr: (index & (PAGE - 1)) as u16 }
}

#[inline(always)]
fn index<C: CpuView>(cpu: &C, addr: u32) -> usize {
    let page = usize::from(cpu.sfr(SFR_XDATA_PAGE) & 1);
    page << 16 | (addr as usize & (PAGE - 1))
}

impl<R: Registers> MemoryMapper for Xdata<R> {
    type WriteValue = (u32, u8);

    fn len(&self) -> u32 {
        PAGE as u32
    }

    #[inline(always)]
    fn read<C: CpuView>(&self, cpu: &C, addr: u32) -> u8 {
        let index = index(cpu, addr);
        match self.watch[index >> 8] {
            0 => self.memory.bytes[index],
            watch => self.read_watched(index, watch),
        }
    }

    #[inline(always)]
    fn prepare_write<C: CpuView>(&self, cpu: &C, addr: u32, value: u8) -> (u32, u8) {
        (index(cpu, addr) as u32, value)
    }

    #[inline(always)]
    fn write(&mut self, (index, value): (u32, u8)) {
        let index = index as usize & (2 * PAGE - 1);
        self.memory.bytes[index] = value;
        let watch = self.watch[index >> 8];
        if watch != 0 {
            self.write_watched(index, value, watch);
        }
    }
}
