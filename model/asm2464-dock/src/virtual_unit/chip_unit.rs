//! A unit whose flashed image runs on the chip model from the reset vector. Descriptors, wrappers, information units,
//! sense and stalls come from the firmware.

use std::ops::Sub;
use std::time::{Duration, Instant};

use asm2464::firmware::{BridgeState, Image, UsbId, interface_classes};
use asm2464::scsi::bot::{CBW_LEN, CBW_SIGNATURE};
use asm2464_chip::chip::{Board, Chip, ControlReply, Fabric, PacketIn, PacketOut, RunEnd, Speed};
use asm2464_chip::mcu::CodeSpace;
use asm2464_chip::spi_flash::SpiFlash;
use asm2464_host::bridge::{Endpoint, setup};

use super::descriptors::{Descriptors, Identity};
use super::responder::{Reply, Responder};
use super::scenario::FaultPlan;
use super::setup::is_vendors;
use super::wire::{self, AttachmentWire, NEWS_AT_MOST, Wired};

/// Instructions that the firmware gets at once. Firmware that computes for longer gets the next slice on the host's
/// next access.
const SLICE: u64 = 2_000_000;
/// As [`SLICE`], for firmware that never idles: 1 ms of its time. It would spend a whole slice on each access.
const RESTLESS_SLICE: u64 = 50_000;
/// The most time that such firmware catches up at once.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Maximum number of instructions for enumeration, request by request.
const ENUMERATION: u64 = 20_000_000;
/// Delay before the next look at firmware that has used up its slice.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What the firmware has done to the unit's presence on the bus.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// The unit is on the bus.
    #[default]
    On,
    /// The firmware has reset the chip (E8 mode 0x50).
    Reset,
    /// The firmware has left the bus (E8 mode 0x51), or no longer runs: only a power cycle helps.
    Off,
    /// A fault has taken the unit off the bus.
    Vanished,
}

/// The firmware's work since power-on, or since its code was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirmwareCounts {
    /// Commands and vendor control requests that the firmware has taken.
    pub commands: u64,
    /// Instructions that the firmware has executed, without those skipped in idle loops.
    pub instructions: u64,
}

impl Sub for FirmwareCounts {
    type Output = Self;

    /// The work since an earlier count.
    fn sub(self, earlier: Self) -> Self {
        Self { commands: self.commands - earlier.commands, instructions: self.instructions - earlier.instructions }
    }
}

/// A chip on a host's wire.
pub(super) struct ChipUnit {
    pub(super) chip: Chip,
    wire: AttachmentWire,
    speed: Speed,
    /// The firmware's answers at enumeration; `None` if it gave none. Such a unit is not on the bus.
    pub(super) descriptors: Option<Descriptors>,
    alternate: u8,
    /// Addresses of the unit's endpoints.
    endpoints: Vec<u8>,
    /// Instructions that the firmware gets at once while the host does not wait for an answer.
    slice: u64,
    /// The firmware has used up its slice and has more to do.
    is_busy: bool,
    /// Time until which the flash is busy (the scenario's timing).
    flash_ready_at: Option<Instant>,
    commands: u64,
    /// When the last control request ended.
    left_at: Instant,
}

impl std::fmt::Debug for ChipUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChipUnit").field("pc", &self.chip.pc()).field("alternate", &self.alternate).finish()
    }
}

impl ChipUnit {
    /// Powers on a chip on this board with this image loaded and these devices behind it, and enumerates it. A
    /// command's status reaches the host no sooner than `command_time` after the command.
    pub(super) fn power_on(
        image: &Image,
        board: Board,
        flash: SpiFlash,
        fabric: Fabric,
        speed: Speed,
        command_time: Duration,
    ) -> Self {
        let mut chip = Chip::power_on(CodeSpace::new(image), flash, speed);
        chip.set_board(board);
        *chip.fabric_mut() = fabric;
        let mut unit = Self {
            chip,
            wire: AttachmentWire::new(command_time),
            speed,
            descriptors: None,
            alternate: 0,
            endpoints: Vec::new(),
            slice: SLICE,
            is_busy: false,
            flash_ready_at: None,
            commands: 0,
            left_at: Instant::now(),
        };
        unit.enumerate();
        unit
    }

    /// Restarts the CPU with the code, XDATA and SRAM that it has, and enumerates it again at `speed`, or at high speed
    /// if the firmware has switched SuperSpeed off.
    pub(super) fn restart(&mut self, speed: Speed) {
        let speed = if self.chip.may_train_super_speed() { speed } else { Speed::High };
        // A CPU reset keeps the link's speed.
        self.chip.bus_reset(speed);
        self.chip.reset();
        self.speed = speed;
        self.select(0);
        self.is_busy = false;
        self.enumerate();
    }

    /// The firmware's work since power-on.
    pub(super) fn counts(&mut self) -> FirmwareCounts {
        FirmwareCounts { commands: self.commands, instructions: self.chip.instructions() }
    }

    fn enumerate(&mut self) {
        // A host sees a device only after its firmware has connected.
        self.descriptors = self.chip.arrive(Chip::run).ok().and_then(|()| self.read_descriptors());
        if self.descriptors.is_some() {
            self.set_address();
            self.set_configuration(1);
        }
        self.slice = if self.chip.run(SLICE) == RunEnd::Budget { RESTLESS_SLICE } else { SLICE };
    }

    /// What the firmware has done to the unit's presence on the bus.
    pub(super) fn course(&mut self) -> Course {
        if self.wire.has_vanished {
            return Course::Vanished;
        }
        // Pending work comes first: firmware sends a reset's status some time before it resets the chip.
        for _ in 0..NEWS_AT_MOST {
            if !self.run() {
                break;
            }
        }
        match self.chip.run(0) {
            RunEnd::Reset => Course::Reset,
            RunEnd::Halted | RunEnd::FlashGone => Course::Off,
            RunEnd::Parked | RunEnd::Attention | RunEnd::Budget if self.chip.is_on_bus() => Course::On,
            RunEnd::Parked | RunEnd::Attention | RunEnd::Budget => Course::Off,
        }
    }

    /// Makes a control request; `None` if the firmware does not answer.
    pub(super) fn control(&mut self, setup: [u8; 8], data: &[u8]) -> Option<ControlReply> {
        self.commands += u64::from(is_vendors(setup));
        self.catch_up();
        self.chip.begin_control(setup, data);
        let reply = self.control_reply(setup);
        self.left_at = Instant::now();
        reply
    }

    /// Lets firmware that never idles work for as long as the host has left it alone: a link that it trains comes up
    /// while the host waits.
    fn catch_up(&mut self) {
        if self.slice == RESTLESS_SLICE {
            let left_alone = self.left_at.elapsed().min(CATCH_UP).as_millis() as u64;
            self.chip.run(left_alone * RESTLESS_SLICE);
        }
    }

    /// Asks again for the answer to a control request; `None` while there is none.
    pub(super) fn control_reply(&mut self, setup: [u8; 8]) -> Option<ControlReply> {
        const GET_ENDPOINT_STATUS: [u8; 2] = [0x82, 0];
        let mut reply = self.wait_for(Chip::take_control_reply);
        if let Some(ControlReply::Done(data)) = &mut reply {
            self.note(setup);
            if let ([kind, request, _, _, address, ..], Some(status)) = (setup, data.first_mut())
                && [kind, request] == GET_ENDPOINT_STATUS
                && Endpoint::from_address(address).is_some_and(|endpoint| self.wire.halts.holds(endpoint))
            {
                *status |= 1;
            }
        }
        reply
    }

    /// Follows a successful request on the host's side of the wire.
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
                    self.wire.halts.clear(endpoint);
                }
            }
            MASS_STORAGE_RESET => self.wire.mass_storage_reset(),
            _ => {}
        }
    }

    /// Selects an alternate setting, possibly the current one again.
    fn select(&mut self, alternate: u8) {
        self.alternate = alternate;
        let setting = self.descriptors.as_ref().and_then(|descriptors| descriptors.setting(alternate));
        self.wire.start_over(setting.as_ref().map(|setting| setting.class));
        self.endpoints = setting.iter().flat_map(|setting| &setting.pipes).map(|pipe| pipe.address).collect();
    }

    /// Sends SET_ADDRESS, as a host controller does without a request from a program.
    fn set_address(&mut self) {
        self.control(setup::set_address(1), &[]);
    }

    fn accepts(&mut self, setup: [u8; 8]) -> bool {
        matches!(self.control(setup, &[]), Some(ControlReply::Done(_)))
    }

    /// The answer of an endpoint that can't move data now; `None` if it can.
    fn obstacle(&mut self, endpoint: Endpoint) -> Option<Reply> {
        if !self.endpoints.contains(&endpoint.address()) {
            return Some(Reply::Stall);
        }
        if self.is_ready() { None } else { Some(Reply::Silent) }
    }

    fn is_ready(&mut self) -> bool {
        self.flash_ready_at = self.flash_ready_at.filter(|at| *at > Instant::now());
        self.flash_ready_at.is_none()
    }

    /// Runs until `look` returns a value; `None` if nothing more can happen.
    fn wait_for<T>(&mut self, look: impl Fn(&mut Chip) -> Option<T>) -> Option<T> {
        let ends = self.chip.instructions().saturating_add(ENUMERATION);
        loop {
            let outcome = self.chip.run(SLICE);
            if let Some(found) = look(&mut self.chip) {
                return Some(found);
            }
            match outcome {
                // Firmware may raise the chip's attention for ever.
                RunEnd::Attention | RunEnd::Budget if self.chip.instructions() < ends => {}
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

    /// Reads the descriptors as a host does with a new device. The firmware's answers may be anything.
    fn read_descriptors(&mut self) -> Option<Descriptors> {
        let device: [u8; 18] = self.descriptor(1, 0, 18)?.try_into().ok()?;
        let bos = self.descriptor(15, 0, 255).unwrap_or_default();
        let configuration = self.descriptor(2, 0, 255)?;
        let mut text = |index: u8| {
            let bytes = if index == 0 { None } else { self.descriptor(3, index, 255) };
            let bytes = bytes.unwrap_or_default();
            let (units, _) = bytes.get(2..).unwrap_or_default().as_chunks();
            let units: Vec<u16> = units.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
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

impl Wired for ChipUnit {
    fn packet_len(&self) -> usize {
        self.speed.bulk_packet()
    }

    fn packet_out(
        &mut self,
        endpoint: Endpoint,
        stream: u16,
        packet: &[u8],
        is_first: bool,
        faults: &mut FaultPlan,
    ) -> PacketOut {
        let reply = self.wire.bulk_out(&mut self.chip, endpoint, stream, packet, faults);
        let is_cbw = is_first && packet.len() == CBW_LEN && packet.starts_with(&CBW_SIGNATURE);
        let is_command = endpoint == Endpoint::Command || is_cbw;
        self.commands += u64::from(reply == PacketOut::Accepted && is_command);
        reply
    }

    fn packet_in(&mut self, endpoint: Endpoint, stream: u16) -> PacketIn {
        self.wire.bulk_in(&mut self.chip, endpoint, stream)
    }

    fn run(&mut self) -> bool {
        if !self.is_ready() {
            return false;
        }
        let outcome = self.chip.run(self.slice);
        self.is_busy = outcome == RunEnd::Budget;
        let takes = self.chip.flash_mut().take_busy(Instant::now());
        if !takes.is_zero() {
            self.flash_ready_at = Some(Instant::now() + takes);
            return false;
        }
        outcome == RunEnd::Attention
    }
}

impl Responder for ChipUnit {
    fn set_configuration(&mut self, value: u8) -> bool {
        self.accepts(setup::set_configuration(value))
    }

    fn alternate(&self) -> u8 {
        self.alternate
    }

    fn set_alternate(&mut self, alternate: u8) -> bool {
        self.accepts(setup::set_interface(0, alternate))
    }

    fn clear_halt(&mut self, endpoint: Endpoint) {
        self.control(setup::clear_halt(endpoint), &[]);
    }

    fn mass_storage_reset(&mut self) -> bool {
        self.accepts(setup::MASS_STORAGE_RESET)
    }

    /// Resets the port, and sets the address as a host does afterwards.
    fn bus_reset(&mut self) {
        self.chip.bus_reset(self.speed);
        self.select(0);
        self.run();
        self.set_address();
    }

    fn bulk_out(&mut self, endpoint: Endpoint, stream: u16, data: &[u8], faults: &mut FaultPlan) -> Reply {
        if let Some(reply) = self.obstacle(endpoint) {
            return reply;
        }
        wire::transfer_out(self, endpoint, stream, data, faults)
    }

    fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> Reply {
        if let Some(reply) = self.obstacle(endpoint) {
            return reply;
        }
        wire::transfer_in(self, endpoint, stream, buffer)
    }

    fn ready_at(&self) -> Option<Instant> {
        let soon = if self.is_busy { Some(Instant::now() + LOOK_AGAIN) } else { None };
        match (self.flash_ready_at.or(soon), self.wire.ready_at()) {
            (Some(chip), Some(wire)) => Some(chip.min(wire)),
            (chip, wire) => chip.or(wire),
        }
    }
}
