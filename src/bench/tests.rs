//! Tests of the bench on a small unit. A test can set every property of it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::scsi::{Cdb, Lun, ScsiStatus, Sense, XdataAddress};
use asm2464::{AnyFailure, Coded as _, Kind};
use asm2464_host::bridge::{
    Bridge, CommandEnd, DataPhase, JobData, Transport, TransportError, TransportErrorKind, TransportKind, Workload,
};

use super::comparison::{AskedRows, ComparedRow, RowChange};
use super::*;

/// A unit with only SRAM and XDATA. It refuses WRITE(16) before the runtime's initialisation. Afterwards each WRITE(16)
/// takes the next free slot.
#[derive(Debug)]
struct FakeUnit {
    buffer: Vec<u8>,
    extended: bool,
    /// Maximum number of bytes that one E4 returns.
    e4_most: usize,
    ssd: bool,
    /// Whether it lists LUN 1, with an SSD.
    has_second_bay: bool,
    reads: bool,
    writes: bool,
    corrupts: Option<usize>,
    written: usize,
    recovered: usize,
    kind: TransportKind,
    xdata: BTreeMap<u16, u8>,
    used: usize,
    identify: Identify,
    identified: usize,
}

/// The answer to E6.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Identify {
    Refused,
    Unknown,
    Silent,
}

fn unit() -> FakeUnit {
    FakeUnit {
        buffer: vec![0; 512 * 1024],
        extended: false,
        e4_most: usize::MAX,
        ssd: false,
        has_second_bay: false,
        reads: true,
        writes: true,
        corrupts: None,
        written: 0,
        recovered: 0,
        kind: TransportKind::UasStreams,
        xdata: BTreeMap::new(),
        used: 0,
        identify: Identify::Refused,
        identified: 0,
    }
}

impl FakeUnit {
    fn e4_len(&self, bytes: &[u8], wanted: usize) -> usize {
        let long = if self.extended { usize::from(bytes[5]) << 8 } else { 0 };
        (long + usize::from(bytes[1])).min(wanted).min(self.e4_most)
    }

    fn is_initialised(&self) -> bool {
        asm2464::scsi::runtime::INITIALISED.iter().all(|(at, value)| self.xdata.get(at) == Some(value))
    }

    /// The byte in XDATA. The version is 240417's, whose variables the initialisation sets.
    fn byte_at(&self, at: u16) -> u8 {
        const VERSION: [u8; 6] = [0x24, 0x04, 0x17, 0x85, 0x00, 0x00];
        let of_version = at.checked_sub(XdataAddress::VERSION.addr).and_then(|at| VERSION.get(usize::from(at)));
        of_version.or_else(|| self.xdata.get(&at)).copied().unwrap_or(0)
    }

    fn set_xdata(&mut self, at: u16, value: u8) {
        self.xdata.insert(at, value);
        match at {
            0xCE6F if self.used == 1 => self.used = 0,
            0xCE43 if value == 0 => self.used = 0,
            _ => {}
        }
    }

    fn answer(&mut self, lun: Lun, cdb: &Cdb, data: DataPhase<'_>) -> Result<CommandEnd, TransportError> {
        let good = |transferred| Ok(CommandEnd { transferred, status: ScsiStatus::Good, sense: None });
        let check = |sense| Ok(CommandEnd { transferred: 0, status: ScsiStatus::CheckCondition, sense: Some(sense) });
        let silent =
            || Err(TransportErrorKind::Timeout { deadline: Duration::from_millis(1) }.during("a test command"));
        let bytes = cdb.padded();
        let at = u32::from_be_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]) as usize * 512;
        match (cdb.opcode(), data) {
            (0x00, _) => good(0),
            (0xA0, DataPhase::In(data)) if self.has_second_bay => {
                data[..24].copy_from_slice(&[0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
                good(24)
            }
            (0xA0, _) => check(Sense::INVALID_OPCODE),
            (0x12, DataPhase::In(data)) if lun != Lun::ZERO => {
                data.fill(b' ');
                good(data.len())
            }
            (0x25, DataPhase::In(data)) if self.ssd || lun != Lun::ZERO => {
                data.copy_from_slice(&[0, 0, 0x0F, 0xFF, 0, 0, 2, 0]);
                good(8)
            }
            (0x25 | 0xE6, _) if self.is_initialised() => {
                panic!("an initialised unit must not get command {:#04x}", bytes[0])
            }
            (0x25, _) => check(Sense::MEDIUM_NOT_PRESENT),
            (0xE6, _) => {
                self.identified += 1;
                match self.identify {
                    Identify::Refused => check(Sense::MEDIUM_NOT_PRESENT),
                    Identify::Unknown => check(Sense::INVALID_OPCODE),
                    Identify::Silent => silent(),
                }
            }
            (0x88 | 0x8A, _) if !self.ssd && !self.is_initialised() => check(Sense::MEDIUM_NOT_PRESENT),
            (0x8A, DataPhase::Out(data)) if self.writes => {
                let at = self.used * 0x4000;
                self.used += data.len().div_ceil(0x4000);
                if self.used > 32 {
                    return silent();
                }
                self.written += data.len();
                self.buffer[at..at + data.len()].copy_from_slice(data);
                if let Some(corrupt) = self.corrupts {
                    self.buffer[corrupt] ^= 0xFF;
                }
                good(data.len())
            }
            (0x88, DataPhase::None) => good(0),
            (0x88, DataPhase::In(data)) if self.reads => {
                let len = data.len();
                data.copy_from_slice(&self.buffer[at..at + len]);
                good(len)
            }
            (0x88 | 0x8A, _) => silent(),
            (0xE4, DataPhase::In(data)) if bytes[3] < 0xF0 => {
                let len = self.e4_len(bytes, data.len());
                let from = u16::from_be_bytes([bytes[3], bytes[4]]);
                (from..).zip(&mut data[..len]).for_each(|(at, byte)| *byte = self.byte_at(at));
                good(len)
            }
            (0xE5, _) => {
                self.set_xdata(u16::from_be_bytes([bytes[3], bytes[4]]), bytes[1]);
                good(0)
            }
            (0xE4, DataPhase::In(data)) => {
                let len = self.e4_len(bytes, data.len());
                let at = usize::from(u16::from_be_bytes([bytes[3], bytes[4]])) - 0xF000;
                data[..len].copy_from_slice(&self.buffer[at..at + len]);
                good(len)
            }
            (other, _) => panic!("the bench must not send {other:#04x}"),
        }
    }
}

/// A unit as a bridge's transport, which the test looks at afterwards.
struct Wire(Arc<Mutex<FakeUnit>>);

impl Transport for Wire {
    fn kind(&self) -> TransportKind {
        self.0.lock().unwrap().kind
    }

    fn max_depth(&self) -> usize {
        4
    }

    fn execute_on(
        &mut self,
        lun: Lun,
        cdb: &Cdb,
        data: DataPhase<'_>,
        _timeout: Duration,
    ) -> Result<CommandEnd, TransportError> {
        self.0.lock().unwrap().answer(lun, cdb, data)
    }

    fn run(&mut self, workload: &mut dyn Workload, _depth: usize, _timeout: Duration) -> Result<(), TransportError> {
        let mut unit = self.0.lock().unwrap();
        let mut buffer = vec![0; workload.buffer_len()];
        while let Some(job) = workload.next(&mut buffer) {
            let (completion, came) = match job.data {
                JobData::None => (unit.answer(job.lun, &job.cdb, DataPhase::None)?, 0),
                JobData::In(len) => (unit.answer(job.lun, &job.cdb, DataPhase::In(&mut buffer[..len]))?, len),
                JobData::Out(len) => (unit.answer(job.lun, &job.cdb, DataPhase::Out(&buffer[..len]))?, 0),
            };
            if !workload.complete(&job, &completion, &buffer[..came], Duration::from_micros(10)) {
                break;
            }
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<(), TransportError> {
        let mut unit = self.0.lock().unwrap();
        unit.recovered += 1;
        unit.xdata.clear();
        unit.used = 0;
        Ok(())
    }
}

fn plan(paths: &[DataPath]) -> BenchPlan {
    let millisecond = Duration::from_millis(1);
    let effort = Effort { warm_up: millisecond, repetition: millisecond, repetitions: 3, timeout: millisecond };
    BenchPlan::new(paths.iter().copied(), effort, 42)
}

fn bench(unit: FakeUnit, plan: &BenchPlan) -> (Result<BenchReport, AnyFailure>, FakeUnit) {
    let unit = Arc::new(Mutex::new(unit));
    let mut bridge = Bridge::new(Box::new(Wire(unit.clone())), BridgeState::Vendor);
    let who = BenchUnit { device: "test".to_owned(), ..BenchUnit::default() };
    let report = run(&mut bridge, who, plan, Interrupt::never(), &mut |_| {});
    drop(bridge);
    (report, Arc::into_inner(unit).unwrap().into_inner().unwrap())
}

#[test]
fn a_good_unit_gives_a_row_for_each_path_and_every_byte_compared() {
    let (report, _) = bench(FakeUnit { extended: true, ..unit() }, &plan(&DataPath::scsi()));
    let report = report.unwrap();
    assert_eq!(report.rows.iter().map(|row| row.point.path).collect::<Vec<_>>(), DataPath::scsi());
    let (read, rows) = report.rows.split_last().unwrap();
    assert_eq!(read.outcome, Outcome::NotRun { reason: Skip::NoCompleter });
    assert!(report.verdict.iter().all(|verdict| verdict.path != DataPath::Read16));
    for row in rows {
        let figures = row.figures().unwrap();
        assert!(figures.commands > 0 && figures.mb_per_s.median > 0.0, "{row:?}");
        assert_eq!((figures.mismatches, figures.compared), (0, row.point.path != DataPath::Write16), "{row:?}");
    }
    let mut printed = serde_json::to_value(&report).unwrap();
    printed["schema"] = SCHEMA.into();
    let compared: Vec<ComparedRow> = report.rows.iter().map(ComparedRow::from).collect();
    assert_eq!(comparison::parse(&printed.to_string()).unwrap(), compared);
}

#[test]
fn the_longer_e4_is_measured_only_where_the_unit_has_it() {
    let (report, _) = bench(unit(), &plan(&DataPath::scsi()));
    let report = report.unwrap();
    assert!(!report.e4_extension && report.rows.iter().all(|row| row.point.path != DataPath::E4Extended));
}

#[test]
fn a_longer_e4_that_ends_well_after_one_packet_is_reported_as_short() {
    let (report, _) = bench(FakeUnit { extended: true, e4_most: 1024, ..unit() }, &plan(&[DataPath::E4Extended]));
    let report = report.unwrap();
    assert_eq!(report.rows[0].outcome, Outcome::Short { expected: 4096, found: 1024 });
    assert!(report.verdict.iter().all(|verdict| !verdict.meets));
}

#[test]
fn nothing_is_written_with_an_ssd_behind_the_bridge() {
    let (report, after) = bench(FakeUnit { ssd: true, ..unit() }, &plan(&DataPath::scsi()));
    assert_eq!(report.unwrap_err().code(), "asmpatch::bench::ssd");
    assert_eq!(after.written, 0);
    let (report, after) = bench(FakeUnit { ssd: true, ..unit() }, &plan(&[DataPath::Read16]));
    assert!(report.unwrap().rows[0].figures().is_some());
    assert_eq!(after.written, 0);
}

#[test]
fn nothing_is_written_with_an_ssd_in_the_second_bay_and_none_in_the_first() {
    let (report, after) = bench(FakeUnit { has_second_bay: true, ..unit() }, &plan(&DataPath::scsi()));
    assert_eq!(report.unwrap_err().code(), "asmpatch::bench::ssd");
    assert_eq!((after.written, after.xdata.len()), (0, 0));
    // READ(16) goes to LUN 0, which has none.
    let (report, _) = bench(FakeUnit { has_second_bay: true, ..unit() }, &plan(&[DataPath::Read16]));
    assert_eq!(report.unwrap().rows[0].outcome, Outcome::NotRun { reason: Skip::NoCompleter });
}

#[test]
fn a_unit_that_a_gpu_runtime_has_initialised_is_never_sent_e6_and_never_written() {
    let (report, after) =
        bench(FakeUnit { xdata: asm2464::scsi::runtime::INITIALISED.into(), ..unit() }, &plan(&DataPath::scsi()));
    assert_eq!(report.unwrap_err().code(), "asmpatch::bench::unknown_behind");
    assert_eq!((after.written, after.identified), (0, 0));
    let (report, after) =
        bench(FakeUnit { xdata: asm2464::scsi::runtime::INITIALISED.into(), ..unit() }, &plan(&[DataPath::E4Stock]));
    let report = report.unwrap();
    assert!(report.unit.behind.contains("can't tell") && report.rows[0].figures().is_some(), "{report:?}");
    assert_eq!(after.identified, 0);
}

#[test]
fn an_identify_without_an_answer_is_no_proof_that_there_is_no_ssd() {
    let (report, after) = bench(FakeUnit { identify: Identify::Silent, ..unit() }, &plan(&DataPath::scsi()));
    assert_eq!(report.unwrap_err().code(), "asmpatch::bench::unknown_behind");
    assert_eq!((after.written, after.identified, after.recovered), (0, 1, 1));
    // A capacity means that there is an SSD, even if it has no name.
    let (report, _) = bench(FakeUnit { ssd: true, identify: Identify::Silent, ..unit() }, &plan(&DataPath::scsi()));
    assert_eq!(report.unwrap_err().code(), "asmpatch::bench::ssd");
}

#[test]
fn a_unit_that_does_not_know_e6_is_not_written() {
    let (report, after) = bench(FakeUnit { identify: Identify::Unknown, ..unit() }, &plan(&DataPath::scsi()));
    assert_eq!(report.unwrap_err().code(), "asmpatch::bench::unknown_behind");
    assert_eq!((after.written, after.xdata.len()), (0, 0));
}

#[test]
fn paths_that_need_no_initialisation_send_none() {
    let (report, after) = bench(unit(), &plan(&[DataPath::E4Stock, DataPath::Read16]));
    assert!(report.unwrap().integrity.is_none() && after.xdata.is_empty());
    let (report, after) = bench(FakeUnit { kind: TransportKind::BulkOnly, ..unit() }, &plan(&DataPath::scsi()));
    let rows = report.unwrap().rows;
    let not_run = rows.iter().filter(|row| matches!(row.outcome, Outcome::NotRun { .. })).map(|row| row.point.path);
    assert_eq!(not_run.collect::<Vec<_>>(), [DataPath::Write16, DataPath::Read16]);
    assert!(after.xdata.is_empty() && after.written == 0);
}

#[test]
fn a_path_of_other_firmware_is_not_run() {
    let (report, after) = bench(unit(), &plan(&[DataPath::F2Out]));
    let outcomes: Vec<Outcome> = report.unwrap().rows.into_iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Outcome::NotRun { reason: Skip::OtherFirmware }]);
    assert_eq!(after.written, 0);
}

#[test]
fn after_the_last_write_every_slot_is_free() {
    let (report, after) = bench(unit(), &plan(&DataPath::scsi()));
    report.unwrap();
    assert!(after.written > 0 && after.is_initialised());
    assert_eq!(after.used, 0);
}

#[test]
fn a_read_that_nobody_answers_times_out_once_and_the_unit_is_recovered_and_initialised_again() {
    let sweep = BenchPlan { sweep: true, reads_without_ssd: true, ..plan(&DataPath::scsi()) };
    let (report, after) = bench(FakeUnit { reads: false, ..unit() }, &sweep);
    let report = report.unwrap();
    let reads: Vec<_> = report.rows.iter().filter(|row| row.point.path == DataPath::Read16).collect();
    assert!(reads.len() > 1 && reads.iter().all(|row| matches!(row.outcome, Outcome::NoAnswer { .. })));
    assert_eq!(after.recovered, 1);
    assert!(after.is_initialised());
    assert!(report.rows.iter().any(|row| row.point.path == DataPath::Write16 && row.figures().is_some()));
}

#[test]
fn an_unpatched_unit_that_never_answers_writes_says_so() {
    let (report, _) = bench(FakeUnit { writes: false, reads: false, ..unit() }, &plan(&DataPath::scsi()));
    let report = report.unwrap();
    assert!(matches!(report.integrity.as_ref().unwrap().write16, Some(Outcome::NoAnswer { .. })));
    let write = report.rows.iter().find(|row| row.point.path == DataPath::Write16).unwrap();
    assert!(matches!(write.outcome, Outcome::NoAnswer { .. }));
    assert!(!report.verdict.iter().find(|verdict| verdict.path == DataPath::Write16).unwrap().meets);
}

#[test]
fn a_byte_that_comes_back_different_is_found_by_its_offset() {
    let (report, _) = bench(FakeUnit { corrupts: Some(0x0234), ..unit() }, &plan(&DataPath::scsi()));
    let integrity = report.unwrap().integrity.unwrap();
    assert!(matches!(integrity.e4, Some(Outcome::Differs { offset: 0x0234, .. })), "{integrity:?}");
    assert!(integrity.is_corrupt());
}

#[test]
fn ctrl_c_ends_the_bench() {
    let flag = AtomicBool::new(true);
    let unit = Box::new(Wire(Arc::new(Mutex::new(unit()))));
    let (mut bridge, plan) = (Bridge::new(unit, BridgeState::Vendor), plan(&DataPath::scsi()));
    let ended = run(&mut bridge, BenchUnit::default(), &plan, Interrupt::watching(&flag), &mut |_| {});
    assert!(ended.is_err_and(|failure| failure.kind() == Kind::Interrupted));
}

fn changes(before: &BenchReport, now: &BenchReport, asked: AskedRows<'_>, max_slower: f64) -> Vec<RowChange> {
    let before: Vec<ComparedRow> = before.rows.iter().map(ComparedRow::from).collect();
    comparison::compare(&before, &now.rows, asked, max_slower)
}

#[test]
fn a_row_is_worse_than_its_baseline_outside_threshold_and_spread_or_without_figures() {
    let (before, _) = bench(unit(), &plan(&[DataPath::E4Stock, DataPath::Write16]));
    let mut before = before.unwrap();
    let set = |row: &mut Row, [min, median, max]: [f64; 3]| match &mut row.outcome {
        Outcome::Measured(figures) => figures.mb_per_s = Spread { median, min, max },
        other => panic!("{other:?}"),
    };
    let mut now = before.clone();
    set(&mut before.rows[0], [9.0, 10.0, 11.0]);
    let mut compared = |figures: Option<[f64; 3]>, max_slower| {
        match figures {
            Some(figures) => set(&mut now.rows[0], figures),
            None => now.rows[0].outcome = Outcome::NoAnswer { timeout_s: 2.0 },
        }
        let change = changes(&before, &now, AskedRows::default(), max_slower).remove(0);
        (change.to_string(), change.is_worse)
    };
    assert_eq!(compared(Some([7.0, 8.0, 8.05]), 10.0), ("-20.0%".to_owned(), true));
    assert_eq!(compared(Some([7.0, 8.0, 8.9]), 30.0), ("-20.0%".to_owned(), false));
    assert_eq!(compared(Some([7.0, 8.0, 9.5]), 10.0), ("-20.0% (within spread)".to_owned(), false));
    assert_eq!(compared(Some([12.0, 13.0, 14.0]), 10.0), ("+30.0%".to_owned(), false));
    assert_eq!(compared(None, 100.0), ("no figures now".to_owned(), true));
    before.rows.retain(|row| row.point.path == DataPath::Write16);
    let paths = changes(&before, &now, AskedRows::default(), 10.0).into_iter().map(|change| change.point.path);
    assert_eq!(paths.collect::<Vec<_>>(), [DataPath::Write16]);
    assert_eq!(comparison::parse("{}").unwrap_err().code(), "asmpatch::bench::baseline");
    let newer = comparison::parse(r#"{ "schema": 99, "rows": [] }"#).unwrap_err();
    assert_eq!(newer.code(), "asmpatch::bench::baseline_schema");
    assert!(newer.to_string().contains("has schema 99"), "{newer}");
}

#[test]
fn a_row_of_the_baseline_that_this_run_lacks_is_worse_unless_it_was_not_asked_for() {
    let (before, _) = bench(unit(), &plan(&[DataPath::E4Stock, DataPath::Write16]));
    let mut before = before.unwrap();
    let mut now = before.clone();
    now.rows.retain(|row| row.point.path == DataPath::E4Stock);
    let compared = |before: &BenchReport, asked| {
        let changes = changes(before, &now, asked, 1000.0);
        changes
            .into_iter()
            .map(|change| (change.point.path, change.now_depth, change.is_left_out, change.is_worse))
            .collect::<Vec<_>>()
    };
    let rows = before.rows.len();
    let lost: Vec<_> =
        compared(&before, AskedRows::default()).into_iter().filter(|(path, ..)| *path == DataPath::Write16).collect();
    assert!(!lost.is_empty() && lost.iter().all(|(_, _, left_out, worse)| !left_out && *worse), "{lost:?}");
    let e4 = [DataPath::E4Stock];
    let left = compared(&before, AskedRows { paths: &e4, ..AskedRows::default() });
    assert!(
        left.iter().all(|(path, _, left_out, worse)| *left_out == (*path == DataPath::Write16) && !worse),
        "{left:?}"
    );
    let left = compared(&before, AskedRows { sizes: &[7], ..AskedRows::default() });
    assert!(
        left.iter().all(|(path, _, left_out, worse)| *left_out == (*path == DataPath::Write16) && !worse),
        "{left:?}"
    );
    // At other depths the best rows are compared, and the others have no counterpart.
    before.rows.iter_mut().for_each(|row| row.point.depth += 100);
    let moved = compared(&before, AskedRows::default());
    assert_eq!(moved.len(), rows);
    let of_e4 = || moved.iter().filter(|(path, ..)| *path == DataPath::E4Stock);
    assert_eq!(of_e4().filter(|(_, depth, ..)| depth.is_some()).count(), 1, "{moved:?}");
    assert!(of_e4().all(|(_, depth, left_out, _)| depth.is_some() != *left_out), "{moved:?}");
}
