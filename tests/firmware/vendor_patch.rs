//! The patches on the vendor's image, which the repository doesn't contain. `ASMPATCH_VENDOR_IMAGE` names the image.

use asm2464::digest::{Md5Digest, Sha256Digest};
use asm2464::firmware::{FileOffset, Image};
use asmpatch::patch::{PatchSet, Selection, unpatch};

const STOCK_SHA256: &str = "0acfd7e0b6e3a5dec5abcf4af4ac03817dd463b7800ed4cf1f7c8a0778ab7b8b";

fn vendor_file() -> Vec<u8> {
    let path = std::env::var_os("ASMPATCH_VENDOR_IMAGE")
        .expect("set ASMPATCH_VENDOR_IMAGE to AS_USB4_240417_85_00_00.bin, which `asmpatch download` fetches");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn patched(file: &[u8]) -> Vec<u8> {
    let library = asmpatch::embedded::patches().unwrap();
    let image = Image::parse(file).unwrap();
    let set = PatchSet::resolve(&library, &Selection::default(), &image, Sha256Digest::of(file)).unwrap();
    set.apply().unwrap().image.to_file()
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_default_patches_give_the_published_image() {
    let file = vendor_file();
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
    let file = vendor_file();
    let patched = patched(&file);
    let trailer = Image::parse(&file).unwrap().trailer_offset();
    let changed: Vec<_> = (0..file.len()).filter(|at| file[*at] != patched[*at]).collect();
    assert_eq!(changed[0], 0x2A12);
    assert!(changed[1..].iter().all(|at| FileOffset(*at as u32) > trailer), "{changed:x?}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn unpatching_gives_the_vendors_image_back() {
    let file = vendor_file();
    let patched = patched(&file);
    let library = asmpatch::embedded::patches().unwrap();
    let image = Image::parse(&patched).unwrap();
    let undone = unpatch(&library, &image, Sha256Digest::of(&patched)).unwrap();
    assert_eq!(undone.original.to_file(), file);
    assert_eq!(undone.base.to_string(), STOCK_SHA256);
    let again = PatchSet::resolve(&library, &Selection::default(), &image, Sha256Digest::of(&patched)).unwrap_err();
    assert!(again.to_string().starts_with("the image is already patched: it is 240417 with"), "{again}");
}
