//! Counts what a soak moves and which errors it sees, over its time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use asm2464::Kind;

use super::report::{Ended, ErrorCount, ErrorKind, Slice, SoakPath, SoakReport};
use crate::bench::halt::Halt;
use crate::bench::path::Path;
use crate::bench::report::{BenchUnit, Outcome};

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
                Kind::Rejected | Kind::Refused | Kind::Usage | Kind::BadInput | Kind::CheckFailed => Self::Refused,
                Kind::Wire | Kind::Unopened | Kind::DiskInUse | Kind::Device | Kind::Interrupted => Self::Wire,
            },
        }
    }
}

/// The counts of a soak.
#[derive(Default)]
pub(super) struct SoakTally {
    /// When the soak began. What is counted earlier counts as at time 0.
    begun: Option<Instant>,
    /// How often the slices were merged, which doubles their length.
    merged: u32,
    paths: BTreeMap<Path, SoakPath>,
    errors: BTreeMap<ErrorKind, ErrorCount>,
    /// Bytes and errors of each slice.
    slices: Vec<(u64, u64)>,
}

impl SoakTally {
    /// Begins the time.
    pub(super) fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Time since the soak began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
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

    /// Counts an error, of a path or of the unit's preparation, and returns its kind.
    pub(super) fn failed(&mut self, path: Option<Path>, halt: &Halt) -> ErrorKind {
        let kind = ErrorKind::from(halt);
        let what = path.map_or_else(|| halt.to_string(), |path| format!("{path}: {halt}"));
        tracing::info!("soak: {what}");
        let at = self.elapsed();
        let first_after = path.map_or(0, |path| {
            let entry = self.path(path);
            entry.errors += 1;
            entry.transfers
        });
        self.slice(at).1 += 1;
        let first =
            || ErrorCount { kind, count: 0, per_hour: 0.0, first_s: at.as_secs_f64(), first_after, first: what };
        self.errors.entry(kind).or_insert_with(first).count += 1;
        kind
    }

    /// Length of every slice but the last.
    fn slice_len(&self) -> Duration {
        SLICE * 2_u32.pow(self.merged)
    }

    fn path(&mut self, path: Path) -> &mut SoakPath {
        let empty = SoakPath { path, transfers: 0, bytes: 0, compared_bytes: 0, errors: 0 };
        self.paths.entry(path).or_insert(empty)
    }

    /// The slice that contains this time. Merges slices if there would be too many.
    fn slice(&mut self, at: Duration) -> &mut (u64, u64) {
        let index = |tally: &Self| (at.as_nanos() / tally.slice_len().as_nanos()) as usize;
        while index(self) >= SLICES {
            let sum = |pair: &[(u64, u64)]| pair.iter().fold((0, 0), |sum, slice| (sum.0 + slice.0, sum.1 + slice.1));
            self.slices = self.slices.chunks(2).map(sum).collect();
            self.merged += 1;
        }
        let index = index(self);
        if self.slices.len() <= index {
            self.slices.resize(index + 1, (0, 0));
        }
        &mut self.slices[index]
    }

    /// Makes the report, without the fields that are not counted here.
    pub(super) fn report(self, unit: BenchUnit, asked: Duration, ended: Ended) -> SoakReport {
        let (elapsed, whole) = (self.elapsed(), self.slice_len());
        let per_hour = |count: u64| count as f64 * 3600.0 / elapsed.as_secs_f64();
        let (bytes, error_count) = (self.bytes(), self.error_count());
        let slice = |(index, (bytes, errors)): (usize, &(u64, u64))| {
            let at = whole * index as u32;
            // The last slice may be cut short, or last until a recovery is over. Count it as at least a tenth of a
            // slice: a shorter time gives no meaningful throughput.
            let is_last = index + 1 == self.slices.len();
            let len = if is_last { elapsed.saturating_sub(at).max(whole / 10) } else { whole };
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
            left_out: Vec::new(),
            error_count,
            errors_per_hour: per_hour(error_count),
            errors: self
                .errors
                .into_values()
                .map(|error| ErrorCount { per_hour: per_hour(error.count), ..error })
                .collect(),
            pcie: Vec::new(),
            pcie_unread: None,
            usb_link: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_has_a_fine_picture_after_two_seconds_and_a_bounded_one_after_a_week() {
        let mut tally = SoakTally::default();
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
        let mut tally = SoakTally::default();
        let hang = Halt::from(Outcome::no_answer(Duration::from_secs(2)));
        (0..7_000).for_each(|_| tally.moved(Path::F2Out, 64, 0));
        tally.moved(Path::F2In, 64, 64);
        tally.failed(Some(Path::F2Out), &hang);
        tally.moved(Path::F2Out, 64, 0);
        tally.failed(Some(Path::F2Out), &hang);
        let error = &tally.errors[&ErrorKind::NoAnswer];
        assert_eq!((error.count, error.first_after), (2, 7_000));
        assert_eq!(error.first, "F2 out: no answer in 2 s; the unit was recovered");
    }

    #[test]
    fn what_little_comes_just_after_the_last_whole_slice_is_no_peak() {
        let begun = Instant::now().checked_sub(SLICE * 2);
        let slices = vec![(10, 0), (10, 0), (1, 1)];
        let tally = SoakTally { begun, slices, ..SoakTally::default() };
        let report = tally.report(BenchUnit::default(), Duration::ZERO, Ended::Completed);
        let rates: Vec<f64> = report.over_time.iter().map(|slice| slice.mb_per_s).collect();
        assert!(rates[2] <= rates[1], "{rates:?}");
    }
}
