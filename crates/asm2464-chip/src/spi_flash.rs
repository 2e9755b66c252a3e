//! The SPI flash behind the chip's controller: what a model of the chip needs of it, and one whose cells are in memory.

use asm2464::firmware::FlashAddress;
use asm2464::flash::{JedecId, SLOT_LEN};

/// The flash lost its power during an erase or a program, or has no such cells, or its file can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("the flash has no power or no such cells, or its file can't be written")]
pub struct FlashGone;

impl std::error::Error for FlashGone {}

/// A NOR flash: an erase sets every bit, a program clears bits.
pub trait SpiFlash: Send {
    /// Its answer to command 9F. By default that of a 512 KiB part of Winbond's W25X family (chosen).
    fn jedec_id(&self) -> JedecId {
        JedecId([0xEF, 0x30, 0x13])
    }

    /// Copies cells from `at` on into `into`. After the last cell it goes on with the first, as parts do.
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

/// Bytes of a model's flash: both slots, and as much again.
pub const FLASH_LEN: usize = 4 * SLOT_LEN;

/// A flash whose cells are in memory.
#[derive(Debug, Clone)]
pub struct MemoryFlash {
    /// The cells.
    pub cells: Vec<u8>,
    status: u8,
}

impl MemoryFlash {
    /// Creates an erased flash of [`FLASH_LEN`] bytes.
    pub fn erased() -> Self {
        Self { cells: vec![0xFF; FLASH_LEN], status: 0 }
    }
}

impl SpiFlash for MemoryFlash {
    fn read(&self, at: FlashAddress, into: &mut [u8]) {
        let (before, from) = self.cells.split_at(at.0 as usize % self.cells.len());
        from.iter().chain(before).cycle().zip(into).for_each(|(cell, byte)| *byte = *cell);
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
