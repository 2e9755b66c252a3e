//! The `asmpatch verify` command: verifies images.

use std::path::{Path, PathBuf};

use crate::failure::shown_code;
use crate::file_kind::FileKind;
use crate::flash::access::Access;
use crate::flash::backup::Backup;
use crate::flash::progress::FlashStep;
use crate::image::{Images, OpenImage, check_words};
use crate::patch::{Difference, Expectations, Library, PatchEffect, PatchOnImage, Verification};
use crate::unit::Selector;
use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, FileOffset, FirmwareVersion, Image, MAX_FILE_LEN, Part};
use asm2464::interrupt::Interrupted;
use asm2464::{AnyFailure, Failure, Kind, Named, TransportKind};
use asm2464_chip::chip::boot::{self, Behind, Check, Effects};
use asm2464_chip::practice;
use serde::Serialize;

use crate::cli::commands::flash::Screen;
use crate::cli::commands::patch::print_hunks;
use crate::cli::given::arguments::{self, PatchDirs, UNIT, UnitArgs, opened};
use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::{named_image, user_files};
use crate::cli::words::advice_part::{AdvicePart, worded};
use crate::cli::words::errors::{self, Exit};
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::{WordedStep, lines};
use crate::cli::words::{interrupt, print, table};

/// The most differing bytes that the table shows; `--json` has all of them.
const MAX_SHOWN: usize = 64;

/// A file in which more than one byte in this many differs is another image, not a damaged one: a table is no help.
const ANOTHER: usize = 8;

/// Verify images: container, base image, patches, receipt.
///
/// Finds the base image by undoing the patches, so you need no original. If the original is available (with --original,
/// in the cache, or as the practice image), shows every byte that differs, with its addresses. Recognises open firmware
/// by what it enumerates as; --boot proves that it works. Ends with status 1 if anything is wrong with any file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch verify patched.bin --receipt patched.bin.toml\n  asmpatch verify --boot --json *.bin"
)]
pub struct Args {
    /// The images: files, or IDs of known images, which are downloaded.
    #[arg(required = true, value_name = "FILE|ID")]
    files: Vec<PathBuf>,

    /// The receipt that the images must agree with, as `asmpatch patch` writes it; by default each image's FILE.toml,
    /// if it exists.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,

    /// The known image that they must be made from, such as 240417 or practice.
    #[arg(long, value_name = "ID")]
    image: Option<String>,

    /// An unpatched image to compare with, byte by byte; may be given more than once.
    #[arg(long, value_name = "FILE")]
    original: Vec<PathBuf>,

    #[command(flatten)]
    patches: PatchDirs,

    /// Boot each image on a model of the chip: it must enumerate, answer, take new firmware and restart, over both
    /// transports; a known image must answer a GPU runtime's commands too, and its patches do what they are for. Open
    /// firmware is checked by its control requests, and writes its flash through registers.
    #[arg(long)]
    boot: bool,

    /// Compare them with the flash of this unit too, byte by byte: a port path as in 3-1.2, a serial number, or a
    /// virtual unit in a folder.
    #[arg(long, value_name = UNIT)]
    device: Option<Selector>,

    #[command(flatten)]
    ids: UnitArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct VerifyReport<'a> {
    /// The file.
    file: String,
    /// Whether every requested check passes.
    ok: bool,
    /// Its SHA-256; missing if it, or its receipt, can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256Digest>,
    /// The version in it; nothing for open firmware and for a file that is no image.
    version: Option<FirmwareVersion>,
    /// The known image that it is made from.
    image: Option<String>,
    /// What open firmware enumerates as.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<OpenImage>,
    /// The patches in it.
    patches: Vec<PatchOnImage<'a>>,
    /// What is wrong with the file, or why it or its receipt can't be read.
    findings: Vec<Finding>,
    /// The bytes that differ from what they should be, if an original is available.
    differences: Vec<Difference>,
    /// With --boot: what it does on a model of the chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    booted: Option<Booting>,
    /// With --device: whether the unit's flash has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<Comparison>,
    /// What it is, in words.
    #[serde(skip)]
    words: String,
    /// Bytes of the file.
    #[serde(skip)]
    len: usize,
}

impl print::Document for VerifyReport<'_> {
    const VERSION: u32 = 4;
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "FindingJson"))]
struct Finding {
    /// The stable code of what is wrong.
    code: String,
    /// What is wrong, in words.
    message: String,
    /// What to do, step by step.
    steps: Vec<WordedStep>,
}

impl Finding {
    /// Names a finding, with its causes, after this command. `meant` is the known image that the file was, if it is
    /// damaged, and `again` is how to make a patched one again.
    fn of(finding: &AnyFailure, meant: Option<&Named>, again: Option<&[AdvicePart]>, invocation: &Invocation) -> Self {
        let finding = finding.coded();
        let named: Vec<Named> = finding.named().into_iter().chain(meant.cloned()).collect();
        let steps = worded(again.unwrap_or_else(|| errors::advice(finding)), invocation, &named);
        Self { code: shown_code(finding), message: errors::with_causes(finding), steps }
    }
}

// Without an image there are no checks.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Booted"))]
struct Booting {
    /// Whether every check passes.
    ok: bool,
    /// What it enumerates as.
    state: Option<BridgeState>,
    /// The checks, in order.
    checks: Vec<BootCheck>,
    /// What fails first, though the unit could be written again.
    #[serde(skip)]
    only: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BootCheck {
    /// The transport on which the check ran.
    transport: TransportKind,
    /// What is behind the bridge.
    behind: Behind,
    /// What was checked.
    what: &'static str,
    /// Whether the check passes.
    ok: bool,
    /// What was found, in words.
    found: String,
    /// Instructions executed from power-on to the end of the check.
    instructions: u64,
}

impl Booting {
    /// Boots the image that was verified.
    ///
    /// # Errors
    /// Ctrl-C.
    fn of(verification: &Verification<'_>, images: &Images) -> Result<Self, Interrupted> {
        let Some(image) = &verification.image else {
            return Ok(Self { ok: false, state: None, checks: Vec::new(), only: None });
        };
        let report = match effects(verification) {
            Some(effects) => boot::check_effects(image, effects, &images.budget())?,
            None => images.prove(image)?.report.clone(),
        };
        let check = |check: &Check| BootCheck {
            transport: check.wire,
            behind: check.behind,
            what: check.what,
            ok: check.outcome.is_ok(),
            found: found(check),
            instructions: check.instructions,
        };
        let only = report.failure().filter(|_| report.no_way_back().is_none());
        Ok(Self {
            ok: report.passes(),
            state: report.state(),
            checks: report.checks.iter().map(check).collect(),
            only: only.map(|(check, fault)| format!("the check \"{}\" fails: {fault}", check_words(check))),
        })
    }

    fn print(&self) {
        let Some(instructions) = self.checks.iter().map(|check| check.instructions).max() else {
            return outln!("  not booted: the file is not an image");
        };
        let state = self.state.map_or_else(|| "nothing".to_owned(), |state| state.to_string());
        if let Some(only) = &self.only {
            outln!("  booted: {state}, which can be replaced, but {only}");
        } else if let Some(BootCheck { transport, what, found, .. }) = self.checks.iter().find(|check| !check.ok) {
            outln!("  BOOT FAILED: the check \"{what}\" over {transport}: {found}");
            let row = |check: &BootCheck| {
                let BootCheck { transport, behind, what, found, instructions, .. } = check;
                [transport.to_string(), behind.to_string(), (*what).to_owned(), found.clone(), instructions.to_string()]
            };
            table::print(["transport", "behind", "check", "found", "instructions"], self.checks.iter().map(row));
        } else if self.ok {
            outln!("  booted: {state}, {} checks passed, {instructions} instructions", self.checks.len());
        } else {
            outln!("  booted: {state}, which no image should enumerate as");
        }
    }
}

/// What the patches in a known image are for; `None` for any other image.
fn effects(verification: &Verification<'_>) -> Option<Effects> {
    let has = |effect: PatchEffect| verification.effects().any(|found| found == effect);
    verification.base.map(|_| Effects {
        answers_writes: has(PatchEffect::AnswersWrites),
        e4_extension: has(PatchEffect::E4Extension),
        read16_sram: has(PatchEffect::ReadsSram),
    })
}

fn found(check: &Check) -> String {
    match &check.outcome {
        Ok(found) if found.is_empty() => "ok".to_owned(),
        Ok(found) => found.clone(),
        Err(fault) => fault.to_string(),
    }
}

/// The `unit` key of `--json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "UnitFlash"))]
struct Comparison {
    /// The unit's port, as `--device` takes it.
    device: String,
    /// Whether its flash has the image.
    ok: bool,
    /// How many bytes differ.
    differing_bytes: usize,
    /// The first differing byte: its place in the file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_file_offset: Option<u32>,
    /// The first differing byte: its place in flash, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_flash_address: Option<u32>,
}

/// Reads a unit's whole flash, through vendor commands or registers. Writes nothing.
///
/// # Errors
/// Fails if no unit is found, or if it does not allow reading its flash.
fn read_unit(selector: &Selector, ids: &UnitArgs, context: &Context) -> Result<Backup, AnyFailure> {
    let interrupt = interrupt::install();
    let devices = ids.load()?;
    let mut port = opened(&devices, Some(selector), None)?;
    let mut access = Access::open(&mut *port)?;
    Screen::backup(context, &mut *port, &mut access, FlashStep::Compare, interrupt)
}

impl Comparison {
    /// Compares a unit's flash with an image file.
    fn of(unit: &Backup, file: &[u8]) -> Self {
        let parts = Part::ALL.into_iter().zip(&unit.parts);
        let found = parts.flat_map(|(part, found)| part.of(file).iter().zip(found));
        let mut differing = found.enumerate().filter(|(_, (wanted, found))| wanted != found);
        let first = differing.next().map(|(at, _)| FileOffset(at as u32));
        Self {
            device: unit.unit.device.clone(),
            ok: first.is_none(),
            differing_bytes: usize::from(first.is_some()) + differing.count(),
            first_file_offset: first.map(|first| first.0),
            first_flash_address: first.map(|first| first.flash_address().0),
        }
    }

    /// Prints whether the flash has the image.
    fn print(&self) {
        let device = self.device.shown();
        let Some(first) = self.first_file_offset.map(FileOffset) else {
            return outln!("  {device}: its flash has this image");
        };
        let (count, address) = (self.differing_bytes, first.flash_address());
        outln!("  {device}: its flash has another image: {count} bytes differ, the first at {first}, {address}");
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if an original or a patch can't be used, or an image id is unknown. A file that can't be read, or whose
/// receipt can't be used, is reported, and the other files are still verified.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let mut library = args.patches.load()?;
    for path in &args.files {
        // A receipt that can't be read is reported below, with its image.
        if let Ok(Some(receipt)) = user_files::receipt_of(path, args.receipt.as_deref()) {
            arguments::add_named(&mut library, &receipt, args.receipt.as_deref().unwrap_or(path))?;
        }
    }
    let images = context.images(library);
    let base = args.image.as_deref().map(|name| image_named(&images.library, name)).transpose()?;
    let originals =
        args.original.iter().map(|path| image_file::image(path, Wish::Look)).collect::<Result<Vec<_>, _>>()?;
    // An original that no patch is made for, such as open firmware, is what the files must be.
    let only = if let [original] = &originals[..] { Some(original.sha256()) } else { None };
    let base = base.or_else(|| only.filter(|original| !images.library.images().contains_key(original)));
    let unit = args.device.as_ref().map(|selector| read_unit(selector, &args.ids, context)).transpose()?;

    let mut exit = Exit::Done;
    let mut reports = Vec::new();
    for path in &args.files {
        match verified(path, args, &images, base, &originals, unit.as_ref(), context) {
            Ok(report) => {
                if !report.ok {
                    exit = exit.max(Exit::CheckFailed);
                }
                if !args.json {
                    report.print(context.is_verbose || args.files.len() == 1);
                }
                reports.push(report);
            }
            Err(failure) if failure.kind() == Kind::Interrupted => return Err(failure),
            Err(failure) => {
                exit = exit.max(Exit::from(failure.kind()));
                if !args.json {
                    outln!("{}: FAILED: not verified", path.shown());
                    errors::report(failure.coded(), &context.invocation);
                }
                let findings = vec![Finding::of(&failure, None, None, &context.invocation)];
                reports.push(VerifyReport { file: path.display().to_string(), findings, ..VerifyReport::default() });
            }
        }
    }
    if args.json {
        print::json_each(&reports);
    }
    Ok(exit)
}

/// Verifies a file. `base` is the known image that it must be made from.
///
/// # Errors
/// Fails if the file or its receipt can't be read, and on Ctrl-C.
fn verified<'a>(
    path: &Path,
    args: &Args,
    images: &'a Images,
    base: Option<Sha256Digest>,
    originals: &[Image],
    unit: Option<&Backup>,
    context: &Context,
) -> Result<VerifyReport<'a>, AnyFailure> {
    let (_, place) = named_image::place(path, context)?;
    let bytes = read_image(&place)?;
    let receipt = user_files::receipt_of(path, args.receipt.as_deref())?;
    let find = |sha256: &Sha256Digest| original(sha256, originals);
    let expect = Expectations { receipt: receipt.as_ref(), image: base, originals: Some(&find) };
    let mut verification = images.verify_file(&bytes, &expect);
    // First: the proof identifies the image, too, so that it is booted once, and Ctrl-C ends that.
    let booted = args.boot.then(|| Booting::of(&verification, images)).transpose()?;
    if let Some(failure) = too_long_open(&verification, booted.as_ref()) {
        verification.findings = vec![failure.into()];
    }
    // Open firmware is not made from a known image: what it enumerates as identifies it, and --boot proves that it
    // works. Nothing else may be wrong with it.
    let is_other = base.is_some_and(|base| !images.library.images().contains_key(&base) && base != verification.sha256);
    let open = open_image(images, &verification, is_other);
    let unit = unit.map(|unit| Comparison::of(unit, &bytes));
    let is_open = open.is_some() && !is_other;
    let ok = (is_open || verification.is_valid())
        && booted.as_ref().is_none_or(|booted| booted.ok)
        && unit.as_ref().is_none_or(|unit| unit.ok);
    let invocation = &context.invocation;
    let meant = image_file::damaged(path, &bytes).map(Named::Image);
    let mut findings = Vec::new();
    if !is_open {
        let mut again = if verification.image.is_none() { image_file::against_damage(path, &bytes) } else { None };
        for finding in &verification.findings {
            findings.push(Finding::of(finding, meant.as_ref(), again.take().as_deref(), invocation));
        }
    }
    if let Some(receipt) = &receipt
        && args.receipt.as_ref().is_some_and(|named| *named != user_files::receipt_path(path))
        && !verification.is_of(receipt)
        && let Some(last) = findings.last_mut()
    {
        let verify = invocation.again().without("receipt").with("files", path);
        last.steps.push(WordedStep::run("verify it without that receipt", verify));
    }
    let library = &images.library;
    let known = verification.base.filter(|base| library.images().contains_key(base));
    let version = verification.image.as_ref().map(Image::version).filter(|_| open.is_none());
    Ok(VerifyReport {
        file: path.display().to_string(),
        ok,
        sha256: Some(verification.sha256),
        version,
        image: known.map(|base| library.image_name(&base)).or_else(|| open.as_ref()?.image.clone()),
        words: words(library, &verification, open.as_ref()),
        open,
        patches: patches(&verification),
        findings,
        differences: verification.differences,
        booted,
        unit,
        len: bytes.len(),
    })
}

impl VerifyReport<'_> {
    /// Shows each patch's hunks with their instructions, if the file is the only one, or with `--verbose`.
    fn print(&self, shows_hunks: bool) {
        let verdict = if self.ok { "ok" } else { "FAILED" };
        outln!("{}: {verdict}: {}", self.file.shown(), self.words.shown());
        if shows_hunks {
            print_hunks(&self.patches);
        }
        // What stops it comes before what is unknown about it.
        if let Some(booted) = self.booted.as_ref().filter(|booted| !booted.ok) {
            booted.print();
        }
        for Finding { code, message, steps } in &self.findings {
            outln!("  {} [{code}]", message.shown());
            for line in lines(steps) {
                outln!("    {line}");
            }
        }
        self.print_differences();
        match &self.booted {
            Some(booted) if booted.ok => booted.print(),
            None if self.open.is_some() => outln!("  not booted: --boot shows whether it answers and can be replaced"),
            Some(_) | None => {}
        }
        if let Some(unit) = &self.unit {
            unit.print();
        }
    }

    /// Prints the bytes that differ, unless it is another image altogether.
    fn print_differences(&self) {
        let count = self.differences.len();
        let is_another = |difference: &&Difference| difference.expected.is_some() && difference.found.is_some();
        if self.differences.iter().filter(is_another).count() > self.len / ANOTHER {
            return outln!(
                "  {count} bytes differ: it is another image than the one that it is compared with; --json lists them"
            );
        }
        if count == 0 {
            return;
        }
        let byte = |byte: Option<u8>| byte.map_or_else(|| "none".to_owned(), |byte| format!("{byte:02x}"));
        let row = |Difference { file_offset, flash_address, address, expected, found }: &Difference| {
            [
                format!("{:#07x}", file_offset.0),
                format!("{:#08x}", flash_address.0),
                address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
                byte(*expected),
                byte(*found),
            ]
        };
        let shown = self.differences.iter().take(MAX_SHOWN).map(row);
        table::print(["file offset", "flash", "address", "expected", "found"], shown);
        if count > MAX_SHOWN {
            outln!("  and {} more bytes; --json lists them all", count - MAX_SHOWN);
        }
    }
}

/// The open firmware in an image with which nothing else is wrong, but that it `is_other` than the expected build; `None`
/// for any other image.
fn open_image(images: &Images, verification: &Verification<'_>, is_other: bool) -> Option<OpenImage> {
    if !verification.lacks_only_a_base() || (!verification.differences.is_empty() && !is_other) {
        return None;
    }
    images.identify(verification.image.as_ref()?).firmware.open().cloned()
}

/// Returns the failure of open firmware with which nothing is wrong but its length. An image that has a known version is
/// not booted to find out.
fn too_long_open(verification: &Verification<'_>, booted: Option<&Booting>) -> Option<Failure> {
    let image = verification.image.as_ref().filter(|_| verification.is_unknown_alone())?;
    if image.file_len() <= Part::One.max_len() || verification.compared.is_some() {
        return None;
    }
    let state = match booted {
        Some(booted) => booted.state,
        None => boot::enumerated(image).map(|found| found.state),
    };
    (state == Some(BridgeState::OpenFirmware)).then(|| OpenImage::too_long(image))
}

/// Reads a file, whose container may be damaged. An empty file is an input error like a missing one: there is nothing to
/// verify.
fn read_image(path: &Path) -> Result<Vec<u8>, AnyFailure> {
    let (bytes, kind) = image_file::look(path)?;
    match kind {
        FileKind::DamagedImage | FileKind::CutImage | FileKind::Unknown if bytes.len() <= MAX_FILE_LEN => Ok(bytes),
        // A copy of a flash has an image in its first slot, and more.
        kind @ FileKind::Flash(_) => image_file::image_of(path, &bytes, kind, Wish::Look).map(|image| image.to_file()),
        kind => image_file::image_of(path, &bytes, kind, Wish::Look).map(|_| bytes),
    }
}

fn image_named(library: &Library, name: &str) -> Result<Sha256Digest, Failure> {
    library.image_named(name).ok_or_else(|| {
        let label = Kind::Usage.code("asmpatch::verify::unknown_image");
        Failure::new(label, format!("unknown image {name:?}; known images: {}", library.image_names().join(", ")))
    })
}

/// Returns the unpatched image with this digest, if it is available. Called only if something is wrong with a file, so
/// that nothing is read or built for good files. A cache that can't be read counts as empty: the report only gets
/// shorter.
pub(in crate::cli) fn original(sha256: &Sha256Digest, named: &[Image]) -> Option<Image> {
    if let Some(image) = named.iter().find(|image| image.sha256() == *sha256) {
        return Some(image.clone());
    }
    let cached = || {
        let manifests = crate::embedded::manifests(&[]).ok()?;
        Image::parse(&arguments::cache(None).ok()?.load(manifests.by_sha256(sha256)?).ok()??).ok()
    };
    Some(practice::image()).filter(|image| image.sha256() == *sha256).or_else(cached)
}

fn words(library: &Library, verification: &Verification<'_>, open: Option<&OpenImage>) -> String {
    if let Some(open) = open {
        return open.to_string();
    }
    let Some(base) = &verification.base else {
        return verification.changed_words(library).unwrap_or_else(|| "unknown image".to_owned());
    };
    let version = verification.image.as_ref().map(Image::version);
    let base = version.map_or_else(|| library.image_name(base), |version| library.image_words(base, version));
    format!("{base}, {}", verification.patches_words())
}

/// Returns the patches in an image, if its base is known.
pub(in crate::cli) fn patches<'a>(verification: &Verification<'a>) -> Vec<PatchOnImage<'a>> {
    match (verification.base, &verification.original, &verification.image) {
        (Some(base), Some(original), Some(image)) => {
            verification.patches.iter().map(|patch| PatchOnImage::new(patch, &base, original, image)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use asm2464::Coded as _;

    use super::*;

    #[test]
    fn open_firmware_that_part_1_does_not_hold_is_named() {
        let images = Images::from(crate::embedded::patches().unwrap());
        let of_len = |len: usize| {
            let mut body = practice::open_image().body().to_vec();
            body.resize(body.len() + len - practice::open_image().file_len(), 0);
            let image = Image::from_body(body).unwrap();
            too_long_open(&images.verify(&image, &Expectations::default()), None)
        };
        assert!(of_len(Part::One.max_len()).is_none());
        let failure = of_len(Part::One.max_len() + 1).unwrap();
        assert_eq!(failure.code(), "asmpatch::image::open_too_long");
        assert!(failure.to_string().contains("at most 65280 bytes: it has 65281"), "{failure}");
    }
}
