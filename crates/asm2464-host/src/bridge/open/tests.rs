//! Tests of each request, byte by byte as the open firmware expects it, on a unit with scripted answers.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::tlp::CompletionStatus;
use asm2464::{Bdf, Coded as _};

use super::queue::BULK_LEN;
use super::*;
use crate::bridge::{Endpoint, PipeError, Pipes, Reaped, SETUP_LEN, TransferEnd, TransferId, control_data_len};
use crate::pcie::Link;

/// What the host sent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sent {
    /// A control request, with its data to the unit.
    Control([u8; SETUP_LEN], Vec<u8>),
    Out(Vec<u8>),
    In(usize),
    ClearHalt(Endpoint),
}

#[derive(Debug, Default)]
struct Log {
    /// Results of the next transfers: data to the host, or a failure. Without one a transfer succeeds with zeros.
    answers: VecDeque<Result<Vec<u8>, PipeError>>,
    sent: Vec<Sent>,
    most_in_flight: usize,
    /// Whether transfers return newest first.
    is_reversed: bool,
    /// Transfers return only to a host that waits for them.
    is_late: bool,
    /// Cancelled transfers don't return for now.
    keeps_cancelled: bool,
}

/// A unit that moves the oldest transfer each time one is reaped.
#[derive(Debug, Default)]
struct Script {
    log: Arc<Mutex<Log>>,
    buffers: Vec<Vec<u8>>,
    in_flight: VecDeque<(TransferId, Option<(Endpoint, usize)>)>,
    cancelled: VecDeque<TransferId>,
}

impl Script {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    fn submitted(&mut self, transfer: TransferId, bulk: Option<(Endpoint, usize)>, sent: Sent) {
        self.in_flight.push_back((transfer, bulk));
        let depth = self.in_flight.len();
        let mut log = self.log();
        log.most_in_flight = log.most_in_flight.max(depth);
        log.sent.push(sent);
    }
}

impl Pipes for Script {
    fn streams(&self) -> u16 {
        0
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        self.buffers.push(vec![0; capacity]);
        Ok(TransferId(self.buffers.len() - 1))
    }

    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError> {
        let buffer = &mut self.buffers[transfer.0];
        buffer.resize(buffer.len().max(capacity), 0);
        Ok(())
    }

    fn buffer(&mut self, transfer: TransferId) -> &mut [u8] {
        &mut self.buffers[transfer.0]
    }

    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, _: u16, len: usize) -> Result<(), PipeError> {
        let is_out = endpoint == Endpoint::DataOut;
        let sent = if is_out { Sent::Out(self.buffers[transfer.0][..len].to_vec()) } else { Sent::In(len) };
        self.submitted(transfer, Some((endpoint, len)), sent);
        Ok(())
    }

    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        if self.log().is_late && timeout.is_zero() {
            return Ok(None);
        }
        if !self.cancelled.is_empty() && self.log().keeps_cancelled {
            return Ok(None);
        }
        if let Some(transfer) = self.cancelled.pop_front() {
            return Ok(Some(Reaped { transfer, moved: 0, end: TransferEnd::Cancelled }));
        }
        if self.log().is_reversed {
            self.in_flight.make_contiguous().reverse();
        }
        let Some(&(transfer, bulk)) = self.in_flight.front() else { return Err(PipeError::Timeout) };
        let buffer = &mut self.buffers[transfer.0];
        let is_read = bulk.map_or(buffer[0] & 0x80 != 0, |(endpoint, _)| endpoint == Endpoint::DataIn);
        let (start, len) = match bulk {
            Some((_, len)) => (0, len),
            None => (SETUP_LEN, control_data_len(buffer).unwrap()),
        };
        let answer = self.log.lock().unwrap().answers.pop_front();
        let (moved, end) = match answer {
            Some(Err(PipeError::Timeout)) => return Ok(None),
            Some(Err(error)) => (0, TransferEnd::Failed(error)),
            Some(Ok(data)) if is_read => {
                buffer[start..start + data.len()].copy_from_slice(&data);
                (data.len(), TransferEnd::Completed)
            }
            _ => (len, TransferEnd::Completed),
        };
        self.in_flight.pop_front();
        Ok(Some(Reaped { transfer, moved, end }))
    }

    fn cancel(&mut self, transfer: TransferId) {
        if let Some(at) = self.in_flight.iter().position(|(id, _)| *id == transfer) {
            self.in_flight.remove(at);
            self.cancelled.push_back(transfer);
        }
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        self.log().sent.push(Sent::ClearHalt(endpoint));
        Ok(())
    }

    fn mass_storage_reset(&mut self, _: Duration) -> Result<(), PipeError> {
        Err(PipeError::Stall)
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        Ok(())
    }
}

impl ControlPipes for Script {
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError> {
        let buffer = &self.buffers[transfer.0];
        let setup: [u8; SETUP_LEN] = buffer[..SETUP_LEN].try_into().unwrap();
        let len = if setup[0] & 0x80 == 0 { control_data_len(buffer).unwrap() } else { 0 };
        let data = buffer[SETUP_LEN..SETUP_LEN + len].to_vec();
        self.submitted(transfer, None, Sent::Control(setup, data));
        Ok(())
    }
}

fn unit_at(speed: BusSpeed, answers: Vec<Result<Vec<u8>, PipeError>>) -> (OpenBridge, Arc<Mutex<Log>>) {
    let script = Script::default();
    let log = script.log.clone();
    log.lock().unwrap().answers = answers.into();
    (OpenBridge::new(Box::new(script), speed), log)
}

fn unit(answers: Vec<Result<Vec<u8>, PipeError>>) -> (OpenBridge, Arc<Mutex<Log>>) {
    unit_at(BusSpeed::Super, answers)
}

fn sent(log: &Arc<Mutex<Log>>) -> Vec<Sent> {
    std::mem::take(&mut log.lock().unwrap().sent)
}

fn control(setup: [u8; SETUP_LEN], data: &[u8]) -> Sent {
    Sent::Control(setup, data.to_vec())
}

const IDLE: u8 = 0;
const BUSY: u8 = 2;
const ASK_SRAM: [u8; SETUP_LEN] = [0xC0, 0xE4, 0x50, 0xC4, 0, 0, 1, 0];

#[test]
fn e4_names_address_page_and_length() {
    let (mut unit, log) = unit(vec![Ok(vec![1, 2, 3])]);
    let mut found = [0; 3];
    unit.xdata_read(XdataAddress::main(0x07F0), &mut found).unwrap();
    assert_eq!((found, sent(&log)), ([1, 2, 3], vec![control([0xC0, 0xE4, 0xF0, 0x07, 0, 0, 3, 0], &[])]));
    let other = XdataAddress { page: asm2464::scsi::XdataPage::Other, addr: 0x1234 };
    unit.xdata_read(other, &mut [0; 1]).unwrap();
    assert_eq!(sent(&log), [control([0xC0, 0xE4, 0x34, 0x12, 0, 1, 1, 0], &[])]);
}

#[test]
fn a_long_e4_goes_in_pieces_of_255_bytes_at_superspeed_and_of_64_at_high_speed() {
    let at_20_gbit = BusSpeed::of_sysfs("20000").unwrap();
    let unknown = BusSpeed::UNKNOWN.or_proved_by_packets([1024]);
    for (speed, most) in [(BusSpeed::Super, 255), (at_20_gbit, 255), (unknown, 255), (BusSpeed::High, 64)] {
        let whole: Vec<u8> = (0..700u32).map(|at| (at % 251) as u8).collect();
        let (mut unit, log) = unit_at(speed, whole.chunks(most).map(|piece| Ok(piece.to_vec())).collect());
        let mut found = vec![0; whole.len()];
        unit.xdata_read(XdataAddress::main(0xF000), &mut found).unwrap();
        assert_eq!(found, whole);
        let lens: Vec<usize> = whole.chunks(most).map(<[u8]>::len).collect();
        for (index, (request, len)) in sent(&log).into_iter().zip(lens).enumerate() {
            let [low, high] = (0xF000 + (index * most) as u16).to_le_bytes();
            assert_eq!(request, control([0xC0, 0xE4, low, high, 0, 0, len as u8, 0], &[]));
        }
        assert!(log.lock().unwrap().most_in_flight > 1, "many are in flight");
    }
}

#[test]
fn an_e4_past_the_end_of_its_page_is_not_sent() {
    let (mut unit, log) = unit(vec![]);
    let error = unit.xdata_read(XdataAddress::main(0xFFFF), &mut [0; 2]).unwrap_err();
    assert!(matches!(error, ControlError::Length { .. }), "{error}");
    assert_eq!(sent(&log), []);
}

#[test]
fn a_build_that_gives_less_to_an_e4_is_asked_for_the_rest_and_from_then_on_for_that_much() {
    let whole: Vec<u8> = (0..600u32).map(|at| (at % 251) as u8).collect();
    let parts = [0..64, 255..319, 510..574, 574..600, 319..383, 383..447, 447..510, 64..128, 128..192, 192..255];
    let answers = parts.iter().map(|part| Ok(whole[part.clone()].to_vec()));
    let last = [Ok(vec![9; 64]), Ok(vec![9; 6])];
    let (mut unit, log) = unit([Ok(vec![])].into_iter().chain(answers).chain(last).collect());
    assert_eq!(unit.xdata_read_max(), 255);
    let mut found = vec![0; whole.len()];
    unit.xdata_exchange(&[(XdataAddress::main(0xC8A9), 1)], XdataAddress::main(0xF000), &mut found).unwrap();
    assert_eq!(found, whole);
    assert_eq!(unit.xdata_read_max(), 64);
    assert_eq!(written(&log), [(0xC8A9, 1)], "the write is not repeated");
    unit.xdata_read(XdataAddress::main(0xF000), &mut [0; 70]).unwrap();
    let e4 = |low, len| control([0xC0, 0xE4, low, 0xF0, 0, 0, len, 0], &[]);
    assert_eq!(sent(&log), [e4(0, 64), e4(64, 6)]);
}

#[test]
fn an_e4_that_returns_less_than_an_earlier_one_has_lost_bytes() {
    let (mut unit, _) = unit(vec![Ok(vec![7; 255]), Ok(vec![7; 100])]);
    unit.xdata_read(XdataAddress::main(0xF000), &mut [0; 255]).unwrap();
    let error = unit.xdata_read(XdataAddress::main(0xF000), &mut [0; 255]).unwrap_err();
    assert_eq!(error.to_string(), "E4 (read XDATA 0xF000) moved 100 bytes, expected 255");
    assert_eq!(unit.xdata_read_max(), 255);
}

#[test]
fn an_e4_that_returns_nothing_or_a_request_that_returns_less_says_how_much() {
    let (mut unit, _) = unit(vec![Ok(vec![7; 255]), Ok(vec![]), Ok(vec![7; 3]), Ok(vec![0; 7])]);
    let error = unit.xdata_read(XdataAddress::main(0xF000), &mut [0; 510]).unwrap_err();
    assert_eq!(error.to_string(), "E4 (read XDATA 0xF0FF) moved 0 bytes, expected 255");
    let four = OpenCommand::XdataRead { from: XdataAddress::main(0xF000), len: 4 };
    let error = unit.request(four, &mut [0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "E4 (read XDATA 0xF000) moved 3 bytes, expected 4");
    let error = unit.request(OpenCommand::Completion, &mut [0; 8]).unwrap_err();
    assert_eq!(error.to_string(), "F0 (completion) moved 7 bytes, expected 8");
}

#[test]
fn e5_names_address_value_and_page() {
    let (mut unit, log) = unit(vec![]);
    unit.xdata_write(XdataAddress::main(0xC8A9), 0x5A).unwrap();
    let other = XdataAddress { page: asm2464::scsi::XdataPage::Other, addr: 0x0001 };
    unit.xdata_write(other, 0xFF).unwrap();
    let expected =
        [control([0x40, 0xE5, 0xA9, 0xC8, 0x5A, 0, 0, 0], &[]), control([0x40, 0xE5, 0x01, 0, 0xFF, 1, 0, 0], &[])];
    assert_eq!(sent(&log), expected);
}

#[test]
fn many_e5_keep_their_order_with_no_more_in_flight_than_allowed() {
    let (mut unit, log) = unit(vec![]);
    let writes: Vec<(XdataAddress, u8)> = (0..100).map(|at| (XdataAddress::main(0x7000 + at), at as u8)).collect();
    unit.set_depth(8);
    unit.xdata_write_all(&writes).unwrap();
    let expected: Vec<Sent> = (0..100).map(|at| control([0x40, 0xE5, at, 0x70, at, 0, 0, 0], &[])).collect();
    assert_eq!(sent(&log), expected);
    assert_eq!(log.lock().unwrap().most_in_flight, 8);
}

#[test]
fn f0_carries_format_enables_address_and_value_and_asks_for_the_completion_if_one_comes() {
    let done = || Ok(vec![0x02, 0x10, 0x4C, 0x74, 0, 4, 0, 0]);
    let ask = || control([0xC0, 0xF0, 0, 0, 0, 0, 8, 0], &[]);
    let f0 = |format, enables, data: [u8; 12]| control([0x40, 0xF0, format, enables, 0, 0, 12, 0], &data);
    let read = Tlp::config_read(Bdf::new(4, 0, 1), 0x10);
    let cases = [
        (Tlp::config_read(Bdf::ROOT, 0x18), f0(0x04, 0x0F, [0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        (read, f0(0x05, 0x0F, [0x10, 0, 0x01, 4, 0, 0, 0, 0, 0, 0, 0, 0])),
        (Tlp::config_write(Bdf::ROOT, 4, 7), f0(0x44, 0x0F, [4, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0])),
        (
            Tlp::config_write(Bdf::new(1, 31, 7), 4, 7).with_enables(3),
            f0(0x45, 0x03, [4, 0, 0xFF, 1, 0, 0, 0, 0, 7, 0, 0, 0]),
        ),
        (Tlp::memory_read(0x12_3456_7890), f0(0x20, 0x0F, [0x90, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0])),
    ];
    for (tlp, expected) in cases {
        let (mut unit, log) = unit(vec![Ok(vec![]), done()]);
        let completion = unit.tlp(&tlp).unwrap().unwrap();
        assert_eq!(completion.value(), Some(0x744C_1002));
        assert_eq!(sent(&log), [expected, ask()]);
    }
    let (mut unit, log) = unit(vec![]);
    assert_eq!(unit.tlp(&Tlp::memory_write(0x1000_0040, 0xCAFE_F00D)), Ok(None));
    assert_eq!(sent(&log), [f0(0x60, 0x0F, [0x40, 0, 0, 0x10, 0, 0, 0, 0, 0x0D, 0xF0, 0xFE, 0xCA])]);
}

#[test]
fn each_status_of_a_completion_has_its_name() {
    use CompletionStatus::*;
    let status = |byte4, byte7| Completion::parse(&[0, 0, 0, 0, byte4, 4, 0, byte7]).map(|found| found.status);
    assert_eq!(status(0x00, 0), Some(Success));
    assert_eq!(status(0x1F, 0), Some(Success), "the low bits belong to the header");
    assert_eq!(status(0x20, 0), Some(UnsupportedRequest));
    assert_eq!(status(0x40, 0), Some(ConfigRetry));
    assert_eq!(status(0x80, 0), Some(CompleterAbort));
    assert_eq!(status(0x60, 0), Some(Reserved(3)));
    assert_eq!(status(0x20, 1), Some(UnsupportedRequest));
    assert_eq!(status(0x00, 1), Some(Failed));
    assert_eq!(status(0x00, 0xFF), Some(TimedOut));
    assert_eq!(status(0x00, 2), None);
    assert_eq!(Completion::parse(&[1, 0, 0, 0, 0x20, 4, 0, 0]).unwrap().value(), None);
}

#[test]
fn an_undefined_completion_is_an_error_that_shows_its_bytes() {
    let (mut unit, _) = unit(vec![Ok(vec![]), Ok(vec![0, 0, 0, 0, 0, 0, 0, 0x77])]);
    let error = unit.tlp(&Tlp::memory_read(0)).unwrap_err();
    assert!(matches!(error, ControlError::Malformed { .. }), "{error}");
    assert!(error.to_string().contains("77"), "{error}");
}

#[test]
fn a_batch_of_tlps_is_in_flight_together_and_its_completions_keep_the_order() {
    let answers = [vec![], vec![1, 0, 0, 0, 0, 4, 0, 0], vec![], vec![], vec![2, 0, 0, 0, 0x20, 4, 0, 0]];
    let (mut unit, log) = unit(answers.into_iter().map(Ok).collect());
    let tlps = [Tlp::memory_read(0x10), Tlp::memory_write(0x14, 9), Tlp::memory_read(0x18)];
    let found = unit.tlps(&tlps).unwrap();
    let status = |index: usize| found[index].map(|completion: Completion| (completion.data, completion.status));
    assert_eq!(status(0), Some((1, CompletionStatus::Success)));
    assert_eq!(status(1), None);
    assert_eq!(status(2), Some((2, CompletionStatus::UnsupportedRequest)));
    assert_eq!(log.lock().unwrap().most_in_flight, 5);
}

#[test]
fn a_stream_of_writes_is_armed_before_its_data_are_sent() {
    let (mut unit, log) = unit(vec![]);
    let data: Vec<u8> = (0..BULK_LEN + 8).map(|at| (at % 253) as u8).collect();
    unit.stream_write(0x8_0000_0100, &data).unwrap();
    let [c0, c1, c2, c3] = (data.len() as u32 / 4).to_le_bytes();
    let arm = control([0x40, 0xF0, 0x60, 0x0F, 1, 0, 12, 0], &[0, 1, 0, 0, 8, 0, 0, 0, c0, c1, c2, c3]);
    assert_eq!(sent(&log), [arm, Sent::Out(data[..BULK_LEN].to_vec()), Sent::Out(data[BULK_LEN..].to_vec())]);
    assert_eq!(log.lock().unwrap().most_in_flight, 2, "the data, without the request");
}

/// Two transfers, with a pause after the submission of the first.
struct Paused {
    is_timed: bool,
    left: usize,
    elapsed: Vec<Duration>,
}

const PAUSE: Duration = Duration::from_millis(1);

impl OpenWorkload for Paused {
    fn is_timed(&self) -> bool {
        self.is_timed
    }

    fn next(&mut self) -> Option<OpenJob> {
        std::thread::sleep(PAUSE);
        self.left = self.left.checked_sub(1)?;
        Some(OpenJob::Bulk(Endpoint::DataOut, 4))
    }

    fn complete(&mut self, _: OpenJob, _: &[u8], elapsed: Duration) -> Result<(), ControlError> {
        self.elapsed.push(elapsed);
        Ok(())
    }
}

#[test]
fn a_workload_that_wants_times_gets_them_from_submission_to_end() {
    for is_timed in [false, true] {
        let mut work = Paused { is_timed, left: 2, elapsed: Vec::new() };
        unit(vec![]).0.run(&mut work).unwrap();
        assert_eq!(work.elapsed.iter().filter(|elapsed| **elapsed >= PAUSE).count(), if is_timed { 2 } else { 0 });
    }
}

/// Jobs that run in this order: bulk data to the unit, and as much from it.
struct OutThenIn(VecDeque<OpenJob>);

impl OpenWorkload for OutThenIn {
    fn next(&mut self) -> Option<OpenJob> {
        self.0.pop_front()
    }

    fn complete(&mut self, _: OpenJob, _: &[u8], _: Duration) -> Result<(), ControlError> {
        Ok(())
    }
}

#[test]
fn data_from_the_unit_waits_until_the_data_to_it_have_moved() {
    let (mut unit, log) = unit(vec![]);
    let jobs = [Endpoint::DataOut, Endpoint::DataIn].map(|endpoint| OpenJob::Bulk(endpoint, 4));
    unit.run(&mut OutThenIn(jobs.into())).unwrap();
    assert_eq!(sent(&log), [Sent::Out(vec![0; 4]), Sent::In(4)]);
    assert_eq!(log.lock().unwrap().most_in_flight, 1);
}

#[test]
fn a_stream_of_reads_brings_its_data_in_order() {
    let first = vec![5; BULK_LEN];
    let (mut unit, log) = unit(vec![Ok(vec![]), Ok(first), Ok(vec![6; 12])]);
    let mut found = vec![0; BULK_LEN + 12];
    unit.stream_read(0x1000, &mut found).unwrap();
    assert!(found[..BULK_LEN].iter().all(|byte| *byte == 5) && found[BULK_LEN..] == [6; 12]);
    let [c0, c1, c2, c3] = (found.len() as u32 / 4).to_le_bytes();
    let arm = control([0x40, 0xF0, 0x20, 0x0F, 2, 0, 12, 0], &[0, 0x10, 0, 0, 0, 0, 0, 0, c0, c1, c2, c3]);
    assert_eq!(sent(&log), [arm, Sent::In(BULK_LEN), Sent::In(12)]);
}

#[test]
fn a_stream_that_is_not_whole_dwords_is_not_sent_and_an_empty_one_does_nothing() {
    let (mut unit, log) = unit(vec![]);
    for (address, len) in [(0, 3), (2, 4)] {
        let error = unit.stream_read(address, &mut vec![0; len]).unwrap_err();
        assert!(error.to_string().contains("whole dwords"), "{error}");
    }
    unit.stream_write(0x1000, &[]).unwrap();
    assert_eq!(sent(&log), []);
}

#[test]
fn f2_is_armed_only_while_0xc450_reads_0() {
    let (mut unit, log) = unit(vec![Ok(vec![BUSY]), Ok(vec![BUSY]), Ok(vec![IDLE])]);
    let data = vec![0xA5; 0x1_0000 + 512];
    unit.sram_write(3, &data).unwrap();
    let ask = || control(ASK_SRAM, &[]);
    let arm = control([0x40, 0xF2, 129, 0, 3, 5, 0, 0], &[]);
    let [first, rest] = [&data[..BULK_LEN], &data[BULK_LEN..]].map(|piece| Sent::Out(piece.to_vec()));
    assert_eq!(sent(&log), [ask(), ask(), ask(), arm, first, rest]);
}

/// Sends an F2. Returns whether the bridge asked for the DMA's state before it.
fn asks(unit: &mut OpenBridge, log: &Arc<Mutex<Log>>) -> bool {
    sent(log);
    unit.arm_sram(SramTransfer { to_host: true, first_slot: 0, sectors: 1 }).unwrap();
    let arm = control([0x40, 0xF2, 0x01, 0x80, 0, 1, 0, 0], &[]);
    match &sent(log)[..] {
        [only] if *only == arm => false,
        [ask, then] if *ask == control(ASK_SRAM, &[]) && *then == arm => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn f2_asks_whether_the_dma_is_idle_unless_its_own_last_data_have_all_moved() {
    type Between = fn(&mut OpenBridge);
    let without_effect: [Between; 8] = [
        |_| {},
        |unit| {
            unit.arm_sram(SramTransfer { to_host: true, first_slot: 0, sectors: 2 }).unwrap();
            unit.bulk_in(&mut [0; 512]).unwrap();
            unit.bulk_in(&mut [0; 512]).unwrap();
        },
        |unit| unit.xdata_read(XdataAddress::main(0), &mut [0; 300]).unwrap(),
        |unit| unit.supply().map(drop).unwrap(),
        |unit| unit.stream_write(0x1000, &[0; 512]).unwrap(),
        |unit| unit.stream_read(0x1000, &mut [0; 512]).unwrap(),
        |unit| unit.tlps(&[Tlp::memory_write(0x1000, 1)]).map(drop).unwrap(),
        |unit| unit.tlps(&[Tlp::memory_read(0x1000)]).map(drop).unwrap(),
    ];
    let others: [Between; 9] = [
        |unit| {
            unit.arm_sram(SramTransfer { to_host: true, first_slot: 0, sectors: 2 }).unwrap();
            unit.bulk_out(&[0; 512]).unwrap();
            unit.bulk_in(&mut [0; 512]).unwrap();
        },
        |unit| unit.reset_port().unwrap(),
        |unit| unit.xdata_write(XdataAddress::main(0xC412), 3).unwrap(),
        |unit| unit.pcie_power(true).unwrap(),
        |unit| unit.arm_sram(SramTransfer { to_host: false, first_slot: 0, sectors: 2 }).unwrap(),
        |unit| {
            unit.arm_sram(SramTransfer { to_host: false, first_slot: 0, sectors: 2 }).unwrap();
            unit.bulk_out(&[0; 512]).unwrap();
        },
        |unit| {
            unit.arm_sram(SramTransfer { to_host: false, first_slot: 0, sectors: 1 }).unwrap();
            unit.stream_write(0x1000, &[0; 512]).unwrap();
        },
        |unit| {
            unit.arm_sram(SramTransfer { to_host: true, first_slot: 0, sectors: 1 }).unwrap();
            unit.bulk_out(&[0; 512]).unwrap();
        },
        |unit| {
            unit.arm_sram(SramTransfer { to_host: false, first_slot: 0, sectors: 1 }).unwrap();
            unit.bulk_out(&[0; 1024]).unwrap();
        },
    ];
    let cases =
        without_effect.iter().map(|between| (between, false)).chain(others.iter().map(|between| (between, true)));
    for (nth, (between, expected)) in cases.enumerate() {
        let (mut unit, log) = unit(vec![]);
        assert!(asks(&mut unit, &log), "the first F2");
        unit.bulk_in(&mut [0; 512]).unwrap();
        between(&mut unit);
        assert_eq!(asks(&mut unit, &log), expected, "case {nth}");
    }
}

#[test]
fn f2_asks_again_after_one_that_failed() {
    for failed in 1..3 {
        let (mut unit, log) = unit(vec![]);
        unit.sram_write(0, &[0; 512]).unwrap();
        log.lock().unwrap().answers.extend((1..failed).map(|_| Ok(vec![])).chain([Err(PipeError::Stall)]));
        assert!(unit.sram_write(0, &[0; 512]).is_err());
        assert!(asks(&mut unit, &log), "transfer {failed}");
    }
    // Nor does a request that would leave the DMA as it is say anything of it once it has failed.
    let (mut unit, log) = unit(vec![]);
    unit.sram_write(0, &[0; 512]).unwrap();
    log.lock().unwrap().answers.push_back(Err(PipeError::Stall));
    assert!(unit.xdata_read(XdataAddress::main(0), &mut [0]).is_err());
    assert!(asks(&mut unit, &log), "E4");
}

#[test]
fn an_sram_that_stays_busy_is_not_armed() {
    let (mut unit, log) = unit(vec![Ok(vec![BUSY]); 3]);
    unit.set_timeout(Duration::ZERO);
    let error = unit.sram_write(0, &[0; 512]).unwrap_err();
    assert_eq!(error, ControlError::SramBusy { deadline: Duration::ZERO, status: BUSY });
    assert!(sent(&log).iter().all(|sent| *sent == control(ASK_SRAM, &[])));
}

#[test]
fn what_does_not_fit_the_sram_is_not_armed() {
    let (mut unit, log) = unit(vec![]);
    for (first_slot, len) in [(0, 0), (0, 511), (0, 0x8_0200), (31, 0x4200), (32, 512)] {
        let error = unit.sram_write(first_slot, &vec![0; len]).unwrap_err();
        assert!(matches!(error, ControlError::Length { .. }), "{first_slot} {len}: {error}");
    }
    assert_eq!(sent(&log), []);
    for (first_slot, sectors) in [(0, 1024), (31, 32)] {
        unit.arm_sram(SramTransfer { to_host: false, first_slot, sectors }).unwrap();
    }
}

#[test]
fn a_window_is_taken_when_the_device_has_written_its_sentinel_to_the_fence() {
    let sentinel = std::num::NonZeroU32::new(0x0403_0201).unwrap();
    let answers = |fences: &[[u8; 4]]| {
        // The fence is cleared; F2 asks whether the DMA is idle, and arms it; the data and the sentinel move.
        let before = [&vec![Ok(vec![]); 4][..], &[Ok(vec![IDLE])], &vec![Ok(vec![]); 3]].concat();
        before.into_iter().chain(fences.iter().map(|fence| Ok(fence.to_vec()))).collect()
    };
    let (mut unit, log) = unit(answers(&[[0; 4], [1, 2, 3, 4]]));
    unit.sram_write_taken(2, &[7; 512], sentinel).unwrap();
    let arm = control([0x40, 0xF2, 2, 0, 2, 1, 0, 0], &[]);
    let ask = || control([0xC0, 0xE4, 0x00, 0xA8, 0, 0, 4, 0], &[]);
    let expected = [arm, Sent::Out(vec![7; 512]), Sent::Out([1, 2, 3, 4].repeat(128)), ask(), ask()];
    assert_eq!(sent(&log)[5..], expected);

    let (mut unit, _) = self::unit(answers(&[[1, 2, 3, 0]]));
    unit.set_timeout(Duration::ZERO);
    let error = unit.sram_write_taken(2, &[7; 512], sentinel).unwrap_err();
    let sentinel = sentinel.get();
    assert_eq!(error, ControlError::NotTaken { deadline: Duration::ZERO, sentinel, found: 0x0003_0201 });
}

#[test]
fn f3_switches_the_power_of_pcie() {
    let (mut unit, log) = unit(vec![]);
    unit.pcie_power(true).unwrap();
    unit.pcie_power(false).unwrap();
    let power = |on| control([0x40, 0xF3, on, 0, 0, 0, 0, 0], &[]);
    assert_eq!(sent(&log), [power(1), power(0)]);
}

#[test]
fn f4_restarts_at_super_speed_and_only_a_refusal_is_an_error() {
    for (end, is_sent) in [(Ok(vec![]), true), (Err(PipeError::Disconnected), true), (Err(PipeError::Stall), false)] {
        let (mut unit, log) = unit(vec![end]);
        assert_eq!(unit.restart_at_super_speed().is_ok(), is_sent);
        assert_eq!(sent(&log), [control([0x40, 0xF4, 1, 0, 0, 0, 0, 0], &[])]);
    }
}

#[test]
fn the_link_is_up_when_0xb450_reads_78() {
    let (mut unit, log) = unit(vec![Ok(vec![0x78]), Ok(vec![0x11])]);
    let (up, down) = (Link { ltssm: 0x78, is_up: true }, Link { ltssm: 0x11, is_up: false });
    assert_eq!((unit.link(), unit.link()), (Ok(up), Ok(down)));
    assert_eq!(sent(&log)[0], control([0xC0, 0xE4, 0x50, 0xB4, 0, 0, 1, 0], &[]));
}

#[test]
fn a_link_that_is_down_is_switched_on_and_awaited_and_one_that_is_up_is_left_alone() {
    let never = Interrupt::never();
    let (mut unit, log) = unit(vec![Ok(vec![0x78])]);
    assert_eq!(unit.bring_link_up(Duration::ZERO, never), Ok(()));
    assert_eq!(sent(&log).len(), 1);
    for power in [Ok(vec![]), Err(PipeError::Stall)] {
        let (mut unit, log) = self::unit(vec![Ok(vec![0]), power, Ok(vec![0x11]), Ok(vec![0x78])]);
        assert_eq!(unit.bring_link_up(Duration::from_secs(60), never), Ok(()));
        assert_eq!(sent(&log)[1], control([0x40, 0xF3, 1, 0, 0, 0, 0, 0], &[]));
    }
}

#[test]
fn a_link_is_taken_down_by_f3_and_awaited_and_returned_as_it_is_if_it_stays_up() {
    let never = Interrupt::never();
    // Neither up nor in Detect: what is behind it may still be linked.
    let answers = [vec![], vec![0x78], vec![0x48], vec![0x10], vec![0x01]];
    let (mut unit, log) = unit(answers.into_iter().map(Ok).collect());
    assert_eq!(unit.take_link_down(Duration::from_secs(60), never), Ok(Link { ltssm: 1, is_up: false }));
    assert_eq!(sent(&log)[0], control([0x40, 0xF3, 0, 0, 0, 0, 0, 0], &[]));
    let (mut unit, _) = self::unit(vec![Ok(vec![]), Ok(vec![0x78])]);
    assert_eq!(unit.take_link_down(Duration::ZERO, never), Ok(Link { ltssm: 0x78, is_up: true }));
    let (mut unit, log) = self::unit(vec![Err(PipeError::Stall)]);
    assert!(matches!(unit.take_link_down(Duration::ZERO, never), Err(ControlError::Stalled { .. })));
    assert_eq!(sent(&log).len(), 1);
    static STOP: AtomicBool = AtomicBool::new(true);
    let (mut unit, _) = self::unit(vec![Ok(vec![]), Ok(vec![0x78])]);
    let stopped = unit.take_link_down(Duration::from_secs(60), Interrupt::watching(&STOP));
    assert_eq!(stopped, Err(ControlError::Interrupted(Interrupted)));
}

#[test]
fn a_link_that_stays_down_is_an_error_with_its_state_and_the_supply() {
    let answers = [vec![0], vec![], vec![0x11], vec![0x34, 0x12, 0, 0, 0]];
    let (mut unit, _) = unit(answers.into_iter().map(Ok).collect());
    let error = unit.bring_link_up(Duration::ZERO, Interrupt::never()).unwrap_err();
    let expected = "the PCIe link is down after 0ns: XDATA 0xB450 reads 0x11 (it detects a device and tries to reach it), \
                    expected 0x78; the supply is at 4660 mV";
    assert_eq!((error.to_string().as_str(), error.code()), (expected, "asm2464::pcie::link_down"));
    static STOP: AtomicBool = AtomicBool::new(true);
    let (mut unit, _) = self::unit(vec![]);
    let stopped = unit.bring_link_up(Duration::from_secs(60), Interrupt::watching(&STOP));
    assert_eq!(stopped, Err(ControlError::Interrupted(Interrupted)));
    for gone in [PipeError::Disconnected, PipeError::Timeout] {
        let (mut unit, _) = self::unit(vec![Ok(vec![0]), Err(gone)]);
        assert!(unit.bring_link_up(Duration::from_secs(60), Interrupt::never()).is_err());
    }
}

#[test]
fn a_long_stream_goes_as_several_of_at_most_1_mib() {
    let len = 0x10_0000 * 2 + 8;
    let f0 = |format, mode, address: u64, dwords: u32| {
        let data = [&address.to_le_bytes()[..], &dwords.to_le_bytes()].concat();
        control([0x40, 0xF0, format, 0x0F, mode, 0, 12, 0], &data)
    };
    let streams = |log| sent(log).into_iter().filter(|sent| matches!(sent, Sent::Control(..))).collect::<Vec<_>>();
    let counts = [(0x8_FFF0_0000, 0x4_0000), (0x9_0000_0000, 0x4_0000), (0x9_0010_0000, 2)];
    let (mut unit, log) = unit(vec![]);
    unit.stream_write(0x8_FFF0_0000, &vec![7; len]).unwrap();
    assert!(streams(&log).into_iter().eq(counts.map(|(address, dwords)| f0(0x60, 1, address, dwords))));
    unit.stream_read(0x8_FFF0_0000, &mut vec![0; len]).unwrap();
    assert!(streams(&log).into_iter().eq(counts.map(|(address, dwords)| f0(0x20, 2, address, dwords))));
    assert!(unit.stream_write(u64::MAX - 3, &[0; 8]).is_err());
}

#[test]
fn memory_at_any_address_goes_by_single_tlps_at_the_ends_and_by_a_stream_in_between() {
    let f0 = |format, enables, mode, address: u8, value: u32| {
        let data = [&[address, 0, 0, 0, 0, 0, 0, 0][..], &value.to_le_bytes()].concat();
        control([0x40, 0xF0, format, enables, mode, 0, 12, 0], &data)
    };
    let (mut unit, log) = unit(vec![]);
    unit.memory_write(0x13, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).unwrap();
    let middle = Sent::Out(vec![2, 3, 4, 5, 6, 7, 8, 9]);
    let expected = [f0(0x60, 8, 0, 0x10, 0x0100_0000), f0(0x60, 15, 1, 0x14, 2), middle, f0(0x60, 1, 0, 0x1C, 10)];
    assert_eq!(sent(&log), expected);
    unit.memory_write(0x11, &[1, 2]).unwrap();
    unit.memory_write(0x20, &[1, 2, 3, 4]).unwrap();
    unit.memory_write(0x23, &[]).unwrap();
    assert_eq!(sent(&log), [f0(0x60, 6, 0, 0x10, 0x0002_0100), f0(0x60, 15, 0, 0x20, 0x0403_0201)]);
    unit.memory_write(0x11, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
    let expected =
        [f0(0x60, 14, 0, 0x10, 0x0302_0100), f0(0x60, 15, 0, 0x14, 0x0706_0504), f0(0x60, 3, 0, 0x18, 0x0908)];
    assert_eq!(sent(&log), expected);

    let done = |dword: [u8; 4]| [Ok(vec![]), Ok([&dword[..], &[0; 4]].concat())];
    let answers = [&done([9, 9, 9, 1])[..], &[Ok(vec![]), Ok(vec![2, 3, 4, 5, 6, 7, 8, 9])], &done([10, 9, 9, 9])];
    let (mut unit, _) = self::unit(answers.concat());
    let mut found = [0; 10];
    unit.memory_read(0x13, &mut found).unwrap();
    assert_eq!(found, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert!(unit.memory_read(u64::MAX, &mut [0; 2]).is_err());

    let (mut unit, log) = self::unit([done([9, 1, 2, 9]), done([3, 4, 5, 6])].concat());
    let (mut within, mut dword) = ([0; 2], [0; 4]);
    unit.memory_read(0x11, &mut within).unwrap();
    unit.memory_read(0x20, &mut dword).unwrap();
    assert_eq!((within, dword), ([1, 2], [3, 4, 5, 6]));
    assert!(sent(&log).iter().all(|sent| matches!(sent, Sent::Control(..))), "no stream");
}

#[test]
fn a_completion_with_an_error_status_is_an_error_and_one_that_may_pass_is_tried_again() {
    let ended = |header, result| [Ok(vec![]), Ok(vec![7, 0, 0, 0, header, 0, 0, result])];
    let (retry, timed_out, failed, unsupported) = (ended(0x40, 0), ended(0, 0xFF), ended(0, 1), ended(0x20, 0));
    let read = Tlp::memory_read(0x1000);
    for passing in [&retry, &timed_out, &failed, &[Ok(vec![]), Ok(vec![])], &[Ok(vec![]), Err(PipeError::Overflow)]] {
        let (mut unit, log) = unit([&passing[..], passing, &ended(0, 0)].concat());
        assert_eq!(unit.attempt(3, Duration::ZERO, |unit| unit.dword(&read)), Ok(7));
        assert_eq!(sent(&log).len(), 6);
        let (mut unit, _) = self::unit([&passing[..], passing, &ended(0, 0)].concat());
        assert!(unit.attempt(2, Duration::ZERO, |unit| unit.dword(&read)).is_err());
    }
    let (mut unit, log) = unit(unsupported.to_vec());
    let error = unit.attempt(10, Duration::ZERO, |unit| unit.dword(&read)).unwrap_err();
    assert_eq!((error.code(), sent(&log).len()), ("asm2464::pcie::unsupported", 2));
    assert_eq!(error.to_string(), "memory read at 0x1000 ended with: unsupported request");
    for lasting in [PipeError::Disconnected, PipeError::Timeout, PipeError::Stall] {
        let (mut unit, log) = self::unit(vec![Err(lasting)]);
        assert!(unit.attempt(10, Duration::ZERO, |unit| unit.dword(&read)).is_err());
        assert!(sent(&log).len() <= 2);
    }
}

#[test]
fn the_completions_page_is_read_once_and_again_after_a_write_there() {
    let (mut unit, log) = unit(vec![Ok(vec![0x08, 0x22])]);
    assert_eq!((unit.completions_page(), unit.completions_page()), (Ok(0x0822), Ok(0x0822)));
    assert_eq!(sent(&log), [control([0xC0, 0xE4, 0x6E, 0xB2, 0, 0, 2, 0], &[])]);
    unit.set_completions_page(0x0828).unwrap();
    assert_eq!(written(&log), [(0xB26E, 0x08), (0xB26F, 0x28)]);
    log.lock().unwrap().answers = [Ok(vec![0x08, 0x28]), Ok(vec![]), Ok(vec![0, 0])].into();
    assert_eq!(unit.completions_page(), Ok(0x0828));
    unit.xdata_write(XdataAddress::main(0xB26F), 0x22).unwrap();
    assert_eq!(unit.completions_page(), Ok(0x0822), "never written: the value after power-on");
}

#[test]
fn c0_returns_the_fault_line_and_the_voltage_and_current_if_the_board_measures_them() {
    let silent = || Err(PipeError::Timeout);
    let measured = vec![0xE0, 0x2E, 0x9C, 0xFF, 0];
    let (no_sensor, fault) = (vec![0; 5], vec![0, 0, 0x9C, 0xFF, 1]);
    let (without_fault, too_short) = (measured[..4].to_vec(), measured[..3].to_vec());
    let answers = [
        Ok(measured),
        Ok(no_sensor),
        Ok(fault),
        Ok(without_fault),
        Ok(too_short),
        Err(PipeError::Stall),
        silent(),
        Ok(vec![0x78]),
    ];
    let (mut unit, log) = unit(answers.into_iter().chain([silent(), silent()]).collect());
    let measured = |voltage_mv, has_fault| Supply {
        measured: Some(SupplyMeasurement { voltage_mv, current_ma: -100 }),
        has_fault,
    };
    assert_eq!(unit.supply(), Ok(Some(measured(12_000, Some(false)))));
    assert_eq!(unit.supply(), Ok(Some(Supply { measured: None, has_fault: Some(false) })), "zeros are no measurement");
    assert_eq!(unit.supply(), Ok(Some(measured(0, Some(true)))));
    assert_eq!(unit.supply(), Ok(Some(measured(12_000, None))), "a build of June or July");
    assert_eq!(unit.supply(), Ok(None), "less than voltage and current");
    assert_eq!(unit.supply(), Ok(None), "refused");
    assert_eq!(unit.supply(), Ok(None), "without an answer, though the unit answers others");
    assert!(matches!(unit.supply(), Err(ControlError::Timeout { .. })), "a unit that answers nothing");
    assert_eq!(sent(&log)[0], control([0xC0, 0xC0, 0, 0, 0, 0, 5, 0], &[]));
}

#[test]
fn each_failure_of_a_request_has_its_own_error_and_the_next_request_works() {
    for (failure, code) in [
        (PipeError::Stall, "asm2464::control::stalled"),
        (PipeError::Timeout, "asm2464::control::timeout"),
        (PipeError::Disconnected, "asm2464::control::disconnected"),
        (PipeError::Overflow, "asm2464::control::io"),
        (PipeError::Other("odd".to_owned()), "asm2464::control::io"),
    ] {
        let (mut unit, _) = unit(vec![Ok(vec![1; 255]), Err(failure)]);
        let error = unit.xdata_read(XdataAddress::main(0), &mut [0; 2000]).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains("E4 (read XDATA 0x00FF)"), "{error}");
        unit.xdata_read(XdataAddress::main(0), &mut [0; 2000]).unwrap();
    }
}

#[test]
fn bulk_pipes_that_hang_while_requests_are_answered_have_another_error_than_a_silent_unit() {
    for (answer, answers) in [(Ok(vec![IDLE]), true), (Err(PipeError::Timeout), false)] {
        let (mut unit, _) = unit(vec![Ok(vec![]), Err(PipeError::Timeout), answer]);
        let error = unit.stream_write(0, &[0; 64]).unwrap_err();
        assert!(matches!(error, ControlError::BulkTimeout { answers: found, .. } if found == answers), "{error}");
        assert!(error.to_string().contains("stream of memory writes"), "{error}");
    }
}

#[test]
fn transfers_that_return_newest_first_because_the_unit_is_gone_say_so() {
    let (mut unit, log) = unit(vec![Err(PipeError::Disconnected); 4]);
    log.lock().unwrap().is_reversed = true;
    let error = unit.xdata_read(XdataAddress::main(0), &mut [0; 1000]).unwrap_err();
    assert_eq!(error.code(), "asm2464::control::disconnected");
    let (mut unit, log) = self::unit(vec![]);
    log.lock().unwrap().is_reversed = true;
    let error = unit.xdata_read(XdataAddress::main(0), &mut [0; 1000]).unwrap_err();
    assert!(error.to_string().contains("out of order"), "{error}");
}

#[test]
fn a_transfer_that_fails_before_the_system_has_noticed_that_the_unit_is_gone_says_so() {
    let broken = || Err(PipeError::Other("the wire".to_owned()));
    for (answers, code) in [
        (vec![broken(), Err(PipeError::Disconnected)], "asm2464::control::disconnected"),
        (vec![broken(), broken(), broken(), Err(PipeError::Disconnected)], "asm2464::control::disconnected"),
        (vec![broken(), broken(), Ok(vec![0])], "asm2464::control::io"),
        (vec![broken(), Err(PipeError::Stall)], "asm2464::control::io"),
        (vec![Err(PipeError::Timeout), Err(PipeError::Disconnected)], "asm2464::control::disconnected"),
    ] {
        let (mut unit, log) = unit(answers);
        let error = unit.bulk_out(&[0; 512]).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(log.lock().unwrap().answers.is_empty());
        unit.xdata_write(XdataAddress::main(0), 0).unwrap();
    }
}

#[test]
fn a_unit_whose_requests_all_fail_is_asked_for_a_second_and_is_not_gone() {
    let (mut unit, log) = unit(vec![Err(PipeError::Other("the wire".to_owned())); 100]);
    assert_eq!(unit.bulk_out(&[0; 512]).unwrap_err().code(), "asm2464::control::io");
    assert!(!log.lock().unwrap().answers.is_empty());
}

#[test]
fn cancelled_transfers_are_waited_for_and_the_next_request_works() {
    let (mut unit, log) = unit(vec![Err(PipeError::Stall)]);
    log.lock().unwrap().is_late = true;
    unit.xdata_read(XdataAddress::main(0), &mut [0; 2000]).unwrap_err();
    unit.xdata_read(XdataAddress::main(0), &mut [0; 2000]).unwrap();
}

#[test]
fn cancelled_transfers_that_return_late_fail_no_later_request() {
    let (mut unit, log) = unit(vec![Err(PipeError::Stall)]);
    log.lock().unwrap().keeps_cancelled = true;
    unit.xdata_read(XdataAddress::main(0), &mut [0; 2000]).unwrap_err();
    log.lock().unwrap().keeps_cancelled = false;
    unit.xdata_read(XdataAddress::main(0), &mut [0; 2000]).unwrap();
}

#[test]
fn a_bulk_pipe_that_halts_is_freed() {
    let (mut unit, log) = unit(vec![Ok(vec![]), Err(PipeError::Stall)]);
    unit.stream_read(0, &mut [0; 64]).unwrap_err();
    assert_eq!(sent(&log).last(), Some(&Sent::ClearHalt(Endpoint::DataIn)));
}

/// Returns the E5 writes that were sent, and each cleared halt as its endpoint's address and 0.
fn written(log: &Arc<Mutex<Log>>) -> Vec<(u16, u8)> {
    let written = |sent| match sent {
        Sent::Control([0x40, 0xE5, low, high, value, 0, 0, 0], _) => Some((u16::from_le_bytes([low, high]), value)),
        Sent::ClearHalt(endpoint) => Some((endpoint.address().into(), 0)),
        _ => None,
    };
    sent(log).into_iter().filter_map(written).collect()
}

#[test]
fn the_strobes_are_those_of_owners_then_those_of_the_open_firmware_and_keep_the_other_bits() {
    let (mut unit, log) = unit(vec![]);
    unit.strobe_engines().unwrap();
    let owners = [(0xC412, 0), (0xC42A, 1), (0xC42A, 0), (0x9094, 1), (0x9094, 8), (0x9093, 2), (0x81, 0), (0x02, 0)];
    let firmware =
        [(0xC42A, 1), (0x900B, 1), (0xC42A, 8), (0xC42A, 0), (0x900B, 0), (0xC42A, 0), (0xB298, 4), (0xB298, 0)];
    assert_eq!(written(&log), [owners, firmware].concat());

    let answers = std::iter::repeat_n(Ok(vec![]), 6).chain(std::iter::repeat_n(Ok(vec![0x57]), 16));
    let (mut unit, log) = self::unit(answers.collect());
    unit.strobe_engines().unwrap();
    assert_eq!(written(&log)[8..12], [(0xC42A, 0x57), (0x900B, 0x57), (0xC42A, 0x5F), (0xC42A, 0x56)]);
}

#[test]
fn a_cpu_reset_may_stay_unanswered_but_a_refusal_is_an_error() {
    for (end, is_sent) in [
        (Ok(vec![]), true),
        (Err(PipeError::Timeout), true),
        (Err(PipeError::Disconnected), true),
        (Err(PipeError::Stall), false),
    ] {
        let (mut unit, log) = unit(vec![end.clone()]);
        assert_eq!(unit.restart_cpu().is_ok(), is_sent, "{end:?}");
        assert_eq!(written(&log), [(0xCC31, 1)]);
    }
}

#[test]
fn bulk_data_must_arrive_as_they_were_sent_and_no_dma_may_wait() {
    let check = |answers: Vec<Result<Vec<u8>, PipeError>>| {
        let (mut unit, log) = unit(answers);
        (unit.check_bulk().map_err(|error| error.code()), sent(&log))
    };
    let (idle, arm, buffer) = (Ok(vec![IDLE]), Ok(vec![]), Ok(vec![0x0F; 64]));
    let (ok, requests) = check(vec![idle.clone(), arm.clone(), buffer.clone(), Ok(vec![]), Ok(vec![0xF0; 64])]);
    assert_eq!(ok, Ok(()));
    assert_eq!(requests[1], control([0x40, 0xE5, 0x94, 0x90, 0x10, 0, 0, 0], &[]));
    assert_eq!(requests[3], Sent::Out(vec![0xF0; 64]));
    let unchanged = vec![idle.clone(), arm.clone(), buffer.clone(), Ok(vec![]), buffer.clone()];
    assert_eq!(check(unchanged).0, Err("asm2464::control::malformed"));
    assert_eq!(check(vec![Ok(vec![BUSY])]).0, Err("asm2464::control::sram_busy"));
    let (hangs, requests) = check(vec![idle, arm, buffer, Err(PipeError::Timeout)]);
    assert_eq!(hangs, Err("asm2464::control::bulk_timeout"));
    assert_eq!(requests.last(), Some(&control([0x40, 0xE5, 0x94, 0x90, 8, 0, 0, 0], &[])), "it disarms");
}
