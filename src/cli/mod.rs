//! The command line: turns arguments into calls, and results into text.
//!
//! ```text
//! arguments ─► clap ─┬─► Cli ──────────────────► dispatch ─► a command's run ─┬─► Exit
//!                    └─► Invocation ─► Context ─────┘                         └─► AnyFailure ─► errors::report_end ─► Exit
//!                             └──────────► advice, the commands to run next ──────────────────────────┘
//! ```
//!
//! - `Context` has what every command needs: how much is printed, and the [`Invocation`], of which each printed command is
//!   made.
//! - A file that the user names is looked at once: `image_file::look` gives its [`FileKind`](crate::file_kind::FileKind). A
//!   command takes the kinds that it can use; `image_file::no_image` names every other, and the command that takes it.
//! - Everything that is printed goes through `print`, a line at a time: text from outside can't make one.
//! - An error becomes text, JSON and an exit status in [`errors`]. `advice` words what to do about it for the command that
//!   was run.
//!
//! Its folders are its floors, and none reaches up:
//!
//! - `commands`: one file or folder per subcommand. To add one: a file with `Args` (its doc comment is the help) and
//!   `run(Args, &Context) -> Result<Exit, AnyFailure>`, a variant in `CliCommand`, a line in `dispatch`.
//! - `given`: what they share: options, the settings of a run, and what the user named.
//! - `words`: what words and prints: the command that was run, steps, advice, errors, tables, the terminal.

#[macro_use]
mod words;

mod commands;
mod given;

use std::ffi::OsString;
use std::process::ExitCode;

use asm2464_host::usb::sysfs::Sysfs;
use clap::{ColorChoice, CommandFactory, FromArgMatches as _, Parser};

pub use self::commands::flash::steps;
use self::commands::{CliCommand, dispatch, help, virtual_unit};
use self::given::context::{Context, RunCommand};
use self::given::log::LogArgs;
use self::given::user_files;
use self::words::errors::Exit;
pub use self::words::invocation::Invocation;
use self::words::{ask, command_tree, print, terminal, usage};
pub use self::words::{errors, interrupt};

/// The first lines of the help.
const ABOUT: &str = "Turns an ASM2464PD USB4 enclosure into a USB-to-PCIe bridge for GPUs.";

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(about = ABOUT, long_about = format!("{ABOUT}\n\nEach command prints the next; `asmpatch doctor` says whether a \
runtime can start. `asmpatch demo` shows the whole trip on a virtual unit, with nothing attached."))]
#[command(name = "asmpatch", version, propagate_version = true, arg_required_else_help = true, disable_help_subcommand = true, max_term_width = terminal::WIDEST_TEXT)]
#[command(after_help = EXIT_STATUSES)]
pub struct Cli {
    /// When to colour the output: auto, always or never; auto respects NO_COLOR and pipes.
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    #[arg(hide_possible_values = true, help_heading = "Output")]
    color: ColorChoice,

    /// Print no progress.
    #[arg(long, short, global = true, help_heading = "Output")]
    quiet: bool,

    #[command(flatten)]
    log: LogArgs,

    #[command(subcommand)]
    command: CliCommand,
}

const EXIT_STATUSES: &str = "Each command's -h lists its options, and --help says more of each.\n\nExit status: 0 done, 1 a check failed, 2 usage, 3 bad input, 4 device or USB, \
5 refused for safety, 6 the system failed (disk, rights, network), 130 interrupted.";

/// Runs a command for another one, as [`context::Runs`].
fn run_command(words: &[OsString], context: &Context, json: bool) -> Result<RunCommand, clap::Error> {
    let mut words = words.to_vec();
    if json {
        // Before `--`, behind which all are operands.
        let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.insert(at, "--json".into());
    }
    let matches = command().try_get_matches_from(words)?;
    let command = Cli::from_arg_matches(&matches)?.command;
    let context = context.of_step(json, Invocation::of(&matches));
    let run = || dispatch(command, &context).0;
    let (outcome, said) = if json { print::collect(run) } else { (run(), String::new()) };
    Ok(RunCommand { outcome, said, context })
}

/// Parses the words of a command, the program's name first, and returns what was given.
///
/// # Errors
/// Fails if the words are no command.
pub fn parse<W: Into<OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Result<Invocation, clap::Error> {
    command().try_get_matches_from(words).map(|matches| Invocation::of(&matches))
}

/// Returns the clap command, with the unit that this run's environment names.
pub fn command() -> clap::Command {
    command_tree::register(command_for_pages);
    command_tree::tree()
}

/// Returns the same without that unit, for pages that are kept.
fn command_for_pages() -> clap::Command {
    help::arranged(Cli::command())
}

/// Parses the arguments, runs the command, reports its failure, and returns the exit status.
pub fn main() -> ExitCode {
    let (mut exit, is_output_all) = match run_reported() {
        Ok(ended) => ended,
        Err(error) if error.use_stderr() => {
            print::whole_err(&usage::escaped(error.render().ansi().to_string(), std::env::args_os()));
            (Exit::Usage, false)
        }
        Err(error) => {
            // Help and version.
            print::whole(&error.render().ansi().to_string());
            (Exit::Done, true)
        }
    };
    let is_lost = print::report_lost_output();
    if is_lost && is_output_all && exit == Exit::Done {
        exit = Exit::System;
    }
    ExitCode::from(exit as u8)
}

/// Parses the arguments, runs the command and reports its failure. Returns its status, and whether its output is all that
/// was asked for. Fails if the arguments are wrong.
fn run_reported() -> Result<(Exit, bool), clap::Error> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let matches = command().try_get_matches_from(&words).map_err(|error| usage::with_tips(error, &words))?;
    let cli = Cli::from_arg_matches(&matches)?;
    let invocation = Invocation::of(&matches).on_host(Sysfs::system().forwarding()).writing_to(
        user_files::free_name(Invocation::PATCHED.as_ref()),
        user_files::free_name(Invocation::ORIGINAL.as_ref()),
    );
    let context = Context::new(cli.color, cli.quiet, &cli.log, invocation, run_command);
    ask::let_choose(!context.json && !context.invocation.is_given("yes"));
    // Start the log before anything else: a file that can't be written stops the command.
    let (log, checked) = match cli.log.start() {
        Ok(log) => (log, usage::refuse_placeholders(&context.invocation)),
        Err(error) => (None, Err(error)),
    };
    let (outcome, is_output_all) = match checked {
        Ok(()) => dispatch(cli.command, &context),
        Err(failure) => (Err(failure.into()), false),
    };
    let exit = outcome.unwrap_or_else(|failure| errors::report_end(&failure, context.json, &context.invocation));
    virtual_unit::remind(&context);
    drop(log);
    Ok((exit, is_output_all))
}

#[cfg(test)]
pub(crate) mod tests {
    mod printed;
    mod schemas;

    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Lists the files below a folder that have this extension.
    pub(super) fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files.extend(files_below(&path, extension));
            } else if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
        files
    }

    /// Splits a line into words as a shell does, up to a redirection or a pipe. Handles no nested quotes.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                (None, '>' | '|' | ';') => break,
                (None, ' ') => words.push(String::new()),
                (_, c) => words.last_mut().unwrap().push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    pub(super) fn each_leaf(command: &clap::Command, path: &str, visit: &mut impl FnMut(&str, &clap::Command)) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        if !command.has_subcommands() {
            return visit(&path, command);
        }
        command.get_subcommands().for_each(|below| each_leaf(below, &path, visit));
    }

    #[test]
    fn no_usage_and_no_indented_line_of_a_help_is_broken_on_a_terminal_of_80_columns() {
        each_leaf(&command(), "", &mut |path, leaf| {
            let name = path.to_owned();
            let usage = leaf.clone().bin_name(name).render_usage().to_string();
            let after = leaf.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in usage.lines().chain(after.lines().filter(|line| line.starts_with(' '))) {
                assert!(line.chars().count() <= 80, "{path}: {line:?}");
            }
        });
    }

    #[test]
    fn each_commands_help_has_examples_of_it_that_parse() {
        each_leaf(&command(), "", &mut |path, leaf| {
            let help = leaf.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.split_once("Examples:\n").map(|(_, after)| after).unwrap_or_default();
            // Two spaces separate an example from its explanation.
            let commands = examples.lines().filter_map(|line| line.trim().split("  ").next());
            let lines: Vec<&str> =
                commands.flat_map(|line| line.split("; ")).filter(|l| l.starts_with("asmpatch")).collect();
            assert!(!lines.is_empty(), "`{path} --help` has no examples");
            for line in lines {
                assert!(line.starts_with(path), "{line:?} is no example of `{path}`");
                let parsed = command().try_get_matches_from(words(line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        });
    }
}
