//! Control requests that native code answers on endpoint 0, because no firmware runs.
//!
//! Sources: USB 3.2, section 9.4; USB Mass Storage Class, Bulk-Only Transport 1.0, section 3.

use asm2464_host::bridge::Endpoint;

use super::VirtualUnit;
use crate::virtual_unit::descriptors::Descriptors;

/// Values of bmRequestType that are answered.
mod request_type {
    pub(super) const TO_DEVICE: u8 = 0x00;
    pub(super) const TO_INTERFACE: u8 = 0x01;
    pub(super) const TO_ENDPOINT: u8 = 0x02;
    pub(super) const CLASS_TO_INTERFACE: u8 = 0x21;
    pub(super) const FROM_DEVICE: u8 = 0x80;
    pub(super) const FROM_INTERFACE: u8 = 0x81;
    pub(super) const FROM_ENDPOINT: u8 = 0x82;
    pub(super) const CLASS_FROM_INTERFACE: u8 = 0xA1;
}

/// Values of bRequest that are answered.
mod request {
    pub(super) const GET_STATUS: u8 = 0;
    pub(super) const CLEAR_FEATURE: u8 = 1;
    pub(super) const SET_FEATURE: u8 = 3;
    pub(super) const GET_DESCRIPTOR: u8 = 6;
    pub(super) const SET_SEL: u8 = 48;
    pub(super) const SET_ISOCH_DELAY: u8 = 49;
    pub(super) const GET_MAX_LUN: u8 = 0xFE;
    pub(super) const MASS_STORAGE_RESET: u8 = 0xFF;
}

/// Number of the unit's only interface.
const INTERFACE: u16 = 0;
/// wValue of GET_STATUS for the standard status; 1 is the status of precision time measurement.
const STANDARD_STATUS: u16 = 0;

/// Feature selectors.
mod feature {
    pub(super) const ENDPOINT_HALT: u16 = 0;
    pub(super) const FUNCTION_SUSPEND: u16 = 0;
    pub(super) const U1_ENABLE: u16 = 48;
    pub(super) const U2_ENABLE: u16 = 49;
    pub(super) const LTM_ENABLE: u16 = 50;
}

impl VirtualUnit {
    /// Answers a request. Returns the data for the host; `None` stalls endpoint 0.
    pub(super) fn native_control(&mut self, setup: [u8; 8]) -> Option<Vec<u8>> {
        let [request_type, request, ref fields @ ..] = setup;
        let field = |at: usize| u16::from_le_bytes([fields[at], fields[at + 1]]);
        let (value, index, length) = (field(0), field(2), field(4));
        let endpoint = u8::try_from(index).ok().and_then(Endpoint::from_address).filter(|found| self.has(*found));
        let is_interface = index == INTERFACE;
        let accept = |is_right: bool| is_right.then(Vec::new);
        let data = match (request_type, request) {
            (request_type::FROM_DEVICE, request::GET_DESCRIPTOR) => descriptor(value, &self.descriptors),
            (request_type::FROM_DEVICE, request::GET_STATUS) if value == STANDARD_STATUS => {
                const SELF_POWERED: u8 = 1;
                Some(vec![SELF_POWERED | self.power_features, 0])
            }
            (request_type::FROM_INTERFACE, request::GET_STATUS) if is_interface && value == STANDARD_STATUS => {
                Some(vec![0, 0])
            }
            (request_type::FROM_ENDPOINT, request::GET_STATUS) if value == STANDARD_STATUS => match endpoint {
                Some(endpoint) => Some(vec![self.is_halted(endpoint).into(), 0]),
                // Endpoint 0, in either direction.
                None => (index & !0x80 == 0).then(|| vec![0, 0]),
            },
            (request_type::TO_DEVICE, request::SET_FEATURE) => accept(self.set_power_feature(value, true)),
            (request_type::TO_DEVICE, request::CLEAR_FEATURE) => accept(self.set_power_feature(value, false)),
            (request_type::TO_DEVICE, request::SET_SEL) => accept(length == 6),
            (request_type::TO_DEVICE, request::SET_ISOCH_DELAY) => accept(true),
            (request_type::TO_INTERFACE, request::SET_FEATURE | request::CLEAR_FEATURE) => {
                // The high byte of the index holds the suspend options.
                accept(value == feature::FUNCTION_SUSPEND && index & 0xFF == INTERFACE)
            }
            (request_type::TO_ENDPOINT, request::SET_FEATURE) if value == feature::ENDPOINT_HALT => {
                self.responder().halt(endpoint?);
                accept(true)
            }
            (request_type::TO_ENDPOINT, request::CLEAR_FEATURE) if value == feature::ENDPOINT_HALT => {
                self.clear_halt(endpoint?);
                accept(true)
            }
            (request_type::CLASS_FROM_INTERFACE, request::GET_MAX_LUN) if is_interface && value == 0 => Some(vec![0]),
            (request_type::CLASS_TO_INTERFACE, request::MASS_STORAGE_RESET) => {
                accept(is_interface && value == 0 && length == 0 && self.mass_storage_reset())
            }
            _ => None,
        };
        let mut data = data?;
        data.truncate(length.into());
        Some(data)
    }

    /// Whether the selected alternate has this endpoint. Also `true` off the bus: no transfer is invalid there, only
    /// unanswered.
    pub(in crate::virtual_unit) fn has(&mut self, endpoint: Endpoint) -> bool {
        !self.is_attached() || self.alternate() == 1 || matches!(endpoint, Endpoint::DataIn | Endpoint::DataOut)
    }

    /// Turns U1, U2 or LTM on or off. Returns whether the selector is one of theirs.
    fn set_power_feature(&mut self, selector: u16, on: bool) -> bool {
        let bit = match selector {
            feature::U1_ENABLE => 1 << 2,
            feature::U2_ENABLE => 1 << 3,
            feature::LTM_ENABLE => 1 << 4,
            _ => return false,
        };
        self.power_features = if on { self.power_features | bit } else { self.power_features & !bit };
        true
    }
}

fn descriptor(value: u16, descriptors: &Descriptors) -> Option<Vec<u8>> {
    const DEVICE: u8 = 1;
    const CONFIGURATION: u8 = 2;
    const STRING: u8 = 3;
    const BOS: u8 = 15;
    let [index, kind] = value.to_le_bytes();
    match (kind, index) {
        (DEVICE, 0) => Some(descriptors.device.to_vec()),
        (CONFIGURATION, 0) => Some(descriptors.configuration.clone()),
        (STRING, index) => descriptors.string(index),
        (BOS, 0) => Some(descriptors.bos.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_unit::{ControlAnswer, Scenario};

    /// A boot loader with only its pipe to the host halted.
    fn unit() -> VirtualUnit {
        let scenario = Scenario::parse("factory = \"erased\"").unwrap();
        let mut unit = VirtualUnit::in_memory(scenario, b"control", None).unwrap();
        assert!(unit.reset_by_host(0));
        unit.responder().halt(Endpoint::DataIn);
        unit
    }

    /// The data of an accepted request; `None` if it stalls.
    fn ask(unit: &mut VirtualUnit, kind: u8, request: u8, [value, index, length]: [u16; 3]) -> Option<Vec<u8>> {
        let fields = [value, index, length].map(u16::to_le_bytes);
        let setup = [&[kind, request], fields.as_flattened()].concat();
        match unit.control(setup.try_into().unwrap(), &[]) {
            ControlAnswer::Done(data) => Some(data),
            ControlAnswer::Stall => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn descriptors_come_up_to_the_length_and_what_does_not_exist_stalls() {
        let mut unit = unit();
        let device = ask(&mut unit, 0x80, 6, [0x0100, 0, 64]).unwrap();
        assert_eq!(device[8..12], [0x4C, 0x17, 0x63, 0x24]);
        assert_eq!(ask(&mut unit, 0x80, 6, [0x0200, 0, 255]).unwrap().len(), 44);
        assert_eq!(ask(&mut unit, 0x80, 6, [0x0F00, 0, 5]).unwrap(), [5, 0x0F, 22, 0, 2]);
        for missing in [0x0201, 0x0304, 0x0600, 0x0F01] {
            assert_eq!(ask(&mut unit, 0x80, 6, [missing, 0, 255]), None, "{missing:#06x}");
        }
    }

    #[test]
    fn an_endpoints_status_says_whether_it_is_halted() {
        let mut unit = unit();
        assert_eq!(ask(&mut unit, 0x82, 0, [0, 0x81, 2]), Some(vec![1, 0]));
        assert_eq!(ask(&mut unit, 0x82, 0, [0, 0x02, 2]), Some(vec![0, 0]));
        assert_eq!(ask(&mut unit, 0x82, 0, [0, 0x80, 2]), Some(vec![0, 0]));
    }

    #[test]
    fn what_does_not_exist_has_no_status() {
        let mut unit = unit();
        for endpoint in [0x05, 0x83, 0x04, 0x0181, 0x8000] {
            assert_eq!(ask(&mut unit, 0x82, 0, [0, endpoint, 2]), None, "endpoint {endpoint:#x}");
        }
        for interface in [1, 0x0100, 0xFFFF] {
            assert_eq!(ask(&mut unit, 0x81, 0, [0, interface, 2]), None, "interface {interface:#x}");
        }
        assert_eq!(ask(&mut unit, 0x81, 0, [0, 0, 2]), Some(vec![0, 0]));
    }

    #[test]
    fn halts_are_set_and_cleared_for_endpoints_that_exist() {
        let mut unit = unit();
        for (request, value, endpoint) in
            [(3, 0, 0x83), (3, 1, 0x81), (1, 0, 0x83), (1, 0, 0x07), (1, 1, 0x81), (3, 1, 0x02)]
        {
            assert_eq!(ask(&mut unit, 0x02, request, [value, endpoint, 0]), None, "{request} {value} {endpoint:#x}");
        }
        assert!(unit.is_halted(Endpoint::DataIn) && !unit.is_halted(Endpoint::DataOut));
        assert_eq!(ask(&mut unit, 0x02, 1, [0, 0x81, 0]), Some(Vec::new()));
        assert_eq!(ask(&mut unit, 0x02, 3, [0, 0x02, 0]), Some(Vec::new()));
        assert!(!unit.is_halted(Endpoint::DataIn) && unit.is_halted(Endpoint::DataOut));
    }

    #[test]
    fn link_power_management_is_remembered_in_the_devices_status_until_a_port_reset() {
        let mut unit = unit();
        assert_eq!(ask(&mut unit, 0x00, 3, [48, 0, 0]), Some(Vec::new()));
        assert_eq!(ask(&mut unit, 0x80, 0, [0, 0, 2]), Some(vec![0b101, 0]));
        assert_eq!(ask(&mut unit, 0x00, 1, [48, 0, 0]), Some(Vec::new()));
        assert_eq!(ask(&mut unit, 0x80, 0, [0, 0, 2]), Some(vec![1, 0]));
        assert_eq!(ask(&mut unit, 0x00, 3, [1, 0, 0]), None);
        assert_eq!(ask(&mut unit, 0x00, 3, [49, 0, 0]), Some(Vec::new()));
        unit.bus_reset();
        assert_eq!(ask(&mut unit, 0x80, 0, [0, 0, 2]), Some(vec![1, 0]));
    }

    #[test]
    fn bulk_onlys_class_requests_are_there() {
        let mut unit = unit();
        assert_eq!(ask(&mut unit, 0xA1, 0xFE, [0, 0, 1]), Some(vec![0]));
        assert_eq!(ask(&mut unit, 0xA1, 0xFE, [0, 1, 1]), None);
        assert_eq!(ask(&mut unit, 0x21, 0xFF, [0, 0, 0]), Some(Vec::new()));
        for fields in [[1, 0, 0], [0, 1, 0], [0, 0, 1]] {
            assert_eq!(ask(&mut unit, 0x21, 0xFF, fields), None, "{fields:?}");
        }
        assert_eq!(ask(&mut unit, 0x00, 48, [0, 0, 6]), Some(Vec::new()));
        assert_eq!(ask(&mut unit, 0x00, 48, [0, 0, 5]), None);
    }
}
