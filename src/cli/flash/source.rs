//! The image to write, and what proves that it is good.

use std::path::Path;

use crate::flash::decide::{NewFirmware, UnknownImage};
use crate::flash::recovery::ImageRef;
use crate::image::{Images, Proof};
use crate::patch::{ConfigEdits, Expectations};
use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, ConfigBlock, ConfigField, Part};
use asm2464::{AnyFailure, Failure, Kind};

use super::Args;
use crate::cli::context::Context;
use crate::cli::user_files::{self, ImageFile};
use crate::cli::verify;

/// A verified image and what it changes in the configuration.
pub struct ImageToWrite {
    /// What is known of the image, before a backup adds its blocks.
    pub subject: NewFirmware,
    /// The image, as a command names it.
    pub named: ImageRef,
    /// What is known of images in this run.
    pub images: Images,
    /// The file, what it was made of, and its digest.
    pub words: String,
    /// What its patches change in block 0.
    pub edits: Vec<ConfigEdits>,
}

impl ImageToWrite {
    /// Reads, verifies and boots an image: its container, what it was made from, and its receipt if there is one. Open
    /// firmware is not made from a known image: it is accepted by what it enumerates as.
    ///
    /// # Errors
    /// Fails if something can't be read (status 3), or if nothing proves the image good (status 5).
    pub fn read(args: &Args, context: &Context) -> Result<Self, AnyFailure> {
        let (named, place) = user_files::place(&args.file, context)?;
        let file = place.as_path();
        let read = ImageFile::read(file)?;
        let receipt = user_files::receipt_of(file, args.receipt.as_deref())?;
        let library = args.patches.load_with(receipt.as_ref(), args.receipt.as_deref().unwrap_or(file))?;
        let images = context.images(library);
        let library = &images.library;
        let originals = |sha256: &Sha256Digest| verify::original(sha256, &[]);
        let expect = Expectations { receipt: receipt.as_ref(), originals: Some(&originals), ..Expectations::default() };
        let verification = images.verify(&read.image, &expect);
        if !verification.is_valid() && !verification.lacks_only_a_base() {
            let findings: Vec<String> = verification.findings.iter().map(ToString::to_string).collect();
            let why = format!("verification failed: {}", findings.join("; "));
            return Err(unverified(file, &why).into());
        }
        let proof = images.prove(&read.image)?;
        let firmware = &proof.known.firmware;
        let unknown = match verification.base {
            None if firmware.open().is_some() => None,
            None => Some(verification.changed_words(library).map_or(UnknownImage::Version, UnknownImage::Changed)),
            Some(_) => None,
        };
        if unknown.is_some() {
            check_kind(&proof, file)?;
        }
        let edits = match receipt {
            Some(receipt) => vec![receipt.config],
            // A patched image without a receipt gets the configuration of the default patches.
            None if !verification.patches.is_empty() => {
                library.iter().filter(|patch| patch.default).map(|patch| patch.config.clone()).collect()
            }
            None => Vec::new(),
        };
        let what = match (&unknown, verification.base) {
            (Some(UnknownImage::Changed(what)), _) => what.clone(),
            (_, Some(base)) => {
                format!("{}, {}", library.image_name(&base).shown(), verification.patches_words().shown())
            }
            (_, None) => firmware.to_string(),
        };
        let words = format!("{}: {what}, SHA-256 {}", args.file.shown(), context.digest(&read.sha256));
        let subject = NewFirmware { proof, unknown, from_virtual: false, serial_given: args.gives_serial() };
        Ok(Self { subject, named, images, words, edits })
    }
}

/// Checks what an unknown image is: only one that boots as the vendor's kind is written.
///
/// # Errors
/// Of kind [`Kind::Refused`], with what the image does instead.
fn check_kind(proof: &Proof, file: &Path) -> Result<(), Failure> {
    let Proof { known, report, .. } = proof;
    let what = match (report.state(), report.failure()) {
        (Some(BridgeState::Vendor), _) => return Ok(()),
        (Some(BridgeState::OpenFirmware), _) => {
            let (len, most) = (known.image.file_len(), Part::One.max_len());
            format!("it enumerates as open firmware, of which asmpatch writes {most} bytes at most: it has {len}")
        }
        (_, Some((check, fault))) => {
            format!("on the chip model it fails the check \"{}\": {fault}", check.what)
        }
        (state, None) => format!("it enumerates as {}", state.unwrap_or(BridgeState::BootLoader)),
    };
    Err(unverified(file, &format!("{what}, and it is no known image")))
}

fn unverified(file: &Path, why: &str) -> Failure {
    Failure::new(Kind::Refused.code("asmpatch::flash::unverified"), format!("{}: {why}", file.display()))
}

impl Args {
    /// Makes the image's changes and those of the options in the blocks.
    ///
    /// # Errors
    /// Fails if the serial number does not fit.
    pub(super) fn edit(
        &self,
        edits: &[ConfigEdits],
        serial: Option<&str>,
        blocks: &mut [ConfigBlock; 2],
    ) -> Result<(), Failure> {
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
