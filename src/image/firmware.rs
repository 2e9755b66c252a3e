//! Identification of an image: stock, with which patches, the practice image, or open firmware. Pure.

use std::fmt;

use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, FirmwareVersion, Image, Part, UsbId, open_build};
use asm2464::{Failure, Kind};
use asm2464_chip::chip::boot::{self, Enumerated};
use serde::{Deserialize, Serialize};

use crate::patch::{Library, Patch, PatchEffect};
use crate::practice;

/// Number of hex digits that name a build of open firmware.
const BUILD_DIGITS: usize = 8;
/// The fewest digits by which git names a commit.
const FEWEST_DIGITS: usize = 7;

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
    effects: Vec<PatchEffect>,
}

impl Firmware {
    /// Identifies an image: by the known image that it is made of and the patches in it, or else by what it enumerates as.
    pub(super) fn of(
        image: &Image,
        library: &Library,
        made_of: Option<(Sha256Digest, &[&Patch])>,
        enumerated: impl FnOnce() -> Option<Enumerated>,
    ) -> Self {
        let version = image.version();
        let is_practice = made_of.is_some_and(|(base, _)| base == practice::SHA256);
        let base = match &made_of {
            // Modified or not, it is no vendor image.
            _ if is_practice || version == practice::VERSION => Base::Practice,
            Some(_) => Base::Vendor,
            None => OpenImage::enumerating(image, library, enumerated).map_or(Base::Unknown, Base::Open),
        };
        let found = made_of.map_or(&[][..], |(_, patches)| patches);
        let patches = found.iter().map(|patch| patch.id.clone()).collect();
        let effects = found.iter().flat_map(|patch| patch.effects.iter().copied()).collect();
        Self { base, version, patches, effects }
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

    /// Changes the product string of open firmware, as in a report, which must not have a serial number in it.
    pub(crate) fn change_product(&mut self, change: impl FnOnce(&mut String)) {
        if let Base::Open(open) = &mut self.base {
            change(&mut open.product);
        }
    }

    /// Gives a test's firmware another version.
    #[cfg(test)]
    pub(crate) fn set_version(&mut self, version: FirmwareVersion) {
        self.version = version;
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
        self.has(PatchEffect::AnswersWrites)
    }

    /// Whether the image's E4 takes more than 255 bytes; `None` if the image is unknown, or takes no commands.
    pub fn has_e4_extension(&self) -> Option<bool> {
        matches!(self.base, Base::Vendor | Base::Practice).then(|| self.has(PatchEffect::E4Extension))
    }

    fn has(&self, effect: PatchEffect) -> bool {
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

/// Firmware driven by control requests instead of SCSI. Its image enumerates with a vendor-specific interface.
// `--json` prints it as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "OpenJson", description = "What identifies open firmware."))]
pub struct OpenImage {
    /// The product string that it enumerates with.
    pub product: String,
    /// The build that it reports.
    // The commit in the product string, unless another image is known to be that build; else the first digits of the
    // image's SHA-256.
    pub build: String,
    /// The VID:PID that it enumerates with.
    // Whatever the configuration blocks say.
    pub usb_id: UsbId,
    /// The known image that it is, by its digest.
    // `info` and `verify` print it beside this.
    #[serde(skip)]
    pub image: Option<String>,
    /// The known image that it calls itself, though its digest is another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<String>,
}

impl fmt::Display for OpenImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { product, build, claims, .. } = self;
        let product = product.shown();
        match claims {
            Some(known) => write!(
                f,
                "open firmware that calls itself {product}, is not the known image {} (build {build})",
                known.shown()
            ),
            None => write!(f, "open firmware {product} (build {build})"),
        }
    }
}

impl OpenImage {
    /// Boots the image on the chip model and reads its descriptors. `None` for any other firmware, and for an image
    /// longer than part 1, because open firmware is written to that part only. Source: openpilot's flasher.
    pub fn of(image: &Image, library: &Library) -> Option<Self> {
        Self::enumerating(image, library, || boot::enumerated(image))
    }

    /// The failure of open firmware that is longer than part 1.
    pub fn too_long(image: &Image) -> Failure {
        let (len, most) = (image.file_len(), Part::One.max_len());
        let message =
            format!("it enumerates as open firmware, of which asmpatch writes at most {most} bytes: it has {len}");
        Failure::new(Kind::BadInput.code("asmpatch::image::open_too_long"), message)
    }

    fn enumerating(image: &Image, library: &Library, enumerated: impl FnOnce() -> Option<Enumerated>) -> Option<Self> {
        if image.file_len() > Part::One.max_len() {
            return None;
        }
        let Enumerated { product, usb_id, .. } =
            enumerated().filter(|enumerated| enumerated.state == BridgeState::OpenFirmware)?;
        let sha256 = image.sha256();
        let known = library.open_images().get(&sha256).map(|known| known.id.clone());
        let claims = match known {
            Some(_) => None,
            None => library.open_images().values().find(|known| names_the_same(&known.product, &product)),
        };
        let claims = claims.map(|known| known.id.clone());
        let build = match commit(&product).filter(|_| claims.is_none()) {
            Some(commit) => commit.to_owned(),
            None => sha256.to_string().chars().take(BUILD_DIGITS).collect(),
        };
        Some(Self { product, build, usb_id, image: known, claims })
    }
}

/// Extracts the commit of a product string such as `custom 1a2b3c4d-CLEAN`.
fn commit(product: &str) -> Option<&str> {
    hex_head(product).filter(|commit| commit.len() == BUILD_DIGITS)
}

/// The hex digits before the first hyphen of a build: a commit, or the beginning of one.
fn hex_head(product: &str) -> Option<&str> {
    let build = open_build(product)?;
    let (head, _) = build.split_once('-').unwrap_or((build, ""));
    head.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(head)
}

/// Whether two product strings name the same build: they are the same, or one commit begins with the other's digits, of
/// which git prints seven at least.
fn names_the_same(product: &str, other: &str) -> bool {
    let [Some(one), Some(two)] = [product, other].map(hex_head) else { return product == other };
    let len = one.len().min(two.len());
    len >= FEWEST_DIGITS && one[..len].eq_ignore_ascii_case(&two[..len])
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::BodyOffset;
    use asm2464_chip::practice;

    use super::*;
    use crate::flash::backup::tests::sample_image;
    use crate::patch::{PatchSet, Selection, identify};

    fn identified(image: &Image, library: &Library) -> Firmware {
        let found = identify(library, image, image.sha256());
        let made_of = found.as_ref().map(|found| (found.base, &found.patches[..]));
        Firmware::of(image, library, made_of, || boot::enumerated(image))
    }

    #[test]
    fn an_image_is_named_by_what_it_is_made_of_and_the_patches_in_it() {
        let library = Library::of_repository().unwrap();
        let practice = practice::image();
        assert_eq!(identified(&practice, &library).to_string(), "practice image");
        let digest = practice.sha256();
        let patched = PatchSet::resolve(&library, &Selection::default(), &practice, digest).unwrap().apply().unwrap();
        let firmware = identified(&patched.image, &library);
        assert_eq!(firmware.to_string(), "practice image with status-0x2a12");
        assert!(firmware.is_practice() && firmware.answers_writes());
        assert_eq!(firmware.has_e4_extension(), Some(false));

        let mut modified = practice.clone();
        assert!(modified.replace(BodyOffset(0x3000), &[0x5A, 0xC3]));
        assert!(identified(&modified, &library).is_practice(), "by its version");

        let unknown = sample_image(0);
        let firmware = identified(&unknown, &library);
        assert_eq!(firmware.to_string(), format!("unknown firmware {}", unknown.version()));
        assert!(!firmware.is_practice() && firmware.has_e4_extension().is_none());
    }

    #[test]
    fn a_users_patch_counts_by_its_effect_and_not_by_its_id() {
        let practice = practice::image();
        let text = crate::tests::repository("patches").pop().unwrap().1;
        let of = |text: &str| {
            let library = Library::of(&[("mine.toml", text)]).unwrap();
            let set = PatchSet::resolve(&library, &Selection::default(), &practice, practice.sha256());
            identified(&set.unwrap().apply().unwrap().image, &library)
        };
        let mine = text.replace("status-0x2a12", "mine");
        assert!(of(&mine).answers_writes(), "{mine}");
        let without = text.replace("effects = [\"answers-writes\"]", "");
        assert_ne!(text, without);
        assert!(!of(&without).answers_writes(), "an id alone has no effect");
    }

    #[test]
    fn a_commit_in_the_product_string_names_the_build() {
        assert_eq!(commit("custom 1a2b3c4d-CLEAN"), Some("1a2b3c4d"));
        assert_eq!(commit("custom 1a2b3c4d"), Some("1a2b3c4d"));
        for none in ["custom v0.1", "custom", "AS2462", "custom 1a2b3c4-DIRTY", "custom 1a2b3c4x-CLEAN"] {
            assert_eq!(commit(none), None, "{none}");
        }
    }

    /// The practice image, or one with other code that calls itself `product`, which must be as long as the practice
    /// image's.
    fn open_named(product: Option<&str>) -> Image {
        let mut image = practice::open_image();
        if let Some(product) = product {
            let at = image.body().windows(PRACTICE.len()).position(|bytes| bytes == PRACTICE.as_bytes()).unwrap();
            assert!(image.replace(BodyOffset(at as u32), product.as_bytes()));
            let end = image.body().len() as u32 - 1;
            assert!(image.replace(BodyOffset(end), &[0x5A]));
        }
        image
    }

    const PRACTICE: &str = "custom practice";

    #[test]
    fn a_build_is_known_by_its_digest_and_its_name_is_only_what_it_calls_itself() {
        let mut library = Library::default();
        library.know_open(practice::open_image().sha256(), "ours", PRACTICE);
        library.know_open(Sha256Digest::of(b"another"), "1a2b3c4", "custom 1a2b3c4d-CLEAN");
        let of = |product: Option<&str>| OpenImage::of(&open_named(product), &library).unwrap();
        let known = of(None);
        assert_eq!((known.image.as_deref(), known.claims), (Some("ours"), None));
        for (product, claims) in [
            (PRACTICE, Some("ours")),
            ("custom 1a2b3c4d", Some("1a2b3c4")),
            ("custom 1A2B3C4-", Some("1a2b3c4")),
            ("custom 1a2b3c5d", None),
            ("custom 1a2b3c--", None),
        ] {
            let found = of(Some(product));
            assert_eq!((found.image.as_deref(), found.claims.as_deref()), (None, claims), "{product}");
            let words = found.to_string();
            assert_eq!(words.contains("that calls itself custom "), claims.is_some(), "{words}");
            assert_eq!(words.contains("is not the known image"), claims.is_some(), "{words}");
            let digest = open_named(Some(product)).sha256().to_string();
            assert_eq!(digest.starts_with(&found.build), claims.is_some() || !product.contains("1a2b3c5d"), "{words}");
        }
    }

    #[test]
    fn open_firmware_ends_where_part_1_does() {
        let open = practice::open_image();
        let mut body = open.body().to_vec();
        body.resize(body.len() + Part::One.max_len() - open.file_len(), 0);
        let of = |body: &[u8]| OpenImage::of(&Image::from_body(body.to_vec()).unwrap(), &Library::default());
        assert!(of(open.body()).is_some() && of(&body).is_some());
        for more in [1, 2] {
            body.resize(body.len() + more, 0);
            assert_eq!(of(&body), None);
        }
    }

    #[test]
    fn other_firmware_is_not_taken_for_open_firmware() {
        assert_eq!(OpenImage::of(&practice::image(), &Library::default()), None);
        // The image jumps to itself.
        assert_eq!(
            OpenImage::of(&Image::from_body([&[0x80, 0xFE][..], &[0; 600]].concat()).unwrap(), &Library::default()),
            None
        );
    }
}
