//! What a bench found: the JSON of `--json`, and what tables and charts are drawn from. docs/bench.md describes it.

use serde::{Deserialize, Serialize};

use super::path::Path;
use super::predict::Prediction;

/// The version of the JSON's structure. It grows when a key changes its meaning or goes away.
pub const SCHEMA: u32 = 2;

/// All that a bench found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchReport {
    /// The version of asmpatch.
    pub tool: String,
    /// The unit.
    pub unit: BenchUnit,
    /// Whether the pattern came back; absent where nothing was written.
    pub integrity: Option<Integrity>,
    /// Whether E4 takes more than 255 bytes a command.
    pub e4_extension: bool,
    /// Whether READ(16) is answered by software: the patch read16-sram. `false` where it was not asked.
    #[serde(default)]
    pub read16_sram: bool,
    /// One row a path, size and depth.
    pub rows: Vec<Row>,
    /// What the figures mean to a GPU runtime.
    pub verdict: Vec<BenchVerdict>,
}

/// One path's best row against what a GPU runtime sees today.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchVerdict {
    /// The path.
    pub path: Path,
    /// The median of its fastest row; `None` where it gave no answer.
    pub mb_per_s: Option<f64>,
    /// What a runtime gets from this path today, in MB/s, as published.
    pub needed_mb_per_s: f64,
    /// Whether the row reaches that.
    pub meets: bool,
    /// Where the number comes from.
    pub source: String,
}

/// The unit that was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchUnit {
    /// Port path, or `virtual:DIR`.
    pub device: String,
    /// A virtual bridge: the figures measure this machine, not a bridge.
    pub is_virtual: bool,
    /// VID:PID.
    pub usb_id: String,
    /// The serial number.
    pub serial: String,
    /// What runs on it: `vendor` or `open-firmware`.
    #[serde(default)]
    pub firmware: String,
    /// Wire protocol: `bulk-only`, `uas-streams`, `uas`, `control`.
    pub transport: String,
    /// What is behind it: `no medium`, the SSD's capacity or model, or a device on PCIe.
    pub behind: String,
}

/// What became of the pattern on each way. `None` is: not tried, because an earlier step failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Integrity {
    /// Writing it.
    pub write16: Option<Outcome>,
    /// Writing it through F2.
    #[serde(default)]
    pub f2: Option<Outcome>,
    /// Reading each 4 KiB of it back through E4.
    pub e4: Option<Outcome>,
    /// Writing it to memory behind the bridge, and reading it back: by F0's streams, or by TLPs.
    #[serde(default)]
    pub memory: Option<Outcome>,
}

impl Integrity {
    /// Whether bytes came back that are not those written. A path without an answer is no corruption.
    pub fn is_corrupt(&self) -> bool {
        self.outcomes().any(|outcome| matches!(outcome, Outcome::Differs { .. } | Outcome::Short { .. }))
    }

    /// Each way that was tried.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        [&self.write16, &self.f2, &self.e4, &self.memory].into_iter().flatten()
    }

    /// Why this path can't be measured, if the check already found that out.
    pub fn obstacle(&self, path: Path) -> Option<&Outcome> {
        let outcome = match path {
            Path::Write16 => &self.write16,
            Path::F2Out => &self.f2,
            Path::E4Stock | Path::E4Extended => &self.e4,
            Path::TlpRead | Path::TlpWrite | Path::F0Write | Path::F0Read => &self.memory,
            Path::Read16 | Path::E5Dma | Path::ConfigRead | Path::F2In => return None,
        };
        outcome.as_ref().filter(|outcome| matches!(outcome, Outcome::NoAnswer { .. } | Outcome::Refused { .. }))
    }
}

/// How a path ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Integrity: every byte came back the same.
    Same,
    /// Integrity: a byte did not.
    Differs {
        /// Its place in the pattern.
        offset: usize,
        /// What was written.
        expected: u8,
        /// What came back.
        found: u8,
    },
    /// Fewer bytes than asked for.
    Short {
        /// Bytes asked for.
        expected: usize,
        /// Bytes moved.
        found: usize,
    },
    /// The path was measured.
    Measured(Figures),
    /// No answer within the time given; the unit was recovered.
    NoAnswer {
        /// The time given, in seconds.
        timeout_s: f64,
    },
    /// The path was left out: it can't be measured on this unit as it stands.
    NotRun {
        /// Why.
        reason: String,
    },
    /// The unit refused.
    Refused {
        /// With what.
        reason: String,
    },
}

impl Outcome {
    /// Whether the unit did not do what its firmware should. A path that was left out is no failure.
    pub const fn is_failure(&self) -> bool {
        match self {
            Self::Same | Self::NotRun { .. } => false,
            Self::Measured(figures) => figures.mismatches > 0,
            Self::Differs { .. } | Self::Short { .. } | Self::NoAnswer { .. } | Self::Refused { .. } => true,
        }
    }
}

/// One path at one size and depth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// The path.
    pub path: Path,
    /// Bytes a command.
    pub size: usize,
    /// Commands in flight.
    pub depth: usize,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl BenchReport {
    /// The first row that failed, in the order in which they were measured.
    pub fn failed_row(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.outcome.is_failure())
    }
}

impl Row {
    /// Leaves the prediction out.
    pub const fn forget_prediction(&mut self) {
        if let Outcome::Measured(figures) = &mut self.outcome {
            figures.predicted = None;
        }
    }

    /// The figures, where it was measured.
    pub const fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Measured(figures) => Some(figures),
            _ => None,
        }
    }
}

/// What was measured, over all repetitions. MB are 10^6 bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Figures {
    /// Throughput, a repetition each.
    pub mb_per_s: Spread,
    /// Commands a second, a repetition each.
    pub commands_per_s: Spread,
    /// Median latency from submission to status, in microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p99_9_us: f64,
    /// The slowest.
    pub max_us: f64,
    /// Commands in all repetitions.
    pub commands: u64,
    /// Commands whose data was not the pattern; 0 too where there was none to compare with.
    pub mismatches: u64,
    /// Whether each command's data was compared with the pattern.
    pub compared: bool,
    /// What silicon should reach, where the unit is a model of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Prediction>,
}

/// Median and range over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of at least one value; `None` of none.
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
    fn a_spread_is_median_and_range() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(vec![4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn silence_is_an_obstacle_and_other_bytes_are_corruption() {
        let silent = Integrity { write16: Some(Outcome::NoAnswer { timeout_s: 2.0 }), ..Integrity::default() };
        assert!(silent.obstacle(Path::Write16).is_some() && silent.obstacle(Path::E4Stock).is_none());
        assert!(!silent.is_corrupt());
        let wrong = Outcome::Differs { offset: 7, expected: 1, found: 2 };
        assert!(Integrity { e4: Some(wrong), ..Integrity::default() }.is_corrupt());
    }
}
