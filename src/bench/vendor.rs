//! The bench's part that depends on the vendor's firmware: the check for an SSD, the initialisation as by a GPU
//! runtime, and its SCSI commands, one by one or in a stream.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use asm2464::AnyFailure;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464::scsi::runtime::freeing;
use asm2464::scsi::{BLOCK_LEN, Command, Lun, ScsiStatus, XdataAddress};
use asm2464_host::bridge::{
    Bridge, CommandEnd, CommandError, DataPhase, Job, JobData, Storage, TransportKind, Workload,
};
use asm2464_host::pcie::{PcieError, TlpEngine, VendorTlp};

use super::path::{DataPath, WINDOW_LEN};
use super::pcie::{self, Memory};
use super::plan::{BenchPlan, Effort, Point};
use super::report::{Outcome, Skip};
use super::row::{Halt, PATTERN_LEN, Tally, repeat};
use super::unit::{BenchEvent, BenchedFirmware, BenchedUnit, PreparedUnit, SramState, UnitSurvey};
use crate::unit::{Purpose, spare_ssd};

/// Maximum number of bytes of one READ(16) with the patch read16-sram.
const READ16_SRAM_MAX: usize = 0x8000;
/// Maximum number of bytes that one E4 reads on any firmware.
const E4_STEP: usize = 255;

impl BenchedUnit for Bridge {
    fn firmware(&self) -> BenchedFirmware {
        BenchedFirmware {
            state: BridgeState::Vendor,
            name: "vendor",
            fills_sram: DataPath::Write16,
            memory_len: pcie::TLP_REACH,
            memory_paths: [DataPath::TlpWrite, DataPath::TlpRead],
            memory_round: 64,
        }
    }

    fn survey(&mut self, plan: &BenchPlan, device: &str) -> Result<UnitSurvey, AnyFailure> {
        let writes = plan.writes(BridgeState::Vendor);
        let storage = Storage::ask(self)?;
        let behind = storage.behind();
        if writes {
            spare_ssd(&behind, device, Purpose::Bench)?;
        }
        let (transport, max_depth) = (self.transport_mut().kind(), self.transport_mut().max_depth());
        let mut known = UnitSurvey {
            transport: transport.name(),
            depths: vec![max_depth],
            behind: Some(behind),
            e4_extension: self.has_e4_extension(plan.effort.timeout)? == Some(true),
            ..UnitSurvey::default()
        };
        if !known.e4_extension {
            known.limits.insert(DataPath::E4Extended, 0);
        }
        if known.has_ssd() {
            let tlps = DataPath::ALL.iter().filter(|path| path.is_tlp());
            known.skips.extend(tlps.map(|path| (*path, Skip::SsdBehind)));
        }
        // READ(16) goes to LUN 0.
        let reads_ssd = known.has_ssd() && (storage.bays.is_empty() || storage.at_lun_0().is_some());
        if !reads_ssd && !plan.reads_without_ssd {
            known.skips.insert(DataPath::Read16, Skip::NoCompleter);
        }
        match transport {
            // Executed: refused before the initialisation, and never answered after it.
            TransportKind::BulkOnly => known.skips.insert(DataPath::Write16, Skip::BulkOnly),
            // Executed: without streams the status comes before WRITE READY, so the data never moves.
            TransportKind::Uas => known.skips.insert(DataPath::Write16, Skip::HighSpeed),
            _ => None,
        };
        Ok(known)
    }

    fn ready_sram(
        &mut self,
        device: &str,
        plan: &BenchPlan,
        known: &PreparedUnit,
        progress: &mut dyn Progress<BenchEvent>,
    ) -> Result<SramState, AnyFailure> {
        let uses_sram = known.runs(DataPath::Write16, plan) || known.runs(DataPath::Read16, plan);
        if known.survey.has_ssd() || !uses_sram {
            return Ok(SramState::default());
        }
        // Refuse an unknown version before reporting an initialisation that only a restart undoes.
        self.variables()?;
        if !self.has_no_medium()? {
            let why = "READ CAPACITY and E6 do not all answer 2/3A (medium not present)".to_owned();
            return Err(Purpose::Bench.cannot_tell(device, &why).into());
        }
        progress.event(BenchEvent::Initialising);
        self.initialise()?;
        let asks_read16 = plan.paths.contains(&DataPath::Read16);
        let has_read16 = asks_read16 && is_read_by_software(self, plan.effort.timeout)?;
        Ok(SramState { is_initialised: true, read16_max: has_read16.then_some(READ16_SRAM_MAX) })
    }

    fn engine(&mut self) -> Box<dyn TlpEngine + '_> {
        Box::new(VendorTlp::new(self))
    }

    /// The LBA does not matter: each WRITE(16) takes the SRAM's next free slot, and the slots are freed after it as a
    /// GPU runtime does. So every piece lands where XDATA 0xF000 shows it.
    fn write_sram(&mut self, piece: &[u8], timeout: Duration) -> Result<(), Halt> {
        let command = Command::Write16 { lba: 0, blocks: (piece.len() / BLOCK_LEN) as u32 };
        exchange(self, command, DataPhase::Out(piece), piece.len(), timeout)?;
        Ok(self.free_slots(piece.len()).map_err(AnyFailure::from)?)
    }

    fn read_sram(&mut self, path: DataPath, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt> {
        if path == DataPath::Read16 {
            let (command, len) = (Command::Read16 { lba: 0, blocks: (buffer.len() / BLOCK_LEN) as u32 }, buffer.len());
            return exchange(self, command, DataPhase::In(buffer), len, timeout);
        }
        for (step, piece) in buffer.chunks_mut(E4_STEP).enumerate() {
            let (from, len) = (XdataAddress::SRAM_WINDOW.plus((step * E4_STEP) as u16), piece.len());
            let command = Command::XdataRead { from, len: len as u16 };
            exchange(self, command, DataPhase::In(piece), len, timeout)?;
        }
        Ok(())
    }

    fn write_memory(&mut self, memory: Memory, bytes: &[u8]) -> Result<(), PcieError> {
        pcie::write_dwords(&mut VendorTlp::new(self), memory, bytes)
    }

    fn read_memory(&mut self, memory: Memory, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt> {
        pcie::read_dwords(&mut VendorTlp::new(self), memory, buffer, timeout)
    }

    /// WRITE(16) is measured as a GPU runtime uses it: each is followed in the same queue by the E5 commands that free
    /// its slots. Their time counts, but not their number, bytes or latency.
    fn measure(
        &mut self,
        point: Point,
        known: &PreparedUnit,
        effort: Effort,
        interrupt: Interrupt<'_>,
    ) -> Result<Outcome, AnyFailure> {
        let Point { path, depth, .. } = point;
        let returns_sram = path.reads_window() || (path == DataPath::Read16 && known.sram.read16_max.is_some());
        repeat(self, effort, interrupt, |bridge, tally, until| {
            let mut stream = Stream {
                point,
                pattern: &known.pattern,
                compare: known.window_holds() && returns_sram,
                tally,
                until,
                interrupt,
                number: 0,
                freeing: VecDeque::new(),
                trouble: None,
            };
            match bridge.transport_mut().run(&mut stream, depth, effort.timeout) {
                Ok(()) => stream.trouble.map_or(Ok(()), |trouble| Err(trouble.into())),
                Err(error) => Err(Halt::of_transport(error, effort.timeout)),
            }
        })
    }

    fn revive(&mut self, initialises: bool) -> Result<(), AnyFailure> {
        self.recover()?;
        // A unit is recovered only when it answers again.
        if let Err(CommandError::Transport(error)) = self.is_ready() {
            return Err(error.into());
        }
        if initialises {
            self.initialise()?;
            // A WRITE(16) that failed may have left slots in use.
            self.free_slots(PATTERN_LEN)?;
        }
        Ok(())
    }
}

/// Whether the unit has the patch read16-sram. Firmware that does not answer a READ(16) of no sectors lacks it.
fn is_read_by_software(bridge: &mut Bridge, timeout: Duration) -> Result<bool, AnyFailure> {
    match bridge.has_read16_sram(timeout) {
        Err(error) if error.is_timeout() => bridge.revive(true).map(|()| false),
        asked => Ok(asked?),
    }
}

/// Runs one command that moves `len` bytes.
fn exchange(
    bridge: &mut Bridge,
    command: Command,
    data: DataPhase<'_>,
    len: usize,
    timeout: Duration,
) -> Result<(), Halt> {
    match bridge.execute(command, data, timeout) {
        Ok(ended) if ended.status != ScsiStatus::Good => Err(Outcome::Refused { reason: refusal(&ended) }.into()),
        Ok(ended) if ended.transferred != len => Err(Outcome::Short { expected: len, found: ended.transferred }.into()),
        Ok(_) => Ok(()),
        Err(error) => Err(Halt::of_transport(error, timeout)),
    }
}

/// Describes the end of a command whose status is not GOOD.
fn refusal(completion: &CommandEnd) -> String {
    match completion.sense {
        Some(sense) => format!("sense {sense}"),
        None => format!("status {:#04x}", u8::from(completion.status)),
    }
}

/// ID of a job that frees slots. Its data does not count for the path.
const FREEING: u64 = u64::MAX;

/// Streams commands until its deadline and counts their results.
struct Stream<'a> {
    point: Point,
    pattern: &'a [u8],
    compare: bool,
    tally: &'a mut Tally,
    until: Instant,
    interrupt: Interrupt<'a>,
    number: u64,
    /// The remaining writes that free the slots of the last WRITE(16).
    freeing: VecDeque<(u16, u8)>,
    /// Result of the first command that failed.
    trouble: Option<Outcome>,
}

impl Workload for Stream<'_> {
    fn buffer_len(&self) -> usize {
        self.point.size
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn next(&mut self, buffer: &mut [u8]) -> Option<Job> {
        let Point { path, size, .. } = self.point;
        if self.trouble.is_some() {
            return None;
        }
        // Free all slots in the same queue: a WRITE(16) that finds no free slot is never answered.
        if let Some((at, value)) = self.freeing.pop_front() {
            let command = Command::XdataWrite { at: XdataAddress::main(at), value };
            return Some(Job { lun: Lun::ZERO, cdb: command.cdb(), data: JobData::None, id: FREEING });
        }
        if Instant::now() >= self.until || self.interrupt.is_requested() {
            return None;
        }
        let at = path.offset(self.number, size);
        let command = path.command(at, size)?;
        let mut data = JobData::In(size);
        if path.writes() {
            data = JobData::Out(size);
            // Fill each slot's buffer once and send it again and again, so that the host copies nothing per command.
            let head = size.min(16);
            if buffer[..head] != self.pattern[..head] {
                buffer[..size].copy_from_slice(&self.pattern[..size]);
            }
            self.freeing.extend(freeing(size));
        }
        self.number += 1;
        Some(Job { lun: Lun::ZERO, cdb: command.cdb(), data, id: at as u64 })
    }

    fn complete(&mut self, job: &Job, completion: &CommandEnd, data: &[u8], elapsed: Duration) -> bool {
        let Point { path, size, .. } = self.point;
        if completion.status != ScsiStatus::Good {
            self.trouble.get_or_insert(Outcome::Refused { reason: refusal(completion) });
            return false;
        }
        if job.id == FREEING {
            return true;
        }
        if completion.transferred != size {
            self.trouble.get_or_insert(Outcome::Short { expected: size, found: completion.transferred });
            return false;
        }
        if self.compare {
            // The window holds the pattern's first 4 KiB.
            let (at, len) = if path == DataPath::Read16 { (0, size.min(WINDOW_LEN)) } else { (job.id as usize, size) };
            self.tally.compare(self.pattern.get(at..at + len), data.get(..len));
        }
        self.tally.count(size, elapsed);
        true
    }
}
