//! The unit that is measured: what a bench needs of its firmware, and what is known of it.

use std::time::Duration;

use asm2464::AnyFailure;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464_host::bridge::{Behind, BusSpeed};
use asm2464_host::pcie::{PcieError, TlpEngine};

use super::path::DataPath;
use super::pcie::{Memory, PcieDevices};
use super::plan::{BenchEvent, BenchPlan, Effort, Point};
use super::report::{Integrity, Outcome, Skip};
use super::row::Halt;
use crate::unit::Live;

/// The part of a bench that depends on the unit's firmware. Sealed: no other crate can name it.
pub trait BenchedUnit {
    /// What is the same on every unit that runs this firmware.
    fn firmware(&self) -> BenchedFirmware;

    /// The names of the state and of the wire protocol in JSON.
    fn names(&mut self) -> [&'static str; 2];

    /// The link's speed, if the verdict needs it.
    fn speed(&self) -> BusSpeed;

    /// Maximum number of commands in flight, and the numbers that are measured unless the plan names others.
    fn depths(&mut self) -> (usize, Vec<usize>);

    /// Finds out what the unit has, and whether it may be written. `device` names it.
    fn survey(&mut self, plan: &BenchPlan, device: &str) -> Result<UnitSurvey, AnyFailure>;

    /// Reason to skip one of the firmware's paths on this unit; `None` to measure it.
    fn left_out(&mut self, path: DataPath, plan: &BenchPlan, known: &UnitSurvey) -> Option<Skip>;

    /// Prepares the unit for the SRAM's path, after the PCIe requests of the survey and of the checks.
    fn prepare(
        &mut self,
        _device: &str,
        _plan: &BenchPlan,
        _known: &mut UnitSurvey,
        _progress: &mut dyn Progress<BenchEvent>,
    ) -> Result<(), AnyFailure> {
        Ok(())
    }

    /// Limits a point to what the unit can do. Returns `false` if it is not worth a row.
    fn limit(&mut self, point: &mut Point, known: &UnitSurvey) -> bool;

    /// What carries PCIe requests.
    fn engine(&mut self) -> Box<dyn TlpEngine + '_>;

    /// Writes to the start of the SRAM.
    fn write_sram(&mut self, piece: &[u8], timeout: Duration) -> Result<(), Halt>;

    /// Reads the start of the SRAM through the window.
    fn read_window(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt>;

    /// Reads the start of the SRAM by a path for bulk data. Returns the path and the number of bytes; `None` if this
    /// unit has no such path.
    fn read_sram(
        &mut self,
        buffer: &mut [u8],
        known: &UnitSurvey,
        timeout: Duration,
    ) -> Option<(DataPath, Result<usize, Halt>)>;

    /// Writes a GPU's memory, at most [`BenchedFirmware::memory_len`] bytes.
    fn write_memory(&mut self, memory: Memory, bytes: &[u8]) -> Result<(), PcieError>;

    /// Reads a GPU's memory.
    fn read_memory(&mut self, memory: Memory, buffer: &mut [u8], timeout: Duration) -> Result<(), Halt>;

    /// Measures a path other than single TLPs.
    fn measure(
        &mut self,
        point: Point,
        unit: &CheckedUnit,
        effort: Effort,
        interrupt: Interrupt<'_>,
    ) -> Result<Outcome, AnyFailure>;

    /// Makes the unit usable again after a failure.
    fn recover(&mut self) -> Result<(), PcieError>;

    /// Prepares the unit again after a path that gave no answer: its recovery clears what was prepared.
    fn after_silence(&mut self, _known: &UnitSurvey) -> Result<(), AnyFailure> {
        Ok(())
    }

    /// Recovers and prepares the unit.
    fn revive(&mut self, known: &UnitSurvey) -> Result<(), AnyFailure> {
        self.recover()?;
        self.after_silence(known)
    }
}

/// What a bench and a soak know of a firmware.
#[derive(Debug, Clone, Copy)]
pub struct BenchedFirmware {
    /// Its name for the verdict and for the paths that it has.
    pub(super) state: BridgeState,
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitSurvey {
    /// What SCSI commands say about what is behind the bridge; `None` if the firmware takes none.
    pub(super) behind: Option<Behind>,
    /// Whether paths of the plan need PCIe.
    pub(super) looks: bool,
    /// Whether E4 takes more than 255 bytes.
    pub(super) e4_extension: bool,
    /// Whether software answers READ(16).
    pub(super) read16_sram: bool,
    /// Whether the unit is initialised as by a GPU runtime.
    pub(super) is_initialised: bool,
    /// What is behind the bridge on PCIe.
    pub(super) devices: Option<PcieDevices>,
}

impl UnitSurvey {
    /// The memory behind the bridge that may be written.
    pub(super) fn memory(&self) -> Option<Memory> {
        self.devices.as_ref()?.memory.ok()
    }

    /// Whether an SSD is behind the bridge.
    pub(super) const fn has_ssd(&self) -> bool {
        matches!(self.behind, Some(Behind::Ssd(_)))
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

/// A unit that is surveyed, initialised and checked.
pub struct CheckedUnit {
    pub(super) known: UnitSurvey,
    pub(super) pattern: Vec<u8>,
    pub(super) checked: Integrity,
}

impl CheckedUnit {
    /// Whether the window shows the pattern's first 4 KiB.
    pub(super) fn window_holds(&self) -> bool {
        self.checked.e4 == Some(Outcome::Same)
    }

    /// Whether the memory behind the bridge begins with the pattern.
    pub(super) fn memory_holds(&self) -> bool {
        self.checked.memory == Some(Outcome::Same)
    }
}
