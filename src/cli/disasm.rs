//! `asmpatch disasm`.

use std::path::PathBuf;

use serde::Serialize;

use super::input::ImageFile;
use super::{Context, print};
use crate::failure::{AnyFailure, Exit};
use crate::firmware::CodeAddress;
use crate::mcu::{self, Line};

/// Disassemble an image's code.
///
/// Knows the banks, the compiler's case tables, the bank-switch stubs, and the names of known routines. SDCC's
/// assembler accepts the output.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch disasm stock.bin c:0x2814\n  asmpatch disasm stock.bin b1:0xE89B -n 64")]
pub struct Args {
    /// The image.
    file: PathBuf,

    /// Where to begin: c:0x2A0D in the common area, b0:0xE975 in bank 0, b1:0xC98D in bank 1.
    #[arg(value_name = "ADDRESS")]
    at: CodeAddress,

    /// How many lines.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 32)]
    count: usize,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DisasmReport<'a> {
    /// The image.
    file: String,
    /// The version in it.
    version: String,
    /// The listing.
    lines: &'a [Line],
}

impl print::Document for DisasmReport<'_> {}

/// Runs the subcommand.
///
/// # Errors
/// Where the file can't be read or is no image.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let image = ImageFile::read(&args.file)?.image;
    let lines = mcu::listing(&image, args.at, args.count);
    if args.json {
        let report =
            DisasmReport { file: args.file.display().to_string(), version: image.version().to_string(), lines: &lines };
        print::json(&report);
    } else {
        for line in &lines {
            outln!("{line}");
        }
    }
    Ok(Exit::Done)
}
