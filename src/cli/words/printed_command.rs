//! A command to print: put together from typed parts, and written so that a shell gives them back.

use std::ffi::{OsStr, OsString};
use std::fmt;

use super::command_tree::{ArgClass, Given, SUBCOMMANDS, Spec, specs};
use crate::shell;

/// What a command does to units and to this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It looks: what it writes lasts until the power goes at most.
    Looks,
    /// It makes files of its own.
    MakesFiles,
    /// It restarts the unit, or what is behind it, which a runtime at work doesn't survive.
    Restarts,
    /// It writes the unit's flash or its memory.
    Writes,
    /// It changes what a virtual unit is.
    SetsVirtual,
}

/// Splits a line of the shell into a command and what follows it, a pipe or a redirection, which is another program's.
pub fn own_and_tail(line: &str) -> (&str, &str) {
    line.split_at(line.find(" | ").or_else(|| line.find(" > ")).unwrap_or(line.len()))
}

/// A command to print. Its text is ready for a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedCommand {
    pub(super) subcommand: String,
    pub(super) given: Vec<Given>,
    /// What follows it in the shell, with a space before: ` | sudo tee FILE`.
    pub(super) tail: String,
}

impl PrintedCommand {
    /// Takes a command from its words, without the program's name. An option and its value are two words.
    pub fn of(words: impl IntoIterator<Item = OsString>, tail: &str) -> Self {
        let mut subcommand = String::new();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.peek().and_then(|word| word.to_str()) {
            let longer = format!("{subcommand} {word}").trim().to_owned();
            if !SUBCOMMANDS.contains_key(&longer) {
                break;
            }
            subcommand = longer;
            words.next();
        }
        let mut command = Self { subcommand, given: Vec::new(), tail: tail.to_owned() };
        while let Some(word) = words.next() {
            command = match word.to_str().and_then(|name| command.spec_named(name)) {
                Some(spec) if !spec.takes_value || spec.takes_equals => command.push(spec, OsString::new()),
                Some(spec) => command.push(spec, words.next().unwrap_or_default()),
                None => command.operand(word),
            };
        }
        command
    }

    /// A subcommand without arguments.
    pub fn named(subcommand: &str) -> Self {
        Self { subcommand: subcommand.to_owned(), given: Vec::new(), tail: String::new() }
    }

    /// Whether nothing of a shell follows it.
    pub const fn is_alone(&self) -> bool {
        self.tail.is_empty()
    }

    /// What it does to units and to this host.
    pub fn effect(&self) -> Effect {
        match &*self.subcommand {
            "backup" | "download" | "patch" | "unpatch" | "wrap" | "make-patch" | "demo" | "man" => Effect::MakesFiles,
            "reset" | "pcie on" | "pcie off" | "pcie reset" => Effect::Restarts,
            "pcie" if self.given.iter().any(|given| given.spec.id == "assign") => Effect::Restarts,
            "list" | "info" | "verify" | "doctor" | "pcie" | "pcie read" | "bench" | "config get" | "xdata read"
            | "run" | "disasm" | "udev" | "completions" | "help" => Effect::Looks,
            "virtual set" | "virtual serve" | "virtual replug" => Effect::SetsVirtual,
            // What is not known is taken for the worst.
            _ => Effect::Writes,
        }
    }

    /// What the user agrees to with it: each such option, with what its help says.
    pub fn consents(&self) -> Vec<(String, String)> {
        let is_consent = |given: &&Given| given.spec.class == ArgClass::Consent;
        let named = |given: &Given| Some((given.spec.name.clone()?, given.spec.help.clone()));
        self.given.iter().filter(is_consent).filter_map(named).collect()
    }

    /// The subcommand: `config set`.
    pub fn subcommand(&self) -> &str {
        &self.subcommand
    }

    /// The only value of the argument with this ID.
    pub fn value(&self, id: &str) -> Option<&OsStr> {
        match self.given.iter().find(|given| given.spec.id == id)?.values.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    fn specs(&self) -> &'static [Spec] {
        specs(&self.subcommand)
    }

    fn spec(&self, id: &str) -> Option<&'static Spec> {
        self.specs().iter().find(|spec| spec.id == id)
    }

    fn spec_named(&self, name: &str) -> Option<&'static Spec> {
        self.specs().iter().find(|spec| spec.name.as_deref() == Some(name) || spec.short.as_deref() == Some(name))
    }

    /// Whether it is the same subcommand, and has each argument that the other has.
    pub fn takes_all_of(&self, other: &Self) -> bool {
        self.subcommand == other.subcommand && other.given.iter().all(|given| self.has(given.spec))
    }

    fn has(&self, spec: &Spec) -> bool {
        self.given.iter().any(|given| given.spec == spec)
    }

    pub(super) fn push(mut self, spec: &'static Spec, value: OsString) -> Self {
        match self.given.iter_mut().find(|given| given.spec == spec) {
            Some(given) => given.values.push(value),
            None => self.given.push(Given { spec, values: vec![value] }),
        }
        self
    }

    /// Adds an argument of another command, if this one takes it and doesn't have it.
    pub(super) fn take(self, given: &Given) -> Self {
        self.or_with(&given.spec.id, given.values.iter().cloned())
    }

    /// Gives the argument with this ID these values, if the command takes it and doesn't have it.
    #[must_use]
    pub fn or_with(mut self, id: &str, values: impl IntoIterator<Item = OsString>) -> Self {
        match self.spec(id) {
            Some(spec) if !self.has(spec) => {
                self.given.push(Given { spec, values: values.into_iter().collect() });
                self
            }
            _ => self,
        }
    }

    /// Adds an operand: the next one that the command takes.
    #[must_use]
    pub fn operand(self, value: impl Into<OsString>) -> Self {
        let mut operands = self.specs().iter().filter(|spec| spec.name.is_none());
        let next = operands.clone().find(|spec| !self.has(spec)).or_else(|| operands.next_back());
        match next {
            Some(spec) => self.push(spec, value.into()),
            None => self,
        }
    }

    /// Gives the command's first operand this value, in place of any other.
    #[must_use]
    pub fn with_operand(self, value: impl Into<OsString>) -> Self {
        match self.specs().iter().find(|spec| spec.name.is_none()) {
            Some(spec) => self.with(&spec.id, value),
            None => self,
        }
    }

    /// Gives the argument with this ID this value, in place of any other. A flag takes an empty one.
    #[must_use]
    pub fn with(self, id: &str, value: impl Into<OsString>) -> Self {
        self.without(id).or_with(id, [value.into()])
    }

    /// Adds a flag by its ID.
    #[must_use]
    pub fn flag(self, id: &str) -> Self {
        self.with(id, "")
    }

    /// Takes out the argument with this ID.
    #[must_use]
    pub fn without(mut self, id: &str) -> Self {
        self.given.retain(|given| given.spec.id != id);
        self
    }

    /// Returns the words, the program's name first: operands, then options, by class and in the order of the help.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["asmpatch".into()];
        words.extend(self.subcommand.split_whitespace().map(OsString::from));
        let place = |given: &&Given| self.specs().iter().position(|spec| spec == given.spec);
        let mut operands: Vec<&Given> = self.given.iter().filter(|given| given.spec.name.is_none()).collect();
        operands.sort_by_key(place);
        let operands: Vec<&OsString> = operands.into_iter().flat_map(|given| &given.values).collect();
        let looks_like_option = operands.iter().any(|operand| begins_with_dash(operand));
        if !looks_like_option {
            words.extend(operands.iter().copied().cloned());
        }
        let mut options: Vec<&Given> = self.given.iter().filter(|given| given.spec.name.is_some()).collect();
        options.sort_by_key(|given| (given.spec.class, place(given)));
        for Given { spec, values } in options {
            let Some(name) = &spec.name else { continue };
            for value in values {
                if !spec.takes_value || (spec.takes_equals && value.is_empty()) {
                    words.push(name.into());
                } else if spec.takes_equals || begins_with_dash(value) {
                    let mut word = OsString::from(name);
                    word.push("=");
                    word.push(value);
                    words.push(word);
                } else {
                    words.extend([name.into(), value.clone()]);
                }
            }
        }
        if looks_like_option {
            words.push("--".into());
            words.extend(operands.into_iter().cloned());
        }
        words
    }
}

fn begins_with_dash(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

impl fmt::Display for PrintedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.words().iter().map(shell::word).collect();
        write!(f, "{}{}", words.join(" "), self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::words::invocation::Invocation;

    #[test]
    fn each_subcommand_that_is_not_known_to_be_harmless_counts_as_one_that_writes_a_flash() {
        let mut writing: Vec<&str> = Vec::new();
        for name in
            SUBCOMMANDS.keys().filter(|name| !SUBCOMMANDS.keys().any(|other| other.starts_with(&format!("{name} "))))
        {
            if PrintedCommand::named(name).effect() == Effect::Writes {
                writing.push(name);
            }
        }
        assert_eq!(writing, ["", "config set", "flash", "pcie write", "restore", "xdata write"]);
        let effect = |line: &str| Invocation::default().other(line).effect();
        assert_eq!((effect("pcie"), effect("pcie --assign")), (Effect::Looks, Effect::Restarts));
    }

    #[test]
    fn a_command_says_what_its_user_agrees_to_with_it() {
        let command = Invocation::default().other("restore b --no-backup --clone-identity");
        let consents = command.consents();
        let names: Vec<&str> = consents.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), 2, "{consents:?}");
        assert!(names.contains(&"--no-backup") && names.contains(&"--clone-identity"), "{consents:?}");
        assert!(consents.iter().all(|(_, says)| says.len() > 20), "{consents:?}");
        assert!(Invocation::default().other("reset").consents().is_empty());
    }
}
