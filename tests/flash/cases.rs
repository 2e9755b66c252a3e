use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asmpatch::bridge::{Behind, Port};
use asmpatch::digest::Sha256Digest;
use asmpatch::firmware::{BridgeState, ConfigField, Image, UsbId};
use asmpatch::flash::access::Access;
use asmpatch::flash::backup_folder;
use asmpatch::flash::left::Left;
use asmpatch::flash::observe::Running;
use asmpatch::flash::plan::FlashPlan;
use asmpatch::flash::proof::Runs;
use asmpatch::flash::registers::BUDGET;
use asmpatch::flash::run::{FlashOptions, FlashReport, Stopped, run};
use asmpatch::interrupt::Interrupt;
use asmpatch::patch::{Library, PatchSet, Patched, Selection};
use asmpatch::practice;
use asmpatch::virtual_bridge::{VirtualOpenError, VirtualPort};
use serde_json::json;

use super::schemas;

/// A unit in a folder, and a place for its backups.
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

    pub fn tell(&self, scenario: &str) {
        fs::create_dir_all(self.dir()).unwrap();
        fs::write(self.dir().join("bridge.toml"), scenario).unwrap();
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join("unit")
    }

    /// The unit with power, as a new command finds it.
    pub fn port(&self) -> VirtualPort {
        // A process that another test starts holds this unit's lock, too, until it runs its own program.
        for _ in 0..100 {
            match VirtualPort::open_dir(&self.dir()) {
                Err(VirtualOpenError::Busy { .. }) => std::thread::sleep(Duration::from_millis(20)),
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
        let plan =
            FlashPlan::flash(attached, blocks, backup_blocks.as_ref(), image, |block| receipt.config.apply(block));
        run(&mut port, &plan.unwrap(), &self.options(backup), &mut (), Interrupt::never())
    }

    pub fn restore(&self, folder: &Path, backup: bool) -> Result<FlashReport, Box<Stopped>> {
        let saved = backup_folder::load(folder).unwrap();
        let mut port = self.port();
        let attached = port.attached().unwrap();
        let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
        let plan = FlashPlan::restore(attached, blocks, &saved, &saved.firmware().unwrap());
        run(&mut port, &plan, &self.options(backup), &mut (), Interrupt::never())
    }
}

#[test]
fn a_stock_unit_comes_back_patched_and_restored_it_has_every_byte_that_it_had() {
    let rig = Rig::new("");
    let before = rig.cells();
    let report = rig.flash(None, true).unwrap();
    assert_eq!(report.before.state, BridgeState::Vendor);
    let after = report.after.unwrap();
    assert_eq!((after.usb_id, after.state), (UsbId::PATCHED, BridgeState::Vendor));
    assert_eq!(after.serial, report.before.serial, "the unit keeps its own serial number");
    assert!(rig.cells() != before);

    let report = rig.restore(&report.backup.unwrap(), true).unwrap();
    assert_eq!(report.after.unwrap().state, BridgeState::Vendor);
    assert!(rig.cells() == before);
}

#[test]
fn what_a_backup_holds_is_what_the_unit_has() {
    let rig = Rig::new("serial = 'DOCK7'\n");
    let report = rig.flash(None, true).unwrap();
    let backup = backup_folder::load(&report.backup.unwrap()).unwrap();
    assert_eq!(backup.firmware().unwrap(), practice::image());
    let block = backup.block(asmpatch::firmware::BlockIndex::Zero).unwrap();
    assert_eq!(block.text(ConfigField::Serial), "DOCK7");
    assert_eq!(block.usb_id(), UsbId::STOCK);
}

#[test]
fn a_unit_without_firmware_is_flashed_through_its_boot_loader() {
    for factory in ["no-image", "erased"] {
        let rig = Rig::new(&format!("factory = '{factory}'\n"));
        let report = rig.flash(None, false).unwrap();
        assert_eq!(report.before.state, BridgeState::BootLoader);
        assert!(report.needs_power && report.after.is_none(), "{factory}: it is halted until its power goes");
        let after = rig.port().attached().unwrap();
        assert_eq!((after.usb_id, after.state), (UsbId::PATCHED, BridgeState::Vendor), "{factory}");
    }
}

/// The practice image with the default patches and, where `long_e4`, the extension of E4's length.
fn patched_with(long_e4: bool) -> Patched {
    patched_of(&practice::image(), long_e4)
}

/// The same of another image.
pub fn patched_of(image: &Image, long_e4: bool) -> Patched {
    let add = if long_e4 { vec!["e4-length-16".to_owned()] } else { Vec::new() };
    let selection = Selection { add, ..Selection::default() };
    let library = Library::embedded().unwrap();
    let digest = Sha256Digest(image.sha256());
    PatchSet::resolve(&library, &selection, image, digest).unwrap().apply().unwrap()
}

#[test]
fn the_report_says_what_runs_whether_a_cpu_reset_loads_the_code_or_keeps_it() {
    for (scenario, long_e4, runs) in [
        ("cpu-reset = 'loads-code'\n", true, Runs::Written),
        ("cpu-reset = 'keeps-code'\n", true, Runs::Before),
        ("cpu-reset = 'loads-code'\n", false, Runs::Unknown),
        ("cpu-reset = 'keeps-code'\n", false, Runs::Unknown),
    ] {
        let rig = Rig::new(scenario);
        let report = rig.flash_image(&patched_with(long_e4), None, true).unwrap();
        assert_eq!(report.runs, Some(runs), "{scenario} {long_e4}");
        assert_eq!(report.needs_power, runs != Runs::Written, "{scenario} {long_e4}");
        assert_eq!(report.after.unwrap().usb_id, UsbId::PATCHED, "the start-up code reads the configuration");
        // Back to what has no extension: that shows too, where the code was loaded.
        let saved = report.backup.unwrap();
        let report = rig.restore(&saved, true).unwrap();
        let expected = match (long_e4, scenario.contains("keeps")) {
            (true, false) => Runs::Written,
            (true, true) => Runs::Before,
            (false, _) => Runs::Unknown,
        };
        assert_eq!(report.runs, Some(expected), "restore: {scenario} {long_e4}");
    }
}

/// Faults that end a run, and what they leave.
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
            matches!(stopped.left, Left::Incomplete | Left::Complete),
            "{name}: {:?} ({})",
            stopped.left,
            stopped.error
        );
        let backup = stopped.report.backup.clone().unwrap_or_else(|| panic!("{name}: no backup"));

        // Forward, from whatever state the unit is in after its next power-on.
        rig.tell("");
        rig.flash(Some(&backup), false).unwrap_or_else(|stopped| panic!("{name}: forward: {stopped:?}"));
        let after = rig.port().attached().unwrap();
        assert_eq!((after.usb_id, after.state), (UsbId::PATCHED, BridgeState::Vendor), "{name}");
        let patched_cells = rig.cells();

        // And back.
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
        for opcode in ["0xe1", "0xe3"] {
            let rig = Rig::new(&format!("[[fault]]\nkind = '{kind}'\nopcode = {opcode}\n"));
            let report = rig.flash(None, true).unwrap_or_else(|stopped| panic!("{kind} {opcode}: {stopped:?}"));
            assert_eq!(report.after.unwrap().usb_id, UsbId::PATCHED, "{kind} {opcode}");
            // A halted status pipe is Bulk-Only's own to overcome; of the others the report tells.
            let told = report.steps.iter().any(|step| !step.done);
            assert_eq!(told, kind != "stall-status", "{kind} {opcode}");
        }
    }
}

#[test]
fn a_unit_that_was_never_there_is_said_to_be_absent() {
    let rig = Rig::new("state = 'absent'\n");
    let error = rig.port().attached().unwrap_err();
    assert_eq!(error.exit(), asmpatch::failure::Exit::Device);
}

#[test]
fn the_image_that_is_flashed_is_what_the_unit_then_holds() {
    let rig = Rig::new("");
    rig.flash(None, true).unwrap();
    let cells = rig.cells();
    let file = patched().image.to_file();
    assert!(cells[0x100..0x1_0000] == file[..0xFF00]);
    assert!(cells[0x1_0000..0x1_0000 + file.len() - 0xFF00] == file[0xFF00..]);
    assert!(Image::parse(&file).is_ok());
}

/// Runs the command as printed, with the question answered.
pub fn asmpatch(home: &Path, words: &[&str]) -> std::process::Output {
    let binary = env!("CARGO_BIN_EXE_asmpatch");
    let mut command = std::process::Command::new(binary);
    command
        .current_dir(home)
        .env("ASMPATCH_BACKUP_DIR", "backups")
        .env("ASMPATCH_CONFIG", "")
        .args(words)
        .args(["--yes", "--json"]);
    command.output().unwrap()
}

#[test]
fn the_very_commands_that_a_failure_prints_bring_the_unit_back() {
    let rig = Rig::new("[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\nnth = 2\n");
    let home = rig.home.path();
    write_image(home, &patched());
    let output = asmpatch(home, &["flash", "patched.bin", "--device", "virtual:unit"]);
    assert_eq!(output.status.code(), Some(4));
    let units = schemas::parse(&["flash"], &output.stdout);
    assert_eq!(units[0]["error"]["left"], "incomplete");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();

    rig.tell("");
    let commands: Vec<&str> = units[0]["error"]["recovery"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|action| action["command"].as_str())
        .collect();
    assert_eq!(commands.len(), 2, "on, and back: {commands:?}");
    for (command, usb_id) in commands.into_iter().zip(["ADD1:0001", "174C:2464"]) {
        assert!(printed.contains(command), "{printed}");
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let output = asmpatch(home, &words);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(rig.port().attached().unwrap().usb_id.to_string(), usb_id, "{command}");
    }
}

#[test]
fn with_yes_nobody_waits_for_the_cable_and_the_json_says_what_the_unit_needs() {
    let flash = |scenario: &str, long_e4: bool, options: &[&str]| {
        let rig = Rig::new(scenario);
        let home = rig.home.path();
        write_image(home, &patched_with(long_e4));
        let words = [&["flash", "patched.bin", "--device", "virtual:unit"], options].concat();
        let output = asmpatch(home, &words);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let units = schemas::parse(&["flash"], &output.stdout);
        (units[0]["runs"].clone(), units[0]["needs"].clone(), units[0]["after"].is_null())
    };
    assert_eq!(flash("factory = 'erased'\n", false, &["--no-backup"]), (json!(null), json!("power"), true));
    assert_eq!(flash("", true, &[]), (json!("written"), json!(null), false));
    assert_eq!(flash("cpu-reset = 'keeps-code'\n", true, &[]), (json!("before"), json!("power"), false));
    assert_eq!(flash("", false, &[]), (json!("unknown"), json!("power"), false));
}

pub fn write_image(home: &Path, Patched { image, receipt }: &Patched) {
    fs::write(home.join("patched.bin"), image.to_file()).unwrap();
    fs::write(home.join("patched.bin.toml"), receipt.to_string()).unwrap();
}

#[test]
#[cfg(unix)]
fn output_that_nobody_takes_costs_the_output_and_not_the_unit() {
    for lost in [">&-", "2>&-", ">&- 2>&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>&1", "| true"] {
        let rig = Rig::new("");
        let home = rig.home.path();
        rig.cells();
        let patched = patched();
        write_image(home, &patched);
        // A pipe's status is asmpatch's, not that of its reader.
        let line = format!("{{ \"$0\" flash patched.bin --device virtual:unit --yes; echo $? >status; }} {lost}");
        let binary = env!("CARGO_BIN_EXE_asmpatch");
        std::process::Command::new("sh")
            .current_dir(home)
            .env("ASMPATCH_CONFIG", "")
            .args(["-c", &line, binary])
            .status()
            .unwrap();
        assert_eq!(fs::read_to_string(home.join("status")).unwrap().trim(), "0", "{lost}");
        let file = patched.image.to_file();
        assert!(rig.cells()[0x100..0x1_0000] == file[..0xFF00], "{lost}");
        assert!(rig.cells()[0x1_0000..][..file.len() - 0xFF00] == file[0xFF00..], "{lost}");
    }
}

/// `asmpatch flash` of a unit in this rig, once its old image can't start any more.
#[cfg(unix)]
pub fn flashing(rig: &Rig) -> std::process::Child {
    use std::process::{Command, Stdio};

    let home = rig.home.path();
    let before = rig.cells()[0x100..0x104].to_vec();
    write_image(home, &patched());
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmpatch"));
    command.current_dir(home).env("ASMPATCH_CONFIG", "").args([
        "flash",
        "patched.bin",
        "--device",
        "virtual:unit",
        "--yes",
    ]);
    let flash = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The cells are in the file from the erase's first moment on.
    let has_begun = || fs::read(rig.dir().join("flash.bin")).unwrap()[0x100..0x104] != before;
    let looks = (0..3000).take_while(|_| !has_begun()).inspect(|_| std::thread::sleep(Duration::from_millis(10)));
    assert!(looks.count() < 3000, "nothing was erased");
    flash
}

#[cfg(unix)]
fn send(signal: &str, to: &std::process::Child) {
    let status = std::process::Command::new("kill").args([signal, &to.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
#[cfg(unix)]
fn the_first_signal_after_the_erase_lets_the_unit_be_written_and_read_back_and_says_what_a_second_would_do() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let rig = Rig::new("[timing]\nerase-sector-ms = 30\n");
        let flash = flashing(&rig);
        send(signal, &flash);
        let output = flash.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal}: {told}");
        let steps = String::from_utf8_lossy(&output.stdout);
        assert_eq!(steps.lines().last(), Some("read back firmware part 2: the same"), "{signal}: {told}");
        assert!(told.contains("a second Ctrl-C ends asmpatch at once"), "{signal}: {told}");
        assert!(told.contains("the new firmware is written and reads back right"), "{signal}: {told}");
        assert!(told.contains("unplug the unit, wait five seconds, plug it in again"), "{signal}: {told}");
        // With its power it is what was written.
        assert_eq!(rig.port().attached().unwrap().usb_id, UsbId::PATCHED, "{signal}");
    }
}

/// A unit that loses its power in the first write, and the two commands that are printed then.
fn commands_after_a_torn_write(rig: &Rig, words: &[&str]) -> Vec<String> {
    let output = asmpatch(rig.home.path(), words);
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stdout));
    let units = schemas::parse(&["flash"], &output.stdout);
    assert_eq!(units[0]["changed"], true);
    let actions = units[0]["error"]["recovery"].as_array().unwrap();
    actions.iter().filter_map(|action| action["command"].as_str().map(ToOwned::to_owned)).collect()
}

/// Runs a command as printed; gives the first unit's outcome.
fn run_printed(rig: &Rig, command: &str) -> serde_json::Value {
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let output = asmpatch(rig.home.path(), &words);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command}: {told}");
    schemas::parse(&words, &output.stdout)[0].clone()
}

#[test]
fn the_printed_commands_carry_every_option_without_which_they_would_be_refused() {
    let torn = "serial = 'DOCK7'\n[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\nnth = 2\n";
    let cases: [&[&str]; 2] = [
        &["flash", "patched.bin", "--device", "virtual:unit", "--serial", "NEW00001"],
        &["flash", "practice.bin", "--device", "virtual:unit", "--stock-identity", "--force"],
    ];
    for words in cases {
        let rig = Rig::new(torn);
        let home = rig.home.path();
        let Patched { image, receipt } = patched();
        fs::write(home.join("patched.bin"), image.to_file()).unwrap();
        fs::write(home.join("patched.bin.toml"), receipt.to_string()).unwrap();
        fs::write(home.join("practice.bin"), practice::image().to_file()).unwrap();
        let before = rig.cells();

        let commands = commands_after_a_torn_write(&rig, words);
        assert_eq!(commands.len(), 2, "on, and back: {commands:?}");
        rig.tell("");
        assert_eq!(run_printed(&rig, &commands[0])["changed"], true, "{words:?}");
        // What was wanted is there: the same command again has nothing to do.
        assert_eq!(run_printed(&rig, &commands[0])["changed"], false, "{words:?}");
        run_printed(&rig, &commands[1]);
        assert!(rig.cells() == before, "{words:?}");
    }
}

#[test]
fn a_unit_that_holds_everything_is_neither_erased_nor_backed_up_unless_forced() {
    let rig = Rig::new("");
    let home = rig.home.path();
    fs::write(home.join("practice.bin"), practice::image().to_file()).unwrap();
    let before = rig.cells();
    let words = ["flash", "practice.bin", "--device", "virtual:unit"];
    let unit = schemas::parse(&words, &asmpatch(home, &words).stdout);
    assert_eq!((&unit[0]["ok"], &unit[0]["changed"]), (&true.into(), &false.into()));
    assert!(unit[0].get("backup").is_none() && !home.join("backups").exists());
    let json = |more: &[&str]| schemas::parse(&words, &asmpatch(home, &[&words[..], more].concat()).stdout);
    let dry = json(&["--force", "--dry-run"]);
    assert_eq!((&dry[0]["changed"], &dry[0]["plan"]["write"]), (&false.into(), &true.into()));
    assert!(!home.join("backups").exists());
    let forced = json(&["--force"]);
    assert_eq!(forced[0]["changed"], true);
    assert!(forced[0]["backup"].as_str().unwrap().starts_with("backups"));
    assert!(rig.cells() == before);
}

#[test]
fn each_unit_has_its_own_result_even_where_nobody_is_asked_or_one_is_not_there() {
    let rig = Rig::new("");
    let home = rig.home.path();
    let Patched { image, receipt } = patched();
    fs::write(home.join("patched.bin"), image.to_file()).unwrap();
    fs::write(home.join("patched.bin.toml"), receipt.to_string()).unwrap();
    fs::create_dir(home.join("absent")).unwrap();
    fs::write(home.join("absent/bridge.toml"), "state = 'absent'\n").unwrap();
    let words = ["flash", "patched.bin", "--all", "--device", "virtual:absent", "--device", "virtual:unit"];
    let words = [&words[..], &["--device", "virtual:unit", "--device", "NOSUCHSERIAL"]].concat();
    let run = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_asmpatch"));
        command
            .current_dir(home)
            .env("ASMPATCH_BACKUP_DIR", "backups")
            .env("ASMPATCH_CONFIG", "")
            .args(&words)
            .arg("--json")
            .args(more);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let units = schemas::parse(&["flash"], &output.stdout);
        (output.status.code(), units)
    };
    let code = |unit: &serde_json::Value| unit["error"]["code"].as_str().unwrap_or_default().to_owned();
    let (status, units) = run(&[]);
    assert_eq!((status, units.as_array().unwrap().len()), (Some(5), 3), "{units:#}");
    assert_eq!(code(&units[0]), "asmpatch::virtual_bridge::absent");
    assert_eq!(
        (code(&units[1]), &units[1]["error"]["unit"]),
        ("asmpatch::flash::not_asked".into(), &"virtual:unit".into())
    );
    let (status, units) = run(&["--yes", "--all-or-none"]);
    assert_eq!((status, code(&units[1])), (Some(5), "asmpatch::flash::all_or_none".into()), "{units:#}");
    let (status, units) = run(&["--yes"]);
    assert_eq!((status, &units[1]["changed"], &units[1]["ok"]), (Some(4), &true.into(), &true.into()), "{units:#}");
    assert!(!code(&units[2]).is_empty() && units[2]["error"]["help"].is_string());
}

#[test]
#[cfg(target_os = "linux")]
fn backups_go_to_the_data_folder_unless_another_is_named() {
    let rig = Rig::new("");
    let home = rig.home.path();
    let backup = |variable: Option<&str>, words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_asmpatch"));
        command
            .current_dir(home)
            .env_remove("ASMPATCH_BACKUP_DIR")
            .env("ASMPATCH_CONFIG", "")
            .env("XDG_DATA_HOME", home.join("data"));
        command.args(["backup", "--device", "virtual:unit"]).args(words);
        if let Some(folder) = variable {
            command.env("ASMPATCH_BACKUP_DIR", folder);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let place = home.join("data/asmpatch/backups");
    assert!(backup(None, &[]).contains(&place.display().to_string()));
    assert_eq!(fs::read_dir(place).unwrap().count(), 1);
    assert!(backup(Some("variable"), &[]).contains("variable/asmpatch-backup-"));
    assert!(backup(Some("variable"), &["--backup-dir", "option"]).contains("option/asmpatch-backup-"));
    assert!(backup(Some("variable"), &["-o", "mine"]).contains("backup    mine"));
}

#[test]
#[cfg(target_os = "linux")]
fn the_configuration_file_at_the_platforms_place_is_read_unless_another_or_none_is_wanted() {
    let rig = Rig::new("");
    let home = rig.home.path();
    let file = home.join("xdg/asmpatch/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let backup = |config: Option<&str>, words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_asmpatch"));
        command.current_dir(home).env_remove("ASMPATCH_BACKUP_DIR").env_remove("ASMPATCH_CONFIG");
        command.env("XDG_DATA_HOME", home.join("data")).env("XDG_CONFIG_HOME", home.join("xdg"));
        config.map(|file| command.env("ASMPATCH_CONFIG", file));
        let output = command.args(["backup", "--device", "virtual:unit"]).args(words).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let goes_to = |(status, told): (Option<i32>, String), folder: &str| {
        assert!(status == Some(0) && told.contains(&format!("{folder}/asmpatch-backup-")), "{folder}: {told}");
    };
    goes_to(backup(None, &[]), "data/asmpatch/backups");
    fs::write(&file, "backup-dir = 'kept'\n").unwrap();
    fs::write(home.join("other.toml"), "backup-dir = 'other'\n").unwrap();
    goes_to(backup(None, &[]), "xdg/asmpatch/kept");
    goes_to(backup(Some("other.toml"), &[]), "other");
    goes_to(backup(Some("other.toml"), &["--config", file.to_str().unwrap()]), "xdg/asmpatch/kept");
    goes_to(backup(None, &["--backup-dir", "mine"]), "mine");
    assert!(backup(None, &["-o", "this"]).1.contains("backup    this"));

    fs::write(&file, "backup-folder = 'kept'\n").unwrap();
    let (status, told) = backup(None, &["-o", "never"]);
    assert!(status == Some(3) && told.contains("unknown field `backup-folder`"), "{told}");
    assert!(!home.join("never").exists());
    goes_to(backup(None, &["--no-config"]), "data/asmpatch/backups");
    goes_to(backup(Some(""), &[]), "data/asmpatch/backups");
    let (status, told) = backup(Some("missing.toml"), &[]);
    assert!(status == Some(3) && told.contains("cannot read missing.toml"), "{told}");
    // A folder in the place of the file is somebody's mistake.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(backup(None, &[]).0, Some(3));
}

#[test]
fn a_unit_that_a_gpu_runtime_uses_is_flashed_without_being_asked_for_its_ssd() {
    let mut port = Rig::new("").port();
    let state = port.attached().unwrap().state;
    let mut bridge = port.open().unwrap();
    bridge.xdata_write(asmpatch::scsi::XdataAddress::main(0x054B), 0x20).unwrap();
    let running = Running::of(&mut Access::Commands(bridge), state).unwrap();
    assert!(matches!(&running.behind, Behind::CannotTell(why) if why.contains("0x054b")), "{:?}", running.behind);
    assert!(running.behind.is_initialised());
    assert!(running.image().is_some() && running.version.is_some());
}

#[test]
#[cfg(unix)]
fn a_second_signal_ends_the_process_at_once() {
    // The flash is busy for most of a minute, in which no first signal ends anything.
    let rig = Rig::new("[timing]\nerase-sector-ms = 1500\n");
    let mut flash = flashing(&rig);
    send("-INT", &flash);
    std::thread::sleep(Duration::from_millis(200));
    assert!(flash.try_wait().unwrap().is_none());
    send("-TERM", &flash);
    let output = flash.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("write configuration block 0: written"));
}
