//! `asmpatch restore`.

use std::path::PathBuf;

use super::Context;
use super::flash::{Session, WritingArgs};
use crate::escape::Escape as _;
use crate::failure::{AnyFailure, Exit};
use crate::flash::backup_folder::{self, BackupFolderError};
use crate::flash::plan::Plan;
use crate::flash::recovery::Origin;

/// Write a backup back to a bridge, byte for byte.
///
/// Every length and digest in the backup is checked first. What the unit has now is backed up like before any other
/// write, unless it can give none: then only with --no-backup.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The backup's folder, as `asmpatch backup` or `asmpatch flash` made it.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    #[command(flatten)]
    writing: WritingArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// A backup that is damaged or would not start, and whatever else stops it before the first write.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let backup = backup_folder::load(&args.folder)?;
    let image =
        backup.firmware().map_err(|source| BackupFolderError::Firmware { path: args.folder.clone(), source })?;
    let session = Session::open(&args.writing, false, context)?;
    let prepared = session.prepare(|attached, blocks| Ok(Plan::restore(attached, blocks, &backup, &image)))?;
    let unit = &backup.unit;
    let source = format!(
        "{}: backup of {} ({}), serial {}",
        args.folder.shown(),
        unit.usb_id.shown(),
        unit.state.shown(),
        unit.serial.shown()
    );
    prepared.write(&source, &Origin::Restore { folder: args.folder.clone() })
}
