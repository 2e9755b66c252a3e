//! The `asmpatch flash` command: writes an image to one or more units.

pub(in crate::cli) mod held;
mod screen;
pub(in crate::cli) mod show;
pub mod steps;
mod summary;
mod writing_run;

use std::path::{Path, PathBuf};

use crate::cli::commands::verify;
use crate::cli::given::arguments::{BackupPlace, PatchDirs, PcapArgs, UNIT, UnitArgs};
use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::named_image;
use crate::cli::given::user_files;
use crate::cli::words::errors::Exit;
use crate::failure::in_file;
use crate::flash::backup_folder;
use crate::flash::consent::{Allowed, Waiver, Waivers};
use crate::flash::examined::UnknownImage;
use crate::flash::job::FlashJob;
use crate::flash::serials::SerialSeries;
use crate::flash::wanted::{Wanted, WantedImage};
use crate::image::{Firmware, Images, OpenImage, Proof};
use crate::patch::{Expectations, Receipt, Verification};
use crate::unit::Selector;
use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, Image};
use asm2464::{AnyFailure, Failure, Kind};
pub use screen::Screen;
pub use show::SSD_LOST;
pub use writing_run::{Choice, WritingRun};

/// Write an image to a unit, with a backup before and a readback after.
///
/// Shows what it will write, and asks. The image must be known, or have the receipt of `asmpatch patch`. Keeps the
/// unit's own configuration blocks, except the fields that the patches name. Writing begins with an erase of the whole
/// slot: if it stops half-way, the unit comes up in its ROM's boot loader, and the printed command brings it back.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch flash ed4e39b\n  asmpatch flash patched.bin\n  asmpatch flash patched.bin --device 3-1.2 --dry-run\n  asmpatch flash patched.bin --bench\n  asmpatch flash patched.bin --all --serials RACK-0001\n  asmpatch flash patched.bin --all --yes --json"
)]
pub struct Args {
    /// The image: a file, or the ID of a known image, such as ed4e39b, which is downloaded (`asmpatch download --list`).
    /// Of a copy of a flash or a backup's folder, its firmware: the unit keeps its own configuration.
    #[arg(value_name = "FILE|ID")]
    file: PathBuf,

    /// The receipt that `asmpatch patch` wrote for it; by default FILE.toml, if it exists.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,

    /// Write all connected units at once, whatever ASMPATCH_DEVICE names. --device more than once names several. A
    /// refused unit doesn't stop the others.
    #[arg(long)]
    all: bool,

    /// Write none unless all can be written. All are opened, checked and backed up before the first is written. A unit
    /// that fails while it is written doesn't undo the others. Over vendor commands a write-protected flash shows only
    /// then; where open firmware runs, that is checked before.
    #[arg(long)]
    all_or_none: bool,

    /// Then run a short self-test on the unit that came back: whether bytes survive, and READ(16) against E4. On a
    /// terminal it is offered without this option, unless you give --yes.
    #[arg(long, conflicts_with = "dry_run")]
    bench: bool,

    /// Take the configuration blocks from a backup instead of the unit: a unit in its boot loader can't provide them.
    /// Also takes a copy of a flash: whole sectors of 4 KiB, or its first 256 bytes.
    #[arg(long, value_name = "DIR")]
    config_from: Option<PathBuf>,

    /// Give the unit this serial number: at most 20 printable ASCII characters.
    #[arg(long, value_name = "TEXT", conflicts_with = "all")]
    serial: Option<String>,

    /// Give each unit the next serial number, beginning with this one, as in RACK-0001. The number at the end counts up
    /// and keeps its width: in hexadecimal if the last word is hexadecimal digits with a letter, as in 00F0, else in
    /// decimal. A number that a backup or a connected unit has is left out. A unit that has one of the series keeps it.
    #[arg(long, value_name = "START", conflicts_with = "serial")]
    serials: Option<SerialSeries>,

    /// Give the unit the chip maker's IDs and names again (174C:2464), instead of those that the patches name. Only a
    /// backup has a dock maker's own: `asmpatch restore`.
    #[arg(long)]
    stock_identity: bool,

    #[command(flatten)]
    patches: PatchDirs,

    #[command(flatten)]
    writing: WritingArgs,
}

/// Options of every command that writes a unit.
#[derive(Debug, Clone, clap::Args)]
pub struct WritingArgs {
    /// The unit: a port path as in 3-1.2, a serial number, or a virtual unit in a folder. With one unit connected
    /// it can be left out.
    #[arg(long, value_name = UNIT, env = "ASMPATCH_DEVICE")]
    pub device: Vec<Selector>,

    #[command(flatten)]
    /// The IDs that are taken for units.
    pub ids: UnitArgs,

    #[command(flatten)]
    /// Where their traffic is recorded.
    pub pcap: PcapArgs,

    /// Don't ask. A change of the version's line also needs --other-line.
    #[arg(long, short)]
    pub yes: bool,

    /// Show what would be written, and write nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Write even if flash and configuration already match.
    #[arg(long)]
    pub force: bool,

    /// Write what nobody has seen work: an image whose code can't be executed here, an unknown version, or a known one
    /// that somebody changed; on a real port, also the practice image and backups of virtual units.
    #[arg(long)]
    pub unproven: bool,

    /// Give the unit an identity that is not its own. WHAT, with commas between, says which part you agree to; without
    /// it, all: `serial` and `usb4`, another unit's serial number or USB4 identity, or the loss of its own, which no
    /// backup has; `own-backup`, a new board's identity although a backup may have its own; `neighbours`, a twin, as the
    /// system doesn't list the units on its buses.
    #[arg(
        long,
        value_name = "WHAT",
        value_parser = waivers,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    pub clone_identity: Option<Waivers>,

    /// Change the version's line (its last three bytes) without asking separately. If the first of them changes, as
    /// from 84 to 85, it is needed on a terminal too.
    #[arg(long)]
    pub other_line: bool,

    /// Write without a backup: for a unit that can't be read.
    #[arg(long)]
    pub no_backup: bool,

    #[command(flatten)]
    pub backup_place: BackupPlace,

    /// Print what was done as JSON.
    #[arg(long)]
    pub json: bool,
}

impl WritingArgs {
    fn allowed(&self) -> Allowed {
        Allowed {
            no_backup: self.no_backup,
            unproven: self.unproven,
            clone_identity: self.clone_identity.unwrap_or_default(),
            other_line: self.other_line,
            force: self.force,
            unasked: self.yes,
        }
    }
}

/// Reads what `--clone-identity` is for: parts of an identity with commas between, or all.
fn waivers(text: &str) -> Result<Waivers, String> {
    if text == "all" {
        return Ok(Waivers::ALL);
    }
    text.split(',').try_fold(Waivers::default(), |waivers, word| {
        let waiver = Waiver::ALL.into_iter().find(|waiver| waiver.to_string() == word);
        let names = || Waiver::ALL.map(|waiver| waiver.to_string()).join(", ");
        waiver.map(|waiver| waivers.and(waiver)).ok_or_else(|| format!("expected all, or any of {}", names()))
    })
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if something stops the run before it looks at a unit: something can't be read, or is open firmware that is too
/// long (status 3), or nothing proves the image good (status 5). A failure of one unit is reported here, unit by unit.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let (named, file) = named_image::place(&args.file, context)?;
    let image = image_file::image(&file, Wish::Write)?;
    // A backup's folder and a copy of a flash have the configuration of some unit, which may be this one.
    let beside = backup_folder::describe_any(&args.file).ok();
    let receipt = user_files::receipt_of(&file, args.receipt.as_deref())?;
    let library = args.patches.load_with(receipt.as_ref(), args.receipt.as_deref().unwrap_or(&file))?;
    let images = context.images(library);
    let verification = verified(&image, receipt.as_ref(), &images, &file)?;
    let proof = images.prove(&image)?;
    let unknown = unknown(&verification, &images, &proof.known.firmware);
    if let Some(unknown) = &unknown {
        check_kind(&proof, unknown, &file)?;
    }
    let what = match (&unknown, verification.base) {
        (Some(UnknownImage::Changed(what)), _) => what.clone(),
        (_, Some(base)) => {
            format!("{}, {}", images.library.image_name(&base).shown(), verification.patches_words().shown())
        }
        (_, None) => proof.known.firmware.to_string(),
    };
    let source = format!("{}: {what}, SHA-256 {}", args.file.shown(), context.digest(&proof.known.sha256));
    let edits = match receipt {
        Some(receipt) => vec![receipt.config],
        // A patched image without a receipt gets the configuration of the default patches.
        None if !verification.patches.is_empty() => {
            images.library.iter().filter(|patch| patch.default).map(|patch| patch.config.clone()).collect()
        }
        None => Vec::new(),
    };
    let wanted = WantedImage {
        proof,
        blocks_from: args.config_from.as_deref().map(backup_folder::load_any).transpose()?,
        stock_identity: args.stock_identity,
        edits,
        serial: args.serial.clone(),
        series: args.serials.clone(),
    };
    let subject = wanted.subject(unknown, beside.as_ref());
    let wanted = Wanted::Image(Box::new(wanted));

    // A serial number is for one unit.
    let several = args.all || args.serial.is_none();
    let choice = Choice { all: args.all, several, all_or_none: args.all_or_none, bench: args.bench };
    let mut writing_run = WritingRun::open(&args.writing, choice, context)?;
    let units = writing_run.examine(&wanted, &images);
    let job = writing_run.job(wanted, subject, images, source, Some(named))?;
    writing_run.carry_out(units, &FlashJob { beside, ..job })
}

/// Verifies an image: what it was made from, and its receipt if there is one. An image that is made from no known one is
/// left to [`check_kind`].
///
/// # Errors
/// Of kind [`Kind::Refused`], with what is wrong.
fn verified<'a>(
    image: &Image,
    receipt: Option<&Receipt>,
    images: &'a Images,
    file: &Path,
) -> Result<Verification<'a>, Failure> {
    let originals = |sha256: &Sha256Digest| verify::original(sha256, &[]);
    let expect = Expectations { receipt, originals: Some(&originals), ..Expectations::default() };
    let verification = images.verify(image, &expect);
    if verification.is_valid() || verification.lacks_only_a_base() {
        return Ok(verification);
    }
    let findings: Vec<String> = verification.findings.iter().map(ToString::to_string).collect();
    Err(unverified(file, &format!("verification failed: {}", findings.join("; "))))
}

/// Returns what is unknown of an image that was verified. Open firmware is known by what it enumerates as.
fn unknown(verification: &Verification<'_>, images: &Images, firmware: &Firmware) -> Option<UnknownImage> {
    if verification.base.is_some() || firmware.open().is_some() {
        return None;
    }
    Some(verification.changed_words(&images.library).map_or(UnknownImage::Version, UnknownImage::Changed))
}

/// Returns what is unknown of the image in a copy of a flash: nobody knows which unit it is of.
pub fn unknown_in_copy(proof: &Proof, images: &Images) -> Option<UnknownImage> {
    let verification = images.verify(&proof.known.image, &Expectations::default());
    unknown(&verification, images, &proof.known.firmware)
}

/// Checks what an unknown image is: only one that boots as the vendor's kind is written.
///
/// # Errors
/// Of kind [`Kind::Refused`], with what the image does instead; of kind [`Kind::BadInput`] for open firmware that is too
/// long.
fn check_kind(proof: &Proof, unknown: &UnknownImage, file: &Path) -> Result<(), AnyFailure> {
    let Proof { known, report, .. } = proof;
    let what = match (report.state(), report.failure()) {
        (Some(BridgeState::Vendor), _) => return Ok(()),
        // It would be known as open firmware if it fitted.
        (Some(BridgeState::OpenFirmware), _) => return Err(in_file(file)(OpenImage::too_long(&known.image))),
        (_, Some((check, fault))) => {
            format!("on the chip model it fails the check \"{}\": {fault}", check.what)
        }
        (state, None) => format!("it enumerates as {}", state.unwrap_or(BridgeState::BootLoader)),
    };
    let image = match unknown {
        UnknownImage::Version => "no known image",
        UnknownImage::Changed(words) => words,
    };
    Err(unverified(file, &format!("{what}, and it is {image}")).into())
}

fn unverified(file: &Path, why: &str) -> Failure {
    Failure::new(Kind::Refused.code("asmpatch::flash::unverified"), format!("{}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::Part;
    use asm2464_chip::practice;

    use super::*;
    use crate::image::samples;

    #[test]
    fn open_firmware_that_is_too_long_is_refused_for_that_and_not_as_unknown() {
        let mut body = practice::open_image().body().to_vec();
        body.resize(Part::One.max_len(), 0);
        let proof = samples::proved(&Image::from_body(body).unwrap());
        let failure = check_kind(&proof, &UnknownImage::Version, Path::new("long.bin")).unwrap_err();
        assert_eq!(failure.coded().code(), "asmpatch::image::open_too_long");
        assert!(failure.to_string().starts_with("long.bin: "), "{failure}");
    }
}
