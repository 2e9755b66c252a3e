//! What a bench needs of a unit's firmware, what it learns of the unit, and what it reports meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use asm2464::AnyFailure;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464_host::bridge::{Behind, BusSpeed};
use asm2464_host::pcie::{PcieError, TlpEngine};

use super::path::DataPath;
use super::pcie::{Memory, PcieDevices};
use super::plan::{BenchPlan, Effort, Point};
use super::report::{Integrity, Outcome, Skip};
use super::row::Halt;
use crate::unit::Live;

/// Progress of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchEvent {
    /// The survey and the integrity check.
    Checking,
    /// The unit will be initialised as by a GPU runtime. Restart it after the bench.
    Initialising,
    /// A row begins.
    Row {
        /// The row's number, from 0.
        index: usize,
        /// The number of rows.
        of: usize,
        /// The point that the row measures.
        point: Point,
    },
    /// A soak is running.
    Soaking {
        /// Time since the soak began.
        elapsed: Duration,
        /// How long it lasts.
        of: Duration,
        /// Bytes that the unit has moved.
        bytes: u64,
        /// Errors so far.
        errors: u64,
    },
}

/// The part of a bench that depends on the unit's firmware. Sealed: no other crate can name it.
pub trait BenchedUnit {
    /// What is the same on every unit that runs this firmware.
    fn firmware(&self) -> BenchedFirmware;

    /// Finds out what the unit has, whether it may be written, and which of the firmware's paths to skip. `device` names
    /// it.
    fn survey(&mut self, plan: &BenchPlan, device: &str) -> Result<UnitSurvey, AnyFailure>;

    /// Makes the unit ready for the SRAM's paths, after the PCIe requests of the survey and of the checks.
    fn ready_sram(
        &mut self,
        _device: &str,
        _plan: &BenchPlan,
        _known: &PreparedUnit,
        _progress: &mut dyn Progress<BenchEvent>,
    ) -> Result<SramState, AnyFailure> {
        Ok(SramState::default())
    }

    /// What carries PCIe requests.
    fn engine(&mut self) -> Box<dyn TlpEngine + '_>;

    /// Writes to the start of the SRAM.
    fn write_sram(&mut self, piece: &[u8], timeout: Duration) -> Result<(), Halt>;

    /// Reads the start of the SRAM: through the window, or by READ(16) if software answers that.
    fn read_sram(&mut self, path: DataPath, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt>;

    /// Writes a GPU's memory, at most [`BenchedFirmware::memory_len`] bytes.
    fn write_memory(&mut self, memory: Memory, bytes: &[u8]) -> Result<(), PcieError>;

    /// Reads a GPU's memory.
    fn read_memory(&mut self, memory: Memory, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt>;

    /// Measures a path other than single TLPs.
    fn measure(
        &mut self,
        point: Point,
        known: &PreparedUnit,
        effort: Effort,
        interrupt: Interrupt<'_>,
    ) -> Result<Outcome, AnyFailure>;

    /// Makes the unit usable again after a failure or a path that gave no answer. The recovery clears a runtime's
    /// initialisation: `initialises` repeats it.
    fn revive(&mut self, initialises: bool) -> Result<(), AnyFailure>;
}

/// What a bench and a soak know of a firmware.
#[derive(Debug, Clone, Copy)]
pub struct BenchedFirmware {
    /// Its kind, which has paths and published figures of its own.
    pub(super) state: BridgeState,
    /// The kind's name in JSON.
    pub(super) name: &'static str,
    /// The path that fills the SRAM.
    pub(super) fills_sram: DataPath,
    /// Bytes of a GPU's memory that the rows change.
    pub(super) memory_len: usize,
    /// The paths that write and read a GPU's memory.
    pub(super) memory_paths: [DataPath; 2],
    /// Bytes that each round of a soak moves through each of them.
    pub(super) memory_round: usize,
}

impl Live {
    /// Returns the unit as a bench measures it.
    pub(crate) fn benched(&mut self) -> &mut dyn BenchedUnit {
        match self {
            Self::Vendor(bridge) => bridge,
            Self::Open(unit) => unit,
        }
    }
}

/// What a unit says of itself before the bench changes anything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnitSurvey {
    /// The wire protocol's name in JSON.
    pub(super) transport: &'static str,
    /// The link's speed, if a published figure depends on it.
    pub(super) speed: Option<BusSpeed>,
    /// Commands in flight if the plan names none, in ascending order. The last is the maximum.
    pub(super) depths: Vec<usize>,
    /// The most bytes of each path that moves less on this unit than elsewhere. A path that moves nothing gets no row.
    pub(super) limits: BTreeMap<DataPath, usize>,
    /// What SCSI commands say about what is behind the bridge; `None` if the firmware takes none.
    pub(super) behind: Option<Behind>,
    /// The firmware's paths that can't be measured on this unit.
    pub(super) skips: BTreeMap<DataPath, Skip>,
    /// Whether E4 takes more than 255 bytes.
    pub(super) e4_extension: bool,
}

impl UnitSurvey {
    /// Whether an SSD is behind the bridge.
    pub(super) const fn has_ssd(&self) -> bool {
        matches!(self.behind, Some(Behind::Ssd(_)))
    }
}

/// What [`BenchedUnit::ready_sram`] has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SramState {
    /// Whether the unit is initialised as by a GPU runtime.
    pub(super) is_initialised: bool,
    /// The most bytes of a READ(16) that software answers; `None` if none does, or if it was not asked.
    pub(super) read16_max: Option<usize>,
}

/// A unit whose rows can be measured: what was found out about it, and what was changed for that.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedUnit {
    /// The firmware's kind.
    pub(super) state: BridgeState,
    /// What it says of itself.
    pub(super) survey: UnitSurvey,
    /// What is behind the bridge on PCIe; `None` if no path needs it.
    pub(super) devices: Option<PcieDevices>,
    /// The pattern of the checks.
    pub(super) pattern: Vec<u8>,
    /// How its SRAM was made ready.
    pub(super) sram: SramState,
    /// Results of the checks.
    pub(super) integrity: Integrity,
    /// What was in the memory behind the bridge before the bench changed it.
    pub(super) memory_before: Option<Vec<u8>>,
}

impl PreparedUnit {
    /// Why a path can't be measured on this unit; `None` if it can.
    pub(super) fn skip(&self, path: DataPath) -> Option<Skip> {
        if !path.is_of(self.state) {
            return Some(Skip::OtherFirmware);
        }
        if path == DataPath::Read16 && self.sram.read16_max.is_some() {
            return None;
        }
        if let Some(&reason) = self.survey.skips.get(&path) {
            return Some(reason);
        }
        let devices = self.devices.as_ref()?;
        let is_missed = path.needs_memory() || (path == DataPath::ConfigRead && devices.function.is_none());
        if is_missed { devices.memory.err() } else { None }
    }

    /// Whether a path is selected, and not skipped on this unit.
    pub(super) fn runs(&self, path: DataPath, plan: &BenchPlan) -> bool {
        plan.paths.contains(&path) && self.skip(path).is_none()
    }

    /// The points to measure: of the unit's firmware, and of selected paths that it lacks.
    pub(super) fn points(&self, plan: &BenchPlan) -> Vec<Point> {
        let depths = plan.depths_among(&self.survey.depths);
        let foreign = plan.paths.iter().copied().filter(|path| !path.is_of(self.state));
        let own = DataPath::of(self.state).filter(|path| plan.paths.contains(path));
        let mut points = Vec::new();
        for path in own.chain(foreign) {
            let most = self.most_of(path);
            for size in plan.sizes_of(path).into_iter().map(|size| size.min(most)).filter(|size| *size > 0) {
                for depth in path.depths(size, &depths) {
                    let point = Point { path, size, depth };
                    if !points.contains(&point) {
                        points.push(point);
                    }
                }
            }
        }
        points
    }

    /// The most bytes that a command of this path moves on this unit.
    fn most_of(&self, path: DataPath) -> usize {
        match self.sram.read16_max {
            Some(most) if path == DataPath::Read16 => most,
            _ => self.survey.limits.get(&path).copied().unwrap_or(path.max_len()),
        }
    }

    /// The memory behind the bridge that may be written.
    pub(super) fn memory(&self) -> Option<Memory> {
        self.devices.as_ref()?.memory.ok()
    }

    /// Whether the window shows the pattern's first 4 KiB.
    pub(super) fn window_holds(&self) -> bool {
        self.integrity.e4 == Some(Outcome::Same)
    }

    /// Whether the memory behind the bridge begins with the pattern.
    pub(super) fn memory_holds(&self) -> bool {
        self.integrity.memory == Some(Outcome::Same)
    }

    /// What is behind the bridge, in words.
    pub(super) fn words(&self) -> String {
        let behind = self.survey.behind.as_ref().map(|behind| match behind {
            Behind::Ssd(what) => what.clone(),
            Behind::NoMedium => "no SSD".to_owned(),
            Behind::Initialised(why) | Behind::CannotTell(why) => format!("can't tell: {why}"),
        });
        match (behind, &self.devices) {
            (Some(behind), Some(devices)) => format!("{behind}; on PCIe {}", devices.words),
            (Some(behind), None) => behind,
            (None, devices) => devices.as_ref().map(|devices| devices.words.clone()).unwrap_or_default(),
        }
    }
}
