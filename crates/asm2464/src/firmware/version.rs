//! The firmware's version: six BCD bytes at CPU address 0x0200.

use std::str::FromStr;

use derive_more::Display;

use crate::ParseError;
use crate::digest::parse_hex;
use crate::serde_text::{serde_as_text, text_schema};

/// A version as the vendor writes it: `240417.85.00.00`. The bytes are BCD, so they print as hexadecimal.
///
/// Source: cyrozap's notes on the ASM2x6x family; read out of image 240417.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[display("{:02X}{:02X}{:02X}.{:02X}.{:02X}.{:02X}", _0[0], _0[1], _0[2], _0[3], _0[4], _0[5])]
pub struct FirmwareVersion(pub [u8; 6]);

impl FirmwareVersion {
    /// Returns the last three bytes, the version's line: the chip maker's (85 00 00), or an enclosure maker's.
    pub const fn line(self) -> [u8; 3] {
        let [.., a, b, c] = self.0;
        [a, b, c]
    }

    /// Whether it begins with a date, as every version of the vendor's does. Other firmware has code at that address.
    pub const fn has_date(self) -> bool {
        const fn is_bcd(byte: u8) -> bool {
            byte >> 4 < 10 && byte & 0xF < 10
        }
        let [year, month, day, ..] = self.0;
        is_bcd(year) && is_bcd(month) && is_bcd(day) && matches!(month, 0x01..=0x12) && matches!(day, 0x01..=0x31)
    }

    /// Returns the version as part of a sentence: `version 240417.85.00.00`, or `no version`.
    pub fn words(self) -> String {
        if self.has_date() { format!("version {self}") } else { "no version".to_owned() }
    }
}

impl FromStr for FirmwareVersion {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError(format!("version {text:?} is not of the form 240417.85.00.00"));
        let parts: Vec<&str> = text.split('.').collect();
        if parts.iter().map(|part| part.len()).ne([6, 2, 2, 2]) {
            return Err(error());
        }
        let bytes = parse_hex(&parts.concat()).map_err(|_| error())?;
        bytes.try_into().map(Self).map_err(|_| error())
    }
}

serde_as_text!(FirmwareVersion);
text_schema!(FirmwareVersion, r"^[0-9A-F]{6}(\.[0-9A-F]{2}){3}$", "A firmware's version: its date, then its line.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_in_place_of_a_version_is_no_version() {
        assert_eq!(FirmwareVersion([0x24, 0x04, 0x17, 0x85, 0, 0]).words(), "version 240417.85.00.00");
        for code in [[0x83, 0xE0, 0xFA, 0x8B, 0, 0], [0x24, 0x13, 0x17, 0, 0, 0], [0; 6]] {
            assert_eq!(FirmwareVersion(code).words(), "no version");
        }
    }

    #[test]
    fn only_the_vendors_form_is_a_version() {
        assert_eq!("240417.85.00.00".parse(), Ok(FirmwareVersion([0x24, 0x04, 0x17, 0x85, 0, 0])));
        for bad in
            ["", "240417", "240417.85.00", "24041.785.00.00", "240417.8x.00.00", "240417.+5.00.00", "é40417.85.00.0"]
        {
            assert!(bad.parse::<FirmwareVersion>().is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_version_survives_its_text(bytes: [u8; 6]) {
            let version = FirmwareVersion(bytes);
            proptest::prop_assert_eq!(version.to_string().parse(), Ok(version));
        }
    }
}
