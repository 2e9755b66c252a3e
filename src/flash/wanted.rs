//! What a command wants in the flash of its units, and the plan for one unit that follows from it.

use std::sync::Arc;

use asm2464::firmware::{BridgeState, ConfigBlock, ConfigField};
use asm2464::{AnyFailure, Failure, Kind};

use super::access::parsed;
use super::backup::Backup;
use super::backup_folder::FiledBackup;
use super::examined::{NewFirmware, UnknownImage};
use super::identity::neutral_blocks;
use super::observe::Observation;
use super::plan::{ChosenSerial, FlashPlan, needs_stand_in};
use super::recovery::Writes;
use super::serials::SerialSeries;
use crate::image::{Images, Proof};
use crate::patch::ConfigEdits;

/// What a command wants, the same for each of its units.
#[derive(Debug)]
pub enum Wanted {
    /// An image, with the unit's blocks or a backup's.
    Image(Box<WantedImage>),
    /// A backup, byte for byte.
    Backup(Box<Backup>, Arc<Proof>),
    /// Other values of these fields, with the unit's own firmware.
    Fields(ConfigEdits),
}

/// An image, and what changes in the blocks beside it.
#[derive(Debug)]
pub struct WantedImage {
    /// The image, and what executing it has shown.
    pub proof: Arc<Proof>,
    /// Provides the blocks in place of the unit.
    pub blocks_from: Option<Backup>,
    /// Whether block 0 gets the chip maker's IDs and names, whatever `edits` has.
    pub stock_identity: bool,
    /// The changes that the image needs.
    pub edits: Vec<ConfigEdits>,
    /// The serial number that the user gives the unit.
    pub serial: Option<String>,
    /// The series of which each unit gets the next serial number.
    pub series: Option<SerialSeries>,
}

impl Wanted {
    /// What is written.
    pub const fn writes(&self) -> Writes {
        match self {
            Self::Image(_) => Writes::Image,
            Self::Backup(..) => Writes::Backup,
            Self::Fields(_) => Writes::Fields,
        }
    }

    /// Whether the user gives the serial number.
    pub fn gives_serial(&self) -> bool {
        match self {
            Self::Image(image) => image.gives_serial(),
            Self::Backup(..) => false,
            Self::Fields(edits) => edits.get(ConfigField::Serial).is_some(),
        }
    }

    /// Whether a backup provides the blocks beside the image.
    pub const fn names_blocks(&self) -> bool {
        matches!(self, Self::Image(image) if image.blocks_from.is_some())
    }

    /// Plans the write of a unit.
    ///
    /// # Errors
    /// Fails if a value does not fit its field, if the unit returns no valid blocks or firmware where its own are
    /// wanted, and on Ctrl-C.
    pub fn plan(&self, seen: &Observation, images: &Images) -> Result<FlashPlan, AnyFailure> {
        match self {
            Self::Image(image) => Ok(image.plan(seen, None)?),
            Self::Backup(backup, proof) => Ok(FlashPlan::restore(seen.attached.clone(), seen.blocks, backup, proof)),
            Self::Fields(edits) => plan_fields(edits, seen, images),
        }
    }
}

impl WantedImage {
    /// Whether the user gives the serial number.
    pub const fn gives_serial(&self) -> bool {
        self.serial.is_some() || self.series.is_some()
    }

    /// What is written; the image may be that of the backup `beside`.
    pub fn subject(&self, unknown: Option<UnknownImage>, beside: Option<&FiledBackup>) -> NewFirmware {
        let blocks_from = self.blocks_from.iter().map(|backup| &backup.unit);
        let units = blocks_from.chain(beside.map(|backup| &backup.unit));
        NewFirmware::of(Arc::clone(&self.proof), unknown, units, self.gives_serial())
    }

    /// Plans the write of a unit, which gets the `next` serial number of the series if there is one. A stock image gets a
    /// neutral identity where there are no blocks: a serial number that is drawn for it stays the unit's in every command
    /// that is printed.
    ///
    /// # Errors
    /// Fails if a value does not fit its field, or if the system has no random bytes.
    pub(super) fn plan(&self, seen: &Observation, next: Option<&str>) -> Result<FlashPlan, Failure> {
        let Self { proof, blocks_from, serial, .. } = self;
        let given = next.or(serial.as_deref());
        // Open firmware shows the chip's serial number.
        let is_block_0s = seen.attached.state != BridgeState::OpenFirmware;
        let shown = if is_block_0s { seen.attached.serial() } else { "" };
        let is_neutral = proof.known.firmware.is_unpatched() && needs_stand_in(&seen.blocks, blocks_from.as_ref());
        let neutral = if is_neutral { Some(neutral_blocks(shown, given)?) } else { None };
        let edit = |blocks: &mut [ConfigBlock; 2]| self.edit(given, blocks);
        let mut plan =
            FlashPlan::flash(seen.attached.clone(), seen.blocks, blocks_from.as_ref(), neutral, proof, edit)?;
        // What the unit shows may be gone when the command is run again.
        let yields = given.is_none() && plan.blocks[0].source.stands_in() && !plan.has_known_serial();
        if yields || next.is_some() {
            plan.chosen_serial = plan.serial().map(|text| ChosenSerial { text, yields });
        }
        Ok(plan)
    }

    fn edit(&self, serial: Option<&str>, blocks: &mut [ConfigBlock; 2]) -> Result<(), Failure> {
        if self.stock_identity {
            blocks[0].set_stock_identity()?;
        } else {
            self.edits.iter().try_for_each(|edits| edits.apply(blocks))?;
        }
        match serial {
            Some(serial) => blocks[0].set_text(ConfigField::Serial, serial),
            None => Ok(()),
        }
    }
}

/// Plans to write the unit's own firmware and blocks, with the edits applied.
fn plan_fields(edits: &ConfigEdits, seen: &Observation, images: &Images) -> Result<FlashPlan, AnyFailure> {
    // The known blocks must not stand in for the unit's own.
    parsed(&seen.blocks, &seen.attached)?;
    let image = seen.running.image().ok_or_else(|| {
        let label = Kind::Refused.code("asmpatch::config::no_firmware");
        let message = "the unit's flash has no firmware that passes the chip's checks";
        Failure::new(label, format!("{}: {message}", seen.attached.location))
    })?;
    let proof = images.prove(&image)?;
    Ok(FlashPlan::flash(seen.attached.clone(), seen.blocks, None, None, &proof, |blocks| edits.apply(blocks))?)
}

#[cfg(test)]
pub(super) mod tests {
    use asm2464_chip::practice;
    use asm2464_host::bridge::UnitInfo;

    use super::*;
    use crate::flash::backup::tests::sample_backup;
    use crate::flash::fitting::tests::sample_filed;
    use crate::flash::observe::ObservedFirmware;
    use crate::image::{Rewritable, samples};
    use crate::tests::unit;
    use crate::unit::facts::{Asked, Behaviour};

    /// The practice image, with what the unit has.
    pub(in crate::flash) fn practice_image() -> WantedImage {
        WantedImage {
            proof: samples::proof(&practice::image(), Rewritable::Yes),
            blocks_from: None,
            stock_identity: false,
            edits: Vec::new(),
            serial: None,
            series: None,
        }
    }

    /// The serial number that a unit gets that has lost its blocks and shows `LAB-07`.
    fn serial_without_blocks(state: BridgeState) -> String {
        let attached = UnitInfo { state, ..unit("9-9", "LAB-07") };
        let running = ObservedFirmware { runs: Behaviour::only(state), parts: None, storage: None };
        let seen =
            Observation { attached, blocks: [None, None], running, tree: Asked::NotAsked, is_disk_checked: true };
        practice_image().plan(&seen, None).unwrap().serial().unwrap()
    }

    #[test]
    fn a_lost_block_0_gets_the_serial_that_its_boot_loader_shows_and_not_the_chips() {
        assert_eq!(serial_without_blocks(BridgeState::BootLoader), "LAB-07");
        assert_ne!(serial_without_blocks(BridgeState::OpenFirmware), "LAB-07");
    }

    #[test]
    fn what_is_of_a_virtual_unit_is_known_whether_it_is_the_image_or_the_blocks() {
        let from_virtual = |blocks_from: Option<&Backup>, beside: Option<&Backup>| {
            let wanted = WantedImage { blocks_from: blocks_from.cloned(), ..practice_image() };
            let beside = beside.map(|backup| FiledBackup { unit: backup.unit.clone(), ..sample_filed() });
            wanted.subject(None, beside.as_ref()).from_virtual
        };
        let (dock, mut software) = (sample_backup(), sample_backup());
        software.unit.device = "virtual:u".to_owned();
        assert!(!from_virtual(Some(&dock), Some(&dock)));
        assert!(from_virtual(Some(&software), None) && from_virtual(None, Some(&software)));
    }

    #[test]
    fn a_number_that_the_user_gives_is_one_whether_it_is_an_option_a_series_or_a_field() {
        let image = |serial: Option<&str>, series: Option<&str>| {
            let (serial, series) = (serial.map(str::to_owned), series.map(|start| start.parse().unwrap()));
            Wanted::Image(Box::new(WantedImage { serial, series, ..practice_image() })).gives_serial()
        };
        assert_eq!([image(None, None), image(Some("LAB-07"), None), image(None, Some("LAB-07"))], [false, true, true]);
        let field = |field, value: &str| {
            let mut edits = ConfigEdits::default();
            edits.set(field, crate::patch::ConfigValue::Text(value.to_owned()));
            Wanted::Fields(edits).gives_serial()
        };
        assert!(field(ConfigField::Serial, "LAB-07") && !field(ConfigField::Product, "LAB-07"));
    }
}
