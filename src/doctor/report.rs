//! The report for maintainers, as JSON. Serial numbers are hashed; nothing else in it is private.

use serde::Serialize;
use serde_json::Value;

use super::examine::{Examination, PipeState, Problem, Timing};
use super::experiments::Finding;
use super::questions::Exchange;
use crate::bridge::Speed;
use crate::digest::{Sha256Digest, to_hex};
use crate::firmware::BridgeState;
use crate::flash::identity::is_nobodys;
use crate::pcie::{Link, Survey};

/// Version of the report's format.
pub const SCHEMA: u32 = 2;
/// Digits of a hashed serial number.
const HASH_DIGITS: usize = 16;
/// Minimum length of a serial number to replace. Shorter ones are part of too many words.
const SHORTEST_SERIAL: usize = 4;

/// The report, with a diagnosis of type `D`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DoctorReport"))]
pub struct DoctorReport<D> {
    /// [`SCHEMA`].
    schema: u32,
    tool: &'static str,
    system: String,
    unit: ReportedUnit,
    descriptors: Option<String>,
    opened: Option<Problem>,
    runs: Option<String>,
    runs_problem: Option<Problem>,
    pipes: PipeState,
    behind: Option<String>,
    link: Option<Link>,
    link_problem: Option<Problem>,
    supply_mv_ma: Option<(u16, i16)>,
    /// Whether the board's fault line is active, if the firmware tells.
    supply_fault: Option<bool>,
    tree: Option<Survey>,
    tree_problem: Option<Problem>,
    timings: Vec<Timing>,
    answers: Vec<Exchange>,
    /// Results of `--experiments`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    experiments: Vec<Finding>,
    diagnosis: D,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReportedUnit {
    usb_id: String,
    state: BridgeState,
    manufacturer: String,
    product: String,
    serial: Option<String>,
    speed: Speed,
    driver: Option<String>,
    is_virtual: bool,
}

/// Hashes a serial number, so that it tells units apart without naming one: the first digits of its SHA-256.
pub fn hashed(serial: &str) -> String {
    if is_nobodys(serial) {
        return serial.to_owned();
    }
    let digits: String = to_hex(&Sha256Digest::of(serial.as_bytes()).0, "").chars().take(HASH_DIGITS).collect();
    format!("sha256:{digits}")
}

impl<D: Serialize> DoctorReport<D> {
    /// Builds the report of an examination and of experiments. `kernel` is the system's version, if it is known.
    pub fn new(seen: Examination, diagnosis: D, experiments: Vec<Finding>, kernel: Option<&str>) -> Self {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let system = [os, arch].into_iter().chain(kernel).collect::<Vec<_>>().join(" ");
        let (runs, runs_problem) = halves(seen.runs);
        let (link, link_problem) = halves(seen.link);
        let (tree, tree_problem) = halves(seen.tree);
        let supply = seen.supply.and_then(Result::ok).flatten();
        Self {
            schema: SCHEMA,
            tool: concat!("asmpatch ", env!("CARGO_PKG_VERSION")),
            system,
            unit: ReportedUnit {
                usb_id: seen.unit.id.to_string(),
                state: seen.unit.state,
                is_virtual: seen.unit.is_virtual(),
                manufacturer: seen.unit.manufacturer,
                product: seen.unit.product,
                serial: seen.unit.serial.as_deref().map(hashed),
                speed: seen.unit.speed,
                driver: seen.unit.driver,
            },
            descriptors: seen.descriptors.map(|bytes| to_hex(&bytes, " ")),
            opened: seen.opened.err(),
            runs: runs.map(|runs| runs.to_string()),
            runs_problem,
            pipes: seen.pipes,
            behind: seen.behind.map(|behind| behind.to_string()),
            link,
            link_problem,
            supply_mv_ma: supply.and_then(|supply| supply.measured).map(|found| (found.voltage_mv, found.current_ma)),
            supply_fault: supply.map(|supply| supply.has_fault),
            tree,
            tree_problem,
            timings: seen.timings,
            answers: seen.exchanges,
            experiments,
            diagnosis,
        }
    }

    /// The report as JSON. Replaces the unit's serial number by its hash and a virtual unit's folder by a word,
    /// wherever they occur in a text.
    pub fn to_json(&self, serial: Option<&str>, device: &str) -> String {
        // All keys are strings, so this can't fail.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        let mut hide: Vec<(&str, String)> = Vec::new();
        if let Some(serial) = serial.filter(|serial| serial.len() >= SHORTEST_SERIAL && !is_nobodys(serial)) {
            hide.push((serial, hashed(serial)));
        }
        if device.starts_with("virtual:") {
            hide.push((device, "virtual:DIR".to_owned()));
        }
        clean(&mut value, &hide);
        format!("{value:#}\n")
    }
}

fn halves<T, E>(found: Option<Result<T, E>>) -> (Option<T>, Option<E>) {
    match found {
        Some(Ok(found)) => (Some(found), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    }
}

fn clean(value: &mut Value, hide: &[(&str, String)]) {
    match value {
        Value::String(text) => {
            for (what, instead) in hide {
                if text.contains(what) && !text.starts_with("sha256:") {
                    *text = text.replace(what, instead);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| clean(value, hide)),
        Value::Object(fields) => fields.values_mut().for_each(|value| clean(value, hide)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
