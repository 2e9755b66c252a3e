//! The vendor's image with hosts that misbehave. `ASMPATCH_VENDOR_IMAGE` names the image.
use asm2464_chip::chip::{
    COMMAND_OUT, DATA_IN, DATA_OUT, Data, Driver, PacketIn, PacketOut, STATUS_IN, Speed, Unanswered,
};
use asm2464_chip::mcu::MemoryFlash;

use crate::chip_images::{powered_on, vendor};

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 36, 0];
const TASK_SET_FULL: u8 = 0x28;

fn on_bulk_only() -> Driver<MemoryFlash> {
    let mut unit = powered_on(&vendor(), Speed::Super);
    unit.enumerate().unwrap();
    unit.bulk_only(&INQUIRY, Data::In(36)).unwrap();
    unit
}

fn on_uas() -> Driver<MemoryFlash> {
    let mut unit = on_bulk_only();
    unit.set_alternate(1).unwrap();
    unit.uas(1, &INQUIRY, &[]).unwrap();
    unit
}

fn is_halted(unit: &mut Driver<MemoryFlash>, endpoint: u8) -> Result<bool, Unanswered> {
    unit.control([0x82, 0, 0, 0, endpoint, 0, 2, 0], &[]).map(|status| status[0] & 1 != 0)
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_host_halts_an_endpoint_and_clears_it() {
    let mut unit = on_uas();
    for endpoint in [DATA_IN, DATA_OUT, STATUS_IN, COMMAND_OUT] {
        assert_eq!(is_halted(&mut unit, endpoint), Ok(false));
        unit.control([0x02, 3, 0, 0, endpoint, 0, 0, 0], &[]).unwrap();
        assert_eq!(is_halted(&mut unit, endpoint), Ok(true), "{endpoint:02X}");
        let is_stalled = if endpoint & 0x80 != 0 {
            unit.chip.bulk_in(endpoint, 1) == PacketIn::Stall
        } else {
            unit.chip.bulk_out(endpoint, 1, &[0; 32]) == PacketOut::Stall
        };
        assert!(is_stalled, "{endpoint:02X}");
        unit.clear_halt(endpoint).unwrap();
        assert_eq!(is_halted(&mut unit, endpoint), Ok(false));
    }
    assert_eq!(unit.uas(2, &INQUIRY, &[]).unwrap().data.len(), 36);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn an_endpoint_that_does_not_exist_has_no_status() {
    let mut unit = on_bulk_only();
    assert!(is_halted(&mut unit, 0x85).is_err());
    assert!(is_halted(&mut unit, 0x07).is_err());
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_command_with_less_data_than_the_host_asked_for_halts_the_pipe_before_its_csw() {
    let mut unit = on_bulk_only();
    let mut cbw = b"USBC\x77\0\0\0\xFF\0\0\0\x80\0\x06".to_vec();
    cbw.extend([0x12, 0, 0, 0, 255, 0]);
    cbw.resize(31, 0);
    unit.send(DATA_OUT, 0, &cbw).unwrap();
    assert_eq!(unit.receive(DATA_IN, 0).unwrap().len(), 76);
    assert_eq!(unit.receive(DATA_IN, 0), Err(Unanswered::Halted(DATA_IN)));
    unit.clear_halt(DATA_IN).unwrap();
    let csw = unit.receive(DATA_IN, 0).unwrap();
    assert_eq!((csw.len(), &csw[..5], csw[8], csw[12]), (13, &b"USBS\x77"[..], 255 - 76, 0));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn data_that_a_command_does_not_want_is_drained() {
    let mut unit = on_bulk_only();
    let reply = unit.bulk_only(&[0; 6], Data::Out(&[0x55; 2048])).unwrap();
    assert_eq!((reply.status, reply.residue), (1, 2048));
    assert_eq!(unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data.len(), 36);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn an_invalid_cbw_halts_both_pipes_until_a_reset() {
    for packet in [&[0x55; 31][..], &[0x55; 30], b"USBC"] {
        let mut unit = on_bulk_only();
        unit.send(DATA_OUT, 0, packet).unwrap();
        unit.settle();
        assert_eq!(unit.chip.bulk_in(DATA_IN, 0), PacketIn::Stall);
        assert_eq!(unit.chip.bulk_out(DATA_OUT, 0, packet), PacketOut::Stall);
        unit.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]).unwrap();
        unit.clear_halt(DATA_IN).unwrap();
        unit.clear_halt(DATA_OUT).unwrap();
        assert_eq!(unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data.len(), 36);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_host_that_stops_reading_e2_hangs_the_unit() {
    let mut unit = on_bulk_only();
    let mut cbw = b"USBC\x77\0\0\0\0\x20\0\0\x80\0\x06".to_vec();
    cbw.extend([0xE2, 0x50, 0, 0, 0x20, 0]);
    cbw.resize(31, 0);
    unit.send(DATA_OUT, 0, &cbw).unwrap();
    assert_eq!(unit.receive(DATA_IN, 0).unwrap().len(), 1024);
    assert!(matches!(unit.control([0x80, 0, 0, 0, 0, 0, 2, 0], &[]), Err(Unanswered::Silent(_))));
    assert!(matches!(unit.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]), Err(Unanswered::Silent(_))));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_command_with_no_slot_left_gets_task_set_full() {
    let mut unit = on_uas();
    for tag in 1..=33 {
        unit.send_command(tag, &[0xE4, 4, 0x50, 0x07, 0xF0, 0]).unwrap();
        unit.settle();
    }
    let status = unit.receive(STATUS_IN, 33).unwrap();
    assert_eq!((status[0], status[3], status[6]), (0x03, 33, TASK_SET_FULL), "{status:02X?}");
    for tag in 1..=32 {
        let reply = unit.finish_uas(tag, &[]).unwrap();
        assert_eq!((reply.data.len(), reply.status[6]), (4, 0), "{tag}");
    }
    assert_eq!(unit.uas(34, &INQUIRY, &[]).unwrap().data.len(), 36);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e3_before_any_e1_of_this_boot_never_ends() {
    let data = [0x5A; 256];
    let write = [0xE3, 0x50, 0, 0, 1, 0];
    let mut unit = on_bulk_only();
    unit.set_budget(1_000_000);
    // XDATA 0x0B21, the length of a program, is 0 until E1 has read the flash's ID (b0:0xE3A6).
    assert!(matches!(unit.bulk_only(&write, Data::Out(&data)), Err(Unanswered::Silent(_))));
    let mut unit = on_bulk_only();
    let mut block = [0; 15];
    block[..3].copy_from_slice(&[0xE1, 0x50, 0]);
    assert_eq!(unit.bulk_only(&block, Data::Out(&[0xFF; 128])).unwrap().status, 0);
    assert_eq!(unit.bulk_only(&write, Data::Out(&data)).unwrap().status, 0);
    assert_eq!(unit.chip.flash().cells[0x100..0x200], data);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn requests_for_what_does_not_exist_are_stalled() {
    let mut unit = on_bulk_only();
    for (what, setup) in [
        ("Bulk-Only reset with wValue 1", [0x21, 0xFF, 1, 0, 0, 0, 0, 0]),
        ("Bulk-Only reset of interface 1", [0x21, 0xFF, 0, 0, 1, 0, 0, 0]),
        ("GET_STATUS of interface 5", [0x81, 0, 0, 0, 5, 0, 2, 0]),
        ("SET_INTERFACE to alternate 2", [0x01, 0x0B, 2, 0, 0, 0, 0, 0]),
        ("SET_INTERFACE of interface 1", [0x01, 0x0B, 0, 0, 1, 0, 0, 0]),
        ("SET_CONFIGURATION 2", [0x00, 9, 2, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(unit.control(setup, &[]), Err(Unanswered::Stall), "{what}");
    }
    assert_eq!(unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data.len(), 36);
}
