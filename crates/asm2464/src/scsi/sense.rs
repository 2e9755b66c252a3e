//! SCSI status and fixed-format sense data (SPC-4, 4.5).

use std::fmt;

/// Bytes of fixed-format sense data.
pub const SENSE_LEN: u8 = 18;

/// The status byte that ends a command (SAM-5, 5.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScsiStatus {
    /// 0x00.
    Good,
    /// 0x02: sense data gives the reason.
    CheckCondition,
    /// 0x08.
    Busy,
    /// Any other value.
    Other(u8),
}

impl From<u8> for ScsiStatus {
    fn from(byte: u8) -> Self {
        match byte {
            0x00 => Self::Good,
            0x02 => Self::CheckCondition,
            0x08 => Self::Busy,
            other => Self::Other(other),
        }
    }
}

impl From<ScsiStatus> for u8 {
    fn from(status: ScsiStatus) -> Self {
        match status {
            ScsiStatus::Good => 0x00,
            ScsiStatus::CheckCondition => 0x02,
            ScsiStatus::Busy => 0x08,
            ScsiStatus::Other(other) => other,
        }
    }
}

/// The sense key: the class of the error. Its value is 0 to 15.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SenseKey(pub u8);

impl SenseKey {
    /// 0.
    pub const NO_SENSE: Self = Self(0x0);
    /// 2.
    pub const NOT_READY: Self = Self(0x2);
    /// 3.
    pub const MEDIUM_ERROR: Self = Self(0x3);
    /// 4.
    pub const HARDWARE_ERROR: Self = Self(0x4);
    /// 5.
    pub const ILLEGAL_REQUEST: Self = Self(0x5);
    /// 6.
    pub const UNIT_ATTENTION: Self = Self(0x6);
    /// 0xB.
    pub const ABORTED_COMMAND: Self = Self(0xB);
}

impl fmt::Debug for SenseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SenseKey({:#x})", self.0)
    }
}

/// Sense key, additional sense code and its qualifier, written `5/24/00 (invalid field in CDB)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{:X}/{asc:02X}/{ascq:02X}{}", key.0, self.meaning().map(|text| format!(" ({text})")).unwrap_or_default())]
pub struct Sense {
    /// The class of the error.
    pub key: SenseKey,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
}

impl Sense {
    /// ILLEGAL REQUEST, INVALID FIELD IN CDB.
    pub const INVALID_FIELD_IN_CDB: Self = Self::new(SenseKey::ILLEGAL_REQUEST, 0x24, 0x00);
    /// ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
    pub const INVALID_OPCODE: Self = Self::new(SenseKey::ILLEGAL_REQUEST, 0x20, 0x00);
    /// NOT READY, MEDIUM NOT PRESENT.
    pub const MEDIUM_NOT_PRESENT: Self = Self::new(SenseKey::NOT_READY, 0x3A, 0x00);
    /// NO SENSE.
    pub const NONE: Self = Self::new(SenseKey::NO_SENSE, 0x00, 0x00);

    /// Whether it says that no medium is present (2/3A): a logical unit without an SSD. Any other NOT READY is an SSD
    /// that is not ready.
    pub fn is_no_medium(self) -> bool {
        self.key == SenseKey::NOT_READY && self.asc == Self::MEDIUM_NOT_PRESENT.asc
    }

    /// Creates sense data from the three numbers.
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq }
    }

    /// Parses fixed (0x70, 0x71) or descriptor (0x72, 0x73) format; `None` for anything else, or if it is too short.
    pub fn parse(data: &[u8]) -> Option<Self> {
        match data.first()? & 0x7F {
            0x70 | 0x71 => {
                let key = SenseKey(data.get(2)? & 0x0F);
                // A device may cut fixed-format sense short: byte 7 counts the bytes that follow.
                let asc = data.get(12).copied().unwrap_or(0);
                let ascq = data.get(13).copied().unwrap_or(0);
                Some(Self { key, asc, ascq })
            }
            0x72 | 0x73 => Some(Self { key: SenseKey(data.get(1)? & 0x0F), asc: *data.get(2)?, ascq: *data.get(3)? }),
            _ => None,
        }
    }

    /// Encodes the 18 bytes of fixed-format current sense.
    pub const fn to_fixed(self) -> [u8; SENSE_LEN as usize] {
        let mut data = [0; SENSE_LEN as usize];
        data[0] = 0x70;
        data[2] = self.key.0;
        data[7] = 10;
        data[12] = self.asc;
        data[13] = self.ascq;
        data
    }

    /// Returns the standard's name for this sense, if asmpatch knows it.
    pub const fn meaning(self) -> Option<&'static str> {
        Some(match (self.key.0, self.asc, self.ascq) {
            (0x0, 0x00, 0x00) => "no sense",
            (0x2, 0x04, _) => "not ready",
            (0x2, 0x3A, _) => "medium not present",
            (0x3, 0x11, _) => "unrecovered read error",
            (0x3, 0x03, _) => "peripheral device write fault",
            (0x5, 0x20, 0x00) => "invalid command operation code",
            (0x5, 0x21, 0x00) => "logical block address out of range",
            (0x5, 0x24, 0x00) => "invalid field in CDB",
            (0x6, 0x29, _) => "power on, reset or bus device reset occurred",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn sense_survives_its_fixed_format(key in 0u8..16, asc: u8, ascq: u8) {
            let sense = Sense::new(SenseKey(key), asc, ascq);
            proptest::prop_assert_eq!(Sense::parse(&sense.to_fixed()), Some(sense));
        }

        #[test]
        fn parsing_sense_never_panics(data: Vec<u8>) {
            let _ = Sense::parse(&data);
        }
    }
}
