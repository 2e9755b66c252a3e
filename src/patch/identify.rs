//! Identifies patched images, and takes patches out of them.

use asm2464::digest::Sha256Digest;
use asm2464::firmware::Image;
use asm2464::{Failure, Kind};

use super::definition::Patch;
use super::library::Library;

/// The origin of an image, found by undoing patches.
#[derive(Debug, Clone)]
pub struct Identified<'a> {
    /// The unpatched image's digest.
    pub base: Sha256Digest,
    /// The unpatched image.
    pub original: Image,
    /// The patches in it, in the library's order. A patch that changes only the configuration leaves no trace in the
    /// image and is never among them.
    pub patches: Vec<&'a Patch>,
}

/// Explains why patches can't be applied to an image: it is patched already, or unknown. `digest` is that of the image's
/// file.
pub fn not_a_base(library: &Library, image: &Image, digest: Sha256Digest) -> Failure {
    patched_already(library, image, digest).unwrap_or_else(|| unknown_image(library, image, digest))
}

/// The failure of an image that has patches in it.
fn patched_already(library: &Library, image: &Image, digest: Sha256Digest) -> Option<Failure> {
    let Identified { base, patches, .. } = identify(library, image, digest).filter(|it| !it.patches.is_empty())?;
    let patches = patches.iter().map(|patch| format!("`{}`", patch.id)).collect::<Vec<_>>().join(", ");
    let base = library.image_words(&base, image.version());
    let label = Kind::BadInput.code("asmpatch::patch::already_patched");
    Some(Failure::new(label, format!("the image is already patched: it is {base} with {patches}")))
}

fn unknown_image(library: &Library, image: &Image, sha256: Sha256Digest) -> Failure {
    let has_patches = |image: &&Sha256Digest| library.iter().any(|patch| !patch.hunks(image).is_empty());
    let known: Vec<_> = library.images().keys().filter(has_patches).map(|image| library.image_name(image)).collect();
    if library.image_of_version(image.version()).is_some() {
        let label = Kind::BadInput.code("asmpatch::patch::unknown_changes");
        let message = format!(
            "the image has {} and other changes than the known patches: SHA-256 {sha256}",
            image.version().words()
        );
        return Failure::new(label, message);
    }
    let (version, known) = (image.version().words(), known.join(", "));
    let label = Kind::BadInput.code("asmpatch::patch::unknown_image");
    let message =
        format!("no patch is made for this image: {version}, SHA-256 {sha256}; there are patches for {known}");
    Failure::new(label, message)
}

/// Identifies what an image was made from: takes out all patches and compares the digest of the rest.
///
/// `digest` is that of the image's file. `None` if the image, with or without patches, is not one of the library's. Costs
/// at most one SHA-256 for each image that the library knows.
pub fn identify<'a>(library: &'a Library, image: &Image, digest: Sha256Digest) -> Option<Identified<'a>> {
    let known = library.images();
    if known.contains_key(&digest) {
        return Some(Identified { base: digest, original: image.clone(), patches: Vec::new() });
    }
    for &base in known.keys() {
        let patches = patches_in(library, image.body(), &base);
        if patches.is_empty() {
            continue;
        }
        let mut original = image.clone();
        for hunk in patches.iter().flat_map(|patch| patch.hunks(&base)) {
            let _ = original.replace(hunk.at, &hunk.expect);
        }
        if Sha256Digest::of(&original.to_file()) == base {
            return Some(Identified { base, original, patches });
        }
    }
    None
}

/// Returns the patches that have hunks for an image, if all these hunks are in `body`.
pub(super) fn patches_in<'a>(library: &'a Library, body: &[u8], base: &Sha256Digest) -> Vec<&'a Patch> {
    let is_in = |patch: &&Patch| {
        let hunks = patch.hunks(base);
        !hunks.is_empty() && hunks.iter().all(|hunk| body.get(hunk.range()) == Some(&hunk.new))
    };
    library.iter().filter(is_in).collect()
}

/// Takes every patch out of an image. `digest` is that of the image's file.
///
/// # Errors
/// Fails if the image is unknown, or not patched.
pub fn unpatch<'a>(library: &'a Library, image: &Image, digest: Sha256Digest) -> Result<Identified<'a>, Failure> {
    match identify(library, image, digest) {
        Some(Identified { base, patches, .. }) if patches.is_empty() => {
            let name = library.image_name(&base);
            let label = Kind::BadInput.code("asmpatch::patch::not_patched");
            Err(Failure::new(label, format!("the image is {name}, and no patch is in it")))
        }
        Some(identified) => Ok(identified),
        None => Err(unknown_image(library, image, digest)),
    }
}
