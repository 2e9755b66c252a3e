//! A unit in a folder, on which tests run the library and the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use asm2464::Coded as _;
use asm2464::firmware::Image;
use asm2464::flash::BUDGET;
use asm2464::interrupt::Interrupt;
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::Port;
use asmpatch::flash::access::Access;
use asmpatch::flash::backup_folder;
use asmpatch::flash::plan::FlashPlan;
use asmpatch::flash::run::{FlashOptions, FlashReport, Stopped, run};
use asmpatch::image::{Images, Proof};
use asmpatch::patch::{PatchSet, Patched, Selection};

use crate::program::process;

/// A unit in a folder, and a folder for its backups.
pub struct Rig {
    pub home: tempfile::TempDir,
}

pub fn patched() -> Patched {
    patched_with(false)
}

impl Rig {
    pub fn new(scenario: &str) -> Self {
        let rig = Self { home: tempfile::tempdir().unwrap() };
        rig.tell(scenario);
        rig
    }

    /// Writes the unit's bridge.toml.
    pub fn tell(&self, scenario: &str) {
        fs::create_dir_all(self.dir()).unwrap();
        fs::write(self.dir().join("bridge.toml"), scenario).unwrap();
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join("unit")
    }

    /// Powers on the unit, as a new command does.
    pub fn port(&self) -> VirtualPort {
        // A child process of another test also holds this unit's lock until it executes its own program.
        for _ in 0..100 {
            match VirtualPort::open_dir(&self.dir()) {
                Err(error) if error.code() == "asm2464::virtual_unit::busy" => {
                    std::thread::sleep(Duration::from_millis(20))
                }
                opened => return opened.unwrap(),
            }
        }
        panic!("the unit stays busy")
    }

    pub fn cells(&self) -> Vec<u8> {
        drop(self.port());
        fs::read(self.dir().join("flash.bin")).unwrap()
    }

    pub fn options(&self, backup: bool) -> FlashOptions {
        FlashOptions {
            backup_into: backup.then(|| self.home.path().to_owned()),
            backup_elsewhere: Vec::new(),
            pointers_into: None,
            return_deadline: Duration::from_secs(5),
            replug_deadline: Duration::ZERO,
            rewrite: false,
            budget: BUDGET,
        }
    }

    pub fn restore(&self, folder: &Path, backup: bool) -> Result<FlashReport, Box<Stopped>> {
        let saved = backup_folder::load(folder).unwrap();
        let mut port = self.port();
        let attached = port.attached().unwrap();
        let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
        let plan = FlashPlan::restore(attached, blocks, &saved, &proved(&saved.firmware().unwrap()));
        run(&mut port, &plan, &self.options(backup), &mut (), Interrupt::never())
    }
}

/// Proves an image, once for all tests.
pub fn proved(image: &Image) -> Arc<Proof> {
    static IMAGES: LazyLock<Images> = LazyLock::new(|| asmpatch::embedded::patches().unwrap().into());
    IMAGES.prove(image).unwrap()
}

/// Plans to flash an image, and to keep the unit's configuration blocks.
pub fn plan(port: &mut VirtualPort, image: &Image) -> FlashPlan {
    let attached = port.attached().unwrap();
    let blocks = Access::open(port).unwrap().blocks(attached.state).unwrap();
    FlashPlan::flash(attached, blocks, None, None, &proved(image), |_| Ok(())).unwrap()
}

/// The practice image with the default patches and, if `e4_extension`, with e4-length-16.
pub fn patched_with(e4_extension: bool) -> Patched {
    patched_of(&practice::image(), e4_extension)
}

/// Another image with the same patches.
pub fn patched_of(image: &Image, e4_extension: bool) -> Patched {
    let add = if e4_extension { vec!["e4-length-16".to_owned()] } else { Vec::new() };
    let selection = Selection { add, ..Selection::default() };
    let library = asmpatch::embedded::patches().unwrap();
    let digest = image.sha256();
    PatchSet::resolve(&library, &selection, image, digest).unwrap().apply().unwrap()
}

/// Runs a printed command, with `--yes` for its question.
pub fn asmpatch(home: &Path, words: &[&str]) -> std::process::Output {
    process::run(home, &[words, &["--yes", "--json"]].concat())
}

pub fn write_image(home: &Path, Patched { image, receipt }: &Patched) {
    fs::write(home.join("patched.bin"), image.to_file()).unwrap();
    fs::write(home.join("patched.bin.toml"), receipt.to_string()).unwrap();
}

/// Starts `asmpatch flash` for this rig's unit, and returns once the old image can't boot any more.
#[cfg(unix)]
pub fn flashing(rig: &Rig) -> std::process::Child {
    use std::process::Stdio;

    let home = rig.home.path();
    let before = rig.cells()[0x100..0x104].to_vec();
    write_image(home, &patched());
    let mut command = process::command(home, &["flash", "patched.bin", "--device", "virtual:unit", "--yes"]);
    let flash = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The erase reaches the file at once.
    let has_begun = || fs::read(rig.dir().join("flash.bin")).unwrap()[0x100..0x104] != before;
    let looks = (0..3000).take_while(|_| !has_begun()).inspect(|_| std::thread::sleep(Duration::from_millis(10)));
    assert!(looks.count() < 3000, "nothing was erased");
    flash
}
