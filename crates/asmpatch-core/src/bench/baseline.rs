//! Compares a report with an earlier one.

use derive_more::Display;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::path::Path;
use super::report::{BenchReport, Row, SCHEMA};

/// A row compared with the same row of an earlier run.
#[derive(Debug, Clone, PartialEq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[display("{:+.1}%{}", self.percent(), if *within_spread { " (within spread)" } else { "" })]
pub struct Change {
    /// The path.
    pub path: Path,
    /// Bytes of a command.
    pub size: usize,
    /// Commands in flight.
    pub depth: usize,
    /// The earlier median, in MB/s.
    pub before_mb_per_s: f64,
    /// The median now, in MB/s.
    pub now_mb_per_s: f64,
    /// Whether the two runs' ranges overlap, so that the difference may be noise.
    pub within_spread: bool,
}

impl Change {
    fn percent(&self) -> f64 {
        (self.now_mb_per_s / self.before_mb_per_s - 1.0) * 100.0
    }
}

/// Reasons a file is not a report of `bench --json`.
#[derive(Debug, Error)]
pub enum BaselineError {
    /// Not JSON, or unexpected keys.
    #[error("the baseline is not a bench report")]
    Json(#[source] serde_json::Error),
    /// The report has another version.
    #[error("the baseline has schema {found}, this asmpatch reads {SCHEMA}")]
    Schema {
        /// Its version.
        found: u32,
    },
}

asm2464::coded!(BaselineError {
    Json => "asmpatch::bench::baseline",
    Schema => "asmpatch::bench::baseline_schema",
});

/// A report as `bench --json` prints it.
#[derive(Deserialize)]
struct Printed {
    schema: u32,
    #[serde(flatten)]
    report: BenchReport,
}

/// Parses an earlier report.
///
/// # Errors
/// [`BaselineError`].
pub fn parse(json: &str) -> Result<BenchReport, BaselineError> {
    let Printed { schema, report } = serde_json::from_str(json).map_err(BaselineError::Json)?;
    if schema == SCHEMA { Ok(report) } else { Err(BaselineError::Schema { found: schema }) }
}

/// Compares the rows that both runs measured, in the order of the later run.
pub fn compare(before: &BenchReport, now: &BenchReport) -> Vec<Change> {
    let change = |row: &Row| {
        let same = |other: &&Row| (other.path, other.size, other.depth) == (row.path, row.size, row.depth);
        let before = before.rows.iter().find(same)?.figures()?.mb_per_s;
        let now = row.figures()?.mb_per_s;
        Some(Change {
            path: row.path,
            size: row.size,
            depth: row.depth,
            before_mb_per_s: before.median,
            now_mb_per_s: now.median,
            within_spread: before.min <= now.max && now.min <= before.max,
        })
    };
    now.rows.iter().filter_map(change).collect()
}
