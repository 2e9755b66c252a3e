//! Engines that carry PCIe requests through a bridge.

use asm2464::scsi::XdataAddress;
use thiserror::Error;

use crate::bridge::{CommandError, ControlError, OpenBridge};
use asm2464::tlp::{Completion, Tlp};

/// Reasons a bridge did not carry a request. An error status from the PCIe side is not such an error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// A command of the vendor's firmware failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A request of the open firmware failed.
    #[error(transparent)]
    Control(#[from] ControlError),
}

asm2464::coded!(EngineError {
    Command(cause) => cause,
    Control(cause) => cause,
});

/// Sends TLPs through a bridge, and accesses its XDATA.
pub trait TlpEngine {
    /// Sends these TLPs in order. Returns their completions in the same order; a memory write has none.
    ///
    /// If the completion of a configuration request is late, the configuration requests beside it may be sent again, in
    /// the same order. Send a request that must not be repeated in a call of its own.
    ///
    /// # Errors
    /// [`EngineError`]; some TLPs may have been sent. A completion with an error status is no error here.
    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, EngineError>;

    /// Reads XDATA.
    ///
    /// # Errors
    /// [`EngineError`].
    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), EngineError>;

    /// Writes bytes of XDATA in this order.
    ///
    /// # Errors
    /// [`EngineError`]; some bytes may have been written.
    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), EngineError>;
}

impl<E: TlpEngine + ?Sized> TlpEngine for &mut E {
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

impl TlpEngine for OpenBridge {
    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, EngineError> {
        Ok(Self::tlps(self, tlps)?)
    }

    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), EngineError> {
        Ok(Self::xdata_read(self, from, buffer)?)
    }

    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), EngineError> {
        Ok(self.xdata_write_all(writes)?)
    }
}
