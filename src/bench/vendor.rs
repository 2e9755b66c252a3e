//! The bench's part that depends on the vendor's firmware: the check for an SSD, the initialisation as by a GPU
//! runtime, and its SCSI commands, one by one or in a stream.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464::scsi::runtime::freeing;
use asm2464::scsi::{BLOCK_LEN, Command, Lun, ScsiStatus, XdataAddress};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_host::bridge::{
    Bridge, BusSpeed, CommandEnd, CommandError, DataPhase, Job, JobData, Storage, Transport, TransportKind, Workload,
};
use asm2464_host::pcie::{PcieError, TlpEngine, VendorTlp};

use super::benched_unit::{BenchedFirmware, BenchedUnit, CheckedUnit, UnitSurvey};
use super::path::{DataPath, WINDOW_LEN};
use super::pcie::{self, Memory};
use super::plan::{BenchEvent, BenchPlan, Effort, Point};
use super::report::{Outcome, Skip};
use super::row::{Halt, PATTERN_LEN, Tally, repeat};
use crate::unit::{Purpose, spare_ssd};

/// Maximum number of bytes of one READ(16) with the patch read16-sram.
const READ16_SRAM_MAX: usize = 0x8000;
/// Maximum number of bytes that one E4 reads on any firmware.
const E4_STEP: usize = 255;

impl<T: Transport> BenchedUnit for Bridge<T> {
    fn firmware(&self) -> BenchedFirmware {
        BenchedFirmware {
            state: BridgeState::Vendor,
            fills_sram: DataPath::Write16,
            memory_len: pcie::TLP_REACH,
            memory_paths: [DataPath::TlpWrite, DataPath::TlpRead],
            memory_round: 64,
        }
    }

    fn names(&mut self) -> [&'static str; 2] {
        ["vendor", self.transport_mut().kind().name()]
    }

    fn speed(&self) -> BusSpeed {
        BusSpeed::UNKNOWN
    }

    fn depths(&mut self) -> (usize, Vec<usize>) {
        let most = self.transport_mut().max_depth();
        (most, vec![most])
    }

    fn survey(&mut self, plan: &BenchPlan, device: &str) -> Result<UnitSurvey, AnyFailure> {
        let writes = plan.writes(BridgeState::Vendor);
        let behind = Storage::ask(self)?.behind();
        if writes {
            spare_ssd(&behind, device, Purpose::Bench)?;
        }
        let mut known = UnitSurvey { behind: Some(behind), ..UnitSurvey::default() };
        let mut runs =
            |path, known: &UnitSurvey| plan.paths.contains(&path) && self.left_out(path, plan, known).is_none();
        known.looks = DataPath::of(BridgeState::Vendor).any(|path| path.is_tlp() && runs(path, &known));
        known.e4_extension = self.has_e4_extension(plan.effort.timeout)? == Some(true);
        Ok(known)
    }

    fn left_out(&mut self, path: DataPath, plan: &BenchPlan, known: &UnitSurvey) -> Option<Skip> {
        let kind = self.transport_mut().kind();
        let completes = known.has_ssd() || known.read16_sram || plan.reads_without_ssd;
        match path {
            _ if path.is_tlp() && known.has_ssd() => Some(Skip::SsdBehind),
            // Executed: refused before the initialisation, and never answered after it.
            DataPath::Write16 if kind == TransportKind::BulkOnly => Some(Skip::BulkOnly),
            // Executed: without streams the status comes before WRITE READY, so the data never moves.
            DataPath::Write16 if kind == TransportKind::Uas => Some(Skip::HighSpeed),
            DataPath::Read16 if !completes => Some(Skip::NoCompleter),
            _ => None,
        }
    }

    fn prepare(
        &mut self,
        device: &str,
        plan: &BenchPlan,
        known: &mut UnitSurvey,
        progress: &mut dyn Progress<BenchEvent>,
    ) -> Result<(), AnyFailure> {
        let initialised = [DataPath::Write16, DataPath::Read16];
        let mut paths = initialised.into_iter().filter(|path| plan.paths.contains(path));
        if known.has_ssd() || paths.all(|path| self.left_out(path, plan, known).is_some()) {
            return Ok(());
        }
        // Refuse an unknown version before reporting an initialisation that only a restart undoes.
        self.variables()?;
        if !self.has_no_medium()? {
            let why = "READ CAPACITY and E6 do not all answer 2/3A (medium not present)".to_owned();
            return Err(Purpose::Bench.cannot_tell(device, &why).into());
        }
        progress.event(BenchEvent::Initialising);
        self.initialise()?;
        known.is_initialised = true;
        known.read16_sram = plan.paths.contains(&DataPath::Read16) && is_read_by_software(self, plan.effort.timeout)?;
        Ok(())
    }

    fn limit(&mut self, point: &mut Point, known: &UnitSurvey) -> bool {
        if point.path == DataPath::Read16 && known.read16_sram {
            point.size = point.size.min(READ16_SRAM_MAX);
        }
        point.path != DataPath::E4Extended || known.e4_extension
    }

    fn engine(&mut self) -> Box<dyn TlpEngine + '_> {
        Box::new(VendorTlp::new(self))
    }

    /// The LBA does not matter: each WRITE(16) takes the SRAM's next free slot, and the slots are freed after it as a
    /// GPU runtime does. So every piece lands where XDATA 0xF000 shows it.
    fn write_sram(&mut self, piece: &[u8], timeout: Duration) -> Result<(), Halt> {
        let command = Command::Write16 { lba: 0, blocks: (piece.len() / BLOCK_LEN) as u32 };
        exchange(self, DataPath::Write16, command, DataPhase::Out(piece), piece.len(), timeout)?;
        Ok(self.free_slots(piece.len()).map_err(AnyFailure::from)?)
    }

    fn read_window(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt> {
        for (step, piece) in buffer.chunks_mut(E4_STEP).enumerate() {
            let (from, len) = (XdataAddress::SRAM_WINDOW.plus((step * E4_STEP) as u16), piece.len());
            let command = Command::XdataRead { from, len: len as u16 };
            exchange(self, DataPath::E4Stock, command, DataPhase::In(piece), len, timeout)?;
        }
        Ok(())
    }

    fn read_sram(
        &mut self,
        buffer: &mut [u8],
        known: &UnitSurvey,
        timeout: Duration,
    ) -> Option<(DataPath, Result<usize, Halt>)> {
        if !known.read16_sram {
            return None;
        }
        let len = buffer.len().min(READ16_SRAM_MAX);
        let command = Command::Read16 { lba: 0, blocks: (len / BLOCK_LEN) as u32 };
        let read = exchange(self, DataPath::Read16, command, DataPhase::In(&mut buffer[..len]), len, timeout);
        Some((DataPath::Read16, read.map(|()| len)))
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
        unit: &CheckedUnit,
        effort: Effort,
        interrupt: Interrupt<'_>,
    ) -> Result<Outcome, AnyFailure> {
        let Point { path, depth, .. } = point;
        let returns_sram = path.reads_window() || (path == DataPath::Read16 && unit.known.read16_sram);
        repeat(self, effort, interrupt, |bridge, tally, until| {
            let mut stream = Stream {
                point,
                pattern: &unit.pattern,
                compare: unit.window_holds() && returns_sram,
                tally,
                until,
                interrupt,
                number: 0,
                freeing: VecDeque::new(),
                trouble: None,
            };
            match bridge.transport_mut().run(&mut stream, depth, effort.timeout) {
                Ok(()) => stream.trouble.map_or(Ok(()), |trouble| Err(trouble.into())),
                Err(error) if error.is_timeout() => {
                    recover(bridge, path)?;
                    Err(Outcome::no_answer(effort.timeout).into())
                }
                Err(error) => Err(AnyFailure::from(error).into()),
            }
        })
    }

    fn recover(&mut self) -> Result<(), PcieError> {
        Ok(Bridge::recover(self)?)
    }

    fn after_silence(&mut self, known: &UnitSurvey) -> Result<(), AnyFailure> {
        if known.is_initialised {
            self.initialise()?;
            // A WRITE(16) that failed may have left slots in use.
            self.free_slots(PATTERN_LEN)?;
        }
        Ok(())
    }
}

/// Whether the unit has the patch read16-sram. Firmware that does not answer a READ(16) of no sectors lacks it, and is
/// initialised again after its recovery.
fn is_read_by_software<T: Transport>(bridge: &mut Bridge<T>, timeout: Duration) -> Result<bool, AnyFailure> {
    match bridge.has_read16_sram(timeout) {
        Err(error) if error.is_timeout() => {
            recover(bridge, DataPath::Read16)?;
            bridge.initialise()?;
            Ok(false)
        }
        asked => Ok(asked?),
    }
}

/// Runs one command that moves `len` bytes, and recovers the unit if it gets no answer.
pub(super) fn exchange<T: Transport>(
    bridge: &mut Bridge<T>,
    path: DataPath,
    command: Command,
    data: DataPhase<'_>,
    len: usize,
    timeout: Duration,
) -> Result<(), Halt> {
    match bridge.execute(command, data, timeout) {
        Ok(ended) if ended.status != ScsiStatus::Good => Err(Outcome::Refused { reason: refusal(&ended) }.into()),
        Ok(ended) if ended.transferred != len => Err(Outcome::Short { expected: len, found: ended.transferred }.into()),
        Ok(_) => Ok(()),
        Err(error) if error.is_timeout() => {
            recover(bridge, path)?;
            Err(Outcome::no_answer(timeout).into())
        }
        Err(error) => Err(AnyFailure::from(error).into()),
    }
}

/// Describes the end of a command whose status is not GOOD.
pub(super) fn refusal(completion: &CommandEnd) -> String {
    match completion.sense {
        Some(sense) => format!("sense {sense}"),
        None => format!("status {:#04x}", u8::from(completion.status)),
    }
}

/// Recovers the unit after a path that gave no answer.
pub(super) fn recover<T: Transport>(bridge: &mut Bridge<T>, path: DataPath) -> Result<(), AnyFailure> {
    // A unit is recovered only when it answers again.
    let recovered = bridge.recover().and_then(|()| match bridge.is_ready() {
        Err(CommandError::Transport(error)) => Err(error.into()),
        _ => Ok(()),
    });
    recovered.map_err(|error| {
        let what = format!("the unit did not come back after {path} got no answer");
        Failure::new(Kind::NoAnswer.code("asmpatch::bench::recovery"), what).because(error).into()
    })
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
        if path.writes() {
            // Fill each slot's buffer once and send it again and again, so that the host copies nothing per command.
            let head = size.min(16);
            if buffer[..head] != self.pattern[..head] {
                buffer[..size].copy_from_slice(&self.pattern[..size]);
            }
            self.freeing.extend(freeing(size));
        }
        self.number += 1;
        Some(Job { lun: Lun::ZERO, cdb: command.cdb(), data: path.job_data(size), id: at as u64 })
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
