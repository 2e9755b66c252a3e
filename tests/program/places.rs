//! Where the backups of a unit are looked for, and how they are named: the same for every command.

use std::fs;
use std::path::Path;

use asm2464_chip::practice;

use super::process::{command, good, json, run, text};
use crate::schemas;

const UNIT: [&str; 2] = ["--device", "virtual:unit"];

/// A folder with the practice image, and a unit that has a serial number of its own.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("practice.bin"), practice::image().to_file()).unwrap();
    good(home.path(), &["config", "set", "serial=DOCK7", "--yes", "--no-backup", UNIT[0], UNIT[1]]);
    home
}

fn with_unit<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &UNIT].concat()
}

/// Erases the whole flash of a unit, as if its configuration were lost.
fn erase(unit: &Path) {
    let flash = unit.join("flash.bin");
    let len = fs::metadata(&flash).unwrap().len();
    fs::write(flash, vec![0xFF; len as usize]).unwrap();
}

/// Erases the header of a unit's image, so that its boot loader runs and shows block 0.
fn cut(unit: &Path) {
    let flash = unit.join("flash.bin");
    let mut bytes = fs::read(&flash).unwrap();
    bytes[0x100..0x104].fill(0xFF);
    fs::write(flash, bytes).unwrap();
}

#[test]
fn a_backup_that_was_made_elsewhere_is_found_by_doctor_restore_and_flash_alike() {
    let home = home();
    good(home.path(), &with_unit(&["backup", "-o", "bk1"]));
    cut(&home.path().join("unit"));
    let doctor = text(&run(home.path(), &with_unit(&["doctor"])));
    assert!(doctor.contains("asmpatch restore bk1 ") && !doctor.contains("new board"), "{doctor}");
    let restore = good(home.path(), &with_unit(&["restore"]));
    assert!(restore.contains("asmpatch restore bk1 "), "{restore}");
    let flash = text(&run(home.path(), &with_unit(&["flash", "practice.bin", "--no-backup", "--yes"])));
    assert!(flash.contains("asmpatch::flash::own_backup") && flash.contains("bk1"), "{flash}");
}

#[test]
fn another_folder_for_new_backups_does_not_hide_those_in_the_default_one() {
    let home = home();
    good(home.path(), &with_unit(&["backup"]));
    cut(&home.path().join("unit"));
    let words = with_unit(&["flash", "practice.bin", "--no-backup", "--yes", "--backup-dir", "new"]);
    let flash = text(&run(home.path(), &words));
    assert!(flash.contains("asmpatch::flash::own_backup"), "{flash}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_variable_for_the_folder_does_not_hide_the_backups_in_the_platforms() {
    let home = home();
    let mut backup = command(home.path(), &with_unit(&["backup"]));
    let saved = backup.env_remove("ASMPATCH_BACKUP_DIR").output().unwrap();
    assert!(text(&saved).contains("data/asmpatch/backups/"), "{}", text(&saved));
    let restore = good(home.path(), &with_unit(&["restore"]));
    assert!(restore.contains("data/asmpatch/backups/"), "{restore}");
    erase(&home.path().join("unit"));
    let flash = text(&run(home.path(), &with_unit(&["flash", "practice.bin", "--no-backup", "--yes"])));
    assert!(flash.contains("asmpatch::flash::own_backup"), "{flash}");
}

#[test]
fn a_dock_that_lost_its_configuration_and_was_moved_is_asked_about_before_it_is_a_new_board() {
    let home = home();
    good(home.path(), &with_unit(&["backup"]));
    fs::rename(home.path().join("unit"), home.path().join("moved")).unwrap();
    erase(&home.path().join("moved"));
    let moved = ["--device", "virtual:moved"];
    let page = run(home.path(), &[&["doctor", "--json"][..], &moved].concat());
    let page = schemas::parse(&["doctor"], &page.stdout);
    let steps = page["recovery"].as_array().unwrap();
    assert!(!steps.is_empty(), "{page:#}");
    for step in steps {
        assert!(step["question"].as_str().unwrap().contains("compare the label"), "{step:#}");
        assert_eq!(step["applicability"], "if-yes", "{step:#}");
    }
    let restore = good(home.path(), &[&["restore"][..], &moved].concat());
    assert!(restore.contains("compare the label") && restore.contains("asmpatch restore backups/"), "{restore}");
    let flash = [&["flash", "practice.bin", "--no-backup", "--yes"][..], &moved].concat();
    let refused = run(home.path(), &flash);
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(5), "{said}");
    let (label, new_board) = (said.find("compare the label").unwrap(), said.find("if it is a new board").unwrap());
    assert!(label < new_board, "{said}");
    // A number of its own says that it is another board.
    good(home.path(), &[&flash[..], &["--serial", "RACK-0001"]].concat());
}

#[test]
fn a_backup_is_named_by_its_digits_or_as_the_oldest_if_it_is_certainly_the_units() {
    let home = home();
    let first = json(home.path(), &with_unit(&["backup", "--json"]))["backup"].as_str().unwrap().to_owned();
    good(home.path(), &with_unit(&["config", "set", "product=Second", "--yes"]));
    good(home.path(), &with_unit(&["backup"]));
    let digits = first.rsplit_once('-').unwrap().1;
    let listed = json(home.path(), &["backup", "--list", "--json"]);
    let step = &listed[0]["restore"];
    assert_eq!(
        (&step["applicability"], &step["command"]),
        (&"needs-value".into(), &format!("asmpatch restore {digits}").into())
    );
    for named in [digits, "--oldest"] {
        let output = run(home.path(), &with_unit(&["restore", named, "--dry-run"]));
        let said = text(&output);
        assert!(output.status.success() && said.contains(&format!("{first}: backup of")), "{named}: {said}");
    }
    // A path of that name comes first.
    fs::create_dir(home.path().join(digits)).unwrap();
    let output = run(home.path(), &with_unit(&["restore", digits, "--dry-run"]));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    // Digits that name nothing, and another unit.
    let output = run(home.path(), &with_unit(&["restore", "0123abcd", "--yes"]));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let output = run(home.path(), &["restore", "--oldest", "--yes", "--device", "virtual:other"]);
    let said = text(&output);
    assert!(output.status.code() == Some(3) && said.contains("asmpatch::restore::not_certain"), "{said}");
}

#[test]
fn several_units_are_backed_up_in_one_run_each_in_its_own_folder() {
    let home = home();
    let both = ["--device", "virtual:unit", "--device", "virtual:other"];
    let saved = json(home.path(), &[&["backup", "--json"][..], &both].concat());
    let devices: Vec<_> = saved.as_array().unwrap().iter().map(|unit| unit["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["virtual:unit", "virtual:other"]);
    assert_ne!(saved[0]["backup"], saved[1]["backup"]);
    // One that fails is reported in its element, and doesn't stop the others.
    cut(&home.path().join("unit"));
    let words = [&["backup", "--json"][..], &both].concat();
    let output = run(home.path(), &words);
    let saved = schemas::parse(&words, &output.stdout);
    assert_eq!(output.status.code(), Some(5), "{saved:#}");
    assert_eq!(saved[0]["error"]["device"], "virtual:unit", "{saved:#}");
    assert_eq!((&saved[1]["device"], &saved[1]["new"]), (&"virtual:other".into(), &false.into()), "{saved:#}");
    // One folder takes one backup.
    let output = run(home.path(), &[&["backup", "-o", "one"][..], &both].concat());
    let said = text(&output);
    assert!(output.status.code() == Some(5) && said.contains("asmpatch::backup::several"), "{said}");
    assert!(!home.path().join("one").exists());
}
