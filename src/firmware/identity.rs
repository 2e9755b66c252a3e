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
    /// What the boot loader in the chip's ROM enumerates as; some stock units do too.
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

/// What runs on a unit, as far as its descriptors tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BridgeState {
    /// The vendor's firmware under the vendor's identity.
    Stock,
    /// The vendor's firmware under the patched identity.
    Patched,
    /// tinygrad's own firmware: control requests in place of SCSI.
    OpenFirmware,
    /// The boot loader in ROM: the flash holds no image that passes its checks.
    BootLoader,
}

impl BridgeState {
    /// The state that descriptors tell, or `None` for a device that is no ASM2464PD.
    ///
    /// `alternates` is the number of alternate settings of interface 0: the boot loader has one, the running
    /// firmware two. Source: cyrozap's notes and tinygrad's tools, as the reference page lists them.
    pub fn from_descriptors(id: UsbId, product: &str, alternates: usize) -> Option<Self> {
        if !id.is_bridge() {
            None
        } else if id == UsbId::PATCHED {
            Some(if product.starts_with("custom") { Self::OpenFirmware } else { Self::Patched })
        } else if id == UsbId::BOOT_LOADER && alternates <= 1 {
            Some(Self::BootLoader)
        } else {
            Some(Self::Stock)
        }
    }
}

impl fmt::Display for BridgeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stock => "stock",
            Self::Patched => "patched",
            Self::OpenFirmware => "open firmware",
            Self::BootLoader => "boot loader",
        })
    }
}
