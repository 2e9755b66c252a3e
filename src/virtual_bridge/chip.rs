//! What a unit's firmware works on: XDATA, the data buffer, the SPI flash.

use super::nor::NorFlash;
use crate::mcu::XdataMemory;
use crate::scsi::{XdataAddress, XdataPage};

/// Bytes of the data buffer that answer, from PCIe address 0x00200000 on. Source: tinygrad's hardware probing.
pub const DATA_BUFFER_LEN: usize = 0x8_0000;
/// Where the data buffer's first 4 KiB are seen in XDATA.
pub const DATA_BUFFER_WINDOW: u16 = 0xF000;
/// Where running firmware keeps its version. Source: cyrozap's notes.
const RUNNING_VERSION: usize = 0x07F0;

/// The chip's memories. A power-on clears all but the flash.
#[derive(Debug)]
pub struct Chip {
    /// Both pages of XDATA; behind 0xF000 of the main one stands [`Chip::data_buffer`].
    pub memory: XdataMemory,
    /// The data buffer: logical block n of READ(16) and WRITE(16) is its byte n * 512.
    pub data_buffer: Vec<u8>,
    /// The SPI flash.
    pub flash: NorFlash,
}

impl Chip {
    pub(super) fn new(flash: NorFlash) -> Self {
        Self { memory: XdataMemory::new(), data_buffer: vec![0; DATA_BUFFER_LEN], flash }
    }

    /// Clears the memories that lose their content without power, and leaves the version where firmware puts it.
    pub(super) fn power_on(&mut self, version: Option<[u8; 6]>) {
        self.memory.clear();
        self.data_buffer.fill(0);
        if let Some(version) = version {
            self.memory.main_mut()[RUNNING_VERSION..RUNNING_VERSION + 6].copy_from_slice(&version);
        }
    }

    /// The byte at a place in XDATA.
    pub fn xdata_at(&self, at: XdataAddress) -> u8 {
        match at.page {
            XdataPage::Main if at.addr >= DATA_BUFFER_WINDOW => {
                self.data_buffer[usize::from(at.addr - DATA_BUFFER_WINDOW)]
            }
            page => self.memory.page(page)[usize::from(at.addr)],
        }
    }

    /// Writes the byte at a place in XDATA.
    pub fn set_xdata(&mut self, at: XdataAddress, value: u8) {
        match at.page {
            XdataPage::Main if at.addr >= DATA_BUFFER_WINDOW => {
                self.data_buffer[usize::from(at.addr - DATA_BUFFER_WINDOW)] = value;
            }
            page => self.memory.page_mut(page)[usize::from(at.addr)] = value,
        }
    }
}
