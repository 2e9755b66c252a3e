//! A soak: the mixture of transfers that a GPU runtime makes, without a pause, until the time is over. Errors are
//! counted, and the unit is recovered.

mod report;

use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464::{AnyFailure, Kind};
use asm2464_host::pcie::{CapabilityKind, Function, NoTime, Pcie, PcieError, Scope};
pub use report::{
    Ended, ErrorCount, ErrorKind, ErrorRegisters, LeftOut, PcieErrors, SOAK_SCHEMA, Slice, SoakPath, SoakReport,
    UsbLink,
};

use self::report::SoakTally;
use super::path::{BenchPlan, DataPath, Effort, WINDOW_LEN};
use super::report::{BenchUnit, Outcome};
use super::row::{Halt, PATTERN_LEN, compare, pattern_of};
use super::run;
use super::unit::{BenchEvent, BenchedFirmware, BenchedUnit, PreparedUnit};
use crate::unit::Live;

/// Number of attempts at preparing a unit, at checking its paths, and at recovering it without opening it again.
const ATTEMPTS: u32 = 3;
/// Time between two reports of progress.
const TICK: Duration = Duration::from_millis(100);

/// Advanced Error Reporting, and the offsets of its two status registers.
const ERROR_REPORTING: (u16, u16, u16) = (0x0001, 0x04, 0x10);
/// Secondary PCI Express, and the offset of Lane Error Status.
const SECONDARY: (u16, u16) = (0x0019, 0x08);
/// Beginning of the extended space, whose capabilities have IDs of their own.
const EXTENDED: u16 = 0x100;
/// Offset of the dword with Device Status in its upper half.
const DEVICE_STATUS: u16 = 0x08;

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
                // The memory may have lost its power, and then what it held is not worth restoring.
                known.memory_before = None;
                let Some(again) = self.open_again() else { continue };
                match self.prepare(again) {
                    Ok((subject, now)) => (*open, *known) = (Some(subject), now),
                    Err(error) if error.kind() == Kind::Interrupted => {}
                    Err(error) => {
                        self.tally.failed(Some(path), &error.into());
                    }
                }
            }
        }
        Ended::Vanished
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

/// Reads PCIe's own error registers, of the bridge's ports and of what is behind them. Returns an empty list if PCIe
/// can't be reached: with an SSD behind the bridge, the firmware needs the TLP engine itself.
///
/// # Errors
/// The last of several attempts, between which the unit is recovered.
fn read_registers(subject: &mut dyn BenchedUnit, known: &PreparedUnit) -> Result<Vec<PcieErrors>, PcieError> {
    if known.devices.as_ref().is_none_or(|devices| devices.function.is_none()) {
        return Ok(Vec::new());
    }
    let mut attempts = 1;
    loop {
        let outcome = all_registers(&mut Pcie::new(&mut *subject.engine(), &mut NoTime));
        match outcome {
            Err(_) if attempts < ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
        // If this fails, so does the next attempt.
        let _ = subject.revive(known.sram.is_initialised);
    }
}

/// Puts the registers' values after the soak beside those before it.
fn join_registers(functions: &mut [PcieErrors], after: &[PcieErrors]) {
    for function in functions {
        let same = after.iter().find(|other| (other.at, &other.id) == (function.at, &function.id));
        function.after = same.map(|other| other.before);
    }
}

fn all_registers(pcie: &mut Pcie<'_>) -> Result<Vec<PcieErrors>, PcieError> {
    let survey = pcie.survey(Scope { extended: true, ..Scope::READ_ONLY })?;
    let mut found = Vec::new();
    for function in &survey.functions {
        let registers = registers_of(pcie, function)?;
        if registers != ErrorRegisters::default() {
            let id = format!("{:04x}:{:04x}", function.vendor, function.device);
            found.push(PcieErrors { at: function.at, id, before: registers, after: None });
        }
    }
    Ok(found)
}

fn registers_of(pcie: &mut Pcie<'_>, function: &Function) -> Result<ErrorRegisters, PcieError> {
    let mut registers = ErrorRegisters::default();
    for capability in &function.capabilities.list {
        let mut at = |offset| pcie.config_read(function.at, capability.offset + offset);
        if matches!(capability.kind, CapabilityKind::Express(_)) {
            registers.device_status = Some((at(DEVICE_STATUS)? >> 16) as u16);
        } else if capability.offset >= EXTENDED && capability.id == ERROR_REPORTING.0 {
            registers.uncorrectable = Some(at(ERROR_REPORTING.1)?);
            registers.correctable = Some(at(ERROR_REPORTING.2)?);
        } else if capability.offset >= EXTENDED && capability.id == SECONDARY.0 {
            registers.lanes = Some(at(SECONDARY.1)?);
        }
    }
    Ok(registers)
}
