//! Diagnoses of units in memory.

use crate::advice::Applicability;
use crate::doctor::{self, DoctorOptions, Report, Verdict, Wanted, examine, hashed};
use crate::patch::{PatchSet, Selection};
use crate::tests::unknown_open_build;
use crate::unit::facts::HostState;
use crate::unit::facts::{Asked, Facts, FlashChip, PipeState, Problem, RunningFirmware};
use asm2464::Bdf;
use asm2464::firmware::{BridgeState, Image, UsbId};
use asm2464::flash::JedecId;
use asm2464::interrupt::Interrupt;
use asm2464::scsi::Lun;
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
use asm2464_host::bridge::open::{Supply, SupplyMeasurement};
use asm2464_host::bridge::{Bay, BusSpeed, Location, Port as _, Storage};
use asm2464_host::usb::sysfs::{BayDisk, Process, TunnelledDevice, Tunnels};

use crate::cli::words::by_hand::is_for_docks;
use crate::cli::words::errors::Exit;
use crate::cli::words::invocation::Invocation;

use super::{DoctorJson, WordedDiagnosis, WordedLine, issue_form, of_report, worst};

fn patched() -> Image {
    let image = practice::image();
    let library = crate::embedded::patches().unwrap();
    let digest = image.sha256();
    PatchSet::resolve(&library, &Selection::default(), &image, digest).unwrap().apply().unwrap().image
}

fn examined(scenario: &str, image: &Image, options: DoctorOptions) -> Facts {
    let scenario = Scenario::parse(scenario).unwrap();
    let unit = VirtualUnit::in_memory(scenario, b"doctor", Some(&image.to_file())).unwrap();
    let mut port = VirtualPort::new("u", unit);
    let info = port.attached().unwrap();
    assert_eq!(info.location, port.location());
    examine(&mut port, info, options, &crate::embedded::patches().unwrap().into(), Interrupt::never()).unwrap()
}

fn diagnose(seen: &Facts) -> WordedDiagnosis {
    diagnose_for(seen, None)
}

fn diagnose_for(seen: &Facts, expected: Option<&str>) -> WordedDiagnosis {
    let expected = expected.map(|id| id.parse().unwrap());
    let (gpus, runtime) = (crate::embedded::gpus().unwrap(), crate::embedded::runtime().unwrap());
    let diagnosis = doctor::diagnose(seen, Wanted { gpus: &gpus, runtime: &runtime, expected });
    WordedDiagnosis::of(diagnosis, &Invocation::default().at(&seen.unit.location))
}

fn page(scenario: &str, image: &Image, options: DoctorOptions) -> WordedDiagnosis {
    diagnose(&examined(scenario, image, options))
}

fn line<'a>(page: &'a WordedDiagnosis, topic: &str) -> &'a WordedLine {
    page.lines.iter().find(|line| line.line.topic == topic).unwrap_or_else(|| panic!("{topic}: {page:#?}"))
}

const READING: DoctorOptions = DoctorOptions { no_write: true, compare: false };

#[test]
fn the_part_and_its_flash_are_named_as_far_as_the_firmware_gives_access_to_them() {
    let found = |page: &WordedDiagnosis, topic: &str| line(page, topic).line.found.clone();
    let open = page("part-revision = '07'\n", &practice::open_image(), DoctorOptions::default());
    assert_eq!(found(&open, "part"), "revision 0x07 (XDATA 0xC8FF)");
    assert_eq!(found(&open, "flash"), "JEDEC ID EF 30 13 (Winbond), status 0x00: no block is protected");
    // Asking the flash writes registers of its controller, which the user may forbid.
    let asked = page("", &practice::open_image(), READING);
    assert_eq!(found(&asked, "part"), "revision 0x04 (XDATA 0xC8FF)");
    assert!(found(&asked, "flash").starts_with("not asked"));
    let vendor = page("", &practice::image(), DoctorOptions::default());
    assert_eq!(found(&vendor, "part"), "revision 0x04 (XDATA 0xC8FF)");
    assert!(found(&vendor, "flash").contains("gives no access"), "{vendor:#?}");

    let mut seen = examined("", &practice::open_image(), DoctorOptions::default());
    seen.flash_part = Asked::Is(FlashChip { jedec_id: JedecId([0x12, 0x34, 0x56]), status: 0x9C, protection: 0x1C });
    let unknown = diagnose(&seen);
    let expected =
        "JEDEC ID 12 34 56 (maker not known), status 0x9c: blocks are protected (0x1c), until a flash clears that";
    assert_eq!(found(&unknown, "flash"), expected);
    assert!(report(&seen).contains("\"jedec_id\": \"12 34 56\""), "{}", report(&seen));
}

#[test]
fn a_gpu_runtime_can_start_on_open_firmware_with_a_gpu_behind_it() {
    let page = page("", &practice::open_image(), DoctorOptions::default());
    assert_eq!(page.runtime, Some("tinygrad from v0.14.0 on"), "{page:#?}");
    assert!(line(&page, "GPU").line.found.contains("1002:744c"), "{page:#?}");
    assert_eq!((line(&page, "bulk pipes").line.verdict, page.because.len()), (Verdict::Good, 0));
}

#[test]
fn without_leave_to_write_doctor_says_what_it_does_not_know() {
    let page = page("", &practice::open_image(), READING);
    assert_eq!((line(&page, "bulk pipes").line.verdict, page.runtime), (Verdict::Unknown, None), "{page:#?}");
    assert_eq!(page.because, ["bulk pipes", "GPU"]);
    let last = super::shown(&examined("", &practice::open_image(), READING).unit, &page, false).pop().unwrap();
    assert_eq!(last, "asmpatch doesn't know whether a GPU runtime can start: see bulk pipes, GPU");
}

#[test]
fn open_firmware_whose_pipes_hang_is_named_by_the_page_and_answers_the_next_command() {
    for cure in ["strobes", "cpu-reset", "power"] {
        let scenario = Scenario::parse(&format!("bulk-hangs = '{cure}'\n")).unwrap();
        let unit = VirtualUnit::in_memory(scenario, b"hangs", Some(&practice::open_image().to_file())).unwrap();
        let mut port = VirtualPort::new("u", unit);
        // The check disarms what it has armed, so that the next examination doesn't take the SRAM for busy.
        for _ in 0..2 {
            let info = port.attached().unwrap();
            let images = crate::embedded::patches().unwrap().into();
            let seen = examine(&mut port, info, DoctorOptions::default(), &images, Interrupt::never()).unwrap();
            let page = diagnose(&seen);
            assert_eq!(
                (line(&page, "bulk pipes").line.verdict, &seen.pipes),
                (Verdict::Bad, &Asked::Is(PipeState::Hang)),
                "{cure}"
            );
            assert!(page.runtime.is_none() && page.because.contains(&"bulk pipes"), "{page:#?}");
        }
    }
}

#[test]
fn no_runtime_works_with_stock_firmware_and_the_page_names_images_that_do() {
    let page = page("", &practice::image(), DoctorOptions::default());
    assert_eq!((page.runtime, line(&page, "firmware").line.verdict), (None, Verdict::Bad));
    let advice = line(&page, "firmware").advice.clone().unwrap();
    assert!(advice.contains("v0.14.0") && advice.contains("asmpatch flash patched.bin --device virtual:u"), "{advice}");
    assert_eq!(line(&page, "PCIe link").line.verdict, Verdict::Good);
}

#[test]
fn patched_firmware_without_its_identity_is_not_found_by_its_runtime() {
    let page = page("", &patched(), DoctorOptions::default());
    assert!(line(&page, "firmware").line.found.contains("tinygrad looks for ADD1:0001"), "{page:#?}");
    assert_eq!(page.runtime, None);
}

#[test]
fn a_unit_with_nothing_behind_it_is_asked_for_its_card_and_its_12_v() {
    let page = page("behind = 'nothing'\n", &practice::open_image(), DoctorOptions::default());
    let link = line(&page, "PCIe link");
    assert_eq!((page.runtime, link.line.verdict), (None, Verdict::Bad));
    assert!(link.advice.as_ref().unwrap().contains("12 V"), "{link:?}");
}

#[test]
fn a_report_keeps_each_speed_and_an_older_ones_unknown_speed_is_what_its_descriptors_prove() {
    let mut seen = examined("", &practice::open_image(), DoctorOptions::default());
    let at_20_gbit = BusSpeed::SuperPlus { mbit_per_s: Some(20_000) };
    let at_least_5_gbit = BusSpeed::Unknown { at_least: Some(5_000) };
    for (speed, keys, shown) in [
        (at_20_gbit, "\"speed\": \"super-plus\",\n      \"speed_mbit_per_s\": 20000,", "20 Gbit/s"),
        (BusSpeed::SuperPlus { mbit_per_s: None }, "\"speed\": \"super-plus\",", "10 Gbit/s or more"),
        (at_least_5_gbit, "\"speed\": \"unknown\",\n      \"speed_at_least_mbit_per_s\": 5000,", "at least 5 Gbit/s"),
    ] {
        seen.unit.speed = speed;
        let text = report(&seen);
        assert!(text.contains(keys), "{text}");
        let again = Report::parse("report.json", &text).unwrap().facts;
        assert_eq!(again.unit.speed, speed);
        let page = diagnose(&again);
        assert_eq!(line(&page, "USB").line.verdict, Verdict::Good);
        assert!(line(&page, "USB").line.found.contains(shown), "{page:#?}");
    }
    seen.unit.speed = BusSpeed::UNKNOWN;
    let older = Report::parse("report.json", &report(&seen)).unwrap().facts;
    assert_eq!(older.unit.speed, at_least_5_gbit);
    seen.descriptors = None;
    let nothing = Report::parse("report.json", &report(&seen)).unwrap().facts;
    assert_eq!(line(&diagnose(&nothing), "USB").line.verdict, Verdict::Unknown);
}

#[test]
fn a_supply_keeps_a_runtime_from_starting_below_5_v_or_with_a_fault_and_sags_above() {
    let measured = |voltage_mv| Some(SupplyMeasurement { voltage_mv, current_ma: 100 });
    for (measured, has_fault, verdict, found) in [
        (None, None, Verdict::Note, "doesn't measure"),
        (None, Some(false), Verdict::Note, "doesn't measure"),
        (None, Some(true), Verdict::Note, "fault line (GPIO 1)"),
        (measured(12_000), None, Verdict::Good, "12.00 V, 0.10 A"),
        (measured(12_000), Some(false), Verdict::Good, "12.00 V, 0.10 A"),
        (measured(15_200), Some(false), Verdict::Good, "15.20 V, 0.10 A"),
        (measured(11_400), Some(false), Verdict::Good, "11.40 V, 0.10 A"),
        (measured(11_399), Some(false), Verdict::Note, "under load"),
        (measured(11_000), Some(false), Verdict::Note, "11.00 V, 0.10 A"),
        (measured(5_000), Some(false), Verdict::Note, "5.00 V, 0.10 A"),
        (measured(4_999), Some(false), Verdict::Bad, "5.00 V, 0.10 A"),
        (measured(1_580), Some(false), Verdict::Bad, "1.58 V"),
        (measured(12_000), Some(true), Verdict::Bad, "fault"),
    ] {
        let mut seen = examined("", &practice::open_image(), DoctorOptions::default());
        seen.supply = Asked::Is(Some(Supply { measured, has_fault }));
        let page = diagnose(&seen);
        let supply = line(&page, "12 V");
        assert!(supply.line.verdict == verdict && supply.line.found.contains(found), "{page:#?}");
        assert_eq!(page.runtime.is_some(), verdict != Verdict::Bad, "{page:#?}");
    }
}

#[test]
fn a_slow_link_keeps_a_runtime_from_starting() {
    // The boot loader has no firmware that could be restarted, and open firmware without F4 may keep USB 2 when it is.
    for (image, state, resets) in [
        (practice::open_image(), "auto", true),
        (unknown_open_build(), "auto", false),
        (practice::image(), "auto", true),
        (practice::image(), "boot-loader", false),
    ] {
        let scenario = format!("speed = 'high'\nstate = '{state}'\n");
        let page = page(&scenario, &image, DoctorOptions::default());
        let usb = line(&page, "USB");
        assert_eq!((page.runtime, usb.line.verdict), (None, Verdict::Bad));
        let advice = usb.advice.as_deref().unwrap();
        assert_eq!(advice.contains("asmpatch reset --device virtual:u"), resets, "{advice}");
    }
}

#[test]
fn on_a_slow_link_the_supply_comes_first_then_the_order_of_cables_another_port_and_a_suspend() {
    for speed in [BusSpeed::High, BusSpeed::Full] {
        let mut seen = examined("", &practice::open_image(), DoctorOptions::default());
        (seen.unit.speed, seen.unit.location) = (speed, Location::Port("3-1".parse().unwrap()));
        let page = diagnose(&seen);
        let usb = line(&page, "USB");
        assert!(usb.line.found.starts_with(&speed.to_string()), "{usb:?}");
        let advice = usb.advice.as_deref().unwrap();
        let steps = ["supply", "restarts nothing", "ten seconds", "cable in last", "another port", "rtcwake"];
        let places: Vec<_> = steps.iter().map(|step| advice.find(step)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {advice}");
    }
}

/// A GPU on bus 4, behind two switches, as owners found it.
fn with_gpu(vendor: u16, device: u16, class: u32) -> Facts {
    let mut seen = examined("", &practice::open_image(), DoctorOptions::default());
    let Asked::Is(tree) = &mut seen.tree else { panic!("{seen:#?}") };
    let gpu = tree.functions.iter_mut().find(|function| function.class >> 16 == 3).unwrap();
    (gpu.at, gpu.vendor, gpu.device, gpu.class) = (Bdf::new(4, 0, 0), vendor, device, class);
    seen
}

const VGA: u32 = 0x03_00_00;
const ACCELERATOR: u32 = 0x12_00_00;

#[test]
fn a_runtime_can_start_with_the_gpus_that_it_drives_and_any_other_alone_is_bad_and_says_why() {
    for (vendor, device, class, verdict, says) in [
        (0x1002, 0x744C, VGA, Verdict::Good, "Radeon RX 7900 XT, XTX, GRE (gfx1100)"),
        (0x1002, 0x7590, VGA, Verdict::Good, "(gfx1200)"),
        (0x1002, 0x74A1, ACCELERATOR, Verdict::Good, "(gfx942)"),
        (0x1002, 0x73FF, VGA, Verdict::Bad, "refuses others, such as RDNA 2"),
        (0x10DE, 0x2204, VGA, Verdict::Bad, "pull request 17369"),
        (0x8086, 0x56A0, VGA, Verdict::Bad, "knows no runtime"),
        (0x1E60, 0x2864, ACCELERATOR, Verdict::Bad, "knows no runtime"),
    ] {
        let seen = with_gpu(vendor, device, class);
        let page = diagnose(&seen);
        let gpu = line(&page, "GPU");
        assert!(gpu.line.verdict == verdict && gpu.line.found.contains(says), "{gpu:?}");
        assert_eq!(page.runtime.is_some(), verdict == Verdict::Good, "{page:#?}");
        let expected = format!("{vendor:04x}:{device:04x}");
        let expects = gpu.steps.iter().any(|step| step.line().is_some_and(|line| line.contains(&expected)));
        assert_eq!(expects, verdict == Verdict::Bad, "{gpu:?}");
        // A user who has a runtime for it names it with `--expect`.
        let page = diagnose_for(&seen, Some(&expected));
        assert_eq!(line(&page, "GPU").line.verdict, Verdict::Good, "{page:#?}");
        let own = page.runtime.is_some_and(|runtime| runtime.starts_with("your own"));
        assert_eq!(own, verdict == Verdict::Bad, "{page:#?}");
    }
}

#[test]
fn what_is_no_runtimes_gpu_is_named_with_what_to_do() {
    let tree = |bus: u8, ids: [u16; 2], class| {
        let mut seen = with_gpu(ids[0], ids[1], class);
        let Asked::Is(tree) = &mut seen.tree else { panic!("{seen:#?}") };
        tree.functions.last_mut().unwrap().at = Bdf::new(bus, 0, 0);
        seen
    };
    const SSD: u32 = 0x01_08_02;
    for (seen, found, advice) in [
        (tree(1, [0x1234, 0x5447], ACCELERATOR), "tiny-gpu, a card of virtual units", None),
        (
            tree(4, [0x144D, 0xA80A], SSD),
            "no GPU, but an SSD: 04:00.0 Samsung 144d:a80a",
            Some("put a GPU in its place"),
        ),
        (tree(5, [0x1002, 0x744C], VGA), "looks on bus 4 alone", Some("an adapter without a switch")),
        (tree(2, [0x1002, 0x744C], VGA), "looks on bus 4 alone", Some("nobody has reported")),
    ] {
        let page = diagnose(&seen);
        let gpu = line(&page, "GPU");
        assert!(gpu.line.verdict == Verdict::Bad && gpu.line.found.contains(found), "{gpu:?}");
        match advice {
            Some(advice) => assert!(gpu.advice.as_ref().unwrap().contains(advice), "{gpu:?}"),
            None => assert_eq!(gpu.advice, None),
        }
    }
}

#[test]
fn a_device_that_the_user_expects_is_missed_beside_a_gpu_and_found_whatever_its_class() {
    let seen = with_gpu(0x1002, 0x744C, VGA);
    let page = diagnose_for(&seen, Some("1e60:2864"));
    let gpu = line(&page, "device");
    assert!(
        gpu.line.verdict == Verdict::Bad && gpu.line.found.contains("no 1e60:2864, which you expect, but"),
        "{gpu:?}"
    );
    assert!(gpu.line.found.contains("1002:744c: Radeon RX 7900") && page.runtime.is_none(), "{page:#?}");
    let page = diagnose_for(&with_gpu(0x10EE, 0x9048, 0x05_80_00), Some("10EE:9048"));
    assert!(line(&page, "device").line.verdict == Verdict::Good && page.runtime.is_some(), "{page:#?}");
}

#[test]
fn a_gpu_on_another_bus_than_the_runtimes_is_bad_and_names_the_bus() {
    let says = |page: &WordedDiagnosis| line(page, "GPU").line.found.contains("tinygrad looks on bus 4 alone");
    assert!(!says(&page("", &practice::open_image(), DoctorOptions::default())));
    let on_bus_1 = "[[device]]\nat = '0'\nvendor = 0x1002\ndevice = 0x744C\nclass = 0x030000\n";
    let seen = examined(on_bus_1, &practice::open_image(), DoctorOptions::default());
    let page = diagnose(&seen);
    assert!(says(&page) && line(&page, "GPU").line.verdict == Verdict::Bad, "{page:#?}");
    assert_eq!((page.runtime, &page.because[..]), (None, &["GPU"][..]), "{page:#?}");
    // The user's own runtime may look elsewhere.
    let page = diagnose_for(&seen, Some("1002:744c"));
    assert!(page.runtime.is_some_and(|runtime| runtime.starts_with("your own")), "{page:#?}");
}

#[test]
fn open_firmware_under_an_id_that_no_runtime_opens_is_bad_and_the_page_names_the_others() {
    let mut seen = examined("", &practice::open_image(), DoctorOptions::default());
    for (id, can_start) in [("ADD1:0001", true), ("3801:0001", true), ("ADD1:0002", false), ("174C:2464", false)] {
        seen.unit.id = id.parse().unwrap();
        let page = diagnose(&seen);
        assert_eq!(page.runtime.is_some(), can_start, "{id}");
        let says = line(&page, "firmware").line.found.contains("tinygrad opens ADD1:0001 and 3801:0001 alone");
        assert_eq!((says, page.because.contains(&"firmware")), (!can_start, !can_start), "{page:#?}");
    }
}

/// The page of a dock at 3-1.2 on a host in this state.
fn at_port(product: &str, host: HostState) -> WordedDiagnosis {
    let mut seen = examined("", &practice::open_image(), DoctorOptions::default());
    (seen.unit.location, seen.host) = (Location::Port("3-1.2".parse().unwrap()), host);
    seen.unit.product = product.to_owned();
    diagnose(&seen)
}

#[test]
fn a_device_with_the_id_of_another_chip_is_called_by_that_chip() {
    let mut seen = examined("", &practice::image(), DoctorOptions::default());
    seen.unit.id = "174C:2362".parse().unwrap();
    let page = diagnose(&seen);
    assert_eq!(line(&page, "firmware").line.found, "174C:2362 is the ID of another chip, ASM2362");
    assert_eq!((line(&page, "firmware").line.verdict, page.runtime), (Verdict::Bad, None));
    assert_eq!(super::heading(&seen.unit), "virtual:u 174C:2362 (ASM2362)");
}

#[test]
fn stock_firmware_over_usb_3_on_a_host_with_usb4_is_noted_and_other_firmware_is_not() {
    let page = |id: UsbId, speed, has_usb4| {
        let mut seen = examined("", &practice::image(), DoctorOptions::default());
        (seen.unit.id, seen.unit.speed, seen.host.has_usb4) = (id, speed, has_usb4);
        seen.contents = Asked::NotAsked;
        diagnose(&seen)
    };
    let note = |page: &WordedDiagnosis| {
        let mut lines = page.lines.iter().filter(|line| line.line.topic == "USB");
        lines.find(|line| line.line.found.contains("this host has USB4")).map(|line| line.line.verdict)
    };
    assert_eq!(note(&page(UsbId::STOCK, BusSpeed::SUPER_PLUS, true)), Some(Verdict::Note));
    assert_eq!(note(&page(UsbId::STOCK, BusSpeed::SUPER_PLUS, false)), None);
    assert_eq!(note(&page(UsbId::PATCHED, BusSpeed::SUPER_PLUS, true)), None);
    assert_eq!(note(&page(UsbId::STOCK, BusSpeed::High, true)), None, "its supply is off");
    let mut open = examined("", &practice::open_image(), DoctorOptions::default());
    open.host.has_usb4 = true;
    assert_eq!(note(&diagnose(&open)), None);
}

#[test]
fn each_row_has_its_verdict_and_what_keeps_a_runtime_from_starting_fails_the_command() {
    let healthy = || examined("", &practice::open_image(), DoctorOptions::default());
    let with = |change: &dyn Fn(&mut Facts)| {
        let mut seen = healthy();
        change(&mut seen);
        seen
    };
    let speed = |speed| with(&|seen| seen.unit.speed = speed);
    let named = |product: &str| with(&|seen| seen.unit.product = product.to_owned());
    // Patched firmware whose variables are not where 240417 has them.
    let of_version = |version: &str| {
        let mut seen = examined("", &patched(), DoctorOptions::default());
        seen.unit.id = UsbId::PATCHED;
        let Asked::Is(contents) = &mut seen.contents else { panic!("{seen:#?}") };
        contents.runs.version = Some(version.parse().unwrap());
        contents.flashed.as_mut().unwrap().set_version(version.parse().unwrap());
        seen
    };
    let unknown = |mbit_per_s| speed(BusSpeed::Unknown { at_least: Some(mbit_per_s) });
    for (seen, topic, verdict, exit) in [
        (healthy(), "USB", Verdict::Good, Exit::Done),
        (speed(BusSpeed::High), "USB", Verdict::Bad, Exit::CheckFailed),
        (speed(BusSpeed::Full), "USB", Verdict::Bad, Exit::CheckFailed),
        (speed(BusSpeed::UNKNOWN), "USB", Verdict::Unknown, Exit::Done),
        (unknown(480), "USB", Verdict::Unknown, Exit::Done),
        (unknown(5_000), "USB", Verdict::Good, Exit::Done),
        (named("custom ed4e39b7-CLEAN"), "firmware", Verdict::Good, Exit::Done),
        (named("USB4 eGPU"), "firmware", Verdict::Bad, Exit::CheckFailed),
        (of_version("231204.85.00.00"), "firmware", Verdict::Bad, Exit::CheckFailed),
        (of_version("250123.85.00.00"), "firmware", Verdict::Unknown, Exit::CheckFailed),
        (with(&|seen| seen.pipes = Asked::Is(PipeState::Move)), "bulk pipes", Verdict::Good, Exit::Done),
        (with(&|seen| seen.pipes = Asked::Is(PipeState::Hang)), "bulk pipes", Verdict::Bad, Exit::CheckFailed),
        (with(&|seen| seen.pipes = Asked::Is(PipeState::Dead)), "bulk pipes", Verdict::Bad, Exit::CheckFailed),
        (with(&|seen| seen.pipes = Asked::Is(PipeState::Busy(1))), "bulk pipes", Verdict::Bad, Exit::CheckFailed),
    ] {
        let page = diagnose(&seen);
        let row = line(&page, topic);
        assert_eq!((row.line.verdict, page.exit()), (verdict, exit), "{row:?}");
    }
}

#[test]
fn of_a_bad_unit_and_a_good_one_the_bad_ones_status_counts_in_either_order() {
    let document = |seen: &Facts| {
        let (gpus, runtime) = (crate::embedded::gpus().unwrap(), crate::embedded::runtime().unwrap());
        DoctorJson::of(seen, Wanted { gpus: &gpus, runtime: &runtime, expected: None }, &Invocation::default())
    };
    let good = examined("", &practice::open_image(), DoctorOptions::default());
    let bad = examined("behind = 'nothing'\n", &practice::open_image(), DoctorOptions::default());
    assert_eq!(worst(&[document(&bad), document(&good)]), Exit::CheckFailed);
    assert_eq!(worst(&[document(&good), document(&bad)]), Exit::CheckFailed);
    assert_eq!((worst(&[document(&good)]), worst(&[])), (Exit::Done, Exit::Done));
}

#[test]
fn the_page_of_a_report_has_no_command_because_it_would_be_for_another_host() {
    let (gpus, runtime) = (crate::embedded::gpus().unwrap(), crate::embedded::runtime().unwrap());
    let wanted = Wanted { gpus: &gpus, runtime: &runtime, expected: None };
    let mut steps = 0;
    for seen in faulty() {
        let document = of_report(&seen, wanted);
        for step in document.diagnosis.lines.iter().flat_map(|line| &line.steps) {
            assert_eq!((&step.command, step.applicability), (&None, Applicability::Hands), "{step:?}");
            steps += 1;
        }
    }
    assert!(steps > 0);
}

#[test]
fn a_unit_that_the_system_may_suspend_is_noted_with_the_firmware_for_which_it_matters() {
    let host = |names: &[&str]| HostState {
        may_sleep: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..HostState::default()
    };
    for (product, names, verdict, says) in [
        ("custom v0.1", &["3-1.2", "usb3"][..], Verdict::Note, "builds like this one"),
        ("custom ed4e39b7-CLEAN", &["3-1.2"][..], Verdict::Note, "before August 2026"),
        ("custom v0.1", &["3-1", "usb3"][..], Verdict::Good, "3-1, usb3 may sleep without it"),
        ("custom v0.1", &[][..], Verdict::Good, "keeps the unit and its hubs awake"),
    ] {
        let page = at_port(product, host(names));
        let suspend = line(&page, "suspend");
        assert!(suspend.line.verdict == verdict && suspend.line.found.contains(says), "{suspend:?}");
        assert!(page.runtime.is_some(), "{page:#?}");
        let advice = suspend.advice.as_deref().unwrap_or_default();
        assert_eq!(advice.contains("/sys/bus/usb/devices/3-1.2/power/control"), verdict == Verdict::Note, "{advice}");
    }
    // Only Linux reports it.
    assert!(at_port("custom v0.1", HostState::default()).lines.iter().all(|line| line.line.topic != "suspend"));
}

#[test]
fn the_governor_powersave_and_the_holder_of_a_runtimes_lock_are_only_noted() {
    let holder = Process { pid: 41, command: "python3\u{1b}[2J".to_owned() };
    let locks = vec![("/tmp/am_usb:3-7.lock".into(), holder)];
    let governors = vec!["performance".to_owned(), "powersave".to_owned()];
    let page = at_port("custom v0.1", HostState { governors, locks, ..HostState::default() });
    let (cpu, lock) = (line(&page, "CPU"), line(&page, "lock"));
    assert!(cpu.line.verdict == Verdict::Note && cpu.line.found.contains("powersave"), "{cpu:?}");
    assert!(lock.line.verdict == Verdict::Note && page.runtime.is_some(), "{page:#?}");
    assert!(lock.line.found.starts_with("process 41 (python3\\u{1b}[2J) holds /tmp/am_usb:3-7.lock"), "{lock:?}");
    let quiet = at_port("custom v0.1", HostState { governors: vec!["schedutil".to_owned()], ..HostState::default() });
    assert!(quiet.lines.iter().all(|line| !["CPU", "lock"].contains(&line.line.topic)), "{quiet:#?}");
}

#[test]
fn a_runtime_may_be_at_work_while_it_holds_its_lock_or_the_sram_waits() {
    let image = practice::open_image();
    let mut seen = examined("factory = \"open\"\n", &image, DoctorOptions::default());
    assert_eq!(doctor::at_work(&seen), None);
    seen.pipes = Asked::Is(PipeState::Busy(1));
    assert!(doctor::at_work(&seen).unwrap().contains("the SRAM's DMA waits"));
    let holder = Process { pid: 41, command: "python3".to_owned() };
    seen.host.locks = vec![("/tmp/am_usb:3-7.lock".into(), holder)];
    assert!(doctor::at_work(&seen).unwrap().starts_with("process 41 (python3) holds /tmp/am_usb:3-7.lock"));
}

#[test]
fn bulk_pipes_that_hang_while_control_requests_are_answered_are_named_with_the_reset() {
    let page = page("bulk-hangs = true\n", &practice::image(), DoctorOptions::default());
    let pipes = line(&page, "bulk pipes");
    assert_eq!((page.runtime, pipes.line.verdict), (None, Verdict::Bad), "{page:#?}");
    assert!(pipes.line.found.contains("answers control requests"), "{pipes:?}");
    assert!(pipes.advice.as_ref().unwrap().contains("asmpatch reset --device virtual:u"), "{pipes:?}");
}

#[test]
fn a_dead_unit_needs_power_and_the_page_says_how_its_firmware_dies() {
    for (image, known) in [(practice::image(), ["E2", "a READ after half"]), (practice::open_image(), ["F0", "(F0)"])] {
        let mut seen = examined("", &image, DoctorOptions::default());
        seen.pipes = Asked::Is(PipeState::Dead);
        let page = diagnose(&seen);
        let pipes = line(&page, "bulk pipes");
        assert!(
            page.runtime.is_none()
                && pipes.line.found.starts_with("the unit answers neither commands nor control requests"),
            "{page:#?}"
        );
        assert!(known.iter().all(|known| pipes.line.found.contains(known)), "{pipes:?}");
        assert!(pipes.advice.as_ref().unwrap().starts_with("only a power cycle helps"), "{pipes:?}");
    }
}

/// A unit whose flash was written since it started.
fn other_than_flashed() -> Facts {
    let mut seen = examined("", &practice::image(), DoctorOptions::default());
    let Asked::Is(contents) = &mut seen.contents else { panic!("{seen:#?}") };
    contents.runs.version = Some("231204.85.00.00".parse().unwrap());
    seen
}

/// Units whose page says what to do by hand.
fn faulty() -> Vec<Facts> {
    let examined = |scenario: &str, image: &Image| examined(scenario, image, DoctorOptions::default());
    let slow = |state: &str| examined(&format!("speed = 'high'\nstate = '{state}'\n"), &practice::image());
    let healthy = || examined("", &practice::open_image());
    let with = |change: &dyn Fn(&mut Facts)| {
        let mut seen = healthy();
        change(&mut seen);
        seen
    };
    let supply = |measured: Option<u16>, has_fault| {
        let measured = measured.map(|voltage_mv| SupplyMeasurement { voltage_mv, current_ma: 100 });
        with(&|seen| seen.supply = Asked::Is(Some(Supply { measured, has_fault: Some(has_fault) })))
    };
    let pipes = |pipes: PipeState| with(&|seen| seen.pipes = Asked::Is(pipes));
    vec![
        slow("auto"),
        slow("boot-loader"),
        examined("behind = 'nothing'\n", &practice::open_image()),
        other_than_flashed(),
        with(&|seen| seen.is_corrupt = true),
        pipes(PipeState::Hang),
        pipes(PipeState::Dead),
        pipes(PipeState::Busy(1)),
        supply(Some(12_000), true),
        supply(Some(300), false),
        supply(None, true),
        supply(Some(11_000), false),
    ]
}

fn advice(page: &WordedDiagnosis) -> Vec<&str> {
    page.lines.iter().filter_map(|line| line.advice.as_deref()).collect()
}

#[test]
fn a_virtual_unit_has_neither_cable_nor_supply() {
    for seen in faulty() {
        let page = diagnose(&seen);
        for advice in advice(&page) {
            assert!(!is_for_docks(advice), "{advice}");
        }
    }
}

#[test]
fn a_unit_in_its_boot_loader_needs_firmware() {
    let page = page("state = 'boot-loader'\n", &practice::image(), DoctorOptions::default());
    let firmware = line(&page, "firmware");
    assert_eq!((page.runtime, firmware.line.verdict), (None, Verdict::Bad));
    assert!(firmware.line.found.starts_with("the boot loader in ROM"), "{firmware:?}");
}

#[test]
fn an_ssd_is_not_disturbed() {
    let page = page("behind = { ssd = { bytes = 1048576 } }\n", &practice::image(), DoctorOptions::default());
    assert_eq!(line(&page, "PCIe link").line.verdict, Verdict::Unknown, "{page:#?}");
    assert_eq!(page.runtime, None);
}

#[test]
fn a_report_has_the_models_answers_beside_the_units_and_no_serial_number() {
    let options = DoctorOptions { no_write: true, compare: true };
    for image in [practice::image(), practice::open_image()] {
        let seen = examined("serial = 'SECRET77'\n", &image, options);
        assert!(seen.exchanges.len() >= 4, "{seen:#?}");
        for exchange in &seen.exchanges {
            assert_eq!(Some(&exchange.unit), exchange.model.as_ref(), "{}", exchange.question);
        }
        let text = report(&seen);
        assert!(!text.contains("SECRET77"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value["facts"]["descriptors"].as_str().unwrap().starts_with("12 01"), "{text}");
    }
}

fn report(seen: &Facts) -> String {
    Report::new(seen, Some("6.1-jane-obrien")).to_json()
}

#[test]
fn a_report_names_no_folder_program_mount_kernel_or_owner_however_hostile_the_names() {
    const OWNER: &str = "Jane O'Brien";
    let hostile = || Problem {
        code: "asmpatch::usb::busy".to_owned(),
        message: format!(
            "the unit at virtual:/home/{OWNER} is in use by {OWNER} (mounted at /media/{OWNER}/\u{1b}[2J)"
        ),
        named: vec![asm2464::Named::Mount(format!("/media/{OWNER}"))],
    };
    for image in [practice::image(), practice::open_image(), patched()] {
        let mut seen = examined("", &image, DoctorOptions { no_write: false, compare: true });
        seen.unit.location = Location::Virtual(format!("/home/{OWNER}").into());
        seen.unit.serial = Some(OWNER.to_owned());
        seen.unit.product = format!("{OWNER}'s dock");
        seen.unit.driver = Some(format!("{OWNER}-driver"));
        // The page advises commands with the folder in quotes.
        let page = serde_json::to_string(&diagnose(&seen)).unwrap();
        assert!(page.contains("O'\\\\''Brien") || seen.unit.state == BridgeState::OpenFirmware, "{page}");
        let before = report(&seen);
        seen.opened = Asked::Failed(hostile());
        (seen.contents, seen.pipes, seen.part_revision) =
            (Asked::Failed(hostile()), Asked::Failed(hostile()), Asked::Failed(hostile()));
        (seen.flash_part, seen.supply) = (Asked::Failed(hostile()), Asked::Failed(hostile()));
        (seen.link, seen.tree) = (Asked::Failed(hostile()), Asked::Failed(hostile()));
        seen.bench_failure = Some(hostile());
        let bay = Bay { lun: Lun::ZERO, capacity: None, is_not_ready: true, model: Some(OWNER.to_owned()) };
        seen.storage = Some(Storage { model: Some(OWNER.to_owned()), bays: vec![bay], ..Storage::default() });
        seen.host.disks = vec![BayDisk { lun: Lun::ZERO, name: OWNER.to_owned() }];
        let holder = Process { pid: 41, command: OWNER.to_owned() };
        seen.host.locks = vec![(format!("/home/{OWNER}/am_usb:3-7.lock").into(), holder)];
        for text in [&before, &report(&seen)] {
            let folded = text.to_lowercase();
            for private in ["jane", "brien", "/home", "/media", "\\u001b"] {
                assert!(!folded.contains(private), "{private}: {text}");
            }
        }
        assert!(report(&seen).contains("\"code\": \"asmpatch::usb::busy\""), "{}", report(&seen));
    }
}

#[test]
fn a_report_is_diagnosed_again_with_the_same_page_and_new_or_missing_facts_are_no_error() {
    let options = DoctorOptions { no_write: false, compare: true };
    let ssd = "behind = { ssd = { bytes = 1048576 } }\n";
    let units = [
        examined("", &patched(), options),
        examined(ssd, &practice::image(), options),
        examined("", &practice::open_image(), options),
        examined("bulk-hangs = 'power'\n", &practice::open_image(), options),
        examined("[[fault]]\nkind = 'timeout'\nopcode = 0xE4\nnth = 5\n", &practice::image(), options),
    ];
    for seen in units.into_iter().chain(faulty()) {
        let text = report(&seen);
        let again = Report::parse("report.json", &text).unwrap().facts;
        let page = |facts: &Facts| {
            let WordedDiagnosis { lines, runtime, because } = diagnose(facts);
            let verdicts: Vec<_> = lines.into_iter().map(|line| (line.line.topic, line.line.verdict)).collect();
            (verdicts, runtime, because)
        };
        assert_eq!(page(&again), page(&seen));
    }
    let text = report(&other_than_flashed());
    let later = text.replace("\"schema\": 7", "\"schema\": 8, \"weather\": {}").replace("\"tree\"", "\"forest\"");
    let facts = Report::parse("report.json", &later).unwrap().facts;
    assert!(facts.tree.is_not_asked());
    for (text, code) in [
        ("{\"schema\": 6, \"unit\": {}, \"diagnosis\": {}}", "asmpatch::doctor::old_report"),
        ("{\"schema\": 7}", "asmpatch::doctor::not_a_report"),
        ("{}", "asmpatch::doctor::not_a_report"),
        ("\0", "asmpatch::doctor::not_a_report"),
    ] {
        let error = Report::parse("report.json", text).unwrap_err();
        assert_eq!(asm2464::Coded::code(&error), code, "{text}");
    }
}

#[test]
fn firmware_whose_longest_e4_is_not_that_of_the_image_in_the_flash_is_another() {
    let mut seen = examined("", &practice::image(), DoctorOptions::default());
    let Asked::Is(contents) = &mut seen.contents else { panic!("{seen:#?}") };
    assert!(matches!(contents.running_firmware(), RunningFirmware::Flashed(_)), "{contents:#?}");
    contents.runs.e4_extension = Some(true);
    assert!(matches!(contents.running_firmware(), RunningFirmware::OtherThanFlashed(_)), "{contents:#?}");
    // What the unit didn't say contradicts nothing.
    contents.runs.e4_extension = None;
    assert!(matches!(contents.running_firmware(), RunningFirmware::Flashed(_)), "{contents:#?}");
}

#[test]
fn serial_numbers_that_tell_units_apart_are_hashed_and_the_boot_loaders_zeros_are_not() {
    assert_eq!(hashed("000000000000"), "000000000000");
    assert_eq!(hashed("A").len(), "sha256:".len() + 16);
    assert_ne!(hashed("A"), hashed("B"));
}

/// A stock dock at 3-1.2 with a GPU, which the kernel's driver has, on a machine that may suspend it.
fn stock_dock() -> Facts {
    let mut seen = examined("", &practice::image(), DoctorOptions::default());
    seen.unit.location = Location::Port("3-1.2".parse().unwrap());
    seen.unit.driver = Some("uas".into());
    seen.host.may_sleep = Some(vec!["3-1.2".into(), "3-1".into()]);
    seen
}

#[test]
fn the_page_of_a_usual_dock_fits_a_terminal_of_24_lines_and_80_columns() {
    let screen = |seen: &Facts, is_whole: bool| {
        let page = super::shown(&seen.unit, &diagnose(seen), is_whole);
        page.iter().map(|line| crate::cli::words::terminal::fold(line, 80)).collect::<Vec<_>>().join("\n")
    };
    // The last line is the prompt's.
    let fits = |screen: &str| screen.lines().count() < 24;
    for seen in [stock_dock(), examined("", &patched(), DoctorOptions::default()), with_gpu(0x1002, 0x744C, VGA)] {
        let short = screen(&seen, false);
        assert!(fits(&short), "{short}");
        let whole = screen(&seen, true);
        assert!(whole.contains("0xC8FF") && !short.contains("0xC8FF"), "{whole}");
    }
}

#[test]
fn devices_that_may_be_no_docks_leave_the_result_to_the_unit_beside_them() {
    let device = TunnelledDevice { name: "0-1".to_owned(), what: "Maker Disk".to_owned(), ..Default::default() };
    let tunnels = Tunnels { devices: vec![device], ..Tunnels::default() };
    let gpus = crate::embedded::gpus().unwrap();
    for (has_units, exit) in [(true, Exit::Done), (false, Exit::CheckFailed)] {
        let diagnosis = doctor::diagnose_tunnels(&tunnels, &gpus, None, has_units);
        let worded = WordedDiagnosis::of(diagnosis, &Invocation::default());
        let page = super::shown(&super::tunnels_heading(&tunnels, has_units), &worded, true);
        assert!(worded.exit() == exit && page.join("\n").contains("because of") != has_units, "{page:#?}");
        assert!(page[0].contains("perhaps no dock") == has_units, "{page:#?}");
    }
}

#[test]
fn a_report_goes_to_the_projects_form_and_nowhere_before_it_has_an_address() {
    assert_eq!(issue_form("https://github.com/_owner_/asmpatch"), None);
    let form = issue_form("https://github.com/owner/asmpatch").unwrap();
    assert_eq!(form, "https://github.com/owner/asmpatch/issues/new?template=dock.yml");
    let forms = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/ISSUE_TEMPLATE");
    assert!(!forms.exists() || forms.join("dock.yml").is_file(), "the form's name");
}
