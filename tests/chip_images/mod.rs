//! Images on the chip model, for tests that need the vendor's or the open one.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a panic is how a test fails")]

pub mod drive;

use std::path::PathBuf;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BodyOffset, Image};
pub use asm2464_chip::chip::boot::powered_on;
use asm2464_chip::chip::{DATA_IN, DATA_OUT, Driver};
use asmpatch::patch::{PatchSet, Selection};

/// The path of the file that an environment variable names.
pub fn path(variable: &str) -> String {
    let path = std::env::var(variable).unwrap_or_else(|error| panic!("set {variable} to the image: {error}"));
    let absolute = std::fs::canonicalize(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    absolute.into_os_string().into_string().unwrap()
}

/// Reads the file that an environment variable names.
pub fn file(variable: &str) -> Vec<u8> {
    std::fs::read(path(variable)).unwrap()
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

/// The vendor's older image, 231204.
pub fn vendor_231204() -> Image {
    Image::parse(&file("ASMPATCH_VENDOR_231204_IMAGE")).unwrap()
}

/// The vendor's 231204 with the status patch.
pub fn patched_231204() -> Image {
    let mut image = vendor_231204();
    assert!(image.replace(BodyOffset(0x29FF), &[0x05]));
    image
}

/// The vendor's image with the default patches and these.
pub fn with(patches: &[&str]) -> Image {
    let selection = Selection { no_defaults: false, add: patches.iter().map(ToString::to_string).collect() };
    patched_by(&vendor(), &selection)
}

/// The image with these patches.
pub fn patched_by(image: &Image, selection: &Selection) -> Image {
    let (library, digest) = (asmpatch::embedded::patches().unwrap(), Sha256Digest::of(&image.to_file()));
    PatchSet::resolve(&library, selection, image, digest).unwrap().apply().unwrap().image
}

/// The open image.
pub fn open() -> Image {
    Image::parse(&file("ASMPATCH_OPEN_IMAGE")).unwrap()
}

/// The open image of August 2026, which ends a DMA that was armed before.
pub fn new_open() -> Image {
    Image::parse(&file("ASMPATCH_OPEN_NEW_IMAGE")).unwrap()
}

/// The builds of the open firmware in the folders that `ASMPATCH_OPEN_BUILDS` names.
pub fn open_builds() -> Vec<PathBuf> {
    let folders = std::env::var_os("ASMPATCH_OPEN_BUILDS").expect("set ASMPATCH_OPEN_BUILDS to the builds' folders");
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "bin")).collect()
}

/// The open image with USB4.
pub fn open_usb4() -> Image {
    Image::parse(&file("ASMPATCH_OPEN_USB4_IMAGE")).unwrap()
}

/// Does Bulk-Only's reset recovery, as a host does after it has given up a command.
pub fn reset_recovery(unit: &mut Driver) {
    unit.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]).unwrap();
    unit.clear_halt(DATA_IN).unwrap();
    unit.clear_halt(DATA_OUT).unwrap();
}

/// Bytes that differ for each seed.
pub fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    })
    .take(len)
    .collect()
}

/// A CDB of 16 bytes with an LBA and a length in sectors, laid out as READ(16).
pub fn cdb16(opcode: u8, lba: u32, sectors: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[6..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&sectors.to_be_bytes());
    cdb
}
