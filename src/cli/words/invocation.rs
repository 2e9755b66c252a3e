//! The command that was run: the only memory of it, from which each command that is printed is made.
//!
//! clap's matches become an [`Invocation`]: the subcommand, and each argument that was given, with its [`ArgClass`]. A
//! printed command is made of it in two ways: the same command [again](Invocation::again), or [another](Invocation::other)
//! one that takes what may travel. Both give a [`Command`], whose text is ready for a shell.
//!
//! - **Consent never travels.** `--yes`, `--force`, `--no-backup`, `--clone-identity`, `--unproven`, `--other-line` and
//!   the like were given for one run. A step that needs one adds it itself.
//! - What only says how a run is shown or recorded (`--json`, `--pcap`, `--dry-run`) doesn't travel either.
//! - The unit is that of the step: [`Invocation::at`] names it. `--all` and `--device` of the command that was run give
//!   way. A disk that the user vouches for (`--unchecked-disk`) goes along only to the same unit.
//! - Wording takes plain data: a command that is put together reads no file and builds no tree of clap's. The tree is
//!   read once, when the arguments are parsed.
//!
//! Tried and dropped: the words as they were typed (`env::args`), with one replaced. They have the consent, and a value
//! that is both a file's name and another option's was replaced twice. Options as text with a space before each
//! (`suffix()`), which each printer had to know.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use asm2464_host::bridge::Location;
use asm2464_host::usb::sysfs::{Forwarder, Forwarding};
use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::shell;
use crate::unit::Selector;

/// What a printed command does with an argument of the command that was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArgClass {
    /// What the command is about, and what it does: it goes into the same command only.
    What,
    /// Where files are looked for or put: it also goes into any other command that takes it.
    Place,
    /// Which unit, and how it is found: the step's own unit takes its place.
    Unit,
    /// What the user agreed to: it never travels.
    Consent,
    /// How a run is shown or recorded: it never travels.
    Shown,
}

/// The class of each argument, by its ID in clap.
const CLASSES: &[(ArgClass, &[&str])] = &[
    (ArgClass::Unit, &["device", "all", "all_or_none", "usb_ids", "device_dirs", "unchecked_disks"]),
    (ArgClass::Place, &["dirs", "manifest_dir", "cache_dir", "backup_dir"]),
    (ArgClass::Consent, &["yes", "force", "unproven", "clone_identity", "other_line", "no_backup"]),
    (
        ArgClass::Shown,
        &[
            "json", "pcap", "report", "dry_run", "color", "quiet", "verbose", "log_file", "trace", "events", "svg",
            "hex",
        ],
    ),
    (
        ArgClass::What,
        &[
            // Operands.
            "file",
            "files",
            "folder",
            "image",
            "field",
            "edits",
            "address",
            "len",
            "bytes",
            "elf",
            "at",
            "dir",
            "shell",
            "topic",
            // What is taken, made or compared, and how.
            "list",
            "from",
            "output",
            "offline",
            "timeout",
            "add",
            "no_defaults",
            "receipt",
            "original",
            "boot",
            "probe",
            "known",
            "whole_flash",
            "bench",
            "config_from",
            "serial",
            "serials",
            "stock_identity",
            "no_write",
            "fix",
            "expect",
            "level",
            "assign",
            "read_only",
            "transport",
            "other_page",
            "paths",
            "sizes",
            "depths",
            "sweep",
            "seconds",
            "repetitions",
            "floors",
            "check",
            "restart",
            "soak",
            "max_errors_per_hour",
            "baseline",
            "oldest",
            "max_slower",
            "site",
            "slot",
            "control",
            "cdb",
            "data_in",
            "data_out",
            "speed",
            "gpu",
            "until",
            "symbols",
            "profile",
            "coverage",
            "budget",
            "count",
            "listen",
            "once",
            "keep",
        ],
    ),
];

/// Returns the class of the argument with this ID, if it has one.
fn class_of(id: &str) -> Option<ArgClass> {
    CLASSES.iter().find(|(_, ids)| ids.contains(&id)).map(|(class, _)| *class)
}

/// An argument of a subcommand.
#[derive(Debug)]
struct Spec {
    id: String,
    class: ArgClass,
    /// How it is written: `--device`, `-x`; `None` for an operand.
    name: Option<String>,
    /// Another way to write it: `-o`.
    short: Option<String>,
    takes_value: bool,
    /// Whether its value is written behind `=`, because another word would not be taken for it.
    takes_equals: bool,
    /// What it does, as its help says.
    help: String,
    /// What the help calls its value: `DIR`.
    value_name: Option<String>,
}

/// The variables that stand for an option in every command that uses what it names, whether or not the command has it.
const VARIABLES: [(&str, &str); 2] = [("cache_dir", "ASMPATCH_CACHE_DIR"), ("backup_dir", "ASMPATCH_BACKUP_DIR")];

/// What builds clap's tree: it has every command, and each of them words others by it.
static TREES: OnceLock<[fn() -> clap::Command; 2]> = OnceLock::new();

/// Says what builds clap's tree, and the one for pages that are kept, which has nothing of this run's environment. The
/// program does before anything else.
pub fn register(tree: fn() -> clap::Command, for_pages: fn() -> clap::Command) {
    let _ = TREES.set([tree, for_pages]);
}

/// Builds clap's tree.
pub fn tree() -> clap::Command {
    built(0)
}

/// Builds clap's tree for pages that are kept.
pub fn tree_for_pages() -> clap::Command {
    built(1)
}

fn built(which: usize) -> clap::Command {
    #[cfg(test)]
    tests::register_tree();
    TREES.get().map_or_else(|| clap::Command::new("asmpatch"), |trees| trees[which]())
}

/// The arguments of each subcommand, by its names with spaces between: `config set`.
static SUBCOMMANDS: LazyLock<BTreeMap<String, Vec<Spec>>> = LazyLock::new(|| {
    let mut subcommands = BTreeMap::new();
    let mut root = tree();
    root.build();
    read_specs(&root, "", &mut subcommands);
    subcommands
});

fn read_specs(command: &clap::Command, path: &str, into: &mut BTreeMap<String, Vec<Spec>>) {
    let mut specs = Vec::new();
    for arg in command.get_arguments() {
        let Some(class) = class_of(arg.get_id().as_str()) else { continue };
        let short = arg.get_short().map(|short| format!("-{short}"));
        // Every page writes `-o`.
        let name = arg.get_long().filter(|long| *long != "output").map(|long| format!("--{long}"));
        specs.push(Spec {
            id: arg.get_id().to_string(),
            class,
            name: name.or_else(|| short.clone()),
            short,
            takes_value: arg.get_action().takes_values(),
            takes_equals: arg.is_require_equals_set(),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            value_name: arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string),
        });
    }
    into.insert(path.to_owned(), specs);
    for below in command.get_subcommands() {
        read_specs(below, format!("{path} {}", below.get_name()).trim(), into);
    }
}

/// Lists the subcommands that have this option.
pub fn subcommands_with(option: &str) -> Vec<&'static str> {
    let has = |specs: &[Spec]| specs.iter().any(|spec| spec.name.as_deref() == Some(option));
    SUBCOMMANDS.iter().filter(|(_, specs)| has(specs)).map(|(name, _)| name.as_str()).collect()
}

/// Returns the arguments that the subcommand takes.
fn specs(subcommand: &str) -> &'static [Spec] {
    SUBCOMMANDS.get(subcommand).map(Vec::as_slice).unwrap_or_default()
}

/// An argument that a command has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    spec: &'static Spec,
    /// Its values, as they were typed; for a flag, an empty one for each time.
    values: Vec<OsString>,
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Spec {}

/// The command that was run.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// The subcommand: `config set`.
    subcommand: String,
    given: Vec<Given>,
    /// The unit that a printed command is for, in place of the one that was named.
    unit: Option<Location>,
    /// Who hands USB devices on to this host.
    forwarding: Forwarding,
    /// Where a printed `patch` puts its image, if not into [`Self::PATCHED`].
    patched: Option<PathBuf>,
    /// Where a printed `unpatch` puts its image, if not into [`Self::ORIGINAL`].
    original: Option<PathBuf>,
}

impl Invocation {
    /// The usual name of a patched image in a printed command.
    pub const PATCHED: &str = "patched.bin";
    /// The usual name of an image without patches in a printed command.
    pub const ORIGINAL: &str = "original.bin";

    /// Takes what was given from the parsed arguments. The unit counts as given also if the environment names it, or the
    /// command has a default.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut subcommand = String::new();
        let mut leaf = matches;
        while let Some((name, below)) = leaf.subcommand() {
            subcommand = format!("{subcommand} {name}").trim().to_owned();
            leaf = below;
        }
        let mut given = Vec::new();
        for spec in specs(&subcommand) {
            let is_given = match leaf.value_source(&spec.id) {
                Some(ValueSource::CommandLine | ValueSource::EnvVariable) => true,
                Some(ValueSource::DefaultValue) => spec.id == "device",
                _ => false,
            };
            if !is_given {
                continue;
            }
            let values = if spec.takes_value {
                leaf.get_raw(&spec.id).into_iter().flatten().map(OsStr::to_owned).collect()
            } else {
                let times = leaf.try_get_one::<u8>(&spec.id).ok().flatten().copied().unwrap_or(1);
                vec![OsString::new(); usize::from(times)]
            };
            given.push(Given { spec, values });
        }
        Self { subcommand, given, ..Self::default() }
    }

    /// A subcommand of which no argument is known.
    #[cfg(test)]
    pub fn of_subcommand(subcommand: &str) -> Self {
        Self { subcommand: subcommand.to_owned(), ..Self::default() }
    }

    /// Parses the words of a command, the program's name first.
    ///
    /// # Errors
    /// Fails if the words are no command.
    pub fn parse<W: Into<OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Result<Self, clap::Error> {
        tree().try_get_matches_from(words).map(|matches| Self::of(&matches))
    }

    /// Returns the same with these names for a patched image and for one without patches: the commands may write them.
    pub fn writing_to(self, patched: PathBuf, original: PathBuf) -> Self {
        Self { patched: Some(patched), original: Some(original), ..self }
    }

    /// Where a printed `patch` puts its image.
    pub fn patched(&self) -> &Path {
        self.patched.as_deref().unwrap_or(Path::new(Self::PATCHED))
    }

    /// Where a printed `unpatch` puts its image.
    pub fn original(&self) -> &Path {
        self.original.as_deref().unwrap_or(Path::new(Self::ORIGINAL))
    }

    /// Returns the same for commands on this unit.
    pub fn at(&self, unit: &Location) -> Self {
        Self { unit: Some(unit.clone()), ..self.clone() }
    }

    /// Returns the same command on a host to which others hand USB devices on like this.
    pub fn on_host(self, forwarding: Forwarding) -> Self {
        Self { forwarding, ..self }
    }

    /// Returns no command, on the same host.
    pub fn none_here(&self) -> Self {
        Self::default().on_host(self.forwarding.clone())
    }

    /// Who hands on to this host the unit that is meant, or any if none is named; `None` for a virtual unit.
    pub fn forwarder(&self) -> Option<Forwarder> {
        match &self.unit {
            Some(Location::Port(port)) => self.forwarding.of(Some(port)),
            _ if self.is_virtual() => None,
            _ => self.forwarding.of(None),
        }
    }

    /// Returns the same command with what may travel.
    pub fn again(&self) -> Command {
        let mut command = Command { subcommand: self.subcommand.clone(), given: Vec::new(), tail: String::new() };
        for given in &self.given {
            let travels = match given.spec.class {
                ArgClass::What | ArgClass::Place => true,
                ArgClass::Unit => self.unit.is_none(),
                ArgClass::Consent | ArgClass::Shown => false,
            };
            if travels {
                command.given.push(given.clone());
            }
        }
        self.name_unit(command)
    }

    /// Returns another command, written without quotes: `pcie reset --device 3-1`, or `udev | sudo tee FILE`. It names the
    /// unit, and takes what may travel, unless its own words have it.
    pub fn other(&self, line: &str) -> Command {
        let (own, tail) = own_and_tail(line);
        self.completed(Command::of(own.split(' ').map(OsString::from), tail))
    }

    /// Names the unit in a command, and adds what may travel, unless it has its own.
    pub fn completed(&self, mut command: Command) -> Command {
        for given in &self.given {
            if given.spec.class == ArgClass::Place {
                command = command.take(given);
            }
        }
        // It is checked as a file, unless a unit is named.
        if command.subcommand == "verify" { command } else { self.name_unit(command) }
    }

    /// Names the unit in a command that takes one, and how it is found.
    pub fn name_unit(&self, mut command: Command) -> Command {
        // A list of files and a report are of no unit of this host.
        if command.given.iter().any(|given| ["list", "known", "from"].contains(&given.spec.id.as_str())) {
            return command;
        }
        // `list` shows every dock, and a virtual unit only if it is named.
        if command.subcommand != "list" || self.is_virtual() {
            command = match self.device() {
                Some(device) => command.or_with("device", [device]),
                None => command,
            };
        }
        for given in &self.given {
            let travels = match given.spec.id.as_str() {
                "usb_ids" | "device_dirs" => true,
                // Nothing else finds virtual units, and `list` takes several.
                "device" => command.subcommand == "list" && self.unit.is_none() && self.is_virtual(),
                // `list` without a unit is about each.
                "unchecked_disks" => self.is_for_one() && !(self.subcommand == "list" && self.named().is_empty()),
                _ => false,
            };
            if travels {
                command = command.take(given);
            }
        }
        command
    }

    /// The unit that a printed command names; `None` if none or several are named.
    pub fn device(&self) -> Option<OsString> {
        match (&self.unit, self.named()) {
            (Some(unit), _) => Some(unit.to_string().into()),
            (None, [only]) => Some(only.clone()),
            _ => None,
        }
    }

    /// The subcommand: `config set`.
    pub fn subcommand(&self) -> &str {
        &self.subcommand
    }

    /// Returns an option, ready to stand in a text, as this command has it: `--cache-dir DIR`; the variable that names the
    /// same for a command without it; `None` if there is neither. `value` replaces what the help calls its value.
    pub fn option(&self, id: &str, value: Option<&str>) -> Option<String> {
        let own = specs(&self.subcommand).iter().find(|spec| spec.id == id && spec.name.is_some());
        // The table of errors is also printed for no command.
        let any = || SUBCOMMANDS.values().flatten().find(|spec| spec.id == id && spec.name.is_some());
        let Some(spec) = (if self.is_unknown() { any() } else { own }) else {
            return VARIABLES.iter().find(|(option, _)| *option == id).map(|(_, variable)| (*variable).to_owned());
        };
        let name = spec.name.as_deref()?;
        let value = value.or(spec.value_name.as_deref()).filter(|value| spec.takes_value && !value.is_empty());
        let between = if spec.takes_equals { "=" } else { " " };
        Some(value.map_or_else(|| format!("`{name}`"), |value| format!("`{name}{between}{value}`")))
    }

    /// Whether nothing is known of the command.
    pub const fn is_unknown(&self) -> bool {
        self.subcommand.is_empty()
    }

    /// The units that were named, as given.
    pub fn named(&self) -> &[OsString] {
        self.values("device")
    }

    /// Returns the command with this unit if it was for several, so that what is printed for one names no other: by its
    /// place, or by the name that was given if it was not found.
    pub fn for_one(&self, unit: Option<&Location>, name: &str) -> Self {
        if self.is_for_one() {
            return self.clone();
        }
        if let Some(unit) = unit {
            return self.at(unit);
        }
        let mut one = self.clone();
        one.given.retain(|given| !["device", "all"].contains(&given.spec.id.as_str()));
        if let Some(spec) = specs(&one.subcommand).iter().find(|spec| spec.id == "device") {
            one.given.push(Given { spec, values: vec![name.into()] });
        }
        one
    }

    /// Whether the command was for one unit at most.
    fn is_for_one(&self) -> bool {
        self.named().len() <= 1 && !self.is_given("all")
    }

    /// Whether each unit that a printed command is for is virtual.
    pub fn is_virtual(&self) -> bool {
        if let Some(unit) = &self.unit {
            return unit.is_virtual();
        }
        let is_virtual = |device: &OsString| {
            device.to_str().is_some_and(|device| matches!(device.parse(), Ok(Selector::Virtual(_))))
        };
        !self.named().is_empty() && self.named().iter().all(is_virtual)
    }

    /// The values of the argument with this ID, as given.
    fn values(&self, id: &str) -> &[OsString] {
        self.given.iter().find(|given| given.spec.id == id).map(|given| given.values.as_slice()).unwrap_or_default()
    }

    /// Whether the argument with this ID was given.
    pub fn is_given(&self, id: &str) -> bool {
        self.given.iter().any(|given| given.spec.id == id)
    }

    /// Each value that was given.
    pub fn all_values(&self) -> impl Iterator<Item = &OsStr> {
        self.given.iter().flat_map(|given| &given.values).map(OsString::as_os_str)
    }

    /// The only value of the argument with this ID.
    pub fn value(&self, id: &str) -> Option<&OsStr> {
        match self.values(id) {
            [only] => Some(only),
            _ => None,
        }
    }
}

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

fn effect_of(subcommand: &str, assigns: bool) -> Effect {
    match subcommand {
        "backup" | "download" | "patch" | "unpatch" | "wrap" | "make-patch" | "demo" | "man" => Effect::MakesFiles,
        "reset" | "pcie on" | "pcie off" | "pcie reset" => Effect::Restarts,
        "pcie" if assigns => Effect::Restarts,
        "list" | "info" | "verify" | "doctor" | "pcie" | "pcie read" | "bench" | "config get" | "xdata read"
        | "run" | "disasm" | "udev" | "completions" | "help" => Effect::Looks,
        "virtual set" | "virtual serve" | "virtual replug" => Effect::SetsVirtual,
        // What is not known is taken for the worst.
        _ => Effect::Writes,
    }
}

/// Splits a line of the shell into a command and what follows it, a pipe or a redirection, which is another program's.
pub fn own_and_tail(line: &str) -> (&str, &str) {
    line.split_at(line.find(" | ").or_else(|| line.find(" > ")).unwrap_or(line.len()))
}

/// A command to print. Its text is ready for a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    subcommand: String,
    given: Vec<Given>,
    /// What follows it in the shell, with a space before: ` | sudo tee FILE`.
    tail: String,
}

impl Command {
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
        effect_of(&self.subcommand, self.given.iter().any(|given| given.spec.id == "assign"))
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

    fn push(mut self, spec: &'static Spec, value: OsString) -> Self {
        match self.given.iter_mut().find(|given| given.spec == spec) {
            Some(given) => given.values.push(value),
            None => self.given.push(Given { spec, values: vec![value] }),
        }
        self
    }

    /// Adds an argument of another command, if this one takes it and doesn't have it.
    fn take(self, given: &Given) -> Self {
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

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.words().iter().map(shell::word).collect();
        write!(f, "{}{}", words.join(" "), self.tail)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::FromArgMatches as _;
    use clap::error::ErrorKind;
    use proptest::prelude::*;

    use super::*;
    use crate::cli::{Cli, command};

    /// A test has no program that registers the tree.
    pub(in crate::cli) fn register_tree() {
        register(command, command);
    }

    fn invocation(words: &[&str]) -> Invocation {
        Invocation::parse(words).unwrap()
    }

    #[test]
    fn each_argument_has_one_class_and_each_class_has_only_arguments() {
        let mut ids = BTreeSet::new();
        let mut root = command();
        root.build();
        let mut waiting = vec![root];
        while let Some(command) = waiting.pop() {
            for arg in command.get_arguments() {
                ids.insert(arg.get_id().to_string());
            }
            waiting.extend(command.get_subcommands().cloned());
        }
        // `help` has an operand of clap's own.
        ids.retain(|id| !["help", "version"].contains(&id.as_str()));
        let classed: Vec<&str> = CLASSES.iter().flat_map(|(_, ids)| *ids).copied().collect();
        let unique: BTreeSet<String> = classed.iter().map(|id| (*id).to_owned()).collect();
        assert_eq!(classed.len(), unique.len(), "an argument has two classes");
        let without: Vec<_> = ids.difference(&unique).collect();
        let mut gone: Vec<_> = unique.difference(&ids).collect();
        gone.retain(|id| cfg!(unix) || !["edits", "listen", "once"].contains(&id.as_str()));
        assert!(without.is_empty() && gone.is_empty(), "without a class: {without:?}; no argument: {gone:?}");
    }

    #[test]
    fn each_subcommand_that_is_not_known_to_be_harmless_counts_as_one_that_writes_a_flash() {
        let mut writing: Vec<&str> = Vec::new();
        for name in
            SUBCOMMANDS.keys().filter(|name| !SUBCOMMANDS.keys().any(|other| other.starts_with(&format!("{name} "))))
        {
            if effect_of(name, false) == Effect::Writes {
                writing.push(name);
            }
        }
        assert_eq!(writing, ["", "config set", "flash", "pcie write", "restore", "xdata write"]);
        assert_eq!((effect_of("pcie", false), effect_of("pcie", true)), (Effect::Looks, Effect::Restarts));
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

    #[test]
    fn the_same_command_names_the_steps_unit_and_leaves_consent_behind() {
        let run = [
            "asmpatch",
            "flash",
            "fw.bin",
            "--all",
            "--yes",
            "--force",
            "--backup-dir",
            "b",
            "--usb-id",
            "1209:0001",
            "--json",
            "--unchecked-disk",
            "sda",
            "--serials",
            "R-1",
        ];
        let again = invocation(&run).at(&"3-1.2".parse().unwrap()).again();
        assert_eq!(
            again.to_string(),
            "asmpatch flash fw.bin --serials R-1 --backup-dir b --device 3-1.2 --usb-id 1209:0001"
        );
        let one = invocation(&["asmpatch", "flash", "f", "--device", "SER", "--unchecked-disk", "sda", "-y"]);
        assert_eq!(
            one.at(&"3-1".parse().unwrap()).again().to_string(),
            "asmpatch flash f --device 3-1 --unchecked-disk sda"
        );
    }

    #[test]
    fn what_is_printed_for_one_unit_of_several_names_that_unit() {
        let port = Location::Port("3-2".parse().unwrap());
        let flash = |words: &[&str]| invocation(words).for_one(Some(&port), "3-2").again().to_string();
        assert_eq!(flash(&["asmpatch", "flash", "a.bin", "--all"]), "asmpatch flash a.bin --device 3-2");
        let two = ["asmpatch", "flash", "a.bin", "--device", "3-1", "--device", "3-2"];
        assert_eq!(flash(&two), "asmpatch flash a.bin --device 3-2");
        // Nothing finds virtual units but their names.
        let two = ["asmpatch", "flash", "a.bin", "--all", "--device", "virtual:a", "--device", "virtual:b"];
        let list = invocation(&two).other("list").to_string();
        assert_eq!(list, "asmpatch list --device virtual:a --device virtual:b");
        // One that could not be examined has no place, only the name that was given.
        for words in [&two[..], &["asmpatch", "flash", "a.bin", "--all"]] {
            let doctor = invocation(words).for_one(None, "virtual:a").other("doctor").to_string();
            assert_eq!(doctor, "asmpatch doctor --device virtual:a");
        }
        // One unit keeps the name that the user gave it.
        assert_eq!(flash(&["asmpatch", "flash", "a.bin", "--device", "LAB"]), "asmpatch flash a.bin --device LAB");
    }

    #[test]
    fn another_command_takes_what_it_can_of_places_and_of_the_unit() {
        let run =
            invocation(&["asmpatch", "flash", "f", "--patch-dir", "p", "--device", "3-1", "--usb-id", "1209:0001"]);
        let other = |words| run.other(words).to_string();
        assert_eq!(other("info f"), "asmpatch info f --patch-dir p");
        assert_eq!(other("pcie reset"), "asmpatch pcie reset --device 3-1 --usb-id 1209:0001");
        assert_eq!(other("pcie reset --device 4-1"), "asmpatch pcie reset --device 4-1 --usb-id 1209:0001");
        assert_eq!(other("list"), "asmpatch list --usb-id 1209:0001");
        assert_eq!(other("backup --list"), "asmpatch backup --list");
        assert_eq!(other("help recovery"), "asmpatch help recovery");
        assert_eq!(other("udev | sudo tee x"), "asmpatch udev --usb-id 1209:0001 | sudo tee x");
        // A file is checked, not the unit.
        assert_eq!(other("verify f"), "asmpatch verify f --patch-dir p");
    }

    #[test]
    fn units_are_virtual_only_if_all_that_are_named_are() {
        let is_virtual = |line: &[&str]| invocation(line).is_virtual();
        assert!(is_virtual(&["asmpatch", "reset", "--device", "virtual:u"]));
        assert!(is_virtual(&["asmpatch", "config", "get", "--device", "virtual"]));
        assert!(!is_virtual(&["asmpatch", "flash", "f", "--device", "virtual:u", "--device", "3-1"]));
        assert!(!is_virtual(&["asmpatch", "reset", "--device", "3-1"]));
        assert!(!is_virtual(&["asmpatch", "demo"]));
        assert!(invocation(&["asmpatch", "list"]).at(&Location::Virtual("u".into())).is_virtual());
    }

    /// Values of which each argument takes at least one.
    const VALUES: [&str; 31] = [
        "f.bin",
        "-x",
        "a b",
        "it's",
        "",
        "3-1.2",
        "virtual:my unit",
        "1209:0001",
        "7",
        "0x10",
        "serial=A",
        "serial",
        "auto",
        "super",
        "state=absent",
        "R-1",
        "00ff",
        "c0 e4 00 70 00 00 04 00",
        "bash",
        "cpu",
        "10m",
        "e4-255",
        "e4=1",
        "b0:0x8000",
        "reset",
        "e4-255=1",
        "28 00 00 00 00 00 00 00 01 00",
        "512",
        "usb",
        "unix:p.sock",
        "2",
    ];

    /// Each subcommand with its arguments, and of each the values that it takes.
    type Takes = Vec<(String, Vec<(&'static Spec, Vec<&'static str>)>)>;

    fn takes() -> &'static Takes {
        static TAKES: LazyLock<Takes> = LazyLock::new(|| {
            let mut command = command();
            let mut takes = Vec::new();
            for (subcommand, specs) in &*SUBCOMMANDS {
                let mut args = Vec::new();
                for spec in specs {
                    let mut values = if spec.takes_value { VALUES.to_vec() } else { vec![""] };
                    values.retain(|value| {
                        let words = Command { subcommand: subcommand.clone(), given: Vec::new(), tail: String::new() }
                            .or_with(&spec.id, [(*value).into()])
                            .words();
                        match command.try_get_matches_from_mut(words) {
                            Ok(_) => true,
                            Err(error) => matches!(
                                error.kind(),
                                ErrorKind::MissingRequiredArgument
                                    | ErrorKind::MissingSubcommand
                                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                                    | ErrorKind::ArgumentConflict
                            ),
                        }
                    });
                    args.push((spec, values));
                }
                takes.push((subcommand.clone(), args));
            }
            takes
        });
        &TAKES
    }

    #[test]
    fn each_argument_takes_a_value_of_the_property() {
        let mut without = Vec::new();
        for (subcommand, args) in takes() {
            for (spec, values) in args {
                if values.is_empty() {
                    without.push(format!("{subcommand}: {}", spec.id));
                }
            }
        }
        assert!(without.is_empty(), "{without:?}");
    }

    /// What the arguments mean to the program; `None` if they are no command.
    fn meaning(words: &[OsString]) -> Option<(String, Invocation)> {
        let matches = command().try_get_matches_from(words).ok()?;
        let invocation = Invocation::of(&matches);
        Some((format!("{:?}", Cli::from_arg_matches(&matches).ok()?), invocation))
    }

    proptest! {
        // A case builds the tree of all commands a dozen times.
        #![proptest_config(ProptestConfig { cases: 100, max_global_rejects: 100_000, ..ProptestConfig::default() })]
        #[test]
        fn a_command_that_is_put_together_again_is_the_same_and_no_consent_travels(
            at in any::<prop::sample::Index>(),
            drawn in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6),
        ) {
            let (subcommand, args) = &takes()[at.index(takes().len())];
            let mut command = Command { subcommand: subcommand.clone(), given: Vec::new(), tail: String::new() };
            // Operands are needed in most commands.
            for (spec, values) in args.iter().filter(|(spec, _)| spec.name.is_none()) {
                let value = drawn.first().map_or(0, |(_, value)| value.index(values.len()));
                command = command.push(spec, values[value].into());
            }
            for (arg, value) in &drawn {
                let (spec, values) = &args[arg.index(args.len())];
                command = command.push(spec, values[value.index(values.len())].into());
            }
            let Some((meant, typed)) = meaning(&command.words()) else { return Err(TestCaseError::reject("usage")) };
            let whole = Command { subcommand: typed.subcommand.clone(), given: typed.given.clone(), tail: String::new() };
            let (rebuilt, _) = meaning(&whole.words()).expect("it parses");
            prop_assert_eq!(meant, rebuilt, "{}", whole);

            // Every command takes a virtual unit.
            let place = Location::Virtual("p".into());
            for again in [typed.again(), typed.at(&place).again()] {
                // `patch --dry-run` needs no output. Without the option it does.
                let Some((_, again)) = meaning(&again.words()) else {
                    prop_assert!(typed.given.iter().any(|given| given.spec.id == "dry_run"), "{again}");
                    continue;
                };
                for given in &again.given {
                    prop_assert!(!matches!(given.spec.class, ArgClass::Consent | ArgClass::Shown), "{given:?}");
                }
                let of_what = |invocation: &Invocation| {
                    let kept = |given: &&Given| matches!(given.spec.class, ArgClass::What | ArgClass::Place);
                    invocation.given.iter().filter(kept).cloned().collect::<Vec<_>>()
                };
                prop_assert_eq!(of_what(&typed), of_what(&again));
            }
            for other in ["flash f", "restore b", "config set serial=A", "reset", "doctor", "bench", "xdata write 1 00"] {
                let other = typed.at(&place).other(other);
                let (_, parsed) = meaning(&other.words()).expect("it parses");
                prop_assert_eq!(parsed.value("device"), Some(OsStr::new("virtual:p")));
                for given in &parsed.given {
                    prop_assert!(!matches!(given.spec.class, ArgClass::Consent | ArgClass::Shown), "{given:?}");
                }
            }
        }
    }
}
