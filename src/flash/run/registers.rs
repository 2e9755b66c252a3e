//! Writes through registers, sector by sector, and only what differs.
//!
//! Wherever it stops, the unit starts an image or its boot loader: see [`changes`]. What fails is done again over
//! a new connection; the page of [`run`](super) has what that multiplies to.

use std::time::Duration;
use std::{mem, thread};

use asm2464::firmware::FlashAddress;
use asm2464::flash::{FIRST_SLOT, FlashSession, PAGE_LEN, RegisterError, RegisterFlash, SECTOR_LEN, SLOT_LEN, Slot};
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{ControlError, OpenBridge, Port};

use super::{ATTEMPTS, UnitRun};
use crate::flash::access::Access;
use crate::flash::changes::{self, SlotChange};
use crate::flash::error::FlashError;
use crate::flash::progress::{FlashEvent, FlashStep, StoppedState};

/// Number of times in a row that something may fail before the run ends.
const FAILURES: u32 = 8;
/// Pause before a unit that could not be opened is opened again, multiplied by the number of failures.
const PAUSE: Duration = Duration::from_millis(100);

type Flash = RegisterFlash<OpenBridge>;

/// The unit of the run, opened again after each failure.
struct ReopenedUnit<'p> {
    port: &'p mut dyn Port,
    session: FlashSession,
    /// `None` if the unit could not be opened again.
    flash: Option<Flash>,
}

impl UnitRun<'_> {
    /// Checks that the block protection can be cleared, if there is anything to write, and leaves it as it was. Returns
    /// the unit.
    pub(super) fn check_protection(&mut self, flash: Flash, port: &mut dyn Port) -> Result<Flash, FlashError> {
        self.begin(FlashStep::CheckProtection);
        let mut unit = ReopenedUnit { port, session: flash.session(), flash: Some(flash) };
        let old = match self.slot.take() {
            Some(slot) => slot,
            None => self.read_slot(&mut unit)?,
        };
        let has_changes = !changes::between(&old, &self.wanted(), self.options.rewrite).is_empty();
        self.slot = Some(old);
        if has_changes {
            self.try_to_unprotect(&mut unit)?;
        }
        unit.flash.ok_or(FlashError::not_back(self.options.return_deadline))
    }

    /// Clears the block protection, if it is set, and puts it back.
    fn try_to_unprotect(&mut self, unit: &mut ReopenedUnit<'_>) -> Result<(), FlashError> {
        let protection = self.retried(unit, |_, flash, _| Ok(flash.protection()?))?;
        if protection == 0 {
            return Ok(());
        }
        self.stands(StoppedState::Unprotected);
        let cleared = self.retried(unit, |_, flash, _| Ok(flash.unprotect()?));
        let restored =
            self.undisturbed(unit, |run, unit| run.retried(unit, |_, flash, _| Ok(flash.protect(protection)?)));
        if restored.is_ok() {
            self.stands(StoppedState::Untouched);
        }
        cleared.and(restored)
    }

    /// What the slot holds after the write.
    fn wanted(&self) -> Slot {
        let [zero, one] = &self.plan.blocks;
        Slot::of([&zero.new, &one.new], &self.plan.file)
    }

    /// Writes until everything reads back correctly, a few times at most, and puts the block protection back. Returns
    /// the unit if it is still there.
    pub(super) fn write_through_registers(
        &mut self,
        flash: Flash,
        port: &mut dyn Port,
    ) -> Result<Option<Access>, FlashError> {
        let mut unit = ReopenedUnit { port, session: flash.session(), flash: Some(flash) };
        // Units that are written together are all confirmed by now. A signal could stop one and not another, so from
        // here on it stops none.
        let outcome = self.undisturbed(&mut unit, |run, unit| {
            let outcome = run.write_and_compare(unit);
            run.protect_again(unit);
            outcome
        });
        outcome.map(|()| unit.flash.map(Access::Registers))
    }

    fn write_and_compare(&mut self, unit: &mut ReopenedUnit<'_>) -> Result<(), FlashError> {
        for attempt in 1.. {
            self.write_what_differs(unit, attempt)?;
            match self.retried(unit, |run, flash, _| run.compare(flash, attempt)) {
                Ok(()) => break,
                Err(error) if attempt < ATTEMPTS && is_difference(&error) => {
                    self.trouble(&format!("{error}: comparing everything again"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_what_differs(&mut self, unit: &mut ReopenedUnit<'_>, attempt: u32) -> Result<(), FlashError> {
        self.begin(FlashStep::Compare);
        // The preparation has read this; it need not be read again.
        let old = match self.slot.take() {
            Some(slot) => slot,
            None => self.read_slot(unit)?,
        };
        let new = self.wanted();
        let changes = changes::between(&old, &new, self.options.rewrite && attempt == 1);
        let sectors = changes.iter().filter(|change| matches!(change, SlotChange::Sector(_))).count();
        self.observer.event(FlashEvent::Moved((2 * SLOT_LEN - sectors * SECTOR_LEN) as u64));
        self.end(FlashStep::Compare, &format!("{sectors} of {} sectors differ", SLOT_LEN / SECTOR_LEN));
        if sectors > 0 {
            self.unprotect(unit)?;
        }
        let mut written = 0;
        for change in &changes {
            let step = step_of(*change);
            if self.during != step {
                self.begin(step);
            }
            self.stands(StoppedState::Incomplete);
            self.retried(unit, |_, flash, attempt| {
                if attempt == 1 {
                    flash.expect_progress();
                }
                Ok(make(flash, *change, &new, attempt > 1)?)
            })?;
            match change {
                SlotChange::Invalidate => self.end(step, "no mixture of two images can start"),
                SlotChange::Sector(at) => {
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
        if !changes.is_empty() {
            self.stands(StoppedState::Complete);
        }
        Ok(())
    }

    fn read_slot(&mut self, unit: &mut ReopenedUnit<'_>) -> Result<Slot, FlashError> {
        let mut cells = Vec::with_capacity(SLOT_LEN);
        for at in Slot::sectors() {
            let sector = self.retried(unit, |_, flash, _| {
                let sector = flash.read_sector(at)?;
                flash.progressed();
                Ok(sector)
            })?;
            cells.extend_from_slice(&sector[..]);
        }
        Ok(Slot::at(FIRST_SLOT, &cells))
    }

    /// Clears the block protection if it is set.
    fn unprotect(&mut self, unit: &mut ReopenedUnit<'_>) -> Result<(), FlashError> {
        let protection = self.retried(unit, |_, flash, _| Ok(flash.protection()?))?;
        if protection == 0 {
            return Ok(());
        }
        self.begin(FlashStep::Unprotect);
        self.protection = self.protection.or(Some(protection));
        if self.left == StoppedState::Untouched {
            self.stands(StoppedState::Unprotected);
        }
        self.retried(unit, |_, flash, _| Ok(flash.unprotect()?))?;
        self.end(FlashStep::Unprotect, &format!("it was {protection:#04x}"));
        Ok(())
    }

    /// Sets the block protection again, if it was cleared. A flash that may hold no firmware stays without it: the tool
    /// that writes that flash next may not be able to clear it.
    fn protect_again(&mut self, unit: &mut ReopenedUnit<'_>) {
        let Some(protection) = self.protection else { return };
        if !matches!(self.left, StoppedState::Unprotected | StoppedState::Verified) {
            return self.trouble("the flash's block protection stays cleared");
        }
        let during = self.during;
        self.begin(FlashStep::Protect);
        match self.undisturbed(unit, |run, unit| run.retried(unit, |_, flash, _| Ok(flash.protect(protection)?))) {
            Ok(()) => {
                self.end(FlashStep::Protect, &format!("{protection:#04x}, as it was"));
                if self.left == StoppedState::Unprotected {
                    self.stands(StoppedState::Untouched);
                }
            }
            // The firmware runs without the protection, too.
            Err(error) => self.trouble(&format!("{error}: it stays cleared")),
        }
        self.during = during;
    }

    /// Runs `act` so that no signal stops it, with the whole time limit: the wait for other units may have used it up.
    fn undisturbed<'p, T>(
        &mut self,
        unit: &mut ReopenedUnit<'p>,
        act: impl FnOnce(&mut Self, &mut ReopenedUnit<'p>) -> T,
    ) -> T {
        let interrupt = mem::replace(&mut self.interrupt, Interrupt::never());
        if let Some(flash) = &mut unit.flash {
            flash.set_budget(self.options.budget);
            unit.session = flash.session();
        }
        let outcome = act(self, unit);
        self.interrupt = interrupt;
        outcome
    }

    /// Runs `act` with the flash and the number of the attempt. If it fails, runs it again over a new connection.
    fn retried<T>(
        &mut self,
        unit: &mut ReopenedUnit<'_>,
        mut act: impl FnMut(&mut Self, &mut Flash, u32) -> Result<T, FlashError>,
    ) -> Result<T, FlashError> {
        let mut flash = match unit.flash.take() {
            Some(flash) => flash,
            None => self.reconnect(unit).ok_or(FlashError::not_back(self.options.return_deadline))?,
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let outcome = act(self, &mut flash, attempt);
            unit.session = flash.session();
            let error = match outcome {
                Err(error) if attempt < FAILURES && !is_over(&error) => error,
                outcome => {
                    unit.flash = Some(flash);
                    return outcome;
                }
            };
            drop(flash);
            self.interrupt.check()?;
            let Some(again) = self.reconnect(unit) else { return Err(error) };
            flash = again;
            self.trouble(&format!("{error}: again, over a new connection"));
        }
    }

    /// Opens the unit again if it is still the same and runs the same firmware.
    fn reconnect(&self, unit: &mut ReopenedUnit<'_>) -> Option<Flash> {
        for failures in 0..FAILURES {
            thread::sleep(PAUSE * failures);
            let found = match unit.port.attached() {
                Ok(found) => found,
                // The cable may have lost contact for a moment.
                Err(_) => unit.port.wait_for_return(self.options.return_deadline, self.interrupt).ok()??,
            };
            if !found.has_same_descriptors(&self.plan.attached) {
                return None;
            }
            let Ok(registers) = unit.port.open_control() else { continue };
            match RegisterFlash::resume(registers, unit.session) {
                Ok(flash) => return Some(flash),
                Err(error) if error.is_out_of_time() => return None,
                Err(_) => {}
            }
        }
        None
    }
}

const fn step_of(change: SlotChange) -> FlashStep {
    match change {
        SlotChange::Invalidate => FlashStep::Invalidate,
        SlotChange::Sector(at) if at.0 == 0 => FlashStep::WriteFirstSector,
        SlotChange::Sector(_) => FlashStep::WriteSectors,
    }
}

/// Whether the flash reads back differently, so that only another write can help.
const fn is_difference(error: &FlashError) -> bool {
    matches!(error, FlashError::Differs(_))
}

/// Whether a new connection can't help: the time is over, or the flash has answered.
const fn is_over(error: &FlashError) -> bool {
    match error {
        FlashError::Registers(error) => error.is_out_of_time() || matches!(error, RegisterError::Protected { .. }),
        _ => true,
    }
}

/// Makes a change. Another attempt keeps what an earlier one has written.
fn make(flash: &mut Flash, change: SlotChange, new: &Slot, is_again: bool) -> Result<(), RegisterError<ControlError>> {
    match change {
        SlotChange::Invalidate => {
            let (at, page) = changes::invalidation();
            flash.clear_bits(at, &page)
        }
        SlotChange::Sector(at) => {
            let wanted = new.sector(at);
            let kept = if is_again { Some(flash.read_sector(at)?) } else { None };
            // Programming only clears bits.
            let kept = kept.filter(|kept| kept.iter().zip(wanted).all(|(found, wanted)| found & wanted == *wanted));
            let found = match kept {
                Some(kept) => kept,
                None => {
                    flash.erase(at)?;
                    Box::new([0xFF; SECTOR_LEN])
                }
            };
            for (page_at, page) in changes::pages(new, at) {
                if found[offset(at, page_at)..][..PAGE_LEN] != page {
                    flash.program(page_at, &page)?;
                }
            }
            let found = flash.read_sector(at)?;
            let differences = found.iter().zip(wanted).filter(|(found, wanted)| found != wanted).count();
            if differences == 0 { Ok(()) } else { Err(RegisterError::Differs { at, count: differences }) }
        }
    }
}

const fn offset(sector: FlashAddress, page: FlashAddress) -> usize {
    (page.0 - sector.0) as usize
}
