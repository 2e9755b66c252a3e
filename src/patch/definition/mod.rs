//! Patch files: what a patch says, checked as far as possible without an image.

use asm2464::digest::{Sha256Digest, to_hex};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_dock::files::toml_file;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::config_edits::ConfigEdits;
use super::hunk::Hunk;

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
    pub effects: Vec<Effect>,
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
    pub images: Vec<PatchedImage>,
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
    use serde_json::{Map, Value};
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut).for_each(|property| {
        property.remove("default");
    });
}

/// What a patch makes an image do. asmpatch decides by effects, never by a patch's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Over UAS, a WRITE(16) is answered before any device behind the bridge has taken it. An SSD loses writes.
    AnswersWrites,
    /// E4 takes a length of more than 255 bytes, from two bytes of its CDB.
    LongE4,
    /// READ(16) of an initialised bridge returns the SRAM, without a device behind the bridge.
    ReadsSram,
}

/// A patch's changes to one image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchedImage {
    /// The unpatched image that the hunks are for.
    pub sha256: Sha256Digest,
    /// A name for people, such as a version.
    pub name: String,
    /// What changes, in the order of the file.
    pub hunks: Vec<Hunk>,
}

/// Serialized as its name.
impl Serialize for PatchedImage {
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
                    && !(0..=2).contains(&(i64::from(at.body_offset().0) - i64::from(instruction.body_offset().0)))
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

#[cfg(test)]
mod tests;
