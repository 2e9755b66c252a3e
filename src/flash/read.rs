//! Reads a unit for a backup.

use super::access::Access;
use super::backup::{BackedUpUnit, Backup};
use super::error::FlashError;
use super::plan::is_readable;
use super::progress::{FlashEvent, FlashProgress};
use crate::bridge::Attached;
use crate::firmware::{BlockIndex, Part};
use crate::interrupt::Interrupt;

/// Number of bytes that [`backup`] moves.
pub const BACKUP_BYTES: u64 = 2 * 128 + Part::One.max_len() as u64 + Part::Two.max_len() as u64;

/// Reads everything that the unit returns of its flash into memory. `device` is the port as in `--device`.
///
/// # Errors
/// [`FlashError::NoBlock`] if a block can't be read, [`FlashError::Command`], [`FlashError::Registers`],
/// [`FlashError::Interrupted`].
pub fn backup(
    access: &mut Access,
    device: String,
    attached: &Attached,
    observer: &mut FlashProgress<'_>,
    interrupt: Interrupt<'_>,
) -> Result<Backup, FlashError> {
    if !is_readable(attached.state) {
        let why = format!("the {} only takes the commands that write", attached.state);
        return Err(FlashError::NoBlock { index: BlockIndex::Zero, why });
    }
    let mut block = |index| {
        interrupt.check()?;
        let bytes = access.reader().block(index)?;
        observer.event(FlashEvent::Moved(bytes.len() as u64));
        Ok::<_, FlashError>(bytes)
    };
    let blocks = [block(BlockIndex::Zero)?, block(BlockIndex::One)?];
    let mut part = |part: Part| {
        interrupt.check()?;
        let mut bytes = vec![0; part.max_len()];
        access.reader().part(part, &mut bytes)?;
        observer.event(FlashEvent::Moved(bytes.len() as u64));
        Ok::<_, FlashError>(bytes)
    };
    let parts = [part(Part::One)?, part(Part::Two)?];
    Ok(Backup {
        unit: BackedUpUnit {
            device,
            usb_id: attached.usb_id.to_string(),
            state: attached.state.to_string(),
            serial: attached.serial.clone(),
            product: attached.product.clone(),
            // A version that can't be read must not prevent a backup.
            firmware_version: access.version().map(|version| version.to_string()),
        },
        tool: concat!("asmpatch ", env!("CARGO_PKG_VERSION")).to_owned(),
        blocks,
        parts,
    })
}
