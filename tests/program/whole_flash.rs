//! `backup --whole-flash`: every byte of a unit's flash, read through registers.

use std::fs;
use std::path::{Path, PathBuf};

use asm2464::flash::DUMP_LEN;
use asm2464_chip::practice;
use serde_json::Value;

use crate::program::process::{good, json, run, text};
use crate::schemas;
use crate::side_by_side;

const COPY: [&str; 7] = ["backup", "--whole-flash", "--device", "virtual:u", "-o", "saved", "--json"];

/// A home with a unit `u` that has this scenario, and a flash of `len` bytes with something in each quarter.
fn home(scenario: &str, len: usize) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    tell(home.path(), scenario);
    good(home.path(), &["list", "--device", "virtual:u"]);
    let mut cells = cells(home.path());
    cells.resize(len, 0xFF);
    for quarter in 1..4 {
        cells[quarter * len / 4 + 0x123..][..0x2000].fill(quarter as u8);
    }
    fs::write(home.path().join("u/flash.bin"), cells).unwrap();
    home
}

fn open_home() -> tempfile::TempDir {
    home("factory = 'open'\nserial = 'DOCK7'\n", 0x8_0000)
}

fn tell(home: &Path, scenario: &str) {
    fs::create_dir_all(home.join("u")).unwrap();
    fs::write(home.join("u/bridge.toml"), scenario).unwrap();
}

fn cells(home: &Path) -> Vec<u8> {
    fs::read(home.join("u/flash.bin")).unwrap()
}

fn copy(home: &Path) -> Vec<u8> {
    fs::read(home.join("saved/flash-whole.bin")).unwrap()
}

/// The partial copies in the backup.
fn partial(home: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(home.join("saved")).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "part")).collect()
}

/// Makes a backup whose copy of the whole flash fails with this status, and returns its document.
fn fails(home: &Path, status: i32, code: &str) -> Value {
    let output = run(home, &COPY);
    assert_eq!(output.status.code(), Some(status), "{}", text(&output));
    let printed = schemas::parse(&COPY, &output.stdout);
    assert_eq!(printed["whole_flash_error"]["code"], code, "{printed}");
    // The usual backup is there, and complete.
    assert_eq!((&printed["backup"], &printed["restorable"]), (&"saved".into(), &true.into()));
    good(home, &["restore", "saved", "--device", "virtual:u", "--dry-run", "--force"]);
    printed
}

#[test]
fn a_copy_of_the_whole_flash_is_shown_restored_and_gives_a_unit_its_configuration() {
    let home = home("factory = 'open'\nserial = 'DOCK7'\n", DUMP_LEN);
    let home = home.path();
    let before = cells(home);
    let made = json(home, &COPY);
    let whole = &made["whole_flash"];
    assert_eq!(
        (&whole["size"], &whole["new"], &whole["jedec_id"]),
        (&DUMP_LEN.into(), &true.into(), &"C2 28 15".into())
    );
    assert!(copy(home) == before);
    assert!(partial(home).is_empty());

    let named = whole["file"].as_str().unwrap().replace('\\', "/");
    let shown = json(home, &["info", &named, "--json"]);
    assert_eq!((&shown["sha256"], &shown["flash"]["serial"]), (&whole["sha256"], &"DOCK7".into()));
    assert_eq!(shown["flash"]["rest"].as_array().unwrap().len(), 3, "{shown}");

    // Another firmware and another serial number; then the configuration alone, then everything.
    fs::write(home.join("stock.bin"), practice::image().to_file()).unwrap();
    let serial = || json(home, &["list", "--device", "virtual:u", "--probe", "--json"])["units"][0]["serial"].clone();
    good(home, &["flash", "stock.bin", "--serial", "OTHER", "--device", "virtual:u", "--yes"]);
    assert_eq!(serial(), "OTHER");
    let config = ["flash", "stock.bin", "--config-from", &named, "--clone-identity", "--device", "virtual:u", "--yes"];
    good(home, &config);
    assert_eq!(serial(), "DOCK7");
    let words = ["restore", &named, "--device", "virtual:u", "--yes", "--json"];
    assert_eq!(json(home, &words)[0]["ok"], true);
    assert!(cells(home) == before, "what lies behind the first slot was never touched");
    // The backup's own files are as they were, and it is the same copy.
    let again = json(home, &COPY);
    assert_eq!((&again["new"], &again["whole_flash"]["new"]), (&false.into(), &false.into()));
}

#[test]
fn a_flash_of_a_maker_that_nobody_has_listed_is_copied_if_its_bytes_do_not_repeat() {
    for id in ["BA 60 15", "12 34 15"] {
        let home = home(&format!("factory = 'open'\n[flash]\njedec-id = '{id}'\n"), DUMP_LEN);
        assert_eq!(json(home.path(), &COPY)["whole_flash"]["size"], DUMP_LEN);
        assert!(copy(home.path()) == cells(home.path()));
    }
    let home = home("factory = 'open'\n[flash]\njedec-id = '12 34 15'\n", 0x8_0000);
    fails(home.path(), 4, "asmpatch::backup::smaller_flash");
    assert!(!home.path().join("saved/flash-whole.bin").exists());
}

#[test]
fn what_vendor_firmware_can_not_read_is_said_and_the_usual_backup_is_made() {
    let home = home("", 0x8_0000);
    let printed = fails(home.path(), 5, "asmpatch::backup::only_commands");
    let message = printed["whole_flash_error"]["message"].as_str().unwrap();
    assert!(message.contains("vendor firmware has commands for its first 256 KiB only"), "{message}");
    assert!(!home.path().join("saved/flash-whole.bin").exists());
    let output = run(home.path(), &COPY[..6]);
    assert_eq!(output.status.code(), Some(5));
    let printed = text(&output);
    assert!(printed.contains("backup    saved") && printed.contains("asmpatch flash ed4e39b"), "{printed}");
}

#[test]
fn a_unit_in_its_boot_loader_has_no_whole_flash_to_read() {
    let home = home("state = 'boot-loader'\n", 0x8_0000);
    let output = run(home.path(), &COPY);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    let printed = schemas::parse(&COPY, &output.stdout);
    assert_eq!(printed["error"]["code"], "asmpatch::backup::no_block", "{printed}");
    assert!(!home.path().join("saved").exists());
}

#[test]
fn a_pulled_cable_leaves_a_partial_copy_that_the_same_command_continues() {
    let home = open_home();
    let home = home.path();
    // The backup takes about 1,300 requests, the copy 5,000.
    tell(home, "factory = 'open'\n[[fault]]\nkind = 'disconnect'\nopcode = 0xE4\nnth = 3500\n");
    let printed = fails_when_gone(home);
    let message = printed["whole_flash_error"]["message"].as_str().unwrap();
    assert!(
        message.contains("are read and kept in") && message.contains("the same command continues there"),
        "{message}"
    );
    let [kept] = &partial(home)[..] else { panic!("{message}") };
    let kept = fs::metadata(kept).unwrap().len();
    assert!(kept > 0x1_0000 && kept < 0x8_0000, "{kept}");
    tell(home, "factory = 'open'\n");
    let made = json(home, &COPY);
    assert_eq!(made["whole_flash"]["resumed_at"], kept);
    assert!(copy(home) == cells(home) && partial(home).is_empty());
}

/// As [`fails`], of a unit that has left the bus.
fn fails_when_gone(home: &Path) -> Value {
    let output = run(home, &COPY);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let printed = schemas::parse(&COPY, &output.stdout);
    assert_eq!(printed["restorable"], true, "{printed}");
    printed
}

#[test]
fn a_flash_is_read_until_two_readings_agree_and_is_not_copied_if_they_never_do() {
    side_by_side(
        [
            ("unstable-reads = 5", None),
            ("stale-first-byte = 4", None),
            ("jedec-id = '12 34 12'", Some((5, "asmpatch::backup::unknown_flash"))),
            ("jedec-id = 'EF 30 14'", Some((4, "asmpatch::backup::smaller_flash"))),
        ],
        |(defect, failure)| {
            let home = open_home();
            tell(home.path(), &format!("factory = 'open'\n[flash]\n{defect}\n"));
            match failure {
                None => {
                    good(home.path(), &COPY);
                    assert!(copy(home.path()) == cells(home.path()), "{defect}");
                }
                Some((status, code)) => {
                    fails(home.path(), status, code);
                    assert!(!home.path().join("saved/flash-whole.bin").exists(), "{defect}");
                    assert!(partial(home.path()).is_empty(), "{defect}");
                }
            }
        },
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_that_can_not_be_written_stops_the_copy_at_once_or_keeps_what_was_saved() {
    let home = open_home();
    let home = home.path();
    good(home, &["backup", "--device", "virtual:u", "-o", "saved"]);
    // The limit lets the backup be read, and a part of the copy be written: the file system is as good as full there.
    let words = COPY.join(" ");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("trap '' XFSZ; ulimit -f 400; exec \"$0\" {words}"), crate::program::process::PROGRAM]);
    let output = shell.current_dir(home).env("ASMPATCH_CONFIG", "").output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", text(&output));
    let printed = schemas::parse(&COPY, &output.stdout);
    assert_eq!(printed["whole_flash_error"]["code"], "asmpatch::backup::whole_flash", "{printed}");
    let [kept] = &partial(home)[..] else { panic!("{printed}") };
    let kept = fs::metadata(kept).unwrap().len();
    let made = json(home, &COPY);
    assert_eq!(made["whole_flash"]["resumed_at"], kept);
    assert!(kept > 0 && copy(home) == cells(home));
}

#[test]
#[cfg(unix)]
fn ctrl_c_leaves_a_partial_copy_that_the_same_command_continues() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::process::Stdio;
    use std::time::Duration;

    let home = open_home();
    let home = home.path();
    let mut command = crate::program::process::command(home, &COPY);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let has_begun = || home.join("saved").exists() && !partial(home).is_empty();
    let looks = (0..6000).take_while(|_| !has_begun()).inspect(|_| std::thread::sleep(Duration::from_millis(10)));
    assert!(looks.count() < 6000, "nothing was read");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output));
    let printed = schemas::parse(&COPY, &output.stdout);
    let message = printed["whole_flash_error"]["message"].as_str().unwrap();
    assert!(message.contains("are read and kept in"), "{message}");
    let [kept] = &partial(home)[..] else { panic!("{message}") };
    let kept = fs::metadata(kept).unwrap().len();
    let made = json(home, &COPY);
    assert_eq!(made["whole_flash"]["resumed_at"], kept);
    assert!(kept > 0 && copy(home) == cells(home));
}
