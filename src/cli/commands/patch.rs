//! The `asmpatch patch` command: patches an image. And a patch on an image as text: every hunk with its addresses, bytes
//! and instructions.

use std::path::{Path, PathBuf};

use asm2464::AnyFailure;
use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464_chip::disasm::Line;
use serde::Serialize;

use crate::cli::given::arguments::{self, PatchDirs};
use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::{named_image, user_files};
use crate::cli::words::errors::Exit;
use crate::cli::words::{print, table};
use crate::failure::in_file;
use crate::patch::{
    ConfigEdits, HunkOnImage, Library, Patch, PatchOnImage, PatchSet, Patched, ReceiptImage, Selection,
};

/// Patch an image, and write a receipt beside it.
///
/// Writes nothing unless every byte that a patch expects is there. Recomputes checksum and CRC. The same inputs always
/// give the same bytes. `asmpatch unpatch` reverses it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch patch stock.bin -o patched.bin\n  asmpatch patch stock.bin -o patched.bin --patch e4-length-16\n  asmpatch patch --list"
)]
pub struct Args {
    /// The unpatched image: a file, or the ID of a known image, such as 240417, which is downloaded.
    #[arg(required_unless_present = "list", value_name = "FILE|ID")]
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
pub(in crate::cli) struct PatchReport<'a> {
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
    let (_, place) = named_image::place(file, context)?;
    let image = image_file::image(&place, Wish::Patch)?;
    let selection = Selection { no_defaults: args.no_defaults, add: args.add.clone() };
    let set = PatchSet::resolve(&library, &selection, &image, image.sha256()).map_err(in_file(file))?;
    let mut patched = set.apply().map_err(in_file(file))?;
    patched.receipt.name_files(arguments::own_files(&set.patches));

    let written = match &args.output {
        Some(output) if !args.dry_run => write(file, output, args.force, &patched)?,
        _ => Vec::new(),
    };
    let on_image = |patch| PatchOnImage::new(patch, &set.digest, &image, &patched.image);
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
        let has_own = !patched.receipt.files.is_empty();
        print(&report, args, file, &written, has_own, context);
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
    let receipt = user_files::receipt_path(output);
    let image = patched.image.to_file();
    let receipt_text = patched.receipt.to_string();
    user_files::write(&[(output, &image), (&receipt, receipt_text.as_bytes())], Some(input), force)?;
    Ok(vec![output.to_owned(), receipt])
}

/// `has_own` says whether a patch is the user's own.
fn print(report: &PatchReport<'_>, args: &Args, file: &Path, written: &[PathBuf], has_own: bool, context: &Context) {
    let digest = context.digest(&report.output.sha256);
    outln!("{}: image {}, version {}", file.shown(), report.image.shown(), report.input.version);
    for patch in &report.patches {
        outln!("  {}: {}", patch.id.shown(), patch.title.shown());
    }
    if args.dry_run {
        print_hunks(&report.patches);
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
        // A patch of the user's own may keep the image from starting, and `flash` refuses such a one.
        let next = if has_own { "verify --boot" } else { "flash" };
        outln!("next:");
        outln!("    {}", context.invocation.other(next).operand(image));
    }
}

/// Prints the hunks: place in the file and in code, bytes and instructions, before and after.
pub fn print_hunks(patches: &[PatchOnImage<'_>]) {
    for patch in patches {
        for hunk in &patch.hunks {
            print_hunk(patch.id, hunk);
        }
    }
}

fn print_hunk(patch: &str, hunk: &HunkOnImage<'_>) {
    let HunkOnImage { file_offset, address, expected, new, before, after } = hunk;
    let address = address.map(|address| format!(", {address}")).unwrap_or_default();
    outln!("  {}: {:#07x} in the file{address}", patch.shown(), file_offset.0);
    let blocks = [
        ("expected", byte_lines(expected)),
        ("new", byte_lines(new)),
        ("before", instruction_lines(before)),
        ("after", instruction_lines(after)),
    ];
    table::print_labelled(4, blocks.into_iter().flat_map(|(name, lines)| table::under(name, shortened(lines))));
}

/// The most lines of a hunk's bytes or instructions that are shown.
const SHOWN: usize = 8;

/// Cuts lines that would fill the screen.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let left = lines.len().saturating_sub(SHOWN);
    // The line that counts the others takes a line itself.
    if left > 1 {
        lines.truncate(SHOWN);
        lines.push(format!("... {left} more lines; --json has them all"));
    }
    lines
}

/// Runs of this many zeros or NOPs, or more, are counted instead of listed.
const FOLDED: usize = 8;
/// Bytes on a line.
const BYTES_A_LINE: usize = 16;

/// Formats bytes as lines. A run of zeros becomes a line with their number.
fn byte_lines(bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        let len = if zeros >= FOLDED {
            lines.push(format!("{zeros} zero bytes"));
            zeros
        } else {
            let folds = |at: &usize| rest[*at..].iter().take(FOLDED).filter(|byte| **byte == 0).count() == FOLDED;
            let len = (1..rest.len().min(BYTES_A_LINE)).find(folds).unwrap_or(rest.len().min(BYTES_A_LINE));
            lines.push(to_hex(&rest[..len], " "));
            len
        };
        rest = &rest[len..];
    }
    lines
}

/// Formats instructions as lines. A run of NOPs becomes a line with the number of zero bytes.
fn instruction_lines(lines: &[Line]) -> Vec<String> {
    let is_nop = |line: &Line| line.bytes.iter().all(|byte| *byte == 0);
    let mut listed = Vec::new();
    // A run of several lines is one of NOPs.
    for run in lines.chunk_by(|a, b| is_nop(a) && is_nop(b)) {
        if run.len() >= FOLDED {
            let zeros: usize = run.iter().map(|line| line.bytes.len()).sum();
            listed.push(format!("{} {zeros} zero bytes", run[0].at));
        } else {
            listed.extend(run.iter().map(|line| format!("{} {}", line.at, line.text)));
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{Bank, CodeAddress};
    use asm2464_chip::disasm::disassemble_in;
    use asm2464_chip::practice;

    use super::*;

    #[test]
    fn runs_of_zeros_and_of_nops_are_counted() {
        let image = practice::image();
        let mut code = vec![0; 358];
        assert_eq!(byte_lines(&code), ["358 zero bytes"]);
        let at = CodeAddress::new(Bank::Bank1, 0xEF4F).unwrap();
        assert_eq!(instruction_lines(&disassemble_in(&image, &code, at)), ["b1:0xEF4F 358 zero bytes"]);
        // MOV R7,#5 in the middle of the NOPs.
        (code[100], code[101]) = (0x7F, 5);
        assert_eq!(byte_lines(&code), ["100 zero bytes", "7f 05", "256 zero bytes"]);
        let lines = instruction_lines(&disassemble_in(&image, &code, at));
        assert_eq!(lines, ["b1:0xEF4F 100 zero bytes", "b1:0xEFB3 mov r7, #0x05", "b1:0xEFB5 256 zero bytes"]);
    }

    #[test]
    fn long_code_is_cut_and_says_so() {
        let lines = |count: usize| (0..count).map(|line| line.to_string()).collect::<Vec<_>>();
        assert_eq!(shortened(lines(9)), lines(9));
        let cut = shortened(lines(194));
        assert_eq!((&cut[..8], cut[8].as_str()), (&lines(8)[..], "... 186 more lines; --json has them all"));
        assert_eq!(cut.len(), 9);
    }

    #[test]
    fn a_few_zeros_are_listed_and_no_byte_is_lost() {
        assert_eq!(byte_lines(&[0; 7]), ["00 00 00 00 00 00 00"]);
        let bytes: Vec<u8> = (1..=20).collect();
        assert_eq!(byte_lines(&bytes).concat().replace(' ', "").len(), 40);
        assert_eq!(byte_lines(&[]), [""; 0]);
    }
}
