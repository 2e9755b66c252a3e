//! The units that a caller may open.

use std::collections::BTreeSet;

use asm2464::firmware::UsbId;

/// What the caller knows of the units that it may open. A device with another ID is never opened.
#[derive(Debug, Clone, Default)]
pub struct KnownUnits {
    /// The USB IDs that count as an ASM2464PD unit's.
    pub ids: BTreeSet<UsbId>,
    /// Disks behind units, as in `sda`, that the caller vouches for if the system can't tell whether they are in use.
    pub unchecked_disks: BTreeSet<String>,
}

impl KnownUnits {
    /// Knows these USB IDs, and vouches for no disk.
    pub fn of(ids: impl IntoIterator<Item = UsbId>) -> Self {
        Self { ids: ids.into_iter().collect(), unchecked_disks: BTreeSet::new() }
    }
}
