//! The `asmpatch completions` command: prints or writes a shell's completion script.

use std::io;
use std::path::PathBuf;

use asmpatch_files::atomic;
use asmpatch_files::file;
use clap_complete::{Generator as _, Shell};
use thiserror::Error;

use super::{AnyFailure, Context, Exit, print};

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

/// Runs the subcommand.
///
/// # Errors
/// Fails if the folder can't be created or written.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "asmpatch", &mut script);
    match &args.dir {
        Some(dir) => {
            file::make_folder(dir).map_err(|source| FolderError { dir: dir.clone(), source })?;
            atomic::write(&dir.join(args.shell.file_name("asmpatch")), &script)?;
        }
        None => print::whole(&String::from_utf8_lossy(&script)),
    }
    Ok(Exit::Done)
}
