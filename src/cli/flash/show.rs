//! A plan and its outcome in words and as JSON.

use std::path::{Path, PathBuf};

use miette::Diagnostic;
use serde::Serialize;

use crate::bridge::Attached;
use crate::cli::print;
use crate::firmware::{BridgeState, UsbId};
use crate::flash::plan::{BlockPlan, BlockSource, Plan};
use crate::flash::progress::StepReport;
use crate::flash::proof::Runs;
use crate::flash::recovery::{Action, FlashFailure, Left};
use crate::flash::run::Report;

/// Prints what will be written to one unit.
pub fn plan(device: &str, plan: &Plan, source: &str, backup_into: Option<&Path>) {
    let Attached { usb_id, state, serial, .. } = &plan.attached;
    let serial = if serial.is_empty() { String::new() } else { format!(", serial {serial}") };
    outln!("{device}: {usb_id} ({state}){serial}");
    outln!("  image     {source}");
    match backup_into {
        Some(folder) => outln!("  backup    first, into {}", folder.display()),
        None => outln!("  backup    none"),
    }
    for block in &plan.blocks {
        outln!("  block {}   {}", block.index.number(), block_words(block));
    }
    let parts: Vec<String> = plan.parts().map(|(_, bytes)| bytes.len().to_string()).collect();
    outln!("  firmware  version {}, {} bytes", plan.version, parts.join(" + "));
    let identity = plan.usb_id.map_or_else(|| "the chip's own identity".to_owned(), |id| id.to_string());
    let order = if plan.reads_back() { "read back, restart" } else { "halt, be unplugged once" };
    outln!("  then      {order}, come back as {identity}");
    if !plan.has_own_serial() {
        outln!(
            "  note      the known block's serial number is the same on every unit that gets it; `--serial` gives this \
             one its own, `--config-from DIR` the one in its backup"
        );
    }
}

fn block_words(block: &BlockPlan) -> String {
    let changes: Vec<String> =
        block.changes.iter().map(|change| format!("{} {} -> {}", change.field, change.from, change.to)).collect();
    match (changes.is_empty(), block.source, block.differs()) {
        (false, source, _) => format!("{source}, with {}", changes.join(", ")),
        (true, BlockSource::Unit, _) | (true, _, false) => format!("{}, unchanged", block.source),
        (true, source, true) => source.to_string(),
    }
}

/// Prints how it ended well, and what comes next.
pub fn done(report: &Report) {
    let version = report.version.map_or_else(String::new, |version| format!(", version {version}"));
    match &report.after {
        Some(after) => outln!("{}: done: {} ({}){version}", report.device, after.usb_id, after.state),
        None => outln!("{}: done: everything is written, and nothing is read back yet", report.device),
    }
    if let Some(words) = power_words(report) {
        outln!("  {words}");
    }
    if let Some(folder) = &report.backup {
        outln!(
            "  keep the backup: `asmpatch restore {} --device {}` brings back what was there",
            folder.display(),
            report.device
        );
    }
    let Some(after) = &report.after else { return };
    if after.state == BridgeState::Vendor && after.usb_id == UsbId::PATCHED && report.runs != Some(Runs::Before) {
        outln!("  next: `asmpatch bench --device {}` measures it", report.device);
    }
}

/// Why the unit is to be unplugged; `None` where it need not be.
fn power_words(report: &Report) -> Option<&'static str> {
    report.needs_power.then_some(match report.runs {
        Some(Runs::Before) => "unplug the unit once: it still runs what it had",
        Some(Runs::Unknown | Runs::Written) => {
            "unplug the unit once to be sure: what it does is the same before and after, so it can't be told what runs"
        }
        None => "unplug the unit once, wait five seconds, plug it in again: then it starts what was written",
    })
}

#[derive(Serialize)]
struct UnitJson<'a> {
    device: &'a str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<IdentityJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<IdentityJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Whether it runs what was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<Runs>,
    /// What the unit needs before it runs what was written for certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<&'a PathBuf>,
    steps: &'a [StepReport],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson<'a>>,
}

#[derive(Serialize)]
struct IdentityJson<'a> {
    usb_id: String,
    state: String,
    serial: &'a str,
    product: &'a str,
}

#[derive(Serialize)]
struct ErrorJson<'a> {
    code: String,
    message: String,
    left: Left,
    recovery: &'a [Action],
}

fn identity(attached: &Attached) -> IdentityJson<'_> {
    IdentityJson {
        usb_id: attached.usb_id.to_string(),
        state: attached.state.to_string(),
        serial: &attached.serial,
        product: &attached.product,
    }
}

/// Prints the outcomes of all units as one JSON array.
pub fn json(outcomes: &[(Report, Option<FlashFailure>)]) {
    let units: Vec<UnitJson<'_>> = outcomes
        .iter()
        .map(|(report, failure)| UnitJson {
            device: &report.device,
            ok: failure.is_none(),
            before: Some(identity(&report.before)),
            after: report.after.as_ref().map(identity),
            version: report.version.map(|version| version.to_string()),
            runs: report.runs,
            needs: report.needs_power.then_some("power"),
            backup: report.backup.as_ref(),
            steps: &report.steps,
            error: failure.as_ref().map(|failure| ErrorJson {
                code: failure.code().map_or_else(String::new, |code| code.to_string()),
                message: failure.error.to_string(),
                left: failure.left,
                recovery: &failure.actions,
            }),
        })
        .collect();
    print::json(&units);
}
