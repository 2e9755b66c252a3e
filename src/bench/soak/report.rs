//! Result of a soak: the JSON of a soak, the source of its table and chart (docs/bench.md describes it), and the counts
//! that fill it while the soak runs.

use std::time::{Duration, Instant};

use asm2464::{Bdf, Kind};
use asm2464_host::bridge::Location;
use asm2464_host::usb::sysfs::Sysfs;
use derive_more::Display;
use serde::Serialize;

use crate::bench::path::DataPath;
use crate::bench::report::{BenchUnit, Outcome};
use crate::bench::row::Halt;

/// Version of the JSON's structure. It increases when a key changes its meaning or disappears.
pub const SOAK_SCHEMA: u32 = 4;

/// Result of a soak.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SoakReport {
    /// The version of asmpatch.
    pub tool: String,
    /// The unit.
    pub unit: BenchUnit,
    /// The time that was asked for, in seconds.
    pub asked_s: f64,
    /// The time that it took, in seconds. Recoveries count.
    pub elapsed_s: f64,
    /// Why it ended.
    pub ended: Ended,
    /// Bytes that commands without an error moved, in both directions.
    pub bytes: u64,
    /// How many of them came back from the unit and were compared with what was sent.
    pub compared_bytes: u64,
    /// Throughput over the whole time, in MB/s.
    pub mb_per_s: f64,
    /// The paths of the mixture.
    pub paths: Vec<SoakPath>,
    /// Paths whose check failed whenever the unit was prepared, so that the soak left them out.
    pub left_out: Vec<LeftOut>,
    /// Number of errors.
    pub error_count: u64,
    /// Errors an hour.
    pub errors_per_hour: f64,
    /// Errors by kind. Kinds without an error are absent.
    pub errors: Vec<ErrorCount>,
    /// Throughput and errors over time, in at most 200 slices. All but the last are equally long.
    pub over_time: Vec<Slice>,
    /// Error registers of each PCIe function that has them.
    pub pcie: Vec<PcieErrors>,
    /// Why the error registers could not be read before the soak; null if they were.
    pub pcie_unread: Option<String>,
    /// Link errors that the host controller has counted; null if the kernel doesn't show them.
    pub usb_link: Option<UsbLink>,
}

/// Link errors that the host controller has counted since it was switched on, modulo 2^16. Information, not a verdict:
/// openpilot's pull request 38483.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct UsbLink {
    /// Before the soak.
    pub before: u16,
    /// After it.
    pub after: u16,
}

impl UsbLink {
    /// Reads the count of a unit's controller. `None` if the kernel doesn't show it, and for a unit in software.
    pub fn count(location: &Location) -> Option<u16> {
        match location {
            Location::Port(port) => Sysfs::system().link_errors(port),
            Location::Virtual(_) => None,
        }
    }

    /// Errors during the soak, modulo 2^16.
    pub const fn new_errors(self) -> u16 {
        self.after.wrapping_sub(self.before)
    }
}

impl SoakReport {
    /// Number of errors of a kind.
    pub fn count(&self, kind: ErrorKind) -> u64 {
        self.errors.iter().find(|error| error.kind == kind).map_or(0, |error| error.count)
    }
}

/// Reasons a soak ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The time was over.
    #[display("the whole time")]
    Completed,
    /// Ctrl-C.
    #[display("until Ctrl-C")]
    Stopped,
    /// The unit left the bus, or stopped answering, and did not come back.
    #[default]
    #[display("until the unit was gone for good")]
    Vanished,
}

/// A path of the mixture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SoakPath {
    /// The path.
    pub path: DataPath,
    /// Transfers without an error.
    pub transfers: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// How many of these bytes were compared.
    pub compared_bytes: u64,
    /// Errors.
    pub errors: u64,
}

/// A path that the soak left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// The path.
    pub path: DataPath,
    /// The result of its check.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// Bytes came back different from what was sent.
    #[display("wrong bytes")]
    Differs,
    /// Fewer bytes moved than requested, with good status.
    #[display("too few bytes")]
    Short,
    /// No answer within the time limit.
    #[display("no answer")]
    NoAnswer,
    /// The unit refused a command that it carries out otherwise.
    #[display("refused")]
    Refused,
    /// The unit left the bus.
    #[display("left the bus")]
    Gone,
    /// Any other error of the wire or its protocol: stalls, wrong tags, phase errors.
    #[display("error on the wire")]
    Wire,
}

/// The errors of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ErrorCount {
    /// The kind.
    pub kind: ErrorKind,
    /// Number of errors.
    pub count: u64,
    /// Errors of this kind an hour.
    pub per_hour: f64,
    /// Time of the first, in seconds since the soak began.
    pub first_s: f64,
    /// Transfers of its path that had ended without an error before the first.
    pub first_after: u64,
    /// The first one's message.
    pub first: String,
}

/// A slice of the soak's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Slice {
    /// Bytes that it moved. JSON has the throughput only.
    #[serde(skip)]
    pub(super) bytes: u64,
    /// Its beginning, in seconds since the soak began.
    pub at_s: f64,
    /// Its throughput in MB/s.
    pub mb_per_s: f64,
    /// Errors in it.
    pub errors: u64,
}

/// The error registers of a PCIe function, before and after. A bit that was set before stays set: nothing is cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PcieErrors {
    /// Its bus, device and function number.
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub at: Bdf,
    /// Vendor ID and device ID.
    pub id: String,
    /// The registers before the soak.
    pub before: ErrorRegisters,
    /// The registers after it; `None` if they could not be read any more.
    pub after: Option<ErrorRegisters>,
}

/// Error registers. Each is `None` if the function lacks it. Source: PCI Express base specification 4.0, 7.5.3.5,
/// 7.8.4.2, 7.8.4.5 and 7.7.3.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ErrorRegisters {
    /// Device Status: bit 0 correctable, 1 non-fatal, 2 fatal error, 3 unsupported request.
    pub device_status: Option<u16>,
    /// Uncorrectable Error Status of Advanced Error Reporting.
    pub uncorrectable: Option<u32>,
    /// Correctable Error Status of Advanced Error Reporting.
    pub correctable: Option<u32>,
    /// Lane Error Status: a bit for each lane.
    pub lanes: Option<u32>,
}

/// Length of a slice before any were merged. It is short, because Ctrl-C may end a soak of hours after a second.
const SLICE: Duration = Duration::from_millis(10);
/// Maximum number of slices. When more are needed, each is merged with its neighbour.
const SLICES: usize = 200;

impl From<&Halt> for ErrorKind {
    fn from(halt: &Halt) -> Self {
        match halt {
            Halt::Outcome(Outcome::NoAnswer { .. }) => Self::NoAnswer,
            Halt::Outcome(Outcome::Short { .. }) => Self::Short,
            Halt::Outcome(Outcome::Differs { .. }) => Self::Differs,
            Halt::Outcome(_) => Self::Refused,
            Halt::Error(error) => match error.kind() {
                Kind::Gone => Self::Gone,
                Kind::NoAnswer => Self::NoAnswer,
                Kind::Short => Self::Short,
                Kind::Rejected | Kind::Refused | Kind::Usage | Kind::BadInput | Kind::System | Kind::CheckFailed => {
                    Self::Refused
                }
                Kind::Wire | Kind::Unopened | Kind::DiskInUse | Kind::Device | Kind::Interrupted => Self::Wire,
            },
        }
    }
}

/// Fills the report of a soak, while it runs.
pub(super) struct SoakTally {
    /// When the soak began. What is counted earlier counts as at time 0.
    begun: Option<Instant>,
    /// Length of every slice but the last.
    slice_len: Duration,
    /// The rates in it are 0, and so are the times of its slices, until the soak has ended.
    pub(super) report: SoakReport,
}

impl SoakTally {
    /// Begins an empty report.
    pub(super) fn new(unit: BenchUnit, asked: Duration) -> Self {
        let tool = env!("CARGO_PKG_VERSION").to_owned();
        let report = SoakReport { tool, unit, asked_s: asked.as_secs_f64(), ..SoakReport::default() };
        Self { begun: None, slice_len: SLICE, report }
    }

    /// Begins the time.
    pub(super) fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Time since the soak began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Counts a transfer without an error.
    pub(super) fn moved(&mut self, path: DataPath, bytes: usize, compared: usize) {
        let (bytes, compared) = (bytes as u64, compared as u64);
        let entry = self.path(path);
        entry.transfers += 1;
        entry.bytes += bytes;
        entry.compared_bytes += compared;
        self.report.bytes += bytes;
        self.report.compared_bytes += compared;
        self.slice(self.elapsed()).bytes += bytes;
    }

    /// Counts an error, of a path or of the unit's preparation, and returns its kind.
    pub(super) fn failed(&mut self, path: Option<DataPath>, halt: &Halt) -> ErrorKind {
        let kind = ErrorKind::from(halt);
        let first = path.map_or_else(|| halt.to_string(), |path| format!("{path}: {halt}"));
        tracing::info!("soak: {first}");
        let at = self.elapsed();
        let first_after = path.map_or(0, |path| {
            let entry = self.path(path);
            entry.errors += 1;
            entry.transfers
        });
        let new = ErrorCount { kind, count: 0, per_hour: 0.0, first_s: at.as_secs_f64(), first_after, first };
        entry(&mut self.report.errors, |error| error.kind, new).count += 1;
        self.report.error_count += 1;
        self.slice(at).errors += 1;
        kind
    }

    fn path(&mut self, path: DataPath) -> &mut SoakPath {
        let new = SoakPath { path, transfers: 0, bytes: 0, compared_bytes: 0, errors: 0 };
        entry(&mut self.report.paths, |path| path.path, new)
    }

    /// The slice that contains this time. Merges slices if there would be too many.
    fn slice(&mut self, at: Duration) -> &mut Slice {
        let slices = &mut self.report.over_time;
        while at >= self.slice_len * SLICES as u32 {
            let mut merged = Vec::new();
            for pair in slices.chunks(2) {
                let bytes = pair.iter().map(|slice| slice.bytes).sum();
                let errors = pair.iter().map(|slice| slice.errors).sum();
                merged.push(Slice { bytes, errors, ..Slice::default() });
            }
            *slices = merged;
            self.slice_len *= 2;
        }
        let index = (at.as_nanos() / self.slice_len.as_nanos()) as usize;
        slices.resize(slices.len().max(index + 1), Slice::default());
        &mut slices[index]
    }

    /// Ends the time, and computes the rates.
    pub(super) fn finish(self, ended: Ended) -> SoakReport {
        let (elapsed, whole) = (self.elapsed(), self.slice_len);
        let mut report = self.report;
        let per_hour = |count: u64| count as f64 * 3600.0 / elapsed.as_secs_f64();
        let mb_per_s = |bytes: u64, time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
        report.ended = ended;
        report.elapsed_s = elapsed.as_secs_f64();
        report.mb_per_s = mb_per_s(report.bytes, elapsed);
        report.errors_per_hour = per_hour(report.error_count);
        report.errors.iter_mut().for_each(|error| error.per_hour = per_hour(error.count));
        let slices = report.over_time.len();
        for (index, slice) in report.over_time.iter_mut().enumerate() {
            let at = whole * index as u32;
            // The last slice may be cut short, or last until a recovery is over. Count it as at least a tenth of a
            // slice: a shorter time gives no meaningful throughput.
            let is_last = index + 1 == slices;
            let len = if is_last { elapsed.saturating_sub(at).max(whole / 10) } else { whole };
            slice.at_s = at.as_secs_f64();
            slice.mb_per_s = mb_per_s(slice.bytes, len);
        }
        report
    }
}

/// The entry with the key of `new` in a sorted list: `new` itself, if there was none.
fn entry<T, K: Ord>(list: &mut Vec<T>, key: fn(&T) -> K, new: T) -> &mut T {
    let at = list.binary_search_by_key(&key(&new), key).unwrap_or_else(|at| {
        list.insert(at, new);
        at
    });
    &mut list[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> SoakTally {
        SoakTally::new(BenchUnit::default(), Duration::ZERO)
    }

    #[test]
    fn a_soak_has_a_fine_picture_after_two_seconds_and_a_bounded_one_after_a_week() {
        let mut tally = tally();
        for (until_ms, step_ms) in [(2_000, 10), (600_000, 100), (604_800_000, 60_000)] {
            for at in (0..until_ms).step_by(step_ms).map(Duration::from_millis) {
                tally.slice(at).bytes += 1;
            }
            let slices = tally.report.over_time.len();
            assert!((100..=SLICES).contains(&slices), "{slices} after {until_ms} ms");
        }
        let counted: u64 = tally.report.over_time.iter().map(|slice| slice.bytes).sum();
        assert_eq!(counted, 200 + 6_000 + 10_080, "nothing is lost when slices are merged");
    }

    #[test]
    fn the_first_error_of_a_kind_has_the_count_of_its_paths_transfers_before_it() {
        let mut tally = tally();
        let hang = Halt::from(Outcome::no_answer(Duration::from_secs(2)));
        tally.moved(DataPath::F0Read, 64, 64);
        (0..7_000).for_each(|_| tally.moved(DataPath::F2Out, 64, 0));
        tally.failed(Some(DataPath::F2Out), &hang);
        tally.moved(DataPath::F2Out, 64, 0);
        tally.failed(Some(DataPath::F2Out), &hang);
        tally.failed(None, &Halt::from(Outcome::Short { expected: 2, found: 1 }));
        let report = tally.finish(Ended::Completed);
        let [short, error] = &report.errors[..] else { panic!("{:?}", report.errors) };
        assert_eq!((short.kind, error.kind), (ErrorKind::Short, ErrorKind::NoAnswer), "in the order of the kinds");
        assert_eq!((error.count, error.first_after), (2, 7_000));
        assert_eq!(error.first, "F2 out: no answer in 2 s; the unit was recovered");
        assert_eq!((report.error_count, report.bytes, report.compared_bytes), (3, 7_002 * 64, 64));
        let paths: Vec<_> = report.paths.iter().map(|path| (path.path, path.transfers, path.errors)).collect();
        assert_eq!(paths, [(DataPath::F0Read, 1, 0), (DataPath::F2Out, 7_001, 2)], "in the order of measurement");
    }

    #[test]
    fn what_little_comes_just_after_the_last_whole_slice_is_no_peak() {
        let mut tally = tally();
        tally.begun = Instant::now().checked_sub(SLICE * 2);
        tally.report.over_time = [10, 10, 1].map(|bytes| Slice { bytes, ..Slice::default() }).to_vec();
        let report = tally.finish(Ended::Completed);
        let rates: Vec<f64> = report.over_time.iter().map(|slice| slice.mb_per_s).collect();
        assert!(rates[2] <= rates[1], "{rates:?}");
    }
}
