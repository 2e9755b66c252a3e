//! The steps that recover a unit from the state in which a stopped run left it, as data. Pure.
//!
//! A [`NextStep`] says why, under which doubt, and what to do. The front end words it, with the unit's port and the
//! command that was run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use asm2464::flash::RegisterError;
use asm2464::{Coded as _, Kind};
use asm2464_host::bridge::Location;
use derive_more::Display;

use super::backup_folder::UnreadBackup;
use super::consent::Permission;
use super::error::FlashError;
use super::fitting::FittingBackup;
use super::plan::ChosenSerial;
use super::progress::{FlashEvent, FlashStep, StoppedState};
use crate::advice::{Applicability, Hands};
use crate::image::Firmware;

/// What a command writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// An image.
    Image,
    /// A backup.
    Backup,
    /// Fields of the unit's own configuration, with its own firmware.
    Fields,
}

/// An image, as a command names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageRef {
    /// The file that has it.
    File(PathBuf),
    /// The ID of a known image.
    Known(String),
}

/// The command that was run, as far as the steps after it depend on it. The front end keeps its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvokedCommand {
    /// What it writes.
    pub writes: Writes,
    /// The image that it writes, alone; `None` if that is in no file of its own.
    pub image: Option<ImageRef>,
    /// Whether it names a backup that provides the configuration blocks.
    pub names_blocks: bool,
    /// Whether it backs the unit up first.
    pub backs_up: bool,
}

/// What a printed command does about the backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupFirst {
    /// As in the command that was run.
    AsGiven,
    /// It makes one in this folder, because the folder of the command that was run can't take it.
    Into(PathBuf),
    /// It makes one where only the user knows: neither that folder nor any other known one can take it.
    Elsewhere,
    /// It makes none: the unit can't be read, or has a backup.
    No,
}

/// A next step for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    /// What it is for.
    pub why: Why,
    /// The step is only right if this backup is the unit's own, which the user has to know.
    pub only_if: Option<FittingBackup>,
    /// What to do.
    pub act: Act,
    /// Whether it is another way than the step before, so that only one of the two is taken.
    pub is_alternative: bool,
}

/// What a step is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// To keep faults from coming again: somebody has set them for this virtual unit.
    WithoutFaults,
    /// To go on with what stopped.
    GoOn,
    /// The same, in place of the step before.
    OrGoOn,
    /// To set the fields again, after the step before.
    SetAgain,
    /// To have again what the unit had before the run.
    GoBack,
    /// The same, in place of the step before.
    OrGoBack,
    /// To have a backup's firmware again.
    GoBackTo {
        /// When the unit was read, as far as that is known.
        taken: Option<SystemTime>,
        /// The firmware.
        firmware: Firmware,
        /// Whether no other backup of the unit is older.
        is_oldest: bool,
    },
    /// To choose among more backups than the steps before go back to.
    SeeBackups,
    /// To write the image with the configuration blocks of an earlier backup.
    WithBlocks,
    /// To have the backup's firmware, and keep the unit's own identity.
    FirmwareAlone,
    /// The same, because no earlier backup is the unit's own.
    OnlyFirmware,
    /// To write a unit that can't be backed up.
    WithoutBackup,
    /// To write a unit that shows a serial number, and keep that. Its USB4 identity is lost.
    KeepsSerial,
    /// To write a board that is blank, if it is a new one, as only the user knows.
    NewBoard,
    /// As the step before, with another image.
    OrOtherImage,
    /// To look at a backup that may be the unit's.
    SeeUnread,
    /// To see what the unit is, after the step before.
    See,
    /// To read the unit back, once it is there.
    ReadBack,
    /// To see its fields.
    SeeFields,
    /// To see whether a GPU runtime can start.
    CanStart,
    /// To measure it, after the step before.
    Measure,
}

/// What to do in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Run the command that was run once more.
    Again {
        /// The permissions that it needs.
        permissions: Vec<Permission>,
        /// The serial number that it gives the unit, in place of what the command says.
        serial: Option<String>,
        /// The backup to take the configuration blocks from, in place of the one that the command named.
        blocks_from: Option<PathBuf>,
        /// What it does about the backup.
        backup: BackupFirst,
    },
    /// Write a backup back.
    Restore {
        /// The backup's folder.
        folder: PathBuf,
        /// The permissions that this needs.
        permissions: Vec<Permission>,
        /// Whether to back up the unit first.
        backs_up: bool,
    },
    /// Write an image, for a unit that no command was to write, or without the configuration blocks that the command
    /// takes from a backup.
    Flash {
        /// The image.
        image: ImageRef,
        /// The permissions that this needs.
        permissions: Vec<Permission>,
        /// The backup to take the configuration blocks from.
        blocks_from: Option<PathBuf>,
        /// Whether to back up the unit first.
        backs_up: bool,
    },
    /// List it.
    List,
    /// List the backups of all units.
    Backups,
    /// Take these keys out of the virtual unit's bridge.toml.
    TakeOut(Vec<&'static str>),
    /// Ask what keeps a GPU runtime from starting.
    Doctor,
    /// Measure it.
    Bench,
    /// Compare its flash with this image.
    Verify(ImageRef),
    /// Show its configuration.
    Fields,
    /// Make this backup readable, by hand.
    MakeReadable(UnreadBackup),
    /// Do something by hand.
    Hands(Hands),
}

impl NextStep {
    /// A step that is right without a doubt.
    pub fn new(why: Why, act: Act) -> Self {
        let is_alternative = matches!(why, Why::OrGoOn | Why::OrGoBack | Why::OrOtherImage);
        Self { why, only_if: None, act, is_alternative }
    }

    /// The step that writes this run's backup back, which takes what its `firmware` needs and what its `identity` does.
    pub(super) fn back(
        why: Why,
        folder: PathBuf,
        firmware: &[Permission],
        identity: &[Permission],
        backs_up: bool,
    ) -> Self {
        let permissions: BTreeSet<Permission> = firmware.iter().chain(identity).copied().collect();
        Self::new(why, Act::Restore { folder, permissions: permissions.into_iter().collect(), backs_up })
    }

    /// The step that lets asmpatch look at what may be the unit's backup.
    pub fn make_readable(unread: &UnreadBackup) -> Self {
        Self::new(Why::SeeUnread, Act::MakeReadable(unread.clone()))
    }

    /// Whether it is one for this unit for certain: it needs no answer, and does more than look for backups.
    pub fn is_sure(&self) -> bool {
        self.only_if.is_none() && !matches!(self.act, Act::Backups | Act::MakeReadable(_))
    }

    /// Whether it uses a backup that was found.
    pub const fn uses_backup(&self) -> bool {
        !matches!(self.act, Act::MakeReadable(_))
    }

    /// Who can take it.
    pub fn applicability(&self) -> Applicability {
        match &self.act {
            Act::Hands(_) | Act::MakeReadable(_) => return Applicability::Hands,
            Act::Again { backup: BackupFirst::Elsewhere, .. } => return Applicability::NeedsValue,
            _ => {}
        }
        let clones = match &self.act {
            Act::Again { permissions, .. } | Act::Restore { permissions, .. } | Act::Flash { permissions, .. } => {
                permissions.iter().any(|permission| matches!(permission, Permission::CloneIdentity(_)))
            }
            _ => false,
        };
        // Only the user knows whether a backup is the unit's, and whether a board is new. A program that took two ways
        // would undo with the second what it did with the first.
        let is_users = matches!(self.why, Why::KeepsSerial | Why::NewBoard) || self.is_alternative;
        if self.only_if.is_some() || is_users || clones {
            return Applicability::IfYes;
        }
        Applicability::Certain
    }
}

impl LaterCommands {
    /// The command that was run, once more, for this unit, which nothing was written to.
    pub fn now(&self, backup: BackupFirst) -> Act {
        self.act(&self.now, None, backup)
    }

    /// The same, for a unit to which the write has begun.
    pub fn again(&self, backup: BackupFirst) -> Act {
        self.act(&self.again, None, backup)
    }

    /// The same, with the configuration blocks of this backup.
    pub fn with_blocks_from(&self, folder: PathBuf, backup: BackupFirst) -> Act {
        self.act(&self.with_blocks, Some(folder), backup)
    }

    /// A serial number that yields is not repeated with the blocks of a backup, which have the unit's own.
    fn act(&self, permissions: &[Permission], blocks_from: Option<PathBuf>, backup: BackupFirst) -> Act {
        let serial = self.serial.as_ref().filter(|serial| blocks_from.is_none() || !serial.yields);
        let serial = serial.map(|serial| serial.text.clone());
        Act::Again { permissions: permissions.to_vec(), serial, blocks_from, backup }
    }
}

/// A unit that is being written: how far the run has come with it, and what its recovery takes.
#[derive(Debug, Clone)]
pub struct WrittenUnit {
    /// The unit's port.
    pub location: Location,
    /// The step that the run is at.
    pub during: FlashStep,
    /// The state that the unit is in.
    pub left: StoppedState,
    /// Its backup by this run.
    pub backup: Option<PathBuf>,
    /// The permissions that the backup's firmware needs to be written back; `None` if that would be refused.
    pub restoring: Option<Vec<Permission>>,
    /// The command that was run.
    pub invoked: Arc<InvokedCommand>,
    /// What the commands after it need.
    pub later: LaterCommands,
    /// The steps from earlier backups, for a run that takes no blocks from a backup.
    pub offers: Vec<NextStep>,
    /// The faults that come again because they are set: keys of a virtual unit's bridge.toml.
    pub set_faults: Vec<&'static str>,
}

impl WrittenUnit {
    /// Notes how far the run has come.
    pub fn note(&mut self, event: FlashEvent<'_>) {
        match event {
            FlashEvent::Begin(step) => self.during = step,
            FlashEvent::Stands { left, location, backup } => {
                self.left = left;
                self.location = location.clone();
                self.backup = backup.map(ToOwned::to_owned);
            }
            FlashEvent::BackupProved(restoring) => self.restoring = restoring.map(<[Permission]>::to_vec),
            _ => {}
        }
    }

    /// Returns the steps that recover the unit after this error. `backup_first` is what going on with an unwritten unit
    /// does about its backup.
    fn steps(&self, error: &FlashError, backup_first: BackupFirst) -> Vec<NextStep> {
        let writes_fields = self.invoked.writes == Writes::Fields;
        let (mut certain, mut doubtful) = (Vec::new(), Vec::new());
        // Offers are for a run without the unit's own blocks.
        if self.backup.is_none() && !self.invoked.names_blocks {
            (certain, doubtful) = self.offers.iter().cloned().partition(NextStep::is_sure);
        }
        let mut steps = Vec::new();
        if !self.set_faults.is_empty() && is_the_units(error) {
            steps.push(NextStep::new(Why::WithoutFaults, Act::TakeOut(self.set_faults.clone())));
        }
        match self.left {
            StoppedState::Verified | StoppedState::Restarted | StoppedState::OtherIdentity => {
                steps.extend(self.replug());
                steps.push(NextStep::new(Why::See, Act::List));
                steps.extend(self.back(Why::OrGoBack));
                return steps;
            }
            // It has to be plugged in again before any command finds it.
            _ if is_gone(error) => steps.extend(self.replug()),
            _ => {}
        }
        match self.left {
            // The same command would meet the same protection.
            StoppedState::Untouched if stays_protected(error) => {}
            StoppedState::Untouched | StoppedState::Unprotected => steps.push(self.again(Why::GoOn, backup_first)),
            // Only the backup still has the unit's own firmware.
            _ if writes_fields => {
                match self.back(Why::GoBack) {
                    Some(back) => steps.push(back),
                    None if certain.is_empty() => {
                        steps.push(NextStep::new(Why::GoBack, Act::Hands(Hands::FindBackup)));
                        steps.extend(doubtful);
                    }
                    None => steps.extend(certain),
                }
                steps.push(self.again(Why::SetAgain, backup_first));
            }
            _ if keeps_old(error) && self.back(Why::GoBack).is_some() => {
                steps.extend(self.back(Why::GoBack));
                steps.push(self.again(Why::OrGoOn, BackupFirst::No));
            }
            _ => {
                // If it went on without the backup's blocks, the unit would lose its identity.
                if certain.is_empty() {
                    let backup = if self.can_be_read() { backup_first } else { BackupFirst::No };
                    steps.push(self.again(Why::GoOn, backup));
                }
                steps.extend(certain);
                steps.extend(self.back(Why::OrGoBack));
                steps.extend(doubtful);
            }
        }
        steps
    }

    /// The step that powers the unit up again; `None` for a virtual one, which any command powers up.
    fn replug(&self) -> Option<NextStep> {
        if self.location.is_virtual() { None } else { Some(NextStep::new(Why::GoOn, Act::Hands(Hands::Replug))) }
    }

    /// Whether the unit runs what was written once it has power, and so can be backed up. A unit whose flash may hold two
    /// images mixed can't be, and must not be held up by that.
    const fn can_be_read(&self) -> bool {
        use StoppedState::{OtherIdentity, Restarted, Unproven, Verified};
        matches!(self.left, Verified | Restarted | OtherIdentity | Unproven)
    }

    fn again(&self, why: Why, backup: BackupFirst) -> NextStep {
        let InvokedCommand { writes, names_blocks, backs_up, .. } = &*self.invoked;
        let backup = if *backs_up { backup } else { BackupFirst::No };
        let is_unwritten = matches!(self.left, StoppedState::Untouched | StoppedState::Unprotected);
        let act = match &self.backup {
            // The fields are set on the unit as it was.
            _ if is_unwritten || why == Why::SetAgain => self.later.now(backup),
            Some(folder) if *writes == Writes::Image && !names_blocks => {
                self.later.with_blocks_from(folder.clone(), backup)
            }
            _ => self.later.again(backup),
        };
        NextStep::new(why, act)
    }

    fn back(&self, why: Why) -> Option<NextStep> {
        let (folder, restoring) = (self.backup.clone()?, self.restoring.as_ref()?);
        Some(NextStep::back(why, folder, restoring, &self.later.back, self.can_be_read()))
    }
}

/// A run that stopped, and how to recover from it.
#[derive(Debug, Display)]
#[display("{}: {error} (at: {})", unit.location, unit.during)]
pub struct FlashFailure {
    /// The error itself.
    pub error: FlashError,
    /// The unit, as it was left.
    pub unit: WrittenUnit,
    /// The steps that recover it, in the order in which to try them.
    pub steps: Vec<NextStep>,
}

impl FlashFailure {
    /// Describes the failure of a run with a unit. `backup_first` is what the command that goes on with an unwritten
    /// unit does about the backup.
    pub fn new(error: FlashError, unit: WrittenUnit, backup_first: BackupFirst) -> Self {
        let steps = unit.steps(&error, backup_first);
        Self { error, unit, steps }
    }
}

impl std::error::Error for FlashFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message already contains the error itself.
        self.error.source()
    }
}

/// Whether the unit left the bus or no longer answers.
fn is_gone(error: &FlashError) -> bool {
    matches!(error.kind(), Kind::Gone | Kind::NoAnswer)
}

/// Whether the unit failed, not the system or the user.
fn is_the_units(error: &FlashError) -> bool {
    use Kind::{Device, Gone, NoAnswer, Rejected, Short, Wire};
    matches!(error.kind(), Gone | NoAnswer | Short | Rejected | Wire | Device)
}

/// Whether nothing can be written, because the flash's protection can't be cleared.
const fn stays_protected(error: &FlashError) -> bool {
    matches!(error, FlashError::Protected | FlashError::Registers(RegisterError::Protected { .. }))
}

/// Whether a sector that can't be erased holds its old contents, so that going back to the old firmware is more likely
/// to work. Every firmware writes the first one.
const fn keeps_old(error: &FlashError) -> bool {
    matches!(error, FlashError::Registers(RegisterError::NotErased { at, .. }) if at.0 != 0)
}

/// What the commands after a run need for one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaterCommands {
    /// The permissions that the command needs to be run again while nothing is written.
    pub now: Vec<Permission>,
    /// The permissions that it needs once a write has begun.
    pub again: Vec<Permission>,
    /// The same, if it takes the configuration blocks from a backup of the unit.
    pub with_blocks: Vec<Permission>,
    /// The serial number that the run chose for the unit, with which the command is run again.
    pub serial: Option<ChosenSerial>,
    /// Whether the command gives the unit a serial number, so that the one in a backup's blocks doesn't count.
    pub gives_serial: bool,
    /// The permissions that writing this run's backup back needs after a stop, besides those that its firmware needs.
    pub back: Vec<Permission>,
    /// The same, if the unit has what was planned for it.
    pub back_when_done: Vec<Permission>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use asm2464::Failure;
    use asm2464::firmware::FlashAddress;

    use super::*;

    #[test]
    fn the_old_firmware_is_the_way_out_if_a_sector_does_not_erase_unless_it_is_the_first() {
        for (at, expected) in [(0, false), (0x1000, true)] {
            let error = RegisterError::NotErased { at: FlashAddress(at), count: 1 };
            assert_eq!(keeps_old(&FlashError::Registers(error)), expected);
        }
    }

    #[test]
    fn a_protection_that_stays_is_known_by_either_way_to_the_flash() {
        let by_registers = FlashError::Registers(RegisterError::Protected { status: 0x1C, tries: 5 });
        assert!(stays_protected(&FlashError::Protected) && stays_protected(&by_registers));
        assert!(!stays_protected(&FlashError::changed("identity")));
    }

    #[test]
    fn a_sector_that_does_not_erase_makes_the_way_back_the_first_step_if_there_is_one() {
        let steps = |restoring: Option<Vec<Permission>>| {
            let unit = WrittenUnit { backup: Some("b".into()), restoring, ..written("3-1") };
            let error = RegisterError::NotErased { at: FlashAddress(0x1000), count: 1 };
            let steps = FlashFailure::new(FlashError::Registers(error), unit, BackupFirst::AsGiven).steps;
            steps.into_iter().map(|step| (step.why, step.act)).collect::<Vec<_>>()
        };
        let back = Act::Restore { folder: "b".into(), permissions: Vec::new(), backs_up: false };
        let again = LaterCommands::default().with_blocks_from("b".into(), BackupFirst::No);
        assert_eq!(steps(Some(Vec::new())), [(Why::GoBack, back), (Why::OrGoOn, again.clone())]);
        assert_eq!(steps(None), [(Why::GoOn, again)]);
    }

    #[test]
    fn a_unit_of_a_run_is_where_its_last_event_left_it() {
        let mut unit = written("3-1");
        unit.note(FlashEvent::Begin(FlashStep::WriteSectors));
        let location = "3-2".parse().unwrap();
        let backup = Some(Path::new("b"));
        unit.note(FlashEvent::Stands { left: StoppedState::Complete, location: &location, backup });
        unit.note(FlashEvent::BackupProved(Some(&[Permission::Unproven])));
        assert_eq!(
            (unit.during, unit.left, unit.location),
            (FlashStep::WriteSectors, StoppedState::Complete, location)
        );
        assert_eq!((unit.backup, unit.restoring), (Some("b".into()), Some(vec![Permission::Unproven])));
    }

    /// A unit at this port whose write was not finished.
    fn written(location: &str) -> WrittenUnit {
        WrittenUnit {
            location: location.parse().unwrap(),
            during: FlashStep::Claim,
            left: StoppedState::Incomplete,
            backup: None,
            restoring: None,
            invoked: Arc::new(InvokedCommand {
                writes: Writes::Image,
                image: None,
                names_blocks: false,
                backs_up: true,
            }),
            later: LaterCommands::default(),
            offers: Vec::new(),
            set_faults: Vec::new(),
        }
    }

    /// Names a step: what for, and the act with its permissions.
    fn named(step: &NextStep) -> String {
        let act = match &step.act {
            Act::Again { permissions, blocks_from, backup, .. } => {
                format!("again {permissions:?} {blocks_from:?} {backup:?}")
            }
            Act::Restore { permissions, backs_up, .. } => format!("restore {permissions:?} {backs_up}"),
            act => format!("{act:?}"),
        };
        format!("{:?}: {act}", step.why)
    }

    #[test]
    fn each_state_that_a_stop_leaves_has_its_ways_out() {
        let later = LaterCommands {
            now: vec![Permission::Unproven],
            again: vec![Permission::OtherLine],
            with_blocks: vec![Permission::Unproven, Permission::OtherLine],
            ..LaterCommands::default()
        };
        let offer = |only_if: bool| NextStep {
            only_if: only_if.then(|| {
                let filed = crate::flash::fitting::tests::sample_filed();
                let fit = crate::flash::fitting::Fit::PortOnly;
                FittingBackup { filed, fit, has_identity: true, replaces_serial: false }
            }),
            ..NextStep::new(Why::WithBlocks, Act::Doctor)
        };
        let failing = |error: FlashError, backup: bool, writes, left, change: &dyn Fn(&mut WrittenUnit)| {
            let mut unit = WrittenUnit { left, later: later.clone(), ..written("3-1") };
            if backup {
                (unit.backup, unit.restoring) = (Some("b".into()), Some(Vec::new()));
            }
            unit.invoked = Arc::new(InvokedCommand { writes, ..(*unit.invoked).clone() });
            change(&mut unit);
            let steps = FlashFailure::new(error, unit, BackupFirst::AsGiven).steps;
            steps.iter().map(named).collect::<Vec<_>>().join("; ")
        };
        let steps = |backup, writes, left| failing(failure(Kind::Device), backup, writes, left, &|_| ());
        let (replug, find) = ("GoOn: Hands(Replug)", "GoBack: Hands(FindBackup)");
        let now = "GoOn: again [Unproven] None AsGiven";
        for left in [StoppedState::Verified, StoppedState::Restarted, StoppedState::OtherIdentity] {
            assert_eq!(steps(true, Writes::Image, left), format!("{replug}; See: List; OrGoBack: restore [] true"));
            assert_eq!(steps(false, Writes::Fields, left), format!("{replug}; See: List"));
        }
        for left in [StoppedState::Untouched, StoppedState::Unprotected] {
            for writes in [Writes::Image, Writes::Fields, Writes::Backup] {
                assert_eq!(steps(true, writes, left), now, "{left:?} {writes:?}");
            }
        }
        let protected = |left| failing(FlashError::Protected, true, Writes::Image, left, &|_| ());
        assert_eq!((protected(StoppedState::Untouched), &*protected(StoppedState::Unprotected)), (String::new(), now));
        for left in [StoppedState::Incomplete, StoppedState::Complete, StoppedState::BootLoader] {
            let go_on = "GoOn: again [Unproven, OtherLine] Some(\"b\") No; OrGoBack: restore [] false";
            assert_eq!(steps(true, Writes::Image, left), go_on, "{left:?}");
            assert_eq!(steps(false, Writes::Image, left), "GoOn: again [OtherLine] None No", "{left:?}");
            let set = "SetAgain: again [Unproven] None AsGiven";
            assert_eq!(steps(true, Writes::Fields, left), format!("GoBack: restore [] false; {set}"));
            assert_eq!(steps(false, Writes::Fields, left), format!("{find}; {set}"));
            assert_eq!(
                steps(true, Writes::Backup, left),
                "GoOn: again [OtherLine] None No; OrGoBack: restore [] false"
            );
        }
        let unproven = "GoOn: again [Unproven, OtherLine] Some(\"b\") AsGiven; OrGoBack: restore [] true";
        assert_eq!(steps(true, Writes::Image, StoppedState::Unproven), unproven);

        // What earlier backups offer comes in the place of a way without blocks, unless this run has made one or was given
        // some. What is a question comes last.
        let stopped = |writes, change: &dyn Fn(&mut WrittenUnit)| {
            let with_offers = |unit: &mut WrittenUnit| {
                unit.offers = vec![offer(true), offer(false)];
                change(unit);
            };
            failing(failure(Kind::Device), false, writes, StoppedState::Incomplete, &with_offers)
        };
        let offered = "WithBlocks: Doctor";
        assert_eq!(stopped(Writes::Image, &|_| ()), format!("{offered}; {offered}"));
        let doubtful = |unit: &mut WrittenUnit| unit.offers.truncate(1);
        assert_eq!(stopped(Writes::Image, &doubtful), format!("GoOn: again [OtherLine] None No; {offered}"));
        let set = "SetAgain: again [Unproven] None AsGiven";
        assert_eq!(stopped(Writes::Fields, &|_| ()), format!("{offered}; {set}"));
        assert_eq!(stopped(Writes::Fields, &doubtful), format!("{find}; {offered}; {set}"));
        let backed_up = |unit: &mut WrittenUnit| unit.backup = Some("b".into());
        let alone = "GoOn: again [Unproven, OtherLine] Some(\"b\") No";
        assert_eq!(stopped(Writes::Image, &backed_up), alone);
        let named_blocks = |unit: &mut WrittenUnit| {
            unit.invoked = Arc::new(InvokedCommand { names_blocks: true, ..(*unit.invoked).clone() });
        };
        assert_eq!(stopped(Writes::Image, &named_blocks), "GoOn: again [OtherLine] None No");
        let both = |unit: &mut WrittenUnit| {
            backed_up(unit);
            named_blocks(unit);
        };
        assert_eq!(stopped(Writes::Image, &both), "GoOn: again [OtherLine] None No");
        // A command that makes no backup makes none later.
        let without = |unit: &mut WrittenUnit| {
            unit.left = StoppedState::Untouched;
            unit.invoked = Arc::new(InvokedCommand { backs_up: false, ..(*unit.invoked).clone() });
        };
        assert_eq!(stopped(Writes::Image, &without), "GoOn: again [Unproven] None No");
    }

    fn failure(kind: Kind) -> FlashError {
        Failure::new(kind.code("asmpatch::test"), "it stopped").into()
    }

    #[test]
    fn faults_that_are_set_for_a_virtual_unit_are_taken_out_first_if_they_may_be_why_it_failed() {
        let first = |kind: Kind, set_faults: &[&'static str]| {
            let unit = WrittenUnit { set_faults: set_faults.to_vec(), ..written("virtual:u") };
            FlashFailure::new(failure(kind), unit, BackupFirst::AsGiven).steps.remove(0).act
        };
        for kind in [Kind::Gone, Kind::NoAnswer, Kind::Short, Kind::Rejected, Kind::Wire, Kind::Device] {
            assert_eq!(first(kind, &["mute"]), Act::TakeOut(vec!["mute"]), "{kind:?}");
            assert_ne!(first(kind, &[]), Act::TakeOut(Vec::new()), "{kind:?}");
        }
        assert_ne!(first(Kind::System, &["mute"]), Act::TakeOut(vec!["mute"]));
    }

    #[test]
    fn a_program_takes_a_step_only_if_it_needs_no_answer_no_value_and_no_hands() {
        let of = |why: Why, act: Act| NextStep::new(why, act).applicability();
        let again = |permissions: &[Permission], backup| Act::Again {
            permissions: permissions.to_vec(),
            serial: None,
            blocks_from: None,
            backup,
        };
        let agreed = [Permission::Unproven, Permission::CloneIdentity(crate::flash::consent::Waiver::Serial)];
        let certain = [Permission::Unproven, Permission::OtherLine];
        let restore = |permissions: &[Permission]| Act::Restore {
            folder: "b".into(),
            permissions: permissions.to_vec(),
            backs_up: true,
        };
        let flash = |permissions: &[Permission]| Act::Flash {
            image: ImageRef::Known("open".to_owned()),
            permissions: permissions.to_vec(),
            blocks_from: None,
            backs_up: true,
        };
        assert_eq!(of(Why::GoOn, Act::Hands(Hands::Replug)), Applicability::Hands);
        assert_eq!(of(Why::GoOn, again(&agreed, BackupFirst::Elsewhere)), Applicability::NeedsValue);
        for (act, expected) in [
            (again(&certain, BackupFirst::AsGiven), Applicability::Certain),
            (again(&agreed, BackupFirst::AsGiven), Applicability::IfYes),
            (restore(&certain), Applicability::Certain),
            (restore(&agreed), Applicability::IfYes),
            (flash(&certain), Applicability::Certain),
            (flash(&agreed), Applicability::IfYes),
            (Act::Doctor, Applicability::Certain),
        ] {
            assert_eq!(of(Why::GoOn, act.clone()), expected, "{act:?}");
        }
        for why in [Why::KeepsSerial, Why::NewBoard, Why::OrGoOn, Why::OrGoBack, Why::OrOtherImage] {
            assert_eq!(of(why.clone(), Act::Doctor), Applicability::IfYes, "{why:?}");
        }
        let list = NextStep::new(Why::SeeBackups, Act::Backups);
        assert!(!list.is_sure() && list.uses_backup() && NextStep::new(Why::See, Act::List).is_sure());
    }

    #[test]
    fn a_number_that_was_drawn_yields_to_that_in_a_backups_blocks() {
        let serial = |yields, blocks: bool| {
            let text = "LAB-07".to_owned();
            let later = LaterCommands { serial: Some(ChosenSerial { text, yields }), ..LaterCommands::default() };
            let act = match blocks {
                true => later.with_blocks_from("b".into(), BackupFirst::No),
                false => later.again(BackupFirst::No),
            };
            let Act::Again { serial, blocks_from, .. } = act else { panic!("{act:?}") };
            assert_eq!(blocks_from.is_some(), blocks);
            serial.is_some()
        };
        assert_eq!((serial(true, false), serial(true, true)), (true, false));
        assert_eq!((serial(false, false), serial(false, true)), (true, true));
    }

    #[test]
    fn a_unit_that_is_silent_at_a_port_is_plugged_in_again_before_any_command() {
        let step = |location: &str, kind: Kind| {
            let error = Failure::new(kind.code("asmpatch::test"), "it stopped").into();
            FlashFailure::new(error, written(location), BackupFirst::AsGiven).steps.remove(0).act
        };
        for kind in [Kind::NoAnswer, Kind::Gone] {
            assert_eq!(step("3-1", kind), Act::Hands(Hands::Replug), "{kind:?}");
            assert!(matches!(step("virtual:u", kind), Act::Again { .. }), "any command powers it up");
        }
        assert!(matches!(step("3-1", Kind::Device), Act::Again { .. }), "it is there");
    }
}
