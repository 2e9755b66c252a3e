//! The settings that every subcommand shares: colours, quiet, what is printed, and how long to wait.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use asm2464::AnyFailure;
use asm2464::digest::Sha256Digest;
use asm2464_chip::chip::ProofBudget;
use asm2464_host::bridge::Location;
use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::given::log::LogArgs;
use crate::cli::words::errors::Exit;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::WordedStep;
use crate::cli::words::{interrupt, terminal};
use crate::image::Images;
use crate::patch::Library;

/// The settings of one run that every subcommand needs.
#[derive(Debug)]
pub struct Context {
    /// Whether to print only results and errors.
    pub(in crate::cli) is_quiet: bool,
    /// Whether to print everything: whole digests, and details that are otherwise left out.
    pub(in crate::cli) is_verbose: bool,
    /// Whether the log shows each step on stderr, so that nothing else has to.
    pub(in crate::cli) is_logged: bool,
    /// Whether the result is printed as JSON.
    pub(in crate::cli) json: bool,
    /// The command that was run.
    pub(in crate::cli) invocation: Arc<Invocation>,
    /// What it leaves to a command that runs it.
    left: Mutex<Left>,
    /// Runs another command.
    runs: Runs,
}

/// Runs a command in this process as the program does, from its words, the program's name first. If it is to print JSON, it
/// prints nothing, and its document is returned. Fails if the words are no command.
pub type Runs = fn(&[OsString], &Context, bool) -> Result<RunCommand, clap::Error>;

/// A command that another one has run.
#[derive(Debug)]
pub struct RunCommand {
    /// How it ended.
    pub outcome: Result<Exit, AnyFailure>,
    /// What it has printed to stdout, if that was to be JSON.
    pub said: String,
    /// Its settings, with what it has left.
    pub context: Context,
}

/// What a command leaves to the command that runs it, beside what it prints.
#[derive(Debug, Default)]
pub struct Left {
    /// Where the unit is now, if the command knows it.
    pub location: Option<Location>,
    /// The steps that it has printed after a write that was refused or stopped.
    pub steps: Vec<WordedStep>,
    /// Whether it has begun to write a flash, or found there what it was to write.
    pub has_begun: bool,
}

/// Shortens a digest to its first 16 digits.
pub fn short(digest: &str) -> String {
    format!("{}…", digest.get(..16).unwrap_or(digest))
}

impl Context {
    /// Sets the colour choice for the whole process: everything is printed through `anstream`. With `--verbose`
    /// everything is printed. `runs` runs other commands.
    pub fn new(color: ColorChoice, is_quiet: bool, log: &LogArgs, invocation: Invocation, runs: Runs) -> Self {
        match color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self {
            is_quiet,
            is_verbose: log.is_verbose(),
            is_logged: log.is_on_stderr(),
            json: invocation.is_given("json"),
            invocation: Arc::new(invocation),
            left: Mutex::default(),
            runs,
        }
    }

    /// The settings of a command that this one runs, with its own command line.
    pub fn of_step(&self, json: bool, invocation: Invocation) -> Self {
        Self {
            is_quiet: self.is_quiet || json,
            is_verbose: self.is_verbose,
            is_logged: self.is_logged,
            json,
            invocation: Arc::new(invocation),
            left: Mutex::default(),
            runs: self.runs,
        }
    }

    /// Runs another command, as [`Runs`].
    ///
    /// # Errors
    /// Fails if the words are no command.
    pub fn run(&self, words: &[OsString], json: bool) -> Result<RunCommand, clap::Error> {
        (self.runs)(words, self, json)
    }

    /// Notes what the command leaves.
    pub fn leave(&self, left: Left) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    /// Takes what the command has left.
    pub fn taken_left(&self) -> Left {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a digest as a person reads it: its first 16 digits, or all of them with `--verbose`.
    pub fn digest(&self, digest: &Sha256Digest) -> String {
        let whole = digest.to_string();
        if self.is_verbose { whole } else { short(&whole) }
    }

    /// Whether to draw progress: not with `--quiet`, and not into a pipe.
    pub fn shows_progress(&self) -> bool {
        !self.is_quiet && std::io::stderr().is_terminal()
    }

    /// Returns a spinner that moves while a unit is at work.
    pub fn spinner(&self) -> ProgressBar {
        let bar = terminal::bars(self.shows_progress()).add(ProgressBar::new_spinner());
        terminal::keep_drawn(&bar, Duration::from_millis(120));
        bar
    }

    /// Returns what is known of images in this run: nothing yet. A proof that takes long is shown as a bar.
    pub fn images(&self, library: Library) -> Images {
        let shows_progress = self.shows_progress();
        Images::new(library, move || {
            let bars = terminal::bars(shows_progress);
            let mut bar = None;
            ProofBudget::new(interrupt::install(), move |computed: Duration| {
                let bar = bar.get_or_insert_with(|| bars.add(proof_bar()));
                bar.set_message(format!("{:.1}", computed.as_secs_f32()));
                bar.set_position(computed.as_millis() as u64);
            })
        })
    }
}

fn proof_bar() -> ProgressBar {
    let bar = ProgressBar::new(ProofBudget::LIMIT.as_millis() as u64);
    let limit = ProofBudget::LIMIT.as_secs();
    let template = format!("booting the image on the chip model [{{bar:14}}] {{msg}} of {limit} s at most");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

/// The variable with a whole number that divides every deadline. For tests only, so that waiting for thousands of lost
/// units takes minutes. Only a build with debug assertions reads it: a variable in a user's environment must not make
/// `flash` give up on a unit that is still starting.
const SHORTEN: &str = "ASMPATCH_TEST_SHORTEN_DEADLINES";

/// How long a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// How long a unit may take to come back by itself.
    pub come_back: Duration,
    /// How long the user may then take to plug it in again.
    pub replug: Duration,
}

impl Deadlines {
    /// Returns the deadlines, shortened if a test asks for it.
    pub fn of_this_run() -> Self {
        let asked = env::var(SHORTEN).ok();
        Self { come_back: Duration::from_secs(15), replug: Duration::from_secs(120) }
            .shortened(divisor(asked.as_deref(), cfg!(debug_assertions)))
    }

    fn shortened(self, divisor: u32) -> Self {
        let divisor = divisor.max(1);
        Self { come_back: self.come_back / divisor, replug: self.replug / divisor }
    }
}

fn divisor(asked: Option<&str>, is_test_build: bool) -> u32 {
    match asked {
        Some(text) if is_test_build => text.parse().unwrap_or(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_waits_as_long_as_it_says_whatever_the_environment_asks_for() {
        assert_eq!(divisor(Some("100"), true), 100);
        assert_eq!(divisor(Some("100"), false), 1);
        assert_eq!((divisor(None, true), divisor(Some("much"), true)), (1, 1));
    }

    #[test]
    fn deadlines_shrink_in_proportion_and_no_divisor_is_zero() {
        let full = Deadlines { come_back: Duration::from_secs(15), replug: Duration::from_secs(120) };
        let short = Deadlines { come_back: Duration::from_millis(150), replug: Duration::from_millis(1200) };
        assert_eq!(full.shortened(100), short);
        assert_eq!(full.shortened(0), full);
    }
}
