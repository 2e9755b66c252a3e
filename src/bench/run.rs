//! A whole bench: survey, integrity, a row for each path, size and depth, verdict.

use std::collections::BTreeSet;

use super::error::BenchError;
use super::integrity;
use super::measure::{Effort, Point, measure};
use super::path::Path;
use super::pattern::Pattern;
use super::report::{Outcome, Report, Row, SCHEMA, Unit};
use super::verdict;
use crate::bridge::survey::{behind, has_e4_extension};
use crate::bridge::{Behind, Bridge, Transport, TransportKind};
use crate::interrupt::Interrupt;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The paths; [`Path::E4Extended`] is left out where the unit does not have it.
    pub paths: BTreeSet<Path>,
    /// Bytes a command, or none: each path's largest, or with `sweep` its sizes. A path skips those it can't move.
    pub sizes: Vec<usize>,
    /// Commands in flight, or none: as many as the transport takes, or with `sweep` 1, 2, 4 and so on up to that.
    pub depths: Vec<usize>,
    /// Every size at every depth.
    pub sweep: bool,
    /// Measure READ(16) without an SSD, too, which the vendor's firmware never answers: the unit is recovered then.
    pub reads_without_ssd: bool,
    /// How long and how often.
    pub effort: Effort,
    /// Seeds the pattern: another each run, so that what an earlier run left is no match.
    pub seed: u64,
}

impl Plan {
    fn sizes_of(&self, path: Path) -> Vec<usize> {
        if !self.sizes.is_empty() {
            self.sizes.iter().copied().filter(|size| path.takes(*size)).collect()
        } else if self.sweep {
            path.sweep_sizes().to_vec()
        } else {
            vec![path.max_len()]
        }
    }

    fn depths_for(&self, max: usize) -> Vec<usize> {
        let mut depths = if !self.depths.is_empty() {
            self.depths.iter().map(|depth| (*depth).clamp(1, max)).collect()
        } else if self.sweep {
            std::iter::successors(Some(1), |depth| Some(depth * 2))
                .take_while(|depth| *depth < max)
                .chain([max])
                .collect()
        } else {
            vec![max]
        };
        depths.sort_unstable();
        depths.dedup();
        depths
    }
}

/// What is going on, for a progress display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The survey and the integrity check.
    Checking,
    /// The unit is about to be initialised as a GPU runtime does: it should be restarted in the end.
    Initialising,
    /// A row begins.
    Row {
        /// Its number, from 0.
        index: usize,
        /// How many there are.
        of: usize,
        /// What it measures.
        point: Point,
    },
}

/// WRITE(16) goes one at a time, as the GPU runtime sends it. Firmware with the status patch answers it before it has its
/// data: executed on 240417, with several in flight one ends with good status and no data moved.
fn depths_of(path: Path, depths: &[usize]) -> &[usize] {
    if path.writes() { &[1] } else { depths }
}

/// Why a path is left out on this unit.
fn left_out(path: Path, plan: &Plan, kind: TransportKind, has_ssd: bool) -> Option<&'static str> {
    match path {
        // Executed: refused before the initialisation, and never answered after it.
        Path::Write16 if kind == TransportKind::BulkOnly => {
            Some("over Bulk-Only the vendor's firmware never answers it without an SSD; see `--transport uas`")
        }
        // Executed: without streams the status comes before WRITE READY, so the data never moves.
        Path::Write16 if kind == TransportKind::Uas => {
            Some("at high speed the vendor's firmware answers it before it asks for its data; try a SuperSpeed port")
        }
        Path::Read16 if !has_ssd && !plan.reads_without_ssd => Some("no SSD"),
        _ => None,
    }
}

/// Runs the plan on a unit. `unit` tells who it is; its `transport` and `behind` are filled in here.
///
/// A unit that [`Progress::Initialising`] was told of is initialised as by a GPU runtime when this ends, well or not.
///
/// # Errors
/// [`BenchError`]: refused because of an SSD, the wire failed, Ctrl-C.
pub fn run<T: Transport>(
    bridge: &mut Bridge<T>,
    mut unit: Unit,
    plan: &Plan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BenchError> {
    progress(Progress::Checking);
    let kind = bridge.transport_mut().kind();
    unit.transport = kind.name().to_owned();
    let writes = plan.paths.iter().any(|path| path.writes());
    let behind = behind(bridge)?;
    let has_ssd = matches!(behind, Behind::Ssd(_));
    unit.behind = match behind {
        Behind::Ssd(what) if writes => return Err(BenchError::SsdBehind { what }),
        Behind::CannotTell(why) if writes => return Err(BenchError::CannotTell { why }),
        Behind::Ssd(what) => what,
        Behind::NoMedium => "no medium".to_owned(),
        Behind::CannotTell(why) => format!("can't tell: {why}"),
    };
    interrupt.check()?;

    let left_out = |path| left_out(path, plan, kind, has_ssd);
    let runs = |path: &Path| plan.paths.contains(path) && left_out(*path).is_none();
    let initialises = !has_ssd && [Path::Write16, Path::Read16].iter().any(runs);
    let e4_extension = has_e4_extension(bridge, plan.effort.timeout)?;
    if initialises {
        if !bridge.has_no_medium()? {
            let why = "READ CAPACITY and E6 do not both answer 2/3A (medium not present)".to_owned();
            return Err(BenchError::CannotTell { why });
        }
        progress(Progress::Initialising);
        bridge.initialise()?;
    }
    let pattern = Pattern::new(plan.seed);
    let integrity =
        if runs(&Path::Write16) { Some(integrity::check(bridge, &pattern, plan.effort.timeout)?) } else { None };
    let holds_pattern = integrity.as_ref().is_some_and(|integrity| integrity.write16 == Some(Outcome::Same));
    interrupt.check()?;

    let depths = plan.depths_for(bridge.transport_mut().max_depth());
    let wanted: Vec<Point> = Path::ALL
        .into_iter()
        .filter(|path| plan.paths.contains(path) && (*path != Path::E4Extended || e4_extension))
        .flat_map(|path| plan.sizes_of(path).into_iter().map(move |size| (path, size)))
        .flat_map(|(path, size)| depths_of(path, &depths).iter().map(move |&depth| Point { path, size, depth }))
        .collect();
    let mut rows: Vec<Row> = Vec::with_capacity(wanted.len());
    for (index, &point) in wanted.iter().enumerate() {
        let Point { path, size, depth } = point;
        interrupt.check()?;
        progress(Progress::Row { index, of: wanted.len(), point });
        // A path that never answered gives no answer at another size: asking again only costs its time-out.
        let known = integrity.as_ref().and_then(|integrity| integrity.obstacle(path)).or_else(|| {
            let before = rows.iter().find(|row| row.path == path).map(|row| &row.outcome);
            before.filter(|outcome| matches!(outcome, Outcome::NoAnswer { .. }))
        });
        let outcome = match (left_out(path), known) {
            (Some(reason), _) => Outcome::NotRun { reason: reason.to_owned() },
            (None, Some(outcome)) => outcome.clone(),
            (None, None) => {
                let outcome = measure(bridge, point, &pattern, holds_pattern, plan.effort, interrupt)?;
                // What recovers a unit clears its initialisation.
                if initialises && matches!(outcome, Outcome::NoAnswer { .. }) {
                    bridge.initialise()?;
                }
                outcome
            }
        };
        rows.push(Row { path, size, depth, outcome });
    }
    let verdict = verdict::judge(&rows);
    Ok(Report {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        unit,
        integrity,
        e4_extension,
        rows,
        verdict,
    })
}
