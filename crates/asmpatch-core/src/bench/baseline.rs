//! Compares a report with an earlier one.

use derive_more::Display;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::path::Path;
use super::report::{BenchReport, Row, SCHEMA};

/// A row that an earlier run measured, compared with the same row now.
#[derive(Debug, Clone, PartialEq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[display("{}{}", self.words(), if *within_spread { " (within spread)" } else { "" })]
pub struct Change {
    /// The path.
    pub path: Path,
    /// Bytes of a command.
    pub size: usize,
    /// Commands in flight.
    pub depth: usize,
    /// The earlier median, in MB/s.
    pub before_mb_per_s: f64,
    /// The median now, in MB/s; `None` if the row has no figures now.
    pub now_mb_per_s: Option<f64>,
    /// Whether the two runs' ranges overlap, so that the difference may be noise.
    pub within_spread: bool,
    /// Whether the row has no figures now, or is slower than allowed and not within the spread.
    pub is_worse: bool,
}

impl Change {
    /// How much faster the row is, in percent of the earlier median.
    fn percent(&self) -> Option<f64> {
        Some((self.now_mb_per_s? / self.before_mb_per_s - 1.0) * 100.0)
    }

    fn words(&self) -> String {
        self.percent().map_or_else(|| "no figures now".to_owned(), |percent| format!("{percent:+.1}%"))
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

/// Compares the rows that the earlier run measured, in the order of the later run. A row may be slower by this many
/// percent.
pub fn compare(before: &BenchReport, now: &BenchReport, max_slower: f64) -> Vec<Change> {
    let change = |row: &Row| {
        let same = |other: &&Row| (other.path, other.size, other.depth) == (row.path, row.size, row.depth);
        let before = before.rows.iter().find(same)?.figures()?.mb_per_s;
        let now = row.figures().map(|figures| figures.mb_per_s);
        let mut change = Change {
            path: row.path,
            size: row.size,
            depth: row.depth,
            before_mb_per_s: before.median,
            now_mb_per_s: now.map(|now| now.median),
            within_spread: now.is_some_and(|now| before.min <= now.max && now.min <= before.max),
            is_worse: false,
        };
        change.is_worse = !change.within_spread && change.percent().is_none_or(|percent| percent < -max_slower);
        Some(change)
    };
    now.rows.iter().filter_map(change).collect()
}
