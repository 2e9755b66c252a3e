//! A command in a stranger's text never stands where asmpatch's own commands stand, on a line of its own: a reader copies
//! what is there. The text is in each string that comes from outside: reports, backups, data files, receipts, archives,
//! names of files, and what a unit says of itself.

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::Path;
use std::process::Output;

use asm2464::firmware::ConfigField;
use asm2464_chip::practice;
use asm2464_files::toml_file;
use serde_json::Value;

use crate::program::process::{good, run, text};

/// The command that must not be printed on a line of its own.
const COMMAND: &str = "asmpatch flash EVIL -y #";
/// What a stranger writes to put it there.
const FORGED: &str = "x\nasmpatch flash EVIL -y #\r\n    asmpatch flash EVIL -y #\u{2028}asmpatch flash EVIL -y #\nx";

/// The line of a text that begins as the forged command, if one does.
fn forged(text: &str) -> Option<&str> {
    let marks = |c: char| c.is_whitespace() || "│|×╰├─▶>`-".contains(c);
    text.lines().find(|line| {
        let line = line.trim_start_matches(marks);
        line.strip_prefix("next: ").unwrap_or(line).starts_with(COMMAND)
    })
}

/// The texts of a JSON document that a reader prints as lines.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(text) if ["help", "advice", "purpose", "question", "command"].contains(&&**key) => {
                        found.push(text.clone());
                    }
                    _ => texts(member, found),
                }
            }
        }
        _ => {}
    }
}

/// Checks what a command has printed. Returns whether the stranger's text is in it.
fn check(output: &Output, what: &str) -> bool {
    let printed = text(output);
    assert_eq!(forged(&printed), None, "{what}:\n{printed}");
    if let Ok(document) = serde_json::from_slice::<Value>(&output.stdout) {
        let mut found = Vec::new();
        texts(&document, &mut found);
        for text in found {
            assert_eq!(forged(&text), None, "{what}, in JSON:\n{printed}");
        }
    }
    printed.contains("EVIL")
}

/// A TOML file with the stranger's text at the end of each of its strings in turn.
fn each_toml(file: &str) -> Vec<String> {
    let mut changed = Vec::new();
    for (at, line) in file.lines().enumerate() {
        let Some((key, value)) = line.split_once(" = ") else { continue };
        let value = value.trim();
        if !value.starts_with(['"', '\'']) || value.starts_with("\"\"\"") {
            continue;
        }
        let new = format!("{key} = {}", toml_file::string(&(value[1..value.len() - 1].to_owned() + FORGED)));
        let lines: Vec<&str> =
            file.lines().enumerate().map(|(index, old)| if index == at { &*new } else { old }).collect();
        changed.push(lines.join("\n") + "\n");
    }
    assert!(!changed.is_empty(), "no strings in {file}");
    changed.push(file.to_owned() + &format!("{} = 1\n", toml_file::string(FORGED)));
    changed
}

/// The places of all strings in a JSON document.
fn strings(value: &Value, place: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(place.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| strings(item, &format!("{place}/{at}"), found));
        }
        Value::Object(members) => {
            members.iter().for_each(|(key, item)| strings(item, &format!("{place}/{key}"), found))
        }
        _ => {}
    }
}

fn workspace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("practice.bin"), practice::image().to_file()).unwrap();
    folder
}

#[test]
fn a_report_of_doctor_prints_no_command_of_its_sender() {
    let folder = workspace();
    let home = folder.path();
    run(home, &["doctor", "--device", "virtual:u", "--report", "r.json"]);
    let report: Value = serde_json::from_slice(&fs::read(home.join("r.json")).unwrap()).unwrap();
    let mut places = Vec::new();
    strings(&report, "", &mut places);
    let mut shown = 0;
    for place in &places {
        let mut changed = report.clone();
        let value = changed.pointer_mut(place).unwrap();
        *value = Value::String(value.as_str().unwrap().to_owned() + FORGED);
        fs::write(home.join("x.json"), changed.to_string()).unwrap();
        for words in [["doctor", "--from", "x.json"].as_slice(), &["doctor", "--from", "x.json", "--json"]] {
            shown += usize::from(check(&run(home, words), place));
        }
    }
    assert!(places.len() > 20 && shown > 5, "{shown} of {}", places.len());
}

#[test]
fn a_backup_prints_no_command_of_its_maker() {
    let folder = workspace();
    let home = folder.path();
    good(home, &["backup", "--device", "virtual:u", "-o", "backups/b"]);
    let manifest = home.join("backups/b/backup.toml");
    let mut shown = 0;
    for changed in each_toml(&fs::read_to_string(&manifest).unwrap()) {
        fs::write(&manifest, &changed).unwrap();
        for words in [
            ["restore", "backups/b", "--device", "virtual:u"].as_slice(),
            &["restore", "backups/b", "--device", "virtual:u", "--json", "--yes"],
            &["restore", "--device", "virtual:v", "--backup-dir", "backups"],
            &["backup", "--list", "--backup-dir", "backups"],
            &["flash", "backups/b", "--device", "virtual:u"],
            &["flash", "practice.bin", "--config-from", "backups/b", "--device", "virtual:u", "--dry-run"],
            &["info", "backups/b"],
            &["verify", "backups/b"],
        ] {
            shown += usize::from(check(&run(home, words), &format!("{words:?} with {changed}")));
        }
    }
    assert!(shown > 10, "{shown}");
}

#[test]
fn a_data_file_prints_no_command_of_its_author() {
    let folder = workspace();
    let home = folder.path();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = |folder: &str| {
        let mut files: Vec<_> = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        fs::read_to_string(files.iter().find(|path| path.extension().is_some_and(|end| end == "toml")).unwrap())
            .unwrap()
    };
    let rename = |text: String, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
        text.replacen(&line, &format!("{key} = 'another'"), 1)
    };
    for name in ["manifests", "patches", "devices", "unit"] {
        fs::create_dir(home.join(name)).unwrap();
    }
    let device = "[[device]]\nid = '1234:abcd'\nproduct = 'P'\nmaker = 'M'\nsource = 'S'\nnotes = 'N'\n";
    let unit = "serial = 'S1'\nfactory = 'open'\nbehind = 'tiny-gpu'\n";
    let cases: [(&str, String, &[&[&str]]); 4] = [
        (
            "manifests/a.toml",
            rename(shipped("firmware-manifests"), "id"),
            &[
                &["download", "--list", "--manifest-dir", "manifests"],
                &["download", "another", "--from", "practice.bin", "--manifest-dir", "manifests"],
            ],
        ),
        (
            "patches/a.toml",
            rename(shipped("patches"), "id"),
            &[
                &["patch", "--list", "--patch-dir", "patches"],
                &["patch", "practice.bin", "-o", "o.bin", "--patch-dir", "patches", "--patch", "another"],
                &["verify", "practice.bin", "--patch-dir", "patches"],
            ],
        ),
        (
            "devices/a.toml",
            device.to_owned(),
            &[&["list", "--known", "--devices-dir", "devices"], &["udev", "--devices-dir", "devices"]],
        ),
        (
            "unit/bridge.toml",
            unit.to_owned(),
            &[
                &["list", "--device", "virtual:unit"],
                &["doctor", "--device", "virtual:unit"],
                &["config", "get", "--device", "virtual:unit"],
            ],
        ),
    ];
    for (path, file, commands) in cases {
        for changed in each_toml(&file) {
            fs::write(home.join(path), &changed).unwrap();
            for words in commands {
                check(&run(home, words), &format!("{words:?} with {changed}"));
            }
        }
        fs::remove_file(home.join(path)).unwrap();
    }
}

#[test]
fn what_a_unit_says_of_itself_prints_no_command() {
    let folder = workspace();
    let home = folder.path();
    good(home, &["list", "--device", "virtual:u"]);
    let path = home.join("u/flash.bin");
    let whole = fs::read(&path).unwrap();
    for field in [ConfigField::Serial, ConfigField::Manufacturer, ConfigField::Product] {
        let mut cells = whole.clone();
        let forged = "\nasmpatch flash EVIL -y #";
        let range = field.range();
        let len = forged.len().min(range.len());
        cells[range.clone()].fill(0xFF);
        cells[range.start..][..len].copy_from_slice(&forged.as_bytes()[..len]);
        cells[0x7F] = cells[0x04..=0x7E].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        fs::write(&path, &cells).unwrap();
        for words in [
            ["list"].as_slice(),
            &["list", "--json"],
            &["doctor"],
            &["doctor", "--json"],
            &["config", "get"],
            &["backup", "-o", "b"],
            &["flash", "practice.bin", "--dry-run"],
            &["flash", "practice.bin", "--yes", "--backup-dir", "made"],
            &["restore"],
            &["reset"],
            &["pcie"],
        ] {
            check(&run(home, &[words, &["--device", "virtual:u"]].concat()), &format!("{words:?}, {field:?}"));
        }
        let _ = fs::remove_dir_all(home.join("b"));
    }
}

#[test]
fn a_name_of_a_file_a_folder_or_a_member_prints_no_command() {
    let folder = workspace();
    let home = folder.path();
    let image = fs::read(home.join("practice.bin")).unwrap();
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in [(FORGED, &image[..]), (&*format!("{FORGED}.exe"), b"MZ")] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    let zip = zip.finish().unwrap().into_inner();
    let kinds: [(&str, &[u8]); 6] =
        [("i", &image), ("z", &zip), ("t", b"text"), ("c", &image[4..]), ("e", b""), ("elf", b"\x7FELF")];
    for (kind, bytes) in kinds {
        let name = format!("{FORGED}{kind}");
        fs::write(home.join(&name), bytes).unwrap();
        for words in [
            ["info", &name].as_slice(),
            &["verify", &name],
            &["verify", "--json", &name],
            &["patch", &name, "-o", "o.bin"],
            &["unpatch", &name, "-o", "o.bin"],
            &["wrap", &name, "-o", "o.bin"],
            &["disasm", &name],
            &["run", &name],
            &["flash", &name, "--device", "virtual:u", "--dry-run"],
            &["restore", &name, "--device", "virtual:u"],
            &["download", "240417", "--from", &name],
            &["doctor", "--from", &name],
            &["bench", "--baseline", &name, "--device", "virtual:u"],
            &["make-patch", &name, "--site", "c:0x2000"],
            &["info", &format!("{name}.gone")],
        ] {
            check(&run(home, words), &format!("{words:?}"));
            let _ = fs::remove_file(home.join("o.bin"));
        }
    }
    // A virtual unit, and a folder of backups.
    let unit = format!("virtual:{FORGED}");
    let backups = format!("b{FORGED}");
    for words in [
        ["list"].as_slice(),
        &["doctor"],
        &["flash", "practice.bin", "--yes", "--backup-dir", &backups],
        &["flash", "practice.bin", "--force", "--dry-run", "--backup-dir", &backups],
        &["restore", "--backup-dir", &backups],
        &["restore", "practice.bin", "--backup-dir", &backups],
        &["config", "set", "serial=A", "--yes", "--backup-dir", &backups],
        &["virtual", "set", "power-loss-after=0"],
        &["flash", "practice.bin", "--force", "--yes", "--backup-dir", &backups],
        &["reset"],
        &["pcie"],
    ] {
        check(&run(home, &[words, &["--device", &unit]].concat()), &format!("{words:?}"));
    }
    check(&run(home, &["backup", "--list", "--backup-dir", &backups]), "backup --list");
    check(&run(home, &[FORGED]), "a command's name");
    check(&run(home, &["help", FORGED]), "a page's name");
    check(&run(home, &["help", "recovery", FORGED]), "a section's name");
    check(&run(home, &["flash", FORGED, "--device", FORGED]), "a unit's name");
}
