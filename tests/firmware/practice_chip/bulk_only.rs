//! Bulk-Only: commands, the thirteen cases, and errors of the host.

use super::*;

#[test]
fn bulk_only_commands_end_in_its_own_status() {
    for speed in SPEEDS {
        let mut unit = on_bulk_only(&stock(), speed);
        let reply = unit.bulk_only(&INQUIRY, Data::In(36)).unwrap();
        assert!(is_inquiry(&reply.data) && (reply.status, reply.residue) == (0, 0), "{reply:02X?}");
        assert_eq!(unit.bulk_only(&READ_VERSION, Data::In(6)).unwrap().data, VERSION);
        for (cdb, len, expected) in [
            (&[0; 6][..], 0, [2, 0x3A, 0]),
            (&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, [2, 0x3A, 0]),
            (&[0xE6, 2, 0, 0, 0, 0], 64, [2, 0x3A, 0]),
            (&[0xE4, 4, 0x52, 0, 0, 0], 4, [5, 0x24, 0]),
            (&[0x12, 1, 0x55, 0, 36, 0], 36, [5, 0x24, 0]),
            (&[0xC0, 0, 0, 0, 0, 0], 0, [5, 0x20, 0]),
        ] {
            let data = if len == 0 { Data::None } else { Data::In(len) };
            let reply = unit.bulk_only(cdb, data).unwrap();
            assert_eq!((reply.status, reply.residue), (1, len as u32), "{cdb:02X?}");
            assert_eq!(requested_sense(&mut unit), expected, "{cdb:02X?}");
        }
        assert_eq!(requested_sense(&mut unit), [0, 0, 0], "reported once");
        let pages = unit.bulk_only(&[0x12, 1, 0, 0, 255, 0], Data::In(255)).unwrap();
        assert_eq!((&pages.data[..], pages.residue), (&[0, 0, 0, 3, 0, 0x80, 0x83][..], 248));
        let luns = unit.bulk_only(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], Data::In(16)).unwrap();
        assert_eq!((luns.data.len(), luns.data[3]), (16, 8));
        let mode = unit.bulk_only(&[0x1A, 0, 0x3F, 0, 192, 0], Data::In(192)).unwrap();
        assert_eq!((mode.data.len(), mode.data[0]), (24, 23));
        let mode = unit.bulk_only(&[0x5A, 0, 0x08, 0, 0, 0, 0, 0, 192, 0], Data::In(192)).unwrap();
        assert_eq!((mode.data.len(), mode.data[1]), (28, 26));
    }
}

/// Case number, command, the host's data; then the number of received bytes, bCSWStatus and residue.
type Case<'a> = (u8, &'a [u8], Data<'a>, usize, u8, u32);

#[test]
fn each_of_the_thirteen_cases_ends_in_a_csw_and_the_next_command_works() {
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

#[test]
fn a_reply_that_ends_on_a_full_packet_and_is_short_ends_in_a_halt() {
    let mut unit = on_bulk_only(&stock(), Speed::Super);
    let mut cbw = b"USBC\x09\0\0\0\0\x10\0\0\x80\0\x06\xE2\x50\0\0\x08".to_vec();
    cbw.resize(31, 0);
    unit.send(DATA_OUT, 0, &cbw).unwrap();
    for packet in 0..2 {
        let at = 0x100 + packet * 0x400;
        assert!(unit.receive(DATA_IN, 0).unwrap() == unit.chip.flash().cells[at..at + 0x400]);
    }
    assert_eq!(unit.receive(DATA_IN, 0), Err(Unanswered::Halted(DATA_IN)));
    unit.clear_halt(DATA_IN).unwrap();
    let csw = unit.receive(DATA_IN, 0).unwrap();
    assert_eq!(csw[..], *b"USBS\x09\0\0\0\0\x08\0\0\0");
}

#[test]
fn a_host_that_waits_for_missing_data_gets_a_halt_before_the_csw() {
    let mut unit = on_bulk_only(&stock(), Speed::Super);
    let e4 = [0xE4, 16, 0x50, 0x07, 0xF0, 0];
    let no_medium = [0x25, 0, 0, 0, 0, 0];
    // Cases 4, 7 and 8.
    for (cdb, len, status) in [(no_medium, 8, 1), (e4, 4, 2), ([0xE1, 0x50, 1, 0, 0, 0], 128, 2)] {
        let mut cbw = b"USBC\x09\0\0\0".to_vec();
        cbw.extend([len, 0, 0, 0, 0x80, 0, 6]);
        cbw.extend(cdb);
        cbw.resize(31, 0);
        unit.send(DATA_OUT, 0, &cbw).unwrap();
        assert_eq!(unit.receive(DATA_IN, 0), Err(Unanswered::Halted(DATA_IN)), "{cdb:02X?}");
        unit.clear_halt(DATA_IN).unwrap();
        let csw = unit.receive(DATA_IN, 0).unwrap();
        assert_eq!((csw.len(), csw[12]), (13, status));
    }
}

#[test]
fn an_invalid_cbw_halts_both_pipes_until_a_bulk_only_reset() {
    let good = |len: u8, lun: u8| {
        let mut cbw = b"USBC\x01\0\0\0\x24\0\0\0\x80".to_vec();
        cbw.extend([lun, len, 0x12, 0, 0, 0, 36]);
        cbw.resize(31, 0);
        cbw
    };
    for cbw in [good(0, 0), good(17, 0), good(6, 0x10), good(6, 0)[..30].to_vec(), vec![0x55; 31]] {
        let mut unit = on_bulk_only(&stock(), Speed::Super);
        unit.send(DATA_OUT, 0, &cbw).unwrap();
        unit.settle();
        for _ in 0..2 {
            assert_eq!(unit.chip.bulk_in(DATA_IN, 0), PacketIn::Stall, "{cbw:02X?}");
            assert_eq!(unit.chip.bulk_out(DATA_OUT, 0, &good(6, 0)), PacketOut::Stall);
            unit.clear_halt(DATA_IN).unwrap();
            unit.clear_halt(DATA_OUT).unwrap();
        }
        unit.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]).unwrap();
        unit.clear_halt(DATA_IN).unwrap();
        unit.clear_halt(DATA_OUT).unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
    }
}

#[test]
fn a_host_that_abandons_e2_half_way_can_still_reset_the_unit() {
    for way in [[0x21, 0xFF, 0, 0, 0, 0, 0, 0], [0x01, 0x0B, 0, 0, 0, 0, 0, 0], [0x00, 9, 1, 0, 0, 0, 0, 0]] {
        let mut unit = on_bulk_only(&stock(), Speed::Super);
        let mut cbw = b"USBC\x09\0\0\0\0\xFF\0\0\x80\0\x06\xE2\x50\0\0\xFF".to_vec();
        cbw.resize(31, 0);
        unit.send(DATA_OUT, 0, &cbw).unwrap();
        unit.receive(DATA_IN, 0).unwrap();
        assert_eq!(unit.control([0x80, 0, 0, 0, 0, 0, 2, 0], &[]), Ok(vec![1, 0]), "control requests go on");
        unit.control(way, &[]).unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{way:02X?}");
    }
}
