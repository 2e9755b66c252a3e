//! A dock's PCIe switch among the PCI devices of this host, where a tunnel of USB4 or Thunderbolt puts it: its ports, and
//! what is behind it.
//!
//! Sources: the kernel's `Documentation/ABI/testing/sysfs-bus-pci` and `sysfs-devices-power`; the switch's IDs from owners'
//! `lspci` (jacobrosenthal/tinygrad, extra/usbgpu; ltanedo/egpu-eject); suspended ports: CachyOS/linux-cachyos issue 1057.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use asm2464::escape::Escape as _;
use asm2464::text::parse_number;

use super::{Sysfs, line, link_target, names};
use crate::pcie::is_gpu;

/// The chip's vendor on PCIe.
const ASMEDIA: u16 = 0x1B21;
/// The chip's device IDs as a PCIe switch.
const SWITCHES: [u16; 2] = [0x2461, 0x2463];
/// The class of PCIe bridges (PCI Code and ID Assignment, 1.4).
const BRIDGE: u32 = 0x0604;

/// The most lanes of a PCIe link (PCI Express Base Specification, Link Status: negotiated link width).
const MOST_LANES: u8 = 32;

/// What the kernel's runtime power management says of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RuntimePower {
    /// `power/control`: `auto` lets the kernel suspend the device, `on` keeps it awake. Missing if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// `power/runtime_status`, as `active` or `suspended`. Missing if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_status: Option<String>,
}

impl RuntimePower {
    pub(super) fn of(device: &Path) -> Self {
        let power = device.join("power");
        Self { control: line(&power.join("control")), runtime_status: line(&power.join("runtime_status")) }
    }

    /// Whether the device is suspended, or about to be.
    pub fn is_suspended(&self) -> bool {
        self.runtime_status.as_deref().is_some_and(|status| status.starts_with("suspend"))
    }

    /// Whether the kernel may suspend the device.
    pub fn may_suspend(&self) -> bool {
        self.control.as_deref() == Some("auto")
    }
}

/// A PCIe link as a device reports it: speed and width, in the kernel's words. Missing what is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PcieLink {
    /// The speed, as in `16.0 GT/s PCIe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    /// Lanes in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u8>,
    /// Lanes that the device has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_width: Option<u8>,
}

impl PcieLink {
    fn of(device: &Path) -> Self {
        // A suspended device reads as ones: 63 lanes at a speed that the kernel calls unknown.
        let is_width = |lanes: &u8| (1..=MOST_LANES).contains(lanes);
        let width = |file: &str| line(&device.join(file))?.parse().ok().filter(is_width);
        Self {
            speed: line(&device.join("current_link_speed")).filter(|speed| !speed.starts_with("Unknown")),
            width: width("current_link_width"),
            max_width: width("max_link_width"),
        }
    }
}

impl fmt::Display for PcieLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speed = self.speed.as_deref().unwrap_or("speed not known");
        match self.width {
            Some(width) => write!(f, "{}, x{width}", speed.shown()),
            None => write!(f, "{}, width not known", speed.shown()),
        }
    }
}

/// A PCIe port, root port or bridge, that may lead to a dock.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PciPort {
    /// Its PCI address.
    pub address: String,
    /// Its vendor and device ID.
    pub pci_id: String,
    /// Whether no bridge is above it.
    pub is_root: bool,
    /// Its power management.
    pub power: RuntimePower,
}

/// A dock that the host sees as a PCIe switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "TunnelledDockJson"))]
pub struct TunnelledDock {
    /// The switch's PCI address, as in `0000:04:00.0`.
    pub address: String,
    /// The switch's vendor and device ID, as in `1B21:2463`.
    pub pci_id: String,
    /// The display controllers and processing accelerators behind it.
    pub gpus: Vec<TunnelledGpu>,
    /// The other devices behind it, without bridges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<TunnelledGpu>,
    /// Its link to the host, which is the tunnel.
    pub link: PcieLink,
    /// Its power management.
    pub power: RuntimePower,
    /// Whether it is a guess that these devices are behind it: neither a tree of PCI devices nor the switch says so, and
    /// their buses follow on the switch's. Left out if it is none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_guess: bool,
}

/// A device behind a dock's PCIe switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "TunnelledGpuJson"))]
pub struct TunnelledGpu {
    /// Its PCI address.
    pub address: String,
    /// Its vendor and device ID.
    pub pci_id: String,
    /// Its class: base class, subclass and programming interface.
    pub class: u32,
    /// The kernel driver that has it.
    pub driver: Option<String>,
    /// Its link to the dock.
    pub link: PcieLink,
    /// Its power management.
    pub power: RuntimePower,
}

impl TunnelledDock {
    /// All devices behind it, GPUs first.
    pub fn behind(&self) -> impl Iterator<Item = &TunnelledGpu> {
        self.gpus.iter().chain(&self.others)
    }
}

impl fmt::Display for TunnelledDock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (a dock's PCIe switch {}", self.address, self.pci_id)?;
        // Beside a GPU, its card's audio is not worth a word.
        let (what, devices) = if self.gpus.is_empty() {
            f.write_str(", no GPU behind it")?;
            ("but", &self.others)
        } else {
            ("GPU", &self.gpus)
        };
        for TunnelledGpu { pci_id, driver, .. } in devices {
            match driver {
                Some(driver) => write!(f, ", {what} {pci_id} with the driver {}", driver.shown())?,
                None => write!(f, ", {what} {pci_id} without a driver")?,
            }
        }
        f.write_str(if self.is_guess { ", a guess by bus numbers)" } else { ")" })
    }
}

impl Sysfs {
    /// The functions of this host's PCI devices.
    pub(super) fn pci_functions(&self) -> Vec<PciFunction> {
        let folder = self.sys.join("bus/pci/devices");
        let mut functions: Vec<_> =
            names(&folder).into_iter().filter_map(|name| PciFunction::read(&folder, name)).collect();
        let buses = functions.iter().filter_map(PciFunction::bus);
        let used: BTreeSet<(String, u8)> = buses.map(|(domain, bus)| (domain.to_owned(), bus)).collect();
        for function in &mut functions {
            if function.is_bare && function.is_switch() && function.buses.is_none() {
                function.buses = function.bus().and_then(|(domain, bus)| buses_after(&used, domain, bus));
                function.is_guess = function.buses.is_some();
            }
        }
        functions
    }
}

/// Guesses the buses behind a dock that doesn't say them, from the buses in `used`: those that follow on its own. Of a
/// switch's own bus nothing may be there, so one may be missing in between; a device further away belongs to another port.
fn buses_after(used: &BTreeSet<(String, u8)>, domain: &str, bus: u8) -> Option<RangeInclusive<u8>> {
    let first = bus.checked_add(1)?;
    let mut last = bus;
    for (_, next) in used.range((domain.to_owned(), first)..=(domain.to_owned(), u8::MAX)) {
        if next - last > 2 {
            break;
        }
        last = *next;
    }
    (last > bus).then_some(first..=last)
}

/// The docks among these functions, each with what is behind it.
pub(super) fn docks_among(all: &[PciFunction]) -> Vec<TunnelledDock> {
    let mut docks = Vec::new();
    for switch in all.iter().filter(|function| function.is_switch()) {
        // A switch's downstream ports have the same ID, and are behind its upstream port.
        if all.iter().any(|other| other.is_switch() && switch.is_behind(other)) {
            continue;
        }
        let behind = all.iter().filter(|other| !other.is_bridge() && other.is_behind(switch));
        let (gpus, others): (Vec<&PciFunction>, Vec<&PciFunction>) = behind.partition(|other| is_gpu(other.class));
        docks.push(TunnelledDock {
            address: switch.address.clone(),
            pci_id: switch.pci_id(),
            gpus: gpus.into_iter().map(PciFunction::device).collect(),
            others: others.into_iter().map(PciFunction::device).collect(),
            link: PcieLink::of(&switch.place),
            power: RuntimePower::of(&switch.place),
            is_guess: switch.is_guess,
        });
    }
    docks
}

/// The ports that lead to a dock; if none is known to, those with nothing behind them.
pub(super) fn ports_among(all: &[PciFunction]) -> Vec<PciPort> {
    let bridges = || all.iter().filter(|function| function.is_bridge() && !function.is_switch());
    let leads = |port: &PciFunction| all.iter().any(|other| other.is_switch() && other.is_behind(port));
    let is_bare = |port: &PciFunction| all.iter().all(|other| !other.is_behind(port));
    let mut ports: Vec<&PciFunction> = bridges().filter(|port| leads(port)).collect();
    if ports.is_empty() {
        ports = bridges().filter(|port| is_bare(port)).collect();
    }
    let is_root = |port: &PciFunction| !bridges().any(|other| port.is_behind(other));
    let port = |port: &PciFunction| PciPort {
        address: port.address.clone(),
        pci_id: port.pci_id(),
        is_root: is_root(port),
        power: RuntimePower::of(&port.place),
    };
    ports.into_iter().map(port).collect()
}

/// A function of a PCI device.
pub(super) struct PciFunction {
    address: String,
    /// Its folder, below those of the bridges before it.
    place: PathBuf,
    vendor: u16,
    device: u16,
    class: u32,
    /// Whether its folder is in /sys/bus, without the tree of devices.
    is_bare: bool,
    /// The buses behind it, if it is a bridge that says so.
    buses: Option<RangeInclusive<u8>>,
    /// Whether these are guessed.
    is_guess: bool,
}

impl PciFunction {
    /// Reads a function; `None` if it has just left.
    fn read(folder: &Path, address: String) -> Option<Self> {
        let place = fs::canonicalize(folder.join(&address)).ok()?;
        let number = |file: &str| u32::try_from(parse_number(&line(&place.join(file))?)?).ok();
        let id = |file: &str| u16::try_from(number(file)?).ok();
        let (vendor, device, class) = (id("vendor")?, id("device")?, number("class")?);
        let bus = |file: &str| line(&place.join(file))?.parse().ok();
        let buses = bus("secondary_bus_number").zip(bus("subordinate_bus_number"));
        let buses = buses.filter(|(first, _)| *first > 0).map(|(first, last)| first..=last);
        let is_bare = fs::canonicalize(folder).is_ok_and(|folder| place.parent() == Some(&folder));
        Some(Self { address, place, vendor, device, class, is_bare, buses, is_guess: false })
    }

    fn is_switch(&self) -> bool {
        self.vendor == ASMEDIA && SWITCHES.contains(&self.device)
    }

    const fn is_bridge(&self) -> bool {
        self.class >> 8 == BRIDGE
    }

    /// Whether it is behind a bridge: by the tree of folders or, where /sys/bus is shown without that tree, by the buses
    /// behind the bridge.
    fn is_behind(&self, other: &Self) -> bool {
        if self.place != other.place && self.place.starts_with(&other.place) {
            return true;
        }
        let (Some((domain, bus)), Some((other_domain, _))) = (self.bus(), other.bus()) else { return false };
        domain == other_domain && other.buses.as_ref().is_some_and(|buses| buses.contains(&bus))
    }

    /// Its domain and bus, by its address.
    fn bus(&self) -> Option<(&str, u8)> {
        let mut parts = self.address.split(':');
        let domain = parts.next()?;
        Some((domain, u8::from_str_radix(parts.next()?, 16).ok()?))
    }

    fn pci_id(&self) -> String {
        format!("{:04X}:{:04X}", self.vendor, self.device)
    }

    fn device(&self) -> TunnelledGpu {
        TunnelledGpu {
            address: self.address.clone(),
            pci_id: self.pci_id(),
            class: self.class,
            driver: link_target(&self.place.join("driver")),
            link: PcieLink::of(&self.place),
            power: RuntimePower::of(&self.place),
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
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
        sysfs.tunnels().docks.iter().map(ToString::to_string).collect()
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
    fn an_accelerator_is_a_gpu_and_an_ssd_is_named_as_what_is_there() {
        let behind = format!("{DOWN}/0000:05:00.0");
        let switch = |path| (path, "0x1b21", "0x2463", "0x060400", Some("pcieport"));
        let with = |vendor, device, class, driver| {
            let (_root, sysfs) = tree(&[ROOT, switch(UP), switch(DOWN), (&behind, vendor, device, class, driver)]);
            (shown(&sysfs), sysfs.tunnels())
        };
        let (named, tunnels) = with("0x1002", "0x74a1", "0x120000", Some("amdgpu"));
        assert_eq!(named, ["0000:03:00.0 (a dock's PCIe switch 1B21:2463, GPU 1002:74A1 with the driver amdgpu)"]);
        // The downstream port is the dock's own.
        assert_eq!(tunnels.ports.iter().map(|port| port.address.as_str()).collect::<Vec<_>>(), ["0000:00:07.0"]);
        assert!(tunnels.ports[0].is_root);
        let (named, _) = with("0x144d", "0xa80a", "0x010802", Some("nvme"));
        assert_eq!(
            named,
            ["0000:03:00.0 (a dock's PCIe switch 1B21:2463, no GPU behind it, but 144D:A80A with the driver nvme)"]
        );
    }

    #[test]
    fn what_is_behind_a_dock_is_known_by_its_buses_where_no_tree_is_shown() {
        let (root, sysfs) = tree(&[ROOT, ("0000:53:00.0", "0x1b21", "0x2463", "0x060400", None)]);
        let dock = root.path().join("bus/pci/devices/0000:53:00.0");
        fs::write(dock.join("secondary_bus_number"), "84\n").unwrap();
        fs::write(dock.join("subordinate_bus_number"), "86\n").unwrap();
        for (speed, width, shown) in [
            ("2.5 GT/s PCIe", "4", "2.5 GT/s PCIe, x4"),
            // As a suspended device reads, and one without a link.
            ("Unknown", "63", "speed not known, width not known"),
            ("Unknown speed", "0", "speed not known, width not known"),
        ] {
            fs::write(dock.join("current_link_speed"), speed).unwrap();
            fs::write(dock.join("current_link_width"), width).unwrap();
            assert_eq!(sysfs.tunnels().docks[0].link.to_string(), shown);
        }
        for (address, expected) in [("0000:56:00.0", 1), ("0000:57:00.0", 0), ("0001:56:00.0", 0)] {
            let gpu = root.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&gpu).unwrap();
            for (file, text) in [("vendor", "0x1002"), ("device", "0x744c"), ("class", "0x030000")] {
                fs::write(gpu.join(file), text).unwrap();
            }
            assert_eq!(sysfs.tunnels().docks[0].gpus.len(), expected, "{address}");
            fs::remove_dir_all(gpu).unwrap();
        }
    }

    #[test]
    fn without_tree_and_buses_only_the_buses_that_follow_on_a_docks_count_as_behind_it() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(root.path(), "/nowhere", "/nowhere");
        let put = |address: &str, vendor: &str, device: &str, class: &str| {
            let place = root.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&place).unwrap();
            for (file, text) in [("vendor", vendor), ("device", device), ("class", class)] {
                fs::write(place.join(file), text).unwrap();
            }
        };
        put("0000:53:00.0", "0x1b21", "0x2463", "0x060400");
        // The processor's own GPU, and one in another domain.
        put("0000:c4:00.0", "0x1002", "0x150e", "0x030000");
        put("0001:54:00.0", "0x1002", "0x744c", "0x030000");
        assert_eq!(sysfs.tunnels().docks[0].gpus, []);
        // Nothing is on the switch's own bus.
        put("0000:55:00.0", "0x1002", "0x744c", "0x030000");
        let docks = sysfs.tunnels().docks;
        assert_eq!(docks[0].gpus.iter().map(|gpu| gpu.address.as_str()).collect::<Vec<_>>(), ["0000:55:00.0"]);
        let named =
            "0000:53:00.0 (a dock's PCIe switch 1B21:2463, GPU 1002:744C without a driver, a guess by bus numbers)";
        assert_eq!(docks[0].to_string(), named);
    }

    #[test]
    fn a_port_with_nothing_behind_it_may_hide_a_dock_and_says_whether_it_is_suspended() {
        let busy = ("0000:00:1c.0", "0x8086", "0x51b8", "0x060400", None);
        let ssd = ("0000:00:1c.0/0000:02:00.0", "0x144d", "0xa80a", "0x010802", Some("nvme"));
        let (root, sysfs) = tree(&[ROOT, busy, ssd]);
        let power = root.path().join("bus/pci/devices/0000:00:07.0/power");
        fs::create_dir_all(&power).unwrap();
        fs::write(power.join("control"), "auto\n").unwrap();
        fs::write(power.join("runtime_status"), "suspended\n").unwrap();
        let ports = sysfs.tunnels().ports;
        assert_eq!(ports.iter().map(|port| port.address.as_str()).collect::<Vec<_>>(), ["0000:00:07.0"]);
        assert!(ports[0].power.is_suspended() && ports[0].power.may_suspend());
    }

    #[test]
    fn whether_the_host_router_is_reset_at_boot_is_the_modules_word_then_the_kernels() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(root.path().join("sys"), root.path().join("proc"), "/nowhere");
        assert_eq!(sysfs.tunnels().host_reset, None);
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/cmdline"), "quiet thunderbolt.host_reset=0 rw\n").unwrap();
        assert_eq!(sysfs.tunnels().host_reset, Some(false));
        let parameters = root.path().join("sys/module/thunderbolt/parameters");
        fs::create_dir_all(&parameters).unwrap();
        fs::write(parameters.join("host_reset"), "Y\n").unwrap();
        assert_eq!(sysfs.tunnels().host_reset, Some(true));
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
        assert!(Sysfs::at("/nowhere", "/nowhere", "/nowhere").tunnels().docks.is_empty());
    }
}
