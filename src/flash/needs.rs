//! What a write needs: all that keeps it from being carried out, or that the user must know or agree to. Collects, decides
//! nothing, and knows of no permission. Pure.
//!
//! Two notions stay apart. A [`Loss`] goes for good: no backup has it. What is [`Cloned`] comes from another unit, or is
//! shared with one: a unit that is backed up first loses nothing, and must not get another's identity all the same.
//!
//! The [commands after a run](later_commands) meet the unit as a stop may leave it, which is one of several states. They
//! get the permissions that any of these needs. What this run was permitted doesn't count there.

use std::borrow::Cow;
use std::collections::BTreeSet;

use asm2464::firmware::{BridgeState, FirmwareVersion};
use asm2464::{Failure, Kind, Label};
use asm2464_host::bridge::UnitInfo;
use asm2464_host::usb::OtherChip;

use super::access::is_readable;
use super::backup_folder::UnreadBackup;
use super::consent::{Permission, Waiver};
use super::examined::{Examined, Neighbours, NewFirmware, UnknownImage};
use super::fitting::{self, Fit, FittingBackup, line_change, versions_run};
use super::identity::{Cloned, UnitIdentity, is_placeholder};
use super::plan::{BlockPlan, BlockSource};
use super::recovery::{LaterCommands, Why};
use crate::image::Rewritable;
use crate::unit::facts::differing;

/// What the write of a unit needs.
#[derive(Debug)]
pub struct Needs {
    /// Why no permission is enough.
    pub cannot: Option<Failure>,
    /// Whether the unit already holds the whole plan.
    pub unchanged: bool,
    /// Reasons that the write is unproven, in words.
    pub unproven: Vec<Cow<'static, str>>,
    /// What the unit would have of other units: of the serial number and of the USB4 identity one each at most.
    pub foreign: Vec<Cloned>,
    /// What the unit would lose for good.
    pub loss: Loss,
    /// The change of the version's line: from the first to the second.
    pub line: Option<(FirmwareVersion, FirmwareVersion)>,
    /// Whether the unit can't be backed up.
    pub unreadable: bool,
    /// The backups that may have the unit's own identity, although it gets the known or a neutral one.
    pub own: Vec<FittingBackup>,
    /// What may be such a backup and can't be read.
    pub unread: Vec<UnreadBackup>,
    /// Why it is not known whether another connected unit has this unit's serial number.
    pub neighbours: Option<String>,
    /// Other units with the serial number that this unit keeps.
    pub twins: Vec<String>,
    /// The same, if the other units of the run get what is planned for them.
    pub planned_twins: Vec<String>,
}

/// What a write takes from a unit for good: no backup that could be read has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loss {
    /// The serial number before and after.
    pub serial: Option<(String, String)>,
    /// Whether it is the USB4 identity.
    pub usb4: bool,
}

impl Loss {
    /// What the user has to agree to.
    pub fn waivers(&self) -> impl Iterator<Item = Waiver> + use<> {
        let serial = self.serial.is_some().then_some(Waiver::Serial);
        let usb4 = self.usb4.then_some(Waiver::Usb4);
        serial.into_iter().chain(usb4)
    }

    /// What is lost, each in words.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some((own, new)) = &self.serial {
            words.push(format!("serial number {own} becomes {new}; no backup has it"));
        }
        if self.usb4 {
            words.push("the unit's own USB4 ID is lost; no backup has it".to_owned());
        }
        words
    }
}

/// All units but the one at index `at`.
#[derive(Clone, Copy)]
pub(super) struct Others<'a> {
    pub units: &'a [&'a Examined],
    pub at: usize,
    pub connected: &'a Neighbours,
}

impl Others<'_> {
    /// The ports of the units whose identity fits `is_such`, and of those whose planned one does and for which
    /// `is_planned` says that it counts.
    fn with(&self, is_planned: &dyn Fn(usize) -> bool, is_such: impl Fn(UnitIdentity) -> bool) -> Vec<String> {
        let mut devices = Vec::new();
        for (at, unit) in self.units.iter().enumerate() {
            if at != self.at && (is_such(unit.own()) || (is_planned(at) && is_such(unit.planned()))) {
                devices.push(unit.seen.attached.location.to_string());
            }
        }
        devices
    }

    fn with_serial(&self, serial: &str, is_planned: &dyn Fn(usize) -> bool) -> Vec<String> {
        let mut same = self.with(is_planned, |identity| identity.serial.as_deref() == Some(serial));
        // A unit on this machine's buses can't be a virtual unit's twin.
        if let Ok(connected) = self.connected
            && self.units.get(self.at).is_some_and(|unit| !unit.seen.attached.location.is_virtual())
        {
            let connected = connected.iter().filter(|other| other.serial() == serial);
            same.extend(connected.map(|other| other.location.to_string()));
        }
        same
    }

    fn with_usb4(&self, identity: &UnitIdentity, is_planned: &dyn Fn(usize) -> bool) -> Vec<String> {
        self.with(is_planned, |other| identity.shares_usb4_with(&other))
    }
}

/// The identity that a write gives a unit.
struct Given {
    identity: UnitIdentity,
    /// The part of it that comes from a backup, which may be another unit's.
    from_backup: UnitIdentity,
}

impl Given {
    fn by_plan(unit: &Examined, subject: &NewFirmware) -> Self {
        let [zero, one] = &unit.plan.blocks;
        let identity = unit.planned();
        // An identity that the user gives, or that the unit has, belongs to no other unit.
        let mut from_backup = identity.clone();
        if zero.source != BlockSource::Backup || subject.serial_given {
            from_backup.serial = None;
        }
        if one.source != BlockSource::Backup {
            from_backup.usb4 = None;
        }
        Self { identity, from_backup }
    }

    fn by_backup_of(identity: UnitIdentity) -> Self {
        Self { from_backup: identity.clone(), identity }
    }
}

/// Collects what the write of a unit needs.
pub(super) fn needs(unit: &Examined, subject: &NewFirmware, others: Others<'_>) -> Needs {
    let Examined { seen, .. } = unit;
    let (own, given) = (unit.own(), Given::by_plan(unit, subject));
    let is_own = had_before(unit, &given.from_backup);
    let foreign = foreign(&own, &given, is_own, others, &|_| true);
    let twins = |is_planned: bool| match &given.identity.serial {
        Some(serial) if foreign.is_empty() => others.with_serial(serial, &|_| is_planned),
        _ => Vec::new(),
    };
    let neighbours = match others.connected {
        Err(why) if !seen.attached.location.is_virtual() => Some(why.clone()),
        _ => None,
    };
    Needs {
        cannot: cannot(unit, subject),
        unchanged: is_there_already(unit, subject),
        unproven: unproven(unit, subject),
        loss: loss(unit, subject),
        line: line(unit),
        unreadable: !is_readable(seen.attached.state),
        own: own_backups(unit),
        unread: if stands_in(unit) { unit.unread.clone() } else { Vec::new() },
        neighbours,
        twins: twins(false),
        planned_twins: twins(true),
        foreign,
    }
}

fn cannot(unit: &Examined, subject: &NewFirmware) -> Option<Failure> {
    let refusal = |label: Label, why: String| {
        let device = &unit.seen.attached.location;
        Some(Failure::new(label, format!("{device}: {why}")))
    };
    // Another chip takes the same commands, and has another boot loader.
    let ids = [Some(unit.seen.attached.id), unit.plan.usb_id];
    if let Some(chip) = ids.into_iter().flatten().find_map(OtherChip::with) {
        return refusal(Kind::Refused.code("asmpatch::flash::other_chip"), chip.refusal());
    }
    // No command could write the unit again while it runs this image.
    if let Rewritable::No(failed) = &subject.proof.rewritable {
        let why = format!("the image fails this check on a model of the chip: {failed}");
        return refusal(Kind::Refused.code("asmpatch::flash::not_rewritable"), why);
    }
    None
}

/// Whether flash and blocks match the plan, and the unit's behaviour does not contradict it.
fn is_there_already(unit: &Examined, subject: &NewFirmware) -> bool {
    let Examined { seen, plan, .. } = unit;
    let Some(parts) = &seen.running.parts else { return false };
    let is_written = plan.parts().zip(parts).all(|((_, bytes), found)| found.starts_with(bytes));
    if !is_written || plan.blocks.iter().any(BlockPlan::differs) || !plan.is_identity_of(&seen.attached) {
        return false;
    }
    // Open firmware has its own descriptors, whatever the configuration says.
    if let Some(open) = &plan.open {
        return seen.attached.product == open.product;
    }
    // Without a valid block, the unit shows a serial number that is not from its flash.
    let found = seen.attached.serial();
    let has_serial = found.is_empty() || plan.serial().is_none_or(|serial| serial == found);
    has_serial && !seen.running.runs.contradicts(subject.firmware())
}

fn unproven(unit: &Examined, subject: &NewFirmware) -> Vec<Cow<'static, str>> {
    let is_virtual = unit.seen.attached.location.is_virtual();
    let image = unit.seen.running.image();
    let has_it = image.is_some_and(|image| image.sha256() == subject.proof.known.sha256);
    let mut why = subject.proof.unproven(is_virtual, has_it);
    let is_not_tried =
        "so nobody has said that it works on silicon; on the chip model it boots and takes firmware again";
    match &subject.unknown {
        Some(UnknownImage::Version) => why.push(format!("the image is unknown, {is_not_tried}").into()),
        Some(UnknownImage::Changed(what)) => why.push(format!("the image is {what}, {is_not_tried}").into()),
        None => {}
    }
    if !is_virtual && subject.from_virtual {
        why.push("this is a virtual unit's backup: its content has never run on silicon".into());
    }
    why
}

/// What a unit with the identity `own` would have of other units. It may keep its own identity, and get back what it had
/// before (`is_own`). A unit whose identity can't be read must not get another unit's either. The plans of other units
/// count if `is_planned` says so.
fn foreign(
    own: &UnitIdentity,
    given: &Given,
    is_own: bool,
    others: Others<'_>,
    is_planned: &dyn Fn(usize) -> bool,
) -> Vec<Cloned> {
    let mut foreign = if is_own { Vec::new() } else { own.taken_by(&given.from_backup) };
    let has = |waiver: Waiver, foreign: &[Cloned]| foreign.iter().any(|cloned| cloned.waiver() == waiver);
    if let Some(serial) = &given.identity.serial
        && given.identity.serial != own.serial
        && !has(Waiver::Serial, &foreign)
    {
        let devices = others.with_serial(serial, is_planned);
        if !devices.is_empty() {
            foreign.push(Cloned::SharedSerial { serial: serial.clone(), devices });
        }
    }
    if given.identity.usb4 != own.usb4 && !has(Waiver::Usb4, &foreign) {
        let devices = others.with_usb4(&given.identity, is_planned);
        if !devices.is_empty() {
            foreign.push(Cloned::SharedUsb4(devices));
        }
    }
    foreign
}

/// Whether this is the identity in a backup that certainly is the unit's own: with another serial number, an earlier one.
/// Only a unit with a USB4 identity is known by more than its serial number.
fn had_before(unit: &Examined, identity: &UnitIdentity) -> bool {
    unit.own().usb4.is_some() && certain(&unit.backups).any(|backup| backup.filed.given_identity() == *identity)
}

/// Whether the backup that is made now will certainly be the unit's own once it has what is planned for it.
fn stays_own(unit: &Examined) -> bool {
    let (own, planned) = (unit.own().own(), unit.planned());
    let numbers = [&own.serial, &planned.serial];
    let with_another_number = |backup: &FittingBackup| {
        let theirs = backup.filed.given_identity();
        theirs.usb4 == own.usb4 && !numbers.contains(&&theirs.serial)
    };
    own.usb4.is_some() && own.usb4 == planned.usb4 && !unit.backups.iter().any(with_another_number)
}

fn certain(backups: &[FittingBackup]) -> impl Iterator<Item = &FittingBackup> {
    backups.iter().filter(|backup| backup.fit == Fit::Certain)
}

/// What the plan takes from the unit for good. Only where the known or neutral blocks stand in: all else is in the
/// unit's backup, comes from a backup, or is what the user gives.
fn loss(unit: &Examined, subject: &NewFirmware) -> Loss {
    let [zero, one] = &unit.plan.blocks;
    let shown = UnitIdentity::shown_by(&unit.seen.attached);
    let mut loss = Loss::default();
    if zero.source.stands_in()
        && !subject.serial_given
        && let (Some(own), Some(new)) = (&shown.own().serial, unit.plan.serial())
        && *own != new
        && !is_placeholder(own)
        && !certain(&unit.backups).any(|backup| backup.filed.given_identity().serial.as_ref() == Some(own))
    {
        loss.serial = Some((own.clone(), new));
    }
    // A block that can be read and isn't valid holds nothing.
    let is_boot_loader = unit.seen.attached.state == BridgeState::BootLoader;
    loss.usb4 = is_boot_loader && one.source.stands_in() && loses_usb4(&shown, &unit.backups);
    loss
}

/// Whether a unit in its boot loader that shows this has a USB4 identity of its own, which no backup has. Where block 0
/// is whole, block 1 is, too, as far as anybody can know. A backup that is the unit's own has what it had.
fn loses_usb4(shown: &UnitIdentity, backups: &[FittingBackup]) -> bool {
    shown.own().serial.is_some() && certain(backups).next().is_none()
}

/// What the user has to agree to before a unit in its boot loader that shows this gets the known or neutral blocks,
/// while these backups may be its own, and what can't be read.
fn stand_in_waivers(shown: &UnitIdentity, backups: &[FittingBackup], unread: &[UnreadBackup]) -> Vec<Permission> {
    let mut waivers = Vec::new();
    if loses_usb4(shown, backups) {
        waivers.push(Permission::CloneIdentity(Waiver::Usb4));
    }
    if backups.iter().any(|backup| backup.has_identity) || !unread.is_empty() {
        waivers.push(Permission::CloneIdentity(Waiver::OwnBackup));
    }
    waivers
}

/// What a unit in its boot loader is if none of these backups is its own: a step that writes it without one is for
/// this, and needs these permissions.
pub fn without_backup(unit: &UnitInfo, backups: &[FittingBackup], unread: &[UnreadBackup]) -> (Why, Vec<Permission>) {
    let shown = UnitIdentity::shown_by(unit);
    let why = if shown.own().serial.is_some() { Why::KeepsSerial } else { Why::NewBoard };
    (why, stand_in_waivers(&shown, backups, unread))
}

/// Whether the unit would get a known or a neutral block.
fn stands_in(unit: &Examined) -> bool {
    unit.plan.blocks.iter().any(|block| block.source.stands_in())
}

/// The backups with an identity that the unit would lose to that of the known or neutral blocks.
fn own_backups(unit: &Examined) -> Vec<FittingBackup> {
    if !stands_in(unit) {
        return Vec::new();
    }
    unit.backups.iter().filter(|backup| backup.has_identity).cloned().collect()
}

/// The change of the version's line, if there is one. The boot loader and open firmware report no version: then the
/// unit's backups show which lines its board has run.
fn line(unit: &Examined) -> Option<(FirmwareVersion, FirmwareVersion)> {
    let ran = match unit.seen.running.runs.version {
        Some(running) => vec![running],
        None => versions_run(&unit.backups),
    };
    line_change(&ran, unit.plan.version?)
}

/// The identities that a unit may show once a write has begun: its boot loader has the old block 0, the new one, or none.
fn boot_loaders(unit: &Examined) -> impl Iterator<Item = UnitIdentity> {
    let shown = [None, unit.own().serial, unit.planned().serial];
    shown.into_iter().map(|serial| UnitIdentity { serial, usb4: None })
}

/// The unit's backups, as they fit it once a write has begun: its boot loader shows no USB4 identity, which would prove that
/// another number was its own.
pub fn backups_after_stop(unit: &Examined) -> Vec<FittingBackup> {
    let mut backups = unit.backups.clone();
    for backup in &mut backups {
        let theirs = backup.filed.given_identity().serial;
        let is_replaced = |shown: UnitIdentity| differing(shown.own().serial, theirs.clone()).is_some();
        backup.replaces_serial |= boot_loaders(unit).any(is_replaced);
    }
    backups
}

/// Returns what the commands after the write of unit `at` need. `written` says of each unit whether it is written, and
/// so gets what is planned for it. `backs_up` is whether the command that was run makes a backup.
pub fn later_commands(
    units: &[&Examined],
    at: usize,
    subject: &NewFirmware,
    written: &[bool],
    backs_up: bool,
    connected: &Neighbours,
) -> LaterCommands {
    let Some(unit) = units.get(at) else { return LaterCommands::default() };
    let others = Others { units, at, connected };
    let is_planned = |other: usize| written.get(other).copied().unwrap_or_default();
    let clones = |own: &UnitIdentity, given: &Given, is_own: bool| {
        let foreign = foreign(own, given, is_own, others, &is_planned);
        foreign.into_iter().map(|cloned| Permission::CloneIdentity(cloned.waiver()))
    };

    let line = line(unit).map(|_| Permission::OtherLine);
    let unproven = if unproven(unit, subject).is_empty() { None } else { Some(Permission::Unproven) };
    let given = Given::by_plan(unit, subject);
    let own = unit.own();
    let is_own = had_before(unit, &given.from_backup);
    let mut now: BTreeSet<Permission> = line.into_iter().chain(unproven).collect();
    now.extend(clones(&own, &given, is_own));
    let mut with_blocks = now.clone();
    for shown in boot_loaders(unit) {
        with_blocks.extend(clones(&shown, &given, false));
    }

    let mut backups = unit.backups.clone();
    if unit.plan.chosen_serial.is_some() {
        // The commands have that number.
        fitting::keep_for_new_board(&mut backups);
    }
    let mut again = with_blocks.clone();
    let is_readable = is_readable(unit.seen.attached.state);
    let has_blocks = unit.plan.blocks.iter().all(|block| block.source == BlockSource::Backup);
    if !is_readable && !has_blocks {
        now.extend(stand_in_waivers(&own, &backups, &unit.unread));
    }
    // If this run makes a backup, its blocks are taken from there.
    if !(has_blocks || is_readable && backs_up) {
        for shown in boot_loaders(unit) {
            again.extend(stand_in_waivers(&shown, &backups, &unit.unread));
        }
    }

    let before = Given::by_backup_of(own);
    let mut back: BTreeSet<Permission> = line.into_iter().collect();
    back.extend(clones(&unit.planned(), &before, stays_own(unit)));
    let back_when_done = back.iter().copied().collect();
    for shown in boot_loaders(unit) {
        back.extend(clones(&shown, &before, false));
    }
    LaterCommands {
        now: now.into_iter().collect(),
        again: again.into_iter().collect(),
        with_blocks: with_blocks.into_iter().collect(),
        serial: unit.plan.chosen_serial.clone(),
        gives_serial: subject.serial_given,
        back: back.into_iter().collect(),
        back_when_done,
    }
}
