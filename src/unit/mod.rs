//! A unit, wherever it is: listed, chosen, opened.
//!
//! Above this everything is the same for a real unit and a virtual one.

mod error;
mod selector;
mod virtual_unit;

pub use error::OpenError;
pub use selector::{Selector, TransportChoice};

use std::sync::Arc;

use tracing::info;

use crate::bridge::{
    AnyTransport, Bridge, Location, OpenBridge, Port, PortPath, Transport as _, TransportKind, UnitInfo,
};
use crate::devices::Devices;
use crate::failure::AnyFailure;
use crate::pcap::Capture;
use crate::usb::{self, Found, Layout, UsbError, UsbPort};

/// An opened unit. Dropping it gives the unit back to the system.
pub struct Unit {
    info: UnitInfo,
    bridge: Bridge<AnyTransport>,
}

impl Unit {
    /// What it said of itself when it was opened.
    pub const fn info(&self) -> &UnitInfo {
        &self.info
    }

    /// The transport that was chosen.
    pub fn transport_kind(&mut self) -> TransportKind {
        self.bridge.transport_mut().kind()
    }

    /// Its commands.
    pub const fn bridge(&mut self) -> &mut Bridge<AnyTransport> {
        &mut self.bridge
    }
}

/// Every unit on this machine's buses: the devices whose ID is `known`.
///
/// # Errors
/// [`UsbError::Unavailable`].
pub fn list(known: &Arc<Devices>) -> Result<Vec<UnitInfo>, UsbError> {
    Ok(usb::discover(known)?.into_iter().map(|found| found.info).collect())
}

/// What the named units say of themselves, each once, in the order in which they are named.
///
/// # Errors
/// [`OpenError`], as for opening one; nothing is taken from the system.
pub fn named(known: &Arc<Devices>, selectors: &[Selector]) -> Result<Vec<UnitInfo>, OpenError> {
    let mut units: Vec<UnitInfo> = Vec::with_capacity(selectors.len());
    for selector in selectors {
        let unit = match selector {
            Selector::Virtual(dir) => virtual_unit::info(dir.clone())?,
            _ => chosen(usb::discover(known)?, Some(selector))?.info,
        };
        if units.iter().all(|other| other.location != unit.location) {
            units.push(unit);
        }
    }
    Ok(units)
}

/// A unit that runs open firmware, opened for its control requests. Dropping it gives the unit back to the system.
#[derive(Debug)]
pub struct OpenUnit {
    /// What it said of itself when it was opened.
    pub info: UnitInfo,
    /// Its requests.
    pub bridge: OpenBridge,
}

/// A unit that is chosen and not opened yet: what it runs decides how.
pub struct Chosen(Place);

enum Place {
    Virtual(virtual_unit::ChosenUnit),
    Usb(Found),
}

impl Chosen {
    /// What it says of itself.
    pub const fn info(&self) -> &UnitInfo {
        match &self.0 {
            Place::Virtual(unit) => &unit.info,
            Place::Usb(found) => &found.info,
        }
    }

    /// Opens it for SCSI commands.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is taken from the system where the unit's disk is in use.
    pub fn open(self, choice: TransportChoice) -> Result<Unit, OpenError> {
        let mut unit = match self.0 {
            Place::Virtual(unit) => unit.open(choice),
            Place::Usb(found) => open_found(found, choice),
        }?;
        let (kind, depth) = (unit.transport_kind(), unit.bridge.transport_mut().max_depth());
        info!("{}: opened over {kind}, {depth} commands at once ({})", unit.info.location, unit.info.state);
        Ok(unit)
    }

    /// Opens it for the open firmware's control requests.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is sent to a unit that runs anything else.
    pub fn open_control(self) -> Result<OpenUnit, OpenError> {
        let unit = match self.0 {
            Place::Virtual(unit) => unit.open_control()?,
            Place::Usb(found) => {
                let bridge = usb::control(&found)?;
                OpenUnit { info: found.info, bridge }
            }
        };
        info!("{}: opened for control requests ({})", unit.info.location, unit.info.state);
        Ok(unit)
    }
}

/// Chooses a unit; without a selector the only one there is. `capture` records the traffic of a virtual one.
///
/// # Errors
/// [`OpenError`].
pub fn choose(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Chosen, OpenError> {
    Ok(Chosen(match selector {
        Some(Selector::Virtual(dir)) => Place::Virtual(virtual_unit::choose(dir.clone(), capture)?),
        _ if capture.is_some() => return Err(OpenError::NotRecordable),
        _ => Place::Usb(chosen(usb::discover(known)?, selector)?),
    }))
}

/// The port of the chosen unit, for what outlives the unit's leaving the bus: flashing. `capture` is as for [`choose`].
///
/// # Errors
/// [`OpenError`].
pub fn port(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Box<dyn Port>, OpenError> {
    match selector {
        Some(Selector::Virtual(dir)) => Ok(Box::new(virtual_unit::port(dir.clone(), capture)?)),
        _ if capture.is_some() => Err(OpenError::NotRecordable),
        _ => Ok(Box::new(UsbPort::of(&chosen(usb::discover(known)?, selector)?))),
    }
}

/// What the unit at a port says of itself; nothing is taken from the system.
///
/// # Errors
/// Where nobody is attached.
pub fn of_port(port: &mut dyn Port) -> Result<UnitInfo, AnyFailure> {
    let attached = port.attached()?;
    let device = port.device();
    let path = device.parse::<PortPath>().ok();
    Ok(UnitInfo {
        driver: path.as_ref().and_then(|path| usb::sysfs::Sysfs::system().driver(path)),
        location: match path {
            Some(path) => Location::Port(path),
            None => Location::Virtual(device.strip_prefix("virtual:").unwrap_or(&device).into()),
        },
        id: attached.usb_id,
        state: attached.state,
        manufacturer: attached.manufacturer,
        product: attached.product,
        serial: Some(attached.serial).filter(|serial| !serial.is_empty()),
        speed: port.speed()?,
    })
}

/// The ports of every unit on this machine's buses.
///
/// # Errors
/// [`OpenError::None`] if no unit is attached.
pub fn ports(known: &Arc<Devices>) -> Result<Vec<Box<dyn Port>>, OpenError> {
    let found = usb::discover(known)?;
    if found.is_empty() {
        return Err(OpenError::None);
    }
    Ok(found.iter().map(|found| Box::new(UsbPort::of(found)) as Box<dyn Port>).collect())
}

fn chosen(found: Vec<Found>, selector: Option<&Selector>) -> Result<Found, OpenError> {
    let infos = |found: &[Found]| found.iter().map(|found| found.info.clone()).collect::<Vec<_>>();
    let all = infos(&found);
    let matching: Vec<Found> =
        found.into_iter().filter(|found| selector.is_none_or(|selector| selector.matches(&found.info))).collect();
    let matched = infos(&matching);
    let mut matching = matching.into_iter();
    match (matching.next(), matching.next(), selector) {
        (Some(only), None, _) => Ok(only),
        (None, _, None) => Err(OpenError::None),
        (None, _, Some(selector)) => Err(OpenError::NoMatch { selector: selector.clone(), found: all }),
        (Some(_), Some(_), None) => Err(OpenError::Several { found: matched }),
        (Some(_), Some(_), Some(selector)) => Err(OpenError::Ambiguous { selector: selector.clone(), found: matched }),
    }
}

fn open_found(found: Found, choice: TransportChoice) -> Result<Unit, OpenError> {
    // Held until the unit is taken: nobody mounts the disk in between.
    let _disk = usb::refuse_mounted(&found.port)?;
    if let (TransportChoice::Uas, Ok(Layout { uas: Err(fault), .. })) = (choice, &found.layout) {
        return Err(OpenError::NoUas { location: found.info.location, fault: *fault });
    }
    let transport = usb::transport(&found, choice != TransportChoice::Bot)?;
    if choice == TransportChoice::Uas && transport.kind() == TransportKind::BulkOnly {
        return Err(OpenError::NoStreams { location: found.info.location });
    }
    Ok(Unit { info: found.info, bridge: Bridge::new(transport) })
}
