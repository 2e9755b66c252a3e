//! What to measure: paths, sizes and depths, and for how long; and how far a bench has come with it.

use std::collections::BTreeSet;
use std::time::Duration;

use asm2464::firmware::BridgeState;
use derive_more::Display;
use serde::{Deserialize, Serialize};

use super::path::DataPath;
use super::run::UnitSurvey;

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

/// Progress of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchEvent {
    /// The survey and the integrity check.
    Checking,
    /// The unit will be initialised as by a GPU runtime. Restart it after the bench.
    Initialising,
    /// A row begins.
    Row {
        /// The row's number, from 0.
        index: usize,
        /// The number of rows.
        of: usize,
        /// The point that the row measures.
        point: Point,
    },
    /// A soak is running.
    Soaking {
        /// Time since the soak began.
        elapsed: Duration,
        /// Bytes that the unit has moved.
        bytes: u64,
        /// Errors so far.
        errors: u64,
    },
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

    /// The points to measure on a unit: of its firmware's paths, and of selected paths that the firmware lacks.
    pub(super) fn points(&self, firmware: BridgeState, known: &UnitSurvey) -> Vec<Point> {
        let depths = self.depths_among(&known.depths);
        let foreign = self.paths.iter().copied().filter(|path| !path.is_of(firmware));
        let own = DataPath::of(firmware).filter(|path| self.paths.contains(path));
        let mut points = Vec::new();
        for path in own.chain(foreign) {
            let most = known.limits.get(&path).copied().unwrap_or(path.max_len());
            for size in self.sizes_of(path).into_iter().map(|size| size.min(most)).filter(|size| *size > 0) {
                for depth in path.depths(size, &depths) {
                    let point = Point { path, size, depth };
                    if !points.contains(&point) {
                        points.push(point);
                    }
                }
            }
        }
        points
    }

    fn sizes_of(&self, path: DataPath) -> Vec<usize> {
        match &self.sizes[..] {
            [] => path.default_sizes(self.sweep),
            sizes => sizes.iter().copied().filter(|size| path.takes(*size)).collect(),
        }
    }

    /// The depths to measure. `usual` are those of a plan that names none; the last is the maximum.
    fn depths_among(&self, usual: &[usize]) -> Vec<usize> {
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
