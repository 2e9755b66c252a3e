//! Code as compilers and assemblers write it: an image is made from raw bytes, Intel HEX or ELF ([`image_of_code`]), and
//! written as ELF for disassemblers ([`elf_of_image`]).
//!
//! Users mix files up, so a file that is text and no code is recognised first ([`TextKind`]), and the error names what it
//! is.

mod elf;

use std::borrow::Cow;

use asm2464::firmware::{BANK_LEN, Bank, COMMON_LEN, Image};
use asm2464::{Failure, Kind, text};
use derive_more::Display;
use ihex::Record;

pub use elf::{
    ElfFunction, elf_address, elf_functions, elf_of_image, foreign_machine, from_elf_address, loaded_pieces,
};

/// The longest code in bytes: the common area and both banks.
const MAX_CODE_LEN: usize = (COMMON_LEN + 2 * BANK_LEN) as usize;

/// The format of a code file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CodeFormat {
    /// The bytes of the code from address 0 on.
    #[display("raw code")]
    Raw,
    /// Intel HEX, as SDCC's linker writes it.
    #[display("Intel HEX")]
    IntelHex,
    /// ELF for EM_8051.
    #[display("ELF")]
    Elf,
}

impl CodeFormat {
    /// Detects a file's format from its content.
    pub fn of(file: &[u8]) -> Self {
        if file.starts_with(b"\x7FELF") {
            Self::Elf
        } else if hex_text(file).is_some() {
            Self::IntelHex
        } else {
            Self::Raw
        }
    }
}

/// The text of an Intel HEX file; `None` for another file.
fn hex_text(file: &[u8]) -> Option<Cow<'_, str>> {
    let text = text::decode(file).ok()?;
    (text.is_ascii() && text.trim_start().starts_with(':')).then_some(text)
}

/// Makes an image from the code in a file. Gaps between its pieces are filled with 0.
///
/// Addresses are the CPU's; 0x18000 and up means bank 1, as SDCC writes banked code.
///
/// # Errors
/// The file is no code, or code outside the banks, with codes that begin with `asm2464::wrap::` or `asm2464::elf::`.
pub fn image_of_code(file: &[u8]) -> Result<Image, Failure> {
    match Image::parse(file) {
        Ok(_) => {
            let message = "this is an image already: length, magic, checksum and CRC-32 are valid";
            return Err(Failure::new(Kind::BadInput.code("asm2464::wrap::is_image"), message));
        }
        Err(error) if file.is_empty() => return Err(error),
        Err(_) => {}
    }
    let mut body = Body::default();
    match CodeFormat::of(file) {
        CodeFormat::Raw => match TextKind::of(file) {
            Some(kind) => {
                let message = format!("this looks like {kind}, not like code");
                return Err(Failure::new(Kind::BadInput.code("asm2464::wrap::text"), message));
            }
            None => body.put_raw(file)?,
        },
        CodeFormat::Elf => {
            for (address, bytes) in loaded_pieces(file)? {
                body.put(address, bytes)?;
            }
        }
        CodeFormat::IntelHex => body.put_hex(file)?,
    }
    if !matches!(body.0.first(), Some(Some(_))) {
        let message = "there is no code at address 0, where the CPU starts";
        return Err(Failure::new(Kind::BadInput.code("asm2464::wrap::no_reset_vector"), message));
    }
    Image::from_body(body.0.into_iter().map(Option::unwrap_or_default).collect())
}

/// A body that is being filled piece by piece, with `None` for a byte that no piece has filled yet.
#[derive(Default)]
struct Body(Vec<Option<u8>>);

impl Body {
    /// Copies a piece to its address.
    fn put(&mut self, address: u64, piece: &[u8]) -> Result<(), Failure> {
        for (offset, byte) in piece.iter().enumerate() {
            let at = address.checked_add(offset as u64).and_then(|at| from_elf_address(at, Bank::Common));
            let at = at.ok_or_else(|| outside(address, piece.len()))?;
            let index = at.body_offset().0 as usize;
            if index >= self.0.len() {
                self.0.resize(index + 1, None);
            }
            if self.0[index].replace(*byte).is_some() {
                let message = format!("two pieces of the code are at {at}");
                return Err(Failure::new(Kind::BadInput.code("asm2464::wrap::overlap"), message));
            }
        }
        Ok(())
    }

    /// Copies raw code, in which bank 1 follows bank 0 as it does in an image's body.
    fn put_raw(&mut self, file: &[u8]) -> Result<(), Failure> {
        if file.len() > MAX_CODE_LEN {
            let address = 0x1_0000 + u64::from(COMMON_LEN + BANK_LEN);
            return Err(outside(address, file.len() - MAX_CODE_LEN));
        }
        self.0 = file.iter().copied().map(Some).collect();
        Ok(())
    }

    fn put_hex(&mut self, file: &[u8]) -> Result<(), Failure> {
        let text = hex_text(file).unwrap_or_default();
        let mut base = 0;
        let mut has_ended = false;
        for (index, line) in text.lines().map(str::trim_end).enumerate().filter(|(_, line)| !line.is_empty()) {
            let wrong = |reason: String| {
                let label = Kind::BadInput.code("asm2464::wrap::hex");
                Failure::new(label, format!("line {}: {reason}", index + 1))
            };
            if has_ended {
                return Err(wrong("a record follows the end-of-file record".to_owned()));
            }
            match Record::from_record_string(line).map_err(|error| wrong(error.to_string()))? {
                Record::Data { offset, value } => self.put(base + u64::from(offset), &value)?,
                Record::EndOfFile => has_ended = true,
                Record::ExtendedSegmentAddress(segment) => base = u64::from(segment) << 4,
                Record::ExtendedLinearAddress(high) => base = u64::from(high) << 16,
                Record::StartSegmentAddress { .. } | Record::StartLinearAddress(_) => {}
            }
        }
        if has_ended {
            return Ok(());
        }
        let message = "the Intel HEX has no end-of-file record";
        Err(Failure::new(Kind::BadInput.code("asm2464::wrap::hex_end"), message))
    }
}

/// The error of code at an address that no image byte has.
fn outside(address: u64, len: usize) -> Failure {
    let message = format!("the code at {address:#x}, {len} bytes, is outside the banks");
    Failure::new(Kind::BadInput.code("asm2464::wrap::outside"), message)
}

// Recognises files that are text and not code.

/// Minimum length of a file of text, in bytes. A shorter one may be code whose bytes happen to be characters.
const SHORTEST: usize = 16;

/// What a file of text looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum TextKind {
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
        let decoded = text::decode(file);
        let bytes = decoded.as_ref().map_or(file, |text| text.as_bytes());
        let is_text = |byte: &&u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n' | 0x0C);
        let text = bytes.iter().filter(is_text).count();
        (bytes.len() >= SHORTEST && text * 8 >= bytes.len() * 7).then(|| Self::of_text(&String::from_utf8_lossy(bytes)))
    }

    /// Whether a file that is shorter than [`TextKind::of`] looks at is text to its last character. Code that is so short
    /// may be, too.
    pub fn is_short_text(file: &[u8]) -> bool {
        let is_text = |c: char| !c.is_control() || c.is_whitespace();
        file.len() < SHORTEST && text::decode(file).is_ok_and(|text| text.chars().all(is_text))
    }

    fn of_text(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
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
    use asm2464::Coded as _;

    use super::*;
    use crate::practice;

    /// Code in the common area, with a gap.
    fn code() -> Vec<u8> {
        let mut code = vec![0; 0x420];
        code[..3].copy_from_slice(&[0x02, 0x04, 0x00]);
        code[0x400..].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8 | 1);
        code
    }

    fn hex(records: &[Record]) -> Vec<u8> {
        ihex::create_object_file_representation(records).unwrap().into_bytes()
    }

    fn data(offset: u16, bytes: &[u8]) -> Record {
        Record::Data { offset, value: bytes.to_vec() }
    }

    #[test]
    fn raw_code_ends_where_bank_1_does() {
        let mut code = vec![0x80; MAX_CODE_LEN];
        assert!(image_of_code(&code).is_ok());
        code.extend([0; 6]);
        let error = image_of_code(&code).unwrap_err().to_string();
        assert_eq!(error, "the code at 0x1ff6b, 6 bytes, is outside the banks");
    }

    #[test]
    fn the_same_code_raw_as_intel_hex_and_as_elf_makes_the_same_image() {
        let image = image_of_code(&code()).unwrap();
        assert_eq!((image.body(), CodeFormat::of(&code())), (code().as_slice(), CodeFormat::Raw));
        // The pieces in any order, with the gap left out.
        let text = hex(&[data(0x400, &code()[0x400..]), data(0, &code()[..3]), Record::EndOfFile]);
        assert_eq!((image_of_code(&text).unwrap(), CodeFormat::of(&text)), (image.clone(), CodeFormat::IntelHex));
        let elf = elf_of_image(&image);
        assert_eq!((image_of_code(&elf).unwrap(), CodeFormat::of(&elf)), (image.clone(), CodeFormat::Elf));
        assert_eq!(image_of_code(&image.to_file()).unwrap_err().code(), "asm2464::wrap::is_image");
    }

    #[test]
    fn banked_code_goes_into_its_bank() {
        let practice = practice::image();
        assert_eq!(image_of_code(&elf_of_image(&practice)).unwrap(), practice);
        let upper = Record::ExtendedLinearAddress(1);
        let text = hex(&[data(0, &[0x02]), upper, data(0x8000, &[0x22]), Record::EndOfFile]);
        let image = image_of_code(&text).unwrap();
        assert_eq!(image.code("b1:0x8000".parse().unwrap()), Some(0x22));
    }

    #[test]
    fn code_that_makes_no_image_is_refused_with_the_matching_error() {
        let refused = |file: &[u8]| image_of_code(file).unwrap_err().code();
        let end = Record::EndOfFile;
        assert_eq!(refused(&hex(&[data(0x100, &[1]), end.clone()])), "asm2464::wrap::no_reset_vector");
        assert_eq!(refused(&hex(std::slice::from_ref(&end))), "asm2464::wrap::no_reset_vector");
        let overlap = image_of_code(&hex(&[data(0, &[1, 2, 3]), data(2, &[4]), end.clone()])).unwrap_err();
        assert_eq!(overlap.to_string(), "two pieces of the code are at c:0x0002");
        for outside in [vec![data(0xFF69, &[1, 2, 3])], vec![Record::ExtendedLinearAddress(2), data(0, &[1])]] {
            let records = [outside, vec![end.clone()]].concat();
            assert_eq!(refused(&hex(&records)), "asm2464::wrap::outside");
        }
        let mut text = hex(&[data(0, &[1, 2, 3]), end]);
        let cut = text[..text.len() - 13].to_vec();
        assert_eq!(refused(&cut), "asm2464::wrap::hex_end");
        text[10] ^= 1;
        let hex = image_of_code(&text).unwrap_err();
        assert!(hex.code() == "asm2464::wrap::hex" && hex.to_string().starts_with("line 1: "), "{hex}");
        assert_eq!(refused(b""), "asm2464::image::empty");
        assert_eq!(refused(&vec![1; 0x2_0000]), "asm2464::wrap::outside");
    }

    #[test]
    fn blank_lines_and_a_byte_order_mark_before_intel_hex_do_not_matter_and_text_is_no_code() {
        let text = hex(&[data(0, &code()[..3]), data(0x400, &code()[0x400..]), Record::EndOfFile]);
        for before in ["\n", "\u{FEFF}", "\u{FEFF}\r\n \n"] {
            let file = [before.as_bytes(), &text].concat();
            assert_eq!(image_of_code(&file).unwrap().body(), code(), "{before:?}");
        }
        let utf16: Vec<u8> =
            [0xFEFF].into_iter().chain(text.iter().map(|c| u16::from(*c))).flat_map(u16::to_le_bytes).collect();
        assert_eq!(
            (image_of_code(&utf16).unwrap().body(), CodeFormat::of(&utf16)),
            (&code()[..], CodeFormat::IntelHex)
        );
        let commented = [b"; made today\n", text.as_slice()].concat();
        let error = image_of_code(&commented).unwrap_err().to_string();
        assert_eq!(error, "this looks like Intel HEX behind other text, not like code");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_make_an_image_or_an_error(bytes: Vec<u8>, text in ":[0-9A-F:\\n]{0,80}") {
            let _ = image_of_code(&bytes);
            let _ = image_of_code(text.as_bytes());
        }
    }

    #[test]
    fn text_is_distinguished_from_code_and_named() {
        let utf16: Vec<u8> = "\u{FEFF}{ \"schema\": 2 }\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (file, kind) in [
            (utf16.as_slice(), TextKind::Json),
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
