//! SHA-256 and MD5 digests, written in hexadecimal.

use std::fmt;
use std::str::FromStr;

use derive_more::Display;
#[cfg(feature = "digests")]
use md5::Md5;
#[cfg(feature = "digests")]
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::serde_text::{serde_as_text, text_schema};

/// A SHA-256 digest. It identifies an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[display("{}", to_hex(_0, ""))]
pub struct Sha256Digest(pub [u8; 32]);

/// An MD5 digest. Vendors and older tools publish it. It identifies a download, but does not protect it from
/// tampering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[display("{}", to_hex(_0, ""))]
pub struct Md5Digest(pub [u8; 16]);

#[cfg(feature = "digests")]
impl Sha256Digest {
    /// Computes the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

#[cfg(feature = "digests")]
impl Md5Digest {
    /// Computes the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Md5::digest(bytes).into())
    }
}

/// Reasons why a text is not a digest, or not hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseHexError {
    /// The number of digits is odd, but a byte has two.
    #[error("odd number of hexadecimal digits: {0}")]
    OddLength(usize),
    /// The text has the wrong number of digits.
    #[error("{found} hexadecimal digits, expected {expected}")]
    Length {
        /// How many digits were found.
        found: usize,
        /// How many digits a digest has.
        expected: usize,
    },
    /// A character is not a hexadecimal digit.
    #[error("'{found}' at position {at} is not a hexadecimal digit")]
    NotHex {
        /// The character.
        found: char,
        /// Its position in characters, from 0.
        at: usize,
    },
}

fn parse<const N: usize>(text: &str) -> Result<[u8; N], ParseHexError> {
    let bytes = parse_hex(text)?;
    <[u8; N]>::try_from(bytes).map_err(|_| ParseHexError::Length { found: text.len(), expected: 2 * N })
}

/// Parses hexadecimal bytes, in upper or lower case.
///
/// # Errors
/// [`ParseHexError::NotHex`] and [`ParseHexError::OddLength`].
pub fn parse_hex(text: &str) -> Result<Vec<u8>, ParseHexError> {
    if let Some((at, found)) = text.chars().enumerate().find(|(_, c)| !c.is_ascii_hexdigit()) {
        return Err(ParseHexError::NotHex { found, at });
    }
    if !text.len().is_multiple_of(2) {
        return Err(ParseHexError::OddLength(text.len()));
    }
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
    Ok(text.as_bytes().chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect())
}

/// Formats bytes as hexadecimal digits, with `between` between two bytes: nothing, or a space.
pub fn to_hex(bytes: &[u8], between: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
}

macro_rules! hexadecimal {
    ($type:ident) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl FromStr for $type {
            type Err = ParseHexError;

            fn from_str(text: &str) -> Result<Self, ParseHexError> {
                parse(text).map(Self)
            }
        }

        serde_as_text!($type);
    };
}

hexadecimal!(Sha256Digest);
hexadecimal!(Md5Digest);

text_schema!(Sha256Digest, "^[0-9a-f]{64}$", "A SHA-256 in hexadecimal.");
text_schema!(Md5Digest, "^[0-9a-f]{32}$", "An MD5 in hexadecimal.");

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "digests")]
    #[test]
    fn digests_of_the_published_test_vectors() {
        // RFC 1321 and FIPS 180-2.
        assert_eq!(Md5Digest::of(b"abc").to_string(), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(
            Sha256Digest::of(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn bad_hexadecimal_says_what_is_wrong() {
        assert_eq!("abc".parse::<Md5Digest>(), Err(ParseHexError::OddLength(3)));
        assert_eq!("abcd".parse::<Md5Digest>(), Err(ParseHexError::Length { found: 4, expected: 32 }));
        assert_eq!("abxd".parse::<Md5Digest>(), Err(ParseHexError::NotHex { found: 'x', at: 2 }));
    }

    proptest::proptest! {
        #[test]
        fn a_digest_survives_its_text(bytes: [u8; 32]) {
            let digest = Sha256Digest(bytes);
            proptest::prop_assert_eq!(digest.to_string().parse(), Ok(digest));
            proptest::prop_assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
        }

        #[test]
        fn parsing_any_text_never_panics(text: String) {
            let _ = text.parse::<Md5Digest>();
        }
    }
}
