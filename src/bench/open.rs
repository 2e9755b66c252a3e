//! The bench's part that depends on the open firmware: its control requests, streams and F2.

use std::time::{Duration, Instant};

use asm2464::AnyFailure;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::scsi::{XDATA_READ_MAX, XdataAddress};
use asm2464_host::bridge::open::{MAX_DEPTH, OpenCommand, OpenJob, OpenWorkload};
use asm2464_host::bridge::{ControlError, OpenBridge};
use asm2464_host::pcie::{PcieError, TlpEngine};

use super::path::{DataPath, WINDOW_LEN};
use super::pcie::Memory;
use super::plan::{BenchPlan, Effort, Point};
use super::report::{Outcome, Skip};
use super::row::{Halt, PATTERN_LEN, Tally, repeat};
use super::unit::{BenchedFirmware, BenchedUnit, PreparedUnit, UnitSurvey};
use crate::unit::ask;

/// The SRAM slot whose beginning the window at 0xF000 shows.
const SLOT: u8 = 0;

impl BenchedUnit for OpenBridge {
    fn firmware(&self) -> BenchedFirmware {
        BenchedFirmware {
            state: BridgeState::OpenFirmware,
            name: "open-firmware",
            fills_sram: DataPath::F2Out,
            memory_len: PATTERN_LEN,
            memory_paths: [DataPath::F0Write, DataPath::F0Read],
            memory_round: 0x4000,
        }
    }

    fn survey(&mut self, plan: &BenchPlan, _: &str) -> Result<UnitSurvey, AnyFailure> {
        self.set_timeout(plan.effort.timeout);
        if plan.writes(BridgeState::OpenFirmware) && !self.link()?.is_up {
            ask::switch_pcie_on(self, Interrupt::of_process())?;
        }
        // The first long E4 shows how much of it this build gives.
        self.xdata_read(XdataAddress::SRAM_WINDOW, &mut [0; XDATA_READ_MAX])?;
        Ok(UnitSurvey {
            transport: "control",
            speed: Some(self.speed()),
            depths: vec![1, MAX_DEPTH],
            limits: [(DataPath::E4Stock, self.xdata_read_max())].into(),
            ..UnitSurvey::default()
        })
    }

    fn engine(&mut self) -> Box<dyn TlpEngine + '_> {
        Box::new(self)
    }

    fn write_sram(&mut self, piece: &[u8], _: Duration) -> Result<(), Halt> {
        Ok(self.sram_write(SLOT, piece)?)
    }

    fn read_sram(&mut self, _: DataPath, buffer: &mut [u8], _: Duration) -> Result<(), Halt> {
        Ok(self.xdata_read(XdataAddress::SRAM_WINDOW, buffer)?)
    }

    fn write_memory(&mut self, memory: Memory, bytes: &[u8]) -> Result<(), PcieError> {
        Ok(self.stream_write(memory.address, bytes)?)
    }

    fn read_memory(&mut self, memory: Memory, buffer: &mut [u8], _: Duration) -> Result<(), Halt> {
        Ok(self.stream_read(memory.address, buffer)?)
    }

    fn measure(
        &mut self,
        point: Point,
        known: &PreparedUnit,
        effort: Effort,
        interrupt: Interrupt<'_>,
    ) -> Result<Outcome, AnyFailure> {
        let Point { path, size, depth } = point;
        let memory = known.memory();
        self.set_depth(depth);
        let bytes: Vec<u8> = known.pattern.iter().copied().cycle().take(size).collect();
        let mut found = vec![0; size];
        let outcome = repeat(self, effort, interrupt, |bridge, tally, until| {
            if path == DataPath::E4Stock {
                let window = known.window_holds().then(|| &known.pattern[..WINDOW_LEN]);
                return Ok(bridge.run(&mut WindowReads { size, number: 0, at: 0, window, tally, until, interrupt })?);
            }
            while Instant::now() < until && !interrupt.is_requested() {
                let begun = Instant::now();
                match (path, memory) {
                    (DataPath::F2Out, _) => bridge.sram_write(SLOT, &bytes)?,
                    (DataPath::F0Write, Some(memory)) => bridge.stream_write(memory.address, &bytes)?,
                    (DataPath::F0Read, Some(memory)) => bridge.stream_read(memory.address, &mut found)?,
                    _ => return Err(Outcome::NotRun { reason: Skip::OtherFirmware }.into()),
                }
                tally.count(size, begun.elapsed());
                if path == DataPath::F0Read && known.memory_holds() {
                    tally.compare(Some(&bytes), Some(&found));
                }
            }
            Ok(())
        });
        self.set_depth(MAX_DEPTH);
        outcome
    }

    /// The queue cancelled its transfers and cleared its halts before it reported the failure.
    fn revive(&mut self, _: bool) -> Result<(), AnyFailure> {
        match self.link() {
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
        DataPath::E4Stock.offset(number, self.size)
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
        self.tally.count(data.len(), elapsed);
        Ok(())
    }
}
