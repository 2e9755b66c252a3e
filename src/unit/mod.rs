//! A unit, wherever it is: chosen, opened, waited for.
//!
//! Above this everything is the same for a real unit and a virtual one.

mod error;
mod selector;

use std::time::{Duration, Instant};

pub use error::OpenError;
pub use selector::{Selector, TransportChoice};

use crate::bridge::{AnyTransport, Bridge, Location, PortPath, Transport as _, TransportKind, UnitInfo};
use crate::interrupt::Interrupt;
use crate::usb::sysfs::{DiskUse, Sysfs};
use crate::usb::{self, Found, Layout, UsbError, Watch};

/// How long after its return a unit may still belong to udev, which sets the permissions, or to the kernel's driver,
/// which asks it who it is.
const SETTLING: Duration = Duration::from_secs(10);
/// How often a unit that settles is tried. Five of these pass between two looks at the bus where no event comes.
const TICK: Duration = Duration::from_millis(100);

/// An opened unit. Dropping it gives the unit back to the system.
pub struct Unit {
    info: UnitInfo,
    bridge: Bridge<AnyTransport>,
    place: Place,
}

/// What finds the unit again.
enum Place {
    Port { port: PortPath, address: u8 },
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

    /// After E8 or a reset: waits until the unit has left the bus and come back to the same place, and opens it.
    ///
    /// # Errors
    /// [`OpenError::NoReturn`] after `deadline`; [`OpenError::Interrupted`] when asked to stop.
    pub fn reopened(
        self,
        choice: TransportChoice,
        deadline: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Self, OpenError> {
        let Self { bridge, place, .. } = self;
        // Given back before it leaves, so that nothing of it is held when it returns.
        drop(bridge);
        match place {
            Place::Port { port, address } => {
                wait_for_return(&port, address, deadline, interrupt)?;
                open_settled(&port, choice, interrupt)
            }
        }
    }
}

/// Every unit that can be seen on this machine's buses.
///
/// # Errors
/// [`UsbError::Unavailable`].
pub fn list() -> Result<Vec<UnitInfo>, UsbError> {
    Ok(usb::discover()?.into_iter().map(|found| found.info).collect())
}

/// What uses the disks behind a unit. Only Linux tells; elsewhere the system itself keeps a mounted disk from being
/// taken.
pub fn disk_uses(unit: &UnitInfo) -> Vec<DiskUse> {
    match &unit.location {
        Location::Port(port) => Sysfs::system().uses(port),
        Location::Virtual(_) => Vec::new(),
    }
}

/// Opens the chosen unit; without a choice the only one there is.
///
/// # Errors
/// [`OpenError`]; nothing is taken from the system where the unit's disk is in use.
pub fn open(selector: Option<&Selector>, choice: TransportChoice) -> Result<Unit, OpenError> {
    let found = usb::discover()?;
    open_found(chosen(found, selector)?, choice)
}

fn chosen(found: Vec<Found>, selector: Option<&Selector>) -> Result<Found, OpenError> {
    let infos = |found: &[Found]| found.iter().map(|found| found.info.clone()).collect::<Vec<_>>();
    let Some(selector) = selector else {
        let all = infos(&found);
        let mut found = found.into_iter();
        return match (found.next(), found.next()) {
            (None, _) => Err(OpenError::None),
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(OpenError::Several { found: all }),
        };
    };
    let all = infos(&found);
    let matching: Vec<Found> = found.into_iter().filter(|found| selector.matches(&found.info)).collect();
    let matched = infos(&matching);
    let mut matching = matching.into_iter();
    match (matching.next(), matching.next()) {
        (None, _) => Err(OpenError::NoMatch { selector: selector.clone(), found: all }),
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(OpenError::Ambiguous { selector: selector.clone(), found: matched }),
    }
}

fn open_found(found: Found, choice: TransportChoice) -> Result<Unit, OpenError> {
    let uses = disk_uses(&found.info);
    if !uses.is_empty() {
        return Err(OpenError::Mounted { location: found.info.location, uses });
    }
    if let (TransportChoice::Uas, Ok(Layout { uas: Err(fault), .. })) = (choice, &found.layout) {
        return Err(OpenError::NoUas { location: found.info.location, fault: *fault });
    }
    let transport = usb::transport(&found)?;
    let place = Place::Port { port: found.port.clone(), address: found.address() };
    Ok(Unit { info: found.info, bridge: Bridge::new(transport), place })
}

/// A unit that has just come back.
fn open_settled(port: &PortPath, choice: TransportChoice, interrupt: Interrupt<'_>) -> Result<Unit, OpenError> {
    let selector = Selector::Port(port.clone());
    let until = Instant::now() + SETTLING;
    loop {
        match open(Some(&selector), choice) {
            Err(
                OpenError::Usb(UsbError::Permission { .. } | UsbError::Busy { .. } | UsbError::Gone { .. })
                | OpenError::NoMatch { .. },
            ) if Instant::now() < until => {
                interrupt.check()?;
                std::thread::sleep(TICK);
            }
            other => return other,
        }
    }
}

fn wait_for_return(
    port: &PortPath,
    address: u8,
    deadline: Duration,
    interrupt: Interrupt<'_>,
) -> Result<(), OpenError> {
    let watch = Watch::new()?;
    let until = Instant::now() + deadline;
    let mut left = false;
    loop {
        match usb::discover()?.into_iter().find(|found| found.port == *port) {
            Some(found) if left || found.address() != address => return Ok(()),
            Some(_) => {}
            None => left = true,
        }
        interrupt.check()?;
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(OpenError::NoReturn { location: Location::Port(port.clone()), deadline, left });
        }
        watch.wait(rest.min(TICK * 5));
    }
}
