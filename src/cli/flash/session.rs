//! One run of a command that writes units: look at each, decide, show, ask, write all at once, report.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::devices::Devices;
use crate::failure::{AnyFailure, fenced};
use crate::flash::backup_folder;
use crate::flash::blocks::is_readable;
use crate::flash::decide::{Candidate, Carried, Decision, Neighbours, Permission, Refusal, Terms, carried, decide};
use crate::flash::fitting::fitting;
use crate::flash::observe::Observation;
use crate::flash::plan::{BlockSource, FlashPlan};
use crate::flash::run::FlashOptions;
use crate::shell;
use crate::unit;
use asm2464::Coded as _;
use asm2464::escape::Escape as _;
use asm2464::flash::BUDGET;
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{Location, Port, UnitInfo};

use super::at_once::at_once;
use super::held::{self, HeldUnit};
use super::next::next;
use super::prepared::{PreparedUnit, UnitOutcome, WritingJob};
use super::recovery::{Action, Ways, WritingCommand, again};
use super::screen::Screen;
use super::writing::{UnitEnd, UnitWork, Writing};
use super::{WritingArgs, ask, own_backup, recovery, show, summary};
use crate::cli::backup_place;
use crate::cli::bench::self_test;
use crate::cli::context::Context;
use crate::cli::deadlines::Deadlines;
use crate::cli::errors::Exit;
use crate::cli::interrupt;
use crate::cli::log;
use crate::cli::pcap::Recording;

/// Which of the selected units to write, and whether to test them then.
#[derive(Clone, Copy, Default)]
pub struct Choice {
    /// Write every unit if none is named.
    pub all: bool,
    /// Write every unit that is named.
    pub several: bool,
    /// Write no unit unless all can be written.
    pub all_or_none: bool,
    /// Run a self-test on the units that came back.
    pub bench: bool,
}

/// A unit as the user named it, and its port if it was found.
type NamedPort = (String, Result<Box<dyn Port>, AnyFailure>);

/// The units of one run.
pub struct WritingSession<'a> {
    args: &'a WritingArgs,
    context: &'a Context,
    interrupt: Interrupt<'static>,
    /// The capture, which ends with the session.
    recording: Recording<'a>,
    backup_into: Option<PathBuf>,
    choice: Choice,
    devices: Arc<Devices>,
    ports: Vec<NamedPort>,
}

impl<'a> WritingSession<'a> {
    /// Finds the units: those that are named, the only one, or every one with `all`. From here on Ctrl-C only sets a flag.
    ///
    /// # Errors
    /// Fails if no unit is found, if several are found and none is selected, or if there is no place for backups.
    pub fn open(args: &'a WritingArgs, choice: Choice, context: &'a Context) -> Result<Self, AnyFailure> {
        let devices = args.ids.load()?;
        let interrupt = interrupt::install();
        let recording = args.pcap.start()?;
        let capture = recording.capture();
        let backup_into = (!args.no_backup).then(|| args.backup_place.folder()).transpose()?;
        let there = |port: Box<dyn Port>| (port.location().to_string(), Ok(port));
        let mut ports: Vec<NamedPort> = match args.device.as_slice() {
            [] if choice.all => unit::ports(&devices, capture)?.into_iter().map(there).collect(),
            [] | [_] => vec![there(unit::port(&devices, args.device.first(), capture)?)],
            named if choice.several => {
                let find = |selector| match unit::port(&devices, Some(selector), capture) {
                    Ok(port) => there(port),
                    Err(error) => (selector.to_string(), Err(error.into())),
                };
                named.iter().map(find).collect()
            }
            named => {
                return Err(Refusal::SeveralUnits(named.iter().map(ToString::to_string).collect()).into());
            }
        };
        // A unit that is named twice, by its port and by its serial number, counts once.
        let mut known = HashSet::new();
        ports.retain(|(device, _)| known.insert(device.clone()));
        Ok(Self { args, context, interrupt, recording, backup_into, choice, devices, ports })
    }

    /// Examines all units, decides, shows, asks, writes the accepted units all at once, and reports each.
    ///
    /// # Errors
    /// Fails if the answer is no. A unit that is refused or stops is reported here and decides the exit status.
    pub fn run(
        mut self,
        job: &WritingJob,
        make: impl Fn(&Observation) -> Result<FlashPlan, AnyFailure> + Sync,
    ) -> Result<Exit, AnyFailure> {
        let units = self.look(make);
        self.carry_out(units, job)
    }

    /// Does the rest of [`WritingSession::run`] with units that were examined already, for a job that depends on what
    /// they hold.
    ///
    /// # Errors
    /// As for [`WritingSession::run`].
    pub fn carry_out(self, mut units: Vec<PreparedUnit>, job: &WritingJob) -> Result<Exit, AnyFailure> {
        self.find_backups(&mut units, job)?;
        self.decide(&mut units, job);
        // Nobody who says --quiet and --yes is going to read it.
        let is_read = !(self.context.is_quiet && self.args.yes && !self.args.dry_run);
        if !self.args.json {
            if is_read {
                self.show_plans(&units, job);
            }
            units.iter().for_each(|unit| self.show(unit, job));
        }
        let answer = if self.args.dry_run { Ok(()) } else { self.ask(&units) };
        if self.args.dry_run && !self.args.json {
            outln!("dry run: nothing was written");
        }
        if answer.is_ok() && !self.args.dry_run {
            self.write(&mut units, job);
            if self.choice.bench {
                self.test(&mut units, job);
            }
        }
        if self.args.json {
            show::json(
                &units,
                job,
                self.args.dry_run,
                &self.args.ids.suffix(),
                &self.context.command_line,
                answer.as_ref().err(),
            );
        }
        let several = units.len() > 1;
        let mut exit = units.iter().map(|unit| self.report(unit, job, several)).max().unwrap_or(Exit::Done);
        held::let_all_go();
        if several && answer.is_ok() && !self.args.json {
            summary::print(&units, job, &self.args.ids.suffix());
        }
        // Everything is written: whatever ends the question is a no.
        let wants_test = || ask::is_yes("Run a self-test now, READ(16) against E4?", self.interrupt).unwrap_or(false);
        if self.offers_test(&units, job) && wants_test() {
            self.test(&mut units, job);
        }
        exit = units.iter().map(|unit| self.report_test(unit, several)).fold(exit, Exit::max);
        match answer {
            // The array already has this failure, for each unit that would have been written.
            Err(failure) if self.args.json => Ok(exit.max(Exit::from(failure.coded().kind()))),
            Err(failure) => Err(failure),
            Ok(()) => Ok(exit),
        }
    }

    /// Examines all units at once and makes their plans.
    pub fn look(&mut self, make: impl Fn(&Observation) -> Result<FlashPlan, AnyFailure> + Sync) -> Vec<PreparedUnit> {
        let interrupt = self.interrupt;
        let look_at = |port: &mut dyn Port| {
            let seen = Observation::of(port, interrupt)?;
            let plan = make(&seen)?;
            Ok((seen, plan))
        };
        let several = self.ports.len() > 1;
        at_once(std::mem::take(&mut self.ports), &|(device, found)| {
            log::about(several.then_some(device.as_str()));
            let (terms, carried) = (Terms::default(), Carried::default());
            let (backups, instead) = (Vec::new(), Vec::new());
            let outcome = UnitOutcome::Nothing;
            let mut unit = PreparedUnit {
                device,
                port: None,
                seen: None,
                terms,
                outcome,
                carried,
                backups,
                instead,
                self_test: None,
            };
            let seen = found.and_then(|port| {
                let port = unit.port.insert(port);
                fenced(|| look_at(&mut **port))?
            });
            match seen {
                Ok(seen) => unit.seen = Some(seen),
                Err(failure) => unit.outcome = UnitOutcome::Refused(failure),
            }
            unit
        })
    }

    /// Finds the earlier backups of units that can't be backed up, that tell no version, or would get the known blocks.
    fn find_backups(&self, units: &mut [PreparedUnit], job: &WritingJob) -> Result<(), AnyFailure> {
        let is_at_stake = |(seen, plan): &(Observation, FlashPlan)| {
            self.args.no_backup
                || !is_readable(seen.attached.state)
                || seen.running.version.is_none()
                || plan.blocks.iter().any(|block| block.source == BlockSource::Known)
        };
        let at_stake: Vec<&mut PreparedUnit> =
            units.iter_mut().filter(|unit| unit.seen.as_ref().is_some_and(is_at_stake)).collect();
        // Without a place for backups there are none.
        let folder = self.args.backup_place.folder().ok();
        let Some(folder) = folder.filter(|_| !at_stake.is_empty()) else { return Ok(()) };
        let filed = backup_folder::filed(&folder)?;
        for unit in at_stake {
            let Some((seen, plan)) = &unit.seen else { continue };
            let given = plan.planned_identity().serial.filter(|_| job.subject.serial_given);
            unit.backups = fitting(&seen.attached, &seen.blocks, given.as_deref(), &filed);
        }
        Ok(())
    }

    /// Returns the commands to run instead of the one that is refused or asked about. `is_at_stake` says whether that
    /// would give the unit's own identity away.
    fn instead(&self, unit: &PreparedUnit, job: &WritingJob, is_at_stake: bool) -> Vec<Action> {
        let Some((Observation { attached: UnitInfo { location, .. }, .. }, _)) = &unit.seen else { return Vec::new() };
        // A change of the version's line that nobody has agreed to is asked about when the command runs.
        let mut permissions = unit.carried.again.clone();
        permissions.retain(|permission| *permission != Permission::OtherLine || self.args.other_line);
        let (origin, permissions) = (&job.origin, &permissions);
        let has_blocks = origin.config_from.is_some() || origin.command == WritingCommand::Restore;
        let actions = if has_blocks && !is_at_stake {
            let command = again(origin, permissions, location, None, true);
            vec![Action {
                purpose: "write it without a backup".into(),
                question: None,
                command: Some(command),
                backup: None,
            }]
        } else {
            own_backup::offers(&unit.backups, origin, permissions, location, &job.library)
        };
        recovery::with_options(actions, &self.args.ids.suffix())
    }

    fn decide(&self, units: &mut [PreparedUnit], job: &WritingJob) {
        let allowed = self.args.allowed();
        let connected = self.neighbours(units);
        let seen = units.iter().filter_map(|unit| Some((unit, unit.seen.as_ref()?)));
        let candidates: Vec<Candidate<'_>> =
            seen.map(|(unit, (seen, plan))| Candidate { seen, plan, backups: &unit.backups }).collect();
        let carried: Vec<Carried> =
            (0..candidates.len()).map(|at| carried(&candidates, at, allowed, &connected, &job.library)).collect();
        let decisions = decide(&candidates, &job.subject, allowed, &connected);
        let seen = units.iter_mut().filter(|unit| unit.seen.is_some());
        for ((unit, decision), carried) in seen.zip(decisions).zip(carried) {
            unit.carried = carried;
            unit.instead = match &decision {
                Decision::Refused(Refusal::NoBackup { .. }) => self.instead(unit, job, false),
                Decision::Refused(Refusal::OwnBackup { .. }) => self.instead(unit, job, true),
                Decision::Write(terms) if !terms.own_backups.is_empty() => self.instead(unit, job, true),
                _ => Vec::new(),
            };
            let usb_id = unit.seen.as_ref().and_then(|(_, plan)| plan.usb_id);
            let unlisted = usb_id.filter(|id| !self.devices.contains(*id));
            unit.outcome = match (decision, unlisted) {
                (Decision::Write(_), Some(id)) => {
                    UnitOutcome::Refused(Refusal::UnlistedId { device: unit.device.clone(), id }.into())
                }
                (Decision::Write(terms), None) => {
                    unit.terms = terms;
                    UnitOutcome::Write
                }
                (Decision::Nothing, _) => UnitOutcome::Nothing,
                (Decision::Refused(refusal), _) => UnitOutcome::Refused(refusal.into()),
            };
        }
        let refused = units.iter().filter(|unit| matches!(unit.outcome, UnitOutcome::Refused(_)));
        let because = refused.map(|unit| unit.device.clone()).collect::<Vec<_>>().join(", ");
        if self.choice.all_or_none && !because.is_empty() {
            for unit in units.iter_mut().filter(|unit| unit.is_to_be_written()) {
                let refusal = Refusal::AllOrNone { device: unit.device.clone(), because: because.clone() };
                unit.outcome = UnitOutcome::Refused(refusal.into());
            }
        }
    }

    /// The units on this machine's buses that are not among `units`.
    fn neighbours(&self, units: &[PreparedUnit]) -> Neighbours {
        let is_other = |other: &UnitInfo| units.iter().all(|unit| unit.device != other.location.to_string());
        match unit::list(&self.devices) {
            Ok(found) => Neighbours::Listed(found.into_iter().filter(is_other).collect()),
            Err(error) => Neighbours::Unknown(error.to_string()),
        }
    }

    /// Prints what will be written to each unit. Units with equal plans share one.
    fn show_plans(&self, units: &[PreparedUnit], job: &WritingJob) {
        let mut plans: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for unit in units.iter().filter(|unit| unit.is_to_be_written()) {
            let Some((seen, plan)) = &unit.seen else { continue };
            let heading = show::heading(seen, plan, job);
            let mut lines = show::plan(seen, plan, job, &unit.terms, self.backup_into.as_deref());
            lines.extend(own_backup::lines(&unit.instead).iter().map(|line| format!("            {line}")));
            match plans.iter_mut().find(|(_, plan)| *plan == lines) {
                Some((headings, _)) => headings.push(heading),
                None => plans.push((vec![heading], lines)),
            }
        }
        for (headings, lines) in plans {
            headings.iter().chain(&lines).for_each(|line| outln!("{line}"));
        }
    }

    /// Prints why a unit won't be written.
    fn show(&self, unit: &PreparedUnit, job: &WritingJob) {
        match (&unit.outcome, &unit.seen) {
            (UnitOutcome::Nothing, Some((seen, _))) => show::nothing(seen, job),
            // Show refusals before the question, so that the user knows about them when answering.
            (UnitOutcome::Refused(failure), _) => {
                self.context.report(failure.coded());
                own_backup::lines(&unit.instead).iter().for_each(|line| errln!("        {line}"));
            }
            _ => {}
        }
    }

    fn ask(&self, units: &[PreparedUnit]) -> Result<(), AnyFailure> {
        let units: Vec<&PreparedUnit> = units.iter().filter(|unit| unit.is_to_be_written()).collect();
        if units.is_empty() || self.args.yes {
            return Ok(());
        }
        let which = if units.len() == 1 { "this unit".to_owned() } else { format!("these {} units", units.len()) };
        ask::confirm(&format!("Write {which}?"), self.interrupt)?;
        for unit in units {
            if let Some(backup) = unit.terms.own_backups.first() {
                let folder = backup.folder.shown();
                let question =
                    format!("{}: give it the known identity, though {folder} may have its own?", unit.device.shown());
                ask::confirm(&question, self.interrupt)?;
            }
            if let Some(why) = unit.terms.unknown_neighbours.as_ref().filter(|_| !self.args.clone_identity) {
                let unknown = "asmpatch couldn't check whether another unit has the same serial number";
                ask::confirm(&format!("{}: {unknown} ({why}): go on?", unit.device), self.interrupt)?;
            }
            if let Some((from, to)) = unit.terms.other_line.filter(|_| !self.args.other_line) {
                let question = format!("{}: change the version's line from {from} to {to}?", unit.device);
                ask::confirm(&question, self.interrupt)?;
            }
        }
        Ok(())
    }

    /// Writes the accepted units, all at once.
    fn write(&self, units: &mut [PreparedUnit], job: &WritingJob) {
        let writing: Vec<&mut PreparedUnit> = units.iter_mut().filter(|unit| unit.is_to_be_written()).collect();
        if writing.is_empty() {
            return;
        }
        let devices: Vec<String> = writing.iter().map(|unit| unit.device.clone()).collect();
        let names_units = devices.len() > 1;
        if names_units && !self.args.json && !self.context.is_quiet {
            outln!("writing {} units", devices.len());
        }
        let screen = Screen::start(self.context, !self.args.json, devices);
        let Deadlines { come_back, replug } = Deadlines::of_this_run();
        let is_attended = !self.args.yes && std::io::stderr().is_terminal();
        let options = |location: &Location| FlashOptions {
            backup_into: self.backup_into.as_deref().map(Path::to_owned),
            backup_elsewhere: backup_place::elsewhere(),
            return_deadline: come_back,
            // Nobody can plug in a virtual unit again, and nobody who sees no messages will plug in a real one.
            replug_deadline: if is_attended && !location.is_virtual() { replug } else { Duration::ZERO },
            rewrite: self.args.force,
            budget: BUDGET,
        };
        let work = |(index, unit)| {
            let PreparedUnit { port, seen, outcome, carried, backups, .. }: &mut PreparedUnit = unit;
            let ((Observation { attached: UnitInfo { location, .. }, .. }, plan), port) =
                (seen.as_ref()?, port.as_deref_mut()?);
            let ways = Ways {
                origin: job.origin.clone(),
                carried: carried.clone(),
                offers: own_backup::offers(backups, &job.origin, &carried.again, location, &job.library),
                suffix: self.args.ids.suffix(),
            };
            let held = HeldUnit::new(location, &ways);
            let work = UnitWork { port, plan, options: options(location), progress: screen.unit(index).of_held(held) };
            Some((work, UnitEnd { location, ways, held, outcome }))
        };
        let units = writing.into_iter().enumerate().filter_map(work).collect();
        let run = Writing { interrupt: self.interrupt, names_units };
        if self.choice.all_or_none {
            run.all_or_none(units)
        } else {
            run.each(units)
        }
        screen.finish();
    }

    /// Whether to ask for a self-test: on a terminal, after a flash that left a unit to measure.
    fn offers_test(&self, units: &[PreparedUnit], job: &WritingJob) -> bool {
        let is_measurable = |unit: &PreparedUnit| match &unit.outcome {
            UnitOutcome::Written(report) => report.is_back() && next(report, unit, job, "").is_some(),
            _ => false,
        };
        let is_asked = !self.args.yes && !self.args.json && !self.context.is_quiet && ask::can_ask();
        is_asked && job.origin.command == WritingCommand::Flash && units.iter().any(is_measurable)
    }

    /// Runs the self-test on each unit that came back with what was written, one after the other.
    fn test(&self, units: &mut [PreparedUnit], job: &WritingJob) {
        let firmware = &job.subject.firmware;
        for unit in units {
            let UnitOutcome::Written(report) = &unit.outcome else { continue };
            if !report.is_back() {
                continue;
            }
            // A virtual unit starts with the new firmware when its port is opened again.
            let Some(mut port) = unit.port.take() else { continue };
            let info = port.attached().map_err(AnyFailure::from);
            drop(port);
            let capture = self.recording.capture();
            unit.self_test = Some(info.and_then(|info| {
                self_test::run(&info, firmware.answers_writes(), &self.devices, capture, self.context)
            }));
        }
    }

    /// Prints a unit's self-test, and returns its exit status.
    fn report_test(&self, unit: &PreparedUnit, several: bool) -> Exit {
        let shown = match (&unit.self_test, &unit.outcome) {
            (Some(Ok(report)), _) if self.args.json => self_test::check(report),
            (Some(Ok(report)), _) => self_test::show(&unit.device, report, several),
            (Some(Err(failure)), _) => {
                self.context.report(failure.coded());
                return Exit::from(failure.coded().kind());
            }
            (None, UnitOutcome::Written(report)) if self.choice.bench => {
                errln!(
                    "{}: no self-test: the unit is not back with what was written. Once it is:",
                    unit.device.shown()
                );
                let device = shell::word(report.location.to_string());
                errln!("    asmpatch bench --device {device}{}", self.args.ids.suffix());
                return Exit::Done;
            }
            (None, _) => return Exit::Done,
        };
        shown.map_or_else(
            |failure| {
                self.context.report(failure.coded());
                Exit::from(failure.coded().kind())
            },
            |()| Exit::Done,
        )
    }

    /// Reports the outcome of a unit and returns its exit status.
    fn report(&self, unit: &PreparedUnit, job: &WritingJob, several: bool) -> Exit {
        match &unit.outcome {
            UnitOutcome::Write | UnitOutcome::Nothing => Exit::Done,
            UnitOutcome::Written(report) => {
                if !self.args.json && !several {
                    show::done(report, unit, job, &self.args.ids.suffix());
                }
                Exit::Done
            }
            UnitOutcome::Refused(failure) => Exit::from(failure.coded().kind()),
            UnitOutcome::Stopped(_, failure) => {
                show::stopped(failure);
                Exit::from(failure.kind())
            }
            UnitOutcome::Spared(_, failure) => {
                self.context.report(failure.coded());
                Exit::from(failure.coded().kind())
            }
        }
    }
}
