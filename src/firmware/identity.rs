//! Who a unit says it is: VID:PID, and the state that follows from it.

use std::fmt;

/// A USB vendor and product ID, written `ADD1:0001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsbId {
    /// idVendor.
    pub vendor: u16,
    /// idProduct.
    pub product: u16,
}

impl UsbId {
    /// What a patched unit and tinygrad's open firmware enumerate as.
    pub const PATCHED: Self = Self { vendor: 0xADD1, product: 0x0001 };
    /// What the boot loader in the chip's ROM enumerates as where the configuration block is lost; some stock units do
    /// too.
    pub const BOOT_LOADER: Self = Self { vendor: 0x174C, product: 0x2463 };
    /// What most stock units enumerate as.
    pub const STOCK: Self = Self { vendor: 0x174C, product: 0x2464 };

    /// Every identity that an ASM2464PD enumerates with.
    pub const ALL: [Self; 5] = [
        Self { vendor: 0x174C, product: 0x2461 },
        Self { vendor: 0x174C, product: 0x2462 },
        Self::BOOT_LOADER,
        Self::STOCK,
        Self::PATCHED,
    ];

    /// Whether a device with this ID can be an ASM2464PD at all.
    pub const fn is_bridge(self) -> bool {
        matches!((self.vendor, self.product), (0x174C, 0x2461..=0x2464) | (0xADD1, 0x0001))
    }
}

impl fmt::Display for UsbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04X}:{:04X}", self.vendor, self.product)
    }
}

impl serde::Serialize for UsbId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An interface's bInterfaceClass, bInterfaceSubClass and bInterfaceProtocol.
pub type InterfaceClass = (u8, u8, u8);

/// Mass storage, SCSI transparent command set, Bulk-Only.
pub const BULK_ONLY_CLASS: InterfaceClass = (0x08, 0x06, 0x50);
/// Mass storage, SCSI transparent command set, UAS.
pub const UAS_CLASS: InterfaceClass = (0x08, 0x06, 0x62);
/// The open firmware's: vendor-specific.
pub const VENDOR_CLASS: InterfaceClass = (0xFF, 0xFF, 0xFF);

/// The classes of interface 0's alternate settings, in a configuration descriptor with all that follows it.
///
/// A descriptor that claims less than its header, or more than there is, ends the list.
pub fn interface_classes(mut configuration: &[u8]) -> Vec<InterfaceClass> {
    const INTERFACE: u8 = 4;
    let mut classes = Vec::new();
    while let [len, kind, ..] = configuration
        && *len >= 2
    {
        let Some((descriptor, rest)) = configuration.split_at_checked(usize::from(*len)) else { break };
        if *kind == INTERFACE
            && let [_, _, 0, _, _, class, subclass, protocol, ..] = descriptor
        {
            classes.push((*class, *subclass, *protocol));
        }
        configuration = rest;
    }
    classes
}

/// What runs on a unit, as far as its descriptors tell.
///
/// VID:PID tells nothing of it: the boot loader shows the identity of the configuration block where that is whole, and
/// stock, patched and open firmware run under each other's identities. Source: openpilot's flasher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BridgeState {
    /// The vendor's firmware, patched or not.
    Vendor,
    /// tinygrad's own firmware: control requests in place of SCSI.
    OpenFirmware,
    /// The boot loader in ROM: the flash holds no image that passes its checks.
    BootLoader,
}

impl BridgeState {
    /// The state that the alternate settings of interface 0 tell, and the product string where they tell nothing.
    ///
    /// The boot loader has Bulk-Only alone, the vendor's firmware UAS beside it, the open firmware a vendor-specific
    /// class.
    pub fn from_interface(alternates: &[InterfaceClass], product: &str) -> Self {
        let is_open = |(class, ..): &InterfaceClass| *class == VENDOR_CLASS.0;
        if alternates.iter().any(is_open) || (alternates.is_empty() && product.starts_with("custom")) {
            Self::OpenFirmware
        } else if alternates == [BULK_ONLY_CLASS] {
            Self::BootLoader
        } else {
            Self::Vendor
        }
    }
}

/// Whether a GPU runtime drives open firmware with this product string. Source: tinygrad's `runtime/support/usb.py` since
/// v0.14.0, which asserts it.
pub fn is_runtime_product(product: &str) -> bool {
    ["custom", "AS2462"].iter().any(|start| product.starts_with(start))
}

impl fmt::Display for BridgeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vendor => "vendor firmware",
            Self::OpenFirmware => "open firmware",
            Self::BootLoader => "boot loader",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_tells_the_state_whatever_the_identity() {
        let state = BridgeState::from_interface;
        assert_eq!(state(&[BULK_ONLY_CLASS], "USB 3.2 PCIe TinyEnclosure"), BridgeState::BootLoader);
        assert_eq!(state(&[BULK_ONLY_CLASS, UAS_CLASS], "AS2462"), BridgeState::Vendor);
        assert_eq!(state(&[(0xFF, 0xFF, 0xFF); 2], "AS2462"), BridgeState::OpenFirmware);
        assert_eq!(state(&[], "custom v0.1"), BridgeState::OpenFirmware);
    }
}
