//! The flash that the SPI flash controller drives.

use asm2464::firmware::FlashAddress;

/// The flash lost its power, or its cells went away, during an erase or a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashGone;

/// A NOR flash: an erase sets every bit, a program clears bits.
pub trait SpiFlash: Send {
    /// Copies cells from `at` on into `into`; 0xFF past the last one.
    fn read(&self, at: FlashAddress, into: &mut [u8]);

    /// Programs bytes.
    ///
    /// # Errors
    /// [`FlashGone`]; some of the bytes may be programmed.
    fn program(&mut self, at: FlashAddress, bytes: &[u8]) -> Result<(), FlashGone>;

    /// Erases `len` bytes from `at`, which is a multiple of `len`.
    ///
    /// # Errors
    /// [`FlashGone`].
    fn erase(&mut self, at: FlashAddress, len: u32) -> Result<(), FlashGone>;

    /// Reads the status register without the write enable latch: bit 0 busy, bits 4:2 block protection.
    fn status(&self) -> u8;

    /// Writes the status register's writable bits.
    fn set_status(&mut self, value: u8);
}

/// A flash whose cells are in memory.
#[derive(Debug, Clone)]
pub struct MemoryFlash {
    /// The cells.
    pub cells: Vec<u8>,
    status: u8,
}

impl MemoryFlash {
    /// Creates an erased flash of 512 KiB: both slots of the flash map.
    pub fn erased() -> Self {
        Self { cells: vec![0xFF; 0x8_0000], status: 0 }
    }
}

impl SpiFlash for MemoryFlash {
    fn read(&self, at: FlashAddress, into: &mut [u8]) {
        into.fill(0xFF);
        self.cells.iter().skip(at.0 as usize).zip(into).for_each(|(cell, byte)| *byte = *cell);
    }

    fn program(&mut self, at: FlashAddress, bytes: &[u8]) -> Result<(), FlashGone> {
        self.cells.iter_mut().skip(at.0 as usize).zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        Ok(())
    }

    fn erase(&mut self, at: FlashAddress, len: u32) -> Result<(), FlashGone> {
        let start = (at.0 as usize).min(self.cells.len());
        let end = (start + len as usize).min(self.cells.len());
        self.cells[start..end].fill(0xFF);
        Ok(())
    }

    fn status(&self) -> u8 {
        self.status
    }

    fn set_status(&mut self, value: u8) {
        self.status = value;
    }
}
