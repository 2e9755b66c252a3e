//! What Linux says of a unit without opening it: strings, kernel driver, disks, mounts.
//!
//! Source: the kernel's `Documentation/ABI` for /sys/bus/usb and /sys/block, `proc_pid_mountinfo(5)`.

mod mountinfo;
mod peer;

use std::fs;
use std::path::{Path, PathBuf};

use crate::bridge::PortPath;

/// The two kernel file systems, wherever they are mounted.
#[derive(Debug, Clone)]
pub struct Sysfs {
    sys: PathBuf,
    proc: PathBuf,
}

/// What keeps a disk in use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskUse {
    /// The disk or partition, as in `sda1`.
    pub device: String,
    /// Where it is mounted, or that it is swap.
    pub place: String,
}

/// From an interface down to its `block` folder there are host, target and logical unit.
const DEPTH_TO_BLOCK: usize = 4;
/// Partition, crypt, logical volume, ...: further than this no stack goes.
const DEPTH_OF_HOLDERS: usize = 8;

impl Sysfs {
    /// This system's.
    pub fn system() -> Self {
        Self::at("/sys", "/proc")
    }

    /// Any two folders with the same shape.
    pub fn at(sys: impl Into<PathBuf>, proc: impl Into<PathBuf>) -> Self {
        Self { sys: sys.into(), proc: proc.into() }
    }

    fn device(&self, port: &PortPath) -> PathBuf {
        self.sys.join("bus/usb/devices").join(port.to_string())
    }

    fn interface(&self, port: &PortPath) -> PathBuf {
        self.sys.join("bus/usb/devices").join(format!("{port}:1.0"))
    }

    /// One of the device's strings: `manufacturer`, `product`, `serial`.
    pub fn string(&self, port: &PortPath, name: &str) -> Option<String> {
        let text = fs::read(self.device(port).join(name)).ok()?;
        Some(String::from_utf8_lossy(&text).trim_end_matches('\n').to_owned())
    }

    /// The kernel driver that holds interface 0.
    pub fn driver(&self, port: &PortPath) -> Option<String> {
        let target = fs::read_link(self.interface(port).join("driver")).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The disks behind the unit, as in `sda`.
    pub fn disks(&self, port: &PortPath) -> Vec<String> {
        let mut disks = Vec::new();
        blocks_below(&self.interface(port), DEPTH_TO_BLOCK, &mut disks);
        disks.sort();
        disks
    }

    /// What uses the unit's disks: mounts and swap, through partitions and whatever is stacked on them.
    pub fn uses(&self, port: &PortPath) -> Vec<DiskUse> {
        let mut devices = Vec::new();
        for disk in self.disks(port) {
            self.stack(&disk, DEPTH_OF_HOLDERS, &mut devices);
        }
        let mounts = mountinfo::parse(&read(&self.proc.join("self/mountinfo")));
        let swaps = read(&self.proc.join("swaps"));
        let mut uses = Vec::new();
        for device in devices {
            let number = read(&self.sys.join("class/block").join(&device).join("dev")).trim().to_owned();
            let node = format!("/dev/{device}");
            for mount in &mounts {
                if mount.device_number == number || mount.source == node {
                    uses.push(DiskUse { device: device.clone(), place: mount.place.clone() });
                }
            }
            if swaps.lines().skip(1).any(|line| line.split_whitespace().next() == Some(node.as_str())) {
                uses.push(DiskUse { device: device.clone(), place: "swap".to_owned() });
            }
        }
        uses.sort();
        uses.dedup();
        uses
    }

    /// A block device, its partitions, and what holds any of them.
    fn stack(&self, device: &str, depth: usize, found: &mut Vec<String>) {
        if depth == 0 || found.iter().any(|known| known == device) {
            return;
        }
        found.push(device.to_owned());
        let folder = self.sys.join("class/block").join(device);
        for entry in names(&folder) {
            if folder.join(&entry).join("partition").exists() {
                self.stack(&entry, depth - 1, found);
            }
        }
        for holder in names(&folder.join("holders")) {
            self.stack(&holder, depth - 1, found);
        }
    }
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

/// host6, target6:0:0, 6:0:0:0: real folders on the way down, unlike the links beside them, which lead in circles.
fn is_scsi_level(name: &str) -> bool {
    name.starts_with("host") || name.starts_with("target") || name.split(':').count() == 4
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A kernel file that is not there says nothing.
fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A unit at 3-1.2 with `sda` behind it, whose second partition is encrypted as `dm-0`; `sdb` is another disk.
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
        // The link that leads in a circle on a real system.
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
        let sysfs = Sysfs::at(sys, root.path().join("proc"));
        (root, sysfs)
    }

    fn with_mounts(lines: &str) -> Vec<DiskUse> {
        let (root, sysfs) = tree();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), lines).unwrap();
        sysfs.uses(&"3-1.2".parse().unwrap())
    }

    fn used(device: &str, place: &str) -> DiskUse {
        DiskUse { device: device.to_owned(), place: place.to_owned() }
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
        assert_eq!(sysfs.uses(&"3-1.2".parse().unwrap()), [used("sda2", "swap")]);
    }
}
