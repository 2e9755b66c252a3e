//! Words next steps: for a unit as a run left it, instead of a refused command, or after a write.

use std::ffi::OsString;
use std::path::Path;

use crate::flash::backup_folder::FiledBackup;
use crate::flash::backup_folder::{UnreadBackup, UnreadKind};
use crate::flash::consent::Permission;
use crate::flash::error::FlashError;
use crate::flash::fitting::FittingBackup;
use crate::flash::job::{FlashJob, FlashUnit};
use crate::flash::progress::StoppedState;
use crate::flash::recovery::{Act, BackupFirst, FlashFailure, ImageRef, NextStep, Why};
use crate::shell;
use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BlockIndex, ConfigField, FlashAddress};
use asm2464::flash::RegisterError;
use asm2464_files::user::User;

use crate::cli::given::user_files;
use crate::cli::words::errors;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::line::Line;
use crate::cli::words::printed_command::PrintedCommand;
use crate::cli::words::worded_step::{Follows, StepCommand};
pub use crate::cli::words::worded_step::{WordedStep, lines, print_below_error};

impl WordedStep {
    /// Words a step for the unit that the command which was run is [at](Invocation::at).
    pub fn of(step: &NextStep, invocation: &Invocation) -> Self {
        let NextStep { why, only_if, act, .. } = step;
        Self {
            purpose: Line::of(purpose(why, act, invocation)),
            applicability: step.applicability(),
            question: only_if.as_ref().map(|backup| Line::of(question(backup))),
            command: command(act, invocation).map(StepCommand::from),
            follows: None,
            lacks: None,
            // If the folder's path is not Unicode, only the command names it.
            backup: earlier_backup(why, act).and_then(Path::to_str).map(str::to_owned),
        }
    }

    /// Words each step.
    pub fn each(steps: &[NextStep], invocation: &Invocation) -> Vec<Self> {
        let mut worded: Vec<Self> = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            // What is set for a virtual unit is taken out before each of the others.
            let is_first = index == 0 || steps[index - 1].why == Why::WithoutFaults;
            let follows = if is_first { None } else { follows(&step.why) };
            worded.push(Self { follows, ..Self::of(step, invocation) });
        }
        worded
    }
}

fn purpose(why: &Why, act: &Act, invocation: &Invocation) -> String {
    match act {
        Act::Hands(hands) => return invocation.by_hand(*hands).into_owned(),
        Act::MakeReadable(unread) => return unread_words(unread),
        Act::Again { backup: BackupFirst::Elsewhere, .. } => {
            return "once the backup can be saved there, run the command again; or add `--backup-dir DIR`, a folder that \
                    can take it"
                .into();
        }
        _ => {}
    }
    let purpose = match why {
        Why::WithoutFaults => "take the fault out of its bridge.toml, or it comes again with each power-up",
        Why::GoOn => "go on",
        Why::OrGoOn => "or go on",
        Why::SetAgain => "then set it again",
        Why::GoBack => "go back to what it was",
        Why::OrGoBack => "or go back to what it was",
        Why::GoBackTo { taken, firmware, is_oldest } => {
            let which = if *is_oldest { "the oldest" } else { "this" };
            let taken = taken.map_or_else(|| "of an unknown date".to_owned(), user_files::time);
            return format!("go back to {which} backup ({taken}, {})", firmware.to_string().shown());
        }
        Why::SeeUnread => "see what this backup is",
        Why::SeeBackups => "of more backups only the two newest and the oldest are above; see each",
        Why::WithBlocks => "write the image with this backup's configuration blocks",
        Why::FirmwareAlone => "take only the firmware, and keep this unit's own identity",
        Why::OnlyFirmware => {
            "no backup of this unit was found; take only the firmware, and keep the unit's own identity"
        }
        Why::WithoutBackup => "write it without a backup",
        Why::KeepsSerial => {
            "if it has no backup anywhere, write it without one: it keeps the serial number that it shows, and its USB4 ID \
             is lost"
        }
        Why::NewBoard => "if it is a new board, give it its first firmware",
        Why::OrOtherImage => "or another",
        Why::See => "see what it is",
        Why::ReadBack => "once it is back, read it back",
        Why::SeeFields => "see its fields",
        Why::CanStart => "see whether a GPU runtime can start",
        Why::Measure => "then measure it",
    };
    purpose.into()
}

/// What can't be read and may be the unit's backup, with owner, reason and cure.
fn unread_words(unread: &UnreadBackup) -> String {
    let UnreadBackup { folder, owner, kind, .. } = unread;
    let what = match kind {
        UnreadKind::Folder => "backups in it",
        UnreadKind::Backup => "it",
        UnreadKind::Elsewhere => return format!("{}; {}", unread.failure().to_string().shown(), cure(unread)),
    };
    let owner = owner.map(|owner| format!(" (belongs to {owner})")).unwrap_or_default();
    let why = errors::with_causes(&unread.failure());
    format!("{}{owner} can't be read, and {what} may be this unit's: {why}; {}", folder.shown(), cure(unread))
}

/// What makes a backup readable again, or what to do without it.
pub fn cure(unread: &UnreadBackup) -> String {
    if unread.kind == UnreadKind::Elsewhere {
        return "connect its disk, or look for it on that host".to_owned();
    }
    if !unread.lacks_rights {
        return "look at it with `asmpatch info`, or take it away if it is another unit's".to_owned();
    }
    let folder = shell::path(&unread.folder);
    match (unread.owner, User::current()) {
        (Some(owner), Some(me)) if owner != me => {
            format!("make it yours, and run this again: `sudo chown -hR \"$(id -u)\" {folder}`")
        }
        (Some(_), Some(_)) => format!("let yourself read it, and run this again: `chmod -R u+rwX {folder}`"),
        _ => "run asmpatch as the user who made it".to_owned(),
    }
}

/// How a step for this goes with the one before it.
const fn follows(why: &Why) -> Option<Follows> {
    match why {
        Why::OrGoOn | Why::OrGoBack | Why::NewBoard | Why::OrOtherImage | Why::GoBackTo { .. } | Why::WithBlocks => {
            Some(Follows::Instead)
        }
        Why::SetAgain | Why::See | Why::Measure => Some(Follows::Then),
        _ => None,
    }
}

fn question(backup: &FittingBackup) -> String {
    let FittingBackup { filed, fit, .. } = backup;
    let marks = marks(filed).join(", ");
    format!("is {} ({}) this unit's backup? {fit}. Only if it is", filed.folder.shown(), marks.shown())
}

/// What tells a backup apart from those of other units with its serial number.
fn marks(backup: &FiledBackup) -> Vec<String> {
    let unit = &backup.unit;
    let mut marks = vec![format!("serial {}", backup.serial())];
    let names = backup.block(BlockIndex::Zero).map_or_else(
        || unit.product.clone(),
        |block| format!("{} {}", block.text(ConfigField::Manufacturer), block.text(ConfigField::Product)),
    );
    marks.push(names.trim().to_owned());
    let date = backup.written.map(|time| format!(" on {}", user_files::time(time))).unwrap_or_default();
    marks.push(match unit.device.parse::<asm2464_host::bridge::Location>() {
        Ok(_) => format!("taken{date} at {}", unit.device),
        Err(_) => format!("{}{date}", unit.device),
    });
    marks.push(match backup.block(BlockIndex::One) {
        Some(block) => format!("USB4 ID {}", to_hex(block.field(ConfigField::Usb4UniqueId), "")),
        None => "without a valid block 1".to_owned(),
    });
    marks.retain(|mark| !mark.is_empty());
    marks
}

/// The earlier backup that a step uses; `None` for this run's own.
fn earlier_backup<'a>(why: &Why, act: &'a Act) -> Option<&'a Path> {
    match (why, act) {
        (Why::WithBlocks, Act::Again { blocks_from, .. } | Act::Flash { blocks_from, .. }) => blocks_from.as_deref(),
        (Why::GoBackTo { .. }, Act::Restore { folder, .. }) => Some(folder),
        (_, Act::MakeReadable(unread)) => Some(&unread.folder),
        _ => None,
    }
}

/// Returns the command that takes this step; `None` for something to do by hand, or if only the user knows a value of it.
fn command(act: &Act, invocation: &Invocation) -> Option<PrintedCommand> {
    Some(match act {
        Act::Again { permissions, serial, blocks_from, backup } => {
            let mut command = invocation.again();
            if let Some(serial) = serial {
                command = command.without("serials").with("serial", serial);
            }
            if let Some(folder) = blocks_from {
                command = command.with("config_from", folder);
            }
            let command = permitting(command, permissions);
            match backup {
                BackupFirst::AsGiven => command,
                BackupFirst::Into(folder) => command.with("backup_dir", folder),
                BackupFirst::Elsewhere => return None,
                BackupFirst::No => without_backup(command),
            }
        }
        Act::Flash { image, permissions, blocks_from, backs_up } => {
            let mut command = invocation.other("flash").operand(word_of(image));
            if let Some(folder) = blocks_from {
                command = command.with("config_from", folder);
            }
            let command = permitting(command, permissions);
            if *backs_up { command } else { without_backup(command) }
        }
        Act::Restore { folder, permissions, backs_up } => {
            let command = permitting(invocation.other("restore").operand(folder), permissions);
            if *backs_up { command } else { without_backup(command) }
        }
        Act::List => invocation.other("list"),
        Act::Backups => invocation.other("backup --list"),
        Act::TakeOut(keys) => {
            keys.iter().fold(invocation.other("virtual set"), |command, key| command.operand(format!("{key}=")))
        }
        Act::Doctor => invocation.other("doctor"),
        Act::Bench => invocation.other("bench"),
        Act::Verify(image) => invocation.name_unit(invocation.other("verify").operand(word_of(image))),
        Act::Fields => invocation.other("config get"),
        Act::Hands(_) | Act::MakeReadable(_) => return None,
    })
}

/// The word that names an image in a command.
fn word_of(image: &ImageRef) -> OsString {
    match image {
        ImageRef::File(file) => file.into(),
        ImageRef::Known(id) => id.into(),
    }
}

/// Adds the options that give these permissions. Consent says what it is for.
fn permitting(mut command: PrintedCommand, permissions: &[Permission]) -> PrintedCommand {
    let mut waivers = Vec::new();
    for permission in permissions {
        match permission {
            Permission::Unproven => command = command.flag("unproven"),
            Permission::CloneIdentity(waiver) => waivers.push(waiver.to_string()),
            Permission::OtherLine => command = command.flag("other_line"),
        }
    }
    if waivers.is_empty() { command } else { command.with("clone_identity", waivers.join(",")) }
}

fn without_backup(command: PrintedCommand) -> PrintedCommand {
    command.without("backup_dir").flag("no_backup")
}

/// Returns the steps to take instead of a write of the unit that is refused or asked about.
pub fn instead(unit: &FlashUnit, invocation: &Invocation) -> Vec<WordedStep> {
    unit.location().map_or_else(Vec::new, |location| WordedStep::each(&unit.instead, &invocation.at(location)))
}

/// Returns the command that brings back what was on the unit before it was written.
pub fn way_back(unit: &FlashUnit, invocation: &Invocation) -> Option<PrintedCommand> {
    command(&unit.way_back()?.act, &invocation.at(unit.location()?))
}

/// Returns the command to run next for the unit, whatever its outcome.
pub fn next(unit: &FlashUnit, job: &FlashJob, invocation: &Invocation) -> Option<PrintedCommand> {
    command(&unit.next_step(job)?.act, &invocation.at(unit.location()?))
}

/// Returns what to know about a run that stopped: the error's own advice while nothing is written, and the unit's state.
pub fn help(failure: &FlashFailure, invocation: &Invocation) -> Vec<WordedStep> {
    let left = failure.unit.left;
    let mut steps = Vec::new();
    if matches!(left, StoppedState::Untouched | StoppedState::Unprotected) {
        steps = errors::steps(&failure.error, invocation);
    } else if let Some(advice) = advice(&failure.error) {
        steps.push(WordedStep::hands(advice));
    }
    steps.push(WordedStep::hands(format!("the unit's state: {left}")));
    steps.push(WordedStep::hands("`asmpatch help recovery` lists every state that a unit can be in"));
    steps
}

/// Returns the advice on an error in the middle of a write, in addition to the advice on the unit's state.
const fn advice(error: &FlashError) -> Option<&'static str> {
    let FlashError::Registers(error) = error else { return None };
    match error {
        RegisterError::NotErased { at: FlashAddress(0), .. } => Some(
            "the flash may be worn out where the configuration blocks and the image's header are, which every firmware \
             needs: if it never erases there, only another flash chip helps",
        ),
        RegisterError::NotErased { .. } => Some(
            "the flash may be worn out there. That sector is unchanged, and going back to the old firmware doesn't \
             touch it: do that while the unit still has power",
        ),
        RegisterError::OutOfTime(_) | RegisterError::NoProgress(_) => Some(
            "the unit answers, but too slowly: stop whatever keeps this host or its bus busy. Don't move it to \
             another cable or port: that cuts its power",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use crate::advice::Applicability;
    use crate::flash::backup::Backup;
    use crate::flash::backup::tests::sample_backup;
    use crate::flash::backup_folder;
    use crate::flash::consent::Waiver;
    use crate::flash::error::FlashError;
    use crate::flash::fitting::tests::sample_filed;
    use crate::flash::fitting::{Fit, FittingBackup};
    use crate::flash::offers::offers;
    use crate::flash::plan::ChosenSerial;
    use crate::flash::progress::{FlashStep, StoppedState};
    use crate::flash::recovery::LaterCommands;
    use crate::flash::recovery::{InvokedCommand, Writes, WrittenUnit};
    use crate::image::{Rewritable, samples};
    use asm2464::firmware::{FirmwareVersion, known_blocks};
    use asm2464::flash::Slot;
    use asm2464::interrupt::Interrupted;
    use asm2464::{Failure, Kind};
    use asm2464_chip::practice;
    use asm2464_host::bridge::Location;

    use super::*;

    /// A command that was run.
    fn run(words: &[&str]) -> Invocation {
        Invocation::parse(["asmpatch"].iter().chain(words)).unwrap()
    }

    fn flash() -> Invocation {
        run(&["flash", "fw patched.bin"])
    }

    fn invoked(writes: Writes) -> InvokedCommand {
        InvokedCommand { writes, image: None, names_blocks: false, backs_up: true }
    }

    /// A unit that a run of a command with these writes left in this state.
    fn unit(left: StoppedState, writes: Writes, backup: Option<&str>) -> WrittenUnit {
        WrittenUnit {
            location: at("1-2"),
            during: FlashStep::Claim,
            left,
            backup: backup.map(PathBuf::from),
            restoring: Some(Vec::new()),
            invoked: Arc::new(invoked(writes)),
            later: LaterCommands::default(),
            offers: Vec::new(),
            set_faults: Vec::new(),
        }
    }

    /// The steps after a run of this command that stopped with this error.
    fn after(error: FlashError, run: &Invocation, unit: WrittenUnit) -> Vec<WordedStep> {
        let FlashFailure { unit, steps, .. } = FlashFailure::new(error, unit, BackupFirst::AsGiven);
        WordedStep::each(&steps, &run.at(&unit.location))
    }

    /// The error of a unit that left the bus.
    fn gone() -> FlashError {
        Failure::new(Kind::Gone.code("asmpatch::gone"), "gone").into()
    }

    /// The steps after Ctrl-C.
    fn steps(run: &Invocation, unit: WrittenUnit) -> Vec<WordedStep> {
        after(Interrupted.into(), run, unit)
    }

    #[test]
    fn the_first_step_follows_none() {
        use StoppedState::*;
        for left in
            [Untouched, Unprotected, Incomplete, Complete, Unproven, BootLoader, Restarted, OtherIdentity, Verified]
        {
            for writes in [Writes::Image, Writes::Fields, Writes::Backup] {
                for backup in [None, Some("b")] {
                    for offers in [vec![], vec![earlier(Fit::Certain)]] {
                        let steps = steps(&flash(), WrittenUnit { offers, ..unit(left, writes, backup) });
                        let first = steps[0].note();
                        assert!(!first.starts_with("then "), "{left:?} {writes:?} {backup:?}: {first}");
                    }
                }
            }
        }
    }

    fn fitting_backup(folder: &Path, fit: Fit) -> FittingBackup {
        FittingBackup {
            filed: FiledBackup { folder: folder.to_owned(), ..sample_filed() },
            fit,
            has_identity: true,
            replaces_serial: false,
        }
    }

    /// The step back to an earlier backup.
    fn earlier(fit: Fit) -> NextStep {
        let folder = Path::new("earlier");
        let only_if = (fit != Fit::Certain).then(|| fitting_backup(folder, fit));
        let act = Act::Restore { folder: folder.to_owned(), permissions: Vec::new(), backs_up: false };
        let firmware = samples::proof(&practice::image(), Rewritable::Yes).known.firmware.clone();
        let why = Why::GoBackTo { taken: None, firmware, is_oldest: false };
        NextStep { only_if, ..NextStep::new(why, act) }
    }

    fn at(port: &str) -> Location {
        port.parse().unwrap()
    }

    fn commands(left: StoppedState, run: &Invocation, writes: Writes, backup: Option<&str>) -> Vec<String> {
        let unit = WrittenUnit { location: at("1-2.3"), ..unit(left, writes, backup) };
        after(gone(), run, unit).into_iter().filter_map(|step| step.line()).collect()
    }

    /// A command with its words quoted as this system's shells quote them.
    fn quoted(command: &str) -> String {
        if cfg!(windows) { command.replace('\'', "\"") } else { command.to_owned() }
    }

    #[test]
    fn a_unit_without_firmware_is_finished_or_restored_from_its_own_backup() {
        assert_eq!(
            commands(StoppedState::Incomplete, &flash(), Writes::Image, Some("b")),
            [
                "asmpatch flash 'fw patched.bin' --config-from b --device 1-2.3 --no-backup",
                "asmpatch restore b --device 1-2.3 --no-backup",
            ]
            .map(quoted)
        );
        assert_eq!(
            commands(StoppedState::BootLoader, &flash(), Writes::Image, None),
            [quoted("asmpatch flash 'fw patched.bin' --device 1-2.3 --no-backup")]
        );
    }

    #[test]
    fn a_command_whose_backup_has_no_place_is_not_printed_again() {
        let unit = unit(StoppedState::Untouched, Writes::Image, None);
        let FlashFailure { unit, steps, .. } = FlashFailure::new(gone(), unit, BackupFirst::Elsewhere);
        let step = WordedStep::of(steps.last().unwrap(), &flash().at(&unit.location));
        assert_eq!((&step.command, step.applicability), (&None, Applicability::NeedsValue));
        assert!(step.purpose.contains("`--backup-dir DIR`"), "{step:?}");
    }

    #[test]
    fn the_commands_carry_what_keeps_them_from_being_refused() {
        let serial = Permission::CloneIdentity(Waiver::Serial);
        let words = |restoring: Option<Vec<Permission>>| -> Vec<String> {
            let with_blocks = vec![Permission::Unproven, serial, Permission::CloneIdentity(Waiver::Usb4)];
            let back = vec![serial, Permission::OtherLine];
            let later = LaterCommands { with_blocks, back, ..LaterCommands::default() };
            let unit = unit(StoppedState::Incomplete, Writes::Image, Some("b"));
            let unit = WrittenUnit { later, restoring, ..unit };
            steps(&flash(), unit).into_iter().filter_map(|step| step.line()).collect()
        };
        assert_eq!(
            words(Some(vec![Permission::Unproven])),
            [
                "asmpatch flash 'fw patched.bin' --config-from b --device 1-2 --unproven --clone-identity=serial,usb4 \
                 --no-backup",
                "asmpatch restore b --device 1-2 --unproven --clone-identity=serial --other-line --no-backup",
            ]
            .map(quoted)
        );
        // A backup whose firmware could never be replaced again is not offered.
        assert_eq!(words(None).len(), 1);
    }

    #[test]
    fn a_unit_that_lost_its_own_firmware_to_a_change_of_its_fields_gets_it_back_from_the_backup() {
        let origin = run(&["config", "set", "product=GPU dock"]);
        let set = quoted("asmpatch config set 'product=GPU dock' --device 1-2.3");
        assert_eq!(
            commands(StoppedState::Incomplete, &origin, Writes::Fields, Some("b")),
            ["asmpatch restore b --device 1-2.3 --no-backup", &set]
        );
        // Without a backup, no command could name the firmware.
        assert_eq!(commands(StoppedState::BootLoader, &origin, Writes::Fields, None), [set.as_str()]);
        assert_eq!(commands(StoppedState::Untouched, &origin, Writes::Fields, None), [set]);
    }

    #[test]
    fn a_run_without_a_backup_of_its_own_goes_on_with_the_units_earlier_one() {
        let config = run(&["config", "set", "product=GPU dock"]);
        let offered = |run: &Invocation, writes, fit| {
            let offers = vec![earlier(fit)];
            steps(run, WrittenUnit { offers, ..unit(StoppedState::Incomplete, writes, None) })
        };
        let offer = |fit| WordedStep::of(&earlier(fit), &flash().at(&at("1-2")));
        // The known blocks are not offered while a backup has the unit's own.
        assert_eq!(offered(&flash(), Writes::Image, Fit::Certain), [offer(Fit::Certain)]);
        assert_eq!(offered(&config, Writes::Fields, Fit::Certain)[0], offer(Fit::Certain));
        // Another dock's backup is never the first command.
        let again = quoted("asmpatch flash 'fw patched.bin' --device 1-2 --no-backup");
        assert_eq!(offered(&flash(), Writes::Image, Fit::PortOnly)[0].line(), Some(again));
        let doubtful = offered(&config, Writes::Fields, Fit::PortOnly);
        assert!(doubtful[0].purpose.starts_with("restore a backup of the unit"), "{doubtful:?}");
        assert_eq!(doubtful[1], offer(Fit::PortOnly).instead());
        assert!(doubtful[1].question.is_some() && doubtful[1].backup.as_deref() == Some("earlier"));
    }

    #[test]
    fn what_is_set_for_a_virtual_unit_is_taken_out_before_each_way_and_is_none_itself() {
        let take_out = NextStep::new(Why::WithoutFaults, Act::TakeOut(vec!["power-loss-after"]));
        let steps = [take_out, earlier(Fit::Certain), earlier(Fit::Certain)];
        let follows: Vec<Option<Follows>> =
            WordedStep::each(&steps, &flash()).iter().map(|step| step.follows).collect();
        assert_eq!(follows, [None, None, Some(Follows::Instead)]);
    }

    #[test]
    fn a_recovery_command_repeats_the_folder_for_backups_unless_it_makes_none() {
        let origin = run(&["restore", "b", "--backup-dir", "my backups"]);
        assert_eq!(
            commands(StoppedState::Untouched, &origin, Writes::Backup, None),
            [quoted("asmpatch restore b --backup-dir 'my backups' --device 1-2.3")]
        );
        assert_eq!(
            commands(StoppedState::Incomplete, &origin, Writes::Backup, None),
            ["asmpatch restore b --device 1-2.3 --no-backup"]
        );
    }

    #[test]
    fn a_drawn_serial_number_is_repeated_unless_a_backup_gives_the_blocks() {
        let has_serial = |blocks_from: Option<&str>, yields| {
            let serial = Some(ChosenSerial { text: "5C3E91A07B24".to_owned(), yields });
            let later = LaterCommands { serial, ..LaterCommands::default() };
            let act = match blocks_from {
                Some(folder) => later.with_blocks_from(folder.into(), BackupFirst::AsGiven),
                None => later.again(BackupFirst::AsGiven),
            };
            let command = command(&act, &flash()).unwrap().to_string();
            command.contains(" --serial 5C3E91A07B24")
        };
        assert!(has_serial(None, true));
        assert!(!has_serial(Some("b"), true), "the backup has the unit's own");
        assert!(has_serial(Some("b"), false), "the series gave it to this unit");
    }

    #[test]
    fn a_run_without_a_backup_goes_on_without_one() {
        let written = unit(StoppedState::Untouched, Writes::Backup, None);
        let invoked = Arc::new(InvokedCommand { backs_up: false, ..invoked(Writes::Backup) });
        let steps = steps(&run(&["restore", "b", "--no-backup", "--yes"]), WrittenUnit { invoked, ..written });
        assert_eq!(steps[0].line().as_deref(), Some("asmpatch restore b --device 1-2 --no-backup"));
    }

    #[test]
    fn a_written_unit_is_read_back_by_a_command_that_writes_nothing() {
        let verify = |image| command(&Act::Verify(image), &flash().at(&at("1-2"))).unwrap().to_string();
        assert_eq!(verify(ImageRef::File("f".into())), "asmpatch verify f --device 1-2");
        assert_eq!(verify(ImageRef::Known("ed4e39b".to_owned())), "asmpatch verify ed4e39b --device 1-2");
    }

    #[test]
    fn a_written_unit_only_has_to_be_plugged_in_again() {
        for left in [StoppedState::Verified, StoppedState::Restarted, StoppedState::OtherIdentity] {
            let steps = after(gone(), &flash(), unit(left, Writes::Image, None));
            assert_eq!(steps[0].purpose, "unplug the unit, wait five seconds, plug it in again");
            assert_eq!(steps[1].line().as_deref(), Some("asmpatch list"));
            assert_eq!(steps.len(), 2);
        }
    }

    #[test]
    fn a_way_back_makes_a_backup_where_the_unit_can_be_read_and_is_not_held_up_by_one_elsewhere() {
        for (left, backs_up) in [
            (StoppedState::Incomplete, false),
            (StoppedState::Complete, false),
            (StoppedState::BootLoader, false),
            (StoppedState::Verified, true),
            (StoppedState::Restarted, true),
            (StoppedState::OtherIdentity, true),
            (StoppedState::Unproven, true),
        ] {
            let steps = steps(&flash(), unit(left, Writes::Image, Some("b")));
            let commands: Vec<String> = steps.iter().filter_map(WordedStep::line).collect();
            let writes = || commands.iter().filter(|command| !command.contains(" list"));
            assert!(writes().any(|command| command.starts_with("asmpatch restore b ")), "{commands:?}");
            assert!(writes().all(|command| command.contains(" --no-backup") != backs_up), "{left:?}: {commands:?}");
        }
    }

    #[test]
    fn of_two_ways_only_the_first_is_for_a_program() {
        use Applicability::{Certain, IfYes};

        let applicabilities = |steps: Vec<WordedStep>| steps.iter().map(|step| step.applicability).collect::<Vec<_>>();
        let stopped = steps(&flash(), unit(StoppedState::Incomplete, Writes::Image, Some("b")));
        assert_eq!(applicabilities(stopped), [Certain, IfYes], "go on, or go back");
        let stopped = steps(&flash(), unit(StoppedState::Verified, Writes::Image, Some("b")));
        assert_eq!(applicabilities(stopped).last(), Some(&IfYes), "it has what was wanted");
        let set = run(&["config", "set", "serial=X"]);
        let stopped = steps(&set, unit(StoppedState::Incomplete, Writes::Fields, Some("b")));
        assert_eq!(applicabilities(stopped), [Certain, Certain], "one after the other");
        let clones = Permission::CloneIdentity(Waiver::Usb4);
        let permissions = vec![clones];
        let act = Act::Restore { folder: "b".into(), permissions: permissions.clone(), backs_up: true };
        assert_eq!(NextStep::new(Why::GoBack, act).applicability(), IfYes);
        let image = ImageRef::Known("ed4e39b".to_owned());
        let act = Act::Flash { image, permissions: permissions.clone(), blocks_from: None, backs_up: true };
        assert_eq!(NextStep::new(Why::OnlyFirmware, act).applicability(), IfYes);
        let act = Act::Again { permissions, serial: None, blocks_from: None, backup: BackupFirst::AsGiven };
        assert_eq!(NextStep::new(Why::GoOn, act).applicability(), IfYes);
    }

    #[test]
    fn a_virtual_unit_gets_its_power_from_the_next_command_and_is_listed_by_its_name() {
        let unit = unit(StoppedState::Verified, Writes::Image, None);
        let steps = steps(&flash(), WrittenUnit { location: at("virtual:my unit"), ..unit });
        assert_eq!(steps[0].line(), Some(quoted("asmpatch list --device 'virtual:my unit'")));
    }

    #[test]
    fn faults_that_are_set_are_taken_out_before_anything_else_unless_the_user_stopped_it() {
        let torn = || WrittenUnit {
            location: at("virtual:u"),
            set_faults: vec!["power-loss-after", "fault"],
            ..unit(StoppedState::Incomplete, Writes::Image, Some("b"))
        };
        let commands = |steps: Vec<WordedStep>| steps.into_iter().filter_map(|step| step.line()).collect::<Vec<_>>();
        let go_on = quoted("asmpatch flash 'fw patched.bin' --config-from b --device virtual:u --no-backup");
        let stopped = commands(after(gone(), &flash(), torn()));
        assert_eq!(stopped[..2], ["asmpatch virtual set power-loss-after= fault= --device virtual:u", &go_on]);
        assert_eq!(commands(steps(&flash(), torn()))[0], go_on);
    }

    #[cfg(unix)]
    #[test]
    fn the_commands_name_any_file_so_that_a_shell_gives_it_back() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let receipt = OsStr::from_bytes(b"r\xFF'.toml").to_owned();
        let words =
            ["asmpatch", "flash", "--serial=-1", "--config-from=-dir\nrm -r x", "--receipt"].map(OsString::from);
        let origin = Invocation::parse(words.into_iter().chain([receipt, "--".into(), "--all".into()])).unwrap();
        assert_eq!(
            commands(StoppedState::Incomplete, &origin, Writes::Image, None)[0],
            "asmpatch flash --receipt \"$(printf -- 'r\\377\\047.toml')\" \"$(printf -- '--config-from=-dir\\012rm -r \
             x')\" --serial=-1 --device 1-2.3 --no-backup -- --all"
        );
    }

    /// A real unit's backup, which holds the practice image.
    fn backup() -> Backup {
        let [zero, one] = known_blocks();
        let slot = Slot::of([zero.bytes(), one.bytes()], &practice::image().to_file());
        Backup { blocks: slot.blocks(), parts: slot.parts().map(<[u8]>::to_vec), ..sample_backup() }
    }

    #[test]
    fn earlier_backups_are_offered_only_to_a_run_that_has_no_blocks_of_the_unit() {
        let offer = earlier(Fit::Certain);
        for (names_blocks, backup, is_offered) in [(false, None, true), (true, None, false), (false, Some("b"), false)]
        {
            let invoked = Arc::new(InvokedCommand { names_blocks, ..invoked(Writes::Image) });
            let unit = unit(StoppedState::Incomplete, Writes::Image, backup);
            let unit = WrittenUnit { offers: vec![offer.clone()], invoked, ..unit };
            let failure = FlashFailure::new(Interrupted.into(), unit, BackupFirst::AsGiven);
            assert_eq!(failure.steps.contains(&offer), is_offered, "{failure:?}");
        }
    }

    #[test]
    fn the_folder_that_a_step_names_takes_the_place_of_the_one_that_the_command_named() {
        let given = run(&["flash", "fw.bin", "--config-from", "old", "--backup-dir", "full"]).at(&at("1-2"));
        let again = |blocks_from: Option<&str>, backup| {
            let blocks_from = blocks_from.map(PathBuf::from);
            let act = Act::Again { permissions: Vec::new(), serial: None, blocks_from, backup };
            command(&act, &given).unwrap().to_string()
        };
        assert_eq!(
            again(Some("own"), BackupFirst::AsGiven),
            "asmpatch flash fw.bin --config-from own --backup-dir full --device 1-2"
        );
        assert_eq!(
            again(None, BackupFirst::Into("elsewhere".into())),
            "asmpatch flash fw.bin --config-from old --backup-dir elsewhere --device 1-2"
        );
    }

    #[test]
    fn of_many_backups_the_two_newest_and_the_oldest_are_offered() {
        let home = tempfile::tempdir().unwrap();
        let images = crate::embedded::patches().unwrap().into();
        let mut backups = Vec::new();
        for age in 0..5 {
            let path = home.path().join(age.to_string());
            backup_folder::save(&backup(), &path).unwrap();
            let mut found = fitting_backup(&path, Fit::Certain);
            found.filed.written = Some(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(100 - age));
            backups.push(found);
        }
        let folders = |backups: &[FittingBackup]| {
            let later = LaterCommands::default();
            let steps = offers(backups, Some((Writes::Backup, &later)), &at("1-2"), &images);
            let mut folders = Vec::new();
            for step in &steps {
                let NextStep { why: Why::GoBackTo { is_oldest, .. }, act: Act::Restore { folder, .. }, .. } = step
                else {
                    continue;
                };
                folders.push((folder.file_name().unwrap().to_str().unwrap().to_owned(), *is_oldest));
            }
            (folders, steps.last().unwrap().act == Act::Backups)
        };
        let of = |all: &[(&str, bool)]| all.iter().map(|(name, old)| ((*name).to_owned(), *old)).collect::<Vec<_>>();
        assert_eq!(folders(&backups), (of(&[("0", false), ("1", false), ("4", true)]), true));
        assert_eq!(folders(&backups[..3]), (of(&[("0", false), ("1", false), ("2", false)]), false));
        // One that only the port matches is not what the unit came with.
        backups[4].fit = Fit::PortOnly;
        assert_eq!(folders(&backups).0, of(&[("0", false), ("1", false), ("3", true)]));
    }

    #[test]
    fn a_certain_backup_is_a_whole_command_and_a_doubtful_one_a_question() {
        let folder = tempfile::tempdir().unwrap();
        let images = crate::embedded::patches().unwrap().into();
        let path = folder.path().join("b");
        backup_folder::save(&backup(), &path).unwrap();
        let found = |fit| fitting_backup(&path, fit);
        let offered = |backups: &[FittingBackup], permissions: &[Permission]| {
            let later = LaterCommands { with_blocks: permissions.to_vec(), ..LaterCommands::default() };
            let steps = offers(backups, Some((Writes::Image, &later)), &at("1-2"), &images);
            WordedStep::each(&steps, &run(&["flash", "fw.bin"]).at(&at("1-2")))
        };
        let fitting = |fit| offered(&[found(fit)], &[Permission::OtherLine]);
        let certain = fitting(Fit::Certain);
        let b = crate::shell::path(&path);
        let commands: Vec<String> = certain.iter().filter_map(WordedStep::line).collect();
        assert_eq!(
            commands,
            [
                format!("asmpatch flash fw.bin --config-from {b} --device 1-2 --other-line --no-backup"),
                // The practice image has never run on silicon.
                format!("asmpatch restore {b} --device 1-2 --unproven --no-backup"),
            ]
        );
        assert!(certain.iter().all(|action| action.question.is_none()));
        assert!(certain.iter().all(|action| action.backup.as_deref() == path.to_str()));
        let doubtful = fitting(Fit::PortOnly);
        assert!(doubtful.iter().all(|action| action.question.is_some()));
        let lines = lines(&doubtful);
        let marks = "(serial AAAABBBB0060, tiny USB 3.2 PCIe TinyEnclosure, taken at 1-1, USB4 ID ";
        assert!(lines[0].starts_with("is ") && lines[0].contains(marks), "{lines:?}");
        assert_eq!(lines.len(), 1 + 2 * 2, "the question is printed once: {lines:?}");
        // One with another number than the unit shows replaces that, unless the command gives a number.
        for (gives_serial, flash_consents) in [(false, true), (true, false)] {
            let later = LaterCommands { gives_serial, ..LaterCommands::default() };
            let other = FittingBackup { replaces_serial: true, ..found(Fit::Certain) };
            let steps = offers(&[other], Some((Writes::Image, &later)), &at("1-2"), &images);
            let steps = WordedStep::each(&steps, &run(&["flash", "fw.bin"]).at(&at("1-2")));
            let consents: Vec<bool> = steps
                .iter()
                .filter_map(WordedStep::line)
                .map(|line| line.contains("--clone-identity=serial"))
                .collect();
            assert_eq!(consents, [flash_consents, true], "{steps:?}");
        }
        // The certain backup shows that the board ran line 84, so the other one's line 85 needs `--other-line`.
        let of_line = |fit, line| {
            let mut backup = found(fit);
            backup.filed.unit.firmware_version = Some(FirmwareVersion([0x24, 4, 0x17, line, 0, 0]).to_string());
            backup
        };
        let both = [of_line(Fit::Certain, 0x84), of_line(Fit::PortOnly, 0x85)];
        let both = offered(&both, &[]);
        let restores = both.iter().filter_map(WordedStep::line).filter(|line| line.contains("restore"));
        assert_eq!(restores.map(|line| line.contains("--other-line")).collect::<Vec<_>>(), [false, true]);
        // A damaged backup would be refused.
        std::fs::write(path.join("part-1.bin"), "x").unwrap();
        assert_eq!(fitting(Fit::Certain), []);
    }
}
