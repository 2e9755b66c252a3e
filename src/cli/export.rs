//! The `asmpatch export` command: writes an image as an ELF file.

use std::path::PathBuf;

use super::input::ImageFile;
use super::output;
use super::{AnyFailure, Context, Exit};
use crate::atomic;
use crate::escape::Escape as _;
use crate::firmware::{elf_of_image, known_routines};

/// Write an image as an ELF file, for readelf, objdump and disassemblers.
///
/// The common area and both banks are sections, the known routines are symbols. Bank 1 is at 0x18000, as SDCC writes
/// banked addresses: the bank's number in bits 16 to 23.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch export stock.bin --elf stock.elf")]
pub struct Args {
    /// The image.
    file: PathBuf,

    /// Where the ELF file goes.
    #[arg(long, value_name = "OUT")]
    elf: PathBuf,

    /// Replace OUT if it exists.
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file is no image, or if OUT exists or can't be written.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let input = ImageFile::read(&args.file)?;
    output::check(&args.elf, &args.file, args.force)?;
    atomic::write(&args.elf, &elf_of_image(&input.image))?;
    let symbols =
        known_routines(input.image.version()).filter(|routine| input.image.code(routine.at).is_some()).count();
    outln!("wrote {}: version {}, {symbols} symbols", args.elf.shown(), input.image.version());
    Ok(Exit::Done)
}
