//! What helps, in the words for a dock or for a virtual unit.

use std::ffi::OsString;

use crate::shell;
use crate::unit::Selector;
use asm2464_host::bridge::Location;
use clap::ArgMatches;

/// What you do with your hands about a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Unplug the unit and plug it in again.
    Replug,
    /// The same, where the sentence has named the unit.
    ReplugIt,
    /// Plug the unit in again.
    PlugIn,
    /// Take the power of cable and supply. The chip runs from the cable, so the supply alone restarts nothing. Source:
    /// jacobrosenthal/tinygrad, `extra/usbgpu`, August 2026, for the order and the times.
    ReplugWithSupply,
    /// What helps a slow link, a step a line, in the order in which to try. Source: the same; jagoff2/sunnypilot,
    /// September 2026.
    SlowLink,
    /// Look at the cable and the power.
    CheckCable,
    /// Try another cable and port.
    OtherCable,
    /// The same, without a hub.
    OtherCableNoHub,
    /// The same, for a link that is slow.
    OtherPort,
    /// Try another supply.
    OtherSupply,
    /// Connect the supply.
    ConnectSupply,
    /// Check the supply.
    CheckSupply,
}

impl Advice {
    /// Words the advice for the owner of a dock, or of a virtual unit: its power and its faults are in software.
    pub const fn words(self, is_virtual: bool) -> &'static str {
        match self {
            Self::Replug | Self::ReplugIt | Self::PlugIn | Self::ReplugWithSupply if is_virtual => {
                "run the next command, which powers the virtual unit up again with the faults in its bridge.toml"
            }
            _ if is_virtual => "look for the fault in the virtual unit's bridge.toml",
            Self::Replug => "unplug the unit, wait five seconds, plug it in again",
            Self::ReplugIt => "unplug it, wait five seconds, plug it in again",
            Self::PlugIn => "plug the unit in again",
            Self::ReplugWithSupply => {
                "take the cable out, switch the supply off for ten seconds and on, wait five seconds, put the cable in last"
            }
            Self::SlowLink => {
                "is the dock's supply on? Without it the chip runs from the cable and comes up at USB 2; its switch alone \
                 restarts nothing\n\
                 then take the cable out, switch the supply off for ten seconds and on, wait five seconds, put the cable in \
                 last\n\
                 then try another cable, another port, no hub\n\
                 on a Thunderbolt port, let the computer sleep: `sudo rtcwake -m mem -s 15` helped one owner where nothing \
                 else did"
            }
            Self::CheckCable => "check its cable and its power",
            Self::OtherCable => "try another cable and port",
            Self::OtherCableNoHub => "try another cable and port, without a hub",
            Self::OtherPort => "try another cable, another port, no hub",
            Self::OtherSupply => "try another supply, and the unit without its card",
            Self::ConnectSupply => "connect the unit's supply",
            Self::CheckSupply => "check the unit's supply",
        }
    }

    /// Words the advice for the owner of this unit. A record may be a dock's.
    pub const fn on(self, location: &Location) -> &'static str {
        self.words(matches!(location, Location::Virtual(_)))
    }
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

    /// A command on this unit, of which only the unit is known.
    pub fn on(location: &Location) -> Self {
        Self { is_virtual: matches!(location, Location::Virtual(_)), words: Vec::new() }
    }

    /// Words advice for the owner of the units that the command line names.
    pub const fn words(&self, advice: Advice) -> &'static str {
        advice.words(self.is_virtual)
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

/// Returns what `--device` takes in a command that changes the unit. A record can't be changed, but the dock can from
/// which it comes.
pub fn device(location: &Location) -> String {
    if location.is_replay() { "PORT".to_owned() } else { shell::word(location.to_string()) }
}

/// Whether advice says what only a dock's owner can do.
#[cfg(test)]
pub fn is_for_docks(advice: &str) -> bool {
    ["unplug", "Unplug", "plug it", "cable", "supply"].iter().any(|word| advice.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_unit_is_never_to_be_unplugged() {
        // About hubs, systems' permissions, USB4 ports and other programs' guests, which virtual units don't meet; about
        // leaving the cable where it is.
        let elsewhere = [
            "asmpatch::usb::port_left_off",
            "asmpatch::usb::permission",
            "asmpatch::usb::descriptors",
            "asmpatch::device::none",
            "asmpatch::device::tunnelled",
            "asmpatch::serve::cut_off",
            "asmpatch::serve::io",
            "asmpatch::serve::stuck",
            "asmpatch::bench::worse",
            "asmpatch::sense::flash",
        ];
        let line = CommandLine { is_virtual: true, words: Vec::new() };
        for (code, told) in crate::cli::errors::each(&line) {
            assert!(!is_for_docks(&told) || elsewhere.contains(&code), "{code}: {told}");
        }
    }

    #[test]
    fn the_owner_of_a_recorded_dock_can_do_what_the_owner_of_a_dock_can() {
        let dock = Location::Port("3-1".parse().unwrap());
        for location in [dock, Location::Replay("report.json".into())] {
            assert_eq!(Advice::Replug.on(&location), Advice::Replug.words(false));
        }
        assert_eq!(Advice::Replug.on(&Location::Virtual("u".into())), Advice::Replug.words(true));
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
