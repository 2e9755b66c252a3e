//! Quotes the words of a command that is printed for the user to run, so that a shell passes them on unchanged.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use asm2464::escape::{Escape as _, is_harmful, replaced};

/// Quotes a word for the user's shell: a POSIX shell, or cmd and PowerShell on Windows.
pub fn word(word: impl AsRef<OsStr>) -> String {
    if cfg!(windows) { windows_word(word.as_ref()) } else { posix_word(word.as_ref()) }
}

/// Quotes a word for a POSIX shell. Unprintable characters go into `$'...'` (POSIX.1-2024, 2.2.4; bash, zsh and ksh
/// have long had it).
fn posix_word(word: &OsStr) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if !text.chars().any(is_harmful) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => dollar_quoted(word),
    }
}

/// Quotes a word for cmd and PowerShell. Both accept double quotes; only PowerShell can quote characters that have a
/// meaning to one of them inside those. Unprintable characters are shown by their code: neither shell can write them.
fn windows_word(word: &OsStr) -> String {
    let text = word.shown().to_string();
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || r"-_./:=+\".contains(c)) {
        return text;
    }
    if text.contains(['$', '`', '%', '"']) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    // A trailing backslash would escape the closing quote (CommandLineToArgvW).
    let end = &text[text.trim_end_matches('\\').len()..];
    format!("\"{text}{end}\"")
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

fn dollar_quoted(word: &OsStr) -> String {
    // Three octal digits: unlike hexadecimal ones, they end where they should in every shell.
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let quoted = word.as_encoded_bytes().utf8_chunks().map(|chunk| {
        let valid = replaced(chunk.valid(), |c| match c {
            '\'' | '\\' => Some(format!("\\{c}")),
            c => is_harmful(c).then(|| octal(c.encode_utf8(&mut [0; 4]).as_bytes())),
        });
        valid + &octal(chunk.invalid())
    });
    format!("$'{}'", quoted.collect::<String>())
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
        assert_eq!(word("100% $it's"), "'100% $it''s'");
        assert_eq!(word("a\u{202e}b"), r#""a\u{202e}b""#);
    }

    #[cfg(unix)]
    #[test]
    fn any_file_name_reaches_a_command_through_a_shell_as_it_is() {
        use std::os::unix::ffi::OsStrExt;
        let Some(bash) = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| Path::new(path).exists()) else {
            return;
        };
        for name in [
            &b"plain.bin"[..],
            b"-x",
            b"a b\tc",
            b"it's \"quoted\" $HOME `id` \\n",
            b"line\nend\n",
            b"\xFF1\xFE'\\",
            "x\u{202E}1 \u{7f}2".as_bytes(),
            b"!;&|<>*?[]{}~#",
        ] {
            let name = OsStr::from_bytes(name);
            let script = format!("printf %s {}", path(Path::new(name)));
            let out = std::process::Command::new(bash).arg("-c").arg(&script).output().unwrap();
            assert_eq!(out.stdout, argument(Path::new(name)).as_bytes(), "{script}");
            assert!(!script.chars().any(is_harmful), "{script:?}");
        }
    }
}
