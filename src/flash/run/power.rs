//! Starts what was written, waits for the unit, and checks what it runs.

use std::thread;
use std::time::{Duration, Instant};

use asm2464::Kind;
use asm2464::firmware::BridgeState;
use asm2464::scsi::ResetMode;
use asm2464_host::bridge::{CommandError, Port, UnitInfo, deadline};

use super::UnitRun;
use crate::flash::access::Access;
use crate::flash::behaviour::StartedCode;
use crate::flash::error::FlashError;
use crate::flash::progress::{FlashEvent, FlashStep, StoppedState};
use crate::restart::restart_open;
use crate::unit::Live;
use crate::unit::facts::Behaviour;

/// Interval between looks at a unit that came back, but not yet as expected.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Time after which a unit that came back as it was stays so.
const STAYS_AFTER: Duration = Duration::from_secs(1);

impl UnitRun<'_> {
    /// Starts what was written and checks that it runs. Resets the CPU, then lets the unit's hub switch its power, then
    /// asks the user, if one is there, to plug the unit in again. Goes on to the next means only if the new code is not
    /// known to run. A unit with its own supply may not notice that its hub switched its power.
    pub(super) fn start(
        &mut self,
        port: &mut dyn Port,
        access: Option<Access>,
        before: &Behaviour,
    ) -> Result<(), FlashError> {
        let restart = self.restart(port, access)?;
        let mode = restart.as_ref().map(|(_, mode)| *mode);
        if restart.is_some() {
            self.begin(FlashStep::Return);
        }
        let mut found = match mode {
            Some(ResetMode::CpuReset) => self.wait_within(port, self.options.return_deadline)?,
            Some(ResetMode::Halt) => {
                self.wait_until_gone(port)?;
                None
            }
            None => None,
        };
        // A unit that has not come back may never have left. It is held until its power has gone, or the system would
        // take the disk behind it.
        let kept = restart.filter(|_| found.is_none());
        let mut held = self.judge(port, found.as_ref(), false, before)?;
        let mut is_cycled = false;
        let mut is_replugged = false;
        if self.needs_power() {
            let is_free = kept.is_none() && port.attached().is_ok();
            is_cycled = self.power_cycle(port, held.take(), is_free)?;
        }
        drop(kept);
        if is_cycled {
            self.begin(FlashStep::Return);
            match self.wait_within(port, self.options.return_deadline)? {
                Some(cycled) => {
                    held = self.judge(port, Some(&cycled), false, before)?;
                    found = Some(cycled);
                }
                None => self.forget_if_gone(port, &mut found),
            }
        }
        drop(held);
        let replug_deadline = self.replug_deadline();
        if self.needs_power() && !replug_deadline.is_zero() {
            self.begin(FlashStep::Return);
            self.observer.event(FlashEvent::Replug);
            match self.wait_within(port, replug_deadline)? {
                Some(replugged) => {
                    self.judge(port, Some(&replugged), true, before)?;
                    (found, is_replugged) = (Some(replugged), true);
                }
                None => self.forget_if_gone(port, &mut found),
            }
        }
        let Some(found) = found else { return self.stays_away(port, mode, is_cycled) };
        // Written and read back, but the reset has not made the chip read its flash.
        let runs_on = self.report.runs == Some(StartedCode::Before) && !is_replugged;
        if runs_on || self.plan.is_identity_of(&found) {
            return Ok(());
        }
        self.stands(StoppedState::OtherIdentity);
        let UnitInfo { id: found, state, .. } = found;
        let (expected, becomes) = (self.plan.usb_id.unwrap_or(found), self.plan.becomes());
        let message = format!("the unit came back as {found} ({state}), expected {expected} ({becomes})");
        Err(FlashError::other(Kind::Device.code("asmpatch::flash::identity"), message))
    }

    /// Forgets that the unit has returned, if it has left again: then nothing shows that what was written starts.
    fn forget_if_gone(&mut self, port: &mut dyn Port, found: &mut Option<UnitInfo>) {
        if port.attached().is_err() {
            (*found, self.report.after) = (None, None);
        }
    }

    /// Restarts the unit. Running firmware resets its CPU and comes back by itself: the vendor's by E8, open firmware
    /// as `asmpatch reset` restarts it. The boot loader is told to halt, as tinygrad's and openpilot's flashers do. `None`
    /// if the unit does not take it.
    ///
    /// Keep the unit that this returns until it has left: otherwise the system's driver is bound to a restarting unit,
    /// and its unanswered requests delay the whole host controller.
    fn restart(
        &mut self,
        port: &mut dyn Port,
        access: Option<Access>,
    ) -> Result<Option<(Live, ResetMode)>, FlashError> {
        let Some(access) = access else { return Ok(None) };
        self.begin(FlashStep::Restart);
        let (unit, mode, sent) = match access {
            Access::Commands(mut bridge) => {
                let (mode, sent) = match self.plan.attached.state {
                    BridgeState::BootLoader => (ResetMode::Halt, "halt"),
                    BridgeState::Vendor | BridgeState::OpenFirmware => (ResetMode::CpuReset, "CPU reset"),
                };
                match bridge.reset(mode) {
                    Ok(()) => {}
                    // A unit that resets at once does not answer. Its return will show whether it did.
                    Err(CommandError::Transport(error)) => {
                        self.trouble(&format!("no status: {error}"));
                    }
                    Err(error) => return Err(error.into()),
                }
                (Live::Vendor(bridge), mode, sent)
            }
            Access::Registers(flash) => {
                drop(flash);
                let mut unit = port.open_control()?;
                match restart_open(&mut unit, &self.plan.attached) {
                    Ok(sent) => (Live::Open(unit), ResetMode::CpuReset, sent),
                    Err(refused) => {
                        // A power cycle can still start what was written.
                        self.trouble(&refused.to_string());
                        return Ok(None);
                    }
                }
            }
        };
        self.stands(StoppedState::Restarted);
        self.end(FlashStep::Restart, &format!("{sent} sent"));
        Ok(Some((unit, mode)))
    }

    /// Records a unit that came back, and checks what it runs if it is as planned. Returns the connection to it, which
    /// keeps others off the disk behind it.
    fn judge(
        &mut self,
        port: &mut dyn Port,
        found: Option<&UnitInfo>,
        is_replugged: bool,
        before: &Behaviour,
    ) -> Result<Option<Access>, FlashError> {
        let Some(found) = found else { return Ok(None) };
        self.report.after = Some(found.clone());
        // A retrained link may be on the connector's other port.
        self.report.location = port.location();
        if found.state == BridgeState::BootLoader {
            self.stands(StoppedState::BootLoader);
            let message = format!(
                "the unit came back in its boot loader ({}): the chip doesn't start what is in its flash",
                found.id
            );
            return Err(FlashError::other(Kind::Device.code("asmpatch::flash::boot_loader"), message));
        }
        let is_planned = self.plan.is_identity_of(found);
        let is_as_before = !is_planned && self.is_as_before(found);
        (self.report.runs, self.report.needs_power) = (is_as_before.then_some(StartedCode::Before), true);
        let runs = if is_as_before { format!(": {}", StartedCode::Before) } else { String::new() };
        self.end(FlashStep::Return, &format!("{} ({}){runs}", found.id, found.state));
        if is_planned { self.check_what_runs(port, is_replugged, before).map(Some) } else { Ok(None) }
    }

    /// Whether the unit runs the kind of firmware that it had before the write, under the USB ID that it had. The old
    /// vendor firmware may also have taken its ID from the new configuration, where another kind was written.
    fn is_as_before(&self, found: &UnitInfo) -> bool {
        let UnitInfo { id, state, .. } = self.plan.attached;
        let has_new_id = self.plan.becomes() != state && self.plan.configured_id() == Some(found.id);
        found.state == state && (found.id == id || has_new_id)
    }

    /// Time that the user may take to plug the unit in again. Nobody can do that with a virtual one.
    fn replug_deadline(&self) -> Duration {
        if self.report.location.is_virtual() { Duration::ZERO } else { self.options.replug_deadline }
    }

    fn needs_power(&self) -> bool {
        self.report.runs != Some(StartedCode::Written)
    }

    /// Ends the run of a unit that has not been seen again.
    fn stays_away(&mut self, port: &mut dyn Port, mode: Option<ResetMode>, is_cycled: bool) -> Result<(), FlashError> {
        let waits = match mode {
            // A unit whose power was switched off and on should have started from its flash and come back.
            _ if is_cycled && port.attached().is_err() => None,
            Some(ResetMode::Halt) => Some("off the bus until its next power cycle"),
            None => Some("it runs what it had until its next power cycle"),
            Some(ResetMode::CpuReset) => None,
        };
        let Some(waits) = waits else {
            return Err(FlashError::not_back(self.options.return_deadline + self.replug_deadline()));
        };
        self.begin(FlashStep::Return);
        self.report.needs_power = true;
        self.end(FlashStep::Return, waits);
        Ok(())
    }

    /// Lets the hub power-cycle the unit. Returns `false` if no hub can. A unit that is on the bus and that nothing holds
    /// (`is_free`) is held meanwhile, so that nothing uses the disk behind it.
    fn power_cycle(&mut self, port: &mut dyn Port, held: Option<Access>, is_free: bool) -> Result<bool, FlashError> {
        self.interrupt.check()?;
        self.begin(FlashStep::PowerCycle);
        let _held = match held {
            None if is_free => match Access::open(port) {
                Ok(access) => Some(access),
                // The user can still plug the unit in again.
                Err(error) => {
                    self.trouble(&error.to_string());
                    return Ok(false);
                }
            },
            held => held,
        };
        match port.power_cycle() {
            Ok(true) => {
                self.stands(StoppedState::Restarted);
                self.end(FlashStep::PowerCycle, "its hub switched its power off and on");
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                self.trouble(&error.to_string());
                Ok(false)
            }
        }
    }

    /// Waits until a unit that was told to halt has left the bus, at most for the return deadline.
    fn wait_until_gone(&self, port: &mut dyn Port) -> Result<(), FlashError> {
        let until = deadline(self.options.return_deadline);
        while port.attached().is_ok() && Instant::now() < until {
            self.interrupt.check()?;
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Waits until the unit is back as planned, is back for good as it was, or the time is over. Returns the unit as
    /// last seen.
    fn wait_within(&mut self, port: &mut dyn Port, longest: Duration) -> Result<Option<UnitInfo>, FlashError> {
        let until = deadline(longest);
        let mut as_before_since = None;
        let mut seen = None;
        loop {
            let remaining = until.saturating_duration_since(Instant::now());
            let found = port.wait_for_return(remaining, self.interrupt)?;
            self.interrupt.check()?;
            match found {
                Some(found) if self.plan.is_identity_of(&found) => return Ok(Some(found)),
                Some(found) => seen = Some(found),
                None => return Ok(seen),
            }
            // The unit is here, but as something else. Perhaps it has not left yet.
            let now = Instant::now();
            let mut stays = false;
            if seen.as_ref().is_some_and(|found| self.is_as_before(found)) {
                let since = *as_before_since.get_or_insert(now);
                stays = now.duration_since(since) >= STAYS_AFTER;
            }
            if stays || until.saturating_duration_since(now) <= LOOK_AGAIN {
                return Ok(seen);
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Checks what the unit runs. Reads back now what could not be read back before. Returns the connection.
    fn check_what_runs(
        &mut self,
        port: &mut dyn Port,
        is_replugged: bool,
        before: &Behaviour,
    ) -> Result<Access, FlashError> {
        self.stands(StoppedState::Unproven);
        self.begin(FlashStep::Judge);
        let mut access = Access::open(port)?;
        let attached = port.attached()?;
        let now = Behaviour::of_unit(access.bridge(), &attached)?;
        self.report.version = now.version;
        let written = Behaviour::of_plan(self.plan);
        let runs = match written.contradiction(&now) {
            // After a replug the chip has loaded its code from flash.
            Some(error) if is_replugged => return Err(error),
            None if is_replugged => StartedCode::Written,
            _ => StartedCode::judge(before, &written, &now),
        };
        (self.report.runs, self.report.needs_power) = (Some(runs), runs != StartedCode::Written);
        self.end(FlashStep::Judge, &format!("{now}: {runs}"));
        if !self.plan.reads_back() {
            self.compare(access.reader(), 1)?;
        }
        Ok(access)
    }
}
