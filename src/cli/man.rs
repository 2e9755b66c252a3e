//! `asmpatch man`.

use std::io;
use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

use super::Context;
use crate::failure::{AnyFailure, Exit, Failure};

/// Write the man pages, one a subcommand.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder that they go into.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, Error, Diagnostic)]
#[error("cannot write the man pages into {}", dir.display())]
#[diagnostic(code(asmpatch::man::write), help("name an existing folder that you may write to"))]
struct ManError {
    dir: PathBuf,
    source: io::Error,
}

impl Failure for ManError {
    fn exit(&self) -> Exit {
        Exit::BadInput
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Where the folder can't be written to.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    clap_mangen::generate_to(super::command(), &args.dir)
        .map_err(|source| ManError { dir: args.dir.clone(), source })?;
    Ok(Exit::Done)
}
