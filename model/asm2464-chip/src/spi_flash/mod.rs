//! The SPI flash: NOR cells, which an erase sets to 1 and a program can only clear.

use std::cell::Cell;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use asm2464::firmware::FlashAddress;
use asm2464::flash::{DUMP_LEN, JedecId, SECTOR_LEN, SLOT_LEN};

/// Bytes of a model's flash: both slots, and as much again.
pub const FLASH_LEN: usize = 4 * SLOT_LEN;
/// Bytes that one program can reach. A program never crosses a page's end.
const NOR_PAGE_LEN: usize = 0x100;

/// The flash lost its power during an erase or a program, or has no such cells, or its file can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("the flash has no power or no such cells, or its file can't be written")]
pub struct FlashGone;

impl std::error::Error for FlashGone {}

/// Defects of the flash, and of its buffer at 0x7000 in the chip, which no code shows; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FlashFaults {
    /// Protection at power-on, and whether it can be cleared; `None` for an unprotected flash.
    pub protection: Option<Protection>,
    /// An erase of the sector around this address has no effect.
    pub stuck_sector: Option<FlashAddress>,
    /// One in this many reads over SPI has one wrong bit, another one each time.
    pub unstable_reads: Option<u64>,
    /// At high speed, only this many bytes of a packet on 0x02 reach the buffer. Source: tinygrad's pull request 83.
    pub bulk_out_lands: Option<u16>,
    /// After each n-th command that fills the buffer from its start, the CPU sees the old first byte. Source: the same.
    pub stale_first_byte: Option<u64>,
    /// Status and ID overwrite the bytes that a program takes. Source: docs/lab/firmware.md, "What is assumed".
    pub status_in_buffer: bool,
    /// The ID in place of the one that its length would give it.
    pub jedec_id: Option<JedecId>,
}

/// Block protection of a flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// Set until it is cleared.
    Clearable,
    /// Set for good: the write-protect pin holds it.
    ForGood,
}

/// The status register's protection bits, and busy.
const PROTECTED: u8 = 0x1C;
const BUSY: u8 = 0x01;

/// NOR cells in memory and, optionally, in a file that every erase and program updates at once.
#[derive(Debug, Default)]
pub struct SpiFlash {
    /// The cells.
    pub cells: Vec<u8>,
    file: Option<File>,
    /// Time that the erase of a sector takes; none by default.
    pub erase_time: Duration,
    /// Time that the program of a page takes; none by default.
    pub program_time: Duration,
    /// Changes since `take_busy` was last called, each with the delay after which it ends.
    underway: Vec<(Duration, EarlierCells)>,
    /// Changes with the time at which they end. The cells change at once, because nobody sees them while the unit is
    /// busy. A power loss before that time undoes the change.
    unfinished: Vec<(Instant, EarlierCells)>,
    /// Number of bytes that can still be programmed before the power fails.
    pub power_left: Option<u64>,
    faults: FlashFaults,
    /// The status register's writable bits.
    status: u8,
    /// Number of reads over SPI so far.
    reads: Cell<u64>,
}

/// Earlier contents of erased or programmed cells.
#[derive(Debug)]
struct EarlierCells {
    start: usize,
    before: Vec<u8>,
}

impl SpiFlash {
    /// Creates erased cells without a file.
    pub fn erased() -> Self {
        Self::holding(vec![0xFF; FLASH_LEN], None)
    }

    /// Creates a flash of these cells. Changes also go to `file`.
    pub fn holding(cells: Vec<u8>, file: Option<File>) -> Self {
        Self { cells, file, ..Self::default() }
    }

    /// The defects.
    pub fn faults(&self) -> &FlashFaults {
        &self.faults
    }

    /// Sets the defects, and the protection that goes with them.
    pub fn set_faults(&mut self, faults: FlashFaults) {
        self.faults = faults;
        self.status = if faults.protection.is_some() { PROTECTED } else { 0 };
    }

    /// Time from `now` until all erases and programs begun since the last call are finished. They begin after the
    /// earlier ones have finished.
    pub fn take_busy(&mut self, now: Instant) -> Duration {
        self.unfinished.retain(|(ends, _)| *ends > now);
        let busy = self.busy();
        if busy.is_zero() {
            return busy;
        }
        let begin = self.unfinished.last().map_or(now, |(ends, _)| *ends);
        self.unfinished.extend(self.underway.drain(..).map(|(takes, change)| (begin + takes, change)));
        begin + busy - now
    }

    /// Cuts the power at `now`: unfinished pages and sectors return to their earlier contents.
    ///
    /// # Errors
    /// [`FlashGone`] if the flash's file can't be written. The cells in it are then as if the power had failed later.
    pub fn cut_power(&mut self, now: Instant) -> Result<(), FlashGone> {
        let underway = std::mem::take(&mut self.underway);
        let mut unfinished = std::mem::take(&mut self.unfinished);
        // If the scenario's byte count has run out, it determines what is finished, not the clock.
        if self.power_is_lost() {
            return Ok(());
        }
        unfinished.retain(|(ends, _)| *ends > now);
        let mut changes: Vec<EarlierCells> = unfinished.into_iter().map(|(_, change)| change).collect();
        changes.extend(underway.into_iter().map(|(_, change)| change));
        let mut outcome = Ok(());
        for EarlierCells { start, before } in changes.into_iter().rev() {
            self.cells[start..start + before.len()].copy_from_slice(&before);
            outcome = outcome.and(self.store(start, before.len()));
        }
        outcome
    }

    /// Remembers the cells that an erase or program with a duration is about to change.
    fn remember(&mut self, start: usize, len: usize, takes: Duration) {
        if !takes.is_zero() {
            let before = self.cells[start..start + len].to_vec();
            self.underway.push((self.busy() + takes, EarlierCells { start, before }));
        }
    }

    /// Time that the changes take since `take_busy` was last called.
    fn busy(&self) -> Duration {
        self.underway.last().map_or(Duration::ZERO, |(ends, _)| *ends)
    }

    /// Reads `len` cells; `None` if they reach past the last one.
    pub fn get(&self, address: FlashAddress, len: usize) -> Option<&[u8]> {
        let start = address.0 as usize;
        self.cells.get(start..start.checked_add(len)?)
    }

    /// Sets the 4 KiB sector around `address` to 0xFF.
    ///
    /// # Errors
    /// [`FlashGone`] if the power has failed, the flash's file can't be written, or there is no such sector.
    pub fn erase_sector(&mut self, address: FlashAddress) -> Result<(), FlashGone> {
        self.check_power()?;
        let start = address.0 as usize / SECTOR_LEN * SECTOR_LEN;
        self.cells.get(start..start + SECTOR_LEN).ok_or(FlashGone)?;
        if self.faults.stuck_sector.is_some_and(|stuck| stuck.0 as usize / SECTOR_LEN * SECTOR_LEN == start) {
            return Ok(());
        }
        self.remember(start, SECTOR_LEN, self.erase_time);
        self.cells[start..start + SECTOR_LEN].fill(0xFF);
        self.store(start, SECTOR_LEN)
    }

    /// Clears bits: each cell becomes itself AND the given byte. Programs page after page.
    ///
    /// # Errors
    /// [`FlashGone`] if there are no such cells, the flash's file can't be written, or the power fails: then the bytes
    /// before that moment are programmed.
    pub fn program(&mut self, address: FlashAddress, data: &[u8]) -> Result<(), FlashGone> {
        self.get(address, data.len()).ok_or(FlashGone)?;
        let mut at = address.0 as usize;
        let mut data = data;
        while !data.is_empty() {
            self.check_power()?;
            let (page, rest) = data.split_at(data.len().min(NOR_PAGE_LEN - at % NOR_PAGE_LEN));
            let powered =
                self.power_left.map_or(page.len(), |left| page.len().min(left.try_into().unwrap_or(usize::MAX)));
            self.remember(at, powered, self.program_time);
            for (cell, byte) in self.cells[at..at + powered].iter_mut().zip(page) {
                *cell &= byte;
            }
            if let Some(left) = &mut self.power_left {
                *left -= powered as u64;
            }
            self.store(at, powered)?;
            if powered < page.len() {
                return Err(FlashGone);
            }
            at += page.len();
            data = rest;
        }
        Ok(())
    }

    /// Whether the power has failed. Nothing can be written until it returns.
    pub fn power_is_lost(&self) -> bool {
        self.power_left == Some(0)
    }

    fn check_power(&self) -> Result<(), FlashGone> {
        if self.power_is_lost() { Err(FlashGone) } else { Ok(()) }
    }

    /// Writes these cells to the file, if there is one.
    fn store(&mut self, start: usize, len: usize) -> Result<(), FlashGone> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let moved = file.seek(SeekFrom::Start(start as u64));
        moved.and_then(|_| file.write_all(&self.cells[start..start + len])).map_err(|_| FlashGone)
    }

    /// Its answer to command 9F: the ID of the part in the docks whose whole flash owners have copied, if this one has its
    /// length; else one whose third byte is the length's logarithm.
    pub fn jedec_id(&self) -> JedecId {
        let of_length = match self.cells.len() {
            DUMP_LEN => [0xC2, 0x28, 0x15],
            len => [0xEF, 0x30, len.ilog2() as u8],
        };
        self.faults.jedec_id.unwrap_or(JedecId(of_length))
    }

    /// Copies cells from `at` on into `into`. After the last cell it goes on with the first, as parts do.
    pub fn read(&self, at: FlashAddress, into: &mut [u8]) {
        match self.get(at, into.len()) {
            Some(cells) => into.copy_from_slice(cells),
            None => {
                for (offset, byte) in into.iter_mut().enumerate() {
                    *byte = self.cells[(at.0 as usize + offset) % self.cells.len()];
                }
            }
        }
        let reads = self.reads.get() + 1;
        self.reads.set(reads);
        if self.faults.unstable_reads.is_some_and(|every| reads.is_multiple_of(every))
            && let Some(byte) = into.get_mut(reads as usize % into.len().max(1))
        {
            *byte ^= 1 << (reads % 8);
        }
    }

    /// Erases `len` bytes from `at`, which is a multiple of `len`.
    ///
    /// # Errors
    /// As [`Self::erase_sector`].
    pub fn erase(&mut self, at: FlashAddress, len: u32) -> Result<(), FlashGone> {
        for sector in (at.0..at.0 + len).step_by(SECTOR_LEN) {
            self.erase_sector(FlashAddress(sector))?;
        }
        Ok(())
    }

    /// The status register without the write enable latch: bit 0 busy, bits 4:2 block protection. The busy bit covers only
    /// changes from before the last call of `take_busy`. Firmware that waits for its own erase is delayed as a whole
    /// instead.
    pub fn status(&self) -> u8 {
        let is_busy = self.unfinished.last().is_some_and(|(ends, _)| *ends > Instant::now());
        self.status | if is_busy { BUSY } else { 0 }
    }

    /// Writes the status register's writable bits.
    pub fn set_status(&mut self, value: u8) {
        if self.faults.protection != Some(Protection::ForGood) {
            self.status = value;
        }
    }
}

#[cfg(test)]
mod tests;
