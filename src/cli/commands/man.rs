//! The `asmpatch man` command: writes the man pages.

use std::io;
use std::path::{Path, PathBuf};

use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::{atomic, file};
use clap::Command;

use crate::cli::commands::help::{ROADS, shown_globals};
use crate::cli::words::errors::Exit;

/// Write the man pages, one per subcommand, into a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch man ~/.local/share/man/man1")]
pub struct Args {
    /// The folder, created if missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the subcommand for this program.
///
/// # Errors
/// Fails if the folder can't be created or written.
pub fn run(args: &Args, command: Command) -> Result<Exit, AnyFailure> {
    let failed = |cause: io::Error| {
        let label = Kind::System.code("asmpatch::man::write");
        Failure::new(label, format!("cannot write the man pages into {}", args.dir.display())).because(cause)
    };
    file::make_folder(&args.dir).map_err(failed)?;
    let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let mut command = command.long_about(format!("{about}\n\n{ROADS}"));
    command.build();
    let command = command.mut_args(|arg| shown_globals(arg, true));
    let mut pages = Vec::new();
    render_pages(command, &args.dir, &mut pages).map_err(failed)?;
    let files: Vec<(&Path, &[u8])> = pages.iter().map(|(path, page)| (path.as_path(), page.as_slice())).collect();
    atomic::write_all(&files)?;
    Ok(Exit::Done)
}

/// Renders the pages of a command and its subcommands. clap_mangen does not write the files: it would follow links.
fn render_pages(command: Command, dir: &Path, pages: &mut Vec<(PathBuf, Vec<u8>)>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        render_pages(below, dir, pages)?;
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
    fn each_page_is_of_asmpatch_and_what_every_command_has_stands_in_the_first_alone() {
        let mut command = crate::cli::command();
        command.build();
        let command = command.mut_args(|arg| shown_globals(arg, true));
        let mut pages = Vec::new();
        render_pages(command, Path::new(""), &mut pages).unwrap();
        assert!(pages.len() > 30, "{}", pages.len());
        for (path, page) in pages {
            let page = String::from_utf8(page).unwrap();
            let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
            let version = concat!("\"asmpatch ", env!("CARGO_PKG_VERSION"), "\"");
            assert!(title.contains(version), "{}: {title}", path.display());
            let is_first = path.ends_with("asmpatch.1");
            for said in ["Print no progress", "When to colour the output", "Log to FILE instead"] {
                assert_eq!(page.contains(said), is_first, "{}: {said}", path.display());
            }
            assert!(is_first || page.contains("Every command also takes"), "{}", path.display());
        }
    }
}
