//! What one look at a unit found: raw answers, without handles and without verdicts. Also the host's side of it: whether
//! the system may suspend the unit, the CPUs' governors, and who holds a runtime's lock.
//!
//! The rules in [`diagnose`](crate::doctor::diagnose()) infer from it. A [`Report`](crate::doctor::Report) holds it
//! without what is private, so a later version can infer again.

use std::path::PathBuf;
use std::{env, fmt};

use asm2464::digest::{Sha256Digest, parse_hex, to_hex};
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, FirmwareVersion};
use asm2464::flash::JedecId;
use asm2464::{AnyFailure, Named};
use asm2464_host::bridge::open::Supply;
use asm2464_host::bridge::{Bridge, CommandError, Location, PortPath, Storage, UnitInfo};
use asm2464_host::pcie::{Link, Survey};
use asm2464_host::usb::sysfs::{BayDisk, Process, Sysfs};
use derive_more::Display;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::failure::shown_code;
use crate::image::Firmware;

/// The answer to a question that need not have been asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Asked<T> {
    /// It was not asked.
    #[default]
    NotAsked,
    /// There was no answer.
    Failed(Problem),
    /// The answer.
    Is(T),
}

impl<T> Asked<T> {
    /// The answer, if there is one.
    pub const fn answer(&self) -> Option<&T> {
        match self {
            Self::Is(answer) => Some(answer),
            Self::NotAsked | Self::Failed(_) => None,
        }
    }

    /// Whether it was not asked.
    pub const fn is_not_asked(&self) -> bool {
        matches!(self, Self::NotAsked)
    }
}

impl<T, E: Into<Problem>> From<Result<T, E>> for Asked<T> {
    fn from(asked: Result<T, E>) -> Self {
        match asked {
            Ok(answer) => Self::Is(answer),
            Err(error) => Self::Failed(error.into()),
        }
    }
}

/// An error's code and message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Problem {
    /// The error's code, as asmpatch shows it.
    pub code: String,
    /// The error's message: what happened and where. In a report only if it can't name files, programs or folders.
    pub message: String,
    /// What the error names. Never in a report: mounts and disks are the owner's names.
    #[serde(skip)]
    pub named: Vec<Named>,
}

impl<E: Into<AnyFailure>> From<E> for Problem {
    fn from(error: E) -> Self {
        let failure: AnyFailure = error.into();
        let error = failure.coded();
        Self { code: shown_code(error), message: failure.to_string(), named: error.named() }
    }
}

/// State of the bulk pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PipeState {
    /// Data moves.
    Move,
    /// Nothing moves, although the unit answers control requests. Only a power cycle helps. Source: owners' reports.
    Hang,
    /// Nothing moves, and the unit answers no control request either, even after a port reset. Only a power cycle
    /// helps. Source: random life on the chip model, docs/lab/reliability.md.
    Dead,
    /// The SRAM DMA waits for data of an earlier transfer: 0xC450.
    Busy(u8),
}

/// Durations of requests of one kind, sent in sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Timing"))]
pub struct RequestTimes {
    /// The request, in words.
    pub what: String,
    /// Number of requests.
    pub count: usize,
    /// The median in microseconds.
    pub median_us: u64,
    /// The longest in microseconds.
    pub longest_us: u64,
}

/// The flash, by its own answers to commands 9F and 05.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "FlashPart"))]
pub struct FlashChip {
    /// Its JEDEC ID: maker, type and capacity, in hexadecimal.
    pub jedec_id: JedecId,
    /// Its status register.
    pub status: u8,
    /// The bits in it that protect blocks (BP0 to BP2); 0 if none is protected.
    pub protection: u8,
}

/// Returns both values if both are known and differ.
pub(crate) fn differing<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<(T, T)> {
    one.zip(other).filter(|(one, other)| one != other)
}

/// What runs on a unit, as it shows and answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Behaviour {
    /// The unit's state.
    pub state: BridgeState,
    /// Open firmware's product string, which contains its build.
    #[serde(skip)]
    pub build: Option<String>,
    /// The version, read by E4.
    pub version: Option<FirmwareVersion>,
    /// Whether E4 takes more than 255 bytes.
    pub e4_extension: Option<bool>,
}

impl Behaviour {
    /// Only the state is known.
    pub const fn only(state: BridgeState) -> Self {
        Self { state, build: None, version: None, e4_extension: None }
    }

    /// Behaviour of an attached unit; `bridge` carries the vendor's commands, which open firmware takes none of.
    ///
    /// # Errors
    /// If the unit reports no version, or is gone.
    pub fn of_unit(bridge: Option<&mut Bridge>, attached: &UnitInfo) -> Result<Self, CommandError> {
        let only = Self::only(attached.state);
        let Some(bridge) = bridge else { return Ok(Self { build: Some(attached.product.clone()), ..only }) };
        let version = Some(bridge.firmware_version()?);
        let timeout = bridge.timeout();
        let e4_extension = match bridge.has_e4_extension(timeout) {
            Err(error) if error.is_gone() => return Err(error.into()),
            answer => answer.ok().flatten(),
        };
        Ok(Self { version, e4_extension, ..only })
    }

    /// Whether this firmware would behave differently.
    pub fn contradicts(&self, firmware: &Firmware) -> bool {
        firmware.open().is_some() != (self.state == BridgeState::OpenFirmware)
            || differing(self.version, firmware.version()).is_some()
            || differing(self.e4_extension, firmware.has_e4_extension()).is_some()
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(build) = &self.build {
            return write!(f, "open firmware {build:?}");
        }
        match self.version {
            Some(version) => write!(f, "version {version}")?,
            None => f.write_str("no version")?,
        }
        match self.e4_extension {
            Some(true) => f.write_str(", E4 gives 256 bytes"),
            Some(false) => f.write_str(", E4 gives at most 255 bytes"),
            None => f.write_str(", E4 of 256 bytes has no answer"),
        }
    }
}

/// What runs on a unit and what its flash holds, as it answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Contents {
    /// What runs.
    #[serde(flatten)]
    pub runs: Behaviour,
    /// SHA-256 of the image in the flash.
    pub sha256: Option<Sha256Digest>,
    /// The image in the flash; `None` if none was read, or if the chip would not start it.
    pub flashed: Option<Firmware>,
}

impl Contents {
    /// The firmware that runs on the unit, if it can be determined.
    pub fn running_firmware(&self) -> RunningFirmware {
        if self.runs.state != BridgeState::Vendor {
            return RunningFirmware::Other(self.runs.state);
        }
        match &self.flashed {
            None => RunningFirmware::Vendor(self.runs.version),
            Some(firmware) if self.runs.contradicts(firmware) => RunningFirmware::OtherThanFlashed(firmware.clone()),
            Some(firmware) => RunningFirmware::Flashed(firmware.clone()),
        }
    }
}

/// The firmware that runs on a unit, by its interface, its flash and its answers.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum RunningFirmware {
    /// The firmware in the flash; nothing observed contradicts it.
    Flashed(Firmware),
    /// Another firmware than this one in the flash: the flash was written since the unit started.
    #[display("vendor firmware other than the one in its flash ({_0})")]
    OtherThanFlashed(Firmware),
    /// Vendor firmware of which at most the version is known.
    #[display("vendor firmware{}", _0.map(|version| format!(" {version}")).unwrap_or_default())]
    Vendor(Option<FirmwareVersion>),
    /// No vendor firmware.
    Other(BridgeState),
}

impl RunningFirmware {
    /// Whether it answers writes that no device behind the bridge completes, as far as is known.
    pub fn answers_writes(&self) -> bool {
        match self {
            Self::Flashed(firmware) | Self::OtherThanFlashed(firmware) => firmware.answers_writes(),
            Self::Vendor(_) | Self::Other(_) => false,
        }
    }
}

/// A question with the answers of the unit and of the chip model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Exchange {
    /// The question, in words.
    pub question: String,
    /// The unit's answer.
    pub unit: String,
    /// Duration in microseconds.
    pub took_us: u64,
    /// The answer of the same firmware on the chip model; `None` if the firmware is unknown and can't be booted.
    pub model: Option<String>,
}

/// Everything that a diagnosis takes. What was not reached is [`Asked::NotAsked`] or empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Facts {
    /// The unit's identity, and its link to the host.
    pub unit: UnitInfo,
    /// The host's settings and locks that concern it.
    #[serde(default)]
    pub host: HostState,
    /// Its raw descriptors in hexadecimal: device, configuration, and BOS if the system provides it.
    #[serde(default, serialize_with = "as_hex", deserialize_with = "of_hex")]
    #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
    pub descriptors: Option<Vec<u8>>,
    /// Whether all that writes was left out.
    #[serde(default)]
    pub is_read_only: bool,
    /// Whether the unit could be opened and answers.
    #[serde(default)]
    pub opened: Asked<()>,
    /// State of its bulk pipes.
    #[serde(default)]
    pub pipes: Asked<PipeState>,
    /// What runs, and the image in its flash. Open firmware is asked for it only with a comparison, because that is slow.
    #[serde(default)]
    pub contents: Asked<Contents>,
    /// What the vendor's firmware answers about an SSD.
    #[serde(default)]
    pub storage: Option<Storage>,
    /// The part's revision: XDATA 0xC8FF.
    #[serde(default)]
    pub part_revision: Asked<u8>,
    /// The flash behind it. Only open firmware gives access to it.
    #[serde(default)]
    pub flash_part: Asked<FlashChip>,
    /// Its supply; `None` if the build doesn't know the request.
    #[serde(default)]
    pub supply: Asked<Option<Supply>>,
    /// State of the PCIe link before PCIe was switched on (F3); `None` if it was not.
    #[serde(default)]
    pub link_before: Option<Link>,
    /// State of the PCIe link.
    #[serde(default)]
    pub link: Asked<Link>,
    /// The PCIe tree behind it.
    #[serde(default)]
    pub tree: Asked<Survey>,
    /// Results of the short bench.
    #[serde(default)]
    pub timings: Vec<RequestTimes>,
    /// Whether a written byte read back differently.
    #[serde(default)]
    pub is_corrupt: bool,
    /// The error of the short bench.
    #[serde(default)]
    pub bench_failure: Option<Problem>,
    /// Questions that the chip model was asked, too, with both answers.
    #[serde(default)]
    pub exchanges: Vec<Exchange>,
}

impl Facts {
    /// The facts of a unit that was not asked yet.
    pub const fn unasked(unit: UnitInfo, host: HostState) -> Self {
        Self {
            unit,
            host,
            descriptors: None,
            is_read_only: false,
            opened: Asked::Is(()),
            pipes: Asked::NotAsked,
            contents: Asked::NotAsked,
            storage: None,
            part_revision: Asked::NotAsked,
            flash_part: Asked::NotAsked,
            supply: Asked::NotAsked,
            link_before: None,
            link: Asked::NotAsked,
            tree: Asked::NotAsked,
            timings: Vec::new(),
            is_corrupt: false,
            bench_failure: None,
            exchanges: Vec::new(),
        }
    }
}

fn as_hex<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    bytes.as_ref().map(|bytes| to_hex(bytes, " ")).serialize(serializer)
}

fn of_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    parse_hex(&text.replace(' ', "")).map(Some).map_err(serde::de::Error::custom)
}

/// Prefixes of the runtimes' lock files: for AMD's GPUs, and in a branch of tinygrad for NVIDIA's. Source:
/// docs/clients.md, "Locks".
const RUNTIMES: [&str; 2] = ["am_usb", "nv_usb"];

/// The host's settings and locks that concern a unit. Empty if the system reports none, and for a unit in software.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HostState {
    /// The devices that the kernel may suspend, among the unit and the hubs above it: their names, from the unit up.
    /// `None` if the system doesn't report it.
    pub may_sleep: Option<Vec<String>>,
    /// The CPUs' frequency governors, each once.
    pub governors: Vec<String>,
    /// The runtimes' lock files for this unit that a process holds, and that process.
    pub locks: Vec<(PathBuf, Process)>,
    /// The system's disks that are the unit's logical units.
    pub disks: Vec<BayDisk>,
    /// Whether the host has USB4 or Thunderbolt.
    pub has_usb4: bool,
}

impl HostState {
    /// Reads it for a unit. Call it before the unit is opened: the system keeps an open unit awake.
    pub fn of(location: &Location) -> Self {
        match location {
            Location::Port(port) => Self::at(&Sysfs::system(), port, &[PathBuf::from("/tmp"), env::temp_dir()]),
            Location::Virtual(_) => Self::default(),
        }
    }

    /// Who holds a GPU runtime's lock on the unit, in words; `None` if nobody does.
    pub fn lock_holder(&self) -> Option<String> {
        let (file, holder) = self.locks.first()?;
        Some(format!("{holder} holds {}, a GPU runtime's lock on the unit", file.shown()))
    }

    /// Reads it from this sysfs, with the runtimes' lock files in these folders.
    pub fn at(sysfs: &Sysfs, port: &PortPath, folders: &[PathBuf]) -> Self {
        let mut locks = Vec::new();
        if let Some((bus, address)) = sysfs.address(port) {
            for folder in folders {
                for runtime in RUNTIMES {
                    let file = folder.join(format!("{runtime}:{bus}-{address}.lock"));
                    for holder in sysfs.lock_holders_at(&file) {
                        locks.push((file.clone(), holder));
                    }
                }
            }
        }
        // Two folders may be the same.
        locks.sort();
        locks.dedup();
        Self {
            may_sleep: sysfs.may_sleep(port),
            governors: sysfs.governors(),
            locks,
            disks: sysfs.bays(port),
            has_usb4: sysfs.has_usb4(),
        }
    }

    /// Whether the kernel may suspend the unit at this port.
    pub fn may_suspend(&self, location: &Location) -> bool {
        let name = location.to_string();
        self.may_sleep.as_ref().is_some_and(|names| names.contains(&name))
    }
}

/// The governor that makes round trips slow. Source: an owner's figures (jacobrosenthal/tinygrad, `extra/usbgpu`,
/// September 2026).
pub const SLOW_GOVERNOR: &str = "powersave";

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// A unit at 3-1.2, address 7, in a system like the kernel's.
    fn tree(control: &str) -> (tempfile::TempDir, Sysfs) {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/bus/usb/devices/3-1.2/power/control", control);
        put("sys/bus/usb/devices/3-1.2/busnum", "3\n");
        put("sys/bus/usb/devices/3-1.2/devnum", "7\n");
        put("sys/bus/usb/devices/usb3/power/control", "auto\n");
        put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        put("proc/41/comm", "python3\n");
        put("tmp/am_usb:3-7.lock", "");
        put("tmp/am_usb:3-8.lock", "");
        let inode = |name: &str| fs::metadata(root.path().join("tmp").join(name)).unwrap().ino();
        let line = |name: &str, pid: u32| format!("1: FLOCK  ADVISORY  WRITE {pid} 00:13:{} 0 EOF\n", inode(name));
        put("proc/locks", &[line("am_usb:3-7.lock", 41), line("am_usb:3-8.lock", 42)].concat());
        let sysfs = Sysfs::at(root.path().join("sys"), root.path().join("proc"), root.path().join("dev"));
        (root, sysfs)
    }

    #[test]
    fn a_units_suspend_its_runtimes_lock_and_the_governor_are_read() {
        let port: PortPath = "3-1.2".parse().unwrap();
        for (control, sleepers, may_suspend) in
            [("auto\n", &["3-1.2", "usb3"][..], true), ("on\n", &["usb3"][..], false)]
        {
            let (root, sysfs) = tree(control);
            let folder = root.path().join("tmp");
            let host = HostState::at(&sysfs, &port, &[folder.clone(), folder.clone()]);
            assert_eq!(host.may_sleep.as_deref().unwrap(), sleepers);
            assert_eq!(host.may_suspend(&Location::Port(port.clone())), may_suspend);
            assert_eq!(host.governors, [SLOW_GOVERNOR]);
            let holder = Process { pid: 41, command: "python3".to_owned() };
            assert_eq!(host.locks, [(folder.join("am_usb:3-7.lock"), holder)]);
        }
    }

    #[test]
    fn nothing_is_read_for_a_unit_in_software_and_nothing_found_where_the_system_tells_nothing() {
        assert_eq!(HostState::of(&Location::Virtual("u".into())), HostState::default());
        let nowhere = Sysfs::at("/nowhere", "/nowhere", "/nowhere");
        assert_eq!(HostState::at(&nowhere, &"3-1".parse().unwrap(), &["/nowhere".into()]), HostState::default());
    }
}
