//! A session of one usb-guest with its unit: requests in, answers out, without any I/O.

mod bulk;

use std::time::Duration;

use asm2464::firmware::{BridgeState, UsbId};
use bulk::Waiting;

use super::protocol::{Capabilities, RedirStatus, slot};
use super::reply::Outbox;
use super::request::{PacketError, Parser, Request, Setup};
use crate::virtual_unit::descriptors::{STREAMS, Setting};
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

/// A session of one connection.
#[derive(Debug)]
pub struct Session<'u> {
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

impl<'u> Session<'u> {
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
    /// [`PacketError`]: the connection can't continue.
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

    /// Time until [`Session::settle`] may do something without a packet from the guest. If this is `None`, call
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
            Request::Hello(_) => {
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
                let status = if interface == 0 && self.unit.set_alternate(alternate).is_ok() {
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
            Some(ControlAnswer::Done(back)) => control_done(id, setup, back, data.len(), out),
            // The firmware may answer later. If it doesn't, the guest gives up by itself, and cancels.
            Some(ControlAnswer::Silent) if self.silent.len() < MOST_SILENT => {
                self.silent.push((id, *setup));
                self.is_last_begun = true;
            }
            _ => out.control(id, setup, RedirStatus::Stall, &[], 0),
        }
    }

    /// Answers the control request that the firmware works on, if it has answered by now. Returns whether it has.
    fn answer_late(&mut self, out: &mut Outbox) -> bool {
        if !self.is_last_begun || !out.takes_more() {
            return false;
        }
        let Some(&(id, setup)) = self.silent.last() else { return false };
        match self.unit.control_reply(setup.packet) {
            Some(ControlAnswer::Done(back)) => control_done(id, &setup, back, setup.length(), out),
            Some(ControlAnswer::Stall) => out.control(id, &setup, RedirStatus::Stall, &[], 0),
            // A guest learns of a unit that is gone by itself.
            Some(ControlAnswer::Silent) | None => return false,
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
            let acknowledges = self.parser.agreed.is_some_and(|agreed| agreed.has(Capabilities::DEVICE_DISCONNECT_ACK));
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
        let setting = self.setting();
        let with_streams = setting.iter().flat_map(|setting| &setting.pipes).filter(|pipe| pipe.streams > 0);
        let mask = with_streams.fold(0, |mask, pipe| mask | 1u32 << slot(pipe.address));
        endpoints & !mask == 0
    }
}

/// Answers a control request that succeeded. `sent` is the length of the data that the guest sent with it, if any.
fn control_done(id: u64, setup: &Setup, mut back: Vec<u8>, sent: usize, out: &mut Outbox) {
    back.truncate(setup.length());
    let moved = if setup.is_in() { back.len() } else { sent };
    out.control(id, setup, RedirStatus::Success, &back, moved as u16);
}
