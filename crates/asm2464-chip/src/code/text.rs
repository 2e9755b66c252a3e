//! Recognises files that are text and not code.

use derive_more::Display;

/// Minimum length of a file of text, in bytes. A shorter one may be code whose bytes happen to be characters.
const SHORTEST: usize = 16;

/// What a file of text looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum TextKind {
    /// UTF-16, which PowerShell writes when it redirects output.
    #[display("text in UTF-16")]
    Utf16,
    /// Intel HEX behind other lines.
    #[display("Intel HEX behind other text")]
    IntelHex,
    /// S-records.
    #[display("Motorola S-records")]
    SRecords,
    /// Hexadecimal digits.
    #[display("a hex dump")]
    HexDump,
    /// HTML.
    #[display("a web page")]
    WebPage,
    /// JSON, such as the output of `--json`.
    #[display("JSON")]
    Json,
    /// C.
    #[display("C source")]
    C,
    /// Anything else.
    #[display("text")]
    Other,
}

impl TextKind {
    /// Recognises text by its bytes; `None` for what may be code. Of 8051 code, about a third are printable characters.
    pub fn of(file: &[u8]) -> Option<Self> {
        if file.starts_with(&[0xFF, 0xFE]) || file.starts_with(&[0xFE, 0xFF]) {
            let zeros = file.iter().filter(|byte| **byte == 0).count();
            return (zeros * 8 >= file.len() * 3).then_some(Self::Utf16);
        }
        let is_text = |byte: &&u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n' | 0x0C);
        let text = file.iter().filter(is_text).count();
        (file.len() >= SHORTEST && text * 8 >= file.len() * 7).then(|| Self::of_text(&String::from_utf8_lossy(file)))
    }

    fn of_text(text: &str) -> Self {
        let mut lines = text.trim_start_matches('\u{FEFF}').lines().map(str::trim).filter(|line| !line.is_empty());
        let is_record = |line: &str, start: char| {
            line.strip_prefix(start).is_some_and(|rest| rest.len() >= 8 && rest.bytes().all(|c| c.is_ascii_hexdigit()))
        };
        let lower = text.to_lowercase();
        if lower.contains("<!doctype html") || lower.contains("<html") {
            Self::WebPage
        } else if text.trim_start().starts_with('{') {
            Self::Json
        } else if lines.clone().next().is_some_and(|line| is_record(line, 'S')) {
            Self::SRecords
        } else if lines.clone().any(|line| is_record(line, ':')) {
            Self::IntelHex
        } else if ["#include", "#define", "void ", "/*"].iter().any(|word| text.contains(word)) {
            Self::C
        } else if lines.all(|line| line.bytes().all(|c| c.is_ascii_hexdigit() || c.is_ascii_whitespace() || c == b','))
        {
            Self::HexDump
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::practice;

    #[test]
    fn text_is_distinguished_from_code_and_named() {
        let utf16: Vec<u8> = "\u{FEFF}:00000001FF\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (file, kind) in [
            (utf16.as_slice(), TextKind::Utf16),
            (b"code.ihx\n:03000000020400F7\n:00000001FF\n", TextKind::IntelHex),
            (b"S00600004844521B\nS1060000020400F3\nS9030000FC\n", TextKind::SRecords),
            (b"02 04 00 7f 05 22 90 00\n12 e0 00\n", TextKind::HexDump),
            (b"<!DOCTYPE html><title>404</title>", TextKind::WebPage),
            (b"{\n  \"schema\": 2\n}\n", TextKind::Json),
            (b"#include <mcs51/8051.h>\nvoid main(void) {}\n", TextKind::C),
            (b"an image goes here, some day", TextKind::Other),
        ] {
            assert_eq!(TextKind::of(file), Some(kind), "{}", String::from_utf8_lossy(file));
        }
    }

    #[test]
    fn code_is_no_text() {
        for image in [practice::image(), practice::open_image()] {
            assert_eq!(TextKind::of(image.body()), None);
        }
        assert_eq!(TextKind::of(b"\"\"\""), None);
        // MOV R7,A; MOV R6,A.
        assert_eq!(TextKind::of(&[0xFF, 0xFE, 0x22]), None);
    }
}
