//! The `asmpatch help` command: prints the help of a command, a page of docs/, or what to do about an error. And the
//! arrangement of the help: commands by what they are for, options by what they are about.

use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_chip::chip::{Register, registers};
use clap::{Arg, Command};

use crate::cli::given::context::Context;
use crate::cli::words::advice_part::AdvicePart;
use crate::cli::words::command_tree;
use crate::cli::words::errors::{Advised, Exit, by_code};
use crate::cli::words::invocation::Invocation;
use crate::cli::words::printed_command::PrintedCommand;
use crate::cli::words::worded_step::lines;
use crate::cli::words::{pages, print, table, terminal};
use crate::{embedded, shell, suggest};

/// Print a command's help, a page of the documents, or advice on an error.
///
/// Other words, such as a register's name, are looked for in the pages: first in their headings, then in the text. A page is a file of docs/: the program carries those for users and firmware authors. `asmpatch help README` lists
/// all. One that has a command's name takes its whole name, as in `asmpatch help bench.md`. A long page is shown by
/// its sections: name one after it, or add --all. On a terminal, $PAGER or less shows what doesn't fit.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  asmpatch help flash             as asmpatch flash --help
  asmpatch help first-steps       from a new dock to a GPU that works
  asmpatch help recovery          each state of a dock, and the way out
  asmpatch help recovery \"The unit is not listed\"
  asmpatch help asmpatch::usb::permission")]
pub struct Args {
    /// A command, a page, or an error's code as it is printed. Without it, the list of commands.
    #[arg(value_name = "COMMAND|PAGE [SECTION]|CODE")]
    topic: Vec<String>,

    /// Print the whole page, also if it is long.
    #[arg(long)]
    all: bool,
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
    if let Some((page, section)) = pages::page_and_section(&topic) {
        pages::show(topic[0], &page, &section, args.all)?;
        return Ok(Exit::Done);
    }
    let topic = topic.join(" ");
    // Addresses stand in the pages without a prefix.
    let address = topic.strip_prefix("0x").or_else(|| topic.strip_prefix("0X")).unwrap_or(&topic).to_uppercase();
    let address = u16::from_str_radix(&address, 16).ok().filter(|_| address.len() == 4).zip(Some(address));
    let topic = match &address {
        Some((_, digits)) if !pages::places(digits).is_empty() => digits.clone(),
        _ => topic,
    };
    let file = pages::file_of(&topic);
    if let Some(path) = embedded::pages_left_out().iter().find(|path| path.ends_with(&format!("/{file}"))) {
        let message = format!("{path} is a page of asmpatch's repository, not of the program");
        return Err(Failure::new(Kind::Usage.code("asmpatch::help::page_elsewhere"), message).into());
    }
    if let Some((code, status, advice)) = code(&topic, &context.invocation) {
        outln!("{code}: exit status {status}");
        for (label, line) in table::under("help:", advice) {
            outln!("  {label:<5} {line}");
        }
        return Ok(Exit::Done);
    }
    let places = pages::places(&topic);
    if let [pages::Place { page, section }] = &places[..] {
        let text = pages::page(page).unwrap_or_default();
        pages::show(page, &text, section, args.all)?;
        return Ok(Exit::Done);
    }
    let is_it = |register: &Register| {
        let is_there = |at: &u16| (register.first..=register.last).contains(at);
        register.name.eq_ignore_ascii_case(&topic) || address.as_ref().is_some_and(|(at, _)| is_there(at))
    };
    if places.is_empty() && registers().any(|(_, register)| is_it(register)) {
        // The page names some of them by a range.
        pages::show("chip", &pages::page("chip").unwrap_or_default(), "", args.all)?;
        return Ok(Exit::Done);
    }
    if !places.is_empty() {
        outln!("{} is in these sections:", topic.shown());
        for pages::Place { page, section } in &places {
            outln!("  asmpatch help {page} {}", shell::word(section));
        }
        return Ok(Exit::Done);
    }
    let mut names = embedded::page_names();
    names.extend(command_tree::tree().get_subcommands().map(|below| below.get_name().to_owned()));
    names.extend(by_code::codes().map(str::to_owned));
    names.extend(registers().map(|(_, register)| register.name.to_owned()));
    let beside = address.as_ref().and_then(|(address, _)| {
        registers().min_by_key(|(_, register)| register.first.abs_diff(*address).min(register.last.abs_diff(*address)))
    });
    let near = match beside {
        Some((_, register)) => Some(register.name),
        None => suggest::nearest(&topic, names.iter().map(String::as_str)),
    };
    let meant = suggest::did_you_mean(near);
    let message = format!("no command, page, register or error code is {topic:?}{meant}");
    let failure = Failure::new(Kind::Usage.code("asmpatch::help::topic"), message);
    let Some(near) = near else { return Err(failure.into()) };
    let step = AdvicePart::Command("if you mean that".into(), PrintedCommand::named("help").operand(near));
    Err(Advised::with(failure, vec![step]))
}

/// Returns the long help of the command at this path, if it is one; of the program for an empty path.
fn command_help(path: &[&str]) -> Option<clap::builder::StyledStr> {
    let mut command = command_tree::tree();
    command.build();
    let mut below = &mut command;
    for name in path {
        below = below.find_subcommand_mut(name)?;
    }
    Some(below.render_long_help())
}

/// Returns an error's code as it is printed, the exit status and the advice. The library's name for the code serves too.
fn code(name: &str, invocation: &Invocation) -> Option<(&'static str, String, Vec<String>)> {
    let prefix = ["asm2464", "asmpatch"].iter().find_map(|prefix| name.strip_prefix(prefix)?.strip_prefix("::"));
    let own = prefix.unwrap_or(name);
    let code = by_code::codes().find(|code| code.split_once("::").is_some_and(|(_, rest)| rest == own))?;
    let advice = lines(&by_code::steps(code, &[], invocation));
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
    let is_page = pages::page_and_section(words)
        .is_some_and(|(page, section)| section.is_empty() || pages::has_section(&page, &section));
    command_help(words).is_some() || is_page || by_code::codes().any(|code| code == name)
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

/// Groups the commands and their options. The options that every command has stand once, in the program's own help.
pub fn arranged(command: Command) -> Command {
    let groups = groups(&command);
    let everywhere = everywhere(&command);
    let header = command.get_styles().get_header();
    let options = format!("{header}Options:{header:#}");
    with_headings(command)
        .mut_args(|arg| shown_globals(arg, false))
        .help_template(format!(
            "{{about-with-newline}}\n{ROADS}\n\n{{usage-heading}} {{usage}}\n{groups}\n{options}\n{{options}}\n\n\
             {everywhere}{{after-help}}"
        ))
        .mut_subcommands(pointing)
}

/// Shows or hides an option that every command has. What is hidden before clap hands it to the subcommands is hidden there.
pub(super) fn shown_globals(arg: Arg, is_shown: bool) -> Arg {
    if arg.is_global_set() { arg.hide_short_help(!is_shown).hide_long_help(!is_shown) } else { arg }
}

/// The options that every command has, as a part of the program's help.
fn everywhere(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let width = terminal::text_width(terminal::stdout_width());
    let mut text = format!("{header}Options of every command:{header:#}\n");
    for arg in command.get_arguments().filter(|arg| arg.is_global_set()) {
        let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
        let long = arg.get_long().unwrap_or_default();
        let value = match arg.get_value_names() {
            Some([name, ..]) if arg.get_action().takes_values() => format!(" <{name}>"),
            _ => String::new(),
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        text += &terminal::fold(&format!("  {:<19}  {help}\n", format!("{short}--{long}{value}")), width);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Says below a command's help where the options of every command are.
fn pointing(command: Command) -> Command {
    let after = command.get_after_help().map(|after| format!("{after}\n\n")).unwrap_or_default();
    command
        .after_help(
            after + "Every command also takes --quiet, --verbose, --color and --log-file: see `asmpatch --help`.",
        )
        .mut_subcommands(pointing)
}

fn groups(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let width = terminal::text_width(terminal::stdout_width());
    let about = |name: &str| match command.find_subcommand(name).and_then(Command::get_about) {
        Some(about) => about.to_string(),
        None => String::new(),
    };
    let line = |name: &&str| terminal::fold(&format!("  {name:<12} {}\n", about(name)), width);
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
        for name in ["recovery", "recovery.md", "docs/recovery.md", "lab/chip.md"] {
            assert!(pages::page(name).unwrap().starts_with("# "), "{name}");
        }
        // A command has the bare name.
        assert!(command_help(&["bench"]).is_some() && pages::page("bench.md").is_some());
        let run = Invocation::default();
        for name in ["asmpatch::usb::permission", "asm2464::usb::permission", "usb::permission"] {
            let (code, status, advice) = code(name, &run).unwrap();
            assert_eq!((code, status.as_str()), ("asmpatch::usb::permission", "4"), "{name}");
            assert!(advice.join("\n").contains("    asmpatch udev"), "{advice:?}");
        }
        assert!(by_code::codes().all(|name| code(name, &run).is_some()));
        assert!(pages::page("../Cargo.toml").is_none() && code("usb", &run).is_none());
    }

    #[test]
    fn a_command_that_writes_one_unit_names_no_option_for_several() {
        assert!(help(&["flash"]).contains("--all"));
        for path in [&["restore"][..], &["config", "set"]] {
            assert!(!help(path).contains("--all"), "{path:?}");
        }
    }

    #[test]
    fn what_every_command_has_stands_once_in_the_help() {
        let whole = help(&[]);
        for said in ["-q, --quiet", "-v, --verbose", "--color <WHEN>", "--log-file <FILE>", "Print no progress"] {
            assert_eq!(whole.matches(said).count(), 1, "{said}: {whole}");
        }
        let flash = help(&["flash"]);
        assert!(!flash.contains("Print no progress") && flash.contains("see `asmpatch --help`"), "{flash}");
    }
}
