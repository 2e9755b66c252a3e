//! The `asmpatch unpatch` command: removes the patches from an image.

use std::path::PathBuf;

use crate::failure::in_file;
use crate::patch::{self, Library, Patch, Receipt};
use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use serde::Serialize;

use crate::cli::given::arguments::PatchDirs;
use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::{named_image, user_files};
use crate::cli::words::errors::Exit;
use crate::cli::words::print;

/// Remove the patches from an image.
///
/// Restores the original byte for byte. Writes nothing unless the result's SHA-256 is a known image's.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch unpatch patched.bin -o stock.bin")]
pub struct Args {
    /// The patched image: a file, or the ID of a known image.
    #[arg(value_name = "FILE|ID")]
    file: PathBuf,

    /// Where the original goes.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[command(flatten)]
    patches: PatchDirs,

    /// Replace OUT if it exists.
    #[arg(long)]
    force: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct UnpatchJson<'a> {
    /// The known image, in words.
    image: &'a str,
    /// The patched image's SHA-256.
    input_sha256: Sha256Digest,
    /// The original's SHA-256.
    output_sha256: Sha256Digest,
    /// The ids of the patches that were removed.
    undone: Vec<&'a str>,
    /// The files that were written: the original.
    written: [String; 1],
}

impl print::Document for UnpatchJson<'_> {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file is not an image, is unknown or not patched, or if OUT exists or can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let (_, file) = named_image::place(&args.file, context)?;
    let image = image_file::image(&file, Wish::Unpatch)?;
    let input_sha256 = image.sha256();
    // The image's own digest tells whether the patches are right; a receipt only helps to find them.
    let receipt = user_files::receipt_of(&args.file, None).ok().flatten();
    let library = args.patches.load_with(receipt.as_ref(), &args.file)?;
    let undone = patch::unpatch(&library, &image, input_sha256)
        .map_err(|failure| receipt.and_then(|receipt| without_patches(&library, &receipt)).unwrap_or(failure));
    let undone = undone.map_err(in_file(&args.file))?;
    user_files::write(&[(&args.output, &undone.original.to_file())], Some(&args.file), args.force)?;

    let image = library.image_words(&undone.base, undone.original.version());
    let ids: Vec<&str> = undone.patches.iter().map(|patch: &&Patch| patch.id.as_str()).collect();
    let written = [args.output.display().to_string()];
    if args.json {
        let json = UnpatchJson { image: &image, input_sha256, output_sha256: undone.base, undone: ids, written };
        print::json(&json);
    } else {
        outln!("{}: image {} with {}", args.file.shown(), image.shown(), ids.join(", ").shown());
        outln!("wrote {}, SHA-256 {}", args.output.shown(), context.digest(&undone.base));
        if !context.is_quiet {
            outln!("next:");
            outln!("    {}", context.invocation.other("flash").operand(&args.output));
        }
    }
    Ok(Exit::Done)
}

/// Returns the failure of an image whose receipt names patches that are not there.
fn without_patches(library: &Library, receipt: &Receipt) -> Option<Failure> {
    let missing: Vec<String> = receipt
        .patches
        .iter()
        .filter(|patch| library.get(&patch.id).is_none())
        .map(|patch| match receipt.files.get(&patch.id) {
            Some(file) => format!("{} ({file})", patch.id),
            None => patch.id.clone(),
        })
        .collect();
    if missing.is_empty() {
        return None;
    }
    let label = Kind::BadInput.code("asmpatch::patch::missing");
    Some(Failure::new(label, format!("its receipt names patches that are not known: {}", missing.join(", "))))
}
