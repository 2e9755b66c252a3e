//! The `asmpatch backup` command: saves a unit's configuration blocks and firmware.

use std::path::PathBuf;

use crate::flash::access::Access;
use crate::flash::backup::BackedUpUnit;
use crate::flash::backup_folder::FiledBackup;
use crate::flash::backup_folder::{self, BackupPlaces, Filed, Pointer, UnreadBackup};
use crate::flash::progress::{FlashEvent, FlashStep};
use crate::flash::whole_flash::{self, WholeFlashReport};
use crate::image::OpenImage;
use asm2464::escape::Escape as _;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress as _;
use asm2464::{AnyFailure, Coded as _, Failure, Kind};
use asm2464_host::bridge::Port;
use serde::Serialize;

use crate::cli::commands::flash::Screen;
use crate::cli::commands::flash::steps::cure;
use crate::cli::given::arguments::{self, BackupPlace, UnitsArgs};
use crate::cli::given::context::Context;
use crate::cli::given::user_files;
use crate::cli::words::errors::{self, ErrorJson, Exit};
use crate::cli::words::interrupt;
use crate::cli::words::worded_step::WordedStep;
use crate::cli::words::{print, table};

/// Save a unit's configuration blocks and firmware, with digests.
///
/// Reads everything and writes nothing to the unit. A unit in its boot loader can't be read.
///
/// With --whole-flash it then reads every byte of the flash of a unit with open firmware, which takes a while. If it stops,
/// the same command continues. Stock firmware lets nobody read that much: there the exit status is 5, and the backup is
/// complete without it.
#[derive(Debug, clap::Args)]
#[command(mut_arg("all", |all| all.help(ALL)))]
#[command(
    after_help = "Examples:\n  asmpatch backup\n  asmpatch backup --device 3-1.2 -o before\n  asmpatch backup --all\n  asmpatch backup --whole-flash\n  asmpatch backup --list"
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
    #[arg(long, conflicts_with_all = ["output", "whole_flash", "device", "all", "usb_ids", "device_dirs", "pcap"])]
    list: bool,

    #[command(flatten)]
    units: UnitsArgs,

    /// Print JSON: an object or, with --all or several units, an array.
    #[arg(long)]
    json: bool,
}

const ALL: &str = "Back up all connected units, one after the other, whatever ASMPATCH_DEVICE names. --device more than once \
                   names several. A unit that fails doesn't stop the others";

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct BackupJson {
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

/// A unit of several that can't be backed up.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct FailedJson {
    /// The unit's port, as `--device` takes it.
    device: String,
    /// Why there is no backup of it.
    error: ErrorJson,
}

/// What became of a unit.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(in crate::cli) enum UnitJson {
    Saved(Box<BackupJson>),
    Failed(Box<FailedJson>),
}

impl print::Document for UnitJson {
    const VERSION: u32 = 2;
}

/// A backup in the list.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct ListedBackup {
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
    /// If it was saved elsewhere, and only its pointer in the default folder was looked at: that file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    /// The host that saved it elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// In a list: the command that writes it back, which lacks the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    restore: Option<WordedStep>,
}

/// A backup in the list that can't be read.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct UnreadJson {
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
pub(in crate::cli) enum ListedJson {
    Backup(Box<ListedBackup>),
    Unread(Box<UnreadJson>),
}

impl print::Document for ListedJson {
    const VERSION: u32 = 2;
}

impl From<FiledBackup> for ListedBackup {
    fn from(FiledBackup { folder, written, unit, pointer, .. }: FiledBackup) -> Self {
        let (pointer, host) = pointer.map(|Pointer { file, host }| (file.display().to_string(), host)).unzip();
        Self {
            backup: folder.display().to_string(),
            date: written.map(|time| humantime::format_rfc3339_seconds(time).to_string()),
            device: unit.device,
            usb_id: unit.usb_id,
            state: unit.state,
            serial: unit.serial,
            product: unit.product,
            version: unit.firmware_version,
            pointer,
            host,
            restore: None,
        }
    }
}

/// Describes a backup without what its firmware is.
pub(in crate::cli) fn lines(backup: &FiledBackup) -> Vec<(&'static str, String)> {
    let BackedUpUnit { usb_id, state, serial, product, firmware_version, .. } = &backup.unit;
    let version = firmware_version.as_ref().map_or_else(|| state.clone(), |version| format!("{state} {version}"));
    let mut lines = vec![
        ("unit", format!("{usb_id} {product}, serial {serial}")),
        ("firmware", version),
        ("date", backup.written.map_or_else(|| "not known".to_owned(), user_files::time)),
    ];
    lines.extend(
        backup
            .pointer
            .as_ref()
            .map(|Pointer { file, host }| ("saved", format!("by host {host}; known here by {} alone", file.display()))),
    );
    lines.into_iter().map(|(label, text)| (label, text.shown().to_string())).collect()
}

/// The command that writes a backup back, once the user has added the unit.
fn restore_step(backup: &FiledBackup, context: &Context) -> WordedStep {
    let command = context.invocation.other("restore");
    let command = match backup.digits() {
        Some(digits) => command.operand(digits),
        None => command.operand(&backup.folder),
    };
    WordedStep::lacking_unit("write it back to its unit", command)
}

/// Lists the backups in the places for them, the newest last, and then those that can't be read. These decide the exit
/// status.
fn list(args: &Args, context: &Context) -> Exit {
    // Nothing was named beside which there may be others.
    let places = BackupPlaces { beside: Vec::new(), ..args.place.places([]) };
    let Filed { mut backups, unread } = places.search();
    backups.sort_by(|a, b| (a.written, &a.folder).cmp(&(b.written, &b.folder)));
    let exit = unread.iter().map(|unread| Exit::from(unread.failure().kind())).max().unwrap_or(Exit::Done);
    if args.json {
        let readable = backups.into_iter().map(|backup| {
            let restore = Some(restore_step(&backup, context));
            ListedJson::Backup(Box::new(ListedBackup { restore, ..backup.into() }))
        });
        let unread = unread.iter().map(|unread| ListedJson::Unread(Box::new(UnreadJson::of(unread))));
        print::json_each(&readable.chain(unread).collect::<Vec<_>>());
        return exit;
    }
    if backups.is_empty() && unread.is_empty() {
        outln!("no backups in {}", places.shown());
    }
    for backup in backups {
        outln!("{}", backup.folder.shown());
        let mut lines = lines(&backup);
        lines.extend(restore_step(&backup, context).command.map(|command| ("restore", command.to_string())));
        table::print_labelled(2, lines);
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
/// Fails if no unit is found, or the only unit can't be read, or the folder can't be written. The failure of one of
/// several units is reported here.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    if args.list {
        return Ok(list(args, context));
    }
    args.output.as_deref().map(user_files::check_name).transpose()?;
    let interrupt = interrupt::install();
    let recording = args.units.pcap.start()?;
    let ports = args.units.ports(recording.capture())?;
    if ports.len() > 1 && args.output.is_some() {
        let devices: Vec<String> = ports.iter().map(|port| port.location().to_string()).collect();
        let message = format!("a folder takes one backup, and there are {}: {}", devices.len(), devices.join(", "));
        let label = Kind::Refused.code("asmpatch::backup::several");
        return Err(Failure::new(label, message).into());
    }
    let is_one = ports.len() == 1 && !args.units.all;
    let (mut documents, mut exit) = (Vec::new(), Exit::Done);
    for mut port in ports {
        let location = port.location();
        let count = documents.len();
        let saved = back_up(&mut *port, args, context, interrupt, &mut documents);
        drop(port);
        let Err(failure) = saved else { continue };
        if is_one || failure.kind() == Kind::Interrupted {
            print_documents(args, is_one, &documents);
            return Err(failure);
        }
        let invocation = context.invocation.at(&location);
        exit = exit.max(errors::report(failure.coded(), &invocation));
        if documents.len() == count {
            let device = location.to_string();
            let error = ErrorJson::of(failure.coded(), &invocation).at(&device);
            documents.push(UnitJson::Failed(Box::new(FailedJson { device, error })));
        }
    }
    print_documents(args, is_one, &documents);
    Ok(exit)
}

/// Prints an object for one unit, and an array for several.
fn print_documents(args: &Args, is_one: bool, documents: &[UnitJson]) {
    match documents {
        _ if !args.json => {}
        [only] if is_one => print::json(only),
        // The failure has its own document.
        [] if is_one => {}
        several => print::json_each(several),
    }
}

/// Backs up one unit, and prints that unless it is to be printed as JSON. Adds the document of the backup.
///
/// # Errors
/// If there is no backup. Also if its firmware would not start, or if there is no copy of the whole flash: then the document
/// is added.
fn back_up(
    port: &mut dyn Port,
    args: &Args,
    context: &Context,
    interrupt: Interrupt<'static>,
    documents: &mut Vec<UnitJson>,
) -> Result<(), AnyFailure> {
    let mut access = Access::open(&mut *port)?;
    let backup = Screen::backup(context, &mut *port, &mut access, FlashStep::Backup, interrupt)?;
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => args.place.folder()?.join(backup.folder_name()),
    };
    let saved = backup_folder::save(&backup, &folder)?;
    if let Ok(default) = arguments::platforms_folder()
        && let Err(error) = backup_folder::leave_pointer(&saved.folder, &default)
    {
        errln!("asmpatch: {}", error.to_string().shown());
    }
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
    if !args.json {
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
    let error = failure.as_ref().map(|failure| ErrorJson::of(failure.coded(), &context.invocation));
    documents.push(UnitJson::Saved(Box::new(BackupJson {
        backup: saved.folder.display().to_string(),
        new: saved.is_new,
        device: backup.unit.device.clone(),
        usb_id: backup.unit.usb_id.clone(),
        serial: backup.unit.serial.clone(),
        version: backup.unit.firmware_version.clone(),
        restorable: firmware.is_ok(),
        whole_flash: copy,
        whole_flash_error: error.map(|error| error.at(&backup.unit.device)),
    })));
    match (failure, firmware) {
        (Some(failure), _) => Err(failure),
        (None, Ok(_)) => Ok(()),
        (None, Err(source)) => {
            let message = "the firmware in the unit's flash would not start";
            let label = Kind::CheckFailed.code("asmpatch::backup::unusable");
            Err(Failure::new(label, message).because(source).into())
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
