//! The image to write, and what proves that it is good.

use asm2464::escape::Escape as _;
use asm2464::firmware::{ConfigBlock, ConfigBlockError, ConfigField, Image};
use asmpatch_core::failure::AnyFailure;
use asmpatch_core::flash::decide::Refusal;
use asmpatch_core::flash::firmware_kind::Firmware;
use asmpatch_core::patch::{self, ConfigEdits, Expectations, Library};

use super::Args;
use crate::cli::Context;
use crate::cli::input::{self, ImageFile};

/// A verified image and what it changes in the configuration.
pub struct ImageToWrite {
    /// The image.
    pub image: Image,
    /// What kind of firmware it is.
    pub firmware: Firmware,
    /// The known patches and images.
    pub library: Library,
    /// The file, what it was made of, and its digest.
    pub words: String,
    edits: Vec<ConfigEdits>,
}

impl ImageToWrite {
    /// Reads and verifies an image: its container, what it was made from, and its receipt if there is one. Open
    /// firmware is not made from a known image: here it is accepted by what it enumerates as, and it must boot before
    /// anything is written.
    ///
    /// # Errors
    /// Fails if something can't be read (status 3), or if nothing proves the image good ([`Refusal::Unverified`]).
    pub fn read(args: &Args, context: &Context) -> Result<Self, AnyFailure> {
        let file = args.file.as_path();
        let read = ImageFile::read(file)?;
        let receipt = input::receipt_of(file, args.receipt.as_deref())?;
        let library = args.patches.load(&crate::embedded::manifests(&[])?)?;
        let expect = Expectations { receipt: receipt.as_ref(), ..Expectations::default() };
        let verification = patch::verify(&library, &read.image.to_file(), &expect);
        let firmware = Firmware::of(&read.image, &library);
        let made_of = match (verification.holds(), verification.base) {
            (true, Some(base)) => Some(library.image_name(&base)),
            _ if firmware.open().is_some() && verification.is_unknown_alone() => None,
            _ => {
                let findings: Vec<String> = verification.findings.iter().map(ToString::to_string).collect();
                let why = format!("verification failed: {}", findings.join("; "));
                return Err(Refusal::Unverified { file: file.to_owned(), why }.into());
            }
        };
        let ids: Vec<&str> = verification.patches.iter().map(|patch| patch.id.as_str()).collect();
        let edits = match receipt {
            Some(receipt) => vec![receipt.config],
            // A patched image without a receipt gets the configuration of the default patches.
            None if !ids.is_empty() => {
                library.iter().filter(|patch| patch.default).map(|patch| patch.config.clone()).collect()
            }
            None => Vec::new(),
        };
        let what = match made_of {
            Some(base) if ids.is_empty() => format!("{}, unpatched", base.shown()),
            Some(base) => format!("{}, with {}", base.shown(), ids.join(", ").shown()),
            None => firmware.to_string(),
        };
        let words = format!("{}: {what}, SHA-256 {}", file.shown(), context.digest(&read.sha256));
        Ok(Self { image: read.image, firmware, library, words, edits })
    }

    /// Makes the image's changes and those of the options in block 0.
    ///
    /// # Errors
    /// Fails if the serial number does not fit.
    pub fn edit(&self, block: &mut ConfigBlock, args: &Args) -> Result<(), ConfigBlockError> {
        if args.stock_identity {
            block.set_stock_identity()?;
        } else {
            for edits in &self.edits {
                edits.apply(block)?;
            }
        }
        args.serial.as_deref().map_or(Ok(()), |serial| block.set_text(ConfigField::Serial, serial))
    }
}
