//! Patches that fit together on one image, and applying them to it.

use asm2464::digest::{Sha256Digest, to_hex};
use asm2464::firmware::{BodyOffset, Image};
use asm2464::{Failure, Kind};

use super::config_edits::ConfigEdits;
use super::definition::{Hunk, Patch};
use super::identify::not_a_base;
use super::library::Library;
use super::receipt::Receipt;
use crate::suggest::question;

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

/// The result of patching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patched {
    /// The patched image; [`Image::to_file`] recomputes checksum and CRC.
    pub image: Image,
    /// What was done.
    pub receipt: Receipt,
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
                let (known, suggestion) = (ids().collect::<Vec<_>>().join(", "), question(id, ids()));
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

    /// Applies the patches to the image.
    ///
    /// Checks every expected byte before it changes the first one.
    ///
    /// # Errors
    /// Fails if the bytes of a hunk's place are not those that it expects, or if it reaches past the image's body.
    pub fn apply(&self) -> Result<Patched, Failure> {
        for (patch, hunk) in self.hunks() {
            let (Patch { id, .. }, Hunk { at, expect, new, .. }) = (patch, hunk);
            let Some(found) = self.base.body().get(hunk.range()) else {
                let (len, end) = (new.len(), BodyOffset(self.base.body().len() as u32).file_offset());
                let label = Kind::BadInput.code("asmpatch::patch::past_end");
                let message = format!("patch `{id}`: the hunk at {at} has {len} bytes, the image's body ends at {end}");
                return Err(Failure::new(label, message));
            };
            if found != expect {
                let (expected, found) = (to_hex(expect, " "), to_hex(found, " "));
                let label = Kind::BadInput.code("asmpatch::patch::mismatch");
                return Err(Failure::new(label, format!("patch `{id}`: at {at} expected {expected}, found {found}")));
            }
        }
        let mut patched = self.base.clone();
        for (_, hunk) in self.hunks() {
            // The loop above found every hunk inside the body.
            let _ = patched.replace(hunk.at, &hunk.new);
        }
        let receipt = Receipt::new(self, &patched);
        Ok(Patched { image: patched, receipt })
    }
}

#[cfg(test)]
mod tests {
    use asm2464::Coded as _;
    use proptest::prelude::*;

    use super::super::identify::{identify, unpatch};
    use super::*;

    /// An image whose neighbouring bytes differ, so that a misplaced hunk shows.
    fn image() -> Image {
        Image::from_body((0..0x1000u32).map(|at| (at ^ (at >> 8)) as u8).collect()).unwrap()
    }

    fn digest(image: &Image) -> Sha256Digest {
        Sha256Digest::of(&image.to_file())
    }

    /// Writes a patch file for [`image`] with hunks that replace each byte by its complement.
    fn patch_text(id: &str, head: &str, hunks: &[(usize, usize)], config: &str) -> String {
        let image = image();
        let mut text = format!("id = '{id}'\ntitle = ''\npurpose = ''\nsource = ''\n{head}\n");
        if !hunks.is_empty() {
            text += &format!("[[images]]\nsha256 = '{}'\nname = 'test'\n", digest(&image));
        }
        for (at, len) in hunks {
            let old: String = image.body()[*at..at + len].iter().map(|byte| format!("{byte:02x}")).collect();
            let new: String = image.body()[*at..at + len].iter().map(|byte| format!("{:02x}", !byte)).collect();
            text += &format!("[[images.hunks]]\nat = 'file:{:#x}'\nexpect = '{old}'\nnew = '{new}'\n", at + 4);
        }
        text + config
    }

    fn library(texts: &[String]) -> Library {
        let mut library = Library::default();
        for (index, text) in texts.iter().enumerate() {
            library.add(&format!("{index}.toml"), text).unwrap();
        }
        library
    }

    fn select(ids: &[&str]) -> Selection {
        Selection { no_defaults: true, add: ids.iter().map(|id| (*id).to_owned()).collect() }
    }

    fn patch_with(library: &Library, selection: &Selection) -> Result<Patched, Failure> {
        let image = image();
        PatchSet::resolve(library, selection, &image, digest(&image))?.apply()
    }

    #[test]
    fn the_default_set_is_changed_by_what_is_asked_for() {
        let library = library(&[
            patch_text("a", "default = true", &[(0x10, 2)], ""),
            patch_text("b", "default = false", &[(0x20, 2)], ""),
        ]);
        let ids = |selection: &Selection| -> Result<Vec<String>, Failure> {
            Ok(patch_with(&library, selection)?.receipt.patches.into_iter().map(|patch| patch.id).collect())
        };
        assert_eq!(ids(&Selection::default()).unwrap(), ["a"]);
        assert_eq!(ids(&Selection { no_defaults: false, add: vec!["b".into(), "a".into()] }).unwrap(), ["a", "b"]);
        assert_eq!(ids(&select(&["b"])).unwrap(), ["b"]);
        assert_eq!(ids(&select(&[])).unwrap_err().code(), "asmpatch::patch::none");
        let error = ids(&select(&["c"])).unwrap_err().to_string();
        assert!(error.starts_with("unknown patch `c`") && error.ends_with("known patches: a, b"), "{error}");
    }

    #[test]
    fn patches_that_do_not_go_together_are_refused_each_for_its_own_reason() {
        let library = library(&[
            patch_text("a", "default = false", &[(0x10, 4)], "[config]\nproduct-id = 1"),
            patch_text("needs-a", "default = false\nrequires = ['a']", &[(0x20, 1)], ""),
            patch_text("not-a", "default = false\nconflicts = ['a']", &[(0x30, 1)], ""),
            patch_text("over-a", "default = false", &[(0x13, 1)], ""),
            patch_text("other-id", "default = false", &[], "[config]\nproduct-id = 2"),
            patch_text("same-id", "default = false", &[], "[config]\nproduct-id = 1"),
        ]);
        for (ids, expected) in [
            (["needs-a", "needs-a"], "the patch `needs-a` requires `a`, which is not in the set"),
            (["a", "not-a"], "the patches `not-a` and `a` conflict: `not-a` says so"),
            (["a", "over-a"], "the patches `a` and `over-a` both change c:0x0013 (file 0x00017)"),
            (
                ["a", "other-id"],
                "the patches `a` and `other-id` set the configuration field `product-id` to different values",
            ),
        ] {
            assert_eq!(patch_with(&library, &select(&ids)).unwrap_err().to_string(), expected);
        }
        assert!(patch_with(&library, &select(&["needs-a", "a"])).is_ok());
        assert!(patch_with(&library, &select(&["a", "same-id"])).is_ok());
    }

    #[test]
    fn unknown_patched_and_foreign_images_are_distinguished() {
        let library = library(&[patch_text("a", "default = true", &[(0x10, 2)], "")]);
        let original = image();
        let patched = patch_with(&library, &Selection::default()).unwrap().image;
        let mut foreign = original.clone();
        assert!(foreign.replace(BodyOffset(0x800), &[0x12, 0x34]));
        let try_again = |image: &Image| {
            PatchSet::resolve(&library, &Selection::default(), image, digest(image)).unwrap_err().to_string()
        };
        assert_eq!(try_again(&patched), "the image is already patched: it is test with `a`");
        assert!(try_again(&foreign).ends_with("there are patches for test"));
        let undo = |image: &Image| unpatch(&library, image, digest(image));
        assert_eq!(undo(&patched).unwrap().original, original);
        assert_eq!(undo(&original).unwrap_err().code(), "asmpatch::patch::not_patched");
        assert_eq!(undo(&foreign).unwrap_err().code(), "asmpatch::patch::unknown_image");
    }

    #[test]
    fn a_known_image_without_patches_takes_those_that_only_change_the_configuration() {
        let mut library = library(&[
            patch_text("a", "default = true", &[(0x10, 2)], ""),
            patch_text("id", "default = true", &[], "[config]\nproduct-id = 2"),
        ]);
        let mut other = image();
        assert!(other.replace(BodyOffset(0x800), &[0x12, 0x34]));
        library.know(digest(&other), "other", other.version());
        let resolve = |selection: &Selection| {
            PatchSet::resolve(&library, selection, &other, digest(&other)).and_then(|set| set.apply())
        };
        let error = resolve(&Selection::default()).unwrap_err().to_string();
        assert_eq!(error, "the patch `a` is made for test, not for this image, which is other");
        let patched = resolve(&select(&["id"])).unwrap();
        assert_eq!(patched.image, other);
        assert_eq!(patched.receipt.config.iter().count(), 1);
    }

    #[test]
    fn a_hunk_whose_bytes_are_not_there_changes_nothing() {
        let good = patch_text("a", "default = true", &[(0x10, 2), (0x20, 2)], "");
        let library = library(&[good.replace("expect = '2021'", "expect = '2022'")]);
        let error = patch_with(&library, &Selection::default()).unwrap_err();
        assert_eq!(error.to_string(), "patch `a`: at c:0x0020 (file 0x00024) expected 20 22, found 20 21");
    }

    #[test]
    fn a_hunk_past_the_end_is_refused() {
        let text = patch_text("a", "default = true", &[(0xFF0, 2)], "").replace("file:0xff4", "file:0x1003");
        let error = patch_with(&library(&[text]), &Selection::default()).unwrap_err();
        assert!(error.to_string().contains("the image's body ends at"), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_applied_comes_out_again(hunks in proptest::collection::vec((0usize..0xFF0, 1usize..16), 1..12)) {
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (at, len) in hunks {
                if taken.iter().all(|(other, other_len)| at + len <= *other || other + other_len <= at) {
                    taken.push((at, len));
                }
            }
            let (first, second) = taken.split_at(taken.len() / 2 + 1);
            let mut texts = vec![patch_text("a", "default = true", first, "")];
            if !second.is_empty() {
                texts.push(patch_text("b", "default = true", second, ""));
            }
            let library = library(&texts);
            let patched = patch_with(&library, &Selection::default()).unwrap();
            let file = patched.image.to_file();
            let again = Image::parse(&file).unwrap();
            let undone = unpatch(&library, &again, Sha256Digest::of(&file)).unwrap();
            prop_assert_eq!(undone.original, image());
            prop_assert_eq!(undone.patches.len(), texts.len());
        }

        #[test]
        fn hunks_anywhere_never_panic(at in 4usize..0x1FF00, old: Vec<u8>, new: Vec<u8>) {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let text = patch_text("a", "default = true", &[(0x10, 1)], "");
            let text = text.replace("file:0x14", &format!("file:{at:#x}"));
            let text = text.replace("'10'", &format!("'{}'", hex(&old))).replace("'ef'", &format!("'{}'", hex(&new)));
            let mut library = Library::default();
            if library.add("a.toml", &text).is_ok() {
                let _ = patch_with(&library, &Selection::default());
                let _ = identify(&library, &image(), Sha256Digest([0; 32]));
            }
        }
    }
}
