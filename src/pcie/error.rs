//! What can go wrong on the PCIe side of a bridge.

use miette::Diagnostic;
use thiserror::Error;

use super::engine::EngineError;
use super::place::Bdf;
use crate::bridge::open::CompletionStatus;

/// A request to the PCIe side that gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum PcieError {
    /// The bridge did not carry it.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Engine(#[from] EngineError),
    /// It was answered with something else than success.
    #[error("{request} ended with: {status}")]
    #[diagnostic(forward(status))]
    Completion {
        /// The request, in words.
        request: String,
        /// Its end.
        status: CompletionStatus,
    },
    /// A device that asks to be asked again, for ever.
    #[error("{at} still answers that it is not ready, after {attempts} attempts")]
    #[diagnostic(code(asmpatch::pcie::not_ready))]
    NotReady {
        /// The device.
        at: Bdf,
        /// How often it was asked.
        attempts: u32,
    },
    /// Whoever asked had it stopped.
    #[error("the survey was stopped at {at}")]
    #[diagnostic(code(asmpatch::pcie::stopped))]
    Stopped {
        /// What would have been looked at next.
        at: Bdf,
    },
    /// No link, so nothing behind the bridge can be reached.
    #[error("the PCIe link is down: XDATA 0xB450 reads {ltssm:#04x}, expected 0x78")]
    #[diagnostic(code(asmpatch::pcie::link_down))]
    LinkDown {
        /// What 0xB450 reads.
        ltssm: u8,
    },
    /// A request that can't be made: nothing was sent.
    #[error("{what}")]
    #[diagnostic(code(asmpatch::pcie::request))]
    Impossible {
        /// What is wrong with it.
        what: String,
    },
}
