//! Identity of units: the serial number and the USB4 identity. Pure.

use crate::unit::facts::differing;
use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, ConfigField, USB4_IDENTITY as USB4, known_blocks};
use asm2464::flash::BlockBytes;
use asm2464_host::bridge::UnitInfo;
use derive_more::Display;

/// Identity of a unit in its configuration blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitIdentity {
    /// Block 0's serial number.
    pub serial: Option<String>,
    /// Block 1's USB4 identity.
    pub usb4: Option<[u8; USB4.end - USB4.start]>,
}

impl UnitIdentity {
    /// The identity in blocks 0 and 1. A missing or invalid block contributes nothing.
    pub fn of(blocks: [Option<&BlockBytes>; 2]) -> Self {
        let [zero, one] = blocks;
        let parsed = |index, bytes: Option<&BlockBytes>| ConfigBlock::parse(index, bytes?).ok();
        let serial = parsed(BlockIndex::Zero, zero).map(|block| block.text(ConfigField::Serial));
        let usb4 = parsed(BlockIndex::One, one).and_then(|block| block.bytes()[USB4].try_into().ok());
        Self {
            serial: serial.filter(|serial| !is_nobodys(serial)),
            usb4: usb4.filter(|bytes: &[u8; _]| bytes.iter().any(|byte| *byte != 0xFF)),
        }
    }

    /// The identity that a serial number in USB descriptors shows: the boot loader's is block 0's, or zeros.
    pub(super) fn shown(serial: &str) -> Self {
        Self { serial: Some(serial).filter(|serial| !is_nobodys(serial)).map(str::to_owned), usb4: None }
    }

    /// Removes the values that tinygrad's tool writes to every unit, because they identify no unit.
    pub(super) fn own(&self) -> Self {
        let [zero, one] = known_blocks();
        let known = Self::of([Some(zero.bytes()), Some(one.bytes())]);
        Self {
            serial: self.serial.clone().filter(|serial| known.serial.as_ref() != Some(serial)),
            usb4: self.usb4.filter(|usb4| known.usb4.as_ref() != Some(usb4)),
        }
    }

    /// Returns the part of this unit's own identity that `planned` would replace with another unit's.
    pub fn taken_by(&self, planned: &Self) -> Option<Cloned> {
        let own = self.own();
        differing(own.serial, planned.serial.clone())
            .map(|(own, new)| Cloned::OtherSerial { own, new })
            .or_else(|| differing(own.usb4, planned.usb4).map(|_| Cloned::OtherUsb4))
    }

    /// Whether both have the same USB4 identity, which only one unit may have.
    pub fn shares_usb4_with(&self, other: &Self) -> bool {
        self.own().usb4.is_some_and(|usb4| other.usb4 == Some(usb4))
    }
}

/// Whether a serial number identifies no unit: it is empty, or the boot loader's zeros.
pub fn is_nobodys(serial: &str) -> bool {
    serial.bytes().all(|byte| byte == b'0')
}

/// Whether a unit shows a blank flash: its boot loader, without a serial number in block 0.
pub(super) fn is_blank_board(unit: &UnitInfo) -> bool {
    unit.state == BridgeState::BootLoader && is_nobodys(unit.serial())
}

/// Whether a serial number is of the vendor's template: AAAABBBB and four hexadecimal digits. Makers leave it in, so docks
/// of several have the same. A different one still shows a different unit.
///
/// Source: the ini of the vendor's production tool (MPTool 1.0.4.1), which counts up from AAAABBBB0004; owners' docks have
/// 0007, 0012, 0105 and 3054, and tinygrad's tool writes 0060.
pub(super) fn is_template(serial: &str) -> bool {
    let digits = serial.strip_prefix("AAAABBBB");
    digits.is_some_and(|digits| digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Reasons a plan is a clone of another unit.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum Cloned {
    /// The backup has another unit's serial number.
    #[display("another unit's serial number, {new} in place of its own {own}")]
    OtherSerial {
        /// The unit's serial number.
        own: String,
        /// The backup's serial number.
        new: String,
    },
    /// The backup has another unit's USB4 identity.
    #[display("another unit's USB4 identity in place of its own")]
    OtherUsb4,
    /// Other units have this serial number, or get it in the same run.
    #[display("the serial number {serial}, which {} would have too", devices.join(", "))]
    SharedSerial {
        /// The serial number.
        serial: String,
        /// The ports of these units.
        devices: Vec<String>,
    },
    /// Other units, at these ports, have this USB4 identity, or get it in the same run.
    #[display("the USB4 identity that {} would have too", _0.join(", "))]
    SharedUsb4(Vec<String>),
}

/// The serial numbers that several units share, each with the units' ports, in order of appearance.
pub fn shared_serials<'a>(units: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (device, serial) in units.into_iter().filter(|(_, serial)| !is_nobodys(serial)) {
        match all.iter_mut().find(|(known, _)| *known == serial) {
            Some((_, devices)) => devices.push(device),
            None => all.push((serial, vec![device])),
        }
    }
    all.retain(|(_, devices)| devices.len() > 1);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(serial: &str, usb4: Option<u8>) -> UnitIdentity {
        UnitIdentity { serial: Some(serial.to_owned()), usb4: usb4.map(|byte| [byte; 42]) }
    }

    #[test]
    fn a_unit_with_an_identity_of_its_own_loses_it_to_that_of_another() {
        let own = unit("MINE", Some(1));
        assert_eq!(own.taken_by(&own), None);
        assert!(matches!(own.taken_by(&unit("YOURS", Some(1))), Some(Cloned::OtherSerial { .. })));
        assert_eq!(own.taken_by(&unit("MINE", Some(2))), Some(Cloned::OtherUsb4));
    }

    #[test]
    fn an_identity_shared_by_every_unit_is_not_reported_as_lost() {
        let [zero, one] = known_blocks();
        let known = UnitIdentity::of([Some(zero.bytes()), Some(one.bytes())]);
        assert_eq!(known.serial.as_deref(), Some("AAAABBBB0060"));
        assert_eq!(known.taken_by(&unit("MINE", Some(1))), None);
        assert!(!known.shares_usb4_with(&known));
        let own = unit("MINE", Some(1));
        assert!(own.shares_usb4_with(&unit("YOURS", Some(1))) && !own.shares_usb4_with(&unit("MINE", Some(2))));
        assert_eq!(UnitIdentity::of([None, None]).taken_by(&unit("MINE", Some(1))), None);
    }

    #[test]
    fn the_vendors_template_of_a_serial_number_is_known() {
        assert!(["AAAABBBB0004", "AAAABBBB0060", "AAAABBBB00fE"].into_iter().all(is_template));
        assert!(
            !["", "AAAABBBB", "AAAABBBB004", "AAAABBBB00044", "AAAABBBB00G4", "LAB-0004"].into_iter().any(is_template)
        );
    }

    #[test]
    fn serial_numbers_that_several_units_have_are_found_and_the_boot_loaders_zeros_are_none() {
        let units =
            [("1-1", "A"), ("1-2", "000000000000"), ("1-3", "A"), ("1-4", "000000000000"), ("1-5", ""), ("1-6", "")];
        assert_eq!(shared_serials(units), [("A", vec!["1-1", "1-3"])]);
    }
}
