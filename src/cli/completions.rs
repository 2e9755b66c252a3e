//! The `asmpatch completions` command: prints or writes a shell's completion script.

use std::path::PathBuf;

use crate::bench::Path;
use crate::failure::{AnyFailure, Failure};
use asm2464::Kind;
use asm2464::firmware::ConfigField;
use asm2464_dock::files::atomic;
use asm2464_dock::files::file;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::{Generator as _, Shell};

use super::context::Context;
use super::errors::Exit;
use super::print;

/// Print a completion script for a shell, or write it into a folder.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch completions bash ~/.local/share/bash-completion/completions\n  asmpatch completions zsh > /usr/share/zsh/site-functions/_asmpatch"
)]
pub struct Args {
    /// The shell.
    shell: Shell,

    /// Write the script into this folder, created if missing, under the name that the shell looks for.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the folder can't be created or written.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let script = script(args.shell, super::command())?;
    match &args.dir {
        Some(dir) => {
            file::make_folder(dir).map_err(|cause| {
                let label = Kind::System.code("asmpatch::completions::folder");
                Failure::new(label, format!("cannot make the folder {}", dir.display())).because(cause)
            })?;
            atomic::write(&dir.join(args.shell.file_name("asmpatch")), script.as_bytes())?;
        }
        None => print::whole(&script),
    }
    Ok(Exit::Done)
}

/// Values that the scripts offer for an argument, beside options and files. The command takes others, too.
struct Offer {
    /// The command's name, below that of the command that it belongs to.
    command: &'static [&'static str],
    arg: &'static str,
    values: Vec<String>,
}

impl Offer {
    fn all(command: &Command) -> Result<[Self; 7], AnyFailure> {
        let (manifests, patches) = (crate::embedded::manifests(&[])?, crate::embedded::patches()?);
        let commands = command.get_subcommands().map(|below| below.get_name().to_owned());
        let mut topics: Vec<String> = commands.chain(crate::embedded::page_names()).collect();
        topics.sort();
        topics.dedup();
        let offer = |command, arg, values| Self { command, arg, values };
        Ok([
            offer(&["bench"], "paths", Path::ALL.iter().map(|path| path.name().to_owned()).collect()),
            offer(&["help"], "topic", topics),
            offer(&["download"], "image", manifests.iter().map(|manifest| manifest.id.clone()).collect()),
            offer(&["patch"], "add", patches.iter().map(|patch| patch.id.clone()).collect()),
            offer(&["verify"], "image", patches.images().values().cloned().collect()),
            offer(&["config", "get"], "field", ConfigField::ALL.iter().map(|field| field.name().to_owned()).collect()),
            offer(
                &["config", "set"],
                "edits",
                ConfigField::ALL.iter().map(|field| format!("{}=", field.name())).collect(),
            ),
        ])
    }

    /// Makes the values known to clap's generators. `path` leads from `command` to the offer's.
    fn add_to(&self, command: Command, path: &[&'static str]) -> Command {
        match path {
            [] => command.mut_arg(self.arg, |arg| arg.value_parser(PossibleValuesParser::new(self.values.clone()))),
            [name, rest @ ..] => command.mut_subcommand(name, |below| self.add_to(below, rest)),
        }
    }

    /// Returns the line for fish, if the argument is positional: clap's script offers nothing for those.
    fn fish_line(&self, command: &Command) -> Option<String> {
        let owner = self.command.iter().try_fold(command, |command, name| command.find_subcommand(name))?;
        owner.get_positionals().find(|arg| arg.get_id() == self.arg)?;
        let condition =
            format!("__fish_asmpatch_using_subcommand {}", self.command.join("; and __fish_seen_subcommand_from "));
        Some(format!("complete -c asmpatch -n \"{condition}\" -f -a \"{}\"\n", self.values.join(" ")))
    }
}

/// Returns the completion script.
fn script(shell: Shell, command: Command) -> Result<String, AnyFailure> {
    let offers = Offer::all(&command)?;
    let mut command = offers.iter().fold(command, |command, offer| offer.add_to(command, offer.command));
    if shell == Shell::Zsh {
        command = with_escaped_names(command);
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "asmpatch", &mut script);
    let mut script = with_units(shell, &String::from_utf8_lossy(&script));
    if shell == Shell::Fish {
        script.extend(offers.iter().filter_map(|offer| offer.fish_line(&command)));
    }
    Ok(script)
}

/// Escapes the colons in the names of values, such as `VID:PID`: to zsh an unescaped one ends the name.
fn with_escaped_names(command: Command) -> Command {
    let escaped = |arg: Arg| match arg.get_value_names() {
        Some([name, ..]) if name.contains(':') => {
            let name = name.replace(':', "\\:");
            arg.value_name(name)
        }
        _ => arg,
    };
    command.mut_args(escaped).mut_subcommands(with_escaped_names)
}

/// The shell command that prints the connected units' ports, also those that ASMPATCH_DEVICE doesn't name.
const UNITS: &str =
    r#"env -u ASMPATCH_DEVICE asmpatch list --json 2>/dev/null | sed -n 's/^ *"device": "\(.*\)",*$/\1/p'"#;

/// Makes a script offer the connected units for `--device`, if the shell can: clap's scripts offer files. The command
/// `virtual` takes no connected unit.
fn with_units(shell: Shell, script: &str) -> String {
    let lines = |edit: &mut dyn FnMut(&str) -> String| script.lines().map(|line| edit(line) + "\n").collect::<String>();
    match shell {
        Shell::Bash => {
            const FILES: &str = r#"COMPREPLY=($(compgen -f "${cur}"))"#;
            const CONNECTED: &str = r#"COMPREPLY=($(compgen -W "$(_asmpatch_units) virtual" -- "${cur}"))"#;
            let (mut is_virtual, mut is_device) = (false, false);
            let edited = lines(&mut |line| {
                // A command's part begins with its name.
                if line.starts_with("        asmpatch__") {
                    is_virtual = line.contains("subcmd__virtual");
                }
                let offers_units = is_device && !is_virtual;
                is_device = line.trim() == "--device)";
                if offers_units { line.replace(FILES, CONNECTED) } else { line.to_owned() }
            });
            format!("_asmpatch_units() {{\n    {UNITS}\n}}\n\n{edited}")
        }
        Shell::Zsh => {
            let edited = lines(&mut |line| {
                let offers_units = line.contains("--device=[") && line.contains(":PORT|SERIAL");
                if offers_units { line.replace(":_default'", ":_asmpatch_units'") } else { line.to_owned() }
            });
            let units = format!("\n_asmpatch_units() {{\n    compadd -- ${{(f)\"$({UNITS})\"}} virtual\n}}\n");
            edited.replacen('\n', &format!("\n{units}"), 1)
        }
        Shell::Fish => {
            let edited = lines(&mut |line| {
                let offers_units = line.contains(" -l device ") && !line.contains("using_subcommand virtual");
                if offers_units { format!("{line} -f -a '(__asmpatch_units)'") } else { line.to_owned() }
            });
            format!("function __asmpatch_units\n    {UNITS}\n    echo virtual\nend\n\n{edited}")
        }
        _ => script.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_offers_patches_images_fields_paths_and_connected_units() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell, crate::cli::command()).unwrap();
            for offered in
                ["e4-length-16", "240417", "serial=", "t10-vendor", "config-read", "recovery", "asmpatch list --json"]
            {
                assert!(script.contains(offered), "{shell}: {offered}");
            }
            let uses = script.matches("asmpatch_units").count();
            assert!(uses > 5, "{shell}: {uses}");
        }
    }

    #[test]
    fn no_colon_ends_the_name_of_a_value_in_zsh() {
        let script = script(Shell::Zsh, crate::cli::command()).unwrap();
        assert!(script.contains(r"]:PORT|SERIAL|virtual[\:DIR]:_asmpatch_units'"), "--device");
        assert!(script.contains(r"]:VID\:PID:"), "--usb-id");
        assert!(script.contains(r"]:virtual\:DIR:"), "virtual serve --device");
    }
}
