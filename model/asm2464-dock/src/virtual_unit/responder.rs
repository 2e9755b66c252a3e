//! What answers on a unit's wire, and its replies to a transfer.

use std::fmt::Debug;
use std::time::Instant;

use asm2464::scsi::{Sense, SenseKey};
use asm2464_host::bridge::Endpoint;

use super::scenario::FaultPlan;

/// Answers on a unit's bulk pipes: firmware on the chip model, the boot loader, or a program's own code
/// ([`VirtualUnit::of_responder`](super::VirtualUnit::of_responder)).
pub trait Responder: Debug + Send {
    /// Handles SET_CONFIGURATION with 0 or 1, which selects alternate 0 and drops transfers in progress. Returns
    /// whether the value is accepted.
    fn set_configuration(&mut self, value: u8) -> bool;

    /// The selected alternate setting of interface 0.
    fn alternate(&self) -> u8 {
        0
    }

    /// Handles SET_INTERFACE, which drops transfers in progress. Returns whether there is such an alternate.
    fn set_alternate(&mut self, alternate: u8) -> bool;

    /// Handles SET_FEATURE(ENDPOINT_HALT). Never called for firmware, which answers endpoint 0 itself.
    fn halt(&mut self, _endpoint: Endpoint) {}

    /// Handles CLEAR_FEATURE(ENDPOINT_HALT).
    fn clear_halt(&mut self, endpoint: Endpoint);

    /// Whether an endpoint of the selected alternate is halted. Always `false` for firmware, which answers GET_STATUS
    /// itself.
    fn is_halted(&self, _endpoint: Endpoint) -> bool {
        false
    }

    /// Handles Bulk-Only Mass Storage Reset. Returns `false` to stall it.
    fn mass_storage_reset(&mut self) -> bool;

    /// Handles a port reset, which drops transfers in progress and the configuration.
    fn bus_reset(&mut self);

    /// Handles data from the host. `stream` is 0 without streams. `faults` decides on each command.
    fn bulk_out(&mut self, endpoint: Endpoint, stream: u16, data: &[u8], faults: &mut FaultPlan) -> Reply;

    /// Handles the host's request for up to `buffer.len()` bytes.
    fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> Reply;

    /// Time at which something that is silent now may change by itself.
    fn ready_at(&self) -> Option<Instant>;
}

/// Sense of a command that a fault has cut off.
pub(super) const ABORTED: Sense = Sense::new(SenseKey::ABORTED_COMMAND, 0x00, 0x00);

/// The unit's reply to a transfer: to data from the host, or to its request for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The unit has taken all of the data; or put this many bytes at the start of the buffer. If there are fewer than
    /// requested, a short or empty packet ended the transfer.
    Done(usize),
    /// The unit has moved this many bytes, in whole packets, and moves no more for now. The transfer continues behind
    /// them; offering the rest may get another reply.
    Part(usize),
    /// The unit sent a packet longer than the rest of the buffer. The buffer holds this many bytes; the rest of the
    /// packet is lost.
    Babble(usize),
    /// The endpoint is halted.
    Stall,
    /// Not now (NAK, NRDY). Offer the same transfer again after the next transfer on any endpoint, or at the time of
    /// [`VirtualUnit::wake_in`](super::VirtualUnit::wake_in).
    Silent,
    /// The unit is not on the bus.
    Gone,
}

impl Reply {
    /// The reply if `count` bytes of `len` were taken from the host.
    pub const fn taken(count: usize, len: usize) -> Self {
        if count == len { Self::Done(count) } else { Self::Part(count) }
    }

    /// Copies one packet, which ends the transfer, into the buffer and returns the reply.
    pub fn packet(buffer: &mut [u8], packet: &[u8]) -> Self {
        let count = buffer.len().min(packet.len());
        buffer[..count].copy_from_slice(&packet[..count]);
        if count == packet.len() { Self::Done(count) } else { Self::Babble(count) }
    }
}

/// Endpoints that are halted.
#[derive(Debug, Default)]
pub(super) struct Halts(Vec<Endpoint>);

impl Halts {
    pub(super) fn set(&mut self, endpoint: Endpoint) {
        if !self.holds(endpoint) {
            self.0.push(endpoint);
        }
    }

    /// Clears a halt. Returns whether the endpoint was halted.
    pub(super) fn clear(&mut self, endpoint: Endpoint) -> bool {
        let was_halted = self.holds(endpoint);
        self.0.retain(|halted| *halted != endpoint);
        was_halted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn holds(&self, endpoint: Endpoint) -> bool {
        self.0.contains(&endpoint)
    }
}
