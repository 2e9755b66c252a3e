//! What the user does with hands, for a dock or for a virtual unit, and on a host to which another one hands USB devices on.

use std::borrow::Cow;

use asm2464_host::usb::sysfs::Forwarder;

use crate::advice::Hands;
use crate::cli::words::invocation::Invocation;

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
}
