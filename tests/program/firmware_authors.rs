//! Runs the commands of docs/firmware-authors.md and compares their output with the page.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use asm2464_chip::chip::{Data, Speed};
use asm2464_chip::profile::Profile;
use asm2464_chip::symbols::Symbols;

/// Finds a program on the PATH.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not on the PATH: Debian's package sdcc"))
}

#[test]
#[ignore = "needs SDCC"]
fn the_commands_of_the_page_for_firmware_authors_do_what_it_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = root.join("docs/firmware-authors.md");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("firmware-authors.md");
    let work = folder.path().join("firmware-authors.in");
    fs::create_dir_all(work.join("u")).unwrap();
    fs::write(work.join("u/bridge.toml"), "serial = \"SAMPLE000001\"\n").unwrap();
    fs::copy(root.join("examples/firmware/sample.c"), work.join("sample.c")).unwrap();
    fs::copy(&page, &copy).unwrap();
    let cases = trycmd::TestCases::new();
    cases
        .env("ASMPATCH_BACKUP_DIR", "backups")
        .env("XDG_DATA_HOME", "/nowhere")
        .env("NO_COLOR", "1")
        .register_bin("sdcc", program("sdcc"))
        .case(copy.to_str().unwrap());
    cases.run();
    // `TRYCMD=overwrite` rewrites the copy; copy it back to the page.
    if std::env::var_os("TRYCMD").is_some_and(|wish| wish == "overwrite") {
        fs::copy(&copy, &page).unwrap();
    }
    let folded = fs::read_to_string(work.join("sample.folded")).unwrap();
    let line = folded.lines().find(|line| line.contains("crc_xdata;crc_byte")).unwrap();
    assert!(fs::read_to_string(&page).unwrap().contains(line), "the page does not show {line:?}");
    // The file holds what genhtml needs.
    let coverage = fs::read_to_string(work.join("sample.info")).unwrap();
    let covered = |line: &str| coverage.lines().any(|found| found.starts_with(line));
    assert!(covered("SF:sample.c") && covered("FNDA:256,crc_byte") && covered("FNDA:0,tlp_send"), "{coverage}");
    // Line numbers are the source's: the CRC's loop runs eight times a byte.
    let source = fs::read_to_string(work.join("sample.c")).unwrap();
    let shift = source.lines().position(|line| line.contains("0x1021")).unwrap() + 1;
    assert!(covered(&format!("DA:{shift},2048")), "line {shift}: {coverage}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_profile_of_the_vendors_image_follows_calls_through_bank_stubs_and_counts_every_cycle() {
    let image = crate::chip_images::vendor();
    let profile = Rc::new(RefCell::new(Profile::new(Symbols::known(&image))));
    let mut driver = crate::chip_images::powered_on(&image, Speed::Super);
    let observer = Rc::clone(&profile);
    driver.set_runner(move |chip, budget| chip.run_observed(budget, &mut *observer.borrow_mut()));
    driver.enumerate().unwrap();
    // E0's handler is in bank 1, and reads the flash in bank 0.
    driver.bulk_only(&[0xE0, 0x50, 0, 0, 0, 0], Data::In(128)).unwrap();
    let profile = profile.borrow();
    let folded = profile.folded();
    let e0 =
        folded.lines().find(|line| line.contains("call_bank1;e0_config_read")).unwrap_or_else(|| panic!("{folded}"));
    assert!(e0.contains("dispatch"), "{e0}");
    assert!(folded.lines().any(|line| line.contains("e0_config_read") && line.contains("flash_command")), "{folded}");
    assert!(folded.lines().all(|line| line.split(';').count() < 40), "the call depth stays bounded");
    let cycles: u64 = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    let own: u64 = profile.functions().iter().map(|cost| cost.own_cycles).sum();
    assert!(cycles == own && cycles >= driver.chip.work().cycles, "{cycles}");
}
