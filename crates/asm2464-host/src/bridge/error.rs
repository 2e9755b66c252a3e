//! Errors between host and bridge: of the transport, and of one command: on the wire, in the unit, or in its answer.

use std::borrow::Cow;
use std::time::Duration;

use asm2464::firmware::FirmwareVersion;
use asm2464::scsi::{Cdb, ScsiStatus, Sense, SenseKey, opcode};
use asm2464::{Coded, Kind, Label, ParseError};
use thiserror::Error;

use super::pipes::PipeError;

/// An error of a transport.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", kind.label_and_text(during).1)]
pub struct TransportError {
    /// The activity that failed: a command's name, or another, such as "resetting the port".
    pub during: Cow<'static, str>,
    /// The kind of error.
    pub kind: TransportErrorKind,
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
    BadStatus(ParseError),
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
    pub fn during(self, activity: impl Into<Cow<'static, str>>) -> TransportError {
        TransportError { during: activity.into(), kind: self }
    }

    /// The error's label and text.
    fn label_and_text(&self, during: &str) -> (Label, String) {
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
    pub(super) fn during(self, activity: impl Into<Cow<'static, str>>) -> TransportError {
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

/// Reasons a command failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandError {
    /// The wire failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// CHECK CONDITION: the unit refused or failed.
    #[error(
        "the unit refused {command} with {}",
        sense.map_or_else(|| "no sense data".to_owned(), |sense| format!("sense {sense}"))
    )]
    CheckCondition {
        /// The command, in words.
        command: String,
        /// The unit's sense data.
        sense: Option<Sense>,
        /// The error's label, by the command and its sense.
        label: Label,
    },
    /// A status that is neither GOOD nor CHECK CONDITION.
    #[error("the unit ended {command} with status {:#04x}", u8::from(*status))]
    Status {
        /// The command, in words.
        command: String,
        /// The unit's status.
        status: ScsiStatus,
    },
    /// The unit moved less data than the command needs.
    #[error("{command} moved {found} bytes, expected {expected}")]
    Short {
        /// The command, in words.
        command: String,
        /// Bytes requested.
        expected: usize,
        /// Bytes moved.
        found: usize,
    },
    /// E4 succeeded but returned fewer bytes than requested.
    #[error("E4 returned {found} of {expected} bytes, with good status")]
    ShortXdata {
        /// Bytes requested.
        expected: usize,
        /// Bytes moved.
        found: usize,
    },
    /// The data's fields are invalid.
    #[error("the unit's answer to {command} is invalid: {what}")]
    Malformed {
        /// The command, in words.
        command: String,
        /// What is wrong.
        what: String,
    },
    /// The command can't move this number of bytes. Nothing was sent.
    #[error("{command} moves {limit}, not {found}")]
    Length {
        /// The command, in words.
        command: String,
        /// The command's limit, in words.
        limit: &'static str,
        /// Bytes requested.
        found: usize,
    },
    /// The initialisation's addresses are not known for this version. Nothing was written.
    #[error("firmware {0} keeps the variables of a GPU runtime's initialisation in places that are not known")]
    UnknownVariables(FirmwareVersion),
}

impl CommandError {
    /// Builds the error of a command that did not end with GOOD.
    pub(crate) fn of_status(cdb: &Cdb, status: ScsiStatus, sense: Option<Sense>) -> Self {
        match status {
            ScsiStatus::CheckCondition => {
                Self::CheckCondition { command: cdb.name(), sense, label: refusal_label(cdb, sense) }
            }
            status => Self::Status { command: cdb.name(), status },
        }
    }

    /// The sense data, if the unit sent any.
    pub const fn sense(&self) -> Option<Sense> {
        match self {
            Self::CheckCondition { sense, .. } => *sense,
            _ => None,
        }
    }
}

impl Coded for CommandError {
    fn label(&self) -> Label {
        match self {
            Self::Transport(error) => error.label(),
            Self::CheckCondition { label, .. } => *label,
            Self::Status { .. } => Kind::Wire.code("asm2464::bridge::status"),
            Self::Short { .. } => Kind::Short.code("asm2464::bridge::short_data"),
            Self::ShortXdata { expected, found } => short_xdata_label(*expected, *found),
            Self::Malformed { .. } => Kind::Wire.code("asm2464::bridge::malformed"),
            Self::Length { .. } => Kind::Usage.code("asm2464::bridge::length"),
            Self::UnknownVariables(_) => Kind::Refused.code("asm2464::bridge::unknown_variables"),
        }
    }
}

/// The label of an E4 that moved `found` of `expected` bytes. It depends on the firmware that behaves this way.
const fn short_xdata_label(expected: usize, found: usize) -> Label {
    match found {
        // Stock firmware uses only CDB byte 1.
        _ if expected > 255 && found == expected & 0xFF => Kind::Short.code("asm2464::bridge::xdata_one_byte"),
        // One packet at high speed, one at SuperSpeed.
        512 | 1024 => Kind::Short.code("asm2464::bridge::xdata_one_packet"),
        _ => Kind::Short.code("asm2464::bridge::short_xdata"),
    }
}

/// The label of a refusal: the meaning of this sense for this command.
fn refusal_label(cdb: &Cdb, sense: Option<Sense>) -> Label {
    let Some(sense) = sense else { return Kind::Rejected.code("asm2464::bridge::check_condition") };
    let is_flash = matches!(cdb.opcode(), opcode::CONFIG_READ..=opcode::FLASH_WRITE);
    match (sense.key, sense.asc, sense.ascq) {
        (SenseKey::ILLEGAL_REQUEST, 0x20, _) => Kind::Rejected.code("asm2464::sense::unknown_command"),
        (SenseKey::ILLEGAL_REQUEST, 0x24, _) if cdb.opcode() == opcode::XDATA_READ => {
            Kind::Rejected.code("asm2464::sense::xdata_length")
        }
        (SenseKey::ILLEGAL_REQUEST, 0x24, _) => Kind::Rejected.code("asm2464::sense::parameters"),
        (SenseKey::ILLEGAL_REQUEST, 0x21, _) => Kind::Rejected.code("asm2464::sense::past_end"),
        (SenseKey::MEDIUM_ERROR, _, _) if is_flash => Kind::Rejected.code("asm2464::sense::flash"),
        (SenseKey::MEDIUM_ERROR, _, _) => Kind::Rejected.code("asm2464::sense::medium"),
        (SenseKey::NOT_READY, 0x3A, _) => Kind::Rejected.code("asm2464::sense::no_medium"),
        (SenseKey::NOT_READY, _, _) => Kind::Rejected.code("asm2464::sense::starting"),
        (SenseKey::UNIT_ATTENTION, _, _) => Kind::Rejected.code("asm2464::sense::reset"),
        (SenseKey::HARDWARE_ERROR, _, _) => Kind::Rejected.code("asm2464::sense::hardware"),
        _ => Kind::Rejected.code("asm2464::bridge::check_condition"),
    }
}
