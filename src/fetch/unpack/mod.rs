//! Finds the image in a fetched file: a bare image, a zip, an updater, or an updater in a zip. Returns only verified
//! bytes, with the right size and SHA-256.

use asm2464::digest::{Md5Digest, Sha256Digest};
use asm2464::interrupt::{Interrupt, Interrupted};
use thiserror::Error;

use super::archive::{Archive, ArchiveError};
use super::budget::{Budget, MAX_EXPANDED};
use super::manifest::{Manifest, Manifests};
use super::updater::{self, EmbeddedImage, UpdaterError};

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

/// Reasons the fetched file is not the image.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// The file is empty.
    #[error("{origin} is empty")]
    Empty {
        /// What is empty.
        origin: String,
    },
    /// The file is a web page.
    #[error("{origin} is a web page, not firmware")]
    Html {
        /// What was fetched.
        origin: String,
    },
    /// The file has the wrong length.
    #[error("{origin} has {found} bytes; image {id} has {expected}")]
    Size {
        /// What was fetched.
        origin: String,
        /// The image that was asked for.
        id: String,
        /// Its size.
        expected: u64,
        /// The size that was found.
        found: u64,
    },
    /// The file is another known image.
    #[error("{origin} is image {found}, not {id}")]
    OtherImage {
        /// What was fetched.
        origin: String,
        /// The image that was asked for.
        id: String,
        /// The image that it is.
        found: String,
    },
    /// The file has the right length, but the wrong bytes.
    #[error("{} has the SHA-256 {}; image {} has {}", .0.origin, .0.found, .0.id, .0.expected)]
    Sha256(Box<Mismatch>),
    /// The MD5 is right, the SHA-256 is wrong.
    #[error("{} has the right MD5 and the wrong SHA-256 {}; image {} has {}", .0.origin, .0.found, .0.id, .0.expected)]
    Md5Only(Box<Mismatch>),
    /// The archive yields no image.
    #[error("cannot take an image from {origin}")]
    Archive {
        /// The archive.
        origin: String,
        /// Why.
        source: ArchiveError,
    },
    /// The updater yields no image.
    #[error("cannot take an image from {origin}")]
    Updater {
        /// The updater.
        origin: String,
        /// Why.
        source: UpdaterError,
    },
    /// The file holds images, but not this one.
    #[error("{origin} has no image {id}; it has {found}")]
    NotInside {
        /// The archive or updater.
        origin: String,
        /// The image that was asked for.
        id: String,
        /// The images that are there.
        found: String,
    },
    /// Archives are nested too deep.
    #[error("{origin} is nested deeper than {MAX_DEPTH} archives")]
    Nested {
        /// The innermost archive.
        origin: String,
    },
    /// Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

asm2464::coded!(UnpackError {
    Empty => BadInput "asmpatch::fetch::empty",
    Html => BadInput "asmpatch::fetch::html",
    Size => BadInput "asmpatch::fetch::size",
    OtherImage => BadInput "asmpatch::fetch::other_image",
    Sha256 => BadInput "asmpatch::fetch::sha256",
    Md5Only => BadInput "asmpatch::fetch::md5_only",
    Archive { source, .. } => source,
    Updater { source, .. } => source,
    NotInside => BadInput "asmpatch::fetch::not_inside",
    Nested => BadInput "asmpatch::fetch::nested",
    Interrupted(cause) => cause,
});

impl UnpackError {
    /// Whether the archive's next file would fail in the same way: the budget is spent, or the user wants to stop.
    fn ends_the_search(&self) -> bool {
        matches!(
            self,
            Self::Interrupted(_)
                | Self::Archive { source: ArchiveError::Expands { limit: ..MAX_EXPANDED, .. }, .. }
                | Self::Updater { source: UpdaterError::Endless, .. }
        )
    }
}

/// A file with the wrong bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What was fetched.
    pub origin: String,
    /// The image that was asked for.
    pub id: String,
    /// Its digest.
    pub expected: Sha256Digest,
    /// The digest that was found.
    pub found: Sha256Digest,
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
/// [`UnpackError`].
pub(super) fn unpack(
    origin: &str,
    bytes: Vec<u8>,
    wanted: Wanted<'_>,
    interrupt: Interrupt<'_>,
) -> Result<Verified, UnpackError> {
    Search { wanted, budget: Budget::new(interrupt) }.find(origin, bytes, 0)
}

/// A search in a file and in everything nested in it.
struct Search<'a> {
    wanted: Wanted<'a>,
    budget: Budget<'a>,
}

impl Search<'_> {
    fn find(&mut self, origin: &str, bytes: Vec<u8>, depth: u32) -> Result<Verified, UnpackError> {
        self.budget.interrupt.check()?;
        if bytes.is_empty() {
            Err(UnpackError::Empty { origin: origin.to_owned() })
        } else if is_html(&bytes) {
            Err(UnpackError::Html { origin: origin.to_owned() })
        } else if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
            self.in_archive(origin, &bytes, depth)
        } else if updater::is_pe(&bytes) {
            self.in_updater(origin, &bytes, depth)
        } else {
            verify(origin, &bytes, self.wanted)?;
            Ok(Verified { bytes, place: (depth > 0).then(|| origin.to_owned()) })
        }
    }

    fn in_archive(&mut self, origin: &str, bytes: &[u8], depth: u32) -> Result<Verified, UnpackError> {
        if depth >= MAX_DEPTH {
            return Err(UnpackError::Nested { origin: origin.to_owned() });
        }
        let failed = |source| match source {
            ArchiveError::Interrupted(interrupted) => interrupted.into(),
            source => UnpackError::Archive { origin: origin.to_owned(), source },
        };
        let mut archive = Archive::open(bytes).map_err(failed)?;
        let member = self.wanted.member.take();
        let mut find = |archive: &mut Archive<'_>, name: &str| {
            let bytes = archive.read(name, &mut self.budget).map_err(failed)?;
            self.find(&format!("{origin}: {name}"), bytes, depth + 1)
        };
        if let Some(name) = member {
            return find(&mut archive, name);
        }
        let names: Vec<String> = archive.names().map(str::to_owned).collect();
        let mut first_error = None;
        for name in &names {
            match find(&mut archive, name) {
                Ok(verified) => return Ok(verified),
                Err(error) if error.ends_the_search() => return Err(error),
                // A readme that is no image.
                Err(UnpackError::Size { .. } | UnpackError::Html { .. } | UnpackError::Empty { .. }) => {}
                // A forged or packed candidate deserves its own error instead of "not there".
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| self.not_inside(origin, archive.listed())))
    }

    fn in_updater(&mut self, origin: &str, bytes: &[u8], depth: u32) -> Result<Verified, UnpackError> {
        let images = match updater::find_images(bytes, &mut self.budget) {
            // A self-extracting archive has its zip after the program.
            Err(UpdaterError::NoImage { .. }) if Archive::open(bytes).is_ok() => {
                self.wanted.member = None;
                return self.in_archive(origin, bytes, depth);
            }
            Err(UpdaterError::Interrupted(interrupted)) => return Err(interrupted.into()),
            other => other.map_err(|source| UnpackError::Updater { origin: origin.to_owned(), source })?,
        };
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
            .ok_or_else(|| self.not_inside(origin, described))
    }

    fn not_inside(&self, origin: &str, found: String) -> UnpackError {
        UnpackError::NotInside { origin: origin.to_owned(), id: self.wanted.manifest.id.clone(), found }
    }
}

/// Checks size and digests.
///
/// # Errors
/// [`UnpackError`]: size first, then SHA-256, with a separate error if the MD5 is right.
fn verify(origin: &str, bytes: &[u8], wanted: Wanted<'_>) -> Result<(), UnpackError> {
    let Manifest { id, size, md5, sha256, .. } = wanted.manifest;
    let (origin, id, expected) = (origin.to_owned(), id.clone(), *sha256);
    let found = Sha256Digest::of(bytes);
    if found == expected && bytes.len() as u64 == *size {
        return Ok(());
    }
    if let Some(known) = wanted.known.by_sha256(&found) {
        return Err(UnpackError::OtherImage { origin, id, found: known.id.clone() });
    }
    if bytes.len() as u64 != *size {
        return Err(UnpackError::Size { origin, id, expected: *size, found: bytes.len() as u64 });
    }
    let mismatch = Box::new(Mismatch { origin, id, expected, found });
    if *md5 == Some(Md5Digest::of(bytes)) {
        Err(UnpackError::Md5Only(mismatch))
    } else {
        Err(UnpackError::Sha256(mismatch))
    }
}

/// Whether the bytes begin like a web page.
pub fn is_html(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    let begins = |tag: &str| bytes.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag.as_bytes()));
    ["<!doctype", "<html", "<head", "<?xml", "<!--"].into_iter().any(begins)
}

#[cfg(test)]
mod tests;
