//! The command that was run: the only memory of it, from which each command that is printed is made.
//!
//! clap's matches become an [`Invocation`]: the subcommand, and each argument that was given, with its [`ArgClass`]. A
//! printed command is made of it in two ways: the same command [again](Invocation::again), or [another](Invocation::other)
//! one that takes what may travel. Both give a [`PrintedCommand`], whose text is ready for a shell.
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

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use asm2464_host::bridge::Location;
use asm2464_host::usb::sysfs::{Forwarder, Forwarding};
use clap::ArgMatches;
use clap::parser::ValueSource;

use super::command_tree::{ArgClass, Given, SUBCOMMANDS, specs, tree};
use super::printed_command::{PrintedCommand, own_and_tail};
use crate::unit::Selector;

/// The variables that stand for an option in every command that uses what it names, whether or not the command has it.
const VARIABLES: [(&str, &str); 2] = [("cache_dir", "ASMPATCH_CACHE_DIR"), ("backup_dir", "ASMPATCH_BACKUP_DIR")];

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

    /// Takes what was given from the parsed arguments. The unit counts as given also if it is the default, which is the
    /// environment's or the command's own.
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
                Some(ValueSource::CommandLine) => true,
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
    pub fn again(&self) -> PrintedCommand {
        let mut command = PrintedCommand::named(&self.subcommand);
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
    pub fn other(&self, line: &str) -> PrintedCommand {
        let (own, tail) = own_and_tail(line);
        self.completed(PrintedCommand::of(own.split(' ').map(OsString::from), tail))
    }

    /// Names the unit in a command, and adds what may travel, unless it has its own.
    pub fn completed(&self, mut command: PrintedCommand) -> PrintedCommand {
        for given in &self.given {
            if given.spec.class == ArgClass::Place {
                command = command.take(given);
            }
        }
        // It is checked as a file, unless a unit is named.
        if command.subcommand == "verify" { command } else { self.name_unit(command) }
    }

    /// Names the unit in a command that takes one, and how it is found.
    pub fn name_unit(&self, mut command: PrintedCommand) -> PrintedCommand {
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

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use clap::FromArgMatches as _;
    use clap::error::ErrorKind;
    use proptest::prelude::*;

    use super::*;
    use crate::cli::words::command_tree::Spec;
    use crate::cli::{Cli, command};

    fn invocation(words: &[&str]) -> Invocation {
        Invocation::parse(words).unwrap()
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
                        let words = PrintedCommand::named(subcommand).or_with(&spec.id, [(*value).into()]).words();
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
            let mut command = PrintedCommand::named(subcommand);
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
            let whole = PrintedCommand { given: typed.given.clone(), ..PrintedCommand::named(&typed.subcommand) };
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
