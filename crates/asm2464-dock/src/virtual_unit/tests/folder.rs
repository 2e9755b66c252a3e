//! A unit in a folder: its files, its locks, and what is rejected.

use std::fs;
use std::sync::atomic::AtomicBool;

use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigField, Part, UsbId};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464_chip::practice;

use super::bulk_only;
use crate::virtual_unit::{ReplugError, VirtualOpenError, VirtualUnit, replug};

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
    assert!(matches!(VirtualUnit::open(dir.path(), None), Err(VirtualOpenError::Busy { .. })));
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
    assert!(matches!(VirtualUnit::open(dir.path(), None), Err(VirtualOpenError::FlashSize { found: 14, .. })));
    fs::write(dir.path().join("bridge.toml"), "colour = \"red\"").unwrap();
    assert!(matches!(VirtualUnit::open(dir.path(), None), Err(VirtualOpenError::Scenario { .. })));
    let file = dir.path().join("flash.bin");
    assert!(matches!(VirtualUnit::open(&file, None), Err(VirtualOpenError::File { .. })));
}

#[test]
fn replug_refuses_a_unit_without_a_server_and_can_be_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    drop(VirtualUnit::open(dir.path(), None).unwrap());
    assert!(matches!(replug(dir.path(), Interrupt::never()), Err(ReplugError::NotServed { .. })));
    let held = VirtualUnit::open(dir.path(), None).unwrap();
    let stopped = AtomicBool::new(true);
    let outcome = replug(dir.path(), Interrupt::watching(&stopped));
    assert!(matches!(outcome, Err(ReplugError::Interrupted(_))), "{outcome:?}");
    assert!(!dir.path().join("replug").exists(), "the request is withdrawn");
    drop(held);
    assert!(matches!(replug(&dir.path().join("nothing"), Interrupt::never()), Err(ReplugError::Open(_))));
}

#[cfg(unix)]
#[test]
fn a_units_files_are_never_links_or_pipes_and_never_get_shorter() {
    let dir = tempfile::tempdir().unwrap();
    let (target, ssd, flash) = (dir.path().join("precious"), dir.path().join("ssd.bin"), dir.path().join("flash.bin"));
    fs::write(&target, b"mine").unwrap();
    std::os::unix::fs::symlink(&target, &ssd).unwrap();
    fs::write(dir.path().join("bridge.toml"), "behind = { ssd = { bytes = 1048576 } }\n").unwrap();
    let opened = || VirtualUnit::open(dir.path(), None).map(drop);
    assert!(matches!(opened(), Err(VirtualOpenError::File { what: "open", path, .. }) if path == ssd));
    assert_eq!(fs::read(&target).unwrap(), b"mine");

    fs::remove_file(&ssd).unwrap();
    let longer = (64 << 30) + 12345;
    fs::File::create(&ssd).unwrap().set_len(longer).unwrap();
    opened().unwrap();
    assert_eq!(fs::metadata(&ssd).unwrap().len(), longer);

    fs::rename(&flash, &target).unwrap();
    std::os::unix::fs::symlink(&target, &flash).unwrap();
    assert!(matches!(opened(), Err(VirtualOpenError::File { what: "open", .. })));
    fs::remove_file(&flash).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&flash).status().unwrap().success());
    assert!(matches!(opened(), Err(VirtualOpenError::File { what: "open", .. })));
}

#[cfg(unix)]
#[test]
fn a_scenario_that_does_not_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("bridge.toml")).unwrap();
    assert!(matches!(VirtualUnit::open(dir.path(), None), Err(VirtualOpenError::File { what: "read", .. })));
}
