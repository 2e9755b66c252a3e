//! The control requests of a host, for captures of a unit whose host sends none: in this process the descriptors are
//! read without endpoint 0, and the readers of a capture take the endpoints' classes from the requests.

use super::descriptors::Descriptors;
use crate::bridge::Endpoint;
use crate::pcap::{Device, End};

/// Reads the device descriptor and as much of the configuration as tells the alternate in use, chooses the
/// configuration and the alternate, as a host does first.
///
/// The alternates after it stay out: where one is UAS, Wireshark 4 takes the interface for UAS whatever is selected.
pub(super) fn enumeration(device: &Device, descriptors: &Descriptors, alternate: u8) {
    const DEVICE: u8 = 1;
    const CONFIGURATION: u8 = 2;
    let configuration = up_to(&descriptors.configuration, alternate);
    for (kind, bytes) in [(DEVICE, &descriptors.device[..]), (CONFIGURATION, configuration)] {
        let [low, high] = (bytes.len() as u16).to_le_bytes();
        device.control([0x80, 6, 0, kind, 0, 0, low, high], bytes, End::Done);
    }
    set_configuration(device, 1, End::Done);
    if alternate > 0 {
        set_interface(device, 0, alternate, End::Done);
    }
}

/// A configuration without the alternate settings above this one.
fn up_to(configuration: &[u8], alternate: u8) -> &[u8] {
    const INTERFACE: u8 = 4;
    let mut at = 0;
    while let Some(&[len, kind, _, number, ..]) = configuration.get(at..) {
        if len == 0 || (kind == INTERFACE && number > alternate) {
            break;
        }
        at += usize::from(len);
    }
    &configuration[..at.min(configuration.len())]
}

/// SET_CONFIGURATION.
pub(super) fn set_configuration(device: &Device, value: u8, end: End) {
    device.control([0x00, 9, value, 0, 0, 0, 0, 0], &[], end);
}

/// SET_INTERFACE.
pub(super) fn set_interface(device: &Device, interface: u8, alternate: u8, end: End) {
    device.control([0x01, 11, alternate, 0, interface, 0, 0, 0], &[], end);
}

/// CLEAR_FEATURE(ENDPOINT_HALT).
pub(super) fn clear_halt(device: &Device, endpoint: Endpoint) {
    device.control([0x02, 1, 0, 0, endpoint.address(), 0, 0, 0], &[], End::Done);
}

/// Bulk-Only Mass Storage Reset.
pub(super) fn mass_storage_reset(device: &Device, end: End) {
    device.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[], end);
}
