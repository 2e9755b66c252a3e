//! UAS on a virtual unit: commands, tags, streams.

use asm2464::scsi::runtime::INITIALISATION;
use asm2464::scsi::uas::{CommandIu, StatusIu, Tag};
use asm2464::scsi::{Cdb, Command, ScsiStatus, XdataAddress};
use asm2464_host::bridge::Endpoint;

use super::{SSD, patched_unit, unit};
use crate::virtual_unit::{Reply, VirtualUnit};

/// Switches the unit to UAS and initialises it as a GPU runtime does.
fn uas(mut unit: VirtualUnit) -> VirtualUnit {
    assert!(unit.set_alternate(1));
    initialise(&mut unit);
    unit
}

fn send(unit: &mut VirtualUnit, tag: u16, cdb: Cdb) {
    let iu = CommandIu { tag: Tag(tag), lun: 0, cdb }.to_bytes();
    assert_eq!(unit.bulk_out(Endpoint::Command, 0, &iu), Reply::Done(32));
}

fn status(unit: &mut VirtualUnit, stream: u16) -> Option<StatusIu> {
    let mut buffer = [0; 96];
    match unit.bulk_in(Endpoint::Status, stream, &mut buffer) {
        Reply::Done(count) => Some(StatusIu::parse(&buffer[..count]).unwrap()),
        Reply::Silent => None,
        other => panic!("{other:?}"),
    }
}

fn initialise(unit: &mut VirtualUnit) {
    for (at, value) in INITIALISATION {
        send(unit, 1, Command::XdataWrite { at: XdataAddress::main(at), value }.cdb());
        assert_eq!(status(unit, 1), good(1));
    }
}

fn good(tag: u16) -> Option<StatusIu> {
    Some(StatusIu::Sense { tag: Tag(tag), status: ScsiStatus::Good, sense: Vec::new() })
}

#[test]
fn a_hung_read_holds_its_own_tag_alone_and_an_abort_frees_it() {
    let mut unit = uas(unit("[[fault]]\nkind = \"timeout\"\nopcode = 0x88"));
    send(&mut unit, 3, Command::Read16 { lba: 0, blocks: 8 }.cdb());
    send(&mut unit, 4, Command::Inquiry { len: 36 }.cdb());
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 3, &mut [0; 4096]), Reply::Silent);
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 4, &mut [0; 36]), Reply::Done(36));
    assert_eq!(status(&mut unit, 4), good(4));
    assert_eq!(status(&mut unit, 3), None);
    let abort_of_3 = [5, 0, 0, 8, 0x01, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(unit.bulk_out(Endpoint::Command, 0, &abort_of_3), Reply::Done(16));
    assert_eq!(status(&mut unit, 8), Some(StatusIu::Response { tag: Tag(8), code: 0 }));
    send(&mut unit, 3, Command::Inquiry { len: 36 }.cdb());
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 3, &mut [0; 36]), Reply::Done(36));
    assert_eq!(status(&mut unit, 3), good(3));
}

#[test]
fn selecting_bulk_only_forgets_what_uas_had_under_way() {
    let mut unit = uas(patched_unit(""));
    send(&mut unit, 1, Command::Read16 { lba: 0, blocks: 1 }.cdb());
    assert!(unit.set_alternate(0));
    assert_eq!(unit.bulk_in(Endpoint::Status, 1, &mut [0; 64]), Reply::Stall, "there is no such endpoint");
    assert!(unit.set_alternate(1));
    assert_eq!(status(&mut unit, 1), None);
    assert!(!unit.set_alternate(2));
}

#[test]
fn more_data_than_the_host_asked_for_babbles_and_the_command_ends() {
    for (speed, packet) in [("super", 1024), ("high", 512)] {
        let mut unit = unit(&format!("{SSD}speed = \"{speed}\""));
        assert!(unit.set_alternate(1));
        let stream = if speed == "super" { 5 } else { 0 };
        send(&mut unit, 5, Cdb::of([0xE0, 0x50, 0, 0, 0, 0]));
        if speed == "high" {
            assert_eq!(status(&mut unit, 0), Some(StatusIu::ReadReady(Tag(5))));
        }
        assert_eq!(unit.bulk_in(Endpoint::DataIn, stream, &mut [0; 64]), Reply::Babble(64));
        assert_eq!(status(&mut unit, stream), good(5));

        send(&mut unit, 5, Command::Read16 { lba: 0, blocks: 4 }.cdb());
        if speed == "high" {
            assert_eq!(status(&mut unit, 0), Some(StatusIu::ReadReady(Tag(5))));
        }
        let mut whole_packet = vec![0; packet];
        assert_eq!(unit.bulk_in(Endpoint::DataIn, stream, &mut whole_packet), Reply::Done(packet));
        assert_eq!(status(&mut unit, stream), None, "a host may read the rest with another transfer");
        assert_eq!(unit.bulk_in(Endpoint::DataIn, stream, &mut vec![0; 2048 - packet]), Reply::Done(2048 - packet));
        assert_eq!(status(&mut unit, stream), good(5));
    }
}

#[test]
fn a_status_longer_than_the_hosts_buffer_babbles() {
    let mut unit = uas(unit(""));
    send(&mut unit, 9, Cdb::of([0xE0, 0x52, 0, 0, 0, 0]));
    assert_eq!(unit.bulk_in(Endpoint::Status, 9, &mut [0; 16]), Reply::Babble(16));
}
