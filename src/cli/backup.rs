//! The `asmpatch backup` command: saves a unit's configuration blocks and firmware.

use std::path::PathBuf;

use crate::flash::access::Access;
use crate::flash::backup::BackedUpUnit;
use crate::flash::backup_folder::{self, BackupPlaces, Filed, UnreadBackup};
use crate::flash::fitting::FiledBackup;
use crate::flash::progress::{FlashEvent, FlashStep};
use crate::flash::whole_flash::{self, WholeFlashReport};
use crate::image::OpenImage;
use asm2464::escape::Escape as _;
use asm2464::progress::Progress as _;
use asm2464::{AnyFailure, Coded as _, Failure, Kind};
use serde::Serialize;

use super::arguments::{BackupPlace, PortArgs};
use super::context::Context;
use super::flash::Screen;
use super::flash::steps::{WordedStep, cure};
use super::{print, table, user_files};
use crate::cli::errors::{self, ErrorJson, Exit};
use crate::cli::interrupt;

/// Save a unit's configuration blocks and firmware, with digests.
///
/// Reads everything and writes nothing to the unit. A unit in its boot loader can't be read.
///
/// With --whole-flash it then reads every byte of the flash of a unit with open firmware, which takes a while. If it stops,
/// the same command continues. Stock firmware lets nobody read that much: there the exit status is 5, and the backup is
/// complete without it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch backup\n  asmpatch backup --device 3-1.2 -o before\n  asmpatch backup --whole-flash\n  asmpatch backup --list"
)]
pub struct Args {
    /// Create the backup in this folder; by default asmpatch-backup-SERIAL-DIGEST, where all backups go. Never
    /// overwrites an existing folder.
    #[arg(short, long, value_name = "DIR", conflicts_with = "backup_dir")]
    output: Option<PathBuf>,

    #[command(flatten)]
    place: BackupPlace,

    /// Also save every byte of the flash, as flash-whole.bin in the backup's folder. Needs open firmware on the unit.
    #[arg(long)]
    whole_flash: bool,

    /// List the backups where all backups go: unit, firmware, date and folder; and what can't be read there. Talks to no
    /// unit.
    #[arg(long, conflicts_with_all = ["output", "whole_flash", "device", "usb_ids", "device_dirs", "pcap"])]
    list: bool,

    #[command(flatten)]
    port: PortArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct BackupJson {
    /// The backup's folder.
    backup: String,
    /// Whether this run created the folder; `false` if a backup with the same content was already there.
    new: bool,
    /// The unit's port, as `--device` takes it.
    device: String,
    /// VID:PID.
    usb_id: String,
    /// Its serial number.
    serial: String,
    /// The version that it reports, if it can report one.
    version: Option<String>,
    /// Whether the backup can be restored: its firmware passes the chip's checks.
    restorable: bool,
    /// With --whole-flash: the copy of the whole flash.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_flash: Option<WholeFlashReport>,
    /// With --whole-flash: why there is no copy of the whole flash. The backup is complete without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_flash_error: Option<ErrorJson>,
}

impl print::Document for BackupJson {
    const VERSION: u32 = 2;
}

/// A backup in the list.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ListedBackup {
    /// The backup's folder.
    backup: String,
    /// When the unit was read, in UTC; nothing if neither the backup nor the system says it.
    date: Option<String>,
    /// The unit's port when it was read, as `--device` takes it.
    device: String,
    /// VID:PID.
    usb_id: String,
    /// Its state.
    state: String,
    /// Its serial number.
    serial: String,
    /// Its product string.
    product: String,
    /// The version that it reported, if it could report one.
    version: Option<String>,
}

/// A backup in the list that can't be read.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct UnreadJson {
    /// The folder.
    backup: String,
    /// The user who owns it, or the file in it that can't be read; nothing if the system doesn't say.
    owner: Option<String>,
    /// Why it can't be read.
    error: ErrorJson,
}

impl UnreadJson {
    fn of(unread: &UnreadBackup) -> Self {
        let failure = unread.failure();
        Self {
            backup: unread.folder.display().to_string(),
            owner: unread.owner.map(|owner| owner.to_string()),
            error: ErrorJson::with(&failure, vec![WordedStep::hands(cure(unread))]),
        }
    }
}

/// An element of the list.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(super) enum ListedJson {
    Backup(ListedBackup),
    Unread(UnreadJson),
}

impl print::Document for ListedJson {
    const VERSION: u32 = 2;
}

impl From<FiledBackup> for ListedBackup {
    fn from(FiledBackup { folder, written, unit, .. }: FiledBackup) -> Self {
        Self {
            backup: folder.display().to_string(),
            date: written.map(|time| humantime::format_rfc3339_seconds(time).to_string()),
            device: unit.device,
            usb_id: unit.usb_id,
            state: unit.state,
            serial: unit.serial,
            product: unit.product,
            version: unit.firmware_version,
        }
    }
}

/// Describes a backup without what its firmware is.
pub(super) fn lines(backup: &FiledBackup) -> Vec<(&'static str, String)> {
    let BackedUpUnit { usb_id, state, serial, product, firmware_version, .. } = &backup.unit;
    let version = firmware_version.as_ref().map_or_else(|| state.clone(), |version| format!("{state} {version}"));
    let lines = [
        ("unit", format!("{usb_id} {product}, serial {serial}")),
        ("firmware", version),
        ("date", backup.written.map_or_else(|| "not known".to_owned(), user_files::time)),
    ];
    lines.map(|(label, text)| (label, text.shown().to_string())).to_vec()
}

/// Lists the backups in the places for them, the newest last, and then those that can't be read. These decide the exit
/// status.
fn list(args: &Args) -> Exit {
    // Nothing was named beside which there may be others.
    let places = BackupPlaces { beside: Vec::new(), ..args.place.places([]) };
    let Filed { mut backups, unread } = places.search();
    backups.sort_by(|a, b| (a.written, &a.folder).cmp(&(b.written, &b.folder)));
    let exit = unread.iter().map(|unread| Exit::from(unread.failure().kind())).max().unwrap_or(Exit::Done);
    if args.json {
        let readable = backups.into_iter().map(|backup| ListedJson::Backup(backup.into()));
        let unread = unread.iter().map(|unread| ListedJson::Unread(UnreadJson::of(unread)));
        print::json_each(&readable.chain(unread).collect::<Vec<_>>());
        return exit;
    }
    if backups.is_empty() && unread.is_empty() {
        outln!("no backups in {}", places.shown());
    }
    for backup in backups {
        outln!("{}", backup.folder.shown());
        table::print_labelled(2, lines(&backup));
    }
    for backup in unread {
        outln!("{}", backup.folder.shown());
        let mut lines = vec![("unread", errors::with_causes(&backup.failure()))];
        lines.extend(backup.owner.map(|owner| ("owner", owner.to_string())));
        lines.push(("help", cure(&backup)));
        let shown: Vec<_> = lines.into_iter().map(|(label, text)| (label, text.shown().to_string())).collect();
        table::print_labelled(2, shown);
    }
    exit
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, the unit can't be read, or the folder can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    if args.list {
        return Ok(list(args));
    }
    args.output.as_deref().map(user_files::check_name).transpose()?;
    let interrupt = interrupt::install();
    let (_recording, mut port) = args.port.open()?;
    let mut access = Access::open(&mut *port)?;
    let backup = Screen::backup(context, &mut *port, &mut access, FlashStep::Backup, interrupt)?;
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => args.place.folder()?.join(backup.folder_name()),
    };
    let saved = backup_folder::save(&backup, &folder)?;
    let (mut copy, mut failure) = (None, None);
    if args.whole_flash {
        let copied = Screen::of_one(context, backup.unit.device.clone(), |bar| {
            bar.event(FlashEvent::Begin(FlashStep::WholeFlash));
            whole_flash::copy(&mut access, &backup, &saved.folder, bar, interrupt)
        });
        match copied {
            Ok(copied) => copy = Some(copied),
            Err(error) => failure = Some(error),
        }
    }
    drop(access);
    let firmware = backup.firmware();
    if args.json {
        let error = failure.as_ref().map(|failure| ErrorJson::of(failure.coded(), &context.invocation));
        print::json(&BackupJson {
            backup: saved.folder.display().to_string(),
            new: saved.is_new,
            device: backup.unit.device.clone(),
            usb_id: backup.unit.usb_id.clone(),
            serial: backup.unit.serial.clone(),
            version: backup.unit.firmware_version.clone(),
            restorable: firmware.is_ok(),
            whole_flash: copy,
            whole_flash_error: error.map(|error| error.at(&backup.unit.device)),
        });
    } else {
        let BackedUpUnit { device, usb_id, state, serial, .. } = &backup.unit;
        outln!("{}: {usb_id} ({state}), serial {}", device.shown(), serial.shown());
        let mut lines = Vec::new();
        if let Ok(image) = &firmware {
            let what = match OpenImage::of(image, &crate::embedded::library()?) {
                Some(open) => open.to_string(),
                None => format!("version {}", image.version()),
            };
            lines.push(("firmware", format!("{what}, {} bytes", image.file_len())));
        }
        lines.push(("backup", saved.to_string().shown().to_string()));
        lines.extend(copy.as_ref().map(|copy| ("flash", copy_words(copy))));
        table::print_labelled(2, lines);
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    match firmware {
        Ok(_) => Ok(Exit::Done),
        Err(source) => {
            let message = "the firmware in the unit's flash would not start";
            Err(Failure::new(Kind::CheckFailed.code("asmpatch::backup::unusable"), message).because(source).into())
        }
    }
}

fn copy_words(copy: &WholeFlashReport) -> String {
    let how = match copy.resumed_at {
        _ if !copy.is_new => " (already there, with the same content)".to_owned(),
        0 => String::new(),
        at => format!(" (continued after {at})"),
    };
    format!("{}, {} bytes, JEDEC ID {}{how}", copy.file.shown(), copy.size, copy.jedec_id)
}
