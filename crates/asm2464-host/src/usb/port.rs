//! A USB port with a bridge. It finds its unit again after the unit has changed its identity.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind, TransportKind};
use tracing::info;

use super::descriptors::Layout;
use super::device::open_bulk_only;
use super::discovery::{Found, HotplugWatch, find_at, find_in};
use super::error::UsbError;
use super::gate::GATE;
use super::lock::UnitLock;
use super::sysfs::{Sysfs, refuse_mounted};
use super::{KnownUnits, power};
use crate::bridge::{Bridge, Location, Monitors, OpenBridge, Port, PortPath, UnitInfo};

/// Time for which a unit that has just restarted may be busy: udev sets its permissions, and the kernel's driver
/// identifies it.
const SETTLING: Duration = Duration::from_secs(10);
/// Interval between attempts to open a settling unit, and between looks at the buses without events.
const TICK: Duration = Duration::from_millis(200);

/// A port of this machine.
#[derive(Debug, Clone)]
pub struct UsbPort {
    port: PortPath,
    /// USB IDs under which a unit may come back.
    known: Arc<KnownUnits>,
    /// What watches the unit's transfers.
    monitors: Monitors,
    /// Address of the unit seen last. A unit that comes back has another one.
    seen: Option<u8>,
    /// Address of the boot loader whose port was reset, which it needs once.
    woken: Option<u8>,
    /// The lock of the unit that was opened last, which stays while it is closed and while it restarts.
    lock: Option<UnitLock>,
    /// Whether the disk behind the unit was opened exclusively at the last open.
    is_disk_checked: bool,
    /// Until then the system may be busy with a unit that has just restarted.
    settles_until: Option<Instant>,
    /// Ends the wait for that. It never does if the wait for the restart could not be interrupted, either.
    interrupt: Interrupt<'static>,
    /// Whether the user vouches for the disk behind the unit. This includes the disk that appears when the unit comes
    /// back, whatever its name.
    is_vouched_for: bool,
}

impl UsbPort {
    /// The port at which this unit was found.
    pub fn of(found: &Found) -> Self {
        Self {
            port: found.port.clone(),
            known: found.known.clone(),
            monitors: found.monitors.clone(),
            seen: Some(found.address()),
            woken: None,
            lock: None,
            is_disk_checked: true,
            settles_until: None,
            interrupt: Interrupt::never(),
            is_vouched_for: false,
        }
    }

    /// The attached unit.
    fn found(&self) -> Result<Found, UsbError> {
        let found = find_at(&self.port, &self.known)?.ok_or_else(|| UsbError::Gone { port: self.port.clone() })?;
        Ok(Found { monitors: self.monitors.clone(), ..found })
    }

    /// Lets a unit that has restarted settle.
    fn back(&mut self, info: UnitInfo) -> UnitInfo {
        info!("{}: {} is attached ({})", info.location, info.id, info.state);
        self.settles_until = Some(Instant::now() + SETTLING);
        info
    }

    fn try_open(&mut self, wanted: Option<TransportKind>) -> Result<Bridge, UsbError> {
        let found = self.found()?;
        self.lock = Some(UnitLock::take(&self.port)?);
        let (state, wants_uas) = (found.info.state, wanted.is_some_and(TransportKind::is_uas));
        if let Ok(Layout { uas: Err(fault), .. }) = found.layout
            && wants_uas
        {
            let message = format!("the unit at {} offers no UAS: {fault}", self.port);
            return Err(Failure::new(Kind::Device.code("asm2464::usb::no_uas"), message).into());
        }
        if wanted == Some(TransportKind::BulkOnly) || state == BridgeState::BootLoader {
            let device = open_bulk_only(&found, self.woken == Some(found.address()))?;
            // The reset of a boot loader's port may have changed its address.
            self.seen = Some(device.address());
            self.woken = if state == BridgeState::BootLoader { self.seen } else { None };
            return Ok(Bridge::new(super::bulk_only(&found, device)?, state));
        }
        let transport = super::best_transport(&found)?;
        if wants_uas && transport.kind() == TransportKind::BulkOnly {
            let message = format!("UAS needs bulk streams, and the system provides none for the unit at {}", self.port);
            return Err(Failure::new(Kind::Device.code("asm2464::usb::no_streams"), message).into());
        }
        self.seen = Some(found.address());
        Ok(Bridge::new(transport, state))
    }

    /// Opens the unit. Retries only while a unit that has just restarted settles, until Ctrl-C: see `SETTLING`.
    fn open_when_settled<T>(
        &mut self,
        mut try_open: impl FnMut(&mut Self) -> Result<T, UsbError>,
    ) -> Result<T, AnyFailure> {
        loop {
            let settles = self.settles_until.is_some_and(|until| Instant::now() < until);
            // Held until the unit is taken, so that nobody mounts the disk in between.
            let is_vouched_for = |disk: &str| self.known.unchecked_disks.contains(disk) || self.is_vouched_for;
            let why = match refuse_mounted(&self.port, &is_vouched_for) {
                Ok(disk) => {
                    self.is_disk_checked = disk.is_checked;
                    self.is_vouched_for |=
                        Sysfs::system().disks(&self.port).iter().any(|disk| self.known.unchecked_disks.contains(disk));
                    match try_open(self) {
                        Err(error) if settles && error.may_pass() => error.to_string(),
                        other => return Ok(other?),
                    }
                }
                Err(refused) if settles && refused.may_pass() => refused.to_string(),
                Err(refused) => return Err(refused.into()),
            };
            self.interrupt.check()?;
            info!("{why}: the unit has just restarted, trying again");
            std::thread::sleep(TICK);
        }
    }
}

impl Port for UsbPort {
    fn location(&self) -> Location {
        Location::Port(self.port.clone())
    }

    fn attached(&mut self) -> Result<UnitInfo, AnyFailure> {
        let found = self.found()?;
        self.seen = Some(found.address());
        Ok(found.info)
    }

    fn descriptors(&mut self) -> Option<Vec<u8>> {
        Sysfs::system().descriptors(&self.port)
    }

    fn open_over(&mut self, wanted: Option<TransportKind>) -> Result<Bridge, AnyFailure> {
        let mut bridge = self.open_when_settled(|port| port.try_open(wanted))?;
        info!("{}: opened over {}", self.port, bridge.transport_mut().kind());
        Ok(bridge)
    }

    fn open_control(&mut self) -> Result<OpenBridge, AnyFailure> {
        let bridge = self.open_when_settled(|port| {
            let found = port.found()?;
            port.seen = Some(found.address());
            port.lock = Some(UnitLock::take(&port.port)?);
            super::control(&found)
        })?;
        info!("{}: opened for control requests", self.port);
        Ok(bridge)
    }

    fn is_disk_checked(&self) -> bool {
        self.is_disk_checked
    }

    fn power_cycle(&mut self) -> Result<bool, AnyFailure> {
        let connector = power::connector(&self.port)?;
        let source = match power::cycle(&connector, power::OFF_FOR, &power::SWITCHED_OFF, &GATE) {
            Ok(is_cycled) => return Ok(is_cycled),
            Err(source) => source,
        };
        let Some(port) = power::SWITCHED_OFF.left().into_iter().next() else {
            return Err(UsbError::of("switch the power of", &self.port, source).into());
        };
        let message =
            format!("the power of the hub's port {port} was switched off, and can't be switched on again: {source}");
        Err(Failure::new(Kind::Device.code("asm2464::usb::port_left_off"), message).into())
    }

    fn wait_for_return(
        &mut self,
        deadline: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<UnitInfo>, AnyFailure> {
        self.interrupt = if interrupt.can_ask() { Interrupt::of_process() } else { Interrupt::never() };
        let watch = HotplugWatch::new()?;
        let until = crate::bridge::deadline(deadline);
        // A retrained link may come up at the other speed. The unit is then on the connector's other port.
        let peer = Sysfs::system().peer(&self.port);
        let mut away = false;
        loop {
            match find_in(&watch.context, &self.port, &self.known)? {
                Some(found) if away || self.seen != Some(found.address()) => return Ok(Some(self.back(found.info))),
                Some(_) => {}
                None if !away => {
                    info!("{}: left the bus", self.port);
                    away = true;
                }
                None => {}
            }
            if away
                && let Some(peer) = &peer
                && let Some(found) = find_in(&watch.context, peer, &self.known)?
            {
                (self.port, self.seen) = (peer.clone(), Some(found.address()));
                return Ok(Some(self.back(found.info)));
            }
            let rest = until.saturating_duration_since(Instant::now());
            if interrupt.is_requested() || rest.is_zero() {
                return Ok(None);
            }
            watch.wait(rest.min(TICK));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A port that no machine has, so nothing there is in use.
    fn port(settles_until: Option<Instant>, interrupt: Interrupt<'static>) -> UsbPort {
        UsbPort {
            port: "99-9".parse().unwrap(),
            known: Arc::new(KnownUnits::default()),
            monitors: Monitors::default(),
            seen: None,
            woken: None,
            lock: None,
            is_disk_checked: true,
            is_vouched_for: false,
            settles_until,
            interrupt,
        }
    }

    fn errors(port: &PortPath) -> [UsbError; 3] {
        let at = || port.clone();
        [
            UsbError::NoAccess { port: at(), why: None },
            UsbError::Busy { port: at(), users: Vec::new(), lock: None },
            UsbError::Gone { port: at() },
        ]
    }

    #[test]
    fn a_unit_that_has_not_restarted_is_tried_once_and_the_error_comes_at_once() {
        for settled in [None, Some(Instant::now())] {
            let mut port = port(settled, Interrupt::never());
            for error in errors(&port.port.clone()) {
                let mut attempts = 0;
                let opened = port.open_when_settled(|_| {
                    attempts += 1;
                    Err::<(), _>(error.clone())
                });
                let failure = opened.unwrap_err();
                assert_eq!((attempts, failure.to_string()), (1, error.to_string()));
            }
        }
    }

    #[test]
    fn a_unit_that_has_just_restarted_is_tried_until_it_has_settled_or_until_ctrl_c() {
        static FLAG: AtomicBool = AtomicBool::new(false);
        let mut port = port(Some(Instant::now() + SETTLING), Interrupt::watching(&FLAG));
        let mut passing = errors(&port.port.clone()).into_iter();
        let opened = port.open_when_settled(|_| passing.next().map_or(Ok(7), Err));
        assert_eq!(opened.unwrap(), 7);

        let mut attempts = 0;
        let opened = port.open_when_settled(|port| {
            attempts += 1;
            FLAG.store(attempts == 2, Ordering::Relaxed);
            Err::<(), _>(UsbError::Gone { port: port.port.clone() })
        });
        let failure = opened.unwrap_err();
        assert_eq!((attempts, failure.code()), (2, "asm2464::interrupted"));
    }
}
