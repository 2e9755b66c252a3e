//! Bulk-Only: commands, the thirteen cases, and errors of the host.

use super::*;

on_both_images! {
    bulk_only_commands_end_in_a_csw
    data_that_a_command_does_not_want_is_drained
    an_invalid_cbw_halts_both_pipes_until_a_bulk_only_reset
}

fn bulk_only_commands_end_in_a_csw(image: &Image) {
    for speed in SPEEDS {
        let mut unit = on_bulk_only(image, speed);
        let reply = unit.bulk_only(&INQUIRY, Data::In(36)).unwrap();
        assert!(is_inquiry(&reply.data) && (reply.status, reply.residue) == (0, 0), "{reply:02X?}");
        assert_eq!(unit.bulk_only(&READ_VERSION, Data::In(6)).unwrap().data, image.version().0);
        for (cdb, len, expected) in [
            (&[0; 6][..], 0, [2, 0x3A, 0]),
            (&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, [2, 0x3A, 0]),
            (&[0xE4, 4, 0x52, 0, 0, 0], 4, [5, 0x24, 0]),
            (&[0xC0, 0, 0, 0, 0, 0], 0, [5, 0x20, 0]),
        ] {
            let data = if len == 0 { Data::None } else { Data::In(len) };
            let reply = unit.bulk_only(cdb, data).unwrap();
            assert_eq!((reply.status, reply.residue), (1, len as u32), "{cdb:02X?}");
            assert_eq!(requested_sense(&mut unit), expected, "{cdb:02X?}");
        }
        assert_eq!(requested_sense(&mut unit), [0, 0, 0], "reported once");
    }
}

#[test]
fn the_practice_image_answers_what_a_kernel_asks() {
    let mut unit = on_bulk_only(&stock(), Speed::Super);
    for (cdb, len, starts, came) in [
        (&[0x12, 1, 0, 0, 255, 0][..], 255, &[0, 0, 0, 3, 0, 0x80, 0x83][..], 7),
        (&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], 16, &[0, 0, 0, 8], 16),
        (&[0x1A, 0, 0x3F, 0, 192, 0], 192, &[23], 24),
        (&[0x5A, 0, 0x08, 0, 0, 0, 0, 0, 192, 0], 192, &[0, 26], 28),
    ] {
        let reply = unit.bulk_only(cdb, Data::In(len)).unwrap();
        assert!(reply.data.starts_with(starts), "{cdb:02X?} {reply:02X?}");
        assert_eq!((reply.data.len(), reply.residue as usize), (came, len - came), "{cdb:02X?}");
    }
    for (cdb, sense) in [([0xE6, 2, 0, 0, 0, 0], [2, 0x3A, 0]), ([0x12, 1, 0x55, 0, 36, 0], [5, 0x24, 0])] {
        assert_eq!(unit.bulk_only(&cdb, Data::In(36)).unwrap().status, 1);
        assert_eq!(requested_sense(&mut unit), sense, "{cdb:02X?}");
    }
}

/// Case number, command, the host's data; then the number of received bytes, bCSWStatus and residue.
type Case<'a> = (u8, &'a [u8], Data<'a>, usize, u8, u32);

#[test]
fn in_the_practice_image_each_of_the_thirteen_cases_ends_in_a_csw_and_the_next_command_works() {
    let e4 = |len| [0xE4, len, 0x50, 0x07, 0xF0, 0];
    let e1 = [0xE1, 0x50, 1];
    let (short, exact, long) = (vec![7; 64], vec![7; 128], vec![7; 3000]);
    for speed in SPEEDS {
        let mut unit = on_bulk_only(&stock(), speed);
        let cases: [Case<'_>; 13] = [
            (1, &[0x1B, 0, 0, 0, 0, 0], Data::None, 0, 0, 0),
            (2, &e4(4), Data::None, 0, 2, 0),
            (3, &e1, Data::None, 0, 2, 0),
            (4, &[0x1B, 0, 0, 0, 0, 0], Data::In(512), 0, 0, 512),
            (5, &e4(4), Data::In(16), 4, 0, 12),
            (6, &e4(16), Data::In(16), 16, 0, 0),
            (7, &e4(16), Data::In(4), 0, 2, 0),
            (8, &e1, Data::In(128), 0, 2, 0),
            (9, &[0x1B, 0, 0, 0, 0, 0], Data::Out(&long), 0, 0, 3000),
            (10, &e4(16), Data::Out(&long), 0, 2, 0),
            (11, &e1, Data::Out(&long), 0, 0, 2872),
            (12, &e1, Data::Out(&exact), 0, 0, 0),
            (13, &e1, Data::Out(&short), 0, 2, 0),
        ];
        for (case, cdb, data, came, status, residue) in cases {
            let reply = unit.bulk_only(cdb, data).unwrap();
            let BulkOnlyReply { data, status: found, residue: left } = reply;
            assert_eq!((data.len(), found), (came, status), "case {case}, {speed:?}");
            if status != 2 {
                assert_eq!(left, residue, "case {case}, {speed:?}");
            }
            assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "after case {case}");
        }
    }
}

/// Clears the halt and receives the CSW behind it. Returns the low byte of the CSW's residue, and its status.
fn halted_csw(unit: &mut Driver) -> (u8, u8) {
    assert_eq!(unit.receive(DATA_IN, 0), Err(Unanswered::Halted(DATA_IN)));
    unit.clear_halt(DATA_IN).unwrap();
    let csw = unit.receive(DATA_IN, 0).unwrap();
    assert_eq!((csw.len(), &csw[..4]), (13, &b"USBS"[..]));
    (csw[8], csw[12])
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_vendors_image_halts_the_pipe_before_the_csw_of_a_command_with_less_data_than_asked() {
    let mut unit = on_bulk_only(&crate::chip_images::vendor(), Speed::Super);
    unit.begin(&[0x12, 0, 0, 0, 255, 0], 255, Direction::In).unwrap();
    assert_eq!(unit.receive(DATA_IN, 0).unwrap().len(), 76);
    assert_eq!(halted_csw(&mut unit), (255 - 76, 0));
}

#[test]
fn a_short_reply_of_the_practice_image_that_fills_its_last_packet_ends_in_a_halt() {
    let mut unit = on_bulk_only(&stock(), Speed::Super);
    unit.begin(&[0xE2, 0x50, 0, 0, 8, 0], 0x880, Direction::In).unwrap();
    for packet in 0..2 {
        let at = 0x100 + packet * 0x400;
        assert!(unit.receive(DATA_IN, 0).unwrap() == unit.chip.flash().cells[at..at + 0x400]);
    }
    assert_eq!(halted_csw(&mut unit), (0x80, 0));
    // Cases 4, 7 and 8: no data at all.
    let e4 = [0xE4, 16, 0x50, 0x07, 0xF0, 0];
    for (cdb, len, status) in [([0x25, 0, 0, 0, 0, 0], 8, 1), (e4, 4, 2), ([0xE1, 0x50, 1, 0, 0, 0], 128, 2)] {
        unit.begin(&cdb, len, Direction::In).unwrap();
        assert_eq!(halted_csw(&mut unit).1, status, "{cdb:02X?}");
    }
}

fn data_that_a_command_does_not_want_is_drained(image: &Image) {
    let mut unit = on_bulk_only(image, Speed::Super);
    let reply = unit.bulk_only(&[0; 6], Data::Out(&[0x55; 2048])).unwrap();
    assert_eq!((reply.status, reply.residue), (1, 2048));
    assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
}

fn an_invalid_cbw_halts_both_pipes_until_a_bulk_only_reset(image: &Image) {
    for cbw in [&[0x55; 31][..], &[0x55; 30], b"USBC"] {
        is_halted_by(cbw, &mut on_bulk_only(image, Speed::Super), 1);
    }
}

#[test]
fn wrong_lengths_and_another_lun_halt_both_pipes_of_the_practice_image_until_a_reset() {
    for (len, lun, sent) in [(0, 0, 31), (17, 0, 31), (6, 0x10, 31), (6, 0, 30)] {
        let mut cbw = b"USBC\x01\0\0\0\x24\0\0\0\x80".to_vec();
        cbw.extend([lun, len, 0x12, 0, 0, 0, 36]);
        cbw.resize(sent, 0);
        is_halted_by(&cbw, &mut on_bulk_only(&stock(), Speed::Super), 2);
    }
}

/// Checks that a CBW halts both pipes `times` times, although the host clears the halts, until a Bulk-Only reset.
fn is_halted_by(cbw: &[u8], unit: &mut Driver, times: usize) {
    unit.send(DATA_OUT, 0, cbw).unwrap();
    unit.settle();
    for _ in 0..times {
        assert_eq!(unit.chip.bulk_in(DATA_IN, 0), PacketIn::Stall, "{cbw:02X?}");
        assert_eq!(unit.chip.bulk_out(DATA_OUT, 0, &[0; 31]), PacketOut::Stall);
        unit.clear_halt(DATA_IN).unwrap();
        unit.clear_halt(DATA_OUT).unwrap();
    }
    reset_recovery(unit);
    assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{cbw:02X?}");
}

#[test]
fn a_host_that_abandons_e2_half_way_can_still_reset_the_practice_image() {
    for way in [[0x21, 0xFF, 0, 0, 0, 0, 0, 0], [0x01, 0x0B, 0, 0, 0, 0, 0, 0], [0x00, 9, 1, 0, 0, 0, 0, 0]] {
        let mut unit = on_bulk_only(&stock(), Speed::Super);
        unit.begin(&[0xE2, 0x50, 0, 0, 0xFF, 0], 0xFF00, Direction::In).unwrap();
        unit.receive(DATA_IN, 0).unwrap();
        assert_eq!(unit.control([0x80, 0, 0, 0, 0, 0, 2, 0], &[]), Ok(vec![1, 0]), "control requests go on");
        unit.control(way, &[]).unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{way:02X?}");
    }
}

/// Then the vendor's firmware does not even answer control requests.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_host_that_stops_reading_e2_hangs_the_vendors_image() {
    let mut unit = on_bulk_only(&crate::chip_images::vendor(), Speed::Super);
    unit.begin(&[0xE2, 0x50, 0, 0, 0x20, 0], 0x2000, Direction::In).unwrap();
    assert_eq!(unit.receive(DATA_IN, 0).unwrap().len(), 1024);
    for request in [[0x80, 0, 0, 0, 0, 0, 2, 0], [0x21, 0xFF, 0, 0, 0, 0, 0, 0]] {
        assert!(matches!(unit.control(request, &[]), Err(Unanswered::Silent(_))));
    }
}
