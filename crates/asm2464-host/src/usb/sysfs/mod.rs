//! Linux's information about a unit without opening it: strings, kernel driver, disks. And what surrounds the unit: runtime
//! suspend, the link's errors, the CPU's governor, and the port's peer: a USB 3 connector's USB 2 and SuperSpeed halves are
//! two ports, on two buses.
//!
//! Source: the kernel's `Documentation/ABI` for /sys/bus/usb; `sysfs-devices-power` and `sysfs-bus-usb` (`peer`) in
//! `Documentation/ABI/testing`; `Documentation/admin-guide/pm/cpufreq.rst`. `portli` is not in mainline's sysfs:
//! commaai/agnos-kernel-sdm845 pull request 125; xHCI 1.2, 5.4.10.

mod access;
mod disks;
mod host;
mod pci;
mod processes;
mod snapshot;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests;
mod tunnelled;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use asm2464::text::parse_number;

use crate::bridge::{BusSpeed, PortPath};

pub use access::AccessFault;
pub(super) use access::no_access;
pub(super) use disks::refuse_mounted;
pub use disks::{BayDisk, DiskError, DiskUse, UncheckedDisk, Use};
pub use host::{DevicePort, Forwarder, Forwarding};
pub use pci::{PciPort, PcieLink, RuntimePower, TunnelledDock, TunnelledGpu};
pub use processes::Process;
pub use tunnelled::{TunnelledDevice, Tunnels};

/// Number of folders between a root hub and the host controller's own, at most.
const CONTROLLER_DEPTH: usize = 4;

/// The kernel's file systems, at any mount points.
#[derive(Debug, Clone)]
pub struct Sysfs {
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
    /// Opens a block device exclusively.
    claim: fn(&Path) -> io::Result<File>,
}

impl Sysfs {
    /// The file systems of this system.
    pub fn system() -> Self {
        Self::at("/sys", "/proc", "/dev")
    }

    /// Uses any three folders with the same structure.
    pub fn at(sys: impl Into<PathBuf>, proc: impl Into<PathBuf>, dev: impl Into<PathBuf>) -> Self {
        Self { sys: sys.into(), proc: proc.into(), dev: dev.into(), claim: disks::open_exclusively }
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

    /// The speed of the unit's link. `None` if the system doesn't report it.
    pub fn speed(&self, port: &PortPath) -> Option<BusSpeed> {
        BusSpeed::of_sysfs(&line(&self.device(port).join("speed"))?)
    }

    /// Name of the kernel driver that holds interface 0.
    pub fn driver(&self, port: &PortPath) -> Option<String> {
        link_target(&self.device(format_args!("{port}:1.0")).join("driver"))
    }

    /// The port that shares a connector with this one. A unit whose link comes up at the other speed appears there.
    pub fn peer(&self, port: &PortPath) -> Option<PortPath> {
        let (last, hubs) = port.ports().split_last()?;
        let folder = match PortPath::new(port.bus(), hubs.to_vec()) {
            Some(hub) => format!("{hub}/{hub}:1.0/{hub}-port{last}"),
            None => format!("usb{bus}/{bus}-0:1.0/usb{bus}-port{last}", bus = port.bus()),
        };
        let name = link_target(&self.sys.join("bus/usb/devices").join(folder).join("peer"))?;
        let (hub, number) = name.rsplit_once("-port")?;
        match hub.strip_prefix("usb") {
            Some(bus) => format!("{bus}-{number}").parse().ok(),
            None => format!("{hub}.{number}").parse().ok(),
        }
    }

    /// Names of the unit and of the hubs above it that the kernel may suspend, from the unit up. `None` if the system
    /// doesn't report it for the unit.
    pub fn may_sleep(&self, port: &PortPath) -> Option<Vec<String>> {
        let control = |name: &String| line(&self.device(name).join(POWER_CONTROL));
        let chain: Vec<String> = devices_on_the_way(port).collect();
        control(chain.first()?)?;
        Some(chain.into_iter().filter(|name| control(name).as_deref() == Some("auto")).collect())
    }

    /// The CPUs' frequency governors, each once.
    pub fn governors(&self) -> Vec<String> {
        let cpus = self.sys.join("devices/system/cpu");
        let governor = |name: String| line(&cpus.join(name).join("cpufreq/scaling_governor"));
        names(&cpus).into_iter().filter_map(governor).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Number of link errors that the unit's host controller has counted, modulo 2^16. `None` if the kernel doesn't
    /// show it.
    pub fn link_errors(&self, port: &PortPath) -> Option<u16> {
        let root_hub = fs::canonicalize(self.device(format_args!("usb{}", port.bus()))).ok()?;
        let mut above = root_hub.ancestors().skip(1).take(CONTROLLER_DEPTH);
        let portli = above.find_map(|folder| line(&folder.join("portli")))?;
        let register = u32::try_from(parse_number(&portli)?).ok()?;
        // The upper half holds the numbers of lanes.
        Some(register as u16)
    }

    /// Whether a device node belongs to the unit, as in `/dev/sda`, `/dev/sg0` or `/dev/bus/usb/003/004`; or a disk's or
    /// another device's bare name. A link counts as what it points to.
    pub fn is_node_of(&self, node: &Path, port: &PortPath) -> bool {
        let node = node.canonicalize().unwrap_or_else(|_| node.to_owned());
        if let Ok(usb) = node.strip_prefix("/dev/bus/usb") {
            let mut numbers = usb.iter().map(|number| number.to_str()?.parse::<u8>().ok());
            let named = numbers.next().flatten().zip(numbers.next().flatten());
            return named.is_some() && named == self.address(port);
        }
        let (Some(name), Ok(unit)) = (node.file_name(), self.device(port).canonicalize()) else { return false };
        ["block", "scsi_generic", "tty", "usbmisc"].iter().any(|class| {
            let device = self.sys.join("class").join(class).join(name).canonicalize();
            device.is_ok_and(|device| device.starts_with(&unit))
        })
    }

    /// Number of the unit's bus, and its address on it.
    pub fn address(&self, port: &PortPath) -> Option<(u8, u8)> {
        let number = |file: &str| line(&self.device(port).join(file))?.parse().ok();
        Some((number("busnum")?, number("devnum")?))
    }
}

/// Reads a kernel file up to a limit that no device's descriptors reach.
fn bounded(path: &Path) -> Option<Vec<u8>> {
    const MOST: u64 = 0x1_0000;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The setting that forbids or permits runtime suspend, below a device's folder. Source: the kernel's
/// `Documentation/ABI/testing/sysfs-devices-power`.
pub(super) const POWER_CONTROL: &str = "power/control";

/// Names of the unit, the hubs on the way and the root hub: `3-1.2`, `3-1`, `usb3`.
pub(super) fn devices_on_the_way(port: &PortPath) -> impl Iterator<Item = String> {
    let (bus, ports) = (port.bus(), port.ports());
    let above = (1..=ports.len()).rev().filter_map(move |len| PortPath::new(bus, ports[..len].to_vec()));
    above.map(|path| path.to_string()).chain([format!("usb{bus}")])
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Name of the file or folder that a link points to.
fn link_target(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Reads a kernel file, without the end of its last line. A missing file counts as empty.
pub(super) fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()).unwrap_or_default()
}

/// Reads a kernel file of one line. `None` if it can't be read or is empty.
fn line(path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&bounded(path)?).trim_end().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(unix)]
#[cfg(test)]
mod made_trees {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    pub(super) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let at = |folder: &str| root.path().join(folder);
        let sysfs = Sysfs::at(at("sys"), at("proc"), at("dev"));
        (root, sysfs)
    }

    fn port() -> PortPath {
        "3-1.2".parse().unwrap()
    }

    #[test]
    fn the_unit_and_the_hubs_that_may_be_suspended_are_named_from_the_unit_up() {
        let named = |unit: &str| {
            let place = |name: &str| format!("sys/bus/usb/devices/{name}/power/control");
            let files = [(place("3-1.2"), unit), (place("3-1"), "on\n"), (place("usb3"), "auto\n")];
            let (_root, sysfs) = tree(&files.each_ref().map(|(path, text)| (path.as_str(), *text)));
            sysfs.may_sleep(&port()).unwrap()
        };
        assert_eq!(named("auto\n"), ["3-1.2", "usb3"]);
        assert_eq!(named("on\n"), ["usb3"]);
        assert_eq!(Sysfs::at("/nowhere", "/nowhere", "/nowhere").may_sleep(&port()), None);
    }

    #[test]
    fn each_governor_is_named_once() {
        let cpu = |name: &str| format!("sys/devices/system/cpu/{name}/cpufreq/scaling_governor");
        let (one, two, three) = (cpu("cpu0"), cpu("cpu1"), cpu("cpu2"));
        let (_root, sysfs) = tree(&[(&one, "schedutil\n"), (&two, "powersave\n"), (&three, "powersave\n")]);
        assert_eq!(sysfs.governors(), ["powersave", "schedutil"]);
        assert!(Sysfs::at("/nowhere", "/nowhere", "/nowhere").governors().is_empty());
    }

    #[test]
    fn the_controllers_count_of_link_errors_is_the_lower_half_of_its_register() {
        let controller = "sys/devices/platform/a600000.ssusb";
        for (text, expected) in [
            ("0x00120007\n", Some(7)),
            ("0xffff\n", Some(0xFFFF)),
            ("5\n", Some(5)),
            ("", None),
            ("0x\n", None),
            ("many\n", None),
        ] {
            let (root, sysfs) = tree(&[(&format!("{controller}/portli"), text)]);
            let hub = root.path().join(controller).join("xhci-hcd.0.auto/usb3");
            fs::create_dir_all(&hub).unwrap();
            let devices = root.path().join("sys/bus/usb/devices");
            fs::create_dir_all(&devices).unwrap();
            symlink(hub, devices.join("usb3")).unwrap();
            assert_eq!(sysfs.link_errors(&port()), expected, "{text:?}");
            assert_eq!(sysfs.link_errors(&"4-1".parse().unwrap()), None);
        }
    }

    #[test]
    fn who_holds_the_lock_of_a_file_is_found_without_opening_it_and_not_through_a_link() {
        let (root, sysfs) = tree(&[("am.lock", ""), ("proc/41/comm", "python3\n")]);
        let file = root.path().join("am.lock");
        assert!(sysfs.lock_holders_at(&file).is_empty());
        let inode = fs::metadata(&file).unwrap().ino();
        let locks = format!("1: FLOCK  ADVISORY  WRITE 41 00:13:{inode} 0 EOF\n");
        fs::write(root.path().join("proc/locks"), locks).unwrap();
        assert_eq!(sysfs.lock_holders_at(&file), [Process { pid: 41, command: "python3".to_owned() }]);
        symlink(&file, root.path().join("link")).unwrap();
        // The process that took the lock has ended, and its child has the file open.
        fs::remove_dir_all(root.path().join("proc/41")).unwrap();
        fs::create_dir_all(root.path().join("proc/42/fd")).unwrap();
        fs::write(root.path().join("proc/42/comm"), "worker\n").unwrap();
        symlink(&file, root.path().join("proc/42/fd/3")).unwrap();
        assert_eq!(sysfs.lock_holders_at(&file), [Process { pid: 42, command: "worker".to_owned() }]);
        assert!(sysfs.lock_holders_at(&root.path().join("link")).is_empty());
        assert!(sysfs.lock_holders_at(&root.path().join("missing")).is_empty());
    }

    #[test]
    fn a_units_speed_is_the_kernels_figure() {
        let file = "sys/bus/usb/devices/3-1.2/speed";
        let speed = |text: &str| tree(&[(file, text)]).1.speed(&port());
        assert_eq!(tree(&[(file, "20000\n")]).1.speed(&port()).map(BusSpeed::at_least), Some(20_000));
        assert_eq!((speed("unknown\n"), speed("")), (None, None));
    }

    #[test]
    fn a_units_address_is_read() {
        let folder = "sys/bus/usb/devices/3-1.2";
        let (_root, sysfs) = tree(&[(&format!("{folder}/busnum"), "3\n"), (&format!("{folder}/devnum"), "17\n")]);
        assert_eq!(sysfs.address(&port()), Some((3, 17)));
        assert_eq!(sysfs.address(&"3-1".parse().unwrap()), None);
    }

    #[test]
    fn a_connectors_other_port_is_found_on_a_root_hub_and_behind_another() {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("bus/usb/devices");
        for (folder, peer) in [
            ("usb3/3-0:1.0/usb3-port1", "../../../usb4/4-0:1.0/usb4-port1"),
            ("3-1.4/3-1.4:1.0/3-1.4-port2", "../../../4-1.4/4-1.4:1.0/4-1.4-port2"),
        ] {
            fs::create_dir_all(devices.join(folder)).unwrap();
            symlink(peer, devices.join(folder).join("peer")).unwrap();
        }
        let sysfs = Sysfs::at(root.path(), root.path(), root.path());
        let peer = |port: &str| sysfs.peer(&port.parse().unwrap()).map(|peer| peer.to_string());
        assert_eq!(peer("3-1").as_deref(), Some("4-1"));
        assert_eq!(peer("3-1.4.2").as_deref(), Some("4-1.4.2"));
        assert_eq!(peer("3-2"), None);
    }
}
