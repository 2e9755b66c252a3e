//! Wrong command lines: clap's errors with tips that work, and values that only stand for one.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use asm2464::escape::Escape as _;
use asm2464::firmware::ConfigField;
use asm2464::{Failure, Kind};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::words::command_tree;
use crate::cli::words::invocation::Invocation;
use crate::shell;

/// Words that stand for a value in what asmpatch prints and in its help: `flash FILE --serial TEXT`.
const PLACEHOLDERS: [&str; 23] = [
    "ADDRESS", "BACKUP", "CODE", "COPY", "DIR", "ELF", "FIELD", "FILE", "FOLDER", "ID", "IMAGE", "KEY", "NAME", "OUT",
    "PATH", "PORT", "SERIAL", "SOCKET", "START", "TEXT", "UNIT", "URL", "VALUE",
];

/// Refuses a value that only stands for one, unless a file has this name: a printed command that was copied whole would
/// give a dock the serial number TEXT.
///
/// # Errors
/// Fails if there is one.
pub fn refuse_placeholders(invocation: &Invocation) -> Result<(), Failure> {
    // The topics of `help` are words.
    if invocation.subcommand() == "help" {
        return Ok(());
    }
    for value in invocation.all_values() {
        let Some(text) = value.to_str() else { continue };
        let own = text.split_once('=').map_or(text, |(_, value)| value);
        let own = own.strip_prefix("virtual:").unwrap_or(own);
        // As the help has it: <TEXT>, FILE|ID.
        let word = own.strip_prefix('<').and_then(|own| own.strip_suffix('>')).unwrap_or(own);
        if word.split('|').all(|word| PLACEHOLDERS.contains(&word)) && Path::new(own).symlink_metadata().is_err() {
            let label = Kind::Usage.code("asmpatch::usage::placeholder");
            return Err(Failure::new(label, format!("{own} in {text:?} stands for a value, and is no file's name")));
        }
    }
    Ok(())
}

/// What people type for a subcommand that has another name.
const MEANT: [(&str, &[&str]); 5] = [
    ("flash", &["burn", "install", "program", "update", "upgrade", "upload", "write"]),
    ("backup", &["dump", "read", "save"]),
    ("doctor --fix", &["check", "diagnose", "fix", "fix-all", "repair", "status", "test"]),
    ("list", &["devices", "docks", "ls", "scan"]),
    ("restore", &["recover", "revert", "rollback", "undo"]),
];

/// What people type for `--device`, as other tools name a device's port.
const MEANT_DEVICE: [&str; 8] = ["-d", "-p", "--bus", "--dev", "--dock", "--port", "--unit", "--usb"];

/// Returns the tip of such an option: the same command line with `--device`, if the command has it.
fn device_tip(option: &str, words: &[OsString]) -> Option<String> {
    let names_one = words.iter().any(|word| word.to_str().is_some_and(|word| option_of(word) == "--device"));
    if names_one || !MEANT_DEVICE.contains(&option) {
        return None;
    }
    let at = words.iter().position(|word| word.to_str().is_some_and(|word| option_of(word) == option))?;
    let mut meant = words.to_vec();
    let word = words[at].to_string_lossy().into_owned();
    meant[at] = match word.split_once('=') {
        Some((_, value)) => format!("--device={value}").into(),
        None => "--device".into(),
    };
    let run = Invocation::parse(meant.clone()).ok()?;
    let meant: Vec<String> = meant.iter().skip(1).map(shell::word).collect();
    run.is_given("device").then(|| format!("a unit is named by its port with --device: 'asmpatch {}'", meant.join(" ")))
}

/// The option in a word, without its value.
fn option_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(option, _)| option)
}

/// Replaces clap's tips about an unknown option, which may be usage errors themselves: to give the option behind `--` helps
/// only where the command takes it as a value. Says which commands have the option. A command line that lacks something
/// gets the first example of its command's help.
pub fn with_tips(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tips = match error.kind() {
        ErrorKind::UnknownArgument => {
            let Some(option) = text(ContextKind::InvalidArg) else { return error };
            error.remove(ContextKind::Suggested);
            match device_tip(&option, words) {
                Some(tip) => {
                    error.remove(ContextKind::SuggestedArg);
                    vec![tip]
                }
                None => tips(&option, words),
            }
        }
        ErrorKind::InvalidSubcommand => {
            let typed = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let meant =
                MEANT.iter().find(|(_, others)| words.len() > 1 && words[1] == *typed && others.contains(&&*typed));
            if let Some((command, _)) = meant {
                error.remove(ContextKind::SuggestedSubcommand);
                vec![format!("you may mean 'asmpatch {command}'")]
            } else {
                Vec::new()
            }
        }
        ErrorKind::MissingRequiredArgument => Vec::new(),
        _ => return error,
    };
    let has_tip = !tips.is_empty() || error.get(ContextKind::SuggestedArg).is_some();
    let example = example(words).filter(|_| !has_tip).map(|example| format!("as in '{example}'"));
    let tips: Vec<StyledStr> = tips.into_iter().chain(example).map(StyledStr::from).collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Returns the first example in the help of the command that these words begin with, if it has some.
fn example(words: &[OsString]) -> Option<String> {
    let mut command = command_tree::tree();
    for word in words.iter().skip(1) {
        let Some(below) = word.to_str().and_then(|word| command.find_subcommand(word)) else { break };
        command = below.clone();
    }
    let help = command.get_after_long_help().or_else(|| command.get_after_help())?.to_string();
    let example = help.lines().map(str::trim).find(|line| line.starts_with("asmpatch "))?;
    Some(example.to_owned())
}

fn tips(option: &str, words: &[OsString]) -> Vec<String> {
    let is_it = |word: &OsString| {
        let rest = word.as_encoded_bytes().strip_prefix(option.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
    };
    let Some(at) = words.iter().position(is_it) else { return Vec::new() };
    let mut as_value = words.to_vec();
    as_value.insert(at, "--".into());
    if Invocation::parse(as_value).is_ok() {
        return vec![format!("to pass '{option}' as a value, use '-- {option}'")];
    }
    let is_set = words.iter().take(at).map(OsString::as_os_str).skip(1).take(2).eq(["config", "set"].map(OsStr::new));
    if is_set && ConfigField::named(option.trim_start_matches('-')).is_some() {
        let field = option.trim_start_matches('-');
        return vec![format!("a field is set without dashes, as in '{field}=VALUE'")];
    }
    let with_it = command_tree::subcommands_with(option);
    match with_it.as_slice() {
        [] => Vec::new(),
        [first @ .., last] if first.len() < 4 => {
            let first: Vec<String> = first.iter().map(|name| format!("'asmpatch {name}'")).collect();
            let and = if first.is_empty() { "" } else { " and " };
            vec![format!("'{option}' is an option of {}{and}'asmpatch {last}'", first.join(", "))]
        }
        _ => Vec::new(),
    }
}

/// Escapes the arguments that a usage error quotes: a line end in one would forge a line of the message.
pub fn escaped(mut text: String, arguments: impl Iterator<Item = OsString>) -> String {
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let value = argument.split_once('=').map_or(&*argument, |(_, value)| value);
        for quoted in [&*argument, value] {
            if quoted.contains(char::is_control) {
                text = text.replace(quoted, &quoted.shown().to_string());
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use asm2464::Coded as _;

    use super::*;

    fn refused(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        with_tips(Invocation::parse(words.clone()).unwrap_err(), &words).render().to_string()
    }

    #[test]
    fn each_tip_is_a_command_that_parses_or_names_one_that_has_the_option() {
        for (line, tip) in [
            (
                "asmpatch config set --serial X --device virtual:a",
                "tip: a field is set without dashes, as in 'serial=VALUE'",
            ),
            (
                "asmpatch flash --from http://x/y",
                "tip: '--from' is an option of 'asmpatch doctor' and 'asmpatch download'",
            ),
            ("asmpatch info --frm", "tip: to pass '--frm' as a value, use '-- --frm'"),
        ] {
            assert!(refused(line).contains(tip), "{line}: {}", refused(line));
        }
        let without = refused("asmpatch xdata read 0x7000 --length 4");
        assert!(!without.contains("-- --length") && without.contains("unexpected argument '--length'"), "{without}");
    }

    #[test]
    fn a_command_line_that_lacks_something_gets_an_example_and_another_tools_word_the_commands_name() {
        for (line, tip) in [
            ("asmpatch flash", "tip: as in 'asmpatch flash ed4e39b'"),
            ("asmpatch disasm ed4e39b", "tip: as in 'asmpatch disasm "),
            ("asmpatch xdata B450", "tip: as in 'asmpatch xdata read 0xB450'"),
            ("asmpatch xdata read 0x7000 --length 4", "tip: as in 'asmpatch xdata read "),
            ("asmpatch virtual set", "tip: as in 'asmpatch virtual set power-loss-after=70000 --device virtual:u'"),
            (
                "asmpatch doctor --port 3-1",
                "tip: a unit is named by its port with --device: 'asmpatch doctor --device 3-1'",
            ),
            ("asmpatch flash f.bin -d 3-1 --yes", "--device: 'asmpatch flash f.bin --device 3-1 --yes'"),
            ("asmpatch list --port=3-1", "--device: 'asmpatch list --device=3-1'"),
            ("asmpatch download -p 240417", "tip: as in 'asmpatch download"),
            ("asmpatch install ed4e39b", "tip: you may mean 'asmpatch flash'"),
            ("asmpatch dump", "tip: you may mean 'asmpatch backup'"),
            ("asmpatch status", "tip: you may mean 'asmpatch doctor --fix'"),
        ] {
            assert!(refused(line).contains(tip), "{line}: {}", refused(line));
        }
        assert!(!refused("asmpatch install x").contains("'list'"), "{}", refused("asmpatch install x"));
        for (meant, _) in MEANT {
            let words: Vec<&str> = ["asmpatch"].into_iter().chain(meant.split(' ')).collect();
            let parsed = command_tree::tree().try_get_matches_from(words);
            assert!(parsed.is_ok() || parsed.unwrap_err().kind() == ErrorKind::MissingRequiredArgument, "{meant}");
        }
    }

    #[test]
    fn a_word_that_stands_for_a_value_is_none_unless_a_file_has_this_name() {
        for line in [
            "config set serial=TEXT --device virtual:a",
            "flash IMAGE",
            "flash f.bin --serial TEXT",
            "restore COPY",
            "restore BACKUP",
            "list --device virtual:DIR",
            "doctor --device PORT",
            "patch 240417 -o OUT",
            "config set serial=<TEXT> --device virtual:a",
            "config set serial=VALUE --device virtual:a",
            "flash f.bin --serial SERIAL",
            "flash FILE|ID",
            "backup -o FOLDER",
        ] {
            let run = Invocation::parse(["asmpatch"].into_iter().chain(line.split(' '))).unwrap();
            assert_eq!(refuse_placeholders(&run).unwrap_err().code(), "asmpatch::usage::placeholder", "{line}");
        }
        for line in ["config set serial=TEXT-1 --device virtual:a", "flash image", "help ID"] {
            let run = Invocation::parse(["asmpatch"].into_iter().chain(line.split(' '))).unwrap();
            assert!(refuse_placeholders(&run).is_ok(), "{line}");
        }
    }
}
