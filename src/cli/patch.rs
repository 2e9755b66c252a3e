//! The `asmpatch patch` command: patches an image.

use std::path::{Path, PathBuf};

use crate::failure::{AnyFailure, in_file};
use crate::patch::{ConfigEdits, Effect, Library, PatchSet, Patched, ReceiptImage, Selection};
use crate::shell;
use asm2464::escape::Escape as _;
use asm2464_dock::files::atomic;
use serde::Serialize;

use super::context::Context;
use super::errors::Exit;
use super::input::ImageFile;
use super::known::{self, PatchDirs};
use super::output;
use super::plan::{self, PatchJson};
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
pub(super) struct PatchedJson<'a> {
    /// The image, in words.
    image: String,
    /// The image before.
    input: &'a ReceiptImage,
    /// The image after.
    output: &'a ReceiptImage,
    /// The patches, in the order in which they are applied.
    patches: Vec<PatchJson<'a>>,
    /// The fields of configuration block 0 that flashing changes.
    config: &'a ConfigEdits,
    /// The files that were written: image and receipt.
    written: Vec<String>,
}

impl print::Document for PatchedJson<'_> {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the file is not an image, the patches don't fit it or each other, or OUT exists or can't be written.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let manifests = crate::embedded::manifests(&[])?;
    let library = args.patches.load(&manifests)?;
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
    let image = library.image_name(&set.digest);
    if args.json {
        let patches = set.patches.iter().map(|patch| PatchJson::new(patch, &set.digest, &input.image, &patched.image));
        let json = PatchedJson {
            image,
            input: &patched.receipt.input,
            output: &patched.receipt.output,
            patches: patches.collect(),
            config: &set.config,
            written: written.iter().map(|path| path.display().to_string()).collect(),
        };
        print::json(&json);
    } else {
        let suffix = args.patches.suffix();
        let page = Page { file, dry_run: args.dry_run, image: &image, suffix: &suffix };
        print(&page, &set, &patched, &written, context);
    }
    Ok(Exit::Done)
}

/// A known patch, as `--list --json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct KnownPatchJson<'a> {
    /// Its id, as `--patch` takes it.
    id: &'a str,
    /// What it does, on one line.
    title: &'a str,
    /// What it is for.
    purpose: &'a str,
    /// Whether it is applied unless the user names patches.
    default: bool,
    /// What a patched image does differently, as far as asmpatch acts on it.
    effects: &'a [Effect],
    /// The names of the images that it has hunks for; empty if it fits any image because it changes only the
    /// configuration.
    images: Vec<&'a str>,
    /// The fields of configuration block 0 that flashing changes.
    config: &'a ConfigEdits,
}

impl print::Document for KnownPatchJson<'_> {
    const VERSION: u32 = 2;
}

fn list(library: &Library, json: bool) {
    let known: Vec<KnownPatchJson<'_>> = library
        .iter()
        .map(|patch| KnownPatchJson {
            id: &patch.id,
            title: &patch.title,
            purpose: &patch.purpose,
            default: patch.default,
            effects: &patch.effects,
            images: patch.images.iter().map(|image| image.name.as_str()).collect(),
            config: &patch.config,
        })
        .collect();
    if json {
        return print::json_each(&known);
    }
    for patch in &known {
        let images = if patch.images.is_empty() { "any known image".to_owned() } else { patch.images.join(", ") };
        let when = if patch.default { "by default" } else { "with --patch" };
        outln!("{}: {}", patch.id.shown(), patch.title.shown());
        outln!("  {when}, for {}", images.shown());
    }
}

fn write(input: &Path, output: &Path, force: bool, patched: &Patched) -> Result<Vec<PathBuf>, AnyFailure> {
    let receipt = output::receipt_path(output);
    for path in [output, &receipt] {
        output::check(path, input, force)?;
    }
    let image = patched.image.to_file();
    let receipt_text = patched.receipt.to_string();
    atomic::write_all(&[(output, &image), (&receipt, receipt_text.as_bytes())])?;
    Ok(vec![output.to_owned(), receipt])
}

/// What is printed about a patched file.
struct Page<'a> {
    file: &'a Path,
    dry_run: bool,
    image: &'a str,
    /// Options that each printed command needs to find the patches.
    suffix: &'a str,
}

fn print(page: &Page<'_>, set: &PatchSet<'_>, patched: &Patched, written: &[PathBuf], context: &Context) {
    let Page { file, dry_run, image, suffix } = *page;
    let digest = context.digest(&patched.receipt.output.sha256);
    outln!("{}: image {}, version {}", file.shown(), image.shown(), set.base.version());
    for patch in &set.patches {
        outln!("  {}: {}", patch.id.shown(), patch.title.shown());
    }
    if dry_run {
        plan::print_hunks(set.hunks(), set.base, &patched.image);
        if !set.config.is_empty() {
            let fields = set.config.iter();
            let rows = fields.map(|(field, value)| [field.name().to_owned(), value.to_string().shown().to_string()]);
            table::print(["configuration field", "new value"], rows);
        }
        outln!("nothing written; the patched image would have SHA-256 {digest}");
    }
    if let [image, receipt] = written {
        outln!("wrote {}, SHA-256 {digest}", image.shown());
        outln!("wrote {}", receipt.shown());
        outln!("next: asmpatch flash {}{suffix}", shell::path(image));
    }
}
