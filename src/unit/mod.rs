//! A unit, real, virtual or recorded: lists, selects and opens it.
//!
//! Callers treat all three alike.

mod error;
mod live;
mod selector;
mod virtual_unit;

use asm2464::TransportKind;
use asm2464::firmware::BridgeState;
use asm2464_dock::pcap::Capture;
use asm2464_dock::record::ReplayPort;
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::{AnyTransport, Bridge, Location, OpenBridge, Port, Transport as _, UnitInfo, Watch};
use asm2464_host::usb::{self, Found, Layout, UsbError, UsbPort};
pub use error::ConnectError;
pub use live::{Live, Purpose, spare_ssd};
pub use selector::Selector;

use std::path::Path;
use std::sync::Arc;

use tracing::info;

use crate::devices::Devices;
use crate::failure::AnyFailure;
use crate::record;

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
/// [`ConnectError`], as when opening one. Leaves each unit to its kernel driver.
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

/// A unit that is selected but not opened yet, because what it runs decides how to open it.
pub struct Chosen {
    /// What the unit reports about itself.
    pub info: UnitInfo,
    /// Whether another unit had the same identity when this one was selected.
    has_twin: bool,
    port: ChosenPort,
}

enum ChosenPort {
    Virtual(VirtualPort),
    Replay(ReplayPort),
    Usb(Box<Found>),
}

impl Chosen {
    /// Opens the unit by the firmware that it runs: for SCSI commands, over `wanted` or else over the best that it
    /// offers, or for control requests.
    ///
    /// # Errors
    /// If it is in its boot loader; [`ConnectError`].
    pub fn open_for(&mut self, purpose: Purpose, wanted: Option<TransportKind>) -> Result<Live, AnyFailure> {
        Ok(match self.info.state {
            BridgeState::Vendor => Live::Vendor(self.open(wanted)?),
            BridgeState::OpenFirmware => Live::Open(self.open_control()?),
            BridgeState::BootLoader => return Err(purpose.no_firmware(&self.info.location.to_string()).into()),
        })
    }

    /// Opens the unit for SCSI commands, over `wanted` or else over the best that it offers. [`TransportKind::Uas`] is
    /// UAS with streams where the unit has them. A record is opened as it was made, whatever is wanted.
    ///
    /// # Errors
    /// [`ConnectError`]. Leaves the unit to its kernel driver if its disk is in use.
    pub fn open(&mut self, wanted: Option<TransportKind>) -> Result<Bridge<AnyTransport>, ConnectError> {
        let info = &self.info;
        let transport = match &mut self.port {
            ChosenPort::Virtual(port) => virtual_unit::open(port, info, wanted),
            ChosenPort::Replay(port) => Ok(port.transport()?),
            ChosenPort::Usb(found) => open_found(found, wanted),
        }?;
        let (kind, depth) = (transport.kind(), transport.max_depth());
        info!("{}: opened over {kind}, {depth} commands at once ({})", info.location, info.state);
        Ok(Bridge::new(transport))
    }

    /// Finds the unit again after it has left the bus, by its USB ID and serial number: at its port, or at another one.
    /// Then it can be opened again.
    ///
    /// # Errors
    /// [`ConnectError::None`] while it is away, also if another unit is at its port.
    pub fn find_again(&mut self, known: &Arc<Devices>) -> Result<(), ConnectError> {
        let ChosenPort::Usb(lost) = &mut self.port else { return Ok(()) };
        let mut found = usb::discover(&known.known_units())?;
        let index = position_of(&self.info, self.has_twin, found.iter().map(|other| &other.info));
        **lost = watched(found.swap_remove(index.ok_or(ConnectError::None)?), lost.watch.clone());
        self.info = lost.info.clone();
        Ok(())
    }

    /// Returns the port of this very unit, for work such as a restart, during which it leaves the bus.
    ///
    /// # Errors
    /// [`ConnectError`], as for [`find_again`](Self::find_again).
    pub fn into_port(mut self, known: &Arc<Devices>) -> Result<Box<dyn Port>, ConnectError> {
        self.find_again(known)?;
        Ok(match self.port {
            ChosenPort::Virtual(port) => Box::new(port),
            ChosenPort::Replay(port) => return Err(ConnectError::Record { location: port.location() }),
            ChosenPort::Usb(found) => Box::new(UsbPort::of(&found)),
        })
    }

    /// Opens the unit for the open firmware's control requests.
    ///
    /// # Errors
    /// [`ConnectError`]. Sends nothing to a unit that runs anything else.
    pub fn open_control(&mut self) -> Result<OpenBridge, ConnectError> {
        let bridge = match &mut self.port {
            ChosenPort::Virtual(port) => port.control()?,
            ChosenPort::Replay(port) => port.control()?,
            ChosenPort::Usb(found) => usb::control(found)?,
        };
        info!("{}: opened for control requests ({})", self.info.location, self.info.state);
        Ok(bridge)
    }
}

/// Selects a unit; without a selector, the only one connected. `capture` records its traffic.
///
/// # Errors
/// [`ConnectError`].
pub fn choose(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Chosen, ConnectError> {
    Ok(match selector {
        Some(Selector::Virtual(dir)) => {
            let (info, port) = virtual_unit::choose(dir.clone(), watch(capture))?;
            Chosen { info, has_twin: false, port: ChosenPort::Virtual(port) }
        }
        Some(Selector::Replay(file)) => {
            let port = replay_port(file, watch(capture))?;
            Chosen { info: port.info().clone(), has_twin: false, port: ChosenPort::Replay(port) }
        }
        _ => {
            let all = discovered(known, selector)?;
            let infos: Vec<UnitInfo> = all.iter().map(|found| found.info.clone()).collect();
            let found = watched(chosen(all, selector)?, watch(capture));
            let has_twin = infos.iter().filter(|other| is_same(other, &found.info)).count() > 1;
            Chosen { info: found.info.clone(), has_twin, port: ChosenPort::Usb(found.into()) }
        }
    })
}

/// Selects the unit at this place, whatever else is connected. `capture` is as for [`choose`].
///
/// # Errors
/// [`ConnectError`].
pub fn at(known: &Arc<Devices>, place: &Location, capture: Option<&Capture>) -> Result<Chosen, ConnectError> {
    let selector = match place {
        Location::Port(port) => Selector::Port(port.clone()),
        Location::Virtual(folder) => Selector::Virtual(Some(folder.clone())),
        Location::Replay(file) => Selector::Replay(file.clone()),
    };
    choose(known, Some(&selector), capture)
}

/// Selects this very unit again, at its place. `capture` is as for [`choose`].
///
/// # Errors
/// [`ConnectError::Other`] if another unit is there now; any other [`ConnectError`].
pub fn again(known: &Arc<Devices>, unit: &UnitInfo, capture: Option<&Capture>) -> Result<Chosen, ConnectError> {
    let chosen = at(known, &unit.location, capture)?;
    same(unit, &chosen.info)?;
    Ok(chosen)
}

fn same(expected: &UnitInfo, found: &UnitInfo) -> Result<(), ConnectError> {
    if is_same(expected, found) { Ok(()) } else { Err(ConnectError::Other { found: found.clone().into() }) }
}

/// Returns the port of the selected unit, for work such as flashing, during which the unit leaves the bus. `capture` is
/// as for [`choose`].
///
/// # Errors
/// [`ConnectError`]; [`ConnectError::Record`] for a record, which can't be changed.
pub fn port(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    capture: Option<&Capture>,
) -> Result<Box<dyn Port>, ConnectError> {
    if let Some(Selector::Replay(file)) = selector {
        return Err(ConnectError::Record { location: Location::Replay(file.clone()) });
    }
    examined_port(known, selector, watch(capture))
}

/// Returns the port of the selected unit, or of a record, for an examination. `watch` sees its transfers.
///
/// # Errors
/// [`ConnectError`].
pub fn examined_port(
    known: &Arc<Devices>,
    selector: Option<&Selector>,
    watch: Watch,
) -> Result<Box<dyn Port>, ConnectError> {
    Ok(match selector {
        Some(Selector::Virtual(dir)) => Box::new(virtual_unit::port(dir.clone(), watch)?),
        Some(Selector::Replay(file)) => Box::new(replay_port(file, watch)?),
        _ => {
            let found = chosen(discovered(known, selector)?, selector)?;
            Box::new(UsbPort::of(&watched(found, watch)))
        }
    })
}

/// Returns a watch that records one unit into a capture, on a bus of its own.
pub fn watch(capture: Option<&Capture>) -> Watch {
    let mut watch = Watch::default();
    if let Some(capture) = capture {
        watch.add(capture.bus());
    }
    watch
}

fn watched(mut found: Found, watch: Watch) -> Found {
    found.watch = watch;
    found
}

fn replay_port(file: &Path, watch: Watch) -> Result<ReplayPort, ConnectError> {
    let mut port = ReplayPort::new(record::load(file)?);
    port.watch(watch);
    Ok(port)
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
    let port = |found| Box::new(UsbPort::of(&watched(found, watch(capture)))) as Box<dyn Port>;
    Ok(found.into_iter().map(port).collect())
}

fn is_same(one: &UnitInfo, other: &UnitInfo) -> bool {
    (one.id, &one.serial) == (other.id, &other.serial)
}

/// Finds a unit that left the bus among those on it now. At another port it counts only if its serial number is unique.
fn position_of<'a>(lost: &UnitInfo, has_twin: bool, now: impl Iterator<Item = &'a UnitInfo>) -> Option<usize> {
    let same: Vec<_> = now.enumerate().filter(|(_, other)| is_same(other, lost)).collect();
    let at_its_port = same.iter().find(|(_, other)| other.location == lost.location);
    let moved = match &*same {
        [only] if !has_twin && lost.serial.is_some() => Some(only),
        _ => None,
    };
    at_its_port.or(moved).map(|(index, _)| *index)
}

/// The units on the buses, from which the selected one is to be chosen.
fn discovered(known: &Arc<Devices>, selector: Option<&Selector>) -> Result<Vec<Found>, ConnectError> {
    usb::discover(&known.known_units()).map_err(|error| ConnectError::unsearched(error, selector))
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

fn open_found(found: &Found, wanted: Option<TransportKind>) -> Result<AnyTransport, ConnectError> {
    // Held until the unit is taken, so that nobody mounts the disk in between.
    let _disk = usb::refuse_mounted(&found.port, &|disk| found.known.unchecked_disks.contains(disk))?;
    let location = || found.info.location.clone();
    let wants_uas = wanted.is_some_and(TransportKind::is_uas);
    if let Ok(Layout { uas: Err(fault), .. }) = &found.layout
        && wants_uas
    {
        return Err(ConnectError::NoUas { location: location(), fault: *fault });
    }
    let transport = usb::transport(found, wanted != Some(TransportKind::BulkOnly))?;
    if wants_uas && transport.kind() == TransportKind::BulkOnly {
        return Err(ConnectError::NoStreams { location: location() });
    }
    Ok(transport)
}

#[cfg(test)]
mod tests {
    use asm2464::Coded as _;
    use asm2464::firmware::UsbId;

    use super::*;

    fn unit(port: &str, serial: Option<&str>) -> UnitInfo {
        UnitInfo { id: UsbId::PATCHED, ..crate::tests::unit(port, serial.unwrap_or_default()) }
    }

    fn found(lost: &UnitInfo, has_twin: bool, now: &[UnitInfo]) -> Option<String> {
        position_of(lost, has_twin, now.iter()).map(|index| now[index].location.to_string())
    }

    #[test]
    fn a_unit_that_comes_back_is_found_at_its_port_or_by_a_serial_number_that_it_alone_has() {
        let lost = unit("2-1", Some("A"));
        let here = || unit("2-1", Some("A"));
        let moved = || unit("1-1", Some("A"));
        assert_eq!(found(&lost, false, &[unit("2-2", Some("B")), here()]).as_deref(), Some("2-1"));
        assert_eq!(found(&lost, false, &[unit("2-2", Some("B")), moved()]).as_deref(), Some("1-1"));
        // Both of a pair are back: its own port decides.
        assert_eq!(found(&lost, true, &[moved(), here()]).as_deref(), Some("2-1"));
    }

    #[test]
    fn no_other_unit_is_taken_for_one_that_has_left_the_bus() {
        let lost = unit("2-1", Some("A"));
        assert_eq!(found(&lost, false, &[]), None);
        // Another dock at its port, or another ID.
        assert_eq!(found(&lost, false, &[unit("2-1", Some("B"))]), None);
        let other_id = UnitInfo { id: UsbId { vendor: 0x174C, product: 0x2464 }, ..unit("2-1", Some("A")) };
        assert_eq!(found(&lost, false, &[other_id]), None);
        // Its twin, or one of two twins, at other ports: whether the unit has moved is not known.
        assert_eq!(found(&lost, true, &[unit("1-1", Some("A"))]), None);
        assert_eq!(found(&lost, false, &[unit("1-1", Some("A")), unit("1-2", Some("A"))]), None);
        // Without a serial number only the port tells.
        assert_eq!(found(&unit("2-1", None), false, &[unit("1-1", None)]), None);
        assert_eq!(found(&unit("2-1", None), false, &[unit("2-1", None)]).as_deref(), Some("2-1"));
    }

    #[test]
    fn another_unit_at_the_same_port_is_not_the_one_that_was_examined() {
        let examined = unit("2-1", Some("A"));
        assert!(same(&examined, &unit("2-1", Some("A"))).is_ok());
        let refused = same(&examined, &unit("2-1", Some("B"))).unwrap_err();
        assert_eq!(refused.code(), "asmpatch::device::other");
        assert_eq!(refused.to_string(), "another unit is at 2-1 now: ADD1:0001 with serial number B");
    }
}
