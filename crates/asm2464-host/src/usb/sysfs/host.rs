//! What of the host decides whether a dock appears there: who hands its USB devices on, which of its USB-C ports are the
//! device, and whether it has USB4.
//!
//! Sources, in Linux: `Documentation/ABI/testing/sysfs-class-typec` (`data_role`, `<port>-partner`), `sysfs-class-usb_role`
//! and `sysfs-bus-thunderbolt`; `Documentation/ABI/stable/sysfs-class-udc` (`state`); the root hub's serial number is the
//! name of its controller (`rh_string`, drivers/usb/core/hcd.c), which USB/IP calls `vhci_hcd`
//! (drivers/usb/usbip/vhci_hcd.c). WSL's kernel has `microsoft` in its release. A virtual machine's maker stands in the
//! firmware's tables, as systemd reads them (`detect_vm_dmi`, src/basic/virt.c); QEMU's USB controllers have Red Hat's PCI ID.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::{Sysfs, line, names, read};
use crate::bridge::PortPath;

/// Who hands a USB device on to this system. Such a device is not there by itself again after it has left the bus, as a
/// dock does when it restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarder {
    /// usbipd-win, to Windows' Subsystem for Linux.
    Wsl,
    /// Another server of USB/IP.
    UsbIp,
    /// QEMU's `usb-host`.
    Qemu,
    /// VirtualBox' filters.
    VirtualBox,
    /// Another monitor of virtual machines.
    Machine,
}

/// Who hands on what, on this host. Nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// The buses of USB/IP's virtual controllers.
    usb_ip: BTreeSet<u8>,
    /// Whether USB/IP's driver is loaded, or the kernel is WSL's.
    has_usb_ip: bool,
    is_wsl: bool,
    machine: Option<Forwarder>,
    /// The buses of QEMU's controllers.
    emulated: BTreeSet<u8>,
}

impl Forwarding {
    /// Says who hands on the devices at this port; without one, all that this host may get.
    pub fn of(&self, port: Option<&PortPath>) -> Option<Forwarder> {
        let through_usb_ip = match port {
            Some(port) => self.usb_ip.contains(&port.bus()) || (self.is_wsl && self.usb_ip.is_empty()),
            None => self.has_usb_ip,
        };
        if through_usb_ip {
            return Some(if self.is_wsl { Forwarder::Wsl } else { Forwarder::UsbIp });
        }
        let is_emulated = match port {
            Some(port) => self.emulated.contains(&port.bus()),
            None => !self.emulated.is_empty(),
        };
        if is_emulated { Some(Forwarder::Qemu) } else { self.machine }
    }
}

/// A USB-C port that is the device, with something connected: no dock can appear there before it is the host.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DevicePort {
    /// The kernel's name of the port, or of its role switch.
    pub name: String,
    /// The file that takes `host`. Missing if the port can't be the host, as far as the kernel says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_file: Option<PathBuf>,
}

impl Sysfs {
    /// Reads who hands USB devices on to this host.
    pub fn forwarding(&self) -> Forwarding {
        let mut found = Forwarding { is_wsl: self.is_wsl(), machine: self.machine(), ..Forwarding::default() };
        let devices = self.sys.join("bus/usb/devices");
        for name in names(&devices) {
            let Some(bus) = name.strip_prefix("usb").and_then(|bus| bus.parse().ok()) else { continue };
            let hub = devices.join(&name);
            if read(&hub.join("serial")).starts_with("vhci_hcd") {
                found.usb_ip.insert(bus);
            }
            let controller = fs::canonicalize(&hub).ok().and_then(|hub| hub.parent().map(|above| above.join("vendor")));
            if controller.and_then(|vendor| line(&vendor)).is_some_and(|vendor| vendor == RED_HAT) {
                found.emulated.insert(bus);
            }
        }
        let is_loaded = self.sys.join("bus/platform/drivers/vhci_hcd").exists();
        found.has_usb_ip = found.is_wsl || is_loaded || !found.usb_ip.is_empty();
        found
    }

    fn is_wsl(&self) -> bool {
        read(&self.proc.join("sys/kernel/osrelease")).to_lowercase().contains("microsoft")
    }

    fn machine(&self) -> Option<Forwarder> {
        let maker = |file: &str| line(&self.sys.join("class/dmi/id").join(file));
        for text in ["product_name", "sys_vendor", "board_vendor", "bios_vendor"].into_iter().filter_map(maker) {
            for (name, forwarder) in MACHINES {
                if text.starts_with(name) {
                    return Some(forwarder);
                }
            }
        }
        None
    }

    /// The USB-C ports that are the device and have a partner. On a kernel that knows no USB-C port: the role switches
    /// that are the device, if a USB device controller sees a host or its power.
    pub fn device_ports(&self) -> Vec<DevicePort> {
        let typec = self.sys.join("class/typec");
        let all = names(&typec);
        let is_port = |name: &&String| name.strip_prefix("port").is_some_and(|number| number.parse::<u16>().is_ok());
        let ports: Vec<&String> = all.iter().filter(is_port).collect();
        let switches = self.switches_as_device();
        if ports.is_empty() && !self.has_partner_of_controller() {
            return Vec::new();
        }
        if ports.is_empty() {
            let port = |(name, role): (String, PathBuf)| DevicePort { name, role_file: Some(role) };
            return switches.into_iter().map(port).collect();
        }
        let mut found = Vec::new();
        for name in ports {
            let role = typec.join(name).join("data_role");
            let roles = read(&role);
            if !roles.contains("[device]") || !all.contains(&format!("{name}-partner")) {
                continue;
            }
            let role_file = if roles.split_whitespace().any(|role| role == "host") {
                Some(role)
            } else if let [(_, only)] = switches.as_slice() {
                // Nothing says which switch belongs to which port.
                Some(only.clone())
            } else {
                None
            };
            found.push(DevicePort { name: name.clone(), role_file });
        }
        found
    }

    /// The role switches that are the device: their names, and their files.
    fn switches_as_device(&self) -> Vec<(String, PathBuf)> {
        let class = self.sys.join("class/usb_role");
        let with_file = |name: String| (name.clone(), class.join(name).join("role"));
        let all = names(&class).into_iter().map(with_file);
        all.filter(|(_, role)| line(role).as_deref() == Some("device")).collect()
    }

    /// Whether a controller of the device's role has something at its other end.
    fn has_partner_of_controller(&self) -> bool {
        let class = self.sys.join("class/udc");
        let states = names(&class).into_iter().filter_map(|name| line(&class.join(name).join("state")));
        states.into_iter().any(|state| state != "not attached" && state != "not-attached")
    }

    /// Whether the host has USB4 or Thunderbolt: a host router of its own, `0-0`.
    pub fn has_usb4(&self) -> bool {
        let routers = names(&self.sys.join("bus/thunderbolt/devices"));
        routers.iter().any(|name| name.strip_suffix("-0").is_some_and(|domain| domain.parse::<u16>().is_ok()))
    }
}

/// The PCI vendor of QEMU's USB controllers.
const RED_HAT: &str = "0x1b36";

/// How the firmware's tables of virtual machines begin.
const MACHINES: [(&str, Forwarder); 9] = [
    ("VirtualBox", Forwarder::VirtualBox),
    ("innotek GmbH", Forwarder::VirtualBox),
    ("QEMU", Forwarder::Qemu),
    ("KVM", Forwarder::Qemu),
    ("VMware", Forwarder::Machine),
    ("VMW", Forwarder::Machine),
    ("Parallels", Forwarder::Machine),
    ("BHYVE", Forwarder::Machine),
    ("Xen", Forwarder::Machine),
];

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::super::made_trees::tree;
    use super::*;

    const VHCI: (&str, &str) = ("sys/bus/usb/devices/usb2/serial", "vhci_hcd.0\n");
    const OWN: (&str, &str) = ("sys/bus/usb/devices/usb1/serial", "0000:00:14.0\n");
    const WSL: (&str, &str) = ("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n");

    fn forwarder(files: &[(&str, &str)], port: Option<&str>) -> Option<Forwarder> {
        let (_root, sysfs) = tree(files);
        sysfs.forwarding().of(port.map(|port| port.parse().unwrap()).as_ref())
    }

    #[test]
    fn usb_ip_hands_on_what_is_on_its_own_bus_and_is_wsl_only_by_the_kernels_release() {
        for port in [Some("2-1"), None] {
            assert_eq!(forwarder(&[VHCI, WSL], port), Some(Forwarder::Wsl));
            assert_eq!(forwarder(&[VHCI, OWN], port), Some(Forwarder::UsbIp));
        }
        assert_eq!(forwarder(&[VHCI, OWN], Some("1-1")), None, "a dock of this host's own");
        let loaded = ("sys/bus/platform/drivers/vhci_hcd/bind", "");
        assert_eq!(forwarder(&[loaded], None), Some(Forwarder::UsbIp));
        assert_eq!((forwarder(&[OWN], None), forwarder(&[], None)), (None, None));
    }

    #[test]
    fn wsl_gets_a_dock_from_windows_also_before_the_first_one() {
        assert_eq!(forwarder(&[WSL], None), Some(Forwarder::Wsl));
        assert_eq!(forwarder(&[WSL], Some("2-1")), Some(Forwarder::Wsl));
        let old = ("proc/sys/kernel/osrelease", "4.19.104-Microsoft\n");
        assert_eq!(forwarder(&[old], None), Some(Forwarder::Wsl));
    }

    #[test]
    fn a_virtual_machine_is_known_by_its_tables_or_by_its_usb_controller() {
        for (file, text, expected) in [
            ("product_name", "VirtualBox\n", Some(Forwarder::VirtualBox)),
            ("sys_vendor", "innotek GmbH\n", Some(Forwarder::VirtualBox)),
            ("sys_vendor", "QEMU\n", Some(Forwarder::Qemu)),
            ("sys_vendor", "VMware, Inc.\n", Some(Forwarder::Machine)),
            ("sys_vendor", "Framework\n", None),
        ] {
            let file = format!("sys/class/dmi/id/{file}");
            assert_eq!(forwarder(&[(&file, text), OWN], Some("1-1")), expected, "{text}");
        }
        let (root, sysfs) = tree(&[("sys/devices/pci0000:00/0000:00:03.0/vendor", "0x1b36\n")]);
        let hub = root.path().join("sys/devices/pci0000:00/0000:00:03.0/usb4");
        fs::create_dir_all(&hub).unwrap();
        let devices = root.path().join("sys/bus/usb/devices");
        fs::create_dir_all(&devices).unwrap();
        std::os::unix::fs::symlink(hub, devices.join("usb4")).unwrap();
        let forwarding = sysfs.forwarding();
        let of = |port: &str| forwarding.of(Some(&port.parse().unwrap()));
        assert_eq!((of("4-1"), of("1-1")), (Some(Forwarder::Qemu), None));
    }

    fn ports(files: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
        let (root, sysfs) = tree(files);
        let below = |path: PathBuf| path.strip_prefix(root.path()).unwrap().display().to_string();
        sysfs.device_ports().into_iter().map(|port| (port.name, port.role_file.map(below))).collect()
    }

    const PARTNER: (&str, &str) = ("sys/class/typec/port0-partner/type", "");
    const SWITCH: (&str, &str) = ("sys/class/usb_role/a600000.ssusb-role-switch/role", "device\n");

    #[test]
    fn a_port_in_the_device_role_with_a_partner_is_found_with_the_file_that_changes_it() {
        let role = |text| ("sys/class/typec/port0/data_role", text);
        let by_port = Some("sys/class/typec/port0/data_role".to_owned());
        let by_switch = Some(SWITCH.0.to_owned());
        let port = |file| vec![("port0".to_owned(), file)];
        assert_eq!(ports(&[role("host [device]\n"), PARTNER, SWITCH]), port(by_port));
        assert_eq!(ports(&[role("[device]\n"), PARTNER, SWITCH]), port(by_switch));
        assert_eq!(ports(&[role("[device]\n"), PARTNER]), port(None));
        let second = ("sys/class/usb_role/other/role", "device\n");
        assert_eq!(ports(&[role("[device]\n"), PARTNER, SWITCH, second]), port(None), "which switch is it?");
        // An idle port of a laptop says the same, and a port that is the host is none.
        assert!(ports(&[role("host [device]\n"), SWITCH]).is_empty());
        assert!(ports(&[role("[host] device\n"), PARTNER, SWITCH]).is_empty());
        let of_another = ("sys/class/typec/port1-partner/type", "");
        assert!(ports(&[role("host [device]\n"), of_another, SWITCH]).is_empty());
    }

    #[test]
    fn without_usb_c_ports_a_role_switch_counts_if_a_controller_sees_something() {
        let state = |text| ("sys/class/udc/a600000.dwc3/state", text);
        let found = vec![("a600000.ssusb-role-switch".to_owned(), Some(SWITCH.0.to_owned()))];
        assert_eq!(ports(&[SWITCH, state("configured\n")]), found);
        assert!(ports(&[SWITCH, state("not attached\n")]).is_empty());
        assert!(ports(&[SWITCH]).is_empty());
        let host = ("sys/class/usb_role/a/role", "host\n");
        assert!(ports(&[host, state("configured\n")]).is_empty());
    }

    #[test]
    fn a_host_router_is_usb4_and_a_device_or_a_port_is_not() {
        let has = |name: &str| {
            let file = format!("sys/bus/thunderbolt/devices/{name}/uevent");
            tree(&[(&file, "")]).1.has_usb4()
        };
        assert!(has("0-0") && has("1-0"));
        assert!(!has("0-1") && !has("usb4_port1") && !has("domain0") && !has("0-0:1.1"));
    }
}
