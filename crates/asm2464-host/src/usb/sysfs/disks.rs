//! The disks behind a unit: what uses them, and how they are kept from being used while the unit is taken.
//!
//! Source: the kernel's `Documentation/ABI` for /sys/block; proc_pid_mountinfo(5).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use asm2464::escape::Escape as _;
use asm2464::scsi::Lun;
use asm2464::{Coded, Kind, Label, Named};
use thiserror::Error;

use super::{Sysfs, names, read};
use crate::bridge::PortPath;

/// The disks behind a unit, which nothing uses. While this value lives, nobody else can mount or claim those in `held`.
#[derive(Debug)]
pub(in crate::usb) struct FreeDisk {
    /// The disks, opened exclusively.
    pub held: Vec<File>,
    /// Whether the disk could be opened exclusively, which needs root and its node. If not, only mounts, swap and
    /// holders were checked, and a mount in another namespace or a virtual machine goes unnoticed. `false` on macOS,
    /// which reports nothing.
    pub is_checked: bool,
}

/// A use of a disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
#[display("{device} {by}")]
pub struct DiskUse {
    /// The disk or partition, as in `sda1`.
    pub device: String,
    /// What it is used for.
    pub by: Use,
}

/// Kinds of uses of a disk or partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
pub enum Use {
    /// Mounted at this place.
    #[display("at {_0}")]
    Mounted(String),
    /// Used as swap.
    #[display("as swap")]
    Swap,
    /// Held by another block device on top of it, as in `dm-0`.
    #[display("by {_0}")]
    HeldBy(String),
    /// Claimed by a program or mount that this process can't see.
    #[display("by another program or kernel (it can't be opened exclusively)")]
    Claimed,
}

/// A disk behind a unit, and the logical unit that it is: a dock with several bays has one for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, derive_more::Display, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[display("{} ({lun})", name.shown())]
pub struct BayDisk {
    /// The logical unit's number.
    pub lun: Lun,
    /// The disk, as in `sda`.
    pub name: String,
}

/// A disk for which the system doesn't report whether it is in use.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{name} ({why})")]
pub struct UncheckedDisk {
    /// The disk, as in `sda`.
    pub name: String,
    /// Why it can't be opened for the check.
    pub why: String,
}

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

    fn named(&self) -> Vec<Named> {
        match self {
            Self::InUse { uses, .. } => {
                let mut named = Vec::new();
                for used in uses {
                    match &used.by {
                        Use::Mounted(place) => named.push(Named::Mount(place.clone())),
                        Use::Swap => named.push(Named::Swap(format!("/dev/{}", used.device))),
                        Use::HeldBy(_) | Use::Claimed => {}
                    }
                }
                named
            }
            Self::Unchecked { disks, .. } => disks.iter().map(|disk| Named::Disk(disk.name.clone())).collect(),
        }
    }
}

impl DiskError {
    /// Whether the cause may pass by itself on a disk that has just appeared: its node does not exist yet, or the
    /// system probes it for file systems.
    pub(in crate::usb) fn may_pass(&self) -> bool {
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
pub(in crate::usb) fn refuse_mounted(
    port: &PortPath,
    is_vouched_for: &dyn Fn(&str) -> bool,
) -> Result<FreeDisk, DiskError> {
    if !cfg!(any(target_os = "linux", windows)) {
        return Ok(FreeDisk { held: Vec::new(), is_checked: false });
    }
    Sysfs::system().free_disk(port, is_vouched_for)
}

/// Depth of the `block` folder below an interface: host, target and logical unit.
const DEPTH_TO_BLOCK: usize = 4;
/// Maximum depth of a stack of partition, crypt, logical volume and so on.
const DEPTH_OF_HOLDERS: usize = 8;

impl Sysfs {
    /// The disks behind the unit, as in `sda`.
    pub fn disks(&self, port: &PortPath) -> Vec<String> {
        let mut disks: Vec<String> = self.blocks(port).into_iter().map(|(_, disk)| disk).collect();
        disks.sort();
        disks
    }

    /// The disks behind the unit with their logical units, in order.
    pub fn bays(&self, port: &PortPath) -> Vec<BayDisk> {
        let mut bays = Vec::new();
        for (address, name) in self.blocks(port) {
            // As in 6:0:0:1: host, channel, target and logical unit.
            let number = address.rsplit(':').next().and_then(|number| number.parse::<u8>().ok());
            if let Some(lun) = number.and_then(|number| Lun::try_from(number).ok()) {
                bays.push(BayDisk { lun, name });
            }
        }
        bays.sort();
        bays
    }

    /// The disks behind the unit, each after the SCSI address that it is at.
    fn blocks(&self, port: &PortPath) -> Vec<(String, String)> {
        let mut found = Vec::new();
        blocks_below(&self.device(format_args!("{port}:1.0")), DEPTH_TO_BLOCK, &mut found);
        found
    }

    /// Uses of the unit's disks: mounts and swap, also through partitions and devices stacked on them.
    pub fn uses(&self, port: &PortPath) -> Vec<DiskUse> {
        let mut devices = Vec::new();
        for disk in self.disks(port) {
            self.stack(&disk, DEPTH_OF_HOLDERS, &mut devices);
        }
        let mounts = mounts_in(&read(&self.proc.join("self/mountinfo")));
        let swaps = read(&self.proc.join("swaps"));
        let mut uses = Vec::new();
        for device in devices {
            let number = read(&self.block(&device).join("dev"));
            let node = format!("/dev/{device}");
            for mount in &mounts {
                if mount.device_number == number || mount.source == node {
                    uses.push(DiskUse { device: device.clone(), by: Use::Mounted(mount.place.clone()) });
                }
            }
            if swaps.lines().skip(1).any(|line| line.split_whitespace().next() == Some(node.as_str())) {
                uses.push(DiskUse { device: device.clone(), by: Use::Swap });
            }
        }
        uses.sort();
        uses.dedup();
        uses
    }

    /// Takes the disks behind the unit, so that nobody else can begin to use them.
    ///
    /// Besides mounts and swap of this process's namespace, it checks for block devices on top of the disks. It opens
    /// each disk and partition with `O_EXCL`, which the kernel refuses for anything mounted or claimed by anybody
    /// (open(2)). If only root may open a disk, [`FreeDisk::is_checked`] is `false`. It is also `false` if the disk
    /// can't be opened for another reason, as in a container without its node, and `is_vouched_for` says that the user
    /// answers for it.
    ///
    /// # Errors
    /// [`DiskError`].
    pub(super) fn free_disk(
        &self,
        port: &PortPath,
        is_vouched_for: &dyn Fn(&str) -> bool,
    ) -> Result<FreeDisk, DiskError> {
        let mut uses = self.uses(port);
        if !uses.is_empty() {
            return Err(DiskError::InUse { port: port.clone(), uses });
        }
        let mut unchecked: Vec<UncheckedDisk> = Vec::new();
        let mut free = FreeDisk { held: Vec::new(), is_checked: true };
        for disk in self.disks(port) {
            // Open the whole disk last: once it is held, no partition can be claimed, not even by this process.
            let mut devices = self.partitions(&disk);
            devices.push(disk.clone());
            for device in devices {
                for holder in names(&self.block(&device).join("holders")) {
                    uses.push(DiskUse { device: device.clone(), by: Use::HeldBy(holder) });
                }
                // The kernel writes a slash in a device's name as an exclamation mark.
                let error = match (self.claim)(&self.dev.join(device.replace('!', "/"))) {
                    Ok(file) if device == disk => {
                        free.held.push(file);
                        continue;
                    }
                    Ok(_) => continue,
                    Err(error) => error,
                };
                match error.raw_os_error() {
                    Some(libc::EACCES) => free.is_checked = false,
                    Some(libc::EBUSY) => {
                        if uses.is_empty() {
                            uses.push(DiskUse { device, by: Use::Claimed });
                        }
                    }
                    // The disk left meanwhile, and its uses with it.
                    _ if !self.block(&device).exists() => {}
                    _ if is_vouched_for(&disk) => free.is_checked = false,
                    _ if unchecked.iter().any(|other| other.name == disk) => {}
                    _ => unchecked.push(UncheckedDisk { name: disk.clone(), why: error.to_string() }),
                }
            }
        }
        if !uses.is_empty() {
            return Err(DiskError::InUse { port: port.clone(), uses });
        }
        if !unchecked.is_empty() {
            return Err(DiskError::Unchecked { port: port.clone(), disks: unchecked });
        }
        Ok(free)
    }

    fn block(&self, device: &str) -> PathBuf {
        self.sys.join("class/block").join(device)
    }

    fn partitions(&self, device: &str) -> Vec<String> {
        let folder = self.block(device);
        names(&folder).into_iter().filter(|entry| folder.join(entry).join("partition").exists()).collect()
    }

    /// Collects a block device, its partitions, and the holders of any of them.
    fn stack(&self, device: &str, depth: usize, found: &mut Vec<String>) {
        if depth == 0 || found.iter().any(|known| known == device) {
            return;
        }
        found.push(device.to_owned());
        for partition in self.partitions(device) {
            self.stack(&partition, depth - 1, found);
        }
        for holder in names(&self.block(device).join("holders")) {
            self.stack(&holder, depth - 1, found);
        }
    }
}

/// Opens the node read-only and without waiting for a medium, so that it changes nothing.
#[cfg(unix)]
pub(super) fn open_exclusively(node: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(node)
}

#[cfg(not(unix))]
pub(super) fn open_exclusively(node: &Path) -> io::Result<File> {
    File::open(node)
}

fn blocks_below(folder: &Path, depth: usize, found: &mut Vec<(String, String)>) {
    let address = folder.file_name().unwrap_or_default().to_string_lossy();
    for name in names(folder) {
        let path = folder.join(&name);
        if name == "block" {
            found.extend(names(&path).into_iter().map(|disk| (address.to_string(), disk)));
        } else if depth > 0 && is_scsi_level(&name) && path.is_dir() {
            blocks_below(&path, depth - 1, found);
        }
    }
}

/// Whether a name is a level of the SCSI tree: host6, target6:0:0, 6:0:0:0. These are real folders; the links beside
/// them lead in circles.
fn is_scsi_level(name: &str) -> bool {
    name.starts_with("host") || name.starts_with("target") || name.split(':').count() == 4
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// `major:minor`.
    device_number: String,
    /// The mount point, unescaped.
    place: String,
    /// The mounted device, unescaped: `/dev/sda1`.
    source: String,
}

/// Parses every line that has the format's fields; skips other lines.
fn mounts_in(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount_in).collect()
}

fn mount_in(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let device_number = fields.nth(2)?.to_owned();
    let place = unescaped(fields.nth(1)?);
    // Optional fields end with a dash; file system type and source follow.
    let source = unescaped(fields.skip_while(|field| *field != "-").nth(2)?);
    Some(Mount { device_number, place, source })
}

/// Undoes the escaping of space, tab, newline and backslash as three octal digits.
fn unescaped(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if byte == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod mounts {
    use super::*;

    #[test]
    fn fields_are_found_past_any_number_of_optional_ones() {
        let text = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
                bad line\n\
                37 35 8:1 / /a\\134b rw - ext4 /dev/sda1 rw";
        let mounts = mounts_in(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].place.as_str(), mounts[0].source.as_str()), ("/mnt2", "/dev/root"));
        assert_eq!(mounts[1].place, "/a\\b");
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics(text: String) {
            let _ = mounts_in(&text);
        }
    }
}
