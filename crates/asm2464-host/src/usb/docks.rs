//! The known docks, by the USB IDs that they come with, and the chips that are none.

use std::borrow::Cow::{self, Borrowed};

use asm2464::firmware::UsbId;
use serde::{Deserialize, Serialize};

/// A dock that has this USB ID.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KnownDevice {
    /// VID:PID.
    #[serde(rename(serialize = "usb_id"))]
    pub id: UsbId,
    /// The product, as its maker sells it.
    pub product: Cow<'static, str>,
    /// Who makes it.
    pub maker: Cow<'static, str>,
    /// What a user should know about it.
    #[serde(default)]
    pub notes: Cow<'static, str>,
    /// Where these facts come from.
    pub source: Cow<'static, str>,
}

/// Every known dock, by ID.
pub const DOCKS: &[KnownDevice] = &[
    KnownDevice {
        id: UsbId { vendor: 0x174C, product: 0x2461 },
        product: Borrowed("ASM246x enclosure"),
        maker: Borrowed("ASMedia"),
        notes: Borrowed(""),
        source: Borrowed("cyrozap's notes on the chip."),
    },
    KnownDevice {
        id: UsbId { vendor: 0x174C, product: 0x2462 },
        product: Borrowed("ASM246x enclosure"),
        maker: Borrowed("ASMedia"),
        notes: Borrowed(""),
        source: Borrowed("cyrozap's notes on the chip."),
    },
    KnownDevice {
        id: UsbId::BOOT_LOADER,
        product: Borrowed("ASM2464PD enclosure, or boot loader"),
        maker: Borrowed("ASMedia"),
        notes: Borrowed("Some stock enclosures, and the boot loader in ROM when the configuration is lost."),
        source: Borrowed("smartmontools' issue 370; openpilot's flasher."),
    },
    KnownDevice {
        id: UsbId::STOCK,
        product: Borrowed("ASM2464PD enclosure"),
        maker: Borrowed("ASMedia"),
        notes: Borrowed("Stock firmware. What a unit falls back to when its configuration is lost."),
        source: Borrowed("smartmontools' pull request 386; image 240417."),
    },
    KnownDevice {
        id: UsbId { vendor: 0x1E91, product: 0xDE79 },
        product: Borrowed("Express 1M2"),
        maker: Borrowed("OWC"),
        notes: Borrowed("Ships with firmware 241129."),
        source: Borrowed("smartmontools' pull request 386; asm2464pd-soft-replug, measured on one."),
    },
    KnownDevice {
        id: UsbId { vendor: 0x2065, product: 0x2463 },
        product: Borrowed("ADT-UT3G"),
        maker: Borrowed("ADT-Link"),
        notes: Borrowed(
            "As it leaves the factory (V1.6, made by Gopod), with stock firmware. Others have the chip maker's ID.",
        ),
        source: Borrowed("Owners' reports, 2026."),
    },
    KnownDevice {
        id: UsbId { vendor: 0x3801, product: 0x0001 },
        product: Borrowed("TinyEnclosure"),
        maker: Borrowed("tinygrad"),
        notes: Borrowed("Open firmware since July 2026."),
        source: Borrowed("The open firmware's pull request 76; openpilot's flasher."),
    },
    KnownDevice {
        id: UsbId::PATCHED,
        product: Borrowed("TinyEnclosure"),
        maker: Borrowed("tinygrad"),
        notes: Borrowed("Patched vendor firmware, or open firmware."),
        source: Borrowed("tinygrad's patch.py and its open firmware."),
    },
    KnownDevice {
        id: UsbId { vendor: 0xADD1, product: 0x0002 },
        product: Borrowed("ADT-UT3G"),
        maker: Borrowed("ADT-Link"),
        notes: Borrowed("A variant of the open firmware, whose product string is `custom d1377a01-UT3G-DUAL`."),
        source: Borrowed("Owners' reports, 2026."),
    },
];

/// A chip of the same maker that is no ASM2464PD. Some take commands with the same numbers for other work, so none is
/// ever opened, whatever IDs the caller names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherChip {
    /// VID:PID.
    pub id: UsbId,
    /// What it is.
    pub name: &'static str,
}

/// ASMedia's other chips, by ID. Sources: smartmontools' drivedb.h (2362, 2364); usb.ids; owners' lists of bridges in
/// 2026 (1352, 225A, 235C).
const OTHER_CHIPS: &[OtherChip] = &[
    OtherChip::of(0x1151, "ASM1151W"),
    OtherChip::of(0x1153, "ASM1153"),
    OtherChip::of(0x1352, "ASM1352R"),
    OtherChip::of(0x2074, "ASM1074 hub"),
    OtherChip::of(0x225A, "ASM225CM"),
    OtherChip::of(0x235C, "ASM235CM"),
    OtherChip::of(0x2362, "ASM2362"),
    OtherChip::of(0x2364, "ASM2364"),
    OtherChip::of(0x3074, "ASM1074 hub"),
    OtherChip::of(0x5106, "ASM1051"),
    OtherChip::of(0x5136, "ASM1053"),
    OtherChip::of(0x51D6, "ASM1051W"),
    OtherChip::of(0x55AA, "ASM1051E, ASM1053E, ASM1153 or ASM1153E"),
];

impl OtherChip {
    const fn of(product: u16, name: &'static str) -> Self {
        Self { id: UsbId { vendor: UsbId::STOCK.vendor, product }, name }
    }

    /// The chip that has this ID, if it is known to be none that asmpatch writes.
    pub fn with(id: UsbId) -> Option<&'static Self> {
        OTHER_CHIPS.iter().find(|chip| chip.id == id)
    }

    /// Why a device with this ID is never written.
    pub fn refusal(&self) -> String {
        format!("{} is the ID of another chip, {}", self.id, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_chip_is_among_the_docks_and_each_stands_once_in_order() {
        assert!(OTHER_CHIPS.is_sorted_by(|one, next| one.id < next.id));
        assert!(DOCKS.iter().all(|dock| OtherChip::with(dock.id).is_none()));
        let chip = OtherChip::with(UsbId { vendor: 0x174C, product: 0x2362 }).unwrap();
        assert_eq!(chip.refusal(), "174C:2362 is the ID of another chip, ASM2362");
    }
}
