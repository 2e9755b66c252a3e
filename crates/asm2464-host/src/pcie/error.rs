//! Errors of the PCIe side of a bridge.

use miette::Diagnostic;
use thiserror::Error;

use super::engine::EngineError;
use crate::bridge::open::CompletionStatus;
use asm2464::Bdf;

/// Reasons a request to the PCIe side failed.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum PcieError {
    /// The bridge did not carry the request.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Engine(#[from] EngineError),
    /// The completion has an error status.
    #[error("{request} ended with: {status}")]
    #[diagnostic(forward(status))]
    Completion {
        /// The request, in words.
        request: String,
        /// The completion's status.
        status: CompletionStatus,
    },
    /// The function never became ready.
    #[error("{at} still answers that it is not ready, after {attempts} attempts")]
    #[diagnostic(code(asmpatch::pcie::not_ready))]
    NotReady {
        /// The function.
        at: Bdf,
        /// Number of attempts.
        attempts: u32,
    },
    /// The caller's [`Patience`](super::Patience) stopped the survey.
    #[error("the survey was stopped at {at}")]
    #[diagnostic(code(asmpatch::pcie::stopped))]
    Stopped {
        /// The next function that would have been examined.
        at: Bdf,
    },
    /// The link is down, so nothing behind the bridge can be reached.
    #[error("the PCIe link is down: XDATA 0xB450 reads {ltssm:#04x}, expected 0x78")]
    #[diagnostic(code(asmpatch::pcie::link_down))]
    LinkDown {
        /// Value of 0xB450.
        ltssm: u8,
    },
    /// The request is impossible. Nothing was sent.
    #[error("{what}")]
    #[diagnostic(code(asmpatch::pcie::request))]
    Impossible {
        /// What is wrong with it.
        what: String,
    },
}
