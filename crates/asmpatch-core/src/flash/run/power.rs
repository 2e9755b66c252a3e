//! Starts what was written, waits for the unit, and checks what it runs.

use std::thread;
use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;
use asm2464::scsi::ResetMode;
use asm2464_host::bridge::{Attached, CommandError, Port};

use super::Run;
use crate::flash::access::Access;
use crate::flash::error::FlashError;
use crate::flash::left::Left;
use crate::flash::progress::{FlashEvent, FlashStep};
use crate::flash::proof::{Behaviour, Runs};

/// Interval between looks at a unit that came back, but not yet as expected.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

impl Run<'_> {
    /// Restarts the unit by E8, and returns its mode. Running firmware resets its CPU and comes back by itself. The
    /// boot loader is told to halt, as tinygrad's and openpilot's flashers do. Open firmware has no such command:
    /// `None`.
    pub(super) fn restart(&mut self, access: Option<&mut Access>) -> Result<Option<ResetMode>, FlashError> {
        let Some(Access::Commands(bridge)) = access else { return Ok(None) };
        self.begin(FlashStep::Restart);
        let (mode, sent) = match self.plan.attached.state {
            BridgeState::BootLoader => (ResetMode::Halt, "halt sent"),
            BridgeState::Vendor | BridgeState::OpenFirmware => (ResetMode::CpuReset, "CPU reset sent"),
        };
        match bridge.reset(mode) {
            Ok(()) => {}
            // A unit that resets at once does not answer. Its return will show whether it did.
            Err(CommandError::Transport(error)) => {
                self.trouble(&format!("no status: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
        self.left = Left::Restarted;
        self.end(FlashStep::Restart, sent);
        Ok(Some(mode))
    }

    /// Waits for the unit. If only a power cycle can start what was written, its hub does it, or else a user who is
    /// there is asked to. Returns whether the user has unplugged the unit and plugged it in again: a unit with its own
    /// supply may not notice that its hub switched its power. `None` if the unit needs a power cycle and did not get
    /// one.
    pub(super) fn come_back(
        &mut self,
        port: &mut dyn Port,
        restart: Option<ResetMode>,
    ) -> Result<Option<bool>, FlashError> {
        let mut is_replugged = false;
        let mut found = None;
        if restart.is_some() {
            self.begin(FlashStep::Return);
        }
        match restart {
            Some(ResetMode::CpuReset) => found = self.wait_within(port, self.options.return_deadline)?,
            Some(ResetMode::Halt) => self.wait_until_gone(port)?,
            None => {}
        }
        let is_cycled = !self.is_settled(found.as_ref()) && self.power_cycle(port)?;
        if is_cycled {
            self.begin(FlashStep::Return);
            found = self.wait_within(port, self.options.return_deadline)?.or(found);
        }
        if !self.is_settled(found.as_ref()) && !self.options.replug_deadline.is_zero() {
            self.begin(FlashStep::Return);
            self.observer.event(FlashEvent::Replug);
            if let Some(replugged) = self.wait_within(port, self.options.replug_deadline)? {
                (found, is_replugged) = (Some(replugged), true);
            }
        }
        let Some(found) = found else {
            // A unit that was off and on starts what its flash holds, and comes back.
            if is_cycled && port.attached().is_err() {
                return Err(FlashError::NotBack(self.options.return_deadline + self.options.replug_deadline));
            }
            let waits = match restart {
                Some(ResetMode::Halt) => "off the bus until it is unplugged and plugged in again",
                None => "it runs the old firmware until it is unplugged and plugged in again",
                Some(ResetMode::CpuReset) => {
                    return Err(FlashError::NotBack(self.options.return_deadline + self.options.replug_deadline));
                }
            };
            self.begin(FlashStep::Return);
            self.report.needs_power = true;
            self.end(FlashStep::Return, waits);
            return Ok(None);
        };
        self.report.after = Some(found.clone());
        // A retrained link may be on the connector's other port.
        self.report.location = port.location();
        if found.state == BridgeState::BootLoader {
            self.left = Left::BootLoader;
            return Err(FlashError::BootLoader(found.usb_id));
        }
        if !self.plan.is_identity_of(&found) {
            let before = &self.plan.attached;
            if !is_replugged && (found.usb_id, found.state) == (before.usb_id, before.state) {
                // Written and read back, but the reset has not made the chip read its flash.
                (self.report.runs, self.report.needs_power) = (Some(Runs::Before), true);
                self.end(FlashStep::Return, &format!("{} ({}): {}", found.usb_id, found.state, Runs::Before));
                return Ok(None);
            }
            self.left = Left::OtherIdentity;
            let (expected, becomes) = (self.plan.usb_id.unwrap_or(found.usb_id), self.plan.becomes());
            return Err(FlashError::Identity { expected, becomes, found: found.usb_id, state: found.state });
        }
        self.end(FlashStep::Return, &format!("{} ({})", found.usb_id, found.state));
        Ok(Some(is_replugged))
    }

    fn is_settled(&self, found: Option<&Attached>) -> bool {
        found.is_some_and(|found| self.plan.is_identity_of(found) || found.state == BridgeState::BootLoader)
    }

    /// Lets the hub power-cycle the unit. Returns `false` if no hub can.
    fn power_cycle(&mut self, port: &mut dyn Port) -> Result<bool, FlashError> {
        self.interrupt.check()?;
        self.begin(FlashStep::PowerCycle);
        match port.power_cycle() {
            Ok(true) => {
                self.left = Left::Restarted;
                self.end(FlashStep::PowerCycle, "its hub switched its power off and on");
                Ok(true)
            }
            Ok(false) => Ok(false),
            // The user can still use the cable.
            Err(error) => {
                self.trouble(&error.to_string());
                Ok(false)
            }
        }
    }

    /// Waits until a unit that was told to halt has left the bus, for as long as a unit may take to come back.
    fn wait_until_gone(&self, port: &mut dyn Port) -> Result<(), FlashError> {
        let until = Instant::now() + self.options.return_deadline;
        while port.attached().is_ok() && Instant::now() < until {
            self.interrupt.check()?;
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Waits until the unit is back as planned, is back for good as something else, or the time is over. Returns the
    /// unit as last seen.
    fn wait_within(&mut self, port: &mut dyn Port, deadline: Duration) -> Result<Option<Attached>, FlashError> {
        let until = Instant::now() + deadline;
        let mut seen = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let found = port.wait_for_return(left, self.interrupt)?;
            self.interrupt.check()?;
            match found {
                Some(found) if self.plan.is_identity_of(&found) => return Ok(Some(found)),
                Some(found) => seen = Some(found),
                None => return Ok(seen),
            }
            // The unit is here, but as something else. Perhaps it has not left yet.
            if until.saturating_duration_since(Instant::now()) <= LOOK_AGAIN {
                return Ok(seen);
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Checks what the unit runs. Reads back now what could not be read back before.
    pub(super) fn prove(
        &mut self,
        port: &mut dyn Port,
        is_replugged: bool,
        before: &Behaviour,
    ) -> Result<(), FlashError> {
        self.left = Left::Unproven;
        self.begin(FlashStep::Prove);
        let mut access = Access::open(port)?;
        let attached = port.attached()?;
        let now = Behaviour::of_unit(&mut access, &attached)?;
        self.report.version = now.version;
        let written = Behaviour::of_plan(self.plan);
        let runs = match written.contradiction(&now) {
            // After a replug the chip has loaded its code from flash.
            Some(error) if is_replugged => return Err(error),
            None if is_replugged => Runs::Written,
            _ => Runs::judge(before, &written, &now),
        };
        (self.report.runs, self.report.needs_power) = (Some(runs), runs != Runs::Written);
        self.end(FlashStep::Prove, &format!("{now}: {runs}"));
        if !self.plan.reads_back() {
            self.compare(access.reader(), 1).inspect_err(|_| self.left = Left::Unproven)?;
        }
        Ok(())
    }
}
