//! Records what goes through a unit's pipes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asm2464_host::bridge::{Monitor, Opened, PipeAction, PipeError, Submitted, Tap, TransferEnd, TransferId};

use super::event::{Data, End, Event};
use super::{MAX_BYTES, MAX_EVENTS, Opening};

/// Records a unit into memory, up to the limits of a record. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Recording>>);

#[derive(Debug, Default)]
struct Recording {
    openings: Vec<Opening>,
    events: usize,
    bytes: usize,
    is_full: bool,
}

impl Recorder {
    /// The openings so far; `None` if they are more than a record may have.
    pub fn openings(&self) -> Option<Vec<Opening>> {
        let recording = self.lock();
        (!recording.is_full).then(|| recording.openings.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Monitor for Recorder {
    fn opened(&self, opened: Opened<'_>) -> Box<dyn Tap> {
        let empty = Opening { alternate: opened.alternate, streams: opened.streams, events: Vec::new() };
        Box::new(RecorderTap { recorder: self.clone(), empty, at: None, submitted: 0, numbers: Vec::new() })
    }
}

struct RecorderTap {
    recorder: Recorder,
    /// The opening before its first event.
    empty: Opening,
    /// The opening's index in the recording, once it has an event.
    at: Option<usize>,
    /// How many transfers were submitted.
    submitted: usize,
    /// The number of each transfer in flight.
    numbers: Vec<Option<usize>>,
}

impl RecorderTap {
    fn push(&mut self, event: Event, bytes: usize) {
        let mut recording = self.recorder.lock();
        recording.events += 1;
        recording.bytes += bytes;
        recording.is_full |= recording.events > MAX_EVENTS || recording.bytes > MAX_BYTES;
        if recording.is_full {
            recording.openings.clear();
            return;
        }
        let at = *self.at.get_or_insert_with(|| {
            recording.openings.push(self.empty.clone());
            recording.openings.len() - 1
        });
        recording.openings[at].events.push(event);
    }
}

impl Tap for RecorderTap {
    fn submitted(&mut self, transfer: TransferId, submitted: Submitted<'_>) {
        self.numbers.resize(self.numbers.len().max(transfer.0 + 1), None);
        self.numbers[transfer.0] = Some(self.submitted);
        self.submitted += 1;
        let (event, bytes) = match submitted {
            Submitted::Bulk { endpoint, len, data } => (Event::Bulk { endpoint, len, data: Data::bytes(data) }, len),
            Submitted::Control { setup, data } => (Event::Control { setup, data: Data::bytes(data) }, data.len()),
        };
        self.push(event, bytes);
    }

    fn returned(&mut self, transfer: TransferId, end: &TransferEnd, moved: usize, data: &[u8]) {
        let Some(transfer) = self.numbers.get_mut(transfer.0).and_then(Option::take) else { return };
        self.push(Event::Returned { transfer, end: End::of(end), moved, data: Data::bytes(data) }, 0);
    }

    fn refused(&mut self, transfer: TransferId, error: &PipeError) {
        let Some(transfer) = self.numbers.get_mut(transfer.0).and_then(Option::take) else { return };
        self.push(Event::Refused { transfer, end: End::of_error(error) }, 0);
    }

    fn done(&mut self, action: PipeAction, outcome: &Result<(), PipeError>) {
        self.push(Event::Done { action, end: End::of_action(outcome) }, 0);
    }
}
