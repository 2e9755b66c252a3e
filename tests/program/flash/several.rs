//! `asmpatch flash --all` on several units.

use std::fs;
use std::path::Path;

use asm2464_dock::virtual_unit::VirtualPort;
use serde_json::Value;

use crate::program::flash::rig::{asmpatch, patched, write_image};
use crate::program::process;
use crate::schemas;

/// Makes units with these scenarios in the folders `unit0`, `unit1` and so on.
fn units(home: &Path, scenarios: &[&str]) {
    write_image(home, &patched());
    for (at, scenario) in scenarios.iter().enumerate() {
        let unit = home.join(format!("unit{at}"));
        fs::create_dir(&unit).unwrap();
        fs::write(unit.join("bridge.toml"), format!("serial = 'DOCK{at}'\n{scenario}")).unwrap();
    }
}

/// Flashes units. Returns the exit status and each unit's result.
fn flash_all(home: &Path, count: usize, options: &[&str]) -> (Option<i32>, Vec<Value>) {
    let devices: Vec<String> = (0..count).map(|at| format!("--device=virtual:unit{at}")).collect();
    let mut words = vec!["flash", "patched.bin", "--all"];
    words.extend(devices.iter().map(String::as_str).chain(options.iter().copied()));
    let output = asmpatch(home, &words);
    let units = schemas::parse(&["flash"], &output.stdout);
    (output.status.code(), units.as_array().unwrap().clone())
}

/// Lets a unit make its flash, as the first command on it does.
fn power_on(home: &Path, unit: usize) {
    drop(VirtualPort::open_dir(&home.join(format!("unit{unit}"))).unwrap());
}

fn cells(home: &Path, unit: usize) -> Vec<u8> {
    fs::read(home.join(format!("unit{unit}/flash.bin"))).unwrap()
}

#[test]
fn with_all_or_none_a_unit_that_fails_before_its_first_write_leaves_every_unit_unwritten() {
    // The plan reads the flash once (two E0, two E2) before the run does.
    let troubles = [
        ("[[fault]]\nkind = 'stall'\nopcode = 0xe2\nnth = 3\ntimes = 99\n", "a backup that can't be read"),
        ("factory = 'open'\n[flash]\nprotection = 'for-good'\n", "a flash that is protected for good"),
        ("[[fault]]\nkind = 'disconnect'\nopcode = 0xe0\nnth = 5\n", "a unit that leaves after its backup"),
    ];
    for (trouble, what) in troubles {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        units(home, &["", trouble, ""]);
        (0..3).for_each(|at| power_on(home, at));
        let before = [0, 1, 2].map(|at| cells(home, at));
        let (status, printed) = flash_all(home, 3, &["--all-or-none"]);
        assert!([0, 1, 2].map(|at| cells(home, at)) == before, "{what}: {printed:#?}");
        assert!(matches!(status, Some(4 | 5)), "{what}: {printed:#?}");
        for unit in [0, 2] {
            assert_eq!(printed[unit]["error"]["code"], "asmpatch::flash::all_or_none", "{what}: {printed:#?}");
            assert_eq!(printed[unit]["error"]["left"], "untouched", "{what}");
            assert_eq!(printed[unit]["changed"], false, "{what}");
            assert!(printed[unit]["backup"].is_string(), "{what}: each was ready to be written");
        }
        assert_eq!(
            (&printed[1]["error"]["left"], &printed[1]["changed"]),
            (&"untouched".into(), &false.into()),
            "{what}"
        );

        let (_, printed) = flash_all(home, 3, &[]);
        assert!(
            printed[0]["changed"] == true && printed[1]["changed"] == false && printed[2]["changed"] == true,
            "{printed:#?}"
        );
    }
}

#[test]
fn with_all_or_none_a_unit_that_fails_while_it_is_written_does_not_undo_the_others() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    units(home, &["", "[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\n"]);
    let (status, printed) = flash_all(home, 2, &["--all-or-none"]);
    assert_eq!(
        (status, &printed[0]["ok"], &printed[1]["error"]["left"]),
        (Some(4), &true.into(), &"incomplete".into())
    );
}

#[test]
fn a_series_gives_each_unit_the_next_serial_number_and_a_repeated_run_changes_none() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    // One unit has a number of the series, one is blank, and one stops before its second part.
    let scenarios = ["", "", "factory = 'erased'", "", "factory = 'no-image'\npower-loss-after = 70000\n"];
    units(home, &scenarios);
    fs::write(home.join("unit3/bridge.toml"), "serial = 'RACK-0A'\n").unwrap();
    // A backup of another unit has a number, too.
    fs::create_dir(home.join("elsewhere")).unwrap();
    fs::write(home.join("elsewhere/bridge.toml"), "serial = 'RACK-0C'\n").unwrap();
    process::good(home, &["backup", "--device", "virtual:elsewhere"]);
    let numbered = |options: &[&str]| {
        let (status, units) = flash_all(home, 5, &[&["--serials=RACK-0A", "--clone-identity"], options].concat());
        let serials: Vec<String> =
            units.iter().map(|unit| unit["plan"]["serial"].as_str().unwrap().to_owned()).collect();
        (status, serials, units)
    };
    let expected = ["RACK-0B", "RACK-0D", "RACK-0E", "RACK-0A", "RACK-0F"];
    let (status, serials, printed) = numbered(&["--no-backup"]);
    assert_eq!((status, &serials[..]), (Some(4), &expected.map(str::to_owned)[..]), "{printed:#?}");
    let on = process::recovery(&printed[4]).remove(0);
    assert!(on.contains(" --serial RACK-0F ") && !on.contains("--serials"), "{on}");
    for (at, scenario) in scenarios.iter().enumerate() {
        fs::write(home.join(format!("unit{at}/bridge.toml")), scenario.replace("power-loss-after = 70000\n", ""))
            .unwrap();
    }
    let (status, again, printed) = numbered(&["--no-backup"]);
    assert_eq!((status, again), (Some(0), serials), "{printed:#?}");
    let changed: Vec<bool> = printed.iter().map(|unit| unit["changed"] == true).collect();
    assert_eq!(changed, [false, false, false, false, true], "only the unit that stopped is written: {printed:#?}");
}

#[test]
fn a_series_without_a_number_left_writes_only_the_units_that_have_one() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    units(home, &["", ""]);
    (0..2).for_each(|at| power_on(home, at));
    let before = [0, 1].map(|at| cells(home, at));
    let (status, printed) = flash_all(home, 2, &["--serials=R-9"]);
    assert_eq!((status, &printed[1]["error"]["code"]), (Some(5), &"asmpatch::flash::serials_end".into()));
    assert_eq!(printed[0]["after"]["serial"], "R-9");
    assert!(cells(home, 0) != before[0] && cells(home, 1) == before[1]);
    // The number that is left is in the backup of nobody, but a unit has it.
    let (_, printed) = flash_all(home, 2, &["--serials=R-9", "--all-or-none"]);
    assert_eq!(printed[0]["result"], "unchanged", "{printed:#?}");
    assert_eq!(printed[1]["result"], "refused");
}
