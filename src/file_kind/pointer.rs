//! Files that Git keeps in place of one whose content is elsewhere. A clone without that content has them under the
//! names of images.
//!
//! Sources: git-lfs' `docs/spec.md`, "The Pointer" (and the names of its first versions, hawser and git-media);
//! git-annex' "internals/pointer_file", "internals/key_format" and "backends". Where Git makes no links, the text of a
//! locked file's link stands in its place.

use asm2464::digest::{Sha256Digest, parse_hex};
use derive_more::Display;

/// The tool that keeps the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum PointerTool {
    /// Git LFS.
    #[display("Git LFS")]
    GitLfs,
    /// git-annex.
    #[display("git-annex")]
    GitAnnex,
}

/// The digest of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerDigest {
    /// SHA-256.
    Sha256(Sha256Digest),
    /// MD5.
    Md5([u8; 16]),
}

/// A pointer to a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[display("a pointer of {tool}, in place of the file")]
pub struct Pointer {
    /// The tool that keeps the content.
    pub tool: PointerTool,
    /// The content's digest, if the pointer has one that asmpatch knows of images.
    pub digest: Option<PointerDigest>,
}

impl Pointer {
    /// Recognises a pointer by its text.
    pub fn of(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim_end);
        let first = lines.next()?;
        if let Some(version) = first.strip_prefix("version ") {
            let is_lfs = ["git-lfs", "hawser", "git-media"].iter().any(|name| version.contains(name));
            let digest = lines.find_map(|line| line.strip_prefix("oid ")).and_then(sha256);
            return is_lfs.then_some(Self { tool: PointerTool::GitLfs, digest });
        }
        Self::of_link(first)
    }

    /// Recognises the place to which git-annex links: the text of a pointer file, or what a link points to.
    pub fn of_link(target: &str) -> Option<Self> {
        let target = target.replace('\\', "/");
        let (before, place) = target.split_once("annex/objects/")?;
        if !before.is_empty() && !before.ends_with('/') {
            return None;
        }
        let key = place.rsplit('/').next()?;
        Some(Self { tool: PointerTool::GitAnnex, digest: annex_digest(key) })
    }
}

/// The digest in a key, as in `SHA256E-s98016--DIGITS.bin`. The backends that end with E keep the file's ending.
fn annex_digest(key: &str) -> Option<PointerDigest> {
    let (fields, name) = key.split_once("--")?;
    let backend = fields.split('-').next()?;
    let digits = name.split('.').next()?;
    match backend.trim_end_matches('E') {
        "SHA256" => sha256(digits),
        "MD5" => parse_hex(digits).ok()?.try_into().ok().map(PointerDigest::Md5),
        _ => None,
    }
}

/// A SHA-256, perhaps with its name before it.
fn sha256(digits: &str) -> Option<PointerDigest> {
    digits.strip_prefix("sha256:").unwrap_or(digits).trim().parse().ok().map(PointerDigest::Sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "9520fde0bf43d499c07abd0a09b74e94d8a7cc3d610f577b7a4e218ab8a378e9";

    fn is_pointer_of(text: &str, tool: PointerTool) {
        let digest = Some(PointerDigest::Sha256(DIGITS.parse().unwrap()));
        assert_eq!(Pointer::of(text), Some(Pointer { tool, digest }), "{text}");
    }

    #[test]
    fn a_pointer_of_git_lfs_has_the_digest_of_the_content_in_each_version() {
        for version in
            ["https://git-lfs.github.com/spec/v1", "https://hawser.github.com/spec/v1", "http://git-media.io/v/2"]
        {
            is_pointer_of(&format!("version {version}\noid sha256:{DIGITS}\nsize 9207\n"), PointerTool::GitLfs);
        }
        let extended = format!(
            "version https://git-lfs.github.com/spec/v1\r\next-0-case sha256:{}\r\noid sha256:{DIGITS}\r\nsize 9207\r\n",
            "1".repeat(64)
        );
        is_pointer_of(&extended, PointerTool::GitLfs);
        let damaged = Pointer::of("version https://git-lfs.github.com/spec/v1\noid sha256:95\n").unwrap();
        assert_eq!((damaged.tool, damaged.digest), (PointerTool::GitLfs, None));
    }

    #[test]
    fn a_pointer_of_git_annex_has_it_in_its_key_whatever_links_there() {
        let key = format!("SHA256E-s9207--{DIGITS}.bin");
        for text in [
            format!("/annex/objects/{key}\n"),
            format!("/annex/objects/SHA256-s9207-m17--{DIGITS}\nmore that git-annex may add\n"),
            format!("../.git/annex/objects/Wx/1z/{key}/{key}"),
            format!("..\\.git\\annex\\objects\\Wx\\1z\\{key}\\{key}"),
        ] {
            is_pointer_of(&text, PointerTool::GitAnnex);
        }
        let md5 = Pointer::of("/annex/objects/MD5E-s98016--5284e618d96ef804c06f47f3b73656b7.bin\n").unwrap();
        assert!(matches!(md5.digest, Some(PointerDigest::Md5(_))));
        for other in ["URL--http&c%%example.org%a.bin", "WORM-s9-m5--a.bin", "SHA256E-s5--x.bin", "SHA1-s5--00"] {
            let found = Pointer::of(&format!("/annex/objects/{other}\n")).unwrap();
            assert_eq!((found.tool, found.digest), (PointerTool::GitAnnex, None), "{other}");
        }
    }

    #[test]
    fn other_text_is_no_pointer() {
        for text in
            ["", "version 1\n", "version = \"240417\"\n", "see annex/object/x", "my-annex/objects/x", "oid sha256:x"]
        {
            assert_eq!(Pointer::of(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_looked_at_without_a_panic(text: String) {
            let _ = Pointer::of(&text);
        }
    }
}
