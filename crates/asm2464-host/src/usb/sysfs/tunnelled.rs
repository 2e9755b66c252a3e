//! USB4 and Thunderbolt devices. A dock with stock firmware on such a port tunnels PCIe and shows no USB device.
//!
//! Source: the kernel's `Documentation/ABI/testing/sysfs-bus-thunderbolt`.

use std::fmt;
use std::path::Path;

use asm2464::escape::Escape as _;

use super::{Sysfs, TunnelledDock, bounded, names};

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
    /// What the host says about its authorisation, if the device waits for that.
    #[serde(skip)]
    pub waits: Option<Waits>,
}

/// What a host says about a device that it has not authorised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits {
    /// The security level of the device's domain, as in `user`.
    pub security: Option<String>,
    /// The version of the host router's firmware, as in `28.0`.
    pub nvm_version: Option<String>,
    /// The device's UUID, which `boltctl enroll` takes.
    pub uuid: Option<String>,
}

impl fmt::Display for TunnelledDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.name, self.what.shown())?;
        if !self.is_authorized {
            f.write_str(", which the host has not authorised")?;
        }
        let Waits { security, nvm_version, uuid } = self.waits.clone().unwrap_or_default();
        let known = [("security level", security), ("the host's NVM version", nvm_version), ("UUID", uuid)];
        let mut before = ": ";
        for (name, value) in known {
            if let Some(value) = value {
                write!(f, "{before}{name} {}", value.shown())?;
                before = ", ";
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
        let devices = self.sys.join("bus/thunderbolt/devices");
        let named = names(&devices).into_iter().filter(|name| is_device(name));
        let described = named.filter_map(|name| {
            let text = |file: &str| text(&devices.join(&name).join(file));
            let pair = |files: [&str; 2]| {
                let found: Vec<String> = files.into_iter().filter_map(text).collect();
                (!found.is_empty()).then(|| found.join(" "))
            };
            let unnamed = || Some(format!("unnamed, IDs {}", pair(["vendor", "device"])?));
            let what = pair(["vendor_name", "device_name"]).or_else(unnamed)?;
            let is_authorized = text("authorized").as_deref() != Some("0");
            let domain = name.split('-').next().unwrap_or_default();
            let waits = (!is_authorized).then(|| Waits {
                security: self::text(&devices.join(format!("domain{domain}/security"))),
                nvm_version: self::text(&devices.join(format!("{domain}-0/nvm_version"))),
                uuid: text("unique_id"),
            });
            Some(TunnelledDevice { what, is_authorized, waits, name })
        });
        described.take(MAX_DEVICES).collect()
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

fn text(file: &Path) -> Option<String> {
    let bytes = bounded(file)?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned()).filter(|text| !text.is_empty())
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
