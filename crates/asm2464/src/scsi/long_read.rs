//! Whether E4 gives more than 255 bytes, which tells firmware with the extension of E4's length from firmware without.

use super::{Command, ScsiStatus, XdataAddress};

/// Bytes that [`LONG_READ`] asks for.
pub const LONG_READ_LEN: usize = 256;
/// E4 of 256 bytes, of RAM that reading does not change.
///
/// Stock firmware uses only CDB byte 1 as the length, which is 0 then, and moves no data. With the extension all 256
/// bytes arrive. See docs/e4-length-16.md.
pub const LONG_READ: Command = Command::XdataRead { from: XdataAddress::main(0x0700), len: LONG_READ_LEN as u16 };

/// Whether firmware that ended [`LONG_READ`] so has the extension; `None` if it refused the command.
pub fn has_long_read(status: ScsiStatus, moved: usize) -> Option<bool> {
    (status == ScsiStatus::Good).then_some(moved == LONG_READ_LEN)
}
