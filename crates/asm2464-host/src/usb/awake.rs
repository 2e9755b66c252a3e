//! Keeping the kernel from suspending a unit, or a hub above it, while the unit is open. Source: the kernel's
//! `Documentation/driver-api/usb/power-management.rst`: `on` in `power/control` forbids runtime suspend, `auto` allows it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sysfs::{POWER_CONTROL, devices_on_the_way, read};
use crate::bridge::PortPath;

/// The changed devices, each with the number of users that need the setting and its device number. Another device at
/// the same port has another number.
static CHANGED: Mutex<BTreeMap<PathBuf, (usize, String)>> = Mutex::new(BTreeMap::new());

/// Keeps a unit from runtime suspend. Dropping it restores each device's setting.
#[derive(Debug)]
pub(super) struct Awake(Vec<PathBuf>);

impl Awake {
    /// Keeps the unit at this port and the hubs above it awake. Without permission their settings stay unchanged.
    pub(super) fn of(port: &PortPath) -> Self {
        Self::under(Path::new("/sys/bus/usb/devices"), port)
    }

    fn under(devices: &Path, port: &PortPath) -> Self {
        let mut changed = changed();
        let paths = devices_on_the_way(port).map(|name| devices.join(name));
        Self(paths.filter(|path| hold(&mut changed, path)).collect())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        let mut changed = changed();
        for path in &self.0 {
            let Entry::Occupied(mut entry) = changed.entry(path.clone()) else { continue };
            entry.get_mut().0 -= 1;
            if entry.get().0 == 0 {
                give_back(path, &entry.remove().1);
            }
        }
    }
}

/// Restores every device's setting, for a process that ends without unwinding.
pub(super) fn give_all_back() {
    for (path, (_, number)) in std::mem::take(&mut *changed()) {
        give_back(&path, &number);
    }
}

fn changed() -> MutexGuard<'static, BTreeMap<PathBuf, (usize, String)>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the device's setting. Returns whether it is now ours to restore.
fn hold(changed: &mut BTreeMap<PathBuf, (usize, String)>, path: &Path) -> bool {
    if let Some((needed, _)) = changed.get_mut(path) {
        *needed += 1;
        return true;
    }
    let holds = read(&path.join(POWER_CONTROL)) == "auto" && fs::write(path.join(POWER_CONTROL), "on").is_ok();
    if holds {
        changed.insert(path.to_owned(), (1, read(&path.join("devnum"))));
    }
    holds
}

fn give_back(path: &Path, number: &str) {
    if read(&path.join("devnum")) == number && read(&path.join(POWER_CONTROL)) == "on" {
        // A device that has just left needs no restoring.
        let _ = fs::write(path.join(POWER_CONTROL), "auto");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_and_the_hubs_above_it_stay_awake_until_their_last_user_is_done() {
        let devices = tempfile::tempdir().unwrap();
        let control = |name: &str| devices.path().join(name).join(POWER_CONTROL);
        for (name, value) in [("3-1.2", "auto"), ("3-1.3", "auto"), ("3-1", "auto"), ("usb3", "on")] {
            fs::create_dir_all(devices.path().join(name).join("power")).unwrap();
            fs::write(control(name), format!("{value}\n")).unwrap();
            fs::write(devices.path().join(name).join("devnum"), "7\n").unwrap();
        }
        let is = |name: &str| read(&control(name));
        let one = Awake::under(devices.path(), &"3-1.2".parse().unwrap());
        let other = Awake::under(devices.path(), &"3-1.3".parse().unwrap());
        assert!(["3-1.2", "3-1.3", "3-1", "usb3"].iter().all(|name| is(name) == "on"));
        drop(one);
        assert_eq!((is("3-1.2"), is("3-1")), ("auto".to_owned(), "on".to_owned()));
        // Another device at this port keeps its own setting.
        fs::write(devices.path().join("3-1.3/devnum"), "8\n").unwrap();
        drop(other);
        assert_eq!((is("3-1.3"), is("3-1"), is("usb3")), ("on".to_owned(), "auto".to_owned(), "on".to_owned()));
    }

    #[test]
    fn what_can_not_be_changed_is_left_alone() {
        let devices = tempfile::tempdir().unwrap();
        assert!(Awake::under(devices.path(), &"3-1".parse().unwrap()).0.is_empty());
    }
}
