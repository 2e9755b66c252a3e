//! The command `completions`: scripts that let a shell complete commands, options and values.

use std::collections::BTreeSet;
use std::path::PathBuf;

use asm2464::firmware::ConfigField;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::{atomic, file};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::{Generator as _, Shell};

use crate::bench::DataPath;
use crate::cli::words::errors::Exit;
use crate::cli::words::{command_tree, print};
use crate::embedded;
use crate::fetch::Manifests;

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
pub fn run(args: &Args) -> Result<Exit, AnyFailure> {
    let script = script(args.shell, command_tree::tree());
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

/// Returns the completion script as clap makes it: commands, options, their values, and files.
fn script(shell: Shell, command: Command) -> String {
    let known = embedded::manifests(&[]);
    let images: Vec<String> = known.iter().flat_map(Manifests::iter).map(|manifest| manifest.id.clone()).collect();
    let command = with_values(command, "", shell, &images);
    let mut command = if shell == Shell::Zsh { with_escaped_names(command) } else { command };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "asmpatch", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let both = format!("{{_alternative \"images:known image:({})\" \"files:file:_files\"}}", images.join(" "));
    script.replace(&format!("({FILE_OR_ID})"), &both)
}

/// Stands in zsh's script for a file or the ID of a known image: clap makes it files, or values, but not both. In the
/// other scripts, files follow where no value fits.
const FILE_OR_ID: &str = "FILE-OR-ID";

/// Gives arguments the values that a completion offers. The commands themselves take more: a user's own images, patches
/// and pages, and what a value is said to be in an error.
fn with_values(command: Command, path: &str, shell: Shell, images: &[String]) -> Command {
    let own = path.to_owned();
    let with_own = |arg: Arg| match values(&own, &arg, images) {
        Some(_) if shell == Shell::Zsh && takes_file_or_id(&arg) => arg.value_parser([FILE_OR_ID]),
        Some(values) => arg.value_parser(PossibleValuesParser::new(values)),
        None if arg.get_value_names().is_some_and(|names| names == ["DIR"]) => arg.value_hint(ValueHint::DirPath),
        None => arg,
    };
    command.mut_args(with_own).mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name()).trim().to_owned();
        with_values(below, &path, shell, images)
    })
}

fn takes_file_or_id(arg: &Arg) -> bool {
    arg.get_value_names().is_some_and(|names| names == ["FILE|ID"])
}

/// The values of an argument that are known before it is typed.
fn values(path: &str, arg: &Arg, images: &[String]) -> Option<Vec<String>> {
    if takes_file_or_id(arg) {
        return Some(images.to_vec());
    }
    let fields = || ConfigField::ALL.iter().map(|field| field.name().to_owned());
    Some(match (path, arg.get_id().as_str()) {
        ("download" | "verify", "image") => images.to_vec(),
        ("patch", "add") => embedded::patches().ok()?.iter().map(|patch| patch.id.clone()).collect(),
        ("config get", "field") => fields().collect(),
        ("config set", "edits") => fields().map(|field| format!("{field}=")).collect(),
        ("bench", "paths") => DataPath::ALL.iter().map(|path| path.name().to_owned()).collect(),
        ("help", "topic") => {
            let command = command_tree::tree();
            let commands = command.get_subcommands().map(|below| below.get_name().to_owned());
            commands.chain(embedded::page_names()).collect::<BTreeSet<_>>().into_iter().collect()
        }
        _ => return None,
    })
}

/// Escapes the colons in the names of values, such as `VID:PID`: to zsh an unescaped one ends the name, and what follows
/// is a function to call.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_colon_ends_the_name_of_a_value_in_zsh() {
        let script = script(Shell::Zsh, crate::cli::command());
        assert!(script.contains(r"]:PORT|SERIAL|virtual[\:DIR]:_default'"), "--device");
        assert!(script.contains(r"]:VID\:PID:"), "--usb-id");
        assert!(script.contains(r"]:virtual\:DIR:"), "virtual serve --device");
    }

    #[test]
    fn completions_know_images_patches_pages_fields_levels_and_paths_and_that_a_folder_is_one() {
        let bash = script(Shell::Bash, crate::cli::command());
        for value in ["ed4e39b", "read16-sram", "recovery", "usb4-model", "serial=", "pcie-power", "config-read"] {
            assert!(bash.contains(value), "{value}");
        }
        let zsh = script(Shell::Zsh, crate::cli::command());
        assert!(zsh.contains("known image:(231204 240417 250123 ed4e39b)\" \"files:file:_files\"}"), "flash");
        assert!(zsh.contains(":_files -/'") && !zsh.contains(FILE_OR_ID));
    }
}
