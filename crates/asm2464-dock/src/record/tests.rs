//! Records of virtual units, replayed.

use asm2464::firmware::BridgeState;
use asm2464::scsi::XdataAddress;
use asm2464_chip::practice;
use asm2464_host::bridge::{Bridge, BusSpeed, Location, Port, Watch};
use asm2464_host::pcie::{EngineError, TlpEngine, VendorTlp};
use proptest::prelude::*;

use super::*;
use crate::virtual_unit::{Scenario, VirtualPort, VirtualUnit};

fn port(scenario: &str, image: &asm2464::firmware::Image) -> VirtualPort {
    let unit = VirtualUnit::in_memory(Scenario::parse(scenario).unwrap(), b"record", Some(&image.to_file()));
    VirtualPort::new("u", unit.unwrap())
}

/// What a replay reports about this unit.
fn replayed(port: &VirtualPort) -> UnitInfo {
    UnitInfo { location: Location::Replay("u".into()), ..port.info() }
}

/// The record of a unit that gets no requests.
fn silent() -> Record {
    recorded(port("", &practice::image()), |_| {})
}

/// Does this work with a virtual unit. Returns its record.
fn recorded(mut port: VirtualPort, work: impl FnOnce(&mut VirtualPort)) -> Record {
    let recorder = Recorder::default();
    let mut watch = Watch::default();
    watch.add(recorder.clone());
    port.watch(watch);
    let (unit, descriptors) = (replayed(&port), port.descriptors().unwrap());
    work(&mut port);
    Record::checked(unit, descriptors, recorder.openings().unwrap()).unwrap()
}

/// Makes requests to vendor firmware. Returns the answers as text.
fn ask(port: &mut dyn Port) -> String {
    let mut bridge = port.open().unwrap();
    let mut version = [0; 6];
    let inquiry = bridge.inquiry().map_err(|error| error.to_string());
    let read = bridge.xdata_read(XdataAddress::VERSION, &mut version).map_err(|error| error.to_string());
    let refused = bridge.xdata_read(XdataAddress::main(0xFFF0), &mut [0; 255]).map_err(|error| error.to_string());
    format!("{inquiry:?} {read:?} {version:?} {refused:?}")
}

/// Makes requests to open firmware. Returns the answers as text.
fn ask_open(port: &mut dyn Port) -> String {
    let mut bridge = port.open_control().unwrap();
    let mut memory = [0; 600];
    let read = bridge.xdata_read(XdataAddress::main(0x0700), &mut memory).map_err(|error| error.to_string());
    let supply = bridge.supply().map_err(|error| error.to_string());
    let written = bridge.sram_write(0, &[0x5A; 1024]).map_err(|error| error.to_string());
    format!("{read:?} {supply:?} {written:?} {:?}", bridge.reset_port())
}

#[test]
fn a_record_answers_as_the_unit_did_whatever_goes_wrong_on_the_wire() {
    let fault = |kind: &str| format!("[[fault]]\nkind = '{kind}'\nopcode = 0x12\n");
    let kinds = ["stall", "stall-status", "short-data", "bad-tag", "phase-error", "timeout", "disconnect"];
    let scenarios =
        kinds.map(fault).into_iter().chain(["", "bulk-hangs = true\n", "speed = 'high'\n"].map(str::to_owned));
    for scenario in scenarios {
        let mut seen = String::new();
        let record = recorded(port(&scenario, &practice::image()), |port| seen = ask(port));
        let mut replay = ReplayPort::new(record);
        assert_eq!(ask(&mut replay), seen, "{scenario}");
        assert!(replay.check().is_ok());
    }
}

#[test]
fn many_control_requests_in_flight_replay_too() {
    let mut seen = String::new();
    let record = recorded(port("", &practice::open_image()), |port| seen = ask_open(port));
    assert_eq!(ask_open(&mut ReplayPort::new(record)), seen);
}

#[test]
fn uas_with_its_streams_replays_over_uas() {
    let ask = |transport| {
        let mut bridge = Bridge::new(transport);
        let data: Vec<u8> = (0..64 * 1024).map(|at| (at / 512) as u8).collect();
        bridge.write16(0, &data).unwrap();
        let mut back = vec![0; data.len()];
        bridge.read16(0, &mut back).unwrap();
        assert_eq!(back, data);
        format!("{:?} {:?}", bridge.inquiry(), bridge.read16(1 << 40, &mut back))
    };
    let mut seen = String::new();
    let unit = port("behind = { ssd = { bytes = 1048576 } }", &practice::image());
    let record = recorded(unit, |port| seen = ask(port.uas().unwrap().unwrap()));
    let mut replay = ReplayPort::new(record);
    let transport = replay.transport().unwrap();
    assert_eq!(transport.kind(), asm2464::TransportKind::UasStreams);
    assert_eq!(ask(transport), seen);
}

#[test]
fn a_request_that_is_not_in_the_record_is_named_with_the_one_that_is_and_ends_the_replay() {
    let record = recorded(port("", &practice::image()), |port| {
        port.open().unwrap().inquiry().unwrap();
    });
    let mut replay = ReplayPort::new(record.clone());
    let error = replay.open().unwrap().read_capacity().unwrap_err();
    assert_eq!(asm2464::Coded::code(&error), "asm2464::replay::not_recorded");
    let text = error.to_string();
    assert!(text.contains("does not have the command READ CAPACITY"), "{text}");
    assert!(text.contains("its next request on that pipe is the command INQUIRY"), "{text}");
    assert!(text.contains("event 1 of opening 1"), "{text}");
    // Nothing else is answered, and the port says why.
    assert!(replay.check().unwrap_err().to_string().contains("READ CAPACITY"));
    assert!(replay.open().is_err());

    // A request after the opening's last one, and a request after the last opening.
    let mut replay = ReplayPort::new(record);
    let mut bridge = replay.open().unwrap();
    bridge.inquiry().unwrap();
    assert!(bridge.read_capacity().unwrap_err().to_string().contains("no further request"));
    drop(bridge);
    let mut replay = ReplayPort::new(silent());
    let error = replay.open().unwrap().inquiry().unwrap_err();
    assert!(error.to_string().contains("opened once more"), "{error}");
}

/// Plain memory of the practice images.
const MEMORY: XdataAddress = XdataAddress::main(0x5FF0);

/// Polls a byte of memory this many times, writes it, and polls it once more. Returns the last answer before the write,
/// and the one after it.
fn poll(unit: &mut dyn TlpEngine, times: usize) -> Result<[u8; 2], EngineError> {
    let mut found = [0xEE; 2];
    for _ in 0..times {
        unit.xdata_read(MEMORY, &mut found[..1])?;
    }
    unit.xdata_write(&[(MEMORY, 0x5A)])?;
    unit.xdata_read(MEMORY, &mut found[1..])?;
    Ok(found)
}

/// Records this work with a unit of each firmware, and checks the units that replay it.
fn over_both_firmwares(
    work: impl Fn(&mut dyn TlpEngine) -> Result<[u8; 2], EngineError>,
    mut check: impl FnMut(&mut dyn TlpEngine),
) {
    let vendor = recorded(port("", &practice::image()), |port| {
        let mut bridge = port.open().unwrap();
        work(&mut VendorTlp::new(&mut bridge)).unwrap();
    });
    let open = recorded(port("", &practice::open_image()), |port| {
        work(&mut port.open_control().unwrap()).unwrap();
    });
    check(&mut VendorTlp::new(&mut ReplayPort::new(vendor).open().unwrap()));
    check(&mut ReplayPort::new(open).open_control().unwrap());
}

#[test]
fn a_poll_may_come_more_or_less_often_than_it_was_recorded() {
    for times in [1, 2, 3, 4, 9] {
        over_both_firmwares(
            |unit| poll(unit, 3),
            |unit| {
                assert_eq!(poll(unit, times).unwrap(), [0, 0x5A], "{times}");
                // After the last request, too.
                let mut again = [0];
                unit.xdata_read(MEMORY, &mut again).unwrap();
                assert_eq!(again, [0x5A], "{times}");
            },
        );
    }
}

#[test]
fn two_alternating_polls_may_come_more_or_less_often_too() {
    let other = XdataAddress::VERSION;
    let both = |unit: &mut dyn TlpEngine, rounds| {
        let mut found = [0; 2];
        for _ in 0..rounds {
            unit.xdata_read(MEMORY, &mut found[..1])?;
            unit.xdata_read(other, &mut found[1..])?;
        }
        poll(unit, 0).map(|_| found)
    };
    for rounds in [1, 2, 3, 5] {
        over_both_firmwares(|unit| both(unit, 3), |unit| assert!(both(unit, rounds).is_ok(), "{rounds}"));
    }
}

#[test]
fn a_write_must_come_as_often_as_recorded_and_an_answer_before_it_is_not_repeated_after_it() {
    let refused = |result: Result<(), EngineError>| {
        assert!(result.as_ref().is_err_and(|error| error.to_string().contains("does not have")), "{result:?}");
    };
    let work = |unit: &mut dyn TlpEngine| {
        poll(unit, 2)?;
        unit.xdata_write(&[(MEMORY, 0x5B)])?;
        unit.xdata_write(&[(MEMORY, 0x5C)])?;
        Ok([0; 2])
    };
    // A write once more than recorded.
    over_both_firmwares(work, |unit| {
        work(unit).unwrap();
        refused(unit.xdata_write(&[(MEMORY, 0x5C)]));
    });
    // A recorded write left out.
    over_both_firmwares(work, |unit| {
        poll(unit, 2).unwrap();
        refused(unit.xdata_write(&[(MEMORY, 0x5C)]));
    });
    // A poll whose answer a write may have changed.
    over_both_firmwares(work, |unit| {
        work(unit).unwrap();
        refused(unit.xdata_read(MEMORY, &mut [0]));
    });
    // A poll that was never recorded.
    over_both_firmwares(work, |unit| {
        unit.xdata_read(MEMORY, &mut [0]).unwrap();
        refused(unit.xdata_read(MEMORY, &mut [0; 2]));
    });
}

#[test]
fn a_record_that_ends_within_a_command_ends_that_command_and_every_later_one() {
    let record = recorded(port("", &practice::image()), |port| {
        port.open().unwrap().inquiry().unwrap();
    });
    let Opening { alternate, streams, events } = record.openings()[0].clone();
    for count in 1..events.len() {
        let events = events[..count].to_vec();
        let cut = Record::checked(record.unit().clone(), Vec::new(), vec![Opening { alternate, streams, events }]);
        let mut replay = ReplayPort::new(cut.unwrap());
        let mut bridge = replay.open().unwrap();
        for _ in 0..3 {
            assert!(bridge.inquiry().is_err(), "{count}");
        }
    }
}

#[test]
fn an_opening_that_failed_fails_in_the_replay_too() {
    let mut replay = ReplayPort::new(silent().with_unopened(Some("asm2464::usb::busy".to_owned())));
    let error = replay.open().map(drop).unwrap_err();
    assert_eq!(asm2464::Coded::code(&error), "asm2464::replay::unopened");
    assert!(error.to_string().contains("asm2464::usb::busy"), "{error}");
}

#[test]
fn an_event_that_contradicts_those_before_it_is_refused() {
    let unit = replayed(&port("", &practice::image()));
    for (lines, why) in [
        (&["back 0 done 0"][..], "no such transfer is in flight"),
        (&["bulk 81 4", "back 0 done 4 00010203", "back 0 done 0"], "no such transfer is in flight"),
        (&["bulk 81 4", "back 0 done 5 0001020304"], "more than it has room for"),
        (&["bulk 81 4", "back 0 done 4 0001"], "more than it has room for"),
        (&["bulk 02 4 0001"], "another length"),
        (&["refused 0 gone"], "not in flight"),
        (&["bulk 81 4", "bulk 81 13", "refused 0 gone"], "not in flight"),
        (&["bulk 81 4", "refused 0 done"], "was not refused"),
        (&["control 40e5000000000200 00"], "another length"),
    ] {
        let events = lines.iter().map(|line| line.parse().unwrap()).collect();
        let refused = Record::checked(unit.clone(), Vec::new(), vec![Opening { events, ..Opening::default() }]);
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(why)), "{lines:?}: {refused:?}");
    }
    let events = vec!["bulk 81 16777216".parse().unwrap(); 17];
    let refused = Record::checked(unit, Vec::new(), vec![Opening { events, ..Opening::default() }]);
    assert!(matches!(refused, Err(RecordError::TooLarge { what: "bytes of data", .. })), "{refused:?}");
    assert!("bulk 81 16777217".parse::<Event>().is_err());
}

#[test]
fn data_are_bytes_runs_parts_of_the_flash_and_withheld_parts() {
    let data: Data = "0102+00*9+flash@2:3+withheld:4".parse().unwrap();
    assert_eq!(data.to_string(), "0102+00*9+flash@2:3+withheld:4");
    let mut bytes = [0xEE; 18];
    data.fill(&mut bytes, &[7, 8, 9, 10]);
    assert_eq!(bytes, [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 10, 0xFF, 0, 0, 0, 0]);
    bytes[16] = 0xAA;
    assert!(data.matches(&bytes, &[7, 8, 9, 10]), "what is withheld matches anything");
    bytes[11] = 0xAA;
    assert!(!data.matches(&bytes, &[7, 8, 9, 10]));
}

/// Checks that events are written as they are parsed, and that a record of them replays without a panic.
fn anything(unit: &UnitInfo, lines: &[String]) {
    let events: Vec<Event> = lines.iter().filter_map(|line| line.parse().ok()).collect();
    for event in &events {
        assert_eq!(event.to_string().parse::<Event>().as_ref(), Ok(event));
    }
    if let Ok(record) = Record::checked(unit.clone(), Vec::new(), vec![Opening { events, ..Opening::default() }]) {
        let mut replay = ReplayPort::new(record);
        if let Ok(mut bridge) = replay.open() {
            let _ = bridge.inquiry();
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_an_event_or_an_error(line in ".{0,60}") {
        if let Ok(event) = line.parse::<Event>() {
            prop_assert_eq!(event.to_string().parse::<Event>(), Ok(event));
        }
    }

    #[test]
    fn any_events_make_a_record_that_answers_or_says_what_is_wrong(
        lines in proptest::collection::vec(
            "(bulk (02 31( 00\\*31)?|81 (13|36))|refused [0-2] gone|back [0-3] (done|stall|cancelled|gone) (0|13|36)( (withheld:13|00\\*36))?|\
             clear-halt 8[13] (done|timeout)|mass-storage-reset stall|reset-port (done|gone))",
            0..24,
        )
    ) {
        let unit = UnitInfo {
            location: Location::Replay("u".into()),
            id: asm2464::firmware::UsbId::STOCK,
            state: BridgeState::Vendor,
            manufacturer: String::new(),
            product: String::new(),
            serial: None,
            speed: BusSpeed::Super,
            driver: None,
        };
        anything(&unit, &lines);
    }
}
