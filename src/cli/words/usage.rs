//! Wrong command lines: clap's errors with tips that work, and values that only stand for one.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use asm2464::escape::Escape as _;
use asm2464::firmware::ConfigField;
use asm2464::{Failure, Kind};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::words::invocation::{self, Invocation};

/// Words that stand for a value in what asmpatch prints: `flash FILE --serial TEXT`.
const PLACEHOLDERS: [&str; 10] = ["COPY", "DIR", "FILE", "ID", "IMAGE", "OUT", "PORT", "START", "TEXT", "URL"];

/// Refuses a value that only stands for one, unless a file has this name: a printed command that was copied whole would
/// give a dock the serial number TEXT.
///
/// # Errors
/// Fails if there is one.
pub fn refuse_placeholders(run: &Invocation) -> Result<(), Failure> {
    // The topics of `help` are words.
    if run.subcommand() == "help" {
        return Ok(());
    }
    for value in run.all_values() {
        let Some(text) = value.to_str() else { continue };
        let own = text.split_once('=').map_or(text, |(_, value)| value);
        let own = own.strip_prefix("virtual:").unwrap_or(own);
        if PLACEHOLDERS.contains(&own) && Path::new(own).symlink_metadata().is_err() {
            let label = Kind::Usage.code("asmpatch::usage::placeholder");
            return Err(Failure::new(label, format!("{own} in {text:?} stands for a value, and is no file's name")));
        }
    }
    Ok(())
}

/// Replaces clap's tips about an unknown option, which may be usage errors themselves: to give the option behind `--` helps
/// only where the command takes it as a value. Says which commands have the option.
pub fn with_tips(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return error };
    let option = option.clone();
    error.remove(ContextKind::Suggested);
    let tips: Vec<StyledStr> = tips(&option, words).into_iter().map(StyledStr::from).collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
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
    let with_it = invocation::subcommands_with(option);
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
        assert!(!without.contains("tip:") && without.contains("unexpected argument '--length'"), "{without}");
    }

    #[test]
    fn a_word_that_stands_for_a_value_is_none_unless_a_file_has_this_name() {
        for line in [
            "config set serial=TEXT --device virtual:a",
            "flash IMAGE",
            "flash f.bin --serial TEXT",
            "restore COPY",
            "list --device virtual:DIR",
            "doctor --device PORT",
            "patch 240417 -o OUT",
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
