//! The vendor's image on a virtual unit: it runs there, and is flashed and patched by its own code.

use std::time::Duration;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BlockIndex, BodyOffset, BridgeState, ConfigBlock, Part, UsbId};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::runtime::Variables;
use asm2464::scsi::{ResetMode, XdataAddress};
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::{Behind, Bridge, CommandError, Port, Storage, TransportKind};
use asmpatch::patch::{PatchSet, Selection};

use crate::chip_images::{vendor, vendor_231204};
use crate::unit::rig::{is_timeout, unit};

/// A new unit with the vendor's image.
fn stock_unit(scenario: &str) -> VirtualPort {
    unit(scenario, Some(&vendor()))
}

fn read_image(bridge: &mut Bridge, len: usize) -> Vec<u8> {
    let mut file = vec![0; len];
    let (first, second) = file.split_at_mut(Part::One.max_len());
    bridge.read_flash(Part::One, first).unwrap();
    bridge.read_flash(Part::Two, second).unwrap();
    file
}

/// The bytes that distinguish an SSD from a GPU runtime's initialisation are elsewhere in 231204.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE"]
fn each_version_says_at_its_own_address_that_it_has_found_its_ssd() {
    for (image, variables) in [(vendor(), Variables::As240417), (vendor_231204(), Variables::As231204)] {
        let mut port = unit("behind = { ssd = { bytes = 1048576 } }", Some(&image));
        let mut bridge = port.open().unwrap();
        let byte = |bridge: &mut Bridge, at| bridge.xdata_byte(XdataAddress::main(at)).unwrap();
        let found = |bridge: &mut Bridge| [variables.ssd_found(), variables.ssd_started()].map(|at| byte(bridge, at));
        let ssd = Behind::Ssd("asmpatch virtual drive, 1.0 MB".to_owned());
        assert_eq!(found(&mut bridge), [0, 0], "{variables:?}");
        bridge.inquiry().unwrap();
        assert_eq!(found(&mut bridge), [1, 0], "{variables:?}");
        assert_ne!(byte(&mut bridge, variables.device()), 0, "{variables:?}");
        assert_eq!(Storage::ask(&mut bridge).unwrap().behind(), ssd);
        bridge.write16(8, &[7; 4096]).unwrap();
        let mut came = [0; 4096];
        bridge.read16(8, &mut came).unwrap();
        assert!(came == [7; 4096] && found(&mut bridge) == [1, 1], "{variables:?}");
        // The drive's start-up has set variables that a GPU runtime's initialisation sets, too.
        assert!(variables.initialised().iter().any(|(at, _)| byte(&mut bridge, *at) != 0));
        assert_eq!(Storage::ask(&mut bridge).unwrap().behind(), ssd, "{variables:?}");
    }
}

/// A unit with a defective drive.
fn with_drive(drive: &str, more: &str) -> VirtualPort {
    let port = "[[device]]\nat = \"0\"\nvendor = 0x1B21\ndevice = 0x2461\n";
    let device = "[[device]]\nat = \"0/0\"\nvendor = 0x1234\ndevice = 0x4E56\nclass = 0x010802\n";
    stock_unit(&format!("{more}{port}{device}engine = {{ nvme = {{ {drive} }} }}"))
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_faulty_drive_ends_every_command_and_leaves_a_unit_that_answers() {
    for (drive, reads, writes) in [
        ("blocks = 2048, never-ready = true", false, false),
        // The firmware loses an error of a READ of one part: docs/lab/chip.md.
        ("blocks = 0", true, false),
        ("blocks = 0x4000000000000000", true, true),
        ("blocks = 0x7FFFFFFFFFFFFFFF", true, true),
        ("blocks = 2048, fails-after = 0", true, false),
    ] {
        for is_uas in [false, true] {
            let mut port = with_drive(drive, "");
            let mut bridge =
                if is_uas { port.open_over(Some(TransportKind::UasStreams)).unwrap() } else { port.open().unwrap() };
            let read = bridge.read16(0, &mut [1; 512]);
            let written = bridge.write16(0, &[2; 512]);
            let what = format!("{drive}, UAS {is_uas}: {read:?} {written:?}");
            assert_eq!((read.is_ok(), written.is_ok()), (reads, writes), "{what}");
            for error in [read.err(), written.err()].into_iter().flatten() {
                assert!(matches!(error, CommandError::CheckCondition { .. }), "{what}");
            }
            assert_eq!(bridge.firmware_version().unwrap().to_string(), "240417.85.00.00", "{what}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_drive_that_disappears_during_a_write_times_out_and_the_unit_is_recovered() {
    for is_uas in [false, true] {
        let mut port = with_drive("blocks = 2048", "pcie-link-lost-after = 420\n");
        let mut bridge =
            if is_uas { port.open_over(Some(TransportKind::UasStreams)).unwrap() } else { port.open().unwrap() };
        let written: Vec<_> = (0..40).map(|_| bridge.write16(0, &[2; 4096])).collect();
        assert!(written[0].is_ok(), "UAS {is_uas}: {:?}", written[0]);
        let lost = written.iter().find_map(|written| written.as_ref().err()).unwrap();
        assert!(is_timeout(lost), "UAS {is_uas}: {lost}");
        assert_eq!(bridge.firmware_version().unwrap().to_string(), "240417.85.00.00", "UAS {is_uas}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_flashed_unit_comes_up_as_add1_0001_and_answers_writes_from_its_data_buffer() {
    let image = vendor();
    let library = asmpatch::embedded::patches().unwrap();
    let set = PatchSet::resolve(&library, &Selection::default(), &image, Sha256Digest::of(&image.to_file())).unwrap();
    let patched = set.apply().unwrap();
    let new = patched.image.to_file();

    let mut port = stock_unit("behind = \"gpu\"");
    let serial = port.attached().unwrap().serial;
    assert_eq!(port.attached().unwrap().id, UsbId::STOCK);
    let mut bridge = port.open().unwrap();
    let mut blocks = BlockIndex::ALL.map(|index| {
        let bytes = bridge.read_config(index).unwrap();
        ConfigBlock::parse(index, &bytes).unwrap()
    });
    patched.receipt.config.apply(&mut blocks).unwrap();
    for block in blocks {
        bridge.write_config(block.index(), block.bytes()).unwrap();
    }
    for part in Part::ALL {
        bridge.write_flash(part, part.of(&new)).unwrap();
    }
    assert!(read_image(&mut bridge, new.len()) == new);
    bridge.reset(ResetMode::CpuReset).unwrap();

    let attached = port.wait_for_return(Duration::from_secs(5), Interrupt::never()).unwrap().unwrap();
    assert_eq!((attached.id, attached.state), (UsbId::PATCHED, BridgeState::Vendor));
    assert_eq!(attached.serial, serial, "the unit keeps its own serial number");
    // The reset keeps the code. Only a power cycle starts what was written.
    port.unit().lock().replug();
    port.wait_for_return(Duration::from_secs(5), Interrupt::never()).unwrap().unwrap();
    let mut bridge = port.open().unwrap();
    assert_eq!(bridge.firmware_version().unwrap().to_string(), "240417.85.00.00");
    let pattern: Vec<u8> = (0..4096u32).map(|at| (at ^ (at >> 5)) as u8).collect();
    // The patched status byte is only on UAS's path.
    bridge.inquiry().unwrap();
    bridge.initialise().unwrap();
    let error = bridge.write16(0, &pattern).unwrap_err();
    assert!(is_timeout(&error), "{error}");
    let mut bridge = port.open_over(Some(TransportKind::UasStreams)).unwrap();
    bridge.initialise().unwrap();
    bridge.write16(0, &pattern).unwrap();
    let mut window = [0; 255];
    bridge.xdata_read(XdataAddress::main(0xF000 + 2048), &mut window).unwrap();
    assert_eq!(window[..], pattern[2048..2303]);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_unit_whose_firmware_hangs_does_not_answer() {
    let mut image = vendor();
    // Make c:0x2814, the routine that queues READ and WRITE, jump to itself.
    assert!(image.replace(BodyOffset(0x2814), &[0x80, 0xFE]));
    let mut port = unit("", Some(&image));
    let mut bridge = port.open().unwrap();
    assert_eq!(bridge.firmware_version().unwrap(), image.version());
    assert!(bridge.read16(0, &mut [0; 512]).is_err());
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_unit_whose_image_does_not_start_is_not_on_the_bus() {
    let mut image = vendor();
    assert!(image.replace(BodyOffset(0), &[0x80, 0xFE]));
    let error = unit("", Some(&image)).attached().unwrap_err();
    assert!(error.to_string().contains("does not enumerate"), "{error}");
}
