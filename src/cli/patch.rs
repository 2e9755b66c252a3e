//! The `asmpatch patch` command: patches an image.

use std::path::{Path, PathBuf};

use crate::failure::{AnyFailure, in_file};
use crate::patch::{ConfigEdits, Library, Patch, PatchOnImage, PatchSet, Patched, ReceiptImage, Selection};
use crate::shell;
use asm2464::escape::Escape as _;
use serde::Serialize;

use super::context::Context;
use super::errors::Exit;
use super::input::ImageFile;
use super::known::{self, PatchDirs};
use super::output;
use super::plan;
use super::{print, table};

/// Patch an image, and write a receipt beside it.
///
/// Writes nothing unless every byte that a patch expects is there. Recomputes checksum and CRC. The same inputs always
/// give the same bytes. `asmpatch unpatch` reverses it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch patch stock.bin -o patched.bin\n  asmpatch patch stock.bin -o patched.bin --patch e4-length-16\n  asmpatch patch --list"
)]
pub struct Args {
    /// The unpatched image, as `asmpatch download` fetches it.
    #[arg(required_unless_present = "list")]
    file: Option<PathBuf>,

    /// Where the patched image goes; its receipt goes to OUT.toml.
    #[arg(short, long, value_name = "OUT", required_unless_present_any = ["dry_run", "list"])]
    output: Option<PathBuf>,

    #[command(flatten)]
    patches: PatchDirs,

    /// Add a patch to the default set. Repeatable.
    #[arg(long = "patch", value_name = "ID")]
    add: Vec<String>,

    /// Leave out the default patches.
    #[arg(long)]
    no_defaults: bool,

    /// List the known patches, and what each is for.
    #[arg(long, conflicts_with_all = ["file", "output", "add", "no_defaults", "dry_run", "force"])]
    list: bool,

    /// Show what would change, and write nothing.
    #[arg(long)]
    dry_run: bool,

    /// Replace OUT and its receipt if they exist.
    #[arg(long)]
    force: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PatchReport<'a> {
    /// The image, in words.
    image: String,
    /// The image before.
    input: &'a ReceiptImage,
    /// The image after.
    output: &'a ReceiptImage,
    /// The patches, in the order in which they are applied.
    patches: Vec<PatchOnImage<'a>>,
    /// The fields of configuration block 0 that flashing changes.
    config: &'a ConfigEdits,
    /// The files that were written: image and receipt.
    written: Vec<String>,
}

impl print::Document for PatchReport<'_> {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file is not an image, the patches don't fit it or each other, or OUT exists or can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let library = args.patches.load()?;
    if args.list {
        list(&library, args.json);
        return Ok(Exit::Done);
    }
    // clap allows FILE to be missing only with --list.
    let Some(file) = args.file.as_deref() else { return Ok(Exit::Usage) };
    let input = ImageFile::read(file)?;
    let selection = Selection { no_defaults: args.no_defaults, add: args.add.clone() };
    let set = PatchSet::resolve(&library, &selection, &input.image, input.sha256).map_err(in_file(file))?;
    let mut patched = set.apply().map_err(in_file(file))?;
    patched.receipt.name_files(known::own_files(&set.patches)?);

    let written = match &args.output {
        Some(output) if !args.dry_run => write(file, output, args.force, &patched)?,
        _ => Vec::new(),
    };
    let on_image = |patch| PatchOnImage::new(patch, &set.digest, &input.image, &patched.image);
    let report = PatchReport {
        image: library.image_name(&set.digest),
        input: &patched.receipt.input,
        output: &patched.receipt.output,
        patches: set.patches.iter().copied().map(on_image).collect(),
        config: &set.config,
        written: written.iter().map(|path| path.display().to_string()).collect(),
    };
    if args.json {
        print::json(&report);
    } else {
        print(&report, args, file, &written, context);
    }
    Ok(Exit::Done)
}

impl print::Document for &Patch {
    const VERSION: u32 = 2;
}

fn list(library: &Library, json: bool) {
    if json {
        return print::json_each(&library.iter().collect::<Vec<_>>());
    }
    for Patch { id, title, default, images, .. } in library.iter() {
        let names: Vec<&str> = images.iter().map(|image| image.name.as_str()).collect();
        let names = if names.is_empty() { "any known image".to_owned() } else { names.join(", ") };
        let when = if *default { "by default" } else { "with --patch" };
        outln!("{}: {}", id.shown(), title.shown());
        outln!("  {when}, for {}", names.shown());
    }
}

fn write(input: &Path, output: &Path, force: bool, patched: &Patched) -> Result<Vec<PathBuf>, AnyFailure> {
    let receipt = output::receipt_path(output);
    let image = patched.image.to_file();
    let receipt_text = patched.receipt.to_string();
    output::write(&[(output, &image), (&receipt, receipt_text.as_bytes())], Some(input), force)?;
    Ok(vec![output.to_owned(), receipt])
}

fn print(report: &PatchReport<'_>, args: &Args, file: &Path, written: &[PathBuf], context: &Context) {
    let digest = context.digest(&report.output.sha256);
    outln!("{}: image {}, version {}", file.shown(), report.image.shown(), report.input.version);
    for patch in &report.patches {
        outln!("  {}: {}", patch.id.shown(), patch.title.shown());
    }
    if args.dry_run {
        plan::print_hunks(&report.patches);
        if !report.config.is_empty() {
            let fields = report.config.iter();
            let rows = fields.map(|(field, value)| [field.name().to_owned(), value.to_string().shown().to_string()]);
            table::print(["configuration field", "new value"], rows);
        }
        outln!("nothing written; the patched image would have SHA-256 {digest}");
    }
    if let [image, receipt] = written {
        outln!("wrote {}, SHA-256 {digest}", image.shown());
        outln!("wrote {}", receipt.shown());
        outln!("next: asmpatch flash {}{}", shell::path(image), args.patches.suffix());
    }
}
