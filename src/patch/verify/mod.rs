//! Verifies a file: container, base image, patches, receipt.

use std::collections::BTreeSet;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BodyOffset, CodeAddress, FileOffset, FlashAddress, Image};
use asm2464::{AnyFailure, Failure, Kind, Label};
use serde::Serialize;

use super::definition::{Hunk, Patch, PatchEffect};
use super::identify::{Identified, identify, patches_in};
use super::library::Library;
use super::receipt::{Receipt, ReceiptImage, ReceiptPatch};
use super::set::PatchSet;
use crate::file_kind::is_bank_0;

/// The most places of other bytes that are named in words.
const MAX_PLACES: usize = 4;

/// What to compare a file with, in addition to checking its container.
#[derive(Default)]
pub struct Expectations<'a> {
    /// The receipt that was written with the file.
    pub receipt: Option<&'a Receipt>,
    /// The unpatched image that it must have been made from.
    pub image: Option<Sha256Digest>,
    /// The bytes of unpatched images, if available. With them, every differing byte is found, not only those that
    /// patches know.
    pub originals: Option<Originals<'a>>,
}

/// A source of unpatched images' bytes, by digest.
pub type Originals<'a> = &'a dyn Fn(&Sha256Digest) -> Option<Image>;

/// What [`verify`] found.
#[derive(Debug)]
pub struct Verification<'a> {
    /// The file's digest.
    pub sha256: Sha256Digest,
    /// The image; `None` if the container is invalid.
    pub image: Option<Image>,
    /// The unpatched image, found by undoing patches.
    pub original: Option<Image>,
    /// The unpatched image's digest.
    pub base: Option<Sha256Digest>,
    /// The patches in the file.
    pub patches: Vec<&'a Patch>,
    /// The known image that an unknown one is compared with, and the patches that it is expected to have.
    pub compared: Option<(Sha256Digest, Vec<&'a Patch>)>,
    /// What is wrong with the file; empty if nothing is.
    pub findings: Vec<AnyFailure>,
    /// Bytes that differ from what they should be, ascending.
    pub differences: Vec<Difference>,
}

impl Verification<'_> {
    /// Nothing is checked yet.
    const fn unchecked(sha256: Sha256Digest) -> Self {
        Self {
            sha256,
            image: None,
            original: None,
            base: None,
            patches: Vec::new(),
            compared: None,
            findings: Vec::new(),
            differences: Vec::new(),
        }
    }

    fn find(&mut self, label: Label, message: impl Into<String>) {
        self.findings.push(Failure::new(label, message).into());
    }

    /// Whether nothing is wrong.
    pub fn is_valid(&self) -> bool {
        self.findings.is_empty() && self.differences.is_empty()
    }

    /// Whether a receipt belongs to this file: it has the digests of the file and of the base image, if that is known.
    pub fn is_of(&self, receipt: &Receipt) -> bool {
        receipt.output.sha256 == self.sha256 && self.base.is_none_or(|base| base == receipt.input.sha256)
    }

    /// Returns the effects of the patches in the file.
    pub fn effects(&self) -> impl Iterator<Item = PatchEffect> {
        self.patches.iter().flat_map(|patch| patch.effects.iter().copied())
    }

    /// Says which patches are in the file: `unpatched`, or `with` their ids.
    pub fn patches_words(&self) -> String {
        let ids: Vec<&str> = self.patches.iter().map(|patch| patch.id.as_str()).collect();
        if ids.is_empty() { "unpatched".to_owned() } else { format!("with {}", ids.join(", ")) }
    }

    /// Describes an unknown image by the known one that it was most likely made from: the patches in it, what is missing,
    /// and where it has other bytes. `None` for any other file.
    pub fn changed_words(&self, library: &Library) -> Option<String> {
        let image = self.image.as_ref()?;
        let Some((base, patches)) = self.compared.as_ref() else {
            return is_bank_0(image).then(|| format!("{} without bank 1", image.version().words()));
        };
        let ids: Vec<&str> = patches.iter().map(|patch| patch.id.as_str()).collect();
        let mut known = library.image_name(base);
        let mut joint = " with";
        if !ids.is_empty() {
            known = format!("{known} with {}", ids.join(", "));
            joint = ", and";
        }
        let missing = self.differences.iter().filter(|byte| byte.found.is_none()).count();
        if missing > 0 {
            known = format!("{known} without the last {missing} of {} bytes of code", image.body().len() + missing);
            joint = ", and with";
        }
        // The length field before the body follows from it, and so do magic, checksum and CRC behind it.
        let in_body =
            |byte: &&Difference| byte.file_offset.body_offset().is_some() && byte.file_offset < image.trailer_offset();
        let bytes: Vec<&Difference> = self.differences.iter().filter(in_body).collect();
        if bytes.is_empty() && missing > 0 {
            return Some(known);
        }
        if bytes.is_empty() && is_bank_0(image) {
            return Some(format!("{known} without bank 1"));
        }
        let known = known + joint;
        if bytes.is_empty() {
            return Some(format!("{known} other bytes, which asmpatch can't name without the original"));
        }
        let places = bytes.chunk_by(|a, b| a.file_offset.0 + 1 == b.file_offset.0).map(|place| place[0]);
        let mut places: Vec<String> = places
            .map(|at| at.address.map_or_else(|| at.file_offset.to_string(), |address| address.to_string()))
            .collect();
        let more = if places.len() > MAX_PLACES { " and elsewhere" } else { "" };
        places.truncate(MAX_PLACES);
        let plural = if bytes.len() == 1 { "byte" } else { "bytes" };
        Some(format!("{known} {} other {plural} ({}{more})", bytes.len(), places.join(", ")))
    }

    /// Whether the only finding is that the file comes from no known image.
    pub fn is_unknown_alone(&self) -> bool {
        self.differences.is_empty() && self.lacks_only_a_base()
    }

    /// As [`Verification::is_unknown_alone`], or the image is a known one's with other bytes.
    pub fn lacks_only_a_base(&self) -> bool {
        self.image.is_some() && self.base.is_none() && self.findings.len() == 1
    }
}

/// A byte that differs from what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "DifferenceJson", description = ""))]
pub struct Difference {
    /// Its place in the file, in bytes.
    #[cfg_attr(feature = "schemas", schemars(with = "u32"))]
    pub file_offset: FileOffset,
    /// Its place in flash, in bytes.
    #[cfg_attr(feature = "schemas", schemars(with = "u32"))]
    pub flash_address: FlashAddress,
    /// Its code address.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
    pub address: Option<CodeAddress>,
    /// The byte that should be there.
    pub expected: Option<u8>,
    /// The byte that is there.
    pub found: Option<u8>,
}

impl Difference {
    /// What should be at an offset, and what is there: `None` past the end.
    fn at(file_offset: FileOffset, expected: Option<u8>, found: Option<u8>) -> Self {
        let flash_address = file_offset.flash_address();
        let address = file_offset.body_offset().and_then(BodyOffset::code_address);
        Self { file_offset, flash_address, address, expected, found }
    }
}

/// Checks a file against its container, and the image in it as [`verify`] does.
pub fn verify_file<'a>(library: &'a Library, file: &[u8], expect: &Expectations<'_>) -> Verification<'a> {
    let error = match Image::parse(file) {
        Ok(image) => return verify(library, &image, expect),
        Err(error) => error,
    };
    let mut verification = Verification::unchecked(Sha256Digest::of(file));
    verification.findings.push(error.into());
    check_expected(library, file, expect, &mut verification);
    verification
}

/// Checks an image against the known images, the known patches and the given expectations.
///
/// Usually costs one or two SHA-256: a thousand images take about a second.
pub fn verify<'a>(library: &'a Library, image: &Image, expect: &Expectations<'_>) -> Verification<'a> {
    let file = image.to_file();
    let mut verification = Verification::unchecked(Sha256Digest::of(&file));
    match identify(library, image, verification.sha256) {
        Some(Identified { base, original, patches }) => {
            if !patches.is_empty()
                && let Err(why) = PatchSet::of(library, patches.clone(), &original, base)
            {
                let message = format!("the patches in the file do not go together: {why}");
                verification.find(Kind::CheckFailed.code("asmpatch::verify::patch_set"), message);
            }
            verification.original = Some(original);
            verification.base = Some(base);
            verification.patches = patches;
        }
        None => verification.find(
            Kind::CheckFailed.code("asmpatch::verify::unknown_base"),
            "it is not a known image, with or without the known patches",
        ),
    }
    verification.image = Some(image.clone());
    check_expected(library, &file, expect, &mut verification);
    // The bytes that differ say what is unknown of it.
    if verification.lacks_only_a_base() && !verification.differences.is_empty() && !is_expected_open(library, expect) {
        verification.findings.clear();
        verification.find(
            Kind::CheckFailed.code("asmpatch::verify::other_bytes"),
            "it is not a known image, with or without the known patches: the bytes that differ are listed",
        );
    }
    verification
}

/// Whether a build of open firmware is expected.
fn is_expected_open(library: &Library, expect: &Expectations<'_>) -> bool {
    expect.image.is_some_and(|image| library.open_images().contains_key(&image))
}

/// Checks a file against the given expectations.
fn check_expected<'a>(
    library: &'a Library,
    file: &[u8],
    expect: &Expectations<'_>,
    verification: &mut Verification<'a>,
) {
    if let (Some(expected), Some(found)) = (expect.image, verification.base)
        && expected != found
    {
        let (expected, found) = (library.image_name(&expected), library.image_name(&found));
        let message = format!("the base image is {found}, expected {expected}");
        verification.find(Kind::CheckFailed.code("asmpatch::verify::other_base"), message);
    }
    // Open firmware takes no patches: it is the known image byte for byte, or another one. That says more than that it is
    // unknown.
    if let Some(known) = expect.image.and_then(|expected| library.open_images().get(&expected))
        && expect.image != Some(verification.sha256)
        && verification.base.is_none()
        && verification.image.is_some()
    {
        let message = format!("it is not the known image {}: its SHA-256 is {}", known.id, verification.sha256);
        verification.findings.clear();
        verification.find(Kind::CheckFailed.code("asmpatch::verify::other_base"), message);
    }
    // An intact image, or one of another length, was not changed since the receipt was written.
    let other_receipt = expect.receipt.filter(|receipt| {
        let is_intact = verification.findings.is_empty() || receipt.output.size != file.len() as u64;
        verification.image.is_some() && is_intact && !verification.is_of(receipt)
    });
    if let Some(receipt) = other_receipt {
        let ReceiptImage { sha256, .. } = receipt.output;
        let message = format!("this is the receipt of another image, which has the SHA-256 {sha256}");
        verification.find(Kind::CheckFailed.code("asmpatch::verify::other_receipt"), message);
        return;
    }
    if let Some(receipt) = expect.receipt {
        check_receipt(library, receipt, verification);
    }
    let listed = expect.receipt.iter().flat_map(|receipt| receipt.patches.iter().map(|listed| listed.id.as_str()));
    let ids: BTreeSet<&str> = verification.patches.iter().map(|patch| patch.id.as_str()).chain(listed).collect();
    for id in ids.into_iter().filter(|id| !library.vouches_for(id)) {
        let message = format!("the patch `{id}` is known only from a file that came with the image");
        verification.find(Kind::CheckFailed.code("asmpatch::verify::patch_unvouched"), message);
    }
    // An identified file without a finding is its original with its patches, byte for byte.
    if !verification.findings.is_empty() {
        compare(library, file, expect, verification);
    }
}

/// Adds the differing bytes. Without the original, adds the hunks whose bytes no patch explains, unless the base is
/// known by the version alone.
fn compare<'a>(library: &'a Library, file: &[u8], expect: &Expectations<'_>, verification: &mut Verification<'a>) {
    let named = expect.image.or(expect.receipt.map(|receipt| receipt.input.sha256)).or(verification.base);
    let of_version = || library.image_of_version(verification.image.as_ref()?.version());
    let Some(base) = named.or_else(of_version) else { return };
    let identified = verification.base == Some(base);
    let original = match &verification.original {
        Some(original) if identified => Some(original.clone()),
        _ => expect.originals.and_then(|originals| originals(&base)),
    };
    // The container may be invalid, but its header has a fixed length.
    let body = file.get(BodyOffset(0).file_offset().0 as usize..).unwrap_or_default();
    let mut patches: Vec<&Patch> = match expect.receipt {
        Some(receipt) => receipt.patches.iter().filter_map(|patch| library.get(&patch.id)).collect(),
        None if identified => verification.patches.clone(),
        None => patches_in(library, body, &base),
    };
    patches.retain(|patch| !patch.hunks(&base).is_empty());
    if verification.base.is_none() {
        // A receipt may name an image that nobody knows.
        verification.compared = if library.images().contains_key(&base) {
            Some((base, patches.clone()))
        } else {
            of_version().map(|base| (base, patches_in(library, body, &base)))
        };
    }
    let Some(mut expected) = original else {
        if named.is_some() {
            verification.findings.extend(foreign_hunks(library, body, &base));
        }
        return;
    };
    for hunk in patches.iter().flat_map(|patch| patch.hunks(&base)) {
        let _ = expected.replace(hunk.at, &hunk.new);
    }
    verification.differences = differences(&expected.to_file(), file);
}

fn check_receipt(library: &Library, receipt: &Receipt, verification: &mut Verification<'_>) {
    let base = receipt.input.sha256;
    for (which, written, found) in
        [("output", receipt.output.sha256, Some(verification.sha256)), ("input", base, verification.base)]
    {
        if let Some(found) = found.filter(|found| *found != written) {
            let message = format!("the receipt's {which} has the SHA-256 {written}, this file's has {found}");
            verification.find(Kind::CheckFailed.code("asmpatch::verify::receipt_digest"), message);
        }
    }
    let mut config = super::ConfigEdits::default();
    let mut all_known = true;
    for ReceiptPatch { id, digest } in &receipt.patches {
        let Some(patch) = library.get(id) else {
            all_known = false;
            let message = format!("the receipt names the patch `{id}`, which is not known");
            verification.find(Kind::CheckFailed.code("asmpatch::verify::unknown_patch"), message);
            continue;
        };
        let found = patch.digest(&base);
        if found != *digest {
            let message =
                format!("the patch `{id}` has changed since the receipt was written: digest {found}, was {digest}");
            verification.find(Kind::CheckFailed.code("asmpatch::verify::patch_digest"), message);
        } else if verification.base.is_some()
            && !patch.hunks(&base).is_empty()
            && !verification.patches.iter().any(|there| there.id == patch.id)
        {
            let message = format!("the patch `{id}` is in the receipt, but not in the file");
            verification.find(Kind::CheckFailed.code("asmpatch::verify::patch_missing"), message);
        }
        // Patches that set a field differently can't be in one set, so not in one receipt either.
        all_known &= config.merge(&patch.config).is_ok();
    }
    for Patch { id, .. } in verification.patches.clone() {
        if !receipt.patches.iter().any(|listed| listed.id == *id) {
            let message = format!("the patch `{id}` is in the file, but not in the receipt");
            verification.find(Kind::CheckFailed.code("asmpatch::verify::patch_unlisted"), message);
        }
    }
    if all_known && config != receipt.config {
        let message = "the receipt's [config] does not match its patches";
        verification.find(Kind::CheckFailed.code("asmpatch::verify::receipt_config"), message);
    }
}

/// Finds hunks with foreign bytes. Without the base's bytes, only the places of known hunks can be checked.
fn foreign_hunks(library: &Library, body: &[u8], base: &Sha256Digest) -> Vec<AnyFailure> {
    let hunks = || library.iter().flat_map(|patch| patch.hunks(base).iter().map(move |hunk| (patch, hunk)));
    // Another patch may have changed the same place, so only bytes that no patch knows are foreign.
    let is_known = |hunk: &Hunk, found: &[u8]| {
        found == hunk.expect || hunks().any(|(_, other)| other.range() == hunk.range() && other.new == found)
    };
    hunks()
        .filter(|(_, hunk)| !body.get(hunk.range()).is_some_and(|found| is_known(hunk, found)))
        .map(|(Patch { id, .. }, Hunk { at, .. })| {
            let label = Kind::CheckFailed.code("asmpatch::verify::hunk");
            let message = format!("the bytes at {at} are neither the original's nor those of the patch `{id}`");
            Failure::new(label, message).into()
        })
        .collect()
}

fn differences(expected: &[u8], found: &[u8]) -> Vec<Difference> {
    let mut differences = Vec::new();
    for at in 0..expected.len().max(found.len()) {
        let (expected, found) = (expected.get(at).copied(), found.get(at).copied());
        if expected != found {
            differences.push(Difference::at(FileOffset(at as u32), expected, found));
        }
    }
    differences
}

#[cfg(test)]
mod tests;
