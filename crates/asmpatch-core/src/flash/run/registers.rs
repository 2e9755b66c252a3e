//! Writes through registers, sector by sector, and only what differs.
//!
//! Wherever it stops, the unit starts an image or its boot loader: see [`Slot::changes`]. A sector that fails is
//! written again over a new connection.

use super::{ATTEMPTS, Run, is_final};
use crate::bridge::{OpenBridge, Port};
use crate::flash::access::{Access, read_slot};
use crate::flash::error::FlashError;
use crate::flash::left::Left;
use crate::flash::progress::{FlashEvent, FlashStep};
use crate::flash::registers::{Change, RegisterError, RegisterFlash, SECTOR_LEN, SLOT_LEN, Slot};
use crate::interrupt::Interrupt;

type Flash = RegisterFlash<OpenBridge>;

impl Run<'_> {
    /// Writes until everything reads back correctly, a few times at most.
    pub(super) fn write_through_registers(
        &mut self,
        mut flash: Flash,
        port: &mut dyn Port,
    ) -> Result<Access, FlashError> {
        for attempt in 1.. {
            flash = self.write_what_differs(flash, port, attempt)?;
            let error = match self.compare(&mut flash, attempt) {
                Ok(()) => break,
                Err(error) if attempt == ATTEMPTS || is_final(&error) => return Err(error),
                Err(error) => error,
            };
            let Some(again) = self.reconnect(flash, port) else { return Err(error) };
            flash = again;
            self.trouble(&format!("{error}: comparing everything again"));
        }
        Ok(Access::Registers(flash))
    }

    fn write_what_differs(&mut self, mut flash: Flash, port: &mut dyn Port, attempt: u32) -> Result<Flash, FlashError> {
        self.begin(FlashStep::Compare);
        // The backup has just read this; it need not be read again.
        let old = match self.slot.take() {
            Some(slot) => slot,
            None => read_slot(&mut flash)?,
        };
        let [zero, one] = &self.plan.blocks;
        let new = Slot::of([&zero.new, &one.new], &self.plan.file);
        let changes = old.changes(&new, self.options.rewrite && attempt == 1);
        let sectors = changes.iter().filter(|change| matches!(change, Change::Sector(_))).count();
        self.observer.event(FlashEvent::Moved((2 * SLOT_LEN - sectors * SECTOR_LEN) as u64));
        self.end(FlashStep::Compare, &format!("{sectors} of {} sectors differ", SLOT_LEN / SECTOR_LEN));
        if sectors > 0 {
            flash.unprotect()?;
            if self.left == Left::Untouched {
                self.interrupt.check()?;
            }
        }
        let mut written = 0;
        for change in &changes {
            let step = step_of(*change);
            if self.during != step {
                self.begin(step);
            }
            self.left = Left::Incomplete;
            flash = self.change(flash, port, *change, &new)?;
            match change {
                Change::Invalidate => self.end(step, "no mixture of two images can start"),
                Change::Sector(at) => {
                    self.observer.event(FlashEvent::Moved(SECTOR_LEN as u64));
                    written += 1;
                    // The first sector comes last.
                    if at.0 == 0 {
                        self.end(step, "configuration blocks and header");
                    } else if written + 1 == sectors {
                        self.end(step, &format!("{written} of {SECTOR_LEN} bytes each"));
                    }
                }
            }
        }
        self.left = Left::Complete;
        Ok(flash)
    }

    /// Makes one change. Retries while the unit is still there.
    fn change(
        &mut self,
        mut flash: Flash,
        port: &mut dyn Port,
        change: Change,
        new: &Slot,
    ) -> Result<Flash, FlashError> {
        let mut attempt = 1;
        loop {
            let error = match make(&mut flash, change, new) {
                Ok(()) => return Ok(flash),
                Err(error) if attempt == ATTEMPTS || matches!(error, RegisterError::OutOfTime(_)) => {
                    return Err(error.into());
                }
                Err(error) => error,
            };
            attempt += 1;
            let Some(again) = self.reconnect(flash, port) else { return Err(error.into()) };
            flash = again;
            self.trouble(&format!("{error}: again, over a new connection"));
        }
    }

    /// Opens the unit again if it is still the same and runs the same firmware. Its time limit continues.
    fn reconnect(&self, flash: Flash, port: &mut dyn Port) -> Option<Flash> {
        let deadline = flash.deadline;
        drop(flash);
        let found = match port.attached() {
            Ok(found) => found,
            // The cable may have lost contact for a moment. No signal stops this wait, as none stops the write.
            Err(_) => port.wait_for_return(self.options.return_deadline, Interrupt::never()).ok()??,
        };
        if found != self.plan.attached {
            return None;
        }
        let mut flash = RegisterFlash::new(port.open_control().ok()?).ok()?;
        flash.deadline = deadline;
        Some(flash)
    }
}

const fn step_of(change: Change) -> FlashStep {
    match change {
        Change::Invalidate => FlashStep::Invalidate,
        Change::Sector(at) if at.0 == 0 => FlashStep::WriteFirstSector,
        Change::Sector(_) => FlashStep::WriteSectors,
    }
}

fn make(flash: &mut Flash, change: Change, new: &Slot) -> Result<(), RegisterError> {
    match change {
        Change::Invalidate => {
            let (at, page) = Slot::invalidation();
            flash.clear_bits(at, &page)
        }
        Change::Sector(at) => {
            flash.erase(at)?;
            for (page_at, page) in new.pages(at) {
                flash.program(page_at, &page)?;
            }
            let found = flash.read_sector(at)?;
            let differences = found.iter().zip(new.sector(at)).filter(|(found, wanted)| found != wanted).count();
            if differences == 0 { Ok(()) } else { Err(RegisterError::Differs { at, count: differences }) }
        }
    }
}
