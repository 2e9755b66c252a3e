//! The arrangement of the help: commands by what they are for, options by what they are about. And the `asmpatch help`
//! command, which also prints the pages of docs/ and what to do about an error.

use clap::{Arg, Command};

use super::command_line::CommandLine;
use super::context::Context;
use super::errors::{self, Exit};
use super::{fold, print, terminal};
use crate::embedded;
use crate::failure::{AnyFailure, Failure};
use crate::suggest;
use asm2464::Kind;

/// Print a command's help, a page of the documents, or advice on an error.
///
/// A page is a file of docs/: the program carries those for users and firmware authors. `asmpatch help README` lists
/// all. One that has a command's name takes its whole name, as in `asmpatch help bench.md`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  asmpatch help flash             as asmpatch flash --help
  asmpatch help recovery          each state of a dock, and the way out
  asmpatch help asmpatch::usb::permission")]
pub struct Args {
    /// A command, a page, or an error's code as it is printed. Without it, the list of commands.
    #[arg(value_name = "COMMAND|PAGE|CODE")]
    topic: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if there is no such command, page or code.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let topic: Vec<&str> = args.topic.iter().map(String::as_str).collect();
    if let Some(help) = command_help(&topic) {
        print::whole(&help.ansi().to_string());
        return Ok(Exit::Done);
    }
    let topic = topic.join(" ");
    if let Some(page) = page(&topic) {
        let width = terminal::stdout_width();
        print::whole(&width.map_or_else(|| page.clone(), |width| fold::page(&page, terminal::text_width(Some(width)))));
        return Ok(Exit::Done);
    }
    if let Some((code, status, advice)) = code(&topic, &context.command_line) {
        outln!("{code}: exit status {status}");
        outln!("  help: {advice}");
        return Ok(Exit::Done);
    }
    let mut names = embedded::page_names();
    names.extend(super::command().get_subcommands().map(|below| below.get_name().to_owned()));
    names.extend(errors::codes().map(str::to_owned));
    let near = suggest::nearest(&topic, names.iter().map(String::as_str));
    let message = format!("no command, page or error code is {topic:?}{}", suggest::question(near));
    Err(Failure::new(Kind::Usage.code("asmpatch::help::topic"), message).into())
}

/// Returns the long help of the command at this path, if it is one; of the program for an empty path.
fn command_help(path: &[&str]) -> Option<clap::builder::StyledStr> {
    let mut command = super::command();
    command.build();
    let mut below = &mut command;
    for name in path {
        below = below.find_subcommand_mut(name)?;
    }
    Some(below.render_long_help())
}

/// Returns the page of docs/ that is named by its name, its file or its path.
fn page(name: &str) -> Option<String> {
    let name = name.strip_prefix("docs/").unwrap_or(name);
    embedded::page(name).or_else(|| embedded::page(&format!("{name}.md")))
}

/// Returns an error's code as it is printed, the exit status and the advice. The library's name for the code serves too.
fn code(name: &str, line: &CommandLine) -> Option<(&'static str, String, String)> {
    let prefix = ["asm2464", "asmpatch"].iter().find_map(|prefix| name.strip_prefix(prefix)?.strip_prefix("::"));
    let own = prefix.unwrap_or(name);
    let code = errors::codes().find(|code| code.split_once("::").is_some_and(|(_, rest)| rest == own))?;
    let advice = errors::help_by_code(code, line)?;
    // The page lists each code with its status, which is in no other table: an error carries it.
    let page = embedded::page("errors.md")?;
    let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{code}` | ")))?;
    let status = row.split(' ').next()?.to_owned();
    Some((code, status, advice))
}

/// Whether `asmpatch help` with these words prints something.
#[cfg(test)]
pub fn is_topic(words: &[&str]) -> bool {
    let name = words.join(" ");
    command_help(words).is_some() || page(&name).is_some() || errors::codes().any(|code| code == name)
}

/// The commands by what they are for, in the order in which you use them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Dock", &["list", "doctor", "backup", "flash", "restore", "config", "reset", "pcie", "xdata", "bench"]),
    ("Image", &["download", "info", "patch", "unpatch", "verify"]),
    ("Firmware author", &["wrap", "make-patch", "run", "disasm"]),
    ("Trial and set-up", &["demo", "virtual", "udev", "completions", "man", "help"]),
];

/// Which firmware a dock needs, by the GPU runtime: both roads, today's first. README.md has the table with its sources.
pub const ROADS: &str = "\
Your GPU runtime decides which firmware the dock needs:
  tinygrad from v0.14.0 on  the open one    asmpatch flash ed4e39b
  tinygrad up to v0.13.0    the patched one asmpatch download -o stock.bin";

/// Groups the commands and their options, and hides from `-h` the options that every command has.
pub fn arranged(command: Command) -> Command {
    let groups = groups(&command);
    let header = command.get_styles().get_header();
    let options = format!("{header}Options:{header:#}");
    with_headings(command)
        .mut_args(|arg| if arg.is_global_set() { arg.hide_short_help(true) } else { arg })
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\n{options}\n{{options}}{{after-help}}"
        ))
}

fn groups(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let width = terminal::text_width(terminal::stdout_width());
    let about = |name: &str| match command.find_subcommand(name).and_then(Command::get_about) {
        Some(about) => about.to_string(),
        None => String::new(),
    };
    let line = |name: &&str| fold::fold(&format!("  {name:<12} {}\n", about(name)), width);
    let group = |(title, names): &(&str, &[&str])| {
        format!("\n{header}{title}:{header:#}\n{}", names.iter().map(line).collect::<String>())
    };
    GROUPS.iter().map(group).collect()
}

fn with_headings(command: Command) -> Command {
    command.mut_args(with_heading).mut_subcommands(with_headings)
}

fn with_heading(arg: Arg) -> Arg {
    let heading = match arg.get_id().as_str() {
        "device" | "transport" | "usb_ids" | "device_dirs" | "pcap" => Some("Device"),
        "force" | "unproven" | "clone_identity" | "other_line" | "no_backup" | "unchecked_disks" => Some("Overrides"),
        // clap gives the heading of a group of options to the options after the group, too.
        _ if arg.get_help_heading() == Some("Device") => None,
        _ => return arg,
    };
    arg.help_heading(heading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = crate::cli::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut commands: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        commands.sort_unstable();
        assert_eq!(grouped, commands);
    }

    #[test]
    fn short_help_has_no_options_that_every_command_has() {
        let mut command = crate::cli::command();
        command.build();
        let list = command.find_subcommand_mut("list").unwrap();
        let short = list.render_help().to_string();
        assert!(!short.contains("--log-file") && !short.contains("--color"), "{short}");
        assert!(list.render_long_help().to_string().contains("--log-file"));
    }

    /// The long help of the subcommand at this path.
    fn help(path: &[&str]) -> String {
        let mut command = crate::cli::command();
        command.build();
        let below = path.iter().fold(&mut command, |command, name| command.find_subcommand_mut(name).unwrap());
        below.render_long_help().to_string()
    }

    #[test]
    fn help_knows_commands_pages_by_each_of_their_names_and_codes_by_each_of_theirs() {
        assert_eq!(command_help(&["flash"]).unwrap().to_string(), help(&["flash"]));
        assert_eq!(command_help(&["config", "set"]).unwrap().to_string(), help(&["config", "set"]));
        assert!(command_help(&[]).unwrap().to_string().contains("asmpatch flash ed4e39b"));
        for name in ["recovery", "recovery.md", "docs/recovery.md"] {
            assert!(page(name).unwrap().starts_with("# "), "{name}");
        }
        // A command has the bare name.
        assert!(command_help(&["bench"]).is_some() && page("bench.md").is_some());
        let line = CommandLine::default();
        for name in ["asmpatch::usb::permission", "asm2464::usb::permission", "usb::permission"] {
            let (code, status, advice) = code(name, &line).unwrap();
            assert_eq!((code, status.as_str()), ("asmpatch::usb::permission", "4"), "{name}");
            assert!(advice.contains("asmpatch udev"), "{advice}");
        }
        assert!(errors::codes().all(|name| code(name, &line).is_some()));
        assert!(page("../Cargo.toml").is_none() && code("usb", &line).is_none());
    }

    #[test]
    fn a_command_that_writes_one_unit_names_no_option_for_several() {
        assert!(help(&["flash"]).contains("--all"));
        for path in [&["restore"][..], &["config", "set"]] {
            assert!(!help(path).contains("--all"), "{path:?}");
        }
    }
}
