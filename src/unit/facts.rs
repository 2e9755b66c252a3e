//! What one look at a unit found: raw answers, without handles and without verdicts. Pure data.
//!
//! The rules in [`diagnose`](crate::doctor::diagnose()) infer from it. A [`Report`](crate::doctor::Report) holds it
//! without what is private, so a later version can infer again.

use asm2464::Coded;
use asm2464::digest::{Sha256Digest, parse_hex, to_hex};
use asm2464::firmware::{BridgeState, FirmwareVersion};
use asm2464::flash::JedecId;
use asm2464_host::bridge::open::Supply;
use asm2464_host::bridge::{Storage, UnitInfo};
use asm2464_host::pcie::{Link, Survey};
use derive_more::Display;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::host::HostState;
use crate::failure::{AnyFailure, shown_code};
use crate::flash::identity::differing;
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
}

impl<E: Coded> From<E> for Problem {
    fn from(error: E) -> Self {
        Self { code: shown_code(&error), message: error.to_string() }
    }
}

impl From<AnyFailure> for Problem {
    fn from(failure: AnyFailure) -> Self {
        let error = failure.coded();
        Self { code: shown_code(error), message: error.to_string() }
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
    /// helps. Source: random life on the chip model, docs/reliability.md.
    Dead,
    /// The SRAM DMA waits for data of an earlier transfer: 0xC450.
    Busy(u8),
}

/// Durations of requests of one kind, sent in sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Timing {
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
pub struct FlashPart {
    /// Its JEDEC ID: maker, type and capacity, in hexadecimal.
    pub jedec_id: JedecId,
    /// Its status register.
    pub status: u8,
    /// The bits in it that protect blocks (BP0 to BP2); 0 if none is protected.
    pub protection: u8,
}

/// What runs on a unit and what its flash holds, as it answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Contents {
    /// The unit's state.
    pub state: BridgeState,
    /// The version, read by E4.
    pub version: Option<FirmwareVersion>,
    /// Whether E4 takes more than 255 bytes.
    pub e4_extension: Option<bool>,
    /// SHA-256 of the image in the flash.
    pub sha256: Option<Sha256Digest>,
    /// The image in the flash; `None` if none was read, or if the chip would not start it.
    pub flashed: Option<Firmware>,
}

impl Contents {
    /// Whether the unit behaves differently from this firmware.
    pub fn contradicts(&self, firmware: &Firmware) -> bool {
        firmware.open().is_some() != (self.state == BridgeState::OpenFirmware)
            || differing(self.version, firmware.version()).is_some()
            || differing(self.e4_extension, firmware.has_e4_extension()).is_some()
    }

    /// The firmware that runs on the unit, if it can be determined.
    pub fn runs(&self) -> RunningFirmware {
        if self.state != BridgeState::Vendor {
            return RunningFirmware::Other(self.state);
        }
        match &self.flashed {
            None => RunningFirmware::Vendor(self.version),
            Some(firmware) if self.contradicts(firmware) => RunningFirmware::OtherThanFlashed(firmware.clone()),
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
    pub flash_part: Asked<FlashPart>,
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
    pub timings: Vec<Timing>,
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
