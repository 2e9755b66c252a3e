//! Checks each command that is printed, in transcripts, documents and the table of errors: it parses, and has no
//! placeholder unless it is in a document.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use asm2464_host::bridge::Location;

use super::{files_below, words};
use crate::cli::command;
use crate::cli::commands::help;
use crate::cli::words::errors::by_code;
use crate::cli::words::invocation::Invocation;

/// Placeholders of documents: a page knows no unit, no file and no folder. Each has a value that parses.
const OF_PAGES: [(&str, &str); 19] = [
    ("COPY", "f"),
    ("FILE", "f"),
    ("IMAGE", "f"),
    ("DIR", "d"),
    ("PORT", "1-2"),
    ("KEY=VALUE", "serial=A"),
    ("VID:PID", "174c:2464"),
    ("BACKUP", "b"),
    ("CODE", "asmpatch::bug"),
    ("COMMAND", "list"),
    ("DEVICE", "d"),
    ("DISK", "sda"),
    ("ID", "240417"),
    ("OUT", "o"),
    ("ORIGINAL", "o"),
    ("PERCENT", "5"),
    ("PLACE", "p"),
    ("FIELD=VALUE", "serial=A"),
    ("VENDOR:DEVICE", "1e60:2864"),
];

/// Lists the commands of a text: those in backticks, and in blocks the lines that begin with one. The commands that a
/// transcript runs are left out: some are wrong on purpose.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_block = false;
    let mut running = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            let own = line.trim_start().trim_start_matches("next: ");
            let subcommand = own.strip_prefix("asmpatch ").and_then(|rest| rest.split(' ').next());
            if subcommand.is_some_and(|name| command().find_subcommand(name).is_some()) && line != own {
                commands.push(own.to_owned());
            }
        }
        running = running + line.trim_start_matches('`') + "\n";
        if line.trim().is_empty() || line.starts_with("$ ") || line.starts_with('|') {
            commands.extend(quoted(&running));
            running.clear();
        }
    }
    commands.extend(quoted(&running));
    commands
}

/// Lists the commands in backticks of a text.
fn quoted(text: &str) -> Vec<String> {
    let text = text.lines().filter(|line| !line.starts_with("$ ")).collect::<Vec<_>>().join(" ");
    let quoted =
        text.split('`').skip(1).step_by(2).map(|quoted| quoted.split_whitespace().collect::<Vec<_>>().join(" "));
    quoted.filter(|quoted| quoted.starts_with("asmpatch ")).collect()
}

/// Returns the placeholders in a command, each a whole word or the value of an option.
fn placeholders(words: &[String]) -> Vec<&str> {
    let is_upper = |word: &str| {
        let name = word.strip_suffix(".bin").unwrap_or(word);
        name.len() > 1
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_uppercase() || "_:=".contains(c))
    };
    let values = words.iter().map(|word| match word.strip_prefix("--").and_then(|option| option.split_once('=')) {
        Some((_, value)) => value,
        None => word.strip_prefix("serial=").unwrap_or(word),
    });
    values.filter(|word| is_upper(word)).collect()
}

/// Returns what is wrong with a printed command. A command's bare name is none to run.
fn fault(line: &str, is_page: bool) -> Option<String> {
    let line = line.split("  ").next().unwrap_or_default().replace('\\', "");
    let words = words(&line);
    let mut leaf = command();
    // A page also names an option by its command.
    let is_name = words[1..].iter().all(|word| {
        let below = leaf.find_subcommand(word).cloned();
        below.map(|below| leaf = below).is_some() || (is_page && word.starts_with("--"))
    });
    if is_name || words.iter().any(|word| word == "..." || word == "…" || word.contains("[..]")) {
        return None;
    }
    let registers = ["PCIE_LINK_STATE", "FLASH_START", "NO_REGISTER"];
    let mut values = words.clone();
    // README is the page that lists the pages.
    for placeholder in placeholders(&words).into_iter().filter(|word| *word != "README") {
        let page = OF_PAGES.iter().find(|(name, _)| is_page && *name == placeholder);
        let Some((_, value)) = page else {
            if registers.contains(&placeholder) {
                continue;
            }
            return Some(format!("{placeholder} looks like a value"));
        };
        values.iter_mut().for_each(|word| *word = word.replace(placeholder, value));
    }
    if let ["asmpatch", "help", topic @ ..] = &*values.iter().map(String::as_str).collect::<Vec<_>>() {
        return (!help::is_topic(topic)).then(|| "no command, page or code".to_owned());
    }
    let error = command().try_get_matches_from(values).err()?;
    if error.kind() == clap::error::ErrorKind::DisplayHelp {
        return None;
    }
    Some(error.kind().to_string())
}

#[test]
fn each_printed_command_parses_and_none_but_a_pages_has_a_placeholder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    paths.extend(files_below(&root.join("docs"), "md"));
    paths.extend(files_below(&root.join("tests/cli"), "md"));
    let mut faults = BTreeSet::new();
    let mut checked = 0;
    for path in paths {
        let is_page = !path.starts_with(root.join("tests/cli"));
        for line in commands(&fs::read_to_string(&path).unwrap()) {
            checked += 1;
            let name = path.strip_prefix(root).unwrap().display();
            faults.extend(fault(&line, is_page).map(|fault| format!("{name}: `{line}`: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(checked > 300, "{checked}");
}

#[test]
fn a_message_names_a_page_by_the_command_that_prints_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "crates", "model/asm2464-chip", "model/asm2464-dock", "model/tiny-gpu"] {
        paths.extend(files_below(&root.join(folder), "rs"));
    }
    let is_test = |path: &Path| path.iter().any(|part| part.to_string_lossy().starts_with("test"));
    paths.retain(|path| !is_test(path.strip_prefix(root).unwrap()));
    let mut faults = Vec::new();
    let mut named = 0;
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("mod tests {").next().unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            if line.contains("docs/") && line.contains(".md") && !line.contains("include_str!") {
                faults.push(format!("{}: {}", path.strip_prefix(root).unwrap().display(), line.trim()));
            }
            for (at, start) in line.match_indices("`asmpatch help ") {
                named += 1;
                let topic = line[at + start.len()..].split('`').next().unwrap_or_default();
                let topic: Vec<&str> = topic.split(' ').collect();
                // The page whose sections are listed, or to which a link leads.
                let is_given = topic[0].starts_with('{');
                assert!(is_given || help::is_topic(&topic), "{}: {line}", path.display());
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(named > 25, "{named}");
}

#[test]
fn advice_names_the_unit_the_ids_and_the_file_that_the_command_named() {
    let command = |code: &str, line: &[&str]| {
        let steps = by_code::steps(code, &[], &Invocation::parse(line).unwrap());
        steps.into_iter().find_map(|step| step.line())
    };
    let quoted = |line: &str| Some(if cfg!(windows) { line.replace('\'', "\"") } else { line.to_owned() });
    let line = ["asmpatch", "pcie", "--device", "3-1", "--usb-id", "1209:0001"];
    let shown = command("asmpatch::pcie::no_completion", &line);
    assert_eq!(shown, quoted("asmpatch pcie reset --device 3-1 --usb-id 1209:0001"));
    let shown = command("asmpatch::usb::permission", &line).unwrap();
    assert!(shown.starts_with("asmpatch udev --usb-id 1209:0001 | sudo tee /etc"), "{shown}");
    let shown = command("asmpatch::patch::already_patched", &["asmpatch", "patch", "my fw.bin", "-o", "out.bin"]);
    assert_eq!(shown, quoted("asmpatch unpatch 'my fw.bin' -o original.bin"));
    let shown = command("asmpatch::image::is_backup", &["asmpatch", "flash", "backups/mine"]);
    assert_eq!(shown, quoted("asmpatch restore backups/mine"));
    // Only the user knows the copy.
    let download = Invocation::parse(["asmpatch", "download", "ed4e39b"]).unwrap();
    let steps = by_code::steps("asmpatch::fetch::mirrors", &[], &download);
    assert_eq!(steps[1].note(), "give a copy from elsewhere: `download ed4e39b --from COPY`");
    assert_eq!(steps[1].command, None);
    // `list` shows every dock, and a virtual unit only if it is named.
    for (location, expected) in [("3-1", "asmpatch list"), ("virtual:u", "asmpatch list --device virtual:u")] {
        let run = Invocation::default().at(&location.parse::<Location>().unwrap());
        let steps = by_code::steps("asmpatch::usb::gone", &[], &run);
        assert_eq!(steps[1].line().as_deref(), Some(expected));
    }
}

/// The commands that go to a unit. `list` shows every dock.
const ON_UNITS: [&str; 9] = ["backup", "flash", "restore", "config", "doctor", "reset", "pcie", "xdata", "bench"];

/// Virtual units have other words by hand, and the follower meets no port.
#[test]
fn the_advice_of_each_code_for_a_unit_at_a_port_parses_and_names_that_port() {
    let mut faults = BTreeSet::new();
    let mut checked = 0;
    for line in ["flash f.bin", "restore b", "pcie", "pcie reset", "bench", "doctor", "reset", "backup", "config get"] {
        let run = Invocation::parse(format!("asmpatch {line} --device 3-1").split(' ')).unwrap();
        let run = run.at(&"3-1".parse::<Location>().unwrap());
        for code in by_code::codes() {
            let steps = by_code::steps(code, &[], &run);
            let commands: Vec<String> = steps.into_iter().filter_map(|step| step.line()).collect();
            let is_own = |command: &&String| command.starts_with("asmpatch ");
            for printed in commands.iter().filter(is_own) {
                checked += 1;
                let fault = fault(printed, false).or_else(|| {
                    let words = words(printed);
                    let is_on_unit = words.get(2).is_some() && ON_UNITS.contains(&&*words[1]);
                    let reads_files = ["--from", "--list"].iter().any(|option| words.iter().any(|word| word == option));
                    let names_port = words.windows(2).any(|pair| pair == ["--device", "3-1"]);
                    (is_on_unit && !reads_files && !names_port).then(|| "loses the port".to_owned())
                });
                faults.extend(fault.map(|fault| format!("{code} after `{line}`: `{printed}`: {fault}")));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(checked > 500, "{checked}");
}
