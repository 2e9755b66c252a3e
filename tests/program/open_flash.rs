//! Open firmware through asmpatch's commands. `ASMPATCH_OPEN_IMAGE` and `ASMPATCH_VENDOR_IMAGE` name the images.
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::schemas;

/// End of the flash that E1 of block 0 erases.
const FIRST_SLOT: usize = 0x2_0000;
const UNIT: &str = "virtual:unit";

fn image(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).unwrap_or_else(|| panic!("set {variable} to the image"));
    fs::canonicalize(path).unwrap()
}

struct Rig {
    home: tempfile::TempDir,
    open: PathBuf,
}

impl Rig {
    /// Makes a new unit with this bridge.toml.
    fn new(scenario: &str) -> Self {
        let rig = Self { home: tempfile::tempdir().unwrap(), open: image("ASMPATCH_OPEN_IMAGE") };
        fs::create_dir(rig.home.path().join("unit")).unwrap();
        rig.tell(scenario);
        rig
    }

    fn tell(&self, scenario: &str) {
        fs::write(self.home.path().join("unit/bridge.toml"), scenario).unwrap();
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asmpatch"));
        command.current_dir(self.home.path()).env("ASMPATCH_BACKUP_DIR", "backups").args(words).output().unwrap()
    }

    fn asmpatch(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> serde_json::Value {
        schemas::parse(words, self.asmpatch(words).as_bytes())
    }

    fn flash_open(&self, options: &[&str]) -> serde_json::Value {
        let open = self.open.to_str().unwrap();
        self.json(&[&["flash", open, "--device", UNIT, "--yes", "--json"], options].concat())
    }

    fn cells(&self) -> Vec<u8> {
        fs::read(self.home.path().join("unit/flash.bin")).unwrap()
    }

    /// The expected flash after a flash that held `before`: the same configuration blocks, the open image, and nothing
    /// else in the first slot.
    fn expected(&self, before: &[u8]) -> Vec<u8> {
        let mut cells = before.to_vec();
        cells[0x100..FIRST_SLOT].fill(0xFF);
        let file = fs::read(&self.open).unwrap();
        cells[0x100..0x100 + file.len()].copy_from_slice(&file);
        cells
    }
}

fn assert_same(found: &[u8], expected: &[u8]) {
    let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert!(found == expected, "the first different byte is at {first:x?}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_OPEN_IMAGE"]
fn stock_and_patched_units_become_open_ones_with_their_configuration_kept() {
    let vendor = image("ASMPATCH_VENDOR_IMAGE");
    for patched in [false, true] {
        let rig = Rig::new("port-power = true\n");
        rig.asmpatch(&["flash", vendor.to_str().unwrap(), "--device", UNIT, "--yes"]);
        if patched {
            rig.asmpatch(&["patch", vendor.to_str().unwrap(), "-o", "patched.bin"]);
            rig.asmpatch(&["flash", "patched.bin", "--device", UNIT, "--yes"]);
        }
        let before = rig.cells();
        let flashed = rig.flash_open(&[]);
        assert_same(&rig.cells(), &rig.expected(&before));
        let unit = &flashed[0];
        assert_eq!(unit["plan"]["firmware"], "open firmware custom v0.1 (build f5298da9)");
        assert_eq!((&unit["after"]["usb_id"], &unit["after"]["state"]), (&"ADD1:0001".into(), &"open-firmware".into()));
        assert_eq!((&unit["runs"], unit.get("needs")), (&"written".into(), None));
        assert_eq!(rig.json(&["list", "--device", UNIT, "--json"])["units"][0]["state"], "open-firmware");
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_unit_whose_reset_keeps_the_code_is_said_to_need_its_power() {
    let rig = Rig::new("");
    rig.asmpatch(&["list", "--device", UNIT]);
    let before = rig.cells();
    let flashed = rig.flash_open(&[]);
    assert_eq!((&flashed[0]["runs"], &flashed[0]["needs"]), (&"before".into(), &"power".into()));
    assert_same(&rig.cells(), &rig.expected(&before));
    // Each command powers the unit on.
    assert_eq!(rig.json(&["list", "--device", UNIT, "--json"])["units"][0]["state"], "open-firmware");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_unit_in_its_boot_loader_gets_the_open_image_and_needs_its_power() {
    let rig = Rig::new("factory = 'no-image'\n");
    rig.asmpatch(&["list", "--device", UNIT]);
    let before = rig.cells();
    let refused = rig.run(&["flash", rig.open.to_str().unwrap(), "--device", UNIT, "--yes"]);
    assert_eq!(refused.status.code(), Some(5), "it can't be backed up");
    let flashed = rig.flash_open(&["--no-backup"]);
    assert_eq!(flashed[0]["needs"], "power");
    let known = rig.cells();
    let mut expected = rig.expected(&before);
    // The boot loader can't read the unit's blocks, so the known blocks are written.
    expected[..0x100].copy_from_slice(&known[..0x100]);
    assert_same(&known, &expected);
    assert_eq!(rig.json(&["list", "--device", UNIT, "--json"])["units"][0]["state"], "open-firmware");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_that_cannot_be_replaced_is_refused() {
    let rig = Rig::new("");
    let body = {
        let file = fs::read(&rig.open).unwrap();
        file[4..file.len() - 6].to_vec()
    };
    // Without E5 a unit can't be written through its registers. The code compares bRequest with it.
    let at = body.windows(2).enumerate().filter(|(_, bytes)| *bytes == [0xBD, 0xE5]);
    let at: Vec<usize> = at.map(|(at, _)| at).collect();
    assert_eq!(at.len(), 1, "CJNE R5,#E5");
    let mut broken = body;
    for at in at {
        broken[at + 1] = 0x77;
    }
    fs::write(rig.home.path().join("code"), broken).unwrap();
    rig.asmpatch(&["wrap", "code", "-o", "broken.bin"]);
    let verified = rig.run(&["verify", "--boot", "broken.bin"]);
    assert_eq!(verified.status.code(), Some(1));
    let refused = rig.run(&["flash", "broken.bin", "--device", UNIT, "--yes", "--unproven"]);
    assert_eq!(refused.status.code(), Some(5));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("asmpatch::flash::not_rewritable"), "{said}");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn wrapping_the_open_images_code_gives_the_open_image() {
    let rig = Rig::new("");
    let file = fs::read(&rig.open).unwrap();
    fs::write(rig.home.path().join("code"), &file[4..file.len() - 6]).unwrap();
    let told = rig.json(&["wrap", "code", "-o", "image.bin", "--json"]);
    assert_eq!((&told["format"], &told["parts"]), (&"raw".into(), &1.into()));
    assert!(fs::read(rig.home.path().join("image.bin")).unwrap() == file);
    let known = rig.json(&["info", "image.bin", "--json"]);
    assert_eq!((&known["open"]["product"], &known["version"]), (&"custom v0.1".into(), &serde_json::Value::Null));
    rig.asmpatch(&["verify", "--boot", "image.bin"]);
}
