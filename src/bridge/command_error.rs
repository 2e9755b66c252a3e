//! What can go wrong with one command: on the wire, in the unit, or in what it answered.

use miette::Diagnostic;
use thiserror::Error;

use super::error::TransportError;
use crate::failure::{Exit, Failure};
use crate::scsi::{Cdb, ScsiStatus, Sense, SenseKey, opcode};

/// A command that gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum CommandError {
    /// The wire did not carry it.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Transport(#[from] TransportError),
    /// CHECK CONDITION: the unit refused or failed.
    #[error("the unit refused {command} with {}", sense.map_or_else(|| "no sense data".to_owned(), |sense| format!("sense {sense}")))]
    #[diagnostic(code(asmpatch::bridge::check_condition))]
    CheckCondition {
        /// The command, in words.
        command: String,
        /// Why, as the unit tells it.
        sense: Option<Sense>,
        /// What that means and what to do.
        #[help]
        advice: String,
    },
    /// A status that is neither GOOD nor CHECK CONDITION.
    #[error("the unit ended {command} with status {:#04x}", u8::from(*status))]
    #[diagnostic(
        code(asmpatch::bridge::status),
        help("the unit is busy or confused; wait a few seconds and run the command again")
    )]
    Status {
        /// The command, in words.
        command: String,
        /// The status.
        status: ScsiStatus,
    },
    /// Less data than the command moves.
    #[error("{command} moved {found} bytes, expected {expected}")]
    #[diagnostic(
        code(asmpatch::bridge::short_data),
        help("what arrived can't be trusted; run the command again, and try another cable and port if it stays")
    )]
    Short {
        /// The command, in words.
        command: String,
        /// Bytes asked for.
        expected: usize,
        /// Bytes moved.
        found: usize,
    },
    /// E4 that ended well and brought less than it was asked for.
    #[error("E4 was asked for {expected} bytes and brought {found}, with good status")]
    #[diagnostic(code(asmpatch::bridge::short_xdata))]
    ShortXdata {
        /// Bytes asked for.
        expected: usize,
        /// Bytes moved.
        found: usize,
        /// What that means and what to do.
        #[help]
        meaning: &'static str,
    },
    /// Data whose fields make no sense.
    #[error("the unit's answer to {command} makes no sense: {what}")]
    #[diagnostic(
        code(asmpatch::bridge::malformed),
        help("the unit does not keep to the standard; see what `asmpatch list` says it runs")
    )]
    Malformed {
        /// The command, in words.
        command: String,
        /// What is wrong.
        what: String,
    },
    /// More or fewer bytes than the command can move: nothing was sent.
    #[error("{command} moves {limit}; {found} were asked for")]
    #[diagnostic(code(asmpatch::bridge::length), help("split the transfer"))]
    Length {
        /// The command, in words.
        command: String,
        /// What it can move, in words.
        limit: &'static str,
        /// Bytes asked for.
        found: usize,
    },
}

impl CommandError {
    /// The error of a command that the unit did not end with GOOD.
    pub(crate) fn of_status(cdb: &Cdb, status: ScsiStatus, sense: Option<Sense>) -> Self {
        match status {
            ScsiStatus::CheckCondition => {
                Self::CheckCondition { command: cdb.name(), sense, advice: advice(cdb, sense).to_owned() }
            }
            status => Self::Status { command: cdb.name(), status },
        }
    }

    /// The error of an E4 that moved `found` of `expected` bytes: which firmware does that.
    pub(super) const fn of_short_xdata(expected: usize, found: usize) -> Self {
        let meaning = match found {
            // Stock firmware looks at CDB byte 1 alone.
            _ if expected > 255 && found == expected & 0xFF => {
                "the running firmware takes E4's length as one byte; read at most 255 bytes a command, or patch it with \
                 e4-length-16"
            }
            // One packet at high speed, one at SuperSpeed.
            512 | 1024 => {
                "the running firmware hands the whole answer to the USB controller at once, and the controller sent one \
                 packet of it; read at most 255 bytes a command, or patch and flash it again with this asmpatch's \
                 e4-length-16, which goes packet by packet"
            }
            _ => "what arrived can't be trusted; run the command again, and try another cable and port if it stays",
        };
        Self::ShortXdata { expected, found, meaning }
    }

    /// The sense data, where the unit refused.
    pub const fn sense(&self) -> Option<Sense> {
        match self {
            Self::CheckCondition { sense, .. } => *sense,
            _ => None,
        }
    }
}

/// What a unit's sense means for this command, and what to do about it.
fn advice(cdb: &Cdb, sense: Option<Sense>) -> &'static str {
    let Some(sense) = sense else {
        return "run the command again; if it stays, unplug the unit, wait five seconds and plug it in again";
    };
    let is_flash = matches!(cdb.opcode(), opcode::CONFIG_READ..=opcode::FLASH_WRITE);
    match (sense.key, sense.asc, sense.ascq) {
        (SenseKey::ILLEGAL_REQUEST, 0x20, _) => {
            "what runs on the unit does not know this command; `asmpatch list` tells what runs there"
        }
        (SenseKey::ILLEGAL_REQUEST, 0x24, _) if cdb.opcode() == opcode::XDATA_READ => {
            "this firmware reads at most 255 bytes a command, or 4,096 with the length extension (patch e4-length-16)"
        }
        (SenseKey::ILLEGAL_REQUEST, 0x24, _) => {
            "this firmware does not take these parameters; `asmpatch list` tells what runs on the unit"
        }
        (SenseKey::ILLEGAL_REQUEST, 0x21, _) => "the address is past the end of the medium",
        (SenseKey::MEDIUM_ERROR, _, _) if is_flash => {
            "the unit's SPI flash does not answer as it should: do not unplug the unit, run the command again, and see \
             docs/recovery.md"
        }
        (SenseKey::MEDIUM_ERROR, _, _) => "the medium behind the bridge failed",
        (SenseKey::NOT_READY, 0x3A, _) => "nothing that holds data is behind the bridge",
        (SenseKey::NOT_READY, _, _) => "the unit is still starting: wait a few seconds and run the command again",
        (SenseKey::UNIT_ATTENTION, _, _) => "the unit was reset since the last command: run the command again",
        (SenseKey::HARDWARE_ERROR, _, _) => "the unit reports a hardware fault: unplug it, wait, plug it in again",
        _ => "run the command again; if it stays, unplug the unit, wait five seconds and plug it in again",
    }
}

impl Failure for CommandError {
    fn exit(&self) -> Exit {
        Exit::Device
    }
}
