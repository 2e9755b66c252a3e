//! Flash access on a unit that runs open firmware, through the registers of the chip's flash controller.
//!
//! Open firmware has no command for its flash, but reads and writes XDATA (E4, E5), where the controller is. It runs
//! from RAM, so the flash can be erased meanwhile. [`RegisterFlash`] performs and checks one flash operation at a time.
//! [`Slot`] is the contents of the flash, and determines the order in which they change. Source: openpilot's flasher,
//! which does the same.

mod error;
mod slot;
mod spi;
#[cfg(test)]
mod tests;

use std::time::Instant;

pub use error::RegisterError;
pub use slot::{Change, SECTOR_LEN, SLOT_LEN, Slot};
pub use spi::{BUDGET, RegisterFlash};

use crate::bridge::{ControlError, OpenBridge};
use crate::scsi::XdataAddress;

/// Accesses of a host to XDATA and to the buffer of bulk data.
pub trait RegisterAccess {
    /// Writes these bytes in this order, then reads from `from` on.
    ///
    /// # Errors
    /// [`ControlError`]; some bytes may have been written.
    fn exchange(&mut self, bytes: &[(u16, u8)], from: u16, into: &mut [u8]) -> Result<(), ControlError>;

    /// Writes these bytes in this order.
    ///
    /// # Errors
    /// [`ControlError`]; some bytes may have been written.
    fn write(&mut self, bytes: &[(u16, u8)]) -> Result<(), ControlError>;

    /// Sends these bytes on the bulk pipe.
    ///
    /// # Errors
    /// [`ControlError`].
    fn send(&mut self, bytes: &[u8]) -> Result<(), ControlError>;

    /// The current time, for deadlines.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

impl RegisterAccess for OpenBridge {
    fn exchange(&mut self, bytes: &[(u16, u8)], from: u16, into: &mut [u8]) -> Result<(), ControlError> {
        self.xdata_exchange(&addressed(bytes), XdataAddress::main(from), into)
    }

    fn write(&mut self, bytes: &[(u16, u8)]) -> Result<(), ControlError> {
        self.xdata_write_all(&addressed(bytes))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.bulk_out(bytes)
    }
}

fn addressed(bytes: &[(u16, u8)]) -> Vec<(XdataAddress, u8)> {
    bytes.iter().map(|(at, byte)| (XdataAddress::main(*at), *byte)).collect()
}
