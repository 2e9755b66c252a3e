//! The terminal: its width, the lines that are folded at it, and the progress that is drawn on it.

use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, thread};

use console::{Term, measure_text_width, strip_ansi_codes};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, TermLike};

/// How often bars are drawn per second: indicatif's own default.
const HZ: u8 = 20;

/// All bars of the process.
static BARS: OnceLock<MultiProgress> = OnceLock::new();

/// Returns the set of bars to which new bars are added. The first call decides whether any are drawn: pass
/// `Context::shows_progress`.
pub fn bars(are_drawn: bool) -> &'static MultiProgress {
    BARS.get_or_init(|| MultiProgress::with_draw_target(draw_target(are_drawn)))
}

/// Draws a bar again at this interval until it is finished, from a thread of its own. If no thread can be started, the
/// bar is drawn only when it changes.
pub fn keep_drawn(bar: &ProgressBar, every: Duration) {
    // The bar's own ticker panics where no thread can be started.
    let bar = bar.downgrade();
    let draw = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            thread::sleep(every);
        }
    };
    let _ = thread::Builder::new().name("bar".into()).spawn(draw);
}

/// Clears the bars, prints, and draws the bars again below. `print` must not call this function.
pub fn among_bars<T>(print: impl FnOnce() -> T) -> T {
    match BARS.get() {
        Some(bars) => bars.suspend(print),
        None => print(),
    }
}

/// Clears the bars, for a process that ends while work goes on. What is printed next, or the shell's prompt, begins on a
/// line of its own: the terminal's echo of Ctrl-C may be on this one.
pub fn clear() {
    if let Some(bars) = BARS.get() {
        let _ = bars.clear();
        // Else the thread that keeps them drawn puts them below what is printed next.
        bars.set_draw_target(ProgressDrawTarget::hidden());
    }
    if io::stderr().is_terminal() {
        errln!("");
    }
}

/// The widest lines of running text, such as help, in columns.
pub const WIDEST_TEXT: usize = 100;

/// Returns how wide running text may be on a terminal of this width, or where there is no terminal.
pub fn text_width(columns: Option<usize>) -> usize {
    columns.map_or(WIDEST_TEXT, |columns| columns.min(WIDEST_TEXT))
}

/// Columns of the narrowest terminal that lines are folded for.
const NARROWEST: usize = 40;

/// Returns how many columns stdout has, if it is a terminal.
pub fn stdout_width() -> Option<usize> {
    if io::stdout().is_terminal() { columns(&Term::stdout()) } else { None }
}

/// Returns how many lines stdout has, if it is a terminal that can show pages.
pub fn stdout_height() -> Option<usize> {
    if !io::stdout().is_terminal() || is_dumb() {
        return None;
    }
    Term::stdout().size_checked().map(|(lines, _)| usize::from(lines))
}

/// Whether the terminal can't move its cursor.
fn is_dumb() -> bool {
    env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Returns how many columns stderr has, if it is a terminal.
pub fn stderr_width() -> Option<usize> {
    if io::stderr().is_terminal() { columns(&Term::stderr()) } else { None }
}

fn columns(terminal: &Term) -> Option<usize> {
    terminal.size_checked().map(|(_, columns)| usize::from(columns).max(NARROWEST))
}

/// Draws on stderr, unless nothing can be drawn there.
fn draw_target(is_wanted: bool) -> ProgressDrawTarget {
    if !is_wanted || is_dumb() {
        return ProgressDrawTarget::hidden();
    }
    ProgressDrawTarget::term_like_with_hz(Box::new(Unfailing(Term::buffered_stderr())), HZ)
}

/// A terminal that ignores its errors.
///
/// indicatif panics if a line is printed among its bars after the terminal is gone, and again when the bars are
/// dropped. That would end the process in the middle of a write.
#[derive(Debug)]
struct Unfailing<T>(T);

impl<T: TermLike> TermLike for Unfailing<T> {
    fn width(&self) -> u16 {
        // Ctrl-C is echoed as ^C after the bar. If that began a new line, the bar's own line could not be cleared.
        self.0.width().saturating_sub(3)
    }

    fn height(&self) -> u16 {
        self.0.height()
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n).or(Ok(()))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n).or(Ok(()))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n).or(Ok(()))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n).or(Ok(()))
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.0.write_line(s).or(Ok(()))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.0.write_str(s).or(Ok(()))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line().or(Ok(()))
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().or(Ok(()))
    }
}

/// The furthest column in which a continuation begins.
const MAX_INDENT: usize = 24;

/// What begins a line of a failure. The line's continuations begin in the column after it.
const MARKS: [&str; 5] = ["help: ", "`-> ", "|-> ", "╰─▶ ", "├─▶ "];

/// Folds each line that is wider than `width` columns.
///
/// A continuation begins below the text that follows the line's label, as in `  backup    first, into ...`, otherwise
/// two columns further in than its line. Keeps text between two backticks on one line if it fits, so that you can copy
/// it, and a command even if it does not. Does not fold a line that is a command as a whole.
pub fn fold(text: &str, width: usize) -> String {
    let mut folded = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        if measure_text_width(body) <= width || is_command(body) {
            folded += body;
        } else {
            fold_line(body, width, hanging_indent(body), &mut folded);
        }
        folded += end;
    }
    folded
}

fn is_command(line: &str) -> bool {
    let plain = strip_ansi_codes(line);
    let line = plain.trim_start();
    // A command also follows a label, as in the last table of several units.
    let programs = ["asmpatch ", "sudo ", "echo ", "umount ", "swapoff ", "boltctl "];
    programs.iter().any(|program| line.starts_with(program)) || line.contains("  asmpatch ")
}

/// Folds a line at `width`, with its continuations in this column.
pub fn fold_line(line: &str, width: usize, indent: usize, folded: &mut String) {
    let indent = indent.min(width / 2);
    let text = line.trim_start_matches(' ');
    let first = line.len() - text.len();
    folded.extend(std::iter::repeat_n(' ', first));
    let mut column = first;
    let mut is_first = true;
    for word in words(text, width - indent) {
        let len = measure_text_width(word);
        let gap = usize::from(!is_first);
        let moved = word.trim_start_matches(' ');
        // A word that is wider than a continuation stays on this line: the terminal breaks it in any case.
        let fits_below = indent + measure_text_width(moved) <= width;
        if !is_first && column + gap + len > width && fits_below {
            folded.push('\n');
            folded.extend(std::iter::repeat_n(' ', indent));
            *folded += moved;
            column = indent + measure_text_width(moved);
            continue;
        } else if !is_first {
            folded.push(' ');
            column += 1;
        }
        *folded += word;
        column += len;
        is_first = false;
    }
}

/// Returns the column in which the continuations of a line begin.
fn hanging_indent(line: &str) -> usize {
    let line = &*strip_ansi_codes(line);
    let start = line.len() - line.trim_start_matches(' ').len();
    // The last gap of two spaces or more ends the label.
    let mut indent = start + 2;
    let mut spaces = 0;
    for (column, c) in line.chars().enumerate().skip(start) {
        if column > MAX_INDENT {
            break;
        }
        if c == ' ' {
            spaces += 1;
            continue;
        }
        if spaces > 1 {
            indent = column;
        }
        spaces = 0;
    }
    let mark = MARKS.iter().find(|mark| line[start..].starts_with(**mark));
    mark.map_or(indent, |mark| start + mark.chars().count())
}

/// Splits a text at its spaces. Text between backticks is one word if it is a command, which only the terminal may break,
/// or if it has at most `max` columns. Of several spaces, all but the first stay at the beginning of the next word.
fn words(text: &str, max: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        let plain = rest[spaces..].find(' ').map_or(rest.len(), |at| spaces + at);
        let len = match rest[..plain].rfind('`') {
            Some(open) if rest[..plain].matches('`').count() % 2 == 1 => {
                let close = rest[open + 1..].find('`').map(|at| open + 1 + at);
                let end = close.map(|close| rest[close..].find(' ').map_or(rest.len(), |at| close + at));
                let stays = |end: &usize| is_command(&rest[open + 1..*end]) || measure_text_width(&rest[..*end]) <= max;
                end.filter(stays).unwrap_or(plain)
            }
            _ => plain,
        };
        words.push(&rest[..len]);
        rest = rest[len..].strip_prefix(' ').unwrap_or(&rest[len..]);
    }
    words
}

#[cfg(test)]
mod tests {
    use indicatif::{MultiProgress, ProgressBar};

    use super::*;

    /// A terminal whose other end is closed.
    #[derive(Debug)]
    struct Gone;

    fn gone() -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }

    impl TermLike for Gone {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            gone()
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            gone()
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            gone()
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            gone()
        }

        fn write_line(&self, _: &str) -> io::Result<()> {
            gone()
        }

        fn write_str(&self, _: &str) -> io::Result<()> {
            gone()
        }

        fn clear_line(&self) -> io::Result<()> {
            gone()
        }

        fn flush(&self) -> io::Result<()> {
            gone()
        }
    }

    #[test]
    fn a_line_among_the_bars_of_a_terminal_that_is_gone_costs_only_the_line() {
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(Unfailing(Gone)), HZ);
        let all = MultiProgress::with_draw_target(target);
        let bar = all.add(ProgressBar::new(10));
        bar.set_message("writing");
        let mut is_printed = false;
        all.suspend(|| is_printed = true);
        bar.finish_and_clear();
        assert!(is_printed);
    }

    #[test]
    fn a_command_behind_a_label_is_not_broken() {
        let line = "  next    asmpatch flash 'fw patched.bin' --config-from backups/b --device 1-2.3 --no-backup";
        assert_eq!(fold(line, 40), line);
    }

    #[test]
    fn a_long_line_continues_below_the_text_after_its_label() {
        let line = "  backup    first, into a folder whose name is long";
        assert_eq!(fold(line, 30), "  backup    first, into a\n            folder whose name\n            is long");
        let line = "  ok    usb         fast enough for every runtime there is";
        assert_eq!(
            fold(line, 40),
            "  ok    usb         fast enough for\n                    every runtime there\n                    is"
        );
        assert_eq!(fold("one two three four\nnext", 10), "one two\n  three\n  four\nnext");
        assert_eq!(fold("  help: one two three four", 16), "  help: one two\n        three\n        four");
    }

    #[test]
    fn no_word_number_or_command_is_broken() {
        let line = "  next: `asmpatch bench --device 3-1.2` measures it in 12.345 MB/s or so";
        let folded = fold(line, 40);
        assert!(folded.contains("`asmpatch bench --device 3-1.2`") && folded.contains("12.345"), "{folded}");
        assert!(folded.lines().all(|line| line.chars().count() <= 40), "{folded}");
        let long = "`asmpatch restore a-folder-with-a-long-name --device 3-1.2 --no-backup`";
        assert!(fold(&format!("  next: with a backup of it, {long} brings it back"), 40).contains(long));
        let command = "        asmpatch restore a-folder-with-a-long-name --device 3-1.2 --no-backup";
        assert_eq!(fold(command, 40), command);
        let digest = "a".repeat(64);
        assert_eq!(fold(&format!("SHA-256 {digest}"), 40), format!("SHA-256 {digest}"));
    }

    #[test]
    fn a_path_wider_than_the_terminal_stays_beside_its_label_and_one_that_fits_goes_below_it() {
        let path = format!("/home/{}", "a".repeat(34));
        assert_eq!(fold(&format!("  backup    {path}"), 40), format!("  backup    {path}"));
        assert_eq!(fold(&format!("  backup    as in {path}"), 52), format!("  backup    as in\n            {path}"));
        assert_eq!(fold("  a         bcdef ghij   klmnop", 24), "  a         bcdef ghij\n            klmnop");
    }

    #[test]
    fn colours_have_no_width_and_ends_of_lines_stay() {
        let line = "\u{1b}[32mgreen\u{1b}[0m and the rest\n";
        assert_eq!(fold(line, 18), line);
        let help = "\u{1b}[36m  help: \u{1b}[0mone two three";
        assert_eq!(fold(help, 16), "\u{1b}[36m  help: \u{1b}[0mone two\n        three");
        assert_eq!(fold("Write this unit? [y/N] ", 80), "Write this unit? [y/N] ");
        assert_eq!(fold("\n\na\n", 2), "\n\na\n");
    }
}
