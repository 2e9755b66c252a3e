//! A whole bench: survey, integrity, a row for each path, size and depth, and the verdict.

use std::collections::BTreeSet;

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464_dock::tiny_gpu::TinyGpu;
use asm2464_host::bridge::survey::{behind, has_e4_extension, has_read16_sram};
use asm2464_host::bridge::{Behind, Bridge, Speed, Transport, TransportKind};
use asm2464_host::pcie::{EngineError, PcieError, VendorTlp};

use super::beyond::{self, Beyond, Memory};
use super::error::{BenchError, Halt};
use super::measure::{Effort, Point, measure, measure_completed};
use super::path::Path;
use super::pattern::Pattern;
use super::report::{BenchReport, BenchUnit, Integrity, Outcome, Row};
use super::{integrity, tlp, verdict};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchPlan {
    /// The paths. [`Path::E4Extended`] is skipped if the unit does not have it. The row of any other path that the
    /// firmware lacks says so.
    pub paths: BTreeSet<Path>,
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
    /// Whether any of these paths is selected that changes the bridge's SRAM, or memory behind the bridge.
    pub(super) fn writes(&self, paths: &[Path]) -> bool {
        paths.iter().any(|path| path.writes() && self.paths.contains(path))
    }

    /// The points to measure of a firmware's paths, and of selected paths that the firmware lacks. `most` is the
    /// maximum depth; `longest` limits a path's size.
    pub(super) fn points(
        &self,
        paths: &[Path],
        most: usize,
        usual: &[usize],
        longest: impl Fn(Path) -> usize,
    ) -> Vec<Point> {
        let depths = self.depths_for(most, usual);
        let foreign = self.paths.iter().copied().filter(|path| !paths.contains(path));
        let own = paths.iter().copied().filter(|path| self.paths.contains(path));
        own.chain(foreign)
            .flat_map(|path| self.sizes_of(path).into_iter().map(move |size| (path, size)))
            .map(|(path, size)| (path, size.min(longest(path))))
            .flat_map(|(path, size)| {
                path.depths(size, &depths).into_iter().map(move |depth| Point { path, size, depth })
            })
            .collect()
    }

    fn sizes_of(&self, path: Path) -> Vec<usize> {
        if !self.sizes.is_empty() {
            self.sizes.iter().copied().filter(|size| path.takes(*size)).collect()
        } else if self.sweep {
            path.sweep_sizes().to_vec()
        } else {
            path.usual_sizes()
        }
    }

    fn depths_for(&self, max: usize, usual: &[usize]) -> Vec<usize> {
        let depths: BTreeSet<usize> = if !self.depths.is_empty() {
            self.depths.iter().map(|depth| (*depth).clamp(1, max)).collect()
        } else if self.sweep {
            let doubled = std::iter::successors(Some(1), |depth| Some(depth * 2));
            doubled.take_while(|depth| *depth < max).chain([max]).collect()
        } else {
            usual.iter().copied().collect()
        };
        depths.into_iter().collect()
    }
}

/// Progress of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchEvent {
    /// The survey and the integrity check.
    Checking,
    /// The unit will be initialised as by a GPU runtime. Restart it at the end.
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
}

pub(super) const NO_DEVICE: &str = "no device that completes";
/// Maximum number of bytes of one READ(16) with the patch read16-sram.
const READ16_SRAM_MAX: usize = 0x8000;

/// What completes a READ(16) that uses DMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadCompleter {
    /// The SSD behind the bridge.
    Drive,
    /// This GPU writes the completion entry.
    Card(TinyGpu),
    /// Nothing.
    Nobody,
}

/// Reason to skip a path on this unit. `read16_sram`: software answers READ(16), by the patch read16-sram.
fn left_out(
    path: Path,
    plan: &BenchPlan,
    kind: TransportKind,
    reads: ReadCompleter,
    read16_sram: bool,
) -> Option<&'static str> {
    let has_ssd = reads == ReadCompleter::Drive;
    match path {
        path if !Path::VENDOR.contains(&path) => Some("the vendor's firmware has no such path"),
        path if path.is_tlp() && has_ssd => {
            Some("an SSD is behind the bridge, and the firmware's own requests go to it")
        }
        // Executed: refused before the initialisation, and never answered after it.
        Path::Write16 if kind == TransportKind::BulkOnly => {
            Some("over Bulk-Only the vendor's firmware never answers it without an SSD; over UAS it does")
        }
        // Executed: without streams the status comes before WRITE READY, so the data never moves.
        Path::Write16 if kind == TransportKind::Uas => {
            Some("at high speed the vendor's firmware answers it before it asks for its data; try a SuperSpeed port")
        }
        Path::E5Dma if has_ssd => Some("an SSD is behind the bridge, and its reads use the same DMA"),
        Path::E5Dma if kind != TransportKind::UasStreams => Some("it needs UAS with streams"),
        Path::E5Dma if !matches!(reads, ReadCompleter::Card(_)) => Some(NO_DEVICE),
        Path::Read16 if reads == ReadCompleter::Nobody && !read16_sram && !plan.reads_without_ssd => Some(NO_DEVICE),
        _ => None,
    }
}

/// Runs the plan on a unit that runs the vendor's firmware. `unit` identifies it; `firmware`, `transport` and `behind`
/// are filled in here.
///
/// If [`BenchEvent::Initialising`] was reported, the unit is initialised as by a GPU runtime when this ends,
/// successfully or not. The contents of the GPU's memory are restored, also after an error or Ctrl-C, as long as the
/// unit answers.
///
/// # Errors
/// [`BenchError`]: refused because of an SSD, the wire failed, Ctrl-C.
pub fn run<T: Transport>(
    bridge: &mut Bridge<T>,
    unit: BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<BenchReport, BenchError> {
    let mut before = None;
    let outcome = measure_all(bridge, unit, plan, interrupt, progress, &mut before);
    if let Some((memory, before)) = before {
        let restored = restore(bridge, memory, &before);
        // A failure of the rows themselves is more useful.
        if outcome.is_ok() {
            restored.map_err(PcieError::from)?;
        }
    }
    outcome
}

/// Writes back what was in the GPU's memory. The failure that ended the rows may have left the unit to be recovered.
fn restore<T: Transport>(bridge: &mut Bridge<T>, memory: Memory, before: &[u8]) -> Result<(), EngineError> {
    tlp::write(&mut VendorTlp::new(bridge), memory, before).or_else(|_| {
        bridge.recover()?;
        tlp::write(&mut VendorTlp::new(bridge), memory, before)
    })
}

/// Runs the plan. Puts into `saved` what was in the GPU's memory before this changes it.
fn measure_all<T: Transport>(
    bridge: &mut Bridge<T>,
    mut unit: BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
    saved: &mut Option<(Memory, Vec<u8>)>,
) -> Result<BenchReport, BenchError> {
    progress.event(BenchEvent::Checking);
    let kind = bridge.transport_mut().kind();
    unit.transport = kind.name().to_owned();
    unit.firmware = "vendor".to_owned();
    let writes = plan.writes(&Path::VENDOR);
    let behind = behind(bridge)?;
    let (has_ssd, has_no_medium) = (matches!(behind, Behind::Ssd(_)), behind == Behind::NoMedium);
    unit.behind = match behind {
        Behind::Ssd(what) if writes => return Err(BenchError::SsdBehind { what }),
        Behind::CannotTell(why) if writes => return Err(BenchError::CannotTell { why }),
        Behind::Ssd(what) => what,
        Behind::NoMedium => "no medium".to_owned(),
        Behind::CannotTell(why) => format!("can't tell: {why}"),
    };
    interrupt.check()?;

    let mut reads = if has_ssd { ReadCompleter::Drive } else { ReadCompleter::Nobody };
    let runs = |path, reads| plan.paths.contains(&path) && left_out(path, plan, kind, reads, false).is_none();
    let completes = has_no_medium
        && kind == TransportKind::UasStreams
        && (plan.paths.contains(&Path::E5Dma) || runs(Path::Read16, reads));
    let e4_extension = has_e4_extension(bridge, plan.effort.timeout)? == Some(true);
    let pattern = Pattern::new(plan.seed);
    let mut beyond = None;
    if completes || Path::VENDOR.iter().any(|path| path.is_tlp() && runs(*path, reads)) {
        let found = beyond::look(&mut VendorTlp::new(bridge), writes || completes, completes, interrupt)?;
        if found.function.is_some() {
            unit.behind = format!("{}; on PCIe {}", unit.behind, found.words);
        }
        reads = found.card.map_or(reads, ReadCompleter::Card);
        beyond = Some(found);
    }
    let initialises = !has_ssd && [Path::Write16, Path::Read16].into_iter().any(|path| runs(path, reads));
    let memory = beyond.as_ref().and_then(|beyond| beyond.memory.as_ref().ok()).filter(|_| runs(Path::TlpWrite, reads));
    let mut memory_outcome = None;
    if let Some(&memory) = memory {
        let engine = &mut VendorTlp::new(bridge);
        let checked = tlp::save(engine, memory, plan.effort).and_then(|before| {
            *saved = Some((memory, before));
            tlp::check(engine, memory, &pattern, plan.effort)
        });
        memory_outcome = Some(checked.or_else(Halt::outcome)?);
    }
    if initialises {
        if !bridge.has_no_medium()? {
            let why = "READ CAPACITY and E6 do not both answer 2/3A (medium not present)".to_owned();
            return Err(BenchError::CannotTell { why });
        }
        progress.event(BenchEvent::Initialising);
        bridge.initialise()?;
    }
    let asks = initialises && plan.paths.contains(&Path::Read16);
    let read16_sram = asks && is_read_by_software(bridge, plan)?;
    let mut integrity = None;
    if runs(Path::Write16, reads) {
        integrity = Some(integrity::check(bridge, &pattern, plan.effort.timeout)?);
    }
    if memory_outcome.is_some() {
        integrity.get_or_insert_default().memory = memory_outcome;
    }
    let holds_pattern = integrity.as_ref().is_some_and(|integrity| integrity.write16 == Some(Outcome::Same));
    interrupt.check()?;

    let most = bridge.transport_mut().max_depth();
    let longest = |path: Path| match path {
        Path::Read16 if read16_sram => READ16_SRAM_MAX,
        path => path.max_len(),
    };
    let mut wanted = plan.points(&Path::VENDOR, most, &[most], longest);
    wanted.retain(|point| point.path != Path::E4Extended || e4_extension);
    // During a READ(16) nothing can be told to complete the next.
    if matches!(reads, ReadCompleter::Card(_)) && !read16_sram {
        wanted.iter_mut().filter(|point| point.path == Path::Read16).for_each(|point| point.depth = 1);
        wanted.dedup();
    }
    let rows = measure_each(&wanted, interrupt, progress, |point, rows| {
        let left_out = left_out(point.path, plan, kind, reads, read16_sram);
        if let Some(known) = obstacle(point.path, left_out, beyond.as_ref(), integrity.as_ref(), rows) {
            return Ok(known);
        }
        let by_dma = point.path == Path::E5Dma || (point.path == Path::Read16 && !read16_sram);
        let outcome = match (&beyond, reads) {
            (Some(beyond), _) if point.path.is_tlp() => {
                tlp::measure(&mut VendorTlp::new(bridge), point, beyond, plan.effort, interrupt)?
            }
            (_, ReadCompleter::Card(card)) if by_dma => {
                measure_completed(bridge, card, point, &pattern, holds_pattern, plan.effort, interrupt)?
            }
            _ => {
                let compares = holds_pattern && (point.path != Path::Read16 || read16_sram);
                measure(bridge, point, &pattern, compares, plan.effort, interrupt)?
            }
        };
        // Recovery of a unit clears its initialisation.
        if initialises && matches!(outcome, Outcome::NoAnswer { .. }) {
            bridge.initialise()?;
        }
        Ok(outcome)
    })?;
    let verdict = verdict::judge(&rows, BridgeState::Vendor, Speed::Unknown);
    Ok(BenchReport {
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        unit,
        integrity,
        e4_extension,
        read16_sram,
        rows,
        verdict,
    })
}

/// Measures each point. `measure` gets the point and the rows before it.
pub(super) fn measure_each(
    points: &[Point],
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
    mut measure: impl FnMut(Point, &[Row]) -> Result<Outcome, BenchError>,
) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::with_capacity(points.len());
    for (index, &point) in points.iter().enumerate() {
        interrupt.check()?;
        progress.event(BenchEvent::Row { index, of: points.len(), point });
        let Point { path, size, depth } = point;
        rows.push(Row { path, size, depth, outcome: measure(point, &rows)? });
    }
    Ok(rows)
}

/// Whether the unit has the patch read16-sram. Firmware that does not answer a READ(16) of no sectors lacks it, and is
/// initialised again after its recovery.
fn is_read_by_software<T: Transport>(bridge: &mut Bridge<T>, plan: &BenchPlan) -> Result<bool, BenchError> {
    match has_read16_sram(bridge, plan.effort.timeout) {
        Err(error) if error.is_timeout() => {
            integrity::recover(bridge, Path::Read16)?;
            bridge.initialise()?;
            Ok(false)
        }
        asked => Ok(asked?),
    }
}

/// The known result of a path before its measurement: it is skipped, can't be reached, or failed before. A path that
/// never answered is not tried at another size, which would only cost its time-out.
pub(super) fn obstacle(
    path: Path,
    left_out: Option<&str>,
    beyond: Option<&Beyond>,
    integrity: Option<&Integrity>,
    rows: &[Row],
) -> Option<Outcome> {
    let not_run = |reason: &str| Outcome::NotRun { reason: reason.to_owned() };
    let unreachable = beyond.filter(|_| path == Path::ConfigRead || path.needs_memory()).and_then(|beyond| {
        let why = beyond.memory.as_ref().err()?;
        (path.needs_memory() || beyond.function.is_none()).then(|| not_run(why))
    });
    let failed = || integrity.and_then(|integrity| integrity.obstacle(path)).cloned();
    let silent = || {
        let before = rows.iter().find(|row| row.path == path).map(|row| &row.outcome);
        before.filter(|outcome| matches!(outcome, Outcome::NoAnswer { .. })).cloned()
    };
    left_out.map(not_run).or(unreachable).or_else(failed).or_else(silent)
}
