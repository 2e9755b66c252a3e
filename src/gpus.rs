//! The GPUs that a GPU runtime drives over USB, by their PCI IDs: a file for each vendor.

use std::collections::BTreeMap;
use std::str::FromStr;

use asm2464::ParseError;
use asm2464::digest::parse_hex;
use asm2464_files::toml_file::{self, TomlError};
use asm2464_host::pcie::Function;
use serde::Deserialize;

/// A PCI vendor and device ID, written `1002:744C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{vendor:04x}:{device:04x}")]
pub struct PciId {
    /// The vendor's ID.
    pub vendor: u16,
    /// The device's ID, by its vendor.
    pub device: u16,
}

impl PciId {
    /// The ID of a function behind a bridge.
    pub const fn of(function: &Function) -> Self {
        Self { vendor: function.vendor, device: function.device }
    }
}

impl FromStr for PciId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some((vendor, device)) = text.split_once(':')
            && let (Some(vendor), Some(device)) = (half(vendor), half(device))
        {
            return Ok(Self { vendor, device });
        }
        let form = "four hexadecimal digits, a colon and four more, as in 1002:744c";
        Err(ParseError(format!("{text:?} is not a PCI ID: {form}")))
    }
}

/// Parses four hexadecimal digits.
fn half(text: &str) -> Option<u16> {
    Some(u16::from_be_bytes(parse_hex(text).ok()?.try_into().ok()?))
}

/// A revision as a file writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct Revision(u8);

impl TryFrom<String> for Revision {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match parse_hex(&text).as_deref() {
            Ok(&[revision]) => Ok(Self(revision)),
            _ => Err(format!("{text:?} is not two hexadecimal digits")),
        }
    }
}

/// The products that have one device ID.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Products {
    /// One name, also for several that nothing tells apart.
    One(String),
    /// Several, which the revision tells apart.
    ByRevision {
        /// All of them, for a revision that is not known or not listed.
        any: String,
        /// The product of each revision.
        revisions: BTreeMap<Revision, String>,
    },
}

impl Products {
    fn named(&self, revision: Option<u8>) -> &str {
        match self {
            Self::One(name) => name,
            Self::ByRevision { any, revisions } => {
                revision.and_then(|revision| revisions.get(&Revision(revision))).unwrap_or(any)
            }
        }
    }
}

/// The half of a PCI ID as a file writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct Half(u16);

impl TryFrom<String> for Half {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        half(&text).map(Self).ok_or_else(|| format!("{text:?} is not four hexadecimal digits"))
    }
}

/// A chip, with the devices that have it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuChip {
    name: String,
    target: String,
    devices: BTreeMap<Half, Products>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct VendorFile {
    vendor: Half,
    others: String,
    source: String,
    #[serde(default)]
    chip: Vec<GpuChip>,
}

/// What is known of the GPUs of each vendor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpus(Vec<VendorFile>);

/// Whether a GPU runtime drives a GPU over USB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuSupport<'a> {
    /// It does.
    Driven {
        /// The product, as its vendor sells it; several if the device ID is that of several, and the revision doesn't
        /// tell which.
        product: &'a str,
        /// The chip on it.
        chip: &'a str,
        /// The runtime's name of the chip's instruction set, such as `gfx1100`.
        target: &'a str,
    },
    /// The runtime drives only other GPUs of this vendor, or none.
    NotListed {
        /// What the vendor's file says of such GPUs.
        says: &'a str,
        /// Source of that statement, and its date.
        source: &'a str,
    },
    /// No file covers this vendor.
    NoVendor,
}

impl Gpus {
    /// Loads the files: the name for messages and the text of each.
    ///
    /// # Errors
    /// [`TomlError`].
    pub fn of(files: &[(&str, &str)]) -> Result<Self, Box<TomlError>> {
        files.iter().map(|(origin, text)| toml_file::parse(origin, text)).collect::<Result<_, _>>().map(Self)
    }

    /// Says what is known of a GPU. Its revision, if it is known, tells products with one device ID apart.
    pub fn support(&self, id: PciId, revision: Option<u8>) -> GpuSupport<'_> {
        let Some(file) = self.0.iter().find(|file| file.vendor.0 == id.vendor) else { return GpuSupport::NoVendor };
        let driven = file.chip.iter().find_map(|chip| Some((chip, chip.devices.get(&Half(id.device))?)));
        match driven {
            Some((chip, products)) => {
                GpuSupport::Driven { product: products.named(revision), chip: &chip.name, target: &chip.target }
            }
            None => GpuSupport::NotListed { says: &file.others, source: &file.source },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn of_repository() -> Gpus {
        let files = crate::tests::repository("gpus");
        let files: Vec<(&str, &str)> = files.iter().map(|(origin, text)| (origin.as_str(), text.as_str())).collect();
        Gpus::of(&files).unwrap()
    }

    fn support<'a>(gpus: &'a Gpus, id: &str) -> GpuSupport<'a> {
        gpus.support(id.parse().unwrap(), None)
    }

    #[test]
    fn rdna_3_and_4_mi300_and_mi350_are_driven_and_rdna_2_and_nvidia_are_not() {
        let gpus = of_repository();
        for (id, expected) in [
            ("1002:744c", "gfx1100"),
            ("1002:747E", "gfx1101"),
            ("1002:7480", "gfx1102"),
            ("1002:7590", "gfx1200"),
            ("1002:7550", "gfx1201"),
            ("1002:74a1", "gfx942"),
            ("1002:75a0", "gfx950"),
        ] {
            assert!(matches!(support(&gpus, id), GpuSupport::Driven { target, .. } if target == expected), "{id}");
        }
        // An RX 6600, and the virtual functions and USB controllers of cards that are driven.
        for id in ["1002:73ff", "1002:74b5", "1002:7446"] {
            let GpuSupport::NotListed { says, source } = support(&gpus, id) else { panic!("{id}") };
            assert!(says.contains("RDNA 2") && source.contains("2026"), "{says} {source}");
        }
        let nvidia = support(&gpus, "10de:2204");
        assert!(matches!(nvidia, GpuSupport::NotListed { says, .. } if says.contains("17369")), "{nvidia:?}");
        assert_eq!(support(&gpus, "8086:56a0"), GpuSupport::NoVendor);
    }

    #[test]
    fn a_device_id_of_several_cards_is_named_by_revision_or_by_all_of_them() {
        let gpus = of_repository();
        let product = |id: &str, revision| match gpus.support(id.parse().unwrap(), revision) {
            GpuSupport::Driven { product, .. } => product,
            other => panic!("{other:?}"),
        };
        assert_eq!(product("1002:7590", Some(0xC7)), "Radeon RX 9060");
        assert_eq!(product("1002:7590", Some(0xC0)), "Radeon RX 9060 XT");
        let any = "Radeon RX 9060, 9060 XT, 9060 XT LP";
        assert_eq!((product("1002:7590", None), product("1002:7590", Some(0))), (any, any));
        for (id, revision, name) in [
            ("1002:747E", 0xDB, "Radeon RX 7700"),
            ("1002:7551", 0xC8, "Radeon AI PRO R9600D"),
            ("1002:7481", 0xC7, "Steam Machine"),
            ("1002:744C", 0xCE, "Radeon RX 7900 GRE"),
            ("1002:74A1", 0x7A, "Instinct MI300X"),
        ] {
            assert_eq!(product(id, Some(revision)), name);
        }
    }

    #[test]
    fn no_vendor_has_two_files_and_no_device_two_chips() {
        let Gpus(files) = of_repository();
        let vendors: BTreeSet<Half> = files.iter().map(|file| file.vendor).collect();
        assert_eq!(vendors.len(), files.len());
        for VendorFile { vendor, chip, .. } in files {
            let devices: Vec<&Half> = chip.iter().flat_map(|chip| chip.devices.keys()).collect();
            assert_eq!(devices.iter().collect::<BTreeSet<_>>().len(), devices.len(), "{vendor:?}");
        }
    }

    #[test]
    fn an_id_has_two_halves_of_four_digits() {
        assert_eq!("10DE:2204".parse(), Ok(PciId { vendor: 0x10DE, device: 0x2204 }));
        for text in ["", "1002", "1002:", "1002:74", "1002:744cc", "0x1002:744c", "1002:744c:1", "1002-744c", "1002:é"]
        {
            assert!(text.parse::<PciId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_at_its_place() {
        let file = "vendor = \"1002\"\nothers = \"x\"\nsource = \"y\"\n";
        for (text, expected) in [
            (file.replace("1002", "02"), "\"02\" is not four hexadecimal digits"),
            (file.replace("source = \"y\"\n", ""), "missing field `source`"),
            (format!("{file}note = \"z\"\n"), "unknown field `note`"),
            (
                format!(
                    "{file}[[chip]]\nname = \"a\"\ntarget = \"b\"\ndevices = {{ 7590 = {{ any = \"b\", revisions = {{ C = \"c\" }} }} }}\n"
                ),
                "did not match any variant",
            ),
            (format!("{file}[[chip]]\nname = \"a\"\ntarget = \"b\"\ndevices = {{ 7G = \"c\" }}\n"), "four hexadecimal"),
        ] {
            let message = Gpus::of(&[("mine.toml", &text)]).unwrap_err().to_string();
            assert!(message.starts_with("mine.toml: ") && message.contains(expected), "{message}");
        }
    }
}
