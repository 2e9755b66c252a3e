//! The SPI flash, command by command. A transaction uses a few registers, a start bit, and a buffer at 0x7000.

use std::thread;
use std::time::{Duration, Instant};

use super::slot::{PAGE_LEN, SECTOR_LEN};
use super::{RegisterAccess, RegisterError};
use crate::bridge::ControlError;
use crate::firmware::FlashAddress;

/// 0xC8A1 low, 0xC8A2 middle, 0xC8AB high byte of the flash address.
const ADDRESS: [u16; 3] = [0xC8A1, 0xC8A2, 0xC8AB];
/// 0xC8A3:0xC8A4: the length, big-endian.
const LENGTH: [u16; 2] = [0xC8A3, 0xC8A4];
/// 0xC8A9: bit 0 starts the transaction, and reads 0 when it has ended.
const START: u16 = 0xC8A9;
/// 0xC8AA: the flash's command.
const COMMAND: u16 = 0xC8AA;
/// 0xC8AC: 4 without an address, 7 with 24 bits of one.
const FRAME: u16 = 0xC8AC;
const WITHOUT_ADDRESS: u8 = 4;
const WITH_ADDRESS: u8 = 7;
/// 0xC8AD: the direction of a transaction's data. One without data reads 0 bytes.
const MODE: u16 = 0xC8AD;
const FROM_FLASH: u8 = 0;
const TO_FLASH: u8 = 1;
/// 0xC8AE:0xC8AF: offset in the buffer.
const OFFSET: [u16; 2] = [0xC8AE, 0xC8AF];
/// Address of the data buffer.
const BUFFER: u16 = 0x7000;
/// 0x9094: 0x10 arms 0x02 for one packet, which goes into the buffer; 8 cancels that.
const BULK_ARM: u16 = 0x9094;
const ARM_OUT: u8 = 0x10;
const DROP_OUT: u8 = 0x08;
/// Initial writes: the clock, and the buffer as the flash's own. 0xCA81 also gets its bit 0 set.
const SET_UP: [(u16, u8); 3] = [(0xCC33, 4), (0xC805, 2), (0xC8A6, 4)];
const SET_UP_BIT: (u16, u8) = (0xCA81, 1);

/// Flash commands that every SPI NOR part has.
const WRITE_STATUS: u8 = 0x01;
const PROGRAM: u8 = 0x02;
const READ: u8 = 0x03;
const READ_STATUS: u8 = 0x05;
const WRITE_ENABLE: u8 = 0x06;
const ERASE_SECTOR: u8 = 0x20;
const READ_ID: u8 = 0x9F;
/// Bits of the status register: busy; block protection.
const BUSY: u8 = 0x01;
const PROTECTION: u8 = 0x1C;

/// Number of attempts to clear the protection. Source: openpilot's flasher.
const UNPROTECT_TRIES: u32 = 5;
/// Time limit of the controller for a transaction of at most 4,096 bytes.
const TRANSACTION: Duration = Duration::from_secs(1);
/// Time that the flash may be busy. Data sheets allow 0.4 s for a sector, some milliseconds for a page and for the
/// status.
const ERASE: Duration = Duration::from_secs(3);
const WRITE: Duration = Duration::from_secs(1);
/// Interval between status reads of a busy flash.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Maximum number of readings of a sector.
const READS: usize = 3;
/// Time limit of all operations on a flash, so that a unit that answers slowly is given up in the end. Source:
/// openpilot's flasher.
pub const BUDGET: Duration = Duration::from_secs(600);

/// Deadline of the work on a flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    pub(super) at: Instant,
    pub(super) budget: Duration,
}

/// The flash behind a unit's registers.
#[derive(Debug)]
pub struct RegisterFlash<R> {
    registers: R,
    /// Deadline of the work on the flash.
    pub(in crate::flash) deadline: Deadline,
    /// The last transaction has ended, but [`MODE`] is not cleared yet: the next requests do that.
    is_ended: bool,
    /// Whether bulk data fills the buffer. If a unit's bulk pipe hangs, it is filled byte by byte.
    has_bulk: bool,
}

impl<R: RegisterAccess> RegisterFlash<R> {
    /// Sets up the controller and checks that a flash answers. Writes nothing to the flash. The work on it has to end
    /// within [`BUDGET`].
    ///
    /// # Errors
    /// [`RegisterError::NoFlash`], [`RegisterError::Control`].
    pub fn new(mut registers: R) -> Result<Self, RegisterError> {
        let mut byte = [0];
        let (at, bit) = SET_UP_BIT;
        registers.exchange(&[], at, &mut byte)?;
        registers.write(&SET_UP)?;
        registers.write(&[(at, byte[0] | bit)])?;
        let deadline = Deadline { at: registers.now() + BUDGET, budget: BUDGET };
        let mut flash = Self { registers, deadline, is_ended: false, has_bulk: true };
        let mut id = [0; 3];
        flash.transact(READ_ID, None, FROM_FLASH, id.len())?;
        flash.read_buffer(&mut id)?;
        if id == [0; 3] || id == [0xFF; 3] { Err(RegisterError::NoFlash(id)) } else { Ok(flash) }
    }

    /// Restarts the time limit with this budget.
    pub fn set_budget(&mut self, budget: Duration) {
        self.deadline = Deadline { at: self.registers.now() + budget, budget };
    }

    /// Returns the registers.
    #[cfg(test)]
    pub(super) fn into_registers(self) -> R {
        self.registers
    }

    /// Reads a sector until two readings are equal, at most three times. A failed reading counts as one.
    ///
    /// # Errors
    /// [`RegisterError::Unstable`] if no two readings are equal; else the last reading's error.
    pub fn read_sector(&mut self, at: FlashAddress) -> Result<Box<[u8; SECTOR_LEN]>, RegisterError> {
        let mut readings: Vec<Box<[u8; SECTOR_LEN]>> = Vec::with_capacity(READS);
        let mut failure = None;
        for _ in 0..READS {
            match self.read_once(at) {
                Ok(reading) if readings.contains(&reading) => return Ok(reading),
                Ok(reading) => readings.push(reading),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(RegisterError::Unstable(at)))
    }

    fn read_once(&mut self, at: FlashAddress) -> Result<Box<[u8; SECTOR_LEN]>, RegisterError> {
        let mut bytes = Box::new([0; SECTOR_LEN]);
        self.load(at)?;
        self.read_buffer(&mut bytes[..])?;
        Ok(bytes)
    }

    /// Reads into the buffer. Always fills it, because a shorter read is not reliable. Source: openpilot's flasher.
    fn load(&mut self, at: FlashAddress) -> Result<(), RegisterError> {
        self.transact(READ, Some(at), FROM_FLASH, SECTOR_LEN)
    }

    /// Clears the block protection if it is set.
    ///
    /// # Errors
    /// [`RegisterError::Protected`] if it stays set.
    pub fn unprotect(&mut self) -> Result<(), RegisterError> {
        let mut status = self.status()?;
        let mut tries = 0;
        while status & PROTECTION != 0 {
            if tries == UNPROTECT_TRIES {
                return Err(RegisterError::Protected { status, tries });
            }
            tries += 1;
            self.enable_write()?;
            self.write(&[(BUFFER, 0)])?;
            self.transact(WRITE_STATUS, None, TO_FLASH, 1)?;
            self.wait_while_busy("its status register", FlashAddress(0), WRITE)?;
            status = self.status()?;
        }
        Ok(())
    }

    /// Reads the bits of the block protection.
    ///
    /// # Errors
    /// [`RegisterError::Control`], [`RegisterError::Controller`].
    pub fn protection(&mut self) -> Result<u8, RegisterError> {
        Ok(self.status()? & PROTECTION)
    }

    /// Sets the block protection to what [`RegisterFlash::protection`] has read before.
    ///
    /// # Errors
    /// [`RegisterError::Busy`], [`RegisterError::Control`], [`RegisterError::Controller`].
    pub fn protect(&mut self, protection: u8) -> Result<(), RegisterError> {
        self.enable_write()?;
        self.write(&[(BUFFER, protection)])?;
        self.transact(WRITE_STATUS, None, TO_FLASH, 1)?;
        self.wait_while_busy("its status register", FlashAddress(0), WRITE)
    }

    /// Erases a sector and checks that all of it is FF.
    ///
    /// # Errors
    /// [`RegisterError::NotErased`], [`RegisterError::Busy`].
    pub fn erase(&mut self, at: FlashAddress) -> Result<(), RegisterError> {
        self.enable_write()?;
        self.transact(ERASE_SECTOR, Some(at), FROM_FLASH, 0)?;
        self.wait_while_busy("an erase", at, ERASE)?;
        let is_erased = |byte: &u8| *byte == 0xFF;
        if self.read_once(at)?.iter().all(is_erased) {
            return Ok(());
        }
        let count = self.read_sector(at)?.iter().filter(|byte| !is_erased(byte)).count();
        if count == 0 { Ok(()) } else { Err(RegisterError::NotErased { at, count }) }
    }

    /// Programs a page and checks that it reads back.
    ///
    /// # Errors
    /// [`RegisterError::Differs`], [`RegisterError::Busy`].
    pub fn program(&mut self, at: FlashAddress, page: &[u8; PAGE_LEN]) -> Result<(), RegisterError> {
        self.enable_write()?;
        self.fill(page)?;
        self.transact(PROGRAM, Some(at), TO_FLASH, PAGE_LEN)?;
        self.wait_while_busy("a page", at, WRITE)?;
        let mut found = [0; PAGE_LEN];
        // A failed read does not mean that the page is wrong.
        for _ in 0..2 {
            self.load(at)?;
            self.read_buffer(&mut found)?;
            if found == *page {
                return Ok(());
            }
        }
        Err(RegisterError::Differs {
            at,
            count: found.iter().zip(page).filter(|(found, wanted)| found != wanted).count(),
        })
    }

    /// Clears bits: programs a page whose set bits leave the flash unchanged.
    ///
    /// # Errors
    /// [`RegisterError::Differs`] if a bit was not cleared.
    pub fn clear_bits(&mut self, at: FlashAddress, page: &[u8; PAGE_LEN]) -> Result<(), RegisterError> {
        let mut wanted = [0; PAGE_LEN];
        self.load(at)?;
        self.read_buffer(&mut wanted)?;
        wanted.iter_mut().zip(page).for_each(|(byte, mask)| *byte &= mask);
        self.program(at, &wanted)
    }

    /// Puts a page into the buffer: by one bulk transfer or, if the bulk pipes hang, byte by byte.
    fn fill(&mut self, page: &[u8; PAGE_LEN]) -> Result<(), RegisterError> {
        if self.has_bulk {
            self.write(&[(BULK_ARM, ARM_OUT)])?;
            match self.registers.send(page) {
                Ok(()) => return Ok(()),
                Err(gone @ ControlError::Disconnected { .. }) => return Err(gone.into()),
                Err(_) => {
                    self.has_bulk = false;
                    self.write(&[(BULK_ARM, DROP_OUT)])?;
                }
            }
        }
        let bytes: Vec<(u16, u8)> = (BUFFER..).zip(page.iter().copied()).collect();
        self.write(&bytes)
    }

    /// Sends command 06. It moves no data, so the buffer stays unchanged.
    fn enable_write(&mut self) -> Result<(), RegisterError> {
        self.transact(WRITE_ENABLE, None, FROM_FLASH, 0)
    }

    fn status(&mut self) -> Result<u8, RegisterError> {
        let mut status = [0];
        self.transact(READ_STATUS, None, FROM_FLASH, 1)?;
        self.read_buffer(&mut status)?;
        Ok(status[0])
    }

    fn wait_while_busy(
        &mut self,
        what: &'static str,
        at: FlashAddress,
        deadline: Duration,
    ) -> Result<(), RegisterError> {
        let until = self.registers.now() + deadline;
        while self.status()? & BUSY != 0 {
            if self.registers.now() >= until {
                return Err(RegisterError::Busy { what, at, deadline });
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Performs one transaction, from its registers to its end.
    fn transact(&mut self, command: u8, at: Option<FlashAddress>, mode: u8, len: usize) -> Result<(), RegisterError> {
        if self.registers.now() >= self.deadline.at {
            return Err(RegisterError::OutOfTime(self.deadline.budget));
        }
        let mut writes = self.behind(&[(MODE, mode), (OFFSET[0], 0), (OFFSET[1], 0), (COMMAND, command)]);
        writes.push((FRAME, if at.is_some() { WITH_ADDRESS } else { WITHOUT_ADDRESS }));
        if let Some(FlashAddress(at)) = at {
            writes.extend(ADDRESS.into_iter().zip(at.to_le_bytes()));
        }
        writes.extend(LENGTH.into_iter().zip((len as u16).to_be_bytes()));
        writes.push((START, 1));
        let mut busy = [0];
        self.registers.exchange(&writes, START, &mut busy)?;
        let until = self.registers.now() + TRANSACTION;
        while busy[0] & 1 != 0 {
            if self.registers.now() >= until {
                return Err(RegisterError::Controller { command, deadline: TRANSACTION });
            }
            self.registers.exchange(&[], START, &mut busy)?;
        }
        self.is_ended = true;
        Ok(())
    }

    /// Prepends the writes that the previous transaction still needs: MODE cleared four times. Source: openpilot's
    /// flasher.
    fn behind(&mut self, writes: &[(u16, u8)]) -> Vec<(u16, u8)> {
        let count = if std::mem::take(&mut self.is_ended) { 4 } else { 0 };
        std::iter::repeat_n((MODE, 0), count).chain(writes.iter().copied()).collect()
    }

    fn write(&mut self, writes: &[(u16, u8)]) -> Result<(), RegisterError> {
        let writes = self.behind(writes);
        Ok(self.registers.write(&writes)?)
    }

    /// Reads the last transaction's data.
    fn read_buffer(&mut self, into: &mut [u8]) -> Result<(), RegisterError> {
        let writes = self.behind(&[]);
        Ok(self.registers.exchange(&writes, BUFFER, into)?)
    }
}
