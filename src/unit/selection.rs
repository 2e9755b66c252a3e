//! Finds the unit that the user names, by its port, its serial number or its folder, and opens it.

use std::convert::Infallible;
use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, UsbId};
use asm2464::{AnyFailure, Coded, Failure, Kind, Label, Named, TransportKind};
use asm2464_dock::virtual_unit::{SetKey, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Location, Monitors, Port, PortPath, UnitInfo};
use asm2464_host::usb::sysfs::{DevicePort, Sysfs, Tunnels};
use asm2464_host::usb::{self, Found, OtherChip, UsbError, UsbPort};
use derive_more::Display;
use etcetera::{BaseStrategy as _, HomeDirError};

use super::live::{Live, Purpose};
use crate::advice::Advice;
use crate::devices::Devices;
use crate::pcap::Capture;
use crate::suggest;

/// The name of a unit: a port path, a serial number, or `virtual[:DIR]`.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum Selector {
    /// `3-1.2`.
    Port(PortPath),
    /// Anything else: a serial number.
    Serial(String),
    /// `virtual:DIR`, or `virtual` for the one in the user's data folder.
    #[display("virtual{}", _0.as_ref().map(|dir| format!(":{}", dir.display())).unwrap_or_default())]
    Virtual(Option<PathBuf>),
}

impl Selector {
    /// Whether it selects this unit. A virtual unit is opened by its folder, not searched for.
    pub fn matches(&self, unit: &UnitInfo) -> bool {
        match self {
            Self::Port(port) => unit.location == Location::Port(port.clone()),
            Self::Serial(serial) => unit.serial.as_deref() == Some(serial),
            Self::Virtual(_) => false,
        }
    }

    /// The place of the virtual unit that it names; `None` if it names none, or if the system has no folder for it.
    pub fn virtual_place(&self) -> Option<Location> {
        let Self::Virtual(dir) = self else { return None };
        virtual_folder(dir.clone()).ok().map(Location::Virtual)
    }
}

impl From<&Location> for Selector {
    fn from(place: &Location) -> Self {
        match place {
            Location::Port(port) => Self::Port(port.clone()),
            Location::Virtual(dir) => Self::Virtual(Some(dir.clone())),
        }
    }
}

impl FromStr for Selector {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.strip_prefix("virtual") {
            Some("" | ":") => Self::Virtual(None),
            Some(dir) if dir.starts_with(':') => Self::Virtual(Some(PathBuf::from(&dir[1..]))),
            _ => match text.parse() {
                Ok(port) => Self::Port(port),
                Err(_) => Self::Serial(text.to_owned()),
            },
        })
    }
}

/// A unit that was selected, and its port.
pub struct Unit {
    /// What the unit reports about itself.
    pub info: UnitInfo,
    port: Box<dyn Port>,
}

impl Unit {
    /// The unit at this port.
    ///
    /// # Errors
    /// If it is away.
    pub fn at(mut port: Box<dyn Port>) -> Result<Self, AnyFailure> {
        Ok(Self { info: port.attached()?, port })
    }

    /// Opens the unit by the firmware that it runs: for SCSI commands, over `wanted` or else over the best that it
    /// offers, or for control requests. The result is its own: the port can be used meanwhile.
    ///
    /// # Errors
    /// If it is in its boot loader, or can't be opened. Leaves the unit to its kernel driver if its disk is in use.
    pub fn open(&mut self, purpose: Purpose, wanted: Option<TransportKind>) -> Result<Live, AnyFailure> {
        if self.info.state == BridgeState::BootLoader {
            return Err(purpose.no_firmware(&self.info.location.to_string()).into());
        }
        Live::over(&mut *self.port, self.info.state, wanted)
    }

    /// Finds this unit at its port again, after it has left the bus. Then it can be opened again.
    ///
    /// # Errors
    /// While it is away, or if another unit is at its port.
    pub fn find_again(&mut self) -> Result<(), AnyFailure> {
        let now = self.port.attached()?;
        if (now.id, &now.serial) != (self.info.id, &self.info.serial) {
            return Err(other_unit(&now).into());
        }
        self.info = now;
        Ok(())
    }

    /// Its port, for work during which it leaves the bus.
    pub fn port(&mut self) -> &mut dyn Port {
        &mut *self.port
    }

    /// Its port alone.
    pub fn into_port(self) -> Box<dyn Port> {
        self.port
    }
}

/// Lists every unit on this machine's buses: the devices whose ID is in `known`.
///
/// # Errors
/// If libusb does not work on this system.
pub fn list(known: &Arc<Devices>) -> Result<Vec<UnitInfo>, UsbError> {
    Ok(usb::discover(&known.known_units())?.into_iter().map(|found| found.info).collect())
}

/// Describes the named units, each once, in the order in which they are named.
///
/// # Errors
/// As for [`port`]. Leaves each unit to its kernel driver.
pub fn named(known: &Arc<Devices>, selectors: &[Selector]) -> Result<Vec<UnitInfo>, AnyFailure> {
    let mut units: Vec<UnitInfo> = Vec::with_capacity(selectors.len());
    for selector in selectors {
        let unit = choose(known, Some(selector), None)?.info;
        if units.iter().all(|other| other.location != unit.location) {
            units.push(unit);
        }
    }
    Ok(units)
}

/// Selects a unit; without a selector, the only one connected. `capture` records its traffic.
///
/// # Errors
/// As for [`port`].
pub fn choose(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Unit, AnyFailure> {
    Unit::at(port(known, selector, capture)?)
}

/// Selects this very unit again, at its place. `capture` is as for [`choose`].
///
/// # Errors
/// As for [`port`], and if another unit is there now.
pub fn again(known: &Arc<Devices>, info: &UnitInfo, capture: Option<&Capture>) -> Result<Unit, AnyFailure> {
    let port = port(known, Some(&Selector::from(&info.location)), capture)?;
    let mut unit = Unit { info: info.clone(), port };
    unit.find_again()?;
    Ok(unit)
}

/// The kind and code of the error if no unit is named and several are connected.
pub const SEVERAL: Label = Kind::Refused.code("asmpatch::device::several");

/// Returns the port of the selected unit, for work such as flashing, during which the unit leaves the bus. `capture` is
/// as for [`choose`].
///
/// # Errors
/// [`NoUnit`]; if none matches, or several; if the buses can't be searched or the virtual unit can't be opened. Nothing
/// was sent to any unit.
pub fn port(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Box<dyn Port>, AnyFailure> {
    if let Some(Selector::Virtual(dir)) = selector {
        let mut port = VirtualPort::open_dir(&virtual_folder(dir.clone())?)?;
        port.watch(monitors(capture));
        return Ok(Box::new(port));
    }
    let all = usb::discover(&known.known_units()).map_err(|error| unsearched(error, selector))?;
    if let Some(Selector::Port(port)) = selector
        && all.iter().all(|found| found.port != *port)
        && let Ok(Some(id)) = usb::id_at(port)
    {
        return Err(no_unit_at(port, id, &Sysfs::system()).into());
    }
    Ok(Box::new(usb_port(chosen(all, selector)?, capture)))
}

/// Returns the ports of every unit on this machine's buses. `capture` records each on a bus of its own.
///
/// # Errors
/// [`NoUnit`], and if the buses can't be searched.
pub fn ports(known: &Arc<Devices>, capture: Option<&Capture>) -> Result<Vec<Box<dyn Port>>, AnyFailure> {
    let found = usb::discover(&known.known_units())?;
    if found.is_empty() {
        return Err(NoUnit::now().into());
    }
    Ok(found.into_iter().map(|found| Box::new(usb_port(found, capture)) as Box<dyn Port>).collect())
}

fn usb_port(mut found: Found, capture: Option<&Capture>) -> UsbPort {
    found.monitors = monitors(capture);
    UsbPort::of(&found)
}

/// Returns the monitor that records one unit into a capture, on a bus of its own; none without a capture.
fn monitors(capture: Option<&Capture>) -> Monitors {
    let mut monitors = Monitors::default();
    if let Some(capture) = capture {
        monitors.add(capture.bus());
    }
    monitors
}

/// Returns the folder in which a virtual unit will be made, if that is what the selector names.
pub fn new_virtual(selector: Option<&Selector>) -> Option<PathBuf> {
    match selector?.virtual_place()? {
        Location::Virtual(dir) if VirtualUnit::is_new(&dir) => Some(dir),
        _ => None,
    }
}

/// The folder of a virtual unit; without a name, the one in the user's data folder. A leading `~` is the home folder.
///
/// # Errors
/// If the system names no such folder.
pub fn virtual_folder(dir: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let no_folder = |error: HomeDirError| {
        let label = Kind::Usage.code("asmpatch::device::no_data_folder");
        Failure::new(label, format!("no data folder for the virtual unit: {error}"))
    };
    if let Some(dir) = dir {
        // No shell expands the tilde behind `virtual:`.
        let Ok(below) = dir.strip_prefix("~") else { return Ok(dir) };
        return Ok(etcetera::home_dir().map_err(no_folder)?.join(below));
    }
    let strategy = etcetera::choose_base_strategy().map_err(no_folder)?;
    Ok(strategy.data_dir().join("asmpatch").join("virtual-bridge"))
}

/// Returns the keys of a virtual unit's bridge.toml that set it apart from a sound dock with a card. A dock has none.
pub fn set_keys(at: &Location) -> Vec<&'static str> {
    set_apart(at).iter().map(|key| key.name).collect()
}

/// Returns those of them that stop transfers again after each power-up.
pub fn set_faults(at: &Location) -> Vec<&'static str> {
    set_apart(at).iter().filter(|key| key.stops).map(|key| key.name).collect()
}

fn set_apart(at: &Location) -> Vec<SetKey> {
    match at {
        Location::Virtual(dir) => VirtualUnit::set_apart(dir),
        Location::Port(_) => Vec::new(),
    }
}

fn chosen(found: Vec<Found>, selector: Option<&Selector>) -> Result<Found, AnyFailure> {
    let infos = |found: &[Found]| found.iter().map(|found| found.info.clone()).collect::<Vec<_>>();
    let all = infos(&found);
    let mut matching = found;
    matching.retain(|found| selector.is_none_or(|selector| selector.matches(&found.info)));
    match (matching.len(), selector) {
        (1, _) => Ok(matching.remove(0)),
        (0, None) => Err(NoUnit::now().into()),
        (0, Some(selector)) => Err(no_match(selector, &all, &Sysfs::system()).into()),
        (count, None) => {
            let message = format!("{count} units are connected: {}", listed(&all));
            let error = Failure::new(SEVERAL, message);
            Err(naming_ports(error, &all).into())
        }
        (count, Some(serial)) => {
            let matching = infos(&matching);
            let message = format!("{count} units have the serial number {serial}: {}", listed(&matching));
            let error = Failure::new(Kind::Refused.code("asmpatch::device::ambiguous"), message);
            Err(naming_ports(error, &matching).into())
        }
    }
}

/// Gives the error the ports of these units.
fn naming_ports(error: Failure, units: &[UnitInfo]) -> Failure {
    units.iter().fold(error, |error, unit| error.naming(Named::Port(unit.location.to_string())))
}

/// No unit is connected over USB, and what of the host may be why.
#[derive(Debug, Default, Display)]
#[display("no ASM2464PD unit is connected{}", self.where_else())]
pub struct NoUnit {
    /// What is connected over USB4 or Thunderbolt, where a dock shows no USB device.
    pub tunnels: Tunnels,
    /// The USB-C ports that are the device, so that no dock can appear there.
    pub device_ports: Vec<DevicePort>,
}

impl Error for NoUnit {}

impl Coded for NoUnit {
    fn label(&self) -> Label {
        if self.tunnels.is_empty() {
            return Kind::Device.code("asmpatch::device::none");
        }
        if self.tunnels.awaits_authorisation().is_some() {
            return Kind::Device.code("asmpatch::device::unauthorised");
        }
        if self.tunnels.docks.is_empty() {
            return Kind::Device.code("asmpatch::device::tunnelled");
        }
        Kind::Device.code("asmpatch::device::tunnelled_dock")
    }

    /// Names the device that waits for its authorisation.
    fn named(&self) -> Vec<Named> {
        let uuid = self.tunnels.awaits_authorisation().and_then(|device| device.uuid.clone());
        uuid.map(Named::Uuid).into_iter().collect()
    }
}

impl NoUnit {
    /// Looks at the system's USB4, Thunderbolt and PCIe, and at the roles of its USB-C ports.
    pub fn now() -> Self {
        let system = Sysfs::system();
        Self { tunnels: system.tunnels(), device_ports: system.device_ports() }
    }

    /// What helps, besides what the error's code says.
    pub fn advice(&self) -> Vec<Advice> {
        self.device_ports.iter().cloned().map(Advice::BecomeHost).collect()
    }

    fn where_else(&self) -> String {
        if !self.tunnels.is_empty() {
            return format!(" over USB, but over USB4 or Thunderbolt: {}", self.tunnels);
        }
        let names: Vec<String> = self.device_ports.iter().map(|port| port.name.shown().to_string()).collect();
        match names.as_slice() {
            [] => String::new(),
            [name] => format!("; the USB-C port {name} is the device, not the host"),
            _ => format!("; the USB-C ports {} are the device, not the host", names.join(", ")),
        }
    }
}

/// The failure if the buses can't be searched for this unit. If the selector looks like a mistyped virtual unit, says
/// so instead.
fn unsearched(error: UsbError, selector: Option<&Selector>) -> AnyFailure {
    match selector {
        Some(selector) if other_name(&selector.to_string()).is_some() || !meant(selector).is_empty() => {
            no_match(selector, &[], &Sysfs::system()).into()
        }
        _ => error.into(),
    }
}

/// Returns what a name is that other tools have for a device; `None` for what may be a serial number.
fn other_name(name: &str) -> Option<&'static str> {
    let upper = name.to_uppercase();
    let number_of = |prefix: &str| {
        let number = upper.strip_prefix(prefix);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
    };
    let is_disk = |prefix: &str| {
        let rest = name.strip_prefix(prefix).unwrap_or_default();
        !rest.is_empty() && rest.len() <= 3 && rest.bytes().all(|c| c.is_ascii_lowercase())
    };
    if name.starts_with("/dev/") || name.starts_with(r"\\.\") {
        Some("a device node")
    } else if number_of("COM") {
        Some("a serial port")
    } else if is_disk("sd") || number_of("SG") {
        Some("a disk")
    } else if name.parse::<UsbId>().is_ok() {
        Some("a USB ID, which several docks may have")
    } else {
        None
    }
}

fn no_match(selector: &Selector, connected: &[UnitInfo], sysfs: &Sysfs) -> Failure {
    let name = selector.to_string();
    if let Some(what) = other_name(&name) {
        let label = Kind::Device.code("asmpatch::device::other_name");
        let is_it = |unit: &&UnitInfo| match &unit.location {
            Location::Port(port) => sysfs.is_node_of(name.as_ref(), port),
            Location::Virtual(_) => false,
        };
        return match connected.iter().find(is_it).map(|unit| unit.location.to_string()) {
            Some(port) => {
                let message = format!("{name} is {what}, not a unit's name; it belongs to the unit at {port}");
                Failure::new(label, message).naming(Named::Port(port))
            }
            None => Failure::new(label, format!("{name} is {what}, not a unit's name")),
        };
    }
    let meant = meant(selector);
    let connected = if connected.is_empty() { "none".to_owned() } else { listed(connected) };
    let message = format!("no unit matches {selector}{meant} (connected: {connected})");
    Failure::new(Kind::Device.code("asmpatch::device::no_match"), message)
}

/// The failure if a device that is not known as a unit is at the port that the user names.
fn no_unit_at(port: &PortPath, id: UsbId, sysfs: &Sysfs) -> Failure {
    if let Some(chip) = OtherChip::with(id) {
        let label = Kind::Refused.code("asmpatch::device::other_chip");
        return Failure::new(label, format!("{port}: {}", chip.refusal())).naming(Named::Port(port.to_string()));
    }
    let names = ["manufacturer", "product"].map(|name| sysfs.string(port, name).unwrap_or_default());
    let names = names.join(" ");
    let names = if names.trim().is_empty() { String::new() } else { format!(" ({})", names.trim().shown()) };
    let label = Kind::Device.code("asmpatch::device::unknown_id");
    let message = format!("{port}: {id}{names} is there, which is not known as an ASM2464PD unit's USB ID");
    Failure::new(label, message).naming(Named::Port(port.to_string())).naming(Named::UsbId(id.to_string()))
}

/// The failure if another unit has taken the place of the selected one.
fn other_unit(found: &UnitInfo) -> Failure {
    let number = match &found.serial {
        Some(serial) => format!("with serial number {serial}"),
        None => "without a serial number".to_owned(),
    };
    let message = format!("another unit is at {} now: {} {number}", found.location, found.id);
    Failure::new(Kind::Device.code("asmpatch::device::other"), message)
}

/// The question whether a virtual unit was meant. A port or a serial number that is near to another one may be another
/// dock's, so none is proposed.
fn meant(selector: &Selector) -> String {
    let selector = selector.to_string();
    let in_software = match selector.split_once(':') {
        Some((_, place)) => format!("virtual:{place}"),
        None => "virtual".to_owned(),
    };
    suggest::question(&selector, [&*in_software])
}

fn listed(found: &[UnitInfo]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use asm2464_chip::practice;
    use asm2464_dock::virtual_unit::{Scenario, VirtualUnit};

    use super::*;

    #[test]
    fn a_device_is_named_by_port_serial_or_folder() {
        let of = |text: &str| text.parse::<Selector>().unwrap();
        assert_eq!(of("3-1.2"), Selector::Port("3-1.2".parse().unwrap()));
        assert_eq!(of("AAAABBBB0060"), Selector::Serial("AAAABBBB0060".to_owned()));
        assert_eq!(of("virtual"), Selector::Virtual(None));
        assert_eq!(of("virtual:"), Selector::Virtual(None));
        assert_eq!(of("virtual:/tmp/unit"), Selector::Virtual(Some("/tmp/unit".into())));
        let home = etcetera::home_dir().unwrap();
        assert_eq!(virtual_folder(Some("~/docks/a".into())).unwrap(), home.join("docks/a"));
        for own in ["a/~/b", "~a", "/~"] {
            assert_eq!(virtual_folder(Some(own.into())).unwrap(), PathBuf::from(own));
        }
        assert_eq!(of("virtuality"), Selector::Serial("virtuality".to_owned()));
    }

    fn unit(serial: &str) -> Unit {
        let scenario = Scenario::parse(&format!("serial = '{serial}'\n")).unwrap();
        let image = practice::image().to_file();
        let unit = VirtualUnit::in_memory(scenario, serial.as_bytes(), Some(&image)).unwrap();
        Unit::at(Box::new(VirtualPort::new("u", unit))).unwrap()
    }

    #[test]
    fn a_unit_is_found_again_at_its_port_and_another_one_there_is_not_taken_for_it() {
        let mut first = unit("A");
        first.find_again().unwrap();
        let mut moved = Unit { info: first.info.clone(), port: unit("B").port };
        let error = moved.find_again().unwrap_err();
        assert_eq!(error.code(), "asmpatch::device::other");
        assert!(error.to_string().contains("with serial number B"), "{error}");
    }

    #[test]
    fn a_mistyped_virtual_unit_is_recognised_and_a_serial_number_with_a_colon_is_none() {
        let message = |text: &str| no_match(&text.parse().unwrap(), &[], &Sysfs::system()).to_string();
        assert!(message("vritual:dock").contains("did you mean `virtual:dock`?"), "{}", message("vritual:dock"));
        assert!(message("virtul").contains("did you mean `virtual`?"));
        assert!(!message("00:1B:21").contains("did you mean"), "{}", message("00:1B:21"));
    }

    #[test]
    fn a_port_or_a_serial_number_that_is_near_another_docks_is_never_guessed() {
        let connected = [crate::tests::unit("3-2", "LAB-08")];
        for named in ["3-1", "LAB-07"] {
            let message = no_match(&named.parse().unwrap(), &connected, &Sysfs::system()).to_string();
            assert!(message.contains("3-2") && !message.contains("did you mean"), "{message}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn another_tools_name_of_a_device_is_none_and_leads_to_its_own_unit_alone() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        for (port, disk, address) in [("3-1", "sda", "4"), ("3-1.2", "sdb", "5")] {
            let unit = sys.join("devices/usb3").join(port);
            let block = unit.join("1:0/host0/block").join(disk);
            let folders = ["bus/usb/devices", "class/block"].map(|folder| sys.join(folder));
            for folder in folders.iter().chain([&block]) {
                std::fs::create_dir_all(folder).unwrap();
            }
            std::os::unix::fs::symlink(&unit, folders[0].join(port)).unwrap();
            std::os::unix::fs::symlink(&block, folders[1].join(disk)).unwrap();
            std::fs::write(unit.join("busnum"), "3\n").unwrap();
            std::fs::write(unit.join("devnum"), format!("{address}\n")).unwrap();
        }
        let sysfs = Sysfs::at(sys, "/proc", "/dev");
        let connected = ["3-1", "3-1.2"].map(|port| crate::tests::unit(port, "A"));
        for (name, unit) in [
            ("/dev/sda", Some("3-1")),
            ("sdb", Some("3-1.2")),
            ("/dev/bus/usb/003/005", Some("3-1.2")),
            ("/dev/bus/usb/003/006", None),
            ("/dev/sdc", None),
            ("/dev/sg0", None),
            ("/dev/", None),
            ("COM3", None),
            (r"\\.\PHYSICALDRIVE1", None),
            ("174c:2464", None),
        ] {
            let error = no_match(&name.parse().unwrap(), &connected, &sysfs);
            assert_eq!(error.code(), "asmpatch::device::other_name", "{name}");
            let expected = unit.map(|port| Named::Port(port.to_owned()));
            assert_eq!(error.named(), expected.into_iter().collect::<Vec<_>>(), "{name}: {error}");
        }
        for serial in ["COMPUTER", "sdram-1", "AAAABBBB0060", "COM"] {
            assert_eq!(other_name(serial), None, "{serial}");
        }
    }

    #[test]
    fn a_device_that_is_no_unit_is_named_with_its_id_unless_that_is_another_chips() {
        let port: PortPath = "3-1".parse().unwrap();
        let sysfs = tempfile::tempdir().unwrap();
        let folder = sysfs.path().join("bus/usb/devices/3-1");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("product"), "Dock\u{1b}[2J\n").unwrap();
        let sysfs = Sysfs::at(sysfs.path(), "/proc", "/dev");
        let error = no_unit_at(&port, UsbId { vendor: 0x1234, product: 0xABCD }, &sysfs);
        assert_eq!(error.code(), "asmpatch::device::unknown_id");
        let message = error.to_string();
        assert!(message.starts_with("3-1: 1234:ABCD (Dock\\u{1b}[2J) is there"), "{message}");
        assert!(error.named().contains(&Named::UsbId("1234:ABCD".to_owned())));
        let other = no_unit_at(&port, UsbId { vendor: 0x174C, product: 0x2362 }, &sysfs);
        assert_eq!(other.code(), "asmpatch::device::other_chip");
        assert!(other.to_string().contains("another chip, ASM2362"), "{other}");
        assert!(!other.named().iter().any(|named| matches!(named, Named::UsbId(_))), "no option permits it");
    }

    #[test]
    fn a_mistyped_virtual_unit_is_recognised_where_usb_cant_be_used() {
        let message = |text: &str| {
            let error = UsbError::Gone { port: "3-1".parse().unwrap() };
            unsearched(error, Some(&text.parse().unwrap())).to_string()
        };
        assert!(message("virtul:m1").contains("did you mean `virtual:m1`?"), "{}", message("virtul:m1"));
        for other in ["3-1", "00:1B:21", "LAB-07"] {
            assert_eq!(message(other), "the unit at 3-1 was unplugged");
        }
    }
}
