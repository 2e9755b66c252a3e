//! The self-test after a flash: a short bench of READ(16) against E4.

use std::sync::Arc;

use asm2464::firmware::BridgeState;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_dock::pcap::Capture;
use asm2464_host::bridge::UnitInfo;

use super::{corrupt, measured, seed, spinner, table};
use crate::bench::{BenchPlan, BenchReport, DataPath, Effort};
use crate::cli::context::Context;
use crate::devices::Devices;
use crate::unit;

/// A unit's self-test after a write; `None` if there was none.
pub type SelfTest = Option<Result<BenchReport, AnyFailure>>;

/// Measures a unit that came back after a flash. `writes` says whether its vendor firmware answers WRITE(16). Only
/// reads if an SSD could be behind the bridge.
///
/// # Errors
/// As for [`super::run`].
pub fn run(
    unit: &UnitInfo,
    writes: bool,
    devices: &Arc<Devices>,
    capture: Option<&Capture>,
    context: &Context,
) -> Result<BenchReport, AnyFailure> {
    let bar = spinner(context);
    let measure = |paths: &[DataPath]| {
        let plan = BenchPlan::new(paths.iter().copied(), Effort::SELF_TEST, seed());
        measured(unit::again(devices, unit, capture)?, &plan, None, &bar)
    };
    let reads: Vec<DataPath> = DataPath::scsi().into_iter().filter(|path| !path.writes()).collect();
    let report = match unit.state {
        BridgeState::OpenFirmware => measure(&[DataPath::E4Stock, DataPath::F2Out]),
        _ if !writes => measure(&reads),
        _ => measure(&DataPath::scsi()).or_else(|failure| match failure.kind() {
            // An SSD may be behind it, and nothing was written.
            Kind::Refused => measure(&reads),
            _ => Err(failure),
        }),
    };
    bar.finish_and_clear();
    report
}

/// Prints a self-test: all of it, or of one of several units only the line that compares READ(16) with E4.
///
/// # Errors
/// Fails if bytes came back different from what was written.
pub fn show(device: &str, report: &BenchReport, several: bool) -> Result<(), Failure> {
    if several {
        table::wrapped(&format!("{device}: "), "    ", &table::read_against_e4(report).unwrap_or_default());
    } else {
        table::show(report, None, false);
    }
    check(report)
}

/// Checks that bytes survived.
///
/// # Errors
/// Fails if bytes came back different from what was written.
pub fn check(report: &BenchReport) -> Result<(), Failure> {
    if report.is_corrupt() { Err(corrupt()) } else { Ok(()) }
}
