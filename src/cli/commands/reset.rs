//! The `asmpatch reset` command: restarts a unit, by the mildest level that helps.

use std::io::IsTerminal as _;
use std::time::Duration;

use crate::advice::Hands;
use crate::restart::{
    Level, RestartOptions, RestartReport, Tried, UnitCondition, UnitFault, UnitFaultKind, restart as restart_unit,
};
use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_host::bridge::{Location, Port};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::cli::given::arguments::PortArgs;
use crate::cli::given::context::{Context, Deadlines, Left};
use crate::cli::words::advice_part::AdvicePart;
use crate::cli::words::errors::{Advised, Exit};
use crate::cli::words::interrupt;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::lines;
use crate::cli::words::{advice, print, table};

/// Restart a unit that hangs or came up slow, by the mildest level that helps.
///
/// Checks what is wrong, and begins with the mildest level that can help; if nothing is wrong, resets the CPU. Checks
/// again after each level, goes on while something is wrong, and says which level helped. Writes nothing to the flash,
/// and leaves a unit alone while its disk is in use.
#[derive(Debug, clap::Args)]
#[command(after_help = "Levels, mildest first:\n  \
engines      restart the transfer engines, if bulk data hangs (open firmware)\n  \
pcie-power   switch PCIe off and on, for a GPU that hangs (open firmware)\n  \
cpu          reset the CPU and retrain the USB link, within 3 s\n  \
port-power   have the unit's hub switch its power off and on\n  \
cable        ask you to unplug it\n\n\
Examples:\n  asmpatch reset --device 3-1.2\n  asmpatch reset --level pcie-power\n\n\
What each level keeps, and where it comes from: `asmpatch help recovery`, \"Without the cable\".")]
pub struct Args {
    /// Do only this level.
    #[arg(long, value_parser = level(), value_name = "LEVEL")]
    level: Option<Level>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    port: PortArgs,
}

/// Parses a level by its name.
fn level() -> impl TypedValueParser<Value = Level> {
    let named = |name: String| Level::ALL.into_iter().find(|level| level.to_string() == name).ok_or("no such level");
    PossibleValuesParser::new(Level::ALL.map(|level| level.to_string())).try_map(named)
}

/// The error of a unit whose boot loader runs: it has no CPU reset.
fn no_firmware(device: &str, state: BridgeState) -> Failure {
    let message = format!("{device}: the unit runs its {state}, which has no CPU reset");
    Failure::new(Kind::Refused.code("asmpatch::reset::no_firmware"), message)
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct ResetJson<'a> {
    /// The unit's port now: after the link is retrained, the unit may be on the connector's other port.
    device: &'a str,
    #[serde(flatten)]
    report: &'a RestartReport,
    /// The level that helped; null if nothing was wrong before, or nothing has helped.
    helped: Option<Level>,
}

impl print::Document for ResetJson<'_> {
    const VERSION: u32 = 4;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, its disk is in use, or it stays faulty.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let interrupt = interrupt::install();
    let (_recording, mut port) = args.port.open()?;
    let device = port.location().to_string();
    let only = args.level;
    let state = port.attached()?.state;
    match only {
        None if state == BridgeState::BootLoader => return Err(no_firmware(&device, state).into()),
        Some(level) if !level.fits(Some(state)) => {
            let message = format!("{device}: the unit runs its {state}, which has no level `{level}`");
            return Err(Failure::new(Kind::Refused.code("asmpatch::reset::no_such_level"), message).into());
        }
        None | Some(_) => {}
    }
    let Deadlines { come_back, replug } = Deadlines::of_this_run();
    let is_attended =
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !port.location().is_virtual();
    let options = RestartOptions { only, come_back, replug: if is_attended { replug } else { Duration::ZERO } };
    let replug = context.invocation.at(&port.location()).by_hand(Hands::ReplugWithSupply);
    let hand_on = context.invocation.at(&port.location()).by_hand(Hands::HandOn);
    if !hand_on.is_empty() {
        errln!("{device}: when it restarts: {hand_on}");
    }
    let mut ask_to_replug = || errln!("{device}: {replug}");
    let bar = context.spinner();
    bar.set_message(format!("{}: looking what is wrong, and restarting it: a few seconds", device.shown()));
    let report = restart_unit(&mut *port, options, &mut ask_to_replug, interrupt);
    bar.finish_and_clear();
    let report = report?;
    // After the link is retrained, the unit may be on the connector's other port.
    let device = port.location().to_string();
    context.leave(Left { location: Some(port.location()), ..Left::default() });
    if args.json {
        print::json(&ResetJson { device: &device, report: &report, helped: report.helped() });
    } else {
        show(&port.location(), &report, only, &context.invocation);
    }
    judge(&port.location(), &report, only, come_back)?;
    let left: Vec<UnitFault> = report.after.faults.iter().filter(|fault| is_for(only, fault.kind)).cloned().collect();
    let Some(fault) = left.first() else { return Ok(Exit::Done) };
    let failure = not_helped(&device, &left);
    let Some(advice) = report.advice(fault) else { return Err(failure.into()) };
    let steps = advice::steps(&advice, &context.invocation.at(&port.location()));
    Err(Advised::with(failure, steps.into_iter().map(AdvicePart::Step).collect()))
}

/// Whether the command was asked to end faults of this kind: without a level all, with one those for which it is the
/// mildest that can help.
fn is_for(only: Option<Level>, kind: UnitFaultKind) -> bool {
    only.is_none_or(|level| kind.levels().start() == &level)
}

/// The failure of a restart that leaves these faults.
fn not_helped(device: &str, left: &[UnitFault]) -> Failure {
    let found: Vec<String> = left.iter().map(|fault| fault.found.shown().to_string()).collect();
    let message = format!("{device}: the restart didn't help: {}", found.join("; "));
    Failure::new(Kind::Device.code("asmpatch::reset::not_helped"), message)
}

fn show(location: &Location, report: &RestartReport, only: Option<Level>, invocation: &Invocation) {
    let device = location.to_string();
    let RestartReport { before, tried, after } = report;
    for fault in &before.faults {
        outln!("{}: {}", device.shown(), fault.found.shown());
    }
    for Tried { level, helped, result, .. } in tried {
        outln!("  {:<10}  {}{}", level.to_string(), result.shown(), if *helped { ": helped" } else { "" });
    }
    for fault in &after.faults {
        if !before.faults.contains(fault) {
            outln!("  now         {}", fault.found.shown());
        } else if report.is_success() {
            outln!("  still       {}", fault.found.shown());
        }
        // If the restart failed, the command's error names the fault.
    }
    if let Some(behind) = after.behind.as_ref().filter(|behind| !behind.is_empty()) {
        outln!("  behind      {}", behind.join(", "));
    }
    let Some(now) = &after.attached else { return };
    if !report.is_success() {
        return;
    }
    let was = match &before.attached {
        Some(before) if before.speed != now.speed => format!(", was {}", before.speed),
        _ => String::new(),
    };
    outln!("{}: back as {} ({}) at {}{was}", device.shown(), now.id, now.state, now.speed);
    // The error has the advice against what the command was asked to end.
    for fault in after.faults.iter().filter(|fault| !is_for(only, fault.kind)) {
        let Some(advice) = report.advice(fault) else { continue };
        let steps = lines(&advice::steps(&advice, &invocation.at(location)));
        for (label, line) in table::under("next:", steps.iter().flat_map(|line| line.lines())) {
            outln!("  {label:<5} {line}");
        }
    }
}

/// Returns an error unless the restart led to a unit that can be used.
fn judge(
    location: &Location,
    report: &RestartReport,
    only: Option<Level>,
    deadline: Duration,
) -> Result<(), AnyFailure> {
    let device = location.to_string();
    let is_in_boot_loader =
        |unit: &UnitCondition| unit.attached.as_ref().is_some_and(|unit| unit.state == BridgeState::BootLoader);
    if is_in_boot_loader(&report.after) && !is_in_boot_loader(&report.before) {
        let why = "its flash has no firmware that passes the chip's checks";
        let message = format!("{device}: the unit came back in its boot loader: {why}");
        return Err(Failure::new(Kind::Device.code("asmpatch::reset::boot_loader"), message).into());
    }
    if report.is_success() {
        return Ok(());
    }
    let failure = match (report.tried.iter().find(|tried| !tried.done), &report.after.attached) {
        (Some(Tried { level, result, .. }), _) if only.is_some() || report.after.faults.is_empty() => {
            Failure::new(Kind::Device.code("asmpatch::reset::not_done"), format!("{device}: {level}: {result}"))
        }
        (_, None) => {
            let message = format!("{device}: the unit has not come back within {deadline:?}");
            Failure::new(Kind::Device.code("asmpatch::reset::not_back"), message)
        }
        (_, Some(_)) => not_helped(&device, &report.after.faults),
    };
    // Every level was tried: only hands are left.
    let advice = if only.is_some() { Vec::new() } else { vec![AdvicePart::Hands(Hands::ReplugWithSupply)] };
    Err(Advised::with(failure, advice))
}

/// Resets the CPU and waits until the unit is back.
pub(in crate::cli) fn restart(port: &mut dyn Port, interrupt: Interrupt<'_>) -> Result<(), AnyFailure> {
    let (device, come_back) = (port.location().to_string(), Deadlines::of_this_run().come_back);
    let state = port.attached()?.state;
    if !Level::Cpu.fits(Some(state)) {
        return Err(no_firmware(&device, state).into());
    }
    let only = Some(Level::Cpu);
    let options = RestartOptions { only, come_back, replug: Duration::ZERO };
    let report = restart_unit(port, options, &mut || (), interrupt)?;
    judge(&port.location(), &report, Some(Level::Cpu), come_back)
}
