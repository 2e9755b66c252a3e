//! What can go wrong with a control request of the open firmware, or with the bulk data that follow one.

use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use super::super::pipes::PipeError;
use crate::failure::{Exit, Failure};

/// A request that gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum ControlError {
    /// The unit does not answer on its control endpoint.
    #[error("no answer to {request} within {deadline:?}")]
    #[diagnostic(
        code(asmpatch::control::timeout),
        help("run the command again; if it stays, unplug the unit, wait five seconds and plug it in again")
    )]
    Timeout {
        /// The request, in words.
        request: String,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// Bulk data don't move.
    #[error("no bulk data moved for {request} within {deadline:?}{}", if *answers { ", though the unit answers control requests" } else { "" })]
    #[diagnostic(code(asmpatch::control::bulk_timeout), help("{}", bulk_help(*answers)))]
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
    #[diagnostic(
        code(asmpatch::control::disconnected),
        help("check cable and power, plug the unit in again, and see what `asmpatch list` says of it")
    )]
    Disconnected {
        /// The request, in words.
        request: String,
    },
    /// A stall: the firmware does not take the request.
    #[error("the unit refused {request}")]
    #[diagnostic(
        code(asmpatch::control::stalled),
        help("this build of the firmware does not know the request; `asmpatch list` tells what runs on the unit")
    )]
    Stalled {
        /// The request, in words.
        request: String,
    },
    /// Fewer bytes than asked for.
    #[error("{request} moved {found} bytes, expected {expected}")]
    #[diagnostic(
        code(asmpatch::control::short),
        help("what arrived can't be trusted; run the command again, and try another cable and port if it stays")
    )]
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
    #[diagnostic(
        code(asmpatch::control::malformed),
        help("this build of the firmware does not keep to the protocol; `asmpatch list` tells what runs on the unit")
    )]
    Malformed {
        /// The request, in words.
        request: String,
        /// What is wrong.
        what: String,
    },
    /// The SRAM DMA is still busy with an earlier transfer.
    #[error("the SRAM DMA has been busy for {deadline:?}: XDATA 0xC450 reads {status:#04x}")]
    #[diagnostic(
        code(asmpatch::control::sram_busy),
        help(
            "an earlier transfer waits for data that nobody sends; unplug the unit, wait five seconds and plug it in again"
        )
    )]
    SramBusy {
        /// The deadline that passed.
        deadline: Duration,
        /// What 0xC450 reads.
        status: u8,
    },
    /// A request that the unit can't carry out: nothing was sent.
    #[error("{request} takes {limit}; {found} were asked for")]
    #[diagnostic(code(asmpatch::control::length), help("split the transfer"))]
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
    #[diagnostic(
        code(asmpatch::control::io),
        help("see the system's log (`dmesg` on Linux) for what the host controller says")
    )]
    Io {
        /// The request, in words.
        request: String,
        /// What the pipe said.
        source: PipeError,
    },
}

const fn bulk_help(answers: bool) -> &'static str {
    if answers {
        "unplug the unit, wait five seconds and plug it in again: its bulk pipes hang while it answers control requests, \
         and only the power helps then"
    } else {
        "unplug the unit, wait five seconds and plug it in again"
    }
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

impl Failure for ControlError {
    fn exit(&self) -> Exit {
        Exit::Device
    }
}
