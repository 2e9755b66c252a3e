//! Tests of decisions about units that are made up here.

use asm2464::Coded as _;
use asm2464::firmware::{BlockIndex, BodyOffset, BridgeState, ConfigBlock, ConfigField, Image, UsbId, known_blocks};
use asm2464::flash::{BlockBytes, Slot};
use asm2464_host::bridge::UnitInfo;
use proptest::prelude::*;

use super::super::access::UnitBlocks;
use super::super::backup::tests::{sample_backup, sample_image};
use super::super::backup::{BackedUpUnit, Backup};
use super::super::fitting::tests::sample_filed;
use super::super::fitting::{Fit, FittingBackup};
use super::super::observe::ObservedFirmware;
use super::samples::{block_one, block_zero};
use super::*;
use crate::image::samples;
use crate::tests::unit;
use crate::unit::facts::Asked;

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
    let version = image.map(Image::version);
    let e4_extension = image.map(|_| false);
    let running = ObservedFirmware { state, version, parts, e4_extension, storage: None };
    Observation { attached, blocks, running, tree: Asked::NotAsked, is_disk_checked: true }
}

fn planned(seen: &Observation, new: [BlockBytes; 2], source: BlockSource, image: &Image) -> FlashPlan {
    let block = |index: BlockIndex| {
        let at = usize::from(index.number());
        BlockPlan { index, current: seen.blocks[at], new: new[at], source, changes: Vec::new() }
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
        Decision::NoBackup(why) | Decision::OwnBackup(why) | Decision::OthersBackup(why) | Decision::Refused(why) => {
            why
        }
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
            seen.running.version = Some(FirmwareVersion([1, b, c, line[0], line[1], line[2]]));
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
    let everything =
        Allowed { no_backup: true, unproven: true, clone_identity: true, other_line: true, force: true, unasked: true };
    let decision = decide_alone(&seen, &kept(&seen, &image), &subject, everything);
    assert_eq!(refusal(&decision).code(), "asmpatch::flash::not_rewritable");
}

#[test]
fn what_never_ran_on_silicon_goes_to_a_real_port_only_when_that_is_allowed() {
    let practice_subject = subject_of(&practice::image(), Rewritable::Yes);
    let of_backup = |device: &str| {
        let unit = BackedUpUnit { device: device.into(), ..sample_backup().unit };
        NewFirmware::of(subject().proof, None, Some(&Backup { unit, ..sample_backup() }))
    };
    let backup_subject = of_backup("virtual:b");
    let from_a_dock = [of_backup("3-1.2"), NewFirmware::of(subject().proof, None, None)];
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
    let allowed = Allowed { clone_identity: true, ..Allowed::default() };
    assert!(written(decide_alone(&seen, &others, &subject(), allowed)).cloned.is_some());
    let own = planned(&seen, [block_zero("MINE"), block_one(0x10)], BlockSource::Backup, &image);
    assert_eq!(written(decide_alone(&seen, &own, &subject(), Allowed::default())).cloned, None);
    // A serial number that the user gives belongs to no other unit, and a unit without an identity has none to lose.
    let given = NewFirmware { serial_given: true, ..subject() };
    let new = planned(&seen, [block_zero("NEW"), block_one(0x10)], BlockSource::Backup, &image);
    assert_eq!(written(decide_alone(&seen, &new, &given, Allowed::default())).cloned, None);
    let empty = observed("1-1", [None, None], None);
    let others = FlashPlan {
        attached: empty.attached.clone(),
        ..planned(&empty, others.blocks.map(|b| b.new), BlockSource::Backup, &image)
    };
    let allowed = Allowed { no_backup: true, ..Allowed::default() };
    assert_eq!(written(decide_alone(&empty, &others, &subject(), allowed)).cloned, None);
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
    assert_eq!((terms.cloned, terms.twins), (None, vec!["1-2".to_owned()]));
    let empty = observed("1-1", [None, None], None);
    let plan = planned(&empty, [block_zero("A"), block_one(0x10)], BlockSource::Backup, &image);
    let shared = "the serial number A, which 1-2 would have too";
    assert!(is_clone(&decide(&empty, &plan), shared, false));
    // A unit whose block got its serial number from the user, as with `config set`.
    let own = observed("1-3", blocks("B"), Some(&another()));
    let given = planned(&own, [block_zero("A"), block_one(0x10)], BlockSource::Unit, &image);
    assert!(is_clone(&decide(&own, &given), shared, false));
    // The commands that restore the kept unit would meet its twin.
    let unit = examined(&kept_unit, &kept(&kept_unit, &image), &[]);
    let candidates = [&unit];
    let allowed = Allowed::default();
    let later = later_commands(&candidates, 0, allowed, &connected);
    assert_eq!(later.again, [Permission::CloneIdentity]);
    assert_eq!(later.back.unwrap(), [Permission::Unproven, Permission::CloneIdentity], "nothing was proved");
    let proofs = [(Rewritable::Yes, Some(vec![Permission::CloneIdentity])), (Rewritable::No("E1".to_owned()), None)];
    for (rewritable, expected) in proofs {
        let proof = samples::proof(&another(), rewritable);
        let proved = Examined { flashed: Some(proof), ..unit.clone() };
        assert_eq!(later_commands(&[&proved], 0, allowed, &connected).back, expected);
    }
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
        assert_eq!(written(kept).cloned, None);
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
    let consented = Allowed { clone_identity: true, ..unasked };
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
    for decision in decide(&units.iter().collect::<Vec<_>>(), &subject(), allowed, &ALONE) {
        assert!(is_clone(&decision, "the serial number AAAABBBB0060, which 1-", false), "{decision:?}");
    }
}

#[test]
fn another_line_of_versions_is_refused_only_where_nobody_is_asked() {
    let image = sample_image(0);
    let mut seen = observed("1-1", blocks("A"), Some(&sample_image(0)));
    let [a, b, c, series, ..] = image.version().0;
    let makers = FirmwareVersion([a, b, c, series, 0x4F, 0x05]);
    seen.running.version = Some(makers);
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
    seen.running.version = Some(FirmwareVersion([a, b, c, series ^ 1, 0, 0]));
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
    let allowed = Allowed { unproven: true, clone_identity: true, ..Allowed::default() };
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
    let consent = Allowed { clone_identity: true, ..unasked };
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
        let consent = Allowed { clone_identity: true, ..allowed };
        assert_eq!(written(decide("MINE", false, consent)).cloned.as_ref(), Some(&expected));
        // No clone: its own backup, a lost block 0, the number that every unit gets, and a number that the user gives.
        for (shown, given) in [("BACKUP", false), ("000000000000", false), ("AAAABBBB0060", false), ("MINE", true)] {
            assert_eq!(written(decide(shown, given, allowed)).cloned, None, "{shown}");
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
            .filter(|(unit, decision)| matches!(decision, Decision::Write(_)) && unit.own().serial != unit.planned().serial)
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
        clone_identity: true,
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
