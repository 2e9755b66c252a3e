//! Linux's information about a unit without opening it: strings, kernel driver, disks, mounts, and the processes that have a
//! USB device open or hold a file's lock.
//!
//! Source: the kernel's `Documentation/ABI` for /sys/bus/usb and /sys/block; proc_pid_mountinfo(5), proc_pid_fd(5),
//! proc_pid_comm(5), proc_locks(5).

mod access;
mod surroundings;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests;
mod tunnelled;

use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use asm2464::escape::Escape as _;

use crate::bridge::PortPath;

pub use access::{NoAccess, Udev};
pub use tunnelled::{TunnelledDevice, TunnelledDock, TunnelledGpu, Tunnels, Waits};

/// The kernel's file systems, at any mount points.
#[derive(Debug, Clone)]
pub struct Sysfs {
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
    /// Opens a block device exclusively.
    claim: fn(&Path) -> io::Result<File>,
}

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

/// A disk for which the system doesn't report whether it is in use.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{name} ({why})")]
pub struct UncheckedDisk {
    /// The disk, as in `sda`.
    pub name: String,
    /// Why it can't be opened for the check.
    pub why: String,
}

/// Reasons the disks behind a unit are not free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFree {
    /// They are in use.
    InUse(Vec<DiskUse>),
    /// No use is seen, but these can't be checked.
    Unchecked(Vec<UncheckedDisk>),
}

/// Depth of the `block` folder below an interface: host, target and logical unit.
const DEPTH_TO_BLOCK: usize = 4;
/// Maximum depth of a stack of partition, crypt, logical volume and so on.
const DEPTH_OF_HOLDERS: usize = 8;

impl Sysfs {
    /// The file systems of this system.
    pub fn system() -> Self {
        Self::at("/sys", "/proc", "/dev")
    }

    /// Uses any three folders with the same structure.
    pub fn at(sys: impl Into<PathBuf>, proc: impl Into<PathBuf>, dev: impl Into<PathBuf>) -> Self {
        Self { sys: sys.into(), proc: proc.into(), dev: dev.into(), claim: open_exclusively }
    }

    /// Folder of a device or, by a name such as `3-1.2:1.0`, of an interface.
    fn device(&self, port: impl Display) -> PathBuf {
        self.sys.join("bus/usb/devices").join(port.to_string())
    }

    /// Reads one of the device's strings: `manufacturer`, `product`, `serial`.
    pub fn string(&self, port: &PortPath, name: &str) -> Option<String> {
        let text = fs::read(self.device(port).join(name)).ok()?;
        Some(String::from_utf8_lossy(&text).trim_end_matches('\n').to_owned())
    }

    /// Reads the raw descriptors: device, configuration, and BOS if the kernel provides it.
    pub fn descriptors(&self, port: &PortPath) -> Option<Vec<u8>> {
        let device = self.device(port);
        let mut bytes = bounded(&device.join("descriptors"))?;
        bytes.extend(bounded(&device.join("bos_descriptors")).unwrap_or_default());
        Some(bytes)
    }

    /// Name of the kernel driver that holds interface 0.
    pub fn driver(&self, port: &PortPath) -> Option<String> {
        let target = fs::read_link(self.device(format_args!("{port}:1.0")).join("driver")).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The disks behind the unit, as in `sda`.
    pub fn disks(&self, port: &PortPath) -> Vec<String> {
        let mut disks = Vec::new();
        blocks_below(&self.device(format_args!("{port}:1.0")), DEPTH_TO_BLOCK, &mut disks);
        disks.sort();
        disks
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
    /// [`NotFree`].
    pub fn free_disk(&self, port: &PortPath, is_vouched_for: &dyn Fn(&str) -> bool) -> Result<FreeDisk, NotFree> {
        let mut uses = self.uses(port);
        let mut unchecked: Vec<UncheckedDisk> = Vec::new();
        let mut held = Vec::new();
        let mut is_checked = true;
        let is_seen_in_use = !uses.is_empty();
        for disk in self.disks(port).into_iter().filter(|_| !is_seen_in_use) {
            // Open the whole disk last: once it is held, no partition can be claimed, not even by this process.
            let devices = self.partitions(&disk).into_iter().chain([disk.clone()]);
            for device in devices {
                let of = |by| DiskUse { device: device.clone(), by };
                uses.extend(names(&self.block(&device).join("holders")).into_iter().map(Use::HeldBy).map(of));
                // The kernel writes a slash in a device's name as an exclamation mark.
                match (self.claim)(&self.dev.join(device.replace('!', "/"))) {
                    Ok(file) if device == disk => held.push(file),
                    Ok(_) => {}
                    Err(error) if error.raw_os_error() == Some(libc::EACCES) => is_checked = false,
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        if uses.is_empty() {
                            uses.push(of(Use::Claimed));
                        }
                    }
                    // The disk left meanwhile, and its uses with it.
                    Err(_) if !self.block(&device).exists() => {}
                    Err(_) if is_vouched_for(&disk) => is_checked = false,
                    Err(_) if unchecked.iter().any(|other| other.name == disk) => {}
                    Err(error) => unchecked.push(UncheckedDisk { name: disk.clone(), why: error.to_string() }),
                }
            }
        }
        match (uses.is_empty(), unchecked.is_empty()) {
            (true, true) => Ok(FreeDisk { held, is_checked }),
            (true, false) => Err(NotFree::Unchecked(unchecked)),
            (false, _) => Err(NotFree::InUse(uses)),
        }
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

/// Reads a kernel file up to a limit that no device's descriptors reach.
fn bounded(path: &Path) -> Option<Vec<u8>> {
    const MOST: u64 = 0x1_0000;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Opens the node read-only and without waiting for a medium, so that it changes nothing.
#[cfg(unix)]
fn open_exclusively(node: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(node)
}

#[cfg(not(unix))]
fn open_exclusively(node: &Path) -> io::Result<File> {
    File::open(node)
}

fn blocks_below(folder: &Path, depth: usize, found: &mut Vec<String>) {
    for name in names(folder) {
        let path = folder.join(&name);
        if name == "block" {
            found.extend(names(&path));
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

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Reads a kernel file, without the end of its last line. A missing file counts as empty.
pub(super) fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()).unwrap_or_default()
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// `major:minor`.
    pub device_number: String,
    /// The mount point, unescaped.
    pub place: String,
    /// The mounted device, unescaped: `/dev/sda1`.
    pub source: String,
}

/// Parses every line that has the format's fields; skips other lines.
fn mounts_in(text: &str) -> Vec<Mount> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mount> {
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

/// A process that has a device open or holds its lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, derive_more::Display, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[display("process {pid} ({})", command.shown())]
pub struct Process {
    /// The process ID.
    pub pid: u32,
    /// The command's name, which the process itself may have set.
    pub command: String,
}

impl Sysfs {
    /// The processes, except this one, that have a USB device open. Only root sees other users' processes.
    pub fn users(&self, bus: u8, address: u8) -> Vec<Process> {
        let node = self.dev.join(format!("bus/usb/{bus:03}/{address:03}"));
        let holder = |name: &String| {
            let pid = name.parse().ok().filter(|pid| *pid != std::process::id())?;
            let folder = self.proc.join(name);
            let descriptors = folder.join("fd");
            let is_node = |name: &String| fs::read_link(descriptors.join(name)).is_ok_and(|target| target == node);
            let has_open = names(&descriptors).iter().any(is_node);
            has_open.then(|| Process { pid, command: read(&folder.join("comm")) })
        };
        let mut found: Vec<Process> = names(&self.proc).iter().filter_map(holder).collect();
        found.sort();
        found
    }

    /// The processes that hold a lock of flock(2) on a file. Only Linux reports them.
    pub(super) fn lock_holders(&self, file: &File) -> Vec<Process> {
        let inode = file.metadata().ok().and_then(|metadata| inode(&metadata));
        inode.map(|inode| self.holders_of(inode)).unwrap_or_default()
    }

    /// The processes that hold a lock of flock(2) on the file with this inode.
    pub(super) fn holders_of(&self, inode: u64) -> Vec<Process> {
        let holder = |line: &str| {
            // As in `1: FLOCK  ADVISORY  WRITE 708 00:13:20 0 EOF`. Waiting processes have `->` after the number.
            let [_, "FLOCK", _, _, pid, place, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return None;
            };
            let is_it = place.rsplit(':').next()?.parse() == Ok(inode);
            let pid = pid.parse().ok().filter(|_| is_it)?;
            Some(Process { pid, command: read(&self.proc.join(pid.to_string()).join("comm")) })
        };
        read(&self.proc.join("locks")).lines().filter_map(holder).collect()
    }
}

#[cfg(unix)]
pub(super) fn inode(metadata: &Metadata) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Some(metadata.ino())
}

#[cfg(not(unix))]
pub(super) fn inode(_: &Metadata) -> Option<u64> {
    None
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
