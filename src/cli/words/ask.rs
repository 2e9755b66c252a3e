//! Questions on the terminal, asked before anything is written.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind, Label};

use crate::cli::words::print;

/// How often to check for Ctrl-C while nobody answers.
const TICK: Duration = Duration::from_millis(100);

/// How many wrong answers a question takes.
pub const TRIES: usize = 3;

/// The error's kind and code if the answer is no.
pub const DECLINED: Label = Kind::Refused.code("asmpatch::flash::declined");

/// Asks on the terminal for permission to write.
///
/// # Errors
/// Of kind [`Kind::Refused`] without a terminal, and if the answer is no; also fails on Ctrl-C.
pub fn confirm(question: &str, interrupt: Interrupt<'_>) -> Result<(), AnyFailure> {
    if !can_ask() {
        let label = Kind::Refused.code("asmpatch::flash::not_asked");
        return Err(Failure::new(label, "there is no terminal to ask on").into());
    }
    if is_yes(question, interrupt)? {
        return Ok(());
    }
    Err(Failure::new(DECLINED, "not confirmed").into())
}

/// Whether there is a terminal to ask on.
pub fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks on the terminal. Only `y` and `yes` mean yes.
///
/// # Errors
/// Fails on Ctrl-C, and if no answer can be read.
pub fn is_yes(question: &str, interrupt: Interrupt<'_>) -> Result<bool, AnyFailure> {
    Ok(means_yes(&answer(&format!("{question} [y/N]"), interrupt)?.unwrap_or_default()))
}

/// Asks which of `most` numbered ones is meant, again after another answer. Returns its index; `None` if the answer is
/// empty or no, if none can be read, and after [`TRIES`] wrong ones.
///
/// # Errors
/// Fails on Ctrl-C.
pub fn which(most: usize, interrupt: Interrupt<'_>) -> Result<Option<usize>, AnyFailure> {
    let question = format!("Which one? [1-{most}, Enter for none]");
    for _ in 0..TRIES {
        let Some(line) = answer(&question, interrupt)? else { return Ok(None) };
        if matches!(line.trim().to_ascii_lowercase().as_str(), "" | "n" | "no") {
            return Ok(None);
        }
        match number_in(&line, most) {
            Some(number) => return Ok(Some(number - 1)),
            None => errln!("type a number from 1 to {most}, or only Enter"),
        }
    }
    Ok(None)
}

/// Asks for a text. `None` if the answer is empty, or none can be read.
///
/// # Errors
/// Fails on Ctrl-C.
pub fn text(question: &str, interrupt: Interrupt<'_>) -> Result<Option<String>, AnyFailure> {
    let line = answer(question, interrupt)?.unwrap_or_default();
    let line = line.trim();
    Ok(if line.is_empty() { None } else { Some(line.to_owned()) })
}

/// The number from 1 to `most` in an answer.
fn number_in(line: &str, most: usize) -> Option<usize> {
    line.trim().parse().ok().filter(|number| (1..=most).contains(number))
}

/// Whether this run may ask which one of several is meant.
static MAY_CHOOSE: AtomicBool = AtomicBool::new(false);

/// Says whether somebody answers: with `--yes` and `--json`, nobody does.
pub fn let_choose(is_attended: bool) {
    MAY_CHOOSE.store(is_attended, Ordering::Relaxed);
}

/// Whether the user can choose among several: on a terminal, without `--yes` and `--json`.
pub fn can_choose() -> bool {
    MAY_CHOOSE.load(Ordering::Relaxed) && can_ask() && io::stderr().is_terminal()
}

/// Prints a prompt, and returns the line that is typed then; `None` if none can be read.
///
/// # Errors
/// Fails on Ctrl-C.
fn answer(prompt: &str, interrupt: Interrupt<'_>) -> Result<Option<String>, AnyFailure> {
    print::ask(prompt);
    loop {
        match line_within(TICK) {
            Line::Typed(line) => return Ok(Some(line)),
            Line::Closed => {
                // Ctrl-D ended it.
                errln!("");
                return Ok(None);
            }
            Line::NotYet => interrupt.check().inspect_err(|_| {
                // What is printed next, or the shell's prompt, begins on a line of its own.
                errln!("");
            })?,
        }
    }
}

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// This line.
    Typed(String),
    /// Nothing yet.
    NotYet,
    /// The input has ended, or can't be read.
    Closed,
}

/// The thread that reads lines, one for each request: a signal doesn't end a read, and a line that nobody has asked for
/// stays in the terminal.
struct Reader {
    requests: Sender<()>,
    lines: Receiver<io::Result<String>>,
    /// Whether a line is asked for and was not read yet.
    is_asked: bool,
}

impl Reader {
    fn start() -> Option<Self> {
        let (requests, asked) = mpsc::channel();
        let (sender, lines) = mpsc::channel();
        let read = move || {
            while asked.recv().is_ok() {
                let mut line = String::new();
                let read = io::stdin().read_line(&mut line);
                if sender.send(read.map(|_| line)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("answers".into()).spawn(read).ok()?;
        Some(Self { requests, lines, is_asked: false })
    }

    fn line_within(&mut self, time: Duration) -> Line {
        if !self.is_asked {
            if self.requests.send(()).is_err() {
                return Line::Closed;
            }
            self.is_asked = true;
        }
        let line = match self.lines.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => return Line::NotYet,
            Ok(Ok(line)) if line.ends_with('\n') => Line::Typed(line),
            _ => Line::Closed,
        };
        self.is_asked = false;
        line
    }
}

/// Waits for a line on the terminal.
pub fn line_within(time: Duration) -> Line {
    static READER: Mutex<Option<Reader>> = Mutex::new(None);
    let mut reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    if reader.is_none() {
        *reader = Reader::start();
    }
    reader.as_mut().map_or(Line::Closed, |reader| reader.line_within(time))
}

/// Whether an answer is yes: a hasty one, such as "yellow", must not write a dock.
fn means_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_and_yes_write_a_dock() {
        for yes in ["y\n", "Y\r\n", " yes \n", "YES"] {
            assert!(means_yes(yes), "{yes:?}");
        }
        for no in ["", "\n", "n", "yellow\n", "yn\n", "yes please\n", "yep\n", "ja"] {
            assert!(!means_yes(no), "{no:?}");
        }
    }

    #[test]
    fn a_choice_is_a_number_of_the_list_and_nothing_else() {
        assert_eq!((number_in("1\n", 3), number_in(" 3 \n", 3)), (Some(1), Some(3)));
        for none in ["0", "4", "-1", "1x", "y", "1 2", "99999999999999999999"] {
            assert_eq!(number_in(none, 3), None, "{none:?}");
        }
    }

    #[test]
    fn without_a_terminal_with_yes_and_with_json_nothing_is_chosen() {
        // A test has no terminal on both streams, or nobody at it.
        let_choose(false);
        assert!(!can_choose());
    }
}
