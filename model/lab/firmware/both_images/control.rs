//! Start-up, enumeration, the control endpoint and resets.

use super::*;

on_both_images! {
    it_boots_to_its_main_loop_and_waits_there
    it_describes_itself_as_its_configuration_block_says
    both_alternate_settings_are_there_at_both_speeds
    it_answers_the_requests_of_a_host_and_stalls_what_does_not_fit
    an_endpoint_is_halted_and_freed_by_the_hosts_requests
    a_reset_of_the_port_brings_it_back_to_its_address_state
    a_reset_of_the_port_ends_a_suspend
    a_suspended_unit_keeps_its_memory_and_finishes_what_was_pending_over_bulk_only
    a_suspended_unit_finishes_every_pending_tag_over_uas
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_practice_image_shares_no_run_of_16_bytes_with_the_vendors() {
    const RUN: usize = 16;
    // Ignore runs that are mostly zeros.
    let is_code = |run: &&[u8]| run.iter().filter(|byte| **byte != 0).count() >= 6;
    let vendor = crate::chip_images::vendor();
    let runs: HashSet<&[u8]> = vendor.body().windows(RUN).filter(is_code).collect();
    let image = stock();
    let shared: Vec<_> = image.body().windows(RUN).filter(|run| runs.contains(run)).collect();
    assert!(shared.is_empty(), "{shared:02X?}");
}

fn it_boots_to_its_main_loop_and_waits_there(image: &Image) {
    let mut unit = powered_on(image, Speed::Super);
    assert_eq!(unit.settle(), RunEnd::Parked);
    let instructions = unit.chip.instructions();
    assert!(instructions < 300_000, "{instructions}");
    assert_eq!(unit.settle(), RunEnd::Parked);
    assert_eq!(unit.chip.instructions(), instructions, "a parked chip executes nothing");
}

fn it_describes_itself_as_its_configuration_block_says(image: &Image) {
    let mut unit = powered_on(image, Speed::Super);
    unit.settle();
    let device = unit.descriptor(1, 0, 18).unwrap();
    assert_eq!(device[..12], [18, 1, 0x20, 3, 0, 0, 0, 9, 0xD1, 0xAD, 0x01, 0x00], "SuperSpeed, ADD1:0001");
    assert_eq!(unit.descriptor(1, 0, 8).unwrap(), device[..8], "a short read is cut");
    let names = [device[14], device[15], device[16]].map(|index| text(&unit.descriptor(3, index, 255).unwrap()));
    assert_eq!(names, ["tiny", "USB 3.2 PCIe TinyEnclosure", "AAAABBBB0060"]);
    let bos = unit.descriptor(15, 0, 255).unwrap();
    assert_eq!((bos[1], usize::from(bos[2])), (15, bos.len()));
}

fn both_alternate_settings_are_there_at_both_speeds(image: &Image) {
    for (speed, len, packet) in [(Speed::Super, 121, [0x00, 0x04]), (Speed::High, 85, [0x00, 0x02])] {
        let mut unit = powered_on(image, speed);
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
        assert_eq!(interfaces, [(0, 2, 0x50), (1, 4, 0x62)], "Bulk-Only and UAS");
        endpoints.sort_unstable();
        assert_eq!(endpoints, [0x02, 0x02, 0x04, 0x81, 0x81, 0x83]);
        assert_eq!(companions, if speed == Speed::Super { 6 } else { 0 });
    }
    let mut unit = powered_on(image, Speed::High);
    unit.settle();
    assert_eq!(unit.descriptor(1, 0, 18).unwrap()[..8], [18, 1, 0x10, 2, 0, 0, 0, 64]);
    assert_eq!(unit.descriptor(6, 0, 10).unwrap()[..2], [10, 6]);
}

#[test]
fn with_an_invalid_configuration_block_the_practice_image_uses_names_of_its_own() {
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

fn it_answers_the_requests_of_a_host_and_stalls_what_does_not_fit(image: &Image) {
    let mut unit = on_bulk_only(image, Speed::Super);
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
        assert_eq!(unit.control(setup, &[1, 2, 3, 4, 5, 6]).as_deref(), Ok(data), "{setup:02X?}");
    }
    let stalled: [[u8; 8]; 13] = [
        [0x80, 0xAA, 0, 0, 0, 0, 1, 0],
        [0x81, 0, 0, 0, 5, 0, 2, 0],
        [0x82, 0, 0, 0, 0x85, 0, 2, 0],
        [0x82, 0, 0, 0, 0x07, 0, 2, 0],
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
    let taken: Vec<_> =
        stalled.into_iter().filter(|setup| unit.control(*setup, &[]) != Err(Unanswered::Stall)).collect();
    assert!(taken.is_empty(), "{taken:02X?}");
    assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
    assert_eq!(unit.control([0x00, 9, 0, 0, 0, 0, 0, 0], &[]), Ok(vec![]));
    assert_eq!(unit.control([0x81, 10, 0, 0, 0, 0, 1, 0], &[]), Err(Unanswered::Stall), "no longer configured");
}

#[test]
fn practice_stalls_requests_for_the_other_settings_endpoints_and_a_reset_unconfigures_it() {
    let mut unit = on_bulk_only(&stock(), Speed::Super);
    for setup in [
        [0x80, 0, 1, 0, 0, 0, 2, 0],
        [0x81, 0, 0, 0, 1, 0, 2, 0],
        [0x82, 0, 0, 0, 0x83, 0, 2, 0],
        [0x02, 3, 0, 0, 0x04, 0, 0, 0],
    ] {
        assert_eq!(unit.control(setup, &[]), Err(Unanswered::Stall), "{setup:02X?}");
    }
    unit.chip.bus_reset(Speed::Super);
    assert_eq!(unit.control([0x80, 8, 0, 0, 0, 0, 1, 0], &[]), Ok(vec![0]));
}

fn an_endpoint_is_halted_and_freed_by_the_hosts_requests(image: &Image) {
    let mut unit = on_uas(image, Speed::Super);
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

fn a_reset_of_the_port_brings_it_back_to_its_address_state(image: &Image) {
    for speed in SPEEDS {
        let mut unit = on_uas(image, Speed::Super);
        unit.uas(1, &INQUIRY, &[]).unwrap();
        unit.chip.bus_reset(speed);
        assert_eq!(unit.settle(), RunEnd::Parked);
        unit.enumerate().unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{speed:?}");
    }
}

fn a_reset_of_the_port_ends_a_suspend(image: &Image) {
    for speed in SPEEDS {
        let mut unit = on_bulk_only(image, speed);
        unit.chip.suspend();
        unit.settle();
        unit.chip.bus_reset(speed);
        unit.enumerate().unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{speed:?}");
    }
}

fn a_suspended_unit_keeps_its_memory_and_finishes_what_was_pending_over_bulk_only(image: &Image) {
    for speed in SPEEDS {
        let mut unit = on_bulk_only(image, speed);
        unit.bulk_only(&[0xE5, 0x5A, 0x50, 0x30, 0x10, 0], Data::None).unwrap();
        unit.begin(&[0xE4, 4, 0x50, 0x30, 0x10, 0], 4, Direction::In).unwrap();
        nothing_moves_until_it_is_resumed(&mut unit, DATA_IN, 0);
        assert_eq!(unit.receive(DATA_IN, 0).unwrap(), [0x5A, 0, 0, 0], "{speed:?}");
        let status = unit.receive(DATA_IN, 0).unwrap();
        assert_eq!((&status[..4], status[12]), (&b"USBS"[..], 0));
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{speed:?}");
    }
}

fn a_suspended_unit_finishes_every_pending_tag_over_uas(image: &Image) {
    for speed in SPEEDS {
        let mut unit = on_uas(image, speed);
        for tag in 1..=3 {
            unit.send_command(tag, &READ_VERSION).unwrap();
        }
        nothing_moves_until_it_is_resumed(&mut unit, STATUS_IN, u16::from(speed == Speed::Super));
        for tag in 1..=3 {
            let reply = unit.finish_uas(tag, &[]).unwrap();
            assert!(reply.data == image.version().0 && is_good(&reply, tag as u8), "{speed:?}");
        }
        assert!(is_inquiry(&unit.uas(4, &INQUIRY, &[]).unwrap().data), "{speed:?}");
    }
}

fn nothing_moves_until_it_is_resumed(unit: &mut Driver, endpoint: u8, stream: u16) {
    unit.settle();
    unit.chip.suspend();
    for _ in 0..3 {
        assert_eq!(unit.settle(), RunEnd::Parked);
        assert_eq!(unit.chip.bulk_in(endpoint, stream), PacketIn::Nak);
        assert_eq!(unit.chip.bulk_out(DATA_OUT, 0, b"no host sends this"), PacketOut::Nak);
        assert_eq!(unit.chip.control([0x80, 0, 0, 0, 0, 0, 2, 0], &[], 1_000_000), None);
    }
    unit.chip.resume();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn an_unmodelled_register_is_listed_once_with_the_address_of_its_access() {
    let mut unit = on_bulk_only(&crate::chip_images::vendor(), Speed::Super);
    let list = unit.chip.unknown_registers();
    let reads: Vec<_> = list
        .iter()
        .filter(|access| access.at.addr == 0x92E1 && access.kind == asm2464_chip::mcu::AccessKind::Read)
        .collect();
    assert_eq!(reads.iter().map(|access| access.pc).collect::<Vec<_>>(), [0xBBA8]);
    assert!(!list.iter().any(|access| access.at.addr == 0x9091), "a modelled one is not listed");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_vendors_image_notes_a_suspend_and_a_resume_by_its_own_interrupts() {
    /// Where 240417 stores that it is suspended (b0:0xC9F4, b0:0xCB2E), and whether its clock runs (b0:0xCB05).
    const SUSPENDED: u16 = 0x0B2F;
    for speed in SPEEDS {
        let mut unit = on_bulk_only(&crate::chip_images::vendor(), speed);
        let mut seen = Vec::new();
        unit.chip.suspend();
        assert_eq!(unit.settle(), RunEnd::Parked);
        seen.push(unit.chip.peek(asm2464::scsi::XdataAddress::main(SUSPENDED)));
        assert_eq!(unit.chip.peek(asm2464::scsi::XdataAddress::main(0x9101)), 0, "every event is acknowledged");
        unit.chip.resume();
        assert_eq!(unit.settle(), RunEnd::Parked);
        seen.push(unit.chip.peek(asm2464::scsi::XdataAddress::main(SUSPENDED)));
        assert_eq!(seen, [1, 0], "{speed:?}");
    }
}
