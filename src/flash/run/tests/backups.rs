//! What happens to a backup's folder while the unit is written.

use std::fs;
use std::path::Path;

use super::*;

/// Something that happens to the backup's folder.
#[derive(Debug, Clone, Copy)]
enum Mishap {
    Moved,
    Damaged,
    /// A file has taken the place of the folder of backups.
    Replaced,
}

impl Mishap {
    fn befall(self, home: &Path) {
        let backups = home.join("backups");
        let folder = fs::read_dir(&backups).unwrap().next().unwrap().unwrap().path();
        match self {
            Self::Moved => fs::rename(folder, home.join("moved")).unwrap(),
            Self::Damaged => fs::write(folder.join("config-1.bin"), [0; CONFIG_BLOCK_LEN]).unwrap(),
            Self::Replaced => {
                fs::rename(&backups, home.join("moved")).unwrap();
                fs::write(backups, b"in the way").unwrap();
            }
        }
    }

    /// Runs the rig, and lets this happen when `step` begins.
    fn during(self, step: FlashStep, rig: &mut Rig) -> Result<FlashReport, Box<Stopped>> {
        let home = rig.home.path().to_owned();
        let mut watching = |event: FlashEvent<'_>| {
            if matches!(event, FlashEvent::Begin(begun) if begun == step) {
                self.befall(&home);
            }
        };
        run(&mut rig.port, &rig.plan, &rig.options, &mut watching, Interrupt::watching(&rig.interrupt))
    }
}

/// The folder of the report's backup, which must be the unit's as it was.
fn restorable(report: &FlashReport) -> &Path {
    let folder = report.backup.as_deref().unwrap();
    let backup = backup_folder::load(folder).unwrap();
    assert_eq!(backup.firmware().unwrap(), sample_image(1));
    assert_eq!(&backup.blocks[0], own_block(UsbId::STOCK).bytes());
    let reported = report.steps.iter().any(|step| !step.done && step.result.contains(&folder.display().to_string()));
    assert!(reported, "{:?}", report.steps);
    folder
}

#[test]
fn a_backup_outside_the_default_folder_leaves_a_pointer_there_and_nothing_stops_without_one() {
    let mut noted = rig(Some(sample_image(1)));
    let default = noted.home.path().join("default");
    noted.options.pointers_into = Some(default.clone());
    let report = run(&mut noted.port, &noted.plan, &noted.options, &mut (), Interrupt::never()).unwrap();
    let places = backup_folder::BackupPlaces { folders: vec![default], beside: Vec::new() };
    let found = places.search().backups;
    let saved = report.backup.unwrap().canonicalize().unwrap();
    assert_eq!(found.iter().map(|backup| &backup.folder).collect::<Vec<_>>(), [&saved]);
    let mut full = rig(Some(sample_image(1)));
    let file = full.home.path().join("file");
    fs::write(&file, "x").unwrap();
    full.options.pointers_into = Some(file);
    let report = run(&mut full.port, &full.plan, &full.options, &mut (), Interrupt::never()).unwrap();
    assert!(report.backup.is_some());
    let troubles: Vec<_> = report.steps.iter().filter(|step| step.result.starts_with("no pointer to ")).collect();
    assert_eq!(troubles.len(), 1, "{:?}", report.steps);
}

#[test]
fn a_backup_knows_the_number_that_the_unit_gets_and_nothing_stops_if_that_can_not_be_noted() {
    let numbered = || {
        let mut rig = rig(Some(sample_image(1)));
        let [zero, mut one] = [own_block(UsbId::STOCK), known_blocks()[1]];
        one.set_bytes(ConfigField::Usb4UniqueId, &[7; 5]).unwrap();
        let blocks = [*zero.bytes(), *one.bytes()];
        rig.port.unit.lock().unwrap().blocks = blocks;
        let (before, image) = (rig.port.before.clone(), samples::proved(&sample_image(2)));
        let edit = |edited: &mut [ConfigBlock; 2]| edited[0].set_text(ConfigField::Serial, "LAB-07");
        rig.plan = FlashPlan::flash(before, blocks.map(Some), None, None, &image, edit).unwrap();
        rig
    };
    let mut noted = numbered();
    let report = noted.run().unwrap();
    assert!(report.steps.iter().all(|step| step.done), "{:?}", report.steps);
    let folder = report.backup.unwrap();
    assert_eq!(backup_folder::describe(&folder).unwrap().later_serials, ["LAB-07"]);
    // The backup is there already, and so is a folder where the note goes.
    let mut hindered = numbered();
    let into = hindered.home.path().join("backups");
    let there = into.join(folder.file_name().unwrap());
    fs::create_dir(&into).unwrap();
    fs::rename(&folder, &there).unwrap();
    fs::remove_file(there.join("later-serials.txt")).unwrap();
    fs::create_dir(there.join("later-serials.txt")).unwrap();
    let report = hindered.run().unwrap();
    assert_eq!(report.backup, Some(there));
    let troubles: Vec<_> = report.steps.iter().filter(|step| !step.done).collect();
    assert!(troubles.len() == 1 && troubles[0].result.contains("later-serials.txt"), "{troubles:?}");
}

#[test]
fn a_backup_that_goes_before_the_first_erase_or_during_the_write_is_saved_again_and_named() {
    for (mishap, name) in [(Mishap::Moved, "backups"), (Mishap::Damaged, "backups"), (Mishap::Replaced, "elsewhere")] {
        for step in [FlashStep::Confirm, FlashStep::WritePart(Part::One)] {
            let mut lost = rig(Some(sample_image(1))).with(&[(0xE3, 2, Quirk::Vanish)]);
            let stopped = mishap.during(step, &mut lost).unwrap_err();
            assert_eq!(stopped.left, StoppedState::Incomplete, "{mishap:?} {step}: {stopped:?}");
            let place = lost.home.path().join(name);
            assert_eq!(restorable(&stopped.report).parent(), Some(&*place), "{mishap:?} {step}");

            let mut written = rig(Some(sample_image(1)));
            restorable(&mishap.during(step, &mut written).unwrap());
        }
    }
}

#[test]
fn a_unit_whose_backup_is_gone_and_can_not_be_saved_again_is_not_erased() {
    let mut rig = rig(Some(sample_image(1)));
    rig.options.backup_elsewhere.clear();
    let stopped = Mishap::Replaced.during(FlashStep::Confirm, &mut rig).unwrap_err();
    assert!(matches!(stopped.error, FlashError::Folder(_)), "{stopped:?}");
    assert_eq!((stopped.left, rig.count(0xE1)), (StoppedState::Untouched, 0));
}

#[test]
fn a_backup_that_can_not_be_saved_again_stays_named_since_it_may_have_been_moved() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE3, 2, Quirk::Vanish)]);
    rig.options.backup_elsewhere.clear();
    let stopped = Mishap::Replaced.during(FlashStep::WritePart(Part::One), &mut rig).unwrap_err();
    assert_eq!(stopped.left, StoppedState::Incomplete);
    assert!(stopped.report.backup.unwrap().starts_with(rig.home.path().join("backups")));
    let last = stopped.report.steps.last().unwrap();
    assert!(!last.done && last.result.contains("can't be saved again"), "{last:?}");
}
