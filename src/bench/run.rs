//! A whole bench: survey, integrity, a row for each path, size and depth, and the verdict.

use std::time::Duration;

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464::{AnyFailure, Failure, Kind};

use super::comparison::judge;
use super::path::{DataPath, WINDOW_LEN};
use super::pcie;
use super::plan::{BenchPlan, Point};
use super::report::{BenchReport, BenchUnit, Integrity, Outcome, Row, Skip};
use super::row::{Halt, compare, pattern_of};
use super::unit::{BenchEvent, BenchedFirmware, BenchedUnit, PreparedUnit, SramState};

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
    let known = prepare(subject, &mut unit, plan, interrupt, progress)?;
    let report = measure_all(subject, unit, plan, &known, interrupt, progress);
    let restored = restore(subject, &known);
    // An error of the measurement is more useful than one of the restoring.
    let report = report?;
    restored?;
    Ok(report)
}

/// Surveys and checks a unit. If the check fails, the GPU's memory is as it was.
pub(super) fn prepare(
    subject: &mut dyn BenchedUnit,
    unit: &mut BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<PreparedUnit, AnyFailure> {
    progress.event(BenchEvent::Checking);
    let mut known = survey(subject, unit, plan, interrupt)?;
    let checked = check(subject, &unit.device, plan, &mut known, progress).and_then(|()| Ok(interrupt.check()?));
    if checked.is_err() {
        // This error is more useful than one of the restoring.
        let _ = restore(subject, &known);
    }
    checked.map(|()| known)
}

/// Finds out what the unit has, and which paths to skip.
fn survey(
    subject: &mut dyn BenchedUnit,
    unit: &mut BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
) -> Result<PreparedUnit, AnyFailure> {
    let BenchedFirmware { state, name, .. } = subject.firmware();
    let mut known = PreparedUnit {
        state,
        survey: subject.survey(plan, &unit.device)?,
        devices: None,
        pattern: pattern_of(plan.seed),
        sram: SramState::default(),
        integrity: Integrity::default(),
        memory_before: None,
    };
    interrupt.check()?;
    // Only PCIe tells what is behind firmware that takes no SCSI commands.
    let mut paths = DataPath::ALL.iter();
    if known.survey.behind.is_none() || paths.any(|path| path.is_tlp() && known.runs(*path, plan)) {
        known.devices = Some(pcie::look(&mut *subject.engine(), plan.writes(state), interrupt)?);
    }
    (unit.state, unit.transport, unit.behind) = (name.to_owned(), known.survey.transport.to_owned(), known.words());
    Ok(known)
}

/// Checks the memory behind the unit, prepares the unit, and checks its SRAM, as far as the plan's paths use them.
fn check(
    subject: &mut dyn BenchedUnit,
    device: &str,
    plan: &BenchPlan,
    known: &mut PreparedUnit,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<(), AnyFailure> {
    let timeout = plan.effort.timeout;
    let mut writes_memory = DataPath::ALL.iter().filter(|path| path.writes() && path.needs_memory());
    if writes_memory.any(|path| known.runs(*path, plan)) {
        check_memory(subject, known, timeout)?;
    }
    known.sram = subject.ready_sram(device, plan, known, progress)?;
    if known.runs(subject.firmware().fills_sram, plan) {
        check_sram(subject, known, timeout)?;
    }
    Ok(())
}

/// Writes back what was in the GPU's memory. If that fails, recovers the unit first: the error that ended the rows may
/// have left it hanging.
pub(super) fn restore(subject: &mut dyn BenchedUnit, known: &PreparedUnit) -> Result<(), AnyFailure> {
    let (Some(memory), Some(before)) = (known.memory(), &known.memory_before) else { return Ok(()) };
    if subject.write_memory(memory, before).is_err() {
        subject.revive(false)?;
        subject.write_memory(memory, before)?;
    }
    Ok(())
}

/// Writes the pattern into the SRAM, 4 KiB at a time, and reads each piece back through E4 before it writes the next.
/// Leaves the pattern's first 4 KiB in the window.
///
/// # Errors
/// If the wire failed. A path that does not answer, refuses or returns other bytes is a result.
fn check_sram(subject: &mut dyn BenchedUnit, known: &mut PreparedUnit, timeout: Duration) -> Result<(), AnyFailure> {
    let fills_sram = subject.firmware().fills_sram;
    let (mut written, mut read) = (None, None);
    let mut buffer = vec![0; WINDOW_LEN];
    let pieces = known.pattern.chunks(WINDOW_LEN).enumerate();
    for (index, piece) in pieces.chain([(0, &known.pattern[..WINDOW_LEN])]) {
        let sent = subject.write_sram(piece, timeout).map(|()| Outcome::Same);
        written = Some(ended(subject, known, fills_sram, sent)?);
        if written != Some(Outcome::Same) {
            break;
        }
        let found = subject.read_sram(DataPath::E4Stock, &mut buffer, timeout);
        let compared = found.map(|()| compare(piece, &buffer, index * WINDOW_LEN));
        read = Some(ended(subject, known, DataPath::E4Stock, compared)?);
        if read != Some(Outcome::Same) {
            break;
        }
    }
    known.integrity.set(fills_sram, written);
    known.integrity.e4 = read;
    Ok(())
}

/// The result of a path. If it gave no answer, the unit is revived.
///
/// # Errors
/// If nothing more can be measured.
fn ended(
    subject: &mut dyn BenchedUnit,
    known: &PreparedUnit,
    path: DataPath,
    end: Result<Outcome, Halt>,
) -> Result<Outcome, AnyFailure> {
    let outcome = end.or_else(Halt::outcome)?;
    if outcome.is_silent() {
        subject.revive(known.sram.is_initialised).map_err(|error| {
            let label = Kind::NoAnswer.code("asmpatch::bench::recovery");
            Failure::new(label, format!("the unit did not come back after {path} got no answer")).because(error)
        })?;
    }
    Ok(outcome)
}

/// Revives a unit, and checks again what failed its check.
pub(super) fn check_again(
    subject: &mut dyn BenchedUnit,
    known: &mut PreparedUnit,
    timeout: Duration,
) -> Result<(), AnyFailure> {
    subject.revive(known.sram.is_initialised)?;
    let failed = |known: &PreparedUnit, path| known.integrity.of(path).is_some_and(Outcome::is_failure);
    let BenchedFirmware { fills_sram, memory_paths: [writes_memory, _], .. } = subject.firmware();
    if failed(known, writes_memory) {
        check_memory(subject, known, timeout)?;
    }
    if failed(known, fills_sram) || failed(known, DataPath::E4Stock) {
        check_sram(subject, known, timeout)?;
    }
    Ok(())
}

/// Measures each point of the plan on a prepared unit.
fn measure_all(
    subject: &mut dyn BenchedUnit,
    unit: BenchUnit,
    plan: &BenchPlan,
    known: &PreparedUnit,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<BenchReport, AnyFailure> {
    let points = known.points(plan);
    let mut rows: Vec<Row> = Vec::with_capacity(points.len());
    for (index, &point) in points.iter().enumerate() {
        interrupt.check()?;
        progress.event(BenchEvent::Row { index, of: points.len(), point });
        let outcome = match obstacle(point.path, known, &rows) {
            Some(outcome) => outcome,
            None => measure(subject, point, plan, known, interrupt)?,
        };
        rows.push(Row { point, outcome });
    }
    let is_checked = known.integrity.outcomes().next().is_some();
    let integrity = is_checked.then(|| known.integrity.clone());
    // The figures of a virtual unit measure the host.
    let verdict = if unit.is_virtual { Vec::new() } else { judge(&rows, known.state, known.survey.speed) };
    Ok(BenchReport {
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        unit,
        integrity,
        e4_extension: known.survey.e4_extension,
        read16_sram: known.sram.read16_max.is_some(),
        rows,
        verdict,
    })
}

/// Measures a row.
fn measure(
    subject: &mut dyn BenchedUnit,
    point: Point,
    plan: &BenchPlan,
    known: &PreparedUnit,
    interrupt: Interrupt<'_>,
) -> Result<Outcome, AnyFailure> {
    let outcome = match &known.devices {
        Some(devices) if point.path.is_tlp() => {
            pcie::measure_tlps(&mut *subject.engine(), point, devices, plan.effort, interrupt)?
        }
        _ => subject.measure(point, known, plan.effort, interrupt)?,
    };
    let outcome = ended(subject, known, point.path, Ok(outcome))?;
    // The writes have changed the bytes that a later row compares.
    let is_compared_later = plan.paths.contains(&DataPath::F0Read) && known.memory_holds();
    if point.path == DataPath::TlpWrite
        && is_compared_later
        && let Some(memory) = known.memory()
    {
        subject.write_memory(memory, &known.pattern[..subject.firmware().memory_len])?;
    }
    Ok(outcome)
}

/// Writes the pattern to memory behind the bridge, and reads it back. Keeps what was there first.
///
/// # Errors
/// As for [`check_sram`].
fn check_memory(subject: &mut dyn BenchedUnit, known: &mut PreparedUnit, timeout: Duration) -> Result<(), AnyFailure> {
    let Some(memory) = known.memory() else { return Ok(()) };
    let BenchedFirmware { memory_len, memory_paths: [writes_memory, _], .. } = subject.firmware();
    let expected = &known.pattern[..memory_len];
    let before = &mut known.memory_before;
    let mut found = vec![0; memory_len];
    let mut check = || -> Result<Outcome, Halt> {
        subject.read_memory(memory, &mut found, timeout)?;
        before.get_or_insert_with(|| found.clone());
        subject.write_memory(memory, expected).map_err(|error| Halt::of(error, timeout))?;
        subject.read_memory(memory, &mut found, timeout)?;
        Ok(compare(expected, &found, 0))
    };
    let end = check();
    known.integrity.memory = Some(ended(subject, known, writes_memory, end)?);
    Ok(())
}

/// The known result of a path before its measurement: it is skipped, or it failed before. A path that never answered is
/// not tried at another size, which would only cost its time-out.
fn obstacle(path: DataPath, known: &PreparedUnit, rows: &[Row]) -> Option<Outcome> {
    if let Some(reason) = known.skip(path) {
        return Some(Outcome::NotRun { reason });
    }
    let mut checks = known.integrity.outcomes();
    let was_recovered =
        checks.any(|(_, outcome)| outcome.is_silent()) || rows.iter().any(|row| row.outcome.is_silent());
    // Open firmware keeps PCIe over the recovery of its queue.
    if was_recovered && path.is_tlp() && known.state == BridgeState::Vendor {
        return Some(Outcome::NotRun { reason: Skip::AfterRecovery });
    }
    if let Some(outcome) = known.integrity.obstacle(path) {
        return Some(outcome.clone());
    }
    let first = rows.iter().find(|row| row.point.path == path)?;
    if first.outcome.is_silent() { Some(first.outcome.clone()) } else { None }
}
