//! What a bench needs of a unit's firmware, what it learns of the unit, and what it reports meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use asm2464::AnyFailure;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464_host::bridge::{Behind, BusSpeed};
use asm2464_host::pcie::{PcieError, TlpEngine};

use super::path::{BenchPlan, DataPath, Effort, Point};
use super::pcie::{Memory, PcieDevices};
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
        _known: &mut UnitSurvey,
        _progress: &mut dyn Progress<BenchEvent>,
    ) -> Result<(), AnyFailure> {
        Ok(())
    }

    /// What carries PCIe requests.
    fn engine(&mut self) -> Box<dyn TlpEngine + '_>;

    /// Writes to the start of the SRAM.
    fn write_sram(&mut self, piece: &[u8], timeout: Duration) -> Result<(), Halt>;

    /// Reads the start of the SRAM through the window.
    fn read_window(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt>;

    /// Reads the start of the SRAM by READ(16), on firmware that answers it by software. Returns the number of bytes.
    fn read16_sram(&mut self, _buffer: &mut [u8], _timeout: Duration) -> Result<usize, Halt> {
        Err(Outcome::NotRun { reason: Skip::OtherFirmware }.into())
    }

    /// Writes a GPU's memory, at most [`BenchedFirmware::memory_len`] bytes.
    fn write_memory(&mut self, memory: Memory, bytes: &[u8]) -> Result<(), PcieError>;

    /// Reads a GPU's memory.
    fn read_memory(&mut self, memory: Memory, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt>;

    /// Measures a path other than single TLPs.
    fn measure(
        &mut self,
        point: Point,
        known: &UnitSurvey,
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

/// What is known of a unit before its rows are measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnitSurvey {
    /// The wire protocol's name in JSON.
    pub(super) transport: &'static str,
    /// The link's speed, if the published figures depend on it.
    pub(super) speed: Option<BusSpeed>,
    /// Numbers of commands in flight that are measured unless the plan names others. The last is the maximum.
    pub(super) depths: Vec<usize>,
    /// Maximum number of bytes of a command, of each path that moves less on this unit than elsewhere. A path that moves
    /// nothing gets no row.
    pub(super) limits: BTreeMap<DataPath, usize>,
    /// What SCSI commands say about what is behind the bridge; `None` if the firmware takes none.
    pub(super) behind: Option<Behind>,
    /// The paths that can't be measured on this unit.
    pub(super) skips: BTreeMap<DataPath, Skip>,
    /// Whether E4 takes more than 255 bytes.
    pub(super) e4_extension: bool,
    /// Whether software answers READ(16).
    pub(super) read16_sram: bool,
    /// Whether the unit is initialised as by a GPU runtime.
    pub(super) is_initialised: bool,
    /// What is behind the bridge on PCIe.
    pub(super) devices: Option<PcieDevices>,
    /// The pattern of the checks.
    pub(super) pattern: Vec<u8>,
    /// Results of the checks.
    pub(super) integrity: Integrity,
    /// What was in the memory behind the bridge before the bench changed it.
    pub(super) memory_before: Option<Vec<u8>>,
}

impl UnitSurvey {
    /// Whether a path is selected, and not skipped on this unit.
    pub(super) fn runs(&self, path: DataPath, plan: &BenchPlan) -> bool {
        plan.paths.contains(&path) && !self.skips.contains_key(&path)
    }

    /// The points to measure: of the unit's firmware, and of selected paths that it lacks.
    pub(super) fn points(&self, plan: &BenchPlan, firmware: BridgeState) -> Vec<Point> {
        let depths = plan.depths_among(&self.depths);
        let foreign = plan.paths.iter().copied().filter(|path| !path.is_of(firmware));
        let own = DataPath::of(firmware).filter(|path| plan.paths.contains(path));
        let mut points = Vec::new();
        for path in own.chain(foreign) {
            let most = self.limits.get(&path).copied().unwrap_or(path.max_len());
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

    /// The memory behind the bridge that may be written.
    pub(super) fn memory(&self) -> Option<Memory> {
        self.devices.as_ref()?.memory.ok()
    }

    /// Whether an SSD is behind the bridge.
    pub(super) const fn has_ssd(&self) -> bool {
        matches!(self.behind, Some(Behind::Ssd(_)))
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
        let behind = self.behind.as_ref().map(|behind| match behind {
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
