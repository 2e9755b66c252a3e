//! The phases of a run, each a type: [`prepare`] does everything that can fail before the first write,
//! [`Opened::confirm`] checks that the unit is still the same, and only what this returns can [write](Opened::write).
//!
//! Several units that are written together pass each phase before any of them enters the next.

use std::marker::PhantomData;

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{Location, Port};

use super::{FlashOptions, FlashReport, Run, Stopped};
use crate::failure::fenced;
use crate::flash::access::Access;
use crate::flash::behaviour::Behaviour;
use crate::flash::error::FlashError;
use crate::flash::plan::FlashPlan;
use crate::flash::progress::{FlashEvent, FlashProgress, FlashStep, StoppedState};

/// A unit that is held open, and the phase that it has passed. Dropping it gives the unit back to the system.
pub struct Opened<'a, Phase> {
    run: Run<'a>,
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
) -> Result<Opened<'a, Prepared>, Box<Stopped>> {
    let report = FlashReport::new(port.location());
    let run = Run {
        plan,
        options,
        interrupt,
        observer,
        report,
        left: StoppedState::Untouched,
        during: FlashStep::Open,
        backup: None,
        slot: None,
        protection: None,
    };
    let (run, (access, before)) = run.stage(|run| run.prepare(port))?;
    Ok(Opened { run, port, access, before, phase: PhantomData })
}

impl<'a> Opened<'a, Prepared> {
    /// Checks that the unit is still the one that was prepared: others may have been prepared meanwhile.
    ///
    /// # Errors
    /// [`Stopped`], with [`StoppedState::Untouched`].
    pub fn confirm(self) -> Result<Opened<'a, Confirmed>, Box<Stopped>> {
        let Self { run, port, mut access, before, .. } = self;
        let (run, ()) = run.stage(|run| run.confirm(port, &mut access))?;
        Ok(Opened { run, port, access, before, phase: PhantomData })
    }
}

impl Opened<'_, Confirmed> {
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

impl<Phase> Opened<'_, Phase> {
    /// The unit's port.
    pub fn location(&self) -> &Location {
        &self.run.report.location
    }

    /// Gives the unit back to the system, unwritten.
    pub fn release(self) -> FlashReport {
        self.run.report
    }
}

impl Run<'_> {
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
        let mut access = self.open(port)?;
        // Behaviour that couldn't be read isn't compared.
        let before = match self.plan.attached.state {
            BridgeState::Vendor | BridgeState::OpenFirmware => {
                Behaviour::of_unit(&mut access, &self.plan.attached).unwrap_or(Behaviour::UNKNOWN)
            }
            BridgeState::BootLoader => Behaviour { state: Some(BridgeState::BootLoader), ..Behaviour::UNKNOWN },
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
}
