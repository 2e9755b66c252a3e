//! The `asmpatch disasm` command: disassembles an image's code.

use std::path::PathBuf;

use serde::Serialize;

use super::input::ImageFile;
use super::names::{LoadedSymbols, SymbolsReport};
use super::{AnyFailure, Context, Exit, print};
use crate::firmware::CodeAddress;
use crate::mcu::{self, Line};

/// Disassemble an image's code.
///
/// Knows the banks, the compiler's case tables, the bank-switch stubs, and the names of known routines; with --symbols,
/// also those of your firmware. SDCC's assembler accepts the instructions.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch disasm stock.bin c:0x2814\n  asmpatch disasm stock.bin b1:0xE89B -n 64\n  asmpatch disasm fw.bin c:0x0200 --symbols fw.map"
)]
pub struct Args {
    /// The image.
    file: PathBuf,

    /// Where to begin: c:0x2A0D in the common area, b0:0xE975 in bank 0, b1:0xC98D in bank 1.
    #[arg(value_name = "ADDRESS")]
    at: CodeAddress,

    /// Number of lines.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 32)]
    count: usize,

    /// Take names from SDCC's NAME.map or NAME.cdb, or from an ELF; may be given more than once.
    #[arg(long, value_name = "FILE")]
    symbols: Vec<PathBuf>,

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
    /// The files of --symbols.
    symbols: &'a [SymbolsReport],
    /// The listing.
    lines: &'a [Line],
}

impl print::Document for DisasmReport<'_> {}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file can't be read or is no image.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let image = ImageFile::read(&args.file)?.image;
    let names = LoadedSymbols::read(&args.symbols, &image)?;
    let lines = mcu::listing(&image, &names.names, args.at, args.count);
    if args.json {
        let (file, version) = (args.file.display().to_string(), image.version().to_string());
        print::json(&DisasmReport { file, version, symbols: &names.files, lines: &lines });
    } else {
        for file in &names.files {
            errln!("{file}");
        }
        for line in &lines {
            outln!("{line}");
        }
    }
    Ok(Exit::Done)
}
