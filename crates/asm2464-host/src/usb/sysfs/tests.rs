//! Tests on a tree like the kernel's, with a unit and its disks.

use std::os::unix::fs::symlink;

use super::disks::FreeDisk;
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
    // A link that leads in a circle, as on a real system: to the folder that holds it.
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
fn guarded(claim: fn(&Path) -> io::Result<File>) -> Result<FreeDisk, DiskError> {
    guarded_with(claim, &[])
}

/// The same, if the user vouches for these disks.
fn guarded_with(claim: fn(&Path) -> io::Result<File>, vouched_for: &[&str]) -> Result<FreeDisk, DiskError> {
    let (root, sysfs) = tree();
    fs::remove_dir_all(root.path().join("sys/block/sda/sda2/holders")).unwrap();
    Sysfs { claim, ..sysfs }.free_disk(&"3-1.2".parse().unwrap(), &|disk| vouched_for.contains(&disk))
}

fn in_use(used: DiskUse) -> DiskError {
    DiskError::InUse { port: "3-1.2".parse().unwrap(), uses: vec![used] }
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
fn a_disk_that_an_unknown_user_has_claimed_is_in_use() {
    let uses = guarded(|node| if node.ends_with("sda1") { refused(libc::EBUSY) } else { tempfile::tempfile() });
    let claimed = in_use(DiskUse { device: "sda1".to_owned(), by: Use::Claimed });
    assert_eq!(uses.unwrap_err(), claimed);
    // A known use counts, even if the user vouches for the disk.
    let busy = guarded_with(|node| refused(if node.ends_with("sda1") { libc::EBUSY } else { libc::ENOENT }), &["sda"]);
    assert_eq!(busy.unwrap_err(), claimed);
}

#[test]
fn without_root_mounts_swap_and_holders_decide_and_the_guard_says_so() {
    let free = guarded(|_| refused(libc::EACCES)).unwrap();
    assert!(!free.is_checked && free.held.is_empty());
    let (_root, sysfs) = tree();
    let port = "3-1.2".parse().unwrap();
    let held = Sysfs { claim: |_| refused(libc::EACCES), ..sysfs }.free_disk(&port, &|_| true);
    let by_crypt = DiskUse { device: "sda2".to_owned(), by: Use::HeldBy("dm-0".to_owned()) };
    assert_eq!(held.unwrap_err(), in_use(by_crypt));
}

#[test]
fn a_disk_that_cannot_be_checked_is_refused_unless_the_user_vouches_for_it_by_name() {
    for number in [libc::EIO, libc::ENOENT, libc::EPERM, libc::ENXIO, libc::ENOMEDIUM] {
        let claim = match number {
            libc::EIO => |_: &Path| refused(libc::EIO),
            libc::ENOENT => |_: &Path| refused(libc::ENOENT),
            libc::EPERM => |_: &Path| refused(libc::EPERM),
            libc::ENXIO => |_: &Path| refused(libc::ENXIO),
            _ => |_: &Path| refused(libc::ENOMEDIUM),
        };
        let unchecked = |result: Result<FreeDisk, DiskError>| match result.unwrap_err() {
            DiskError::Unchecked { disks, .. } => disks.into_iter().map(|disk| disk.name).collect::<Vec<_>>(),
            DiskError::InUse { uses, .. } => panic!("{number}: {uses:?}"),
        };
        assert_eq!(unchecked(guarded(claim)), ["sda"], "{number}: the disk once, not each partition");
        assert_eq!(unchecked(guarded_with(claim, &["sdb", "sda1"])), ["sda"], "{number}");
        let free = guarded_with(claim, &["sda"]).unwrap();
        assert!(!free.is_checked && free.held.is_empty(), "{number}");
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
fn each_bays_disk_is_named_with_its_lun() {
    let (root, sysfs) = tree();
    let target = root.path().join("sys/bus/usb/devices/3-1.2:1.0/host6/target6:0:0");
    for (lun, disk) in [(3, "sdb"), (1, "sdc"), (16, "sdd")] {
        fs::create_dir_all(target.join(format!("6:0:0:{lun}/block/{disk}"))).unwrap();
    }
    let port = "3-1.2".parse().unwrap();
    let bays = sysfs.bays(&port);
    assert_eq!(bays.iter().map(ToString::to_string).collect::<Vec<_>>(), ["sda (LUN 0)", "sdc (LUN 1)", "sdb (LUN 3)"]);
    assert_eq!(sysfs.disks(&port), ["sda", "sdb", "sdc", "sdd"], "each is guarded");
}

#[test]
fn a_disk_that_nothing_uses_has_no_uses() {
    assert_eq!(with_mounts(""), []);
    assert_eq!(with_mounts("36 35 8:16 / /mnt/other rw - ext4 /dev/sdb rw\n"), []);
}

#[test]
fn a_mounted_partition_is_found_by_its_number_and_its_mount_point_is_unescaped() {
    let uses = with_mounts("36 35 8:1 / /mnt/my\\040disk rw,noatime master:1 - ext4 /dev/root rw\n");
    assert_eq!(uses, [used("sda1", "/mnt/my disk")]);
}

#[test]
fn a_mount_with_an_anonymous_number_is_found_by_its_source() {
    assert_eq!(with_mounts("36 35 0:42 /@ / rw - btrfs /dev/sda1 rw\n"), [used("sda1", "/")]);
}

#[test]
fn a_mounted_device_on_top_of_a_partition_counts() {
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

#[test]
fn only_the_process_that_holds_a_files_lock_is_named_not_one_that_waits_or_holds_another() {
    use std::os::unix::fs::MetadataExt as _;
    let (root, sysfs) = tree();
    let file = File::create(root.path().join("unit.lock")).unwrap();
    let inode = file.metadata().unwrap().ino();
    fs::create_dir_all(root.path().join("proc/41")).unwrap();
    fs::write(root.path().join("proc/41/comm"), "python3\n").unwrap();
    let locks = format!(
        "1: FLOCK  ADVISORY  WRITE 41 00:13:{inode} 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 42 00:13:{inode} 0 EOF\n\
         2: POSIX  ADVISORY  WRITE 43 00:13:{inode} 0 EOF\n3: FLOCK  ADVISORY  READ 44 00:13:{} 0 EOF\n4: FLOCK\n",
        inode + 1
    );
    assert_eq!(sysfs.lock_holders(&file), []);
    fs::write(root.path().join("proc/locks"), locks).unwrap();
    assert_eq!(sysfs.lock_holders(&file), [Process { pid: 41, command: "python3".to_owned() }]);
}
