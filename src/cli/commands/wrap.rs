//! The `asmpatch wrap` command: puts code into the chip's container.

use std::path::PathBuf;

use crate::embedded;
use crate::failure::in_file;
use crate::file_kind::{FileKind, unfilled};
use crate::patch;
use asm2464::AnyFailure;
use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::Part;
use asm2464_chip::code::{CodeFormat, image_of_code};
use serde::Serialize;

use crate::cli::given::arguments::PatchDirs;
use crate::cli::given::context::Context;
use crate::cli::given::{image_file, user_files};
use crate::cli::words::errors::Exit;
use crate::cli::words::print;

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
pub(in crate::cli) struct WrapJson {
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
    /// The known image that it is, or is made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

impl print::Document for WrapJson {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file holds no code for this chip, or if IMAGE exists or can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let (mut bytes, kind) = image_file::look(&args.file)?;
    if matches!(kind, FileKind::Body(_) | FileKind::Unknown) {
        let len = unfilled(&bytes).len();
        if len < bytes.len() {
            let (shown, filling) = (args.file.shown(), bytes.len() - len);
            errln!("{shown}: the code ends after {len} bytes; the {filling} bytes FF behind it are left out");
            bytes.truncate(len);
        }
    }
    let image = match kind {
        FileKind::Body(image) => image,
        FileKind::Code(_) | FileKind::Image(_) | FileKind::Text(_) | FileKind::Empty | FileKind::Unknown => {
            image_of_code(&bytes).map_err(in_file(&args.file))?
        }
        kind => return Err(image_file::no_code(&kind, &args.file)),
    };
    let file = image.to_file();
    user_files::write(&[(&args.output, &file)], Some(&args.file), args.force)?;
    let format = CodeFormat::of(&bytes);
    let sha256 = Sha256Digest::of(&file);
    let parts = Part::ALL.into_iter().filter(|part| !part.of(&file).is_empty()).count();
    let library = PatchDirs::default().load()?;
    let mut known =
        patch::identify(&library, &image, sha256).map(|known| (library.image_name(&known.base), known.patches));
    // The library knows the images that patches change; a build of open firmware is known as it is.
    if known.is_none() {
        let manifests = embedded::manifests(&[])?;
        known = manifests.by_sha256(&sha256).map(|manifest| (manifest.id.clone(), Vec::new()));
    }
    if args.json {
        let known = known.map(|(name, _)| name);
        let written = [args.output.display().to_string()];
        print::json(&WrapJson { written, format, size: file.len(), parts, sha256, image: known });
        return Ok(Exit::Done);
    }
    outln!("{}: {format}, {} bytes of code", args.file.shown(), image.body().len());
    outln!("wrote {}: {} bytes, SHA-256 {}", args.output.shown(), file.len(), context.digest(&sha256));
    if let Some((name, patches)) = known {
        let with = if patches.is_empty() { "unpatched" } else { "patched" };
        outln!("it is the image {}, {with}", name.shown());
    }
    if !context.is_quiet {
        outln!("next:");
        outln!("    {}", context.invocation.other("verify --boot").operand(&args.output));
        outln!("    {}", context.invocation.other("flash").operand(&args.output));
    }
    Ok(Exit::Done)
}
