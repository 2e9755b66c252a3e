//! Tests of decisions about units that are made up here.

use asm2464::Coded as _;
use asm2464::firmware::{BlockIndex, BodyOffset, BridgeState, ConfigBlock, ConfigField, Image, UsbId, known_blocks};
use asm2464::flash::{BlockBytes, Slot};
use asm2464_chip::practice;
use asm2464_host::bridge::UnitInfo;
use proptest::prelude::*;

use super::super::access::UnitBlocks;
use super::super::backup::BackedUpUnit;
use super::super::backup::tests::{sample_backup, sample_image};
use super::super::backup_folder::FiledBackup;
use super::super::consent::{Permission, Waivers};
use super::super::error::BackupFolderError;
use super::super::examined::UnknownImage;
use super::super::fitting::tests::sample_filed;
use super::super::fitting::{Fit, FittingBackup};
use super::super::identity::UnitIdentity;
use super::super::needs::{Loss, backups_after_stop, later_commands, without_backup};
use super::super::observe::{Observation, ObservedFirmware};
use super::super::offers::unproven_permission;
use super::super::plan::{BlockPlan, BlockSource, ChosenSerial, FlashPlan};
use super::super::recovery::LaterCommands;
use super::samples::{block_one, block_zero};
use super::*;
use crate::image::{OpenImage, Rewritable, samples};
use crate::tests::unit;
use crate::unit::facts::{Asked, Behaviour};

/// Only the units of the run are connected.
const ALONE: Neighbours = Ok(Vec::new());

/// An image of the same version with other code.
fn another() -> Image {
    let mut image = sample_image(0);
    assert!(image.replace(BodyOffset(0x3000), &[0x5A, 0xC3]));
    image
}

fn blocks(serial: &str) -> UnitBlocks {
    [Some(block_zero(serial)), Some(block_one(0x10))]
}

fn observed(device: &str, blocks: UnitBlocks, image: Option<&Image>) -> Observation {
    let state = if image.is_some() { BridgeState::Vendor } else { BridgeState::BootLoader };
    let identity = UnitIdentity::of(blocks.each_ref().map(Option::as_ref));
    let attached = UnitInfo { state, serial: identity.serial, ..unit(device, "") };
    let parts = image.map(|image| Slot::of([&[0; 128]; 2], &image.to_file()).parts().map(<[u8]>::to_vec));
    let (version, e4_extension) = (image.map(Image::version), image.map(|_| false));
    let runs = Behaviour { version, e4_extension, ..Behaviour::only(state) };
    let running = ObservedFirmware { runs, parts, storage: None };
    Observation { attached, blocks, running, tree: Asked::NotAsked, is_disk_checked: true }
}

fn planned(seen: &Observation, new: [BlockBytes; 2], source: BlockSource, image: &Image) -> FlashPlan {
    let block = |index: BlockIndex| {
        let (current, new) = (*index.of(&seen.blocks), *index.of(&new));
        BlockPlan { index, current, new, source, changes: Vec::new() }
    };
    FlashPlan {
        attached: seen.attached.clone(),
        blocks: BlockIndex::ALL.map(block),
        file: image.to_file(),
        version: Some(image.version()),
        open: None,
        e4_extension: None,
        usb_id: Some(UsbId::STOCK),
        chosen_serial: None,
    }
}

fn kept(seen: &Observation, image: &Image) -> FlashPlan {
    planned(seen, seen.blocks.map(|block| block.unwrap_or([0xFF; 128])), BlockSource::Unit, image)
}

fn subject_of(image: &Image, rewritable: Rewritable) -> NewFirmware {
    let proof = samples::proof(image, rewritable);
    NewFirmware { proof, unknown: None, from_virtual: false, serial_given: false }
}

fn subject() -> NewFirmware {
    subject_of(&sample_image(0), Rewritable::Yes)
}

fn examined(seen: &Observation, plan: &FlashPlan, backups: &[FittingBackup]) -> Examined {
    Examined { backups: backups.to_vec(), ..Examined::new(seen.clone(), plan.clone()) }
}

fn decide_alone(seen: &Observation, plan: &FlashPlan, subject: &NewFirmware, allowed: Allowed) -> Decision {
    decide(&[&examined(seen, plan, &[])], subject, allowed, &ALONE).remove(0)
}

fn written(decision: Decision) -> Terms {
    match decision {
        Decision::Write(terms) => terms,
        other => panic!("not written: {other:?}"),
    }
}

/// The failure of a decision.
fn refusal(decision: &Decision) -> &Failure {
    match decision {
        Decision::NoBackup(why)
        | Decision::OwnBackup(why)
        | Decision::Lost(why)
        | Decision::OthersBackup(why)
        | Decision::Refused(why) => why,
        Decision::Write(_) | Decision::Unchanged => panic!("not refused: {decision:?}"),
    }
}

/// Whether a unit is refused because it would get this of another unit's, which is in the backup, or is not.
fn is_clone(decision: &Decision, what: &str, is_in_backup: bool) -> bool {
    let failure = refusal(decision);
    matches!(decision, Decision::OthersBackup(_)) == is_in_backup
        && failure.code() == "asmpatch::flash::clone"
        && failure.to_string().contains(&format!("the unit would get {what}"))
}

#[test]
fn a_unit_that_holds_everything_is_left_alone_unless_forced() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("A"), Some(&image));
    let plan = kept(&seen, &image);
    assert!(matches!(decide_alone(&seen, &plan, &subject(), Allowed::default()), Decision::Unchanged));
    let forced = Allowed { force: true, ..Allowed::default() };
    written(decide_alone(&seen, &plan, &subject(), forced));
}

#[test]
fn a_unit_with_a_byte_of_either_block_or_part_to_change_is_written() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("A"), Some(&image));
    let [zero, one] = seen.blocks.map(|block| block.unwrap());
    // Not its serial number, which the unit shows.
    let mut renamed = ConfigBlock::parse(BlockIndex::Zero, &zero).unwrap();
    renamed.set_text(ConfigField::Product, "Another").unwrap();
    for new in [[zero, block_one(0x11)], [*renamed.bytes(), one]] {
        let plan = planned(&seen, new, BlockSource::Unit, &image);
        written(decide_alone(&seen, &plan, &subject(), Allowed::default()));
    }
    for part in [0, 1] {
        let mut seen = seen.clone();
        seen.running.parts.as_mut().unwrap()[part][0x321] ^= 4;
        let plan = kept(&seen, &image);
        written(decide_alone(&seen, &plan, &subject(), Allowed::default()));
    }
}

#[test]
fn what_the_unit_shows_against_its_flash_makes_it_worth_writing() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("A"), Some(&image));
    let plan = kept(&seen, &image);
    let contradictions: [fn(&mut Observation); 4] = [
        |seen| {
            let [_, b, c, line @ ..] = sample_image(0).version().0;
            seen.running.runs.version = Some(FirmwareVersion([1, b, c, line[0], line[1], line[2]]));
        },
        |seen| seen.attached.id = UsbId::PATCHED,
        |seen| seen.attached.serial = Some("B".to_owned()),
        |seen| seen.running.parts = None,
    ];
    for contradict in contradictions {
        let mut seen = seen.clone();
        contradict(&mut seen);
        written(decide_alone(&seen, &plan, &subject(), Allowed::default()));
    }
}

#[test]
fn an_image_that_breaks_e1_is_refused_whatever_is_allowed() {
    let image = sample_image(0);
    let seen = observed("virtual:u", blocks("A"), Some(&another()));
    let failed = "takes a configuration block (E1) over Bulk-Only: CSW status 1".to_owned();
    let subject = subject_of(&image, Rewritable::No(failed));
    let everything = Allowed {
        no_backup: true,
        unproven: true,
        clone_identity: Waivers::ALL,
        other_line: true,
        force: true,
        unasked: true,
    };
    let decision = decide_alone(&seen, &kept(&seen, &image), &subject, everything);
    assert_eq!(refusal(&decision).code(), "asmpatch::flash::not_rewritable");
}

#[test]
fn what_never_ran_on_silicon_goes_to_a_real_port_only_when_that_is_allowed() {
    let practice_subject = subject_of(&practice::image(), Rewritable::Yes);
    let of_backup = |device: &str| {
        let unit = BackedUpUnit { device: device.into(), ..sample_backup().unit };
        NewFirmware::of(subject().proof, None, [&unit], false)
    };
    let backup_subject = of_backup("virtual:b");
    let from_a_dock = [of_backup("3-1.2"), NewFirmware::of(subject().proof, None, [], false)];
    assert!(from_a_dock.iter().all(|subject| !subject.from_virtual), "a dock's backup has run on silicon");
    let unknown_subject = subject_of(&sample_image(0), Rewritable::Unknown);
    for (subject, why, on_virtual) in [
        (practice_subject, "the practice image has never run on silicon", false),
        (backup_subject, "this is a virtual unit's backup", false),
        (unknown_subject, "the image does not boot on the chip model", true),
    ] {
        for device in ["1-1", "virtual:u"] {
            let seen = observed(device, blocks("A"), Some(&another()));
            let plan = kept(&seen, &sample_image(0));
            let decision = decide_alone(&seen, &plan, &subject, Allowed::default());
            let is_unproven = device == "1-1" || on_virtual;
            if is_unproven {
                let failure = refusal(&decision);
                assert_eq!(failure.code(), "asmpatch::flash::unproven");
                let text = failure.to_string();
                assert!(text.starts_with(&format!("{device}: {why}")) && !text.contains(';'), "{text}");
            } else {
                written(decision);
            }
            let allowed = Allowed { unproven: true, ..Allowed::default() };
            let terms = written(decide_alone(&seen, &plan, &subject, allowed));
            assert_eq!(terms.unproven.len(), usize::from(is_unproven));
        }
    }
}

#[test]
fn a_backup_of_another_unit_is_a_clone_and_the_units_own_is_none() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("MINE"), Some(&another()));
    let others = planned(&seen, [block_zero("YOURS"), block_one(0x10)], BlockSource::Backup, &image);
    let decision = decide_alone(&seen, &others, &subject(), Allowed::default());
    assert!(is_clone(&decision, "another unit's serial number, YOURS in place of its own MINE", true), "{decision:?}");
    let usb4 = planned(&seen, [block_zero("MINE"), block_one(0x20)], BlockSource::Backup, &image);
    let decision = decide_alone(&seen, &usb4, &subject(), Allowed::default());
    assert!(is_clone(&decision, "another unit's USB4 identity", true), "{decision:?}");
    let allowed = Allowed { clone_identity: Waivers::ALL, ..Allowed::default() };
    assert!(!written(decide_alone(&seen, &others, &subject(), allowed)).cloned.is_empty());
    let own = planned(&seen, [block_zero("MINE"), block_one(0x10)], BlockSource::Backup, &image);
    assert_eq!(written(decide_alone(&seen, &own, &subject(), Allowed::default())).cloned, []);
    // A serial number that the user gives belongs to no other unit, and a unit without an identity has none to lose.
    let given = NewFirmware { serial_given: true, ..subject() };
    let new = planned(&seen, [block_zero("NEW"), block_one(0x10)], BlockSource::Backup, &image);
    assert_eq!(written(decide_alone(&seen, &new, &given, Allowed::default())).cloned, []);
    let empty = observed("1-1", [None, None], None);
    let others = FlashPlan {
        attached: empty.attached.clone(),
        ..planned(&empty, others.blocks.map(|b| b.new), BlockSource::Backup, &image)
    };
    let allowed = Allowed { no_backup: true, ..Allowed::default() };
    assert_eq!(written(decide_alone(&empty, &others, &subject(), allowed)).cloned, []);
}

#[test]
fn a_serial_number_that_a_connected_unit_has_is_a_clone_unless_it_is_kept() {
    let image = sample_image(0);
    let connected = Ok(vec![unit("1-2", "A")]);
    let decide = |seen: &Observation, plan: &FlashPlan| {
        let allowed = Allowed { no_backup: true, ..Allowed::default() };
        decide(&[&examined(seen, plan, &[])], &subject(), allowed, &connected).remove(0)
    };
    let kept_unit = observed("1-1", blocks("A"), Some(&another()));
    let terms = written(decide(&kept_unit, &kept(&kept_unit, &image)));
    assert_eq!((terms.cloned, terms.twins), (Vec::new(), vec!["1-2".to_owned()]));
    let empty = observed("1-1", [None, None], None);
    let plan = planned(&empty, [block_zero("A"), block_one(0x10)], BlockSource::Backup, &image);
    let shared = "the serial number A, which 1-2 would have too";
    assert!(is_clone(&decide(&empty, &plan), shared, false));
    // A unit whose block got its serial number from the user, as with `config set`.
    let own = observed("1-3", blocks("B"), Some(&another()));
    let given = planned(&own, [block_zero("A"), block_one(0x10)], BlockSource::Unit, &image);
    assert!(is_clone(&decide(&own, &given), shared, false));
    // The commands that restore the kept unit would meet its twin in its boot loader, and while it runs they don't.
    let unit = examined(&kept_unit, &kept(&kept_unit, &image), &[]);
    let later = later_commands(&[&unit], 0, &subject(), &[true], true, &connected);
    let serial = [Permission::CloneIdentity(Waiver::Serial)];
    assert_eq!((&later.now[..], &later.again[..]), (&[][..], &serial[..]));
    assert_eq!((&later.back_when_done[..], &later.back[..]), (&[][..], &serial[..]));
}

#[test]
fn a_backups_firmware_that_takes_no_firmware_again_is_no_way_back_and_an_unknown_one_needs_consent() {
    let permission = |image: &Image, rewritable, location: &str| {
        unproven_permission(&samples::proof(image, rewritable), &location.parse().unwrap())
    };
    let (image, practice) = (another(), practice::image());
    assert_eq!(permission(&image, Rewritable::No("E1".to_owned()), "1-1"), None);
    assert_eq!(permission(&image, Rewritable::Yes, "1-1"), Some(Vec::new()));
    assert_eq!(permission(&practice, Rewritable::Yes, "1-1"), Some(vec![Permission::Unproven]));
    assert_eq!(permission(&practice, Rewritable::Yes, "virtual:u"), Some(Vec::new()));
}

#[test]
fn a_usb4_identity_that_another_unit_has_is_a_clone_unless_it_is_kept() {
    let image = sample_image(0);
    let seen = [
        observed("1-1", blocks("A"), Some(&another())),
        observed("1-2", [None, None], None),
        observed("1-3", [Some(block_zero("C")), Some(block_one(0x30))], Some(&another())),
    ];
    let [first, empty, third] = &seen;
    let given = planned(empty, [block_zero("B"), block_one(0x10)], BlockSource::Backup, &image);
    let plans = [kept(first, &image), given, kept(third, &image)];
    let units: Vec<_> = seen.iter().zip(&plans).map(|(seen, plan)| examined(seen, plan, &[])).collect();
    let allowed = Allowed { no_backup: true, ..Allowed::default() };
    let [first, empty, third] =
        decide(&units.iter().collect::<Vec<_>>(), &subject(), allowed, &ALONE).try_into().unwrap();
    for kept in [first, third] {
        assert_eq!(written(kept).cloned, []);
    }
    assert!(is_clone(&empty, "the USB4 identity that 1-1 would have too", false), "{empty:?}");
}

#[test]
fn a_unit_whose_neighbours_cannot_be_listed_needs_an_answer_or_consent_to_a_twin() {
    let image = sample_image(0);
    let unknown = Err("no bus".to_owned());
    let decide = |device: &str, allowed: Allowed| {
        let seen = observed(device, blocks("A"), Some(&another()));
        decide(&[&examined(&seen, &kept(&seen, &image), &[])], &subject(), allowed, &unknown).remove(0)
    };
    let unasked = Allowed { unasked: true, ..Allowed::default() };
    let refused = decide("1-1", unasked);
    assert_eq!(refusal(&refused).code(), "asmpatch::flash::neighbours");
    assert!(refusal(&refused).to_string().ends_with(": no bus"), "{refused:?}");
    assert_eq!(written(decide("1-1", Allowed::default())).unknown_neighbours.as_deref(), Some("no bus"));
    let consented = Allowed { clone_identity: Waivers::ALL, ..unasked };
    assert_eq!(written(decide("1-1", consented)).unknown_neighbours.as_deref(), Some("no bus"));
    // A unit on this machine's buses can't be a virtual unit's twin.
    assert_eq!(written(decide("virtual:a", unasked)).unknown_neighbours, None);
}

#[test]
fn units_that_would_get_the_same_known_serial_number_are_all_refused() {
    let image = sample_image(0);
    let known = known_blocks().map(|block| *block.bytes());
    let seen = ["1-1", "1-2"].map(|device| observed(device, [None, None], None));
    let plans = seen.each_ref().map(|seen| planned(seen, known, BlockSource::Known, &image));
    let units: Vec<_> = seen.iter().zip(&plans).map(|(seen, plan)| examined(seen, plan, &[])).collect();
    let allowed = Allowed { no_backup: true, ..Allowed::default() };
    let decide = |allowed| decide(&units.iter().collect::<Vec<_>>(), &subject(), allowed, &ALONE);
    for decision in decide(allowed) {
        assert!(is_clone(&decision, "the serial number AAAABBBB0060, which 1-", false), "{decision:?}");
    }
    // Every unit may have the known USB4 identity.
    let serial = Waivers::default().and(Waiver::Serial);
    for decision in decide(Allowed { clone_identity: serial, ..allowed }) {
        assert_eq!(written(decision).cloned.len(), 1);
    }
}

#[test]
fn a_unit_of_the_run_counts_with_the_number_that_it_has_and_with_the_one_that_it_gets() {
    let image = sample_image(0);
    let unit = |device: &str, own: UnitBlocks, new: [BlockBytes; 2]| {
        let seen = observed(device, own, own[0].map(|_| another()).as_ref());
        let plan = planned(&seen, new, BlockSource::Backup, &image);
        examined(&seen, &plan, &[])
    };
    let decide = |units: [&Examined; 2], clone_identity, connected: &Neighbours| {
        let allowed = Allowed { no_backup: true, clone_identity, ..Allowed::default() };
        decide(&units, &subject(), allowed, connected)
    };
    let none = Waivers::default();
    let kept = unit("1-1", blocks("A"), [block_zero("A"), block_one(0x10)]);
    let new = unit("1-2", [None, None], [block_zero("A"), block_one(0x30)]);
    // The other one gets that number only with consent.
    let [keeps, gets] = decide([&kept, &new], none, &ALONE).try_into().unwrap();
    assert!(is_clone(&gets, "the serial number A, which 1-1 would have too", false), "{gets:?}");
    assert_eq!(written(keeps).twins, Vec::<String>::new());
    let agreed = decide([&kept, &new], none.and(Waiver::Serial), &ALONE).remove(0);
    assert_eq!(written(agreed).twins, ["1-2"]);
    // A unit that will have another number has this one until then.
    let leaves = unit("1-3", [Some(block_zero("A")), Some(block_one(0x20))], [block_zero("B"), block_one(0x20)]);
    let gets = decide([&new, &leaves], none.and(Waiver::Usb4), &ALONE).remove(0);
    assert!(is_clone(&gets, "the serial number A, which 1-3 would have too", false), "{gets:?}");
    // A connected unit has its own number, and a virtual unit no twin on a bus.
    let connected = Ok(vec![crate::tests::unit("1-9", "B"), crate::tests::unit("1-8", "A")]);
    let others = unit("1-4", [Some(block_zero("C")), Some(block_one(0x40))], [block_zero("C"), block_one(0x40)]);
    assert_eq!(written(decide([&kept, &others], none, &connected).remove(0)).twins, ["1-8"]);
    let software = unit("virtual:u", blocks("A"), [block_zero("A"), block_one(0x10)]);
    assert_eq!(written(decide([&software, &others], none, &connected).remove(0)).twins, Vec::<String>::new());
}

#[test]
fn what_is_another_units_is_named_once_though_that_unit_is_connected() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("MINE"), Some(&another()));
    let clone = planned(&seen, [block_zero("YOURS"), block_one(0x20)], BlockSource::Backup, &image);
    let other = observed("1-2", [Some(block_zero("YOURS")), Some(block_one(0x20))], Some(&another()));
    let units = [examined(&seen, &clone, &[]), examined(&other, &kept(&other, &image), &[])];
    let allowed = Allowed { clone_identity: Waivers::ALL, ..Allowed::default() };
    let decided = decide(&units.iter().collect::<Vec<_>>(), &subject(), allowed, &ALONE).remove(0);
    let terms = written(decided);
    assert!(matches!(terms.cloned[..], [Cloned::OtherSerial { .. }, Cloned::OtherUsb4]), "{terms:?}");
    assert_eq!(terms.twins, Vec::<String>::new());
}

#[test]
fn what_can_not_be_read_matters_only_to_a_unit_that_gets_blocks_which_stand_in() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("A"), Some(&another()));
    let error = BackupFolderError::Exists("there".into());
    let unread = vec![UnreadBackup::elsewhere(std::path::Path::new("there"), &error)];
    let unit = Examined { unread, ..examined(&seen, &kept(&seen, &image), &[]) };
    let unasked = Allowed { unasked: true, ..Allowed::default() };
    assert_eq!(written(decide(&[&unit], &subject(), unasked, &ALONE).remove(0)).unread, []);
}

#[test]
fn a_unit_that_shows_no_number_or_gets_none_in_its_block_is_not_written_again_for_that() {
    let image = sample_image(0);
    let unchanged = |blocks: UnitBlocks, shown: Option<&str>| {
        let mut seen = observed("1-1", blocks, Some(&image));
        seen.attached.serial = shown.map(str::to_owned);
        let mut plan = kept(&seen, &image);
        plan.usb_id = plan.configured_id();
        matches!(decide_alone(&seen, &plan, &subject(), Allowed::default()), Decision::Unchanged)
    };
    assert!(unchanged(blocks("A"), None));
    assert!(unchanged([Some([0xFF; 128]), Some(block_one(0x10))], Some("the chip's")));
}

#[test]
fn the_name_of_an_image_that_the_unit_runs_already_is_no_news() {
    let mut image = practice::open_image();
    let at = image.body().windows(15).position(|bytes| bytes == b"custom practice").unwrap();
    assert!(image.replace(BodyOffset(at as u32), b"tinier practice"));
    let named = NewFirmware { proof: samples::proved(&image), ..subject() };
    let unproven = |runs: &Image| {
        let seen = observed("virtual:u", blocks("A"), Some(runs));
        let allowed = Allowed { unproven: true, other_line: true, force: true, ..Allowed::default() };
        written(decide_alone(&seen, &kept(&seen, &image), &named, allowed)).unproven.len()
    };
    assert_eq!((unproven(&image), unproven(&another())), (0, 1));
}

#[test]
fn another_line_of_versions_is_refused_only_where_nobody_is_asked() {
    let image = sample_image(0);
    let mut seen = observed("1-1", blocks("A"), Some(&sample_image(0)));
    let [a, b, c, series, ..] = image.version().0;
    let makers = FirmwareVersion([a, b, c, series, 0x4F, 0x05]);
    seen.running.runs.version = Some(makers);
    let plan = kept(&seen, &image);
    let asked = written(decide_alone(&seen, &plan, &subject(), Allowed::default()));
    assert_eq!(asked.other_line, Some((makers, image.version())));
    let unasked = Allowed { unasked: true, ..Allowed::default() };
    let decision = decide_alone(&seen, &plan, &subject(), unasked);
    assert_eq!(refusal(&decision).code(), "asmpatch::flash::other_line");
    written(decide_alone(&seen, &plan, &subject(), Allowed { other_line: true, ..unasked }));
}

#[test]
fn a_line_whose_first_byte_differs_needs_consent_in_advance_even_on_a_terminal() {
    let image = sample_image(0);
    let mut seen = observed("1-1", blocks("A"), Some(&sample_image(0)));
    let [a, b, c, series, ..] = image.version().0;
    seen.running.runs.version = Some(FirmwareVersion([a, b, c, series ^ 1, 0, 0]));
    let plan = kept(&seen, &image);
    let decision = decide_alone(&seen, &plan, &subject(), Allowed::default());
    assert_eq!(refusal(&decision).code(), "asmpatch::flash::other_line");
    written(decide_alone(&seen, &plan, &subject(), Allowed { other_line: true, ..Allowed::default() }));
}

#[test]
fn a_unit_that_tells_no_version_has_the_lines_of_its_certain_backups() {
    let image = sample_image(0);
    let seen = observed("1-1", [None, None], None);
    let plan = planned(&seen, blocks("A").map(|block| block.unwrap()), BlockSource::Backup, &image);
    let FirmwareVersion([a, b, c, series, ..]) = image.version();
    let older = FirmwareVersion([a, b, c, series ^ 1, 0, 0]);
    let ran = |version: FirmwareVersion| {
        let mut filed = sample_filed();
        filed.unit.firmware_version = Some(version.to_string());
        filed
    };
    let backup = |version, fit| FittingBackup { filed: ran(version), fit, has_identity: true, replaces_serial: false };
    let allowed = Allowed { unproven: true, clone_identity: Waivers::ALL, ..Allowed::default() };
    let decide = |backups: &[FittingBackup], allowed| {
        decide(&[&examined(&seen, &plan, backups)], &subject(), allowed, &ALONE).remove(0)
    };
    let other = backup(older, Fit::Certain);
    // This refusal comes before the one for a missing backup, whose help has a command that must not change the line.
    let refused = decide(std::slice::from_ref(&other), allowed);
    assert_eq!(refusal(&refused).code(), "asmpatch::flash::other_line");
    assert!(refusal(&refused).to_string().contains(&format!("changes from {older} to")), "{refused:?}");
    let consented = Allowed { other_line: true, no_backup: true, ..allowed };
    assert_eq!(written(decide(std::slice::from_ref(&other), consented)).other_line, Some((older, image.version())));
    let no_backup = Allowed { no_backup: true, ..allowed };
    // The board has run the image's line too, or nobody knows that the backup is this unit's.
    let both = [other, backup(image.version(), Fit::Certain)];
    for backups in [&both[..], &[backup(older, Fit::PortOnly)], &[]] {
        assert_eq!(written(decide(backups, no_backup)).other_line, None);
    }
}

#[test]
fn an_unknown_image_from_outside_needs_consent_on_a_virtual_unit_too() {
    let image = sample_image(0);
    let changed = UnknownImage::Changed("240417 with 1 other byte".to_owned());
    for (device, unknown, what) in [
        ("1-1", UnknownImage::Version, "the image is unknown, so nobody"),
        ("virtual:x", UnknownImage::Version, "the image is unknown, so nobody"),
        ("1-1", changed.clone(), "the image is 240417 with 1 other byte, so nobody"),
        ("virtual:x", changed, "the image is 240417 with 1 other byte, so nobody"),
    ] {
        let unknown = NewFirmware { unknown: Some(unknown), ..subject() };
        let seen = observed(device, blocks("A"), Some(&another()));
        let plan = kept(&seen, &image);
        let decision = decide_alone(&seen, &plan, &unknown, Allowed::default());
        assert_eq!(refusal(&decision).code(), "asmpatch::flash::unproven");
        let terms = written(decide_alone(&seen, &plan, &unknown, Allowed { unproven: true, ..Allowed::default() }));
        let [why] = &terms.unproven[..] else { panic!("{terms:?}") };
        assert!(why.starts_with(what), "{why}");
        assert_eq!(refusal(&decision).to_string(), format!("{device}: {why}"));
    }
}

#[test]
fn the_known_blocks_need_consent_while_a_backup_may_have_the_units_own_identity() {
    let image = sample_image(0);
    let seen = observed("1-1", [None, None], None);
    let known = known_blocks().map(|block| *block.bytes());
    let backup = |has_identity| FittingBackup {
        filed: sample_filed(),
        fit: Fit::PortOnly,
        has_identity,
        replaces_serial: false,
    };
    let decide = |source, backups: &[FittingBackup], allowed: Allowed| {
        let allowed = Allowed { no_backup: true, ..allowed };
        let plan = planned(&seen, known, source, &image);
        decide(&[&examined(&seen, &plan, backups)], &subject(), allowed, &ALONE).remove(0)
    };
    let unasked = Allowed { unasked: true, ..Allowed::default() };
    let (own, nobodys) = ([backup(true)], [backup(false)]);
    for stand_in in [BlockSource::Known, BlockSource::Neutral] {
        let refused = decide(stand_in, &own, unasked);
        assert!(matches!(refused, Decision::OwnBackup(_)), "{refused:?}");
        // If somebody can be asked, the terms hold the backups that the question is about.
        assert_eq!(written(decide(stand_in, &own, Allowed::default())).own_backups, own);
    }
    // With consent, with other blocks, or with a backup without an identity, no question is needed.
    let consent = Allowed { clone_identity: Waivers::ALL, ..unasked };
    for (source, backups, allowed) in [
        (BlockSource::Known, &own, consent),
        (BlockSource::Backup, &own, unasked),
        (BlockSource::Known, &nobodys, unasked),
    ] {
        assert_eq!(written(decide(source, backups, allowed)).own_backups, []);
    }
}

#[test]
fn a_boot_loaders_own_serial_number_is_not_replaced_by_another_units_without_permission() {
    let image = sample_image(0);
    let boot_loader = |serial: &str| {
        let mut seen = observed("1-1", [None, None], None);
        seen.attached.serial = Some(serial.to_owned());
        seen
    };
    let decide = |shown: &str, serial_given, allowed: Allowed| {
        let seen = boot_loader(shown);
        let plan = planned(&seen, [block_zero("BACKUP"), block_one(1)], BlockSource::Backup, &image);
        let subject = NewFirmware { serial_given, ..subject() };
        decide_alone(&seen, &plan, &subject, allowed)
    };
    let expected = Cloned::OtherSerial { own: "MINE".to_owned(), new: "BACKUP".to_owned() };
    let message = format!("1-1: the unit would get {expected}");
    for unasked in [false, true] {
        let allowed = Allowed { no_backup: true, unasked, ..Allowed::default() };
        // This refusal comes first: the one for a missing backup would print a command that is then refused for this.
        for allowed in [allowed, Allowed { no_backup: false, ..allowed }] {
            let refused = decide("MINE", false, allowed);
            assert!(matches!(refused, Decision::OthersBackup(_)), "{refused:?}");
            assert_eq!(refusal(&refused).code(), "asmpatch::flash::other_backup");
            assert_eq!(refusal(&refused).to_string(), message);
        }
        let consent = Allowed { clone_identity: Waivers::ALL, ..allowed };
        assert_eq!(written(decide("MINE", false, consent)).cloned, std::slice::from_ref(&expected));
        // No clone: its own backup, a lost block 0, the number that every unit gets, and a number that the user gives.
        for (shown, given) in [("BACKUP", false), ("000000000000", false), ("AAAABBBB0060", false), ("MINE", true)] {
            assert_eq!(written(decide(shown, given, allowed)).cloned, [], "{shown}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any units, no two end up with a shared serial number that they did not share before.
    #[test]
    fn no_run_makes_two_units_alike(
        units in proptest::collection::vec((proptest::option::of("[AB]"), "[ABC]", any::<bool>()), 1..5),
        unasked in any::<bool>(),
    ) {
        let image = sample_image(0);
        let seen: Vec<_> = units
            .iter()
            .enumerate()
            .map(|(at, (own, ..))| {
                let port = format!("1-{}", at + 1);
                match own {
                    Some(serial) => observed(&port, blocks(serial), Some(&another())),
                    None => observed(&port, [None, None], None),
                }
            })
            .collect();
        let plans: Vec<_> = seen
            .iter()
            .zip(&units)
            .map(|(seen, (own, new, keeps))| match own {
                Some(_) if *keeps => kept(seen, &image),
                _ => planned(seen, [block_zero(new), block_one(0x10)], BlockSource::Backup, &image),
            })
            .collect();
        let candidates: Vec<_> = seen.iter().zip(&plans).map(|(seen, plan)| examined(seen, plan, &[])).collect();
        let allowed = Allowed { no_backup: true, unasked, ..Allowed::default() };
        let decisions = decide(&candidates.iter().collect::<Vec<_>>(), &subject(), allowed, &ALONE);
        let changed: Vec<_> = candidates
            .iter()
            .zip(&decisions)
            .filter(|(unit, decision)| {
                matches!(decision, Decision::Write(_)) && unit.own().serial != unit.planned().serial
            })
            .map(|(unit, _)| unit.planned().serial)
            .collect();
        for (at, serial) in changed.iter().enumerate() {
            prop_assert!(!changed[..at].contains(serial), "{changed:?}");
            prop_assert!(candidates.iter().all(|unit| unit.own().serial != *serial), "{changed:?}");
        }
        // A unit that would change is not skipped.
        for (unit, decision) in candidates.iter().zip(&decisions) {
            if matches!(decision, Decision::Unchanged) {
                prop_assert!(unit.plan.blocks.iter().all(|block| !block.differs()));
            }
        }
    }
}

#[test]
fn another_chip_is_never_written_and_no_unit_gets_its_id_whatever_is_allowed() {
    let everything = Allowed {
        no_backup: true,
        unproven: true,
        clone_identity: Waivers::ALL,
        other_line: true,
        force: true,
        unasked: false,
    };
    let other = UsbId { vendor: 0x174C, product: 0x2362 };
    let mut seen = observed("1-1", blocks("A"), Some(&another()));
    let plan = kept(&seen, &sample_image(0));
    let becomes_one = FlashPlan { usb_id: Some(other), ..plan.clone() };
    let refused = |seen: &Observation, plan: &FlashPlan| {
        let decision = decide_alone(seen, plan, &subject(), everything);
        assert_eq!(refusal(&decision).code(), "asmpatch::flash::other_chip");
        assert!(refusal(&decision).to_string().contains("174C:2362 is the ID of another chip, ASM2362"));
    };
    refused(&seen, &becomes_one);
    seen.attached.id = other;
    refused(&seen, &plan);
}

#[test]
fn force_permits_nothing_but_another_write_of_the_same() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("A"), Some(&another()));
    let unknown = NewFirmware { unknown: Some(UnknownImage::Version), ..subject() };
    let forced = Allowed { force: true, ..Allowed::default() };
    let decision = decide_alone(&seen, &kept(&seen, &image), &unknown, forced);
    assert_eq!(refusal(&decision).code(), "asmpatch::flash::unproven");
}

#[test]
fn a_unit_that_runs_another_open_build_than_its_flash_holds_is_written() {
    let image = sample_image(0);
    let mut seen = observed("1-1", blocks("A"), Some(&image));
    seen.attached.state = BridgeState::OpenFirmware;
    let (product, build) = (String::new(), String::new());
    let open = OpenImage { usb_id: seen.attached.id, product, build, image: None, claims: None };
    let plan = |product: &str| FlashPlan {
        open: Some(OpenImage { product: product.to_owned(), ..open.clone() }),
        version: None,
        usb_id: Some(seen.attached.id),
        ..kept(&seen, &image)
    };
    let same = decide_alone(&seen, &plan(&seen.attached.product), &subject(), Allowed::default());
    assert!(matches!(same, Decision::Unchanged), "{same:?}");
    written(decide_alone(&seen, &plan("another build"), &subject(), Allowed::default()));
}

/// A backup of these blocks that fits a unit so.
fn backup_of(blocks: [BlockBytes; 2], fit: Fit) -> FittingBackup {
    let filed = FiledBackup { blocks, ..sample_filed() };
    FittingBackup { filed, fit, has_identity: true, replaces_serial: false }
}

#[test]
fn one_lost_block_is_reason_enough_to_look_for_the_units_own_backup() {
    let image = sample_image(0);
    let seen = observed("1-1", [Some(block_zero("A")), None], Some(&another()));
    let known = *known_blocks()[1].bytes();
    let mut plan = planned(&seen, [block_zero("A"), known], BlockSource::Unit, &image);
    plan.blocks[1].source = BlockSource::Known;
    let own = backup_of([block_zero("A"), block_one(1)], Fit::Certain);
    let unasked = Allowed { unasked: true, ..Allowed::default() };
    let decision = decide(&[&examined(&seen, &plan, &[own])], &subject(), unasked, &ALONE).remove(0);
    assert!(matches!(decision, Decision::OwnBackup(_)), "{decision:?}");
}

/// A unit in its boot loader that shows this serial number and gets blocks that stand in, with this number in them.
fn stood_in(shown: &str, new: &str, backups: &[FittingBackup]) -> Examined {
    let mut seen = observed("1-1", [None, None], None);
    seen.attached.serial = Some(shown.to_owned());
    let [_, one] = known_blocks();
    let plan = planned(&seen, [block_zero(new), *one.bytes()], BlockSource::Known, &sample_image(0));
    examined(&seen, &plan, backups)
}

#[test]
fn what_a_unit_in_its_boot_loader_loses_is_named_and_needs_consent_to_exactly_that() {
    let unasked = Allowed { no_backup: true, unasked: true, ..Allowed::default() };
    let decide_with = |unit: &Examined, serial_given, allowed: Allowed| {
        decide(&[unit], &NewFirmware { serial_given, ..subject() }, allowed, &ALONE).remove(0)
    };
    let consent = |waivers: &[Waiver]| Allowed {
        clone_identity: waivers.iter().fold(Waivers::default(), |waivers, waiver| waivers.and(*waiver)),
        ..unasked
    };
    let keeps = stood_in("OWNERS5", "OWNERS5", &[]);
    let refused = decide_with(&keeps, false, unasked);
    assert!(matches!(refused, Decision::Lost(_)), "{refused:?}");
    assert_eq!(refusal(&refused).code(), "asmpatch::flash::loss");
    assert!(refusal(&refused).to_string().contains("the unit's own USB4 ID is lost; no backup has it"));
    for other in [Waiver::Serial, Waiver::OwnBackup, Waiver::Neighbours] {
        assert!(matches!(decide_with(&keeps, false, consent(&[other])), Decision::Lost(_)), "{other}");
    }
    let terms = written(decide_with(&keeps, false, consent(&[Waiver::Usb4])));
    assert_eq!(terms.loss, Loss { serial: None, usb4: true });
    // Somebody who can be asked is asked.
    let asked = Allowed { unasked: false, ..unasked };
    assert!(written(decide_with(&keeps, false, asked)).loss.usb4);

    // The number that the field refuses is lost, too.
    let loses = stood_in("longer than twenty characters", "NEW", &[]);
    let refused = decide_with(&loses, false, consent(&[Waiver::Usb4]));
    let words = "serial number longer than twenty characters becomes NEW; no backup has it";
    assert!(refusal(&refused).to_string().contains(words), "{refused:?}");
    written(decide_with(&loses, false, consent(&[Waiver::Usb4, Waiver::Serial])));
    // What the user types is consent, and a placeholder is no loss.
    for (shown, serial_given) in [("longer than twenty characters", true), ("AAAABBBB0012", false)] {
        let unit = stood_in(shown, "NEW", &[]);
        let terms = written(decide_with(&unit, serial_given, consent(&[Waiver::Usb4])));
        assert_eq!(terms.loss.serial, None, "{shown}");
    }

    // Nothing is known of a unit that shows nothing of its own, and what a backup has is not lost.
    for nothing in ["000000000000", "AAAABBBB0060"] {
        assert_eq!(written(decide_with(&stood_in(nothing, "AAAABBBB0060", &[]), false, unasked)).loss, Loss::default());
    }
    let waived = consent(&[Waiver::OwnBackup]);
    let backed_up = |fit| {
        let own = backup_of([block_zero("OWNERS5"), block_one(1)], fit);
        decide_with(&stood_in("OWNERS5", "NEW", &[own]), false, waived)
    };
    assert_eq!(written(backed_up(Fit::Certain)).loss, Loss::default());
    let had_none = backup_of([block_zero("OWNERS5"), *known_blocks()[1].bytes()], Fit::Certain);
    assert_eq!(written(decide_with(&stood_in("OWNERS5", "NEW", &[had_none]), false, waived)).loss, Loss::default());
    assert!(matches!(backed_up(Fit::PortOnly), Decision::Lost(_)), "it may be another unit's");
    let earlier = backup_of([block_zero("EARLIER"), block_one(1)], Fit::Certain);
    let refused = decide_with(&stood_in("OWNERS5", "NEW", &[earlier]), false, waived);
    assert!(refusal(&refused).to_string().contains("serial number OWNERS5 becomes NEW"), "{refused:?}");
    // What a backup's block replaces is another unit's number, and not a loss beside that.
    let mut unit = stood_in("OWNERS5", "BACKUP", &[]);
    unit.plan.blocks[0].source = BlockSource::Backup;
    let terms = written(decide_with(&unit, false, consent(&[Waiver::Serial, Waiver::Usb4])));
    assert_eq!((terms.cloned.len(), terms.loss), (1, Loss { serial: None, usb4: true }));
}

#[test]
fn a_block_that_can_be_read_and_is_not_valid_holds_nothing_to_lose() {
    let seen = observed("1-1", [Some(block_zero("A")), Some([0xFF; 128])], Some(&another()));
    let mut plan = kept(&seen, &sample_image(0));
    plan.blocks[1].source = BlockSource::Known;
    let allowed = Allowed { no_backup: true, unasked: true, ..Allowed::default() };
    assert_eq!(written(decide_alone(&seen, &plan, &subject(), allowed)).loss, Loss::default());
}

#[test]
fn each_waiver_permits_its_own_concern_and_no_other() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("MINE"), Some(&another()));
    let serial = planned(&seen, [block_zero("YOURS"), block_one(0x10)], BlockSource::Backup, &image);
    let usb4 = planned(&seen, [block_zero("MINE"), block_one(0x20)], BlockSource::Backup, &image);
    let both = planned(&seen, [block_zero("YOURS"), block_one(0x20)], BlockSource::Backup, &image);
    let own = backup_of([block_zero("A"), block_one(1)], Fit::PortOnly);
    let stood_in = stood_in("000000000000", "AAAABBBB0060", std::slice::from_ref(&own));
    let unknown = Err("no bus".to_owned());
    let plain = examined(&seen, &kept(&seen, &image), &[]);
    for (unit, connected, needed) in [
        (&examined(&seen, &serial, &[]), &ALONE, &[Waiver::Serial][..]),
        (&examined(&seen, &usb4, &[]), &ALONE, &[Waiver::Usb4]),
        (&examined(&seen, &both, &[]), &ALONE, &[Waiver::Serial, Waiver::Usb4]),
        (&stood_in, &ALONE, &[Waiver::OwnBackup]),
        (&plain, &unknown, &[Waiver::Neighbours]),
    ] {
        for subset in 0..1 << Waiver::ALL.len() {
            let waived: Vec<Waiver> =
                Waiver::ALL.into_iter().filter(|waiver| subset & 1 << *waiver as u8 != 0).collect();
            let clone_identity = waived.iter().fold(Waivers::default(), |waivers, waiver| waivers.and(*waiver));
            let allowed = Allowed { no_backup: true, unasked: true, clone_identity, ..Allowed::default() };
            let decision = decide(&[unit], &subject(), allowed, connected).remove(0);
            let is_enough = needed.iter().all(|waiver| waived.contains(waiver));
            assert_eq!(matches!(decision, Decision::Write(_)), is_enough, "{needed:?} by {waived:?}: {decision:?}");
        }
    }
}

#[test]
fn a_serial_number_that_the_unit_certainly_had_before_is_its_own() {
    let seen = observed("1-1", blocks("NEW"), Some(&another()));
    let old = [block_zero("OLD"), block_one(0x10)];
    let plan = planned(&seen, old, BlockSource::Backup, &sample_image(0));
    let decide_with =
        |backup| decide(&[&examined(&seen, &plan, &[backup])], &subject(), Allowed::default(), &ALONE).remove(0);
    assert_eq!(written(decide_with(backup_of(old, Fit::Certain))).cloned, []);
    for fit in [Fit::OtherSerial, Fit::SharedSerial, Fit::PortOnly] {
        assert!(matches!(decide_with(backup_of(old, fit)), Decision::OthersBackup(_)), "{fit}");
    }
    // Another backup of the unit doesn't make this one its own.
    let other = backup_of([block_zero("OLDER"), block_one(0x10)], Fit::Certain);
    assert!(matches!(decide_with(other), Decision::OthersBackup(_)));
    // A unit in its boot loader doesn't return the USB4 identity that would prove it.
    let mut boot_loader = observed("1-1", [None, None], None);
    boot_loader.attached.serial = Some("NEW".to_owned());
    let unit = examined(&boot_loader, &plan, &[backup_of(old, Fit::Certain)]);
    let allowed = Allowed { no_backup: true, ..Allowed::default() };
    assert!(matches!(decide(&[&unit], &subject(), allowed, &ALONE)[0], Decision::OthersBackup(_)));
}

/// What the commands after the write of this unit need.
fn later(unit: &Examined, serial_given: bool) -> LaterCommands {
    later_commands(&[unit], 0, &NewFirmware { serial_given, ..subject() }, &[true], true, &ALONE)
}

const SERIAL: Permission = Permission::CloneIdentity(Waiver::Serial);
const USB4: Permission = Permission::CloneIdentity(Waiver::Usb4);
const OWN_BACKUP: Permission = Permission::CloneIdentity(Waiver::OwnBackup);

#[test]
fn a_command_after_a_run_has_no_permission_that_it_does_not_need() {
    let seen = observed("1-1", blocks("A"), Some(&another()));
    let unit = examined(&seen, &kept(&seen, &sample_image(0)), &[]);
    assert_eq!(later(&unit, false), LaterCommands::default());
    // Without a backup, a stop leaves a unit whose USB4 identity nobody has.
    let unsaved = later_commands(&[&unit], 0, &subject(), &[true], false, &ALONE);
    assert_eq!((&unsaved.now[..], &unsaved.again[..]), (&[][..], &[USB4][..]));
    assert_eq!(unsaved.with_blocks, []);
    // An unknown image needs its permission each time.
    let unknown = NewFirmware { unknown: Some(UnknownImage::Version), ..subject() };
    let later = later_commands(&[&unit], 0, &unknown, &[true], true, &ALONE);
    for permissions in [&later.now, &later.again, &later.with_blocks] {
        assert_eq!(*permissions, [Permission::Unproven]);
    }
    assert_eq!(later.back, []);
}

#[test]
fn a_command_that_writes_blocks_that_stand_in_agrees_to_what_that_loses() {
    let stays = later(&stood_in("OWNERS5", "OWNERS5", &[]), false);
    assert_eq!((&stays.now[..], &stays.again[..], &stays.with_blocks[..]), (&[USB4][..], &[USB4][..], &[][..]));
    let blank = later(&stood_in("000000000000", "AAAABBBB0060", &[]), false);
    assert_eq!((&blank.now[..], &blank.again[..]), (&[][..], &[][..]));
    // A new board gets a number of its own, which its boot loader then shows.
    let named = later(&stood_in("000000000000", "BOARD1", &[]), true);
    assert_eq!((&named.now[..], &named.again[..]), (&[][..], &[USB4][..]));
    let doubt = backup_of([block_zero("A"), block_one(1)], Fit::PortOnly);
    let doubtful = later(&stood_in("000000000000", "AAAABBBB0060", &[doubt]), false);
    assert_eq!((&doubtful.now[..], &doubtful.with_blocks[..]), (&[OWN_BACKUP][..], &[][..]));
    // A command with a number goes on with a series, whatever docks that aren't connected have backups.
    for (fit, waivers) in [(Fit::PortOnly, &[OWN_BACKUP][..]), (Fit::Unconnected, &[])] {
        let mut unit = stood_in("000000000000", "BOARD1", &[backup_of([block_zero("A"), block_one(1)], fit)]);
        unit.plan.chosen_serial = Some(ChosenSerial { text: "BOARD1".to_owned(), yields: true });
        let later = later(&unit, false);
        assert_eq!((&later.now[..], &later.serial), (waivers, &unit.plan.chosen_serial), "{fit}");
    }
    let known = known_blocks().map(|block| *block.bytes());
    let nobodys = FittingBackup { has_identity: false, ..backup_of(known, Fit::PortOnly) };
    assert_eq!(later(&stood_in("000000000000", "AAAABBBB0060", &[nobodys]), false).now, []);
    // As does a step that no command was run for.
    let doubt = backup_of([block_zero("A"), block_one(1)], Fit::PortOnly);
    for (shown, expected) in [("000000000000", &[OWN_BACKUP][..]), ("OWNERS5", &[USB4, OWN_BACKUP])] {
        let unit = stood_in(shown, "AAAABBBB0060", &[]);
        let (_, permissions) = without_backup(&unit.seen.attached, std::slice::from_ref(&doubt), &[]);
        assert_eq!(permissions, expected, "{shown}");
    }
}

#[test]
fn a_command_with_all_blocks_from_a_backup_agrees_to_no_loss_of_blocks_and_one_with_a_part_does() {
    let doubt = backup_of([block_zero("A"), block_one(1)], Fit::PortOnly);
    let mut unit = stood_in("000000000000", "A", &[doubt]);
    unit.plan.blocks[0].source = BlockSource::Backup;
    let part = later(&unit, false);
    assert_eq!((&part.now[..], &part.again[..]), (&[OWN_BACKUP][..], &[USB4, OWN_BACKUP][..]));
    unit.plan.blocks[1].source = BlockSource::Backup;
    let all = later(&unit, false);
    assert_eq!((&all.now[..], &all.again[..]), (&[][..], &[][..]));
    // Nor does it where a backup is left out.
    let seen = observed("1-1", blocks("A"), Some(&another()));
    let own = planned(&seen, [block_zero("A"), block_one(0x10)], BlockSource::Backup, &sample_image(0));
    let unit = examined(&seen, &own, &[]);
    assert_eq!(later_commands(&[&unit], 0, &subject(), &[true], false, &ALONE).again, []);
}

#[test]
fn a_command_that_takes_another_units_identity_agrees_to_that_each_time() {
    let seen = observed("1-1", blocks("MINE"), Some(&another()));
    let both = [block_zero("YOURS"), block_one(0x20)];
    let plan = planned(&seen, both, BlockSource::Backup, &sample_image(0));
    let later = later(&examined(&seen, &plan, &[]), false);
    assert_eq!(later.now, [SERIAL, USB4]);
    assert_eq!((&later.with_blocks, &later.again), (&later.now, &later.now));
}

#[test]
fn the_number_that_a_unit_certainly_had_needs_consent_only_once_its_boot_loader_may_show_another() {
    let seen = observed("1-1", blocks("NEW"), Some(&another()));
    let old = [block_zero("OLD"), block_one(0x10)];
    let plan = planned(&seen, old, BlockSource::Backup, &sample_image(0));
    let own = later(&examined(&seen, &plan, &[backup_of(old, Fit::Certain)]), false);
    assert_eq!((&own.now[..], &own.again[..], &own.with_blocks[..]), (&[][..], &[SERIAL][..], &[SERIAL][..]));
}

#[test]
fn once_a_write_has_begun_a_backup_with_another_number_than_the_boot_loader_may_show_needs_consent() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("NOW"), Some(&another()));
    let backups = ["BEFORE", "NOW"].map(|serial| backup_of([block_zero(serial), block_one(0x10)], Fit::Certain));
    let replaces = |plan: &FlashPlan| {
        let backups = backups_after_stop(&examined(&seen, plan, &backups));
        backups.iter().map(|backup| backup.replaces_serial).collect::<Vec<_>>()
    };
    assert_eq!(replaces(&kept(&seen, &image)), [true, false]);
    let renamed = planned(&seen, [block_zero("NEW"), block_one(0x10)], BlockSource::Unit, &image);
    assert_eq!(replaces(&renamed), [true, true]);
    // Nor is a lost number replaced, or the one that every unit gets.
    let nobodys = known_blocks().map(|block| Some(*block.bytes()));
    let seen = observed("1-1", nobodys, Some(&another()));
    let unit = examined(&seen, &kept(&seen, &image), &backups);
    assert!(backups_after_stop(&unit).iter().all(|backup| !backup.replaces_serial));
    assert!(later(&unit, true).gives_serial && !later(&unit, false).gives_serial);
}

#[test]
fn a_number_that_another_unit_of_the_run_gets_is_not_taken_back_without_consent() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("OLD"), Some(&another()));
    let renamed = planned(&seen, [block_zero("NEW"), block_one(0x10)], BlockSource::Unit, &image);
    let other = observed("1-2", [Some(block_zero("OTHER")), Some(block_one(0x20))], Some(&another()));
    let gets_it = planned(&other, [block_zero("OLD"), block_one(0x20)], BlockSource::Unit, &image);
    let units = [examined(&seen, &renamed, &[]), examined(&other, &gets_it, &[])];
    let units: Vec<&Examined> = units.iter().collect();
    let back = |is_written| later_commands(&units, 0, &subject(), &[true, is_written], true, &ALONE).back_when_done;
    assert_eq!((back(true), back(false)), (vec![SERIAL], Vec::new()));
}

#[test]
fn every_command_after_a_change_of_the_line_changes_it_or_changes_it_back() {
    let mut seen = observed("1-1", blocks("A"), Some(&another()));
    let [a, b, c, series, ..] = sample_image(0).version().0;
    seen.running.runs.version = Some(FirmwareVersion([a, b, c, series, 0x4F, 0x05]));
    let later = later(&examined(&seen, &kept(&seen, &sample_image(0)), &[]), false);
    for permissions in [&later.now, &later.again, &later.with_blocks, &later.back, &later.back_when_done] {
        assert_eq!(*permissions, [Permission::OtherLine]);
    }
}

#[test]
fn the_way_back_to_an_own_number_needs_consent_only_where_nothing_proves_that_it_is_own() {
    let image = sample_image(0);
    let seen = observed("1-1", blocks("OLD"), Some(&another()));
    let new = planned(&seen, [block_zero("NEW"), block_one(0x10)], BlockSource::Unit, &image);
    let renamed = later(&examined(&seen, &new, &[]), true);
    assert_eq!(renamed.back_when_done, [], "the USB4 identity and the port prove it");
    assert_eq!(renamed.back, [SERIAL], "the boot loader shows the new number alone");
    // A third number with this USB4 identity: a maker has left it in several units.
    let template = backup_of([block_zero("TWIN"), block_one(0x10)], Fit::OtherSerial);
    assert_eq!(later(&examined(&seen, &new, &[template]), true).back_when_done, [SERIAL]);
    // Its own two numbers, and a number with another USB4 identity, show no third.
    for (serial, one) in [("OLD", block_one(0x10)), ("NEW", block_one(0x10)), ("OTHER", *known_blocks()[1].bytes())] {
        let backup = backup_of([block_zero(serial), one], Fit::PortOnly);
        assert_eq!(later(&examined(&seen, &new, &[backup]), true).back_when_done, [], "{serial}");
    }
    // Without its USB4 identity, or with a new one, nothing proves it.
    let invalid = observed("1-1", [Some(block_zero("OLD")), Some([0xFF; 128])], Some(&another()));
    let plan = planned(&invalid, [block_zero("NEW"), [0xFF; 128]], BlockSource::Unit, &image);
    assert_eq!(later(&examined(&invalid, &plan, &[]), true).back_when_done, [SERIAL]);
    let plan = planned(&seen, [block_zero("OLD"), block_one(0x11)], BlockSource::Unit, &image);
    assert_eq!(later(&examined(&seen, &plan, &[]), false).back_when_done, [USB4]);
    // The known blocks' number is nobody's, so going back from it takes nothing.
    let known = known_blocks().map(|block| *block.bytes());
    let to_known = planned(&seen, known, BlockSource::Known, &image);
    assert_eq!(later(&examined(&seen, &to_known, &[]), false).back_when_done, []);
    // Going back to it replaces the unit's own.
    let seen = observed("1-1", known.map(Some), Some(&another()));
    let own = planned(&seen, [block_zero("LAB-07"), known[1]], BlockSource::Unit, &image);
    assert_eq!(later(&examined(&seen, &own, &[]), true).back_when_done, [SERIAL]);
}
