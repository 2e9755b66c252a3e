//! A unit, real or virtual: lists, selects and opens it. Callers treat both alike.
//!
//! A [`Selector`] names a unit, [`choose`] finds it, and [`Unit::open`] opens it by the firmware that it runs, as a
//! [`Live`]. A unit is known by its port: while it restarts or changes its identity, its port stays.

pub mod ask;
mod error;
pub mod facts;
pub mod host;
mod live;

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use asm2464::TransportKind;
use asm2464::firmware::BridgeState;
use asm2464_dock::pcap::Capture;
use asm2464_dock::virtual_unit::{VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Location, Port, PortPath, UnitInfo, Watch};
use asm2464_host::usb::{self, Found, UsbError, UsbPort};
use derive_more::Display;
use etcetera::BaseStrategy as _;

pub use error::ConnectError;
pub use live::{Live, Purpose, spare_ssd};

use crate::devices::Devices;
use crate::failure::AnyFailure;

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
    fn at(mut port: Box<dyn Port>) -> Result<Self, ConnectError> {
        Ok(Self { info: port.attached()?, port })
    }

    /// Opens the unit by the firmware that it runs: for SCSI commands, over `wanted` or else over the best that it
    /// offers, or for control requests. The result is its own: the port can be used meanwhile.
    ///
    /// # Errors
    /// If it is in its boot loader; [`PortError`](asm2464_host::bridge::PortError). Leaves the unit to its kernel driver
    /// if its disk is in use.
    pub fn open(&mut self, purpose: Purpose, wanted: Option<TransportKind>) -> Result<Live, AnyFailure> {
        if self.info.state == BridgeState::BootLoader {
            return Err(purpose.no_firmware(&self.info.location.to_string()).into());
        }
        Ok(Live::over(&mut *self.port, self.info.state, wanted)?)
    }

    /// Finds this unit at its port again, after it has left the bus. Then it can be opened again.
    ///
    /// # Errors
    /// While it is away; [`ConnectError::Other`] if another unit is at its port.
    pub fn find_again(&mut self) -> Result<(), ConnectError> {
        let now = self.port.attached()?;
        if (now.id, &now.serial) != (self.info.id, &self.info.serial) {
            return Err(ConnectError::Other { found: now.into() });
        }
        self.info = now;
        Ok(())
    }

    /// Its port, for work during which it leaves the bus.
    pub fn port(&mut self) -> &mut dyn Port {
        &mut *self.port
    }
}

/// Lists every unit on this machine's buses: the devices whose ID is in `known`.
///
/// # Errors
/// [`UsbError::Unavailable`].
pub fn list(known: &Arc<Devices>) -> Result<Vec<UnitInfo>, UsbError> {
    Ok(usb::discover(&known.known_units())?.into_iter().map(|found| found.info).collect())
}

/// Describes the named units, each once, in the order in which they are named.
///
/// # Errors
/// [`ConnectError`]. Leaves each unit to its kernel driver.
pub fn named(known: &Arc<Devices>, selectors: &[Selector]) -> Result<Vec<UnitInfo>, ConnectError> {
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
/// [`ConnectError`].
pub fn choose(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Unit, ConnectError> {
    Unit::at(port(known, selector, capture)?)
}

/// Selects this very unit again, at its place. `capture` is as for [`choose`].
///
/// # Errors
/// [`ConnectError::Other`] if another unit is there now; any other [`ConnectError`].
pub fn again(known: &Arc<Devices>, info: &UnitInfo, capture: Option<&Capture>) -> Result<Unit, ConnectError> {
    let port = port(known, Some(&Selector::from(&info.location)), capture)?;
    let mut unit = Unit { info: info.clone(), port };
    unit.find_again()?;
    Ok(unit)
}

/// Returns the port of the selected unit, for work such as flashing, during which the unit leaves the bus. `capture` is
/// as for [`choose`].
///
/// # Errors
/// [`ConnectError`].
pub fn port(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Box<dyn Port>, ConnectError> {
    if let Some(Selector::Virtual(dir)) = selector {
        let mut port = VirtualPort::open_dir(&virtual_folder(dir.clone())?)?;
        port.watch(watch(capture));
        return Ok(Box::new(port));
    }
    let all = usb::discover(&known.known_units()).map_err(|error| ConnectError::unsearched(error, selector))?;
    Ok(Box::new(usb_port(chosen(all, selector)?, capture)))
}

/// Returns the ports of every unit on this machine's buses. `capture` records each on a bus of its own.
///
/// # Errors
/// [`ConnectError::None`] or [`ConnectError::Tunnelled`] if no unit is attached.
pub fn ports(known: &Arc<Devices>, capture: Option<&Capture>) -> Result<Vec<Box<dyn Port>>, ConnectError> {
    let found = usb::discover(&known.known_units())?;
    if found.is_empty() {
        return Err(ConnectError::none());
    }
    Ok(found.into_iter().map(|found| Box::new(usb_port(found, capture)) as Box<dyn Port>).collect())
}

fn usb_port(mut found: Found, capture: Option<&Capture>) -> UsbPort {
    found.watch = watch(capture);
    UsbPort::of(&found)
}

/// Returns a watch that records one unit into a capture, on a bus of its own.
fn watch(capture: Option<&Capture>) -> Watch {
    let mut watch = Watch::default();
    if let Some(capture) = capture {
        watch.add(capture.bus());
    }
    watch
}

/// Returns the folder in which a virtual unit will be made, if that is what the selector names.
pub fn new_virtual(selector: Option<&Selector>) -> Option<PathBuf> {
    let Some(Selector::Virtual(dir)) = selector else { return None };
    virtual_folder(dir.clone()).ok().filter(|dir| VirtualUnit::is_new(dir))
}

/// The folder of a virtual unit; without a name, the one in the user's data folder. A leading `~` is the home folder.
///
/// # Errors
/// [`ConnectError::NoDataFolder`].
pub fn virtual_folder(dir: Option<PathBuf>) -> Result<PathBuf, ConnectError> {
    if let Some(dir) = dir {
        // No shell expands the tilde behind `virtual:`.
        let Ok(below) = dir.strip_prefix("~") else { return Ok(dir) };
        let home = etcetera::home_dir().map_err(|error| ConnectError::NoDataFolder(error.to_string()))?;
        return Ok(home.join(below));
    }
    let strategy = etcetera::choose_base_strategy().map_err(|error| ConnectError::NoDataFolder(error.to_string()))?;
    Ok(strategy.data_dir().join("asmpatch").join("virtual-bridge"))
}

fn chosen(found: Vec<Found>, selector: Option<&Selector>) -> Result<Found, ConnectError> {
    let infos = |found: &[Found]| found.iter().map(|found| found.info.clone()).collect::<Vec<_>>();
    let all = infos(&found);
    let mut matching = found;
    matching.retain(|found| selector.is_none_or(|selector| selector.matches(&found.info)));
    match (matching.len(), selector) {
        (1, _) => Ok(matching.remove(0)),
        (0, None) => Err(ConnectError::none()),
        (0, Some(selector)) => Err(ConnectError::NoMatch { selector: selector.clone(), found: all }),
        (_, None) => Err(ConnectError::Several { found: all }),
        (_, Some(selector)) => Err(ConnectError::Ambiguous { selector: selector.clone(), found: infos(&matching) }),
    }
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
        assert_eq!(asm2464::Coded::code(&error), "asmpatch::device::other");
        assert!(error.to_string().contains("with serial number B"), "{error}");
    }
}
