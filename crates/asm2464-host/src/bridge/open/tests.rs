//! Tests of each request, byte by byte as the open firmware expects it, on a unit with scripted answers. Most are rows
//! of tables: a name, a call, what crosses the wire, and what the call returns.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::tlp::CompletionStatus;
use asm2464::{Bdf, Coded as _};

use super::*;
use crate::bridge::{Endpoint, PipeError, Pipes, Reaped, SETUP_LEN, TransferEnd, TransferId, control_data_len};

/// The result of a transfer: data to the host, or a failure.
type Answer = Result<Vec<u8>, PipeError>;

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
    /// Results of the next transfers. Without one a transfer succeeds with zeros.
    answers: VecDeque<Option<Answer>>,
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
        let answer = self.log.lock().unwrap().answers.pop_front().flatten();
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

fn unit_at(speed: BusSpeed, answers: impl IntoIterator<Item = Answer>) -> (OpenBridge, Arc<Mutex<Log>>) {
    let script = Script::default();
    let log = script.log.clone();
    log.lock().unwrap().answers = answers.into_iter().map(Some).collect();
    (OpenBridge::new(Box::new(script), speed), log)
}

fn unit(answers: impl IntoIterator<Item = Answer>) -> (OpenBridge, Arc<Mutex<Log>>) {
    unit_at(BusSpeed::Super, answers)
}

fn sent(log: &Arc<Mutex<Log>>) -> Vec<Sent> {
    std::mem::take(&mut log.lock().unwrap().sent)
}

/// Parses bytes: pieces in hexadecimal, each perhaps with the number of times that it comes, as in `00.A5*512`.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in text.split('.') {
        let (digits, times) = piece.split_once('*').unwrap_or((piece, "1"));
        let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
        let piece = digits.chunks(2).map(|byte| u8::from_str_radix(str::from_utf8(byte).unwrap(), 16).unwrap());
        bytes.extend(piece.collect::<Vec<u8>>().repeat(times.parse().unwrap()));
    }
    bytes
}

/// Shows bytes as [`bytes`] parses them.
fn shown(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, other| one == other);
    let pieces = runs.map(|run| match run {
        [byte] => format!("{byte:02X}"),
        [byte, ..] => format!("{byte:02X}*{}", run.len()),
        [] => String::new(),
    });
    pieces.collect::<Vec<String>>().join(".")
}

/// The requests that occur most: what F0 brings, and the reads of 0xB450 and 0xC450.
const REQUESTS: [(&str, &str); 3] =
    [("COMPLETION", "C0F0 0000 0000 0800"), ("LTSSM", "C0E4 50B4 0000 0100"), ("DMA", "C0E4 50C4 0000 0100")];

/// Parses what crosses the wire, in order: `setup`, `setup+data`, `out data`, `in length` or `clear in`, each perhaps
/// with `: answer`. A setup packet is bmRequestType and bRequest, wValue, wIndex, and wLength, as they are sent, or a
/// name in [`REQUESTS`].
fn wire(text: &str) -> (Vec<Sent>, Vec<Option<Answer>>) {
    let (mut all, mut answers) = (Vec::new(), Vec::new());
    for step in text.split(", ").filter(|step| !step.is_empty()) {
        let (request, answer) = step.split_once(": ").map_or((step, None), |(request, answer)| (request, Some(answer)));
        let request = REQUESTS.iter().find(|(name, _)| *name == request).map_or(request, |(_, setup)| setup);
        let sent = match request.split_once(' ') {
            Some(("out", data)) => Sent::Out(bytes(data)),
            Some(("in", len)) => Sent::In(len.parse().unwrap()),
            Some(("clear", _)) => Sent::ClearHalt(Endpoint::DataIn),
            _ => {
                let (setup, data) = request.split_once('+').unwrap_or((request, ""));
                Sent::Control(bytes(setup).try_into().unwrap(), bytes(data))
            }
        };
        let answer = answer.map(|answer| match answer {
            "nothing" => Ok(Vec::new()),
            "stall" => Err(PipeError::Stall),
            "timeout" => Err(PipeError::Timeout),
            "gone" => Err(PipeError::Disconnected),
            data => Ok(bytes(data)),
        });
        if !matches!(sent, Sent::ClearHalt(_)) {
            answers.push(answer);
        }
        all.push(sent);
    }
    (all, answers)
}

/// What a call returns, in words.
type Said = Result<String, ControlError>;
/// A name, a call, what crosses the wire, and what the call returns: a value, or an error by its code or its message.
type Row = (&'static str, fn(&mut OpenBridge) -> Said, &'static str, &'static str);

fn assert_rows(rows: &[Row]) {
    for (name, call, text, returns) in rows {
        let (expected, answers) = wire(text);
        let (mut unit, log) = unit([]);
        log.lock().unwrap().answers = answers.into();
        let said = match call(&mut unit) {
            Ok(said) => [said, String::new()],
            Err(error) => [error.code().to_owned(), error.to_string()],
        };
        assert!(said.iter().any(|said| said == returns), "{name}: {said:?}");
        assert_eq!(sent(&log), expected, "{name}");
        assert!(log.lock().unwrap().answers.is_empty(), "{name}: not every answer was taken");
    }
}

/// Rows of a table, one or two lines each: name, call, wire and result.
macro_rules! rows {
    ($unit:ident: $($name:literal, $call:expr, $wire:literal, $returns:literal;)*) => {
        assert_rows(&[$(($name, |$unit| $call, $wire, $returns)),*])
    };
}

const fn main(at: u16) -> XdataAddress {
    XdataAddress::main(at)
}

const fn other_page(at: u16) -> XdataAddress {
    XdataAddress { page: asm2464::scsi::XdataPage::Other, addr: at }
}

fn done(result: Result<(), ControlError>) -> Said {
    result.map(|()| "done".to_owned())
}

fn debug<T: std::fmt::Debug>(result: Result<T, ControlError>) -> Said {
    result.map(|value| format!("{value:?}"))
}

/// What a call has put into a buffer of this length.
fn found(len: usize, call: impl FnOnce(&mut [u8]) -> Result<(), ControlError>) -> Said {
    let mut buffer = vec![0; len];
    call(&mut buffer)?;
    Ok(shown(&buffer))
}

fn e4(unit: &mut OpenBridge, at: u16, len: usize) -> Said {
    found(len, |buffer| unit.xdata_read(main(at), buffer))
}

const IDLE: u8 = 0;

#[test]
fn e4_and_e5_name_address_page_and_length_or_value() {
    rows! { unit:
        "E4", e4(unit, 0x07F0, 3), "C0E4 F007 0000 0300: 010203", "01.02.03";
        "other page", found(1, |to| unit.xdata_read(other_page(0x1234), to)), "C0E4 3412 0001 0100: 07", "07";
        "past the end", e4(unit, 0xFFFF, 2), "", "asm2464::control::length";
        "E5", done(unit.xdata_write(main(0xC8A9), 0x5A)), "40E5 A9C8 5A00 0000", "done";
        "other page", done(unit.xdata_write(other_page(1), 0xFF)), "40E5 0100 FF01 0000", "done";
        "nothing comes back", e4(unit, 0xF000, 510), "C0E4 00F0 0000 FF00: 07*255, C0E4 FFF0 0000 FF00: nothing",
            "E4 (read XDATA 0xF0FF) moved 0 bytes, expected 255";
        "one that returns less than an earlier one has lost bytes", {
                e4(unit, 0xF000, 255)?;
                let lost = e4(unit, 0xF000, 255);
                assert_eq!(unit.xdata_read_max(), 255);
                lost
            },
            "C0E4 00F0 0000 FF00: 07*255, C0E4 00F0 0000 FF00: 07*100",
            "E4 (read XDATA 0xF000) moved 100 bytes, expected 255";
        "a request of its own that returns less",
            debug(unit.request(OpenCommand::XdataRead { from: main(0xF000), len: 4 })),
            "C0E4 00F0 0000 0400: 070707", "E4 (read XDATA 0xF000) moved 3 bytes, expected 4";
        "a completion that returns less", debug(unit.request(OpenCommand::Completion)),
            "COMPLETION: 00*7", "F0 (completion) moved 7 bytes, expected 8";
        "the page of completions is read once",
            debug(unit.completions_page().and_then(|first| Ok((first, unit.completions_page()?)))),
            "C0E4 6EB2 0000 0200: 0822", "(2082, 2082)";
        "and again after a write there, where 0 is the value after power-on", {
                unit.completions_page()?;
                unit.set_completions_page(0x0828)?;
                let written = unit.completions_page()?;
                unit.xdata_write(main(0xB26F), 0x22)?;
                debug(unit.completions_page().map(|found| (written, found)))
            },
            "C0E4 6EB2 0000 0200: 0822, 40E5 6EB2 0800 0000, 40E5 6FB2 2800 0000, C0E4 6EB2 0000 0200: 0828, \
             40E5 6FB2 2200 0000, C0E4 6EB2 0000 0200: 0000", "(2088, 2082)";
        "a build that gives less is asked for the rest and from then on for that much; the write is not repeated", {
                assert_eq!(unit.xdata_read_max(), 255);
                let all = found(600, |to| unit.xdata_exchange(&[(main(0xC8A9), 1)], main(0xF000), to))?;
                assert_eq!(unit.xdata_read_max(), 64);
                e4(unit, 0xF000, 70)?;
                Ok(all)
            },
            "40E5 A9C8 0100 0000, C0E4 00F0 0000 FF00: 01*64, C0E4 FFF0 0000 FF00: 05*64, C0E4 FEF1 0000 5A00: 09*64, \
             C0E4 3EF2 0000 1A00: 0A*26, C0E4 3FF1 0000 4000: 06*64, C0E4 7FF1 0000 4000: 07*64, \
             C0E4 BFF1 0000 3F00: 08*63, C0E4 40F0 0000 4000: 02*64, C0E4 80F0 0000 4000: 03*64, \
             C0E4 C0F0 0000 3F00: 04*63, C0E4 00F0 0000 4000, C0E4 40F0 0000 0600",
            "01*64.02*64.03*64.04*63.05*64.06*64.07*64.08*63.09*64.0A*26";
    }
}

#[test]
fn a_long_e4_goes_in_pieces_of_255_bytes_at_superspeed_and_of_64_at_high_speed() {
    let at_20_gbit = BusSpeed::of_sysfs("20000").unwrap();
    let unknown = BusSpeed::UNKNOWN.or_proved_by_packets([1024]);
    for (speed, most) in [(BusSpeed::Super, 255), (at_20_gbit, 255), (unknown, 255), (BusSpeed::High, 64)] {
        let whole: Vec<u8> = (0..700u32).map(|at| (at % 251) as u8).collect();
        let (mut unit, log) = unit_at(speed, whole.chunks(most).map(|piece| Ok(piece.to_vec())));
        let mut found = vec![0; whole.len()];
        unit.xdata_read(main(0xF000), &mut found).unwrap();
        assert_eq!(found, whole);
        let pieces = whole.chunks(most).enumerate().map(|(index, piece)| {
            let [low, high] = (0xF000 + (index * most) as u16).to_le_bytes();
            Sent::Control([0xC0, 0xE4, low, high, 0, 0, piece.len() as u8, 0], Vec::new())
        });
        assert_eq!(sent(&log), pieces.collect::<Vec<Sent>>());
        assert!(log.lock().unwrap().most_in_flight > 1, "many are in flight");
    }
}

#[test]
fn many_e5_keep_their_order_with_no_more_in_flight_than_allowed() {
    let (mut unit, log) = unit([]);
    unit.set_depth(8);
    unit.xdata_write_all(&(0..100).map(|at| (main(0x7000 + at), at as u8)).collect::<Vec<_>>()).unwrap();
    let expected = (0..100).map(|at| Sent::Control([0x40, 0xE5, at, 0x70, at, 0, 0, 0], Vec::new()));
    assert_eq!(sent(&log), expected.collect::<Vec<Sent>>());
    assert_eq!(log.lock().unwrap().most_in_flight, 8);
}

#[test]
fn f0_carries_format_enables_address_and_value_and_asks_for_the_completion_if_one_comes() {
    rows! { unit:
        "configuration read of the root port", debug(unit.dword(&Tlp::config_read(Bdf::ROOT, 0x18))),
            "40F0 040F 0000 0C00+18.00*11, COMPLETION: 02104C7400040000", "1951141890";
        "of a function behind it", debug(unit.dword(&Tlp::config_read(Bdf::new(4, 0, 1), 0x10))),
            "40F0 050F 0000 0C00+10000104.00*8, COMPLETION: 02104C7400040000", "1951141890";
        "configuration write of the root port", debug(unit.dword(&Tlp::config_write(Bdf::ROOT, 4, 7))),
            "40F0 440F 0000 0C00+04.00*7.07000000, COMPLETION: 02104C7400040000", "1951141890";
        "of two bytes behind it", debug(unit.dword(&Tlp::config_write(Bdf::new(1, 31, 7), 4, 7).with_enables(3))),
            "40F0 4503 0000 0C00+0400FF01.00*4.07000000, COMPLETION: 02104C7400040000", "1951141890";
        "memory read", debug(unit.dword(&Tlp::memory_read(0x12_3456_7890))),
            "40F0 200F 0000 0C00+9078563412.00*7, COMPLETION: 02104C7400040000", "1951141890";
        "memory write, which is posted", debug(unit.tlp(&Tlp::memory_write(0x1000_0040, 0xCAFE_F00D))),
            "40F0 600F 0000 0C00+40000010.00*4.0DF0FECA", "None";
        "an undefined completion", debug(unit.tlp(&Tlp::memory_read(0))),
            "40F0 200F 0000 0C00+00*12, COMPLETION: 00*7.77", "asm2464::control::malformed";
    }
    let (mut unit, _) = unit([Ok(vec![]), Ok(bytes("00*7.77"))]);
    let error = unit.tlp(&Tlp::memory_read(0)).unwrap_err();
    assert!(error.to_string().contains("77"), "it shows its bytes: {error}");
}

#[test]
fn each_status_of_a_completion_has_its_name() {
    use CompletionStatus::*;
    for (byte4, byte7, name) in [
        (0x00, 0, Some(Success)),
        // The low bits belong to the header.
        (0x1F, 0, Some(Success)),
        (0x20, 0, Some(UnsupportedRequest)),
        (0x40, 0, Some(ConfigRetry)),
        (0x80, 0, Some(CompleterAbort)),
        (0x60, 0, Some(Reserved(3))),
        (0x20, 1, Some(UnsupportedRequest)),
        (0x00, 1, Some(Failed)),
        (0x00, 0xFF, Some(TimedOut)),
        (0x00, 2, None),
    ] {
        let found = Completion::parse(&[1, 0, 0, 0, byte4, 4, 0, byte7]);
        assert_eq!(found.map(|found| found.status), name, "{byte4:#x} {byte7:#x}");
        assert_eq!(found.and_then(|found| found.value()), (name == Some(Success)).then_some(1));
    }
}

#[test]
fn a_batch_of_tlps_is_in_flight_together_and_its_completions_keep_the_order() {
    let answers = ["", "0100000000040000", "", "", "0200000020040000"];
    let (mut unit, log) = unit(answers.map(|answer| Ok(bytes(answer))));
    let tlps = [Tlp::memory_read(0x10), Tlp::memory_write(0x14, 9), Tlp::memory_read(0x18)];
    let found = unit.tlps(&tlps).unwrap().into_iter().map(|one| one.map(|one| (one.data, one.status)));
    let expected = [Some((1, CompletionStatus::Success)), None, Some((2, CompletionStatus::UnsupportedRequest))];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(log.lock().unwrap().most_in_flight, 5);
}

#[test]
fn streams_are_armed_before_their_data_move_and_go_as_several_of_at_most_1_mib() {
    rows! { unit:
        "writes", done(unit.stream_write(0x8_0000_0100, &bytes("05*65536.06*8"))),
            "40F0 600F 0100 0C00+0001000008.00*3.02400000, out 05*65536, out 06*8", "done";
        "reads", found(0x1_000C, |to| unit.stream_read(0x1000, to)),
            "40F0 200F 0200 0C00+0010.00*6.03400000, in 65536: 05*65536, in 12: 06*12", "05*65536.06*12";
        "no whole dword", found(3, |to| unit.stream_read(0, to)), "", "asm2464::control::length";
        "no dword's address", found(4, |to| unit.stream_read(2, to)), "", "asm2464::control::length";
        "no data", done(unit.stream_write(0x1000, &[])), "", "done";
        "past the last address", done(unit.stream_write(u64::MAX - 3, &[0; 8])), "", "asm2464::control::length";
    }
    type Stream = fn(&mut OpenBridge, &mut [u8]) -> Result<(), ControlError>;
    let both: [(Stream, [u8; 4]); 2] = [
        (|unit, data| unit.stream_write(0x8_FFF0_0000, data), [0x60, 0x0F, 1, 0]),
        (|unit, data| unit.stream_read(0x8_FFF0_0000, data), [0x20, 0x0F, 2, 0]),
    ];
    for (stream, [format, enables, mode, zero]) in both {
        let (mut unit, log) = unit([]);
        stream(&mut unit, &mut vec![7; 0x10_0000 * 2 + 8]).unwrap();
        let armed: Vec<Sent> = sent(&log).into_iter().filter(|sent| matches!(sent, Sent::Control(..))).collect();
        let counts = [(0x8_FFF0_0000_u64, 0x4_0000_u32), (0x9_0000_0000, 0x4_0000), (0x9_0010_0000, 2)];
        let expected = counts.map(|(address, dwords)| {
            let data = [&address.to_le_bytes()[..], &dwords.to_le_bytes()].concat();
            Sent::Control([0x40, 0xF0, format, enables, mode, zero, 12, 0], data)
        });
        assert_eq!(armed, expected);
        assert_eq!(log.lock().unwrap().most_in_flight, 16, "a stream's data, without the request");
    }
}

#[test]
fn memory_at_any_address_goes_by_single_tlps_at_the_ends_and_by_a_stream_in_between() {
    rows! { unit:
        "a write with both ends", done(unit.memory_write(0x13, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])),
            "40F0 6008 0000 0C00+10.00*10.01, 40F0 600F 0100 0C00+14.00*7.02000000, out 0203040506070809, \
             40F0 6001 0000 0C00+1C.00*7.0A000000", "done";
        "within a dword", done(unit.memory_write(0x11, &[1, 2])), "40F0 6006 0000 0C00+10.00*8.010200", "done";
        "a dword", done(unit.memory_write(0x20, &[1, 2, 3, 4])), "40F0 600F 0000 0C00+20.00*7.01020304", "done";
        "nothing", done(unit.memory_write(0x23, &[])), "", "done";
        "one dword between the ends", done(unit.memory_write(0x11, &[1, 2, 3, 4, 5, 6, 7, 8, 9])),
            "40F0 600E 0000 0C00+10.00*8.010203, 40F0 600F 0000 0C00+14.00*7.04050607, \
             40F0 6003 0000 0C00+18.00*7.08090000", "done";
        "a read with both ends", found(10, |to| unit.memory_read(0x13, to)),
            "40F0 2008 0000 0C00+10.00*11, COMPLETION: 09090901.00*4, 40F0 200F 0200 0C00+14.00*7.02.00*3, \
             in 8: 0203040506070809, 40F0 2001 0000 0C00+1C.00*11, COMPLETION: 0A090909.00*4",
            "01.02.03.04.05.06.07.08.09.0A";
        "a read within a dword", found(2, |to| unit.memory_read(0x11, to)),
            "40F0 2006 0000 0C00+10.00*11, COMPLETION: 09010209.00*4", "01.02";
        "a dword", found(4, |to| unit.memory_read(0x20, to)),
            "40F0 200F 0000 0C00+20.00*11, COMPLETION: 03040506.00*4", "03.04.05.06";
        "past the end", found(2, |to| unit.memory_read(u64::MAX, to)), "", "asm2464::control::length";
    }
}

#[test]
fn a_completion_with_an_error_status_is_an_error_and_one_that_may_pass_is_tried_again() {
    let ended = |header, result| [Ok(vec![]), Ok(vec![7, 0, 0, 0, header, 0, 0, result])];
    let (retry, timed_out, failed, unsupported) = (ended(0x40, 0), ended(0, 0xFF), ended(0, 1), ended(0x20, 0));
    let read = Tlp::memory_read(0x1000);
    for passing in [&retry, &timed_out, &failed, &[Ok(vec![]), Ok(vec![])], &[Ok(vec![]), Err(PipeError::Overflow)]] {
        for (attempts, expected) in [(3, Some(7)), (2, None)] {
            let (mut unit, log) = unit([&passing[..], passing, &ended(0, 0)].concat());
            assert_eq!(unit.attempt(attempts, Duration::ZERO, |unit| unit.dword(&read)).ok(), expected);
            assert_eq!(sent(&log).len(), 2 * attempts as usize);
        }
    }
    let (mut unit, log) = unit(unsupported);
    let error = unit.attempt(10, Duration::ZERO, |unit| unit.dword(&read)).unwrap_err();
    assert_eq!((error.code(), sent(&log).len()), ("asm2464::pcie::unsupported", 2));
    assert_eq!(error.to_string(), "memory read at 0x1000 ended with: unsupported request");
    for lasting in [PipeError::Disconnected, PipeError::Timeout, PipeError::Stall] {
        let (mut unit, log) = self::unit([Err(lasting)]);
        assert!(unit.attempt(10, Duration::ZERO, |unit| unit.dword(&read)).is_err());
        assert!(sent(&log).len() <= 2);
    }
}

/// Bulk data of 4 bytes a job, with a pause before each submission.
struct Jobs {
    left: VecDeque<Endpoint>,
    is_timed: bool,
    elapsed: Vec<Duration>,
}

const PAUSE: Duration = Duration::from_millis(1);

impl OpenWorkload for Jobs {
    fn is_timed(&self) -> bool {
        self.is_timed
    }

    fn next(&mut self) -> Option<OpenJob> {
        std::thread::sleep(PAUSE);
        self.left.pop_front().map(|endpoint| OpenJob::Bulk(endpoint, 4))
    }

    fn complete(&mut self, _: OpenJob, _: &[u8], elapsed: Duration) -> Result<(), ControlError> {
        self.elapsed.push(elapsed);
        Ok(())
    }
}

#[test]
fn a_workload_that_wants_times_gets_them_from_submission_to_end() {
    for is_timed in [false, true] {
        let mut work = Jobs { left: [Endpoint::DataOut; 2].into(), is_timed, elapsed: Vec::new() };
        unit([]).0.run(&mut work).unwrap();
        assert_eq!(work.elapsed.iter().filter(|elapsed| **elapsed >= PAUSE).count(), if is_timed { 2 } else { 0 });
    }
}

#[test]
fn data_from_the_unit_waits_until_the_data_to_it_have_moved() {
    let (mut unit, log) = unit([]);
    let left = [Endpoint::DataOut, Endpoint::DataIn].into();
    unit.run(&mut Jobs { left, is_timed: false, elapsed: Vec::new() }).unwrap();
    assert_eq!(sent(&log), [Sent::Out(vec![0; 4]), Sent::In(4)]);
    assert_eq!(log.lock().unwrap().most_in_flight, 1);
}

fn arm(unit: &mut OpenBridge, to_host: bool, sectors: u16) {
    unit.arm_sram(SramTransfer { to_host, first_slot: 0, sectors }).unwrap();
}

/// Sends an F2. Returns whether the bridge asked for the DMA's state before it.
fn asks(unit: &mut OpenBridge, log: &Arc<Mutex<Log>>) -> bool {
    sent(log);
    arm(unit, true, 1);
    let sent = sent(log);
    let [unasked, asked] = ["40F2 0180 0001 0000", "DMA, 40F2 0180 0001 0000"].map(|text| wire(text).0);
    assert!(sent == unasked || sent == asked, "{sent:?}");
    sent == asked
}

#[test]
fn f2_asks_whether_the_dma_is_idle_unless_its_own_last_data_have_all_moved() {
    type Between = fn(&mut OpenBridge);
    let cases: [(&str, bool, Between); 17] = [
        ("nothing", false, |_| {}),
        ("an F2 in two pieces", false, |unit| {
            arm(unit, true, 2);
            unit.bulk_in(&mut [0; 512]).unwrap();
            unit.bulk_in(&mut [0; 512]).unwrap();
        }),
        ("E4", false, |unit| unit.xdata_read(main(0), &mut [0; 300]).unwrap()),
        ("C0", false, |unit| unit.supply().map(drop).unwrap()),
        ("a stream of writes", false, |unit| unit.stream_write(0x1000, &[0; 512]).unwrap()),
        ("a stream of reads", false, |unit| unit.stream_read(0x1000, &mut [0; 512]).unwrap()),
        ("a posted TLP", false, |unit| unit.tlps(&[Tlp::memory_write(0x1000, 1)]).map(drop).unwrap()),
        ("a TLP", false, |unit| unit.tlps(&[Tlp::memory_read(0x1000)]).map(drop).unwrap()),
        ("an F2 whose data go both ways", true, |unit| {
            arm(unit, true, 2);
            unit.bulk_out(&[0; 512]).unwrap();
            unit.bulk_in(&mut [0; 512]).unwrap();
        }),
        ("a port reset", true, |unit| unit.reset_port().unwrap()),
        ("E5", true, |unit| unit.xdata_write(main(0xC412), 3).unwrap()),
        ("F3", true, |unit| unit.pcie_power(true).unwrap()),
        ("an F2 without data", true, |unit| arm(unit, false, 2)),
        ("an F2 with half its data", true, |unit| {
            arm(unit, false, 2);
            unit.bulk_out(&[0; 512]).unwrap();
        }),
        ("an F2 whose data a stream took", true, |unit| {
            arm(unit, false, 1);
            unit.stream_write(0x1000, &[0; 512]).unwrap();
        }),
        ("an F2 with data the other way", true, |unit| {
            arm(unit, true, 1);
            unit.bulk_out(&[0; 512]).unwrap();
        }),
        ("an F2 with too much data", true, |unit| {
            arm(unit, false, 1);
            unit.bulk_out(&[0; 1024]).unwrap();
        }),
    ];
    for (name, expected, between) in cases {
        let (mut unit, log) = unit([]);
        assert!(asks(&mut unit, &log), "the first F2");
        unit.bulk_in(&mut [0; 512]).unwrap();
        between(&mut unit);
        assert_eq!(asks(&mut unit, &log), expected, "{name}");
    }
}

#[test]
fn f2_asks_again_after_one_that_failed_and_after_any_request_that_failed() {
    type Fails = fn(&mut OpenBridge) -> Result<(), ControlError>;
    let f2: Fails = |unit| unit.sram_write(0, &[0; 512]);
    let cases: [(&str, usize, Fails); 3] =
        [("F2", 0, f2), ("its data", 1, f2), ("E4", 0, |unit| unit.xdata_read(main(0), &mut [0]))];
    for (name, before, fails) in cases {
        let (mut unit, log) = unit([]);
        unit.sram_write(0, &[0; 512]).unwrap();
        log.lock().unwrap().answers.extend(vec![None; before]);
        log.lock().unwrap().answers.push_back(Some(Err(PipeError::Stall)));
        assert!(fails(&mut unit).is_err());
        assert!(asks(&mut unit, &log), "{name}");
    }
}

#[test]
fn f2_is_armed_only_for_what_fits_and_only_while_0xc450_reads_0() {
    rows! { unit:
        "busy twice", done(unit.sram_write(3, &bytes("A5*66048"))),
            "DMA: 02, DMA: 02, DMA: 00, 40F2 8100 0305 0000, out A5*65536, out A5*512", "done";
        "busy for good", {
                unit.set_timeout(Duration::ZERO);
                done(unit.sram_write(0, &[0; 512]))
            },
            "DMA: 02", "the SRAM DMA has been busy for 0ns: XDATA 0xC450 reads 0x02";
        "no data", done(unit.sram_write(0, &[])), "", "asm2464::control::length";
        "no sector", done(unit.sram_write(0, &[0; 511])), "", "asm2464::control::length";
        "too much", done(unit.sram_write(0, &[0; 0x8_0200])), "", "asm2464::control::length";
        "too much behind slot 31", done(unit.sram_write(31, &[0; 0x4200])), "", "asm2464::control::length";
        "slot 32", done(unit.sram_write(32, &[0; 512])), "", "asm2464::control::length";
    }
    for (first_slot, sectors) in [(0, 1024), (31, 32)] {
        unit([]).0.arm_sram(SramTransfer { to_host: false, first_slot, sectors }).unwrap();
    }
}

#[test]
fn a_window_is_taken_when_the_device_has_written_its_sentinel_to_the_fence() {
    const SENTINEL: NonZeroU32 = NonZeroU32::new(0x0403_0201).unwrap();
    // The fence is cleared; F2 asks whether the DMA is idle, and arms it; the data and the sentinel move.
    rows! { unit:
        "taken after a while", done(unit.sram_write_taken(2, &[7; 512], SENTINEL)),
            "40E5 00A8 0000 0000, 40E5 01A8 0000 0000, 40E5 02A8 0000 0000, 40E5 03A8 0000 0000, DMA, \
             40F2 0200 0201 0000, out 07*512, out 01020304*128, C0E4 00A8 0000 0400: 00*4, \
             C0E4 00A8 0000 0400: 01020304",
            "done";
        "not taken", { unit.set_timeout(Duration::ZERO); done(unit.sram_write_taken(2, &[7; 512], SENTINEL)) },
            "40E5 00A8 0000 0000, 40E5 01A8 0000 0000, 40E5 02A8 0000 0000, 40E5 03A8 0000 0000, DMA, \
             40F2 0200 0201 0000, out 07*512, out 01020304*128, C0E4 00A8 0000 0400: 01020300",
            "no device has taken the data in the SRAM within 0ns: XDATA 0xA800 reads 0x00030201, expected 0x04030201";
    }
}

/// What asks a flag that is set.
fn stopped() -> Interrupt<'static> {
    static STOP: AtomicBool = AtomicBool::new(true);
    Interrupt::watching(&STOP)
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn pcie_is_switched_by_f3_its_link_is_up_at_78_and_awaited_either_way() {
    rows! { unit:
        "F3 on", done(unit.pcie_power(true)), "40F3 0100 0000 0000", "done";
        "F3 off", done(unit.pcie_power(false)), "40F3 0000 0000 0000", "done";
        "up", debug(unit.link()), "LTSSM: 78", "Link { ltssm: 120, is_up: true }";
        "down", debug(unit.link()), "LTSSM: 11", "Link { ltssm: 17, is_up: false }";
        "a link that is up is left alone", done(unit.bring_link_up(Duration::ZERO, Interrupt::never())),
            "LTSSM: 78", "done";
        "one that is down is switched on and awaited", done(unit.bring_link_up(MINUTE, Interrupt::never())),
            "LTSSM: 00, 40F3 0100 0000 0000, LTSSM: 11, LTSSM: 78", "done";
        "by a build without F3 as well", done(unit.bring_link_up(MINUTE, Interrupt::never())),
            "LTSSM: 00, 40F3 0100 0000 0000: stall, LTSSM: 11, LTSSM: 78", "done";
        "one that trains comes up by itself", done(unit.bring_link_up(MINUTE, Interrupt::never())),
            "LTSSM: 4C, LTSSM: 4C, LTSSM: 78", "done";
        "one whose training fails is switched on", done(unit.bring_link_up(MINUTE, Interrupt::never())),
            "LTSSM: 4C, LTSSM: 00, 40F3 0100 0000 0000, LTSSM: 78", "done";
        "one whose training doesn't end, too, after the deadline", done(unit.bring_link_up(Duration::ZERO, Interrupt::never())),
            "LTSSM: 4C, 40F3 0100 0000 0000, LTSSM: 78", "done";
        "one that stays down is an error with the supply", done(unit.bring_link_up(Duration::ZERO, Interrupt::never())),
            "LTSSM: 00, 40F3 0100 0000 0000, LTSSM: 11, C0C0 0000 0000 0500: 3412000000",
            "the PCIe link is down after 0ns: XDATA 0xB450 reads 0x11 (it detects a device and tries to reach it), \
             expected 0x78; the supply is at 4660 mV";
        "a unit that goes at F3", done(unit.bring_link_up(MINUTE, Interrupt::never())),
            "LTSSM: 00, 40F3 0100 0000 0000: gone", "asm2464::control::disconnected";
        "a unit that is silent at F3", done(unit.bring_link_up(MINUTE, Interrupt::never())),
            "LTSSM: 00, 40F3 0100 0000 0000: timeout", "asm2464::control::timeout";
        // Neither up nor in Detect: what is behind it may still be linked.
        "taken down by F3 and awaited until it is in Detect", debug(unit.take_link_down(MINUTE, Interrupt::never())),
            "40F3 0000 0000 0000, LTSSM: 78, LTSSM: 48, LTSSM: 10, C0E4 50B4 0000 0100: 01",
            "Link { ltssm: 1, is_up: false }";
        "one that stays up is returned as it is", debug(unit.take_link_down(Duration::ZERO, Interrupt::never())),
            "40F3 0000 0000 0000, LTSSM: 78", "Link { ltssm: 120, is_up: true }";
        "a build without F3", debug(unit.take_link_down(Duration::ZERO, Interrupt::never())),
            "40F3 0000 0000 0000: stall", "asm2464::control::stalled";
    }
    let (mut unit, _) = unit([]);
    assert_eq!(unit.bring_link_up(MINUTE, stopped()), Err(ControlError::Interrupted(Interrupted)));
    let (mut unit, _) = self::unit([Ok(vec![]), Ok(vec![0x78])]);
    assert_eq!(unit.take_link_down(MINUTE, stopped()), Err(ControlError::Interrupted(Interrupted)));
}

#[test]
fn c0_returns_the_fault_line_and_the_voltage_and_current_if_the_board_measures_them() {
    rows! { unit:
        "measured", debug(unit.supply()), "C0C0 0000 0000 0500: E02E9CFF00",
            "Some(Supply { measured: Some(SupplyMeasurement { voltage_mv: 12000, current_ma: -100 }), \
             has_fault: Some(false) })";
        "zeros are no measurement", debug(unit.supply()), "C0C0 0000 0000 0500: 00*5",
            "Some(Supply { measured: None, has_fault: Some(false) })";
        "a fault", debug(unit.supply()), "C0C0 0000 0000 0500: 00009CFF01",
            "Some(Supply { measured: Some(SupplyMeasurement { voltage_mv: 0, current_ma: -100 }), \
             has_fault: Some(true) })";
        "a build of June or July", debug(unit.supply()), "C0C0 0000 0000 0500: E02E9CFF",
            "Some(Supply { measured: Some(SupplyMeasurement { voltage_mv: 12000, current_ma: -100 }), \
             has_fault: None })";
        "less than voltage and current", debug(unit.supply()), "C0C0 0000 0000 0500: E02E9C", "None";
        "refused", debug(unit.supply()), "C0C0 0000 0000 0500: stall", "None";
        "silent to it alone", debug(unit.supply()), "C0C0 0000 0000 0500: timeout, LTSSM: 78", "None";
        "a unit that answers nothing", debug(unit.supply()), "C0C0 0000 0000 0500: timeout, LTSSM: timeout",
            "asm2464::control::timeout";
    }
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
        let (mut unit, _) = unit([Ok(vec![1; 255]), Err(failure)]);
        let error = unit.xdata_read(main(0), &mut [0; 2000]).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains("E4 (read XDATA 0x00FF)"), "{error}");
        unit.xdata_read(main(0), &mut [0; 2000]).unwrap();
    }
}

#[test]
fn bulk_pipes_that_hang_while_requests_are_answered_have_another_error_than_a_silent_unit() {
    for (answer, answers) in [(Ok(vec![IDLE]), true), (Err(PipeError::Timeout), false)] {
        let (mut unit, _) = unit([Ok(vec![]), Err(PipeError::Timeout), answer]);
        let error = unit.stream_write(0, &[0; 64]).unwrap_err();
        assert!(matches!(error, ControlError::BulkTimeout { answers: found, .. } if found == answers), "{error}");
        assert!(error.to_string().contains("stream of memory writes"), "{error}");
    }
}

#[test]
fn transfers_that_return_newest_first_say_so_unless_the_unit_is_gone() {
    let gone = vec![Err(PipeError::Disconnected); 4];
    for (answers, says) in [(gone, "the unit disappeared"), (vec![], "out of order")] {
        let (mut unit, log) = unit(answers);
        log.lock().unwrap().is_reversed = true;
        let error = unit.xdata_read(main(0), &mut [0; 1000]).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
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
        unit.xdata_write(main(0), 0).unwrap();
    }
    // One whose requests all fail is asked for a second, and is not gone.
    let (mut unit, log) = unit(vec![broken(); 100]);
    assert_eq!(unit.bulk_out(&[0; 512]).unwrap_err().code(), "asm2464::control::io");
    assert!(!log.lock().unwrap().answers.is_empty());
}

#[test]
fn cancelled_transfers_are_waited_for_and_fail_no_later_request() {
    let cases: [fn(&mut Log, bool); 2] = [|log, is_on| log.is_late = is_on, |log, is_on| log.keeps_cancelled = is_on];
    for (number, set) in cases.into_iter().enumerate() {
        let (mut unit, log) = unit([Err(PipeError::Stall)]);
        set(&mut log.lock().unwrap(), true);
        unit.xdata_read(main(0), &mut [0; 2000]).unwrap_err();
        set(&mut log.lock().unwrap(), number == 0);
        unit.xdata_read(main(0), &mut [0; 2000]).unwrap();
    }
}

#[test]
fn a_restart_may_stay_unanswered_but_a_refusal_is_an_error() {
    rows! { unit:
        "a reset of the CPU", done(unit.restart_cpu()), "40E5 31CC 0100 0000", "done";
        "silent", done(unit.restart_cpu()), "40E5 31CC 0100 0000: timeout", "done";
        "gone", done(unit.restart_cpu()), "40E5 31CC 0100 0000: gone", "done";
        "refused", done(unit.restart_cpu()), "40E5 31CC 0100 0000: stall", "asm2464::control::stalled";
        "F4", done(unit.restart_at_super_speed()), "40F4 0100 0000 0000", "done";
        "gone", done(unit.restart_at_super_speed()), "40F4 0100 0000 0000: gone", "done";
        "refused", done(unit.restart_at_super_speed()), "40F4 0100 0000 0000: stall", "asm2464::control::stalled";
    }
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
    let (mut unit, log) = unit([]);
    unit.strobe_engines().unwrap();
    let owners = [(0xC412, 0), (0xC42A, 1), (0xC42A, 0), (0x9094, 1), (0x9094, 8), (0x9093, 2), (0x81, 0), (0x02, 0)];
    let firmware =
        [(0xC42A, 1), (0x900B, 1), (0xC42A, 8), (0xC42A, 0), (0x900B, 0), (0xC42A, 0), (0xB298, 4), (0xB298, 0)];
    assert_eq!(written(&log), [owners, firmware].concat());

    let (mut unit, log) = self::unit([vec![Ok(vec![]); 6], vec![Ok(vec![0x57]); 16]].concat());
    unit.strobe_engines().unwrap();
    assert_eq!(written(&log)[8..12], [(0xC42A, 0x57), (0x900B, 0x57), (0xC42A, 0x5F), (0xC42A, 0x56)]);
}

#[test]
fn bulk_data_must_arrive_as_they_were_sent_and_no_dma_may_wait_and_a_pipe_that_halts_is_freed() {
    rows! { unit:
        "they arrive", done(unit.check_bulk()),
            "DMA: 00, 40E5 9490 1000 0000, C0E4 0070 0000 4000: 0F*64, out F0*64, C0E4 0070 0000 4000: F0*64", "done";
        "they don't", done(unit.check_bulk()),
            "DMA: 00, 40E5 9490 1000 0000, C0E4 0070 0000 4000: 0F*64, out F0*64, C0E4 0070 0000 4000: 0F*64",
            "asm2464::control::malformed";
        "a DMA waits", done(unit.check_bulk()), "DMA: 02", "asm2464::control::sram_busy";
        "a pipe that hangs is disarmed", done(unit.check_bulk()),
            "DMA: 00, 40E5 9490 1000 0000, C0E4 0070 0000 4000: 0F*64, out F0*64: timeout, DMA, \
             40E5 9490 0800 0000", "asm2464::control::bulk_timeout";
        "one that halts is freed", found(64, |to| unit.stream_read(0, to)),
            "40F0 200F 0200 0C00+00*8.10000000, in 64: stall, clear in", "asm2464::control::io";
    }
}
