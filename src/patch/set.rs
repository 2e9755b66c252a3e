//! Selects patches that fit together on one image.

use asm2464::digest::Sha256Digest;
use asm2464::firmware::Image;
use asm2464::{Failure, Kind};

use super::config_edits::ConfigEdits;
use super::definition::Patch;
use super::hunk::Hunk;
use super::identify::{not_a_base, patched_already};
use super::library::Library;
use crate::suggest::{nearest, question};

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

impl<'a> PatchSet<'a> {
    /// Selects patches for an unpatched image, and checks that they fit together. `digest` is that of the image's file.
    ///
    /// It is an error if a patch of the default set has no hunks for the image: a part of the default set is not
    /// tested alone.
    ///
    /// # Errors
    /// Fails if the image is unknown or already patched, an id is unknown, a requirement is unmet, patches conflict or
    /// overlap, or a patch is not for the image.
    pub fn resolve(
        library: &'a Library,
        selection: &Selection,
        image: &'a Image,
        digest: Sha256Digest,
    ) -> Result<Self, Failure> {
        for id in &selection.add {
            if library.get(id).is_none() {
                let ids = || library.iter().map(|patch| patch.id.as_str());
                let (known, suggestion) = (ids().collect::<Vec<_>>().join(", "), question(nearest(id, ids())));
                let label = Kind::Usage.code("asmpatch::patch::unknown_id");
                let message = format!("unknown patch `{id}`{suggestion}; known patches: {known}");
                return Err(Failure::new(label, message));
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
    ) -> Result<Self, Failure> {
        if !library.images().contains_key(&digest) {
            return Err(not_a_base(library, base, digest));
        }
        if let Some(failure) = patched_already(library, base, digest) {
            return Err(failure);
        }
        if patches.is_empty() {
            return Err(Failure::new(Kind::Usage.code("asmpatch::patch::none"), "no patch is selected"));
        }
        // Sort, so that the order in which files were found does not show in the receipt.
        patches.sort_by_key(|patch| patch.id.as_str());
        for patch in &patches {
            let id = &patch.id;
            if let Some(missing) = patch.requires.iter().find(|id| !patches.iter().any(|other| other.id == **id)) {
                let label = Kind::Usage.code("asmpatch::patch::requires");
                let message = format!("the patch `{id}` requires `{missing}`, which is not in the set");
                return Err(Failure::new(label, message));
            }
            if let Some(Patch { id: other, .. }) = patches.iter().find(|other| patch.conflicts.contains(&other.id)) {
                let label = Kind::Usage.code("asmpatch::patch::conflicts");
                let message = format!("the patches `{id}` and `{other}` conflict: `{id}` says so");
                return Err(Failure::new(label, message));
            }
            if !patch.is_for(&digest) {
                let made_for = patch.images.iter().map(|image| &*image.name).collect::<Vec<_>>().join(", ");
                let image = library.image_words(&digest, base.version());
                let label = Kind::BadInput.code("asmpatch::patch::not_for_image");
                let message = format!("the patch `{id}` is made for {made_for}, not for this image, which is {image}");
                return Err(Failure::new(label, message));
            }
        }
        let hunks: Vec<(&'a Patch, &'a Hunk)> =
            patches.iter().flat_map(|patch| patch.hunks(&digest).iter().map(|hunk| (*patch, hunk))).collect();
        let mut ascending = hunks.clone();
        ascending.sort_by_key(|(_, hunk)| hunk.range().start);
        for pair in ascending.windows(2) {
            let ((first, lower), (second, higher)) = (pair[0], pair[1]);
            if lower.range().end > higher.range().start {
                let label = Kind::BadInput.code("asmpatch::patch::overlap");
                let (first, second, at) = (&first.id, &second.id, higher.at);
                return Err(Failure::new(label, format!("the patches `{first}` and `{second}` both change {at}")));
            }
        }
        let mut config = ConfigEdits::default();
        for (index, patch) in patches.iter().enumerate() {
            if let Err(field) = config.merge(&patch.config) {
                let names_it = |other: &&&Patch| other.config.get(field).is_some();
                let first = patches[..index].iter().find(names_it).map_or("", |other| &other.id);
                let (second, field) = (&patch.id, field.name());
                let label = Kind::BadInput.code("asmpatch::patch::config_conflict");
                let message = format!(
                    "the patches `{first}` and `{second}` set the configuration field `{field}` to different values"
                );
                return Err(Failure::new(label, message));
            }
        }
        Ok(Self { base, digest, patches, config, hunks })
    }

    /// Every hunk with its patch.
    pub fn hunks(&self) -> impl Iterator<Item = (&Patch, &Hunk)> {
        self.hunks.iter().copied()
    }
}
