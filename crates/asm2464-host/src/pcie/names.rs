//! Names of classes and of the vendors of GPUs and bridges, and of devices in a `pci.ids`.

use std::collections::{BTreeMap, BTreeSet};

/// Names by class and subclass. Source: PCI Code and ID Assignment Specification 1.11.
const CLASSES: &[(u16, &str)] = &[
    (0x0000, "Non-VGA unclassified device"),
    (0x0100, "SCSI storage controller"),
    (0x0101, "IDE interface"),
    (0x0104, "RAID bus controller"),
    (0x0106, "SATA controller"),
    (0x0107, "Serial Attached SCSI controller"),
    (0x0108, "Non-Volatile memory controller"),
    (0x0200, "Ethernet controller"),
    (0x0207, "Infiniband controller"),
    (0x0280, "Network controller"),
    (0x0300, "VGA compatible controller"),
    (0x0302, "3D controller"),
    (0x0380, "Display controller"),
    (0x0401, "Multimedia audio controller"),
    (0x0403, "Audio device"),
    (0x0480, "Multimedia controller"),
    (0x0500, "RAM memory"),
    (0x0580, "Memory controller"),
    (0x0600, "Host bridge"),
    (0x0604, "PCI bridge"),
    (0x0700, "Serial controller"),
    (0x0780, "Communication controller"),
    (0x0801, "DMA controller"),
    (0x0806, "IOMMU"),
    (0x0880, "System peripheral"),
    (0x0C03, "USB controller"),
    (0x0C05, "SMBus"),
    (0x0C80, "Serial bus controller"),
    (0x1100, "Signal processing controller"),
    (0x1200, "Processing accelerators"),
];

/// Makers of GPUs, and of the bridges between them and this one.
const VENDORS: &[(u16, &str)] = &[
    (0x1002, "AMD/ATI"),
    (0x1022, "AMD"),
    (0x104C, "Texas Instruments"),
    (0x10B5, "PLX"),
    (0x10DE, "NVIDIA"),
    (0x111D, "IDT"),
    (0x11F8, "PMC-Sierra"),
    (0x12D8, "Pericom"),
    (0x144D, "Samsung"),
    (0x1B21, "ASMedia"),
    (0x1D17, "Zhaoxin"),
    (0x1E52, "Tenstorrent"),
    (0x1ED5, "Moore Threads"),
    (0x8086, "Intel"),
];

/// Name of a class; `None` if it is unknown. `class` has 24 bits.
pub fn class_name(class: u32) -> Option<&'static str> {
    let wanted = (class >> 8) as u16;
    CLASSES.iter().find(|(class, _)| *class == wanted).map(|(_, name)| *name)
}

/// Whether a device of this class may be driven by a GPU runtime: a display controller, or a processing accelerator.
/// `class` has 24 bits. Source: PCI Code and ID Assignment, 1.4.
pub const fn is_gpu(class: u32) -> bool {
    matches!(class >> 16, 0x03 | 0x12)
}

/// Whether a class is that of an SSD: non-volatile memory. `class` has 24 bits. Source: PCI-SIG's class codes.
pub const fn is_ssd(class: u32) -> bool {
    class >> 8 == 0x0108
}

/// Built-in name of a vendor.
pub fn vendor_name(vendor: u16) -> Option<&'static str> {
    VENDORS.iter().find(|(known, _)| *known == vendor).map(|(_, name)| *name)
}

/// Names of some vendors and devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    vendors: BTreeMap<u16, String>,
    devices: BTreeMap<(u16, u16), String>,
}

impl Names {
    /// Looks up these devices in the text of a `pci.ids`. Falls back to the built-in vendor names.
    pub fn find(text: &str, wanted: &BTreeSet<(u16, u16)>) -> Self {
        let mut names = Self::default();
        let mut vendor = None;
        // Device classes follow the vendors.
        for line in text.lines().take_while(|line| !line.starts_with("C ")) {
            if let Some(device) = line.strip_prefix('\t') {
                if let (Some(vendor), Some((device, name))) = (vendor, entry(device))
                    && wanted.contains(&(vendor, device))
                {
                    names.devices.insert((vendor, device), name.to_owned());
                }
            } else if !line.starts_with('#') {
                let found = entry(line).filter(|(id, _)| wanted.iter().any(|(vendor, _)| vendor == id));
                vendor = found.map(|(id, _)| id);
                names.vendors.extend(found.map(|(id, name)| (id, name.to_owned())));
            }
        }
        names
    }

    /// A vendor's name.
    pub fn vendor(&self, vendor: u16) -> Option<&str> {
        self.vendors.get(&vendor).map(String::as_str).or_else(|| vendor_name(vendor))
    }

    /// A device's name.
    pub fn device(&self, vendor: u16, device: u16) -> Option<&str> {
        self.devices.get(&(vendor, device)).map(String::as_str)
    }
}

/// Parses four hexadecimal digits and a name. `None` for a subsystem's line, which begins with a second tab.
fn entry(line: &str) -> Option<(u16, &str)> {
    let (id, name) = line.split_at_checked(4)?;
    let id = u16::from_str_radix(id, 16).ok()?;
    Some((id, name.trim())).filter(|(_, name)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a comment\n1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\t744c  Navi 31\n\t\t1043 0506  a card\n\
                        \t1478  Navi 10 XL Upstream\n10de  NVIDIA Corporation\n\t744c  not this one\nC 03  Display\n\t744c  nor this\n";

    #[test]
    fn a_device_is_found_below_its_vendor() {
        let names = Names::find(TEXT, &BTreeSet::from([(0x1002, 0x744C), (0x1B21, 0x2463)]));
        assert_eq!(names.device(0x1002, 0x744C), Some("Navi 31"));
        assert_eq!(names.vendor(0x1002), Some("Advanced Micro Devices, Inc. [AMD/ATI]"));
        assert_eq!((names.device(0x1002, 0x1478), names.device(0x10DE, 0x744C)), (None, None), "not requested");
        assert_eq!(names.vendor(0x1B21), Some("ASMedia"), "built in");
    }

    #[test]
    fn a_class_has_a_name_whatever_its_programming_interface() {
        assert_eq!(class_name(0x01_08_02), Some("Non-Volatile memory controller"));
        assert_eq!(class_name(0x55_00_00), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_searched_without_harm(text: String) {
            Names::find(&text, &BTreeSet::from([(1, 1)]));
        }
    }
}
