//! The report for maintainers: the facts of an examination without what is private, as JSON.
//!
//! Any later version of asmpatch reads it and diagnoses it with its own rules: keys that it doesn't know are ignored,
//! and facts that are missing are not known.

use std::path::PathBuf;

use asm2464::digest::{Sha256Digest, to_hex};
use asm2464::{Failure, Kind};
use asm2464_host::bridge::Location;
use asm2464_host::usb::sysfs::Process;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::flash::identity::is_nobodys;
use crate::unit::facts::{Asked, Facts, Problem};

/// Version of the report's format.
pub const SCHEMA: u32 = 7;
/// The oldest format that holds facts.
const FIRST_WITH_FACTS: u64 = 7;
/// Number of hex digits of a hashed serial number.
const HASH_DIGITS: usize = 16;
/// What stands in place of a name that the report leaves out.
const LEFT_OUT: &str = "left out";
/// The kernel drivers that the report names.
const DRIVERS: [&str; 4] = ["uas", "usb-storage", "usbfs", "WinUSB"];
/// Codes without the program's name, or how they begin, of errors whose messages have commands, addresses and bytes
/// alone. All others may name files, programs and folders.
const NAMELESS: [&str; 16] = [
    "bridge::",
    "control::",
    "pcie::link_down",
    "pcie::not_ready",
    "pcie::request",
    "pcie::stopped",
    "registers::",
    "sense::",
    "usb::bad_status",
    "usb::disconnected",
    "usb::io",
    "usb::phase",
    "usb::protocol",
    "usb::stall",
    "usb::tag",
    "usb::timeout",
];
/// bLength, bDescriptorType and bDevCapabilityType of the Container ID descriptor, which holds one unit's UUID. Source:
/// USB 3.2, 9.6.2.3.
const CONTAINER_ID: [u8; 3] = [20, 0x10, 0x04];

/// The report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "DoctorReport"))]
pub struct Report {
    /// [`SCHEMA`].
    schema: u32,
    /// The version of asmpatch that wrote it.
    pub tool: String,
    /// The operating system, its architecture and its kernel's version.
    pub system: String,
    /// What was found.
    pub facts: Facts,
}

impl Report {
    /// Builds the report of an examination. `kernel` is the system's version, if it is known.
    pub fn new(facts: &Facts, kernel: Option<&str>) -> Self {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let system = [os, arch].into_iter().chain(kernel.map(version)).collect::<Vec<_>>().join(" ");
        Self { schema: SCHEMA, tool: env!("CARGO_PKG_VERSION").to_owned(), system, facts: redacted(facts.clone()) }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        // It can't fail, because all keys are strings.
        let value = serde_json::to_value(self).unwrap_or_default();
        format!("{value:#}\n")
    }

    /// Parses a report that this version or any other wrote. `name` is the file's, for the error.
    ///
    /// # Errors
    /// If it is none, or an old one that holds verdicts in place of facts.
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let none = |why: &dyn std::fmt::Display| {
            let message = format!("{name} is not a report of `asmpatch doctor`: {why}");
            Failure::new(Kind::BadInput.code("asmpatch::doctor::not_a_report"), message)
        };
        let value: Value = serde_json::from_str(text).map_err(|error| none(&error))?;
        let Some(schema) = value.get("schema").and_then(Value::as_u64) else {
            return Err(none(&"it has no key `schema`"));
        };
        if schema < FIRST_WITH_FACTS && value.get("unit").is_some() {
            let message = format!("{name} is a report of format {schema}, which holds verdicts in place of facts");
            return Err(Failure::new(Kind::BadInput.code("asmpatch::doctor::old_report"), message));
        }
        let mut report: Self = serde_json::from_value(value).map_err(|error| none(&error))?;
        // Versions that knew no link above 10 Gbit/s wrote "unknown" for one.
        if let Some(descriptors) = &report.facts.descriptors {
            report.facts.unit.speed = report.facts.unit.speed.or_proved_by(descriptors);
        }
        Ok(report)
    }
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

/// Takes out of the facts what is private: serial number, folders, programs, a drive's name, messages that may name any.
fn redacted(mut facts: Facts) -> Facts {
    let serial = facts.unit.serial.clone().filter(|serial| !is_nobodys(serial));
    // An owner may have written the serial number into other texts, too.
    let text = |text: &mut String| {
        if serial.as_ref().is_some_and(|serial| text.contains(serial.as_str())) {
            *text = hashed(text);
        }
    };
    let unit = &mut facts.unit;
    if let Location::Virtual(folder) = &mut unit.location {
        *folder = PathBuf::from("unit");
    }
    text(&mut unit.manufacturer);
    text(&mut unit.product);
    unit.serial = unit.serial.as_deref().map(hashed);
    if let Some(driver) = unit.driver.as_mut().filter(|driver| !DRIVERS.contains(&driver.as_str())) {
        *driver = "another".to_owned();
    }
    for (file, holder) in &mut facts.host.locks {
        *file = file.file_name().map(PathBuf::from).unwrap_or_default();
        *holder = Process { pid: 0, command: LEFT_OUT.to_owned() };
    }
    for disk in &mut facts.host.disks {
        // A name of the kernel's, as in `sda`, says nothing about an owner.
        let letters = disk.name.strip_prefix("sd").unwrap_or_default();
        if letters.is_empty() || !letters.bytes().all(|letter| letter.is_ascii_lowercase()) {
            disk.name = "another".to_owned();
        }
    }
    facts.descriptors = facts.descriptors.map(without_container_id);
    if let Some(storage) = &mut facts.storage {
        let models = storage.bays.iter_mut().map(|bay| &mut bay.model).chain([&mut storage.model]);
        models.flatten().for_each(|model| *model = format!("name {LEFT_OUT}"));
    }
    if let Asked::Is(contents) = &mut facts.contents
        && let Some(firmware) = &mut contents.flashed
    {
        firmware.change_product(text);
    }
    let Facts { opened, pipes, contents, part_revision, flash_part, supply, link, tree, bench_failure, .. } =
        &mut facts;
    let problems = [
        problem_of(opened),
        problem_of(pipes),
        problem_of(contents),
        problem_of(part_revision),
        problem_of(flash_part),
        problem_of(supply),
        problem_of(link),
        problem_of(tree),
        bench_failure.as_mut(),
    ];
    for problem in problems.into_iter().flatten() {
        let code = problem.code.split_once("::").map_or("", |(_, code)| code);
        if !NAMELESS.iter().any(|nameless| code.starts_with(nameless)) {
            problem.message = format!("{}, whose message is {LEFT_OUT}", problem.code);
        }
    }
    facts
}

fn problem_of<T>(asked: &mut Asked<T>) -> Option<&mut Problem> {
    match asked {
        Asked::Failed(problem) => Some(problem),
        Asked::NotAsked | Asked::Is(_) => None,
    }
}

/// The numbers at the start of a kernel's version. Whoever builds a kernel may append any name, so the rest is dropped.
fn version(kernel: &str) -> &str {
    let end = kernel.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(kernel.len());
    &kernel[..end]
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
    use asm2464::firmware::BridgeState;
    use asm2464_chip::practice;
    use asm2464_host::bridge::UnitInfo;

    use super::*;
    use crate::image::{Rewritable, samples};
    use crate::tests::unit;
    use crate::unit::facts::{Behaviour, Contents, HostState};

    /// The report on a unit with open firmware whose product string has its serial number.
    fn report() -> Report {
        let mut firmware = samples::proof(&practice::open_image(), Rewritable::Yes).known.firmware.clone();
        firmware.change_product(|product| *product = "custom LAB-07".to_owned());
        let mut facts = Facts::unasked(unit("1-2", "LAB-07"), HostState::default());
        facts.descriptors = Some([&CONTAINER_ID[..], &[0], &[0xAB; 16]].concat());
        facts.contents = Asked::Is(Contents {
            runs: Behaviour::only(BridgeState::OpenFirmware),
            sha256: None,
            flashed: Some(firmware),
        });
        Report::new(&facts, None)
    }

    #[test]
    fn a_report_has_no_container_id() {
        assert_eq!(report().facts.descriptors, Some([&CONTAINER_ID[..], &[0; 17]].concat()));
    }

    #[test]
    fn a_report_hashes_a_product_string_of_open_firmware_that_has_the_serial_number() {
        let json = report().to_json();
        assert!(json.contains(&hashed("custom LAB-07")) && !json.contains("LAB-07"), "{json}");
    }

    #[test]
    fn a_report_hashes_each_string_of_the_unit_that_has_the_serial_number() {
        let with = |change: &dyn Fn(&mut UnitInfo)| {
            let mut facts = Facts::unasked(unit("1-2", "LAB-07"), HostState::default());
            change(&mut facts.unit);
            Report::new(&facts, None).to_json()
        };
        let manufacturer = with(&|unit| unit.manufacturer = "Lab, LAB-07".to_owned());
        assert!(manufacturer.contains(&hashed("Lab, LAB-07")) && !manufacturer.contains("LAB-07"), "{manufacturer}");
        let product = with(&|unit| unit.product = "Dock LAB-07".to_owned());
        assert!(product.contains(&hashed("Dock LAB-07")) && !product.contains("LAB-07"), "{product}");
    }

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
