//! The vendor's image in asmpatch's commands, from `flash` to `restore`. `ASMPATCH_VENDOR_IMAGE` names the image.

use asm2464::firmware::{BodyOffset, Image};

use crate::chip_images;
use crate::program::process::{good, json, run};

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_vendors_image_is_patched_flashed_comes_up_as_add1_0001_and_is_restored() {
    let vendor = &chip_images::path("ASMPATCH_VENDOR_IMAGE");
    let home = tempfile::tempdir().unwrap();
    let (home, unit) = (home.path(), "virtual:unit");

    // Flash the vendor's firmware first, so that its own handlers make the backup and take the patched image.
    good(home, &["flash", vendor, "--device", unit, "--yes"]);
    let cells = std::fs::read(home.join("unit/flash.bin")).unwrap();
    good(home, &["patch", vendor, "-o", "patched.bin"]);

    let flashed = json(home, &["flash", "patched.bin", "--device", unit, "--yes", "--json"]);
    assert_eq!(flashed[0]["before"]["usb_id"], "174C:2464");
    assert_eq!(flashed[0]["after"]["usb_id"], "ADD1:0001");
    assert_eq!(flashed[0]["version"], "240417.85.00.00");
    let now = std::fs::read(home.join("unit/flash.bin")).unwrap();
    let file = std::fs::read(home.join("patched.bin")).unwrap();
    assert!(now[0x100..0x1_0000] == file[..0xFF00] && now[0x1_0000..][..file.len() - 0xFF00] == file[0xFF00..]);

    let backup = flashed[0]["backup"].as_str().unwrap();
    let restored = json(home, &["restore", backup, "--device", unit, "--yes", "--json"]);
    assert_eq!(restored[0]["after"]["usb_id"], "174C:2464");
    assert!(std::fs::read(home.join("unit/flash.bin")).unwrap() == cells, "every byte is as it was");

    // Flash stock firmware under the patches' identity, on which the bench can measure nothing, then go back.
    good(home, &["flash", "patched.bin", "--device", unit, "--yes"]);
    let printed = good(home, &["flash", vendor, "--device", unit, "--yes"]);
    assert!(printed.contains("done: stock firmware 240417.85.00.00 under ADD1:0001"), "{printed}");
    assert!(printed.contains("--stock-identity") && !printed.contains("asmpatch bench"), "{printed}");
    let listed = json(home, &["list", "--device", unit, "--json"]);
    assert_eq!(
        (&listed["units"][0]["firmware"], &listed["units"][0]["usb_id"]),
        (&"stock firmware 240417.85.00.00".into(), &"ADD1:0001".into())
    );
    let stock = json(home, &["flash", vendor, "--device", unit, "--yes", "--json", "--stock-identity"]);
    assert_eq!(stock[0]["after"]["usb_id"], "174C:2464");
    assert!(std::fs::read(home.join("unit/flash.bin")).unwrap() == cells, "every byte is as it was");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_changed_image_is_described_by_its_patches_and_its_other_bytes() {
    let vendor = &chip_images::path("ASMPATCH_VENDOR_IMAGE");
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    good(home, &["patch", vendor, "-o", "patched.bin"]);
    let mut image = Image::parse(&std::fs::read(home.join("patched.bin")).unwrap()).unwrap();
    assert!(image.replace(BodyOffset(0x5878), &[image.body()[0x5878] ^ 1]));
    std::fs::write(home.join("changed.bin"), image.to_file()).unwrap();
    let shown = good(home, &["info", "changed.bin"]);
    assert!(shown.contains("240417 with status-0x2a12, and other bytes, which asmpatch can't name"), "{shown}");
    good(home, &["download", "--from", vendor]);
    let shown = good(home, &["info", "changed.bin"]);
    assert!(shown.contains("240417 with status-0x2a12, and 1 other byte (c:0x5878)"), "{shown}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_231204_IMAGE"]
fn patch_says_why_231204_has_no_patches() {
    let vendor = &chip_images::path("ASMPATCH_VENDOR_231204_IMAGE");
    let home = tempfile::tempdir().unwrap();
    let words = ["patch", vendor, "-o", "patched.bin"];
    let output = run(home.path(), &words);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{printed}");
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains("is made for 240417, practice, not for this image, which is 231204"), "{printed}");
    assert!(
        printed.contains("no GPU runtime drives a version of the vendor's firmware other than 240417"),
        "{printed}"
    );
}
