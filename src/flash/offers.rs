//! The steps that give a unit its own identity back from a backup that [`fitting`](super::fitting) has found.

use asm2464::escape::Escape as _;
use asm2464_host::bridge::Location;

use super::backup::Backup;
use super::backup_folder;
use super::decide::{Permission, line_change};
use super::firmware_kind::{Firmware, Rewritable};
use super::fitting::{Fit, FittingBackup, versions_run};
use super::recovery::{Action, BackupFirst, Commands, Writes};
use crate::patch::Library;

/// Maximum number of backups that are offered.
const MOST: usize = 3;

/// Purpose of writing the image with a backup's blocks.
const WITH_BLOCKS: &str = "write the image with this backup's configuration blocks";

/// Returns the purpose of writing the backup back, with the firmware in it.
fn going_back(backup: &Backup, library: &Library) -> String {
    let firmware = backup.firmware().map(|image| format!(" ({})", Firmware::of(&image, library).to_string().shown()));
    format!("go back to this backup{}", firmware.unwrap_or_default())
}

/// Returns the steps from the backups that fit the unit at `location`. `permissions` are what the command that was run
/// needs to be run again.
///
/// If it is not certain that a backup is the unit's, its steps come with a question. Leaves out damaged backups.
pub fn offers(
    backups: &[FittingBackup],
    commands: &dyn Commands,
    permissions: &[Permission],
    location: &Location,
    library: &Library,
) -> Vec<Action> {
    let ran = versions_run(backups);
    let loaded = backups.iter().filter_map(|found| Some((found, backup_folder::load(&found.folder).ok()?)));
    loaded
        .take(MOST)
        .flat_map(|(found, backup)| {
            let writes = commands.writes();
            let flash = matches!(writes, Writes::Image | Writes::AnyImage).then(|| {
                let mut permissions = permissions.to_vec();
                let mut add = |needed: bool, permission| {
                    if needed && !permissions.contains(&permission) {
                        permissions.push(permission);
                    }
                };
                add(is_foreign(&backup, location), Permission::Unproven);
                // If a certain backup has another serial number, the command sets the one that the unit shows now.
                add(found.replaces_serial && found.fit != Fit::Certain, Permission::CloneIdentity);
                let command = commands.again(location, &permissions, Some(&found.folder), &BackupFirst::No);
                Action::run(WITH_BLOCKS, command)
            });
            let back = restoring(&backup, location, library).map(|mut permissions| {
                permissions.extend(found.replaces_serial.then_some(Permission::CloneIdentity));
                permissions.extend(found.version.and_then(|to| line_change(&ran, to)).map(|_| Permission::OtherLine));
                let command = commands.restore(location, &found.folder, &permissions, false);
                Action::run(going_back(&backup, library), command)
            });
            // Going back needs no choice of an image, so it comes first where an image is still to be chosen.
            let steps = if writes == Writes::AnyImage { [back, flash] } else { [flash, back] };
            let (question, folder) = (question(found), found.folder.to_str().map(str::to_owned));
            // If the folder's path is not Unicode, only the command names it.
            let of_backup = move |step| Action { question: question.clone(), backup: folder.clone(), ..step };
            steps.into_iter().flatten().map(of_backup)
        })
        .collect()
}

fn question(found: &FittingBackup) -> Option<String> {
    let FittingBackup { folder, serial, fit, .. } = found;
    (*fit != Fit::Certain)
        .then(|| format!("is {} (serial {}) this unit's backup? {fit}. Only if it is", folder.shown(), serial.shown()))
}

/// Whether the backup is a virtual unit's and the unit is real.
fn is_foreign(backup: &Backup, location: &Location) -> bool {
    backup.unit.is_virtual() && !location.is_virtual()
}

/// Returns the permissions that `restore` needs for this backup; `None` if it would refuse the backup anyway.
fn restoring(backup: &Backup, location: &Location, library: &Library) -> Option<Vec<Permission>> {
    let image = backup.firmware().ok()?;
    let is_practice = || Firmware::of(&image, library).is_practice() && !location.is_virtual();
    match Rewritable::of(&image) {
        Rewritable::No(_) => None,
        Rewritable::Unknown => Some(vec![Permission::Unproven]),
        Rewritable::Yes if is_foreign(backup, location) || is_practice() => Some(vec![Permission::Unproven]),
        Rewritable::Yes => Some(Vec::new()),
    }
}
