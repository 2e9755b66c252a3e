//! A unit's presence on the bus: power, unplugging, leaving and returning.

use std::time::{Duration, Instant};

use super::{BusEvent, VirtualBridge};
use crate::virtual_bridge::chip_unit::{ChipUnit, Course};
use crate::virtual_bridge::power_on::{PowerOn, power_on, restart};
use crate::virtual_bridge::replug::Requests;
use crate::virtual_bridge::scenario::CpuReset;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Attached,
    Away { back: Option<Back> },
}

/// Time and cause of an absent unit's return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Back {
    at: Instant,
    by: StartCause,
}

/// Cause of the chip's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartCause {
    /// Power.
    Power,
    /// E8 with mode 0x50.
    CpuReset,
}

/// Minimum time that a replugged unit is away. A guest's hub does not notice a unit that returns at once.
const REPLUG_MS: u64 = 500;

impl VirtualBridge {
    /// Returns the next change of the unit's presence. A unit whose time to return has come returns in this call.
    pub fn poll_event(&mut self) -> Option<BusEvent> {
        self.unplug_when_told();
        if self.is_attached() {
            self.follow_responder();
        }
        if let Presence::Away { back: Some(Back { at, by }) } = self.presence
            && at <= Instant::now()
        {
            match by {
                StartCause::Power => self.plug_in(),
                StartCause::CpuReset => self.start_over(),
            }
        }
        self.events.pop_front()
    }

    /// Time until a silent or absent unit can change by itself; `None` if nothing will.
    ///
    /// Call it *before* you offer transfers again: a moment that passes in between then costs only another round, not
    /// an answer.
    pub fn wake_in(&self) -> Option<Duration> {
        let ready_at = match self.presence {
            Presence::Away { back } => return back.map(|back| back.at.saturating_duration_since(Instant::now())),
            Presence::Attached => self.responder().ready_at(),
        };
        // A unit that is unplugged before it is ready never answers.
        let ready_at = ready_at.map(|at| self.unplugged_at.map_or(at, |unplugged_at| at.min(unplugged_at)));
        ready_at.map(|at| at.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }

    /// Takes the unit off the bus and cuts its power until [`VirtualBridge::plug_in`]. The flash's current operation
    /// (the scenario's timing) stays unfinished.
    pub fn unplug(&mut self) {
        self.lose_power();
        self.leave(None);
    }

    /// Restores the unit's power. It starts from its flash.
    pub fn plug_in(&mut self) {
        if self.is_attached() {
            return;
        }
        self.stop_chip();
        let flash = self.boot_loader.flash_mut();
        if flash.power_is_lost() {
            flash.lose_power_after(None);
        }
        let came_up = match self.stand_in {
            Some(_) => PowerOn { image: None, descriptors: self.descriptors.clone() },
            None => power_on(flash, self.scenario.state, self.scenario.speed),
        };
        self.come_up(came_up);
    }

    /// Unplugs the unit, and plugs it in again a moment later.
    pub fn replug(&mut self) {
        self.lose_power();
        let away = REPLUG_MS.max(self.scenario.timing.reenumerate_ms);
        self.leave(in_ms(away).map(|at| Back { at, by: StartCause::Power }));
    }

    /// Takes another process's request for a replug. Returns whether there was one since the last call.
    pub fn takes_replug_request(&mut self) -> bool {
        self.requests.as_mut().is_some_and(Requests::take)
    }

    pub(in crate::virtual_bridge) fn listen_to(&mut self, requests: Requests) {
        self.requests = Some(requests);
    }

    /// Restarts the CPU as E8 with mode 0x50 does, and retrains the link.
    pub(super) fn start_over(&mut self) {
        self.stop_chip();
        let speed = self.scenario.speed_after_reset.unwrap_or(self.scenario.speed);
        let flash = self.boot_loader.flash_mut();
        let came_up = match (self.running.take(), self.scenario.cpu_reset) {
            (Some(image), CpuReset::KeepsCode) => restart(flash, image, speed),
            _ => power_on(flash, self.scenario.state, speed),
        };
        self.come_up(came_up);
    }

    /// Follows what firmware or boot loader have done to the unit's presence on the bus.
    pub(super) fn follow_responder(&mut self) {
        let course = match &mut self.chip {
            Some(chip) => chip.course(),
            None => self.boot_loader.course(),
        };
        if self.flash_mut().power_is_lost() {
            return self.vanish();
        }
        match course {
            Course::On => {}
            Course::Reset => {
                let back = |at| Back { at, by: StartCause::CpuReset };
                self.leave(in_ms(self.scenario.timing.reenumerate_ms).map(back));
            }
            Course::Off => self.leave(None),
            Course::Vanished => self.vanish(),
        }
    }

    /// Takes the unit off the bus, without power, as a fault does.
    pub(super) fn vanish(&mut self) {
        self.lose_power();
        self.leave(self.scenario.back_after_ms.and_then(in_ms).map(|at| Back { at, by: StartCause::Power }));
    }

    /// Takes the flash back from the chip.
    fn stop_chip(&mut self) {
        if let Some(chip) = self.chip.take() {
            *self.boot_loader.flash_mut() = chip.power_off();
        }
    }

    /// Unplugs the unit if the scenario's time has come.
    pub(super) fn unplug_when_told(&mut self) {
        if self.is_attached()
            && let Some(at) = self.unplugged_at.take_if(|at| *at <= Instant::now())
        {
            self.lose_power_at(at);
            let back = |ms| Back { at: at + Duration::from_millis(ms), by: StartCause::Power };
            self.leave(self.scenario.back_after_ms.map(back));
        }
    }

    fn lose_power(&mut self) {
        self.lose_power_at(Instant::now());
    }

    fn lose_power_at(&mut self, at: Instant) {
        self.stop_chip();
        // If the file can't be written, it keeps the flash's unfinished operation, as if the power had failed later.
        let _ = self.boot_loader.flash_mut().cut_power(at);
    }

    fn leave(&mut self, back: Option<Back>) {
        if self.is_attached() {
            self.events.push_back(BusEvent::Detached);
        }
        self.presence = Presence::Away { back };
        self.boot_loader.forget();
    }

    pub(super) fn come_up(&mut self, came_up: PowerOn) {
        let PowerOn { image, mut descriptors } = came_up;
        self.is_mute = false;
        if let Some(image) = &image {
            let flash = std::mem::take(self.boot_loader.flash_mut());
            let command_time = Duration::from_micros(self.scenario.timing.command_us);
            let mut fabric = self.scenario.fabric();
            if let Some(disk) = &self.disk {
                fabric.put_store(Box::new(disk.clone()));
            }
            let chip = ChipUnit::power_on(image, flash, fabric, descriptors.speed, command_time);
            let Some(told) = chip.descriptors() else {
                // The host sees no device.
                *self.boot_loader.flash_mut() = chip.power_off();
                self.is_mute = true;
                self.presence = Presence::Away { back: None };
                return;
            };
            descriptors = told.clone();
            self.chip = Some(Box::new(chip));
        } else if let Some(stand_in) = &mut self.stand_in {
            stand_in.bus_reset();
            stand_in.set_configuration(1);
        } else {
            self.boot_loader.power_on(&descriptors);
        }
        self.running = image;
        self.descriptors = descriptors;
        self.alternate = 0;
        self.attachments += 1;
        self.presence = Presence::Attached;
        self.events.push_back(BusEvent::Attached);
    }
}

fn in_ms(ms: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(ms))
}
