//! Tests of the order of a job's steps.

use std::path::Path;
use std::time::Duration;

use asm2464::firmware::{BridgeState, FirmwareVersion, FlashAddress};
use asm2464::flash::{BUDGET, SLOT_LEN};
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::{SharedUnit, VirtualPort};
use asm2464_host::bridge::{Location, Storage};

use super::super::backup::Backup;
use super::super::backup::tests::sample_backup;
use super::super::backup_folder;
use super::super::behaviour::StartedCode;
use super::super::consent::Waivers;
use super::super::decide::samples::{block_one, block_zero};
use super::super::error::FlashError;
use super::super::fitting::Fit;
use super::super::fitting::tests::sample_filed;
use super::super::progress::{FlashProgress, FlashStep, StoppedState};
use super::super::recovery::{FlashFailure, ImageRef, WrittenUnit};
use super::super::wanted;
use super::*;
use crate::advice::Hands;
use crate::image::{Rewritable, samples};
use crate::tests::{unit, virtual_port};

/// The place of every unit here.
const PLACE: &str = "1-1";

/// Reports to nobody.
fn follow(units: Vec<WrittenUnit>) -> Vec<Box<FlashProgress<'static>>> {
    units.into_iter().map(|_| Box::new(()) as Box<FlashProgress<'static>>).collect()
}

fn job(writes: Writes, names_blocks: bool) -> FlashJob {
    let proof = samples::proof(&practice::image(), Rewritable::Yes);
    FlashJob {
        wanted: practice_image(),
        subject: NewFirmware { proof, unknown: None, from_virtual: false, serial_given: false },
        images: images(),
        runtime: crate::embedded::runtime().unwrap(),
        source: String::new(),
        invoked: Arc::new(InvokedCommand {
            writes,
            image: Some(ImageRef::File("fw.bin".into())),
            names_blocks,
            backs_up: true,
        }),
        devices: Arc::new(Devices::shipped()),
        allowed: Allowed::default(),
        all_or_none: false,
        earlier_backups: BackupPlaces::default(),
        beside: None,
        options: FlashOptions {
            backup_into: None,
            backup_elsewhere: Vec::new(),
            pointers_into: None,
            return_deadline: Duration::ZERO,
            // Nobody can plug in a virtual unit again.
            replug_deadline: Duration::from_secs(3600),
            rewrite: false,
            budget: BUDGET,
        },
        interrupt: Interrupt::never(),
    }
}

fn allowing(allowed: Allowed) -> FlashJob {
    FlashJob { allowed, ..job(Writes::Image, false) }
}

/// Examines the unit at a port.
fn examined_at(port: VirtualPort) -> Vec<FoundUnit> {
    let port: NamedPort = ("virtual:unit".to_owned(), Ok(Box::new(port)));
    examine(vec![port], &practice_image(), &images(), Interrupt::never())
}

fn unit_in_its_boot_loader() -> VirtualPort {
    virtual_port("factory = 'no-image'\nserial = 'DOCK7'\n")
}

fn blank_board() -> VirtualPort {
    virtual_port("factory = 'erased'\n")
}

fn practice_image() -> Wanted {
    Wanted::Image(Box::new(wanted::tests::practice_image()))
}

fn images() -> Images {
    crate::embedded::patches().unwrap().into()
}

/// A unit in its boot loader that was examined.
fn examined() -> Examined {
    examined_at(unit_in_its_boot_loader()).remove(0).examined.unwrap()
}

fn unit_with(outcome: UnitOutcome) -> FlashUnit {
    FlashUnit {
        device: PLACE.to_owned(),
        port: None,
        examined: None,
        terms: Terms::default(),
        outcome,
        later: LaterCommands::default(),
        instead: Vec::new(),
        test: None,
    }
}

fn places(folder: &Path) -> BackupPlaces {
    BackupPlaces { folders: vec![folder.to_owned()], beside: Vec::new() }
}

fn names(questions: &[WriteQuestion<'_>]) -> Vec<&'static str> {
    let name = |question: &WriteQuestion<'_>| match question {
        WriteQuestion::Write(_) => "write",
        WriteQuestion::KnownIdentity { .. } => "known identity",
        WriteQuestion::UnreadBackup { .. } => "unread backup",
        WriteQuestion::Loss { .. } => "loss",
        WriteQuestion::UnknownNeighbours { .. } => "unknown neighbours",
        WriteQuestion::OtherLine { .. } => "other line",
    };
    questions.iter().map(name).collect()
}

fn cells(unit: &SharedUnit) -> Vec<u8> {
    unit.lock().flash().get(FlashAddress(0), SLOT_LEN).unwrap().to_vec()
}

#[test]
fn a_backup_that_may_be_the_units_own_is_asked_about_before_and_is_a_way_out() {
    let home = tempfile::tempdir().unwrap();
    let backup = Backup { blocks: [block_zero("DOCK7"), block_one(7)], ..sample_backup() };
    backup_folder::save(&backup, &home.path().join("own")).unwrap();
    let port = unit_in_its_boot_loader();
    let unit = port.unit().clone();
    let before = cells(&unit);
    let allowed = Allowed { no_backup: true, ..Allowed::default() };
    let job = FlashJob { earlier_backups: places(home.path()), ..allowing(allowed) };
    let mut units = job.decide(examined_at(port)).unwrap();
    assert!(!units[0].instead.is_empty());
    assert_eq!(names(&job.questions(&units)), ["write", "known identity"]);
    assert!(cells(&unit) == before);
    job.write(&mut units, follow, &|_, _| ());
    assert!(units[0].written().is_some() && cells(&unit) != before);
}

/// A backup of another unit whose block was changed, so that nobody knows what it had.
fn damaged_backup() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("asmpatch-backup-RACK-01-0123abcd");
    backup_folder::save(&sample_backup(), &folder).unwrap();
    std::fs::write(folder.join("config-0.bin"), "x").unwrap();
    home
}

#[test]
fn a_backup_that_can_not_be_read_counts_as_one_that_may_be_the_units_own() {
    let home = damaged_backup();
    let allowed = Allowed { no_backup: true, ..Allowed::default() };
    let earlier_backups = places(home.path());
    let job = FlashJob { earlier_backups: earlier_backups.clone(), ..allowing(allowed) };
    let units = job.decide(examined_at(unit_in_its_boot_loader())).unwrap();
    assert_eq!(names(&job.questions(&units)), ["write", "unread backup", "loss"]);
    assert!(matches!(units[0].instead[0].act, Act::MakeReadable(_)), "{:?}", units[0].instead);
    // Nobody can be asked.
    let unasked = Allowed { unasked: true, ..allowed };
    let job = FlashJob { earlier_backups: earlier_backups.clone(), ..allowing(unasked) };
    let units = job.decide(examined_at(blank_board())).unwrap();
    let UnitOutcome::Refused(why) = &units[0].outcome else { panic!("it would be written") };
    assert_eq!(why.coded().code(), "asmpatch::flash::unread_backup");
    // The command for a new board has the consent, and is the user's to choose.
    let new = units[0].instead.iter().find(|step| step.why == Why::NewBoard).unwrap();
    assert_eq!(new.applicability(), Applicability::IfYes);
    assert!(
        matches!(&new.act, Act::Again { permissions, .. } if permissions == &[Permission::CloneIdentity(Waiver::OwnBackup)])
    );
    // With it, and where there is nothing to lose, nothing is asked for.
    let agreed = Allowed { clone_identity: Waivers::ALL, ..unasked };
    let job = FlashJob { earlier_backups, ..allowing(agreed) };
    assert!(job.decide(examined_at(unit_in_its_boot_loader())).unwrap()[0].is_to_be_written());
}

#[test]
fn a_number_in_the_name_of_a_backup_that_can_not_be_read_is_taken() {
    let home = damaged_backup();
    let series = Some("RACK-01".parse().unwrap());
    let wanted = Wanted::Image(Box::new(WantedImage { series, ..wanted::tests::practice_image() }));
    let job = FlashJob { earlier_backups: places(home.path()), wanted, ..allowing(Allowed::default()) };
    let units = job.decide(examined_at(unit_in_its_boot_loader())).unwrap();
    assert_eq!(units[0].examined.as_ref().unwrap().plan.serial().as_deref(), Some("RACK-02"));
}

#[test]
fn a_change_that_was_agreed_to_in_advance_is_not_asked_about() {
    let line = FirmwareVersion([1, 2, 3, 4, 5, 6]);
    for (clone_identity, other_line, expected) in [
        (Waivers::default(), false, &["write", "loss", "unknown neighbours", "other line"][..]),
        (Waivers::default().and(Waiver::Usb4), false, &["write", "unknown neighbours", "other line"]),
        (Waivers::default().and(Waiver::Neighbours), false, &["write", "loss", "other line"]),
        (Waivers::ALL, false, &["write", "other line"]),
        (Waivers::default(), true, &["write", "loss", "unknown neighbours"]),
        (Waivers::ALL, true, &["write"]),
    ] {
        let job = allowing(Allowed { clone_identity, other_line, ..Allowed::default() });
        let mut unit = unit_with(UnitOutcome::Write);
        unit.terms.loss.usb4 = true;
        unit.terms.unknown_neighbours = Some("no bus".to_owned());
        unit.terms.other_line = Some((line, line));
        assert_eq!(names(&job.questions(&[unit])), expected);
    }
}

#[test]
fn a_write_without_a_backup_is_proposed_if_the_command_has_blocks_and_keeps_what_was_agreed() {
    let unit = examined();
    let now = |permissions: &[Permission]| LaterCommands { now: permissions.to_vec(), ..LaterCommands::default() };
    let later = now(&[Permission::Unproven, Permission::OtherLine]);
    let instead = |writes, names_blocks, is_at_stake, other_line| {
        let allowed = Allowed { other_line, ..Allowed::default() };
        FlashJob { allowed, ..job(writes, names_blocks) }.instead_of_own(&unit, &later, is_at_stake)
    };
    let without_backup =
        |permissions: &[Permission]| NextStep::new(Why::WithoutBackup, now(permissions).now(BackupFirst::No));
    let unproven = without_backup(&[Permission::Unproven]);
    for (writes, names_blocks) in [(Writes::Image, true), (Writes::Backup, false)] {
        assert_eq!(instead(writes, names_blocks, false, false), std::slice::from_ref(&unproven));
        let other_line = without_backup(&[Permission::Unproven, Permission::OtherLine]);
        assert_eq!(instead(writes, names_blocks, false, true), [other_line]);
        assert!(!instead(writes, names_blocks, true, false).contains(&unproven));
    }
    assert!(!instead(Writes::Image, false, false, false).contains(&unproven));
}

#[test]
fn a_unit_that_could_not_be_read_back_is_read_back_once_it_is_there() {
    let examined = examined();
    let there = UnitInfo { state: BridgeState::Vendor, ..examined.seen.attached.clone() };
    let job = job(Writes::Image, false);
    let read_back = NextStep::new(Why::ReadBack, Act::Verify(ImageRef::File("fw.bin".into())));
    for (after, expected) in [(None, Some(read_back)), (Some(there), None)] {
        let report = FlashReport::new(PLACE.parse().unwrap());
        let outcome = UnitOutcome::Written(FlashReport { after, runs: Some(StartedCode::Written), ..report });
        let unit = FlashUnit { examined: Some(examined.clone()), ..unit_with(outcome) };
        assert_eq!(unit.next_step(&job), expected);
    }
}

#[test]
fn a_backup_that_can_not_be_saved_is_made_elsewhere_the_next_time() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("file"), "x").unwrap();
    let mut job = allowing(Allowed { unproven: true, force: true, ..Allowed::default() });
    let elsewhere = home.path().join("elsewhere");
    job.options.backup_into = Some(home.path().join("file").join("backups"));
    job.options.backup_elsewhere = vec![elsewhere.clone()];
    let mut units = job.decide(examined_at(virtual_port(""))).unwrap();
    job.write(&mut units, follow, &|_, _| ());
    // It was permitted, and nothing needs it.
    let (permissions, backup) = (Vec::new(), BackupFirst::Into(elsewhere));
    let expected = NextStep::new(Why::GoOn, Act::Again { permissions, serial: None, blocks_from: None, backup });
    assert_eq!(units[0].next_step(&job), Some(expected));
}

#[test]
fn the_next_command_after_a_stop_is_the_first_that_needs_no_answer() {
    let location: Location = PLACE.parse().unwrap();
    let report = FlashReport::new(location.clone());
    let doubt = FittingBackup { filed: sample_filed(), fit: Fit::PortOnly, has_identity: true, replaces_serial: false };
    let look = |only_if, act| NextStep { only_if, ..NextStep::new(Why::See, act) };
    let failure = FlashFailure {
        error: FlashError::not_back(Duration::ZERO),
        unit: WrittenUnit {
            location,
            during: FlashStep::Return,
            left: StoppedState::Restarted,
            backup: None,
            restoring: None,
            invoked: job(Writes::Image, false).invoked,
            later: LaterCommands::default(),
            offers: Vec::new(),
            set_faults: Vec::new(),
        },
        steps: vec![
            NextStep::new(Why::GoOn, Act::Hands(Hands::Replug)),
            look(Some(doubt), Act::Bench),
            look(None, Act::List),
        ],
    };
    let unit = unit_with(UnitOutcome::Stopped(report, Arc::new(failure)));
    assert_eq!(unit.next_step(&job(Writes::Image, false)), Some(look(None, Act::List)));
}

#[test]
fn the_neighbours_are_the_listed_units_that_are_not_written() {
    let examined = Ok(examined());
    let units = [FoundUnit { device: PLACE.to_owned(), port: None, examined }];
    let listed = vec![unit(PLACE, "A"), unit("1-2", "B")];
    assert_eq!(neighbours(&units, Ok::<_, String>(listed)), Ok(vec![unit("1-2", "B")]));
    assert_eq!(neighbours(&units, Err("no bus")), Err("no bus".to_owned()));
}

#[test]
fn no_bench_is_offered_over_an_ssd_whatever_was_written() {
    let mut job = job(Writes::Image, false);
    job.subject.proof = samples::proof(&practice::open_image(), Rewritable::Yes);
    let mut examined = examined_at(virtual_port("")).remove(0).examined.unwrap();
    let after = Some(examined.seen.attached.clone());
    let is_measurable = |examined: &Examined| {
        let report = FlashReport { after: after.clone(), ..FlashReport::new(PLACE.parse().unwrap()) };
        let unit = FlashUnit { examined: Some(examined.clone()), ..unit_with(UnitOutcome::Written(report)) };
        let offers_bench = unit.next(&job).iter().any(|step| step.act == Act::Bench);
        assert_eq!(offers_bench, unit.is_measurable(&job));
        offers_bench
    };
    assert!(is_measurable(&examined));
    let ssd = Storage { model: Some("A drive".to_owned()), ..Storage::default() };
    examined.seen.running.storage = Some(ssd);
    assert!(!is_measurable(&examined));
}

#[test]
fn a_blank_board_with_a_backup_that_may_be_its_own_is_told_of_that_backup_first() {
    let home = tempfile::tempdir().unwrap();
    let mut backup = Backup { blocks: [block_zero("DOCK7"), block_one(7)], ..sample_backup() };
    backup.unit.device = "virtual:unit".to_owned();
    backup_folder::save(&backup, &home.path().join("here")).unwrap();
    let job = FlashJob { earlier_backups: places(home.path()), ..job(Writes::Image, false) };
    let units = job.decide(examined_at(blank_board())).unwrap();
    assert!(matches!(units[0].outcome, UnitOutcome::Refused(_)));
    let backups = units[0].instead.iter().filter(|step| step.only_if.is_some()).count();
    assert_eq!((backups, units[0].instead.len()), (2, 2), "{:?}", units[0].instead);
}

#[test]
fn a_boot_loader_that_shows_a_number_of_its_own_is_no_new_board() {
    let step = |unit: &Examined| {
        let later = LaterCommands { now: vec![Permission::CloneIdentity(Waiver::Usb4)], ..LaterCommands::default() };
        let steps = job(Writes::Image, false).instead_of_own(unit, &later, false);
        let [only] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(only.act, later.now(BackupFirst::No));
        assert_eq!(only.applicability(), Applicability::IfYes);
        only.why.clone()
    };
    let mut unit = examined();
    assert_eq!(step(&unit), Why::KeepsSerial);
    for nothing in ["000000000000", "AAAABBBB0060"] {
        unit.seen.attached.serial = Some(nothing.to_owned());
        assert_eq!(step(&unit), Why::NewBoard, "{nothing}");
    }
}

#[test]
fn a_unit_in_its_boot_loader_is_not_told_to_take_only_the_firmware_because_it_keeps_no_identity() {
    let later = LaterCommands { now: vec![Permission::CloneIdentity(Waiver::Serial)], ..LaterCommands::default() };
    let alone = |unit: &Examined| {
        let steps = job(Writes::Backup, false).instead_of_foreign(unit, &later, &[]).unwrap();
        let flash = steps.into_iter().find(|step| matches!(step.act, Act::Flash { .. }))?;
        let Act::Flash { permissions, .. } = flash.act else { return None };
        Some(permissions)
    };
    let mut unit = examined();
    assert_eq!(alone(&unit), None);
    unit.seen.attached.state = BridgeState::Vendor;
    assert_eq!(alone(&unit), Some(Vec::new()), "it takes no other's identity there");
}

#[test]
fn a_series_leaves_out_the_numbers_of_backups_and_of_connected_units() {
    let in_use = numbers_in_use(&[sample_filed()], &Ok(vec![unit("1-2", "RACK-02")]));
    assert!(in_use.iter().eq(["AAAABBBB0060", "RACK-02"]), "{in_use:?}");
    assert_eq!(numbers_in_use(&[], &Err("no bus".to_owned())), BTreeSet::new());
}
