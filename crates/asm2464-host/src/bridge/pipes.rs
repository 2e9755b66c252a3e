//! The pipes that a transport needs from a device: many transfers in flight on the bulk endpoints, and recovery. For
//! the open firmware also control requests.

use std::time::{Duration, Instant};

use thiserror::Error;

/// Returns the end of a timeout that begins now. One that is longer than the clock can tell ends in a century.
pub fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(100 * 365 * 24 * 3600))
}

/// A bulk endpoint of the bridge. Its value is bEndpointAddress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Endpoint {
    /// 0x81 IN.
    DataIn = 0x81,
    /// 0x02 OUT.
    DataOut = 0x02,
    /// 0x83 IN, UAS only.
    Status = 0x83,
    /// 0x04 OUT, UAS only.
    Command = 0x04,
}

impl Endpoint {
    /// bEndpointAddress.
    pub const fn address(self) -> u8 {
        self as u8
    }

    /// The endpoint of this address.
    pub fn from_address(address: u8) -> Option<Self> {
        let all = [Self::DataIn, Self::DataOut, Self::Status, Self::Command];
        all.into_iter().find(|endpoint| endpoint.address() == address)
    }
}

/// Reasons a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PipeError {
    /// The endpoint is halted. Clear it with [`Pipes::clear_halt`].
    #[error("the endpoint stalled")]
    Stall,
    /// The device did not answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The device sent more data than requested.
    #[error("the device sent more data than requested")]
    Overflow,
    /// The device is gone.
    #[error("the device is gone")]
    Disconnected,
    /// Any other error that the system reports.
    #[error("{0}")]
    Other(String),
}

/// Number of a transfer. A device's transfers, each with a reusable buffer, are numbered from 0 in the order in which
/// they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(pub usize);

/// Result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferEnd {
    /// The device moved all bytes, or ended the transfer with a short packet.
    Completed,
    /// The transfer was cancelled.
    Cancelled,
    /// The transfer failed.
    Failed(PipeError),
}

/// A transfer that has returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// The transfer.
    pub transfer: TransferId,
    /// Bytes moved, however the transfer ended.
    pub moved: usize,
    /// Its result.
    pub end: TransferEnd,
}

/// A device's bulk pipes. You submit transfers, and they return in any order. On one stream of one endpoint they move
/// in the order of submission.
///
/// If an endpoint halts, the transfers behind the stalled one may also return stalled, or stay in flight. Cancel all of
/// them before you clear the halt.
///
/// Buffers belong to the pipes, which may keep them in memory that the host controller reaches without a copy.
/// Submitting and reaping allocate nothing.
pub trait Pipes {
    /// Number of streams on the data and status pipes, numbered from 1; 0 if there are none (Bulk-Only, or high speed).
    fn streams(&self) -> u16;

    /// Adds a transfer with a buffer of `capacity` bytes.
    ///
    /// # Errors
    /// [`PipeError`].
    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError>;

    /// Grows an idle transfer's buffer to at least `capacity` bytes. Discards its contents.
    ///
    /// # Errors
    /// [`PipeError`].
    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError>;

    /// Buffer of a transfer; empty while it is in flight.
    fn buffer(&mut self, transfer: TransferId) -> &mut [u8];

    /// Copies these bytes to the start of a transfer's buffer.
    ///
    /// # Errors
    /// [`PipeError`] if the transfer is in flight or its buffer is too short.
    fn put(&mut self, transfer: TransferId, bytes: &[u8]) -> Result<(), PipeError> {
        let Some(place) = self.buffer(transfer).get_mut(..bytes.len()) else {
            return Err(PipeError::Other("the transfer is in flight, or its buffer too short".to_owned()));
        };
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// Sends the first `len` bytes of the transfer's buffer, or receives up to `len` bytes into it. `stream` is 0 if
    /// the pipe has no streams.
    ///
    /// # Errors
    /// [`PipeError`]; the transfer is then not in flight.
    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError>;

    /// Returns the next transfer that is back, or `None` after `timeout`.
    ///
    /// # Errors
    /// [`PipeError::Timeout`] from pipes without a real device, which know that no transfer in flight will return by
    /// itself in that time; any other error of the system.
    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError>;

    /// Returns a transfer that is already known to be back, without reading the clock or asking the system.
    fn reap_known(&mut self) -> Option<Reaped> {
        None
    }

    /// Cancels a transfer. It is reaped like any other. Has no effect on an idle transfer.
    fn cancel(&mut self, transfer: TransferId);

    /// Clears a halt with CLEAR_FEATURE(ENDPOINT_HALT), and resets the data toggle or sequence number to 0. No transfer
    /// may be in flight on the endpoint.
    ///
    /// # Errors
    /// [`PipeError`].
    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError>;

    /// Sends the class request Bulk-Only Mass Storage Reset (0xFF), the first step of Bulk-Only's reset recovery. No
    /// transfer may be in flight.
    ///
    /// # Errors
    /// [`PipeError`].
    fn mass_storage_reset(&mut self, timeout: Duration) -> Result<(), PipeError>;

    /// Whether the unit answers a control request, possibly with a stall. Sends the class reset, which UAS stalls.
    fn answers_control(&mut self) -> bool {
        const TIMEOUT: Duration = Duration::from_secs(2);
        !matches!(self.mass_storage_reset(TIMEOUT), Err(PipeError::Timeout | PipeError::Disconnected))
    }

    /// Resets the port and sets up the pipes as before: the last resort. Cancelled transfers that are still in flight
    /// return with the reset.
    ///
    /// # Errors
    /// [`PipeError`]; [`PipeError::Disconnected`] if the device came back as another.
    fn reset_port(&mut self) -> Result<(), PipeError>;
}

/// Bytes of a setup packet (USB 3.2, 9.3).
pub const SETUP_LEN: usize = 8;

/// Bulk pipes with a control endpoint, which the open firmware needs.
pub trait ControlPipes: Pipes {
    /// Sends a control request. The first [`SETUP_LEN`] bytes of the transfer's buffer are the setup packet. The data
    /// of either direction, wLength bytes, follows behind it.
    ///
    /// The transfer is reaped like any other; [`Reaped::moved`] counts only the data. A unit carries out requests in
    /// the order of submission. A stalled request does not stop the others.
    ///
    /// # Errors
    /// [`PipeError`]; the transfer is then not in flight.
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError>;
}

/// wLength of the setup packet at the start of a control transfer's buffer; `None` if the buffer is too short for that
/// much data.
pub fn control_data_len(buffer: &[u8]) -> Option<usize> {
    let setup = buffer.first_chunk::<SETUP_LEN>()?;
    let len = usize::from(u16::from_le_bytes([setup[6], setup[7]]));
    (SETUP_LEN + len <= buffer.len()).then_some(len)
}
