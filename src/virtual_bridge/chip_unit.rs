//! A unit whose firmware does everything itself: the flashed image runs on the chip model from the reset vector, and
//! descriptors, wrappers, information units, sense and stalls are its own.

use std::time::{Duration, Instant};

use super::descriptors::{Descriptors, Identity, LinkSpeed};
use super::nor::NorFlash;
use super::reply::{InReply, OutReply};
use super::scenario::FaultPlan;
use super::wire::{Protocol, Wire};
use crate::bridge::Endpoint;
use crate::chip::{Chip, ControlReply, Fabric, InReply as PacketIn, OutReply as PacketOut, Outcome, Speed, Work};
use crate::firmware::{BridgeState, Image, UsbId, interface_classes};
use crate::mcu::CodeSpace;
use crate::scsi::bot::CBW_LEN;

/// Instructions that the firmware gets in one go. One that computes for longer gets the next slice when the host looks
/// again.
const SLICE: u64 = 2_000_000;
/// Instructions that enumeration may take, request by request.
const ENUMERATION: u64 = 20_000_000;
/// How often firmware may have news for the host before the host is asked to fetch it.
const NEWS_AT_MOST: usize = 64;
/// How soon to look again at firmware that has used its slice up.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What the firmware has done to the unit's attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// It is on the bus.
    On,
    /// It has reset the chip (E8 mode 0x50).
    Reset,
    /// It has left the bus (E8 mode 0x51), or runs no more: only the power helps.
    Off,
    /// A fault has taken the unit off the bus.
    Vanished,
}

/// What firmware has done since its unit came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Commands and vendor control requests that it has taken.
    pub commands: u64,
    /// Instructions that it has executed. What it idled away is not counted.
    pub instructions: u64,
}

/// A chip on a host's wire.
pub(super) struct ChipUnit {
    chip: Chip<NorFlash>,
    wire: Wire,
    speed: LinkSpeed,
    /// What its firmware answered at enumeration; `None` where it did not.
    descriptors: Option<Descriptors>,
    alternate: u8,
    /// The addresses of the endpoints that it has.
    endpoints: Vec<u8>,
    /// The firmware used its slice up and has more to do.
    is_busy: bool,
    /// Its flash is busy until then (the scenario's timing).
    flash_ready_at: Option<Instant>,
    commands: u64,
}

impl std::fmt::Debug for ChipUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChipUnit").field("pc", &self.chip.pc()).field("alternate", &self.alternate).finish()
    }
}

impl ChipUnit {
    /// A chip that gets its power with this image loaded and this behind it, and is enumerated. A command's status reaches the host no
    /// sooner than `command_time` after it.
    pub(super) fn power_on(
        image: &Image,
        flash: NorFlash,
        fabric: Fabric,
        speed: LinkSpeed,
        command_time: Duration,
    ) -> Self {
        let mut chip = Chip::power_on(CodeSpace::new(image), flash, link(speed));
        *chip.fabric_mut() = fabric;
        let mut unit = Self {
            chip,
            wire: Wire::new(command_time),
            speed,
            descriptors: None,
            alternate: 0,
            endpoints: Vec::new(),
            is_busy: false,
            flash_ready_at: None,
            commands: 0,
        };
        unit.enumerate();
        unit
    }

    /// The power goes: the flash is left.
    pub(super) fn power_off(self) -> NorFlash {
        self.chip.power_off()
    }

    /// What its firmware has done.
    pub(super) fn counts(&mut self) -> Counts {
        Counts { commands: self.commands, instructions: self.chip.instructions() }
    }

    fn enumerate(&mut self) {
        // The start-up code first: a host finds a device only when its firmware has connected.
        let _ = self.wait_for(|_| None::<()>);
        self.descriptors = self.read_descriptors();
        if self.descriptors.is_some() {
            self.set_address();
            self.set_configuration(1);
        }
    }

    /// What the firmware enumerates with; `None` where it does not enumerate: such a unit is not on the bus.
    pub(super) fn descriptors(&self) -> Option<&Descriptors> {
        self.descriptors.as_ref()
    }

    /// The alternate setting that the host has selected.
    pub(super) fn alternate(&self) -> u8 {
        self.alternate
    }

    /// The flash.
    pub(super) fn flash_mut(&mut self) -> &mut NorFlash {
        self.chip.flash_mut()
    }

    /// The data buffer.
    pub(super) fn data_buffer_mut(&mut self) -> &mut [u8] {
        self.chip.sram_mut()
    }

    /// What the chip has done since power-on.
    pub(super) fn work(&mut self) -> Work {
        self.chip.work()
    }

    /// Where the firmware has taken the unit.
    pub(super) fn course(&mut self) -> Course {
        if self.wire.has_vanished() {
            return Course::Vanished;
        }
        // What has become possible by itself is done first: a reset comes some time after its status.
        for _ in 0..NEWS_AT_MOST {
            if !self.run() {
                break;
            }
        }
        match self.chip.run(0) {
            Outcome::Reset => Course::Reset,
            Outcome::Halted | Outcome::FlashGone => Course::Off,
            Outcome::Parked | Outcome::Attention | Outcome::Budget if self.chip.is_on_bus() => Course::On,
            Outcome::Parked | Outcome::Attention | Outcome::Budget => Course::Off,
        }
    }

    /// When something that is silent now may change by itself.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        let soon = self.is_busy.then(|| Instant::now() + LOOK_AGAIN);
        self.flash_ready_at.or(soon).into_iter().chain(self.wire.ready_at()).min()
    }

    /// A control request; `None` where the firmware does not answer.
    pub(super) fn control(&mut self, setup: [u8; 8], data: &[u8]) -> Option<ControlReply> {
        const TYPE: u8 = 0x60;
        const VENDOR: u8 = 0x40;
        self.commands += u64::from(setup[0] & TYPE == VENDOR);
        self.chip.begin_control(setup, data);
        self.control_reply(setup)
    }

    /// The answer to a control request that had none so far; `None` while the firmware does not give one.
    pub(super) fn control_reply(&mut self, setup: [u8; 8]) -> Option<ControlReply> {
        const GET_ENDPOINT_STATUS: [u8; 2] = [0x82, 0];
        let mut reply = self.wait_for(Chip::take_control_reply);
        if let Some(ControlReply::Done(data)) = &mut reply {
            self.note(setup);
            if let ([kind, request, _, _, address, ..], Some(status)) = (setup, data.first_mut())
                && [kind, request] == GET_ENDPOINT_STATUS
                && Endpoint::from_address(address).is_some_and(|endpoint| self.wire.is_halted(endpoint))
            {
                *status |= 1;
            }
        }
        reply
    }

    /// Keeps what the host's side has to know of a request that went through.
    fn note(&mut self, setup: [u8; 8]) {
        const SET_CONFIGURATION: [u8; 2] = [0x00, 9];
        const SET_INTERFACE: [u8; 2] = [0x01, 11];
        const CLEAR_ENDPOINT_FEATURE: [u8; 2] = [0x02, 1];
        const MASS_STORAGE_RESET: [u8; 2] = [0x21, 0xFF];
        match [setup[0], setup[1]] {
            SET_CONFIGURATION => self.select(0),
            SET_INTERFACE => self.select(setup[2]),
            CLEAR_ENDPOINT_FEATURE => {
                if let Some(endpoint) = Endpoint::from_address(setup[4]) {
                    self.wire.clear_halt(endpoint);
                }
            }
            MASS_STORAGE_RESET => self.wire.mass_storage_reset(),
            _ => {}
        }
    }

    /// Another alternate setting is selected, or the same one anew.
    fn select(&mut self, alternate: u8) {
        self.alternate = alternate;
        let setting = self.descriptors.as_ref().and_then(|told| told.setting(alternate));
        self.wire.start_over(setting.as_ref().map_or(Protocol::Other, |setting| Protocol::of(setting.class)));
        self.endpoints = setting.iter().flat_map(|setting| &setting.pipes).map(|pipe| pipe.address).collect();
    }

    /// A reset of the port, and the address that a host gives after it.
    pub(super) fn bus_reset(&mut self) {
        self.chip.bus_reset(link(self.speed));
        self.select(0);
        self.run();
        self.set_address();
    }

    /// The host suspends the link, and the firmware works on that.
    pub(super) fn suspend(&mut self) {
        self.chip.suspend();
        self.run();
    }

    /// The host resumes the link.
    pub(super) fn resume(&mut self) {
        self.chip.resume();
        self.run();
    }

    /// SET_ADDRESS: a host controller's business, which no other program sees.
    fn set_address(&mut self) {
        const ADDRESS: u8 = 1;
        self.control([0x00, 5, ADDRESS, 0, 0, 0, 0, 0], &[]);
    }

    /// SET_CONFIGURATION. Whether the firmware takes it.
    pub(super) fn set_configuration(&mut self, value: u8) -> bool {
        matches!(self.control([0x00, 9, value, 0, 0, 0, 0, 0], &[]), Some(ControlReply::Done(_)))
    }

    /// SET_INTERFACE. Whether the firmware takes it.
    pub(super) fn set_alternate(&mut self, alternate: u8) -> bool {
        matches!(self.control([0x01, 11, alternate, 0, 0, 0, 0, 0], &[]), Some(ControlReply::Done(_)))
    }

    /// CLEAR_FEATURE(ENDPOINT_HALT).
    pub(super) fn clear_halt(&mut self, endpoint: Endpoint) {
        self.control([0x02, 1, 0, 0, endpoint.address(), 0, 0, 0], &[]);
    }

    /// Bulk-Only Mass Storage Reset. Whether the firmware takes it.
    pub(super) fn mass_storage_reset(&mut self) -> bool {
        matches!(self.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]), Some(ControlReply::Done(_)))
    }

    /// Data from the host.
    pub(super) fn bulk_out(
        &mut self,
        endpoint: Endpoint,
        stream: u16,
        data: &[u8],
        faults: &mut FaultPlan,
    ) -> OutReply {
        if !self.endpoints.contains(&endpoint.address()) {
            return OutReply::Stall;
        }
        if !self.is_ready() {
            return OutReply::Silent;
        }
        let most = usize::from(self.speed.max_packet());
        let (mut moved, mut news) = (0, 0..NEWS_AT_MOST);
        loop {
            let packet = &data[moved..data.len().min(moved + most)];
            match self.wire.bulk_out(&mut self.chip, endpoint, stream, packet, faults) {
                PacketOut::Accepted => {
                    let is_cbw = moved == 0 && packet.len() == CBW_LEN && packet.starts_with(b"USBC");
                    self.commands += u64::from(endpoint == Endpoint::Command || is_cbw);
                    moved += packet.len();
                    news = 0..NEWS_AT_MOST;
                    if moved == data.len() {
                        return OutReply::Accepted(moved);
                    }
                }
                PacketOut::Stall if moved == 0 => return OutReply::Stall,
                // The rest is offered again, and meets the halt then.
                PacketOut::Stall => return OutReply::Accepted(moved),
                // Firmware that goes on having news, and does not take this, is the host's to see.
                PacketOut::Nak if news.next().is_some() && self.run() => {}
                PacketOut::Nak if moved == 0 => return OutReply::Silent,
                PacketOut::Nak => return OutReply::Accepted(moved),
            }
        }
    }

    /// The host asks for up to `buffer.len()` bytes.
    pub(super) fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> InReply {
        if !self.endpoints.contains(&endpoint.address()) {
            return InReply::Stall;
        }
        if !self.is_ready() {
            return InReply::Silent;
        }
        let most = usize::from(self.speed.max_packet());
        let (mut moved, mut news) = (0, 0..NEWS_AT_MOST);
        loop {
            match self.wire.bulk_in(&mut self.chip, endpoint, stream) {
                PacketIn::Packet(packet) => {
                    let Some(place) = buffer.get_mut(moved..moved + packet.len()) else {
                        let count = buffer.len() - moved;
                        buffer[moved..].copy_from_slice(&packet[..count]);
                        return InReply::Babble(buffer.len());
                    };
                    place.copy_from_slice(&packet);
                    moved += packet.len();
                    news = 0..NEWS_AT_MOST;
                    if packet.len() < most || moved == buffer.len() {
                        return InReply::Data(moved);
                    }
                }
                PacketIn::Stall if moved == 0 => return InReply::Stall,
                PacketIn::Nak if news.next().is_some() && self.run() => {}
                PacketIn::Nak if moved == 0 => return InReply::Silent,
                PacketIn::Stall | PacketIn::Nak => return InReply::Part(moved),
            }
        }
    }

    /// Lets the firmware work; `true` where there may be news for the host.
    fn run(&mut self) -> bool {
        if !self.is_ready() {
            return false;
        }
        let outcome = self.chip.run(SLICE);
        self.is_busy = outcome == Outcome::Budget;
        let takes = self.chip.flash_mut().take_busy(Instant::now());
        if !takes.is_zero() {
            self.flash_ready_at = Some(Instant::now() + takes);
            return false;
        }
        outcome == Outcome::Attention
    }

    fn is_ready(&mut self) -> bool {
        self.flash_ready_at = self.flash_ready_at.filter(|at| *at > Instant::now());
        self.flash_ready_at.is_none()
    }

    /// Runs until `look` finds what it looks for; `None` where nothing more can happen.
    fn wait_for<T>(&mut self, look: impl Fn(&mut Chip<NorFlash>) -> Option<T>) -> Option<T> {
        let ends = self.chip.instructions().saturating_add(ENUMERATION);
        loop {
            let outcome = self.chip.run(SLICE);
            if let Some(found) = look(&mut self.chip) {
                return Some(found);
            }
            match outcome {
                Outcome::Attention => {}
                Outcome::Budget if self.chip.instructions() < ends => {}
                _ => return None,
            }
        }
    }

    fn descriptor(&mut self, kind: u8, index: u8, len: u16) -> Option<Vec<u8>> {
        let [low, high] = len.to_le_bytes();
        let [language_low, language_high] = if kind == 3 && index != 0 { [0x09, 0x04] } else { [0, 0] };
        match self.control([0x80, 6, index, kind, language_low, language_high, low, high], &[])? {
            ControlReply::Done(data) => Some(data),
            ControlReply::Stall => None,
        }
    }

    /// Asks as a host does that meets the unit. What the firmware answers may be anything.
    fn read_descriptors(&mut self) -> Option<Descriptors> {
        let device: [u8; 18] = self.descriptor(1, 0, 18)?.try_into().ok()?;
        let bos = self.descriptor(15, 0, 255).unwrap_or_default();
        let configuration = self.descriptor(2, 0, 255)?;
        let mut text = |index: u8| {
            let bytes = if index == 0 { None } else { self.descriptor(3, index, 255) };
            let units = bytes.unwrap_or_default();
            let units: Vec<u16> = units
                .get(2..)
                .unwrap_or_default()
                .chunks_exact(2)
                .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
                .collect();
            String::from_utf16_lossy(&units)
        };
        let identity = Identity {
            id: UsbId {
                vendor: u16::from_le_bytes([device[8], device[9]]),
                product: u16::from_le_bytes([device[10], device[11]]),
            },
            release: u16::from_le_bytes([device[12], device[13]]),
            manufacturer: text(device[14]),
            product: text(device[15]),
            serial: text(device[16]),
            t10_vendor: String::new(),
            t10_product: String::new(),
        };
        let state = BridgeState::from_interface(&interface_classes(&configuration), &identity.product);
        Some(Descriptors { identity, state, speed: self.speed, device, configuration, bos })
    }
}

fn link(speed: LinkSpeed) -> Speed {
    match speed {
        LinkSpeed::High => Speed::High,
        LinkSpeed::Super => Speed::Super,
    }
}
