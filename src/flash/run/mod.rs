//! Carries out a plan on one unit: claim, back up, check, erase, write, read back, restart, judge.
//!
//! # The trip
//!
//! ```text
//!  Port, FlashPlan, FlashOptions
//!    │ prepare   claim: Access, UnitBlocks as in the plan · Behaviour before · back up: Backup · check the protection
//!    ▼
//!  ClaimedUnit<Prepared> ── prove_backup: what it takes to write the backup back
//!    │ confirm   the same unit, the same blocks, the backup still in its folder; the last look at Ctrl-C
//!    ▼
//!  ClaimedUnit<Confirmed>
//!    │ write     erase, write, read back (`commands` or `registers`) · restart, wait, judge: StartedCode (`power`)
//!    ▼
//!  FlashReport, or from any phase Stopped with a StoppedState
//! ```
//!
//! The phases are types: [`prepare`] does everything that can fail before the first write, [`ClaimedUnit::confirm`]
//! checks that the unit is still the same, and only what this returns can [write](ClaimedUnit::write). Several units that
//! are written together pass each phase before any of them enters the next. [`StoppedState`] is noted before the request
//! that changes it is sent, so that it is right wherever the run stops.
//!
//! What runs on the unit decides how it is written: the vendor's firmware and the boot loader take commands, E1 and E3;
//! open firmware takes none, but its E4 and E5 reach the registers of the [flash controller](asm2464::flash). A booted
//! model offers the same registers, so `verify --boot` runs the code that recovers a dock. Only what can be read back
//! while the unit still runs its old code is read back before the restart. The boot loader reads nothing, so there it is
//! read back when the unit has returned, once.
//!
//! # What is done again, and what that multiplies to
//!
//! **By commands**, two loops, bounded by their count and by the time limit of each command:
//!
//! | | tries | each at most |
//! | --- | --- | --- |
//! | the whole slot, from the erase on: two E1, two E3, and the readback | 3 (`ATTEMPTS`) | 4 × 60 s to write, 170 s to read |
//! | a command that is answered with UNIT ATTENTION, and so was not carried out | 4 | |
//!
//! So the flash is erased three times at most, and 12 commands write. If each takes its whole time limit, that is 12
//! minutes of writing and 7 of reading, besides the recovery of the pipes after a command that failed; in the boot
//! loader, where the limit is 30 s and nothing is read, 6 minutes. These loops know of no progress: E1 and E3 report none.
//!
//! **Through registers**, three loops, one in the other, over what one operation repeats by itself (three readings of a
//! sector, of which two must agree; five tries to change the protection):
//!
//! | | tries | bounded by |
//! | --- | --- | --- |
//! | write what differs, and compare everything | 3 (`ATTEMPTS`) | a comparison that finds a difference |
//! | one change, one sector's reading, or one comparison | 8 in a row (`FAILURES`) | progress: 600 s without a sector written or read |
//! | a new connection before each of these but the first | 8 (`FAILURES`) | 2.8 s of pauses; a unit that stays away ends the run |
//!
//! So a sector is erased, and a page programmed, 3 × 8 = 24 times at most, over 3 × 7 × 8 = 168 connections. One comparison
//! reads a sector 8 × 2 × 3 = 48 times at most, and the first one, which the blocks are in, 96 times. Nothing limits the
//! whole: a slot has 32 sectors and the old image's length, and each of these 33 changes has 600 s of its own, 5.5 hours
//! for one round if each needs all of them. That is on purpose. While the old image starts, 600 s end the preparation,
//! and 600 s everything from there to the first change; as long again may pass until the protection is back. After the
//! first change only a lack of progress ends the run, since giving up leaves a boot loader where going on leaves firmware.
//!
//! - [`changes`](super::changes) has the order that makes every stop safe. Only sectors that differ are written.
//! - The block protection is cleared first. If it stays, the run ends and nothing is written. Afterwards it is set as it
//!   was, but not on a flash that may have no firmware, since nobody knows whether the boot loader clears the protection.

mod commands;
mod power;
mod registers;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asm2464::firmware::{BlockIndex, BridgeState, FirmwareVersion, kept_bytes};
use asm2464::flash::{BlockBytes, SLOT_LEN, Slot};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::SenseKey;
use asm2464::{Failure, Kind};
use asm2464_host::bridge::{CommandError, Location, Port, UnitInfo};
use tracing::{debug, info};

use super::access::{Access, FlashReader, UnitBlocks};
use super::backup::Backup;
use super::behaviour::StartedCode;
use super::consent::Permission;
use super::error::FlashError;
use super::plan::FlashPlan;
use super::progress::{FlashEvent, FlashProgress, FlashStep, StepReport, StoppedState};
use super::{backup, backup_folder};
use crate::failure::fenced;
use crate::unit::facts::Behaviour;

/// Result of reading back a block of which only the [kept bytes](kept_bytes) are the same.
const NOT_COMPARED: &str =
    "the same from byte 4 on; bytes 0 to 3 came back changed, as the vendor's firmware may change them";

/// Number of times that the slot is written before asmpatch gives up.
const ATTEMPTS: u32 = 3;

/// Options for carrying out a plan.
#[derive(Debug, Clone)]
pub struct FlashOptions {
    /// Folder for the backup's folder; `None` makes no backup.
    pub backup_into: Option<PathBuf>,
    /// Folders in which a lost backup is saved again if its own folder can't be written any more.
    pub backup_elsewhere: Vec<PathBuf>,
    /// The platform's folder for backups: it gets a pointer to a backup that is saved elsewhere. `None` leaves none.
    pub pointers_into: Option<PathBuf>,
    /// Time that a unit may take to come back by itself.
    pub return_deadline: Duration,
    /// Time that the user may then take to unplug it and plug it in again; zero if nobody is there. A virtual unit is given
    /// none.
    pub replug_deadline: Duration,
    /// Whether to write sectors that already match. Vendor commands always do.
    pub rewrite: bool,
    /// Time limit of access through registers: for the preparation, for everything from there to the first change, and
    /// then for each sector. Normally [`BUDGET`](asm2464::flash::BUDGET).
    pub budget: Duration,
}

/// Report about one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashReport {
    /// The unit's port.
    pub location: Location,
    /// The unit after the write, once it is back.
    pub after: Option<UnitInfo>,
    /// The version that the unit now reports.
    pub version: Option<FirmwareVersion>,
    /// Whether the unit runs what was written; `None` if this was not checked.
    pub runs: Option<StartedCode>,
    /// Whether the unit needs a power cycle to run for certain what was written.
    pub needs_power: bool,
    /// Path of the backup.
    pub backup: Option<PathBuf>,
    /// The permissions that the backup's firmware needs to be written back; `None` if that would be refused, or if nobody
    /// has proved it.
    pub restoring: Option<Vec<Permission>>,
    /// Every step and its result.
    pub steps: Vec<StepReport>,
}

impl FlashReport {
    /// The report on a unit at this port to which nothing has happened yet.
    pub const fn new(location: Location) -> Self {
        Self {
            location,
            after: None,
            version: None,
            runs: None,
            needs_power: false,
            backup: None,
            restoring: None,
            steps: Vec::new(),
        }
    }

    /// Whether the unit runs what was written, or does as soon as somebody opens it: a virtual unit loses its power when
    /// it is closed.
    pub fn can_start(&self) -> bool {
        self.is_back() || self.location.is_virtual()
    }

    /// Whether the unit is back and doesn't run its old firmware any more.
    pub fn is_back(&self) -> bool {
        self.after.is_some() && self.runs != Some(StartedCode::Before)
    }
}

/// A run that stopped before its end.
#[derive(Debug)]
pub struct Stopped {
    /// The error.
    pub error: FlashError,
    /// The step in which it happened.
    pub during: FlashStep,
    /// The unit's state.
    pub left: StoppedState,
    /// The report so far.
    pub report: FlashReport,
}

/// Carries out `plan` on the unit at `port`: all [phases](ClaimedUnit), one after the other.
///
/// Reads everything back if the unit's state allows it, otherwise after its return, and writes again what differs.
///
/// Checks `interrupt` before the erase and after the readback, and never in between: a write that has begun is finished
/// first.
///
/// # Errors
/// [`Stopped`], with the state that the unit is left in.
pub fn run(
    port: &mut dyn Port,
    plan: &FlashPlan,
    options: &FlashOptions,
    observer: &mut FlashProgress<'_>,
    interrupt: Interrupt<'_>,
) -> Result<FlashReport, Box<Stopped>> {
    prepare(port, plan, options, observer, interrupt)?.confirm()?.write()
}

/// A unit that is held open, and the phase that it has passed. Dropping it gives the unit back to the system.
pub struct ClaimedUnit<'a, Phase> {
    run: UnitRun<'a>,
    port: &'a mut dyn Port,
    access: Access,
    /// The unit's behaviour before the write, to detect a difference.
    before: Behaviour,
    phase: PhantomData<Phase>,
}

/// Phase of a unit that is backed up and takes writes.
pub struct Prepared;

/// Phase of a unit that was prepared and has just been seen to be the same.
pub struct Confirmed;

/// Opens the unit at `port`, checks that it is the plan's, backs it up, and checks that its protection can be cleared.
/// Leaves the unit as it was.
///
/// # Errors
/// [`Stopped`], with [`StoppedState::Untouched`].
pub fn prepare<'a>(
    port: &'a mut dyn Port,
    plan: &'a FlashPlan,
    options: &'a FlashOptions,
    observer: &'a mut FlashProgress<'a>,
    interrupt: Interrupt<'a>,
) -> Result<ClaimedUnit<'a, Prepared>, Box<Stopped>> {
    let report = FlashReport::new(port.location());
    let run = UnitRun {
        plan,
        options,
        interrupt,
        observer,
        report,
        left: StoppedState::Untouched,
        during: FlashStep::Claim,
        backup: None,
        slot: None,
        protection: None,
    };
    let (run, (access, before)) = run.stage(|run| run.prepare(port))?;
    Ok(ClaimedUnit { run, port, access, before, phase: PhantomData })
}

impl<'a> ClaimedUnit<'a, Prepared> {
    /// Has the backup's firmware proved, if there is a backup: `prove` returns the permissions that it needs to be written
    /// back. The commands that lead back are then known before the unit is written.
    ///
    /// # Errors
    /// [`Stopped`], with [`StoppedState::Untouched`], if `prove` fails.
    pub fn prove_backup(
        self,
        prove: impl FnOnce(&Backup) -> Result<Option<Vec<Permission>>, FlashError>,
    ) -> Result<Self, Box<Stopped>> {
        let Self { run, port, access, before, .. } = self;
        let (run, ()) = run.stage(|run| {
            let Some(backup) = &run.backup else { return Ok(()) };
            run.report.restoring = prove(backup)?;
            run.observer.event(FlashEvent::BackupProved(run.report.restoring.as_deref()));
            Ok(())
        })?;
        Ok(Self { run, port, access, before, phase: PhantomData })
    }

    /// Checks that the unit is still the one that was prepared: others may have been prepared meanwhile.
    ///
    /// # Errors
    /// [`Stopped`], with [`StoppedState::Untouched`].
    pub fn confirm(self) -> Result<ClaimedUnit<'a, Confirmed>, Box<Stopped>> {
        let Self { run, port, mut access, before, .. } = self;
        let (run, ()) = run.stage(|run| run.confirm(port, &mut access))?;
        Ok(ClaimedUnit { run, port, access, before, phase: PhantomData })
    }
}

impl ClaimedUnit<'_, Confirmed> {
    /// Writes, reads back, restarts the unit, and checks what it runs.
    ///
    /// # Errors
    /// [`Stopped`], with the state that the unit is left in.
    pub fn write(self) -> Result<FlashReport, Box<Stopped>> {
        let Self { run, port, access, before, .. } = self;
        let (mut run, ()) = run.stage(|run| run.write(port, access, &before))?;
        run.keep_backup_for_commands();
        Ok(run.report)
    }
}

impl<Phase> ClaimedUnit<'_, Phase> {
    /// The unit's port.
    pub fn location(&self) -> &Location {
        &self.run.report.location
    }

    /// Gives the unit back to the system, unwritten.
    pub fn release(self) -> FlashReport {
        self.run.report
    }
}

struct UnitRun<'a> {
    plan: &'a FlashPlan,
    options: &'a FlashOptions,
    interrupt: Interrupt<'a>,
    observer: &'a mut FlashProgress<'a>,
    report: FlashReport,
    left: StoppedState,
    during: FlashStep,
    /// The backup in memory, in case its folder is lost.
    backup: Option<Backup>,
    /// Contents of a flash that is accessed through registers, once they are read.
    slot: Option<Slot>,
    /// The flash's block protection before it was cleared through registers; `None` if it was not.
    protection: Option<u8>,
}

impl UnitRun<'_> {
    fn stage<T>(mut self, work: impl FnOnce(&mut Self) -> Result<T, FlashError>) -> Result<(Self, T), Box<Stopped>> {
        // A panic fails only this unit, and its state is still reported.
        match fenced(|| work(&mut self)).unwrap_or_else(|panicked| Err(panicked.into())) {
            Ok(done) => Ok((self, done)),
            Err(error) => {
                // Nothing needs the backup of a unit that is as it was: its next run makes another one.
                if self.left != StoppedState::Untouched {
                    self.keep_backup_for_commands();
                }
                let Self { report, left, during, .. } = self;
                Err(Box::new(Stopped { error, during, left, report }))
            }
        }
    }

    fn prepare(&mut self, port: &mut dyn Port) -> Result<(Access, Behaviour), FlashError> {
        self.observer.event(FlashEvent::Total(self.total()));
        self.interrupt.check()?;
        let mut access = self.claim(port)?;
        let attached = &self.plan.attached;
        let only = Behaviour::only(attached.state);
        // Behaviour that couldn't be read isn't compared.
        let before = match attached.state {
            BridgeState::Vendor | BridgeState::OpenFirmware => {
                Behaviour::of_unit(access.bridge(), attached).unwrap_or(only)
            }
            BridgeState::BootLoader => only,
        };
        if let Some(into) = &self.options.backup_into {
            self.interrupt.check()?;
            self.back_up(&mut access, into)?;
        }
        self.interrupt.check()?;
        let access = match access {
            Access::Registers(flash) => Access::Registers(self.check_protection(flash, port)?),
            access @ Access::Commands(_) => access,
        };
        Ok((access, before))
    }

    fn confirm(&mut self, port: &mut dyn Port, access: &mut Access) -> Result<(), FlashError> {
        self.begin(FlashStep::Confirm);
        self.interrupt.check()?;
        if let Access::Registers(flash) = access {
            // The unit may have waited for others.
            flash.set_budget(self.options.budget);
        }
        self.check_identity(port)?;
        self.check_blocks(access)?;
        self.keep_backup()?;
        // After this, no signal stops the run until the unit is complete again.
        Ok(self.interrupt.check()?)
    }

    fn write(&mut self, port: &mut dyn Port, access: Access, before: &Behaviour) -> Result<(), FlashError> {
        let access = match access {
            Access::Commands(bridge) => Some(self.write_by_commands(bridge)?),
            Access::Registers(flash) => self.write_through_registers(flash, port)?,
        };
        self.interrupt.check()?;
        self.start(port, access, before)
    }

    fn begin(&mut self, step: FlashStep) {
        debug!("{step}");
        self.during = step;
        self.observer.event(FlashEvent::Begin(step));
    }

    /// Notes the unit's state, before the command that changes it is sent.
    fn stands(&mut self, left: StoppedState) {
        self.left = left;
        let FlashReport { location, backup, .. } = &self.report;
        self.observer.event(FlashEvent::Stands { left, location, backup: backup.as_deref() });
    }

    fn end(&mut self, step: FlashStep, result: &str) {
        self.record(step, result, true);
        self.observer.event(FlashEvent::End(step, result));
    }

    /// Reports a problem that is handled here.
    fn trouble(&mut self, what: &str) {
        self.record(self.during, what, false);
        self.observer.event(FlashEvent::Trouble(self.during, what));
    }

    fn record(&mut self, step: FlashStep, result: &str, done: bool) {
        info!("{step}: {result}");
        self.report.steps.push(StepReport { step: step.to_string(), result: result.to_owned(), done });
    }

    fn total(&self) -> u64 {
        let backup = if self.options.backup_into.is_some() { backup::BACKUP_BYTES } else { 0 };
        let slot = self.plan.blocks.iter().map(|block| block.new.len()).sum::<usize>() + self.plan.file.len();
        let written = match self.plan.attached.state {
            BridgeState::OpenFirmware => 2 * SLOT_LEN,
            BridgeState::Vendor | BridgeState::BootLoader => slot,
        };
        backup + (written + slot) as u64
    }

    fn claim(&mut self, port: &mut dyn Port) -> Result<Access, FlashError> {
        self.begin(FlashStep::Claim);
        self.check_identity(port)?;
        let mut access = Access::open(port)?;
        if let Access::Registers(flash) = &mut access {
            flash.set_budget(self.options.budget);
        }
        self.check_blocks(&mut access)?;
        self.end(FlashStep::Claim, &format!("{} ({})", self.plan.attached.id, self.plan.attached.state));
        Ok(access)
    }

    fn check_identity(&self, port: &mut dyn Port) -> Result<(), FlashError> {
        let is_same = port.attached()?.has_same_descriptors(&self.plan.attached);
        if is_same { Ok(()) } else { Err(FlashError::changed("identity")) }
    }

    fn check_blocks(&self, access: &mut Access) -> Result<(), FlashError> {
        let state = self.plan.attached.state;
        let found = access.blocks(state)?;
        let Err(changed) = self.check_same(&found) else { return Ok(()) };
        // A block that is misread looks like one that has changed.
        for _ in 1..backup::BLOCK_READINGS {
            let again = access.blocks(state)?;
            for (index, (one, other)) in BlockIndex::ALL.into_iter().zip(found.iter().zip(&again)) {
                if kept(one.as_ref()) != kept(other.as_ref()) {
                    return Err(backup::unreliable_block(index).into());
                }
            }
        }
        Err(changed)
    }

    fn check_same(&self, found: &UnitBlocks) -> Result<(), FlashError> {
        let mut pairs = found.iter().zip(&self.plan.blocks);
        let is_same = pairs.all(|(found, block)| kept(found.as_ref()) == kept(block.current.as_ref()));
        if is_same { Ok(()) } else { Err(FlashError::changed("configuration")) }
    }

    fn back_up(&mut self, access: &mut Access, into: &Path) -> Result<(), FlashError> {
        self.begin(FlashStep::Backup);
        let backup = backup::read(access, &self.plan.attached, self.observer, self.interrupt)?;
        // Nothing may rely on a backup that can't be restored, or whose blocks aren't those that the user was shown.
        self.check_same(&backup.blocks.each_ref().map(|block| Some(*block)))?;
        if let Err(error) = backup.firmware() {
            if let Some(part) = backup::differing_part(access.reader(), &backup.parts)? {
                return Err(backup::unreliable_part(part).into());
            }
            let label = Kind::Refused.code("asmpatch::flash::unusable_backup");
            let message = "the firmware in the unit's flash would not start";
            return Err(Failure::new(label, message).because(error).into());
        }
        let saved = backup_folder::save(&backup, &into.join(backup.folder_name()))?;
        self.end(FlashStep::Backup, &saved.to_string());
        self.make_known(&saved.folder);
        if let Access::Registers(_) = access {
            let [zero, one] = &backup.blocks;
            self.slot = Some(Slot::of([zero, one], &backup.parts.concat()));
        }
        self.report.backup = Some(saved.folder);
        self.backup = Some(backup);
        self.stands(self.left);
        Ok(())
    }

    /// Makes sure that the backup is still in its folder. If it is gone or damaged, saves it again.
    fn keep_backup(&mut self) -> Result<(), FlashError> {
        let Some((backup, folder)) = self.backup.as_ref().zip(self.report.backup.as_ref()) else { return Ok(()) };
        if backup_folder::is_kept(backup, folder) {
            return Ok(());
        }
        let saved = backup_folder::save_again(backup, folder, &self.options.backup_elsewhere)?;
        let text = format!("the backup in {} was gone or damaged: saved again in {saved}", folder.display());
        self.make_known(&saved.folder);
        self.report.backup = Some(saved.folder);
        self.stands(self.left);
        self.trouble(&text);
        Ok(())
    }

    /// Lets later commands find a backup that is not in the default folder, and know it as the unit's own once that has
    /// another serial number. Nothing stops because that can't be done.
    fn make_known(&mut self, backup: &Path) {
        if let Some(serial) = self.plan.later_serial()
            && let Err(error) = backup_folder::note_later_serial(backup, &serial)
        {
            self.trouble(&error.to_string());
        }
        if let Some(default) = &self.options.pointers_into
            && let Err(error) = backup_folder::leave_pointer(backup, default)
        {
            self.trouble(&error.to_string());
        }
    }

    /// Does the same before commands are printed that need the backup. If the backup can't be saved, the report keeps
    /// its old folder: the user may have moved it.
    fn keep_backup_for_commands(&mut self) {
        if let Err(error) = self.keep_backup() {
            self.trouble(&format!("the backup is gone or damaged, and can't be saved again: {error}"));
        }
    }

    /// Reads everything back and compares. `attempt` is the number of writes so far.
    fn compare(&mut self, reader: &mut dyn FlashReader, attempt: u32) -> Result<(), FlashError> {
        let plan = self.plan;
        for block in &plan.blocks {
            let step = FlashStep::ReadBackBlock(block.index);
            self.begin(step);
            let found = reader.block(block.index)?;
            if kept_bytes(&found) != kept_bytes(&block.new) {
                if kept_bytes(&reader.block(block.index)?) != kept_bytes(&found) {
                    return Err(FlashError::Differs(backup::unreliable_block(block.index)));
                }
                let index = block.index.number();
                let message = format!("configuration block {index} differs from what was written, attempt {attempt}");
                return Err(FlashError::differs(Kind::Device.code("asmpatch::flash::block_differs"), message));
            }
            self.observer.event(FlashEvent::Moved(block.new.len() as u64));
            self.end(step, if found == block.new { "the same" } else { NOT_COMPARED });
        }
        for (part, bytes) in plan.parts() {
            let step = FlashStep::ReadBack(part);
            self.begin(step);
            let found = reader.part(part, bytes.len())?;
            let differences = || bytes.iter().zip(&found).enumerate().filter(|(_, (written, read))| written != read);
            if let Some((first, _)) = differences().next() {
                let count = differences().count();
                if reader.part(part, bytes.len())? != found {
                    return Err(FlashError::Differs(backup::unreliable_part(part)));
                }
                let message = format!(
                    "firmware part {} differs from what was written, attempt {attempt}: {count} bytes, the first at part \
                     offset {first:#x}",
                    part.number()
                );
                return Err(FlashError::differs(Kind::Device.code("asmpatch::flash::part_differs"), message));
            }
            self.observer.event(FlashEvent::Moved(bytes.len() as u64));
            self.end(step, "the same");
        }
        self.stands(StoppedState::Verified);
        Ok(())
    }
}

/// The bytes of a block that stay as they are written.
fn kept(block: Option<&BlockBytes>) -> Option<&[u8]> {
    block.map(kept_bytes)
}

/// Whether a retry can't help: the unit is gone, or refuses the command itself.
fn is_final(error: &FlashError) -> bool {
    match error {
        FlashError::Command(CommandError::Transport(error)) => error.is_gone(),
        FlashError::Command(other) => other.sense().is_some_and(|sense| sense.key == SenseKey::ILLEGAL_REQUEST),
        FlashError::Differs(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
