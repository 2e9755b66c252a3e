//! The boot loader in native code: the chip's own is in its ROM, whose contents are not known.

mod bulk_only;
mod commands;

use std::time::{Duration, Instant};

use asm2464::firmware::BULK_ONLY_CLASS;
use asm2464_chip::chip::{PacketIn, PacketOut, Speed};
use asm2464_chip::spi_flash::SpiFlash;
use asm2464_host::bridge::Endpoint;
use commands::Target;

use self::bulk_only::BulkOnlyTarget;
use super::chip_unit::Course;
use super::descriptors::Descriptors;
use super::responder::{Halts, Reply, Responder};
use super::scenario::FaultPlan;
use super::wire::{self, AttachmentWire, PacketTarget, Wired};

/// How far a host has opened the bulk pipes.
///
/// Before bulk transfers work, the boot loader needs a port reset and SET_CONFIGURATION 1, and then either
/// CLEAR_FEATURE(HALT) on both pipes or SET_INTERFACE. Sources: openpilot's flasher, in use on devices, sends both;
/// tinygrad's sends only SET_INTERFACE.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PipeGate {
    /// Silent until the port is reset, as after power-on.
    #[default]
    Shut,
    /// The port was reset; still silent until SET_CONFIGURATION 1.
    Reset,
    /// Configured.
    Open,
}

/// The boot loader. It holds the flash while no chip runs.
#[derive(Debug)]
pub(super) struct BootLoader {
    pipes: BootPipes,
    wire: AttachmentWire,
    gate: PipeGate,
    /// Pipes that have been halted since the gate opened.
    to_clear: Halts,
    /// Pipes that have not had CLEAR_FEATURE(HALT) since the gate opened.
    uncleared: Halts,
    /// bConfigurationValue.
    configuration: u8,
}

impl BootLoader {
    /// Creates a boot loader without power. A status is due no sooner than `command_time` after its command.
    pub(super) fn new(flash: SpiFlash, command_time: Duration) -> Self {
        Self {
            pipes: BootPipes {
                target: Target::new(flash),
                bulk_only: BulkOnlyTarget::default(),
                speed: Speed::default(),
            },
            wire: AttachmentWire::new(command_time),
            gate: PipeGate::default(),
            to_clear: Halts::default(),
            uncleared: Halts::default(),
            configuration: 0,
        }
    }

    /// Powers on. A process that has the unit to itself finds it enumerated; usbredir's guest resets the configuration.
    pub(super) fn power_on(&mut self, descriptors: &Descriptors) {
        self.pipes.target.power_on(&descriptors.identity);
        self.pipes.speed = descriptors.speed;
        self.shut(PipeGate::Shut);
        self.set_configuration(1);
    }

    /// The flash; empty while a chip holds it.
    pub(super) fn flash_mut(&mut self) -> &mut SpiFlash {
        &mut self.pipes.target.flash
    }

    /// What the last transfer has done to the unit's presence on the bus.
    pub(super) fn course(&self) -> Course {
        if self.wire.has_vanished { Course::Vanished } else { self.pipes.bulk_only.course }
    }

    /// Drops what was in progress.
    pub(super) fn forget(&mut self) {
        self.pipes.bulk_only = BulkOnlyTarget::default();
        self.wire.start_over(Some(BULK_ONLY_CLASS));
    }

    fn shut(&mut self, gate: PipeGate) {
        self.gate = gate;
        self.to_clear = Halts::default();
        self.uncleared = Halts::default();
    }

    /// The answer of a pipe that can't move data now; `None` if it can. `used` is the only pipe of its direction.
    fn obstacle(&self, endpoint: Endpoint, used: Endpoint) -> Option<Reply> {
        if self.gate != PipeGate::Open {
            return Some(Reply::Silent);
        }
        if endpoint != used || self.to_clear.holds(endpoint) { Some(Reply::Stall) } else { None }
    }
}

/// The boot loader without its gate, as the wire sees it.
#[derive(Debug)]
struct BootPipes {
    target: Target,
    bulk_only: BulkOnlyTarget,
    speed: Speed,
}

impl PacketTarget for BootPipes {
    fn speed(&mut self) -> Speed {
        self.speed
    }

    fn bulk_out(&mut self, _endpoint: u8, _stream: u16, packet: &[u8]) -> PacketOut {
        self.bulk_only.out(&mut self.target, packet)
    }

    fn bulk_in(&mut self, _endpoint: u8, _stream: u16) -> PacketIn {
        self.bulk_only.input(&mut self.target, self.speed.bulk_packet())
    }
}

impl Wired for BootLoader {
    fn packet_len(&self) -> usize {
        self.pipes.speed.bulk_packet()
    }

    fn packet_out(
        &mut self,
        endpoint: Endpoint,
        stream: u16,
        packet: &[u8],
        _is_first: bool,
        faults: &mut FaultPlan,
    ) -> PacketOut {
        self.wire.bulk_out(&mut self.pipes, endpoint, stream, packet, faults)
    }

    fn packet_in(&mut self, endpoint: Endpoint, stream: u16) -> PacketIn {
        self.wire.bulk_in(&mut self.pipes, endpoint, stream)
    }
}

impl Responder for BootLoader {
    fn set_configuration(&mut self, value: u8) -> bool {
        let exists = value <= 1;
        if exists {
            self.configuration = value;
            self.forget();
            if value == 1 && self.gate == PipeGate::Reset {
                self.gate = PipeGate::Open;
                for endpoint in [Endpoint::DataIn, Endpoint::DataOut] {
                    self.to_clear.set(endpoint);
                    self.uncleared.set(endpoint);
                }
            }
        }
        exists
    }

    fn set_alternate(&mut self, alternate: u8) -> bool {
        let exists = alternate == 0;
        if exists {
            // This clears every halt of the interface, even if the setting stays the same (USB 3.2, 9.4.5 and 9.4.10).
            self.to_clear = Halts::default();
            self.forget();
        }
        exists
    }

    fn halt(&mut self, endpoint: Endpoint) {
        self.pipes.bulk_only.halts.set(endpoint);
    }

    fn clear_halt(&mut self, endpoint: Endpoint) {
        self.to_clear.clear(endpoint);
        if self.uncleared.clear(endpoint) && self.uncleared.is_empty() {
            // Source: openpilot's flasher, which clears one halt on the way to its first status.
            self.pipes.bulk_only.halts_next_status = true;
        }
        self.pipes.bulk_only.clear_halt(endpoint);
        self.wire.halts.clear(endpoint);
    }

    fn is_halted(&self, endpoint: Endpoint) -> bool {
        [&self.to_clear, &self.pipes.bulk_only.halts, &self.wire.halts].iter().any(|halts| halts.holds(endpoint))
    }

    fn mass_storage_reset(&mut self) -> bool {
        self.pipes.bulk_only.reset();
        self.wire.mass_storage_reset();
        true
    }

    fn bus_reset(&mut self) {
        // A reset before the configuration belongs to the enumeration.
        if self.configuration != 0 {
            self.shut(PipeGate::Reset);
        }
        self.set_configuration(0);
    }

    fn bulk_out(&mut self, endpoint: Endpoint, stream: u16, data: &[u8], faults: &mut FaultPlan) -> Reply {
        match self.obstacle(endpoint, Endpoint::DataOut) {
            Some(reply) => reply,
            None => wire::transfer_out(self, endpoint, stream, data, faults),
        }
    }

    fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> Reply {
        match self.obstacle(endpoint, Endpoint::DataIn) {
            Some(reply) => reply,
            None => wire::transfer_in(self, endpoint, stream, buffer),
        }
    }

    fn ready_at(&self) -> Option<Instant> {
        self.pipes.bulk_only.ready_at().into_iter().chain(self.wire.ready_at()).min()
    }
}
