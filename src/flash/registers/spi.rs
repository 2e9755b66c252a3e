//! The SPI flash, command by command: a transaction is a few registers, a start bit, and a buffer at 0x7000.

use std::thread;
use std::time::{Duration, Instant};

use super::RegisterAccess;
use super::error::RegisterError;
use super::slot::{PAGE_LEN, SECTOR_LEN};
use crate::bridge::ControlError;
use crate::firmware::FlashAddress;

/// 0xC8A1 low, 0xC8A2 middle, 0xC8AB high byte of the flash address.
const ADDRESS: [u16; 3] = [0xC8A1, 0xC8A2, 0xC8AB];
/// 0xC8A3:0xC8A4: the length, big-endian.
const LENGTH: [u16; 2] = [0xC8A3, 0xC8A4];
/// 0xC8A9: bit 0 starts, and reads 0 when the transaction is over.
const START: u16 = 0xC8A9;
/// 0xC8AA: the flash's command.
const COMMAND: u16 = 0xC8AA;
/// 0xC8AC: 4 without an address, 7 with 24 bits of one.
const FRAME: u16 = 0xC8AC;
const WITHOUT_ADDRESS: u8 = 4;
const WITH_ADDRESS: u8 = 7;
/// 0xC8AD: 0 from the flash, 1 to it.
const MODE: u16 = 0xC8AD;
/// 0xC8AE:0xC8AF: where in the buffer.
const OFFSET: [u16; 2] = [0xC8AE, 0xC8AF];
/// Where the data lie.
const BUFFER: u16 = 0x7000;
/// 0x9094: 0x10 arms 0x02 for one packet, which goes into the buffer; 8 takes that back.
const BULK_ARM: u16 = 0x9094;
const ARM_OUT: u8 = 0x10;
const DROP_OUT: u8 = 0x08;
/// Written first: the clock, and the buffer as the flash's own. 0xCA81 gets its bit 0 set besides.
const SET_UP: [(u16, u8); 3] = [(0xCC33, 4), (0xC805, 2), (0xC8A6, 4)];
const SET_UP_BIT: (u16, u8) = (0xCA81, 1);

/// The flash's commands, which every SPI NOR part has.
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

/// How often the protection is cleared. Source: openpilot's flasher.
const UNPROTECT_TRIES: u32 = 5;
/// How long the controller may take for a transaction, which lasts 4,096 bytes at most.
const TRANSACTION: Duration = Duration::from_secs(1);
/// How long the flash may be busy. Data sheets allow 0.4 s for a sector, some milliseconds for a page and for the status.
const ERASE: Duration = Duration::from_secs(3);
const WRITE: Duration = Duration::from_secs(1);
/// How often a busy flash is asked.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How often a sector is read at most.
const READS: usize = 3;
/// How long everything may take that is done to a flash, so that a unit which answers slowly is given up in the end.
/// Source: openpilot's flasher.
pub const BUDGET: Duration = Duration::from_secs(600);

/// When the work on a flash has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    pub(super) at: Instant,
    pub(super) budget: Duration,
}

/// The flash behind a unit's registers.
#[derive(Debug)]
pub struct SpiFlash<R> {
    registers: R,
    deadline: Deadline,
    /// The last transaction is over, and [`MODE`] has still to be cleared: that goes with the requests that come next.
    is_ended: bool,
    /// Whether the buffer is filled by bulk data; a unit whose bulk pipe hangs gets it byte by byte.
    has_bulk: bool,
}

/// Where a transaction's data go.
#[derive(Debug, Clone, Copy)]
enum Data {
    None,
    FromFlash(u16),
    ToFlash(u16),
}

impl<R: RegisterAccess> SpiFlash<R> {
    /// Sets the controller up, and sees that a flash answers. Writes nothing to it. The work on it has to be over within
    /// [`BUDGET`].
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
        flash.transact(READ_ID, None, Data::FromFlash(id.len() as u16))?;
        flash.read_buffer(&mut id)?;
        if id == [0; 3] || id == [0xFF; 3] { Err(RegisterError::NoFlash { id }) } else { Ok(flash) }
    }

    /// When the work on it has to be over.
    pub const fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Holds it to a deadline that has begun before.
    pub const fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Gives it this long from now on.
    pub fn set_budget(&mut self, budget: Duration) {
        self.deadline = Deadline { at: self.registers.now() + budget, budget };
    }

    /// Gives the registers back.
    #[cfg(test)]
    pub(super) fn into_registers(self) -> R {
        self.registers
    }

    /// Reads a sector until two readings are the same, three times at most. A reading that fails counts as one.
    ///
    /// # Errors
    /// [`RegisterError::Unstable`] where no two are the same; else that of the last reading.
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
        Err(failure.unwrap_or(RegisterError::Unstable { at }))
    }

    fn read_once(&mut self, at: FlashAddress) -> Result<Box<[u8; SECTOR_LEN]>, RegisterError> {
        let mut bytes = Box::new([0; SECTOR_LEN]);
        self.load(at)?;
        self.read_buffer(&mut bytes[..])?;
        Ok(bytes)
    }

    /// Reads into the buffer: as much as fits, since a shorter read is not reliable. Source: openpilot's flasher.
    fn load(&mut self, at: FlashAddress) -> Result<(), RegisterError> {
        self.transact(READ, Some(at), Data::FromFlash(SECTOR_LEN as u16))
    }

    /// Takes the block protection away, where there is one.
    ///
    /// # Errors
    /// [`RegisterError::Protected`] where it stays.
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
            self.transact(WRITE_STATUS, None, Data::ToFlash(1))?;
            self.wait_while_busy("its status register", FlashAddress(0), WRITE)?;
            status = self.status()?;
        }
        Ok(())
    }

    /// Erases a sector, and sees that all of it is FF.
    ///
    /// # Errors
    /// [`RegisterError::NotErased`], [`RegisterError::Busy`].
    pub fn erase(&mut self, at: FlashAddress) -> Result<(), RegisterError> {
        self.enable_write()?;
        self.transact(ERASE_SECTOR, Some(at), Data::None)?;
        self.wait_while_busy("an erase", at, ERASE)?;
        let is_erased = |byte: &u8| *byte == 0xFF;
        if self.read_once(at)?.iter().all(is_erased) {
            return Ok(());
        }
        let count = self.read_sector(at)?.iter().filter(|byte| !is_erased(byte)).count();
        if count == 0 { Ok(()) } else { Err(RegisterError::NotErased { at, count }) }
    }

    /// Programs a page, and sees that it reads back.
    ///
    /// # Errors
    /// [`RegisterError::Differs`], [`RegisterError::Busy`].
    pub fn program(&mut self, at: FlashAddress, page: &[u8; PAGE_LEN]) -> Result<(), RegisterError> {
        self.enable_write()?;
        self.fill(page)?;
        self.transact(PROGRAM, Some(at), Data::ToFlash(PAGE_LEN as u16))?;
        self.wait_while_busy("a page", at, WRITE)?;
        let mut found = [0; PAGE_LEN];
        // A read that went wrong is no page that did.
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

    /// Clears bits: programs a page whose set bits stay as they are.
    ///
    /// # Errors
    /// [`RegisterError::Differs`] where a bit that was to be clear is not.
    pub fn clear_bits(&mut self, at: FlashAddress, page: &[u8; PAGE_LEN]) -> Result<(), RegisterError> {
        let mut wanted = [0; PAGE_LEN];
        self.load(at)?;
        self.read_buffer(&mut wanted)?;
        wanted.iter_mut().zip(page).for_each(|(byte, mask)| *byte &= mask);
        self.program(at, &wanted)
    }

    /// Puts a page into the buffer: by one bulk transfer, or, where bulk pipes hang, byte by byte.
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

    /// Command 06. It moves no data, so that the buffer stays as it is.
    fn enable_write(&mut self) -> Result<(), RegisterError> {
        self.transact(WRITE_ENABLE, None, Data::None)
    }

    fn status(&mut self) -> Result<u8, RegisterError> {
        let mut status = [0];
        self.transact(READ_STATUS, None, Data::FromFlash(1))?;
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

    /// One transaction, from its registers to its end.
    fn transact(&mut self, command: u8, at: Option<FlashAddress>, data: Data) -> Result<(), RegisterError> {
        if self.registers.now() >= self.deadline.at {
            return Err(RegisterError::OutOfTime { budget: self.deadline.budget });
        }
        let (mode, len) = match data {
            Data::None => (0, 0),
            Data::FromFlash(len) => (0, len),
            Data::ToFlash(len) => (1, len),
        };
        let mut writes = self.behind(&[(MODE, mode), (OFFSET[0], 0), (OFFSET[1], 0), (COMMAND, command)]);
        writes.push((FRAME, if at.is_some() { WITH_ADDRESS } else { WITHOUT_ADDRESS }));
        if let Some(FlashAddress(at)) = at {
            writes.extend(ADDRESS.into_iter().zip(at.to_le_bytes()));
        }
        writes.extend(LENGTH.into_iter().zip(len.to_be_bytes()));
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

    /// These writes, behind those that a transaction before them still needs: MODE cleared four times. Source: openpilot's
    /// flasher.
    fn behind(&mut self, writes: &[(u16, u8)]) -> Vec<(u16, u8)> {
        let count = if std::mem::take(&mut self.is_ended) { 4 } else { 0 };
        std::iter::repeat_n((MODE, 0), count).chain(writes.iter().copied()).collect()
    }

    fn write(&mut self, writes: &[(u16, u8)]) -> Result<(), RegisterError> {
        let writes = self.behind(writes);
        Ok(self.registers.write(&writes)?)
    }

    /// What the last transaction has brought.
    fn read_buffer(&mut self, into: &mut [u8]) -> Result<(), RegisterError> {
        let writes = self.behind(&[]);
        Ok(self.registers.exchange(&writes, BUFFER, into)?)
    }
}
