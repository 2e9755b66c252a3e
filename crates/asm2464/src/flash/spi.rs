//! The SPI flash, command by command. A transaction uses a few registers, a start bit, and a buffer at 0x7000.

use std::time::Duration;

use super::{JedecId, PAGE_LEN, RegisterAccess, RegisterError, SECTOR_LEN};
use crate::firmware::FlashAddress;
use crate::scsi::XdataAddress;

/// Result of an operation over the access `R`.
type FlashResult<T, R> = Result<T, RegisterError<<R as RegisterAccess>::Error>>;

/// 0xC8A1 low, 0xC8A2 middle, 0xC8AB high byte of the flash address.
const ADDRESS: [XdataAddress; 3] = [register(0xC8A1), register(0xC8A2), register(0xC8AB)];
/// 0xC8A3:0xC8A4: the length, big-endian.
const LENGTH: [XdataAddress; 2] = [register(0xC8A3), register(0xC8A4)];
/// 0xC8A9: bit 0 starts the transaction, and reads 0 when it has ended.
const START: XdataAddress = register(0xC8A9);
/// 0xC8AA: the flash's command.
const COMMAND: XdataAddress = register(0xC8AA);
/// 0xC8AC: 4 without an address, 7 with a 24-bit address.
const FRAME: XdataAddress = register(0xC8AC);
const WITHOUT_ADDRESS: u8 = 4;
const WITH_ADDRESS: u8 = 7;
/// 0xC8AD: the direction of a transaction's data. One without data reads 0 bytes.
const MODE: XdataAddress = register(0xC8AD);
const FROM_FLASH: u8 = 0;
const TO_FLASH: u8 = 1;
/// 0xC8AE:0xC8AF: offset in the buffer.
const OFFSET: [XdataAddress; 2] = [register(0xC8AE), register(0xC8AF)];
/// Address of the data buffer.
pub const BUFFER: XdataAddress = register(0x7000);
/// 0x9094 arms and drops the bulk pipes. Source: openpilot's flasher.
pub const BULK_ARM: XdataAddress = register(0x9094);
/// Arms endpoint 0x02 for one transfer, which goes into [`BUFFER`].
pub const ARM_OUT: u8 = 0x10;
/// Takes that back.
pub const DROP_OUT: u8 = 0x08;
/// Initial writes: the clock, and the buffer for the flash alone.
const SET_UP: [(XdataAddress, u8); 3] = [(register(0xCC33), 4), (register(0xC805), 2), (register(0xC8A6), 4)];
/// A bit that the set-up sets in a register whose other bits stay.
const SET_UP_BIT: (XdataAddress, u8) = (register(0xCA81), 1);

/// Flash commands that every SPI NOR part has.
const WRITE_STATUS: u8 = 0x01;
const PROGRAM: u8 = 0x02;
const READ: u8 = 0x03;
const READ_STATUS: u8 = 0x05;
const WRITE_ENABLE: u8 = 0x06;
const ERASE_SECTOR: u8 = 0x20;
const READ_ID: u8 = 0x9F;
/// Bit of the status register: busy.
const BUSY: u8 = 0x01;
/// BP0 to BP2 of a flash's status register: the blocks that it protects.
pub const PROTECTION: u8 = 0x1C;

/// Number of attempts to change the protection. Source: openpilot's flasher.
const PROTECT_TRIES: u32 = 5;
/// Bytes that one program writes below SuperSpeed. There the chip takes 128 bytes of a bulk transfer and reports
/// success, but only the first 64 reach the buffer. Source: tinygrad's pull request 83, measured.
const HIGH_SPEED_PAGE_LEN: usize = 64;
/// Time limit of the controller for a transaction of at most 4,096 bytes.
const TRANSACTION: Duration = Duration::from_secs(1);
/// Time that the flash may be busy. Data sheets allow 0.4 s for a sector, some milliseconds for a page and for the
/// status.
const ERASE: Duration = Duration::from_secs(3);
const WRITE: Duration = Duration::from_secs(1);
/// Interval between status reads of a busy flash.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Maximum number of readings of a sector or register, of which two have to be equal. The first byte after a read may
/// be the buffer's old one. Source: tinygrad's pull request 83, measured.
const READS: usize = 3;
/// Time limit of all operations on a flash, so that the work on a slow unit does not go on forever. Source: openpilot's
/// flasher.
pub const BUDGET: Duration = Duration::from_secs(600);

const fn register(addr: u16) -> XdataAddress {
    XdataAddress::main(addr)
}

/// State that a new connection to the same unit takes over from the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashSession {
    /// Time at which the work has to have ended, by [`RegisterAccess::now`].
    ends_at: Duration,
    budget: Duration,
    /// Whether each sector that is read or written restarts the time.
    is_renewed: bool,
    /// Whether bulk data fills the buffer. Once the pipe has hung, or a page has differed, it is filled byte by byte.
    has_bulk: bool,
}

/// The flash behind a unit's registers.
#[derive(Debug)]
pub struct RegisterFlash<R> {
    registers: R,
    id: JedecId,
    session: FlashSession,
    /// Bytes that one program writes.
    page_len: usize,
    /// The last transaction has ended, but [`MODE`] is not cleared yet: the next requests do that.
    is_ended: bool,
}

impl<R: RegisterAccess> RegisterFlash<R> {
    /// Sets up the controller and checks that a flash answers. Writes nothing to the flash. The work on it has to end
    /// within [`BUDGET`].
    ///
    /// # Errors
    /// [`RegisterError::NoFlash`], [`RegisterError::Disagrees`], [`RegisterError::Access`].
    pub fn new(mut registers: R) -> FlashResult<Self, R> {
        let ends_at = registers.now() + BUDGET;
        Self::resume(registers, FlashSession { ends_at, budget: BUDGET, is_renewed: false, has_bulk: true })
    }

    /// Does the same for a new connection to a unit that was in use. Its time limit continues.
    ///
    /// # Errors
    /// As for [`RegisterFlash::new`]; [`RegisterError::OutOfTime`], [`RegisterError::NoProgress`].
    pub fn resume(mut registers: R, session: FlashSession) -> FlashResult<Self, R> {
        let mut byte = [0];
        let (at, bit) = SET_UP_BIT;
        registers.exchange(&[], at, &mut byte)?;
        registers.write(&SET_UP)?;
        registers.write(&[(at, byte[0] | bit)])?;
        let page_len = if registers.is_super_speed() { PAGE_LEN } else { HIGH_SPEED_PAGE_LEN };
        let mut flash = Self { registers, id: JedecId([0; 3]), session, page_len, is_ended: false };
        flash.id = JedecId(flash.agreed(READ_ID)?.ok_or(RegisterError::Disagrees("ID"))?);
        if matches!(flash.id.0, [0, 0, 0] | [0xFF, 0xFF, 0xFF]) {
            Err(RegisterError::NoFlash(flash.id))
        } else {
            Ok(flash)
        }
    }

    /// Returns the flash's ID.
    pub const fn id(&self) -> JedecId {
        self.id
    }

    /// Restarts the time limit with this budget.
    pub fn set_budget(&mut self, budget: Duration) {
        let ends_at = self.registers.now() + budget;
        self.session = FlashSession { ends_at, budget, is_renewed: false, ..self.session };
    }

    /// Restarts the time limit. From now on only a lack of progress uses it up: see [`RegisterFlash::progressed`].
    pub fn expect_progress(&mut self) {
        self.session.is_renewed = true;
        self.progressed();
    }

    /// Notes that a sector was read or written, which restarts the time limit if only a lack of progress counts.
    pub fn progressed(&mut self) {
        if self.session.is_renewed {
            self.session.ends_at = self.registers.now() + self.session.budget;
        }
    }

    /// Returns the state that a new connection takes over.
    pub const fn session(&self) -> FlashSession {
        self.session
    }

    /// Reads a sector until two readings are equal, at most three times. A failed reading counts as one.
    ///
    /// # Errors
    /// If no two readings are equal: the last failure, or [`RegisterError::Unstable`] if no reading failed.
    pub fn read_sector(&mut self, at: FlashAddress) -> FlashResult<Box<[u8; SECTOR_LEN]>, R> {
        let mut readings: Vec<Box<[u8; SECTOR_LEN]>> = Vec::with_capacity(READS);
        let mut failure = None;
        for _ in 0..READS {
            match self.read_once(at) {
                Ok(reading) if readings.contains(&reading) => return Ok(reading),
                Ok(reading) => readings.push(reading),
                Err(error) if error.is_out_of_time() => return Err(error),
                Err(RegisterError::Access(error)) if R::is_gone(&error) => return Err(error.into()),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(RegisterError::Unstable(at)))
    }

    fn read_once(&mut self, at: FlashAddress) -> FlashResult<Box<[u8; SECTOR_LEN]>, R> {
        let mut bytes = Box::new([0; SECTOR_LEN]);
        self.load(at)?;
        self.read_buffer(&mut bytes[..])?;
        Ok(bytes)
    }

    /// Reads into the buffer. Always fills it, because a shorter read is not reliable. Source: openpilot's flasher.
    fn load(&mut self, at: FlashAddress) -> FlashResult<(), R> {
        self.transact(READ, Some(at), FROM_FLASH, SECTOR_LEN)
    }

    /// Reads the block protection: its bits in the status register.
    ///
    /// # Errors
    /// [`RegisterError::Disagrees`], [`RegisterError::Access`].
    pub fn protection(&mut self) -> FlashResult<u8, R> {
        Ok(self.status()? & PROTECTION)
    }

    /// Clears the block protection if it is set.
    ///
    /// # Errors
    /// [`RegisterError::Protected`] if it stays set.
    pub fn unprotect(&mut self) -> FlashResult<(), R> {
        match self.set_protection(0)? {
            (status, tries) if status & PROTECTION != 0 => Err(RegisterError::Protected { status, tries }),
            _ => Ok(()),
        }
    }

    /// Sets the block protection to what [`RegisterFlash::protection`] has read before.
    ///
    /// # Errors
    /// [`RegisterError::Unprotected`] if it stays different.
    pub fn protect(&mut self, protection: u8) -> FlashResult<(), R> {
        match self.set_protection(protection)? {
            (status, _) if status & PROTECTION != protection => Err(RegisterError::Unprotected { status, protection }),
            _ => Ok(()),
        }
    }

    /// Writes the protection bits of the status register, and leaves its other bits as they are: some lock the register
    /// permanently. Returns the status and the number of tries.
    fn set_protection(&mut self, protection: u8) -> FlashResult<(u8, u32), R> {
        let mut tries = 0;
        loop {
            let status = self.status()?;
            if status & PROTECTION == protection || tries == PROTECT_TRIES {
                return Ok((status, tries));
            }
            tries += 1;
            let wanted = status & !PROTECTION | protection;
            self.enable_write()?;
            self.write(&[(BUFFER, wanted)])?;
            if self.buffer_begins_with(&[wanted])? {
                self.transact(WRITE_STATUS, None, TO_FLASH, 1)?;
                self.wait_while_busy("its status register", FlashAddress(0), WRITE)?;
            }
        }
    }

    /// Erases a sector and checks that all of it is FF.
    ///
    /// # Errors
    /// [`RegisterError::NotErased`], [`RegisterError::Busy`].
    pub fn erase(&mut self, at: FlashAddress) -> FlashResult<(), R> {
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
    pub fn program(&mut self, at: FlashAddress, page: &[u8; PAGE_LEN]) -> FlashResult<(), R> {
        let pieces = (at.0..).step_by(self.page_len).map(FlashAddress).zip(page.chunks(self.page_len));
        // The page's start is written last: in the image's first page it is the image's length.
        for (at, piece) in pieces.collect::<Vec<_>>().into_iter().rev() {
            self.program_piece(at, piece)?;
        }
        Ok(())
    }

    fn program_piece(&mut self, at: FlashAddress, piece: &[u8]) -> FlashResult<(), R> {
        self.enable_write()?;
        self.fill(piece)?;
        self.transact(PROGRAM, Some(at), TO_FLASH, piece.len())?;
        self.wait_while_busy("a page", at, WRITE)?;
        let mut found = vec![0; piece.len()];
        // A failed read does not mean that the page is wrong.
        for _ in 0..READS {
            self.load(at)?;
            self.read_buffer(&mut found)?;
            if found == piece {
                return Ok(());
            }
        }
        self.session.has_bulk = false;
        let count = found.iter().zip(piece).filter(|(found, wanted)| found != wanted).count();
        Err(RegisterError::Differs { at, count })
    }

    /// Clears bits: programs a page whose set bits leave the flash unchanged.
    ///
    /// # Errors
    /// [`RegisterError::Differs`] if a bit was not cleared.
    pub fn clear_bits(&mut self, at: FlashAddress, page: &[u8; PAGE_LEN]) -> FlashResult<(), R> {
        let found = self.read_sector(at)?;
        let mut wanted = *page;
        wanted.iter_mut().zip(&found[..]).for_each(|(mask, byte)| *mask &= byte);
        self.program(at, &wanted)
    }

    /// Puts bytes into the buffer: by one bulk transfer or, once that has failed, byte by byte. Only the flash itself
    /// shows whether they have arrived: a difference here may come from the read, so it is only a reason to retry.
    fn fill(&mut self, bytes: &[u8]) -> FlashResult<(), R> {
        if self.session.has_bulk {
            self.write(&[(BULK_ARM, ARM_OUT)])?;
            match self.registers.send(bytes) {
                Ok(()) if self.buffer_begins_with(bytes)? => return Ok(()),
                Ok(()) => {}
                Err(error) if R::is_gone(&error) => return Err(error.into()),
                Err(_) => self.write(&[(BULK_ARM, DROP_OUT)])?,
            }
            self.session.has_bulk = false;
        }
        let writes: Vec<_> = (0..).map(|offset| BUFFER.plus(offset)).zip(bytes.iter().copied()).collect();
        self.write(&writes)?;
        // Bytes get lost on this way too. Source: elkoled's flasher, in 1.3 % of the pages.
        if self.buffer_begins_with(bytes)? { Ok(()) } else { self.write(&writes) }
    }

    /// Whether the buffer begins with these bytes.
    fn buffer_begins_with(&mut self, bytes: &[u8]) -> FlashResult<bool, R> {
        let mut found = vec![0; bytes.len()];
        self.read_buffer(&mut found)?;
        Ok(found == bytes)
    }

    /// Sends command 06. It moves no data, so the buffer stays unchanged.
    fn enable_write(&mut self) -> FlashResult<(), R> {
        self.transact(WRITE_ENABLE, None, FROM_FLASH, 0)
    }

    /// Reads the status register.
    ///
    /// # Errors
    /// [`RegisterError::Disagrees`], [`RegisterError::Access`].
    pub fn status(&mut self) -> FlashResult<u8, R> {
        let [status] = self.agreed(READ_STATUS)?.ok_or(RegisterError::Disagrees("status register"))?;
        Ok(status)
    }

    /// Reads a register of the flash until two readings are equal; `None` if no two of three are.
    fn agreed<const LEN: usize>(&mut self, command: u8) -> FlashResult<Option<[u8; LEN]>, R> {
        let mut readings: Vec<[u8; LEN]> = Vec::with_capacity(READS);
        for _ in 0..READS {
            let mut reading = [0; LEN];
            self.transact(command, None, FROM_FLASH, LEN)?;
            self.read_buffer(&mut reading)?;
            if readings.contains(&reading) {
                return Ok(Some(reading));
            }
            readings.push(reading);
        }
        Ok(None)
    }

    fn wait_while_busy(&mut self, what: &'static str, at: FlashAddress, deadline: Duration) -> FlashResult<(), R> {
        let until = self.registers.now() + deadline;
        // A status that differs from read to read means that the flash may still be busy.
        while self.agreed(READ_STATUS)?.is_none_or(|[status]| status & BUSY != 0) {
            if self.registers.now() >= until {
                return Err(RegisterError::Busy { what, at, deadline });
            }
            self.registers.pause(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Performs one transaction, from its registers to its end.
    fn transact(&mut self, command: u8, at: Option<FlashAddress>, mode: u8, len: usize) -> FlashResult<(), R> {
        let FlashSession { ends_at, budget, is_renewed, .. } = self.session;
        if self.registers.now() >= ends_at {
            return Err(if is_renewed { RegisterError::NoProgress(budget) } else { RegisterError::OutOfTime(budget) });
        }
        let mut writes = self.with_mode_cleared(&[(MODE, mode), (OFFSET[0], 0), (OFFSET[1], 0), (COMMAND, command)]);
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
    fn with_mode_cleared(&mut self, writes: &[(XdataAddress, u8)]) -> Vec<(XdataAddress, u8)> {
        let count = if std::mem::take(&mut self.is_ended) { 4 } else { 0 };
        std::iter::repeat_n((MODE, 0), count).chain(writes.iter().copied()).collect()
    }

    fn write(&mut self, writes: &[(XdataAddress, u8)]) -> FlashResult<(), R> {
        let writes = self.with_mode_cleared(writes);
        Ok(self.registers.write(&writes)?)
    }

    /// Reads the last transaction's data.
    fn read_buffer(&mut self, into: &mut [u8]) -> FlashResult<(), R> {
        let writes = self.with_mode_cleared(&[]);
        Ok(self.registers.exchange(&writes, BUFFER, into)?)
    }
}
