//! Protection of disks: checks what uses the disk behind a unit before the unit is taken from the system.

use asm2464::{Coded, Kind, Label};
use thiserror::Error;

use super::sysfs::{DiskUse, FreeDisk, NotFree, Sysfs, UncheckedDisk, Use};
use crate::bridge::PortPath;

/// Reasons not to take a unit from the system: the disk behind it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DiskError {
    /// The disk is in use.
    #[error("the disk behind the unit at {port} is in use: {}", listed(uses))]
    InUse {
        /// The unit's port.
        port: PortPath,
        /// What uses the disk.
        uses: Vec<DiskUse>,
    },
    /// The system doesn't tell whether the disk is in use.
    #[error("couldn't check whether the disk behind the unit at {port} is in use: {}", listed(disks))]
    Unchecked {
        /// The unit's port.
        port: PortPath,
        /// The disks that can't be checked.
        disks: Vec<UncheckedDisk>,
    },
}

impl Coded for DiskError {
    fn label(&self) -> Label {
        match self {
            Self::InUse { .. } => Kind::DiskInUse.code("asm2464::device::mounted"),
            Self::Unchecked { .. } => Kind::Refused.code("asm2464::device::unchecked_disk"),
        }
    }

    /// `PLACE` is a mount's, `DEVICE` a swap device, `DISK` a disk that can't be checked.
    fn values(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::InUse { uses, .. } => {
                let value = |used: &DiskUse| match &used.by {
                    Use::Mounted(place) => Some(("PLACE", place.clone())),
                    Use::Swap => Some(("DEVICE", format!("/dev/{}", used.device))),
                    Use::HeldBy(_) | Use::Claimed => None,
                };
                uses.iter().filter_map(value).collect()
            }
            Self::Unchecked { disks, .. } => disks.iter().map(|disk| ("DISK", disk.name.clone())).collect(),
        }
    }
}

impl DiskError {
    /// Whether the cause may pass by itself on a disk that has just appeared: its node does not exist yet, or the
    /// system probes it for file systems.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::InUse { uses, .. } => uses.iter().all(|used| used.by == Use::Claimed),
            Self::Unchecked { .. } => true,
        }
    }
}

fn listed(all: &[impl ToString]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns an error if the system uses the disk behind a unit, because taking the unit would cut the disk off. Only
/// Linux reports uses. On Windows a unit that can be opened has the driver WinUSB, and is not a disk.
///
/// `is_vouched_for` says whether the user answers for a disk, as in `sda`, that can't be opened for the check. It does
/// not hide a use that the system reports.
///
/// # Errors
/// [`DiskError`].
pub fn refuse_mounted(port: &PortPath, is_vouched_for: &dyn Fn(&str) -> bool) -> Result<FreeDisk, DiskError> {
    if !cfg!(any(target_os = "linux", windows)) {
        return Ok(FreeDisk { held: Vec::new(), is_checked: false });
    }
    Sysfs::system().free_disk(port, is_vouched_for).map_err(|refused| match refused {
        NotFree::InUse(uses) => DiskError::InUse { port: port.clone(), uses },
        NotFree::Unchecked(disks) => DiskError::Unchecked { port: port.clone(), disks },
    })
}
