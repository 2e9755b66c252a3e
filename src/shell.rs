//! Quotes the words of a command that is printed for the user to run, so that a shell passes them on unchanged.
//!
//! By the shells' own grammars: POSIX.1-2024, Shell Command Language, 2.2; the zsh manual, 14.7.2, "`=' expansion";
//! Windows PowerShell Language Specification 3.0, 2.3.5.2; Microsoft's pages on `cmd` and on "Parsing C command-line
//! arguments". No crate knows all of them: a command must mean the same in each shell that the user may have, so what is
//! special in one is quoted for all.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use asm2464::escape::{Escape as _, is_harmful, replaced};

/// Quotes a word for the user's shell: a POSIX shell, or cmd and PowerShell on Windows.
pub fn word(word: impl AsRef<OsStr>) -> String {
    if cfg!(windows) { windows_word(word.as_ref()) } else { posix_word(word.as_ref()) }
}

/// Quotes a word for a POSIX shell. `printf` writes unprintable characters, which not every shell can quote.
fn posix_word(word: &OsStr) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match word.to_str() {
        // zsh takes a word that begins with `=` for the name of a command, and puts its path there.
        Some(text) if !text.is_empty() && !text.starts_with('=') && text.chars().all(plain) => text.to_owned(),
        Some(text) if !text.chars().any(is_harmful) => format!("'{}'", text.replace('\'', r"'\''")),
        // Shells remove the line breaks at the end of what a command prints. Only POSIX.1-2024 (2.2.4) can quote them.
        _ if word.as_encoded_bytes().ends_with(b"\n") => format!("$'{}'", escaped(word)),
        _ => format!("\"$(printf -- '{}')\"", escaped(word)),
    }
}

/// Quotes a word for cmd and PowerShell. Both take double quotes, and cmd takes no other: in single ones, `&` would end
/// the command there. A backtick before what is special to PowerShell makes the word right there; cmd passes the backtick
/// on, but runs nothing. cmd replaces `%NAME%` in quotes as well, if there is such a variable. Unprintable characters are
/// shown by their code: neither shell can write them.
fn windows_word(word: &OsStr) -> String {
    let text = word.shown().to_string();
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || r"-_./:=+\".contains(c)) {
        return text;
    }
    let mut quoted = String::from("\"");
    let mut backslashes = 0;
    for c in text.chars() {
        match c {
            // A program takes two quotes for one, and backslashes before a quote for half as many.
            '"' => quoted.push_str(&("\\".repeat(backslashes) + "\"\"")),
            // PowerShell takes U+201C to U+201E, a keyboard's smart quotes, for double ones. Those that it takes for single
            // ones (U+2018 to U+201B) stand for themselves here.
            '$' | '`' | '\u{201C}'..='\u{201E}' => quoted.extend(['`', c]),
            c => quoted.push(c),
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
    }
    quoted + &"\\".repeat(backslashes) + "\""
}

/// Quotes a path as an argument that never begins like an option.
pub fn path(path: impl AsRef<Path>) -> String {
    word(argument(path.as_ref()))
}

/// Returns a path in a form that a command does not take for an option.
pub fn argument(path: &Path) -> OsString {
    if path.as_os_str().as_encoded_bytes().starts_with(b"-") {
        Path::new(".").join(path).into_os_string()
    } else {
        path.as_os_str().to_owned()
    }
}

/// Replaces what is not plain in a word by `\ddd`, as the format of `printf` and `$'...'` take it.
fn escaped(word: &OsStr) -> String {
    // Three octal digits: unlike hexadecimal ones, they end where they should in every shell.
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    // A percent sign begins a conversion of `printf`, and an exclamation mark a command of the shell's history.
    let is_special = |c: char| "'\\%!".contains(c) || is_harmful(c);
    let escaped = word.as_encoded_bytes().utf8_chunks().map(|chunk| {
        let valid = replaced(chunk.valid(), |c| is_special(c).then(|| octal(c.encode_utf8(&mut [0; 4]).as_bytes())));
        valid + &octal(chunk.invalid())
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_need_no_quotes_have_none() {
        let word = |word: &str| posix_word(OsStr::new(word));
        assert_eq!(word("virtual:/tmp/u_1"), "virtual:/tmp/u_1");
        assert_eq!(word(""), "''");
        assert_eq!(word("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(word("./--yes please"), "'./--yes please'");
    }

    #[test]
    fn a_path_is_no_option() {
        assert_eq!(path("-x"), if cfg!(windows) { r".\-x" } else { "./-x" });
    }

    #[test]
    fn cmd_and_powershell_take_a_word_of_windows_whole() {
        let word = |word: &str| windows_word(OsStr::new(word));
        assert_eq!(word(r"backups\asmpatch-backup-1"), r"backups\asmpatch-backup-1");
        assert_eq!(word(""), "\"\"");
        assert_eq!(word(r"C:\it's mine\"), r#""C:\it's mine\\""#);
        assert_eq!(word("100% $it's"), "\"100% `$it's\"");
        assert_eq!(word("a\u{202e}b"), r#""a\u{202e}b""#);
    }

    #[test]
    fn no_character_of_a_word_ends_its_quotes_in_cmd_or_powershell() {
        // In cmd each quote begins or ends a quoted part, and nothing else does.
        let runs = |command: &str| {
            let mut is_quoted = false;
            let mut bare = String::new();
            for c in command.chars() {
                match c {
                    '"' => is_quoted = !is_quoted,
                    c if !is_quoted => bare.push(c),
                    _ => {}
                }
            }
            is_quoted || bare.contains(['&', '|', '<', '>', '^', ' '])
        };
        for c in "&|<>^ '$`%\"\u{2018}\u{2019}\u{201A}\u{201B}\u{201C}\u{201D}\u{201E}".chars() {
            let quoted = windows_word(OsStr::new(&format!("a{c}&calc{c}&b")));
            assert!(!runs(&quoted), "{quoted}");
        }
        let word = |word: &str| windows_word(OsStr::new(word));
        assert_eq!(word("a\u{201D}; calc; \u{201D}"), "\"a`\u{201D}; calc; `\u{201D}\"");
        assert_eq!(word("a\u{2019}; calc"), "\"a\u{2019}; calc\"");
        assert_eq!(word("`$(calc)`"), "\"```$(calc)``\"");
        assert_eq!(word("say \"x\\\""), "\"say \"\"x\\\\\"\"\"");
    }

    #[test]
    fn zsh_puts_no_command_in_the_place_of_a_word() {
        assert_eq!(posix_word(OsStr::new("=ls")), "'=ls'");
        assert_eq!(posix_word(OsStr::new("serial==x")), "serial==x");
    }

    #[cfg(unix)]
    #[test]
    fn any_file_name_reaches_a_command_through_any_posix_shell_as_it_is() {
        use std::os::unix::ffi::OsStrExt;
        let is_there = |shell: &&&str| Path::new(shell).exists();
        let shells = ["/bin/sh", "/bin/dash", "/bin/bash", "/bin/zsh", "/bin/ksh"];
        for name in [
            &b"plain.bin"[..],
            b"-x",
            b"a b\tc",
            b"it's \"quoted\" $HOME `id` \\n",
            b"line\nend",
            b"--dir=\n100%s %% \\t!x",
            b"\xFF1\xFE'\\",
            "x\u{202E}1 \u{7f}2".as_bytes(),
            b"!;&|<>*?[]{}~#",
            b"=ls",
        ] {
            let name = OsStr::from_bytes(name);
            for (script, expected) in
                [(path(Path::new(name)), argument(Path::new(name))), (word(name), name.to_owned())]
            {
                assert!(!script.chars().any(is_harmful) && !script.contains("$'"), "{script:?}");
                for shell in shells.iter().filter(is_there) {
                    let script = format!("set -- {script}; printf '%s' \"$1\"");
                    let out = std::process::Command::new(shell).arg("-c").arg(&script).output().unwrap();
                    let said = String::from_utf8_lossy(&out.stderr);
                    assert_eq!(out.stdout, expected.as_bytes(), "{shell}: {script}: {said}");
                }
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_line_break_at_the_end_of_a_name_needs_a_newer_shell() {
        let script = posix_word(OsStr::new("end\n"));
        for shell in ["/bin/bash", "/bin/zsh"].into_iter().filter(|shell| Path::new(shell).exists()) {
            let out = std::process::Command::new(shell).arg("-c").arg(format!("printf %s {script}")).output().unwrap();
            assert_eq!(out.stdout, b"end\n", "{script}");
        }
    }
}
