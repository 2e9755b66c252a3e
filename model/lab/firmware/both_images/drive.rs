//! An NVMe drive behind the bridge.

use asm2464_chip::chip::DriveSpec;

use super::*;
use crate::chip_images::drive::{
    good, keeps_commands_apart, round_trips_over_bulk_only, round_trips_over_uas, transfer, with_drive,
};

const CAPACITY_10: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const SYNCHRONIZE_CACHE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn drive(speed: Speed, drive: DriveSpec) -> Driver {
    with_drive(&stock(), speed, drive)
}

/// Runs a command that must fail. Returns its sense key, ASC and ASCQ.
fn refusal(unit: &mut Driver, cdb: &[u8], data: Data<'_>) -> [u8; 3] {
    assert_eq!(unit.bulk_only(cdb, data).unwrap().status, 1, "{cdb:02X?}");
    requested_sense(unit)
}

on_both_images! {
    bulk_only_reads_return_what_was_written
    uas_reads_return_what_was_written
    many_uas_commands_at_once_keep_their_data_apart
}

/// A unit over UAS after a READ CAPACITY. Over UAS, TEST UNIT READY doesn't make the vendor's firmware start the drive.
fn drive_over_uas(image: &Image, speed: Speed) -> Driver {
    let mut unit = with_drive(image, speed, good(1 << 21));
    unit.set_alternate(1).unwrap();
    let capacity = unit.uas(1, &CAPACITY_10, &[]).unwrap();
    assert_eq!(capacity.data, [0x00, 0x1F, 0xFF, 0xFF, 0, 0, 2, 0]);
    unit
}

fn bulk_only_reads_return_what_was_written(image: &Image) {
    for speed in SPEEDS {
        let mut unit = with_drive(image, speed, good(1 << 21));
        assert_eq!(unit.bulk_only(&[0; 6], Data::None).unwrap().status, 0, "ready");
        round_trips_over_bulk_only(&mut unit);
    }
}

fn uas_reads_return_what_was_written(image: &Image) {
    for speed in SPEEDS {
        round_trips_over_uas(&mut drive_over_uas(image, speed));
    }
}

fn many_uas_commands_at_once_keep_their_data_apart(image: &Image) {
    keeps_commands_apart(&mut drive_over_uas(image, Speed::Super));
}

#[test]
fn disk_commands_are_answered_from_the_drive() {
    let mut unit = drive(Speed::Super, good(1 << 33));
    let mut ask = |cdb: &[u8], len: usize| {
        let reply = unit.bulk_only(cdb, if len == 0 { Data::None } else { Data::In(len) }).unwrap();
        assert_eq!(reply.status, 0, "{cdb:02X?}");
        reply.data
    };
    assert_eq!(ask(&[0x12, 1, 0, 0, 255, 0], 255)[4..], [0x00, 0x80, 0x83, 0xB0, 0xB1], "asked first");
    assert_eq!(ask(&INQUIRY, 36)[..5], [0, 0, 6, 2, 31], "a disk, not removable");
    assert!(ask(&[0; 6], 0).is_empty(), "ready");
    let limits = ask(&[0x12, 1, 0xB0, 0, 255, 0], 255);
    assert_eq!((limits.len(), &limits[..12]), (64, &[0, 0xB0, 0, 60, 0, 0, 0, 1, 0, 0, 0x08, 0][..]));
    let characteristics = ask(&[0x12, 1, 0xB1, 0, 255, 0], 255);
    assert_eq!((characteristics.len(), &characteristics[..6]), (64, &[0, 0xB1, 0, 60, 0, 1][..]), "not rotating");
    assert_eq!(ask(&CAPACITY_10, 8), [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 2, 0], "use READ CAPACITY(16) instead");
    let mut capacity = vec![0x9E, 0x10];
    capacity.resize(13, 0);
    capacity.extend([32, 0, 0]);
    let answered = ask(&capacity, 32);
    assert_eq!((answered.len(), &answered[..12]), (32, &[0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 2, 0][..]));
    assert!(ask(&SYNCHRONIZE_CACHE, 0).is_empty());
    assert_eq!(ask(&[0xE6, 6, 0, 1, 0, 0], 4096)[24..46], *b"asmpatch virtual drive", "Identify");
    assert_eq!(ask(&[0xE6, 6, 0, 0, 0, 0], 4096)[..8], (1_u64 << 33).to_le_bytes(), "of the namespace");
    assert_eq!(ask(&[0xE6, 2, 0, 2, 0, 0], 512)[1..4], [0x2C, 0x01, 100], "health");
    assert_eq!(refusal(&mut unit, &[0xE6, 0x80, 0, 0, 0, 0], Data::None), [5, 0x24, 0], "Format NVM is refused");
}

#[test]
fn blocks_that_do_not_exist_are_refused() {
    for speed in SPEEDS {
        let mut unit = drive(speed, good(2_048));
        assert_eq!(unit.bulk_only(&CAPACITY_10, Data::In(8)).unwrap().data, [0, 0, 7, 0xFF, 0, 0, 2, 0]);
        for (lba, blocks) in [(2_048, 1), (2_047, 2), (u64::MAX, 1), (u64::MAX, 2), (1 << 40, 1), (0, u32::MAX)] {
            let cdb = transfer(0x88, lba, blocks);
            assert_eq!(refusal(&mut unit, &cdb, Data::In(512)), [5, 0x21, 0], "{lba} {blocks}");
            let cdb = transfer(0x8A, lba, blocks);
            assert_eq!(refusal(&mut unit, &cdb, Data::Out(&[7; 512])), [5, 0x21, 0], "{lba} {blocks}");
        }
        assert_eq!(unit.bulk_only(&transfer(0x28, 2_048, 0), Data::None).unwrap().status, 0, "no blocks at the end");
        assert_eq!(unit.bulk_only(&transfer(0x28, 2_047, 1), Data::In(512)).unwrap().data, [0; 512]);
        assert_eq!(refusal(&mut unit, &transfer(0x28, 0, 2_049), Data::None), [5, 0x21, 0]);
    }
    let mut unit = drive(Speed::Super, good(1 << 63));
    assert_eq!(refusal(&mut unit, &transfer(0x88, 0, 0x801), Data::None), [5, 0x24, 0], "longer than page B0 allows");
    assert_eq!(refusal(&mut unit, &transfer(0x88, 1 << 63, 1), Data::None), [5, 0x21, 0]);
    for (opcode, protect) in
        [0x28, 0x2A, 0x88, 0x8A].into_iter().flat_map(|opcode| [0x20, 0x60, 0xE0].map(|it| (opcode, it)))
    {
        let mut protected = transfer(opcode, 0, 1);
        protected[1] = protect;
        assert_eq!(refusal(&mut unit, &protected, Data::None), [5, 0x24, 0], "{opcode:02X} {protect:02X}");
    }
}

#[test]
fn the_thirteen_cases_hold_for_a_drives_blocks() {
    for speed in SPEEDS {
        let mut unit = drive(speed, good(2_048));
        let data = pattern(0x4_0000, 9);
        unit.bulk_only(&transfer(0x2A, 0, 512), Data::Out(&data)).unwrap();
        // Number of blocks, and number of bytes that the host expects.
        for (blocks, len) in [(1, 512), (1, 1024), (1, 4096), (2, 4096), (3, 2048), (200, 0x2_0000), (256, 0x3_0000)] {
            let moved = len.min(blocks as usize * 512);
            let came = unit.bulk_only(&transfer(0x28, 0, blocks), Data::In(len)).unwrap();
            assert_eq!((came.status, came.residue as usize), (0, len - moved), "{blocks} {len}");
            assert!(came.data == data[..moved], "{blocks} {len}");
            let took = unit.bulk_only(&transfer(0x2A, 0, blocks), Data::Out(&data[..len])).unwrap();
            assert_eq!((took.status, took.residue as usize), (0, len - moved), "{blocks} {len}");
        }
        let block = [7; 512];
        for (opcode, data) in [
            (0x28, Data::In(256)),
            (0x28, Data::None),
            (0x28, Data::Out(&block)),
            (0x2A, Data::None),
            (0x2A, Data::Out(&block[..256])),
            (0x2A, Data::In(512)),
        ] {
            assert_eq!(unit.bulk_only(&transfer(opcode, 5, 1), data).unwrap().status, 2, "{opcode:02X} {data:?}");
            reset_recovery(&mut unit);
        }
        assert!(unit.bulk_only(&transfer(0x28, 0, 512), Data::In(0x4_0000)).unwrap().data == data);
    }
}

#[test]
fn a_drive_that_never_gets_ready_reports_becoming_ready() {
    let mut unit = drive(Speed::Super, DriveSpec { never_ready: true, ..good(2_048) });
    for cdb in [&[0; 6][..], &CAPACITY_10, &SYNCHRONIZE_CACHE, &transfer(0x28, 0, 1), &transfer(0x8A, 0, 1)] {
        assert_eq!(refusal(&mut unit, cdb, Data::None), [2, 4, 1], "{cdb:02X?}");
    }
    assert_eq!(
        unit.bulk_only(&READ_VERSION, Data::In(6)).unwrap().data,
        stock().version().0,
        "everything else still works"
    );
}

#[test]
fn a_command_that_fails_in_the_drive_ends_in_sense_and_the_next_one_works() {
    for speed in SPEEDS {
        for (read, parts, sense_of) in [(true, 1, [3, 0x11, 0]), (true, 3, [3, 0x11, 0]), (false, 3, [3, 0x03, 0])] {
            let mut unit = drive(speed, DriveSpec { fails_after: Some(parts - 1), ..good(2_048) });
            let data = pattern(0x4_0000, 3);
            let (cdb, moves) = match read {
                true => (transfer(0x28, 0, 512), Data::In(data.len())),
                false => (transfer(0x2A, 0, 512), Data::Out(&data)),
            };
            assert_eq!(refusal(&mut unit, &cdb, moves), sense_of, "{speed:?} {read} {parts}");
            assert_eq!(refusal(&mut unit, &transfer(0x28, 0, 1), Data::In(512)), [3, 0x11, 0]);
            unit.set_alternate(1).unwrap();
            assert_eq!(sense(&unit.uas(5, &transfer(0x28, 0, 512), &[]).unwrap()), [3, 0x11, 0]);
            assert_eq!(sense(&unit.uas(6, &transfer(0x2A, 0, 512), &data).unwrap()), [3, 0x03, 0]);
            assert!(is_good(&unit.uas(7, &[0; 6], &[]).unwrap(), 7), "the drive itself is ready");
        }
    }
}

#[test]
fn a_drive_that_disappears_ends_in_sense() {
    let data = pattern(0x4_0000, 3);
    for (speed, uas) in SPEEDS.into_iter().flat_map(|speed| [(speed, false), (speed, true)]) {
        // Four parts, each with two PCIe requests: the doorbells.
        for (cdb, moves, requests) in [
            (transfer(0x28, 0, 512), Data::In(data.len()), 0),
            (transfer(0x28, 0, 512), Data::In(data.len()), 3),
            (transfer(0x2A, 0, 512), Data::Out(&data), 0),
            (transfer(0x2A, 0, 512), Data::Out(&data), 3),
            (SYNCHRONIZE_CACHE.to_vec(), Data::None, 0),
        ] {
            let mut unit = drive(speed, good(2_048));
            unit.set_alternate(u8::from(uas)).unwrap();
            let out = if let Data::Out(data) = moves { data } else { &[] };
            let capacity = match uas {
                true => unit.uas(1, &CAPACITY_10, &[]).unwrap().data,
                false => unit.bulk_only(&CAPACITY_10, Data::In(8)).unwrap().data,
            };
            assert_eq!(capacity[..4], [0, 0, 7, 0xFF]);
            unit.chip.fabric_mut().lose_link_after(requests);
            let lost = match uas {
                true => sense(&unit.uas(2, &cdb, out).unwrap()),
                false => refusal(&mut unit, &cdb, moves),
            };
            assert_eq!(lost, [4, 0x3E, 2], "{speed:?} {uas} {requests} {cdb:02X?}");
            unit.set_alternate(0).unwrap();
            assert_eq!(refusal(&mut unit, &[0; 6], Data::None), [2, 0x3A, 0], "looked for again");
            assert_eq!(unit.bulk_only(&READ_VERSION, Data::In(6)).unwrap().data, stock().version().0);
        }
    }
}
