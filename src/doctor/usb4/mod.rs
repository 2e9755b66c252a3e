//! Diagnosis of a dock on USB4 or Thunderbolt, where its stock firmware tunnels PCIe and is no USB device. Pure.
//!
//! Source: owners' notes of September 2026 (jacobrosenthal; CachyOS/linux-cachyos issue 1057): a suspended root port hides
//! everything behind it, and `power/control` set to `on` brings it back.

use asm2464::escape::Escape as _;
use asm2464_host::pcie::{class_name, is_gpu};
use asm2464_host::usb::sysfs::{RuntimePower, TunnelledDevice, TunnelledDock, TunnelledGpu, Tunnels};

use super::diagnose::Verdict::{self, Bad, Good, Note, Unknown};
use super::diagnose::{Diagnosis, Finding, add, bad, device_topic};
use crate::advice::Advice;
use crate::gpus::{GpuSupport, Gpus, PciId};

/// The lanes of the chip's PCIe port for a card.
const CARD_LANES: u8 = 4;
/// What a GPU's driver serves, once the GPU is there.
const RUNTIME: &str = "one that takes the GPU as a plain PCIe device of this host";
/// The base class of storage.
const STORAGE: u32 = 0x01;
/// A driver that holds a device for nobody.
const STUB: &str = "pci-stub";
/// A driver that holds a device for a virtual machine, or for a runtime that drives it from user space.
const VFIO: &str = "vfio-pci";

/// Diagnoses what the host reaches over USB4 and Thunderbolt. `expected` is a device that the user expects behind a dock,
/// of whatever class.
///
/// A dock is known by its PCIe switch. Without one, any of the devices may be a dock: `beside_units` says that the host
/// has units on USB, so that perhaps none is. Then nothing is bad, and no topic keeps a runtime from starting.
pub fn diagnose_tunnels(tunnels: &Tunnels, gpus: &Gpus, expected: Option<PciId>, beside_units: bool) -> Diagnosis {
    let behind = || tunnels.docks.iter().flat_map(TunnelledDock::behind);
    let cards: Vec<&TunnelledGpu> = behind().filter(|device| is_wanted(device, gpus, expected)).collect();
    let is_ready = cards.iter().any(|card| card.driver.as_deref().is_some_and(|driver| driver != STUB));
    let is_seen = !tunnels.docks.is_empty();
    let trouble = if is_ready || (beside_units && !is_seen) { Note } else { Bad };
    // A card that is seen is behind another device. While none is, the device that waits may be the dock with the card.
    let unauthorised = if cards.is_empty() { trouble } else { Note };
    let mut lines = Vec::new();
    add(&mut lines, "USB4", tunnels.devices.iter().map(|device| authorisation(device, unauthorised)));
    add(&mut lines, "NVM", nvm(&tunnels.devices));
    add(&mut lines, "suspend", suspend(tunnels, &cards, is_ready, trouble));
    add(&mut lines, "host_reset", [host_reset(tunnels, is_ready)]);
    add(&mut lines, "dock", dock(tunnels, trouble));
    add(&mut lines, "PCIe link", cards.iter().map(|card| link(card)));
    let device = device_topic(gpus, expected, behind().map(|device| (device.pci_id.parse().ok(), device.class)));
    add(&mut lines, device, gpu(tunnels, &cards, expected, trouble));
    Diagnosis { because: bad(&lines), lines, runtime: is_ready.then_some(RUNTIME) }
}

/// Whether a device behind a dock is what a runtime may drive: what the user expects or, if nothing is, a GPU by its class
/// or by its ID.
fn is_wanted(device: &TunnelledGpu, gpus: &Gpus, expected: Option<PciId>) -> bool {
    let id: Option<PciId> = device.pci_id.parse().ok();
    if expected.is_some() {
        return id == expected;
    }
    is_gpu(device.class) || id.is_some_and(|id| matches!(gpus.support(id, None), GpuSupport::Driven { .. }))
}

/// Whether the host tunnels PCIe of a device; `otherwise` is the verdict if it doesn't.
fn authorisation(device: &TunnelledDevice, otherwise: Verdict) -> Finding {
    let TunnelledDevice { name, what, .. } = device;
    let what = format!("{name} {}", what.shown());
    let security = device.security.as_deref().unwrap_or("not known");
    if device.is_without_pcie() {
        let found = format!("{what}: the host's security level {security} never tunnels PCIe");
        return (otherwise, found, Some(Advice::AllowPcie));
    }
    if device.is_authorized {
        return (Good, format!("{what}: authorised"), None);
    }
    let found = format!("{what}: not authorised (security level {}), so nothing of it is tunnelled", security.shown());
    (otherwise, found, Some(Advice::Authorise(device.uuid.clone())))
}

/// The versions of the NVM of each host router and device.
fn nvm(devices: &[TunnelledDevice]) -> Vec<Finding> {
    let mut found: Vec<String> = Vec::new();
    for device in devices {
        let hosts =
            device.host_nvm.as_ref().map(|version| format!("{} of the host {}", device.host(), version.shown()));
        let own = device.nvm.as_ref().map(|version| format!("{} {}", device.name, version.shown()));
        for version in [hosts, own].into_iter().flatten() {
            if !found.contains(&version) {
                found.push(version);
            }
        }
    }
    if devices.is_empty() {
        return Vec::new();
    }
    let advice = Some(Advice::NewerNvm);
    if found.is_empty() {
        return vec![(Unknown, "no router says the version of its NVM".to_owned(), advice)];
    }
    vec![(Good, found.join(", "), advice)]
}

/// What the kernel has suspended, or may suspend, on the way to a card.
fn suspend(tunnels: &Tunnels, cards: &[&TunnelledGpu], is_ready: bool, trouble: Verdict) -> Vec<Finding> {
    let pci = |address: &str| format!("bus/pci/devices/{address}");
    let router = |name: &str| format!("bus/thunderbolt/devices/{name}");
    let mut all: Vec<(String, String, &RuntimePower)> = Vec::new();
    for device in &tunnels.devices {
        let host = device.host();
        all.push((format!("the host router {host}"), router(&host), &device.host_power));
        all.push((format!("the device {}", device.name), router(&device.name), &device.power));
    }
    for port in &tunnels.ports {
        let what = if port.is_root { "root port" } else { "port" };
        all.push((format!("the {what} {}", port.address), pci(&port.address), &port.power));
    }
    for dock in &tunnels.docks {
        all.push((format!("the dock's switch {}", dock.address), pci(&dock.address), &dock.power));
    }
    for card in cards {
        all.push((format!("the GPU {}", card.address), pci(&card.address), &card.power));
    }
    all.sort_by(|(_, one, _), (_, other, _)| one.cmp(other));
    all.dedup_by(|(_, one, _), (_, other, _)| one == other);
    let among = |is_it: &dyn Fn(&RuntimePower) -> bool| -> (Vec<String>, Vec<String>) {
        let found = all.iter().filter(|(_, _, power)| is_it(power));
        found.map(|(name, folder, _)| (name.clone(), folder.clone())).unzip()
    };
    let mut findings = Vec::new();
    let (suspended, folders) = among(&RuntimePower::is_suspended);
    if !suspended.is_empty() {
        let are = if suspended.len() == 1 { "is" } else { "are" };
        let effect =
            if is_ready { "it wakes when the GPU is used" } else { "what is suspended hides everything behind it" };
        let found = format!("{} {are} suspended: {effect}", suspended.join(", "));
        findings.push((trouble, found, Some(Advice::KeepPortsAwake { folders, rescans: !is_ready })));
    }
    let (sleepy, folders) = among(&|power| power.may_suspend() && !power.is_suspended());
    if !sleepy.is_empty() {
        let found = format!("the kernel may suspend {} (`auto`), and then everything behind it", sleepy.join(", "));
        findings.push((Note, found, Some(Advice::KeepPortsAwake { folders, rescans: false })));
    }
    let is_known = |power: &RuntimePower| power.control.is_some() || power.runtime_status.is_some();
    let (known, _) = among(&is_known);
    if findings.is_empty() {
        findings.push(if known.is_empty() {
            (Unknown, "the kernel doesn't say what it may suspend".to_owned(), None)
        } else {
            (Good, format!("the kernel keeps {} awake", known.join(", ")), None)
        });
    }
    findings
}

fn host_reset(tunnels: &Tunnels, is_ready: bool) -> Finding {
    match tunnels.host_reset {
        Some(false) => (Good, "off: the tunnels that the host's firmware sets up at boot stay".to_owned(), None),
        Some(true) => {
            let verdict = if is_ready { Good } else { Note };
            let found = "on: the kernel takes down the tunnels that the host's firmware sets up at boot".to_owned();
            (verdict, found, (!is_ready).then_some(Advice::KeepTunnels))
        }
        None => {
            let found = "the kernel doesn't say (it has `thunderbolt.host_reset` from 6.9 on)".to_owned();
            (if is_ready { Note } else { Unknown }, found, (!is_ready).then_some(Advice::KeepTunnels))
        }
    }
}

/// The docks, each with its link to the host.
fn dock(tunnels: &Tunnels, trouble: Verdict) -> Vec<Finding> {
    if tunnels.docks.is_empty() {
        let found = "no PCIe switch of a dock (1B21:2461, 1B21:2463) is there".to_owned();
        return vec![(trouble, found, Some(Advice::FindDock))];
    }
    let mut findings = Vec::new();
    for TunnelledDock { address, pci_id, link, is_guess, .. } in &tunnels.docks {
        let mut found = format!("{address} {pci_id}, the dock's PCIe switch; link to the host: {link}");
        if *is_guess {
            found += "; what is behind it is a guess by bus numbers, because /sys shows no tree of PCI devices";
        }
        findings.push(match link.width {
            Some(width) if width < CARD_LANES => (Note, found, Some(Advice::MoreLanes)),
            _ => (Good, found, None),
        });
    }
    findings
}

/// The link between the dock and a card.
fn link(card: &TunnelledGpu) -> Finding {
    let found = format!("{}: {}", card.address, card.link);
    let lanes = card.link.max_width.unwrap_or(CARD_LANES).min(CARD_LANES);
    match card.link.width {
        None => (Unknown, found, None),
        Some(width) if width < lanes => (Note, format!("{found} of x{lanes}"), Some(Advice::MoreLanes)),
        Some(_) => (Good, found, None),
    }
}

fn gpu(tunnels: &Tunnels, cards: &[&TunnelledGpu], expected: Option<PciId>, trouble: Verdict) -> Vec<Finding> {
    if tunnels.docks.is_empty() {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = cards.iter().map(|card| driver(card, trouble)).collect();
    if cards.is_empty() {
        let missing = match expected {
            Some(expected) => format!("no {expected}, which you expect, is behind the dock"),
            None => "no GPU is behind the dock".to_owned(),
        };
        let others = || tunnels.docks.iter().flat_map(TunnelledDock::behind);
        let has_ssd = others().any(|device| device.class >> 16 == STORAGE);
        let advice = if has_ssd { Advice::ReplaceSsd } else { Advice::PowerCard };
        let others: Vec<String> = others().map(named).collect();
        let others = if others.is_empty() { String::new() } else { format!(", but {}", others.join(", ")) };
        findings.push((trouble, missing + &others, Some(advice)));
    }
    // The topic's first line is its verdict.
    findings.sort_by_key(|(verdict, ..)| *verdict);
    findings
}

/// A card and its driver; `otherwise` is the verdict on a card without one.
fn driver(card: &TunnelledGpu, otherwise: Verdict) -> Finding {
    let named = named(card);
    let address = card.address.clone();
    match card.driver.as_deref() {
        Some(STUB) => (otherwise, format!("{named}: {STUB} has it, for nobody"), Some(Advice::ReleaseHolder(address))),
        Some(VFIO) => {
            let found = format!("{named}: {VFIO} has it, for a virtual machine or a program of its own");
            (Note, found, Some(Advice::ReleaseHolder(address)))
        }
        // A bound driver is all that /sys shows.
        Some(driver) => {
            (Good, format!("{named}: the driver {} has it; whether it works, its log says", driver.shown()), None)
        }
        None => {
            let driver = match card.pci_id.get(..4) {
                Some("1002") => Some("amdgpu"),
                Some("10DE") => Some("nvidia"),
                Some("8086") => Some("xe"),
                _ => None,
            };
            (otherwise, format!("{named}, without a driver"), Some(Advice::LoadDriver { address, driver }))
        }
    }
}

/// A device's address, ID and class.
fn named(device: &TunnelledGpu) -> String {
    let class = class_name(device.class).unwrap_or("class not known");
    format!("{} {} ({class})", device.address, device.pci_id)
}

#[cfg(test)]
mod tests;
