//! Images on a chip, for the tests that need the vendor's or the open one.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a panic is how a test fails")]

pub mod drive;

use asmpatch::chip::{Chip, Driver, Speed};
use asmpatch::firmware::{BodyOffset, Image, Part, known_blocks};
use asmpatch::mcu::{CodeSpace, MemoryFlash};

/// The file that an environment variable names.
pub fn file(variable: &str) -> Vec<u8> {
    let path = std::env::var_os(variable).unwrap_or_else(|| panic!("set {variable} to the image"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The vendor's image.
pub fn vendor() -> Image {
    Image::parse(&file("ASMPATCH_VENDOR_IMAGE")).unwrap()
}

/// The vendor's image with the status patch: a write is answered at once.
pub fn patched() -> Image {
    let mut image = vendor();
    assert!(image.replace(BodyOffset(0x2A0E), &[0x05]));
    image
}

/// The open image.
pub fn open() -> Image {
    Image::parse(&file("ASMPATCH_OPEN_IMAGE")).unwrap()
}

/// A CDB of 16 bytes with an LBA and a length in sectors, as READ(16) has it.
pub fn cdb16(opcode: u8, lba: u32, sectors: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[6..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&sectors.to_be_bytes());
    cdb
}

/// The flash of a unit with this image, and the configuration blocks that the GPU runtime's tools write.
pub fn flash_with(image: &Image) -> MemoryFlash {
    let mut flash = MemoryFlash::erased();
    let cells = flash.cells_mut();
    for (index, block) in known_blocks().iter().enumerate() {
        cells[index * 128..(index + 1) * 128].copy_from_slice(block.bytes());
    }
    let file = image.to_file();
    for part in Part::ALL {
        let bytes = part.of(&file);
        let at = part.flash_address().0 as usize;
        cells[at..at + bytes.len()].copy_from_slice(bytes);
    }
    flash
}

/// A unit with this image that has just got its power.
pub fn powered_on(image: &Image, speed: Speed) -> Driver<MemoryFlash> {
    Driver::new(Chip::power_on(CodeSpace::new(image), flash_with(image), speed))
}
