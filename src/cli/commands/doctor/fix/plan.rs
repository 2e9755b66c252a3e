//! What to do next, from what doctor found and what was tried. Pure.

use std::collections::HashSet;

use crate::cli::words::printed_command::Effect;
use crate::cli::words::worded_step::{Follows, StepCommand, WordedStep};

/// Steps of which each is taken after the one before it.
pub type Way = Vec<WordedStep>;

/// What keeps a runtime from starting, with the steps that doctor has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The topic.
    pub topic: String,
    /// What was found.
    pub found: String,
    /// What helps, in the order in which to try it.
    pub steps: Vec<WordedStep>,
}

/// Ways that lead to one end: the user takes one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What the user does in place of all of them, where asmpatch has a way: to choose it would only be to wait.
    pub by_hand: Vec<WordedStep>,
    /// The ways, the first of which is the most likely.
    pub ways: Vec<Way>,
}

impl Choice {
    /// Divides steps into choices, in the order in which to try them.
    pub fn each(steps: &[WordedStep]) -> Vec<Self> {
        let mut choices: Vec<Self> = Vec::new();
        for step in steps {
            match (step.follows, choices.last_mut()) {
                (Some(Follows::Then), Some(Self { ways, .. })) if !ways.is_empty() => {
                    if let Some(way) = ways.last_mut() {
                        way.push(step.clone());
                    }
                }
                (Some(Follows::Instead), Some(Self { ways, .. })) => ways.push(vec![step.clone()]),
                _ => choices.push(Self { by_hand: Vec::new(), ways: vec![vec![step.clone()]] }),
            }
        }
        for Self { by_hand, ways } in &mut choices {
            let has_command = |way: &Way| way.iter().any(|step| step.command.is_some() || step.lacks.is_some());
            if ways.iter().any(has_command) {
                by_hand.extend(ways.extract_if(.., |way| !has_command(way)).flatten());
            }
        }
        choices
    }

    /// What tells it from others against the same finding.
    pub fn key(&self, topic: &str) -> String {
        let steps = self.by_hand.iter().chain(self.ways.iter().flatten()).map(WordedStep::note);
        [topic.to_owned()].into_iter().chain(steps).collect::<Vec<_>>().join("\n")
    }

    /// Leaves out the ways that write a flash.
    fn without_writes(mut self) -> Option<Self> {
        let writes =
            |step: &WordedStep| matches!(&step.command, Some(StepCommand::Own(own)) if own.effect() == Effect::Writes);
        self.ways.retain(|way| !way.iter().any(writes));
        if self.ways.is_empty() { None } else { Some(self) }
    }
}

/// What was tried in a run.
#[derive(Debug, Default)]
pub struct Tried {
    choices: HashSet<String>,
    topics: HashSet<String>,
    /// Whether a command has begun to write a flash: doctor's steps don't write it again.
    pub has_written: bool,
}

impl Tried {
    /// Notes that a choice was tried.
    pub fn note(&mut self, topic: &str, choice: &Choice) {
        self.choices.insert(choice.key(topic));
        self.topics.insert(topic.to_owned());
    }

    /// Returns the choices against a finding that were not tried.
    pub fn untried(&self, finding: &Finding) -> Vec<Choice> {
        let mut choices = Choice::each(&finding.steps);
        choices.retain(|choice| !self.choices.contains(&choice.key(&finding.topic)));
        choices
    }

    /// Chooses what to do: the first step of the first finding that was not tried. Returns the finding's number and the
    /// choice; `None` if no step is left. A topic that stays after the last step of each of its findings ends the run,
    /// unless nothing can be asked: then the others may have steps that ask nothing, for which `can_take` is called.
    pub fn next(
        &self,
        findings: &[Finding],
        can_ask: bool,
        can_take: impl Fn(&Choice) -> bool,
    ) -> Option<(usize, Choice)> {
        let mut stays: Option<&str> = None;
        for (number, finding) in findings.iter().enumerate() {
            if stays.is_some_and(|topic| topic != finding.topic) {
                continue;
            }
            let choices = self.untried(finding);
            let choice = if self.has_written {
                choices.into_iter().find_map(Choice::without_writes)
            } else {
                choices.into_iter().next()
            };
            // Without an answer to a finding's first step nobody knows whether those after it are right.
            if let Some(choice) = choice.filter(&can_take) {
                return Some((number, choice));
            }
            if can_ask && self.topics.contains(&finding.topic) {
                stays = Some(&finding.topic);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::words::invocation::Invocation;

    fn own(line: &str) -> WordedStep {
        WordedStep::run(line.to_owned(), Invocation::default().other(line))
    }

    fn finding(topic: &str, steps: Vec<WordedStep>) -> Finding {
        Finding { topic: topic.to_owned(), found: "bad".to_owned(), steps }
    }

    fn purposes(next: Option<&(usize, Choice)>) -> Vec<Vec<String>> {
        let Some((_, choice)) = next else { return Vec::new() };
        choice.ways.iter().map(|way| way.iter().map(|step| step.purpose.to_string()).collect()).collect()
    }

    /// Takes each step of these findings, until none is left. Returns the purposes of each choice.
    fn taken(findings: &[Finding], tried: &mut Tried) -> Vec<Vec<Vec<String>>> {
        let mut taken = Vec::new();
        while let Some(next) = tried.next(findings, true, |_| true) {
            assert!(taken.len() < 9, "{taken:?}");
            tried.note(&findings[next.0].topic, &next.1);
            taken.push(purposes(Some(&next)));
        }
        taken
    }

    #[test]
    fn steps_are_divided_into_choices_of_ways_of_steps() {
        let steps =
            [own("list"), own("patch f -o g").instead(), own("flash g").then(), own("reset"), own("list").then()];
        let choices = Choice::each(&steps);
        let lens: Vec<Vec<usize>> = choices.iter().map(|choice| choice.ways.iter().map(Vec::len).collect()).collect();
        assert_eq!(lens, [vec![1, 2], vec![2]]);
    }

    #[test]
    fn what_hands_do_in_place_of_commands_is_no_way_to_choose() {
        let hands = WordedStep::hands("name the folder of its backups, and run this again");
        let steps = [hands.clone(), own("flash ed4e39b").instead(), own("flash 240417").instead()];
        let choices = Choice::each(&steps);
        let ways = vec![vec![steps[1].clone()], vec![steps[2].clone()]];
        assert_eq!(choices, [Choice { by_hand: vec![hands.clone()], ways }]);
        // Where there is nothing else, hands are the way.
        let choices = Choice::each(&[hands.clone(), hands.clone().instead()]);
        assert_eq!(choices[0].ways.len(), 2);
    }

    #[test]
    fn a_finding_that_stays_gets_its_next_step_and_never_the_same_again_and_then_the_run_ends() {
        let findings = [finding("USB", vec![own("reset"), own("pcie")]), finding("GPU", vec![own("list")])];
        let mut tried = Tried::default();
        assert_eq!(taken(&findings, &mut tried), [[["reset"]], [["pcie"]]]);
        // With nobody to ask the others may have steps as well.
        assert_eq!(purposes(tried.next(&findings, false, |_| true).as_ref()), [["list"]]);
    }

    #[test]
    fn a_topic_with_two_findings_ends_the_run_only_once_both_have_no_step_left() {
        let other = Finding { found: "other".to_owned(), ..finding("USB4", vec![own("pcie")]) };
        let findings = [finding("USB4", vec![own("reset")]), finding("GPU", vec![own("list")]), other];
        assert_eq!(taken(&findings, &mut Tried::default()), [[["reset"]], [["pcie"]]]);
    }

    #[test]
    fn without_an_answer_to_a_findings_first_step_none_of_its_later_ones_is_taken() {
        let findings = [finding("bulk pipes", vec![WordedStep::hands("end the runtime"), own("reset")])];
        let is_silent = |choice: &Choice| choice.ways[0][0].command.is_some();
        assert_eq!(Tried::default().next(&findings, false, is_silent), None);
    }

    #[test]
    fn once_a_flash_was_written_no_step_of_doctor_writes_it_again() {
        let steps = vec![own("flash ed4e39b"), own("patch 240417 -o p").instead(), own("flash p").then(), own("reset")];
        let findings = [finding("firmware", steps)];
        let mut tried = Tried { has_written: true, ..Tried::default() };
        assert_eq!(purposes(tried.next(&findings, true, |_| true).as_ref()), [["reset"]]);
        tried.has_written = false;
        assert_eq!(purposes(tried.next(&findings, true, |_| true).as_ref()).len(), 2);
    }
}
