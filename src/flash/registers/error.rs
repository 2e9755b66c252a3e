//! Errors of a flash that is accessed through registers.

use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use crate::bridge::ControlError;
use crate::firmware::FlashAddress;

/// Reasons an access to the flash through registers failed.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum RegisterError {
    /// A control request failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Control(#[from] ControlError),
    /// No flash answers command 9F with an ID, but this.
    #[error("no SPI flash answers: its ID reads {:02X} {:02X} {:02X}", .0[0], .0[1], .0[2])]
    #[diagnostic(code(asmpatch::registers::no_flash))]
    NoFlash([u8; 3]),
    /// The controller does not complete a command.
    #[error("the flash controller has not ended command {command:02X} within {deadline:?}")]
    #[diagnostic(code(asmpatch::registers::controller))]
    Controller {
        /// The flash's command.
        command: u8,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The flash stays busy.
    #[error("the flash is still busy with {what} at {at} after {deadline:?}")]
    #[diagnostic(code(asmpatch::registers::busy))]
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
    #[diagnostic(code(asmpatch::registers::protected))]
    Protected {
        /// The status register.
        status: u8,
        /// Number of attempts to clear it.
        tries: u32,
    },
    /// The whole access took longer than this.
    #[error("reading and writing the flash has taken more than {0:?}")]
    #[diagnostic(code(asmpatch::registers::out_of_time))]
    OutOfTime(Duration),
    /// Repeated reads of this sector differ.
    #[error("the flash reads differently each time at {0}")]
    #[diagnostic(code(asmpatch::registers::unstable))]
    Unstable(FlashAddress),
    /// A sector is not FF after its erase.
    #[error("the sector at {at} does not erase: {count} of its bytes are not FF")]
    #[diagnostic(code(asmpatch::registers::not_erased))]
    NotErased {
        /// The sector.
        at: FlashAddress,
        /// Number of bytes that are not FF.
        count: usize,
    },
    /// Programmed bytes read back differently.
    #[error("{count} bytes at {at} differ from what was written")]
    #[diagnostic(code(asmpatch::registers::differs))]
    Differs {
        /// The page or sector.
        at: FlashAddress,
        /// Number of bytes that differ.
        count: usize,
    },
}

impl RegisterError {
    /// Whether a retry over the same connection can't help: the unit is gone, or the time is over.
    pub(in crate::flash) const fn is_final(&self) -> bool {
        matches!(self, Self::OutOfTime(_) | Self::Control(ControlError::Disconnected { .. }))
    }
}
