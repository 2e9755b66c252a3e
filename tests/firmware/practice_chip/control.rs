//! Start-up, enumeration, the control endpoint and resets.

use super::*;

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_shares_no_run_of_16_bytes_with_the_vendors_image() {
    const RUN: usize = 16;
    // Ignore runs that are mostly zeros.
    let is_code = |run: &&[u8]| run.iter().filter(|byte| **byte != 0).count() >= 6;
    let vendor = crate::chip_images::vendor();
    let runs: HashSet<&[u8]> = vendor.body().windows(RUN).filter(is_code).collect();
    let image = stock();
    let shared: Vec<_> = image.body().windows(RUN).filter(|run| runs.contains(run)).collect();
    assert!(shared.is_empty(), "{shared:02X?}");
}

#[test]
fn it_boots_to_its_main_loop_and_waits_there() {
    let mut unit = powered_on(&stock(), Speed::Super);
    assert_eq!(unit.settle(), Outcome::Parked);
    assert!(unit.chip.instructions() < 40_000, "{}", unit.chip.instructions());
    let before = unit.chip.instructions();
    assert_eq!(unit.settle(), Outcome::Parked);
    assert_eq!(unit.chip.instructions(), before);
}

#[test]
fn it_describes_itself_by_its_configuration_block() {
    let mut unit = powered_on(&stock(), Speed::Super);
    unit.settle();
    let device = unit.descriptor(1, 0, 18).unwrap();
    assert_eq!(device, [18, 1, 0x20, 3, 0, 0, 0, 9, 0xD1, 0xAD, 0x01, 0x00, 0x00, 0x01, 2, 3, 1, 1]);
    assert_eq!(unit.descriptor(1, 0, 8).unwrap(), device[..8]);
    assert_eq!(unit.descriptor(3, 0, 255).unwrap(), [4, 3, 9, 4]);
    let texts: Vec<_> = (1..=3).map(|index| text(&unit.descriptor(3, index, 255).unwrap())).collect();
    assert_eq!(texts, ["AAAABBBB0060", "tiny", "USB 3.2 PCIe TinyEnclosure"]);
    assert_eq!(unit.descriptor(3, 4, 255), Err(Unanswered::Stall));
    let bos = unit.descriptor(15, 0, 255).unwrap();
    assert_eq!((bos[1], usize::from(bos[2]), bos[4]), (15, bos.len(), 2));
    assert_eq!(unit.descriptor(6, 0, 10), Err(Unanswered::Stall), "no qualifier at SuperSpeed");
}

#[test]
fn both_alternate_settings_are_there_at_both_speeds() {
    for (speed, len, packet) in [(Speed::Super, 121, [0x00, 0x04]), (Speed::High, 85, [0x00, 0x02])] {
        let mut unit = powered_on(&stock(), speed);
        unit.settle();
        let configuration = unit.descriptor(2, 0, 255).unwrap();
        assert_eq!((configuration.len(), usize::from(configuration[2])), (len, len));
        let (mut endpoints, mut interfaces, mut companions, mut at) = (vec![], vec![], 0, 0);
        while at < configuration.len() {
            let one = &configuration[at..at + usize::from(configuration[at])];
            match one[1] {
                4 => interfaces.push((one[3], one[4], one[7])),
                5 => {
                    assert_eq!(one[4..6], packet);
                    endpoints.push(one[2]);
                }
                0x30 => companions += 1,
                _ => {}
            }
            at += one.len();
        }
        assert_eq!(interfaces, [(0, 2, 0x50), (1, 4, 0x62)]);
        assert_eq!(endpoints, [0x81, 0x02, 0x04, 0x83, 0x81, 0x02]);
        assert_eq!(companions, if speed == Speed::Super { 6 } else { 0 });
    }
    let mut unit = powered_on(&stock(), Speed::High);
    unit.settle();
    assert_eq!(unit.descriptor(1, 0, 18).unwrap()[..8], [18, 1, 0x10, 2, 0, 0, 0, 64]);
    assert_eq!(unit.descriptor(6, 0, 10).unwrap()[..2], [10, 6]);
}

#[test]
fn with_an_invalid_configuration_block_it_uses_names_of_its_own() {
    for at in [0x10, 0x7E, 0x7F] {
        let mut unit = powered_on(&stock(), Speed::Super);
        unit.chip.flash_mut().cells[at] ^= 0x01;
        unit.enumerate().unwrap();
        assert_eq!(unit.descriptor(1, 0, 18).unwrap()[8..14], [0x4C, 0x17, 0x64, 0x24, 0x00, 0x01]);
        assert_eq!(text(&unit.descriptor(3, 3, 255).unwrap()), "ASM246X");
        let inquiry = unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data;
        assert_eq!(&inquiry[8..], b"asmpatchpractice image  0100");
    }
}

#[test]
fn it_answers_the_requests_of_a_host_and_stalls_what_does_not_fit() {
    let mut unit = on_bulk_only(&stock(), Speed::Super);
    let good: [([u8; 8], &[u8]); 8] = [
        ([0x80, 8, 0, 0, 0, 0, 1, 0], &[1]),
        ([0x81, 10, 0, 0, 0, 0, 1, 0], &[0]),
        ([0x80, 0, 0, 0, 0, 0, 2, 0], &[1, 0]),
        ([0x81, 0, 0, 0, 0, 0, 2, 0], &[0, 0]),
        ([0xA1, 0xFE, 0, 0, 0, 0, 1, 0], &[0]),
        ([0x00, 0x30, 0, 0, 0, 0, 6, 0], &[]),
        ([0x00, 0x31, 40, 0, 0, 0, 0, 0], &[]),
        ([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]),
    ];
    for (setup, data) in good {
        assert_eq!(unit.control(setup, &[1, 2, 3, 4, 5, 6]).unwrap(), data, "{setup:02X?}");
    }
    let stalled: [[u8; 8]; 15] = [
        [0x80, 0xAA, 0, 0, 0, 0, 1, 0],
        [0x80, 0, 1, 0, 0, 0, 2, 0],
        [0x81, 0, 0, 0, 1, 0, 2, 0],
        [0x82, 0, 0, 0, 0x83, 0, 2, 0],
        [0x82, 0, 0, 0, 0x85, 0, 2, 0],
        [0x02, 3, 0, 0, 0x04, 0, 0, 0],
        [0x02, 3, 1, 0, 0x81, 0, 0, 0],
        [0x00, 9, 2, 0, 0, 0, 0, 0],
        [0x01, 11, 2, 0, 0, 0, 0, 0],
        [0x01, 11, 0, 0, 1, 0, 0, 0],
        [0x21, 0xFF, 1, 0, 0, 0, 0, 0],
        [0x21, 0xFF, 0, 0, 1, 0, 0, 0],
        [0xA1, 0xFE, 0, 0, 1, 0, 1, 0],
        [0x00, 5, 0x80, 0, 0, 0, 0, 0],
        [0xC0, 0xE4, 0, 0, 0, 0, 4, 0],
    ];
    for setup in stalled {
        assert_eq!(unit.control(setup, &[]), Err(Unanswered::Stall), "{setup:02X?}");
    }
    assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
    assert_eq!(unit.control([0x00, 9, 0, 0, 0, 0, 0, 0], &[]), Ok(vec![]));
    assert_eq!(unit.control([0x81, 10, 0, 0, 0, 0, 1, 0], &[]), Err(Unanswered::Stall), "no longer configured");
}

#[test]
fn an_endpoint_is_halted_and_freed_by_the_hosts_requests() {
    let mut unit = on_uas(&stock(), Speed::Super);
    for endpoint in [DATA_IN, DATA_OUT, STATUS_IN, COMMAND_OUT] {
        let status = [0x82, 0, 0, 0, endpoint, 0, 2, 0];
        assert_eq!(unit.control(status, &[]).unwrap(), [0, 0]);
        unit.control([0x02, 3, 0, 0, endpoint, 0, 0, 0], &[]).unwrap();
        assert_eq!(unit.control(status, &[]).unwrap(), [1, 0]);
        match endpoint & 0x80 {
            0 => assert_eq!(unit.chip.bulk_out(endpoint, 1, &[0; 32]), PacketOut::Stall),
            _ => assert_eq!(unit.chip.bulk_in(endpoint, 1), PacketIn::Stall),
        }
        unit.clear_halt(endpoint).unwrap();
        assert_eq!(unit.control(status, &[]).unwrap(), [0, 0]);
    }
    assert!(is_good(&unit.uas(1, &INQUIRY, &[]).unwrap(), 1));
}

#[test]
fn a_reset_of_the_port_brings_it_back_to_its_address_state() {
    for speed in SPEEDS {
        let mut unit = on_uas(&stock(), Speed::Super);
        unit.uas(1, &INQUIRY, &[]).unwrap();
        unit.chip.bus_reset(speed);
        assert_eq!(unit.settle(), Outcome::Parked);
        assert_eq!(unit.control([0x80, 8, 0, 0, 0, 0, 1, 0], &[]), Ok(vec![0]), "not configured");
        unit.enumerate().unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{speed:?}");
    }
}

#[test]
fn it_goes_on_after_a_suspend() {
    for speed in SPEEDS {
        let mut unit = on_bulk_only(&stock(), speed);
        for suspend_or_resume in [Chip::suspend, Chip::resume] {
            suspend_or_resume(&mut unit.chip);
            assert_eq!(unit.settle(), Outcome::Parked);
        }
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{speed:?}");
    }
}
