//! Control requests: what endpoint 0 answers.
//!
//! Sources: USB 3.2, section 9.4; USB Mass Storage Class, Bulk-Only Transport 1.0, section 3.

use super::request::Setup;
use crate::bridge::Endpoint;
use crate::virtual_bridge::Descriptors;

/// Decision on a control request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlDecision {
    /// Send data to the host. The caller cuts it to the requested length.
    Data(Vec<u8>),
    /// Accept, without data for the host.
    Accept,
    /// SET_FEATURE(ENDPOINT_HALT).
    Halt(Endpoint),
    /// CLEAR_FEATURE(ENDPOINT_HALT).
    ClearHalt(Endpoint),
    /// Bulk-Only Mass Storage Reset.
    MassStorageReset,
    /// Stall endpoint 0: not supported.
    Stall,
}

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
/// wValue of GET_STATUS; 1 would be the status of precision time measurement.
const STANDARD_STATUS: u16 = 0;

/// Feature selectors.
mod feature {
    pub(super) const ENDPOINT_HALT: u16 = 0;
    pub(super) const FUNCTION_SUSPEND: u16 = 0;
    pub(super) const U1_ENABLE: u16 = 48;
    pub(super) const U2_ENABLE: u16 = 49;
    pub(super) const LTM_ENABLE: u16 = 50;
}

/// State that endpoint 0 keeps between requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct ControlState {
    /// U1, U2 and LTM as in bits 2 to 4 of the device's status.
    power_features: u8,
}

impl ControlState {
    /// Decides on a request. `is_halted` returns whether an endpoint of the selected alternate is halted; `None` if the
    /// alternate has no such endpoint.
    pub fn decide(
        &mut self,
        setup: &Setup,
        descriptors: &Descriptors,
        is_halted: impl Fn(Endpoint) -> Option<bool>,
    ) -> ControlDecision {
        let endpoint = u8::try_from(setup.index).ok().and_then(Endpoint::from_address);
        let existing = endpoint.filter(|endpoint| is_halted(*endpoint).is_some());
        let is_interface = setup.index == INTERFACE;
        match (setup.request_type, setup.request) {
            (request_type::FROM_DEVICE, request::GET_DESCRIPTOR) => {
                descriptor(setup.value, descriptors).map_or(ControlDecision::Stall, ControlDecision::Data)
            }
            (request_type::FROM_DEVICE, request::GET_STATUS) if setup.value == STANDARD_STATUS => {
                const SELF_POWERED: u8 = 1;
                ControlDecision::Data(vec![SELF_POWERED | self.power_features, 0])
            }
            (request_type::FROM_INTERFACE, request::GET_STATUS) if is_interface && setup.value == STANDARD_STATUS => {
                ControlDecision::Data(vec![0, 0])
            }
            (request_type::FROM_ENDPOINT, request::GET_STATUS) if setup.value == STANDARD_STATUS => {
                match endpoint.and_then(is_halted) {
                    Some(is_halted) => ControlDecision::Data(vec![is_halted.into(), 0]),
                    // Endpoint 0, in either direction.
                    None if setup.index & !0x80 == 0 => ControlDecision::Data(vec![0, 0]),
                    None => ControlDecision::Stall,
                }
            }
            (request_type::TO_DEVICE, request::SET_FEATURE) => self.set_power_feature(setup.value, true),
            (request_type::TO_DEVICE, request::CLEAR_FEATURE) => self.set_power_feature(setup.value, false),
            (request_type::TO_DEVICE, request::SET_SEL) if setup.length == 6 => ControlDecision::Accept,
            (request_type::TO_DEVICE, request::SET_ISOCH_DELAY) => ControlDecision::Accept,
            (request_type::TO_INTERFACE, request::SET_FEATURE | request::CLEAR_FEATURE)
                // The high byte of the index holds the suspend options.
                if setup.value == feature::FUNCTION_SUSPEND && setup.index & 0xFF == INTERFACE =>
            {
                ControlDecision::Accept
            }
            (request_type::TO_ENDPOINT, request::SET_FEATURE) if setup.value == feature::ENDPOINT_HALT => {
                existing.map_or(ControlDecision::Stall, ControlDecision::Halt)
            }
            (request_type::TO_ENDPOINT, request::CLEAR_FEATURE) if setup.value == feature::ENDPOINT_HALT => {
                existing.map_or(ControlDecision::Stall, ControlDecision::ClearHalt)
            }
            (request_type::CLASS_FROM_INTERFACE, request::GET_MAX_LUN) if is_interface && setup.value == 0 => {
                ControlDecision::Data(vec![0])
            }
            (request_type::CLASS_TO_INTERFACE, request::MASS_STORAGE_RESET)
                if is_interface && setup.value == 0 && setup.length == 0 =>
            {
                ControlDecision::MassStorageReset
            }
            _ => ControlDecision::Stall,
        }
    }

    fn set_power_feature(&mut self, selector: u16, on: bool) -> ControlDecision {
        let bit = match selector {
            feature::U1_ENABLE => 1 << 2,
            feature::U2_ENABLE => 1 << 3,
            feature::LTM_ENABLE => 1 << 4,
            _ => return ControlDecision::Stall,
        };
        if on {
            self.power_features |= bit
        } else {
            self.power_features &= !bit
        }
        ControlDecision::Accept
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
    use crate::firmware::BridgeState;
    use crate::virtual_bridge::{Identity, LinkSpeed};

    fn ask(request_type: u8, request: u8, value: u16, index: u16, length: u16) -> ControlDecision {
        let descriptors = Descriptors::new(Identity::boot_loader(), BridgeState::BootLoader, LinkSpeed::Super);
        let setup = Setup { endpoint: request_type & 0x80, request, request_type, value, index, length };
        ControlState::default().decide(&setup, &descriptors, |endpoint| match endpoint {
            Endpoint::DataIn => Some(true),
            Endpoint::DataOut => Some(false),
            Endpoint::Status | Endpoint::Command => None,
        })
    }

    #[test]
    fn descriptors_come_whole_and_what_does_not_exist_stalls() {
        let ControlDecision::Data(device) = ask(0x80, 6, 0x0100, 0, 64) else { panic!("no device descriptor") };
        assert_eq!(device[8..12], [0x4C, 0x17, 0x63, 0x24]);
        assert!(matches!(ask(0x80, 6, 0x0200, 0, 255), ControlDecision::Data(bytes) if bytes.len() == 44));
        assert!(matches!(ask(0x80, 6, 0x0F00, 0, 5), ControlDecision::Data(bytes) if bytes[1] == 0x0F));
        for missing in [0x0201, 0x0304, 0x0600, 0x0F01] {
            assert_eq!(ask(0x80, 6, missing, 0, 255), ControlDecision::Stall, "{missing:#06x}");
        }
    }

    #[test]
    fn an_endpoints_status_says_whether_it_is_halted() {
        assert_eq!(ask(0x82, 0, 0, 0x81, 2), ControlDecision::Data(vec![1, 0]));
        assert_eq!(ask(0x82, 0, 0, 0x02, 2), ControlDecision::Data(vec![0, 0]));
        assert_eq!(ask(0x82, 0, 0, 0x80, 2), ControlDecision::Data(vec![0, 0]));
    }

    #[test]
    fn what_does_not_exist_has_no_status() {
        for endpoint in [0x05, 0x83, 0x04, 0x0181, 0x8000] {
            assert_eq!(ask(0x82, 0, 0, endpoint, 2), ControlDecision::Stall, "endpoint {endpoint:#x}");
        }
        for interface in [1, 0x0100, 0xFFFF] {
            assert_eq!(ask(0x81, 0, 0, interface, 2), ControlDecision::Stall, "interface {interface:#x}");
        }
        assert_eq!(ask(0x81, 0, 0, 0, 2), ControlDecision::Data(vec![0, 0]));
    }

    #[test]
    fn halts_are_set_and_cleared_for_endpoints_that_exist() {
        assert_eq!(ask(0x02, 3, 0, 0x81, 0), ControlDecision::Halt(Endpoint::DataIn));
        assert_eq!(ask(0x02, 3, 0, 0x83, 0), ControlDecision::Stall);
        assert_eq!(ask(0x02, 3, 1, 0x81, 0), ControlDecision::Stall);
        assert_eq!(ask(0x02, 1, 0, 0x83, 0), ControlDecision::Stall);
        assert_eq!(ask(0x02, 1, 0, 0x81, 0), ControlDecision::ClearHalt(Endpoint::DataIn));
        assert_eq!(ask(0x02, 1, 0, 0x07, 0), ControlDecision::Stall);
        assert_eq!(ask(0x02, 1, 1, 0x81, 0), ControlDecision::Stall);
    }

    #[test]
    fn link_power_management_is_remembered_in_the_devices_status() {
        let descriptors = Descriptors::new(Identity::boot_loader(), BridgeState::BootLoader, LinkSpeed::Super);
        let mut state = ControlState::default();
        let mut ask = |request_type: u8, request, value| {
            let setup = Setup { endpoint: request_type & 0x80, request, request_type, value, index: 0, length: 2 };
            state.decide(&setup, &descriptors, |_| Some(false))
        };
        assert_eq!(ask(0x00, 3, 48), ControlDecision::Accept);
        assert_eq!(ask(0x80, 0, 0), ControlDecision::Data(vec![0b101, 0]));
        assert_eq!(ask(0x00, 1, 48), ControlDecision::Accept);
        assert_eq!(ask(0x80, 0, 0), ControlDecision::Data(vec![1, 0]));
        assert_eq!(ask(0x00, 3, 1), ControlDecision::Stall);
    }

    #[test]
    fn bulk_onlys_class_requests_are_there() {
        assert_eq!(ask(0xA1, 0xFE, 0, 0, 1), ControlDecision::Data(vec![0]));
        assert_eq!(ask(0xA1, 0xFE, 0, 1, 1), ControlDecision::Stall);
        assert_eq!(ask(0x21, 0xFF, 0, 0, 0), ControlDecision::MassStorageReset);
        for (value, index, length) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            assert_eq!(ask(0x21, 0xFF, value, index, length), ControlDecision::Stall, "{value} {index} {length}");
        }
        assert_eq!(ask(0x00, 48, 0, 0, 6), ControlDecision::Accept);
        assert_eq!(ask(0x00, 48, 0, 0, 5), ControlDecision::Stall);
    }
}
