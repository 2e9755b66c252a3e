//! `doctor` on units that run the vendor's image, the open one, and newer builds of it, which `ASMPATCH_VENDOR_IMAGE`,
//! `ASMPATCH_OPEN_IMAGE`, `ASMPATCH_OPEN_JUNE_IMAGE` and `ASMPATCH_OPEN_NEW_IMAGE` name.

use std::path::Path;

use asm2464::interrupt::Interrupt;
use asm2464::scsi::Cdb;
use asm2464::scsi::uas::{CommandIu, Tag};
use asm2464_dock::virtual_unit::{ControlAnswer, Downstream, Reply, Scenario, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Endpoint, Port as _};
use asmpatch::doctor::{DoctorOptions, examine};
use asmpatch::unit::facts::{Asked, PipeState};

use crate::program::process::{good, json, run};
use crate::{chip_images, schemas};

/// Runs `doctor --report`. Returns its status, its page and the report.
fn doctor(home: &Path) -> (Option<i32>, serde_json::Value, serde_json::Value) {
    let words = ["doctor", "--device", "virtual:unit", "--json", "--report", "report.json", "--force"];
    let output = run(home, &words);
    let report = std::fs::read(home.join("report.json")).unwrap();
    let page = schemas::parse(&words, &output.stdout);
    let report = serde_json::from_slice(&report).unwrap();
    schemas::check_document("doctor-report", &report).unwrap();
    (output.status.code(), page, report)
}

/// Checks that unit and model were asked every question and gave the same answers.
fn assert_model_agrees(report: &serde_json::Value) {
    let answers = report["facts"]["exchanges"].as_array().unwrap();
    assert!(answers.len() >= 4, "{report:#}");
    for answer in answers {
        assert_eq!(answer["unit"], answer["model"], "{answer:#}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_suits_the_current_runtime_and_answers_as_on_the_chip_model() {
    let home = tempfile::tempdir().unwrap();
    let open = chip_images::path("ASMPATCH_OPEN_IMAGE");
    good(home.path(), &["flash", &open, "--device", "virtual:unit", "--yes"]);
    let (status, page, report) = doctor(home.path());
    assert_eq!((status, &page["runtime"]), (Some(0), &"tinygrad from v0.14.0 on".into()), "{page:#}");
    assert_model_agrees(&report);
    good(home.path(), &["doctor", "--device", "virtual:unit"]);
    std::fs::write(home.path().join("unit/bridge.toml"), "bulk-hangs = true\n").unwrap();
    let hangs = run(home.path(), &["doctor", "--device", "virtual:unit"]);
    let said = String::from_utf8_lossy(&hangs.stdout).into_owned();
    assert!(
        hangs.status.code() == Some(1) && said.contains("nothing moves") && said.contains("asmpatch reset"),
        "{said}"
    );
}

/// Build ed4e39b: its C0 answers zeros on a board without a sensor, and it switches PCIe on at boot.
#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn new_open_firmware_suits_the_current_runtime_on_a_board_that_does_not_measure_its_supply() {
    let home = tempfile::tempdir().unwrap();
    let open = chip_images::path("ASMPATCH_OPEN_NEW_IMAGE");
    good(home.path(), &["flash", &open, "--device", "virtual:unit", "--yes"]);
    let (status, page, report) = doctor(home.path());
    assert_eq!((status, &page["runtime"]), (Some(0), &"tinygrad from v0.14.0 on".into()), "{page:#}");
    let line = |topic| page["lines"].as_array().unwrap().iter().find(|line| line["topic"] == topic).unwrap();
    assert_eq!((&line("12 V")["verdict"], &line("PCIe link")["verdict"]), (&"note".into(), &"good".into()), "{page:#}");
    let supply = &report["facts"]["supply"]["is"];
    assert_eq!(supply["measured"], serde_json::Value::Null, "{report:#}");
    let shown = json(home.path(), &["pcie", "--device", "virtual:unit", "--json"]);
    assert_eq!(shown["supply"], serde_json::Value::Null, "{shown:#}");
    assert_eq!((&shown["supply_fault"], &supply["has_fault"]), (&false.into(), &false.into()), "{shown:#}");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn new_open_firmware_reports_the_supply_of_a_board_that_measures_it() {
    let home = tempfile::tempdir().unwrap();
    let open = chip_images::path("ASMPATCH_OPEN_NEW_IMAGE");
    std::fs::create_dir(home.path().join("unit")).unwrap();
    for (supply, found, verdict, fault) in [
        ("voltage-mv = 12100, current-ma = 2200", "12.10 V", "good", false),
        ("voltage-mv = 15200, current-ma = 2200", "15.20 V", "good", false),
        ("voltage-mv = 11000, current-ma = 2200", "11.00 V", "note", false),
        ("voltage-mv = 5000, current-ma = 2200", "5.00 V", "note", false),
        ("voltage-mv = 4900, current-ma = 2200", "4.90 V", "bad", false),
        ("voltage-mv = 12100, current-ma = 2200, fault = true", "fault", "bad", true),
    ] {
        std::fs::write(home.path().join("unit/bridge.toml"), format!("supply = {{ {supply} }}\n")).unwrap();
        good(home.path(), &["flash", &open, "--device", "virtual:unit", "--yes"]);
        let (status, page, report) = doctor(home.path());
        let line = page["lines"].as_array().unwrap().iter().find(|line| line["topic"] == "12 V").unwrap();
        assert!(line["found"].as_str().unwrap().contains(found), "{line:#}");
        assert_eq!((&line["verdict"], status), (&verdict.into(), Some(i32::from(verdict == "bad"))), "{line:#}");
        let measured = |what: &str| report["facts"]["supply"]["is"]["measured"][what].as_u64();
        assert!(measured("voltage_mv").is_some_and(|voltage| supply.contains(&voltage.to_string())), "{report:#}");
        // The sensor's unit is 1.04 mA.
        assert!(measured("current_ma").is_some_and(|current| current.abs_diff(2200) <= 1), "{report:#}");
        assert_eq!(report["facts"]["supply"]["is"]["has_fault"], fault, "{report:#}");
    }
}

/// Build 8372613: its C0 has voltage and current, and no fault line.
#[test]
#[ignore = "needs ASMPATCH_OPEN_JUNE_IMAGE"]
fn a_build_whose_c0_has_4_bytes_shows_its_voltage_and_says_nothing_of_a_fault() {
    let home = tempfile::tempdir().unwrap();
    let open = chip_images::path("ASMPATCH_OPEN_JUNE_IMAGE");
    std::fs::create_dir(home.path().join("unit")).unwrap();
    std::fs::write(home.path().join("unit/bridge.toml"), "supply = { voltage-mv = 12100, current-ma = 2200 }\n")
        .unwrap();
    good(home.path(), &["flash", &open, "--device", "virtual:unit", "--yes"]);
    let (_, page, report) = doctor(home.path());
    let line = page["lines"].as_array().unwrap().iter().find(|line| line["topic"] == "12 V").unwrap();
    assert!(line["verdict"] == "good" && line["found"].as_str().unwrap().contains("12.10 V"), "{line:#}");
    assert_eq!(report["facts"]["supply"]["is"].get("has_fault"), None, "{report:#}");
    for words in [&["pcie"][..], &["pcie", "reset"]] {
        let shown = json(home.path(), &[words, &["--device", "virtual:unit", "--json"]].concat());
        assert_eq!(
            (&shown["supply"]["voltage_mv"], &shown["supply_fault"]),
            (&12_100.into(), &serde_json::Value::Null)
        );
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn patched_vendor_firmware_suits_the_older_runtime_and_stock_firmware_suits_none() {
    let home = tempfile::tempdir().unwrap();
    let vendor = chip_images::path("ASMPATCH_VENDOR_IMAGE");
    good(home.path(), &["flash", &vendor, "--device", "virtual:unit", "--yes"]);
    let (status, page, report) = doctor(home.path());
    assert_eq!((status, &page["runtime"]), (Some(1), &serde_json::Value::Null), "{page:#}");
    assert_model_agrees(&report);
    good(home.path(), &["patch", &vendor, "-o", "patched.bin"]);
    good(home.path(), &["flash", "patched.bin", "--device", "virtual:unit", "--yes"]);
    let (status, page, report) = doctor(home.path());
    assert_eq!((status, &page["runtime"]), (Some(0), &"tinygrad up to v0.13.0".into()), "{page:#}");
    assert_model_agrees(&report);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_host_that_stops_reading_e2_hangs_vendor_firmware_until_a_power_cycle() {
    let file = chip_images::file("ASMPATCH_VENDOR_IMAGE");
    let mut unit = VirtualUnit::in_memory(Scenario::default(), b"dead", Some(&file)).unwrap();
    assert!(unit.reset_by_host(0));
    // E2 of 9,011 bytes, of which the host takes only one packet.
    let mut cbw = b"USBC\x01\0\0\0\x33\x23\0\0\x80\0\x06\xE2\x50\0\x23\x33\0".to_vec();
    cbw.resize(31, 0);
    unit.bulk_out(Endpoint::DataOut, 0, &cbw);
    let took = unit.bulk_in(Endpoint::DataIn, 0, &mut [0; 1024]);
    assert!(!matches!(took, Reply::Silent | Reply::Gone), "{took:?}");
    assert_eq!(pipes_of(unit), Asked::Is(PipeState::Dead));
}

/// Found by random life (docs/lab/reliability.md): a READ over UAS while 0x054B, the sectors per slot, is 0.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read_after_half_an_initialisation_hangs_vendor_firmware_until_a_power_cycle() {
    let file = chip_images::file("ASMPATCH_VENDOR_IMAGE");
    let scenario = Scenario { behind: Downstream::Nothing, ..Scenario::default() };
    let mut unit = VirtualUnit::in_memory(scenario, b"dead", Some(&file)).unwrap();
    assert!(unit.reset_by_host(1));
    let mut send = |tag, cdb: &[u8]| {
        let iu = CommandIu { tag: Tag(tag), lun: 0, cdb: Cdb::new(cdb).unwrap() };
        unit.bulk_out(Endpoint::Command, 0, &iu.to_bytes());
        unit.bulk_in(Endpoint::Status, tag, &mut [0; 64])
    };
    for (tag, cdb) in
        [(1, [0x12, 0, 0, 0, 0, 0]), (2, [0xE5, 2, 0x50, 0x05, 0xA8, 0]), (3, [0xE5, 4, 0x50, 0x05, 0xF8, 0])]
    {
        assert!(matches!(send(tag, &cdb), Reply::Done(_)), "{cdb:02x?}");
    }
    assert_eq!(send(4, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]), Reply::Silent);
    assert_eq!(pipes_of(unit), Asked::Is(PipeState::Dead));
}

/// Found by random life (docs/lab/reliability.md): a runtime that was killed in a long read and restarted.
#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_second_stream_during_a_stream_of_reads_hangs_open_firmware_until_a_power_cycle() {
    let file = chip_images::file("ASMPATCH_OPEN_IMAGE");
    let mut unit = VirtualUnit::in_memory(Scenario::default(), b"dead", Some(&file)).unwrap();
    assert!(unit.reset_by_host(0));
    let mut request = 0x1000_0000_u64.to_le_bytes().to_vec();
    request.extend(266_u32.to_le_bytes());
    // 266 dwords take two packets. A stream of writes begins before the second is read.
    let mut stream = |kind, mode| {
        let answer = unit.control([0x40, 0xF0, kind, 0x0F, mode, 0, 12, 0], &request);
        assert!(matches!(answer, ControlAnswer::Done(_)), "{answer:?}");
    };
    stream(0x20, 2);
    stream(0x60, 1);
    let took = unit.bulk_in(Endpoint::DataIn, 0, &mut [0; 1024]);
    assert_eq!(took, Reply::Done(1024));
    assert_eq!(pipes_of(unit), Asked::Is(PipeState::Dead));
}

fn pipes_of(unit: VirtualUnit) -> Asked<PipeState> {
    let mut port = VirtualPort::new("u", unit);
    let info = port.attached().unwrap();
    let images = asmpatch::embedded::patches().unwrap().into();
    examine(&mut port, info, DoctorOptions::default(), &images, Interrupt::never()).unwrap().pipes
}
