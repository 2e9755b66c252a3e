//! The host's side of a unit: whether the system may suspend it, the CPUs' governors, and who holds a runtime's lock.

use std::env;
use std::path::PathBuf;

use asm2464_host::bridge::{Location, PortPath};
use asm2464_host::usb::sysfs::{Process, Sysfs};
use serde::{Deserialize, Serialize};

/// Prefixes of the runtimes' lock files: for AMD's GPUs, and in a branch of tinygrad for NVIDIA's. Source:
/// docs/clients.md, "Locks".
const RUNTIMES: [&str; 2] = ["am_usb", "nv_usb"];

/// The host's settings and locks that concern a unit. Empty if the system reports none, and for a unit in software.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HostState {
    /// The devices that the kernel may suspend, among the unit and the hubs above it: their names, from the unit up.
    /// `None` if the system doesn't report it.
    pub may_sleep: Option<Vec<String>>,
    /// The CPUs' frequency governors, each once.
    pub governors: Vec<String>,
    /// The runtimes' lock files for this unit that a process holds, and that process.
    pub locks: Vec<(PathBuf, Process)>,
}

impl HostState {
    /// Reads it for a unit. Call it before the unit is opened: the system keeps an open unit awake.
    pub fn of(location: &Location) -> Self {
        match location {
            Location::Port(port) => Self::at(&Sysfs::system(), port, &[PathBuf::from("/tmp"), env::temp_dir()]),
            Location::Virtual(_) => Self::default(),
        }
    }

    /// Reads it from this sysfs, with the runtimes' lock files in these folders.
    pub fn at(sysfs: &Sysfs, port: &PortPath, folders: &[PathBuf]) -> Self {
        let address = sysfs.address(port);
        let files = address.into_iter().flat_map(|(bus, address)| {
            let names = RUNTIMES.map(|runtime| format!("{runtime}:{bus}-{address}.lock"));
            folders.iter().flat_map(move |folder| names.clone().map(|name| folder.join(name)))
        });
        let held = |file: PathBuf| {
            let holders = sysfs.lock_holders_at(&file);
            holders.into_iter().map(move |holder| (file.clone(), holder))
        };
        let mut locks: Vec<(PathBuf, Process)> = files.flat_map(held).collect();
        locks.sort();
        locks.dedup();
        Self { may_sleep: sysfs.may_sleep(port), governors: sysfs.governors(), locks }
    }

    /// Whether the kernel may suspend the unit at this port.
    pub fn may_suspend(&self, location: &Location) -> bool {
        let name = location.to_string();
        self.may_sleep.as_ref().is_some_and(|names| names.contains(&name))
    }
}

/// The governor that makes round trips slow. Source: an owner's figures (jacobrosenthal/tinygrad, `extra/usbgpu`,
/// September 2026).
pub const SLOW_GOVERNOR: &str = "powersave";

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// A unit at 3-1.2, address 7, in a system like the kernel's.
    fn tree(control: &str) -> (tempfile::TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/bus/usb/devices/3-1.2/power/control", control);
        put("sys/bus/usb/devices/3-1.2/busnum", "3\n");
        put("sys/bus/usb/devices/3-1.2/devnum", "7\n");
        put("sys/bus/usb/devices/usb3/power/control", "auto\n");
        put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        put("proc/41/comm", "python3\n");
        put("tmp/am_usb:3-7.lock", "");
        put("tmp/am_usb:3-8.lock", "");
        let inode = |name: &str| fs::metadata(root.path().join("tmp").join(name)).unwrap().ino();
        let line = |name: &str, pid: u32| format!("1: FLOCK  ADVISORY  WRITE {pid} 00:13:{} 0 EOF\n", inode(name));
        put("proc/locks", &[line("am_usb:3-7.lock", 41), line("am_usb:3-8.lock", 42)].concat());
        let sysfs = Sysfs::at(root.path().join("sys"), root.path().join("proc"), root.path().join("dev"));
        (root, sysfs)
    }

    #[test]
    fn a_units_suspend_its_runtimes_lock_and_the_governor_are_read() {
        let port: PortPath = "3-1.2".parse().unwrap();
        for (control, sleepers, may_suspend) in
            [("auto\n", &["3-1.2", "usb3"][..], true), ("on\n", &["usb3"][..], false)]
        {
            let (root, sysfs) = tree(control);
            let folder = root.path().join("tmp");
            let host = HostState::at(&sysfs, &port, &[folder.clone(), folder.clone()]);
            assert_eq!(host.may_sleep.as_deref().unwrap(), sleepers);
            assert_eq!(host.may_suspend(&Location::Port(port.clone())), may_suspend);
            assert_eq!(host.governors, [SLOW_GOVERNOR]);
            let holder = Process { pid: 41, command: "python3".to_owned() };
            assert_eq!(host.locks, [(folder.join("am_usb:3-7.lock"), holder)]);
        }
    }

    #[test]
    fn nothing_is_read_for_a_unit_in_software_and_nothing_found_where_the_system_tells_nothing() {
        assert_eq!(HostState::of(&Location::Virtual("u".into())), HostState::default());
        let nowhere = Sysfs::at("/nowhere", "/nowhere", "/nowhere");
        assert_eq!(HostState::at(&nowhere, &"3-1".parse().unwrap(), &["/nowhere".into()]), HostState::default());
    }
}
