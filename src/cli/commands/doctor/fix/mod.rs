//! `asmpatch doctor --fix`: takes doctor's steps, one after the other, until a runtime can start.
//!
//! ```text
//!  examine ─► findings with their steps ─► plan: the next choice ─► a question ─► a command, or a wait ─┐
//!     ▲                                                                                                 │
//!     └─────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! - The loop knows no firmware, port or fault: it takes what doctor found, and the steps that doctor has for it.
//!   [`plan`] decides what is next, and is pure.
//! - asmpatch's own command runs in this process, from its typed [`PrintedCommand`], and asks its own questions. The
//!   system's commands and what hands do are shown; [`wait`] sees when something has changed.
//! - **Nothing is permitted here.** What has an option that permits something is shown whole and asked about, even if
//!   doctor is certain. Without a terminal only what restarts or looks is done.
//! - **Firmware is written once**: again only by the steps that the write itself printed. After a write that stopped
//!   nothing else follows, because doctor's steps, such as "unplug it", can be what keeps the unit from being written
//!   again (docs/recovery.md).
//! - **The unit is followed** from where a command left it ([`follow`]). [`closing`] says where a run stands at its end.

pub(in crate::cli) mod closing;
mod follow;
pub(super) mod plan;
mod wait;

use std::collections::{HashSet, VecDeque};
use std::io::IsTerminal as _;

use asm2464::escape::Escape as _;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind};
use owo_colors::OwoColorize as _;

use self::closing::DoneStep;
use self::follow::Followed;
use self::plan::{Choice, Finding, Tried, Way};
use self::wait::{Watched, Woken};
use super::{Args, DoctorJson, look, take_out};
use crate::advice::Applicability;
use crate::cli::given::arguments::UnitsArgs;
use crate::cli::given::context::Context;
use crate::cli::words::ask;
use crate::cli::words::errors::{self, ErrorJson, Exit};
use crate::cli::words::interrupt;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::printed_command::{Effect, PrintedCommand};
use crate::cli::words::worded_step::{StepCommand, WordedStep, lines};
use crate::unit::facts::HostState;
use crate::unit::{self, Selector};

/// The most steps of one run. Each step is taken once, so only steps with ever new texts get there.
const MOST_STEPS: usize = 40;

/// What an examination has led to.
struct State {
    findings: Vec<Finding>,
    exit: Exit,
    diagnosis: Option<DoctorJson>,
    error: Option<AnyFailure>,
    /// Why a runtime may be at work on the unit.
    at_work: Option<String>,
}

/// How a choice ended.
enum Taken {
    /// It was done; `wrote` is whether a flash was written.
    Done { wrote: bool },
    /// Something changed while the user was waited for, who may not be at the end of the step.
    Changed,
    /// A command that writes a flash did not end well: these are its own steps.
    Failed(Vec<WordedStep>),
    /// Another command did not end well.
    DidNotHelp,
    /// The run ends with it.
    Ends(End),
}

/// Runs the subcommand.
///
/// # Errors
/// If the arguments are wrong. What goes wrong later is shown, and decides the exit status.
pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    if args.units.device.len() > 1 {
        let message = "`--fix` leads through the steps of one unit, and several are named";
        return Err(Failure::new(Kind::Usage.code("asmpatch::doctor::fix_one"), message).into());
    }
    let can_ask = !args.json && ask::can_ask() && std::io::stderr().is_terminal();
    let mut session = Session {
        args,
        context,
        interrupt: interrupt::install(),
        can_ask,
        followed: None,
        expected: args.expect,
        tried: Tried::default(),
        done: Vec::new(),
        last: Exit::Done,
        state: None,
        unfinished: None,
        named: args.units.device.clone(),
    };
    let ended = session.lead();
    session.close(ended)
}

/// One run.
struct Session<'a> {
    args: &'a Args,
    context: &'a Context,
    interrupt: Interrupt<'static>,
    /// Whether there is a user to ask.
    can_ask: bool,
    /// The unit, once it is known.
    followed: Option<Followed>,
    /// The device that a runtime of the user's own drives.
    expected: Option<crate::gpus::PciId>,
    tried: Tried,
    done: Vec<DoneStep>,
    /// How the last command ended.
    last: Exit,
    /// The last examination.
    state: Option<State>,
    /// How a write ended that did not end well, and its own steps, until one does.
    unfinished: Option<(Exit, Vec<WordedStep>)>,
    /// The unit that was named, until it is known where it is.
    named: Vec<Selector>,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A runtime can start, or nothing shows that there is a dock.
    Good,
    /// No step is left.
    Nothing,
    /// The answer was no.
    No,
    /// Only the user knows a value.
    LacksValue,
    /// A write stopped, and its own steps are at their end.
    Stopped,
    /// The unit could not be followed.
    Lost,
}

impl Session<'_> {
    /// Takes one step after the other.
    ///
    /// # Errors
    /// On Ctrl-C.
    fn lead(&mut self) -> Result<End, AnyFailure> {
        let mut waits_again = None;
        for _ in 0..MOST_STEPS {
            let state = self.examine()?;
            let (is_good, at_work, findings) =
                (state.exit == Exit::Done, state.at_work.clone(), state.findings.clone());
            let next = self
                .tried
                .next(&findings, self.can_ask, |choice| self.can_ask || self.is_silent(choice, at_work.as_deref()));
            let is_still_there = next.is_some() && waits_again == next;
            waits_again = None;
            if !is_still_there {
                self.show(&state);
            }
            self.state = Some(state);
            if is_good {
                return Ok(End::Good);
            }
            let Some((number, choice)) = &next else { return Ok(End::Nothing) };
            let finding = &findings[*number];
            if is_still_there {
                self.say(&format!("still: {}", finding.found));
            }
            match self.take(finding, choice, at_work.as_deref())? {
                Taken::Changed => waits_again = next,
                Taken::Done { .. } | Taken::DidNotHelp => self.tried.note(&finding.topic, choice),
                Taken::Ends(end) => return Ok(end),
                Taken::Failed(steps) => {
                    self.tried.note(&finding.topic, choice);
                    if let Some(end) = self.recover(finding, steps)? {
                        return Ok(end);
                    }
                }
            }
            if let Some(followed) = &mut self.followed
                && !followed.find(&self.args.units.ids, self.can_ask, self.interrupt)?
            {
                return Ok(End::Lost);
            }
        }
        Ok(End::Nothing)
    }

    /// Takes the steps of a write that did not end well, until one ends well. Returns how the run ends, unless the unit
    /// can be examined again.
    fn recover(&mut self, finding: &Finding, steps: Vec<WordedStep>) -> Result<Option<End>, AnyFailure> {
        self.unfinished = Some((self.last, steps.clone()));
        let mut seen = HashSet::new();
        let mut waiting: VecDeque<Choice> = Choice::each(&steps).into();
        while let Some(choice) = waiting.pop_front() {
            if !seen.insert(choice.key(&finding.topic)) || self.done.len() > MOST_STEPS {
                continue;
            }
            if !self.can_ask && !self.is_silent(&choice, None) {
                return Ok(Some(End::Stopped));
            }
            match self.take(finding, &choice, None)? {
                Taken::Done { wrote: true } => {
                    self.unfinished = None;
                    return Ok(None);
                }
                Taken::Done { .. } | Taken::Changed | Taken::DidNotHelp => {}
                Taken::Ends(end) => return Ok(Some(end)),
                Taken::Failed(steps) => {
                    self.unfinished = Some((self.last, steps.clone()));
                    waiting = Choice::each(&steps).into();
                }
            }
        }
        if !self.tried.has_written {
            self.unfinished = None;
            return Ok(None);
        }
        // Plugged in again, the unit may be what it should be. If it isn't, doctor's steps don't follow.
        let state = self.examine()?;
        self.show(&state);
        let is_good = state.exit == Exit::Done;
        self.state = Some(state);
        if is_good {
            self.unfinished = None;
        }
        Ok(Some(if is_good { End::Good } else { End::Stopped }))
    }

    /// Examines the unit.
    ///
    /// # Errors
    /// On Ctrl-C.
    fn examine(&mut self) -> Result<State, AnyFailure> {
        self.interrupt.check()?;
        let device = match &self.followed {
            Some(followed) => vec![Selector::from(&followed.location)],
            None => self.named.clone(),
        };
        let units = UnitsArgs { device, ids: self.args.units.ids.clone(), ..UnitsArgs::default() };
        let args = Args { units, expect: self.expected, json: self.args.json, ..Args::default() };
        let looked = look(&args, self.context, false);
        self.interrupt.check()?;
        Ok(match looked {
            // Beside a unit, what is connected over USB4 is no matter of this run.
            Ok(mut documents) if !documents.is_empty() => self.state_of(documents.swap_remove(0)),
            Ok(_) => State { findings: Vec::new(), exit: Exit::Done, diagnosis: None, error: None, at_work: None },
            Err(error) => self.unexamined(error),
        })
    }

    fn state_of(&mut self, document: DoctorJson) -> State {
        if let Some(unit) = &document.unit {
            match &mut self.followed {
                Some(followed) => followed.is_now(unit),
                None => self.followed = Some(Followed::of(unit)),
            }
        }
        let (findings, exit) = (document.findings(), document.diagnosis.exit());
        let at_work = document.at_work.clone();
        State { findings, exit, diagnosis: Some(document), error: None, at_work }
    }

    /// What keeps a unit from being examined is a finding as well. On a virtual unit, anything that is set may be what does.
    fn unexamined(&self, error: AnyFailure) -> State {
        let invocation = self.invocation_at_unit();
        let named = self.named.iter().find_map(Selector::virtual_place);
        let location = self.followed.as_ref().map(|followed| &followed.location).or(named.as_ref());
        let set = location.map(unit::set_keys).unwrap_or_default();
        let finding = Finding {
            topic: "unit".to_owned(),
            found: errors::with_causes(error.coded()).shown().to_string(),
            steps: take_out(set, &invocation).into_iter().chain(errors::steps(error.coded(), &invocation)).collect(),
        };
        let exit = Exit::from(error.kind());
        State { findings: vec![finding], exit, diagnosis: None, error: Some(error), at_work: None }
    }

    /// The command that was run, for the unit.
    fn invocation_at_unit(&self) -> Invocation {
        match &self.followed {
            Some(followed) => self.context.invocation.at(&followed.location),
            None => (*self.context.invocation).clone(),
        }
    }

    /// Says a line to the user; with --json there is none.
    fn say(&self, line: &str) {
        if !self.args.json {
            outln!("{line}");
        }
    }

    /// Shows what was found, without steps: those that are taken are shown one by one.
    fn show(&self, state: &State) {
        if self.args.json {
            return;
        }
        match (&state.diagnosis, &state.error) {
            (Some(document), _) => {
                document.diagnosis.without_advice().print(&document.heading, self.context.is_verbose);
            }
            (None, Some(error)) => {
                errors::report_with(error.coded(), &[], &self.invocation_at_unit());
            }
            (None, None) => {}
        }
    }

    /// Takes one way of a choice.
    ///
    /// # Errors
    /// On Ctrl-C.
    fn take(&mut self, finding: &Finding, choice: &Choice, at_work: Option<&str>) -> Result<Taken, AnyFailure> {
        self.say("");
        self.say(&finding.topic.bold().to_string());
        lines(&choice.by_hand).iter().for_each(|line| self.say(&format!("  {line}")));
        let (way, was_chosen): (&Way, bool) = match choice.ways.as_slice() {
            [only] => (only, false),
            _ if !self.can_ask => (&choice.ways[0], false),
            ways => match self.chosen(ways)? {
                Some(way) => (way, true),
                None => return Ok(Taken::Ends(End::No)),
            },
        };
        let mut wrote = false;
        for step in way {
            if !was_chosen || way.len() > 1 {
                lines(std::slice::from_ref(step)).iter().for_each(|line| self.say(&format!("  {line}")));
            }
            let (own, is_agreed) = match (&step.command, step.applicability) {
                // It lacks its unit.
                (Some(StepCommand::Own(_)), Applicability::NeedsValue) => return Ok(Taken::Ends(End::LacksValue)),
                (Some(StepCommand::Own(command)), _) => (Some(command.clone()), was_chosen && step.question.is_none()),
                (None, Applicability::NeedsValue) => match self.completed(step)? {
                    Some(command) => (Some(command), false),
                    None => return Ok(Taken::Ends(End::LacksValue)),
                },
                (Some(StepCommand::System(_)) | None, _) => (None, false),
            };
            if let Some(command) = own {
                if !self.may_run(&command, step, is_agreed, at_work)? {
                    return Ok(Taken::Ends(End::No));
                }
                match self.run_own(finding, step, &command)? {
                    Taken::Done { wrote: now } => wrote |= now,
                    ended => return Ok(ended),
                }
                continue;
            }
            if !self.can_ask {
                return Ok(Taken::Ends(End::No));
            }
            if let Some(question) = &step.question
                && !ask::is_yes(question, self.interrupt)?
            {
                return Ok(Taken::Ends(End::No));
            }
            let woken = self.wait()?;
            if woken == Woken::Closed {
                return Ok(Taken::Ends(End::No));
            }
            let done = DoneStep::new(finding, step);
            if !self.done.contains(&done) {
                self.done.push(done);
            }
            if woken == Woken::Changed && way.len() == 1 {
                return Ok(Taken::Changed);
            }
        }
        Ok(Taken::Done { wrote })
    }

    /// Lets the user choose one of several ways. There is no default: an identity may be at stake.
    fn chosen<'w>(&self, ways: &'w [Way]) -> Result<Option<&'w Way>, AnyFailure> {
        for (number, way) in (1..).zip(ways) {
            let shown = lines(way);
            for (index, line) in shown.iter().enumerate() {
                let label = if index == 0 { format!("{number}") } else { String::new() };
                self.say(&format!("  {label:<2} {line}"));
            }
        }
        Ok(ask::which(ways.len(), self.interrupt)?.and_then(|index| ways.get(index)))
    }

    /// Asks for the value that a command lacks, and shows the command. `None` if more than a line is missing, or if the
    /// command takes none of the answers.
    fn completed(&self, step: &WordedStep) -> Result<Option<PrintedCommand>, AnyFailure> {
        let Some(lacks) = step.lacks.as_ref().filter(|_| self.can_ask) else { return Ok(None) };
        let prompt = format!("{} (Enter for none):", lacks.words[lacks.at].to_string_lossy());
        for _ in 0..ask::TRIES {
            let Some(value) = ask::text(&prompt, self.interrupt)? else { return Ok(None) };
            let command = self.invocation_at_unit().completed(lacks.with(&value));
            match Invocation::parse(command.words()) {
                Ok(_) => {
                    self.say(&format!("      {command}"));
                    return Ok(Some(command));
                }
                Err(error) => errln!("{}", error.render().to_string().lines().next().unwrap_or_default()),
            }
        }
        Ok(None)
    }

    /// Asks what must be asked before a command is run. `is_agreed` is whether the user has chosen it already.
    fn may_run(
        &self,
        command: &PrintedCommand,
        step: &WordedStep,
        is_agreed: bool,
        at_work: Option<&str>,
    ) -> Result<bool, AnyFailure> {
        let mut questions = Vec::new();
        if let Some(question) = &step.question {
            questions.push(format!("{question}. Is it?"));
        }
        let permits = command.consents();
        if self.can_ask {
            permits.iter().for_each(|(option, says)| self.say(&format!("  {option}: {says}")));
        }
        if !permits.is_empty() {
            questions.push("Permit that, and run it?".to_owned());
        } else if step.question.is_none() && !is_agreed {
            let asks = step.applicability != Applicability::Certain || command.effect() == Effect::SetsVirtual;
            if asks {
                questions.push("Run it?".to_owned());
            }
        }
        if command.effect() == Effect::Restarts {
            // A runtime may have taken its lock since the unit was examined.
            let holder = self.followed.as_ref().and_then(|followed| HostState::of(&followed.location).lock_holder());
            if let Some(why) = holder.as_deref().or(at_work) {
                questions.push(format!("{why}. Restart it all the same?"));
            }
        }
        if !self.can_ask {
            return Ok(questions.is_empty());
        }
        for question in questions {
            if !ask::is_yes(&question, self.interrupt)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a choice asks nothing, and needs nobody.
    fn is_silent(&self, choice: &Choice, at_work: Option<&str>) -> bool {
        let ([way], []) = (choice.ways.as_slice(), choice.by_hand.as_slice()) else { return false };
        way.iter().all(|step| {
            let Some(StepCommand::Own(command)) = &step.command else { return false };
            let is_harmless = matches!(command.effect(), Effect::Looks | Effect::Restarts);
            is_harmless && self.may_run(command, step, false, at_work).unwrap_or(false)
        })
    }

    /// Waits until the user has done a step. Meanwhile no unit is held.
    fn wait(&mut self) -> Result<Woken, AnyFailure> {
        if let Some(followed) = &mut self.followed {
            followed.leave_to_hands(&self.args.units.ids);
        }
        let location = self.followed.as_ref().map(|followed| &followed.location);
        let watched = Watched::of(location);
        let sees = if watched.sees_changes() {
            "asmpatch goes on once it sees a change, or on Enter"
        } else {
            "Enter goes on"
        };
        self.say(&format!("  ({sees}; Ctrl-C ends)").dimmed().to_string());
        watched.wait(self.interrupt)
    }

    /// Runs one of asmpatch's own commands in this process.
    ///
    /// # Errors
    /// On Ctrl-C.
    fn run_own(&mut self, finding: &Finding, step: &WordedStep, command: &PrintedCommand) -> Result<Taken, AnyFailure> {
        if command.subcommand() == "doctor" {
            // Doctor examines next: the unit that this command names, for what it looks for.
            self.expected = command.value("expect").and_then(|id| id.to_str()?.parse().ok()).or(self.expected);
            let device = command.value("device").and_then(|device| device.to_str()?.parse().ok());
            if let (None, Some(device)) = (&self.followed, device) {
                self.named = vec![device];
            }
            return Ok(Taken::Done { wrote: false });
        }
        let ran = match self.context.run(&command.words(), self.args.json) {
            Ok(ran) => ran,
            Err(error) => {
                let message = format!("{command}: {error}");
                return Err(Failure::new(Kind::Usage.code("asmpatch::doctor::fix_command"), message).into());
            }
        };
        let (exit, steps, is_declined, error) = match &ran.outcome {
            Ok(exit) => (*exit, Vec::new(), false, None),
            Err(failure) => {
                let invocation = &ran.context.invocation;
                let error = (!self.args.json).then(|| errors::report_end(failure, false, invocation));
                let is_declined = failure.code() == ask::DECLINED.code;
                let exit = error.unwrap_or_else(|| Exit::from(failure.kind()));
                let json = serde_json::to_value(ErrorJson::of(failure.coded(), invocation)).ok();
                (exit, errors::steps(failure.coded(), invocation), is_declined, json)
            }
        };
        let left = ran.context.taken_left();
        if let Some(followed) = &mut self.followed
            && let Some(location) = left.location
        {
            followed.location = location;
        }
        self.tried.has_written |= left.has_begun;
        self.last = exit;
        let document = serde_json::from_str(&ran.said).ok().or(error);
        let step = WordedStep { command: Some(StepCommand::Own(command.clone())), ..step.clone() };
        self.done.push(DoneStep { status: Some(exit as u8), document, ..DoneStep::new(finding, &step) });
        self.interrupt.check()?;
        let wrote = command.effect() == Effect::Writes;
        if exit == Exit::Done {
            return Ok(Taken::Done { wrote });
        }
        if is_declined {
            return Ok(Taken::Ends(End::No));
        }
        if !wrote {
            return Ok(Taken::DidNotHelp);
        }
        Ok(Taken::Failed(if left.steps.is_empty() { steps } else { left.steps }))
    }
}
