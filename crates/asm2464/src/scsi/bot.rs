//! Bulk-Only's wrappers: the CBW carries a command, the CSW its status.
//!
//! Source: USB Mass Storage Class, Bulk-Only Transport, revision 1.0, sections 5.1 and 5.2.

use super::cdb::Cdb;
use crate::ParseError;

/// Bytes in a command block wrapper.
pub const CBW_LEN: usize = 31;
/// Bytes in a command status wrapper.
pub const CSW_LEN: usize = 13;
/// dCBWSignature.
pub const CBW_SIGNATURE: [u8; 4] = *b"USBC";
/// dCSWSignature.
pub const CSW_SIGNATURE: [u8; 4] = *b"USBS";

/// The direction of the data, seen from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Device to host.
    In,
    /// Host to device.
    Out,
}

/// A command block wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandBlockWrapper {
    /// dCBWTag, which the CSW returns.
    pub tag: u32,
    /// dCBWDataTransferLength: bytes that the host expects to move.
    pub transfer_length: u32,
    /// bmCBWFlags bit 7. Has no meaning if the length is 0.
    pub direction: Direction,
    /// bCBWLUN, 0 to 15.
    pub lun: u8,
    /// The command.
    pub cdb: Cdb,
}

impl CommandBlockWrapper {
    /// Encodes the 31 bytes on the wire.
    pub fn to_bytes(&self) -> [u8; CBW_LEN] {
        let mut bytes = [0; CBW_LEN];
        bytes[0..4].copy_from_slice(&CBW_SIGNATURE);
        bytes[4..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.transfer_length.to_le_bytes());
        bytes[12] = if self.direction == Direction::In { 0x80 } else { 0x00 };
        bytes[13] = self.lun & 0x0F;
        bytes[14] = self.cdb.as_slice().len() as u8;
        bytes[15..31].copy_from_slice(self.cdb.padded());
        bytes
    }

    /// Parses and checks 31 bytes from the wire; `None` if they are not a valid and meaningful CBW (section 6.2). A
    /// device answers such bytes by stalling both endpoints (section 6.6.1).
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; CBW_LEN] = bytes.try_into().ok()?;
        if bytes[0..4] != CBW_SIGNATURE {
            return None;
        }
        let cdb_len = usize::from(bytes[14]);
        if bytes[12] & 0x7F != 0 || bytes[13] & 0xF0 != 0 || !(1..=16).contains(&cdb_len) {
            return None;
        }
        let cdb = Cdb::new(&bytes[15..15 + cdb_len]).ok()?;
        Some(Self {
            tag: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            transfer_length: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            direction: if bytes[12] & 0x80 != 0 { Direction::In } else { Direction::Out },
            lun: bytes[13],
            cdb,
        })
    }
}

/// bCSWStatus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CswStatus {
    /// The command passed.
    Passed = 0,
    /// REQUEST SENSE returns the reason.
    Failed = 1,
    /// Host and device disagree; only reset recovery helps.
    PhaseError = 2,
}

/// A command status wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandStatusWrapper {
    /// The tag of the CBW that it answers.
    pub tag: u32,
    /// dCSWDataResidue: how many of the expected bytes were not moved.
    pub residue: u32,
    /// How the command ended.
    pub status: CswStatus,
}

impl CommandStatusWrapper {
    /// Encodes the 13 bytes on the wire.
    pub fn to_bytes(&self) -> [u8; CSW_LEN] {
        let mut bytes = [0; CSW_LEN];
        bytes[0..4].copy_from_slice(&CSW_SIGNATURE);
        bytes[4..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.residue.to_le_bytes());
        bytes[12] = self.status as u8;
        bytes
    }

    /// Parses and checks 13 bytes from the wire. The caller has to check the tag.
    ///
    /// # Errors
    /// The bytes are no valid CSW. A host answers such bytes with reset recovery (section 6.3.1).
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Ok(bytes) = <&[u8; CSW_LEN]>::try_from(bytes) else {
            return Err(ParseError(format!("a CSW has {CSW_LEN} bytes; this has {}", bytes.len())));
        };
        let signature = &bytes[0..4];
        if signature != CSW_SIGNATURE {
            let wrong = format!("the CSW's signature is {signature:02x?}, expected the letters USBS");
            return Err(ParseError(wrong));
        }
        Ok(Self {
            tag: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            residue: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            status: match bytes[12] {
                0 => CswStatus::Passed,
                1 => CswStatus::Failed,
                2 => CswStatus::PhaseError,
                other => return Err(ParseError(format!("the CSW's status is {other:#04x}, expected 0, 1 or 2"))),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_cbw_survives_the_wire(tag: u32, len: u32, is_in: bool, lun in 0u8..16, cdb in proptest::collection::vec(0u8.., 1..=16)) {
            let direction = if is_in { Direction::In } else { Direction::Out };
            let cbw = CommandBlockWrapper { tag, transfer_length: len, direction, lun, cdb: Cdb::new(&cdb).unwrap() };
            proptest::prop_assert_eq!(CommandBlockWrapper::parse(&cbw.to_bytes()), Some(cbw));
        }

        #[test]
        fn a_csw_that_parses_prints_the_same_bytes(bytes: [u8; CSW_LEN]) {
            let mut bytes = bytes;
            bytes[0..4].copy_from_slice(b"USBS");
            if let Ok(csw) = CommandStatusWrapper::parse(&bytes) {
                proptest::prop_assert_eq!(csw.to_bytes(), bytes);
            }
        }

        #[test]
        fn parsing_wrappers_never_panics(bytes: Vec<u8>) {
            let _ = CommandBlockWrapper::parse(&bytes);
            let _ = CommandStatusWrapper::parse(&bytes);
        }
    }
}
