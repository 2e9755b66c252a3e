//! The steps of a write, their reports, and the state in which a stopped run leaves a unit.
//!
//! The library reports to a [`FlashProgress`], and never prints.

use std::path::Path;

use asm2464::firmware::{BlockIndex, Part};
use asm2464::progress::Progress;
use asm2464_host::bridge::Location;
use derive_more::Display;
use serde::Serialize;

use super::consent::Permission;

/// A step of writing a unit, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum FlashStep {
    /// Opens the unit and checks that it is still the plan's.
    #[display("open")]
    Claim,
    /// Reads everything and saves it.
    #[display("back up")]
    Backup,
    /// Through registers: reads every byte of the flash and saves it beside the backup.
    #[display("read the whole flash")]
    WholeFlash,
    /// Through registers: checks that the flash's block protection can be cleared.
    #[display("check the block protection")]
    CheckProtection,
    /// Checks that the unit is still the one that was opened.
    #[display("check that it is still the same unit")]
    Confirm,
    /// E1: writes a block. Block 0 erases the slot first.
    #[display("{}write configuration block {}", if _0.number() == 0 { "erase, " } else { "" }, _0.number())]
    WriteBlock(BlockIndex),
    /// E3: writes a part.
    #[display("write firmware part {}", _0.number())]
    WritePart(Part),
    /// Through registers: reads everything and finds the differences.
    #[display("compare with the flash")]
    Compare,
    /// Through registers: clears the flash's block protection, if it is set.
    #[display("clear the block protection")]
    Unprotect,
    /// Through registers: clears the old image's length, so that no mixture of two images can start.
    #[display("clear the old image's length")]
    Invalidate,
    /// Through registers: writes every differing sector except the first.
    #[display("write sectors")]
    WriteSectors,
    /// Through registers: writes the sector with the configuration blocks and the image's length.
    #[display("write the first sector")]
    WriteFirstSector,
    /// E0: reads a block back and compares it.
    #[display("read back configuration block {}", _0.number())]
    ReadBackBlock(BlockIndex),
    /// E2: reads a part back and compares it.
    #[display("read back firmware part {}", _0.number())]
    ReadBack(Part),
    /// Through registers: sets the block protection again, if it was set.
    #[display("set the block protection again")]
    Protect,
    /// E8, or 0xCC31 on open firmware: restarts the unit.
    #[display("restart")]
    Restart,
    /// The hub power-cycles the unit.
    #[display("power-cycle")]
    PowerCycle,
    /// Waits for the unit to leave the bus and come back.
    #[display("come back")]
    Return,
    /// Compares the unit's behaviour with what was written.
    #[display("check what runs")]
    Judge,
}

/// An event of a backup or a write.
#[derive(Debug, Clone, Copy)]
pub enum FlashEvent<'a> {
    /// Number of bytes that the whole run moves if nothing has to be repeated.
    Total(u64),
    /// A step begins.
    Begin(FlashStep),
    /// The unit's state, port or backup changes to this. A run that stops here leaves the unit so.
    Stands {
        /// The state.
        left: StoppedState,
        /// The unit's port.
        location: &'a Location,
        /// The unit's backup.
        backup: Option<&'a Path>,
    },
    /// The backup's firmware is proved: the permissions that it needs to be written back; `None` if that would be refused.
    BackupProved(Option<&'a [Permission]>),
    /// This many more bytes were moved in the current step.
    Moved(u64),
    /// A step has ended, with this result.
    End(FlashStep, &'a str),
    /// A problem that asmpatch handles by itself.
    Trouble(FlashStep, &'a str),
    /// Only a power cycle can start the unit: the user should unplug it and plug it in again.
    Replug,
}

/// Receives the events of a backup or a write.
pub type FlashProgress<'p> = dyn for<'e> Progress<FlashEvent<'e>> + Send + 'p;

/// A step and its result, for a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct StepReport {
    /// The step, in words.
    pub step: String,
    /// The step's result, in words.
    pub result: String,
    /// Whether the step is done, as opposed to a problem that was handled.
    pub done: bool,
}

/// State of a unit after a stopped run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StoppedState {
    /// Nothing was written.
    #[display("nothing was written: the unit is as it was")]
    Untouched,
    /// Nothing was written, but the flash's block protection, which was set, may be cleared.
    #[display(
        "no firmware was written: the unit runs as before. Its flash's block protection, which was set, may be cleared"
    )]
    Unprotected,
    /// The write began and did not finish. How much the unit has done is not known: a command whose status is lost may
    /// have been carried out, or not even begun.
    #[display(
        "the write didn't finish, so the image may be incomplete. The unit runs on while it has power, and may come \
         up in its boot loader after that, which still takes firmware"
    )]
    Incomplete,
    /// Everything was written, but not everything was read back.
    #[display(
        "everything was written, but not verified: the unit may come up in its boot loader at its next restart, \
         which still takes firmware"
    )]
    Complete,
    /// Everything was written and read back; the unit has not been restarted.
    #[display("the new firmware is written and verified: the unit runs the old one until its next restart")]
    Verified,
    /// Everything was written and the unit was told to restart; it has not been seen since.
    #[display("everything was written, and the unit was told to restart; it hasn't come back")]
    Restarted,
    /// The unit came back in its boot loader.
    #[display("it runs the boot loader in its ROM, which takes firmware over USB")]
    BootLoader,
    /// The unit came back under another identity than planned.
    #[display("everything was written; the unit hasn't taken the new identity from its configuration yet")]
    OtherIdentity,
    /// The unit came back as planned, but it is not proven that it runs what was written.
    #[display("it came back under its new identity, but asmpatch couldn't confirm that it runs what was written")]
    Unproven,
}
