//! Control requests for captures of units in this process. Such units have their descriptors read without endpoint 0,
//! but readers of a capture learn the endpoints' classes from these requests.

use super::descriptors::Descriptors;
use crate::bridge::Endpoint;
use crate::pcap::{Device, End};

/// Records an enumeration as a host makes it: reads the device descriptor and the configuration up to the alternate in
/// use, and selects configuration and alternate.
///
/// It leaves out later alternates: if one is UAS, Wireshark 4 treats the interface as UAS whichever alternate is
/// selected.
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

/// Cuts off the alternate settings above this one from a configuration.
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

/// Records SET_CONFIGURATION.
pub(super) fn set_configuration(device: &Device, value: u8, end: End) {
    device.control([0x00, 9, value, 0, 0, 0, 0, 0], &[], end);
}

/// Records SET_INTERFACE.
pub(super) fn set_interface(device: &Device, interface: u8, alternate: u8, end: End) {
    device.control([0x01, 11, alternate, 0, interface, 0, 0, 0], &[], end);
}

/// Records CLEAR_FEATURE(ENDPOINT_HALT).
pub(super) fn clear_halt(device: &Device, endpoint: Endpoint) {
    device.control([0x02, 1, 0, 0, endpoint.address(), 0, 0, 0], &[], End::Done);
}

/// Records Bulk-Only Mass Storage Reset.
pub(super) fn mass_storage_reset(device: &Device, end: End) {
    device.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[], end);
}
