//! Vendor images other than 240417, patched: `patch` proves them, `verify --boot` passes them, and `doctor` promises no
//! runtime that does not know their variables.

use std::path::Path;
use std::process::{Command, Output};

use asm2464::firmware::{BodyOffset, Image};

use crate::schemas;

fn image(variable: &str) -> Image {
    let path = std::env::var_os(variable).unwrap_or_else(|| panic!("set {variable} to the image"));
    Image::parse(&std::fs::read(path).unwrap()).unwrap()
}

fn run(home: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmpatch"));
    command.current_dir(home).env("ASMPATCH_BACKUP_DIR", "backups").env("NO_COLOR", "1").args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Runs the program. Returns what it printed.
fn asmpatch(home: &Path, words: &[&str]) -> String {
    let output = run(home, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    said(&output)
}

/// Gives an image another version, also in the code that answers with it.
fn with_version(mut image: Image, version: [u8; 6]) -> Image {
    assert!(image.replace(BodyOffset(0x200), &version));
    // MOV DPTR,#0x07F0; then MOV A,#byte; MOVX @DPTR,A; INC DPTR for each.
    let at = places(&image, &[0x90, 0x07, 0xF0, 0x74])[0] + 4;
    for (index, byte) in version.iter().take(4).enumerate() {
        assert!(image.replace(BodyOffset((at + 4 * index) as u32), &[*byte]));
    }
    image
}

fn places(image: &Image, code: &[u8]) -> Vec<usize> {
    image.body().windows(code.len()).enumerate().filter(|(_, found)| *found == code).map(|(at, _)| at).collect()
}

/// 231204 as another version that keeps the state of the device elsewhere.
fn moved() -> Image {
    let mut image = image("ASMPATCH_VENDOR_231204_IMAGE");
    let users = places(&image, &[0x90, 0x05, 0xB1]);
    assert!(!users.is_empty());
    for at in users {
        assert!(image.replace(BodyOffset(at as u32 + 1), &[0x04, 0xF1]));
    }
    with_version(image, [0x24, 0x08, 0x01, 0x85, 0, 0])
}

/// Patches an image into `patched.bin`.
fn patch(home: &Path, image: &Image) -> String {
    std::fs::write(home.join("stock.bin"), image.to_file()).unwrap();
    asmpatch(home, &["patch", "stock.bin", "-o", "patched.bin", "--force"])
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE"]
fn what_patch_has_proven_passes_verify_boot_wherever_its_variables_are() {
    let home = tempfile::tempdir().unwrap();
    let line_84 = with_version(image("ASMPATCH_VENDOR_IMAGE"), [0x24, 0x04, 0x17, 0x84, 0, 0]);
    for (image, is_proven) in [(image("ASMPATCH_VENDOR_231204_IMAGE"), false), (moved(), true), (line_84, true)] {
        let told = patch(home.path(), &image);
        assert_eq!(told.contains("proven on the chip model"), is_proven, "{told}");
        let described = asmpatch(home.path(), &["info", "stock.bin"]);
        assert_eq!(described.contains("fits by its signature"), is_proven, "{described}");
        let told = asmpatch(home.path(), &["verify", "--boot", "patched.bin"]);
        assert!(told.contains("booted: "), "{told}");
        let words = ["verify", "--boot", "--json", "patched.bin"];
        let verified = schemas::parse(&words, &run(home.path(), &words).stdout);
        let checks = verified[0]["booted"]["checks"].as_array().unwrap();
        assert!(checks.iter().any(|check| check["what"] == "answers WRITE(16) without an SSD"), "{verified:#}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_231204_IMAGE"]
fn doctor_promises_no_runtime_that_initialises_other_variables() {
    let home = tempfile::tempdir().unwrap();
    for (image, verdict, why) in [
        (image("ASMPATCH_VENDOR_231204_IMAGE"), "bad", "answers each WRITE(16) with 2/3A"),
        (moved(), "unknown", "nobody knows"),
    ] {
        patch(home.path(), &image);
        asmpatch(home.path(), &["flash", "--unproven", "patched.bin", "--device", "virtual:unit", "--yes"]);
        let words = ["doctor", "--device", "virtual:unit", "--json"];
        let output = run(home.path(), &words);
        let page = schemas::parse(&words, &output.stdout);
        assert_eq!((output.status.code(), &page["runtime"]), (Some(1), &serde_json::Value::Null), "{page:#}");
        let line = page["lines"].as_array().unwrap().iter().find(|line| line["topic"] == "firmware").unwrap();
        assert_eq!(line["verdict"], verdict, "{line:#}");
        assert!(line["found"].as_str().unwrap().contains(why), "{line:#}");
        assert!(line["advice"].as_str().unwrap().contains("240417"), "{line:#}");
    }
}
