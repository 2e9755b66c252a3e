//! One usb-guest and the unit that it is given: requests in, answers out, without any I/O.

use std::time::Duration;

use super::control::{Answer, ControlState};
use super::protocol::{Capabilities, MAX_DATA, RedirStatus, slot};
use super::recorder::Recorder;
use super::reply::{DeviceConnect, EpInfo, Outbox};
use super::request::{Bulk, PacketError, Parser, Request, Setup};
use crate::bridge::Endpoint;
use crate::firmware::{BridgeState, UsbId};
use crate::pcap::{Bus, Urb};
use crate::virtual_bridge::{ControlAnswer, InReply, LinkSpeed, OutReply, STREAMS, VirtualBridge};

/// Data packets that can wait for the unit at once: more than any driver has in flight.
const MAX_WAITING: usize = 1024;
/// Bytes to the device that can wait: one packet of the greatest length, and as much beside it.
const MAX_WAITING_DATA: usize = 2 * MAX_DATA;
/// Larger buffers are not kept for packets to come.
const MAX_SPARE: usize = 1 << 20;

/// Events for the user who runs the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestEvent {
    /// The unit was plugged into the guest.
    Plugged {
        /// Its identity.
        id: UsbId,
        /// What runs on it.
        state: BridgeState,
    },
    /// The unit went away: a reset, a fault, a lost power.
    Unplugged,
    /// The guest chose an alternate setting.
    Alternate(u8),
    /// The guest reset the port.
    PortReset,
    /// The guest's filter refuses the device.
    Refused,
}

/// A data packet that the unit has not answered yet: on a real bus it answers NAK, or NRDY, until it does.
#[derive(Debug)]
struct Waiting {
    id: u64,
    bulk: Bulk,
    endpoint: Endpoint,
    /// Data to the device, of which the first `moved` bytes are taken; or what has come from it so far.
    data: Vec<u8>,
    moved: usize,
    /// Where the traffic is recorded.
    urb: Option<Urb>,
}

/// Control requests without an answer that are kept for the guest to cancel. A guest that sends more has them stalled.
const MOST_SILENT: usize = 16;

/// How a guest's unit is plugged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plug {
    /// The guest has not said hello.
    NoGuest,
    /// Not there.
    Out,
    /// Not there, and the guest has yet to acknowledge that.
    OutUnacknowledged,
    /// There.
    In {
        /// [`VirtualBridge::attachments`] at that time.
        attachment: u64,
    },
}

/// One connection.
#[derive(Debug)]
pub struct Session<'u> {
    unit: &'u mut VirtualBridge,
    parser: Parser,
    control: ControlState,
    plug: Plug,
    configuration: u8,
    waiting: Vec<Waiting>,
    /// The control requests that the firmware does not answer.
    silent: Vec<(u64, Setup)>,
    /// Buffers of packets that have been answered, for those to come.
    spare: Vec<Vec<u8>>,
    recorder: Recorder,
}

impl<'u> Session<'u> {
    /// A session that has said nothing yet.
    pub fn new(unit: &'u mut VirtualBridge) -> Self {
        Self {
            unit,
            parser: Parser::default(),
            control: ControlState::default(),
            plug: Plug::NoGuest,
            configuration: 0,
            waiting: Vec::new(),
            silent: Vec::new(),
            spare: Vec::new(),
            recorder: Recorder::default(),
        }
    }

    /// The same session, recorded as traffic on this bus.
    pub fn recorded(mut self, bus: Option<Bus>) -> Self {
        self.recorder = Recorder::new(bus);
        self
    }

    /// Whether the guest has said hello.
    pub fn is_greeted(&self) -> bool {
        self.plug != Plug::NoGuest
    }

    /// Works off every whole packet in `bytes`, as long as `out` takes more; returns the bytes that those took.
    ///
    /// # Errors
    /// [`PacketError`]: the connection is of no more use.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        tell: &mut dyn FnMut(GuestEvent),
    ) -> Result<usize, PacketError> {
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

    /// Does what has become possible by itself, as time passes. Returns whether that was anything.
    pub fn settle(&mut self, out: &mut Outbox, tell: &mut dyn FnMut(GuestEvent)) -> bool {
        let answered = self.answer_waiting(out);
        self.follow_the_unit(out, tell) || answered
    }

    /// Replugs the unit where another process asks for that.
    pub fn replug_where_asked(&mut self) {
        if self.unit.takes_replug_request() {
            self.unit.replug();
        }
    }

    /// How long until [`Session::settle`] may do something without a packet from the guest. It is called once more
    /// where this is `None`: the moment may just have passed.
    pub fn wake_in(&self) -> Option<Duration> {
        self.unit.wake_in()
    }

    fn handle(&mut self, request: Request<'_>, out: &mut Outbox, tell: &mut dyn FnMut(GuestEvent)) {
        match request {
            Request::Hello(_) => {
                out.set_agreed(self.parser.agreed().unwrap_or_default());
                self.plug = Plug::Out;
            }
            Request::DisconnectAck if self.plug == Plug::OutUnacknowledged => self.plug = Plug::Out,
            Request::FilterReject => tell(GuestEvent::Refused),
            // What was on its way when the unit went: the guest has dropped it too.
            _ if !matches!(self.plug, Plug::In { .. }) => {}
            Request::Reset => {
                self.cancel_all(out);
                self.unit.bus_reset();
                self.control = ControlState::default();
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
                self.recorder.set_configuration(value, status);
                out.configuration_status(id, status, self.configuration);
            }
            Request::GetConfiguration { id } => out.configuration_status(id, RedirStatus::Success, self.configuration),
            Request::SetAlternate { id, interface, alternate } => {
                let status = if interface == 0 && self.unit.set_alternate(alternate).is_ok() {
                    self.cancel_all(out);
                    self.announce_alternate(out);
                    tell(GuestEvent::Alternate(alternate));
                    RedirStatus::Success
                } else {
                    RedirStatus::Stall
                };
                self.recorder.set_interface(interface, alternate, status);
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
                    self.answer_control(id, &setup, RedirStatus::Cancelled, &[], &[], out);
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
        match self.unit.control(setup.to_bytes(), data) {
            Some(ControlAnswer::Done(mut bytes)) => {
                bytes.truncate(setup.length.into());
                return self.answer_control(id, setup, RedirStatus::Success, data, &bytes, out);
            }
            Some(ControlAnswer::Stall) => return self.answer_control(id, setup, RedirStatus::Stall, &[], &[], out),
            // Firmware that does not answer: the guest gives up by itself, and cancels.
            Some(ControlAnswer::Silent) if self.silent.len() < MOST_SILENT => return self.silent.push((id, *setup)),
            Some(ControlAnswer::Silent) => return self.answer_control(id, setup, RedirStatus::Stall, &[], &[], out),
            None => {}
        }
        let unit = &*self.unit;
        let is_halted = |endpoint| has(unit, endpoint).then(|| unit.is_halted(endpoint));
        let answer = self.control.decide(setup, unit.descriptors(), is_halted);
        let mut back = Vec::new();
        let mut status = RedirStatus::Success;
        match answer {
            Answer::Data(bytes) => {
                back = bytes;
                back.truncate(setup.length.into());
            }
            Answer::Accept => {}
            Answer::Halt(endpoint) => self.unit.halt(endpoint),
            Answer::ClearHalt(endpoint) => self.unit.clear_halt(endpoint),
            Answer::MassStorageReset if self.unit.mass_storage_reset() => {}
            Answer::MassStorageReset | Answer::Stall => status = RedirStatus::Stall,
        }
        self.answer_control(id, setup, status, data, &back, out);
    }

    /// `data` came from the guest, `back` goes to it.
    fn answer_control(&self, id: u64, setup: &Setup, status: RedirStatus, data: &[u8], back: &[u8], out: &mut Outbox) {
        let moved = match status {
            RedirStatus::Success if !setup.is_in() => data,
            _ => back,
        };
        self.recorder.control(setup, moved, status);
        out.control(id, setup, status, back, moved.len() as u16);
    }

    fn bulk(&mut self, id: u64, bulk: Bulk, data: &[u8], out: &mut Outbox) {
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
    fn answer_waiting(&mut self, out: &mut Outbox) -> bool {
        let at_first = self.waiting.len();
        loop {
            let before = self.progress();
            // One bit a stream, one word an endpoint: pipes whose first packet has to go on waiting.
            let mut blocked = [0u64; super::protocol::ENDPOINT_SLOTS];
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

    fn conclude(&mut self, waiting: Waiting, status: RedirStatus, out: &mut Outbox) {
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

    fn cancel_all(&mut self, out: &mut Outbox) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.conclude(waiting, RedirStatus::Cancelled, out);
        }
    }

    /// Plugs the unit in and out of the guest as it comes and goes. Returns whether it did.
    fn follow_the_unit(&mut self, out: &mut Outbox, tell: &mut dyn FnMut(GuestEvent)) -> bool {
        // Polling lets a unit come back whose time has come; what has happened shows in the state then.
        while self.unit.poll_event().is_some() {}
        let now = self.unit.is_attached().then(|| self.unit.attachments());
        let before = self.plug;
        if let Plug::In { attachment } = self.plug
            && now != Some(attachment)
        {
            for waiting in std::mem::take(&mut self.waiting) {
                self.recorder.ended(waiting.urb, RedirStatus::IoError, waiting.moved, &[]);
            }
            self.recorder.detached();
            self.silent.clear();
            out.device_disconnect();
            let acknowledges =
                self.parser.agreed().is_some_and(|agreed| agreed.has(Capabilities::DEVICE_DISCONNECT_ACK));
            self.plug = if acknowledges { Plug::OutUnacknowledged } else { Plug::Out };
            tell(GuestEvent::Unplugged);
        }
        if let (Plug::Out, Some(attachment)) = (self.plug, now) {
            self.control = ControlState::default();
            self.configuration = 0;
            self.unit.set_configuration(0);
            self.announce_alternate(out);
            let descriptors = self.unit.descriptors();
            let device = &descriptors.device;
            out.device_connect(&DeviceConnect {
                speed: match descriptors.speed {
                    LinkSpeed::High => 2,
                    LinkSpeed::Super => 3,
                },
                class: [device[4], device[5], device[6]],
                vendor: descriptors.identity.id.vendor,
                product: descriptors.identity.id.product,
                release: descriptors.identity.release,
            });
            self.plug = Plug::In { attachment };
            self.recorder.attached();
            tell(GuestEvent::Plugged { id: descriptors.identity.id, state: descriptors.state });
        }
        self.plug != before
    }

    /// Says what the selected alternate has, which the guest must know before it hears that it is set.
    fn announce_alternate(&self, out: &mut Outbox) {
        let Some(setting) = self.unit.descriptors().setting(self.unit.alternate()) else { return };
        out.interface_info(setting.class);
        let pipes: Vec<EpInfo> = setting
            .pipes
            .iter()
            .map(|pipe| EpInfo { address: pipe.address, max_packet: pipe.max_packet, max_streams: pipe.streams.into() })
            .collect();
        out.ep_info(&pipes);
    }

    /// Whether all of these endpoints have streams now.
    fn can_stream(&self, endpoints: u32) -> bool {
        let setting = self.unit.descriptors().setting(self.unit.alternate());
        let with_streams = setting.iter().flat_map(|setting| &setting.pipes).filter(|pipe| pipe.streams > 0);
        let mask = with_streams.fold(0, |mask, pipe| mask | 1u32 << slot(pipe.address));
        endpoints & !mask == 0
    }
}

/// Whether the selected alternate has this endpoint.
fn has(unit: &VirtualBridge, endpoint: Endpoint) -> bool {
    unit.alternate() == 1 || matches!(endpoint, Endpoint::DataIn | Endpoint::DataOut)
}

/// A pipe: the endpoint's slot, and its stream's bit. Streams above 63 are refused before they get here.
fn key(bulk: &Bulk) -> (usize, u64) {
    (slot(bulk.endpoint), 1 << (bulk.stream & 63))
}
