//! Runs a shell's command on a terminal of its own.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::program::process::PROGRAM;
use crate::pty;

/// The terminal's width.
pub const COLUMNS: usize = 80;
/// The terminal's height.
pub const ROWS: usize = 24;

/// Runs a shell's line in a folder, with the unit `virtual:dock`, and answers each question with yes. Returns its
/// status and the terminal's text.
pub fn run(folder: &Path, line: &str) -> (Option<i32>, String) {
    let program = Path::new(PROGRAM).parent().unwrap();
    let mut command = shell(program, folder, line);
    command.env("ASMPATCH_DEVICE", "virtual:dock").env("ASMPATCH_BACKUP_DIR", "backups");
    command.env("XDG_DATA_HOME", folder.join("data"));
    attend(command)
}

/// A shell that runs a line in a folder on a terminal, and looks for programs in `programs` first.
pub fn shell(programs: &Path, folder: &Path, line: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([programs.to_owned()].into_iter().chain(std::env::split_paths(&path)));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("stty cols {COLUMNS} rows {ROWS}; {line}")]).current_dir(folder);
    command.env("PATH", path.unwrap()).env("TERM", "xterm").env_remove("NO_COLOR");
    command.env("ASMPATCH_TEST_SHORTEN_DEADLINES", "100");
    command
}

/// The lines that stay on a terminal: without control sequences, and without what a later text on the line replaced.
pub fn on_screen(text: &str) -> Vec<String> {
    let plain = console::strip_ansi_codes(text).into_owned();
    let shown = |line: &str| line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default().trim_end().to_owned();
    plain.split('\n').map(shown).collect()
}

/// Runs a command on a terminal, and answers each question with yes. Returns its status and the terminal's text.
pub fn attend(command: Command) -> (Option<i32>, String) {
    answer(command, &["y\n"])
}

/// Runs a command on a terminal, and types these answers to its questions, the last one to all others. Returns what
/// [`attend`] does.
pub fn answer(mut command: Command, typed: &'static [&'static str]) -> (Option<i32>, String) {
    let (mut ours, theirs) = pty::open().unwrap();
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // Only the child has the other end now, so reading ends with it.
    drop(command);
    let sits = thread::spawn(move || {
        let (mut seen, mut answers, mut buffer) = (Vec::new(), 0, [0; 4096]);
        while let Ok(len @ 1..) = ours.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..len]);
            if String::from_utf8_lossy(&seen).matches("[y/N]").count() > answers {
                ours.write_all(typed[answers.min(typed.len() - 1)].as_bytes()).unwrap();
                answers += 1;
            }
        }
        String::from_utf8_lossy(&seen).into_owned()
    });
    let status = child.wait().unwrap().code();
    (status, sits.join().unwrap())
}
