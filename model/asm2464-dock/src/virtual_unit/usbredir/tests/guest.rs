//! A guest for tests that encodes and decodes packets by hand.

use crate::virtual_unit::VirtualUnit;
use crate::virtual_unit::usbredir::guest::{GuestEvent, GuestSession};
use crate::virtual_unit::usbredir::packets::{Outbox, RedirCapabilities};

pub(super) mod kind {
    pub(in super::super) const HELLO: u32 = 0;
    pub(in super::super) const DEVICE_CONNECT: u32 = 1;
    pub(in super::super) const DEVICE_DISCONNECT: u32 = 2;
    pub(in super::super) const RESET: u32 = 3;
    pub(in super::super) const INTERFACE_INFO: u32 = 4;
    pub(in super::super) const EP_INFO: u32 = 5;
    pub(in super::super) const SET_CONFIGURATION: u32 = 6;
    pub(in super::super) const SET_ALT_SETTING: u32 = 9;
    pub(in super::super) const ALT_SETTING_STATUS: u32 = 11;
    pub(in super::super) const CANCEL: u32 = 21;
    pub(in super::super) const DISCONNECT_ACK: u32 = 24;
    pub(in super::super) const CONTROL: u32 = 100;
    pub(in super::super) const BULK: u32 = 101;
}

/// A packet: type, id, body.
pub(super) type Packet = (u32, u64, Vec<u8>);

pub(super) fn packet(kind: u32, id: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), (body.len() as u32).to_le_bytes()].concat();
    bytes.extend(id.to_le_bytes());
    bytes.extend(body);
    bytes
}

pub(super) fn hello() -> Vec<u8> {
    let mut bytes = [kind::HELLO.to_le_bytes(), 68u32.to_le_bytes(), [0; 4]].concat();
    bytes.extend([0; 64]);
    bytes.extend(RedirCapabilities::OURS.0.to_le_bytes());
    bytes
}

pub(super) fn bulk(id: u64, endpoint: u8, stream: u32, length: u32, data: &[u8]) -> Vec<u8> {
    let [b0, b1, b2, b3] = length.to_le_bytes();
    let mut body = vec![endpoint, 0, b0, b1];
    body.extend(stream.to_le_bytes());
    body.extend([b2, b3]);
    body.extend(data);
    packet(kind::BULK, id, &body)
}

/// The parts of a bulk answer: status, length, data.
pub(super) fn bulk_parts((kind, _, body): &Packet) -> (u8, u32, &[u8]) {
    assert_eq!(*kind, kind::BULK);
    (body[1], u32::from_le_bytes([body[2], body[3], body[8], body[9]]), &body[10..])
}

pub(super) fn packets(mut bytes: &[u8]) -> Vec<Packet> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = if word(0) == kind::HELLO { 12 } else { 16 };
        let id = if header == 12 { word(8).into() } else { u64::from(word(8)) | u64::from(word(12)) << 32 };
        let end = header + word(4) as usize;
        found.push((word(0), id, bytes[header..end].to_vec()));
        bytes = &bytes[end..];
    }
    found
}

/// A guest with direct access to the unit's session.
pub(super) struct Guest<'u> {
    pub(super) session: GuestSession<'u>,
    pub(super) out: Outbox,
    pub(super) events: Vec<GuestEvent>,
}

impl<'u> Guest<'u> {
    /// Connects a guest. Also returns the packets that this produced.
    pub(super) fn connect(unit: &'u mut VirtualUnit) -> (Self, Vec<Packet>) {
        let mut guest = Self { session: GuestSession::new(unit), out: Outbox::default(), events: Vec::new() };
        let answers = guest.send(&hello());
        (guest, answers)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Vec<Packet> {
        let events = &mut self.events;
        let used = self.session.receive(bytes, &mut self.out, &mut |event| events.push(event)).unwrap();
        assert_eq!(used, bytes.len());
        let answers = packets(self.out.unsent());
        self.out.advance(self.out.unsent().len());
        answers
    }

    /// Sets the configuration, as a guest does before it speaks to an interface.
    pub(super) fn configure(&mut self) {
        self.send(&packet(kind::SET_CONFIGURATION, 1, &[1]));
    }

    pub(super) fn use_uas(&mut self) {
        self.configure();
        let answers = self.send(&packet(kind::SET_ALT_SETTING, 1, &[0, 1]));
        assert_eq!(answers.last(), Some(&(kind::ALT_SETTING_STATUS, 1, vec![0, 0, 1])));
    }
}
