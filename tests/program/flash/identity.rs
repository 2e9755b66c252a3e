//! A unit whose flash was interrupted keeps its own identity: its backup is found, and no other unit's is taken for it.

use std::fs;

use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, ConfigField, FirmwareVersion, known_blocks};
use asm2464::flash::{SLOT_LEN, Slot};
use asm2464_chip::practice;
use asm2464_host::bridge::Port as _;
use asmpatch::flash::access::Access;
use asmpatch::flash::identity::neutral_blocks;
use asmpatch::flash::observe::ObservedFirmware;
use serde_json::Value;

use crate::chip_images;
use crate::program::flash::rig::{Rig, asmpatch, patched, write_image};
use crate::program::process;
#[cfg(unix)]
use crate::program::terminal;
use crate::schemas;

/// A unit with a backup in the default folder. Its flash then lost its image and, if `erased`, its blocks, too.
fn interrupted(erased: bool) -> (Rig, Vec<u8>) {
    let rig = Rig::new("serial = 'DOCK7'\n");
    let before = rig.cells();
    write_image(rig.home.path(), &patched());
    backup(&rig);
    let mut cells = before.clone();
    cells[if erased { 0 } else { 0x100 }..0x104].fill(0xFF);
    fs::write(rig.dir().join("flash.bin"), cells).unwrap();
    (rig, before)
}

fn backup(rig: &Rig) {
    process::good(rig.home.path(), &["backup", "--device", "virtual:unit"]);
}

/// Runs a printed command, split into words.
fn run(rig: &Rig, command: &str) -> std::process::Output {
    asmpatch(rig.home.path(), &process::arguments(command))
}

#[test]
fn a_dock_that_got_another_number_and_was_moved_is_restored_from_its_backup_without_consent() {
    let rig = Rig::new("serial = 'DOCK7'\n");
    let home = rig.home.path();
    let set = |fields: &[&str]| {
        process::good(home, &[&["config", "set", "--yes", "--device", "virtual:unit"][..], fields].concat())
    };
    set(&["usb4-unique-id=0707070707", "--no-backup"]);
    let before = rig.cells();
    set(&["serial=DOCK8"]);
    fs::rename(rig.dir(), home.join("moved")).unwrap();
    let moved = ["--device", "virtual:moved"];
    let first = || {
        let output = process::run(home, &[&["restore", "--json"][..], &moved].concat());
        schemas::parse(&["restore-list"], &output.stdout)[0]["recovery"][0].clone()
    };
    // Without what `config set` left there, nobody knows whether the number is the dock's.
    let step = first();
    let left = home.join(step["backup"].as_str().unwrap()).join("later-serials.txt");
    fs::rename(&left, home.join("left")).unwrap();
    assert!(first()["question"].is_string(), "{:#}", first());
    fs::rename(home.join("left"), left).unwrap();
    assert_eq!((step["applicability"].as_str(), &step["question"]), (Some("certain"), &Value::Null), "{step:#}");
    let restored = run(&rig, step["command"].as_str().unwrap());
    assert!(restored.status.success(), "{}", process::text(&restored));
    assert!(fs::read(home.join("moved/flash.bin")).unwrap() == before);
}

fn flash(rig: &Rig, options: &[&str]) -> Value {
    let words = [&["flash", "patched.bin", "--device", "virtual:unit"], options].concat();
    schemas::parse(&["flash"], &asmpatch(rig.home.path(), &words).stdout)[0].clone()
}

fn doctor(rig: &Rig) -> Value {
    let output = process::run(rig.home.path(), &["doctor", "--device", "virtual:unit", "--json"]);
    schemas::parse(&["doctor"], &output.stdout)
}

#[test]
fn the_boot_loaders_serial_number_finds_the_backup_and_the_printed_commands_work() {
    let (rig, before) = interrupted(false);
    let page = doctor(&rig);
    let printed = page["recovery"].as_array().unwrap().clone();
    let commands: Vec<&str> = printed.iter().map(|action| action["command"].as_str().unwrap()).collect();
    assert!(commands[0].starts_with("asmpatch restore backups/asmpatch-backup-DOCK7-"), "{page:#}");
    assert!(commands[1].contains("flash ed4e39b --config-from backups/asmpatch-backup-DOCK7-"), "{page:#}");
    assert!(printed.iter().all(|action| action.get("question").is_none()), "{page:#}");
    let advice = page["lines"].as_array().unwrap().iter().find_map(|line| line["advice"].as_str()).unwrap();
    assert!(advice.contains(commands[0]) && !advice.contains("flash 240417"), "{advice}");

    // Without options, `flash` is refused, and its error has the commands.
    let refused = flash(&rig, &[]);
    assert_eq!(refused["error"]["code"], "asmpatch::flash::no_backup");
    let recovery = refused["error"]["recovery"].as_array().unwrap();
    let on = recovery[0]["command"].as_str().unwrap();
    assert!(on.starts_with("asmpatch flash patched.bin --config-from backups/"), "{refused:#}");
    let output = run(&rig, on);
    assert!(output.status.success(), "{on}: {}", String::from_utf8_lossy(&output.stdout));
    let after = asm2464_host::bridge::Port::attached(&mut rig.port()).unwrap();
    assert_eq!((after.state, after.serial()), (BridgeState::Vendor, "DOCK7"));

    // Doctor's command works, too.
    let mut cells = before.clone();
    cells[0x100..0x104].fill(0xFF);
    fs::write(rig.dir().join("flash.bin"), cells).unwrap();
    let output = run(&rig, commands[0]);
    assert!(output.status.success(), "{}: {}", commands[0], String::from_utf8_lossy(&output.stdout));
    assert!(rig.cells() == before);
}

#[test]
fn a_backup_that_agrees_only_in_its_port_is_offered_as_a_question() {
    let (rig, before) = interrupted(true);
    let page = doctor(&rig);
    let printed = page["recovery"].as_array().unwrap();
    assert_eq!(printed.len(), 2, "{page:#}");
    for action in printed {
        assert!(action["question"].as_str().unwrap().contains("(serial DOCK7, "), "{page:#}");
    }
    let mut lines = page["lines"].as_array().unwrap().iter();
    let firmware = lines.find(|line| line["topic"] == "firmware").unwrap();
    assert_eq!(firmware["steps"][0].get("command"), None, "a doubtful command comes first: {firmware:#}");
    assert!(firmware["steps"][1]["question"].is_string(), "{firmware:#}");
    // Once its owner has said yes, the command works.
    let output = run(&rig, printed[0]["command"].as_str().unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(rig.cells() == before);
    // Once its owner has said no, the command for a new board works, too.
    let (rig, _) = interrupted(true);
    let page = doctor(&rig).to_string();
    let (_, command) = page.split_once("asmpatch flash ed4e39b --device virtual:unit ").unwrap();
    let options: Vec<&str> = command.split("\\n").next().unwrap().split(' ').collect();
    assert_eq!(options, ["--clone-identity=own-backup", "--no-backup"], "{page}");
    assert_eq!(flash(&rig, &options)["ok"], true, "{page}");
}

#[test]
#[cfg(unix)]
fn nothing_is_written_before_every_question_has_its_yes() {
    let (rig, _) = interrupted(false);
    let programs = std::path::Path::new(process::PROGRAM).parent().unwrap();
    let line = "asmpatch flash patched.bin --device virtual:unit --no-backup --backup-dir backups";
    let cells = || fs::read(rig.dir().join("flash.bin")).unwrap();
    let lost = cells();
    for (typed, is_asked_twice, is_written) in
        [(&["no\n"][..], false, false), (&["y\n", "no\n"], true, false), (&["y\n", "y\n", "no\n"], true, true)]
    {
        let (_, screen) = terminal::answer(terminal::shell(programs, rig.home.path(), line), typed);
        assert!(screen.contains("Write this unit? [y/N]"), "{screen}");
        assert_eq!(screen.contains("give it another identity, though"), is_asked_twice, "{screen}");
        assert_eq!(cells() != lost, is_written, "{screen}");
    }
}

/// Makes the cells' block 1 another unit's.
fn set_usb4(cells: &mut [u8], byte: u8) {
    let block = &mut cells[0x80..0x100];
    block[0x5A] = byte;
    block[0x7F] = block[0x04..=0x7E].iter().fold(0, |sum, byte| sum.wrapping_add(*byte));
}

#[test]
fn a_placeholder_finds_a_backup_but_proves_nothing() {
    // The owner's other dock has the same number, and the only backup.
    let rig = Rig::new("serial = 'AABBCCDD0031'\n");
    let mut others = rig.cells();
    set_usb4(&mut others, 1);
    fs::write(rig.dir().join("flash.bin"), &others).unwrap();
    fs::rename(rig.dir(), rig.home.path().join("other")).unwrap();
    process::good(rig.home.path(), &["backup", "--device", "virtual:other"]);
    rig.tell("serial = 'AABBCCDD0031'\n");
    let mut own = rig.cells();
    set_usb4(&mut own, 2);
    own[0x100..0x104].fill(0xFF);
    fs::write(rig.dir().join("flash.bin"), &own).unwrap();
    write_image(rig.home.path(), &patched());

    let page = doctor(&rig);
    let offered = [page["recovery"].clone(), flash(&rig, &[])["error"]["recovery"].clone()];
    for step in offered.iter().flat_map(|steps| steps.as_array().unwrap()) {
        let is_from_backup = step["command"].as_str().unwrap().contains("backups/");
        assert_eq!(step["question"].is_string(), is_from_backup, "{step:#}");
    }
    let question = offered[0][0]["question"].as_str().unwrap();
    assert!(question.contains("(serial AABBCCDD0031, ASMedia ASM246X USB4 NVMe, taken on "), "{question}");
    assert!(question.contains(" at virtual:other, USB4 ID "), "{question}");
    let text = process::text(&process::run(rig.home.path(), &["doctor", "--device", "virtual:unit"]));
    let restores: Vec<&str> = text.lines().filter(|line| line.contains("asmpatch restore ")).collect();
    assert!(restores.iter().all(|line| !line.contains("--yes")), "{text}");
}

#[test]
fn a_stopped_run_without_a_backup_continues_with_the_earlier_one() {
    let rig = Rig::new("serial = 'DOCK7'\n");
    rig.cells();
    write_image(rig.home.path(), &patched());
    backup(&rig);
    rig.tell("serial = 'DOCK7'\n[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\nnth = 2\n");
    let stopped = flash(&rig, &["--no-backup"]);
    assert_eq!(stopped["error"]["left"], "incomplete", "{stopped:#}");
    let first = &process::recovery(&stopped)[0];
    assert!(first.starts_with("asmpatch flash patched.bin --config-from backups/"), "{stopped:#}");
    rig.tell("serial = 'DOCK7'\n");
    assert!(run(&rig, first).status.success());
    assert_eq!(asm2464_host::bridge::Port::attached(&mut rig.port()).unwrap().serial(), "DOCK7");
}

#[test]
fn a_serial_number_that_the_stopped_run_gave_leads_to_the_ports_backup() {
    let rig = Rig::new("serial = 'DOCK7'\n");
    rig.cells();
    write_image(rig.home.path(), &patched());
    backup(&rig);
    rig.tell("serial = 'DOCK7'\n[[fault]]\nkind = 'disconnect'\nopcode = 0xe3\nnth = 2\n");
    let stopped = flash(&rig, &["--serial=NEW7", "--no-backup"]);
    assert_eq!(stopped["error"]["left"], "incomplete", "{stopped:#}");
    rig.tell("serial = 'DOCK7'\n");
    // Only the port agrees.
    let unsure = flash(&rig, &[]);
    assert!(unsure["error"]["recovery"][0]["question"].is_string(), "{unsure:#}");
    // Once its owner has said yes, each command works.
    let printed = doctor(&rig)["recovery"].as_array().unwrap().clone();
    let interrupted = fs::read(rig.dir().join("flash.bin")).unwrap();
    for action in [&unsure["error"]["recovery"][0], &printed[0]] {
        let command = action["command"].as_str().unwrap();
        assert!(command.ends_with(" --clone-identity=serial --no-backup"), "{command}");
        let output = run(&rig, command);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(asm2464_host::bridge::Port::attached(&mut rig.port()).unwrap().serial(), "DOCK7");
        fs::write(rig.dir().join("flash.bin"), &interrupted).unwrap();
    }
    let refused = flash(&rig, &["--serial=NEW7"]);
    assert_eq!(refused["before"]["serial"], "NEW7", "{refused:#}");
    let first = &refused["error"]["recovery"][0];
    assert!(first.get("question").is_none(), "{refused:#}");
    assert!(first["backup"].as_str().unwrap().starts_with("backups/asmpatch-backup-DOCK7-"), "{refused:#}");
    assert!(run(&rig, first["command"].as_str().unwrap()).status.success(), "{refused:#}");
    assert_eq!(asm2464_host::bridge::Port::attached(&mut rig.port()).unwrap().serial(), "NEW7");
}

#[test]
fn a_refused_backup_of_another_unit_comes_with_this_units_own_and_with_the_firmware_alone() {
    let other = Rig::new("serial = 'OTHER7'\n");
    process::good(other.home.path(), &["backup", "--device", "virtual:unit", "-o", "before"]);
    let rig = Rig::new("serial = 'DOCK7'\n");
    backup(&rig);
    let foreign = other.home.path().join("before");
    let words = ["restore", foreign.to_str().unwrap(), "--device", "virtual:unit", "--yes", "--json"];
    let output = process::run(rig.home.path(), &words);
    let refused = schemas::parse(&["restore"], &output.stdout);
    let refused = &refused[0]["error"];
    assert_eq!((output.status.code(), &refused["code"]), (Some(5), &"asmpatch::flash::clone".into()), "{refused:#}");
    let commands: Vec<&str> =
        refused["recovery"].as_array().unwrap().iter().map(|step| step["command"].as_str().unwrap()).collect();
    let [own, alone] = commands[..] else { panic!("{refused:#}") };
    assert!(own.starts_with("asmpatch restore backups/asmpatch-backup-DOCK7-"), "{own}");
    assert!(alone.starts_with("asmpatch flash ") && alone.contains("firmware.bin"), "{alone}");
    for command in [alone, own] {
        let output = run(&rig, command);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(asm2464_host::bridge::Port::attached(&mut rig.port()).unwrap().serial(), "DOCK7");
    }
}

/// The serial number in configuration block 0 of a flash.
fn serial_in(cells: &[u8]) -> String {
    let block = ConfigBlock::parse(BlockIndex::Zero, &cells[..0x80]).unwrap();
    block.text(ConfigField::Serial)
}

#[test]
fn a_blank_board_whose_first_write_stops_keeps_the_serial_number_that_was_drawn_for_it() {
    let stopping = "factory = 'erased'\npower-loss-after = 3000\n";
    for follows_printed in [true, false] {
        let rig = Rig::new(stopping);
        fs::write(rig.home.path().join("stock.bin"), practice::image().to_file()).unwrap();
        let words = ["flash", "stock.bin", "--device", "virtual:unit", "--no-backup"];
        let stopped = schemas::parse(&words, &asmpatch(rig.home.path(), &words).stdout)[0].clone();
        let planned = stopped["plan"]["serial"].as_str().unwrap().to_owned();
        rig.tell("factory = 'erased'\n");
        assert_eq!(serial_in(&rig.cells()), planned, "{stopped:#}");
        let on = &process::recovery(&stopped)[0];
        assert!(on.contains(&format!(" --serial {planned} ")), "{on}");
        let written = if follows_printed {
            run(&rig, on)
        } else {
            // It shows a number now, so it may be a dock that has lost its firmware: nobody can tell.
            let refused = schemas::parse(&words, &asmpatch(rig.home.path(), &words).stdout)[0].clone();
            assert_eq!(refused["error"]["code"], "asmpatch::flash::loss", "{refused:#}");
            run(&rig, &process::recovery(&refused)[0])
        };
        assert!(written.status.success(), "{}", process::text(&written));
        assert_eq!(serial_in(&rig.cells()), planned);
        assert_eq!(rig.port().attached().unwrap().state, BridgeState::Vendor);
    }
}

/// The version that the vendor's image reports with these blocks, on a virtual unit.
fn version(blocks: &[ConfigBlock; 2]) -> Option<FirmwareVersion> {
    let rig = Rig::new("");
    let mut cells = rig.cells();
    let slot = Slot::of(blocks.each_ref().map(ConfigBlock::bytes), &chip_images::vendor().to_file());
    cells[..SLOT_LEN].copy_from_slice(slot.bytes());
    fs::write(rig.dir().join("flash.bin"), cells).unwrap();
    let mut port = rig.port();
    let state = port.attached().unwrap().state;
    ObservedFirmware::of(&mut Access::open(&mut port).ok()?, state).ok()?.runs.version
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn a_stock_image_answers_with_any_neutral_identity() {
    for _ in 0..16 {
        let blocks = neutral_blocks("", None).unwrap();
        assert!(version(&blocks).is_some(), "{:02x?}", blocks[1].bytes());
    }
    // Bits 4 and 5 of 0x59 are no part of the unique ID.
    for (mode, answers) in [(0, false), (1, true), (2, true), (3, true)] {
        let [zero, one] = known_blocks();
        let mut bytes = *one.bytes();
        bytes[0x59] = bytes[0x59] & 0xCF | mode << 4;
        bytes[0x7F] = bytes[0x04..=0x7E].iter().fold(0, |sum, byte| sum.wrapping_add(*byte));
        let one = ConfigBlock::parse(BlockIndex::One, &bytes).unwrap();
        assert_eq!(version(&[zero, one]).is_some(), answers, "mode {mode}");
    }
}
