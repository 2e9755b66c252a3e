//! The steps that give a unit its own identity back, from the backups that fit it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use asm2464::interrupt::Interrupted;
use asm2464_host::bridge::{Location, UnitInfo};

use super::access::{UnitBlocks, is_readable};
use super::backup::Backup;
use super::backup_folder::{Filed, UnreadBackup};
use super::consent::{Permission, Waiver};
use super::error::BackupFolderError;
use super::fitting::{Fit, FittingBackup, MOST_OFFERED, fitting, line_change, versions_run};
use super::recovery::{Act, BackupFirst, ImageRef, LaterCommands, NextStep, Why, Writes};
use crate::fetch::OPEN_IMAGE;
use crate::image::{Firmware, Images, Proof, Rewritable};

/// A backup that is offered.
struct Offered<'a> {
    found: &'a FittingBackup,
    backup: Backup,
    /// Where its blocks are.
    blocks_in: PathBuf,
    /// Why there are only its blocks, if it was saved elsewhere and is not there.
    lost: Option<BackupFolderError>,
    is_oldest: bool,
}

/// The backups that are offered, with their contents: those that fit best, and instead of the last one the oldest that
/// fits as well as the first, which has what the unit came with. Leaves out damaged ones.
fn offered(backups: &[FittingBackup]) -> Vec<Offered<'_>> {
    let mut offered = Vec::new();
    let best = backups.first().map(|found| found.fit);
    let oldest = backups.iter().filter(|found| Some(found.fit) == best && found.filed.written.is_some());
    let oldest = oldest.min_by_key(|found| found.filed.written).filter(|_| backups.len() > MOST_OFFERED);
    let others = backups.iter().filter(|found| oldest.is_none_or(|oldest| !std::ptr::eq(*found, oldest)));
    let most = if oldest.is_some() { MOST_OFFERED - 1 } else { MOST_OFFERED };
    for found in others {
        if offered.len() == most {
            break;
        }
        offered.extend(Offered::of(found, false));
    }
    offered.extend(oldest.and_then(|oldest| Offered::of(oldest, true)));
    offered
}

impl<'a> Offered<'a> {
    fn of(found: &'a FittingBackup, is_oldest: bool) -> Option<Self> {
        let filed = &found.filed;
        Some(match (filed.load(), &filed.pointer) {
            (Ok(backup), _) => Self { found, backup, blocks_in: filed.folder.clone(), lost: None, is_oldest },
            (Err(_), None) => return None,
            (Err(error), Some(pointer)) => {
                let blocks_in = pointer.file.clone();
                Self { found, backup: filed.blocks_alone(), blocks_in, lost: Some(error), is_oldest }
            }
        })
    }
}

/// Returns the steps that give the unit at `location` its own identity back from the backups that fit it. `invoked` is
/// what the command that was run was to write, and what it needs to be run again; `None` if it was to write nothing.
///
/// If it is not certain that a backup is the unit's, its steps come with a question. Leaves out damaged backups, and
/// those whose firmware this run has proved to be unfit. Proves nothing: a command that writes a backup proves it first.
pub fn offers(
    backups: &[FittingBackup],
    invoked: Option<(Writes, &LaterCommands)>,
    location: &Location,
    images: &Images,
) -> Vec<NextStep> {
    let ran = versions_run(backups);
    let mut offers = Vec::new();
    for Offered { found, backup, blocks_in, lost, is_oldest } in offered(backups) {
        if let Some(error) = &lost {
            offers.push(NextStep::make_readable(&UnreadBackup::elsewhere(&found.filed.folder, error)));
        }
        let is_certain = found.fit == Fit::Certain;
        let only_if = if is_certain { None } else { Some(found.clone()) };
        let mut steps = Vec::new();
        if let Some((firmware, mut permissions)) = restoring(&backup, location, images) {
            if found.replaces_serial {
                permissions.push(Permission::CloneIdentity(Waiver::Serial));
            }
            if found.filed.version().is_some_and(|to| line_change(&ran, to).is_some()) {
                permissions.push(Permission::OtherLine);
            }
            let act = Act::Restore { folder: found.filed.folder.clone(), permissions, backs_up: false };
            let why = Why::GoBackTo { taken: found.filed.written, firmware, is_oldest };
            steps.push(NextStep { only_if: only_if.clone(), ..NextStep::new(why, act) });
        }
        if matches!(invoked, None | Some((Writes::Image, _))) {
            let mut later = invoked.map(|(_, later)| later.clone()).unwrap_or_default();
            let mut permissions = BTreeSet::from_iter(later.with_blocks);
            if is_foreign(&backup, location) {
                permissions.insert(Permission::Unproven);
            }
            if found.replaces_serial && !later.gives_serial {
                permissions.insert(Permission::CloneIdentity(Waiver::Serial));
            }
            later.with_blocks = permissions.into_iter().collect();
            let is_chosen = invoked.is_some();
            let act = if is_chosen {
                later.with_blocks_from(blocks_in, BackupFirst::No)
            } else {
                let image = ImageRef::Known(OPEN_IMAGE.to_owned());
                Act::Flash { image, permissions: later.with_blocks, blocks_from: Some(blocks_in), backs_up: false }
            };
            let flash = NextStep { only_if, ..NextStep::new(Why::WithBlocks, act) };
            // Going back needs no choice of an image, so it comes first where nobody has chosen one.
            steps.insert(if is_chosen { 0 } else { steps.len() }, flash);
        }
        offers.extend(steps);
    }
    // Each is a way of its own.
    offers.iter_mut().skip(1).for_each(|step| step.is_alternative = true);
    if backups.len() > MOST_OFFERED {
        offers.push(NextStep::new(Why::SeeBackups, Act::Backups));
    }
    offers
}

/// Returns the steps that write a unit's own backups back, after a backup of what it has now if it can be read. `blocks`
/// are the unit's, `filed` the backups among which they are, and `connected` the units of this host. What can't be read may
/// be among them, so that comes last.
///
/// # Errors
/// [`Interrupted`] on Ctrl-C: the firmware of the backups that are offered is proved first.
pub fn restores(
    unit: &UnitInfo,
    blocks: &UnitBlocks,
    filed: &Filed,
    connected: &[UnitInfo],
    images: &Images,
) -> Result<Vec<NextStep>, Interrupted> {
    let backups = fitting(unit, blocks, None, &filed.backups, connected);
    prove_offered(&backups, images)?;
    let mut steps = offers(&backups, Some((Writes::Backup, &LaterCommands::default())), &unit.location, images);
    for step in &mut steps {
        if let Act::Restore { backs_up, .. } = &mut step.act {
            *backs_up = is_readable(unit.state);
        }
    }
    steps.extend(filed.unread.iter().map(NextStep::make_readable));
    Ok(steps)
}

/// Proves the firmware of the backups that are offered.
///
/// # Errors
/// [`Interrupted`] on Ctrl-C.
pub(super) fn prove_offered(backups: &[FittingBackup], images: &Images) -> Result<(), Interrupted> {
    for Offered { backup, .. } in offered(backups) {
        if let Ok(image) = backup.firmware() {
            images.prove(&image)?;
        }
    }
    Ok(())
}

/// Whether the backup is a virtual unit's and the unit is real.
fn is_foreign(backup: &Backup, location: &Location) -> bool {
    backup.unit.is_virtual() && !location.is_virtual()
}

/// Returns the firmware in this backup, and the permissions that `restore` needs for it; `None` if it would refuse the
/// backup anyway.
fn restoring(backup: &Backup, location: &Location, images: &Images) -> Option<(Firmware, Vec<Permission>)> {
    let known = images.identify(&backup.firmware().ok()?);
    let mut permissions = match images.proof(&known).as_deref() {
        Some(proof) => unproven_permission(proof, location)?,
        None if known.firmware.is_practice() && !location.is_virtual() => vec![Permission::Unproven],
        None => Vec::new(),
    };
    if is_foreign(backup, location) && permissions.is_empty() {
        permissions.push(Permission::Unproven);
    }
    Some((known.firmware.clone(), permissions))
}

/// The permissions that writing this firmware back needs; `None` if that would be refused anyway.
pub(super) fn unproven_permission(proof: &Proof, location: &Location) -> Option<Vec<Permission>> {
    if matches!(proof.rewritable, Rewritable::No(_)) {
        return None;
    }
    let is_unproven = !proof.unproven(location.is_virtual(), false).is_empty();
    Some(if is_unproven { vec![Permission::Unproven] } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{Bank, BodyOffset, CodeAddress, Image, known_blocks};
    use asm2464::flash::Slot;
    use asm2464_chip::practice;

    use super::super::backup::tests::sample_backup;
    use super::*;

    #[test]
    fn a_backup_that_restore_refuses_is_not_offered_and_a_virtual_units_goes_to_a_port_only_as_unproven() {
        let images = Images::from(crate::embedded::patches().unwrap());
        let (port, software): (Location, Location) = ("1-2".parse().unwrap(), "virtual:u".parse().unwrap());
        let [zero, one] = known_blocks();
        let of = |image: &Image| {
            let slot = Slot::of([zero.bytes(), one.bytes()], &image.to_file());
            Backup { blocks: slot.blocks(), parts: slot.parts().map(<[u8]>::to_vec), ..sample_backup() }
        };
        let open = of(&practice::open_image());
        assert_eq!(restoring(&open, &port, &images).unwrap().1, []);
        let mut virtual_units = open.clone();
        virtual_units.unit.device = "virtual:other".to_owned();
        assert_eq!(restoring(&virtual_units, &port, &images).unwrap().1, [Permission::Unproven]);
        assert_eq!(restoring(&virtual_units, &software, &images).unwrap().1, []);
        // E1 does nothing there, so no command could replace it.
        let mut bricks = practice::image();
        assert!(bricks.replace(CodeAddress::new(Bank::Bank1, 0xE89B).unwrap().body_offset(), &[0x22]));
        images.prove(&bricks).unwrap();
        assert!(restoring(&of(&bricks), &port, &images).is_none());
    }

    #[test]
    fn a_backup_whose_firmware_runtimes_refuse_by_its_name_is_written_back_as_unproven() {
        let of = |product: &[u8; 15]| {
            let mut image = practice::open_image();
            let at = image.body().windows(product.len()).position(|bytes| bytes == b"custom practice").unwrap();
            assert!(image.replace(BodyOffset(at as u32), product));
            let images = Images::from(crate::embedded::patches().unwrap());
            images.prove(&image).unwrap();
            let [zero, one] = known_blocks();
            let slot = Slot::of([zero.bytes(), one.bytes()], &image.to_file());
            let backup = Backup { blocks: slot.blocks(), parts: slot.parts().map(<[u8]>::to_vec), ..sample_backup() };
            !restoring(&backup, &"1-2".parse().unwrap(), &images).unwrap().1.is_empty()
        };
        assert_eq!((of(b"custom practice"), of(b"tinier practice")), (false, true));
    }
}
