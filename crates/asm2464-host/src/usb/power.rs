//! Switching of a port's power at its hub, with SET_FEATURE and CLEAR_FEATURE of PORT_POWER (USB 2.0, 11.24.2; USB 3.2,
//! 10.16.2).
//!
//! A port that is off stays off when the process ends. So each is noted before it is switched off, and a process that
//! ends without unwinding switches it on again: see [`super::forced_exit`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rusb::{Context, Device, DeviceHandle, DeviceList, UsbContext as _};

use super::discovery::new_context;
use super::error::UsbError;
use super::gate::Gate;
use super::sysfs::Sysfs;
use crate::bridge::PortPath;

/// Time that the power stays off: as long as the instructions ask you to leave the cable unplugged.
pub(super) const OFF_FOR: Duration = Duration::from_secs(5);
/// Time limit of a hub request.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The same while the process ends: short, so that a forced exit has time for both halves of a connector.
const EXIT_TIMEOUT: Duration = Duration::from_millis(250);

/// The ports that this process has switched off.
pub(super) static SWITCHED_OFF: SwitchedOff = SwitchedOff::new();

/// bmRequestType of class requests to a hub and to one of its ports.
const FROM_HUB: u8 = 0xA0;
const FROM_PORT: u8 = 0xA3;
const TO_PORT: u8 = 0x23;
/// bRequest.
const GET_STATUS: u8 = 0;
const CLEAR_FEATURE: u8 = 1;
const SET_FEATURE: u8 = 3;
const GET_DESCRIPTOR: u8 = 6;
/// The feature PORT_POWER.
const PORT_POWER: u16 = 8;
/// bDeviceProtocol of a hub, or of its half, at SuperSpeed (USB 3.2, 10.15.1).
const SUPER_SPEED_HUB: u8 = 3;
/// wHubCharacteristics bits 1:0: 1 if each port's power is switched separately.
const POWER_SWITCHING: u8 = 0x03;
const INDIVIDUAL: u8 = 0x01;

/// Requests to a hub.
pub(super) trait Hub: Send + Sync {
    /// Makes a class request that returns data. Returns the number of bytes.
    fn read(&self, kind: u8, request: u8, value: u16, index: u16, into: &mut [u8]) -> rusb::Result<usize>;

    /// Makes a class request without data.
    fn write(&self, kind: u8, request: u8, value: u16, index: u16, timeout: Duration) -> rusb::Result<()>;
}

impl Hub for DeviceHandle<Context> {
    fn read(&self, kind: u8, request: u8, value: u16, index: u16, into: &mut [u8]) -> rusb::Result<usize> {
        self.read_control(kind, request, value, index, into, TIMEOUT)
    }

    fn write(&self, kind: u8, request: u8, value: u16, index: u16, timeout: Duration) -> rusb::Result<()> {
        self.write_control(kind, request, value, index, &[], timeout).map(drop)
    }
}

/// One port of a hub.
#[derive(Clone)]
pub(super) struct HubPort {
    path: PortPath,
    hub: Arc<dyn Hub>,
    number: u8,
    is_super: bool,
}

impl HubPort {
    /// Whether the hub switches this port's power separately.
    fn is_switched(&self) -> bool {
        // The descriptor's type. wHubCharacteristics is at the same offset in both types.
        let value = if self.is_super { 0x2A00 } else { 0x2900 };
        let mut descriptor = [0; 12];
        let read = self.hub.read(FROM_HUB, GET_DESCRIPTOR, value, 0, &mut descriptor);
        read.is_ok_and(|len| len > 4) && descriptor[3] & POWER_SWITCHING == INDIVIDUAL
    }

    fn switch(&self, on: bool, timeout: Duration) -> rusb::Result<()> {
        let request = if on { SET_FEATURE } else { CLEAR_FEATURE };
        self.hub.write(TO_PORT, request, PORT_POWER, self.number.into(), timeout)
    }

    /// Whether the port has power. PORT_POWER in wPortStatus is bit 9 at SuperSpeed, else bit 8.
    fn is_on(&self) -> rusb::Result<bool> {
        let mut status = [0; 4];
        self.hub.read(FROM_PORT, GET_STATUS, 0, self.number.into(), &mut status)?;
        Ok(status[1] & if self.is_super { 0x02 } else { 0x01 } != 0)
    }
}

/// Ports that are off, or may be.
pub(super) struct SwitchedOff(Mutex<Vec<HubPort>>);

impl SwitchedOff {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Never held during a request.
    fn lock(&self) -> MutexGuard<'_, Vec<HubPort>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn switch_off(&self, port: &HubPort, gate: &Gate) -> rusb::Result<()> {
        // While the process ends, no port is switched off any more.
        let _inside = gate.enter()?;
        self.lock().push(port.clone());
        port.switch(false, TIMEOUT)
    }

    fn switch_on(&self, port: &HubPort, timeout: Duration) -> rusb::Result<()> {
        port.switch(true, timeout)?;
        self.lock().retain(|off| off.path != port.path);
        Ok(())
    }

    /// Switches on every port that is off, for a process that ends without unwinding. Close the gate first.
    pub(super) fn give_all_back(&self) {
        let off = self.lock().clone();
        for port in off {
            // What stays off is still in the list.
            let _ = self.switch_on(&port, EXIT_TIMEOUT);
        }
    }

    /// The ports that are still off.
    pub(super) fn left(&self) -> Vec<PortPath> {
        self.lock().iter().map(|off| off.path.clone()).collect()
    }
}

/// Switches the power of these ports, which share a connector, off and on. Returns `false` if a hub does not switch the
/// port separately, or reports that the power stays.
pub(super) fn cycle(
    ports: &[HubPort],
    off_for: Duration,
    switched_off: &SwitchedOff,
    gate: &Gate,
) -> rusb::Result<bool> {
    if ports.is_empty() || !ports.iter().all(HubPort::is_switched) {
        return Ok(false);
    }
    let are_off = all_off(ports, switched_off, gate);
    if are_off == Ok(true) {
        thread::sleep(off_for);
    }
    // After any error: leave no port off that can be switched on.
    let mut are_on = Ok(());
    for port in ports {
        are_on = are_on.and(switched_off.switch_on(port, TIMEOUT));
    }
    are_on?;
    are_off
}

/// Switches these ports off. Returns whether their power is really off.
fn all_off(ports: &[HubPort], switched_off: &SwitchedOff, gate: &Gate) -> rusb::Result<bool> {
    for port in ports {
        switched_off.switch_off(port, gate)?;
    }
    let mut are_off = true;
    for port in ports {
        are_off &= !port.is_on()?;
    }
    Ok(are_off)
}

/// The ports of the connector of the unit at `port`: its port, and its other half at the other speed. Empty if a hub
/// can't be opened, which for root hubs needs root.
pub(super) fn connector(port: &PortPath) -> Result<Vec<HubPort>, UsbError> {
    let context = new_context()?;
    let devices = context.devices().map_err(UsbError::unavailable)?;
    let mut ports = Vec::new();
    for half in [Some(port.clone()), Sysfs::system().peer(port)].into_iter().flatten() {
        let Some(opened) = hub_port(&devices, half) else { return Ok(Vec::new()) };
        ports.push(opened);
    }
    Ok(ports)
}

/// Opens the hub of a port.
fn hub_port(devices: &DeviceList<Context>, path: PortPath) -> Option<HubPort> {
    let (number, hub) = path.ports().split_last()?;
    let number = *number;
    let is_hub = |device: &Device<Context>| {
        device.bus_number() == path.bus() && device.port_numbers().is_ok_and(|ports| ports == hub)
    };
    let device = devices.iter().find(is_hub)?;
    // By its descriptor, because a speed may be unknown. Source: `hub_is_superspeed` in the kernel's `hub.h`.
    let is_super = device.device_descriptor().ok()?.protocol_code() == SUPER_SPEED_HUB;
    let hub = Arc::new(device.open().ok()?);
    Some(HubPort { path, hub, number, is_super })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::usb::gate::Closed;

    /// The requests to both halves of a connector, in order.
    type Asked = Arc<Mutex<Vec<(char, u8, u8, u16, u16)>>>;

    struct Fake {
        name: char,
        characteristics: u8,
        is_super: bool,
        is_on: AtomicBool,
        /// The hub accepts everything and leaves the power on.
        lies: bool,
        fails_at: Option<u8>,
        asked: Asked,
    }

    impl Hub for Fake {
        fn read(&self, kind: u8, request: u8, value: u16, index: u16, into: &mut [u8]) -> rusb::Result<usize> {
            self.asked.lock().unwrap().push((self.name, kind, request, value, index));
            if request == GET_DESCRIPTOR {
                let expected = if self.is_super { 0x2A00 } else { 0x2900 };
                assert_eq!((kind, value), (FROM_HUB, expected));
                into[..5].copy_from_slice(&[9, (value >> 8) as u8, 4, self.characteristics, 0]);
                return Ok(9);
            }
            let bit = if self.is_super { 0x02 } else { 0x01 };
            into.copy_from_slice(&[0x03, if self.is_on.load(Ordering::SeqCst) { bit } else { 0 }, 0, 0]);
            Ok(4)
        }

        fn write(&self, kind: u8, request: u8, value: u16, index: u16, _timeout: Duration) -> rusb::Result<()> {
            self.asked.lock().unwrap().push((self.name, kind, request, value, index));
            if self.fails_at == Some(request) {
                return Err(rusb::Error::Pipe);
            }
            self.is_on.store(request == SET_FEATURE || self.lies, Ordering::SeqCst);
            Ok(())
        }
    }

    /// A connector's two ports, and their hubs.
    fn connector(asked: &Asked, change: impl Fn(&mut Fake)) -> ([HubPort; 2], [Arc<Fake>; 2]) {
        let hubs = [('s', true), ('h', false)].map(|(name, is_super)| {
            let (is_on, asked) = (AtomicBool::new(true), asked.clone());
            let mut hub = Fake { name, characteristics: 0x09, is_super, is_on, lies: false, fails_at: None, asked };
            change(&mut hub);
            Arc::new(hub)
        });
        let port = |hub: &Arc<Fake>, path: &str, number| {
            let (path, is_super) = (path.parse().unwrap(), hub.is_super);
            HubPort { path, hub: hub.clone(), number, is_super }
        };
        ([port(&hubs[0], "2-1.2", 2), port(&hubs[1], "1-1.4", 4)], hubs)
    }

    fn cycle(ports: &[HubPort], off_for: Duration) -> rusb::Result<bool> {
        super::cycle(ports, off_for, &SwitchedOff::new(), &Gate::new())
    }

    fn all_on(hubs: &[Arc<Fake>]) -> bool {
        hubs.iter().all(|hub| hub.is_on.load(Ordering::SeqCst))
    }

    fn of_port(asked: &Asked) -> Vec<(char, u8, u16)> {
        let of_port = |(name, kind, request, value, index): &(char, u8, u8, u16, u16)| {
            (*kind == TO_PORT).then(|| {
                assert_eq!(*value, PORT_POWER);
                (*name, *request, *index)
            })
        };
        asked.lock().unwrap().iter().filter_map(of_port).collect()
    }

    #[test]
    fn both_halves_of_the_connector_are_off_before_either_is_on_again() {
        let asked = Asked::default();
        let (ports, hubs) = connector(&asked, |_| ());
        assert_eq!(cycle(&ports, Duration::ZERO), Ok(true));
        assert_eq!(
            of_port(&asked),
            [('s', CLEAR_FEATURE, 2), ('h', CLEAR_FEATURE, 4), ('s', SET_FEATURE, 2), ('h', SET_FEATURE, 4)]
        );
        assert!(all_on(&hubs));
    }

    #[test]
    fn a_hub_that_gangs_its_ports_or_switches_none_is_left_alone() {
        for characteristics in [0x00, 0x02, 0x03] {
            let asked = Asked::default();
            let (ports, _) = connector(&asked, |hub| hub.characteristics = characteristics);
            assert_eq!(cycle(&ports, Duration::ZERO), Ok(false));
            assert_eq!(of_port(&asked), []);
        }
        assert_eq!(cycle(&[], Duration::ZERO), Ok(false));
    }

    #[test]
    fn a_hub_whose_port_keeps_its_power_has_not_switched_it() {
        let asked = Asked::default();
        let (ports, hubs) = connector(&asked, |hub| hub.lies = hub.name == 'h');
        assert_eq!(cycle(&ports, Duration::from_secs(3600)), Ok(false));
        assert!(all_on(&hubs));
    }

    #[test]
    fn what_was_switched_off_is_switched_on_whatever_fails() {
        let asked = Asked::default();
        let (ports, hubs) = connector(&asked, |hub| hub.fails_at = (hub.name == 'h').then_some(CLEAR_FEATURE));
        assert_eq!(cycle(&ports, Duration::from_secs(3600)), Err(rusb::Error::Pipe));
        assert_eq!(of_port(&asked)[2..], [('s', SET_FEATURE, 2), ('h', SET_FEATURE, 4)]);
        assert!(all_on(&hubs));
    }

    /// Switches the ports off on a thread of its own, which keeps them off for an hour.
    fn switched_off(ports: [HubPort; 2]) -> (&'static SwitchedOff, &'static Gate) {
        let (off, gate) = (&*Box::leak(Box::new(SwitchedOff::new())), &*Box::leak(Box::new(Gate::new())));
        let is_off = ports.clone();
        thread::spawn(move || super::cycle(&ports, Duration::from_secs(3600), off, gate));
        let until = Instant::now() + Duration::from_secs(60);
        while is_off.iter().any(|port| port.is_on().unwrap()) {
            assert!(Instant::now() < until, "the ports are not switched off");
            thread::yield_now();
        }
        (off, gate)
    }

    #[test]
    fn a_process_that_ends_while_a_connector_is_off_switches_it_on_and_switches_no_other_off() {
        let asked = Asked::default();
        let (ports, hubs) = connector(&asked, |_| ());
        let (off, gate) = switched_off(ports);
        assert_eq!(off.left().len(), 2);
        gate.close(Duration::from_secs(60), Closed::Keeps);
        off.give_all_back();
        assert!(all_on(&hubs) && off.left().is_empty());

        let (others, _) = connector(&asked, |_| ());
        let asked_before = of_port(&asked).len();
        thread::spawn(move || super::cycle(&others, Duration::ZERO, off, gate));
        thread::sleep(Duration::from_millis(50));
        assert_eq!(of_port(&asked).len(), asked_before);
    }

    #[test]
    fn a_port_that_does_not_come_on_when_the_process_ends_is_named() {
        let (ports, hubs) = connector(&Asked::default(), |hub| hub.fails_at = (hub.name == 'h').then_some(SET_FEATURE));
        let (off, gate) = switched_off(ports);
        gate.close(Duration::from_secs(60), Closed::Keeps);
        off.give_all_back();
        assert_eq!(off.left(), ["1-1.4".parse().unwrap()]);
        assert!(hubs[0].is_on.load(Ordering::SeqCst));
    }
}
