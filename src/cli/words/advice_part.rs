//! The parts of an advice, as the table of errors and refusals write it, and their words as steps.
//!
//! A step has what it is for and, if one helps, the command, completed by the command that was run. As text, the command
//! stands on a line of its own, which nothing folds; as JSON, it is a key of its own.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;

use asm2464::Named;

use crate::advice::Hands;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::line::Line;
use crate::cli::words::printed_command::{Effect, PrintedCommand, own_and_tail};
use crate::cli::words::worded_step::{Follows, Lacking, WordedStep};
use crate::fetch::Source;
use crate::shell;

/// A part of an advice.
#[derive(Debug, Clone)]
pub enum AdvicePart {
    /// What asmpatch says: a literal, which may have several lines, or a line with words from outside in it.
    Text(Cow<'static, str>),
    /// What you do with your hands.
    Hands(Hands),
    /// Another command, written without quotes and without `asmpatch`; after `$`, one of the system's. A word in braces,
    /// such as `{FILE}`, stands for what the error or the command that was run names.
    Run {
        /// What it is for.
        purpose: &'static str,
        /// The command.
        line: &'static str,
    },
    /// The same command with the values that the error names for an argument.
    Again {
        /// What it is for.
        purpose: &'static str,
        /// The argument's ID.
        id: &'static str,
        /// What its values are, as in a [`AdvicePart::Run`].
        slot: &'static str,
        /// Whether each value has a command of its own.
        is_each: bool,
    },
    /// A text about an option, which stands at `{}`. It is left out after a command that has neither the option nor a
    /// variable in its place.
    Option {
        /// The argument's ID.
        id: &'static str,
        /// The value to show: `None` for the one that the help names, an empty one for none.
        value: Option<&'static str>,
        /// The text.
        text: &'static str,
    },
    /// Another command, of which only the unit and what may travel is missing.
    Command(Cow<'static, str>, PrintedCommand),
    /// The same command with another file or image as its first operand.
    AgainWith {
        /// What it is for.
        purpose: &'static str,
        /// The file, or the image's ID.
        value: OsString,
    },
    /// A step that is in words already.
    Step(WordedStep),
}

impl AdvicePart {
    /// A text.
    pub fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(text.into())
    }
}

/// Puts an advice into words, after this command and an error that names these. Text and hands that follow one another
/// are one step for each of their lines.
pub fn worded(parts: &[AdvicePart], invocation: &Invocation, named: &[Named]) -> Vec<WordedStep> {
    let mut words = Words { invocation, named, said: String::new(), steps: Vec::new() };
    for part in parts {
        words.add(part);
    }
    words.end_text();
    words.steps
}

/// An advice that is being put into words.
struct Words<'a> {
    invocation: &'a Invocation,
    named: &'a [Named],
    /// The text since the last command, in which only asmpatch's own line breaks are left.
    said: String,
    steps: Vec<WordedStep>,
}

/// What a slot of a command stands for.
enum Values {
    /// These.
    Are(Vec<OsString>),
    /// Only the user knows it.
    Unknown,
    /// The error names something else, so another command helps.
    OfAnotherKind,
}

/// The operands that advice names, by their IDs in clap.
const OPERANDS: [(&str, &[&str]); 3] = [("FILE", &["file", "files", "from"]), ("DIR", &["folder"]), ("ID", &["image"])];

impl Words<'_> {
    fn add(&mut self, part: &AdvicePart) {
        match part {
            AdvicePart::Text(Cow::Borrowed(text)) => self.said.push_str(text),
            AdvicePart::Text(Cow::Owned(text)) => self.said.push_str(&Line::of(text)),
            AdvicePart::Hands(Hands::HandOn) => {
                self.end_text();
                self.said.push_str(&self.invocation.by_hand(Hands::HandOn));
                self.end_text();
            }
            AdvicePart::Hands(hands) => self.said.push_str(&self.invocation.by_hand(*hands)),
            AdvicePart::Option { id, value, text } => {
                if let Some(option) = self.invocation.option(id, *value) {
                    self.said.push_str(&text.replace("{}", &option));
                }
            }
            AdvicePart::Run { purpose, line } => self.run(purpose, line),
            AdvicePart::Again { purpose, id, slot, is_each } => match self.values(slot) {
                Values::OfAnotherKind => {}
                Values::Are(_) if *slot == "FREE" && !self.invocation.is_given(id) => {}
                Values::Are(values) if !self.invocation.is_unknown() => {
                    let again = self.invocation.again().without(id).without("all");
                    let values =
                        if *is_each { values.into_iter().map(|value| vec![value]).collect() } else { vec![values] };
                    for (index, values) in values.into_iter().enumerate() {
                        self.command(*purpose, &again.clone().or_with(id, values));
                        if let Some(step) = self.steps.last_mut().filter(|_| index > 0) {
                            step.follows = Some(Follows::Instead);
                        }
                    }
                }
                _ => {
                    self.end_text();
                    self.said.push_str(purpose);
                }
            },
            AdvicePart::Command(purpose, command) => {
                self.command(purpose.clone(), &self.invocation.completed(command.clone()));
            }
            AdvicePart::AgainWith { purpose, value } => {
                let again = self.invocation.again().with_operand(value);
                self.command(*purpose, &again);
            }
            AdvicePart::Step(step) => {
                self.end_text();
                self.steps.push(step.clone());
            }
        }
    }

    /// Ends the step of what was said.
    fn end_text(&mut self) {
        let said = std::mem::take(&mut self.said);
        self.steps.extend(said.lines().map(WordedStep::hands));
    }

    fn run(&mut self, purpose: &'static str, line: &'static str) {
        let (own, tail) = own_and_tail(line);
        let system = own.strip_prefix("$ ");
        let mut words = Vec::new();
        let mut missing = Vec::new();
        for word in system.unwrap_or(own).split(' ') {
            let Some(slot) = word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) else {
                words.push(OsString::from(word));
                continue;
            };
            match self.values(slot) {
                Values::Are(values) => words.extend(values),
                Values::OfAnotherKind => return,
                Values::Unknown => {
                    missing.push(words.len());
                    words.push(slot.into());
                }
            }
        }
        let lacks_value = !missing.is_empty();
        if system.is_none() {
            let (again, command) = (self.invocation.again(), PrintedCommand::of(words.iter().cloned(), tail));
            let completed = self.invocation.completed(command.clone());
            // What was run would fail again. Where it takes a value, its user has seen which.
            let is_again = if lacks_value { again.takes_all_of(&command) } else { again.words() == completed.words() };
            if is_again {
                return;
            }
            if !lacks_value {
                return self.command(purpose, &completed);
            }
        }
        self.end_text();
        let line = words.iter().map(shell::word).collect::<Vec<_>>().join(" ") + tail;
        let lacks = match missing.as_slice() {
            [at] if system.is_none() && tail.is_empty() => Some(Lacking { words, at: *at }),
            _ => None,
        };
        self.steps.push(if lacks_value {
            // No shell runs it without `asmpatch`.
            WordedStep { lacks, ..WordedStep::lacking(format!("{purpose}: `{line}`")) }
        } else {
            WordedStep::run(purpose, line)
        });
    }

    fn command(&mut self, purpose: impl fmt::Display, command: &PrintedCommand) {
        self.end_text();
        self.steps.push(if command.effect() == Effect::Writes {
            WordedStep::if_yes(purpose, command.clone())
        } else {
            WordedStep::run(purpose, command.clone())
        });
    }

    fn values(&self, slot: &str) -> Values {
        match slot {
            "OUT" => return Values::Are(vec![self.invocation.patched().into()]),
            "ORIGINAL" => return Values::Are(vec![self.invocation.original().into()]),
            _ => {}
        }
        let mut values: Vec<OsString> = Vec::new();
        for named in self.named {
            match (slot, named) {
                ("ID" | "IMAGE", Named::Image(value))
                | ("COPY" | "FREE", Named::File(value))
                | ("PORT", Named::Port(value))
                | ("VID:PID", Named::UsbId(value))
                | ("DISK", Named::Disk(value))
                | ("PLACE", Named::Mount(value))
                | ("DEVICE", Named::Swap(value))
                | ("UUID", Named::Uuid(value)) => values.push(value.into()),
                _ => {}
            }
        }
        if !values.is_empty() {
            return Values::Are(values);
        }
        if slot == "FREE" || ["PLACE", "DEVICE"].contains(&slot) && !self.named.is_empty() {
            return Values::OfAnotherKind;
        }
        let ids = OPERANDS.iter().find(|(name, _)| *name == slot).map(|(_, ids)| *ids).unwrap_or_default();
        match ids.iter().find_map(|id| self.invocation.value(id)) {
            // `download --from` also takes an address.
            Some(value) if value.to_str().is_none_or(|value| matches!(Source::from(value), Source::File(_))) => {
                Values::Are(vec![value.to_owned()])
            }
            _ => Values::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Applicability;
    use crate::cli::words::worded_step::{StepCommand, lines};

    fn said(words: &[&str], named: &[Named], line: &'static str) -> Vec<String> {
        let run = Invocation::parse(words).unwrap();
        lines(&worded(&[AdvicePart::text("first"), AdvicePart::Run { purpose: "do this", line }], &run, named))
    }

    #[test]
    fn a_command_stands_on_a_line_of_its_own_below_what_it_is_for() {
        let pcie = said(&["asmpatch", "pcie", "--device", "3-1"], &[], "pcie reset");
        assert_eq!(pcie, ["first", "do this:", "    asmpatch pcie reset --device 3-1"]);
    }

    #[test]
    fn a_command_that_lacks_a_value_is_shown_so_that_no_shell_runs_it() {
        assert_eq!(said(&["asmpatch", "list"], &[], "info {FILE}")[1..], ["do this: `info FILE`"]);
        let tick = said(&["asmpatch", "wrap", "a `b", "-o", "c"], &[], "info {FILE}");
        let quoted = if cfg!(windows) { "\"a ``b\"" } else { "'a `b'" };
        assert_eq!(tick[2], format!("    asmpatch info {quoted}"));
    }

    #[test]
    fn a_step_that_lacks_one_value_can_be_completed() {
        let run = Invocation::default();
        let steps = worded(&[AdvicePart::Run { purpose: "set it", line: "config set {FIELD=VALUE}" }], &run, &[]);
        let lacks = steps[0].lacks.as_ref().unwrap();
        assert_eq!(lacks.with("serial=A b").words(), ["asmpatch", "config", "set", "serial=A b"]);
        let two =
            worded(&[AdvicePart::Run { purpose: "go", line: "config set {FIELD=VALUE} {FIELD=VALUE}" }], &run, &[]);
        assert_eq!(two[0].lacks, None);
    }

    #[test]
    fn a_command_with_a_pipe_is_the_systems() {
        let step = |command: PrintedCommand| WordedStep::run("do this", command).command;
        let run = Invocation::default();
        assert!(
            matches!(step(run.other("udev | sudo tee f")), Some(StepCommand::System(line)) if line.ends_with("tee f"))
        );
        assert!(matches!(step(run.other("reset")), Some(StepCommand::Own(_))));
    }

    #[test]
    fn the_command_that_was_run_is_no_advice_after_it() {
        assert_eq!(said(&["asmpatch", "pcie", "reset", "--device", "3-1"], &[], "pcie reset"), ["first"]);
        let set = "virtual set {KEY=VALUE}";
        assert_eq!(said(&["asmpatch", "virtual", "set", "a=1", "--device", "virtual:u"], &[], set), ["first"]);
        assert_eq!(said(&["asmpatch", "list"], &[], set)[1..], ["do this: `virtual set KEY=VALUE`"]);
    }

    #[test]
    fn each_command_that_writes_firmware_is_the_users_to_decide_and_each_other_is_certain() {
        let run = Invocation::parse(["asmpatch", "list"]).unwrap();
        for (line, applicability) in [
            ("flash ed4e39b", Applicability::IfYes),
            ("restore b", Applicability::IfYes),
            ("config set serial=A", Applicability::IfYes),
            ("doctor", Applicability::Certain),
            ("backup", Applicability::Certain),
            ("$ sudo udevadm control --reload", Applicability::Certain),
            ("info {FILE}", Applicability::NeedsValue),
        ] {
            let steps = worded(&[AdvicePart::Run { purpose: "do this", line }], &run, &[]);
            assert_eq!((steps.len(), steps[0].applicability), (1, applicability), "{line}");
        }
        for command in ["flash", "restore"] {
            let command = AdvicePart::Command("do this".into(), PrintedCommand::named(command).operand("f"));
            assert_eq!(worded(&[command], &run, &[])[0].applicability, Applicability::IfYes);
        }
        let texts = [AdvicePart::text("look"), AdvicePart::Hands(Hands::Replug)];
        assert_eq!(worded(&texts, &run, &[])[0].applicability, Applicability::Hands);
    }

    #[test]
    fn only_the_command_against_what_the_error_names_is_printed() {
        let mounts = ["/mnt/a b", "/c"].map(|place| Named::Mount(place.to_owned()));
        let quoted = if cfg!(windows) { "\"/mnt/a b\"" } else { "'/mnt/a b'" };
        let umount = said(&["asmpatch", "list"], &mounts, "$ umount {PLACE}");
        assert_eq!(umount[2], format!("    umount {quoted} /c"));
        assert_eq!(said(&["asmpatch", "list"], &mounts, "$ swapoff {DEVICE}"), ["first"]);
    }
}
