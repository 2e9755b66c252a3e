//! Escapes text for what is printed: whole texts with styles, and JSON.

use asm2464::escape::{is_harmful, lines, replaced};

/// Escapes text that is printed as a whole. Keeps what [`lines`] keeps, and the sequences that set colours and weights
/// (SGR), because asmpatch's own styles need them.
pub fn printed(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut escaped = parts.next().map(lines).unwrap_or_default();
    for part in parts {
        let (style, rest) = part.split_at(style_len(part).unwrap_or_default());
        escaped.push_str(if style.is_empty() { "\\u{1b}" } else { "\x1b" });
        escaped.push_str(style);
        escaped.push_str(&lines(rest));
    }
    escaped
}

/// Returns the length of an SGR sequence without its ESC (ECMA-48, 8.3.117), if `text` begins with one: `[`, numbers
/// and semicolons, `m`.
fn style_len(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('[')?;
    let numbers = rest.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    rest[numbers..].starts_with('m').then_some(1 + numbers + 1)
}

/// Escapes harmful characters in a JSON document's strings with `\u`. To a parser it is the same document.
pub fn json(document: &str) -> String {
    let code = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    // JSON has line ends outside strings, but never inside them.
    replaced(document, |c| (is_harmful(c) && c != '\n').then(|| code(c)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_what_is_printed_only_lines_and_colours_are_left_to_the_terminal() {
        let ours = "\x1b[1mdone\x1b[0m\n\t\x1b[38;5;1mred\x1b[m\n";
        assert_eq!(printed(ours), ours);
        assert_eq!(printed("\x1b]0;title\x07\x1b[2J\x1b["), "\\u{1b}]0;title\\u{7}\\u{1b}[2J\\u{1b}[");
    }

    proptest! {
        #[test]
        fn escaped_json_reads_back_as_it_was(text: String) {
            let document = json(&serde_json::to_string_pretty(&[&text]).unwrap());
            prop_assert_eq!(serde_json::from_str::<Vec<String>>(&document).unwrap(), [text]);
            prop_assert!(!document.chars().any(|c| is_harmful(c) && c != '\n'));
        }
    }
}
