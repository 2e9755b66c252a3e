//! `asmpatch flash` and `backup` as processes: output, signals, folders.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use asm2464::firmware::{Bank, BlockIndex, CONFIG_BLOCK_LEN, CodeAddress, ConfigBlock, ConfigField, FileOffset, UsbId};
use asm2464_chip::practice;
use asm2464_host::bridge::{Behind, Port as _};
use asmpatch::flash::access::Access;
use asmpatch::flash::observe::ObservedFirmware;
use asmpatch::patch::{Library, PatchSet, ReceiptImage, Selection};
use serde_json::json;

use crate::program::flash::rig::{Rig, asmpatch, patched, patched_with, write_image};
use crate::program::process;
use crate::schemas;

/// Each distinct image of a run is proved once: the one that is written, the one in the unit, and those of its backups. A
/// proof powers the chip model on once for each transport, and what no list knows is enumerated once before.
#[test]
fn a_flash_proves_each_image_once() {
    let rig = Rig::new("");
    let home = rig.home.path();
    write_image(home, &patched());
    fs::write(home.join("open.bin"), practice::open_image().to_file()).unwrap();
    fs::write(home.join("practice.bin"), practice::image().to_file()).unwrap();
    // The image, whether the unit has lost its own before, and how many images are executed.
    let runs = [
        ("open.bin", false, 2),
        // Open firmware tells no version, so the unit's earlier backups count, too.
        ("patched.bin", false, 3),
        ("practice.bin", false, 2),
        ("patched.bin", true, 3),
    ];
    for (file, lost, images) in runs {
        if lost {
            let mut cells = rig.cells();
            cells[0x100..0x104].fill(0xFF);
            fs::write(rig.dir().join("flash.bin"), cells).unwrap();
        }
        let words = ["flash", file, "--device", "virtual:unit", "--log-file", "trace", "--backup-dir", "backups"];
        let output = asmpatch(home, &words);
        // A unit in its boot loader can't be backed up: it is refused, with the backups that may be its own.
        assert_eq!(output.status.success(), !lost, "{file}: {output:?}");
        let trace = fs::read_to_string(home.join("trace")).unwrap();
        fs::remove_file(home.join("trace")).unwrap();
        let power_ons = trace.lines().filter(|line| line.contains("powers on the chip model"));
        let mut counted = std::collections::BTreeMap::new();
        for line in power_ons {
            let (_, sha256) = line.split_once("with the image ").expect(line);
            *counted.entry(sha256[..64].to_owned()).or_insert(0) += 1;
        }
        assert_eq!(counted.len(), images, "{file}: {counted:?}");
        // Over each transport, with nothing, a card and an SSD behind; or over the one that open firmware has.
        assert!(counted.values().all(|power_ons| *power_ons <= 4), "{file}: {counted:?}");
    }
}

#[test]
fn a_patch_file_beside_an_image_does_not_make_the_image_a_known_one() {
    let rig = Rig::new("");
    let home = rig.home.path();
    let before = rig.cells();
    // Both images boot and take new firmware: only their digests show that they are unknown.
    for (at, bytes, refusal, why) in [
        (0xEF4F, &[0x22][..], "asmpatch::flash::unproven", "practice with other bytes, which asmpatch can't name"),
        (0x0203, &[0x85, 0, 0], "asmpatch::flash::unproven", "the image is unknown"),
    ] {
        let mut image = practice::image();
        let bank = if at < 0x8000 { Bank::Common } else { Bank::Bank1 };
        assert!(image.replace(CodeAddress::new(bank, at).unwrap().body_offset(), bytes));
        let described = ReceiptImage::of(&image);
        let ReceiptImage { sha256, size, version } = &described;
        let described = format!("sha256 = '{sha256}'\nsize = {size}\nversion = '{version}'\n");
        let receipt =
            format!("format = 1\ntool = 'x'\n[input]\n{described}[output]\n{described}[files]\nmine = 'mine.toml'\n");
        let patch = format!(
            "id = 'mine'\ntitle = ''\npurpose = ''\nsource = ''\ndefault = false\n[[images]]\nsha256 = '{sha256}'\n\
             name = '240417'\nhunks = []\n[config]\nvendor-id = 0xADD1\n"
        );
        fs::write(home.join("image.bin"), image.to_file()).unwrap();
        fs::write(home.join("image.bin.toml"), receipt).unwrap();
        fs::write(home.join("mine.toml"), patch).unwrap();
        let output = asmpatch(home, &["flash", "image.bin", "--device", "virtual:unit"]);
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains(refusal) && said.contains(why) && !said.contains("240417"), "{said}");
    }
    assert!(rig.cells() == before);
}

#[test]
fn a_known_version_that_somebody_changed_is_written_with_consent_and_its_changes_are_named() {
    let rig = Rig::new("");
    let home = rig.home.path();
    let before = rig.cells();
    let mut image = practice::image();
    for (at, bytes) in [(0x16ebe, &[0x22, 0x22][..]), (0x16ec4, &[0x22])] {
        assert!(image.replace(FileOffset(at).body_offset().unwrap(), bytes), "free space");
    }
    fs::write(home.join("changed.bin"), image.to_file()).unwrap();
    let flash = ["flash", "changed.bin", "--device", "virtual:unit"];
    let refused = asmpatch(home, &flash);
    let said = String::from_utf8(refused.stdout).unwrap();
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("asmpatch::flash::unproven") && said.contains("practice with 3 other bytes (b1:"), "{said}");
    assert!(!said.contains("image is unknown") && rig.cells() == before, "{said}");
    let written = asmpatch(home, &[&flash[..], &["--unproven"]].concat());
    let said = String::from_utf8(written.stdout).unwrap();
    assert!(written.status.success() && said.contains("practice with 3 other bytes"), "{said}");
    assert!(rig.cells()[0x100..0x1_0000] == image.to_file()[..0xFF00]);
}

#[test]
fn a_patch_file_beside_an_image_does_not_vouch_for_a_change_of_a_known_one() {
    let rig = Rig::new("");
    let home = rig.home.path();
    let before = rig.cells();
    let practice = practice::image();
    let sha256 = ReceiptImage::of(&practice).sha256;
    // The change is in free space: the image works as before, and only its digest differs.
    let patch = format!(
        "id = 'mine'\ntitle = ''\npurpose = ''\nsource = ''\ndefault = true\n[[images]]\nsha256 = '{sha256}'\n\
         name = 'practice'\n[[images.hunks]]\nat = 'file:0x16ebe'\nexpect = '0000'\nnew = '2222'\n"
    );
    let library = Library::of(&[("mine.toml", &patch)]).unwrap();
    let mut patched = PatchSet::resolve(&library, &Selection::default(), &practice, sha256).unwrap().apply().unwrap();
    patched.receipt.files = [("mine".to_owned(), "mine.toml".to_owned())].into();
    write_image(home, &patched);
    fs::write(home.join("mine.toml"), patch).unwrap();

    let flash = ["flash", "patched.bin", "--device", "virtual:unit", "--unproven"];
    let output = asmpatch(home, &flash);
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("the patch `mine` is known only from a file that came with the image"), "{said}");
    assert!(rig.cells() == before);
    // The user names the folder, and so trusts it.
    fs::create_dir(home.join("own")).unwrap();
    fs::rename(home.join("mine.toml"), home.join("own/mine.toml")).unwrap();
    let trusted = asmpatch(home, &[&flash[..4], &["--patch-dir", "own"]].concat());
    assert!(trusted.status.success(), "{}", String::from_utf8_lossy(&trusted.stderr));
}

#[test]
fn with_yes_asmpatch_does_not_wait_for_the_cable_and_the_json_says_what_the_unit_needs() {
    let flash = |scenario: &str, e4_extension: bool, options: &[&str]| {
        let rig = Rig::new(scenario);
        let home = rig.home.path();
        write_image(home, &patched_with(e4_extension));
        let words = [&["flash", "patched.bin", "--device", "virtual:unit"], options].concat();
        let output = asmpatch(home, &words);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let unit = schemas::parse(&["flash"], &output.stdout)[0].clone();
        // What is in the flash runs only after a power cycle, unless the unit shows that it does.
        let (before, written) = (&unit["before"]["firmware"], &unit["plan"]["firmware"]);
        assert_ne!(before, written);
        assert_eq!(&unit["flashed"], written);
        let running = match unit["runs"].as_str() {
            Some("before") => before.clone(),
            Some("unknown") => json!(format!("{} or {}", before.as_str().unwrap(), written.as_str().unwrap())),
            _ => written.clone(),
        };
        let is_back = !unit["after"].is_null();
        assert!(!is_back || unit["after"]["firmware"] == running, "{unit:#}");
        (unit["runs"].clone(), unit["needs"].clone(), !is_back)
    };
    assert_eq!(flash("factory = 'erased'\n", false, &["--no-backup"]), (json!(null), json!("power"), true));
    assert_eq!(flash("cpu-reset = 'loads-code'\n", true, &[]), (json!("written"), json!(null), false));
    assert_eq!(flash("port-power = true\n", true, &[]), (json!("written"), json!(null), false));
    assert_eq!(flash("", true, &[]), (json!("before"), json!("power"), false));
    assert_eq!(flash("", false, &[]), (json!("unknown"), json!("power"), false));
}

#[test]
#[cfg(unix)]
fn a_flash_completes_although_its_output_is_lost() {
    for lost in [">&-", "2>&-", ">&- 2>&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>&1", "| true"] {
        let rig = Rig::new("");
        let home = rig.home.path();
        rig.cells();
        let patched = patched();
        write_image(home, &patched);
        // The pipeline's status would be its reader's, so save asmpatch's.
        let line = format!("{{ \"$0\" flash patched.bin --device virtual:unit --yes; echo $? >status; }} {lost}");
        std::process::Command::new("sh").current_dir(home).args(["-c", &line, process::PROGRAM]).status().unwrap();
        assert_eq!(fs::read_to_string(home.join("status")).unwrap().trim(), "0", "{lost}");
        let file = patched.image.to_file();
        assert!(rig.cells()[0x100..0x1_0000] == file[..0xFF00], "{lost}");
        assert!(rig.cells()[0x1_0000..][..file.len() - 0xFF00] == file[0xFF00..], "{lost}");
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
fn open_firmware_that_holds_everything_is_written_again_in_every_sector_only_if_that_is_forced() {
    let rig = Rig::new("factory = 'open'");
    let home = rig.home.path();
    fs::write(home.join("open.bin"), practice::open_image().to_file()).unwrap();
    let words = ["flash", "open.bin", "--device", "virtual:unit"];
    let plain = schemas::parse(&words, &asmpatch(home, &words).stdout);
    assert_eq!(plain[0]["changed"], false);
    let forced = schemas::parse(&words, &asmpatch(home, &[&words[..], &["--force"]].concat()).stdout);
    assert_eq!(forced[0]["changed"], true);
    assert!(forced.to_string().contains("32 of 32 sectors differ"), "{forced:#}");
}

#[test]
fn a_patched_image_brings_the_configuration_of_its_patches_with_its_receipt_and_without() {
    for has_receipt in [true, false] {
        let rig = Rig::new("");
        let home = rig.home.path();
        write_image(home, &patched());
        if !has_receipt {
            fs::remove_file(home.join("patched.bin.toml")).unwrap();
        }
        asmpatch(home, &["flash", "patched.bin", "--device", "virtual:unit"]);
        let block = ConfigBlock::parse(BlockIndex::Zero, &rig.cells()[..CONFIG_BLOCK_LEN]).unwrap();
        assert_eq!(block.usb_id(), UsbId::PATCHED, "{has_receipt}");
    }
}

#[test]
fn a_serial_number_of_a_series_is_given_like_one_that_is_typed_and_belongs_to_no_other_unit() {
    for option in ["--serials", "--serial"] {
        let rig = Rig::new("serial = 'DOCK0001'");
        let home = rig.home.path();
        fs::write(home.join("practice.bin"), practice::image().to_file()).unwrap();
        process::good(home, &["backup", "--device", "virtual:other", "-o", "others"]);
        let words = ["flash", "practice.bin", "--config-from", "others", option, "RACK9", "--device", "virtual:unit"];
        let unit = schemas::parse(&words, &asmpatch(home, &words).stdout);
        assert_eq!(unit[0]["ok"], true, "{unit:#}");
        let block = ConfigBlock::parse(BlockIndex::Zero, &rig.cells()[..CONFIG_BLOCK_LEN]).unwrap();
        assert_eq!(block.text(ConfigField::Serial), "RACK9", "{option}");
    }
}

#[test]
fn each_unit_has_its_own_result_even_without_a_terminal_or_with_a_missing_unit() {
    let rig = Rig::new("");
    let home = rig.home.path();
    write_image(home, &patched());
    fs::create_dir(home.join("absent")).unwrap();
    fs::write(home.join("absent/bridge.toml"), "state = 'absent'\n").unwrap();
    let words = ["flash", "patched.bin", "--all", "--device", "virtual:absent", "--device", "virtual:unit"];
    let words = [&words[..], &["--device", "virtual:unit", "--device", "NOSUCHSERIAL"]].concat();
    let run = |more: &[&str]| {
        let mut command = process::command(home, &[&words[..], &["--json"], more].concat());
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let units = schemas::parse(&["flash"], &output.stdout);
        (output.status.code(), units)
    };
    let code = |unit: &serde_json::Value| unit["error"]["code"].as_str().unwrap_or_default().to_owned();
    let (status, units) = run(&[]);
    assert_eq!((status, units.as_array().unwrap().len()), (Some(5), 3), "{units:#}");
    assert_eq!(code(&units[0]), "asmpatch::virtual_unit::absent");
    assert_eq!(
        (code(&units[1]), &units[1]["error"]["device"]),
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
        let mut command = process::command(home, &["backup", "--device", "virtual:unit"]);
        command.env_remove("ASMPATCH_BACKUP_DIR").env("XDG_DATA_HOME", home.join("data")).args(words);
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
fn two_docks_with_open_firmware_and_the_same_flash_have_backups_of_their_own() {
    let home = tempfile::tempdir().unwrap();
    for unit in ["a", "b"] {
        fs::create_dir(home.path().join(unit)).unwrap();
        fs::write(home.path().join(unit).join("bridge.toml"), "factory = 'open'\nserial = 'SAME'\n").unwrap();
    }
    for unit in ["virtual:a", "virtual:b", "virtual:a"] {
        process::good(home.path(), &["backup", "--device", unit, "--backup-dir", "kept"]);
    }
    // The first unit's second backup is the same as its first.
    let mut folders: Vec<String> = fs::read_dir(home.path().join("kept"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(folders.len(), 2, "{folders:?}");
    for (folder, unit) in folders.iter().zip(["a", "b"]) {
        assert!(folder.contains(&format!("-at-{unit}-")), "{folder}");
        let manifest = fs::read_to_string(home.path().join("kept").join(folder).join("backup.toml")).unwrap();
        assert!(manifest.contains(&format!("device = \"virtual:{unit}\"")), "{manifest}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_file_handles_no_partial_backup_is_left_and_a_backup_is_not_called_another() {
    let rig = Rig::new("");
    let home = rig.home.path();
    rig.cells();
    process::good(home, &["backup", "--device", "virtual:unit", "-o", "first"]);
    let mut codes = BTreeSet::new();
    for (handles, folder) in (5..=8).flat_map(|handles| [(handles, "first"), (handles, "second")]) {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {handles}; exec \"$0\" \"$@\""), process::PROGRAM]);
        command.args(["backup", "--device", "virtual:unit", "-o", folder]).current_dir(home);
        let output = command.env("ASMPATCH_CONFIG", "").output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        codes.extend(printed.lines().filter(|line| line.starts_with("asmpatch::backup::")).map(str::to_owned));
        let names = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let partial: Vec<String> = names.filter(|name| name.starts_with(".asmpatch-")).collect();
        assert!(partial.is_empty(), "{handles} {folder}: {partial:?}: {printed}");
    }
    assert_eq!(codes, ["asmpatch::backup::save", "asmpatch::backup::unread"].map(str::to_owned).into());
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
    assert!(running.image().is_some() && running.runs.version.is_some());
}
