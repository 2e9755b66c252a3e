//! `bench --baseline` where the two runs have different rows.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::program::process;
use crate::schemas;

fn bench(folder: &Path, words: &[&str]) -> Output {
    let quick = ["bench", "--device", "virtual:unit", "--seconds", "0.005", "--repetitions", "1"];
    process::run(folder, &[&quick, words].concat())
}

/// Saves the report of a run as `name`.
fn save(folder: &Path, name: &str, words: &[&str]) -> Value {
    let output = bench(folder, &[words, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(folder.join(name), &output.stdout).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_baselines_row_at_a_depth_that_is_missing_now_is_compared_with_the_best_row_of_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = save(folder.path(), "uas.json", &["--path", "e4-255"]);
    assert_eq!(before["rows"][0]["depth"], 31);
    // No host is that fast.
    before["rows"][0]["mb_per_s"] = json!({ "median": 1e6, "min": 1e6, "max": 1e6 });
    fs::write(folder.path().join("fast.json"), before.to_string()).unwrap();
    let words = ["--path", "e4-255", "--transport", "bot", "--baseline", "fast.json", "--json"];
    let output = bench(folder.path(), &words);
    let now: Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::check_document("bench", &now).unwrap();
    let change = &now["changes"][0];
    assert_eq!((&change["depth"], &change["now_depth"], &change["is_worse"]), (&json!(31), &json!(1), &json!(true)));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_baseline_that_powershell_wrote_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let before = save(folder.path(), "before.json", &["--path", "config-read"]).to_string();
    let utf16: Vec<u8> = "\u{FEFF}".encode_utf16().chain(before.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    fs::write(folder.path().join("utf16.json"), utf16).unwrap();
    let words = ["--path", "config-read", "--baseline", "utf16.json", "--max-slower", "100", "--json"];
    let output = bench(folder.path(), &words);
    let now: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((now["changes"][0]["path"].as_str(), output.status.code()), (Some("config-read"), Some(0)), "{now:#}");
}

#[test]
fn a_baselines_row_that_the_options_leave_out_is_named_and_does_not_fail() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), "both.json", &["--path", "e4-255,config-read"]);
    let output = bench(folder.path(), &["--path", "e4-255", "--baseline", "both.json", "--max-slower", "100"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.lines().any(|line| line.contains("not measured in this run")), "{text}");
}

#[test]
fn a_baseline_with_which_nothing_can_be_compared_fails() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), "other.json", &["--path", "e4-255"]);
    let output = bench(folder.path(), &["--path", "config-read", "--baseline", "other.json"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("asmpatch::bench::nothing_compared"), "{text}");
}

#[test]
fn a_slower_run_is_not_called_worse_while_the_repetitions_of_a_run_lie_far_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = save(folder.path(), "before.json", &["--path", "config-read"]);
    for (min, code, advice) in [
        (5e5, "asmpatch::bench::unsteady", "measure again on an idle host, and the baseline too"),
        (1e6, "asmpatch::bench::worse", ""),
    ] {
        // No host is that fast.
        before["rows"][0]["mb_per_s"] = json!({ "median": 1e6, "min": min, "max": 1e6 });
        fs::write(folder.path().join("fast.json"), before.to_string()).unwrap();
        let output = bench(folder.path(), &["--path", "config-read", "--baseline", "fast.json"]);
        let words = process::text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.contains(code) && words.contains(advice), "{words}");
        assert_eq!(words.contains("(its own spread is wide)"), min < 1e6, "{words}");
    }
}
