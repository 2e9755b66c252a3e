//! Counts what a soak moves and which errors it sees, over its time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use asm2464::{Coded as _, Kind};

use super::report::{Ended, ErrorCount, ErrorKind, LeftOut, PcieErrors, PreparationError, Slice, SoakPath, SoakReport};
use crate::bench::error::{BenchError, Halt};
use crate::bench::path::Path;
use crate::bench::report::{BenchUnit, Outcome};

/// Length of a slice at first. Ctrl-C may end a soak of hours after a second.
const SLICE: Duration = Duration::from_millis(10);
/// Number of slices that are merged, each with its neighbour.
const SLICES: usize = 200;

/// An error of a transfer.
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    what: String,
}

impl PreparationError {
    pub(super) fn new(path: Option<Path>, Failure { kind, what }: Failure) -> Self {
        Self { path, kind, what }
    }
}

impl From<LeftOut> for PreparationError {
    fn from(LeftOut { path, outcome }: LeftOut) -> Self {
        Self::new(Some(path), Halt::from(outcome).into())
    }
}

impl From<Halt> for Failure {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Outcome(outcome) => {
                let kind = match outcome {
                    Outcome::NoAnswer { .. } => ErrorKind::NoAnswer,
                    Outcome::Short { .. } => ErrorKind::Short,
                    Outcome::Differs { .. } => ErrorKind::Differs,
                    _ => ErrorKind::Refused,
                };
                Self { kind, what: outcome.to_string() }
            }
            Halt::Error(error) => error.into(),
        }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let kind = match error.kind() {
            Kind::Gone => ErrorKind::Gone,
            Kind::NoAnswer => ErrorKind::NoAnswer,
            Kind::Short => ErrorKind::Short,
            Kind::Rejected | Kind::Refused | Kind::Usage | Kind::BadInput | Kind::CheckFailed => ErrorKind::Refused,
            Kind::Wire | Kind::Unopened | Kind::DiskInUse | Kind::Device | Kind::Interrupted => ErrorKind::Wire,
        };
        Self { kind, what: error.to_string() }
    }
}

/// What a report says beside the counts.
pub(super) struct Surroundings {
    pub(super) left_out: Vec<LeftOut>,
    pub(super) preparation: Vec<PreparationError>,
    pub(super) pcie: Vec<PcieErrors>,
    pub(super) pcie_unread: Option<String>,
}

/// The counts of a soak.
pub(super) struct SoakTally {
    begun: Instant,
    slice: Duration,
    paths: BTreeMap<Path, SoakPath>,
    errors: BTreeMap<ErrorKind, ErrorCount>,
    /// Bytes and errors of each slice.
    slices: Vec<(u64, u64)>,
}

impl SoakTally {
    /// Begins to count.
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            slice: SLICE,
            paths: BTreeMap::new(),
            errors: BTreeMap::new(),
            slices: Vec::new(),
        }
    }

    /// Time since the soak began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.paths.values().map(|path| path.bytes).sum()
    }

    /// Errors so far.
    pub(super) fn error_count(&self) -> u64 {
        self.errors.values().map(|error| error.count).sum()
    }

    /// Counts a transfer without an error.
    pub(super) fn moved(&mut self, path: Path, bytes: usize, compared: usize) {
        let entry = self.path(path);
        entry.transfers += 1;
        entry.bytes += bytes as u64;
        entry.compared_bytes += compared as u64;
        self.slice(self.elapsed()).0 += bytes as u64;
    }

    /// Counts an error.
    pub(super) fn failed(&mut self, path: Path, failure: Failure) {
        tracing::info!("soak: {path}: {}", failure.what);
        let at = self.elapsed();
        let Failure { kind, what } = failure;
        let entry = self.path(path);
        entry.errors += 1;
        let first_after = entry.transfers;
        self.slice(at).1 += 1;
        let first = || ErrorCount {
            kind,
            count: 0,
            per_hour: 0.0,
            first_s: at.as_secs_f64(),
            first_after,
            first: format!("{path}: {what}"),
        };
        self.errors.entry(kind).or_insert_with(first).count += 1;
    }

    fn path(&mut self, path: Path) -> &mut SoakPath {
        let empty = SoakPath { path, transfers: 0, bytes: 0, compared_bytes: 0, errors: 0 };
        self.paths.entry(path).or_insert(empty)
    }

    /// The slice of a moment.
    fn slice(&mut self, at: Duration) -> &mut (u64, u64) {
        let index = |slice: Duration| (at.as_nanos() / slice.as_nanos()) as usize;
        while index(self.slice) >= SLICES {
            let sum = |pair: &[(u64, u64)]| pair.iter().fold((0, 0), |sum, slice| (sum.0 + slice.0, sum.1 + slice.1));
            self.slices = self.slices.chunks(2).map(sum).collect();
            self.slice *= 2;
        }
        let index = index(self.slice);
        if self.slices.len() <= index {
            self.slices.resize(index + 1, (0, 0));
        }
        &mut self.slices[index]
    }

    /// Adds a last slice of less than a tenth to the one before it: too little happens in it to give a throughput.
    fn merge_stump(&mut self, elapsed: Duration) {
        let last = self.slice * (self.slices.len().saturating_sub(1)) as u32;
        if self.slices.len() > 1
            && elapsed.saturating_sub(last) < self.slice / 10
            && let Some((bytes, errors)) = self.slices.pop()
            && let Some(before) = self.slices.last_mut()
        {
            *before = (before.0 + bytes, before.1 + errors);
        }
    }

    /// The report.
    pub(super) fn report(
        mut self,
        unit: BenchUnit,
        asked: Duration,
        elapsed: Duration,
        ended: Ended,
        surroundings: Surroundings,
    ) -> SoakReport {
        let Surroundings { left_out, preparation, pcie, pcie_unread } = surroundings;
        let whole = self.slice;
        self.merge_stump(elapsed);
        let per_hour = |count: u64| count as f64 * 3600.0 / elapsed.as_secs_f64();
        let (bytes, error_count) = (self.bytes(), self.error_count());
        let slice = |(index, (bytes, errors)): (usize, &(u64, u64))| {
            let at = whole * index as u32;
            // The last one may have been cut short, or have lasted until a recovery was over.
            let is_last = index + 1 == self.slices.len();
            let len = if is_last { elapsed.saturating_sub(at).max(Duration::from_millis(1)) } else { whole };
            Slice { at_s: at.as_secs_f64(), mb_per_s: *bytes as f64 / 1e6 / len.as_secs_f64(), errors: *errors }
        };
        SoakReport {
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            unit,
            asked_s: asked.as_secs_f64(),
            elapsed_s: elapsed.as_secs_f64(),
            ended,
            bytes,
            compared_bytes: self.paths.values().map(|path| path.compared_bytes).sum(),
            mb_per_s: bytes as f64 / 1e6 / elapsed.as_secs_f64(),
            over_time: self.slices.iter().enumerate().map(slice).collect(),
            paths: self.paths.into_values().collect(),
            left_out,
            preparation,
            error_count,
            errors_per_hour: per_hour(error_count),
            errors: self
                .errors
                .into_values()
                .map(|error| ErrorCount { per_hour: per_hour(error.count), ..error })
                .collect(),
            pcie,
            pcie_unread,
            usb_link: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_has_a_fine_picture_after_two_seconds_and_a_bounded_one_after_a_week() {
        let mut tally = SoakTally::new();
        for (until_ms, step_ms) in [(2_000, 10), (600_000, 100), (604_800_000, 60_000)] {
            for at in (0..until_ms).step_by(step_ms).map(Duration::from_millis) {
                tally.slice(at).0 += 1;
            }
            let slices = tally.slices.len();
            assert!((100..=SLICES).contains(&slices), "{slices} after {until_ms} ms");
        }
        let counted: u64 = tally.slices.iter().map(|slice| slice.0).sum();
        assert_eq!(counted, 200 + 6_000 + 10_080, "nothing is lost when slices are merged");
    }

    #[test]
    fn the_first_error_of_a_kind_has_the_count_of_its_paths_transfers_before_it() {
        let mut tally = SoakTally::new();
        let hang = || Failure { kind: ErrorKind::NoAnswer, what: "no answer".to_owned() };
        (0..7_000).for_each(|_| tally.moved(Path::F2Out, 64, 0));
        tally.moved(Path::F2In, 64, 64);
        tally.failed(Path::F2Out, hang());
        tally.moved(Path::F2Out, 64, 0);
        tally.failed(Path::F2Out, hang());
        let error = &tally.errors[&ErrorKind::NoAnswer];
        assert_eq!((error.count, error.first_after, error.first.as_str()), (2, 7_000, "F2 out: no answer"));
    }

    #[test]
    fn what_comes_just_after_the_last_whole_slice_is_counted_in_it() {
        for (end_ms, expected) in [(41, vec![(10, 0), (11, 1)]), (60, vec![(10, 0), (10, 0), (1, 1)])] {
            let mut tally = SoakTally::new();
            tally.slice = Duration::from_millis(20);
            tally.slices = vec![(10, 0), (10, 0), (1, 1)];
            tally.merge_stump(Duration::from_millis(end_ms));
            assert_eq!(tally.slices, expected, "{end_ms} ms");
        }
        let mut short = SoakTally::new();
        short.slices = vec![(1, 0)];
        short.merge_stump(Duration::from_micros(1));
        assert_eq!(short.slices, [(1, 0)], "a soak of one slice keeps it");
    }
}
