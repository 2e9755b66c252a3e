//! The register map as a table: the block that owns an XDATA address, and the register's name. Lists the registers off
//! the map that the firmware touched, with the place of the first access.

use asm2464::scsi::{XDATA_PAGE_LEN, XdataAddress};

use super::{engine, ep0, flash, link, msc, nvme, pcie, serial, sram, timers, uas, usb};
use crate::mcu::{AccessKind, XdataMemory};

/// The block that an XDATA address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Block {
    /// Plain memory.
    Ram,
    /// A register that no block models. It holds what was written, and its first read and write are recorded.
    Unknown,
    /// A second address of another register.
    Alias,
    /// Interrupt sources.
    Interrupts,
    /// The four timers.
    Timers,
    /// The serial port.
    Uart,
    /// The SPI flash controller.
    Flash,
    /// The control endpoint.
    Ep0,
    /// The bulk data endpoints.
    Bulk,
    /// Endpoint halts.
    Halts,
    /// The mass storage engine: CBW, CSW, status of all commands.
    Msc,
    /// The UAS engine.
    Uas,
    /// The SRAM behind its window.
    Sram,
    /// The SRAM DMA and the allocator of its slots.
    Dma,
    /// The I/O engine.
    Engine,
    /// The NVMe queues.
    Nvme,
    /// The PCIe TLP engine.
    Tlp,
    /// Power and USB link.
    Link,
    /// The PCIe link.
    PcieLink,
    /// The I2C master.
    I2c,
}

const BLOCKS: [(Block, &[Register]); 17] = [
    (Block::Interrupts, timers::INTERRUPT_REGISTERS),
    (Block::Timers, timers::TIMER_REGISTERS),
    (Block::Uart, serial::UART_REGISTERS),
    (Block::Flash, flash::REGISTERS),
    (Block::Ep0, ep0::REGISTERS),
    (Block::Bulk, usb::BULK_REGISTERS),
    (Block::Halts, usb::HALTS),
    (Block::Msc, msc::REGISTERS),
    (Block::Uas, uas::REGISTERS),
    (Block::Sram, sram::WINDOW_REGISTERS),
    (Block::Dma, sram::DMA_REGISTERS),
    (Block::Engine, engine::REGISTERS),
    (Block::Nvme, nvme::REGISTERS),
    (Block::Tlp, pcie::TLP_REGISTERS),
    (Block::Link, link::REGISTERS),
    (Block::PcieLink, pcie::LINK_REGISTERS),
    (Block::I2c, serial::I2C_REGISTERS),
];

/// The modelled registers, each with the block that owns it.
pub fn registers() -> impl Iterator<Item = (Block, &'static Register)> {
    BLOCKS.iter().flat_map(|(block, registers)| registers.iter().map(move |register| (*block, register)))
}

/// Name of the register at an address of the main page; `None` for memory and unmodelled registers.
pub fn register_name(addr: u16) -> Option<&'static str> {
    let found = registers().find(|(_, register)| (register.first..=register.last).contains(&addr));
    found.map(|(_, register)| register.name)
}

/// Pages of 256 bytes that are second addresses, each with the page whose registers it shows. Source: register dumps of
/// running units.
const ALIASES: [(usize, usize); 6] =
    [(0xB3, 0xB2), (0xB5, 0xB4), (0xB6, 0xB4), (0xB7, 0xB4), (0xC7, 0xC6), (0xC9, 0xC8)];

/// Replaces a register's second address by the register's own address. Other addresses of the main page stay.
pub fn unaliased(addr: u16) -> u16 {
    aliased(addr.into()) as u16
}

/// As [`unaliased`], for an index into [`owners`].
pub(super) fn aliased(index: usize) -> usize {
    let shown = ALIASES.iter().find(|(page, _)| *page == index >> 8);
    shown.map_or(index, |(_, page)| page << 8 | index & 0xFF)
}

/// The owner of each address: the main page, then the other page.
pub(super) fn owners() -> Box<[Block]> {
    let mut owners = vec![Block::Ram; 2 * XDATA_PAGE_LEN].into_boxed_slice();
    for addr in 0..XDATA_PAGE_LEN {
        // Memory by every source: RAM, buffers, NVMe queues, command slots, status buffer, SRAM window.
        let is_memory = matches!(addr, 0..=0x8FFF | 0x9E00..=0xB1FF | 0xD000..=0xDFFF | 0xF000..);
        if !is_memory {
            owners[addr] = Block::Unknown;
        }
    }
    // The other page holds PHY and link settings: registers by every source, none of them modelled.
    owners[XDATA_PAGE_LEN..].fill(Block::Unknown);
    for (block, register) in registers() {
        owners[usize::from(register.first)..=usize::from(register.last)].fill(block);
    }
    for (page, _) in ALIASES {
        owners[page << 8..][..0x100].fill(Block::Alias);
    }
    owners
}

/// The block to call for a read and for a write of each address while there is no watch. Plain memory needs no call.
pub(super) fn asked(owners: &[Block]) -> [Box<[Block]>; 2] {
    [[Plain::Reads, Plain::Both].as_slice(), &[Plain::Both]].map(|plain| {
        let mut asked: Box<[Block]> = owners.into();
        for (_, register) in registers().filter(|(_, register)| plain.contains(&register.plain)) {
            asked[usize::from(register.first)..=usize::from(register.last)].fill(Block::Ram);
        }
        asked
    })
}

/// Start bits of registers that no block models: index into both pages, and the bits that read 0 once the work is done,
/// here at once. 0x1238 of the other page: the USB-C side's start-up sets .0, and waits until it is clear (b0:0xE842).
/// Silicon got past that wait (recording of 231204, line 1553). 0xE41C: sends a message on the CC line (b0:0x9605, and
/// the wait at b0:0xBEDD). 0x9220 and 0xCC33 read 00 after a write of 04 (recording, lines 3016, 3036; 26, 2109).
const STARTS: [(usize, u8); 4] = [(0x1_1238, 0x01), (0xE41C, 0x01), (0x9220, 0x04), (0xCC33, 0x04)];

/// The value that an unmodelled register holds after a write.
pub(super) fn settled(index: usize, value: u8) -> u8 {
    STARTS.iter().find(|(at, _)| *at == index).map_or(value, |(_, starts)| value & !starts)
}

/// The first read or write of an unmodelled register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownAccess {
    /// The register.
    pub at: XdataAddress,
    /// Read or write.
    pub kind: AccessKind,
    /// The instruction's address, with SFR 0x96 (the code bank) in bit 16.
    pub pc: u32,
}

/// The list, and one bit for each address and kind of access that it has. The address space limits both.
#[derive(Debug)]
pub(super) struct UnknownRegisters {
    seen: Box<[u64]>,
    list: Vec<UnknownAccess>,
}

impl Default for UnknownRegisters {
    fn default() -> Self {
        Self { seen: vec![0; 2 * 0x2_0000 / 64].into_boxed_slice(), list: Vec::new() }
    }
}

impl UnknownRegisters {
    pub(super) fn record(&mut self, kind: AccessKind, index: usize, pc: u32) {
        let bit = 2 * index + usize::from(kind == AccessKind::Write);
        let word = &mut self.seen[bit / 64];
        if *word >> (bit % 64) & 1 == 0 {
            *word |= 1 << (bit % 64);
            self.list.push(UnknownAccess { at: XdataMemory::address(index), kind, pc });
        }
    }

    pub(super) fn list(&self) -> &[UnknownAccess] {
        &self.list
    }
}

/// The CPU's accesses to a register that act on memory alone, although a block owns the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain {
    Neither,
    Reads,
    Both,
}

/// One register, or several in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// First address, in the main page.
    pub first: u16,
    /// Last address, inclusive.
    pub last: u16,
    /// The project's name for the register. The vendor's names are not known.
    pub name: &'static str,
    pub(super) plain: Plain,
}

impl Register {
    pub(super) const fn one(at: u16, name: &'static str) -> Self {
        Self::range(at, at, name)
    }

    pub(super) const fn range(first: u16, last: u16, name: &'static str) -> Self {
        Self { first, last, name, plain: Plain::Neither }
    }

    /// Marks a register whose reads return what its memory holds.
    pub(super) const fn plain_to_reads(self) -> Self {
        Self { plain: Plain::Reads, ..self }
    }

    /// Marks a register whose reads return what its memory holds and whose writes only store.
    pub(super) const fn plain(self) -> Self {
        Self { plain: Plain::Both, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_register_has_two_owners() {
        let mut seen = vec![None; XDATA_PAGE_LEN];
        for (block, register) in registers() {
            for addr in register.first..=register.last {
                assert_eq!(seen[usize::from(addr)], None, "{addr:#06x} {}", register.name);
                seen[usize::from(addr)] = Some(block);
            }
        }
    }

    #[test]
    fn every_alias_is_of_a_register_and_has_no_register_of_its_own() {
        let owners = owners();
        let aliases: Vec<usize> = (0..owners.len()).filter(|index| owners[*index] == Block::Alias).collect();
        assert_eq!(aliases.len(), 0x100 * ALIASES.len());
        for index in aliases {
            assert!(!matches!(owners[aliased(index)], Block::Ram | Block::Alias), "{index:#06x}");
            assert_eq!(register_name(index as u16), None);
        }
    }

    #[test]
    fn memory_has_no_name_and_a_register_has_one() {
        assert_eq!(register_name(0x0100), None);
        assert_eq!(register_name(0x9091), Some("EP0_EVENTS"));
    }
}
