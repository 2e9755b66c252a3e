//! The neutral identity: what a stock image gets on a board without any configuration. The known blocks are no choice
//! there, because they make the board a "TinyEnclosure" with another maker's USB4 names and its USB4 identity.

use asm2464::firmware::{ConfigBlock, ConfigBlockError, ConfigField, UsbId, known_blocks};
use asm2464::{Failure, Kind};

use super::identity::{is_nobodys, is_template};

/// Bytes of a serial number, written as twice as many digits, and of a USB4 unique ID.
const SERIAL_BYTES: usize = 6;
const UNIQUE_ID_BYTES: usize = 5;

/// A board's own values in the neutral identity. Everything else is the chip maker's, the same on every board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeutralIdentity {
    serial: String,
    unique_id: [u8; UNIQUE_ID_BYTES],
}

impl NeutralIdentity {
    /// Makes the identity for a unit. Its serial number is the one that the user gives; else the one that the unit
    /// shows, which an interrupted run may have written (empty if that is not block 0's); else one that is drawn at random.
    /// The USB4 unique ID is always drawn.
    ///
    /// # Errors
    /// Fails if the system gives no random bytes.
    pub fn draw(shown: &str, given: Option<&str>) -> Result<Self, Failure> {
        loop {
            let mut random = [0; SERIAL_BYTES + UNIQUE_ID_BYTES];
            getrandom::fill(&mut random).map_err(|error| {
                let label = Kind::System.code("asmpatch::flash::random");
                Failure::new(label, "the system gives no random bytes for a serial number").because(error)
            })?;
            if let Some(identity) = Self::of(shown, given, random) {
                return Ok(identity);
            }
        }
    }

    /// As [`NeutralIdentity::draw`], from these random bytes; `None` if they make a value that identifies no unit.
    fn of(shown: &str, given: Option<&str>, random: [u8; SERIAL_BYTES + UNIQUE_ID_BYTES]) -> Option<Self> {
        let (digits, unique_id) = random.split_at(SERIAL_BYTES);
        let drawn: String = digits.iter().map(|byte| format!("{byte:02X}")).collect();
        let unique_id = <[u8; UNIQUE_ID_BYTES]>::try_from(unique_id).ok()?;
        // FF ends the ID.
        let is_short = unique_id.contains(&0xFF) || unique_id == [0; UNIQUE_ID_BYTES];
        if is_nobodys(&drawn) || is_template(&drawn) || is_short {
            return None;
        }
        let is_units = !is_nobodys(shown) && !is_template(shown) && ConfigField::Serial.accepts(shown);
        let shown = Some(shown).filter(|_| is_units);
        Some(Self { serial: given.or(shown).map_or(drawn, str::to_owned), unique_id })
    }

    /// Returns both blocks. Their values are those of the vendor's production tool (MPTool 1.0.4.1); what it doesn't
    /// name, and U4Mode, whose place is a guess, is as in the known blocks, with which owners' units run.
    ///
    /// # Errors
    /// If the serial number does not fit its field.
    pub fn blocks(&self) -> Result<[ConfigBlock; 2], ConfigBlockError> {
        let [mut zero, mut one] = known_blocks();
        zero.set_text(ConfigField::Serial, &self.serial)?;
        zero.set_text(ConfigField::Manufacturer, "ASMedia")?;
        zero.set_text(ConfigField::T10Vendor, "ASMT")?;
        zero.set_text(ConfigField::Product, "ASM246X series")?;
        zero.set_text(ConfigField::T10Product, "ASM246X")?;
        zero.set_number(ConfigField::VendorId, UsbId::BOOT_LOADER.vendor)?;
        zero.set_number(ConfigField::ProductId, UsbId::BOOT_LOADER.product)?;
        zero.set_number(ConfigField::DeviceRelease, 0x0100)?;
        one.set_text(ConfigField::Usb4Vendor, "ASMedia")?;
        one.set_text(ConfigField::Usb4Model, "246x")?;
        one.set_bytes(ConfigField::Usb4UniqueId, &self.unique_id)?;
        one.set_number(ConfigField::Usb4VendorId, UsbId::BOOT_LOADER.vendor)?;
        one.set_number(ConfigField::Usb4ProductId, UsbId::BOOT_LOADER.product)?;
        one.set_number(ConfigField::ProductRevision, 0x3B02)?;
        one.set_number(ConfigField::Tb3VendorId, 0x00B8)?;
        one.set_number(ConfigField::Tb3ModelId, 0x2463)?;
        Ok([zero, one])
    }
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::BlockIndex;

    use super::*;
    use crate::flash::identity::UnitIdentity;

    fn random(byte: u8) -> [u8; SERIAL_BYTES + UNIQUE_ID_BYTES] {
        [byte; SERIAL_BYTES + UNIQUE_ID_BYTES]
    }

    #[test]
    fn both_blocks_are_valid_and_have_nothing_of_another_maker() {
        let identity = NeutralIdentity::of("000000000000", None, random(0x5C)).unwrap();
        let [zero, one] = identity.blocks().unwrap();
        assert_eq!(ConfigBlock::parse(BlockIndex::Zero, zero.bytes()), Ok(zero));
        assert_eq!(ConfigBlock::parse(BlockIndex::One, one.bytes()), Ok(one));
        assert_eq!(zero.usb_id().to_string(), "174C:2463");
        assert_eq!(zero.text(ConfigField::Serial), "5C5C5C5C5C5C");
        assert_eq!(zero.text(ConfigField::Product), "ASM246X series");
        assert_eq!(one.text(ConfigField::Usb4Vendor), "ASMedia");
        assert_eq!(one.field(ConfigField::Usb4UniqueId), [0x5C; UNIQUE_ID_BYTES]);
        let known = known_blocks();
        // Settings of the link, which no identity changes.
        assert_eq!(one.bytes()[0x59..0x5C], known[1].bytes()[0x59..0x5C]);
        let kept = [ConfigField::Flags, ConfigField::DeviceRelease, ConfigField::U4Mode];
        let common = [ConfigField::TestId, ConfigField::HardwareRevision, ConfigField::Tb3Revision];
        for field in ConfigField::ALL {
            let block = usize::from(field.block().number());
            let is_same = [zero, one][block].field(*field) == known[block].field(*field);
            assert_eq!(is_same, kept.contains(field) || common.contains(field), "{}", field.name());
        }
        let unit = UnitIdentity::of([Some(zero.bytes()), Some(one.bytes())]);
        assert!(!unit.shares_usb4_with(&UnitIdentity::of([None, Some(known[1].bytes())])));
    }

    #[test]
    fn the_serial_number_is_the_given_one_or_the_shown_one_or_a_drawn_one() {
        let serial = |shown: &str, given| NeutralIdentity::of(shown, given, random(7)).unwrap().serial;
        assert_eq!(serial("LAB-07", Some("LAB-08")), "LAB-08");
        assert_eq!(serial("LAB-07", None), "LAB-07");
        for nobodys in ["000000000000", "", "AAAABBBB0012", "longer than twenty characters", "Größe"] {
            assert_eq!(serial(nobodys, None), "070707070707", "{nobodys}");
        }
    }

    #[test]
    fn what_would_identify_no_unit_is_drawn_again() {
        let of = |random| NeutralIdentity::of("", None, random);
        assert_eq!((of(random(0)), of(random(0xFF))), (None, None));
        let mut short = random(7);
        short[SERIAL_BYTES + 2] = 0xFF;
        assert_eq!(of(short), None);
        let mut template = random(7);
        template[..6].copy_from_slice(&[0xAA, 0xAA, 0xBB, 0xBB, 0x00, 0x04]);
        assert_eq!(of(template), None);
        let [one, other] = [(); 2].map(|()| NeutralIdentity::draw("", None).unwrap());
        assert!(one.serial != other.serial && one.unique_id != other.unique_id);
    }

    #[test]
    fn a_given_serial_number_that_does_not_fit_makes_no_blocks() {
        let identity = NeutralIdentity::of("", Some("123456789012345678901"), random(7)).unwrap();
        assert!(matches!(identity.blocks(), Err(ConfigBlockError::Text { .. })));
    }
}
