//! `asmpatch virtual` on systems without Unix sockets.

use crate::failure::AnyFailure;
use thiserror::Error;

use super::context::Context;
use super::errors::Exit;

/// Work with virtual units (not on this system).
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<std::ffi::OsString>,
}

/// The error on a system without Unix sockets.
#[derive(Debug, Error)]
#[error("virtual units are served over Unix sockets, which this system lacks")]
struct NoSockets;

asm2464::coded!(NoSockets => Usage "asmpatch::serve::no_sockets");

/// Runs the subcommand.
///
/// # Errors
/// Always fails.
pub fn run(_: &Args, _: &Context) -> Result<Exit, AnyFailure> {
    Err(NoSockets.into())
}
