//! The two peripherals that the vendor commands reach: the SPI flash controller, and as much of the USB controller as
//! tells when data goes and comes.
//!
//! Flash controller, read out of the routines at b0:0xBE02 (a command), b0:0xB104 (a program) and b0:0xE3F9 (the
//! status register) of image 240417: 0xC8AA the SPI command, 0xC8AB:0xC8A2:0xC8A1 the address, 0xC8A3:0xC8A4 the length,
//! 0xC8AE:0xC8AF where in the buffer, 0xC8AD bit 0 the direction (1 towards the flash), 0xC8A9 bit 0 start and busy.
//! 0xC805 bits 2 and 1 say where flash data meets USB: 0 puts what is read into the USB data buffer (E0 and E2 clear
//! them and then send), 1 into the buffer at 0x7000. Two things are assumptions, since no code shows them: a command
//! is over at once, and what is programmed after a data-out is that data, even where a status or ID read has used
//! 0x7000 in between.
//!
//! The timer at 0xCC10 (started at b0:0xE50D, waited for at b0:0xE80D) has always run out, so that no time passes.

use super::conventions::{
    DATA_BUFFER, DATA_BUFFER_LEN, FLASH_BUFFER, IN_LENGTH, STATUS_BUFFER, TRANSFER_DONE, TRANSFER_START,
};
use super::spi_flash::{FlashGone, SpiFlash};
use super::xdata::{Registers, XdataMemory};
use crate::firmware::FlashAddress;

const BUFFER_MODE: u16 = 0xC805;
const ADDRESS_LOW: u16 = 0xC8A1;
const ADDRESS_MID: u16 = 0xC8A2;
const LENGTH: u16 = 0xC8A3;
const START: u16 = 0xC8A9;
const COMMAND: u16 = 0xC8AA;
const ADDRESS_HIGH: u16 = 0xC8AB;
const OFFSET: u16 = 0xC8AE;
const STATUS_SEND: u16 = 0x90A1;

/// Another engine that moves memory (0xC8B0 and up); bit 0 starts it and says that it runs.
const COPY_START: u16 = 0xC8B8;
/// The timer's state: bit 1 says that it has run out.
const TIMER: u16 = 0xCC11;
const TIMER_OVER: u8 = 0x02;

const DONE_IN: u8 = 0x08;
const START_IN: u8 = 0x02;
const START_OUT: u8 = 0x10;
const WRITE_ENABLED: u8 = 0x02;
const FLASH_PAGE: u32 = 0x100;
/// A 512 KiB part of Winbond's W25X family: manufacturer, type, capacity.
const JEDEC_ID: [u8; 3] = [0xEF, 0x30, 0x13];

/// The registers, with a flash behind them and what the host would have seen.
#[derive(Debug)]
pub struct ChipRegisters<F> {
    flash: F,
    write_enabled: bool,
    flash_gone: bool,
    transfer_done: u8,
    data_in: Vec<u8>,
    data_out: Vec<u8>,
    out_wanted: bool,
    answer: Option<[u8; 16]>,
}

impl<F: SpiFlash> ChipRegisters<F> {
    /// With this flash.
    pub fn new(flash: F) -> Self {
        Self {
            flash,
            write_enabled: false,
            flash_gone: false,
            transfer_done: 0,
            data_in: Vec::new(),
            data_out: Vec::new(),
            out_wanted: false,
            answer: None,
        }
    }

    /// The flash.
    pub fn flash_mut(&mut self) -> &mut F {
        &mut self.flash
    }

    /// Forgets the last command's data and answer.
    pub(super) fn begin_command(&mut self) {
        self.transfer_done = 0;
        self.data_in.clear();
        self.data_out.clear();
        self.out_wanted = false;
        self.answer = None;
        self.flash_gone = false;
    }

    /// Data that the firmware has handed to the USB controller.
    pub(super) fn data_in(&self) -> &[u8] {
        &self.data_in
    }

    /// The head of the status buffer when the firmware had it sent: a CSW, or a status IU.
    pub(super) fn answer(&self) -> Option<&[u8; 16]> {
        self.answer.as_ref()
    }

    /// Whether the flash went away under a command.
    pub(super) fn flash_is_gone(&self) -> bool {
        self.flash_gone
    }

    /// A packet of data-out has come.
    pub(super) fn data_out_came(&mut self, packet: &[u8]) {
        self.data_out.clear();
        self.data_out.extend_from_slice(packet);
        self.out_wanted = false;
    }

    fn flash_command(&mut self, memory: &mut XdataMemory) {
        let page = memory.main_mut();
        let byte = |at: u16| page[usize::from(at)];
        let command = byte(COMMAND);
        let address = u32::from_be_bytes([0, byte(ADDRESS_HIGH), byte(ADDRESS_MID), byte(ADDRESS_LOW)]);
        let length = usize::from(u16::from_be_bytes([byte(LENGTH), byte(LENGTH + 1)])).min(DATA_BUFFER_LEN);
        let offset = usize::from(u16::from_be_bytes([byte(OFFSET), byte(OFFSET + 1)])) % DATA_BUFFER_LEN;
        let to_usb = byte(BUFFER_MODE) & 0x06 == 0;
        let mut buffer = [0; DATA_BUFFER_LEN];
        match command {
            // Reads: plain, fast, dual and quad differ in clocks alone.
            0x03 | 0x0B | 0x3B | 0x6B | 0xBB | 0xEB => {
                let data = &mut buffer[..length];
                self.flash.read(FlashAddress(address), data);
                deposit(page, FLASH_BUFFER, offset, data);
                if to_usb {
                    deposit(page, DATA_BUFFER, offset, data);
                }
            }
            0x9F => deposit(page, FLASH_BUFFER, offset, &JEDEC_ID[..length.min(JEDEC_ID.len())]),
            0x05 => {
                let status = if self.write_enabled { WRITE_ENABLED } else { 0 };
                deposit(page, FLASH_BUFFER, offset, &[status]);
            }
            0x06 => self.write_enabled = true,
            0x04 | 0x01 => self.write_enabled = false,
            0x02 | 0x32 => {
                for (index, byte) in buffer[..length].iter_mut().enumerate() {
                    let at = (offset + index) % DATA_BUFFER_LEN;
                    *byte = match self.data_out.get(at) {
                        Some(byte) => *byte,
                        None => page[usize::from(FLASH_BUFFER) + at],
                    };
                }
                let result = self.program(address, &buffer[..length]);
                self.end_write(result);
            }
            0x20 => self.erase(address, 0x1000),
            0x52 => self.erase(address, 0x8000),
            0xD8 => self.erase(address, 0x1_0000),
            _ => {}
        }
    }

    /// A program wraps inside its page, as SPI NOR parts do.
    fn program(&mut self, address: u32, bytes: &[u8]) -> Result<(), FlashGone> {
        if !self.write_enabled {
            return Ok(());
        }
        let page = address / FLASH_PAGE * FLASH_PAGE;
        let room = (page + FLASH_PAGE - address) as usize;
        let (first, wrapped) = bytes.split_at(bytes.len().min(room));
        self.flash.program(FlashAddress(address), first)?;
        if wrapped.is_empty() { Ok(()) } else { self.flash.program(FlashAddress(page), wrapped) }
    }

    fn erase(&mut self, address: u32, len: u32) {
        let result = if self.write_enabled { self.flash.erase(FlashAddress(address / len * len), len) } else { Ok(()) };
        self.end_write(result);
    }

    fn end_write(&mut self, result: Result<(), FlashGone>) {
        self.write_enabled = false;
        self.flash_gone |= result.is_err();
    }
}

fn deposit(page: &mut [u8], buffer: u16, offset: usize, data: &[u8]) {
    for (index, byte) in data.iter().enumerate() {
        page[usize::from(buffer) + (offset + index) % DATA_BUFFER_LEN] = *byte;
    }
}

impl<F: SpiFlash> Registers for ChipRegisters<F> {
    fn hooks(&self, block: u8) -> bool {
        matches!(block, 0x90 | 0xC8 | 0xCC)
    }

    fn read(&mut self, addr: u16, stored: u8) -> u8 {
        match addr {
            TRANSFER_DONE => self.transfer_done,
            START | COPY_START => stored & !0x01,
            TIMER => stored | TIMER_OVER,
            _ => stored,
        }
    }

    fn write(&mut self, addr: u16, value: u8, memory: &mut XdataMemory) {
        match addr {
            TRANSFER_DONE => self.transfer_done &= !value,
            TRANSFER_START if value & START_IN != 0 => {
                let page = memory.main();
                let high = page[usize::from(IN_LENGTH)];
                let low = page[usize::from(IN_LENGTH) + 1];
                let length = usize::from(u16::from_be_bytes([high, low])).min(DATA_BUFFER_LEN);
                let start = usize::from(DATA_BUFFER);
                self.data_in.extend_from_slice(&page[start..start + length]);
                self.transfer_done |= DONE_IN;
            }
            TRANSFER_START if value & START_OUT != 0 => self.out_wanted = true,
            STATUS_SEND if value & 0x01 != 0 => {
                let start = usize::from(STATUS_BUFFER);
                let mut head = [0; 16];
                head.copy_from_slice(&memory.main()[start..start + 16]);
                self.answer = Some(head);
            }
            START if value & 0x01 != 0 => self.flash_command(memory),
            _ => {}
        }
    }
}
