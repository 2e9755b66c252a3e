//! Placement of BARs and windows.

use asm2464::Bdf;
use asm2464_chip::chip::DeviceSpec;
use asm2464_host::pcie::{Assignment, Header, Note, Scope, Survey};

use super::{bar, device, function, gpu_behind_switches, on};

#[test]
fn a_survey_lays_out_the_windows_that_an_assignment_uses() {
    on(&gpu_behind_switches(), |pcie| {
        let first = pcie.survey(Scope::USUAL).unwrap();
        let windows = |changes: &[Assignment]| {
            changes.iter().filter(|change| matches!(change, Assignment::Windows { .. })).cloned().collect::<Vec<_>>()
        };
        let mut second = pcie.survey(Scope::USUAL).unwrap();
        pcie.assign(&mut second).unwrap();
        assert_eq!(windows(&first.changes).len(), 4);
        assert_eq!(windows(&first.changes), windows(&second.changes));
    });
}

#[test]
fn a_bar_without_room_gets_no_address_and_the_others_get_theirs() {
    // 64 bits, but not prefetchable: it has to be below 4 GiB.
    let gpu = DeviceSpec {
        bars: vec![bar(16 << 30, true, false), bar(1 << 20, false, true), bar(1 << 62, true, true)],
        ..device("0", 1)
    };
    on(&[gpu], |pcie| {
        let mut survey = pcie.survey(Scope::USUAL).unwrap();
        survey.notes.clear();
        pcie.assign(&mut survey).unwrap();
        let at = Bdf::new(1, 0, 0);
        assert_eq!(
            survey.notes,
            [Note::NoRoom { at, index: 0, size: 16 << 30 }, Note::NoRoom { at, index: 3, size: 1 << 62 }]
        );
        let bars: Vec<_> = survey.functions[1].bars.iter().map(|bar| (bar.index, bar.address)).collect();
        assert_eq!(bars, [(0, 0), (2, 0x1000_0000), (3, 0)]);
    });
}

#[test]
fn windows_beside_each_other_share_nothing() {
    let with =
        |at: &str, bytes| DeviceSpec { bars: vec![bar(bytes, false, false), bar(bytes, true, true)], ..device(at, 1) };
    let devices = [
        device("0", 1),
        device("0/1", 1),
        device("0/2", 1),
        with("0/1/0", 16),
        with("0/2/0", 8 << 20),
        with("0/2/0.1", 1 << 20),
    ];
    let survey = on(&devices, |pcie| {
        let mut survey = pcie.survey(Scope::USUAL).unwrap();
        pcie.assign(&mut survey).unwrap();
        survey
    })
    .0;
    let windows: Vec<_> = survey
        .functions
        .iter()
        .filter_map(|function| match function.header {
            Header::Bridge { memory, prefetchable, .. } => Some([memory.unwrap(), prefetchable.unwrap()]),
            _ => None,
        })
        .collect();
    let [root, upstream, first, second] = windows[..] else { panic!("{windows:?}") };
    assert_eq!(root, upstream);
    for space in 0..2 {
        assert!(first[space].limit < second[space].base || second[space].limit < first[space].base);
        for window in [first[space], second[space]] {
            assert!(root[space].base <= window.base && window.limit <= root[space].limit);
        }
    }
    for (index, function) in survey.functions.iter().enumerate().filter(|(_, function)| function.bars.len() == 2) {
        let Header::Bridge { memory, prefetchable, .. } = survey.functions[function.parent.unwrap()].header else {
            panic!("{index}")
        };
        for (bar, window) in function.bars.iter().zip([memory, prefetchable]) {
            let window = window.unwrap();
            assert!(window.base <= bar.address && bar.address + bar.size.unwrap() - 1 <= window.limit);
            assert_eq!(bar.address % bar.size.unwrap(), 0);
        }
    }
}

#[test]
fn windows_are_left_alone_where_bars_are_in_use() {
    on(&gpu_behind_switches(), |pcie| {
        let mut survey = pcie.survey(Scope::USUAL).unwrap();
        pcie.assign(&mut survey).unwrap();
        let closed = Bdf::new(2, 0, 0);
        pcie.config_write(closed, 0x04, 0, 0x03).unwrap();
        let again = pcie.survey(Scope::USUAL).unwrap();
        assert_eq!((again.changes, again.notes), (vec![], vec![Note::Closed { at: closed }]));
    });
}

#[test]
fn a_function_decodes_an_access_that_one_bar_holds_whole_and_every_bridge_above_forwards() {
    on(&gpu_behind_switches(), |pcie| {
        let mut survey = pcie.survey(Scope::USUAL).unwrap();
        let gpu = Bdf::new(4, 0, 0);
        let decoder = |survey: &Survey, address, len| survey.decoder(address, len);
        assert_eq!(decoder(&survey, 0x1000_0000, 4), None, "no BAR has an address");
        pcie.assign(&mut survey).unwrap();
        let again = pcie.survey(Scope::USUAL).unwrap();
        let small = function(&again, gpu).bars.iter().find(|bar| bar.size == Some(512 << 10)).unwrap().address;
        for (address, len, expected) in [
            (small, 4, Some(gpu)),
            (small + (512 << 10) - 1, 1, Some(gpu)),
            (small + (512 << 10) - 1, 2, None),
            (small.wrapping_sub(1), 2, None),
            (0x8_0000_0000, 16 << 30, Some(gpu)),
            (0xF0_0000_0000, 2, None),
            (u64::MAX, 2, None),
        ] {
            assert_eq!(decoder(&again, address, len), expected, "{address:#x} {len:#x}");
        }
        pcie.config_write(Bdf::new(2, 0, 0), 0x04, 0, 0x03).unwrap();
        let closed = pcie.survey(Scope::USUAL).unwrap();
        assert_eq!(decoder(&closed, small, 4), None, "a bridge above forwards nothing");
    });
}
