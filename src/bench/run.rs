//! A whole bench: survey, integrity, a row for each path, size and depth, and the verdict.

use std::time::Duration;

use asm2464::AnyFailure;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464_host::pcie::PcieError;

use super::benched_unit::{BenchedFirmware, BenchedUnit, CheckedUnit, UnitSurvey};
use super::comparison::judge;
use super::path::{DataPath, WINDOW_LEN};
use super::pcie::{self, Memory};
use super::plan::{BenchEvent, BenchPlan, Point};
use super::report::{BenchReport, BenchUnit, Integrity, Outcome, Row, Skip};
use super::row::{Halt, compare, pattern_of};

/// Runs the plan. `unit` identifies the unit; `state`, `transport` and `behind` are filled in here.
///
/// # Errors
/// [`AnyFailure`]: refused because of an SSD, the wire failed, Ctrl-C.
pub fn run(
    subject: &mut dyn BenchedUnit,
    mut unit: BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<BenchReport, AnyFailure> {
    let mut saved = None;
    let outcome = prepare(subject, &mut unit, plan, interrupt, progress, &mut saved)
        .and_then(|prepared| measure_all(subject, unit, plan, &prepared, interrupt, progress));
    let restored = restore(subject, saved);
    // An error of the measurement is more useful than one of the restoring.
    let report = outcome?;
    restored?;
    Ok(report)
}

/// A GPU's memory, and what was in it.
pub(super) type Saved = Option<(Memory, Vec<u8>)>;

/// Writes back what was in the GPU's memory. If that fails, recovers the unit first: the error that ended the rows may
/// have left it hanging.
pub(super) fn restore(subject: &mut dyn BenchedUnit, saved: Saved) -> Result<(), PcieError> {
    let Some((memory, before)) = saved else { return Ok(()) };
    subject.write_memory(memory, &before).or_else(|_| {
        subject.recover()?;
        subject.write_memory(memory, &before)
    })
}

/// Finds out what the unit has, initialises it, and checks the SRAM and the memory behind it. Saves the GPU's memory
/// into `saved` before it changes it.
pub(super) fn prepare(
    subject: &mut dyn BenchedUnit,
    unit: &mut BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
    saved: &mut Saved,
) -> Result<CheckedUnit, AnyFailure> {
    progress.event(BenchEvent::Checking);
    [unit.state, unit.transport] = subject.names().map(str::to_owned);
    let mut known = subject.survey(plan, &unit.device)?;
    interrupt.check()?;
    if known.looks {
        let assigns = plan.writes(subject.firmware().state);
        known.devices = Some(pcie::look(&mut *subject.engine(), assigns, interrupt)?);
    }
    unit.behind = known.words();

    let pattern = pattern_of(plan.seed);
    let mut checked = Integrity::default();
    let mut writes_memory = DataPath::ALL.iter().filter(|path| path.writes() && path.needs_memory());
    if let Some(memory) = known.memory()
        && writes_memory.any(|path| runs(subject, *path, plan, &known))
    {
        let outcome = check_memory(subject, memory, &pattern, plan.effort.timeout, saved);
        checked.memory = Some(outcome.or_else(Halt::outcome)?);
    }
    subject.prepare(&unit.device, plan, &mut known, progress)?;
    let fills_sram = subject.firmware().fills_sram;
    if runs(subject, fills_sram, plan, &known) {
        check_sram(subject, &mut checked, &pattern, plan.effort.timeout)?;
    }
    interrupt.check()?;
    Ok(CheckedUnit { known, pattern, checked })
}

/// Writes the pattern into the SRAM, 4 KiB at a time, and reads each piece back through E4 before it writes the next.
/// Leaves the pattern's first 4 KiB in the window.
///
/// # Errors
/// If the wire failed. A path that does not answer, refuses or returns other bytes is a result.
fn check_sram(
    subject: &mut dyn BenchedUnit,
    checked: &mut Integrity,
    pattern: &[u8],
    timeout: Duration,
) -> Result<(), AnyFailure> {
    let (mut written, mut read) = (None, None);
    let mut buffer = vec![0; WINDOW_LEN];
    let pieces = pattern.chunks(WINDOW_LEN).enumerate();
    for (index, piece) in pieces.chain([(0, &pattern[..WINDOW_LEN])]) {
        written = Some(subject.write_sram(piece, timeout).map(|()| Outcome::Same).or_else(Halt::outcome)?);
        if written != Some(Outcome::Same) {
            break;
        }
        let found = subject.read_window(&mut buffer, timeout);
        let compared = found.map(|()| compare(piece, &buffer, index * WINDOW_LEN));
        read = Some(compared.or_else(Halt::outcome)?);
        if read != Some(Outcome::Same) {
            break;
        }
    }
    checked.set(subject.firmware().fills_sram, written);
    checked.e4 = read;
    Ok(())
}

/// Recovers a unit, and checks again what failed its check.
pub(super) fn check_again(
    subject: &mut dyn BenchedUnit,
    CheckedUnit { known, pattern, checked }: &mut CheckedUnit,
    timeout: Duration,
    saved: &mut Saved,
) -> Result<(), AnyFailure> {
    subject.revive(known)?;
    let failed = |checked: &Integrity, path| checked.of(path).is_some_and(Outcome::is_failure);
    let BenchedFirmware { fills_sram, memory_paths: [writes_memory, _], .. } = subject.firmware();
    if let Some(memory) = known.memory()
        && failed(checked, writes_memory)
    {
        let outcome = check_memory(subject, memory, pattern, timeout, saved);
        checked.memory = Some(outcome.or_else(Halt::outcome)?);
    }
    if failed(checked, fills_sram) || failed(checked, DataPath::E4Stock) {
        check_sram(subject, checked, pattern, timeout)?;
    }
    Ok(())
}

/// Measures each point of the plan on a prepared unit.
fn measure_all(
    subject: &mut dyn BenchedUnit,
    unit: BenchUnit,
    plan: &BenchPlan,
    prepared: &CheckedUnit,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<BenchReport, AnyFailure> {
    let CheckedUnit { known, checked, .. } = prepared;
    let (most, usual) = subject.depths();
    let mut points: Vec<Point> = Vec::new();
    for mut point in plan.points(subject.firmware().state, most, &usual) {
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
            None => measure(subject, point, plan, prepared, interrupt)?,
        };
        let Point { path, size, depth } = point;
        rows.push(Row { path, size, depth, outcome });
    }
    let has_checked = checked.outcomes().next().is_some();
    let integrity = has_checked.then(|| checked.clone());
    // The figures of a virtual unit measure the host.
    let verdict = if unit.is_virtual { Vec::new() } else { judge(&rows, subject.firmware().state, subject.speed()) };
    Ok(BenchReport {
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        unit,
        integrity,
        e4_extension: known.e4_extension,
        read16_sram: known.read16_sram,
        rows,
        verdict,
    })
}

/// Measures a row.
fn measure(
    subject: &mut dyn BenchedUnit,
    point: Point,
    plan: &BenchPlan,
    prepared: &CheckedUnit,
    interrupt: Interrupt<'_>,
) -> Result<Outcome, AnyFailure> {
    let CheckedUnit { known, pattern, .. } = prepared;
    let outcome = match &known.devices {
        Some(devices) if point.path.is_tlp() => {
            pcie::measure_tlps(&mut *subject.engine(), point, devices, plan.effort, interrupt)?
        }
        _ => subject.measure(point, prepared, plan.effort, interrupt)?,
    };
    if matches!(outcome, Outcome::NoAnswer { .. }) {
        subject.after_silence(known)?;
    }
    // The writes have changed the bytes that a later row compares.
    let is_compared_later = plan.paths.contains(&DataPath::F0Read) && prepared.memory_holds();
    if point.path == DataPath::TlpWrite
        && is_compared_later
        && let Some(memory) = known.memory()
    {
        subject.write_memory(memory, &pattern[..subject.firmware().memory_len])?;
    }
    Ok(outcome)
}

/// Whether a path is selected, and not skipped on this unit.
fn runs(subject: &mut dyn BenchedUnit, path: DataPath, plan: &BenchPlan, known: &UnitSurvey) -> bool {
    plan.paths.contains(&path) && left_out(subject, path, plan, known).is_none()
}

fn left_out(subject: &mut dyn BenchedUnit, path: DataPath, plan: &BenchPlan, known: &UnitSurvey) -> Option<Skip> {
    if path.is_of(subject.firmware().state) { subject.left_out(path, plan, known) } else { Some(Skip::OtherFirmware) }
}

/// Writes the pattern to memory behind the bridge, and reads it back. Saves what was there into `saved` first.
fn check_memory(
    subject: &mut dyn BenchedUnit,
    memory: Memory,
    pattern: &[u8],
    timeout: Duration,
    saved: &mut Saved,
) -> Result<Outcome, Halt> {
    let expected = &pattern[..subject.firmware().memory_len];
    let mut found = vec![0; expected.len()];
    subject.read_memory(memory, &mut found, timeout)?;
    saved.get_or_insert_with(|| (memory, found.clone()));
    subject.write_memory(memory, expected).map_err(|error| Halt::of(error, timeout))?;
    subject.read_memory(memory, &mut found, timeout)?;
    Ok(compare(expected, &found, 0))
}

/// The known result of a path before its measurement: it is skipped, can't be reached, or failed before. A path that
/// never answered is not tried at another size, which would only cost its time-out.
fn obstacle(
    subject: &mut dyn BenchedUnit,
    path: DataPath,
    plan: &BenchPlan,
    known: &UnitSurvey,
    integrity: &Integrity,
    rows: &[Row],
) -> Option<Outcome> {
    let is_silent = |outcome: &Outcome| matches!(outcome, Outcome::NoAnswer { .. });
    if let Some(reason) = left_out(subject, path, plan, known) {
        return Some(Outcome::NotRun { reason });
    }
    if let Some(devices) = &known.devices
        && let Err(reason) = devices.memory
        && (path.needs_memory() || (path == DataPath::ConfigRead && devices.function.is_none()))
    {
        return Some(Outcome::NotRun { reason });
    }
    // Open firmware keeps PCIe over the recovery of its queue.
    if path.is_tlp() && subject.firmware().state == BridgeState::Vendor {
        let checks = integrity.outcomes().map(|(_, outcome)| outcome);
        let mut before = checks.chain(rows.iter().map(|row| &row.outcome));
        if before.any(is_silent) {
            return Some(Outcome::NotRun { reason: Skip::AfterRecovery });
        }
    }
    if let Some(outcome) = integrity.obstacle(path) {
        return Some(outcome.clone());
    }
    let first = rows.iter().find(|row| row.path == path)?;
    is_silent(&first.outcome).then(|| first.outcome.clone())
}
