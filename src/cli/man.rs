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
    let mut command = with_whole_help(super::command());
    command.build();
    let mut pages = Vec::new();
    render(command, &args.dir, &mut pages).map_err(failed)?;
    let files: Vec<(&Path, &[u8])> = pages.iter().map(|(path, page)| (path.as_path(), page.as_slice())).collect();
    atomic::write_all(&files)?;
    Ok(Exit::Done)
}

/// Shows the options that every command has with their help, which `-h` leaves out, and clap_mangen with it.
fn with_whole_help(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.hide_short_help(false)).mut_subcommands(with_whole_help)
}

/// Renders the pages of a command and its subcommands. clap_mangen does not write the files: it would follow links.
fn render(command: clap::Command, dir: &Path, pages: &mut Vec<(PathBuf, Vec<u8>)>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        render(below, dir, pages)?;
    }
    let man = clap_mangen::Man::new(command).source(concat!("asmpatch ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((dir.join(man.get_filename()), page));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_of_asmpatch_and_says_what_each_option_does() {
        let mut command = with_whole_help(crate::cli::command());
        command.build();
        let mut pages = Vec::new();
        render(command, Path::new(""), &mut pages).unwrap();
        assert!(pages.len() > 30, "{}", pages.len());
        for (path, page) in pages {
            let page = String::from_utf8(page).unwrap();
            let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
            let version = concat!("\"asmpatch ", env!("CARGO_PKG_VERSION"), "\"");
            assert!(title.contains(version), "{}: {title}", path.display());
            for said in ["Print no progress", "When to colour the output", "Log to FILE instead"] {
                assert!(page.contains(said), "{}: {said}", path.display());
            }
        }
    }
}
