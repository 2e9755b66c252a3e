//! Patch files: what a patch says, and the bytes that its hunks replace, checked as far as possible without an image.

use asm2464::digest::{Sha256Digest, parse_hex, to_hex};
use asm2464::firmware::{BodyOffset, CodeAddress, FileOffset, MAX_FILE_LEN};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::toml_file;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::config_edits::ConfigEdits;

/// One patch: its purpose, its source, and what it changes. [`Patch::parse`] checks it.
///
/// What is serialized describes it to users: without what it needs or excludes, and without hunks, which differ between
/// images ([`PatchOnImage`](super::PatchOnImage)).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(transform = without_defaults))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Patch {
    /// Its id, as `--patch` takes it.
    #[serde(deserialize_with = "plain_id")]
    pub id: String,
    /// What it does, on one line.
    pub title: String,
    /// What it is for.
    pub purpose: String,
    /// Where the facts about it come from.
    #[serde(skip_serializing)]
    pub source: String,
    /// Whether it is applied unless the user names patches.
    pub default: bool,
    /// What a patched image does differently, as far as asmpatch acts on it.
    #[serde(default)]
    pub effects: Vec<PatchEffect>,
    /// The ids of the patches that it needs.
    #[serde(default, skip_serializing)]
    pub requires: Vec<String>,
    /// The ids of the patches that it does not work with.
    #[serde(default, skip_serializing)]
    pub conflicts: Vec<String>,
    /// The names of the images that it has hunks for; empty if it fits any image because it changes only the
    /// configuration.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schemars(with = "Vec<String>"))]
    pub images: Vec<ImageHunks>,
    /// The fields of configuration block 0 that flashing changes.
    #[serde(default)]
    pub config: ConfigEdits,
    /// The file that it came from, for messages.
    #[serde(skip)]
    pub origin: String,
}

/// Leaves out the values of keys that a file may lack: they are printed all the same.
#[cfg(feature = "schemas")]
fn without_defaults(schema: &mut schemars::Schema) {
    use serde_json::Value;
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for property in properties.values_mut() {
        if let Some(property) = property.as_object_mut() {
            property.remove("default");
        }
    }
}

/// What a patch makes an image do. asmpatch decides by effects, never by a patch's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Effect"))]
#[serde(rename_all = "kebab-case")]
pub enum PatchEffect {
    /// Over UAS, a WRITE(16) is answered before any device behind the bridge has taken it. An SSD loses writes.
    AnswersWrites,
    /// E4 takes a length of more than 255 bytes, from two bytes of its CDB.
    #[serde(rename = "long-e4")]
    E4Extension,
    /// READ(16) of an initialised bridge returns the SRAM, without a device behind the bridge.
    ReadsSram,
}

/// A patch's changes to one image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageHunks {
    /// The unpatched image that the hunks are for.
    pub sha256: Sha256Digest,
    /// A name for people, such as a version.
    pub name: String,
    /// What changes, in the order of the file.
    pub hunks: Vec<Hunk>,
}

/// Serialized as its name.
impl Serialize for ImageHunks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

fn plain_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let id = String::deserialize(deserializer)?;
    if !id.is_empty() && id.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
        Ok(id)
    } else {
        Err(de::Error::custom(format!("an id is lower-case letters, digits and dashes, {id:?} is not")))
    }
}

impl Patch {
    /// Parses a patch file. `origin` names it in errors.
    ///
    /// # Errors
    /// Fails if the TOML has a wrong key or value, or if a hunk can't be applied to any image. Errors show the place.
    pub fn parse(origin: &str, text: &str) -> Result<Self, AnyFailure> {
        let patch = Self { origin: origin.to_owned(), ..toml_file::parse(origin, text)? };
        patch.check()?;
        Ok(patch)
    }

    fn check(&self) -> Result<(), Failure> {
        let Self { origin, id, .. } = self;
        let has_hunks = self.images.iter().any(|image| !image.hunks.is_empty());
        if !has_hunks && self.config.is_empty() {
            let label = Kind::BadInput.code("asmpatch::patch::empty");
            let message = format!("{origin}: the patch `{id}` has neither hunks nor configuration fields");
            return Err(Failure::new(label, message));
        }
        for (index, image) in self.images.iter().enumerate() {
            let sha256 = image.sha256;
            if self.images[..index].iter().any(|other| other.sha256 == sha256) {
                let label = Kind::BadInput.code("asmpatch::patch::image_twice");
                let message = format!("{origin}: the patch `{id}` names the image {sha256} twice");
                return Err(Failure::new(label, message));
            }
            for Hunk { at, expect, new, instruction, .. } in &image.hunks {
                if let Some(instruction) = *instruction
                    && !(0..=2).contains(&(i64::from(at.0) - i64::from(instruction.body_offset().0)))
                {
                    let label = Kind::BadInput.code("asmpatch::patch::instruction");
                    let message = format!(
                        "{origin}: patch `{id}`: the instruction at {instruction} does not reach into the hunk at {at}"
                    );
                    return Err(Failure::new(label, message));
                }
                if expect.is_empty() || expect.len() != new.len() || expect == new {
                    let same = if expect == new && !expect.is_empty() { ", which are the same" } else { "" };
                    let (expect, new) = (expect.len(), new.len());
                    let label = Kind::BadInput.code("asmpatch::patch::hunk");
                    let message = format!(
                        "{origin}: patch `{id}`, hunk at {at}: expects {expect} bytes and has {new} new ones{same}"
                    );
                    return Err(Failure::new(label, message));
                }
            }
            let mut hunks: Vec<&Hunk> = image.hunks.iter().collect();
            hunks.sort_by_key(|hunk| hunk.range().start);
            for pair in hunks.windows(2) {
                let (first, second) = (pair[0], pair[1]);
                if first.range().end > second.range().start {
                    let (first, second) = (first.at, second.at);
                    let label = Kind::BadInput.code("asmpatch::patch::hunks_overlap");
                    let message = format!("{origin}: patch `{id}`: the hunks at {first} and {second} overlap");
                    return Err(Failure::new(label, message));
                }
            }
        }
        Ok(())
    }

    /// Its changes to one image; empty if it changes only the configuration, or is not made for that image.
    pub fn hunks(&self, image: &Sha256Digest) -> &[Hunk] {
        self.images.iter().find(|section| section.sha256 == *image).map_or(&[], |section| &section.hunks)
    }

    /// Whether it can be applied to an image: it has hunks for it, or changes no image at all.
    pub fn is_for(&self, image: &Sha256Digest) -> bool {
        self.images.is_empty() || !self.hunks(image).is_empty()
    }

    /// Returns the digest of what it does to an image: the SHA-256 of the lines that
    /// `docs/formats.md` gives.
    ///
    /// Prose, comments and hunks for other images do not count, so that a receipt stays valid when an explanation is
    /// edited.
    pub fn digest(&self, image: &Sha256Digest) -> Sha256Digest {
        use std::fmt::Write;
        let mut text = format!("asmpatch-patch 1\nid {}\n", self.id);
        let mut hunks: Vec<&Hunk> = self.hunks(image).iter().collect();
        hunks.sort_by_key(|hunk| hunk.range().start);
        for hunk in hunks {
            // Writing into a String cannot fail.
            let _ =
                writeln!(text, "{:#x} {} {}", hunk.at.file_offset().0, to_hex(&hunk.expect, ""), to_hex(&hunk.new, ""));
        }
        for (field, value) in self.config.iter() {
            let _ = writeln!(text, "{} = {value}", field.name());
        }
        Sha256Digest::of(text.as_bytes())
    }
}

/// Bytes that must be there, and the bytes that replace them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hunk {
    /// The first byte.
    #[serde(deserialize_with = "address")]
    pub at: BodyOffset,
    /// The unpatched image's bytes there.
    #[serde(deserialize_with = "hex_bytes")]
    pub expect: Vec<u8>,
    /// The patched image's bytes, of the same number.
    #[serde(deserialize_with = "hex_bytes")]
    pub new: Vec<u8>,
    /// Where the first changed instruction begins, if that is not the hunk's first byte.
    #[serde(default)]
    pub instruction: Option<CodeAddress>,
    /// A note on the bytes, for people.
    #[serde(default)]
    pub note: Option<String>,
}

impl Hunk {
    /// Returns the bytes of the body that the hunk covers.
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = self.at.0 as usize;
        start..start + self.expect.len()
    }
}

/// Parses an address as an author writes it: `file:0x2A12` or `c:0x2A0E`. Both name a byte of the body.
fn parse_address(text: &str) -> Result<BodyOffset, String> {
    let Some(offset) = text.strip_prefix("file:") else {
        return text
            .parse()
            .map(CodeAddress::body_offset)
            .map_err(|error| format!("{error}; an offset in the file is written file:0x2A12"));
    };
    let digits = offset.strip_prefix("0x").or_else(|| offset.strip_prefix("0X"));
    let offset = digits
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .ok_or_else(|| format!("{text:?} is not of the form file:0x2A12"))
        .map(|digits| u32::from_str_radix(digits, 16).unwrap_or(u32::MAX))?;
    if offset as usize >= MAX_FILE_LEN {
        return Err(format!("{text:?} is past the end of the largest possible image, {MAX_FILE_LEN:#x} bytes"));
    }
    FileOffset(offset)
        .body_offset()
        .ok_or_else(|| format!("{text:?} is in the container's header, which asmpatch writes itself"))
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BodyOffset, D::Error> {
    parse_address(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// Parses hexadecimal bytes. Long hunks are written in lines, so white space between digits is ignored.
fn hex_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text: String = String::deserialize(deserializer)?.split_ascii_whitespace().collect();
    parse_hex(&text).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
    id = "sample"
    title = "A sample"
    purpose = "Shows the format."
    source = "Made up."
    default = false
    [[images]]
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    name = "abc"
    [[images.hunks]]
    at = "c:0x2A0E"
    expect = "0a"
    new = "05"
    [[images.hunks]]
    at = "file:0x2A13"
    expect = '''
        22 33
        44'''
    new = "223355"
    [config]
    vendor-id = 0xADD1
"#;

    #[test]
    fn both_kinds_of_address_mean_the_same_byte() {
        let file = parse_address("file:0x2A12").unwrap();
        assert_eq!(file, parse_address("c:0x2A0E").unwrap());
        assert_eq!(file.to_string(), "c:0x2A0E (file 0x02a12)");
        assert_eq!(parse_address("b1:0xC98D"), parse_address("file:0x148FC"));
    }

    #[test]
    fn a_patch_file_is_read_whole() {
        let patch = Patch::parse("sample.toml", SAMPLE).unwrap();
        let image = patch.images[0].sha256;
        assert_eq!(patch.hunks(&image)[1].expect, [0x22, 0x33, 0x44]);
        assert!(patch.is_for(&image) && !patch.is_for(&Sha256Digest([0; 32])));
        assert_eq!(patch.config.iter().count(), 1);
    }

    #[test]
    fn the_digest_covers_the_changes_and_not_their_description() {
        let digest = |text: &str| {
            let patch = Patch::parse("sample.toml", text).unwrap();
            patch.digest(&patch.images[0].sha256)
        };
        assert_eq!(digest(SAMPLE), digest(&SAMPLE.replace("Made up.", "Rumour.").replace("c:0x2A0E", "file:0x2A12")));
        for (from, to) in [("\"05\"", "\"06\""), ("\"0a\"", "\"0b\""), ("0xADD1", "0xADD2"), ("2A0E", "2A0D")] {
            assert_ne!(digest(SAMPLE), digest(&SAMPLE.replace(from, to)), "{from}");
        }
    }

    #[test]
    fn everything_that_is_wrong_has_its_own_message() {
        for (from, to, expected) in [
            ("title", "titel", "unknown field `titel`"),
            ("expect = \"0a\"", "expects = \"0a\"", "unknown field `expects`"),
            ("vendor-id", "vendor", "unknown field `vendor`"),
            ("\"0a\"", "\"0a1\"", "odd number of hexadecimal digits: 3"),
            ("\"0a\"", "\"0g\"", "'g' at position 1"),
            ("\"sample\"", "\"Sample\"", "lower-case letters"),
            ("default = false", "", "missing field `default`"),
            ("c:0x2A0E", "c:0x8000", "outside its bank"),
            ("c:0x2A0E", "2A0E", "is written file:0x2A12"),
            ("file:0x2A13", "file:2A13", "not of the form file:0x2A12"),
            ("file:0x2A13", "file:0x3", "in the container's header"),
            ("file:0x2A13", "file:0x1FF00", "past the end of the largest possible image"),
            ("file:0x2A13", "file:0xFFFFFFFFFF", "past the end of the largest possible image"),
            ("file:0x2A13", "file:0x2A12", "c:0x2A0E (file 0x02a12) and c:0x2A0E (file 0x02a12) overlap"),
            ("\"05\"", "\"05\"\ninstruction = \"c:0x2A0F\"", "the instruction at c:0x2A0F does not reach"),
            ("\"05\"", "\"05\"\ninstruction = \"c:0x2A0B\"", "the instruction at c:0x2A0B does not reach"),
            ("\"05\"", "\"0506\"", "expects 1 bytes and has 2 new ones"),
            ("\"05\"", "\"0a\"", "which are the same"),
            ("\"05\"", "\"\"", "expects 1 bytes and has 0"),
        ] {
            assert!(SAMPLE.contains(from), "{from}");
            let message = Patch::parse("sample.toml", &SAMPLE.replace(from, to)).unwrap_err().to_string();
            assert!(message.starts_with("sample.toml: ") && message.contains(expected), "{message} lacks {expected}");
        }
        let head = SAMPLE.split("[[images]]").next().unwrap();
        assert_eq!(Patch::parse("x", head).unwrap_err().code(), "asmpatch::patch::empty");
        let section = SAMPLE.split_once("[config]").unwrap().0;
        let twice = format!("{section}{}", &section[head.len()..]);
        assert_eq!(Patch::parse("x", &twice).unwrap_err().code(), "asmpatch::patch::image_twice");
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_never_panics(text: String, at: String, bytes: String) {
            let _ = Patch::parse("x", &text);
            let _ = parse_address(&at);
            let _ = Patch::parse("x", &SAMPLE.replace("c:0x2A0E", &at).replace("0a", &bytes));
        }
    }
}
