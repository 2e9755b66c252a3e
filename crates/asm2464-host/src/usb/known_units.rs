//! The units that a caller may open.

use std::collections::BTreeSet;

use asm2464::firmware::UsbId;

/// Names a file of known docks, and embeds its text.
macro_rules! docks {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../", $path)))),*]
    };
}

/// The table of known docks: the name and the TOML of each file in the crate's `devices/`.
pub const DOCKS: &[(&str, &str)] =
    docks!["devices/adt.toml", "devices/asmedia.toml", "devices/owc.toml", "devices/tinygrad.toml"];

/// What the caller knows of the units that it may open. A device with another ID is never opened.
#[derive(Debug, Clone, Default)]
pub struct KnownUnits {
    /// The USB IDs that count as an ASM2464PD unit's.
    pub ids: BTreeSet<UsbId>,
    /// Disks behind units, as in `sda`, that the caller vouches for if the system can't tell whether they are in use.
    pub unchecked_disks: BTreeSet<String>,
}

impl KnownUnits {
    /// Knows these USB IDs, and vouches for no disk.
    pub fn of(ids: impl IntoIterator<Item = UsbId>) -> Self {
        Self { ids: ids.into_iter().collect(), unchecked_disks: BTreeSet::new() }
    }

    /// Knows every dock in [`DOCKS`], by the line with its ID, and vouches for no disk.
    pub fn shipped() -> Self {
        let lines = DOCKS.iter().flat_map(|(_, text)| text.lines());
        let ids = lines.filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'));
        Self::of(ids.filter_map(|id| id.parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_shipped_units_are_every_dock_in_the_folder_and_open_firmware_of_any_age_is_among_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(fs::read_dir(root.join("devices")).unwrap().count(), DOCKS.len());
        for (name, text) in DOCKS {
            assert_eq!(fs::read_to_string(root.join(name)).unwrap(), *text);
        }
        let shipped = KnownUnits::shipped().ids;
        assert!(["ADD1:0001", "ADD1:0002", "3801:0001"].iter().all(|id| shipped.contains(&id.parse().unwrap())));
        assert_eq!(shipped.len(), DOCKS.iter().map(|(_, text)| text.matches("[[device]]").count()).sum::<usize>());
    }
}
