//! The known docks, by the USB IDs that they come with.

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
