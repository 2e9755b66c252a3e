//! XDATA as the CPU reaches it: memory directly, registers through their block.

use std::cell::RefCell;

use asm2464::scsi::{XDATA_PAGE_LEN, XdataAddress, XdataPage};
use i8051::{CpuView, MemoryMapper};

use super::map::{self, Block, aliased, asked, owners};
use super::peripherals::{Peripherals, Watch};
use super::reset::{self, Board};
use crate::mcu::{SFR_XDATA_PAGE, XdataMemory};

/// Maximum number of changed bytes remembered during the idle check.
const JOURNAL: usize = 256;

/// Bytes written since [`Xdata::begin_journal`], each with its earlier value. Once full, it misses writes.
#[derive(Debug, Default)]
pub(super) struct Journal {
    is_on: bool,
    before: Vec<(u32, u8)>,
}

pub(super) struct Xdata {
    memory: XdataMemory,
    owners: Box<[Block]>,
    /// The block to call for each read, and for each write.
    readers: Box<[Block]>,
    writers: Box<[Block]>,
    journal: Journal,
    board: Board,
    // The CPU core reads through a shared reference, but reads have effects on registers.
    peripherals: RefCell<Peripherals>,
}

/// A write, with the address of its instruction.
pub(super) struct Write {
    index: u32,
    pc: u32,
    value: u8,
}

impl Xdata {
    pub(super) fn new(peripherals: Peripherals) -> Self {
        let owners = owners();
        let [readers, writers] = asked(&owners);
        let (mut memory, journal) = (XdataMemory::new(), Journal::default());
        let board = Board::default();
        reset::load(&mut memory, board);
        Self { memory, owners, readers, writers, journal, board, peripherals: RefCell::new(peripherals) }
    }

    pub(super) fn board(&self) -> Board {
        self.board
    }

    pub(super) fn set_board(&mut self, board: Board) {
        self.board = board;
        board.show(&mut self.memory);
        let peripherals = self.peripherals.get_mut();
        (peripherals.pcie_link.early_lanes, peripherals.i2c.sensor) = (board.early_lanes, board.supply);
    }

    /// Watches registers, wire and serial port from now on; `None` ends it. Returns the previous watch.
    pub(super) fn set_watch(&mut self, watch: Option<Box<dyn Watch>>) -> Option<Box<dyn Watch>> {
        [self.readers, self.writers] = match watch {
            // A watch sees every register.
            Some(_) => [self.owners.clone(), self.owners.clone()],
            None => asked(&self.owners),
        };
        std::mem::replace(&mut self.peripherals.get_mut().watch, watch)
    }

    /// Resets every register. RAM stays.
    pub(super) fn reset(&mut self) {
        for (index, owner) in self.owners.iter().enumerate() {
            if *owner != Block::Ram {
                self.memory.set(index, 0);
            }
        }
        reset::load(&mut self.memory, self.board);
        self.peripherals.get_mut().reset();
    }

    pub(super) fn memory(&self) -> &XdataMemory {
        &self.memory
    }

    #[inline(always)]
    pub(super) fn peripherals_mut(&mut self) -> &mut Peripherals {
        self.peripherals.get_mut()
    }

    /// The blocks, and the memory that they work on.
    pub(super) fn parts(&mut self) -> (&mut Peripherals, &mut XdataMemory) {
        (self.peripherals.get_mut(), &mut self.memory)
    }

    pub(super) fn into_peripherals(self) -> Peripherals {
        self.peripherals.into_inner()
    }

    /// Starts to record the earlier values of the bytes that are written.
    pub(super) fn begin_journal(&mut self) {
        self.journal.is_on = true;
        self.journal.before.clear();
    }

    pub(super) fn end_journal(&mut self) {
        self.journal.is_on = false;
    }

    /// Whether the journal is full.
    #[inline(always)]
    pub(super) fn has_lost_count(&self) -> bool {
        self.journal.before.len() >= JOURNAL
    }

    /// Whether memory holds what it held at [`Xdata::begin_journal`].
    pub(super) fn is_as_before(&self) -> bool {
        let journal = &self.journal.before;
        // An address's first entry has its value from the beginning.
        !self.has_lost_count()
            && journal.iter().enumerate().all(|(number, (index, before))| {
                self.memory.at(*index as usize) == *before
                    || journal[..number].iter().any(|(earlier, _)| earlier == index)
            })
    }

    #[cold]
    fn read_alias(&self, index: usize, pc: u32) -> u8 {
        let index = aliased(index);
        self.peripherals.borrow_mut().read(self.owners[index], index, pc, &self.memory)
    }

    #[cold]
    fn write_alias(&mut self, index: usize, value: u8, pc: u32) {
        let index = aliased(index);
        if self.journal.is_on {
            self.remember(index, self.memory.at(index));
        }
        self.peripherals.get_mut().write(self.owners[index], index, value, pc, &mut self.memory);
    }

    #[cold]
    fn remember(&mut self, index: usize, before: u8) {
        if self.journal.before.len() < JOURNAL {
            self.journal.before.push((index as u32, before));
        }
    }

    /// Reads a byte as the CPU would now, without side effects.
    pub(super) fn peek(&self, at: XdataAddress) -> u8 {
        let page = if at.page == XdataPage::Main { 0 } else { XDATA_PAGE_LEN };
        let index = page + usize::from(at.addr);
        match self.owners[index] {
            Block::Ram | Block::Unknown => self.memory.at(index),
            Block::Alias => self.peek(XdataAddress { addr: aliased(index) as u16, ..at }),
            block => {
                let mut peripherals = self.peripherals.borrow_mut();
                let watch = peripherals.watch.take();
                let value = peripherals.read(block, index, 0, &self.memory);
                peripherals.watch = watch;
                value
            }
        }
    }

    /// Writes a byte as the CPU would, but neither the watch nor the list of unknown registers gets the access.
    pub(super) fn poke(&mut self, at: XdataAddress, value: u8) {
        let page = if at.page == XdataPage::Main { 0 } else { XDATA_PAGE_LEN };
        let index = page + usize::from(at.addr);
        match self.owners[index] {
            Block::Ram => self.memory.set(index, value),
            Block::Alias => self.poke(XdataAddress { addr: aliased(index) as u16, ..at }, value),
            Block::Unknown => self.memory.set(index, map::settled(index, value)),
            block => {
                let peripherals = self.peripherals.get_mut();
                let watch = peripherals.watch.take();
                peripherals.write(block, index, value, 0, &mut self.memory);
                peripherals.watch = watch;
            }
        }
    }
}

#[inline(always)]
fn index<C: CpuView>(cpu: &C, addr: u32) -> usize {
    let page = usize::from(cpu.sfr(SFR_XDATA_PAGE) & 1);
    page << 16 | (addr as usize & (XDATA_PAGE_LEN - 1))
}

impl MemoryMapper for Xdata {
    type WriteValue = Write;

    fn len(&self) -> u32 {
        XDATA_PAGE_LEN as u32
    }

    #[inline(always)]
    fn read<C: CpuView>(&self, cpu: &C, addr: u32) -> u8 {
        let index = index(cpu, addr);
        match self.readers[index] {
            Block::Ram => self.memory.at(index),
            Block::Alias => self.read_alias(index, cpu.pc_ext()),
            block => self.peripherals.borrow_mut().read(block, index, cpu.pc_ext(), &self.memory),
        }
    }

    #[inline(always)]
    fn prepare_write<C: CpuView>(&self, cpu: &C, addr: u32, value: u8) -> Write {
        Write { index: index(cpu, addr) as u32, pc: cpu.pc_ext(), value }
    }

    #[inline(always)]
    fn write(&mut self, write: Write) {
        let index = write.index as usize & (2 * XDATA_PAGE_LEN - 1);
        if self.journal.is_on {
            let before = self.memory.at(index);
            self.remember(index, before);
        }
        match self.writers[index] {
            Block::Ram => self.memory.set(index, write.value),
            Block::Alias => self.write_alias(index, write.value, write.pc),
            block => self.peripherals.get_mut().write(block, index, write.value, write.pc, &mut self.memory),
        }
    }
}
