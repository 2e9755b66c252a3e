//! Signals in the middle of a write, and threads that the system doesn't start.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use asm2464::firmware::UsbId;
use asm2464_host::bridge::Port as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::program::flash::rig::{Rig, asmpatch, flashing, patched, write_image};
use crate::program::process;
use crate::side_by_side;

/// A write that lasts some seconds, and one that lasts longer than the test waits.
const SLOW: &str = "[timing]\nerase-sector-ms = 60\n";
const ENDLESS: &str = "[timing]\nerase-sector-ms = 1500\n";

fn send(signal: Signal, to: &Child) {
    kill_process(Pid::from_child(to), signal).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a shell's command, in which `$0` is the program.
fn shell(home: &Path, line: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", line, process::PROGRAM]).current_dir(home).env("ASMPATCH_CONFIG", "");
    command.env("ASMPATCH_TEST_SHORTEN_DEADLINES", "100").output().unwrap()
}

#[test]
fn the_first_signal_after_the_erase_lets_the_write_finish_and_says_what_a_second_would_do() {
    side_by_side([Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT], |signal| {
        let rig = Rig::new("[timing]\nerase-sector-ms = 30\n");
        let flash = flashing(&rig);
        send(signal, &flash);
        let output = flash.wait_with_output().unwrap();
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal:?}: {printed}");
        let steps = text(&output.stdout);
        assert_eq!(steps.lines().last(), Some("read back firmware part 2: the same"), "{signal:?}: {printed}");
        assert!(printed.contains("a second Ctrl-C ends asmpatch within 3 s"), "{signal:?}: {printed}");
        assert!(printed.contains("the new firmware is written and verified"), "{signal:?}: {printed}");
        assert!(printed.contains("see what it is:"), "{signal:?}: {printed}");
        // After a power cycle the unit runs what was written.
        assert_eq!(rig.port().attached().unwrap().id, UsbId::PATCHED, "{signal:?}");
    });
}

#[test]
#[cfg(target_os = "linux")]
fn no_other_signal_ends_or_suspends_a_write() {
    let ignored = [
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::VTALARM,
        Signal::PROF,
        Signal::XCPU,
        Signal::XFSZ,
        Signal::IO,
        Signal::POWER,
        Signal::STKFLT,
        Signal::PIPE,
        Signal::ABORT,
        Signal::TSTP,
    ];
    let rig = Rig::new(SLOW);
    let flash = flashing(&rig);
    for signal in ignored.into_iter().chain(ignored) {
        send(signal, &flash);
    }
    // A real-time signal.
    assert!(Command::new("kill").args(["-40", &flash.id().to_string()]).status().unwrap().success());
    let output = flash.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{:?}: {}", output.status, text(&output.stderr));
    assert_eq!(rig.port().attached().unwrap().id, UsbId::PATCHED);
}

#[test]
fn output_and_a_log_at_the_limit_of_a_files_size_stop_no_write() {
    let rig = Rig::new("");
    let home = rig.home.path();
    rig.cells();
    write_image(home, &patched());
    // Both are above the limit, and the unit's own 512 KiB are below it, whether a block has 512 bytes or 1024.
    for file in ["out", "log"] {
        fs::write(home.join(file), vec![b'\n'; 2 << 20]).unwrap();
    }
    let flash = "\"$0\" flash patched.bin --device virtual:unit --yes -vv --log-file log >>out";
    let output = shell(home, &format!("ulimit -f 1536; {flash}"));
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{:?}: {printed}", output.status);
    assert!(printed.contains("some output was lost") && printed.contains("the log lacks"), "{printed}");
    assert_eq!(rig.port().attached().unwrap().id, UsbId::PATCHED);
}

#[test]
fn a_second_signal_ends_the_process_and_prints_the_units_state_and_the_commands_back() {
    // The flash is busy for most of a minute, during which a first signal must not end the process.
    let rig = Rig::new(ENDLESS);
    let mut flash = flashing(&rig);
    send(Signal::INT, &flash);
    std::thread::sleep(Duration::from_millis(200));
    assert!(flash.try_wait().unwrap().is_none());
    send(Signal::TERM, &flash);
    let output = flash.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(!text(&output.stdout).contains("write configuration block 0: written"));
    let printed = text(&output.stderr);
    assert!(
        printed.contains("asmpatch::interrupted") && printed.contains("(at: erase, write configuration block 0)"),
        "{printed}"
    );
    assert!(printed.contains("the unit's state: the write didn't finish"), "{printed}");
    let commands: Vec<&str> = printed.lines().map(str::trim).filter(|line| line.starts_with("asmpatch ")).collect();
    assert_eq!(commands.len(), 2, "one to go on, one to go back: {printed}");
    rig.tell("");
    for (command, usb_id) in commands.into_iter().zip(["ADD1:0001", "174C:2464"]) {
        let output = asmpatch(rig.home.path(), &process::arguments(command));
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
        assert_eq!(rig.port().attached().unwrap().id.to_string(), usb_id, "{command}");
    }
}

#[test]
fn ctrl_c_after_the_last_write_says_that_everything_is_written() {
    let rig = Rig::new("cpu-reset = 'loads-code'\nback-after-ms = 3000\n[timing]\nreenumerate-ms = 5000\n");
    let home = rig.home.path();
    rig.cells();
    write_image(home, &patched());
    let mut command = process::command(home, &["flash", "patched.bin", "--device", "virtual:unit", "--yes"]);
    command.stdout(fs::File::create(home.join("out")).unwrap()).stderr(Stdio::piped());
    let flash = command.spawn().unwrap();
    let restarts = || text(&fs::read(home.join("out")).unwrap()).contains("CPU reset sent");
    let looks = (0..3000).take_while(|_| !restarts()).inspect(|_| std::thread::sleep(Duration::from_millis(10)));
    assert!(looks.count() < 3000, "it was not restarted");
    send(Signal::INT, &flash);
    let output = flash.wait_with_output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{printed}");
    // The first sentence comes from a thread that the end may overtake; then the error says it.
    let says = ["everything is written", "everything was written"].iter().any(|says| printed.contains(says));
    assert!(says && !printed.contains("a write that has begun"), "{printed}");
}

/// However few threads the system starts: from none to four.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn a_thread_that_cannot_start_loses_output_but_stops_no_write_and_no_measurement() {
    const GIB: u64 = 1 << 30;
    let rig = Rig::new("");
    let home = rig.home.path();
    rig.cells();
    write_image(home, &patched());
    for threads in 0..5 {
        // Each thread's stack takes 16 GiB of the address space, which a limit bounds.
        let limit = format!("export RUST_MIN_STACK={}; ulimit -v {}", 16 * GIB, (16 * threads + 8) * GIB / 1024);
        for command in [
            "flash patched.bin --force --yes",
            "bench --path e4-255 --seconds 0.01 --repetitions 1",
            "bench --soak 0.2s",
        ] {
            let output = shell(home, &format!("{limit}; \"$0\" {command} --device virtual:unit"));
            let printed = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{threads} threads, {command}: {:?}: {printed}", output.status);
            assert!(!printed.contains("panicked"), "{threads} threads, {command}: {printed}");
        }
        assert_eq!(rig.port().attached().unwrap().id, UsbId::PATCHED);
    }
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn units_whose_threads_cannot_start_are_not_served_and_the_server_ends_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    // Room for no thread, and for one: the first of two units.
    for gib in [8, 24] {
        let serve = format!(
            "export RUST_MIN_STACK={}; ulimit -v {}; timeout 20 \"$0\" virtual serve --once \
             --listen unix:a.sock --device virtual:a --listen unix:b.sock --device virtual:b",
            16_u64 << 30,
            gib << 20
        );
        let output = shell(home.path(), &serve);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{printed}");
        assert!(printed.contains("asmpatch::serve::thread") && !printed.contains("panicked"), "{printed}");
    }
}
