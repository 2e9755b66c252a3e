//! Text tables: columns with spaces between, at most 80 wide in a pipe, as wide as the terminal otherwise. And labelled
//! lines.

use std::fmt::Display;
use std::iter;

use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table, Width, presets};
use console::{Alignment, measure_text_width, pad_str};

use super::terminal;

/// Width of a table that does not go to a terminal, in columns.
const WIDTH: usize = 80;

fn width() -> usize {
    terminal::stdout_width().unwrap_or(WIDTH)
}

/// Creates a table.
pub fn new() -> Table {
    of_width(width())
}

fn of_width(width: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table
}

/// Prints a table without trailing spaces. Breaks cells only between words. If the table is too wide even so, prints
/// each row as lines instead, one for each column.
pub fn print<const N: usize, R: Into<Row>>(header: [&str; N], rows: impl IntoIterator<Item = R>) {
    outln!("{}", format(header, rows.into_iter().map(Into::into).collect(), width()));
}

/// Prints a table as [`print`] does, but breaks no cell, so that you can copy the commands in it.
pub fn print_commands<const N: usize, R: Into<Row>>(header: [&str; N], rows: impl IntoIterator<Item = R>) {
    let rows: Vec<Row> = rows.into_iter().map(Into::into).collect();
    let mut widths = header.map(|name| name.len() + 2);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row.cell_iter()) {
            *width = (*width).max(cell.content().chars().count() + 2);
        }
    }
    if widths.iter().sum::<usize>() <= width() {
        print(header, rows);
    } else {
        let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
        outln!("{}", records(header, &cells));
    }
}

fn cells(row: &Row) -> Vec<String> {
    row.cell_iter().map(comfy_table::Cell::content).collect()
}

fn format<const N: usize>(header: [&str; N], rows: Vec<Row>, width: usize) -> String {
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let words = |text: &str| text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or_default();
    let narrowest: [usize; N] = std::array::from_fn(|at| {
        let below = cells.iter().filter_map(|row| row.get(at)).map(|cell| words(cell));
        below.chain([words(header[at])]).max().unwrap_or_default()
    });
    if narrowest.iter().map(|column| column + 2).sum::<usize>() > width {
        return records(header, &cells);
    }
    let mut table = of_width(width);
    table.set_header(header).add_rows(rows);
    for (column, narrowest) in table.column_iter_mut().zip(narrowest) {
        let narrowest = u16::try_from(narrowest + 2).unwrap_or(u16::MAX);
        column.set_padding((0, 2)).set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(narrowest)));
    }
    table.trim_fmt()
}

/// Formats each row as lines: the column's name, then what is in it.
fn records<const N: usize>(header: [&str; N], rows: &[Vec<String>]) -> String {
    let label = |at: usize| if at == 0 { header[at].to_owned() } else { format!("  {}", header[at]) };
    let cells = rows.iter().flat_map(|row| row.iter().enumerate().filter(|(_, cell)| !cell.is_empty()));
    labelled(0, cells.map(|(at, cell)| (label(at), cell.replace('\n', ", ")))).join("\n")
}

/// Prints labelled lines, as [`labelled`] formats them.
pub fn print_labelled<L: AsRef<str>, T: Display>(indent: usize, lines: impl IntoIterator<Item = (L, T)>) {
    labelled(indent, lines).iter().for_each(|line| outln!("{line}"));
}

/// Labels the first of several texts, which the others continue.
pub fn under<T>(label: &str, texts: impl IntoIterator<Item = T>) -> impl Iterator<Item = (&str, T)> {
    iter::once(label).chain(iter::repeat("")).zip(texts)
}

/// Formats lines that are a label and a text each, with all texts in one column. A line without a label continues the
/// one before it.
pub fn labelled<L: AsRef<str>, T: Display>(indent: usize, lines: impl IntoIterator<Item = (L, T)>) -> Vec<String> {
    let lines: Vec<(L, T)> = lines.into_iter().collect();
    let width = lines.iter().map(|(label, _)| measure_text_width(label.as_ref())).max().unwrap_or_default();
    let line = |(label, text): &(L, T)| {
        let label = pad_str(label.as_ref(), width, Alignment::Left, None);
        format!("{:indent$}{label}  {text}", "")
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_labelled_lines_stand_in_one_column_whatever_colour_a_label_has() {
        let lines = [("\x1b[32mok\x1b[0m", "yes"), ("backup", "none"), ("", "so far")];
        assert_eq!(labelled(2, lines), ["  \x1b[32mok\x1b[0m      yes", "  backup  none", "          so far"]);
    }

    #[test]
    fn a_table_fits_its_width_and_no_word_in_it_is_broken() {
        let row = |a: &str, b: &str| Row::from(vec![a.to_owned(), b.to_owned()]);
        let rows = vec![row("0x12345678", &"word ".repeat(20)), row("short", "12.345678")];
        let text = format(["address", "text"], rows, 40);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert_eq!(text.matches("word").count(), 20, "{text}");
        assert!(text.contains("0x12345678") && text.contains("12.345678"), "{text}");
    }

    #[test]
    fn a_table_that_would_break_words_is_printed_as_lines() {
        let row = Row::from(vec!["3-1.2".to_owned(), "a".repeat(40), "b".repeat(40)]);
        let text = format(["unit", "serial", "next"], vec![row], 80);
        let expected = format!("unit      3-1.2\n  serial  {}\n  next    {}", "a".repeat(40), "b".repeat(40));
        assert_eq!(text, expected);
    }
}
