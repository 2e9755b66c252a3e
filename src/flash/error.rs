//! Errors of backing up and of writing a unit.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use asm2464::firmware::{BlockIndex, BridgeState, FirmwareVersion, ImageError, Part, UsbId};
use asm2464::flash::RegisterError;
use asm2464::interrupt::Interrupted;
use asm2464_host::bridge::{CommandError, ControlError, PortError};
use thiserror::Error;

use crate::failure::{AnyFailure, Failure, Panicked};

/// Reasons a backup or a write stopped.
#[derive(Debug, Error)]
pub enum FlashError {
    /// The unit can't be opened or found.
    #[error(transparent)]
    Port(#[from] PortError),
    /// asmpatch panicked: a bug.
    #[error(transparent)]
    Panicked(#[from] Panicked),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// An access to the flash through registers failed.
    #[error(transparent)]
    Registers(#[from] RegisterError<ControlError>),
    /// The backup's folder could not be written or read.
    #[error(transparent)]
    Folder(#[from] BackupFolderError),
    /// The unit can't be backed up.
    #[error("can't read the unit's configuration block {}: {why}", index.number())]
    NoBlock {
        /// The block.
        index: BlockIndex,
        /// The reason, in words.
        why: String,
    },
    /// No two readings of a block in a row agree.
    #[error("configuration block {} reads differently each time, {readings} times", index.number())]
    UnsteadyBlock {
        /// The block.
        index: BlockIndex,
        /// Number of readings.
        readings: u32,
    },
    /// The firmware in the unit's flash would not start, so a backup of it could not be restored.
    #[error("the firmware in the unit's flash would not start: {0}")]
    Unusable(#[source] ImageError),
    /// The unit has changed since the plan was made. Holds what has changed.
    #[error("the unit's {0} changed since the plan was shown")]
    Changed(&'static str),
    /// A configuration block reads back differently.
    #[error("configuration block {} differs from what was written, attempt {attempts}", index.number())]
    BlockDiffers {
        /// The block.
        index: BlockIndex,
        /// Number of times that the block was written.
        attempts: u32,
    },
    /// A part reads back differently.
    #[error(
        "firmware part {} differs from what was written, attempt {attempts}: {count} bytes, the first at part offset {first:#x}",
        part.number()
    )]
    PartDiffers {
        /// The part.
        part: Part,
        /// Number of times that the part was written.
        attempts: u32,
        /// Number of bytes that differ.
        count: usize,
        /// Offset of the first of them from the part's start.
        first: usize,
    },
    /// The unit did not come back in this time.
    #[error("the unit has not come back within {0:?}")]
    NotBack(Duration),
    /// The unit came back with another identity.
    #[error("the unit came back as {found} ({state}), expected {expected} ({becomes})")]
    Identity {
        /// The identity in the configuration, or that of the open firmware.
        expected: UsbId,
        /// The planned state.
        becomes: BridgeState,
        /// The identity found.
        found: UsbId,
        /// The state found.
        state: BridgeState,
    },
    /// The unit came back in its boot loader, with this identity.
    #[error("the unit came back in its boot loader ({0}): the chip doesn't start what is in its flash")]
    BootLoader(UsbId),
    /// The unit runs another version.
    #[error("the unit runs version {found}, the image is {expected}")]
    Version {
        /// The image's version.
        expected: FirmwareVersion,
        /// The unit's version.
        found: FirmwareVersion,
    },
    /// The unit runs another build of open firmware.
    #[error("the unit runs {found:?}, the image is {expected:?}")]
    Build {
        /// The image's product string.
        expected: String,
        /// The unit's product string.
        found: String,
    },
    /// The unit runs other code, whatever its version. Holds whether the image returns 256 bytes at once.
    #[error(
        "E4 of 256 bytes {}: the unit doesn't run what was written",
        if *.0 { "returns none, while the image returns all" } else { "returns all, while the image returns none" }
    )]
    Behaviour(bool),
    /// A signal stopped the run: Ctrl-C, SIGTERM or SIGHUP.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

asm2464::coded!(FlashError {
    Port(cause) => cause,
    Panicked(cause) => cause,
    Command(cause) => cause,
    Registers(cause) => cause,
    Folder(cause) => cause,
    NoBlock => Refused "asmpatch::backup::no_block",
    UnsteadyBlock => Device "asmpatch::backup::unsteady_block",
    Unusable => Refused "asmpatch::flash::unusable_backup",
    Changed => Refused "asmpatch::flash::changed",
    BlockDiffers => Device "asmpatch::flash::block_differs",
    PartDiffers => Device "asmpatch::flash::part_differs",
    NotBack => Device "asmpatch::flash::not_back",
    Identity => Device "asmpatch::flash::identity",
    BootLoader => Device "asmpatch::flash::boot_loader",
    Version => Device "asmpatch::flash::version",
    Build => Device "asmpatch::flash::build",
    Behaviour => Device "asmpatch::flash::behaviour",
    Interrupted(cause) => cause,
});

impl From<AnyFailure> for FlashError {
    fn from(failure: AnyFailure) -> Self {
        Self::Port(failure.0.into())
    }
}

/// Reasons a backup could not be written or read.
#[derive(Debug, Error)]
pub enum BackupFolderError {
    /// The system could not read a file or folder.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system could not save a backup.
    #[error("cannot {doing} {}", path.display())]
    Save {
        /// The failed operation.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder exists with other contents.
    #[error("{} exists and is not this backup", .0.display())]
    Exists(PathBuf),
    /// There is no valid backup.toml.
    #[error("{} is not a backup manifest: {why}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The backup can't be used: it has another format or other files, is damaged, or would not start.
    #[error(transparent)]
    Unusable(#[from] Failure),
}

asm2464::coded!(BackupFolderError {
    Read => BadInput "asmpatch::backup::io",
    Save => BadInput "asmpatch::backup::save",
    Exists => Refused "asmpatch::backup::exists",
    Manifest => BadInput "asmpatch::backup::manifest",
    Unusable(cause) => cause,
});
