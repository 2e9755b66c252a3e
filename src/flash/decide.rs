//! Whether a unit is written: what is observed of it, held against its plan and what the user allows. Pure.

use std::fmt;

use super::firmware_kind::{Firmware, Rewritable};
use super::guard::Refusal;
use super::identity::{Cloned, UnitIdentity};
use super::observe::Observation;
use super::plan::{BlockSource, FlashPlan, is_readable};
use crate::firmware::{BlockIndex, ConfigBlock, ConfigField, FirmwareVersion};
use crate::patch::Library;
use crate::practice;

/// What is to be written, as far as it is the same for every unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The image.
    pub firmware: Firmware,
    /// Whether a unit that runs it can be written again.
    pub rewritable: Rewritable,
    /// The firmware or the blocks come from a virtual unit's backup.
    pub from_virtual: bool,
    /// The user names the serial number.
    pub serial_given: bool,
}

/// What the user allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// To write a unit that gives no backup.
    pub no_backup: bool,
    /// To write what nobody has seen work.
    pub unproven: bool,
    /// To give a unit another unit's identity.
    pub clone_identity: bool,
    /// To change the line of the version.
    pub other_line: bool,
    /// To write what is there already.
    pub force: bool,
    /// Nobody is asked: what needs a question of its own is refused.
    pub unasked: bool,
}

/// A unit of this run.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// What is seen of it.
    pub seen: &'a Observation,
    /// What would be written.
    pub plan: &'a FlashPlan,
}

/// A unit on the bus that is not of this run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Its port.
    pub device: String,
    /// Its serial number, by its descriptors.
    pub serial: String,
}

/// Why something may be written only with `--unproven`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unproven {
    /// Its code can't be executed.
    NotExecuted,
    /// It is the practice image, and the port is real.
    Practice,
    /// It comes from a virtual unit, and the port is real.
    VirtualBackup,
}

impl fmt::Display for Unproven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotExecuted => {
                "the image does not boot on the chip model, which may not know enough of its version: that the unit would \
                 take firmware again is not proven"
            }
            Self::Practice => {
                "the practice image has never run on silicon, and a real chip would not enumerate with it"
            }
            Self::VirtualBackup => "this is a virtual unit's backup: its content has never run on silicon",
        })
    }
}

/// What is decided of a unit.
#[derive(Debug)]
pub enum Decision {
    /// It is written.
    Write(Terms),
    /// It holds all of the plan already.
    Nothing,
    /// It is not written, and why.
    Refused(Refusal),
}

/// On what terms a unit is written: what the user must know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// What nobody has seen work.
    pub unproven: Vec<Unproven>,
    /// The unit gets another's identity.
    pub cloned: Option<Cloned>,
    /// Units that have its serial number too, which it keeps.
    pub twins: Vec<String>,
    /// The version's line changes, from the first to the second.
    pub other_line: Option<(FirmwareVersion, FirmwareVersion)>,
}

/// Decides of every unit of a run. `connected` are the units on this machine's buses that are not of it.
pub fn decide(units: &[Candidate<'_>], subject: &Subject, allowed: Allowed, connected: &[Neighbour]) -> Vec<Decision> {
    let decide_one = |(at, unit): (usize, &Candidate<'_>)| {
        let others = Others { units, at, connected };
        unit.decide(subject, allowed, &others).unwrap_or_else(Decision::Refused)
    };
    units.iter().enumerate().map(decide_one).collect()
}

/// Every unit but one.
struct Others<'a> {
    units: &'a [Candidate<'a>],
    at: usize,
    connected: &'a [Neighbour],
}

impl Others<'_> {
    fn candidates(&self) -> impl Iterator<Item = &Candidate<'_>> {
        self.units.iter().enumerate().filter(|(at, _)| *at != self.at).map(|(_, unit)| unit)
    }

    /// The ports of those that have this serial number, and, where `planned` counts, of those that would have it.
    fn with_serial(&self, serial: &str, planned: bool) -> Vec<String> {
        let has = |identity: UnitIdentity| identity.serial.as_deref() == Some(serial);
        let same = self.candidates().filter(|unit| has(unit.own()) || (planned && has(unit.planned())));
        let same = same.map(|unit| unit.seen.device.clone());
        // What is on this machine's buses is no twin of a unit in software.
        let is_real = self.units.get(self.at).is_some_and(|unit| !unit.seen.is_virtual());
        let connected = self.connected.iter().filter(|other| is_real && other.serial == serial);
        same.chain(connected.map(|other| other.device.clone())).collect()
    }

    fn with_usb4(&self, identity: &UnitIdentity, planned: bool) -> Vec<String> {
        let has = |other: UnitIdentity| identity.shares_usb4_with(&other);
        let same = self.candidates().filter(|unit| has(unit.own()) || (planned && has(unit.planned())));
        same.map(|unit| unit.seen.device.clone()).collect()
    }
}

impl Candidate<'_> {
    /// The identity that it has.
    fn own(&self) -> UnitIdentity {
        UnitIdentity::of(self.plan.blocks.each_ref().map(|block| block.current.as_ref()))
    }

    /// The identity that it would have.
    fn planned(&self) -> UnitIdentity {
        UnitIdentity::of(self.plan.blocks.each_ref().map(|block| Some(&block.new)))
    }

    fn decide(&self, subject: &Subject, allowed: Allowed, others: &Others<'_>) -> Result<Decision, Refusal> {
        let seen = self.seen;
        let device = || seen.device.clone();
        if let Rewritable::No(failed) = &subject.rewritable {
            return Err(Refusal::NotRewritable { device: device(), failed: failed.clone() });
        }
        if !allowed.force && self.is_there_already(subject) {
            return Ok(Decision::Nothing);
        }
        let unproven = self.unproven(subject);
        if !unproven.is_empty() && !allowed.unproven {
            return Err(Refusal::Unproven { device: device(), why: unproven });
        }
        if !allowed.no_backup && !is_readable(seen.attached.state) {
            return Err(Refusal::NoBackup { device: device(), state: seen.attached.state });
        }
        let cloned = self.cloned(subject, others);
        if let Some(what) = &cloned
            && !allowed.clone_identity
        {
            return Err(Refusal::Clone { device: device(), what: what.clone() });
        }
        let other_line = self.other_line();
        if let Some((from, to)) = other_line
            && allowed.unasked
            && !allowed.other_line
        {
            return Err(Refusal::OtherLine { device: device(), from, to });
        }
        let twins = match (&cloned, self.planned().serial) {
            (None, Some(serial)) => others.with_serial(&serial, allowed.clone_identity),
            _ => Vec::new(),
        };
        Ok(Decision::Write(Terms { unproven, cloned, twins, other_line }))
    }

    /// Whether flash and blocks are the plan's, and nothing that the unit shows says otherwise.
    fn is_there_already(&self, subject: &Subject) -> bool {
        let Self { seen, plan } = self;
        let Some(parts) = &seen.running.parts else { return false };
        let holds = plan.parts().all(|(part, bytes)| {
            let [one, two] = parts;
            let found = if part == crate::firmware::Part::One { one } else { two };
            found.starts_with(bytes)
        });
        // Without a block that holds, the chip gives itself a serial number.
        let serial = ConfigBlock::parse(BlockIndex::Zero, &plan.blocks[0].new).ok();
        let serial = serial.map(|block| block.text(ConfigField::Serial));
        let found = &seen.attached.serial;
        plan.is_identity_of(&seen.attached)
            && holds
            && plan.blocks.iter().all(|block| !block.differs())
            && match &plan.open {
                // Its descriptors are its own, whatever the configuration says.
                Some(open) => seen.attached.product == open.product,
                None => {
                    (found.is_empty() || serial.is_none_or(|serial| serial == *found))
                        && !seen.running.contradicts(&subject.firmware)
                }
            }
    }

    fn unproven(&self, subject: &Subject) -> Vec<Unproven> {
        let real = !self.seen.is_virtual();
        let mut why = Vec::new();
        let mut add = |holds: bool, reason| why.extend(holds.then_some(reason));
        add(subject.rewritable == Rewritable::Unknown, Unproven::NotExecuted);
        add(real && subject.firmware.is_practice(), Unproven::Practice);
        add(real && subject.from_virtual, Unproven::VirtualBackup);
        why
    }

    /// What makes the plan a clone. A unit that keeps what it has is none, and one whose identity can't be read has
    /// nothing to lose, but must not become the twin of another.
    fn cloned(&self, subject: &Subject, others: &Others<'_>) -> Option<Cloned> {
        let [zero, one] = &self.plan.blocks;
        let (own, planned) = (self.own(), self.planned());
        // What the user gives, or the unit has, is nobody else's.
        let from_backup = UnitIdentity {
            serial: planned.serial.clone().filter(|_| zero.source == BlockSource::Backup && !subject.serial_given),
            usb4: planned.usb4.filter(|_| one.source == BlockSource::Backup),
        };
        if let Some(taken) = own.taken_by(&from_backup) {
            return Some(taken);
        }
        if let Some(serial) = planned.serial.as_ref().filter(|serial| own.serial.as_ref() != Some(serial)) {
            let devices = others.with_serial(serial, true);
            if !devices.is_empty() {
                return Some(Cloned::SharedSerial { serial: serial.clone(), devices });
            }
        }
        if planned.usb4 != own.usb4 {
            let devices = others.with_usb4(&planned, true);
            if !devices.is_empty() {
                return Some(Cloned::SharedUsb4 { devices });
            }
        }
        None
    }

    /// The version's last bytes name the line: the chip maker's own, or an enclosure maker's. The practice image has
    /// none.
    fn other_line(&self) -> Option<(FirmwareVersion, FirmwareVersion)> {
        let practice = practice::image().version();
        let (from, to) = (self.seen.running.version?, self.plan.version?);
        (from != practice && to != practice && from.line() != to.line()).then_some((from, to))
    }
}

/// The options that the commands after a run need, so that they are not refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// Those of the same command, run again.
    pub again: Vec<&'static str>,
    /// Those of `restore` with the backup that the run takes; `None` where it would be refused all the same.
    pub back: Option<Vec<&'static str>>,
}

/// What the commands after the run of unit `at` need.
pub fn carried(
    units: &[Candidate<'_>],
    at: usize,
    allowed: Allowed,
    connected: &[Neighbour],
    library: &Library,
) -> Carried {
    let Some(unit) = units.get(at) else { return Carried::default() };
    let others = Others { units, at, connected };
    let (own, planned) = (unit.own(), unit.planned());
    let has_twins = |identity: &UnitIdentity| {
        // Another unit's plan counts only where it is carried out although it is a clone.
        let planned = allowed.clone_identity;
        identity.serial.as_deref().is_some_and(|serial| !others.with_serial(serial, planned).is_empty())
            || !others.with_usb4(identity, planned).is_empty()
    };
    let other_line = unit.other_line().is_some();
    let options = |unproven, clone_identity, other_line| {
        let all = [("--unproven", unproven), ("--clone-identity", clone_identity), ("--other-line", other_line)];
        all.into_iter().filter(|(_, needed)| *needed).map(|(option, _)| option).collect::<Vec<_>>()
    };
    let again =
        options(allowed.unproven, allowed.clone_identity || has_twins(&planned), allowed.other_line || other_line);
    let image = unit.seen.running.image();
    let unproven = match image.as_ref().map(Rewritable::of) {
        Some(Rewritable::No(_)) => return Carried { again, back: None },
        Some(Rewritable::Yes) => false,
        Some(Rewritable::Unknown) | None => true,
    };
    let practice = image.is_some_and(|image| Firmware::of(&image, library).is_practice()) && !unit.seen.is_virtual();
    let back = options(unproven || practice, planned.taken_by(&own).is_some() || has_twins(&own), other_line);
    Carried { again, back: Some(back) }
}

#[cfg(test)]
mod tests;
