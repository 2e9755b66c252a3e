//! The bench's part that depends on the vendor's firmware: the check for an SSD, the initialisation as by a GPU
//! runtime, and its SCSI commands.

use std::time::Duration;

use asm2464::firmware::BridgeState;
use asm2464::progress::Progress;
use asm2464::scsi::{BLOCK_LEN, Command, XdataAddress};
use asm2464_host::bridge::survey::{behind, has_e4_extension, has_read16_sram};
use asm2464_host::bridge::{Behind, Bridge, BusSpeed, DataPhase, Transport, TransportKind};
use asm2464_host::pcie::{EngineError, TlpEngine, VendorTlp};

use super::behind::Memory;
use super::benched_unit::{BenchedUnit, Firmware, Known, Task};
use super::halt::Halt;
use super::integrity::{exchange, recover};
use super::measure::measure;
use super::path::Path;
use super::pattern::PATTERN_LEN;
use super::plan::{BenchEvent, BenchPlan, Point};
use super::report::{Outcome, Skip};
use super::tlp;
use crate::failure::AnyFailure;
use crate::unit::{Purpose, spare_ssd};

/// Maximum number of bytes of one READ(16) with the patch read16-sram.
const READ16_SRAM_MAX: usize = 0x8000;
/// Maximum number of bytes that one E4 reads on any firmware.
const E4_STEP: usize = 255;

impl<T: Transport> BenchedUnit for Bridge<T> {
    fn firmware(&self) -> Firmware {
        Firmware {
            state: BridgeState::Vendor,
            fills_sram: Path::Write16,
            memory_len: tlp::REACH,
            memory_paths: [Path::TlpWrite, Path::TlpRead],
            memory_round: 64,
        }
    }

    fn names(&mut self) -> [&'static str; 2] {
        ["vendor", self.transport_mut().kind().name()]
    }

    fn speed(&self) -> BusSpeed {
        BusSpeed::Unknown
    }

    fn depths(&mut self) -> (usize, Vec<usize>) {
        let most = self.transport_mut().max_depth();
        (most, vec![most])
    }

    fn survey(&mut self, plan: &BenchPlan, device: &str) -> Result<Known, AnyFailure> {
        let writes = plan.writes(BridgeState::Vendor);
        let behind = behind(self)?;
        if writes {
            spare_ssd(&behind, device, Purpose::Bench)?;
        }
        let has_ssd = matches!(behind, Behind::Ssd(_));
        let behind = match behind {
            Behind::Ssd(what) => what,
            Behind::NoMedium => "no SSD".to_owned(),
            Behind::CannotTell(why) => format!("can't tell: {why}"),
        };
        let mut known = Known { behind: Some(behind), has_ssd, ..Known::default() };
        let mut runs = |path, known: &Known| plan.paths.contains(&path) && self.left_out(path, plan, known).is_none();
        known.looks = Path::of(BridgeState::Vendor).any(|path| path.is_tlp() && runs(path, &known));
        known.e4_extension = has_e4_extension(self, plan.effort.timeout)? == Some(true);
        Ok(known)
    }

    fn left_out(&mut self, path: Path, plan: &BenchPlan, known: &Known) -> Option<Skip> {
        let kind = self.transport_mut().kind();
        let completes = known.has_ssd || known.read16_sram || plan.reads_without_ssd;
        match path {
            _ if path.is_tlp() && known.has_ssd => Some(Skip::SsdBehind),
            // Executed: refused before the initialisation, and never answered after it.
            Path::Write16 if kind == TransportKind::BulkOnly => Some(Skip::BulkOnly),
            // Executed: without streams the status comes before WRITE READY, so the data never moves.
            Path::Write16 if kind == TransportKind::Uas => Some(Skip::HighSpeed),
            Path::Read16 if !completes => Some(Skip::NoCompleter),
            _ => None,
        }
    }

    fn prepare(
        &mut self,
        device: &str,
        plan: &BenchPlan,
        known: &mut Known,
        progress: &mut dyn Progress<BenchEvent>,
    ) -> Result<(), AnyFailure> {
        let initialised = [Path::Write16, Path::Read16];
        let mut paths = initialised.into_iter().filter(|path| plan.paths.contains(path));
        if known.has_ssd || paths.all(|path| self.left_out(path, plan, known).is_some()) {
            return Ok(());
        }
        // Refuse an unknown version before reporting an initialisation that only a restart undoes.
        self.variables()?;
        if !self.has_no_medium()? {
            let why = "READ CAPACITY and E6 do not both answer 2/3A (medium not present)".to_owned();
            return Err(Purpose::Bench.cannot_tell(device, &why).into());
        }
        progress.event(BenchEvent::Initialising);
        self.initialise()?;
        known.is_initialised = true;
        known.read16_sram = plan.paths.contains(&Path::Read16) && is_read_by_software(self, plan.effort.timeout)?;
        Ok(())
    }

    fn limit(&mut self, point: &mut Point, known: &Known) -> bool {
        if point.path == Path::Read16 && known.read16_sram {
            point.size = point.size.min(READ16_SRAM_MAX);
        }
        point.path != Path::E4Extended || known.e4_extension
    }

    fn engine(&mut self) -> Box<dyn TlpEngine + '_> {
        Box::new(VendorTlp::new(self))
    }

    /// The LBA does not matter: each WRITE(16) takes the SRAM's next free slot, and the slots are freed after it as a
    /// GPU runtime does. So every piece lands where XDATA 0xF000 shows it.
    fn write_sram(&mut self, piece: &[u8], timeout: Duration) -> Result<(), Halt> {
        let command = Command::Write16 { lba: 0, blocks: (piece.len() / BLOCK_LEN) as u32 };
        exchange(self, Path::Write16, command, DataPhase::Out(piece), piece.len(), timeout)?;
        Ok(self.free_slots(piece.len()).map_err(AnyFailure::from)?)
    }

    fn read_window(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt> {
        for (step, piece) in buffer.chunks_mut(E4_STEP).enumerate() {
            let (from, len) = (XdataAddress::SRAM_WINDOW.plus((step * E4_STEP) as u16), piece.len());
            let command = Command::XdataRead { from, len: len as u16 };
            exchange(self, Path::E4Stock, command, DataPhase::In(piece), len, timeout)?;
        }
        Ok(())
    }

    fn read_sram(
        &mut self,
        buffer: &mut [u8],
        known: &Known,
        timeout: Duration,
    ) -> Option<(Path, Result<usize, Halt>)> {
        if !known.read16_sram {
            return None;
        }
        let len = buffer.len().min(READ16_SRAM_MAX);
        let command = Command::Read16 { lba: 0, blocks: (len / BLOCK_LEN) as u32 };
        let read = exchange(self, Path::Read16, command, DataPhase::In(&mut buffer[..len]), len, timeout);
        Some((Path::Read16, read.map(|()| len)))
    }

    fn write_memory(&mut self, memory: Memory, bytes: &[u8]) -> Result<(), EngineError> {
        tlp::write(&mut VendorTlp::new(self), memory, bytes)
    }

    fn read_memory(&mut self, memory: Memory, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt> {
        tlp::read(&mut VendorTlp::new(self), memory, buffer, timeout)
    }

    fn measure(&mut self, point: Point, task: &Task<'_>) -> Result<Outcome, AnyFailure> {
        measure(self, point, task)
    }

    fn recover(&mut self) -> Result<(), EngineError> {
        Ok(Bridge::recover(self)?)
    }

    fn after_silence(&mut self, known: &Known) -> Result<(), AnyFailure> {
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
    match has_read16_sram(bridge, timeout) {
        Err(error) if error.is_timeout() => {
            recover(bridge, Path::Read16)?;
            bridge.initialise()?;
            Ok(false)
        }
        asked => Ok(asked?),
    }
}
