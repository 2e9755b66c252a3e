//! Firmware manifests: the known images, their sources, and the digests that identify them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use asm2464::digest::{Sha256Digest, parse_hex, to_hex};
use asm2464::firmware::{FirmwareVersion, MAX_FILE_LEN, container_len, open_build, version_in};
use asm2464::{AnyFailure, Failure, Kind, ParseError};
use asm2464_files::file;
use asm2464_files::toml_file;
use derive_more::Display;
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};

use super::http::is_http;
use crate::suggest::question;

/// The image that `download` fetches by default: the one that tinygrad's tools use.
pub const DEFAULT_IMAGE: &str = "240417";

/// The open firmware that today's GPU runtimes drive.
pub const OPEN_IMAGE: &str = "ed4e39b";

/// The longest manifest that is read, in bytes.
const MAX_MANIFEST_LEN: usize = 1 << 20;

/// One known image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The short name that commands take, such as `240417`.
    #[serde(rename(serialize = "image"))]
    pub id: String,
    /// The version in the image, which tells what kind of firmware it is.
    pub version: ImageVersion,
    /// The chip that the image is for.
    pub chip: String,
    /// The file's length in bytes.
    pub size: u64,
    /// The MD5, if the vendor or an older tool publishes one.
    pub md5: Option<Md5Digest>,
    /// The SHA-256, which decides whether bytes are this image.
    pub sha256: Sha256Digest,
    /// What a user should know about it.
    pub notes: Option<String>,
    /// How to build it, if its source is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Sources, in the order in which to try them.
    #[serde(default)]
    pub mirrors: Vec<Mirror>,
}

/// An MD5 digest. Vendors and older tools publish it. It identifies a download, but does not protect it from
/// tampering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize, Deserialize)]
#[display("{}", to_hex(_0, ""))]
#[serde(try_from = "String", into = "String")]
pub struct Md5Digest(pub [u8; 16]);

impl Md5Digest {
    /// Computes the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Md5::digest(bytes).into())
    }
}

impl TryFrom<String> for Md5Digest {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        let wrong = |_| ParseError(format!("{} hexadecimal digits, expected 32", text.len()));
        parse_hex(&text)?.try_into().map(Self).map_err(wrong)
    }
}

impl From<Md5Digest> for String {
    fn from(digest: Md5Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for Md5Digest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Md5Digest".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let description = "An MD5 in hexadecimal.";
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{32}$", "description": description })
    }
}

/// The version in a known image.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(with = "String"))]
pub enum ImageVersion {
    /// The vendor's firmware.
    Vendor(FirmwareVersion),
    /// Open firmware: its product string, which begins with `custom ` and names the commit.
    Open(String),
}

impl TryFrom<String> for ImageVersion {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        if open_build(&text).is_some() { Ok(Self::Open(text)) } else { text.parse().map(Self::Vendor) }
    }
}

impl From<ImageVersion> for String {
    fn from(version: ImageVersion) -> Self {
        version.to_string()
    }
}

/// One source of an image: a zip, a bare image, or a vendor's Windows updater.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// An http or https address.
    pub url: String,
    /// The image's name in the zip. Without one, the member with the image's SHA-256 is taken.
    pub member: Option<String>,
}

/// The known images: the embedded ones, and those in folders that the user names.
#[derive(Debug, Clone)]
pub struct Manifests {
    by_id: BTreeMap<String, (String, Manifest)>,
}

impl Manifests {
    /// Returns the images that a damaged file of this name may have been: that of the ID in the name, or else those of its
    /// length that have its version.
    pub fn meant(&self, name: &str, file: &[u8]) -> Vec<&Manifest> {
        let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let by_name: Vec<&Manifest> = self.iter().filter(|known| words.contains(&known.id.as_str())).collect();
        if let [_] = by_name[..] {
            return by_name;
        }
        let field = file.first_chunk().copied().and_then(container_len);
        let lens = [Some(file.len()), field].map(|len| len.and_then(|len| u64::try_from(len).ok()));
        let mut meant: Vec<&Manifest> = self.iter().filter(|known| lens.contains(&Some(known.size))).collect();
        if !by_name.is_empty() {
            meant.retain(|known| by_name.iter().any(|named| named.id == known.id));
        }
        // Open firmware has none, and a damaged one is nobody's.
        let version = version_in(file).map(|version| version.to_string());
        let has_version = |known: &&Manifest| version.as_deref() == Some(&known.version.to_string());
        if meant.iter().any(has_version) {
            meant.retain(|known| has_version(known));
        }
        meant
    }

    /// Loads the `embedded` manifests, each with its name for messages, and every `.toml` file in `dirs`, sorted by name.
    ///
    /// # Errors
    /// Fails on unreadable folders, unknown keys, bad values, and repeated ids or digests.
    pub fn load(embedded: &[(&str, &str)], dirs: &[PathBuf]) -> Result<Self, AnyFailure> {
        let mut manifests = Self { by_id: BTreeMap::new() };
        for (origin, text) in embedded {
            manifests.add(origin, text)?;
        }
        for dir in dirs {
            let unreadable = |path: &Path, cause: io::Error| {
                let label = Kind::BadInput.code("asmpatch::manifest::read");
                Failure::new(label, format!("cannot read manifests from {}", path.display())).because(cause)
            };
            for path in file::toml_files(dir).map_err(|error| unreadable(dir, error))? {
                let text =
                    file::read_regular_text(&path, MAX_MANIFEST_LEN).map_err(|error| unreadable(&path, error))?;
                manifests.add(&path.display().to_string(), &text)?;
            }
        }
        Ok(manifests)
    }

    /// Loads the repository's manifests, and those in `dirs`.
    #[cfg(test)]
    pub(crate) fn of_repository(dirs: &[PathBuf]) -> Result<Self, AnyFailure> {
        let files = crate::tests::repository("firmware-manifests");
        let files: Vec<(&str, &str)> = files.iter().map(|(origin, text)| (&origin[..], &text[..])).collect();
        Self::load(&files, dirs)
    }

    /// Adds one manifest. `origin` names it in errors. One of a known image, with its ID and its digest, adds its mirrors.
    ///
    /// # Errors
    /// As for [`Manifests::load`].
    pub fn add(&mut self, origin: &str, text: &str) -> Result<(), AnyFailure> {
        let manifest: Manifest = toml_file::parse(origin, text)?;
        manifest.check(origin)?;
        let duplicate = |key, value: &str, first: &str| {
            let label = Kind::BadInput.code("asmpatch::manifest::duplicate");
            AnyFailure::from(Failure::new(label, format!("{origin} repeats the {key} of {first}: {value}")))
        };
        if let Some((first, known)) = self.by_id.get_mut(&manifest.id) {
            if known.sha256 != manifest.sha256 {
                return Err(duplicate("id", &manifest.id, first));
            }
            for mirror in manifest.mirrors {
                if !known.mirrors.contains(&mirror) {
                    known.mirrors.push(mirror);
                }
            }
            return Ok(());
        }
        if let Some((first, _)) = self.by_id.values().find(|(_, known)| known.sha256 == manifest.sha256) {
            return Err(duplicate("sha256", &manifest.sha256.to_string(), first));
        }
        self.by_id.insert(manifest.id.clone(), (origin.to_owned(), manifest));
        Ok(())
    }

    /// Returns the image with this id.
    ///
    /// # Errors
    /// Fails if the id is unknown, and lists the known ones.
    pub fn by_id(&self, id: &str) -> Result<&Manifest, Failure> {
        self.by_id.get(id).map(|(_, manifest)| manifest).ok_or_else(|| {
            let ids = || self.by_id.keys().map(String::as_str);
            let (known, suggestion) = (ids().collect::<Vec<_>>().join(", "), question(id, ids()));
            let label = Kind::Usage.code("asmpatch::manifest::unknown_image");
            Failure::new(label, format!("no manifest for image \"{id}\"{suggestion}; known images: {known}"))
        })
    }

    /// Returns the image with this SHA-256, if it is known.
    pub fn by_sha256(&self, digest: &Sha256Digest) -> Option<&Manifest> {
        self.iter().find(|manifest| manifest.sha256 == *digest)
    }

    /// Returns all images, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Manifest> {
        self.by_id.values().map(|(_, manifest)| manifest)
    }
}

impl Manifest {
    fn check(&self, origin: &str) -> Result<(), Failure> {
        let wrong = |key, found: &dyn fmt::Display, expected: &str| {
            let label = Kind::BadInput.code("asmpatch::manifest::value");
            Err(Failure::new(label, format!("{origin}: {key} is {found}, expected {expected}")))
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if self.id.is_empty() || self.id.starts_with('.') || !self.id.chars().all(plain) {
            return wrong("id", &format!("{:?}", self.id), "letters, digits, '.', '_' and '-', not starting with '.'");
        }
        if self.size == 0 || self.size > MAX_FILE_LEN as u64 {
            return wrong("size", &self.size, &format!("1 to {MAX_FILE_LEN} bytes, what the flash can hold"));
        }
        for Mirror { url, .. } in &self.mirrors {
            if !is_http(url) {
                return wrong("url", &format!("{url:?}"), "an http:// or https:// address");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    #[cfg(unix)]
    use std::fs;

    use super::*;

    const SAMPLE: &str = r#"
        id = "sample"
        version = "250102.85.00.00"
        chip = "ASM2464PD"
        size = 1000
        sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        [[mirrors]]
        url = "https://example.org/a.zip"
    "#;

    fn add(text: &str) -> Result<Manifests, AnyFailure> {
        let mut manifests = Manifests::of_repository(&[])?;
        manifests.add("sample.toml", text).map(|()| manifests)
    }

    #[test]
    fn the_embedded_images_are_found_by_id_and_by_digest() {
        let manifests = Manifests::of_repository(&[]).unwrap();
        let default = manifests.by_id(DEFAULT_IMAGE).unwrap();
        assert_eq!(default.version.to_string(), "240417.85.00.00");
        assert_eq!(default.size, 98_016);
        assert_eq!(manifests.by_sha256(&default.sha256), Some(default));
        assert_eq!(manifests.by_id("231204").unwrap().mirrors[0].member, None);
        assert_eq!(manifests.by_sha256(&Sha256Digest([0; 32])), None);
    }

    #[test]
    fn a_damaged_file_is_the_image_that_its_name_or_its_length_and_version_say() {
        let manifests = Manifests::of_repository(&[]).unwrap();
        let meant = |name: &str, file: &[u8]| {
            let ids: Vec<&str> = manifests.meant(name, file).iter().map(|known| known.id.as_str()).collect();
            ids.join(" ")
        };
        let mut of_stock_len = vec![0; 98_016];
        assert_eq!(meant("AS_USB4_240417_85_00_00.bin", &of_stock_len), "240417");
        assert_eq!(meant("ed4e39b.bin", b""), "ed4e39b");
        // Three of the vendor's images have one length, and a name may hold two IDs.
        assert_eq!(meant("fw.bin", &of_stock_len), "231204 240417 250123");
        assert_eq!(meant("240417-or-250123.bin", b""), "");
        assert_eq!(meant("240417-or-250123.bin", &of_stock_len), "240417 250123");
        assert_eq!(meant("x2404170.bin", b""), "");
        assert_eq!(meant("fw.bin", &[0; 9207]), "ed4e39b");
        // Half of it: its field has the whole length.
        assert_eq!(meant("fw.bin", &(9207u32 - 10).to_le_bytes()), "ed4e39b");
        of_stock_len[0x204..0x20A].copy_from_slice(&[0x25, 0x01, 0x23, 0x85, 0, 0]);
        assert_eq!(meant("fw.bin", &of_stock_len), "250123");
        assert_eq!(meant("240417.bin", &of_stock_len), "240417", "its name comes first");
    }

    #[test]
    fn the_open_image_comes_from_a_fixed_commit_and_says_how_to_build_it() {
        let manifests = Manifests::of_repository(&[]).unwrap();
        let open = manifests.by_id(OPEN_IMAGE).unwrap();
        assert_eq!(open.version, ImageVersion::Open("custom ed4e39b7-CLEAN".to_owned()));
        assert_eq!(open.size, 9207);
        assert_eq!(
            open.mirrors[0].url,
            "https://raw.githubusercontent.com/commaai/openpilot/e32b1a344ddf746c28985784ddf7b4d118d7154d/openpilot/\
             system/hardware/chestnut/firmware_wrapped.bin"
        );
        assert!(open.build.as_ref().unwrap().contains("checkout ed4e39b"));
    }

    #[test]
    fn the_md5_of_the_published_test_vector() {
        // RFC 1321.
        let digest = Md5Digest::of(b"abc");
        assert_eq!(digest.to_string(), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(Md5Digest::try_from(digest.to_string()), Ok(digest));
        assert_eq!(
            Md5Digest::try_from("abcd".to_owned()).unwrap_err().to_string(),
            "4 hexadecimal digits, expected 32"
        );
    }

    #[test]
    fn the_error_for_an_unknown_image_lists_the_known_ones() {
        let message = Manifests::of_repository(&[]).unwrap().by_id("999999").unwrap_err().to_string();
        assert!(message.contains("231204, 240417, 250123"), "{message}");
    }

    #[test]
    fn a_users_manifest_adds_an_image() {
        let manifests = add(SAMPLE).unwrap();
        assert_eq!(manifests.by_id("sample").unwrap().mirrors.len(), 1);
        assert_eq!(manifests.iter().count(), 5);
    }

    #[test]
    fn unknown_keys_and_odd_hexadecimal_are_errors() {
        for (bad, expected) in [
            (SAMPLE.replace("chip", "chips"), "unknown field `chips`"),
            (SAMPLE.replace("url", "uri"), "unknown field `uri`"),
            (SAMPLE.replace("15ad\"", "15a\""), "odd number of hexadecimal digits: 63"),
            (SAMPLE.replace("15ad\"", "15ag\""), "'g' at position 63"),
            (SAMPLE.replace("15ad\"", "\""), "60 hexadecimal digits, expected 64"),
            (SAMPLE.replace("250102.85.00.00", "250102.85"), "version"),
            (SAMPLE.replace("size = 1000", "size = 0"), "size is 0"),
            (SAMPLE.replace("size = 1000", "size = 9999999"), "size is 9999999"),
            (SAMPLE.replace("\"sample\"", "\"../sample\""), "id is"),
            (SAMPLE.replace("https://", "ftp://"), "url is"),
        ] {
            let message = add(&bad).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }

    #[test]
    fn a_manifest_with_the_id_and_the_digest_of_a_known_image_adds_its_mirrors_once() {
        let mut manifests = add(SAMPLE).unwrap();
        let other = SAMPLE.replace("https://example.org/a.zip", "https://example.net/b.bin");
        for text in [other.as_str(), &other, SAMPLE] {
            manifests.add("mine.toml", text).unwrap();
        }
        let mirrors = &manifests.by_id("sample").unwrap().mirrors;
        let urls: Vec<&str> = mirrors.iter().map(|mirror| mirror.url.as_str()).collect();
        assert_eq!(urls, ["https://example.org/a.zip", "https://example.net/b.bin"]);
    }

    #[test]
    fn the_image_that_tools_use_has_mirrors_on_two_hosts() {
        let manifests = Manifests::of_repository(&[]).unwrap();
        let mirrors = &manifests.by_id("240417").unwrap().mirrors;
        let hosts: BTreeSet<&str> = mirrors.iter().filter_map(|mirror| mirror.url.split('/').nth(2)).collect();
        assert_eq!(hosts.into_iter().collect::<Vec<_>>(), ["raw.githubusercontent.com", "web.archive.org"]);
    }

    #[test]
    fn repeated_ids_and_digests_are_errors() {
        let same_id = SAMPLE.replace("\"sample\"", "\"240417\"");
        assert_eq!(add(&same_id).unwrap_err().code(), "asmpatch::manifest::duplicate");
        let mut twice = add(SAMPLE).unwrap();
        let renamed = SAMPLE.replace("\"sample\"", "\"other\"");
        let error = twice.add("other.toml", &renamed).unwrap_err();
        assert!(error.to_string().starts_with("other.toml repeats the sha256 of sample.toml"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_manifest_without_an_end_is_refused_unread() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("a.toml")).unwrap();
        let error = Manifests::of_repository(&[folder.path().to_owned()]).unwrap_err();
        assert_eq!(error.code(), "asmpatch::manifest::read", "{error}");
        fs::remove_file(folder.path().join("a.toml")).unwrap();
        fs::File::create(folder.path().join("b.toml")).unwrap().set_len(1 << 40).unwrap();
        let error = Manifests::of_repository(&[folder.path().to_owned()]).unwrap_err();
        assert_eq!(error.code(), "asmpatch::manifest::read", "{error}");
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_never_panics(text: String) {
            let _ = add(&text);
        }
    }
}
