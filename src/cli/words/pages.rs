//! The pages of docs/ as `asmpatch help` prints them: whole, by section, and through a pager on a terminal.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

use anstream::adapter::strip_str;
use asm2464::{AnyFailure, Failure, Kind};

use crate::cli::words::{interrupt, markdown, print, terminal};
use crate::{embedded, suggest};

/// A page with more lines than this is shown by its introduction and its sections' names.
const LONG: usize = 100;

/// A part of a page: a heading, with all that is below it.
#[derive(Debug, PartialEq, Eq)]
struct Section<'a> {
    name: String,
    /// 2 for `##`, which stands below the page's title.
    level: usize,
    /// Where it begins in the page, in bytes.
    at: usize,
    text: &'a str,
}

/// Returns the file name of a page that is named by its name, its file or its path.
pub fn file_of(name: &str) -> String {
    let name = name.strip_prefix("docs/").unwrap_or(name);
    let name = name.strip_prefix("lab/").unwrap_or(name);
    format!("{}.md", name.strip_suffix(".md").unwrap_or(name))
}

/// Returns the page that is named by its name, its file or its path, in upper or lower case.
pub fn page(name: &str) -> Option<String> {
    let file = file_of(name);
    let names = embedded::page_names();
    let name = names.iter().find(|name| format!("{name}.md").eq_ignore_ascii_case(&file))?;
    embedded::page(&format!("{name}.md"))
}

/// The most places that a search lists.
const MOST_PLACES: usize = 12;

/// A section of a page, as `asmpatch help` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The page's name.
    pub page: String,
    /// The section's name.
    pub section: String,
}

/// Returns where words stand in the pages: the sections whose headings have them or, if none has, those whose text has
/// them as whole words, such as a register's name. Ignores case.
pub fn places(words: &str) -> Vec<Place> {
    let key = words.replace('`', "").to_lowercase();
    // A shorter part of a word is in every page.
    if key.chars().count() < 3 {
        return Vec::new();
    }
    let (mut headings, mut texts) = (Vec::new(), Vec::new());
    for page in embedded::page_names() {
        let Some(text) = embedded::page(&format!("{page}.md")) else { continue };
        for section in sections(&text) {
            let place = || Place { page: page.clone(), section: section.name.clone() };
            if section.name.to_lowercase().contains(&key) {
                headings.push(place());
            } else if has_words(own_text(section.text), &key) {
                texts.push(place());
            }
        }
    }
    let mut found = if headings.is_empty() { texts } else { headings };
    found.truncate(MOST_PLACES);
    found
}

/// What stands in a section before the first one below it.
fn own_text(section: &str) -> &str {
    let below = sections(section).get(1).map(|below| below.at);
    &section[..below.unwrap_or(section.len())]
}

/// Whether a text has these words, which are in lower case, as whole words.
fn has_words(text: &str, key: &str) -> bool {
    let text = text.to_lowercase();
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(key)
        .any(|(at, _)| !is_part(text[..at].chars().next_back()) && !is_part(text[at + key.len()..].chars().next()))
}

/// Returns the page that these words name, and the name of a section, empty for none.
pub fn page_and_section(words: &[&str]) -> Option<(String, String)> {
    let (first, rest) = words.split_first()?;
    Some((page(first)?, rest.join(" ")))
}

/// Prints a page, or one section of it. A long page is shown by its sections' names, unless `is_whole`.
///
/// # Errors
/// Fails if the page has no such section, or several that fit.
pub fn show(name: &str, page: &str, section: &str, is_whole: bool) -> Result<(), AnyFailure> {
    if !section.is_empty() {
        paged(find(name, page, section)?.text);
    } else if is_whole || page.lines().count() <= LONG {
        paged(page);
    } else {
        paged(&contents(name, page));
    }
    Ok(())
}

/// Returns a page's introduction, its sections' names, and how to print them.
fn contents(name: &str, page: &str) -> String {
    let sections = sections(page);
    let start = sections.first().map_or(page.len(), |first| first.at);
    let mut text = page[..start].trim_end().to_owned() + "\n\nSections:\n\n";
    for section in &sections {
        // Four columns make it a block, whose lines are not joined.
        text += &format!("{:indent$}{}\n", "", section.name, indent = 2 * section.level);
    }
    let example = sections.first().map_or("", |first| &first.name);
    text + &format!(
        "\n`asmpatch help {name} \"{example}\"` prints one of them, `asmpatch help {name} --all` the whole page.\n"
    )
}

/// Returns the sections of a page in its order. What stands in a block of code is no heading.
fn sections(page: &str) -> Vec<Section<'_>> {
    let mut headings: Vec<(usize, usize, &str)> = Vec::new();
    let (mut at, mut is_code) = (0, false);
    for line in page.split_inclusive('\n') {
        is_code ^= line.trim_start().starts_with("```");
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if level >= 2 && !is_code {
            headings.push((at, level, line[level..].trim()));
        }
        at += line.len();
    }
    let end = |index: usize, level: usize| {
        let next = headings[index + 1..].iter().find(|(_, other, _)| *other <= level);
        next.map_or(page.len(), |(at, ..)| *at)
    };
    let section = |(index, (at, level, name)): (usize, &(usize, usize, &str))| Section {
        name: name.replace('`', ""),
        level: *level,
        at: *at,
        text: page[*at..end(index, *level)].trim_end(),
    };
    headings.iter().enumerate().map(section).collect()
}

/// Returns the section with this name. A part of the name serves if one section alone has it.
fn find<'a>(page_name: &str, page: &'a str, wanted: &str) -> Result<Section<'a>, Failure> {
    let key = wanted.replace('`', "").to_lowercase();
    let mut sections = sections(page);
    if let Some(exact) = sections.iter().position(|section| section.name.to_lowercase() == key) {
        return Ok(sections.swap_remove(exact));
    }
    let names: Vec<String> = sections.iter().map(|section| section.name.clone()).collect();
    sections.retain(|section| section.name.to_lowercase().contains(&key));
    let label = Kind::Usage.code("asmpatch::help::section");
    match sections.len() {
        1 => Ok(sections.remove(0)),
        0 => {
            let question = suggest::question(wanted, names.iter().map(String::as_str));
            Err(Failure::new(label, format!("the page {page_name} has no section {wanted:?}{question}")))
        }
        _ => {
            let fitting: Vec<String> = sections.iter().map(|section| format!("{:?}", section.name)).collect();
            let message = format!("{wanted:?} fits several sections of the page {page_name}: {}", fitting.join(", "));
            Err(Failure::new(label, message))
        }
    }
}

/// Whether the page has one section that this name fits.
#[cfg(test)]
pub fn has_section(page: &str, wanted: &str) -> bool {
    find("", page, wanted).is_ok()
}

/// Prints a page or a section: Markdown as it is, or on a terminal text of its width. If it is longer than the terminal, a
/// pager shows it.
fn paged(text: &str) {
    let Some(width) = terminal::stdout_width() else { return print::whole(&format!("{}\n", text.trim_end())) };
    let text = markdown::rendered(text, terminal::text_width(Some(width)));
    let is_long = terminal::stdout_height().is_some_and(|height| text.lines().count() >= height);
    // Without a pager on this system, the text is printed.
    if !(is_long && io::stdin().is_terminal() && through_pager(&text).is_ok()) {
        print::whole(&text);
    }
}

/// Gives a text to `$PAGER`, or to `less` without one.
///
/// # Errors
/// Fails if there is no such program. A reader who leaves before the end has seen what they wanted.
fn through_pager(text: &str) -> io::Result<()> {
    let pager = env::var_os("PAGER").unwrap_or_else(|| OsString::from("less"));
    let pager = pager.to_string_lossy();
    let mut words = pager.split_whitespace();
    let program = words.next().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        // As git has it, and K: Ctrl-C ends it.
        command.env("LESS", "FRXK");
    }
    // The pager's own Ctrl-C must not leave it behind with the terminal.
    interrupt::install();
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // Only with -R does less show weights as such.
        let shows_styles = env::var_os("LESS").is_none_or(|options| options.to_string_lossy().contains('R'));
        let text = if shows_styles { print::for_stdout(text) } else { strip_str(text).to_string() };
        let _ = input.write_all(text.as_bytes());
    }
    let _ = child.wait();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "# Title\n\nIntro.\n\n## One\n\na\n\n```\n## no heading\n```\n\n### `Inner` part\n\nb\n\n## Two\n\nc\n";

    #[test]
    fn a_section_goes_on_to_the_next_heading_of_its_level_and_no_code_begins_one() {
        let names: Vec<(String, usize)> = sections(PAGE).into_iter().map(|s| (s.name, s.level)).collect();
        assert_eq!(names, [("One".to_owned(), 2), ("Inner part".to_owned(), 3), ("Two".to_owned(), 2)]);
        let one = find("page", PAGE, "one").unwrap();
        assert!(one.text.starts_with("## One") && one.text.ends_with('b'), "{}", one.text);
        assert_eq!(find("page", PAGE, "`inner`").unwrap().text, "### `Inner` part\n\nb");
        assert_eq!(find("page", PAGE, "tw").unwrap().text, "## Two\n\nc");
    }

    #[test]
    fn a_section_that_is_not_there_or_not_the_only_one_is_an_error_that_names_some() {
        let message = find("page", PAGE, "Two!").unwrap_err().to_string();
        assert!(message.contains("did you mean `Two`?"), "{message}");
        let message = find("page", PAGE, "n").unwrap_err().to_string();
        assert!(message.contains("\"One\", \"Inner part\""), "{message}");
    }

    #[test]
    fn a_page_is_found_in_upper_case_and_a_part_of_a_heading_and_each_register_in_some_page() {
        assert_eq!(page("Recovery"), page("recovery.md"));
        assert!(page("RECOVERY").is_some());
        let found = places("not listed");
        assert_eq!(found, [Place { page: "recovery".to_owned(), section: "The unit is not listed".to_owned() }]);
        assert!(places("pcie_link_state").iter().any(|place| place.page == "chip"));
        assert!(places("no page has these words").is_empty() && places("e4").is_empty());
    }

    #[test]
    fn a_part_of_a_word_is_no_word() {
        assert!(has_words("of `PCIE_LINK_STATE`.", "pcie_link_state"));
        assert!(!has_words("PCIE_LINK_STATE_2", "pcie_link_state") && !has_words("restore", "rest"));
    }

    #[test]
    fn code_in_a_page_fits_a_terminal_of_80_columns() {
        for name in embedded::page_names() {
            let page = page(&name).unwrap();
            // A block named "console" has commands, which are never folded, and what they print into a pipe.
            let mut block: Option<bool> = None;
            for line in page.lines() {
                if let Some(language) = line.trim_start().strip_prefix("```") {
                    block = if block.is_some() { None } else { Some(language == "console") };
                } else if block == Some(false) {
                    assert!(line.chars().count() <= 80, "{name}: {line}");
                }
            }
        }
    }

    #[test]
    fn the_contents_of_a_page_are_its_introduction_and_its_sections() {
        let text = contents("page", PAGE);
        assert!(text.starts_with("# Title\n\nIntro.\n\nSections:\n\n    One\n      Inner part\n    Two\n"), "{text}");
        assert!(text.contains("asmpatch help page \"One\"") && text.contains("asmpatch help page --all"), "{text}");
    }
}
