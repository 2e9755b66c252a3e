//! The receipt beside a patched image: what was done to which bytes, and what remains to be done to the unit.

use std::collections::BTreeMap;
use std::fmt;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{FirmwareVersion, Image};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::toml_file;
use serde::{Deserialize, Deserializer, de};

use super::config_edits::ConfigEdits;
use super::definition::Patch;
use super::set::PatchSet;

/// This program, as receipts name it.
const TOOL: &str = concat!("asmpatch ", env!("CARGO_PKG_VERSION"));
/// The format version that is read and written.
const FORMAT: u32 = 1;
/// The most patch files that a receipt may name. asmpatch reads each of them.
const MAX_FILES: usize = 64;

/// The keys that receipts of every format have. In another format, the other keys would be unknown.
#[derive(Deserialize)]
struct ReceiptHead {
    format: i64,
    #[serde(default)]
    tool: String,
}

/// The contents of a receipt. It holds no times, paths or machine names, so the same inputs give the same receipt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The format's version.
    pub format: u32,
    /// The program that wrote it: `asmpatch 0.1.0`.
    pub tool: String,
    /// The image before.
    pub input: ReceiptImage,
    /// The image after.
    pub output: ReceiptImage,
    /// The patches, by id.
    #[serde(default)]
    pub patches: Vec<ReceiptPatch>,
    /// The fields of configuration block 0 that flashing changes.
    #[serde(default)]
    pub config: ConfigEdits,
    /// The files of the user's own patches, by id: names without a folder. They may lie beside the receipt.
    #[serde(default, deserialize_with = "file_names")]
    pub files: BTreeMap<String, String>,
}

fn file_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let files = BTreeMap::<String, String>::deserialize(deserializer)?;
    if files.len() > MAX_FILES {
        return Err(de::Error::custom(format!("{} files of patches, expected at most {MAX_FILES}", files.len())));
    }
    match files.values().find(|name| !is_file_name(name)) {
        Some(name) => Err(de::Error::custom(format!("{name:?} is not the name of a file in this folder"))),
        None => Ok(files),
    }
}

/// Whether this is the name of a file in the receipt's folder on every platform.
fn is_file_name(name: &str) -> bool {
    !name.contains(['/', '\\', ':']) && !matches!(name, "" | "." | "..")
}

/// One of a receipt's two images.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReceiptImage {
    /// The file's digest.
    pub sha256: Sha256Digest,
    /// The file's length in bytes.
    pub size: u64,
    /// The version in the image.
    pub version: FirmwareVersion,
}

/// One of a receipt's patches.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptPatch {
    /// Its id.
    pub id: String,
    /// The digest of what it does to the input image: [`super::Patch::digest`].
    pub digest: Sha256Digest,
}

impl ReceiptImage {
    /// Describes an image.
    pub fn of(image: &Image) -> Self {
        let file = image.to_file();
        Self { sha256: Sha256Digest::of(&file), size: file.len() as u64, version: image.version() }
    }
}

impl Receipt {
    /// Makes the receipt for a set of patches that produced `output`.
    pub fn new(set: &PatchSet<'_>, output: &Image) -> Self {
        let base = set.base;
        let input = ReceiptImage { sha256: set.digest, size: base.file_len() as u64, version: base.version() };
        let entry = |patch: &&Patch| ReceiptPatch { id: patch.id.clone(), digest: patch.digest(&set.digest) };
        Self {
            format: FORMAT,
            tool: TOOL.to_owned(),
            input,
            output: ReceiptImage::of(output),
            patches: set.patches.iter().map(entry).collect(),
            config: set.config.clone(),
            files: BTreeMap::new(),
        }
    }

    /// Names the files of the user's own patches, by id. Leaves out those that [`Receipt::parse`] refuses: names that
    /// are not plain file names on every platform, and those after the 64th.
    pub fn name_files(&mut self, files: impl IntoIterator<Item = (String, String)>) {
        self.files = files.into_iter().filter(|(_, name)| is_file_name(name)).take(MAX_FILES).collect();
    }

    /// Parses a receipt. `origin` names it in errors.
    ///
    /// # Errors
    /// Fails if the receipt has another format, an unknown key, a missing key or a bad value. Errors show the place.
    pub fn parse(origin: &str, text: &str) -> Result<Self, AnyFailure> {
        match toml::from_str(text) {
            Ok(ReceiptHead { format, tool }) if format != i64::from(FORMAT) => {
                let label = Kind::BadInput.code("asmpatch::receipt::format");
                let message = format!(
                    "{origin} is a receipt of format {format}, written by {tool:?}; {TOOL} reads format {FORMAT}"
                );
                Err(Failure::new(label, message).into())
            }
            _ => Ok(toml_file::parse(origin, text)?),
        }
    }
}

/// Formats the receipt as TOML. Does not use serde, which would write the number `0xADD1` as 44497.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# What the image beside this file is made from. `asmpatch help formats` describes every key.")?;
        writeln!(f, "format = {FORMAT}\ntool = {}", toml_file::string(&self.tool))?;
        for (name, image) in [("input", &self.input), ("output", &self.output)] {
            let ReceiptImage { sha256, size, version } = image;
            writeln!(f, "\n[{name}]\nsha256 = \"{sha256}\"\nsize = {size}\nversion = \"{version}\"")?;
        }
        for ReceiptPatch { id, digest } in &self.patches {
            writeln!(f, "\n[[patches]]\nid = {}\ndigest = \"{digest}\"", toml_file::string(id))?;
        }
        if !self.config.is_empty() {
            writeln!(f, "\n# Fields of configuration block 0 that a flash changes in the unit's own block.\n[config]")?;
            for (field, value) in self.config.iter() {
                writeln!(f, "{} = {value}", field.name())?;
            }
        }
        if !self.files.is_empty() {
            writeln!(f, "\n# Files of your own patches. They are found beside this file.\n[files]")?;
            for (id, name) in &self.files {
                writeln!(f, "{} = {}", toml_file::string(id), toml_file::string(name))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_patch(id: &str) -> ReceiptPatch {
        ReceiptPatch { id: id.to_owned(), digest: Sha256Digest([1; 32]) }
    }

    fn sample() -> Receipt {
        let image = ReceiptImage {
            sha256: Sha256Digest([0xAB; 32]),
            size: 98_016,
            version: FirmwareVersion([0x24, 0x04, 0x17, 0x85, 0, 0]),
        };
        Receipt {
            format: FORMAT,
            tool: "asmpatch \"x\"".to_owned(),
            input: image.clone(),
            output: ReceiptImage { sha256: Sha256Digest([0xCD; 32]), ..image },
            patches: ["a", "b"].map(sample_patch).to_vec(),
            config: toml::from_str("vendor-id = 0xADD1\nproduct = \"a\\\"b\"").unwrap(),
            files: BTreeMap::from([("a".to_owned(), "a \"b\".toml".to_owned())]),
        }
    }

    #[test]
    fn a_receipt_reads_back_what_was_written() {
        let receipt = sample();
        assert_eq!(Receipt::parse("r", &receipt.to_string()).unwrap(), receipt);
        let bare = Receipt { patches: Vec::new(), config: ConfigEdits::default(), files: BTreeMap::new(), ..receipt };
        assert_eq!(Receipt::parse("r", &bare.to_string()).unwrap(), bare);
    }

    #[test]
    fn a_receipt_is_read_strictly() {
        let text = sample().to_string();
        for (from, to, expected) in [
            ("format = 1", "format = \"1\"", "invalid type: string"),
            ("tool", "tools", "unknown field `tools`"),
            ("size", "length", "unknown field `length`"),
            ("digest = ", "sha256 = ", "unknown field `sha256`"),
            ("vendor-id", "vendor", "unknown field `vendor`"),
            ("cdcd\"", "cdc\"", "odd number of hexadecimal digits"),
            ("a \\\"b\\\".toml", "../a.toml", "is not the name of a file in this folder"),
            ("[output]", "[outputs]", "unknown field `outputs`"),
        ] {
            assert!(text.contains(from), "{from}");
            let message = Receipt::parse("out.toml", &text.replace(from, to)).unwrap_err().to_string();
            assert!(message.starts_with("out.toml: ") && message.contains(expected), "{message} lacks {expected}");
        }
    }

    #[test]
    fn a_receipt_leaves_out_file_names_that_parsing_refuses() {
        let mut receipt = sample();
        let named = |name: &str| (name.to_owned(), name.to_owned());
        receipt.name_files(["a:b.toml", "a\\b.toml", "..", "a b.toml"].map(named));
        assert_eq!(receipt.files.values().collect::<Vec<_>>(), ["a b.toml"]);
        assert_eq!(Receipt::parse("r", &receipt.to_string()).unwrap(), receipt);
        let many = || (0..=MAX_FILES).map(|number| named(&format!("{number}.toml")));
        receipt.name_files(many());
        assert_eq!(Receipt::parse("r", &receipt.to_string()).unwrap().files.len(), MAX_FILES);
        receipt.files = many().collect();
        let message = Receipt::parse("r", &receipt.to_string()).unwrap_err().to_string();
        assert!(message.contains("65 files of patches, expected at most 64"), "{message}");
    }

    #[test]
    fn a_receipt_of_another_version_has_its_own_error() {
        // Another format may have other keys.
        let text = sample().to_string().replace("format = 1", "format = 2\nsigned-by = \"me\"");
        let error = Receipt::parse("out.toml", &text).unwrap_err();
        let expected =
            format!("out.toml is a receipt of format 2, written by \"asmpatch \\\"x\\\"\"; {TOOL} reads format 1");
        assert_eq!(error.to_string(), expected);
        for format in ["0", "-1", "9223372036854775807"] {
            let text = text.replace("format = 2", &format!("format = {format}"));
            assert_eq!(Receipt::parse("r", &text).unwrap_err().code(), "asmpatch::receipt::format", "{format}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_never_panics(text: String, at in 0usize..700) {
            let _ = Receipt::parse("r", &text);
            let mut damaged = sample().to_string();
            damaged.truncate(at);
            let _ = Receipt::parse("r", &damaged);
        }
    }
}
