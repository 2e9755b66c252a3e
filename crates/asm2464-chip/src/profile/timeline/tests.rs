//! Tests of timelines against the rules of the format.

use std::collections::BTreeMap;

use super::*;
use crate::chip::{Chip, Data, Driver, Outcome, Speed, Watch};
use crate::mcu::{CodeSpace, MemoryFlash};
use crate::practice;

struct Eyes(TimelineWatch);

impl Watch for Eyes {
    fn usb(&mut self, _now: u64, event: UsbEvent<'_>) {
        self.0.usb(event);
    }

    fn flash(&mut self, command: u8, at: FlashAddress, len: usize) {
        self.0.flash(command, at, len);
    }

    fn dma(&mut self, event: DmaEvent) {
        self.0.dma(event);
    }
}

/// Checks what the format requires of every event. Source: the trace-event format's document, "Event Descriptions".
fn check(document: &Value) {
    let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
    let mut last = 0.0;
    for event in document["traceEvents"].as_array().unwrap() {
        let phase = event["ph"].as_str().unwrap();
        assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        let ts = event["ts"].as_f64().unwrap();
        match phase {
            "M" => {
                assert!(event["args"].is_object(), "{event}");
                continue;
            }
            "X" => assert!(event["dur"].as_f64().unwrap() >= 0.0, "{event}"),
            "i" => assert!(matches!(event["s"].as_str(), Some("t" | "p" | "g")), "{event}"),
            "b" | "e" => {
                let id = event["id"].as_u64().unwrap();
                *begun.entry(id).or_default() += if phase == "b" { 1 } else { 1 << 32 };
            }
            other => panic!("phase {other}"),
        }
        assert!(event["cat"].is_string(), "{event}");
        assert!(ts >= last, "{event}: events are in the order of their time");
        last = ts;
    }
    assert!(begun.values().all(|edges| *edges == 1 | 1 << 32), "each transfer begins once and ends once: {begun:?}");
}

#[test]
fn a_run_has_interrupts_packets_and_flash_commands_on_tracks_of_their_own_in_simulated_time() {
    let image = practice::image();
    let mut timeline = Timeline::default();
    let mut chip = Chip::power_on(CodeSpace::new(&image), MemoryFlash::erased(), Speed::Super);
    chip.set_watch(Some(Box::new(Eyes(timeline.watch()))));
    let timeline = Arc::new(Mutex::new(std::mem::take(&mut timeline)));
    let mut driver = Driver::new(chip);
    let observer = Arc::clone(&timeline);
    driver.set_runner(move |chip, budget| chip.run_observed(budget, &mut *observer.lock().unwrap()));
    driver.enumerate().unwrap();
    // E0 reads the flash.
    driver.bulk_only(&[0xE0, 0x50, 0, 0, 0, 0], Data::In(128)).unwrap();
    driver.chip.suspend();
    driver.settle();
    driver.chip.resume();
    driver.settle();
    let text = timeline.lock().unwrap().finish(114);
    let document: Value = serde_json::from_str(&text).unwrap();
    check(&document);
    let events = document["traceEvents"].as_array().unwrap();
    let on = |track: Track| {
        let is_on = |event: &&Value| event["tid"] == track as u32 && event["ph"] != "M";
        events.iter().filter(is_on).map(|event| event["name"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(on(Track::Control), ["GET_DESCRIPTOR", "SET_ADDRESS", "GET_DESCRIPTOR", "SET_CONFIGURATION"]);
    assert_eq!(on(Track::BulkOut), ["CBW"]);
    assert_eq!(on(Track::BulkIn), ["128 bytes", "CSW"]);
    assert!(on(Track::Flash).contains(&"read"));
    assert_eq!(on(Track::Link), ["suspended"]);
    assert!(on(Track::Interrupts).iter().all(|name| *name == "INT0"));
    assert!(on(Track::Interrupts).len() > 4, "{:?}", on(Track::Interrupts));
    assert_eq!(document["otherData"]["dropped"], 0);
}

/// Waits for TIMER0: 200 counts of unit 4, which is 0.5 ms.
const WAITS_100_MS: [u8; 26] = [
    0x90, 0xCC, 0x10, 0x74, 0x04, 0xF0, 0xA3, 0xA3, 0xE4, 0xF0, 0xA3, 0x74, 0xC8, 0xF0, 0x90, 0xCC, 0x11, 0x74, 0x01,
    0xF0, 0xE0, 0x30, 0xE1, 0xFC, 0x80, 0xFE,
];

#[test]
fn a_firmware_that_waits_for_a_timer_waits_as_long_in_the_file() {
    let mut timeline = Timeline::default();
    let watch = timeline.watch();
    let mut chip = Chip::power_on(CodeSpace::from_body(&WAITS_100_MS), MemoryFlash::erased(), Speed::Super);
    assert_eq!(chip.run_observed(100_000_000, &mut timeline), Outcome::Halted);
    watch.flash(0x05, FlashAddress(0), 1);
    let document: Value = serde_json::from_str(&timeline.finish(114)).unwrap();
    let event = document["traceEvents"].as_array().unwrap().iter().find(|event| event["ph"] != "M").unwrap();
    let micros = event["ts"].as_f64().unwrap();
    assert!((micros - 100_000.0).abs() < 1_000.0, "{micros}");
}

#[test]
fn transfers_of_the_dma_are_spans_that_all_end() {
    let timeline = Timeline::default();
    let watch = timeline.watch();
    let started = |queue_slot| DmaEvent::Started { to_host: true, queue_slot, stream: 1, sram: 0x4000, len: 512 };
    watch.dma(started(1));
    watch.dma(started(2));
    watch.dma(DmaEvent::Ended { to_host: true, queue_slot: 2, stream: 1 });
    watch.dma(started(1));
    let text = { timeline }.finish(114);
    let document: Value = serde_json::from_str(&text).unwrap();
    check(&document);
    let dma = document["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == "dma").count();
    assert_eq!(dma, 6);
}

#[test]
fn a_flood_of_events_is_counted_and_not_kept() {
    let mut timeline = Timeline::default();
    let watch = timeline.watch();
    for _ in 0..MOST + 5 {
        watch.flash(0x05, FlashAddress(0), 1);
    }
    assert_eq!(timeline.dropped(), 5);
    let document: Value = serde_json::from_str(&timeline.finish(114)).unwrap();
    assert_eq!(document["otherData"]["dropped"], 5);
}
