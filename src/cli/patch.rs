//! The `asmpatch patch` command: patches an image.

use std::path::{Path, PathBuf};

use crate::failure::AnyFailure;
use crate::patch::{
    ConfigEdits, EarlyAnswer, Effect, Library, NotProven, PatchError, PatchSet, Patched, Readiness, ReceiptImage,
    Selection, early_answer,
};
use crate::shell;
use asm2464::escape::Escape as _;
use asm2464::scsi::runtime::Variables;
use asm2464_dock::files::atomic;
use serde::Serialize;

use super::context::Context;
use super::errors::Exit;
use super::input::{ImageFile, InFile};
use super::known::{self, PatchDirs};
use super::output;
use super::plan::{self, PatchJson};
use super::{print, proof, table};
use crate::cli::interrupt;

/// Patch an image, and write a receipt beside it.
///
/// Writes nothing unless every byte that a patch expects is there. Recomputes checksum and CRC. The same inputs always
/// give the same bytes. `asmpatch unpatch` reverses it.
///
/// For a vendor image that no patch is made for, a patch may know its place by a signature: code that must be there
/// exactly once. Such an image is written only after its effect is proven on the chip model.
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
    /// What the chip model showed, if a patch found its place by signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<ProofJson>,
    /// The files that were written: image and receipt.
    written: Vec<String>,
}

impl print::Document for PatchedJson<'_> {}

/// What the chip model showed of a patch by signature.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProofJson {
    /// How many checks of the boot the patched image answers as the unpatched one.
    checks: usize,
    /// Whether a GPU runtime's initialisation, which is made for 240417, has its effect on this image.
    runtime_initialises: bool,
    /// If not, the addresses in XDATA by which the chip model initialised it.
    variables: Option<VariablesJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct VariablesJson {
    /// The state of the device behind the bridge: 4 is ready.
    state: u16,
    /// The sectors in a slot of the SRAM: 0x20.
    sectors: u16,
}

impl ProofJson {
    fn of(proof: EarlyAnswer) -> Self {
        let variables = match proof.readiness {
            Readiness::Runtime => None,
            Readiness::Variables { state, sectors } => Some(VariablesJson { state, sectors }),
        };
        Self { checks: proof.checks, runtime_initialises: variables.is_none(), variables }
    }
}

/// Proves the effect of the patches that found their place by signature; `None` if there are none.
fn prove(
    file: &Path,
    set: &PatchSet<'_>,
    patched: &Patched,
    context: &Context,
) -> Result<Option<EarlyAnswer>, AnyFailure> {
    let mut proof = None;
    for (_, hunk) in set.located() {
        let budget = || proof::budget(context);
        let proven = early_answer(set.base, &patched.image, hunk, budget, interrupt::install());
        proof = Some(proven.map_err(InFile::<NotProven>::named(file))?);
    }
    Ok(proof)
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
    let named = || InFile::<PatchError>::named(file);
    let set = PatchSet::resolve(&library, &selection, &input.image, input.sha256).map_err(named())?;
    let mut patched = set.apply().map_err(named())?;
    patched.receipt.name_files(known::own_files(&set.patches)?);
    let proof = prove(file, &set, &patched, context)?;

    let written = match &args.output {
        Some(output) if !args.dry_run => write(file, output, args.force, &patched)?,
        _ => Vec::new(),
    };
    let (base, is_known) = (set.digest, library.images().contains_key(&set.digest));
    let image = if is_known { library.image_name(&base) } else { "unknown".to_owned() };
    if args.json {
        let patches = set.patches.iter().map(|patch| PatchJson::new(patch, &base, &input.image, &patched.image));
        let json = PatchedJson {
            image,
            input: &patched.receipt.input,
            output: &patched.receipt.output,
            patches: patches.collect(),
            config: &set.config,
            proof: proof.map(ProofJson::of),
            written: written.iter().map(|path| path.display().to_string()).collect(),
        };
        print::json(&json);
    } else {
        let suffix = args.patches.suffix();
        let told = Told { file, dry_run: args.dry_run, image: &image, is_known, proof, suffix: &suffix };
        print(&told, &set, &patched, &written, context);
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
    /// The names of the images that it has hunks for; empty if it fits any image because it changes only the configuration.
    images: Vec<&'a str>,
    /// Whether it can find its place in other images by signature.
    by_signature: bool,
    /// The fields of configuration block 0 that flashing changes.
    config: &'a ConfigEdits,
}

impl print::Document for KnownPatchJson<'_> {}

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
            by_signature: !patch.signatures.is_empty(),
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
        let others = if patch.by_signature { "; others by signature" } else { "" };
        outln!("  {when}, for {}{others}", images.shown());
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

/// What is said of a patched file.
struct Told<'a> {
    file: &'a Path,
    dry_run: bool,
    image: &'a str,
    is_known: bool,
    proof: Option<EarlyAnswer>,
    /// Options that each printed command needs to find the patches.
    suffix: &'a str,
}

fn print(told: &Told<'_>, set: &PatchSet<'_>, patched: &Patched, written: &[PathBuf], context: &Context) {
    let Told { file, dry_run, image, is_known, proof, suffix } = *told;
    let digest = context.digest(&patched.receipt.output.sha256);
    outln!("{}: image {}, version {}", file.shown(), image.shown(), set.base.version());
    for patch in &set.patches {
        outln!("  {}: {}", patch.id.shown(), patch.title.shown());
    }
    for (patch, hunk) in set.located() {
        outln!("  {}: made for other images; found its place by signature, once, at {}", patch.id.shown(), hunk.at);
    }
    if let Some(EarlyAnswer { readiness, checks }) = proof {
        outln!(
            "  proven on the chip model, never run on silicon: WRITE(16) over UAS is answered at once, and never without \
             the patch; READ(16), WRITE(16) over Bulk-Only and the {checks} checks of the boot end as before"
        );
        if let Readiness::Variables { state, sectors } = readiness {
            outln!(
                "  note: GPU runtimes initialise the variables of 240417, which are elsewhere in this image. One that does \
                 not know this image gets 2/3A (medium not present) for each WRITE(16). The chip model set XDATA {state:#06x} to 4 \
                 and {sectors:#06x} to 0x20"
            );
        }
    }
    let answers = set.patches.iter().any(|patch| patch.effects.contains(&Effect::AnswersWrites));
    if proof.is_none() && answers && Variables::of(set.base.version()) != Some(Variables::As240417) {
        outln!(
            "  note: GPU runtimes initialise the variables of 240417, which are elsewhere in this image. One that does"
        );
        outln!(
            "  not know this image gets 2/3A (medium not present) for each WRITE(16): docs/firmware.md, \"Other versions\""
        );
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
        let consent = if is_known { "" } else { " --unproven" };
        outln!("next: asmpatch flash{consent} {}{suffix}", shell::path(image));
    }
}
