//! `asmpatch completions`.

use super::Context;
use crate::failure::{AnyFailure, Exit};

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch completions bash > /etc/bash_completion.d/asmpatch")]
pub struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Runs the subcommand.
///
/// # Errors
/// None.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "asmpatch", &mut script);
    out!("{}", String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}
