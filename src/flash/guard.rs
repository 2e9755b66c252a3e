//! What is refused before anything is written. A unit whose disk is in use is refused by its port.

use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

use super::decide::Unproven;
use super::identity::Cloned;
use crate::firmware::{BridgeState, FirmwareVersion, UsbId};

/// Why a unit is not written. Nothing was.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum Refusal {
    /// Several units, and not all of them are meant.
    #[error("{} units are named: {}", devices.len(), devices.join(", "))]
    #[diagnostic(code(asmpatch::flash::several))]
    SeveralUnits {
        /// Their ports.
        devices: Vec<String>,
    },
    /// The unit can't be backed up.
    #[error("{device}: the unit runs its {state}, which gives no backup")]
    #[diagnostic(code(asmpatch::flash::no_backup))]
    NoBackup {
        /// The port.
        device: String,
        /// What runs on it.
        state: BridgeState,
    },
    /// The image would be the last one that the unit ever takes.
    #[error("{device}: the image fails on a model of the chip, where it {failed}")]
    #[diagnostic(code(asmpatch::flash::not_rewritable))]
    NotRewritable {
        /// The port.
        device: String,
        /// What it fails at, and how.
        failed: String,
    },
    /// Nobody has seen it work.
    #[error("{device}: {}", why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    #[diagnostic(code(asmpatch::flash::unproven))]
    Unproven {
        /// The port.
        device: String,
        /// Why not.
        why: Vec<Unproven>,
    },
    /// Another unit's identity.
    #[error("{device}: the unit would get {what}")]
    #[diagnostic(code(asmpatch::flash::clone))]
    Clone {
        /// The port.
        device: String,
        /// What it would get.
        what: Cloned,
    },
    /// Another line of the vendor's versions, and nobody is asked.
    #[error("{device}: the version's line changes from {from} to {to}")]
    #[diagnostic(code(asmpatch::flash::other_line))]
    OtherLine {
        /// The port.
        device: String,
        /// What it runs.
        from: FirmwareVersion,
        /// What it would run.
        to: FirmwareVersion,
    },
    /// It would come back under an ID that is not looked for.
    #[error("{device}: the unit would come back as {id}, which is not known as an ASM2464PD unit's USB ID")]
    #[diagnostic(code(asmpatch::flash::unlisted_id))]
    UnlistedId {
        /// The port.
        device: String,
        /// The ID.
        id: UsbId,
    },
    /// Another unit was refused.
    #[error("{device}: not written, because {because} is not")]
    #[diagnostic(code(asmpatch::flash::all_or_none))]
    AllOrNone {
        /// The port.
        device: String,
        /// The units that are refused.
        because: String,
    },
    /// An image that nothing vouches for.
    #[error("{}: {why}", file.display())]
    #[diagnostic(code(asmpatch::flash::unverified))]
    Unverified {
        /// The image.
        file: PathBuf,
        /// Why it does not count as verified.
        why: String,
    },
    /// Nobody there to ask.
    #[error("there is no terminal to ask on")]
    #[diagnostic(code(asmpatch::flash::not_asked))]
    NotAsked,
    /// The answer was no.
    #[error("not confirmed")]
    #[diagnostic(code(asmpatch::flash::declined))]
    Declined,
}
