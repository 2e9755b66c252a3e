//! Surveys of PCIe trees, also with devices that misbehave.

use asm2464::Bdf;
use asm2464_chip::chip::{Answers, DeviceSpec, LinkSpec};
use asm2464_host::pcie::{Assignment, Buses, Header, Note, Pcie, PcieError, Scope, Survey};

use super::{Counted, Direct, bar, device, function, gpu_behind_switches, on};

fn places(survey: &Survey) -> Vec<String> {
    survey.functions.iter().map(|function| function.at.to_string()).collect()
}

fn usual(devices: &[DeviceSpec]) -> Survey {
    on(devices, |pcie| pcie.survey(Scope::USUAL)).0.unwrap()
}

#[test]
fn a_gpu_behind_two_switches_is_found_on_bus_4_and_its_ports_are_numbered() {
    let survey = usual(&gpu_behind_switches());
    assert_eq!(places(&survey), ["00:00.0", "01:00.0", "02:00.0", "03:00.0", "04:00.0", "04:00.1"]);
    let parents: Vec<_> = survey.functions.iter().map(|function| function.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1), Some(2), Some(3), Some(3)]);
    let numbered: Vec<_> = survey
        .changes
        .iter()
        .filter_map(|change| match change {
            Assignment::Buses { at, buses } => Some((at.bus, *buses)),
            _ => None,
        })
        .collect();
    let buses = |primary, subordinate| Buses { primary, secondary: primary + 1, subordinate };
    assert_eq!(numbered, [(0, buses(0, 4)), (1, buses(1, 4)), (2, buses(2, 4)), (3, buses(3, 4))]);
    assert_eq!(survey.notes, []);
    let gpu = function(&survey, Bdf::new(4, 0, 0));
    assert_eq!((gpu.vendor, gpu.device, gpu.class), (0x1002, 0x744C, 0x03_00_00));
    let sizes: Vec<_> = gpu.bars.iter().map(|bar| (bar.index, bar.size.unwrap(), bar.address)).collect();
    assert_eq!(sizes, [(0, 16 << 30, 0), (2, 2 << 20, 0), (4, 512 << 10, 0)], "sized, and left as they were");
}

#[test]
fn a_second_survey_changes_nothing() {
    let (mut engine, mut patience) = (Direct::new(&gpu_behind_switches()), Counted::new());
    let mut pcie = Pcie::new(&mut engine, &mut patience);
    let first = pcie.survey(Scope::USUAL).unwrap();
    let second = pcie.survey(Scope::USUAL).unwrap();
    assert_eq!((second.changes, second.notes), (vec![], vec![]));
    let read_only = pcie.survey(Scope::READ_ONLY).unwrap();
    assert_eq!(places(&read_only), places(&first));
    let Header::Bridge { prefetchable, .. } = read_only.functions[3].header else { panic!("{read_only:?}") };
    assert_eq!(prefetchable.unwrap().base, 0x8_0000_0000, "its window is laid out");
    let bars: Vec<_> = read_only.functions[4].bars.iter().map(|bar| (bar.index, bar.address, bar.size)).collect();
    assert_eq!(bars, [(0, 0, None), (2, 0, None)], "the third may not be a BAR: it was never sized");
}

#[test]
fn a_read_only_survey_ends_at_an_unnumbered_bridge() {
    let survey = on(&gpu_behind_switches(), |pcie| pcie.survey(Scope::READ_ONLY)).0.unwrap();
    assert_eq!((places(&survey), survey.changes), (vec!["00:00.0".to_owned()], vec![]));
    assert_eq!(survey.notes, [Note::NotNumbered { at: Bdf::ROOT }]);
}

#[test]
fn ports_beside_each_other_get_buses_of_their_own() {
    let devices: Vec<_> =
        ["0", "0/0", "0/3", "0/31", "0/0/0", "0/3/0", "0/31/0", "0/31/0.3"].map(|at| device(at, 1)).into();
    let survey = usual(&devices);
    assert_eq!(
        places(&survey),
        ["00:00.0", "01:00.0", "02:00.0", "02:03.0", "02:1f.0", "03:00.0", "04:00.0", "05:00.0", "05:00.3"]
    );
    assert_eq!(survey.functions[1].buses().unwrap(), Buses { primary: 1, secondary: 2, subordinate: 5 });
}

#[test]
fn existing_bus_numbers_are_kept_and_extended() {
    // The vendor's firmware leaves 0, 1, 2 in the root port.
    on(&gpu_behind_switches(), |pcie| {
        pcie.config_write(Bdf::ROOT, 0x18, 0x02_01_00, 0x07).unwrap();
        let survey = pcie.survey(Scope::USUAL).unwrap();
        assert_eq!(survey.functions.len(), 6);
        assert_eq!(survey.functions[0].buses().unwrap(), Buses { primary: 0, secondary: 1, subordinate: 4 });
    });
}

#[test]
fn bus_numbers_that_make_no_sense_are_left_alone() {
    on(&gpu_behind_switches(), |pcie| {
        pcie.config_write(Bdf::ROOT, 0x18, 0x01_02_00, 0x07).unwrap();
        let survey = pcie.survey(Scope::USUAL).unwrap();
        let buses = Buses { primary: 0, secondary: 2, subordinate: 1 };
        assert_eq!((survey.functions.len(), survey.notes), (1, vec![Note::OddBuses { at: Bdf::ROOT, buses }]));
        assert!(survey.changes.is_empty());
    });
}

#[test]
fn a_starting_device_is_waited_for_but_at_most_one_second() {
    let answers = |answers| [DeviceSpec { answers, ..device("0", 1) }];
    let (mut engine, mut patience) = (Direct::new(&answers(Answers::Retry(40))), Counted::new());
    let survey = Pcie::new(&mut engine, &mut patience).survey(Scope::USUAL).unwrap();
    assert_eq!((survey.functions.len(), patience.waited), (2, 400));
    let (mut engine, mut patience) = (Direct::new(&answers(Answers::Retry(u32::MAX))), Counted::new());
    let survey = Pcie::new(&mut engine, &mut patience).survey(Scope::USUAL).unwrap();
    assert_eq!(survey.notes, [Note::NotReady { at: Bdf::new(1, 0, 0), attempts: 100 }]);
    assert_eq!(patience.waited, 990, "PCIe allows a device one second");
}

#[test]
fn a_loop_of_capabilities_is_noted_and_the_rest_is_found() {
    let looping = DeviceSpec { capabilities_loop: true, ..device("0", 1) };
    let survey = usual(&[looping]);
    let found: Vec<_> = survey.notes.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["01:00.0: the list of capabilities comes back to 0x050"]);
    assert!(survey.functions[1].capabilities.express().is_some());
}

#[test]
fn no_link_is_an_error_and_a_link_that_goes_down_is_noted() {
    let no_link = on(&[], |pcie| pcie.survey(Scope::USUAL)).0;
    assert_eq!(no_link, Err(PcieError::LinkDown { ltssm: 0x01 }));
    for requests in [3, 40, 70, 100, 130, 160] {
        let (mut engine, mut patience) = (Direct::new(&gpu_behind_switches()), Counted::new());
        engine.fabric.lose_link_after(requests);
        let survey = Pcie::new(&mut engine, &mut patience).survey(Scope::USUAL).unwrap();
        assert!(survey.notes.contains(&Note::LinkWentDown), "{requests}");
    }
}

#[test]
fn a_link_below_the_maximum_of_both_ends_is_noted() {
    let link = LinkSpec { speed: 1, width: 1, max_speed: 4, max_width: 16 };
    let survey = usual(&[DeviceSpec { link, ..device("0", 1) }]);
    let express = survey.functions[1].capabilities.express().unwrap();
    assert_eq!(
        (express.link.to_string(), express.link_max.to_string()),
        ("2.5 GT/s x1".to_owned(), "16 GT/s x16".to_owned())
    );
    assert_eq!(survey.functions[0].capabilities.express().unwrap().link, express.link);
    let found: Vec<_> = survey.notes.iter().map(ToString::to_string).collect();
    assert!(
        found.len() == 1 && found[0].starts_with("01:00.0: the link runs at 2.5 GT/s x1, both ends support 16 GT/s x4"),
        "{found:?}"
    );
}

#[test]
fn the_survey_of_an_endless_tree_ends_at_a_limit() {
    let deep = |steps: usize| vec!["0"; steps].join("/");
    let devices: Vec<_> = (1..=250).map(|steps| device(&deep(steps), 1)).collect();
    let survey = usual(&devices);
    assert_eq!(survey.functions.len(), 251);
    let mut wide = vec![device("0", 1)];
    for number in 0..32 {
        wide.extend((0..8).map(|function| device(&format!("0/{number}.{function}"), 1)));
    }
    wide.push(device("0/0/0", 1));
    let survey = usual(&wide);
    assert_eq!((survey.functions.len(), survey.notes.first()), (256, Some(&Note::TooMany)));
}

#[test]
fn a_caller_can_stop_a_survey() {
    let (mut engine, mut patience) = (Direct::new(&gpu_behind_switches()), Counted { waited: 0, goes_on: 4 });
    let stopped = Pcie::new(&mut engine, &mut patience).survey(Scope::USUAL);
    assert_eq!(stopped, Err(PcieError::Stopped { at: Bdf::new(3, 0, 0) }));
}

#[test]
fn sizing_restores_the_address_of_a_bar_in_use() {
    let gpu = DeviceSpec {
        bars: vec![bar(1 << 20, true, true), bar(0, false, false), bar(16, false, false)],
        ..device("0", 1)
    };
    on(&[gpu], |pcie| {
        let mut survey = pcie.survey(Scope::USUAL).unwrap();
        pcie.assign(&mut survey).unwrap();
        let before = pcie.config_dwords(Bdf::new(1, 0, 0), 0, 16).unwrap();
        let again = pcie.survey(Scope::USUAL).unwrap();
        assert_eq!(pcie.config_dwords(Bdf::new(1, 0, 0), 0, 16).unwrap(), before);
        let bars: Vec<_> = again.functions[1].bars.iter().map(|bar| (bar.index, bar.size, bar.address)).collect();
        assert_eq!(bars, [(0, Some(1 << 20), 0x8_0000_0000), (3, Some(16), 0x1000_0000)]);
        assert_eq!((again.changes, again.notes), (vec![], vec![]));
    });
}
