//! Checks of a unit's descriptors before anything relies on them.
//!
//! What Linux corrects in its own copy of the descriptors is no fault here. The unit still sends it, and the kernel goes
//! on: the open firmware's one USB 2 configuration says 512 bytes also at 12 Mbit/s (tinygrad/asm2464pd-firmware c5e2090,
//! `handmade/src/usb.h`). What is corrected, in Linux:
//!
//! | descriptor | correction | source |
//! | --- | --- | --- |
//! | wMaxPacketSize above what the speed allows | the most that it allows | `usb_parse_endpoint`, drivers/usb/core/config.c |
//! | a bulk endpoint at low speed | an interrupt endpoint of 8 bytes at most, which takes bulk transfers | `usb_parse_endpoint`; `proc_do_submiturb`, drivers/usb/core/devio.c |
//! | bulk packets at full speed | the next lower power of two, 8 to 64 bytes | `xhci_endpoint_init`, drivers/usb/host/xhci-mem.c |
//! | bulk packets at high speed | 512 bytes | `xhci_endpoint_init` |
//! | an endpoint that is there twice | the first counts | `config_endpoint_is_duplicate`, drivers/usb/core/config.c |
//! | an alternate setting that is there twice | the first counts | `usb_parse_interface`, drivers/usb/core/config.c |
//! | more than 2^16 streams | 2^16 | `usb_parse_ss_endpoint_companion`, drivers/usb/core/config.c |
//!
//! An endpoint of 0 bytes stays a fault: the kernel only warns, and refuses its transfers (`usb_submit_urb`,
//! drivers/usb/core/urb.c).

use std::collections::BTreeSet;

use asm2464::firmware::{BULK_ONLY_CLASS, InterfaceClass, UAS_CLASS, VENDOR_CLASS, descriptors};
use thiserror::Error;

use crate::bridge::{BusSpeed, Endpoint, SUPER_SPEED_PACKET};

/// Number of the interface in every state of a bridge.
pub(super) const INTERFACE: u8 = 0;

/// bmAttributes of a bulk endpoint, bits 0 and 1.
const BULK: u8 = 0x02;

/// An endpoint descriptor with its SuperSpeed companion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointInfo {
    /// bEndpointAddress.
    pub address: u8,
    /// bmAttributes.
    pub attributes: u8,
    /// wMaxPacketSize, in bytes.
    pub max_packet: u16,
    /// Number of streams that the companion offers, 0 for none.
    pub streams: u16,
}

impl EndpointInfo {
    /// Reads the number of streams from a SuperSpeed endpoint companion descriptor in `extra` (USB 3.2, 9.6.7). Bits 0
    /// to 4 of bmAttributes are the exponent; 0 means none, and more than 16 counts as 16.
    pub fn streams_in(extra: &[u8]) -> u16 {
        const COMPANION: u8 = 0x30;
        for descriptor in descriptors(extra) {
            if let [_, COMPANION, _, attributes, ..] = *descriptor {
                let exponent = if attributes > 16 { 16 } else { attributes };
                return if exponent == 0 { 0 } else { (1u32 << exponent).min(0xFFFF) as u16 };
            }
        }
        0
    }
}

/// One alternate setting of interface 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternate {
    /// bAlternateSetting.
    pub number: u8,
    /// bInterfaceClass, bInterfaceSubClass, bInterfaceProtocol.
    pub class: InterfaceClass,
    /// The alternate's endpoints.
    pub endpoints: Vec<EndpointInfo>,
}

/// A unit's UAS pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UasPipes {
    /// The alternate setting.
    pub alternate: u8,
    /// Number of streams on each of the three pipes; 0 at high speed, where UAS uses none.
    pub streams: u16,
}

/// A unit's checked alternate settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of alternate settings.
    pub alternates: usize,
    /// The alternate setting of Bulk-Only, or the reason it can't be used.
    pub bulk_only: Result<u8, DescriptorFault>,
    /// The pipes of UAS, or the reason they can't be used.
    pub uas: Result<UasPipes, DescriptorFault>,
    /// The alternate setting of the open firmware, whose control requests arm its bulk data, or the reason it can't be
    /// used.
    pub open: Result<u8, DescriptorFault>,
}

/// Reasons a unit's descriptors can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DescriptorFault {
    /// There is no interface 0, or it has no alternate setting.
    #[error("it has no interface 0")]
    NoInterface,
    /// No alternate setting has the class.
    #[error("no alternate setting of interface 0 is {0} (found class {1:02x?})")]
    NoClass(&'static str, (u8, u8, u8)),
    /// An endpoint is missing.
    #[error("alternate setting {alternate} lacks endpoint {address:#04x}")]
    Missing {
        /// The alternate setting.
        alternate: u8,
        /// The endpoint.
        address: u8,
    },
    /// An endpoint is not a bulk endpoint.
    #[error("endpoint {address:#04x} is not bulk (bmAttributes {attributes:#04x})")]
    NotBulk {
        /// The endpoint.
        address: u8,
        /// Its bmAttributes.
        attributes: u8,
    },
    /// The maximum packet size is not one of bulk endpoints at this speed (USB 2.0, 5.8.3; USB 3.2, 9.6.6), and Linux
    /// does not correct it.
    #[error("endpoint {address:#04x} says its packets have {found} bytes, which no bulk endpoint has at this speed")]
    MaxPacket {
        /// The endpoint.
        address: u8,
        /// wMaxPacketSize.
        found: u16,
    },
    /// An endpoint lacks streams. UAS at SuperSpeed needs them on three pipes.
    #[error("endpoint {address:#04x} has no streams, which UAS needs at this speed")]
    NoStreams {
        /// The endpoint.
        address: u8,
    },
}

impl Layout {
    /// Checks interface 0's alternate settings.
    ///
    /// # Errors
    /// [`DescriptorFault`] if the unit offers neither Bulk-Only nor the open firmware's requests. Every state of a
    /// bridge offers one of them.
    pub fn of(alternates: &[Alternate], speed: BusSpeed) -> Result<Self, DescriptorFault> {
        let first = alternates.first().ok_or(DescriptorFault::NoInterface)?;
        let of_class = |class, name| {
            let found = alternates.iter().find(|alternate| alternate.class == class);
            found.ok_or(DescriptorFault::NoClass(name, first.class))
        };
        let with_data = |alternate: &Alternate| {
            for endpoint in [Endpoint::DataIn, Endpoint::DataOut] {
                checked(alternate, endpoint, speed)?;
            }
            Ok(alternate.number)
        };
        let numbers: BTreeSet<u8> = alternates.iter().map(|alternate| alternate.number).collect();
        let layout = Self {
            alternates: numbers.len(),
            bulk_only: of_class(BULK_ONLY_CLASS, "Bulk-Only (8/6/50)").and_then(with_data),
            uas: of_class(UAS_CLASS, "UAS (8/6/62)").and_then(|alternate| uas(alternate, speed)),
            open: of_class(VENDOR_CLASS, "vendor-specific (ff/ff/ff)").and_then(with_data),
        };
        // One of both is enough. If neither can be used, the class that is there says why.
        match (layout.bulk_only, layout.open) {
            (Err(fault), Err(DescriptorFault::NoClass(..))) | (Err(DescriptorFault::NoClass(..)), Err(fault)) => {
                Err(fault)
            }
            _ => Ok(layout),
        }
    }
}

/// Reads interface 0's alternate settings from a device's raw descriptors: the first configuration's.
///
/// As Linux does, and libusb does not, skips a descriptor that is too short or has an impossible address, and believes
/// what follows more than the counts before it.
pub(super) fn alternates_in(raw: &[u8]) -> Vec<Alternate> {
    const CONFIGURATION_TYPE: u8 = 2;
    const INTERFACE_TYPE: u8 = 4;
    const ENDPOINT_TYPE: u8 = 5;
    const NUMBER: u8 = 0x0F;
    let mut alternates: Vec<Alternate> = Vec::new();
    let mut configurations = 0;
    let mut is_interface_0 = false;
    let mut of_endpoint = None;
    for descriptor in descriptors(raw) {
        match *descriptor {
            [_, CONFIGURATION_TYPE, ..] => {
                configurations += 1;
                if configurations > 1 {
                    break;
                }
            }
            [_, INTERFACE_TYPE, number, alternate, _, class, subclass, protocol, _, ..] => {
                is_interface_0 = number == INTERFACE;
                of_endpoint = None;
                if is_interface_0 {
                    let class = (class, subclass, protocol);
                    alternates.push(Alternate { number: alternate, class, endpoints: Vec::new() });
                }
            }
            [_, INTERFACE_TYPE, ..] => is_interface_0 = false,
            [_, ENDPOINT_TYPE, address, attributes, low, high, _, ..] if address & NUMBER != 0 => {
                of_endpoint = None;
                if let Some(alternate) = alternates.last_mut().filter(|_| is_interface_0) {
                    let max_packet = u16::from_le_bytes([low, high]);
                    alternate.endpoints.push(EndpointInfo { address, attributes, max_packet, streams: 0 });
                    of_endpoint = alternate.endpoints.last_mut();
                }
            }
            [_, ENDPOINT_TYPE, ..] => of_endpoint = None,
            _ => {
                if let Some(endpoint) = &mut of_endpoint
                    && endpoint.streams == 0
                {
                    endpoint.streams = EndpointInfo::streams_in(descriptor);
                }
            }
        }
    }
    alternates
}

/// wMaxPacketSize of every bulk endpoint, in bytes.
pub(super) fn bulk_packets(alternates: &[Alternate]) -> Vec<u16> {
    let endpoints = alternates.iter().flat_map(|alternate| &alternate.endpoints);
    let is_bulk = |endpoint: &&EndpointInfo| endpoint.attributes & 0x03 == BULK;
    endpoints.filter(is_bulk).map(|endpoint| endpoint.max_packet).collect()
}

fn uas(alternate: &Alternate, speed: BusSpeed) -> Result<UasPipes, DescriptorFault> {
    checked(alternate, Endpoint::Command, speed)?;
    let mut streams = u16::MAX;
    for endpoint in [Endpoint::DataIn, Endpoint::DataOut, Endpoint::Status] {
        let info = checked(alternate, endpoint, speed)?;
        // The packets tell the speed, whether or not the system does.
        let has_streams = info.max_packet == SUPER_SPEED_PACKET;
        if has_streams && info.streams == 0 {
            return Err(DescriptorFault::NoStreams { address: info.address });
        }
        streams = streams.min(if has_streams { info.streams } else { 0 });
    }
    Ok(UasPipes { alternate: alternate.number, streams })
}

fn checked(alternate: &Alternate, endpoint: Endpoint, speed: BusSpeed) -> Result<EndpointInfo, DescriptorFault> {
    let (number, address) = (alternate.number, endpoint.address());
    let mut all = alternate.endpoints.iter();
    let info =
        *all.find(|info| info.address == address).ok_or(DescriptorFault::Missing { alternate: number, address })?;
    if info.attributes & 0x03 != BULK {
        return Err(DescriptorFault::NotBulk { address, attributes: info.attributes });
    }
    match corrected_packet(info.max_packet, speed) {
        Some(max_packet) => Ok(EndpointInfo { max_packet, ..info }),
        None => Err(DescriptorFault::MaxPacket { address, found: info.max_packet }),
    }
}

/// The maximum packet size of a bulk endpoint at this speed, as Linux corrects it, in bytes. `None` if the host sends
/// such an endpoint nothing.
fn corrected_packet(found: u16, speed: BusSpeed) -> Option<u16> {
    if found == 0 {
        return None;
    }
    match speed {
        BusSpeed::Unknown { .. } => [8, 16, 32, 64, 512, SUPER_SPEED_PACKET].contains(&found).then_some(found),
        BusSpeed::Low => Some(found.min(8)),
        BusSpeed::Full => Some((1 << found.ilog2()).clamp(8, 64)),
        BusSpeed::High => Some(512),
        BusSpeed::Super | BusSpeed::SuperPlus { .. } => (found >= SUPER_SPEED_PACKET).then_some(SUPER_SPEED_PACKET),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(address: u8, streams: u16) -> EndpointInfo {
        EndpointInfo { address, attributes: BULK, max_packet: 1024, streams }
    }

    fn running() -> Vec<Alternate> {
        let bulk_only =
            Alternate { number: 0, class: BULK_ONLY_CLASS, endpoints: vec![endpoint(0x81, 0), endpoint(0x02, 0)] };
        let uas = [endpoint(0x81, 32), endpoint(0x02, 32), endpoint(0x83, 32), endpoint(0x04, 0)];
        vec![bulk_only, Alternate { number: 1, class: UAS_CLASS, endpoints: uas.to_vec() }]
    }

    fn boot_loader() -> Vec<Alternate> {
        running().drain(..1).collect()
    }

    #[test]
    fn running_firmware_offers_both_transports() {
        let layout = Layout::of(&running(), BusSpeed::Super).unwrap();
        assert_eq!((layout.bulk_only, layout.alternates), (Ok(0), 2));
        assert!(matches!(layout.open, Err(DescriptorFault::NoClass(..))));
        assert_eq!(layout.uas, Ok(UasPipes { alternate: 1, streams: 32 }));
    }

    #[test]
    fn the_boot_loader_offers_bulk_only_alone() {
        let layout = Layout::of(&boot_loader(), BusSpeed::Super).unwrap();
        assert!(matches!(layout.uas, Err(DescriptorFault::NoClass("UAS (8/6/62)", _))));
    }

    #[test]
    fn open_firmware_offers_its_requests_alone_at_either_speed() {
        let alternate = |number, max_packet| {
            let endpoints = [0x81, 0x02].map(|address| EndpointInfo { max_packet, ..endpoint(address, 0) });
            Alternate { number, class: VENDOR_CLASS, endpoints: endpoints.to_vec() }
        };
        for (alternates, speed) in
            [(vec![alternate(0, 1024), alternate(1, 1024)], BusSpeed::Super), (vec![alternate(0, 512)], BusSpeed::High)]
        {
            let layout = Layout::of(&alternates, speed).unwrap();
            assert_eq!((layout.open, layout.alternates), (Ok(0), alternates.len()));
            assert!(matches!(layout.bulk_only, Err(DescriptorFault::NoClass(..))));
            assert!(layout.uas.is_err());
        }
        let lacks = [Alternate { endpoints: vec![endpoint(0x81, 0)], ..alternate(0, 1024) }];
        assert_eq!(Layout::of(&lacks, BusSpeed::Super), Err(DescriptorFault::Missing { alternate: 0, address: 0x02 }));
    }

    #[test]
    fn at_high_speed_uas_goes_without_streams() {
        let mut alternates = running();
        for endpoint in alternates.iter_mut().flat_map(|alternate| &mut alternate.endpoints) {
            (endpoint.max_packet, endpoint.streams) = (512, 0);
        }
        let layout = Layout::of(&alternates, BusSpeed::High).unwrap();
        assert_eq!(layout.uas, Ok(UasPipes { alternate: 1, streams: 0 }));
    }

    #[test]
    fn at_superspeed_uas_without_streams_is_not_offered() {
        let mut alternates = running();
        alternates[1].endpoints[1].streams = 0;
        let layout = Layout::of(&alternates, BusSpeed::Super).unwrap();
        assert_eq!(layout.uas, Err(DescriptorFault::NoStreams { address: 0x02 }));
    }

    #[test]
    fn at_20_gbit_and_at_an_unknown_speed_uas_has_the_streams_of_its_descriptors() {
        let proved = BusSpeed::UNKNOWN.or_proved_by_packets(bulk_packets(&running()));
        assert!(proved.is_super(), "{proved}");
        for speed in [BusSpeed::of_sysfs("20000").unwrap(), BusSpeed::UNKNOWN, proved] {
            let layout = Layout::of(&running(), speed).unwrap();
            assert_eq!(layout.uas, Ok(UasPipes { alternate: 1, streams: 32 }));
        }
    }

    #[test]
    fn each_wrong_descriptor_has_its_own_fault() {
        let of = |change: &dyn Fn(&mut Vec<Alternate>)| {
            let mut alternates = boot_loader();
            change(&mut alternates);
            Layout::of(&alternates, BusSpeed::Super).unwrap_err()
        };
        assert_eq!(of(&|all| all.clear()), DescriptorFault::NoInterface);
        assert_eq!(
            of(&|all| all[0].class = (0x03, 0x01, 0x01)),
            DescriptorFault::NoClass("Bulk-Only (8/6/50)", (0x03, 0x01, 0x01))
        );
        assert_eq!(of(&|all| all[0].endpoints.clear()), DescriptorFault::Missing { alternate: 0, address: 0x81 });
        assert_eq!(
            of(&|all| all[0].endpoints[1].attributes = 0x03),
            DescriptorFault::NotBulk { address: 0x02, attributes: 0x03 }
        );
        for found in [0, 512, 1023] {
            assert_eq!(
                of(&|all| all[0].endpoints[0].max_packet = found),
                DescriptorFault::MaxPacket { address: 0x81, found }
            );
        }
    }

    #[test]
    fn packets_that_linux_corrects_at_a_speed_are_no_fault() {
        let at = |max_packet, speed| {
            let endpoints = [0x81, 0x02].map(|address| EndpointInfo { max_packet, ..endpoint(address, 0) });
            let alternates = [Alternate { number: 0, class: VENDOR_CLASS, endpoints: endpoints.to_vec() }];
            let layout = Layout::of(&alternates, speed)?;
            assert_eq!(layout.open, Ok(0));
            checked(&alternates[0], Endpoint::DataIn, speed).map(|info| info.max_packet)
        };
        let unknown = BusSpeed::UNKNOWN;
        for (speed, found, corrected) in [
            (BusSpeed::Full, 512, 64),
            (BusSpeed::Full, 1024, 64),
            (BusSpeed::Full, 64, 64),
            (BusSpeed::Full, 48, 32),
            (BusSpeed::Full, 1, 8),
            (BusSpeed::High, 1024, 512),
            (BusSpeed::High, 64, 512),
            (BusSpeed::Low, 512, 8),
            (BusSpeed::Super, 0x8400, 1024),
            (unknown, 512, 512),
        ] {
            assert_eq!(at(found, speed), Ok(corrected), "{found} at {speed}");
        }
        for (speed, found) in [
            (BusSpeed::Full, 0),
            (BusSpeed::High, 0),
            (BusSpeed::Super, 512),
            (BusSpeed::SUPER_PLUS, 0),
            (unknown, 100),
        ] {
            assert_eq!(at(found, speed), Err(DescriptorFault::MaxPacket { address: 0x81, found }), "at {speed}");
        }
    }

    #[test]
    fn of_an_endpoint_or_an_alternate_setting_that_is_there_twice_the_first_counts() {
        let mut alternates = boot_loader();
        alternates[0].endpoints.push(EndpointInfo { attributes: 0x03, ..endpoint(0x81, 0) });
        alternates.push(Alternate { endpoints: Vec::new(), ..alternates[0].clone() });
        let layout = Layout::of(&alternates, BusSpeed::Super).unwrap();
        assert_eq!((layout.bulk_only, layout.alternates), (Ok(0), 1));
    }

    #[test]
    fn streams_are_read_from_the_companion_wherever_it_stands() {
        let companion = [6, 0x30, 15, 5, 0, 0];
        let usage = [4, 0x24, 3, 0];
        assert_eq!(EndpointInfo::streams_in(&companion), 32);
        assert_eq!(EndpointInfo::streams_in(&[usage.as_slice(), &companion].concat()), 32);
        assert_eq!(EndpointInfo::streams_in(&[6, 0x30, 15, 0, 0, 0]), 0);
        for many in [16, 17, 0x80] {
            assert_eq!(EndpointInfo::streams_in(&[6, 0x30, 15, many, 0, 0]), 0xFFFF, "{many}");
        }
    }

    /// The open firmware's one USB 2 configuration, with `change` made in it: tinygrad/asm2464pd-firmware c5e2090,
    /// `handmade/src/usb.h`.
    fn open_usb2(change: impl Fn(&mut Vec<Vec<u8>>)) -> Vec<u8> {
        let mut all = vec![vec![18, 1, 0, 2, 0, 0, 0, 64, 1, 0x38, 1, 0, 1, 0, 1, 2, 3, 1]];
        all.push(vec![9, 2, 46, 0, 1, 1, 0, 0xC0, 0]);
        all.push(vec![9, 4, 0, 0, 4, 0xFF, 0xFF, 0xFF, 0]);
        for address in [0x81, 0x02, 0x83, 0x04] {
            all.push(vec![7, 5, address, BULK, 0, 2, 0]);
        }
        change(&mut all);
        all.concat()
    }

    #[test]
    fn open_firmware_at_12_mbit_per_s_says_512_bytes_and_takes_its_requests() {
        let alternates = alternates_in(&open_usb2(|_| {}));
        assert_eq!(bulk_packets(&alternates), [512; 4]);
        for speed in [BusSpeed::Full, BusSpeed::High] {
            assert_eq!(Layout::of(&alternates, speed).unwrap().open, Ok(0), "{speed}");
        }
    }

    #[test]
    fn descriptors_that_linux_skips_or_counts_again_are_no_fault() {
        let open_with = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let alternates = alternates_in(&open_usb2(change));
            (alternates.len(), Layout::of(&alternates, BusSpeed::Full).and_then(|layout| layout.open))
        };
        type Change<'a> = &'a dyn Fn(&mut Vec<Vec<u8>>);
        let cases: [(&str, Change<'_>); 8] = [
            ("too many endpoints counted", &|all| all[2][4] = 9),
            ("too many interfaces counted", &|all| all[1][4] = 3),
            ("a longer configuration counted", &|all| all[1][2] = 200),
            ("a short endpoint", &|all| all.insert(3, vec![3, 5, 0x81])),
            ("endpoint 0", &|all| all.insert(3, vec![7, 5, 0x80, BULK, 0, 2, 0])),
            ("a short interface", &|all| all.insert(2, vec![5, 4, 0, 0, 1])),
            ("one byte at the end", &|all| all.push(vec![1])),
            ("a descriptor past the end", &|all| all.push(vec![40, 5, 1])),
        ];
        for (case, change) in cases {
            assert_eq!(open_with(change), (1, Ok(0)), "{case}");
        }
        let second = |all: &mut Vec<Vec<u8>>| all.extend(all[1..].to_vec());
        assert_eq!(open_with(&second), (1, Ok(0)), "a second configuration");
    }

    #[test]
    fn raw_descriptors_give_the_streams_of_the_companion_after_the_endpoint() {
        let mut all =
            vec![vec![9, 4, 0, 0, 2, 8, 6, 0x50, 0], vec![7, 5, 0x81, BULK, 0, 4, 0], vec![6, 0x30, 15, 0, 0, 0]];
        all.push(vec![9, 4, 0, 1, 2, 8, 6, 0x62, 0]);
        for address in [0x04, 0x83] {
            let streams = if address == 0x04 { 0 } else { 5 };
            all.extend([vec![7, 5, address, BULK, 0, 4, 0], vec![6, 0x30, 15, streams, 0, 0], vec![4, 0x24, 3, 0]]);
        }
        all.push(vec![9, 4, 1, 0, 1, 3, 0, 0, 0]);
        all.push(vec![7, 5, 0x85, 3, 8, 0, 1]);
        let endpoint = |address, streams| EndpointInfo { address, attributes: BULK, max_packet: 1024, streams };
        let expected = vec![
            Alternate { number: 0, class: BULK_ONLY_CLASS, endpoints: vec![endpoint(0x81, 0)] },
            Alternate { number: 1, class: UAS_CLASS, endpoints: vec![endpoint(0x04, 0), endpoint(0x83, 32)] },
        ];
        assert_eq!(alternates_in(&all.concat()), expected);
    }

    proptest::proptest! {
        #[test]
        fn reading_companions_never_panics(extra: Vec<u8>) {
            let _ = EndpointInfo::streams_in(&extra);
        }

        #[test]
        fn reading_raw_descriptors_never_panics(raw: Vec<u8>) {
            let _ = Layout::of(&alternates_in(&raw), BusSpeed::Full);
        }
    }
}
