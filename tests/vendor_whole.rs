//! The vendor's image on a virtual bridge where its code alone answers: flashed, measured, hung, reset.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

use std::time::Duration;

use asmpatch::bridge::Port as _;
use asmpatch::firmware::{BlockIndex, BodyOffset, Image, Part, UsbId};
use asmpatch::interrupt::Interrupt;
use asmpatch::scsi::ResetMode;
use asmpatch::virtual_bridge::{Engine, LinkSpeed, Scenario, VirtualBridge, VirtualPort};

fn image() -> Image {
    let path = std::env::var_os("ASMPATCH_VENDOR_IMAGE").expect("ASMPATCH_VENDOR_IMAGE names the vendor's image");
    Image::parse(&std::fs::read(path).unwrap()).unwrap()
}

fn port_with(image: &Image, speed: LinkSpeed) -> VirtualPort {
    let scenario = Scenario { engine: Engine::Chip, speed, ..Scenario::default() };
    let unit = VirtualBridge::in_memory(scenario, b"whole", Some(&image.to_file())).unwrap();
    VirtualPort::new("virtual:whole".to_owned(), unit)
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn everything_that_a_flash_needs_works_by_the_firmwares_own_doing_at_both_speeds() {
    let image = image();
    for speed in [LinkSpeed::Super, LinkSpeed::High] {
        let mut port = port_with(&image, speed);
        assert_eq!(port.attached().unwrap().usb_id, UsbId::STOCK);
        let mut bridge = port.open().unwrap();
        assert_eq!(bridge.firmware_version().unwrap(), image.version());
        let mut blocks = BlockIndex::ALL.map(|index| bridge.read_config(index).unwrap());
        // The serial number's last character, and the checksum with it.
        blocks[0][0x0F] ^= 1;
        blocks[0][0x7F] = blocks[0][0x04..0x7F].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        let file = image.to_file();
        for (index, block) in BlockIndex::ALL.into_iter().zip(&blocks) {
            bridge.write_config(index, block).unwrap();
        }
        for part in Part::ALL {
            bridge.write_flash(part, part.of(&file)).unwrap();
        }
        for part in Part::ALL {
            let mut found = vec![0; part.of(&file).len()];
            bridge.read_flash(part, &mut found).unwrap();
            assert!(found == part.of(&file), "{part:?} at {speed:?}");
        }
        bridge.reset(ResetMode::CpuReset).unwrap();
        drop(bridge);
        let back = port.wait_for_return(Duration::from_secs(5), Interrupt::never()).unwrap().unwrap();
        assert_eq!(back.usb_id, UsbId::STOCK);
        assert_eq!(port.open().unwrap().read_config(BlockIndex::Zero).unwrap(), blocks[0]);
    }
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn a_halted_unit_leaves_the_bus_until_its_power_goes() {
    let mut port = port_with(&image(), LinkSpeed::Super);
    port.open().unwrap().reset(ResetMode::Halt).unwrap();
    assert_eq!(port.wait_for_return(Duration::from_millis(50), Interrupt::never()).unwrap(), None);
    assert!(port.attached().is_err());
    port.unit().lock().plug_in();
    assert_eq!(port.attached().unwrap().usb_id, UsbId::STOCK);
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn firmware_that_hangs_is_a_unit_that_hangs() {
    let mut image = image();
    // The routine that queues READ and WRITE, c:0x2814, jumps to itself.
    assert!(image.replace(BodyOffset(0x2814), &[0x80, 0xFE]));
    let mut port = port_with(&image, LinkSpeed::Super);
    let mut bridge = port.open().unwrap();
    assert_eq!(bridge.firmware_version().unwrap(), image.version());
    assert!(bridge.read16(0, &mut [0; 512]).is_err());
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn an_image_that_does_not_start_is_not_on_the_bus() {
    let mut image = image();
    assert!(image.replace(BodyOffset(0), &[0x80, 0xFE]));
    assert!(port_with(&image, LinkSpeed::Super).attached().is_err());
}
