//! What is refused before anything is written. A unit whose disk is in use is refused by its port.

use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

use super::plan::{Plan, is_readable};
use crate::failure::{Exit, Failure};
use crate::firmware::BridgeState;

/// Why a unit is not written. Nothing was.
#[derive(Debug, Error, Diagnostic)]
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
    /// No serial numbers of their own.
    #[error(
        "{} units would get the same serial number, and no one could tell them apart: {}", devices.len(), devices.join(", ")
    )]
    #[diagnostic(
        code(asmpatch::flash::same_serial),
        help(
            "they have no configuration block that can be read: write them one at a time, each with its own `--serial` \
             or `--config-from DIR`. Nothing was written"
        )
    )]
    SameSerial {
        /// Their ports.
        devices: Vec<String>,
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

/// Refuses a unit that gives no backup, where one is wanted.
///
/// # Errors
/// [`Refusal::NoBackup`].
pub fn backup_is_possible(device: &str, state: BridgeState, wanted: bool) -> Result<(), Refusal> {
    if wanted && !is_readable(state) {
        return Err(Refusal::NoBackup { device: device.to_owned(), state });
    }
    Ok(())
}

/// Refuses to make units that can't be told apart.
///
/// # Errors
/// [`Refusal::SameSerial`].
pub fn serials_differ<'a>(plans: impl IntoIterator<Item = (&'a str, &'a Plan)>) -> Result<(), Refusal> {
    let devices: Vec<String> =
        plans.into_iter().filter(|(_, plan)| !plan.has_own_serial()).map(|(device, _)| device.to_owned()).collect();
    if devices.len() > 1 { Err(Refusal::SameSerial { devices }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_state_that_can_be_read_is_written_with_a_backup() {
        assert!(backup_is_possible("1-1", BridgeState::Vendor, true).is_ok());
        for state in [BridgeState::BootLoader, BridgeState::OpenFirmware] {
            assert!(matches!(backup_is_possible("1-1", state, true), Err(Refusal::NoBackup { .. })));
            assert!(backup_is_possible("1-1", state, false).is_ok());
        }
    }
}
