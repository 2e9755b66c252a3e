//! The units that a GPU runtime opens, by their USB IDs, where it looks for their GPU, and which firmware it drives.

use asm2464::firmware::{UsbId, is_runtime_product, open_build};
use asm2464::scsi::runtime::Variables;
use asm2464_files::toml_file::{self, TomlError};
use serde::Deserialize;

use crate::image::Firmware;

/// The runtime that drives the open firmware.
pub const OPEN_RUNTIME: &str = "tinygrad from v0.14.0 on";
/// The runtime that drives the patched vendor firmware.
pub const PATCHED_RUNTIME: &str = "tinygrad up to v0.13.0";

/// The last commit before pull request 79 of the open firmware, which ended the hourly fault. Source: its history.
const LAST_OF_HOURLY_FAULT: &str = "0b5aed4";

/// What a GPU runtime opens. Another ID than these is no unit to it, whatever firmware runs there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// The USB IDs that its releases for open firmware open.
    pub open: Vec<UsbId>,
    /// The USB IDs that its releases for patched vendor firmware open.
    pub patched: Vec<UsbId>,
    /// The PCIe bus on which it looks for its GPU, and on no other.
    pub bus: u8,
    /// Source of these statements, and its date.
    pub source: String,
}

impl Runtime {
    /// Loads a file: its name for messages, and its text.
    ///
    /// # Errors
    /// [`TomlError`].
    pub fn of((origin, text): (&str, &str)) -> Result<Self, Box<TomlError>> {
        toml_file::parse(origin, text)
    }
}

/// Whether a GPU runtime drives a unit's firmware, and why not. `flash` says it of what it will write, and `doctor` of what
/// a unit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drives {
    /// The releases that drive open firmware, and what this build lacks, if anything is known.
    Open(Option<&'static str>),
    /// The releases that drive patched vendor firmware.
    Patched,
    /// No: open firmware under another ID than the runtime opens.
    OpenUnderOtherId,
    /// No: open firmware with a name that the runtime refuses.
    OtherName,
    /// No: patched vendor firmware under another ID than the runtime opens.
    PatchedUnderOtherId,
    /// No: the runtime initialises another version.
    OtherVariables,
    /// Not known: nor is it known where this version keeps what the runtime initialises.
    UnknownVariables,
    /// No: vendor firmware without the patch.
    Vendor,
}

impl Runtime {
    /// Whether a runtime drives `firmware` under this ID; `None` is the identity of the chip's ROM.
    pub fn drives(&self, firmware: &Firmware, id: Option<UsbId>) -> Drives {
        if let Some(open) = firmware.open() {
            return self.drives_open(&open.product, id);
        }
        if !firmware.answers_writes() {
            return Drives::Vendor;
        }
        if id.is_none_or(|id| !self.patched.contains(&id)) {
            return Drives::PatchedUnderOtherId;
        }
        match firmware.version().and_then(Variables::of) {
            Some(Variables::As240417) => Drives::Patched,
            Some(_) => Drives::OtherVariables,
            None => Drives::UnknownVariables,
        }
    }

    /// As [`Runtime::drives`], for open firmware with this product string.
    pub fn drives_open(&self, product: &str, id: Option<UsbId>) -> Drives {
        if id.is_none_or(|id| !self.open.contains(&id)) {
            return Drives::OpenUnderOtherId;
        }
        if !is_runtime_product(product) {
            return Drives::OtherName;
        }
        Drives::Open(open_build_lacks(product))
    }

    /// Says which runtime it is, or why none.
    pub fn words(&self, drives: Drives) -> String {
        match drives {
            Drives::Open(_) => OPEN_RUNTIME.to_owned(),
            Drives::Patched => PATCHED_RUNTIME.to_owned(),
            Drives::OpenUnderOtherId => format!("tinygrad opens {} alone", ids_in_words(&self.open)),
            Drives::OtherName => "tinygrad refuses this name".to_owned(),
            Drives::PatchedUnderOtherId => format!("tinygrad looks for {}", ids_in_words(&self.patched)),
            Drives::OtherVariables => format!(
                "{PATCHED_RUNTIME} initialises 240417; this version keeps those variables elsewhere, and answers each \
                 WRITE(16) with 2/3A"
            ),
            Drives::UnknownVariables => format!(
                "{PATCHED_RUNTIME} initialises 240417; it is not known where this version keeps those variables"
            ),
            Drives::Vendor => "no GPU runtime drives it over USB; it is for SSDs and USB4 hosts".to_owned(),
        }
    }
}

/// Returns what a build of the open firmware lacks, by the product string that it enumerates with; `None` if nothing is
/// known. Since August 2026 the string contains the build's commit. Source: the open firmware's history; owners'
/// reports.
pub fn open_build_lacks(product: &str) -> Option<&'static str> {
    match open_build(product) {
        Some(build) if build == "v0.1" || build.starts_with(LAST_OF_HOURLY_FAULT) => Some(
            "a build from before pull request 79 (the last is 0b5aed4 of 4 August 2026): E4 fails about once an hour. \
             Builds from 6 July on may have USB4 code that was removed later. ed4e39b (8 August) has neither",
        ),
        Some(_) => None,
        None if is_runtime_product(product) => None,
        None => Some(
            "a build whose name tinygrad refuses, as builds of 4 August 2026 have, whose E4 fails about once an hour, too; \
             ed4e39b (8 August) has another",
        ),
    }
}

/// USB IDs in words: `ADD1:0001 and 3801:0001`.
fn ids_in_words(ids: &[UsbId]) -> String {
    ids.iter().map(UsbId::to_string).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tinygrad_opens_two_ids_with_open_firmware_and_one_with_the_vendors_and_looks_on_bus_4() {
        let runtime = crate::embedded::runtime().unwrap();
        assert_eq!(ids_in_words(&runtime.open), "ADD1:0001 and 3801:0001");
        assert_eq!((ids_in_words(&runtime.patched), runtime.bus), ("ADD1:0001".to_owned(), 4));
        assert!(runtime.source.contains("2026"), "{}", runtime.source);
    }

    #[test]
    fn the_product_string_shows_what_a_build_lacks() {
        assert!(open_build_lacks("custom v0.1").unwrap().contains("E4 fails"));
        assert!(open_build_lacks("USB4 eGPU").unwrap().contains("tinygrad refuses"));
        assert!(open_build_lacks("custom 0b5aed4f-CLEAN").unwrap().contains("4 August"));
        assert_eq!(["custom ed4e39b7-CLEAN", "AS2462"].map(open_build_lacks), [None; 2]);
    }

    #[test]
    fn a_runtime_drives_what_it_opens_initialises_and_names() {
        use asm2464_chip::practice;

        use crate::image::Images;
        use crate::patch::{Library, PatchSet, Selection};

        let runtime = crate::embedded::runtime().unwrap();
        let library = Library::of_repository().unwrap();
        let stock = practice::image();
        let digest = stock.sha256();
        let set = PatchSet::resolve(&library, &Selection::default(), &stock, digest).unwrap();
        let patched = set.apply().unwrap().image;
        let images = Images::from(library);
        let [stock, patched, open] =
            [stock, patched, practice::open_image()].map(|image| images.identify(&image).firmware.clone());
        let product = &open.open().unwrap().product;
        let add1 = Some(UsbId::PATCHED);
        for (drives, expected) in [
            (runtime.drives(&stock, add1), Drives::Vendor),
            (runtime.drives(&patched, Some(UsbId::STOCK)), Drives::PatchedUnderOtherId),
            (runtime.drives(&patched, None), Drives::PatchedUnderOtherId),
            (runtime.drives(&patched, add1), Drives::Patched),
            (runtime.drives(&open, add1), runtime.drives_open(product, add1)),
            (runtime.drives(&open, Some(UsbId::STOCK)), Drives::OpenUnderOtherId),
            (runtime.drives_open("custom ed4e39b7-CLEAN", add1), Drives::Open(None)),
            (runtime.drives_open("USB4 eGPU", add1), Drives::OtherName),
        ] {
            assert_eq!(drives, expected);
        }
        let Drives::Open(Some(lacks)) = runtime.drives_open("custom v0.1", add1) else { panic!("nothing is lacking") };
        assert!(lacks.contains("once an hour"), "{lacks}");
        assert!(runtime.words(Drives::Vendor).contains("USB4 hosts"));
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_at_its_place() {
        let file = "open = []\npatched = []\nbus = 4\nsource = \"x\"\n";
        for (text, expected) in [
            (file.replace("bus = 4\n", ""), "missing field `bus`"),
            (file.replace("open = []", "open = [\"ADD1\"]"), "ADD1"),
            (format!("{file}note = \"z\"\n"), "unknown field `note`"),
        ] {
            let message = Runtime::of(("mine.toml", &text)).unwrap_err().to_string();
            assert!(message.starts_with("mine.toml: ") && message.contains(expected), "{message}");
        }
    }
}
