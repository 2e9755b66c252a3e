//! Records of virtual units' examinations: what a report keeps of them, and what it replays.

use std::collections::BTreeSet;

use asm2464::Coded as _;
use asm2464::firmware::{ConfigField, known_blocks};
use asm2464_dock::record::{Recorder, ReplayPort};
use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Port, Watch};
use serde_json::{Value, json};

use super::*;
use crate::doctor::{Diagnosis, DoctorOptions, DoctorReport, Examination, examine};
use crate::patch::{PatchSet, Selection};

const SERIAL: &str = "SECRET77";

fn library() -> Library {
    Library::of_repository().unwrap()
}

fn patched() -> Image {
    let image = practice::image();
    let digest = Sha256Digest(image.sha256());
    PatchSet::resolve(&library(), &Selection::default(), &image, digest).unwrap().apply().unwrap().image
}

fn examined(port: &mut dyn Port, recorder: &Recorder, options: DoctorOptions) -> (Examination, String) {
    let info = port.attached().unwrap();
    let library = library();
    let seen = examine(port, info, options, &library, Interrupt::never()).unwrap();
    let serial = seen.unit.serial.as_deref();
    let record = recorder.openings().map(|openings| ReportedRecord::of(&openings, serial, !options.no_write, &library));
    let diagnosis = Diagnosis::<String> { lines: Vec::new(), runtime: None, because: Vec::new() };
    let report = DoctorReport::new(&seen, &diagnosis, None, record).to_json();
    (seen, report)
}

/// Examines a virtual unit. Returns what was seen, and the report.
fn reported(scenario: &str, image: &Image, options: DoctorOptions) -> (Examination, String) {
    let scenario = Scenario::parse(scenario).unwrap();
    let mut port = VirtualPort::new("u", VirtualUnit::in_memory(scenario, b"u", Some(&image.to_file())).unwrap());
    let recorder = Recorder::default();
    let mut watch = Watch::default();
    watch.add(recorder.clone());
    port.watch(watch);
    examined(&mut port, &recorder, options)
}

fn replayed(report: &str) -> Record {
    of_report(Path::new("unit.json"), report.as_bytes(), &|sha256| beside(Path::new("unit.json"), sha256)).unwrap()
}

/// Everything that a verdict depends on.
fn findings(seen: &Examination) -> String {
    let Examination { opened, runs, pipes, behind, link, supply, tree, is_corrupt, bench_failure, exchanges, .. } =
        seen;
    let timings: Vec<&str> = seen.timings.iter().map(|timing| timing.what.as_str()).collect();
    let answers: Vec<_> = exchanges.iter().map(|it| (&it.question, &it.unit, &it.model)).collect();
    let behind = behind.as_ref().map(std::mem::discriminant);
    let code = |problem: &crate::doctor::Problem| problem.code.clone();
    let opened = opened.as_ref().map_err(code);
    let bench_failure = bench_failure.as_ref().map(code);
    format!(
        "{opened:?} {runs:?} {pipes:?} {behind:?} {link:?} {supply:?} {tree:?} {timings:?} {is_corrupt} {bench_failure:?} {answers:?}"
    )
}

#[test]
fn a_report_of_any_unit_replays_with_the_same_findings_and_with_the_same_report() {
    let compare = DoctorOptions { no_write: false, compare: true };
    let read = DoctorOptions { no_write: true, compare: true };
    let serial = format!("serial = '{SERIAL}'\n");
    for (scenario, image, options) in [
        ("", practice::image(), compare),
        ("", patched(), read),
        ("", practice::open_image(), compare),
        ("", practice::open_image(), read),
        ("state = 'boot-loader'\n", practice::image(), compare),
        ("behind = 'nothing'\n", practice::image(), compare),
        ("behind = { ssd = { bytes = 1048576 } }\n", practice::image(), compare),
        ("speed = 'high'\n", practice::open_image(), compare),
        ("bulk-hangs = true\n", practice::image(), compare),
        ("[[fault]]\nkind = 'stall'\nopcode = 0xE2\n", practice::image(), compare),
        ("[[fault]]\nkind = 'short-data'\nopcode = 0xE0\n", practice::image(), compare),
        ("[[fault]]\nkind = 'bad-tag'\nnth = 30\n", practice::image(), compare),
        ("[[fault]]\nkind = 'timeout'\nopcode = 0xE4\nnth = 5\n", practice::image(), compare),
        ("[[fault]]\nkind = 'disconnect'\nopcode = 0xE4\nnth = 9\n", practice::image(), compare),
        ("[flash]\nstale-first-byte = 2\n", practice::open_image(), compare),
    ] {
        let (seen, report) = reported(&format!("{serial}{scenario}"), &image, options);
        let recorder = Recorder::default();
        let mut watch = Watch::default();
        watch.add(recorder.clone());
        let mut port = ReplayPort::new(replayed(&report));
        port.watch(watch);
        let (again, second) = examined(&mut port, &recorder, options);
        assert_eq!(findings(&again), findings(&seen), "{scenario}");
        // A report of the replay has the same record.
        let record = |text: &str| serde_json::from_str::<Value>(text).unwrap()["record"]["openings"].clone();
        assert_eq!(record(&second), record(&report), "{scenario}");
    }
}

#[test]
fn a_report_names_no_serial_number_and_holds_no_firmware_and_no_memory() {
    for image in [practice::image(), patched(), practice::open_image()] {
        let scenario = format!("serial = '{SERIAL}'\nbehind = {{ ssd = {{ bytes = 1048576 }} }}\n");
        let scenario = if image == practice::open_image() { format!("serial = '{SERIAL}'\n") } else { scenario };
        let (_, report) = reported(&scenario, &image, DoctorOptions { no_write: false, compare: true });
        let value: Value = serde_json::from_str(&report).unwrap();
        let events: Vec<&str> = value["record"]["openings"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|opening| opening["events"].as_array().unwrap())
            .map(|event| event.as_str().unwrap())
            .collect();
        let wide: Vec<u8> = SERIAL.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let is_code = |bytes: &&[u8]| BTreeSet::from_iter(bytes.iter()).len() > 8;
        let code = image.body().windows(16).find(is_code).unwrap();
        for private in [SERIAL.as_bytes(), &wide, code] {
            assert!(!report.contains(&to_hex(private, "")), "{private:02x?}");
        }
        assert!(!report.contains(SERIAL));
        assert!(events.iter().any(|event| event.contains("flash@")), "{report}");
        assert!(events.iter().any(|event| event.contains("withheld:64")), "{report}");
        // Whatever else is shown is short.
        for event in events {
            let longest = event.split([' ', '+']).filter(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert!(longest.map(str::len).max().unwrap_or(0) <= 2 * 64, "{event}");
        }
    }
}

#[test]
fn a_report_of_the_first_format_with_a_record_replays_as_one_of_this_format() {
    let (seen, report) = reported("", &practice::image(), DoctorOptions { no_write: false, compare: true });
    let mut value: Value = serde_json::from_str(&report).unwrap();
    let keys = value.as_object_mut().unwrap();
    keys.insert("schema".into(), json!(4));
    keys.insert("tool".into(), json!("asmpatch 0.1.0"));
    for (now, before) in [("firmware", "runs"), ("firmware_problem", "runs_problem"), ("supply", "supply_mv_ma")] {
        let found = keys.remove(now).unwrap();
        keys.insert(before.into(), found);
    }
    for answer in keys["answers"].as_array_mut().unwrap().iter_mut().filter_map(Value::as_object_mut) {
        let took = answer.remove("took_us").unwrap();
        answer.insert("micros".into(), took);
    }
    let mut port = ReplayPort::new(replayed(&value.to_string()));
    let (again, _) = examined(&mut port, &Recorder::default(), DoctorOptions { no_write: false, compare: true });
    assert_eq!(findings(&again), findings(&seen));
}

#[test]
fn a_serial_number_is_replaced_wherever_it_stands_in_an_answer() {
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let mut bytes = [format!("a{SERIAL}b{SERIAL}").into_bytes(), wide(SERIAL)].concat();
    let len = bytes.len();
    redact::without_texts(&mut bytes, &[SERIAL.to_owned()]);
    assert_eq!((bytes.len(), bytes[0], bytes[9]), (len, b'a', b'b'));
    assert!(!String::from_utf8_lossy(&bytes).contains(SERIAL) && bytes[18..] != wide(SERIAL));
}

#[test]
fn the_blocks_of_a_report_are_valid_and_nobodys() {
    let (_, report) = reported(&format!("serial = '{SERIAL}'\n"), &practice::image(), DoctorOptions::default());
    let value: Value = serde_json::from_str(&report).unwrap();
    let block = |index: asm2464::firmware::BlockIndex| {
        let text = value["record"]["flash"]["blocks"][usize::from(index.number())].as_str().unwrap().to_owned();
        asm2464::firmware::ConfigBlock::parse(index, &parse_hex(&text).unwrap()).unwrap()
    };
    let zero = block(asm2464::firmware::BlockIndex::Zero);
    assert_eq!(zero.text(ConfigField::Serial).len(), 12);
    assert_ne!(zero.text(ConfigField::Serial), SERIAL);
    let one = block(asm2464::firmware::BlockIndex::One);
    assert!(one.bytes()[asm2464::firmware::USB4_IDENTITY].iter().all(|byte| *byte == 0xFF));
    assert!(known_blocks()[1].bytes()[asm2464::firmware::USB4_IDENTITY].iter().any(|byte| *byte != 0xFF));
}

#[test]
fn firmware_that_a_report_leaves_out_is_found_beside_it_or_named() {
    // No original is known for this image, so it is its own base.
    let mut image = practice::image();
    let end = image.body().len() as u32;
    assert!(image.replace(asm2464::firmware::BodyOffset(end - 16), &[0xA5; 16]));
    let (_, report) = reported("", &image, DoctorOptions::default());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("unit.json");
    std::fs::write(&path, &report).unwrap();
    let error = load(&path).unwrap_err();
    assert_eq!(error.code(), "asmpatch::replay::no_image");
    let sha256 = Sha256Digest::of(&image.to_file()).to_string();
    let wanted = dir.path().join(format!("{sha256}.bin"));
    assert!(error.to_string().ends_with(&format!("{} is missing", wanted.display())), "{error}");
    std::fs::write(&wanted, image.to_file()).unwrap();
    load(&path).unwrap();
    // Another file under that name is refused.
    std::fs::write(&wanted, practice::image().to_file()).unwrap();
    let error = load(&path).unwrap_err();
    assert_eq!(error.code(), "asmpatch::replay::no_image");
    assert!(error.to_string().ends_with("is another file"), "{error}");
}

#[test]
fn a_file_that_is_no_record_is_refused_with_the_reason() {
    let (_, report) = reported("", &practice::image(), DoctorOptions::default());
    let whole: Value = serde_json::from_str(&report).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = whole.clone();
        change(&mut value);
        value.to_string()
    };
    let cases: [(String, &str); 9] = [
        ("{".to_owned(), "asmpatch::replay::not_a_record"),
        ("{}".to_owned(), "asmpatch::replay::not_a_record"),
        (with(&|value| value["schema"] = json!(3)), "asmpatch::replay::no_record"),
        (with(&|value| value["schema"] = json!(REPORT_SCHEMA + 1)), "asmpatch::replay::no_record"),
        (with(&|value| value["record"] = Value::Null), "asmpatch::replay::no_record"),
        (with(&|value| value["unit"]["usb_id"] = json!("usb")), "asmpatch::replay::not_a_record"),
        (with(&|value| value["record"]["openings"][0]["events"][0] = json!("rm -rf")), "asm2464::replay::event"),
        (with(&|value| value["record"]["openings"][0]["events"][0] = json!("back 9 done 0")), "asm2464::replay::event"),
        (
            with(&|value| value["record"]["flash"]["image"]["base"] = json!("../../etc/x")),
            "asmpatch::replay::not_a_record",
        ),
    ];
    for (text, code) in cases {
        let refused = of_report(Path::new("unit.json"), text.as_bytes(), &|sha256| beside(Path::new("x"), sha256));
        let error = refused.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_report_or_an_error(bytes: Vec<u8>) {
        let _ = of_report(Path::new("x"), &bytes, &|_| None);
    }
}
