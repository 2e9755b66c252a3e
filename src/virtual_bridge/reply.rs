//! How the unit answers a transfer.

use crate::scsi::ResetMode;

/// What the unit makes of data from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutReply {
    /// It took the first so many bytes. Fewer than offered: the rest is offered again, and may meet another reply.
    Accepted(usize),
    /// The endpoint is halted.
    Stall,
    /// Not now (NAK, NRDY): the same transfer is offered again after the next transfer on any endpoint, or when
    /// [`VirtualBridge::wake_in`](super::VirtualBridge::wake_in) says.
    Silent,
    /// The unit is not there.
    Gone,
}

/// What the unit makes of a host's request for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InReply {
    /// It put so many bytes at the start of the buffer. Fewer than asked: a short or empty packet ended the transfer.
    Data(usize),
    /// It put so many bytes there, in whole packets, and has no more for now: the transfer goes on behind them.
    Part(usize),
    /// It sent a packet longer than what was left of the buffer: the buffer holds so many bytes, the rest of the packet
    /// is lost.
    Babble(usize),
    /// The endpoint is halted.
    Stall,
    /// Nothing yet, as for [`OutReply::Silent`].
    Silent,
    /// The unit is not there.
    Gone,
}

impl InReply {
    /// A packet of its own, which ends the transfer.
    pub(super) fn packet(buffer: &mut [u8], packet: &[u8]) -> Self {
        let count = buffer.len().min(packet.len());
        buffer[..count].copy_from_slice(&packet[..count]);
        if count == packet.len() { Self::Data(count) } else { Self::Babble(count) }
    }
}

/// What follows a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// E8: the unit leaves the bus.
    Leave(ResetMode),
    /// The unit leaves the bus (a fault).
    Vanish,
}
