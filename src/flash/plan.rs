//! The plan of a write: everything that will be written to a unit, computed in advance. Pure.

use asm2464::Failure;
use asm2464::digest::to_hex;
use asm2464::firmware::{
    BlockIndex, BridgeState, ConfigBlock, ConfigField, FieldKind, FirmwareVersion, Part, UsbId, kept_bytes,
    known_blocks,
};
use asm2464::flash::BlockBytes;
use asm2464_host::bridge::UnitInfo;
use derive_more::Display;

use super::access::{UnitBlocks, is_readable};
use super::backup::Backup;
use super::identity::{UnitIdentity, is_nobodys};
use crate::image::{OpenImage, Proof};
use crate::unit::facts::differing;

/// Source of a planned configuration block, before the edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BlockSource {
    /// The unit.
    #[display("the unit's own")]
    Unit,
    /// A backup.
    #[display("from the backup")]
    Backup,
    /// The known blocks that suit any unit, because neither the unit nor a backup has a valid one.
    #[display("the known block that serves any unit")]
    Known,
    /// The neutral identity, in place of the known blocks.
    #[display("neutral, the chip maker's")]
    Neutral,
}

impl BlockSource {
    /// Whether the block stands in for one of the unit's own, which nobody has.
    pub const fn stands_in(self) -> bool {
        matches!(self, Self::Known | Self::Neutral)
    }
}

/// A change of a field's value, in words.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FieldChange {
    /// The field's name, as in patch files.
    pub field: &'static str,
    /// Its value before.
    pub from: String,
    /// Its value after.
    pub to: String,
}

/// One configuration block of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPlan {
    /// The block's index.
    pub index: BlockIndex,
    /// The unit's current block, if it can be read.
    pub current: Option<BlockBytes>,
    /// The new block.
    pub new: BlockBytes,
    /// Source of `new`.
    pub source: BlockSource,
    /// The fields that the edits change.
    pub changes: Vec<FieldChange>,
}

impl BlockPlan {
    /// Whether the block changes in a byte that a unit keeps. Vendor commands write both blocks in any case, because E1
    /// of block 0 erases them.
    pub fn differs(&self) -> bool {
        self.current.as_ref().map(kept_bytes) != Some(kept_bytes(&self.new))
    }
}

/// The serial number that a run chose for one of its units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenSerial {
    /// The serial number.
    pub text: String,
    /// Whether it is drawn, or what the unit shows, because there was no other. A backup's blocks then take precedence.
    pub yields: bool,
}

/// Everything that will be written to one unit, and how it must come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashPlan {
    /// The unit before.
    pub attached: UnitInfo,
    /// Configuration blocks 0 and 1.
    pub blocks: [BlockPlan; 2],
    /// The image file, in the vendor's container.
    pub file: Vec<u8>,
    /// The image's version; `None` for open firmware, which has none.
    pub version: Option<FirmwareVersion>,
    /// The image as open firmware, which uses nothing from configuration block 0; `None` for the vendor's kind.
    pub open: Option<OpenImage>,
    /// Whether the image's E4 returns 256 bytes at once; `None` if unknown.
    pub e4_extension: Option<bool>,
    /// The identity that the unit must come back with; `None` if block 0 holds none, and the chip uses its own.
    pub usb_id: Option<UsbId>,
    /// The serial number that the run chose for this unit, as none of the command's words says.
    pub chosen_serial: Option<ChosenSerial>,
}

impl FlashPlan {
    /// Plans `flash`: this image, and the unit's blocks with `edit` applied to them.
    ///
    /// The blocks come from `backup` if it is given, else from the unit, else they are the `neutral` ones if those are
    /// given, else the known ones. A known block 0 gets the serial number that the unit shows.
    ///
    /// # Errors
    /// If the edit does not fit its field.
    pub fn flash(
        attached: UnitInfo,
        unit: UnitBlocks,
        backup: Option<&Backup>,
        neutral: Option<[ConfigBlock; 2]>,
        image: &Proof,
        edit: impl FnOnce(&mut [ConfigBlock; 2]) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let (stand_ins, stand_in) = match neutral {
            Some(neutral) => (neutral, BlockSource::Neutral),
            None => (known_blocks_for(&attached)?, BlockSource::Known),
        };
        let [zero, one] = stand_ins;
        let (zero, zero_source) = kept_block(BlockIndex::Zero, &unit, backup).unwrap_or((zero, stand_in));
        let (one, one_source) = kept_block(BlockIndex::One, &unit, backup).unwrap_or((one, stand_in));
        let mut edited = [zero, one];
        edit(&mut edited)?;
        let block = |before: &ConfigBlock, after: &ConfigBlock, source| BlockPlan {
            index: after.index(),
            current: *after.index().of(&unit),
            new: *after.bytes(),
            source,
            changes: changes(before, after),
        };
        let blocks = [block(&zero, &edited[0], zero_source), block(&one, &edited[1], one_source)];
        Ok(Self::of(attached, blocks, image))
    }

    /// Plans `restore`: blocks and firmware of the backup, byte for byte.
    pub fn restore(attached: UnitInfo, unit: UnitBlocks, backup: &Backup, image: &Proof) -> Self {
        let block = |index: BlockIndex| {
            let (current, new) = (*index.of(&unit), *index.of(&backup.blocks));
            let before = current.and_then(|bytes| ConfigBlock::parse(index, &bytes).ok());
            let after = ConfigBlock::parse(index, &new).ok();
            let changes = match (before, after) {
                (Some(before), Some(after)) => changes(&before, &after),
                _ => Vec::new(),
            };
            BlockPlan { index, current, new, source: BlockSource::Backup, changes }
        };
        Self::of(attached, BlockIndex::ALL.map(block), image)
    }

    fn of(attached: UnitInfo, blocks: [BlockPlan; 2], proof: &Proof) -> Self {
        let known = &proof.known;
        let mut plan = Self {
            attached,
            blocks,
            file: known.image.to_file(),
            version: known.firmware.version(),
            e4_extension: proof.report.e4_extension,
            open: known.firmware.open().cloned(),
            usb_id: None,
            chosen_serial: None,
        };
        plan.usb_id = plan.open.as_ref().map(|open| open.usb_id).or_else(|| plan.configured_id());
        plan
    }

    /// The non-empty parts of the image, in the order of writing.
    pub fn parts(&self) -> impl Iterator<Item = (Part, &[u8])> {
        Part::ALL.into_iter().map(|part| (part, part.of(&self.file))).filter(|(_, bytes)| !bytes.is_empty())
    }

    /// Whether the written bytes can be read back before the unit restarts.
    pub const fn reads_back(&self) -> bool {
        is_readable(self.attached.state)
    }

    /// The unit's state after the write.
    pub const fn becomes(&self) -> BridgeState {
        if self.open.is_some() { BridgeState::OpenFirmware } else { BridgeState::Vendor }
    }

    /// Whether a unit that came back matches the plan: its kind of firmware under the planned identity.
    pub fn is_identity_of(&self, found: &UnitInfo) -> bool {
        found.state == self.becomes() && self.usb_id.is_none_or(|expected| found.id == expected)
    }

    /// The new block 0, if it is valid.
    fn block_zero(&self) -> Option<ConfigBlock> {
        ConfigBlock::parse(BlockIndex::Zero, &self.blocks[0].new).ok()
    }

    /// The USB ID in the new block 0, under which the vendor's firmware comes up.
    pub fn configured_id(&self) -> Option<UsbId> {
        Some(self.block_zero()?.usb_id())
    }

    /// The identity that the new blocks give the unit.
    pub fn planned_identity(&self) -> UnitIdentity {
        UnitIdentity::of(self.blocks.each_ref().map(|block| Some(&block.new)))
    }

    /// The serial number that the user gives a unit in place of its own, while it keeps its USB4 identity, by which the
    /// backup of this write is known as its own; `None` if the write does anything else.
    pub fn later_serial(&self) -> Option<String> {
        if self.blocks.iter().any(|block| block.source != BlockSource::Unit) {
            return None;
        }
        let own = UnitIdentity::of(self.blocks.each_ref().map(|block| block.current.as_ref())).own();
        let planned = self.planned_identity();
        let shares_usb4 = own.shares_usb4_with(&planned);
        let (_, new) = differing(own.serial, planned.serial)?;
        shares_usb4.then_some(new)
    }

    /// The serial number in the new block 0, if that is valid.
    pub fn serial(&self) -> Option<String> {
        Some(self.block_zero()?.text(ConfigField::Serial))
    }

    /// Whether the unit will have the serial number of the known block 0, which is the same on every unit that gets it.
    pub fn has_known_serial(&self) -> bool {
        self.serial() == Some(known_blocks()[0].text(ConfigField::Serial))
    }
}

/// The known blocks, with the serial number that this unit shows if the field takes it.
fn known_blocks_for(unit: &UnitInfo) -> Result<[ConfigBlock; 2], Failure> {
    let [mut zero, one] = known_blocks();
    // Open firmware shows the chip's serial number.
    let is_block_0s = unit.state != BridgeState::OpenFirmware;
    let shown = unit.serial();
    if is_block_0s && !is_nobodys(shown) && ConfigField::Serial.accepts(shown) {
        zero.set_text(ConfigField::Serial, shown)?;
    }
    Ok([zero, one])
}

/// Whether other blocks have to stand in for one that neither the backup nor the unit has.
pub fn needs_stand_in(unit: &UnitBlocks, backup: Option<&Backup>) -> bool {
    BlockIndex::ALL.into_iter().any(|index| kept_block(index, unit, backup).is_none())
}

/// The block that a plan begins with: the backup's, else the unit's. `None` if neither is valid.
fn kept_block(index: BlockIndex, unit: &UnitBlocks, backup: Option<&Backup>) -> Option<(ConfigBlock, BlockSource)> {
    if let Some(block) = backup.and_then(|backup| backup.block(index).ok()) {
        return Some((block, BlockSource::Backup));
    }
    let block = ConfigBlock::parse(index, index.of(unit).as_ref()?).ok()?;
    Some((block, BlockSource::Unit))
}

fn changes(before: &ConfigBlock, after: &ConfigBlock) -> Vec<FieldChange> {
    ConfigField::of(after.index())
        .filter(|field| before.field(*field) != after.field(*field))
        .map(|field| FieldChange { field: field.name(), from: words(before, field), to: words(after, field) })
        .collect()
}

fn words(block: &ConfigBlock, field: ConfigField) -> String {
    match field.kind() {
        FieldKind::Text => format!("{:?}", block.text(field)),
        FieldKind::U16 => format!("{:#06x}", block.number(field)),
        FieldKind::Bytes => to_hex(block.field(field), ""),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asm2464::Coded as _;
    use asm2464::firmware::CONFIG_BLOCK_LEN;

    use super::super::backup::tests::{sample_backup, sample_image};
    use super::super::identity::neutral_blocks;
    use super::*;
    use crate::image::{Rewritable, samples};

    fn attached(state: BridgeState) -> UnitInfo {
        UnitInfo { state, product: "dock".into(), ..crate::tests::unit("9-9", "123") }
    }

    fn proof() -> Arc<Proof> {
        samples::proof(&sample_image(0), Rewritable::Yes)
    }

    fn own_block() -> ConfigBlock {
        let [mut block, _] = known_blocks();
        block.set_text(ConfigField::Serial, "MINE0001").unwrap();
        block.set_text(ConfigField::Manufacturer, "Dock Maker").unwrap();
        block.set_number(ConfigField::VendorId, 0x174C).unwrap();
        block.set_number(ConfigField::ProductId, 0x2464).unwrap();
        block
    }

    fn identity([block, _]: &mut [ConfigBlock; 2]) -> Result<(), Failure> {
        block.set_number(ConfigField::VendorId, 0xADD1)?;
        block.set_number(ConfigField::ProductId, 1)
    }

    #[test]
    fn only_the_fields_that_the_patch_names_change_in_the_units_own_block() {
        let unit = [Some(*own_block().bytes()), Some(*known_blocks()[1].bytes())];
        let plan = FlashPlan::flash(attached(BridgeState::Vendor), unit, None, None, &proof(), identity).unwrap();
        let [zero, one] = &plan.blocks;
        assert_eq!(plan.usb_id, Some(UsbId::PATCHED));
        assert_eq!((zero.source, one.source), (BlockSource::Unit, BlockSource::Unit));
        assert!(zero.differs() && !one.differs());
        let named: Vec<_> = zero.changes.iter().map(|change| (change.field, change.to.as_str())).collect();
        assert_eq!(named, [("vendor-id", "0xadd1"), ("product-id", "0x0001")]);
        let changed: Vec<_> = (0..CONFIG_BLOCK_LEN).filter(|at| zero.new[*at] != own_block().bytes()[*at]).collect();
        assert!(changed.iter().all(|at| (0x74..0x78).contains(at) || *at == 0x7F), "{changed:x?}");
        assert!(!plan.has_known_serial());
    }

    #[test]
    fn a_unit_of_which_only_the_serial_number_changes_keeps_its_backup_by_its_own_usb4_identity() {
        let blocks = |serial: &str, usb4: u8| {
            let [mut zero, mut one] = known_blocks();
            zero.set_text(ConfigField::Serial, serial).unwrap();
            one.set_bytes(ConfigField::Usb4UniqueId, &[usb4; 5]).unwrap();
            [zero, one]
        };
        let later = |own: [ConfigBlock; 2], new: [ConfigBlock; 2]| {
            let unit = own.each_ref().map(|block| Some(*block.bytes()));
            let edit = |edited: &mut [ConfigBlock; 2]| {
                *edited = new;
                Ok(())
            };
            let plan = FlashPlan::flash(attached(BridgeState::Vendor), unit, None, None, &proof(), edit).unwrap();
            plan.later_serial()
        };
        let own = blocks("MINE0001", 7);
        assert_eq!(later(own, blocks("LAB-07", 7)), Some("LAB-07".to_owned()));
        assert_eq!(later(own, own), None);
        assert_eq!(later(own, blocks("LAB-07", 8)), None, "no later command would take it for the same unit");
        let [known, _] = known_blocks();
        assert_eq!(later([known, own[1]], blocks("LAB-07", 7)), None, "its backup has no number of another unit");
        let [_, known] = known_blocks();
        assert_eq!(later([own[0], known], [blocks("LAB-07", 7)[0], known]), None, "known to no unit alone");
        // What comes from a backup may be another unit's.
        let unit = own.each_ref().map(|block| Some(*block.bytes()));
        let backup = Backup { blocks: blocks("LAB-07", 7).map(|block| *block.bytes()), ..sample_backup() };
        let plan =
            FlashPlan::flash(attached(BridgeState::Vendor), unit, Some(&backup), None, &proof(), |_| Ok(())).unwrap();
        assert_eq!((plan.serial(), plan.later_serial()), (Some("LAB-07".to_owned()), None));
    }

    #[test]
    fn a_unit_without_a_block_that_holds_gets_the_known_ones_and_the_plan_says_so() {
        for unit in [[None, None], [Some([0xFF; CONFIG_BLOCK_LEN]); 2]] {
            let nobodys = UnitInfo { serial: Some("000000000000".to_owned()), ..attached(BridgeState::BootLoader) };
            let plan = FlashPlan::flash(nobodys, unit, None, None, &proof(), identity).unwrap();
            assert_eq!(plan.blocks[0].source, BlockSource::Known);
            assert_eq!(plan.blocks.each_ref().map(|block| block.new), known_blocks().map(|block| *block.bytes()));
            assert!(plan.blocks.iter().all(BlockPlan::differs));
            assert!(plan.has_known_serial() && !plan.reads_back());
        }
    }

    #[test]
    fn the_serial_number_that_a_unit_shows_is_written_into_the_known_block_if_the_field_takes_it() {
        let serial = |state, shown: &str| {
            let shows = UnitInfo { serial: Some(shown.to_owned()), ..attached(state) };
            let plan = FlashPlan::flash(shows, [None, None], None, None, &proof(), identity).unwrap();
            assert!(plan.blocks[0].changes.iter().all(|change| change.field != "serial"), "{:?}", plan.blocks[0]);
            plan.serial().unwrap()
        };
        for state in [BridgeState::BootLoader, BridgeState::Vendor] {
            assert_eq!(serial(state, "OWNERS5"), "OWNERS5");
            assert_eq!(serial(state, "AAAABBBB0012"), "AAAABBBB0012", "a maker's number stays, too");
        }
        for (state, nobodys) in [
            (BridgeState::OpenFirmware, "OWNERS5"),
            (BridgeState::BootLoader, "000000000000"),
            (BridgeState::BootLoader, "longer than twenty characters"),
            (BridgeState::BootLoader, "Gr\u{f6}\u{df}e"),
        ] {
            assert_eq!(serial(state, nobodys), "AAAABBBB0060", "{nobodys}");
        }
    }

    #[test]
    fn the_neutral_blocks_stand_in_for_missing_ones_alone() {
        let image = proof();
        let boot_loader = attached(BridgeState::BootLoader);
        let neutral = neutral_blocks("", Some("BOARD1")).unwrap();
        let plan = |unit, backup: Option<&Backup>| {
            let plan = FlashPlan::flash(boot_loader.clone(), unit, backup, Some(neutral), &image, |_| Ok(()));
            let plan = plan.unwrap();
            let has_neutral = plan.blocks.iter().any(|block| block.source == BlockSource::Neutral);
            assert_eq!(needs_stand_in(&unit, backup), has_neutral);
            plan
        };
        let sources = |plan: &FlashPlan| plan.blocks.each_ref().map(|block| block.source);
        let blank = plan([None, None], None);
        assert_eq!(sources(&blank), [BlockSource::Neutral; 2]);
        assert_eq!((blank.usb_id, blank.serial()), (Some(UsbId::BOOT_LOADER), Some("BOARD1".to_owned())));
        assert!(!blank.has_known_serial());
        let half = plan([Some(*own_block().bytes()), Some([0xFF; CONFIG_BLOCK_LEN])], None);
        assert_eq!(sources(&half), [BlockSource::Unit, BlockSource::Neutral]);
        assert_eq!(half.serial(), Some("MINE0001".to_owned()));
        let own = known_blocks().map(|block| Some(*block.bytes()));
        assert_eq!(sources(&plan(own, None)), [BlockSource::Unit; 2]);
        assert_eq!(sources(&plan([None, None], Some(&sample_backup()))), [BlockSource::Backup; 2]);
    }

    #[test]
    fn a_backup_gives_the_blocks_that_the_boot_loader_can_not() {
        let mut backup = sample_backup();
        backup.blocks[0] = *own_block().bytes();
        let plan =
            FlashPlan::flash(attached(BridgeState::BootLoader), [None, None], Some(&backup), None, &proof(), identity)
                .unwrap();
        assert_eq!(plan.blocks[0].source, BlockSource::Backup);
        assert!(!plan.has_known_serial());
    }

    #[test]
    fn an_edit_that_does_not_fit_makes_no_plan() {
        let result = FlashPlan::flash(attached(BridgeState::Vendor), [None, None], None, None, &proof(), |blocks| {
            blocks[0].set_text(ConfigField::T10Vendor, "far too long")
        });
        assert_eq!(result.unwrap_err().code(), "asm2464::config::text");
    }

    #[test]
    fn restoring_plans_every_byte_as_it_was_even_blocks_that_do_not_hold() {
        let mut backup = sample_backup();
        backup.blocks[1] = [0xFF; CONFIG_BLOCK_LEN];
        let image = backup.firmware().unwrap();
        let unit = [Some(*own_block().bytes()), Some([0xFF; CONFIG_BLOCK_LEN])];
        let plan =
            FlashPlan::restore(attached(BridgeState::Vendor), unit, &backup, &samples::proof(&image, Rewritable::Yes));
        assert_eq!(plan.blocks.each_ref().map(|block| block.new), backup.blocks);
        assert!(plan.blocks[0].differs() && !plan.blocks[1].differs());
        assert_eq!(plan.file, image.to_file());
    }

    #[test]
    fn the_parts_are_the_file_split_where_the_flash_splits_it() {
        let plan =
            FlashPlan::flash(attached(BridgeState::Vendor), [None, None], None, None, &proof(), |_| Ok(())).unwrap();
        let parts: Vec<_> = plan.parts().map(|(part, bytes)| (part, bytes.len())).collect();
        assert_eq!(parts, [(Part::One, 0xFF00), (Part::Two, 98_016 - 0xFF00)]);
    }
}
