//! `bench --soak` as its users run it: its JSON, its picture, its exit status, and Ctrl-C.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::schemas;

fn asmpatch(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmpatch"));
    command.current_dir(folder).env("ASMPATCH_CONFIG", "").env("NO_COLOR", "1").args(words);
    command
}

/// A virtual unit with the practice image and these faults.
fn unit(scenario: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("unit")).unwrap();
    fs::write(folder.path().join("unit/bridge.toml"), scenario).unwrap();
    folder
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[test]
fn a_soak_counts_a_fault_in_json_and_picture_and_fails_above_the_errors_that_were_allowed() {
    let faults = "[[fault]]\nkind = 'short-data'\nopcode = 0xE4\nnth = 2500\n\
                  [[fault]]\nkind = 'short-data'\nopcode = 0xE4\nnth = 3000\n";
    let folder = unit(faults);
    let words = ["bench", "--device", "virtual:unit", "--soak", "4s", "--json", "--svg", "soak.svg"];
    let output = asmpatch(folder.path(), &words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::check_document("bench-soak", &report).unwrap();
    assert_eq!((&report["error_count"], &report["ended"]), (&2.into(), &"completed".into()));
    assert_eq!((&report["errors"][0]["kind"], &report["errors"][0]["count"]), (&"short".into(), &2.into()));
    let svg = fs::read_to_string(folder.path().join("soak.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("throughput over time; 2 errors"), "{svg}");

    let limited = |most: &str| {
        let words = ["bench", "--device", "virtual:unit", "--soak", "4s", "--max-errors-per-hour", most];
        asmpatch(folder.path(), &words).output().unwrap()
    };
    let output = limited("10");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("asmpatch::bench::errors") && text(&output).contains("  2 errors, "));
    assert!(text(&output).lines().all(|line| line.chars().count() <= 100), "{}", text(&output));
    assert_eq!(limited("100000").status.code(), Some(0));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_soak_with_what_was_measured() {
    let folder = unit("");
    let mut command = asmpatch(folder.path(), &["bench", "--device", "virtual:unit", "--soak", "1h", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::check_document("bench-soak", &report).unwrap();
    assert_eq!((&report["ended"], &report["asked_s"]), (&"stopped".into(), &3600.0.into()));
    assert!(report["elapsed_s"].as_f64().unwrap() < 60.0 && report["bytes"].as_u64().unwrap() > 0);
}
