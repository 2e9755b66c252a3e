//! A soak of virtual units with faults on the wire: it counts exactly the faults that occurred.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use asm2464::firmware::{BridgeState, Image};
use asm2464::interrupt::Interrupt;
use asm2464_chip::practice;
use asm2464_host::bridge::{Port as _, TransportKind};
use asmpatch::bench::soak::{Ended, ErrorKind, SoakPlan, SoakReport, soak};
use asmpatch::bench::{BenchEvent, BenchUnit, DataPath};
use asmpatch::patch::Selection;
use asmpatch::unit::Live;

use crate::chip_images;
use crate::unit::rig::unit;

/// The practice image with the patches that `patch` applies by default.
fn patched_practice() -> Image {
    chip_images::patched_by(&practice::image(), &Selection::default())
}

/// Three faults, far enough apart that none strikes the transfer of another.
fn three_faults(kind: &str, opcode: u8, first: usize, apart: usize) -> String {
    let fault = |nth| format!("[[fault]]\nkind = '{kind}'\nopcode = {opcode}\nnth = {nth}\n");
    (0..3).map(|index| fault(first + index * apart)).collect()
}

/// Tries to open a unit that is away, for two seconds.
fn reopened<T>(mut open: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + Duration::from_secs(2);
    std::iter::from_fn(|| {
        std::thread::sleep(Duration::from_millis(10));
        (Instant::now() < until).then(&mut open)
    })
    .find_map(|opened| opened)
}

/// Soaks until this many errors have been counted and a fifth of a second more, so that one too many would show.
fn soaked(image: &Image, scenario: &str, errors: u64) -> SoakReport {
    soaked_for(Duration::from_secs(60), image, scenario, errors)
}

/// As [`soaked`], at most for this long.
fn soaked_for(duration: Duration, image: &Image, scenario: &str, errors: u64) -> SoakReport {
    let mut port = unit(scenario, Some(image));
    let plan = SoakPlan { duration, timeout: Duration::from_secs(2), seed: 7 };
    let who = BenchUnit { is_virtual: true, ..BenchUnit::default() };
    let flag = AtomicBool::new(false);
    let mut seen = None;
    let mut progress = |event: BenchEvent| {
        if let BenchEvent::Soaking { elapsed, errors: found, .. } = event
            && found >= errors
        {
            let since = *seen.get_or_insert(elapsed);
            flag.store(elapsed - since > Duration::from_millis(200), Ordering::Relaxed);
        }
    };
    let interrupt = Interrupt::watching(&flag);
    let state = port.attached().unwrap().state;
    let mut open = || match state {
        BridgeState::OpenFirmware => port.open_control().ok().map(Live::Open),
        _ => port.open_over(Some(TransportKind::UasStreams)).ok().map(Live::Vendor),
    };
    let unit = open().unwrap();
    let mut reopen = || reopened(&mut open);
    soak(unit, who, plan, &mut reopen, interrupt, &mut progress).unwrap()
}

fn counts(report: &SoakReport) -> Vec<(ErrorKind, u64)> {
    report.errors.iter().map(|error| (error.kind, error.count)).collect()
}

fn path(report: &SoakReport, path: DataPath) -> (u64, u64, u64) {
    let found = report.paths.iter().find(|found| found.path == path).unwrap_or_else(|| panic!("no {path}"));
    (found.bytes, found.compared_bytes, found.errors)
}

/// Checks that totals, paths and slices agree.
fn assert_adds_up(report: &SoakReport) {
    let sum = |count: &dyn Fn(&asmpatch::bench::soak::SoakPath) -> u64| report.paths.iter().map(count).sum::<u64>();
    assert_eq!(report.bytes, sum(&|path| path.bytes));
    assert_eq!(report.compared_bytes, sum(&|path| path.compared_bytes));
    assert_eq!(report.error_count, sum(&|path| path.errors));
    assert_eq!(report.error_count, report.over_time.iter().map(|slice| slice.errors).sum::<u64>());
    let hourly = report.error_count as f64 * 3600.0 / report.elapsed_s;
    assert!((report.errors_per_hour - hourly).abs() < 1e-6);
}

#[test]
fn without_faults_every_byte_comes_back_as_sent_and_ctrl_c_ends_with_what_was_measured() {
    let report = soaked(&patched_practice(), "", 0);
    assert_eq!((counts(&report), report.ended), (vec![], Ended::Stopped));
    assert_eq!(report.left_out, []);
    let (bytes, compared, _) = path(&report, DataPath::E4Stock);
    assert!(bytes > 0 && bytes == compared);
    assert_eq!(path(&report, DataPath::Write16).0, bytes * 16, "each round writes 64 KiB, of which the window shows 4");
    let (bytes, compared, _) = path(&report, DataPath::TlpRead);
    assert!(bytes > 0 && bytes == compared && bytes == path(&report, DataPath::TlpWrite).0);
    assert_adds_up(&report);
}

#[test]
fn each_fault_of_the_wire_is_one_error_of_its_kind_and_the_soak_goes_on() {
    let check = |opcode| {
        // The check before the soak sends 17 WRITE(16) and some hundred E4.
        let (first, apart) = if opcode == 0x8A { (30, 1) } else { (3000, 700) };
        for (kind, expected) in [
            ("timeout", ErrorKind::NoAnswer),
            ("stall", ErrorKind::Refused),
            ("short-data", ErrorKind::Short),
            ("bad-tag", ErrorKind::Wire),
            ("phase-error", ErrorKind::Wire),
        ] {
            let scenario = three_faults(kind, opcode, first, apart);
            let report = soaked(&patched_practice(), &scenario, 3);
            match (kind, opcode) {
                // Which error a stall of one of several E4 in flight gives depends on the others.
                ("stall", 0xE4) => assert_eq!(report.error_count, 3, "{report:#?}"),
                // The firmware ends a write that lacks data with CHECK CONDITION.
                ("short-data", 0x8A) => assert_eq!(counts(&report), [(ErrorKind::Refused, 3)], "{report:#?}"),
                _ => assert_eq!(counts(&report), [(expected, 3)], "{kind} of {opcode:#x}: {report:#?}"),
            }
            let (bytes, compared, _) = path(&report, DataPath::E4Stock);
            assert!(report.ended == Ended::Stopped && bytes == compared, "{report:#?}");
            assert_adds_up(&report);
        }
    };
    thread::scope(|scope| [0x8A, 0xE4].map(|opcode| drop(scope.spawn(move || check(opcode)))));
}

#[test]
fn a_unit_that_leaves_the_bus_is_soaked_on_once_it_is_back_and_else_ends_the_soak() {
    let fault = "[[fault]]\nkind = 'disconnect'\nopcode = 0x8A\nnth = 40\n";
    let report = soaked(&patched_practice(), &format!("back-after-ms = 100\n{fault}"), 1);
    assert_eq!((counts(&report), report.ended), (vec![(ErrorKind::Gone, 1)], Ended::Stopped));
    let last = report.over_time.iter().rposition(|slice| slice.mb_per_s > 0.0);
    assert!(last > report.over_time.iter().position(|slice| slice.errors > 0), "{report:#?}");
    let report = soaked(&patched_practice(), fault, 1);
    assert_eq!((counts(&report), report.ended), (vec![(ErrorKind::Gone, 1)], Ended::Vanished));
    assert!(report.pcie.iter().all(|function| function.after.is_none()));
    assert_adds_up(&report);
}

#[test]
fn an_error_while_the_unit_is_prepared_is_counted_and_leaves_no_path_out() {
    // Errors while the memory behind the bridge and the SRAM are prepared. If the survey before that fails, the unit is
    // refused instead, because an SSD may be there.
    for (kind, nth) in [("bad-tag", 20), ("short-data", 500), ("short-data", 1200)] {
        let fault = format!("[[fault]]\nkind = '{kind}'\nopcode = 0xE4\nnth = {nth}\n");
        let report = soaked(&patched_practice(), &fault, 0);
        let first = report.errors.first().map(|error| error.first_s);
        assert_eq!((report.error_count, first, report.ended), (1, Some(0.0), Ended::Stopped), "{kind} {nth}");
        assert_eq!(report.left_out, [], "{kind} {nth}");
    }
}

#[test]
fn a_unit_that_stays_away_past_the_end_has_not_lasted_the_whole_time() {
    let fault = "[[fault]]\nkind = 'disconnect'\nopcode = 0x8A\nnth = 25\n";
    // The soak waits two seconds for the unit.
    let report = soaked_for(Duration::from_secs(2), &patched_practice(), fault, u64::MAX);
    assert_eq!((counts(&report), report.ended), (vec![(ErrorKind::Gone, 1)], Ended::Vanished), "{report:#?}");
    assert!(report.elapsed_s > 2.0, "{report:#?}");
}

#[test]
fn a_path_that_works_again_after_the_unit_came_back_is_not_among_those_that_were_left_out() {
    let faults = "back-after-ms = 100\n[[fault]]\nkind = 'timeout'\nopcode = 0x8A\nnth = 1\ntimes = 3\n\
                  [[fault]]\nkind = 'disconnect'\nopcode = 0xE4\nnth = 3000\n";
    let report = soaked(&patched_practice(), faults, 1);
    assert_eq!((counts(&report), &report.left_out), (vec![(ErrorKind::Gone, 1)], &vec![]), "{report:#?}");
    assert!(path(&report, DataPath::Write16).0 > 0, "{report:#?}");
}

#[test]
fn what_fails_its_check_before_the_soak_is_left_out_of_it() {
    let report = soaked(&practice::image(), "", 0);
    assert!(report.left_out.iter().any(|left| left.path == DataPath::Write16), "{report:#?}");
    assert!(report.paths.iter().all(|path| path.path != DataPath::Write16));
    assert_eq!((report.error_count, path(&report, DataPath::E4Stock).1), (0, 0), "nothing to compare with");
}

#[test]
fn the_error_registers_of_pcie_are_read_before_and_after() {
    let devices = "[[device]]\nat = '0'\nvendor = 0x1B21\ndevice = 0x2461\n[[device]]\nat = '0/0'\nvendor = 0x1002\n\
                   device = 0x744C\nclass = 0x030000\nbar = [{ bytes = 0x100000, prefetchable = true }]\n";
    let report = soaked(&patched_practice(), devices, 0);
    let places: Vec<String> = report.pcie.iter().map(|function| function.id.clone()).collect();
    assert!(["1b21:2461", "1002:744c"].iter().all(|id| places.contains(&(*id).to_owned())), "{places:?}");
    for function in &report.pcie {
        assert_eq!(function.after, Some(function.before), "the model makes no errors");
        assert!(function.before.device_status.is_some(), "{function:?}");
    }
}

#[test]
fn error_registers_that_can_not_be_read_before_the_soak_are_reported_with_the_reason() {
    // The link is up when the devices are looked for, and then goes down.
    let report = soaked(&patched_practice(), "pcie-link-lost-after = 100\n", 0);
    assert!(report.pcie_unread.as_ref().is_some_and(|why| why.contains("link is down")), "{report:#?}");
    assert_eq!(report.pcie, []);
    assert_eq!(soaked(&patched_practice(), "", 0).pcie_unread, None);
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn on_open_firmware_each_fault_of_a_request_is_one_error_and_all_that_comes_back_is_compared() {
    let open = chip_images::open();
    for (kind, opcode, expected) in [
        ("timeout", 0xF2, ErrorKind::NoAnswer),
        ("stall", 0xF2, ErrorKind::Refused),
        ("stall", 0xF0, ErrorKind::Refused),
        ("short-data", 0xE4, ErrorKind::Short),
        ("timeout", 0xE4, ErrorKind::NoAnswer),
    ] {
        // E4 and F0 are sent with many in flight: faults that strike one transfer are one error.
        let scenario =
            if opcode == 0xF2 { three_faults(kind, opcode, 30, 1) } else { three_faults(kind, opcode, 2000, 500) };
        let report = soaked(&open, &scenario, 3);
        assert_eq!(counts(&report), [(expected, 3)], "{kind} of {opcode:#x}: {report:#?}");
        for read in [DataPath::E4Stock, DataPath::F0Read] {
            let (bytes, compared, _) = path(&report, read);
            assert!(bytes > 0 && bytes == compared, "{kind} of {opcode:#x}: {report:#?}");
        }
        assert_adds_up(&report);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn on_the_vendors_firmware_a_soak_counts_each_fault_and_compares_both_ways() {
    let faults = "back-after-ms = 100\n[[fault]]\nkind = 'timeout'\nopcode = 0x8A\nnth = 30\ntimes = 2\n\
                  [[fault]]\nkind = 'bad-tag'\nopcode = 0xE5\nnth = 30000\n[[fault]]\nkind = 'disconnect'\nopcode = 0x8A\n\
                  nth = 60\n";
    let report = soaked(&chip_images::patched(), faults, 4);
    assert_eq!(counts(&report), [(ErrorKind::NoAnswer, 2), (ErrorKind::Gone, 1), (ErrorKind::Wire, 1)], "{report:#?}");
    assert_adds_up(&report);
    let report = soaked(&chip_images::with(&["read16-sram"]), "", 0);
    let (bytes, compared, _) = path(&report, DataPath::Read16);
    assert!(bytes > 0 && bytes == compared, "{report:#?}");
}
