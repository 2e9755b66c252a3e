//! Identification of an image: stock, with which patches, the practice image, or open firmware. Pure.

use std::fmt;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BridgeState, FirmwareVersion, Image, known_routines};
use asm2464::interrupt::Interrupted;
use asm2464_chip::chip::ProofBudget;
use asm2464_chip::chip::boot::{self, BootReport};
use asm2464_chip::practice;
use derive_more::Display;
use serde::{Deserialize, Serialize};

use super::identity::differing;
use super::open_image::OpenImage;
use crate::patch::{Effect, Expectations, Library, verify};

/// Base of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Base {
    /// A vendor image with a known digest.
    Vendor,
    /// The practice image.
    Practice,
    /// Open firmware.
    Open(OpenImage),
    /// Unknown bytes.
    Unknown,
}

/// An identified image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Firmware {
    base: Base,
    version: FirmwareVersion,
    patches: Vec<String>,
    effects: Vec<Effect>,
}

impl Firmware {
    /// Identifies an image: by undoing the known patches, or else by what it enumerates as.
    pub fn of(image: &Image, library: &Library) -> Self {
        let verification = verify(library, &image.to_file(), &Expectations::default());
        let practice = practice::image();
        let is_practice = verification.base == Some(Sha256Digest(practice.sha256()));
        let base = match verification.base {
            // Modified or not, it is no vendor image.
            _ if is_practice || image.version() == practice.version() => Base::Practice,
            Some(_) => Base::Vendor,
            None => OpenImage::of(image).map_or(Base::Unknown, Base::Open),
        };
        let patches = verification.patches.iter().map(|patch| patch.id.clone()).collect();
        let effects = verification.effects().collect();
        Self { base, version: image.version(), patches, effects }
    }

    /// Whether the image is asmpatch's practice image, which has never run on silicon.
    pub fn is_practice(&self) -> bool {
        self.base == Base::Practice
    }

    /// The open firmware; `None` for any other image.
    pub fn open(&self) -> Option<&OpenImage> {
        match &self.base {
            Base::Open(open) => Some(open),
            _ => None,
        }
    }

    /// The open firmware, to change how it is described.
    pub(crate) fn open_mut(&mut self) -> Option<&mut OpenImage> {
        match &mut self.base {
            Base::Open(open) => Some(open),
            _ => None,
        }
    }

    /// The version in the vendor's format; `None` for open firmware, which has none.
    pub fn version(&self) -> Option<FirmwareVersion> {
        self.open().is_none().then_some(self.version)
    }

    /// Whether the image is unknown: neither a known image, patched or not, nor open firmware.
    pub fn is_unknown(&self) -> bool {
        self.base == Base::Unknown
    }

    /// Whether the image is a known image of the vendor's kind without any patch.
    pub fn is_unpatched(&self) -> bool {
        matches!(self.base, Base::Vendor | Base::Practice) && self.patches.is_empty()
    }

    /// Whether the image answers writes that no device behind the bridge completes.
    pub fn answers_writes(&self) -> bool {
        self.has(Effect::AnswersWrites)
    }

    /// Whether the image's E4 takes more than 255 bytes; `None` if the image is unknown, or takes no commands.
    pub fn has_e4_extension(&self) -> Option<bool> {
        matches!(self.base, Base::Vendor | Base::Practice).then(|| self.has(Effect::LongE4))
    }

    fn has(&self, effect: Effect) -> bool {
        self.effects.contains(&effect)
    }
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.base, self.patches.is_empty()) {
            (Base::Practice, _) => f.write_str("practice image")?,
            (Base::Vendor, true) => write!(f, "stock firmware {}", self.version)?,
            (Base::Vendor, false) => write!(f, "vendor firmware {}", self.version)?,
            (Base::Open(open), _) => open.fmt(f)?,
            (Base::Unknown, _) => write!(f, "unknown firmware {}", self.version)?,
        }
        if self.patches.is_empty() { Ok(()) } else { write!(f, " with {}", self.patches.join(", ")) }
    }
}

/// Whether a unit with an image can be written again. The chip's boot loader does not start while the container is
/// valid, so firmware whose E1 does nothing can never be replaced over USB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewritable {
    /// Yes: it boots on the chip model, answers, and takes new firmware by commands or through registers.
    Yes,
    /// No, for this reason.
    No(String),
    /// Unknown: the chip model may not know enough for this version.
    Unknown,
}

impl Rewritable {
    /// Boots the image from the reset vector and writes it again over each of its transports.
    pub fn of(image: &Image) -> Self {
        Self::of_report(image, &boot::check(image))
    }

    /// As [`Rewritable::of`], within this budget.
    ///
    /// # Errors
    /// [`Interrupted`] on Ctrl-C.
    pub fn within(image: &Image, budget: &ProofBudget) -> Result<Self, Interrupted> {
        Ok(Self::of_report(image, &boot::check_within(image, budget)?))
    }

    /// Judges the report on the image's boot.
    pub fn of_report(image: &Image, report: &BootReport) -> Self {
        match (report.failure(), report.state()) {
            // A version whose routines are known boots on the model. If it does not boot, that is the image's fault.
            (Some(_), None) if known_routines(image.version()).next().is_none() => Self::Unknown,
            (Some((check, fault)), _) => Self::No(format!("{} over {}: {fault}", check.what, check.wire)),
            (None, Some(BridgeState::Vendor | BridgeState::OpenFirmware)) => Self::Yes,
            (None, _) => Self::Unknown,
        }
    }
}

/// What runs on a unit and what its flash holds, as it answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Contents {
    /// The unit's state.
    pub state: BridgeState,
    /// The version, read by E4.
    pub version: Option<FirmwareVersion>,
    /// Whether E4 takes more than 255 bytes.
    pub e4_extension: Option<bool>,
    /// SHA-256 of the image in the flash.
    pub sha256: Option<Sha256Digest>,
    /// The image in the flash; `None` if none was read, or if the chip would not start it.
    pub flashed: Option<Firmware>,
}

impl Contents {
    /// Whether the unit behaves differently from this firmware.
    pub fn contradicts(&self, firmware: &Firmware) -> bool {
        firmware.open().is_some() != (self.state == BridgeState::OpenFirmware)
            || differing(self.version, firmware.version()).is_some()
            || differing(self.e4_extension, firmware.has_e4_extension()).is_some()
    }

    /// The firmware that runs on the unit, if it can be determined.
    pub fn runs(&self) -> RunningFirmware {
        if self.state != BridgeState::Vendor {
            return RunningFirmware::Other(self.state);
        }
        match &self.flashed {
            None => RunningFirmware::Vendor(self.version),
            Some(firmware) if self.contradicts(firmware) => RunningFirmware::OtherThanFlashed(firmware.clone()),
            Some(firmware) => RunningFirmware::Flashed(firmware.clone()),
        }
    }
}

/// The firmware that runs on a unit, by its interface, its flash and its answers.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum RunningFirmware {
    /// The firmware in the flash; nothing observed contradicts it.
    Flashed(Firmware),
    /// Another firmware than this one in the flash: the flash was written since the unit started.
    #[display("vendor firmware other than the one in its flash ({_0})")]
    OtherThanFlashed(Firmware),
    /// Vendor firmware of which at most the version is known.
    #[display("vendor firmware{}", _0.map(|version| format!(" {version}")).unwrap_or_default())]
    Vendor(Option<FirmwareVersion>),
    /// No vendor firmware.
    Other(BridgeState),
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{Bank, BodyOffset, CodeAddress};

    use super::super::backup::tests::sample_image;
    use super::*;
    use crate::patch::{PatchSet, Selection};

    #[test]
    fn an_image_is_named_by_what_it_is_made_of_and_the_patches_in_it() {
        let library = Library::of_repository().unwrap();
        let practice = practice::image();
        assert_eq!(Firmware::of(&practice, &library).to_string(), "practice image");
        let digest = Sha256Digest(practice.sha256());
        let patched = PatchSet::resolve(&library, &Selection::default(), &practice, digest).unwrap().apply().unwrap();
        let firmware = Firmware::of(&patched.image, &library);
        assert_eq!(firmware.to_string(), "practice image with status-0x2a12");
        assert!(firmware.is_practice() && firmware.answers_writes());
        assert_eq!(firmware.has_e4_extension(), Some(false));

        let mut modified = practice.clone();
        assert!(modified.replace(BodyOffset(0x3000), &[0x5A, 0xC3]));
        assert!(Firmware::of(&modified, &library).is_practice(), "by its version");

        let unknown = sample_image(0);
        let firmware = Firmware::of(&unknown, &library);
        assert_eq!(firmware.to_string(), format!("unknown firmware {}", unknown.version()));
        assert!(!firmware.is_practice() && firmware.has_e4_extension().is_none());
    }

    #[test]
    fn an_image_that_does_not_boot_is_at_fault_only_where_the_model_covers_its_version() {
        let mut image = sample_image(0);
        assert_eq!(Rewritable::of(&image), Rewritable::Unknown);
        // The version's place, and 240417's digits.
        assert!(image.replace(BodyOffset(0x200), &[0x24, 0x04, 0x17, 0x85, 0x00, 0x00]));
        assert!(matches!(Rewritable::of(&image), Rewritable::No(_)));
    }

    #[test]
    fn a_users_patch_counts_by_its_effect_and_not_by_its_id() {
        let practice = practice::image();
        let text = crate::tests::repository("patches").pop().unwrap().1;
        let of = |text: &str| {
            let library = Library::of(&[("mine.toml", text)]).unwrap();
            let set = PatchSet::resolve(&library, &Selection::default(), &practice, Sha256Digest(practice.sha256()));
            Firmware::of(&set.unwrap().apply().unwrap().image, &library)
        };
        let mine = text.replace("status-0x2a12", "mine");
        assert!(of(&mine).answers_writes(), "{mine}");
        let without = text.replace("effects = [\"answers-writes\"]", "");
        assert_ne!(text, without);
        assert!(!of(&without).answers_writes(), "an id alone has no effect");
    }

    #[test]
    fn an_image_whose_e1_does_nothing_can_not_be_rewritten_and_the_commands_say_so() {
        assert_eq!(Rewritable::of(&practice::image()), Rewritable::Yes);
        assert_eq!(Rewritable::of(&sample_image(0)), Rewritable::Unknown);
        // Replace E1's entry point, as docs/firmware.md lists it, with a RET.
        let mut broken = practice::image();
        assert!(broken.replace(CodeAddress::new(Bank::Bank1, 0xE89B).unwrap().body_offset(), &[0x22]));
        assert!(
            matches!(Rewritable::of(&broken), Rewritable::No(failed) if failed.contains("takes a configuration block (E1) over Bulk-Only"))
        );
    }
}
