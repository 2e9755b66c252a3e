//! `doctor --fix` on a terminal of 80 columns, answered as a user would, and once with no at each question; and without a
//! terminal.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, thread};

use serde_json::Value;

use crate::program::{process, terminal};
use crate::pty;

/// What the user does at a prompt.
#[derive(Clone, Copy)]
enum Does {
    /// Types this, and Enter.
    Types(&'static str),
    /// Sets the virtual unit's bridge.toml to this, from another terminal.
    Sets(&'static str),
    /// Presses Ctrl-C.
    Stops,
}
use Does::{Sets, Stops, Types};

/// The ends of what asks: a question, a choice, a wait.
const PROMPTS: [&str; 3] = ["[y/N]", "Enter for none]", "Ctrl-C ends)"];

/// A conversation: its status, and the text that was on the screen, each run of spaces and line ends as one space.
struct Talk {
    status: Option<i32>,
    text: String,
    /// How many prompts there were.
    prompts: usize,
}

/// How long a conversation may take, and how long the program may say nothing.
const MOST: Duration = Duration::from_secs(240);

fn plain(bytes: &[u8]) -> String {
    let text = console::strip_ansi_codes(&String::from_utf8_lossy(bytes)).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs `doctor --fix` on the virtual unit in `folder` on a terminal, and does one thing at each prompt. Further prompts get
/// Enter alone.
fn talk(folder: &Path, does: &[Does]) -> Talk {
    let programs = Path::new(process::PROGRAM).parent().unwrap();
    let mut command = terminal::shell(programs, folder, "exec asmpatch doctor --fix --device virtual:u");
    command.env("ASMPATCH_BACKUP_DIR", "backups").env("ASMPATCH_CACHE_DIR", "cache").env_remove("ASMPATCH_DEVICE");
    command.env("XDG_DATA_HOME", folder.join("data"));
    let (mut ours, theirs) = pty::open().unwrap();
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut reads = ours.try_clone().unwrap();
    let (sender, said) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = reads.read(&mut buffer) {
            if sender.send(buffer[..len].to_vec()).is_err() {
                break;
            }
        }
    });
    let (begun, mut bytes, mut prompts) = (Instant::now(), Vec::new(), 0);
    loop {
        match said.recv_timeout(Duration::from_secs(1)) {
            Ok(part) => bytes.extend(part),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        let text = plain(&bytes);
        let asked: usize = PROMPTS.iter().map(|prompt| text.matches(prompt).count()).sum();
        while prompts < asked {
            match does.get(prompts).copied().unwrap_or(Types("")) {
                Types(answer) => ours.write_all(format!("{answer}\n").as_bytes()).unwrap(),
                Sets(scenario) => fs::write(folder.join("u/bridge.toml"), scenario).unwrap(),
                Stops => {
                    let pid = rustix::process::Pid::from_child(&child);
                    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
                }
            }
            prompts += 1;
        }
        if begun.elapsed() > MOST {
            child.kill().unwrap();
            panic!("it has not ended: {text}");
        }
    }
    Talk { status: child.wait().unwrap().code(), text: plain(&bytes), prompts }
}

/// A folder with a virtual unit of this scenario.
fn unit(scenario: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    fs::create_dir(path.join("u")).unwrap();
    fs::write(path.join("u/bridge.toml"), scenario).unwrap();
    // Made with the scenario's firmware.
    assert!(asmpatch(&path, "list --device virtual:u").status.success());
    (folder, path)
}

fn asmpatch(folder: &Path, line: &str) -> std::process::Output {
    let mut command = process::command(folder, &line.split(' ').collect::<Vec<_>>());
    command.env_remove("ASMPATCH_DEVICE").stdin(Stdio::null()).output().unwrap()
}

fn flash(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("u/flash.bin")).unwrap()
}

const CAN_START: &str = "a GPU runtime can start";

#[test]
fn a_unit_on_which_a_runtime_can_start_is_asked_nothing() {
    let (_folder, path) = unit("factory = \"open\"\n");
    let talk = talk(&path, &[]);
    assert_eq!((talk.status, talk.prompts), (Some(0), 0), "{}", talk.text);
    assert!(talk.text.contains(CAN_START), "{}", talk.text);
}

#[test]
fn what_is_set_on_a_virtual_unit_is_taken_out_first_if_the_user_agrees() {
    let scenario = "factory = \"open\"\nbulk-hangs = \"strobes\"\n";
    let (_folder, path) = unit(scenario);
    let no = talk(&path, &[Types("n")]);
    assert_eq!((no.status, no.prompts), (Some(1), 1), "{}", no.text);
    assert!(no.text.contains("virtual set bulk-hangs= --device virtual:u"), "{}", no.text);
    assert_eq!(fs::read_to_string(path.join("u/bridge.toml")).unwrap(), scenario);
    let yes = talk(&path, &[Types("y")]);
    assert_eq!((yes.status, yes.prompts), (Some(0), 1), "{}", yes.text);
    assert!(yes.text.contains(CAN_START), "{}", yes.text);
}

#[test]
fn a_slow_link_is_restarted_unasked_and_then_waited_for_until_it_changes() {
    let (_folder, path) = unit("factory = \"open\"\nspeed = \"high\"\n");
    let heals = talk(&path, &[Sets("factory = \"open\"\n")]);
    assert_eq!((heals.status, heals.prompts), (Some(0), 1), "{}", heals.text);
    assert!(
        heals.text.contains("asmpatch reset --device virtual:u") && heals.text.contains(CAN_START),
        "{}",
        heals.text
    );
}

#[test]
fn enter_goes_on_and_a_finding_that_stays_ends_the_run_with_what_was_tried() {
    let (_folder, path) = unit("factory = \"open\"\nspeed = \"high\"\n");
    let before = flash(&path);
    let stays = talk(&path, &[Types("")]);
    assert_eq!((stays.status, stays.prompts), (Some(4), 1), "reset's own status is worse: {}", stays.text);
    let tried = stays.text.split("status 4 USB: asmpatch reset --device virtual:u").nth(1).unwrap();
    assert!(tried.contains("by hand") && tried.contains("no step is left that wasn't tried"), "{tried}");
    assert_eq!(flash(&path), before);
}

#[test]
fn ctrl_c_at_a_wait_ends_it_and_says_where_it_stands() {
    let (_folder, path) = unit("factory = \"open\"\nspeed = \"high\"\n");
    let stopped = talk(&path, &[Stops]);
    assert_eq!(stopped.status, Some(130), "{}", stopped.text);
    assert!(
        stopped.text.contains("stopped by Ctrl-C") && stopped.text.contains("left: USB: 480 Mbit/s"),
        "{}",
        stopped.text
    );
}

#[test]
fn a_card_that_is_missing_and_one_that_no_runtime_drives_end_with_a_sentence() {
    for (behind, expected) in [("\"nothing\"", "GPU"), ("{ ssd = { bytes = 67108864 } }", "put a GPU in its place")] {
        let (_folder, path) = unit(&format!("factory = \"open\"\nbehind = {behind}\n"));
        let talk = talk(&path, &[]);
        assert_ne!(talk.status, Some(0), "{}", talk.text);
        assert!(talk.text.contains(expected) && talk.text.contains("see what is left:"), "{}", talk.text);
        assert!(!talk.text.contains(CAN_START), "{}", talk.text);
    }
}

#[test]
fn a_unit_that_is_away_is_waited_for() {
    let (_folder, path) = unit("factory = \"open\"\n");
    fs::write(path.join("u/bridge.toml"), "state = \"absent\"\n").unwrap();
    let talk = talk(&path, &[Types(""), Types("")]);
    assert_eq!(talk.status, Some(4), "{}", talk.text);
    assert!(talk.text.contains("virtual_unit::absent"), "{}", talk.text);
}

#[test]
fn without_a_terminal_only_what_asks_nothing_is_done_and_the_rest_is_named() {
    let (_folder, path) = unit("factory = \"open\"\nspeed = \"high\"\n");
    let output = asmpatch(&path, "doctor --fix --json --device virtual:u");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["schema"], output.status.code()), (&1.into(), Some(4)), "{said:#}");
    let done = &said["done"][0];
    assert_eq!(done["step"]["command"], "asmpatch reset --device virtual:u", "{said:#}");
    assert_eq!((&done["status"], &said["left"][0]["topic"]), (&4.into(), &"USB".into()), "{said:#}");
    assert_eq!(said["left"][0]["step"]["applicability"], "hands", "{said:#}");
    assert!(done["document"].is_object(), "{said:#}");
}

#[test]
fn without_a_terminal_nothing_writes_a_flash_or_what_is_set_for_a_unit() {
    for scenario in
        ["factory = \"stock\"\n", "factory = \"no-image\"\n", "factory = \"open\"\nbulk-hangs = \"strobes\"\n"]
    {
        let (_folder, path) = unit(scenario);
        let before = flash(&path);
        for line in ["doctor --fix --device virtual:u", "doctor --fix --json --device virtual:u"] {
            let output = asmpatch(&path, line);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(1), "{scenario}: {said}");
            assert_eq!(flash(&path), before, "{scenario}");
            assert_eq!(fs::read_to_string(path.join("u/bridge.toml")).unwrap(), scenario);
        }
    }
}

#[test]
fn it_is_for_one_unit_and_asks() {
    let (_folder, path) = unit("factory = \"open\"\n");
    for line in [
        "doctor --fix --all",
        "doctor --fix --no-write --device virtual:u",
        "doctor --fix --report r.json --device virtual:u",
        "doctor --fix --from r.json",
        "doctor --fix --yes --device virtual:u",
        "doctor --fix --device virtual:u --device virtual:v",
    ] {
        assert_eq!(asmpatch(&path, line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn a_stock_unit_and_a_boot_loader_are_unchanged_after_no_at_each_question() {
    for (scenario, answers) in [
        ("factory = \"stock\"\n", &[Types("")][..]),
        ("factory = \"stock\"\n", &[Types("no")]),
        ("factory = \"no-image\"\n", &[Types("2"), Types("n")]),
    ] {
        let (_folder, path) = unit(scenario);
        let before = flash(&path);
        let talk = talk(&path, answers);
        assert_eq!((talk.status, talk.prompts), (Some(1), answers.len()), "{scenario}: {}", talk.text);
        assert!(talk.text.contains("the answer was no: nothing else is done"), "{}", talk.text);
        assert_eq!(flash(&path), before, "{scenario}");
    }
}

/// Puts the open firmware into the unit's cache.
fn with_open_image(path: &Path) {
    let image = env::var("ASMPATCH_OPEN_NEW_IMAGE").unwrap();
    let words = ["download", "ed4e39b", "-o", "x.bin", "--from", image.as_str()];
    assert!(process::run(path, &words).status.success());
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn a_new_users_stock_unit_gets_to_a_runtime_that_can_start_by_one_command() {
    let (_folder, path) = unit("factory = \"stock\"\n");
    with_open_image(&path);
    let before = flash(&path);
    let no = talk(&path, &[Types("1"), Types("n")]);
    assert_eq!((no.status, no.prompts), (Some(5), 2), "flash's own question: {}", no.text);
    assert_eq!(flash(&path), before);
    let yes = talk(&path, &[Types("1"), Types("y"), Types("n")]);
    assert_eq!((yes.status, yes.prompts), (Some(0), 3), "{}", yes.text);
    assert!(yes.text.contains(CAN_START), "{}", yes.text);
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn a_boot_loader_without_a_backup_gets_firmware_once_the_user_permits_what_that_takes() {
    let (_folder, path) = unit("factory = \"no-image\"\n");
    with_open_image(&path);
    let yes = talk(&path, &[Types("2"), Types("y"), Types("y"), Types("n")]);
    assert_eq!((yes.status, yes.prompts), (Some(0), 4), "{}", yes.text);
    assert!(yes.text.contains("--no-backup: ") && yes.text.contains("Permit that, and run it?"), "{}", yes.text);
    assert!(yes.text.contains(CAN_START), "{}", yes.text);
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn a_write_that_stops_is_followed_by_its_own_steps_alone() {
    let scenario = "factory = \"stock\"\npower-loss-after = 4000\n";
    let answers = [Types("1"), Types("y"), Types("y"), Types("1"), Types("y"), Types("y"), Types("n")];
    let (_folder, path) = unit(scenario);
    with_open_image(&path);
    let yes = talk(&path, &answers);
    assert_eq!(yes.status, Some(0), "{}", yes.text);
    assert!(yes.text.contains(CAN_START), "{}", yes.text);
    let (_folder, path) = unit(scenario);
    with_open_image(&path);
    let no = talk(&path, &answers[..3]);
    assert_eq!(no.status, Some(4), "the write's own status: {}", no.text);
    let left = no.text.split("left, of what the write has printed:").nth(1).unwrap();
    assert!(left.contains("asmpatch flash ed4e39b --config-from ") && left.contains("asmpatch restore "), "{left}");
    // Nothing else was written: doctor finds the backup, and offers it.
    let doctor = String::from_utf8(asmpatch(&path, "doctor --device virtual:u").stdout).unwrap();
    assert!(doctor.contains("asmpatch restore "), "{doctor}");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn a_boot_loader_with_a_backup_is_given_it_back() {
    let (_folder, path) = unit("factory = \"stock\"\npower-loss-after = 4000\n");
    with_open_image(&path);
    assert_eq!(asmpatch(&path, "flash ed4e39b --device virtual:u --yes").status.code(), Some(4));
    fs::write(path.join("u/bridge.toml"), "factory = \"stock\"\n").unwrap();
    let talk = talk(&path, &[Types("1"), Types("y"), Types("y"), Types("")]);
    assert!(talk.text.contains("asmpatch restore ") && talk.text.contains("Permit that, and run it?"), "{}", talk.text);
    let doctor = String::from_utf8(asmpatch(&path, "doctor --device virtual:u").stdout).unwrap();
    assert!(doctor.contains("practice image"), "it has its own firmware again: {doctor}");
}
