//! Errors of the open firmware's control requests, and of the bulk data that follows them.

use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use super::super::pipes::PipeError;
use super::queue::OpenRequest;

/// Reasons a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum ControlError {
    /// The unit does not answer on its control endpoint.
    #[error("no answer to {request} within {deadline:?}")]
    #[diagnostic(code(asmpatch::control::timeout))]
    Timeout {
        /// The request.
        request: OpenRequest,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// Bulk data does not move.
    #[error("no bulk data moved for {request} within {deadline:?}{}", if *answers { ", though the unit answers control requests" } else { "" })]
    #[diagnostic(code(asmpatch::control::bulk_timeout))]
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
    #[diagnostic(code(asmpatch::control::disconnected))]
    Disconnected {
        /// The request.
        request: OpenRequest,
    },
    /// The firmware stalls the request: it does not support it.
    #[error("the unit refused {request}")]
    #[diagnostic(code(asmpatch::control::stalled))]
    Stalled {
        /// The request.
        request: OpenRequest,
    },
    /// The unit moved fewer bytes than requested.
    #[error("{request} moved {found} bytes, expected {expected}")]
    #[diagnostic(code(asmpatch::control::short))]
    Short {
        /// The request.
        request: OpenRequest,
        /// Bytes requested.
        expected: usize,
        /// Bytes moved.
        found: usize,
    },
    /// The answer's fields are invalid.
    #[error("the unit's answer to {request} makes no sense: {what}")]
    #[diagnostic(code(asmpatch::control::malformed))]
    Malformed {
        /// The request.
        request: OpenRequest,
        /// What is wrong.
        what: String,
    },
    /// The SRAM DMA is still busy with an earlier transfer.
    #[error("the SRAM DMA has been busy for {deadline:?}: XDATA 0xC450 reads {status:#04x}")]
    #[diagnostic(code(asmpatch::control::sram_busy))]
    SramBusy {
        /// The deadline that passed.
        deadline: Duration,
        /// Value of 0xC450.
        status: u8,
    },
    /// The unit can't carry out the request. Nothing was sent.
    #[error("{request} takes {limit}; {found} were asked for")]
    #[diagnostic(code(asmpatch::control::length))]
    Length {
        /// The request, in words.
        request: &'static str,
        /// The request's limit, in words.
        limit: &'static str,
        /// The requested value.
        found: String,
    },
    /// Any other error that the system reports.
    #[error("{request}: {source}")]
    #[diagnostic(code(asmpatch::control::io))]
    Io {
        /// The request.
        request: OpenRequest,
        /// The pipe's error.
        source: PipeError,
    },
}

impl ControlError {
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
