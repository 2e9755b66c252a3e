//! The units that a GPU runtime opens, by their USB IDs, and where it looks for their GPU.

use asm2464::firmware::UsbId;
use asm2464_dock::files::toml_file::{self, TomlError};
use serde::Deserialize;

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

/// USB IDs in words: `ADD1:0001 and 3801:0001`.
pub fn ids_in_words(ids: &[UsbId]) -> String {
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
