//! What Bulk-Only needs from a device: two bulk pipes, and three ways to recover them.

use std::time::Duration;

use thiserror::Error;

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
    /// The endpoint is halted; [`BulkPipes::clear_halt`] frees it.
    #[error("the endpoint stalled")]
    Stall,
    /// Nothing, or not everything, within the time given.
    #[error("no answer in time ({transferred} bytes moved)")]
    Timeout {
        /// Bytes moved before.
        transferred: usize,
    },
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

/// A device's two Bulk-Only pipes.
///
/// A zero-length or short packet ends an IN transfer: the count returned is then less than asked.
pub trait BulkPipes {
    /// Sends all of `data` on 0x02; returns the bytes that the device took.
    ///
    /// # Errors
    /// [`PipeError`].
    fn write(&mut self, data: &[u8], timeout: Duration) -> Result<usize, PipeError>;

    /// Receives up to `buffer.len()` bytes on 0x81.
    ///
    /// # Errors
    /// [`PipeError`].
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<usize, PipeError>;

    /// CLEAR_FEATURE(ENDPOINT_HALT), and the data toggle or sequence number back to 0.
    ///
    /// # Errors
    /// [`PipeError`].
    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError>;

    /// The class request Bulk-Only Mass Storage Reset (0xFF), the first step of reset recovery.
    ///
    /// # Errors
    /// [`PipeError`].
    fn mass_storage_reset(&mut self, timeout: Duration) -> Result<(), PipeError>;

    /// Resets the port and configures the device as before: the last resort.
    ///
    /// # Errors
    /// [`PipeError`]; [`PipeError::Disconnected`] where the device came back as another.
    fn reset_port(&mut self) -> Result<(), PipeError>;
}
