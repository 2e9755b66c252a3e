//! The unit as seen from the wire: transfers on its endpoints, halts, resets, power.

mod control;
mod presence;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;
use asm2464_chip::chip::{ControlReply, Work};
use asm2464_chip::spi_flash::SpiFlash;
use asm2464_host::bridge::Endpoint;
use presence::Presence;

use super::boot_loader::BootLoader;
use super::chip_unit::{ChipUnit, FirmwareCounts};
use super::descriptors::{Descriptors, Identity};
use super::folder::Disk;
use super::replug::ReplugRequests;
use super::responder::{Reply, Responder};
use super::scenario::{BulkHangs, FaultKind, FaultPlan, PowerOnState, Scenario};
use super::setup;

/// The unit's answer to a control request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlAnswer {
    /// The request succeeded; holds the data of a read.
    Done(Vec<u8>),
    /// It was stalled.
    Stall,
    /// The firmware does not answer.
    Silent,
    /// The unit is not on the bus.
    Gone,
}

/// A unit in software, as seen from the wire.
///
/// Transfers go through [`VirtualUnit::bulk_out`] and [`VirtualUnit::bulk_in`]. Nothing blocks: a transfer that a
/// real unit would delay gets [`Reply::Silent`].
#[derive(Debug)]
pub struct VirtualUnit {
    scenario: Scenario,
    /// A program's own code, which answers in place of chip and boot loader.
    stand_in: Option<Box<dyn Responder>>,
    /// Answers if no image runs on a chip.
    boot_loader: BootLoader,
    /// The blocks of the SSD behind the bridge.
    disk: Option<Disk>,
    /// The chip that runs the image. It then holds the flash.
    chip: Option<Box<ChipUnit>>,
    descriptors: Descriptors,
    /// U1, U2 and LTM as in bits 2 to 4 of the device's status, if native code answers.
    power_features: u8,
    /// Whether the bulk pipes hang now, and what makes them work again.
    hangs: BulkHangs,
    stream: StreamLimit,
    faults: FaultPlan,
    presence: Presence,
    /// Time at which the scenario unplugs the unit.
    unplugged_at: Option<Instant>,
    /// The image has booted, but its firmware does not enumerate.
    is_mute: bool,
    attachments: u64,
    pub(super) requests: Option<ReplugRequests>,
}

impl VirtualUnit {
    /// Builds a powered unit around these cells. `disk` is the scenario's SSD.
    pub(super) fn assemble(scenario: Scenario, mut flash: SpiFlash, disk: Option<Disk>) -> Self {
        flash.erase_time = Duration::from_millis(scenario.timing.erase_sector_ms);
        flash.program_time = Duration::from_micros(scenario.timing.program_page_us);
        flash.set_faults(scenario.flash);
        flash.power_left = scenario.power_loss_after;
        let command_time = Duration::from_micros(scenario.timing.command_us);
        let mut unit = Self {
            stand_in: None,
            boot_loader: BootLoader::new(flash, command_time),
            descriptors: Descriptors::boot_loader(Identity::boot_loader(), scenario.speed),
            disk,
            chip: None,
            power_features: 0,
            hangs: scenario.bulk_hangs,
            stream: StreamLimit::Kept,
            faults: FaultPlan::new(&scenario.faults),
            unplugged_at: scenario.unplug_after_us.map(|us| Instant::now() + Duration::from_micros(us)),
            presence: Presence::Away { back: None },
            is_mute: false,
            attachments: 0,
            requests: None,
            scenario,
        };
        if unit.scenario.state != PowerOnState::Absent {
            let image = unit.image_to_boot();
            unit.come_up(image, unit.scenario.speed);
        }
        unit
    }

    /// Builds a powered unit on whose wire `responder` answers, in place of a chip and its boot loader.
    pub fn of_responder(responder: Box<dyn Responder>, descriptors: Descriptors) -> Self {
        let mut unit = Self::assemble(Scenario::default(), SpiFlash::erased(), None);
        unit.unplug();
        unit.stand_in = Some(responder);
        unit.descriptors = descriptors;
        unit.plug_in();
        unit
    }

    /// What answers on the wire.
    fn responder(&mut self) -> &mut dyn Responder {
        match (&mut self.stand_in, &mut self.chip) {
            (Some(stand_in), _) => &mut **stand_in,
            (None, Some(chip)) => &mut **chip,
            (None, None) => &mut self.boot_loader,
        }
    }

    /// The unit's descriptors. They change when it comes onto the bus.
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// The unit's scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The chip's work since power-on; `None` if no image runs on a chip.
    pub fn work(&mut self) -> Option<Work> {
        self.chip.as_mut().map(|unit| unit.chip.work())
    }

    /// Whether the unit is on the bus.
    pub fn is_attached(&self) -> bool {
        matches!(self.presence, Presence::Attached)
    }

    /// Whether the unit is off the bus because the firmware in its flash does not enumerate.
    pub fn is_mute(&self) -> bool {
        self.is_mute && !self.is_attached()
    }

    /// Number of times that the unit has come onto the bus. It identifies an attachment.
    pub fn attachments(&self) -> u64 {
        self.attachments
    }

    /// The selected alternate setting of interface 0.
    pub fn alternate(&mut self) -> u8 {
        self.responder().alternate()
    }

    /// Selects an alternate setting with SET_INTERFACE: 0 is Bulk-Only, 1 UAS. Drops transfers in progress. Returns
    /// whether there is such an alternate; the boot loader has only Bulk-Only.
    pub fn set_alternate(&mut self, alternate: u8) -> bool {
        self.responder().set_alternate(alternate)
    }

    /// Sends SET_CONFIGURATION with 0 or 1, which selects the first alternate and drops transfers in progress. Returns
    /// whether the unit accepts the value; a rejected value changes nothing.
    pub fn set_configuration(&mut self, value: u8) -> bool {
        self.responder().set_configuration(value)
    }

    /// Clears a halt with CLEAR_FEATURE(ENDPOINT_HALT).
    pub fn clear_halt(&mut self, endpoint: Endpoint) {
        self.responder().clear_halt(endpoint);
    }

    /// Whether native code has halted an endpoint of the selected alternate. Always `false` while firmware runs: it
    /// reports its halts through GET_STATUS.
    pub fn is_halted(&mut self, endpoint: Endpoint) -> bool {
        self.responder().is_halted(endpoint)
    }

    /// Sends Bulk-Only Mass Storage Reset. Returns `false`, a stalled control request, while UAS is selected or the
    /// unit is away.
    pub fn mass_storage_reset(&mut self) -> bool {
        self.is_attached() && self.responder().mass_storage_reset()
    }

    /// Resets the port. Drops transfers in progress and the configuration. The memories and the running code stay.
    pub fn bus_reset(&mut self) {
        self.responder().bus_reset();
        self.power_features = 0;
    }

    /// Resets the unit as a host does when it takes it over or recovers it: port reset, SET_CONFIGURATION 1,
    /// SET_INTERFACE, both halts cleared. Leaves the pipes ready in every state. Returns whether there is such an
    /// alternate; alternate 0 always exists.
    pub fn reset_by_host(&mut self, alternate: u8) -> bool {
        self.bus_reset();
        self.set_configuration(1);
        if !self.set_alternate(alternate) {
            return false;
        }
        for endpoint in [Endpoint::DataOut, Endpoint::DataIn] {
            self.clear_halt(endpoint);
        }
        true
    }

    /// Sends data from the host to 0x02 or 0x04. `stream` is 0 without streams.
    ///
    /// A transfer is one CBW (Bulk-Only) or one IU (UAS), or any piece of the command's or stream's data.
    pub fn bulk_out(&mut self, endpoint: Endpoint, stream: u16, data: &[u8]) -> Reply {
        let reply = self.bulk(|responder, faults| responder.bulk_out(endpoint, stream, data, faults));
        if self.is_attached() { reply } else { Reply::Gone }
    }

    /// Asks for up to `buffer.len()` bytes on 0x81 or 0x83. `stream` is 0 without streams.
    pub fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> Reply {
        self.bulk(|responder, _| responder.bulk_in(endpoint, stream, buffer))
    }

    fn bulk(&mut self, transfer: impl FnOnce(&mut dyn Responder, &mut FaultPlan) -> Reply) -> Reply {
        self.unplug_when_told();
        if !self.is_attached() {
            return Reply::Gone;
        }
        if self.hangs != BulkHangs::Never || self.stream == StreamLimit::Dead {
            return Reply::Silent;
        }
        let mut faults = std::mem::take(&mut self.faults);
        let reply = transfer(self.responder(), &mut faults);
        self.faults = faults;
        self.follow_responder();
        reply
    }

    /// Makes a control request to the firmware, or to native code.
    pub fn control(&mut self, setup: [u8; 8], data: &[u8]) -> ControlAnswer {
        self.unplug_when_told();
        let is_open = self.is_attached() && self.descriptors.state == BridgeState::OpenFirmware;
        if self.hangs == BulkHangs::UntilStrobes && is_open && setup::ends_dma_strobe(setup) {
            self.hangs = BulkHangs::Never;
        }
        if self.is_attached() && self.stream != StreamLimit::Kept {
            self.stream = StreamLimit::Dead;
            return ControlAnswer::Silent;
        }
        if is_open
            && let Some(limit) = self.scenario.stream_limit
            && let Some(len) = setup::stream_len(setup, data)
            && len > limit
        {
            self.stream = StreamLimit::Exceeded;
        }
        let fault = if is_open && setup::is_vendors(setup) { self.faults.strike(setup[1]) } else { None };
        match fault {
            Some(FaultKind::Stall | FaultKind::StallStatus) => ControlAnswer::Stall,
            Some(FaultKind::Timeout) => ControlAnswer::Silent,
            Some(FaultKind::Disconnect) => {
                self.vanish();
                ControlAnswer::Gone
            }
            // A control request has no tag and no phases.
            Some(FaultKind::ShortData | FaultKind::BadTag | FaultKind::PhaseError) | None => {
                let mut answer = self.control_by(setup, |chip, setup| chip.control(setup, data));
                if let (Some(FaultKind::ShortData), ControlAnswer::Done(read)) = (fault, &mut answer) {
                    read.truncate(usize::from(u16::from_le_bytes([setup[6], setup[7]])) / 2);
                }
                answer
            }
        }
    }

    /// Asks again for the answer to a control request that was [`ControlAnswer::Silent`] so far.
    pub(super) fn control_reply(&mut self, setup: [u8; 8]) -> ControlAnswer {
        self.control_by(setup, ChipUnit::control_reply)
    }

    fn control_by(
        &mut self,
        setup: [u8; 8],
        ask: impl FnOnce(&mut ChipUnit, [u8; 8]) -> Option<ControlReply>,
    ) -> ControlAnswer {
        self.unplug_when_told();
        if !self.is_attached() {
            return ControlAnswer::Gone;
        }
        if self.stream == StreamLimit::Dead {
            return ControlAnswer::Silent;
        }
        let Some(chip) = &mut self.chip else {
            return self.native_control(setup).map_or(ControlAnswer::Stall, ControlAnswer::Done);
        };
        let answer = match ask(chip, setup) {
            Some(ControlReply::Done(data)) => ControlAnswer::Done(data),
            Some(ControlReply::Stall) => ControlAnswer::Stall,
            None => ControlAnswer::Silent,
        };
        self.follow_responder();
        answer
    }

    /// The SPI flash.
    pub fn flash(&mut self) -> &SpiFlash {
        self.flash_mut()
    }

    /// The SPI flash, mutable.
    pub fn flash_mut(&mut self) -> &mut SpiFlash {
        match &mut self.chip {
            Some(unit) => unit.chip.flash_mut(),
            None => self.boot_loader.flash_mut(),
        }
    }

    /// The data buffer, mutable. PCIe devices reach it from 0x00200000 on. Empty if no chip runs.
    pub fn data_buffer_mut(&mut self) -> &mut [u8] {
        match &mut self.chip {
            Some(unit) => unit.chip.sram_mut(),
            None => &mut [],
        }
    }

    /// The firmware's work since power-on; zero if no chip runs.
    pub fn counts(&mut self) -> FirmwareCounts {
        self.chip.as_mut().map_or(FirmwareCounts::default(), |chip| chip.counts())
    }
}

/// State of the unit with regard to the scenario's limit on F0 streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamLimit {
    /// No stream was longer than the limit.
    Kept,
    /// A stream was longer. Its data still moves; the next request finds the unit dead.
    Exceeded,
    /// The unit answers nothing.
    Dead,
}

/// A unit that its transports share with the code that plugs it in and out.
#[derive(Debug, Clone)]
pub struct SharedUnit(Arc<Mutex<VirtualUnit>>);

impl SharedUnit {
    /// Shares a unit.
    pub fn new(unit: VirtualUnit) -> Self {
        Self(Arc::new(Mutex::new(unit)))
    }

    /// Locks the unit.
    pub fn lock(&self) -> MutexGuard<'_, VirtualUnit> {
        // The unit stays usable after a panic, because a panic breaks no invariant that the next command relies on.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
