//! Code as compilers and assemblers write it: an image is made from raw bytes, Intel HEX or ELF ([`image_of_code`]), and
//! written as ELF for disassemblers ([`elf_of_image`]).
//!
//! Users mix files up, so a file that is text and no code is recognised first ([`TextKind`]), and the error names what it
//! is.

mod elf;

use asm2464::firmware::{BANK_LEN, Bank, COMMON_LEN, CodeAddress, Image, ImageError, MIN_BODY_LEN};
use derive_more::Display;
use ihex::Record;
use thiserror::Error;

pub use elf::{ElfFileError, ElfFunction, elf_address, elf_functions, elf_of_image, from_elf_address, loaded_pieces};

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

/// The text of an Intel HEX file, without the byte order mark that some editors write; `None` for another file.
fn hex_text(file: &[u8]) -> Option<&str> {
    let file = file.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(file);
    let text = str::from_utf8(file).ok()?;
    (text.is_ascii() && text.trim_start().starts_with(':')).then_some(text)
}

/// Reasons why no image can be made from a code file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodeFileError {
    /// The file is an image already.
    #[error("this is an image already: length, magic, checksum and CRC-32 are valid")]
    IsImage,
    /// The file is text.
    #[error("this looks like {0}, not like code")]
    Text(TextKind),
    /// The ELF file can't be read.
    #[error(transparent)]
    Elf(#[from] ElfFileError),
    /// The Intel HEX can't be read.
    #[error("line {line}: {reason}")]
    Hex {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The Intel HEX has no end-of-file record.
    #[error("the Intel HEX has no end-of-file record")]
    HexEnd,
    /// The code is at an address that no image byte has.
    #[error("the code at {address:#x}, {len} bytes, is outside the banks")]
    Outside {
        /// Its address.
        address: u64,
        /// Its length.
        len: usize,
    },
    /// Two pieces of code overlap. Holds the first byte that both have.
    #[error("two pieces of the code are at {0}")]
    Overlap(CodeAddress),
    /// There is no code at the reset vector.
    #[error("there is no code at address 0, where the CPU starts")]
    NoResetVector,
    /// The image would be too long.
    #[error(transparent)]
    Image(#[from] ImageError),
}

asm2464::coded!(CodeFileError {
    IsImage => BadInput "asm2464::wrap::is_image",
    Text => BadInput "asm2464::wrap::text",
    Elf(cause) => cause,
    Hex => BadInput "asm2464::wrap::hex",
    HexEnd => BadInput "asm2464::wrap::hex_end",
    Outside => BadInput "asm2464::wrap::outside",
    Overlap => BadInput "asm2464::wrap::overlap",
    NoResetVector => BadInput "asm2464::wrap::no_reset_vector",
    Image(cause) => cause,
});

/// Makes an image from the code in a file. Gaps between its pieces are filled with 0, and so is the end of an image
/// that would be too short.
///
/// Addresses are the CPU's; 0x18000 and up means bank 1, as SDCC writes banked code.
///
/// # Errors
/// [`CodeFileError`].
pub fn image_of_code(file: &[u8]) -> Result<Image, CodeFileError> {
    if file.is_empty() {
        return Err(ImageError::Empty.into());
    }
    if Image::parse(file).is_ok() {
        return Err(CodeFileError::IsImage);
    }
    let mut body = Body::default();
    match CodeFormat::of(file) {
        CodeFormat::Raw => match TextKind::of(file) {
            Some(kind) => return Err(CodeFileError::Text(kind)),
            None => body.put_raw(file)?,
        },
        CodeFormat::Elf => {
            loaded_pieces(file)?.into_iter().try_for_each(|(address, bytes)| body.put(address, bytes))?
        }
        CodeFormat::IntelHex => body.put_hex(file)?,
    }
    if !matches!(body.0.first(), Some(Some(_))) {
        return Err(CodeFileError::NoResetVector);
    }
    let len = body.0.len().max(MIN_BODY_LEN);
    body.0.resize(len, None);
    Ok(Image::from_body(body.0.into_iter().map(Option::unwrap_or_default).collect())?)
}

/// A body that is being filled piece by piece, with `None` for a byte that no piece has filled yet.
#[derive(Default)]
struct Body(Vec<Option<u8>>);

impl Body {
    /// Copies a piece to its address.
    fn put(&mut self, address: u64, piece: &[u8]) -> Result<(), CodeFileError> {
        let outside = || CodeFileError::Outside { address, len: piece.len() };
        for (offset, byte) in piece.iter().enumerate() {
            let at = address.checked_add(offset as u64).and_then(|at| from_elf_address(at, Bank::Common));
            let at = at.ok_or_else(outside)?;
            let index = at.body_offset().0 as usize;
            if index >= self.0.len() {
                self.0.resize(index + 1, None);
            }
            if self.0[index].replace(*byte).is_some() {
                return Err(CodeFileError::Overlap(at));
            }
        }
        Ok(())
    }

    /// Copies raw code, in which bank 1 follows bank 0 as it does in an image's body.
    fn put_raw(&mut self, file: &[u8]) -> Result<(), CodeFileError> {
        if file.len() > MAX_CODE_LEN {
            let address = 0x1_0000 + u64::from(COMMON_LEN + BANK_LEN);
            return Err(CodeFileError::Outside { address, len: file.len() - MAX_CODE_LEN });
        }
        self.0 = file.iter().copied().map(Some).collect();
        Ok(())
    }

    fn put_hex(&mut self, file: &[u8]) -> Result<(), CodeFileError> {
        let text = hex_text(file).unwrap_or_default();
        let mut base = 0;
        let mut has_ended = false;
        for (index, line) in text.lines().map(str::trim_end).enumerate().filter(|(_, line)| !line.is_empty()) {
            let wrong = |reason: String| CodeFileError::Hex { line: index + 1, reason };
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
        if has_ended { Ok(()) } else { Err(CodeFileError::HexEnd) }
    }
}

// Recognises files that are text and not code.

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
        assert_eq!(image_of_code(&code), Err(CodeFileError::Outside { address: 0x1_FF6B, len: 6 }));
    }

    #[test]
    fn the_same_code_raw_as_intel_hex_and_as_elf_makes_the_same_image() {
        let image = image_of_code(&code()).unwrap();
        assert_eq!((image.body(), CodeFormat::of(&code())), (code().as_slice(), CodeFormat::Raw));
        // The pieces in any order, with the gap left out.
        let text = hex(&[data(0x400, &code()[0x400..]), data(0, &code()[..3]), Record::EndOfFile]);
        assert_eq!((image_of_code(&text).as_ref(), CodeFormat::of(&text)), (Ok(&image), CodeFormat::IntelHex));
        let elf = elf_of_image(&image);
        assert_eq!((image_of_code(&elf).as_ref(), CodeFormat::of(&elf)), (Ok(&image), CodeFormat::Elf));
        assert_eq!(image_of_code(&image.to_file()), Err(CodeFileError::IsImage));
    }

    #[test]
    fn banked_code_goes_into_its_bank() {
        let practice = practice::image();
        assert_eq!(image_of_code(&elf_of_image(&practice)).as_ref(), Ok(&practice));
        let upper = Record::ExtendedLinearAddress(1);
        let text = hex(&[data(0, &[0x02]), upper, data(0x8000, &[0x22]), Record::EndOfFile]);
        let image = image_of_code(&text).unwrap();
        assert_eq!(image.code("b1:0x8000".parse().unwrap()), Some(0x22));
    }

    #[test]
    fn code_shorter_than_the_shortest_image_gets_zeros_behind_it() {
        let image = image_of_code(&[0x80, 0xFE]).unwrap();
        assert_eq!((image.body().len(), &image.body()[..3]), (MIN_BODY_LEN, &[0x80, 0xFE, 0][..]));
    }

    #[test]
    fn code_that_makes_no_image_is_refused_with_the_matching_error() {
        let refused = |records: &[Record]| image_of_code(&hex(records)).unwrap_err();
        let end = Record::EndOfFile;
        assert_eq!(refused(&[data(0x100, &[1]), end.clone()]), CodeFileError::NoResetVector);
        assert_eq!(refused(std::slice::from_ref(&end)), CodeFileError::NoResetVector);
        let overlap = refused(&[data(0, &[1, 2, 3]), data(2, &[4]), end.clone()]);
        assert!(matches!(overlap, CodeFileError::Overlap(at) if at.addr() == 2), "{overlap}");
        for outside in [vec![data(0xFF69, &[1, 2, 3])], vec![Record::ExtendedLinearAddress(2), data(0, &[1])]] {
            let records = [outside, vec![end.clone()]].concat();
            assert!(matches!(refused(&records), CodeFileError::Outside { .. }));
        }
        let mut text = hex(&[data(0, &[1, 2, 3]), end]);
        let cut = text[..text.len() - 13].to_vec();
        assert_eq!(image_of_code(&cut), Err(CodeFileError::HexEnd));
        text[10] ^= 1;
        assert!(matches!(image_of_code(&text), Err(CodeFileError::Hex { line: 1, .. })));
        assert_eq!(image_of_code(b""), Err(ImageError::Empty.into()));
        assert!(matches!(image_of_code(&vec![1; 0x2_0000]), Err(CodeFileError::Outside { address: 0x1_FF6B, .. })));
    }

    #[test]
    fn blank_lines_and_a_byte_order_mark_before_intel_hex_do_not_matter_and_text_is_no_code() {
        let text = hex(&[data(0, &code()[..3]), data(0x400, &code()[0x400..]), Record::EndOfFile]);
        for before in ["\n", "\u{FEFF}", "\u{FEFF}\r\n \n"] {
            let file = [before.as_bytes(), &text].concat();
            assert_eq!(image_of_code(&file).unwrap().body(), code(), "{before:?}");
        }
        let commented = [b"; made today\n", text.as_slice()].concat();
        assert_eq!(image_of_code(&commented), Err(CodeFileError::Text(TextKind::IntelHex)));
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
