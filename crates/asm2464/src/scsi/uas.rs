//! USB Attached SCSI's information units. Source: UAS-3 (T10/2095-D), clause 6.2.

use super::cdb::Cdb;
use super::sense::ScsiStatus;
use crate::ParseError;

/// Bytes in a command IU without an extended CDB.
pub const COMMAND_IU_LEN: usize = 32;
/// Bytes in a task management IU.
const TASK_IU_LEN: usize = 16;
/// Bytes in a sense IU before its sense data.
const SENSE_IU_HEADER_LEN: usize = 16;
/// Bytes in a response IU.
const RESPONSE_IU_LEN: usize = 8;
/// Bytes in a read-ready or write-ready IU.
const READY_IU_LEN: usize = 4;

/// The ID of a command IU.
pub const ID_COMMAND: u8 = 0x01;
/// The ID of a sense IU.
pub const ID_SENSE: u8 = 0x03;
/// The ID of a response IU.
pub const ID_RESPONSE: u8 = 0x04;
const ID_TASK: u8 = 0x05;
/// The ID of a read-ready IU.
pub const ID_READ_READY: u8 = 0x06;
/// The ID of a write-ready IU.
pub const ID_WRITE_READY: u8 = 0x07;

/// The response code for an invalid IU (UAS-3, table 20).
pub const RESPONSE_INVALID_IU: u8 = 0x02;

/// A command's tag. With streams it is also the stream ID on the status pipe and both data pipes; 0 names no stream.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

/// A command IU with the simple task attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandIu {
    /// The command's tag.
    pub tag: Tag,
    /// Logical unit number, single-level.
    pub lun: u8,
    /// The command, padded with zeros to 16 bytes.
    pub cdb: Cdb,
}

/// Task management function: ends one command (UAS-3, table 19).
pub const ABORT_TASK: u8 = 0x01;
/// Task management function: ends all commands of a logical unit (UAS-3, table 19).
pub const LOGICAL_UNIT_RESET: u8 = 0x08;

/// An IU on the command pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostIu {
    /// A command.
    Command(CommandIu),
    /// A task management request.
    Task {
        /// This IU's own tag.
        tag: Tag,
        /// The function, such as [`ABORT_TASK`].
        function: u8,
        /// The tag of the command to end.
        managed: Tag,
    },
}

/// An IU on the status pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusIu {
    /// A command has ended.
    Sense {
        /// Its tag.
        tag: Tag,
        /// Its status.
        status: ScsiStatus,
        /// Its sense data, as far as it arrived.
        sense: Vec<u8>,
    },
    /// A task management request has ended, or an IU was refused.
    Response {
        /// The tag that it answers.
        tag: Tag,
        /// The response code (UAS-3, table 20): 0 complete, 8 succeeded, others mean a refusal.
        code: u8,
    },
    /// The host may now read the data (high speed, which has no streams).
    ReadReady(Tag),
    /// The host may now send the data (high speed, which has no streams).
    WriteReady(Tag),
}

impl CommandIu {
    /// Encodes the 32 bytes on the wire.
    pub fn to_bytes(&self) -> [u8; COMMAND_IU_LEN] {
        let mut bytes = [0; COMMAND_IU_LEN];
        bytes[0] = ID_COMMAND;
        bytes[2..4].copy_from_slice(&self.tag.0.to_be_bytes());
        bytes[9] = self.lun;
        bytes[16..32].copy_from_slice(self.cdb.padded());
        bytes
    }
}

impl HostIu {
    /// Parses what a host sent on the command pipe; `None` if it is too short, or no IU of that pipe.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match *bytes.first()? {
            ID_COMMAND => {
                let bytes = bytes.first_chunk::<COMMAND_IU_LEN>()?;
                let cdb = Cdb::new(&bytes[16..32]).ok()?;
                Some(Self::Command(CommandIu { tag: tag_of(bytes), lun: bytes[9], cdb }))
            }
            ID_TASK => {
                let bytes = bytes.first_chunk::<TASK_IU_LEN>()?;
                let managed = Tag(u16::from_be_bytes([bytes[6], bytes[7]]));
                Some(Self::Task { tag: tag_of(bytes), function: bytes[4], managed })
            }
            _ => None,
        }
    }
}

impl StatusIu {
    /// Encodes the bytes on the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = |id: u8, tag: &Tag, len: usize| {
            let mut bytes = vec![0; len];
            bytes[0] = id;
            bytes[2..4].copy_from_slice(&tag.0.to_be_bytes());
            bytes
        };
        match self {
            Self::Sense { tag, status, sense } => {
                let mut bytes = head(ID_SENSE, tag, SENSE_IU_HEADER_LEN);
                bytes[6] = (*status).into();
                bytes[14..16].copy_from_slice(&(sense.len() as u16).to_be_bytes());
                bytes.extend_from_slice(sense);
                bytes
            }
            Self::Response { tag, code } => {
                let mut bytes = head(ID_RESPONSE, tag, RESPONSE_IU_LEN);
                bytes[7] = *code;
                bytes
            }
            Self::ReadReady(tag) => head(ID_READ_READY, tag, READY_IU_LEN),
            Self::WriteReady(tag) => head(ID_WRITE_READY, tag, READY_IU_LEN),
        }
    }

    /// Parses what a device sent on the status pipe.
    ///
    /// # Errors
    /// The IU is too short for its kind or for its sense data, or is no IU of that pipe.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let found = bytes.len();
        let id = bytes.first().copied().unwrap_or(0);
        let shortest = match id {
            ID_SENSE => SENSE_IU_HEADER_LEN,
            ID_RESPONSE => RESPONSE_IU_LEN,
            ID_READ_READY | ID_WRITE_READY => READY_IU_LEN,
            _ => 1,
        };
        if found < shortest {
            let wrong =
                format!("an information unit of kind {id:#04x} has at least {shortest} bytes; this has {found}");
            return Err(ParseError(wrong));
        }
        match id {
            ID_SENSE => {
                let claimed = u16::from_be_bytes([bytes[14], bytes[15]]);
                let carried = &bytes[SENSE_IU_HEADER_LEN..];
                let Some(sense) = carried.get(..claimed.into()) else {
                    let carried = carried.len();
                    let wrong = format!("the sense IU claims {claimed} bytes of sense data and carries {carried}");
                    return Err(ParseError(wrong));
                };
                Ok(Self::Sense { tag: tag_of(bytes), status: bytes[6].into(), sense: sense.to_vec() })
            }
            ID_RESPONSE => Ok(Self::Response { tag: tag_of(bytes), code: bytes[7] }),
            ID_READ_READY => Ok(Self::ReadReady(tag_of(bytes))),
            ID_WRITE_READY => Ok(Self::WriteReady(tag_of(bytes))),
            _ => Err(ParseError(format!("information unit {id:#04x} does not belong on this pipe"))),
        }
    }
}

fn tag_of(bytes: &[u8]) -> Tag {
    Tag(u16::from_be_bytes([bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn status_units_that_parse_survive_the_wire(bytes: Vec<u8>, id in 0u8..9) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() { *first = id; }
            if let Ok(unit) = StatusIu::parse(&bytes) {
                proptest::prop_assert_eq!(StatusIu::parse(&unit.to_bytes()), Ok(unit));
            }
        }

        #[test]
        fn commands_survive_the_wire(tag: u16, cdb: [u8; 16]) {
            let unit = CommandIu { tag: Tag(tag), lun: 0, cdb: Cdb::new(&cdb).unwrap() };
            proptest::prop_assert_eq!(HostIu::parse(&unit.to_bytes()), Some(HostIu::Command(unit)));
        }

        #[test]
        fn parsing_units_never_panics(bytes: Vec<u8>) {
            let _ = HostIu::parse(&bytes);
            let _ = StatusIu::parse(&bytes);
        }
    }
}
