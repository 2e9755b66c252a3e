//! The `asmpatch backup` command: saves a unit's configuration blocks and firmware.

use std::path::PathBuf;

use crate::failure::{AnyFailure, Failure};
use crate::flash::backup::BackedUpUnit;
use crate::flash::backup_folder;
use crate::flash::open_image::OpenImage;
use crate::flash::progress::FlashStep;
use asm2464::Kind;
use asm2464::escape::Escape as _;
use serde::Serialize;

use super::backup_place::BackupPlace;
use super::context::Context;
use super::device::PortArgs;
use super::flash::Screen;
use super::{print, table};
use crate::cli::errors::Exit;
use crate::cli::interrupt;

/// Save a unit's configuration blocks and firmware, with digests.
///
/// Reads everything and writes nothing to the unit. A unit in its boot loader can't be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch backup\n  asmpatch backup --device 3-1.2 -o before")]
pub struct Args {
    /// Create the backup in this folder; by default asmpatch-backup-SERIAL-DIGEST, where all backups go. Never
    /// overwrites an existing folder.
    #[arg(short, long, value_name = "DIR", conflicts_with = "backup_dir")]
    output: Option<PathBuf>,

    #[command(flatten)]
    place: BackupPlace,

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
}

impl print::Document for BackupJson {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, the unit can't be read, or the folder can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let interrupt = interrupt::install();
    let (_recording, mut port) = args.port.open()?;
    let backup = Screen::backup(context, &mut *port, FlashStep::Backup, interrupt)?;
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => args.place.folder()?.join(backup.folder_name()),
    };
    let saved = backup_folder::save(&backup, &folder)?;
    let firmware = backup.firmware();
    if args.json {
        let json = BackupJson {
            backup: saved.folder.display().to_string(),
            new: saved.is_new,
            device: backup.unit.device,
            usb_id: backup.unit.usb_id,
            serial: backup.unit.serial,
            version: backup.unit.firmware_version,
            restorable: firmware.is_ok(),
        };
        print::json(&json);
    } else {
        let BackedUpUnit { device, usb_id, state, serial, .. } = &backup.unit;
        outln!("{}: {usb_id} ({state}), serial {}", device.shown(), serial.shown());
        let mut lines = Vec::new();
        if let Ok(image) = &firmware {
            let what = match OpenImage::of(image) {
                Some(open) => open.to_string(),
                None => format!("version {}", image.version()),
            };
            lines.push(("firmware", format!("{what}, {} bytes", image.file_len())));
        }
        lines.push(("backup", saved.to_string().shown().to_string()));
        table::print_labelled(2, lines);
    }
    match firmware {
        Ok(_) => Ok(Exit::Done),
        Err(source) => {
            let message = format!("the firmware in the unit's flash would not start: {source}");
            Err(Failure::new(Kind::CheckFailed.code("asmpatch::backup::unusable"), message).because(source).into())
        }
    }
}
