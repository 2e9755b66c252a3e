//! UAS against the virtual unit, which follows the protocol, and against a device that does not.

mod liar;

use std::time::Duration;

use asm2464::firmware::BridgeState;
use asm2464::scsi::uas::{StatusIu, Tag};
use asm2464::scsi::{Command, Lun, ScsiStatus, Sense, XdataAddress};
use asm2464_dock::virtual_unit::{Scenario, SharedUnit, VirtualPipes, VirtualUnit};
use asm2464_host::bridge::{
    Bridge, CommandEnd, CommandError, DataPhase, Job, JobData, PipeError, Transport, TransportError,
    TransportErrorKind, TransportKind, Uas, Workload,
};
use liar::{Liar, Lies};

const SECOND: Duration = Duration::from_secs(1);
/// Time limit for devices that never answer.
const SHORT: Duration = Duration::from_millis(30);

fn unit(scenario: &str) -> SharedUnit {
    let scenario = Scenario::parse(scenario).unwrap();
    SharedUnit::new(VirtualUnit::in_memory(scenario, b"uas", None).unwrap())
}

fn engine(unit: &SharedUnit) -> Uas<VirtualPipes> {
    Uas::new(VirtualPipes::open(unit).unwrap().with_uas().unwrap()).unwrap()
}

/// Reads `count` pieces of the data buffer's window, and checks that each is the requested piece.
struct ReadWindow {
    left: u16,
    sent: u16,
    in_flight: u16,
    deepest: u16,
    wrong: usize,
}

impl ReadWindow {
    const fn of(count: u16) -> Self {
        Self { left: count, sent: 0, in_flight: 0, deepest: 0, wrong: 0 }
    }
}

impl Workload for ReadWindow {
    fn buffer_len(&self) -> usize {
        64
    }

    fn next(&mut self, _buffer: &mut [u8]) -> Option<Job> {
        self.left = self.left.checked_sub(1)?;
        let piece = self.sent % 64;
        self.sent += 1;
        self.in_flight += 1;
        self.deepest = self.deepest.max(self.in_flight);
        let command = Command::XdataRead { from: XdataAddress::main(0xF000 + piece * 64), len: 64 };
        Some(Job { lun: Lun::ZERO, cdb: command.cdb(), data: JobData::In(64), id: u64::from(piece) })
    }

    fn complete(&mut self, job: &Job, completion: &CommandEnd, data: &[u8], _elapsed: Duration) -> bool {
        self.in_flight -= 1;
        let expected = [job.id as u8; 64];
        self.wrong += usize::from(completion.status != ScsiStatus::Good || data != expected);
        true
    }
}

fn fill_window(unit: &SharedUnit) {
    // The window shows one of the buffer's pages of 4 KiB, so all pages hold the same.
    for (at, byte) in unit.lock().data_buffer_mut().iter_mut().enumerate() {
        *byte = (at % 4096 / 64) as u8;
    }
}

#[test]
fn commands_in_flight_each_get_their_own_data_with_streams_and_without() {
    for (speed, kind) in [("super", TransportKind::UasStreams), ("high", TransportKind::Uas)] {
        let unit = unit(&format!("speed = \"{speed}\"\n"));
        fill_window(&unit);
        let mut engine = engine(&unit);
        assert_eq!(engine.kind(), kind);
        let mut reads = ReadWindow::of(1000);
        engine.run(&mut reads, 31, SECOND).unwrap();
        assert_eq!((reads.sent, reads.wrong, reads.deepest), (1000, 0, 31));
    }
}

#[test]
fn a_refused_command_returns_its_sense_data_and_its_data_transfer() {
    let unit = unit("");
    let mut engine = engine(&unit);
    let mut buffer = [0; 128];
    let cdb = asm2464::scsi::Cdb::new(&[0xE0, 0x77, 0, 0, 0, 0]).unwrap();
    let completion = engine.execute(&cdb, DataPhase::In(&mut buffer), SECOND).unwrap();
    assert_eq!((completion.transferred, completion.sense), (0, Some(Sense::INVALID_FIELD_IN_CDB)));
    Bridge::new(Box::new(engine), BridgeState::Vendor).inquiry().unwrap();
}

#[test]
fn a_command_goes_to_its_logical_unit() {
    let good = StatusIu::Sense { tag: Tag(1), status: ScsiStatus::Good, sense: Vec::new() };
    let mut engine = Uas::new(Liar::new(Lies { status: Some(good.to_bytes()), ..Lies::default() })).unwrap();
    let bay = Lun::try_from(3).unwrap();
    engine.execute_on(bay, &Command::TestUnitReady.cdb(), DataPhase::None, SECOND).unwrap();
    assert_eq!(engine.pipes().luns(), [3]);
}

#[test]
fn each_fault_of_the_wire_ends_in_an_error_or_a_status_and_the_next_command_works() {
    type IsExpected = fn(&CommandError) -> bool;
    fn is_of(error: &CommandError, is_expected: fn(&TransportErrorKind) -> bool) -> bool {
        matches!(error, CommandError::Transport(TransportError { kind, .. }) if is_expected(kind))
    }
    let faults: [(&str, IsExpected); 6] = [
        ("stall", |error| matches!(error, CommandError::CheckCondition { .. })),
        ("short-data", |error| matches!(error, CommandError::Short { .. })),
        ("bad-tag", |error| {
            is_of(error, |kind| {
                matches!(kind, TransportErrorKind::TagMismatch { .. } | TransportErrorKind::Protocol(_))
            })
        }),
        ("phase-error", |error| is_of(error, |kind| matches!(kind, TransportErrorKind::Protocol(_)))),
        ("stall-status", |error| is_of(error, |kind| matches!(kind, TransportErrorKind::Stalled))),
        ("timeout", |error| is_of(error, |kind| matches!(kind, TransportErrorKind::Timeout { .. }))),
    ];
    for speed in ["super", "high"] {
        for (kind, is_expected) in faults {
            let scenario = format!("speed = \"{speed}\"\n[[fault]]\nkind = \"{kind}\"\nopcode = 0xE0\n");
            let mut bridge = Bridge::new(Box::new(engine(&unit(&scenario))), BridgeState::Vendor);
            let error = bridge.read_config(asm2464::firmware::BlockIndex::Zero).unwrap_err();
            assert!(is_expected(&error), "{speed} {kind}: {error:?}");
            bridge.inquiry().unwrap();
        }
    }
}

#[test]
fn a_stall_under_many_commands_ends_all_of_them_and_the_next_ones_work() {
    let unit = unit("[[fault]]\nkind = \"stall\"\nopcode = 0xE4\nnth = 40\n");
    fill_window(&unit);
    let mut engine = engine(&unit);
    let error = engine.run(&mut ReadWindow::of(100), 31, SECOND).unwrap_err();
    assert!(matches!(error, TransportError { kind: TransportErrorKind::Stalled, .. }), "{error}");
    let mut reads = ReadWindow::of(100);
    engine.run(&mut reads, 31, SECOND).unwrap();
    assert_eq!((reads.sent, reads.wrong), (100, 0));
}

#[test]
fn a_unit_that_leaves_during_a_command_is_reported_as_gone() {
    let unit = unit("[[fault]]\nkind = \"disconnect\"\nopcode = 0xE0\n");
    let mut engine = engine(&unit);
    let mut data = [0; 128];
    let cdb = Command::ConfigRead(asm2464::firmware::BlockIndex::Zero).cdb();
    let error = engine.execute(&cdb, DataPhase::In(&mut data), SECOND).unwrap_err();
    assert!(matches!(error, TransportError { kind: TransportErrorKind::Disconnected, .. }), "{error}");
}

#[test]
fn the_boot_loader_has_no_uas() {
    let unit = unit("state = \"boot-loader\"\n");
    assert!(VirtualPipes::open(&unit).unwrap().with_uas().is_none());
}

/// Sends one INQUIRY of 36 bytes to a device that answers as planned.
fn inquire(plan: Lies) -> (Result<CommandEnd, TransportError>, Uas<Liar>) {
    let keeps = plan.keeps_cancelled;
    let mut engine = Uas::new(Liar::new(plan)).unwrap();
    let mut data = [0; 36];
    let outcome = engine.execute(&Command::Inquiry { len: 36 }.cdb(), DataPhase::In(&mut data), SHORT);
    assert!(keeps || engine.pipes().in_flight() == 0, "transfers left behind");
    (outcome, engine)
}

fn is_timeout(outcome: &Result<CommandEnd, TransportError>) -> bool {
    matches!(outcome, Err(TransportError { kind: TransportErrorKind::Timeout { deadline: SHORT }, .. }))
}

fn ready(tag: u16) -> Vec<u8> {
    StatusIu::ReadReady(Tag(tag)).to_bytes()
}

fn good(tag: u16) -> Vec<u8> {
    StatusIu::Sense { tag: Tag(tag), status: ScsiStatus::Good, sense: Vec::new() }.to_bytes()
}

#[test]
fn an_invalid_status_ends_in_an_error_and_a_quiet_device() {
    let mut claims_too_much = good(1);
    claims_too_much[14] = 0xFF;
    let lies = [vec![], vec![3], vec![0xFF; 16], good(1)[..15].to_vec(), claims_too_much];
    for status in lies {
        let (outcome, engine) = inquire(Lies { status: Some(status), ..Lies::default() });
        assert!(matches!(outcome, Err(TransportError { kind: TransportErrorKind::Protocol(_), .. })), "{outcome:?}");
        assert_eq!(engine.pipes().resets(), 1);
    }
}

#[test]
fn a_status_for_a_tag_never_sent_names_both_tags() {
    let (outcome, _) = inquire(Lies { status: Some(good(7)), ..Lies::default() });
    assert!(
        matches!(outcome, Err(TransportError { kind: TransportErrorKind::TagMismatch { expected: 1, found: 7 }, .. })),
        "{outcome:?}"
    );
    let (outcome, _) = inquire(Lies { status: Some(good(7)), streams: 0, ..Lies::default() });
    assert!(outcome.unwrap_err().to_string().contains("tag 0x7, which was not sent"));
}

#[test]
fn a_write_ready_iu_for_a_command_without_data_out_is_an_error() {
    let write_ready = StatusIu::WriteReady(Tag(1)).to_bytes();
    let (outcome, _) = inquire(Lies { status: Some(write_ready), streams: 0, ..Lies::default() });
    assert!(matches!(outcome, Err(TransportError { kind: TransportErrorKind::Protocol(_), .. })), "{outcome:?}");
}

#[test]
fn a_response_in_place_of_a_status_says_what_the_unit_refuses() {
    let message = |code| {
        let response = StatusIu::Response { tag: Tag(1), code }.to_bytes();
        inquire(Lies { status: Some(response), ..Lies::default() }).0.unwrap_err().to_string()
    };
    assert!(message(0x0A).contains("overlapped tag"));
    for code in [0x00, 0x02, 0x04, 0x05, 0x08, 0x09] {
        assert!(!message(code).contains("does not know"), "{code:#04x} is a code of the standard");
    }
}

#[test]
fn the_status_of_the_last_command_is_the_last_that_is_asked_for() {
    let (outcome, engine) = inquire(Lies {
        status: Some(ready(1)),
        data: Some(vec![7; 36]),
        further: [good(1)].into(),
        streams: 0,
        ..Lies::default()
    });
    assert_eq!((outcome.unwrap().transferred, engine.pipes().resets()), (36, 0));
}

#[test]
fn what_arrives_or_is_cancelled_within_its_time_is_waited_for() {
    let late = |data| Lies { is_late: true, status: Some(good(1)), data, ..Lies::default() };
    for (data, moved) in [(Some(vec![7; 36]), 36), (None, 0)] {
        let (outcome, engine) = inquire(late(data));
        assert_eq!((outcome.unwrap().transferred, engine.pipes().resets()), (moved, 0));
    }
    let (outcome, engine) = inquire(Lies { is_late: true, ..Lies::default() });
    assert!(is_timeout(&outcome), "{outcome:?}");
    assert_eq!(engine.pipes().resets(), 1);
}

#[test]
fn a_stalled_data_pipe_of_a_single_command_is_cleared_and_its_status_says_why() {
    let refused = StatusIu::Sense { tag: Tag(1), status: ScsiStatus::CheckCondition, sense: Vec::new() };
    let (outcome, engine) =
        inquire(Lies { stalls: true, is_late: true, status: Some(refused.to_bytes()), ..Lies::default() });
    assert_eq!((outcome.unwrap().status, engine.pipes().resets()), (ScsiStatus::CheckCondition, 0));
}

#[test]
fn a_status_for_a_command_that_the_device_did_not_take_is_no_success() {
    let (outcome, mut engine) = inquire(Lies { takes_nothing: true, status: Some(good(1)), ..Lies::default() });
    assert!(is_timeout(&outcome), "{outcome:?}");
    assert_eq!((engine.pipes().resets(), engine.answers_control()), (1, false));
}

#[test]
fn transfers_that_never_return_end_the_command_and_no_other_begins() {
    for status in [None, Some(good(1))] {
        let (outcome, mut engine) = inquire(Lies { keeps_cancelled: true, status, ..Lies::default() });
        assert!(is_timeout(&outcome), "{outcome:?}");
        let out = engine.pipes().in_flight();
        let error = engine.execute(&Command::TestUnitReady.cdb(), DataPhase::None, SHORT).unwrap_err();
        assert!(error.to_string().contains("still in flight"), "{error}");
        assert_eq!(engine.pipes().in_flight(), out);
    }
}

#[test]
fn a_unit_that_goes_during_a_port_reset_is_reported_as_gone_and_other_failures_as_they_are() {
    for (resetting, is_gone) in [(PipeError::Disconnected, true), (PipeError::Other("no".to_owned()), false)] {
        let (outcome, _) = inquire(Lies { resetting: Some(resetting), ..Lies::default() });
        assert_eq!((outcome.as_ref().unwrap_err().is_gone(), is_timeout(&outcome)), (is_gone, !is_gone), "{outcome:?}");
    }
}

#[test]
fn a_recovery_resets_the_port_of_a_unit_that_is_there_and_tries_again() {
    for (submitting, resets) in [(None, 3), (Some(PipeError::Disconnected), 0)] {
        let mut engine = Uas::new(Liar::new(Lies { submitting, ..Lies::default() })).unwrap();
        assert_eq!(engine.recover().unwrap_err().is_gone(), resets == 0);
        // Each command without an answer costs a reset, too.
        assert_eq!(engine.pipes().resets(), resets);
    }
}

#[test]
fn a_workload_that_wants_no_more_gets_no_more_however_its_answer_arrives() {
    for (is_known, timeout) in [(false, SECOND), (false, Duration::ZERO), (true, SECOND)] {
        let plan = Lies { data: Some(vec![7; 36]), status: Some(good(1)), is_known, ..Lies::default() };
        let mut engine = Uas::new(Liar::new(plan)).unwrap();
        let mut inquiries = Inquiries { wants: 1, ..Inquiries::of(2) };
        engine.run(&mut inquiries, 1, timeout).unwrap();
        assert_eq!((inquiries.left, inquiries.ended.len()), (1, 1), "{is_known} {timeout:?}");
    }
}

#[test]
fn data_that_never_come_after_a_good_status_count_as_short() {
    let (outcome, _) = inquire(Lies { status: Some(good(1)), ..Lies::default() });
    assert_eq!(outcome, Ok(CommandEnd { transferred: 0, status: ScsiStatus::Good, sense: None }));
}

/// A number of INQUIRYs, and their results. Wants no more after `wants` of them.
struct Inquiries {
    left: usize,
    wants: usize,
    ended: Vec<CommandEnd>,
}

impl Inquiries {
    const fn of(count: usize) -> Self {
        Self { left: count, wants: count, ended: Vec::new() }
    }
}

impl Workload for Inquiries {
    fn buffer_len(&self) -> usize {
        36
    }

    fn next(&mut self, _buffer: &mut [u8]) -> Option<Job> {
        self.left = self.left.checked_sub(1)?;
        Some(Job { lun: Lun::ZERO, cdb: Command::Inquiry { len: 36 }.cdb(), data: JobData::In(36), id: 0 })
    }

    fn complete(&mut self, _job: &Job, completion: &CommandEnd, _data: &[u8], _elapsed: Duration) -> bool {
        self.ended.push(*completion);
        self.ended.len() < self.wants
    }
}

#[test]
fn if_one_cancel_ends_an_endpoints_transfers_no_other_command_ends_good_without_its_data() {
    let refused = StatusIu::Sense { tag: Tag(1), status: ScsiStatus::CheckCondition, sense: Vec::new() };
    let plan = Lies {
        status: Some(ready(1)),
        further: [ready(2), refused.to_bytes(), good(2)].into(),
        cancels_endpoints: true,
        streams: 0,
        ..Lies::default()
    };
    let mut engine = Uas::new(Liar::new(plan)).unwrap();
    let mut inquiries = Inquiries::of(2);
    let error = engine.run(&mut inquiries, 2, SECOND).unwrap_err();
    assert!(error.to_string().contains("together with another command"), "{error}");
    assert_eq!(inquiries.ended.iter().map(|ended| ended.status).collect::<Vec<_>>(), [ScsiStatus::CheckCondition]);
    assert_eq!((engine.pipes().in_flight(), engine.pipes().resets()), (0, 1));
}

#[test]
fn an_answer_that_has_arrived_counts_even_after_the_deadline() {
    let plan = Lies { data: Some(vec![7; 36]), status: Some(good(1)), ..Lies::default() };
    let mut engine = Uas::new(Liar::new(plan)).unwrap();
    let mut data = [0; 36];
    let outcome = engine.execute(&Command::Inquiry { len: 36 }.cdb(), DataPhase::In(&mut data), Duration::ZERO);
    assert_eq!((outcome.unwrap().transferred, data), (36, [7; 36]));
}

#[test]
fn more_data_than_asked_for_is_an_error() {
    let (outcome, _) = inquire(Lies { data: Some(vec![0; 37]), ..Lies::default() });
    assert!(matches!(outcome, Err(TransportError { kind: TransportErrorKind::Protocol(_), .. })), "{outcome:?}");
}

#[test]
fn an_inquiry_of_one_byte_is_a_short_answer() {
    let plan = Lies { data: Some(vec![0]), status: Some(good(1)), ..Lies::default() };
    assert_eq!(inquire(plan).0.unwrap().transferred, 1);
}

#[test]
fn a_device_that_never_answers_is_reset_and_gives_every_transfer_back() {
    let (outcome, engine) = inquire(Lies::default());
    assert!(is_timeout(&outcome), "{outcome:?}");
    assert_eq!(engine.pipes().resets(), 1);
}

#[test]
fn after_a_port_reset_fewer_streams_than_before_are_enough() {
    for (streams, depth) in [(32, 31), (4, 3), (2, 1), (1, 1)] {
        let mut engine = Uas::new(Liar::new(Lies { streams_after_reset: streams, ..Lies::default() })).unwrap();
        assert_eq!(engine.max_depth(), 31);
        // The device answers nothing, so its port is reset. Later commands use the remaining streams.
        assert!(engine.recover().is_err());
        assert!(engine.pipes().resets() > 0);
        assert_eq!((engine.kind(), engine.max_depth()), (TransportKind::UasStreams, depth));
    }
}
