//! Words advice as steps, for a dock or for a virtual unit: every command that sees a fault words it here, and the table
//! of errors its entries.
//!
//! A step has what it is for and, if one helps, the command, completed by the command that was run. As text, the command
//! stands on a line of its own, which nothing folds; as JSON, it is a key of its own.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;

use asm2464::Named;
use asm2464::escape::Escape as _;
use asm2464_host::pcie::Note;
use asm2464_host::usb::sysfs::{DevicePort, Forwarder};

use super::errors;
use super::invocation::{Command, Effect, Invocation, own_and_tail};
use super::line::Line;
use super::worded_step::{Follows, Lacking, WordedStep};
use crate::advice::{Advice, Hands};
use crate::fetch::{DEFAULT_IMAGE, OPEN_IMAGE, Source};
use crate::runtimes::{OPEN_RUNTIME, PATCHED_RUNTIME};
use crate::shell;

/// Makes the host look for PCIe devices again.
const SEARCH: &str = "echo 1 | sudo tee /sys/bus/pci/rescan";

/// Words what helps, in the order in which to try it; nothing if nothing is known to help. `run` is the command that asks,
/// for the unit that the advice is about.
pub fn steps(advice: &Advice, run: &Invocation) -> Vec<WordedStep> {
    let hands = |hands| WordedStep::hands(run.by_hand(hands));
    let told = |text: &str| WordedStep::hands(text.to_owned());
    let search = |why: &'static str| WordedStep::run(why, SEARCH);
    let open = |why: String| WordedStep::if_yes(why, run.other(&format!("flash {OPEN_IMAGE}")));
    let patched = |why: String| {
        let patch = run.other(&format!("patch {DEFAULT_IMAGE}")).with("output", run.patched());
        let flash = run.other("flash").operand(run.patched());
        [WordedStep::if_yes(why.clone(), patch), WordedStep::if_yes(why, flash).then()]
    };
    let both = || {
        let [patch, flash] = patched(format!("for {PATCHED_RUNTIME}, patch the vendor firmware, then flash it"));
        vec![open(format!("for {OPEN_RUNTIME}, flash the open firmware")), patch.instead(), flash]
    };
    match advice {
        Advice::AgainstError { code, named } => errors::steps_by_code(code, named, run),
        Advice::AgainstNote(note) => against_note(note, run).into_iter().collect(),
        Advice::RetrainLink { restarts } => {
            let reset = restarts.then(|| WordedStep::run("retrain the link without your hands", run.other("reset")));
            let by_hand = run.by_hand(Hands::SlowLink);
            reset.into_iter().chain(by_hand.lines().map(WordedStep::hands)).collect()
        }
        Advice::KeepAwake(location) => {
            let why = format!("install the rules of `{}` and replug; until then", run.other("udev"));
            vec![keep_awake(why, &[format!("bus/usb/devices/{location}")])]
        }
        Advice::OtherGovernor => {
            vec![WordedStep::run("while you use the dock", "sudo cpupower frequency-set -g performance")]
        }
        Advice::EndLockHolder => {
            vec![told("if that is no runtime at work, end the process; the lock ends with it")]
        }
        Advice::NewerBuild(lacks) => vec![open((*lacks).to_owned())],
        Advice::FlashCustom => vec![open(
            "tinygrad takes a product string that starts with `custom`, as that of the open firmware".to_owned(),
        )],
        Advice::FlashOtherId => {
            vec![open("a fork's own runtime may open it; for tinygrad, flash the open firmware".to_owned())]
        }
        Advice::FlashInitialised => both(),
        Advice::FlashForLater => vec![open("for later releases, flash the open firmware".to_owned())],
        Advice::PatchIdentity => {
            patched("patch the image, then flash it: the default patches give it its identity".to_owned()).into()
        }
        Advice::FlashForRuntime => {
            let mut steps = both();
            steps.push(told("how: `asmpatch help which-firmware`; USB4 hosts need neither"));
            steps
        }
        Advice::StartFlashed => {
            vec![told(&format!("{}: then it runs what is in its flash", run.by_hand(Hands::Replug)))]
        }
        Advice::AllowWrites => {
            let again = run.again().without("no_write");
            vec![WordedStep::run("let doctor write what is gone after a power cycle", again)]
        }
        Advice::EndRuntimeAndRestart => {
            let reset = WordedStep::if_yes("then undo its initialisation", run.other("reset"));
            vec![told("end the runtime"), reset.then()]
        }
        Advice::CheckSupplyUnderLoad => {
            vec![told(&format!("if the link drops under load, {}", run.by_hand(Hands::CheckSupply)))]
        }
        Advice::ConnectSupply => {
            let connect = run.by_hand(Hands::ConnectSupply);
            vec![told(&format!("{connect}: PCIe needs it, and no dock works below 5 V"))]
        }
        Advice::ReplaceSupply => {
            let other = run.by_hand(Hands::OtherSupply);
            vec![hands(Hands::ReplugWithSupply), told(&format!("if it stays, {other}"))]
        }
        Advice::CheckSupplyWithoutCard => vec![told(&format!(
            "if the card is not found, {}; a board without the sensor may leave the line open",
            run.by_hand(Hands::CheckSupply)
        ))],
        Advice::ReplaceSsd => vec![told("put a GPU in its place")],
        Advice::CheckSeat => {
            vec![told("check the card's seat and its power"), WordedStep::run("see the tree", run.other("pcie"))]
        }
        // tinygrad numbers the buses in the order of the bridges, so each PCIe switch on the way adds two. Source:
        // `pci_setup_usb_bars` in its `runtime/support/system.py`.
        Advice::OtherBus { id, is_higher } => {
            let card = if *is_higher {
                "each PCIe switch between dock and card makes the number higher: put the card straight into the dock's \
                 slot, or use an adapter without a switch"
            } else {
                "nobody has reported a dock on which another slot or adapter changes that"
            };
            let expect = run.other(&format!("doctor --expect {id}"));
            vec![told(card), WordedStep::if_yes("if a runtime of yours looks there", expect)]
        }
        Advice::Expect { id, source } => {
            let source = source.as_ref().map(|source| format!(" (source: {source})")).unwrap_or_default();
            let expect = run.other(&format!("doctor --expect {id}"));
            vec![WordedStep::if_yes(format!("if a runtime of yours drives it{source}"), expect)]
        }
        Advice::OtherCableThenVerify => vec![
            hands(Hands::OtherCable),
            told("then compare its flash with the image, by `verify --device`, and flash it"),
        ],
        // On USB4 and Thunderbolt, where nothing is a unit.
        Advice::Authorise(Some(uuid)) => {
            let enroll = format!("boltctl enroll --policy=auto {}", shell::word(uuid));
            vec![
                WordedStep::if_yes("if it is yours, authorise it, for good", enroll),
                told("if that fails, the host may need a newer NVM"),
            ]
        }
        Advice::Authorise(None) => {
            vec![told("`boltctl list` shows the UUID that `boltctl enroll --policy=auto` takes")]
        }
        Advice::AllowPcie => {
            vec![told("choose a security level with PCIe (`user`, `secure` or `none`) in the host's firmware settings")]
        }
        Advice::NewerNvm => vec![WordedStep::run("see whether the host has a newer one", "fwupdmgr get-updates")],
        Advice::KeepPortsAwake { folders, rescans } => {
            let awake = keep_awake("keep it awake, until the host starts again".to_owned(), folders);
            [awake].into_iter().chain(rescans.then(|| search("then search PCIe").then())).collect()
        }
        Advice::KeepTunnels => vec![told(
            "if the dock is missing after each boot, and there after a replug, start the kernel with \
             `thunderbolt.host_reset=0`",
        )],
        Advice::BecomeHost(DevicePort { name, role_file }) => {
            let name = name.shown();
            let why = format!(
                "{name} is the device, and something is connected to it. If that is your dock, make the port the host; what \
                 runs over this port now ends (adb, SSH)"
            );
            match role_file {
                Some(file) => vec![WordedStep::if_yes(why, format!("echo host | sudo tee {}", shell::path(file)))],
                None => vec![told(&format!(
                    "{name} is the device, and something is connected to it. If that is your dock, take another port: the \
                     kernel has no file that makes this one the host"
                ))],
            }
        }
        Advice::MissingTunnel => vec![told(
            "if you want the tunnel, take a cable for USB4 (40 Gbit/s), no hub in between, and a port that has USB4 itself; \
             then look for a newer NVM or BIOS of the host. A host of Thunderbolt 3 may make none",
        )],
        Advice::MoreLanes => vec![told(
            "try a cable and a port for 40 Gbit/s, without a hub, and check the card's seat. A tunnel itself may report \
             2.5 GT/s whatever it carries",
        )],
        Advice::FindDock => vec![
            search("if a line above says so, authorise the device and wake its ports first; then search PCIe"),
            told("or replug the dock. To reach it over USB, connect it through a USB 3 port, cable or hub"),
            WordedStep::run("how", run.other("help recovery The unit is not listed")),
        ],
        Advice::PowerCard => {
            vec![search(
                "give the card its own 12 V, check its seat, wake the ports if a line above says so, then search PCIe",
            )]
        }
        Advice::LoadDriver { address, driver } => {
            let load = match driver {
                Some(driver) => WordedStep::run("load it", format!("sudo modprobe {driver}")),
                None => told("load its driver"),
            };
            let otherwise = format!("if it doesn't take the GPU, `sudo dmesg` says why, at {address}");
            vec![load, WordedStep::hands(otherwise)]
        }
        Advice::ReleaseHolder(address) => {
            // The override would give it to the same driver again. Source: the kernel's Documentation/ABI/testing/
            // sysfs-bus-pci, `driver_override`.
            let device = format!("/sys/bus/pci/devices/{address}");
            let commands = [
                format!("echo | sudo tee {device}/driver_override"),
                format!("echo {address} | sudo tee {device}/driver/unbind"),
                format!("echo {address} | sudo tee /sys/bus/pci/drivers_probe"),
            ];
            let why = "for the GPU's own driver, let go of it, then let the kernel look for that driver";
            let [first, unbind, probe] = commands.map(|command| WordedStep::if_yes(why, command));
            let mut steps = vec![first, unbind.then(), probe.then()];
            steps.push(told(
                "if the same driver takes it again, it was started with `ids=`: see /proc/cmdline and /etc/modprobe.d",
            ));
            steps
        }
    }
}

/// Words the step that keeps devices awake: their folders, below /sys.
fn keep_awake(why: String, folders: &[String]) -> WordedStep {
    let controls = folders.iter().map(|folder| shell::word(format!("/sys/{folder}/power/control")));
    let controls = controls.collect::<Vec<_>>().join(" ");
    WordedStep::run(why, format!("echo on | sudo tee {controls}"))
}

/// Returns what to run about a note on PCIe, if a command helps.
pub fn against_note(note: &Note, run: &Invocation) -> Option<WordedStep> {
    let (why, command) = match note {
        Note::OddBuses { .. } => ("clear them", "pcie reset"),
        Note::NoBusLeft { .. } => ("free them", "pcie reset"),
        Note::Closed { .. } => ("lay windows and BARs out anew", "pcie --assign"),
        _ => return None,
    };
    Some(WordedStep::run(why, run.other(command)))
}

/// A part of an advice.
#[derive(Debug, Clone)]
pub enum AdvicePart {
    /// What asmpatch says: a literal, which may have several lines, or a line with words from outside in it.
    Text(Cow<'static, str>),
    /// What you do with your hands.
    Hands(Hands),
    /// Another command, written without quotes and without `asmpatch`; after `$`, one of the system's. A word in braces,
    /// such as `{FILE}`, stands for what the error or the command that was run names.
    Run {
        /// What it is for.
        purpose: &'static str,
        /// The command.
        line: &'static str,
    },
    /// The same command with the values that the error names for an argument.
    Again {
        /// What it is for.
        purpose: &'static str,
        /// The argument's ID.
        id: &'static str,
        /// What its values are, as in a [`AdvicePart::Run`].
        slot: &'static str,
        /// Whether each value has a command of its own.
        is_each: bool,
    },
    /// A text about an option, which stands at `{}`. It is left out after a command that has neither the option nor a
    /// variable in its place.
    Option {
        /// The argument's ID.
        id: &'static str,
        /// The value to show: `None` for the one that the help names, an empty one for none.
        value: Option<&'static str>,
        /// The text.
        text: &'static str,
    },
    /// Another command, of which only the unit and what may travel is missing.
    Command(Cow<'static, str>, Command),
    /// The same command with another file or image as its first operand.
    AgainWith {
        /// What it is for.
        purpose: &'static str,
        /// The file, or the image's ID.
        value: String,
    },
    /// A step that is in words already.
    Step(WordedStep),
}

impl AdvicePart {
    /// A text.
    pub fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(text.into())
    }
}

/// Puts an advice into words, after this command and an error that names these. Text and hands that follow one another
/// are one step for each of their lines.
pub fn worded(parts: &[AdvicePart], run: &Invocation, named: &[Named]) -> Vec<WordedStep> {
    let mut words = Words { run, named, said: String::new(), steps: Vec::new() };
    for part in parts {
        words.add(part);
    }
    words.end_text();
    words.steps
}

/// An advice that is being put into words.
struct Words<'a> {
    run: &'a Invocation,
    named: &'a [Named],
    /// The text since the last command, in which only asmpatch's own line breaks are left.
    said: String,
    steps: Vec<WordedStep>,
}

/// What a slot of a command stands for.
enum Values {
    /// These.
    Are(Vec<OsString>),
    /// Only the user knows it.
    Unknown,
    /// The error names something else, so another command helps.
    OfAnotherKind,
}

/// The operands that advice names, by their IDs in clap.
const OPERANDS: [(&str, &[&str]); 3] = [("FILE", &["file", "files", "from"]), ("DIR", &["folder"]), ("ID", &["image"])];

impl Words<'_> {
    fn add(&mut self, part: &AdvicePart) {
        match part {
            AdvicePart::Text(Cow::Borrowed(text)) => self.said.push_str(text),
            AdvicePart::Text(Cow::Owned(text)) => self.said.push_str(&Line::of(text)),
            AdvicePart::Hands(Hands::HandOn) => {
                self.end_text();
                self.said.push_str(&self.run.by_hand(Hands::HandOn));
                self.end_text();
            }
            AdvicePart::Hands(hands) => self.said.push_str(&self.run.by_hand(*hands)),
            AdvicePart::Option { id, value, text } => {
                if let Some(option) = self.run.option(id, *value) {
                    self.said.push_str(&text.replace("{}", &option));
                }
            }
            AdvicePart::Run { purpose, line } => self.run(purpose, line),
            AdvicePart::Again { purpose, id, slot, is_each } => match self.values(slot) {
                Values::Are(values) if !self.run.is_unknown() => {
                    let again = self.run.again().without(id).without("all");
                    let values =
                        if *is_each { values.into_iter().map(|value| vec![value]).collect() } else { vec![values] };
                    for (index, values) in values.into_iter().enumerate() {
                        self.command(*purpose, &again.clone().or_with(id, values));
                        if let Some(step) = self.steps.last_mut().filter(|_| index > 0) {
                            step.follows = Some(Follows::Instead);
                        }
                    }
                }
                _ => {
                    self.end_text();
                    self.said.push_str(purpose);
                }
            },
            AdvicePart::Command(purpose, command) => {
                self.command(purpose.clone(), &self.run.completed(command.clone()));
            }
            AdvicePart::AgainWith { purpose, value } => {
                let again = self.run.again().with_operand(value);
                self.command(*purpose, &again);
            }
            AdvicePart::Step(step) => {
                self.end_text();
                self.steps.push(step.clone());
            }
        }
    }

    /// Ends the step of what was said.
    fn end_text(&mut self) {
        let said = std::mem::take(&mut self.said);
        self.steps.extend(said.lines().map(WordedStep::hands));
    }

    fn run(&mut self, purpose: &'static str, line: &'static str) {
        let (own, tail) = own_and_tail(line);
        let system = own.strip_prefix("$ ");
        let mut words = Vec::new();
        let mut missing = Vec::new();
        for word in system.unwrap_or(own).split(' ') {
            let Some(slot) = word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) else {
                words.push(OsString::from(word));
                continue;
            };
            match self.values(slot) {
                Values::Are(values) => words.extend(values),
                Values::OfAnotherKind => return,
                Values::Unknown => {
                    missing.push(words.len());
                    words.push(slot.into());
                }
            }
        }
        let lacks_value = !missing.is_empty();
        if system.is_none() {
            let (again, command) = (self.run.again(), Command::of(words.iter().cloned(), tail));
            let completed = self.run.completed(command.clone());
            // What was run would fail again. Where it takes a value, its user has seen which.
            let is_again = if lacks_value { again.takes_all_of(&command) } else { again.words() == completed.words() };
            if is_again {
                return;
            }
            if !lacks_value {
                return self.command(purpose, &completed);
            }
        }
        self.end_text();
        let line = words.iter().map(shell::word).collect::<Vec<_>>().join(" ") + tail;
        let lacks = match missing.as_slice() {
            [at] if system.is_none() && tail.is_empty() => Some(Lacking { words, at: *at }),
            _ => None,
        };
        self.steps.push(match lacks_value {
            // No shell runs it without `asmpatch`.
            true => WordedStep { lacks, ..WordedStep::lacking(format!("{purpose}: `{line}`")) },
            false => WordedStep::run(purpose, line),
        });
    }

    fn command(&mut self, purpose: impl fmt::Display, command: &Command) {
        self.end_text();
        self.steps.push(match command.effect() == Effect::Writes {
            true => WordedStep::if_yes(purpose, command.clone()),
            false => WordedStep::run(purpose, command.clone()),
        });
    }

    fn values(&self, slot: &str) -> Values {
        match slot {
            "OUT" => return Values::Are(vec![self.run.patched().into()]),
            "ORIGINAL" => return Values::Are(vec![self.run.original().into()]),
            _ => {}
        }
        let mut values: Vec<OsString> = Vec::new();
        for named in self.named {
            match (slot, named) {
                ("ID" | "IMAGE", Named::Image(value))
                | ("COPY", Named::File(value))
                | ("PORT", Named::Port(value))
                | ("VID:PID", Named::UsbId(value))
                | ("DISK", Named::Disk(value))
                | ("PLACE", Named::Mount(value))
                | ("DEVICE", Named::Swap(value))
                | ("UUID", Named::Uuid(value)) => values.push(value.into()),
                _ => {}
            }
        }
        if !values.is_empty() {
            return Values::Are(values);
        }
        if ["PLACE", "DEVICE"].contains(&slot) && !self.named.is_empty() {
            return Values::OfAnotherKind;
        }
        let ids = OPERANDS.iter().find(|(name, _)| *name == slot).map(|(_, ids)| *ids).unwrap_or_default();
        match ids.iter().find_map(|id| self.run.value(id)) {
            // `download --from` also takes an address.
            Some(value) if value.to_str().is_none_or(|value| matches!(Source::from(value), Source::File(_))) => {
                Values::Are(vec![value.to_owned()])
            }
            _ => Values::Unknown,
        }
    }
}

impl Invocation {
    /// Says what the user does by hand with the units that the command names. Virtual ones have other texts: their power and
    /// their faults are in software. A record counts as a dock.
    ///
    /// Where another system hands the unit on to this one, a unit that leaves the bus has to be handed on again, and each
    /// text after which it comes back says so.
    pub fn by_hand(&self, hands: Hands) -> Cow<'static, str> {
        let words = self.words_by_hand(hands);
        let Some(forwarder) = self.forwarder() else { return words.into() };
        let again = hand_on_again(forwarder);
        match hands {
            Hands::HandOn => match forwarder {
                Forwarder::Wsl => format!("this is WSL: {again}").into(),
                Forwarder::UsbIp => format!("this system has the client of USB/IP: {again}").into(),
                Forwarder::Qemu | Forwarder::VirtualBox | Forwarder::Machine => {
                    format!("this is a virtual machine: {again}").into()
                }
            },
            Hands::SlowLink => format!("{words}\nthen {again}").into(),
            Hands::Replug
            | Hands::ReplugIt
            | Hands::PlugIn
            | Hands::ReplugWithSupply
            | Hands::OtherCable
            | Hands::OtherCableNoHub
            | Hands::FasterLink
            | Hands::OtherPort => format!("{words}, and {again}").into(),
            Hands::CheckCable | Hands::OtherSupply | Hands::ConnectSupply | Hands::CheckSupply | Hands::FindBackup => {
                words.into()
            }
        }
    }

    fn words_by_hand(&self, hands: Hands) -> &'static str {
        let is_virtual = self.is_virtual();
        match hands {
            Hands::HandOn => "",
            Hands::FindBackup => {
                "restore a backup of the unit, `restore DIR --no-backup`, or without one give it firmware and the identity \
                 of a new board, `flash FILE --no-backup`: `asmpatch help recovery`"
            }
            Hands::Replug | Hands::ReplugIt | Hands::PlugIn | Hands::ReplugWithSupply if is_virtual => {
                "run the next command, which powers the virtual unit up again with the faults in its bridge.toml; \
                 `virtual set KEY=` takes one out"
            }
            Hands::FasterLink if is_virtual => {
                "a virtual unit is as fast as its `speed` says, and as this computer runs the model"
            }
            _ if is_virtual => "look for the fault in the virtual unit's bridge.toml",
            Hands::Replug => "unplug the unit, wait five seconds, plug it in again",
            Hands::ReplugIt => "unplug it, wait five seconds, plug it in again",
            Hands::PlugIn => "plug the unit in again",
            Hands::ReplugWithSupply => {
                "take the cable out, switch the supply off for ten seconds and on, wait five seconds, put the cable in \
                 last"
            }
            Hands::SlowLink => {
                "is the dock's supply on? Without it the chip runs from the cable and comes up at USB 2; its switch alone \
                 restarts nothing\n\
                 then take the cable out, switch the supply off for ten seconds and on, wait five seconds, put the cable \
                 in last\n\
                 then try another cable, another port, no hub\n\
                 on a Thunderbolt port, let the computer sleep: `sudo rtcwake -m mem -s 15` helped one owner where \
                 nothing else did"
            }
            Hands::CheckCable => "check its cable and its power",
            Hands::OtherCable | Hands::FasterLink => "try another cable and port",
            Hands::OtherCableNoHub => "try another cable and port, without a hub",
            Hands::OtherPort => "try another cable, another port, no hub",
            Hands::OtherSupply => "try another supply, and the unit without its card",
            Hands::ConnectSupply => "connect the unit's supply",
            Hands::CheckSupply => "check the unit's supply",
        }
    }
}

/// What makes a unit come back to this system after it has left the bus.
///
/// Sources: usbipd-win's wiki, "WSL support", and its issues 56, 245 and 424: a restart of a device is a removal to it, and
/// `--auto-attach` attaches the device again; usbip(8); QEMU's "USB emulation", `usb-host`; VirtualBox' manual, "USB
/// Support", on filters.
const fn hand_on_again(forwarder: Forwarder) -> &'static str {
    match forwarder {
        Forwarder::Wsl => {
            "attach it in Windows, which drops a dock that leaves the bus: `usbipd attach --wsl --busid B --auto-attach` \
             (`usbipd list` shows B)"
        }
        Forwarder::UsbIp => {
            "attach it again if it was attached over USB/IP: `sudo usbip attach -r HOST -b B` (`usbip list -r HOST` shows B)"
        }
        Forwarder::Qemu => {
            "let QEMU hand it on again, unless `usb-host` names its port (`hostbus`, `hostport`), which brings it back by itself"
        }
        Forwarder::VirtualBox => {
            "let VirtualBox hand it on again, unless a filter of the machine fits it, which needs its new ID after a flash"
        }
        Forwarder::Machine => "let the host hand it on to this virtual machine again",
    }
}

/// Whether advice names something that can be done only to a real dock.
#[cfg(test)]
pub fn is_for_docks(advice: &str) -> bool {
    ["unplug", "Unplug", "plug it", "cable", "supply"].iter().any(|word| advice.contains(word))
}

#[cfg(test)]
mod tests {
    use asm2464_host::bridge::Location;
    use asm2464_host::usb::sysfs::{Forwarding, Sysfs};

    use super::*;
    use crate::advice::Applicability;
    use crate::cli::worded_step::{StepCommand, lines};

    #[test]
    fn what_hands_can_do_depends_on_whether_the_unit_is_a_dock() {
        let dock = Location::Port("3-1".parse().unwrap());
        let at = |place: &Location| Invocation::default().at(place).by_hand(Hands::Replug);
        assert_eq!(at(&dock), "unplug the unit, wait five seconds, plug it in again");
        assert_eq!(Invocation::default().at(&dock).by_hand(Hands::HandOn), "");
        assert!(at(&Location::Virtual("u".into())).starts_with("run the next command"));
    }

    #[cfg(unix)]
    #[test]
    fn whatever_brings_a_unit_back_says_how_it_is_handed_on_again_and_only_where_it_is() {
        let forwarding = |osrelease: &str| {
            let root = tempfile::tempdir().unwrap();
            let put = |file: &str, text: &str| {
                let path = root.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            };
            put("sys/bus/usb/devices/usb2/serial", "vhci_hcd.0\n");
            put("proc/sys/kernel/osrelease", osrelease);
            Sysfs::at(root.path().join("sys"), root.path().join("proc"), root.path().join("dev")).forwarding()
        };
        let (wsl, other) = (forwarding("6.6.87-microsoft-standard-WSL2\n"), forwarding("6.12.0\n"));
        let by_hand = |host: &Forwarding, place: Location, hands| {
            Invocation::default().on_host(host.clone()).at(&place).by_hand(hands).into_owned()
        };
        let port = |port: &str| Location::Port(port.parse().unwrap());
        let comes_back = [
            Hands::Replug,
            Hands::ReplugIt,
            Hands::PlugIn,
            Hands::ReplugWithSupply,
            Hands::SlowLink,
            Hands::OtherCable,
            Hands::OtherCableNoHub,
            Hands::OtherPort,
            Hands::HandOn,
        ];
        for hands in comes_back {
            let in_wsl = by_hand(&wsl, port("2-1"), hands);
            assert!(in_wsl.contains("usbipd attach --wsl --busid B --auto-attach"), "{in_wsl}");
            let elsewhere = by_hand(&other, port("2-1"), hands);
            assert!(elsewhere.contains("usbip attach -r HOST -b B") && !elsewhere.contains("wsl"), "{elsewhere}");
            assert!(!by_hand(&other, port("1-1"), hands).contains("usbip"), "a port of this host's own");
            assert!(!by_hand(&wsl, Location::Virtual("u".into()), hands).contains("usbip"));
        }
        assert!(!by_hand(&wsl, port("2-1"), Hands::CheckSupply).contains("usbip"));
    }

    #[test]
    fn a_port_is_made_the_host_only_if_the_user_says_that_the_dock_is_there() {
        let advised = |role_file: Option<&str>| {
            let port = DevicePort { name: "port0".to_owned(), role_file: role_file.map(Into::into) };
            steps(&Advice::BecomeHost(port), &Invocation::default()).remove(0)
        };
        let step = advised(Some("/sys/class/typec/port0/data_role"));
        assert_eq!(step.line().as_deref(), Some("echo host | sudo tee /sys/class/typec/port0/data_role"));
        assert_eq!(step.applicability, Applicability::IfYes);
        assert!(step.purpose.contains("adb, SSH"));
        assert_eq!((advised(None).command, advised(None).applicability), (None, Applicability::Hands));
    }

    fn said(words: &[&str], named: &[Named], line: &'static str) -> Vec<String> {
        let run = Invocation::parse(words).unwrap();
        lines(&worded(&[AdvicePart::text("first"), AdvicePart::Run { purpose: "do this", line }], &run, named))
    }

    #[test]
    fn a_command_stands_on_a_line_of_its_own_below_what_it_is_for() {
        let pcie = said(&["asmpatch", "pcie", "--device", "3-1"], &[], "pcie reset");
        assert_eq!(pcie, ["first", "do this:", "    asmpatch pcie reset --device 3-1"]);
    }

    #[test]
    fn a_command_that_lacks_a_value_is_shown_so_that_no_shell_runs_it() {
        assert_eq!(said(&["asmpatch", "list"], &[], "info {FILE}")[1..], ["do this: `info FILE`"]);
        let tick = said(&["asmpatch", "wrap", "a `b", "-o", "c"], &[], "info {FILE}");
        let quoted = if cfg!(windows) { "\"a ``b\"" } else { "'a `b'" };
        assert_eq!(tick[2], format!("    asmpatch info {quoted}"));
    }

    #[test]
    fn steps_say_which_follow_one_another_and_which_stand_in_place_of_one_another() {
        let follows = |advice| -> Vec<Option<Follows>> {
            steps(&advice, &Invocation::default()).iter().map(|step| step.follows).collect()
        };
        let (then, instead) = (Some(Follows::Then), Some(Follows::Instead));
        assert_eq!(follows(Advice::FlashForRuntime), [None, instead, then, None]);
        assert_eq!(follows(Advice::EndRuntimeAndRestart), [None, then]);
        assert_eq!(follows(Advice::ReleaseHolder("0000:04:00.0".to_owned())), [None, then, then, None]);
    }

    #[test]
    fn each_unit_that_may_be_meant_is_a_way_of_one_choice() {
        let ports = ["3-1", "3-2"].map(|port| Named::Port(port.to_owned()));
        let run = Invocation::parse(["asmpatch", "doctor", "--fix"]).unwrap();
        let steps = errors::steps_by_code("asmpatch::device::several", &ports, &run);
        let lines: Vec<String> = steps.iter().filter_map(WordedStep::line).collect();
        assert_eq!(lines, ["asmpatch doctor --fix --device 3-1", "asmpatch doctor --fix --device 3-2"]);
        assert_eq!(steps.iter().map(|step| step.follows).collect::<Vec<_>>(), [None, Some(Follows::Instead)]);
    }

    #[test]
    fn a_step_that_lacks_one_value_can_be_completed() {
        let run = Invocation::default();
        let steps = worded(&[AdvicePart::Run { purpose: "set it", line: "config set {FIELD=VALUE}" }], &run, &[]);
        let lacks = steps[0].lacks.as_ref().unwrap();
        assert_eq!(lacks.with("serial=A b").words(), ["asmpatch", "config", "set", "serial=A b"]);
        let two =
            worded(&[AdvicePart::Run { purpose: "go", line: "config set {FIELD=VALUE} {FIELD=VALUE}" }], &run, &[]);
        assert_eq!(two[0].lacks, None);
    }

    #[test]
    fn a_command_with_a_pipe_is_the_systems() {
        let step = |command: Command| WordedStep::run("do this", command).command;
        let run = Invocation::default();
        assert!(
            matches!(step(run.other("udev | sudo tee f")), Some(StepCommand::System(line)) if line.ends_with("tee f"))
        );
        assert!(matches!(step(run.other("reset")), Some(StepCommand::Own(_))));
    }

    #[test]
    fn the_command_that_was_run_is_no_advice_after_it() {
        assert_eq!(said(&["asmpatch", "pcie", "reset", "--device", "3-1"], &[], "pcie reset"), ["first"]);
        let set = "virtual set {KEY=VALUE}";
        assert_eq!(said(&["asmpatch", "virtual", "set", "a=1", "--device", "virtual:u"], &[], set), ["first"]);
        assert_eq!(said(&["asmpatch", "list"], &[], set)[1..], ["do this: `virtual set KEY=VALUE`"]);
    }

    #[test]
    fn each_command_that_writes_firmware_is_the_users_to_decide_and_each_other_is_certain() {
        let run = Invocation::parse(["asmpatch", "list"]).unwrap();
        for (line, applicability) in [
            ("flash ed4e39b", Applicability::IfYes),
            ("restore b", Applicability::IfYes),
            ("config set serial=A", Applicability::IfYes),
            ("doctor", Applicability::Certain),
            ("backup", Applicability::Certain),
            ("$ sudo udevadm control --reload", Applicability::Certain),
            ("info {FILE}", Applicability::NeedsValue),
        ] {
            let steps = worded(&[AdvicePart::Run { purpose: "do this", line }], &run, &[]);
            assert_eq!((steps.len(), steps[0].applicability), (1, applicability), "{line}");
        }
        for command in ["flash", "restore"] {
            let command = AdvicePart::Command("do this".into(), Command::named(command).operand("f"));
            assert_eq!(worded(&[command], &run, &[])[0].applicability, Applicability::IfYes);
        }
        let texts = [AdvicePart::text("look"), AdvicePart::Hands(Hands::Replug)];
        assert_eq!(worded(&texts, &run, &[])[0].applicability, Applicability::Hands);
    }

    #[test]
    fn only_the_command_against_what_the_error_names_is_printed() {
        let mounts = ["/mnt/a b", "/c"].map(|place| Named::Mount(place.to_owned()));
        let quoted = if cfg!(windows) { "\"/mnt/a b\"" } else { "'/mnt/a b'" };
        let umount = said(&["asmpatch", "list"], &mounts, "$ umount {PLACE}");
        assert_eq!(umount[2], format!("    umount {quoted} /c"));
        assert_eq!(said(&["asmpatch", "list"], &mounts, "$ swapoff {DEVICE}"), ["first"]);
    }
}
