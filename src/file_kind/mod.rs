//! What a file is, by its bytes. Pure.
//!
//! Users name files of many kinds where a command expects one: an archive for an image, an image for code, a copy of the
//! flash for a backup. [`FileKind::of`] is the one look at a file. Each command takes the kinds that it can use, and says
//! of every other what it is and which command takes it.
//!
//! What belongs to the chip and its tools is recognised here, everything else by `infer`.

pub mod flash_copy;
mod pointer;

use std::ops::RangeInclusive;

use asm2464::firmware::{
    BANK_LEN, BlockIndex, COMMON_LEN, CONFIG_BLOCK_LEN, ConfigBlock, Image, MAX_BODY_LEN, MAX_FILE_LEN, TRAILER_LEN,
    container_len, is_cut_off,
};
use asm2464::flash::{CONFIG_LEN, SECTOR_LEN};
use asm2464::text;
use asm2464_chip::code::{CodeFormat, TextKind, foreign_machine};
use derive_more::Display;
use infer::MatcherType;

use self::flash_copy::FlashCopy;
pub use self::pointer::{Pointer, PointerDigest, PointerTool};

/// The most bytes of a file that are looked at: one more than the largest flash has, which a 24-bit address reaches.
pub const MAX_LOOKED_AT: usize = 0x100_0001;
/// The longest text that asmpatch reads, in bytes: a longer one is none of its own files.
pub const MAX_TEXT: usize = 1 << 20;

/// The longest body that the common area and both banks hold, in bytes.
const MAX_CODE_LEN: usize = (COMMON_LEN + 2 * BANK_LEN) as usize;
/// Lengths of code that ends with the common area or in bank 0, in bytes: the CPU sees no more than the last with that
/// bank selected.
const BANK_0: RangeInclusive<usize> = COMMON_LEN as usize..=0x1_0000;
/// LJMP, with which the code of every known image begins.
const LJMP: u8 = 0x02;
/// The first bytes of an application of the open boot stub. Source: `handmade/BOOT_ABI.md` of tinygrad's
/// asm2464pd-firmware at 94304325, as what follows.
const BOOT_STUB_MAGIC: &[u8] = b"A24F";

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum FileKind {
    /// An image with a valid container.
    #[display("an image")]
    Image(Image),
    /// An image's length field and code, but no valid container.
    #[display("a damaged image")]
    DamagedImage,
    /// The beginning of an image, by its length field.
    #[display("an image that is cut off")]
    CutImage,
    /// An image's body without the container. Older builds of open firmware have the trailer, but no length field.
    #[display("an image's code without its container")]
    Body(Image),
    /// The beginning of such a body of the vendor's, which has two banks.
    #[display("bank 0's code without bank 1")]
    Bank0,
    /// The second bank of such a body.
    #[display("bank 1's code without bank 0 and what both share")]
    Bank1,
    /// An application that the open boot stub starts. It is linked for another address than an image's code.
    #[display("an application of the open boot stub")]
    BootStubApplication,
    /// A copy of a flash, or of its beginning.
    #[display("{}", _0.extent())]
    Flash(FlashCopy),
    /// An image or a copy of a flash with its bytes in another order.
    #[display("{kind} whose bytes are swapped in groups of {group}")]
    Swapped {
        /// What it is in the right order.
        kind: Box<FileKind>,
        /// Bytes of a group.
        group: usize,
    },
    /// Intel HEX or ELF.
    Code(CodeFormat),
    /// ELF for another processor than the chip's.
    #[display("ELF for {_0}")]
    ForeignElf(String),
    /// What a compiler writes beside the code, or a configuration block without its page.
    Object(&'static str),
    /// A zip archive.
    #[display("a zip archive")]
    Zip,
    /// Any other archive, by its usual ending.
    #[display("an archive ({_0})")]
    Archive(&'static str),
    /// A program for Windows, such as a vendor's updater.
    #[display("a Windows program")]
    Program,
    /// A library or a driver for Windows.
    Library(&'static str),
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
    /// A picture, a document or another system's program.
    #[display("{what} ({ending})")]
    Document {
        /// What it is.
        what: &'static str,
        /// Its usual ending.
        ending: &'static str,
    },
    /// What Git keeps in place of a file whose content is elsewhere.
    Pointer(Pointer),
    /// Any other text.
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

/// The first bytes of captures: pcapng, and pcap in both orders, with microseconds and nanoseconds.
const CAPTURES: [&[u8]; 5] =
    [b"\x0A\x0D\x0D\x0A", b"\xD4\xC3\xB2\xA1", b"\xA1\xB2\xC3\xD4", b"\x4D\x3C\xB2\xA1", b"\xA1\xB2\x3C\x4D"];

/// The endings of what `infer` takes for archives, though no files are in them.
const NO_ARCHIVES: [&str; 8] = ["dcm", "eot", "nes", "pdf", "ps", "rtf", "sqlite", "swf"];
/// The endings of what `infer` recognises by two bytes, with which code may begin.
const BY_TWO_BYTES: [&str; 7] = ["Z", "bc", "cpio", "der", "mp3", "obj", "ps"];

/// An image's bytes in a file that is padded behind it with FF, as an erased flash reads, or with 00. The length field
/// decides. Of any other file, all of it.
pub fn unpadded(file: &[u8]) -> &[u8] {
    let Some(len) = file.first_chunk().and_then(|field| container_len(*field)) else { return file };
    let Some((image, padding)) = file.split_at_checked(len) else { return file };
    let is_uniform = |fill| padding.iter().all(|byte| *byte == fill);
    if padding.is_empty() || len > MAX_FILE_LEN || !(is_uniform(0xFF) || is_uniform(0)) {
        return file;
    }
    if is_damaged_image(image) || Image::parse(image).is_ok() { image } else { file }
}

/// Code in a file that is filled with FF to whole sectors, as a programmer reads it. Of any other file, all of it.
pub fn unfilled(code: &[u8]) -> &[u8] {
    let end = code.iter().rposition(|byte| *byte != 0xFF).map_or(0, |last| last + 1);
    if end > 0 && code.len().is_multiple_of(SECTOR_LEN) { &code[..end] } else { code }
}

impl FileKind {
    /// Recognises a file by its bytes, or by the first [`MAX_LOOKED_AT`] of them.
    pub fn of(file: &[u8]) -> Self {
        let Some(&first) = file.first() else { return Self::Empty };
        let file = unpadded(file);
        if let Ok(image) = Image::parse(file) {
            // Some have put such an application into a container, too.
            return if is_boot_stub_application(image.body()) { Self::BootStubApplication } else { Self::Image(image) };
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
        if is_boot_stub_application(file) {
            return Self::BootStubApplication;
        }
        if is_damaged_image(file) {
            return if is_cut_off(file) { Self::CutImage } else { Self::DamagedImage };
        }
        if let Some(kind) = by_first_bytes(file) {
            return kind;
        }
        match CodeFormat::of(file) {
            CodeFormat::Raw => {}
            CodeFormat::Elf if let Some(machine) = foreign_machine(file) => return Self::ForeignElf(machine),
            format => return Self::Code(format),
        }
        if let Some(kind) = by_text(file) {
            return kind;
        }
        if let Some(kind) = body(file).or_else(|| body(unfilled(file))) {
            return kind;
        }
        if is_bank_1(file) {
            return Self::Bank1;
        }
        if TextKind::is_short_text(file) {
            return Self::Text(TextKind::Other);
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

/// Whether a file begins as an application of the boot stub. A hex dump may begin with the same letters.
fn is_boot_stub_application(file: &[u8]) -> bool {
    file.starts_with(BOOT_STUB_MAGIC) && TextKind::of(file).is_none()
}

fn by_first_bytes(file: &[u8]) -> Option<FileKind> {
    if is_omf51(file) {
        return Some(FileKind::Object("an object of Keil's tools"));
    }
    if CAPTURES.iter().any(|magic| file.starts_with(magic)) {
        return Some(FileKind::Capture);
    }
    // A skippable frame of zstd or lz4: where addresses have 32 bits, infer's sum of its lengths may overflow.
    if file.get(1..4) == Some(b"\x2A\x4D\x18") {
        return None;
    }
    let found = infer::get(file)?;
    let ending = found.extension();
    if BY_TWO_BYTES.contains(&ending) {
        return None;
    }
    let what = match (found.matcher_type(), ending) {
        (_, "zip") => return Some(FileKind::Zip),
        (_, "exe" | "dll") => return Some(program(file)),
        (_, "ar") => return Some(FileKind::Object("a compiler's library")),
        // ELF is code, and what text is, its words say.
        (_, "elf") | (MatcherType::Text, _) => return None,
        (MatcherType::Archive, ending) if !NO_ARCHIVES.contains(&ending) => return Some(FileKind::Archive(ending)),
        // The container of all of these.
        (_, "doc") => {
            return Some(FileKind::Document { what: "an installer or an Office document", ending: "msi, doc" });
        }
        (MatcherType::App, _) => "a program of another system",
        (MatcherType::Image, _) => "a picture",
        (MatcherType::Audio, _) => "a sound",
        (MatcherType::Video, _) => "a film",
        (MatcherType::Font, _) => "a font",
        _ => "a document",
    };
    Some(FileKind::Document { what, ending })
}

/// Recognises a program, a library or a driver by the headers of a PE file. Source: the PE format, "Characteristics":
/// IMAGE_FILE_DLL, and "Windows Subsystem": IMAGE_SUBSYSTEM_NATIVE.
fn program(file: &[u8]) -> FileKind {
    const DLL: u16 = 0x2000;
    const NATIVE: u16 = 1;
    let long = |at: usize| file.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
    let half = |at: usize| file.get(at..)?.first_chunk().copied().map(u16::from_le_bytes);
    let Some(pe) = long(0x3C).and_then(|at| usize::try_from(at).ok()) else { return FileKind::Program };
    if half(pe.saturating_add(92)) == Some(NATIVE) {
        return FileKind::Library("a Windows driver");
    }
    if half(pe.saturating_add(22)).is_some_and(|characteristics| characteristics & DLL != 0) {
        return FileKind::Library("a Windows library");
    }
    FileKind::Program
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
    let is_short = file.len() <= MAX_TEXT;
    let file = &file[..file.len().min(MAX_TEXT)];
    let kind = TextKind::of(file)?;
    let Ok(text) = text::decode(file) else { return Some(FileKind::Text(kind)) };
    if is_short && let Some(kind) = by_keys(&text) {
        return Some(kind);
    }
    if let Some(pointer) = Pointer::of(&text) {
        return Some(FileKind::Pointer(pointer));
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

/// Recognises asmpatch's own TOML by the keys that each kind must have. Whether the values are right is for the command
/// that takes it.
fn by_keys(text: &str) -> Option<FileKind> {
    let table: toml::Table = text.parse().ok()?;
    let has = |keys: &[&str]| keys.iter().all(|key| table.contains_key(*key));
    if has(&["tool", "input", "output"]) {
        Some(FileKind::Receipt)
    } else if has(&["id", "title", "purpose"]) {
        Some(FileKind::Patch)
    } else if has(&["id", "chip", "sha256"]) {
        Some(FileKind::Manifest)
    } else if has(&["format", "unit", "file"]) {
        Some(FileKind::BackupList)
    } else {
        None
    }
}

/// Recognises the code of an image without its container: raw, or behind it a trailer that fits.
fn body(file: &[u8]) -> Option<FileKind> {
    if file.first() != Some(&LJMP) {
        return None;
    }
    if let Some(end) = file.len().checked_sub(TRAILER_LEN)
        && let Ok(image) = Image::from_body(file[..end].to_vec())
        && image.to_file().ends_with(&file[end..])
    {
        return Some(FileKind::Body(image));
    }
    if file.len() > MAX_CODE_LEN {
        return None;
    }
    let image = Image::from_body(file.to_vec()).ok()?;
    if is_bank_0(&image) {
        return Some(FileKind::Bank0);
    }
    // Read as an image's length, the first instruction of open firmware would be more than fits. The vendor's would
    // not, but its version is where it is in a body.
    (has_version(&image) || length_field(file) > MAX_BODY_LEN).then_some(FileKind::Body(image))
}

/// Whether an image's body has a version of the vendor's firmware.
fn has_version(image: &Image) -> bool {
    let version = image.version();
    version.has_date() && version.0[0] != 0
}

/// Whether an image has the vendor's firmware without its second bank, in a container that may be valid.
pub fn is_bank_0(image: &Image) -> bool {
    has_version(image) && BANK_0.contains(&image.body().len())
}

/// Whether a file is the vendor's second bank. 231204, 240417 and 250123 begin it with the same routine: `CLR A`, a byte of
/// a table, two calls, and a shift of R6 and R7, each at the same place.
fn is_bank_1(file: &[u8]) -> bool {
    let has = |at: usize, bytes: &[u8]| file.get(at..at + bytes.len()) == Some(bytes);
    let is_start = has(0, &[0xE4, 0xF5, 0x21, 0x90]) && has(6, &[0xE4, 0x93, 0x12]);
    let is_shift = has(14, &[0x80, 0x05, 0xC3, 0x33, 0xCE, 0x33, 0xCE, 0xD8, 0xF9]);
    is_start && is_shift && file.len() <= COMMON_LEN as usize
}

fn length_field(file: &[u8]) -> usize {
    file.first_chunk().map_or(0, |field| u32::from_le_bytes(*field) as usize)
}

/// Whether a file has a plausible length field before its code.
fn is_damaged_image(file: &[u8]) -> bool {
    let is_length = (1..=MAX_BODY_LEN).contains(&length_field(file));
    is_length && !is_icon_of_two(file) && file.get(4) == Some(&LJMP) && file.len() <= 2 * MAX_FILE_LEN
}

/// Whether a file is an icon of two pictures, whose header reads as a length and an LJMP. The first picture lies behind the
/// directory. Source: the ICO format: a header of 6 bytes, and 16 for each picture, the last 4 of which are its place.
fn is_icon_of_two(file: &[u8]) -> bool {
    file.starts_with(&[0, 0, 1, 0, 2, 0]) && file.get(18..22) == Some(&[6 + 2 * 16, 0, 0, 0])
}

/// Recognises a file that makes sense when the bytes of each group are in the other order.
fn swapped(file: &[u8]) -> Option<FileKind> {
    [2, 4].into_iter().find_map(|group| {
        let mut bytes = file.to_vec();
        bytes.chunks_exact_mut(group).for_each(<[u8]>::reverse);
        let image = Image::parse(&bytes).ok().map(FileKind::Image);
        let kind = image.or_else(|| FlashCopy::of(&bytes).map(FileKind::Flash))?;
        Some(FileKind::Swapped { kind: Box::new(kind), group })
    })
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::BANK1_BODY_START;
    use asm2464_chip::practice;

    use super::flash_copy::tests::dump;
    use super::*;

    fn words(file: &[u8]) -> String {
        FileKind::of(file).to_string()
    }

    #[test]
    fn an_image_is_known_whole_damaged_and_without_its_container() {
        for image in [practice::image(), practice::open_image()] {
            let file = image.to_file();
            assert_eq!(FileKind::of(&file), FileKind::Image(image.clone()));
            assert_eq!(FileKind::of(&file[..file.len() / 2]), FileKind::CutImage);
            assert_eq!(FileKind::of(&[&file[..], &[0xFF; 5], &[0]].concat()), FileKind::DamagedImage, "no padding");
            assert_eq!(FileKind::of(image.body()), FileKind::Body(image.clone()));
            assert_eq!(FileKind::of(&file[4..]), FileKind::Body(image));
        }
    }

    #[test]
    fn elf_for_another_processor_is_no_code() {
        let header = |class: u8, order: u8, machine: [u8; 2]| {
            let mut file = [0; 64];
            file[..7].copy_from_slice(&[0x7F, b'E', b'L', b'F', class, order, 1]);
            file[18..20].copy_from_slice(&machine);
            words(&file)
        };
        let x86_64 = header(2, 1, [62, 0]);
        assert_eq!(x86_64, "ELF for another processor (e_machine 62, X86_64, 64-bit little-endian)");
        assert!(header(1, 2, [0, 20]).contains("32-bit big-endian"), "{}", header(1, 2, [0, 20]));
        assert_eq!(header(1, 1, [165, 0]), "ELF", "EM_8051");
    }

    #[test]
    fn an_image_ends_where_its_length_field_says_and_padding_follows() {
        for image in [practice::image(), Image::from_body(vec![0x22]).unwrap()] {
            let file = image.to_file();
            for padding in [vec![0xFF; 0x1_0000], vec![0; 0x1_0000], vec![0xFF]] {
                let padded = [&file[..], &padding].concat();
                assert_eq!((unpadded(&padded), FileKind::of(&padded)), (&file[..], FileKind::Image(image.clone())));
            }
            assert_eq!(unpadded(&file), file);
        }
        let mut damaged = practice::image().to_file();
        damaged[0x100] ^= 1;
        assert_eq!(unpadded(&[&damaged[..], &[0xFF; 9]].concat()), damaged);
        // The length field of nothing but zeros.
        assert_eq!(unpadded(&[0; 0x1000]).len(), 0x1000);
    }

    #[test]
    fn code_is_known_by_its_first_instruction_only_with_what_an_image_has() {
        let of_len = |first: [u8; 4], len: usize| {
            let mut code = vec![0; len];
            code[..4].copy_from_slice(&first);
            code
        };
        let body = "an image's code without its container";
        // Open firmware's first instructions are too much for a length, and no flash holds more than the banks.
        assert_eq!(words(&of_len([LJMP, 0x04, 0x00, 0x75], 0x9000)), body);
        assert_eq!(words(&of_len([LJMP, 0x04, 0x00, 0x75], MAX_CODE_LEN)), body);
        assert_eq!(words(&of_len([LJMP, 0x04, 0x00, 0x75], MAX_CODE_LEN + 1)), "another kind of file");
        // Without, a jump may be anybody's.
        assert_eq!(words(&of_len([LJMP, 0x04, 0x00, 0x00], 0x9000)), "another kind of file");
        let mut vendor = of_len([LJMP, 0x04, 0x00, 0x00], 98_006);
        vendor[0x200..0x206].copy_from_slice(&[0x25, 0x01, 0x23, 0x85, 0x00, 0x00]);
        assert_eq!(words(&vendor), body);
        for half in [0x8000, 0xFF6B, 0x1_0000] {
            assert_eq!(words(&vendor[..half]), "bank 0's code without bank 1");
        }
        for len in [0x7FFF, 0x1_0001] {
            assert_eq!(words(&vendor[..len]), body);
        }
    }

    #[test]
    #[ignore = "needs ASMPATCH_VENDOR_IMAGE, ASMPATCH_VENDOR_231204_IMAGE and ASMPATCH_VENDOR_250123_IMAGE"]
    fn the_second_bank_of_the_vendors_firmware_is_known_alone() {
        for variable in ["ASMPATCH_VENDOR_IMAGE", "ASMPATCH_VENDOR_231204_IMAGE", "ASMPATCH_VENDOR_250123_IMAGE"] {
            let file = std::fs::read(std::env::var_os(variable).unwrap()).unwrap();
            let image = Image::parse(&file).unwrap();
            let (first, second) = image.body().split_at(BANK1_BODY_START as usize);
            assert_eq!((FileKind::of(first), FileKind::of(second)), (FileKind::Bank0, FileKind::Bank1), "{variable}");
            // Filled to the bank's end, as the CPU's code memory reads.
            let filled = [second, &[0; 0x95]].concat();
            assert_eq!(FileKind::of(&filled), FileKind::Bank1, "{variable}");
        }
    }

    #[test]
    fn code_ends_where_a_programmer_has_filled_its_sectors() {
        for image in [practice::image(), practice::open_image()] {
            let mut filled = image.body().to_vec();
            filled.resize(0x2_0000, 0xFF);
            assert_eq!(FileKind::of(&filled), FileKind::Body(image.clone()));
            assert_ne!(FileKind::of(&filled[..0x1_FFFF]), FileKind::Body(image), "no whole sector");
        }
        assert_eq!(unfilled(&[0xFF; 0x1000]).len(), 0x1000);
    }

    #[test]
    fn an_application_of_the_open_boot_stub_is_no_image() {
        let mut application = [BOOT_STUB_MAGIC, b"custom 00000000-CLEAN\0\0\x01"].concat();
        application.extend(0x200u32.to_le_bytes());
        for (reserved, len) in [(0, 0x240), (0xFF, 0x240), (0, 0x20)] {
            application.truncate(0x20);
            application.resize(len, reserved);
            assert_eq!(words(&application), "an application of the open boot stub");
            let wrapped = Image::from_body(application.clone()).unwrap().to_file();
            assert_eq!(words(&wrapped), "an application of the open boot stub");
        }
        assert_eq!(words(b"A24F 0204 0000 7581 6012 0400 A24F 0204 0000 7581 6012 0400 A24F"), "a hex dump");
    }

    #[test]
    fn a_copy_of_a_flash_is_known_whole_in_part_and_with_swapped_bytes() {
        let whole = dump(&practice::image());
        assert_eq!(words(&whole), "a copy of a flash");
        assert_eq!(words(&whole[..0x100]), "the configuration page of a flash");
        assert_eq!(words(&whole[..0x8000]), "a copy of a flash");
        assert_eq!(words(&whole[..0x80]), "a copy of a part of a flash");
        let misplaced = "a configuration block that is not in its place";
        assert_eq!(words(&whole[0x80..0x100]), misplaced);
        assert_eq!(words(&[&whole[0x80..0x100], &whole[..0x80]].concat()), misplaced);
        assert_eq!(words(&whole.repeat(2)), "a copy of a flash");
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
        // A driver is an executable of the native subsystem, and some are libraries.
        let mut driver = library.clone();
        driver[0xDC] = 1;
        let icon = [&[0, 0, 1, 0, 2, 0, 32, 32, 0, 0, 1, 0, 32, 0, 0, 4, 0, 0, 38][..], &[0; 40]].concat();
        let name = b"\x02\x06\x00\x03MOD\x00";
        let sum = name.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
        let keil = [name.as_slice(), &[sum]].concat();
        for (file, expected) in [
            (b"PK\x03\x04rest".as_slice(), "a zip archive"),
            (b"7z\xBC\xAF\x27\x1C", "an archive (7z)"),
            (b"\x1F\x8B\x08rest", "an archive (gz)"),
            (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "an installer or an Office document (msi, doc)"),
            (b"!<arch>\nmain.rel/", "a compiler's library"),
            (b"\xCF\xFA\xED\xFE", "a program of another system (mach)"),
            (b"\x89PNG\r\n\x1A\n", "a picture (png)"),
            (&icon, "a picture (ico)"),
            (&tar, "an archive (tar)"),
            (b"MZ\0\0", "a Windows program"),
            (&library, "a Windows library"),
            (&driver, "a Windows driver"),
            (b"\x7FELF", "ELF"),
            (b":00000001FF\n", "Intel HEX"),
            (b"XH3\nH 2 areas 1 global symbols\nM main\n", "an object of SDCC"),
            (b"M:main\nF:G$main$0$0({2}DF,SV:S),Z,0,0,0,0,0\n", "the debugging information of SDCC"),
            (b"                ASxxxx Assembler V02.00\n  000000 02 04 00\n", "a listing of SDCC"),
            (&keil, "an object of Keil's tools"),
            (b"\x0A\x0D\x0D\x0A\x1C\0\0\0", "a capture of USB traffic"),
            (b"%PDF-1.7\n%\xE2\xE3", "a document (pdf)"),
            (b"{\n  \"schema\": 6,\n  \"tool\": \"1\",\n  \"diagnosis\": {}\n}", "a report of `asmpatch doctor`"),
            (b"{\n  \"facts\": {},\n  \"schema\": 7,\n  \"tool\": \"1\"\n}", "a report of `asmpatch doctor`"),
            (b"an image goes here, some day", "text"),
            ("não é nada\n".as_bytes(), "text"),
            (b"\"\"\"", "text"),
            (b"\"\"\"\0", "another kind of file"),
            (b"\x75\x81\x60\x12", "another kind of file"),
            // ACALL and JNB, with which cpio and certificates begin, and a frame that says 4 GiB.
            (b"\x71\xC7\x22", "another kind of file"),
            (b"\x30\x82\x22", "another kind of file"),
            (b"\x50\x2A\x4D\x18\xF8\xFF\xFF\xFF\0", "another kind of file"),
        ] {
            assert_eq!(words(file), expected, "{}", String::from_utf8_lossy(file));
        }
        let utf16: Vec<u8> = "\u{FEFF}{\r\n\"facts\": {}, \"schema\": 7, \"tool\": \"1\"}"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(words(&utf16), "a report of `asmpatch doctor`");
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
