//! The self-test after `asmpatch flash`: when it is offered, and its JSON.

use std::collections::BTreeSet;
use std::fs;

use asm2464_chip::practice;
use serde_json::Value;

use crate::program::flash::rig::{Rig, asmpatch, patched, write_image};
#[cfg(unix)]
use crate::program::terminal;
use crate::schemas;

/// What this path's rows have in a unit's self-test: the reason if they were not measured, otherwise their outcome.
fn outcomes(unit: &Value, path: &str) -> BTreeSet<String> {
    let rows = unit["self_test"]["rows"].as_array().unwrap_or_else(|| panic!("no self-test: {unit:#}"));
    let of_path = rows.iter().filter(|row| row["path"] == path);
    of_path.map(|row| row["reason"].as_str().or(row["outcome"].as_str()).unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_json_of_a_flash_has_read16_against_e4_or_why_it_could_not_be_measured() {
    let ssd = "behind = { ssd = { bytes = 1048576 } }\n";
    for (scenario, image, read, expected) in [
        ("", "patched.bin", "read16", "no-completer"),
        (ssd, "patched.bin", "read16", "measured"),
        ("cpu-reset = 'loads-code'\n", "open.bin", "f2-out", "the unit refused F2 (arm the SRAM DMA)"),
    ] {
        let rig = Rig::new(scenario);
        let home = rig.home.path();
        write_image(home, &patched());
        fs::write(home.join("open.bin"), practice::open_image().to_file()).unwrap();
        let output = asmpatch(home, &["flash", image, "--device", "virtual:unit", "--bench"]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{scenario} {image}: {printed}");
        let unit = &schemas::parse(&["flash"], &output.stdout)[0];
        assert_eq!(unit["result"], "written", "{scenario} {image}: {unit:#}");
        assert_eq!(outcomes(unit, "e4-255"), ["measured".to_owned()].into(), "{scenario} {image}");
        assert_eq!(outcomes(unit, read), [expected.to_owned()].into(), "{scenario} {image}");
        assert!(unit.get("self_test_error").is_none(), "{scenario} {image}: {unit:#}");
    }
}

#[test]
fn the_json_of_a_flash_has_no_self_test_unless_it_is_asked_for() {
    let rig = Rig::new("");
    write_image(rig.home.path(), &patched());
    let output = asmpatch(rig.home.path(), &["flash", "patched.bin", "--device", "virtual:unit"]);
    let unit = &schemas::parse(&["flash"], &output.stdout)[0];
    assert!(unit.get("self_test").is_none() && unit.get("self_test_error").is_none(), "{unit:#}");
}

#[test]
#[cfg(unix)]
fn a_terminal_offers_a_self_test_says_what_it_measures_and_replugs_a_virtual_unit_for_it() {
    for (scenario, options) in [("", ""), ("factory = 'erased'\n", " --no-backup")] {
        let rig = Rig::new(scenario);
        let home = rig.home.path();
        write_image(home, &patched());
        let line = format!("asmpatch flash patched.bin --device virtual:unit{options}");
        let (status, screen) = terminal::run(home, &line);
        assert_eq!(status, Some(0), "{screen}");
        assert!(screen.contains("Run a self-test now: does every byte survive WRITE(16) and E4"), "{screen}");
        assert!(screen.contains("READ(16) against E4: not measured"), "{screen}");
    }
}

#[test]
#[cfg(unix)]
fn ctrl_d_at_a_question_leaves_the_next_line_to_itself() {
    let rig = Rig::new("");
    let home = rig.home.path();
    write_image(home, &patched());
    let programs = std::path::Path::new(crate::program::process::PROGRAM).parent().unwrap();
    let command = terminal::shell(programs, home, "asmpatch flash patched.bin --device virtual:unit");
    let (_, screen) = terminal::answer(command, &["\x04"]);
    let lines = terminal::on_screen(&screen);
    let question = lines.iter().position(|line| line == "Write this unit? [y/N]");
    let next = question.and_then(|at| lines.get(at + 1));
    assert_eq!(next.map(String::as_str), Some("asmpatch::flash::declined"), "{screen:?}");
}

#[test]
fn a_unit_that_already_has_the_image_is_tested_all_the_same() {
    let rig = Rig::new("");
    write_image(rig.home.path(), &patched());
    let words = ["flash", "patched.bin", "--device", "virtual:unit", "--bench"];
    asmpatch(rig.home.path(), &words);
    let output = asmpatch(rig.home.path(), &words);
    assert_eq!(output.status.code(), Some(0));
    let unit = &schemas::parse(&["flash"], &output.stdout)[0];
    assert_eq!((&unit["result"], unit["self_test"].is_object()), (&"unchanged".into(), true), "{unit:#}");
}
