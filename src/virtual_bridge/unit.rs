//! The unit at the level of the wire: transfers on its endpoints, halts, resets, power.

mod presence;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use presence::Presence;

use super::chip_unit::{ChipUnit, Counts};
use super::descriptors::Descriptors;
use super::disk::Disk;
use super::native::NativeUnit;
use super::nor::NorFlash;
use super::power_on::power_on;
use super::replug::Requests;
use super::reply::{After, InReply, OutReply};
use super::scenario::{FaultKind, FaultPlan, PowerOnState, Scenario};
use crate::bridge::Endpoint;
use crate::chip::{CLOCK_MHZ, ControlReply, Simulated};
use crate::firmware::{BridgeState, Image};

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

/// bmRequestType's bits of a request's type, and a vendor's (USB 3.2, 9.3).
const REQUEST_TYPE: u8 = 0x60;
const VENDOR: u8 = 0x40;

/// A bridge in software, at the level of the wire.
///
/// Transfers go in and out by [`VirtualBridge::bulk_out`] and [`VirtualBridge::bulk_in`]; nothing waits: what a real
/// unit would let wait is [`OutReply::Silent`] or [`InReply::Silent`].
#[derive(Debug)]
pub struct VirtualBridge {
    scenario: Scenario,
    /// What answers where no image runs on a chip.
    native: NativeUnit,
    /// The blocks of the SSD behind it.
    disk: Option<Disk>,
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
            native: NativeUnit::new(flash, command_time, &came_up.descriptors),
            descriptors: came_up.descriptors.clone(),
            disk,
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
}
