//! What a transport needs from a device: many transfers in flight on its bulk pipes, and the ways to recover them. And
//! for the open firmware, control requests beside them.

use std::time::Duration;

use thiserror::Error;

use crate::chip::Simulated;

/// A bulk endpoint of the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// 0x81 IN.
    DataIn,
    /// 0x02 OUT.
    DataOut,
    /// 0x83 IN, UAS only.
    Status,
    /// 0x04 OUT, UAS only.
    Command,
}

impl Endpoint {
    /// bEndpointAddress.
    pub const fn address(self) -> u8 {
        match self {
            Self::DataIn => 0x81,
            Self::DataOut => 0x02,
            Self::Status => 0x83,
            Self::Command => 0x04,
        }
    }

    /// The endpoint of this address.
    pub const fn from_address(address: u8) -> Option<Self> {
        match address {
            0x81 => Some(Self::DataIn),
            0x02 => Some(Self::DataOut),
            0x83 => Some(Self::Status),
            0x04 => Some(Self::Command),
            _ => None,
        }
    }
}

/// Why a transfer did not complete.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PipeError {
    /// The endpoint is halted; [`Pipes::clear_halt`] frees it.
    #[error("the endpoint stalled")]
    Stall,
    /// Nothing within the time given.
    #[error("no answer in time")]
    Timeout,
    /// More than was asked for.
    #[error("the device sent more than was asked for")]
    Overflow,
    /// The device is gone.
    #[error("the device is gone")]
    Disconnected,
    /// Anything else that the system reports.
    #[error("{0}")]
    Other(String),
}

/// One of a device's transfers: a buffer that is used again and again. Transfers are numbered from 0 in the order in
/// which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(pub usize);

/// How a transfer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferEnd {
    /// The device took or sent all, or ended it with a short packet.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed(PipeError),
}

/// A transfer that is back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// Which.
    pub transfer: TransferId,
    /// Bytes moved, however it ended.
    pub moved: usize,
    /// How it ended.
    pub end: TransferEnd,
}

/// A device's bulk pipes: transfers are submitted, and come back in any order. On one stream of one endpoint they move
/// in the order in which they were submitted.
///
/// Where an endpoint halts, the transfers behind the one that stalled may come back stalled, too, or stay; before the
/// halt is cleared, all of them are taken back.
///
/// Buffers belong to the pipes, which may keep them where the host controller reaches them without a copy. Submitting
/// and reaping allocate nothing.
pub trait Pipes {
    /// What the unit's chip has done since power-on, where it is a model.
    fn simulated(&self) -> Option<Simulated> {
        None
    }

    /// Streams on the data and status pipes, numbered from 1; 0 where there are none (Bulk-Only, or high speed).
    fn streams(&self) -> u16;

    /// Adds a transfer with a buffer of `capacity` bytes.
    ///
    /// # Errors
    /// [`PipeError`].
    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError>;

    /// Gives a transfer that is not in flight a buffer of at least `capacity` bytes; what was in it is lost.
    ///
    /// # Errors
    /// [`PipeError`].
    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError>;

    /// A transfer's buffer; empty while it is in flight.
    fn buffer(&mut self, transfer: TransferId) -> &mut [u8];

    /// Puts these bytes at the start of a transfer's buffer.
    ///
    /// # Errors
    /// [`PipeError`] where the transfer is still in flight, or its buffer too short.
    fn put(&mut self, transfer: TransferId, bytes: &[u8]) -> Result<(), PipeError> {
        let Some(place) = self.buffer(transfer).get_mut(..bytes.len()) else {
            return Err(PipeError::Other("the transfer is in flight, or its buffer too short".to_owned()));
        };
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// Sends the first `len` bytes of the transfer's buffer, or receives up to `len` bytes into it. `stream` is 0
    /// where the pipe has none.
    ///
    /// # Errors
    /// [`PipeError`]; the transfer is then not in flight.
    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError>;

    /// The next transfer that is back, or `None` when `timeout` has passed.
    ///
    /// # Errors
    /// [`PipeError::Timeout`] where nothing in flight will come back by itself in that time, as pipes without a real
    /// device know; any other where the system can't tell.
    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError>;

    /// A transfer that is back already, as far as can be told without the clock and without asking the system.
    fn reap_known(&mut self) -> Option<Reaped> {
        None
    }

    /// Asks for a transfer back. It is reaped like any other; one that is not in flight is left alone.
    fn cancel(&mut self, transfer: TransferId);

    /// CLEAR_FEATURE(ENDPOINT_HALT), and the data toggle or sequence number back to 0. Nothing may be in flight on the
    /// endpoint.
    ///
    /// # Errors
    /// [`PipeError`].
    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError>;

    /// The class request Bulk-Only Mass Storage Reset (0xFF), the first step of Bulk-Only's reset recovery. Nothing may
    /// be in flight.
    ///
    /// # Errors
    /// [`PipeError`].
    fn mass_storage_reset(&mut self, timeout: Duration) -> Result<(), PipeError>;

    /// Whether the unit answers a control request, be it by a stall. It is the class reset, which UAS stalls.
    fn answers_control(&mut self) -> bool {
        const TIMEOUT: Duration = Duration::from_secs(2);
        !matches!(self.mass_storage_reset(TIMEOUT), Err(PipeError::Timeout | PipeError::Disconnected))
    }

    /// Resets the port and sets the pipes up as before: the last resort. What is still in flight, though it was
    /// cancelled, comes back with the reset.
    ///
    /// # Errors
    /// [`PipeError`]; [`PipeError::Disconnected`] where the device came back as another.
    fn reset_port(&mut self) -> Result<(), PipeError>;
}

/// Bytes of a setup packet (USB 3.2, 9.3).
pub const SETUP_LEN: usize = 8;

/// Bulk pipes with the control endpoint beside them: the open firmware's way in.
pub trait ControlPipes: Pipes {
    /// Sends a control request: its setup packet is the first [`SETUP_LEN`] bytes of the transfer's buffer, and its data,
    /// as many bytes as wLength says, stand behind it, whichever way they go.
    ///
    /// The transfer is reaped like any other; [`Reaped::moved`] counts the data alone. A unit carries requests out one
    /// after the other, in the order in which they were submitted. One that it stalls stops no other.
    ///
    /// # Errors
    /// [`PipeError`]; the transfer is then not in flight.
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError>;
}

/// wLength of the setup packet at the start of a control transfer's buffer, where the buffer holds that much data behind
/// it.
pub(crate) fn control_data_len(buffer: &[u8]) -> Option<usize> {
    let setup = buffer.first_chunk::<SETUP_LEN>()?;
    let len = usize::from(u16::from_le_bytes([setup[6], setup[7]]));
    (SETUP_LEN + len <= buffer.len()).then_some(len)
}
