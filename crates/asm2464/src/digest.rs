//! SHA-256 digests, and bytes in hexadecimal.

use std::fmt;
use std::str::FromStr;

use derive_more::Display;
#[cfg(feature = "digests")]
use sha2::{Digest, Sha256};

use crate::ParseError;
use crate::serde_text::{serde_as_text, text_schema};

/// A SHA-256 digest. It identifies an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[display("{}", to_hex(_0, ""))]
pub struct Sha256Digest(pub [u8; 32]);

#[cfg(feature = "digests")]
impl Sha256Digest {
    /// Computes the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Parses hexadecimal bytes, in upper or lower case.
///
/// # Errors
/// A character is not a hexadecimal digit, or the number of digits is odd.
pub fn parse_hex(text: &str) -> Result<Vec<u8>, ParseError> {
    if let Some((at, found)) = text.chars().enumerate().find(|(_, c)| !c.is_ascii_hexdigit()) {
        return Err(ParseError(format!("'{found}' at position {at} is not a hexadecimal digit")));
    }
    if !text.len().is_multiple_of(2) {
        return Err(ParseError(format!("odd number of hexadecimal digits: {}", text.len())));
    }
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
    Ok(text.as_bytes().chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect())
}

/// Formats bytes as hexadecimal digits, with `between` between two bytes: nothing, or a space.
pub fn to_hex(bytes: &[u8], between: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Sha256Digest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = |_| ParseError(format!("{} hexadecimal digits, expected 64", text.len()));
        parse_hex(text)?.try_into().map(Self).map_err(wrong)
    }
}

serde_as_text!(Sha256Digest);
text_schema!(Sha256Digest, "^[0-9a-f]{64}$", "A SHA-256 in hexadecimal.");

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "digests")]
    #[test]
    fn the_digest_of_the_published_test_vector() {
        // FIPS 180-2.
        assert_eq!(
            Sha256Digest::of(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn bad_hexadecimal_says_what_is_wrong() {
        let refused = |text: &str| text.parse::<Sha256Digest>().unwrap_err().to_string();
        assert_eq!(refused("abc"), "odd number of hexadecimal digits: 3");
        assert_eq!(refused("abcd"), "4 hexadecimal digits, expected 64");
        assert_eq!(refused("abxd"), "'x' at position 2 is not a hexadecimal digit");
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
            let _ = text.parse::<Sha256Digest>();
        }
    }
}
