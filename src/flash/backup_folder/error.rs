//! Reasons a backup could not be written or read.

use std::io;
use std::path::PathBuf;

use asm2464::firmware::ImageError;
use thiserror::Error;

/// Format of the layout.
pub(super) const FORMAT: u32 = 1;

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
    /// The format is not known to this version.
    #[error("{} has format {found}, expected {FORMAT}", path.display())]
    Format {
        /// The manifest.
        path: PathBuf,
        /// Its format number.
        found: u32,
    },
    /// The list of files differs from that of every backup.
    #[error("{} lists {found}, expected {expected}", path.display())]
    Files {
        /// The manifest.
        path: PathBuf,
        /// The listed names.
        found: String,
        /// The expected names.
        expected: String,
    },
    /// A file does not match the manifest.
    #[error("{} has {found}, backup.toml says {expected}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its actual value.
        found: String,
        /// Its expected value.
        expected: String,
    },
    /// The firmware in the backup would not start.
    #[error("the firmware in {} would not start: {source}", path.display())]
    Firmware {
        /// The backup.
        path: PathBuf,
        /// The container's error.
        source: ImageError,
    },
}

asm2464::coded!(BackupFolderError {
    Read => BadInput "asmpatch::backup::io",
    Save => BadInput "asmpatch::backup::save",
    Exists => Refused "asmpatch::backup::exists",
    Manifest => BadInput "asmpatch::backup::manifest",
    Format => BadInput "asmpatch::backup::format",
    Files => BadInput "asmpatch::backup::files",
    Damaged => BadInput "asmpatch::backup::digest",
    Firmware => BadInput "asmpatch::backup::firmware",
});
