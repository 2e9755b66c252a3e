//! Packets to the usb-guest (QEMU), encoded into one buffer.

use std::time::{Duration, Instant};

use asm2464_chip::chip::Speed;

use super::protocol::{Capabilities, ENDPOINT_SLOTS, HELLO_VERSION_LEN, RedirStatus, kind, slot};
use super::request::{Bulk, Setup};
use crate::virtual_unit::descriptors::{Descriptors, Pipe};

/// Maximum number of unsent bytes. Above it, no more answers are made until the guest reads.
pub(super) const OUTBOX_LIMIT: usize = 32 << 20;

/// Encoded packets on their way to the usb-guest.
///
/// One reused buffer: all answers to a burst of requests go to the socket in one write, and data from the device is
/// read directly into its place in the buffer.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Never shrinks. Holds at most twice the limit and one answer. Bytes from `end` on are stale.
    bytes: Vec<u8>,
    end: usize,
    sent: usize,
    /// Packets are laid out for these capabilities.
    pub(super) agreed: Capabilities,
    /// How long an answer may wait for others to be sent with it; `None` for no limit.
    pub(super) patience: Option<Duration>,
    /// Time of the first answer since the last attempt to send.
    waits_since: Option<Instant>,
}

impl Outbox {
    /// The bytes not yet sent.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.end]
    }

    /// Whether the guest has so many unread bytes that no more answers are made until it has read some.
    pub fn is_full(&self) -> bool {
        self.end - self.sent >= OUTBOX_LIMIT
    }

    /// Whether an answer has waited so long that it should be sent before another is made. The guest then works on it
    /// while the unit works on the next one.
    pub fn is_due(&self) -> bool {
        let waits_since = self.waits_since.filter(|_| self.end > self.sent);
        self.patience.zip(waits_since).is_some_and(|(patience, since)| since.elapsed() >= patience)
    }

    /// Whether to make more answers before sending.
    pub fn takes_more(&self) -> bool {
        !self.is_full() && !self.is_due()
    }

    /// Records an attempt to send the unsent bytes.
    pub fn was_offered(&mut self) {
        self.waits_since = None;
    }

    /// Removes `count` sent bytes of [`Outbox::unsent`].
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.end {
            self.end = 0;
            self.sent = 0;
        } else if self.sent >= OUTBOX_LIMIT {
            // Otherwise the buffer would grow without end if a guest always leaves some bytes unread.
            self.bytes.copy_within(self.sent..self.end, 0);
            self.end -= self.sent;
            self.sent = 0;
        }
    }

    /// Encodes the first packet.
    pub fn hello(&mut self) {
        let mut version = [0; HELLO_VERSION_LEN];
        let text = concat!("asmpatch ", env!("CARGO_PKG_VERSION")).as_bytes();
        version[..text.len()].copy_from_slice(text);
        self.packet(kind::HELLO, 0, &[&version, &Capabilities::OURS.0.to_le_bytes()]);
    }

    /// Announces the device. Call [`Outbox::interface_info`] and [`Outbox::ep_info`] first.
    pub fn device_connect(&mut self, descriptors: &Descriptors) {
        let speed = match descriptors.speed {
            Speed::High => 2,
            Speed::Super => 3,
        };
        let device = &descriptors.device;
        let (class, ids) = (&device[4..7], &device[8..12]);
        let release = if self.agreed.has(Capabilities::CONNECT_DEVICE_VERSION) { &device[12..14] } else { &[] };
        self.packet(kind::DEVICE_CONNECT, 0, &[&[speed], class, ids, release]);
    }

    /// Announces that the device is gone.
    pub fn device_disconnect(&mut self) {
        self.packet(kind::DEVICE_DISCONNECT, 0, &[]);
    }

    /// Describes the one interface, number 0, by the class, subclass and protocol of its current alternate setting.
    pub fn interface_info(&mut self, class: [u8; 3]) {
        let mut tables = [[0; ENDPOINT_SLOTS]; 4];
        for (table, byte) in tables[1..].iter_mut().zip(class) {
            table[0] = byte;
        }
        self.packet(kind::INTERFACE_INFO, 0, &[&1u32.to_le_bytes(), tables.as_flattened()]);
    }

    /// Describes the endpoints of the current alternate setting, all bulk, besides endpoint 0.
    pub fn ep_info(&mut self, pipes: &[Pipe]) {
        const BULK: u8 = 2;
        const INVALID: u8 = 255;
        let mut types = [INVALID; ENDPOINT_SLOTS];
        let mut max_packets = [[0; 2]; ENDPOINT_SLOTS];
        let mut max_streams = [[0; 4]; ENDPOINT_SLOTS];
        for control in [0, ENDPOINT_SLOTS / 2] {
            types[control] = 0;
        }
        for pipe in pipes {
            let slot = slot(pipe.address);
            types[slot] = BULK;
            max_packets[slot] = pipe.max_packet.to_le_bytes();
            max_streams[slot] = u32::from(pipe.streams).to_le_bytes();
        }
        let agrees = |capability| self.agreed.has(capability);
        let max_packets = if agrees(Capabilities::EP_INFO_MAX_PACKET_SIZE) { max_packets.as_flattened() } else { &[] };
        let max_streams = if agrees(Capabilities::BULK_STREAMS) { max_streams.as_flattened() } else { &[] };
        // Intervals and interface numbers are all 0.
        self.packet(kind::EP_INFO, 0, &[&types, &[0; 2 * ENDPOINT_SLOTS], max_packets, max_streams]);
    }

    /// Answers [`SetConfiguration`](super::request::Request::SetConfiguration) and `GetConfiguration`.
    pub fn configuration_status(&mut self, id: u64, status: RedirStatus, configuration: u8) {
        self.packet(kind::CONFIGURATION_STATUS, id, &[&[status as u8, configuration]]);
    }

    /// Answers [`SetAlternate`](super::request::Request::SetAlternate) and `GetAlternate`.
    pub fn alternate_status(&mut self, id: u64, status: RedirStatus, interface: u8, alternate: u8) {
        self.packet(kind::ALT_SETTING_STATUS, id, &[&[status as u8, interface, alternate]]);
    }

    /// Answers [`AllocStreams`](super::request::Request::AllocStreams) and `FreeStreams`.
    pub fn streams_status(&mut self, id: u64, endpoints: u32, count: u32, status: RedirStatus) {
        let body: [&[u8]; 3] = [&endpoints.to_le_bytes(), &count.to_le_bytes(), &[status as u8]];
        self.packet(kind::BULK_STREAMS_STATUS, id, &body);
    }

    /// Answers [`Control`](super::request::Request::Control): `data` to the host, or `length` bytes taken from it.
    pub fn control(&mut self, id: u64, setup: &Setup, status: RedirStatus, data: &[u8], length: u16) {
        let [request_type, request, value_and_index @ .., _, _] = setup.packet;
        let head = [setup.endpoint, request, request_type, status as u8];
        self.packet(kind::CONTROL_PACKET, id, &[&head, &value_and_index, &length.to_le_bytes(), data]);
    }

    /// Answers a bulk packet without data to the host: `length` bytes were taken from it.
    pub fn bulk(&mut self, id: u64, bulk: &Bulk, status: RedirStatus, length: u32) {
        self.bulk_header(id, bulk, status, length, 0);
        self.begin_to_wait();
    }

    /// Answers a bulk packet with data to the host. `fill` gets a buffer of the requested length, and returns the
    /// status and the number of bytes. If it returns `None`, there is no data yet: then nothing is sent, and the result
    /// is `false`.
    pub fn bulk_in(
        &mut self,
        id: u64,
        bulk: &Bulk,
        fill: impl FnOnce(&mut [u8]) -> Option<(RedirStatus, usize)>,
    ) -> bool {
        let start = self.end;
        // Status and length are known only when the data behind the header is there.
        self.bulk_header(id, bulk, RedirStatus::Success, 0, 0);
        let data = self.end;
        let filled = fill(self.room(bulk.length as usize));
        self.end = start;
        let Some((status, length)) = filled else { return false };
        let length = length.min(bulk.length as usize);
        self.bulk_header(id, bulk, status, length as u32, length);
        self.end = data + length;
        self.begin_to_wait();
        true
    }

    fn packet(&mut self, kind: u32, id: u64, body: &[&[u8]]) {
        self.header(kind, id, body.iter().map(|part| part.len()).sum());
        body.iter().for_each(|part| self.put(part));
        self.begin_to_wait();
    }

    /// Puts the headers of a bulk packet with this many bytes of data.
    fn bulk_header(&mut self, id: u64, bulk: &Bulk, status: RedirStatus, length: u32, data: usize) {
        let [b0, b1, high @ ..] = length.to_le_bytes();
        let high = if self.agreed.has(Capabilities::BULK_LENGTH_32_BITS) { &high[..] } else { &[] };
        self.header(kind::BULK_PACKET, id, 8 + high.len() + data);
        self.put(&[bulk.endpoint, status as u8, b0, b1]);
        self.put(&bulk.stream.to_le_bytes());
        self.put(high);
    }

    /// Puts the header of a packet with a body of this length.
    fn header(&mut self, kind: u32, id: u64, length: usize) {
        self.put(&kind.to_le_bytes());
        self.put(&(length as u32).to_le_bytes());
        let id = id.to_le_bytes();
        let wide = self.agreed.has(Capabilities::IDS_64_BITS);
        self.put(if wide { &id } else { &id[..4] });
    }

    /// Starts the clock of the first answer that waits.
    fn begin_to_wait(&mut self) {
        if self.patience.is_some() && self.waits_since.is_none() {
            self.waits_since = Some(Instant::now());
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    /// Reserves the next `length` bytes for the caller to fill.
    fn room(&mut self, length: usize) -> &mut [u8] {
        let from = self.end;
        self.end += length;
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        &mut self.bytes[from..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BULK: Bulk = Bulk { endpoint: 0x81, stream: 3, length: 0x2_0000 };

    fn agreed() -> Outbox {
        Outbox { agreed: Capabilities::OURS, ..Outbox::default() }
    }

    #[test]
    fn a_bulk_answer_carries_what_the_device_put_there_and_no_more() {
        let mut out = agreed();
        assert!(out.bulk_in(9, &BULK, |data| {
            data[..0x1_0001].fill(0xAB);
            Some((RedirStatus::Success, 0x1_0001))
        }));
        let (header, data) = out.unsent().split_at(26);
        assert_eq!(header[..8], [101, 0, 0, 0, 0x0B, 0, 1, 0]);
        assert_eq!(header[8..], [9, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 1, 0, 3, 0, 0, 0, 1, 0]);
        assert_eq!(data, [0xAB; 0x1_0001]);
    }

    #[test]
    fn a_device_with_nothing_to_say_leaves_the_outbox_as_it_was() {
        let mut out = agreed();
        assert!(!out.bulk_in(9, &BULK, |_| None));
        assert!(out.unsent().is_empty());
    }

    #[test]
    fn tables_have_the_fields_that_both_sides_agreed_on() {
        let endpoints = [Pipe { address: 0x83, max_packet: 1024, streams: 32 }];
        let body = |agreed: Capabilities, header: usize| {
            let mut out = Outbox { agreed, ..Outbox::default() };
            out.ep_info(&endpoints);
            out.unsent()[header..].to_vec()
        };
        let full = body(Capabilities::OURS, 16);
        assert_eq!(full.len(), 288);
        assert_eq!((full[0], full[16], full[19], full[20]), (0, 0, 2, 255));
        assert_eq!(full[96 + 2 * 19..][..2], [0, 4]);
        assert_eq!(full[160 + 4 * 19..][..4], [32, 0, 0, 0]);
        assert_eq!(body(Capabilities::default(), 12), full[..96]);
    }

    #[test]
    fn a_guest_that_always_leaves_something_unread_does_not_make_the_buffer_grow() {
        let mut out = agreed();
        let answer = |out: &mut Outbox| out.bulk_in(9, &BULK, |data| Some((RedirStatus::Success, data.len())));
        for _ in 0..1000 {
            assert!(answer(&mut out) && answer(&mut out));
            out.advance(out.unsent().len() - 1);
            assert_eq!(out.unsent().len(), 1);
        }
        assert!(out.bytes.len() < 2 * OUTBOX_LIMIT, "{}", out.bytes.len());
        while !out.is_full() {
            answer(&mut out);
        }
        assert!(out.unsent().len() < OUTBOX_LIMIT + 0x2_0000 + 100);
    }

    #[test]
    fn an_answer_that_has_waited_long_enough_is_sent_before_another_is_made() {
        let mut out = agreed();
        out.device_disconnect();
        assert!(out.takes_more() && !out.is_due(), "without a time limit it is never due");
        out.advance(16);
        out.patience = Some(Duration::ZERO);
        assert!(out.takes_more() && !out.is_due(), "nothing waits");
        out.device_disconnect();
        assert!(out.is_due() && !out.takes_more());
        out.was_offered();
        assert!(out.takes_more() && !out.unsent().is_empty(), "a guest that does not read blocks nothing");
    }

    #[test]
    fn what_was_sent_makes_room_for_what_follows() {
        let mut out = agreed();
        out.device_disconnect();
        out.advance(5);
        assert_eq!(out.unsent().len(), 11);
        out.advance(11);
        out.configuration_status(1, RedirStatus::Success, 1);
        assert_eq!(out.unsent()[16..], [0, 1]);
    }
}
