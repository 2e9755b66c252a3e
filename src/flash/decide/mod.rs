//! Decides whether a unit is written: compares its observed state with its plan and the user's permissions. Pure.

use std::borrow::Cow;

use asm2464::firmware::{BridgeState, FirmwareVersion};
use asm2464::{Failure, Kind, Label};
use asm2464_host::bridge::UnitInfo;

use super::backup_folder::UnreadBackup;
use super::consent::{Allowed, Waiver};
use super::examined::{Examined, Neighbours, NewFirmware};
use super::fitting::FittingBackup;
use super::identity::Cloned;
use super::needs::{Loss, Needs, Others, needs};

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
    /// Refused: the unit would lose for good what no backup has, and nobody can be asked.
    Lost(Failure),
    /// Refused: the unit would get the identity of the unit that the backup is of.
    OthersBackup(Failure),
    /// Refused for another reason.
    Refused(Failure),
}

/// Terms of a write: what the user must know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// Reasons that the write is unproven, in words: it needs [`Permission::Unproven`](super::consent::Permission::Unproven).
    pub unproven: Vec<Cow<'static, str>>,
    /// What the unit takes from other units.
    pub cloned: Vec<Cloned>,
    /// What the unit loses for good.
    pub loss: Loss,
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
    let needs = |at: usize, unit: &Examined| needs(unit, subject, Others { units, at, connected });
    let decided = units.iter().enumerate().map(|(at, unit)| needs(at, unit).decide(&unit.seen.attached, allowed));
    decided.collect()
}

impl Needs {
    /// Decides about the unit that has these needs.
    fn decide(self, unit: &UnitInfo, allowed: Allowed) -> Decision {
        let refusal = |label: Label, why: String| Failure::new(label, format!("{}: {why}", unit.location));
        let waived = allowed.clone_identity;
        if let Some(failure) = self.cannot {
            return Decision::Refused(failure);
        }
        if !allowed.force && self.unchanged {
            return Decision::Unchanged;
        }
        if !self.unproven.is_empty() && !allowed.unproven {
            let label = Kind::Refused.code("asmpatch::flash::unproven");
            return Decision::Refused(refusal(label, self.unproven.join("; ")));
        }
        // These two refusals come before the one for a missing backup: the command in its help must change neither the
        // identity nor the line unasked.
        let foreign = self.foreign.iter().find(|cloned| !waived.has(cloned.waiver()));
        if let Some(what @ Cloned::OtherSerial { .. }) = foreign
            && unit.state == BridgeState::BootLoader
        {
            let label = Kind::Refused.code("asmpatch::flash::other_backup");
            return Decision::OthersBackup(refusal(label, format!("the unit would get {what}")));
        }
        if let Some((from, to)) = self.line
            && (allowed.unasked || from.line()[0] != to.line()[0])
            && !allowed.other_line
        {
            let label = Kind::Refused.code("asmpatch::flash::other_line");
            return Decision::Refused(refusal(label, format!("the version's line changes from {from} to {to}")));
        }
        if !allowed.no_backup && self.unreadable {
            let label = Kind::Refused.code("asmpatch::flash::no_backup");
            let why = format!("the unit runs its {}, so asmpatch can't back it up", unit.state);
            return Decision::NoBackup(refusal(label, why));
        }
        let own_backups = if waived.has(Waiver::OwnBackup) { Vec::new() } else { self.own };
        if let Some(backup) = own_backups.first()
            && allowed.unasked
        {
            let label = Kind::Refused.code("asmpatch::flash::own_backup");
            let folder = backup.filed.folder.display();
            let why = format!("the unit would get an identity that is not its own, although {folder} may have that");
            return Decision::OwnBackup(refusal(label, why));
        }
        let unread = if waived.has(Waiver::OwnBackup) { Vec::new() } else { self.unread };
        if let Some(backup) = unread.first()
            && allowed.unasked
        {
            let label = Kind::Refused.code("asmpatch::flash::unread_backup");
            let why = "the unit would get an identity that is not its own, and one that can't be read may have that";
            return Decision::OwnBackup(refusal(label, format!("{why}: {}", backup.folder.display())));
        }
        if allowed.unasked && self.loss.waivers().any(|waiver| !waived.has(waiver)) {
            let label = Kind::Refused.code("asmpatch::flash::loss");
            return Decision::Lost(refusal(label, self.loss.words().join("; ")));
        }
        if let Some(what) = foreign {
            let label = Kind::Refused.code("asmpatch::flash::clone");
            let failure = refusal(label, format!("the unit would get {what}"));
            return match what {
                Cloned::OtherSerial { .. } | Cloned::OtherUsb4 => Decision::OthersBackup(failure),
                Cloned::SharedSerial { .. } | Cloned::SharedUsb4(_) => Decision::Refused(failure),
            };
        }
        if let Some(why) = &self.neighbours
            && allowed.unasked
            && !waived.has(Waiver::Neighbours)
        {
            let label = Kind::Refused.code("asmpatch::flash::neighbours");
            let why = format!("couldn't check whether another unit has the same serial number: {why}");
            return Decision::Refused(refusal(label, why));
        }
        // Another unit's plan counts only if it is carried out despite being a clone.
        let twins = if waived.has(Waiver::Serial) { self.planned_twins } else { self.twins };
        Decision::Write(Terms {
            unproven: self.unproven,
            cloned: self.foreign,
            loss: self.loss,
            twins,
            own_backups,
            unread,
            unknown_neighbours: self.neighbours,
            other_line: self.line,
        })
    }
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
