//! `asmpatch virtual` on systems without Unix sockets.

use crate::failure::{AnyFailure, Failure};
use asm2464::Kind;

use super::context::Context;
use super::errors::Exit;

/// Work with virtual units (not on this system).
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<std::ffi::OsString>,
}

/// Runs the subcommand.
///
/// # Errors
/// Always fails.
pub fn run(_: &Args, _: &Context) -> Result<Exit, AnyFailure> {
    let message = "virtual units are served over Unix sockets, which this system lacks";
    Err(Failure::new(Kind::Usage.code("asmpatch::serve::no_sockets"), message).into())
}
