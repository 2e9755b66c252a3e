//! Checks of a unit's descriptors before anything relies on them.

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
    /// to 4 of bmAttributes are the exponent; 0 means none.
    pub fn streams_in(extra: &[u8]) -> u16 {
        const COMPANION: u8 = 0x30;
        for descriptor in descriptors(extra) {
            if let [_, COMPANION, _, attributes, ..] = *descriptor {
                let exponent = attributes & 0x1F;
                return if (1..=16).contains(&exponent) { (1u32 << exponent).min(0xFFFF) as u16 } else { 0 };
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
    /// An endpoint exists twice.
    #[error("alternate setting {alternate} has endpoint {address:#04x} more than once")]
    Twice {
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
    /// The maximum packet size is not one of bulk endpoints at this speed (USB 2.0, 5.8.3; USB 3.2, 9.6.6).
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
        let layout = Self {
            alternates: alternates.len(),
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
    let mut all = alternate.endpoints.iter().filter(|info| info.address == address);
    let info = *all.next().ok_or(DescriptorFault::Missing { alternate: number, address })?;
    if all.next().is_some() {
        return Err(DescriptorFault::Twice { alternate: number, address });
    }
    if info.attributes & 0x03 != BULK {
        return Err(DescriptorFault::NotBulk { address, attributes: info.attributes });
    }
    let allowed: &[u16] = match speed {
        BusSpeed::Unknown { .. } => &[8, 16, 32, 64, 512, SUPER_SPEED_PACKET],
        BusSpeed::Low => &[],
        BusSpeed::Full => &[8, 16, 32, 64],
        BusSpeed::High => &[512],
        BusSpeed::Super | BusSpeed::SuperPlus { .. } => &[SUPER_SPEED_PACKET],
    };
    if allowed.contains(&info.max_packet) {
        Ok(info)
    } else {
        Err(DescriptorFault::MaxPacket { address, found: info.max_packet })
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
            of(&|all| all[0].endpoints.push(endpoint(0x81, 0))),
            DescriptorFault::Twice { alternate: 0, address: 0x81 }
        );
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
    fn streams_are_read_from_the_companion_wherever_it_stands() {
        let companion = [6, 0x30, 15, 5, 0, 0];
        let usage = [4, 0x24, 3, 0];
        assert_eq!(EndpointInfo::streams_in(&companion), 32);
        assert_eq!(EndpointInfo::streams_in(&[usage.as_slice(), &companion].concat()), 32);
        assert_eq!(EndpointInfo::streams_in(&[6, 0x30, 15, 0, 0, 0]), 0);
    }

    proptest::proptest! {
        #[test]
        fn reading_companions_never_panics(extra: Vec<u8>) {
            let _ = EndpointInfo::streams_in(&extra);
        }
    }
}
