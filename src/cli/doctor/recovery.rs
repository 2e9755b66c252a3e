//! The backups that give a unit in its boot loader its firmware and its own identity again.

use std::path::Path;

use crate::doctor::Diagnosis;
use crate::flash::backup_folder;
use crate::flash::fitting::fitting;
use crate::flash::offers::offers;
use crate::flash::recovery::{InvokedCommand, Writes};
use crate::image::Images;
use crate::shell;
use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464_host::bridge::UnitInfo;

use crate::cli::backup_place::BackupPlace;
use crate::cli::flash::commands::{WordedStep, lines};

/// The backups of a unit in its boot loader, as commands.
pub(in crate::cli) struct Recovery {
    /// The commands, in the order in which to try them.
    pub(super) steps: Vec<WordedStep>,
    /// What to do without a backup, as text.
    otherwise: String,
}

impl Recovery {
    /// Looks for the unit's backups where `flash` and `backup` put them; `None` unless the unit is in its boot loader.
    /// `suffix` is what each command needs to find the unit.
    pub(in crate::cli) fn of(unit: &UnitInfo, images: &Images, suffix: &str) -> Option<Self> {
        if unit.state != BridgeState::BootLoader {
            return None;
        }
        let device = unit.location.to_string();
        let flash = format!("`asmpatch flash IMAGE --device {} --no-backup{suffix}`", shell::word(&device));
        Some(match BackupPlace::default().folder() {
            Ok(folder) => Self::from_folder(unit, &folder, images, &flash, suffix),
            Err(error) => {
                Self { steps: Vec::new(), otherwise: format!("{error}. {flash}, with the image of your choice") }
            }
        })
    }

    fn from_folder(unit: &UnitInfo, folder: &Path, images: &Images, flash: &str, suffix: &str) -> Self {
        let invoked = InvokedCommand {
            writes: Writes::AnyImage,
            what: vec!["IMAGE".into()],
            config_from: None,
            backup: Vec::new(),
            suffix: suffix.to_owned(),
        };
        let filed = match backup_folder::filed(folder) {
            Ok(filed) => filed,
            Err(error) => {
                let why = format!("asmpatch couldn't look for its backups: {}", error.to_string().shown());
                return Self { steps: Vec::new(), otherwise: format!("{why}. Without one: {flash}") };
            }
        };
        let location = &unit.location;
        let offers = offers(&fitting(unit, &[None, None], None, &filed), invoked.writes, &[], location, images);
        let steps = WordedStep::each(&offers, &invoked, location);
        let place = folder.shown();
        let otherwise = if steps.is_empty() {
            format!(
                "no backup in {place} fits this unit. If its backups are elsewhere, set ASMPATCH_BACKUP_DIR to their folder \
                 and run this again. Without one: {flash}, with the image of your choice"
            )
        } else {
            format!("if no backup is this unit's: {flash}, which gives it the identity that any unit gets")
        };
        Self { steps, otherwise }
    }

    /// The commands as notes on the unit, and what to do if it is not certain that one of them is right.
    pub(in crate::cli) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.steps.iter().map(WordedStep::note).collect();
        if self.steps.iter().all(|step| step.question.is_some()) {
            notes.push(self.otherwise.clone());
        }
        notes
    }

    /// Puts the commands into the diagnosis, in place of its advice on the firmware.
    pub(super) fn advise(&self, diagnosis: &mut Diagnosis<String>) {
        let is_certain = self.steps.iter().any(|step| step.question.is_none());
        let mut advice = lines(&self.steps);
        advice.extend((!is_certain).then(|| self.otherwise.clone()));
        if let Some(line) = diagnosis.lines.iter_mut().find(|line| line.topic == "firmware") {
            line.advice = Some(advice.join("\n"));
        }
    }
}
