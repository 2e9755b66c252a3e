//! Advice for a unit, as text.

use crate::advice::{Advice, Hands};
use crate::doctor::{OPEN_RUNTIME, PATCHED_RUNTIME};
use asm2464_host::bridge::Location;
use asm2464_host::pcie::Note;

use super::command_line::{CommandLine, by_hand_on};
use super::errors;

/// Returns the advice as text for this unit; `None` if nothing is known to help. `line` is the command that asks.
pub fn words(advice: &Advice, location: &Location, line: &CommandLine) -> Option<String> {
    let line = line.of_unit(location);
    Some(line.completed(&plain_words(advice, location, &line)?, &[]))
}

fn plain_words(advice: &Advice, location: &Location, line: &CommandLine) -> Option<String> {
    let hands = |hands| by_hand_on(location, hands);
    let open = || "`asmpatch flash ed4e39b`";
    let patched = || "`asmpatch patch \"$(asmpatch download)\" -o patched.bin`, then `asmpatch flash patched.bin`";
    let restart = || {
        let power_cycle = hands(Hands::ReplugWithSupply);
        format!("run `asmpatch reset`, which tries what can help, mildest first; if nothing does, {power_cycle}")
    };
    Some(match advice {
        Advice::AgainstError(code) => return errors::help_by_code(code, line),
        Advice::AgainstNote(note) => return against_note(note).map(str::to_owned),
        Advice::RetrainLink { restarts: false } => hands(Hands::SlowLink).to_owned(),
        Advice::RetrainLink { restarts: true } => {
            let by_hand = hands(Hands::SlowLink);
            format!("{by_hand}\n`asmpatch reset` retrains the link without your hands")
        }
        // On its own line, the command is not folded for a port of usual length.
        Advice::KeepAwake => format!(
            "install the rules of `asmpatch udev` and replug; until then:\n\
             echo on | sudo tee /sys/bus/usb/devices/{location}/power/control"
        ),
        Advice::OtherGovernor => "while you use the dock: `sudo cpupower frequency-set -g performance`".to_owned(),
        Advice::EndLockHolder => "if that is no runtime at work, end the process; the lock ends with it".to_owned(),
        Advice::NewerBuild(lacks) => (*lacks).to_owned(),
        Advice::FlashCustom => format!("tinygrad takes a product string that starts with `custom`: {}", open()),
        Advice::FlashOtherId => format!("a fork's own runtime may open it; for tinygrad: {}", open()),
        Advice::FlashInitialised => {
            format!("{} for {OPEN_RUNTIME}, or for {PATCHED_RUNTIME} {}", open(), patched())
        }
        Advice::FlashForLater => format!("for later releases: {}", open()),
        Advice::PatchIdentity => format!("the default patches give the image its identity: {}", patched()),
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
        Advice::AllowWrites => "leave out `--no-write`: what doctor writes is gone after a power cycle".to_owned(),
        Advice::Restart => restart(),
        Advice::EndRuntimeOrRestart => format!("end the runtime; if there is none, {}", restart()),
        Advice::EndRuntimeAndRestart => "end it, then `asmpatch reset`".to_owned(),
        // Source: owners' reports.
        Advice::Power => format!("power: {}. Nothing else helps", hands(Hands::ReplugWithSupply)),
        Advice::SwitchPcieOn => {
            "some builds leave PCIe off until a runtime switches it on, and `asmpatch reset --level pcie-power` does that, \
             too"
            .to_owned()
        }
        Advice::CheckCard => {
            "check that the card sits in its slot, and that card and dock have their 12 V: without it PCIe never leaves \
             reset"
                .to_owned()
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
            "check the card's seat and its power; `asmpatch pcie` shows the tree".to_owned()
        }
        Advice::Expect { id, source } => {
            let source = source.as_ref().map(|source| format!(". Source: {source}")).unwrap_or_default();
            format!("`--expect {id}` if a runtime of yours drives it{source}")
        }
        Advice::OtherCableThenVerify => {
            format!(
                "{}; then compare its flash with the image, by `asmpatch verify --device`, and flash it",
                hands(Hands::OtherCable)
            )
        }
    })
}

/// Returns what to run about a note on PCIe, if a command helps.
pub const fn against_note(note: &Note) -> Option<&'static str> {
    match note {
        Note::OddBuses { .. } => Some("`asmpatch pcie reset` clears them"),
        Note::NoBusLeft { .. } => Some("`asmpatch pcie reset` frees them"),
        Note::Closed { .. } => Some("`asmpatch pcie --assign` lays windows and BARs out anew"),
        _ => None,
    }
}

/// Whether advice names something that can be done only to a real dock.
#[cfg(test)]
pub fn is_for_docks(advice: &str) -> bool {
    ["unplug", "Unplug", "plug it", "cable", "supply"].iter().any(|word| advice.contains(word))
}
