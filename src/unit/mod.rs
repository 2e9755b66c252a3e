//! A unit, real or virtual: lists, selects and opens it.
//!
//! The code above this module treats real and virtual units alike.

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
    /// Returns what the unit reported about itself when it was opened.
    pub const fn info(&self) -> &UnitInfo {
        &self.info
    }

    /// Returns the transport that was chosen.
    pub fn transport_kind(&mut self) -> TransportKind {
        self.bridge.transport_mut().kind()
    }

    /// Returns the bridge, for sending commands.
    pub const fn bridge(&mut self) -> &mut Bridge<AnyTransport> {
        &mut self.bridge
    }
}

/// Lists every unit on this machine's buses: the devices whose ID is in `known`.
///
/// # Errors
/// [`UsbError::Unavailable`].
pub fn list(known: &Arc<Devices>) -> Result<Vec<UnitInfo>, UsbError> {
    Ok(usb::discover(known)?.into_iter().map(|found| found.info).collect())
}

/// Describes the named units, each once, in the order in which they are named.
///
/// # Errors
/// [`OpenError`], as when opening one. Takes nothing from the system.
pub fn named(known: &Arc<Devices>, selectors: &[Selector]) -> Result<Vec<UnitInfo>, OpenError> {
    let mut units: Vec<UnitInfo> = Vec::with_capacity(selectors.len());
    for selector in selectors {
        let unit = match selector {
            Selector::Virtual(dir) => virtual_unit::choose(dir.clone(), None)?.info,
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
    /// What the unit reported about itself when it was opened.
    pub info: UnitInfo,
    /// The bridge, for sending requests.
    pub bridge: OpenBridge,
}

/// A unit that is selected but not opened yet, because what it runs decides how to open it.
pub struct Chosen(ChosenPort);

enum ChosenPort {
    Virtual(virtual_unit::ChosenUnit),
    Usb(Found),
}

impl Chosen {
    /// Returns what the unit reports about itself.
    pub const fn info(&self) -> &UnitInfo {
        match &self.0 {
            ChosenPort::Virtual(unit) => &unit.info,
            ChosenPort::Usb(found) => &found.info,
        }
    }

    /// Opens the unit for SCSI commands.
    ///
    /// # Errors
    /// [`OpenError`]. Takes nothing from the system if the unit's disk is in use.
    pub fn open(self, choice: TransportChoice) -> Result<Unit, OpenError> {
        let mut unit = match self.0 {
            ChosenPort::Virtual(unit) => unit.open(choice),
            ChosenPort::Usb(found) => open_found(found, choice),
        }?;
        let (kind, depth) = (unit.transport_kind(), unit.bridge.transport_mut().max_depth());
        info!("{}: opened over {kind}, {depth} commands at once ({})", unit.info.location, unit.info.state);
        Ok(unit)
    }

    /// Opens the unit for the open firmware's control requests.
    ///
    /// # Errors
    /// [`OpenError`]. Sends nothing to a unit that runs anything else.
    pub fn open_control(self) -> Result<OpenUnit, OpenError> {
        let unit = match self.0 {
            ChosenPort::Virtual(unit) => unit.open_control()?,
            ChosenPort::Usb(found) => {
                let bridge = usb::control(&found)?;
                OpenUnit { info: found.info, bridge }
            }
        };
        info!("{}: opened for control requests ({})", unit.info.location, unit.info.state);
        Ok(unit)
    }
}

/// Selects a unit; without a selector, the only one connected. `capture` records the traffic of a virtual one.
///
/// # Errors
/// [`OpenError`].
pub fn choose(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Chosen, OpenError> {
    Ok(Chosen(match selector {
        Some(Selector::Virtual(dir)) => ChosenPort::Virtual(virtual_unit::choose(dir.clone(), capture)?),
        _ if capture.is_some() => return Err(OpenError::NotRecordable),
        _ => ChosenPort::Usb(chosen(usb::discover(known)?, selector)?),
    }))
}

/// Returns the port of the selected unit, for work such as flashing, during which the unit leaves the bus. `capture` is
/// as for [`choose`].
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

/// Returns what the unit at a port reports about itself. Takes nothing from the system.
///
/// # Errors
/// Fails if no unit is attached.
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

/// Returns the ports of every unit on this machine's buses.
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
    // Held until the unit is taken, so that nobody mounts the disk in between.
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
