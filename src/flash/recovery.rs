//! The steps that recover a unit from the state in which a stopped run left it. Pure.
//!
//! This decides the steps. The front end words them as its [`Commands`].

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asm2464::flash::RegisterError;
use asm2464::{Coded as _, Kind};
use asm2464_host::bridge::Location;
use derive_more::Display;
use serde::Serialize;

use super::decide::{Carried, Permission};
use super::error::FlashError;
use super::progress::{FlashStep, StoppedState};
use super::run::Stopped;

/// What a command writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// An image.
    Image,
    /// An image that the user still has to choose.
    AnyImage,
    /// A backup.
    Backup,
    /// Fields of the unit's own configuration, with its own firmware.
    Fields,
}

/// What a printed command does about the backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupFirst {
    /// As in the command that was run.
    AsGiven,
    /// It makes one in this folder, because the folder of the command that was run can't take it.
    Into(PathBuf),
    /// It makes none: the unit can't be read, or has a backup.
    No,
}

/// The front end's commands, each ready for a shell, so that the user can run them. They name the unit by its port.
pub trait Commands: Send + Sync {
    /// What the command that was run writes.
    fn writes(&self) -> Writes;

    /// Whether the configuration blocks came from a backup that the user named.
    fn names_blocks(&self) -> bool;

    /// The command that was run, with these permissions. `blocks_from` is the backup to take the configuration blocks
    /// from, in place of the one that the command named.
    fn again(
        &self,
        location: &Location,
        permissions: &[Permission],
        blocks_from: Option<&Path>,
        backup: &BackupFirst,
    ) -> String;

    /// Writes a backup back. `backs_up` says whether it backs up the unit first.
    fn restore(&self, location: &Location, folder: &Path, permissions: &[Permission], backs_up: bool) -> String;

    /// Lists the unit.
    fn list(&self, location: &Location) -> String;

    /// Measures the unit.
    fn bench(&self, location: &Location) -> String;

    /// Shows the unit's configuration.
    fn fields(&self, location: &Location) -> String;

    /// Says how to power-cycle the unit by hand.
    fn replug(&self, location: &Location) -> &'static str;

    /// Says what the user can still do for a unit without a backup that is certain to be its own.
    fn without_backup(&self) -> &'static str;
}

/// One step of a recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Action {
    /// What the step is for.
    pub purpose: Cow<'static, str>,
    /// The question that you must have answered with yes before you run the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The command, ready for a shell; `None` for something to do by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The folder of the earlier backup that the command uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
}

impl Action {
    /// A step that a command takes.
    pub fn run(purpose: impl Into<Cow<'static, str>>, command: String) -> Self {
        Self { command: Some(command), ..Self::by_hand(purpose) }
    }

    /// A step that the user takes.
    pub fn by_hand(purpose: impl Into<Cow<'static, str>>) -> Self {
        Self { purpose: purpose.into(), question: None, command: None, backup: None }
    }
}

/// Returns the steps that recover a unit left in this state, after a run that met this obstacle.
pub fn actions(standing: &Standing, ways: &Ways, obstacle: Option<Obstacle>) -> Vec<Action> {
    let Standing { location, left, backup, .. } = standing;
    let Ways { commands, carried, offers, backup_first } = ways;
    let backup = backup.as_deref();
    // Offers are for a run without the unit's own blocks.
    let offers = if backup.is_some() || commands.names_blocks() { &[][..] } else { offers };
    let again = |purpose: &'static str, backup_first: &BackupFirst| {
        let has_no_other = *backup_first == BackupFirst::No && !commands.names_blocks();
        let blocks_from = backup.filter(|_| has_no_other && commands.writes() == Writes::Image);
        Action::run(purpose, commands.again(location, &carried.again, blocks_from, backup_first))
    };
    let (certain, doubtful): (Vec<Action>, Vec<Action>) =
        offers.iter().cloned().partition(|offer| offer.question.is_none());
    let back = |purpose: &'static str| {
        let (folder, permissions) = backup.zip(carried.back.as_ref())?;
        Some(Action::run(purpose, commands.restore(location, folder, permissions, false)))
    };
    let replug = Action::by_hand(commands.replug(location));
    let mut actions = Vec::new();
    if obstacle == Some(Obstacle::Gone)
        && !matches!(left, StoppedState::Verified | StoppedState::Restarted | StoppedState::OtherIdentity)
    {
        actions.push(replug.clone());
    }
    match left {
        StoppedState::Untouched | StoppedState::Unprotected => actions.push(again("go on", backup_first)),
        // Only the backup still has the unit's own firmware.
        StoppedState::Incomplete | StoppedState::Complete | StoppedState::BootLoader | StoppedState::Unproven
            if commands.writes() == Writes::Fields =>
        {
            match back("go back to what it was") {
                Some(back) => actions.push(back),
                None if certain.is_empty() => {
                    actions.extend([Action::by_hand(commands.without_backup())].into_iter().chain(doubtful));
                }
                None => actions.extend(certain),
            }
            actions.push(again("then set it again", backup_first));
        }
        StoppedState::Incomplete | StoppedState::Complete | StoppedState::BootLoader | StoppedState::Unproven
            if obstacle == Some(Obstacle::KeepsOld) && back("").is_some() =>
        {
            actions.extend(back("go back to what it was"));
            actions.push(again("or go on", &BackupFirst::No));
        }
        StoppedState::Incomplete | StoppedState::Complete | StoppedState::BootLoader | StoppedState::Unproven => {
            // If it went on without the backup's blocks, the unit would lose its identity.
            if certain.is_empty() {
                actions.push(again("go on", &BackupFirst::No));
            }
            actions.extend(certain.into_iter().chain(back("or go back to what it was")).chain(doubtful));
        }
        StoppedState::Verified | StoppedState::Restarted | StoppedState::OtherIdentity => {
            actions.push(replug);
            actions.push(Action::run("then see what it is", commands.list(location)));
            actions.extend(back("or go back to what it was"));
        }
    }
    actions
}

/// A run that stopped, and how to recover from it.
#[derive(Debug, Display)]
#[display("{}: {error} (at: {})", standing.location, standing.during)]
pub struct FlashFailure {
    /// The error itself.
    pub error: FlashError,
    /// How far the run had come.
    pub standing: Standing,
    /// The steps that recover the unit.
    pub actions: Vec<Action>,
}

/// How far a run has come with a unit.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The unit's port.
    pub location: Location,
    /// The step.
    pub during: FlashStep,
    /// The state that the unit is in.
    pub left: StoppedState,
    /// Its backup.
    pub backup: Option<PathBuf>,
}

impl From<&Stopped> for Standing {
    fn from(Stopped { during, left, report, .. }: &Stopped) -> Self {
        Self { location: report.location.clone(), during: *during, left: *left, backup: report.backup.clone() }
    }
}

/// What the commands that recover a unit need from the run, whatever the unit's state.
#[derive(Clone)]
pub struct Ways {
    /// The front end's commands.
    pub commands: Arc<dyn Commands>,
    /// The permissions that the commands need.
    pub carried: Carried,
    /// The steps from earlier backups, for a run that takes no blocks from a backup.
    pub offers: Vec<Action>,
    /// What the command that goes on with an unwritten unit does about the backup.
    pub backup_first: BackupFirst,
}

impl FlashFailure {
    /// Describes the failure of a run.
    pub fn new(error: FlashError, standing: Standing, ways: &Ways) -> Self {
        let actions = actions(&standing, ways, Obstacle::of(&error));
        Self { error, standing, actions }
    }
}

impl std::error::Error for FlashFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message already contains the error itself.
        self.error.source()
    }
}

/// What stands in the way of going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The unit left the bus or no longer answers, so it has to be plugged in again first.
    Gone,
    /// A sector that can't be erased holds its old contents, so going back to the old firmware is more likely to work.
    KeepsOld,
}

impl Obstacle {
    fn of(error: &FlashError) -> Option<Self> {
        match error {
            FlashError::Registers(RegisterError::NotErased { at, .. }) if at.0 != 0 => Some(Self::KeepsOld),
            error => matches!(error.kind(), Kind::Gone | Kind::NoAnswer).then_some(Self::Gone),
        }
    }
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::FlashAddress;

    use super::*;

    #[test]
    fn the_old_firmware_is_the_way_out_where_a_sector_keeps_its_old_contents_but_not_where_the_header_is() {
        for (at, expected) in [(0, None), (0x1000, Some(Obstacle::KeepsOld))] {
            let error = RegisterError::NotErased { at: FlashAddress(at), count: 1 };
            assert_eq!(Obstacle::of(&FlashError::Registers(error)), expected);
        }
    }
}
