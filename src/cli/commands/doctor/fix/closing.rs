//! Where a run of `doctor --fix` stands when it ends: what was done, what is left, and the exit status.

use asm2464::{AnyFailure, Kind};
use serde::Serialize;

use super::plan::Finding;
use super::{DoctorJson, End, Session};
use crate::cli::words::errors::{ErrorJson, Exit};
use crate::cli::words::print;
use crate::cli::words::worded_step::{WordedStep, lines};

/// A step that was taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DoneStep {
    /// The topic of the finding.
    pub(super) topic: String,
    /// What was found.
    pub(super) found: String,
    /// The step.
    pub(super) step: WordedStep,
    /// The exit status of its command; missing if it was done by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u8>,
    /// The document that its command printed, or that of its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) document: Option<serde_json::Value>,
}

/// A step that was not taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeftStep {
    /// The topic of the finding.
    topic: String,
    /// What was found.
    found: String,
    /// The first step that would be next; missing if nothing is known to help, or all was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<WordedStep>,
}

/// What `doctor --fix --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct DoctorFixJson {
    /// The last diagnosis, as `doctor --json` prints it; missing if the unit could not be examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnosis: Option<DoctorJson>,
    /// Why it could not be examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
    /// The steps that were taken, in their order.
    done: Vec<DoneStep>,
    /// What still keeps a runtime from starting, with the step that needs your hands, an answer or a value.
    left: Vec<LeftStep>,
}

impl print::Document for DoctorFixJson {}

impl DoneStep {
    pub(super) fn new(finding: &Finding, step: &WordedStep) -> Self {
        let Finding { topic, found, .. } = finding.clone();
        Self { topic, found, step: step.clone(), status: None, document: None }
    }
}

impl Session<'_> {
    /// Says where the run stands, and returns its exit status: the last diagnosis's, or that of the last command if it
    /// failed and that is worse.
    pub(super) fn close(self, ended: Result<End, AnyFailure>) -> Result<Exit, AnyFailure> {
        let (end, failure) = match ended {
            Ok(end) => (Some(end), None),
            Err(failure) => (None, Some(failure)),
        };
        let diagnosed = self.state.as_ref().map_or(Exit::Done, |state| state.exit);
        let stopped = self.unfinished.as_ref().map_or(Exit::Done, |(exit, _)| *exit);
        let exit = match (&failure, end) {
            (Some(failure), _) => Exit::from(failure.kind()),
            (None, Some(End::Good)) => Exit::Done,
            (None, _) => diagnosed.max(self.last).max(stopped),
        };
        if self.args.json {
            self.print_json(failure.as_ref());
            return Ok(exit);
        }
        if let Some(failure) = failure.filter(|failure| failure.kind() != Kind::Interrupted) {
            return Err(failure);
        }
        let said = match end {
            None => "stopped by Ctrl-C",
            Some(End::Good) => "",
            Some(End::Nothing) if self.tried.has_written && self.has_steps() => {
                "the firmware was written once in this run, and is not written again"
            }
            Some(End::Nothing) if self.can_ask || !self.has_steps() => "no step is left that wasn't tried",
            Some(End::Nothing) => "what is left needs your hands or an answer, and there is no terminal to ask on",
            Some(End::No) => "the answer was no: nothing else is done",
            Some(End::LacksValue) => "only you know what that command takes: run it, then go on",
            Some(End::Stopped) => "what the write has printed is what helps",
            Some(End::Lost) => "nobody knows which unit it is now: name it with `--device`",
        };
        self.say("");
        for DoneStep { topic, step, status, .. } in &self.done {
            let ended = match status {
                None => "by hand".to_owned(),
                Some(0) => "done".to_owned(),
                Some(status) => format!("status {status}"),
            };
            let what = step.line().unwrap_or_else(|| step.purpose.to_string());
            self.say(&format!("  {ended:<8}  {topic}: {what}"));
        }
        if !said.is_empty() {
            self.say(said);
        }
        if let Some((_, steps)) = &self.unfinished {
            self.say("left, of what the write has printed:");
            lines(steps).iter().for_each(|line| self.say(&format!("    {line}")));
        } else if end != Some(End::Good) {
            for left in self.left() {
                let step = left.step.map(|step| format!(" ({})", step.note())).unwrap_or_default();
                self.say(&format!("left: {}: {}{step}", left.topic, left.found));
            }
            self.say("see what is left:");
            self.say(&format!("    {}", self.invocation_at_unit().other("doctor")));
        }
        Ok(exit)
    }

    /// Whether a finding has steps that this run does not take.
    fn has_steps(&self) -> bool {
        self.left().iter().any(|left| left.step.is_some())
    }

    /// What still keeps a runtime from starting.
    fn left(&self) -> Vec<LeftStep> {
        if let Some((_, steps)) = &self.unfinished {
            let stopped = |step: &WordedStep| LeftStep {
                topic: "firmware".to_owned(),
                found: "a write did not end well".to_owned(),
                step: Some(step.clone()),
            };
            return steps.iter().map(stopped).collect();
        }
        let findings = self.state.iter().flat_map(|state| &state.findings);
        let left = findings.map(|finding| {
            let step = self.tried.untried(finding).into_iter().next();
            let step = step.and_then(|choice| choice.ways.into_iter().flatten().next());
            LeftStep { topic: finding.topic.clone(), found: finding.found.clone(), step }
        });
        left.collect()
    }

    fn print_json(self, failure: Option<&AnyFailure>) {
        let left = self.left();
        let invocation = self.invocation_at_unit();
        let (diagnosis, unexamined) = self.state.map_or((None, None), |state| (state.diagnosis, state.error));
        let error = failure.or(unexamined.as_ref()).map(|failure| ErrorJson::of(failure.coded(), &invocation));
        print::json(&DoctorFixJson { diagnosis, error, done: self.done, left });
    }
}
