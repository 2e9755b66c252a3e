//! The command line, as far as advice depends on it, and the texts of what the user does by hand.

use std::ffi::OsString;

use crate::advice::Hands;
use crate::shell;
use crate::unit::Selector;
use asm2464_host::bridge::Location;
use clap::ArgMatches;

/// Says what the user does by hand. A virtual unit has other texts: its power and its faults are in software.
const fn by_hand(hands: Hands, is_virtual: bool) -> &'static str {
    match hands {
        Hands::FindBackup => {
            "restore a backup of the unit, `asmpatch restore DIR --no-backup`, or without one give it firmware and the \
             identity that any unit gets, `asmpatch flash FILE --no-backup`: docs/recovery.md"
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
}

impl CommandLine {
    /// Takes the parsed arguments, and the words that they were parsed from.
    pub fn of(matches: &ArgMatches, words: impl Iterator<Item = OsString>) -> Self {
        let mut command = matches;
        while let Some((_, below)) = command.subcommand() {
            command = below;
        }
        let named = command.try_get_raw("device").ok().flatten();
        let is_virtual = |device: &str| matches!(device.parse(), Ok(Selector::Virtual(_)));
        let mut named = named.into_iter().flatten().peekable();
        let is_virtual = named.peek().is_some() && named.all(|device| device.to_str().is_some_and(is_virtual));
        Self { is_virtual, words: words.skip(1).collect() }
    }

    /// Returns the command line of some command on this unit: its words are not known.
    pub fn on(location: &Location) -> Self {
        Self { is_virtual: matches!(location, Location::Virtual(_)), words: Vec::new() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_recorded_dock_can_do_what_the_owner_of_a_dock_can() {
        let dock = Location::Port("3-1".parse().unwrap());
        for location in [dock, Location::Replay("report.json".into())] {
            assert_eq!(by_hand_on(&location, Hands::Replug), by_hand(Hands::Replug, false));
        }
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
