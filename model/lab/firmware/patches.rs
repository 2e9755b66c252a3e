//! The patches' bytes, and the images that they make from the vendor's. `ASMPATCH_VENDOR_IMAGE` names the image.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{Bank, FileOffset, Image};
use asmpatch::fetch::Md5Digest;
use asmpatch::patch::{PatchSet, Selection, unpatch};

use crate::chip_images::{file, patched_by};

const STOCK_SHA256: &str = "0acfd7e0b6e3a5dec5abcf4af4ac03817dd463b7800ed4cf1f7c8a0778ab7b8b";

fn patched(file: &[u8]) -> Vec<u8> {
    patched_by(&Image::parse(file).unwrap(), &Selection::default()).to_file()
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_default_patches_give_the_published_image() {
    let file = file("ASMPATCH_VENDOR_IMAGE");
    assert_eq!(Sha256Digest::of(&file).to_string(), STOCK_SHA256);
    let patched = patched(&file);
    assert_eq!(
        Sha256Digest::of(&patched).to_string(),
        "e496176650b83985e609966b015c3b21c8276bf876acc03225928cb78cd87d94"
    );
    // MD5 of the fw_tinygrad.bin that tinygrad's script makes.
    assert_eq!(Md5Digest::of(&patched).to_string(), "a5ab9a2086547862b0f6576f0e5a4961");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn only_the_status_byte_the_checksum_and_the_crc_change() {
    let file = file("ASMPATCH_VENDOR_IMAGE");
    let patched = patched(&file);
    let trailer = Image::parse(&file).unwrap().trailer_offset();
    let changed: Vec<_> = (0..file.len()).filter(|at| file[*at] != patched[*at]).collect();
    assert_eq!(changed[0], 0x2A12);
    assert!(changed[1..].iter().all(|at| FileOffset(*at as u32) > trailer), "{changed:x?}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn unpatching_gives_the_vendors_image_back() {
    let file = file("ASMPATCH_VENDOR_IMAGE");
    let patched = patched(&file);
    let library = asmpatch::embedded::patches().unwrap();
    let image = Image::parse(&patched).unwrap();
    let undone = unpatch(&library, &image, Sha256Digest::of(&patched)).unwrap();
    assert_eq!(undone.original.to_file(), file);
    assert_eq!(undone.base.to_string(), STOCK_SHA256);
    let again = PatchSet::resolve(&library, &Selection::default(), &image, Sha256Digest::of(&patched)).unwrap_err();
    assert!(again.to_string().starts_with("the image is already patched: it is 240417 with"), "{again}");
}

#[test]
#[ignore = "needs SDCC"]
fn the_patch_files_bytes_are_what_the_assembler_makes_of_the_source() {
    for (patch, images) in [("e4-length-16", 2), ("read16-sram", 1)] {
        let assembled = assembled(patch);
        let library = asmpatch::embedded::patches().unwrap();
        let found = &library.get(patch).unwrap().images;
        assert_eq!(found.len(), images, "{patch}");
        for image in found {
            let mut written = BTreeMap::new();
            for hunk in &image.hunks {
                let at = hunk.at.code_address().unwrap();
                assert_ne!(at.bank(), Bank::Bank0);
                written.extend(hunk.new.iter().enumerate().map(|(i, byte)| (at.addr() + i as u16, *byte)));
            }
            assert!(written == assembled, "{}: patches/{patch}.toml is not what {patch}.asm gives", image.name);
        }
    }
}

/// Assembles a patch's source with SDCC.
fn assembled(patch: &str) -> BTreeMap<u16, u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("patches").join(format!("{patch}.asm"));
    let dir = tempfile::tempdir().unwrap();
    let source = source.to_string_lossy();
    for (tool, args) in
        [("sdas8051", &["-o", "patch.rel", &*source][..]), ("sdld", &["-n", "-i", "patch.ihx", "patch.rel"])]
    {
        let output = Command::new(tool).current_dir(dir.path()).args(args).output().expect("Debian's package sdcc");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{tool}: {said}");
    }
    let hex = std::fs::read_to_string(dir.path().join("patch.ihx")).unwrap();
    let mut assembled = BTreeMap::new();
    for record in ihex::Reader::new(&hex) {
        if let ihex::Record::Data { offset, value } = record.unwrap() {
            assembled.extend(value.into_iter().enumerate().map(|(i, byte)| (offset + i as u16, byte)));
        }
    }
    assembled
}
