//! Switching of a port's power at its hub: SET_FEATURE and CLEAR_FEATURE of PORT_POWER (USB 2.0, 11.24.2; USB 3.2,
//! 10.16.2).

use std::thread;
use std::time::Duration;

use rusb::{Context, Device, DeviceHandle, UsbContext as _};

use super::discovery::new_context;
use super::error::UsbError;
use super::sysfs::Sysfs;
use crate::bridge::PortPath;

/// Time that the power stays off, as people are told to wait with the cable.
pub(super) const OFF_FOR: Duration = Duration::from_secs(5);
/// Time limit of a hub request.
const TIMEOUT: Duration = Duration::from_secs(2);

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
/// wHubCharacteristics bits 1:0: 1 if each port's power is switched separately.
const POWER_SWITCHING: u8 = 0x03;
const INDIVIDUAL: u8 = 0x01;

/// Requests to a hub.
pub(super) trait Hub {
    /// Makes a class request that returns data. Returns the number of bytes.
    fn read(&mut self, kind: u8, request: u8, value: u16, index: u16, into: &mut [u8]) -> rusb::Result<usize>;

    /// Makes a class request without data.
    fn write(&mut self, kind: u8, request: u8, value: u16, index: u16) -> rusb::Result<()>;
}

impl Hub for DeviceHandle<Context> {
    fn read(&mut self, kind: u8, request: u8, value: u16, index: u16, into: &mut [u8]) -> rusb::Result<usize> {
        self.read_control(kind, request, value, index, into, TIMEOUT)
    }

    fn write(&mut self, kind: u8, request: u8, value: u16, index: u16) -> rusb::Result<()> {
        self.write_control(kind, request, value, index, &[], TIMEOUT).map(drop)
    }
}

/// One port of a hub.
#[derive(Debug)]
pub(super) struct HubPort<H> {
    hub: H,
    number: u8,
    is_super: bool,
}

impl<H: Hub> HubPort<H> {
    /// Whether the hub switches this port's power separately.
    fn is_switched(&mut self) -> bool {
        // The descriptor's type. wHubCharacteristics is at the same offset in both types.
        let value = if self.is_super { 0x2A00 } else { 0x2900 };
        let mut descriptor = [0; 12];
        let read = self.hub.read(FROM_HUB, GET_DESCRIPTOR, value, 0, &mut descriptor);
        read.is_ok_and(|len| len > 4) && descriptor[3] & POWER_SWITCHING == INDIVIDUAL
    }

    fn switch(&mut self, on: bool) -> rusb::Result<()> {
        let request = if on { SET_FEATURE } else { CLEAR_FEATURE };
        self.hub.write(TO_PORT, request, PORT_POWER, self.number.into())
    }

    /// Whether the port has power. PORT_POWER in wPortStatus is bit 9 at SuperSpeed, else bit 8.
    fn is_on(&mut self) -> rusb::Result<bool> {
        let mut status = [0; 4];
        self.hub.read(FROM_PORT, GET_STATUS, 0, self.number.into(), &mut status)?;
        Ok(status[1] & if self.is_super { 0x02 } else { 0x01 } != 0)
    }
}

/// Switches the power of these ports, which share a connector, off and on. Returns `false` if a hub does not switch the
/// port separately, or reports that the power stays.
pub(super) fn cycle<H: Hub>(ports: &mut [HubPort<H>], off_for: Duration) -> rusb::Result<bool> {
    if ports.is_empty() || !ports.iter_mut().all(HubPort::is_switched) {
        return Ok(false);
    }
    let off = ports.iter_mut().try_for_each(|port| port.switch(false));
    let is_off =
        off.and_then(|()| ports.iter_mut().try_fold(true, |is_off, port| port.is_on().map(|is_on| is_off && !is_on)));
    if is_off == Ok(true) {
        thread::sleep(off_for);
    }
    // After any error: leave no port off that can be switched on.
    let on: Vec<rusb::Result<()>> = ports.iter_mut().map(|port| port.switch(true)).collect();
    on.into_iter().collect::<rusb::Result<()>>()?;
    is_off
}

/// The ports of the connector of the unit at `port`: its port, and its other half at the other speed. Empty if a hub
/// can't be opened, which for root hubs needs root.
pub(super) fn connector(port: &PortPath) -> Result<Vec<HubPort<DeviceHandle<Context>>>, UsbError> {
    let context = new_context()?;
    let devices = context.devices().map_err(|source| UsbError::Unavailable { source })?;
    let open = |port: &PortPath| {
        let (number, hub) = port.ports().split_last()?;
        let is_hub = |device: &Device<Context>| {
            device.bus_number() == port.bus() && device.port_numbers().is_ok_and(|ports| ports == hub)
        };
        let device = devices.iter().find(is_hub)?;
        let is_super = matches!(device.speed(), rusb::Speed::Super | rusb::Speed::SuperPlus);
        Some(HubPort { hub: device.open().ok()?, number: *number, is_super })
    };
    let halves = [Some(port.clone()), Sysfs::system().peer(port)];
    let opened: Option<Vec<_>> = halves.iter().flatten().map(open).collect();
    Ok(opened.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// The requests to both halves of a connector, in order.
    type Asked = Rc<RefCell<Vec<(char, u8, u8, u16, u16)>>>;

    struct Fake {
        name: char,
        characteristics: u8,
        is_super: bool,
        is_on: bool,
        /// The hub accepts everything and leaves the power on.
        lies: bool,
        fails_at: Option<u8>,
        asked: Asked,
    }

    impl Hub for Fake {
        fn read(&mut self, kind: u8, request: u8, value: u16, index: u16, into: &mut [u8]) -> rusb::Result<usize> {
            self.asked.borrow_mut().push((self.name, kind, request, value, index));
            if request == GET_DESCRIPTOR {
                let expected = if self.is_super { 0x2A00 } else { 0x2900 };
                assert_eq!((kind, value), (FROM_HUB, expected));
                into[..5].copy_from_slice(&[9, (value >> 8) as u8, 4, self.characteristics, 0]);
                return Ok(9);
            }
            let bit = if self.is_super { 0x02 } else { 0x01 };
            into.copy_from_slice(&[0x03, if self.is_on { bit } else { 0 }, 0, 0]);
            Ok(4)
        }

        fn write(&mut self, kind: u8, request: u8, value: u16, index: u16) -> rusb::Result<()> {
            self.asked.borrow_mut().push((self.name, kind, request, value, index));
            if self.fails_at == Some(request) {
                return Err(rusb::Error::Pipe);
            }
            self.is_on = request == SET_FEATURE || self.lies;
            Ok(())
        }
    }

    fn connector(asked: &Asked, change: impl Fn(&mut Fake)) -> [HubPort<Fake>; 2] {
        [('s', true, 2), ('h', false, 4)].map(|(name, is_super, number)| {
            let asked = asked.clone();
            let mut hub =
                Fake { name, characteristics: 0x09, is_super, is_on: true, lies: false, fails_at: None, asked };
            change(&mut hub);
            HubPort { hub, number, is_super }
        })
    }

    fn of_port(asked: &Asked) -> Vec<(char, u8, u16)> {
        let of_port = |(name, kind, request, value, index): &(char, u8, u8, u16, u16)| {
            (*kind == TO_PORT).then(|| {
                assert_eq!(*value, PORT_POWER);
                (*name, *request, *index)
            })
        };
        asked.borrow().iter().filter_map(of_port).collect()
    }

    #[test]
    fn both_halves_of_the_connector_are_off_before_either_is_on_again() {
        let asked = Asked::default();
        let mut ports = connector(&asked, |_| ());
        assert_eq!(cycle(&mut ports, Duration::ZERO), Ok(true));
        assert_eq!(
            of_port(&asked),
            [('s', CLEAR_FEATURE, 2), ('h', CLEAR_FEATURE, 4), ('s', SET_FEATURE, 2), ('h', SET_FEATURE, 4)]
        );
        assert!(ports.iter().all(|port| port.hub.is_on));
    }

    #[test]
    fn a_hub_that_gangs_its_ports_or_switches_none_is_left_alone() {
        for characteristics in [0x00, 0x02, 0x03] {
            let asked = Asked::default();
            let mut ports = connector(&asked, |hub| hub.characteristics = characteristics);
            assert_eq!(cycle(&mut ports, Duration::ZERO), Ok(false));
            assert_eq!(of_port(&asked), []);
        }
        assert_eq!(cycle::<Fake>(&mut [], Duration::ZERO), Ok(false));
    }

    #[test]
    fn a_hub_whose_port_keeps_its_power_has_not_switched_it() {
        let asked = Asked::default();
        let mut ports = connector(&asked, |hub| hub.lies = hub.name == 'h');
        assert_eq!(cycle(&mut ports, Duration::from_secs(3600)), Ok(false));
        assert!(ports.iter().all(|port| port.hub.is_on));
    }

    #[test]
    fn what_was_switched_off_is_switched_on_whatever_fails() {
        let asked = Asked::default();
        let mut ports = connector(&asked, |hub| hub.fails_at = (hub.name == 'h').then_some(CLEAR_FEATURE));
        assert_eq!(cycle(&mut ports, Duration::from_secs(3600)), Err(rusb::Error::Pipe));
        assert_eq!(of_port(&asked)[2..], [('s', SET_FEATURE, 2), ('h', SET_FEATURE, 4)]);
        assert!(ports.iter().all(|port| port.hub.is_on));
    }
}
