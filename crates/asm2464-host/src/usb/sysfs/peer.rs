//! The other half of a USB 3 connector. Its USB 2 and SuperSpeed ports are two ports, on two buses.
//!
//! Source: the kernel's `Documentation/ABI/testing/sysfs-bus-usb`, `peer`.

use std::fs;

use super::Sysfs;
use crate::bridge::PortPath;

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
    use std::os::unix::fs::symlink;

    use super::*;

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
