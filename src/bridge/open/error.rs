//! What can go wrong with a control request of the open firmware, or with the bulk data that follow one.

use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use super::super::pipes::PipeError;

/// A request that gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum ControlError {
    /// The unit does not answer on its control endpoint.
    #[error("no answer to {request} within {deadline:?}")]
    #[diagnostic(code(asmpatch::control::timeout))]
    Timeout {
        /// The request, in words.
        request: String,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// Bulk data don't move.
    #[error("no bulk data moved for {request} within {deadline:?}{}", if *answers { ", though the unit answers control requests" } else { "" })]
    #[diagnostic(code(asmpatch::control::bulk_timeout))]
    BulkTimeout {
        /// The request that the data belong to, in words.
        request: String,
        /// The deadline that passed.
        deadline: Duration,
        /// Whether the unit answered a control request after that.
        answers: bool,
    },
    /// The device is gone.
    #[error("the unit disappeared during {request}")]
    #[diagnostic(code(asmpatch::control::disconnected))]
    Disconnected {
        /// The request, in words.
        request: String,
    },
    /// A stall: the firmware does not take the request.
    #[error("the unit refused {request}")]
    #[diagnostic(code(asmpatch::control::stalled))]
    Stalled {
        /// The request, in words.
        request: String,
    },
    /// Fewer bytes than asked for.
    #[error("{request} moved {found} bytes, expected {expected}")]
    #[diagnostic(code(asmpatch::control::short))]
    Short {
        /// The request, in words.
        request: String,
        /// Bytes asked for.
        expected: usize,
        /// Bytes moved.
        found: usize,
    },
    /// An answer whose fields make no sense.
    #[error("the unit's answer to {request} makes no sense: {what}")]
    #[diagnostic(code(asmpatch::control::malformed))]
    Malformed {
        /// The request, in words.
        request: String,
        /// What is wrong.
        what: String,
    },
    /// The SRAM DMA is still busy with an earlier transfer.
    #[error("the SRAM DMA has been busy for {deadline:?}: XDATA 0xC450 reads {status:#04x}")]
    #[diagnostic(code(asmpatch::control::sram_busy))]
    SramBusy {
        /// The deadline that passed.
        deadline: Duration,
        /// What 0xC450 reads.
        status: u8,
    },
    /// A request that the unit can't carry out: nothing was sent.
    #[error("{request} takes {limit}; {found} were asked for")]
    #[diagnostic(code(asmpatch::control::length))]
    Length {
        /// The request, in words.
        request: String,
        /// What it takes, in words.
        limit: &'static str,
        /// What was asked for.
        found: String,
    },
    /// Anything else that the system reports.
    #[error("{request}: {source}")]
    #[diagnostic(code(asmpatch::control::io))]
    Io {
        /// The request, in words.
        request: String,
        /// What the pipe said.
        source: PipeError,
    },
}

impl ControlError {
    /// The error of a control request that failed like this.
    pub(super) fn of_request(request: String, source: PipeError, deadline: Duration) -> Self {
        match source {
            PipeError::Stall => Self::Stalled { request },
            PipeError::Timeout => Self::Timeout { request, deadline },
            PipeError::Disconnected => Self::Disconnected { request },
            source @ (PipeError::Overflow | PipeError::Other(_)) => Self::Io { request, source },
        }
    }
}
