//! What is connected, as text to compare: so that a program that waits for the user's hands sees when something changes.

use super::{Sysfs, line, link_target, names};

/// The buses that are looked at, and the files of each device there that say whether it was connected, authorised or
/// woken. Source: the kernel's `Documentation/ABI`, as for the module; `sysfs-bus-thunderbolt`, `sysfs-bus-pci`.
const BUSES: [(&str, &[&str]); 3] = [
    ("usb", &["devnum", "idVendor", "idProduct", "serial", "speed", "power/control"]),
    ("thunderbolt", &["unique_id", "authorized", "nvm_version", "power/control"]),
    ("pci", &["vendor", "device", "current_link_speed", "power/control"]),
];

impl Sysfs {
    /// Lists the devices on USB, USB4 and PCIe: a line each, which begins with the bus and the device's name, and changes
    /// when the device leaves and returns, when it is authorised or kept awake, when its driver or the access to its node
    /// changes. Opens no device. Empty if the system doesn't report them.
    pub fn snapshot(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (bus, files) in BUSES {
            let folder = self.sys.join("bus").join(bus).join("devices");
            for name in names(&folder) {
                let device = folder.join(&name);
                // Interfaces come and go with their drivers.
                if bus == "usb" && name.contains(':') {
                    continue;
                }
                let mut said = vec![bus.to_owned(), name];
                said.extend(files.iter().map(|file| line(&device.join(file)).unwrap_or_default()));
                said.push(link_target(&device.join("driver")).unwrap_or_default());
                if let Some(node) = line(&device.join("busnum")).zip(line(&device.join("devnum"))) {
                    said.push(self.access_to(&node.0, &node.1));
                }
                lines.push(said.join(" "));
            }
        }
        lines
    }

    /// Who may use a device's node: its mode, its owner and its group.
    #[cfg(unix)]
    fn access_to(&self, bus: &str, address: &str) -> String {
        use std::os::unix::fs::MetadataExt as _;
        let path = self.dev.join(format!("bus/usb/{bus:0>3}/{address:0>3}"));
        let metadata = std::fs::symlink_metadata(path);
        metadata.map(|node| format!("{:o} {} {}", node.mode(), node.uid(), node.gid())).unwrap_or_default()
    }

    #[cfg(not(unix))]
    fn access_to(&self, _: &str, _: &str) -> String {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_snapshot_changes_with_what_hands_do_and_only_then() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let sysfs = Sysfs::at(root.path().join("sys"), root.path().join("proc"), root.path().join("dev"));
        assert!(sysfs.snapshot().is_empty());
        let mut last = sysfs.snapshot();
        let mut changes = |path: &str, text: &str| {
            put(path, text);
            let now = sysfs.snapshot();
            let is_change = now != last;
            last = now;
            is_change
        };
        assert!(changes("sys/bus/usb/devices/3-1/devnum", "7\n"), "it is plugged in");
        assert!(changes("sys/bus/usb/devices/3-1/devnum", "8\n"), "it was plugged in again");
        assert!(changes("sys/bus/usb/devices/3-1/power/control", "on\n"), "it is kept awake");
        assert!(!changes("sys/bus/usb/devices/3-1/power/runtime_status", "active\n"));
        assert!(!changes("sys/bus/usb/devices/3-1:1.0/bInterfaceClass", "08\n"));
        assert!(changes("sys/bus/thunderbolt/devices/0-1/authorized", "0\n"), "it is connected");
        assert!(changes("sys/bus/thunderbolt/devices/0-1/authorized", "1\n"), "it is authorised");
        assert!(changes("sys/bus/pci/devices/0000:04:00.0/vendor", "0x1002\n"), "the GPU is there");
        put("sys/bus/usb/devices/3-1/busnum", "3\n");
        last = sysfs.snapshot();
        put("dev/bus/usb/003/008", "");
        assert_ne!(sysfs.snapshot(), last, "there is a node");
    }
}
