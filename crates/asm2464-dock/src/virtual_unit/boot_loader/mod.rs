//! The boot loader in native code, because the chip's is in ROM, which nobody has read.

mod bulk_only;
mod exchange;
mod target;

use std::time::{Duration, Instant};

use asm2464_chip::chip::Speed;
use asm2464_host::bridge::Endpoint;

use self::bulk_only::BulkOnlyTarget;
use self::target::Target;
use super::chip_unit::Course;
use super::descriptors::Descriptors;
use super::nor::NorFlash;
use super::reply::{Halts, Reply};
use super::responder::Responder;
use super::scenario::FaultPlan;

/// How far a host has opened the bulk pipes.
///
/// Before bulk transfers work, the boot loader needs a port reset and SET_CONFIGURATION 1, and then either
/// CLEAR_FEATURE(HALT) on both pipes or SET_INTERFACE. Sources: openpilot's flasher, in use on devices, which sends both;
/// tinygrad's, which sends only SET_INTERFACE.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Silent until the port is reset, as after power-on.
    #[default]
    Shut,
    /// The port was reset; still silent until SET_CONFIGURATION 1.
    Reset,
    /// Configured.
    Open,
}

/// The boot loader. It keeps the flash while no chip has it.
#[derive(Debug)]
pub(super) struct BootLoader {
    target: Target,
    bulk_only: BulkOnlyTarget,
    gate: Gate,
    /// Pipes that are halted since the gate opened.
    to_clear: Halts,
    /// Pipes that have not had CLEAR_FEATURE(HALT) since the gate opened.
    uncleared: Halts,
    speed: Speed,
    /// bConfigurationValue.
    configuration: u8,
    is_suspended: bool,
}

impl BootLoader {
    /// Creates a boot loader without power. A status is due no sooner than `command_time` after its command.
    pub(super) fn new(flash: NorFlash, command_time: Duration) -> Self {
        Self {
            target: Target::new(flash, command_time),
            bulk_only: BulkOnlyTarget::default(),
            gate: Gate::default(),
            to_clear: Halts::default(),
            uncleared: Halts::default(),
            speed: Speed::default(),
            configuration: 0,
            is_suspended: false,
        }
    }

    /// Powers on. A process that has the unit to itself finds it enumerated; usbredir's guest resets the configuration.
    pub(super) fn power_on(&mut self, descriptors: &Descriptors) {
        self.target.power_on(&descriptors.identity);
        self.speed = descriptors.speed;
        self.shut(Gate::Shut);
        self.is_suspended = false;
        self.set_configuration(1);
    }

    /// The flash, if no chip has it.
    pub(super) fn flash_mut(&mut self) -> &mut NorFlash {
        &mut self.target.flash
    }

    /// What the last transfer has done to the unit's presence on the bus.
    pub(super) fn course(&self) -> Course {
        self.bulk_only.course
    }

    /// Drops what was in progress.
    pub(super) fn forget(&mut self) {
        self.bulk_only = BulkOnlyTarget::default();
    }

    fn shut(&mut self, gate: Gate) {
        self.gate = gate;
        self.to_clear = Halts::default();
        self.uncleared = Halts::default();
    }

    /// Whether nothing moves, in either direction.
    fn is_silent(&self) -> bool {
        self.is_suspended || self.gate != Gate::Open
    }
}

impl Responder for BootLoader {
    fn set_configuration(&mut self, value: u8) -> bool {
        let exists = value <= 1;
        if exists {
            self.configuration = value;
            self.forget();
            if value == 1 && self.gate == Gate::Reset {
                self.gate = Gate::Open;
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
            // It clears every halt of the interface, though the setting is the same (USB 3.2, 9.4.5 and 9.4.10).
            self.to_clear = Halts::default();
            self.forget();
        }
        exists
    }

    fn halt(&mut self, endpoint: Endpoint) {
        self.bulk_only.halts.set(endpoint);
    }

    fn clear_halt(&mut self, endpoint: Endpoint) {
        self.to_clear.clear(endpoint);
        if self.uncleared.clear(endpoint) && self.uncleared.is_empty() {
            // Source: openpilot's flasher, which clears one halt on the way to its first status.
            self.bulk_only.halts_next_status = true;
        }
        self.bulk_only.clear_halt(endpoint);
    }

    fn is_halted(&self, endpoint: Endpoint) -> bool {
        self.to_clear.holds(endpoint) || self.bulk_only.halts.holds(endpoint)
    }

    fn mass_storage_reset(&mut self) -> bool {
        self.bulk_only.reset();
        true
    }

    fn bus_reset(&mut self) {
        self.is_suspended = false;
        // A reset before the configuration belongs to the enumeration.
        if self.configuration != 0 {
            self.shut(Gate::Reset);
        }
        self.set_configuration(0);
    }

    fn set_suspended(&mut self, is_suspended: bool) {
        self.is_suspended = is_suspended;
    }

    fn bulk_out(&mut self, endpoint: Endpoint, _stream: u16, data: &[u8], faults: &mut FaultPlan) -> Reply {
        if self.is_silent() {
            Reply::Silent
        } else if endpoint != Endpoint::DataOut || self.to_clear.holds(endpoint) {
            Reply::Stall
        } else {
            self.bulk_only.out(&mut self.target, data, faults)
        }
    }

    fn bulk_in(&mut self, endpoint: Endpoint, _stream: u16, buffer: &mut [u8]) -> Reply {
        if self.is_silent() {
            Reply::Silent
        } else if endpoint != Endpoint::DataIn || self.to_clear.holds(endpoint) {
            Reply::Stall
        } else {
            self.bulk_only.input(&mut self.target, buffer, self.speed.bulk_packet())
        }
    }

    fn ready_at(&self) -> Option<Instant> {
        self.bulk_only.ready_at()
    }
}
