//! The `asmpatch man` command: writes the man pages.

use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{AnyFailure, Failure};
use asm2464::Kind;
use asm2464_dock::files::atomic;
use asm2464_dock::files::file;

use super::context::Context;
use super::errors::Exit;

/// Write the man pages, one per subcommand, into a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch man ~/.local/share/man/man1")]
pub struct Args {
    /// The folder, created if missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the folder can't be created or written.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let failed = |cause: io::Error| {
        let label = Kind::System.code("asmpatch::man::write");
        Failure::new(label, format!("cannot write the man pages into {}", args.dir.display())).because(cause)
    };
    file::make_folder(&args.dir).map_err(failed)?;
    let mut command = super::command();
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
