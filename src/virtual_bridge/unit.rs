//! The unit at the level of the wire: transfers on its endpoints, halts, resets, power.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::chip_unit::{ChipUnit, Counts, Course};
use super::descriptors::Descriptors;
use super::native::{Disk, NativeUnit};
use super::nor::NorFlash;
use super::power_on::{PowerOn, power_on, restart};
use super::replug::Requests;
use super::reply::{After, InReply, OutReply};
use super::scenario::{CpuReset, FaultKind, FaultPlan, PowerOnState, Scenario};
use crate::bridge::Endpoint;
use crate::chip::{CLOCK_MHZ, ControlReply, Simulated};
use crate::firmware::{BridgeState, Image};
use crate::practice;
use crate::scsi::ResetMode;

/// What happens to the unit's attachment to the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusEvent {
    /// It left the bus.
    Detached,
    /// It came (back) onto the bus: its descriptors are to be read again.
    Attached,
}

/// The interface has no such alternate setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the interface has no alternate setting {0}")]
pub struct NoSuchAlternate(pub u8);

/// How a control request ended that firmware answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlAnswer {
    /// It went through; the data of a read.
    Done(Vec<u8>),
    /// The firmware stalled it.
    Stall,
    /// The firmware does not answer.
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Attached,
    Away { back: Option<Back> },
}

/// When a unit that is away comes back, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Back {
    at: Instant,
    by: Boot,
}

/// What starts the chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boot {
    /// Power.
    Power,
    /// E8 with mode 0x50.
    CpuReset,
}

/// bmRequestType's bits of a request's type, and a vendor's (USB 3.2, 9.3).
const REQUEST_TYPE: u8 = 0x60;
const VENDOR: u8 = 0x40;

/// The least time that a replugged unit is away: what leaves and comes back at once, a guest's hub does not see leave.
const REPLUG_MS: u64 = 500;

/// A bridge in software, at the level of the wire.
///
/// Transfers go in and out by [`VirtualBridge::bulk_out`] and [`VirtualBridge::bulk_in`]; nothing waits: what a real
/// unit would let wait is [`OutReply::Silent`] or [`InReply::Silent`].
#[derive(Debug)]
pub struct VirtualBridge {
    scenario: Scenario,
    /// What answers where no image runs on a chip.
    native: NativeUnit,
    /// The chip on which the image runs; it has the flash then.
    chip: Option<Box<ChipUnit>>,
    descriptors: Descriptors,
    alternate: u8,
    faults: FaultPlan,
    presence: Presence,
    /// When the scenario unplugs it.
    unplugged_at: Option<Instant>,
    /// What the code memory holds; `None` where what runs is not the image's.
    running: Option<Image>,
    /// The image boots, and its firmware answers no host.
    is_mute: bool,
    events: VecDeque<BusEvent>,
    attachments: u64,
    requests: Option<Requests>,
}

impl VirtualBridge {
    /// A unit around these cells, with power. `disk` is what the scenario says of an SSD.
    pub(super) fn assemble(scenario: Scenario, mut flash: NorFlash, disk: Option<Disk>) -> Self {
        flash.set_timing(scenario.timing.flash());
        flash.set_faults(scenario.flash.faults());
        flash.lose_power_after(scenario.power_loss_after);
        let came_up = power_on(&flash, scenario.state, scenario.speed);
        let command_time = Duration::from_micros(scenario.timing.command_us);
        let mut unit = Self {
            native: NativeUnit::new(flash, disk, command_time, &came_up.descriptors),
            descriptors: came_up.descriptors.clone(),
            chip: None,
            alternate: 0,
            faults: FaultPlan::new(&scenario.faults),
            unplugged_at: scenario.unplug_after_us.map(|us| Instant::now() + Duration::from_micros(us)),
            presence: Presence::Away { back: None },
            running: None,
            is_mute: false,
            events: VecDeque::new(),
            attachments: 0,
            requests: None,
            scenario,
        };
        if unit.scenario.state != PowerOnState::Absent {
            unit.come_up(came_up);
            unit.events.clear();
        }
        unit
    }

    /// What the unit enumerates with. They change with every [`BusEvent::Attached`].
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// What the unit was told.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// What its chip has done since power-on; `None` where no image runs on one.
    pub fn simulated(&mut self) -> Option<Simulated> {
        let clock_mhz = self.scenario.clock_mhz.unwrap_or(CLOCK_MHZ);
        self.chip.as_mut().map(|chip| Simulated { work: chip.work(), clock_mhz })
    }

    /// Whether the unit is on the bus.
    pub fn is_attached(&self) -> bool {
        self.presence == Presence::Attached
    }

    /// Whether the unit is off the bus because the firmware that its flash holds does not enumerate.
    pub fn is_mute(&self) -> bool {
        self.is_mute && !self.is_attached()
    }

    /// How often the unit has come onto the bus: tells one attachment from the next.
    pub fn attachments(&self) -> u64 {
        self.attachments
    }

    /// The next change of the attachment that has not been told yet. A unit whose time to come back has arrived comes
    /// back in this call.
    pub fn poll_event(&mut self) -> Option<BusEvent> {
        self.unplug_when_told();
        if self.is_attached() {
            self.follow_chip();
        }
        if let Presence::Away { back: Some(Back { at, by }) } = self.presence
            && at <= Instant::now()
        {
            match by {
                Boot::Power => self.plug_in(),
                Boot::CpuReset => self.start_over(),
            }
        }
        self.events.pop_front()
    }

    /// How long until something that is silent or away now can change by itself; `None` where nothing will.
    ///
    /// Asked *before* transfers are offered again: a moment that passes in between then costs one more round, not an
    /// answer.
    pub fn wake_in(&self) -> Option<Duration> {
        let ready_at = match self.presence {
            Presence::Away { back } => return back.map(|back| back.at.saturating_duration_since(Instant::now())),
            Presence::Attached => match &self.chip {
                Some(chip) => chip.ready_at(),
                None => self.native.ready_at(),
            },
        };
        // What is busy until after it is unplugged is answered never.
        let ready_at = ready_at.map(|at| self.unplugged_at.map_or(at, |unplugged_at| at.min(unplugged_at)));
        ready_at.map(|at| at.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }

    /// Takes the unit off the bus and its power away; it stays away until [`VirtualBridge::plug_in`]. What its flash is
    /// busy with (the scenario's timing) stays unfinished.
    pub fn unplug(&mut self) {
        self.lose_power();
        self.leave(None);
    }

    /// Gives the unit its power back: it comes up as its flash says.
    pub fn plug_in(&mut self) {
        if self.is_attached() {
            return;
        }
        self.stop_chip();
        let flash = self.native.flash_mut();
        if flash.power_is_lost() {
            flash.lose_power_after(None);
        }
        let came_up = power_on(flash, self.scenario.state, self.scenario.speed);
        self.come_up(came_up);
    }

    /// Unplugs the unit and plugs it in again a moment later.
    pub fn replug(&mut self) {
        self.lose_power();
        let away = REPLUG_MS.max(self.scenario.timing.reenumerate_ms);
        self.leave(in_ms(away).map(|at| Back { at, by: Boot::Power }));
    }

    /// Whether another process has asked for a replug since the last call.
    pub fn takes_replug_request(&mut self) -> bool {
        self.requests.as_mut().is_some_and(Requests::take)
    }

    pub(super) fn listen_to(&mut self, requests: Requests) {
        self.requests = Some(requests);
    }

    /// E8 with mode 0x50: the CPU starts over, and the link is trained anew.
    fn start_over(&mut self) {
        self.stop_chip();
        let speed = self.scenario.speed_after_reset.unwrap_or(self.scenario.speed);
        let flash = self.native.flash_mut();
        let came_up = match (self.running.take(), self.scenario.cpu_reset) {
            (Some(image), CpuReset::KeepsCode) => restart(flash, image, speed),
            _ => power_on(flash, self.scenario.state, speed),
        };
        self.come_up(came_up);
    }

    /// The alternate setting of interface 0 that is selected.
    pub fn alternate(&self) -> u8 {
        self.alternate
    }

    /// SET_INTERFACE: 0 is Bulk-Only, 1 UAS. What was under way is forgotten.
    ///
    /// # Errors
    /// [`NoSuchAlternate`], as the boot loader has one alternate alone.
    pub fn set_alternate(&mut self, alternate: u8) -> Result<(), NoSuchAlternate> {
        let takes = match &mut self.chip {
            Some(chip) => chip.set_alternate(alternate),
            None => self.native.set_alternate(alternate),
        };
        if !takes {
            return Err(NoSuchAlternate(alternate));
        }
        self.alternate = alternate;
        Ok(())
    }

    /// SET_CONFIGURATION: 0 or 1. Selects the first alternate; what was under way is forgotten. Whether the unit takes
    /// the value; one that it refuses changes nothing.
    pub fn set_configuration(&mut self, value: u8) -> bool {
        let takes = match &mut self.chip {
            Some(chip) => chip.set_configuration(value),
            None => self.native.set_configuration(value),
        };
        if takes {
            self.alternate = 0;
        }
        takes
    }

    /// SET_FEATURE(ENDPOINT_HALT).
    pub fn halt(&mut self, endpoint: Endpoint) {
        self.native.halt(endpoint);
    }

    /// CLEAR_FEATURE(ENDPOINT_HALT).
    pub fn clear_halt(&mut self, endpoint: Endpoint) {
        match &mut self.chip {
            Some(chip) => chip.clear_halt(endpoint),
            None => self.native.clear_halt(endpoint),
        }
    }

    /// Whether an endpoint of the selected alternate is halted, as GET_STATUS tells.
    pub fn is_halted(&self, endpoint: Endpoint) -> bool {
        self.native.is_halted(endpoint)
    }

    /// Bulk-Only Mass Storage Reset. `false`, a stalled control request, while UAS is selected or the unit is away.
    pub fn mass_storage_reset(&mut self) -> bool {
        match &mut self.chip {
            Some(chip) => chip.mass_storage_reset(),
            None => self.is_attached() && self.native.mass_storage_reset(),
        }
    }

    /// A reset of the port: what was under way is forgotten, and the configuration. The memories and what runs stay as
    /// they are.
    pub fn bus_reset(&mut self) {
        match &mut self.chip {
            Some(chip) => chip.bus_reset(),
            None => self.native.bus_reset(),
        }
        self.alternate = 0;
    }

    /// The host suspends the link. Nothing moves on it until [`VirtualBridge::resume`] or a reset of the port; what was
    /// under way goes on then. Firmware learns of both by its own interrupts.
    pub fn suspend(&mut self) {
        match &mut self.chip {
            Some(chip) => chip.suspend(),
            None => self.native.set_suspended(true),
        }
    }

    /// The host resumes the link.
    pub fn resume(&mut self) {
        match &mut self.chip {
            Some(chip) => chip.resume(),
            None => self.native.set_suspended(false),
        }
    }

    /// What a host does to a unit that it takes or recovers: port reset, SET_CONFIGURATION 1, SET_INTERFACE, both halts
    /// cleared. In every state it leaves the pipes ready.
    ///
    /// # Errors
    /// [`NoSuchAlternate`].
    pub fn reset_by_host(&mut self, alternate: u8) -> Result<(), NoSuchAlternate> {
        self.bus_reset();
        self.set_configuration(1);
        self.set_alternate(alternate)?;
        for endpoint in [Endpoint::DataOut, Endpoint::DataIn] {
            self.clear_halt(endpoint);
        }
        Ok(())
    }

    /// Data from the host on 0x02 or 0x04. `stream` is 0 where there are no streams.
    ///
    /// Under Bulk-Only a transfer is one CBW, or any piece of the command's data; under UAS one IU, or any piece of the
    /// stream's data.
    pub fn bulk_out(&mut self, endpoint: Endpoint, stream: u16, data: &[u8]) -> OutReply {
        self.unplug_when_told();
        if !self.is_attached() {
            return OutReply::Gone;
        }
        if self.scenario.bulk_hangs {
            return OutReply::Silent;
        }
        if let Some(chip) = &mut self.chip {
            let reply = chip.bulk_out(endpoint, stream, data, &mut self.faults);
            self.follow_chip();
            return if self.is_attached() { reply } else { OutReply::Gone };
        }
        let (reply, after) = self.native.bulk_out(endpoint, stream, data, &mut self.faults);
        self.follow(after);
        if self.is_attached() { reply } else { OutReply::Gone }
    }

    /// The host asks for up to `buffer.len()` bytes on 0x81 or 0x83. `stream` is 0 where there are no streams.
    pub fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> InReply {
        self.unplug_when_told();
        if !self.is_attached() {
            return InReply::Gone;
        }
        if self.scenario.bulk_hangs {
            return InReply::Silent;
        }
        if let Some(chip) = &mut self.chip {
            let reply = chip.bulk_in(endpoint, stream, buffer);
            self.follow_chip();
            return reply;
        }
        let (reply, after) = self.native.bulk_in(endpoint, stream, buffer);
        self.follow(after);
        reply
    }

    /// A control request, as the firmware answers it; `None` where endpoint 0 is not the firmware's.
    pub fn control(&mut self, setup: [u8; 8], data: &[u8]) -> Option<ControlAnswer> {
        self.unplug_when_told();
        let is_open = self.is_attached() && self.descriptors.state == BridgeState::OpenFirmware;
        let fault = if is_open && setup[0] & REQUEST_TYPE == VENDOR { self.faults.strike(setup[1]) } else { None };
        let asked_for = usize::from(u16::from_le_bytes([setup[6], setup[7]]));
        match fault {
            Some(FaultKind::Stall | FaultKind::StallStatus) => Some(ControlAnswer::Stall),
            Some(FaultKind::Timeout) => Some(ControlAnswer::Silent),
            Some(FaultKind::Disconnect) => {
                self.follow(After::Vanish);
                None
            }
            Some(FaultKind::ShortData) => match self.control_by(|chip| chip.control(setup, data)) {
                Some(ControlAnswer::Done(mut came)) => {
                    came.truncate(asked_for / 2);
                    Some(ControlAnswer::Done(came))
                }
                other => other,
            },
            // A control request has neither a tag nor phases.
            Some(FaultKind::BadTag | FaultKind::PhaseError) | None => self.control_by(|chip| chip.control(setup, data)),
        }
    }

    /// The answer to a control request that was [`ControlAnswer::Silent`] so far.
    pub(super) fn control_reply(&mut self, setup: [u8; 8]) -> Option<ControlAnswer> {
        self.control_by(|chip| chip.control_reply(setup))
    }

    fn control_by(&mut self, ask: impl FnOnce(&mut ChipUnit) -> Option<ControlReply>) -> Option<ControlAnswer> {
        self.unplug_when_told();
        let chip = self.chip.as_mut().filter(|_| self.presence == Presence::Attached)?;
        let answer = match ask(chip) {
            Some(ControlReply::Done(data)) => ControlAnswer::Done(data),
            Some(ControlReply::Stall) => ControlAnswer::Stall,
            None => ControlAnswer::Silent,
        };
        self.alternate = chip.alternate();
        self.follow_chip();
        Some(answer)
    }

    /// The SPI flash.
    pub fn flash(&mut self) -> &NorFlash {
        self.flash_mut()
    }

    /// The SPI flash, to change.
    pub fn flash_mut(&mut self) -> &mut NorFlash {
        match &mut self.chip {
            Some(chip) => chip.flash_mut(),
            None => self.native.flash_mut(),
        }
    }

    /// The data buffer, to change: what the PCIe side writes from 0x00200000 on. Empty where no chip runs.
    pub fn data_buffer_mut(&mut self) -> &mut [u8] {
        match &mut self.chip {
            Some(chip) => chip.data_buffer_mut(),
            None => &mut [],
        }
    }

    /// What the firmware has done since the unit came up; nothing where no chip runs.
    pub fn counts(&mut self) -> Counts {
        self.chip.as_mut().map_or(Counts::default(), |chip| chip.counts())
    }

    /// Where the firmware has taken the unit.
    fn follow_chip(&mut self) {
        let Some(chip) = &mut self.chip else { return };
        let course = chip.course();
        if chip.flash_mut().power_is_lost() {
            self.stop_chip();
            return self.follow(After::Nothing);
        }
        match course {
            Course::On => {}
            Course::Reset => self.follow(After::Leave(ResetMode::CpuReset)),
            Course::Off => self.follow(After::Leave(ResetMode::Halt)),
            Course::Vanished => self.follow(After::Vanish),
        }
    }

    /// Takes the flash back from the chip.
    fn stop_chip(&mut self) {
        if let Some(chip) = self.chip.take() {
            *self.native.flash_mut() = chip.power_off();
        }
    }

    fn follow(&mut self, after: After) {
        let back = |by: Boot| move |at| Back { at, by };
        if self.native.flash_mut().power_is_lost() || after == After::Vanish {
            self.lose_power();
            self.leave(self.scenario.back_after_ms.and_then(in_ms).map(back(Boot::Power)));
            return;
        }
        match after {
            After::Leave(ResetMode::CpuReset) => {
                self.leave(in_ms(self.scenario.timing.reenumerate_ms).map(back(Boot::CpuReset)));
            }
            After::Leave(ResetMode::Halt) => self.leave(None),
            After::Nothing | After::Vanish => {}
        }
    }

    /// Unplugs the unit where the scenario's moment has come.
    fn unplug_when_told(&mut self) {
        if self.is_attached()
            && let Some(at) = self.unplugged_at.take_if(|at| *at <= Instant::now())
        {
            self.lose_power_at(at);
            let back = |ms| Back { at: at + Duration::from_millis(ms), by: Boot::Power };
            self.leave(self.scenario.back_after_ms.map(back));
        }
    }

    fn lose_power(&mut self) {
        self.lose_power_at(Instant::now());
    }

    fn lose_power_at(&mut self, at: Instant) {
        self.stop_chip();
        // A file that can't be written has what the flash was busy with: as if the power had gone later.
        let _ = self.native.flash_mut().cut_power(at);
    }

    fn leave(&mut self, back: Option<Back>) {
        if self.is_attached() {
            self.events.push_back(BusEvent::Detached);
        }
        self.presence = Presence::Away { back };
        self.native.forget();
    }

    fn come_up(&mut self, came_up: PowerOn) {
        let PowerOn { image, mut descriptors } = came_up;
        self.is_mute = false;
        let disk = self.native.disk().cloned();
        if let Some(image) = image.as_ref().filter(|image| disk.is_none() || !practice::is_practice(image)) {
            let flash = std::mem::replace(self.native.flash_mut(), NorFlash::none());
            let command_time = Duration::from_micros(self.scenario.timing.command_us);
            let mut fabric = self.scenario.fabric();
            if let Some(disk) = disk {
                fabric.put_store(Box::new(disk));
            }
            let chip = ChipUnit::power_on(image, flash, fabric, descriptors.speed, command_time);
            let Some(told) = chip.descriptors() else {
                // A host sees no device.
                *self.native.flash_mut() = chip.power_off();
                self.is_mute = true;
                self.presence = Presence::Away { back: None };
                return;
            };
            descriptors = told.clone();
            self.chip = Some(Box::new(chip));
        } else {
            self.native.power_on(&descriptors, image.as_ref().map(Image::version));
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
