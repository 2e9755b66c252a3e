//! What UAS needs from a device: many transfers in flight on four pipes, three of them with streams.

use std::time::Duration;

use super::pipes::{Endpoint, PipeError};

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

/// A device's UAS pipes: transfers are submitted, and come back in any order.
///
/// Buffers belong to the pipes, which may keep them where the host controller reaches them without a copy. Submitting
/// and reaping allocate nothing.
pub trait StreamPipes {
    /// Streams on the data and status pipes, numbered from 1; 0 where there are none (high speed).
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

    /// Sends the first `len` bytes of the transfer's buffer, or receives up to `len` bytes into it. `stream` is 0
    /// where the pipe has none.
    ///
    /// # Errors
    /// [`PipeError`]; the transfer is then not in flight.
    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError>;

    /// The next transfer that is back, or `None` when `timeout` has passed.
    ///
    /// # Errors
    /// [`PipeError::Timeout`] where nothing in flight will ever come back by itself, as pipes without a real device
    /// know; any other where the system can't tell.
    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError>;

    /// Asks for a transfer back. It is reaped like any other; one that is not in flight is left alone.
    fn cancel(&mut self, transfer: TransferId);

    /// CLEAR_FEATURE(ENDPOINT_HALT).
    ///
    /// # Errors
    /// [`PipeError`].
    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError>;

    /// Resets the port and sets the pipes up as before. Nothing may be in flight.
    ///
    /// # Errors
    /// [`PipeError`].
    fn reset_port(&mut self) -> Result<(), PipeError>;
}
