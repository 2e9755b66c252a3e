//! Flash access on a unit that runs open firmware, through the registers of the chip's flash controller.
//!
//! Open firmware has no command for its flash, but reads and writes XDATA (E4, E5), where the controller is. It runs
//! from RAM, so the flash can be erased meanwhile. [`RegisterFlash`] performs and checks one flash operation at a time.
//! [`Slot`] is the contents of the flash, and determines the order in which they change. Source: openpilot's flasher,
//! which does the same.

mod slot;
mod spi;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use asm2464::firmware::FlashAddress;
use asm2464::scsi::XdataAddress;
use asm2464_host::bridge::{ControlError, OpenBridge, Speed};
use thiserror::Error;

pub use slot::{Change, PAGE_LEN, SECTOR_LEN, SLOT_LEN, Slot};
pub(super) use spi::Session;
pub use spi::{BUDGET, RegisterFlash};

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

    /// The speed of the unit's link.
    fn speed(&self) -> Speed;

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

    fn speed(&self) -> Speed {
        Self::speed(self)
    }
}

fn addressed(bytes: &[(u16, u8)]) -> Vec<(XdataAddress, u8)> {
    bytes.iter().map(|(at, byte)| (XdataAddress::main(*at), *byte)).collect()
}

/// Reasons an access to the flash through registers failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// A control request failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// No flash answers. Holds the answer to command 9F.
    #[error("no SPI flash answers: its ID reads {:02X} {:02X} {:02X}", .0[0], .0[1], .0[2])]
    NoFlash([u8; 3]),
    /// The controller does not complete a command.
    #[error("the flash controller has not ended command {command:02X} within {deadline:?}")]
    Controller {
        /// The flash's command.
        command: u8,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The flash stays busy.
    #[error("the flash is still busy with {what} at {at} after {deadline:?}")]
    Busy {
        /// The operation, in words.
        what: &'static str,
        /// Its address.
        at: FlashAddress,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The block protection can't be cleared.
    #[error("the flash stays write-protected: its status reads {status:#04x} after {tries} tries to clear it")]
    Protected {
        /// The status register.
        status: u8,
        /// Number of attempts to clear it.
        tries: u32,
    },
    /// The block protection can't be set again.
    #[error("the flash's block protection reads {status:#04x} and not {protection:#04x}, as it was before")]
    Unprotected {
        /// The status register.
        status: u8,
        /// The protection bits that it should have.
        protection: u8,
    },
    /// The whole access took longer than this.
    #[error("reading and writing the flash has taken more than {0:?}")]
    OutOfTime(Duration),
    /// For this long, no sector was read or written.
    #[error("no sector of the flash was read or written for {0:?}")]
    NoProgress(Duration),
    /// Repeated reads of this register of the flash differ.
    #[error("the flash's {0} reads differently each time")]
    Disagrees(&'static str),
    /// Repeated reads of this sector differ.
    #[error("the flash reads differently each time at {0}")]
    Unstable(FlashAddress),
    /// A sector is not FF after its erase.
    #[error("the sector at {at} does not erase: {count} of its bytes are not FF")]
    NotErased {
        /// The sector.
        at: FlashAddress,
        /// Number of bytes that are not FF.
        count: usize,
    },
    /// Programmed bytes read back differently.
    #[error("{count} bytes at {at} differ from what was written")]
    Differs {
        /// The page or sector.
        at: FlashAddress,
        /// Number of bytes that differ.
        count: usize,
    },
}

asm2464::coded!(RegisterError {
    Control(cause) => cause,
    NoFlash => "asmpatch::registers::no_flash",
    Controller => "asmpatch::registers::controller",
    Busy => "asmpatch::registers::busy",
    Protected => "asmpatch::registers::protected",
    Unprotected => "asmpatch::registers::unprotected",
    OutOfTime => "asmpatch::registers::out_of_time",
    NoProgress => "asmpatch::registers::no_progress",
    Disagrees => "asmpatch::registers::disagrees",
    Unstable => "asmpatch::registers::unstable",
    NotErased => "asmpatch::registers::not_erased",
    Differs => "asmpatch::registers::differs",
});

impl RegisterError {
    /// Whether a retry over the same connection can't help: the unit is gone, or the time is over.
    pub(in crate::flash) const fn is_final(&self) -> bool {
        self.is_out_of_time() || matches!(self, Self::Control(ControlError::Disconnected { .. }))
    }

    /// Whether the time is over.
    pub(in crate::flash) const fn is_out_of_time(&self) -> bool {
        matches!(self, Self::OutOfTime(_) | Self::NoProgress(_))
    }
}
