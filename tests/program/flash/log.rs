//! `-v`, `-vv` and `--log-file` while a unit is written: a log that fails loses its own lines and nothing else.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use asm2464::firmware::UsbId;
use asm2464_host::bridge::Port as _;

use super::rig::{Rig, patched, write_image};
use crate::program::process::{self, PROGRAM};

/// Runs `flash` with these log options, after some shell commands.
fn flash(home: &Path, shell: &str, log: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{shell} exec \"$0\" \"$@\""), PROGRAM]);
    command.current_dir(home).env("ASMPATCH_BACKUP_DIR", "backups").env("XDG_DATA_HOME", home.join("data"));
    command.args(["flash", "patched.bin", "--device", "virtual:unit", "--yes"]).args(log).output().unwrap()
}

fn is_written(rig: &Rig) -> bool {
    rig.port().attached().unwrap().id == UsbId::PATCHED
}

fn rig() -> Rig {
    let rig = Rig::new("");
    write_image(rig.home.path(), &patched());
    rig
}

#[test]
fn a_log_file_gets_every_command_and_step_with_its_time_after_its_earlier_content() {
    let rig = rig();
    let home = rig.home.path();
    fs::write(home.join("log"), "earlier\n").unwrap();
    let output = flash(home, "", &["--log-file", "log"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = fs::read_to_string(home.join("log")).unwrap();
    let lines: Vec<&str> = log.strip_prefix("earlier\n").unwrap().lines().collect();
    for line in &lines {
        let (time, rest) = line.split_once("Z ").unwrap();
        assert!(time.len() == 23 && time.starts_with("20") && time.as_bytes()[10] == b'T', "{line}");
        assert!(rest.starts_with("info: ") || rest.starts_with("debug: "), "{line}");
    }
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(has("info: write firmware part 1: "), "{log}");
    // A write's data is shown by its first bytes.
    assert!(has("debug: e3 50 00 00 ff 00: GOOD, 65280 bytes out: ") && has(" ..., "), "{log}");
    assert!(lines.iter().all(|line| line.len() < 300), "{log}");
}

#[test]
fn a_full_or_closed_log_loses_its_lines_and_stops_no_write() {
    // A limit on file size stands in for a full disk. The unit's own files are smaller.
    const LIMIT: u64 = 8 << 20;
    let rig = rig();
    let home = rig.home.path();
    File::create(home.join("log")).unwrap().set_len(LIMIT - 100).unwrap();
    let limit = format!("trap '' XFSZ; ulimit -f {};", LIMIT / 512);
    let output = flash(home, &limit, &["--log-file", "log"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.contains("asmpatch: the log lacks ") && printed.contains(" lines: cannot write to log: "),
        "{printed}"
    );
    assert!(is_written(&rig));

    for shell in ["exec 2>/dev/full;", "exec 2>&-;"] {
        let rig = self::rig();
        let output = flash(rig.home.path(), shell, &["-vv"]);
        assert!(output.status.success() && is_written(&rig), "{shell}");
    }
}

#[test]
fn an_unusable_log_file_is_refused_before_anything_is_written() {
    let rig = rig();
    let home = rig.home.path();
    let before = rig.cells();
    let fifo = Command::new("mkfifo").arg(home.join("fifo")).status().unwrap();
    assert!(fifo.success());
    for name in ["fifo", "unit", "gone/log", "/dev/null"] {
        let output = flash(home, "", &["--log-file", name]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{name}: {printed}");
        assert!(printed.contains("asmpatch::log::file"), "{name}: {printed}");
    }
    assert!(rig.cells() == before && !home.join("backups").exists());
}

#[test]
fn units_that_are_written_at_once_have_their_names_on_their_lines() {
    let rig = rig();
    let home = rig.home.path();
    fs::create_dir(home.join("other")).unwrap();
    fs::write(home.join("other/bridge.toml"), "serial = 'OTHER001'\n").unwrap();
    let output = flash(home, "", &["--all", "--device", "virtual:other", "-v"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    for name in ["virtual:unit", "virtual:other"] {
        assert!(printed.contains(&format!("\ninfo: {name}: write firmware part 1: ")), "{printed}");
    }
    assert!(!printed.contains("debug: "), "{printed}");
}

/// Such as a terminal that another program has set so, while the user scrolls.
#[test]
#[cfg(target_os = "linux")]
fn a_stderr_that_hangs_for_seconds_gets_the_commands_back_once_it_takes_text_again() {
    let rig = rig();
    rig.cells();
    rig.tell("power-loss-after = 70000\n");
    let (mut reader, mut stderr) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&stderr, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut filled = 0;
    while let Ok(len) = stderr.write(b".") {
        filled += len;
    }
    let words = ["flash", "patched.bin", "--device", "virtual:unit", "--yes"];
    let mut flash = process::command(rig.home.path(), &words).stderr(stderr).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(5));
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    assert!(!flash.wait().unwrap().success());
    let printed = &printed[filled..];
    let commands: Vec<&str> = printed.lines().map(str::trim).filter(|line| line.starts_with("asmpatch ")).collect();
    assert_eq!(commands.len(), 3, "one against the fault, one to go on, one to go back: {printed}");
    assert!(printed.contains("the unit's state: "), "{printed}");
}
