//! The `asmpatch restore` command: writes a backup back to a unit.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::flash::backup_folder;
use crate::flash::decide::NewFirmware;
use crate::flash::error::BackupFolderError;
use crate::flash::fitting::FiledBackup;
use crate::flash::plan::FlashPlan;
use crate::flash::recovery::{ImageRef, Writes};
use crate::shell;
use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_dock::files::atomic;

use super::arguments::PatchDirs;
use super::context::Context;
use super::flash::{Choice, WritingArgs, WritingRun};
use super::invocation::Invocation;
use crate::cli::errors::{self, Exit};

/// Write a backup back to a unit: its configuration blocks and its firmware.
///
/// Checks every length and digest in the backup first. Backs up what the unit has now, as before any other write. If
/// the unit can't be read, it needs --no-backup. Compares what it wrote, except for bytes 0 to 3 of each block, which
/// the vendor's firmware may change. Doesn't write what followed the firmware in the flash.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch restore asmpatch-backup-1EFEE3619F08-2a2dba9b --device 3-1.2")]
pub struct Args {
    /// The backup's folder, as `asmpatch backup` or `asmpatch flash` made it; or a copy of its flash with both blocks and an image.
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
    let backup = match backup_folder::load_any(&args.folder) {
        Err(error @ BackupFolderError::NoBackup(_)) => return no_backup(error, args, &context.invocation),
        loaded => loaded?,
    };
    if args.folder.is_file()
        && let Some(lacks) = backup.lacks()
    {
        let label = Kind::BadInput.code("asmpatch::backup::no_copy");
        let command = format!("`flash IMAGE --config-from {}`", shell::path(&args.folder));
        let help = format!("give a unit this configuration with an image: {command}");
        return Err(Failure::new(label, format!("{} has no {lacks}", args.folder.display())).helped(help).into());
    }
    let image = backup.firmware().map_err(|source| {
        let message = format!("the firmware in {} would not start", args.folder.display());
        Failure::new(Kind::BadInput.code("asmpatch::backup::firmware"), message).because(source)
    })?;
    let images = context.images(PatchDirs::default().load()?);
    let mut run = WritingRun::open(&args.writing, Choice::default(), context)?;
    let unit = &backup.unit;
    let proof = images.prove(&image)?;
    let subject =
        NewFirmware { proof: Arc::clone(&proof), unknown: None, from_virtual: unit.is_virtual(), serial_given: false };
    let source = format!(
        "{}: backup of {} ({}), serial {}",
        args.folder.shown(),
        unit.usb_id.shown(),
        unit.state.shown(),
        unit.serial.shown()
    );
    // The image in a copy of a flash is in no file of its own.
    let is_folder = !args.folder.is_file();
    let image = is_folder.then(|| ImageRef::File(args.folder.join(backup_folder::FIRMWARE)));
    let invoked = args.writing.invoked(Writes::Backup, image, None);
    let job = run.job(subject, images, source, invoked)?;
    let units = run.examine(|seen| Ok(FlashPlan::restore(seen.attached.clone(), seen.blocks, &backup, &proof)));
    run.carry_out(units, &job)
}

/// The most backups that commands are printed for.
const MOST: usize = 3;

/// Returns the error for a folder that is no backup. Its help has the commands for the newest backups: those in that
/// folder, beside it, and in the folder for backups.
fn no_backup(error: BackupFolderError, args: &Args, run: &Invocation) -> Result<Exit, AnyFailure> {
    let named = args.folder.clone();
    let beside = atomic::folder_of(&named).to_owned();
    let places = [Some(named), Some(beside), args.writing.backup_place.folder().ok()];
    let mut filed: Vec<FiledBackup> =
        places.iter().flatten().filter_map(|place| backup_folder::filed(place).ok()).flatten().collect();
    filed.sort_by_key(|backup| (Reverse(backup.written), backup.folder.clone()));
    let mut known = HashSet::from([args.folder.canonicalize().ok()]);
    filed.retain(|backup| known.insert(backup.folder.canonicalize().ok()));
    let whole = filed.into_iter().filter(|backup| backup_folder::load(&backup.folder).is_ok());
    let other = |backup: FiledBackup| {
        let (serial, device) = (backup.serial(), &backup.unit.device);
        let folder = backup.folder.strip_prefix(".").unwrap_or(&backup.folder);
        let command = run.again().with("folder", folder);
        format!("\nserial {}, backed up at {}:\n    {command}", serial.shown(), device.shown())
    };
    let help = errors::help(&error, &Invocation::default()) + &whole.take(MOST).map(other).collect::<String>();
    Err(AnyFailure::from(error).helped(help))
}
