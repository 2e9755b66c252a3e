//! The `asmpatch config` command: reads and changes one unit's configuration.

pub(super) mod get;
mod set;

use crate::failure::{AnyFailure, Failure};
use crate::flash::slot::UnitBlocks;
use asm2464::Kind;
use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock};

use super::context::Context;
use crate::cli::errors::Exit;

/// Read and change one unit's configuration: its serial number and its names.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    Get(get::Args),
    Set(set::Args),
}

/// Runs the subcommand.
///
/// # Errors
/// Fails as the subcommand below it does.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    match &args.command {
        ConfigCommand::Get(args) => get::run(args),
        ConfigCommand::Set(args) => set::run(args, context),
    }
}

/// Returns a unit's block, after checking its frame.
fn block(device: &str, state: BridgeState, blocks: &UnitBlocks, index: BlockIndex) -> Result<ConfigBlock, AnyFailure> {
    let bytes = blocks[usize::from(index.number())].ok_or_else(|| {
        let label = Kind::Refused.code("asmpatch::config::no_block");
        let number = index.number();
        Failure::new(label, format!("{device}: can't read configuration block {number}: the unit runs its {state}"))
    })?;
    ConfigBlock::parse(index, &bytes).map_err(|damage| AnyFailure::from(damage).about(device))
}
