//! The states of a host: what /sys and /dev show of a dock, made by the test in a mount namespace of its own. Nothing
//! answers there, so a dock comes to work only where doctor reads sysfs alone, over USB4.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use asm2464_chip::practice;
use asm2464_dock::virtual_unit::VirtualPort;
use serde_json::{Value, json};

use super::{Does, Talk, converse};
use crate::program::process::PROGRAM;
use crate::program::terminal;
use Does::{Acts, Types};

/// Shows the program the test's folders as /dev, /sys/bus and, with locks of its own, /tmp, and its file as the kernel's release if there is one. Even
/// root may not open there what nobody may.
const IN_HOST: &str = "for node in null zero full random urandom; do : >dev/$node; mount --bind /dev/$node dev/$node; done; \
                       if [ -e osrelease ]; then mount --bind osrelease /proc/sys/kernel/osrelease; fi; \
                       here=tmp/$(basename \"$PWD\"); mkdir -p $here; mount --rbind . $here; \
                       mount --rbind dev /dev; mount --bind bus /sys/bus; mount --rbind tmp /tmp; \
                       exec setpriv --bounding-set=-dac_override,-dac_read_search \"$@\"";

/// The way to a mount namespace that this system lets the test go: root's, or a user's. `None` if it has none.
fn way() -> Option<&'static str> {
    let goes = |way: &&str| {
        let mounts =
            "mount -t tmpfs none /sys/bus && mount --bind /dev/null /proc/sys/kernel/osrelease && setpriv true";
        let line = format!("unshare {way} sh -c '{mounts}'");
        let tried = Command::new("sh").args(["-c", &line]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    ["-m", "-Urm"].into_iter().find(goes)
}

/// A dock on USB, as sysfs shows it.
#[derive(Clone, Copy)]
struct Dock {
    port: &'static str,
    id: (u16, u16),
    speed: &'static str,
    product: &'static str,
}

/// One with the open firmware, whose USB 2 configuration is the same at 480 and at 12 Mbit/s.
const OPEN: Dock = Dock { port: "3-1", id: (0x3801, 1), speed: "480", product: "custom ed4e39b7-CLEAN" };

/// A host in a folder of its own: `bus` is its /sys/bus, `dev` its /dev.
struct Host {
    folder: tempfile::TempDir,
    way: &'static str,
}

fn put(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

impl Host {
    /// A host on which nothing is connected; `None` where the test can't make one.
    fn new() -> Option<Self> {
        let host = Self { folder: tempfile::tempdir().unwrap(), way: way()? };
        for folder in ["bus/usb/devices", "bus/usb/drivers", "bus/thunderbolt/devices", "bus/pci/devices", "dev", "tmp"]
        {
            fs::create_dir_all(host.path().join(folder)).unwrap();
        }
        device(host.path(), "usb1", 1, HUB, "480", descriptors(false, 9, HUB, &HUB_INTERFACE));
        Some(host)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `doctor --fix` there.
    fn command(&self, options: &str) -> Command {
        self.asmpatch(&format!("doctor --fix {options}"))
    }

    /// A command there.
    fn asmpatch(&self, words: &str) -> Command {
        let programs = Path::new(PROGRAM).parent().unwrap();
        let line = format!("exec unshare {} sh -c '{IN_HOST}' sh asmpatch {words}", self.way);
        let mut command = terminal::shell(programs, self.path(), &line);
        command.env_remove("TMPDIR").env("HOME", self.path()).env_remove("ASMPATCH_DEVICE");
        command.env("ASMPATCH_BACKUP_DIR", "backups").env("ASMPATCH_CACHE_DIR", "cache");
        command.env("XDG_DATA_HOME", self.path().join("data"));
        command
    }

    /// Runs it on a terminal, and does one thing at each prompt.
    fn talk(&self, options: &str, does: &[Does]) -> Talk {
        converse(self.command(options), self.path(), |number, _| does.get(number).copied().unwrap_or(Types("")))
    }
}

/// A device or a root hub: its folder's name, its number on the bus, and what its files say.
fn device(host: &Path, name: &str, number: u8, id: (u16, u16), speed: &str, descriptors: Vec<u8>) {
    let folder = host.join("bus/usb/devices").join(name);
    let bus = name.trim_start_matches("usb").split('-').next().unwrap();
    for (file, text) in [
        ("busnum", bus.to_owned()),
        ("devnum", number.to_string()),
        ("speed", speed.to_owned()),
        ("bConfigurationValue", "1".to_owned()),
        ("bNumInterfaces", "1".to_owned()),
        ("idVendor", format!("{:04x}", id.0)),
        ("idProduct", format!("{:04x}", id.1)),
        ("maxchild", if number == 1 { "4" } else { "0" }.to_owned()),
        ("version", if speed.len() > 3 { " 3.20" } else { " 2.00" }.to_owned()),
        ("power/control", "on".to_owned()),
    ] {
        put(&folder.join(file), format!("{text}\n"));
    }
    put(&folder.join("descriptors"), descriptors);
    put(&host.join(format!("dev/bus/usb/{bus:0>3}/{number:03}")), "");
}

/// The descriptors of a device with one configuration.
fn descriptors(is_super: bool, class: u8, id: (u16, u16), interfaces: &[u8]) -> Vec<u8> {
    let (usb, packet) = if is_super { ([0x20, 3], 9) } else { ([0, 2], 64) };
    let ids = [id.0.to_le_bytes(), id.1.to_le_bytes()].concat();
    let len = u8::try_from(9 + interfaces.len()).unwrap();
    let head = [18, 1, usb[0], usb[1], class, 0, 0, packet];
    [&head[..], &ids, &[1, 1, 1, 2, 3, 1], &[9, 2, len, 0, 1, 1, 0, 0xC0, 0], interfaces].concat()
}

const HUB: (u16, u16) = (0x1D6B, 3);
const HUB_INTERFACE: [u8; 16] = [9, 4, 0, 0, 1, 9, 0, 0, 0, 7, 5, 0x81, 3, 4, 0, 12];

/// Connects a dock.
fn connect(host: &Path, dock: Dock) {
    let Dock { port, id, speed, product } = dock;
    let is_super = speed.len() > 3;
    let endpoint = |address: u8| {
        let bulk = [7, 5, address, 2, 0, if is_super { 4 } else { 2 }, 0];
        if is_super { [&bulk[..], &[6, 0x30, 15, 0, 0, 0]].concat() } else { bulk.to_vec() }
    };
    let mut interfaces = Vec::new();
    if id.0 == VENDOR.id.0 {
        // Bulk-Only, and UAS with the use of each pipe.
        interfaces.extend([9, 4, 0, 0, 2, 8, 6, 0x50, 0]);
        interfaces.extend([0x81, 2].map(endpoint).concat());
        interfaces.extend([9, 4, 0, 1, 4, 8, 6, 0x62, 0]);
        for (address, uses) in [(4, 1), (0x83, 2), (0x81, 3), (2, 4)] {
            interfaces.extend(endpoint(address));
            interfaces.extend([4, 0x24, uses, 0]);
        }
    } else {
        interfaces.extend([9, 4, 0, 0, 4, 255, 255, 255, 0]);
        interfaces.extend([0x81, 2, 0x83, 4].map(endpoint).concat());
    }
    let (bus, last) = port.split_once('-').unwrap();
    device(host, &format!("usb{bus}"), 1, HUB, speed, descriptors(is_super, 9, HUB, &HUB_INTERFACE));
    device(host, port, 2, id, speed, descriptors(is_super, 0, id, &interfaces));
    let devices = host.join("bus/usb/devices");
    for (file, text) in [("serial", "ffffffff"), ("product", product), ("manufacturer", "maker"), ("devpath", last)] {
        put(&devices.join(port).join(file), format!("{text}\n"));
    }
    let class = if id.0 == VENDOR.id.0 { "08\n" } else { "ff\n" };
    put(&devices.join(format!("{port}:1.0/bInterfaceNumber")), "00\n");
    put(&devices.join(format!("{port}:1.0/bInterfaceClass")), class);
}

/// Allows or forbids everybody to open a dock.
fn open_to(host: &Path, mode: u32) {
    fs::set_permissions(host.join("dev/bus/usb/003/002"), fs::Permissions::from_mode(mode)).unwrap();
}

/// What a host shows of a dock on USB4: a router's device, and functions on PCIe by their places below the root complex.
fn on_usb4(host: &Path, authorized: &str, functions: &[(&str, &str, &str, Option<&str>)]) {
    let router = host.join("bus/thunderbolt/devices");
    put(&router.join("domain0/security"), "user\n");
    for (name, vendor, device) in [("0-0", "Maker", "Laptop"), ("0-1", "ASMedia", "Dock")] {
        put(&router.join(name).join("vendor_name"), format!("{vendor}\n"));
        put(&router.join(name).join("device_name"), format!("{device}\n"));
        put(&router.join(name).join("power/control"), "on\n");
    }
    put(&router.join("0-1/authorized"), format!("{authorized}\n"));
    put(&router.join("0-1/unique_id"), "c4010000-0000-0000-0000-000000000000\n");
    for (path, id, class, driver) in functions {
        let place = host.join("pci0000:00").join(path);
        let (vendor, device) = id.split_once(':').unwrap();
        put(&place.join("vendor"), format!("0x{vendor}\n"));
        put(&place.join("device"), format!("0x{device}\n"));
        put(&place.join("class"), format!("{class}\n"));
        put(&place.join("power/control"), "on\n");
        put(&place.join("power/runtime_status"), "active\n");
        if let Some(driver) = driver {
            symlink(format!("/sys/bus/pci/drivers/{driver}"), place.join("driver")).unwrap();
        }
        symlink(&place, host.join("bus/pci/devices").join(place.file_name().unwrap())).unwrap();
    }
}

const ROOT_PORT: (&str, &str, &str, Option<&str>) = ("0000:00:07.0", "8086:466e", "0x060400", Some("pcieport"));
/// A dock's switch with a GPU that has its driver.
const SWITCH_AND_GPU: [(&str, &str, &str, Option<&str>); 3] = [
    ("0000:00:07.0/0000:03:00.0", "1b21:2463", "0x060400", Some("pcieport")),
    ("0000:00:07.0/0000:03:00.0/0000:04:00.0", "1b21:2463", "0x060400", Some("pcieport")),
    ("0000:00:07.0/0000:03:00.0/0000:04:00.0/0000:05:00.0", "1002:744c", "0x030000", Some("amdgpu")),
];

/// The dock at 3-1.
const AT: &str = "--device 3-1";
/// The vendor's firmware, which can be restarted.
const VENDOR: Dock = Dock { id: (0x174C, 0x2464), product: "ASM246X series", ..OPEN };

#[test]
fn a_dock_at_12_mbit_is_followed_by_hand_step_by_step_until_it_is_faster() {
    let Some(host) = Host::new() else { return };
    connect(host.path(), Dock { speed: "12", ..OPEN });
    let stays = host.talk(AT, &[]);
    assert_eq!((stays.status, stays.prompts), (Some(1), 4), "{}", stays.text);
    let steps = ["is the dock's supply on?", "then take the cable out", "then try another cable", "`sudo rtcwake"];
    let places: Vec<Option<usize>> = steps.iter().map(|step| stays.text.find(step)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {}", stays.text);
    assert!(stays.text.contains("left: USB: 12 Mbit/s"), "{}", stays.text);
    // Its supply brings it up at 480 Mbit/s, which is another state with the same steps, and another cable at 5 Gbit/s.
    let with_supply = |host: &Path| put(&host.join("bus/usb/devices/3-1/speed"), "480\n");
    let with_cable = |host: &Path| put(&host.join("bus/usb/devices/3-1/speed"), "5000\n");
    let heals = host.talk(AT, &[Acts(with_supply, ""), Acts(with_cable, "")]);
    assert!(heals.text.contains("still: 480 Mbit/s") && heals.text.contains("ok USB 5 Gbit/s"), "{}", heals.text);
    assert!(!heals.text.contains("left: USB"), "{}", heals.text);
}

#[test]
fn in_wsl_a_dock_that_is_gone_is_waited_for_until_windows_hands_it_on_again() {
    let Some(host) = Host::new() else { return };
    put(&host.path().join("osrelease"), "6.6.87-microsoft-standard-WSL2\n");
    let gone = host.talk("", &[]);
    assert_eq!((gone.status, gone.prompts), (Some(4), 2), "{}", gone.text);
    assert!(gone.text.contains("unit this is WSL: attach it in Windows"), "{}", gone.text);
    assert!(gone.text.contains("usbipd attach --wsl --busid B --auto-attach"), "{}", gone.text);
    // It comes, and leaves as the user takes its cable out: then Windows has it.
    let leaves = |host: &Path| fs::remove_dir_all(host.join("bus/usb/devices/3-1")).unwrap();
    let comes = host.talk("", &[Acts(|host| connect(host, OPEN), ""), Acts(leaves, "\n")]);
    assert!(comes.text.contains("3-1 3801:0001 (open firmware"), "{}", comes.text);
    assert!(comes.status == Some(4) && comes.text.contains("left: unit: no unit matches 3-1"), "{}", comes.text);
    assert!(comes.text.matches("usbipd attach --wsl").count() >= 2, "{}", comes.text);
}

#[test]
fn without_permission_the_rule_is_printed_and_then_waited_for() {
    let Some(host) = Host::new() else { return };
    connect(host.path(), Dock { speed: "5000", ..OPEN });
    open_to(host.path(), 0);
    let stays = host.talk(AT, &[]);
    assert_eq!((stays.status, stays.prompts), (Some(1), 3), "the rule, its reload, a replug: {}", stays.text);
    assert!(stays.text.contains("left: access: no permission to open the unit"), "{}", stays.text);
    let given = host.talk(AT, &[Acts(|host| open_to(host, 0o666), "")]);
    let rule = "asmpatch udev | sudo tee /etc/udev/rules.d/70-asmpatch.rules (asmpatch goes on once it sees a change";
    assert!(given.text.contains(rule), "{}", given.text);
    // Nothing answers there, so the unit is opened, and no more.
    assert!(given.text.contains("left: access: cannot claim the unit at 3-1"), "{}", given.text);
}

#[test]
fn while_a_runtime_holds_its_lock_no_restart_runs_unasked() {
    let Some(host) = Host::new() else { return };
    connect(host.path(), VENDOR);
    let lock = File::create(host.path().join("tmp/am_usb:3-2.lock")).unwrap();
    lock.lock().unwrap();
    let question = "a GPU runtime's lock on the unit. Restart it all the same? [y/N]";
    let no = host.talk(AT, &[Types("n")]);
    assert_eq!((no.status, no.prompts), (Some(1), 1), "{}", no.text);
    assert!(no.text.contains(question) && no.text.contains("the answer was no"), "{}", no.text);
    assert!(!no.text.contains("done USB") && !no.text.contains("status "), "nothing ran: {}", no.text);
    let nobody = host.command("--device 3-1 --json").stdin(Stdio::null()).output().unwrap();
    let said: Value = serde_json::from_slice(&nobody.stdout).unwrap();
    assert_eq!((&said["done"], nobody.status.code()), (&json!([]), Some(1)), "{said:#}");
    assert_eq!(said["left"][0]["step"]["command"], "asmpatch reset --device 3-1", "{said:#}");
    let yes = host.talk(AT, &[Types("y")]);
    assert!(yes.text.contains(question) && yes.text.contains("USB: asmpatch reset --device 3-1"), "{}", yes.text);
    lock.unlock().unwrap();
    let free = host.talk(AT, &[]);
    assert!(!free.text.contains("[y/N]") && free.text.contains("USB: asmpatch reset --device 3-1"), "{}", free.text);
}

const CAN_START: &str = "a GPU runtime can start: one that takes the GPU as a plain PCIe device";

#[test]
fn a_dock_on_usb4_is_waited_for_until_the_host_has_authorised_it() {
    let Some(host) = Host::new() else { return };
    on_usb4(host.path(), "0", &[ROOT_PORT]);
    // The system's command is shown, and never run: Enter goes on to what else helps.
    let no = host.talk("", &[]);
    assert_eq!((no.status, no.prompts), (Some(1), 2), "{}", no.text);
    let shown = "if it is yours, authorise it, for good: boltctl enroll --policy=auto c4010000-";
    assert!(no.text.contains(shown) && no.text.contains("left: USB4: 0-1 ASMedia Dock: not authorised"), "{}", no.text);
    let authorised = |host: &Path| on_usb4(host, "1", &SWITCH_AND_GPU);
    let yes = host.talk("", &[Acts(authorised, "")]);
    assert_eq!((yes.status, yes.prompts), (Some(0), 1), "{}", yes.text);
    assert!(yes.text.contains(CAN_START), "{}", yes.text);
}

#[test]
fn a_port_that_sleeps_is_waited_for_until_it_is_awake() {
    let Some(host) = Host::new() else { return };
    let port = "bus/pci/devices/0000:00:07.0/power";
    on_usb4(host.path(), "1", &[ROOT_PORT]);
    put(&host.path().join(port).join("control"), "auto\n");
    put(&host.path().join(port).join("runtime_status"), "suspended\n");
    let stays = host.talk("", &[]);
    assert!(stays.status == Some(1) && stays.text.contains("left: suspend: the root port"), "{}", stays.text);
    let wakes = |host: &Path| {
        put(&host.join("bus/pci/devices/0000:00:07.0/power/control"), "on\n");
        put(&host.join("bus/pci/devices/0000:00:07.0/power/runtime_status"), "active\n");
        on_usb4(host, "1", &SWITCH_AND_GPU);
    };
    let awake = host.talk("", &[Acts(wakes, "")]);
    assert_eq!(awake.status, Some(0), "{}", awake.text);
    assert!(awake.text.contains("| sudo tee") && awake.text.contains(CAN_START), "{}", awake.text);
}

#[test]
fn a_series_of_serial_numbers_leaves_out_those_of_docks_that_are_connected_and_not_written() {
    let Some(host) = Host::new() else { return };
    put(&host.path().join("unit/bridge.toml"), "serial = 'DOCK0'\n");
    // It makes its flash here, because a file can't be renamed from one of the host's mounts to another.
    drop(VirtualPort::open_dir(&host.path().join("unit")).unwrap());
    fs::write(host.path().join("practice.bin"), practice::image().to_file()).unwrap();
    let number = || {
        let words = "flash practice.bin --device virtual:unit --serials RACK-01 --no-backup --dry-run --json";
        let output = host.asmpatch(words).stdin(Stdio::null()).output().unwrap();
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        plan[0]["plan"]["serial"].as_str().unwrap_or_else(|| panic!("{plan:#}")).to_owned()
    };
    assert_eq!(number(), "RACK-01");
    connect(host.path(), VENDOR);
    put(&host.path().join("bus/usb/devices/3-1/serial"), "RACK-01\n");
    assert_eq!(number(), "RACK-02");
}
