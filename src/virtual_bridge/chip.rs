//! What a unit's firmware works on: XDATA, the data buffer, the SPI flash.

use super::nor::NorFlash;
use crate::scsi::{XdataAddress, XdataPage};

/// Bytes in one page of XDATA.
pub const XDATA_LEN: usize = 0x1_0000;
/// Bytes of the data buffer that answer, from PCIe address 0x00200000 on. Source: tinygrad's hardware probing.
pub const DATA_BUFFER_LEN: usize = 0x8_0000;
/// Where the data buffer's first 4 KiB are seen in XDATA.
pub const DATA_BUFFER_WINDOW: u16 = 0xF000;
/// Where running firmware keeps its version. Source: cyrozap's notes.
const RUNNING_VERSION: usize = 0x07F0;

/// The chip's memories. A power-on clears all but the flash.
#[derive(Debug)]
pub struct Chip {
    /// XDATA as MOVX reaches it (page 0x50); behind 0xF000 stands [`Chip::data_buffer`].
    pub xdata: Vec<u8>,
    /// The other 64 KiB page (0x51).
    pub other_page: Vec<u8>,
    /// The data buffer: logical block n of READ(16) and WRITE(16) is its byte n * 512.
    pub data_buffer: Vec<u8>,
    /// The SPI flash.
    pub flash: NorFlash,
}

impl Chip {
    pub(super) fn new(flash: NorFlash) -> Self {
        Self { xdata: vec![0; XDATA_LEN], other_page: vec![0; XDATA_LEN], data_buffer: vec![0; DATA_BUFFER_LEN], flash }
    }

    /// Clears the memories that lose their content without power, and leaves the version where firmware puts it.
    pub(super) fn power_on(&mut self, version: Option<[u8; 6]>) {
        self.xdata.fill(0);
        self.other_page.fill(0);
        self.data_buffer.fill(0);
        if let Some(version) = version {
            self.xdata[RUNNING_VERSION..RUNNING_VERSION + 6].copy_from_slice(&version);
        }
    }

    /// The byte at a place in XDATA.
    pub fn xdata_at(&self, at: XdataAddress) -> u8 {
        match at.page {
            XdataPage::Main if at.addr >= DATA_BUFFER_WINDOW => {
                self.data_buffer[usize::from(at.addr - DATA_BUFFER_WINDOW)]
            }
            XdataPage::Main => self.xdata[usize::from(at.addr)],
            XdataPage::Other => self.other_page[usize::from(at.addr)],
        }
    }

    /// Writes the byte at a place in XDATA.
    pub fn set_xdata(&mut self, at: XdataAddress, value: u8) {
        match at.page {
            XdataPage::Main if at.addr >= DATA_BUFFER_WINDOW => {
                self.data_buffer[usize::from(at.addr - DATA_BUFFER_WINDOW)] = value;
            }
            XdataPage::Main => self.xdata[usize::from(at.addr)] = value,
            XdataPage::Other => self.other_page[usize::from(at.addr)] = value,
        }
    }
}
