//! USB4 and Thunderbolt: a dock with stock firmware on such a port tunnels PCIe and shows no USB device. The host sees it
//! as a device of the bus ([`TunnelledDevice`]) and as a PCIe switch ([`TunnelledDock`]).
//!
//! What hides a dock there: a device that the host has not authorised, and a port that the kernel has suspended.
//!
//! Source: the kernel's `Documentation/ABI/testing/sysfs-bus-thunderbolt`.

use std::fmt;

use asm2464::escape::Escape as _;

use super::pci::{PciPort, RuntimePower, TunnelledDock, docks_among, ports_among};
use super::{Sysfs, line, names, read};

/// Number of devices that are listed: more than any chain of one host has.
const MAX_DEVICES: usize = 64;

/// A device that is connected over USB4 or Thunderbolt.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "TunnelledJson"))]
pub struct TunnelledDevice {
    /// The kernel's name: domain and route, as in `0-1`.
    pub name: String,
    /// Its maker and its product's name, by its own account; without names, its vendor and device IDs.
    pub what: String,
    /// Whether the host has authorised it. Otherwise, nothing is tunnelled at all.
    pub is_authorized: bool,
    /// Its UUID, which `boltctl enroll` takes. Missing if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The domain's security level. Missing if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    /// The version of the NVM of the domain's host router. Missing if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_nvm: Option<String>,
    /// The version of its own NVM. Missing if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvm: Option<String>,
    /// Its power management.
    pub power: RuntimePower,
    /// The power management of the domain's host router.
    pub host_power: RuntimePower,
}

impl TunnelledDevice {
    /// The kernel's name of the domain's host router, as in `0-0`.
    pub fn host(&self) -> String {
        format!("{}-0", self.name.split('-').next().unwrap_or_default())
    }

    /// Whether its domain's security level never tunnels PCIe, authorised or not. Source: the kernel's
    /// `Documentation/admin-guide/thunderbolt.rst`.
    pub fn is_without_pcie(&self) -> bool {
        matches!(self.security.as_deref(), Some("dponly" | "usbonly" | "nopcie"))
    }
}

impl fmt::Display for TunnelledDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.name, self.what.shown())?;
        if !self.is_authorized {
            f.write_str(", which the host has not authorised")?;
            let known =
                [("security level", &self.security), ("the host's NVM version", &self.host_nvm), ("UUID", &self.uuid)];
            let known = known.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
            for (index, (name, value)) in known.enumerate() {
                let before = if index == 0 { ":" } else { "," };
                write!(f, "{before} {name} {}", value.shown())?;
            }
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
    /// The PCIe ports that lead to the docks. If the host sees no dock below a port: those with nothing behind them, any
    /// of which may hide one.
    pub ports: Vec<PciPort>,
    /// Whether the kernel resets the host router at boot, which takes down the tunnels that the firmware has set up:
    /// `thunderbolt.host_reset`. `None` if the kernel doesn't say.
    pub host_reset: Option<bool>,
}

impl Tunnels {
    /// Whether there are no devices and no docks.
    pub const fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.docks.is_empty()
    }

    /// The device that the dock may be and that waits for the host's authorisation, if no dock's PCIe is there.
    pub fn awaits_authorisation(&self) -> Option<&TunnelledDevice> {
        if !self.docks.is_empty() {
            return None;
        }
        self.devices.iter().find(|device| !device.is_authorized && !device.is_without_pcie())
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
        let functions = self.pci_functions();
        Tunnels {
            devices: self.tunnelled(),
            docks: docks_among(&functions),
            ports: ports_among(&functions),
            host_reset: self.host_reset(),
        }
    }

    /// `thunderbolt.host_reset` as the module has it or, if it is built in and hides its parameters, as the kernel was
    /// started. Source: the kernel's drivers/thunderbolt/nhi.c, from 6.9 on.
    fn host_reset(&self) -> Option<bool> {
        let is_on = |value: &str| match value {
            "Y" | "y" | "1" | "on" => Some(true),
            "N" | "n" | "0" | "off" => Some(false),
            _ => None,
        };
        if let Some(value) = line(&self.sys.join("module/thunderbolt/parameters/host_reset")) {
            return is_on(&value);
        }
        let started = read(&self.proc.join("cmdline"));
        started.split_whitespace().filter_map(|word| is_on(word.strip_prefix("thunderbolt.host_reset=")?)).next_back()
    }

    /// The devices that are connected over USB4 or Thunderbolt, without the host's own routers.
    fn tunnelled(&self) -> Vec<TunnelledDevice> {
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
            let domain = name.split('-').next().unwrap_or_default();
            let host = folder.join(format!("{domain}-0"));
            devices.push(TunnelledDevice {
                is_authorized: line(&device.join("authorized")).as_deref() != Some("0"),
                uuid: line(&device.join("unique_id")),
                security: line(&folder.join(format!("domain{domain}/security"))),
                host_nvm: line(&host.join("nvm_version")),
                nvm: line(&device.join("nvm_version")),
                power: RuntimePower::of(&device),
                host_power: RuntimePower::of(&host),
                name,
                what,
            });
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
        let waits = || sysfs.tunnels().awaits_authorisation().map(|device| device.name.clone());
        assert_eq!(waits().as_deref(), Some("0-501"));
        put("domain0", &[("security", "dponly\n")]);
        assert_eq!(waits(), None, "authorised, too, it would tunnel no PCIe");
    }
}
