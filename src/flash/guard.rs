//! Refusals before anything is written. A unit whose disk is in use is refused by its port.

use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

use super::decide::Unproven;
use super::identity::Cloned;
use crate::firmware::{BridgeState, FirmwareVersion, UsbId};

/// Reasons a unit is not written. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum Refusal {
    /// There are several units, at these ports, and the user did not ask for all of them.
    #[error("{} units are named: {}", .0.len(), .0.join(", "))]
    #[diagnostic(code(asmpatch::flash::several))]
    SeveralUnits(Vec<String>),
    /// The unit can't be backed up.
    #[error("{device}: the unit runs its {state}, which gives no backup")]
    #[diagnostic(code(asmpatch::flash::no_backup))]
    NoBackup {
        /// The port.
        device: String,
        /// The unit's state.
        state: BridgeState,
    },
    /// The unit could never be written again with this image.
    #[error("{device}: the image fails on a model of the chip, where it {failed}")]
    #[diagnostic(code(asmpatch::flash::not_rewritable))]
    NotRewritable {
        /// The port.
        device: String,
        /// The failed check and its fault.
        failed: String,
    },
    /// Nobody has seen the write's content work.
    #[error("{device}: {}", why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    #[diagnostic(code(asmpatch::flash::unproven))]
    Unproven {
        /// The port.
        device: String,
        /// The reasons.
        why: Vec<Unproven>,
    },
    /// The unit would get another unit's identity.
    #[error("{device}: the unit would get {what}")]
    #[diagnostic(code(asmpatch::flash::clone))]
    Clone {
        /// The port.
        device: String,
        /// The identity that it would get.
        what: Cloned,
    },
    /// The version's line would change, and nobody can be asked.
    #[error("{device}: the version's line changes from {from} to {to}")]
    #[diagnostic(code(asmpatch::flash::other_line))]
    OtherLine {
        /// The port.
        device: String,
        /// The unit's version.
        from: FirmwareVersion,
        /// The image's version.
        to: FirmwareVersion,
    },
    /// The unit would come back under an ID that is not known.
    #[error("{device}: the unit would come back as {id}, which is not known as an ASM2464PD unit's USB ID")]
    #[diagnostic(code(asmpatch::flash::unlisted_id))]
    UnlistedId {
        /// The port.
        device: String,
        /// The ID.
        id: UsbId,
    },
    /// Another unit was refused, and `--all-or-none` is set.
    #[error("{device}: not written, because {because} is not")]
    #[diagnostic(code(asmpatch::flash::all_or_none))]
    AllOrNone {
        /// The port.
        device: String,
        /// The refused units.
        because: String,
    },
    /// The image is not verified.
    #[error("{}: {why}", file.display())]
    #[diagnostic(code(asmpatch::flash::unverified))]
    Unverified {
        /// The image.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// Nobody can be asked.
    #[error("there is no terminal to ask on")]
    #[diagnostic(code(asmpatch::flash::not_asked))]
    NotAsked,
    /// The user answered no.
    #[error("not confirmed")]
    #[diagnostic(code(asmpatch::flash::declined))]
    Declined,
}
