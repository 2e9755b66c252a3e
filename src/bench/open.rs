//! The bench's part that depends on the open firmware: its control requests, streams and F2.

use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464_host::bridge::open::{MAX_DEPTH, OpenCommand, OpenJob, OpenWorkload};
use asm2464_host::bridge::{BusSpeed, ControlError, OpenBridge};
use asm2464_host::pcie::{EngineError, NoTime, Pcie, TlpEngine};

use super::behind::Memory;
use super::benched_unit::{BenchedUnit, Firmware, Known, Task};
use super::halt::Halt;
use super::path::Path;
use super::pattern::{PATTERN_LEN, WINDOW_LEN};
use super::plan::{BenchPlan, Point};
use super::report::{Outcome, Skip};
use super::tally::{Tally, repeat};
use crate::failure::AnyFailure;

/// The SRAM slot whose beginning the window at 0xF000 shows.
const SLOT: u8 = 0;

impl BenchedUnit for OpenBridge {
    fn firmware(&self) -> Firmware {
        Firmware {
            state: BridgeState::OpenFirmware,
            fills_sram: Path::F2Out,
            memory_len: PATTERN_LEN,
            memory_paths: [Path::F0Write, Path::F0Read],
            memory_round: 0x4000,
        }
    }

    fn names(&mut self) -> [&'static str; 2] {
        ["open-firmware", "control"]
    }

    fn speed(&self) -> BusSpeed {
        Self::speed(self)
    }

    fn depths(&mut self) -> (usize, Vec<usize>) {
        (MAX_DEPTH, vec![1, MAX_DEPTH])
    }

    fn survey(&mut self, plan: &BenchPlan, _: &str) -> Result<Known, AnyFailure> {
        self.set_timeout(plan.effort.timeout);
        let completes = plan.paths.contains(&Path::F2In);
        if (completes || plan.writes(BridgeState::OpenFirmware)) && !self.link_state()?.1 {
            self.pcie_power(true)?;
        }
        Ok(Known { looks: true, completes, ..Known::default() })
    }

    fn left_out(&mut self, path: Path, _: &BenchPlan, known: &Known) -> Option<Skip> {
        (path == Path::F2In && known.card().is_none()).then_some(Skip::NoCompleter)
    }

    fn limit(&mut self, point: &mut Point, _: &Known) -> bool {
        if point.path == Path::E4Stock {
            point.size = point.size.min(self.xdata_read_max());
        }
        true
    }

    fn engine(&mut self) -> Box<dyn TlpEngine + '_> {
        Box::new(self)
    }

    fn write_sram(&mut self, piece: &[u8], _: Duration) -> Result<(), Halt> {
        Ok(self.sram_write(SLOT, piece)?)
    }

    fn read_window(&mut self, buffer: &mut [u8], _: Duration) -> Result<(), Halt> {
        Ok(self.xdata_read(XdataAddress::SRAM_WINDOW, buffer)?)
    }

    fn read_sram(&mut self, buffer: &mut [u8], known: &Known, _: Duration) -> Option<(Path, Result<usize, Halt>)> {
        let card = known.card()?;
        let on_entry = |bridge: &mut Self, entry| card.complete(&mut Pcie::new(bridge, &mut NoTime), entry);
        let read = Self::sram_read(self, SLOT, buffer, on_entry);
        Some((Path::F2In, read.map(|()| buffer.len()).map_err(Halt::from)))
    }

    fn write_memory(&mut self, memory: Memory, bytes: &[u8]) -> Result<(), EngineError> {
        Ok(self.stream_write(memory.address, bytes)?)
    }

    fn read_memory(&mut self, memory: Memory, buffer: &mut [u8], _: Duration) -> Result<(), Halt> {
        Ok(self.stream_read(memory.address, buffer)?)
    }

    fn measure(&mut self, point: Point, task: &Task<'_>) -> Result<Outcome, AnyFailure> {
        let Point { path, size, depth } = point;
        let Task { effort, interrupt, pattern, .. } = *task;
        let (memory, card) = (task.known.memory(), task.known.card());
        self.set_depth(depth);
        let bytes: Vec<u8> = pattern.bytes().iter().copied().cycle().take(size).collect();
        let mut found = vec![0; size];
        let outcome = repeat(self, effort, interrupt, |bridge, tally, until| {
            if path == Path::E4Stock {
                let window = task.window_holds.then(|| &pattern.bytes()[..WINDOW_LEN]);
                return Ok(bridge.run(&mut WindowReads { size, number: 0, at: 0, window, tally, until, interrupt })?);
            }
            while Instant::now() < until && !interrupt.is_requested() {
                let begun = Instant::now();
                match (path, memory, card) {
                    (Path::F2Out, ..) => bridge.sram_write(SLOT, &bytes)?,
                    // The time to set up the card counts.
                    (Path::F2In, _, Some(card)) => bridge.sram_read(SLOT, &mut found, |bridge, entry| {
                        card.complete(&mut Pcie::new(bridge, &mut NoTime), entry)
                    })?,
                    (Path::F0Write, Some(memory), _) => bridge.stream_write(memory.address, &bytes)?,
                    (Path::F0Read, Some(memory), _) => bridge.stream_read(memory.address, &mut found)?,
                    _ => return Err(Outcome::NotRun { reason: Skip::OtherFirmware }.into()),
                }
                tally.count(size, begun.elapsed());
                let known = match path {
                    Path::F0Read if task.memory_holds => size,
                    Path::F2In if task.window_holds => size.min(WINDOW_LEN),
                    _ => 0,
                };
                if known > 0 {
                    tally.compare(bytes.get(..known), found.get(..known));
                }
            }
            Ok(())
        });
        self.set_depth(MAX_DEPTH);
        outcome
    }

    /// The queue cancelled its transfers and cleared its halts before it reported the failure.
    fn recover(&mut self) -> Result<(), EngineError> {
        match self.link_state() {
            Err(ControlError::Disconnected { .. }) | Ok(_) => Ok(()),
            Err(_) => Ok(self.reset_port()?),
        }
    }
}

/// E4 reads that cycle through the window.
struct WindowReads<'a> {
    size: usize,
    /// Number of the next read to send.
    number: u64,
    /// Number of the read that returns next.
    at: u64,
    window: Option<&'a [u8]>,
    tally: &'a mut Tally,
    until: Instant,
    interrupt: Interrupt<'a>,
}

impl WindowReads<'_> {
    /// Offset of the `number`th read.
    fn offset(&self, number: u64) -> usize {
        Path::E4Stock.offset(number, self.size)
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
