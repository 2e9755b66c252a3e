//! A unit's identity: VID:PID, and the state that its descriptors show.

use std::str::FromStr;

use derive_more::Display;

use crate::ParseError;
use crate::digest::parse_hex;
use crate::serde_text::{serde_as_text, text_schema};

/// A USB vendor and product ID, written `ADD1:0001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[display("{vendor:04X}:{product:04X}")]
pub struct UsbId {
    /// idVendor.
    pub vendor: u16,
    /// idProduct.
    pub product: u16,
}

impl UsbId {
    /// The ID of a patched unit and of tinygrad's open firmware.
    pub const PATCHED: Self = Self { vendor: 0xADD1, product: 0x0001 };
    /// The ID of the boot loader in the chip's ROM if the configuration block is lost; some stock units have it too.
    pub const BOOT_LOADER: Self = Self { vendor: 0x174C, product: 0x2463 };
    /// The ID of most stock units.
    pub const STOCK: Self = Self { vendor: 0x174C, product: 0x2464 };
}

impl FromStr for UsbId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let digits = |text: &str| Some(u16::from_be_bytes(parse_hex(text).ok()?.try_into().ok()?));
        if let Some((vendor, product)) = text.split_once(':')
            && let (Some(vendor), Some(product)) = (digits(vendor), digits(product))
        {
            return Ok(Self { vendor, product });
        }
        let form = "four hexadecimal digits, a colon and four more, as in 174C:2464";
        Err(ParseError(format!("{text:?} is not a USB ID: {form}")))
    }
}

serde_as_text!(UsbId);
text_schema!(UsbId, "^[0-9A-F]{4}:[0-9A-F]{4}$", "idVendor and idProduct in hexadecimal.");

/// An interface's bInterfaceClass, bInterfaceSubClass and bInterfaceProtocol.
pub type InterfaceClass = (u8, u8, u8);

/// Mass storage, SCSI transparent command set, Bulk-Only.
pub const BULK_ONLY_CLASS: InterfaceClass = (0x08, 0x06, 0x50);
/// Mass storage, SCSI transparent command set, UAS.
pub const UAS_CLASS: InterfaceClass = (0x08, 0x06, 0x62);
/// The open firmware's class: vendor-specific.
pub const VENDOR_CLASS: InterfaceClass = (0xFF, 0xFF, 0xFF);

/// Returns the descriptors that follow each other in `bytes`. Each begins with bLength and bDescriptorType.
///
/// Ends at a descriptor that claims less than its header, or more bytes than there are.
pub fn descriptors(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const HEADER_LEN: u8 = 2;
    std::iter::from_fn(move || {
        let len = *bytes.first().filter(|len| **len >= HEADER_LEN)?;
        let (descriptor, rest) = bytes.split_at_checked(len.into())?;
        bytes = rest;
        Some(descriptor)
    })
}

/// Returns the classes of interface 0's alternate settings, from a configuration descriptor with all that follows it.
pub fn interface_classes(configuration: &[u8]) -> Vec<InterfaceClass> {
    const INTERFACE: u8 = 4;
    let mut classes = Vec::new();
    for descriptor in descriptors(configuration) {
        if let [_, INTERFACE, 0, _, _, class, subclass, protocol, ..] = *descriptor {
            classes.push((class, subclass, protocol));
        }
    }
    classes
}

/// What runs on a unit, as far as its descriptors show.
///
/// VID:PID does not show it: the boot loader uses the identity in the configuration block if the block is valid, and
/// stock, patched and open firmware run under each other's identities. Source: openpilot's flasher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BridgeState {
    /// The vendor's firmware, patched or not.
    #[display("vendor firmware")]
    Vendor,
    /// tinygrad's own firmware: control requests instead of SCSI.
    #[display("open firmware")]
    OpenFirmware,
    /// The boot loader in ROM: the flash holds no image that passes its checks.
    #[display("boot loader")]
    BootLoader,
}

impl BridgeState {
    /// Determines the state from the alternate settings of interface 0, or from the product string if none are known.
    ///
    /// The boot loader offers only Bulk-Only, the vendor's firmware also UAS, the open firmware a vendor-specific
    /// class.
    pub fn from_interface(alternates: &[InterfaceClass], product: &str) -> Self {
        let is_open = |(class, ..): &InterfaceClass| *class == VENDOR_CLASS.0;
        if alternates.iter().any(is_open) || (alternates.is_empty() && open_build(product).is_some()) {
            Self::OpenFirmware
        } else if alternates == [BULK_ONLY_CLASS] {
            Self::BootLoader
        } else {
            Self::Vendor
        }
    }
}

/// Returns the build in the open firmware's product string: `v0.1`, or the commit, such as `c5e2090a-CLEAN`. `None` for a
/// name of another form, such as `customised`, which a runtime takes as well. Source: the open firmware's descriptors.
pub fn open_build(product: &str) -> Option<&str> {
    let build = product.strip_prefix("custom")?;
    if build.is_empty() || build.starts_with(' ') { Some(build.trim()) } else { None }
}

/// Builds of the open firmware whose F4, with wValue 1, sets 0xCC30.0 and resets the CPU in one request. Sources: the
/// patch to ed4e39b in asiusai/openpilot, September 2026; asmpatch's practice image.
const BUILDS_WITH_F4: [&str; 2] = ["ed4e39b7-quiet1", "practice"];

/// Whether F4 restarts this build of the open firmware so that it trains its link at SuperSpeed again, by the product
/// string that it enumerates with.
///
/// No other build may be asked: ed4e39b acknowledges F4 and does nothing, and early sources set up a stream with it.
pub fn restarts_by_f4(product: &str) -> bool {
    open_build(product).is_some_and(|build| BUILDS_WITH_F4.contains(&build))
}

/// Whether a GPU runtime drives open firmware with this product string. Source: tinygrad's `runtime/support/usb.py`
/// since v0.14.0, which asserts it.
pub fn is_runtime_product(product: &str) -> bool {
    ["custom", "AS2462"].iter().any(|start| product.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usb_id_reads_as_lsusb_prints_it_and_nothing_else_does() {
        let patched = UsbId::PATCHED;
        assert_eq!(("ADD1:0001".parse(), "add1:0001".parse()), (Ok(patched), Ok(patched)));
        for text in
            ["", "ADD1", "ADD1:1", "ADD1:00001", "0xADD1:0001", "+DD1:0001", "ADD1:0001 ", "ADD1-0001", "ÄDD:0001"]
        {
            let error = text.parse::<UsbId>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a USB ID")), "{error}");
        }
    }

    #[test]
    fn the_open_firmware_names_its_build_in_its_product_string() {
        assert_eq!(open_build("custom v0.1"), Some("v0.1"));
        assert_eq!(open_build("custom c5e2090a-CLEAN"), Some("c5e2090a-CLEAN"));
        for other in ["AS2462", "customised", "custom-LAB", "my custom v0.1"] {
            assert_eq!(open_build(other), None, "{other}");
        }
        assert!(restarts_by_f4("custom ed4e39b7-quiet1"));
        for other in ["custom ed4e39b7-CLEAN", "custom ed4e39b7-quiet2", "custom v0.1", "custom", "ed4e39b7-quiet1"] {
            assert!(!restarts_by_f4(other), "{other}");
        }
    }

    #[test]
    fn the_interface_tells_the_state_whatever_the_identity() {
        let state = BridgeState::from_interface;
        assert_eq!(state(&[BULK_ONLY_CLASS], "USB 3.2 PCIe TinyEnclosure"), BridgeState::BootLoader);
        assert_eq!(state(&[BULK_ONLY_CLASS, UAS_CLASS], "AS2462"), BridgeState::Vendor);
        assert_eq!(state(&[(0xFF, 0xFF, 0xFF); 2], "AS2462"), BridgeState::OpenFirmware);
        assert_eq!(state(&[], "custom v0.1"), BridgeState::OpenFirmware);
    }
}
