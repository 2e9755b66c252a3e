//! Descriptors that a unit enumerates with: device, configuration, BOS and strings.
//!
//! Sources: USB 3.2, chapter 9; UAS-3, clause 5 (pipe usage descriptors); the endpoints of 240417.

use asm2464::firmware::{BridgeState, ConfigBlock, ConfigField, InterfaceClass, UsbId, descriptors};
use asm2464_chip::chip::Speed;
use asm2464_host::bridge::BusSpeed;

/// Number of bulk streams of each of the three UAS pipes with streams.
pub const STREAMS: u16 = 32;

/// USB and SCSI identity of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// idVendor and idProduct.
    pub id: UsbId,
    /// bcdDevice.
    pub release: u16,
    /// iManufacturer.
    pub manufacturer: String,
    /// iProduct.
    pub product: String,
    /// iSerialNumber.
    pub serial: String,
    /// The vendor in standard INQUIRY data, at most 8 characters.
    pub t10_vendor: String,
    /// The product in standard INQUIRY data, at most 16 characters.
    pub t10_product: String,
}

impl Identity {
    /// Identity of the boot loader in ROM.
    pub fn boot_loader() -> Self {
        const MAKER: &str = "ASMedia";
        const PRODUCT: &str = "AS2462";
        Self {
            id: UsbId::BOOT_LOADER,
            release: 0x0001,
            manufacturer: MAKER.to_owned(),
            product: PRODUCT.to_owned(),
            serial: "000000000000".to_owned(),
            t10_vendor: MAKER.to_owned(),
            t10_product: PRODUCT.to_owned(),
        }
    }

    /// Identity that firmware takes from a valid configuration block 0.
    pub fn configured(block: &ConfigBlock) -> Self {
        Self {
            id: block.usb_id(),
            release: block.number(ConfigField::DeviceRelease),
            manufacturer: block.text(ConfigField::Manufacturer),
            product: block.text(ConfigField::Product),
            serial: block.text(ConfigField::Serial),
            t10_vendor: block.text(ConfigField::T10Vendor),
            t10_product: block.text(ConfigField::T10Product),
        }
    }
}

/// A unit's descriptors in wire format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptors {
    /// The unit's identity.
    pub identity: Identity,
    /// The unit's state: what runs on it.
    pub state: BridgeState,
    /// Speed of the link.
    pub speed: Speed,
    /// The device descriptor.
    pub device: [u8; 18],
    /// The configuration descriptor and everything after it: interfaces, endpoints, companions, pipe usages.
    pub configuration: Vec<u8>,
    /// The binary device object store.
    pub bos: Vec<u8>,
}

/// An alternate setting: its class and its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// bInterfaceClass, bInterfaceSubClass, bInterfaceProtocol.
    pub class: InterfaceClass,
    /// Its endpoints, in order.
    pub pipes: Vec<Pipe>,
}

/// An endpoint of an alternate setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipe {
    /// bEndpointAddress.
    pub address: u8,
    /// wMaxPacketSize, in bytes.
    pub max_packet: u16,
    /// Bulk streams that the companion offers; 0 for none.
    pub streams: u16,
}

const SERIAL_INDEX: u8 = 1;
const MANUFACTURER_INDEX: u8 = 2;
const PRODUCT_INDEX: u8 = 3;

impl Descriptors {
    /// The link's speed as a system reports it.
    pub const fn bus_speed(&self) -> BusSpeed {
        match self.speed {
            Speed::High => BusSpeed::High,
            Speed::Super => BusSpeed::Super,
        }
    }

    /// Builds the boot loader's descriptors. Those of firmware come from its own answers.
    pub fn boot_loader(identity: Identity, speed: Speed) -> Self {
        Self {
            device: device(&identity, speed),
            configuration: configuration(speed),
            bos: bos(),
            identity,
            state: BridgeState::BootLoader,
            speed,
        }
    }

    /// Parses an alternate setting of interface 0 from the configuration descriptor.
    pub fn setting(&self, alternate: u8) -> Option<Setting> {
        const INTERFACE: u8 = 4;
        const ENDPOINT: u8 = 5;
        const COMPANION: u8 = 0x30;
        let mut found: Option<Setting> = None;
        let mut is_meant = false;
        for descriptor in descriptors(&self.configuration) {
            match *descriptor {
                [_, INTERFACE, 0, number, _, class, subclass, protocol, ..] => {
                    is_meant = number == alternate && found.is_none();
                    if is_meant {
                        found = Some(Setting { class: (class, subclass, protocol), pipes: Vec::new() });
                    }
                }
                [_, INTERFACE, ..] => is_meant = false,
                [_, ENDPOINT, address, _, low, high, ..] if is_meant => {
                    let pipe = Pipe { address, max_packet: u16::from_le_bytes([low, high]), streams: 0 };
                    found.as_mut()?.pipes.push(pipe);
                }
                [_, COMPANION, _, attributes, ..] if is_meant => {
                    let exponent = attributes & 0x1F;
                    if let (Some(pipe), 1..=15) = (found.as_mut()?.pipes.last_mut(), exponent) {
                        pipe.streams = 1 << exponent;
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// A string descriptor; `None` if it does not exist. Index 0 lists the languages (only US English).
    pub fn string(&self, index: u8) -> Option<Vec<u8>> {
        let text = match index {
            0 => return Some(vec![4, 0x03, 0x09, 0x04]),
            SERIAL_INDEX => &self.identity.serial,
            MANUFACTURER_INDEX => &self.identity.manufacturer,
            PRODUCT_INDEX => &self.identity.product,
            _ => return None,
        };
        let units: Vec<u8> = text.encode_utf16().take(126).flat_map(u16::to_le_bytes).collect();
        let mut descriptor = vec![units.len() as u8 + 2, 0x03];
        descriptor.extend(units);
        Some(descriptor)
    }
}

fn device(identity: &Identity, speed: Speed) -> [u8; 18] {
    let (usb, packet_size) = match speed {
        Speed::High => (0x0210u16, 64),
        // At SuperSpeed the field is an exponent: 2^9 bytes.
        Speed::Super => (0x0320, 9),
    };
    let [usb_low, usb_high] = usb.to_le_bytes();
    let [vendor_low, vendor_high] = identity.id.vendor.to_le_bytes();
    let [product_low, product_high] = identity.id.product.to_le_bytes();
    let [release_low, release_high] = identity.release.to_le_bytes();
    #[rustfmt::skip]
    let descriptor = [
        18, 0x01, usb_low, usb_high, 0, 0, 0, packet_size,
        vendor_low, vendor_high, product_low, product_high, release_low, release_high,
        MANUFACTURER_INDEX, PRODUCT_INDEX, SERIAL_INDEX, 1,
    ];
    descriptor
}

/// One alternate setting: Bulk-Only, with bursts of 16 packets at SuperSpeed.
fn configuration(speed: Speed) -> Vec<u8> {
    let mut descriptor = vec![9, 0x02, 0, 0, 1, 1, 0, 0xC0, 0];
    descriptor.extend([9, 0x04, 0, 0, 2, 0x08, 0x06, 0x50, 0]);
    let [low, high] = (speed.bulk_packet() as u16).to_le_bytes();
    for address in [0x81, 0x02] {
        descriptor.extend([7, 0x05, address, 0x02, low, high, 0]);
        if speed == Speed::Super {
            descriptor.extend([6, 0x30, 15, 0, 0, 0]);
        }
    }
    let total = (descriptor.len() as u16).to_le_bytes();
    descriptor[2..4].copy_from_slice(&total);
    descriptor
}

fn bos() -> Vec<u8> {
    #[rustfmt::skip]
    let bos = vec![
        5, 0x0F, 22, 0, 2,
        // USB 2.0 extension: link power management.
        7, 0x10, 0x02, 0x02, 0, 0, 0,
        // SuperSpeed: full, high and super speed; all functions from full speed up; U1 within 10 us, U2 within 2,047.
        10, 0x10, 0x03, 0, 0x0E, 0, 1, 10, 0xFF, 0x07,
    ];
    bos
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::known_blocks;

    use super::*;
    use crate::virtual_unit::{Scenario, VirtualUnit};

    fn hex(bytes: &[u8]) -> String {
        asm2464::digest::to_hex(bytes, " ")
    }

    /// Splits a configuration into its descriptors: (bDescriptorType, the whole descriptor).
    fn walk(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut found = Vec::new();
        while let Some(len) = bytes.first() {
            let (one, rest) = bytes.split_at(usize::from(*len));
            found.push((one[1], one.to_vec()));
            bytes = rest;
        }
        found
    }

    /// The practice image's descriptors, as its firmware answers them on the chip.
    fn of_firmware(speed: Speed) -> Descriptors {
        let scenario = Scenario { speed, ..Scenario::default() };
        VirtualUnit::in_memory(scenario, b"descriptors", None).unwrap().descriptors().clone()
    }

    #[test]
    fn a_boot_loader_enumerates_as_its_block_says() {
        let [block, _] = known_blocks();
        let descriptors = Descriptors::boot_loader(Identity::configured(&block), Speed::Super);
        assert_eq!(hex(&descriptors.device), "12 01 20 03 00 00 00 09 d1 ad 01 00 00 01 02 03 01 01");
        let product = descriptors.string(PRODUCT_INDEX).unwrap();
        assert_eq!(usize::from(product[0]), product.len());
        let units: Vec<u16> = product[2..].chunks(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        assert_eq!(String::from_utf16(&units).unwrap(), "USB 3.2 PCIe TinyEnclosure");
        assert_eq!(descriptors.string(4), None);
    }

    #[test]
    fn the_boot_loader_has_bulk_only_alone_with_bursts_of_16_packets() {
        let descriptors = Descriptors::boot_loader(Identity::boot_loader(), Speed::Super);
        assert_eq!(
            hex(&descriptors.configuration),
            "09 02 2c 00 01 01 00 c0 00 \
             09 04 00 00 02 08 06 50 00 \
             07 05 81 02 00 04 00 06 30 0f 00 00 00 \
             07 05 02 02 00 04 00 06 30 0f 00 00 00"
        );
        assert_eq!(&descriptors.device[8..12], [0x4C, 0x17, 0x63, 0x24]);
    }

    #[test]
    fn running_firmware_has_uas_with_32_streams_on_three_pipes() {
        let descriptors = of_firmware(Speed::Super);
        assert_eq!(
            hex(&descriptors.configuration[44..]),
            "09 04 00 01 04 08 06 62 00 \
             07 05 04 02 00 04 00 06 30 00 00 00 00 04 24 01 00 \
             07 05 83 02 00 04 00 06 30 00 05 00 00 04 24 02 00 \
             07 05 81 02 00 04 00 06 30 0f 05 00 00 04 24 03 00 \
             07 05 02 02 00 04 00 06 30 0f 05 00 00 04 24 04 00"
        );
    }

    #[test]
    fn at_high_speed_there_are_no_companions_and_packets_have_512_bytes() {
        let boot_loader = Descriptors::boot_loader(Identity::boot_loader(), Speed::High);
        for descriptors in [boot_loader, of_firmware(Speed::High)] {
            let all = walk(&descriptors.configuration);
            assert!(all.iter().all(|(kind, _)| *kind != 0x30));
            assert!(all.iter().filter(|(kind, _)| *kind == 0x05).all(|(_, endpoint)| endpoint[4..6] == [0x00, 0x02]));
        }
    }

    #[test]
    fn every_total_length_is_the_length() {
        for speed in [Speed::High, Speed::Super] {
            let boot_loader = Descriptors::boot_loader(Identity::boot_loader(), speed);
            for (descriptors, alternates) in [(boot_loader, 1), (of_firmware(speed), 2)] {
                for whole in [&descriptors.configuration, &descriptors.bos] {
                    assert_eq!(usize::from(u16::from_le_bytes([whole[2], whole[3]])), whole.len());
                }
                let interfaces = walk(&descriptors.configuration).iter().filter(|(kind, _)| *kind == 0x04).count();
                assert_eq!(interfaces, alternates);
                assert_eq!(walk(&descriptors.bos[5..]).len(), usize::from(descriptors.bos[4]));
            }
        }
    }
}
