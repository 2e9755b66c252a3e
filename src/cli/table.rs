//! Text tables: at most 80 columns wide in a pipe, as wide as the terminal otherwise.

use std::env;
use std::io::IsTerminal as _;

use comfy_table::{ContentArrangement, Row, Table, presets};

/// Width of a table that does not go to a terminal, in columns.
const WIDTH: u16 = 80;

/// Creates a table: with lines on a terminal, with spaces only in a pipe or if the locale is not UTF-8.
pub fn new() -> Table {
    let mut table = Table::new();
    let terminal = std::io::stdout().is_terminal().then(console::Term::stdout);
    let width = terminal.as_ref().and_then(console::Term::size_checked).map_or(WIDTH, |(_, columns)| columns.max(40));
    let is_plain = terminal.is_none() || !is_utf8(|name| env::var(name).ok());
    table.load_style(if is_plain { presets::NOTHING } else { presets::UTF8_FULL_CONDENSED });
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table
}

/// Prints a table without trailing spaces.
pub fn print<const N: usize, R: Into<Row>>(header: [&str; N], rows: impl IntoIterator<Item = R>) {
    outln!("{}", new().set_header(header).add_rows(rows).trim_fmt());
}

/// Whether the locale uses UTF-8. The first of these variables that is set and not empty decides (POSIX.1-2024, 8.2).
/// Windows has no such variables, and shows UTF-8.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    let names_utf8 = |locale: &str| locale.to_ascii_lowercase().replace('-', "").contains("utf8");
    locale.map_or(cfg!(windows), |locale| names_utf8(&locale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_variable_that_is_set_decides_whether_lines_are_drawn() {
        let with = |set: &[(&str, &str)]| {
            is_utf8(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[("LANG", "en_GB.UTF-8")]));
        assert!(with(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
        assert!(!with(&[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")]));
        assert!(!with(&[("LANG", "de_DE.ISO-8859-1")]));
        assert_eq!(with(&[]), cfg!(windows));
    }

    #[test]
    fn a_table_in_a_pipe_is_plain_and_fits_80_columns() {
        let mut table = new();
        table.set_header(["a", "b"]).add_row(["x".repeat(60), "y".repeat(60)]);
        let text = table.trim_fmt();
        assert!(text.lines().all(|line| line.chars().count() <= 80 && line.is_ascii()), "{text}");
        assert_eq!(text.matches('x').count(), 60);
    }
}
