//! Errors between host and bridge.

use std::time::Duration;

use asm2464::scsi::Cdb;
use asm2464::scsi::bot::CswError;
use asm2464::{Coded, Kind, Label};
use derive_more::{Display, From};
use thiserror::Error;

use super::pipes::PipeError;

/// An error of a transport.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", kind.label_and_text(during).1)]
pub struct TransportError {
    /// The activity that failed.
    pub during: Activity,
    /// The kind of error.
    pub kind: TransportErrorKind,
}

/// An activity of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, From)]
pub enum Activity {
    /// A command.
    #[display("{}", _0.name())]
    Command(Cdb),
    /// An activity outside commands, such as "resetting the port".
    Named(&'static str),
}

/// Reasons a transport failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportErrorKind {
    /// The device does not answer. Recovery did not help or was not requested.
    Timeout {
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The device is gone.
    Disconnected,
    /// A stall that recovery did not clear.
    Stalled,
    /// The status wrapper is invalid, even after reset recovery.
    BadStatus(CswError),
    /// The status belongs to another command.
    TagMismatch {
        /// The tag that was sent.
        expected: u32,
        /// The tag that was received.
        found: u32,
    },
    /// The device reported a phase error.
    PhaseError,
    /// Any other violation of the protocol.
    Protocol(String),
    /// Any other error that the system reports.
    Io(PipeError),
}

impl TransportErrorKind {
    /// Builds the error of this kind during this activity.
    pub fn during(self, activity: impl Into<Activity>) -> TransportError {
        TransportError { during: activity.into(), kind: self }
    }

    /// The error's label and text.
    fn label_and_text(&self, during: &Activity) -> (Label, String) {
        match self {
            Self::Timeout { deadline } => {
                (Kind::NoAnswer.code("asm2464::usb::timeout"), format!("no answer to {during} within {deadline:?}"))
            }
            Self::Disconnected => {
                (Kind::Gone.code("asm2464::usb::disconnected"), format!("the unit disappeared during {during}"))
            }
            Self::Stalled => {
                (Kind::Wire.code("asm2464::usb::stall"), format!("the unit stalled {during} and stayed stalled"))
            }
            Self::BadStatus(error) => (
                Kind::Wire.code("asm2464::usb::bad_status"),
                format!("the status of {during} is no valid CSW: {error}"),
            ),
            Self::TagMismatch { expected, found } => {
                let text = format!("the status of {during} carries tag {found:#x}, expected {expected:#x}");
                (Kind::Wire.code("asm2464::usb::tag"), text)
            }
            Self::PhaseError => {
                (Kind::Wire.code("asm2464::usb::phase"), format!("the unit reports a phase error for {during}"))
            }
            Self::Protocol(what) => (Kind::Wire.code("asm2464::usb::protocol"), format!("{during}: {what}")),
            Self::Io(error) => (Kind::Wire.code("asm2464::usb::io"), format!("{during}: {error}")),
        }
    }
}

impl PipeError {
    /// Builds the transport's error of a pipe that failed this way during this activity.
    pub(super) fn during(self, activity: impl Into<Activity>) -> TransportError {
        TransportErrorKind::from(self).during(activity)
    }
}

/// The activity of a transport before its first transfer.
pub(super) const PREPARING: &str = "preparing the queue";

/// The error of a transport whose earlier transfers the system has never returned.
pub(super) fn still_in_flight() -> TransportError {
    PipeError::Other("transfers of an earlier command are still in flight".to_owned()).during(PREPARING)
}

impl From<PipeError> for TransportErrorKind {
    fn from(error: PipeError) -> Self {
        match error {
            PipeError::Disconnected => Self::Disconnected,
            PipeError::Stall => Self::Stalled,
            PipeError::Overflow => Self::Protocol("the unit sent more data than requested".to_owned()),
            other => Self::Io(other),
        }
    }
}

impl TransportError {
    /// Whether the device is gone.
    pub const fn is_gone(&self) -> bool {
        matches!(self.kind, TransportErrorKind::Disconnected)
    }

    /// Whether the device did not answer in time.
    pub const fn is_timeout(&self) -> bool {
        matches!(self.kind, TransportErrorKind::Timeout { .. })
    }
}

impl Coded for TransportError {
    fn label(&self) -> Label {
        self.kind.label_and_text(&self.during).0
    }
}
