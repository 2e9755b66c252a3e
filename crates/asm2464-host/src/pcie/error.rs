//! Errors of the PCIe side of a bridge.

use thiserror::Error;

use super::engine::EngineError;
use asm2464::Bdf;
use asm2464::tlp::CompletionStatus;

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
