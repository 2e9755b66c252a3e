//! The SPI flash: NOR cells, which an erase sets to 1 and a program can only clear.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use crate::firmware::FlashAddress;
use crate::mcu::{FlashGone, SpiFlash};

/// Bytes that one erase sets to 0xFF.
pub const SECTOR_LEN: usize = 0x1000;
/// Bytes that one program can reach; it never crosses a page's end.
pub const PAGE_LEN: usize = 0x100;
/// Bytes in a virtual bridge's flash: both slots of the reference's flash map, and the same again.
pub const FLASH_LEN: usize = 0x8_0000;

/// How long the cells take. Zero, the default, is no time at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlashTiming {
    /// One sector erase.
    pub erase_sector: Duration,
    /// One page program.
    pub program_page: Duration,
}

/// What is wrong with the cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlashFaults {
    /// Whether the status register's protection bits are set at power-on, and whether they can be cleared.
    pub protection: Option<Protection>,
    /// An erase of the sector around this address leaves it as it is.
    pub stuck_sector: Option<FlashAddress>,
    /// One bit of every so many reads over SPI is wrong, another one each time.
    pub unstable_reads: Option<u64>,
}

/// The block protection of a flash that has some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// Until it is cleared.
    Clearable,
    /// The write-protect pin holds it.
    ForGood,
}

/// The status register's protection bits, and busy.
const PROTECTED: u8 = 0x1C;
const BUSY: u8 = 0x01;

/// Why the flash did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum FlashFault {
    /// The power went away (the scenario's `power-loss-after`).
    #[error("the unit lost its power")]
    PowerLost,
    /// Past the last cell.
    #[error("{address} and {len} bytes from there are outside the flash")]
    Outside {
        /// Where.
        address: FlashAddress,
        /// Bytes.
        len: usize,
    },
    /// The file under the cells.
    #[error("the flash's file cannot be written")]
    Io(#[from] io::Error),
}

/// NOR cells, in memory and, where there is one, in a file which every erase and program reaches at once.
#[derive(Debug)]
pub struct NorFlash {
    cells: Vec<u8>,
    file: Option<File>,
    timing: FlashTiming,
    busy: Duration,
    /// What was done since the time that it took was last asked for. Each ends so long after that moment.
    underway: Vec<(Duration, Change)>,
    /// What was done, and when it ends. The cells have it at once, as nobody sees them while the unit is busy; a power
    /// loss before that moment takes it back.
    unfinished: Vec<(Instant, Change)>,
    /// Bytes that can still be programmed before the power goes.
    power_left: Option<u64>,
    faults: FlashFaults,
    /// The status register's writable bits.
    status: u8,
    /// Reads over SPI so far.
    reads: Cell<u64>,
}

/// What cells held before they were erased or programmed.
#[derive(Debug)]
struct Change {
    start: usize,
    before: Vec<u8>,
}

impl NorFlash {
    /// Erased cells without a file.
    pub fn erased() -> Self {
        Self::holding(vec![0xFF; FLASH_LEN], None)
    }

    /// No cells at all: stands in while a flash is elsewhere.
    pub(super) fn none() -> Self {
        Self::holding(Vec::new(), None)
    }

    /// These cells; what changes goes to `file` too.
    pub(super) fn holding(cells: Vec<u8>, file: Option<File>) -> Self {
        Self {
            cells,
            file,
            timing: FlashTiming::default(),
            busy: Duration::ZERO,
            underway: Vec::new(),
            unfinished: Vec::new(),
            power_left: None,
            faults: FlashFaults::default(),
            status: 0,
            reads: Cell::new(0),
        }
    }

    /// Sets how long erases and programs take.
    pub fn set_timing(&mut self, timing: FlashTiming) {
        self.timing = timing;
    }

    /// Sets what is wrong with the cells.
    pub fn set_faults(&mut self, faults: FlashFaults) {
        self.faults = faults;
        self.status = if faults.protection.is_some() { PROTECTED } else { 0 };
    }

    /// Takes the power away once `bytes` more have been programmed; `None` takes the limit away.
    pub fn lose_power_after(&mut self, bytes: Option<u64>) {
        self.power_left = bytes;
    }

    /// The time from `now` until the erases and programs are finished which were begun since this was last asked. They
    /// begin when those before them are finished.
    pub fn take_busy(&mut self, now: Instant) -> Duration {
        self.unfinished.retain(|(ends, _)| *ends > now);
        let busy = std::mem::take(&mut self.busy);
        if self.underway.is_empty() {
            return busy;
        }
        let begin = self.unfinished.last().map_or(now, |(ends, _)| *ends);
        self.unfinished.extend(self.underway.drain(..).map(|(takes, change)| (begin + takes, change)));
        begin + busy - now
    }

    /// The power goes at `now`: pages and sectors that are not finished by then are as they were before.
    ///
    /// # Errors
    /// Where the flash's file can't be written; in there the cells are then as if the power had gone later.
    pub fn cut_power(&mut self, now: Instant) -> Result<(), FlashFault> {
        self.busy = Duration::ZERO;
        let underway = std::mem::take(&mut self.underway).into_iter().map(|(_, change)| change);
        let unfinished = std::mem::take(&mut self.unfinished).into_iter();
        let unfinished = unfinished.filter(|(ends, _)| *ends > now).map(|(_, change)| change);
        // Where the scenario's bytes are used up, they say what is finished, not the clock.
        let changes: Vec<Change> = if self.power_is_lost() { Vec::new() } else { unfinished.chain(underway).collect() };
        let mut outcome = Ok(());
        for Change { start, before } in changes.into_iter().rev() {
            self.cells[start..start + before.len()].copy_from_slice(&before);
            outcome = outcome.and(self.store(start, before.len()));
        }
        outcome
    }

    /// Remembers what an erase or program that takes time is about to change.
    fn remember(&mut self, start: usize, len: usize, takes: Duration) {
        if !takes.is_zero() {
            self.busy += takes;
            self.underway.push((self.busy, Change { start, before: self.cells[start..start + len].to_vec() }));
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are no cells at all.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// `len` cells, or `None` where they reach past the last one.
    pub fn get(&self, address: FlashAddress, len: usize) -> Option<&[u8]> {
        let start = address.0 as usize;
        self.cells.get(start..start.checked_add(len)?)
    }

    /// Sets the 4 KiB sector around `address` to 0xFF.
    ///
    /// # Errors
    /// [`FlashFault`].
    pub fn erase_sector(&mut self, address: FlashAddress) -> Result<(), FlashFault> {
        self.check_power()?;
        let start = address.0 as usize / SECTOR_LEN * SECTOR_LEN;
        let outside = FlashFault::Outside { address, len: SECTOR_LEN };
        self.cells.get(start..start + SECTOR_LEN).ok_or(outside)?;
        if self.faults.stuck_sector.is_some_and(|stuck| stuck.0 as usize / SECTOR_LEN * SECTOR_LEN == start) {
            return Ok(());
        }
        self.remember(start, SECTOR_LEN, self.timing.erase_sector);
        self.cells[start..start + SECTOR_LEN].fill(0xFF);
        self.store(start, SECTOR_LEN)
    }

    /// Clears bits: each cell becomes itself AND the byte given. Pages are programmed one after another.
    ///
    /// # Errors
    /// [`FlashFault`]; when the power goes, the bytes before that moment are programmed.
    pub fn program(&mut self, address: FlashAddress, data: &[u8]) -> Result<(), FlashFault> {
        let outside = FlashFault::Outside { address, len: data.len() };
        self.get(address, data.len()).ok_or(outside)?;
        let mut at = address.0 as usize;
        let mut data = data;
        while !data.is_empty() {
            self.check_power()?;
            let (page, rest) = data.split_at(data.len().min(PAGE_LEN - at % PAGE_LEN));
            let powered =
                self.power_left.map_or(page.len(), |left| page.len().min(left.try_into().unwrap_or(usize::MAX)));
            self.remember(at, powered, self.timing.program_page);
            for (cell, byte) in self.cells[at..at + powered].iter_mut().zip(page) {
                *cell &= byte;
            }
            if let Some(left) = &mut self.power_left {
                *left -= powered as u64;
            }
            self.store(at, powered)?;
            if powered < page.len() {
                return Err(FlashFault::PowerLost);
            }
            at += page.len();
            data = rest;
        }
        Ok(())
    }

    /// Whether the power has gone: nothing can be written any more until it is back.
    pub fn power_is_lost(&self) -> bool {
        self.power_left == Some(0)
    }

    fn check_power(&self) -> Result<(), FlashFault> {
        if self.power_is_lost() { Err(FlashFault::PowerLost) } else { Ok(()) }
    }

    fn store(&mut self, start: usize, len: usize) -> Result<(), FlashFault> {
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(start as u64))?;
            file.write_all(&self.cells[start..start + len])?;
        }
        Ok(())
    }
}

impl SpiFlash for NorFlash {
    fn read(&self, at: FlashAddress, into: &mut [u8]) {
        match self.get(at, into.len()) {
            Some(cells) => into.copy_from_slice(cells),
            None => into.fill(0xFF),
        }
        let reads = self.reads.get() + 1;
        self.reads.set(reads);
        if self.faults.unstable_reads.is_some_and(|every| reads.is_multiple_of(every))
            && let Some(byte) = into.get_mut(reads as usize % into.len().max(1))
        {
            *byte ^= 1 << (reads % 8);
        }
    }

    fn program(&mut self, at: FlashAddress, bytes: &[u8]) -> Result<(), FlashGone> {
        Self::program(self, at, bytes).map_err(|_| FlashGone)
    }

    fn erase(&mut self, at: FlashAddress, len: u32) -> Result<(), FlashGone> {
        for sector in (at.0..at.0 + len).step_by(SECTOR_LEN) {
            self.erase_sector(FlashAddress(sector)).map_err(|_| FlashGone)?;
        }
        Ok(())
    }

    /// Busy is what was begun and asked about: firmware that waits for its own erase is held up as a whole instead.
    fn status(&self) -> u8 {
        let is_busy = self.unfinished.last().is_some_and(|(ends, _)| *ends > Instant::now());
        self.status | if is_busy { BUSY } else { 0 }
    }

    fn set_status(&mut self, value: u8) {
        if self.faults.protection != Some(Protection::ForGood) {
            self.status = value;
        }
    }
}

#[cfg(test)]
mod tests;
