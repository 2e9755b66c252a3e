//! The report for maintainers, as JSON.
//!
//! It is built from values that can't name anything private: numbers, enumerations, error codes, and the few texts that
//! the unit itself sends. No finished message goes into it, since messages name files, programs and mount points.

use std::borrow::Cow;

use asm2464::digest::{Sha256Digest, to_hex};
use asm2464::firmware::{BridgeState, UsbId};
use asm2464_host::bridge::open::SupplyMeasurement;
use asm2464_host::bridge::{Behind, BusSpeed};
use asm2464_host::pcie::{Link, Survey};
use serde::{Deserialize, Serialize};

use super::diagnose::{Diagnosis, TopicLine, Verdict};
use super::examine::{Examination, FlashPart, PipeState, Timing};
use super::questions::Exchange;
use super::questions::Problem;
use crate::flash::identity::is_nobodys;
use crate::record::ReportedRecord;

/// Version of the report's format.
pub const SCHEMA: u32 = 6;
/// The oldest format with a record. The keys that a replay needs are the same in all formats since.
pub const FIRST_WITH_RECORD: u32 = 4;
/// Number of hex digits of a hashed serial number.
const HASH_DIGITS: usize = 16;
/// The kernel drivers that the report names.
const DRIVERS: [&str; 4] = ["uas", "usb-storage", "usbfs", "WinUSB"];
/// bLength, bDescriptorType and bDevCapabilityType of the Container ID descriptor, which holds one unit's UUID. Source:
/// USB 3.2, 9.6.2.3.
const CONTAINER_ID: [u8; 3] = [20, 0x10, 0x04];

/// The report.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "DoctorReport"))]
pub struct DoctorReport<'a> {
    /// [`SCHEMA`].
    schema: u32,
    /// The version of asmpatch.
    tool: &'static str,
    system: String,
    unit: ReportedUnit,
    descriptors: Option<String>,
    opened: Option<ErrorCode<'a>>,
    /// What it runs, in words.
    firmware: Option<String>,
    firmware_problem: Option<ErrorCode<'a>>,
    /// XDATA 0xC8FF.
    part_revision: Option<u8>,
    /// The flash behind the bridge, if the firmware gives access to it.
    flash_part: Option<FlashPart>,
    pipes: &'a PipeState,
    behind: Option<&'static str>,
    /// The link before doctor switched PCIe on, if it did.
    link_before: Option<Link>,
    link: Option<&'a Link>,
    link_problem: Option<ErrorCode<'a>>,
    /// The supply as its board measures it, if it does.
    supply: Option<SupplyMeasurement>,
    /// Whether the board's fault line is active, if the firmware tells.
    supply_fault: Option<bool>,
    tree: Option<&'a Survey>,
    tree_problem: Option<ErrorCode<'a>>,
    timings: &'a [Timing],
    bench_problem: Option<ErrorCode<'a>>,
    answers: &'a [Exchange],
    diagnosis: Verdicts,
    /// The requests and answers of the examination, which `--device replay:FILE` answers with. Nothing if they are more
    /// than a record may have.
    record: Option<ReportedRecord>,
}

/// A diagnosis without its words: they may name files, programs and folders.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Verdicts {
    /// The verdict of each line.
    lines: Vec<TopicVerdict>,
    /// The runtime that can start; `None` if none can.
    runtime: Option<&'static str>,
}

/// A line's verdict.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct TopicVerdict {
    /// The topic.
    topic: &'static str,
    /// The verdict.
    verdict: Verdict,
}

/// An error's code.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
struct ErrorCode<'a>(&'a str);

impl<'a> From<&'a Problem> for ErrorCode<'a> {
    fn from(problem: &'a Problem) -> Self {
        Self(&problem.code)
    }
}

/// The unit as a report describes it: its serial number is hashed, and only known drivers are named.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub(crate) struct ReportedUnit {
    pub(crate) usb_id: UsbId,
    pub(crate) state: BridgeState,
    pub(crate) manufacturer: String,
    pub(crate) product: String,
    pub(crate) serial: Option<String>,
    pub(crate) speed: BusSpeed,
    pub(crate) driver: Option<Cow<'static, str>>,
    pub(crate) is_virtual: bool,
}

/// Hashes a serial number, so that a report distinguishes units without naming them: the first digits of its SHA-256.
/// Returns a number that identifies no unit as it is.
pub fn hashed(serial: &str) -> String {
    if is_nobodys(serial) {
        return serial.to_owned();
    }
    let digits: String = to_hex(&Sha256Digest::of(serial.as_bytes()).0, "").chars().take(HASH_DIGITS).collect();
    format!("sha256:{digits}")
}

impl<'a> DoctorReport<'a> {
    /// Builds the report of an examination, with its record. `kernel` is the system's version, if it is known.
    pub fn new<A>(
        seen: &'a Examination,
        diagnosis: &Diagnosis<A>,
        kernel: Option<&str>,
        record: Option<ReportedRecord>,
    ) -> Self {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let system = [os, arch].into_iter().chain(kernel.map(version)).collect::<Vec<_>>().join(" ");
        let unit = &seen.unit;
        let serial = unit.serial.as_deref().filter(|serial| !is_nobodys(serial));
        // An owner may have written the serial number into other fields, too.
        let text = |text: &str| match serial {
            Some(serial) if text.contains(serial) => hashed(text),
            _ => text.to_owned(),
        };
        let verdict = |line: &TopicLine<A>| TopicVerdict { topic: line.topic, verdict: line.verdict };
        let (firmware, firmware_problem) = halves(seen.runs.as_ref());
        let (link, link_problem) = halves(seen.link.as_ref());
        let (tree, tree_problem) = halves(seen.tree.as_ref());
        let supply = seen.supply.as_ref().and_then(|supply| supply.as_ref().ok()?.as_ref());
        Self {
            schema: SCHEMA,
            tool: env!("CARGO_PKG_VERSION"),
            system,
            unit: ReportedUnit {
                usb_id: unit.id,
                state: unit.state,
                is_virtual: unit.is_virtual(),
                manufacturer: text(&unit.manufacturer),
                product: text(&unit.product),
                serial: unit.serial.as_deref().map(hashed),
                speed: unit.speed,
                driver: unit.driver.as_deref().map(driver).map(Cow::Borrowed),
            },
            descriptors: seen.descriptors.clone().map(|bytes| to_hex(&without_container_id(bytes), " ")),
            opened: seen.opened.as_ref().err().map(ErrorCode::from),
            // Only known patches are named, and an image's product string is the unit's own.
            firmware: firmware.map(|firmware| text(&firmware.to_string())),
            firmware_problem,
            part_revision: seen.part_revision(),
            flash_part: seen.flash_part(),
            pipes: &seen.pipes,
            behind: seen.behind.as_ref().map(behind),
            link_before: seen.link_before,
            link,
            link_problem,
            supply: supply.and_then(|supply| supply.measured),
            supply_fault: supply.map(|supply| supply.has_fault),
            tree,
            tree_problem,
            timings: &seen.timings,
            bench_problem: seen.bench_failure.as_ref().map(ErrorCode::from),
            answers: &seen.exchanges,
            diagnosis: Verdicts { lines: diagnosis.lines.iter().map(verdict).collect(), runtime: diagnosis.runtime },
            record,
        }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        // It can't fail, because all keys are strings.
        let value = serde_json::to_value(self).unwrap_or_default();
        format!("{value:#}\n")
    }
}

fn halves<'a, T>(found: Option<&'a Result<T, Problem>>) -> (Option<&'a T>, Option<ErrorCode<'a>>) {
    match found {
        Some(Ok(found)) => (Some(found), None),
        Some(Err(problem)) => (None, Some(problem.into())),
        None => (None, None),
    }
}

/// The numbers at the start of a kernel's version. Whoever builds a kernel may append any name, so the rest is dropped.
fn version(kernel: &str) -> &str {
    let end = kernel.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(kernel.len());
    &kernel[..end]
}

fn driver(name: &str) -> &'static str {
    DRIVERS.into_iter().find(|known| *known == name).unwrap_or("another")
}

/// What is behind the bridge, without any text from a drive.
fn behind(behind: &Behind) -> &'static str {
    match behind {
        Behind::NoMedium => "no SSD",
        Behind::Ssd(_) => "SSD",
        _ if behind.is_initialised() => "can't tell: a GPU runtime has initialised the unit",
        Behind::CannotTell(_) => "can't tell",
    }
}

/// Replaces the UUID in a Container ID descriptor, which identifies a unit, by zeros.
fn without_container_id(mut descriptors: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let Some(len) = descriptors.get(at).copied().filter(|len| *len > 0) {
        let end = (at + usize::from(len)).min(descriptors.len());
        let descriptor = &mut descriptors[at..end];
        if descriptor.starts_with(&CONTAINER_ID) {
            descriptor.iter_mut().skip(4).for_each(|byte| *byte = 0);
        }
        at = end;
    }
    descriptors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_named_by_its_numbers_alone() {
        assert_eq!(version("6.1.0-21-janes-laptop"), "6.1.0");
        assert_eq!(version("6.8.0\n"), "6.8.0");
        assert_eq!(version("jane"), "");
    }

    #[test]
    fn the_container_id_is_not_in_the_report_whatever_surrounds_it() {
        let mut descriptors = vec![9, 0x02, 1, 2, 3, 4, 5, 6, 7, 20, 0x10, 0x04, 0];
        descriptors.extend([0xAB; 16]);
        descriptors.extend([3, 0x10, 0x0A]);
        let cleaned = without_container_id(descriptors);
        assert!(!cleaned.contains(&0xAB));
        assert_eq!(
            (cleaned.len(), &cleaned[..9], &cleaned[29..]),
            (32, &[9, 2, 1, 2, 3, 4, 5, 6, 7][..], &[3, 16, 10][..])
        );
        // Descriptors that are cut off, and one without a length.
        assert_eq!(without_container_id(vec![20, 0x10, 0x04, 0, 0xAB]), [20, 0x10, 0x04, 0, 0]);
        assert_eq!(without_container_id(vec![20, 0x10, 0x04]), [20, 0x10, 0x04]);
        assert_eq!(without_container_id(vec![0, 1]), [0, 1]);
    }

    proptest::proptest! {
        #[test]
        fn any_descriptors_keep_their_length(descriptors: Vec<u8>) {
            proptest::prop_assert_eq!(without_container_id(descriptors.clone()).len(), descriptors.len());
        }
    }
}
