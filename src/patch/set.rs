//! Selects patches that fit together on one image.

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BodyOffset, FirmwareVersion, Image};
use thiserror::Error;

use super::config_edits::ConfigEdits;
use super::definition::Patch;
use super::hunk::{Hunk, HunkAddress};
use super::library::Library;
use crate::suggest;

/// The user's selection.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Starts from an empty set instead of the default set.
    pub no_defaults: bool,
    /// Patches to add, by id. A patch that is already in the set changes nothing.
    pub add: Vec<String>,
}

/// Patches that fit an image and each other.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PatchSet<'a> {
    /// The unpatched image.
    pub base: &'a Image,
    /// The digest of the unpatched image's file.
    pub digest: Sha256Digest,
    /// The patches, by id.
    pub patches: Vec<&'a Patch>,
    /// The changes that all patches together make to configuration block 0.
    pub config: ConfigEdits,
    /// Every hunk with its patch.
    hunks: Vec<(&'a Patch, &'a Hunk)>,
}

/// Reasons patches can't be applied or undone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchError {
    /// No patch has this id.
    #[error("unknown patch `{id}`{}; known patches: {known}", suggest::question(.suggestion.as_deref()))]
    UnknownId {
        /// The requested id.
        id: String,
        /// The known id that may have been meant.
        suggestion: Option<String>,
        /// The known ids.
        known: String,
    },
    /// No patch is selected.
    #[error("no patch is selected")]
    Nothing,
    /// A patch requires another one that is not in the set.
    #[error("the patch `{id}` requires `{missing}`, which is not in the set")]
    Requires {
        /// The patch.
        id: String,
        /// The patch that it requires.
        missing: String,
    },
    /// Two patches conflict, because the first says so.
    #[error("the patches `{first}` and `{second}` conflict: `{first}` says so")]
    Conflict {
        /// The patch whose definition names the other.
        first: String,
        /// The other patch.
        second: String,
    },
    /// Two patches change the same byte.
    #[error("the patches `{first}` and `{second}` both change {at}")]
    Overlap {
        /// One patch.
        first: String,
        /// The other patch.
        second: String,
        /// The first byte that both change.
        at: HunkAddress,
    },
    /// Two patches set a field to different values.
    #[error("the patches `{first}` and `{second}` set the configuration field `{field}` to different values")]
    ConfigConflict {
        /// One patch.
        first: String,
        /// The other patch.
        second: String,
        /// The field.
        field: &'static str,
    },
    /// No patch is made for the image.
    #[error("no patch is made for this image: {}, SHA-256 {sha256}; there are patches for {known}", version.words())]
    UnknownImage {
        /// The digest.
        sha256: Sha256Digest,
        /// The image's version.
        version: FirmwareVersion,
        /// The names of the images that have patches.
        known: String,
    },
    /// The image is already patched.
    #[error("the image is already patched: it is {base} with {patches}")]
    AlreadyPatched {
        /// What it was made from.
        base: String,
        /// The patches in it.
        patches: String,
    },
    /// A patch has no hunks for the image, which is known.
    #[error("the patch `{id}` is made for {made_for}, not for this image, which is {image}")]
    NotForImage {
        /// The patch.
        id: String,
        /// The image.
        image: String,
        /// The images that it has hunks for.
        made_for: String,
    },
    /// The image's bytes are not the ones that a hunk replaces.
    #[error("patch `{id}`: at {at} expected {expected}, found {found}")]
    Mismatch {
        /// The patch.
        id: String,
        /// The hunk.
        at: HunkAddress,
        /// Its expected bytes, in hexadecimal.
        expected: String,
        /// The image's, in hexadecimal.
        found: String,
    },
    /// A hunk goes past the end of the body.
    #[error("patch `{id}`: the hunk at {at} has {len} bytes, the image's body ends at {}", end.file_offset())]
    PastEnd {
        /// The patch.
        id: String,
        /// The hunk.
        at: HunkAddress,
        /// Its length.
        len: usize,
        /// The first offset behind the body.
        end: BodyOffset,
    },
    /// The image of this name has no patch to undo.
    #[error("the image is {0}, and no patch is in it")]
    NotPatched(String),
}

asm2464::coded!(PatchError {
    UnknownId => Usage "asmpatch::patch::unknown_id",
    Nothing => Usage "asmpatch::patch::none",
    Requires => Usage "asmpatch::patch::requires",
    Conflict => Usage "asmpatch::patch::conflicts",
    Overlap => BadInput "asmpatch::patch::overlap",
    ConfigConflict => BadInput "asmpatch::patch::config_conflict",
    UnknownImage => BadInput "asmpatch::patch::unknown_image",
    AlreadyPatched => BadInput "asmpatch::patch::already_patched",
    NotForImage => BadInput "asmpatch::patch::not_for_image",
    Mismatch => BadInput "asmpatch::patch::mismatch",
    PastEnd => BadInput "asmpatch::patch::past_end",
    NotPatched => BadInput "asmpatch::patch::not_patched",
});

impl<'a> PatchSet<'a> {
    /// Selects patches for an unpatched image, and checks that they fit together. `digest` is that of the image's file.
    ///
    /// It is an error if a patch of the default set has no hunks for the image: nobody has tested half of the default
    /// set.
    ///
    /// # Errors
    /// [`PatchError`]: the image is unknown or already patched, an id is unknown, a requirement is unmet, patches
    /// conflict or overlap, or a patch is not for the image.
    pub fn resolve(
        library: &'a Library,
        selection: &Selection,
        image: &'a Image,
        digest: Sha256Digest,
    ) -> Result<Self, PatchError> {
        for id in &selection.add {
            if library.get(id).is_none() {
                let known = library.iter().map(|patch| patch.id.as_str()).collect::<Vec<_>>().join(", ");
                let suggestion = suggest::nearest(id, library.iter().map(|patch| patch.id.as_str())).map(str::to_owned);
                return Err(PatchError::UnknownId { id: id.clone(), suggestion, known });
            }
        }
        let wanted = |patch: &&Patch| (patch.default && !selection.no_defaults) || selection.add.contains(&patch.id);
        Self::of(library, library.iter().filter(wanted).collect(), image, digest)
    }

    /// Makes a set of these patches for an unpatched image, and checks that they fit together.
    ///
    /// # Errors
    /// As for [`PatchSet::resolve`].
    pub fn of(
        library: &Library,
        mut patches: Vec<&'a Patch>,
        base: &'a Image,
        digest: Sha256Digest,
    ) -> Result<Self, PatchError> {
        if !library.images().contains_key(&digest) {
            return Err(PatchError::not_a_base(library, base, digest));
        }
        if let Some(error) = PatchError::patched_already(library, base, digest) {
            return Err(error);
        }
        if patches.is_empty() {
            return Err(PatchError::Nothing);
        }
        // Sort, so that the order in which files were found does not show in the receipt.
        patches.sort_by_key(|patch| patch.id.as_str());
        let id = |patch: &Patch| patch.id.clone();
        for patch in &patches {
            if let Some(missing) = patch.requires.iter().find(|id| !patches.iter().any(|other| other.id == **id)) {
                return Err(PatchError::Requires { id: id(patch), missing: missing.clone() });
            }
            if let Some(other) = patches.iter().find(|other| patch.conflicts.contains(&other.id)) {
                return Err(PatchError::Conflict { first: id(patch), second: id(other) });
            }
            if !patch.is_for(&digest) {
                let made_for = patch.images.iter().map(|image| &*image.name).collect::<Vec<_>>().join(", ");
                return Err(PatchError::NotForImage {
                    id: id(patch),
                    image: library.image_words(&digest, base.version()),
                    made_for,
                });
            }
        }
        let hunks: Vec<(&'a Patch, &'a Hunk)> =
            patches.iter().flat_map(|patch| patch.hunks(&digest).iter().map(|hunk| (*patch, hunk))).collect();
        let mut ascending = hunks.clone();
        ascending.sort_by_key(|(_, hunk)| hunk.range().start);
        for pair in ascending.windows(2) {
            let ((first, lower), (second, higher)) = (pair[0], pair[1]);
            if lower.range().end > higher.range().start {
                return Err(PatchError::Overlap { first: id(first), second: id(second), at: higher.at });
            }
        }
        let mut config = ConfigEdits::default();
        for (index, patch) in patches.iter().enumerate() {
            if let Err(field) = config.merge(&patch.config) {
                let names_it = |other: &&&Patch| other.config.get(field).is_some();
                let first = patches[..index].iter().find(names_it).map_or_else(String::new, |other| id(other));
                return Err(PatchError::ConfigConflict { first, second: id(patch), field: field.name() });
            }
        }
        Ok(Self { base, digest, patches, config, hunks })
    }

    /// Every hunk with its patch.
    pub fn hunks(&self) -> impl Iterator<Item = (&Patch, &Hunk)> {
        self.hunks.iter().copied()
    }
}
