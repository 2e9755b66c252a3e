//! What answers natively, in place of firmware on the chip model:
//!
//! - the boot loader, since its code is in ROM, which nobody has read;
//! - the plain responder, where the scenario says so: a unit without firmware, which shows what a host's engine costs.
//!   Its blocks take what is written and read as zeros.

mod bulk_only;
mod exchange;
mod gate;
mod pages;
mod target;
mod uas;
mod vendor;

use std::time::{Duration, Instant};

use self::bulk_only::BulkOnlyDevice;
use self::gate::Gate;
use self::target::Target;
use self::uas::UasDevice;
use self::vendor::Vendor;
use super::descriptors::Descriptors;
use super::nor::NorFlash;
use super::reply::{After, Halts, InReply, OutReply};
use super::scenario::FaultPlan;
use crate::bridge::Endpoint;
use crate::firmware::FirmwareVersion;
use crate::scsi::Sense;

/// The native side of a unit. It keeps the flash while no chip has it.
#[derive(Debug)]
pub(super) struct NativeUnit {
    target: Target,
    bulk_only: BulkOnlyDevice,
    uas: UasDevice,
    gate: Gate,
    descriptors: Descriptors,
    /// The alternate setting that is selected: 0 is Bulk-Only, 1 UAS.
    alternate: u8,
    /// bConfigurationValue, as the host has set it.
    configuration: u8,
    /// Nothing moves on the link.
    is_suspended: bool,
}

impl NativeUnit {
    /// A unit without power.
    pub(super) fn new(flash: NorFlash, command_time: Duration, descriptors: &Descriptors) -> Self {
        let target = Target {
            vendor: Vendor::new(flash),
            identity: descriptors.identity.clone(),
            state: descriptors.state,
            command_time,
            sense: Sense::NONE,
        };
        Self {
            target,
            bulk_only: BulkOnlyDevice::default(),
            uas: UasDevice::new(descriptors.speed),
            gate: Gate::of(descriptors.state),
            descriptors: descriptors.clone(),
            alternate: 0,
            configuration: 0,
            is_suspended: false,
        }
    }

    /// It gets its power, and is enumerated, as a process that has the unit to itself finds it; usbredir's guest begins
    /// without. `version` is that of the image in whose place it answers.
    pub(super) fn power_on(&mut self, descriptors: &Descriptors, version: Option<FirmwareVersion>) {
        self.target.vendor.power_on(version);
        self.target.identity = descriptors.identity.clone();
        self.target.state = descriptors.state;
        self.target.sense = Sense::NONE;
        self.uas = UasDevice::new(descriptors.speed);
        self.gate = Gate::of(descriptors.state);
        self.descriptors = descriptors.clone();
        self.is_suspended = false;
        self.set_configuration(1);
    }

    /// The flash, where no chip has it.
    pub(super) fn flash_mut(&mut self) -> &mut NorFlash {
        &mut self.target.vendor.flash
    }

    /// When something that is silent now may change by itself.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        if self.alternate == 0 { self.bulk_only.ready_at() } else { self.uas.ready_at() }
    }

    /// Forgets what was under way.
    pub(super) fn forget(&mut self) {
        self.bulk_only = BulkOnlyDevice::default();
        self.uas.reset();
    }

    /// SET_INTERFACE. Whether there is such an alternate.
    pub(super) fn set_alternate(&mut self, alternate: u8) -> bool {
        let exists = alternate < self.descriptors.alternates();
        if exists {
            self.alternate = alternate;
            self.forget();
        }
        exists
    }

    /// SET_CONFIGURATION. Whether there is such a configuration.
    pub(super) fn set_configuration(&mut self, value: u8) -> bool {
        let exists = value <= 1;
        if exists {
            self.configuration = value;
            self.alternate = 0;
            self.forget();
            if value == 1 {
                self.gate.configured();
            }
        }
        exists
    }

    /// SET_FEATURE(ENDPOINT_HALT).
    pub(super) fn halt(&mut self, endpoint: Endpoint) {
        let halts = if self.alternate == 0 { &mut self.bulk_only.halts } else { &mut self.uas.halts };
        halts.set(endpoint);
    }

    /// CLEAR_FEATURE(ENDPOINT_HALT).
    pub(super) fn clear_halt(&mut self, endpoint: Endpoint) {
        if self.gate.clear_halt(endpoint) {
            // Source: openpilot's flasher, which clears one halt on the way to its first status.
            self.bulk_only.halt_next_status();
        }
        match self.alternate {
            0 => self.bulk_only.clear_halt(endpoint),
            _ => self.uas.halts.clear(endpoint),
        }
    }

    /// Whether an endpoint of the selected alternate is halted.
    pub(super) fn is_halted(&self, endpoint: Endpoint) -> bool {
        let halts: &Halts = if self.alternate == 0 { &self.bulk_only.halts } else { &self.uas.halts };
        self.gate.halts(endpoint) || halts.holds(endpoint)
    }

    /// Bulk-Only Mass Storage Reset. `false`, a stalled control request, while UAS is selected.
    pub(super) fn mass_storage_reset(&mut self) -> bool {
        let meant = self.alternate == 0;
        if meant {
            self.bulk_only.reset();
        }
        meant
    }

    /// The host suspends the link, or resumes it.
    pub(super) fn set_suspended(&mut self, is_suspended: bool) {
        self.is_suspended = is_suspended;
    }

    /// A reset of the port.
    pub(super) fn bus_reset(&mut self) {
        self.is_suspended = false;
        if self.configuration != 0 {
            self.gate.port_reset(self.descriptors.state);
        }
        self.set_configuration(0);
    }

    /// Data from the host, and what follows.
    pub(super) fn bulk_out(
        &mut self,
        endpoint: Endpoint,
        stream: u16,
        data: &[u8],
        faults: &mut FaultPlan,
    ) -> (OutReply, After) {
        if self.is_suspended {
            return (OutReply::Silent, After::Nothing);
        }
        if let Some(reply) = self.gate.out(endpoint) {
            return (reply, After::Nothing);
        }
        let strike = |opcode| faults.strike(opcode);
        match (self.alternate, endpoint) {
            (0, Endpoint::DataOut) => self.bulk_only.out(&mut self.target, data, strike),
            (0, _) | (_, Endpoint::DataIn | Endpoint::Status) => (OutReply::Stall, After::Nothing),
            _ => self.uas.out(&mut self.target, endpoint, stream, data, strike),
        }
    }

    /// The host asks for data; what it gets, and what follows.
    pub(super) fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> (InReply, After) {
        if self.is_suspended {
            return (InReply::Silent, After::Nothing);
        }
        if let Some(reply) = self.gate.input(endpoint) {
            return (reply, After::Nothing);
        }
        match (self.alternate, endpoint) {
            (0, Endpoint::DataIn) => {
                self.bulk_only.input(&mut self.target, buffer, self.descriptors.speed.max_packet())
            }
            (0, _) | (_, Endpoint::DataOut | Endpoint::Command) => (InReply::Stall, After::Nothing),
            _ => self.uas.input(endpoint, stream, buffer),
        }
    }
}
