//! A whole bench of the open firmware: what is behind the bridge, integrity, a row for each path, size and depth, and
//! the verdict.

use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464::scsi::XdataAddress;
use asm2464_host::bridge::open::{MAX_DEPTH, OpenCommand, OpenJob, OpenWorkload};
use asm2464_host::bridge::{ControlError, OpenBridge};
use asm2464_host::pcie::{NoTime, Pcie};

use super::beyond::{self, Beyond, Memory};
use super::error::{BenchError, Halt};
use super::measure::{Effort, Point};
use super::path::Path;
use super::pattern::{Pattern, WINDOW_LEN};
use super::report::{BenchReport, BenchUnit, Integrity, Outcome, Row};
use super::run::{BenchEvent, BenchPlan, NO_DEVICE, measure_each, obstacle};
use super::tally::{Tally, repeat};
use super::{integrity, tlp, verdict};

/// The SRAM slot whose beginning the window at 0xF000 shows.
const SLOT: u8 = 0;

/// Reason to skip a path on a unit that runs open firmware.
fn left_out(path: Path, beyond: &Beyond) -> Option<&'static str> {
    match path {
        Path::F2In if beyond.card.is_none() => Some(NO_DEVICE),
        path if !Path::OPEN.contains(&path) => Some("the open firmware takes no SCSI commands"),
        _ => None,
    }
}

/// Runs the plan on a unit that runs open firmware. `unit` is as for [`run`](super::run()).
///
/// If the plan writes, or a GPU has to complete reads, this switches on PCIe's power if it is off, and assigns missing
/// bus numbers and BAR addresses. These changes stay. The contents of the GPU's memory are restored.
///
/// # Errors
/// [`BenchError`]: the wire failed, Ctrl-C.
pub fn run_open(
    bridge: &mut OpenBridge,
    mut unit: BenchUnit,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<BenchReport, BenchError> {
    progress.event(BenchEvent::Checking);
    bridge.set_timeout(plan.effort.timeout);
    unit.transport = "control".to_owned();
    unit.firmware = "open-firmware".to_owned();
    let completes = plan.paths.contains(&Path::F2In);
    let assigns = completes || plan.writes(&Path::OPEN);
    if assigns && !bridge.link_state()?.1 {
        bridge.pcie_power(true)?;
    }
    let beyond = beyond::look(bridge, assigns, completes, interrupt)?;
    unit.behind.clone_from(&beyond.words);
    interrupt.check()?;

    let pattern = Pattern::new(plan.seed);
    let runs = |path: Path| plan.paths.contains(&path) && left_out(path, &beyond).is_none();
    let memory = beyond.memory.as_ref().ok().copied();
    let to_restore = match memory.filter(|_| runs(Path::F0Write) || runs(Path::TlpWrite)) {
        Some(memory) => match read_memory(bridge, memory, pattern.bytes().len()) {
            Ok(before) => Some((memory, before)),
            Err(unread) => Halt::from(unread).outcome().map(|_| None)?,
        },
        None => None,
    };
    let outcome = measure_all(bridge, &pattern, &beyond, plan, interrupt, progress);
    if let Some((memory, before)) = &to_restore {
        let restored = bridge.stream_write(memory.address, before);
        // A failure of the rows themselves is more useful.
        if outcome.is_ok() {
            restored?;
        }
    }
    let (integrity, rows) = outcome?;
    let verdict = verdict::judge(&rows, BridgeState::OpenFirmware, bridge.speed());
    let tool = env!("CARGO_PKG_VERSION").to_owned();
    Ok(BenchReport { tool, unit, integrity, e4_extension: false, read16_sram: false, rows, verdict })
}

fn measure_all(
    bridge: &mut OpenBridge,
    pattern: &Pattern,
    beyond: &Beyond,
    plan: &BenchPlan,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<BenchEvent>,
) -> Result<(Option<Integrity>, Vec<Row>), BenchError> {
    let runs = |path: Path| plan.paths.contains(&path) && left_out(path, beyond).is_none();
    let memory = beyond.memory.as_ref().ok().copied();
    let mut integrity = Integrity::default();
    if runs(Path::F2Out) {
        [integrity.f2, integrity.e4] = check_sram(bridge, pattern)?;
    }
    interrupt.check()?;
    if let Some(memory) = memory {
        if runs(Path::F0Write) {
            integrity.memory = Some(check_memory(bridge, memory, pattern).or_else(Halt::outcome)?);
        } else if runs(Path::TlpWrite) {
            integrity.memory = Some(tlp::check(bridge, memory, pattern, plan.effort).or_else(Halt::outcome)?);
        }
    }
    let integrity = Some(integrity).filter(|integrity| integrity.outcomes().next().is_some());
    let holds = Holds {
        window: integrity.as_ref().is_some_and(|integrity| integrity.e4 == Some(Outcome::Same)),
        memory: runs(Path::F0Write)
            && integrity.as_ref().is_some_and(|integrity| integrity.memory == Some(Outcome::Same)),
    };

    let e4_most = bridge.xdata_read_max();
    let longest = |path: Path| if path == Path::E4Stock { e4_most } else { path.max_len() };
    let wanted = plan.points(&Path::OPEN, MAX_DEPTH, &[1, MAX_DEPTH], longest);
    let rows = measure_each(&wanted, interrupt, progress, |point, rows| {
        let left_out = left_out(point.path, beyond);
        if let Some(known) = obstacle(point.path, left_out, Some(beyond), integrity.as_ref(), rows) {
            return Ok(known);
        }
        if !point.path.is_tlp() {
            return measure(bridge, point, beyond, pattern, &holds, plan.effort, interrupt);
        }
        bridge.set_depth(MAX_DEPTH);
        let outcome = tlp::measure(bridge, point, beyond, plan.effort, interrupt)?;
        // The writes have changed the bytes there.
        if let (Path::TlpWrite, Some(memory), true) = (point.path, memory, holds.memory) {
            bridge.stream_write(memory.address, pattern.bytes())?;
        }
        Ok(outcome)
    })?;
    bridge.set_depth(MAX_DEPTH);
    Ok((integrity, rows))
}

/// Places that hold the pattern, so that reads can be compared.
struct Holds {
    /// The SRAM's first 4 KiB.
    window: bool,
    /// The memory behind the bridge.
    memory: bool,
}

/// Writes the pattern through F2 and reads it back through E4. Returns both results.
fn check_sram(bridge: &mut OpenBridge, pattern: &Pattern) -> Result<[Option<Outcome>; 2], BenchError> {
    let write = |bridge: &mut OpenBridge, piece: &[u8]| Ok(bridge.sram_write(SLOT, piece)?);
    let read_back = |bridge: &mut OpenBridge, piece: &[u8], offset| {
        let mut found = vec![0; piece.len()];
        bridge.xdata_read(XdataAddress::SRAM_WINDOW, &mut found)?;
        Ok(integrity::compare(piece, &found, offset))
    };
    integrity::check_pieces(bridge, pattern, write, read_back)
}

/// Writes the pattern through F0's streams and reads it back.
fn check_memory(bridge: &mut OpenBridge, memory: Memory, pattern: &Pattern) -> Result<Outcome, Halt> {
    bridge.stream_write(memory.address, pattern.bytes())?;
    let found = read_memory(bridge, memory, pattern.bytes().len())?;
    Ok(integrity::compare(pattern.bytes(), &found, 0))
}

fn read_memory(bridge: &mut OpenBridge, memory: Memory, len: usize) -> Result<Vec<u8>, ControlError> {
    let mut found = vec![0; len];
    bridge.stream_read(memory.address, &mut found).map(|()| found)
}

/// Measures E4, streams and F2.
fn measure(
    bridge: &mut OpenBridge,
    point: Point,
    beyond: &Beyond,
    pattern: &Pattern,
    holds: &Holds,
    effort: Effort,
    interrupt: Interrupt<'_>,
) -> Result<Outcome, BenchError> {
    let Point { path, size, depth } = point;
    let memory = beyond.memory.as_ref().ok().copied();
    bridge.set_depth(depth);
    let bytes: Vec<u8> = pattern.bytes().iter().copied().cycle().take(size).collect();
    let mut found = vec![0; size];
    let simulated = |bridge: &mut OpenBridge| bridge.simulated();
    repeat(bridge, simulated, effort, interrupt, |bridge, tally, until| {
        if path == Path::E4Stock {
            let window = holds.window.then(|| &pattern.bytes()[..WINDOW_LEN]);
            return Ok(bridge.run(&mut WindowReads { size, number: 0, at: 0, window, tally, until, interrupt })?);
        }
        while Instant::now() < until && !interrupt.is_requested() {
            let begun = Instant::now();
            match (path, memory, beyond.card) {
                (Path::F2Out, ..) => bridge.sram_write(SLOT, &bytes)?,
                // The time to set up the card counts.
                (Path::F2In, _, Some(card)) => bridge.sram_read(SLOT, &mut found, |bridge, entry| {
                    card.complete(&mut Pcie::new(bridge, &mut NoTime), entry)
                })?,
                (Path::F0Write, Some(memory), _) => bridge.stream_write(memory.address, &bytes)?,
                (Path::F0Read, Some(memory), _) => bridge.stream_read(memory.address, &mut found)?,
                _ => return Err(Outcome::NotRun { reason: "nothing to measure it on".to_owned() }.into()),
            }
            tally.count(size, begun.elapsed());
            let known = match path {
                Path::F0Read if holds.memory => size,
                Path::F2In if holds.window => size.min(WINDOW_LEN),
                _ => 0,
            };
            if known > 0 {
                tally.compare(bytes.get(..known), found.get(..known));
            }
        }
        Ok(())
    })
}

/// E4 reads that cycle through the window.
struct WindowReads<'a> {
    size: usize,
    /// Number of the next read to send.
    number: usize,
    /// Number of the next read to return.
    at: usize,
    window: Option<&'a [u8]>,
    tally: &'a mut Tally,
    until: Instant,
    interrupt: Interrupt<'a>,
}

impl WindowReads<'_> {
    /// Offset of the `number`th read.
    fn offset(&self, number: usize) -> usize {
        number % (WINDOW_LEN / self.size) * self.size
    }
}

impl OpenWorkload for WindowReads<'_> {
    fn is_timed(&self) -> bool {
        true
    }

    fn next(&mut self) -> Option<OpenJob> {
        if Instant::now() >= self.until || self.interrupt.is_requested() {
            return None;
        }
        let from = XdataAddress::SRAM_WINDOW.plus(self.offset(self.number) as u16);
        self.number += 1;
        Some(OpenJob::Control(OpenCommand::XdataRead { from, len: self.size as u16 }))
    }

    fn complete(&mut self, _: OpenJob, data: &[u8], elapsed: Duration) -> Result<(), ControlError> {
        let at = self.offset(self.at);
        self.at += 1;
        if let Some(window) = self.window {
            self.tally.compare(window.get(at..at + self.size), Some(data));
        }
        self.tally.count(self.size, elapsed);
        Ok(())
    }
}
