//! Records of units, in doctor's reports.
//!
//! [`ReportedRecord`] is what a report carries: a record without what is private. [`load`] turns it into the record
//! from which a [`ReplayPort`](asm2464_dock::record::ReplayPort) answers.

mod redact;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use asm2464::digest::{Sha256Digest, parse_hex, to_hex};
use asm2464::firmware::{CONFIG_BLOCK_LEN, Image, Part};
use asm2464::interrupt::Interrupt;
use asm2464::{Coded as _, Kind};
use asm2464_chip::practice;
use asm2464_dock::files::file;
use asm2464_dock::record::{Opening, Record, RecordError};
use asm2464_host::bridge::{Location, UnitInfo};
use serde::{Deserialize, Serialize};

use crate::doctor::{FIRST_WITH_RECORD, REPORT_SCHEMA, ReportedUnit};
use crate::failure::Failure;
use crate::patch::Library;

/// Maximum size in bytes of a file that is read as a record.
const MAX_FILE: usize = 256 << 20;
/// Maximum size in bytes of an image file that a record may leave out.
const MAX_IMAGE: usize = 0x1_FF00;
/// Where the image begins in the flash. Source: E2's and E3's handlers in image 240417.
const IMAGE_AT: usize = Part::One.flash_address().0 as usize;

/// The failure of a file that is not a report, or is a wrong one.
fn not_a_record(path: &Path, why: impl Display) -> Failure {
    let message = format!("{} is not a doctor's report: {why}", path.display());
    Failure::new(Kind::BadInput.code("asmpatch::replay::not_a_record"), message)
}

/// The failure of a report of another version, or without a record.
fn no_record(path: &Path, why: impl Display) -> Failure {
    let message = format!("{} has no record: {why}", path.display());
    Failure::new(Kind::BadInput.code("asmpatch::replay::no_record"), message)
}

/// A record as a report carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReportedRecord {
    /// Whether the examination wrote: `doctor --write`.
    write: bool,
    /// The unit's flash, to which the events refer.
    flash: ReportedFlash,
    /// Each opening of the unit, in order.
    openings: Vec<ReportedOpening>,
}

/// The traffic that follows one opening of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ReportedOpening {
    /// The alternate setting.
    alternate: u8,
    /// Number of bulk streams on each pipe that has them.
    streams: u16,
    /// The requests and answers, one a line: docs/records.md.
    events: Vec<String>,
}

/// A unit's flash, without what is private.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ReportedFlash {
    /// Configuration blocks 0 and 1 in hexadecimal, without serial number and USB4 identity; nothing if one was not
    /// read or is not valid.
    blocks: [Option<String>; 2],
    /// The image; nothing if none was read.
    image: Option<ReportedImage>,
}

/// An image by its digest, as its base and the bytes that differ from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ReportedImage {
    /// SHA-256 of the image file.
    sha256: String,
    /// SHA-256 of the file that it was made from; its own if that is not known.
    base: String,
    /// The bytes that differ: offset in the file and bytes, in hexadecimal.
    differences: Vec<(usize, String)>,
}

/// What a report needs to be replayed.
#[derive(Debug, Deserialize)]
struct ReportFile {
    unit: ReportedUnit,
    descriptors: Option<String>,
    opened: Option<String>,
    record: Option<ReportedRecord>,
}

impl ReportedRecord {
    /// Makes a record of what was recorded, without what is private.
    pub fn of(openings: &[Opening], serial: Option<&str>, write: bool, library: &Library) -> Self {
        redact::redacted(openings, serial, write, library)
    }
}

/// Returns whether the examination that made a report's record wrote: `doctor --write`.
///
/// # Errors
/// As for [`load`].
pub fn wrote(path: &Path) -> Result<bool, Failure> {
    let (_, record) = parsed(path, &read(path)?)?;
    Ok(record.write)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    file::read(path, MAX_FILE, Interrupt::of_process()).map_err(|source| {
        let message = format!("cannot read {}", path.display());
        Failure::new(Kind::BadInput.code("asmpatch::replay::file"), message).because(source)
    })
}

/// Reads a record from a report. If the report leaves out the image, looks for `SHA256.bin` beside the report; the
/// practice images need no file.
///
/// # Errors
/// If the file can't be read or is not a report, if its record is missing or invalid, or if the image is missing.
pub fn load(path: &Path) -> Result<Record, Failure> {
    of_report(path, &read(path)?, &|sha256| beside(path, sha256))
}

/// Reads the record of a report. `image` finds an image file by its digest.
///
/// # Errors
/// As for [`load`].
pub fn of_report(path: &Path, text: &[u8], image: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<Record, Failure> {
    let (report, record) = parsed(path, text)?;
    let wrong = |error: RecordError| Failure::new(error.label(), format!("{}: {error}", path.display()));
    let unit = UnitInfo {
        location: Location::Replay(path.to_owned()),
        id: report.unit.usb_id,
        state: report.unit.state,
        manufacturer: report.unit.manufacturer,
        product: report.unit.product,
        serial: report.unit.serial,
        speed: report.unit.speed,
        driver: report.unit.driver.map(Cow::into_owned),
    };
    let descriptors = bytes_of(report.descriptors.as_deref()).map_err(|why| not_a_record(path, why))?;
    let opening = |opening: &ReportedOpening| -> Result<Opening, RecordError> {
        let events = opening.events.iter().map(|line| line.parse()).collect::<Result<_, RecordError>>()?;
        Ok(Opening { alternate: opening.alternate, streams: opening.streams, events })
    };
    let openings = record.openings.iter().map(opening).collect::<Result<_, RecordError>>().map_err(wrong)?;
    let flash = record.flash.contents(path, image)?;
    Ok(Record::checked(unit, descriptors, openings).map_err(wrong)?.with_flash(flash).with_unopened(report.opened))
}

/// Parses the parts of a report that a replay needs.
fn parsed(path: &Path, text: &[u8]) -> Result<(ReportFile, ReportedRecord), Failure> {
    let invalid = |error: serde_json::Error| not_a_record(path, error);
    let value: serde_json::Value = serde_json::from_slice(text).map_err(invalid)?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(schema) if (u64::from(FIRST_WITH_RECORD)..=u64::from(REPORT_SCHEMA)).contains(&schema) => {}
        Some(schema) => {
            let why = format!(
                "it has format {schema}, and this version of asmpatch reads the formats {FIRST_WITH_RECORD} to {REPORT_SCHEMA}"
            );
            return Err(no_record(path, why));
        }
        None => return Err(not_a_record(path, "it has no key `schema`")),
    }
    let mut report: ReportFile = serde_json::from_value(value).map_err(invalid)?;
    let Some(record) = report.record.take() else {
        return Err(no_record(path, "the examination was longer than a record may be"));
    };
    Ok((report, record))
}

/// Bytes in hexadecimal, with or without spaces.
fn bytes_of(text: Option<&str>) -> Result<Vec<u8>, String> {
    parse_hex(&text.unwrap_or_default().replace(' ', "")).map_err(|error| error.to_string())
}

/// The image with this digest: a practice image, or a file beside the record.
fn beside(record: &Path, sha256: &str) -> Option<Vec<u8>> {
    let mut practice = [practice::image(), practice::open_image()].into_iter().map(|image| image.to_file());
    let is_it = |file: &Vec<u8>| Sha256Digest::of(file).to_string() == sha256;
    practice.find(is_it).or_else(|| file::read_regular(&wanted(record, sha256), MAX_IMAGE).ok().filter(is_it))
}

/// The path at which an image is looked for.
fn wanted(record: &Path, sha256: &str) -> PathBuf {
    record.with_file_name(format!("{sha256}.bin"))
}

impl ReportedFlash {
    /// The flash from address 0 on, up to the image's end.
    fn contents(&self, path: &Path, image: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<Vec<u8>, Failure> {
        let wrong = |why: &str| not_a_record(path, why);
        let mut flash = vec![0xFF; IMAGE_AT];
        for (at, block) in self.blocks.iter().enumerate() {
            let Some(block) = block else { continue };
            let bytes = bytes_of(Some(block)).map_err(|why| wrong(&why))?;
            let bytes: [u8; CONFIG_BLOCK_LEN] =
                bytes.try_into().map_err(|_| wrong("a configuration block has 128 bytes"))?;
            flash[at * CONFIG_BLOCK_LEN..][..CONFIG_BLOCK_LEN].copy_from_slice(&bytes);
        }
        if let Some(described) = &self.image {
            // The base's digest becomes part of a path.
            let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_digest(&described.base) || !is_digest(&described.sha256) {
                return Err(wrong("an image's digest is no SHA-256"));
            }
            let mut found = image(&described.base).ok_or_else(|| {
                let wanted = wanted(path, &described.base);
                let is = if wanted.exists() { "another file" } else { "missing" };
                let (record, wanted) = (path.display(), wanted.display());
                let message = format!("{record} leaves out its unit's firmware, and {wanted} is {is}");
                Failure::new(Kind::BadInput.code("asmpatch::replay::no_image"), message)
            })?;
            for (at, bytes) in &described.differences {
                let bytes = bytes_of(Some(bytes)).map_err(|why| wrong(&why))?;
                let end = at.saturating_add(bytes.len());
                let into = found.get_mut(*at..end).ok_or_else(|| wrong("a difference is outside the image"))?;
                into.copy_from_slice(&bytes);
            }
            if Sha256Digest::of(&found).to_string() != described.sha256 {
                return Err(wrong("base and differences do not make the image of its digest"));
            }
            flash.extend(found);
        }
        Ok(flash)
    }
}

impl ReportedImage {
    /// Describes an image by the one that it was made from.
    fn of(image: &Image, base: Option<&Image>) -> Self {
        let (file, base) = (image.to_file(), base.unwrap_or(image).to_file());
        // Every patch keeps an image's length.
        let base = if base.len() == file.len() { base } else { file.clone() };
        let mut differences: Vec<(usize, Vec<u8>)> = Vec::new();
        for (at, (byte, _)) in file.iter().zip(&base).enumerate().filter(|(_, (byte, base))| byte != base) {
            match differences.last_mut() {
                Some((begins, bytes)) if *begins + bytes.len() == at => bytes.push(*byte),
                _ => differences.push((at, vec![*byte])),
            }
        }
        Self {
            sha256: Sha256Digest::of(&file).to_string(),
            base: Sha256Digest::of(&base).to_string(),
            differences: differences.into_iter().map(|(at, bytes)| (at, to_hex(&bytes, ""))).collect(),
        }
    }
}
