//! A soak: the mixture of transfers that a GPU runtime makes, without a pause, until the time is over. Errors are
//! counted, and the unit is recovered.

mod registers;
mod report;

use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464::{AnyFailure, Kind};
pub use report::{
    Ended, ErrorCount, ErrorKind, ErrorRegisters, LeftOut, PcieErrors, SOAK_SCHEMA, Slice, SoakPath, SoakReport,
    UsbLink,
};

use self::registers::{join_registers, read_registers};
use self::report::SoakTally;
use super::path::{DataPath, WINDOW_LEN};
use super::plan::{BenchPlan, Effort};
use super::report::{BenchUnit, Outcome};
use super::row::{Halt, PATTERN_LEN, compare, pattern_of};
use super::run;
use super::unit::{BenchEvent, BenchedFirmware, BenchedUnit, PreparedUnit};
use crate::unit::Live;

/// Number of attempts at preparing a unit, at checking its paths, at reading its error registers, and at recovering it
/// without opening it again.
const ATTEMPTS: u32 = 3;
/// Time between two reports of progress.
const TICK: Duration = Duration::from_millis(100);

/// What to soak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoakPlan {
    /// How long.
    pub duration: Duration,
    /// Time limit of one command.
    pub timeout: Duration,
    /// Seed of the first pattern. Each round has another one.
    pub seed: u64,
}

/// Opens the unit again after it has left the bus; `None` if it has not come back in time.
pub type Reopen<'a> = &'a mut dyn FnMut() -> Option<Live>;

/// Soaks a unit. It is prepared and left as by [`run`](super::run()). F0's streams move 16 KiB each, far less than the
/// 1 MiB that a stream may have.
///
/// Every error of a transfer is counted, and the unit recovered; if it has left the bus, `reopen` opens it again.
///
/// # Errors
/// As for [`run`](super::run()), before the soak has begun.
pub fn soak(
    mut subject: Live,
    unit: BenchUnit,
    plan: SoakPlan,
    reopen: Reopen<'_>,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<SoakReport, AnyFailure> {
    let firmware = subject.benched().firmware();
    let tally = SoakTally::new(unit, plan.duration);
    let mut soak = Soak { plan, reopen, interrupt, progress, tally, firmware };
    let (mut subject, mut known) = soak.prepare(subject)?;
    match read_registers(subject.benched(), &known) {
        Ok(before) => soak.tally.report.pcie = before,
        Err(error) => soak.tally.report.pcie_unread = Some(error.to_string()),
    }
    let mut open = Some(subject);
    let ended = soak.go_on(&mut open, &mut known);
    let mut report = soak.tally.finish(ended);
    if let Some(subject) = &mut open {
        let after = read_registers(subject.benched(), &known).unwrap_or_default();
        join_registers(&mut report.pcie, &after);
        // This may fail on a faulty unit as well. The report matters more.
        let _ = run::restore(subject.benched(), &known);
    }
    Ok(report)
}

/// A soak under way.
struct Soak<'a> {
    plan: SoakPlan,
    reopen: Reopen<'a>,
    interrupt: Interrupt<'a>,
    progress: &'a mut dyn Progress<BenchEvent>,
    tally: SoakTally,
    firmware: BenchedFirmware,
}

impl Soak<'_> {
    /// Surveys, initialises and checks a unit. Tries again if that fails, or if more paths fail their check than
    /// before: a temporary error is counted, but leaves no path out of the soak.
    fn prepare(&mut self, mut subject: Live) -> Result<(Live, PreparedUnit), AnyFailure> {
        let SoakPlan { timeout, seed, .. } = self.plan;
        let effort = Effort { warm_up: Duration::ZERO, repetition: Duration::ZERO, repetitions: 1, timeout };
        let plan = BenchPlan::new(DataPath::of(self.firmware.state), effort, seed);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let unit = &mut self.tally.report.unit;
            let error = match run::prepare(subject.benched(), unit, &plan, self.interrupt, self.progress) {
                Ok(mut known) => {
                    self.check_again(subject.benched(), &mut known);
                    return Ok((subject, known));
                }
                Err(error) => error,
            };
            // A refused unit is refused again.
            if attempts == ATTEMPTS || matches!(error.kind(), Kind::Refused | Kind::Interrupted) {
                return Err(error);
            }
            // Only one handle can claim a unit, so close this one before the unit is opened again.
            drop(subject);
            let Some(again) = self.open_again() else { return Err(error) };
            subject = again;
            self.tally.failed(None, &error.into());
        }
    }

    /// Opens the unit again; `None` if it has not come back, or now runs other firmware, which lacks the paths.
    fn open_again(&mut self) -> Option<Live> {
        let mut again = (self.reopen)()?;
        if again.benched().firmware().state != self.firmware.state {
            return None;
        }
        Some(again)
    }

    /// Checks the paths again while more of them fail than before. A path that keeps failing is reported as left out,
    /// not as an error.
    fn check_again(&mut self, subject: &mut dyn BenchedUnit, known: &mut PreparedUnit) {
        let mut failed = Vec::new();
        for _ in 1..ATTEMPTS {
            let left_out = left_out(self.firmware, known);
            if left_out.len() <= self.tally.report.left_out.len() {
                break;
            }
            failed.extend(left_out);
            if let Err(error) = run::check_again(subject, known, self.plan.timeout) {
                self.tally.failed(None, &error.into());
            }
        }
        let left_out = left_out(self.firmware, known);
        failed.retain(|passed| left_out.iter().all(|left| left.path != passed.path));
        for LeftOut { path, outcome } in failed {
            self.tally.failed(Some(path), &outcome.into());
        }
        // The last preparation decides which paths were left out.
        self.tally.report.left_out = left_out;
    }

    /// Goes through the rounds until the time is over, until Ctrl-C, or until the unit is gone for good. The unit in
    /// `open` is dropped before it is opened again.
    fn go_on(&mut self, open: &mut Option<Live>, known: &mut PreparedUnit) -> Ended {
        tracing::info!("the soak begins");
        self.tally.begin();
        let mut last_event = Instant::now();
        for number in 0_u64.. {
            if self.interrupt.is_requested() {
                return Ended::Stopped;
            }
            // A unit that has not come back did not last the whole time, even if the time is over by now.
            let Some(subject) = open.as_mut().map(Live::benched) else { break };
            let elapsed = self.tally.elapsed();
            if elapsed >= self.plan.duration {
                return Ended::Completed;
            }
            if last_event.elapsed() >= TICK {
                last_event = Instant::now();
                let SoakReport { bytes, error_count: errors, .. } = self.tally.report;
                self.progress.event(BenchEvent::Soaking { elapsed, of: self.plan.duration, bytes, errors });
            }
            // Each round has another pattern, so that leftovers of an earlier one never match.
            let sent = pattern_of(self.plan.seed.wrapping_add(number));
            let Err((path, halt)) = round(subject, known, &sent, self.plan.timeout, &mut self.tally) else {
                continue;
            };
            let is_gone = self.tally.failed(Some(path), &halt) == ErrorKind::Gone;
            if is_gone || !revive(subject, known, path, &mut self.tally) {
                // Only one handle can claim a unit, so close this one before the unit is opened again.
                *open = None;
                *open = self.prepare_again(known, path);
            }
        }
        Ended::Vanished
    }

    /// Opens a unit again that has failed on this path, and prepares it; `None` if either fails.
    fn prepare_again(&mut self, known: &mut PreparedUnit, path: DataPath) -> Option<Live> {
        // The memory may have lost its power, and then what it held is not worth restoring.
        known.memory_before = None;
        let again = self.open_again()?;
        match self.prepare(again) {
            Ok((subject, now)) => {
                *known = now;
                return Some(subject);
            }
            Err(error) if error.kind() == Kind::Interrupted => {}
            Err(error) => {
                self.tally.failed(Some(path), &error.into());
            }
        }
        None
    }
}

/// Recovers a unit that is still on the bus, so that the next round can begin. Returns whether that worked.
fn revive(subject: &mut dyn BenchedUnit, known: &PreparedUnit, path: DataPath, tally: &mut SoakTally) -> bool {
    for _ in 0..ATTEMPTS {
        let Err(error) = subject.revive(known.sram.is_initialised) else { return true };
        if tally.failed(Some(path), &error.into()) == ErrorKind::Gone {
            return false;
        }
    }
    false
}

/// The paths whose check failed, so that no round uses them. E4 goes on without comparing.
fn left_out(firmware: BenchedFirmware, known: &PreparedUnit) -> Vec<LeftOut> {
    let BenchedFirmware { fills_sram, memory_paths: [write, _], .. } = firmware;
    let failed = |path| known.integrity.of(path).filter(|outcome| outcome.is_failure()).cloned();
    let left_out = |path| Some(LeftOut { path, outcome: failed(path)? });
    [fills_sram, DataPath::E4Stock, write].into_iter().filter_map(left_out).collect()
}

/// Moves data once through each path that works.
fn round(
    subject: &mut dyn BenchedUnit,
    known: &PreparedUnit,
    sent: &[u8],
    timeout: Duration,
    tally: &mut SoakTally,
) -> Result<(), (DataPath, Halt)> {
    let BenchedFirmware { fills_sram, memory_paths: [write, read], memory_round, .. } = subject.firmware();
    let at = |path| move |halt: Halt| (path, halt);
    let mut found = vec![0; PATTERN_LEN];
    let fills = known.window_holds();
    if fills {
        subject.write_sram(sent, timeout).map_err(at(fills_sram))?;
        tally.moved(fills_sram, sent.len(), 0);
    }
    let window = &mut found[..WINDOW_LEN];
    subject.read_sram(DataPath::E4Stock, window, timeout).map_err(at(DataPath::E4Stock))?;
    came_back(DataPath::E4Stock, if fills { Some(sent) } else { None }, window, tally);
    if fills && let Some(most) = known.sram.read16_max {
        let read = &mut found[..most];
        subject.read_sram(DataPath::Read16, read, timeout).map_err(at(DataPath::Read16))?;
        came_back(DataPath::Read16, Some(sent), read, tally);
    }
    if let Some(memory) = known.memory()
        && known.memory_holds()
    {
        subject.write_memory(memory, &sent[..memory_round]).map_err(|error| at(write)(Halt::of(error, timeout)))?;
        tally.moved(write, memory_round, 0);
        subject.read_memory(memory, &mut found[..memory_round], timeout).map_err(at(read))?;
        came_back(read, Some(sent), &found[..memory_round], tally);
    }
    Ok(())
}

/// Counts what came back, and compares it with what was sent, if that is known.
fn came_back(path: DataPath, sent: Option<&[u8]>, found: &[u8], tally: &mut SoakTally) {
    match sent.map(|sent| compare(&sent[..found.len()], found, 0)) {
        None => tally.moved(path, found.len(), 0),
        Some(Outcome::Same) => tally.moved(path, found.len(), found.len()),
        Some(outcome) => {
            tally.failed(Some(path), &outcome.into());
        }
    }
}
