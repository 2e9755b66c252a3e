//! Tests of the order of a session's steps.

use std::path::Path;
use std::sync::Mutex;

use asm2464::firmware::FlashAddress;
use asm2464::flash::BUDGET;
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::{Scenario, SharedUnit, VirtualPort, VirtualUnit};

use super::super::backup::Backup;
use super::super::backup::tests::sample_backup;
use super::super::decide::samples::{block_one, block_zero};
use super::super::firmware_kind::{Firmware, Rewritable};
use super::super::slot::SLOT_LEN;
use super::*;

/// Answers the first `yes` questions with yes, and the next one with no.
struct Answers {
    yes: usize,
    asked: Mutex<Vec<&'static str>>,
}

impl FrontEnd for Answers {
    fn confirm(&self, question: Question<'_>) -> Result<(), AnyFailure> {
        let mut asked = self.asked.lock().unwrap();
        asked.push(match question {
            Question::Write(_) => "write",
            Question::KnownIdentity { .. } => "known identity",
            Question::UnknownNeighbours { .. } | Question::OtherLine { .. } => "another",
        });
        if asked.len() > self.yes { Err(Refusal::Declined.into()) } else { Ok(()) }
    }

    fn works_on(&self, _: Option<&str>) {}

    fn begin(&self, units: Vec<(Location, Ways)>) -> Vec<Box<FlashProgress<'static>>> {
        units.into_iter().map(|_| Box::new(()) as Box<FlashProgress<'static>>).collect()
    }

    fn ended(&self, _: usize, _: &UnitOutcome) {}
}

/// A front end that has no commands to print.
struct NoCommands;

impl Commands for NoCommands {
    fn writes(&self) -> Writes {
        Writes::Image
    }

    fn names_blocks(&self) -> bool {
        false
    }

    fn again(&self, _: &Location, _: &[Permission], _: Option<&Path>, _: &BackupFirst) -> String {
        String::new()
    }

    fn restore(&self, _: &Location, _: &Path, _: &[Permission], _: bool) -> String {
        String::new()
    }

    fn list(&self, _: &Location) -> String {
        String::new()
    }

    fn bench(&self, _: &Location) -> String {
        String::new()
    }

    fn fields(&self, _: &Location) -> String {
        String::new()
    }

    fn replug(&self, _: &Location) -> &'static str {
        ""
    }

    fn without_backup(&self) -> &'static str {
        ""
    }
}

fn cells(unit: &SharedUnit) -> Vec<u8> {
    unit.lock().flash().get(FlashAddress(0), SLOT_LEN).unwrap().to_vec()
}

#[test]
fn nothing_is_written_before_every_question_has_its_yes() {
    let home = tempfile::tempdir().unwrap();
    let backup = Backup { blocks: [block_zero("DOCK7"), block_one(7)], ..sample_backup() };
    backup_folder::save(&backup, &home.path().join("own")).unwrap();
    let (image, library) = (practice::image(), crate::embedded::patches().unwrap());
    for yes in 0..=2 {
        let scenario = Scenario::parse("factory = 'no-image'\nserial = 'DOCK7'\n").unwrap();
        let port = VirtualPort::new("unit", VirtualUnit::in_memory(scenario, b"unit", None).unwrap());
        let unit = port.unit().clone();
        let before = cells(&unit);
        let mut session = WritingSession {
            ports: vec![("virtual:unit".to_owned(), Ok(Box::new(port)))],
            devices: Arc::new(Devices::shipped().unwrap()),
            allowed: Allowed { no_backup: true, ..Allowed::default() },
            all_or_none: false,
            earlier_backups: Some(home.path().to_owned()),
            options: FlashOptions {
                backup_into: None,
                backup_elsewhere: Vec::new(),
                return_deadline: Duration::ZERO,
                replug_deadline: Duration::ZERO,
                rewrite: false,
                budget: BUDGET,
            },
            interrupt: Interrupt::never(),
        };
        let job = WritingJob {
            subject: NewFirmware {
                firmware: Firmware::of(&image, &library),
                rewritable: Rewritable::Yes,
                is_unknown: false,
                from_virtual: false,
                serial_given: false,
            },
            library: library.clone(),
            source: String::new(),
            commands: Arc::new(NoCommands),
        };
        let answers = Answers { yes, asked: Mutex::default() };
        let units = session.examine(&answers, |seen| {
            Ok(FlashPlan::flash(seen.attached.clone(), seen.blocks, None, &image, |_| Ok(()))?)
        });
        let mut decided = session.decide(units, &job).unwrap();
        let answer = decided.write(&answers);
        assert_eq!(answer.is_ok(), yes == 2, "{yes}");
        assert_eq!(*answers.asked.lock().unwrap(), ["write", "known identity"][..(yes + 1).min(2)], "{yes}");
        assert_eq!(decided.units[0].written().is_some(), yes == 2, "{yes}");
        assert_eq!(cells(&unit) != before, yes == 2, "{yes}");
    }
}
