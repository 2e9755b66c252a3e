//! Starts what was written, waits for the unit, and checks what it runs.

use std::thread;
use std::time::{Duration, Instant};

use super::Run;
use crate::bridge::{Attached, CommandError, Port};
use crate::firmware::BridgeState;
use crate::flash::access::Access;
use crate::flash::error::FlashError;
use crate::flash::left::Left;
use crate::flash::progress::{FlashEvent, FlashStep};
use crate::flash::proof::{Behaviour, Runs};
use crate::scsi::ResetMode;

/// Interval between looks at a unit that came back, but not yet as expected.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How the unit was told to start what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    /// E8 with mode 0x50: the unit comes back by itself.
    CpuReset,
    /// E8 with mode 0x51: the unit stays off the bus until a power cycle.
    Halt,
    /// Not at all: the running firmware has no command for it.
    None,
}

/// What made the unit come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartCause {
    /// E8 with mode 0x50.
    CpuReset,
    /// The hub switched its port's power off and on. A unit with its own supply may not have noticed.
    PortPower,
    /// A power cycle by the user.
    Power,
}

impl Run<'_> {
    /// Restarts the unit by E8. Running firmware resets its CPU and comes back by itself. The boot loader is told to
    /// halt, as tinygrad's and openpilot's flashers do. Open firmware has no such command.
    pub(super) fn restart(&mut self, access: &mut Access) -> Result<Restart, FlashError> {
        let Access::Commands(bridge) = access else { return Ok(Restart::None) };
        self.begin(FlashStep::Restart);
        let (restart, mode, sent) = match self.plan.attached.state {
            BridgeState::BootLoader => (Restart::Halt, ResetMode::Halt, "halt sent"),
            BridgeState::Vendor | BridgeState::OpenFirmware => {
                (Restart::CpuReset, ResetMode::CpuReset, "CPU reset sent")
            }
        };
        match bridge.reset(mode) {
            Ok(()) => {}
            // A unit that resets at once does not answer. Its return will show whether it did.
            Err(CommandError::Transport(error)) => {
                self.recorder.trouble(FlashStep::Restart, &format!("no status: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
        self.left = Left::Restarted;
        self.recorder.end(FlashStep::Restart, sent);
        Ok(restart)
    }

    /// Waits for the unit. If only a power cycle can start what was written, its hub does it, or else a user who is
    /// there is asked to. Returns `None` if the unit needs a power cycle and did not get one.
    pub(super) fn come_back(
        &mut self,
        port: &mut dyn Port,
        restart: Restart,
    ) -> Result<Option<RestartCause>, FlashError> {
        let mut boot = RestartCause::CpuReset;
        let mut found = None;
        if restart != Restart::None {
            self.begin(FlashStep::Return);
        }
        match restart {
            Restart::CpuReset => found = self.wait_within(port, self.options.return_deadline)?,
            Restart::Halt => self.wait_until_gone(port)?,
            Restart::None => {}
        }
        if !self.is_settled(found.as_ref()) && self.power_cycle(port)? {
            self.begin(FlashStep::Return);
            if let Some(back) = self.wait_within(port, self.options.return_deadline)? {
                (found, boot) = (Some(back), RestartCause::PortPower);
            }
        }
        if !self.is_settled(found.as_ref()) && !self.options.replug_deadline.is_zero() {
            self.begin(FlashStep::Return);
            self.recorder.pass(FlashEvent::Replug);
            if let Some(replugged) = self.wait_within(port, self.options.replug_deadline)? {
                (found, boot) = (Some(replugged), RestartCause::Power);
            }
        }
        let Some(found) = found else {
            let waits = match restart {
                Restart::Halt => "off the bus until it is unplugged and plugged in again",
                Restart::None => "it runs what it had until it is unplugged and plugged in again",
                Restart::CpuReset => {
                    let deadline = self.options.return_deadline + self.options.replug_deadline;
                    return Err(FlashError::NotBack { deadline });
                }
            };
            self.begin(FlashStep::Return);
            self.report.needs_power = true;
            self.recorder.end(FlashStep::Return, waits);
            return Ok(None);
        };
        self.report.after = Some(found.clone());
        // A retrained link may be on the connector's other port.
        self.report.device = port.device();
        if found.state == BridgeState::BootLoader {
            self.left = Left::BootLoader;
            return Err(FlashError::BootLoader { found: found.usb_id });
        }
        if !self.plan.is_identity_of(&found) {
            let before = &self.plan.attached;
            if boot != RestartCause::Power && (found.usb_id, found.state) == (before.usb_id, before.state) {
                // Written and read back, but the reset has not made the chip read its flash.
                (self.report.runs, self.report.needs_power) = (Some(Runs::Before), true);
                self.recorder.end(FlashStep::Return, &format!("{} ({}): {}", found.usb_id, found.state, Runs::Before));
                return Ok(None);
            }
            self.left = Left::OtherIdentity;
            let (expected, becomes) = (self.plan.usb_id.unwrap_or(found.usb_id), self.plan.becomes());
            return Err(FlashError::Identity { expected, becomes, found: found.usb_id, state: found.state });
        }
        self.recorder.end(FlashStep::Return, &format!("{} ({})", found.usb_id, found.state));
        Ok(Some(boot))
    }

    fn is_settled(&self, found: Option<&Attached>) -> bool {
        found.is_some_and(|found| self.plan.is_identity_of(found) || found.state == BridgeState::BootLoader)
    }

    /// Lets the hub power-cycle the unit. Returns `false` if no hub can.
    fn power_cycle(&mut self, port: &mut dyn Port) -> Result<bool, FlashError> {
        self.check_stop()?;
        self.begin(FlashStep::PowerCycle);
        match port.power_cycle() {
            Ok(true) => {
                self.left = Left::Restarted;
                self.recorder.end(FlashStep::PowerCycle, "its hub switched its power off and on");
                Ok(true)
            }
            Ok(false) => Ok(false),
            // The user can still use the cable.
            Err(error) => {
                self.recorder.trouble(FlashStep::PowerCycle, &error.to_string());
                Ok(false)
            }
        }
    }

    /// Waits until a unit that was told to halt has left the bus, for as long as a unit may take to come back.
    fn wait_until_gone(&self, port: &mut dyn Port) -> Result<(), FlashError> {
        let until = Instant::now() + self.options.return_deadline;
        while port.attached().is_ok() && Instant::now() < until {
            self.check_stop()?;
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
            let found = port.wait_for_return(left, self.interrupt).map_err(FlashError::port)?;
            self.check_stop()?;
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
        boot: RestartCause,
        before: &Behaviour,
    ) -> Result<(), FlashError> {
        self.left = Left::Unproven;
        self.begin(FlashStep::Prove);
        let mut access = Access::open(port)?;
        let attached = port.attached().map_err(FlashError::port)?;
        let now = Behaviour::of_unit(&mut access, &attached)?;
        self.report.version = now.version;
        let written = Behaviour::of_plan(self.plan);
        let runs = match boot {
            // After a power cycle the chip has loaded its code from flash.
            RestartCause::Power => match written.contradiction(&now) {
                Some(error) => return Err(error),
                None => Runs::Written,
            },
            RestartCause::CpuReset | RestartCause::PortPower => Runs::judge(before, &written, &now),
        };
        (self.report.runs, self.report.needs_power) = (Some(runs), runs != Runs::Written);
        self.recorder.end(FlashStep::Prove, &format!("{now}: {runs}"));
        if !self.plan.reads_back() {
            self.compare(access.reader(), 1).inspect_err(|_| self.left = Left::Unproven)?;
        }
        Ok(())
    }
}
