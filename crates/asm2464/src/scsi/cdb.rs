//! A command descriptor block: 1 to 16 bytes.

use std::fmt;

use super::opcode;
use crate::ParseError;
use crate::digest::to_hex;

/// A command descriptor block as it goes over the wire: 1 to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{}", to_hex(self.as_slice(), " "))]
pub struct Cdb {
    bytes: [u8; 16],
    len: u8,
}

impl Cdb {
    /// Makes a CDB from these bytes.
    ///
    /// # Errors
    /// There are none, or more than 16.
    pub fn new(cdb: &[u8]) -> Result<Self, ParseError> {
        if cdb.is_empty() || cdb.len() > 16 {
            return Err(ParseError(format!("a CDB has 1 to 16 bytes; this has {}", cdb.len())));
        }
        let mut bytes = [0; 16];
        bytes[..cdb.len()].copy_from_slice(cdb);
        Ok(Self { bytes, len: cdb.len() as u8 })
    }

    /// Makes a CDB of a length known to fit.
    pub const fn of<const N: usize>(cdb: [u8; N]) -> Self {
        const { assert!(N >= 1 && N <= 16) };
        let mut bytes = [0; 16];
        bytes.split_at_mut(N).0.copy_from_slice(&cdb);
        Self { bytes, len: N as u8 }
    }

    /// Returns the bytes, without padding.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the bytes, padded with zeros to 16, as a CBW and a command IU carry them.
    pub const fn padded(&self) -> &[u8; 16] {
        &self.bytes
    }

    /// Returns the operation code.
    pub const fn opcode(&self) -> u8 {
        self.bytes[0]
    }

    /// Returns the command's name for errors; its bytes, if asmpatch does not know the name.
    pub fn name(&self) -> String {
        match opcode_name(self.opcode()) {
            Some(name) => name.to_owned(),
            None => format!("the command {self}"),
        }
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cdb({self})")
    }
}

/// Returns the name of a command that asmpatch sends, by its operation code.
pub(super) const fn opcode_name(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        opcode::TEST_UNIT_READY => "TEST UNIT READY",
        opcode::REQUEST_SENSE => "REQUEST SENSE",
        opcode::INQUIRY => "INQUIRY",
        opcode::READ_CAPACITY_10 => "READ CAPACITY(10)",
        opcode::SERVICE_ACTION_IN_16 => "READ CAPACITY(16)",
        opcode::READ_16 => "READ(16)",
        opcode::WRITE_16 => "WRITE(16)",
        opcode::REPORT_LUNS => "REPORT LUNS",
        opcode::CONFIG_READ => "E0 (configuration read)",
        opcode::CONFIG_WRITE => "E1 (configuration write)",
        opcode::FLASH_READ => "E2 (flash read)",
        opcode::FLASH_WRITE => "E3 (firmware write)",
        opcode::XDATA_READ => "E4 (XDATA read)",
        opcode::XDATA_WRITE => "E5 (XDATA write)",
        opcode::NVME_ADMIN => "E6 (NVMe Identify)",
        opcode::RESET => "E8 (reset)",
        _ => return None,
    })
}
