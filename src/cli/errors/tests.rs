//! Tests of the table of errors: against the types that carry the codes, and against docs/errors.md.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::udev_rules::RULES_PATH;
use asm2464_host::usb::DiskError;

use super::{Exit, entry_of, files, units, with_command};

const INTRODUCTION: &str = "\
# Error codes

Every error has a code, which stays the same across versions. asmpatch prints it on the error's first line, and with
`--json` as `error.code`. This list has each code with the exit status that a command ends in, and what you can do.

`ERRORS=overwrite cargo test --lib errors` generates this file from the table in `src/cli/errors`.

| exit status | meaning |
| --- | --- |
| 0 | done |
| 1 | a check failed |
| 2 | the command line is wrong |
| 3 | a file, an archive, a manifest or a server's answer is wrong |
| 4 | a device or USB failed |
| 5 | refused because it could do harm |
| 130 | interrupted |

| code | exit status | what to do |
| --- | --- | --- |
";

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Reads all sources with their paths, without their tests and without the table.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    rust_files(&root.join("src"), &mut paths);
    for folder in fs::read_dir(root.join("crates")).unwrap() {
        rust_files(&folder.unwrap().path().join("src"), &mut paths);
    }
    let tests = Path::new("tests.rs");
    let is_test = |path: &Path| path.ends_with(tests) || path.iter().any(|part| Some(part) == tests.file_stem());
    paths.retain(|path| !is_test(path) && !path.starts_with(root.join("src/cli/errors")));
    let without_tests = |text: String| text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
    paths.into_iter().map(|path| (path.clone(), without_tests(fs::read_to_string(path).unwrap()))).collect()
}

/// Lists the codes that a source names: in a string.
fn codes_in(text: &str) -> impl Iterator<Item = &str> {
    ["\"asmpatch::"].into_iter().flat_map(|start| {
        text.match_indices(start).map(|(at, start)| {
            let code = &text[at + start.len() - "asmpatch::".len()..];
            let end = code.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != ':');
            &code[..end.unwrap_or(code.len())]
        })
    })
}

#[test]
fn each_code_in_the_sources_has_exactly_one_entry() {
    let sources = sources();
    let used: BTreeSet<&str> = sources.iter().flat_map(|(_, text)| codes_in(text)).collect();
    for table in [files::ENTRIES, units::ENTRIES] {
        assert!(table.is_sorted_by(|a, b| a.codes[0] < b.codes[0]), "sorted by the first code");
    }
    let listed: Vec<&str> =
        [files::ENTRIES, units::ENTRIES].into_iter().flatten().flat_map(|entry| entry.codes).copied().collect();
    let unique: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(listed.len(), unique.len(), "a code is there twice");
    let unlisted: Vec<_> = used.difference(&unique).collect();
    let unused: Vec<_> = unique.difference(&used).collect();
    assert!(unlisted.is_empty() && unused.is_empty(), "without an entry: {unlisted:?}; without an error: {unused:?}");
}

#[test]
fn no_error_of_the_library_names_a_flag_or_a_command() {
    for (path, text) in sources() {
        let in_messages = text.match_indices("#[error(").filter_map(|(at, _)| text[at..].split(")]").next());
        for message in in_messages {
            let in_cli = path.components().any(|part| part.as_os_str() == "cli");
            let names = ["`asmpatch ", " --", "`--", "\"--"].iter().any(|sign| message.contains(sign));
            assert!(in_cli || !names, "{}: {message}", path.display());
        }
        let helps = text.contains("help(\"");
        assert!(!helps, "{}: help texts are in src/cli/errors", path.display());
    }
}

#[test]
fn the_document_lists_the_table() {
    let entries = [files::ENTRIES, units::ENTRIES].into_iter().flatten();
    let mut rows: Vec<_> = entries.flat_map(|entry| entry.codes.iter().map(move |code| (code, entry))).collect();
    rows.sort_by_key(|(code, _)| *code);
    let mut text = INTRODUCTION.to_owned();
    for (code, entry) in rows {
        let _ = writeln!(text, "| `{code}` | {} | {} |", entry.exit as u8, entry.help.replace('|', "\\|"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    if env::var_os("ERRORS").is_some_and(|wish| wish == "overwrite") {
        fs::write(&path, &text).unwrap();
    }
    let is_current = fs::read_to_string(&path).is_ok_and(|there| there == text);
    assert!(is_current, "out of date: run `ERRORS=overwrite cargo test --lib errors`");
}

#[test]
fn the_help_names_the_rules_file_that_asmpatch_installs() {
    let entry = units::ENTRIES.iter().find(|entry| entry.codes.contains(&"asmpatch::usb::permission")).unwrap();
    assert!(entry.help.contains(RULES_PATH) && entry.exit == Exit::Device);
}

#[test]
fn a_disk_that_cannot_be_checked_is_refused_with_the_whole_command_that_takes_it_all_the_same() {
    use asm2464_host::usb::sysfs::UncheckedDisk;

    let disk = UncheckedDisk { name: "sda".to_owned(), why: "No such file or directory".to_owned() };
    let error = DiskError::Unchecked { port: "3-1.2".parse().unwrap(), disks: vec![disk] };
    assert_eq!(
        error.to_string(),
        "couldn't check whether the disk behind the unit at 3-1.2 is in use: sda (No such file or directory)"
    );
    let help = |words: &[&str]| {
        let own = entry_of(&error).help.to_owned();
        with_command(own, words.iter().map(Into::into))
    };
    let told = help(&["/usr/bin/asmpatch", "flash", "my fw.bin", "--device", "3-1.2"]);
    let quoted = if cfg!(windows) { "\"my fw.bin\"" } else { "'my fw.bin'" };
    assert!(told.ends_with(&format!("`asmpatch flash {quoted} --device 3-1.2 --unchecked-disk=DISK`")), "{told}");
    let told = help(&["asmpatch", "flash", "--yes", "--", "-fw.bin"]);
    assert!(told.ends_with("`asmpatch flash --yes --unchecked-disk=DISK -- -fw.bin`"), "{told}");
}
