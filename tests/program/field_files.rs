//! Files that owners have, as they look: copies of a flash, code without its container, archives. None has a byte of
//! anybody's firmware.

use std::fs;
use std::path::Path;

use asm2464::firmware::{BodyOffset, Image};
use asm2464::flash::{DUMP_LEN, Slot};
use asm2464_chip::practice;

use crate::chip_images;
use crate::program::process::{good, json, run};

/// Bytes of the body that fills the banks.
const BODY_LEN: usize = 98_006;

/// A home with the small files.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/file_kind")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, home.path().join(path.file_name().unwrap())).unwrap();
    }
    let page = fs::read(home.path().join("full-at-0.bin")).unwrap();
    let mut flash = page;
    flash.resize(DUMP_LEN, 0xFF);
    fs::write(home.path().join("dump.bin"), &flash).unwrap();
    let mut body = vec![0; BODY_LEN];
    body[..2].copy_from_slice(&[0x02, 0x04]);
    body[0x200..0x206].copy_from_slice(&[0x25, 0x01, 0x23, 0x85, 0x00, 0x00]);
    fs::write(home.path().join("fw.bin"), &body).unwrap();
    let sum = body.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let trailer = [&[0xA5, sum][..], &crc32fast::hash(&body).to_le_bytes()].concat();
    fs::write(home.path().join("no-header.bin"), [&body[..], &trailer].concat()).unwrap();
    home
}

/// Runs a command that must end with this status, and returns what it printed as one line.
fn refused(home: &Path, words: &[&str], status: i32) -> String {
    let output = run(home, words);
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {printed}");
    printed.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn download_names_the_intact_image_of_another_version_whatever_is_beside_it() {
    let home = home();
    let words = ["download", "--from", "leaves-like.zip", "-o", "stock.bin"];
    let printed = refused(home.path(), &words, 3);
    assert!(printed.contains("AS_USB4_250123_85_00_00.bin is an intact image, version 250123.85.00.00"), "{printed}");
    assert!(printed.contains("not image 240417") && !printed.contains("7-Zip"), "{printed}");
}

#[test]
fn an_archive_of_programs_holds_no_image_and_nobody_is_led_to_run_one() {
    let home = home();
    let printed = refused(home.path(), &["download", "--from", "dll-not-firmware.zip"], 3);
    assert!(printed.contains("it has cdef.txt, Launcher.cmd, lua51.dll, luajit.exe"), "{printed}");
    assert!(!printed.contains("7-Zip") && printed.contains("Don't run programs"), "{printed}");
}

#[test]
fn what_download_cannot_unpack_is_named_as_info_names_it() {
    let home = home();
    fs::write(home.path().join("fw.bin.gz"), b"\x1F\x8B\x08\0rest").unwrap();
    for words in [&["info", "fw.bin.gz"][..], &["verify", "fw.bin.gz"], &["wrap", "fw.bin.gz", "-o", "x.bin"]] {
        let printed = refused(home.path(), words, 3);
        assert!(printed.contains("is an archive (gz)") && printed.contains("unpack it"), "{printed}");
        assert!(!printed.contains("download --from"), "{printed}");
    }
    let printed = refused(home.path(), &["download", "--from", "fw.bin.gz"], 3);
    assert!(printed.contains("fw.bin.gz is an archive (gz), which asmpatch can't unpack"), "{printed}");
    for (name, what) in [
        ("fw.bin", "an image's code without its container"),
        ("dump.bin", "a copy of a flash"),
        ("config-page-256.bin", "the configuration page of a flash"),
    ] {
        let printed = refused(home.path(), &["download", "--from", name], 3);
        assert!(printed.contains(&format!("{name} is {what}")), "{printed}");
        assert!(printed.contains(&format!(" asmpatch info {name}")), "{printed}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn the_code_of_a_known_open_image_is_named() {
    let home = home();
    let image = chip_images::file("ASMPATCH_OPEN_NEW_IMAGE");
    fs::write(home.path().join("open.bin"), &image[4..image.len() - 6]).unwrap();
    let wrapped = json(home.path(), &["wrap", "open.bin", "-o", "wrapped.bin", "--json"]);
    assert_eq!(wrapped["image"], "ed4e39b");
    let printed = good(home.path(), &["wrap", "open.bin", "-o", "wrapped.bin"]);
    assert!(printed.contains("it is the image ed4e39b"), "{printed}");
}

#[test]
fn code_without_its_container_is_shown_and_wrapped() {
    let home = home();
    for name in ["fw.bin", "no-header.bin"] {
        let shown = good(home.path(), &["info", name]);
        assert!(shown.contains("none: code alone") && shown.contains("250123.85.00.00"), "{shown}");
        // The code begins with the file, without a header before it.
        let map = json(home.path(), &["info", name, "--json"])["map"].clone();
        assert_eq!((&map[0]["area"], &map[0]["file_offset"]), (&"common".into(), &0.into()), "{map:#}");
        assert_eq!(map[0]["free"][0]["file_offset"], 2, "{map:#}");
        let trailer = map.as_array().unwrap().iter().find(|area| area["area"] == "trailer");
        let at = if name == "fw.bin" { None } else { Some(BODY_LEN.into()) };
        assert_eq!(trailer.map(|trailer| trailer["file_offset"].clone()), at, "{map:#}");
        for words in [&["patch", name, "-o", "x.bin"][..], &["flash", name, "--device", "virtual:u", "--yes"]] {
            let printed = refused(home.path(), words, 3);
            assert!(printed.contains("code without its container"), "{printed}");
            assert!(printed.contains(&format!("asmpatch wrap {name}")), "{printed}");
        }
        let wrapped = json(home.path(), &["wrap", name, "-o", "wrapped.bin", "--force", "--json"]);
        assert_eq!(wrapped["size"], 98_016, "{name}");
    }
}

#[test]
fn a_padded_image_is_the_image_in_every_command_and_the_padding_is_said() {
    let home = home();
    let image = practice::image().to_file();
    fs::write(home.path().join("image.bin"), &image).unwrap();
    fs::write(home.path().join("padded.bin"), [&image[..], &[0xFF; 0x8000]].concat()).unwrap();
    let shown = |name: &str| good(home.path(), &["info", name]).replacen(name, "", 1);
    assert_eq!(shown("padded.bin"), shown("image.bin"));
    for words in [
        &["verify", "padded.bin"][..],
        &["patch", "padded.bin", "-o", "patched.bin"],
        &["flash", "padded.bin", "--device", "virtual:u", "--yes"],
    ] {
        let printed = refused(home.path(), words, 0);
        assert!(
            printed.contains("the image ends after 98016 bytes; the 32768 bytes FF behind it are left out"),
            "{printed}"
        );
    }
}

#[test]
fn what_begins_like_an_image_and_is_none_is_named_without_a_length_that_is_none() {
    let home = home();
    let mut application = b"A24Fcustom 00000000-CLEAN\0\0\x01\0\x02\0\0".to_vec();
    application.resize(0x240, 0);
    fs::write(home.path().join("app.bin"), &application).unwrap();
    fs::write(home.path().join("text.bin"), [b"BOOT".as_slice(), &[0x80; 0x400]].concat()).unwrap();
    let body = fs::read(home.path().join("fw.bin")).unwrap();
    fs::write(home.path().join("half.bin"), &body[..0x1_0000]).unwrap();
    let image = practice::image().to_file();
    fs::write(home.path().join("part-1.bin"), &image[..0xFF00]).unwrap();
    let stub = "app.bin is an application of the open boot stub";
    let half = "bank 0's code without bank 1";
    for (words, why) in [
        (&["info", "app.bin"][..], stub),
        (&["wrap", "app.bin", "-o", "wrapped.bin"], stub),
        (&["flash", "app.bin", "--device", "virtual:u", "--yes"], stub),
        (&["info", "text.bin"], "the file begins with \"BOOT\", where an image has the length of its body"),
        (&["info", "half.bin"], half),
        (&["wrap", "half.bin", "-o", "wrapped.bin"], half),
        (&["info", "part-1.bin"], half),
    ] {
        let printed = refused(home.path(), words, 3);
        assert!(printed.contains(why), "{words:?}: {printed}");
    }
}

#[test]
fn what_powershell_writes_is_read_as_what_it_is() {
    let home = home();
    let home = home.path();
    let utf16 = |name: &str, text: &str| {
        let bytes: Vec<u8> = "\u{FEFF}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        fs::write(home.join(name), bytes).unwrap();
    };
    let text = |name: &str| fs::read_to_string(home.join(name)).unwrap();
    fs::write(home.join("practice.bin"), practice::image().to_file()).unwrap();
    good(home, &["patch", "practice.bin", "-o", "patched.bin"]);
    utf16("patched.bin.toml", &text("patched.bin.toml"));
    good(home, &["verify", "patched.bin"]);
    let _ = run(home, &["doctor", "--device", "virtual:u", "--report", "report.json"]);
    let as_utf8 = refused(home, &["doctor", "--from", "report.json"], 1);
    utf16("report.json", &text("report.json"));
    assert_eq!(refused(home, &["doctor", "--from", "report.json"], 1), as_utf8);
    let printed = refused(home, &["info", "report.json"], 3);
    assert!(printed.contains("asmpatch doctor --from report.json"), "{printed}");
}

#[test]
fn a_file_in_place_of_a_report_is_named_and_a_long_one_not_read() {
    let home = home();
    let file = fs::File::create(home.path().join("long.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    fs::write(home.path().join("many.json"), [b"{\"schema\": 9,".as_slice(), &b"\"a\": 1,".repeat(200_000)].concat())
        .unwrap();
    for (name, why) in [
        ("dump.bin", "dump.bin is a copy of a flash, expected a report of `asmpatch doctor`"),
        ("long.json", "long.json is a file in which every byte is 00"),
        ("many.json", "many.json has 1400013 bytes, expected at most 1048576"),
    ] {
        let printed = refused(home.path(), &["doctor", "--from", name], 3);
        assert!(printed.contains(why), "{printed}");
    }
}

#[cfg(unix)]
#[test]
fn a_name_that_no_file_can_have_is_a_wrong_name() {
    let home = home();
    let home = home.path();
    let long = "n".repeat(300);
    fs::write(home.join("practice.bin"), practice::image().to_file()).unwrap();
    for words in [
        &["info", &long][..],
        &["verify", &long],
        &["restore", &long, "--device", "virtual:u"],
        &["patch", "practice.bin", "-o", &long],
        &["backup", "-o", &long, "--device", "virtual:u"],
        &["doctor", "--report", &long, "--device", "virtual:u"],
        &["list", "--device", &format!("virtual:{long}")],
        &["list", "--pcap", &long, "--device", "virtual:u"],
        &["list", "--log-file", &long, "--device", "virtual:u"],
        &["info", "practice.bin", "--patch-dir", &long],
    ] {
        let printed = refused(home, words, 3);
        assert!(printed.contains("File name too long"), "{words:?}: {printed}");
    }
    // A name that can't be followed isn't a wrong one.
    std::os::unix::fs::symlink("loop", home.join("loop")).unwrap();
    for words in [&["info", "loop/f"][..], &["verify", "loop/f"], &["patch", "loop/f", "-o", "p.bin"]] {
        let printed = refused(home, words, 6);
        assert!(printed.contains("asmpatch::file::read"), "{words:?}: {printed}");
    }
    // No receipt can be beside an image with a name that is nearly as long.
    let near = format!("{}.bin", "n".repeat(250));
    fs::copy(home.join("practice.bin"), home.join(&near)).unwrap();
    good(home, &["verify", &near]);
}

#[test]
fn wrap_refuses_what_is_no_code() {
    let home = home();
    fs::write(home.path().join("long.bin"), [b"\x02\x04\x00\x22".repeat(24_502), vec![1; 8]].concat()).unwrap();
    for (name, why) in [
        ("leaves-like.zip", "is a zip archive, expected code"),
        ("config-page-256.bin", "is the configuration page of a flash"),
        ("full-at-0.bin", "is a copy of a part of a flash"),
        ("dump.bin", "is a copy of a flash"),
        ("long.bin", "outside the banks"),
    ] {
        let printed = refused(home.path(), &["wrap", name, "-o", "wrapped.bin"], 3);
        assert!(printed.contains(why), "{name}: {printed}");
        assert!(!home.path().join("wrapped.bin").exists(), "{name}");
    }
}

#[test]
fn copies_of_a_flash_are_shown() {
    let home = home();
    let mut other = fs::read(home.path().join("dump.bin")).unwrap();
    other[0x18_0000..0x18_0010].fill(1);
    fs::write(home.path().join("other.bin"), &other).unwrap();
    let shown = good(home.path(), &["info", "other.bin"]).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "a copy of a flash, 2097152 bytes",
        "174C:2464 ASM246X USB4 NVMe, serial 7FE1CB80797F",
        "1281 bytes at flash address 0x000100",
        // From the beginning of the copy, and not of the image.
        "header - 0x00100 0x000100",
        "slot 2",
        "0x180000..0x1800FF, 256 bytes",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = json(home.path(), &["info", "other.bin", "--json"]);
    assert_eq!((&shown["flash"]["serial"], &shown["size"]), (&"7FE1CB80797F".into(), &DUMP_LEN.into()));
    for (name, what) in [
        ("full-at-0.bin", "a copy of a part of a flash, 1537 bytes"),
        ("config-page-256.bin", "the configuration page"),
    ] {
        let shown = good(home.path(), &["info", name]);
        assert!(shown.contains(what) && shown.contains("7FE1CB80797F"), "{shown}");
    }
}

#[test]
fn the_image_in_the_second_slot_is_taken_out_by_the_command_that_info_prints() {
    let home = home();
    let home = home.path();
    fs::write(home.join("practice.bin"), practice::image().to_file()).unwrap();
    good(home, &["patch", "practice.bin", "-o", "patched.bin"]);
    let mut image = Image::parse(&fs::read(home.join("patched.bin")).unwrap()).unwrap();
    assert!(image.replace(BodyOffset(0x5878), &[image.body()[0x5878] ^ 1]));
    let file = image.to_file();
    let mut copy = fs::read(home.join("dump.bin")).unwrap();
    copy[0x2_0100..][..file.len()].copy_from_slice(&file);
    fs::write(home.join("copy.bin"), copy).unwrap();

    let shown = good(home, &["info", "copy.bin"]);
    assert!(shown.contains("slot 2     an image of 98016 bytes, version 261121.00.00.01"), "{shown}");
    let (_, command) = shown.split_once("out of the copy:\n  asmpatch ").unwrap();
    let words: Vec<&str> = command.lines().next().unwrap().split(' ').collect();
    let shown = good(home, &words);
    assert!(fs::read(home.join(words.last().unwrap())).unwrap() == file);
    let changed = "practice with status-0x2a12, and 1 other byte (c:0x5878)";
    assert!(shown.contains(changed) && shown.contains("98016 bytes at flash address 0x020100, valid"), "{shown}");
    assert!(shown.contains("next: asmpatch verify --boot copy.slot-2.bin"), "{shown}");

    let shown = json(home, &["info", "copy.bin", "--slot", "2", "--json"]);
    assert_eq!((&shown["changed"], &shown["flash"]["second_version"]), (&changed.into(), &"261121.00.00.01".into()));
    for key in ["file_offset", "flash_address"] {
        assert_eq!(shown["map"][0][key], 0x2_0100, "{key}");
    }
    for (words, why) in [
        (&["info", "dump.bin", "--slot", "2", "-o", "x.bin"][..], "no image at flash address 0x020100"),
        (&["info", "practice.bin", "--slot", "2"], "it is an image, not a copy of a flash"),
    ] {
        let printed = refused(home, words, 3);
        assert!(printed.contains(why) && !home.join("x.bin").exists(), "{printed}");
    }
    refused(home, &["info", "copy.bin", "--slot", "3"], 2);
}

#[test]
fn a_copy_is_shown_whatever_its_length_is_and_whether_its_blocks_are_valid() {
    let home = home();
    let flash = fs::read(home.path().join("dump.bin")).unwrap();
    let mut blank = flash.clone();
    blank[..0x100].fill(0xFF);
    let mut swapped = flash.clone();
    swapped[..0x100].chunks_exact_mut(2).for_each(|pair| pair.reverse());
    for (copy, what) in [
        (&flash[..DUMP_LEN / 2], "a copy of a flash, 1048576 bytes"),
        (&flash.repeat(2), "a copy of a flash, 4194304 bytes"),
        (&blank[..], "a copy of a flash"),
        (&blank[..0x601], "a copy of a part of a flash, 1537 bytes"),
        (&blank[..DUMP_LEN / 2], "a copy of a flash"),
        (&swapped[..], "a copy of a flash"),
        (&swapped[..0x601], "a copy of a part of a flash"),
    ] {
        fs::write(home.path().join("copy.bin"), copy).unwrap();
        let shown = good(home.path(), &["info", "copy.bin"]);
        assert!(shown.contains(what) && shown.contains("open firmware custom practice"), "{shown}");
        let is_blank = copy[0] != flash[0] || copy[4] != flash[4];
        assert_eq!(shown.contains("block 0    not valid"), is_blank, "{shown}");
    }
    // Block 0 alone, as in a backup; without block 1; with a wrong sum.
    let mut damaged = flash[..0x100].to_vec();
    damaged[0x90] ^= 1;
    for (page, what) in [(&flash[..0x80], "a copy of a part of a flash"), (&damaged[..], "the configuration page")] {
        fs::write(home.path().join("copy.bin"), page).unwrap();
        let shown = good(home.path(), &["info", "copy.bin"]);
        assert!(shown.contains(what) && shown.contains("block 1    not valid"), "{shown}");
        assert!(shown.contains("none: no image at flash address 0x000100"), "{shown}");
    }
    fs::write(home.path().join("copy.bin"), &flash[0x80..0x100]).unwrap();
    for words in [&["info", "copy.bin"][..], &["wrap", "copy.bin", "-o", "wrapped.bin"]] {
        let printed = refused(home.path(), words, 3);
        assert!(printed.contains("is a configuration block that is not in its place"), "{printed}");
    }
}

#[test]
fn a_copy_without_a_valid_block_or_without_firmware_takes_no_units_identity() {
    let home = home();
    let flash = fs::read(home.path().join("dump.bin")).unwrap();
    for (name, bytes) in [("blank.bin", 0xFF), ("zero.bin", 0)] {
        let mut copy = flash.clone();
        copy[..0x100].fill(bytes);
        fs::write(home.path().join(name), &copy).unwrap();
    }
    let mut erased = flash[..0x100].to_vec();
    erased.resize(DUMP_LEN, 0xFF);
    fs::write(home.path().join("erased.bin"), &erased).unwrap();
    let mut no_usb4 = flash;
    no_usb4[0x80..0x100].fill(0xFF);
    fs::write(home.path().join("no-usb4.bin"), &no_usb4).unwrap();
    let serial = || json(home.path(), &["config", "get", "--device", "virtual:u", "--json"])["fields"].clone();
    let before = serial();
    for (name, why, what) in [
        ("blank.bin", "has no valid configuration block 0", "asmpatch info blank.bin"),
        ("zero.bin", "has no valid configuration block 0", "asmpatch info zero.bin"),
        ("config-page-256.bin", "config-page-256.bin has no firmware", "--config-from config-page-256.bin"),
        ("erased.bin", "erased.bin has no firmware", "--config-from erased.bin"),
        ("no-usb4.bin", "no-usb4.bin has no valid configuration block 1", "--config-from no-usb4.bin"),
    ] {
        let printed = refused(home.path(), &["restore", name, "--device", "virtual:u", "--yes"], 3);
        assert!(printed.contains(why) && printed.contains(what), "{name}: {printed}");
        // Nor does another command lead to it.
        let has_image = !["config-page-256.bin", "erased.bin"].contains(&name);
        let printed = refused(home.path(), &["verify", name], if has_image { 0 } else { 3 });
        assert!(has_image || printed.contains(what), "{name}: {printed}");
        assert!(!printed.contains("asmpatch restore"), "{name}: {printed}");
    }
    fs::write(home.path().join("practice.bin"), practice::image().to_file()).unwrap();
    let words = ["flash", "practice.bin", "--config-from", "zero.bin", "--device", "virtual:u", "--yes"];
    let printed = refused(home.path(), &words, 3);
    assert!(printed.contains("zero.bin has no valid configuration block 0"), "{printed}");
    assert!(serial() == before && before.is_object());
    // The command that is offered in place of a clone names no file inside the copy.
    let printed = refused(home.path(), &["restore", "dump.bin", "--device", "virtual:u", "--yes"], 5);
    assert!(printed.contains("another unit's serial number") && !printed.contains("firmware.bin"), "{printed}");
}

#[test]
fn a_copy_in_another_order_is_not_restored() {
    let home = home();
    fs::write(home.path().join("practice.bin"), practice::image().to_file()).unwrap();
    let flash = fs::read(home.path().join("dump.bin")).unwrap();
    let mut swapped = flash;
    swapped.chunks_exact_mut(2).for_each(<[u8]>::reverse);
    fs::write(home.path().join("swapped.bin"), swapped).unwrap();
    for (name, why) in
        [("swapped.bin", "whose bytes are swapped in groups of 2"), ("leaves-like.zip", "is a zip archive")]
    {
        let printed = refused(home.path(), &["restore", name, "--device", "virtual:u", "--yes"], 3);
        assert!(printed.contains(why), "{name}: {printed}");
        let words = ["flash", "practice.bin", "--config-from", name, "--device", "virtual:u", "--yes"];
        let printed = refused(home.path(), &words, 3);
        assert!(printed.contains(why) && printed.contains(&format!("asmpatch info {name}")), "{name}: {printed}");
    }
    let printed = refused(home.path(), &["restore", "config-page-256.bin", "--device", "virtual:u", "--yes"], 3);
    assert!(printed.contains("config-page-256.bin"), "{printed}");
}

#[test]
fn a_virtual_unit_takes_a_copy_as_its_flash_and_any_unit_its_configuration_and_firmware() {
    let home = home();
    let home = home.path();
    good(home, &["list", "--device", "virtual:u"]);
    // What a unit has, at the length that owners read.
    let mut flash = fs::read(home.join("u/flash.bin")).unwrap();
    flash.resize(DUMP_LEN, 0xFF);
    fs::create_dir(home.join("v")).unwrap();
    fs::write(home.join("v/flash.bin"), &flash).unwrap();
    let listed = json(home, &["list", "--device", "virtual:v", "--json"]);
    let serial = listed["units"][0]["serial"].clone();
    assert_eq!(serial, json(home, &["list", "--device", "virtual:u", "--json"])["units"][0]["serial"]);

    // Another configuration, then all of the copy again, however much of the flash it has.
    for len in [0x1_9000, 0x2_0000, 0x8_0000, DUMP_LEN, 2 * DUMP_LEN] {
        let words = ["config", "set", "serial=CHANGED00001", "--device", "virtual:v", "--yes"];
        let _ = run(home, &words);
        let mut copy = flash.clone();
        copy.resize(len, 0xFF);
        fs::write(home.join("copy.bin"), &copy).unwrap();
        let restored =
            json(home, &["restore", "copy.bin", "--device", "virtual:v", "--clone-identity", "--yes", "--json"]);
        assert_eq!(restored[0]["ok"], true, "{restored}");
        let now = fs::read(home.join("v/flash.bin")).unwrap();
        assert!(now[4..0x2_0000] == flash[4..0x2_0000], "every byte is as it was: {len:#x}");
    }
}

#[test]
fn firmware_that_waits_for_its_serial_port_sends_and_what_it_sent_is_shown() {
    let home = home();
    // MOVX A,@DPTR; JZ: until a place is free, as the open boot stub waits. ANL A,#1F; CJNE A,#10: until all are.
    for wait in [&[0xE0, 0x60, 0xFD][..], &[0xE0, 0x54, 0x1F, 0xB4, 0x10, 0xFA]] {
        // MOV DPTR,#C006; the wait; MOV DPTR,#C001; MOV A,#'K'; MOVX @DPTR,A; SJMP $
        let code = [&[0x90, 0xC0, 0x06], wait, &[0x90, 0xC0, 0x01, 0x74, b'K', 0xF0, 0x80, 0xFE]].concat();
        let image = Image::from_body([&code[..], &[0; 512]].concat()).unwrap();
        fs::write(home.path().join("waits.bin"), image.to_file()).unwrap();
        let printed = refused(home.path(), &["run", "waits.bin", "--serial"], 1);
        assert!(printed.contains("serial port K "), "{printed}");
        assert!(printed.ends_with("uart K"), "{printed}");
        let printed = refused(home.path(), &["verify", "--boot", "waits.bin"], 1);
        assert!(printed.contains("last on its serial port: \"K\""), "{printed}");
    }
}

#[test]
fn a_copy_with_an_image_that_somebody_changed_is_written_only_with_the_permission() {
    let home = home();
    let home = home.path();
    good(home, &["list", "--device", "virtual:u"]);
    let flash = fs::read(home.join("u/flash.bin")).unwrap();
    let mut image = practice::image();
    assert!(image.replace(BodyOffset(0x1_0000), &[0x77]));
    let blocks = [flash[..0x80].try_into().unwrap(), flash[0x80..0x100].try_into().unwrap()];
    let mut copy = Slot::of(blocks, &image.to_file()).bytes().to_vec();
    copy.resize(DUMP_LEN, 0xFF);
    fs::write(home.join("copy.bin"), copy).unwrap();
    let words = ["restore", "copy.bin", "--device", "virtual:u", "--yes"];
    let printed = refused(home, &words, 5);
    assert!(printed.contains("asmpatch::flash::unproven"), "{printed}");
    good(home, &[&words[..], &["--unproven"]].concat());
    // The unit's own backup of it needs none.
    good(home, &["backup", "--device", "virtual:u", "-o", "own"]);
    let _ = run(home, &["config", "set", "serial=CHANGED00001", "--device", "virtual:u", "--yes"]);
    good(home, &["restore", "own", "--device", "virtual:u", "--clone-identity", "--yes"]);
}
