//! Runs the program in a folder, in which its backups and downloads stay.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::schemas;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_asmpatch");

/// The program with these arguments, without colours and without the user's own settings.
pub fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder).env("ASMPATCH_BACKUP_DIR", "backups").env("ASMPATCH_CACHE_DIR", "cache");
    // The user's own backups are no test's.
    command.env("XDG_DATA_HOME", folder.join("data"));
    command.env("ASMPATCH_CONFIG", "").env("NO_COLOR", "1").args(words);
    command
}

pub fn run(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

/// All that was printed: stdout, then stderr.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Runs a command that must succeed. Returns its stdout.
pub fn good(folder: &Path, words: &[&str]) -> String {
    let output = run(folder, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The document that a command prints, as its schema says. Panics if the command fails.
pub fn json(folder: &Path, words: &[&str]) -> Value {
    schemas::parse(words, good(folder, words).as_bytes())
}

/// The arguments of a printed command without quotes.
pub fn arguments(printed: &str) -> Vec<&str> {
    printed.split(' ').skip(1).collect()
}

/// The commands that recover a unit by its JSON, but for the one that takes out the faults: whoever set them does that.
pub fn recovery(unit: &Value) -> Vec<String> {
    let steps = unit["error"]["recovery"].as_array().unwrap().iter();
    let commands = steps.filter_map(|step| step["command"].as_str());
    commands.filter(|command| !command.starts_with("asmpatch virtual set ")).map(str::to_owned).collect()
}
