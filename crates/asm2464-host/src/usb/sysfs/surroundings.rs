//! What surrounds a unit on this machine: runtime suspend, the locks of other programs, the link's errors, the CPU's
//! governor, and the port's peer: a USB 3 connector's USB 2 and SuperSpeed halves are two ports, on two buses.
//!
//! Source: the kernel's `sysfs-devices-power` and `sysfs-bus-usb` (`peer`) in `Documentation/ABI/testing`, and
//! `Documentation/admin-guide/pm/cpufreq.rst`. `portli` is not in mainline's sysfs: commaai/agnos-kernel-sdm845 pull
//! request 125; xHCI 1.2, 5.4.10.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Process, Sysfs, bounded, inode, names};
use crate::bridge::PortPath;
use crate::usb::power;

/// Number of folders between a root hub and the host controller's own, at most.
const CONTROLLER_DEPTH: usize = 4;

impl Sysfs {
    /// Names of the unit and of the hubs above it that the kernel may suspend, from the unit up. `None` if the system
    /// doesn't report it for the unit.
    pub fn may_sleep(&self, port: &PortPath) -> Option<Vec<String>> {
        let control = |name: &String| line(&self.device(name).join(power::CONTROL));
        let chain: Vec<String> = power::names(port).collect();
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
        let value = match portli.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => portli.parse(),
        };
        // The upper half holds the numbers of lanes.
        value.ok().map(|value| value as u16)
    }

    /// Number of the unit's bus, and its address on it.
    pub fn address(&self, port: &PortPath) -> Option<(u8, u8)> {
        let number = |file: &str| line(&self.device(port).join(file))?.parse().ok();
        Some((number("busnum")?, number("devnum")?))
    }

    /// The processes that hold a lock of flock(2) on the file at this path. Opens nothing, and follows no link.
    pub fn lock_holders_at(&self, path: &Path) -> Vec<Process> {
        let file = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
        file.and_then(|file| inode(&file)).map(|inode| self.holders_of(inode)).unwrap_or_default()
    }
}

/// Reads a kernel file of one line. `None` if it can't be read or is empty.
fn line(path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&bounded(path)?).trim_end().to_owned();
    (!text.is_empty()).then_some(text)
}

impl Sysfs {
    /// The port that shares a connector with this one. A unit whose link comes up at the other speed appears there.
    pub fn peer(&self, port: &PortPath) -> Option<PortPath> {
        let (last, hubs) = port.ports().split_last()?;
        let folder = match PortPath::new(port.bus(), hubs.to_vec()) {
            Some(hub) => format!("{hub}/{hub}:1.0/{hub}-port{last}"),
            None => format!("usb{bus}/{bus}-0:1.0/usb{bus}-port{last}", bus = port.bus()),
        };
        let target = fs::read_link(self.sys.join("bus/usb/devices").join(folder).join("peer")).ok()?;
        let name = target.file_name()?.to_str()?;
        let (hub, number) = name.rsplit_once("-port")?;
        match hub.strip_prefix("usb") {
            Some(bus) => format!("{bus}-{number}").parse().ok(),
            None => format!("{hub}.{number}").parse().ok(),
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
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
        assert!(sysfs.lock_holders_at(&root.path().join("link")).is_empty());
        assert!(sysfs.lock_holders_at(&root.path().join("missing")).is_empty());
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
