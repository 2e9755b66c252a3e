//! The state in which a stopped run leaves a unit, and the commands that recover it. Pure.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::flash::decide::{Carried, Permission};
use crate::flash::error::FlashError;
use crate::flash::left::Left;
use crate::flash::progress::FlashStep;
use crate::flash::run::Stopped;
use crate::shell;
use asm2464::firmware::FlashAddress;
use asm2464::flash::RegisterError;
use asm2464::{Coded, Kind, Label};
use asm2464_host::bridge::Location;
use derive_more::Display;
use serde::Serialize;

use crate::advice::Hands;
use crate::cli::advice::{self, CommandLine};
use crate::cli::errors;

/// A command that writes units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum WritingCommand {
    /// `asmpatch flash FILE`.
    #[display("flash")]
    Flash,
    /// `asmpatch restore DIR`.
    #[display("restore")]
    Restore,
    /// `asmpatch config set FIELD=TEXT`.
    #[display("config set")]
    Config,
}

/// The command that was run, kept so that it can be printed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvokedCommand {
    /// The command.
    pub command: WritingCommand,
    /// What is written, and the options that choose it, as given: `FILE --receipt R`, `DIR`, `serial=LAB-07`.
    pub what: Vec<OsString>,
    /// The backup that provided the configuration blocks, if one did.
    pub config_from: Option<PathBuf>,
    /// The options about the backup, as given: `--no-backup`, `--backup-dir=D`.
    pub backup: Vec<OsString>,
}

/// One step of a recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Action {
    /// What the step is for.
    pub purpose: Cow<'static, str>,
    /// The question that you must have answered with yes before you run the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The command, ready for a shell; `None` for something to do by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The folder of the earlier backup that the command takes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
}

/// What is left for a unit of which no backup is known for certain.
const FLASH: Action = Action {
    purpose: Cow::Borrowed(
        "restore a backup of the unit, `asmpatch restore DIR --no-backup`, or without one give it firmware and the \
         identity that any unit gets, `asmpatch flash FILE --no-backup`: docs/recovery.md",
    ),
    question: None,
    command: None,
    backup: None,
};

/// Returns the steps that recover a unit left in this state. `backup` is the one that the stopped run took, `offers` are
/// the steps from earlier backups, for a run that took none.
pub fn actions(
    left: Left,
    origin: &InvokedCommand,
    carried: &Carried,
    location: &Location,
    backup: Option<&Path>,
    offers: &[Action],
    obstacle: Option<Obstacle>,
) -> Vec<Action> {
    let command = |purpose: &'static str, command| Action {
        purpose: purpose.into(),
        question: None,
        command: Some(command),
        backup: None,
    };
    // A virtual unit is listed only if it is named.
    let named =
        if location.is_virtual() { format!(" --device {}", shell::word(location.to_string())) } else { String::new() };
    let list = |purpose| command(purpose, format!("asmpatch list{named}"));
    let again = |no_backup| command("go on", self::again(origin, &carried.again, location, backup, no_backup));
    let (certain, doubtful): (Vec<Action>, Vec<Action>) =
        offers.iter().cloned().partition(|offer| offer.question.is_none());
    let back = backup.zip(carried.back.as_ref()).map(|(folder, permissions)| {
        command("or go back to what it was", restore(folder, location, permissions) + " --no-backup")
    });
    let replug = Action {
        purpose: advice::by_hand_on(location, Hands::Replug).into(),
        question: None,
        command: None,
        backup: None,
    };
    let mut actions = Vec::new();
    if obstacle == Some(Obstacle::Gone) && !matches!(left, Left::Verified | Left::Restarted | Left::OtherIdentity) {
        actions.push(replug.clone());
    }
    match left {
        Left::Untouched | Left::Unprotected => actions.push(again(false)),
        // Only the backup still has the unit's own firmware.
        Left::Incomplete | Left::Complete | Left::BootLoader | Left::Unproven
            if origin.command == WritingCommand::Config =>
        {
            match back {
                Some(back) => actions.push(Action { purpose: "go back to what it was".into(), ..back }),
                None if certain.is_empty() => actions.extend([FLASH].into_iter().chain(doubtful)),
                None => actions.extend(certain),
            }
            let again = self::again(origin, &carried.again, location, None, false);
            actions.push(command("then set it again", again));
        }
        Left::Incomplete | Left::Complete | Left::BootLoader | Left::Unproven
            if obstacle == Some(Obstacle::KeepsOld) && back.is_some() =>
        {
            actions.extend(back.map(|back| Action { purpose: "go back to what it was".into(), ..back }));
            actions.push(Action { purpose: "or go on".into(), ..again(true) });
        }
        Left::Incomplete | Left::Complete | Left::BootLoader | Left::Unproven => {
            // Going on without any backup's blocks would give the unit's identity away.
            if certain.is_empty() {
                actions.push(again(true));
            }
            actions.extend(certain.into_iter().chain(back).chain(doubtful));
        }
        Left::Verified | Left::Restarted | Left::OtherIdentity => {
            actions.push(replug);
            actions.push(list("then see what it is"));
            actions.extend(back);
        }
    }
    actions
}

/// The option that gives this permission.
const fn option(permission: Permission) -> &'static str {
    match permission {
        Permission::Unproven => "--unproven",
        Permission::CloneIdentity => "--clone-identity",
        Permission::OtherLine => "--other-line",
    }
}

/// The command that writes a backup back.
pub fn restore(folder: &Path, location: &Location, permissions: &[Permission]) -> String {
    let mut words = vec![
        "asmpatch restore".to_owned(),
        shell::path(folder),
        "--device".to_owned(),
        shell::word(location.to_string()),
    ];
    words.extend(permissions.iter().map(|permission| option(*permission).to_owned()));
    words.join(" ")
}

/// Returns the command that was run, changed so that it works in the unit's present state: the unit may be in its boot
/// loader, which provides neither a backup nor the unit's own configuration blocks.
pub fn again(
    origin: &InvokedCommand,
    permissions: &[Permission],
    location: &Location,
    backup: Option<&Path>,
    no_backup: bool,
) -> String {
    let mut words = vec![format!("asmpatch {}", origin.command)];
    words.extend(origin.what.iter().map(shell::word));
    let own_blocks = backup.filter(|_| no_backup && origin.command == WritingCommand::Flash);
    if let Some(folder) = origin.config_from.as_deref().or(own_blocks) {
        words.extend(["--config-from".to_owned(), shell::path(folder)]);
    }
    words.extend(["--device".to_owned(), shell::word(location.to_string())]);
    words.extend(permissions.iter().map(|permission| option(*permission).to_owned()));
    if no_backup {
        words.push("--no-backup".to_owned());
    } else {
        words.extend(origin.backup.iter().map(shell::word));
    }
    words.join(" ")
}

/// Appends `suffix` to each command: the options without which the unit would not be found.
pub fn with_options(mut actions: Vec<Action>, suffix: &str) -> Vec<Action> {
    actions.iter_mut().filter_map(|action| action.command.as_mut()).for_each(|command| *command += suffix);
    actions
}

/// A run that stopped, and how to recover from it: the error that `flash` and `restore` return.
#[derive(Debug, Display)]
#[display("{location}: {error} (at: {during})")]
pub struct FlashFailure {
    /// The unit's port.
    pub location: Location,
    /// The error itself.
    pub error: FlashError,
    /// The step in which it happened.
    pub during: FlashStep,
    /// The state that the unit is in.
    pub left: Left,
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
    pub left: Left,
    /// Its backup.
    pub backup: Option<PathBuf>,
}

impl From<&Stopped> for Standing {
    fn from(Stopped { during, left, report, .. }: &Stopped) -> Self {
        Self { location: report.location.clone(), during: *during, left: *left, backup: report.backup.clone() }
    }
}

/// What the commands that recover a unit take from the run, whatever the unit's state.
#[derive(Debug, Clone)]
pub struct Ways {
    /// The command that was run.
    pub origin: InvokedCommand,
    /// What the commands need to repeat.
    pub carried: Carried,
    /// The steps from earlier backups, for a run that takes no blocks from a backup.
    pub offers: Vec<Action>,
    /// Appended to each command: the options without which the unit would not be found.
    pub suffix: String,
}

impl FlashFailure {
    /// Describes the failure of a run.
    pub fn new(error: FlashError, standing: Standing, ways: &Ways) -> Self {
        let Standing { location, during, left, backup } = standing;
        let Ways { origin, carried, offers, suffix } = ways;
        let has_own_blocks = backup.is_some() || origin.config_from.is_some();
        let offers = if has_own_blocks { &[][..] } else { offers };
        let obstacle = Obstacle::of(&error);
        let actions = actions(left, origin, carried, &location, backup.as_deref(), offers, obstacle);
        Self { location, error, during, left, actions: with_options(actions, suffix) }
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

/// Returns what an error in the middle of a write calls for, in addition to what the state calls for.
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

impl Coded for FlashFailure {
    fn label(&self) -> Label {
        self.error.label()
    }

    fn help(&self) -> Option<String> {
        let is_unchanged = matches!(self.left, Left::Untouched | Left::Unprotected);
        let own = is_unchanged.then(|| errors::help(&self.error, &CommandLine::on(&self.location)));
        let first = own.or_else(|| advice(&self.error).map(str::to_owned)).map(|text| text + "\n").unwrap_or_default();
        let state = self.left;
        Some(format!("{first}the unit's state: {state}\ndocs/recovery.md lists every state that a unit can be in"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invoked(command: WritingCommand, what: &str) -> InvokedCommand {
        InvokedCommand { command, what: vec![what.into()], config_from: None, backup: Vec::new() }
    }

    fn flash() -> InvokedCommand {
        invoked(WritingCommand::Flash, "fw patched.bin")
    }

    fn at(port: &str) -> Location {
        port.parse().unwrap()
    }

    fn commands(left: Left, origin: &InvokedCommand, backup: Option<&str>) -> Vec<String> {
        let carried = Carried { again: Vec::new(), back: Some(Vec::new()) };
        let actions = actions(left, origin, &carried, &at("1-2.3"), backup.map(Path::new), &[], Some(Obstacle::Gone));
        actions.into_iter().filter_map(|a| a.command).collect()
    }

    /// A command with its words quoted as this system's shells quote them.
    fn quoted(command: &str) -> String {
        if cfg!(windows) { command.replace('\'', "\"") } else { command.to_owned() }
    }

    #[test]
    fn a_unit_without_firmware_is_finished_or_restored_from_its_own_backup() {
        assert_eq!(
            commands(Left::Incomplete, &flash(), Some("b")),
            [
                "asmpatch flash 'fw patched.bin' --config-from b --device 1-2.3 --no-backup",
                "asmpatch restore b --device 1-2.3 --no-backup",
            ]
            .map(quoted)
        );
        assert_eq!(
            commands(Left::BootLoader, &flash(), None),
            [quoted("asmpatch flash 'fw patched.bin' --device 1-2.3 --no-backup")]
        );
    }

    #[test]
    fn the_commands_carry_what_keeps_them_from_being_refused() {
        let carried = Carried {
            again: vec![Permission::Unproven],
            back: Some(vec![Permission::Unproven, Permission::OtherLine]),
        };
        let words = |carried: &Carried| -> Vec<String> {
            let actions = actions(Left::Incomplete, &flash(), carried, &at("1-2"), Some(Path::new("b")), &[], None);
            actions.into_iter().filter_map(|action| action.command).collect()
        };
        assert_eq!(
            words(&carried),
            [
                "asmpatch flash 'fw patched.bin' --config-from b --device 1-2 --unproven --no-backup",
                "asmpatch restore b --device 1-2 --unproven --other-line --no-backup",
            ]
            .map(quoted)
        );
        // A backup whose firmware could never be replaced again is not offered.
        assert_eq!(words(&Carried { back: None, ..carried }).len(), 1);
    }

    #[test]
    fn a_unit_that_lost_its_own_firmware_to_a_change_of_its_fields_gets_it_back_from_the_backup() {
        let origin = invoked(WritingCommand::Config, "product=GPU dock");
        let set = quoted("asmpatch config set 'product=GPU dock' --device 1-2.3");
        assert_eq!(
            commands(Left::Incomplete, &origin, Some("b")),
            ["asmpatch restore b --device 1-2.3 --no-backup", &set]
        );
        // Without a backup, no command could name the firmware.
        assert_eq!(commands(Left::BootLoader, &origin, None), [set.as_str()]);
        assert_eq!(commands(Left::Untouched, &origin, None), [set]);
    }

    #[test]
    fn a_run_without_a_backup_of_its_own_goes_on_with_the_units_earlier_one() {
        let offer = |question: Option<&str>| Action {
            purpose: "p".into(),
            question: question.map(str::to_owned),
            command: Some("asmpatch restore earlier".to_owned()),
            backup: None,
        };
        let config = invoked(WritingCommand::Config, "product=GPU dock");
        let told = |origin: &InvokedCommand, question| {
            let offers = [offer(question)];
            actions(Left::Incomplete, origin, &Carried::default(), &at("1-2"), None, &offers, None)
        };
        // The known blocks are no way while a backup has the unit's own.
        assert_eq!(told(&flash(), None), [offer(None)]);
        assert_eq!(told(&config, None)[0], offer(None));
        // Another dock's backup is never the first command.
        let again = quoted("asmpatch flash 'fw patched.bin' --device 1-2 --no-backup");
        assert_eq!(told(&flash(), Some("is it?"))[0].command, Some(again));
        assert_eq!(told(&config, Some("is it?"))[..2], [FLASH, offer(Some("is it?"))]);
    }

    #[test]
    fn an_untouched_unit_is_backed_up_again() {
        assert_eq!(
            commands(Left::Untouched, &invoked(WritingCommand::Restore, "b"), None),
            ["asmpatch restore b --device 1-2.3"]
        );
    }

    #[test]
    fn recovery_commands_repeat_the_backup_options() {
        for option in ["--no-backup", "--backup-dir=my backups"] {
            let origin = InvokedCommand { backup: vec![option.into()], ..invoked(WritingCommand::Restore, "b") };
            let again = format!("asmpatch restore b --device 1-2.3 {}", shell::word(option));
            assert_eq!(commands(Left::Untouched, &origin, None), [again]);
            assert_eq!(commands(Left::Incomplete, &origin, None), ["asmpatch restore b --device 1-2.3 --no-backup"]);
        }
    }

    #[test]
    fn a_written_unit_only_has_to_be_plugged_in_again() {
        for left in [Left::Verified, Left::Restarted, Left::OtherIdentity] {
            let actions = actions(left, &flash(), &Carried::default(), &at("1-2"), None, &[], Some(Obstacle::Gone));
            assert_eq!(actions[0].purpose, "unplug the unit, wait five seconds, plug it in again");
            assert_eq!(actions[1].command.as_deref(), Some("asmpatch list"));
            assert_eq!(actions.len(), 2);
        }
    }

    #[test]
    fn a_virtual_unit_gets_its_power_from_the_next_command_and_is_listed_by_its_name() {
        let actions = actions(Left::Verified, &flash(), &Carried::default(), &at("virtual:my unit"), None, &[], None);
        assert_eq!(
            actions[0].purpose,
            "run the next command, which powers the virtual unit up again with the faults in its bridge.toml"
        );
        assert_eq!(actions[1].command, Some(quoted("asmpatch list --device 'virtual:my unit'")));
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
            commands(Left::Incomplete, &origin, Some("b c"))[0],
            "asmpatch flash ./--all --receipt \"$(printf -- 'r\\377\\047.toml')\" --serial=-1 \
             --config-from \"$(printf -- './-dir\\012rm -r x')\" \
             --device 1-2.3 --no-backup"
        );
    }
}
