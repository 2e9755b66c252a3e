//! The vendor's image with an NVMe drive behind the bridge. `ASMPATCH_VENDOR_IMAGE` names the image.
use asm2464::firmware::Image;
use asm2464::scsi::bot::Direction;
use asm2464_chip::chip::{BlockStore, DATA_IN, Data, Speed, StoreFailed};

use crate::chip_images::drive::{good, transfer, with_drive};
use crate::chip_images::{file, patched, reset_recovery, vendor, vendor_231204};

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
        reset_recovery(&mut unit);
    }
}

/// Sends WRITEs over UAS, of which one gets no data, then resets the port three times. After each, every command is
/// answered.
fn a_port_reset_ends_writes_without_data(image: &Image) {
    let data = [7; 1024];
    for (writes, without) in [(2, 0), (3, 2), (4, 1), (31, 4)] {
        let mut unit = with_drive(image, Speed::Super, good(1 << 21));
        unit.set_budget(1_000_000);
        unit.set_alternate(1).unwrap();
        unit.uas(1, &[0x12, 0, 0, 0, 36, 0], &[]).unwrap();
        unit.uas(1, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).unwrap();
        for tag in 0..writes {
            unit.send_command(2 + tag, &transfer(0x2A, 100 * u64::from(tag), 2)).unwrap();
        }
        for tag in (0..writes).filter(|tag| *tag != without) {
            unit.finish_uas(2 + tag, &data).unwrap();
        }
        for round in 0..3 {
            unit.chip.bus_reset(Speed::Super);
            unit.enumerate().unwrap();
            unit.set_alternate(1).unwrap();
            for (tag, opcode) in [(40, 0x28), (41, 0x28), (42, 0x2A), (43, 0x28)] {
                let answer = unit.uas(tag, &transfer(opcode, 50, 2), if opcode == 0x2A { &data } else { &[] });
                assert!(answer.is_ok(), "{writes} without {without}, reset {round}, {opcode:02X}: {answer:02X?}");
            }
        }
        unit.set_alternate(0).unwrap();
        assert_eq!(unit.bulk_only(&transfer(0x2A, 50, 2), Data::Out(&data)).unwrap().status, 0);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE, ASMPATCH_VENDOR_231204_IMAGE and ASMPATCH_VENDOR_250123_IMAGE"]
fn a_port_reset_ends_writes_over_uas_of_which_one_gets_no_data() {
    let newer = Image::parse(&file("ASMPATCH_VENDOR_250123_IMAGE")).unwrap();
    for image in [vendor(), patched(), vendor_231204(), newer] {
        a_port_reset_ends_writes_without_data(&image);
    }
}

/// A host that repeats both after each port reset, as a driver that retries does.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn writes_without_their_data_after_each_port_reset_leave_a_unit_that_answers() {
    let mut unit = with_drive(&vendor(), Speed::Super, good(1 << 21));
    unit.set_budget(1_000_000);
    unit.set_alternate(1).unwrap();
    unit.uas(1, &[0x12, 0, 0, 0, 36, 0], &[]).unwrap();
    unit.uas(1, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).unwrap();
    let data = [7; 1024];
    for _ in 0..3 {
        unit.send_command(2, &transfer(0x2A, 2_000, 2)).unwrap();
        unit.send_command(3, &transfer(0x2A, 3_000, 2)).unwrap();
        unit.finish_uas(3, &data).unwrap();
        unit.chip.bus_reset(Speed::Super);
        unit.enumerate().unwrap();
        unit.set_alternate(1).unwrap();
        unit.uas(40, &transfer(0x2A, 50, 2), &data).unwrap();
        unit.uas(41, &transfer(0x28, 50, 2), &[]).unwrap();
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
        reset_recovery(&mut unit);
        let inquiry = unit.bulk_only(&[0x12, 0, 0, 0, 36, 0], Data::In(36)).unwrap();
        assert_eq!((inquiry.data.len(), inquiry.status, inquiry.residue), (36, 0, 0), "after {packets} packets");
    }
}

/// A drive with only this many blocks left. It ends a command for other blocks with status 080, LBA out of range.
#[derive(Debug)]
struct Shrunk(u64);

impl BlockStore for Shrunk {
    fn blocks(&self) -> u64 {
        self.0
    }

    fn read(&mut self, _: u64, into: &mut [u8]) -> Result<(), StoreFailed> {
        into.fill(0x5A);
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), StoreFailed> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreFailed> {
        Ok(())
    }
}

/// Sense key, additional code and qualifier of a part that failed.
const PART_FAILED: [u8; 3] = [0x0B, 0x47, 0x03];

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn an_lba_that_the_drive_calls_out_of_range_ends_in_sense_except_in_a_read_of_one_part() {
    // The firmware loses the error of a READ of one part.
    for (opcode, blocks, fails) in
        [(0x28, 128, false), (0x28, 129, true), (0x28, 512, true), (0x2A, 1, true), (0x2A, 512, true)]
    {
        for left in [0, 128] {
            let fails = fails && blocks > left as u32;
            let data = vec![7; 512 * blocks as usize];
            let (moves, out) =
                if opcode == 0x2A { (Data::Out(&data), &data[..]) } else { (Data::In(data.len()), &[][..]) };
            let mut unit = with_drive(&vendor(), Speed::Super, good(1 << 21));
            unit.bulk_only(&[0; 6], Data::None).unwrap();
            unit.chip.fabric_mut().put_store(Box::new(Shrunk(left)));
            let what = format!("{opcode:02X} {blocks} {left}");
            assert_eq!(unit.bulk_only(&transfer(opcode, 0, blocks), moves).unwrap().status, u8::from(fails), "{what}");
            let sense = unit.bulk_only(&[3, 0, 0, 0, 18, 0], Data::In(18)).unwrap().data;
            assert_eq!([sense[2], sense[12], sense[13]], if fails { PART_FAILED } else { [0; 3] }, "{what}");
            unit.set_alternate(1).unwrap();
            let status = unit.uas(2, &transfer(opcode, 0, blocks), out).unwrap().status;
            assert_eq!(
                status.get(18..).map(|sense| [sense[0], sense[10], sense[11]]),
                fails.then_some(PART_FAILED),
                "{what}"
            );
        }
    }
}

/// The engine refuses a transfer past the end of the drive and, over Bulk-Only, a transfer that the CBW contradicts.
/// The firmware then starts each part by the DMA's registers. Unproven on silicon: docs/lab/chip.md.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_transfer_of_several_parts_that_the_engine_refuses_never_ends() {
    for (first, blocks, wanted, ends) in
        [(1_920, 128, 128, true), (1_920, 129, 129, false), (0, 128, 129, true), (0, 129, 130, false)]
    {
        for opcode in [0x28, 0x2A] {
            let data = vec![7; 512 * wanted];
            let (moves, out) =
                if opcode == 0x2A { (Data::Out(&data), &data[..]) } else { (Data::In(data.len()), &[][..]) };
            let mut unit = with_drive(&vendor(), Speed::Super, good(2_048));
            unit.bulk_only(&[0; 6], Data::None).unwrap();
            let answer = unit.bulk_only(&transfer(opcode, first, blocks), moves);
            assert_eq!(answer.is_ok(), ends, "{opcode:02X} {first} {blocks} {answer:02X?}");
            if first != 0 {
                let mut unit = with_drive(&vendor(), Speed::Super, good(2_048));
                unit.set_alternate(1).unwrap();
                unit.uas(1, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).unwrap();
                let answer = unit.uas(2, &transfer(opcode, first, blocks), out);
                assert_eq!(answer.is_ok(), ends, "{opcode:02X} {first} {blocks} {answer:02X?}");
            }
        }
    }
}
