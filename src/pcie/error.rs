//! What can go wrong on the PCIe side of a bridge.

use miette::Diagnostic;
use thiserror::Error;

use super::engine::EngineError;
use super::place::Bdf;
use crate::bridge::open::CompletionStatus;
use crate::failure::{Exit, Failure};

/// A request to the PCIe side that gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum PcieError {
    /// The bridge did not carry it.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Engine(#[from] EngineError),
    /// It was answered with something else than success.
    #[error("{request} ended with: {status}")]
    #[diagnostic(code(asmpatch::pcie::completion), help("{}", completion_help(*status)))]
    Completion {
        /// The request, in words.
        request: String,
        /// Its end.
        status: CompletionStatus,
    },
    /// A device that asks to be asked again, for ever.
    #[error("{at} still answers that it is not ready, after {attempts} attempts")]
    #[diagnostic(
        code(asmpatch::pcie::not_ready),
        help(
            "the device does not finish its start: check its power, then `asmpatch pcie reset`, or cut the unit's power"
        )
    )]
    NotReady {
        /// The device.
        at: Bdf,
        /// How often it was asked.
        attempts: u32,
    },
    /// Whoever asked had it stopped.
    #[error("the survey was stopped at {at}")]
    #[diagnostic(
        code(asmpatch::pcie::stopped),
        help(
            "devices that answer slowly, or a tree without end: `asmpatch pcie reset` resets what is behind the bridge"
        )
    )]
    Stopped {
        /// What would have been looked at next.
        at: Bdf,
    },
    /// No link, so nothing behind the bridge can be reached.
    #[error("the PCIe link is down: XDATA 0xB450 reads {ltssm:#04x}, expected 0x78")]
    #[diagnostic(
        code(asmpatch::pcie::link_down),
        help(
            "check that the card sits in its slot and has its own power: without 12 V PCIe never leaves reset; then cut \
             the unit's power and plug it in again"
        )
    )]
    LinkDown {
        /// What 0xB450 reads.
        ltssm: u8,
    },
    /// A request that can't be made: nothing was sent.
    #[error("{what}")]
    #[diagnostic(code(asmpatch::pcie::request), help("nothing was sent"))]
    Impossible {
        /// What is wrong with it.
        what: String,
    },
}

const fn completion_help(status: CompletionStatus) -> &'static str {
    match status {
        CompletionStatus::UnsupportedRequest => {
            "no device there takes it: `asmpatch pcie` shows which BARs have addresses, `asmpatch pcie assign` gives them \
             some"
        }
        CompletionStatus::ConfigRetry => "the device is still starting: wait a second and run the command again",
        CompletionStatus::CompleterAbort => "the device refuses the request: see its manual for what it takes there",
        CompletionStatus::TimedOut | CompletionStatus::Failed => {
            "the device or its link hangs: `asmpatch pcie reset` resets what is behind the bridge, and the unit's power does"
        }
        CompletionStatus::Success | CompletionStatus::Reserved(_) => {
            "the answer makes no sense: check the card's seat and its link with `asmpatch pcie`"
        }
    }
}

impl Failure for PcieError {
    fn exit(&self) -> Exit {
        match self {
            Self::Engine(error) => error.exit(),
            Self::Impossible { .. } => Exit::Usage,
            Self::Completion { .. } | Self::NotReady { .. } | Self::Stopped { .. } | Self::LinkDown { .. } => {
                Exit::Device
            }
        }
    }
}
