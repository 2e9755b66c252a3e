//! XDATA: two 64 KiB pages of memory, and how the CPU reaches them.

use std::fmt;

use asm2464::scsi::{XDATA_PAGE_LEN, XdataAddress, XdataPage};

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
