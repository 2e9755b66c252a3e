//! The open firmware's control requests as asmpatch sends them, answered by the open image on the chip model.
//! `ASMPATCH_OPEN_IMAGE` names the image.

use std::time::{Duration, Instant};

use asm2464::Bdf;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464::sram::SRAM_SLOT_LEN;
use asm2464::tlp::{CompletionStatus, Tlp};
use asm2464_dock::virtual_unit::SharedUnit;
use asm2464_host::bridge::open::SramTransfer;
use asm2464_host::bridge::{ControlError, OpenBridge, Port};
use asm2464_host::pcie::{Link, NoTime, Pcie, Scope};
use asmpatch::bench::{self, BenchPlan, BenchReport, BenchUnit, DataPath, Effort, Outcome, Skip};

use crate::unit::rig::unit;

/// Where an assignment puts the GPU's memory.
const BAR: u64 = 0x8_0000_0000;

fn opened(scenario: &str) -> (OpenBridge, SharedUnit) {
    let mut port = unit(scenario, Some(&crate::chip_images::open()));
    (port.open_control().unwrap(), port.unit().clone())
}

/// A unit whose GPU has an address in its BAR.
fn with_bar(scenario: &str) -> (OpenBridge, SharedUnit) {
    let (mut bridge, unit) = opened(scenario);
    let mut patience = NoTime;
    let mut pcie = Pcie::new(&mut bridge, &mut patience);
    let mut survey = pcie.survey(Scope::USUAL).unwrap();
    pcie.assign(&mut survey).unwrap();
    (bridge, unit)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 13 + at / 512 * 7 + seed) % 241) as u8).collect()
}

const SPEEDS: [&str; 2] = ["", "speed = 'high'"];

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn e5_writes_what_e4_reads_with_many_in_flight() {
    for speed in SPEEDS {
        let (mut bridge, unit) = opened(speed);
        let data = pattern(1000, 3);
        let writes: Vec<_> =
            data.iter().enumerate().map(|(at, byte)| (XdataAddress::main(0xF000 + at as u16), *byte)).collect();
        bridge.xdata_write_all(&writes).unwrap();
        assert!(unit.lock().data_buffer_mut()[..1000] == data[..]);
        let mut found = vec![0; 1000];
        bridge.xdata_read(XdataAddress::main(0xF000), &mut found).unwrap();
        assert!(found == data, "{speed}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn tlps_reach_configuration_space_and_memory() {
    let (mut bridge, _) = opened("");
    assert_eq!(bridge.link().unwrap(), Link { ltssm: 0x78, is_up: true });
    let root = bridge.tlp(&Tlp::config_read(Bdf::ROOT, 0)).unwrap().unwrap();
    assert_eq!(root.value(), Some(0x2463_1B21));
    let nobody = bridge.tlp(&Tlp::config_read(Bdf::new(1, 1, 0), 0)).unwrap().unwrap();
    assert_eq!(nobody.status, CompletionStatus::UnsupportedRequest);
    let (mut bridge, _) = with_bar("");
    assert_eq!(bridge.tlp(&Tlp::memory_write(BAR + 0x40, 0xCAFE_F00D)).unwrap(), None);
    assert_eq!(bridge.tlp(&Tlp::memory_read(BAR + 0x40)).unwrap().unwrap().value(), Some(0xCAFE_F00D));
    bridge.tlp(&Tlp::memory_write(BAR + 0x40, 0x0000_1100).with_enables(0b0010)).unwrap();
    assert_eq!(bridge.tlp(&Tlp::memory_read(BAR + 0x40)).unwrap().unwrap().value(), Some(0xCAFE_110D));
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_batch_of_tlps_in_flight_does_what_one_after_the_other_does() {
    for speed in SPEEDS {
        let (mut bridge, _) = with_bar(speed);
        let writes: Vec<Tlp> = (0..64).map(|at| Tlp::memory_write(BAR + at * 4, at as u32 * 0x0101)).collect();
        assert!(bridge.tlps(&writes).unwrap().iter().all(Option::is_none));
        let reads: Vec<Tlp> = (0..64).map(|at| Tlp::memory_read(BAR + at * 4)).collect();
        let found = bridge.tlps(&reads).unwrap();
        for (at, completion) in found.iter().enumerate() {
            assert_eq!(completion.unwrap().value(), Some(at as u32 * 0x0101), "{speed} {at}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn streams_write_and_read_memory_with_one_and_with_many_in_flight() {
    for speed in SPEEDS {
        for depth in [1, 32] {
            let (mut bridge, _) = with_bar(speed);
            bridge.set_depth(depth);
            for len in [4, 1024, 3000, 0x1_0000, 0x2_0004] {
                let data = pattern(len, depth);
                bridge.stream_write(BAR + 0x100, &data).unwrap();
                let mut found = vec![0; len];
                bridge.stream_read(BAR + 0x100, &mut found).unwrap();
                assert!(found == data, "{speed} depth {depth} len {len}");
            }
            assert!(bridge.link().unwrap().is_up, "it goes on");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn f2_fills_the_sram_slot_by_slot_and_all_of_it() {
    for speed in SPEEDS {
        let (mut bridge, unit) = opened(speed);
        for (slot, len) in [(0, 512), (3, SRAM_SLOT_LEN), (0, 0x8_0000), (31, SRAM_SLOT_LEN)] {
            let data = pattern(len, usize::from(slot));
            bridge.sram_write(slot, &data).unwrap();
            let start = usize::from(slot) * SRAM_SLOT_LEN;
            assert!(unit.lock().data_buffer_mut()[start..start + len] == data[..], "{speed} {slot} {len}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn f2_to_the_host_waits_for_the_pcie_side_and_reports_a_hang_within_its_deadline() {
    let (mut bridge, _) = opened("");
    bridge.set_timeout(Duration::from_secs(1));
    bridge.arm_sram(SramTransfer { to_host: true, first_slot: 0, sectors: 2 }).unwrap();
    let started = Instant::now();
    let error = bridge.bulk_in(&mut [0; 1024]).unwrap_err();
    assert!(matches!(error, ControlError::BulkTimeout { answers: true, .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(bridge.link().unwrap().is_up, "it goes on");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn power_and_supply_are_asked_for_as_the_build_allows() {
    let (mut bridge, _) = opened("");
    bridge.pcie_power(true).unwrap();
    assert!(bridge.link().unwrap().is_up);
    assert_eq!(bridge.supply().unwrap(), None, "this build does not measure it");
    assert!(bridge.link().unwrap().is_up, "it goes on");
}

fn benched(bridge: &mut OpenBridge, paths: &[DataPath]) -> BenchReport {
    let moment = Duration::from_millis(50);
    let effort = Effort { warm_up: moment, repetition: moment, repetitions: 1, timeout: Duration::from_secs(5) };
    let plan = BenchPlan::new(paths.iter().copied(), effort, 7);
    let who = BenchUnit { is_virtual: true, ..BenchUnit::default() };
    bench::run(bridge, who, &plan, Interrupt::never(), &mut |_| {}).unwrap()
}

fn outcome(report: &BenchReport, path: DataPath) -> &Outcome {
    &report.rows.iter().find(|row| row.point.path == path).unwrap().outcome
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_bench_measures_every_path_that_a_runtime_uses_and_compares_what_it_reads() {
    for speed in SPEEDS {
        let (mut bridge, _) = opened(speed);
        let report = benched(&mut bridge, &DataPath::of(BridgeState::OpenFirmware).collect::<Vec<_>>());
        assert_eq!((report.unit.transport.as_str(), report.unit.state.as_str()), ("control", "open-firmware"));
        assert_eq!(report.unit.behind, "1002:744c at 04:00.0");
        let integrity = report.integrity.as_ref().unwrap();
        let same = Some(Outcome::Same);
        assert_eq!((&integrity.f2, &integrity.e4, &integrity.memory), (&same, &same, &same));
        for row in &report.rows {
            let figures = row.figures().unwrap_or_else(|| panic!("{row:?}"));
            let compared = matches!(row.point.path, DataPath::E4Stock | DataPath::F0Read);
            assert_eq!((figures.mismatches, figures.compared), (0, compared), "{row:?}");
        }
        let sizes = |path| {
            report.rows.iter().filter(move |row| row.point.path == path).map(|row| (row.point.size, row.point.depth))
        };
        assert!(sizes(DataPath::TlpWrite).eq([(4, 1), (16, 4), (64, 16)]));
        assert!(sizes(DataPath::F2Out).eq([(0x8_0000, 1), (0x8_0000, 32)]));
        assert_eq!(sizes(DataPath::E4Stock).next().unwrap().0, if speed.is_empty() { 255 } else { 64 });
        assert!(report.failed_row().is_none());
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_bench_that_only_reads_changes_nothing_behind_the_bridge() {
    let (mut bridge, unit) = opened("");
    let report = benched(
        &mut bridge,
        &[DataPath::E4Stock, DataPath::ConfigRead, DataPath::TlpRead, DataPath::F0Read, DataPath::Write16],
    );
    assert!(report.integrity.is_none());
    for path in [DataPath::E4Stock, DataPath::ConfigRead] {
        assert!(matches!(outcome(&report, path), Outcome::Measured(_)), "{path}");
    }
    for path in [DataPath::TlpRead, DataPath::F0Read, DataPath::Write16] {
        assert!(matches!(outcome(&report, path), Outcome::NotRun { .. }), "{path}");
    }
    let buses = bridge.tlp(&Tlp::config_read(Bdf::ROOT, 0x18)).unwrap().unwrap();
    assert_eq!(buses.value(), Some(0), "the root port still has no bus numbers");
    assert!(unit.lock().data_buffer_mut().iter().all(|byte| *byte == 0));
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_bench_puts_back_what_was_in_a_gpus_memory() {
    let (mut bridge, _) = opened("");
    benched(&mut bridge, &[DataPath::F0Write]);
    let mut half =
        |at| u64::from(bridge.tlp(&Tlp::config_read(Bdf::new(4, 0, 0), at)).unwrap().unwrap().value().unwrap());
    let bar = half(0x14) << 32 | (half(0x10) & !0x0F);
    let before = pattern(0x1_0000, 77);
    bridge.stream_write(bar, &before).unwrap();
    benched(&mut bridge, &[DataPath::F0Write, DataPath::F0Read, DataPath::TlpWrite]);
    let mut after = vec![0; before.len()];
    bridge.stream_read(bar, &mut after).unwrap();
    assert!(after == before);
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn with_nothing_behind_the_bridge_a_bench_skips_the_paths_to_it_and_says_why() {
    let (mut bridge, _) = opened("behind = 'nothing'");
    let report = benched(&mut bridge, &DataPath::of(BridgeState::OpenFirmware).collect::<Vec<_>>());
    for path in [DataPath::E4Stock, DataPath::F2Out] {
        assert!(matches!(outcome(&report, path), Outcome::Measured(_)), "{path}");
    }
    for path in [DataPath::ConfigRead, DataPath::TlpRead, DataPath::F0Write] {
        assert_eq!(outcome(&report, path), &Outcome::NotRun { reason: Skip::LinkDown }, "{path}");
    }
}

#[test]
fn a_unit_that_runs_the_vendors_protocol_takes_no_control_requests() {
    let error = unit("", None).open_control().unwrap_err();
    assert!(error.to_string().contains("takes none of the open firmware's requests"), "{error}");
}
