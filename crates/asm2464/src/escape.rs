//! Escapes text from outside before it is shown, so that nobody mistakes it for the program's own output: USB strings,
//! names in archives, manifests, receipts, backups, file names, servers' answers.
//!
//! Characters that could forge a line, move the cursor, hide text or change its direction are shown by their code:
//! control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls, and characters without a
//! width (Unicode general categories Cc, Zl, Zp, and the Cf characters that ordinary text does not need).

use std::ffi::OsStr;
use std::fmt;

/// Whether a character can change how the text around it looks.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
            '\u{AD}' | '\u{61C}' | '\u{180E}'
            // Zero-width characters and directional marks; separators, embeddings and overrides.
            | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
            // Invisible operators, isolates, deprecated controls.
            | '\u{2060}'..='\u{206F}'
            // Byte order mark, interlinear annotation, tags.
            | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

/// Text from outside that is shown within one of asmpatch's own lines.
pub trait Escape {
    /// Returns the text on one line, with harmful characters as `\u{1b}` and bytes that are not UTF-8 as `\xff`.
    fn shown(&self) -> Shown<'_>;
}

impl<T: AsRef<OsStr> + ?Sized> Escape for T {
    fn shown(&self) -> Shown<'_> {
        Shown(self.as_ref())
    }
}

/// See [`Escape::shown`].
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(&'a OsStr);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_encoded_bytes().utf8_chunks() {
            f.write_str(&replaced(chunk.valid(), |c| is_harmful(c).then(|| c.escape_default().to_string())))?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Replaces each character for which `code` returns a text with that text.
pub fn replaced(text: &str, code: impl Fn(char) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match code(c) {
            Some(code) => out.push_str(&code),
            None => out.push(c),
        }
    }
    out
}

/// Escapes text of several lines, such as an error that quotes its input. Keeps line ends and tabs.
pub fn lines(text: &str) -> String {
    replaced(text, |c| (is_harmful(c) && !matches!(c, '\n' | '\t')).then(|| c.escape_default().to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_could_forge_a_line_or_turn_text_around_is_shown_by_its_code() {
        for (text, shown) in [
            ("plain, ünïcode 漢字", "plain, ünïcode 漢字"),
            ("a\n  backup    none", "a\\n  backup    none"),
            ("\x1b[2J\r\x07", "\\u{1b}[2J\\r\\u{7}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("x\u{202E}gpj.exe", "x\\u{202e}gpj.exe"),
            ("a\u{2028}b\u{200B}c", "a\\u{2028}b\\u{200b}c"),
            ("tag\u{E0041}", "tag\\u{e0041}"),
        ] {
            assert_eq!(text.shown().to_string(), shown);
        }
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_no_text_are_shown_by_their_value() {
        use std::os::unix::ffi::OsStrExt;
        assert_eq!(OsStr::from_bytes(b"a\xFFb\n").shown().to_string(), "a\\xffb\\n");
    }

    proptest! {
        #[test]
        fn shown_text_has_nothing_harmful_in_it(text: String) {
            prop_assert!(!text.shown().to_string().chars().any(is_harmful));
            prop_assert!(!lines(&text).chars().any(|c| is_harmful(c) && c != '\n' && c != '\t'));
        }
    }
}
