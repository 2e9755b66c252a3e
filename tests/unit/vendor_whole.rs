//! The vendor's image on a virtual unit where only its code answers: flashed, measured, hung and reset.

use std::time::Duration;

use asm2464::firmware::{BlockIndex, BodyOffset, BridgeState, Image, Part, UsbId};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::{ResetMode, XdataAddress};
use asm2464_chip::chip::Speed;
use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Bridge, CommandError, Port as _, Transport, TransportError, TransportErrorKind};

fn image() -> Image {
    image_in("ASMPATCH_VENDOR_IMAGE")
}

fn image_in(variable: &str) -> Image {
    let path = std::env::var_os(variable).unwrap_or_else(|| panic!("set {variable} to the image"));
    Image::parse(&std::fs::read(path).unwrap()).unwrap()
}

fn port_with(image: &Image, speed: Speed) -> VirtualPort {
    port_told(image, Scenario { speed, ..Scenario::default() })
}

fn port_told(image: &Image, scenario: Scenario) -> VirtualPort {
    let unit = VirtualUnit::in_memory(scenario, b"whole", Some(&image.to_file())).unwrap();
    VirtualPort::new("whole", unit)
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn everything_that_a_flash_needs_works_by_the_firmwares_own_doing_at_both_speeds() {
    let image = image();
    for speed in [Speed::Super, Speed::High] {
        let mut port = port_with(&image, speed);
        assert_eq!(port.attached().unwrap().id, UsbId::STOCK);
        let mut bridge = port.open().unwrap();
        assert_eq!(bridge.firmware_version().unwrap(), image.version());
        let mut blocks = BlockIndex::ALL.map(|index| bridge.read_config(index).unwrap());
        // Change the serial number's last character, and the checksum with it.
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
        assert_eq!(back.id, UsbId::STOCK);
        assert_eq!(port.open().unwrap().read_config(BlockIndex::Zero).unwrap(), blocks[0]);
    }
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn a_halted_unit_leaves_the_bus_until_its_power_goes() {
    let mut port = port_with(&image(), Speed::Super);
    port.open().unwrap().reset(ResetMode::Halt).unwrap();
    assert_eq!(port.wait_for_return(Duration::from_millis(50), Interrupt::never()).unwrap(), None);
    assert!(port.attached().is_err());
    port.unit().lock().plug_in();
    assert_eq!(port.attached().unwrap().id, UsbId::STOCK);
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn firmware_that_hangs_is_a_unit_that_hangs() {
    let mut image = image();
    // Make c:0x2814, the routine that queues READ and WRITE, jump to itself.
    assert!(image.replace(BodyOffset(0x2814), &[0x80, 0xFE]));
    let mut port = port_with(&image, Speed::Super);
    let mut bridge = port.open().unwrap();
    assert_eq!(bridge.firmware_version().unwrap(), image.version());
    assert!(bridge.read16(0, &mut [0; 512]).is_err());
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn an_image_that_does_not_start_is_not_on_the_bus() {
    let mut image = image();
    assert!(image.replace(BodyOffset(0), &[0x80, 0xFE]));
    let error = port_with(&image, Speed::Super).attached().unwrap_err();
    assert!(error.to_string().contains("does not enumerate"), "{error}");
}

/// Sends three E4 and returns the result of the second, which a fault strikes. The third must succeed in any case.
fn struck<T: Transport>(bridge: &mut Bridge<T>) -> Result<(), CommandError> {
    let mut read = || bridge.xdata_read(XdataAddress::main(0x3000), &mut [0; 64]);
    read().unwrap();
    let second = read();
    read().unwrap();
    second
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn each_fault_of_the_wire_is_met_and_recovered_from_at_both_speeds_on_both_transports() {
    let image = image();
    for speed in [Speed::Super, Speed::High] {
        for kind in ["stall", "stall-status", "short-data", "bad-tag", "phase-error", "timeout"] {
            let text = format!("[[fault]]\nkind = \"{kind}\"\nopcode = 0xE4\nnth = 2");
            let scenario = Scenario { speed, ..Scenario::parse(&text).unwrap() };
            let over_bulk_only = struck(&mut port_told(&image, scenario.clone()).open().unwrap());
            let is_as_meant = match (kind, &over_bulk_only) {
                ("stall", Err(error)) => error.sense().is_some_and(|sense| sense.to_string().starts_with("B/00/00")),
                ("stall-status", Ok(())) => true,
                ("short-data", Err(CommandError::ShortXdata { expected: 64, found: 32, .. })) => true,
                (
                    "bad-tag",
                    Err(CommandError::Transport(TransportError {
                        kind: TransportErrorKind::TagMismatch { .. }, ..
                    })),
                ) => true,
                (
                    "phase-error",
                    Err(CommandError::Transport(TransportError { kind: TransportErrorKind::PhaseError, .. })),
                ) => true,
                (
                    "timeout",
                    Err(CommandError::Transport(TransportError { kind: TransportErrorKind::Timeout { .. }, .. })),
                ) => true,
                _ => false,
            };
            assert!(is_as_meant, "{kind} at {speed:?}: {over_bulk_only:?}");
            let mut port = port_told(&image, scenario);
            let over_uas = struck(&mut Bridge::new(port.uas().unwrap().unwrap()));
            assert!(over_uas.is_err(), "{kind} over UAS at {speed:?}");
        }
    }
}

#[test]
#[ignore = "needs the vendor's image in ASMPATCH_VENDOR_IMAGE"]
fn power_lost_while_the_firmware_is_written_leaves_the_boot_loader() {
    let image = image();
    let scenario = Scenario { power_loss_after: Some(20_000), back_after_ms: Some(1), ..Scenario::default() };
    let mut port = port_told(&image, scenario);
    let mut bridge = port.open().unwrap();
    let blocks = BlockIndex::ALL.map(|index| bridge.read_config(index).unwrap());
    for (index, block) in BlockIndex::ALL.into_iter().zip(&blocks) {
        bridge.write_config(index, block).unwrap();
    }
    let error = bridge.write_flash(Part::One, Part::One.of(&image.to_file())).unwrap_err();
    assert!(
        matches!(error, CommandError::Transport(TransportError { kind: TransportErrorKind::Disconnected, .. })),
        "{error}"
    );
    let back = port.wait_for_return(Duration::from_secs(5), Interrupt::never()).unwrap().unwrap();
    assert_eq!(back.state, BridgeState::BootLoader);
}

#[test]
#[ignore = "needs the open image in ASMPATCH_OPEN_IMAGE"]
fn the_open_image_enumerates_by_its_own_doing_at_both_speeds() {
    let image = image_in("ASMPATCH_OPEN_IMAGE");
    for speed in [Speed::Super, Speed::High] {
        let attached = port_with(&image, speed).attached().unwrap();
        assert_eq!((attached.id, attached.state), (UsbId::PATCHED, BridgeState::OpenFirmware), "{speed:?}");
        assert_eq!(attached.product, "custom v0.1");
    }
}
