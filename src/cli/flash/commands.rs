//! Words next steps: for a unit as a run left it, instead of a refused command, or after a write.

use std::borrow::Cow;
use std::path::Path;

use crate::flash::backup_folder;
use crate::flash::decide::Permission;
use crate::flash::fitting::{FiledBackup, FittingBackup};
use crate::flash::recovery::{Act, BackupFirst, InvokedCommand, NextStep, Why, Writes};
use crate::flash::session::{FlashJob, FlashUnit};
use crate::shell;
use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BlockIndex, ConfigField};
use asm2464_host::bridge::Location;
use serde::Serialize;

use crate::cli::arguments;
use crate::cli::command_line::by_hand_on;
use crate::cli::user_files;

/// A step in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WordedStep {
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

impl WordedStep {
    /// Words a step for the unit at this port, after this command.
    pub fn of(step: &NextStep, invoked: &InvokedCommand, location: &Location) -> Self {
        let NextStep { why, only_if, act } = step;
        Self {
            purpose: purpose(why, act, location),
            question: only_if.as_ref().map(question),
            command: command(act, invoked, location),
            // If the folder's path is not Unicode, only the command names it.
            backup: earlier_backup(why, act).and_then(Path::to_str).map(str::to_owned),
        }
    }

    /// The step on one line.
    pub fn note(&self) -> String {
        let Self { purpose, question, command, .. } = self;
        let question = question.as_ref().map(|question| format!("{question}: ")).unwrap_or_default();
        match command {
            Some(command) => format!("{question}{purpose}: `{command}`"),
            None => format!("{question}{purpose}"),
        }
    }

    /// Words each step.
    pub fn each(steps: &[NextStep], invoked: &InvokedCommand, location: &Location) -> Vec<Self> {
        let can_be_taken = |step: &&NextStep| !names_image_in_copy(&step.act, invoked);
        steps.iter().filter(can_be_taken).map(|step| Self::of(step, invoked, location)).collect()
    }
}

fn purpose(why: &Why, act: &Act, location: &Location) -> Cow<'static, str> {
    if let Act::Hands(hands) = act {
        return by_hand_on(location, *hands).into();
    }
    let purpose = match why {
        Why::GoOn => "go on",
        Why::OrGoOn => "or go on",
        Why::SetAgain => "then set it again",
        Why::GoBack => "go back to what it was",
        Why::OrGoBack => "or go back to what it was",
        Why::GoBackTo(None) => "go back to this backup",
        Why::GoBackTo(Some(firmware)) => {
            return format!("go back to this backup ({})", firmware.to_string().shown()).into();
        }
        Why::WithBlocks => "write the image with this backup's configuration blocks",
        Why::FirmwareAlone => "take only the firmware, and keep this unit's own identity",
        Why::WithoutBackup => "write it without a backup",
        Why::NewBoard => "if it is a new board, give it its first firmware",
        Why::See => "then see what it is",
        Why::ReadBack => "once it is back, read it back",
        Why::SeeFields => "see its fields",
        Why::CanStart => "see whether a GPU runtime can start",
        Why::Measure => "then measure it",
    };
    purpose.into()
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
    let date = backup.written.map(|time| format!(" on {}", user_files::day(time))).unwrap_or_default();
    marks.push(format!("taken{date} at {}", unit.device));
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
        (Why::WithBlocks, Act::Again { blocks_from, .. }) => blocks_from.as_deref(),
        (Why::GoBackTo(_), Act::Restore { folder, .. }) => Some(folder),
        _ => None,
    }
}

/// Returns the command that takes this step, ready for a shell; `None` for something to do by hand. It names the unit
/// by its port.
pub fn command(act: &Act, invoked: &InvokedCommand, location: &Location) -> Option<String> {
    if names_image_in_copy(act, invoked) {
        return None;
    }
    let mut words = Vec::new();
    let mut names_unit = true;
    let (mut permissions, mut last) = (&[][..], Vec::new());
    match act {
        Act::Again { permissions: needed, blocks_from, backup } => {
            words.push(match invoked.writes {
                Writes::Image | Writes::AnyImage => "asmpatch flash".to_owned(),
                Writes::Backup => "asmpatch restore".to_owned(),
                Writes::Fields => "asmpatch config set".to_owned(),
            });
            words.extend(invoked.what.iter().map(shell::word));
            let serial = invoked.serial.as_ref().filter(|serial| blocks_from.is_none() || !serial.is_drawn);
            words.extend(serial.map(|serial| shell::word(format!("--serial={}", serial.text))));
            if let Some(folder) = blocks_from.as_ref().or(invoked.config_from.as_ref()) {
                words.extend(["--config-from".to_owned(), shell::path(folder)]);
            }
            permissions = needed;
            last = match backup {
                BackupFirst::AsGiven => invoked.backup.iter().map(shell::word).collect(),
                BackupFirst::Into(folder) => vec![shell::word(arguments::backup_option(folder))],
                BackupFirst::No => vec!["--no-backup".to_owned()],
            };
        }
        Act::FirmwareAlone { permissions: needed } => {
            words.push("asmpatch flash".to_owned());
            words.extend(written_file(invoked));
            permissions = needed;
            last = invoked.backup.iter().map(shell::word).collect();
        }
        Act::Restore { folder, permissions: needed, backs_up } => {
            words.extend(["asmpatch restore".to_owned(), shell::path(folder)]);
            permissions = needed;
            if !backs_up {
                last.push("--no-backup".to_owned());
            }
        }
        Act::List => {
            words.push("asmpatch list".to_owned());
            // A virtual unit is listed only if it is named.
            names_unit = location.is_virtual();
        }
        Act::Doctor => words.push("asmpatch doctor".to_owned()),
        Act::Bench => words.push("asmpatch bench".to_owned()),
        Act::Verify => {
            words.push("asmpatch verify".to_owned());
            words.extend(written_file(invoked));
        }
        Act::Fields => words.push("asmpatch config get".to_owned()),
        Act::Hands(_) => return None,
    }
    if names_unit {
        words.extend(["--device".to_owned(), shell::word(location.to_string())]);
    }
    words.extend(permissions.iter().map(|permission| option(*permission).to_owned()));
    words.extend(last);
    Some(words.join(" ") + &invoked.suffix)
}

/// Whether a step's command would name the image in a copy of a flash that was restored. No command takes that alone.
fn names_image_in_copy(act: &Act, invoked: &InvokedCommand) -> bool {
    let names_image = matches!(act, Act::FirmwareAlone { .. } | Act::Verify);
    let wrote_copy =
        invoked.writes == Writes::Backup && invoked.what.first().is_some_and(|what| Path::new(what).is_file());
    names_image && wrote_copy
}

/// The file with the image that a command wrote, as a word of a command; `None` if it wrote the unit's own.
fn written_file(invoked: &InvokedCommand) -> Option<String> {
    let what = Path::new(invoked.what.first()?);
    match invoked.writes {
        // No file has this name, so it is a known image's ID.
        Writes::Image if !what.exists() => Some(format!("\"$(asmpatch download {})\"", what.display())),
        Writes::Image | Writes::AnyImage => Some(shell::path(what)),
        Writes::Backup => Some(shell::path(what.join(backup_folder::FIRMWARE))),
        Writes::Fields => None,
    }
}

/// Returns the steps to take instead of a write of the unit that is refused or asked about.
pub fn instead(unit: &FlashUnit, job: &FlashJob) -> Vec<WordedStep> {
    unit.location().map_or_else(Vec::new, |location| WordedStep::each(&unit.instead, &unit.invoked(job), location))
}

/// Returns the command that brings back what was on the unit before it was written.
pub fn way_back(unit: &FlashUnit, job: &FlashJob) -> Option<String> {
    command(&unit.way_back()?.act, &job.invoked, unit.location()?)
}

/// Returns the command to run next for the unit, whatever its outcome.
pub fn next(unit: &FlashUnit, job: &FlashJob) -> Option<String> {
    command(&unit.next_step(job)?.act, &unit.invoked(job), unit.location()?)
}

/// The option that gives this permission.
const fn option(permission: Permission) -> &'static str {
    match permission {
        Permission::Unproven => "--unproven",
        Permission::CloneIdentity => "--clone-identity",
        Permission::OtherLine => "--other-line",
    }
}

/// Returns the steps, one per line, for printing as they are: a command broken across lines can't be copied.
pub fn lines(steps: &[WordedStep]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut asked: Option<&str> = None;
    for WordedStep { purpose, question, command, .. } in steps {
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
    use std::path::PathBuf;
    use std::sync::Arc;

    use crate::flash::backup::Backup;
    use crate::flash::backup::tests::sample_backup;
    use crate::flash::error::FlashError;
    use crate::flash::fitting::tests::sample_filed;
    use crate::flash::fitting::{Fit, FittingBackup, offers};
    use crate::flash::progress::{FlashStep, StoppedState};
    use crate::flash::recovery::{FlashFailure, WrittenUnit};
    use asm2464::firmware::{FirmwareVersion, known_blocks};
    use asm2464::flash::Slot;
    use asm2464::interrupt::Interrupted;
    use asm2464::{Failure, Kind};
    use asm2464_chip::practice;

    use super::*;

    fn invoked(writes: Writes, what: &str) -> InvokedCommand {
        let what = vec![what.into()];
        InvokedCommand { writes, what, serial: None, config_from: None, backup: Vec::new(), suffix: String::new() }
    }

    /// A unit that a run of this command left in this state.
    fn unit(left: StoppedState, invoked: &InvokedCommand, backup: Option<&str>) -> WrittenUnit {
        WrittenUnit {
            location: at("1-2"),
            during: FlashStep::Open,
            left,
            backup: backup.map(PathBuf::from),
            invoked: Arc::new(invoked.clone()),
            again: Vec::new(),
            back: Some(Vec::new()),
            offers: Vec::new(),
        }
    }

    /// The steps after a run that stopped with this error.
    fn after(error: FlashError, unit: WrittenUnit) -> Vec<WordedStep> {
        let FlashFailure { unit, steps, .. } = FlashFailure::new(error, unit, BackupFirst::AsGiven);
        WordedStep::each(&steps, &unit.invoked, &unit.location)
    }

    /// The error of a unit that left the bus.
    fn gone() -> FlashError {
        Failure::new(Kind::Gone.code("asmpatch::gone"), "gone").into()
    }

    /// The steps after Ctrl-C.
    fn steps(unit: WrittenUnit) -> Vec<WordedStep> {
        after(Interrupted.into(), unit)
    }

    fn flash() -> InvokedCommand {
        invoked(Writes::Image, "fw patched.bin")
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
        NextStep { why: Why::GoBackTo(None), only_if, act }
    }

    fn at(port: &str) -> Location {
        port.parse().unwrap()
    }

    fn commands(left: StoppedState, invoked: &InvokedCommand, backup: Option<&str>) -> Vec<String> {
        let unit = WrittenUnit { location: at("1-2.3"), ..unit(left, invoked, backup) };
        after(gone(), unit).into_iter().filter_map(|step| step.command).collect()
    }

    /// A command with its words quoted as this system's shells quote them.
    fn quoted(command: &str) -> String {
        if cfg!(windows) { command.replace('\'', "\"") } else { command.to_owned() }
    }

    #[test]
    fn a_unit_without_firmware_is_finished_or_restored_from_its_own_backup() {
        assert_eq!(
            commands(StoppedState::Incomplete, &flash(), Some("b")),
            [
                "asmpatch flash 'fw patched.bin' --config-from b --device 1-2.3 --no-backup",
                "asmpatch restore b --device 1-2.3 --no-backup",
            ]
            .map(quoted)
        );
        assert_eq!(
            commands(StoppedState::BootLoader, &flash(), None),
            [quoted("asmpatch flash 'fw patched.bin' --device 1-2.3 --no-backup")]
        );
    }

    #[test]
    fn the_commands_carry_what_keeps_them_from_being_refused() {
        let words = |back: Option<Vec<Permission>>| -> Vec<String> {
            let again = vec![Permission::Unproven];
            let unit = WrittenUnit { again, back, ..unit(StoppedState::Incomplete, &flash(), Some("b")) };
            steps(unit).into_iter().filter_map(|step| step.command).collect()
        };
        assert_eq!(
            words(Some(vec![Permission::Unproven, Permission::OtherLine])),
            [
                "asmpatch flash 'fw patched.bin' --config-from b --device 1-2 --unproven --no-backup",
                "asmpatch restore b --device 1-2 --unproven --other-line --no-backup",
            ]
            .map(quoted)
        );
        // A backup whose firmware could never be replaced again is not offered.
        assert_eq!(words(None).len(), 1);
    }

    #[test]
    fn a_unit_that_lost_its_own_firmware_to_a_change_of_its_fields_gets_it_back_from_the_backup() {
        let origin = invoked(Writes::Fields, "product=GPU dock");
        let set = quoted("asmpatch config set 'product=GPU dock' --device 1-2.3");
        assert_eq!(
            commands(StoppedState::Incomplete, &origin, Some("b")),
            ["asmpatch restore b --device 1-2.3 --no-backup", &set]
        );
        // Without a backup, no command could name the firmware.
        assert_eq!(commands(StoppedState::BootLoader, &origin, None), [set.as_str()]);
        assert_eq!(commands(StoppedState::Untouched, &origin, None), [set]);
    }

    #[test]
    fn a_run_without_a_backup_of_its_own_goes_on_with_the_units_earlier_one() {
        let config = invoked(Writes::Fields, "product=GPU dock");
        let offered = |invoked: &InvokedCommand, fit| {
            let offers = vec![earlier(fit)];
            steps(WrittenUnit { offers, ..unit(StoppedState::Incomplete, invoked, None) })
        };
        let offer = |fit| WordedStep::of(&earlier(fit), &flash(), &at("1-2"));
        // The known blocks are not offered while a backup has the unit's own.
        assert_eq!(offered(&flash(), Fit::Certain), [offer(Fit::Certain)]);
        assert_eq!(offered(&config, Fit::Certain)[0], offer(Fit::Certain));
        // Another dock's backup is never the first command.
        let again = quoted("asmpatch flash 'fw patched.bin' --device 1-2 --no-backup");
        assert_eq!(offered(&flash(), Fit::PortOnly)[0].command, Some(again));
        let doubtful = offered(&config, Fit::PortOnly);
        assert!(doubtful[0].purpose.starts_with("restore a backup of the unit"), "{doubtful:?}");
        assert_eq!(doubtful[1], offer(Fit::PortOnly));
        assert!(doubtful[1].question.is_some() && doubtful[1].backup.as_deref() == Some("earlier"));
    }

    #[test]
    fn an_untouched_unit_is_backed_up_again() {
        assert_eq!(
            commands(StoppedState::Untouched, &invoked(Writes::Backup, "b"), None),
            ["asmpatch restore b --device 1-2.3"]
        );
    }

    #[test]
    fn recovery_commands_repeat_the_backup_options() {
        for option in ["--no-backup", "--backup-dir=my backups"] {
            let origin = InvokedCommand { backup: vec![option.into()], ..invoked(Writes::Backup, "b") };
            let again = format!("asmpatch restore b --device 1-2.3 {}", shell::word(option));
            assert_eq!(commands(StoppedState::Untouched, &origin, None), [again]);
            assert_eq!(
                commands(StoppedState::Incomplete, &origin, None),
                ["asmpatch restore b --device 1-2.3 --no-backup"]
            );
        }
    }

    #[test]
    fn a_written_unit_is_read_back_by_a_command_that_writes_nothing() {
        let verify = |invoked: &InvokedCommand| command(&Act::Verify, invoked, &at("1-2")).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = file.path().to_str().unwrap();
        let expected = format!("asmpatch verify {} --device 1-2", shell::path(file.path()));
        assert_eq!(verify(&invoked(Writes::Image, name)), expected);
        let id = "asmpatch verify \"$(asmpatch download ed4e39b)\" --device 1-2";
        assert_eq!(verify(&invoked(Writes::Image, "ed4e39b")), id);
        let backup = Path::new("b").join("firmware.bin");
        let expected = format!("asmpatch verify {} --device 1-2", shell::path(&backup));
        assert_eq!(verify(&invoked(Writes::Backup, "b")), expected);
        // The image in a copy of a flash is in no file of its own.
        let copy = invoked(Writes::Backup, name);
        for act in [Act::Verify, Act::FirmwareAlone { permissions: Vec::new() }] {
            assert_eq!(command(&act, &copy, &at("1-2")), None);
            let step = NextStep { why: Why::ReadBack, only_if: None, act };
            assert!(WordedStep::each(&[step], &copy, &at("1-2")).is_empty());
        }
    }

    #[test]
    fn a_written_unit_only_has_to_be_plugged_in_again() {
        for left in [StoppedState::Verified, StoppedState::Restarted, StoppedState::OtherIdentity] {
            let steps = after(gone(), unit(left, &flash(), None));
            assert_eq!(steps[0].purpose, "unplug the unit, wait five seconds, plug it in again");
            assert_eq!(steps[1].command.as_deref(), Some("asmpatch list"));
            assert_eq!(steps.len(), 2);
        }
    }

    #[test]
    fn a_virtual_unit_gets_its_power_from_the_next_command_and_is_listed_by_its_name() {
        let unit = unit(StoppedState::Verified, &flash(), None);
        let steps = steps(WrittenUnit { location: at("virtual:my unit"), ..unit });
        assert_eq!(
            steps[0].purpose,
            "run the next command, which powers the virtual unit up again with the faults in its bridge.toml"
        );
        assert_eq!(steps[1].command, Some(quoted("asmpatch list --device 'virtual:my unit'")));
    }

    #[cfg(unix)]
    #[test]
    fn the_commands_name_any_file_so_that_a_shell_gives_it_back() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let file = shell::argument(Path::new("--all"));
        let receipt = OsStr::from_bytes(b"r\xFF'.toml").to_owned();
        let origin = InvokedCommand {
            what: vec![file, "--receipt".into(), receipt, "--serial=-1".into()],
            config_from: Some("-dir\nrm -r x".into()),
            ..flash()
        };
        assert_eq!(
            commands(StoppedState::Incomplete, &origin, Some("b c"))[0],
            "asmpatch flash ./--all --receipt \"$(printf -- 'r\\377\\047.toml')\" --serial=-1 \
             --config-from \"$(printf -- './-dir\\012rm -r x')\" \
             --device 1-2.3 --no-backup"
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
        for (config_from, backup, is_offered) in
            [(None, None, true), (Some("c".into()), None, false), (None, Some("b"), false)]
        {
            let invoked = InvokedCommand { config_from, ..flash() };
            let unit = WrittenUnit { offers: vec![offer.clone()], ..unit(StoppedState::Incomplete, &invoked, backup) };
            let failure = FlashFailure::new(Interrupted.into(), unit, BackupFirst::AsGiven);
            assert_eq!(failure.steps.contains(&offer), is_offered, "{failure:?}");
        }
    }

    #[test]
    fn a_certain_backup_is_a_whole_command_and_a_doubtful_one_a_question() {
        let folder = tempfile::tempdir().unwrap();
        let images = crate::embedded::patches().unwrap().into();
        let path = folder.path().join("b");
        backup_folder::save(&backup(), &path).unwrap();
        let found = |fit| fitting_backup(&path, fit);
        let invoked = invoked(Writes::Image, "fw.bin");
        let offered = |backups: &[FittingBackup], permissions: &[Permission]| {
            let steps = offers(backups, invoked.writes, permissions, &at("1-2"), &images);
            WordedStep::each(&steps, &invoked, &at("1-2"))
        };
        let fitting = |fit| offered(&[found(fit)], &[Permission::OtherLine]);
        let certain = fitting(Fit::Certain);
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
        assert!(certain.iter().all(|action| action.backup.as_deref() == path.to_str()));
        let doubtful = fitting(Fit::PortOnly);
        assert!(doubtful.iter().all(|action| action.question.is_some()));
        let lines = lines(&doubtful);
        let marks = "(serial AAAABBBB0060, tiny USB 3.2 PCIe TinyEnclosure, taken at 1-1, USB4 ID ";
        assert!(lines[0].starts_with("is ") && lines[0].contains(marks), "{lines:?}");
        assert_eq!(lines.len(), 1 + 2 * 2, "the question is printed once: {lines:?}");
        // The certain backup shows that the board ran line 84, so the other one's line 85 needs `--other-line`.
        let of_line = |fit, line| {
            let mut backup = found(fit);
            backup.filed.unit.firmware_version = Some(FirmwareVersion([0x24, 4, 0x17, line, 0, 0]).to_string());
            backup
        };
        let both = [of_line(Fit::Certain, 0x84), of_line(Fit::PortOnly, 0x85)];
        let both = offered(&both, &[]);
        let restores =
            both.iter().filter_map(|action| action.command.as_deref()).filter(|line| line.contains("restore"));
        assert_eq!(restores.map(|line| line.contains("--other-line")).collect::<Vec<_>>(), [false, true]);
        // A damaged backup would be refused.
        std::fs::write(path.join("part-1.bin"), "x").unwrap();
        assert_eq!(fitting(Fit::Certain), []);
    }
}
