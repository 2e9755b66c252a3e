//! What can go wrong between host and bridge.

use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use super::pipes::PipeError;
use crate::scsi::bot::CswError;

/// A command that the wire did not carry.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum TransportError {
    /// The device does not answer, and recovery did not help or was not asked for.
    #[error("no answer to {command} within {deadline:?}")]
    #[diagnostic(code(asmpatch::usb::timeout))]
    Timeout {
        /// The command, in words.
        command: String,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The device is gone.
    #[error("the unit disappeared during {command}")]
    #[diagnostic(code(asmpatch::usb::disconnected))]
    Disconnected {
        /// The command, in words.
        command: String,
    },
    /// A stall that recovery did not clear.
    #[error("the unit stalled {command} and stayed stalled")]
    #[diagnostic(code(asmpatch::usb::stall))]
    Stalled {
        /// The command, in words.
        command: String,
    },
    /// The status wrapper makes no sense, even after reset recovery.
    #[error("the status of {command} is no valid CSW: {source}")]
    #[diagnostic(code(asmpatch::usb::bad_status))]
    BadStatus {
        /// The command, in words.
        command: String,
        /// What is wrong with it.
        source: CswError,
    },
    /// A status for another command.
    #[error("the status of {command} carries tag {found:#x}, expected {expected:#x}")]
    #[diagnostic(code(asmpatch::usb::tag))]
    TagMismatch {
        /// The command, in words.
        command: String,
        /// The tag sent.
        expected: u32,
        /// The tag that came back.
        found: u32,
    },
    /// A phase error.
    #[error("the unit reports a phase error for {command}")]
    #[diagnostic(code(asmpatch::usb::phase))]
    PhaseError {
        /// The command, in words.
        command: String,
    },
    /// Anything else that breaks the protocol.
    #[error("{command}: {what}")]
    #[diagnostic(code(asmpatch::usb::protocol))]
    Protocol {
        /// The command, in words.
        command: String,
        /// What happened.
        what: String,
    },
    /// Anything else that the system reports.
    #[error("{command}: {source}")]
    #[diagnostic(code(asmpatch::usb::io))]
    Io {
        /// The command, in words.
        command: String,
        /// What the pipe said.
        source: PipeError,
    },
}
