//! Advice as text: what the user does by hand and which commands to run, completed by the command line that asked.

use asm2464_host::bridge::Location;
use clap::parser::ValueSource;

use super::invocation::Invocation;
use crate::advice::Hands;
use crate::shell;

/// Says what the user does by hand. A virtual unit has other texts: its power and its faults are in software.
const fn by_hand(hands: Hands, is_virtual: bool) -> &'static str {
    match hands {
        Hands::FindBackup => {
            "restore a backup of the unit, `restore DIR --no-backup`, or without one give it firmware and the identity of a \
             new board, `flash FILE --no-backup`: `asmpatch help recovery`"
        }
        Hands::Replug | Hands::ReplugIt | Hands::PlugIn | Hands::ReplugWithSupply if is_virtual => {
            "run `asmpatch list`, which powers the virtual unit up again with the faults in its bridge.toml; \
             `virtual set KEY=` takes one out"
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

/// The operands that advice names, by their ids, each with its placeholder there.
const OPERANDS: [(&str, &str); 3] = [("file", "FILE"), ("folder", "DIR"), ("image", "ID")];

impl Invocation {
    /// Completes the commands of a text, which stand in backticks: puts in what their placeholders, such as `{FILE}`,
    /// stand for, and names the unit where a command takes one. `values` are the error's own; a command for which it has
    /// none is left out if it has others. A command that lacks a value stays without the program's name, so that nobody
    /// can run it.
    pub fn completed_text(&self, text: &str, values: &[(&'static str, String)]) -> String {
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
        // What follows a pipe or a redirection is another program's. A name may have either character.
        let end = command.find(" | ").or_else(|| command.find(" > "));
        let (own, rest) = command.split_at(end.unwrap_or(command.len()));
        let is_own = own.starts_with("asmpatch ");
        let mut words = Vec::new();
        let mut lacks_value = false;
        for word in own.split(' ') {
            let Some((before, placeholder)) = word.strip_suffix('}').and_then(|word| word.split_once('{')) else {
                words.push(word.to_owned());
                continue;
            };
            let mut found = Vec::new();
            for (name, value) in values {
                if *name == placeholder {
                    found.push(shell::word(format!("{before}{value}")));
                }
            }
            if found.is_empty() && ERROR_VALUES.contains(&placeholder) && !values.is_empty() {
                return None;
            }
            let operand = OPERANDS.into_iter().find(|(_, name)| is_own && *name == placeholder);
            match operand.and_then(|(id, _)| self.value(id)) {
                _ if !found.is_empty() => words.extend(found),
                Some(value) => words.push(shell::path(value)),
                None => {
                    lacks_value = true;
                    words.push(format!("{before}{placeholder}"));
                }
            }
        }
        if is_own && lacks_value {
            words.remove(0);
        }
        let mut completed = words.join(" ");
        if is_own
            && !lacks_value
            && let Some((takes_device, takes_ids)) = options(own, self.is_virtual())
        {
            if takes_device && let Some(device) = self.device() {
                completed = completed + " --device " + &shell::word(device);
            }
            if takes_ids {
                completed += &self.ids();
            }
        }
        Some(completed + rest)
    }

    /// Says what the user does by hand with the units that the command line names.
    pub fn by_hand(&self, hands: Hands) -> &'static str {
        by_hand(hands, self.is_virtual())
    }
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

/// Whether advice names something that can be done only to a real dock.
#[cfg(test)]
pub fn is_for_docks(advice: &str) -> bool {
    ["unplug", "Unplug", "plug it", "cable", "supply"].iter().any(|word| advice.contains(word))
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
}
