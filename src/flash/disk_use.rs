//! Whether the system uses the disk behind a unit: mounted, swapped to, or held by another block device.
//!
//! Linux tells through sysfs (`Documentation/ABI/stable/sysfs-block`) and procfs (`proc_pid_mountinfo(5)`). Other
//! systems do not let go of a mounted disk's USB device, so opening it fails there by itself.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One use of a unit's disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskUse {
    /// The block device: `sda1`.
    pub block: String,
    /// What it is used for.
    pub purpose: Purpose,
}

/// What a block device is used for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Mounted here.
    Mounted(PathBuf),
    /// Swap space.
    Swap,
    /// Part of another block device, which nothing mounts: LVM, RAID, an encrypted volume.
    HeldBy(String),
}

impl fmt::Display for DiskUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, purpose } = self;
        match purpose {
            Purpose::Mounted(at) => write!(f, "{block} is mounted at {}", at.display()),
            Purpose::Swap => write!(f, "{block} is swap space"),
            Purpose::HeldBy(holder) => write!(f, "{block} is part of {holder}"),
        }
    }
}

/// Every use of the disks of the USB device at this port path, on the system whose `/sys` and `/proc` are in `root`.
///
/// # Errors
/// Where sysfs or procfs can't be read: then it is not known that the disk is free.
pub fn disk_uses(root: &Path, port: &str) -> io::Result<Vec<DiskUse>> {
    let device = root.join("sys/bus/usb/devices").join(port);
    let mut disks = Vec::new();
    if device.exists() {
        find_block_devices(&device, 0, &mut disks)?;
    }
    if disks.is_empty() {
        return Ok(Vec::new());
    }
    let mounts = mounts(&fs::read_to_string(root.join("proc/self/mountinfo"))?);
    // A kernel without swap has no such file.
    let swaps = match fs::read_to_string(root.join("proc/swaps")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut found = BTreeSet::new();
    for disk in &disks {
        uses_of(root, disk, &mounts, &swaps, &mut found)?;
    }
    Ok(found.into_iter().collect())
}

/// How deep below a USB device its disks are: interface, host, target, unit, `block`, and hubs below are no part.
const MAX_DEPTH: usize = 7;

/// The `block/NAME` folders below a device's own interfaces.
fn find_block_devices(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Links lead out of the device; sysfs has real folders below it only.
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let (name, path) = (entry.file_name(), entry.path());
        if name == "block" {
            for disk in fs::read_dir(&path)? {
                found.push(disk?.path());
            }
        } else if depth < MAX_DEPTH && (depth > 0 || name.to_string_lossy().contains(':')) {
            find_block_devices(&path, depth + 1, found)?;
        }
    }
    Ok(())
}

fn uses_of(root: &Path, block: &Path, mounts: &[Mount], swaps: &str, found: &mut BTreeSet<DiskUse>) -> io::Result<()> {
    let name = block.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = fs::read_to_string(block.join("dev")).map(|text| text.trim().to_owned()).unwrap_or_default();
    // Device-mapper names its nodes; file systems that have device numbers of their own show the node.
    let mapped = fs::read_to_string(block.join("dm/name")).map(|text| format!("/dev/mapper/{}", text.trim())).ok();
    let node = format!("/dev/{name}");
    let is_node = |source: &str| source == node || Some(source) == mapped.as_deref();
    for mount in mounts.iter().filter(|mount| (!number.is_empty() && mount.number == number) || is_node(&mount.source))
    {
        found.insert(DiskUse { block: name.clone(), purpose: Purpose::Mounted(mount.at.clone()) });
    }
    if swaps.lines().filter_map(|line| line.split_whitespace().next()).any(|source| is_node(&unescaped(source))) {
        found.insert(DiskUse { block: name.clone(), purpose: Purpose::Swap });
    }
    for entry in entries(block)? {
        if entry.join("partition").exists() {
            uses_of(root, &entry, mounts, swaps, found)?;
        }
    }
    for holder in entries(&block.join("holders"))? {
        let holder_name = holder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let before = found.len();
        // A holder can't hold itself: each step goes to another device.
        uses_of(root, &root.join("sys/class/block").join(&holder_name), mounts, swaps, found)?;
        if found.len() == before {
            found.insert(DiskUse { block: name.clone(), purpose: Purpose::HeldBy(holder_name) });
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

struct Mount {
    number: String,
    at: PathBuf,
    source: String,
}

/// `36 35 98:0 / /mnt rw,noatime - ext3 /dev/root rw`: number third, place fifth, source second after the dash.
fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let number = words.nth(2)?.to_owned();
            let at = PathBuf::from(unescaped(words.nth(1)?));
            let source = unescaped(words.skip_while(|word| *word != "-").nth(2)?);
            Some(Mount { number, at, source })
        })
        .collect()
}

/// Undoes the kernel's `\040` for a space, and the like.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| matches!(d, b'0'..=b'7')));
        match digits.map(|digits| digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'))) {
            Some(byte @ 0..=255) => {
                bytes.push(byte as u8);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with one disk, two partitions, behind port 2-3, and another unit's disk on the hub port 2-3.1.
    fn system(mountinfo: &str, swaps: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let disk = "sys/bus/usb/devices/2-3/2-3:1.0/host4/target4:0:0/4:0:0:0/block/sdb";
        write(&format!("{disk}/dev"), "8:16\n");
        write(&format!("{disk}/sdb1/dev"), "8:17\n");
        write(&format!("{disk}/sdb1/partition"), "1\n");
        write(&format!("{disk}/sdb2/dev"), "8:18\n");
        write(&format!("{disk}/sdb2/partition"), "2\n");
        fs::create_dir_all(root.path().join(format!("{disk}/sdb2/holders/dm-0"))).unwrap();
        write("sys/class/block/dm-0/dev", "253:0\n");
        write("sys/class/block/dm-0/dm/name", "vault\n");
        write("sys/bus/usb/devices/2-3/2-3.1/2-3.1:1.0/host5/target5:0:0/5:0:0:0/block/sdc/dev", "8:32\n");
        write("proc/self/mountinfo", mountinfo);
        write("proc/swaps", swaps);
        root
    }

    fn uses(mountinfo: &str, swaps: &str) -> Vec<String> {
        let root = system(mountinfo, swaps);
        disk_uses(root.path(), "2-3").unwrap().iter().map(DiskUse::to_string).collect()
    }

    #[test]
    fn a_mounted_partition_is_found_by_its_number_and_by_its_name() {
        let by_number = "30 1 8:17 / /media/my\\040disk rw,noatime shared:1 - ext4 /dev/root rw\n";
        assert_eq!(uses(by_number, "")[0], "sdb1 is mounted at /media/my disk");
        let by_name = "30 1 0:44 /sub /data rw - btrfs /dev/sdb1 rw,space_cache\n";
        assert_eq!(uses(by_name, "")[0], "sdb1 is mounted at /data");
    }

    #[test]
    fn an_encrypted_volume_and_swap_space_count_as_use() {
        assert_eq!(uses("", ""), ["sdb2 is part of dm-0"]);
        let opened = "30 1 0:44 / /data rw - btrfs /dev/mapper/vault rw\n";
        assert_eq!(uses(opened, ""), ["dm-0 is mounted at /data"]);
        let swaps = "Filename Type Size Used Priority\n/dev/sdb1 partition 1 0 -2\n";
        assert_eq!(uses(opened, swaps), ["dm-0 is mounted at /data", "sdb1 is swap space"]);
    }

    #[test]
    fn a_disk_on_a_hub_below_is_not_the_units() {
        let root = system("30 1 8:32 / /other rw - ext4 /dev/sdc rw\n", "");
        let uses = disk_uses(root.path(), "2-3").unwrap();
        assert!(uses.iter().all(|found| found.block != "sdc"), "{uses:?}");
    }

    #[test]
    fn a_unit_without_a_disk_has_no_uses() {
        let root = system("", "");
        assert_eq!(disk_uses(root.path(), "7-1").unwrap(), []);
    }

    proptest::proptest! {
        #[test]
        fn any_mountinfo_is_read_without_panic(text in "([0-9: /\\\\a-z-]{0,60}\n){0,4}") {
            let _ = mounts(&text);
        }
    }
}
