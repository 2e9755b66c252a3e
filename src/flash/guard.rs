//! What is refused before anything is written.

use std::path::{Path, PathBuf};

use miette::Diagnostic;
use thiserror::Error;

use super::disk_use::{DiskUse, disk_uses};
use super::plan::{Plan, is_readable};
use crate::failure::{Exit, Failure};
use crate::firmware::BridgeState;

/// Why a unit is not written. Nothing was.
#[derive(Debug, Error, Diagnostic)]
pub enum Refusal {
    /// Somebody uses the disk behind it.
    #[error("{device}: the disk behind the unit is in use: {}", uses.iter().map(DiskUse::to_string).collect::<Vec<_>>().join(", "))]
    #[diagnostic(
        code(asmpatch::flash::disk_in_use),
        help(
            "flashing takes the unit away from its driver, which would lose what is not written yet: unmount the disk (`umount`, `swapoff`), then run the command again. Nothing was written"
        )
    )]
    DiskInUse {
        /// The port.
        device: String,
        /// Every use.
        uses: Vec<DiskUse>,
    },
    /// Nobody knows.
    #[error("{device}: the system does not tell whether the disk behind the unit is in use")]
    #[diagnostic(
        code(asmpatch::flash::disk_unknown),
        help("asmpatch asks /sys and /proc: run it where both are mounted. Nothing was written")
    )]
    DiskUnknown {
        /// The port.
        device: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Several units, and none was named.
    #[error("{} units are attached: {}", devices.len(), devices.join(", "))]
    #[diagnostic(
        code(asmpatch::flash::several),
        help("say which with `--device`, or write them all with `--all`. Nothing was written")
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

/// Refuses a unit whose disk the system uses. `port` is the port path, `root` the folder with the system's `/sys` and
/// `/proc`.
///
/// # Errors
/// [`Refusal::DiskInUse`], [`Refusal::DiskUnknown`].
pub fn disk_is_free(root: &Path, port: &str) -> Result<(), Refusal> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let uses = disk_uses(root, port).map_err(|source| Refusal::DiskUnknown { device: port.to_owned(), source })?;
    if uses.is_empty() { Ok(()) } else { Err(Refusal::DiskInUse { device: port.to_owned(), uses }) }
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
        for state in [BridgeState::Stock, BridgeState::Patched] {
            assert!(backup_is_possible("1-1", state, true).is_ok());
        }
        for state in [BridgeState::BootLoader, BridgeState::OpenFirmware] {
            assert!(matches!(backup_is_possible("1-1", state, true), Err(Refusal::NoBackup { .. })));
            assert!(backup_is_possible("1-1", state, false).is_ok());
        }
    }
}
