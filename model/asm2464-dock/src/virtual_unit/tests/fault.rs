//! Each fault of a scenario, as the host sees it.

use asm2464::firmware::BlockIndex;
use asm2464::scsi::uas::{CommandIu, StatusIu, Tag};
use asm2464::scsi::{Cdb, Command, ScsiStatus, SenseKey, XdataAddress};
use asm2464_host::bridge::{CommandEnd, CommandError, DataPhase, Endpoint, Port, TransportError, TransportErrorKind};

use super::{BOOT_LOADER, TIMEOUT, UNITS, bulk_only, port, returned, sense_of, unit};
use crate::virtual_unit::Reply;

/// Lets a fault strike the second INQUIRY. The third one is answered in any case.
fn struck(behind: &str, kind: &str) -> Result<CommandEnd, TransportErrorKind> {
    let scenario = format!("{behind}[[fault]]\nkind = \"{kind}\"\nopcode = 0x12\nnth = 2");
    let mut bridge = port(unit(&scenario)).open().unwrap();
    let mut ask = || {
        let cdb = Command::Inquiry { len: 36 }.cdb();
        bridge.transport_mut().execute(&cdb, DataPhase::In(&mut [0; 36]), TIMEOUT).map_err(|error| error.kind)
    };
    assert_eq!(ask().unwrap().transferred, 36);
    let second = ask();
    assert_eq!(ask().unwrap().transferred, 36);
    second
}

#[test]
fn over_bulk_only_each_fault_is_seen_and_recovered_from() {
    use TransportErrorKind::{PhaseError, TagMismatch, Timeout};
    for behind in ["", "speed = \"high\"\n", BOOT_LOADER] {
        let ended = |kind| struck(behind, kind).unwrap();
        assert_eq!(ended("stall").sense.unwrap().key, SenseKey::ABORTED_COMMAND);
        assert_eq!((ended("stall-status").status, ended("stall-status").transferred), (ScsiStatus::Good, 36));
        assert_eq!(ended("short-data").transferred, 18);
        let failed = |kind| struck(behind, kind).unwrap_err();
        assert!(matches!(failed("bad-tag"), TagMismatch { .. }));
        assert!(matches!(failed("phase-error"), PhaseError));
        assert!(matches!(failed("timeout"), Timeout { .. }));
    }
}

#[test]
fn a_short_e4_is_an_error_that_says_how_much_came() {
    let mut bridge = bulk_only(unit("[[fault]]\nkind = \"short-data\"\nopcode = 0xE4"));
    let short = bridge.xdata_read(XdataAddress::main(0x3000), &mut [0; 64]);
    assert!(matches!(short, Err(CommandError::ShortXdata { expected: 64, found: 32, .. })));
}

#[test]
fn data_from_the_host_that_a_fault_cuts_short_aborts_the_command() {
    for behind in UNITS {
        let mut bridge =
            port(unit(&format!("{behind}[[fault]]\nkind = \"short-data\"\nopcode = 0xE1"))).open().unwrap();
        let sense = sense_of(bridge.write_config(BlockIndex::Zero, &[0; 128]));
        assert!(sense.starts_with("B/00/00"), "{sense}");
        assert!(bridge.inquiry().is_ok());
    }
}

#[test]
fn a_unit_that_disappears_comes_back_when_the_scenario_says() {
    for behind in UNITS {
        let mut port =
            port(unit(&format!("{behind}back-after-ms = 5\n[[fault]]\nkind = \"disconnect\"\nopcode = 0xE1")));
        let before = port.attached().unwrap().state;
        let mut bridge = port.open().unwrap();
        let error = bridge.write_config(BlockIndex::Zero, &[0; 128]).unwrap_err();
        assert!(
            matches!(error, CommandError::Transport(TransportError { kind: TransportErrorKind::Disconnected, .. })),
            "{error}"
        );
        assert_eq!(returned(&mut port).state, before, "nothing was written");
        assert!(port.open().unwrap().inquiry().is_ok());
    }
}

#[test]
fn a_unit_that_disappears_for_good_stays_away() {
    let mut unit = unit("[[fault]]\nkind = \"disconnect\"");
    assert!(unit.set_alternate(1));
    let iu = CommandIu { tag: Tag(1), lun: 0, cdb: Cdb::of([0; 6]) }.to_bytes();
    assert_eq!(unit.bulk_out(Endpoint::Command, 0, &iu), Reply::Gone);
    assert_eq!(unit.bulk_in(Endpoint::Status, 1, &mut [0; 64]), Reply::Gone);
    unit.poll();
    assert!(!unit.is_attached());
    assert_eq!(unit.wake_in(), None);
}

/// Effects of a fault under UAS: the replies on the data and status pipes to one E4 of 64 bytes.
fn struck_under_uas(kind: &str) -> (Reply, Result<StatusIu, Reply>) {
    let mut unit = unit(&format!("[[fault]]\nkind = \"{kind}\""));
    assert!(unit.set_alternate(1));
    let iu = CommandIu { tag: Tag(1), lun: 0, cdb: Cdb::of([0xE4, 64, 0x50, 0x30, 0, 0]) }.to_bytes();
    unit.bulk_out(Endpoint::Command, 0, &iu);
    let data = unit.bulk_in(Endpoint::DataIn, 1, &mut [0; 64]);
    let mut buffer = [0; 64];
    let status = match unit.bulk_in(Endpoint::Status, 1, &mut buffer) {
        Reply::Done(count) => Ok(StatusIu::parse(&buffer[..count]).unwrap()),
        other => Err(other),
    };
    (data, status)
}

#[test]
fn under_uas_each_fault_shows_on_its_pipe() {
    let (data, status) = struck_under_uas("stall");
    assert_eq!(data, Reply::Stall);
    assert!(matches!(status, Ok(StatusIu::Sense { .. })));
    assert_eq!(struck_under_uas("stall-status"), (Reply::Done(64), Err(Reply::Stall)));
    assert!(matches!(struck_under_uas("short-data"), (Reply::Done(32), Ok(StatusIu::Sense { .. }))));
    assert!(matches!(struck_under_uas("bad-tag").1, Ok(StatusIu::Sense { tag: Tag(0x4001), .. })));
    assert!(matches!(struck_under_uas("phase-error").1, Ok(StatusIu::Response { code: 2, .. })));
    assert_eq!(struck_under_uas("timeout"), (Reply::Silent, Err(Reply::Silent)));
}
