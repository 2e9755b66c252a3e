//! Tests of Bulk-Only, and of each way in which a device can violate it, on a device with scripted transfers.

mod script;

use std::time::Duration;

use asm2464::scsi::bot::{CSW_LEN, CommandStatusWrapper, CswStatus};
use asm2464::scsi::{Cdb, Command, Lun, ScsiStatus, Sense};
use script::Answer::{Data, DataAndStatus, Fail, Status, WrongTag};
use script::{Answer, Script};

use super::BulkOnly;
use crate::bridge::{CommandEnd, DataPhase, PipeError, Transport, TransportError, TransportErrorKind};

const RECOVERY: [&str; 3] = ["class reset", "clear IN", "clear OUT"];
const SECOND: Duration = Duration::from_secs(1);

fn cdb() -> Cdb {
    Command::Inquiry { len: 8 }.cdb()
}

fn over(script: Script) -> BulkOnly<Script> {
    BulkOnly::new(script).unwrap()
}

/// Returns the engine's device, and checks that no transfer is in flight.
fn device_of(mut engine: BulkOnly<Script>) -> Script {
    let script = std::mem::take(&mut engine.pipes);
    assert!(script.is_quiet(), "transfers left behind: {:?}", script.in_flight);
    script
}

/// Reads 8 bytes. Returns the outcome, the bytes, and the device.
fn read8(script: Script) -> (Result<CommandEnd, TransportError>, [u8; 8], Script) {
    let mut engine = over(script);
    let mut buffer = [0; 8];
    let outcome = engine.execute(&cdb(), DataPhase::In(&mut buffer), SECOND);
    let script = device_of(engine);
    assert!(script.answers.is_empty(), "unread answers: {:?}", script.answers);
    (outcome, buffer, script)
}

fn good(transferred: usize) -> Result<CommandEnd, TransportError> {
    Ok(CommandEnd { transferred, status: ScsiStatus::Good, sense: None })
}

fn passed(residue: u32) -> Answer {
    Status(CswStatus::Passed, residue)
}

#[test]
fn a_command_moves_its_data_and_ends_good() {
    let (outcome, bytes, script) = read8(Script::new([Data(vec![7; 8]), passed(0)]));
    assert_eq!(outcome, good(8));
    assert_eq!(bytes, [7; 8]);
    assert!(script.log.is_empty());
}

#[test]
fn wrapper_data_and_status_are_in_flight_together_and_sense_data_after_them() {
    assert_eq!(read8(Script::new([Data(vec![7; 8]), passed(0)])).2.depths, [3]);
    let failed = Script::new([Data(vec![]), Status(CswStatus::Failed, 8), Data(vec![0x70]), passed(17)]);
    assert_eq!(read8(failed).2.depths, [3, 3]);
}

#[test]
fn a_command_and_its_request_sense_go_to_its_logical_unit() {
    let failed = Script::new([Data(vec![]), Status(CswStatus::Failed, 8), Data(vec![0x70]), passed(17)]);
    let mut engine = over(failed);
    let bay = Lun::try_from(3).unwrap();
    let end = engine.execute_on(bay, &cdb(), DataPhase::In(&mut [0; 8]), SECOND).unwrap();
    assert_eq!(end.status, ScsiStatus::CheckCondition);
    assert_eq!(device_of(engine).luns, [3, 3]);
}

#[test]
fn data_that_a_device_claims_after_a_stall_did_not_move() {
    let (outcome, bytes, _) = read8(Script::new([Fail(PipeError::Stall), passed(0)]));
    assert_eq!((outcome, bytes), (good(0), [0; 8]));
}

#[test]
fn a_status_that_ends_the_data_is_the_commands_status_and_no_data() {
    let mut engine = over(Script::new([DataAndStatus(vec![7; 1024]), Data(vec![9; 8]), passed(0)]));
    let mut bytes = [0; 4096];
    let outcome = engine.execute(&cdb(), DataPhase::In(&mut bytes), SECOND);
    assert_eq!(outcome, good(1024));
    assert_eq!(bytes[..1024], [7; 1024]);
    assert_eq!(engine.execute(&cdb(), DataPhase::In(&mut bytes[..8]), SECOND), good(8), "the next one stays in step");
    let script = device_of(engine);
    assert!(script.log.is_empty(), "no reset was needed: {:?}", script.log);
}

#[test]
fn data_that_end_like_another_commands_status_stay_data() {
    let other = CommandStatusWrapper { tag: 0x7777_7777, residue: 0, status: CswStatus::Passed }.to_bytes();
    let mut engine = over(Script::new([Data(other.to_vec()), passed(0)]));
    let mut bytes = [0; 64];
    assert_eq!(engine.execute(&cdb(), DataPhase::In(&mut bytes), SECOND), good(13));
    device_of(engine);
}

#[test]
fn data_that_fill_their_transfer_are_data_though_they_end_like_the_commands_status() {
    let own = CommandStatusWrapper { tag: 1, residue: 0, status: CswStatus::Passed }.to_bytes();
    let mut engine = over(Script::new([Data(own.to_vec()), passed(0)]));
    let mut bytes = [0; CSW_LEN];
    assert_eq!(engine.execute(&cdb(), DataPhase::In(&mut bytes), SECOND), good(CSW_LEN));
    assert_eq!(bytes, own);
    device_of(engine);
}

#[test]
fn a_transfer_is_waited_for_until_its_time_is_over() {
    for (timeout, is_over) in [(SECOND, false), (Duration::ZERO, true)] {
        let mut engine = over(Script { empty_reaps: 1, ..Script::new([Data(vec![7; 8]), passed(0)]) });
        let outcome = engine.execute(&cdb(), DataPhase::In(&mut [0; 8]), timeout);
        assert_eq!(matches!(outcome, Err(TransportError { kind: TransportErrorKind::Timeout { .. }, .. })), is_over);
        device_of(engine);
    }
}

#[test]
fn cancelled_transfers_are_waited_for() {
    let (outcome, _, script) = read8(Script { cancels_late: true, ..Script::new([Fail(PipeError::Timeout)]) });
    assert!(matches!(outcome, Err(TransportError { kind: TransportErrorKind::Timeout { .. }, .. })));
    assert_eq!(script.log, RECOVERY, "they are back, so the port needs no reset");
}

#[test]
fn whether_the_unit_answers_is_asked_on_its_pipes() {
    for (reset_fails, answers) in [(None, true), (Some(PipeError::Timeout), false)] {
        assert_eq!(over(Script { reset_fails, ..Script::default() }).answers_control(), answers);
    }
}

#[test]
fn a_status_that_arrives_while_its_transfer_is_cancelled_is_kept() {
    let mut script = Script::new([Fail(PipeError::Stall)]);
    script.late_status = Some((CswStatus::Passed, 8));
    let (outcome, _, script) = read8(script);
    assert_eq!(outcome, good(0));
    assert_eq!((script.log, script.depths), (vec!["clear IN"], vec![3]), "the status is not requested again");
}

#[test]
fn an_answer_that_has_arrived_counts_even_after_the_deadline() {
    let mut engine = over(Script::new([Data(vec![7; 8]), passed(0)]));
    assert_eq!(engine.execute(&cdb(), DataPhase::In(&mut [0; 8]), Duration::ZERO), good(8));
}

#[test]
fn data_of_a_failed_command_survive_its_request_sense() {
    let sense = Sense::INVALID_FIELD_IN_CDB;
    let answers = [Data(vec![7; 5]), Status(CswStatus::Failed, 3), Data(sense.to_fixed().to_vec()), passed(0)];
    let (outcome, bytes, script) = read8(Script::new(answers));
    assert_eq!(outcome, Ok(CommandEnd { transferred: 5, status: ScsiStatus::CheckCondition, sense: Some(sense) }));
    assert_eq!((bytes, script.opcodes), ([7, 7, 7, 7, 7, 0, 0, 0], vec![0x12, 0x03]));
}

#[test]
fn after_a_stall_on_the_data_the_status_may_still_stall_once() {
    let stall = || Fail(PipeError::Stall);
    let (outcome, _, script) = read8(Script::new([stall(), stall(), passed(8)]));
    assert_eq!(outcome, good(0));
    assert_eq!(script.log, ["clear IN", "clear IN"]);
}

#[test]
fn a_stalled_wrapper_and_its_data_are_sent_again() {
    let mut script = Script::new([passed(0)]);
    script.write_fails = [Some(PipeError::Stall)].into();
    let mut engine = over(script);
    assert_eq!(engine.execute(&cdb(), DataPhase::Out(&[1, 2, 3]), SECOND), good(3));
    let script = device_of(engine);
    assert_eq!((script.written, script.opcodes), (vec![1, 2, 3], vec![0x12]));
    assert_eq!(script.log, RECOVERY);
}

#[test]
fn a_device_that_takes_no_wrapper_is_recovered_and_gets_no_data() {
    let mut script = Script::new([]);
    script.write_fails = [Some(PipeError::Timeout)].into();
    let mut engine = over(script);
    let outcome = engine.execute(&cdb(), DataPhase::Out(&[1, 2, 3]), SECOND);
    assert!(matches!(outcome, Err(TransportError { kind: TransportErrorKind::Timeout { .. }, .. })));
    let script = device_of(engine);
    assert!(script.written.is_empty());
    assert_eq!(script.log, RECOVERY);
}

#[test]
fn short_data_are_counted_by_what_arrived_and_by_the_residue_whichever_is_less() {
    assert_eq!(read8(Script::new([Data(vec![7; 5]), passed(3)])).0, good(5));
    assert_eq!(read8(Script::new([Data(vec![7; 5]), passed(0)])).0, good(5));
    assert_eq!(read8(Script::new([Data(vec![7; 8]), passed(6)])).0, good(2));
}

#[test]
fn a_stall_on_data_out_is_cleared_on_the_out_pipe() {
    let mut script = Script::new([Status(CswStatus::Failed, 3), Data(Sense::INVALID_FIELD_IN_CDB.to_fixed().to_vec())]);
    script.answers.push_back(passed(0));
    script.write_fails = [None, Some(PipeError::Stall)].into();
    let mut engine = over(script);
    let outcome = engine.execute(&cdb(), DataPhase::Out(&[1, 2, 3]), SECOND).unwrap();
    assert_eq!((outcome.transferred, outcome.sense), (0, Some(Sense::INVALID_FIELD_IN_CDB)));
    assert_eq!(device_of(engine).log, ["clear OUT"]);
}

#[test]
fn a_stall_on_the_status_is_cleared_and_the_status_read_again() {
    let (outcome, _, script) = read8(Script::new([Data(vec![7; 8]), Fail(PipeError::Stall), passed(0)]));
    assert_eq!(outcome, good(8));
    assert_eq!(script.log, ["clear IN"]);
}

#[test]
fn a_stall_on_the_command_wrapper_is_recovered_and_the_wrapper_sent_again() {
    let mut script = Script::new([Data(vec![7; 8]), passed(0)]);
    script.write_fails = [Some(PipeError::Stall)].into();
    let (outcome, _, script) = read8(script);
    assert_eq!(outcome, good(8));
    assert_eq!(script.log, RECOVERY);
}

#[test]
fn an_empty_packet_before_the_status_is_skipped() {
    assert_eq!(read8(Script::new([Data(vec![7; 8]), Data(vec![]), passed(0)])).0, good(8));
}

#[test]
fn each_violation_of_the_protocol_has_its_error_and_ends_in_reset_recovery() {
    use TransportErrorKind::{BadStatus, PhaseError, Protocol, Stalled, TagMismatch, Timeout};
    type Is = fn(&TransportErrorKind) -> bool;
    let data = || Data(vec![7; 8]);
    let bad_status: Is = |kind| matches!(kind, BadStatus(_));
    let protocol: Is = |kind| matches!(kind, Protocol(_));
    let silence: Is = |kind| matches!(kind, Timeout { deadline: SECOND });
    let stall = || Fail(PipeError::Stall);
    let cases: [(&str, Vec<Answer>, Is); 13] = [
        ("a short status", vec![data(), Data(vec![1])], bad_status),
        ("a status without its signature", vec![data(), Data(vec![0xFF; CSW_LEN])], bad_status),
        ("a reserved status", vec![data(), Data(b"USBS\0\0\0\0\0\0\0\0\x09".to_vec())], bad_status),
        ("two empty packets", vec![data(), Data(vec![]), Data(vec![])], bad_status),
        ("data where the status belongs", vec![Data(vec![7; 3]), Data(vec![7; 3])], bad_status),
        ("another tag", vec![data(), WrongTag], |kind| matches!(kind, TagMismatch { expected: 1, found: 0xFE })),
        ("a residue larger than the transfer", vec![data(), passed(9)], protocol),
        ("more data than asked for", vec![Data(vec![7; 64])], protocol),
        ("a phase error", vec![data(), Status(CswStatus::PhaseError, 99)], |kind| matches!(kind, PhaseError)),
        ("silence", vec![Fail(PipeError::Timeout)], silence),
        ("silence after the data", vec![data(), Fail(PipeError::Timeout)], silence),
        ("a second stall on the status", vec![data(), stall(), stall()], |kind| matches!(kind, Stalled)),
        ("a stall on data and two on the status", vec![stall(), stall(), stall()], |kind| matches!(kind, Stalled)),
    ];
    for (what, answers, is_expected) in cases {
        let (outcome, _, script) = read8(Script::new(answers));
        assert!(is_expected(&outcome.unwrap_err().kind), "{what}");
        assert!(script.log.ends_with(&RECOVERY), "{what}: {:?}", script.log);
    }
}

#[test]
fn sense_data_of_an_impossible_length_are_no_sense_data() {
    let script = Script::new([Data(vec![]), Status(CswStatus::Failed, 8), Data(vec![0x70]), passed(17)]);
    assert_eq!(read8(script).0.unwrap().sense, None);
}

#[test]
fn a_failed_request_sense_is_not_followed_by_another() {
    let failed = |residue| Status(CswStatus::Failed, residue);
    let script = Script::new([Data(vec![]), failed(8), Data(vec![]), failed(18)]);
    assert_eq!(read8(script).0.unwrap().sense, None);
}

#[test]
fn a_device_that_does_not_take_the_class_reset_gets_its_port_reset() {
    let mut script = Script::new([Fail(PipeError::Timeout)]);
    script.reset_fails = Some(PipeError::Timeout);
    let (outcome, _, script) = read8(script);
    assert!(matches!(outcome, Err(TransportError { kind: TransportErrorKind::Timeout { .. }, .. })));
    assert_eq!(script.log, ["class reset", "port reset"]);
}

#[test]
fn a_device_that_is_gone_is_reported_as_gone_and_left_alone() {
    let (outcome, _, script) = read8(Script::new([Fail(PipeError::Disconnected)]));
    assert!(matches!(outcome, Err(TransportError { kind: TransportErrorKind::Disconnected, .. })));
    assert!(script.log.is_empty());
}

#[test]
fn later_commands_also_report_a_device_as_gone_if_its_transfers_do_not_return() {
    let mut script = Script::new([Fail(PipeError::Disconnected), Fail(PipeError::Timeout)]);
    script.keeps_cancelled = true;
    let mut engine = over(script);
    for _ in 0..3 {
        let error = engine.execute(&cdb(), DataPhase::In(&mut [0; 8]), SECOND).unwrap_err();
        assert!(error.is_gone(), "{error}");
    }
}

#[test]
fn a_device_that_leaves_during_recovery_is_reported_as_gone() {
    let mut script = Script::new([Fail(PipeError::Timeout)]);
    script.reset_fails = Some(PipeError::Stall);
    script.port_fails = Some(PipeError::Disconnected);
    assert!(matches!(read8(script).0, Err(TransportError { kind: TransportErrorKind::Disconnected, .. })));
}

#[test]
fn recovery_tries_a_command_and_resets_the_port_if_that_fails() {
    let mut engine = over(Script::new([passed(0)]));
    engine.recover().unwrap();
    assert_eq!(device_of(engine).log, RECOVERY);

    let mut engine = over(Script::new([Fail(PipeError::Timeout), passed(0)]));
    engine.recover().unwrap();
    assert_eq!(device_of(engine).log.last(), Some(&"port reset"));

    let mut engine = over(Script::new([Fail(PipeError::Disconnected)]));
    assert!(engine.recover().unwrap_err().is_gone());
    assert_eq!(device_of(engine).log, RECOVERY, "a unit that is gone has no port to reset");
}
