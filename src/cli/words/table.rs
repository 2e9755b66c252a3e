//! Text tables: columns with spaces between, at most 80 wide in a pipe, as wide as the terminal otherwise. And labelled
//! lines.

use std::fmt::Display;
use std::iter;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use console::{Alignment, measure_text_width, pad_str};

use crate::cli::words::line::Line;
use crate::cli::words::{print, terminal};

/// Width of a table that does not go to a terminal, in columns.
const WIDTH: usize = 80;

/// How wide a table may be, in columns.
pub fn width() -> usize {
    terminal::stdout_width().unwrap_or(WIDTH)
}

/// Creates a table of this width.
pub fn of_width(width: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table
}

/// What is in a cell: a line, or several.
pub struct Cell(Vec<Line>);

impl Cell {
    /// A cell of these lines.
    pub fn of(lines: impl IntoIterator<Item = String>) -> Self {
        Self(lines.into_iter().map(Line::of).collect())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::of([text])
    }
}

/// The lines of each cell of a row, joined by this.
fn joined(row: &[Cell], separator: &str) -> Vec<String> {
    row.iter().map(|Cell(lines)| lines.iter().map(|line| &**line).collect::<Vec<&str>>().join(separator)).collect()
}

/// Prints a table without trailing spaces. Breaks cells only between words. If the table is too wide even so, prints
/// each row as lines instead, one for each column.
pub fn print<const N: usize, C: Into<Cell>>(header: [&str; N], rows: impl IntoIterator<Item = [C; N]>) {
    let rows: Vec<[Cell; N]> = rows.into_iter().map(|row| row.map(Into::into)).collect();
    print::out(format(header, &rows, width()));
}

/// Prints a table as [`print`] does, but breaks no cell, so that you can copy the commands in it.
pub fn print_commands<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let rows: Vec<[Cell; N]> = rows.into_iter().map(|row| row.map(Into::into)).collect();
    let mut widths = header.map(|name| name.len() + 2);
    for row in &rows {
        for (width, Cell(lines)) in widths.iter_mut().zip(row) {
            let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
            *width = (*width).max(longest + 2);
        }
    }
    if widths.iter().sum::<usize>() <= width() {
        print(header, rows);
    } else {
        print::out(records(header, &rows));
    }
}

fn format<const N: usize>(header: [&str; N], rows: &[[Cell; N]], width: usize) -> Vec<String> {
    let cells: Vec<Vec<String>> = rows.iter().map(|row| joined(row, "\n")).collect();
    let words = |text: &str| text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or_default();
    let narrowest: [usize; N] = std::array::from_fn(|at| {
        let below = cells.iter().filter_map(|row| row.get(at)).map(|cell| words(cell));
        below.chain([words(header[at])]).max().unwrap_or_default()
    });
    if narrowest.iter().map(|column| column + 2).sum::<usize>() > width {
        return records(header, rows);
    }
    let mut table = of_width(width);
    table.set_header(header).add_rows(cells);
    for (column, narrowest) in table.column_iter_mut().zip(narrowest) {
        let narrowest = u16::try_from(narrowest + 2).unwrap_or(u16::MAX);
        column.set_padding((0, 2)).set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(narrowest)));
    }
    table.trim_fmt().lines().map(str::to_owned).collect()
}

/// Formats each row as lines: the column's name, then what is in it.
fn records<const N: usize>(header: [&str; N], rows: &[[Cell; N]]) -> Vec<String> {
    let label = |at: usize| if at == 0 { header[at].to_owned() } else { format!("  {}", header[at]) };
    let cells = rows.iter().flat_map(|row| joined(row, ", ").into_iter().enumerate());
    labelled(0, cells.filter(|(_, cell)| !cell.is_empty()).map(|(at, cell)| (label(at), cell)))
}

/// Prints labelled lines, as [`labelled`] formats them.
pub fn print_labelled<L: AsRef<str>, T: Display>(indent: usize, lines: impl IntoIterator<Item = (L, T)>) {
    print::out(labelled(indent, lines));
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
        let row = |a: &str, b: &str| [a, b].map(|text| Cell::from(text.to_owned()));
        let rows = [row("0x12345678", &"word ".repeat(20)), row("short", "12.345678")];
        let text = format(["address", "text"], &rows, 40).join("\n");
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert_eq!(text.matches("word").count(), 20, "{text}");
        assert!(text.contains("0x12345678") && text.contains("12.345678"), "{text}");
    }

    #[test]
    fn a_table_that_would_break_words_is_printed_as_lines() {
        let row = ["3-1.2".to_owned(), "a".repeat(40), "b".repeat(40)].map(Cell::from);
        let text = format(["unit", "serial", "next"], &[row], 80);
        let expected = ["unit      3-1.2".to_owned(), format!("  serial  {}", "a".repeat(40))];
        assert_eq!(text[..2], expected);
        assert_eq!(text[2], format!("  next    {}", "b".repeat(40)));
    }
}
