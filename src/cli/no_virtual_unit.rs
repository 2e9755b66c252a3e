//! `asmpatch virtual` on systems without Unix sockets.

use asm2464::{AnyFailure, Failure, Kind};

use super::context::Context;
use super::errors::Exit;
use super::virtual_set::{self, SetArgs};

/// Work with virtual units (this system can't serve them).
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: VirtualCommand,
}

#[derive(Debug, clap::Subcommand)]
enum VirtualCommand {
    Set(SetArgs),
    #[command(external_subcommand)]
    Other(Vec<std::ffi::OsString>),
}

/// Runs the subcommand.
///
/// # Errors
/// As for `set`. The others always fail.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    match &args.command {
        VirtualCommand::Set(args) => virtual_set::run(args, context),
        VirtualCommand::Other(_) => {
            let message = "virtual units are served over Unix sockets, which this system lacks";
            Err(Failure::new(Kind::Usage.code("asmpatch::serve::no_sockets"), message).into())
        }
    }
}
