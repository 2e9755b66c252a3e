//! Tests of the table of errors: against the types that carry the codes, and against docs/errors.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::devices::RULES_PATH;
use crate::failure::shown_code;
use asm2464::{Coded, Kind, Named};
use asm2464_host::bridge::Location;
use asm2464_host::usb::{DiskError, UsbError};

use super::by_code::{self, codes, entries, files, units};
use super::{Exit, steps};
use crate::cli::tests::files_below;
use crate::cli::words::advice_part::AdvicePart;
use crate::cli::words::by_hand::is_for_docks;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::{WordedStep, lines};

const INTRODUCTION: &str = "\
# Error codes

Every error has a code, which stays the same across versions. asmpatch prints it on the error's first line, and with
`--json` as `error.code`. This list has each code with the exit status that a command ends in, and what you can do. The
program fills in the unit, the file and what else it knows, and prints each command on a line of its own; with `--json`,
`error.steps` has each step with its `purpose`, who can take it (`applicability`) and its `command`. A command without
`asmpatch` before it lacks something that only you know.

`ERRORS=overwrite cargo test --lib errors` generates this file from the table in `src/cli/words/errors`.

| exit status | meaning |
| --- | --- |
| 0 | done |
| 1 | a check failed |
| 2 | the command line is wrong |
| 3 | a file, an archive, a manifest or a server's answer is wrong |
| 4 | a device or USB failed |
| 5 | refused because it could do harm |
| 6 | the system failed: a full disk, no rights to a file, the network |
| 130 | interrupted |

| code | exit status | what to do |
| --- | --- | --- |
";

/// Reads all sources with their paths, without their tests and without the table.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = files_below(&root.join("src"), "rs");
    for house in ["crates", "model"] {
        for entry in fs::read_dir(root.join(house)).unwrap() {
            let folder = entry.unwrap().path().join("src");
            if folder.is_dir() {
                paths.extend(files_below(&folder, "rs"));
            }
        }
    }
    let tests = Path::new("tests.rs");
    let is_test = |path: &Path| path.ends_with(tests) || path.iter().any(|part| Some(part) == tests.file_stem());
    paths.retain(|path| !is_test(path) && !path.starts_with(root.join("src/cli/words/errors")));
    let without_tests = |text: String| text.split("mod tests {").next().unwrap_or_default().to_owned();
    paths.into_iter().map(|path| (path.clone(), without_tests(fs::read_to_string(path).unwrap()))).collect()
}

/// The names that codes begin with: the program's and its libraries'. The program shows all under its own.
const NAMES: [&str; 2] = ["asmpatch::", "asm2464::"];

/// Each code with what to do about it, on one line.
fn each(run: &Invocation) -> impl Iterator<Item = (&'static str, String)> {
    let row = |code| {
        let notes: Vec<String> = by_code::steps(code, &[], run).iter().map(WordedStep::note).collect();
        (code, notes.join("; "))
    };
    codes().map(row)
}

/// Returns what to do about an error as lines of text.
fn help(error: &(dyn Coded + 'static), run: &Invocation) -> String {
    lines(&steps(error, run)).join("\n")
}

/// Every kind.
const KINDS: [Kind; 14] = [
    Kind::Gone,
    Kind::NoAnswer,
    Kind::Short,
    Kind::Rejected,
    Kind::Wire,
    Kind::Unopened,
    Kind::DiskInUse,
    Kind::Device,
    Kind::CheckFailed,
    Kind::Usage,
    Kind::BadInput,
    Kind::System,
    Kind::Refused,
    Kind::Interrupted,
];

/// Lists the codes that a source names, as the program shows them, each with the kind that stands before it: as
/// `Kind "code"` in `coded!`, or as `Kind::Kind.code("code")`.
fn labels_in(text: &str) -> Vec<(String, Kind)> {
    let labels_of = |name: &'static str| {
        text.match_indices(&format!("\"{name}"))
            .map(|(at, start)| {
                let code = text[at + start.len()..].split('"').next().unwrap_or_default();
                let before = text[..at].trim_end().trim_end_matches(".code(");
                let kind = KINDS.into_iter().find(|kind| before.ends_with(&format!("{kind:?}")));
                (format!("asmpatch::{code}"), kind.unwrap_or_else(|| panic!("no kind before the code {code}")))
            })
            .collect::<Vec<_>>()
    };
    NAMES.into_iter().flat_map(labels_of).collect()
}

/// The codes of all sources, with their kinds.
fn labels() -> BTreeMap<String, Kind> {
    let mut labels = BTreeMap::new();
    for (path, text) in sources() {
        for (code, kind) in labels_in(&text) {
            let other = labels.insert(code.clone(), kind).filter(|other| *other != kind);
            assert!(other.is_none(), "{}: {code} is of two kinds", path.display());
        }
    }
    labels
}

#[test]
fn the_codes_of_a_library_that_others_may_take_do_not_carry_the_programs_name() {
    let libraries = |path: &Path| path.iter().any(|part| part.to_string_lossy().starts_with("asm2464"));
    for (path, text) in sources().into_iter().filter(|(path, _)| libraries(path)) {
        assert!(!text.contains("\"asmpatch::"), "{}", path.display());
    }
    let error = UsbError::NoAccess { port: "3-1.2".parse().unwrap(), why: None };
    assert_eq!((error.code(), shown_code(&error).as_str()), ("asm2464::usb::permission", "asmpatch::usb::permission"));
}

#[test]
fn each_code_in_the_sources_has_exactly_one_entry() {
    let labels = labels();
    let used: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
    for table in [files::ENTRIES, units::ENTRIES] {
        assert!(table.is_sorted_by(|a, b| a.codes[0] < b.codes[0]), "sorted by the first code");
    }
    let listed: Vec<&str> = entries().flat_map(|entry| entry.codes).copied().collect();
    let unique: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(listed.len(), unique.len(), "a code is there twice");
    let unlisted: Vec<_> = used.difference(&unique).collect();
    let unused: Vec<_> = unique.difference(&used).collect();
    assert!(unlisted.is_empty() && unused.is_empty(), "without an entry: {unlisted:?}; without an error: {unused:?}");
}

#[test]
fn advice_against_a_code_is_that_of_an_entry() {
    let mut count = 0;
    for (path, text) in sources() {
        for part in text.split("Advice::against(\"").skip(1) {
            let code = format!("asmpatch::{}", part.split('"').next().unwrap());
            assert!(by_code::entry(&code).is_some(), "{}: {code}", path.display());
            count += 1;
        }
    }
    assert!(count >= 5);
}

#[test]
fn no_error_of_the_library_names_a_flag_or_a_command() {
    for (path, text) in sources() {
        let of_types = text.match_indices("#[error(").filter_map(|(at, _)| text[at..].split(")]").next());
        // The message of a failure is near its code.
        let of_failures = text
            .match_indices(".code(\"")
            .filter_map(|(at, _)| text[at..].split("\n    }").next()?.split("\n}").next());
        for message in of_types.chain(of_failures) {
            let in_cli = path.components().any(|part| part.as_os_str() == "cli");
            let names = ["`asmpatch ", " --", "`--", "\"--"].iter().any(|sign| message.contains(sign));
            assert!(in_cli || !names, "{}: {message}", path.display());
        }
        let helps = text.contains("help(\"");
        assert!(!helps, "{}: help texts are in src/cli/words/errors", path.display());
    }
}

#[test]
fn the_document_lists_the_table() {
    let mut rows: Vec<_> = each(&Invocation::default()).collect();
    rows.sort_by_key(|(code, _)| *code);
    let labels = labels();
    let mut text = INTRODUCTION.to_owned();
    for (code, help) in rows {
        let _ = writeln!(text, "| `{code}` | {} | {} |", Exit::from(labels[code]) as u8, help.replace('|', "\\|"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    if env::var_os("ERRORS").is_some_and(|wish| wish == "overwrite") {
        fs::write(&path, &text).unwrap();
    }
    let is_current = fs::read_to_string(&path).is_ok_and(|there| there == text);
    assert!(is_current, "out of date: run `ERRORS=overwrite cargo test --lib errors`");
}

#[test]
fn a_command_of_the_table_is_data_that_parses_and_no_text_has_one_but_a_page() {
    let slots = [
        "ID",
        "IMAGE",
        "COPY",
        "FILE",
        "DIR",
        "VID:PID",
        "PORT",
        "DISK",
        "PLACE",
        "DEVICE",
        "UUID",
        "KEY=VALUE",
        "OUT",
        "ORIGINAL",
        "FREE",
    ];
    for entry in entries() {
        for part in entry.advice {
            match part {
                AdvicePart::Text(text) => {
                    let commands = text.replace("`asmpatch help", "");
                    assert!(!commands.contains("`asmpatch "), "{:?}: {text}", entry.codes);
                }
                AdvicePart::Run { line, .. } => {
                    let words: Vec<&str> = line.split([' ', '|', '>']).collect();
                    let unknown = words.iter().filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
                    assert!(unknown.into_iter().all(|slot| slots.contains(&slot)), "{line}");
                    let own = line.split(" | ").next().and_then(|line| line.split(" > ").next()).unwrap_or_default();
                    let words = own.split(' ').map(|word| match word {
                        "{KEY=VALUE}" => "serial=A",
                        word if word.starts_with('{') => "240417",
                        word => word,
                    });
                    let parsed = Invocation::parse(std::iter::once("asmpatch").chain(words));
                    assert!(own.starts_with("$ ") || parsed.is_ok(), "{line}");
                }
                AdvicePart::Again { slot, .. } => assert!(slots.contains(slot), "{slot}"),
                _ => {}
            }
        }
    }
}

/// Other programs that advice names with options.
const OTHERS: [&str; 8] = ["objcopy", "sdld", "sdcc", "boltctl", "ulimit", "fuser", "QEMU's", "sudo"];

/// The options in a text that the command of this path, or the command that is named with them, doesn't have.
fn foreign_options(text: &str, path: &[&str], root: &clap::Command) -> Vec<String> {
    let mut foreign = Vec::new();
    let mut quoted = false;
    for part in text.split('`') {
        let words: Vec<&str> = part.split_whitespace().collect();
        let first = words.first().copied().unwrap_or_default();
        let own = words.strip_prefix(&["asmpatch"]).unwrap_or(&words);
        let is_command = quoted && own.first().is_some_and(|name| root.find_subcommand(name).is_some());
        let mut command = root;
        for name in if is_command { own } else { path } {
            match command.find_subcommand(name) {
                Some(below) => command = below,
                None => break,
            }
        }
        let of_other = quoted
            && (OTHERS.contains(&first) || part.starts_with("-device usb-redir") || part.starts_with("-chardev"));
        for word in words.iter().filter(|_| !of_other) {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-');
            let name = word.split('=').next().unwrap_or_default();
            let is_known = match name.strip_prefix("--") {
                Some(long) if !long.is_empty() => command.get_arguments().any(|arg| arg.get_long() == Some(long)),
                _ => match name.strip_prefix('-').map(|short| short.chars().collect::<Vec<_>>()) {
                    Some(short) if short.len() == 1 && short[0].is_alphabetic() => {
                        command.get_arguments().any(|arg| arg.get_short() == Some(short[0]))
                    }
                    _ => true,
                },
            };
            if !is_known {
                foreign.push(word.to_owned());
            }
        }
        quoted = !quoted;
    }
    foreign
}

/// `restore` and `config set` end in the same errors as `flash`, and `flash` downloads as `download` does.
#[test]
fn each_option_that_advice_names_is_one_of_the_command_that_was_run_or_stands_with_its_own() {
    let mut root = crate::cli::command();
    root.build();
    let mut wrong = BTreeSet::new();
    crate::cli::tests::each_leaf(&crate::cli::command(), "", &mut |path, _| {
        let subcommand = path.trim_start_matches("asmpatch ");
        let run = Invocation::of_subcommand(subcommand);
        let path: Vec<&str> = subcommand.split(' ').collect();
        for code in codes() {
            for step in by_code::steps(code, &[], &run) {
                if let foreign @ [_, ..] = &*foreign_options(step.purpose.as_ref(), &path, &root) {
                    wrong.insert(format!("{subcommand}: {code}: {foreign:?}: {}", step.purpose));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_option_is_named_as_the_command_has_it_or_its_variable_or_not_at_all() {
    let said = |code: &str, subcommand: &str| {
        let steps = by_code::steps(&format!("asmpatch::{code}"), &[], &Invocation::of_subcommand(subcommand));
        lines(&steps).join("\n")
    };
    assert_eq!(said("cache::no_folder", "download"), "set HOME, or name a folder with `--cache-dir DIR`");
    assert_eq!(said("cache::no_folder", "flash"), "set HOME, or name a folder with ASMPATCH_CACHE_DIR");
    assert_eq!(
        said("archive::encrypted", "download"),
        "unpack it with its password, and give the image with `--from FILE.bin`"
    );
    assert_eq!(said("archive::encrypted", "patch"), "unpack it with its password");
}

#[test]
fn the_help_names_the_rules_file_that_asmpatch_installs() {
    let steps = by_code::steps("asmpatch::usb::permission", &[], &Invocation::default());
    assert!(steps[0].note().contains(RULES_PATH), "{steps:?}");
}

#[test]
fn a_disk_that_cannot_be_checked_is_refused_with_the_whole_command_that_takes_it_anyway() {
    use asm2464_host::usb::sysfs::UncheckedDisk;

    let disk = UncheckedDisk { name: "sda".to_owned(), why: "No such file or directory".to_owned() };
    let error = DiskError::Unchecked { port: "3-1.2".parse().unwrap(), disks: vec![disk] };
    assert_eq!(
        error.to_string(),
        "couldn't check whether the disk behind the unit at 3-1.2 is in use: sda (No such file or directory)"
    );
    let after = |words: &[&str]| help(&error, &Invocation::parse(words).unwrap());
    let advice = after(&["/usr/bin/asmpatch", "flash", "my fw.bin", "--device", "3-1.2"]);
    let quoted = if cfg!(windows) { "\"my fw.bin\"" } else { "'my fw.bin'" };
    assert!(
        advice.ends_with(&format!("\n    asmpatch flash {quoted} --device 3-1.2 --unchecked-disk sda")),
        "{advice}"
    );
    let advice = after(&["asmpatch", "flash", "--yes", "--", "-fw.bin"]);
    assert!(advice.ends_with("\n    asmpatch flash --unchecked-disk sda -- -fw.bin"), "{advice}");
}

#[test]
fn a_virtual_unit_is_never_to_be_unplugged() {
    // These are about hubs, permissions, USB4 ports and other programs' guests, which virtual units don't have, or say
    // to leave the cable where it is.
    let elsewhere = [
        "asmpatch::usb::port_left_off",
        "asmpatch::usb::not_replugged",
        "asmpatch::usb::permission",
        "asmpatch::usb::descriptors",
        "asmpatch::device::none",
        "asmpatch::device::tunnelled",
        "asmpatch::device::tunnelled_dock",
        "asmpatch::device::unauthorised",
        "asmpatch::serve::cut_off",
        "asmpatch::serve::io",
        "asmpatch::serve::stuck",
        "asmpatch::bench::worse",
        "asmpatch::sense::flash",
    ];
    let run = Invocation::default().at(&Location::Virtual("u".into()));
    for (code, advice) in each(&run) {
        assert!(!is_for_docks(&advice) || elsewhere.contains(&code), "{code}: {advice}");
    }
}

#[test]
fn units_that_a_command_cant_choose_between_come_with_the_command_for_each() {
    let run = Invocation::parse(["asmpatch", "restore", "my backup", "--yes", "--device", "AAAABBBB0060"]).unwrap();
    for code in ["ambiguous", "several"] {
        let ports = ["3-1", "3-2.4"].map(|port| Named::Port(port.to_owned()));
        let steps = by_code::steps(&format!("asmpatch::device::{code}"), &ports, &run);
        let quoted = if cfg!(windows) { "\"my backup\"" } else { "'my backup'" };
        let commands = ["3-1", "3-2.4"].map(|port| format!("asmpatch restore {quoted} --device {port}"));
        assert_eq!(steps.iter().filter_map(|step| step.line()).collect::<Vec<_>>(), commands, "{steps:?}");
    }
}

#[test]
fn a_name_with_a_pipes_or_a_redirections_character_stays_whole_in_a_printed_command() {
    for name in ["é|.bin", "a>b.bin", "a -- b.bin"] {
        let run = Invocation::parse(["asmpatch", "flash", name]).unwrap();
        let word = crate::shell::word(name);
        for (code, named, option) in [
            ("several", Named::Port("3-1".to_owned()), "--device 3-1"),
            ("unchecked_disk", Named::Disk("sda".to_owned()), "--unchecked-disk sda"),
        ] {
            let steps = by_code::steps(&format!("asmpatch::device::{code}"), &[named], &run);
            let command = steps.iter().find_map(|step| step.line());
            assert_eq!(command, Some(format!("asmpatch flash {word} {option}")));
        }
    }
}

#[test]
fn what_doctor_found_fills_in_its_advice_as_an_error_does() {
    use crate::unit::facts::Problem;
    use asm2464_host::usb::sysfs::{DiskUse, UncheckedDisk, Use};

    let location = Location::Port("3-1.2".parse().unwrap());
    let run = Invocation::parse(["asmpatch", "doctor"]).unwrap().at(&location);
    let advice = |error: DiskError| {
        let Problem { code, named, .. } = Problem::from(error);
        lines(&by_code::steps(&code, &named, &run)).join(
            "
",
        )
    };
    let port = "3-1.2".parse().unwrap();
    let uses = vec![DiskUse { device: "sda1".into(), by: Use::Mounted("/mnt/a".into()) }];
    let mounted = advice(DiskError::InUse { port, uses });
    assert!(mounted.contains("\n    umount /mnt/a\n") && !mounted.contains("swapoff"), "{mounted}");
    let port = "3-1.2".parse().unwrap();
    let disks = vec![UncheckedDisk { name: "sda".into(), why: "no node".into() }];
    let unchecked = advice(DiskError::Unchecked { port, disks });
    assert!(unchecked.ends_with("\n    asmpatch doctor --device 3-1.2 --unchecked-disk sda"), "{unchecked}");
}

#[test]
fn a_disk_in_use_is_refused_with_the_commands_that_free_it() {
    use asm2464_host::usb::sysfs::{DiskUse, Use};

    let error = |uses: &[(&str, Use)]| {
        let used = |(device, by): &(&str, Use)| DiskUse { device: (*device).to_owned(), by: by.clone() };
        DiskError::InUse { port: "3-1.2".parse().unwrap(), uses: uses.iter().map(used).collect() }
    };
    let advice = |uses: &[(&str, Use)]| help(&error(uses), &Invocation::default());
    let mounted = advice(&[("sda1", Use::Mounted("/mnt/a".to_owned())), ("sda2", Use::Mounted("/mnt/b".to_owned()))]);
    assert!(mounted.contains("\n    umount /mnt/a /mnt/b\n"), "{mounted}");
    let both = advice(&[("sda1", Use::Mounted("/mnt/a".to_owned())), ("sda2", Use::Swap)]);
    assert!(both.contains("\n    umount /mnt/a\n") && both.contains("\n    swapoff /dev/sda2\n"), "{both}");
}
