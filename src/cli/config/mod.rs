//! The `asmpatch config` command: reads and changes one unit's configuration.

pub(super) mod get;
mod set;

use crate::flash::access::UnitBlocks;
use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock};
use asm2464::{AnyFailure, Failure, Kind};

use super::context::Context;
use crate::cli::errors::Exit;

/// Read and change one unit's configuration: its serial number, names and IDs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

impl Args {
    /// Whether the command only shows something.
    pub const fn only_prints(&self) -> bool {
        matches!(self.command, ConfigCommand::Get(_))
    }
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

/// Returns a unit's blocks, after checking their frames.
fn read(device: &str, state: BridgeState, blocks: &UnitBlocks) -> Result<[ConfigBlock; 2], AnyFailure> {
    let one = |index: BlockIndex| -> Result<ConfigBlock, AnyFailure> {
        let number = index.number();
        let Some(bytes) = blocks[usize::from(number)] else {
            let label = Kind::Refused.code("asmpatch::config::no_block");
            let message = format!("{device}: can't read configuration block {number}: the unit runs its {state}");
            return Err(Failure::new(label, message).into());
        };
        ConfigBlock::parse(index, &bytes).map_err(|damage| AnyFailure::from(damage).about(device))
    };
    Ok([one(BlockIndex::Zero)?, one(BlockIndex::One)?])
}
