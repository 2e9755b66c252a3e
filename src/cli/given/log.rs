//! `-v`, `-vv` and `--log-file`: writes the library's `tracing` events to stderr or a file. Warnings need no option.
//!
//! A thread writes the lines. The threads that work with units only queue them: a full file, or a terminal that takes
//! no text, costs lines and never delays a unit.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use asm2464::escape::Escape as _;
use asm2464::{Failure, Kind};
use asm2464_files::file;
use asm2464_files::queue::{Queue, QueueEnd, Sink};
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::cli::given::user_files;
use crate::cli::words::print;

/// The most bytes that may wait to be written. Further lines are dropped.
const BACKLOG: usize = 16 << 20;
/// Prefixes of our crates' events' targets. Events of other crates are left out.
const OURS: [&str; 2] = ["asm2464", "asmpatch"];

/// The options for what to log and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct LogArgs {
    /// Log to stderr: units opened, steps, resets, retries. -vv also logs each command and its answer. Prints digests
    /// whole, each step of `demo`, and each line of `doctor`.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Log to FILE instead, with times; everything that -vv logs, unless you give -v. Appends to FILE.
    #[arg(long, global = true, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

/// A run's log. Dropping it reports missing lines.
pub struct Log {
    queue: Arc<Queue>,
    path: Option<PathBuf>,
}

impl LogArgs {
    /// Whether `--verbose` was given.
    pub const fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Whether steps are logged to stderr.
    pub const fn is_on_stderr(&self) -> bool {
        self.is_verbose() && self.log_file.is_none()
    }

    const fn level(&self) -> LevelFilter {
        match (self.verbose, &self.log_file) {
            (0, None) => LevelFilter::WARN,
            (1, _) => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        }
    }

    /// Starts the log.
    ///
    /// # Errors
    /// Fails if the file can't be opened.
    pub fn start(&self) -> Result<Option<Log>, Failure> {
        let level = self.level();
        let sink = match &self.log_file {
            Some(path) => {
                user_files::check_name(path)?;
                let opened = file::open_own(path).and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
                LogSink::File(opened.map_err(|cause| {
                    let label = Kind::System.code("asmpatch::log::file");
                    Failure::new(label, format!("cannot log to {}", path.display())).because(cause)
                })?)
            }
            None => LogSink::Stderr,
        };
        // If the thread can't be started, there is no log, and the work goes on.
        let Ok(queue) = Queue::start("log", BACKLOG, Vec::new(), sink) else { return Ok(None) };
        if self.log_file.is_none() {
            print::follow_log(Arc::clone(&queue));
        }
        let lines = LineSubscriber::new(Arc::clone(&queue), level, self.log_file.is_some());
        let _ = tracing::subscriber::set_global_default(lines);
        Ok(Some(Log { queue, path: self.log_file.clone() }))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let QueueEnd { lost, failure, .. } = self.queue.finish(|_, _, _| {});
        if lost > 0 {
            let failure = failure.as_deref().unwrap_or("it is too slow");
            let place = self.path.as_deref().unwrap_or(Path::new("stderr")).shown();
            errln!("asmpatch: the log lacks {lost} lines: cannot write to {place}: {failure}");
        }
    }
}

thread_local! {
    /// The unit that this thread works on, if the run has several. Its log lines begin with the unit.
    static UNIT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Where the log goes.
enum LogSink {
    File(File),
    Stderr,
}

impl Write for LogSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(lines),
            Self::Stderr => print::log(&String::from_utf8_lossy(lines)).map(|()| lines.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// Never cuts an incomplete last line off: the file may have earlier runs' lines.
impl Sink for LogSink {}

/// Turns events into lines.
struct LineSubscriber {
    queue: Arc<Queue>,
    level: LevelFilter,
    has_times: bool,
    /// The units of the library's spans, in the order of their IDs, which count from 1.
    units: Mutex<Vec<String>>,
}

impl LineSubscriber {
    fn new(queue: Arc<Queue>, level: LevelFilter, has_times: bool) -> Self {
        Self { queue, level, has_times, units: Mutex::default() }
    }
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
        let level = event.metadata().level().as_str().to_lowercase();
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
        self.queue.push(line.len(), |lines| lines.extend(line.as_bytes()));
    }

    // The library's spans are the work on one of several units, and name it. None is inside another.
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        span.record(&mut |_: &Field, unit: &dyn fmt::Debug| units.push(format!("{unit:?}")));
        Id::from_u64(units.len().max(1) as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, id: &Id) {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        UNIT.set(units.get(id.into_u64() as usize - 1).cloned());
    }

    fn exit(&self, _: &Id) {
        UNIT.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_forges_no_line_and_other_crates_have_none() {
        let mut file = tempfile::tempfile().unwrap();
        let queue = Queue::start("log", BACKLOG, Vec::new(), LogSink::File(file.try_clone().unwrap())).unwrap();
        let lines = LineSubscriber::new(Arc::clone(&queue), LevelFilter::INFO, false);
        tracing::subscriber::with_default(lines, || {
            let _span = tracing::error_span!("unit", device = %"virtual:a\nb").entered();
            tracing::info!("{}", "x\ninfo: forged\x1b[2J");
            tracing::warn!("no lock");
            tracing::info!(target: "other_crate", "not ours");
            tracing::debug!("of -vv");
        });
        queue.finish(|_, _, _| {});
        file.rewind().unwrap();
        assert_eq!(
            io::read_to_string(file).unwrap(),
            "info: virtual:a\\nb: x\\ninfo: forged\\u{1b}[2J\nwarn: virtual:a\\nb: no lock\n"
        );
    }

    #[test]
    fn a_warning_needs_no_option() {
        let args = LogArgs { verbose: 0, log_file: None };
        assert!(args.level() >= LevelFilter::WARN && args.level() < LevelFilter::INFO);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_ends_the_log_and_says_so() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let queue = Queue::start("log", BACKLOG, Vec::new(), LogSink::File(full)).unwrap();
        let push = |line: &str| queue.push(line.len(), |lines| lines.extend(line.as_bytes()));
        push("one\n");
        queue.settle();
        push("two\n");
        let QueueEnd { received, lost, failure, has_ended } = queue.finish(|_, _, _| {});
        assert_eq!((received, lost, has_ended), (2, 2, true));
        assert!(failure.unwrap().contains("No space left"));
    }
}
