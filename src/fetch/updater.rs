//! Searches a vendor's Windows updater: a PE file with images in a section, a resource, or after the last section. An
//! image is recognised by its container, whose length, magic, checksum and CRC must all be right.

use std::ops::Range;

use asm2464::firmware::{Image, MAX_FILE_LEN};
use asm2464::{AnyFailure, Failure, Kind};

use super::archive::{Budget, MAX_SEARCHED};

/// How many parts an error names if no image was found.
const MAX_NAMED: usize = 16;
/// Offset of the PE signature's offset in the DOS header (PE format, "MS-DOS Stub").
const PE_POINTER: usize = 0x3C;
/// The signature before the COFF header.
const PE_SIGNATURE: &[u8] = b"PE\0\0";
/// Length of the COFF header in bytes; NumberOfSections and SizeOfOptionalHeader in it (PE format, "COFF File Header").
const COFF_HEADER_LEN: usize = 20;
const NUMBER_OF_SECTIONS: usize = 2;
const SIZE_OF_OPTIONAL_HEADER: usize = 16;
/// Length of a section's header in bytes, which begins with its name; SizeOfRawData and PointerToRawData in it (PE
/// format, "Section Table").
const SECTION_HEADER_LEN: usize = 40;
const NAME_LEN: usize = 8;
const SIZE_OF_RAW_DATA: usize = 16;
const POINTER_TO_RAW_DATA: usize = 20;

/// An image inside an updater.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EmbeddedImage {
    /// Where it begins in the updater, in bytes.
    pub offset: usize,
    /// The part of the updater that holds it: a section's name, or `overlay` for what follows the last section.
    pub region: String,
    /// The image.
    pub image: Image,
}

/// Finds every image in a PE file, sorted by offset, and charges the work to `budget`.
///
/// # Errors
/// Fails if the headers are damaged, or the budget is spent; also on Ctrl-C.
pub(super) fn find_images(bytes: &[u8], budget: &mut Budget<'_>) -> Result<Vec<EmbeddedImage>, AnyFailure> {
    let mut found = Vec::new();
    for (region, range) in regions(bytes)? {
        // regions() clips every range to the file.
        for (at, image) in containers(&bytes[range.clone()], budget)? {
            found.push(EmbeddedImage { offset: range.start + at, region: region.clone(), image });
        }
    }
    found.sort_by_key(|image| image.offset);
    found.dedup_by_key(|image| image.offset);
    Ok(found)
}

/// The failure of a PE file in which [`find_images`] finds no image.
pub(super) fn no_image(bytes: &[u8]) -> Failure {
    let regions = regions(bytes).unwrap_or_default();
    let searched: usize = regions.iter().map(|(_, range)| range.len()).sum();
    let names = regions.iter().take(MAX_NAMED).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let message = format!(
        "no image in the updater: in {searched} bytes of {names} no container with its length, magic, checksum and CRC"
    );
    Failure::new(Kind::BadInput.code("asmpatch::updater::no_image"), message)
}

/// Returns the parts of a PE file that can hold data: its sections (resources are one of them) and the overlay.
fn regions(bytes: &[u8]) -> Result<Vec<(String, Range<usize>)>, Failure> {
    let (table, sections) = sections(bytes)?;
    let mut regions = Vec::new();
    let mut overlay = table.end;
    for section in sections {
        let field = |at| word(section, at).map_or(0, |value| value as usize);
        let start = field(POINTER_TO_RAW_DATA).min(bytes.len());
        let end = start.saturating_add(field(SIZE_OF_RAW_DATA)).min(bytes.len());
        overlay = overlay.max(end);
        if start < end {
            let name = String::from_utf8_lossy(&section[..NAME_LEN]);
            regions.push((name.trim_end_matches('\0').to_owned(), start..end));
        }
    }
    if overlay < bytes.len() {
        regions.push(("overlay".to_owned(), overlay..bytes.len()));
    }
    Ok(regions)
}

/// Returns the headers of a PE file's sections, and the range of bytes that they occupy. A name of more than 8
/// bytes stays `/` and an offset in the string table: only object files have that table.
fn sections(bytes: &[u8]) -> Result<(Range<usize>, &[[u8; SECTION_HEADER_LEN]]), Failure> {
    let truncated = || damaged("they are truncated");
    let at = word(bytes, PE_POINTER).ok_or_else(truncated)? as usize;
    let rest = bytes.get(at..).ok_or_else(truncated)?;
    let coff = rest.strip_prefix(PE_SIGNATURE).ok_or_else(|| damaged("the signature PE is missing"))?;
    let count = half(coff, NUMBER_OF_SECTIONS).ok_or_else(truncated)?;
    let optional = half(coff, SIZE_OF_OPTIONAL_HEADER).ok_or_else(truncated)?;
    let start = COFF_HEADER_LEN + usize::from(optional);
    let len = usize::from(count) * SECTION_HEADER_LEN;
    let table = coff.get(start..start + len).ok_or_else(truncated)?;
    let start = at + PE_SIGNATURE.len() + start;
    Ok((start..start + len, table.as_chunks().0))
}

fn damaged(how: &str) -> Failure {
    let message = format!("the file begins like a Windows program, but its headers do not parse: {how}");
    Failure::new(Kind::BadInput.code("asmpatch::updater::not_pe"), message)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// How many sums are kept: as many as the longest image has bytes.
const KEPT: usize = MAX_FILE_LEN.next_power_of_two();

/// The sums of a file's bytes up to each place, modulo 256: those up to the last [`KEPT`] places, since all of a large
/// file would take its length again.
struct Sums<'a> {
    bytes: &'a [u8],
    kept: Vec<u8>,
    /// How many bytes are summed.
    summed: usize,
}

impl<'a> Sums<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, kept: vec![0; KEPT], summed: 0 }
    }

    /// The sum of these bytes: fewer than [`KEPT`], of which the first is no more than so many before the last that was
    /// ever summed.
    fn over(&mut self, range: Range<usize>) -> u8 {
        while self.summed < range.end {
            let sum = self.kept[self.summed % KEPT].wrapping_add(self.bytes[self.summed]);
            self.summed += 1;
            self.kept[self.summed % KEPT] = sum;
        }
        self.kept[range.end % KEPT].wrapping_sub(self.kept[range.start % KEPT])
    }
}

/// Finds every container in a range of bytes, with its offset. Length and checksum are checked first because they are
/// cheap, and random data hardly ever passes both.
fn containers(bytes: &[u8], budget: &mut Budget<'_>) -> Result<Vec<(usize, Image)>, AnyFailure> {
    let mut spend = |bytes: usize| {
        budget.interrupt.check()?;
        budget.search = budget.search.checked_sub(bytes as u64).ok_or_else(|| {
            budget.is_spent = true;
            let message = format!("searching the updater takes more than {MAX_SEARCHED} bytes of work");
            Failure::new(Kind::BadInput.code("asmpatch::updater::endless"), message)
        })?;
        Ok::<_, AnyFailure>(())
    };
    spend(bytes.len())?;
    let mut sums = Sums::of(bytes);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(Ok(header)) = bytes.get(at..at + 4).map(<[u8; 4]>::try_from) {
        let body = at + 4;
        let trailer = body.saturating_add(u32::from_le_bytes(header) as usize);
        let end = trailer.saturating_add(6);
        let plausible = end - at <= MAX_FILE_LEN
            && end <= bytes.len()
            && trailer - body >= 0x206
            && bytes[trailer + 1] == sums.over(body..trailer);
        if !plausible {
            at += 1;
            continue;
        }
        spend(end - at)?;
        match Image::parse(&bytes[at..end]) {
            Ok(image) => {
                found.push((at, image));
                at = end;
            }
            Err(_) => at += 1,
        }
    }
    Ok(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use asm2464::interrupt::Interrupt;

    use super::*;

    #[test]
    fn a_sum_over_a_part_of_a_long_file_is_that_of_its_bytes() {
        let bytes: Vec<u8> = (0..3 * KEPT as u32).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
        let mut sums = Sums::of(&bytes);
        for start in (0..2 * KEPT).step_by(KEPT / 7) {
            for len in [0, 1, 500, MAX_FILE_LEN - 10] {
                let expected = bytes[start..start + len].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
                assert_eq!(sums.over(start..start + len), expected, "{len} bytes at {start}");
            }
        }
    }

    fn budget() -> Budget<'static> {
        Budget::new(Interrupt::never())
    }

    fn refusal(file: &[u8]) -> &'static str {
        find_images(file, &mut budget()).unwrap_err().code()
    }

    /// Builds a PE32 file with two sections, `.text` and `.rsrc`, and an overlay.
    pub(crate) fn pe(text: &[u8], rsrc: &[u8], overlay: &[u8]) -> Vec<u8> {
        const PE_AT: u32 = 0x80;
        const DATA_AT: u32 = 0x400;
        let mut file = vec![0; 0x80];
        file[..2].copy_from_slice(b"MZ");
        file[0x3C..0x40].copy_from_slice(&PE_AT.to_le_bytes());
        file.extend(b"PE\0\0");
        file.extend(0x014Cu16.to_le_bytes()); // i386
        file.extend(2u16.to_le_bytes()); // sections
        file.extend([0; 12]); // time, symbols
        file.extend(224u16.to_le_bytes()); // optional header
        file.extend(0x0102u16.to_le_bytes()); // executable, 32 bits
        let mut optional = vec![0; 224];
        optional[..2].copy_from_slice(&0x010Bu16.to_le_bytes()); // PE32
        optional[36..40].copy_from_slice(&0x200u32.to_le_bytes()); // file alignment
        optional[92..96].copy_from_slice(&16u32.to_le_bytes()); // data directories
        file.extend(optional);
        let rsrc_at = DATA_AT + text.len() as u32;
        for (name, at, data) in [(b".text\0\0\0", DATA_AT, text), (b".rsrc\0\0\0", rsrc_at, rsrc)] {
            file.extend(name);
            file.extend((data.len() as u32).to_le_bytes());
            file.extend(at.to_le_bytes());
            file.extend((data.len() as u32).to_le_bytes());
            file.extend(at.to_le_bytes());
            file.extend([0; 16]);
        }
        file.resize(DATA_AT as usize, 0);
        file.extend(text);
        file.extend(rsrc);
        file.extend(overlay);
        file
    }

    fn image(seed: u32) -> Image {
        Image::from_body((0..0x9000u32).map(|i| (i.wrapping_mul(seed) >> 5) as u8).collect()).unwrap()
    }

    #[test]
    fn images_are_found_in_a_section_in_the_resources_and_behind_the_last_section() {
        let [one, two, three] = [image(3), image(5), image(7)];
        let with = |before: usize, image: &Image| [vec![0x90; before], image.to_file(), vec![0; 50]].concat();
        let file = pe(&with(13, &one), &with(1, &two), &with(0, &three));
        let found = find_images(&file, &mut budget()).unwrap();
        let places: Vec<_> = found.iter().map(|image| image.region.as_str()).collect();
        assert_eq!(places, [".text", ".rsrc", "overlay"]);
        assert_eq!(found[0].offset, 0x400 + 13);
        assert!(found.into_iter().map(|found| found.image).eq([one, two, three]));
    }

    #[test]
    fn a_container_with_one_wrong_field_is_not_taken() {
        let good = image(3).to_file();
        let end = good.len();
        for at in [0, 100, end - 6, end - 5, end - 1] {
            let mut broken = good.clone();
            broken[at] ^= 0x10;
            let file = pe(&[0; 64], &broken, &[]);
            assert!(find_images(&file, &mut budget()).unwrap().is_empty(), "byte {at:#x}");
        }
    }

    #[test]
    fn a_name_that_points_past_four_gibibytes_is_a_name_on_every_processor() {
        // "//" and six base64 digits: an offset of up to 36 bits into a string table.
        let mut file = pe(&[0; 64], &image(3).to_file(), &[]);
        file[0x80 + 24 + 224..][..8].copy_from_slice(b"//zzzzzz");
        let names: Vec<_> = regions(&file).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["//zzzzzz", ".rsrc"]);
        assert_eq!(find_images(&file, &mut budget()).unwrap().len(), 1);
    }

    #[test]
    fn headers_that_end_early_or_claim_more_than_the_file_holds_have_a_clear_error() {
        let file = pe(&[0; 64], &[0; 64], &[]);
        for len in [2, 0x3D, 0x82, 0x90, 0x80 + 24 + 224 + 79] {
            assert_eq!(refusal(&file[..len]), "asmpatch::updater::not_pe", "{len:#x}");
        }
        for (at, value) in [(0x3C, u32::MAX), (0x3C, 0x10), (0x84, 0xFFFF_0000)] {
            let mut damaged = file.clone();
            damaged[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(refusal(&damaged), "asmpatch::updater::not_pe", "{at:#x}");
        }
    }

    #[test]
    fn sections_that_all_cover_the_same_bytes_are_not_searched_for_ever() {
        let mut file = pe(&[0; 64], &[0; 64], &[]);
        // 65,535 sections, whose headers fill the rest of the file: each claims a mebibyte of it.
        file[0x86..0x88].copy_from_slice(&u16::MAX.to_le_bytes());
        let mut section = [0; 40];
        section[16..20].copy_from_slice(&(1u32 << 20).to_le_bytes());
        let table = 0x80 + 24 + 224;
        file.resize(table, 0);
        file.extend(section.repeat(u16::MAX.into()));
        let mut budget = budget();
        budget.search = 16 << 20;
        assert_eq!(find_images(&file, &mut budget).unwrap_err().code(), "asmpatch::updater::endless");
        let stop = std::sync::atomic::AtomicBool::new(true);
        let stopped = find_images(&file, &mut Budget::new(Interrupt::watching(&stop)));
        assert_eq!(stopped.unwrap_err().kind(), Kind::Interrupted);
    }

    proptest::proptest! {
        #[test]
        fn damaged_headers_never_panic(damage in proptest::collection::vec((0usize..0x200, proptest::num::u8::ANY), 1..8)) {
            let mut file = pe(&[1; 300], &image(3).to_file(), &[2; 100]);
            for (at, byte) in damage {
                file[at] = byte;
            }
            let _ = find_images(&file, &mut budget());
        }
    }
}
