//! What the figures mean to a GPU runtime, held against the design document's numbers.

use serde::{Deserialize, Serialize};

use super::path::Path;
use super::report::{Outcome, Row};

/// Where the numbers come from.
pub const SOURCE: &str = "usbgpu.md, \"Speed Comparison\"";

/// One path's best row against what a GPU runtime sees today.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The path.
    pub path: Path,
    /// The median of its fastest row; `None` where it gave no answer.
    pub mb_per_s: Option<f64>,
    /// What a runtime gets from this path today, in MB/s.
    pub needed_mb_per_s: f64,
    /// Whether the row reaches that.
    pub meets: bool,
    /// Where the number comes from.
    pub source: String,
}

/// What the design document gives for a path, in MB/s: about 100 for 64 KiB writes; 1 to 5 for E4 at 255 bytes, of
/// which the lower end is what E4 must reach. READ(16) and the longer E4 are there to replace that slow path, so they
/// must reach its upper end.
const fn needed(path: Path) -> f64 {
    match path {
        Path::Write16 => 100.0,
        Path::E4Stock => 1.0,
        Path::E4Extended | Path::Read16 => 5.0,
    }
}

/// One verdict a path that was run, in the order of the rows.
pub fn judge(rows: &[Row]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for row in rows.iter().filter(|row| !matches!(row.outcome, Outcome::NotRun { .. })) {
        let median = row.figures().map(|figures| figures.mb_per_s.median);
        let index = verdicts.iter().position(|verdict| verdict.path == row.path).unwrap_or_else(|| {
            let needed_mb_per_s = needed(row.path);
            let source = SOURCE.to_owned();
            verdicts.push(Verdict { path: row.path, mb_per_s: None, needed_mb_per_s, meets: false, source });
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
