//! `doctor --experiments`: explains each experiment, asks, runs it, and restarts the unit.

use crate::doctor::{Answer, Examination, Experiment, Finding};
use crate::failure::AnyFailure;
use crate::flash::firmware_kind::RunningFirmware;
use crate::unit;
use asm2464::TransportKind;
use asm2464::escape::Escape as _;
use asm2464::interrupt::Interrupt;
use asm2464_dock::pcap::Capture;
use asm2464_host::bridge;
use asm2464_host::bridge::{AnyTransport, Bridge, BusSpeed, Port};
use thiserror::Error;

use super::Args;
use crate::cli;
use crate::cli::flash::ask;

/// Reasons no experiment was run, or that the rest were not.
#[derive(Debug, Error)]
enum Refused {
    /// There is no terminal to ask on.
    #[error("there is no terminal to ask on")]
    NotAsked,
    /// The experiments are meant for another kind of unit.
    #[error("the experiments don't fit this unit: {why}")]
    Unfit {
        /// What does not fit.
        why: String,
    },
    /// The unit no longer answers.
    #[error("the unit doesn't answer any more after {experiment}")]
    Hangs {
        /// The experiment that ran last.
        experiment: Experiment,
    },
}

asm2464::coded!(Refused {
    NotAsked => Refused "asmpatch::doctor::not_asked",
    Unfit => Refused "asmpatch::doctor::no_experiments",
    Hangs => Device "asmpatch::doctor::hangs",
});

/// Returns an error if a question would be needed and there is no terminal to ask on.
pub(super) fn refuse_unasked(args: &Args) -> Result<(), AnyFailure> {
    if args.yes || ask::can_ask() { Ok(()) } else { Err(Refused::NotAsked.into()) }
}

/// Runs the experiments on the examined unit. Returns what each showed, and what went wrong afterwards: a unit that
/// hangs or could not be restarted.
///
/// # Errors
/// Fails if the experiments are not for this unit. Nothing is written to it then.
pub(super) fn run(
    args: &Args,
    seen: &Examination,
    capture: Option<&Capture>,
    interrupt: Interrupt<'_>,
) -> Result<(Vec<Finding>, Result<(), AnyFailure>), AnyFailure> {
    if let Some(why) = unfit(seen) {
        return Err(Refused::Unfit { why }.into());
    }
    let known = args.port.ids.load()?;
    let mut chosen = unit::again(&known, &seen.unit, capture)?;
    let mut unit = chosen.open(Some(TransportKind::Uas))?;
    if !unit.bridge.has_no_medium()? {
        let why = "READ CAPACITY and E6 do not both answer 2/3A (medium not present)".to_owned();
        return Err(Refused::Unfit { why }.into());
    }
    let (findings, asked) = all(args, &mut unit.bridge, interrupt);
    drop(unit);
    let hang = findings.iter().find(|finding| finding.answer == Answer::Hang);
    let trouble = match hang {
        Some(finding) => Err(Refused::Hangs { experiment: finding.experiment }.into()),
        None if findings.iter().all(|finding| finding.answer == Answer::NotRun) || seen.unit.is_virtual() => asked,
        // This very unit, not another that has taken its place.
        None => {
            let restart = |mut port: Box<dyn Port>| cli::reset::restart(&mut *port, Interrupt::never());
            chosen.into_port(&known).map_err(AnyFailure::from).and_then(restart).and(asked)
        }
    };
    Ok((findings, trouble))
}

/// Returns why the experiments don't fit this unit; `None` if they do.
fn unfit(seen: &Examination) -> Option<String> {
    match (&seen.runs, &seen.behind) {
        (Some(Ok(RunningFirmware::Flashed(firmware))), _) if !firmware.answers_writes() => {
            Some(format!("it runs {firmware}"))
        }
        (Some(Ok(RunningFirmware::Flashed(_))), Some(bridge::Behind::NoMedium)) => {
            (seen.unit.speed < BusSpeed::Super).then(|| format!("its link is at {}", seen.unit.speed))
        }
        (Some(Ok(RunningFirmware::Flashed(_))), Some(behind)) => {
            Some(format!("behind it: {}", behind.to_string().shown()))
        }
        (Some(Ok(runs)), _) => Some(format!("it runs {}", runs.to_string().shown())),
        _ => Some("asmpatch can't tell what it runs".to_owned()),
    }
}

/// Runs them one after the other, until one hangs the unit or on Ctrl-C.
fn all(
    args: &Args,
    bridge: &mut Bridge<AnyTransport>,
    interrupt: Interrupt<'_>,
) -> (Vec<Finding>, Result<(), AnyFailure>) {
    let mut findings: Vec<Finding> = Vec::new();
    let (mut asked, mut stopped) = (Ok(()), None);
    for (number, experiment) in (1..).zip(Experiment::ALL) {
        if let Some(why) = stopped {
            findings.push(experiment.not_run(why));
            continue;
        }
        errln!("experiment {number} of {}, {experiment}: {}", Experiment::ALL.len(), experiment.question());
        errln!("  sends  {}", experiment.sends());
        errln!("  risk   {}", experiment.risk());
        let goes_on = match interrupt.check() {
            Err(interrupted) => Err(interrupted.into()),
            Ok(()) if args.yes => Ok(true),
            Ok(()) => ask::is_yes("run it?", interrupt),
        };
        let finding = match goes_on {
            Ok(true) => experiment.run(bridge),
            Ok(false) => experiment.not_run("declined"),
            Err(error) => {
                (asked, stopped) = (Err(error), Some("interrupted"));
                experiment.not_run("interrupted")
            }
        };
        if finding.answer == Answer::Hang {
            stopped = Some("the unit hangs");
        }
        findings.push(finding);
    }
    (findings, asked)
}

/// Prints the findings.
pub(super) fn show(findings: &[Finding]) {
    for finding in findings {
        outln!("  {:<4}  {:<17}  {}", finding.answer.to_string(), finding.experiment.to_string(), finding.question);
        outln!("                           saw: {}", finding.saw.shown());
        outln!("                           decides: {}", finding.decides);
    }
}
