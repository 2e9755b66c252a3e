//! The SPI flash controller, and the buffer at 0x7000 that it shares with the USB controller.
//!
//! Two behaviours are chosen because no code shows them. A command completes at once. And status and ID, which the CPU
//! sees at 0x7000, do not change the bytes that a program takes: E1 uses both between the data-out and the program, and
//! would otherwise program other bytes than the host sent. [`FlashFaults`](crate::spi_flash::FlashFaults) has what
//! silicon may do instead.

use asm2464::firmware::FlashAddress;
use asm2464::flash::JedecId;

use super::map::Register;
use super::sram::load_around;
use super::usb::Speed;
use crate::mcu::XdataMemory;
use crate::spi_flash::{FlashGone, SpiFlash};

/// 0x7000-0x7FFF: the buffer. Source: b0:0xB104 (program); c:0x3181 (data-out); open-source flashers.
pub(super) const BUFFER: u16 = 0x7000;
pub(super) const BUFFER_LEN: usize = 0x1000;
/// 0x8000-0x8FFF: the USB data buffer.
const DATA_BUFFER: u16 = 0x8000;

/// 0xC805 bits 2:1: with 0, data read from the flash goes to 0x7000 and 0x8000, with 1 only to 0x7000. Source: E0 and
/// E2 clear them before they send.
const BUFFER_MODE: u16 = 0xC805;
/// 0xC8A1 low, 0xC8A2 middle, 0xC8AB high: the flash address. Source: b0:0xBE02; open flashers.
const ADDRESS_LOW: u16 = 0xC8A1;
/// 0xC8A3:0xC8A4: the length, big-endian. Source: b0:0xB890.
const LENGTH: u16 = 0xC8A3;
/// 0xC8A6: clock divider, 4 in both firmwares. No effect here.
const CLOCK: u16 = 0xC8A6;
/// 0xC8A9.0: start; reads 0 when done. Source: b0:0xB1AA, 0xBE70, 0xE411 wait for it.
const START: u16 = 0xC8A9;
/// 0xC8AA: the SPI command. Source: b0:0xBE02.
const COMMAND: u16 = 0xC8AA;
const ADDRESS_HIGH: u16 = 0xC8AB;
/// 0xC8AC: 4 without, 7 with an address. 0xC8AD: .0 direction. No effect here: the command implies both. Source: open
/// flashers.
const FRAME: u16 = 0xC8AC;
/// 0xC8AE:0xC8AF: offset in the buffer, big-endian. Source: b0:0xBE44.
const OFFSET: u16 = 0xC8AE;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(BUFFER, BUFFER + 0xFFF, "FLASH_BUFFER").plain_to_reads(),
    Register::one(BUFFER_MODE, "FLASH_BUFFER_MODE"),
    Register::range(ADDRESS_LOW, ADDRESS_LOW + 1, "FLASH_ADDRESS"),
    Register::range(LENGTH, LENGTH + 1, "FLASH_LENGTH"),
    Register::one(CLOCK, "FLASH_CLOCK"),
    Register::one(START, "FLASH_START"),
    Register::one(COMMAND, "FLASH_COMMAND"),
    Register::one(ADDRESS_HIGH, "FLASH_ADDRESS_HIGH"),
    Register::range(FRAME, FRAME + 1, "FLASH_FRAME"),
    Register::range(OFFSET, OFFSET + 1, "FLASH_OFFSET"),
];

const PAGE_LEN: u32 = 0x100;
const BUSY: u8 = 0x01;
const WRITE_ENABLED: u8 = 0x02;
/// Block protection in the status register.
const PROTECTION: u8 = 0x1C;
/// Bits of the status register that command 01 can write: protection and lock.
const WRITABLE: u8 = 0xFC;

#[derive(Debug)]
pub(super) struct FlashController {
    pub(super) flash: SpiFlash,
    /// Number of commands that have filled the buffer from its start, and its first byte without the defect.
    fills: u64,
    first: u8,
    /// The bytes that a program takes: the buffer without status and ID.
    buffer: Box<[u8; BUFFER_LEN]>,
    /// Old values in `buffer`, by offset, of bytes that the CPU has written since the last transfer. Command 01
    /// restores them, because the CPU writes the status register's new value there.
    overwritten: Vec<(u16, u8)>,
    write_enabled: bool,
    is_gone: bool,
    /// SPI clocks of the commands so far, which [`Chip::run`](super::core::Chip::run) doesn't wait for.
    pub(super) clocks: u64,
}

impl FlashController {
    pub(super) fn new(flash: SpiFlash) -> Self {
        let buffer = Box::new([0; BUFFER_LEN]);
        Self {
            flash,
            fills: 0,
            first: 0,
            buffer,
            overwritten: Vec::new(),
            write_enabled: false,
            is_gone: false,
            clocks: 0,
        }
    }

    /// Whether the flash lost its power during a command.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Puts a packet of a data-out into the buffer.
    pub(super) fn receive(&mut self, packet: &[u8], speed: Speed, memory: &mut XdataMemory) {
        let lands = match self.flash.faults().bulk_out_lands {
            Some(lands) if speed == Speed::High => packet.len().min(lands.into()),
            _ => packet.len(),
        };
        self.deposit(0, &packet[..lands], memory);
        self.first = memory.main()[usize::from(BUFFER)];
    }

    fn deposit(&mut self, offset: usize, data: &[u8], memory: &mut XdataMemory) {
        self.overwritten.clear();
        load_around(&mut self.buffer[..], offset, data);
        show(BUFFER, offset, data, memory);
    }

    /// Puts the flash's status or ID where the CPU sees it.
    fn report(&mut self, offset: usize, data: &[u8], memory: &mut XdataMemory) {
        if self.flash.faults().status_in_buffer {
            self.deposit(offset, data, memory);
        } else {
            show(BUFFER, offset, data, memory);
        }
        self.filled(offset, data, memory);
    }

    /// Counts a command that has filled the buffer from its start. Shows the CPU the old first byte if this command has
    /// the defect.
    fn filled(&mut self, offset: usize, data: &[u8], memory: &mut XdataMemory) {
        if offset != 0 || data.is_empty() {
            return;
        }
        self.fills += 1;
        let shown = &mut memory.main_mut()[usize::from(BUFFER)];
        let before = std::mem::replace(&mut self.first, *shown);
        if self.flash.faults().stale_first_byte.is_some_and(|every| self.fills.is_multiple_of(every)) {
            *shown = before;
        }
    }

    pub(super) fn read(addr: u16, stored: u8) -> u8 {
        match addr {
            START => stored & !0x01,
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, memory: &mut XdataMemory) -> bool {
        match addr {
            BUFFER..=0x7FFF => {
                let at = addr - BUFFER;
                let before = std::mem::replace(&mut self.buffer[usize::from(at)], value);
                if at == 0 {
                    self.first = value;
                }
                if self.overwritten.len() < BUFFER_LEN {
                    self.overwritten.push((at, before));
                }
                before != value
            }
            START if value & 0x01 != 0 => {
                self.command(memory);
                true
            }
            _ => false,
        }
    }

    fn command(&mut self, memory: &mut XdataMemory) {
        let byte = |at: u16| memory.main()[usize::from(at)];
        let command = byte(COMMAND);
        let address = u32::from_be_bytes([0, byte(ADDRESS_HIGH), byte(ADDRESS_LOW + 1), byte(ADDRESS_LOW)]);
        let length = usize::from(u16::from_be_bytes([byte(LENGTH), byte(LENGTH + 1)])).min(BUFFER_LEN);
        let offset = usize::from(u16::from_be_bytes([byte(OFFSET), byte(OFFSET + 1)])) % BUFFER_LEN;
        let to_usb = byte(BUFFER_MODE) & 0x06 == 0;
        let mut bytes = [0; BUFFER_LEN];
        // Beside command and address. An erase takes longer than its bytes would on the bus.
        let moved = match command {
            0x03 | 0x0B | 0x3B | 0x6B | 0xBB | 0xEB | 0x02 | 0x32 => length as u64,
            0x20 => 0x1000,
            0x52 => 0x8000,
            0xD8 => 0x1_0000,
            _ => 1,
        };
        self.clocks += 8 * (4 + moved);
        // A busy flash only accepts the status read.
        let status = self.flash.status();
        if status & BUSY != 0 && command != 0x05 {
            return;
        }
        match command {
            // Plain, fast, dual and quad reads differ only in clocks.
            0x03 | 0x0B | 0x3B | 0x6B | 0xBB | 0xEB => {
                let data = &mut bytes[..length];
                self.flash.read(FlashAddress(address), data);
                self.deposit(offset, data, memory);
                self.filled(offset, data, memory);
                if to_usb {
                    show(DATA_BUFFER, offset, data, memory);
                }
            }
            0x9F => {
                let JedecId(id) = self.flash.jedec_id();
                self.report(offset, &id[..length.min(id.len())], memory);
            }
            0x05 => {
                let enabled = if self.write_enabled { WRITE_ENABLED } else { 0 };
                self.report(offset, &[status | enabled], memory);
            }
            0x06 => self.write_enabled = true,
            0x04 => self.write_enabled = false,
            0x01 => {
                if self.write_enabled {
                    self.flash.set_status(self.buffer[offset] & WRITABLE);
                }
                if self.flash.faults().status_in_buffer {
                    self.overwritten.clear();
                }
                for (at, before) in self.overwritten.drain(..).rev() {
                    self.buffer[usize::from(at)] = before;
                }
                self.write_enabled = false;
            }
            0x02 | 0x32 => {
                for (index, byte) in bytes[..length].iter_mut().enumerate() {
                    *byte = self.buffer[(offset + index) % BUFFER_LEN];
                }
                self.overwritten.clear();
                let result = self.program(address, &bytes[..length]);
                self.end_write(result);
            }
            0x20 => self.erase(address, 0x1000),
            0x52 => self.erase(address, 0x8000),
            0xD8 => self.erase(address, 0x1_0000),
            // A flash ignores unknown commands.
            _ => {}
        }
    }

    /// Programs bytes. A program wraps inside its page, as in SPI NOR parts. Of more than a page, only the last 256
    /// bytes count.
    fn program(&mut self, address: u32, bytes: &[u8]) -> Result<(), FlashGone> {
        if !self.may_write(address) {
            return Ok(());
        }
        let page = address / PAGE_LEN * PAGE_LEN;
        let surplus = bytes.len().saturating_sub(PAGE_LEN as usize);
        let address = page + (address - page + surplus as u32) % PAGE_LEN;
        let bytes = &bytes[surplus..];
        let room = (page + PAGE_LEN - address) as usize;
        let (first, wrapped) = bytes.split_at(bytes.len().min(room));
        self.flash.program(FlashAddress(address), first)?;
        if wrapped.is_empty() { Ok(()) } else { self.flash.program(FlashAddress(page), wrapped) }
    }

    /// Whether a program or an erase at this address changes cells. Past the last one it changes nothing (chosen). Which
    /// blocks the protection bits protect depends on the part; here they protect all.
    fn may_write(&self, address: u32) -> bool {
        let is_there = (address as usize) < self.flash.cells.len();
        self.write_enabled && self.flash.status() & PROTECTION == 0 && is_there
    }

    fn erase(&mut self, address: u32, len: u32) {
        let result =
            if self.may_write(address) { self.flash.erase(FlashAddress(address / len * len), len) } else { Ok(()) };
        self.end_write(result);
    }

    fn end_write(&mut self, result: Result<(), FlashGone>) {
        self.write_enabled = false;
        self.is_gone |= result.is_err();
    }
}

/// Copies bytes into a buffer that the CPU sees.
fn show(buffer: u16, offset: usize, data: &[u8], memory: &mut XdataMemory) {
    let start = usize::from(buffer);
    load_around(&mut memory.main_mut()[start..start + BUFFER_LEN], offset, data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spi_flash::{FLASH_LEN, FlashFaults};

    struct Bench {
        controller: FlashController,
        memory: XdataMemory,
    }

    impl Bench {
        fn new() -> Self {
            Self { controller: FlashController::new(SpiFlash::erased()), memory: XdataMemory::new() }
        }

        fn set(&mut self, addr: u16, value: u8) {
            self.memory.main_mut()[usize::from(addr)] = value;
            self.controller.write(addr, value, &mut self.memory);
        }

        fn command(&mut self, command: u8, address: u32, length: u16) {
            let [_, high, mid, low] = address.to_be_bytes();
            let [length_high, length_low] = length.to_be_bytes();
            let registers = [(ADDRESS_HIGH, high), (0xC8A2, mid), (ADDRESS_LOW, low), (LENGTH, length_high)];
            for (addr, value) in registers.into_iter().chain([(0xC8A4, length_low), (COMMAND, command), (START, 1)]) {
                self.set(addr, value);
            }
        }

        fn seen(&self, len: usize) -> &[u8] {
            &self.memory.main()[0x7000..0x7000 + len]
        }
    }

    #[test]
    fn a_program_needs_write_enable_and_only_clears_bits() {
        let mut bench = Bench::new();
        bench.controller.deposit(0, &[0xF0, 0x0F], &mut bench.memory);
        bench.command(0x02, 0x100, 2);
        assert_eq!(bench.controller.flash.cells[0x100..0x102], [0xFF, 0xFF]);
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0x100, 2);
        bench.controller.deposit(0, &[0x3C, 0x3C], &mut bench.memory);
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0x100, 2);
        assert_eq!(bench.controller.flash.cells[0x100..0x102], [0x30, 0x0C]);
        bench.command(0x06, 0, 0);
        bench.command(0x20, 0x1FF, 0);
        assert_eq!(bench.controller.flash.cells[0x100..0x102], [0xFF, 0xFF]);
    }

    #[test]
    fn id_and_status_are_seen_and_do_not_change_what_the_host_sent() {
        let mut bench = Bench::new();
        bench.controller.deposit(0, &[1, 2, 3, 4], &mut bench.memory);
        bench.command(0x9F, 0, 3);
        assert_eq!(bench.seen(4), [0xEF, 0x30, 0x13, 4]);
        bench.command(0x06, 0, 0);
        bench.command(0x05, 0, 1);
        assert_eq!(bench.seen(1), [WRITE_ENABLED]);
        bench.set(BUFFER, 0x1C);
        bench.command(0x01, 0, 1);
        bench.command(0x05, 0, 1);
        assert_eq!(bench.seen(1), [0x1C], "the status register took it");
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0, 4);
        assert_eq!(bench.controller.flash.cells[..4], [0xFF; 4], "and protects");
        bench.command(0x06, 0, 0);
        bench.set(BUFFER, 0);
        bench.command(0x01, 0, 1);
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0, 4);
        assert_eq!(bench.controller.flash.cells[..4], [1, 2, 3, 4]);
    }

    #[test]
    fn with_status_and_id_in_the_buffer_a_program_takes_them() {
        let mut bench = Bench::new();
        bench.controller.flash.set_faults(FlashFaults { status_in_buffer: true, ..FlashFaults::default() });
        bench.controller.deposit(0, &[1, 2, 3, 4], &mut bench.memory);
        bench.command(0x9F, 0, 3);
        bench.command(0x06, 0, 0);
        bench.command(0x05, 0, 1);
        bench.command(0x02, 0, 4);
        assert_eq!(bench.controller.flash.cells[..4], [WRITE_ENABLED, 0x30, 0x13, 4]);
        bench.command(0x06, 0, 0);
        bench.set(BUFFER, 0x40);
        bench.command(0x01, 0, 1);
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0x100, 2);
        assert_eq!(bench.controller.flash.cells[0x100..0x102], [0x40, 0x30], "and the status register's new value");
    }

    #[test]
    fn a_stale_first_byte_is_seen_and_not_programmed_and_ends_with_the_next_command() {
        let mut bench = Bench::new();
        bench.controller.flash.set_faults(FlashFaults { stale_first_byte: Some(2), ..FlashFaults::default() });
        bench.controller.flash.cells[0x300..0x302].copy_from_slice(&[0x12, 0x34]);
        bench.command(0x03, 0x300, 2);
        assert_eq!(bench.seen(2), [0x12, 0x34]);
        bench.command(0x05, 0, 1);
        assert_eq!(bench.seen(2), [0x12, 0x34], "the status is 0");
        bench.command(0x05, 0, 1);
        assert_eq!(bench.seen(1), [0]);
        bench.command(0x03, 0x300, 2);
        assert_eq!(bench.seen(2), [0, 0x34]);
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0x400, 2);
        assert_eq!(bench.controller.flash.cells[0x400..0x402], [0x12, 0x34]);
        bench.set(BUFFER, 0x56);
        assert_eq!(bench.seen(1), [0x56]);
    }

    #[test]
    fn at_high_speed_only_the_first_bytes_of_a_packet_reach_a_defective_buffer() {
        for (speed, seen) in [(Speed::High, [9, 9, 1, 1]), (Speed::Super, [9; 4])] {
            let mut bench = Bench::new();
            bench.controller.flash.set_faults(FlashFaults { bulk_out_lands: Some(2), ..FlashFaults::default() });
            bench.controller.deposit(0, &[1; 4], &mut bench.memory);
            bench.controller.receive(&[9; 4], speed, &mut bench.memory);
            assert_eq!((bench.seen(4), &bench.controller.buffer[..4]), (&seen[..], &seen[..]));
        }
    }

    #[test]
    fn what_the_cpu_writes_into_the_buffer_is_programmed() {
        let mut bench = Bench::new();
        bench.set(BUFFER + 1, 0x77);
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0x200, 3);
        assert_eq!(bench.controller.flash.cells[0x200..0x203], [0, 0x77, 0]);
    }

    #[test]
    fn a_program_wraps_in_its_page_and_a_read_also_fills_the_usb_buffer() {
        let mut bench = Bench::new();
        bench.controller.deposit(0, &[1, 2, 3], &mut bench.memory);
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0x2FE, 3);
        let cells = &bench.controller.flash.cells;
        assert_eq!((&cells[0x2FE..0x300], cells[0x200], cells[0x300]), (&[1, 2][..], 3, 0xFF));
        bench.command(0x03, 0x2FE, 2);
        assert_eq!(bench.memory.main()[0x8000..0x8002], [1, 2]);
    }

    #[test]
    fn a_program_longer_than_a_page_writes_its_last_256_bytes() {
        let mut bench = Bench::new();
        let sent: Vec<u8> = (0..300u16).map(|at| if at < 44 { 0x0F } else { 0x80 | (at % 113) as u8 }).collect();
        bench.controller.deposit(0, &sent, &mut bench.memory);
        bench.command(0x06, 0, 0);
        bench.command(0x02, 0x3010, 300);
        // Byte n goes to (0x10 + n) within the page, and a later byte replaces an earlier one.
        let expected: Vec<u8> = (0..256).map(|at| sent[44 + (at + 256 - (0x10 + 44)) % 256]).collect();
        assert_eq!(bench.controller.flash.cells[0x3000..0x3100], expected);
        assert_eq!(bench.controller.flash.cells[0x3100..0x3200], [0xFF; 0x100]);
    }

    #[test]
    fn an_erase_clears_its_sector_and_nothing_else() {
        let mut bench = Bench::new();
        bench.controller.flash.cells.fill(0);
        bench.command(0x06, 0, 0);
        bench.command(0x20, 0x1_1234, 0);
        let erased = bench.controller.flash.cells.iter().enumerate().filter(|(_, cell)| **cell == 0xFF);
        assert!(erased.map(|(at, _)| at).eq(0x1_1000..0x1_2000));
    }

    #[test]
    fn a_program_and_an_erase_end_the_write_enable() {
        for (write, address) in [(0x02, 0x100), (0x20, 0x1000)] {
            let mut bench = Bench::new();
            bench.controller.flash.cells.fill(0);
            bench.command(0x06, 0, 0);
            bench.command(write, address, 1);
            bench.command(0x05, 0, 1);
            assert_eq!(bench.seen(1), [0], "after {write:02X}");
            bench.command(0x20, 0x2000, 0);
            assert_eq!(bench.controller.flash.cells[0x2000], 0, "the next one needs its own");
        }
    }

    #[test]
    fn a_busy_flash_takes_no_command_but_the_status_read() {
        let mut bench = Bench::new();
        bench.controller.flash.cells.fill(0);
        bench.command(0x06, 0, 0);
        bench.controller.flash.set_status(BUSY);
        bench.controller.deposit(0, &[0x5A; 2], &mut bench.memory);
        bench.command(0x20, 0x1000, 0);
        bench.command(0x03, 0, 2);
        assert_eq!((bench.controller.flash.cells[0x1000], bench.seen(2)), (0, &[0x5A; 2][..]));
        bench.command(0x05, 0, 1);
        assert_eq!(bench.seen(1), [BUSY | WRITE_ENABLED]);
        bench.controller.flash.set_status(0);
        bench.command(0x20, 0x1000, 0);
        assert_eq!(bench.controller.flash.cells[0x1000], 0xFF, "the write enable is still there");
    }

    #[test]
    fn what_is_written_past_the_last_cell_changes_nothing_and_stops_nothing() {
        let mut bench = Bench::new();
        bench.controller.flash.cells.fill(0x5A);
        bench.controller.deposit(0, &[0; 2], &mut bench.memory);
        for command in [0x02, 0x20, 0xD8] {
            bench.command(0x06, 0, 0);
            bench.command(command, FLASH_LEN as u32, 2);
        }
        assert!(bench.controller.flash.cells.iter().all(|cell| *cell == 0x5A) && !bench.controller.is_gone());
        bench.command(0x06, 0, 0);
        bench.command(0x02, FLASH_LEN as u32 - 2, 2);
        assert_eq!(bench.controller.flash.cells[FLASH_LEN - 2..], [0; 2]);
    }

    #[test]
    fn a_packet_from_the_host_leaves_what_waits_for_it() {
        let mut bench = Bench::new();
        bench.memory.main_mut()[0x8000..0x8040].fill(0xA5);
        bench.controller.receive(&[0x3C; 64], Speed::Super, &mut bench.memory);
        assert_eq!((bench.seen(64), &bench.memory.main()[0x8000..0x8040]), (&[0x3C; 64][..], &[0xA5; 64][..]));
    }
}
