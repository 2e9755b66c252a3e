//! What a run knows of each unit before it decides: what was seen, what would be written, and which backups may matter.

use std::sync::Arc;

use asm2464::firmware::BridgeState;
use asm2464_host::bridge::UnitInfo;

use super::backup::BackedUpUnit;
use super::backup_folder::UnreadBackup;
use super::fitting::FittingBackup;
use super::identity::UnitIdentity;
use super::observe::Observation;
use super::plan::FlashPlan;
use crate::image::{Firmware, Proof};

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
    /// What is written with the blocks, or the firmware, of backups of these units.
    pub fn of<'a>(
        proof: Arc<Proof>,
        unknown: Option<UnknownImage>,
        units: impl IntoIterator<Item = &'a BackedUpUnit>,
        serial_given: bool,
    ) -> Self {
        let from_virtual = units.into_iter().any(BackedUpUnit::is_virtual);
        Self { proof, unknown, from_virtual, serial_given }
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
}

/// The units on this machine's buses that are not part of a run, or why the system could not list them.
pub type Neighbours = Result<Vec<UnitInfo>, String>;

impl Examined {
    /// What was seen on a unit, and what would be written, before its backups are known.
    pub const fn new(seen: Observation, plan: FlashPlan) -> Self {
        Self { seen, plan, backups: Vec::new(), unread: Vec::new() }
    }

    /// The unit's current identity. The boot loader returns no block, but shows block 0's serial number.
    pub(super) fn own(&self) -> UnitIdentity {
        match self.seen.attached.state {
            BridgeState::BootLoader => UnitIdentity::shown_by(&self.seen.attached),
            _ => UnitIdentity::of(self.plan.blocks.each_ref().map(|block| block.current.as_ref())),
        }
    }

    /// The identity that the unit would get.
    pub(super) fn planned(&self) -> UnitIdentity {
        self.plan.planned_identity()
    }
}
