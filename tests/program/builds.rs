//! Each command on a unit that runs each image that people have: the builds of the open firmware in the folder that
//! `ASMPATCH_OPEN_BUILDS` names, the vendor's images, and 240417 with the default patches. An error must be one that the
//! image explains, and no command may contradict another.

use std::fs;
use std::path::{Path, PathBuf};

use asm2464::firmware::{BodyOffset, Image};
use serde_json::{Value, json};

use crate::chip_images::open_builds;
use crate::program::process::{good, json, run, text};
use crate::{chip_images, schemas, side_by_side};

const UNIT: [&str; 2] = ["--device", "virtual:unit"];

/// The ID of the open boot stub, which is no dock's.
const STUB: [&str; 2] = ["--usb-id", "ADD1:B007"];

/// The checks of a boot that an intact build may fail. `flash` takes such a build only with `--unproven`.
const ONLY_UNPROVEN: [&str; 4] = [
    "names itself as a GPU runtime expects",
    "sends a configuration read (F0)",
    "gives its completion (F0)",
    "boots and enumerates with nothing behind it",
];

/// Refusals that the image explains, by command and code: nobody knows where 250123 keeps a runtime's variables.
const EXPLAINED_REFUSALS: [(&str, &str); 1] = [("bench", "asmpatch::bridge::unknown_variables")];

fn vendor_images() -> [String; 3] {
    ["ASMPATCH_VENDOR_IMAGE", "ASMPATCH_VENDOR_231204_IMAGE", "ASMPATCH_VENDOR_250123_IMAGE"].map(chip_images::path)
}

/// The build whose file has this name.
fn build(name: &str) -> String {
    let found = open_builds().into_iter().find(|path| path.file_name().is_some_and(|file| file == name));
    found.unwrap_or_else(|| panic!("no {name} in ASMPATCH_OPEN_BUILDS")).into_os_string().into_string().unwrap()
}

/// Runs a command that prints JSON on the unit. Returns its status and its document.
fn ask(home: &Path, words: &[&str]) -> (Option<i32>, Value) {
    let words = [words, &UNIT, &["--json"]].concat();
    let output = run(home, &words);
    assert!(!output.stdout.is_empty(), "{words:?}: {}", text(&output));
    (output.status.code(), schemas::parse(&words, &output.stdout))
}

fn answer(home: &Path, words: &[&str]) -> Value {
    let (status, document) = ask(home, words);
    assert_eq!(status, Some(0), "{words:?}: {document:#}");
    document
}

fn is_up(pcie: &Value) -> bool {
    pcie["link"]["is_up"] == true
}

fn has_display(pcie: &Value) -> bool {
    let class = |function: &Value| function["class"].as_u64().is_some_and(|class| class >> 16 == 3);
    pcie["functions"].as_array().unwrap().iter().any(class)
}

/// Checks what `list`, `doctor` and `pcie` say of one unit against each other.
fn looks_agree(home: &Path, is_stock: bool) -> Value {
    let list = answer(home, &["list"]);
    let listed = &list["units"][0];
    let (status, page) = ask(home, &["doctor"]);
    let pcie = answer(home, &["pcie"]);
    for key in ["usb_id", "state", "product", "serial", "speed"] {
        assert_eq!(listed[key], page[key], "{listed:#} {page:#}");
    }
    assert_eq!(listed["state"], pcie["state"], "{pcie:#}");
    let lines = page["lines"].as_array().unwrap();
    let verdict = |topic: &str| lines.iter().find(|line| line["topic"] == topic).map(|line| line["verdict"].clone());
    assert_eq!(verdict("PCIe link") == Some(json!("good")), is_up(&pcie), "{page:#} {pcie:#}");
    assert_eq!(verdict("GPU") == Some(json!("good")), has_display(&pcie), "{page:#} {pcie:#}");
    let bad: Vec<&Value> = lines.iter().filter(|line| line["verdict"] == "bad").map(|line| &line["topic"]).collect();
    // No GPU runtime drives stock firmware.
    let explained = if is_stock { vec![json!("firmware")] } else { vec![] };
    assert_eq!((bad, status), (explained.iter().collect(), Some(i32::from(is_stock))), "{page:#}");
    // A question that the build answers in another way is no fault of the wire.
    assert!(!page.to_string().contains(", expected "), "{page:#}");
    listed["firmware"].clone()
}

fn every_command(image: &Path, other: &str) {
    let home = tempfile::tempdir().unwrap();
    let (home, file) = (home.path(), image.to_str().unwrap());
    let verified = schemas::parse(&["verify"], &run(home, &["verify", "--boot", file, "--json"]).stdout);
    let verified = &verified[0];
    let flashed = run(home, &["flash", file, UNIT[0], UNIT[1], "--yes", "--json"]);
    if verified["ok"] == false {
        for failed in verified["booted"]["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false) {
            assert!(ONLY_UNPROVEN.contains(&failed["what"].as_str().unwrap()), "{file}: {verified:#}");
        }
        let refused = text(&flashed);
        let has_reason = ["no GPU runtime", "without a card that has power"].iter().any(|why| refused.contains(why));
        assert!(flashed.status.code() == Some(5) && has_reason, "{file}: {refused}");
        good(home, &[&["flash", file, "--yes", "--unproven"], &UNIT[..], &STUB].concat());
        good(home, &[&["flash", other, "--yes"], &UNIT[..], &STUB].concat());
        return;
    }
    assert!(flashed.status.success(), "{file}: {}", text(&flashed));
    let is_stock = verified["open"].is_null() && verified["patches"].as_array().unwrap().is_empty();

    let firmware = looks_agree(home, is_stock);
    answer(home, &["pcie", "reset"]);
    let reset = answer(home, &["reset"]);
    assert_eq!(reset["before"]["state"], reset["after"]["state"], "{reset:#}");
    let (status, bench) = ask(home, &["bench", "--seconds", "0.02", "--repetitions", "1"]);
    match &bench["error"]["code"] {
        Value::String(code) => assert!(EXPLAINED_REFUSALS.contains(&("bench", code)), "{file}: {bench:#}"),
        // Stock firmware answers no write of which nothing takes the data.
        _ => assert_eq!(status, Some(i32::from(is_stock)), "{file}: {bench:#}"),
    }
    answer(home, &["config", "get"]);
    let backup = answer(home, &["backup", "--backup-dir", "kept"]);
    assert!(backup.to_string().contains("kept"), "{backup:#}");
    for written in [other, file] {
        good(home, &["flash", written, UNIT[0], UNIT[1], "--yes"]);
        let list = answer(home, &["list"]);
        assert_eq!(list["units"][0]["firmware"] == firmware, written == file, "{file}: {list:#}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_BUILDS, ASMPATCH_VENDOR_IMAGE, ASMPATCH_VENDOR_231204_IMAGE and ASMPATCH_VENDOR_250123_IMAGE"]
fn every_command_works_on_every_build_or_says_what_the_build_lacks() {
    let made = tempfile::tempdir().unwrap();
    let patched = made.path().join("patched.bin");
    let stock = vendor_images();
    json(made.path(), &["patch", &stock[0], "-o", patched.to_str().unwrap(), "--json"]);
    let builds = open_builds();
    let open = builds[0].to_str().unwrap();
    let vendors = stock.iter().map(PathBuf::from).chain([patched]).map(|image| (image, open));
    let cases: Vec<(PathBuf, &str)> =
        builds.iter().map(|build| (build.clone(), stock[0].as_str())).chain(vendors).collect();
    side_by_side(cases, |(image, other)| every_command(&image, other));
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_BUILDS"]
fn a_build_with_the_name_of_a_known_image_is_that_image_only_by_its_digest() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let (named, known) = (build("named-ed4e39b.bin"), build("open-ed4e39b.bin"));
    for (file, image, status) in [(&named, Value::Null, 1), (&known, json!("ed4e39b"), 0)] {
        let verified = run(home, &["verify", "--image", "ed4e39b", file, "--json"]);
        assert_eq!(verified.status.code(), Some(status), "{}", text(&verified));
        let info = schemas::parse(&["info"], &run(home, &["info", file, "--json"]).stdout);
        assert_eq!(info["image"], image, "{info:#}");
        let words = text(&run(home, &["info", file]));
        let is_claim = words.contains("calls itself custom ed4e39b7-CLEAN, is not the known image ed4e39b");
        assert_eq!(is_claim, image.is_null(), "{words}");
        good(home, &["flash", file, UNIT[0], UNIT[1], "--yes"]);
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_BUILDS"]
fn a_link_that_trains_is_waited_for_and_not_switched_on() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    good(home, &["flash", &build("open-0ac5d19.bin"), UNIT[0], UNIT[1], "--yes"]);
    assert!(is_up(&answer(home, &["pcie"])));
    let page = text(&run(home, &["doctor", UNIT[0], UNIT[1]]));
    assert!(!page.contains("has switched PCIe on"), "{page}");
    // The link trains again after each restart.
    let reset = answer(home, &["reset"]);
    assert_eq!([&reset["before"]["faults"], &reset["after"]["faults"]], [&json!([]); 2], "{reset:#}");
    assert_eq!(reset["helped"], Value::Null, "{reset:#}");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_BUILDS"]
fn a_build_that_waits_for_f3_has_no_link_before_it_and_none_after_pcie_off() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    // ed4e39b without the call that switches PCIe on at its start.
    let mut image = Image::parse(&fs::read(build("open-ed4e39b.bin")).unwrap()).unwrap();
    assert!(image.replace(BodyOffset(0x205A), &[0; 3]));
    fs::write(home.join("waits.bin"), image.to_file()).unwrap();
    good(home, &["flash", "waits.bin", UNIT[0], UNIT[1], "--yes"]);
    for _ in 0..2 {
        let down = answer(home, &["pcie", "off"]);
        assert_eq!(down["link"]["ltssm"], 0, "{down:#}");
        let up = answer(home, &["pcie", "on"]);
        assert_eq!(up["link"]["is_up"], true, "{up:#}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_BUILDS"]
fn a_build_that_lacks_only_what_runtimes_need_is_unproven_and_its_way_back_works() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let stub = build("bootstub-c2c36aa.bin");
    let refused = run(home, &["flash", &stub, UNIT[0], UNIT[1], "--yes"]);
    assert!(refused.status.code() == Some(5) && text(&refused).contains("(F0)"), "{}", text(&refused));
    good(home, &[&["flash", &stub, "--yes", "--unproven"], &UNIT[..], &STUB].concat());
    let list = text(&run(home, &["list", UNIT[0], UNIT[1]]));
    assert!(list.contains("ADD1:B007") && !list.contains("named by"), "{list}");
    // It writes none of the link's registers.
    let (_, pcie) = ask(home, &["pcie"]);
    assert_eq!(pcie["error"]["code"], "asmpatch::pcie::link_down", "{pcie:#}");
    let (_, page) = ask(home, &["doctor"]);
    let link = page["lines"].as_array().unwrap().iter().find(|line| line["topic"] == "PCIe link").unwrap();
    assert!(link["verdict"] != "good" && link["found"].as_str().unwrap().contains("down"), "{page:#}");
    good(home, &[&["flash", &build("open-ed4e39b.bin"), "--yes"], &UNIT[..], &STUB].concat());
}
