//! Finds the backups that may be a unit's own, by what the unit still shows of its identity.
//!
//! A unit in its boot loader returns no block. It shows the serial number in block 0 if that block is valid, otherwise
//! zeros. Then only the port can match, and another unit may have been backed up there. Open firmware takes its serial
//! number from the chip, so that number says nothing about the blocks. But such a unit returns its blocks.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use asm2464::firmware::{BridgeState, FirmwareVersion};
use asm2464_host::bridge::{Location, UnitInfo};
use derive_more::Display;

use super::access::UnitBlocks;
use super::backup_folder::FiledBackup;
use super::identity::{UnitIdentity, Usb4Identity, is_nobodys, is_placeholder};
use crate::practice;
use crate::unit::facts::differing;

/// Maximum number of backups that are offered.
pub(super) const MOST_OFFERED: usize = 3;

/// How well a backup fits a unit, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
pub enum Fit {
    /// The serial number or the USB4 identity agrees, and belongs to this unit alone.
    #[display("it has this unit's identity")]
    Certain,
    /// The serial number agrees, but other units have it, too: their backups show that or they are connected, or it is a
    /// placeholder.
    #[display("it has this unit's serial number, which other units have, too")]
    SharedSerial,
    /// The USB4 identity agrees, and the serial number is another: an earlier one of this unit's, or another unit's of a
    /// maker who gave several units one USB4 identity.
    #[display("it has this unit's USB4 identity, and another serial number")]
    OtherSerial,
    /// The user named it together with the image, and nothing else says whose it is.
    #[display("you named it; nothing else says whose it is")]
    Named,
    /// The port agrees, and nothing else does.
    #[display("it was taken at this port; nothing else matches")]
    PortOnly,
    /// Nothing agrees: the unit has lost its configuration, and the backup is of a dock that is not connected.
    #[display("this unit has lost its configuration, and that dock isn't connected; compare the label")]
    Unconnected,
}

/// Leaves those that count where a run chooses a serial number for a new board: a series of them goes on, whatever docks
/// that aren't connected have backups.
pub(super) fn keep_for_new_board(backups: &mut Vec<FittingBackup>) {
    backups.retain(|backup| backup.fit != Fit::Unconnected);
}

/// A backup that fits a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittingBackup {
    /// The backup.
    pub filed: FiledBackup,
    /// How well it fits.
    pub fit: Fit,
    /// Whether it has an identity that only one unit has. The known blocks would replace that identity.
    pub has_identity: bool,
    /// Whether the unit has another serial number, or its boot loader shows one. Replacing that one needs a permission,
    /// unless the backup certainly has an earlier one of the unit's.
    pub replaces_serial: bool,
}

/// Returns the backups that fit a unit: the best first, of equal ones those from the unit's port, then the newest.
/// `blocks` are the unit's, as far as it returns them. `given` is the serial number that the user gives the unit: that says
/// that it is a new board, unless a backup of a dock that isn't connected has this number.
/// `connected` are the units of this host: a serial number that another one shows is no proof.
pub fn fitting(
    unit: &UnitInfo,
    blocks: &UnitBlocks,
    given: Option<&str>,
    filed: &[FiledBackup],
    connected: &[UnitInfo],
) -> Vec<FittingBackup> {
    let evidence = Evidence::of(unit, blocks, given, filed, connected);
    let mut found: Vec<FittingBackup> = filed.iter().filter_map(|backup| evidence.fitting(backup)).collect();
    found.sort_by_cached_key(|backup| {
        let filed = &backup.filed;
        (backup.fit, !evidence.is_from_here(filed), Reverse(filed.written), filed.folder.clone())
    });
    keep_few_unconnected(&mut found);
    found
}

/// What a unit shows of its identity, and what backups and other units have of it.
struct Evidence<'a> {
    unit: &'a UnitInfo,
    connected: &'a [UnitInfo],
    /// The serial number that the user gives the unit.
    given: Option<&'a str>,
    device: String,
    own: UnitIdentity,
    /// The serial number that the unit shows. It may have started before its flash was written, so both numbers count.
    shown: Option<String>,
    /// Whether a backup has one of the two.
    is_serial_known: bool,
    /// The USB4 identities of the backups that have one of the two.
    usb4_of_serial: BTreeSet<Usb4Identity>,
    /// Number of units that were backed up at the unit's port.
    units_here: usize,
    /// The serial numbers that go with the unit's USB4 identity. A unit that got another number has two; three are those of
    /// several units.
    numbers: BTreeSet<String>,
}

impl<'a> Evidence<'a> {
    fn of(
        unit: &'a UnitInfo,
        blocks: &UnitBlocks,
        given: Option<&'a str>,
        filed: &[FiledBackup],
        connected: &'a [UnitInfo],
    ) -> Self {
        let own = UnitIdentity::of(blocks.each_ref().map(Option::as_ref)).own();
        let numbers = own.serial.iter().cloned().collect();
        let mut evidence = Self {
            unit,
            connected,
            given,
            device: unit.location.to_string(),
            own,
            shown: UnitIdentity::shown_by(unit).own().serial,
            is_serial_known: false,
            usb4_of_serial: BTreeSet::new(),
            units_here: 0,
            numbers,
        };
        // By what tells them apart.
        let mut units_here = BTreeSet::new();
        for backup in filed {
            let theirs = backup.identity();
            if evidence.has_serial(&theirs) {
                evidence.is_serial_known = true;
                evidence.usb4_of_serial.extend(backup.given_identity().usb4);
            }
            if theirs.usb4 == evidence.own.usb4 {
                evidence.numbers.extend(theirs.serial.clone());
            }
            if evidence.is_from_here(backup) {
                units_here.insert(theirs.usb4.ok_or(theirs.serial));
            }
        }
        evidence.units_here = units_here.len();
        evidence
    }

    /// Returns the backup with what it may be to the unit; `None` if it is another one's.
    fn fitting(&self, backup: &FiledBackup) -> Option<FittingBackup> {
        let theirs = backup.identity();
        let has_identity = theirs.serial.is_some() || theirs.usb4.is_some();
        let fit = match (self.own.usb4, theirs.usb4) {
            (Some(one), Some(other)) if one == other => self.fit_by_usb4(backup, &theirs),
            // Each USB4 identity belongs to one unit, and only another unit's backup changes it.
            (Some(_), Some(_)) => return None,
            _ if self.has_serial(&theirs) && theirs.serial.as_ref().is_some_and(|serial| self.is_shared(serial)) => {
                Fit::SharedSerial
            }
            _ if self.has_serial(&theirs) => Fit::Certain,
            // Another serial number excludes nothing: an earlier write may have given the unit a new one.
            _ if self.is_from_here(backup) && self.was_stopped() => Fit::Certain,
            _ if self.is_from_here(backup) => Fit::PortOnly,
            _ if has_identity && self.may_be_moved(backup, &theirs) => Fit::Unconnected,
            _ => return None,
        };
        let is_boot_loader = self.unit.state == BridgeState::BootLoader;
        let now = if is_boot_loader { &self.shown } else { &self.own.serial };
        let is_replaced = differing(now.clone(), backup.given_identity().serial).is_some();
        let replaces_serial = is_replaced && (is_boot_loader || fit != Fit::Certain);
        Some(FittingBackup { filed: backup.clone(), fit, has_identity, replaces_serial })
    }

    /// How well a backup with the unit's USB4 identity fits.
    fn fit_by_usb4(&self, backup: &FiledBackup, theirs: &UnitIdentity) -> Fit {
        let Some((now, earlier)) = differing(self.own.serial.as_ref(), theirs.serial.as_ref()) else {
            return Fit::Certain;
        };
        let is_before = self.is_from_here(backup) || backup.later_serials.contains(now);
        let is_earlier = self.numbers.len() <= 2 && !is_placeholder(earlier) && !self.is_elsewhere(earlier);
        if is_before && is_earlier { Fit::Certain } else { Fit::OtherSerial }
    }

    fn is_from_here(&self, backup: &FiledBackup) -> bool {
        backup.unit.device == self.device
    }

    fn has_serial(&self, theirs: &UnitIdentity) -> bool {
        theirs.serial.is_some() && (theirs.serial == self.own.serial || theirs.serial == self.shown)
    }

    fn is_shared(&self, serial: &str) -> bool {
        self.usb4_of_serial.len() > 1 || is_placeholder(serial) || self.is_elsewhere(serial)
    }

    /// Whether another unit shows this number from its block 0.
    fn is_elsewhere(&self, serial: &str) -> bool {
        let mut others = self.connected.iter().filter(|other| other.location != self.unit.location);
        others.any(|other| other.state != BridgeState::OpenFirmware && other.serial() == serial)
    }

    /// Whether the unit already shows the number that this run gives it: an earlier run wrote that number and stopped. The
    /// unit's backup is older and has another number.
    fn was_stopped(&self) -> bool {
        let is_given = self.shown.is_some() && self.shown.as_deref() == self.given;
        is_given && self.units_here <= 1 && !self.is_serial_known
    }

    /// Whether the unit has lost its configuration, and may be the dock of this backup at another port.
    fn may_be_moved(&self, backup: &FiledBackup, theirs: &UnitIdentity) -> bool {
        let is_lost = self.unit.state == BridgeState::BootLoader && is_nobodys(self.unit.serial());
        let is_new_board = self.given.is_some() && theirs.serial.as_deref() != self.given;
        is_lost && !is_new_board && !is_connected(backup, self.unit, self.connected)
    }
}

/// Leaves the newest backup of each dock that is not connected, and of few docks: no more are worth asking about.
fn keep_few_unconnected(found: &mut Vec<FittingBackup>) {
    let mut docks = Vec::new();
    found.retain(|backup| {
        if backup.fit != Fit::Unconnected {
            return true;
        }
        let dock = backup.filed.identity();
        if docks.len() == MOST_OFFERED || docks.contains(&dock) {
            return false;
        }
        docks.push(dock);
        true
    });
}

/// Whether the unit of a backup is connected elsewhere than `unit`: another unit shows its serial number, or none of its
/// own at the port of the backup. A virtual unit is connected while its folder exists. To a real unit, virtual ones are
/// none, and the other way round.
fn is_connected(backup: &FiledBackup, unit: &UnitInfo, connected: &[UnitInfo]) -> bool {
    if backup.unit.is_virtual() != unit.location.is_virtual() {
        return true;
    }
    if let Ok(Location::Virtual(folder)) = backup.unit.device.parse() {
        return folder.exists();
    }
    let mut others = connected.iter().filter(|other| other.location != unit.location);
    others.any(|other| {
        let shows_none = other.state == BridgeState::OpenFirmware || is_nobodys(other.serial());
        other.serial() == backup.serial() || (shows_none && other.location.to_string() == backup.unit.device)
    })
}

/// Adds what the user named together with the image, unless it already fits the unit or is another one's.
pub fn add_named(backups: &mut Vec<FittingBackup>, unit: &UnitInfo, blocks: &UnitBlocks, named: &FiledBackup) {
    if backups.iter().any(|backup| backup.filed.folder == named.folder) {
        return;
    }
    let own = UnitIdentity::of(blocks.each_ref().map(Option::as_ref)).own();
    let theirs = named.identity();
    if differing(own.usb4, theirs.usb4).is_some() {
        return;
    }
    let replaced =
        differing(own.serial.or_else(|| UnitIdentity::shown_by(unit).own().serial), named.given_identity().serial);
    backups.push(FittingBackup {
        filed: named.clone(),
        fit: Fit::Named,
        has_identity: theirs.serial.is_some() || theirs.usb4.is_some(),
        replaces_serial: unit.state == BridgeState::BootLoader && replaced.is_some(),
    });
}

/// The versions that a unit's board has run, by the backups that fit it best. A serial number that other units share
/// proves nothing, but is reason enough to ask before the line of the version changes. The port alone is none.
pub fn versions_run(backups: &[FittingBackup]) -> Vec<FirmwareVersion> {
    for fit in [Fit::Certain, Fit::SharedSerial] {
        let of_fit = backups.iter().filter(|backup| backup.fit == fit);
        let versions: Vec<FirmwareVersion> = of_fit.filter_map(|backup| backup.filed.version()).collect();
        if !versions.is_empty() {
            return versions;
        }
    }
    Vec::new()
}

/// Returns the change from the first of the versions `ran` to `to`, if none of them is of the line of `to`. A version's
/// last three bytes are its line: the chip maker's own, or a dock maker's. The practice image has no line.
pub fn line_change(ran: &[FirmwareVersion], to: FirmwareVersion) -> Option<(FirmwareVersion, FirmwareVersion)> {
    let from = ran.iter().copied().find(|version| *version != practice::VERSION)?;
    let is_same = ran.iter().any(|version| version.line() == to.line());
    if to == practice::VERSION || is_same { None } else { Some((from, to)) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use asm2464::firmware::known_blocks;
    use asm2464::flash::BlockBytes;

    use super::super::backup::BackedUpUnit;
    use super::super::backup::tests::sample_backup;
    use super::super::decide::samples::{block_one, block_zero};
    use super::*;
    use crate::tests::unit;

    fn filed(folder: &str, device: &str, blocks: [BlockBytes; 2]) -> FiledBackup {
        let unit = BackedUpUnit { device: device.to_owned(), ..sample_backup().unit };
        let later_serials = Vec::new();
        FiledBackup { folder: folder.into(), written: None, unit, blocks, later_serials, pointer: None }
    }

    /// A backup with the known blocks.
    pub(crate) fn sample_filed() -> FiledBackup {
        filed("b", "1-1", known_blocks().map(|block| *block.bytes()))
    }

    fn boot_loader(port: &str, serial: &str) -> UnitInfo {
        UnitInfo { state: BridgeState::BootLoader, ..unit(port, serial) }
    }

    fn fits(unit: &UnitInfo, all: &[FiledBackup]) -> Vec<(String, Fit)> {
        named(fitting(unit, &[None, None], None, all, &[]))
    }

    fn named(found: Vec<FittingBackup>) -> Vec<(String, Fit)> {
        found.into_iter().map(|found| (found.filed.folder.display().to_string(), found.fit)).collect()
    }

    #[test]
    fn with_the_configuration_lost_the_port_counts_most_and_that_is_no_proof() {
        let all = [
            filed("here", "3-1", [block_zero("A"), block_one(1)]),
            filed("elsewhere", "3-2", [block_zero("B"), block_one(2)]),
        ];
        let elsewhere = ("elsewhere".to_owned(), Fit::Unconnected);
        assert_eq!(
            fits(&boot_loader("3-1", "000000000000"), &all),
            [("here".to_owned(), Fit::PortOnly), elsewhere.clone()]
        );
        let here = ("here".to_owned(), Fit::Unconnected);
        assert_eq!(fits(&boot_loader("3-9", "000000000000"), &all), [elsewhere, here]);
        // Serial numbers of zeros don't count as a match.
        let erased = [filed("erased", "3-2", [[0xFF; 128]; 2])];
        assert_eq!(fits(&boot_loader("3-1", "000000000000"), &erased), []);
    }

    #[test]
    fn the_serial_number_that_the_boot_loader_shows_finds_the_backup_wherever_it_was_taken() {
        let all = [
            filed("port", "3-1", [block_zero("B"), block_one(2)]),
            filed("own", "5-4", [block_zero("A"), block_one(1)]),
        ];
        let expected = [("own".to_owned(), Fit::Certain), ("port".to_owned(), Fit::PortOnly)];
        assert_eq!(fits(&boot_loader("3-1", "A"), &all), expected);
    }

    #[test]
    fn backups_with_a_shared_serial_number_show_the_versions_run_if_no_certain_one_does() {
        let of = |fit, version: Option<&str>| {
            let mut filed = sample_filed();
            filed.unit.firmware_version = version.map(str::to_owned);
            FittingBackup { filed, fit, has_identity: true, replaces_serial: false }
        };
        let shared = of(Fit::SharedSerial, Some("231204.85.00.00"));
        let run = |backups: &[FittingBackup]| {
            versions_run(backups).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(run(&[of(Fit::Certain, Some("240417.84.00.00")), shared.clone()]), "240417.84.00.00");
        assert_eq!(run(&[of(Fit::Certain, None), shared.clone()]), "231204.85.00.00");
        assert_eq!(run(&[shared, of(Fit::PortOnly, Some("240417.84.00.00"))]), "231204.85.00.00");
        assert_eq!(run(&[of(Fit::PortOnly, Some("240417.84.00.00"))]), "");
    }

    #[test]
    fn a_serial_number_that_every_unit_gets_identifies_none() {
        let known = known_blocks().map(|block| *block.bytes());
        let all = [filed("known", "5-4", known), filed("port", "3-1", known)];
        let found = fitting(&boot_loader("3-1", "AAAABBBB0060"), &[None, None], None, &all, &[]);
        assert_eq!(found.len(), 1);
        let FittingBackup { filed, fit, has_identity, .. } = &found[0];
        assert_eq!((filed.folder.as_path(), *fit, *has_identity), (Path::new("port"), Fit::PortOnly, false));
    }

    #[test]
    fn a_placeholder_is_only_a_question() {
        let expected = [("other".to_owned(), Fit::SharedSerial)];
        for placeholder in ["AABBCCDD0031", "012345678912", "AAAABBBB0007"] {
            let all = [filed("other", "5-4", [block_zero(placeholder), block_one(1)])];
            assert_eq!(fits(&boot_loader("3-1", placeholder), &all), expected, "{placeholder}");
        }
        let all = [filed("other", "5-4", [block_zero("AAAABBBB0007"), block_one(1)])];
        assert_eq!(fits(&boot_loader("3-1", "AAAABBBB0012"), &all), [], "another number is another unit's");
        // Block 1 is an identity.
        let found = fitting(&unit("3-1", "AAAABBBB0007"), &[None, Some(block_one(1))], None, &all, &[]);
        assert_eq!(named(found), [("other".to_owned(), Fit::Certain)]);
    }

    #[test]
    fn a_backup_with_the_known_blocks_serial_number_replaces_the_one_that_the_boot_loader_shows() {
        let all = [filed("before it got its own", "3-1", [*known_blocks()[0].bytes(), block_one(1)])];
        for (shown, expected) in [("LAB-07", true), ("AAAABBBB0060", false), ("000000000000", false)] {
            let found = fitting(&boot_loader("3-1", shown), &[None, None], None, &all, &[]);
            assert_eq!(found[0].replaces_serial, expected, "{shown}");
        }
    }

    #[test]
    fn a_serial_number_in_backups_of_several_units_is_only_a_question() {
        let all = [
            filed("one", "3-1", [block_zero("LAB"), block_one(1)]),
            filed("two", "3-2", [block_zero("LAB"), block_one(2)]),
        ];
        let expected = [("two".to_owned(), Fit::SharedSerial), ("one".to_owned(), Fit::SharedSerial)];
        assert_eq!(fits(&boot_loader("3-2", "LAB"), &all), expected);
        let with_known = [all[0].clone(), filed("known", "3-1", [block_zero("LAB"), *known_blocks()[1].bytes()])];
        assert_eq!(fits(&boot_loader("3-1", "LAB"), &with_known)[0].1, Fit::SharedSerial);
        // Two backups of one unit don't conflict.
        let all = [all[0].clone(), filed("again", "3-1", [block_zero("LAB"), block_one(1)])];
        assert!(fits(&boot_loader("3-1", "LAB"), &all).iter().all(|(_, fit)| *fit == Fit::Certain));
    }

    #[test]
    fn a_serial_number_that_another_connected_unit_shows_is_only_a_question() {
        let all = [filed("one", "3-1", [block_zero("LAB"), block_one(1)])];
        let here = boot_loader("3-1", "LAB");
        let fit = |other: UnitInfo| fitting(&here, &[None, None], None, &all, &[here.clone(), other])[0].fit;
        assert_eq!(fit(unit("3-2", "LAB")), Fit::SharedSerial);
        assert_eq!(fit(boot_loader("3-2", "LAB")), Fit::SharedSerial);
        assert_eq!(fit(unit("3-2", "OTHER")), Fit::Certain);
        // Open firmware shows the chip's number.
        assert_eq!(fit(UnitInfo { state: BridgeState::OpenFirmware, ..unit("3-2", "LAB") }), Fit::Certain);
    }

    #[test]
    fn a_serial_number_that_an_earlier_run_gave_finds_the_backup_of_the_port() {
        let before = filed("before", "3-1", [block_zero("FACTORY"), block_one(1)]);
        let elsewhere = filed("elsewhere", "5-4", [block_zero("OTHER"), block_one(2)]);
        let all = [before.clone(), elsewhere];
        let shown = |serial: &str, given, all: &[FiledBackup]| {
            named(fitting(&boot_loader("3-1", serial), &[None, None], given, all, &[]))
        };
        assert_eq!(shown("NEW", Some("NEW"), &all), [("before".to_owned(), Fit::Certain)]);
        for given in [None, Some("ANOTHER")] {
            assert_eq!(shown("NEW", given, &all), [("before".to_owned(), Fit::PortOnly)], "{given:?}");
        }
        assert_eq!(shown("000000000000", Some("000000000000"), &all)[0].1, Fit::PortOnly, "a ROM's number is nobody's");
        // Two units were at this port. Those without a USB4 identity have a serial number.
        let known = |serial| [block_zero(serial), *known_blocks()[1].bytes()];
        let all = [before, filed("another", "3-1", [block_zero("B"), block_one(2)])];
        assert!(shown("NEW", Some("NEW"), &all).iter().all(|(_, fit)| *fit == Fit::PortOnly));
        let all = [filed("a", "3-1", known("A")), filed("b", "3-1", known("B"))];
        assert!(shown("NEW", Some("NEW"), &all).iter().all(|(_, fit)| *fit == Fit::PortOnly));
        // Its own serial number says more than that.
        let another = filed("another", "3-1", [block_zero("B"), block_one(2)]);
        let all = [another, filed("own", "5-4", [block_zero("NEW"), block_one(3)])];
        let expected = [("own".to_owned(), Fit::Certain), ("another".to_owned(), Fit::PortOnly)];
        assert_eq!(shown("NEW", Some("NEW"), &all), expected);
    }

    #[test]
    fn block_1_identifies_a_unit_whose_serial_number_has_changed_and_excludes_all_others() {
        let blocks = [None, Some(block_one(1))];
        let unit = UnitInfo { state: BridgeState::OpenFirmware, ..unit("3-1", "chip's own") };
        let all = [
            filed("own", "5-4", [block_zero("OLD"), block_one(1)]),
            filed("same port", "3-1", [block_zero("B"), block_one(2)]),
            filed("chip's", "5-4", [block_zero("chip's own"), block_one(3)]),
        ];
        assert_eq!(named(fitting(&unit, &blocks, None, &all, &[])), [("own".to_owned(), Fit::Certain)]);
    }

    #[test]
    fn an_earlier_serial_number_is_the_units_own_at_its_port_unless_the_usb4_identity_is_a_template() {
        let now = UnitInfo { state: BridgeState::Vendor, ..unit("3-1", "NEW") };
        let blocks = [Some(block_zero("NEW")), Some(block_one(1))];
        let fit = |all: &[FiledBackup], connected: &[UnitInfo]| {
            let found = fitting(&now, &blocks, None, all, connected);
            found.into_iter().find(|found| found.filed.folder == Path::new("old")).unwrap().fit
        };
        let of = |folder: &str, port: &str, serial: &str| filed(folder, port, [block_zero(serial), block_one(1)]);
        let old = of("old", "3-1", "OLD");
        assert_eq!(fit(std::slice::from_ref(&old), &[]), Fit::Certain);
        assert_eq!(fit(&[old.clone(), of("now", "3-1", "NEW"), of("again", "5-5", "OLD")], &[]), Fit::Certain);
        // A backup without a number is none of another unit.
        let none = filed("none", "5-5", [*known_blocks()[0].bytes(), block_one(1)]);
        assert_eq!(fit(&[old.clone(), of("now", "3-1", "NEW"), none], &[]), Fit::Certain);
        // Nor is another unit's number one of this unit's.
        let other = filed("other", "5-6", [block_zero("OTHER"), block_one(2)]);
        assert_eq!(fit(&[old.clone(), other], &[]), Fit::Certain);
        // At another port, if asmpatch gave the unit its number after that backup.
        let moved = |later: &str| {
            let later_serials = vec!["BETWEEN".to_owned(), later.to_owned()];
            FiledBackup { later_serials, ..of("old", "5-4", "OLD") }
        };
        assert_eq!(fit(&[moved("NEW")], &[]), Fit::Certain);
        assert_eq!(fit(&[moved("OTHER")], &[]), Fit::OtherSerial);
        assert_eq!(fit(&[moved("NEW"), of("third", "3-1", "THIRD")], &[]), Fit::OtherSerial);
        assert_eq!(fit(&[moved("NEW")], &[now.clone(), unit("3-2", "OLD")]), Fit::OtherSerial);
        // Another port, a third number with the same USB4 identity, a unit that shows the number, a placeholder.
        assert_eq!(fit(&[of("old", "5-4", "OLD")], &[]), Fit::OtherSerial);
        assert_eq!(fit(&[old.clone(), of("third", "3-1", "THIRD")], &[]), Fit::OtherSerial);
        assert_eq!(fit(std::slice::from_ref(&old), &[now.clone(), unit("3-2", "OLD")]), Fit::OtherSerial);
        assert_eq!(fit(&[of("old", "3-1", "AABBCCDD0031")], &[]), Fit::OtherSerial);
    }

    #[test]
    fn a_backup_that_would_replace_the_units_own_number_comes_with_the_consent_that_restore_asks_for() {
        let now = UnitInfo { state: BridgeState::Vendor, ..unit("3-1", "LAB-07") };
        let replaces = |one: BlockBytes, backup: FiledBackup| {
            let found = fitting(&now, &[Some(block_zero("LAB-07")), Some(one)], None, &[backup], &[]);
            (found[0].fit, found[0].replaces_serial)
        };
        // The known USB4 identity proves nothing.
        let known = *known_blocks()[1].bytes();
        let before = filed("before", "3-1", [block_zero("FACTORY"), known]);
        assert_eq!(replaces(known, before), (Fit::PortOnly, true));
        let before = filed("before", "3-1", [block_zero("FACTORY"), block_one(1)]);
        assert_eq!(replaces(block_one(1), before), (Fit::Certain, false));
        let same = filed("same", "5-4", [block_zero("LAB-07"), known]);
        assert_eq!(replaces(known, same), (Fit::Certain, false));
        // What is in the block counts, also while the unit shows another number, and in the boot loader what it shows.
        let shows = |unit: UnitInfo, blocks: &UnitBlocks, given, serial| {
            let backup = filed("b", "3-1", [block_zero(serial), known]);
            let found = fitting(&unit, blocks, given, &[backup], &[]);
            (found[0].fit, found[0].replaces_serial)
        };
        let before = UnitInfo { state: BridgeState::Vendor, ..unit("3-1", "AABBCCDD0031") };
        let blocks = [Some(block_zero("LAB-07")), None];
        assert_eq!(shows(before, &blocks, None, "AABBCCDD0031"), (Fit::SharedSerial, true));
        let stopped = boot_loader("3-1", "NEW");
        assert_eq!(shows(stopped, &[None, None], Some("NEW"), "FACTORY"), (Fit::Certain, true));
    }

    #[test]
    fn the_number_in_a_units_block_finds_its_backup_while_the_unit_shows_an_earlier_one() {
        let unit = UnitInfo { state: BridgeState::Vendor, ..unit("3-1", "BEFORE") };
        let all = [filed("own", "5-4", [block_zero("SINCE"), block_one(1)])];
        let found = fitting(&unit, &[Some(block_zero("SINCE")), None], None, &all, &[]);
        assert_eq!(named(found), [("own".to_owned(), Fit::Certain)]);
    }

    #[test]
    fn a_serial_number_or_a_usb4_identity_alone_is_one_that_the_known_blocks_would_replace() {
        let [zero, one] = known_blocks().map(|block| *block.bytes());
        for (blocks, expected) in [([block_zero("A"), one], true), ([zero, block_one(1)], true), ([zero, one], false)] {
            let found =
                fitting(&boot_loader("3-1", "000000000000"), &[None, None], None, &[filed("b", "3-1", blocks)], &[]);
            assert_eq!(found[0].has_identity, expected);
        }
    }

    #[test]
    fn only_a_boot_loader_without_a_number_may_be_any_dock_that_is_not_connected() {
        let unit = UnitInfo { state: BridgeState::Vendor, ..unit("3-1", "000000000000") };
        let all = [filed("elsewhere", "5-4", [block_zero("A"), block_one(1)])];
        assert_eq!(fitting(&unit, &[None, None], None, &all, &[]), []);
    }

    #[test]
    fn what_the_user_names_beside_the_image_counts_unless_it_fits_already_or_is_another_units() {
        let [known_zero, known_one] = known_blocks().map(|block| *block.bytes());
        let add = |unit: &UnitInfo, own: UnitBlocks, blocks: [BlockBytes; 2], backups: &[FittingBackup]| {
            let mut backups = backups.to_vec();
            add_named(&mut backups, unit, &own, &filed("named", "9-9", blocks));
            backups.into_iter().map(|found| (found.fit, found.has_identity, found.replaces_serial)).collect::<Vec<_>>()
        };
        let lost = boot_loader("3-1", "000000000000");
        let named = [block_zero("A"), block_one(1)];
        assert_eq!(add(&lost, [None, None], named, &[]), [(Fit::Named, true, false)]);
        for (blocks, has_identity) in
            [([block_zero("A"), known_one], true), ([known_zero, block_one(1)], true), ([known_zero, known_one], false)]
        {
            assert_eq!(add(&lost, [None, None], blocks, &[]), [(Fit::Named, has_identity, false)]);
        }
        let found = |folder: &str| {
            let filed = filed(folder, "3-1", named);
            FittingBackup { filed, fit: Fit::PortOnly, has_identity: true, replaces_serial: true }
        };
        let port = (Fit::PortOnly, true, true);
        assert_eq!(add(&lost, [None, None], named, &[found("named")]), [port]);
        assert_eq!(add(&lost, [None, None], named, &[found("other")]), [port, (Fit::Named, true, false)]);
        // The number that the boot loader shows would be replaced; that in a block can be read, and is in the backup then.
        assert_eq!(add(&boot_loader("3-1", "B"), [None, None], named, &[]), [(Fit::Named, true, true)]);
        assert_eq!(add(&boot_loader("3-1", "A"), [None, None], named, &[]), [(Fit::Named, true, false)]);
        let own = [Some(block_zero("B")), Some(block_one(1))];
        assert_eq!(add(&unit("3-1", "B"), own, named, &[]), [(Fit::Named, true, false)]);
        assert_eq!(add(&unit("3-1", "B"), own, [block_zero("A"), block_one(2)], &[]), []);
    }

    #[test]
    fn a_dock_is_connected_if_a_unit_shows_its_number_or_none_at_its_port() {
        let all = [filed("a", "3-7", [block_zero("A"), block_one(1)])];
        let blank = boot_loader("3-2", "000000000000");
        let is_offered = |other: UnitInfo| {
            let found = fitting(&blank, &[None, None], None, &all, &[blank.clone(), other]);
            found.iter().any(|found| found.fit == Fit::Unconnected)
        };
        let open = |port: &str, serial: &str| UnitInfo { state: BridgeState::OpenFirmware, ..unit(port, serial) };
        for (other, expected) in [
            (unit("3-9", "A"), false),
            (open("3-7", "chip's"), false),
            (boot_loader("3-7", "000000000000"), false),
            (unit("3-7", "B"), true),
            (open("3-9", "chip's"), true),
            (boot_loader("3-9", "000000000000"), true),
        ] {
            assert_eq!(is_offered(other.clone()), expected, "{other:?}");
        }
        // A backup without a number is not connected because the unit has none, either.
        let mut nameless = filed("a", "3-7", [[0xFF; 128], block_one(1)]);
        nameless.unit.serial = blank.serial().to_owned();
        let found = fitting(&blank, &[None, None], None, &[nameless], std::slice::from_ref(&blank));
        assert_eq!(named(found), [("a".to_owned(), Fit::Unconnected)]);
    }

    #[test]
    fn the_practice_image_has_no_line_to_leave_or_to_come_to() {
        let version = FirmwareVersion([0x24, 4, 0x17, 0x84, 0, 0]);
        let other = FirmwareVersion([0x24, 4, 0x17, 0x85, 0, 0]);
        assert_eq!(line_change(&[practice::VERSION, version], other), Some((version, other)));
        assert_eq!(line_change(&[practice::VERSION], other), None);
        assert_eq!(line_change(&[version], practice::VERSION), None);
    }

    #[test]
    fn open_firmwares_serial_number_is_not_compared_with_a_blocks() {
        let unit = UnitInfo { state: BridgeState::OpenFirmware, ..unit("3-1", "A") };
        assert_eq!(fits(&unit, &[filed("a", "5-4", [block_zero("A"), block_one(1)])]), []);
    }

    #[test]
    fn of_equal_backups_the_newest_comes_first() {
        let written = |folder: &str, seconds| FiledBackup {
            written: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
            ..filed(folder, "3-1", [block_zero("A"), block_one(1)])
        };
        let found = fits(&boot_loader("3-1", "A"), &[written("old", 1), written("new", 9), written("middle", 5)]);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["new", "middle", "old"]);
    }

    #[test]
    fn a_unit_that_has_lost_its_configuration_may_be_any_dock_that_is_not_connected() {
        let found = |unit: &UnitInfo, all: &[FiledBackup], others: &[UnitInfo]| {
            named(fitting(unit, &[None, None], None, all, others))
        };
        let of = |folder: &str, device: &str, serial: &str, byte| {
            filed(folder, device, [block_zero(serial), block_one(byte)])
        };
        let blank = boot_loader("3-2", "000000000000");
        let all = [
            of("own", "3-1", "A", 1),
            of("own, older", "3-1", "A", 1),
            of("shows its number elsewhere", "3-3", "B", 2),
            of("runs open firmware", "3-5", "C", 3),
            of("of a virtual unit", "virtual:nowhere", "D", 4),
            filed("nobody's", "3-4", known_blocks().map(|block| *block.bytes())),
        ];
        let open = UnitInfo { state: BridgeState::OpenFirmware, ..unit("3-5", "chip's") };
        let others = [unit("3-9", "B"), open, blank.clone()];
        assert_eq!(found(&blank, &all, &others), [("own".to_owned(), Fit::Unconnected)]);
        // One that shows a number of its own is not asked about others, and the port counts more.
        assert_eq!(found(&boot_loader("3-2", "Z"), &all, &others), []);
        let here = of("here", "3-2", "H", 8);
        let both = found(&blank, &[all[0].clone(), here], &[]);
        assert_eq!(both, [("here".to_owned(), Fit::PortOnly), ("own".to_owned(), Fit::Unconnected)]);
        let many: Vec<FiledBackup> =
            (1..6).map(|byte| of(&byte.to_string(), "5-1", &format!("S{byte}"), byte)).collect();
        assert_eq!(found(&blank, &many, &[]).len(), 3);
        // A serial number is given to a new board, unless one of them has that number.
        let given = |serial| named(fitting(&blank, &[None, None], Some(serial), &all, &others));
        assert_eq!(given("NEW"), []);
        assert_eq!(given("A"), [("own".to_owned(), Fit::Unconnected)]);
        // A virtual unit is connected while its folder is there.
        let home = tempfile::tempdir().unwrap();
        let there = of("there", &format!("virtual:{}", home.path().display()), "V", 5);
        let found = found(&boot_loader("virtual:x", "000000000000"), &[all[4].clone(), there, all[0].clone()], &[]);
        assert_eq!(found, [("of a virtual unit".to_owned(), Fit::Unconnected)]);
    }
}
