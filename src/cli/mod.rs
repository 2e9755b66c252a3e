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
//! - A file that the user names is looked at once: `user_files::look` gives its [`FileKind`](crate::file_kind::FileKind). A
//!   command takes the kinds that it can use; `user_files::no_image` names every other, and the command that takes it.
//! - Everything that is printed goes through `print`, a line at a time: text from outside can't make one.
//! - An error becomes text, JSON and an exit status in [`errors`]. `advice` words what to do about it for the command that
//!   was run.
//!
//! One file per subcommand. To add one: a file with `Args` (its doc comment is the help) and
//! `run(Args, &Context) -> Result<Exit, AnyFailure>`, a variant in `CliCommand`, a line in `dispatch`.

#[macro_use]
mod print;

mod advice;
mod arguments;
mod ask;
mod backup;
mod bench;
mod completions;
mod config;
mod context;
mod demo;
mod disasm;
mod doctor;
mod download;
pub mod errors;
mod flash;
mod help;
mod info;
pub mod interrupt;
mod invocation;
mod line;
mod list;
mod log;
mod make_patch;
mod markdown;
mod pages;
mod patch;
mod pcie;
mod reset;
mod restore;
mod run;
mod table;
mod terminal;
mod unpatch;
mod usage;
mod user_files;
mod verify;
#[cfg(unix)]
mod virtual_serve;
mod virtual_unit;
mod worded_step;
mod wrap;
mod xdata;

use std::ffi::OsString;
use std::process::ExitCode;

use asm2464::AnyFailure;
use asm2464_host::usb::sysfs::Sysfs;
use clap::{ArgMatches, ColorChoice, CommandFactory, FromArgMatches as _, Parser, Subcommand};

use self::context::Context;
use self::errors::Exit;
pub use self::flash::steps;
pub use self::invocation::Invocation;
use self::log::LogArgs;

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

/// The subcommands, in the order in which you use them.
#[derive(Debug, Subcommand)]
enum CliCommand {
    Download(download::Args),
    Info(info::Args),
    Patch(patch::Args),
    Unpatch(unpatch::Args),
    Verify(verify::Args),
    List(list::Args),
    Backup(backup::Args),
    Flash(flash::Args),
    Restore(restore::Args),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Doctor(doctor::Args),
    Reset(reset::Args),
    Pcie(pcie::Args),
    #[command(subcommand)]
    Xdata(xdata::XdataCommand),
    Bench(bench::Args),
    Wrap(wrap::Args),
    MakePatch(make_patch::Args),
    Run(run::Args),
    Disasm(disasm::Args),
    #[command(subcommand)]
    Virtual(virtual_unit::VirtualCommand),
    Demo(demo::Args),
    Udev(help::UdevArgs),
    Man(help::ManArgs),
    Completions(completions::Args),
    Help(help::Args),
}

/// Runs a command. Returns how it ended, and whether its output is all that it is for: the other commands change a unit or
/// write files, and have done so whether or not anybody reads what they say.
fn dispatch(command: CliCommand, context: &Context) -> (Result<Exit, AnyFailure>, bool) {
    match command {
        CliCommand::Download(args) => (download::run(&args, context), false),
        CliCommand::Info(args) => (info::run(&args, context), true),
        CliCommand::Patch(args) => (patch::run(&args, context), false),
        CliCommand::Unpatch(args) => (unpatch::run(&args, context), false),
        CliCommand::Verify(args) => (verify::run(&args, context), true),
        CliCommand::List(args) => (list::run(&args, context), true),
        CliCommand::Backup(args) => (backup::run(&args, context), false),
        CliCommand::Flash(args) => (flash::run(&args, context), false),
        CliCommand::Restore(args) => (restore::run(&args, context), false),
        CliCommand::Config(command) => (config::run(&command, context), command.only_prints()),
        CliCommand::Doctor(args) => (doctor::run(&args, context), true),
        CliCommand::Reset(args) => (reset::run(&args, context), false),
        CliCommand::Pcie(args) => (pcie::run(&args, context), args.only_prints()),
        CliCommand::Xdata(command) => (xdata::run(&command, context), command.only_prints()),
        CliCommand::Bench(args) => (bench::run(&args, context), true),
        CliCommand::Wrap(args) => (wrap::run(&args, context), false),
        CliCommand::MakePatch(args) => (make_patch::run(&args, context), false),
        CliCommand::Run(args) => (run::run(&args, context), true),
        CliCommand::Disasm(args) => (disasm::run(&args, context), true),
        CliCommand::Virtual(command) => (virtual_unit::run(&command, context), false),
        CliCommand::Demo(args) => (demo::run(&args, context), false),
        CliCommand::Udev(args) => (help::print_udev_rules(&args, context), true),
        CliCommand::Man(args) => (help::write_man(&args, context), true),
        CliCommand::Completions(args) => (completions::run(&args, context), true),
        CliCommand::Help(args) => (help::run(&args, context), true),
    }
}

/// A command that another one has run.
struct RunCommand {
    /// How it ended.
    outcome: Result<Exit, AnyFailure>,
    /// What it has printed to stdout, if that was to be JSON.
    said: String,
    /// Its settings, with what it has left.
    context: Context,
}

/// Runs a command in this process as the program does, from its words, the program's name first. With `json` it prints
/// nothing, and its document is returned.
///
/// # Errors
/// Fails if the words are no command.
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

/// Returns the clap command, for man pages and completions.
pub fn command() -> clap::Command {
    help::arranged(arguments::with_unit_of_environment(Cli::command()))
}

/// Returns the same without what this run's environment names, for pages that are kept.
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
    let context = Context::new(cli.color, cli.quiet, &cli.log, wants_json(&matches), invocation);
    ask::let_choose(!context.json && !context.invocation.is_given("yes"));
    // Start the log before anything else: a file that can't be written stops the command.
    let (log, (outcome, is_output_all)) = match cli.log.start() {
        Ok(log) => match usage::refuse_placeholders(&context.invocation) {
            Ok(()) => (log, dispatch(cli.command, &context)),
            Err(failure) => (log, (Err(failure.into()), false)),
        },
        Err(error) => (None, (Err(error.into()), false)),
    };
    let exit = outcome.unwrap_or_else(|failure| errors::report_end(&failure, context.json, &context.invocation));
    virtual_unit::remind(&context);
    drop(log);
    Ok((exit, is_output_all))
}

/// Whether `--json` was given to the subcommand or to the one below it.
fn wants_json(matches: &ArgMatches) -> bool {
    let given = |matches: &ArgMatches| matches!(matches.try_get_one::<bool>("json"), Ok(Some(true)));
    given(matches) || matches.subcommand().is_some_and(|(_, below)| wants_json(below))
}

#[cfg(test)]
pub(crate) mod tests {
    mod printed;
    mod schemas;

    use super::*;

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
