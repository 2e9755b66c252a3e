//! Scenario files that are accepted and rejected.

use asm2464::firmware::FlashAddress;
use asm2464::flash::JedecId;
use asm2464_chip::chip::Speed;
use asm2464_chip::chip::{Answers, BarSpec, Board, EarlyLanes, LinkSpec, PartRevision, SupplySensor};
use asm2464_chip::spi_flash::Protection;

use super::*;

fn refusal(text: &str) -> String {
    Scenario::parse(text).unwrap_err().to_string()
}

#[test]
fn a_scenario_says_everything_that_the_documentation_lists() {
    let scenario = Scenario::parse(
        r#"
        behind = { ssd = { bytes = 1048576 } }
        state = "boot-loader"
        speed = "high"
        speed-after-reset = "super"
        cpu-reset = "keeps-code"
        part-revision = "07"
        pcie-early-lanes = "stick"
        supply = { voltage-mv = 12000, current-ma = -5, fault = true }
        factory = "erased"
        serial = "0123456789AB"
        power-loss-after = 4096
        unplug-after-us = 2500
        back-after-ms = 100
        pcie-link-lost-after = 9
        bulk-hangs = true
        stream-limit = 1048576
        port-power = true
        [flash]
        protection = "for-good"
        stuck-sector = 0x3000
        unstable-reads = 3
        bulk-out-lands = 64
        stale-first-byte = 2
        status-in-buffer = true
        jedec-id = "C2 28 15"
        [timing]
        erase-sector-ms = 45
        program-page-us = 400
        command-us = 100
        reenumerate-ms = 500
        [[fault]]
        kind = "short-data"
        opcode = 0xE2
        nth = 2
        times = 3
        "#,
    )
    .unwrap();
    assert_eq!(scenario.behind, Downstream::Ssd { bytes: 1 << 20 });
    assert_eq!(scenario.timing.erase_sector_ms, 45);
    assert!(scenario.port_power);
    assert_eq!((scenario.bulk_hangs, scenario.stream_limit), (BulkHangs::UntilPower, Some(1 << 20)));
    let faults = FlashFaults {
        protection: Some(Protection::ForGood),
        stuck_sector: Some(FlashAddress(0x3000)),
        unstable_reads: Some(3),
        bulk_out_lands: Some(64),
        stale_first_byte: Some(2),
        status_in_buffer: true,
        jedec_id: Some(JedecId([0xC2, 0x28, 0x15])),
    };
    assert_eq!(scenario.flash, faults);
    assert_eq!((scenario.cpu_reset, scenario.speed_after_reset), (CpuReset::KeepsCode, Some(Speed::Super)));
    let supply = Some(SupplySensor { voltage_mv: 12_000, current_ma: -5, fault: true });
    let board = Board { part_revision: PartRevision::R07, early_lanes: EarlyLanes::Stick, supply };
    assert_eq!(scenario.board(), board);
    assert_eq!(scenario.faults, [Fault { kind: FaultKind::ShortData, opcode: Some(0xE2), nth: 2, times: 3 }]);
    assert_eq!(Scenario::parse("").unwrap(), Scenario::default());
}

#[test]
fn devices_behind_the_bridge_are_described_one_by_one() {
    let scenario = Scenario::parse(
        r#"
        [[device]]
        at = "0"
        vendor = 0x1002
        device = 0x744C
        class = 0x030000
        bar = [{ bytes = 0x400000000, is-64 = true, prefetchable = true }, { bytes = 0 }]
        link = { speed = 3, width = 4 }
        answers = { retry = 3 }
        capabilities-loop = true
        [[device]]
        at = "0.1"
        vendor = 0x1234
        device = 0x5447
        engine = "tiny-gpu"
        [[device]]
        at = "0.2"
        vendor = 0x1234
        device = 0x4E56
        class = 0x010802
        engine = { nvme = { blocks = 0x4000000000000000, never-ready = true, fails-after = 3 } }
        "#,
    )
    .unwrap();
    let [gpu, card, drive] = &scenario.devices[..] else { panic!("{scenario:?}") };
    let spec = DriveSpec { blocks: 1 << 62, never_ready: true, fails_after: Some(3) };
    assert_eq!(drive.engine, ScenarioEngine::Nvme(spec));
    assert_eq!((gpu.engine, card.engine), (ScenarioEngine::None, ScenarioEngine::TinyGpu));
    let both = "[[device]]\nat = \"0\"\nvendor = 1\ndevice = 1\nengine = \"tiny-gpu\"\nbar = [{ bytes = 16 }]";
    assert!(refusal(both).contains("its `engine` brings its own BARs"));
    assert_eq!(Scenario::parse("behind = \"tiny-gpu\"").unwrap().behind, Downstream::TinyGpu);
    assert_eq!((gpu.vendor, gpu.class, gpu.answers), (0x1002, 0x03_00_00, Answers::Retry(3)));
    assert_eq!(gpu.link, LinkSpec { speed: 3, width: 4, ..LinkSpec::default() });
    assert_eq!(gpu.bars[0], BarSpec { bytes: 16 << 30, is_64: true, prefetchable: true });
    assert!(refusal("[[device]]\nat = \"1\"\nvendor = 1\ndevice = 1").starts_with("`device`: "));
    let both = "behind = \"nothing\"\n[[device]]\nat = \"0\"\nvendor = 1\ndevice = 1";
    assert_eq!(refusal(both), "`device` describes what is behind the bridge; leave `behind` out");
}

#[test]
fn an_invalid_scenario_is_refused_with_its_reason() {
    for (text, named) in [
        ("behnd = \"gpu\"", "line 1: unknown field `behnd`"),
        ("part-revision = '06'", "`07`"),
        (
            "behind = \"ssd\"",
            "line 1: `behind` is \"nothing\", \"gpu\", \"tiny-gpu\" or { ssd = { bytes = 67108864 } }",
        ),
        ("behind = { ssd = { byte = 1 } }", "or { ssd = { bytes = 67108864 } }"),
        ("behind = 1", "or { ssd = { bytes = 67108864 } }"),
        ("[[device]]\nat = '0'\nvendor = 1\ndevice = 1\nengine = 'nvme'", "line 5: `engine` is \"none\", \"tiny-gpu\""),
        ("behind = { ssd = { bytes = 1000 } }", "`behind.ssd.bytes` is 1000, expected a multiple of 512"),
        ("bulk-hangs = \"never\"", "expected true, false, \"strobes\", \"cpu-reset\" or \"power\""),
        ("supply = { voltage-mv = 28001, current-ma = 0 }", "`supply.voltage-mv` is 28001, expected at most 28000"),
        ("serial = \"\"", "`serial` is \"\", expected 1 to 20"),
        ("[[fault]]\nkind = \"stall\"\nnth = 0", "`fault` 1: `nth` and `times` count from 1"),
        ("[flash]\nstale-first-byte = 0", "`flash`: `stale-first-byte` counts from 1"),
    ] {
        let reason = refusal(text);
        assert!(reason.contains(named), "{text}: {reason}");
    }
}

#[test]
fn a_fault_strikes_the_nth_command_that_counts() {
    let fault = Fault { kind: FaultKind::Stall, opcode: Some(0xE3), nth: 2, times: 1 };
    let mut plan = FaultPlan::new(&[fault]);
    let struck = [0xE3, 0xE1, 0xE3, 0xE3].map(|opcode| plan.strike(opcode));
    assert_eq!(struck, [None, None, Some(FaultKind::Stall), None]);
}

proptest::proptest! {
    #[test]
    fn parsing_a_scenario_never_panics(text: String) {
        let _ = Scenario::parse(&text);
    }
}

#[test]
fn hanging_pipes_are_named_by_what_helps() {
    for (written, hangs) in [
        ("false", BulkHangs::Never),
        ("true", BulkHangs::UntilPower),
        ("\"strobes\"", BulkHangs::UntilStrobes),
        ("\"cpu-reset\"", BulkHangs::UntilCpuReset),
        ("\"power\"", BulkHangs::UntilPower),
    ] {
        assert_eq!(Scenario::parse(&format!("bulk-hangs = {written}")).unwrap().bulk_hangs, hangs, "{written}");
    }
    let refused = Scenario::parse("bulk-hangs = \"replug\"").unwrap_err().to_string();
    assert!(refused.contains("\"strobes\", \"cpu-reset\" or \"power\""), "{refused}");
}
