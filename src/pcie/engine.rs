//! What carries PCIe requests through a bridge.

use miette::Diagnostic;
use thiserror::Error;

use crate::bridge::open::{Completion, Tlp};
use crate::bridge::{CommandError, ControlError};
use crate::chip::Simulated;
use crate::scsi::XdataAddress;

/// Why a bridge did not carry a request. What the PCIe side answers is no such error.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum EngineError {
    /// A command of the vendor's firmware failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Command(#[from] CommandError),
    /// A request of the open firmware failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Control(#[from] ControlError),
}

/// A bridge's way to send TLPs, and to its own XDATA.
pub trait TlpEngine {
    /// What the unit's chip has done since power-on, where it is a model.
    fn simulated(&mut self) -> Option<Simulated> {
        None
    }

    /// Sends these TLPs in this order. Gives their completions in the same order; a memory write has none.
    ///
    /// Where the completion of a configuration request is late, the configuration requests beside it may be sent again, in
    /// the same order: one that must not be repeated needs a call of its own.
    ///
    /// # Errors
    /// [`EngineError`]; some may have been sent. A completion of any status is no error.
    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, EngineError>;

    /// Reads XDATA.
    ///
    /// # Errors
    /// [`EngineError`].
    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), EngineError>;

    /// Writes bytes of XDATA, in this order.
    ///
    /// # Errors
    /// [`EngineError`]; some may have been written.
    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), EngineError>;
}

impl<E: TlpEngine + ?Sized> TlpEngine for &mut E {
    fn simulated(&mut self) -> Option<Simulated> {
        (**self).simulated()
    }

    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, EngineError> {
        (**self).tlps(tlps)
    }

    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), EngineError> {
        (**self).xdata_read(from, buffer)
    }

    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), EngineError> {
        (**self).xdata_write(writes)
    }
}
