//! What each command takes: clap's tree, read once, with the class of each argument.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{LazyLock, OnceLock};

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
#[derive(Debug, Clone, Copy)]
pub struct TreeBuilders {
    /// With what this run's environment names.
    pub of_this_run: fn() -> clap::Command,
    /// Without it, for pages that are kept.
    pub for_pages: fn() -> clap::Command,
}

static BUILDERS: OnceLock<TreeBuilders> = OnceLock::new();

/// Says what builds clap's tree. The program does before anything else.
pub fn register(builders: TreeBuilders) {
    let _ = BUILDERS.set(builders);
}

fn builders() -> TreeBuilders {
    #[cfg(test)]
    tests::register_tree();
    let empty = || clap::Command::new("asmpatch");
    BUILDERS.get().copied().unwrap_or(TreeBuilders { of_this_run: empty, for_pages: empty })
}

/// Builds clap's tree.
pub fn tree() -> clap::Command {
    (builders().of_this_run)()
}

/// Builds clap's tree for pages that are kept.
pub fn tree_for_pages() -> clap::Command {
    (builders().for_pages)()
}

/// The arguments of each subcommand, by its names with spaces between: `config set`.
pub(super) static SUBCOMMANDS: LazyLock<BTreeMap<String, Vec<Spec>>> = LazyLock::new(|| {
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

    /// A test has no program that registers the tree.
    pub(super) fn register_tree() {
        register(TreeBuilders { of_this_run: command, for_pages: command });
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
