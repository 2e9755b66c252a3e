//! `asmpatch bridge` where there are no Unix sockets.

use miette::Diagnostic;
use thiserror::Error;

use super::Context;
use crate::failure::{AnyFailure, Exit, Failure};

/// Work with virtual bridges (not on this system).
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<std::ffi::OsString>,
}

/// The system has no Unix sockets.
#[derive(Debug, Error, Diagnostic)]
#[error("virtual bridges are served over Unix sockets, which this system lacks")]
#[diagnostic(
    code(asmpatch::serve::no_sockets),
    help("run `asmpatch bridge` on Linux or macOS; every other command takes `--device virtual:DIR` here as well")
)]
struct NoSockets;

impl Failure for NoSockets {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Always.
pub fn run(_: &Args, _: &Context) -> Result<Exit, AnyFailure> {
    Err(NoSockets.into())
}
