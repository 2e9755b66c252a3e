//! The scenario of a virtual unit: what is behind it, its state, its timing and the faults to inject.
//!
//! The TOML is documented in docs/virtual-unit.md.

#[cfg(test)]
mod tests;

use asm2464::scsi::BLOCK_LEN;
use asm2464::{Failure, Kind, Label};
use asm2464_chip::chip::{
    BarSpec, Board, DeviceSpec, DriveSpec, EarlyLanes, Engine, Fabric, PartRevision, Speed, SupplySensor,
};
use asm2464_chip::spi_flash::FlashFaults;
use asm2464_files::toml_file;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::gpu_card::{self, registers};

/// What is behind the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, remote = "Self")]
pub enum Downstream {
    /// Nothing.
    Nothing,
    /// A GPU on bus 4, behind its card's switch.
    #[default]
    Gpu,
    /// A GPU that runs programs: tiny-gpu as a card right behind the root port.
    TinyGpu,
    /// An NVMe SSD.
    Ssd {
        /// Its size: a multiple of 512 bytes, at least one block.
        bytes: u64,
    },
}

impl<'de> Deserialize<'de> for Downstream {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The derived function, whose errors name Rust's kinds of variants.
        Self::deserialize(deserializer).map_err(|_| {
            D::Error::custom("`behind` is \"nothing\", \"gpu\", \"tiny-gpu\" or { ssd = { bytes = 67108864 } }")
        })
    }
}

/// What starts at power-on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerOnState {
    /// The image in the flash if its container is valid, else the boot loader.
    #[default]
    Auto,
    /// The boot loader, whatever the flash holds.
    BootLoader,
    /// Nothing: the unit is not plugged in.
    Absent,
}

/// Effect of a CPU reset (E8 with mode 0x50, or 1 in 0xCC31) on the code and on XDATA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuReset {
    /// The code is loaded from flash again, as at power-on. One source says so, without a measurement.
    LoadsCode,
    /// The code in the code memory restarts, and XDATA and SRAM stay. Its start-up code reads the configuration blocks
    /// again. Source: the open firmware's register map and its boot stub, which hands over through XDATA.
    #[default]
    KeepsCode,
}

/// Whether the bulk pipes hang from the unit's opening on, while control requests work, and what makes them work again.
/// A stronger reset than the named one helps, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum BulkHangs {
    /// They work.
    #[default]
    #[serde(skip_deserializing)]
    Never,
    /// They hang until a strobe of the DMA engine (0xC42A.0), or a CPU reset.
    #[serde(rename = "strobes")]
    UntilStrobes,
    /// They hang until a CPU reset.
    #[serde(rename = "cpu-reset")]
    UntilCpuReset,
    /// They hang until a power cycle.
    #[serde(rename = "power")]
    UntilPower,
}

/// Reads `bulk-hangs`, which may also be `true`, for `"power"`, or `false`.
fn bulk_hangs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BulkHangs, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected true, false, \"strobes\", \"cpu-reset\" or \"power\"")]
    enum FlagOrCure {
        Flag(bool),
        Until(BulkHangs),
    }
    Ok(match FlagOrCure::deserialize(deserializer)? {
        FlagOrCure::Flag(false) => BulkHangs::Never,
        FlagOrCure::Flag(true) => BulkHangs::UntilPower,
        FlagOrCure::Until(cure) => cure,
    })
}

/// Contents of a new unit's flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factory {
    /// The practice image, and configuration blocks as a maker would write them.
    #[default]
    Stock,
    /// The practice image that stands in for open firmware, and the same configuration blocks.
    Open,
    /// Only the configuration blocks.
    NoImage,
    /// Nothing.
    Erased,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The endpoint halts in the data phase or, for a command without data, instead of the status.
    Stall,
    /// The endpoint halts instead of the status.
    StallStatus,
    /// Half of the data is moved; the residue says so.
    ShortData,
    /// The status carries another tag.
    BadTag,
    /// The status is a phase error (Bulk-Only), or the response "invalid information unit" (UAS).
    PhaseError,
    /// The command is never answered.
    Timeout,
    /// The unit disappears when the command arrives.
    Disconnect,
}

/// A fault and the commands that it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Only commands with this operation code count. If unset, all count.
    pub opcode: Option<u8>,
    /// Number of the first command to strike, counted from when the unit was opened. 1 is the first.
    #[serde(default = "one")]
    pub nth: u64,
    /// Number of counted commands to strike from there on.
    #[serde(default = "one")]
    pub times: u64,
}

const fn one() -> u64 {
    1
}

/// The scenario of a virtual unit: its `bridge.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Scenario {
    /// What is behind the bridge.
    pub behind: Downstream,
    /// What starts at power-on.
    pub state: PowerOnState,
    /// Speed of the link.
    pub speed: Speed,
    /// Speed after a CPU reset, which retrains the link; by default the same.
    pub speed_after_reset: Option<Speed>,
    /// Effect of a CPU reset on the code.
    pub cpu_reset: CpuReset,
    /// The chip's revision, as its firmware reads it.
    pub part_revision: PartRevision,
    /// What the PCIe link does if its lanes are on before its training begins.
    pub pcie_early_lanes: EarlyLanes,
    /// Whether PCIe has no power until the firmware switches it on (0xC656.5). By default it has, until the firmware
    /// switches it off.
    pub pcie_starts_off: bool,
    /// What the supply's sensor measures; by default the board has none.
    pub supply: Option<SupplySensor>,
    /// Contents of a new unit's flash.
    pub factory: Factory,
    /// Serial number of a new unit, at most 20 printable ASCII characters; by default derived from its folder's path.
    pub serial: Option<String>,
    /// The unit loses its power after this many bytes of flash have been programmed since it was opened.
    pub power_loss_after: Option<u64>,
    /// The unit is unplugged this many microseconds after it was opened, even if it is busy.
    pub unplug_after_us: Option<u64>,
    /// Milliseconds until a unit that disappeared through a fault returns. If unset, it stays away.
    pub back_after_ms: Option<u64>,
    /// The PCIe link goes down after this many requests.
    pub pcie_link_lost_after: Option<u64>,
    /// Whether the bulk pipes hang while control requests work, and what helps. Source: owners' reports.
    #[serde(deserialize_with = "bulk_hangs")]
    pub bulk_hangs: BulkHangs,
    /// The longest F0 stream in bytes that the open firmware survives. After a longer one the unit answers nothing
    /// until a power cycle. Source: tinygrad's issue 18136.
    pub stream_limit: Option<u64>,
    /// Whether the unit's hub can switch its port's power.
    pub port_power: bool,
    /// Durations.
    pub timing: Durations,
    /// Devices behind the root port instead of a GPU on bus 4: switches and others.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceSpec<ScenarioEngine>>,
    /// Defects of the flash.
    pub flash: FlashFaults,
    /// Faults, each with its own count.
    #[serde(rename = "fault")]
    pub faults: Vec<Fault>,
}

/// The label of an invalid scenario.
pub(super) const INVALID: Label = Kind::BadInput.code("asm2464::virtual_unit::scenario");

/// The voltage below which no dock works, in millivolts. Source: openpilot, `modeld/helpers.py`.
const LEAST_MV: u16 = 5_000;

impl Scenario {
    /// Parses a scenario.
    ///
    /// # Errors
    /// `asm2464::virtual_unit::scenario`: not TOML, an unknown key, or a value that is wrong by itself or beside
    /// another.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| Failure::new(INVALID, toml_file::reason(text, &error)))?;
        if let Downstream::Ssd { bytes } = scenario.behind
            && (bytes == 0 || bytes % BLOCK_LEN as u64 != 0 || bytes > 1 << 50)
        {
            let message = format!("`behind.ssd.bytes` is {bytes}, expected a multiple of 512 from 512 to 2^50");
            return Err(Failure::new(INVALID, message));
        }
        if !scenario.devices.is_empty() {
            if scenario.behind != Downstream::Gpu {
                let message = "`device` describes what is behind the bridge; leave `behind` out";
                return Err(Failure::new(INVALID, message));
            }
            Fabric::of_devices(&scenario.specs())
                .map_err(|error| Failure::new(INVALID, format!("`device`: {error}")))?;
        }
        if let Some(serial) = &scenario.serial
            && (serial.is_empty() || serial.len() > 20 || !serial.bytes().all(|byte| matches!(byte, 0x20..=0x7E)))
        {
            let message = format!("`serial` is {serial:?}, expected 1 to 20 printable ASCII characters");
            return Err(Failure::new(INVALID, message));
        }
        if let Some(supply) = scenario.supply
            && supply.voltage_mv > SupplySensor::MAX_MV
        {
            let (found, most) = (supply.voltage_mv, SupplySensor::MAX_MV);
            return Err(Failure::new(INVALID, format!("`supply.voltage-mv` is {found}, expected at most {most}")));
        }
        let FlashFaults { unstable_reads, stale_first_byte, .. } = scenario.flash;
        for (key, count) in [("unstable-reads", unstable_reads), ("stale-first-byte", stale_first_byte)] {
            if count == Some(0) {
                return Err(Failure::new(INVALID, format!("`flash`: `{key}` counts from 1")));
            }
        }
        for (index, fault) in scenario.faults.iter().enumerate() {
            if fault.nth == 0 || fault.times == 0 {
                let message = format!("`fault` {}: `nth` and `times` count from 1", index + 1);
                return Err(Failure::new(INVALID, message));
            }
        }
        Ok(scenario)
    }

    /// The keys that are set so that a verdict on the unit differs from one on a sound dock with a card.
    pub(super) fn set_apart(&self) -> Vec<SetKey> {
        let FlashFaults { protection, jedec_id, .. } = self.flash;
        let keys = [
            ("behind", false, self.behind == Downstream::Nothing),
            ("state", false, self.state != PowerOnState::default()),
            ("speed", false, self.speed != Speed::default()),
            ("speed-after-reset", false, self.speed_after_reset.is_some()),
            ("pcie-starts-off", false, self.pcie_starts_off),
            ("pcie-link-lost-after", false, self.pcie_link_lost_after.is_some()),
            ("supply", false, self.supply.is_some_and(|supply| supply.fault || supply.voltage_mv < LEAST_MV)),
            ("power-loss-after", true, self.power_loss_after.is_some()),
            ("unplug-after-us", true, self.unplug_after_us.is_some()),
            ("bulk-hangs", true, self.bulk_hangs != BulkHangs::Never),
            ("stream-limit", true, self.stream_limit.is_some()),
            ("flash", true, self.flash != FlashFaults { protection, jedec_id, ..FlashFaults::default() }),
            ("fault", true, !self.faults.is_empty()),
        ];
        keys.into_iter().filter(|(.., is_set)| *is_set).map(|(name, stops, _)| SetKey { name, stops }).collect()
    }
}

/// A key of a scenario that sets its unit apart from a sound dock with a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetKey {
    /// Its name in bridge.toml.
    pub name: &'static str,
    /// Whether it stops transfers, again after each power-up.
    pub stops: bool,
}

/// The bridges above the GPU of `behind = "gpu"`, by path and PCI ID: the port that carries it, and the two of the switch
/// that sits on a card of AMD's. The GPU is on bus 4 behind them, where tinygrad looks.
const GPU_BRIDGES: [(&str, u16, u16); 3] =
    [(PORT_AT, PORT_VENDOR, PORT_DEVICE), ("0/0", 0x1002, 0x1478), ("0/0/0", 0x1002, 0x1479)];
const GPU_AT: &str = "0/0/0/0";
const GPU_VENDOR: u16 = 0x1002;
const GPU_DEVICE: u16 = 0x744C;
const GPU_CLASS: u32 = 0x03_00_00;
const GPU_MEMORY: u64 = 1 << 20;

/// Path of the port above the SSD of `behind = { ssd = ... }`. The SSD is on bus 2, behind a switch's port, where
/// 240417 looks for one.
const PORT_AT: &str = "0";
const PORT_VENDOR: u16 = 0x1B21;
const PORT_DEVICE: u16 = 0x2461;
const SSD_AT: &str = "0/0";
const SSD_DEVICE: u16 = 0x4E56;
const SSD_CLASS: u32 = 0x01_08_02;

/// The engine inside a device, as a scenario names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", remote = "Self")]
pub enum ScenarioEngine {
    /// No engine: the device's memory holds what is written.
    #[default]
    None,
    /// tiny-gpu: memory behind BAR 0, registers behind BAR 2. See [`gpu_card::registers`](crate::gpu_card::registers).
    TinyGpu,
    /// An NVMe controller with one namespace; its registers are behind BAR 0.
    Nvme(DriveSpec),
}

impl<'de> Deserialize<'de> for ScenarioEngine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As for `behind`.
        Self::deserialize(deserializer)
            .map_err(|_| D::Error::custom("`engine` is \"none\", \"tiny-gpu\" or { nvme = { blocks = 131072 } }"))
    }
}

impl From<ScenarioEngine> for Engine {
    fn from(engine: ScenarioEngine) -> Self {
        match engine {
            ScenarioEngine::None => Self::None,
            ScenarioEngine::TinyGpu => gpu_card::ENGINE,
            ScenarioEngine::Nvme(drive) => Self::Nvme(drive),
        }
    }
}

impl Scenario {
    fn specs(&self) -> Vec<DeviceSpec> {
        self.devices.iter().cloned().map(DeviceSpec::with_engine).collect()
    }

    /// The board around the chip.
    pub(super) fn board(&self) -> Board {
        Board { part_revision: self.part_revision, early_lanes: self.pcie_early_lanes, supply: self.supply }
    }

    /// The devices behind the bridge.
    fn all_devices(&self) -> Vec<DeviceSpec> {
        match self.behind {
            Downstream::TinyGpu => vec![DeviceSpec {
                class: registers::CLASS,
                engine: gpu_card::ENGINE,
                ..device("0", registers::VENDOR, registers::DEVICE)
            }],
            Downstream::Ssd { bytes } => {
                let drive = DriveSpec { blocks: bytes / BLOCK_LEN as u64, ..DriveSpec::default() };
                let ssd = DeviceSpec {
                    class: SSD_CLASS,
                    engine: Engine::Nvme(drive),
                    ..device(SSD_AT, registers::VENDOR, SSD_DEVICE)
                };
                vec![device(PORT_AT, PORT_VENDOR, PORT_DEVICE), ssd]
            }
            Downstream::Gpu if self.devices.is_empty() => {
                let memory = BarSpec { bytes: GPU_MEMORY, is_64: true, prefetchable: true };
                let gpu = DeviceSpec { class: GPU_CLASS, bars: vec![memory], ..device(GPU_AT, GPU_VENDOR, GPU_DEVICE) };
                let mut devices = Vec::new();
                for (at, vendor, id) in GPU_BRIDGES {
                    devices.push(device(at, vendor, id));
                }
                devices.push(gpu);
                devices
            }
            Downstream::Nothing | Downstream::Gpu => self.specs(),
        }
    }

    /// Builds the devices behind the bridge, as at power-on.
    pub(super) fn fabric(&self) -> Fabric {
        // `parse` has already rejected devices that make no tree.
        let mut fabric = Fabric::of_devices(&self.all_devices()).unwrap_or_default();
        if let Some(requests) = self.pcie_link_lost_after {
            fabric.lose_link_after(requests);
        }
        if self.pcie_starts_off {
            fabric.start_off();
        }
        fabric
    }
}

/// A device with this path and PCI ID.
fn device(at: &str, vendor: u16, device: u16) -> DeviceSpec {
    DeviceSpec { at: at.to_owned(), vendor, device, ..DeviceSpec::default() }
}

/// Counts commands and decides which a fault strikes.
#[derive(Debug, Default)]
pub struct FaultPlan {
    faults: Vec<(Fault, u64)>,
}

impl FaultPlan {
    pub(super) fn new(faults: &[Fault]) -> Self {
        Self { faults: faults.iter().map(|fault| (*fault, 0)).collect() }
    }

    /// Whether there are no faults.
    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Counts a command, and returns the first fault that strikes it.
    pub fn strike(&mut self, opcode: u8) -> Option<FaultKind> {
        let mut struck = None;
        for (fault, seen) in &mut self.faults {
            if fault.opcode.is_none_or(|wanted| wanted == opcode) {
                *seen += 1;
                if *seen >= fault.nth && *seen - fault.nth < fault.times {
                    struck = struck.or(Some(fault.kind));
                }
            }
        }
        struck
    }
}

/// Durations, all zero by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Durations {
    /// Milliseconds for each 4 KiB sector erased.
    pub erase_sector_ms: u64,
    /// Microseconds for each 256-byte page programmed.
    pub program_page_us: u64,
    /// Minimum time from a command to its status, in microseconds.
    pub command_us: u64,
    /// Milliseconds from a CPU reset (E8 with mode 0x50), or from a replug (at least 500), until the unit is back.
    pub reenumerate_ms: u64,
}
