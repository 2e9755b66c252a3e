//! A unit's presence on the bus: power, unplugging, leaving and returning.

use std::time::{Duration, Instant};

use asm2464::firmware::{BlockIndex, ConfigBlock, Image};
use asm2464::flash::{FIRST_SLOT, SLOT_LEN, Slot};
use asm2464_chip::chip::Speed;
use asm2464_chip::spi_flash::SpiFlash;

use super::{StreamLimit, VirtualUnit};
use crate::virtual_unit::chip_unit::{ChipUnit, Course};
use crate::virtual_unit::descriptors::{Descriptors, Identity};
use crate::virtual_unit::replug::ReplugRequests;
use crate::virtual_unit::scenario::{BulkHangs, CpuReset, PowerOnState};

#[derive(Debug, Clone, Copy)]
pub(super) enum Presence {
    Attached,
    Away { back: Option<Back> },
}

/// Time of an absent unit's return, and how it starts then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Back {
    at: Instant,
    start: fn(&mut VirtualUnit),
}

impl Back {
    /// A return `ms` milliseconds after `from`; `None` if the clock can't represent that time.
    fn after(from: Instant, ms: u64, start: fn(&mut VirtualUnit)) -> Option<Self> {
        Some(Self { at: from.checked_add(Duration::from_millis(ms))?, start })
    }
}

/// Minimum time that a replugged unit is away. A guest's hub does not notice a unit that returns at once.
const REPLUG_MS: u64 = 500;

impl VirtualUnit {
    /// Brings the unit's presence up to date. A unit whose time to return has come returns in this call.
    pub fn poll(&mut self) {
        self.unplug_when_told();
        if self.is_attached() {
            self.follow_responder();
        }
        if let Presence::Away { back: Some(Back { at, start }) } = self.presence
            && at <= Instant::now()
        {
            start(self);
        }
    }

    /// Time until a silent or absent unit can change by itself; `None` if nothing will.
    ///
    /// Call it *before* you offer transfers again. If the time passes in between, you only offer them once more; in the
    /// other order you would miss it.
    pub fn wake_in(&mut self) -> Option<Duration> {
        let ready_at = match self.presence {
            Presence::Away { back } => return back.map(|back| back.at.saturating_duration_since(Instant::now())),
            Presence::Attached => self.responder().ready_at(),
        };
        let mut ready_at = ready_at?;
        // The scenario may unplug the unit before it is ready.
        if let Some(unplugged_at) = self.unplugged_at {
            ready_at = ready_at.min(unplugged_at);
        }
        let wait = ready_at.saturating_duration_since(Instant::now());
        if wait.is_zero() { None } else { Some(wait) }
    }

    /// Takes the unit off the bus and cuts its power until [`VirtualUnit::plug_in`]. The flash's current operation
    /// (the scenario's timing) stays unfinished.
    pub fn unplug(&mut self) {
        self.lose_power(Instant::now());
        self.leave(None);
    }

    /// Restores the unit's power. It starts from its flash.
    pub fn plug_in(&mut self) {
        if self.is_attached() {
            return;
        }
        self.hangs = BulkHangs::Never;
        self.stream = StreamLimit::Kept;
        self.stop_chip();
        let flash = self.boot_loader.flash_mut();
        if flash.power_is_lost() {
            flash.power_left = None;
        }
        let image = self.image_to_boot();
        self.come_up(image, self.scenario.speed);
    }

    /// Unplugs the unit, and plugs it in again a moment later.
    pub fn replug(&mut self) {
        let now = Instant::now();
        self.lose_power(now);
        let away = REPLUG_MS.max(self.scenario.timing.reenumerate_ms);
        self.leave(Back::after(now, away, Self::plug_in));
    }

    /// Takes another process's request for a replug. Returns whether there was one since the last call.
    pub fn takes_replug_request(&mut self) -> bool {
        self.requests.as_mut().is_some_and(ReplugRequests::take)
    }

    /// Restarts the CPU as E8 with mode 0x50 or a write to 0xCC31 does, and retrains the link.
    pub(super) fn start_over(&mut self) {
        let speed = self.scenario.speed_after_reset.unwrap_or(self.scenario.speed);
        if self.hangs != BulkHangs::UntilPower {
            self.hangs = BulkHangs::Never;
        }
        match self.chip.take() {
            Some(mut unit) if self.scenario.cpu_reset == CpuReset::KeepsCode => {
                unit.restart(speed);
                self.connect(unit);
            }
            chip => {
                self.chip = chip;
                self.stop_chip();
                let image = self.image_to_boot();
                self.come_up(image, speed);
            }
        }
    }

    /// The image that starts; `None` for the boot loader. Call it only while no chip holds the flash.
    pub(super) fn image_to_boot(&mut self) -> Option<Image> {
        match self.scenario.state {
            PowerOnState::Auto | PowerOnState::Absent => first_slot(self.boot_loader.flash_mut()).image().ok(),
            PowerOnState::BootLoader => None,
        }
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
                let away = self.scenario.timing.reenumerate_ms;
                self.leave(Back::after(Instant::now(), away, Self::start_over));
            }
            Course::Off => self.leave(None),
            Course::Vanished => self.vanish(),
        }
    }

    /// Takes the unit off the bus, without power, as a fault does.
    pub(super) fn vanish(&mut self) {
        self.vanish_at(Instant::now());
    }

    fn vanish_at(&mut self, at: Instant) {
        self.lose_power(at);
        self.leave(self.scenario.back_after_ms.and_then(|ms| Back::after(at, ms, Self::plug_in)));
    }

    /// Takes the flash back from the chip.
    fn stop_chip(&mut self) {
        if let Some(unit) = self.chip.take() {
            *self.boot_loader.flash_mut() = unit.chip.power_off();
        }
    }

    /// Unplugs the unit if the scenario's time has come.
    pub(super) fn unplug_when_told(&mut self) {
        if self.is_attached()
            && let Some(at) = self.unplugged_at.take_if(|at| *at <= Instant::now())
        {
            self.vanish_at(at);
        }
    }

    fn lose_power(&mut self, at: Instant) {
        self.stop_chip();
        // If the file can't be written, it keeps the flash's unfinished operation, as if the power had failed later.
        let _ = self.boot_loader.flash_mut().cut_power(at);
    }

    fn leave(&mut self, back: Option<Back>) {
        self.presence = Presence::Away { back };
        self.boot_loader.forget();
    }

    pub(super) fn come_up(&mut self, image: Option<Image>, speed: Speed) {
        self.is_mute = false;
        if let Some(image) = &image {
            let flash = std::mem::take(self.boot_loader.flash_mut());
            let command_time = Duration::from_micros(self.scenario.timing.command_us);
            let mut fabric = self.scenario.fabric();
            if let Some(disk) = &self.disk {
                fabric.put_store(Box::new(disk.clone()));
            }
            let board = self.scenario.board();
            self.connect(Box::new(ChipUnit::power_on(image, board, flash, fabric, speed, command_time)));
            return;
        }
        if let Some(stand_in) = &mut self.stand_in {
            stand_in.bus_reset();
            stand_in.set_configuration(1);
        } else {
            let identity = boot_loader_identity(self.boot_loader.flash_mut());
            self.descriptors = Descriptors::boot_loader(identity, speed);
            self.boot_loader.power_on(&self.descriptors);
        }
        self.arrive();
    }

    /// Puts a chip on the bus, if its firmware has enumerated.
    fn connect(&mut self, unit: Box<ChipUnit>) {
        self.is_mute = unit.descriptors.is_none();
        let Some(descriptors) = &unit.descriptors else {
            // The host sees no device.
            *self.boot_loader.flash_mut() = unit.chip.power_off();
            self.presence = Presence::Away { back: None };
            return;
        };
        self.descriptors = descriptors.clone();
        self.chip = Some(unit);
        self.arrive();
    }

    fn arrive(&mut self) {
        self.power_features = 0;
        self.attachments += 1;
        self.presence = Presence::Attached;
    }
}

/// The first slot. Reads the cells directly, because the scenario's read faults strike only reads by firmware.
fn first_slot(flash: &SpiFlash) -> Slot {
    Slot::at(FIRST_SLOT, flash.get(FIRST_SLOT, SLOT_LEN).unwrap_or_default())
}

/// The boot loader's identity: that of configuration block 0 if the block is valid, else the ROM's own. Source:
/// openpilot's flasher, which finds the boot loader under the block's identity.
fn boot_loader_identity(flash: &SpiFlash) -> Identity {
    let [zero, _] = first_slot(flash).blocks();
    ConfigBlock::parse(BlockIndex::Zero, &zero)
        .map_or_else(|_| Identity::boot_loader(), |block| Identity::configured(&block))
}
