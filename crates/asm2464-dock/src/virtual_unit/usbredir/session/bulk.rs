//! A session's data packets: passed to the unit, or kept until it answers.

use asm2464_host::bridge::Endpoint;

use super::Session;
use crate::virtual_unit::descriptors::STREAMS;
use crate::virtual_unit::responder::Reply;
use crate::virtual_unit::usbredir::protocol::{ENDPOINT_SLOTS, MAX_DATA, RedirStatus, slot};
use crate::virtual_unit::usbredir::reply::Outbox;
use crate::virtual_unit::usbredir::request::Bulk;

/// Maximum number of data packets that wait for the unit: more than any driver has in flight.
const MAX_WAITING: usize = 1024;
/// Maximum number of waiting bytes to the device: two packets of the greatest length.
const MAX_WAITING_DATA: usize = 2 * MAX_DATA;
/// Larger buffers are not kept for reuse.
const MAX_SPARE: usize = 1 << 20;

/// A data packet that the unit has not answered yet. On a real bus it answers NAK or NRDY meanwhile.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: u64,
    bulk: Bulk,
    endpoint: Endpoint,
    /// Data to the device, of which the unit has taken the first `moved` bytes; or the data received from it so far.
    data: Vec<u8>,
    pub(super) moved: usize,
}

impl Session<'_> {
    pub(super) fn bulk(&mut self, id: u64, bulk: Bulk, data: &[u8], out: &mut Outbox) {
        let endpoint = match Endpoint::from_address(bulk.endpoint) {
            Some(endpoint) if self.unit.has(endpoint) && bulk.stream <= STREAMS.into() => endpoint,
            _ => return out.bulk(id, &bulk, RedirStatus::Invalid, 0),
        };
        let is_in = bulk.endpoint & 0x80 != 0;
        let must_queue = is_in || self.waiting.iter().any(|other| key(&other.bulk) == key(&bulk));
        let (moved, status) = if must_queue { (0, None) } else { self.give(endpoint, bulk.stream, data) };
        match status {
            Some(status) => out.bulk(id, &bulk, status, moved as u32),
            // A host system without memory for a transfer answers the same.
            None if !self.has_room_for(data) => out.bulk(id, &bulk, RedirStatus::IoError, moved as u32),
            None => {
                let mut buffer = if is_in { Vec::new() } else { self.spare.pop().unwrap_or_default() };
                buffer.extend_from_slice(data);
                self.waiting.push(Waiting { id, bulk, endpoint, data: buffer, moved });
            }
        }
    }

    fn has_room_for(&self, data: &[u8]) -> bool {
        let held: usize = self.waiting.iter().map(|waiting| waiting.data.len()).sum();
        self.waiting.len() < MAX_WAITING && held + data.len() <= MAX_WAITING_DATA
    }

    /// Gives data to the unit until it has all, stalls (a status), or takes no more for now (`None`).
    fn give(&mut self, endpoint: Endpoint, stream: u32, data: &[u8]) -> (usize, Option<RedirStatus>) {
        let mut moved = 0;
        loop {
            match self.unit.bulk_out(endpoint, stream as u16, &data[moved..]) {
                Reply::Done(count) => return (moved + count, Some(RedirStatus::Success)),
                // A unit that is gone answers nothing. The guest learns of that separately.
                Reply::Part(0) | Reply::Silent | Reply::Gone => return (moved, None),
                Reply::Part(count) => moved += count,
                Reply::Stall | Reply::Babble(_) => return (moved, Some(RedirStatus::Stall)),
            }
        }
    }

    /// Retries the waiting packets, in their order on each pipe, until none can be answered. Returns whether any was.
    pub(super) fn answer_waiting(&mut self, out: &mut Outbox) -> bool {
        let at_first = self.waiting.len();
        loop {
            let before = self.progress();
            // One bit for each stream, one word for each endpoint: pipes whose first packet has to wait.
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
            // The unit may need a packet of one pipe before it continues with another.
            if self.progress() == before {
                return self.waiting.len() < at_first;
            }
        }
    }

    /// A value that changes with every answered packet and every moved byte: the number of waiting packets, and the
    /// bytes that they hold and have moved.
    fn progress(&self) -> (usize, usize) {
        (self.waiting.len(), self.waiting.iter().map(|waiting| waiting.data.len() + waiting.moved).sum())
    }

    /// Tries one waiting packet. Removes it from the list once it is answered.
    fn try_answer(&mut self, at: usize, out: &mut Outbox) -> bool {
        if !out.takes_more() {
            return false;
        }
        let Waiting { id, bulk, endpoint, .. } = self.waiting[at];
        let stream = bulk.stream as u16;
        if bulk.endpoint & 0x80 != 0 {
            let unit = &mut *self.unit;
            let part = &mut self.waiting[at].data;
            let answered = out.bulk_in(id, &bulk, |buffer| {
                let (before, rest) = buffer.split_at_mut_checked(part.len())?;
                before.copy_from_slice(part);
                let (status, count) = match unit.bulk_in(endpoint, stream, rest) {
                    Reply::Done(count) => (RedirStatus::Success, part.len() + count),
                    Reply::Babble(count) => (RedirStatus::Babble, part.len() + count),
                    Reply::Stall => (RedirStatus::Stall, part.len()),
                    Reply::Part(count) => {
                        part.extend_from_slice(&rest[..count]);
                        return None;
                    }
                    Reply::Silent | Reply::Gone => return None,
                };
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

/// Key of a pipe: the endpoint's slot and the stream's bit. Streams above 63 are rejected earlier.
fn key(bulk: &Bulk) -> (usize, u64) {
    (slot(bulk.endpoint), 1 << (bulk.stream & 63))
}
