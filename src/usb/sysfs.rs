//! Linux's information about a unit without opening it: strings, kernel driver, disks, mounts.
//!
//! Source: the kernel's `Documentation/ABI` for /sys/bus/usb and /sys/block, `proc_pid_mountinfo(5)`.

mod mountinfo;
mod peer;
mod process;
mod tunnelled;

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use self::process::Process;
pub use self::tunnelled::TunnelledDevice;
use super::disk_guard::FreeDisk;
use crate::bridge::PortPath;

/// The kernel's file systems, at any mount points.
#[derive(Debug, Clone)]
pub struct Sysfs {
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
    /// Opens a block device exclusively.
    claim: fn(&Path) -> io::Result<File>,
}

/// A use of a disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Unknown, with the reason.
    #[display("for all that can be told ({_0})")]
    Unknown(String),
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
        let mounts = mountinfo::parse(&read(&self.proc.join("self/mountinfo")));
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
    /// (open(2)). If only root may open a disk, [`FreeDisk::is_checked`] is `false`.
    ///
    /// # Errors
    /// The uses of the disks. A disk whose use can't be determined counts as used.
    pub fn free_disk(&self, port: &PortPath) -> Result<FreeDisk, Vec<DiskUse>> {
        let mut uses = self.uses(port);
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
                    Err(error) => uses.push(of(Use::Unknown(error.to_string()))),
                }
            }
        }
        if uses.is_empty() { Ok(FreeDisk { held, is_checked }) } else { Err(uses) }
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

/// Opens the node read-only and without waiting for a medium, which changes nothing.
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

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Builds a unit at 3-1.2 with `sda` behind it, whose second partition is encrypted as `dm-0`; `sdb` is another
    /// disk.
    fn tree() -> (tempfile::TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().join("sys");
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/bus/usb/devices/3-1.2/product", "USB4 NVMe Enclosure\n");
        put("sys/bus/usb/drivers/uas/bind", "");
        symlink("../../../../bus/usb/drivers/uas", {
            let interface = sys.join("bus/usb/devices/3-1.2:1.0");
            fs::create_dir_all(&interface).unwrap();
            interface.join("driver")
        })
        .unwrap();
        put("sys/bus/usb/devices/3-1.2:1.0/host6/target6:0:0/6:0:0:0/block/sda/size", "2048\n");
        // A link that leads in a circle, as on a real system.
        symlink(sys.join("bus/usb/devices/3-1.2:1.0"), sys.join("bus/usb/devices/3-1.2:1.0/subsystem")).unwrap();
        for (device, number) in
            [("sda", "8:0"), ("sda/sda1", "8:1"), ("sda/sda2", "8:2"), ("sdb", "8:16"), ("dm-0", "253:0")]
        {
            put(&format!("sys/block/{device}/dev"), &format!("{number}\n"));
            let name = device.rsplit('/').next().unwrap();
            fs::create_dir_all(sys.join("class/block")).unwrap();
            symlink(sys.join("block").join(device), sys.join("class/block").join(name)).unwrap();
        }
        put("sys/block/sda/sda1/partition", "1\n");
        put("sys/block/sda/sda2/partition", "2\n");
        put("sys/block/sda/sda2/holders/dm-0/marker", "");
        let sysfs = Sysfs::at(sys, root.path().join("proc"), root.path().join("dev"));
        (root, sysfs)
    }

    fn with_mounts(lines: &str) -> Vec<DiskUse> {
        let (root, sysfs) = tree();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), lines).unwrap();
        sysfs.uses(&"3-1.2".parse().unwrap())
    }

    fn used(device: &str, place: &str) -> DiskUse {
        DiskUse { device: device.to_owned(), by: Use::Mounted(place.to_owned()) }
    }

    /// The guard's result if nothing is mounted, nothing holds `sda2`, and the kernel answers an exclusive open with
    /// `claim`.
    fn guarded(claim: fn(&Path) -> io::Result<File>) -> Result<FreeDisk, Vec<DiskUse>> {
        let (root, sysfs) = tree();
        fs::remove_dir_all(root.path().join("sys/block/sda/sda2/holders")).unwrap();
        Sysfs { claim, ..sysfs }.free_disk(&"3-1.2".parse().unwrap())
    }

    fn refused(number: i32) -> io::Result<File> {
        Err(io::Error::from_raw_os_error(number))
    }

    #[test]
    fn a_disk_that_can_be_opened_exclusively_is_held() {
        let free = guarded(|_| tempfile::tempfile()).unwrap();
        assert!(free.is_checked);
        assert_eq!(free.held.len(), 1);
    }

    #[test]
    fn a_disk_that_somebody_unseen_has_claimed_is_in_use() {
        let uses = guarded(|node| if node.ends_with("sda1") { refused(libc::EBUSY) } else { tempfile::tempfile() });
        assert_eq!(uses.unwrap_err(), [DiskUse { device: "sda1".to_owned(), by: Use::Claimed }]);
    }

    #[test]
    fn without_root_mounts_swap_and_holders_decide_and_the_guard_says_so() {
        let free = guarded(|_| refused(libc::EACCES)).unwrap();
        assert!(!free.is_checked && free.held.is_empty());
        let (_root, sysfs) = tree();
        let held = Sysfs { claim: |_| refused(libc::EACCES), ..sysfs }.free_disk(&"3-1.2".parse().unwrap());
        assert_eq!(held.unwrap_err(), [DiskUse { device: "sda2".to_owned(), by: Use::HeldBy("dm-0".to_owned()) }]);
    }

    #[test]
    fn an_unknown_state_counts_as_in_use() {
        for number in [libc::EIO, libc::ENOENT, libc::EPERM, libc::ENXIO, libc::ENOMEDIUM] {
            let uses = guarded(match number {
                libc::EIO => |_| refused(libc::EIO),
                libc::ENOENT => |_| refused(libc::ENOENT),
                libc::EPERM => |_| refused(libc::EPERM),
                libc::ENXIO => |_| refused(libc::ENXIO),
                _ => |_| refused(libc::ENOMEDIUM),
            });
            assert!(uses.unwrap_err().iter().all(|used| matches!(used.by, Use::Unknown(_))), "{number}");
        }
    }

    #[test]
    fn the_processes_that_have_a_unit_open_are_named() {
        let (root, sysfs) = tree();
        let node = root.path().join("dev/bus/usb/003/007");
        for (pid, command, opens) in [("17", "qemu\u{1b}[2J", true), ("18", "bash", false), ("self", "x", true)] {
            let folder = root.path().join("proc").join(pid);
            fs::create_dir_all(folder.join("fd")).unwrap();
            fs::write(folder.join("comm"), format!("{command}\n")).unwrap();
            symlink(if opens { node.as_path() } else { Path::new("/dev/null") }, folder.join("fd/3")).unwrap();
        }
        let users = sysfs.users(3, 7);
        assert_eq!(users.iter().map(ToString::to_string).collect::<Vec<_>>(), ["process 17 (qemu\\u{1b}[2J)"]);
        assert!(sysfs.users(3, 8).is_empty());
    }

    #[test]
    fn strings_driver_and_disks_are_found_by_port_path() {
        let (_root, sysfs) = tree();
        let port = "3-1.2".parse().unwrap();
        assert_eq!(sysfs.string(&port, "product").as_deref(), Some("USB4 NVMe Enclosure"));
        assert_eq!(sysfs.string(&port, "serial"), None);
        assert_eq!(sysfs.driver(&port).as_deref(), Some("uas"));
        assert_eq!(sysfs.disks(&port), ["sda"]);
        assert!(sysfs.disks(&"3-1.3".parse().unwrap()).is_empty());
    }

    #[test]
    fn a_disk_that_nothing_uses_has_no_uses() {
        assert_eq!(with_mounts(""), []);
        assert_eq!(with_mounts("36 35 8:16 / /mnt/other rw - ext4 /dev/sdb rw\n"), []);
    }

    #[test]
    fn a_mounted_partition_is_found_by_its_number_and_its_place_unescaped() {
        let uses = with_mounts("36 35 8:1 / /mnt/my\\040disk rw,noatime master:1 - ext4 /dev/root rw\n");
        assert_eq!(uses, [used("sda1", "/mnt/my disk")]);
    }

    #[test]
    fn a_mount_with_an_anonymous_number_is_found_by_its_source() {
        assert_eq!(with_mounts("36 35 0:42 /@ / rw - btrfs /dev/sda1 rw\n"), [used("sda1", "/")]);
    }

    #[test]
    fn what_is_stacked_on_a_partition_counts() {
        assert_eq!(with_mounts("36 35 253:0 / /home rw - ext4 /dev/mapper/home rw\n"), [used("dm-0", "/home")]);
    }

    #[test]
    fn swap_counts() {
        let (root, sysfs) = tree();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        let swaps = "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2\n";
        fs::write(root.path().join("proc/swaps"), swaps).unwrap();
        assert_eq!(sysfs.uses(&"3-1.2".parse().unwrap()), [DiskUse { device: "sda2".to_owned(), by: Use::Swap }]);
    }
}
