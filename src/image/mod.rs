//! What is known of an image: what it is made of, what it enumerates as, and what executing it has proved.
//!
//! A command asks [`Images`], which remembers: it [identifies](Images::identify) each distinct image once, also where it
//! [verifies](Images::verify) it, and [proves](Images::prove) it at most once. The result of the first is a
//! [`KnownImage`], that of the second a [`Proof`], and everything after that is pure: a plan, a decision and the commands
//! to print are made from both, and execute nothing.
//!
//! - *Identifying* is cheap. It undoes the known patches and compares digests; only an image that then is no known one
//!   is booted, until it shows its USB descriptors, because there is no list of open firmware's builds. A proof
//!   identifies its image as well, by the same boot.
//! - *Proving* executes the image on the chip model as a host would use it: every command, both transports, firmware
//!   written over itself, a restart. It takes up to a [`ProofBudget`] and stops at Ctrl-C. `list`, `info` and `doctor`
//!   prove nothing.
//!
//! The chip's ROM starts its boot loader only while the flash holds no valid image. So firmware that does not take new
//! firmware can't be replaced over USB, and no image is written before it is proved.

mod firmware;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BridgeState, Image, known_routines};
use asm2464::interrupt::Interrupted;
use asm2464_chip::chip::ProofBudget;
use asm2464_chip::chip::boot::{self, Behind, BootFault, BootReport, Check, Enumerated, Purpose};

pub use self::firmware::{Firmware, OpenImage};
use crate::patch::{self, Expectations, Library, Verification};

/// An image and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownImage {
    /// The image.
    pub image: Image,
    /// SHA-256 of its file.
    pub sha256: Sha256Digest,
    /// What it is made of.
    pub firmware: Firmware,
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

/// What executing an image on the chip model has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The image.
    pub known: Arc<KnownImage>,
    /// Every check, and what the image enumerated as.
    pub report: BootReport,
    /// Whether a unit with the image can be written again.
    pub rewritable: Rewritable,
}

impl Proof {
    /// Judges the report on an image's boot.
    pub fn of(known: Arc<KnownImage>, report: BootReport) -> Self {
        let rewritable = match (report.no_way_back(), report.state()) {
            // A version whose routines are known boots on the model. If it does not boot, that is the image's fault.
            (Some(_), None) if known_routines(known.image.version()).next().is_none() => Rewritable::Unknown,
            (Some((check, fault)), _) => Rewritable::No(format!("{}: {fault}", check_words(check))),
            (None, Some(BridgeState::Vendor | BridgeState::OpenFirmware)) => Rewritable::Yes,
            (None, _) => Rewritable::Unknown,
        };
        Self { known, report, rewritable }
    }

    /// Returns the reasons for which a write of the image to such a unit needs the user's permission; none for one that
    /// [can't be written again](Rewritable::No), which no permission covers. The image's name doesn't count on a unit that
    /// `has_it` already, as when only its configuration changes.
    pub fn unproven(&self, is_virtual: bool, has_it: bool) -> Vec<Cow<'static, str>> {
        let mut why = Vec::new();
        if self.rewritable == Rewritable::Unknown {
            let reason = "the image does not boot on the chip model, which may not cover its version, so asmpatch \
                          couldn't prove that the unit would take firmware again";
            why.push(reason.into());
        }
        for (check, fault) in self.report.failures() {
            match (check.purpose, fault) {
                // Said above, or final.
                (Purpose::WayBack, _) => {}
                (Purpose::WithoutCard, _) => why.push(
                    "with nothing behind it the unit never comes up on the chip model: without a card that has power, \
                     nothing reaches the dock over USB"
                        .into(),
                ),
                (Purpose::Runtime, BootFault::OtherName(_)) if has_it => {}
                (Purpose::Runtime, BootFault::OtherName(product)) => why.push(
                    format!("the image names the unit {product:?}, and no GPU runtime opens a unit of that name")
                        .into(),
                ),
                (Purpose::Runtime, _) => why.push(
                    format!("no GPU runtime can use the unit: the check \"{}\" fails: {fault}", check_words(check))
                        .into(),
                ),
            }
        }
        if !is_virtual && self.known.firmware.is_practice() {
            why.push("the practice image has never run on silicon, and a real chip would not enumerate with it".into());
        }
        why
    }
}

/// Names a check, with its transport and what is behind the bridge.
pub fn check_words(check: &Check) -> String {
    let Check { what, wire, behind, .. } = check;
    match behind {
        Behind::Nothing => format!("{what} over {wire}"),
        Behind::Card | Behind::Ssd => format!("{what} over {wire}, with {behind} behind it"),
    }
}

/// The known images and patches, and what is known of the images of one run.
pub struct Images {
    /// The known images and patches.
    pub library: Library,
    budget_of_proof: Box<dyn Fn() -> ProofBudget + Send + Sync>,
    /// The images that were looked at; `None` for one that is made from no known image and was not booted yet.
    known: Mutex<BTreeMap<Sha256Digest, Option<Arc<KnownImage>>>>,
    proofs: Mutex<BTreeMap<Sha256Digest, Arc<Proof>>>,
}

impl Images {
    /// Nothing is known yet. `budget` makes the budget of each proof.
    pub fn new(library: Library, budget: impl Fn() -> ProofBudget + Send + Sync + 'static) -> Self {
        Self { library, budget_of_proof: Box::new(budget), known: Mutex::default(), proofs: Mutex::default() }
    }

    /// A new budget, for one proof.
    pub fn budget(&self) -> ProofBudget {
        (self.budget_of_proof)()
    }

    /// Identifies an image, or returns what was known of it.
    pub fn identify(&self, image: &Image) -> Arc<KnownImage> {
        self.identified(image, || boot::enumerated(image))
    }

    fn identified(&self, image: &Image, enumerated: impl FnOnce() -> Option<Enumerated>) -> Arc<KnownImage> {
        let sha256 = image.sha256();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match known.get(&sha256) {
            Some(Some(known)) => return Arc::clone(known),
            Some(None) => None,
            None => patch::identify(&self.library, image, sha256),
        };
        let made_of = found.as_ref().map(|found| (found.base, &found.patches[..]));
        let firmware = Firmware::of(image, &self.library, made_of, enumerated);
        let identified = Arc::new(KnownImage { image: image.clone(), sha256, firmware });
        known.insert(sha256, Some(Arc::clone(&identified)));
        identified
    }

    /// Verifies an image, and identifies it by the same look, as far as that needs no boot.
    pub fn verify(&self, image: &Image, expect: &Expectations<'_>) -> Verification<'_> {
        self.remembered(patch::verify(&self.library, image, expect))
    }

    /// Verifies a file, and identifies the image in it, if there is one, as [`Images::verify`] does.
    pub fn verify_file(&self, file: &[u8], expect: &Expectations<'_>) -> Verification<'_> {
        self.remembered(patch::verify_file(&self.library, file, expect))
    }

    fn remembered<'a>(&self, verification: Verification<'a>) -> Verification<'a> {
        let (sha256, made_of) = (verification.sha256, verification.base.map(|base| (base, &verification.patches[..])));
        if let Some(image) = &verification.image {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(sha256).or_insert_with(|| {
                let firmware = Firmware::of(image, &self.library, Some(made_of?), || None);
                Some(Arc::new(KnownImage { image: image.clone(), sha256, firmware }))
            });
        }
        verification
    }

    /// Proves an image, or returns its proof. Also identifies it, without a boot of its own: an image that never
    /// enumerates is waited for once. Other threads wait: images are proved one after the other.
    ///
    /// # Errors
    /// [`Interrupted`] on Ctrl-C.
    pub fn prove(&self, image: &Image) -> Result<Arc<Proof>, Interrupted> {
        let mut proofs = self.proofs.lock().unwrap_or_else(PoisonError::into_inner);
        let sha256 = image.sha256();
        if let Some(proof) = proofs.get(&sha256) {
            return Ok(Arc::clone(proof));
        }
        let report = boot::check_within(image, &self.budget())?;
        let known = self.identified(image, || report.enumerated.clone());
        let proof = Arc::new(Proof::of(known, report));
        proofs.insert(sha256, Arc::clone(&proof));
        Ok(proof)
    }

    /// The proof of an image, if this run has proved it. Executes nothing.
    pub fn proof(&self, known: &KnownImage) -> Option<Arc<Proof>> {
        self.proofs.lock().unwrap_or_else(PoisonError::into_inner).get(&known.sha256).cloned()
    }
}

/// Images with the default budget, which Ctrl-C does not end.
impl From<Library> for Images {
    fn from(library: Library) -> Self {
        Self::new(library, ProofBudget::default)
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").field("known", &self.known).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Proofs for tests.

    use std::sync::LazyLock;

    use super::*;

    static IMAGES: LazyLock<Images> = LazyLock::new(|| Library::of_repository().unwrap().into());

    /// A real proof: the image is executed once for all tests.
    pub(crate) fn proved(image: &Image) -> Arc<Proof> {
        IMAGES.prove(image).unwrap()
    }

    /// A proof that says so, without having executed the image.
    pub(crate) fn proof(image: &Image, rewritable: Rewritable) -> Arc<Proof> {
        let known = IMAGES.identify(image);
        Arc::new(Proof { known, report: BootReport::default(), rewritable })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use asm2464::firmware::{Bank, BodyOffset, CodeAddress};
    use asm2464_chip::practice;

    use super::*;
    use crate::flash::backup::tests::sample_image;
    use crate::patch::{PatchSet, Selection};

    fn proved(image: &Image) -> Proof {
        let images = Images::from(Library::of_repository().unwrap());
        let proof = images.prove(image).unwrap();
        Proof::clone(&proof)
    }

    #[test]
    fn an_image_is_identified_once_and_proved_once_however_often_it_is_asked_for() {
        static PROOFS: AtomicUsize = AtomicUsize::new(0);
        let images = Images::new(Library::of_repository().unwrap(), || {
            PROOFS.fetch_add(1, Ordering::Relaxed);
            ProofBudget::default()
        });
        let (practice, open) = (practice::image(), practice::open_image());
        assert!(images.verify(&practice, &Expectations::default()).is_valid());
        let known = images.identify(&practice);
        assert!(known.firmware.is_practice() && Arc::ptr_eq(&known, &images.identify(&practice)));
        assert_eq!(images.proof(&known), None, "identifying proves nothing");
        let proof = images.prove(&practice).unwrap();
        assert!(Arc::ptr_eq(&proof, &images.prove(&practice).unwrap()));
        assert!(Arc::ptr_eq(&proof, &images.proof(&known).unwrap()));
        assert!(images.verify(&open, &Expectations::default()).is_unknown_alone());
        assert!(images.prove(&open).unwrap().known.firmware.open().is_some());
        assert_eq!(PROOFS.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn an_image_that_does_not_boot_is_at_fault_only_where_the_model_covers_its_version() {
        let mut image = sample_image(0);
        assert_eq!(proved(&image).rewritable, Rewritable::Unknown);
        // The version's place, and 240417's digits.
        assert!(image.replace(BodyOffset(0x200), &[0x24, 0x04, 0x17, 0x85, 0x00, 0x00]));
        assert!(matches!(proved(&image).rewritable, Rewritable::No(_)));
    }

    #[test]
    fn an_image_whose_e1_does_nothing_can_not_be_rewritten_and_the_commands_say_so() {
        assert_eq!(proved(&practice::image()).rewritable, Rewritable::Yes);
        // Replace E1's entry point, as docs/lab/firmware.md lists it, with a RET.
        let mut broken = practice::image();
        assert!(broken.replace(CodeAddress::new(Bank::Bank1, 0xE89B).unwrap().body_offset(), &[0x22]));
        assert!(
            matches!(proved(&broken).rewritable, Rewritable::No(failed) if failed.contains("takes a configuration block (E1) over Bulk-Only"))
        );
    }

    #[test]
    fn an_image_that_only_has_a_name_which_runtimes_refuse_can_be_rewritten() {
        assert!(proved(&practice::open_image()).unproven(true, false).is_empty());
        let mut other = practice::open_image();
        let name = b"custom practice";
        let at = other.body().windows(name.len()).position(|bytes| bytes == name).unwrap();
        assert!(other.replace(BodyOffset(at as u32), b"tinier practice"));
        let proof = proved(&other);
        let expected = "the image names the unit \"tinier practice\", and no GPU runtime opens a unit of that name";
        assert_eq!((&proof.rewritable, &proof.unproven(true, false)[..]), (&Rewritable::Yes, &[expected.into()][..]));
        assert!(!proof.report.passes());
        assert!(proof.unproven(true, true).is_empty(), "the unit has that name already");
    }

    #[test]
    fn an_images_own_code_says_whether_it_has_the_extension_of_e4() {
        let image = practice::image();
        let library = Library::of_repository().unwrap();
        let selection = Selection { add: vec!["e4-length-16".to_owned()], ..Selection::default() };
        let set = PatchSet::resolve(&library, &selection, &image, image.sha256()).unwrap();
        let patched = set.apply().unwrap().image;
        let e4_extension = |image: &Image| proved(image).report.e4_extension;
        assert_eq!([e4_extension(&image), e4_extension(&patched)], [Some(false), Some(true)]);
        assert_eq!([e4_extension(&practice::open_image()), e4_extension(&sample_image(1))], [None, None]);
    }
}
