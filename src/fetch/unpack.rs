//! Finds the image in a fetched file: a bare image, a zip, an updater, or an updater in a zip. Returns only verified
//! bytes, with the right size and SHA-256.

use std::collections::HashSet;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::Image;
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::{AnyFailure, Failure, Kind, Named};

use super::archive::{Archive, Budget};
use super::http::{FetchError, is_html};
use super::manifest::{Manifest, Manifests, Md5Digest};
use super::updater::{self, EmbeddedImage};
use crate::file_kind::{FileKind, MAX_LOOKED_AT, unpadded};

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

/// A search for an image in a fetched file and in everything nested in it.
pub(super) struct Search<'a> {
    /// The image; `None` to look at everything, for [`images`](Self::images).
    pub(super) wanted: Option<&'a Manifest>,
    /// Its name in the outermost archive, if known.
    pub(super) member: Option<&'a str>,
    /// The known images, to name what was found instead.
    pub(super) known: &'a Manifests,
    pub(super) budget: Budget<'a>,
    /// The digest of each file and image that was looked at.
    pub(super) seen: HashSet<Sha256Digest>,
    /// The first images that are none of the known ones.
    pub(super) others: Vec<Image>,
}

/// The images in a file, with everything nested in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Inside<'a> {
    /// Those that are known.
    pub known: Vec<&'a Manifest>,
    /// The first of the others, each once.
    pub others: Vec<Image>,
}

impl<'a> Search<'a> {
    /// Searches a file for this image; `None` for all that are in it.
    pub(super) fn new(
        wanted: Option<&'a Manifest>,
        member: Option<&'a str>,
        known: &'a Manifests,
        interrupt: Interrupt<'a>,
    ) -> Self {
        let (budget, seen) = (Budget::new(interrupt), HashSet::new());
        Self { wanted, member, known, budget, seen, others: Vec::new() }
    }

    /// Returns the images that are in a file. Looks at everything in it once.
    pub(super) fn images(known: &'a Manifests, bytes: Vec<u8>, interrupt: Interrupt<'a>) -> Inside<'a> {
        let mut search = Search::new(None, None, known, interrupt);
        // What can't be unpacked has no image, and what was seen before stays seen.
        let _ = search.find("", bytes, 0);
        let Search { seen, others, .. } = search;
        Inside { known: known.iter().filter(|manifest| seen.contains(&manifest.sha256)).collect(), others }
    }

    /// Notes an image that was looked at, with its digest.
    fn see(&mut self, image: &Image, digest: Sha256Digest) {
        let is_new = self.seen.insert(digest);
        if is_new
            && self.wanted.is_none()
            && self.known.by_sha256(&digest).is_none()
            && self.others.len() < MAX_DESCRIBED
        {
            self.others.push(image.clone());
        }
    }

    /// Finds the image in a fetched file and verifies it. `origin` names the file in errors.
    ///
    /// # Errors
    /// [`FetchError::Source`], and [`FetchError::Local`] on Ctrl-C.
    pub(super) fn unpack(mut self, origin: &str, bytes: Vec<u8>) -> Result<Verified, FetchError> {
        let found = self.find(origin, bytes, 0);
        // After Ctrl-C every file fails at once.
        self.budget.interrupt.check()?;
        found.map_err(|miss| FetchError::Source(miss.failure))
    }

    fn find(&mut self, origin: &str, mut bytes: Vec<u8>, depth: u32) -> Result<Verified, Miss> {
        self.budget.interrupt.check()?;
        bytes.truncate(unpadded(&bytes).len());
        if bytes.is_empty() {
            let label = Kind::BadInput.code("asmpatch::fetch::empty");
            return Err(Rank::Unrelated.miss(Failure::new(label, format!("{origin} is empty"))));
        }
        if is_html(&bytes) {
            let label = Kind::BadInput.code("asmpatch::fetch::html");
            let message = format!("{origin} is a web page, not firmware");
            let failure = Failure::new(label, message);
            return Err(Rank::Unrelated.miss(match self.wanted {
                Some(Manifest { id, .. }) => failure.naming(Named::Image(id.clone())),
                None => failure,
            }));
        }
        // Nothing that is recognised is larger, and some of the looks copy what they look at.
        match FileKind::of(&bytes[..bytes.len().min(MAX_LOOKED_AT)]) {
            FileKind::Zip => self.in_archive(origin, &bytes, depth),
            kind @ FileKind::Archive(_) => {
                let label = Kind::BadInput.code("asmpatch::archive::unsupported");
                let message = format!("{origin} is {kind}, which asmpatch can't unpack");
                Err(Rank::Unsearchable.miss(Failure::new(label, message)))
            }
            // Whatever else a program's bytes look like, images are looked for in it.
            kind if bytes.starts_with(b"MZ") && !matches!(kind, FileKind::Image(_)) => {
                self.in_updater(origin, &bytes, &kind, depth)
            }
            kind => {
                let found = Sha256Digest::of(&bytes);
                match &kind {
                    FileKind::Image(image) => self.see(image, found),
                    _ => _ = self.seen.insert(found),
                }
                self.verify(origin, &bytes, found, &kind)?;
                Ok(Verified { bytes, place: (depth > 0).then(|| origin.to_owned()) })
            }
        }
    }

    fn in_archive(&mut self, origin: &str, bytes: &[u8], depth: u32) -> Result<Verified, Miss> {
        if depth >= MAX_DEPTH {
            let label = Kind::BadInput.code("asmpatch::fetch::nested");
            let message = format!("{origin} is nested deeper than {MAX_DEPTH} archives");
            return Err(Rank::Unsearchable.miss(Failure::new(label, message)));
        }
        let mut archive = Archive::open(bytes).map_err(|failure| Rank::Unsearchable.miss(unusable(origin, failure)))?;
        let member = self.member.take();
        let names: Vec<String> = archive.names().map(str::to_owned).collect();
        let find = |search: &mut Self, archive: &mut Archive<'_>, place: usize| {
            let read = archive.read(place, &mut search.budget);
            let bytes = read.map_err(|failure| Rank::Damaged.miss(unusable(origin, failure)))?;
            search.find(&format!("{origin}: {}", names[place]), bytes, depth + 1)
        };
        if let Some(name) = member {
            let place = archive.place(name).map_err(|failure| Rank::Damaged.miss(unusable(origin, failure)))?;
            return find(self, &mut archive, place);
        }
        // A vendor's updater comes alone. A program beside libraries or scripts is another thing.
        let has_updater = !names.iter().any(|name| is_of_program(name));
        let mut best: Option<Miss> = None;
        for (place, name) in names.iter().enumerate() {
            match find(self, &mut archive, place) {
                Ok(verified) => return Ok(verified),
                Err(miss) if self.budget.is_spent => return Err(miss),
                // A readme, not an image.
                Err(Miss { rank: Rank::Unrelated, .. }) => {}
                Err(Miss { rank: Rank::Unsearchable, .. })
                    if is_of_program(name) || (has_ending(name, &["exe"]) && !has_updater) => {}
                Err(miss) => {
                    if best.as_ref().is_none_or(|best| best.rank < miss.rank) {
                        best = Some(miss);
                    }
                }
            }
        }
        Err(best.unwrap_or_else(|| Rank::Unrelated.miss(self.not_inside(origin, &archive.listed()))))
    }

    fn in_updater(&mut self, origin: &str, bytes: &[u8], kind: &FileKind, depth: u32) -> Result<Verified, Miss> {
        let found = updater::find_images(bytes, &mut self.budget);
        let images = found.map_err(|failure| Rank::Unsearchable.miss(unusable(origin, failure)))?;
        if images.is_empty() {
            // A self-extracting archive has its zip after the program.
            if Archive::open(bytes).is_ok() {
                self.member = None;
                return self.in_archive(origin, bytes, depth);
            }
            if let FileKind::Library(_) = kind {
                let label = Kind::BadInput.code("asmpatch::fetch::library");
                let message = format!("{origin} is {kind}, not an updater");
                return Err(Rank::Unrelated.miss(Failure::new(label, message)));
            }
            return Err(Rank::Unsearchable.miss(unusable(origin, updater::no_image(bytes))));
        }
        let describe = |found: &EmbeddedImage| {
            let digest = found.image.sha256();
            let known = self.known.by_sha256(&digest);
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
        for found in images {
            let bytes = found.image.to_file();
            let digest = Sha256Digest::of(&bytes);
            self.see(&found.image, digest);
            if self.wanted.is_some_and(|manifest| manifest.sha256 == digest) {
                let place = format!("{origin}: {} at {:#x}", found.region, found.offset);
                return Ok(Verified { bytes, place: Some(place) });
            }
        }
        Err(Rank::OtherImage.miss(self.not_inside(origin, &described)))
    }

    fn not_inside(&self, origin: &str, found: &str) -> AnyFailure {
        let label = Kind::BadInput.code("asmpatch::fetch::not_inside");
        let wanted = self.wanted.map_or("known", |manifest| &manifest.id);
        Failure::new(label, format!("{origin} has no image {wanted}; it has {found}")).into()
    }

    /// Checks size and digests of a file of this kind. Another known image, and bytes of which only the MD5 is right, have
    /// their own failures.
    fn verify(&self, origin: &str, bytes: &[u8], found: Sha256Digest, kind: &FileKind) -> Result<(), Miss> {
        let Some(Manifest { id, version, size, md5, sha256, .. }) = self.wanted else {
            return Err(Rank::Unrelated.miss(self.not_inside(origin, "something else")));
        };
        let len = bytes.len() as u64;
        if found == *sha256 && len == *size {
            return Ok(());
        }
        if let Some(Manifest { id: other, .. }) = self.known.by_sha256(&found) {
            let label = Kind::BadInput.code("asmpatch::fetch::other_image");
            let message = format!("{origin} is image {other}, not {id}");
            return Err(Rank::OtherImage.miss(Failure::new(label, message).naming(Named::Image(other.clone()))));
        }
        let is_md5 = *md5 == Some(Md5Digest::of(bytes));
        if let FileKind::Image(image) = kind
            && image.version().to_string() != version.to_string()
            && !is_md5
        {
            let label = Kind::BadInput.code("asmpatch::fetch::other_version");
            let what = image.version().words();
            let message = format!("{origin} is an intact image, {what}, SHA-256 {found}, and not image {id}");
            return Err(Rank::OtherImage.miss(Failure::new(label, message)));
        }
        let other = match kind {
            FileKind::Image(_) | FileKind::DamagedImage | FileKind::CutImage | FileKind::Unknown => None,
            FileKind::Body(_) | FileKind::Flash(_) | FileKind::Swapped { .. } | FileKind::Code(_) => {
                Some((Rank::Damaged, Kind::BadInput.code("asmpatch::fetch::other_kind")))
            }
            FileKind::Bank0 | FileKind::Bank1 => Some((Rank::Damaged, Kind::BadInput.code("asmpatch::fetch::half"))),
            _ => Some((Rank::Unrelated, Kind::BadInput.code("asmpatch::fetch::other_file"))),
        };
        if let Some((rank, label)) = other {
            let message = format!("{origin} is {kind}; image {id} has {size} bytes");
            return Err(rank.miss(Failure::new(label, message)));
        }
        if len != *size {
            let label = Kind::BadInput.code("asmpatch::fetch::size");
            let message = format!("{origin} has {len} bytes; image {id} has {size}");
            let rank = if matches!(kind, FileKind::DamagedImage | FileKind::CutImage) {
                Rank::Damaged
            } else {
                Rank::Unrelated
            };
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

#[cfg(test)]
mod tests {
    use asm2464::firmware::Image;

    use super::super::archive::MAX_EXPANDED;
    use super::super::archive::tests::zip_of;
    use super::super::updater::tests::pe;
    use super::*;

    fn image(seed: u32) -> Vec<u8> {
        Image::from_body((0..0x9000u32).map(|i| (i.wrapping_mul(seed) >> 5) as u8).collect()).unwrap().to_file()
    }

    /// Returns manifests with one image, "known", in addition to the embedded ones.
    fn manifests(bytes: &[u8], md5: Md5Digest, sha256: Sha256Digest) -> Manifests {
        let mut manifests = Manifests::of_repository(&[]).unwrap();
        let size = bytes.len();
        let text = format!(
            "id = 'known'\nversion = '250102.85.00.00'\nchip = 'ASM2464PD'\nsize = {size}\nmd5 = '{md5}'\nsha256 = '{sha256}'"
        );
        manifests.add("known.toml", &text).unwrap();
        manifests
    }

    fn wanting<'a>(manifest: &'a Manifest, member: Option<&'a str>, known: &'a Manifests) -> Search<'a> {
        Search::new(Some(manifest), member, known, Interrupt::never())
    }

    fn unpack_known(file: Vec<u8>, member: Option<&str>) -> Result<Verified, AnyFailure> {
        let bytes = image(3);
        let known = manifests(&bytes, Md5Digest::of(&bytes), Sha256Digest::of(&bytes));
        let manifest = known.by_id("known").unwrap();
        let search = wanting(manifest, member, &known);
        Ok(search.unpack("file", file)?)
    }

    /// The code of the error for a file, without its first part.
    fn refusal(file: Vec<u8>) -> &'static str {
        unpack_known(file, None).unwrap_err().code().split_once("::").unwrap().1
    }

    #[test]
    fn an_image_is_found_bare_zipped_in_an_updater_and_in_an_updater_in_a_zip() {
        let bytes = image(3);
        let updater = pe(&[0; 100], &[image(5), bytes.clone(), image(7)].concat(), &[]);
        let zip = zip_of(&[("readme.txt", b"read me"), ("fw.bin", &bytes)]);
        let nested = zip_of(&[("readme.txt", b"read me"), ("setup.exe", &updater)]);
        let self_extracting = pe(&[0; 100], &[0; 100], &zip);
        for (file, member) in [
            (bytes.clone(), None),
            ([&bytes[..], &[0xFF; 999]].concat(), None),
            (zip.clone(), Some("fw.bin")),
            (zip, None),
            (updater, None),
            (nested.clone(), Some("setup.exe")),
            (nested, None),
            (self_extracting, None),
        ] {
            assert_eq!(unpack_known(file, member).unwrap().bytes, bytes);
        }
    }

    #[test]
    fn a_right_md5_with_a_wrong_sha256_is_its_own_error() {
        let bytes = image(3);
        let known = manifests(&bytes, Md5Digest::of(&bytes), Sha256Digest([7; 32]));
        let manifest = known.by_id("known").unwrap();
        let search = wanting(manifest, None, &known);
        let error = AnyFailure::from(search.unpack("file", bytes).unwrap_err());
        assert_eq!(error.code(), "asmpatch::fetch::md5_only");
    }

    #[test]
    fn the_known_image_in_a_file_is_named_whatever_the_file_is() {
        let bytes = image(3);
        let known = manifests(&bytes, Md5Digest::of(&bytes), Sha256Digest::of(&bytes));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        for (member, expected) in [(&bytes, Some("known")), (&image(5), None)] {
            std::fs::write(&path, zip_of(&[("readme.txt", b"read me"), ("fw.bin", member)])).unwrap();
            let found = crate::fetch::images_in(&path, &known, Interrupt::never());
            assert_eq!(found.known.first().map(|manifest| manifest.id.as_str()), expected);
        }
    }

    #[test]
    fn each_known_image_in_an_archive_and_in_what_it_holds_is_named() {
        let (first, second) = (image(3), image(5));
        let mut known = manifests(&first, Md5Digest::of(&first), Sha256Digest::of(&first));
        let text = format!(
            "id = 'second'\nversion = '250102.85.00.00'\nchip = 'ASM2464PD'\nsize = {}\nsha256 = '{}'",
            second.len(),
            Sha256Digest::of(&second)
        );
        known.add("second.toml", &text).unwrap();
        let updater = pe(&[0; 100], &[image(7), second].concat(), &[]);
        let zip = zip_of(&[("fw.bin", &first), ("inner.zip", &zip_of(&[("setup.exe", &updater)])), ("x", b"")]);
        let ids = |file: Vec<u8>| {
            let Inside { known, others } = Search::images(&known, file, Interrupt::never());
            let others = others.iter().map(|image| image.sha256().to_string());
            known.iter().map(|manifest| manifest.id.clone()).chain(others).collect::<Vec<_>>()
        };
        let other = Sha256Digest::of(&image(7)).to_string();
        assert_eq!(ids(zip), ["known", "second", &other]);
        assert_eq!(ids(image(7)), [other]);
        assert_eq!(ids(first), ["known"]);
    }

    #[test]
    fn an_archive_of_as_many_members_as_are_taken_is_searched_once() {
        let names: Vec<String> = (0..20_000).map(|at| format!("{at}.txt")).collect();
        let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
        let (zip, known) = (zip_of(&members), Manifests::of_repository(&[]).unwrap());
        let began = std::time::Instant::now();
        assert_eq!(Search::images(&known, zip, Interrupt::never()), Inside { known: Vec::new(), others: Vec::new() });
        // A search per member took 2 s for each known image.
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn what_is_not_the_image_is_named() {
        let mut changed = image(3);
        changed[99] ^= 1;
        assert_eq!(refusal(changed), "fetch::sha256");
        assert_eq!(refusal(image(3)[1..].to_vec()), "fetch::size");
        let swapped = image(3).chunks(2).flat_map(|pair| pair.iter().rev().copied()).collect();
        assert_eq!(refusal(swapped), "fetch::other_kind", "of the same length");
        assert_eq!(refusal(Vec::new()), "fetch::empty");
        assert_eq!(refusal(b"\r\n<!DOCTYPE html><p>".to_vec()), "fetch::html");
        let other = unpack_known(pe(&[0; 100], &image(5), &[]), None).unwrap_err().to_string();
        assert!(other.contains("it has") && other.contains("in .rsrc"), "{other}");
        let other = unpack_known(zip_of(&[("a.txt", b"a")]), None).unwrap_err().to_string();
        assert_eq!(other, "file has no image known; it has a.txt");
    }

    fn other_version() -> Vec<u8> {
        let mut body: Vec<u8> = (0..0x9000u32).map(|i| (i.wrapping_mul(11) >> 5) as u8).collect();
        body[0x200..0x206].copy_from_slice(&[0x25, 0x01, 0x23, 0x85, 0x00, 0x00]);
        Image::from_body(body).unwrap().to_file()
    }

    #[test]
    fn archives_that_are_not_unpacked_and_what_holds_an_image_are_named() {
        for (file, what) in [(&b"\x1F\x8B\x08rest"[..], "an archive (gz)"), (b"Rar!\x1A\x07\0", "an archive (rar)")] {
            for file in [file.to_vec(), zip_of(&[("a.txt", b"a"), ("b", file)])] {
                let error = unpack_known(file, None).unwrap_err();
                assert_eq!(error.code(), "asmpatch::archive::unsupported");
                assert!(error.to_string().contains(what), "{error}");
            }
        }
        let mut body = vec![0; 0x9000];
        body[0] = 2;
        let code = Image::from_body(body).unwrap().to_file()[4..].to_vec();
        for file in [code.clone(), zip_of(&[("fw.bin", &code)])] {
            let error = unpack_known(file, None).unwrap_err();
            assert_eq!(error.code(), "asmpatch::fetch::other_kind");
            assert!(error.to_string().contains("an image's code without its container"), "{error}");
        }
        // Bank 0 alone is half an image.
        let mut half = other_version()[4..0x9000].to_vec();
        half[0] = 2;
        assert_eq!(refusal(zip_of(&[("a.txt", b"a"), ("fw.bin", &half)])), "fetch::half");
        // What has nothing to do with an image is no damaged one.
        for (file, what) in [(&b"%PDF-1.7"[..], "a document (pdf)"), (&[0xFF; 99], "a file in which every byte is FF")]
        {
            let error = unpack_known(file.to_vec(), None).unwrap_err();
            assert_eq!(error.code(), "asmpatch::fetch::other_file");
            assert!(error.to_string().contains(what), "{error}");
        }
        // An Office document beside an updater says nothing.
        let packed = pe(&[0; 100], &[0; 100], &[]);
        let document = b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1";
        assert_eq!(refusal(zip_of(&[("manual.doc", document), ("setup.exe", &packed)])), "updater::no_image");
    }

    #[test]
    fn in_an_archive_the_best_candidate_decides_and_not_the_order() {
        let packed = pe(&[0; 100], &[0; 100], &[]);
        let tool = zip_of(&[("MPTool.exe", &packed)]);
        let mut damaged = image(3);
        damaged[99] ^= 1;
        let (other, good) = (other_version(), image(3));
        let mut members: Vec<(&str, &[u8])> = vec![("tool.zip", &tool)];
        let refusal = |members: &[(&str, &[u8])]| unpack_known(zip_of(members), None).unwrap_err();
        assert_eq!(refusal(&members).code(), "asmpatch::updater::no_image");
        members.push(("damaged.bin", &damaged));
        assert_eq!(refusal(&members).code(), "asmpatch::fetch::sha256");
        members.push(("other.bin", &other));
        let error = refusal(&members);
        assert_eq!(error.code(), "asmpatch::fetch::other_version");
        let message = error.to_string();
        assert!(
            message.starts_with("file: other.bin is an intact image, version 250123.85.00.00, SHA-256"),
            "{message}"
        );
        members.push(("good.bin", &good));
        assert_eq!(unpack_known(zip_of(&members), None).unwrap().bytes, good);
    }

    #[test]
    fn a_library_is_no_updater_and_a_program_beside_scripts_is_none_either() {
        let program = [b"MZ".as_slice(), &[0; 1022]].concat();
        let members: [(&str, &[u8]); 4] =
            [("cdef.txt", b"x"), ("Launcher.cmd", b"x"), ("lua51.dll", &program), ("luajit.exe", &program)];
        let message = unpack_known(zip_of(&members), None).unwrap_err().to_string();
        assert_eq!(message, "file has no image known; it has cdef.txt, Launcher.cmd, lua51.dll, luajit.exe");
        let mut library = pe(&[0; 100], &[0; 100], &[]);
        library[0x97] |= 0x20;
        assert_eq!(refusal(library), "fetch::library");
    }

    #[test]
    fn archives_can_not_nest_without_a_limit() {
        let mut zip = zip_of(&[("fw.bin", &image(3))]);
        for _ in 0..MAX_DEPTH {
            zip = zip_of(&[("inner.zip", &zip)]);
        }
        assert_eq!(refusal(zip), "fetch::nested");
    }

    #[test]
    fn archives_in_an_archive_share_its_budget() {
        // Each inner archive alone is within the limit; together they expand to 20 times as much.
        let bomb = zip_of(&[("zeros.bin", &vec![0; (MAX_EXPANDED / 2) as usize])]);
        let names: Vec<String> = (0..40).map(|at| format!("{at}.zip")).collect();
        let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), bomb.as_slice())).collect();
        assert_eq!(refusal(zip_of(&members)), "archive::expands");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_never_panic(bytes: Vec<u8>) {
            let _ = unpack_known(bytes, None);
        }
    }
}
