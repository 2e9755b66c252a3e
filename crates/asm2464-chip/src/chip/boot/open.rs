//! Checks of open firmware: its control requests, and a flash write through the chip's registers. A unit with open
//! firmware gets other firmware through those registers.

use asm2464::firmware::{FlashAddress, is_runtime_product};

use super::{BootFault, BootedUnit, Failed, expect, same};
use crate::mcu::SpiFlash as _;

/// Plain memory in the open firmware, to read back what E5 wrote.
const SCRATCH_AT: u16 = 0x5FF0;
/// Buffer of the flash controller.
const FLASH_BUFFER: u16 = 0x7000;
/// The sector to erase and program: the last one of the first part.
const SECTOR: FlashAddress = FlashAddress(0x00_F000);
/// Maximum number of reads of a register before the wait for it fails.
const LOOKS: usize = 64;

/// Commands of the SPI flash.
const WRITE_ENABLE: u8 = 0x06;
const READ_STATUS: u8 = 0x05;
const PROGRAM: u8 = 0x02;
const ERASE_SECTOR: u8 = 0x20;

/// Direction of a flash command's data: 0xC8AD.
#[derive(Debug, Clone, Copy)]
enum FlashDirection {
    In = 0,
    Out = 1,
}

impl BootedUnit<'_> {
    pub(super) fn open_firmware(&mut self) -> Result<(), Failed> {
        let product = self.enumerated.product.clone();
        let named = is_runtime_product(&product);
        self.note("names itself as a GPU runtime expects", expect(named, || format!("product {product:?}")))?;
        let written = self.xdata_write(SCRATCH_AT, 0xA7);
        self.note("writes XDATA (E5)", written.map(|()| String::new()))?;
        let read = self.xdata_read(SCRATCH_AT);
        self.note("reads XDATA (E4)", read.and_then(|found| same(&[found], &[0xA7])))?;
        // Configuration read, type 0, of the first dword of bus 0, device 0: one TLP, then its completion.
        let asked = self.control([0x40, 0xF0, 0x04, 0x0F, 0, 0, 12, 0], &[0; 12]);
        self.note("sends a configuration read (F0)", asked.map(|_| String::new()))?;
        let answer = self.control([0xC0, 0xF0, 0, 0, 0, 0, 8, 0], &[]);
        let done = |answer: &Vec<u8>| answer.len() == 8 && answer[7] == 0;
        self.note(
            "gives its completion (F0)",
            answer.and_then(|answer| expect(done(&answer), || format!("completion {answer:02x?}"))),
        )?;
        let bytes: [u8; 16] = std::array::from_fn(|at| at as u8 ^ 0xA5);
        let outcome = self.program(&bytes).and_then(|()| {
            let mut found = [0; 17];
            self.driver.chip.flash().read(SECTOR, &mut found);
            let mut expected = [0xFF; 17];
            expected[..16].copy_from_slice(&bytes);
            same(&found, &expected)
        });
        self.note("writes its flash through registers (E4, E5)", outcome)
    }

    /// Erases the sector and programs its first bytes. Source: openpilot's flasher, register by register.
    fn program(&mut self, bytes: &[u8]) -> Result<(), BootFault> {
        let ca81 = self.xdata_read(0xCA81)?;
        for (at, value) in [(0xCC33, 4), (0xCA81, ca81 | 1), (0xC805, 2), (0xC8A6, 4)] {
            self.xdata_write(at, value)?;
        }
        self.flash_command(WRITE_ENABLE, FlashDirection::Out, None, 0)?;
        self.flash_command(ERASE_SECTOR, FlashDirection::Out, Some(SECTOR), 0)?;
        self.await_flash()?;
        for (offset, byte) in bytes.iter().enumerate() {
            self.xdata_write(FLASH_BUFFER + offset as u16, *byte)?;
        }
        // This command must not change the buffer.
        self.flash_command(WRITE_ENABLE, FlashDirection::Out, None, 0)?;
        self.flash_command(PROGRAM, FlashDirection::Out, Some(SECTOR), bytes.len() as u16)?;
        self.await_flash()
    }

    fn flash_command(
        &mut self,
        command: u8,
        data: FlashDirection,
        at: Option<FlashAddress>,
        len: u16,
    ) -> Result<(), BootFault> {
        let frame = if at.is_some() { 7 } else { 4 };
        let [low, middle, high, _] = at.unwrap_or(FlashAddress(0)).0.to_le_bytes();
        let [len_high, len_low] = len.to_be_bytes();
        for (at, value) in [
            (0xC8AD, data as u8),
            (0xC8AE, 0),
            (0xC8AF, 0),
            (0xC8AA, command),
            (0xC8AC, frame),
            (0xC8A1, low),
            (0xC8A2, middle),
            (0xC8AB, high),
            (0xC8A3, len_high),
            (0xC8A4, len_low),
            (0xC8A9, 1),
        ] {
            self.xdata_write(at, value)?;
        }
        self.await_clear(0xC8A9, |_| Ok(()))?;
        self.xdata_write(0xC8AD, 0)
    }

    /// Waits until the flash is no longer busy: bit 0 of its status.
    fn await_flash(&mut self) -> Result<(), BootFault> {
        self.await_clear(FLASH_BUFFER, |unit| unit.flash_command(READ_STATUS, FlashDirection::In, None, 1))
    }

    fn await_clear(&mut self, at: u16, ask: impl Fn(&mut Self) -> Result<(), BootFault>) -> Result<(), BootFault> {
        for _ in 0..LOOKS {
            ask(self)?;
            if self.xdata_read(at)? & 1 == 0 {
                return Ok(());
            }
        }
        Err(BootFault::Wrong(format!("bit 0 of {at:#06x} stays 1")))
    }

    fn xdata_write(&mut self, at: u16, value: u8) -> Result<(), BootFault> {
        let [low, high] = at.to_le_bytes();
        self.control([0x40, 0xE5, low, high, value, 0, 0, 0], &[]).map(drop)
    }

    fn xdata_read(&mut self, at: u16) -> Result<u8, BootFault> {
        let [low, high] = at.to_le_bytes();
        match *self.control([0xC0, 0xE4, low, high, 0, 0, 1, 0], &[])? {
            [byte] => Ok(byte),
            ref other => Err(BootFault::Wrong(format!("{} bytes, expected 1", other.len()))),
        }
    }

    fn control(&mut self, setup: [u8; 8], data: &[u8]) -> Result<Vec<u8>, BootFault> {
        self.driver.control(setup, data).map_err(|why| self.fault(why))
    }
}
