//! The commands that are printed for the user to run: on a unit as a run left it, or instead of a refused one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::advice::Hands;
use crate::flash::decide::Permission;
use crate::flash::recovery::{Action, BackupFirst, Commands, Writes};
use crate::shell;
use asm2464_host::bridge::Location;

use crate::cli::backup_place;
use crate::cli::command_line::by_hand_on;

/// The command that was run, kept so that it can be printed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvokedCommand {
    /// What it writes.
    pub writes: Writes,
    /// What is written, and the options that choose it, as given: `FILE --receipt R`, `DIR`, `serial=LAB-07`.
    pub what: Vec<OsString>,
    /// The backup that provided the configuration blocks, if one did.
    pub config_from: Option<PathBuf>,
    /// The options about the backup, as given: `--no-backup`, `--backup-dir=D`.
    pub backup: Vec<OsString>,
    /// The options without which no command finds the unit, each after a space.
    pub suffix: String,
}

impl InvokedCommand {
    /// Returns a command on the unit at `location`: `words`, then the permissions, then `more`.
    fn on(
        &self,
        location: &Location,
        mut words: Vec<String>,
        permissions: &[Permission],
        more: impl IntoIterator<Item = String>,
    ) -> String {
        words.extend(["--device".to_owned(), shell::word(location.to_string())]);
        words.extend(permissions.iter().map(|permission| option(*permission).to_owned()));
        words.extend(more);
        words.join(" ") + &self.suffix
    }
}

/// The option that gives this permission.
const fn option(permission: Permission) -> &'static str {
    match permission {
        Permission::Unproven => "--unproven",
        Permission::CloneIdentity => "--clone-identity",
        Permission::OtherLine => "--other-line",
    }
}

impl Commands for InvokedCommand {
    fn writes(&self) -> Writes {
        self.writes
    }

    fn names_blocks(&self) -> bool {
        self.config_from.is_some()
    }

    fn again(
        &self,
        location: &Location,
        permissions: &[Permission],
        blocks_from: Option<&Path>,
        backup: &BackupFirst,
    ) -> String {
        let command = match self.writes {
            Writes::Image | Writes::AnyImage => "asmpatch flash",
            Writes::Backup => "asmpatch restore",
            Writes::Fields => "asmpatch config set",
        };
        let mut words = vec![command.to_owned()];
        words.extend(self.what.iter().map(shell::word));
        if let Some(folder) = blocks_from.or(self.config_from.as_deref()) {
            words.extend(["--config-from".to_owned(), shell::path(folder)]);
        }
        let backup = match backup {
            BackupFirst::AsGiven => self.backup.iter().map(shell::word).collect(),
            BackupFirst::Into(folder) => vec![shell::word(backup_place::option(folder))],
            BackupFirst::No => vec!["--no-backup".to_owned()],
        };
        self.on(location, words, permissions, backup)
    }

    fn restore(&self, location: &Location, folder: &Path, permissions: &[Permission], backs_up: bool) -> String {
        let words = vec!["asmpatch restore".to_owned(), shell::path(folder)];
        self.on(location, words, permissions, (!backs_up).then(|| "--no-backup".to_owned()))
    }

    fn list(&self, location: &Location) -> String {
        // A virtual unit is listed only if it is named.
        match location.is_virtual() {
            true => self.on(location, vec!["asmpatch list".to_owned()], &[], None),
            false => format!("asmpatch list{}", self.suffix),
        }
    }

    fn bench(&self, location: &Location) -> String {
        self.on(location, vec!["asmpatch bench".to_owned()], &[], None)
    }

    fn fields(&self, location: &Location) -> String {
        self.on(location, vec!["asmpatch config get".to_owned()], &[], None)
    }

    fn replug(&self, location: &Location) -> &'static str {
        by_hand_on(location, Hands::Replug)
    }

    fn without_backup(&self) -> &'static str {
        "restore a backup of the unit, `asmpatch restore DIR --no-backup`, or without one give it firmware and the identity \
         that any unit gets, `asmpatch flash FILE --no-backup`: docs/recovery.md"
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
    use std::sync::Arc;

    use crate::flash::backup::{BackedUpUnit, Backup};
    use crate::flash::backup_folder;
    use crate::flash::decide::Carried;
    use crate::flash::fitting::{Fit, FittingBackup};
    use crate::flash::offers::offers;
    use crate::flash::progress::{FlashStep, StoppedState};
    use crate::flash::recovery::{Obstacle, Standing, Ways, actions};
    use asm2464::firmware::{FirmwareVersion, Part, known_blocks};
    use asm2464_chip::practice;

    use super::*;

    fn invoked(writes: Writes, what: &str) -> InvokedCommand {
        let what = vec![what.into()];
        InvokedCommand { writes, what, config_from: None, backup: Vec::new(), suffix: String::new() }
    }

    /// The steps after a run of this command, which left a unit like this.
    fn steps(
        left: StoppedState,
        origin: &InvokedCommand,
        carried: &Carried,
        port: &str,
        backup: Option<&str>,
        offers: &[Action],
        obstacle: Option<Obstacle>,
    ) -> Vec<Action> {
        let backup = backup.map(PathBuf::from);
        let standing = Standing { location: at(port), during: FlashStep::Open, left, backup };
        let (commands, backup_first) = (Arc::new(origin.clone()), BackupFirst::AsGiven);
        let ways = Ways { commands, carried: carried.clone(), offers: offers.to_vec(), backup_first };
        actions(&standing, &ways, obstacle)
    }

    fn flash() -> InvokedCommand {
        invoked(Writes::Image, "fw patched.bin")
    }

    fn at(port: &str) -> Location {
        port.parse().unwrap()
    }

    fn commands(left: StoppedState, origin: &InvokedCommand, backup: Option<&str>) -> Vec<String> {
        let carried = Carried { again: Vec::new(), back: Some(Vec::new()) };
        let actions = steps(left, origin, &carried, "1-2.3", backup, &[], Some(Obstacle::Gone));
        actions.into_iter().filter_map(|a| a.command).collect()
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
        let carried = Carried {
            again: vec![Permission::Unproven],
            back: Some(vec![Permission::Unproven, Permission::OtherLine]),
        };
        let words = |carried: &Carried| -> Vec<String> {
            let actions = steps(StoppedState::Incomplete, &flash(), carried, "1-2", Some("b"), &[], None);
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
        let offer = |question: Option<&str>| Action {
            purpose: "p".into(),
            question: question.map(str::to_owned),
            command: Some("asmpatch restore earlier".to_owned()),
            backup: None,
        };
        let config = invoked(Writes::Fields, "product=GPU dock");
        let offered = |origin: &InvokedCommand, question| {
            let offers = [offer(question)];
            steps(StoppedState::Incomplete, origin, &Carried::default(), "1-2", None, &offers, None)
        };
        // The known blocks are not offered while a backup has the unit's own.
        assert_eq!(offered(&flash(), None), [offer(None)]);
        assert_eq!(offered(&config, None)[0], offer(None));
        // Another dock's backup is never the first command.
        let again = quoted("asmpatch flash 'fw patched.bin' --device 1-2 --no-backup");
        assert_eq!(offered(&flash(), Some("is it?"))[0].command, Some(again));
        assert_eq!(
            offered(&config, Some("is it?"))[..2],
            [Action::by_hand(config.without_backup()), offer(Some("is it?"))]
        );
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
    fn a_written_unit_only_has_to_be_plugged_in_again() {
        for left in [StoppedState::Verified, StoppedState::Restarted, StoppedState::OtherIdentity] {
            let actions = steps(left, &flash(), &Carried::default(), "1-2", None, &[], Some(Obstacle::Gone));
            assert_eq!(actions[0].purpose, "unplug the unit, wait five seconds, plug it in again");
            assert_eq!(actions[1].command.as_deref(), Some("asmpatch list"));
            assert_eq!(actions.len(), 2);
        }
    }

    #[test]
    fn a_virtual_unit_gets_its_power_from_the_next_command_and_is_listed_by_its_name() {
        let actions = steps(StoppedState::Verified, &flash(), &Carried::default(), "virtual:my unit", None, &[], None);
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
            commands(StoppedState::Incomplete, &origin, Some("b c"))[0],
            "asmpatch flash ./--all --receipt \"$(printf -- 'r\\377\\047.toml')\" --serial=-1 \
             --config-from \"$(printf -- './-dir\\012rm -r x')\" \
             --device 1-2.3 --no-backup"
        );
    }
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
    fn earlier_backups_are_offered_only_to_a_run_that_has_no_blocks_of_the_unit() {
        let offer = Action::run("restore an earlier backup", "offered".to_owned());
        let (left, carried) = (StoppedState::Incomplete, Carried { again: Vec::new(), back: Some(Vec::new()) });
        for (config_from, backup, is_offered) in
            [(None, None, true), (Some("c".into()), None, false), (None, Some("b"), false)]
        {
            let origin = InvokedCommand { config_from, ..flash() };
            let steps = steps(left, &origin, &carried, "1-2", backup, std::slice::from_ref(&offer), None);
            assert_eq!(steps.contains(&offer), is_offered, "{steps:?}");
        }
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
        let origin = invoked(Writes::Image, "fw.bin");
        let fitting = |fit| offers(&[found(fit)], &origin, &[Permission::OtherLine], &at("1-2"), &library);
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
        assert!(lines[0].starts_with("is ") && lines[0].contains("serial A"), "{lines:?}");
        assert_eq!(lines.len(), 1 + 2 * 2, "the question is printed once: {lines:?}");
        // The certain backup shows that the board ran line 84, so the other one's line 85 needs `--other-line`.
        let of_line =
            |fit, line| FittingBackup { version: Some(FirmwareVersion([0x24, 4, 0x17, line, 0, 0])), ..found(fit) };
        let both = [of_line(Fit::Certain, 0x84), of_line(Fit::PortOnly, 0x85)];
        let both = offers(&both, &origin, &[], &at("1-2"), &library);
        let restores =
            both.iter().filter_map(|action| action.command.as_deref()).filter(|line| line.contains("restore"));
        assert_eq!(restores.map(|line| line.contains("--other-line")).collect::<Vec<_>>(), [false, true]);
        // A damaged backup would be refused.
        std::fs::write(path.join("part-1.bin"), "x").unwrap();
        assert_eq!(fitting(Fit::Certain), []);
    }
}
