//! The arrangement of the help: commands by what they are for, options by what they are about.

use clap::{Arg, Command};

use super::device::UNIT;
use super::{fold, terminal};

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
    without_records(with_headings(command))
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
        None => "Print the help of a command".to_owned(),
    };
    let line = |name: &&str| fold::fold(&format!("  {name:<12} {}\n", about(name)), width);
    let group = |(title, names): &(&str, &[&str])| {
        format!("\n{header}{title}:{header:#}\n{}", names.iter().map(line).collect::<String>())
    };
    GROUPS.iter().map(group).collect()
}

/// Removes records from the help of the commands that refuse them: those change a unit, or ask what no record has.
fn without_records(command: Command) -> Command {
    let device = |arg: Arg| {
        arg.value_name(UNIT).help(
            "The unit: a port path as in 3-1.2, a serial number, or a virtual unit in a folder. With one unit connected \
             it can be left out",
        )
    };
    let unit = |command: Command| command.mut_arg("device", device);
    let command = command.mut_subcommand("backup", unit).mut_subcommand("reset", unit);
    command.mut_subcommand("config", |config| config.mut_subcommand("get", unit))
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
        let mut commands: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
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
    fn a_command_that_refuses_records_names_none() {
        assert!(help(&["doctor"]).contains("|replay:FILE>"));
        for path in [&["backup"][..], &["reset"], &["config", "get"], &["flash"], &["config", "set"]] {
            assert!(!help(path).contains("|replay:FILE>"), "{path:?}");
        }
    }

    #[test]
    fn a_command_that_writes_one_unit_names_no_option_for_several() {
        assert!(help(&["flash"]).contains("--all"));
        for path in [&["restore"][..], &["config", "set"]] {
            assert!(!help(path).contains("--all"), "{path:?}");
        }
    }
}
