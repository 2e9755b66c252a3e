//! Backups that can't be saved, or that disappear while the unit is written.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::flash::cases::{Rig, patched, write_image};
use crate::program::process::{self, arguments};
use crate::schemas;

/// Runs asmpatch with its data folder in `home`.
fn printed(home: &Path, words: &[&str]) -> Output {
    let mut command = process::command(home, words);
    command.env_remove("ASMPATCH_BACKUP_DIR").env("XDG_DATA_HOME", home.join("data"));
    command.args(["--yes", "--json"]).output().unwrap()
}

fn commands(unit: &serde_json::Value) -> Vec<String> {
    let actions = unit["error"]["recovery"].as_array().unwrap();
    actions.iter().filter_map(|action| action["command"].as_str().map(str::to_owned)).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn the_command_after_a_backup_that_could_not_be_saved_saves_it_elsewhere() {
    for taken in ["in-the-way", "in-the-way/below"] {
        let rig = Rig::new("");
        let home = rig.home.path();
        write_image(home, &patched());
        fs::write(home.join("in-the-way"), b"a file").unwrap();
        let words = ["flash", "patched.bin", "--device", "virtual:unit", "--backup-dir", taken];
        let output = printed(home, &words);
        assert_eq!(output.status.code(), Some(6));
        let unit = schemas::parse(&["flash"], &output.stdout)[0].clone();
        assert_eq!((&unit["error"]["code"], &unit["changed"]), (&"asmpatch::backup::save".into(), &false.into()));
        let commands = commands(&unit);
        let [on] = &commands[..] else { panic!("{commands:?}") };
        assert!(on.contains("--backup-dir ") && !on.contains(taken), "{on}");
        let output = printed(home, &arguments(on));
        assert!(output.status.success(), "{on}: {}", String::from_utf8_lossy(&output.stdout));
        let unit = schemas::parse(&["flash"], &output.stdout)[0].clone();
        assert!(Path::new(unit["backup"].as_str().unwrap()).starts_with(home.join("data/asmpatch/backups")), "{unit}");
    }
}

/// Of two processes, one moves the backup away while the other one writes.
#[test]
#[cfg(unix)]
fn the_commands_printed_after_a_write_whose_backup_is_gone_bring_the_unit_back() {
    use std::time::Duration;

    let rig = Rig::new("");
    let home = rig.home.path();
    let before = rig.cells();
    write_image(home, &patched());
    rig.tell("[timing]\nerase-sector-ms = 30\n[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\nnth = 2\n");
    let words = ["flash", "patched.bin", "--device", "virtual:unit", "--backup-dir", "backups"];
    let (moved, output) = std::thread::scope(|scope| {
        let flash = scope.spawn(|| printed(home, &words));
        // The unit is busy for some seconds after the backup is complete.
        let is_erased = || fs::read(rig.dir().join("flash.bin")).unwrap()[0x100..0x104] != before[0x100..0x104];
        while !is_erased() && !flash.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let moved = fs::rename(home.join("backups"), home.join("moved"));
        (moved, flash.join().unwrap())
    });
    moved.unwrap();
    assert_eq!(output.status.code(), Some(4));
    let unit = schemas::parse(&["flash"], &output.stdout)[0].clone();
    let steps = unit["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["result"].as_str().unwrap().contains("saved again in backups")), "{unit:#}");
    rig.tell("");
    for command in commands(&unit) {
        let output = printed(home, &arguments(&command));
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stdout));
    }
    assert!(rig.cells() == before, "the last command goes back");
}

#[test]
#[cfg(target_os = "linux")]
fn without_file_handles_no_partial_backup_is_left_and_a_backup_is_not_called_another() {
    let rig = Rig::new("");
    let home = rig.home.path();
    rig.cells();
    process::good(home, &["backup", "--device", "virtual:unit", "-o", "first"]);
    let mut codes = BTreeSet::new();
    for (handles, folder) in (5..=8).flat_map(|handles| [(handles, "first"), (handles, "second")]) {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {handles}; exec \"$0\" \"$@\""), process::PROGRAM]);
        command.args(["backup", "--device", "virtual:unit", "-o", folder]).current_dir(home);
        let output = command.env("ASMPATCH_CONFIG", "").output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        codes.extend(printed.lines().filter(|line| line.starts_with("asmpatch::backup::")).map(str::to_owned));
        let names = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let partial: Vec<String> = names.filter(|name| name.starts_with(".asmpatch-")).collect();
        assert!(partial.is_empty(), "{handles} {folder}: {partial:?}: {printed}");
    }
    assert_eq!(codes, ["asmpatch::backup::save", "asmpatch::backup::unread"].map(str::to_owned).into());
}
