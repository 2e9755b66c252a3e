//! USB4 and Thunderbolt: a dock with stock firmware on such a port tunnels PCIe and shows no USB device. The host sees it
//! as a device of the bus ([`TunnelledDevice`]) and as a PCIe switch ([`TunnelledDock`]).
//!
//! Sources: the kernel's `Documentation/ABI/testing/sysfs-bus-thunderbolt` and `sysfs-bus-pci`; the switch's IDs from
//! owners' `lspci` (jacobrosenthal/tinygrad, extra/usbgpu; ltanedo/egpu-eject).

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use asm2464::escape::Escape as _;

use super::{Sysfs, line, link_target, names, read};

/// Number of devices that are listed: more than any chain of one host has.
const MAX_DEVICES: usize = 64;

/// A device that is connected over USB4 or Thunderbolt.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "TunnelledJson"))]
pub struct TunnelledDevice {
    /// The kernel's name: domain and route, as in `0-1`.
    pub name: String,
    /// Its maker and its product's name, by its own account; without names, its vendor and device IDs.
    pub what: String,
    /// Whether the host has authorised it. Otherwise, nothing is tunnelled at all.
    pub is_authorized: bool,
    /// What the host says about its authorisation, if the device waits for that: names and values, such as the UUID that
    /// `boltctl enroll` takes.
    #[serde(skip)]
    pub authorization: Vec<(&'static str, String)>,
}

impl fmt::Display for TunnelledDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.name, self.what.shown())?;
        if !self.is_authorized {
            f.write_str(", which the host has not authorised")?;
        }
        for (index, (name, value)) in self.authorization.iter().enumerate() {
            let before = if index == 0 { ":" } else { "," };
            write!(f, "{before} {name} {}", value.shown())?;
        }
        f.write_str(")")
    }
}

/// What the host reaches over USB4 and Thunderbolt, where a dock is no USB device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tunnels {
    /// The devices, any of which may be a dock.
    pub devices: Vec<TunnelledDevice>,
    /// The docks whose PCIe the host sees.
    pub docks: Vec<TunnelledDock>,
}

impl Tunnels {
    /// Whether there are no devices and no docks.
    pub const fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.docks.is_empty()
    }

    /// Whether the dock may be a device that waits for the host's authorisation: one does, and no dock's PCIe is there.
    pub fn await_authorisation(&self) -> bool {
        self.docks.is_empty() && self.devices.iter().any(|device| !device.is_authorized)
    }
}

impl fmt::Display for Tunnels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.devices.iter().map(ToString::to_string);
        f.write_str(&devices.chain(self.docks.iter().map(ToString::to_string)).collect::<Vec<_>>().join(", "))
    }
}

impl Sysfs {
    /// The devices that are connected over USB4 or Thunderbolt, and the docks whose PCIe the host sees.
    pub fn tunnels(&self) -> Tunnels {
        Tunnels { devices: self.tunnelled(), docks: self.tunnelled_docks() }
    }

    /// The devices that are connected over USB4 or Thunderbolt, without the host's own routers.
    pub fn tunnelled(&self) -> Vec<TunnelledDevice> {
        let folder = self.sys.join("bus/thunderbolt/devices");
        let mut devices = Vec::new();
        for name in names(&folder).into_iter().filter(|name| is_device(name)) {
            let device = folder.join(&name);
            let pair = |first: &str, second: &str| {
                let found: Vec<String> = [first, second].iter().filter_map(|file| line(&device.join(file))).collect();
                if found.is_empty() { None } else { Some(found.join(" ")) }
            };
            let what = match (pair("vendor_name", "device_name"), pair("vendor", "device")) {
                (Some(names), _) => names,
                (None, Some(ids)) => format!("unnamed, IDs {ids}"),
                // It has just left.
                (None, None) => continue,
            };
            let is_authorized = line(&device.join("authorized")).as_deref() != Some("0");
            let mut authorization = Vec::new();
            if !is_authorized {
                let domain = name.split('-').next().unwrap_or_default();
                for (says, file) in [
                    ("security level", folder.join(format!("domain{domain}/security"))),
                    ("the host's NVM version", folder.join(format!("{domain}-0/nvm_version"))),
                    ("UUID", device.join("unique_id")),
                ] {
                    authorization.extend(line(&file).map(|value| (says, value)));
                }
            }
            devices.push(TunnelledDevice { name, what, is_authorized, authorization });
            if devices.len() == MAX_DEVICES {
                break;
            }
        }
        devices
    }
}

/// Whether a name is a device's: `0-1`, `0-301`. The host's router is `0-0`, `domain0` and `usb4_port1` are none, and
/// retimers have a colon.
fn is_device(name: &str) -> bool {
    name.split_once('-').is_some_and(|(domain, route)| {
        let is_number = |text: &str, radix| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
        is_number(domain, 10) && is_number(route, 16) && route != "0"
    })
}

/// The chip's vendor on PCIe.
const ASMEDIA: u16 = 0x1B21;
/// The chip's device IDs as a PCIe switch.
const SWITCHES: [u16; 2] = [0x2461, 0x2463];
/// The base class of display controllers (PCI Code and ID Assignment, 1.4).
const DISPLAY: u32 = 0x03;

/// A dock that the host sees as a PCIe switch.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "TunnelledDockJson"))]
pub struct TunnelledDock {
    /// The switch's PCI address, as in `0000:04:00.0`.
    pub address: String,
    /// The switch's vendor and device ID, as in `1B21:2463`.
    pub pci_id: String,
    /// The display controllers behind it.
    pub gpus: Vec<TunnelledGpu>,
}

/// A display controller behind a dock's PCIe switch.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "TunnelledGpuJson"))]
pub struct TunnelledGpu {
    /// Its PCI address.
    pub address: String,
    /// Its vendor and device ID.
    pub pci_id: String,
    /// The kernel driver that has it.
    pub driver: Option<String>,
}

impl fmt::Display for TunnelledDock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (a dock's PCIe switch {}", self.address, self.pci_id)?;
        for TunnelledGpu { pci_id, driver, .. } in &self.gpus {
            match driver {
                Some(driver) => write!(f, ", GPU {pci_id} with the driver {driver}")?,
                None => write!(f, ", GPU {pci_id} without a driver")?,
            }
        }
        f.write_str(if self.gpus.is_empty() { ", no GPU behind it)" } else { ")" })
    }
}

impl Sysfs {
    /// The docks that are PCIe switches here, each once, with the display controllers behind them.
    pub fn tunnelled_docks(&self) -> Vec<TunnelledDock> {
        let folder = self.sys.join("bus/pci/devices");
        let all: Vec<PciFunction> =
            names(&folder).into_iter().filter_map(|address| PciFunction::read(&folder, address)).collect();
        let mut docks = Vec::new();
        for switch in all.iter().filter(|function| function.is_switch()) {
            // A switch's downstream ports have the same ID, and are behind its upstream port.
            if all.iter().any(|other| other.is_switch() && switch.is_behind(other)) {
                continue;
            }
            let gpus =
                all.iter().filter(|other| other.is_gpu() && other.is_behind(switch)).map(PciFunction::gpu).collect();
            docks.push(TunnelledDock { address: switch.address.clone(), pci_id: switch.pci_id(), gpus });
        }
        docks
    }
}

/// A function of a PCI device.
struct PciFunction {
    address: String,
    /// Its folder, below those of the bridges before it.
    place: PathBuf,
    vendor: u16,
    device: u16,
    class: u32,
}

impl PciFunction {
    /// Reads a function; `None` if it has just left.
    fn read(folder: &Path, address: String) -> Option<Self> {
        let place = fs::canonicalize(folder.join(&address)).ok()?;
        let number = |file: &str| u32::from_str_radix(read(&place.join(file)).strip_prefix("0x")?, 16).ok();
        let id = |file: &str| u16::try_from(number(file)?).ok();
        let (vendor, device, class) = (id("vendor")?, id("device")?, number("class")?);
        Some(Self { address, place, vendor, device, class })
    }

    fn is_switch(&self) -> bool {
        self.vendor == ASMEDIA && SWITCHES.contains(&self.device)
    }

    const fn is_gpu(&self) -> bool {
        self.class >> 16 == DISPLAY
    }

    fn is_behind(&self, other: &Self) -> bool {
        self.place != other.place && self.place.starts_with(&other.place)
    }

    fn pci_id(&self) -> String {
        format!("{:04X}:{:04X}", self.vendor, self.device)
    }

    fn gpu(&self) -> TunnelledGpu {
        let driver = link_target(&self.place.join("driver"));
        TunnelledGpu { address: self.address.clone(), pci_id: self.pci_id(), driver }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn devices_behind_a_tunnel_are_named_without_the_hosts_own_routers_and_retimers() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, files: &[(&str, &str)]| {
            let folder = root.path().join("sys/bus/thunderbolt/devices").join(name);
            fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(file, text)| fs::write(folder.join(file), text).unwrap());
        };
        put("0-0", &[("vendor_name", "Maker of laptops\n"), ("device_name", "Laptop\n")]);
        put("0-1", &[("vendor_name", "ASMedia\n"), ("device_name", "UT3G\u{1b}[2J\n"), ("authorized", "1\n")]);
        put("0-301", &[("vendor_name", "Other\n"), ("device_name", "Dock\n")]);
        put("0-501", &[("vendor", "0x174c\n"), ("device", "0x2463\n"), ("vendor_name", "\n"), ("authorized", "0\n")]);
        put("0-701", &[("device_name", "Dock\n")]);
        // A device that has just left.
        put("0-3", &[]);
        put("0-1:1.1", &[("vendor", "0x8086\n"), ("device", "0x15ee\n")]);
        put("domain0", &[("security", "user\n")]);
        let sysfs = Sysfs::at(root.path().join("sys"), "/nowhere", "/nowhere");
        let shown: Vec<String> = sysfs.tunnelled().iter().map(ToString::to_string).collect();
        let expected = [
            "0-1 (ASMedia UT3G\\u{1b}[2J)",
            "0-301 (Other Dock)",
            "0-501 (unnamed, IDs 0x174c 0x2463, which the host has not authorised: security level user)",
            "0-701 (Dock)",
        ];
        assert_eq!(shown, expected);
        assert!(Sysfs::at("/nowhere", "/nowhere", "/nowhere").tunnelled().is_empty());
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tunnelled_dock_tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree with these functions: each with the path of bridges down to it, vendor, device, class and driver.
    fn tree(functions: &[(&str, &str, &str, &str, Option<&str>)]) -> (tempfile::TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        let bus = root.path().join("bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        for (path, vendor, device, class, driver) in functions {
            let place = root.path().join("devices/pci0000:00").join(path);
            fs::create_dir_all(&place).unwrap();
            for (file, text) in [("vendor", vendor), ("device", device), ("class", class)] {
                fs::write(place.join(file), format!("{text}\n")).unwrap();
            }
            if let Some(driver) = driver {
                symlink(format!("/sys/bus/pci/drivers/{driver}"), place.join("driver")).unwrap();
            }
            symlink(&place, bus.join(place.file_name().unwrap())).unwrap();
        }
        let sysfs = Sysfs::at(root.path(), "/nowhere", "/nowhere");
        (root, sysfs)
    }

    const ROOT: (&str, &str, &str, &str, Option<&str>) =
        ("0000:00:07.0", "0x8086", "0x466e", "0x060400", Some("pcieport"));
    const UP: &str = "0000:00:07.0/0000:03:00.0";
    const DOWN: &str = "0000:00:07.0/0000:03:00.0/0000:04:00.0";

    fn shown(sysfs: &Sysfs) -> Vec<String> {
        sysfs.tunnelled_docks().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dock_on_usb4_is_named_once_with_its_gpu_and_the_driver() {
        let gpu = format!("{DOWN}/0000:05:00.0");
        let audio = format!("{DOWN}/0000:05:00.1");
        let switch = |path| (path, "0x1b21", "0x2463", "0x060400", Some("pcieport"));
        let on_board = ("0000:00:02.0", "0x8086", "0x9a49", "0x030000", Some("i915"));
        let with = |driver| {
            let gpu = (gpu.as_str(), "0x1002", "0x744c", "0x030000", driver);
            let audio = (audio.as_str(), "0x1002", "0xab30", "0x040300", Some("snd_hda_intel"));
            let (_root, sysfs) = tree(&[ROOT, on_board, switch(UP), switch(DOWN), gpu, audio]);
            shown(&sysfs)
        };
        assert_eq!(
            with(Some("amdgpu")),
            ["0000:03:00.0 (a dock's PCIe switch 1B21:2463, GPU 1002:744C with the driver amdgpu)"]
        );
        assert_eq!(with(None), ["0000:03:00.0 (a dock's PCIe switch 1B21:2463, GPU 1002:744C without a driver)"]);
    }

    #[test]
    fn a_dock_whose_gpu_has_no_power_is_named_without_one() {
        let (_root, sysfs) = tree(&[ROOT, (UP, "0x1b21", "0x2461", "0x060400", None)]);
        assert_eq!(shown(&sysfs), ["0000:03:00.0 (a dock's PCIe switch 1B21:2461, no GPU behind it)"]);
    }

    #[test]
    fn other_switches_and_a_system_without_pci_have_no_dock() {
        let other_chip = (UP, "0x1b21", "0x1182", "0x060400", None);
        let other_maker = ("0000:00:08.0", "0x174c", "0x2463", "0x060400", None);
        let (_root, sysfs) = tree(&[ROOT, other_chip, other_maker, (DOWN, "not", "a", "number", None)]);
        assert!(shown(&sysfs).is_empty());
        assert!(Sysfs::at("/nowhere", "/nowhere", "/nowhere").tunnelled_docks().is_empty());
    }
}
