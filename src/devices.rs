//! The known USB IDs of ASM2464PD units: those of [`DOCKS`], of the user's folders, and of one run. Also the
//! disks behind them that the user says are unused (`--unchecked-disk`).
//!
//! A device whose ID is not here is never opened, so it gets no vendor commands. The ID tells who made a unit, but not
//! what runs on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use asm2464::firmware::UsbId;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::toml_file;
use asm2464_host::usb::{DOCKS, KnownDevice, KnownUnits};
use serde::Deserialize;

/// The longest product or maker name, in characters: it is shown on one line.
const MAX_NAME: usize = 48;
/// The longest notes or source, in characters.
const MAX_TEXT: usize = 500;

/// Path of the udev rules file on a Linux system.
pub const RULES_PATH: &str = "/etc/udev/rules.d/70-asmpatch.rules";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    device: Vec<KnownDevice>,
}

/// The USB IDs that count as ASM2464PD units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// Each entry with where it stands.
    entries: BTreeMap<UsbId, (String, KnownDevice)>,
    /// The entries' IDs, and what the user names for this run: other IDs, and disks to vouch for.
    units: KnownUnits,
}

impl Devices {
    /// The known docks.
    pub fn shipped() -> Self {
        let entries = DOCKS.iter().map(|dock| (dock.id, ("the list of known docks".to_owned(), dock.clone())));
        Self { entries: entries.collect(), units: KnownUnits::shipped() }
    }

    /// Adds the entries of one device file. `origin` names it in errors.
    ///
    /// # Errors
    /// If it is not a device file, an ID is known already, or a text is empty or too long.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<(), AnyFailure> {
        let DeviceFile { device } = toml_file::parse(origin, text)?;
        for device in device {
            check(origin, &device)?;
            if let Some((first, _)) = self.entries.get(&device.id) {
                let message = format!("{origin}: the USB ID {} is in {first} already", device.id);
                return Err(Failure::new(Kind::BadInput.code("asmpatch::devices::duplicate"), message).into());
            }
            self.units.ids.insert(device.id);
            self.entries.insert(device.id, (origin.to_owned(), device));
        }
        Ok(())
    }

    /// Also treats devices with this ID as units.
    pub fn name(&mut self, id: UsbId) {
        self.units.ids.insert(id);
    }

    /// Takes the user's word that nothing uses this disk, as in `sda`, if the system can't tell.
    pub fn vouch_for_disk(&mut self, name: &str) {
        self.units.unchecked_disks.insert(name.strip_prefix("/dev/").unwrap_or(name).to_owned());
    }

    /// Whether a device with this ID counts as a unit.
    pub fn contains(&self, id: UsbId) -> bool {
        self.units.ids.contains(&id)
    }

    /// Returns the entry for this ID; `None` for an ID that only the user has named.
    pub fn get(&self, id: UsbId) -> Option<&KnownDevice> {
        self.entries.get(&id).map(|(_, device)| device)
    }

    /// Returns every ID that counts as a unit's, in ascending order.
    pub fn ids(&self) -> impl Iterator<Item = UsbId> {
        self.units.ids.iter().copied()
    }

    /// Returns what discovery takes: the IDs, and the disks that the user vouches for.
    pub fn known_units(&self) -> Arc<KnownUnits> {
        Arc::new(self.units.clone())
    }

    /// Returns the IDs that only the user has named.
    pub fn named(&self) -> impl Iterator<Item = UsbId> {
        self.ids().filter(|id| !self.entries.contains_key(id))
    }

    /// Returns the entries, by ID.
    pub fn iter(&self) -> impl Iterator<Item = &KnownDevice> {
        self.entries.values().map(|(_, device)| device)
    }

    /// Returns a udev rules file that lets the user at the machine open every known unit, and forbids its runtime
    /// suspend.
    ///
    /// The kernel suspends no hub above a unit that is awake.
    ///
    /// The number in its name is below 73, because systemd's `73-seat-late.rules` acts on the `uaccess` tag.
    pub fn udev_rules(&self) -> String {
        let rule = |id: UsbId| {
            format!(
                "SUBSYSTEM==\"usb\", ATTR{{idVendor}}==\"{:04x}\", ATTR{{idProduct}}==\"{:04x}\", MODE=\"0660\", TAG+=\"uaccess\", ATTR{{power/control}}=\"on\"\n",
                id.vendor, id.product
            )
        };
        let rules: String = self.ids().map(rule).collect();
        format!(
            "# Lets whoever sits at this machine open an ASM2464PD dock with asmpatch, without being root, and keeps it awake.\n\
             {rules}"
        )
    }
}

fn check(origin: &str, device: &KnownDevice) -> Result<(), Failure> {
    let texts = [
        ("product", &device.product, 1, MAX_NAME),
        ("maker", &device.maker, 1, MAX_NAME),
        ("notes", &device.notes, 0, MAX_TEXT),
        ("source", &device.source, 1, MAX_TEXT),
    ];
    for (key, text, min, max) in texts {
        let len = text.chars().count();
        // Blanks alone count as nothing.
        let found = if len <= max && text.trim().is_empty() { 0 } else { len };
        if !(min..=max).contains(&found) {
            let id = device.id;
            let message = format!("{origin}: {id}: `{key}` has {found} characters, expected {min} to {max}");
            return Err(Failure::new(Kind::BadInput.code("asmpatch::devices::length"), message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCK: &str =
        "[[device]]\nid = \"1234:abcd\"\nproduct = \"Dock\"\nmaker = \"Maker\"\nsource = \"its label\"\n";

    fn add(text: &str) -> Result<Devices, AnyFailure> {
        let mut devices = Devices::shipped();
        devices.add("mine.toml", text).map(|()| devices)
    }

    #[test]
    fn each_known_dock_stands_once_in_order_of_ids_with_texts_that_fit() {
        assert!(DOCKS.is_sorted_by(|one, next| one.id < next.id));
        for dock in DOCKS {
            check("the list of known docks", dock).unwrap();
        }
        let devices = Devices::shipped();
        assert!([UsbId::STOCK, UsbId::PATCHED, UsbId::BOOT_LOADER].into_iter().all(|id| devices.contains(id)));
        // Another ID of the same chip maker.
        assert!(!devices.contains("174C:2466".parse().unwrap()));
        assert_eq!(devices.get("1E91:DE79".parse().unwrap()).unwrap().product, "Express 1M2");
    }

    #[test]
    fn a_file_of_the_users_and_a_name_for_one_run_add_ids() {
        let mut devices = add(DOCK).unwrap();
        let [dock, other] = ["1234:ABCD", "ABCD:1234"].map(|text| text.parse::<UsbId>().unwrap());
        assert_eq!(devices.get(dock).unwrap().maker, "Maker");
        assert!(!devices.contains(other));
        devices.name(other);
        devices.name(dock);
        assert!(devices.contains(other) && devices.get(other).is_none());
        assert_eq!(devices.ids().count(), Devices::shipped().ids().count() + 2);
    }

    #[test]
    fn a_disk_is_vouched_for_by_its_own_name_or_its_node() {
        let mut devices = Devices::shipped();
        devices.vouch_for_disk("/dev/sda");
        devices.vouch_for_disk("sdc");
        assert!(devices.units.unchecked_disks.iter().eq(["sda", "sdc"]));
    }

    #[test]
    fn an_entry_that_is_wrong_names_its_file_and_its_place() {
        let long = format!("product = \"{}\"", "x".repeat(49));
        for (text, expected) in [
            (
                DOCK.replace("1234:abcd", "174C:2464"),
                "mine.toml: the USB ID 174C:2464 is in the list of known docks already",
            ),
            (format!("{DOCK}{DOCK}"), "mine.toml: the USB ID 1234:ABCD is in mine.toml already"),
            (DOCK.replace("1234:abcd", "1234:abcg"), "mine.toml: \"1234:abcg\" is not a USB ID"),
            (DOCK.replace("\"1234:abcd\"", "0x1234"), "invalid type: integer"),
            (DOCK.replace("maker", "vendor"), "unknown field `vendor`"),
            (DOCK.replace("source = \"its label\"", ""), "missing field `source`"),
            (
                DOCK.replace("\"its label\"", "\" \""),
                "mine.toml: 1234:ABCD: `source` has 0 characters, expected 1 to 500",
            ),
            (DOCK.replace("product = \"Dock\"", &long), "`product` has 49 characters, expected 1 to 48"),
            (format!("{DOCK}notes = \"{}\"", "x".repeat(501)), "`notes` has 501 characters, expected 0 to 500"),
            (String::new(), "missing field `device`"),
        ] {
            let message = add(&text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }

    #[test]
    fn there_is_a_rule_for_each_identity_in_the_kernels_spelling() {
        let mut devices = Devices::shipped();
        devices.name("1234:ABCD".parse().unwrap());
        let rules = devices.udev_rules();
        for id in devices.ids() {
            let spelled = format!("ATTR{{idVendor}}==\"{:04x}\", ATTR{{idProduct}}==\"{:04x}\"", id.vendor, id.product);
            assert_eq!(rules.matches(&spelled).count(), 1);
            let rule = rules.lines().find(|line| line.contains(&spelled)).unwrap();
            assert!(rule.contains("TAG+=\"uaccess\"") && rule.ends_with(", ATTR{power/control}=\"on\""), "{rule}");
        }
        assert_eq!(rules.lines().count(), 1 + devices.ids().count());
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_never_panics(text: String) {
            let _ = add(&text);
        }
    }
}
