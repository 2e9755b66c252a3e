//! Words what helps against a finding about USB4 and Thunderbolt.

use crate::doctor::TunnelAdvice;
use crate::shell;

const SEARCH: &str = "echo 1 | sudo tee /sys/bus/pci/rescan";

/// Returns the advice, with the host's own commands on lines of their own.
pub fn words(advice: &TunnelAdvice) -> Option<String> {
    Some(match advice {
        TunnelAdvice::Authorise(Some(uuid)) => format!(
            "authorise it, for good:\nboltctl enroll --policy=auto {}\nif that fails, the host may need a newer NVM",
            shell::word(uuid)
        ),
        TunnelAdvice::Authorise(None) => {
            "`boltctl list` shows the UUID that `boltctl enroll --policy=auto` takes".to_owned()
        }
        TunnelAdvice::AllowPcie => {
            "choose a security level with PCIe (`user`, `secure` or `none`) in the host's firmware settings".to_owned()
        }
        TunnelAdvice::NewerNvm => "`fwupdmgr get-updates` says whether the host has a newer one".to_owned(),
        TunnelAdvice::KeepAwake { folders, rescans } => {
            let awake = folders.iter().map(|folder| {
                let control = format!("/sys/{folder}/power/control");
                format!("echo on | sudo tee {}", shell::word(control))
            });
            let mut lines = vec!["keep it awake, until the host starts again:".to_owned()];
            lines.extend(awake);
            if *rescans {
                lines.push(SEARCH.to_owned());
            }
            lines.join("\n")
        }
        TunnelAdvice::KeepTunnels => {
            "if the dock is missing after each boot, and there after a replug, start the kernel with \
             `thunderbolt.host_reset=0`"
                .to_owned()
        }
        TunnelAdvice::MoreLanes => {
            "try a cable and a port for 40 Gbit/s, without a hub, and check the card's seat. A tunnel itself may report \
             2.5 GT/s whatever it carries"
                .to_owned()
        }
        TunnelAdvice::FindDock => format!(
            "authorise the device and wake the ports above first, then search PCIe:\n{SEARCH}\nor replug the dock. To reach \
             it over USB, connect it through a USB 3 port, cable or hub: `asmpatch help recovery`, \"The unit is not listed\""
        ),
        TunnelAdvice::PowerCard => {
            format!("give the card its own 12 V, check its seat, wake the ports above, then search PCIe:\n{SEARCH}")
        }
        TunnelAdvice::ReplaceSsd => "put a GPU in its place".to_owned(),
        TunnelAdvice::LoadDriver { address, driver } => {
            let load = match driver {
                Some(driver) => format!("load it:\nsudo modprobe {driver}"),
                None => "load its driver".to_owned(),
            };
            format!("{load}\nif it doesn't take the GPU, `sudo dmesg` says why, at {address}")
        }
        TunnelAdvice::ReleaseHolder(address) => format!(
            "for the GPU's own driver, take it back:\n\
             echo {address} | sudo tee /sys/bus/pci/devices/{address}/driver/unbind\n\
             echo {address} | sudo tee /sys/bus/pci/drivers_probe"
        ),
    })
}
