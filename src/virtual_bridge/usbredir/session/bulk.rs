//! A session's data packets: given to the unit, or kept until it answers.

use super::{Session, has};
use crate::bridge::Endpoint;
use crate::pcap::Urb;
use crate::virtual_bridge::usbredir::protocol::{ENDPOINT_SLOTS, MAX_DATA, RedirStatus, slot};
use crate::virtual_bridge::usbredir::reply::Outbox;
use crate::virtual_bridge::usbredir::request::Bulk;
use crate::virtual_bridge::{InReply, OutReply, STREAMS};

/// Data packets that can wait for the unit at once: more than any driver has in flight.
const MAX_WAITING: usize = 1024;
/// Bytes to the device that can wait: one packet of the greatest length, and as much beside it.
const MAX_WAITING_DATA: usize = 2 * MAX_DATA;
/// Larger buffers are not kept for packets to come.
const MAX_SPARE: usize = 1 << 20;

/// A data packet that the unit has not answered yet: on a real bus it answers NAK, or NRDY, until it does.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: u64,
    bulk: Bulk,
    endpoint: Endpoint,
    /// Data to the device, of which the first `moved` bytes are taken; or what has come from it so far.
    data: Vec<u8>,
    pub(super) moved: usize,
    /// Where the traffic is recorded.
    pub(super) urb: Option<Urb>,
}

impl Session<'_> {
    pub(super) fn bulk(&mut self, id: u64, bulk: Bulk, data: &[u8], out: &mut Outbox) {
        let urb = self.recorder.submitted(&bulk, data);
        let endpoint = match Endpoint::from_address(bulk.endpoint) {
            Some(endpoint) if has(self.unit, endpoint) && bulk.stream <= STREAMS.into() => endpoint,
            _ => {
                self.recorder.ended(urb, RedirStatus::Invalid, 0, &[]);
                return out.bulk(id, &bulk, RedirStatus::Invalid, 0);
            }
        };
        let is_in = bulk.endpoint & 0x80 != 0;
        let must_queue = is_in || self.waiting.iter().any(|other| key(&other.bulk) == key(&bulk));
        let (moved, status) = if must_queue { (0, None) } else { self.give(endpoint, bulk.stream, data) };
        match status {
            Some(status) => {
                self.recorder.ended(urb, status, moved, &[]);
                out.bulk(id, &bulk, status, moved as u32);
            }
            // As a host system that has no memory left for a transfer.
            None if !self.has_room_for(data) => {
                self.recorder.ended(urb, RedirStatus::IoError, moved, &[]);
                out.bulk(id, &bulk, RedirStatus::IoError, moved as u32);
            }
            None => {
                let mut buffer = if is_in { Vec::new() } else { self.spare.pop().unwrap_or_default() };
                buffer.extend_from_slice(data);
                self.waiting.push(Waiting { id, bulk, endpoint, data: buffer, moved, urb });
            }
        }
    }

    fn has_room_for(&self, data: &[u8]) -> bool {
        let held: usize = self.waiting.iter().map(|waiting| waiting.data.len()).sum();
        self.waiting.len() < MAX_WAITING && held + data.len() <= MAX_WAITING_DATA
    }

    /// Gives data to the unit until it has all, or stalls (a status), or wants no more for now (none).
    fn give(&mut self, endpoint: Endpoint, stream: u32, data: &[u8]) -> (usize, Option<RedirStatus>) {
        let mut moved = 0;
        loop {
            match self.unit.bulk_out(endpoint, stream as u16, &data[moved..]) {
                OutReply::Accepted(count) => {
                    moved += count;
                    if moved >= data.len() {
                        return (moved, Some(RedirStatus::Success));
                    }
                    if count == 0 {
                        return (moved, None);
                    }
                }
                OutReply::Stall => return (moved, Some(RedirStatus::Stall)),
                // A unit that is gone answers nothing any more; the guest hears of that by itself.
                OutReply::Silent | OutReply::Gone => return (moved, None),
            }
        }
    }

    /// Tries the packets that wait, in their order on each pipe, until none of them can be answered. Returns whether any
    /// was.
    pub(super) fn answer_waiting(&mut self, out: &mut Outbox) -> bool {
        let at_first = self.waiting.len();
        loop {
            let before = self.progress();
            // One bit a stream, one word an endpoint: pipes whose first packet has to go on waiting.
            let mut blocked = [0u64; ENDPOINT_SLOTS];
            let mut at = 0;
            while at < self.waiting.len() {
                let (slot, bit) = key(&self.waiting[at].bulk);
                if blocked[slot] & bit == 0 && self.try_answer(at, out) {
                    continue;
                }
                blocked[slot] |= bit;
                at += 1;
            }
            // A packet of one pipe may be what the unit waits for before it goes on with another.
            if self.progress() == before {
                return self.waiting.len() < at_first;
            }
        }
    }

    /// Changes with every packet that is answered and with every byte that moves: the number of those that wait, and the
    /// bytes that they have and had moved.
    fn progress(&self) -> (usize, usize) {
        (self.waiting.len(), self.waiting.iter().map(|waiting| waiting.data.len() + waiting.moved).sum())
    }

    /// Tries one packet that waits; when it is answered it is taken off the list.
    fn try_answer(&mut self, at: usize, out: &mut Outbox) -> bool {
        if !out.takes_more() {
            return false;
        }
        let Waiting { id, bulk, endpoint, urb, .. } = self.waiting[at];
        let stream = bulk.stream as u16;
        if bulk.endpoint & 0x80 != 0 {
            let (unit, recorder) = (&mut *self.unit, &self.recorder);
            let part = &mut self.waiting[at].data;
            let answered = out.bulk_in(id, &bulk, |buffer| {
                let (before, rest) = buffer.split_at_mut_checked(part.len())?;
                before.copy_from_slice(part);
                let (status, count) = match unit.bulk_in(endpoint, stream, rest) {
                    InReply::Data(count) => (RedirStatus::Success, part.len() + count),
                    InReply::Babble(count) => (RedirStatus::Babble, part.len() + count),
                    InReply::Stall => (RedirStatus::Stall, part.len()),
                    InReply::Part(count) => {
                        part.extend_from_slice(&rest[..count]);
                        return None;
                    }
                    InReply::Silent | InReply::Gone => return None,
                };
                recorder.ended(urb, status, count, &buffer[..count]);
                Some((status, count))
            });
            if answered {
                self.waiting.remove(at);
            }
            answered
        } else {
            let data = std::mem::take(&mut self.waiting[at].data);
            let from = self.waiting[at].moved;
            let (count, status) = self.give(endpoint, bulk.stream, &data[from..]);
            let waiting = &mut self.waiting[at];
            waiting.data = data;
            waiting.moved += count;
            match status {
                Some(status) => {
                    let waiting = self.waiting.remove(at);
                    self.conclude(waiting, status, out);
                    true
                }
                None => false,
            }
        }
    }

    pub(super) fn conclude(&mut self, waiting: Waiting, status: RedirStatus, out: &mut Outbox) {
        self.recorder.ended(waiting.urb, status, waiting.moved, &[]);
        out.bulk(waiting.id, &waiting.bulk, status, waiting.moved as u32);
        self.keep(waiting.data);
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if (1..=MAX_SPARE).contains(&buffer.capacity()) && self.spare.len() < usize::from(STREAMS) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    pub(super) fn cancel_all(&mut self, out: &mut Outbox) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.conclude(waiting, RedirStatus::Cancelled, out);
        }
    }
}

/// A pipe: the endpoint's slot, and its stream's bit. Streams above 63 are refused before they get here.
fn key(bulk: &Bulk) -> (usize, u64) {
    (slot(bulk.endpoint), 1 << (bulk.stream & 63))
}
