//! UAS on a virtual unit: commands, tags, streams.

use super::{PLAIN, UNITS, patched_unit, unit};
use crate::bridge::Endpoint;
use crate::scsi::runtime::INITIALISATION;
use crate::scsi::uas::{CommandIu, StatusIu, Tag};
use crate::scsi::{Cdb, Command, ScsiStatus, XdataAddress};
use crate::virtual_bridge::{InReply, OutReply, STREAMS, VirtualBridge};

/// Switches the unit to UAS and initialises it as a GPU runtime does.
fn uas(mut unit: VirtualBridge) -> VirtualBridge {
    unit.set_alternate(1).unwrap();
    initialise(&mut unit);
    unit
}

fn send(unit: &mut VirtualBridge, tag: u16, cdb: Cdb) {
    let iu = CommandIu { tag: Tag(tag), lun: 0, cdb }.to_bytes();
    assert_eq!(unit.bulk_out(Endpoint::Command, 0, &iu), OutReply::Accepted(32));
}

fn status(unit: &mut VirtualBridge, stream: u16) -> Option<StatusIu> {
    let mut buffer = [0; 96];
    match unit.bulk_in(Endpoint::Status, stream, &mut buffer) {
        InReply::Data(count) => Some(StatusIu::parse(&buffer[..count]).unwrap()),
        InReply::Silent => None,
        other => panic!("{other:?}"),
    }
}

fn initialise(unit: &mut VirtualBridge) {
    for (at, value) in INITIALISATION {
        send(unit, 1, Command::XdataWrite { at: XdataAddress::main(at), value }.cdb());
        assert_eq!(status(unit, 1), good(1));
    }
}

fn good(tag: u16) -> Option<StatusIu> {
    Some(StatusIu::Sense { tag: Tag(tag), status: ScsiStatus::Good, sense: Vec::new() })
}

#[test]
fn every_stream_carries_a_command_at_once_and_they_end_in_any_order() {
    let mut unit = uas(unit(PLAIN));
    for tag in 1..=STREAMS {
        send(&mut unit, tag, Command::Write16 { lba: u64::from(tag), blocks: 1 }.cdb());
    }
    assert_eq!(status(&mut unit, 1), None, "its data is not there yet");
    for tag in (1..=STREAMS).rev() {
        let data = [tag as u8; 512];
        assert_eq!(unit.bulk_out(Endpoint::DataOut, tag, &data), OutReply::Accepted(512));
    }
    for tag in (1..=STREAMS).step_by(2).chain((2..=STREAMS).step_by(2)) {
        assert_eq!(status(&mut unit, tag), good(tag));
        assert_eq!(status(&mut unit, tag), None);
    }
    for tag in 1..=STREAMS {
        send(&mut unit, tag, Command::Read16 { lba: u64::from(tag), blocks: 1 }.cdb());
        let mut data = [1; 512];
        assert_eq!(unit.bulk_in(Endpoint::DataIn, tag, &mut data), InReply::Data(512));
        assert_eq!((data, status(&mut unit, tag)), ([0; 512], good(tag)), "nothing is kept");
    }
}

#[test]
fn a_stream_moves_64_kib_in_one_transfer_or_many() {
    let mut unit = uas(unit(PLAIN));
    let data: Vec<u8> = (0..65536u32).map(|i| ((i * 13) >> 5) as u8).collect();
    send(&mut unit, 5, Command::Write16 { lba: 128, blocks: 128 }.cdb());
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 6, &data), OutReply::Silent, "another stream's data");
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 5, &data), OutReply::Accepted(65536));
    assert_eq!(status(&mut unit, 5), good(5));
    send(&mut unit, 5, Command::Read16 { lba: 128, blocks: 128 }.cdb());
    let mut back = vec![1; 65536];
    for piece in back.chunks_mut(16384) {
        assert_eq!(unit.bulk_in(Endpoint::DataIn, 5, piece), InReply::Data(16384));
    }
    assert!(back.iter().all(|byte| *byte == 0));
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 5, &mut [0; 64]), InReply::Data(0), "an empty packet ends the data");
    assert_eq!(status(&mut unit, 5), good(5));
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 5, &mut [0; 64]), InReply::Silent);
}

#[test]
fn a_refused_command_brings_its_sense_with_its_status() {
    for behind in UNITS {
        let mut unit = uas(unit(behind));
        send(&mut unit, 9, Cdb::of([0xE0, 0x52, 0, 0, 0, 0]));
        let Some(StatusIu::Sense { tag, status, sense }) = status(&mut unit, 9) else { panic!() };
        assert_eq!((tag, status), (Tag(9), ScsiStatus::CheckCondition));
        assert_eq!(crate::scsi::Sense::parse(&sense).unwrap().to_string(), "5/24/00 (invalid field in CDB)");
    }
}

#[test]
fn a_hung_read_holds_its_own_tag_alone_and_an_abort_frees_it() {
    let mut unit = uas(unit(&format!("{PLAIN}[[fault]]\nkind = \"timeout\"\nopcode = 0x88")));
    send(&mut unit, 3, Command::Read16 { lba: 0, blocks: 8 }.cdb());
    send(&mut unit, 4, Command::Inquiry { len: 36 }.cdb());
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 3, &mut [0; 4096]), InReply::Silent);
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 4, &mut [0; 36]), InReply::Data(36));
    assert_eq!(status(&mut unit, 4), good(4));
    assert_eq!(status(&mut unit, 3), None);
    let abort_of_3 = [5, 0, 0, 8, 0x01, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(unit.bulk_out(Endpoint::Command, 0, &abort_of_3), OutReply::Accepted(16));
    assert_eq!(status(&mut unit, 8), Some(StatusIu::Response { tag: Tag(8), code: 0 }));
    send(&mut unit, 3, Command::Inquiry { len: 36 }.cdb());
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 3, &mut [0; 36]), InReply::Data(36));
    assert_eq!(status(&mut unit, 3), good(3));
}

#[test]
fn a_logical_unit_reset_ends_every_command_without_a_status() {
    let mut unit = uas(unit(PLAIN));
    for tag in 1..=4 {
        send(&mut unit, tag, Command::Read16 { lba: 0, blocks: 8 }.cdb());
    }
    let logical_unit_reset = [5, 0, 0, 20, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    unit.bulk_out(Endpoint::Command, 0, &logical_unit_reset);
    assert_eq!(status(&mut unit, 20), Some(StatusIu::Response { tag: Tag(20), code: 0 }));
    for tag in 1..=4 {
        send(&mut unit, tag, Command::XdataWrite { at: XdataAddress::main(0), value: 1 }.cdb());
        assert_eq!(status(&mut unit, tag), good(tag));
    }
}

#[test]
fn a_tag_that_is_in_use_or_no_stream_is_refused_by_a_response() {
    let mut unit = uas(unit(PLAIN));
    send(&mut unit, 2, Command::Read16 { lba: 0, blocks: 1 }.cdb());
    send(&mut unit, 2, Command::TestUnitReady.cdb());
    assert_eq!(status(&mut unit, 2), Some(StatusIu::Response { tag: Tag(2), code: 0x0A }));
    send(&mut unit, 0, Command::TestUnitReady.cdb());
    assert_eq!(status(&mut unit, 0), Some(StatusIu::Response { tag: Tag(0), code: 0x02 }));
    assert_eq!(unit.bulk_out(Endpoint::Command, 0, &[0x07, 0, 0, 6]), OutReply::Accepted(4));
    assert_eq!(status(&mut unit, 6), Some(StatusIu::Response { tag: Tag(6), code: 0x02 }));
    assert_eq!(unit.bulk_out(Endpoint::Command, 0, &[1]), OutReply::Stall);
    unit.clear_halt(Endpoint::Command);
    send(&mut unit, 7, Command::Inquiry { len: 36 }.cdb());
}

#[test]
fn at_high_speed_ready_units_say_whose_data_moves() {
    let mut unit = uas(unit(&format!("{PLAIN}speed = \"high\"")));
    send(&mut unit, 100, Command::Write16 { lba: 0, blocks: 1 }.cdb());
    send(&mut unit, 101, Command::Write16 { lba: 1, blocks: 1 }.cdb());
    send(&mut unit, 102, Command::Read16 { lba: 1, blocks: 1 }.cdb());
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 0, &[1; 512]), OutReply::Silent, "nothing was announced");
    assert_eq!(status(&mut unit, 0), Some(StatusIu::ReadReady(Tag(102))));
    assert_eq!(status(&mut unit, 0), Some(StatusIu::WriteReady(Tag(100))));
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 0, &[1; 512]), OutReply::Accepted(512));
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 0, &[2; 512]), OutReply::Silent);
    assert_eq!(status(&mut unit, 0), Some(StatusIu::WriteReady(Tag(101))));
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 0, &[2; 512]), OutReply::Accepted(512));
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 0, &mut [0; 512]), InReply::Data(512));
    let mut ended: Vec<_> = (0..3).map(|_| status(&mut unit, 0).unwrap()).collect();
    ended.sort_by_key(|unit| match unit {
        StatusIu::Sense { tag, .. } => *tag,
        _ => Tag(0),
    });
    assert_eq!(ended, [good(100), good(101), good(102)].map(Option::unwrap));
}

#[test]
fn selecting_bulk_only_forgets_what_uas_had_under_way() {
    for behind in UNITS {
        let mut unit = uas(patched_unit(behind));
        send(&mut unit, 1, Command::Read16 { lba: 0, blocks: 1 }.cdb());
        unit.set_alternate(0).unwrap();
        assert_eq!(unit.bulk_in(Endpoint::Status, 1, &mut [0; 64]), InReply::Stall, "there is no such endpoint");
        unit.set_alternate(1).unwrap();
        assert_eq!(status(&mut unit, 1), None);
        assert_eq!(unit.set_alternate(2).unwrap_err().0, 2);
    }
}

#[test]
fn data_beyond_what_the_host_asked_for_babbles_and_the_command_ends() {
    for (speed, packet) in [("super", 1024), ("high", 512)] {
        let mut unit = uas(unit(&format!("{PLAIN}speed = \"{speed}\"")));
        let stream = if speed == "super" { 5 } else { 0 };
        send(&mut unit, 5, Cdb::of([0xE0, 0x50, 0, 0, 0, 0]));
        if speed == "high" {
            assert_eq!(status(&mut unit, 0), Some(StatusIu::ReadReady(Tag(5))));
        }
        assert_eq!(unit.bulk_in(Endpoint::DataIn, stream, &mut [0; 64]), InReply::Babble(64));
        assert_eq!(status(&mut unit, stream), good(5));

        send(&mut unit, 5, Command::Read16 { lba: 0, blocks: 4 }.cdb());
        if speed == "high" {
            assert_eq!(status(&mut unit, 0), Some(StatusIu::ReadReady(Tag(5))));
        }
        let mut whole_packet = vec![0; packet];
        assert_eq!(unit.bulk_in(Endpoint::DataIn, stream, &mut whole_packet), InReply::Data(packet));
        assert_eq!(status(&mut unit, stream), None, "a host may read the rest with another transfer");
        assert_eq!(unit.bulk_in(Endpoint::DataIn, stream, &mut vec![0; 2048 - packet]), InReply::Data(2048 - packet));
        assert_eq!(status(&mut unit, stream), good(5));
    }
}

#[test]
fn a_status_longer_than_the_hosts_buffer_babbles() {
    for behind in UNITS {
        let mut unit = uas(unit(behind));
        send(&mut unit, 9, Cdb::of([0xE0, 0x52, 0, 0, 0, 0]));
        assert_eq!(unit.bulk_in(Endpoint::Status, 9, &mut [0; 16]), InReply::Babble(16));
    }
}
