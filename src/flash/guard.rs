//! What is refused before anything is written. A unit whose disk is in use is refused by its port.

use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

use super::decide::Unproven;
use super::identity::Cloned;
use crate::failure::{Exit, Failure};
use crate::firmware::{BridgeState, FirmwareVersion, UsbId};

/// Why a unit is not written. Nothing was.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum Refusal {
    /// Several units, and not all of them are meant.
    #[error("{} units are named: {}", devices.len(), devices.join(", "))]
    #[diagnostic(
        code(asmpatch::flash::several),
        help("name one with `--device`, or say `--all` to write every one that is named. Nothing was written")
    )]
    SeveralUnits {
        /// Their ports.
        devices: Vec<String>,
    },
    /// The unit can't be backed up.
    #[error("{device}: the unit runs its {state}, which gives no backup")]
    #[diagnostic(
        code(asmpatch::flash::no_backup),
        help(
            "what its flash holds will be lost: say `--no-backup` if that is what you want, and `--config-from DIR` to \
             give it the configuration blocks of an earlier backup. Nothing was written"
        )
    )]
    NoBackup {
        /// The port.
        device: String,
        /// What runs on it.
        state: BridgeState,
    },
    /// The image would be the last one that the unit ever takes.
    #[error("{device}: the image fails on a model of the chip, where it {failed}")]
    #[diagnostic(
        code(asmpatch::flash::not_rewritable),
        help(
            "a unit that runs it could never be written over USB again, because the boot loader does not come up while the \
             image's container holds. `asmpatch verify --boot FILE` shows what it does. Nothing was written"
        )
    )]
    NotRewritable {
        /// The port.
        device: String,
        /// What it fails at, and how.
        failed: String,
    },
    /// Nobody has seen it work.
    #[error("{device}: {}", why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    #[diagnostic(
        code(asmpatch::flash::unproven),
        help("the unit may never take firmware again: say `--unproven` if that is what you want. Nothing was written")
    )]
    Unproven {
        /// The port.
        device: String,
        /// Why not.
        why: Vec<Unproven>,
    },
    /// Another unit's identity.
    #[error("{device}: the unit would get {what}")]
    #[diagnostic(
        code(asmpatch::flash::clone),
        help(
            "two units with one identity can't be told apart on one host: give this one a serial number of its own \
             (`flash --serial TEXT`, `config set serial=TEXT`), or keep what it has by leaving out `--config-from`. \
             `--clone-identity` writes it all the same. Nothing was written"
        )
    )]
    Clone {
        /// The port.
        device: String,
        /// What it would get.
        what: Cloned,
    },
    /// Another line of the vendor's versions, and nobody is asked.
    #[error("{device}: the version's line changes from {from} to {to}")]
    #[diagnostic(
        code(asmpatch::flash::other_line),
        help(
            "the last three bytes name the chip maker's line (85.00.00) or an enclosure maker's, and whether one fits the \
             other's board is not known: say `--other-line` to write it. Nothing was written"
        )
    )]
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
    #[diagnostic(
        code(asmpatch::flash::unlisted_id),
        help(
            "no command would find it there: say `--usb-id {id}` with this command and with each one after it, or leave the ID \
             as it is. Nothing was written"
        )
    )]
    UnlistedId {
        /// The port.
        device: String,
        /// The ID.
        id: UsbId,
    },
    /// Another unit was refused.
    #[error("{device}: not written, because {because} is not")]
    #[diagnostic(
        code(asmpatch::flash::all_or_none),
        help("leave out `--all-or-none` to write the units that can be. Nothing was written")
    )]
    AllOrNone {
        /// The port.
        device: String,
        /// The units that are refused.
        because: String,
    },
    /// An image that nothing vouches for.
    #[error("{}: {why}", file.display())]
    #[diagnostic(
        code(asmpatch::flash::unverified),
        help(
            "an image that is neither known nor made by `asmpatch patch` could leave the unit without firmware: name its \
             receipt with `--receipt`, or make it with `asmpatch patch`. Nothing was written"
        )
    )]
    Unverified {
        /// The image.
        file: PathBuf,
        /// Why it does not count as verified.
        why: String,
    },
    /// Nobody there to ask.
    #[error("there is no terminal to ask on")]
    #[diagnostic(
        code(asmpatch::flash::not_asked),
        help("say `--yes` to write without a question. Nothing was written")
    )]
    NotAsked,
    /// The answer was no.
    #[error("not confirmed")]
    #[diagnostic(code(asmpatch::flash::declined), help("nothing was written; `yes` goes on"))]
    Declined,
}

impl Failure for Refusal {
    fn exit(&self) -> Exit {
        Exit::Refused
    }
}
