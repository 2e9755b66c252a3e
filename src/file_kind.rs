//! What a file is, by its bytes. Pure.
//!
//! Users name files of many kinds where a command expects one: an archive for an image, an image for code, a copy of the
//! flash for a backup. [`FileKind::of`] is the one look at a file. Each command takes the kinds that it can use, and says
//! of every other what it is and which command takes it.

use asm2464::firmware::{
    BANK_LEN, BlockIndex, COMMON_LEN, CONFIG_BLOCK_LEN, ConfigBlock, FirmwareVersion, Image, MAX_BODY_LEN,
    MAX_FILE_LEN, MIN_BODY_LEN, TRAILER_LEN,
};
use asm2464::flash::CONFIG_LEN;
use asm2464_chip::code::{CodeFormat, TextKind};
use derive_more::Display;

use crate::fetch::Manifest;
use crate::flash::flash_copy::FlashCopy;
use crate::patch::{Patch, Receipt};

/// The most bytes of a file that are looked at: one more than the largest flash has, which a 24-bit address reaches.
pub const MAX_LOOKED_AT: usize = 0x100_0001;

/// The longest body that the common area and both banks hold, in bytes.
const MAX_CODE_LEN: usize = (COMMON_LEN + 2 * BANK_LEN) as usize;
/// LJMP, with which the code of every known image begins.
const LJMP: u8 = 0x02;

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum FileKind {
    /// An image with a valid container.
    #[display("an image")]
    Image(Image),
    /// An image's length field and code, but no valid container.
    #[display("a damaged image")]
    DamagedImage,
    /// An image's body without the container. Older builds of open firmware have the trailer, but no length field.
    #[display("an image's code without its container")]
    Body(Image),
    /// A copy of a flash, or of its beginning.
    #[display("{}", _0.extent())]
    Flash(FlashCopy),
    /// An image or a copy of a flash with its bytes in another order.
    #[display("{what} whose bytes are swapped in groups of {group}")]
    Swapped {
        /// What it is in the right order.
        what: &'static str,
        /// Bytes of a group.
        group: usize,
    },
    /// Intel HEX or ELF.
    #[display("{_0}")]
    Code(CodeFormat),
    /// What a compiler writes beside the code, or a configuration block without its page.
    #[display("{_0}")]
    Object(&'static str),
    /// A zip archive.
    #[display("a zip archive")]
    Zip,
    /// Any other archive.
    #[display("{_0}")]
    Archive(&'static str),
    /// A program for Windows, such as a vendor's updater.
    #[display("a Windows program")]
    Program,
    /// A library or a driver for Windows.
    #[display("a Windows library")]
    Library,
    /// The receipt of a patched image.
    #[display("the receipt of an image")]
    Receipt,
    /// A patch.
    #[display("a patch")]
    Patch,
    /// The manifest of a known image.
    #[display("the manifest of an image")]
    Manifest,
    /// The list of what is in a backup.
    #[display("the list of a backup")]
    BackupList,
    /// The report of `asmpatch doctor`.
    #[display("a report of `asmpatch doctor`")]
    Report,
    /// A capture of USB traffic.
    #[display("a capture of USB traffic")]
    Capture,
    /// A picture or a document.
    #[display("{_0}")]
    Document(&'static str),
    /// Any other text.
    #[display("{_0}")]
    Text(TextKind),
    /// Nothing.
    #[display("an empty file")]
    Empty,
    /// One byte, 00 or FF, over and over: an erased flash, or a read that failed.
    #[display("a file in which every byte is {_0:02X}")]
    Blank(u8),
    /// Nothing that is recognised: raw code, perhaps.
    #[display("another kind of file")]
    Unknown,
}

/// The first bytes of archives other than zip.
const ARCHIVES: [(&[u8], &str); 9] = [
    (b"7z\xBC\xAF\x27\x1C", "a 7z archive"),
    (b"Rar!\x1A\x07", "a RAR archive"),
    (b"\x1F\x8B\x08", "a gzip file"),
    (b"\xFD7zXZ\0", "an xz file"),
    (b"BZh", "a bzip2 file"),
    (b"\x28\xB5\x2F\xFD", "a zstd file"),
    (b"MSCF\0\0\0\0", "a cabinet file"),
    (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "a Windows installer or an Office document"),
    (b"xar!", "an xar archive"),
];

/// The first bytes of captures: pcapng, and pcap in both orders, with microseconds and nanoseconds.
const CAPTURES: [&[u8]; 5] =
    [b"\x0A\x0D\x0D\x0A", b"\xD4\xC3\xB2\xA1", b"\xA1\xB2\xC3\xD4", b"\x4D\x3C\xB2\xA1", b"\xA1\xB2\x3C\x4D"];

/// The first bytes of pictures, documents and other systems' programs.
const DOCUMENTS: [(&[u8], &str); 7] = [
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n", "a picture"),
    (b"\xFF\xD8\xFF", "a picture"),
    (b"GIF8", "a picture"),
    (b"\xCF\xFA\xED\xFE", "a program for macOS"),
    (b"\xCA\xFE\xBA\xBE", "a program for macOS or Java"),
    (b"SQLite format 3\0", "a database"),
];

impl FileKind {
    /// Recognises a file by its bytes, or by the first [`MAX_LOOKED_AT`] of them.
    pub fn of(file: &[u8]) -> Self {
        let Some(&first) = file.first() else { return Self::Empty };
        if let Ok(image) = Image::parse(file) {
            return Self::Image(image);
        }
        if matches!(first, 0x00 | 0xFF) && file.iter().all(|byte| *byte == first) {
            return Self::Blank(first);
        }
        if let Some(copy) = FlashCopy::of(file) {
            return Self::Flash(copy);
        }
        if is_misplaced_block(file) {
            return Self::Object("a configuration block that is not in its place");
        }
        if let Some(kind) = by_first_bytes(file) {
            return kind;
        }
        match CodeFormat::of(file) {
            CodeFormat::Raw => {}
            format => return Self::Code(format),
        }
        if let Some(kind) = by_text(file) {
            return kind;
        }
        if let Some(image) = body(file) {
            return Self::Body(image);
        }
        if is_damaged_image(file) {
            return Self::DamagedImage;
        }
        swapped(file).unwrap_or(Self::Unknown)
    }
}

/// Whether a file has a valid configuration block, and [`FlashCopy`] did not find it: block 1 alone, as in a backup, or
/// the two in the other order.
fn is_misplaced_block(file: &[u8]) -> bool {
    let is_block = |bytes: &[u8]| BlockIndex::ALL.into_iter().any(|index| ConfigBlock::parse(index, bytes).is_ok());
    file.len() <= CONFIG_LEN && file.chunks(CONFIG_BLOCK_LEN).any(is_block)
}

fn by_first_bytes(file: &[u8]) -> Option<FileKind> {
    if [b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"].iter().any(|magic| file.starts_with(*magic)) {
        return Some(FileKind::Zip);
    }
    if file.starts_with(b"MZ") {
        return Some(if is_library(file) { FileKind::Library } else { FileKind::Program });
    }
    if file.get(257..262) == Some(b"ustar") {
        return Some(FileKind::Archive("a tar archive"));
    }
    if file.starts_with(b"!<arch>\n") {
        return Some(FileKind::Object("a compiler's library"));
    }
    if is_omf51(file) {
        return Some(FileKind::Object("an object of Keil's tools"));
    }
    if CAPTURES.iter().any(|magic| file.starts_with(magic)) {
        return Some(FileKind::Capture);
    }
    let named = |list: &[(&[u8], &'static str)]| list.iter().find(|(magic, _)| file.starts_with(magic)).map(|it| it.1);
    named(&ARCHIVES).map(FileKind::Archive).or_else(|| named(&DOCUMENTS).map(FileKind::Document))
}

/// Whether a PE file is a library. Source: the PE format, "Characteristics": IMAGE_FILE_DLL.
fn is_library(file: &[u8]) -> bool {
    const DLL: u16 = 0x2000;
    let half = |at: usize| file.get(at..)?.first_chunk().copied().map(u16::from_le_bytes);
    let Some(pe) = file.get(0x3C..).and_then(|rest| rest.first_chunk().copied()).map(u32::from_le_bytes) else {
        return false;
    };
    let Some(at) = usize::try_from(pe).ok().and_then(|pe| pe.checked_add(22)) else { return false };
    half(at).is_some_and(|characteristics| characteristics & DLL != 0)
}

/// Whether a file begins with a module header of OMF-51: type 02, length, a name, and a sum of 0.
fn is_omf51(file: &[u8]) -> bool {
    let [0x02, low, high, rest @ ..] = file else { return false };
    let len = usize::from(u16::from_le_bytes([*low, *high]));
    let (Some(record), Some(&name_len)) = (rest.get(..len), rest.first()) else { return false };
    let Some(name) = record.get(1..=usize::from(name_len)) else { return false };
    let sum = file[..3 + len].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    sum == 0 && !name.is_empty() && name.iter().all(u8::is_ascii_graphic)
}

fn by_text(file: &[u8]) -> Option<FileKind> {
    let kind = TextKind::of(file)?;
    let Ok(text) = str::from_utf8(file) else { return Some(FileKind::Text(kind)) };
    if Receipt::parse("", text).is_ok() {
        return Some(FileKind::Receipt);
    }
    if Patch::parse("", text).is_ok() {
        return Some(FileKind::Patch);
    }
    if toml::from_str::<Manifest>(text).is_ok() {
        return Some(FileKind::Manifest);
    }
    if text.contains("\n[unit]\n") && text.contains("name = \"config-0.bin\"") {
        return Some(FileKind::BackupList);
    }
    // Reports of the first builds have a diagnosis in place of facts.
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    let is_report = has("schema") && has("tool") && (has("facts") || has("diagnosis"));
    if kind == TextKind::Json && is_report {
        return Some(FileKind::Report);
    }
    // What SDCC's tools write: objects begin with the radix and the areas, debugging information with its modules.
    let mut lines = text.lines().map(str::trim_end);
    let first = lines.next().unwrap_or_default();
    let is_radix =
        matches!(first.as_bytes(), [b'X' | b'D' | b'Q', b'H' | b'L'] | [b'X' | b'D' | b'Q', b'H' | b'L', b'2'..=b'4']);
    if is_radix && lines.next().is_some_and(|line| line.starts_with("H ")) {
        return Some(FileKind::Object("an object of SDCC"));
    }
    if first.starts_with("M:") {
        return Some(FileKind::Object("the debugging information of SDCC"));
    }
    if text.contains("ASxxxx Assembler") || text.contains("ASxxxx Linker") {
        return Some(FileKind::Object("a listing of SDCC"));
    }
    Some(FileKind::Text(kind))
}

/// Takes the body out of code that has no container: raw, or behind it a trailer that fits.
fn body(file: &[u8]) -> Option<Image> {
    if file.first() != Some(&LJMP) {
        return None;
    }
    if let Some(end) = file.len().checked_sub(TRAILER_LEN)
        && let Ok(image) = Image::from_body(file[..end].to_vec())
        && image.to_file().ends_with(&file[end..])
    {
        return Some(image);
    }
    if !(MIN_BODY_LEN..=MAX_CODE_LEN).contains(&file.len()) {
        return None;
    }
    let image = Image::from_body(file.to_vec()).ok()?;
    // Read as an image's length, the first instruction of open firmware would be more than fits. The vendor's would
    // not, but its version is where it is in a body.
    let has_version = |version: FirmwareVersion| version.has_date() && version.0[0] != 0;
    (length_field(file) > MAX_BODY_LEN || has_version(image.version())).then_some(image)
}

fn length_field(file: &[u8]) -> usize {
    file.first_chunk().map_or(0, |field| u32::from_le_bytes(*field) as usize)
}

/// Whether a file has a plausible length field before its code.
fn is_damaged_image(file: &[u8]) -> bool {
    let is_length = (MIN_BODY_LEN..=MAX_BODY_LEN).contains(&length_field(file));
    is_length && file.get(4) == Some(&LJMP) && file.len() <= 2 * MAX_FILE_LEN
}

/// Recognises a file that makes sense when the bytes of each group are in the other order.
fn swapped(file: &[u8]) -> Option<FileKind> {
    [2, 4].into_iter().find_map(|group| {
        let mut bytes = file.to_vec();
        bytes.chunks_exact_mut(group).for_each(<[u8]>::reverse);
        if Image::parse(&bytes).is_ok() {
            return Some(FileKind::Swapped { what: "an image", group });
        }
        FlashCopy::of(&bytes).map(|_| FileKind::Swapped { what: "a copy of a flash", group })
    })
}

#[cfg(test)]
mod tests {
    use asm2464_chip::practice;

    use super::*;
    use crate::flash::flash_copy::tests::dump;

    fn words(file: &[u8]) -> String {
        FileKind::of(file).to_string()
    }

    #[test]
    fn an_image_is_known_whole_damaged_and_without_its_container() {
        for image in [practice::image(), practice::open_image()] {
            let file = image.to_file();
            assert_eq!(FileKind::of(&file), FileKind::Image(image.clone()));
            assert_eq!(FileKind::of(&file[..file.len() / 2]), FileKind::DamagedImage);
            assert_eq!(FileKind::of(image.body()), FileKind::Body(image.clone()));
            assert_eq!(FileKind::of(&file[4..]), FileKind::Body(image));
        }
    }

    #[test]
    fn a_copy_of_a_flash_is_known_whole_in_part_and_with_swapped_bytes() {
        let whole = dump(&practice::image());
        assert_eq!(words(&whole), "a copy of a whole flash");
        assert_eq!(words(&whole[..0x100]), "the configuration page of a flash");
        assert_eq!(words(&whole[..0x8000]), "a copy of a part of a flash");
        assert_eq!(words(&whole[..0x80]), "a copy of a part of a flash");
        let misplaced = "a configuration block that is not in its place";
        assert_eq!(words(&whole[0x80..0x100]), misplaced);
        assert_eq!(words(&[&whole[0x80..0x100], &whole[..0x80]].concat()), misplaced);
        assert_eq!(words(&whole.repeat(2)), "a copy of a flash that is larger than a unit's");
        for group in [2, 4] {
            let mut bytes = whole.clone();
            bytes.chunks_exact_mut(group).for_each(<[u8]>::reverse);
            assert_eq!(words(&bytes), format!("a copy of a flash whose bytes are swapped in groups of {group}"));
        }
        assert_eq!(words(&[0xFF; 0x1000]), "a file in which every byte is FF");
        assert_eq!(words(b""), "an empty file");
    }

    #[test]
    fn files_that_are_no_code_are_named() {
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let mut library = vec![0; 0x100];
        library[..2].copy_from_slice(b"MZ");
        library[0x3C] = 0x80;
        library[0x96..0x98].copy_from_slice(&0x2102u16.to_le_bytes());
        let name = b"\x02\x06\x00\x03MOD\x00";
        let sum = name.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
        let keil = [name.as_slice(), &[sum]].concat();
        for (file, expected) in [
            (b"PK\x03\x04rest".as_slice(), "a zip archive"),
            (b"7z\xBC\xAF\x27\x1C", "a 7z archive"),
            (&tar, "a tar archive"),
            (b"MZ\0\0", "a Windows program"),
            (&library, "a Windows library"),
            (b"\x7FELF", "ELF"),
            (b":00000001FF\n", "Intel HEX"),
            (b"XH3\nH 2 areas 1 global symbols\nM main\n", "an object of SDCC"),
            (b"M:main\nF:G$main$0$0({2}DF,SV:S),Z,0,0,0,0,0\n", "the debugging information of SDCC"),
            (b"                ASxxxx Assembler V02.00\n  000000 02 04 00\n", "a listing of SDCC"),
            (&keil, "an object of Keil's tools"),
            (b"\x0A\x0D\x0D\x0A\x1C\0\0\0", "a capture of USB traffic"),
            (b"%PDF-1.7\n%\xE2\xE3", "a PDF document"),
            (b"{\n  \"schema\": 6,\n  \"tool\": \"1\",\n  \"diagnosis\": {}\n}", "a report of `asmpatch doctor`"),
            (b"{\n  \"facts\": {},\n  \"schema\": 7,\n  \"tool\": \"1\"\n}", "a report of `asmpatch doctor`"),
            (b"an image goes here, some day", "text"),
            (b"\x75\x81\x60\x12", "another kind of file"),
        ] {
            assert_eq!(words(file), expected, "{}", String::from_utf8_lossy(file));
        }
        for (file, expected) in [("patches", "a patch"), ("firmware-manifests", "the manifest of an image")] {
            for (name, text) in crate::tests::repository(file) {
                assert_eq!(words(text.as_bytes()), expected, "{name}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_something(start in proptest::sample::select(vec![&b""[..], b"MZ", b"\x02", b"PK\x03\x04", b"M:", b":"]), rest: Vec<u8>) {
            let _ = words(&[start, &rest].concat());
        }
    }
}
