//! Reads a unit: its configuration blocks for the plan, everything for a backup.

use super::backup::{BackedUpUnit, Backup};
use super::error::FlashError;
use super::plan::{UnitBlocks, is_readable};
use super::progress::{Event, Observer};
use crate::bridge::{AnyTransport, Attached, Bridge, CommandError};
use crate::firmware::{BlockIndex, BridgeState, Part};
use crate::interrupt::Interrupt;
use crate::scsi::SenseKey;

/// The bytes that [`backup`] moves.
pub const BACKUP_BYTES: u64 = 2 * 128 + Part::One.max_len() as u64 + Part::Two.max_len() as u64;

/// The configuration blocks, as far as the unit gives them: nothing in a state that knows no E0, and nothing for a
/// block whose flash does not answer (3/11/00).
///
/// # Errors
/// Where a command fails in any other way.
pub fn blocks(bridge: &mut Bridge<AnyTransport>, state: BridgeState) -> Result<UnitBlocks, CommandError> {
    if !is_readable(state) {
        return Ok([None, None]);
    }
    let mut read = |index| match bridge.read_config(index) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if gives_none(&error) => Ok(None),
        Err(error) => Err(error),
    };
    Ok([read(BlockIndex::Zero)?, read(BlockIndex::One)?])
}

/// The unit refuses the read for good, as against a command that went wrong on its way.
fn gives_none(error: &CommandError) -> bool {
    error.sense().is_some_and(|sense| matches!(sense.key, SenseKey::ILLEGAL_REQUEST | SenseKey::MEDIUM_ERROR))
}

/// Everything that the unit gives of its flash, in memory. `device` is the port as `--device` takes it.
///
/// # Errors
/// [`FlashError::NoBlock`] where a block can't be read, [`FlashError::Command`], [`FlashError::Interrupted`].
pub fn backup(
    bridge: &mut Bridge<AnyTransport>,
    device: String,
    attached: &Attached,
    observer: &mut dyn Observer,
    interrupt: Interrupt<'_>,
) -> Result<Backup, FlashError> {
    if !is_readable(attached.state) {
        let why = format!("the {} only takes the commands that write", attached.state);
        return Err(FlashError::NoBlock { index: BlockIndex::Zero, why });
    }
    let mut block = |index| {
        interrupt.check().map_err(|_| FlashError::Interrupted)?;
        let bytes = bridge.read_config(index).map_err(|error| match gives_none(&error) {
            true => FlashError::NoBlock { index, why: error.to_string() },
            false => error.into(),
        })?;
        observer.event(Event::Moved(bytes.len() as u64));
        Ok::<_, FlashError>(bytes)
    };
    let blocks = [block(BlockIndex::Zero)?, block(BlockIndex::One)?];
    let mut part = |part: Part| {
        interrupt.check().map_err(|_| FlashError::Interrupted)?;
        let mut bytes = vec![0; part.max_len()];
        bridge.read_flash(part, &mut bytes)?;
        observer.event(Event::Moved(bytes.len() as u64));
        Ok::<_, FlashError>(bytes)
    };
    let parts = [part(Part::One)?, part(Part::Two)?];
    // A version that can't be read is no reason to go without a backup.
    let firmware_version = bridge.firmware_version().ok().map(|version| version.to_string());
    Ok(Backup {
        unit: BackedUpUnit {
            device,
            usb_id: attached.usb_id.to_string(),
            state: attached.state.to_string(),
            serial: attached.serial.clone(),
            product: attached.product.clone(),
            firmware_version,
        },
        tool: concat!("asmpatch ", env!("CARGO_PKG_VERSION")).to_owned(),
        blocks,
        parts,
    })
}
