//! `doctor --fix` on a terminal of 80 columns, answered as a user would, and once with no at each question; and without a
//! terminal.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, thread};

use asm2464::firmware::BodyOffset;
use asm2464_chip::practice;
use serde_json::Value;

use crate::program::{process, terminal};
use crate::{pty, side_by_side};

#[cfg(target_os = "linux")]
mod host;

/// What the user does at a prompt.
#[derive(Clone, Copy)]
pub enum Does {
    /// Types this, and Enter.
    Types(&'static str),
    /// Sets the virtual unit's bridge.toml to this, from another terminal.
    Sets(&'static str),
    /// Changes something in the folder, from another terminal or by hand, then types this.
    Acts(fn(&Path), &'static str),
    /// Presses Ctrl-C.
    Stops,
}
use Does::{Acts, Sets, Stops, Types};

/// The ends of what asks: a question, a choice, a wait.
const PROMPTS: [&str; 3] = [QUESTION, CHOICE, "Ctrl-C ends)"];
const QUESTION: &str = "[y/N]";
const CHOICE: &str = "Enter for none]";

/// A conversation: its status, and the text that was on the screen, each run of spaces and line ends as one space.
pub struct Talk {
    pub status: Option<i32>,
    pub text: String,
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
    converse(command, folder, |number, _| does.get(number).copied().unwrap_or(Types("")))
}

/// Agrees to a question, takes the first of a choice, and goes on at a wait.
pub fn agree(_: usize, prompt: &str) -> Does {
    match prompt {
        QUESTION => Types("y"),
        CHOICE => Types("1"),
        _ => Types(""),
    }
}

/// Runs a command on a terminal, and at each prompt does in the folder what `does` says of its number and its end.
pub fn converse(mut command: Command, folder: &Path, does: impl Fn(usize, &str) -> Does) -> Talk {
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
        let mut asked: Vec<(usize, &str)> = PROMPTS.iter().flat_map(|prompt| text.match_indices(prompt)).collect();
        asked.sort_unstable();
        for (_, prompt) in asked.iter().skip(prompts) {
            match does(prompts, prompt) {
                Types(answer) => ours.write_all(format!("{answer}\n").as_bytes()).unwrap(),
                Sets(scenario) => fs::write(folder.join("u/bridge.toml"), scenario).unwrap(),
                Acts(change, typed) => {
                    change(folder);
                    ours.write_all(typed.as_bytes()).unwrap();
                }
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
fn a_slow_link_is_restarted_unasked_and_what_is_set_is_then_taken_out_if_the_user_agrees() {
    let scenario = "factory = \"open\"\nspeed = \"high\"\n";
    let (_folder, path) = unit(scenario);
    let before = flash(&path);
    let no = talk(&path, &[Types("n")]);
    assert_eq!((no.status, no.prompts), (Some(4), 1), "reset's own status is worse: {}", no.text);
    let ended = no.text.split("status 4 USB: asmpatch reset --device virtual:u").nth(1).unwrap();
    assert!(ended.contains("the answer was no") && ended.contains("left: USB: 480 Mbit/s"), "{ended}");
    assert_eq!((flash(&path), fs::read_to_string(path.join("u/bridge.toml")).unwrap().as_str()), (before, scenario));
    let yes = talk(&path, &[Types("y")]);
    assert_eq!((yes.status, yes.prompts), (Some(0), 1), "{}", yes.text);
    assert!(yes.text.contains("asmpatch virtual set speed= --device virtual:u"), "{}", yes.text);
    assert!(yes.text.contains(CAN_START), "{}", yes.text);
}

/// A unit that no question helps.
const SSD: &str = "factory = \"open\"\nbehind = { ssd = { bytes = 67108864 } }\n";

#[test]
fn an_ssd_in_the_gpus_place_is_waited_for_until_it_changes_and_enter_goes_on_to_the_end() {
    let (_folder, path) = unit(SSD);
    let before = flash(&path);
    let stays = talk(&path, &[Types("")]);
    assert_eq!((stays.status, stays.prompts), (Some(1), 1), "{}", stays.text);
    let tried = stays.text.split("by hand GPU: put a GPU in its place").nth(1).unwrap();
    assert!(tried.contains("no step is left that wasn't tried"), "{tried}");
    assert_eq!((flash(&path), fs::read_to_string(path.join("u/bridge.toml")).unwrap().as_str()), (before, SSD));
    let other = talk(&path, &[Sets("factory = \"open\"\n")]);
    assert_eq!((other.status, other.prompts), (Some(0), 1), "{}", other.text);
    assert!(other.text.contains(CAN_START), "{}", other.text);
}

#[test]
fn ctrl_c_at_a_wait_ends_it_and_says_where_it_stands() {
    let (_folder, path) = unit(SSD);
    let stopped = talk(&path, &[Stops]);
    assert_eq!(stopped.status, Some(130), "{}", stopped.text);
    assert!(
        stopped.text.contains("stopped by Ctrl-C") && stopped.text.contains("left: GPU: no GPU, but an SSD"),
        "{}",
        stopped.text
    );
}

#[test]
fn a_card_that_no_runtime_drives_ends_with_a_sentence() {
    let (_folder, path) = unit("factory = \"open\"\nbehind = \"tiny-gpu\"\n");
    let talk = talk(&path, &[]);
    assert_eq!((talk.status, talk.prompts), (Some(1), 0), "{}", talk.text);
    assert!(talk.text.contains("tiny-gpu, a card of virtual units"), "{}", talk.text);
    assert!(talk.text.contains("no step is left") && !talk.text.contains(CAN_START), "{}", talk.text);
    let nobody = process::text(&asmpatch(&path, "doctor --fix --device virtual:u"));
    assert!(nobody.contains("no step is left") && !nobody.contains("needs your hands"), "{nobody}");
}

/// What is set on a unit and keeps a runtime from starting: its bridge.toml, the key, and how the answer no ends.
const SET: [(&str, &str, i32); 5] = [
    ("behind = \"nothing\"", "behind", 1),
    ("pcie-link-lost-after = 20", "pcie-link-lost-after", 1),
    // The practice image has no F3, which would switch it on.
    ("pcie-starts-off = true", "pcie-starts-off", 1),
    ("state = \"boot-loader\"", "state", 1),
    ("state = \"absent\"", "state", 4),
];

#[test]
fn what_is_set_and_decides_a_finding_is_taken_out_before_hands_and_writes_if_the_user_agrees() {
    side_by_side(SET, |(set, key, status)| {
        let (_folder, path) = unit("factory = \"open\"\n");
        let scenario = format!("factory = \"open\"\n{set}\n");
        fs::write(path.join("u/bridge.toml"), &scenario).unwrap();
        let before = flash(&path);
        let no = talk(&path, &[Types("n")]);
        assert_eq!((no.status, no.prompts), (Some(status), 1), "{set}: {}", no.text);
        assert!(no.text.contains("the answer was no"), "{set}: {}", no.text);
        assert_eq!(fs::read_to_string(path.join("u/bridge.toml")).unwrap(), scenario);
        let yes = talk(&path, &[Types("y")]);
        assert_eq!((yes.status, yes.prompts), (Some(0), 1), "{set}: {}", yes.text);
        let taken = format!(": asmpatch virtual set {key}= --device virtual:u");
        assert!(yes.text.contains(&taken) && yes.text.contains(CAN_START), "{set}: {}", yes.text);
        assert_eq!(flash(&path), before, "{set}");
    });
}

/// A unit whose open firmware says another text of the same length in place of `text`.
fn with_other_text(text: &[u8], other: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let mut image = practice::open_image();
    let at = image.body().windows(text.len()).position(|bytes| bytes == text).unwrap();
    assert!(image.replace(BodyOffset(at.try_into().unwrap()), other));
    let (folder, path) = unit("factory = \"open\"\n");
    fs::write(path.join("other.bin"), image.to_file()).unwrap();
    let line = "flash other.bin --unproven --no-backup --yes --device virtual:u";
    let output = asmpatch(&path, line);
    assert!(output.status.success(), "{}", process::text(&output));
    (folder, path)
}

#[test]
fn a_build_that_is_too_old_drives_a_runtime_and_is_asked_nothing() {
    let (_folder, path) = with_other_text(b"custom practice", b"custom v0.1\0\0\0\0");
    let talk = talk(&path, &[]);
    assert_eq!((talk.status, talk.prompts), (Some(0), 0), "{}", talk.text);
    assert!(talk.text.contains(CAN_START), "{}", talk.text);
}

#[test]
fn a_build_whose_name_no_runtime_takes_is_unchanged_after_no_and_without_an_image() {
    let (_folder, path) = with_other_text(b"custom practice", b"a fork's build.");
    let before = flash(&path);
    for answer in ["n", ""] {
        let no = talk(&path, &[Types(answer)]);
        assert_eq!((no.status, no.prompts), (Some(1), 1), "{}", no.text);
        assert!(no.text.contains("tinygrad refuses this name"), "{}", no.text);
        assert!(no.text.contains("asmpatch flash ed4e39b --device virtual:u"), "{}", no.text);
        assert!(no.text.contains("the answer was no: nothing else is done"), "{}", no.text);
        assert_eq!(flash(&path), before);
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn rails_that_are_off_are_switched_on_unasked_and_a_supplys_fault_is_taken_out_if_the_user_agrees() {
    let (_folder, path) = unit("factory = \"stock\"\n");
    with_open_image(&path);
    assert!(asmpatch(&path, "flash ed4e39b --yes --device virtual:u").status.success());
    let before = flash(&path);
    fs::write(path.join("u/bridge.toml"), "pcie-starts-off = true\n").unwrap();
    let off = talk(&path, &[]);
    assert_eq!((off.status, off.prompts), (Some(0), 0), "{}", off.text);
    assert!(off.text.contains(CAN_START), "{}", off.text);
    fs::write(path.join("u/bridge.toml"), "supply = { voltage-mv = 1580, current-ma = 0, fault = true }\n").unwrap();
    let no = talk(&path, &[Types("n")]);
    assert_eq!((no.status, no.prompts), (Some(1), 1), "{}", no.text);
    let yes = talk(&path, &[Types("y")]);
    assert_eq!((yes.status, yes.prompts), (Some(0), 1), "{}", yes.text);
    assert!(yes.text.contains("asmpatch virtual set supply= --device virtual:u"), "{}", yes.text);
    assert_eq!(flash(&path), before);
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn a_build_whose_name_no_runtime_takes_is_replaced_if_the_user_agrees() {
    let (_folder, path) = with_other_text(b"custom practice", b"a fork's build.");
    with_open_image(&path);
    let before = flash(&path);
    let no = talk(&path, &[Types("y"), Types("n")]);
    assert_eq!((no.status, no.prompts), (Some(5), 2), "flash's own question: {}", no.text);
    assert_eq!(flash(&path), before);
    let yes = talk(&path, &[Types("y"), Types("y"), Types("n")]);
    assert_eq!((yes.status, yes.prompts), (Some(0), 3), "{}", yes.text);
    assert!(yes.text.contains(CAN_START), "{}", yes.text);
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
    assert_eq!(said["left"][0]["step"]["command"], "asmpatch virtual set speed= --device virtual:u", "{said:#}");
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
        ("factory = \"no-image\"\n", &[Types("1"), Types("n")]),
    ] {
        let (_folder, path) = unit(scenario);
        let before = flash(&path);
        let talk = talk(&path, answers);
        assert_eq!((talk.status, talk.prompts), (Some(1), answers.len()), "{scenario}: {}", talk.text);
        assert!(talk.text.contains("the answer was no: nothing else is done"), "{}", talk.text);
        assert_eq!(flash(&path), before, "{scenario}");
    }
}

#[test]
fn what_only_hands_could_do_instead_is_said_above_a_choice_and_is_neither_a_number_nor_a_wait() {
    let (_folder, path) = unit("factory = \"no-image\"\n");
    let none = talk(&path, &[Types("")]);
    assert_eq!((none.status, none.prompts), (Some(1), 1), "{}", none.text);
    let (above, below) = none.text.split_once(" 1 if it has no backup anywhere").unwrap();
    assert!(above.contains("If its backups are elsewhere") && below.contains("Which one? [1-2"), "{}", none.text);
    // A dock that has lost its configuration, at another port than its backup's.
    let (_folder, path) = unit("factory = \"stock\"\n");
    assert!(asmpatch(&path, "backup --device virtual:u").status.success());
    fs::rename(path.join("u"), path.join("other")).unwrap();
    fs::create_dir(path.join("u")).unwrap();
    fs::write(path.join("u/flash.bin"), vec![0xFF; 0x8_0000]).unwrap();
    fs::remove_dir_all(path.join("other")).unwrap();
    let none = talk(&path, &[Types("")]);
    assert_eq!((none.status, none.prompts), (Some(1), 1), "{}", none.text);
    assert!(none.text.contains("asmpatch restore ") && none.text.contains("Which one? [1-4"), "{}", none.text);
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
    let yes = talk(&path, &[Types("1"), Types("y"), Types("y"), Types("n")]);
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
