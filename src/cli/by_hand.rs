//! What you do to a dock with your hands, and what you do instead to a virtual unit.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::shell;
use crate::unit::Selector;
use asm2464_host::bridge::Location;
use clap::ArgMatches;

/// Whether each unit that the command line names is virtual.
static IS_VIRTUAL: AtomicBool = AtomicBool::new(false);

/// What you do to a dock with your hands. `for_virtual` finds these phrases in advice, so build it from them.
pub const REPLUG: &str = "unplug the unit, wait five seconds, plug it in again";
pub const REPLUG_WITH_SUPPLY: &str = "unplug the unit and its supply, wait five seconds, plug both in again";
pub const OTHER_CABLE: &str = "try another cable and port";
pub const OTHER_PORT: &str = "try another cable, another port, no hub";
pub const OTHER_SUPPLY: &str = "try another supply, and the unit without its card";
pub const CONNECT_SUPPLY: &str = "connect the unit's supply";
pub const CHECK_SUPPLY: &str = "check the unit's supply";

/// What you do to a virtual unit instead.
const POWER: &str = "run the next command, which powers the virtual unit up again with the faults in its bridge.toml";
const FAULTS: &str = "look for the fault in the virtual unit's bridge.toml";

/// What the advice on a dock says, and the same for a virtual unit.
const PHRASES: [(&str, &str); 11] = [
    (REPLUG, POWER),
    ("unplug it, wait five seconds, plug it in again", POWER),
    (REPLUG_WITH_SUPPLY, POWER),
    ("plug the unit in again", POWER),
    ("check its cable and its power", FAULTS),
    ("try another cable and port, without a hub", FAULTS),
    (OTHER_CABLE, FAULTS),
    (OTHER_PORT, FAULTS),
    (OTHER_SUPPLY, FAULTS),
    (CONNECT_SUPPLY, FAULTS),
    (CHECK_SUPPLY, FAULTS),
];

/// Notes from the command line whether the advice is for virtual units.
pub fn note(matches: &ArgMatches) {
    let mut command = matches;
    while let Some((_, below)) = command.subcommand() {
        command = below;
    }
    let named = command.try_get_raw("device").ok().flatten();
    let is_virtual = |device: &str| matches!(device.parse(), Ok(Selector::Virtual(_)));
    let mut named = named.into_iter().flatten().peekable();
    let all = named.peek().is_some() && named.all(|device| device.to_str().is_some_and(is_virtual));
    IS_VIRTUAL.store(all, Ordering::Relaxed);
}

/// Returns what to do where a dock has to be unplugged.
pub fn replug(location: &Location) -> &'static str {
    if is_for_virtual(location) { POWER } else { REPLUG }
}

/// Rewords advice on a dock for this unit.
pub fn advice(text: String, location: &Location) -> String {
    if is_for_virtual(location) { for_virtual(&text) } else { text }
}

/// Returns what `--device` takes in a command that changes the unit. A record can't be changed, but the dock can from
/// which it comes.
pub fn device(location: &Location) -> String {
    if location.is_replay() { "PORT".to_owned() } else { shell::word(location.to_string()) }
}

/// Whether advice is for the owner of a virtual unit. A record may be a dock's.
const fn is_for_virtual(location: &Location) -> bool {
    matches!(location, Location::Virtual(_))
}

/// Rewords advice on a dock for the units that the command line names.
pub fn advice_here(text: String) -> String {
    if IS_VIRTUAL.load(Ordering::Relaxed) { for_virtual(&text) } else { text }
}

/// Whether advice says what only a dock's owner can do.
#[cfg(test)]
pub fn is_for_docks(advice: &str) -> bool {
    ["unplug", "Unplug", "plug it", "cable", "supply"].iter().any(|word| advice.contains(word))
}

fn for_virtual(text: &str) -> String {
    PHRASES.iter().fold(text.to_owned(), |text, (dock, virtual_unit)| text.replace(dock, virtual_unit))
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
        for (code, help) in crate::cli::errors::each() {
            let told = for_virtual(help);
            assert!(!is_for_docks(&told) || elsewhere.contains(&code), "{code}: {told}");
        }
    }

    #[test]
    fn the_owner_of_a_recorded_dock_can_do_what_the_owner_of_a_dock_can() {
        let dock = Location::Port("3-1".parse().unwrap());
        for location in [dock, Location::Replay("report.json".into())] {
            assert_eq!((replug(&location), advice(REPLUG.to_owned(), &location)), (REPLUG, REPLUG.to_owned()));
        }
        assert_eq!(replug(&Location::Virtual("u".into())), POWER);
    }

    #[test]
    fn advice_is_for_virtual_units_if_the_command_line_names_only_those() {
        let told = |line: &[&str]| {
            note(&crate::cli::command().get_matches_from(line));
            advice_here(REPLUG.to_owned())
        };
        assert_eq!(told(&["asmpatch", "reset", "--device", "virtual:u"]), POWER);
        assert_eq!(told(&["asmpatch", "config", "get", "--device", "virtual"]), POWER);
        assert_eq!(told(&["asmpatch", "flash", "f", "--device", "virtual:u", "--device", "3-1"]), REPLUG);
        assert_eq!(told(&["asmpatch", "reset", "--device", "3-1"]), REPLUG);
        assert_eq!(told(&["asmpatch", "demo"]), REPLUG);
    }
}
