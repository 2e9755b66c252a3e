//! Images on the chip model, for tests that need the vendor's or the open one.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a panic is how a test fails")]

pub mod drive;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BodyOffset, Image};
pub use asm2464_chip::chip::boot::powered_on;
use asmpatch::patch::{PatchSet, Selection};

/// Reads the file that an environment variable names.
pub fn file(variable: &str) -> Vec<u8> {
    let path = std::env::var_os(variable).unwrap_or_else(|| panic!("set {variable} to the image"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The vendor's image.
pub fn vendor() -> Image {
    Image::parse(&file("ASMPATCH_VENDOR_IMAGE")).unwrap()
}

/// The vendor's image with the status patch, which answers a write at once.
pub fn patched() -> Image {
    let mut image = vendor();
    assert!(image.replace(BodyOffset(0x2A0E), &[0x05]));
    image
}

/// The vendor's 231204 with the status patch.
pub fn patched_231204() -> Image {
    let mut image = Image::parse(&file("ASMPATCH_VENDOR_231204_IMAGE")).unwrap();
    assert!(image.replace(BodyOffset(0x29FF), &[0x05]));
    image
}

/// The vendor's image with the status patch and these.
pub fn with(patches: &[&str]) -> Image {
    let image = vendor();
    let selection = Selection { no_defaults: false, add: patches.iter().map(ToString::to_string).collect() };
    let digest = Sha256Digest::of(&image.to_file());
    PatchSet::resolve(&asmpatch::embedded::patches().unwrap(), &selection, &image, digest)
        .unwrap()
        .apply()
        .unwrap()
        .image
}

/// The open image.
pub fn open() -> Image {
    Image::parse(&file("ASMPATCH_OPEN_IMAGE")).unwrap()
}

/// The open image of August 2026, which ends a DMA that was armed before.
pub fn new_open() -> Image {
    Image::parse(&file("ASMPATCH_OPEN_NEW_IMAGE")).unwrap()
}

/// The open image with USB4.
pub fn open_usb4() -> Image {
    Image::parse(&file("ASMPATCH_OPEN_USB4_IMAGE")).unwrap()
}

/// A CDB of 16 bytes with an LBA and a length in sectors, laid out as READ(16).
pub fn cdb16(opcode: u8, lba: u32, sectors: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[6..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&sectors.to_be_bytes());
    cdb
}
