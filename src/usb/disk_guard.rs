//! Nobody's disk is cut off: what uses the disk behind a unit is asked for before the unit is taken from the system.

use std::fs::File;

use miette::Diagnostic;
use thiserror::Error;

use super::sysfs::{DiskUse, Sysfs, Use};
use crate::bridge::PortPath;

/// The disk behind a unit is in use, or may be.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
#[error("the disk behind the unit at {port} is in use: {}", listed(uses))]
#[diagnostic(code(asmpatch::device::mounted))]
pub struct MountedError {
    /// The unit's port.
    pub port: PortPath,
    /// What uses it.
    pub uses: Vec<DiskUse>,
}

impl MountedError {
    /// Whether this may pass by itself on a disk that has just come: its node is still to be made, or the system looks
    /// for file systems on it.
    pub(super) fn may_pass(&self) -> bool {
        self.uses.iter().all(|used| matches!(used.by, Use::Claimed | Use::Unknown(_)))
    }
}

fn listed(uses: &[DiskUse]) -> String {
    uses.iter().map(|used| format!("{} {}", used.device, used.by)).collect::<Vec<_>>().join(", ")
}

/// A disk that nothing uses. As long as this lives, nobody else can mount or claim it.
#[derive(Debug)]
pub struct FreeDisk {
    /// The disks, opened exclusively.
    held: Vec<File>,
    is_checked: bool,
}

impl FreeDisk {
    pub(super) const fn new(held: Vec<File>, is_checked: bool) -> Self {
        Self { held, is_checked }
    }

    /// Whether the disk could be opened exclusively, which needs root: else mounts, swap and holders are all that was
    /// looked at, and a mount in another namespace or a virtual machine goes unseen. `false` on macOS, which tells nothing.
    pub const fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// How many disks are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }
}

/// Refuses where the system uses the disk behind a unit: taking the unit would cut the disk off. Only Linux tells. On
/// Windows a unit that can be opened has the driver WinUSB, and is no disk.
///
/// # Errors
/// [`MountedError`].
pub fn refuse_mounted(port: &PortPath) -> Result<FreeDisk, MountedError> {
    if !cfg!(any(target_os = "linux", windows)) {
        return Ok(FreeDisk::new(Vec::new(), false));
    }
    Sysfs::system().free_disk(port).map_err(|uses| MountedError { port: port.clone(), uses })
}
