//! Identity of units: the serial number and the USB4 identity, and a neutral one for a board that has none.

use asm2464::firmware::{
    BlockIndex, BridgeState, ConfigBlock, ConfigField, USB4_IDENTITY as USB4, UsbId, known_blocks,
};
use asm2464::flash::BlockBytes;
use asm2464::{Failure, Kind};
use asm2464_host::bridge::UnitInfo;
use derive_more::Display;

use super::consent::Waiver;
use crate::unit::facts::differing;

/// Bytes of a serial number that is drawn, written as twice as many digits, and of a USB4 unique ID.
const SERIAL_BYTES: usize = 6;
const UNIQUE_ID_BYTES: usize = 5;

/// The bytes of block 1 that make a unit's USB4 identity.
pub type Usb4Identity = [u8; USB4.end - USB4.start];

/// Identity of a unit in its configuration blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitIdentity {
    /// Block 0's serial number.
    pub serial: Option<String>,
    /// Block 1's USB4 identity.
    pub usb4: Option<Usb4Identity>,
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

    /// The identity that a unit shows without being read: block 0's serial number, or zeros in the boot loader. Open
    /// firmware shows the chip's number.
    pub(super) fn shown_by(unit: &UnitInfo) -> Self {
        let shows_block = unit.state != BridgeState::OpenFirmware && !is_nobodys(unit.serial());
        Self { serial: shows_block.then(|| unit.serial().to_owned()), usb4: None }
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

    /// Returns the parts of this unit's own identity that `planned` would replace with another unit's.
    pub fn taken_by(&self, planned: &Self) -> Vec<Cloned> {
        let own = self.own();
        let serial = differing(own.serial, planned.serial.clone());
        let serial = serial.map(|(own, new)| Cloned::OtherSerial { own, new });
        let usb4 = differing(own.usb4, planned.usb4).map(|_| Cloned::OtherUsb4);
        serial.into_iter().chain(usb4).collect()
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

/// Number of significant digits that a placeholder's counter has at most.
const MOST_COUNTED: usize = 4;

/// Whether a serial number is a placeholder that a maker left in, so that docks of several makers may have the same: it
/// begins with a filling, and at most a counter follows. A filling is groups of one length, and each digit or letter is
/// that of the group before (`1111`, `A1A1`, `ABCDABCD`), the one after it (`AABBCCDD`, `012345`), or the one before it
/// (`DDCCBBAA`). In three groups or more each place may go its own way (`010203`). A different placeholder still shows a
/// different unit.
///
/// Source: the ini of the vendor's production tool (MPTool 1.0.4.1), which counts up from AAAABBBB0004, in hexadecimal;
/// owners' docks have 0007, 0012, 0105 and 3054 there, and tinygrad's tool writes 0060. AABBCCDD0031: openmediavault issue
/// 1982.
pub(super) fn is_placeholder(serial: &str) -> bool {
    let digits: Vec<u8> =
        serial.bytes().filter(u8::is_ascii_alphanumeric).map(|digit| digit.to_ascii_uppercase()).collect();
    // A counter is no longer than the filling, or the filling would be chance.
    let shortest = digits.len().div_ceil(2).max(MOST_COUNTED);
    (shortest..=digits.len()).any(|len| {
        let (filling, counter) = digits.split_at(len);
        is_filling(filling) && is_counter(counter)
    })
}

fn is_filling(digits: &[u8]) -> bool {
    (1..=digits.len() / 2).any(|group| {
        let steps: Vec<Option<i8>> = digits.iter().zip(&digits[group..]).map(|(one, next)| step(*one, *next)).collect();
        let are_alike = steps.iter().all(|step| *step == steps[0]);
        let are_alike_by_place = steps.len() >= 2 * group && steps.iter().zip(&steps[group..]).all(|(a, b)| a == b);
        steps.iter().all(Option::is_some) && (are_alike || are_alike_by_place)
    })
}

/// How many places one digit or letter is before another: none, one, or one behind it; `None` for more.
const fn step(one: u8, next: u8) -> Option<i8> {
    if one == next {
        Some(0)
    } else if follows(one, next) {
        Some(1)
    } else if follows(next, one) {
        Some(-1)
    } else {
        None
    }
}

/// Whether a digit or letter comes after another: in decimal, in hexadecimal, or in the alphabet.
const fn follows(one: u8, next: u8) -> bool {
    matches!((one, next), (b'9', b'0' | b'A') | (b'F' | b'Z', b'0')) || next == one + 1
}

fn is_counter(digits: &[u8]) -> bool {
    let significant = digits.len() - digits.iter().take_while(|digit| **digit == b'0').count();
    significant <= MOST_COUNTED && digits.iter().all(u8::is_ascii_hexdigit)
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

impl Cloned {
    /// What the user has to waive.
    pub const fn waiver(&self) -> Waiver {
        match self {
            Self::OtherSerial { .. } | Self::SharedSerial { .. } => Waiver::Serial,
            Self::OtherUsb4 | Self::SharedUsb4(_) => Waiver::Usb4,
        }
    }
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

/// Draws the neutral blocks of a unit: what a stock image gets on a board without any configuration. The known blocks
/// are no choice there: they make the board a "TinyEnclosure" with another maker's USB4 names and its USB4 identity.
///
/// The serial number is the one that the user gives (`given`); else the one that the unit shows (`shown`, empty if that
/// is not block 0's), which an interrupted run may have written; else one that is drawn at random. The USB4 unique ID is
/// always drawn. Everything else is the chip maker's, the same on every board.
///
/// # Errors
/// If the system gives no random bytes, or the serial number does not fit its field.
pub fn neutral_blocks(shown: &str, given: Option<&str>) -> Result<[ConfigBlock; 2], Failure> {
    loop {
        let mut random = [0; SERIAL_BYTES + UNIQUE_ID_BYTES];
        getrandom::fill(&mut random).map_err(|error| {
            let label = Kind::System.code("asmpatch::flash::random");
            Failure::new(label, "the system gives no random bytes for a serial number").because(error)
        })?;
        if let Some((drawn, unique_id)) = values_of(random) {
            let serial = given.or(own_serial(shown)).unwrap_or(&drawn);
            return neutral(serial, unique_id);
        }
    }
}

/// Makes a serial number and a USB4 unique ID of random bytes; `None` if one of them would identify no unit.
fn values_of(random: [u8; SERIAL_BYTES + UNIQUE_ID_BYTES]) -> Option<(String, [u8; UNIQUE_ID_BYTES])> {
    let (digits, unique_id) = random.split_at(SERIAL_BYTES);
    let serial: String = digits.iter().map(|byte| format!("{byte:02X}")).collect();
    let unique_id = <[u8; UNIQUE_ID_BYTES]>::try_from(unique_id).ok()?;
    // FF ends the ID.
    let is_short = unique_id.contains(&0xFF) || unique_id == [0; UNIQUE_ID_BYTES];
    if is_nobodys(&serial) || is_placeholder(&serial) || is_short {
        return None;
    }
    Some((serial, unique_id))
}

/// The serial number that a unit shows, if it identifies the unit.
fn own_serial(shown: &str) -> Option<&str> {
    let is_own = !is_nobodys(shown) && !is_placeholder(shown) && ConfigField::Serial.accepts(shown);
    if is_own { Some(shown) } else { None }
}

/// The neutral blocks with these values of a board's own. The others are those of the vendor's production tool (MPTool
/// 1.0.4.1); what it doesn't name, and U4Mode, whose place is a guess, is as in the known blocks, with which owners'
/// units run.
fn neutral(serial: &str, unique_id: [u8; UNIQUE_ID_BYTES]) -> Result<[ConfigBlock; 2], Failure> {
    let [mut zero, mut one] = known_blocks();
    zero.set_text(ConfigField::Serial, serial)?;
    zero.set_text(ConfigField::Manufacturer, "ASMedia")?;
    zero.set_text(ConfigField::T10Vendor, "ASMT")?;
    zero.set_text(ConfigField::Product, "ASM246X series")?;
    zero.set_text(ConfigField::T10Product, "ASM246X")?;
    zero.set_number(ConfigField::VendorId, UsbId::BOOT_LOADER.vendor)?;
    zero.set_number(ConfigField::ProductId, UsbId::BOOT_LOADER.product)?;
    zero.set_number(ConfigField::DeviceRelease, 0x0100)?;
    one.set_text(ConfigField::Usb4Vendor, "ASMedia")?;
    one.set_text(ConfigField::Usb4Model, "246x")?;
    one.set_bytes(ConfigField::Usb4UniqueId, &unique_id)?;
    one.set_number(ConfigField::Usb4VendorId, UsbId::BOOT_LOADER.vendor)?;
    one.set_number(ConfigField::Usb4ProductId, UsbId::BOOT_LOADER.product)?;
    one.set_number(ConfigField::ProductRevision, 0x3B02)?;
    one.set_number(ConfigField::Tb3VendorId, 0x00B8)?;
    one.set_number(ConfigField::Tb3ModelId, 0x2463)?;
    Ok([zero, one])
}

#[cfg(test)]
mod tests {
    use asm2464::Coded as _;

    use super::*;

    fn unit(serial: &str, usb4: Option<u8>) -> UnitIdentity {
        UnitIdentity { serial: Some(serial.to_owned()), usb4: usb4.map(|byte| [byte; 42]) }
    }

    #[test]
    fn a_unit_with_an_identity_of_its_own_loses_it_to_that_of_another() {
        let own = unit("MINE", Some(1));
        assert_eq!(own.taken_by(&own), []);
        assert!(matches!(own.taken_by(&unit("YOURS", Some(1)))[..], [Cloned::OtherSerial { .. }]));
        assert_eq!(own.taken_by(&unit("MINE", Some(2))), [Cloned::OtherUsb4]);
        assert!(matches!(own.taken_by(&unit("YOURS", Some(2)))[..], [Cloned::OtherSerial { .. }, Cloned::OtherUsb4]));
    }

    #[test]
    fn an_identity_shared_by_every_unit_is_not_reported_as_lost() {
        let [zero, one] = known_blocks();
        let known = UnitIdentity::of([Some(zero.bytes()), Some(one.bytes())]);
        assert_eq!(known.serial.as_deref(), Some("AAAABBBB0060"));
        assert_eq!(known.taken_by(&unit("MINE", Some(1))), []);
        assert!(!known.shares_usb4_with(&known));
        let own = unit("MINE", Some(1));
        assert!(own.shares_usb4_with(&unit("YOURS", Some(1))) && !own.shares_usb4_with(&unit("MINE", Some(2))));
        assert_eq!(UnitIdentity::of([None, None]).taken_by(&unit("MINE", Some(1))), []);
    }

    #[test]
    fn a_filling_and_a_counter_are_a_placeholder() {
        for placeholder in [
            "AAAABBBB0004",
            "AAAABBBB0060",
            "AAAABBBB00fE",
            "AABBCCDD0031",
            "aabbccdd0031",
            "AA-BB-CC-DD-00-31",
            "AABBCCDD000031",
            "AABBCCDDEEFF",
            "AAAABBBBCCCC1",
            "0123456789ABCDEF",
            "ABCDEF012345",
            "123456789012",
            "112233445566",
            "111111111111",
            "FFFFFFFFFFFF",
            "000000000001",
            "A1A1A1A10002",
            "ABCDABCD0031",
            "ABC123ABC123",
            "DDCCBBAA0031",
            "FEDCBA987654",
            "010203040506",
            "A0B0C0D00001",
            "XXXXXXXX",
            "1234",
        ] {
            assert!(is_placeholder(placeholder), "{placeholder}");
        }
    }

    #[test]
    fn a_number_of_ones_own_is_no_placeholder() {
        for own in [
            "",
            "A",
            "AAB",
            "LAB-0004",
            "RACK-0001",
            "MINE",
            "SERIAL0001",
            "AAAABBBB00G4",
            "AABBCCDD12345",
            "AABCCDDE0031",
            "1020A0B00031",
            "000000123456",
            "100000000001",
            "5C3E91A07B24",
            "20240417000123",
            "S4EWNX0R123456",
        ] {
            assert!(!is_placeholder(own), "{own}");
        }
    }

    #[test]
    fn serial_numbers_that_several_units_have_are_found_and_the_boot_loaders_zeros_are_none() {
        let units =
            [("1-1", "A"), ("1-2", "000000000000"), ("1-3", "A"), ("1-4", "000000000000"), ("1-5", ""), ("1-6", "")];
        assert_eq!(shared_serials(units), [("A", vec!["1-1", "1-3"])]);
    }

    #[test]
    fn both_neutral_blocks_are_valid_and_have_nothing_of_another_maker() {
        let [zero, one] = neutral("5C3E91A07B24", [0x5C; UNIQUE_ID_BYTES]).unwrap();
        assert_eq!(ConfigBlock::parse(BlockIndex::Zero, zero.bytes()).unwrap(), zero);
        assert_eq!(ConfigBlock::parse(BlockIndex::One, one.bytes()).unwrap(), one);
        assert_eq!(zero.usb_id().to_string(), "174C:2463");
        assert_eq!(zero.text(ConfigField::Serial), "5C3E91A07B24");
        assert_eq!(zero.text(ConfigField::Product), "ASM246X series");
        assert_eq!(one.text(ConfigField::Usb4Vendor), "ASMedia");
        assert_eq!(one.field(ConfigField::Usb4UniqueId), [0x5C; UNIQUE_ID_BYTES]);
        let known = known_blocks();
        // Settings of the link, which no identity changes.
        assert_eq!(one.bytes()[0x59..0x5C], known[1].bytes()[0x59..0x5C]);
        let kept = [ConfigField::Flags, ConfigField::DeviceRelease, ConfigField::U4Mode];
        let common = [ConfigField::TestId, ConfigField::HardwareRevision, ConfigField::Tb3Revision];
        for field in ConfigField::ALL {
            let block = field.block();
            let is_same = block.of(&[zero, one]).field(*field) == block.of(&known).field(*field);
            assert_eq!(is_same, kept.contains(field) || common.contains(field), "{}", field.name());
        }
        let unit = UnitIdentity::of([Some(zero.bytes()), Some(one.bytes())]);
        assert!(!unit.shares_usb4_with(&UnitIdentity::of([None, Some(known[1].bytes())])));
    }

    #[test]
    fn the_neutral_serial_number_is_the_given_one_or_the_shown_one_or_a_drawn_one() {
        let serial = |shown, given| neutral_blocks(shown, given).unwrap()[0].text(ConfigField::Serial);
        assert_eq!(serial("LAB-07", Some("LAB-08")), "LAB-08");
        assert_eq!(serial("LAB-07", None), "LAB-07");
        for nobodys in ["000000000000", "", "AAAABBBB0012", "AABBCCDD0031", "longer than twenty characters", "Größe"]
        {
            let drawn = serial(nobodys, None);
            assert!(drawn.len() == 2 * SERIAL_BYTES && drawn != nobodys && !is_nobodys(&drawn), "{nobodys}: {drawn}");
        }
    }

    #[test]
    fn what_would_identify_no_unit_is_drawn_again() {
        let own = || [0x5C, 0x3E, 0x91, 0xA0, 0x7B, 0x24, 7, 7, 7, 7, 7];
        let random = |byte| [byte; SERIAL_BYTES + UNIQUE_ID_BYTES];
        assert_eq!(values_of(own()), Some(("5C3E91A07B24".to_owned(), [7; UNIQUE_ID_BYTES])));
        assert_eq!((values_of(random(0)), values_of(random(0xFF))), (None, None));
        let mut short = own();
        short[SERIAL_BYTES + 2] = 0xFF;
        assert_eq!(values_of(short), None);
        let mut template = own();
        template[..6].copy_from_slice(&[0xAA, 0xAA, 0xBB, 0xBB, 0x00, 0x04]);
        assert_eq!(values_of(template), None);
        let [one, other] = [(); 2].map(|()| neutral_blocks("", None).unwrap());
        assert!(one[0].text(ConfigField::Serial) != other[0].text(ConfigField::Serial));
        assert!(one[1].field(ConfigField::Usb4UniqueId) != other[1].field(ConfigField::Usb4UniqueId));
    }

    #[test]
    fn a_given_serial_number_that_does_not_fit_makes_no_blocks() {
        let error = neutral("123456789012345678901", [7; UNIQUE_ID_BYTES]).unwrap_err();
        assert_eq!(error.code(), "asm2464::config::text");
    }
}
