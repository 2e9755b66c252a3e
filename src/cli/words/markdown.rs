//! Markdown as text for a terminal, for the pages that `asmpatch help` shows. pulldown-cmark reads it.
//!
//! Backticks stay: they mark what can be copied, also without colours, and [`fold_line`] keeps it on one line. Headings
//! and what is strong are bold. A link is its text and where it leads. A table's last column is folded; one whose other
//! columns take more than half of the width is printed as a paragraph for each row.

use console::{Alignment, measure_text_width, pad_str};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::cli::words::terminal::fold_line;
use crate::cli::words::{command_tree, pages};

const BOLD: &str = "\x1b[1m";
const NO_BOLD: &str = "\x1b[22m";
/// How far code is indented.
const CODE: usize = 4;
/// Columns between those of a table.
const GAP: usize = 2;

/// Renders a page at this width. Code and long commands are not folded.
pub fn rendered(page: &str, width: usize) -> String {
    let mut page_writer = Writer { width, ..Writer::default() };
    Parser::new_ext(page, Options::ENABLE_TABLES).for_each(|event| page_writer.event(event));
    page_writer.text
}

#[derive(Default)]
struct Writer {
    width: usize,
    text: String,
    /// The paragraph, heading or cell that is being read.
    inline: String,
    /// The number of the next item of each open list; `None` for a list without numbers.
    lists: Vec<Option<u64>>,
    /// The columns to the left of the text: the marks of the open items.
    indent: usize,
    /// The mark of an item whose first line is not written yet.
    mark: Option<String>,
    /// Where each open link begins in `inline`, and where it leads.
    links: Vec<(usize, String)>,
    /// The rows of the table that is being read, its header first; none outside a table.
    rows: Vec<Vec<String>>,
    /// Whether a blank line comes before the next block.
    wants_gap: bool,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.inline += &text,
            Event::Code(code) => self.inline += &format!("`{code}`"),
            Event::SoftBreak | Event::HardBreak => self.inline.push(' '),
            Event::Rule => self.wants_gap = true,
            // Tags of HTML only arrange the page where a browser shows it.
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Strong if self.rows.is_empty() => self.inline += BOLD,
            Tag::Link { dest_url, .. } => self.links.push((self.inline.len(), dest_url.into_string())),
            Tag::List(first) => {
                self.block();
                self.lists.push(first);
            }
            Tag::Item => {
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "- ".to_owned(),
                };
                self.indent += mark.len();
                self.mark = Some(mark);
            }
            Tag::CodeBlock(_) => self.block(),
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Strong if self.rows.is_empty() => self.inline += NO_BOLD,
            TagEnd::Link => {
                let Some((at, to)) = self.links.pop() else { return };
                let text = &self.inline[at..];
                let Some(place) = place(&to, text) else { return };
                if to.starts_with(text) || to.ends_with(text) {
                    // The name of a file, which the command has as well.
                    self.inline.truncate(at);
                    self.inline += &place;
                } else {
                    self.inline += &format!(" ({place})");
                }
            }
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.block();
                self.wants_gap = true;
            }
            TagEnd::Heading(_) => {
                self.inline = format!("{BOLD}{}{NO_BOLD}", self.inline.replace('`', ""));
                self.block();
                self.wants_gap = true;
            }
            TagEnd::Item => {
                self.block();
                let mark = match self.lists.last() {
                    Some(Some(next)) => format!("{}. ", next - 1).len(),
                    _ => 2,
                };
                self.indent -= mark;
                self.mark = None;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.wants_gap |= self.lists.is_empty();
            }
            TagEnd::CodeBlock => {
                let code = std::mem::take(&mut self.inline);
                self.gap();
                for line in code.lines() {
                    self.line(&format!("{:indent$}{line}", "", indent = self.indent + CODE));
                }
                self.wants_gap = true;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => {
                let rows = std::mem::take(&mut self.rows);
                self.gap();
                for line in table(&rows, self.width.saturating_sub(self.indent)) {
                    self.line(&format!("{:indent$}{line}", "", indent = self.indent));
                }
                self.wants_gap = true;
            }
            _ => {}
        }
    }

    /// Writes the paragraph or heading that has been read, if there is one.
    fn block(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        let inline = inline.trim();
        if inline.is_empty() {
            return;
        }
        self.gap();
        let mark = self.mark.take().unwrap_or_default();
        let line = format!("{:indent$}{mark}{inline}", "", indent = self.indent - mark.len());
        fold_line(&line, self.width, self.indent, &mut self.text);
        self.text.push('\n');
    }

    fn gap(&mut self) {
        if std::mem::take(&mut self.wants_gap) && !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    fn line(&mut self, line: &str) {
        self.text += line.trim_end();
        self.text.push('\n');
    }
}

/// Returns where a link with this text leads: an address, or the command that shows the page. `None` if the text says it,
/// or if the program doesn't have the page.
fn place(to: &str, text: &str) -> Option<String> {
    if to.contains("://") {
        return (to != text).then(|| to.to_owned());
    }
    let file = to.split('#').next()?.rsplit('/').next()?;
    let name = file.strip_suffix(".md")?;
    pages::page(file)?;
    // A command may have the page's name.
    let topic = if command_tree::tree().find_subcommand(name).is_some() { file } else { name };
    Some(format!("`asmpatch help {topic}`"))
}

/// Returns the lines of a table whose header is its first row.
fn table(rows: &[Vec<String>], width: usize) -> Vec<String> {
    let Some((header, below)) = rows.split_first() else { return Vec::new() };
    let widest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| measure_text_width(cell)).max();
    let last = header.len().saturating_sub(1);
    let widths: Vec<usize> = (0..last).map(|at| widest(at).unwrap_or_default() + GAP).collect();
    let mut lines = String::new();
    if widths.iter().sum::<usize>() <= width / 2 {
        for (index, row) in rows.iter().enumerate() {
            let padded = row.iter().zip(&widths).map(|(cell, width)| pad_str(cell, *width, Alignment::Left, None));
            let line = padded.collect::<String>() + row.get(last).map_or("", String::as_str);
            let line = if index == 0 { format!("{BOLD}{line}{NO_BOLD}") } else { line };
            fold_line(&line, width, widths.iter().sum(), &mut lines);
            lines.push('\n');
        }
        return lines.lines().map(str::to_owned).collect();
    }
    for (index, row) in below.iter().enumerate() {
        if index > 0 {
            lines.push('\n');
        }
        for (at, cell) in row.iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
            let name = header.get(at).map_or("", String::as_str);
            let line = match at {
                0 => format!("{BOLD}{cell}{NO_BOLD}"),
                _ if name.is_empty() => format!("  {cell}"),
                _ => format!("  {name}: {cell}"),
            };
            fold_line(&line, width, CODE, &mut lines);
            lines.push('\n');
        }
    }
    lines.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(page: &str, width: usize) -> String {
        console::strip_ansi_codes(&rendered(page, width)).into_owned()
    }

    #[test]
    fn paragraphs_and_items_have_the_terminals_width_and_code_stays_as_it_is() {
        let page = "# A `page`\n\nOne **two** three\nfour five.\n- an item that\n  goes on\n  - below\n- next\n1. first of\n\
                    \x20  them\n\n```sh\nasmpatch list --json --quiet\n```\n\n    asmpatch demo --keep a-folder\n";
        let expected = "A page\n\nOne two three\nfour five.\n\n- an item that\n  goes on\n  - below\n- next\n\n1. first of them\n\n    \
                        asmpatch list --json --quiet\n\n    asmpatch demo --keep a-folder\n";
        assert_eq!(plain(page, 16), expected);
        assert!(rendered(page, 16).contains("One \x1b[1mtwo\x1b[22m three"));
    }

    #[test]
    fn a_link_is_its_text_and_where_it_leads() {
        for (link, expected) in [
            ("[the page](recovery.md#boot)", "the page (`asmpatch help recovery`)"),
            ("[bench](docs/bench.md)", "bench (`asmpatch help bench.md`)"),
            ("see [chip.md](lab/chip.md)", "see `asmpatch help chip`"),
            ("[tinygrad](https://tinygrad.org)", "tinygrad (https://tinygrad.org)"),
            ("<https://tinygrad.org>", "https://tinygrad.org"),
            ("[below](#below)", "below"),
            ("[code](../src/lib.rs)", "code"),
        ] {
            assert_eq!(plain(link, 80).trim_end(), expected);
        }
    }

    #[test]
    fn a_tables_last_column_is_folded_and_a_table_that_is_too_wide_has_a_paragraph_for_each_row() {
        let page = "| key | what it is |\n| --- | --- |\n| `a` | one two three four |\n| bc | |\n";
        assert_eq!(plain(page, 20), "key  what it is\n`a`  one two three\n     four\nbc\n");
        let page = "| a long name | what | |\n| --- | --- | --- |\n| one | two three four five | six |\n| 1 | 2 | |\n";
        assert_eq!(plain(page, 20), "one\n  what: two three\n    four five\n  six\n\n1\n  what: 2\n");
    }

    #[test]
    fn no_page_shows_its_marks() {
        for name in crate::embedded::page_names() {
            for line in plain(&pages::page(&name).unwrap(), 80).lines().filter(|line| !line.starts_with("    ")) {
                let is_mark = line.starts_with(['|', '#']) || line.starts_with("```") || line.contains("](");
                assert!(!is_mark, "{name}: {line}");
            }
        }
    }
}
