//! What to measure, and for how long: paths, sizes and depths.

use std::collections::BTreeSet;
use std::time::Duration;

use asm2464::firmware::BridgeState;
use derive_more::Display;
use serde::{Deserialize, Serialize};

use super::path::DataPath;

/// Duration and number of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Time before anything counts, to warm up caches, the unit's queues and the host controller's rings.
    pub warm_up: Duration,
    /// Duration of one repetition.
    pub repetition: Duration,
    /// Number of repetitions, at least one.
    pub repetitions: u32,
    /// Time limit of one command.
    pub timeout: Duration,
}

impl Effort {
    /// The effort of the self-test after a flash: long enough to tell the paths apart.
    pub const SELF_TEST: Self = Self {
        warm_up: Duration::from_millis(100),
        repetition: Duration::from_millis(200),
        repetitions: 3,
        timeout: Duration::from_secs(2),
    };
}

/// The configuration that one row measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[display("{path} {size} ×{depth}")]
pub struct Point {
    /// The path.
    pub path: DataPath,
    /// Bytes of a command.
    pub size: usize,
    /// Commands in flight.
    pub depth: usize,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    /// The paths. [`DataPath::E4Extended`] is skipped if the unit does not have it. Any other path that the firmware lacks
    /// gets a row that says so.
    pub paths: BTreeSet<DataPath>,
    /// Bytes of a command. If empty: each path's largest size, or with `sweep` all its sizes. A path skips sizes that
    /// it can't move.
    pub sizes: Vec<usize>,
    /// Commands in flight. If empty: as many as the transport allows, or with `sweep` 1, 2, 4 and so on up to that.
    pub depths: Vec<usize>,
    /// Measure every size at every depth.
    pub sweep: bool,
    /// Measure READ(16) even without an SSD. The vendor's firmware never answers it then, and the unit is recovered.
    pub reads_without_ssd: bool,
    /// Duration and number of measurements.
    pub effort: Effort,
    /// Seed of the pattern. Use another one for each run, so that leftovers of an earlier run never match.
    pub seed: u64,
}

impl BenchPlan {
    /// Measures these paths, each at its largest size and at the transport's depth.
    pub fn new(paths: impl IntoIterator<Item = DataPath>, effort: Effort, seed: u64) -> Self {
        Self {
            paths: paths.into_iter().collect(),
            sizes: Vec::new(),
            depths: Vec::new(),
            sweep: false,
            reads_without_ssd: false,
            effort,
            seed,
        }
    }

    /// Whether a path of this firmware is selected that changes the bridge's SRAM, or memory behind the bridge.
    pub(super) fn writes(&self, firmware: BridgeState) -> bool {
        self.paths.iter().any(|path| path.is_of(firmware) && path.writes())
    }

    /// The sizes to measure of a path.
    pub(super) fn sizes_of(&self, path: DataPath) -> Vec<usize> {
        match &self.sizes[..] {
            [] => path.default_sizes(self.sweep),
            sizes => sizes.iter().copied().filter(|size| path.takes(*size)).collect(),
        }
    }

    /// The depths to measure. `usual` are those of a plan that names none; the last is the maximum.
    pub(super) fn depths_among(&self, usual: &[usize]) -> Vec<usize> {
        let max = usual.last().copied().unwrap_or(1);
        let mut depths: BTreeSet<usize> = self.depths.iter().map(|depth| (*depth).clamp(1, max)).collect();
        if depths.is_empty() && self.sweep {
            let powers = (0..).map(|power| 1 << power).take_while(|depth| *depth < max);
            depths.extend(powers.chain([max]));
        } else if depths.is_empty() {
            depths.extend(usual);
        }
        depths.into_iter().collect()
    }
}
