//! The vendor's image with an NVMe drive behind the bridge. `ASMPATCH_VENDOR_IMAGE` names the image.
use asm2464::scsi::bot::Direction;
use asm2464_chip::chip::{DATA_IN, DATA_OUT, Data, Speed};

use crate::chip_images::drive::{
    good, keeps_commands_apart, round_trips_over_bulk_only, round_trips_over_uas, transfer, with_drive,
};
use crate::chip_images::vendor;

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn bulk_only_reads_bring_what_writes_took() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = with_drive(&vendor(), speed, good(1 << 21));
        assert_eq!(unit.bulk_only(&[0; 6], Data::None).unwrap().status, 0, "ready");
        round_trips_over_bulk_only(&mut unit);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn uas_reads_bring_what_writes_took() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = with_drive(&vendor(), speed, good(1 << 21));
        unit.set_alternate(1).unwrap();
        // TEST UNIT READY over UAS doesn't start the drive.
        assert_eq!(unit.uas(1, &[0; 6], &[]).unwrap().status[28..30], [0x04, 0x01], "becoming ready");
        let capacity = unit.uas(1, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).unwrap();
        assert_eq!(capacity.data, [0x00, 0x1F, 0xFF, 0xFF, 0, 0, 2, 0]);
        round_trips_over_uas(&mut unit);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn many_uas_commands_at_once_keep_their_data_apart() {
    let mut unit = with_drive(&vendor(), Speed::Super, good(1 << 21));
    unit.set_alternate(1).unwrap();
    unit.uas(1, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).unwrap();
    keeps_commands_apart(&mut unit);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn disk_commands_are_answered_by_the_firmware() {
    let mut unit = with_drive(&vendor(), Speed::Super, good(1 << 33));
    let mut ask = |cdb: &[u8], len: usize| {
        let reply = unit.bulk_only(cdb, if len == 0 { Data::None } else { Data::In(len) }).unwrap();
        assert_eq!(reply.status, 0, "{cdb:02X?}");
        reply.data
    };
    let inquiry = ask(&[0x12, 0, 0, 0, 36, 0], 36);
    assert_eq!(
        (inquiry[..5].to_vec(), &inquiry[8..20]),
        (vec![0, 0, 6, 2, 0x47], &b"tiny    Tiny"[..]),
        "a disk, not removable"
    );
    assert_eq!(ask(&[0x12, 1, 0, 0, 255, 0], 255)[4..], [0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2]);
    assert_eq!(
        ask(&[0x12, 1, 0x80, 0, 255, 0], 255)[4..],
        *b"AAAABBBB0060",
        "the serial number of the configuration block"
    );
    assert_eq!(ask(&[0x12, 1, 0xB1, 0, 255, 0], 255)[4..6], [0, 1], "not rotating");
    assert_eq!(
        ask(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8),
        [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 2, 0],
        "use READ CAPACITY(16) instead"
    );
    let mut capacity = vec![0x9E, 0x10];
    capacity.resize(13, 0);
    capacity.extend([32, 0, 0]);
    assert_eq!(ask(&capacity, 32)[..12], [0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 2, 0]);
    assert!(ask(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0).is_empty(), "SYNCHRONIZE CACHE");
    assert_eq!(ask(&[0xE6, 6, 0, 1, 0, 0], 4096)[24..46], *b"asmpatch virtual drive", "Identify");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_thirteen_cases_hold_for_a_drives_blocks() {
    let mut unit = with_drive(&vendor(), Speed::Super, good(2_048));
    unit.bulk_only(&[0; 6], Data::None).unwrap();
    let block = [7; 512];
    let two = [7; 1024];
    let cases: [(u8, Data<'_>, (u8, Option<u32>)); 8] = [
        (0x28, Data::In(512), (0, Some(0))),
        (0x28, Data::In(1024), (0, Some(512))),
        (0x28, Data::In(256), (2, None)),
        (0x28, Data::None, (2, None)),
        (0x28, Data::Out(&block), (2, None)),
        (0x2A, Data::Out(&block), (0, Some(0))),
        (0x2A, Data::Out(&two), (0, Some(512))),
        (0x2A, Data::None, (2, None)),
    ];
    for (opcode, data, (status, residue)) in cases {
        let reply = unit.bulk_only(&transfer(opcode, 5, 1), data).unwrap();
        assert_eq!(reply.status, status, "{opcode:02X} {data:02X?}");
        assert!(residue.is_none_or(|residue| residue == reply.residue), "{opcode:02X} {data:02X?} {reply:02X?}");
        unit.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]).unwrap();
        unit.clear_halt(DATA_IN).unwrap();
        unit.clear_halt(DATA_OUT).unwrap();
    }
}

/// Its Bulk-Only reset sets 0xC42A to 1F, which ends the DMA's transfers.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_bulk_only_reset_within_a_read_leaves_no_old_data() {
    for packets in [0, 1, 63] {
        let mut unit = with_drive(&vendor(), Speed::Super, good(1 << 21));
        assert_eq!(unit.bulk_only(&[0; 6], Data::None).unwrap().status, 0, "ready");
        unit.begin(&[0x28, 0, 0, 0, 0, 0, 0, 0, 128, 0], 0x1_0000, Direction::In).unwrap();
        for _ in 0..packets {
            unit.receive(DATA_IN, 0).unwrap();
        }
        unit.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]).unwrap();
        unit.clear_halt(DATA_IN).unwrap();
        unit.clear_halt(DATA_OUT).unwrap();
        let inquiry = unit.bulk_only(&[0x12, 0, 0, 0, 36, 0], Data::In(36)).unwrap();
        assert_eq!((inquiry.data.len(), inquiry.status, inquiry.residue), (36, 0, 0), "after {packets} packets");
    }
}
