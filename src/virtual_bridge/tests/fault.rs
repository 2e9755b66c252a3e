//! Each fault of a scenario, as the host sees it.

use super::{UNITS, bulk_only, port, returned, unit};
use crate::bridge::{CommandError, Endpoint, Port, TransportError, TransportErrorKind};
use crate::firmware::{BlockIndex, BridgeState};
use crate::scsi::uas::{CommandIu, StatusIu, Tag};
use crate::scsi::{Cdb, XdataAddress};
use crate::virtual_bridge::{BusEvent, InReply, OutReply};

/// Lets a fault strike the second E4. The third one is answered in any case.
fn struck(behind: &str, kind: &str) -> Result<(), CommandError> {
    let scenario = format!("{behind}[[fault]]\nkind = \"{kind}\"\nopcode = 0xE4\nnth = 2");
    let mut bridge = bulk_only(unit(&scenario));
    let mut read = |bytes: &mut [u8]| bridge.xdata_read(XdataAddress::main(0x3000), bytes);
    read(&mut [0; 64]).unwrap();
    let second = read(&mut [0; 64]);
    read(&mut [0; 64]).unwrap();
    second
}

#[test]
fn a_stall_in_the_data_aborts_the_command() {
    for behind in UNITS {
        assert_eq!(struck(behind, "stall").unwrap_err().sense().unwrap().key, crate::scsi::SenseKey::ABORTED_COMMAND);
    }
}

#[test]
fn a_stall_before_the_status_costs_nothing_but_a_cleared_halt() {
    for behind in UNITS {
        struck(behind, "stall-status").unwrap();
    }
}

#[test]
fn short_data_is_seen_by_its_residue() {
    for behind in UNITS {
        assert!(matches!(struck(behind, "short-data"), Err(CommandError::ShortXdata { expected: 64, found: 32, .. })));
    }
}

#[test]
fn a_bad_tag_is_seen_and_recovered_from() {
    for behind in UNITS {
        let error = struck(behind, "bad-tag").unwrap_err();
        assert!(
            matches!(
                error,
                CommandError::Transport(TransportError { kind: TransportErrorKind::TagMismatch { .. }, .. })
            ),
            "{error}"
        );
    }
}

#[test]
fn a_phase_error_is_seen_and_recovered_from() {
    for behind in UNITS {
        let error = struck(behind, "phase-error").unwrap_err();
        assert!(
            matches!(error, CommandError::Transport(TransportError { kind: TransportErrorKind::PhaseError, .. })),
            "{error}"
        );
    }
}

#[test]
fn a_command_that_is_never_answered_times_out_and_is_recovered_from() {
    for behind in UNITS {
        let error = struck(behind, "timeout").unwrap_err();
        assert!(
            matches!(error, CommandError::Transport(TransportError { kind: TransportErrorKind::Timeout { .. }, .. })),
            "{error}"
        );
    }
}

#[test]
fn a_unit_that_disappears_comes_back_when_the_scenario_says() {
    for behind in UNITS {
        let mut port =
            port(unit(&format!("{behind}back-after-ms = 5\n[[fault]]\nkind = \"disconnect\"\nopcode = 0xE1")));
        let mut bridge = port.open().unwrap();
        let error = bridge.write_config(BlockIndex::Zero, &[0; 128]).unwrap_err();
        assert!(
            matches!(error, CommandError::Transport(TransportError { kind: TransportErrorKind::Disconnected, .. })),
            "{error}"
        );
        assert_eq!(returned(&mut port).state, BridgeState::Vendor, "nothing was written");
        assert!(port.open().unwrap().inquiry().is_ok());
    }
}

#[test]
fn a_unit_that_disappears_for_good_says_so_once() {
    for behind in UNITS {
        let mut unit = unit(&format!("{behind}[[fault]]\nkind = \"disconnect\""));
        unit.set_alternate(1).unwrap();
        let iu = CommandIu { tag: Tag(1), lun: 0, cdb: Cdb::of([0; 6]) }.to_bytes();
        assert_eq!(unit.bulk_out(Endpoint::Command, 0, &iu), OutReply::Gone);
        assert_eq!(unit.bulk_in(Endpoint::Status, 1, &mut [0; 64]), InReply::Gone);
        assert_eq!([unit.poll_event(), unit.poll_event()], [Some(BusEvent::Detached), None]);
        assert_eq!(unit.wake_in(), None);
    }
}

/// Effects of a fault under UAS: the replies on the data and status pipes to one E4 of 64 bytes.
fn struck_under_uas(behind: &str, kind: &str) -> (InReply, Result<StatusIu, InReply>) {
    let mut unit = unit(&format!("{behind}[[fault]]\nkind = \"{kind}\""));
    unit.set_alternate(1).unwrap();
    let iu = CommandIu { tag: Tag(1), lun: 0, cdb: Cdb::of([0xE4, 64, 0x50, 0x30, 0, 0]) }.to_bytes();
    unit.bulk_out(Endpoint::Command, 0, &iu);
    let data = unit.bulk_in(Endpoint::DataIn, 1, &mut [0; 64]);
    let mut buffer = [0; 64];
    let status = match unit.bulk_in(Endpoint::Status, 1, &mut buffer) {
        InReply::Data(count) => Ok(StatusIu::parse(&buffer[..count]).unwrap()),
        other => Err(other),
    };
    (data, status)
}

#[test]
fn under_uas_each_fault_shows_on_its_pipe() {
    for behind in UNITS {
        let (data, status) = struck_under_uas(behind, "stall");
        assert_eq!(data, InReply::Stall);
        assert!(matches!(status, Ok(StatusIu::Sense { .. })));
        assert_eq!(struck_under_uas(behind, "stall-status"), (InReply::Data(64), Err(InReply::Stall)));
        assert!(matches!(struck_under_uas(behind, "short-data"), (InReply::Data(32), Ok(StatusIu::Sense { .. }))));
        assert!(matches!(struck_under_uas(behind, "bad-tag").1, Ok(StatusIu::Sense { tag: Tag(0x4001), .. })));
        assert!(matches!(struck_under_uas(behind, "phase-error").1, Ok(StatusIu::Response { code: 2, .. })));
        assert_eq!(struck_under_uas(behind, "timeout"), (InReply::Silent, Err(InReply::Silent)));
    }
}
