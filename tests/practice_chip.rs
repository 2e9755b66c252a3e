//! The practice image on the whole chip, from the reset vector: it enumerates, answers, flashes itself and restarts.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod chip_images;
#[allow(dead_code, reason = "the handler's own proofs are in tests/practice_e4.rs")]
mod e4;

use std::collections::HashSet;

use asmpatch::chip::{
    BulkOnlyReply, COMMAND_OUT, Chip, DATA_IN, DATA_OUT, Data, Driver, InReply, OutReply, Outcome, STATUS_IN, Speed,
    UasReply, Unanswered,
};
use asmpatch::firmware::{BodyOffset, Image, known_blocks};
use asmpatch::mcu::{CodeSpace, MemoryFlash};
use asmpatch::practice;
use chip_images::powered_on;

type Unit = Driver<MemoryFlash>;

const SPEEDS: [Speed; 2] = [Speed::Super, Speed::High];
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 36, 0];
const VERSION: [u8; 6] = [0x26, 0x11, 0x21, 0x00, 0x00, 0x01];
/// E4 of the version that runs.
const READ_VERSION: [u8; 6] = [0xE4, 6, 0x50, 0x07, 0xF0, 0];
/// What a GPU runtime writes before its first WRITE(16).
const INITIALISATION: [(u16, u8); 5] = [(0x054B, 0x20), (0x054E, 0x04), (0x05A8, 0x02), (0x05F8, 0x04), (0x07EF, 0x00)];
/// Where the completion queue stands that the PCIe side writes.
const COMPLETION_QUEUE: u64 = 0x0082_2000;

fn stock() -> Image {
    practice::image()
}

/// With the status patch.
fn patched() -> Image {
    let mut image = stock();
    assert!(image.replace(BodyOffset(0x2A0E), &[0x05]));
    image
}

fn on_bulk_only(image: &Image, speed: Speed) -> Unit {
    let mut unit = powered_on(image, speed);
    unit.enumerate().unwrap();
    unit
}

fn on_uas(image: &Image, speed: Speed) -> Unit {
    let mut unit = on_bulk_only(image, speed);
    unit.set_alternate(1).unwrap();
    unit
}

fn initialise(unit: &mut Unit) {
    for (addr, value) in INITIALISATION {
        let [high, low] = addr.to_be_bytes();
        assert!(is_good(&unit.uas(1, &[0xE5, value, 0x50, high, low, 0], &[]).unwrap(), 1));
    }
}

fn transfer(opcode: u8, sectors: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (opcode, sectors);
    cdb
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 5 % 253) as u8).collect()
}

fn is_inquiry(data: &[u8]) -> bool {
    data.len() == 36 && data.starts_with(&[0x00, 0x80]) && data[8..].starts_with(b"tiny    TinyEnclosure")
}

fn is_good(reply: &UasReply, tag: u8) -> bool {
    reply.status.starts_with(&[0x03, 0, 0, tag, 0, 0, 0])
}

/// Sense key, additional code and qualifier of a sense unit.
fn sense(reply: &UasReply) -> [u8; 3] {
    assert_eq!((reply.status.len(), reply.status[6]), (34, 0x02), "check condition");
    [reply.status[18], reply.status[28], reply.status[29]]
}

/// The same after a CHECK CONDITION over Bulk-Only.
fn requested_sense(unit: &mut Unit) -> [u8; 3] {
    let data = unit.bulk_only(&[3, 0, 0, 0, 18, 0], Data::In(18)).unwrap().data;
    [data[2], data[12], data[13]]
}

fn text(descriptor: &[u8]) -> String {
    let units: Vec<u16> = descriptor[2..].chunks(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    String::from_utf16(&units).unwrap()
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_shares_no_run_of_16_bytes_with_the_vendors_image() {
    const RUN: usize = 16;
    // A few bytes between zeros are nobody's.
    let is_code = |run: &&[u8]| run.iter().filter(|byte| **byte != 0).count() >= 6;
    let vendor = chip_images::vendor();
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
fn where_the_configuration_block_does_not_hold_it_has_a_name_of_its_own() {
    for at in [0x10, 0x7E, 0x7F] {
        let mut unit = powered_on(&stock(), Speed::Super);
        unit.chip.flash_mut().cells_mut()[at] ^= 0x01;
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
            0 => assert_eq!(unit.chip.bulk_out(endpoint, 1, &[0; 32]), OutReply::Stall),
            _ => assert_eq!(unit.chip.bulk_in(endpoint, 1), InReply::Stall),
        }
        unit.clear_halt(endpoint).unwrap();
        assert_eq!(unit.control(status, &[]).unwrap(), [0, 0]);
    }
    assert!(is_good(&unit.uas(1, &INQUIRY, &[]).unwrap(), 1));
}

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

/// Its number, command, the host's data; then bytes that come, bCSWStatus and residue.
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
        assert!(unit.receive(DATA_IN, 0).unwrap() == unit.chip.flash().cells()[at..at + 0x400]);
    }
    assert_eq!(unit.receive(DATA_IN, 0), Err(Unanswered::Halted(DATA_IN)));
    unit.clear_halt(DATA_IN).unwrap();
    let csw = unit.receive(DATA_IN, 0).unwrap();
    assert_eq!(csw[..], *b"USBS\x09\0\0\0\0\x08\0\0\0");
}

#[test]
fn a_host_that_waits_for_data_that_do_not_come_meets_a_halt_before_the_csw() {
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
            assert_eq!(unit.chip.bulk_in(DATA_IN, 0), InReply::Stall, "{cbw:02X?}");
            assert_eq!(unit.chip.bulk_out(DATA_OUT, 0, &good(6, 0)), OutReply::Stall);
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
fn e5_writes_what_e4_reads_on_both_pages() {
    let mut unit = on_bulk_only(&stock(), Speed::Super);
    for (page, addr) in [(0x50, [0xF0, 0x07]), (0x50, [0x30, 0x10]), (0x51, [0x12, 0x34])] {
        assert_eq!(unit.bulk_only(&[0xE5, 0xA7, page, addr[0], addr[1], 0], Data::None).unwrap().status, 0);
        let reply = unit.bulk_only(&[0xE4, 1, page, addr[0], addr[1], 0], Data::In(1)).unwrap();
        assert_eq!(reply.data, [0xA7], "page {page:02X} address {addr:02X?}");
    }
    assert_eq!(unit.chip.sram()[7], 0xA7, "the window is the SRAM");
}

#[test]
fn the_long_e4_comes_packet_by_packet_over_both_transports() {
    let image = e4::extended(&stock().to_file());
    for speed in SPEEDS {
        for is_uas in [false, true] {
            let mut unit = on_bulk_only(&image, speed);
            let bytes = pattern(0x1000);
            unit.chip.sram_mut()[..0x1000].copy_from_slice(&bytes);
            if is_uas {
                unit.set_alternate(1).unwrap();
            }
            for len in [0usize, 1, 255, 256, 511, 512, 1000, 1024, 1025, 3000, 4096] {
                let cdb = [0xE4, len as u8, 0x50, 0xF0, 0x00, (len >> 8) as u8];
                if is_uas {
                    let reply = unit.uas(7, &cdb, &[]).unwrap();
                    assert!(is_good(&reply, 7) && reply.data == bytes[..len], "{speed:?} {len}");
                } else {
                    let host_len = len + 100;
                    let reply = unit.bulk_only(&cdb, Data::In(host_len)).unwrap();
                    assert!(reply.data == bytes[..len], "{speed:?} {len}: {}", reply.data.len());
                    assert_eq!((reply.status, reply.residue), (0, 100), "{speed:?} {len}");
                }
            }
        }
    }
}

/// Sends a command without data, or with data from the host, over either transport; whether it ended well.
fn sends(unit: &mut Unit, is_uas: bool, cdb: &[u8], out: &[u8]) -> bool {
    if is_uas {
        return is_good(&unit.uas(3, cdb, out).unwrap(), 3);
    }
    let data = if out.is_empty() { Data::None } else { Data::Out(out) };
    let reply = unit.bulk_only(cdb, data).unwrap();
    (reply.status, reply.residue) == (0, 0)
}

#[test]
fn it_is_flashed_and_restarts_over_both_transports_at_both_speeds() {
    let image = patched();
    let file = image.to_file();
    let [zero, one] = known_blocks();
    for (speed, is_uas) in SPEEDS.into_iter().flat_map(|speed| [(speed, false), (speed, true)]) {
        let mut unit = if is_uas { on_uas(&stock(), speed) } else { on_bulk_only(&stock(), speed) };
        for (number, block) in [(0, &zero), (1, &one)] {
            let mut cdb = [0; 15];
            cdb[..3].copy_from_slice(&[0xE1, 0x50, number]);
            assert!(sends(&mut unit, is_uas, &cdb, block.bytes()));
        }
        assert!(unit.chip.flash().cells()[0x100..0x2_0000].iter().all(|cell| *cell == 0xFF));
        let (first, second) = file.split_at(0xFF00);
        for (mode, part) in [(0x50, first), (0xD0, second)] {
            let len = (part.len() as u32).to_be_bytes();
            assert!(sends(&mut unit, is_uas, &[0xE3, mode, len[0], len[1], len[2], len[3]], part));
        }
        let cells = unit.chip.flash().cells();
        assert!(cells[..128] == *zero.bytes() && cells[128..256] == *one.bytes());
        assert!(cells[0x100..0x1_0000] == *first && cells[0x1_0000..0x1_0000 + second.len()] == *second);
        let mut reset = [0; 15];
        reset[..2].copy_from_slice(&[0xE8, 0x50]);
        assert!(sends(&mut unit, is_uas, &reset, &[]), "E8 is answered first");
        assert_eq!(unit.settle(), Outcome::Reset);
        let mut unit = Driver::new(unit.chip.restart(CodeSpace::new(&image)));
        unit.enumerate().unwrap();
        assert_eq!(unit.bulk_only(&READ_VERSION, Data::In(6)).unwrap().data, VERSION);
    }
}

#[test]
fn its_flash_is_read_as_it_is_on_both_transports() {
    for speed in SPEEDS {
        let mut unit = on_bulk_only(&stock(), speed);
        let block = unit.bulk_only(&[0xE0, 0x50, 0], Data::In(128)).unwrap().data;
        assert_eq!(block, known_blocks()[0].bytes());
        let part = unit.bulk_only(&[0xE2, 0x50, 0, 0, 0xFF, 0], Data::In(0xFF00)).unwrap();
        assert!(part.data == unit.chip.flash().cells()[0x100..0x1_0000] && part.status == 0);
        let other = unit.bulk_only(&[0xE2, 0xD0, 0, 1, 0, 0], Data::In(0x1_0000)).unwrap();
        assert!(other.data == unit.chip.flash().cells()[0x1_0000..0x2_0000] && other.residue == 0);
        unit.set_alternate(1).unwrap();
        let part = unit.uas(1, &[0xE2, 0xD0, 0, 0, 0x7F, 1], &[]).unwrap();
        assert!(part.data == unit.chip.flash().cells()[0x1_0000..0x1_7F01] && is_good(&part, 1));
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

#[test]
fn e8_in_mode_0x51_takes_the_unit_off_the_bus_for_good() {
    for is_uas in [false, true] {
        let mut unit = if is_uas { on_uas(&stock(), Speed::Super) } else { on_bulk_only(&stock(), Speed::Super) };
        assert!(sends(&mut unit, is_uas, &[0xE8, 0x51, 0, 0, 0, 0], &[]));
        assert_eq!(unit.settle(), Outcome::Parked);
        assert!(!unit.chip.is_on_bus());
    }
}

#[test]
fn uas_commands_end_in_its_own_units() {
    for speed in SPEEDS {
        let mut unit = on_uas(&stock(), speed);
        let reply = unit.uas(1, &INQUIRY, &[]).unwrap();
        assert!(is_inquiry(&reply.data) && is_good(&reply, 1) && reply.data[7] == 0x02, "{reply:02X?}");
        assert_eq!(sense(&unit.uas(2, &[0; 6], &[]).unwrap()), [2, 0x3A, 0]);
        assert_eq!(unit.uas(3, &READ_VERSION, &[]).unwrap().data, VERSION);
        assert!(is_good(&unit.uas(4, &[0xE5, 0x5A, 0x50, 0xF0, 0x01, 0], &[]).unwrap(), 4));
        assert_eq!(unit.uas(5, &[0xE4, 4, 0x50, 0xF0, 0x00, 0], &[]).unwrap().data, [0, 0x5A, 0, 0]);
        assert_eq!(sense(&unit.uas(6, &[0xE4, 4, 0x33, 0xF0, 0x00, 0], &[]).unwrap()), [5, 0x24, 0]);
        unit.set_alternate(0).unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
    }
}

#[test]
fn uas_commands_that_wait_are_answered_in_order_each_on_its_stream() {
    let mut unit = on_uas(&stock(), Speed::Super);
    for tag in 1..=32 {
        unit.send_command(tag, &[0xE4, tag as u8, 0x50, 0x07, 0xF0, 0]).unwrap();
    }
    for tag in 1..=32 {
        let reply = unit.finish_uas(tag, &[]).unwrap();
        assert_eq!(reply.data.len(), usize::from(tag));
        assert!(is_good(&reply, tag as u8));
    }
}

#[test]
fn a_command_that_finds_no_slot_is_answered_with_task_set_full() {
    let mut unit = on_uas(&stock(), Speed::Super);
    for tag in 1..=33 {
        unit.send_command(tag, &READ_VERSION).unwrap();
    }
    let full = unit.finish_uas(33, &[]).unwrap();
    assert_eq!((full.status[0], full.status[3], full.status[6]), (0x03, 33, 0x28));
    for tag in 1..=32 {
        assert_eq!(unit.finish_uas(tag, &[]).unwrap().data, VERSION);
    }
    assert_eq!(unit.uas(33, &READ_VERSION, &[]).unwrap().data, VERSION);
}

#[test]
fn task_management_is_answered_with_response_units() {
    let mut unit = on_uas(&stock(), Speed::Super);
    let mut ask = |id: u8, function: u8, lun: u8| {
        let mut task = [0; 16];
        task[..8].copy_from_slice(&[id, 0, 0, 9, function, 0, 0, 2]);
        task[9] = lun;
        unit.send(COMMAND_OUT, 0, &task).unwrap();
        let status = unit.finish_uas(9, &[]).unwrap().status;
        assert_eq!((status.len(), &status[..4]), (8, &[0x04, 0, 0, 9][..]));
        status[7]
    };
    for function in [0x01, 0x02, 0x04, 0x08, 0x10, 0x40, 0x80] {
        assert_eq!(ask(5, function, 0), 0x00, "{function:02X}");
    }
    assert_eq!(ask(5, 0x20, 0), 0x04, "not supported");
    assert_eq!(ask(5, 0x81, 0), 0x08, "succeeded");
    assert_eq!(ask(5, 0x08, 1), 0x09, "no such unit");
    assert_eq!(ask(7, 0, 0), 0x02, "an invalid unit");
}

#[test]
fn a_tag_that_is_in_use_is_refused_and_the_older_command_goes_on() {
    let mut unit = on_uas(&stock(), Speed::Super);
    unit.send_command(5, &READ_VERSION).unwrap();
    unit.send_command(5, &INQUIRY).unwrap();
    let first = unit.finish_uas(5, &[]).unwrap();
    assert_eq!((first.status[0], first.status[7]), (0x04, 0x0A), "overlapped tag");
    let mut data = first.data;
    let second = unit.finish_uas(5, &[]).unwrap();
    data.extend(second.data.clone());
    assert!(is_good(&second, 5) && data == VERSION);
}

#[test]
fn another_logical_unit_is_not_supported() {
    let mut unit = on_bulk_only(&stock(), Speed::Super);
    unit.set_alternate(1).unwrap();
    let ask = |unit: &mut Unit, cdb: &[u8]| {
        let mut command = vec![0x01, 0, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        command.extend(cdb);
        command.resize(32, 0);
        unit.send(COMMAND_OUT, 0, &command).unwrap();
        unit.finish_uas(4, &[]).unwrap()
    };
    assert_eq!(sense(&ask(&mut unit, &READ_VERSION)), [5, 0x25, 0]);
    assert_eq!(sense(&ask(&mut unit, &transfer(0x8A, 1))), [5, 0x25, 0]);
    assert_eq!(ask(&mut unit, &INQUIRY).data[0], 0x7F);
}

#[test]
fn a_write_finds_no_medium_until_a_runtime_says_that_there_is_one() {
    let mut unit = on_uas(&patched(), Speed::Super);
    assert_eq!(unit.uas(1, &INQUIRY, &[]).unwrap().data[1], 0x80, "removable");
    assert_eq!(sense(&unit.uas(2, &transfer(0x8A, 1), &[]).unwrap()), [2, 0x3A, 0]);
    assert_eq!(sense(&unit.uas(2, &transfer(0x88, 1), &[]).unwrap()), [2, 0x3A, 0]);
    initialise(&mut unit);
    assert_eq!(unit.uas(1, &INQUIRY, &[]).unwrap().data[1], 0x00);
    assert!(is_good(&unit.uas(2, &[0; 6], &[]).unwrap(), 2), "ready");
    assert!(is_good(&unit.uas(2, &transfer(0x8A, 0), &[]).unwrap(), 2), "nothing to move");
    unit.set_alternate(1).unwrap();
    assert_eq!(sense(&unit.uas(2, &transfer(0x8A, 1), &[]).unwrap()), [2, 0x3A, 0], "a reset ends it");
}

/// Sends a WRITE(16) and all of its data, whether its status comes before them or after.
fn write(unit: &mut Unit, tag: u16, sectors: u8, data: &[u8]) -> UasReply {
    unit.send_command(tag, &transfer(0x8A, sectors)).unwrap();
    let stream = if unit.chip.speed() == Speed::Super { tag } else { 0 };
    unit.send(DATA_OUT, stream, data).unwrap();
    unit.finish_uas(tag, &[]).unwrap()
}

#[test]
fn with_the_status_patch_a_write_is_answered_at_once_and_lands_in_the_sram() {
    for speed in SPEEDS {
        let mut unit = on_uas(&patched(), speed);
        initialise(&mut unit);
        let mut slot = 0;
        for (sectors, slots) in [(1u8, 1), (8, 1), (33, 2), (128, 4)] {
            let data: Vec<u8> =
                pattern(usize::from(sectors) * 512 + usize::from(sectors))[usize::from(sectors)..].to_vec();
            assert!(is_good(&write(&mut unit, 9, sectors, &data), 9), "{sectors}");
            // A group of so many slots begins at a multiple of its size.
            slot = usize::div_ceil(slot, slots) * slots;
            let at = slot * 0x4000;
            assert!(unit.chip.sram()[at..at + data.len()] == data, "{speed:?} {sectors} sectors in slot {slot}");
            slot += slots;
            assert!(is_good(&unit.uas(3, &READ_VERSION, &[]).unwrap(), 3), "and E4 goes on");
        }
        // What the runtime does after each WRITE(16): the next one begins in slot 0 again.
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
    let mut unit = on_uas(&patched(), Speed::Super);
    initialise(&mut unit);
    let data = pattern(0x1_0000);
    for _ in 0..8 {
        assert!(is_good(&write(&mut unit, 9, 128, &data), 9));
    }
    assert!((0..8).all(|group| unit.chip.sram()[group * 0x1_0000..][..0x1_0000] == data));
    unit.send_command(9, &transfer(0x8A, 1)).unwrap();
    assert_eq!(unit.finish_uas(9, &[]), Err(Unanswered::Silent(Outcome::Parked)));
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
    let data = pattern(512);
    unit.send_command(9, &transfer(0x8A, 1)).unwrap();
    assert_eq!(unit.finish_uas(9, &data), Err(Unanswered::Silent(Outcome::Parked)));
    assert!(unit.chip.sram()[..512] == data);
    unit.send_command(10, &READ_VERSION).unwrap();
    assert_eq!(unit.finish_uas(10, &[]), Err(Unanswered::Silent(Outcome::Parked)), "nor what comes after it");
    unit.set_alternate(1).unwrap();
    assert_eq!(unit.uas(1, &READ_VERSION, &[]).unwrap().data, VERSION);
}

#[test]
fn a_read_waits_for_a_completion_from_the_pcie_side() {
    let mut unit = on_uas(&patched(), Speed::Super);
    initialise(&mut unit);
    let data = pattern(4096);
    unit.chip.sram_mut()[..4096].copy_from_slice(&data);
    unit.send_command(9, &transfer(0x88, 8)).unwrap();
    assert_eq!(unit.finish_uas(9, &[]), Err(Unanswered::Silent(Outcome::Parked)));
    unit.chip.pcie_write(COMPLETION_QUEUE, &[0; 16]);
    let reply = unit.finish_uas(9, &[]).unwrap();
    assert!(is_good(&reply, 9) && reply.data == data);
    assert_eq!(unit.uas(1, &READ_VERSION, &[]).unwrap().data, VERSION);
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
