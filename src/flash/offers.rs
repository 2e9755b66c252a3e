//! The steps that give a unit its own identity back from a backup that [`fitting`](super::fitting) has found.

use asm2464_host::bridge::Location;

use super::backup::Backup;
use super::backup_folder;
use super::decide::{Permission, line_change};
use super::fitting::{Fit, FittingBackup, versions_run};
use super::recovery::{Act, BackupFirst, Step, Why, Writes};
use crate::image::{Images, Rewritable};

/// Maximum number of backups that are offered.
pub const MOST: usize = 3;

/// Returns the steps from the backups that fit the unit at `location`. `permissions` are what the command that was run
/// needs to be run again.
///
/// If it is not certain that a backup is the unit's, its steps come with a question. Leaves out damaged backups, and
/// those whose firmware this run has proved to be unfit. Proves nothing: a command that writes a backup proves it first.
pub fn offers(
    backups: &[FittingBackup],
    writes: Writes,
    permissions: &[Permission],
    location: &Location,
    images: &Images,
) -> Vec<Step> {
    let ran = versions_run(backups);
    let loaded = backups.iter().filter_map(|found| Some((found, backup_folder::load(&found.folder).ok()?)));
    let mut offers = Vec::new();
    for (found, backup) in loaded.take(MOST) {
        let only_if = (found.fit != Fit::Certain).then(|| found.clone());
        let mut steps = Vec::new();
        if let Some(mut permissions) = restoring(&backup, location, images) {
            permissions.extend(found.replaces_serial.then_some(Permission::CloneIdentity));
            permissions.extend(found.version.and_then(|to| line_change(&ran, to)).map(|_| Permission::OtherLine));
            let firmware = backup.firmware().ok().map(|image| images.identify(&image).firmware.clone());
            let act = Act::Restore { folder: found.folder.clone(), permissions, backs_up: false };
            steps.push(Step { why: Why::GoBackTo(firmware), only_if: only_if.clone(), act });
        }
        if matches!(writes, Writes::Image | Writes::AnyImage) {
            let mut permissions = permissions.to_vec();
            let mut add = |needed: bool, permission| {
                if needed && !permissions.contains(&permission) {
                    permissions.push(permission);
                }
            };
            add(is_foreign(&backup, location), Permission::Unproven);
            // If a certain backup has another serial number, the command sets the one that the unit shows now.
            add(found.replaces_serial && found.fit != Fit::Certain, Permission::CloneIdentity);
            let blocks_from = Some(found.folder.clone());
            let act = Act::Again { permissions, blocks_from, backup: BackupFirst::No };
            let flash = Step { why: Why::WithBlocks, only_if, act };
            // Going back needs no choice of an image, so it comes first where an image is still to be chosen.
            let at = if writes == Writes::AnyImage { steps.len() } else { 0 };
            steps.insert(at, flash);
        }
        offers.extend(steps);
    }
    offers
}

/// Whether the backup is a virtual unit's and the unit is real.
fn is_foreign(backup: &Backup, location: &Location) -> bool {
    backup.unit.is_virtual() && !location.is_virtual()
}

/// Returns the permissions that `restore` needs for this backup; `None` if it would refuse the backup anyway.
fn restoring(backup: &Backup, location: &Location, images: &Images) -> Option<Vec<Permission>> {
    let known = images.identify(&backup.firmware().ok()?);
    let proof = images.proof(&known);
    let unproven = match proof.as_ref().map(|proof| &proof.rewritable) {
        Some(Rewritable::No(_)) => return None,
        Some(Rewritable::Unknown) => true,
        Some(Rewritable::Yes) | None => {
            is_foreign(backup, location) || (known.firmware.is_practice() && !location.is_virtual())
        }
    };
    Some(if unproven { vec![Permission::Unproven] } else { Vec::new() })
}
