//! SETUP packets of the requests that every host sends to a unit.

use asm2464_host::bridge::Endpoint;

/// Whether a request is a vendor's: bmRequestType's bits 6 and 5 (USB 3.2, 9.3).
pub(super) const fn is_vendors(setup: [u8; 8]) -> bool {
    setup[0] & 0x60 == 0x40
}

/// Whether this is the open firmware's E5 that ends a strobe of the DMA engine: it clears bit 0 of 0xC42A.
pub(super) const fn ends_dma_strobe(setup: [u8; 8]) -> bool {
    matches!(setup, [0x40, 0xE5, 0x2A, 0xC4, value, 0, _, _] if value & 1 == 0)
}

/// Length in bytes of the stream that a request of the open firmware begins: F0 with a mode other than 0, whose data
/// ends with the number of dwords.
pub(super) fn stream_len(setup: [u8; 8], data: &[u8]) -> Option<u64> {
    match (setup, data.last_chunk()) {
        ([0x40, 0xF0, _, _, mode, ..], Some(dwords)) if mode & 3 != 0 => {
            Some(4 * u64::from(u32::from_le_bytes(*dwords)))
        }
        _ => None,
    }
}

/// SET_ADDRESS.
pub(super) const fn set_address(address: u8) -> [u8; 8] {
    [0x00, 5, address, 0, 0, 0, 0, 0]
}

/// SET_CONFIGURATION.
pub(crate) const fn set_configuration(value: u8) -> [u8; 8] {
    [0x00, 9, value, 0, 0, 0, 0, 0]
}

/// SET_INTERFACE.
pub(crate) const fn set_interface(interface: u8, alternate: u8) -> [u8; 8] {
    [0x01, 11, alternate, 0, interface, 0, 0, 0]
}

/// CLEAR_FEATURE(ENDPOINT_HALT).
pub(crate) const fn clear_halt(endpoint: Endpoint) -> [u8; 8] {
    [0x02, 1, 0, 0, endpoint.address(), 0, 0, 0]
}

/// Bulk-Only Mass Storage Reset.
pub(crate) const MASS_STORAGE_RESET: [u8; 8] = [0x21, 0xFF, 0, 0, 0, 0, 0, 0];
