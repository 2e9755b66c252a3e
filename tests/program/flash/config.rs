//! `asmpatch config set` on a virtual unit, compared byte by byte.
use asm2464::firmware::ConfigField;
use serde_json::Value;

use super::rig::{Rig, asmpatch};
use crate::program::process;
use crate::schemas;

/// Runs `config set` and returns the unit's document.
fn set(rig: &Rig, fields: &[&str]) -> Value {
    let mut words = vec!["config", "set", "--device", "virtual:unit"];
    words.extend(fields);
    let output = asmpatch(rig.home.path(), &words);
    schemas::parse(&words, &output.stdout)[0].clone()
}

/// Offsets at which two flashes differ.
fn changed(before: &[u8], after: &[u8]) -> Vec<usize> {
    assert_eq!(before.len(), after.len());
    (0..before.len()).filter(|at| before[*at] != after[*at]).collect()
}

#[test]
fn only_the_named_fields_and_the_checksum_change_in_all_of_the_flash() {
    let rig = Rig::new("serial = 'DOCK7'");
    let before = rig.cells();
    let printed = set(&rig, &["serial=LAB-07", "t10-product=GPU dock"]);
    assert_eq!((&printed["ok"], &printed["after"]["serial"]), (&true.into(), &"LAB-07".into()), "{printed}");
    let after = rig.cells();
    let fields = [ConfigField::Serial.range(), ConfigField::T10Product.range(), 0x7F..0x80];
    let is_wanted = |at: &usize| fields.iter().any(|range| range.contains(at));
    let changed = changed(&before, &after);
    assert!(!changed.is_empty() && changed.iter().all(is_wanted), "{changed:x?}");
    assert!(after[0x04..].starts_with(b"LAB-07\xFF\xFF"));
    assert!(after[0x64..].starts_with(b"GPU dock\xFF"));

    // The former values restore every byte.
    let serial = "serial=DOCK7";
    assert_eq!(set(&rig, &[serial, "t10-product=ASM246X"])["changed"], true);
    assert!(rig.cells() == before);
    assert_eq!(set(&rig, &[serial])["changed"], false, "the value is already set");
}

/// Open firmware has its own strings. The changed fields are those that the next vendor firmware will show.
#[test]
fn on_open_firmware_the_block_is_read_and_written_through_registers() {
    let rig = Rig::new("factory = 'open'\nserial = 'DOCK7'\nport-power = true\n");
    let before = rig.cells();
    let get = || process::good(rig.home.path(), &["config", "get", "serial", "--device", "virtual:unit"]);
    assert_eq!(get(), "DOCK7\n");
    let printed = set(&rig, &["serial=LAB-07"]);
    assert_eq!((&printed["ok"], &printed["after"]["state"]), (&true.into(), &"open-firmware".into()), "{printed}");
    let after = rig.cells();
    let is_wanted = |at: &usize| ConfigField::Serial.range().contains(at) || *at == 0x7F;
    let changed = changed(&before, &after);
    assert!(!changed.is_empty() && changed.iter().all(is_wanted), "{changed:x?}");
    assert_eq!(get(), "LAB-07\n");
    assert_eq!(set(&rig, &["serial=LAB-07"])["changed"], false, "the value is already set");
    set(&rig, &["serial=DOCK7"]);
    assert!(rig.cells() == before);
}

#[test]
fn the_plan_names_the_command_that_finds_the_unit_under_its_new_id() {
    let rig = Rig::new("serial = 'DOCK7'");
    let before = rig.cells();
    let words = ["config", "set", "vendor-id=0x1209", "--device", "virtual:unit", "--yes"];
    let refused = process::run(rig.home.path(), &words);
    let said = process::text(&refused);
    assert_eq!(refused.status.code(), Some(5), "{said}");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(": asmpatch config set vendor-id=0x1209 --device virtual:unit --usb-id 1209:2464"), "{said}");
    assert!(rig.cells() == before);
    let written = process::good(rig.home.path(), &[&words[..], &["--usb-id", "1209:2464"]].concat());
    let note = "the USB ID changes from 174C:2464 to 1209:2464: then `";
    let list = written.split_once(note).expect(&written).1.split('`').next().unwrap();
    let listed = process::good(rig.home.path(), &process::arguments(list));
    assert!(listed.contains("1209:2464") && listed.contains("DOCK7"), "{listed}");
    // An ID that asmpatch looks for needs no option.
    let back = ["config", "set", "vendor-id=0x174C", "--device", "virtual:unit", "--dry-run", "--usb-id", "1209:2464"];
    let shown = process::good(rig.home.path(), &back);
    assert!(shown.contains("to 174C:2464: then `asmpatch list --device virtual:unit` finds the unit\n"), "{shown}");
}

// The commands need a POSIX shell.
#[cfg(unix)]
#[test]
fn a_change_that_stops_half_way_is_undone_and_done_by_the_commands_that_are_printed() {
    let rig = Rig::new("serial = 'DOCK7'\n[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\nnth = 2\n");
    let before = rig.cells();
    let printed = set(&rig, &["product=GPU dock"]);
    let commands = process::recovery(&printed);
    let [restore, again] = &commands[..] else { panic!("{printed}") };
    assert!(restore.starts_with("asmpatch restore ") && again.starts_with("asmpatch config set 'product=GPU dock' "));
    rig.tell("");
    let run = |command: &str| {
        let script = format!("{} --yes", command.replacen("asmpatch", "\"$ASMPATCH\"", 1));
        let status = std::process::Command::new("sh")
            .args(["-c", &script])
            .env("ASMPATCH", process::PROGRAM)
            .env("ASMPATCH_BACKUP_DIR", "backups")
            .env("XDG_DATA_HOME", rig.home.path().join("data"))
            .current_dir(rig.home.path())
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{command}");
    };
    run(restore);
    assert!(rig.cells() == before);
    run(again);
    assert!(rig.cells()[0x44..].starts_with(b"GPU dock\xFF"));
}

#[test]
fn config_set_refuses_a_block_with_a_wrong_checksum_and_writes_nothing() {
    let rig = Rig::new("serial = 'DOCK7'");
    let mut cells = rig.cells();
    cells[0x80 + 0x10] ^= 1;
    std::fs::write(rig.home.path().join("unit/flash.bin"), &cells).unwrap();
    let output = asmpatch(rig.home.path(), &["config", "set", "serial=LAB-07", "--device", "virtual:unit"]);
    let printed = schemas::parse(&["config", "set"], &output.stdout);
    assert_eq!(printed["error"]["code"], "asmpatch::config::checksum", "{printed}");
    assert!(printed["error"]["message"].as_str().unwrap().contains("configuration block 1"), "{printed}");
    assert_eq!(output.status.code(), Some(3));
    assert!(rig.cells() == cells);
}
