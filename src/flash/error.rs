//! Errors of backing up and of writing a unit.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use asm2464::firmware::BlockIndex;
use asm2464::flash::RegisterError;
use asm2464::interrupt::Interrupted;
use asm2464::{AnyFailure, Coded, Failure, Kind, Label};
use asm2464_host::bridge::{CommandError, ControlError};
use thiserror::Error;

/// Reasons a backup or a write stopped, as far as retries and advice differ.
#[derive(Debug, Error)]
pub enum FlashError {
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
    /// A block or a part reads back differently from what was written.
    #[error(transparent)]
    Differs(Failure),
    /// The unit takes the commands that write, and its flash keeps what it had.
    #[error("the flash stays write-protected: after a write it reads as before")]
    Protected,
    /// Any other reason.
    #[error(transparent)]
    Other(AnyFailure),
}

impl Coded for FlashError {
    fn label(&self) -> Label {
        match self {
            Self::Protected => Kind::Device.code("asmpatch::flash::protected"),
            _ => self.passed_on().map_or_else(|| Kind::Refused.code("asmpatch::backup::no_block"), Coded::label),
        }
    }

    fn passed_on(&self) -> Option<&(dyn Coded + 'static)> {
        match self {
            Self::Command(cause) => Some(cause),
            Self::Registers(cause) => Some(cause),
            Self::Folder(cause) => Some(cause),
            Self::NoBlock { .. } | Self::Protected => None,
            Self::Differs(cause) => Some(cause),
            Self::Other(cause) => Some(cause.coded()),
        }
    }
}

macro_rules! other {
    ($($error:ty)*) => {
        $(impl From<$error> for FlashError {
            fn from(error: $error) -> Self {
                Self::Other(error.into())
            }
        })*
    };
}

other!(AnyFailure Failure Interrupted);

impl FlashError {
    pub(super) fn other(label: Label, message: impl Into<String>) -> Self {
        Failure::new(label, message).into()
    }

    pub(super) fn differs(label: Label, message: String) -> Self {
        Self::Differs(Failure::new(label, message))
    }

    /// The unit has changed in this since the plan was made.
    pub(super) fn changed(what: &str) -> Self {
        let label = Kind::Refused.code("asmpatch::flash::changed");
        Self::other(label, format!("the unit's {what} changed since the plan was shown"))
    }

    /// The unit did not come back in this time.
    pub(super) fn not_back(within: Duration) -> Self {
        let label = Kind::Device.code("asmpatch::flash::not_back");
        Self::other(label, format!("the unit has not come back within {within:?}"))
    }
}

/// Reasons a backup could not be written or read.
#[derive(Debug, Error)]
pub enum BackupFolderError {
    /// The folder can't be read as a backup: the system can't read it or a file in it, or its manifest is none.
    #[error(transparent)]
    NoBackup(Box<Failure>),
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
    /// The folder exists, and the system does not let it be read.
    #[error("cannot see whether {} is this backup", folder.display())]
    Unread {
        /// The folder.
        folder: PathBuf,
        /// What can't be read, and the system's error.
        #[source]
        why: Box<Failure>,
    },
    /// The backup can't be used: it has another format or other files, is damaged, or would not start.
    #[error(transparent)]
    Unusable(#[from] Failure),
}

asm2464::coded!(BackupFolderError {
    NoBackup(cause) => cause,
    Save => System "asmpatch::backup::save",
    Exists => Refused "asmpatch::backup::exists",
    Unread => System "asmpatch::backup::unread",
    Unusable(cause) => cause,
});
