//! Contents of a backup: both configuration blocks, both parts of the flash as E2 reads them, and their unit.
//!
//! [`read`] takes it from a unit, [`super::backup_folder`] puts it into files.

use std::fmt;
use std::path::Path;

use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, ConfigField, Image, Part, kept_bytes};
use asm2464::flash::{BlockBytes, SLOT_LEN, image_file};
use asm2464::interrupt::Interrupt;
use asm2464::{Failure, Kind};
use asm2464_files::toml_file;
use asm2464_host::bridge::{Location, UnitInfo};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::access::{Access, FlashReader, is_readable};
use super::error::FlashError;
use super::identity::{UnitIdentity, is_nobodys};
use super::progress::{FlashEvent, FlashProgress};
use crate::file_kind::flash_copy::FlashCopy;

/// How the name of a backup's folder begins.
pub(super) const NAME_BEGINS: &str = "asmpatch-backup-";
/// Maximum number of characters of a serial number or a port in a folder's name.
const NAME_MAX: usize = 64;

/// Backup of the first slot of a unit's flash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The unit of the backup.
    pub unit: BackedUpUnit,
    /// The tool that made the backup, with its version.
    pub tool: String,
    /// Configuration blocks 0 and 1 as E0 reads them, valid or not.
    pub blocks: [BlockBytes; 2],
    /// Parts one and two as E2 reads them: [`Part::max_len`] bytes each, including the bytes behind the image.
    pub parts: [Vec<u8>; 2],
}

/// The unit that a backup was taken from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BackedUpUnit {
    /// The unit's [`Location`], as text.
    pub device: String,
    /// VID:PID.
    pub usb_id: String,
    /// The unit's state.
    pub state: String,
    /// Its serial number.
    pub serial: String,
    /// Its product string.
    pub product: String,
    /// The version that the unit reported, if it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware_version: Option<String>,
}

impl BackedUpUnit {
    /// Formats the keys for a table of [`toml`]. Written by hand, because no serialiser escapes a unit's own strings as
    /// needed.
    pub(super) fn fmt_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, usb_id, state, serial, product, firmware_version } = self;
        let strings =
            [("device", device), ("usb-id", usb_id), ("state", state), ("serial", serial), ("product", product)];
        let version = firmware_version.iter().map(|version| ("firmware-version", version));
        for (key, value) in strings.into_iter().chain(version) {
            writeln!(f, "{key} = {}", toml_file::string(value))?;
        }
        Ok(())
    }

    /// Whether the backup is a virtual unit's.
    pub fn is_virtual(&self) -> bool {
        self.device.parse().is_ok_and(|location: Location| location.is_virtual())
    }
}

impl Backup {
    /// Makes a backup of a copy of a flash, of a unit that is known only by its configuration; `None` without a valid
    /// block 0. Without an image, as in a configuration page, its parts are erased.
    pub fn of_copy(copy: &FlashCopy) -> Option<Self> {
        let zero = copy.block(BlockIndex::Zero)?;
        let image = copy.image().ok();
        let version = image.as_ref().map(Image::version).filter(|version| version.has_date());
        let unit = BackedUpUnit {
            device: "a copy of a flash".to_owned(),
            usb_id: zero.usb_id().to_string(),
            state: copy.extent().to_string(),
            serial: zero.text(ConfigField::Serial),
            product: zero.text(ConfigField::Product),
            firmware_version: version.map(|version| version.to_string()),
        };
        let (slot, tool) = (copy.slot(), "another tool".to_owned());
        Some(Self { unit, tool, blocks: slot.blocks(), parts: slot.parts().map(<[u8]>::to_vec) })
    }

    /// Parses a configuration block.
    ///
    /// # Errors
    /// As [`ConfigBlock::parse`]: an erased flash has no block.
    pub fn block(&self, index: BlockIndex) -> Result<ConfigBlock, Failure> {
        ConfigBlock::parse(index, index.of(&self.blocks).as_slice())
    }

    /// Parses the firmware: as many bytes of the two parts as the container's length field says.
    ///
    /// # Errors
    /// As [`Image::parse`]. The chip would not start such an image either.
    pub fn firmware(&self) -> Result<Image, Failure> {
        Image::parse(&image_file(&self.parts))
    }

    /// What a unit that gets all of it would not have then: firmware, or a USB4 identity of its own. A backup of a unit
    /// is what the unit had; a copy of a flash may be of any.
    pub fn lacks(&self) -> Option<&'static str> {
        if self.parts[0].iter().all(|byte| *byte == 0xFF) {
            Some("firmware")
        } else if self.block(BlockIndex::One).is_err() {
            Some("valid configuration block 1")
        } else {
            None
        }
    }

    /// The first slot, as it is in the flash.
    pub fn slot(&self) -> Vec<u8> {
        let [one, two] = &self.parts;
        [self.blocks.as_flattened(), one, two].concat()
    }

    /// SHA-256 over everything that was read. Two backups of the same content have the same digest.
    pub fn content_digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let blocks = self.blocks.iter().map(|block| block.as_slice());
        for bytes in blocks.chain(self.parts.iter().map(Vec::as_slice)) {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        }
        digest.finalize().into()
    }

    /// Folder name with the unit and the content: `asmpatch-backup-<serial>-<first 8 digits of the digest>`.
    ///
    /// Open firmware shows the same serial number on many units, and not the one in block 0. Its backups are named
    /// after block 0's and the port: `asmpatch-backup-<serial>-at-<port>-<digits>`. The port is also in the name if the
    /// unit shows only zeros.
    pub fn folder_name(&self) -> String {
        let is_open = self.unit.state == BridgeState::OpenFirmware.to_string();
        let shown = &self.unit.serial;
        let own = if is_open { UnitIdentity::of(self.blocks.each_ref().map(Some)).own().serial } else { None };
        let serial = match own {
            Some(own) => in_name(own),
            None if shown.is_empty() || (is_open && is_nobodys(shown)) => "no-serial".to_owned(),
            None => in_name(shown),
        };
        let place = if is_open || is_nobodys(shown) { self.place() } else { String::new() };
        let [a, b, c, d, ..] = self.content_digest();
        format!("{NAME_BEGINS}{serial}{place}-{a:02x}{b:02x}{c:02x}{d:02x}")
    }

    /// Formats the unit's port for the name; for a virtual unit the last part of its path.
    fn place(&self) -> String {
        let device = &self.unit.device;
        let last = Path::new(device.strip_prefix("virtual:").unwrap_or(device)).file_name();
        last.map_or_else(String::new, |name| format!("-at-{}", in_name(name.to_string_lossy())))
    }
}

/// Shortens a text to [`NAME_MAX`] characters and replaces those that a file system may not accept.
pub(super) fn in_name(text: impl AsRef<str>) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    text.as_ref().chars().take(NAME_MAX).map(safe).collect()
}

/// Maximum number of readings of a block until two in a row agree.
pub(super) const BLOCK_READINGS: u32 = 4;

/// Number of bytes that [`read`] moves.
pub const BACKUP_BYTES: u64 = SLOT_LEN as u64;

/// Reads a backup of the unit into memory.
///
/// # Errors
/// [`FlashError`]: [`FlashError::NoBlock`] if a block can't be read.
pub fn read(
    access: &mut Access,
    attached: &UnitInfo,
    observer: &mut FlashProgress<'_>,
    interrupt: Interrupt<'_>,
) -> Result<Backup, FlashError> {
    if !is_readable(attached.state) {
        let why = format!("the {} only takes the commands that write", attached.state);
        return Err(FlashError::NoBlock { index: BlockIndex::Zero, why });
    }
    let mut block = |index| {
        interrupt.check()?;
        let bytes = reread_block(access.reader(), index)?;
        observer.event(FlashEvent::Moved(bytes.len() as u64));
        Ok::<_, FlashError>(bytes)
    };
    let blocks = [block(BlockIndex::Zero)?, block(BlockIndex::One)?];
    let mut part = |part: Part| {
        interrupt.check()?;
        let bytes = access.reader().part(part, part.max_len())?;
        observer.event(FlashEvent::Moved(bytes.len() as u64));
        Ok::<_, FlashError>(bytes)
    };
    let parts = [part(Part::One)?, part(Part::Two)?];
    Ok(Backup {
        unit: BackedUpUnit {
            device: attached.location.to_string(),
            usb_id: attached.id.to_string(),
            state: attached.state.to_string(),
            serial: attached.serial().to_owned(),
            product: attached.product.clone(),
            // A version that can't be read must not prevent a backup.
            firmware_version: access.version().map(|version| version.to_string()),
        },
        tool: concat!("asmpatch ", env!("CARGO_PKG_VERSION")).to_owned(),
        blocks,
        parts,
    })
}

/// The failure of a block that reads differently each time.
pub(super) fn unreliable_block(index: BlockIndex) -> Failure {
    let label = Kind::Device.code("asmpatch::backup::unsteady_block");
    Failure::new(label, format!("configuration block {} reads differently each time", index.number()))
}

/// The failure of a part that reads differently each time.
pub(super) fn unreliable_part(part: Part) -> Failure {
    let label = Kind::Device.code("asmpatch::backup::unsteady_part");
    Failure::new(label, format!("firmware part {} reads differently each time", part.number()))
}

/// Reads the parts again. Returns the first that is not as in `parts`.
pub(super) fn differing_part(reader: &mut dyn FlashReader, parts: &[Vec<u8>; 2]) -> Result<Option<Part>, FlashError> {
    for (part, bytes) in Part::ALL.into_iter().zip(parts) {
        if reader.part(part, bytes.len())? != *bytes {
            return Ok(Some(part));
        }
    }
    Ok(None)
}

/// Reads a block until two readings in a row agree. A misread byte in the backup could lose the unit's identity, and no
/// checksum finds it: the block in the flash may be invalid, too.
fn reread_block(reader: &mut dyn FlashReader, index: BlockIndex) -> Result<BlockBytes, FlashError> {
    let mut last = reader.block(index)?;
    for _ in 1..BLOCK_READINGS {
        let next = reader.block(index)?;
        if kept_bytes(&next) == kept_bytes(&last) {
            return Ok(next);
        }
        last = next;
    }
    Err(unreliable_block(index).into())
}

#[cfg(test)]
pub(crate) mod tests {
    use asm2464::Coded as _;
    use asm2464::firmware::known_blocks;
    use asm2464::flash::{FIRST_SLOT, Slot};

    use super::super::decide::samples::{block_one, block_zero};
    use super::*;

    /// Reads a block with these bytes at 0x10, one for each reading.
    struct Readings<'a>(&'a [u8]);

    impl FlashReader for Readings<'_> {
        fn block(&mut self, _: BlockIndex) -> Result<BlockBytes, FlashError> {
            let (byte, rest) = self.0.split_first().expect("a reading is left");
            self.0 = rest;
            let mut block = block_zero("A");
            block[0x10] = *byte;
            Ok(block)
        }

        fn part(&mut self, _: Part, _: usize) -> Result<Vec<u8>, FlashError> {
            unreachable!("only blocks are read")
        }
    }

    #[test]
    fn a_backup_of_a_virtual_unit_is_known_by_its_place() {
        let at = |place: &str| BackedUpUnit { device: place.to_owned(), ..sample_backup().unit };
        assert!(at("virtual:m1").is_virtual());
        assert!(!at("1-2").is_virtual() && !at("").is_virtual());
    }

    #[test]
    fn a_block_that_was_misread_once_is_read_until_two_readings_agree() {
        for (readings, expected) in
            [(&[1, 1][..], Some(1)), (&[9, 1, 1], Some(1)), (&[9, 1, 8, 8], Some(8)), (&[1, 2, 1, 2], None)]
        {
            let mut reader = Readings(readings);
            let found = reread_block(&mut reader, BlockIndex::Zero);
            match expected {
                Some(expected) => assert_eq!(found.unwrap()[0x10], expected, "{readings:?}"),
                None => {
                    let error = found.unwrap_err();
                    assert_eq!(error.code(), "asmpatch::backup::unsteady_block");
                }
            }
            assert!(reader.0.is_empty(), "{readings:?}");
        }
    }

    /// Builds an image of the vendor's shape: longer than one part.
    pub(crate) fn sample_image(seed: u8) -> Image {
        Image::from_body((0..0x1_7ED6u32).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ seed).collect()).unwrap()
    }

    pub(crate) fn sample_backup() -> Backup {
        let [zero, one] = known_blocks();
        let slot = Slot::of([zero.bytes(), one.bytes()], &sample_image(0).to_file());
        Backup {
            unit: BackedUpUnit {
                device: "1-2".into(),
                usb_id: "174C:2464".into(),
                state: "stock".into(),
                serial: "S/N 7".into(),
                product: "dock".into(),
                firmware_version: None,
            },
            tool: "asmpatch 0.0.0".into(),
            blocks: slot.blocks(),
            parts: slot.parts().map(<[u8]>::to_vec),
        }
    }

    #[test]
    fn the_true_length_of_the_firmware_comes_from_its_header() {
        let backup = sample_backup();
        let image = backup.firmware().unwrap();
        assert_eq!(image, sample_image(0));
        assert_eq!(image_file(&backup.parts).len(), 98_016);
    }

    #[test]
    fn an_erased_flash_is_no_firmware_and_no_configuration() {
        let mut backup = sample_backup();
        let erased = Slot::at(FIRST_SLOT, &[]);
        (backup.blocks, backup.parts) = (erased.blocks(), erased.parts().map(<[u8]>::to_vec));
        assert_eq!(backup.firmware().unwrap_err().code(), "asm2464::image::length");
        assert_eq!(backup.block(BlockIndex::One).unwrap_err().code(), "asm2464::config::magic");
    }

    #[test]
    fn the_folder_name_has_nothing_in_it_that_a_file_system_minds_and_follows_the_content() {
        let backup = sample_backup();
        let name = backup.folder_name();
        assert!(name.starts_with("asmpatch-backup-S_N_7-"), "{name}");
        let mut other = backup.clone();
        other.parts[1][5] ^= 1;
        assert_ne!(other.folder_name(), name);
        other = backup.clone();
        other.unit.device = "3-1".into();
        assert_eq!(other.folder_name(), name);
    }

    #[test]
    fn two_docks_with_open_firmware_and_the_same_content_have_backups_of_their_own() {
        let open = |device: &str, serial: &str, blocks: [BlockBytes; 2]| {
            let mut backup = sample_backup();
            backup.unit.state = BridgeState::OpenFirmware.to_string();
            (backup.unit.device, backup.unit.serial, backup.blocks) = (device.into(), serial.into(), blocks);
            backup.folder_name()
        };
        let known = known_blocks().map(|block| *block.bytes());
        let one = open("3-1.2", "000000000000", known);
        assert!(one.starts_with("asmpatch-backup-no-serial-at-3-1.2-"), "{one}");
        assert_ne!(one, open("3-1.3", "000000000000", known));
        assert_eq!(one, open("3-1.2", "000000000000", known));
        // The name has the chip's number, unless the configuration has the unit's own.
        let chips = open("3-1.2", "C0FFEE", known);
        assert!(chips.starts_with("asmpatch-backup-C0FFEE-at-3-1.2-"), "{chips}");
        let own = open("3-1.2", "C0FFEE", [block_zero("DOCK7"), block_one(1)]);
        assert!(own.starts_with("asmpatch-backup-DOCK7-at-3-1.2-"), "{own}");
        let hostile = open("virtual:/tmp/a b/../\u{1b}[2J", &"x".repeat(300), known);
        assert!(hostile.len() < 200 && hostile.is_ascii() && !hostile.contains(['/', ' ', '\u{1b}']), "{hostile}");
        assert!(open("virtual:..", "1", known).starts_with("asmpatch-backup-1-"));
    }

    proptest::proptest! {
        #[test]
        fn any_two_parts_give_an_image_or_an_error(one: Vec<u8>, two: Vec<u8>) {
            let mut backup = sample_backup();
            backup.parts = [one, two];
            let _ = backup.firmware();
        }
    }
}
