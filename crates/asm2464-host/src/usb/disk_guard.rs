//! Protection of disks: checks what uses the disk behind a unit before the unit is taken from the system.

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
    /// What uses the disk.
    pub uses: Vec<DiskUse>,
}

impl MountedError {
    /// Whether the cause may pass by itself on a disk that has just appeared: its node does not exist yet, or the
    /// system probes it for file systems.
    pub(super) fn may_pass(&self) -> bool {
        self.uses.iter().all(|used| matches!(used.by, Use::Claimed | Use::Unknown(_)))
    }
}

fn listed(uses: &[DiskUse]) -> String {
    uses.iter().map(|used| format!("{} {}", used.device, used.by)).collect::<Vec<_>>().join(", ")
}

/// A disk that nothing uses. While this value lives, nobody else can mount or claim the disk.
#[derive(Debug)]
pub struct FreeDisk {
    /// The disks, opened exclusively.
    pub held: Vec<File>,
    /// Whether the disk could be opened exclusively, which needs root. If not, only mounts, swap and holders were
    /// checked, and a mount in another namespace or a virtual machine goes unnoticed. `false` on macOS, which reports
    /// nothing.
    pub is_checked: bool,
}

/// Returns an error if the system uses the disk behind a unit, because taking the unit would cut the disk off. Only
/// Linux reports uses. On Windows a unit that can be opened has the driver WinUSB, and is no disk.
///
/// # Errors
/// [`MountedError`].
pub fn refuse_mounted(port: &PortPath) -> Result<FreeDisk, MountedError> {
    if !cfg!(any(target_os = "linux", windows)) {
        return Ok(FreeDisk { held: Vec::new(), is_checked: false });
    }
    Sysfs::system().free_disk(port).map_err(|uses| MountedError { port: port.clone(), uses })
}
