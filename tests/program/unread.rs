//! Backups that can't be read, as another user or because they are damaged: they may be a unit's only ones.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use asm2464_chip::practice;
use serde_json::Value;

use super::process::{command, text};
use crate::schemas;

/// A user who owns nothing on any system.
const NOBODY: u32 = 65534;

/// A folder with a unit that has lost its power while it was written, and one backup of it.
struct Home {
    folder: tempfile::TempDir,
    /// The user for whom commands run, if the tests are root's.
    user: Option<u32>,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let is_root = folder.path().metadata().unwrap().uid() == 0;
        let home = Self { folder, user: is_root.then_some(NOBODY) };
        fs::write(home.path().join("practice.bin"), practice::image().to_file()).unwrap();
        home.give(home.path());
        for words in [
            &["config", "set", "serial=OWNERS9", "--yes", "--no-backup", "--unproven"][..],
            &["virtual", "set", "power-loss-after=70000"],
        ] {
            let output = home.run(words);
            assert!(output.status.success(), "{words:?}: {}", text(&output));
        }
        let lost = home.run(&["flash", "practice.bin", "--force", "--yes"]);
        assert_eq!(lost.status.code(), Some(4), "{}", text(&lost));
        let healed = home.run(&["virtual", "set", "power-loss-after="]);
        assert!(healed.status.success(), "{}", text(&healed));
        home
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives what is there to the user.
    fn give(&self, path: &Path) {
        let Some(user) = self.user else { return };
        chown(path, Some(user), Some(user)).unwrap();
        if path.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| self.give(&entry.unwrap().path()));
        }
    }

    fn backup(&self) -> PathBuf {
        let mut backups = fs::read_dir(self.path().join("backups")).unwrap();
        backups.next().unwrap().unwrap().path()
    }

    /// Takes the user's rights to the backup: it is root's if the tests are.
    fn close(&self) {
        let backup = self.backup();
        if self.user.is_some() {
            chown(&backup, Some(0), Some(0)).unwrap();
        }
        let mode = if self.user.is_some() { 0o700 } else { 0 };
        fs::set_permissions(backup, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = command(self.path(), words);
        command.env("HOME", self.path());
        if !words.contains(&"--list") {
            command.env("ASMPATCH_DEVICE", "virtual:unit");
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The only backup in the list, and the exit status of the list.
    fn listed(&self) -> (Value, Option<i32>) {
        let words = ["backup", "--list", "--json"];
        let output = self.run(&words);
        let listed = schemas::parse(&words, &output.stdout);
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
        (listed[0].clone(), output.status.code())
    }

    /// Checks that every command names the backup, and that none gives the unit another identity unasked.
    fn check_it_counts(&self, code: &str) {
        let name = self.backup().file_name().unwrap().to_str().unwrap().to_owned();
        let restore = text(&self.run(&["restore"]));
        assert!(restore.contains(&name) && restore.contains("can't be read"), "{restore}");
        let doctor = text(&self.run(&["doctor"]));
        assert!(doctor.contains(&name) && doctor.contains("can't be read"), "{doctor}");
        let new_board: Vec<&str> = doctor.lines().filter(|line| line.contains("asmpatch flash ")).collect();
        assert!(!new_board.is_empty() && new_board.iter().all(|line| line.contains("--clone-identity")), "{doctor}");
        let flash = self.run(&["flash", "practice.bin", "--no-backup", "--yes"]);
        let said = text(&flash);
        assert_eq!(flash.status.code(), Some(5), "{said}");
        assert!(said.contains(code) && said.contains(&name), "{said}");
    }
}

#[test]
fn a_backup_of_another_user_is_named_with_owner_reason_and_cure_and_is_not_overwritten() {
    let home = Home::new();
    // Control: it counts as long as it can be read.
    let readable = home.run(&["flash", "practice.bin", "--no-backup", "--yes"]);
    assert!(text(&readable).contains("asmpatch::flash::own_backup"), "{}", text(&readable));
    home.close();
    let (backup, status) = home.listed();
    assert_eq!(status, Some(6), "{backup}");
    assert_eq!(backup["error"]["code"], "asmpatch::backup::no_rights", "{backup}");
    let help = backup["error"]["help"].as_str().unwrap();
    let cure = if home.user.is_some() { "`sudo chown -hR \"$(id -u)\" " } else { "`chmod -R u+rwX " };
    assert!(help.contains(cure), "{help}");
    let listed = text(&home.run(&["backup", "--list"]));
    assert!(listed.contains("Permission denied") && listed.contains("owner"), "{listed}");
    home.check_it_counts("asmpatch::flash::unread_backup");
}

#[test]
fn the_owner_of_a_file_that_keeps_a_backup_from_being_read_is_named_though_the_folder_is_ones_own() {
    let home = Home::new();
    let block = home.backup().join("config-0.bin");
    if home.user.is_some() {
        chown(&block, Some(0), Some(0)).unwrap();
    }
    fs::set_permissions(&block, fs::Permissions::from_mode(if home.user.is_some() { 0o600 } else { 0 })).unwrap();
    let (backup, status) = home.listed();
    assert_eq!((status, &backup["error"]["code"]), (Some(6), &"asmpatch::backup::no_rights".into()), "{backup}");
    let help = backup["error"]["help"].as_str().unwrap();
    let cure = if home.user.is_some() { "`sudo chown -hR \"$(id -u)\" " } else { "`chmod -R u+rwX " };
    assert!(help.contains(cure), "{help}");
}

#[test]
fn a_damaged_backup_is_named_with_its_reason_and_is_not_overwritten() {
    let home = Home::new();
    fs::write(home.backup().join("config-0.bin"), [0xFF; 128]).unwrap();
    let (backup, status) = home.listed();
    assert_eq!((status, &backup["error"]["code"]), (Some(3), &"asmpatch::backup::digest".into()), "{backup}");
    home.check_it_counts("asmpatch::flash::unread_backup");
}

#[test]
fn a_folder_of_backups_that_can_not_be_read_counts_as_one() {
    let home = Home::new();
    let folder = home.path().join("backups");
    if home.user.is_some() {
        chown(&folder, Some(0), Some(0)).unwrap();
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(if home.user.is_some() { 0o700 } else { 0 })).unwrap();
    let (backup, status) = home.listed();
    assert_eq!((status, &backup["backup"]), (Some(6), &"backups".into()), "{backup}");
    let flash = home.run(&["flash", "practice.bin", "--no-backup", "--yes"]);
    assert_eq!(flash.status.code(), Some(5), "{}", text(&flash));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
}
