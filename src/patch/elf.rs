//! Makes hunks from code that an author linked into an ELF file.

use asm2464::firmware::{Bank, CodeAddress, Image};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_chip::code::{from_elf_address, loaded_pieces};

use super::definition::Hunk;

/// Returns the hunks that put an ELF file's code into an unpatched image, in ascending order.
///
/// One piece of the code must begin at `site`. Addresses from 0x8000 to 0xFFFF mean the bank of `site`, unless the file
/// itself names banks, as SDCC does for banked code: then they mean bank 0, and 0x18000 and up mean bank 1. The
/// expected bytes are the image's.
///
/// # Errors
/// Fails if the file can't be read, if pieces of its code overlap or are outside the banks, if none begins at `site`,
/// or if the image already has all of the code.
pub fn hunks_from_elf(file: &[u8], site: CodeAddress, image: &Image) -> Result<Vec<Hunk>, AnyFailure> {
    let pieces = loaded_pieces(file)?;
    let banked = pieces.iter().any(|(address, _)| *address > 0xFFFF);
    let bank = if banked { Bank::Bank0 } else { site.bank() };
    let mut placed = Vec::new();
    for (address, bytes) in pieces {
        let outside = || {
            let label = Kind::BadInput.code("asmpatch::elf::outside");
            Failure::new(label, format!("the code at {address:#x}, {} bytes, is outside the banks", bytes.len()))
        };
        let at = from_elf_address(address, bank).ok_or_else(outside)?;
        let last = bytes.len() as u64 - 1;
        let last_at = from_elf_address(address + last, bank).ok_or_else(outside)?;
        if last_at.bank() != at.bank() {
            return Err(outside().into());
        }
        let start = at.body_offset().0 as usize;
        let expect = image.body().get(start..start + bytes.len()).ok_or_else(outside)?;
        placed.push((at, bytes, expect));
    }
    placed.sort_by_key(|(at, ..)| at.body_offset());
    for pair in placed.windows(2) {
        let ((first, bytes, _), (second, ..)) = (pair[0], pair[1]);
        if first.body_offset().0 + bytes.len() as u32 > second.body_offset().0 {
            let label = Kind::BadInput.code("asmpatch::elf::overlap");
            return Err(Failure::new(label, format!("the code at {second} overlaps that at {first}")).into());
        }
    }
    if !placed.iter().any(|(at, ..)| *at == site) {
        let found = placed.iter().map(|(at, ..)| at.to_string()).collect::<Vec<_>>().join(", ");
        let label = Kind::BadInput.code("asmpatch::elf::site");
        return Err(Failure::new(label, format!("no code begins at {site}; it begins at {found}")).into());
    }
    placed.retain(|(_, bytes, expect)| bytes != expect);
    if placed.is_empty() {
        let label = Kind::BadInput.code("asmpatch::elf::same");
        return Err(Failure::new(label, "the image has the same bytes at every place").into());
    }
    let hunk = |(at, new, expect): (CodeAddress, &[u8], &[u8])| Hunk {
        at: at.body_offset(),
        expect: expect.to_vec(),
        new: new.to_vec(),
        instruction: None,
        note: None,
    };
    Ok(placed.into_iter().map(hunk).collect())
}

#[cfg(test)]
mod tests {
    use asm2464_chip::practice;

    use super::*;

    fn site() -> CodeAddress {
        "b1:0xEF4F".parse().unwrap()
    }

    /// Builds an ELF file as `objcopy` makes it from SDCC's Intel HEX: ELF32, EM_8051, allocated sections, no segments.
    fn objcopied(sections: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; 52];
        file[..7].copy_from_slice(b"\x7FELF\x01\x01\x01");
        file[16] = 1; // ET_REL
        file[18] = 165;
        file[20] = 1;
        let mut headers = vec![[0u32; 10]];
        for (address, bytes) in sections {
            let offset = file.len() as u32;
            file.extend_from_slice(bytes);
            headers.push([1, 1, 3, *address, offset, bytes.len() as u32, 0, 0, 1, 0]);
        }
        let names = file.len() as u32;
        file.extend_from_slice(b"\0.sec\0");
        headers.push([0, 3, 0, 0, names, 6, 0, 0, 1, 0]);
        let table = file.len() as u32;
        for word in headers.iter().flatten() {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file[32..36].copy_from_slice(&table.to_le_bytes());
        file[40..42].copy_from_slice(&52u16.to_le_bytes());
        file[46..48].copy_from_slice(&40u16.to_le_bytes());
        file[48..50].copy_from_slice(&(headers.len() as u16).to_le_bytes());
        file[50..52].copy_from_slice(&(headers.len() as u16 - 1).to_le_bytes());
        file
    }

    fn hunks(file: &[u8]) -> Result<Vec<Hunk>, AnyFailure> {
        hunks_from_elf(file, site(), &practice::image())
    }

    #[test]
    fn each_piece_of_code_becomes_a_hunk_with_the_images_bytes() {
        let image = practice::image();
        let file = objcopied(&[(0xEF4F, &[0x7F, 0x01, 0x22]), (0x2A0E, &[0x05])]);
        let hunks = hunks(&file).unwrap();
        assert_eq!(hunks.len(), 2);
        assert_eq!(hunks[0].at.to_string(), "c:0x2A0E (file 0x02a12)");
        assert_eq!((&*hunks[0].expect, &*hunks[0].new), (&[0x0A][..], &[0x05][..]));
        assert_eq!(hunks[1].at.code_address(), Some(site()));
        assert_eq!(hunks[1].expect, image.body()[hunks[1].range()]);
    }

    #[test]
    fn an_exported_image_reads_back_as_no_change() {
        let image = practice::image();
        for start in ["c:0x0000", "b0:0x8000", "b1:0x8000"] {
            let file = asm2464_chip::code::elf_of_image(&image);
            let error = hunks_from_elf(&file, start.parse().unwrap(), &image).unwrap_err();
            assert_eq!(error.code(), "asmpatch::elf::same", "{start}");
        }
    }

    #[test]
    fn what_can_not_be_put_into_an_image_is_refused_each_for_its_own_reason() {
        let good = objcopied(&[(0xEF4F, &[1, 2, 3])]);
        let refusal = |file: &[u8]| hunks(file).unwrap_err().code().rsplit_once(':').unwrap().1;
        let with = |at: usize, byte: u8| {
            let mut file = good.clone();
            file[at] = byte;
            refusal(&file)
        };
        assert_eq!(with(18, 62), "machine");
        assert!(["machine", "malformed"].contains(&with(5, 2)));
        assert_eq!(with(0, 0), "malformed");
        assert_eq!(refusal(b""), "malformed");
        assert_eq!(refusal(&good[..good.len() - 45]), "malformed");
        assert_eq!(refusal(&objcopied(&[])), "empty");
        assert_eq!(refusal(&objcopied(&[(0xEF4F, &[])])), "empty");
        assert_eq!(refusal(&objcopied(&[(0xEF4F, &[1, 2, 3]), (0xEF51, &[4])])), "overlap");
        for outside in [0xFF69, 0xFFFF, 0x7FFE, 0x1_7FFF, 0x1_FF6A, 0x2_8000, 0xFFFF_FFFF] {
            assert_eq!(refusal(&objcopied(&[(0xEF4F, &[1]), (outside, &[1, 2, 3])])), "outside", "{outside:#x}");
        }
        let elsewhere = hunks(&objcopied(&[(0xEF50, &[1])])).unwrap_err().to_string();
        assert_eq!(elsewhere, "no code begins at b1:0xEF4F; it begins at b1:0xEF50");
        let mut cut = good.clone();
        let header = cut.len() - 80;
        cut[header + 16..header + 20].copy_from_slice(&0x1000u32.to_le_bytes());
        assert_eq!(refusal(&cut), "truncated");
    }

    /// SDCC's linker for the 8051 has no ELF output of its own.
    #[test]
    #[ignore = "needs sdas8051, sdld and objcopy"]
    fn what_sdcc_and_binutils_make_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let source = "\t.area CSEG (ABS,CODE)\n\t.org 0x2A0F\n\t.db 5\n\t.org 0xEF4F\n\tmov r7,#0x01\n\tret\n";
        std::fs::write(folder.path().join("code.asm"), source).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            let status = std::process::Command::new(program).args(arguments).current_dir(&folder).status();
            assert!(status.unwrap_or_else(|error| panic!("{program}: {error}")).success(), "{program}");
        };
        run("sdas8051", &["-los", "code.asm"]);
        run("sdld", &["-n", "-i", "code.ihx", "code.rel"]);
        run("objcopy", &["-I", "ihex", "-O", "elf32-little", "--alt-machine-code=165", "code.ihx", "code.elf"]);
        let hunks = hunks(&std::fs::read(folder.path().join("code.elf")).unwrap()).unwrap();
        let found: Vec<_> = hunks.iter().map(|hunk| (hunk.at.to_string(), &*hunk.new)).collect();
        let expected: [(String, &[u8]); 2] = [
            ("c:0x2A0F (file 0x02a13)".to_owned(), &[0x05]),
            ("b1:0xEF4F (file 0x16ebe)".to_owned(), &[0x7F, 0x01, 0x22]),
        ];
        assert_eq!(found, expected);
    }

    proptest::proptest! {
        #[test]
        fn damaged_files_never_panic(at in 0usize..183, byte: u8, cut in 0usize..183, bytes: Vec<u8>) {
            let mut file = objcopied(&[(0xEF4F, &[1, 2, 3])]);
            let _ = hunks(&file[..cut.min(file.len())]);
            let _ = hunks(&bytes);
            if let Some(place) = file.get_mut(at) {
                *place = byte;
            }
            let _ = hunks(&file);
        }
    }
}
