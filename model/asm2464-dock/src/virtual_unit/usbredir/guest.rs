//! A session of one usb-guest with its unit: requests in, answers out, without any I/O. A data packet goes to the unit, or
//! is kept until the unit answers.

use std::time::Duration;

use asm2464::Failure;
use asm2464::firmware::{BridgeState, UsbId};
use asm2464_host::bridge::{Endpoint, is_to_host};

use super::packets::{
    Bulk, ENDPOINT_SLOTS, MAX_DATA, Outbox, Parser, RedirCapabilities, RedirStatus, Request, Setup, slot,
};
use crate::virtual_unit::descriptors::{STREAMS, Setting};
use crate::virtual_unit::responder::Reply;
use crate::virtual_unit::unit::{ControlAnswer, VirtualUnit};

/// Events for the user who runs the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestEvent {
    /// The unit was plugged into the guest.
    Plugged {
        /// The unit's identity.
        id: UsbId,
        /// The unit's state.
        state: BridgeState,
    },
    /// The unit went away: a reset, a fault, or a power loss.
    Unplugged,
    /// The guest chose an alternate setting.
    Alternate(u8),
    /// The guest reset the port.
    PortReset,
    /// The guest's filter rejects the device.
    Refused,
}

/// Maximum number of unanswered control requests kept for the guest to cancel. Further ones are stalled.
const MOST_SILENT: usize = 16;

/// Plug state of a guest's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plug {
    /// The guest has not said hello.
    NoGuest,
    /// Unplugged.
    Out,
    /// Unplugged; the guest has not acknowledged it yet.
    OutUnacknowledged,
    /// Plugged in.
    In {
        /// [`VirtualUnit::attachments`] at that time.
        attachment: u64,
    },
}

/// A usb-guest's session with its unit, for one connection.
#[derive(Debug)]
pub struct GuestSession<'u> {
    unit: &'u mut VirtualUnit,
    parser: Parser,
    plug: Plug,
    configuration: u8,
    waiting: Vec<Waiting>,
    /// Control requests that the firmware has not answered.
    silent: Vec<(u64, Setup)>,
    /// The firmware works on the last of them. Any further request on endpoint 0 ends it.
    is_last_begun: bool,
    /// Buffers of answered packets, for reuse.
    spare: Vec<Vec<u8>>,
}

impl<'u> GuestSession<'u> {
    /// Creates a session that has sent nothing yet.
    pub fn new(unit: &'u mut VirtualUnit) -> Self {
        Self {
            unit,
            parser: Parser::default(),
            plug: Plug::NoGuest,
            configuration: 0,
            waiting: Vec::new(),
            silent: Vec::new(),
            is_last_begun: false,
            spare: Vec::new(),
        }
    }

    /// Whether the guest has said hello.
    pub fn is_greeted(&self) -> bool {
        self.plug != Plug::NoGuest
    }

    /// Processes the complete packets in `bytes` while `out` takes more. Returns the number of bytes processed.
    ///
    /// # Errors
    /// As for [`Parser::next`]: the connection can't continue.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        tell: &mut dyn FnMut(GuestEvent),
    ) -> Result<usize, Failure> {
        let mut used = 0;
        while out.takes_more()
            && let Some((request, len)) = self.parser.next(&bytes[used..])?
        {
            self.handle(request, out, tell);
            used += len;
        }
        let _ = self.settle(out, tell);
        Ok(used)
    }

    /// Does what has become possible as time passed. Returns whether it did anything.
    pub fn settle(&mut self, out: &mut Outbox, tell: &mut dyn FnMut(GuestEvent)) -> bool {
        let answered_late = self.answer_late(out);
        let answered = self.answer_waiting(out);
        self.follow_the_unit(out, tell) || answered || answered_late
    }

    /// Replugs the unit if another process asks for it.
    pub fn replug_where_asked(&mut self) {
        if self.unit.takes_replug_request() {
            self.unit.replug();
        }
    }

    /// Time until [`GuestSession::settle`] may do something without a packet from the guest. If this is `None`, call
    /// `settle` once more: the moment may just have passed.
    pub fn wake_in(&mut self) -> Option<Duration> {
        self.unit.wake_in()
    }

    fn handle(&mut self, request: Request<'_>, out: &mut Outbox, tell: &mut dyn FnMut(GuestEvent)) {
        if !matches!(request, Request::Bulk { .. }) {
            // Most of the others use endpoint 0, or end what the guest waits for.
            self.is_last_begun = false;
        }
        match request {
            Request::Hello => {
                out.agreed = self.parser.agreed.unwrap_or_default();
                self.plug = Plug::Out;
            }
            Request::DisconnectAck if self.plug == Plug::OutUnacknowledged => self.plug = Plug::Out,
            Request::FilterReject => tell(GuestEvent::Refused),
            // Sent before the guest saw the unit leave. The guest has dropped these requests, too.
            _ if !matches!(self.plug, Plug::In { .. }) => {}
            Request::Reset => {
                self.cancel_all(out);
                self.unit.bus_reset();
                self.configuration = 0;
                self.announce_alternate(out);
                tell(GuestEvent::PortReset);
            }
            Request::SetConfiguration { id, value } => {
                let status = if self.unit.set_configuration(value) {
                    self.cancel_all(out);
                    self.configuration = value;
                    self.announce_alternate(out);
                    RedirStatus::Success
                } else {
                    RedirStatus::Stall
                };
                out.configuration_status(id, status, self.configuration);
            }
            Request::GetConfiguration { id } => out.configuration_status(id, RedirStatus::Success, self.configuration),
            Request::SetAlternate { id, interface, alternate } => {
                let status = if interface == 0 && self.unit.set_alternate(alternate) {
                    self.cancel_all(out);
                    self.announce_alternate(out);
                    tell(GuestEvent::Alternate(alternate));
                    RedirStatus::Success
                } else {
                    RedirStatus::Stall
                };
                out.alternate_status(id, status, interface, self.unit.alternate());
            }
            Request::GetAlternate { id, interface } => {
                out.alternate_status(id, RedirStatus::Success, interface, self.unit.alternate());
            }
            Request::AllocStreams { id, endpoints, count } => {
                let status = if self.can_stream(endpoints) && count <= STREAMS.into() {
                    RedirStatus::Success
                } else {
                    RedirStatus::Stall
                };
                out.streams_status(id, endpoints, count, status);
            }
            Request::FreeStreams { id, endpoints } => out.streams_status(id, endpoints, 0, RedirStatus::Success),
            Request::Cancel { id } => {
                if let Some(at) = self.silent.iter().position(|(silent, _)| *silent == id) {
                    let (id, setup) = self.silent.remove(at);
                    out.control(id, &setup, RedirStatus::Cancelled, &[], 0);
                } else if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) {
                    let waiting = self.waiting.remove(at);
                    self.conclude(waiting, RedirStatus::Cancelled, out);
                }
            }
            Request::Control { id, setup, data } => self.control_request(id, &setup, data, out),
            Request::Bulk { id, bulk, data } => self.bulk(id, bulk, data, out),
            Request::DisconnectAck | Request::Other { .. } => {}
        }
    }

    fn control_request(&mut self, id: u64, setup: &Setup, data: &[u8], out: &mut Outbox) {
        match self.unit.control(setup.packet, data) {
            ControlAnswer::Done(back) => control_done(id, setup, back, data.len(), out),
            // The firmware may answer later. If it doesn't, the guest gives up by itself, and cancels.
            ControlAnswer::Silent if self.silent.len() < MOST_SILENT => {
                self.silent.push((id, *setup));
                self.is_last_begun = true;
            }
            ControlAnswer::Silent | ControlAnswer::Stall | ControlAnswer::Gone => {
                out.control(id, setup, RedirStatus::Stall, &[], 0);
            }
        }
    }

    /// Answers the control request that the firmware works on, if it has answered by now. Returns whether it has.
    fn answer_late(&mut self, out: &mut Outbox) -> bool {
        if !self.is_last_begun || !out.takes_more() {
            return false;
        }
        let Some(&(id, setup)) = self.silent.last() else { return false };
        match self.unit.control_reply(setup.packet) {
            ControlAnswer::Done(back) => control_done(id, &setup, back, setup.length(), out),
            ControlAnswer::Stall => out.control(id, &setup, RedirStatus::Stall, &[], 0),
            // A guest learns of a unit that is gone by itself.
            ControlAnswer::Silent | ControlAnswer::Gone => return false,
        }
        self.silent.pop();
        self.is_last_begun = false;
        true
    }

    /// Plugs and unplugs the unit in the guest as it comes and goes. Returns whether it did.
    fn follow_the_unit(&mut self, out: &mut Outbox, tell: &mut dyn FnMut(GuestEvent)) -> bool {
        // Polling brings back a unit whose time has come. The state then shows what has happened.
        self.unit.poll();
        let now = self.unit.is_attached().then(|| self.unit.attachments());
        let before = self.plug;
        if let Plug::In { attachment } = self.plug
            && now != Some(attachment)
        {
            self.waiting.clear();
            self.silent.clear();
            out.device_disconnect();
            let acknowledges =
                self.parser.agreed.is_some_and(|agreed| agreed.has(RedirCapabilities::DEVICE_DISCONNECT_ACK));
            self.plug = if acknowledges { Plug::OutUnacknowledged } else { Plug::Out };
            tell(GuestEvent::Unplugged);
        }
        if let (Plug::Out, Some(attachment)) = (self.plug, now) {
            self.configuration = 0;
            self.unit.set_configuration(0);
            self.announce_alternate(out);
            let descriptors = self.unit.descriptors();
            out.device_connect(descriptors);
            self.plug = Plug::In { attachment };
            tell(GuestEvent::Plugged { id: descriptors.identity.id, state: descriptors.state });
        }
        self.plug != before
    }

    fn setting(&mut self) -> Option<Setting> {
        let alternate = self.unit.alternate();
        self.unit.descriptors().setting(alternate)
    }

    /// Describes the selected alternate, which the guest must know before the answer that it is set.
    fn announce_alternate(&mut self, out: &mut Outbox) {
        let Some(setting) = self.setting() else { return };
        out.interface_info(setting.class);
        out.ep_info(&setting.pipes);
    }

    /// Whether all of these endpoints have streams in the selected alternate.
    fn can_stream(&mut self, endpoints: u32) -> bool {
        let mut mask = 0u32;
        if let Some(setting) = self.setting() {
            for pipe in setting.pipes {
                if pipe.streams > 0 {
                    mask |= 1 << slot(pipe.address);
                }
            }
        }
        endpoints & !mask == 0
    }
}

/// Answers a control request that succeeded. `sent` is the length of the data that the guest sent with it, if any.
fn control_done(id: u64, setup: &Setup, mut back: Vec<u8>, sent: usize, out: &mut Outbox) {
    back.truncate(setup.length());
    let moved = if setup.is_in() { back.len() } else { sent };
    out.control(id, setup, RedirStatus::Success, &back, moved as u16);
}

/// Maximum number of data packets that wait for the unit: more than any driver has in flight.
const MAX_WAITING: usize = 1024;
/// Maximum number of waiting bytes to the device: two packets of the greatest length.
const MAX_WAITING_DATA: usize = 2 * MAX_DATA;
/// Larger buffers are not kept for reuse.
const MAX_SPARE: usize = 1 << 20;

/// A data packet that the unit has not answered yet. On a real bus it answers NAK or NRDY meanwhile.
#[derive(Debug)]
struct Waiting {
    pub(super) id: u64,
    bulk: Bulk,
    endpoint: Endpoint,
    /// Data to the device, of which the unit has taken the first `moved` bytes; or the data received from it so far.
    data: Vec<u8>,
    pub(super) moved: usize,
}

impl GuestSession<'_> {
    pub(super) fn bulk(&mut self, id: u64, bulk: Bulk, data: &[u8], out: &mut Outbox) {
        let endpoint = match Endpoint::from_address(bulk.endpoint) {
            Some(endpoint) if self.unit.has(endpoint) && bulk.stream <= STREAMS.into() => endpoint,
            _ => return out.bulk(id, &bulk, RedirStatus::Invalid, 0),
        };
        let is_in = is_to_host(bulk.endpoint);
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
    fn answer_waiting(&mut self, out: &mut Outbox) -> bool {
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
        if is_to_host(bulk.endpoint) {
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

    fn conclude(&mut self, waiting: Waiting, status: RedirStatus, out: &mut Outbox) {
        out.bulk(waiting.id, &waiting.bulk, status, waiting.moved as u32);
        self.keep(waiting.data);
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if (1..=MAX_SPARE).contains(&buffer.capacity()) && self.spare.len() < usize::from(STREAMS) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    fn cancel_all(&mut self, out: &mut Outbox) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.conclude(waiting, RedirStatus::Cancelled, out);
        }
    }
}

/// Key of a pipe: the endpoint's slot and the stream's bit. Streams above 63 are rejected earlier.
fn key(bulk: &Bulk) -> (usize, u64) {
    (slot(bulk.endpoint), 1 << (bulk.stream & 63))
}
