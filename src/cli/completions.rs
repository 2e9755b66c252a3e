//! The `asmpatch completions` command: prints or writes a shell's completion script.

use std::io;
use std::path::PathBuf;

use asm2464::firmware::{ConfigField, FieldKind};
use asmpatch_core::failure::AnyFailure;
use asmpatch_files::atomic;
use asmpatch_files::file;
use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::{Generator as _, Shell};
use thiserror::Error;

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

#[derive(Debug, Error)]
#[error("cannot make the folder {}", dir.display())]
struct FolderError {
    dir: PathBuf,
    source: io::Error,
}

asm2464::coded!(FolderError => "asmpatch::completions::folder");

/// Runs the subcommand. `command` is the whole command line.
///
/// # Errors
/// Fails if the folder can't be created or written.
pub fn run(args: &Args, command: Command) -> Result<Exit, AnyFailure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_values(command)?, "asmpatch", &mut script);
    let script = with_units(args.shell, &String::from_utf8_lossy(&script));
    match &args.dir {
        Some(dir) => {
            file::make_folder(dir).map_err(|source| FolderError { dir: dir.clone(), source })?;
            atomic::write(&dir.join(args.shell.file_name("asmpatch")), script.as_bytes())?;
        }
        None => print::whole(&script),
    }
    Ok(Exit::Done)
}

/// Adds what the scripts offer for patches and for the fields of `config`. The commands themselves take others, too.
fn with_values(command: Command) -> Result<Command, AnyFailure> {
    let patches: Vec<String> = crate::embedded::patches()?.iter().map(|patch| patch.id.clone()).collect();
    let fields: Vec<&str> = ConfigField::ALL.iter().map(|field| field.name()).collect();
    let texts = ConfigField::ALL.iter().filter(|field| field.kind() == FieldKind::Text);
    let edits: Vec<String> = texts.map(|field| format!("{}=", field.name())).collect();
    Ok(command
        .mut_subcommand("patch", |patch| {
            patch.mut_arg("add", |arg| arg.value_parser(PossibleValuesParser::new(patches)))
        })
        .mut_subcommand("config", |config| {
            config
                .mut_subcommand("get", |get| {
                    get.mut_arg("field", |arg| arg.value_parser(PossibleValuesParser::new(fields)))
                })
                .mut_subcommand("set", |set| {
                    set.mut_arg("edits", |arg| arg.value_parser(PossibleValuesParser::new(edits)))
                })
        }))
}

/// The shell command that prints the connected units' ports.
const UNITS: &str = r#"asmpatch list --json 2>/dev/null | sed -n 's/^ *"device": "\(.*\)",*$/\1/p'"#;

/// Makes a script offer the connected units for `--device`, where the shell can: clap's scripts offer files.
fn with_units(shell: Shell, script: &str) -> String {
    let replaced = |line: &str, mark: &str, from: &str, to: &str| {
        if line.contains(mark) { line.replace(from, to) } else { line.to_owned() }
    };
    let lines = |edit: &dyn Fn(&str) -> String| script.lines().map(|line| edit(line) + "\n").collect::<String>();
    match shell {
        Shell::Bash => {
            let files = "--device)\n                    COMPREPLY=($(compgen -f \"${cur}\"))";
            let units =
                "--device)\n                    COMPREPLY=($(compgen -W \"$(_asmpatch_units) virtual\" -- \"${cur}\"))";
            format!("_asmpatch_units() {{\n    {UNITS}\n}}\n\n{}", script.replace(files, units))
        }
        Shell::Zsh => {
            let edited = lines(&|line| replaced(line, "--device=[", ":_default'", ":_asmpatch_units'"));
            let units = format!("\n_asmpatch_units() {{\n    compadd -- ${{(f)\"$({UNITS})\"}} virtual\n}}\n");
            edited.replacen('\n', &format!("\n{units}"), 1)
        }
        Shell::Fish => {
            let edited = lines(&|line| {
                if line.contains(" -l device ") {
                    format!("{line} -f -a '(__asmpatch_units)'")
                } else {
                    line.to_owned()
                }
            });
            format!("function __asmpatch_units\n    {UNITS}\n    echo virtual\nend\n\n{edited}")
        }
        _ => script.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut with_values(super::super::command()).unwrap(), "asmpatch", &mut script);
        with_units(shell, &String::from_utf8(script).unwrap())
    }

    #[test]
    fn each_script_offers_patches_fields_and_connected_units() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert!(script.contains("e4-length-16") && script.contains("asmpatch list --json"), "{shell}");
            // clap's scripts for fish offer nothing for arguments without a name.
            assert!(script.contains("serial=") || shell == Shell::Fish, "{shell}");
            let uses = script.matches("asmpatch_units").count();
            assert!(uses > 5, "{shell}: {uses}");
        }
    }
}
