//! Result of a soak: the JSON of a soak, and the source of its table and chart. docs/bench.md describes it.

use asm2464::Bdf;
use asm2464_host::bridge::Location;
use asm2464_host::usb::sysfs::Sysfs;
use derive_more::Display;
use serde::Serialize;

use crate::bench::path::Path;
use crate::bench::report::{BenchUnit, Outcome};

/// Version of the JSON's structure. It increases when a key changes its meaning or disappears.
pub const SOAK_SCHEMA: u32 = 4;

/// Result of a soak.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SoakReport {
    /// The version of asmpatch.
    pub tool: String,
    /// The unit.
    pub unit: BenchUnit,
    /// The time that was asked for, in seconds.
    pub asked_s: f64,
    /// The time that it took, in seconds. Recoveries count.
    pub elapsed_s: f64,
    /// Why it ended.
    pub ended: Ended,
    /// Bytes that commands without an error moved, in both directions.
    pub bytes: u64,
    /// How many of them came back from the unit and were compared with what was sent.
    pub compared_bytes: u64,
    /// Throughput over the whole time, in MB/s.
    pub mb_per_s: f64,
    /// The paths of the mixture.
    pub paths: Vec<SoakPath>,
    /// Paths whose check failed whenever the unit was prepared, so that the soak left them out.
    pub left_out: Vec<LeftOut>,
    /// Number of errors.
    pub error_count: u64,
    /// Errors an hour.
    pub errors_per_hour: f64,
    /// Errors by kind. Kinds without an error are absent.
    pub errors: Vec<ErrorCount>,
    /// Throughput and errors over time, in at most 200 slices. All but the last are equally long.
    pub over_time: Vec<Slice>,
    /// Error registers of each PCIe function that has them.
    pub pcie: Vec<PcieErrors>,
    /// Why the error registers could not be read before the soak; null if they were.
    pub pcie_unread: Option<String>,
    /// Link errors that the host controller has counted; null if the kernel doesn't show them.
    pub usb_link: Option<UsbLink>,
}

/// Link errors that the host controller has counted since it was switched on, modulo 2^16. Information, not a verdict:
/// openpilot's pull request 38483.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct UsbLink {
    /// Before the soak.
    pub before: u16,
    /// After it.
    pub after: u16,
}

impl UsbLink {
    /// Reads the count of a unit's controller. `None` if the kernel doesn't show it, and for a unit in software.
    pub fn count(location: &Location) -> Option<u16> {
        match location {
            Location::Port(port) => Sysfs::system().link_errors(port),
            Location::Virtual(_) => None,
        }
    }

    /// Errors during the soak, modulo 2^16.
    pub const fn new_errors(self) -> u16 {
        self.after.wrapping_sub(self.before)
    }
}

impl SoakReport {
    /// Number of errors of a kind.
    pub fn count(&self, kind: ErrorKind) -> u64 {
        self.errors.iter().find(|error| error.kind == kind).map_or(0, |error| error.count)
    }
}

/// Reasons a soak ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The time was over.
    #[display("the whole time")]
    Completed,
    /// Ctrl-C.
    #[display("until Ctrl-C")]
    Stopped,
    /// The unit left the bus, or stopped answering, and did not come back.
    #[default]
    #[display("until the unit was gone for good")]
    Vanished,
}

/// A path of the mixture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SoakPath {
    /// The path.
    pub path: Path,
    /// Transfers without an error.
    pub transfers: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// How many of these bytes were compared.
    pub compared_bytes: u64,
    /// Errors.
    pub errors: u64,
}

/// A path that the soak left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// The path.
    pub path: Path,
    /// The result of its check.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// Bytes came back different from what was sent.
    #[display("wrong bytes")]
    Differs,
    /// Fewer bytes moved than requested, with good status.
    #[display("too few bytes")]
    Short,
    /// No answer within the time limit.
    #[display("no answer")]
    NoAnswer,
    /// The unit refused a command that it carries out otherwise.
    #[display("refused")]
    Refused,
    /// The unit left the bus.
    #[display("left the bus")]
    Gone,
    /// Any other error of the wire or its protocol: stalls, wrong tags, phase errors.
    #[display("error on the wire")]
    Wire,
}

/// The errors of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ErrorCount {
    /// The kind.
    pub kind: ErrorKind,
    /// Number of errors.
    pub count: u64,
    /// Errors of this kind an hour.
    pub per_hour: f64,
    /// Time of the first, in seconds since the soak began.
    pub first_s: f64,
    /// Transfers of its path that had ended without an error before the first.
    pub first_after: u64,
    /// The first one's message.
    pub first: String,
}

/// A slice of the soak's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Slice {
    /// Bytes that it moved. JSON has the throughput only.
    #[serde(skip)]
    pub(super) bytes: u64,
    /// Its beginning, in seconds since the soak began.
    pub at_s: f64,
    /// Its throughput in MB/s.
    pub mb_per_s: f64,
    /// Errors in it.
    pub errors: u64,
}

/// The error registers of a PCIe function, before and after. A bit that was set before stays set: nothing is cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PcieErrors {
    /// Its bus, device and function number.
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub at: Bdf,
    /// Vendor ID and device ID.
    pub id: String,
    /// The registers before the soak.
    pub before: ErrorRegisters,
    /// The registers after it; `None` if they could not be read any more.
    pub after: Option<ErrorRegisters>,
}

/// Error registers. Each is `None` if the function lacks it. Source: PCI Express base specification 4.0, 7.5.3.5,
/// 7.8.4.2, 7.8.4.5 and 7.7.3.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ErrorRegisters {
    /// Device Status: bit 0 correctable, 1 non-fatal, 2 fatal error, 3 unsupported request.
    pub device_status: Option<u16>,
    /// Uncorrectable Error Status of Advanced Error Reporting.
    pub uncorrectable: Option<u32>,
    /// Correctable Error Status of Advanced Error Reporting.
    pub correctable: Option<u32>,
    /// Lane Error Status: a bit for each lane.
    pub lanes: Option<u32>,
}
