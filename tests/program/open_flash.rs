//! Open firmware through asmpatch's commands. Variables name the images that are not ours.

use std::fs;

use asm2464::firmware::Image;
use asm2464_chip::practice;

use crate::chip_images;
use crate::program::process::{good, json, run, text};

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_that_cannot_be_replaced_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let body = chip_images::open().body().to_vec();
    // Without E5 a unit can't be written through its registers. The code compares bRequest with it.
    let at = body.windows(2).enumerate().filter(|(_, bytes)| *bytes == [0xBD, 0xE5]);
    let at: Vec<usize> = at.map(|(at, _)| at).collect();
    assert_eq!(at.len(), 1, "CJNE R5,#E5");
    let mut broken = body;
    for at in at {
        broken[at + 1] = 0x77;
    }
    fs::write(home.path().join("code"), broken).unwrap();
    good(home.path(), &["wrap", "code", "-o", "broken.bin"]);
    let verified = run(home.path(), &["verify", "--boot", "broken.bin"]);
    assert_eq!(verified.status.code(), Some(1));
    let refused = run(home.path(), &["flash", "broken.bin", "--device", "virtual:unit", "--yes", "--unproven"]);
    assert_eq!(refused.status.code(), Some(5));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("asmpatch::flash::not_rewritable"), "{said}");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn wrapping_the_open_images_code_gives_the_open_image() {
    let home = tempfile::tempdir().unwrap();
    let file = chip_images::file("ASMPATCH_OPEN_IMAGE");
    fs::write(home.path().join("code"), &file[4..file.len() - 6]).unwrap();
    let printed = json(home.path(), &["wrap", "code", "-o", "image.bin", "--json"]);
    assert_eq!((&printed["format"], &printed["parts"]), (&"raw".into(), &1.into()));
    assert!(fs::read(home.path().join("image.bin")).unwrap() == file);
    let known = json(home.path(), &["info", "image.bin", "--json"]);
    assert_eq!((&known["open"]["product"], &known["version"]), (&"custom v0.1".into(), &serde_json::Value::Null));
    good(home.path(), &["verify", "--boot", "image.bin"]);
}

/// The practice open image as a build whose E4 gives one packet of 64 bytes at SuperSpeed, too: without the jump that
/// passes by the limit of high speed.
fn gives_64_bytes_a_read() -> Image {
    let mut body = practice::open_image().body().to_vec();
    // JC, MOV A,direct, JNZ, MOV A,direct, ADD A,#256 - 65
    let is_limit = |code: &[u8]| matches!(code, [0x40, _, 0xE5, _, 0x70, _, 0xE5, _, 0x24, 0xBF]);
    let at: Vec<usize> = (0..body.len()).filter(|at| body.get(*at..*at + 10).is_some_and(is_limit)).collect();
    let [at] = at[..] else { panic!("{at:?}") };
    body[at..at + 2].fill(0);
    Image::from_body(body).unwrap()
}

#[test]
fn a_build_that_gives_64_bytes_a_read_is_proved_saved_and_replaced_like_any_other() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("e4-64.bin"), gives_64_bytes_a_read().to_file()).unwrap();
    fs::write(home.path().join("other.bin"), practice::open_image().to_file()).unwrap();
    good(home.path(), &["verify", "--boot", "e4-64.bin"]);
    good(home.path(), &["flash", "e4-64.bin", "--device", "virtual:unit", "--yes"]);
    let saved = json(home.path(), &["backup", "-o", "saved", "--device", "virtual:unit", "--json"]);
    assert_eq!(saved["restorable"], true, "{saved:#}");
    good(home.path(), &["pcie", "--device", "virtual:unit"]);
    good(home.path(), &["flash", "other.bin", "--device", "virtual:unit", "--yes"]);
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn pcie_off_ends_once_the_supply_may_be_cut_and_pcie_on_brings_the_link_back() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("open.bin"), chip_images::file("ASMPATCH_OPEN_NEW_IMAGE")).unwrap();
    good(home.path(), &["flash", "open.bin", "--device", "virtual:unit", "--yes"]);
    // Switched off twice, as by somebody who wants to be sure.
    for _ in 0..2 {
        let printed = good(home.path(), &["pcie", "off", "--device", "virtual:unit"]);
        assert_eq!(printed, "virtual:unit: PCIe is off and the link is down (LTSSM 0x00): the supply may be cut\n");
    }
    let printed = json(home.path(), &["pcie", "on", "--device", "virtual:unit", "--json"]);
    assert_eq!((&printed["on"], &printed["link"]["ltssm"]), (&true.into(), &0x78.into()));
    let printed = json(home.path(), &["pcie", "off", "--device", "virtual:unit", "--json"]);
    assert_eq!((&printed["on"], &printed["link"]["is_up"]), (&false.into(), &false.into()));
}

/// The practice open image with these bytes in the first place of others.
fn open_with(bytes: &[u8], others: &[u8]) -> Image {
    let mut body = practice::open_image().body().to_vec();
    let at = (0..body.len()).find(|at| body[*at..].starts_with(bytes)).unwrap();
    body[at..at + others.len()].copy_from_slice(others);
    Image::from_body(body).unwrap()
}

#[test]
fn config_set_asks_for_permission_for_what_the_firmware_cannot_do_and_not_for_its_name() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    // CJNE R6,#F0: without it F0's completion is a stall.
    let no_completion = open_with(&[0xBE, 0xF0], &[0xBE, 0x77]);
    let cases = [("renamed", open_with(b"custom practice", b"kustom practice"), true), ("no-f0", no_completion, false)];
    for (name, image, is_permitted) in cases {
        let device = format!("virtual:{name}");
        fs::write(home.join("open.bin"), image.to_file()).unwrap();
        let flash = ["flash", "open.bin", "--yes", "--device", &device];
        assert_eq!(run(home, &flash).status.code(), Some(5), "{name}");
        good(home, &[&flash[..], &["--unproven"]].concat());
        let set = ["config", "set", "serial=NEXT1", "--yes", "--device", &device];
        let words = text(&run(home, &set));
        assert_eq!(words.contains("asmpatch::flash::unproven"), !is_permitted, "{words}");
        if !is_permitted {
            good(home, &[&set[..], &["--unproven"]].concat());
        }
        assert_eq!(good(home, &["config", "get", "serial", "--device", &device]), "NEXT1\n");
    }
}
