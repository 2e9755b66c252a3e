//! `bench` on a unit that runs the vendor's code: patched 240417 with a GPU behind it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asm2464::interrupt::Interrupt;
use asm2464::scsi::{ResetMode, XdataAddress};
use asm2464::{Bdf, Kind};
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::{Behind, Bridge, CommandError, Port as _, Storage, TransportKind};
use asm2464_host::pcie::{NoTime, Pcie, Scope, VendorTlp};
use asmpatch::bench::{self, BenchEvent, BenchPlan, BenchReport, BenchUnit, DataPath, Effort, Outcome, Skip};

use crate::chip_images::{patched, patched_231204, vendor, with};
use crate::unit::rig::{is_timeout, unit};

const HIGH: &str = "speed = 'high'";

fn uas(port: &mut VirtualPort) -> Bridge {
    port.open_over(Some(TransportKind::UasStreams)).unwrap()
}

fn plan(paths: &[DataPath], depth: Vec<usize>) -> BenchPlan {
    let moment = Duration::from_millis(50);
    // The model times out as soon as nothing more can happen.
    let effort = Effort { warm_up: moment, repetition: moment, repetitions: 1, timeout: Duration::from_secs(5) };
    let reads_without_ssd = *paths == [DataPath::Read16];
    BenchPlan { depths: depth, reads_without_ssd, ..BenchPlan::new(paths.iter().copied(), effort, 7) }
}

/// Returns the report, and whether the bench initialised the unit.
fn run(bridge: &mut Bridge, plan: &BenchPlan) -> (BenchReport, bool) {
    let mut initialised = false;
    let report = bench::run(bridge, bench_unit(), plan, Interrupt::never(), &mut |progress: BenchEvent| {
        initialised |= progress == BenchEvent::Initialising;
    });
    (report.unwrap(), initialised)
}

fn bench_unit() -> BenchUnit {
    BenchUnit { is_virtual: true, ..BenchUnit::default() }
}

fn outcome(report: &BenchReport, path: DataPath) -> &Outcome {
    &report.rows.iter().find(|row| row.point.path == path).unwrap().outcome
}

fn is_initialised(bridge: &mut Bridge) -> bool {
    let mut byte = [0];
    bridge.xdata_read(XdataAddress::main(0x05A8), &mut byte).unwrap();
    byte != [0]
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_uas_with_streams_every_byte_survives_and_the_unit_is_as_it_was_found() {
    let mut port = unit("", Some(&patched()));
    let mut bridge = uas(&mut port);
    let (report, initialised) = run(&mut bridge, &plan(&DataPath::scsi(), vec![1, 31]));
    assert!(initialised && report.unit.behind == "no SSD");
    let integrity = report.integrity.as_ref().unwrap();
    assert_eq!((&integrity.write16, &integrity.e4), (&Some(Outcome::Same), &Some(Outcome::Same)));
    let depths_of = |path| report.rows.iter().filter(move |row| row.point.path == path).map(|row| row.point.depth);
    assert!(depths_of(DataPath::E4Stock).eq([1, bridge.transport_mut().max_depth().min(31)]));
    assert!(depths_of(DataPath::Write16).eq([1]), "one write at a time");
    for row in report.rows.iter().filter(|row| row.point.path != DataPath::Read16) {
        let figures = row.figures().unwrap_or_else(|| panic!("{row:?}"));
        assert_eq!((figures.mismatches, figures.compared), (0, row.point.path.reads_window()), "{row:?}");
    }
    assert_eq!(outcome(&report, DataPath::Read16), &Outcome::NotRun { reason: Skip::NoCompleter });

    assert!(is_initialised(&mut bridge));
    bridge.reset(ResetMode::CpuReset).unwrap();
    drop(bridge);
    port.wait_for_return(Duration::from_secs(5), Interrupt::never()).unwrap().unwrap();
    let mut bridge = uas(&mut port);
    assert_eq!(Storage::ask(&mut bridge).unwrap().behind(), Behind::NoMedium);
    assert!(matches!(bridge.write16(0, &[0; 512]), Err(CommandError::CheckCondition { .. })));
}

/// 231204 keeps the variables of the initialisation elsewhere.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_231204_IMAGE"]
fn patched_231204_is_initialised_at_its_own_addresses_and_every_byte_survives() {
    let mut port = unit("", Some(&patched_231204()));
    let mut bridge = uas(&mut port);
    let (report, initialised) = run(&mut bridge, &plan(&DataPath::scsi(), vec![1, 31]));
    assert!(initialised && report.unit.behind == "no SSD");
    let integrity = report.integrity.as_ref().unwrap();
    assert_eq!((&integrity.write16, &integrity.e4), (&Some(Outcome::Same), &Some(Outcome::Same)));
    for path in [DataPath::Write16, DataPath::E4Stock] {
        assert!(matches!(outcome(&report, path), Outcome::Measured(_)), "{path}: {:?}", outcome(&report, path));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn with_the_patch_for_it_read16_is_measured_and_compared() {
    let mut port = unit("", Some(&with(&["read16-sram"])));
    let mut bridge = uas(&mut port);
    let (report, _) = run(&mut bridge, &plan(&[DataPath::E4Stock, DataPath::Write16, DataPath::Read16], vec![31]));
    assert!(report.read16_sram);
    let row = report.rows.iter().find(|row| row.point.path == DataPath::Read16).unwrap();
    let figures = row.figures().unwrap_or_else(|| panic!("{row:?}"));
    assert_eq!((row.point.size, figures.mismatches, figures.compared), (0x8000, 0, true));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn at_high_speed_over_uas_a_write_ends_before_its_data_is_asked_for_and_so_is_not_measured() {
    let mut port = unit(HIGH, Some(&patched()));
    let mut bridge = uas(&mut port);
    let (report, initialised) = run(&mut bridge, &plan(&DataPath::scsi(), Vec::new()));
    assert!(!initialised && report.integrity.is_none());
    assert!(matches!(outcome(&report, DataPath::E4Stock), Outcome::Measured(_)));
    assert!(matches!(outcome(&report, DataPath::Write16), Outcome::NotRun { .. }));
    assert!(bridge.has_no_medium().unwrap());
    bridge.initialise().unwrap();
    assert!(matches!(bridge.write16(0, &[0x5A; 512]), Err(CommandError::Short { expected: 512, found: 0, .. })));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_bulk_only_nothing_is_initialised_and_e4_is_measured() {
    for speed in ["", HIGH] {
        let mut port = unit(speed, Some(&patched()));
        let mut bridge = port.open().unwrap();
        let (report, initialised) = run(&mut bridge, &plan(&DataPath::scsi(), Vec::new()));
        assert!(!initialised && !is_initialised(&mut bridge) && report.integrity.is_none());
        assert!(matches!(outcome(&report, DataPath::E4Stock), Outcome::Measured(_)));
        for path in [DataPath::Write16, DataPath::Read16] {
            assert!(matches!(outcome(&report, path), Outcome::NotRun { .. }), "{path}");
        }
        assert_eq!(Storage::ask(&mut bridge).unwrap().behind(), Behind::NoMedium);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_requested_read16_gets_no_answer_and_the_unit_works_afterwards() {
    for over_uas in [true, false] {
        let mut port = unit("", Some(&patched()));
        let mut bridge = if over_uas { uas(&mut port) } else { port.open().unwrap() };
        let (report, initialised) = run(&mut bridge, &plan(&[DataPath::Read16], Vec::new()));
        assert!(initialised);
        assert!(matches!(outcome(&report, DataPath::Read16), Outcome::NoAnswer { .. }), "{report:?}");
        assert!(bridge.inquiry().is_ok() && is_initialised(&mut bridge));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn on_a_stock_unit_write16_gets_no_answer_and_e4_is_still_measured() {
    let mut port = unit("", Some(&vendor()));
    let mut bridge = uas(&mut port);
    let (report, _) = run(&mut bridge, &plan(&[DataPath::E4Stock, DataPath::Write16], Vec::new()));
    assert!(matches!(outcome(&report, DataPath::Write16), Outcome::NoAnswer { .. }), "{report:?}");
    assert!(matches!(outcome(&report, DataPath::E4Stock), Outcome::Measured(_)));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_unit_that_a_runtime_has_initialised_is_sent_no_e6() {
    let mut port = unit("", Some(&patched()));
    let mut bridge = uas(&mut port);
    assert!(bridge.has_no_medium().unwrap());
    bridge.initialise().unwrap();
    assert!(matches!(Storage::ask(&mut bridge).unwrap().behind(), Behind::Initialised(_)));
    assert!(!bridge.has_no_medium().unwrap());
    assert!(bridge.inquiry().is_ok(), "E6 would have stopped it");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_bulk_only_a_write_is_refused_before_the_initialisation_and_has_no_answer_after_it() {
    let mut port = unit("", Some(&patched()));
    let mut bridge = port.open().unwrap();
    assert!(matches!(bridge.write16(0, &[0x5A; 512]), Err(CommandError::CheckCondition { .. })));
    bridge.initialise().unwrap();
    let error = bridge.write16(0, &[0x5A; 512]).unwrap_err();
    assert!(is_timeout(&error), "{error}");
    assert!(bridge.inquiry().is_ok());
}

/// The GPU's memory before and after `spoiled` runs a bench that writes to it.
fn memory_around(scenario: &str, spoiled: impl FnOnce(&mut Bridge)) -> [Vec<u8>; 2] {
    let mut port = unit(scenario, Some(&patched()));
    let memory = |port: &mut VirtualPort, data: Option<&[u8]>| {
        let bridge = &mut uas(port);
        // The firmware's search for an SSD numbers the buses, and takes the numbers back.
        bridge.inquiry().unwrap();
        let (engine, patience) = (&mut VendorTlp::new(bridge), &mut NoTime);
        let mut pcie = Pcie::new(engine, patience);
        if data.is_some() {
            let mut survey = pcie.survey(Scope::USUAL).unwrap();
            pcie.assign(&mut survey).unwrap();
        }
        let mut half = |at| pcie.config_read(Bdf::new(4, 0, 0), at).unwrap();
        let bar = u64::from(half(0x14)) << 32 | u64::from(half(0x10) & !0x0F);
        let mut found = vec![0; 1024];
        data.map_or(Ok(()), |data| pcie.memory_write(bar, data)).unwrap();
        pcie.memory_read(bar, &mut found).unwrap();
        found
    };
    let pattern: Vec<u8> = (0..1024_usize).map(|at| (at * 7 % 251) as u8).collect();
    let before = memory(&mut port, Some(&pattern));
    spoiled(&mut uas(&mut port));
    [before, memory(&mut port, None)]
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_bench_puts_back_what_was_in_a_gpus_memory_after_ctrl_c() {
    let flag = AtomicBool::new(false);
    let [before, after] = memory_around("", |bridge| {
        let ends = bench::run(
            bridge,
            bench_unit(),
            &plan(&[DataPath::TlpWrite], Vec::new()),
            Interrupt::watching(&flag),
            &mut |progress: BenchEvent| flag.store(matches!(progress, BenchEvent::Row { .. }), Ordering::Relaxed),
        );
        assert!(matches!(&ends, Err(failure) if failure.kind() == Kind::Interrupted), "{ends:?}");
    });
    assert!(before == after);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_bench_puts_back_what_was_in_a_gpus_memory_after_an_error_of_the_wire() {
    // It strikes while the rows are measured: the check before them takes some thousand E5s.
    let fault = "[[fault]]\nkind = \"bad-tag\"\nopcode = 0xE5\nnth = 15000\n";
    let [before, after] = memory_around(fault, |bridge| {
        let moment = Duration::from_secs(2);
        let mut plan = plan(&[DataPath::TlpWrite], Vec::new());
        plan.effort = Effort { warm_up: moment, repetition: moment, ..plan.effort };
        let ends = bench::run(bridge, bench_unit(), &plan, Interrupt::never(), &mut |_| {});
        assert!(matches!(&ends, Err(failure) if failure.kind() == Kind::Wire), "{ends:?}");
    });
    assert!(before == after);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn single_tlps_go_through_e4_and_e5_and_their_memory_is_checked() {
    let mut port = unit("", Some(&patched()));
    let mut bridge = uas(&mut port);
    let (report, _) =
        run(&mut bridge, &plan(&[DataPath::ConfigRead, DataPath::TlpRead, DataPath::TlpWrite], Vec::new()));
    assert_eq!(report.unit.behind, "no SSD; on PCIe 1002:744c at 04:00.0");
    assert_eq!(report.integrity.as_ref().unwrap().memory, Some(Outcome::Same));
    for path in [DataPath::ConfigRead, DataPath::TlpRead, DataPath::TlpWrite] {
        assert!(matches!(outcome(&report, path), Outcome::Measured(_)), "{:?}", outcome(&report, path));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn after_a_path_that_gave_no_answer_those_over_pcie_are_left_out_with_the_reason() {
    let paths = [DataPath::Write16, DataPath::ConfigRead, DataPath::TlpRead, DataPath::TlpWrite];
    let mut port = unit("", Some(&vendor()));
    let mut bridge = uas(&mut port);
    let (report, _) = run(&mut bridge, &plan(&paths, Vec::new()));
    assert!(matches!(outcome(&report, DataPath::Write16), Outcome::NoAnswer { .. }), "{report:#?}");
    for path in [DataPath::ConfigRead, DataPath::TlpRead, DataPath::TlpWrite] {
        assert_eq!(outcome(&report, path), &Outcome::NotRun { reason: Skip::AfterRecovery }, "{report:#?}");
    }
}
