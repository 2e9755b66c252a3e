//! Result of a bench: the JSON of `--json`, and the source of tables and charts. docs/bench.md describes it.

use std::time::Duration;

use asm2464_host::bridge::UnitInfo;
use derive_more::Display;
use serde::{Deserialize, Serialize};

use super::path::{DataPath, IntegrityCheck};
use super::plan::Point;
use crate::unit::facts::HostState;

/// Version of the JSON's structure. It increases when a key changes its meaning or disappears.
pub const SCHEMA: u32 = 5;

/// Result of a bench.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct BenchReport {
    /// The version of asmpatch.
    pub tool: String,
    /// The unit.
    pub unit: BenchUnit,
    /// Results of writing the pattern and reading it back; null if nothing was written.
    pub integrity: Option<Integrity>,
    /// Whether E4 takes more than 255 bytes a command.
    pub e4_extension: bool,
    /// Whether software answers READ(16), by the patch read16-sram. `false` if this was not checked.
    #[cfg_attr(feature = "schemas", schemars(default))]
    pub read16_sram: bool,
    /// One row for each path, size and depth.
    pub rows: Vec<Row>,
    /// Meaning of the figures for a GPU runtime.
    pub verdict: Vec<BenchVerdict>,
}

/// A path's best row compared with what a GPU runtime gets today.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct BenchVerdict {
    /// The path.
    pub path: DataPath,
    /// The median of the path's fastest row; `None` if it gave no answer.
    pub mb_per_s: Option<f64>,
    /// What a runtime gets from this path today, in MB/s, as published.
    pub needed_mb_per_s: f64,
    /// Whether the row reaches that.
    pub meets: bool,
    /// Source of the published figure.
    pub source: String,
}

/// The unit that was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct BenchUnit {
    /// Port path, or `virtual:DIR`.
    pub device: String,
    /// Whether the unit is virtual. The figures then measure this machine, not a dock.
    pub is_virtual: bool,
    /// VID:PID.
    pub usb_id: String,
    /// The serial number.
    pub serial: String,
    /// What runs on it: `vendor` or `open-firmware`.
    #[cfg_attr(feature = "schemas", schemars(default))]
    pub state: String,
    /// Wire protocol: `bulk-only`, `uas-streams`, `uas`, `control`.
    pub transport: String,
    /// What is behind it: `no SSD`, the SSD's capacity or model, or a device on PCIe.
    pub behind: String,
    /// The frequency governors of the CPUs of the dock's host, each once; absent if there are none, and for a virtual
    /// unit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_governors: Vec<String>,
}

/// What is known of a unit before it is asked.
impl From<&UnitInfo> for BenchUnit {
    fn from(info: &UnitInfo) -> Self {
        Self {
            device: info.location.to_string(),
            is_virtual: info.location.is_virtual(),
            usb_id: info.id.to_string(),
            serial: info.serial.clone().unwrap_or_default(),
            cpu_governors: HostState::of(&info.location).governors,
            ..Self::default()
        }
    }
}

/// Results of the integrity check by path; `None` if a path was not tried, because an earlier step failed or because
/// this bench does not use it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Integrity {
    /// Writing it.
    pub write16: Option<Outcome>,
    /// Writing it through F2.
    #[cfg_attr(feature = "schemas", schemars(default))]
    pub f2: Option<Outcome>,
    /// Reading each 4 KiB of it back through E4.
    pub e4: Option<Outcome>,
    /// Writing it to memory behind the bridge, and reading it back: by F0's streams, or by TLPs.
    #[cfg_attr(feature = "schemas", schemars(default))]
    pub memory: Option<Outcome>,
}

impl Integrity {
    /// Whether bytes read back differently. A path without an answer is no corruption.
    pub fn is_corrupt(&self) -> bool {
        self.outcomes().any(|(_, outcome)| matches!(outcome, Outcome::Differs { .. } | Outcome::Short { .. }))
    }

    /// The results of the checks that were tried.
    pub fn outcomes(&self) -> impl Iterator<Item = (IntegrityCheck, &Outcome)> {
        let Self { write16, f2, e4, memory } = self;
        let all = [
            (IntegrityCheck::Write16, write16),
            (IntegrityCheck::F2, f2),
            (IntegrityCheck::E4, e4),
            (IntegrityCheck::Memory, memory),
        ];
        all.into_iter().filter_map(|(check, outcome)| Some((check, outcome.as_ref()?)))
    }

    /// The result of the check that shows whether a path works.
    pub(super) fn of(&self, path: DataPath) -> Option<&Outcome> {
        self.outcomes().find(|(check, _)| path.check() == Some(*check)).map(|(_, outcome)| outcome)
    }

    /// Sets the result of the check that shows whether a path works.
    pub(super) fn set(&mut self, path: DataPath, outcome: Option<Outcome>) {
        match path.check() {
            Some(IntegrityCheck::Write16) => self.write16 = outcome,
            Some(IntegrityCheck::F2) => self.f2 = outcome,
            Some(IntegrityCheck::E4) => self.e4 = outcome,
            Some(IntegrityCheck::Memory) => self.memory = outcome,
            None => {}
        }
    }

    /// Reason why this path can't be measured, if the check has already found one.
    pub fn obstacle(&self, path: DataPath) -> Option<&Outcome> {
        self.of(path).filter(|outcome| matches!(outcome, Outcome::NoAnswer { .. } | Outcome::Refused { .. }))
    }
}

/// Result of a path.
#[derive(Debug, Clone, PartialEq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Integrity: every byte read back the same.
    #[display("the same, every byte")]
    Same,
    /// Integrity: a byte read back differently.
    #[display("differs first at {offset:#x}: expected {expected:02x}, found {found:02x}")]
    Differs {
        /// Its offset in the pattern.
        offset: usize,
        /// The written byte.
        expected: u8,
        /// The byte that was read.
        found: u8,
    },
    /// The path moved fewer bytes than requested.
    #[display("short: {found} of {expected} bytes, with good status")]
    Short {
        /// Bytes requested.
        expected: usize,
        /// Bytes moved.
        found: usize,
    },
    /// The path was measured.
    #[display("measured")]
    Measured(Box<Figures>),
    /// No answer within the time limit. The unit was recovered.
    #[display("no answer in {timeout_s} s; the unit was recovered")]
    NoAnswer {
        /// The time limit in seconds.
        timeout_s: f64,
    },
    /// The path was skipped: it can't be measured on this unit in its current state.
    #[display("not run: {reason}")]
    NotRun {
        /// The reason.
        reason: Skip,
    },
    /// The unit refused.
    #[display("refused: {reason}")]
    Refused {
        /// The reason, as the unit gave it.
        reason: String,
    },
}

/// Reasons a path is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Skip {
    /// Only other firmware has the path.
    #[display("the unit's firmware has no such path")]
    OtherFirmware,
    /// An SSD is behind the bridge, whose requests or reads use the same registers.
    #[display("an SSD is behind the bridge, and the firmware uses the same registers for it")]
    SsdBehind,
    /// Over Bulk-Only the vendor's firmware never answers WRITE(16) without an SSD.
    #[display("over Bulk-Only the vendor's firmware never answers it without an SSD")]
    BulkOnly,
    /// At high speed the vendor's firmware answers WRITE(16) before it asks for its data.
    #[display("at high speed the vendor's firmware answers it before it asks for its data")]
    HighSpeed,
    /// No device behind the bridge completes the read.
    #[display("no device that completes")]
    NoCompleter,
    /// A path gave no answer, and its recovery has cleared the bus numbers and addresses behind the bridge. Executed on
    /// 240417: a survey after that recovery finds no device any more.
    #[display("a path before it gave no answer, and the recovery cleared PCIe")]
    AfterRecovery,
    /// The PCIe link is down.
    #[display("the PCIe link is down")]
    LinkDown,
    /// No GPU's memory has an address. A plan that writes assigns one.
    #[display("no GPU's memory has an address")]
    NoAddress,
    /// No GPU is seen, and buses have no numbers. A plan that writes assigns them.
    #[display("no GPU is seen: the buses have no numbers")]
    NoBusNumbers,
    /// No GPU offers memory that may be written.
    #[display("no GPU behind the bridge offers memory that may be written")]
    NoMemory,
}

impl Outcome {
    pub(super) fn no_answer(deadline: Duration) -> Self {
        Self::NoAnswer { timeout_s: deadline.as_secs_f64() }
    }

    /// Whether the path gave no answer.
    pub const fn is_silent(&self) -> bool {
        matches!(self, Self::NoAnswer { .. })
    }

    /// Whether the unit failed to do what its firmware should. A skipped path is no failure.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Same | Self::NotRun { .. } => false,
            Self::Measured(figures) => figures.mismatches > 0,
            Self::Differs { .. } | Self::Short { .. } | Self::NoAnswer { .. } | Self::Refused { .. } => true,
        }
    }
}

/// A path at one size and depth.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Row {
    /// The path, and how it was measured.
    #[serde(flatten)]
    pub point: Point,
    /// The result.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl BenchReport {
    /// Whether bytes came back different from what was written, in the check or in a row.
    pub fn is_corrupt(&self) -> bool {
        let mismatched = self.rows.iter().filter_map(Row::figures).any(|figures| figures.mismatches > 0);
        mismatched || self.integrity.as_ref().is_some_and(Integrity::is_corrupt)
    }

    /// The rows that gave no answer.
    pub fn silent_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.outcome.is_silent())
    }

    /// Whether a path gave no answer.
    pub fn is_silent(&self, path: DataPath) -> bool {
        self.silent_rows().any(|row| row.point.path == path)
    }

    /// The row of a path with the greatest median, if any has figures.
    pub fn best_row(&self, path: DataPath) -> Option<&Row> {
        let rows = self.rows.iter().filter(|row| row.point.path == path);
        let measured = rows.filter_map(|row| Some((row, row.figures()?.mb_per_s.median)));
        measured.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(row, _)| row)
    }

    /// The greatest median of a path's rows, in MB/s.
    pub fn best(&self, path: DataPath) -> Option<f64> {
        Some(self.best_row(path)?.figures()?.mb_per_s.median)
    }

    /// The first row that failed, in the order of measurement.
    pub fn failed_row(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.outcome.is_failure())
    }
}

impl Row {
    /// The figures, if the path was measured.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Measured(figures) => Some(figures),
            _ => None,
        }
    }
}

/// Figures over all repetitions. MB are 10^6 bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Figures {
    /// Throughput of the repetitions.
    pub mb_per_s: Spread,
    /// Commands a second of the repetitions.
    pub commands_per_s: Spread,
    /// Median latency from submission to status, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of the latency, in microseconds.
    pub p99_9_us: f64,
    /// The longest latency, in microseconds.
    pub max_us: f64,
    /// Number of commands in all repetitions.
    pub commands: u64,
    /// Number of commands whose data was not the pattern; also 0 if there was no pattern to compare with.
    pub mismatches: u64,
    /// Whether each command's data was compared with the pattern.
    pub compared: bool,
}

/// Median and range over the repetitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Computes the spread of at least one value; `None` without values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_governors_are_in_the_json_if_the_host_has_any() {
        let slow = BenchUnit { cpu_governors: vec!["powersave".to_owned()], ..BenchUnit::default() };
        let json = serde_json::to_value(&slow).unwrap();
        assert_eq!(json["cpu_governors"], serde_json::json!(["powersave"]));
        let json = serde_json::to_value(BenchUnit::default()).unwrap();
        assert!(json.get("cpu_governors").is_none(), "{json}");
    }

    #[test]
    fn a_spread_is_median_and_range() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(vec![4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn every_checked_path_has_its_result_under_its_check_and_no_other() {
        for &path in DataPath::ALL {
            let mut checked = Integrity::default();
            checked.set(path, Some(Outcome::Same));
            let found: Vec<IntegrityCheck> = checked.outcomes().map(|(check, _)| check).collect();
            assert_eq!(found, path.check().into_iter().collect::<Vec<_>>(), "{path}");
            assert_eq!(checked.of(path).is_some(), path.check().is_some(), "{path}");
        }
    }

    fn report(rows: Vec<Row>) -> BenchReport {
        BenchReport {
            tool: String::new(),
            unit: BenchUnit::default(),
            integrity: None,
            e4_extension: false,
            read16_sram: false,
            rows,
            verdict: Vec::new(),
        }
    }

    #[test]
    fn the_best_of_a_path_is_its_fastest_row_wherever_that_stands() {
        let row = |path, rate| {
            let spread = Spread { median: rate, min: rate, max: rate };
            let figures = Figures { mb_per_s: spread, ..Figures::default() };
            Row { point: Point { path, size: 255, depth: 1 }, outcome: Outcome::Measured(figures.into()) }
        };
        for rates in [[2.0, 0.5], [0.5, 2.0]] {
            let rows = rates.map(|rate| row(DataPath::E4Stock, rate)).into_iter().chain([row(DataPath::F0Write, 9.0)]);
            assert_eq!(report(rows.collect()).best(DataPath::E4Stock), Some(2.0), "{rates:?}");
        }
    }

    #[test]
    fn one_row_whose_bytes_differ_is_corruption() {
        let row = |mismatches| {
            let figures = Figures { mismatches, compared: true, ..Figures::default() };
            let point = Point { path: DataPath::E4Stock, size: 255, depth: 1 };
            Row { point, outcome: Outcome::Measured(figures.into()) }
        };
        assert!(!report(vec![row(0), row(0)]).is_corrupt());
        assert!(report(vec![row(0), row(1)]).is_corrupt() && report(vec![row(1), row(0)]).is_corrupt());
    }

    #[test]
    fn silence_is_an_obstacle_and_other_bytes_are_corruption() {
        let silent = Integrity { write16: Some(Outcome::NoAnswer { timeout_s: 2.0 }), ..Integrity::default() };
        assert!(silent.obstacle(DataPath::Write16).is_some() && silent.obstacle(DataPath::E4Stock).is_none());
        assert!(!silent.is_corrupt());
        let wrong = Outcome::Differs { offset: 7, expected: 1, found: 2 };
        assert!(Integrity { e4: Some(wrong), ..Integrity::default() }.is_corrupt());
    }
}
