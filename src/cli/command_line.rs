//! The command line, as far as advice depends on it, and the texts of what the user does by hand.

use std::ffi::{OsStr, OsString};

use crate::advice::Hands;
use crate::shell;
use crate::unit::Selector;
use asm2464_host::bridge::Location;
use clap::ArgMatches;
use clap::parser::ValueSource;

/// Says what the user does by hand. A virtual unit has other texts: its power and its faults are in software.
const fn by_hand(hands: Hands, is_virtual: bool) -> &'static str {
    match hands {
        Hands::FindBackup => {
            "restore a backup of the unit, `asmpatch restore DIR --no-backup`, or without one give it firmware and the \
             identity that any unit gets, `asmpatch flash FILE --no-backup`: `asmpatch help recovery`"
        }
        Hands::Replug | Hands::ReplugIt | Hands::PlugIn | Hands::ReplugWithSupply if is_virtual => {
            "run the next command, which powers the virtual unit up again with the faults in its bridge.toml"
        }
        _ if is_virtual => "look for the fault in the virtual unit's bridge.toml",
        Hands::Replug => "unplug the unit, wait five seconds, plug it in again",
        Hands::ReplugIt => "unplug it, wait five seconds, plug it in again",
        Hands::PlugIn => "plug the unit in again",
        Hands::ReplugWithSupply => {
            "take the cable out, switch the supply off for ten seconds and on, wait five seconds, put the cable in last"
        }
        Hands::SlowLink => {
            "is the dock's supply on? Without it the chip runs from the cable and comes up at USB 2; its switch alone \
             restarts nothing\n\
             then take the cable out, switch the supply off for ten seconds and on, wait five seconds, put the cable in \
             last\n\
             then try another cable, another port, no hub\n\
             on a Thunderbolt port, let the computer sleep: `sudo rtcwake -m mem -s 15` helped one owner where nothing \
             else did"
        }
        Hands::CheckCable => "check its cable and its power",
        Hands::OtherCable => "try another cable and port",
        Hands::OtherCableNoHub => "try another cable and port, without a hub",
        Hands::OtherPort => "try another cable, another port, no hub",
        Hands::OtherSupply => "try another supply, and the unit without its card",
        Hands::ConnectSupply => "connect the unit's supply",
        Hands::CheckSupply => "check the unit's supply",
    }
}

/// Says what the user does by hand with this unit. A record counts as a dock.
pub const fn by_hand_on(location: &Location, hands: Hands) -> &'static str {
    by_hand(hands, matches!(location, Location::Virtual(_)))
}

/// The command line, as far as advice depends on it.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// Whether each unit that it names is virtual.
    is_virtual: bool,
    /// Its words, without the program's name.
    words: Vec<OsString>,
    /// The unit that a printed command names; `None` if none or several are named.
    device: Option<String>,
    /// The options without which no command finds the unit, each after a space.
    ids: String,
    /// What its placeholders stand for in advice: the file or folder that it reads, or the image's ID.
    values: Vec<(&'static str, String)>,
}

/// The operands that advice names, by their ids, each with its placeholder there.
const OPERANDS: [(&str, &str); 3] = [("file", "FILE"), ("folder", "DIR"), ("image", "ID")];

impl CommandLine {
    /// Takes the parsed arguments, and the words that they were parsed from.
    pub fn of(matches: &ArgMatches, words: impl Iterator<Item = OsString>) -> Self {
        let mut command = matches;
        while let Some((_, below)) = command.subcommand() {
            command = below;
        }
        let given = |id| command.try_get_raw(id).ok().flatten().into_iter().flatten();
        let is_virtual =
            |device: &OsStr| device.to_str().is_some_and(|device| matches!(device.parse(), Ok(Selector::Virtual(_))));
        let named: Vec<&OsStr> = given("device").collect();
        let device = if let [only] = named[..] { Some(shell::word(only)) } else { None };
        let mut ids = String::new();
        for (id, option) in
            [("usb_ids", "--usb-id="), ("device_dirs", "--devices-dir="), ("unchecked_disks", "--unchecked-disk=")]
        {
            for value in given(id) {
                let mut word = OsString::from(option);
                word.push(value);
                ids = ids + " " + &shell::word(word);
            }
        }
        let mut values = Vec::new();
        for (id, placeholder) in OPERANDS {
            if let [only] = given(id).collect::<Vec<_>>()[..] {
                values.push((placeholder, shell::path(only)));
            }
        }
        let is_virtual = !named.is_empty() && named.into_iter().all(is_virtual);
        Self { is_virtual, words: words.skip(1).collect(), device, ids, values }
    }

    /// Returns the command line of some command on this unit: its words are not known.
    pub fn on(location: &Location) -> Self {
        Self::default().of_unit(location)
    }

    /// Returns the same for another command on this unit, which finds it by the same IDs.
    pub fn of_unit(&self, location: &Location) -> Self {
        let device = Some(unit_option(location));
        let is_virtual = matches!(location, Location::Virtual(_));
        Self { is_virtual, words: Vec::new(), device, ids: self.ids.clone(), values: Vec::new() }
    }

    /// Returns the same with these options to find a unit, each after a space.
    pub fn with_ids(self, ids: &str) -> Self {
        Self { ids: ids.to_owned(), ..self }
    }

    /// Completes the commands of a text, which stand in backticks: puts in what their placeholders stand for, and
    /// names the unit where a command takes one. `values` are the error's own; a command for which it has none is left
    /// out if it has others.
    pub fn completed(&self, text: &str, values: &[(&'static str, String)]) -> String {
        let mut completed = String::new();
        for (at, part) in text.split('`').enumerate() {
            if at % 2 == 0 {
                completed.push_str(part);
            } else if let Some(command) = self.completed_command(part, values) {
                completed = completed + "`" + &command + "`";
            } else {
                completed.truncate(completed.trim_end_matches([' ', ',', ':']).len());
            }
        }
        completed
    }

    fn completed_command(&self, command: &str, values: &[(&'static str, String)]) -> Option<String> {
        let (own, rest) = command.split_at(command.find(['|', '>']).map_or(command.len(), |at| at - 1));
        let is_own = own.starts_with("asmpatch ");
        let mut words = Vec::new();
        for word in own.split(' ') {
            let (option, placeholder) = word.rsplit_once('=').map_or(("", word), |(option, value)| (option, value));
            let before = if option.is_empty() { String::new() } else { format!("{option}=") };
            let mut found = Vec::new();
            for (name, value) in values {
                if *name == placeholder {
                    found.push(shell::word(format!("{before}{value}")));
                }
            }
            if found.is_empty() && ERROR_VALUES.contains(&placeholder) && !values.is_empty() {
                return None;
            }
            let operand = self.values.iter().find(|(name, _)| is_own && *name == placeholder);
            match operand {
                _ if !found.is_empty() => words.extend(found),
                Some((_, value)) => words.push(value.clone()),
                None => words.push(word.to_owned()),
            }
        }
        let mut completed = words.join(" ");
        if is_own && let Some((takes_device, takes_ids)) = options(own, self.is_virtual) {
            if let Some(device) = self.device.as_ref().filter(|_| takes_device) {
                completed = completed + " --device " + device;
            }
            if takes_ids {
                completed += &self.ids;
            }
        }
        Some(completed + rest)
    }

    /// Says what the user does by hand with the units that the command line names.
    pub const fn by_hand(&self, hands: Hands) -> &'static str {
        by_hand(hands, self.is_virtual)
    }

    /// Returns the command with these options added.
    pub fn with(&self, options: &str) -> String {
        if self.words.is_empty() {
            return format!("`asmpatch ...{options}`");
        }
        let words: Vec<String> = self.words.iter().map(shell::word).collect();
        // Only operands may follow `--`.
        let (own, operands) = words.split_at(words.iter().position(|word| word == "--").unwrap_or(words.len()));
        let spaced = |words: &[String]| words.iter().map(|word| format!(" {word}")).collect::<String>();
        format!("`asmpatch{}{options}{}`", spaced(own), spaced(operands))
    }
}

/// Returns the value of `--device` for a command on this unit.
pub fn unit_option(location: &Location) -> String {
    shell::word(location.to_string())
}

/// Placeholders that only an error gives a value.
const ERROR_VALUES: [&str; 3] = ["PLACE", "DEVICE", "DISK"];

/// Returns whether a printed command lacks the unit, and whether it lacks the IDs; `None` unless it can be run as it is.
/// `list` shows every dock, and a virtual unit only if it is named.
fn options(command: &str, is_virtual: bool) -> Option<(bool, bool)> {
    let words: Vec<&str> = command.split(' ').collect();
    let matches = super::command().try_get_matches_from(&words).ok()?;
    let (mut clap, mut leaf) = (super::command(), &matches);
    while let Some((name, below)) = leaf.subcommand() {
        clap = clap.find_subcommand(name)?.clone();
        leaf = below;
    }
    let lacks = |id: &str| {
        let is_taken = clap.get_arguments().any(|argument| argument.get_id() == id);
        is_taken && leaf.value_source(id) != Some(ValueSource::CommandLine)
    };
    // The first is named for what it has made, the second as a check of a file.
    let is_of_file = matches!(words.get(1), Some(&("backup" | "verify")));
    Some((lacks("device") && !is_of_file && (is_virtual || words.get(1) != Some(&"list")), lacks("usb_ids")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hands_can_do_depends_on_whether_the_unit_is_a_dock() {
        let dock = Location::Port("3-1".parse().unwrap());
        assert_eq!(by_hand_on(&dock, Hands::Replug), by_hand(Hands::Replug, false));
        assert_eq!(by_hand_on(&Location::Virtual("u".into()), Hands::Replug), by_hand(Hands::Replug, true));
    }

    #[test]
    fn advice_is_for_virtual_units_if_the_command_line_names_only_those() {
        let is_virtual = |line: &[&str]| {
            let words = line.iter().map(Into::into);
            CommandLine::of(&crate::cli::command().get_matches_from(line), words).is_virtual
        };
        assert!(is_virtual(&["asmpatch", "reset", "--device", "virtual:u"]));
        assert!(is_virtual(&["asmpatch", "config", "get", "--device", "virtual"]));
        assert!(!is_virtual(&["asmpatch", "flash", "f", "--device", "virtual:u", "--device", "3-1"]));
        assert!(!is_virtual(&["asmpatch", "reset", "--device", "3-1"]));
        assert!(!is_virtual(&["asmpatch", "demo"]));
    }
}
