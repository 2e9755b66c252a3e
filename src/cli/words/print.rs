//! The only writer of everything that the command prints.
//!
//! A line that can't be written is lost: no command panics or stops because its output goes to a closed pipe, a full
//! disk or a terminal that is gone. A stream that takes nothing for the moment, where a write doesn't wait
//! (O_NONBLOCK), is tried again for [`PATIENCE`], so that it gets the commands that bring a unit back. If the output is
//! all that was asked for, its loss is a failure, unless the reader closed the pipe. `clippy::print_stdout` and
//! `print_stderr` forbid the standard library's macros, which panic.
//!
//! Whatever it prints is escaped: a line with its styles, or the JSON document. **Only the printer ends lines.** A line
//! break within a line is shown by its code, because it came from outside: a name, a manifest, a device's string, which
//! could put a command of its own where asmpatch's stand. Text of several lines is a list of lines.
//!
//! On a terminal, long lines are folded at its width. In a pipe they stay whole, for `grep`.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anstream::adapter::strip_str;
use anstream::stream::{AsLockedWrite, RawStream};
use anstream::{AutoStream, ColorChoice};
use asm2464::escape::{is_harmful, lines, replaced};
use asm2464_files::queue::Queue;
use serde::Serialize;

use crate::cli::words::terminal;

/// Prints a line to stdout.
macro_rules! outln {
    ($($arg:tt)*) => { $crate::cli::words::print::out([format!($($arg)*)]) };
}

/// Prints a line to stderr.
macro_rules! errln {
    ($($arg:tt)*) => { $crate::cli::words::print::err([format!($($arg)*)]) };
}

/// The first error of stdout: some output is lost.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Whether stdout already has a JSON document: a second one would break its reader.
static HAS_JSON: AtomicBool = AtomicBool::new(false);

/// The most pauses in which a run waits in all for streams that take nothing for the moment, and one pause: 30 s.
const PATIENCE: u32 = 3000;
const PAUSE: Duration = Duration::from_millis(10);

/// The pauses so far for what is printed, and for the log, which must leave the others some.
static WAITED: AtomicU32 = AtomicU32::new(0);
static LOG_WAITED: AtomicU32 = AtomicU32::new(0);

/// What a command, run by another one, has printed to stdout: see [`collect`].
static COLLECTED: Mutex<Option<String>> = Mutex::new(None);

/// Runs a command, and returns what it prints to stdout instead of printing it.
pub fn collect<T>(command: impl FnOnce() -> T) -> (T, String) {
    let set = |text| std::mem::replace(&mut *COLLECTED.lock().unwrap_or_else(PoisonError::into_inner), text);
    set(Some(String::new()));
    let result = command();
    let printed = set(None).unwrap_or_default();
    HAS_JSON.store(false, Ordering::Relaxed);
    (result, printed)
}

/// An object that `--json` prints. docs/json.md lists them, and `schemas/` describes each.
pub trait Document: Serialize {
    /// The version of its format. It grows when a key is removed, or changes its type or its meaning.
    const VERSION: u32 = 1;
}

/// A document preceded by its version.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    document: &'a T,
}

/// Prints a document as the run's result.
pub fn json<T: Document>(document: &T) {
    json_text(&Versioned { schema: T::VERSION, document });
}

/// Prints an array of documents, each with its version, as the run's result.
pub fn json_each<T: Document>(documents: &[T]) {
    let versioned = documents.iter().map(|document| Versioned { schema: T::VERSION, document });
    json_text(&versioned.collect::<Vec<_>>());
}

fn json_text(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            HAS_JSON.store(true, Ordering::Relaxed);
            whole(&(escaped_json(&text) + "\n"));
        }
        // A path that is not UTF-8 can't be written as JSON, so documents have text in its place.
        Err(error) => errln!("asmpatch: the result can't be written as JSON: {error}"),
    }
}

/// Whether the run's JSON document has been printed.
pub fn has_json() -> bool {
    HAS_JSON.load(Ordering::Relaxed)
}

/// The queue of the log on stderr, if there is one.
static LOG: OnceLock<Arc<Queue>> = OnceLock::new();

/// From now on, prints only after the waiting lines of this log are on stderr.
pub fn follow_log(log: Arc<Queue>) {
    let _ = LOG.set(log);
}

/// Waits until earlier log lines are on stderr, so that what is printed next comes after them.
fn settle_log() {
    if let Some(log) = LOG.get() {
        log.settle();
    }
}

/// Writes lines to stdout; remembers the first failure for [`report_lost_output`].
pub fn out<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) {
    to_stdout(&ended(lines), terminal::stdout_width());
}

/// Writes text for programs to stdout: its own line ends stay, and none is folded. Text from outside must be escaped in
/// it.
pub fn whole(text: &str) {
    to_stdout(text, None);
}

/// Escapes each line, and ends it.
fn ended<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> String {
    lines.into_iter().map(|text| line(text.as_ref()) + "\n").collect()
}

/// Returns a text as stdout takes it, for a pager in its place: without styles if it takes none.
pub fn for_stdout(text: &str) -> String {
    if anstream::stdout().current_choice() == ColorChoice::Never {
        strip_str(text).to_string()
    } else {
        text.to_owned()
    }
}

fn to_stdout(text: &str, width: Option<usize>) {
    if let Some(collected) = &mut *COLLECTED.lock().unwrap_or_else(PoisonError::into_inner) {
        return collected.push_str(text);
    }
    settle_log();
    if let Err(error) = write(anstream::stdout, text, width, &WAITED) {
        let _ = LOST.set(error);
    }
}

/// Writes lines to stderr. Ignores errors, because there is nobody to tell.
pub fn err<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) {
    whole_err(&ended(lines));
}

/// Writes a question to stderr, which the answer follows on its line.
pub fn ask(question: &str) {
    whole_err(&(line(question) + " "));
}

/// Writes text of asmpatch's own to stderr, with its line ends. Text from outside must be escaped in it.
pub fn whole_err(text: &str) {
    settle_log();
    let _ = write(anstream::stderr, text, terminal::stderr_width(), &WAITED);
}

/// Writes a line of the log to stderr.
///
/// # Errors
/// The system's error.
pub fn log(line: &str) -> io::Result<()> {
    write(anstream::stderr, line, None, &LOG_WAITED)
}

/// Writes the whole text in one call, so that lines of several threads do not mix. Folds it at `width`, if there is one.
fn write<S: RawStream + AsLockedWrite>(
    stream: impl FnOnce() -> AutoStream<S>,
    text: &str,
    width: Option<usize>,
    waited: &AtomicU32,
) -> io::Result<()> {
    // Values from outside are escaped when they are put into the text. This makes sure of it.
    let mut text = printed(text);
    if let Some(width) = width {
        text = terminal::fold(&text, width);
    }
    terminal::among_bars(|| {
        let mut stream = stream();
        // Done by the stream, it would not know after an error how much it has written.
        if stream.current_choice() == ColorChoice::Never {
            text = strip_str(&text).to_string();
        }
        write_all(&mut stream, text.as_bytes(), waited)
    })
}

/// Writes all bytes, and waits while the stream takes none, until [`PATIENCE`] is at its end.
fn write_all(stream: &mut impl Write, mut bytes: &[u8], waited: &AtomicU32) -> io::Result<()> {
    loop {
        let outcome = if bytes.is_empty() { stream.flush().map(|()| 0) } else { stream.write(bytes) };
        match outcome {
            Ok(0) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && waited.load(Ordering::Relaxed) < PATIENCE => {
                waited.fetch_add(1, Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Escapes a line. Keeps the sequences that set colours and weights (SGR), because asmpatch's own styles need them.
fn line(text: &str) -> String {
    replaced(&printed(text), |c| (c == '\n').then(|| c.escape_default().to_string()))
}

/// Escapes text that is printed as a whole. Keeps what [`lines`] and [`line`] keep.
fn printed(text: &str) -> String {
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
fn escaped_json(document: &str) -> String {
    let code = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    // JSON has line ends outside strings, but never inside them.
    replaced(document, |c| (is_harmful(c) && c != '\n').then(|| code(c)))
}

/// Reports on stderr that some of stdout was lost, unless its reader closed it on purpose as `head` does. Returns
/// whether it was lost.
pub fn report_lost_output() -> bool {
    match LOST.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            errln!("asmpatch: some output was lost: cannot write to stdout: {error}");
            true
        }
        _ => false,
    }
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

    /// A stream that takes three bytes at each second call.
    struct Slow(Vec<u8>, u32);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            if !self.1.is_multiple_of(2) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let len = bytes.len().min(3);
            self.0.extend(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.write(&[]).map(drop)
        }
    }

    #[test]
    fn a_stream_that_takes_nothing_for_the_moment_is_tried_again_until_patience_ends() {
        let mut slow = Slow(Vec::new(), 0);
        write_all(&mut slow, b"asmpatch restore", &AtomicU32::new(0)).unwrap();
        assert_eq!(slow.0, b"asmpatch restore");
        let waited = AtomicU32::new(PATIENCE - 2);
        let error = write_all(&mut slow, b"asmpatch restore", &waited).unwrap_err();
        assert_eq!((error.kind(), waited.into_inner()), (io::ErrorKind::WouldBlock, PATIENCE));
    }

    #[test]
    fn only_the_printer_ends_a_line() {
        assert_eq!(
            ended(["a\nasmpatch flash x -y #", "\x1b[1mb\x1b[0m"]),
            "a\\nasmpatch flash x -y #\n\x1b[1mb\x1b[0m\n"
        );
    }

    proptest! {
        #[test]
        fn escaped_json_reads_back_as_it_was(text: String) {
            let document = escaped_json(&serde_json::to_string_pretty(&[&text]).unwrap());
            prop_assert_eq!(serde_json::from_str::<Vec<String>>(&document).unwrap(), [text]);
            prop_assert!(!document.chars().any(|c| is_harmful(c) && c != '\n'));
        }
    }
}
