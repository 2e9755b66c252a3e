//! Flashes and restores by the library on a unit in a folder, and the rig for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use asm2464::Coded as _;
use asm2464::firmware::{BridgeState, Image, UsbId};
use asm2464::flash::BUDGET;
use asm2464::interrupt::Interrupt;
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::{Behind, Port};
use asmpatch::flash::access::Access;
use asmpatch::flash::backup_folder;
use asmpatch::flash::behaviour::StartedCode;
use asmpatch::flash::observe::ObservedFirmware;
use asmpatch::flash::plan::FlashPlan;
use asmpatch::flash::progress::StoppedState;
use asmpatch::flash::run::{FlashOptions, FlashReport, Stopped, run};
use asmpatch::image::{Images, Proof};
use asmpatch::patch::{PatchSet, Patched, Selection};

use crate::program::process;
use crate::side_by_side;

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
            return_deadline: Duration::from_secs(5),
            replug_deadline: Duration::ZERO,
            rewrite: false,
            budget: BUDGET,
        }
    }

    fn flash(&self, config_from: Option<&Path>, backup: bool) -> Result<FlashReport, Box<Stopped>> {
        self.flash_image(&patched(), config_from, backup)
    }

    fn flash_image(
        &self,
        patched: &Patched,
        config_from: Option<&Path>,
        backup: bool,
    ) -> Result<FlashReport, Box<Stopped>> {
        let Patched { image, receipt } = patched;
        let mut port = self.port();
        let attached = port.attached().unwrap();
        let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
        let backup_blocks = config_from.map(|folder| backup_folder::load(folder).unwrap());
        let plan = FlashPlan::flash(attached, blocks, backup_blocks.as_ref(), &proved(image), |blocks| {
            receipt.config.apply(blocks)
        });
        run(&mut port, &plan.unwrap(), &self.options(backup), &mut (), Interrupt::never())
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
    FlashPlan::flash(attached, blocks, None, &proved(image), |_| Ok(())).unwrap()
}

#[test]
fn a_stock_unit_returns_patched_and_a_restore_brings_back_every_byte() {
    let rig = Rig::new("");
    let before = rig.cells();
    let attached = rig.port().attached().unwrap();
    assert_eq!(attached.state, BridgeState::Vendor);
    let report = rig.flash(None, true).unwrap();
    let after = report.after.unwrap();
    assert_eq!((after.id, after.state), (UsbId::PATCHED, BridgeState::Vendor));
    assert_eq!(after.serial, attached.serial, "the unit keeps its own serial number");
    assert!(rig.cells() != before);

    let report = rig.restore(&report.backup.unwrap(), true).unwrap();
    assert_eq!(report.after.unwrap().state, BridgeState::Vendor);
    assert!(rig.cells() == before);
}

#[test]
fn a_unit_without_firmware_is_flashed_through_its_boot_loader() {
    for factory in ["no-image", "erased"] {
        let rig = Rig::new(&format!("factory = '{factory}'\n"));
        assert_eq!(rig.port().attached().unwrap().state, BridgeState::BootLoader);
        let report = rig.flash(None, false).unwrap();
        assert!(report.needs_power && report.after.is_none(), "{factory}: it is halted until its power goes");
        let after = rig.port().attached().unwrap();
        assert_eq!((after.id, after.state), (UsbId::PATCHED, BridgeState::Vendor), "{factory}");
    }
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

#[test]
fn the_report_says_what_runs_whether_a_cpu_reset_loads_the_code_or_keeps_it() {
    let cases = [
        ("cpu-reset = 'loads-code'\n", true, StartedCode::Written),
        ("", true, StartedCode::Before),
        ("port-power = true\n", true, StartedCode::Written),
        ("cpu-reset = 'loads-code'\n", false, StartedCode::Unknown),
        ("", false, StartedCode::Unknown),
        ("port-power = true\n", false, StartedCode::Unknown),
    ];
    side_by_side(cases, |(scenario, e4_extension, runs)| {
        let rig = Rig::new(scenario);
        let report = rig.flash_image(&patched_with(e4_extension), None, true).unwrap();
        assert_eq!(report.runs, Some(runs), "{scenario} {e4_extension}");
        assert_eq!(report.needs_power, runs != StartedCode::Written, "{scenario} {e4_extension}");
        // If the reset proves nothing and the hub can switch the power, a power cycle follows.
        let is_cycled = report.steps.iter().any(|step| step.step == "power-cycle");
        assert_eq!(is_cycled, scenario.contains("port-power"), "{scenario} {e4_extension}");
        assert_eq!(report.after.unwrap().id, UsbId::PATCHED, "the start-up code reads the configuration");
        // The way back, to an image without the extension, also shows whether the reset loads the code.
        let saved = report.backup.unwrap();
        let report = rig.restore(&saved, true).unwrap();
        assert_eq!(report.runs, Some(runs), "restore: {scenario} {e4_extension}");
    });
}

/// Faults that end a run, and the states that they leave.
#[test]
fn every_fault_ends_in_a_state_that_the_named_commands_bring_back() {
    let cases = [
        ("a unit that stalls E3 for good", "[[fault]]\nkind = 'stall'\nopcode = 0xe3\ntimes = 99\n"),
        ("short data", "[[fault]]\nkind = 'short-data'\nopcode = 0xe3\ntimes = 99\n"),
        ("a bad tag", "[[fault]]\nkind = 'bad-tag'\nopcode = 0xe3\ntimes = 99\n"),
        ("a phase error", "[[fault]]\nkind = 'phase-error'\nopcode = 0xe3\ntimes = 99\n"),
        ("silence", "[[fault]]\nkind = 'timeout'\nopcode = 0xe3\ntimes = 99\n"),
        ("a disconnect at the first part", "[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\n"),
        ("a disconnect at the second part", "[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\nnth = 2\n"),
        ("power lost in the first part", "power_loss_after = 20000\n"),
        ("power lost in the second part", "power_loss_after = 80000\n"),
        ("a readback that never comes", "[[fault]]\nkind = 'timeout'\nopcode = 0xe2\nnth = 3\ntimes = 99\n"),
        ("a disconnect at the configuration", "[[fault]]\nkind = 'disconnect'\nopcode = 0xe1\n"),
    ];
    for (name, scenario) in cases {
        let scenario = scenario.replace("power_loss_after", "power-loss-after");
        let rig = Rig::new("");
        let before = rig.cells();
        rig.tell(&scenario);
        let Err(stopped) = rig.flash(None, true) else { panic!("{name}: not stopped") };
        assert!(
            matches!(stopped.left, StoppedState::Incomplete | StoppedState::Complete),
            "{name}: {:?} ({})",
            stopped.left,
            stopped.error
        );
        let backup = stopped.report.backup.clone().unwrap_or_else(|| panic!("{name}: no backup"));

        // Finish, whatever state the unit is in after its next power-on.
        rig.tell("");
        rig.flash(Some(&backup), false).unwrap_or_else(|stopped| panic!("{name}: forward: {stopped:?}"));
        let after = rig.port().attached().unwrap();
        assert_eq!((after.id, after.state), (UsbId::PATCHED, BridgeState::Vendor), "{name}");
        let patched_cells = rig.cells();

        // Go back.
        rig.tell(&scenario);
        assert!(rig.flash(None, true).is_err(), "{name}");
        rig.tell("");
        rig.restore(&backup, false).unwrap_or_else(|stopped| panic!("{name}: back: {stopped:?}"));
        assert!(rig.cells() == before, "{name}");
        assert!(patched_cells != before, "{name}");
    }
}

#[test]
fn a_fault_that_passes_is_overcome_without_help() {
    for kind in ["stall", "stall-status", "short-data", "bad-tag", "phase-error", "timeout"] {
        // The first two E2 belong to the backup.
        for (opcode, nth) in [("0xe1", 1), ("0xe3", 1), ("0xe2", 3)] {
            let rig = Rig::new(&format!("[[fault]]\nkind = '{kind}'\nopcode = {opcode}\nnth = {nth}\n"));
            let report = rig.flash(None, true).unwrap_or_else(|stopped| panic!("{kind} {opcode}: {stopped:?}"));
            assert_eq!(report.after.unwrap().id, UsbId::PATCHED, "{kind} {opcode}");
            // The Bulk-Only engine itself recovers from a halted status pipe. The report shows the other faults.
            let printed = report.steps.iter().any(|step| !step.done);
            assert_eq!(printed, kind != "stall-status", "{kind} {opcode}");
        }
    }
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

#[test]
fn a_unit_that_a_gpu_runtime_uses_is_flashed_without_being_asked_for_its_ssd() {
    let mut port = Rig::new("").port();
    let state = port.attached().unwrap().state;
    let mut bridge = port.open().unwrap();
    bridge.xdata_write(asm2464::scsi::XdataAddress::main(0x054B), 0x20).unwrap();
    let running = ObservedFirmware::of(&mut Access::Commands(bridge), state).unwrap();
    assert!(
        matches!(&running.behind(), Behind::Initialised(variables) if variables.contains("0x054b")),
        "{:?}",
        running.behind()
    );
    assert!(running.image().is_some() && running.version.is_some());
}
