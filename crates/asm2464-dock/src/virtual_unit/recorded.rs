//! Control requests for captures of units in this process. Such units have their descriptors read without endpoint 0,
//! but readers of a capture learn the endpoints' classes from these requests.

use super::descriptors::Descriptors;
use super::setup;
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
    device.control(setup::set_configuration(1), &[], End::Done);
    if alternate > 0 {
        device.control(setup::set_interface(0, alternate), &[], End::Done);
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
