//! A timeline of a run, as trace-event JSON for Perfetto's viewer and chrome://tracing.
//!
//! Time is simulated: clock cycles of the executed instructions, at the CPU's clock. While an idle firmware waits for a
//! timer, no instructions are executed: the skipped ones take as long as the timer. Engines take no time in the model
//! (docs/chip.md), so flash commands and packets are instants, and spans come from the firmware or the host.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asm2464::digest::to_hex;
use asm2464::firmware::FlashAddress;
use serde::Serialize;
use serde_json::{Value, json};

use super::calls::CallStack;
use crate::chip::{DmaEvent, UsbEvent, instruction_cycles, skipped_cycles};
use crate::mcu::{Observer, Step};

/// How many events are kept. Later ones are only counted.
const MOST: usize = 200_000;
const PROCESS: u32 = 1;

/// A row of the viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    Interrupts = 1,
    Control,
    BulkOut,
    BulkIn,
    CommandOut,
    StatusIn,
    Flash,
    Dma,
    Link,
}

impl Track {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Interrupts, "interrupts"),
        (Self::Control, "USB control"),
        (Self::BulkOut, "USB 0x02 out"),
        (Self::BulkIn, "USB 0x81 in"),
        (Self::CommandOut, "USB 0x04 command out"),
        (Self::StatusIn, "USB 0x83 status in"),
        (Self::Flash, "SPI flash"),
        (Self::Dma, "SRAM DMA"),
        (Self::Link, "USB link"),
    ];

    /// The category of its events.
    fn category(self) -> &'static str {
        match self {
            Self::Interrupts => "cpu",
            Self::Flash => "flash",
            Self::Dma => "dma",
            _ => "usb",
        }
    }

    fn of_endpoint(endpoint: u8) -> Self {
        match endpoint {
            crate::chip::DATA_OUT => Self::BulkOut,
            crate::chip::COMMAND_OUT => Self::CommandOut,
            crate::chip::STATUS_IN => Self::StatusIn,
            _ => Self::BulkIn,
        }
    }
}

/// One event, with the keys of the trace-event format.
#[derive(Debug, Clone, Serialize)]
struct TraceEvent {
    name: String,
    cat: &'static str,
    ph: &'static str,
    /// Clock cycles while recording, microseconds in the file.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: Value,
}

impl TraceEvent {
    fn new(ph: &'static str, track: Track, name: String, args: Value, now: u64) -> Self {
        let (cat, pid, tid, ts) = (track.category(), PROCESS, track as u32, now as f64);
        Self { name, cat, ph, ts, dur: None, pid, tid, s: None, id: None, args }
    }
}

#[derive(Debug, Default)]
struct TimelineRecording {
    events: Vec<TraceEvent>,
    dropped: u64,
    /// The span that has begun on a track.
    open: BTreeMap<Track, TraceEvent>,
    /// The DMA's running transfers, by direction, queue slot and stream.
    dma: BTreeMap<(bool, u8, u16), u64>,
    last_dma: u64,
}

impl TimelineRecording {
    fn put(&mut self, event: TraceEvent) {
        if self.events.len() < MOST {
            self.events.push(event);
        } else {
            self.dropped += 1;
        }
    }

    fn moment(&mut self, track: Track, name: String, args: Value, now: u64) {
        self.put(TraceEvent { s: Some("t"), ..TraceEvent::new("i", track, name, args, now) });
    }

    /// Records one end of a DMA transfer. Several transfers may run at once.
    fn dma_edge(&mut self, ph: &'static str, to_host: bool, id: u64, args: Value, now: u64) {
        let name = if to_host { "DMA to the host" } else { "DMA from the host" }.to_owned();
        self.put(TraceEvent { id: Some(id), ..TraceEvent::new(ph, Track::Dma, name, args, now) });
    }

    fn begin(&mut self, track: Track, name: String, args: Value, now: u64) {
        self.open.insert(track, TraceEvent::new("X", track, name, args, now));
    }

    /// Ends the track's span, if one has begun.
    fn end(&mut self, track: Track, now: u64) {
        if let Some(begun) = self.open.remove(&track) {
            self.put(TraceEvent { dur: Some((now as f64 - begun.ts).max(0.0)), ..begun });
        }
    }

    fn end_control(&mut self, outcome: &str, bytes: usize, now: u64) {
        if let Some(begun) = self.open.get_mut(&Track::Control) {
            begun.args["outcome"] = json!(outcome);
            begun.args["bytes"] = json!(bytes);
        }
        self.end(Track::Control, now);
    }

    fn end_dma(&mut self, key: (bool, u8, u16), now: u64) {
        if let Some(id) = self.dma.remove(&key) {
            self.dma_edge("e", key.0, id, Value::Null, now);
        }
    }
}

#[derive(Debug, Default)]
struct SharedTimeline {
    /// Simulated time, in clock cycles.
    now: AtomicU64,
    recording: Mutex<TimelineRecording>,
}

impl SharedTimeline {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn recording(&self) -> MutexGuard<'_, TimelineRecording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records a run. It observes each instruction for the time and the interrupts; its [`TimelineWatch`] observes the
/// blocks.
#[derive(Debug, Default)]
pub struct Timeline {
    shared: Arc<SharedTimeline>,
    stack: CallStack,
    depth: usize,
    cycles: u64,
    /// Simulated time before the last instruction, and the instruction's cycles.
    last: Option<(u64, u64)>,
}

impl Timeline {
    /// Returns the watch that passes events on to the timeline.
    pub fn watch(&self) -> TimelineWatch {
        TimelineWatch(Arc::clone(&self.shared))
    }

    /// Ends the open spans and returns the file's text. `clock_mhz` is the CPU's clock.
    pub fn finish(&mut self, clock_mhz: u32) -> String {
        let now = self.cycles + self.last.map_or(0, |(_, cycles)| cycles);
        let mut recording = self.shared.recording();
        recording.end(Track::Interrupts, now);
        recording.end_control("none", 0, now);
        recording.end(Track::Link, now);
        for key in recording.dma.keys().copied().collect::<Vec<_>>() {
            recording.end_dma(key, now);
        }
        let micros = |cycles: f64| (cycles * 1_000.0 / f64::from(clock_mhz.max(1))).round() / 1_000.0;
        let mut events = recording.events.clone();
        events.sort_by(|a, b| a.ts.total_cmp(&b.ts));
        for event in &mut events {
            event.ts = micros(event.ts);
            event.dur = event.dur.map(micros);
        }
        let named =
            |name, tid, args| json!({"name": name, "ph": "M", "ts": 0, "pid": PROCESS, "tid": tid, "args": args});
        let mut all = vec![named("process_name", 0, json!({"name": "ASM2464PD"}))];
        for (track, name) in Track::ALL {
            all.push(named("thread_name", track as u32, json!({"name": name})));
            all.push(named("thread_sort_index", track as u32, json!({"sort_index": track as u32})));
        }
        // Serialising plain data to JSON can't fail.
        all.extend(events.into_iter().filter_map(|event| serde_json::to_value(event).ok()));
        let other = json!({"clock_mhz": clock_mhz, "dropped": recording.dropped});
        json!({"displayTimeUnit": "ns", "otherData": other, "traceEvents": all}).to_string()
    }

    /// Returns how many events are missing in the file.
    pub fn dropped(&self) -> u64 {
        self.shared.recording().dropped
    }
}

impl Observer for Timeline {
    fn before(&mut self, step: &Step<'_>) {
        if let Some((then, cycles)) = self.last {
            let skipped = step.now.saturating_sub(then + 1);
            self.cycles += cycles + skipped_cycles(skipped);
        }
        self.last = Some((step.now, instruction_cycles(step.opcode)));
        self.shared.now.store(self.cycles, Ordering::Relaxed);
        let same = self.stack.step(step, |_| false);
        let depth = self.stack.frames().len();
        if same == self.depth && depth == self.depth {
            return;
        }
        self.depth = depth;
        let interrupt = self.stack.interrupt();
        // One interrupt may directly follow another.
        if interrupt.is_none_or(|frame| frame >= same) {
            let mut recording = self.shared.recording();
            recording.end(Track::Interrupts, self.cycles);
            if interrupt.is_some() {
                recording.begin(Track::Interrupts, "INT0".to_owned(), Value::Null, self.cycles);
            }
        }
    }
}

/// The timeline's side of a [`Watch`](crate::chip::Watch): call each method from the one with the same name.
#[derive(Debug, Clone)]
pub struct TimelineWatch(Arc<SharedTimeline>);

impl TimelineWatch {
    /// Records traffic on the wire.
    pub fn usb(&self, event: UsbEvent<'_>) {
        let now = self.0.now();
        let mut recording = self.0.recording();
        match event {
            UsbEvent::Setup { setup, .. } => {
                recording.end_control("given up", 0, now);
                let args = json!({"setup": to_hex(&setup, " ")});
                recording.begin(Track::Control, request_name(setup), args, now);
            }
            UsbEvent::ControlDone(data) => recording.end_control("done", data.len(), now),
            UsbEvent::ControlStall => recording.end_control("stall", 0, now),
            UsbEvent::Bulk { endpoint, stream, packet } => {
                let args = json!({"bytes": packet.len(), "stream": stream});
                let name = match packet {
                    [b'U', b'S', b'B', b'C', ..] if packet.len() == 31 => "CBW".to_owned(),
                    [b'U', b'S', b'B', b'S', ..] if packet.len() == 13 => "CSW".to_owned(),
                    _ => format!("{} bytes", packet.len()),
                };
                recording.moment(Track::of_endpoint(endpoint), name, args, now);
            }
            UsbEvent::Suspend => recording.begin(Track::Link, "suspended".to_owned(), Value::Null, now),
            UsbEvent::Resume => recording.end(Track::Link, now),
        }
    }

    /// Records a command to the flash.
    pub fn flash(&self, command: u8, at: FlashAddress, len: usize) {
        let name = match command {
            0x03 | 0x0B | 0x3B | 0x6B | 0xBB | 0xEB => "read",
            0x02 | 0x32 => "program",
            0x20 => "erase 4 KiB",
            0x52 => "erase 32 KiB",
            0xD8 => "erase 64 KiB",
            0x05 => "read status",
            0x01 => "write status",
            0x06 => "write enable",
            0x04 => "write disable",
            0x9F => "read ID",
            _ => "unknown command",
        };
        let args = json!({"command": format!("{command:#04x}"), "address": format!("{:#08x}", at.0), "bytes": len});
        self.0.recording().moment(Track::Flash, name.to_owned(), args, self.0.now());
    }

    /// Records that the SRAM's DMA began or ended a transfer.
    pub fn dma(&self, event: DmaEvent) {
        let now = self.0.now();
        let mut recording = self.0.recording();
        match event {
            DmaEvent::Started { to_host, queue_slot, stream, sram, len } => {
                recording.end_dma((to_host, queue_slot, stream), now);
                recording.last_dma += 1;
                let id = recording.last_dma;
                recording.dma.insert((to_host, queue_slot, stream), id);
                let args = json!({"bytes": len, "sram": format!("{sram:#07x}"), "slot": queue_slot, "stream": stream});
                recording.dma_edge("b", to_host, id, args, now);
            }
            DmaEvent::Ended { to_host, queue_slot, stream } => recording.end_dma((to_host, queue_slot, stream), now),
        }
    }
}

/// Returns a control request's name in the USB specification, if it has one.
fn request_name([kind, request, ..]: [u8; 8]) -> String {
    const STANDARD: [&str; 13] = [
        "GET_STATUS",
        "CLEAR_FEATURE",
        "request 0x02",
        "SET_FEATURE",
        "request 0x04",
        "SET_ADDRESS",
        "GET_DESCRIPTOR",
        "SET_DESCRIPTOR",
        "GET_CONFIGURATION",
        "SET_CONFIGURATION",
        "GET_INTERFACE",
        "SET_INTERFACE",
        "SYNCH_FRAME",
    ];
    match kind >> 5 & 3 {
        0 => STANDARD.get(usize::from(request)).map_or_else(|| format!("request {request:#04x}"), ToString::to_string),
        1 => format!("class {request:#04x}"),
        _ => format!("vendor {request:#04x}"),
    }
}
