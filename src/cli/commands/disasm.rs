//! The `asmpatch disasm` command: disassembles an image's code, or writes it as an ELF file.

use std::path::{Path, PathBuf};

use asm2464::AnyFailure;
use asm2464::escape::Escape as _;
use asm2464::firmware::{CodeAddress, Image, known_routines};
use asm2464_chip::code::elf_of_image;
use asm2464_chip::disasm::{self, Line};
use serde::Serialize;

use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::symbols::{LoadedSymbols, SymbolsReport, code_address};
use crate::cli::given::{named_image, user_files};
use crate::cli::words::errors::Exit;
use crate::cli::words::print;

/// Disassemble an image's code.
///
/// Knows the banks, the compiler's case tables, the bank-switch stubs, and the names of known routines; with --symbols,
/// also those of your firmware. SDCC's assembler accepts the instructions.
///
/// With --elf it writes the whole image for other disassemblers instead: the common area and both banks are sections,
/// the known routines are symbols. Bank 1 is at 0x18000, as SDCC writes banked addresses: the bank's number in bits 16
/// to 23.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch disasm stock.bin c:0x2814\n  asmpatch disasm stock.bin b1:0xE89B -n 64\n  asmpatch disasm fw.bin c:0x0200 --symbols fw.map\n  asmpatch disasm stock.bin --elf stock.elf"
)]
pub struct Args {
    /// The image: a file, or the ID of a known one, which is downloaded.
    #[arg(value_name = "FILE|ID")]
    file: PathBuf,

    /// Where to begin: 0x2A0D or c:0x2A0D in the common area, b0:0xE975 in bank 0, b1:0xC98D in bank 1.
    #[arg(value_name = "ADDRESS", value_parser = code_address, required_unless_present = "elf")]
    at: Option<CodeAddress>,

    /// Number of lines.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 32)]
    count: usize,

    /// Take names from SDCC's NAME.map or NAME.cdb, or from an ELF; may be given more than once.
    #[arg(long, value_name = "FILE")]
    symbols: Vec<PathBuf>,

    /// Write the image as an ELF file to OUT instead.
    #[arg(long, value_name = "OUT", conflicts_with_all = ["at", "count", "symbols", "json"])]
    elf: Option<PathBuf>,

    /// Replace OUT if it exists.
    #[arg(long, requires = "elf")]
    force: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct DisasmReport<'a> {
    /// The image.
    file: String,
    /// The version in it.
    version: String,
    /// The files of --symbols.
    symbols: &'a [SymbolsReport],
    /// The listing.
    lines: &'a [Line],
}

impl print::Document for DisasmReport<'_> {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file can't be read or is not an image, or if OUT exists or can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let (_, file) = named_image::place(&args.file, context)?;
    let image = image_file::image(&file, Wish::Look)?;
    match (&args.elf, args.at) {
        (Some(elf), _) => write_elf(args, &image, elf)?,
        (None, Some(at)) => list(args, &image, at)?,
        // clap requires one of them.
        (None, None) => return Ok(Exit::Usage),
    }
    Ok(Exit::Done)
}

fn write_elf(args: &Args, image: &Image, elf: &Path) -> Result<(), AnyFailure> {
    user_files::write(&[(elf, &elf_of_image(image))], Some(&args.file), args.force)?;
    let symbols = known_routines(image.version()).filter(|routine| image.code(routine.at).is_some()).count();
    outln!("wrote {}: {}, {symbols} symbols", elf.shown(), image.version().words());
    Ok(())
}

fn list(args: &Args, image: &Image, at: CodeAddress) -> Result<(), AnyFailure> {
    let names = LoadedSymbols::read(&args.symbols, image)?;
    let lines = disasm::listing(image, &names.names, at, args.count);
    if args.json {
        let (file, version) = (args.file.display().to_string(), image.version().to_string());
        print::json(&DisasmReport { file, version, symbols: &names.files, lines: &lines });
    } else {
        for file in &names.files {
            errln!("{file}");
        }
        for line in &lines {
            // A name stands above its first instruction.
            for text in line.to_string().lines() {
                outln!("{text}");
            }
        }
    }
    Ok(())
}
