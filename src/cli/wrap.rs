//! The `asmpatch wrap` command: puts code into the chip's container.

use std::path::PathBuf;

use crate::failure::{AnyFailure, in_file};
use crate::shell;
use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::Part;
use asm2464_chip::code::{CodeFormat, image_of_code};
use serde::Serialize;

use super::context::Context;
use super::errors::Exit;
use super::input;
use super::output;
use super::print;

/// The longest code file that is read, in bytes: more than Intel HEX or ELF of the longest image needs, with debug
/// information.
const MAX_CODE_FILE: usize = 4 << 20;

/// Put code into the container that the chip starts: length, magic, checksum and CRC-32.
///
/// For firmware other than the vendor's, such as a build of tinygrad's open firmware. The code is raw bytes from
/// address 0, Intel HEX, or ELF for the 8051; asmpatch detects which.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch wrap open.hex -o open.bin")]
pub struct Args {
    /// The code.
    #[arg(value_name = "CODE")]
    file: PathBuf,

    /// Where the image goes.
    #[arg(short, long, value_name = "IMAGE")]
    output: PathBuf,

    /// Replace IMAGE if it exists.
    #[arg(long)]
    force: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct WrapJson {
    /// The files that were written: the image.
    written: [String; 1],
    /// The format of the code file.
    format: CodeFormat,
    /// Bytes of the image.
    size: usize,
    /// Parts of the flash that it takes: 1 or 2.
    parts: usize,
    /// The image's SHA-256.
    sha256: Sha256Digest,
}

impl print::Document for WrapJson {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file holds no code for this chip, or if IMAGE exists or can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let bytes = input::read(&args.file, MAX_CODE_FILE)?;
    let image = image_of_code(&bytes).map_err(in_file(&args.file))?;
    let file = image.to_file();
    output::write(&[(&args.output, &file)], Some(&args.file), args.force)?;
    let format = CodeFormat::of(&bytes);
    let sha256 = Sha256Digest::of(&file);
    let parts = Part::ALL.into_iter().filter(|part| !part.of(&file).is_empty()).count();
    if args.json {
        let written = [args.output.display().to_string()];
        print::json(&WrapJson { written, format, size: file.len(), parts, sha256 });
        return Ok(Exit::Done);
    }
    outln!("{}: {format}, {} bytes of code", args.file.shown(), image.body().len());
    outln!("wrote {}: {} bytes, SHA-256 {}", args.output.shown(), file.len(), context.digest(&sha256));
    if !context.is_quiet {
        outln!("next: asmpatch verify --boot {}", shell::path(&args.output));
    }
    Ok(Exit::Done)
}
