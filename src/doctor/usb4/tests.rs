//! Hosts with a dock on USB4, in each state that owners know.

use asm2464_host::usb::sysfs::{PciPort, PcieLink};

use super::*;
use crate::doctor::TopicLine;

fn power(control: &str, status: &str) -> RuntimePower {
    RuntimePower { control: Some(control.to_owned()), runtime_status: Some(status.to_owned()) }
}

/// A host whose dock is in order, with this card behind it.
fn host(card: TunnelledGpu) -> Tunnels {
    let device = TunnelledDevice {
        name: "0-1".to_owned(),
        what: "Maker Dock".to_owned(),
        is_authorized: true,
        uuid: Some("0000-ffff".to_owned()),
        security: Some("user".to_owned()),
        host_nvm: Some("56.2".to_owned()),
        nvm: None,
        power: power("on", "active"),
        host_power: power("on", "active"),
    };
    let port = PciPort {
        address: "0000:00:07.0".to_owned(),
        pci_id: "8086:466E".to_owned(),
        is_root: true,
        power: power("on", "active"),
    };
    let link = PcieLink { speed: Some("2.5 GT/s PCIe".to_owned()), width: Some(4), max_width: Some(4) };
    let dock = TunnelledDock {
        address: "0000:03:00.0".to_owned(),
        pci_id: "1B21:2463".to_owned(),
        gpus: vec![card],
        others: Vec::new(),
        link,
        power: power("on", "active"),
        is_guess: false,
    };
    Tunnels { devices: vec![device], docks: vec![dock], ports: vec![port], host_reset: Some(false) }
}

fn card(driver: Option<&str>) -> TunnelledGpu {
    TunnelledGpu {
        address: "0000:05:00.0".to_owned(),
        pci_id: "1002:744C".to_owned(),
        class: 0x03_00_00,
        driver: driver.map(str::to_owned),
        link: PcieLink { speed: Some("16.0 GT/s PCIe".to_owned()), width: Some(4), max_width: Some(16) },
        power: power("on", "active"),
    }
}

fn page(tunnels: &Tunnels) -> Diagnosis {
    diagnose_tunnels(tunnels, &crate::embedded::gpus().unwrap(), None, false)
}

fn line<'a>(page: &'a Diagnosis, topic: &str) -> &'a TopicLine {
    page.lines.iter().find(|line| line.topic == topic).unwrap_or_else(|| panic!("{topic}: {page:#?}"))
}

#[test]
fn a_gpu_with_its_driver_is_ready_whatever_is_asleep_or_waits() {
    let whole = page(&host(card(Some("amdgpu"))));
    assert!(whole.lines.iter().all(|line| line.verdict == Good), "{whole:#?}");
    assert_eq!((whole.runtime, whole.because.as_slice()), (Some(RUNTIME), &[][..]));
    let mut sleepy = host(card(Some("amdgpu")));
    sleepy.ports[0].power = power("auto", "suspended");
    sleepy.devices[0].is_authorized = false;
    sleepy.host_reset = Some(true);
    let page = page(&sleepy);
    assert!(page.lines.iter().all(|line| matches!(line.verdict, Good | Note)), "{page:#?}");
    assert_eq!(page.runtime, Some(RUNTIME));
}

#[test]
fn a_suspended_root_port_hides_the_dock_and_the_page_has_the_folder_to_keep_awake() {
    let mut hidden = host(card(None));
    hidden.docks.clear();
    hidden.ports[0].power = power("auto", "suspended");
    hidden.devices[0].host_power = power("auto", "suspended");
    let page = page(&hidden);
    assert_eq!((page.runtime, page.because.as_slice()), (None, &["suspend", "dock"][..]));
    let folders = vec!["bus/pci/devices/0000:00:07.0".to_owned(), "bus/thunderbolt/devices/0-0".to_owned()];
    let suspended = line(&page, "suspend");
    assert_eq!(suspended.advice, Some(Advice::KeepPortsAwake { folders, rescans: true }));
    assert!(suspended.found.contains("the root port 0000:00:07.0, the host router 0-0 are suspended"), "{suspended:?}");
}

#[test]
fn what_may_be_suspended_later_is_a_note() {
    let mut awake = host(card(Some("amdgpu")));
    awake.ports[0].power = power("auto", "active");
    let page = page(&awake);
    assert_eq!(line(&page, "suspend").verdict, Note);
    assert!(line(&page, "suspend").found.contains("may suspend the root port 0000:00:07.0"));
}

#[test]
fn a_device_that_waits_is_bad_with_its_uuid_and_a_host_without_pcie_with_its_settings() {
    let mut waits = host(card(None));
    waits.docks.clear();
    waits.devices[0].is_authorized = false;
    let found = page(&waits);
    assert_eq!(line(&found, "USB4").advice, Some(Advice::Authorise(Some("0000-ffff".to_owned()))));
    assert_eq!(line(&found, "USB4").verdict, Bad);
    for level in ["dponly", "usbonly", "nopcie"] {
        waits.devices[0].security = Some(level.to_owned());
        assert_eq!(line(&page(&waits), "USB4").advice, Some(Advice::AllowPcie), "{level}");
    }
}

#[test]
fn a_device_that_may_be_no_dock_keeps_no_runtime_from_starting_beside_a_unit_on_usb() {
    let mut other = host(card(None));
    other.docks.clear();
    other.devices[0].is_authorized = false;
    other.ports[0].power = power("auto", "suspended");
    let gpus = crate::embedded::gpus().unwrap();
    let beside = diagnose_tunnels(&other, &gpus, None, true);
    assert!(beside.lines.iter().all(|line| line.verdict <= Note), "{beside:#?}");
    assert_eq!((beside.runtime, beside.because.as_slice()), (None, &[][..]));
    assert_eq!(page(&other).because, ["USB4", "suspend", "dock"], "without a unit it is looked for");
    // A dock whose PCIe switch is seen is judged, whatever else is connected; another device that waits is not it.
    let mut seen = host(card(None));
    seen.devices[0].is_authorized = false;
    for beside_units in [true, false] {
        assert_eq!(diagnose_tunnels(&seen, &gpus, None, beside_units).because, ["GPU"]);
    }
    seen.docks[0].gpus.clear();
    assert_eq!(page(&seen).because, ["USB4", "GPU"], "the device that waits may be the dock with the card");
}

#[test]
fn a_gpu_without_a_driver_is_bad_with_the_driver_of_its_vendor() {
    let page = page(&host(card(None)));
    let driver = Some("amdgpu");
    let expected = Advice::LoadDriver { address: "0000:05:00.0".to_owned(), driver };
    assert_eq!((line(&page, "GPU").verdict, &line(&page, "GPU").advice), (Bad, &Some(expected)));
    assert_eq!(page.runtime, None);
}

#[test]
fn an_accelerator_or_a_listed_id_of_any_class_is_a_gpu_and_an_ssd_is_none() {
    for (pci_id, class, is_gpu) in
        [("1002:74A1", 0x12_00_00, true), ("1002:744C", 0x0B_40_00, true), ("144D:A80A", 0x01_08_02, false)]
    {
        let mut tunnels = host(card(Some("driver")));
        let device = TunnelledGpu { pci_id: pci_id.to_owned(), class, ..card(Some("driver")) };
        tunnels.docks[0].gpus.clear();
        tunnels.docks[0].others = vec![device];
        let found = page(&tunnels);
        assert_eq!(found.runtime.is_some(), is_gpu, "{pci_id}");
        if !is_gpu {
            assert!(line(&found, "GPU").found.contains("no GPU is behind the dock, but 0000:05:00.0 144D:A80A"));
            assert_eq!(line(&found, "GPU").advice, Some(Advice::ReplaceSsd));
            let expected = diagnose_tunnels(&tunnels, &Gpus::default(), Some(pci_id.parse().unwrap()), false);
            assert!(expected.runtime.is_some(), "the user expects it");
        }
    }
}

#[test]
fn a_card_in_the_place_of_the_expected_one_is_named() {
    let gpus = crate::embedded::gpus().unwrap();
    let expected = Some("1002:7590".parse().unwrap());
    let page = diagnose_tunnels(&host(card(Some("amdgpu"))), &gpus, expected, false);
    let found = &line(&page, "GPU").found;
    assert!(
        found.starts_with("no 1002:7590, which you expect, is behind the dock, but 0000:05:00.0 1002:744C"),
        "{found}"
    );
    let odd = diagnose_tunnels(&host(card(None)), &gpus, Some("10EC:8168".parse().unwrap()), false);
    assert_eq!(odd.because, ["device"]);
}

#[test]
fn a_bound_driver_is_said_to_be_bound_and_not_to_work() {
    let found = page(&host(card(Some("amdgpu"))));
    assert!(line(&found, "GPU").found.contains("the driver amdgpu has it; whether it works, its log says"));
}

#[test]
fn fewer_lanes_than_both_ends_have_are_a_note() {
    let mut narrow = card(Some("amdgpu"));
    narrow.link.width = Some(1);
    let found = page(&host(narrow.clone()));
    assert_eq!((line(&found, "PCIe link").verdict, found.runtime), (Note, Some(RUNTIME)));
    narrow.link.max_width = Some(1);
    assert_eq!(line(&page(&host(narrow)), "PCIe link").verdict, Good);
}
