//! The `asmpatch restore` command: writes a backup back to a unit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::flash::backup_folder::{self, Filed, FiledBackup};
use crate::flash::error::BackupFolderError;
use crate::flash::examined::NewFirmware;
use crate::flash::fitting::{Fit, fitting};
use crate::flash::offers;
use crate::flash::recovery::{ImageRef, NextStep};
use crate::flash::wanted::Wanted;
use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::folder_of;
use serde::Serialize;

use crate::cli::commands::flash::{Choice, WritingArgs, WritingRun, unknown_in_copy};
use crate::cli::given::arguments::PatchDirs;
use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::words::errors::{Advised, Exit};
use crate::cli::words::print;
use crate::cli::words::worded_step::{WordedStep, lines};

/// Write a backup back to a unit: its configuration blocks and its firmware.
///
/// Checks every length and digest in the backup first. Backs up what the unit has now, as before any other write. If
/// the unit can't be read, it needs --no-backup. Compares what it wrote, except for bytes 0 to 3 of each block, which
/// the vendor's firmware may change. Doesn't write what followed the firmware in the flash.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch restore\n  asmpatch restore asmpatch-backup-1EFEE3619F08-2a2dba9b --device 3-1.2\n  asmpatch restore 2a2dba9b\n  asmpatch restore --oldest"
)]
pub struct Args {
    /// The backup's folder, as `asmpatch backup` or `asmpatch flash` made it; or a copy of its flash with both blocks and an image.
    /// Or the eight digits at the end of its name, if it is certainly this unit's: `asmpatch restore 20de8a77`. Without
    /// it, lists the unit's own backups, and writes nothing.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Write back the oldest backup that is certainly this unit's: what it had before the first write.
    #[arg(long, conflicts_with = "folder")]
    oldest: bool,

    #[command(flatten)]
    writing: WritingArgs,
}

/// Fewest digits of a backup's content that name it.
const FEWEST_DIGITS: usize = 8;

/// Whether a word is a backup's digits. A path of that name comes first.
fn is_digits(word: &Path) -> bool {
    let Some(word) = word.to_str() else { return false };
    let is_hex = word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    is_hex && word.len() >= FEWEST_DIGITS && Path::new(word).symlink_metadata().is_err()
}

/// Finds the backup that the digits name, or the oldest one without them, among those that are certainly the unit's.
///
/// # Errors
/// Of kind [`Kind::BadInput`] if there is none, or if the digits name several.
fn certain_backup(digits: Option<&str>, args: &Args, context: &Context) -> Result<PathBuf, AnyFailure> {
    let writing_run = WritingRun::open(&args.writing, Choice::default(), context)?;
    let connected = writing_run.connected();
    let Filed { backups, .. } = writing_run.backup_places().search();
    let (attached, blocks) = writing_run.configuration()?;
    let fitting = fitting(&attached, &blocks, None, &backups, &connected);
    let certain = fitting.into_iter().filter(|found| found.fit == Fit::Certain).map(|found| found.filed);
    let Some(digits) = digits else {
        let oldest = certain.filter(|backup| backup.written.is_some()).min_by_key(|backup| backup.written);
        return oldest.map(|backup| backup.folder).ok_or_else(|| {
            let message = "no backup in the places for backups is certainly this unit's";
            Failure::new(Kind::BadInput.code("asmpatch::restore::not_certain"), message).into()
        });
    };
    let named: Vec<FiledBackup> = certain.filter(|backup| backup.has_digits(digits)).collect();
    match named.as_slice() {
        [] => {
            let message = format!("{digits} is no folder, and names no backup that is certainly this unit's");
            Err(Failure::new(Kind::BadInput.code("asmpatch::restore::not_certain"), message).into())
        }
        // The same backup may be in several places.
        [first, others @ ..] if others.iter().all(|other| other.blocks == first.blocks && other.unit == first.unit) => {
            Ok(first.folder.clone())
        }
        several => {
            let folders: Vec<String> = several.iter().map(|backup| backup.folder.display().to_string()).collect();
            let message = format!("{digits} names several backups: {}", folders.join(", "));
            Err(Failure::new(Kind::BadInput.code("asmpatch::restore::several"), message).into())
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the backup is damaged or would not start, and for every other reason that stops it before the first write.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let found = match &args.folder {
        None if args.oldest => Some(certain_backup(None, args, context)?),
        Some(word) if is_digits(word) => Some(certain_backup(word.to_str(), args, context)?),
        _ => None,
    };
    let Some(folder) = found.as_ref().or(args.folder.as_ref()) else {
        // Who wants no question wants a write.
        if args.writing.yes {
            let message = "no backup is named: give its folder, its digits, or --oldest";
            return Err(Failure::new(Kind::Usage.code("asmpatch::restore::no_folder"), message).into());
        }
        let own = own_backups(Vec::new(), args, context)?;
        if args.writing.json {
            print::json_each(&[own]);
        } else {
            lines(&own.words()).iter().for_each(|line| outln!("{line}"));
        }
        return Ok(Exit::Done);
    };
    let backup = match backup_folder::load_any(folder) {
        Err(error @ BackupFolderError::NoBackup(_)) => return Err(no_backup(error, folder, args, context)),
        loaded => loaded?,
    };
    if folder.is_file()
        && let Some(lacks) = backup.lacks()
    {
        let label = Kind::BadInput.code("asmpatch::backup::no_copy");
        let failure = Failure::new(label, format!("{} has no {lacks}", folder.display()));
        return Err(Advised::with(failure, image_file::with_configuration(folder)));
    }
    let image = backup.firmware().map_err(|source| {
        let message = format!("the firmware in {} would not start", folder.display());
        Failure::new(Kind::BadInput.code("asmpatch::backup::firmware"), message).because(source)
    })?;
    let images = context.images(PatchDirs::default().load()?);
    let mut writing_run = WritingRun::open(&args.writing, Choice::default(), context)?;
    let unit = &backup.unit;
    let proof = images.prove(&image)?;
    // What a unit ran, it may run again.
    let unknown = if folder.is_file() { unknown_in_copy(&proof, &images) } else { None };
    let subject = NewFirmware::of(Arc::clone(&proof), unknown, [unit], false);
    let source = format!(
        "{}: backup of {} ({}), serial {}",
        folder.shown(),
        unit.usb_id.shown(),
        unit.state.shown(),
        unit.serial.shown()
    );
    // Of a copy of a flash, commands take the image in its first slot.
    let image = if folder.is_file() { folder.clone() } else { folder.join(backup_folder::FIRMWARE) };
    let wanted = Wanted::Backup(Box::new(backup), proof);
    let units = writing_run.examine(&wanted, &images);
    let job = writing_run.job(wanted, subject, images, source, Some(ImageRef::File(image)))?;
    writing_run.carry_out(units, &job)
}

/// The backups that fit a unit.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct OwnBackupsJson {
    /// The unit's port, as `--device` takes it.
    device: String,
    /// Where its backups are, in words, or where none is.
    found: String,
    /// The commands that write them back, and the steps that let asmpatch look at what can't be read, in the order in
    /// which to try them.
    recovery: Vec<WordedStep>,
}

impl print::Document for OwnBackupsJson {}

impl OwnBackupsJson {
    /// The same as steps, below a line that names the unit.
    fn words(self) -> Vec<WordedStep> {
        let Self { device, found, mut recovery } = self;
        recovery.insert(0, WordedStep::hands(format!("{device}: {found}")));
        recovery
    }
}

/// Returns the commands that write back what may be the unit's own backups: those in the places for backups and in the
/// folders `beside` what was named.
///
/// # Errors
/// Fails if the unit can't be read, and on Ctrl-C.
fn own_backups(beside: Vec<PathBuf>, args: &Args, context: &Context) -> Result<OwnBackupsJson, AnyFailure> {
    let images = context.images(PatchDirs::default().load()?);
    let writing_run = WritingRun::open(&args.writing, Choice::default(), context)?;
    let connected = writing_run.connected();
    let places = writing_run.backup_places().and_beside(beside);
    let (attached, blocks) = writing_run.configuration()?;
    let own = offers::restores(&attached, &blocks, &places.search(), &connected, &images)?;
    let found = if own.iter().any(NextStep::uses_backup) {
        "backups that fit this unit".to_owned()
    } else {
        format!("no backup in {} is this unit's own", places.shown())
    };
    let mut recovery = WordedStep::each(&own, &context.invocation.at(&attached.location));
    if !own.iter().any(NextStep::uses_backup) {
        recovery.push(WordedStep::lacking("if its backups are elsewhere: `restore --backup-dir DIR`"));
    }
    Ok(OwnBackupsJson { device: attached.location.to_string(), found, recovery })
}

/// Returns the error for a folder or a file that is no backup. Its advice has the commands for the unit's own ones: those
/// in that folder, beside it, and in the places for backups.
fn no_backup(error: BackupFolderError, folder: &Path, args: &Args, context: &Context) -> AnyFailure {
    let beside = vec![folder.to_owned(), folder_of(folder).to_owned()];
    let own = match own_backups(beside, args, context) {
        Ok(own) => own.words(),
        Err(why) if why.kind() == Kind::Interrupted => return why,
        Err(why) => {
            let purpose = format!("asmpatch couldn't look for the unit's own backups: {why}. List those of all units");
            vec![WordedStep::run(purpose, context.invocation.other("backup --list"))]
        }
    };
    let mut failure = AnyFailure::from(error);
    if folder.is_file()
        && let Ok((_, kind)) = image_file::look(folder)
    {
        failure = Advised::with(failure, image_file::advice_on(&kind, folder, Wish::Restore));
    }
    own.into_iter().fold(failure, Advised::also)
}
