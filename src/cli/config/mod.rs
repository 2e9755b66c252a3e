//! The `asmpatch config` command: reads and changes one unit's configuration.

pub(super) mod get;
mod set;

use crate::failure::AnyFailure;
use crate::flash::access::UnitBlocks;
use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, ConfigBlockError};
use thiserror::Error;

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

/// Reasons a unit's configuration can't be read or changed.
#[derive(Debug, Error)]
enum ConfigError {
    /// The unit returns no such block.
    #[error("{device}: can't read configuration block {}: the unit runs its {state}", index.number())]
    NoBlock { device: String, index: BlockIndex, state: BridgeState },
    /// The block is damaged, so the chip ignores it.
    #[error("{device}: {cause}")]
    Damaged { device: String, cause: ConfigBlockError },
    /// The flash holds no valid firmware to write again together with the block.
    #[error("{device}: the unit's flash has no firmware that passes the chip's checks")]
    NoFirmware { device: String },
}

asm2464::coded!(ConfigError {
    NoBlock => Refused "asmpatch::config::no_block",
    Damaged { cause, .. } => cause,
    NoFirmware => Refused "asmpatch::config::no_firmware",
});

/// Returns a unit's block, after checking its frame.
fn block(device: &str, state: BridgeState, blocks: &UnitBlocks, index: BlockIndex) -> Result<ConfigBlock, ConfigError> {
    let device = || device.to_owned();
    let bytes =
        blocks[usize::from(index.number())].ok_or_else(|| ConfigError::NoBlock { device: device(), index, state })?;
    ConfigBlock::parse(index, &bytes).map_err(|cause| ConfigError::Damaged { device: device(), cause })
}
