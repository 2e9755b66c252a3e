//! The `asmpatch flash` command: writes an image to one or more units.

pub(in crate::cli) mod held;
mod screen;
pub(in crate::cli) mod show;
pub mod steps;
mod summary;
mod writing_run;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::commands::verify;
use crate::cli::given::arguments::{BackupPlace, PatchDirs, PcapArgs, UNIT, UnitArgs};
use crate::cli::given::context::Context;
use crate::cli::given::image_file::{self, Wish};
use crate::cli::given::named_image;
use crate::cli::given::user_files;
use crate::cli::words::errors::Exit;

use crate::failure::in_file;
use crate::flash::backup::Backup;
use crate::flash::backup_folder::{self, FiledBackup};
use crate::flash::consent::{Allowed, Waiver, Waivers};
use crate::flash::examined::{NewFirmware, UnknownImage};
use crate::flash::identity::neutral_blocks;
use crate::flash::observe::Observation;
use crate::flash::plan::{ChosenSerial, FlashPlan, needs_stand_in};
use crate::flash::recovery::{ImageRef, InvokedCommand, Writes};
use crate::flash::serials::SerialSeries;
use crate::image::{Firmware, Images, OpenImage, Proof};
use crate::patch::{ConfigEdits, Expectations, Receipt, Verification};
use crate::unit::Selector;
use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, ConfigBlock, ConfigField, Image};
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
    /// Returns the command as far as the steps after it depend on it.
    pub fn invoked(
        &self,
        writes: Writes,
        image: Option<ImageRef>,
        config_from: Option<PathBuf>,
    ) -> Arc<InvokedCommand> {
        Arc::new(InvokedCommand { writes, image, config_from, backs_up: !self.no_backup })
    }

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
    let blocks_from = args.config_from.as_deref().map(backup_folder::load_any).transpose()?;
    let subject = args.subject(proof, unknown, blocks_from.as_ref(), beside.as_ref());

    // A serial number is for one unit.
    let several = args.all || args.serial.is_none();
    let choice = Choice { all: args.all, several, all_or_none: args.all_or_none, bench: args.bench };
    let mut writing_run = WritingRun::open(&args.writing, choice, context)?;
    let invoked = args.writing.invoked(Writes::Image, Some(named), args.config_from.clone());
    let mut job = writing_run.job(subject, images, source, invoked)?;
    job.beside = beside;
    let plan =
        |seen: &Observation, next: Option<&str>| args.plan(seen, next, blocks_from.as_ref(), &job.subject, &edits);
    let mut units = writing_run.examine(|seen| plan(seen, None));
    if let Some(series) = &args.serials {
        job.number(&mut units, series, |seen, serial| plan(seen, Some(serial)))?;
    }
    writing_run.carry_out(units, &job)
}

impl Args {
    /// What is written: the image, which may be a backup's (`beside`), with the blocks of another one.
    fn subject(
        &self,
        proof: Arc<Proof>,
        unknown: Option<UnknownImage>,
        blocks_from: Option<&Backup>,
        beside: Option<&FiledBackup>,
    ) -> NewFirmware {
        let units = blocks_from.map(|backup| &backup.unit).into_iter().chain(beside.map(|backup| &backup.unit));
        let serial_given = self.serial.is_some() || self.serials.is_some();
        NewFirmware { serial_given, ..NewFirmware::of(proof, unknown, units) }
    }

    /// Plans to write the image to a unit, with the next serial number of the series, if there is one. A stock image
    /// gets a neutral identity where there are no blocks: a serial number that is drawn for it stays the unit's in
    /// every command that is printed.
    fn plan(
        &self,
        seen: &Observation,
        next: Option<&str>,
        blocks_from: Option<&Backup>,
        subject: &NewFirmware,
        edits: &[ConfigEdits],
    ) -> Result<FlashPlan, AnyFailure> {
        let given = next.or(self.serial.as_deref());
        // Open firmware shows the chip's serial number.
        let is_block_0s = seen.attached.state != BridgeState::OpenFirmware;
        let shown = if is_block_0s { seen.attached.serial() } else { "" };
        let is_neutral = subject.firmware().is_unpatched() && needs_stand_in(&seen.blocks, blocks_from);
        let neutral = if is_neutral { Some(neutral_blocks(shown, given)?) } else { None };
        let edit = |blocks: &mut [ConfigBlock; 2]| self.edit(edits, given, blocks);
        let (attached, proof) = (seen.attached.clone(), &subject.proof);
        let mut plan = FlashPlan::flash(attached, seen.blocks, blocks_from, neutral, proof, edit)?;
        // What the unit shows may be gone when the command is run again.
        let yields = given.is_none() && plan.blocks[0].source.stands_in() && !plan.has_known_serial();
        if yields || next.is_some() {
            plan.chosen_serial = plan.serial().map(|text| ChosenSerial { text, yields });
        }
        Ok(plan)
    }

    /// Makes the image's changes and those of the options in the blocks.
    ///
    /// # Errors
    /// Fails if the serial number does not fit.
    fn edit(&self, edits: &[ConfigEdits], serial: Option<&str>, blocks: &mut [ConfigBlock; 2]) -> Result<(), Failure> {
        if self.stock_identity {
            blocks[0].set_stock_identity()?;
        } else {
            edits.iter().try_for_each(|edits| edits.apply(blocks))?;
        }
        match serial {
            Some(serial) => blocks[0].set_text(ConfigField::Serial, serial),
            None => Ok(()),
        }
    }
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
    use asm2464_host::bridge::UnitInfo;
    use clap::FromArgMatches as _;

    use super::*;
    use crate::flash::backup::tests::sample_backup;
    use crate::flash::fitting::tests::sample_filed;
    use crate::flash::observe::ObservedFirmware;
    use crate::image::{Rewritable, samples};
    use crate::tests::unit;
    use crate::unit::facts::Asked;

    /// The arguments of `asmpatch flash 240417` with these options.
    fn parsed(options: &[&str]) -> Args {
        let words = ["asmpatch", "flash", "240417"].iter().chain(options);
        let matches = crate::cli::command().try_get_matches_from(words).unwrap();
        Args::from_arg_matches(matches.subcommand().unwrap().1).unwrap()
    }

    #[test]
    fn what_is_of_a_virtual_unit_is_known_whether_it_is_the_image_or_the_blocks_and_so_is_a_number_that_was_given() {
        let subject = |options: &[&str], blocks_from: Option<&Backup>, beside: Option<&FiledBackup>| {
            let proof = samples::proof(&practice::image(), Rewritable::Yes);
            let NewFirmware { from_virtual, serial_given, .. } =
                parsed(options).subject(proof, None, blocks_from, beside);
            (from_virtual, serial_given)
        };
        let (dock, mut software) = (sample_backup(), sample_backup());
        software.unit.device = "virtual:u".to_owned();
        let beside = |backup: &Backup| FiledBackup { unit: backup.unit.clone(), ..sample_filed() };
        assert_eq!(subject(&[], Some(&dock), Some(&beside(&dock))), (false, false));
        assert_eq!(subject(&[], Some(&software), None), (true, false));
        assert_eq!(subject(&[], None, Some(&beside(&software))), (true, false));
        assert_eq!(subject(&["--serial", "LAB-07"], None, None), (false, true));
        assert_eq!(subject(&["--serials", "LAB-07"], None, None), (false, true));
    }

    /// The serial number that a unit gets that has lost its blocks and shows `LAB-07`.
    fn serial_without_blocks(state: BridgeState) -> String {
        let args = parsed(&[]);
        let attached = UnitInfo { state, ..unit("9-9", "LAB-07") };
        let running = ObservedFirmware { state, version: None, parts: None, e4_extension: None, storage: None };
        let seen =
            Observation { attached, blocks: [None, None], running, tree: Asked::NotAsked, is_disk_checked: true };
        let proof = samples::proof(&practice::image(), Rewritable::Yes);
        let subject = NewFirmware { proof, unknown: None, from_virtual: false, serial_given: false };
        args.plan(&seen, None, None, &subject, &[]).unwrap().serial().unwrap()
    }

    #[test]
    fn a_lost_block_0_gets_the_serial_that_its_boot_loader_shows_and_not_the_chips() {
        assert_eq!(serial_without_blocks(BridgeState::BootLoader), "LAB-07");
        assert_ne!(serial_without_blocks(BridgeState::OpenFirmware), "LAB-07");
    }

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
