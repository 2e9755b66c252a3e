//! Carries out a plan: backup, E1, E3, readback, E8, the unit's return, and what it then runs.
//!
//! The flash is erased in one place only: E1 of block 0 erases both 64 KiB blocks of the slot, and with them both
//! configuration blocks and both parts of the firmware. E1 of block 1 and E3 program what is erased. Source: 240417,
//! where the erase routine at b0:0xC73C has a single caller, b0:0xD377, on E1's way. So every write is all of the slot
//! from block 0 on, in the order in which tinygrad's tools write it, and what does not read back right is written again
//! from there: a part can't be erased alone.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::backup_folder;
use super::error::FlashError;
use super::open_image::OpenImage;
use super::plan::Plan;
use super::progress::{Event, Observer, Recorder, Step, StepReport};
use super::proof::{Behaviour, Runs};
use super::read;
use super::recovery::Left;
use crate::bridge::{AnyTransport, Attached, Bridge, CommandError, Port, TransportError};
use crate::failure::fenced;
use crate::firmware::{BridgeState, FirmwareVersion, Image, UsbId};
use crate::interrupt::Interrupt;
use crate::scsi::{ResetMode, SenseKey};

/// How often the slot is written before it is given up.
const ATTEMPTS: u32 = 3;
/// How often to look again at a unit that came back, but not yet as expected.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How to carry out a plan.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that the backup's folder goes into; `None` goes without.
    pub backup_into: Option<PathBuf>,
    /// How long a unit may take to come back by itself.
    pub return_deadline: Duration,
    /// How long the user may then take to unplug it and plug it in again; zero where nobody is there to do it.
    pub replug_deadline: Duration,
}

/// What was done with one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The port, as `--device` takes it.
    pub device: String,
    /// The unit before.
    pub before: Attached,
    /// The unit after, once it is back.
    pub after: Option<Attached>,
    /// The version that it runs now, as it says itself.
    pub version: Option<FirmwareVersion>,
    /// Whether it runs what was written; `None` where it was not asked.
    pub runs: Option<Runs>,
    /// Whether the unit has to be unplugged and plugged in again, so that it runs what was written for certain.
    pub needs_power: bool,
    /// Where its backup is.
    pub backup: Option<PathBuf>,
    /// Every step and how it ended.
    pub steps: Vec<StepReport>,
}

/// A run that stopped before its end.
#[derive(Debug)]
pub struct Stopped {
    /// Why.
    pub error: FlashError,
    /// In which step.
    pub during: Step,
    /// What state the unit is in.
    pub left: Left,
    /// What was done before.
    pub report: Report,
}

/// Carries out `plan` on the unit at `port`.
///
/// Everything is read back where the unit's state allows it, else after its return, and what differs is written again.
///
/// `interrupt` is looked at before the erase and after the readback, and nowhere between: a write that has begun comes
/// first.
///
/// # Errors
/// [`Stopped`], with the state that the unit is left in.
pub fn run(
    port: &mut dyn Port,
    plan: &Plan,
    options: &Options,
    observer: &mut dyn Observer,
    interrupt: Interrupt<'_>,
) -> Result<Report, Box<Stopped>> {
    let report = Report {
        device: port.device(),
        before: plan.attached.clone(),
        after: None,
        version: None,
        runs: None,
        needs_power: false,
        backup: None,
        steps: Vec::new(),
    };
    let recorder = Recorder::new(observer);
    let mut run = Run { plan, options, interrupt, recorder, report, left: Left::Untouched, during: Step::Open };
    // A panic fails this unit, with what is known of its state, and no other.
    let outcome = fenced(|| run.all(port)).unwrap_or_else(|panicked| Err(panicked.into()));
    let mut report = run.report;
    report.steps = run.recorder.steps;
    match outcome {
        Ok(()) => Ok(report),
        Err(error) => Err(Box::new(Stopped { error, during: run.during, left: run.left, report })),
    }
}

struct Run<'a> {
    plan: &'a Plan,
    options: &'a Options,
    interrupt: Interrupt<'a>,
    recorder: Recorder<'a>,
    report: Report,
    left: Left,
    during: Step,
}

impl Run<'_> {
    fn all(&mut self, port: &mut dyn Port) -> Result<(), FlashError> {
        self.recorder.pass(Event::Total(self.total()));
        self.check_stop()?;
        let mut bridge = self.open(port)?;
        // What it does before, so that a difference shows; what it does not tell can't differ.
        let before = match self.plan.attached.state {
            BridgeState::Vendor => Behaviour::of_unit(&mut bridge).unwrap_or(Behaviour::UNKNOWN),
            BridgeState::BootLoader | BridgeState::OpenFirmware => Behaviour::UNKNOWN,
        };
        if let Some(into) = &self.options.backup_into {
            self.check_stop()?;
            self.back_up(&mut bridge, into)?;
        }
        // The last place to stop before the unit is whole again.
        self.check_stop()?;
        self.write(&mut bridge)?;
        self.check_stop()?;
        let mode = self.restart(&mut bridge)?;
        // Given back only after it has left: else the system's driver is bound to a unit that starts over, and its
        // requests, which nothing answers any more, hold up the whole host controller.
        let back = self.come_back(port, mode);
        drop(bridge);
        match back? {
            Some(boot) => match &self.plan.open {
                Some(open) => self.prove_open(open),
                None => self.prove(port, boot, &before),
            },
            None => Ok(()),
        }
    }

    fn check_stop(&self) -> Result<(), FlashError> {
        self.interrupt.check().map_err(|_| FlashError::Interrupted)
    }

    fn begin(&mut self, step: Step) {
        self.during = step;
        self.recorder.begin(step);
    }

    fn total(&self) -> u64 {
        let backup = if self.options.backup_into.is_some() { read::BACKUP_BYTES } else { 0 };
        let slot = self.plan.blocks.iter().map(|block| block.new.len()).sum::<usize>() + self.plan.file.len();
        backup + 2 * slot as u64
    }

    fn open(&mut self, port: &mut dyn Port) -> Result<Bridge<AnyTransport>, FlashError> {
        self.begin(Step::Open);
        if port.attached().map_err(FlashError::Port)? != self.plan.attached {
            return Err(FlashError::Changed { what: "identity" });
        }
        let mut bridge = port.open().map_err(FlashError::Port)?;
        let blocks = read::blocks(&mut bridge, self.plan.attached.state)?;
        if blocks != self.plan.blocks.each_ref().map(|block| block.current) {
            return Err(FlashError::Changed { what: "configuration" });
        }
        self.recorder.end(Step::Open, &format!("{} ({})", self.plan.attached.usb_id, self.plan.attached.state));
        Ok(bridge)
    }

    fn back_up(&mut self, bridge: &mut Bridge<AnyTransport>, into: &Path) -> Result<(), FlashError> {
        self.begin(Step::Backup);
        let mut pass = PassOn(&mut self.recorder);
        let backup = read::backup(bridge, self.report.device.clone(), &self.plan.attached, &mut pass, self.interrupt)?;
        // A backup that can't be restored must not be what the rest relies on.
        backup.firmware().map_err(|source| FlashError::Unusable { source })?;
        let saved = backup_folder::save(&backup, &into.join(backup.folder_name()))?;
        self.recorder.end(Step::Backup, &saved.to_string());
        self.report.backup = Some(saved.path().to_owned());
        Ok(())
    }

    /// Writes the slot until it reads back right, a few times at most.
    fn write(&mut self, bridge: &mut Bridge<AnyTransport>) -> Result<(), FlashError> {
        for attempt in 1.. {
            let outcome = self.write_once(bridge).and_then(|()| match self.plan.reads_back() {
                true => self.compare(bridge, attempt),
                false => Ok(()),
            });
            match outcome {
                Ok(()) => break,
                Err(error) if attempt == ATTEMPTS || is_final(&error) => return Err(error),
                Err(error) => {
                    self.recorder.trouble(self.during, &format!("{error}: writing everything again from the erase on"));
                }
            }
        }
        Ok(())
    }

    fn write_once(&mut self, bridge: &mut Bridge<AnyTransport>) -> Result<(), FlashError> {
        let plan = self.plan;
        for block in &plan.blocks {
            let step = Step::WriteBlock(block.index);
            self.begin(step);
            self.left = Left::Incomplete;
            bridge.write_config(block.index, &block.new)?;
            self.recorder.pass(Event::Moved(block.new.len() as u64));
            self.recorder.end(step, "written");
        }
        for (part, bytes) in plan.parts() {
            let step = Step::WritePart(part);
            self.begin(step);
            bridge.write_flash(part, bytes)?;
            self.recorder.pass(Event::Moved(bytes.len() as u64));
            self.recorder.end(step, &format!("{} bytes", bytes.len()));
        }
        self.left = Left::Complete;
        Ok(())
    }

    /// Reads everything back and compares. `attempt` is how often it was written by now.
    fn compare(&mut self, bridge: &mut Bridge<AnyTransport>, attempt: u32) -> Result<(), FlashError> {
        let plan = self.plan;
        for block in &plan.blocks {
            let step = Step::ReadBackBlock(block.index);
            self.begin(step);
            if bridge.read_config(block.index)? != block.new {
                return Err(FlashError::BlockDiffers { index: block.index, attempts: attempt });
            }
            self.recorder.pass(Event::Moved(block.new.len() as u64));
            self.recorder.end(step, "the same");
        }
        for (part, bytes) in plan.parts() {
            let step = Step::ReadBack(part);
            self.begin(step);
            let mut found = vec![0; bytes.len()];
            bridge.read_flash(part, &mut found)?;
            let differences = || bytes.iter().zip(&found).enumerate().filter(|(_, (written, read))| written != read);
            if let Some((first, _)) = differences().next() {
                let count = differences().count();
                return Err(FlashError::PartDiffers { part, attempts: attempt, count, first });
            }
            self.recorder.pass(Event::Moved(bytes.len() as u64));
            self.recorder.end(step, "the same");
        }
        self.left = Left::Verified;
        Ok(())
    }

    /// E8: running firmware resets its CPU and is back by itself; the boot loader is told to halt, as tinygrad's and
    /// openpilot's flashers tell it.
    fn restart(&mut self, bridge: &mut Bridge<AnyTransport>) -> Result<ResetMode, FlashError> {
        self.begin(Step::Restart);
        let (mode, sent) = match self.plan.attached.state {
            BridgeState::Vendor => (ResetMode::CpuReset, "CPU reset sent"),
            BridgeState::BootLoader | BridgeState::OpenFirmware => (ResetMode::Halt, "halt sent"),
        };
        match bridge.reset(mode) {
            Ok(()) => {}
            // A unit that resets at once answers no more: whether it did, its return will tell.
            Err(CommandError::Transport(error)) => {
                self.recorder.trouble(Step::Restart, &format!("no status: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
        self.left = Left::Restarted;
        self.recorder.end(Step::Restart, sent);
        Ok(mode)
    }

    /// Waits for the unit, and asks for its cable where only its power can start what was written and somebody is there.
    /// `None` where it needs its power, and nobody gave it.
    fn come_back(&mut self, port: &mut dyn Port, mode: ResetMode) -> Result<Option<Boot>, FlashError> {
        self.begin(Step::Return);
        let mut boot = Boot::CpuReset;
        let mut found = match mode {
            ResetMode::CpuReset => self.wait_within(port, self.options.return_deadline)?,
            ResetMode::Halt => {
                self.wait_until_gone(port)?;
                None
            }
        };
        let is_settled = |found: &Attached| self.plan.is_identity_of(found) || found.state == BridgeState::BootLoader;
        if !found.as_ref().is_some_and(is_settled) && !self.options.replug_deadline.is_zero() {
            self.recorder.pass(Event::Replug);
            if let Some(replugged) = self.wait_within(port, self.options.replug_deadline)? {
                (found, boot) = (Some(replugged), Boot::Power);
            }
        }
        let Some(found) = found else {
            if mode == ResetMode::Halt {
                self.report.needs_power = true;
                self.recorder.end(Step::Return, "off the bus until it is unplugged and plugged in again");
                return Ok(None);
            }
            let deadline = self.options.return_deadline + self.options.replug_deadline;
            return Err(FlashError::NotBack { deadline });
        };
        self.report.after = Some(found.clone());
        // A link that is trained anew may be on the connector's other port.
        self.report.device = port.device();
        if found.state == BridgeState::BootLoader {
            self.left = Left::BootLoader;
            return Err(FlashError::BootLoader { found: found.usb_id });
        }
        if !self.plan.is_identity_of(&found) {
            let is_as_before = found.usb_id == self.plan.attached.usb_id && found.state == self.plan.attached.state;
            if boot == Boot::CpuReset && is_as_before {
                // Written and read back; the reset has not made the chip read its flash.
                (self.report.runs, self.report.needs_power) = (Some(Runs::Before), true);
                self.recorder.end(Step::Return, &format!("{} ({}): {}", found.usb_id, found.state, Runs::Before));
                return Ok(None);
            }
            self.left = Left::OtherIdentity;
            let words = |id: UsbId, state: BridgeState| format!("{id} ({state})");
            let expected = words(self.plan.usb_id.unwrap_or(found.usb_id), self.plan.state());
            return Err(FlashError::Identity { expected, found: words(found.usb_id, found.state) });
        }
        self.recorder.end(Step::Return, &format!("{} ({})", found.usb_id, found.state));
        Ok(Some(boot))
    }

    /// Waits until a unit that was told to halt has left the bus, for as long as one may take to come back.
    fn wait_until_gone(&self, port: &mut dyn Port) -> Result<(), FlashError> {
        let until = Instant::now() + self.options.return_deadline;
        while port.attached().is_ok() && Instant::now() < until {
            self.check_stop()?;
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Waits until the unit is back as planned, or for good as something else, or the time is over; gives the last
    /// that was seen of it.
    fn wait_within(&mut self, port: &mut dyn Port, deadline: Duration) -> Result<Option<Attached>, FlashError> {
        let until = Instant::now() + deadline;
        let mut seen = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let found = port.wait_for_return(left, self.interrupt).map_err(FlashError::Port)?;
            self.check_stop()?;
            match found {
                Some(found) if self.plan.is_identity_of(&found) => return Ok(Some(found)),
                Some(found) => seen = Some(found),
                None => return Ok(seen),
            }
            // Here, but as something else: perhaps it has not left yet.
            if until.saturating_duration_since(Instant::now()) <= LOOK_AGAIN {
                return Ok(seen);
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Sees that the unit runs the open firmware that was written: it takes no commands, so its descriptors tell.
    fn prove_open(&mut self, open: &OpenImage) -> Result<(), FlashError> {
        self.left = Left::Unproven;
        self.begin(Step::Prove);
        let found = self.report.after.as_ref().map(|after| after.product.clone()).unwrap_or_default();
        if found != open.product {
            return Err(FlashError::Product { expected: open.product.clone(), found });
        }
        self.report.runs = Some(Runs::Written);
        // Its container holds, too: else the ROM would not have started it.
        self.recorder.end(Step::Prove, &format!("product string {:?}: {}", open.product, Runs::Written));
        Ok(())
    }

    /// Sees what the unit runs; what could not be read back before is read back now.
    fn prove(&mut self, port: &mut dyn Port, boot: Boot, before: &Behaviour) -> Result<(), FlashError> {
        self.left = Left::Unproven;
        self.begin(Step::Prove);
        let mut bridge = port.open().map_err(FlashError::Port)?;
        let now = Behaviour::of_unit(&mut bridge)?;
        self.report.version = now.version;
        let no_image = Behaviour { version: self.plan.version, ..Behaviour::UNKNOWN };
        let written = Image::parse(&self.plan.file).map_or(no_image, |image| Behaviour::of_image(&image));
        let runs = match boot {
            // With its power the chip loads its code from flash.
            Boot::Power => match written.contradiction(&now) {
                Some(error) => return Err(error),
                None => Runs::Written,
            },
            Boot::CpuReset => Runs::judge(before, &written, &now),
        };
        (self.report.runs, self.report.needs_power) = (Some(runs), runs != Runs::Written);
        self.recorder.end(Step::Prove, &format!("{now}: {runs}"));
        if !self.plan.reads_back() {
            self.compare(&mut bridge, 1).inspect_err(|_| self.left = Left::Unproven)?;
        }
        Ok(())
    }
}

/// What made the unit come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boot {
    /// E8 with mode 0x50.
    CpuReset,
    /// Its power, after the user was asked for it.
    Power,
}

/// Whether trying again can't help: the unit is gone, or refuses the command as such.
fn is_final(error: &FlashError) -> bool {
    match error {
        FlashError::Command(
            CommandError::Transport(TransportError::Disconnected { .. }) | CommandError::Length { .. },
        ) => true,
        FlashError::Command(other) => other.sense().is_some_and(|sense| sense.key == SenseKey::ILLEGAL_REQUEST),
        FlashError::BlockDiffers { .. } | FlashError::PartDiffers { .. } => false,
        _ => true,
    }
}

/// Lets what reads report through the recorder.
struct PassOn<'a, 'b>(&'a mut Recorder<'b>);

impl Observer for PassOn<'_, '_> {
    fn event(&mut self, event: Event<'_>) {
        self.0.pass(event);
    }
}

#[cfg(test)]
mod tests;
