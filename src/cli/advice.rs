//! What helps, in the words for a dock or for a virtual unit.

use std::ffi::OsString;

use crate::advice::{Advice, Hands};
use crate::doctor::{OPEN_RUNTIME, PATCHED_RUNTIME};
use crate::shell;
use crate::unit::Selector;
use asm2464_host::bridge::Location;
use clap::ArgMatches;

use super::{errors, pcie};

/// Words what the owner of a dock does by hand, or of a virtual unit: its power and its faults are in software.
const fn by_hand(hands: Hands, is_virtual: bool) -> &'static str {
    match hands {
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

/// Words what the owner of this unit does by hand. A record may be a dock's.
pub const fn by_hand_on(location: &Location, hands: Hands) -> &'static str {
    by_hand(hands, matches!(location, Location::Virtual(_)))
}

/// Words what helps this unit, where anything is known.
pub fn words(advice: &Advice, location: &Location) -> Option<String> {
    let hands = |hands| by_hand_on(location, hands);
    let device = device(location);
    let flash = |image: &str| format!("`asmpatch flash {image} --device {device}`");
    let (open, patched) = (|| flash("OPEN.bin"), || flash("PATCHED.bin"));
    let restart = || {
        let power_cycle = hands(Hands::ReplugWithSupply);
        format!("run `asmpatch reset`, which tries what can help, mildest first; if nothing does, {power_cycle}")
    };
    Some(match advice {
        Advice::AgainstError(code) => return errors::help_by_code(code, &CommandLine::on(location)),
        Advice::AgainstNote(note) => return pcie::help(note).map(str::to_owned),
        Advice::RetrainLink { restarts: false } => hands(Hands::SlowLink).to_owned(),
        Advice::RetrainLink { restarts: true } => {
            let by_hand = hands(Hands::SlowLink);
            format!("{by_hand}\n`asmpatch reset --device {device}` retrains the link without your hands")
        }
        Advice::KeepAwake => format!(
            "install the rules of `asmpatch udev` and plug the unit in again; until then: \
             `echo on | sudo tee /sys/bus/usb/devices/{location}/power/control`"
        ),
        Advice::OtherGovernor => "while you use the dock: `sudo cpupower frequency-set -g performance`".to_owned(),
        Advice::EndLockHolder => "if that is no runtime at work, end the process; the lock ends with it".to_owned(),
        Advice::NewerBuild(lacks) => (*lacks).to_owned(),
        Advice::FlashCustom => format!("tinygrad takes a product string that starts with `custom`: {}", open()),
        Advice::FlashInitialised => {
            format!("{} for {OPEN_RUNTIME}, or {} with 240417, patched, for {PATCHED_RUNTIME}", open(), patched())
        }
        Advice::FlashForLater => format!("for later releases: {} with an image of the open firmware", open()),
        Advice::PatchIdentity => format!("patch the image with its identity, and {}", patched()),
        Advice::FlashForRuntime => format!(
            "{OPEN_RUNTIME} needs the open firmware: {}\n{PATCHED_RUNTIME} needs the patched vendor firmware: {}\n\
             README.md says how. A USB4 or Thunderbolt host needs neither",
            open(),
            patched()
        ),
        Advice::StartFlashed => format!("{}: then it runs what is in its flash", hands(Hands::Replug)),
        Advice::FlashClearsProtection => {
            "`asmpatch flash` clears the protection, and sets it again if it writes nothing".to_owned()
        }
        Advice::AskFlash => {
            "`--write` asks it for its JEDEC ID and its protection, through its controller's registers".to_owned()
        }
        Advice::CheckPipes => "`--write` sends 512 bytes to the bridge's SRAM".to_owned(),
        Advice::Restart => restart(),
        Advice::EndRuntimeOrRestart => format!("end the runtime; if there is none, {}", restart()),
        Advice::EndRuntimeAndRestart => format!("end it, then `asmpatch reset --device {device}`"),
        // Source: owners' reports.
        Advice::Power => format!("power: {}. Nothing else helps", hands(Hands::ReplugWithSupply)),
        Advice::CheckCard { may_be_off } => {
            let switched_off = if *may_be_off {
                "some builds of mid-2026 switch PCIe on only when a runtime asks for it, and `asmpatch pcie reset` asks, \
                 too. Otherwise "
            } else {
                ""
            };
            format!(
                "{switched_off}check that the card sits in its slot, and that card and dock have their 12 V: without it \
                 PCIe never leaves reset"
            )
        }
        Advice::CheckSupplyUnderLoad => format!("if the link drops under load, {}", hands(Hands::CheckSupply)),
        Advice::ConnectSupply => {
            format!("{}: PCIe needs it, and no dock works below 5 V", hands(Hands::ConnectSupply))
        }
        Advice::ReplaceSupply => {
            format!("{}; if it stays, {}", hands(Hands::ReplugWithSupply), hands(Hands::OtherSupply))
        }
        Advice::CheckSupplyWithoutCard => format!(
            "if the card is not found, {}; a board without the sensor may leave the line open",
            hands(Hands::CheckSupply)
        ),
        Advice::ReplaceSsd => "put a GPU in its place".to_owned(),
        Advice::CheckSeat => {
            format!("check the card's seat and its power; `asmpatch pcie --device {device}` shows the tree")
        }
        Advice::Expect { id, source } => {
            let source = source.as_ref().map(|source| format!(". Source: {source}")).unwrap_or_default();
            format!("`--expect {id}` if a runtime of yours drives it{source}")
        }
        Advice::OtherCableThenVerify => {
            format!("{}; then `asmpatch verify --device` and a flash", hands(Hands::OtherCable))
        }
    })
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

    /// Words what the owner of the units that the command line names does by hand.
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
        for (code, advice) in crate::cli::errors::each(&line) {
            assert!(!is_for_docks(&advice) || elsewhere.contains(&code), "{code}: {advice}");
        }
    }

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
