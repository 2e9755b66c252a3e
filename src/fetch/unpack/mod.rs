//! Finds the image in a fetched file: a bare image, a zip, an updater, or an updater in a zip. Returns only verified
//! bytes, with the right size and SHA-256.

use asm2464::Kind;
use asm2464::digest::{Md5Digest, Sha256Digest};
use asm2464::firmware::Image;
use asm2464::interrupt::{Interrupt, Interrupted};

use super::archive::Archive;
use super::http::{FetchError, is_html};
use super::limits::Budget;
use super::manifest::{Manifest, Manifests};
use super::updater::{self, EmbeddedImage};
use crate::failure::{AnyFailure, Failure};
use crate::file_kind::FileKind;

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
struct Miss {
    rank: Rank,
    failure: AnyFailure,
}

/// How much a file that is not the image says about where the image is, the least first. In an archive the highest rank
/// decides, not the order of the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It has nothing to do with the image: it is empty, a web page, a library, or of another length.
    Unrelated,
    /// It may hold the image, but can't be searched.
    Unsearchable,
    /// It may be the image, damaged.
    Damaged,
    /// It is or holds an intact image, but another one.
    OtherImage,
}

impl Rank {
    fn miss(self, failure: impl Into<AnyFailure>) -> Miss {
        Miss { rank: self, failure: failure.into() }
    }
}

impl From<Interrupted> for Miss {
    fn from(interrupted: Interrupted) -> Self {
        Rank::Unrelated.miss(interrupted)
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
    found.map_err(|miss| FetchError::NotTheImage(miss.failure))
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
            Err(Rank::Unrelated.miss(Failure::new(label, format!("{origin} is empty"))))
        } else if is_html(&bytes) {
            let label = Kind::BadInput.code("asmpatch::fetch::html");
            Err(Rank::Unrelated.miss(Failure::new(label, format!("{origin} is a web page, not firmware"))))
        } else if FileKind::of(&bytes) == FileKind::Zip {
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
            let message = format!("{origin} is nested deeper than {MAX_DEPTH} archives");
            return Err(Rank::Unsearchable.miss(Failure::new(label, message)));
        }
        let mut archive = Archive::open(bytes).map_err(|failure| Rank::Unsearchable.miss(unusable(origin, failure)))?;
        let member = self.wanted.member.take();
        let find = |search: &mut Self, archive: &mut Archive<'_>, name: &str| {
            let read = archive.read(name, &mut search.budget);
            let bytes = read.map_err(|failure| Rank::Damaged.miss(unusable(origin, failure)))?;
            search.find(&format!("{origin}: {name}"), bytes, depth + 1)
        };
        if let Some(name) = member {
            return find(self, &mut archive, name);
        }
        let names: Vec<String> = archive.names().map(str::to_owned).collect();
        // A vendor's updater comes alone. A program beside libraries or scripts is another thing.
        let has_updater = !names.iter().any(|name| is_of_program(name));
        let mut best: Option<Miss> = None;
        for name in &names {
            match find(self, &mut archive, name) {
                Ok(verified) => return Ok(verified),
                Err(miss) if self.budget.is_spent => return Err(miss),
                // A readme, not an image.
                Err(Miss { rank: Rank::Unrelated, .. }) => {}
                Err(Miss { rank: Rank::Unsearchable, .. })
                    if is_of_program(name) || (is_program(name) && !has_updater) => {}
                Err(miss) => {
                    if best.as_ref().is_none_or(|best| best.rank < miss.rank) {
                        best = Some(miss);
                    }
                }
            }
        }
        Err(best.unwrap_or_else(|| Rank::Unrelated.miss(self.not_inside(origin, &archive.listed()))))
    }

    fn in_updater(&mut self, origin: &str, bytes: &[u8], depth: u32) -> Result<Verified, Miss> {
        let found = updater::find_images(bytes, &mut self.budget);
        let images = found.map_err(|failure| Rank::Unsearchable.miss(unusable(origin, failure)))?;
        if images.is_empty() {
            // A self-extracting archive has its zip after the program.
            if Archive::open(bytes).is_ok() {
                self.wanted.member = None;
                return self.in_archive(origin, bytes, depth);
            }
            if FileKind::of(bytes) == FileKind::Library {
                let label = Kind::BadInput.code("asmpatch::fetch::library");
                let message = format!("{origin} is a Windows library, not an updater");
                return Err(Rank::Unrelated.miss(Failure::new(label, message)));
            }
            return Err(Rank::Unsearchable.miss(unusable(origin, updater::no_image(bytes))));
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
            .ok_or_else(|| Rank::OtherImage.miss(self.not_inside(origin, &described)))
    }

    fn not_inside(&self, origin: &str, found: &str) -> AnyFailure {
        let label = Kind::BadInput.code("asmpatch::fetch::not_inside");
        Failure::new(label, format!("{origin} has no image {}; it has {found}", self.wanted.manifest.id)).into()
    }
}

/// Whether a member's name is that of a program for Windows.
fn is_program(name: &str) -> bool {
    has_ending(name, &["exe"])
}

/// Whether a member belongs to a program: a library, a driver, or a script.
fn is_of_program(name: &str) -> bool {
    has_ending(name, &["dll", "sys", "cmd", "bat", "ps1", "vbs", "js", "lua", "py", "msi"])
}

fn has_ending(name: &str, endings: &[&str]) -> bool {
    let Some((_, ending)) = name.rsplit_once('.') else { return false };
    endings.iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// An archive or updater that yields no image.
fn unusable(origin: &str, failure: impl Into<AnyFailure>) -> AnyFailure {
    failure.into().stopping(format!("cannot take an image from {origin}"))
}

/// Checks size and digests. Another known image, and bytes of which only the MD5 is right, have their own failures.
fn verify(origin: &str, bytes: &[u8], wanted: Wanted<'_>) -> Result<(), Miss> {
    let Manifest { id, version, size, md5, sha256, .. } = wanted.manifest;
    let (found, len) = (Sha256Digest::of(bytes), bytes.len() as u64);
    if found == *sha256 && len == *size {
        return Ok(());
    }
    if let Some(Manifest { id: other, .. }) = wanted.known.by_sha256(&found) {
        let label = Kind::BadInput.code("asmpatch::fetch::other_image");
        let message = format!("{origin} is image {other}, not {id}");
        return Err(Rank::OtherImage.miss(Failure::new(label, message).naming("ID", other)));
    }
    let is_md5 = *md5 == Some(Md5Digest::of(bytes));
    if let Ok(image) = Image::parse(bytes)
        && image.version().to_string() != version.to_string()
        && !is_md5
    {
        let label = Kind::BadInput.code("asmpatch::fetch::other_version");
        let what = image.version().words();
        let message = format!("{origin} is an intact image, {what}, SHA-256 {found}, and not image {id}");
        return Err(Rank::OtherImage.miss(Failure::new(label, message)));
    }
    if len != *size {
        let label = Kind::BadInput.code("asmpatch::fetch::size");
        let message = format!("{origin} has {len} bytes; image {id} has {size}");
        let rank = if FileKind::of(bytes) == FileKind::DamagedImage { Rank::Damaged } else { Rank::Unrelated };
        return Err(rank.miss(Failure::new(label, message)));
    }
    let (label, what) = if is_md5 {
        (Kind::BadInput.code("asmpatch::fetch::md5_only"), "the right MD5 and the wrong SHA-256")
    } else {
        (Kind::BadInput.code("asmpatch::fetch::sha256"), "the SHA-256")
    };
    let message = format!("{origin} has {what} {found}; image {id} has {sha256}");
    Err(Rank::Damaged.miss(Failure::new(label, message)))
}

#[cfg(test)]
mod tests;
