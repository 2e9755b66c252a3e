//! `-v`, `-vv` and `--log-file`: writes the library's `tracing` events to stderr or a file.
//!
//! A thread writes the lines. The threads that work with units only queue them: a full file, or a terminal that takes
//! no text, costs lines and never delays a unit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use asm2464::escape::Escape as _;
use asmpatch_files::file;
use thiserror::Error;
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::print;

/// The most bytes that may wait to be written. Lines beyond them are dropped.
const BACKLOG: usize = 16 << 20;
/// How long the end of a command waits for its log, and a printed line for the log lines before it.
const LAST_WRITE: Duration = Duration::from_secs(5);
/// Prefixes of our crates' events' targets. Events of other crates are left out.
const OURS: [&str; 2] = ["asm2464", "asmpatch"];

/// The options for what to log and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct LogArgs {
    /// Log to stderr: units opened, steps, resets, retries. -vv also logs each command and its answer. Prints digests
    /// whole.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Log to FILE instead, with times; everything that -vv logs, unless you give -v. Appends to FILE.
    #[arg(long, global = true, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

/// The log can't be opened.
#[derive(Debug, Error)]
#[error("cannot log to {}", path.display())]
pub struct LogError {
    path: PathBuf,
    source: io::Error,
}

asm2464::coded!(LogError => "asmpatch::log::file");

/// A run's log. Dropping it reports missing lines.
pub struct Log {
    queue: Arc<LineQueue>,
    path: Option<PathBuf>,
}

/// The queue of the log on stderr, if there is one. Printed text waits for its lines.
static ON_STDERR: OnceLock<Arc<LineQueue>> = OnceLock::new();

impl LogArgs {
    /// Whether `--verbose` was given.
    pub const fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Starts the log if one is requested.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn start(&self) -> Result<Option<Log>, LogError> {
        let level = match (self.verbose, &self.log_file) {
            (0, None) => return Ok(None),
            (1, _) => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        };
        let queue = Arc::new(LineQueue::default());
        let sink: Sink = match &self.log_file {
            Some(path) => {
                let opened = file::open_own(path).and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
                into_file(opened.map_err(|source| LogError { path: path.clone(), source })?)
            }
            None => {
                let _ = ON_STDERR.set(Arc::clone(&queue));
                Box::new(print::log)
            }
        };
        let has_times = self.log_file.is_some();
        let writer = Arc::clone(&queue);
        // If the thread can't be started, there is no log, and the work goes on.
        if thread::Builder::new().name("log".to_owned()).spawn(move || writer.write(sink)).is_ok() {
            let _ =
                tracing::subscriber::set_global_default(LineSubscriber { queue: Arc::clone(&queue), level, has_times });
        }
        Ok(Some(Log { queue, path: self.log_file.clone() }))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let (lost, failure) = self.queue.finish();
        if lost > 0 {
            let place = self.path.as_deref().unwrap_or(Path::new("stderr")).shown();
            errln!("asmpatch: the log lacks {lost} lines: cannot write to {place}: {failure}");
        }
    }
}

thread_local! {
    /// The unit that this thread works on, if the run has several.
    static UNIT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Sets which of several units the thread works on. Its log lines begin with the unit.
pub fn about(unit: Option<&str>) {
    UNIT.set(unit.map(str::to_owned));
}

/// Waits until earlier log lines are on stderr, so that what is printed next comes after them.
pub fn settle() {
    if let Some(queue) = ON_STDERR.get() {
        queue.settle();
    }
}

/// Writes a line to where the log goes.
type Sink = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

fn into_file(mut file: File) -> Sink {
    Box::new(move |line| file.write_all(line.as_bytes()))
}

/// The lines that wait for the writing thread.
#[derive(Default)]
struct LineQueue {
    state: Mutex<QueuedLines>,
    /// Signals a line to write, or the end of the run.
    filled: Condvar,
    /// Signals that a line was written or lost.
    emptied: Condvar,
}

#[derive(Default)]
struct QueuedLines {
    lines: VecDeque<String>,
    /// Number of bytes in the waiting lines.
    waiting: usize,
    /// Number of lines that were queued, and how many of them were written or lost.
    queued: u64,
    done: u64,
    lost: u64,
    failure: Option<String>,
    is_over: bool,
    /// Whether the sink accepts no text. Nobody waits for it any more.
    is_stuck: bool,
}

impl LineQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedLines> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut state = self.lock();
        if state.is_over || state.failure.is_some() || state.waiting + line.len() > BACKLOG {
            state.lost += 1;
            return;
        }
        state.waiting += line.len();
        state.queued += 1;
        state.lines.push_back(line);
        drop(state);
        self.filled.notify_one();
    }

    /// Writes lines until the run is over or the sink fails.
    fn write(&self, mut sink: Sink) {
        loop {
            let waited = self.filled.wait_while(self.lock(), |state| state.lines.is_empty() && !state.is_over);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(line) = state.lines.pop_front() else { return };
            state.waiting -= line.len();
            drop(state);
            let outcome = sink(&line);
            let mut state = self.lock();
            state.done += 1;
            if let Err(error) = outcome {
                state.lost += 1 + state.queued - state.done;
                state.done = state.queued;
                state.lines.clear();
                state.failure = Some(error.to_string());
            }
            drop(state);
            self.emptied.notify_all();
        }
    }

    /// Waits for the lines that are queued at this moment.
    fn settle(&self) {
        let state = self.lock();
        let queued = state.queued;
        let (mut state, timeout) = self
            .emptied
            .wait_timeout_while(state, LAST_WRITE, |state| state.done < queued && !state.is_stuck)
            .unwrap_or_else(PoisonError::into_inner);
        state.is_stuck |= timeout.timed_out();
    }

    /// Writes the waiting lines, for five seconds at most. Returns how many lines were lost, and why.
    fn finish(&self) -> (u64, String) {
        self.settle();
        let mut state = self.lock();
        state.is_over = true;
        self.filled.notify_all();
        let unwritten = state.queued - state.done;
        let failure = state.failure.take().unwrap_or_else(|| "it is too slow".to_owned());
        (state.lost + unwritten, failure)
    }
}

/// Turns events into lines.
struct LineSubscriber {
    queue: Arc<LineQueue>,
    level: LevelFilter,
    has_times: bool,
}

impl Subscriber for LineSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && OURS.iter().any(|ours| metadata.target().starts_with(ours))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        if self.has_times {
            // Writing into a String can't fail.
            let _ = write!(line, "{} ", humantime::format_rfc3339_millis(SystemTime::now()));
        }
        let level = if *event.metadata().level() <= LevelFilter::INFO { "info" } else { "debug" };
        let _ = write!(line, "{level}: ");
        UNIT.with_borrow(|unit| {
            if let Some(unit) = unit {
                let _ = write!(line, "{}: ", unit.shown());
            }
        });
        // The events have no field but the message.
        event.record(&mut |_: &Field, message: &dyn fmt::Debug| {
            let _ = writeln!(line, "{}", format!("{message:?}").shown());
        });
        self.queue.push(line);
    }

    // The library has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_sink_that_takes_nothing_costs_lines_and_holds_up_nobody() {
        let queue = Arc::new(LineQueue::default());
        // Nobody writes here: lines that do not fit are lost and counted.
        for _ in 0..20 {
            queue.push("x".repeat(1 << 20));
        }
        let state = queue.lock();
        assert_eq!((state.lines.len(), state.lost), (16, 4));
    }

    #[test]
    fn text_from_outside_forges_no_line_and_other_crates_have_none() {
        let queue = Arc::new(LineQueue::default());
        let lines = LineSubscriber { queue: Arc::clone(&queue), level: LevelFilter::INFO, has_times: false };
        tracing::subscriber::with_default(lines, || {
            about(Some("virtual:a\nb"));
            tracing::info!("{}", "x\ninfo: forged\x1b[2J");
            tracing::info!(target: "other_crate", "not ours");
            tracing::debug!("of -vv");
        });
        assert_eq!(queue.lock().lines, ["info: virtual:a\\nb: x\\ninfo: forged\\u{1b}[2J\n"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_ends_the_log_and_says_so() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let queue = Arc::new(LineQueue::default());
        let writer = Arc::clone(&queue);
        let (ended, has_ended) = std::sync::mpsc::channel();
        thread::spawn(move || {
            writer.write(into_file(full));
            ended.send(())
        });
        queue.push("one\n".to_owned());
        queue.settle();
        queue.push("two\n".to_owned());
        let (lost, failure) = queue.finish();
        assert_eq!(lost, 2);
        assert!(failure.contains("No space left"), "{failure}");
        has_ended.recv_timeout(Duration::from_secs(5)).unwrap();
    }
}
