//! A whole bench: survey, integrity, a row for each path, size and depth, and the verdict.

use std::collections::BTreeSet;
use std::time::Duration;

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464_dock::tiny_gpu::TinyGpu;
use asm2464_dock::virtual_bridge::SharedBridge;
use asm2464_host::bridge::BusSpeed;
use asm2464_host::pcie::{EngineError, PcieError, TlpEngine};

use super::beyond::{self, Beyond, Memory};
use super::error::{BenchError, Halt};
use super::measure::{Effort, Point};
use super::path::Path;
use super::pattern::Pattern;
use super::report::{BenchReport, BenchUnit, Integrity, Outcome, Row, Skip};
use super::{integrity, tlp, verdict};

/// What to measure.
#[derive(Debug, Clone)]
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
    /// The unit, if it is one in software and its chip's work is to be counted: figures then come with a prediction.
    pub model: Option<SharedBridge>,
    /// Seed of the pattern. Use another one for each run, so that leftovers of an earlier run never match.
    pub seed: u64,
}

impl BenchPlan {
    /// Whether any of these paths is selected that changes the bridge's SRAM, or memory behind the bridge.
    pub(super) fn writes(&self, paths: &[Path]) -> bool {
        paths.iter().any(|path| path.writes() && self.paths.contains(path))
    }

    /// The points to measure of a firmware's paths, and of selected paths that the firmware lacks. `most` is the
    /// maximum depth.
    fn points(&self, paths: &[Path], most: usize, usual: &[usize]) -> Vec<Point> {
        let depths = self.depths_for(most, usual);
        let foreign = self.paths.iter().copied().filter(|path| !paths.contains(path));
        let own = paths.iter().copied().filter(|path| self.paths.contains(path));
        own.chain(foreign)
            .flat_map(|path| self.sizes_of(path).into_iter().map(move |size| (path, size)))
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
    /// A soak goes on.
    Soaking {
        /// Time since the soak began.
        elapsed: Duration,
        /// Bytes that the unit has moved.
        bytes: u64,
        /// Errors so far.
        errors: u64,
    },
}

/// What a bench needs of a unit: the part that depends on its firmware.
pub(super) trait Subject {
    /// The firmware, as the verdict needs it.
    const STATE: BridgeState;
    /// Its paths in the order of measurement.
    const PATHS: [Path; 8];
    /// The path that fills the SRAM.
    const FILLS_SRAM: Path;
    /// Bytes of a GPU's memory that the rows change.
    const MEMORY_LEN: usize;
    /// The paths that write and read a GPU's memory, and the bytes that each round of a soak moves through them.
    const MEMORY_PATHS: ([Path; 2], usize);

    /// The names of the firmware and of the wire protocol in JSON.
    fn names(&mut self) -> [&'static str; 2];

    /// The link's speed, if the verdict needs it.
    fn speed(&self) -> BusSpeed;

    /// Maximum number of commands in flight, and the numbers that are measured unless the plan names others.
    fn depths(&mut self) -> (usize, Vec<usize>);

    /// Finds out what the unit has, and whether it may be written.
    fn survey(&mut self, plan: &BenchPlan) -> Result<Known, BenchError>;

    /// Reason to skip one of [`Subject::PATHS`] on this unit.
    fn left_out(&mut self, path: Path, plan: &BenchPlan, known: &Known) -> Option<Skip>;

    /// Makes the unit ready for the SRAM's path. The requests to PCIe of the survey and the checks are over.
    fn prepare(
        &mut self,
        _plan: &BenchPlan,
        _known: &mut Known,
        _progress: &mut dyn Progress<BenchEvent>,
    ) -> Result<(), BenchError> {
        Ok(())
    }

    /// Limits a point to what the unit can do. Returns `false` if it is not worth a row.
    fn limit(&mut self, point: &mut Point, known: &Known) -> bool;

    /// Sends requests to PCIe.
    fn on_pcie<R>(&mut self, work: impl FnOnce(&mut dyn TlpEngine) -> R) -> R;

    /// Writes to the start of the SRAM.
    fn write_sram(&mut self, piece: &[u8], timeout: Duration) -> Result<(), Halt>;

    /// Reads the start of the SRAM through the window.
    fn read_window(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt>;

    /// Reads the start of the SRAM by a path that moves much. Returns the path and the number of bytes; `None` if this
    /// unit has no such path.
    fn read_sram(&mut self, buffer: &mut [u8], known: &Known, timeout: Duration)
    -> Option<(Path, Result<usize, Halt>)>;

    /// Writes a GPU's memory, at most [`Subject::MEMORY_LEN`] bytes.
    fn write_memory(&mut self, memory: Memory, bytes: &[u8]) -> Result<(), EngineError>;

    /// Reads a GPU's memory.
    fn read_memory(&mut self, memory: Memory, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt>;

    /// Measures a path that is no single TLP.
    fn measure(&mut self, point: Point, task: &Task<'_>) -> Result<Outcome, BenchError>;

    /// Makes the unit usable again after a failure.
    fn recover(&mut self) -> Result<(), EngineError>;

    /// Prepares the unit again after a path that gave no answer: its recovery clears what was prepared.
    fn after_silence(&mut self, _known: &Known) -> Result<(), BenchError> {
        Ok(())
    }
}

/// What is known of a unit before its rows are measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// What SCSI commands say about what is behind the bridge.
    pub(super) behind: Option<String>,
    /// Whether an SSD is there.
    pub(super) has_ssd: bool,
    /// Whether paths of the plan need PCIe.
    pub(super) looks: bool,
    /// Whether a card that completes SRAM reads is of use.
    pub(super) completes: bool,
    /// Whether E4 takes more than 255 bytes.
    pub(super) e4_extension: bool,
    /// Whether software answers READ(16).
    pub(super) read16_sram: bool,
    /// Whether the unit is initialised as by a GPU runtime.
    pub(super) is_initialised: bool,
    /// What is behind the bridge on PCIe.
    pub(super) beyond: Option<Beyond>,
}

impl Known {
    /// The card that completes SRAM reads.
    pub(super) fn card(&self) -> Option<TinyGpu> {
        self.beyond.as_ref()?.card
    }

    /// The memory behind the bridge that may be written.
    pub(super) fn memory(&self) -> Option<Memory> {
        self.beyond.as_ref()?.memory.ok()
    }

    /// What is behind the bridge, in words.
    fn words(&self) -> String {
        match (&self.behind, &self.beyond) {
            (Some(behind), Some(beyond)) => format!("{behind}; on PCIe {}", beyond.words),
            (Some(behind), None) => behind.clone(),
            (None, beyond) => beyond.as_ref().map(|beyond| beyond.words.clone()).unwrap_or_default(),
        }
    }
}

/// What a row's measurement needs beside its point.
pub(super) struct Task<'a> {
    pub(super) known: &'a Known,
    pub(super) pattern: &'a Pattern,
    /// Whether the window shows the pattern's first 4 KiB.
    pub(super) window_holds: bool,
    /// Whether the memory behind the bridge begins with the pattern.
    pub(super) memory_holds: bool,
    pub(super) effort: Effort,
    pub(super) model: Option<&'a SharedBridge>,
    pub(super) interrupt: Interrupt<'a>,
}

/// Runs the plan. `unit` identifies the unit; `firmware`, `transport` and `behind` are filled in here.
///
/// # Errors
/// [`BenchError`].
pub(super) fn run<S: Subject>(
    subject: &mut S,
    mut unit: BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<BenchReport, BenchError> {
    let mut saved = None;
    let outcome = prepare(subject, &mut unit, plan, interrupt, progress, &mut saved)
        .and_then(|prepared| measure_all(subject, unit, plan, &prepared, interrupt, progress));
    let restored = restore(subject, saved);
    // A failure of the rows themselves is more useful.
    let report = outcome?;
    restored?;
    Ok(report)
}

/// A GPU's memory, and what was in it.
pub(super) type Saved = Option<(Memory, Vec<u8>)>;

/// Writes back what was in the GPU's memory. The failure that ended the rows may have left the unit to be recovered.
pub(super) fn restore<S: Subject>(subject: &mut S, saved: Saved) -> Result<(), PcieError> {
    let Some((memory, before)) = saved else { return Ok(()) };
    subject.write_memory(memory, &before).or_else(|_| {
        subject.recover()?;
        subject.write_memory(memory, &before)
    })?;
    Ok(())
}

/// A unit that is surveyed, initialised and checked.
pub(super) struct Prepared {
    pub(super) known: Known,
    pub(super) pattern: Pattern,
    pub(super) checked: Integrity,
}

/// Finds out what the unit has, initialises it, and checks the SRAM and the memory behind it. Puts into `saved` what
/// was in the GPU's memory before this changes it.
pub(super) fn prepare<S: Subject>(
    subject: &mut S,
    unit: &mut BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
    saved: &mut Saved,
) -> Result<Prepared, BenchError> {
    progress.event(BenchEvent::Checking);
    [unit.firmware, unit.transport] = subject.names().map(str::to_owned);
    let mut known = subject.survey(plan)?;
    interrupt.check()?;
    if known.looks {
        let assigns = known.completes || plan.writes(&S::PATHS);
        let completes = known.completes;
        known.beyond = Some(subject.on_pcie(|engine| beyond::look(engine, assigns, completes, interrupt))?);
    }
    unit.behind = known.words();

    let pattern = Pattern::new(plan.seed);
    let mut checked = Integrity::default();
    let writes_memory = [Path::F0Write, Path::TlpWrite].map(|path| runs(subject, path, plan, &known));
    if let Some(memory) = known.memory().filter(|_| writes_memory.contains(&true)) {
        let outcome = check_memory(subject, memory, &pattern, plan.effort.timeout, saved);
        checked.memory = Some(outcome.or_else(Halt::outcome)?);
    }
    subject.prepare(plan, &mut known, progress)?;
    if runs(subject, S::FILLS_SRAM, plan, &known) {
        check_sram(subject, &mut checked, &pattern, plan.effort.timeout)?;
    }
    interrupt.check()?;
    Ok(Prepared { known, pattern, checked })
}

fn check_sram<S: Subject>(
    subject: &mut S,
    checked: &mut Integrity,
    pattern: &Pattern,
    timeout: Duration,
) -> Result<(), BenchError> {
    let [written, read] = integrity::check(subject, pattern, timeout)?;
    *(if S::FILLS_SRAM == Path::F2Out { &mut checked.f2 } else { &mut checked.write16 }) = written;
    checked.e4 = read;
    Ok(())
}

/// Recovers a unit, and checks again what failed its check.
pub(super) fn check_again<S: Subject>(
    subject: &mut S,
    Prepared { known, pattern, checked }: &mut Prepared,
    timeout: Duration,
    saved: &mut Saved,
) -> Result<(), BenchError> {
    subject.recover().map_err(PcieError::from)?;
    subject.after_silence(known)?;
    let failed = |outcome: &Option<Outcome>| outcome.as_ref().is_some_and(|outcome| *outcome != Outcome::Same);
    if let Some(memory) = known.memory().filter(|_| failed(&checked.memory)) {
        let outcome = check_memory(subject, memory, pattern, timeout, saved);
        checked.memory = Some(outcome.or_else(Halt::outcome)?);
    }
    if [&checked.write16, &checked.f2, &checked.e4].into_iter().any(failed) {
        check_sram(subject, checked, pattern, timeout)?;
    }
    Ok(())
}

/// Measures each point of the plan on a prepared unit.
fn measure_all<S: Subject>(
    subject: &mut S,
    unit: BenchUnit,
    plan: &BenchPlan,
    Prepared { known, pattern, checked }: &Prepared,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<BenchReport, BenchError> {
    let task = Task {
        known,
        pattern,
        window_holds: checked.e4 == Some(Outcome::Same),
        memory_holds: checked.memory == Some(Outcome::Same),
        effort: plan.effort,
        model: plan.model.as_ref(),
        interrupt,
    };
    let (most, usual) = subject.depths();
    let mut points: Vec<Point> = Vec::new();
    for mut point in plan.points(&S::PATHS, most, &usual) {
        if subject.limit(&mut point, known) && !points.contains(&point) {
            points.push(point);
        }
    }
    let mut rows: Vec<Row> = Vec::with_capacity(points.len());
    for (index, &point) in points.iter().enumerate() {
        interrupt.check()?;
        progress.event(BenchEvent::Row { index, of: points.len(), point });
        let outcome = match obstacle(subject, point.path, plan, known, checked, &rows) {
            Some(outcome) => outcome,
            None => measure(subject, point, plan, &task)?,
        };
        let Point { path, size, depth } = point;
        rows.push(Row { path, size, depth, outcome });
    }
    // The figures of a virtual unit measure the host.
    let verdict = if unit.is_virtual { Vec::new() } else { verdict::judge(&rows, S::STATE, subject.speed()) };
    Ok(BenchReport {
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        unit,
        integrity: Some(checked).filter(|checked| checked.outcomes().next().is_some()).cloned(),
        e4_extension: known.e4_extension,
        read16_sram: known.read16_sram,
        rows,
        verdict,
    })
}

/// Measures a row.
fn measure<S: Subject>(
    subject: &mut S,
    point: Point,
    plan: &BenchPlan,
    task: &Task<'_>,
) -> Result<Outcome, BenchError> {
    let outcome = match &task.known.beyond {
        Some(beyond) if point.path.is_tlp() => subject.on_pcie(|engine| tlp::measure(engine, point, beyond, task))?,
        _ => subject.measure(point, task)?,
    };
    if matches!(outcome, Outcome::NoAnswer { .. }) {
        subject.after_silence(task.known)?;
    }
    // The writes have changed the bytes that a later row compares.
    if point.path == Path::TlpWrite
        && let Some(memory) = task.known.memory().filter(|_| plan.paths.contains(&Path::F0Read) && task.memory_holds)
    {
        subject.write_memory(memory, &task.pattern.bytes()[..S::MEMORY_LEN]).map_err(PcieError::from)?;
    }
    Ok(outcome)
}

/// Whether a path is selected, and not skipped on this unit.
fn runs<S: Subject>(subject: &mut S, path: Path, plan: &BenchPlan, known: &Known) -> bool {
    plan.paths.contains(&path) && left_out(subject, path, plan, known).is_none()
}

fn left_out<S: Subject>(subject: &mut S, path: Path, plan: &BenchPlan, known: &Known) -> Option<Skip> {
    if S::PATHS.contains(&path) { subject.left_out(path, plan, known) } else { Some(Skip::OtherFirmware) }
}

/// Writes the pattern to memory behind the bridge, and reads it back. Puts into `saved` what was there before.
fn check_memory<S: Subject>(
    subject: &mut S,
    memory: Memory,
    pattern: &Pattern,
    timeout: Duration,
    saved: &mut Option<(Memory, Vec<u8>)>,
) -> Result<Outcome, Halt> {
    let expected = &pattern.bytes()[..S::MEMORY_LEN];
    let mut found = vec![0; expected.len()];
    subject.read_memory(memory, &mut found, timeout)?;
    saved.get_or_insert_with(|| (memory, found.clone()));
    subject.write_memory(memory, expected).map_err(|error| tlp::halt(error, timeout))?;
    subject.read_memory(memory, &mut found, timeout)?;
    Ok(integrity::compare(expected, &found, 0))
}

/// The known result of a path before its measurement: it is skipped, can't be reached, or failed before. A path that
/// never answered is not tried at another size, which would only cost its time-out.
fn obstacle<S: Subject>(
    subject: &mut S,
    path: Path,
    plan: &BenchPlan,
    known: &Known,
    integrity: &Integrity,
    rows: &[Row],
) -> Option<Outcome> {
    let unreachable = || {
        let beyond = known.beyond.as_ref()?;
        let why = beyond.memory.err()?;
        (path.needs_memory() || path == Path::ConfigRead && beyond.function.is_none()).then_some(why)
    };
    let silent = || {
        let before = rows.iter().find(|row| row.path == path).map(|row| &row.outcome);
        before.filter(|outcome| matches!(outcome, Outcome::NoAnswer { .. })).cloned()
    };
    let skip = left_out(subject, path, plan, known).or_else(unreachable);
    skip.map(|reason| Outcome::NotRun { reason }).or_else(|| integrity.obstacle(path).cloned()).or_else(silent)
}
