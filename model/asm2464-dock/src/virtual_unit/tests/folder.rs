//! A unit in a folder: its files, its locks, and what is rejected.

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigField, MAX_FILE_LEN, Part, UsbId};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464::{Coded as _, Kind};
use asm2464_chip::practice;

use super::bulk_only;
use crate::virtual_unit::{Scenario, VirtualUnit, replug};

#[test]
fn a_unit_in_a_folder_is_the_same_unit_for_the_next_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = bulk_only(VirtualUnit::open(dir.path(), None).unwrap());
    let block = first.read_config(BlockIndex::Zero).unwrap();
    let mut edited = ConfigBlock::parse(BlockIndex::Zero, &block).unwrap();
    edited.set_number(ConfigField::VendorId, 0xADD1).unwrap();
    edited.set_number(ConfigField::ProductId, 0x0001).unwrap();
    let one = first.read_config(BlockIndex::One).unwrap();
    first.write_config(BlockIndex::Zero, edited.bytes()).unwrap();
    first.write_config(BlockIndex::One, &one).unwrap();
    let file = practice::image().to_file();
    for part in Part::ALL {
        first.write_flash(part, part.of(&file)).unwrap();
    }
    first.xdata_write(XdataAddress::main(0x3000), 0x55).unwrap();
    assert_eq!(VirtualUnit::open(dir.path(), None).unwrap_err().code(), "asm2464::virtual_unit::busy");
    drop(first);

    let second = VirtualUnit::open(dir.path(), None).unwrap();
    assert_eq!(second.descriptors().identity.id, UsbId::PATCHED);
    let mut bytes = [0xAA];
    bulk_only(second).xdata_read(XdataAddress::main(0x3000), &mut bytes).unwrap();
    assert_eq!(bytes, [0], "everything except the flash is lost with the power");
}

#[test]
fn a_folder_that_holds_no_unit_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("flash.bin"), b"something else").unwrap();
    let refused = |dir: &Path| VirtualUnit::open(dir, None).unwrap_err();
    assert_eq!(refused(dir.path()).code(), "asm2464::virtual_unit::flash_size");
    assert!(refused(dir.path()).to_string().contains("has 14 bytes"));
    fs::write(dir.path().join("bridge.toml"), "colour = \"red\"").unwrap();
    assert_eq!(refused(dir.path()).code(), "asm2464::virtual_unit::scenario");
    assert_eq!(refused(&dir.path().join("flash.bin")).code(), "asm2464::virtual_unit::file");
}

#[test]
fn a_folder_with_other_things_gets_no_unit_and_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("passwd"), b"mine").unwrap();
    for opened in [
        VirtualUnit::open(dir.path(), None).map(drop),
        VirtualUnit::configure(dir.path(), &[("state".to_owned(), "absent".to_owned())]),
    ] {
        let error = opened.unwrap_err();
        assert_eq!(error.code(), "asm2464::virtual_unit::foreign");
        assert!(error.to_string().contains(" holds passwd, "), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // A unit stays one whatever else is put beside it, and its own files make no folder foreign.
    fs::rename(dir.path().join("passwd"), dir.path().join("ssd.bin")).unwrap();
    fs::write(dir.path().join("bridge.toml"), "").unwrap();
    assert!(VirtualUnit::is_new(dir.path()));
    drop(VirtualUnit::open(dir.path(), None).unwrap());
    fs::write(dir.path().join("notes.txt"), b"mine").unwrap();
    assert!(!VirtualUnit::is_new(dir.path()));
    drop(VirtualUnit::open(dir.path(), None).unwrap());
}

#[test]
fn a_scenario_in_utf_16_is_read_and_what_is_no_text_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let opened = |bytes: &[u8]| {
        fs::write(dir.path().join("bridge.toml"), bytes).unwrap();
        VirtualUnit::open(dir.path(), None).map(drop)
    };
    let text = "serial = \"A\"\n";
    opened(format!("\u{feff}{text}").as_bytes()).unwrap();
    let words: Vec<u16> = text.encode_utf16().collect();
    let little: Vec<u8> = [0xFEFF].iter().chain(&words).flat_map(|word| word.to_le_bytes()).collect();
    let big: Vec<u8> = [0xFEFF].iter().chain(&words).flat_map(|word| word.to_be_bytes()).collect();
    for bytes in [little, big] {
        opened(&bytes).unwrap();
    }
    let error = opened(b"serial = \"\xE4\"").unwrap_err();
    let why = error.source().unwrap().to_string();
    assert_eq!(why, "it is not UTF-8: the byte at offset 0xa starts no character");
}

#[test]
fn a_key_is_set_changed_and_taken_out_and_what_would_be_no_scenario_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("u");
    let file = unit.join("bridge.toml");
    let set = |edits: &[(&str, &str)]| {
        let edits: Vec<_> = edits.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        VirtualUnit::configure(&unit, &edits).map(|()| fs::read_to_string(&file).unwrap())
    };
    assert_eq!(set(&[("power-loss-after", "70000")]).unwrap(), "power-loss-after = 70000\n");
    assert_eq!(set(&[("state", "absent"), ("power-loss-after", "")]).unwrap(), "state = \"absent\"\n");
    fs::write(&file, "# mine\nstate = \"auto\"\n[timing]\nstate = 1\n").unwrap();
    let error = set(&[("state", "absent")]).unwrap_err();
    assert!(error.to_string().contains("bridge.toml"), "the table has an unknown key: {error}");
    fs::write(&file, "# mine\nstate = \"auto\"\n[timing]\nerase-sector-ms = 1\n").unwrap();
    let kept = "state = \"absent\"\n# mine\n[timing]\nerase-sector-ms = 1\n";
    assert_eq!(set(&[("state", "absent")]).unwrap(), kept);
    // A table goes with its key, wherever it is.
    let faults =
        "speed = \"high\"\n[[fault]]\nkind = \"stall\"\n[flash]\nunstable-reads = 3\n[[fault]]\nkind = \"bad-tag\"\n";
    fs::write(&file, faults).unwrap();
    assert_eq!(set(&[("fault", "")]).unwrap(), "speed = \"high\"\n[flash]\nunstable-reads = 3\n");
    assert_eq!(set(&[("flash", "")]).unwrap(), "speed = \"high\"\n");
    fs::write(&file, kept).unwrap();
    for (key, value) in [("colour", "red"), ("state", "gone"), ("timing.erase-sector-ms", "x"), ("a\nb", "1")] {
        assert_eq!(set(&[(key, value)]).unwrap_err().code(), "asm2464::virtual_unit::scenario", "{key}={value}");
        assert_eq!(fs::read_to_string(&file).unwrap(), kept);
    }
    // TOML would take digits alone for a number.
    assert_eq!(set(&[("serial", "112233440031")]).unwrap().lines().next(), Some("serial = \"112233440031\""));
    assert_eq!(set(&[("serial", "")]).unwrap(), kept);
    assert_eq!(
        set(&[("behind", "{ ssd = { bytes = 1048576 } }")]).unwrap().lines().next(),
        Some("behind = { ssd = { bytes = 1048576 } }")
    );
}

#[test]
fn replug_refuses_a_unit_without_a_server_and_can_be_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    drop(VirtualUnit::open(dir.path(), None).unwrap());
    let error = replug(dir.path(), Interrupt::never()).unwrap_err();
    assert_eq!(error.code(), "asm2464::virtual_unit::not_served");
    let held = VirtualUnit::open(dir.path(), None).unwrap();
    let stopped = AtomicBool::new(true);
    let error = replug(dir.path(), Interrupt::watching(&stopped)).unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
    assert!(!dir.path().join("replug").exists(), "the request is withdrawn");
    drop(held);
    let error = replug(&dir.path().join("nothing"), Interrupt::never()).unwrap_err();
    assert_eq!(error.code(), "asm2464::virtual_unit::file");
}

#[cfg(unix)]
#[test]
fn a_units_files_are_never_links_or_pipes_and_never_get_shorter() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (target, ssd, flash) =
        (elsewhere.path().join("precious"), dir.path().join("ssd.bin"), dir.path().join("flash.bin"));
    fs::write(&target, b"mine").unwrap();
    std::os::unix::fs::symlink(&target, &ssd).unwrap();
    fs::write(dir.path().join("bridge.toml"), "behind = { ssd = { bytes = 1048576 } }\n").unwrap();
    let opened = || VirtualUnit::open(dir.path(), None).map(drop);
    let cannot_open = |path: &Path| format!("virtual unit: cannot open {}", path.display());
    assert_eq!(opened().unwrap_err().to_string(), cannot_open(&ssd));
    assert_eq!(fs::read(&target).unwrap(), b"mine");

    fs::remove_file(&ssd).unwrap();
    let longer = (64 << 30) + 12345;
    fs::File::create(&ssd).unwrap().set_len(longer).unwrap();
    opened().unwrap();
    assert_eq!(fs::metadata(&ssd).unwrap().len(), longer);

    fs::rename(&flash, &target).unwrap();
    std::os::unix::fs::symlink(&target, &flash).unwrap();
    assert_eq!(opened().unwrap_err().to_string(), cannot_open(&flash));
    fs::remove_file(&flash).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&flash).status().unwrap().success());
    assert_eq!(opened().unwrap_err().to_string(), cannot_open(&flash));
}

#[cfg(unix)]
#[test]
fn a_scenario_that_does_not_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("bridge.toml")).unwrap();
    let scenario = dir.path().join("bridge.toml");
    let error = VirtualUnit::open(dir.path(), None).unwrap_err();
    assert_eq!(error.to_string(), format!("virtual unit: cannot read {}", scenario.display()));
}

#[test]
fn an_image_that_the_slot_cannot_hold_makes_no_unit() {
    let made = |len| VirtualUnit::in_memory(Scenario::default(), &[], Some(&vec![0; len])).map(drop);
    assert!(made(MAX_FILE_LEN).is_ok());
    let error = made(MAX_FILE_LEN + 1).unwrap_err();
    assert_eq!(error.code(), "asm2464::virtual_unit::factory");
    assert!(error.to_string().contains("hold at most"), "{error}");
}
