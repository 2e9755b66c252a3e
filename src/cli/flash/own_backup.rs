//! The commands that give a unit its own identity back from its backups. What fits is [`asmpatch::flash::fitting`]'s.

use std::borrow::Cow;

use crate::flash::backup::Backup;
use crate::flash::backup_folder;
use crate::flash::decide::{Permission, line_change};
use crate::flash::firmware_kind::{Firmware, Rewritable};
use crate::flash::fitting::{Fit, FittingBackup, versions_run};
use crate::patch::Library;
use asm2464::escape::Escape as _;
use asm2464_host::bridge::Location;

use super::recovery::{Action, InvokedCommand, WritingCommand, again, restore};

/// The most backups that commands are printed for.
const MOST: usize = 3;

/// Purpose of writing the image with a backup's blocks.
const WITH_BLOCKS: &str = "write the image with this backup's configuration blocks";

/// Returns the purpose of writing the backup back, with the firmware in it.
fn going_back(backup: &Backup, library: &Library) -> String {
    let firmware = backup.firmware().map(|image| format!(" ({})", Firmware::of(&image, library).to_string().shown()));
    format!("go back to this backup{}", firmware.unwrap_or_default())
}

/// Returns the whole commands for the backups that fit the unit there. `origin` is the command that was run or, for
/// `flash`, would be; `permissions` are what it needs again.
///
/// A backup that is not certain to be the unit's comes with a question. Leaves out backups that `restore` would refuse
/// as damaged.
pub fn offers(
    backups: &[FittingBackup],
    origin: &InvokedCommand,
    permissions: &[Permission],
    location: &Location,
    library: &Library,
) -> Vec<Action> {
    // The command may have named another backup.
    let origin = InvokedCommand { config_from: None, ..origin.clone() };
    let ran = versions_run(backups);
    let loaded = backups.iter().filter_map(|found| Some((found, backup_folder::load(&found.folder).ok()?)));
    loaded
        .take(MOST)
        .flat_map(|(found, backup)| {
            let question = question(found);
            let flash = (origin.command == WritingCommand::Flash).then(|| {
                let mut permissions = permissions.to_vec();
                let mut add = |needed: bool, permission| {
                    if needed && !permissions.contains(&permission) {
                        permissions.push(permission);
                    }
                };
                add(is_foreign(&backup, location), Permission::Unproven);
                // A certain backup has another serial number only if the command gives the unit's present one.
                add(found.replaces_serial && found.fit != Fit::Certain, Permission::CloneIdentity);
                (Cow::from(WITH_BLOCKS), again(&origin, &permissions, location, Some(&found.folder), true))
            });
            let back = restoring(&backup, location, library).map(|mut permissions| {
                permissions.extend(found.replaces_serial.then_some(Permission::CloneIdentity));
                permissions.extend(found.version.and_then(|to| line_change(&ran, to)).map(|_| Permission::OtherLine));
                (going_back(&backup, library).into(), restore(&found.folder, location, &permissions) + " --no-backup")
            });
            flash.into_iter().chain(back).map(move |(purpose, command)| Action {
                purpose,
                question: question.clone(),
                command: Some(command),
                // The command names a folder that is no Unicode, too.
                backup: found.folder.to_str().map(str::to_owned),
            })
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

/// Returns the actions, one per line, for printing as they are: a command broken across lines can't be copied.
pub fn lines(actions: &[Action]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut asked: Option<&str> = None;
    for Action { purpose, question, command, .. } in actions {
        let question = question.as_deref();
        if question != asked {
            lines.extend(question.map(|question| format!("{question}:")));
            asked = question;
        }
        match command {
            Some(command) => lines.extend([format!("{purpose}:"), format!("    {command}")]),
            None => lines.push(purpose.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use crate::flash::backup::{BackedUpUnit, Backup};
    use asm2464::firmware::{FirmwareVersion, Part, known_blocks};
    use asm2464_chip::practice;

    use super::*;

    /// A real unit's backup, which holds the practice image.
    fn backup() -> Backup {
        let file = practice::image().to_file();
        let parts = Part::ALL.map(|part| {
            let mut bytes = part.of(&file).to_vec();
            bytes.resize(part.max_len(), 0xFF);
            bytes
        });
        let unit = BackedUpUnit {
            device: "1-2".to_owned(),
            usb_id: "174C:2464".to_owned(),
            state: "stock".to_owned(),
            serial: "A".to_owned(),
            product: "dock".to_owned(),
            firmware_version: None,
        };
        let blocks = known_blocks().map(|block| *block.bytes());
        Backup { unit, tool: "asmpatch 0.0.0".to_owned(), blocks, parts }
    }

    #[test]
    fn a_certain_backup_is_a_whole_command_and_a_doubtful_one_a_question() {
        let folder = tempfile::tempdir().unwrap();
        let library = crate::embedded::patches().unwrap();
        let path = folder.path().join("b");
        backup_folder::save(&backup(), &path).unwrap();
        let found = |fit| FittingBackup {
            folder: path.clone(),
            serial: "A".to_owned(),
            version: None,
            fit,
            has_identity: true,
            replaces_serial: false,
        };
        let origin = InvokedCommand {
            command: WritingCommand::Flash,
            what: vec!["fw.bin".into()],
            config_from: None,
            backup: Vec::new(),
        };
        let offers = |fit| offers(&[found(fit)], &origin, &[Permission::OtherLine], &"1-2".parse().unwrap(), &library);
        let certain = offers(Fit::Certain);
        let b = crate::shell::path(&path);
        let commands: Vec<&str> = certain.iter().filter_map(|action| action.command.as_deref()).collect();
        assert_eq!(
            commands,
            [
                format!("asmpatch flash fw.bin --config-from {b} --device 1-2 --other-line --no-backup"),
                // The practice image has never run on silicon.
                format!("asmpatch restore {b} --device 1-2 --unproven --no-backup"),
            ]
        );
        assert!(certain.iter().all(|action| action.question.is_none()));
        let doubtful = offers(Fit::PortOnly);
        assert!(doubtful.iter().all(|action| action.question.is_some()));
        let lines = lines(&doubtful);
        assert!(lines[0].starts_with("is ") && lines[0].contains("serial A"), "{lines:?}");
        assert_eq!(lines.len(), 1 + 2 * 2, "the question is printed once: {lines:?}");
        // Its certain backup says that the board ran another line than this one's.
        let of_line =
            |fit, line| FittingBackup { version: Some(FirmwareVersion([0x24, 4, 0x17, line, 0, 0])), ..found(fit) };
        let both = [of_line(Fit::Certain, 0x84), of_line(Fit::PortOnly, 0x85)];
        let both = super::offers(&both, &origin, &[], &"1-2".parse().unwrap(), &library);
        let restores =
            both.iter().filter_map(|action| action.command.as_deref()).filter(|line| line.contains("restore"));
        assert_eq!(restores.map(|line| line.contains("--other-line")).collect::<Vec<_>>(), [false, true]);
        // A damaged backup would be refused.
        std::fs::write(path.join("part-1.bin"), "x").unwrap();
        assert_eq!(offers(Fit::Certain), []);
    }
}
