//! Engines that carry PCIe requests through a bridge, and the errors of such requests.

use asm2464::Bdf;
use asm2464::scsi::XdataAddress;
use asm2464::tlp::{Completion, CompletionStatus, Tlp};
use thiserror::Error;

use crate::bridge::{CommandError, ControlError, OpenBridge};

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
    /// [`EngineError`]; some TLPs may have been sent. A completion with an error status is not an error here.
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

/// Reasons a request to the PCIe side failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PcieError {
    /// The bridge did not carry the request.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The completion has an error status.
    #[error("{request} ended with: {status}")]
    Completion {
        /// The request, in words.
        request: String,
        /// The completion's status.
        status: CompletionStatus,
    },
    /// The function never became ready.
    #[error("{at} still answers that it is not ready, after {attempts} attempts")]
    NotReady {
        /// The function.
        at: Bdf,
        /// Number of attempts.
        attempts: u32,
    },
    /// The caller's [`Patience`](super::Patience) stopped the survey.
    #[error("the survey was stopped at {at}")]
    Stopped {
        /// The next function that would have been examined.
        at: Bdf,
    },
    /// The link is down, so nothing behind the bridge can be reached.
    #[error("the PCIe link is down: XDATA 0xB450 reads {ltssm:#04x}, expected 0x78")]
    LinkDown {
        /// Value of 0xB450.
        ltssm: u8,
    },
    /// The request is impossible. Nothing was sent.
    #[error("{what}")]
    Impossible {
        /// What is wrong with it.
        what: String,
    },
}

asm2464::coded!(PcieError {
    Engine(cause) => cause,
    Completion { status, .. } => status,
    NotReady => Device "asm2464::pcie::not_ready",
    Stopped => Device "asm2464::pcie::stopped",
    LinkDown => Device "asm2464::pcie::link_down",
    Impossible => Usage "asm2464::pcie::request",
});
