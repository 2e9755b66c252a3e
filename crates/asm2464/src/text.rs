//! Text as people's tools write it: UTF-8, or UTF-16, with its byte order mark as Windows PowerShell's `>` does, or
//! without; and numbers.

use std::borrow::Cow;

use crate::ParseError;

/// Decodes a file of text. Leaves out its byte order mark. UTF-16 without one shows itself by the zero beside its first
/// character, which no UTF-8 text has there (RFC 4627, section 3).
///
/// # Errors
/// The place of the first bytes that are no character.
pub fn decode(file: &[u8]) -> Result<Cow<'_, str>, ParseError> {
    match file {
        [0xFF, 0xFE, ..] => from_utf16(file, 2, u16::from_le_bytes).map(Cow::Owned),
        [0xFE, 0xFF, ..] => from_utf16(file, 2, u16::from_be_bytes).map(Cow::Owned),
        [b' '..=b'~', 0, ..] => from_utf16(file, 0, u16::from_le_bytes).map(Cow::Owned),
        [0, b' '..=b'~', ..] => from_utf16(file, 0, u16::from_be_bytes).map(Cow::Owned),
        _ => {
            let text = str::from_utf8(file).map_err(|error| {
                ParseError(format!("not UTF-8: the byte at offset {:#x} starts no character", error.valid_up_to()))
            })?;
            Ok(Cow::Borrowed(text.strip_prefix('\u{FEFF}').unwrap_or(text)))
        }
    }
}

/// Decodes UTF-16 from this offset of the file on.
fn from_utf16(file: &[u8], offset: usize, unit: fn([u8; 2]) -> u16) -> Result<String, ParseError> {
    let (units, half) = file[offset..].as_chunks::<2>();
    let wrong = |at: usize| ParseError(format!("not UTF-16: the bytes at offset {at:#x} are no character"));
    let mut text = String::with_capacity(units.len());
    let mut at = offset;
    for decoded in char::decode_utf16(units.iter().map(|bytes| unit(*bytes))) {
        let character = decoded.map_err(|_| wrong(at))?;
        text.push(character);
        at += 2 * character.len_utf16();
    }
    if half.is_empty() { Ok(text) } else { Err(wrong(at)) }
}

/// Parses a number, in decimal or, after `0x`, in hexadecimal. `None` if it is none, or has more than 64 bits.
pub fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        "\u{FEFF}".encode_utf16().chain(text.encode_utf16()).flat_map(bytes).collect()
    }

    #[test]
    fn utf_8_and_utf_16_of_both_orders_give_the_same_text_without_the_mark() {
        let text = "serial = \"Ä€𝄞\"\r\n";
        let marked = format!("\u{FEFF}{text}");
        let files = [text.into(), marked.into_bytes(), utf16(text, u16::to_le_bytes), utf16(text, u16::to_be_bytes)];
        for file in files {
            assert_eq!(decode(&file).unwrap(), text);
            if let [0xFE | 0xFF, _, unmarked @ ..] = file.as_slice() {
                assert_eq!(decode(unmarked).unwrap(), text);
            }
        }
        assert_eq!(decode(b"").unwrap(), "");
    }

    #[test]
    fn the_first_bytes_that_are_no_character_are_named() {
        let place = |file: &[u8]| decode(file).unwrap_err().to_string();
        assert_eq!(place(b"ab\xFFc"), "not UTF-8: the byte at offset 0x2 starts no character");
        // A lone half of a pair, and a lone byte.
        assert_eq!(place(b"\xFF\xFEa\0\x00\xD8b\0"), "not UTF-16: the bytes at offset 0x4 are no character");
        assert_eq!(place(b"\xFF\xFEa\0b"), "not UTF-16: the bytes at offset 0x4 are no character");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_text_or_an_error(bytes: Vec<u8>) {
            for mark in [&b""[..], b"\xFF\xFE", b"\xFE\xFF"] {
                let _ = decode(&[mark, &bytes].concat());
            }
        }
    }
}
