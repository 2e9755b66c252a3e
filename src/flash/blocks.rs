//! Configuration blocks as a unit returns them.

use asm2464::firmware::{BridgeState, CONFIG_BLOCK_LEN};

/// The bytes of a configuration block.
pub type BlockBytes = [u8; CONFIG_BLOCK_LEN];

/// Configuration blocks 0 and 1 as read by E0; `None` for a block that the unit did not return.
pub type UnitBlocks = [Option<BlockBytes>; 2];

/// Whether a unit's flash can be read in this state: by E0 and E2, or through registers. The boot loader takes only the
/// commands that write. Source: the reference's section on identities; openpilot's flasher.
pub const fn is_readable(state: BridgeState) -> bool {
    matches!(state, BridgeState::Vendor | BridgeState::OpenFirmware)
}
