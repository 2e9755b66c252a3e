//! The known patches: the embedded ones, and those that the user adds.

use std::collections::{BTreeMap, BTreeSet};

use asm2464::digest::Sha256Digest;
use asm2464::firmware::FirmwareVersion;
use asm2464::{AnyFailure, Failure, Kind};

use super::definition::Patch;

/// Patches, in the order in which they were added, and the known images.
#[derive(Debug, Clone, Default)]
pub struct Library {
    patches: Vec<Patch>,
    /// The ids of the patches that are not trusted.
    unvouched: BTreeSet<String>,
    images: BTreeMap<Sha256Digest, String>,
    /// The known images by their versions.
    versions: BTreeMap<FirmwareVersion, Sha256Digest>,
    /// The known builds of open firmware, which take no patches.
    open: BTreeMap<Sha256Digest, KnownOpen>,
}

/// A known build of the open firmware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownOpen {
    /// Its name for people.
    pub id: String,
    /// The product string that it enumerates with.
    pub product: String,
}

impl Library {
    /// Loads patches: the name for messages and the text of each.
    ///
    /// # Errors
    /// Fails if a text is not a patch, or another patch has its id.
    pub fn of(files: &[(&str, &str)]) -> Result<Self, AnyFailure> {
        let mut library = Self::default();
        for (origin, text) in files {
            library.add(origin, text)?;
        }
        Ok(library)
    }

    /// Loads the repository's patches.
    #[cfg(test)]
    pub(crate) fn of_repository() -> Result<Self, AnyFailure> {
        let mut library = Self::default();
        for (origin, text) in crate::tests::repository("patches") {
            library.add(&origin, &text)?;
        }
        Ok(library)
    }

    /// Adds one patch. The images that it has hunks for become known. `origin` names its file in errors.
    ///
    /// # Errors
    /// Fails if the text is not a patch, or another patch has its id.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<(), AnyFailure> {
        self.add_patch(origin, text)?;
        for image in self.patches.last().into_iter().flat_map(|patch| &patch.images) {
            self.images.entry(image.sha256).or_insert_with(|| image.name.clone());
        }
        Ok(())
    }

    /// Adds one patch that is not trusted, because its file came with an image. Its images do not become known, and
    /// an image that contains it does not [verify](super::verify()).
    ///
    /// # Errors
    /// Fails if the text is not a patch, or another patch has its id.
    pub fn add_unvouched(&mut self, origin: &str, text: &str) -> Result<(), AnyFailure> {
        self.add_patch(origin, text)?;
        self.unvouched.extend(self.patches.last().map(|patch| patch.id.clone()));
        Ok(())
    }

    /// Whether the patch with this id comes from asmpatch or from a folder that the user named.
    pub fn vouches_for(&self, id: &str) -> bool {
        !self.unvouched.contains(id)
    }

    fn add_patch(&mut self, origin: &str, text: &str) -> Result<(), AnyFailure> {
        let patch = Patch::parse(origin, text)?;
        if let Some(Patch { id, origin: first, .. }) = self.get(&patch.id) {
            let label = Kind::BadInput.code("asmpatch::patch::duplicate_id");
            return Err(Failure::new(label, format!("{origin}: the id `{id}` is taken by {first}")).into());
        }
        self.patches.push(patch);
        Ok(())
    }

    /// Returns the patch with this id.
    pub fn get(&self, id: &str) -> Option<&Patch> {
        self.patches.iter().find(|patch| patch.id == id)
    }

    /// Returns all patches.
    pub fn iter(&self) -> std::slice::Iter<'_, Patch> {
        self.patches.iter()
    }

    /// Adds an unpatched image, with a name for people. Images that patches have hunks for are known already; other
    /// images can take patches that change only the configuration.
    pub fn know(&mut self, sha256: Sha256Digest, name: &str, version: FirmwareVersion) {
        self.images.insert(sha256, name.to_owned());
        self.versions.insert(version, sha256);
    }

    /// Adds a build of the open firmware. Its digest makes it known; its product string is what others may claim.
    pub fn know_open(&mut self, sha256: Sha256Digest, id: &str, product: &str) {
        self.open.insert(sha256, KnownOpen { id: id.to_owned(), product: product.to_owned() });
    }

    /// Returns the known builds of open firmware.
    pub const fn open_images(&self) -> &BTreeMap<Sha256Digest, KnownOpen> {
        &self.open
    }

    /// Returns the known image of this version. Another image of the version is a modified one.
    pub fn image_of_version(&self, version: FirmwareVersion) -> Option<Sha256Digest> {
        self.versions.get(&version).copied()
    }

    /// Returns the known unpatched images, with their names.
    pub const fn images(&self) -> &BTreeMap<Sha256Digest, String> {
        &self.images
    }

    /// Describes an image for people: a known image by its name, an unknown one by its version and digest.
    pub fn image_words(&self, sha256: &Sha256Digest, version: FirmwareVersion) -> String {
        let unknown = || format!("unknown ({}, SHA-256 {sha256})", version.words());
        self.images.get(sha256).cloned().unwrap_or_else(unknown)
    }

    /// Returns a known image's name, or the digest of an unknown one.
    pub fn image_name(&self, sha256: &Sha256Digest) -> String {
        let open = || self.open.get(sha256).map(|open| open.id.clone());
        self.images.get(sha256).cloned().or_else(open).unwrap_or_else(|| sha256.to_string())
    }

    /// Returns the known image of this name, open firmware included.
    pub fn image_named(&self, name: &str) -> Option<Sha256Digest> {
        let vendors = self.images.iter().find(|(_, known)| *known == name).map(|(sha256, _)| *sha256);
        vendors.or_else(|| self.open.iter().find(|(_, known)| known.id == name).map(|(sha256, _)| *sha256))
    }

    /// Returns the names of all known images, sorted.
    pub fn image_names(&self) -> Vec<&str> {
        let open = self.open.values().map(|open| open.id.as_str());
        let mut names: Vec<&str> = self.images.values().map(String::as_str).chain(open).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_set_is_the_status_fix_and_the_identity() {
        let library = Library::of_repository().unwrap();
        let defaults: Vec<_> = library.iter().filter(|patch| patch.default).map(|patch| patch.id.as_str()).collect();
        assert_eq!(defaults, ["identity-add1-0001", "status-0x2a12"]);
    }

    #[test]
    fn the_error_for_a_repeated_id_names_both_files() {
        let mut library = Library::of_repository().unwrap();
        let message = library.add("mine.toml", &crate::tests::repository("patches")[3].1).unwrap_err().to_string();
        assert_eq!(message, "mine.toml: the id `status-0x2a12` is taken by patches/status-0x2a12.toml");
    }
}
