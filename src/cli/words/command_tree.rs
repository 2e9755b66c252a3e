//! What each command takes: clap's tree, read once, with the class of each argument.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::sync::{LazyLock, OnceLock};

use clap::builder::{ArgPredicate, Resettable};
use clap::{Arg, Command};

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

/// An argument of a subcommand.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) id: String,
    pub(super) class: ArgClass,
    /// How it is written: `--device`, `-x`; `None` for an operand.
    pub(super) name: Option<String>,
    /// Another way to write it: `-o`.
    pub(super) short: Option<String>,
    pub(super) takes_value: bool,
    /// Whether its value is written behind `=`, because another word would not be taken for it.
    pub(super) takes_equals: bool,
    /// What it does, as its help says.
    pub(super) help: String,
    /// What the help calls its value: `DIR`.
    pub(super) value_name: Option<String>,
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Spec {}

/// What builds clap's tree. Every command is in it, and each of them words others by it, so it is built above them all.
static BUILDER: OnceLock<fn() -> Command> = OnceLock::new();

/// Says what builds clap's tree, without what this run's environment names. The program does before anything else.
pub fn register(build: fn() -> Command) {
    let _ = BUILDER.set(build);
}

/// Builds clap's tree.
pub fn tree() -> Command {
    match env::var_os(DEVICE_VARIABLE).as_ref().and_then(|unit| unit.to_str()) {
        Some(unit) => with_default_unit(tree_for_pages(), unit),
        // A name that is no Unicode is refused by clap.
        None => tree_for_pages(),
    }
}

/// Builds clap's tree for pages that are kept: without what this run's environment names.
pub fn tree_for_pages() -> Command {
    #[cfg(test)]
    tests::register_tree();
    BUILDER.get().map_or_else(|| Command::new("asmpatch"), |build| build())
}

/// The variable that names the unit if `--device` doesn't.
const DEVICE_VARIABLE: &str = "ASMPATCH_DEVICE";

/// Makes the unit that the environment names the default of each `--device` that takes it from there. clap takes a
/// variable's value for one that was typed, so that `backup --list` would be refused for an option that nobody gave; a
/// default gives way to every other option, and to `--all`. An empty variable names nothing.
fn with_default_unit(command: Command, unit: &str) -> Command {
    let has_all = command.get_arguments().any(|arg| arg.get_id() == "all");
    let with_default = |arg: Arg| {
        if arg.get_env() != Some(DEVICE_VARIABLE.as_ref()) {
            return arg;
        }
        let arg = arg.env(Resettable::Reset);
        match (unit, has_all) {
            ("", _) => arg,
            (unit, true) => {
                arg.default_value(unit.to_owned()).default_value_if("all", ArgPredicate::Equals("true".into()), None)
            }
            (unit, false) => arg.default_value(unit.to_owned()),
        }
    };
    command.mut_args(with_default).mut_subcommands(|below| with_default_unit(below, unit))
}

/// The arguments of each subcommand, by its names with spaces between: `config set`.
pub(super) static SUBCOMMANDS: LazyLock<BTreeMap<String, Vec<Spec>>> = LazyLock::new(|| {
    let mut subcommands = BTreeMap::new();
    let mut root = tree();
    root.build();
    read_specs(&root, "", &mut subcommands);
    subcommands
});

fn read_specs(command: &Command, path: &str, into: &mut BTreeMap<String, Vec<Spec>>) {
    let mut specs = Vec::new();
    for arg in command.get_arguments() {
        let Some((class, _)) = CLASSES.iter().find(|(_, ids)| ids.contains(&arg.get_id().as_str())) else { continue };
        let short = arg.get_short().map(|short| format!("-{short}"));
        // Every page writes `-o`.
        let name = arg.get_long().filter(|long| *long != "output").map(|long| format!("--{long}"));
        specs.push(Spec {
            id: arg.get_id().to_string(),
            class: *class,
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
pub(super) fn specs(subcommand: &str) -> &'static [Spec] {
    SUBCOMMANDS.get(subcommand).map(Vec::as_slice).unwrap_or_default()
}

/// An argument that a command has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) spec: &'static Spec,
    /// Its values, as they were typed; for a flag, an empty one for each time.
    pub(super) values: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::command;
    use crate::cli::words::invocation::Invocation;
    use crate::unit::Selector;

    /// A test has no program that registers the tree.
    pub(super) fn register_tree() {
        register(crate::cli::command_for_pages);
    }

    #[test]
    fn a_unit_of_the_environment_gives_way_to_every_option_and_to_all() {
        let command = with_default_unit(command(), "virtual:x");
        let parsed = |line: &str| command.clone().try_get_matches_from(line.split(' ')).unwrap();
        let devices = |line: &str| {
            let (_, below) = parsed(line).remove_subcommand().unwrap();
            below.get_many::<Selector>("device").into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>()
        };
        parsed("asmpatch backup --list");
        parsed("asmpatch doctor --from r.json");
        assert_eq!(devices("asmpatch flash f.bin"), ["virtual:x"]);
        assert_eq!(devices("asmpatch flash f.bin --all"), [""; 0]);
        assert_eq!(devices("asmpatch flash f.bin --device 3-1"), ["3-1"]);
        // What is printed then names it.
        let run = Invocation::of(&parsed("asmpatch doctor"));
        assert_eq!(run.other("bench").to_string(), "asmpatch bench --device virtual:x");
        let typed = "asmpatch backup --list --device 3-1".split(' ');
        assert!(command.clone().try_get_matches_from(typed).is_err(), "who types both means something else");
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
}
