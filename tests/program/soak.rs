//! `bench --soak` as its users run it: its JSON, its picture, its exit status, and Ctrl-C.

use std::fs;
use std::path::Path;

use crate::program::flash::rig::patched;
use crate::program::process::{good, run, text};
use crate::{chip_images, schemas};

/// A virtual unit with the patched practice image and these faults.
fn unit(scenario: &str) -> tempfile::TempDir {
    let folder = unpatched_unit("");
    fs::write(folder.path().join("patched.bin"), patched().image.to_file()).unwrap();
    good(folder.path(), &["flash", "patched.bin", "--device", "virtual:unit", "--yes"]);
    fs::write(folder.path().join("unit/bridge.toml"), scenario).unwrap();
    folder
}

/// A virtual unit with the practice image and these faults.
fn unpatched_unit(scenario: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("unit")).unwrap();
    fs::write(folder.path().join("unit/bridge.toml"), scenario).unwrap();
    folder
}

#[test]
fn a_soak_counts_a_fault_in_json_and_picture_and_fails_above_the_errors_that_were_allowed() {
    // The check before the soak sends 17 WRITE(16).
    let faults = "[[fault]]\nkind = 'bad-tag'\nopcode = 0x8A\nnth = 20\n\
                  [[fault]]\nkind = 'bad-tag'\nopcode = 0x8A\nnth = 22\n";
    let folder = unit(faults);
    let words = ["bench", "--device", "virtual:unit", "--soak", "2s", "--json", "--svg", "soak.svg"];
    let output = run(folder.path(), &words);
    assert!(output.status.success(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::check_document("bench-soak", &report).unwrap();
    assert_eq!((&report["error_count"], &report["ended"]), (&2.into(), &"completed".into()));
    assert_eq!((&report["errors"][0]["kind"], &report["errors"][0]["count"]), (&"wire".into(), &2.into()));
    let svg = fs::read_to_string(folder.path().join("soak.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("throughput over time; 2 errors"), "{svg}");

    let limited = |most: &str| {
        let words = ["bench", "--device", "virtual:unit", "--soak", "2s", "--max-errors-per-hour", most];
        run(folder.path(), &words)
    };
    let output = limited("10");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("asmpatch::bench::errors") && text(&output).contains("  2 errors, "));
    assert!(text(&output).lines().all(|line| line.chars().count() <= 100), "{}", text(&output));
    assert_eq!(limited("100000").status.code(), Some(0));
}

/// Soaks the unit of a folder. Returns its status and its words.
fn soaked(folder: &Path) -> (Option<i32>, String) {
    let words = ["bench", "--device", "virtual:unit", "--soak", "1s", "--timeout", "0.3"];
    let output = run(folder, &words);
    (output.status.code(), text(&output))
}

#[test]
fn a_path_that_was_left_out_has_not_passed() {
    // Stock firmware never answers WRITE(16).
    let (status, said) = soaked(unpatched_unit("").path());
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("✗ WRITE(16): left out") && said.contains("asmpatch::bench::failed"), "{said}");
    assert!(!said.contains("no errors"), "{said}");
    let (status, said) = soaked(unit("").path());
    assert!(status == Some(0) && said.contains("  no errors"), "{said}");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn open_firmware_on_a_dead_link_and_with_dead_pipes_does_not_pass_a_soak() {
    let folder = unpatched_unit("");
    let image = chip_images::path("ASMPATCH_OPEN_NEW_IMAGE");
    good(folder.path(), &["flash", &image, "--device", "virtual:unit", "--yes"]);
    for (scenario, code) in [("bulk-hangs = true\n", "failed"), ("pcie-link-lost-after = 3000\n", "corrupt")] {
        fs::write(folder.path().join("unit/bridge.toml"), scenario).unwrap();
        let (status, said) = soaked(folder.path());
        assert!(status == Some(1) && said.contains(&format!("asmpatch::bench::{code}")), "{scenario}{said}");
        assert!(!said.contains("no errors"), "{said}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_soak_with_what_was_measured() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use crate::program::process::command;

    let folder = unit("");
    let mut command = command(folder.path(), &["bench", "--device", "virtual:unit", "--soak", "1h", "--json", "-v"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("the soak begins")));
    std::thread::sleep(Duration::from_millis(500));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::check_document("bench-soak", &report).unwrap();
    assert_eq!((&report["ended"], &report["asked_s"]), (&"stopped".into(), &3600.0.into()));
    let elapsed_s = report["elapsed_s"].as_f64().unwrap();
    assert!(elapsed_s < 60.0 && report["bytes"].as_u64().unwrap() > 0);
    // Slices begin with 10 ms, and 200 are merged to 100.
    let slices = report["over_time"].as_array().unwrap().len();
    assert!(slices >= (90.0 * elapsed_s).min(100.0) as usize, "{slices} slices of {elapsed_s} s");
}
