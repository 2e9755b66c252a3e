//! What a virtual bridge is told: what sits behind it, its state, its timing, the faults to inject.
//!
//! The TOML is documented in docs/virtual-bridge.md.

use std::time::Duration;

use serde::Deserialize;

use super::descriptors::LinkSpeed;
use super::nor::{FlashFaults, FlashTiming, Protection};
use crate::chip::{DeviceSpec, DriveSpec, Engine, Fabric, MemoryFunction, Place, TreeError};
use crate::firmware::FlashAddress;
use crate::tiny_gpu::registers;
use crate::toml_file;

/// What sits behind the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Behind {
    /// Nothing.
    Nothing,
    /// A GPU.
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

/// What comes up when the unit gets power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerOnState {
    /// What the flash holds: its image where the container holds, else the boot loader.
    #[default]
    Auto,
    /// The boot loader, whatever the flash holds.
    BootLoader,
    /// Nothing: the unit is not plugged in.
    Absent,
}

/// What a CPU reset (E8 with mode 0x50) does to the code. Which of the two the chip does, nobody has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuReset {
    /// The code is loaded from flash again, as at power-on.
    #[default]
    LoadsCode,
    /// The code in the code memory starts over; its start-up code reads the configuration blocks again.
    KeepsCode,
}

/// What the flash of a unit that is new holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factory {
    /// The practice image, and configuration blocks as a maker would write them.
    #[default]
    Stock,
    /// The practice image's open sibling, and the same configuration blocks.
    Open,
    /// Nothing but the configuration blocks.
    NoImage,
    /// Nothing.
    Erased,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The endpoint halts in the data phase, or, where the command has no data, instead of the status.
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

/// A fault, and the command that it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Only commands with this operation code count; without it all do.
    pub opcode: Option<u8>,
    /// The first command that is struck: 1 is the first that counts since the unit was opened.
    #[serde(default = "one")]
    pub nth: u64,
    /// How many commands that count are struck from there on.
    #[serde(default = "one")]
    pub times: u64,
}

const fn one() -> u64 {
    1
}

/// Times, all zero by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Timing {
    /// Milliseconds for each 4 KiB sector erased.
    pub erase_sector_ms: u64,
    /// Microseconds for each 256-byte page programmed.
    pub program_page_us: u64,
    /// Microseconds from a command to its status.
    pub command_us: u64,
    /// Milliseconds from a CPU reset (E8 with mode 0x50), or from a replug, until the unit is back.
    pub reenumerate_ms: u64,
}

impl Timing {
    pub(super) fn flash(&self) -> FlashTiming {
        FlashTiming {
            erase_sector: Duration::from_millis(self.erase_sector_ms),
            program_page: Duration::from_micros(self.program_page_us),
        }
    }
}

/// What is wrong with the SPI flash; nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FlashTrouble {
    /// The block protection is set at power-on.
    pub protection: Option<Protection>,
    /// A flash address whose 4 KiB sector does not erase.
    pub stuck_sector: Option<u32>,
    /// One bit of every so many reads is wrong, another one each time.
    pub unstable_reads: Option<u64>,
}

impl FlashTrouble {
    pub(super) fn faults(&self) -> FlashFaults {
        FlashFaults {
            protection: self.protection,
            stuck_sector: self.stuck_sector.map(FlashAddress),
            unstable_reads: self.unstable_reads,
        }
    }
}

/// What a virtual bridge is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Scenario {
    /// What sits behind it.
    pub behind: Behind,
    /// What comes up at power-on.
    pub state: PowerOnState,
    /// Its link.
    pub speed: LinkSpeed,
    /// Its link after a CPU reset, which trains it anew; by default the same.
    pub speed_after_reset: Option<LinkSpeed>,
    /// What a CPU reset does to the code.
    pub cpu_reset: CpuReset,
    /// What a new unit's flash holds.
    pub factory: Factory,
    /// A new unit's serial number, at most 20 printable ASCII characters; by default one made from its folder's path.
    pub serial: Option<String>,
    /// The unit loses its power once so many bytes of flash have been programmed since it was opened.
    pub power_loss_after: Option<u64>,
    /// The unit is unplugged so many microseconds after it was opened, whatever it is busy with.
    pub unplug_after_us: Option<u64>,
    /// Milliseconds until a unit that disappeared through a fault is back; without it, it stays away.
    pub back_after_ms: Option<u64>,
    /// The PCIe link goes down after so many requests.
    pub pcie_link_lost_after: Option<u64>,
    /// Nothing moves on its bulk pipes, while it answers control requests: only its power helps. Source: owners' reports.
    pub bulk_hangs: bool,
    /// Whether its hub can switch its port's power.
    pub port_power: bool,
    /// The CPU's clock in MHz, which predictions count with; 114 by default.
    pub clock_mhz: Option<u32>,
    /// Times.
    pub timing: Timing,
    /// What is behind the root port in place of a GPU on bus 1: switches, devices.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceSpec>,
    /// What is wrong with its flash.
    pub flash: FlashTrouble,
    /// Faults, each counted by itself.
    #[serde(rename = "fault")]
    pub faults: Vec<Fault>,
}

/// Why a TOML is no scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// Not TOML, an unknown key, a value of the wrong type.
    #[error("{0}")]
    Toml(String),
    /// The SSD's size.
    #[error("`behind.ssd.bytes` is {0}, expected a multiple of 512 from 512 to 2^50")]
    SsdSize(u64),
    /// The serial number.
    #[error("`serial` is {0:?}, expected 1 to 20 printable ASCII characters")]
    Serial(String),
    /// The devices.
    #[error("`device`: {0}")]
    Devices(#[from] TreeError),
    /// Devices beside something else.
    #[error("`device` describes what is behind the bridge; leave `behind` out")]
    BehindTwice,
    /// A count that can never be reached.
    #[error("`fault` {0}: `nth` and `times` count from 1")]
    FaultCount(usize),
    /// The same.
    #[error("`flash`: `unstable-reads` counts from 1")]
    UnstableReads,
    /// The clock.
    #[error("`clock-mhz` is {0}, expected 1 to 1000")]
    Clock(u32),
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError::Toml(toml_file::reason(text, &error)))?;
        if let Behind::Ssd { bytes } = scenario.behind
            && (bytes == 0 || bytes % 512 != 0 || bytes > 1 << 50)
        {
            return Err(ScenarioError::SsdSize(bytes));
        }
        if !scenario.devices.is_empty() {
            if scenario.behind != Behind::Gpu {
                return Err(ScenarioError::BehindTwice);
            }
            Fabric::of_devices(&scenario.devices)?;
        }
        if let Some(serial) = &scenario.serial
            && (serial.is_empty() || serial.len() > 20 || !serial.bytes().all(|byte| matches!(byte, 0x20..=0x7E)))
        {
            return Err(ScenarioError::Serial(serial.clone()));
        }
        if let Some(clock) = scenario.clock_mhz.filter(|clock| !(1..=1000).contains(clock)) {
            return Err(ScenarioError::Clock(clock));
        }
        if scenario.flash.unstable_reads == Some(0) {
            return Err(ScenarioError::UnstableReads);
        }
        if let Some(at) = scenario.faults.iter().position(|fault| fault.nth == 0 || fault.times == 0) {
            return Err(ScenarioError::FaultCount(at + 1));
        }
        Ok(scenario)
    }
}

/// The GPU of `behind = "gpu"`: on bus 1, where it answers whatever the root port's registers say.
const GPU_AT: Place = Place { bus: 1, device: 0, function: 0 };
const GPU_VENDOR: u16 = 0x1002;
const GPU_DEVICE: u16 = 0x744C;
const GPU_CLASS: u32 = 0x03_00_00;
const GPU_MEMORY: usize = 1 << 20;

/// The SSD of `behind = { ssd = ... }`: on bus 2, behind a switch's port, where 240417 looks for one.
const PORT_AT: &str = "0";
const SSD_AT: &str = "0/0";
const SSD_CLASS: u32 = 0x01_08_02;

impl Scenario {
    /// What is behind the bridge, as at power-on.
    pub(super) fn fabric(&self) -> Fabric {
        let card = DeviceSpec {
            at: "0".to_owned(),
            vendor: registers::VENDOR,
            device: registers::DEVICE,
            class: registers::CLASS,
            engine: Engine::TinyGpu,
            ..DeviceSpec::default()
        };
        let port = DeviceSpec { at: PORT_AT.to_owned(), vendor: 0x1B21, device: 0x2461, ..DeviceSpec::default() };
        let ssd = |bytes| DeviceSpec {
            at: SSD_AT.to_owned(),
            vendor: registers::VENDOR,
            device: 0x4E56,
            class: SSD_CLASS,
            engine: Engine::Nvme(DriveSpec { blocks: bytes / 512, ..DriveSpec::default() }),
            ..DeviceSpec::default()
        };
        let devices = match self.behind {
            Behind::TinyGpu => vec![card],
            Behind::Ssd { bytes } => vec![port, ssd(bytes)],
            Behind::Nothing | Behind::Gpu => self.devices.clone(),
        };
        // Devices that make no tree never got past `parse`.
        let mut fabric = Fabric::of_devices(&devices).unwrap_or_default();
        if self.behind == Behind::Gpu && self.devices.is_empty() {
            let gpu = MemoryFunction::new(GPU_VENDOR, GPU_DEVICE, GPU_CLASS, GPU_MEMORY);
            fabric.attach(GPU_AT, Box::new(gpu));
        }
        if let Some(requests) = self.pcie_link_lost_after {
            fabric.lose_link_after(requests);
        }
        fabric
    }
}

/// Counts commands and says which are struck.
#[derive(Debug)]
pub(super) struct FaultPlan {
    faults: Vec<(Fault, u64)>,
}

impl FaultPlan {
    pub(super) fn new(faults: &[Fault]) -> Self {
        Self { faults: faults.iter().map(|fault| (*fault, 0)).collect() }
    }

    /// Whether nothing is to go wrong.
    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// A command has arrived: the first fault that strikes it.
    pub(super) fn strike(&mut self, opcode: u8) -> Option<FaultKind> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::{Answers, Bar, LinkSpec};

    #[test]
    fn a_scenario_says_everything_that_the_documentation_lists() {
        let scenario = Scenario::parse(
            r#"
            behind = { ssd = { bytes = 1048576 } }
            state = "boot-loader"
            speed = "high"
            speed-after-reset = "super"
            cpu-reset = "keeps-code"
            factory = "erased"
            serial = "0123456789AB"
            power-loss-after = 4096
            unplug-after-us = 2500
            back-after-ms = 100
            pcie-link-lost-after = 9
            bulk-hangs = true
            port-power = true
            [flash]
            protection = "for-good"
            stuck-sector = 0x3000
            unstable-reads = 3
            [timing]
            erase-sector-ms = 45
            program-page-us = 400
            command-us = 100
            reenumerate-ms = 500
            [[fault]]
            kind = "short-data"
            opcode = 0xE2
            nth = 2
            times = 3
            "#,
        )
        .unwrap();
        assert_eq!(scenario.behind, Behind::Ssd { bytes: 1 << 20 });
        assert_eq!(scenario.timing.erase_sector_ms, 45);
        assert!(scenario.port_power);
        let faults = FlashFaults {
            protection: Some(Protection::ForGood),
            stuck_sector: Some(FlashAddress(0x3000)),
            unstable_reads: Some(3),
        };
        assert_eq!(scenario.flash.faults(), faults);
        assert_eq!((scenario.cpu_reset, scenario.speed_after_reset), (CpuReset::KeepsCode, Some(LinkSpeed::Super)));
        assert_eq!(scenario.faults, [Fault { kind: FaultKind::ShortData, opcode: Some(0xE2), nth: 2, times: 3 }]);
        assert_eq!(Scenario::parse(""), Ok(Scenario::default()));
    }

    #[test]
    fn devices_behind_the_bridge_are_described_one_by_one() {
        let scenario = Scenario::parse(
            r#"
            [[device]]
            at = "0"
            vendor = 0x1002
            device = 0x744C
            class = 0x030000
            bar = [{ bytes = 0x400000000, is-64 = true, prefetchable = true }, { bytes = 0 }]
            link = { speed = 3, width = 4 }
            answers = { retry = 3 }
            capabilities-loop = true
            [[device]]
            at = "0.1"
            vendor = 0x1234
            device = 0x5447
            engine = "tiny-gpu"
            [[device]]
            at = "0.2"
            vendor = 0x1234
            device = 0x4E56
            class = 0x010802
            engine = { nvme = { blocks = 0x4000000000000000, never-ready = true, fails-after = 3 } }
            "#,
        )
        .unwrap();
        let [gpu, card, drive] = &scenario.devices[..] else { panic!("{scenario:?}") };
        let told = DriveSpec { blocks: 1 << 62, never_ready: true, fails_after: Some(3) };
        assert_eq!(drive.engine, Engine::Nvme(told));
        assert_eq!((gpu.engine, card.engine), (Engine::None, Engine::TinyGpu));
        let both = "[[device]]\nat = \"0\"\nvendor = 1\ndevice = 1\nengine = \"tiny-gpu\"\nbar = [{ bytes = 16 }]";
        assert!(matches!(Scenario::parse(both), Err(ScenarioError::Devices(TreeError::EngineBars(_)))));
        assert_eq!(Scenario::parse("behind = \"tiny-gpu\"").unwrap().behind, Behind::TinyGpu);
        assert_eq!((gpu.vendor, gpu.class, gpu.answers), (0x1002, 0x03_00_00, Answers::Retry(3)));
        assert_eq!(gpu.link, LinkSpec { speed: 3, width: 4, ..LinkSpec::default() });
        assert_eq!(gpu.bars[0], Bar { bytes: 16 << 30, is_64: true, prefetchable: true });
        assert!(matches!(
            Scenario::parse("[[device]]\nat = \"1\"\nvendor = 1\ndevice = 1"),
            Err(ScenarioError::Devices(_))
        ));
        let both = "behind = \"nothing\"\n[[device]]\nat = \"0\"\nvendor = 1\ndevice = 1";
        assert_eq!(Scenario::parse(both), Err(ScenarioError::BehindTwice));
    }

    #[test]
    fn what_is_no_scenario_is_said_by_name() {
        assert!(matches!(Scenario::parse("behnd = \"gpu\""), Err(ScenarioError::Toml(what)) if what.contains("behnd")));
        assert!(matches!(Scenario::parse("behind = { ssd = { byte = 1 } }"), Err(ScenarioError::Toml(_))));
        assert_eq!(Scenario::parse("behind = { ssd = { bytes = 1000 } }"), Err(ScenarioError::SsdSize(1000)));
        assert_eq!(Scenario::parse("serial = \"\""), Err(ScenarioError::Serial(String::new())));
        let never = "[[fault]]\nkind = \"stall\"\nnth = 0";
        assert_eq!(Scenario::parse(never), Err(ScenarioError::FaultCount(1)));
    }

    #[test]
    fn a_fault_strikes_the_nth_command_that_counts() {
        let fault = Fault { kind: FaultKind::Stall, opcode: Some(0xE3), nth: 2, times: 1 };
        let mut plan = FaultPlan::new(&[fault]);
        let struck = [0xE3, 0xE1, 0xE3, 0xE3].map(|opcode| plan.strike(opcode));
        assert_eq!(struck, [None, None, Some(FaultKind::Stall), None]);
    }

    proptest::proptest! {
        #[test]
        fn parsing_a_scenario_never_panics(text: String) {
            let _ = Scenario::parse(&text);
        }
    }
}
