//! Files of each kind.

use std::io::{Cursor, Write as _};

use asm2464::firmware::{BodyOffset, ConfigBlock, known_blocks};
use asm2464::flash::{DUMP_LEN, SLOT_LEN, Slot};
use asm2464_chip::practice;

pub fn stock() -> Vec<u8> {
    practice::image().to_file()
}

pub fn open() -> Vec<u8> {
    practice::open_image().to_file()
}

fn zip_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A whole flash with the practice image.
pub fn whole_flash() -> Vec<u8> {
    let mut flash = Slot::of(known_blocks().each_ref().map(ConfigBlock::bytes), &stock()).bytes().to_vec();
    flash.resize(DUMP_LEN, 0xFF);
    flash
}

/// A copy of a flash whose first slot is erased; the image is in the second one.
fn second_slot() -> Vec<u8> {
    let whole = whole_flash();
    let mut flash = vec![0xFF; DUMP_LEN];
    flash[SLOT_LEN..2 * SLOT_LEN].copy_from_slice(&whole[..SLOT_LEN]);
    flash
}

/// The practice image with another version, which ends so.
pub fn other_version(last: u8) -> Vec<u8> {
    let mut image = practice::image();
    assert!(image.replace(BodyOffset(0x200), &[0x25, 0x07, 0x17, 0x84, 0x00, last]));
    image.to_file()
}

/// The practice image with a byte of somebody's.
fn changed() -> Vec<u8> {
    let mut image = practice::image();
    assert!(image.replace(BodyOffset(0x1_0000), &[0x77]));
    image.to_file()
}

/// The practice image with a damaged byte.
fn damaged(from_end: usize) -> Vec<u8> {
    let mut file = stock();
    let at = file.len() - from_end;
    file[at] ^= 1;
    file
}

/// The body as Intel HEX.
fn intel_hex() -> Vec<u8> {
    let data = |(at, bytes): (usize, &[u8])| ihex::Record::Data { offset: (at * 16) as u16, value: bytes.to_vec() };
    let open = practice::open_image();
    let mut records: Vec<ihex::Record> = open.body().chunks(16).enumerate().map(data).collect();
    records.push(ihex::Record::EndOfFile);
    ihex::create_object_file_representation(&records).unwrap().into_bytes()
}

/// An ELF file's header, for another processor.
fn elf() -> Vec<u8> {
    let mut elf = b"\x7fELF\x01\x01\x01".to_vec();
    elf.resize(64, 0);
    elf[16..24].copy_from_slice(&[2, 0, 3, 0, 1, 0, 0, 0]);
    elf
}

/// A program for Windows; with a flag, a library.
fn windows(flags: u8) -> Vec<u8> {
    let mut file = b"MZ".to_vec();
    file.resize(0x200, 0);
    file[0x3C] = 0x80;
    file[0x80..0x84].copy_from_slice(b"PE\0\0");
    file[0x97] = flags;
    file
}

/// A name and a file for each kind.
pub fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let whole = whole_flash();
    let padded = [stock(), vec![0xFF; 0x4000]].concat();
    let swapped: Vec<u8> = stock().chunks(2).flat_map(|pair| pair.iter().rev().copied()).collect();
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    let manifest = format!(
        "id = 'mine'\nversion = '250102.85.00.00'\nchip = 'ASM2464PD'\nsize = 9\nsha256 = '{}'\n",
        "0".repeat(64)
    );
    let utf16 = "a text of somebody".encode_utf16().flat_map(u16::to_le_bytes);
    vec![
        ("half.bin", stock()[..stock().len() / 2].to_vec()),
        ("padded.bin", padded),
        ("checksum.bin", damaged(5)),
        ("crc.bin", damaged(1)),
        ("magic.bin", damaged(6)),
        ("240417.bin", damaged(5)),
        ("ed4e39b.bin", open()[..open().len() / 2].to_vec()),
        ("body.bin", open()[4..].to_vec()),
        ("version.bin", other_version(0)),
        ("changed.bin", changed()),
        ("whole.bin", whole.clone()),
        ("page.bin", whole[..0x100].to_vec()),
        ("part.bin", whole[..0x8000].to_vec()),
        ("slot.bin", whole[..0x2_0000].to_vec()),
        ("image-at-0x80.bin", whole[0x80..0x2_0000].to_vec()),
        ("second-slot.bin", second_slot()),
        ("swapped.bin", swapped),
        ("code.hex", intel_hex()),
        ("code.elf", elf()),
        ("code.rel", b"XH3\nH 1 areas 1 global symbols\nM code\n".to_vec()),
        ("image.zip", zip_of(&[("fw.bin", &stock())])),
        ("versions.zip", zip_of(&[("new/fw.bin", &stock()), ("old/fw.bin", &other_version(0))])),
        ("page.zip", zip_of(&[("readme.txt", b"nothing here")])),
        ("old.tar", tar),
        ("updater.exe", windows(0)),
        ("driver.dll", windows(0x20)),
        ("mine.toml", manifest.into_bytes()),
        ("page.html", b"<!DOCTYPE html><html><body>403</body></html>".to_vec()),
        ("notes.txt", b"a text of somebody\nwith two lines\n".to_vec()),
        ("utf16.txt", [0xFF, 0xFE].into_iter().chain(utf16).collect()),
        ("data.json", b"{\"name\": \"a file of somebody\"}".to_vec()),
        ("wire.pcapng", b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x4d\x3c\x2b\x1a\x01\x00\x00\x00".to_vec()),
        ("manual.pdf", b"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n".to_vec()),
        ("empty.bin", Vec::new()),
        ("erased.bin", vec![0xFF; 0x1_0000]),
        ("noise.bin", (0..0x1_8000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()),
    ]
}
