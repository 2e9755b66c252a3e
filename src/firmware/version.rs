//! The firmware's version: six BCD bytes at CPU address 0x0200.

use std::fmt;

/// A version as the vendor writes it: `240417.85.00.00`. The bytes are BCD, so they print as hexadecimal.
///
/// Source: cyrozap's notes on the ASM2x6x family; read out of image 240417.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FirmwareVersion(pub [u8; 6]);

impl fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [year, month, day, a, b, c] = self.0;
        write!(f, "{year:02X}{month:02X}{day:02X}.{a:02X}.{b:02X}.{c:02X}")
    }
}
