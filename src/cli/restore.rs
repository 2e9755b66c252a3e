//! The `asmpatch restore` command: writes a backup back to a unit.

use std::path::PathBuf;

use crate::failure::AnyFailure;
use crate::flash::backup_folder::{self, BackupFolderError};
use crate::flash::decide::Subject;
use crate::flash::firmware_kind::{Firmware, Rewritable};
use crate::flash::plan::FlashPlan;
use crate::shell;
use asm2464::escape::Escape as _;

use super::context::Context;
use super::flash::{Choice, WritingArgs, WritingJob, WritingSession};
use super::known::PatchDirs;
use super::proof;
use crate::cli::errors::Exit;
use crate::cli::flash::recovery::{InvokedCommand, WritingCommand};

/// Write a backup back to a unit, byte for byte.
///
/// Checks every length and digest in the backup first. Backs up what the unit has now, as before any other write. If
/// the unit can't be read, it needs --no-backup.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch restore asmpatch-backup-1EFEE3619F08-2a2dba9b --device 3-1.2")]
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
/// Fails if the backup is damaged or would not start, and for every other reason that stops it before the first write.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let backup = backup_folder::load(&args.folder)?;
    let image =
        backup.firmware().map_err(|source| BackupFolderError::Firmware { path: args.folder.clone(), source })?;
    let library = PatchDirs::default().load(&crate::embedded::manifests(&[])?)?;
    let session = WritingSession::open(&args.writing, Choice::default(), context)?;
    let unit = &backup.unit;
    let job = WritingJob {
        subject: Subject {
            firmware: Firmware::of(&image, &library),
            rewritable: Rewritable::within(&image, &proof::budget(context))?,
            is_unknown: false,
            from_virtual: unit.is_virtual(),
            serial_given: false,
        },
        library,
        source: format!(
            "{}: backup of {} ({}), serial {}",
            args.folder.shown(),
            unit.usb_id.shown(),
            unit.state.shown(),
            unit.serial.shown()
        ),
        origin: InvokedCommand {
            command: WritingCommand::Restore,
            what: vec![shell::argument(&args.folder)],
            config_from: None,
            backup: args.writing.backup_options(),
        },
    };
    session.run(&job, |seen| Ok(FlashPlan::restore(seen.attached.clone(), seen.blocks, &backup, &image)))
}
