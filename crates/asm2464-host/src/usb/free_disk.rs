//! Disks that this process holds.

use std::fs::File;

/// The disks behind a unit, which nothing uses. While this value lives, nobody else can mount or claim those in `held`.
#[derive(Debug)]
pub struct FreeDisk {
    /// The disks, opened exclusively.
    pub held: Vec<File>,
    /// Whether the disk could be opened exclusively, which needs root and its node. If not, only mounts, swap and
    /// holders were checked, and a mount in another namespace or a virtual machine goes unnoticed. `false` on macOS,
    /// which reports nothing.
    pub is_checked: bool,
}
