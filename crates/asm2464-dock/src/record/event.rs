//! The events of a record, and how they are written: one line each.
//!
//! | line | event |
//! | --- | --- |
//! | `bulk 81 64` | up to 64 bytes are read from endpoint 0x81 |
//! | `bulk 02 3 0a0b0c` | three bytes are sent to endpoint 0x02 |
//! | `control c0e4f00700000600` | a control request, by its setup packet; data to the unit follow |
//! | `back 1 done 6 231204850000` | transfer 1, counted from 0, returned with 6 bytes; those from the unit follow |
//! | `refused 2 gone` | transfer 2 could not be submitted |
//! | `clear-halt 81 done`, `mass-storage-reset stall`, `reset-port done` | another action, and its outcome |
//!
//! Data are parts with `+` between them: bytes in hexadecimal; `00*512`, the byte 00 repeated 512 times;
//! `flash@100:65280`, 65280 bytes of the flash from address 0x100 on; `withheld:64`, 64 bytes that the record leaves
//! out.

use std::fmt;
use std::str::FromStr;

use asm2464::digest::{parse_hex, to_hex};
use asm2464::scsi::bot::{CBW_LEN, CommandBlockWrapper};
use asm2464_host::bridge::{Endpoint, PipeAction, PipeError, SETUP_LEN, TransferEnd};

use super::{MAX_TRANSFER, RecordError};

/// The length from which on equal bytes are written as a run, such as `00*8`.
const RUN: usize = 8;

/// Part of a transfer's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataPart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A byte, and how often it is repeated.
    Run(u8, usize),
    /// Bytes of the unit's flash: the address of the first one, and their number.
    Flash(usize, usize),
    /// A number of bytes that the record leaves out. From the unit they replay as zeros; to the unit any bytes match.
    Withheld(usize),
}

impl DataPart {
    /// Number of bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Run(_, len) | Self::Flash(_, len) | Self::Withheld(len) => *len,
        }
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The data of a transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Data(Vec<DataPart>);

impl Data {
    /// Data of these parts.
    pub fn of(parts: impl IntoIterator<Item = DataPart>) -> Self {
        Self(parts.into_iter().filter(|part| !part.is_empty()).collect())
    }

    /// Data of these bytes.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::of([match bytes {
            [first, .., _] if bytes.len() >= RUN && bytes.iter().all(|byte| byte == first) => {
                DataPart::Run(*first, bytes.len())
            }
            _ => DataPart::Bytes(bytes.to_vec()),
        }])
    }

    /// The parts.
    pub fn parts(&self) -> &[DataPart] {
        &self.0
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()))
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the bytes into a buffer of their length. `flash` holds the contents of the unit's flash.
    pub(super) fn fill(&self, buffer: &mut [u8], flash: &[u8]) {
        let mut rest = buffer;
        for part in &self.0 {
            let len = part.len().min(rest.len());
            let (into, after) = std::mem::take(&mut rest).split_at_mut(len);
            match part {
                DataPart::Bytes(bytes) => into.copy_from_slice(&bytes[..into.len()]),
                DataPart::Run(byte, _) => into.fill(*byte),
                DataPart::Flash(at, _) => {
                    into.fill(0xFF);
                    let known = flash.get(*at..).unwrap_or_default();
                    let len = known.len().min(into.len());
                    into[..len].copy_from_slice(&known[..len]);
                }
                DataPart::Withheld(_) => into.fill(0),
            }
            rest = after;
        }
    }

    /// Whether the bytes sent to the unit match this data of the record.
    pub(super) fn matches(&self, sent: &[u8], flash: &[u8]) -> bool {
        if self.len() != sent.len() {
            return false;
        }
        let mut expected = vec![0; sent.len()];
        self.fill(&mut expected, flash);
        let mut at = 0;
        self.0.iter().all(|part| {
            let range = at..at + part.len();
            at = range.end;
            matches!(part, DataPart::Withheld(_)) || expected[range.clone()] == sent[range]
        })
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("+")?;
            }
            match part {
                DataPart::Bytes(bytes) => f.write_str(&to_hex(bytes, ""))?,
                DataPart::Run(byte, len) => write!(f, "{byte:02x}*{len}")?,
                DataPart::Flash(at, len) => write!(f, "flash@{at:x}:{len}")?,
                DataPart::Withheld(len) => write!(f, "withheld:{len}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Data {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let length = |text: &str| text.parse().ok().filter(|len| *len <= MAX_TRANSFER).ok_or(());
        let part = |text: &str| {
            if let Some(len) = text.strip_prefix("withheld:") {
                return Ok(DataPart::Withheld(length(len)?));
            }
            if let Some((at, len)) = text.strip_prefix("flash@").and_then(|text| text.split_once(':')) {
                let at = u32::from_str_radix(at, 16).map_err(|_| ())?;
                return Ok(DataPart::Flash(at as usize, length(len)?));
            }
            if let Some((byte, len)) = text.split_once('*') {
                let byte = parse_hex(byte).ok().filter(|bytes| bytes.len() == 1).ok_or(())?;
                return Ok(DataPart::Run(byte[0], length(len)?));
            }
            Ok(DataPart::Bytes(parse_hex(text).map_err(|_| ())?))
        };
        let parts: Vec<DataPart> = text.split('+').map(part).collect::<Result<_, ()>>()?;
        Ok(Self::of(parts))
    }
}

/// How a transfer, or another action, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum End {
    /// It succeeded.
    #[display("done")]
    Done,
    /// The host cancelled it.
    #[display("cancelled")]
    Cancelled,
    /// The endpoint is halted, or endpoint 0 refused the request.
    #[display("stall")]
    Stall,
    /// The unit did not answer in time.
    #[display("timeout")]
    Timeout,
    /// The unit sent more data than requested.
    #[display("overflow")]
    Overflow,
    /// The unit was gone.
    #[display("gone")]
    Gone,
    /// Anything else.
    #[display("failed")]
    Failed,
}

impl End {
    const ALL: [Self; 7] =
        [Self::Done, Self::Cancelled, Self::Stall, Self::Timeout, Self::Overflow, Self::Gone, Self::Failed];

    /// The end that this error means.
    pub fn of_error(error: &PipeError) -> Self {
        match error {
            PipeError::Stall => Self::Stall,
            PipeError::Timeout => Self::Timeout,
            PipeError::Overflow => Self::Overflow,
            PipeError::Disconnected => Self::Gone,
            PipeError::NotRecorded(_) | PipeError::Other(_) => Self::Failed,
        }
    }

    /// How this transfer ended.
    pub fn of(end: &TransferEnd) -> Self {
        match end {
            TransferEnd::Completed => Self::Done,
            TransferEnd::Cancelled => Self::Cancelled,
            TransferEnd::Failed(error) => Self::of_error(error),
        }
    }

    /// How an action other than a transfer ended.
    pub fn of_action(outcome: &Result<(), PipeError>) -> Self {
        outcome.as_ref().map_or_else(Self::of_error, |()| Self::Done)
    }

    /// Returns it as the result of an action.
    pub(super) fn outcome(self) -> Result<(), PipeError> {
        Err(match self {
            Self::Done => return Ok(()),
            Self::Stall => PipeError::Stall,
            Self::Timeout | Self::Cancelled => PipeError::Timeout,
            Self::Overflow => PipeError::Overflow,
            Self::Gone => PipeError::Disconnected,
            Self::Failed => PipeError::Other("it failed when it was recorded".to_owned()),
        })
    }

    /// Returns it as the end of a transfer.
    pub(super) fn transfer(self) -> TransferEnd {
        match self {
            Self::Cancelled => TransferEnd::Cancelled,
            other => other.outcome().map_or_else(TransferEnd::Failed, |()| TransferEnd::Completed),
        }
    }
}

impl FromStr for End {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|end| end.to_string() == text).ok_or(())
    }
}

/// An event of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A bulk transfer was submitted.
    Bulk {
        /// Its endpoint.
        endpoint: Endpoint,
        /// How many bytes to send, or to receive at most.
        len: usize,
        /// The bytes to send.
        data: Data,
    },
    /// A control request was submitted.
    Control {
        /// Its setup packet.
        setup: [u8; SETUP_LEN],
        /// The bytes to send.
        data: Data,
    },
    /// A transfer returned.
    Returned {
        /// Its number: how many transfers were submitted before it in this opening.
        transfer: usize,
        /// Its end.
        end: End,
        /// Bytes moved.
        moved: usize,
        /// The bytes that came from the unit.
        data: Data,
    },
    /// The transfer just submitted was refused.
    Refused {
        /// Its number.
        transfer: usize,
        /// The reason.
        end: End,
    },
    /// An action other than a transfer.
    Done {
        /// The action.
        action: PipeAction,
        /// Its outcome.
        end: End,
    },
}

/// The command wrapper that this event of a record sends to the unit, if it sends one.
pub(super) fn recorded_command(event: &Event, flash: &[u8]) -> Option<CommandBlockWrapper> {
    let Event::Bulk { endpoint: Endpoint::DataOut, len: CBW_LEN, data } = event else { return None };
    let mut bytes = [0; CBW_LEN];
    data.fill(&mut bytes, flash);
    CommandBlockWrapper::parse(&bytes)
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = match self {
            Self::Bulk { endpoint, len, data } => {
                write!(f, "bulk {:02x} {len}", endpoint.address())?;
                data
            }
            Self::Control { setup, data } => {
                write!(f, "control {}", to_hex(setup, ""))?;
                data
            }
            Self::Returned { transfer, end, moved, data } => {
                write!(f, "back {transfer} {end} {moved}")?;
                data
            }
            Self::Refused { transfer, end } => return write!(f, "refused {transfer} {end}"),
            Self::Done { action, end } => {
                return match action {
                    PipeAction::ClearHalt(endpoint) => write!(f, "clear-halt {:02x} {end}", endpoint.address()),
                    PipeAction::MassStorageReset => write!(f, "mass-storage-reset {end}"),
                    PipeAction::ResetPort => write!(f, "reset-port {end}"),
                };
            }
        };
        if data.is_empty() { Ok(()) } else { write!(f, " {data}") }
    }
}

impl FromStr for Event {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        parse(text).ok_or_else(|| RecordError::Syntax(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<Event> {
    let words: Vec<&str> = text.split(' ').collect();
    let endpoint = |text: &str| match parse_hex(text).ok()?.as_slice() {
        [address] => Endpoint::from_address(*address),
        _ => None,
    };
    let length = |text: &str| text.parse::<usize>().ok().filter(|len| *len <= MAX_TRANSFER);
    let data = |words: &[&str]| match words {
        [] => Some(Data::default()),
        [data] => data.parse().ok(),
        _ => None,
    };
    Some(match words.as_slice() {
        ["bulk", address, len, rest @ ..] => {
            Event::Bulk { endpoint: endpoint(address)?, len: length(len)?, data: data(rest)? }
        }
        ["control", setup, rest @ ..] => {
            Event::Control { setup: parse_hex(setup).ok()?.try_into().ok()?, data: data(rest)? }
        }
        ["back", transfer, end, moved, rest @ ..] => Event::Returned {
            transfer: transfer.parse().ok()?,
            end: end.parse().ok()?,
            moved: length(moved)?,
            data: data(rest)?,
        },
        ["refused", transfer, end] => Event::Refused { transfer: transfer.parse().ok()?, end: end.parse().ok()? },
        ["clear-halt", address, end] => {
            Event::Done { action: PipeAction::ClearHalt(endpoint(address)?), end: end.parse().ok()? }
        }
        ["mass-storage-reset", end] => Event::Done { action: PipeAction::MassStorageReset, end: end.parse().ok()? },
        ["reset-port", end] => Event::Done { action: PipeAction::ResetPort, end: end.parse().ok()? },
        _ => return None,
    })
}
