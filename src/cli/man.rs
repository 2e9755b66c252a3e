//! The `asmpatch man` command: writes the man pages.

use std::io;
use std::path::{Path, PathBuf};

use crate::failure::AnyFailure;
use asm2464_dock::files::atomic;
use asm2464_dock::files::file;
use thiserror::Error;

use super::errors::Exit;

/// Write the man pages, one per subcommand, into a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch man ~/.local/share/man/man1")]
pub struct Args {
    /// The folder, created if missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, Error)]
#[error("cannot write the man pages into {}", dir.display())]
struct ManError {
    dir: PathBuf,
    source: io::Error,
}

asm2464::coded!(ManError => BadInput "asmpatch::man::write");

/// Runs the subcommand. `command` is the whole command line.
///
/// # Errors
/// Fails if the folder can't be created or written.
pub fn run(args: &Args, command: clap::Command) -> Result<Exit, AnyFailure> {
    let failed = |source| ManError { dir: args.dir.clone(), source };
    file::make_folder(&args.dir).map_err(failed)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    render(command, &args.dir, &mut pages).map_err(failed)?;
    let files: Vec<(&Path, &[u8])> = pages.iter().map(|(path, page)| (path.as_path(), page.as_slice())).collect();
    atomic::write_all(&files)?;
    Ok(Exit::Done)
}

/// Renders the pages of a command and its subcommands. clap_mangen does not write the files: it would follow links.
fn render(command: clap::Command, dir: &Path, pages: &mut Vec<(PathBuf, Vec<u8>)>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        render(below, dir, pages)?;
    }
    let man = clap_mangen::Man::new(command);
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((dir.join(man.get_filename()), page));
    Ok(())
}
