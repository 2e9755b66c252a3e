//! `asmpatch flash`.

mod ask;
mod screen;
mod session;
mod show;
mod source;
mod terminal;

use std::path::PathBuf;

use super::Context;
use super::known::PatchDirs;
use crate::failure::{AnyFailure, Exit};
use crate::flash::backup_folder;
use crate::flash::plan::Plan;
use crate::flash::recovery::Origin;
use crate::unit::Selector;

pub use screen::Screen;
pub use session::Session;

/// Write an image to a bridge, with a backup before and a readback after.
///
/// Shows what will be written and asks. The image must be known, or have the receipt of `asmpatch patch`. The unit's
/// own configuration blocks are kept but for the fields that the patches name. Writing begins with an erase of the
/// whole slot: if it stops half-way, the unit comes up in the boot loader in its ROM, and the command that is printed
/// then brings it back.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The receipt that `asmpatch patch` wrote for it; by default FILE.toml, where that is there.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,

    /// Write every bridge at once: all that are connected, or all that are named with --device.
    #[arg(long)]
    all: bool,

    /// Take the configuration blocks from a backup in place of the unit: what the boot loader can't give.
    #[arg(long, value_name = "DIR")]
    config_from: Option<PathBuf>,

    /// Give the unit this serial number: at most 20 printable ASCII characters.
    #[arg(long, value_name = "TEXT", conflicts_with = "all")]
    serial: Option<String>,

    #[command(flatten)]
    patches: PatchDirs,

    #[command(flatten)]
    writing: WritingArgs,
}

/// What every command that writes a unit takes.
#[derive(Debug, Clone, clap::Args)]
pub struct WritingArgs {
    /// The unit: a port path as in 3-1.2, a serial number, or a virtual bridge in a folder. With one bridge connected
    /// it can be left out. May be given more than once with --all.
    #[arg(long, value_name = "PORT|SERIAL|virtual[:DIR]", env = "ASMPATCH_DEVICE")]
    pub device: Vec<Selector>,

    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,

    /// Write without a backup: for a unit that can give none.
    #[arg(long)]
    pub no_backup: bool,

    /// Where the backup's folder goes.
    #[arg(long, value_name = "DIR", default_value = ".", conflicts_with = "no_backup")]
    pub backup_dir: PathBuf,

    /// Print what was done as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// Whatever stops it before the first write; what stops a write is reported here, unit by unit.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let source = source::Source::read(&args.file, args.receipt.as_deref(), &args.patches, args.serial.as_deref())?;
    let blocks_from = args.config_from.as_deref().map(backup_folder::load).transpose()?;
    let session = Session::open(&args.writing, args.all, context)?;
    let prepared = session.prepare(|attached, blocks| {
        Ok(Plan::flash(attached, blocks, blocks_from.as_ref(), &source.image, |block| source.edit(block))?)
    })?;
    let origin = Origin::Flash {
        file: args.file.clone(),
        options: source.options(args.receipt.as_deref(), &args.patches, args.serial.as_deref()),
        config_from: args.config_from.clone(),
    };
    prepared.write(&source.to_string(), &origin)
}
