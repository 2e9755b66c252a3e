//! Why the system lets no program of this user open a unit: udev's rules and its database. Source: udev(7),
//! systemd's `70-uaccess.rules`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use derive_more::Display;

use super::{Sysfs, names, read};
use crate::bridge::PortPath;

/// Where udev reads rules, the first folder that has a file of a name decides. Source: udev(7).
const RULES: [&str; 4] =
    ["/etc/udev/rules.d", "/run/udev/rules.d", "/usr/local/lib/udev/rules.d", "/usr/lib/udev/rules.d"];
/// udev's database of devices.
const DATABASE: &str = "/run/udev/data";
/// The tag that gives a device to whoever sits at the machine.
const TAG: &str = "uaccess";
/// Maximum length in bytes of a file of rules that is read.
const MAX_RULES: u64 = 1 << 20;

/// Why this user may not open a unit.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum AccessFault {
    /// This file of asmpatch's rules doesn't cover its USB ID.
    #[display("the udev rules in {} don't cover its USB ID", _0.display())]
    StaleRule(PathBuf),
    /// This file covers it, but udev has not applied it to the unit.
    #[display("the udev rules in {} came after it was plugged in", _0.display())]
    NotReplugged(PathBuf),
    /// A rule gives the unit to whoever sits at this machine, and this session has no seat.
    #[display("it belongs to whoever sits at this machine, and this session has no seat")]
    NoSeat,
}

/// Finds out why the unit at a port can't be opened. `None` if no rule covers its USB ID, or if the system doesn't tell.
pub(in crate::usb) fn no_access(port: &PortPath) -> Option<AccessFault> {
    no_access_by(&Sysfs::system(), &RULES.map(PathBuf::from), Path::new(DATABASE), port)
}

/// The same, with these folders of rules and this database.
fn no_access_by(sysfs: &Sysfs, rules: &[PathBuf], database: &Path, port: &PortPath) -> Option<AccessFault> {
    let device = sysfs.device(port);
    let attribute = |name: &str| read(&device.join(name));
    let (vendor, product, number) = (attribute("idVendor"), attribute("idProduct"), attribute("dev"));
    if vendor.is_empty() || product.is_empty() || number.is_empty() {
        return None;
    }
    let entry = fs::read_to_string(database.join(format!("c{number}"))).unwrap_or_default();
    if entry.lines().any(|line| line.strip_prefix("G:") == Some(TAG)) {
        return Some(AccessFault::NoSeat);
    }
    let mut stale = None;
    for file in files_of_rules(rules) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let has_id = |line: &str| [&vendor, &product].iter().all(|id| line.contains(&format!("\"{id}\"")));
        if text.lines().any(|line| line.contains(TAG) && has_id(line)) {
            return Some(AccessFault::NotReplugged(file));
        }
        if file.file_name().is_some_and(|name| name.to_string_lossy().contains("asmpatch")) {
            stale = Some(AccessFault::StaleRule(file));
        }
    }
    stale
}

/// The files of rules that udev reads, and that are short enough to be some.
fn files_of_rules(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for folder in folders {
        for name in names(folder) {
            let file = folder.join(&name);
            // A file takes the place of one with its name in a later folder, even if it holds no rules.
            let is_first = seen.insert(name);
            let is_rules = file.extension().is_some_and(|end| end == "rules")
                && fs::metadata(&file).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_RULES);
            if is_first && is_rules {
                files.push(file);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a unit 174C:2464 at 3-1.2 can't be opened, with these files: a name and a text each.
    fn why(files: &[(&str, &str)]) -> Option<AccessFault> {
        let root = tempfile::tempdir().unwrap();
        let unit = [("idVendor", "174c\n"), ("idProduct", "2464\n"), ("dev", "189:300\n")];
        let unit = unit.map(|(name, text)| (format!("sys/bus/usb/devices/3-1.2/{name}"), text));
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), *text));
        for (name, text) in unit.into_iter().chain(files) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let sysfs = Sysfs::at(root.path().join("sys"), "/nowhere", "/nowhere");
        let rules = ["rules", "lib"].map(|folder| root.path().join(folder)).to_vec();
        let why = no_access_by(&sysfs, &rules, &root.path().join("data"), &"3-1.2".parse().unwrap());
        let name = |file: PathBuf| PathBuf::from(file.file_name().unwrap());
        match why {
            Some(AccessFault::StaleRule(file)) => Some(AccessFault::StaleRule(name(file))),
            Some(AccessFault::NotReplugged(file)) => Some(AccessFault::NotReplugged(name(file))),
            other => other,
        }
    }

    #[test]
    fn no_rule_a_stale_one_one_that_came_too_late_and_a_session_without_a_seat_are_told_apart() {
        let rule =
            |product: &str| format!("ATTR{{idVendor}}==\"174c\", ATTR{{idProduct}}==\"{product}\", TAG+=\"uaccess\"\n");
        let (covers, other) = (rule("2464"), rule("2463"));
        let ours = "rules/70-asmpatch.rules";
        assert_eq!(why(&[]), None);
        assert_eq!(why(&[("rules/99-mine.rules", &other)]), None);
        assert_eq!(why(&[(ours, &other)]), Some(AccessFault::StaleRule("70-asmpatch.rules".into())));
        assert_eq!(why(&[(ours, &covers)]), Some(AccessFault::NotReplugged("70-asmpatch.rules".into())));
        assert_eq!(why(&[(ours, &covers), ("data/c189:300", "I:1\nG:uaccess\n")]), Some(AccessFault::NoSeat));
        // Not a file of rules, and not this unit's entry.
        assert_eq!(why(&[("rules/asmpatch.rules.old", &covers)]), None);
        assert_eq!(
            why(&[(ours, &covers), ("data/c189:301", "G:uaccess\n")]),
            Some(AccessFault::NotReplugged("70-asmpatch.rules".into()))
        );
    }

    #[test]
    fn a_file_of_rules_takes_the_place_of_one_with_its_name_in_a_later_folder() {
        let covers = "ATTR{idVendor}==\"174c\", ATTR{idProduct}==\"2464\", TAG+=\"uaccess\"\n";
        let (ours, packaged) = ("rules/70-asmpatch.rules", "lib/70-asmpatch.rules");
        assert_eq!(why(&[(packaged, covers)]), Some(AccessFault::NotReplugged("70-asmpatch.rules".into())));
        assert_eq!(
            why(&[(ours, "# old\n"), (packaged, covers)]),
            Some(AccessFault::StaleRule("70-asmpatch.rules".into()))
        );
    }

    #[test]
    fn a_system_that_tells_nothing_about_the_unit_gives_no_reason() {
        let nowhere = Sysfs::at("/nowhere", "/nowhere", "/nowhere");
        let nowhere_else = Path::new("/nowhere");
        let port = "3-1.2".parse().unwrap();
        assert_eq!(no_access_by(&nowhere, &[nowhere_else.to_owned()], nowhere_else, &port), None);
    }
}
