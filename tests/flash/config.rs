//! `asmpatch config set` on a virtual unit, byte by byte.

use asmpatch::firmware::ConfigField;
use serde_json::Value;

use super::cases::{Rig, asmpatch};

/// Runs `config set` and gives what it says of the unit.
fn set(rig: &Rig, fields: &[&str]) -> Value {
    let mut words = vec!["config", "set", "--device", "virtual:unit"];
    words.extend(fields);
    let output = asmpatch(rig.home.path(), &words);
    serde_json::from_slice::<Value>(&output.stdout).unwrap()[0].clone()
}

/// Where two flashes differ.
fn changed(before: &[u8], after: &[u8]) -> Vec<usize> {
    assert_eq!(before.len(), after.len());
    (0..before.len()).filter(|at| before[*at] != after[*at]).collect()
}

#[test]
fn only_the_named_fields_and_the_checksum_change_in_all_of_the_flash() {
    let rig = Rig::new("serial = 'DOCK7'");
    let before = rig.cells();
    let told = set(&rig, &["serial=LAB-07", "t10-product=GPU dock"]);
    assert_eq!((&told["ok"], &told["after"]["serial"]), (&true.into(), &"LAB-07".into()), "{told}");
    let after = rig.cells();
    let fields = [ConfigField::Serial.range(), ConfigField::T10Product.range(), 0x7F..0x80];
    let is_wanted = |at: &usize| fields.iter().any(|range| range.contains(at));
    let changed = changed(&before, &after);
    assert!(!changed.is_empty() && changed.iter().all(is_wanted), "{changed:x?}");
    assert!(after[0x04..].starts_with(b"LAB-07\xFF\xFF"));
    assert!(after[0x64..].starts_with(b"GPU dock\xFF"));

    // The values that it had bring every byte back.
    let serial = "serial=DOCK7";
    assert_eq!(set(&rig, &[serial, "t10-product=ASM246X"])["changed"], true);
    assert!(rig.cells() == before);
    assert_eq!(set(&rig, &[serial])["changed"], false, "it is there already");
}

#[test]
fn a_change_that_stops_half_way_is_undone_and_done_by_the_commands_that_are_printed() {
    let rig = Rig::new("serial = 'DOCK7'\n[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\nnth = 2\n");
    let before = rig.cells();
    let told = set(&rig, &["product=GPU dock"]);
    let recovery = told["error"]["recovery"].as_array().unwrap();
    let commands: Vec<&str> = recovery.iter().filter_map(|action| action["command"].as_str()).collect();
    let [restore, again] = commands[..] else { panic!("{told}") };
    assert!(restore.starts_with("asmpatch restore ") && again.starts_with("asmpatch config set 'product=GPU dock' "));
    rig.tell("");
    let run = |command: &str| {
        let script = format!("{} --yes", command.replacen("asmpatch", "\"$ASMPATCH\"", 1));
        let status = std::process::Command::new("sh")
            .args(["-c", &script])
            .env("ASMPATCH", env!("CARGO_BIN_EXE_asmpatch"))
            .env("ASMPATCH_BACKUP_DIR", "backups")
            .env("ASMPATCH_CONFIG", "")
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
fn a_block_that_the_chip_ignores_is_not_filled_with_what_serves_any_unit() {
    let rig = Rig::new("serial = 'DOCK7'");
    let mut cells = rig.cells();
    cells[0x80 + 0x10] ^= 1;
    std::fs::write(rig.home.path().join("unit/flash.bin"), &cells).unwrap();
    let output = asmpatch(rig.home.path(), &["config", "set", "serial=LAB-07", "--device", "virtual:unit"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["error"]["code"], "asmpatch::config::checksum", "{told}");
    assert!(told["error"]["message"].as_str().unwrap().contains("configuration block 1"), "{told}");
    assert_eq!(output.status.code(), Some(3));
    assert!(rig.cells() == cells);
}
