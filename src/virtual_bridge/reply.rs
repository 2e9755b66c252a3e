//! Replies of the unit to a transfer.

use crate::bridge::Endpoint;
use crate::scsi::{Sense, SenseKey};

/// Sense of a command that a fault has cut off.
pub(super) const ABORTED: Sense = Sense::new(SenseKey::ABORTED_COMMAND, 0x00, 0x00);

/// The unit's reply to data from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutReply {
    /// The unit took this many bytes. Offer the rest again; it may get another reply.
    Accepted(usize),
    /// The endpoint is halted.
    Stall,
    /// Not now (NAK, NRDY). Offer the same transfer again after the next transfer on any endpoint, or at the time of
    /// [`VirtualBridge::wake_in`](super::VirtualBridge::wake_in).
    Silent,
    /// The unit is not on the bus.
    Gone,
}

/// The unit's reply to a host's request for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InReply {
    /// The unit put this many bytes at the start of the buffer. If there are fewer than requested, a short or empty
    /// packet ended the transfer.
    Data(usize),
    /// The unit put this many bytes there, in whole packets, and has no more for now. The transfer continues behind
    /// them.
    Part(usize),
    /// The unit sent a packet longer than the rest of the buffer. The buffer holds this many bytes; the rest of the
    /// packet is lost.
    Babble(usize),
    /// The endpoint is halted.
    Stall,
    /// Nothing yet, as for [`OutReply::Silent`].
    Silent,
    /// The unit is not on the bus.
    Gone,
}

impl InReply {
    /// Answers with one packet that ends the transfer.
    pub fn packet(buffer: &mut [u8], packet: &[u8]) -> Self {
        let count = buffer.len().min(packet.len());
        buffer[..count].copy_from_slice(&packet[..count]);
        if count == packet.len() { Self::Data(count) } else { Self::Babble(count) }
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

    pub(super) fn clear(&mut self, endpoint: Endpoint) {
        self.0.retain(|halted| *halted != endpoint);
    }

    pub(super) fn holds(&self, endpoint: Endpoint) -> bool {
        self.0.contains(&endpoint)
    }
}
