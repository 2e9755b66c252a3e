//! One run of a command that writes units: finds them, shows what is decided, asks, writes, and reports each.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use crate::advice::Hands;
use crate::devices::Devices;
use crate::flash::access::UnitBlocks;
use crate::flash::backup_folder::BackupPlaces;
use crate::flash::examined::{Examined, NewFirmware};
use crate::flash::job::{self, FlashJob, FlashUnit, FoundUnit, NamedPort, UnitOutcome, WriteQuestion};
use crate::flash::observe;
use crate::flash::progress::FlashProgress;
use crate::flash::recovery::{ImageRef, InvokedCommand, Writes, WrittenUnit};
use crate::flash::run::{FlashOptions, FlashReport};
use crate::flash::wanted::Wanted;
use crate::image::{Firmware, Images};
use crate::unit::{self, NoUnit, Selector};
use asm2464::escape::Escape as _;
use asm2464::flash::BUDGET;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Coded, Failure, Kind, Named};
use asm2464_host::bridge::{Location, Port, UnitInfo};

use super::held;
use super::screen::Screen;
use super::steps::{self, WordedStep};
use super::{WritingArgs, show, summary};
use crate::cli::commands::bench;
use crate::cli::given::arguments::{self, Recording, named_ports, opened};
use crate::cli::given::context::{Context, Deadlines, Left};
use crate::cli::words::advice_part::AdvicePart;
use crate::cli::words::ask;
use crate::cli::words::errors::{self, Advised, Exit};
use crate::cli::words::interrupt;
use crate::cli::words::invocation::Invocation;

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

/// The units of one run.
pub struct WritingRun<'a> {
    args: &'a WritingArgs,
    context: &'a Context,
    /// The capture, which ends with the run.
    recording: Recording<'a>,
    choice: Choice,
    devices: Arc<Devices>,
    ports: Vec<NamedPort>,
    interrupt: Interrupt<'static>,
}

impl<'a> WritingRun<'a> {
    /// Finds the units: those that are named, the only one, or every one with `all`. From here on Ctrl-C only sets a
    /// flag.
    ///
    /// # Errors
    /// Fails if no unit is found, or if several are found and none is selected.
    pub fn open(args: &'a WritingArgs, choice: Choice, context: &'a Context) -> Result<Self, AnyFailure> {
        let devices = args.ids.load()?;
        let interrupt = interrupt::install();
        let recording = args.pcap.start()?;
        let capture = recording.capture();
        let with_name = |port: Box<dyn Port>| (port.location().to_string(), Ok(port));
        let ports: Vec<NamedPort> = match args.device.as_slice() {
            [] if choice.all => unit::ports(&devices, capture)?.into_iter().map(with_name).collect(),
            [] | [_] => vec![with_name(opened(&devices, args.device.first(), capture)?)],
            named if choice.several => named_ports(&devices, named, capture).collect(),
            named => {
                let names: Vec<String> = named.iter().map(ToString::to_string).collect();
                let message = format!("{} units are named: {}", names.len(), names.join(", "));
                let failure = Failure::new(Kind::Refused.code("asmpatch::flash::several"), message);
                return Err(names.into_iter().map(Named::Port).fold(failure, Failure::naming).into());
            }
        };
        Ok(Self { args, context, recording, choice, devices, ports, interrupt })
    }

    /// Returns what is written to the units, by the command's options. `image` is the image as the command names it.
    ///
    /// # Errors
    /// If there is no place for backups, or the embedded list of what runtimes open is wrong.
    pub fn job(
        &self,
        wanted: Wanted,
        subject: NewFirmware,
        images: Images,
        source: String,
        image: Option<ImageRef>,
    ) -> Result<FlashJob, AnyFailure> {
        let args = self.args;
        let Deadlines { come_back, replug } = Deadlines::of_this_run();
        let is_attended = !args.yes && std::io::stderr().is_terminal();
        Ok(FlashJob {
            subject,
            images,
            runtime: crate::embedded::runtime()?,
            source,
            invoked: Arc::new(InvokedCommand {
                writes: wanted.writes(),
                image,
                names_blocks: wanted.names_blocks(),
                backs_up: !args.no_backup,
            }),
            wanted,
            devices: Arc::clone(&self.devices),
            allowed: args.allowed(),
            all_or_none: self.choice.all_or_none,
            beside: None,
            earlier_backups: self.backup_places(),
            options: FlashOptions {
                backup_into: if args.no_backup { None } else { Some(args.backup_place.folder()?) },
                backup_elsewhere: arguments::backups_elsewhere(),
                pointers_into: arguments::platforms_folder().ok(),
                return_deadline: come_back,
                // A user who sees no messages won't plug in a unit again.
                replug_deadline: if is_attended { replug } else { Duration::ZERO },
                rewrite: args.force,
                budget: BUDGET,
            },
            interrupt: self.interrupt,
        })
    }

    /// Returns where the backups of the units are looked for.
    pub fn backup_places(&self) -> BackupPlaces {
        let units: Vec<Location> =
            self.ports.iter().filter_map(|(_, port)| Some(port.as_ref().ok()?.location())).collect();
        self.args.backup_place.places(&units)
    }

    /// The units of this host; none if the buses can't be searched.
    pub fn connected(&self) -> Vec<UnitInfo> {
        unit::list(&self.devices).unwrap_or_default()
    }

    /// Reads the configuration of the only unit, and writes nothing.
    ///
    /// # Errors
    /// Fails if the unit can't be read, and on Ctrl-C.
    pub fn configuration(mut self) -> Result<(UnitInfo, UnitBlocks), AnyFailure> {
        let (_, port) = self.ports.pop().ok_or_else(NoUnit::now)?;
        observe::configuration(&mut *port?, self.interrupt)
    }

    /// Examines all units at once and makes their plans.
    pub fn examine(&mut self, wanted: &Wanted, images: &Images) -> Vec<FoundUnit> {
        job::examine(std::mem::take(&mut self.ports), wanted, images, self.interrupt)
    }

    /// Decides, shows, asks, writes the accepted units all at once, and reports each.
    ///
    /// # Errors
    /// Fails if the answer is no. A unit that is refused or stops is reported here and decides the exit status.
    pub fn carry_out(self, found: Vec<FoundUnit>, job: &FlashJob) -> Result<Exit, AnyFailure> {
        let mut units = job.decide(found)?;
        if !self.args.json {
            self.show(&units, job);
        }
        let answer = if self.args.dry_run { Ok(()) } else { self.write(&mut units, job) };
        if self.args.dry_run && !self.args.json {
            outln!("dry run: nothing was written");
        }
        if self.choice.bench && answer.is_ok() {
            self.test(&mut units, job);
        }
        if self.args.json {
            show::json(&units, job, self.args.dry_run, &self.context.invocation, answer.as_ref().err());
        }
        let several = units.len() > 1;
        let mut exit = units.iter().map(|unit| self.report(unit, job, several)).max().unwrap_or(Exit::Done);
        held::let_all_go();
        if several && answer.is_ok() && !self.args.json {
            summary::print(&units, job, &self.context.invocation);
        }
        // Everything is written, so Ctrl-C at the question only means no.
        let wants_test = || ask::is_yes(self_test_question(job.subject.firmware()), self.interrupt).unwrap_or(false);
        if self.offers_test(&units, job) && wants_test() {
            self.test(&mut units, job);
        }
        for unit in &units {
            exit = exit.max(self.report_test(unit, several));
        }
        match answer {
            // The array already has this failure, for each unit that would have been written.
            Err(failure) if self.args.json => Ok(exit.max(Exit::from(failure.kind()))),
            Err(failure) => Err(failure),
            Ok(()) => Ok(exit),
        }
    }

    /// Asks, and writes the accepted units only if each answer is yes.
    fn write(&self, units: &mut [FlashUnit], job: &FlashJob) -> Result<(), AnyFailure> {
        for question in job.questions(units) {
            ask::confirm(&words(question), self.interrupt)?;
        }
        let mut screen = None;
        let follow = |units: Vec<WrittenUnit>| {
            let says_steps = !self.args.json && !self.context.is_logged;
            let devices: Vec<String> = units.iter().map(|unit| unit.location.to_string()).collect();
            if devices.len() > 1 && says_steps && !self.context.is_quiet {
                outln!("writing {} units", devices.len());
            }
            let screen = screen.insert(Screen::start(self.context, says_steps, devices));
            let follow = |unit| Box::new(screen.unit(unit).of_held()) as Box<FlashProgress<'static>>;
            let followed = (0..units.len()).map(follow).collect();
            held::hold(units, &self.context.invocation);
            followed
        };
        job.write(units, follow, &held::has_ended);
        if let Some(screen) = screen {
            screen.finish();
        }
        Ok(())
    }

    /// Prints what will be written to each unit, and why the others won't be. Units with equal plans share one.
    fn show(&self, units: &[FlashUnit], job: &FlashJob) {
        // With --quiet and --yes nobody reads the plans.
        if !(self.context.is_quiet && self.args.yes && !self.args.dry_run) {
            self.show_plans(units, job);
        }
        for unit in units {
            match (&unit.outcome, &unit.examined) {
                (UnitOutcome::Unchanged, Some(Examined { seen, .. })) => {
                    show::nothing(seen, job, &self.context.invocation)
                }
                // Show refusals before the question, so that the user knows about them when answering.
                (UnitOutcome::Refused(failure), _) => {
                    self.report_of(unit, failure.coded());
                    steps::print_below_error(&steps::instead(unit, &self.context.invocation));
                }
                _ => {}
            }
        }
    }

    fn show_plans(&self, units: &[FlashUnit], job: &FlashJob) {
        let mut plans: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for unit in units.iter().filter(|unit| unit.is_to_be_written()) {
            let Some(examined) = &unit.examined else { continue };
            let heading = show::heading(&examined.seen, job);
            let mut lines = show::plan(examined, job, &unit.terms, self.context.is_verbose);
            lines.extend(
                steps::lines(&steps::instead(unit, &self.context.invocation))
                    .iter()
                    .map(|line| format!("            {line}")),
            );
            let hand_on = self.context.invocation.at(&examined.seen.attached.location).by_hand(Hands::HandOn);
            if !hand_on.is_empty() {
                lines.push(format!("  note      when it restarts: {hand_on}"));
            }
            match plans.iter_mut().find(|(_, plan)| *plan == lines) {
                Some((headings, _)) => headings.push(heading),
                None => plans.push((vec![heading], lines)),
            }
        }
        for (headings, lines) in plans {
            headings.iter().chain(&lines).for_each(|line| outln!("{line}"));
        }
    }

    /// Whether to ask for a self-test: on a terminal, after a flash that left a unit to measure.
    fn offers_test(&self, units: &[FlashUnit], job: &FlashJob) -> bool {
        let is_asked = !self.args.yes && !self.args.json && !self.context.is_quiet && ask::can_ask();
        let mut untested = units.iter().filter(|unit| unit.test.is_none());
        is_asked && job.invoked.writes == Writes::Image && untested.any(|unit| unit.is_measurable(job))
    }

    /// Runs the self-test on each unit that has what was wanted, one after the other.
    fn test(&self, units: &mut [FlashUnit], job: &FlashJob) {
        let (firmware, devices) = (job.subject.firmware(), &job.devices);
        for unit in units {
            match has_wanted(&unit.outcome, &self.context.invocation) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(failure) => {
                    unit.test = Some(Err(failure));
                    continue;
                }
            }
            let Some(mut port) = unit.port.take() else { continue };
            let location = port.location();
            let mut info = port.attached();
            drop(port);
            let capture = self.recording.capture();
            if location.is_virtual() {
                // It starts with the new firmware when its port is opened again.
                let found = unit::choose(devices, Some(&Selector::from(&location)), capture);
                info = found.map(|unit| unit.info);
            }
            let tested = info
                .and_then(|info| bench::self_test(&info, firmware.answers_writes(), devices, capture, self.context));
            unit.test = Some(tested);
        }
    }

    /// Prints a unit's self-test, and returns its exit status.
    fn report_test(&self, unit: &FlashUnit, several: bool) -> Exit {
        let report = match &unit.test {
            Some(Ok(report)) => report,
            Some(Err(failure)) => return self.report_of(unit, failure.coded()),
            None => return Exit::Done,
        };
        if !self.args.json {
            bench::show_self_test(&unit.device, report, several);
        }
        bench::check_bytes(report).map_or_else(|failure| self.report_of(unit, &failure), |()| Exit::Done)
    }

    /// Prints a failure of one unit, with commands for that unit, and returns its exit status.
    fn report_of(&self, unit: &FlashUnit, failure: &(dyn Coded + 'static)) -> Exit {
        errors::report(failure, &self.context.invocation.for_one(unit.location(), &unit.device))
    }

    /// Leaves the unit's place, and the steps after a write that was refused or stopped, to the command that runs this one.
    fn leave(&self, unit: &FlashUnit) {
        let invocation = &self.context.invocation;
        let (location, steps, has_begun) = match &unit.outcome {
            UnitOutcome::Written(report) => (Some(&report.location), Vec::new(), true),
            UnitOutcome::Unchanged => (unit.location(), Vec::new(), true),
            UnitOutcome::Stopped(_, failure) => {
                let location = &failure.unit.location;
                (Some(location), WordedStep::each(&failure.steps, &invocation.at(location)), true)
            }
            UnitOutcome::Refused(failure) => {
                let instead = steps::instead(unit, invocation);
                (None, if instead.is_empty() { errors::steps(failure.coded(), invocation) } else { instead }, false)
            }
            UnitOutcome::Write | UnitOutcome::Spared(..) => (None, Vec::new(), false),
        };
        self.context.leave(Left { location: location.cloned(), steps, has_begun });
    }

    /// Reports the outcome of a unit and returns its exit status.
    fn report(&self, unit: &FlashUnit, job: &FlashJob, several: bool) -> Exit {
        self.leave(unit);
        match &unit.outcome {
            UnitOutcome::Write | UnitOutcome::Unchanged => Exit::Done,
            UnitOutcome::Written(report) => {
                if !self.args.json && !several {
                    show::done(report, unit, job, &self.context.invocation);
                }
                Exit::Done
            }
            UnitOutcome::Refused(failure) => Exit::from(failure.kind()),
            UnitOutcome::Stopped(_, failure) => {
                show::stopped(failure, &self.context.invocation);
                Exit::from(failure.kind())
            }
            UnitOutcome::Spared(_, failure) => self.report_of(unit, failure.coded()),
        }
    }
}

/// Whether a unit has what was wanted, so that a self-test measures that.
///
/// # Errors
/// If it was written and isn't back with what was written.
fn has_wanted(outcome: &UnitOutcome, invocation: &Invocation) -> Result<bool, AnyFailure> {
    match outcome {
        UnitOutcome::Unchanged => Ok(true),
        UnitOutcome::Written(report) if report.can_start() => Ok(true),
        UnitOutcome::Written(report) => Err(untested(report, invocation)),
        _ => Ok(false),
    }
}

/// The failure of a self-test that was asked for on a unit that doesn't run what was written.
fn untested(report: &FlashReport, invocation: &Invocation) -> AnyFailure {
    let label = Kind::Device.code("asmpatch::flash::untested");
    let message = format!("{}: no self-test: the unit is not back with what was written", report.location);
    let bench = invocation.at(&report.location).other("bench");
    let step = WordedStep::run("once it is, measure it", bench);
    Advised::with(Failure::new(label, message), vec![AdvicePart::Step(step)])
}

/// The question that offers a self-test: what it would measure with this firmware.
fn self_test_question(firmware: &Firmware) -> &'static str {
    if firmware.open().is_some() {
        "Run a self-test now: does every byte survive F2 and E4, and how fast are they?"
    } else if firmware.answers_writes() {
        "Run a self-test now: does every byte survive WRITE(16) and E4, and how fast are they?"
    } else {
        "Run a self-test now: how fast is E4?"
    }
}

fn words(question: WriteQuestion<'_>) -> String {
    match question {
        WriteQuestion::Write(1) => "Write this unit?".to_owned(),
        WriteQuestion::Write(count) => format!("Write these {count} units?"),
        WriteQuestion::KnownIdentity { device, backup } => {
            let folder = backup.filed.folder.shown();
            format!("{}: give it another identity, though {folder} may have its own?", device.shown())
        }
        WriteQuestion::UnreadBackup { device, unread } => {
            let folder = unread.folder.shown();
            format!(
                "{}: give it another identity, though {folder}, which can't be read, may have its own?",
                device.shown()
            )
        }
        WriteQuestion::Loss { device, loss } => {
            format!("{}: {}. Go on?", device.shown(), loss.words().join("; ").shown())
        }
        WriteQuestion::UnknownNeighbours { device, why } => {
            let unknown = "asmpatch couldn't check whether another unit has the same serial number";
            format!("{device}: {unknown} ({why}): go on?")
        }
        WriteQuestion::OtherLine { device, from, to } => {
            format!("{device}: change the version's line from {from} to {to}?")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::behaviour::StartedCode;
    use crate::tests;

    #[test]
    fn a_self_test_measures_only_a_unit_that_is_back_with_what_was_written() {
        let written = |place: &str, is_there: bool, runs| {
            let after = is_there.then(|| tests::unit(place, "DOCK0001"));
            let report = FlashReport { after, runs, ..FlashReport::new(place.parse().unwrap()) };
            let wanted = has_wanted(&UnitOutcome::Written(report), &Invocation::default());
            wanted.map_err(|failure| failure.coded().code().to_owned())
        };
        let untested = Err("asmpatch::flash::untested".to_owned());
        assert_eq!(written("3-1.2", true, Some(StartedCode::Written)), Ok(true));
        assert_eq!(written("3-1.2", false, None), untested, "it is not back");
        assert_eq!(written("3-1.2", true, Some(StartedCode::Before)), untested, "it runs its old firmware");
        // It starts what was written when it is opened again.
        assert_eq!(written("virtual:unit", true, Some(StartedCode::Before)), Ok(true));
        let wanted = |outcome| has_wanted(&outcome, &Invocation::default()).unwrap();
        assert!(wanted(UnitOutcome::Unchanged) && !wanted(UnitOutcome::Write));
    }
}
