//! Words advice as steps, for a dock or for a virtual unit: every command that sees a fault words it here.

use asm2464::escape::Escape as _;
use asm2464_host::pcie::Note;
use asm2464_host::usb::sysfs::DevicePort;

use crate::advice::{Advice, Hands};
use crate::cli::words::errors::by_code;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::WordedStep;
use crate::fetch::{DEFAULT_IMAGE, OPEN_IMAGE};
use crate::runtimes::{OPEN_RUNTIME, PATCHED_RUNTIME};
use crate::shell;

/// Makes the host look for PCIe devices again.
const SEARCH: &str = "echo 1 | sudo tee /sys/bus/pci/rescan";

/// Words what helps, in the order in which to try it; nothing if nothing is known to help. `invocation` is the command that asks,
/// for the unit that the advice is about.
pub fn steps(advice: &Advice, invocation: &Invocation) -> Vec<WordedStep> {
    let hands = |hands| WordedStep::hands(invocation.by_hand(hands));
    let told = |text: &str| WordedStep::hands(text.to_owned());
    let search = |why: &'static str| WordedStep::run(why, SEARCH);
    let open = |why: String| WordedStep::if_yes(why, invocation.other(&format!("flash {OPEN_IMAGE}")));
    let patched = |why: String| {
        let patch = invocation.other(&format!("patch {DEFAULT_IMAGE}")).with("output", invocation.patched());
        let flash = invocation.other("flash").operand(invocation.patched());
        [WordedStep::if_yes(why.clone(), patch), WordedStep::if_yes(why, flash).then()]
    };
    let both = || {
        let [patch, flash] = patched(format!("for {PATCHED_RUNTIME}, patch the vendor firmware, then flash it"));
        vec![open(format!("for {OPEN_RUNTIME}, flash the open firmware")), patch.instead(), flash]
    };
    match advice {
        Advice::AgainstError { code, named } => by_code::steps(code, named, invocation),
        Advice::AgainstNote(note) => against_note(note, invocation).into_iter().collect(),
        Advice::RetrainLink { restarts } => {
            let reset =
                restarts.then(|| WordedStep::run("retrain the link without your hands", invocation.other("reset")));
            let by_hand = invocation.by_hand(Hands::SlowLink);
            reset.into_iter().chain(by_hand.lines().map(WordedStep::hands)).collect()
        }
        Advice::KeepAwake(location) => {
            let why = format!("install the rules of `{}` and replug; until then", invocation.other("udev"));
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
            vec![told(&format!("{}: then it runs what is in its flash", invocation.by_hand(Hands::Replug)))]
        }
        Advice::PowerCycle => {
            vec![told(&format!("only a power cycle helps: {}", invocation.by_hand(Hands::ReplugWithSupply)))]
        }
        Advice::AllowWrites => {
            let again = invocation.again().without("no_write");
            vec![WordedStep::run("let doctor write what is gone after a power cycle", again)]
        }
        Advice::EndRuntimeAndRestart => {
            let reset = WordedStep::if_yes("then undo its initialisation", invocation.other("reset"));
            vec![told("end the runtime"), reset.then()]
        }
        Advice::CheckSupplyUnderLoad => {
            vec![told(&format!("if the link drops under load, {}", invocation.by_hand(Hands::CheckSupply)))]
        }
        Advice::ConnectSupply => {
            let connect = invocation.by_hand(Hands::ConnectSupply);
            vec![told(&format!("{connect}: PCIe needs it, and no dock works below 5 V"))]
        }
        Advice::ReplaceSupply => {
            let other = invocation.by_hand(Hands::OtherSupply);
            vec![hands(Hands::ReplugWithSupply), told(&format!("if it stays, {other}"))]
        }
        Advice::CheckSupplyWithoutCard => vec![told(&format!(
            "if the card is not found, {}; a board without the sensor may leave the line open",
            invocation.by_hand(Hands::CheckSupply)
        ))],
        Advice::ReplaceSsd => vec![told("put a GPU in its place")],
        Advice::CheckSeat => {
            vec![told("check the card's seat and its power"), WordedStep::run("see the tree", invocation.other("pcie"))]
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
            let expect = invocation.other(&format!("doctor --expect {id}"));
            vec![told(card), WordedStep::if_yes("if a runtime of yours looks there", expect)]
        }
        Advice::Expect { id, source } => {
            let source = source.as_ref().map(|source| format!(" (source: {source})")).unwrap_or_default();
            let expect = invocation.other(&format!("doctor --expect {id}"));
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
            WordedStep::run("how", invocation.other("help recovery The unit is not listed")),
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
pub fn against_note(note: &Note, invocation: &Invocation) -> Option<WordedStep> {
    let (why, command) = match note {
        Note::OddBuses { .. } => ("clear them", "pcie reset"),
        Note::NoBusLeft { .. } => ("free them", "pcie reset"),
        Note::Closed { .. } => ("lay windows and BARs out anew", "pcie --assign"),
        _ => return None,
    };
    Some(WordedStep::run(why, invocation.other(command)))
}

#[cfg(test)]
mod tests {
    use asm2464::Named;

    use super::*;
    use crate::advice::Applicability;
    use crate::cli::words::worded_step::Follows;

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
        let steps = by_code::steps("asmpatch::device::several", &ports, &run);
        let lines: Vec<String> = steps.iter().filter_map(WordedStep::line).collect();
        assert_eq!(lines, ["asmpatch doctor --fix --device 3-1", "asmpatch doctor --fix --device 3-2"]);
        assert_eq!(steps.iter().map(|step| step.follows).collect::<Vec<_>>(), [None, Some(Follows::Instead)]);
    }
}
