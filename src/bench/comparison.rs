//! Compares a report with an earlier one, and with what a GPU runtime gets today, as published.

use asm2464::firmware::BridgeState;
use asm2464::{Failure, Kind};
use asm2464_host::bridge::BusSpeed;
use derive_more::Display;
use serde::{Deserialize, Serialize};

use super::path::DataPath;
use super::plan::Point;
use super::report::{BenchVerdict, Outcome, Row, SCHEMA, Spread};

/// A row that an earlier run measured, compared with the same row now.
#[derive(Debug, Clone, PartialEq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Change"))]
#[display("{}{}", self.words(), self.doubt())]
pub struct RowChange {
    /// The path, and how it was measured.
    #[serde(flatten)]
    pub point: Point,
    /// Commands in flight now, if this run has no row of that depth. Both rows are then the best of path and size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now_depth: Option<usize>,
    /// The earlier median, in MB/s.
    pub before_mb_per_s: f64,
    /// The median now, in MB/s; `None` if the row has no figures now.
    pub now_mb_per_s: Option<f64>,
    /// Whether the two runs' ranges overlap, so that the difference may be noise.
    pub within_spread: bool,
    /// Whether the row has no figures now, or its fastest repetition is slower than allowed, measured from the slowest
    /// one of the earlier run.
    pub is_worse: bool,
    /// Whether a run's own repetitions lie so far apart that one run more may say otherwise.
    pub is_unsteady: bool,
    /// Whether this run's options leave the row out.
    pub is_left_out: bool,
}

/// The range of a run's repetitions, as a part of their median, from which on the run is unsteady.
const UNSTEADY: f64 = 0.2;

impl RowChange {
    /// How much faster the row is, in percent of the earlier median.
    fn percent(&self) -> Option<f64> {
        Some((self.now_mb_per_s? / self.before_mb_per_s - 1.0) * 100.0)
    }

    fn doubt(&self) -> &'static str {
        match (self.within_spread, self.is_worse && self.is_unsteady) {
            (true, _) => " (within spread)",
            (false, true) => " (its own spread is wide)",
            (false, false) => "",
        }
    }

    fn words(&self) -> String {
        match (self.percent(), self.now_depth) {
            (None, _) if self.is_left_out => "not measured in this run".to_owned(),
            (None, _) => "no figures now".to_owned(),
            (Some(percent), None) => format!("{percent:+.1}%"),
            (Some(percent), Some(depth)) => format!("{percent:+.1}% with {depth} in flight"),
        }
    }
}

/// What is compared of a row.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct ComparedRow {
    #[serde(flatten)]
    point: Point,
    /// Its throughput; `None` if the path was not measured.
    mb_per_s: Option<Spread>,
}

impl From<&Row> for ComparedRow {
    fn from(row: &Row) -> Self {
        Self { point: row.point, mb_per_s: row.figures().map(|figures| figures.mb_per_s) }
    }
}

/// What is read of a report as `bench --json` prints it.
#[derive(Deserialize)]
struct Printed {
    schema: u32,
    rows: Vec<ComparedRow>,
}

/// Parses the rows of an earlier report.
///
/// # Errors
/// If it is none, or one of another version.
pub fn parse(json: &str) -> Result<Vec<ComparedRow>, Failure> {
    let Printed { schema, rows } = serde_json::from_str(json).map_err(|error| {
        Failure::new(Kind::BadInput.code("asmpatch::bench::baseline"), "the baseline is not a bench report")
            .because(error)
    })?;
    if schema != SCHEMA {
        let message = format!("the baseline has schema {schema}, this asmpatch reads {SCHEMA}");
        return Err(Failure::new(Kind::BadInput.code("asmpatch::bench::baseline_schema"), message));
    }
    Ok(rows)
}

/// The rows that the user asked for. An empty list stands for all.
#[derive(Debug, Clone, Copy, Default)]
pub struct AskedRows<'a> {
    /// The paths.
    pub paths: &'a [DataPath],
    /// The sizes; if it is empty, the usual ones, or with `sweep` those of a sweep.
    pub sizes: &'a [usize],
    /// The depths.
    pub depths: &'a [usize],
    /// Whether every size of a sweep is measured.
    pub sweep: bool,
}

impl AskedRows<'_> {
    fn includes(&self, Point { path, size, depth }: Point) -> bool {
        let has_path = self.paths.is_empty() || self.paths.contains(&path);
        let has_depth = self.depths.is_empty() || self.depths.contains(&depth);
        let has_size = match self.sizes {
            [] => path.default_sizes(self.sweep).contains(&size),
            sizes => sizes.contains(&size),
        };
        has_path && has_size && has_depth
    }
}

fn is_unsteady(run: Spread) -> bool {
    run.max - run.min > run.median * UNSTEADY
}

/// The row with the highest median of a path and size.
fn best<'a>(rows: &'a [ComparedRow], like: &ComparedRow) -> Option<&'a ComparedRow> {
    let same = rows.iter().filter(|row| (row.point.path, row.point.size) == (like.point.path, like.point.size));
    let measured = same.filter_map(|row| Some((row, row.mb_per_s?.median)));
    measured.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(row, _)| row)
}

/// Compares each row that the earlier run measured. A row may be slower by `max_slower` percent.
pub fn compare(before: &[ComparedRow], now: &[Row], asked: AskedRows<'_>, max_slower: f64) -> Vec<RowChange> {
    let now: Vec<ComparedRow> = now.iter().map(ComparedRow::from).collect();
    let mut changes = Vec::new();
    for row in before {
        let Some(earlier) = row.mb_per_s else { continue };
        let is_best = best(before, row).is_some_and(|best| best.point.depth == row.point.depth);
        // Another transport may have other depths. The best rows show what that costs; the others have no counterpart.
        let same = now.iter().find(|other| other.point == row.point);
        let found = match same {
            Some(same) => Some(same),
            None if asked.includes(row.point) && is_best => best(&now, row),
            None => None,
        };
        let has_no_counterpart = !is_best && best(&now, row).is_some();
        let figures = found.and_then(|found| found.mb_per_s);
        let mut change = RowChange {
            point: row.point,
            now_depth: found.map(|found| found.point.depth).filter(|depth| *depth != row.point.depth),
            before_mb_per_s: earlier.median,
            now_mb_per_s: figures.map(|now| now.median),
            within_spread: figures.is_some_and(|now| earlier.min <= now.max && now.min <= earlier.max),
            is_worse: false,
            is_unsteady: [Some(earlier), figures].into_iter().flatten().any(is_unsteady),
            is_left_out: found.is_none() && (!asked.includes(row.point) || has_no_counterpart),
        };
        if !change.is_left_out {
            // The ranges are the runs' own spread: only what lies between them is no noise.
            let allowed = earlier.min * (1.0 - max_slower / 100.0);
            change.is_worse = figures.is_none_or(|now| now.max < allowed);
        }
        changes.push(change);
    }
    changes
}

/// One verdict for each path that was run and has a published figure, in the order of the rows.
/// `speed` is the link's, if a figure depends on it.
pub(super) fn judge(rows: &[Row], firmware: BridgeState, speed: Option<BusSpeed>) -> Vec<BenchVerdict> {
    let mbit_per_s = speed.map_or(0, BusSpeed::at_least);
    let mut verdicts: Vec<BenchVerdict> = Vec::new();
    for row in rows.iter().filter(|row| !matches!(row.outcome, Outcome::NotRun { .. })) {
        let Some(published) = row.point.path.published(firmware, mbit_per_s) else { continue };
        let median = row.figures().map(|figures| figures.mb_per_s.median);
        let index = verdicts.iter().position(|verdict| verdict.path == row.point.path).unwrap_or_else(|| {
            let (needed_mb_per_s, source) = (published.mb_per_s, published.source.to_owned());
            verdicts.push(BenchVerdict { path: row.point.path, mb_per_s: None, needed_mb_per_s, meets: false, source });
            verdicts.len() - 1
        });
        let verdict = &mut verdicts[index];
        if median > verdict.mb_per_s {
            verdict.mb_per_s = median;
            verdict.meets = median.is_some_and(|median| median >= verdict.needed_mb_per_s);
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::path::DataPath;
    use crate::bench::report::Figures;

    fn row(path: DataPath, mb_per_s: f64) -> Row {
        let spread = Spread { median: mb_per_s, min: mb_per_s, max: mb_per_s };
        let figures = Figures { mb_per_s: spread, ..Figures::default() };
        Row { point: Point { path, size: path.max_len(), depth: 1 }, outcome: Outcome::Measured(figures.into()) }
    }

    #[test]
    fn a_run_whose_repetitions_lie_far_apart_is_unsteady_whichever_of_both_it_is() {
        let compared = |before: [f64; 3], now: [f64; 3]| {
            let spread = |[min, median, max]: [f64; 3]| Spread { median, min, max };
            let figures = Figures { mb_per_s: spread(now), ..Figures::default() };
            let now = Row { outcome: Outcome::Measured(figures.into()), ..row(DataPath::E4Stock, 1.0) };
            let before = ComparedRow { mb_per_s: Some(spread(before)), ..ComparedRow::from(&now) };
            let change = compare(&[before], &[now], AskedRows::default(), 10.0).remove(0);
            (change.is_worse, change.is_unsteady, change.to_string())
        };
        let busy = (true, true, "-40.0% (its own spread is wide)".to_owned());
        assert_eq!(compared([99.0, 100.0, 101.0], [40.0, 60.0, 70.0]), busy);
        assert_eq!(compared([80.0, 100.0, 120.0], [59.0, 60.0, 61.0]), busy);
        assert_eq!(compared([99.0, 100.0, 101.0], [59.0, 60.0, 61.0]), (true, false, "-40.0%".to_owned()));
    }

    #[test]
    fn a_row_is_worse_only_below_the_earlier_runs_slowest_repetition_by_more_than_is_allowed() {
        let is_worse = |before: Spread, now: Spread| {
            let figures = Figures { mb_per_s: now, ..Figures::default() };
            let now = Row { outcome: Outcome::Measured(figures.into()), ..row(DataPath::E4Stock, 1.0) };
            let before = ComparedRow { mb_per_s: Some(before), ..ComparedRow::from(&now) };
            compare(&[before], &[now], AskedRows::default(), 10.0)[0].is_worse
        };
        let spread = |min, median, max| Spread { median, min, max };
        // A run on a busy host: its median is 40 % lower, but it has been nearly as fast as the earlier run's slowest.
        assert!(!is_worse(spread(80.0, 100.0, 120.0), spread(50.0, 60.0, 73.0)));
        assert!(is_worse(spread(80.0, 100.0, 120.0), spread(50.0, 60.0, 71.0)));
        // Steady runs keep their sharpness.
        assert!(is_worse(spread(99.0, 100.0, 101.0), spread(87.0, 88.0, 89.0)));
        assert!(!is_worse(spread(99.0, 100.0, 101.0), spread(90.0, 91.0, 92.0)));
    }

    #[test]
    fn a_path_is_judged_by_its_best_row_wherever_that_stands() {
        for rates in [[2.0, 0.5, 0.7], [0.5, 2.0, 0.7], [0.5, 0.7, 2.0]] {
            let rows = rates.map(|rate| row(DataPath::E4Stock, rate));
            let verdicts = judge(&rows, BridgeState::Vendor, None);
            assert_eq!((verdicts[0].mb_per_s, verdicts[0].meets), (Some(2.0), true), "{rates:?}");
            let enough = [row(DataPath::E4Stock, verdicts[0].needed_mb_per_s)];
            assert!(judge(&enough, BridgeState::Vendor, None)[0].meets, "the published figure itself");
        }
    }

    #[test]
    fn each_firmware_is_held_against_its_own_figures() {
        let rows = [
            row(DataPath::E4Stock, 2.0),
            row(DataPath::F0Write, 3.5),
            row(DataPath::F0Read, 1.9),
            row(DataPath::F2Out, 400.0),
        ];
        let judged = |firmware, speed| {
            let verdicts = judge(&rows, firmware, Some(speed)).into_iter();
            verdicts.map(|verdict| (verdict.path, verdict.meets)).collect::<Vec<_>>()
        };
        assert_eq!(judged(BridgeState::Vendor, BusSpeed::Super), [(DataPath::E4Stock, true)]);
        let streams = [(DataPath::F0Write, false), (DataPath::F0Read, true)];
        let open = |speed| judged(BridgeState::OpenFirmware, speed);
        let at_20_gbit = BusSpeed::SuperPlus { mbit_per_s: Some(20_000) };
        for speed in [BusSpeed::SUPER_PLUS, at_20_gbit] {
            assert_eq!(open(speed), [&streams[..], &[(DataPath::F2Out, false)]].concat());
        }
        let at_least_5_gbit = BusSpeed::Unknown { at_least: Some(5_000) };
        for speed in [BusSpeed::Super, at_least_5_gbit] {
            assert_eq!(open(speed), [&streams[..], &[(DataPath::F2Out, true)]].concat());
        }
        assert_eq!(open(BusSpeed::High), streams, "no figure is published for F2 at 480 Mbit/s");
    }
}
