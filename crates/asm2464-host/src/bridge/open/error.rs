//! Errors of the open firmware's control requests, and of the bulk data that follows them.

use std::time::Duration;

use asm2464::interrupt::Interrupted;
use asm2464::tlp::{CompletionStatus, Tlp, ltssm_name};
use thiserror::Error;

use super::super::pipes::PipeError;
use super::command::{OpenRequest, SupplyMeasurement};

/// Reasons a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ControlError {
    /// The unit does not answer on its control endpoint.
    #[error("no answer to {request} within {deadline:?}")]
    Timeout {
        /// The request.
        request: OpenRequest,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// Bulk data does not move.
    #[error("no bulk data moved for {request} within {deadline:?}{}", if *answers { ", though the unit answers control requests" } else { "" })]
    BulkTimeout {
        /// The request that the data belong to.
        request: OpenRequest,
        /// The deadline that passed.
        deadline: Duration,
        /// Whether the unit still answered a control request.
        answers: bool,
    },
    /// The device is gone.
    #[error("the unit disappeared during {request}")]
    Disconnected {
        /// The request.
        request: OpenRequest,
    },
    /// The firmware stalls the request: it does not support it.
    #[error("the unit refused {request}")]
    Stalled {
        /// The request.
        request: OpenRequest,
    },
    /// The unit moved fewer bytes than requested.
    #[error("{request} moved {found} bytes, expected {expected}")]
    Short {
        /// The request.
        request: OpenRequest,
        /// Bytes requested.
        expected: usize,
        /// Bytes moved.
        found: usize,
    },
    /// The answer's fields are invalid.
    #[error("the unit's answer to {request} is invalid: {what}")]
    Malformed {
        /// The request.
        request: OpenRequest,
        /// What is wrong.
        what: String,
    },
    /// The SRAM DMA is still busy with an earlier transfer.
    #[error("the SRAM DMA has been busy for {deadline:?}: XDATA 0xC450 reads {status:#04x}")]
    SramBusy {
        /// The deadline that passed.
        deadline: Duration,
        /// Value of 0xC450.
        status: u8,
    },
    /// No device has taken a window of data from the SRAM.
    #[error(
        "no device has taken the data in the SRAM within {deadline:?}: XDATA 0xA800 reads {found:#010x}, expected {sentinel:#010x}"
    )]
    NotTaken {
        /// The deadline that passed.
        deadline: Duration,
        /// The window's sentinel.
        sentinel: u32,
        /// Value of the fence at 0xA800.
        found: u32,
    },
    /// The unit can't carry out the request. Nothing was sent.
    #[error("{request} takes {limit}, not {found}")]
    Length {
        /// The request, in words.
        request: &'static str,
        /// The request's limit, in words.
        limit: &'static str,
        /// The requested value.
        found: String,
    },
    /// The completion of a TLP has an error status.
    #[error("{tlp} ended with: {status}")]
    Completion {
        /// The TLP.
        tlp: Tlp,
        /// The completion's status.
        status: CompletionStatus,
    },
    /// The PCIe link did not come up.
    #[error("the PCIe link is down after {waited:?}: XDATA 0xB450 reads {ltssm:#04x} ({}), expected 0x78{}", ltssm_name(*ltssm), supplied(*supply))]
    LinkDown {
        /// Time waited for the link.
        waited: Duration,
        /// Value of 0xB450.
        ltssm: u8,
        /// The board's supply, if it measures it.
        supply: Option<SupplyMeasurement>,
    },
    /// The caller stopped the wait.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// Any other error that the system reports.
    #[error("{request}: {source}")]
    Io {
        /// The request.
        request: OpenRequest,
        /// The pipe's error.
        source: PipeError,
    },
}

asm2464::coded!(ControlError {
    Timeout => NoAnswer "asm2464::control::timeout",
    BulkTimeout => NoAnswer "asm2464::control::bulk_timeout",
    Disconnected => Gone "asm2464::control::disconnected",
    Stalled => Rejected "asm2464::control::stalled",
    Short => Short "asm2464::control::short",
    Malformed => Wire "asm2464::control::malformed",
    SramBusy => NoAnswer "asm2464::control::sram_busy",
    NotTaken => Device "asm2464::control::not_taken",
    Length => Usage "asm2464::control::length",
    Completion { status, .. } => status,
    LinkDown => Device "asm2464::pcie::link_down",
    Interrupted(cause) => cause,
    Io => Wire "asm2464::control::io",
});

impl ControlError {
    /// Whether another attempt may succeed: the wire failed, the function was not ready, or the bridge reported an
    /// error of its own. Not after a deadline of the host has passed, so that repeated attempts don't wait for several.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Short { .. } | Self::Malformed { .. } | Self::Io { .. } => true,
            Self::Completion { status, .. } => {
                use CompletionStatus::{ConfigRetry, Failed, TimedOut};
                matches!(status, ConfigRetry | Failed | TimedOut)
            }
            _ => false,
        }
    }

    /// Builds the error of a control request that failed this way.
    pub(super) fn of_request(request: OpenRequest, source: PipeError, deadline: Duration) -> Self {
        match source {
            PipeError::Stall => Self::Stalled { request },
            PipeError::Timeout => Self::Timeout { request, deadline },
            PipeError::Disconnected => Self::Disconnected { request },
            source @ (PipeError::Overflow | PipeError::Other(_)) => Self::Io { request, source },
        }
    }
}

fn supplied(supply: Option<SupplyMeasurement>) -> String {
    supply.map(|supply| format!("; the supply is at {} mV", supply.voltage_mv)).unwrap_or_default()
}
