//! Is a file what it should be: container, base image, patches, receipt.

use miette::Diagnostic;
use thiserror::Error;

use super::apply::{Identified, identify};
use super::definition::{HunkAddress, Patch};
use super::library::Library;
use super::receipt::Receipt;
use super::set::{PatchError, PatchSet};
use crate::digest::Sha256Digest;
use crate::firmware::{BodyOffset, FileOffset, FirmwareVersion, Image, ImageError};

/// What a file is held against, beside its own container.
#[derive(Default)]
pub struct Expectations<'a> {
    /// What was written when the file was made.
    pub receipt: Option<&'a Receipt>,
    /// The unpatched image that it must have been made from.
    pub image: Option<Sha256Digest>,
    /// The bytes of unpatched images, if available. They make every differing byte visible, not only
    /// those that patches know.
    pub originals: Option<Originals<'a>>,
}

/// A source of unpatched images' bytes, by digest.
pub type Originals<'a> = &'a dyn Fn(&Sha256Digest) -> Option<Image>;

/// What [`verify`] found.
#[derive(Debug)]
pub struct Verification<'a> {
    /// The file's digest.
    pub sha256: Sha256Digest,
    /// The image; `None` where the container does not hold.
    pub image: Option<Image>,
    /// The unpatched image, found by undoing patches.
    pub original: Option<Image>,
    /// The unpatched image's digest.
    pub base: Option<Sha256Digest>,
    /// The patches that are in it.
    pub patches: Vec<&'a Patch>,
    /// What is wrong. Empty: the file is what it should be.
    pub findings: Vec<Finding>,
    /// Bytes that differ from what they should be, ascending.
    pub differences: Vec<Difference>,
}

impl Verification<'_> {
    /// Whether nothing is wrong.
    pub fn holds(&self) -> bool {
        self.findings.is_empty() && self.differences.is_empty()
    }

    /// Whether nothing is wrong but that no known image is behind it.
    pub fn is_unknown_alone(&self) -> bool {
        self.differences.is_empty()
            && !self.findings.is_empty()
            && self.findings.iter().all(|finding| matches!(finding, Finding::UnknownBase))
    }
}

/// A byte that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// Where.
    pub at: FileOffset,
    /// What should be there; `None` past the end of what should be there.
    pub expected: Option<u8>,
    /// What is there; `None` past the end of the file.
    pub found: Option<u8>,
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum Finding {
    /// The container does not hold.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Container(#[from] ImageError),
    /// Undoing patches gives no known image.
    #[error("undoing the known patches gives no known image")]
    #[diagnostic(code(asmpatch::verify::unknown_base))]
    UnknownBase,
    /// It was made from another image than it should.
    #[error("the base image is {found}, expected {expected}")]
    #[diagnostic(code(asmpatch::verify::other_base))]
    OtherBase {
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The receipt is for other bytes.
    #[error("the receipt's {which} has the SHA-256 {receipt}, this file's has {found}")]
    #[diagnostic(code(asmpatch::verify::receipt_digest))]
    ReceiptDigest {
        /// `input` or `output`.
        which: &'static str,
        /// The receipt's digest.
        receipt: Sha256Digest,
        /// The file's, or that of its base image.
        found: Sha256Digest,
    },
    /// The receipt names a patch that is not known here.
    #[error("the receipt names the patch `{id}`, which is not known")]
    #[diagnostic(code(asmpatch::verify::unknown_patch))]
    UnknownPatch {
        /// The patch.
        id: String,
    },
    /// The receipt names a patch that is not in the file.
    #[error("the patch `{id}` is in the receipt, but not in the file")]
    #[diagnostic(code(asmpatch::verify::patch_missing))]
    PatchMissing {
        /// The patch.
        id: String,
    },
    /// A patch is in the file that the receipt does not name.
    #[error("the patch `{id}` is in the file, but not in the receipt")]
    #[diagnostic(code(asmpatch::verify::patch_unlisted))]
    PatchUnlisted {
        /// The patch.
        id: String,
    },
    /// A patch's definition has changed since.
    #[error("the patch `{id}` does something else than when the receipt was written: digest {found}, was {receipt}")]
    #[diagnostic(code(asmpatch::verify::patch_digest))]
    PatchDigest {
        /// The patch.
        id: String,
        /// The receipt's digest of it.
        receipt: Sha256Digest,
        /// The known patch's.
        found: Sha256Digest,
    },
    /// The receipt's configuration is not what its patches say.
    #[error("the receipt's [config] is not what its patches say")]
    #[diagnostic(code(asmpatch::verify::receipt_config))]
    ReceiptConfig,
    /// The patches in the file don't go together.
    #[error("the patches in the file do not go together: {0}")]
    #[diagnostic(code(asmpatch::verify::patch_set))]
    PatchSet(PatchError),
    /// A patch's place holds neither its expected nor its new bytes.
    #[error("at {at} there are neither the original's bytes nor those of the patch `{id}`")]
    #[diagnostic(code(asmpatch::verify::hunk))]
    Hunk {
        /// The patch.
        id: String,
        /// The place.
        at: HunkAddress,
    },
}

/// Holds a file against its container, the known images, the known patches and what else is expected of it.
///
/// Costs one pass for the container and one or two SHA-256, so a thousand images a second.
pub fn verify<'a>(library: &'a Library, file: &[u8], expect: &Expectations<'_>) -> Verification<'a> {
    let mut verification = Verification {
        sha256: Sha256Digest::of(file),
        image: None,
        original: None,
        base: None,
        patches: Vec::new(),
        findings: Vec::new(),
        differences: Vec::new(),
    };
    match Image::parse(file) {
        Ok(image) => match identify(library, &image, verification.sha256) {
            Some(Identified { base, original, patches }) => {
                if let Err(error) = check_set(library, &patches, &original, base) {
                    verification.findings.push(Finding::PatchSet(error));
                }
                verification.image = Some(image);
                verification.original = Some(original);
                verification.base = Some(base);
                verification.patches = patches;
            }
            None => {
                verification.findings.push(Finding::UnknownBase);
                verification.image = Some(image);
            }
        },
        Err(error) => verification.findings.push(error.into()),
    }
    if let (Some(expected), Some(found)) = (expect.image, verification.base)
        && expected != found
    {
        let (expected, found) = (library.image_name(&expected), library.image_name(&found));
        verification.findings.push(Finding::OtherBase { expected, found });
    }
    if let Some(receipt) = expect.receipt {
        check_receipt(library, receipt, &mut verification);
    }
    // An identified file without a finding is its original with its patches, byte for byte.
    if !verification.findings.is_empty() {
        compare(library, file, expect, &mut verification);
    }
    verification
}

/// Fills in the differing bytes, or without the original, what patches know of it.
fn compare(library: &Library, file: &[u8], expect: &Expectations<'_>, verification: &mut Verification<'_>) {
    let base = expect
        .image
        .or(expect.receipt.map(|receipt| receipt.input.sha256))
        .or(verification.base)
        .or_else(|| guess_base(library, verification.image.as_ref()?.version(), expect));
    let Some(base) = base else { return };
    let identified = verification.base == Some(base);
    let original = match &verification.original {
        Some(original) if identified => Some(original.clone()),
        _ => expect.originals.and_then(|originals| originals(&base)),
    };
    let Some(mut expected) = original else {
        verification.findings.extend(foreign_hunks(library, file, &base));
        return;
    };
    let patches = match expect.receipt {
        Some(receipt) => receipt.patches.iter().filter_map(|patch| library.get(&patch.id)).collect(),
        None if identified => verification.patches.clone(),
        None => patches_in(library, file, &base),
    };
    for hunk in patches.iter().flat_map(|patch| patch.hunks(&base)) {
        let _ = expected.replace(hunk.at.body_offset(), &hunk.new);
    }
    verification.differences = differences(&expected.to_file(), file);
}

/// The available image of the same version: what an unidentified file most likely was.
fn guess_base(library: &Library, version: FirmwareVersion, expect: &Expectations<'_>) -> Option<Sha256Digest> {
    let originals = expect.originals?;
    library.images().keys().copied().find(|base| originals(base).is_some_and(|image| image.version() == version))
}

fn check_set<'a>(
    library: &Library,
    patches: &[&'a Patch],
    original: &'a Image,
    base: Sha256Digest,
) -> Result<(), PatchError> {
    if patches.is_empty() { Ok(()) } else { PatchSet::of(library, patches.to_vec(), original, base).map(drop) }
}

fn check_receipt(library: &Library, receipt: &Receipt, verification: &mut Verification<'_>) {
    let findings = &mut verification.findings;
    if receipt.output.sha256 != verification.sha256 {
        let (receipt, found) = (receipt.output.sha256, verification.sha256);
        findings.push(Finding::ReceiptDigest { which: "output", receipt, found });
    }
    if let Some(found) = verification.base
        && receipt.input.sha256 != found
    {
        findings.push(Finding::ReceiptDigest { which: "input", receipt: receipt.input.sha256, found });
    }
    let base = receipt.input.sha256;
    let mut config = super::ConfigEdits::default();
    let mut all_known = true;
    for listed in &receipt.patches {
        let id = listed.id.clone();
        let Some(patch) = library.get(&id) else {
            all_known = false;
            findings.push(Finding::UnknownPatch { id });
            continue;
        };
        let found = patch.digest(&base);
        if found != listed.digest {
            findings.push(Finding::PatchDigest { id, receipt: listed.digest, found });
        } else if verification.base.is_some()
            && !patch.hunks(&base).is_empty()
            && !verification.patches.iter().any(|there| there.id() == patch.id())
        {
            findings.push(Finding::PatchMissing { id });
        }
        // Patches that set a field differently are not in one set, so not in one receipt either.
        all_known &= config.merge(patch.config()).is_ok();
    }
    for patch in &verification.patches {
        if !receipt.patches.iter().any(|listed| listed.id == patch.id()) {
            findings.push(Finding::PatchUnlisted { id: patch.id().to_owned() });
        }
    }
    if all_known && config != receipt.config {
        findings.push(Finding::ReceiptConfig);
    }
}

/// Body bytes, by their place in the body, of a file whose container may not hold.
fn body_bytes(file: &[u8], range: std::ops::Range<usize>) -> Option<&[u8]> {
    let header = BodyOffset(0).file_offset().0 as usize;
    file.get(range.start + header..range.end + header)
}

fn patches_in<'a>(library: &'a Library, file: &[u8], base: &Sha256Digest) -> Vec<&'a Patch> {
    let is_in = |patch: &&Patch| {
        let hunks = patch.hunks(base);
        !hunks.is_empty() && hunks.iter().all(|hunk| body_bytes(file, hunk.range()) == Some(&hunk.new))
    };
    library.iter().filter(is_in).collect()
}

/// Without the base's bytes, the patches that know it still tell something.
fn foreign_hunks(library: &Library, file: &[u8], base: &Sha256Digest) -> Vec<Finding> {
    let hunks = library.iter().flat_map(|patch| patch.hunks(base).iter().map(move |hunk| (patch, hunk)));
    // Another patch may have changed the same place: only bytes that no patch knows are foreign.
    let known = |range: std::ops::Range<usize>, found: &[u8]| {
        library.iter().flat_map(|patch| patch.hunks(base)).any(|hunk| hunk.range() == range && hunk.new == found)
    };
    hunks
        .filter(|(_, hunk)| match body_bytes(file, hunk.range()) {
            Some(found) => found != hunk.expect && found != hunk.new && !known(hunk.range(), found),
            None => true,
        })
        .map(|(patch, hunk)| Finding::Hunk { id: patch.id().to_owned(), at: hunk.at })
        .collect()
}

fn differences(expected: &[u8], found: &[u8]) -> Vec<Difference> {
    (0..expected.len().max(found.len()))
        .map(|at| Difference {
            at: FileOffset(at as u32),
            expected: expected.get(at).copied(),
            found: found.get(at).copied(),
        })
        .filter(|difference| difference.expected != difference.found)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Selection;
    use super::*;
    use crate::practice;

    fn patched() -> (Library, Vec<u8>, Receipt) {
        let library = Library::embedded().unwrap();
        let image = practice::image();
        let digest = Sha256Digest(image.sha256());
        let patched = PatchSet::resolve(&library, &Selection::default(), &image, digest).unwrap().apply().unwrap();
        (library, patched.image.to_file(), patched.receipt)
    }

    fn practice_original(sha256: &Sha256Digest) -> Option<Image> {
        let image = practice::image();
        (image.sha256() == sha256.0).then_some(image)
    }

    #[test]
    fn a_patched_image_holds_against_its_receipt_and_its_base() {
        let (library, file, receipt) = patched();
        let base = Sha256Digest(practice::image().sha256());
        let expect = Expectations { receipt: Some(&receipt), image: Some(base), originals: None };
        let verification = verify(&library, &file, &expect);
        assert!(verification.holds(), "{:?}", verification.findings);
        assert_eq!(verification.base, Some(base));
        assert_eq!(verification.patches.iter().map(|patch| patch.id()).collect::<Vec<_>>(), ["status-0x2a12"]);
        assert!(verify(&library, &practice::image().to_file(), &Expectations::default()).holds());
    }

    #[test]
    fn every_byte_that_differs_is_named_where_the_original_is_to_be_had() {
        let (library, file, receipt) = patched();
        let mut image = Image::parse(&file).unwrap();
        assert!(image.replace(BodyOffset(0x1_0000), &[0x77, 0x88]));
        let foreign = image.to_file();
        let expect =
            Expectations { receipt: Some(&receipt), originals: Some(&practice_original), ..Default::default() };
        let verification = verify(&library, &foreign, &expect);
        assert!(verification.findings.contains(&Finding::UnknownBase));
        assert!(verification.findings.iter().any(|f| matches!(f, Finding::ReceiptDigest { which: "output", .. })));
        let body: Vec<_> = verification.differences.iter().filter(|d| d.at.0 < image.trailer_offset().0).collect();
        assert_eq!(body.len(), 2);
        assert_eq!((body[0].at, body[0].found), (FileOffset(0x1_0004), Some(0x77)));
        // The same without a receipt: the version tells which image it most likely was.
        let expect = Expectations { originals: Some(&practice_original), ..Default::default() };
        assert_eq!(verify(&library, &foreign, &expect).differences, verification.differences);
    }

    #[test]
    fn a_broken_container_is_a_finding_and_its_bytes_are_compared_still() {
        let (library, file, _) = patched();
        let mut broken = file.clone();
        broken[0x100] ^= 0xFF;
        let base = Sha256Digest(practice::image().sha256());
        let expect = Expectations { image: Some(base), originals: Some(&practice_original), ..Default::default() };
        let verification = verify(&library, &broken, &expect);
        assert!(matches!(verification.findings[..], [Finding::Container(ImageError::Checksum { .. })]));
        let only = Difference { at: FileOffset(0x100), expected: Some(file[0x100]), found: Some(broken[0x100]) };
        assert_eq!(verification.differences, [only]);
        let cut = verify(&library, &file[..file.len() - 1], &expect);
        assert_eq!(cut.differences.last().map(|d| d.found), Some(None));
    }

    #[test]
    fn a_receipt_that_belongs_to_other_bytes_is_told_from_one_that_was_edited() {
        let (library, file, receipt) = patched();
        let findings = |file: &[u8], receipt: &Receipt| {
            verify(&library, file, &Expectations { receipt: Some(receipt), ..Default::default() }).findings
        };
        let unpatched = findings(&practice::image().to_file(), &receipt);
        assert!(unpatched.iter().any(|f| matches!(f, Finding::PatchMissing { id } if id == "status-0x2a12")));
        let mut edited = receipt.clone();
        edited.config = toml::from_str("vendor-id = 0x1234").unwrap();
        assert_eq!(findings(&file, &edited), [Finding::ReceiptConfig]);
        edited = receipt.clone();
        edited.patches.retain(|patch| patch.id != "status-0x2a12");
        assert_eq!(findings(&file, &edited), [Finding::PatchUnlisted { id: "status-0x2a12".to_owned() }]);
        edited = receipt.clone();
        edited.patches[0].digest = Sha256Digest([0; 32]);
        assert!(matches!(findings(&file, &edited)[..], [Finding::PatchDigest { .. }]));
        edited.patches[0].id = "gone".to_owned();
        assert!(matches!(&findings(&file, &edited)[..], [Finding::UnknownPatch { id }] if id == "gone"));
    }

    #[test]
    fn foreign_bytes_at_a_patchs_place_are_found_without_the_original() {
        let (library, file, _) = patched();
        let mut image = Image::parse(&file).unwrap();
        assert!(image.replace(BodyOffset(0x2A0E), &[0x99]));
        let base = Sha256Digest(practice::image().sha256());
        let expect = Expectations { image: Some(base), ..Default::default() };
        let findings = verify(&library, &image.to_file(), &expect).findings;
        assert!(matches!(&findings[..], [Finding::UnknownBase, Finding::Hunk { id, .. }] if id == "status-0x2a12"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_verified_without_a_panic(mut bytes: Vec<u8>, at in 0usize..98_016, cut in 0usize..98_016) {
            let (library, mut file, receipt) = patched();
            let expect = Expectations {
                receipt: Some(&receipt),
                image: Some(receipt.input.sha256),
                originals: Some(&practice_original),
            };
            proptest::prop_assert!(!verify(&library, &bytes, &expect).holds());
            bytes.truncate(file.len() - at);
            let changed = file[at..at + bytes.len()] != bytes[..];
            file[at..at + bytes.len()].copy_from_slice(&bytes);
            proptest::prop_assert_eq!(verify(&library, &file, &expect).holds(), !changed);
            proptest::prop_assert!(!verify(&library, &file[..cut], &expect).holds());
        }
    }
}
