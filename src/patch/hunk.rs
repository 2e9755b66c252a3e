//! Hunks: bytes that a patch replaces at an address.

use std::fmt;
use std::str::FromStr;

use asm2464::digest::parse_hex;
use asm2464::firmware::{BodyOffset, CodeAddress, FileOffset, MAX_FILE_LEN};
use derive_more::From;
use serde::{Deserialize, Deserializer, de};

/// Bytes that must be there, and the bytes that replace them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hunk {
    /// The address of the first byte.
    pub at: HunkAddress,
    /// The unpatched image's bytes there.
    #[serde(deserialize_with = "hex_bytes")]
    pub expect: Vec<u8>,
    /// The patched image's bytes, of the same number.
    #[serde(deserialize_with = "hex_bytes")]
    pub new: Vec<u8>,
    /// Where the first changed instruction begins, if that is not the hunk's first byte.
    #[serde(default)]
    pub instruction: Option<CodeAddress>,
    /// A note on the bytes, for people.
    #[serde(default)]
    pub note: Option<String>,
}

impl Hunk {
    /// Returns the bytes of the body that the hunk covers.
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = self.at.body_offset().0 as usize;
        start..start + self.expect.len()
    }
}

/// An address as an author writes it: `file:0x2A12` or `c:0x2A0E`. Both name a byte of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, From)]
pub struct HunkAddress(BodyOffset);

impl HunkAddress {
    /// Returns the offset from the start of the body.
    pub const fn body_offset(self) -> BodyOffset {
        self.0
    }

    /// Returns the offset from the start of the file.
    pub const fn file_offset(self) -> FileOffset {
        self.0.file_offset()
    }

    /// Returns the code address; `None` past the end of bank 1.
    pub const fn code_address(self) -> Option<CodeAddress> {
        self.0.code_address()
    }
}

/// Formats both views, whichever the author wrote: `c:0x2A0E (file 0x02a12)`.
impl fmt::Display for HunkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code_address() {
            Some(code) => write!(f, "{code} ({})", self.file_offset()),
            None => self.file_offset().fmt(f),
        }
    }
}

impl FromStr for HunkAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(offset) = text.strip_prefix("file:") else {
            return text
                .parse()
                .map(|code: CodeAddress| Self(code.body_offset()))
                .map_err(|error| format!("{error}; an offset in the file is written file:0x2A12"));
        };
        let digits = offset.strip_prefix("0x").or_else(|| offset.strip_prefix("0X"));
        let offset = digits
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .ok_or_else(|| format!("{text:?} is not of the form file:0x2A12"))
            .map(|digits| u32::from_str_radix(digits, 16).unwrap_or(u32::MAX))?;
        if offset as usize >= MAX_FILE_LEN {
            return Err(format!("{text:?} is past the end of the largest possible image, {MAX_FILE_LEN:#x} bytes"));
        }
        FileOffset(offset)
            .body_offset()
            .map(Self)
            .ok_or_else(|| format!("{text:?} is in the container's header, which asmpatch writes itself"))
    }
}

impl<'de> Deserialize<'de> for HunkAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Parses hexadecimal bytes. Long hunks are written in lines, so white space between digits is ignored.
fn hex_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text: String = String::deserialize(deserializer)?.split_ascii_whitespace().collect();
    parse_hex(&text).map_err(de::Error::custom)
}
