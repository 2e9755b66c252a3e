//! SETUP packets of the requests that every host sends to a unit (USB 3.2, 9.4; Bulk-Only, 3.1).

use super::pipes::Endpoint;

/// SET_ADDRESS.
pub const fn set_address(address: u8) -> [u8; 8] {
    [0x00, 5, address, 0, 0, 0, 0, 0]
}

/// SET_CONFIGURATION.
pub const fn set_configuration(value: u8) -> [u8; 8] {
    [0x00, 9, value, 0, 0, 0, 0, 0]
}

/// SET_INTERFACE.
pub const fn set_interface(interface: u8, alternate: u8) -> [u8; 8] {
    [0x01, 11, alternate, 0, interface, 0, 0, 0]
}

/// CLEAR_FEATURE(ENDPOINT_HALT).
pub const fn clear_halt(endpoint: Endpoint) -> [u8; 8] {
    [0x02, 1, 0, 0, endpoint.address(), 0, 0, 0]
}

/// Bulk-Only Mass Storage Reset.
pub const MASS_STORAGE_RESET: [u8; 8] = [0x21, 0xFF, 0, 0, 0, 0, 0, 0];
