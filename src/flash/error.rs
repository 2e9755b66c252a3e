//! What stops the writing of a unit.

use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use super::backup_folder::BackupFolderError;
use super::progress::part_number;
use super::registers::RegisterError;
use crate::bridge::CommandError;
use crate::failure::{AnyFailure, Panicked};
use crate::firmware::{BlockIndex, BridgeState, FirmwareVersion, ImageError, Part, UsbId};

/// Why a backup or a write stopped.
#[derive(Debug, Error, Diagnostic)]
pub enum FlashError {
    /// The unit can't be opened or found.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Port(Box<dyn Diagnostic + Send + Sync>),
    /// A bug.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Panicked(#[from] Panicked),
    /// A command failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Command(#[from] CommandError),
    /// The flash, reached through registers, or the way there.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Registers(#[from] RegisterError),
    /// The backup's folder.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Folder(#[from] BackupFolderError),
    /// The unit gives no backup.
    #[error("the unit gives no configuration block {}: {why}", index.number())]
    #[diagnostic(code(asmpatch::backup::no_block))]
    NoBlock {
        /// The block.
        index: BlockIndex,
        /// Why, in words.
        why: String,
    },
    /// What the unit gives as firmware would not start, so it is no backup.
    #[error("what the unit gives as its firmware would not start: {source}")]
    #[diagnostic(code(asmpatch::flash::unusable_backup))]
    Unusable {
        /// What is wrong with it.
        source: ImageError,
    },
    /// The unit is no longer what the plan was made for.
    #[error("the unit's {what} changed since the plan was shown")]
    #[diagnostic(code(asmpatch::flash::changed))]
    Changed {
        /// What.
        what: &'static str,
    },
    /// A configuration block does not read back.
    #[error("configuration block {} reads back otherwise than written, {attempts} times", index.number())]
    #[diagnostic(code(asmpatch::flash::block_differs))]
    BlockDiffers {
        /// The block.
        index: BlockIndex,
        /// How often it was written.
        attempts: u32,
    },
    /// A part does not read back.
    #[error(
        "firmware part {} reads back otherwise than written, {attempts} times: {count} bytes differ, the first at part offset {first:#x}",
        part_number(*part)
    )]
    #[diagnostic(code(asmpatch::flash::part_differs))]
    PartDiffers {
        /// The part.
        part: Part,
        /// How often it was written.
        attempts: u32,
        /// Bytes that differ.
        count: usize,
        /// The first of them, counted from the part's start.
        first: usize,
    },
    /// The unit is not back.
    #[error("the unit has not come back within {deadline:?}")]
    #[diagnostic(code(asmpatch::flash::not_back))]
    NotBack {
        /// How long was waited.
        deadline: Duration,
    },
    /// The unit came back as another.
    #[error("the unit came back as {found} ({state}), expected {expected} ({becomes})")]
    #[diagnostic(code(asmpatch::flash::identity))]
    Identity {
        /// The identity that the configuration says, or the open firmware itself.
        expected: UsbId,
        /// What was to run on it.
        becomes: BridgeState,
        /// The one it has.
        found: UsbId,
        /// What runs on it.
        state: BridgeState,
    },
    /// The unit came back in its boot loader.
    #[error("the unit came back in its boot loader ({found}): the chip does not start what its flash holds")]
    #[diagnostic(code(asmpatch::flash::boot_loader))]
    BootLoader {
        /// The identity it has.
        found: UsbId,
    },
    /// Another version runs.
    #[error("the unit runs version {found}, the image is {expected}")]
    #[diagnostic(code(asmpatch::flash::version))]
    Version {
        /// The image's version.
        expected: FirmwareVersion,
        /// The unit's.
        found: FirmwareVersion,
    },
    /// Other open firmware runs.
    #[error("the unit runs {found:?}, the image is {expected:?}")]
    #[diagnostic(code(asmpatch::flash::build))]
    Build {
        /// The image's product string.
        expected: String,
        /// The unit's.
        found: String,
    },
    /// Other code runs, whatever its version.
    #[error(
        "E4 of 256 bytes {}: the unit does not run what was written",
        if *expected { "brings none, and the image gives them" } else { "brings them, and the image gives none" }
    )]
    #[diagnostic(code(asmpatch::flash::behaviour))]
    Behaviour {
        /// Whether the image gives 256 bytes at once.
        expected: bool,
    },
    /// Ctrl-C, SIGTERM, SIGHUP.
    #[error("stopped by Ctrl-C")]
    #[diagnostic(code(asmpatch::interrupted))]
    Interrupted,
}

impl FlashError {
    /// The unit can't be opened or found.
    pub(super) fn port(failure: AnyFailure) -> Self {
        Self::Port(failure.into())
    }
}
