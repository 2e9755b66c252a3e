//! Decides whether a unit is written: compares its observed state with its plan and the user's permissions. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use asm2464::firmware::{BridgeState, FirmwareVersion};
use asm2464::{Failure, Kind, Label};
use asm2464_chip::practice;
use asm2464_host::bridge::UnitInfo;
use asm2464_host::usb::OtherChip;

use super::access::is_readable;
use super::backup::Backup;
use super::backup_folder::UnreadBackup;
use super::fitting::{FittingBackup, versions_run};
use super::identity::{Cloned, UnitIdentity};
use super::observe::Observation;
use super::plan::{BlockPlan, BlockSource, ChosenSerial, FlashPlan};
use crate::image::{Firmware, Proof, Rewritable};

/// What is to be written, the same for every unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFirmware {
    /// The image, and what executing it has shown.
    pub proof: Arc<Proof>,
    /// What is unknown of the image that the user gave. Firmware that comes from a unit or its backup does not count as
    /// unknown.
    pub unknown: Option<UnknownImage>,
    /// Whether the firmware or the blocks come from a virtual unit's backup.
    pub from_virtual: bool,
    /// Whether the user gave the serial number.
    pub serial_given: bool,
}

impl NewFirmware {
    /// What is written with the blocks, or the firmware, of this backup; the user gave no serial number.
    pub fn of(proof: Arc<Proof>, unknown: Option<UnknownImage>, backup: Option<&Backup>) -> Self {
        let from_virtual = backup.is_some_and(|backup| backup.unit.is_virtual());
        Self { proof, unknown, from_virtual, serial_given: false }
    }

    /// What the image is.
    pub fn firmware(&self) -> &Firmware {
        &self.proof.known.firmware
    }
}

/// An image of which nobody has said that it works on silicon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownImage {
    /// An image of a version that is not known.
    Version,
    /// A known version that somebody changed. Holds what is changed, in words.
    Changed(String),
}

/// Permissions that the user gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Write a unit that can't be backed up.
    pub no_backup: bool,
    /// Write an image that is not known to work.
    pub unproven: bool,
    /// Give a unit another unit's identity, or the known or a neutral one although a backup may have its own.
    pub clone_identity: bool,
    /// Change the [line](FirmwareVersion::line) of the version.
    pub other_line: bool,
    /// Write even if the unit already holds the plan.
    pub force: bool,
    /// Nobody can be asked: anything that needs a question is refused.
    pub unasked: bool,
}

/// A unit of this run: what was seen on it, and what would be written.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The unit's observed state.
    pub seen: Observation,
    /// The unit's plan.
    pub plan: FlashPlan,
    /// The backups that may be the unit's own; empty if they don't matter for the decision.
    pub backups: Vec<FittingBackup>,
    /// What may be backups and can't be read; empty if they don't matter for the decision.
    pub unread: Vec<UnreadBackup>,
    /// The proof of the image in the unit's flash; `None` if there is no image, or no backup of it will be made.
    pub flashed: Option<Arc<Proof>>,
}

/// The units on this machine's buses that are not part of a run, or why the system could not list them.
pub type Neighbours = Result<Vec<UnitInfo>, String>;

/// A permission of [`Allowed`] that a command after a run may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// [`Allowed::unproven`].
    Unproven,
    /// [`Allowed::clone_identity`].
    CloneIdentity,
    /// [`Allowed::other_line`].
    OtherLine,
}

/// Decision about a unit. A unit that is refused was not written. A refusal with a variant of its own leaves the user
/// another way. A unit whose disk is in use is refused by its port.
#[derive(Debug)]
pub enum Decision {
    /// The unit is written, on these terms.
    Write(Terms),
    /// The unit already holds the whole plan.
    Unchanged,
    /// Refused: the unit can't be backed up.
    NoBackup(Failure),
    /// Refused: the unit would get the known or neutral blocks although a backup, or one that can't be read, may have its
    /// own, and nobody can be asked.
    OwnBackup(Failure),
    /// Refused: the unit would get the identity of the unit that the backup is of.
    OthersBackup(Failure),
    /// Refused for another reason.
    Refused(Failure),
}

/// Terms of a write: what the user must know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// Reasons that the write is unproven, in words: it needs [`Permission::Unproven`].
    pub unproven: Vec<Cow<'static, str>>,
    /// The identity that the unit takes from another unit.
    pub cloned: Option<Cloned>,
    /// Other units with the serial number that this unit keeps.
    pub twins: Vec<String>,
    /// The backups that may have the unit's own identity, although it gets the known or a neutral one.
    pub own_backups: Vec<FittingBackup>,
    /// What may be backups and can't be read, although the unit gets the known or a neutral identity.
    pub unread: Vec<UnreadBackup>,
    /// Why it is not known whether another connected unit has this unit's serial number.
    pub unknown_neighbours: Option<String>,
    /// The change of the version's line: from the first to the second.
    pub other_line: Option<(FirmwareVersion, FirmwareVersion)>,
}

/// Decides about every unit of a run. `connected` are the units on this machine's buses that are not part of it.
pub fn decide(units: &[&Examined], subject: &NewFirmware, allowed: Allowed, connected: &Neighbours) -> Vec<Decision> {
    let others = |at| Others { units, at, connected };
    units.iter().enumerate().map(|(at, unit)| unit.decide(subject, allowed, &others(at))).collect()
}

/// All units but the one at index `at`.
struct Others<'a> {
    units: &'a [&'a Examined],
    at: usize,
    connected: &'a Neighbours,
}

impl Others<'_> {
    /// The ports of the units whose identity fits `is_such` and, if `planned` is set, of those whose planned one does.
    fn with(&self, planned: bool, is_such: impl Fn(UnitIdentity) -> bool) -> Vec<String> {
        let mut devices = Vec::new();
        for (at, unit) in self.units.iter().enumerate() {
            if at != self.at && (is_such(unit.own()) || (planned && is_such(unit.planned()))) {
                devices.push(unit.seen.attached.location.to_string());
            }
        }
        devices
    }

    fn with_serial(&self, serial: &str, planned: bool) -> Vec<String> {
        let mut same = self.with(planned, |identity| identity.serial.as_deref() == Some(serial));
        // A unit on this machine's buses can't be a virtual unit's twin.
        if let Ok(connected) = self.connected
            && self.units.get(self.at).is_some_and(|unit| !unit.seen.attached.location.is_virtual())
        {
            let connected = connected.iter().filter(|other| other.serial() == serial);
            same.extend(connected.map(|other| other.location.to_string()));
        }
        same
    }

    fn with_usb4(&self, identity: &UnitIdentity, planned: bool) -> Vec<String> {
        self.with(planned, |other| identity.shares_usb4_with(&other))
    }

    /// Whether any has a part of this identity. Another unit's plan counts only if it is carried out despite being a
    /// clone.
    fn have(&self, identity: &UnitIdentity, allowed: Allowed) -> bool {
        let planned = allowed.clone_identity;
        identity.serial.as_deref().is_some_and(|serial| !self.with_serial(serial, planned).is_empty())
            || !self.with_usb4(identity, planned).is_empty()
    }
}

impl Examined {
    /// What was seen on a unit, and what would be written, before its backups are known.
    pub const fn new(seen: Observation, plan: FlashPlan) -> Self {
        Self { seen, plan, backups: Vec::new(), unread: Vec::new(), flashed: None }
    }

    /// The unit's current identity. The boot loader returns no block, but shows block 0's serial number.
    pub(super) fn own(&self) -> UnitIdentity {
        match self.seen.attached.state {
            BridgeState::BootLoader => UnitIdentity::shown(self.seen.attached.serial()),
            _ => UnitIdentity::of(self.plan.blocks.each_ref().map(|block| block.current.as_ref())),
        }
    }

    /// The identity that the unit would get.
    fn planned(&self) -> UnitIdentity {
        self.plan.planned_identity()
    }

    fn decide(&self, subject: &NewFirmware, allowed: Allowed, others: &Others<'_>) -> Decision {
        let seen = &self.seen;
        let device = seen.attached.location.to_string();
        let refusal = |label: Label, why: String| Failure::new(label, format!("{device}: {why}"));
        // No option permits this: another chip takes the same commands, and has another boot loader.
        let ids = [Some(seen.attached.id), self.plan.usb_id];
        if let Some(chip) = ids.into_iter().flatten().find_map(OtherChip::with) {
            let label = Kind::Refused.code("asmpatch::flash::other_chip");
            return Decision::Refused(refusal(label, chip.refusal()));
        }
        // No command could write the unit again while it runs this image.
        if let Rewritable::No(failed) = &subject.proof.rewritable {
            let label = Kind::Refused.code("asmpatch::flash::not_rewritable");
            let why = format!("the image fails this check on a model of the chip: {failed}");
            return Decision::Refused(refusal(label, why));
        }
        if !allowed.force && self.is_there_already(subject) {
            return Decision::Unchanged;
        }
        let unproven = self.unproven(subject);
        if !unproven.is_empty() && !allowed.unproven {
            let label = Kind::Refused.code("asmpatch::flash::unproven");
            return Decision::Refused(refusal(label, unproven.join("; ")));
        }
        // These two refusals come before the one for a missing backup: the command in its help must change neither the
        // identity nor the line unasked.
        let cloned = self.cloned(subject, others);
        if let Some(what @ Cloned::OtherSerial { .. }) = &cloned
            && seen.attached.state == BridgeState::BootLoader
            && !allowed.clone_identity
        {
            let label = Kind::Refused.code("asmpatch::flash::other_backup");
            return Decision::OthersBackup(refusal(label, format!("the unit would get {what}")));
        }
        let other_line = self.other_line();
        if let Some((from, to)) = other_line
            && (allowed.unasked || from.line()[0] != to.line()[0])
            && !allowed.other_line
        {
            let label = Kind::Refused.code("asmpatch::flash::other_line");
            return Decision::Refused(refusal(label, format!("the version's line changes from {from} to {to}")));
        }
        if !allowed.no_backup && !is_readable(seen.attached.state) {
            let label = Kind::Refused.code("asmpatch::flash::no_backup");
            let why = format!("the unit runs its {}, so asmpatch can't back it up", seen.attached.state);
            return Decision::NoBackup(refusal(label, why));
        }
        let own_backups = if allowed.clone_identity { Vec::new() } else { self.own_backups() };
        if let Some(backup) = own_backups.first()
            && allowed.unasked
        {
            let label = Kind::Refused.code("asmpatch::flash::own_backup");
            let folder = backup.filed.folder.display();
            let why = format!("the unit would get an identity that is not its own, although {folder} may have that");
            return Decision::OwnBackup(refusal(label, why));
        }
        let unread = if allowed.clone_identity || !self.stands_in() { Vec::new() } else { self.unread.clone() };
        if let Some(backup) = unread.first()
            && allowed.unasked
        {
            let label = Kind::Refused.code("asmpatch::flash::unread_backup");
            let why = "the unit would get an identity that is not its own, and one that can't be read may have that";
            return Decision::OwnBackup(refusal(label, format!("{why}: {}", backup.folder.display())));
        }
        if let Some(what) = &cloned
            && !allowed.clone_identity
        {
            let label = Kind::Refused.code("asmpatch::flash::clone");
            let failure = refusal(label, format!("the unit would get {what}"));
            return match what {
                Cloned::OtherSerial { .. } | Cloned::OtherUsb4 => Decision::OthersBackup(failure),
                Cloned::SharedSerial { .. } | Cloned::SharedUsb4(_) => Decision::Refused(failure),
            };
        }
        let unknown_neighbours = match others.connected {
            Err(why) if !seen.attached.location.is_virtual() => Some(why.clone()),
            _ => None,
        };
        if let Some(why) = &unknown_neighbours
            && allowed.unasked
            && !allowed.clone_identity
        {
            let label = Kind::Refused.code("asmpatch::flash::neighbours");
            let why = format!("couldn't check whether another unit has the same serial number: {why}");
            return Decision::Refused(refusal(label, why));
        }
        let twins = match (&cloned, self.planned().serial) {
            (None, Some(serial)) => others.with_serial(&serial, allowed.clone_identity),
            _ => Vec::new(),
        };
        Decision::Write(Terms { unproven, cloned, twins, own_backups, unread, unknown_neighbours, other_line })
    }

    /// Whether the unit would get a known or a neutral block.
    fn stands_in(&self) -> bool {
        self.plan.blocks.iter().any(|block| block.source.stands_in())
    }

    /// The backups with an identity that the unit would lose to that of the known or neutral blocks.
    fn own_backups(&self) -> Vec<FittingBackup> {
        if !self.stands_in() {
            return Vec::new();
        }
        self.backups.iter().filter(|backup| backup.has_identity).cloned().collect()
    }

    /// Whether flash and blocks match the plan, and the unit's behaviour does not contradict it.
    fn is_there_already(&self, subject: &NewFirmware) -> bool {
        let Self { seen, plan, .. } = self;
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
        has_serial && !seen.running.contradicts(subject.firmware())
    }

    fn unproven(&self, subject: &NewFirmware) -> Vec<Cow<'static, str>> {
        let is_virtual = self.seen.attached.location.is_virtual();
        let mut why = subject.proof.unproven(is_virtual);
        let is_not_tried = "so nobody has said that it works on silicon; on the chip model it boots and takes firmware \
                            again";
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

    /// Returns what the plan would copy of another unit's identity, if anything. A unit may keep its own identity. A
    /// unit whose identity can't be read must not get another unit's either.
    fn cloned(&self, subject: &NewFirmware, others: &Others<'_>) -> Option<Cloned> {
        let [zero, one] = &self.plan.blocks;
        let (own, planned) = (self.own(), self.planned());
        // An identity that the user gives, or that the unit has, belongs to no other unit.
        let mut from_backup = planned.clone();
        if zero.source != BlockSource::Backup || subject.serial_given {
            from_backup.serial = None;
        }
        if one.source != BlockSource::Backup {
            from_backup.usb4 = None;
        }
        if let Some(taken) = own.taken_by(&from_backup) {
            return Some(taken);
        }
        if let Some(serial) = &planned.serial
            && planned.serial != own.serial
        {
            let devices = others.with_serial(serial, true);
            if !devices.is_empty() {
                return Some(Cloned::SharedSerial { serial: serial.clone(), devices });
            }
        }
        if planned.usb4 != own.usb4 {
            let devices = others.with_usb4(&planned, true);
            if !devices.is_empty() {
                return Some(Cloned::SharedUsb4(devices));
            }
        }
        None
    }

    /// Returns the change of the version's line, if there is one. The boot loader and open firmware report no version:
    /// then the unit's backups show which lines its board has run.
    fn other_line(&self) -> Option<(FirmwareVersion, FirmwareVersion)> {
        let ran = match self.seen.running.version {
            Some(running) => vec![running],
            None => versions_run(&self.backups),
        };
        line_change(&ran, self.plan.version?)
    }
}

/// Returns the change from the first of the versions `ran` to `to`, if none of them is of the line of `to`. A version's
/// last three bytes are its line: the chip maker's own, or a dock maker's. The practice image has no line.
pub fn line_change(ran: &[FirmwareVersion], to: FirmwareVersion) -> Option<(FirmwareVersion, FirmwareVersion)> {
    let practice = practice::image().version();
    let from = ran.iter().copied().find(|version| *version != practice)?;
    let is_other = to != practice && ran.iter().all(|version| version.line() != to.line());
    is_other.then_some((from, to))
}

/// What the commands after a run need for one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaterCommands {
    /// The permissions that the command needs to be run again.
    pub again: Vec<Permission>,
    /// The serial number that the run chose for the unit, with which the command is run again.
    pub serial: Option<ChosenSerial>,
    /// The permissions that writing this run's backup back needs; `None` if that would be refused anyway.
    pub back: Option<Vec<Permission>>,
}

/// Returns what the commands after this one need for unit `at`.
pub fn later_commands(units: &[&Examined], at: usize, allowed: Allowed, connected: &Neighbours) -> LaterCommands {
    let Some(unit) = units.get(at) else { return LaterCommands::default() };
    let others = Others { units, at, connected };
    let other_line = unit.other_line().is_some();
    let clones = allowed.clone_identity || others.have(&unit.planned(), allowed);
    let again = permissions(allowed.unproven, clones, allowed.other_line || other_line);
    let back = match unit.flashed.as_deref() {
        Some(Proof { rewritable: Rewritable::No(_), .. }) => None,
        flashed => {
            let is_virtual = unit.seen.attached.location.is_virtual();
            let unproven = flashed.is_none_or(|proof| !proof.unproven(is_virtual).is_empty());
            let own = unit.own();
            let clones = unit.planned().taken_by(&own).is_some() || others.have(&own, allowed);
            Some(permissions(unproven, clones, other_line))
        }
    };
    LaterCommands { again, serial: unit.plan.chosen_serial.clone(), back }
}

/// The permissions that are needed, in the order in which commands have them.
pub(super) fn permissions(unproven: bool, clone_identity: bool, other_line: bool) -> Vec<Permission> {
    let mut needed = Vec::new();
    if unproven {
        needed.push(Permission::Unproven);
    }
    if clone_identity {
        needed.push(Permission::CloneIdentity);
    }
    if other_line {
        needed.push(Permission::OtherLine);
    }
    needed
}

#[cfg(test)]
pub(super) mod samples {
    //! Configuration blocks for tests.

    use asm2464::firmware::{ConfigField, known_blocks};
    use asm2464::flash::BlockBytes;

    pub(in crate::flash) fn block_zero(serial: &str) -> BlockBytes {
        let [mut block, _] = known_blocks();
        block.set_stock_identity().unwrap();
        block.set_text(ConfigField::Serial, serial).unwrap();
        *block.bytes()
    }

    /// Builds a block 1 with its own USB4 identity and a correct checksum.
    pub(in crate::flash) fn block_one(byte: u8) -> BlockBytes {
        let mut bytes = *known_blocks()[1].bytes();
        bytes[0x5A] = byte;
        bytes[0x7F] = bytes[0x04..=0x7E].iter().fold(0, |sum, byte| sum.wrapping_add(*byte));
        bytes
    }
}

#[cfg(test)]
mod tests;
