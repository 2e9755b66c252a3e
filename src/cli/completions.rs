//! The `asmpatch completions` command: prints or writes a shell's completion script.

use std::path::PathBuf;

use crate::failure::{AnyFailure, Failure};
use asm2464::Kind;
use asm2464_dock::files::atomic;
use asm2464_dock::files::file;
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
    let script = script(args.shell, super::command());
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

/// Returns the completion script as clap makes it: commands, options, their fixed values, and files.
fn script(shell: Shell, command: Command) -> String {
    let mut command = if shell == Shell::Zsh { with_escaped_names(command) } else { command };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "asmpatch", &mut script);
    String::from_utf8_lossy(&script).into_owned()
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
}
