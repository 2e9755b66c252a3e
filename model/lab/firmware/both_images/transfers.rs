//! READ and WRITE by the SRAM's DMA.

use super::*;

#[test]
fn a_write_finds_no_medium_until_a_runtime_initialises_the_unit() {
    let mut unit = on_uas(&patched(&stock()), Speed::Super);
    assert_eq!(unit.uas(1, &INQUIRY, &[]).unwrap().data[1], 0x80, "removable");
    assert_eq!(sense(&unit.uas(2, &cdb16(0x8A, 0, 1), &[]).unwrap()), [2, 0x3A, 0]);
    assert_eq!(sense(&unit.uas(2, &cdb16(0x88, 0, 1), &[]).unwrap()), [2, 0x3A, 0]);
    initialise(&mut unit);
    assert_eq!(unit.uas(1, &INQUIRY, &[]).unwrap().data[1], 0x00);
    assert!(is_good(&unit.uas(2, &[0; 6], &[]).unwrap(), 2), "ready");
    assert!(is_good(&unit.uas(2, &cdb16(0x8A, 0, 0), &[]).unwrap(), 2), "nothing to move");
    unit.set_alternate(1).unwrap();
    assert_eq!(sense(&unit.uas(2, &cdb16(0x8A, 0, 1), &[]).unwrap()), [2, 0x3A, 0], "a reset ends it");
}

/// Sends a WRITE(16) and all of its data. The status may come before or after the data.
fn write(unit: &mut Driver, tag: u16, sectors: u8, data: &[u8]) -> UasReply {
    unit.send_command(tag, &cdb16(0x8A, 0, sectors.into())).unwrap();
    let stream = if unit.chip.speed() == Speed::Super { tag } else { 0 };
    unit.send(DATA_OUT, stream, data).unwrap();
    unit.finish_uas(tag, &[]).unwrap()
}

#[test]
fn with_the_status_patch_a_write_is_answered_at_once_and_lands_in_the_sram() {
    for speed in SPEEDS {
        let mut unit = on_uas(&patched(&stock()), speed);
        initialise(&mut unit);
        let mut slot = 0;
        for (sectors, slots) in [(1u8, 1), (8, 1), (33, 2), (128, 4)] {
            let data: Vec<u8> =
                pattern(usize::from(sectors) * 512 + usize::from(sectors), 5)[usize::from(sectors)..].to_vec();
            assert!(is_good(&write(&mut unit, 9, sectors, &data), 9), "{sectors}");
            // A group of slots begins at a multiple of its size.
            slot = usize::div_ceil(slot, slots) * slots;
            let at = slot * 0x4000;
            assert!(unit.chip.sram()[at..at + data.len()] == data, "{speed:?} {sectors} sectors in slot {slot}");
            slot += slots;
            assert!(is_good(&unit.uas(3, &READ_VERSION, &[]).unwrap(), 3), "and E4 goes on");
        }
        // The runtime does this after each WRITE(16), so that the next one begins in slot 0.
        for addr in 0x40..=0x43 {
            unit.uas(3, &[0xE5, 0, 0x50, 0xCE, addr, 0], &[]).unwrap();
        }
        let data = vec![0xC3; 4096];
        assert!(is_good(&write(&mut unit, 9, 8, &data), 9));
        assert!(unit.chip.sram()[..4096] == data);
    }
}

#[test]
fn a_write_that_finds_no_sram_free_is_never_answered_until_the_interface_is_set_again() {
    let mut unit = on_uas(&patched(&stock()), Speed::Super);
    initialise(&mut unit);
    let data = pattern(0x1_0000, 5);
    for _ in 0..8 {
        assert!(is_good(&write(&mut unit, 9, 128, &data), 9));
    }
    assert!((0..8).all(|group| unit.chip.sram()[group * 0x1_0000..][..0x1_0000] == data));
    unit.send_command(9, &cdb16(0x8A, 0, 1)).unwrap();
    assert_eq!(unit.finish_uas(9, &[]), Err(Unanswered::Silent(RunEnd::Parked)));
    unit.set_alternate(1).unwrap();
    for addr in 0x40..=0x43 {
        unit.uas(3, &[0xE5, 0, 0x50, 0xCE, addr, 0], &[]).unwrap();
    }
    initialise(&mut unit);
    assert!(is_good(&write(&mut unit, 9, 1, &data[..512]), 9));
}

#[test]
fn without_the_status_patch_a_write_is_never_answered_and_set_interface_frees_the_unit() {
    let mut unit = on_uas(&stock(), Speed::Super);
    initialise(&mut unit);
    let data = pattern(512, 5);
    unit.send_command(9, &cdb16(0x8A, 0, 1)).unwrap();
    assert_eq!(unit.finish_uas(9, &data), Err(Unanswered::Silent(RunEnd::Parked)));
    assert!(unit.chip.sram()[..512] == data);
    unit.send_command(10, &READ_VERSION).unwrap();
    assert_eq!(unit.finish_uas(10, &[]), Err(Unanswered::Silent(RunEnd::Parked)), "nor is the next command");
    unit.set_alternate(1).unwrap();
    assert_eq!(unit.uas(1, &READ_VERSION, &[]).unwrap().data, stock().version().0);
}

#[test]
fn a_read_waits_for_a_completion_from_the_pcie_side() {
    let mut unit = on_uas(&patched(&stock()), Speed::Super);
    initialise(&mut unit);
    let data = pattern(4096, 5);
    unit.chip.sram_mut()[..4096].copy_from_slice(&data);
    unit.send_command(9, &cdb16(0x88, 0, 8)).unwrap();
    assert_eq!(unit.finish_uas(9, &[]), Err(Unanswered::Silent(RunEnd::Parked)));
    unit.chip.pcie_write(COMPLETION_QUEUE, &[0; 16]);
    let reply = unit.finish_uas(9, &[]).unwrap();
    assert!(is_good(&reply, 9) && reply.data == data);
    assert_eq!(unit.uas(1, &READ_VERSION, &[]).unwrap().data, stock().version().0);
}
