//! Finds the image in a fetched file: a bare image, a zip, an updater, or an updater in a zip. Returns only verified
//! bytes, with the right size and SHA-256.

use asm2464::Kind;
use asm2464::digest::{Md5Digest, Sha256Digest};
use asm2464::interrupt::Interrupt;

use super::archive::Archive;
use super::http::{FetchError, is_html};
use super::limits::Budget;
use super::manifest::{Manifest, Manifests};
use super::updater::{self, EmbeddedImage};
use crate::failure::{AnyFailure, Failure};

/// How many images an error describes if the wanted image is not among them.
const MAX_DESCRIBED: usize = 8;
/// How deep archives may nest. No vendor puts a zip in a zip in a zip.
const MAX_DEPTH: u32 = 3;

/// An image whose size and SHA-256 are those of its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verified {
    /// The image file's bytes.
    pub(super) bytes: Vec<u8>,
    /// Its place inside a larger file; `None` for a bare image.
    pub(super) place: Option<String>,
}

/// Why a file is not the image.
enum Miss {
    /// It has nothing to do with the image: it is empty, a web page, or of another length.
    Unrelated(Failure),
    /// It may have been meant as the image, or hold it.
    Failed(AnyFailure),
}

impl<E: Into<AnyFailure>> From<E> for Miss {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The image to look for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The image.
    pub manifest: &'a Manifest,
    /// Its name in the outermost archive, if known.
    pub member: Option<&'a str>,
    /// The known images, to name what was found instead.
    pub known: &'a Manifests,
}

/// Finds the wanted image in a fetched file and verifies it. `origin` names the file in errors.
///
/// # Errors
/// [`FetchError::NotTheImage`], and [`FetchError::Local`] on Ctrl-C.
pub(super) fn unpack(
    origin: &str,
    bytes: Vec<u8>,
    wanted: Wanted<'_>,
    interrupt: Interrupt<'_>,
) -> Result<Verified, FetchError> {
    let found = Search { wanted, budget: Budget::new(interrupt) }.find(origin, bytes, 0);
    // After Ctrl-C every file fails at once.
    interrupt.check()?;
    found.map_err(|miss| match miss {
        Miss::Unrelated(failure) => FetchError::NotTheImage(failure.into()),
        Miss::Failed(failure) => FetchError::NotTheImage(failure),
    })
}

/// A search in a file and in everything nested in it.
struct Search<'a> {
    wanted: Wanted<'a>,
    budget: Budget<'a>,
}

impl Search<'_> {
    fn find(&mut self, origin: &str, bytes: Vec<u8>, depth: u32) -> Result<Verified, Miss> {
        self.budget.interrupt.check()?;
        if bytes.is_empty() {
            let label = Kind::BadInput.code("asmpatch::fetch::empty");
            Err(Miss::Unrelated(Failure::new(label, format!("{origin} is empty"))))
        } else if is_html(&bytes) {
            let label = Kind::BadInput.code("asmpatch::fetch::html");
            Err(Miss::Unrelated(Failure::new(label, format!("{origin} is a web page, not firmware"))))
        } else if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
            self.in_archive(origin, &bytes, depth)
        } else if updater::is_pe(&bytes) {
            self.in_updater(origin, &bytes, depth)
        } else {
            verify(origin, &bytes, self.wanted)?;
            Ok(Verified { bytes, place: (depth > 0).then(|| origin.to_owned()) })
        }
    }

    fn in_archive(&mut self, origin: &str, bytes: &[u8], depth: u32) -> Result<Verified, Miss> {
        if depth >= MAX_DEPTH {
            let label = Kind::BadInput.code("asmpatch::fetch::nested");
            return Err(Failure::new(label, format!("{origin} is nested deeper than {MAX_DEPTH} archives")).into());
        }
        let mut archive = Archive::open(bytes).map_err(|failure| unusable(origin, failure))?;
        let member = self.wanted.member.take();
        let find = |search: &mut Self, archive: &mut Archive<'_>, name: &str| {
            let bytes = archive.read(name, &mut search.budget).map_err(|failure| unusable(origin, failure))?;
            search.find(&format!("{origin}: {name}"), bytes, depth + 1)
        };
        if let Some(name) = member {
            return find(self, &mut archive, name);
        }
        let names: Vec<String> = archive.names().map(str::to_owned).collect();
        let mut first_failure = None;
        for name in &names {
            match find(self, &mut archive, name) {
                Ok(verified) => return Ok(verified),
                Err(Miss::Failed(failure)) if self.budget.is_spent => return Err(failure.into()),
                // A readme, not an image.
                Err(Miss::Unrelated(_)) => {}
                // A forged or packed candidate deserves its own error instead of "not there".
                Err(Miss::Failed(failure)) => {
                    first_failure.get_or_insert(failure);
                }
            }
        }
        Err(first_failure.unwrap_or_else(|| self.not_inside(origin, &archive.listed())).into())
    }

    fn in_updater(&mut self, origin: &str, bytes: &[u8], depth: u32) -> Result<Verified, Miss> {
        let images = updater::find_images(bytes, &mut self.budget).map_err(|failure| unusable(origin, failure))?;
        if images.is_empty() {
            // A self-extracting archive has its zip after the program.
            if Archive::open(bytes).is_ok() {
                self.wanted.member = None;
                return self.in_archive(origin, bytes, depth);
            }
            return Err(unusable(origin, updater::no_image(bytes)).into());
        }
        let describe = |found: &EmbeddedImage| {
            let digest = Sha256Digest(found.image.sha256());
            let known = self.wanted.known.by_sha256(&digest);
            format!(
                "{}{} at {:#x} in {}, {} bytes, SHA-256 {digest}",
                found.image.version(),
                known.map_or_else(String::new, |known| format!(" (known as {})", known.id)),
                found.offset,
                found.region,
                found.image.to_file().len()
            )
        };
        let described = images.iter().take(MAX_DESCRIBED).map(describe).collect::<Vec<_>>().join("; ");
        images
            .into_iter()
            .map(|found| (format!("{origin}: {} at {:#x}", found.region, found.offset), found.image.to_file()))
            .find(|(place, bytes)| verify(place, bytes, self.wanted).is_ok())
            .map(|(place, bytes)| Verified { bytes, place: Some(place) })
            .ok_or_else(|| self.not_inside(origin, &described).into())
    }

    fn not_inside(&self, origin: &str, found: &str) -> AnyFailure {
        let label = Kind::BadInput.code("asmpatch::fetch::not_inside");
        Failure::new(label, format!("{origin} has no image {}; it has {found}", self.wanted.manifest.id)).into()
    }
}

/// An archive or updater that yields no image.
fn unusable(origin: &str, failure: impl Into<AnyFailure>) -> AnyFailure {
    failure.into().stopping(format!("cannot take an image from {origin}"))
}

/// Checks size and digests. Another known image, and bytes of which only the MD5 is right, have their own failures.
fn verify(origin: &str, bytes: &[u8], wanted: Wanted<'_>) -> Result<(), Miss> {
    let Manifest { id, size, md5, sha256, .. } = wanted.manifest;
    let (found, len) = (Sha256Digest::of(bytes), bytes.len() as u64);
    if found == *sha256 && len == *size {
        return Ok(());
    }
    if let Some(Manifest { id: other, .. }) = wanted.known.by_sha256(&found) {
        let label = Kind::BadInput.code("asmpatch::fetch::other_image");
        let failure = Failure::new(label, format!("{origin} is image {other}, not {id}"));
        return Err(failure.naming("ID", other).into());
    }
    if len != *size {
        let label = Kind::BadInput.code("asmpatch::fetch::size");
        let message = format!("{origin} has {len} bytes; image {id} has {size}");
        return Err(Miss::Unrelated(Failure::new(label, message)));
    }
    let (label, what) = if *md5 == Some(Md5Digest::of(bytes)) {
        (Kind::BadInput.code("asmpatch::fetch::md5_only"), "the right MD5 and the wrong SHA-256")
    } else {
        (Kind::BadInput.code("asmpatch::fetch::sha256"), "the SHA-256")
    };
    Err(Failure::new(label, format!("{origin} has {what} {found}; image {id} has {sha256}")).into())
}

#[cfg(test)]
mod tests;
