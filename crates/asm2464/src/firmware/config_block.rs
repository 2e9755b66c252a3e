//! The two 128-byte configuration blocks at the start of the SPI flash: identity, strings, link flags.

use std::fmt;

use derive_more::Display;

use super::identity::UsbId;
use crate::{Failure, Kind};

/// Bytes in a configuration block.
pub const CONFIG_BLOCK_LEN: usize = 128;
const MAGIC_AT: usize = 0x7E;
const CHECKSUM_AT: usize = 0x7F;
/// The checksum covers everything from here to the magic.
const SUMMED_FROM: usize = 0x04;
/// Range of the unit's USB4 identity in block 1, behind its two names. Source: tinygrad's patch.py.
pub const USB4_IDENTITY: std::ops::Range<usize> = 0x54..0x7E;

/// Returns the bytes of a block that the vendor's firmware stores as they were written. Before it programs a block, it
/// reads the flash's ID and status through the same buffer, so the bytes before the checksum's range may change.
/// Source: docs/lab/firmware.md, "What is assumed".
pub fn kept_bytes(block: &[u8; CONFIG_BLOCK_LEN]) -> &[u8] {
    &block[SUMMED_FROM..]
}

/// Selects one of the two blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockIndex {
    /// Identity, strings, link flags.
    Zero,
    /// The USB4 names and the unit's own USB4 identity.
    One,
}

impl BlockIndex {
    /// Both blocks, in order.
    pub const ALL: [Self; 2] = [Self::Zero, Self::One];

    /// Returns the block's number in E0 and E1.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns what belongs to this block, of what belongs to each.
    pub const fn of<T>(self, each: &[T; 2]) -> &T {
        let [zero, one] = each;
        match self {
            Self::Zero => zero,
            Self::One => one,
        }
    }

    /// Returns the block's magic, the byte at 0x7E.
    pub const fn magic(self) -> u8 {
        match self {
            Self::Zero => 0x5A,
            Self::One => 0xA5,
        }
    }
}

/// How a field's bytes are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum FieldKind {
    /// ASCII, padded with 0xFF.
    #[display("a text")]
    Text,
    /// An unsigned 16-bit number, little-endian.
    #[display("a number from 0 to 0xFFFF")]
    U16,
    /// Bytes without a known structure.
    #[display("bytes of its exact length")]
    Bytes,
}

macro_rules! config_fields {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $block:ident, $at:literal, $len:literal, $kind:ident;)*) => {
        /// A field of a configuration block. Source: of block 0, cyrozap's notes and the blocks that tinygrad's tool
        /// writes. Of block 1, the settings of the vendor's production tool (MPTool 1.0.4.1); [`ConfigField::is_guess`]
        /// marks those whose place is known by order and width alone.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ConfigField { $($(#[$doc])* $variant,)* }

        impl ConfigField {
            /// Every field, in the order of the blocks.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns its name in patch files and receipts.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the block that it is in.
            pub const fn block(self) -> BlockIndex {
                match self { $(Self::$variant => BlockIndex::$block,)* }
            }

            /// Returns its place in the block.
            pub const fn range(self) -> std::ops::Range<usize> {
                match self { $(Self::$variant => $at..$at + $len,)* }
            }

            /// Returns how its bytes are read.
            pub const fn kind(self) -> FieldKind {
                match self { $(Self::$variant => FieldKind::$kind,)* }
            }

            /// Returns the field with this name.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

config_fields! {
    /// The unit's serial number.
    Serial = "serial", Zero, 0x04, 20, Text;
    /// iManufacturer.
    Manufacturer = "manufacturer", Zero, 0x18, 36, Text;
    /// The vendor in standard INQUIRY data.
    T10Vendor = "t10-vendor", Zero, 0x3C, 8, Text;
    /// iProduct.
    Product = "product", Zero, 0x44, 32, Text;
    /// The product in standard INQUIRY data.
    T10Product = "t10-product", Zero, 0x64, 16, Text;
    /// idVendor.
    VendorId = "vendor-id", Zero, 0x74, 2, U16;
    /// idProduct.
    ProductId = "product-id", Zero, 0x76, 2, U16;
    /// bcdDevice.
    DeviceRelease = "device-release", Zero, 0x78, 2, U16;
    /// Link, PCIe and power flags. The meaning of the bits is not known.
    Flags = "flags", Zero, 0x7A, 4, Bytes;
    /// The vendor in the USB4 router's configuration.
    Usb4Vendor = "usb4-vendor", One, 0x04, 40, Text;
    /// The model in the USB4 router's configuration.
    Usb4Model = "usb4-model", One, 0x2C, 40, Text;
    /// The USB4 router's unique ID behind the vendor's, each unit's own: 240417 takes these bytes up to the first FF, and
    /// then the low half of byte 0x59 (b0:0x8E2B). The high half of that byte, and 0x5A, are settings (b0:0x8F8F).
    Usb4UniqueId = "usb4-unique-id", One, 0x54, 5, Bytes;
    /// The USB4 vendor ID.
    Usb4VendorId = "usb4-vendor-id", One, 0x5C, 2, U16;
    /// The USB4 product ID.
    Usb4ProductId = "usb4-product-id", One, 0x5E, 2, U16;
    /// The USB-IF's test ID: 0xC0000666 in the known block, least significant byte first.
    TestId = "test-id", One, 0x60, 4, Bytes;
    /// The revision of the product's firmware, in binary-coded decimal.
    ProductRevision = "product-revision", One, 0x64, 2, U16;
    /// The revision of the hardware.
    HardwareRevision = "hardware-revision", One, 0x66, 1, Bytes;
    /// Thunderbolt 3's vendor ID.
    Tb3VendorId = "tb3-vendor-id", One, 0x6C, 2, U16;
    /// Thunderbolt 3's model ID.
    Tb3ModelId = "tb3-model-id", One, 0x6E, 2, U16;
    /// Thunderbolt 3's revision.
    Tb3Revision = "tb3-revision", One, 0x70, 1, Bytes;
    /// Perhaps U4Mode.
    U4Mode = "u4-mode", One, 0x7C, 1, Bytes;
}

impl ConfigField {
    /// Returns the fields of one block, in its order.
    pub fn of(index: BlockIndex) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |field| field.block() == index)
    }

    /// Whether the field's place in block 1 is a guess. Only three agree to the byte between the production tool's
    /// settings and a known unit's block: the test ID, the hardware's and Thunderbolt 3's revision.
    pub const fn is_guess(self) -> bool {
        let agrees = matches!(self, Self::TestId | Self::HardwareRevision | Self::Tb3Revision);
        matches!(self.block(), BlockIndex::One) && !agrees && !matches!(self, Self::Usb4Vendor | Self::Usb4Model)
    }

    /// Whether a text fits into the field: printable ASCII, and not too long.
    pub fn accepts(self, text: &str) -> bool {
        text.len() <= self.range().len() && text.bytes().all(|byte| matches!(byte, 0x20..=0x7E))
    }
}

/// A configuration block with valid magic and checksum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConfigBlock {
    index: BlockIndex,
    bytes: [u8; CONFIG_BLOCK_LEN],
}

impl ConfigBlock {
    /// Checks length, magic and checksum.
    ///
    /// # Errors
    /// `asm2464::config::length`, `asm2464::config::magic`, `asm2464::config::checksum`.
    pub fn parse(index: BlockIndex, bytes: &[u8]) -> Result<Self, Failure> {
        let number = index.number();
        let Ok(bytes) = <[u8; CONFIG_BLOCK_LEN]>::try_from(bytes) else {
            let found = bytes.len();
            let message = format!("configuration block {number} has {found} bytes, expected {CONFIG_BLOCK_LEN}");
            return Err(Failure::new(Kind::BadInput.code("asm2464::config::length"), message));
        };
        if bytes[MAGIC_AT] != index.magic() {
            return Err(wrong_magic(index, bytes[MAGIC_AT]));
        }
        let (found, computed) = (bytes[CHECKSUM_AT], checksum(&bytes));
        if found != computed {
            let message = format!(
                "configuration block {number}: the checksum at 0x7f is {found:#04x}, bytes 0x04 to 0x7e sum to \
                 {computed:#04x}"
            );
            return Err(Failure::new(Kind::BadInput.code("asm2464::config::checksum"), message));
        }
        Ok(Self { index, bytes })
    }

    /// Returns which block this is.
    pub const fn index(&self) -> BlockIndex {
        self.index
    }

    /// Returns the block as it is in flash.
    pub const fn bytes(&self) -> &[u8; CONFIG_BLOCK_LEN] {
        &self.bytes
    }

    /// Returns a field's bytes. The field must be one of this block.
    pub fn field(&self, field: ConfigField) -> &[u8] {
        &self.bytes[field.range()]
    }

    /// Returns the ranges within the checksum that no field names. Nobody knows what they hold.
    pub fn unnamed(&self) -> Vec<std::ops::Range<usize>> {
        let mut ranges = Vec::new();
        let mut at = SUMMED_FROM;
        for field in ConfigField::of(self.index) {
            let range = field.range();
            if at < range.start {
                ranges.push(at..range.start);
            }
            at = range.end;
        }
        if at < MAGIC_AT {
            ranges.push(at..MAGIC_AT);
        }
        ranges
    }

    /// Returns a text field up to its first FF or 00. Other bytes outside printable ASCII show as U+FFFD.
    pub fn text(&self, field: ConfigField) -> String {
        let bytes = self.field(field);
        let end = bytes.iter().position(|byte| matches!(byte, 0xFF | 0x00)).unwrap_or(bytes.len());
        bytes[..end].iter().map(|byte| if matches!(byte, 0x20..=0x7E) { *byte as char } else { '\u{FFFD}' }).collect()
    }

    /// Returns the number in a 16-bit field.
    pub fn number(&self, field: ConfigField) -> u16 {
        let bytes = self.field(field);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// Returns the identity that the unit enumerates with (block 0).
    pub fn usb_id(&self) -> UsbId {
        UsbId { vendor: self.number(ConfigField::VendorId), product: self.number(ConfigField::ProductId) }
    }

    /// Writes a text field, padded with 0xFF, and recomputes the checksum.
    ///
    /// # Errors
    /// `asm2464::config::text` if the text does not fit, `asm2464::config::kind` if the field is not a text.
    pub fn set_text(&mut self, field: ConfigField, text: &str) -> Result<(), Failure> {
        if field.kind() == FieldKind::Text && !field.accepts(text) {
            let (name, most) = (field.name(), field.range().len());
            let message =
                format!("{text:?} does not fit the field `{name}`, which takes at most {most} ASCII characters");
            return Err(Failure::new(Kind::BadInput.code("asm2464::config::text"), message));
        }
        let mut padded = text.as_bytes().to_vec();
        padded.resize(field.range().len(), 0xFF);
        self.set(field, FieldKind::Text, &padded)
    }

    /// Writes a 16-bit field and recomputes the checksum.
    ///
    /// # Errors
    /// `asm2464::config::kind` if the field is not a number.
    pub fn set_number(&mut self, field: ConfigField, value: u16) -> Result<(), Failure> {
        self.set(field, FieldKind::U16, &value.to_le_bytes())
    }

    /// Writes all bytes of a field whose structure is not known, and recomputes the checksum.
    ///
    /// # Errors
    /// `asm2464::config::kind` if the field is a text or a number, or has another length.
    pub fn set_bytes(&mut self, field: ConfigField, bytes: &[u8]) -> Result<(), Failure> {
        self.set(field, FieldKind::Bytes, bytes)
    }

    fn set(&mut self, field: ConfigField, kind: FieldKind, bytes: &[u8]) -> Result<(), Failure> {
        if field.block() != self.index {
            return Err(wrong_magic(field.block(), self.index.magic()));
        }
        if field.kind() != kind || bytes.len() != field.range().len() {
            let message = format!("the field `{}` takes {}", field.name(), field.kind());
            return Err(Failure::new(Kind::BadInput.code("asm2464::config::kind"), message));
        }
        self.bytes[field.range()].copy_from_slice(bytes);
        self.bytes[CHECKSUM_AT] = checksum(&self.bytes);
        Ok(())
    }

    /// Gives block 0 the chip maker's IDs and names, in place of those that a patched identity has changed. Serial
    /// number, release and flags stay. An enclosure maker's own values are only in a backup.
    ///
    /// # Errors
    /// None: every value fits its field, as a test checks.
    pub fn set_stock_identity(&mut self) -> Result<(), Failure> {
        self.set_text(ConfigField::Manufacturer, "ASMedia")?;
        self.set_text(ConfigField::T10Vendor, "ASMedia")?;
        self.set_text(ConfigField::Product, "ASM246X USB4 NVMe")?;
        self.set_text(ConfigField::T10Product, "ASM246X")?;
        self.set_number(ConfigField::VendorId, UsbId::STOCK.vendor)?;
        self.set_number(ConfigField::ProductId, UsbId::STOCK.product)
    }
}

impl fmt::Debug for ConfigBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigBlock {} {}", self.index.number(), self.usb_id())
    }
}

fn wrong_magic(index: BlockIndex, found: u8) -> Failure {
    let (number, expected) = (index.number(), index.magic());
    let message = format!("configuration block {number}: the magic at 0x7e is {found:#04x}, expected {expected:#04x}");
    Failure::new(Kind::BadInput.code("asm2464::config::magic"), message)
}

fn checksum(bytes: &[u8; CONFIG_BLOCK_LEN]) -> u8 {
    bytes[SUMMED_FROM..=MAGIC_AT].iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// The two blocks that tinygrad's tool writes to every unit.
///
/// They give every unit the same serial number and one maker's USB4 identity, so use them only if a unit has no
/// readable blocks of its own. Source: tinygrad's patch.py.
pub fn known_blocks() -> [ConfigBlock; 2] {
    [(BlockIndex::Zero, KNOWN_BLOCK_0), (BlockIndex::One, KNOWN_BLOCK_1)]
        .map(|(index, bytes)| ConfigBlock { index, bytes })
}

#[rustfmt::skip]
const KNOWN_BLOCK_0: [u8; CONFIG_BLOCK_LEN] = [
    0xff, 0xff, 0xff, 0xff, 0x41, 0x41, 0x41, 0x41, 0x42, 0x42, 0x42, 0x42, 0x30, 0x30, 0x36, 0x30,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x74, 0x69, 0x6e, 0x79, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x74, 0x69, 0x6e, 0x79,
    0xff, 0xff, 0xff, 0xff, 0x55, 0x53, 0x42, 0x20, 0x33, 0x2e, 0x32, 0x20, 0x50, 0x43, 0x49, 0x65,
    0x20, 0x54, 0x69, 0x6e, 0x79, 0x45, 0x6e, 0x63, 0x6c, 0x6f, 0x73, 0x75, 0x72, 0x65, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0x54, 0x69, 0x6e, 0x79, 0x45, 0x6e, 0x63, 0x6c, 0x6f, 0x73, 0x75, 0x72,
    0x65, 0xff, 0xff, 0xff, 0xd1, 0xad, 0x01, 0x00, 0x00, 0x01, 0xcf, 0xff, 0x02, 0xff, 0x5a, 0x94,
];
#[rustfmt::skip]
const KNOWN_BLOCK_1: [u8; CONFIG_BLOCK_LEN] = [
    0xff, 0xff, 0xff, 0xff, 0x47, 0x6f, 0x70, 0x6f, 0x64, 0x20, 0x47, 0x72, 0x6f, 0x75, 0x70, 0x20,
    0x4c, 0x69, 0x6d, 0x69, 0x74, 0x65, 0x64, 0x2e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x55, 0x53, 0x42, 0x34,
    0x20, 0x4e, 0x56, 0x4d, 0x65, 0x20, 0x53, 0x53, 0x44, 0x20, 0x50, 0x72, 0x6f, 0x20, 0x45, 0x6e,
    0x63, 0x6c, 0x6f, 0x73, 0x75, 0x72, 0x65, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0x8c, 0xbf, 0xff, 0x97, 0xc1, 0xf3, 0xff, 0xff, 0x01, 0x2d, 0x66, 0xd6,
    0x66, 0x06, 0x00, 0xc0, 0x87, 0x01, 0x5a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xca, 0x01, 0x66, 0xd6,
    0xe3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0xa5, 0x67,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Coded as _;

    #[test]
    fn the_known_blocks_are_valid_and_show_their_identity() {
        let [zero, one] = known_blocks();
        assert_eq!(ConfigBlock::parse(BlockIndex::Zero, zero.bytes()).unwrap(), zero);
        assert_eq!(ConfigBlock::parse(BlockIndex::One, one.bytes()).unwrap(), one);
        assert_eq!(zero.usb_id(), UsbId::PATCHED);
        assert_eq!(zero.text(ConfigField::Serial), "AAAABBBB0060");
        assert_eq!(zero.text(ConfigField::Product), "USB 3.2 PCIe TinyEnclosure");
        assert_eq!(zero.text(ConfigField::T10Vendor), "tiny");
    }

    #[test]
    fn the_fields_of_block_1_read_as_the_production_tools_settings_for_the_known_block() {
        let [_, one] = known_blocks();
        assert_eq!(one.text(ConfigField::Usb4Vendor), "Gopod Group Limited.");
        assert_eq!(one.text(ConfigField::Usb4Model), "USB4 NVMe SSD Pro Enclosure");
        // The three settings that agree to the byte: TestID, the hardware's revision, Thunderbolt 3's revision.
        assert_eq!(one.field(ConfigField::TestId), 0xC000_0666_u32.to_le_bytes());
        assert_eq!(one.field(ConfigField::HardwareRevision), [0x5A]);
        assert_eq!(one.field(ConfigField::Tb3Revision), [0xE3]);
        assert_eq!(one.number(ConfigField::Usb4ProductId), one.number(ConfigField::Tb3ModelId));
        let identity = ConfigField::of(BlockIndex::One).filter(|field| field.kind() != FieldKind::Text);
        assert!(identity.into_iter().all(|field| USB4_IDENTITY.contains(&field.range().start)));
    }

    #[test]
    fn fields_don_t_overlap_and_what_they_leave_is_unnamed() {
        for block in known_blocks() {
            let mut ranges: Vec<_> = ConfigField::of(block.index()).map(ConfigField::range).collect();
            ranges.extend(block.unnamed());
            ranges.sort_by_key(|range| range.start);
            let joined: Vec<usize> = ranges.into_iter().flatten().collect();
            assert_eq!(joined, (SUMMED_FROM..MAGIC_AT).collect::<Vec<_>>(), "block {}", block.index().number());
        }
    }

    #[test]
    fn a_field_of_the_other_block_is_refused() {
        let [mut zero, mut one] = known_blocks();
        assert_eq!(zero.set_text(ConfigField::Usb4Model, "x").unwrap_err().code(), "asm2464::config::magic");
        assert_eq!(one.set_number(ConfigField::VendorId, 1).unwrap_err().code(), "asm2464::config::magic");
    }

    #[test]
    fn an_edited_block_keeps_every_other_byte_and_a_good_checksum() {
        let [mut block, _] = known_blocks();
        let before = block;
        block.set_number(ConfigField::VendorId, 0x174C).unwrap();
        block.set_text(ConfigField::Product, "dock").unwrap();
        assert_eq!(ConfigBlock::parse(BlockIndex::Zero, block.bytes()).unwrap(), block);
        let touched = [ConfigField::VendorId.range(), ConfigField::Product.range(), CHECKSUM_AT..CHECKSUM_AT + 1];
        for at in (0..CONFIG_BLOCK_LEN).filter(|at| !touched.iter().any(|range| range.contains(at))) {
            assert_eq!(block.bytes()[at], before.bytes()[at], "byte {at:#x}");
        }
    }

    #[test]
    fn the_stock_identity_keeps_the_serial_number_the_release_and_the_flags() {
        let [mut block, _] = known_blocks();
        let before = block;
        block.set_stock_identity().unwrap();
        assert_eq!(block.usb_id(), UsbId::STOCK);
        for field in [ConfigField::Serial, ConfigField::DeviceRelease, ConfigField::Flags] {
            assert_eq!(block.field(field), before.field(field));
        }
    }

    #[test]
    fn a_text_that_is_too_long_or_not_ascii_is_refused() {
        let [mut block, _] = known_blocks();
        assert_eq!(block.set_text(ConfigField::T10Vendor, "ninechars").unwrap_err().code(), "asm2464::config::text");
        assert_eq!(block.set_text(ConfigField::Product, "Größe").unwrap_err().code(), "asm2464::config::text");
        assert_eq!(block.set_text(ConfigField::VendorId, "x").unwrap_err().code(), "asm2464::config::kind");
        assert_eq!(block.set_number(ConfigField::Serial, 1).unwrap_err().code(), "asm2464::config::kind");
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics(bytes: Vec<u8>) {
            for index in BlockIndex::ALL {
                let _ = ConfigBlock::parse(index, &bytes);
            }
        }
    }
}
