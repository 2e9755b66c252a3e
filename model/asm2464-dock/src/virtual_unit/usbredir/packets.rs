//! The packets of usbredir: those from the usb-guest (QEMU), which [`Parser`] parses, and those to it, which [`Outbox`]
//! encodes into one buffer. Both are pure.
//!
//! Source: usbredir protocol 0.7, `docs/usb-redirection-protocol.md` and `usbredirproto.h` of the spice project. All
//! numbers are little-endian, all structures packed. Layouts depend on the capabilities that both sides announced.

use std::time::{Duration, Instant};

use asm2464::firmware::InterfaceClass;
use asm2464::{Failure, Kind};
use asm2464_chip::chip::Speed;
use asm2464_host::bridge::is_to_host;

use crate::virtual_unit::descriptors::{Descriptors, Pipe};

/// Maximum data in one packet: Linux's limit for all usbfs transfers together (`usbfs_memory_mb`).
pub const MAX_DATA: usize = 16 << 20;
/// Length of the version text in a hello, in bytes.
const HELLO_VERSION_LEN: usize = 64;
/// Number of endpoint slots in `interface_info` and `ep_info`: 16 OUT, then 16 IN.
pub const ENDPOINT_SLOTS: usize = 32;

/// Bit mask of the features that a side announces in its hello. A feature is used if both sides announce it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RedirCapabilities(pub u32);

impl RedirCapabilities {
    /// Bulk streams, and `max_streams` in `ep_info`.
    pub const BULK_STREAMS: Self = Self(1 << 0);
    /// `device_version_bcd` in `device_connect`.
    pub const CONNECT_DEVICE_VERSION: Self = Self(1 << 1);
    /// The guest acknowledges `device_disconnect`.
    pub const DEVICE_DISCONNECT_ACK: Self = Self(1 << 3);
    /// `max_packet_size` in `ep_info`.
    pub const EP_INFO_MAX_PACKET_SIZE: Self = Self(1 << 4);
    /// Packet ids of 64 bits.
    pub const IDS_64_BITS: Self = Self(1 << 5);
    /// Bulk packets of 64 KiB and more.
    pub const BULK_LENGTH_32_BITS: Self = Self(1 << 6);
    /// Capabilities that this side announces. SuperSpeed needs all of them except the acknowledgement.
    pub const OURS: Self = Self(
        Self::BULK_STREAMS.0
            | Self::CONNECT_DEVICE_VERSION.0
            | Self::DEVICE_DISCONNECT_ACK.0
            | Self::EP_INFO_MAX_PACKET_SIZE.0
            | Self::IDS_64_BITS.0
            | Self::BULK_LENGTH_32_BITS.0,
    );

    /// Whether all capabilities of `other` are included.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RedirStatus {
    /// The request succeeded.
    Success = 0,
    /// The guest, a reset, or a change of the alternate setting cancelled the request.
    Cancelled = 1,
    /// Invalid request, length or endpoint.
    Invalid = 2,
    /// The device failed.
    IoError = 3,
    /// The endpoint is halted, or the request is not supported.
    Stall = 4,
    /// The device sent more data than requested.
    Babble = 6,
}

/// Packet types.
pub(super) mod kind {
    pub(in crate::virtual_unit) const HELLO: u32 = 0;
    pub(in crate::virtual_unit) const DEVICE_CONNECT: u32 = 1;
    pub(in crate::virtual_unit) const DEVICE_DISCONNECT: u32 = 2;
    pub(in crate::virtual_unit) const RESET: u32 = 3;
    pub(in crate::virtual_unit) const INTERFACE_INFO: u32 = 4;
    pub(in crate::virtual_unit) const EP_INFO: u32 = 5;
    pub(in crate::virtual_unit) const SET_CONFIGURATION: u32 = 6;
    pub(super) const GET_CONFIGURATION: u32 = 7;
    pub(super) const CONFIGURATION_STATUS: u32 = 8;
    pub(in crate::virtual_unit) const SET_ALT_SETTING: u32 = 9;
    pub(super) const GET_ALT_SETTING: u32 = 10;
    pub(in crate::virtual_unit) const ALT_SETTING_STATUS: u32 = 11;
    pub(super) const ALLOC_BULK_STREAMS: u32 = 18;
    pub(super) const FREE_BULK_STREAMS: u32 = 19;
    pub(super) const BULK_STREAMS_STATUS: u32 = 20;
    pub(super) const CANCEL_DATA_PACKET: u32 = 21;
    pub(super) const FILTER_REJECT: u32 = 22;
    pub(in crate::virtual_unit) const DEVICE_DISCONNECT_ACK: u32 = 24;
    pub(super) const CONTROL_PACKET: u32 = 100;
    pub(super) const BULK_PACKET: u32 = 101;
}

/// Slot of an endpoint in the protocol's tables and bit masks: OUT n at n, IN n at 16 + n.
pub const fn slot(address: u8) -> usize {
    (address & 0x0F) as usize | if is_to_host(address) { 0x10 } else { 0 }
}

/// A control transfer's setup stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// 0x80 for a transfer to the host, 0 from it.
    pub endpoint: u8,
    /// The SETUP packet.
    pub packet: [u8; 8],
}

impl Setup {
    /// wLength.
    pub fn length(&self) -> usize {
        u16::from_le_bytes([self.packet[6], self.packet[7]]).into()
    }

    /// Whether its data goes to the host.
    pub const fn is_in(&self) -> bool {
        is_to_host(self.packet[0])
    }
}

/// A bulk transfer's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bulk {
    /// bEndpointAddress.
    pub endpoint: u8,
    /// The stream, 0 for none.
    pub stream: u32,
    /// Number of bytes requested (IN) or carried (OUT).
    pub length: u32,
}

/// A packet from the usb-guest (QEMU).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first packet, once.
    Hello,
    /// Resets the port.
    Reset,
    /// SET_CONFIGURATION.
    SetConfiguration {
        /// The packet's id.
        id: u64,
        /// bConfigurationValue.
        value: u8,
    },
    /// GET_CONFIGURATION.
    GetConfiguration {
        /// The packet's id.
        id: u64,
    },
    /// SET_INTERFACE.
    SetAlternate {
        /// The packet's id.
        id: u64,
        /// bInterfaceNumber.
        interface: u8,
        /// bAlternateSetting.
        alternate: u8,
    },
    /// GET_INTERFACE.
    GetAlternate {
        /// The packet's id.
        id: u64,
        /// bInterfaceNumber.
        interface: u8,
    },
    /// Allocates streams for endpoints.
    AllocStreams {
        /// The packet's id.
        id: u64,
        /// Bit n is OUT endpoint n, bit 16+n IN endpoint n.
        endpoints: u32,
        /// Number of streams.
        count: u32,
    },
    /// Frees the endpoints' streams.
    FreeStreams {
        /// The packet's id.
        id: u64,
        /// Bit n is OUT endpoint n, bit 16+n IN endpoint n.
        endpoints: u32,
    },
    /// Cancels a pending data packet.
    Cancel {
        /// The data packet's id.
        id: u64,
    },
    /// The guest rejects the device.
    FilterReject,
    /// The guest has seen the device leave.
    DisconnectAck,
    /// A control transfer.
    Control {
        /// The packet's id.
        id: u64,
        /// Its setup stage.
        setup: Setup,
        /// Data to the device.
        data: &'a [u8],
    },
    /// A bulk transfer.
    Bulk {
        /// The packet's id.
        id: u64,
        /// Its header.
        bulk: Bulk,
        /// Data to the device.
        data: &'a [u8],
    },
    /// A packet for endpoints that no unit has (isochronous, interrupt), or of an unannounced feature (filters).
    Other {
        /// The packet's type.
        kind: u32,
    },
}

/// The error of bytes that are not valid usbredir for the agreed capabilities.
fn invalid(why: String) -> Failure {
    let label = Kind::Device.code("asm2464::serve::protocol");
    Failure::new(label, "the peer does not speak usbredir").because(why)
}

fn wrong_length(kind: u32, body: &[u8]) -> Failure {
    invalid(format!("a packet of type {kind} has {} bytes, which is not what that type has", body.len()))
}

/// Parses packets from received bytes.
#[derive(Debug, Default)]
pub struct Parser {
    /// The agreed capabilities, after the hello.
    pub agreed: Option<RedirCapabilities>,
}

impl Parser {
    /// Parses the next packet in `bytes` and returns it with its length; `None` if it is incomplete.
    ///
    /// # Errors
    /// `asm2464::serve::protocol` if the bytes are not valid usbredir for the agreed capabilities. The packets after
    /// the invalid one can't be found.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Request<'a>, usize)>, Failure> {
        let wide = self.agreed.is_some_and(|agreed| agreed.has(RedirCapabilities::IDS_64_BITS));
        let header_len = if wide { 16 } else { 12 };
        let Some((header, rest)) = bytes.split_at_checked(header_len) else { return Ok(None) };
        let (kind, length) = (u32_at(header, 0), u32_at(header, 4));
        if self.agreed.is_none() && kind != kind::HELLO {
            return Err(invalid(format!("the first packet is of type {kind}, expected a hello (0)")));
        }
        if length as usize > MAX_DATA + 16 {
            let most = format!("at most {MAX_DATA} and a header are possible");
            return Err(invalid(format!("a packet of type {kind} announces {length} bytes, {most}")));
        }
        let Some(body) = rest.get(..length as usize) else { return Ok(None) };
        let id = if wide { u64_at(header, 8) } else { u64::from(u32_at(header, 8)) };
        let request = self.request(kind, id, body)?;
        Ok(Some((request, header_len + body.len())))
    }

    fn request<'a>(&mut self, kind: u32, id: u64, body: &'a [u8]) -> Result<Request<'a>, Failure> {
        let exact_len = match kind {
            kind::RESET
            | kind::GET_CONFIGURATION
            | kind::CANCEL_DATA_PACKET
            | kind::FILTER_REJECT
            | kind::DEVICE_DISCONNECT_ACK => Some(0),
            kind::SET_CONFIGURATION | kind::GET_ALT_SETTING => Some(1),
            kind::SET_ALT_SETTING => Some(2),
            kind::FREE_BULK_STREAMS => Some(4),
            kind::ALLOC_BULK_STREAMS => Some(8),
            _ => None,
        };
        if exact_len.is_some_and(|len| len != body.len()) {
            return Err(wrong_length(kind, body));
        }
        Ok(match kind {
            kind::HELLO => {
                if self.agreed.is_some() {
                    return Err(invalid("a second hello".to_owned()));
                }
                if body.len() < HELLO_VERSION_LEN || !body.len().is_multiple_of(4) {
                    return Err(wrong_length(kind, body));
                }
                let word = if body.len() > HELLO_VERSION_LEN { u32_at(body, HELLO_VERSION_LEN) } else { 0 };
                self.agreed = Some(RedirCapabilities(RedirCapabilities::OURS.0 & word));
                Request::Hello
            }
            kind::RESET => Request::Reset,
            kind::SET_CONFIGURATION => Request::SetConfiguration { id, value: body[0] },
            kind::GET_CONFIGURATION => Request::GetConfiguration { id },
            kind::SET_ALT_SETTING => Request::SetAlternate { id, interface: body[0], alternate: body[1] },
            kind::GET_ALT_SETTING => Request::GetAlternate { id, interface: body[0] },
            kind::ALLOC_BULK_STREAMS => {
                Request::AllocStreams { id, endpoints: u32_at(body, 0), count: u32_at(body, 4) }
            }
            kind::FREE_BULK_STREAMS => Request::FreeStreams { id, endpoints: u32_at(body, 0) },
            kind::CANCEL_DATA_PACKET => Request::Cancel { id },
            kind::FILTER_REJECT => Request::FilterReject,
            kind::DEVICE_DISCONNECT_ACK => Request::DisconnectAck,
            kind::CONTROL_PACKET => control(id, body)?,
            kind::BULK_PACKET => self.bulk(id, body)?,
            _ => Request::Other { kind },
        })
    }

    fn bulk<'a>(&self, id: u64, body: &'a [u8]) -> Result<Request<'a>, Failure> {
        let long = self.agreed.is_some_and(|agreed| agreed.has(RedirCapabilities::BULK_LENGTH_32_BITS));
        let split = body.split_at_checked(if long { 10 } else { 8 });
        let (header, data) = split.ok_or_else(|| wrong_length(kind::BULK_PACKET, body))?;
        let high = if long { u16_at(header, 8) } else { 0 };
        let length = u32::from(u16_at(header, 2)) | u32::from(high) << 16;
        let bulk = Bulk { endpoint: header[0], stream: u32_at(header, 4), length };
        check_data(kind::BULK_PACKET, bulk.endpoint, length as usize, data)?;
        Ok(Request::Bulk { id, bulk, data })
    }
}

fn control(id: u64, body: &[u8]) -> Result<Request<'_>, Failure> {
    let split = body.split_first_chunk();
    let (header, data) = split.ok_or_else(|| wrong_length(kind::CONTROL_PACKET, body))?;
    let &[endpoint, request, request_type, _, a, b, c, d, e, f] = header;
    let setup = Setup { endpoint, packet: [request_type, request, a, b, c, d, e, f] };
    check_data(kind::CONTROL_PACKET, endpoint, setup.length(), data)?;
    Ok(Request::Control { id, setup, data })
}

/// Checks that a guest's packet carries its data if the transfer goes to the device, and none if it goes to the host,
/// and that the transfer is not too long.
fn check_data(kind: u32, endpoint: u8, announced: usize, data: &[u8]) -> Result<(), Failure> {
    let expected = if is_to_host(endpoint) { 0 } else { announced };
    let carried = data.len();
    if carried == expected && announced <= MAX_DATA {
        return Ok(());
    }
    let target = format!("a packet of type {kind} for endpoint {endpoint:#04x}");
    Err(invalid(format!("{target} says {announced} bytes and carries {carried}")))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

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
    pub(super) agreed: RedirCapabilities,
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
        match (self.patience, self.waits_since) {
            (Some(patience), Some(since)) => self.end > self.sent && since.elapsed() >= patience,
            _ => false,
        }
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
        let text = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).as_bytes();
        version[..text.len()].copy_from_slice(text);
        self.packet(kind::HELLO, 0, &[&version, &RedirCapabilities::OURS.0.to_le_bytes()]);
    }

    /// Announces the device. Call [`Outbox::interface_info`] and [`Outbox::ep_info`] first.
    pub fn device_connect(&mut self, descriptors: &Descriptors) {
        let speed = match descriptors.speed {
            Speed::High => 2,
            Speed::Super => 3,
        };
        let device = &descriptors.device;
        let (class, ids) = (&device[4..7], &device[8..12]);
        let release = if self.agreed.has(RedirCapabilities::CONNECT_DEVICE_VERSION) { &device[12..14] } else { &[] };
        self.packet(kind::DEVICE_CONNECT, 0, &[&[speed], class, ids, release]);
    }

    /// Announces that the device is gone.
    pub fn device_disconnect(&mut self) {
        self.packet(kind::DEVICE_DISCONNECT, 0, &[]);
    }

    /// Describes the one interface, number 0, by the class, subclass and protocol of its current alternate setting.
    pub fn interface_info(&mut self, class: InterfaceClass) {
        let mut tables = [[0; ENDPOINT_SLOTS]; 4];
        for (table, byte) in tables[1..].iter_mut().zip(<[u8; 3]>::from(class)) {
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
        let max_packets =
            if agrees(RedirCapabilities::EP_INFO_MAX_PACKET_SIZE) { max_packets.as_flattened() } else { &[] };
        let max_streams = if agrees(RedirCapabilities::BULK_STREAMS) { max_streams.as_flattened() } else { &[] };
        // Intervals and interface numbers are all 0.
        self.packet(kind::EP_INFO, 0, &[&types, &[0; 2 * ENDPOINT_SLOTS], max_packets, max_streams]);
    }

    /// Answers [`SetConfiguration`](Request::SetConfiguration) and `GetConfiguration`.
    pub fn configuration_status(&mut self, id: u64, status: RedirStatus, configuration: u8) {
        self.packet(kind::CONFIGURATION_STATUS, id, &[&[status as u8, configuration]]);
    }

    /// Answers [`SetAlternate`](Request::SetAlternate) and `GetAlternate`.
    pub fn alternate_status(&mut self, id: u64, status: RedirStatus, interface: u8, alternate: u8) {
        self.packet(kind::ALT_SETTING_STATUS, id, &[&[status as u8, interface, alternate]]);
    }

    /// Answers [`AllocStreams`](Request::AllocStreams) and `FreeStreams`.
    pub fn streams_status(&mut self, id: u64, endpoints: u32, count: u32, status: RedirStatus) {
        let body: [&[u8]; 3] = [&endpoints.to_le_bytes(), &count.to_le_bytes(), &[status as u8]];
        self.packet(kind::BULK_STREAMS_STATUS, id, &body);
    }

    /// Answers [`Control`](Request::Control): `data` to the host, or `length` bytes taken from it.
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
        let high = if self.agreed.has(RedirCapabilities::BULK_LENGTH_32_BITS) { &high[..] } else { &[] };
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
        let wide = self.agreed.has(RedirCapabilities::IDS_64_BITS);
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
    use std::error::Error as _;

    use super::*;

    /// Builds a packet as QEMU lays it out, with 64-bit ids unless it is the hello.
    fn packet(kind: u32, id: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = [kind.to_le_bytes(), (body.len() as u32).to_le_bytes()].concat();
        let id_len = if kind == kind::HELLO { 4 } else { 8 };
        bytes.extend(&id.to_le_bytes()[..id_len]);
        bytes.extend(body);
        bytes
    }

    fn hello(capabilities: RedirCapabilities) -> Vec<u8> {
        let mut body = vec![0; HELLO_VERSION_LEN];
        body.extend(capabilities.0.to_le_bytes());
        packet(kind::HELLO, 0, &body)
    }

    /// Why the parser refuses these bytes.
    fn refusal(mut parser: Parser, bytes: &[u8]) -> String {
        let error = parser.next(bytes).unwrap_err();
        assert_eq!(error.to_string(), "the peer does not speak usbredir");
        error.source().unwrap().to_string()
    }

    fn greeted() -> Parser {
        let mut parser = Parser::default();
        assert!(matches!(parser.next(&hello(RedirCapabilities::OURS)), Ok(Some((Request::Hello, 80)))));
        parser
    }

    #[test]
    fn a_bulk_packet_to_the_device_brings_its_data_and_its_64_bit_id() {
        let mut body = vec![0x02, 0, 3, 0, 7, 0, 0, 0, 0, 0];
        body.extend(b"abc");
        let bytes = packet(kind::BULK_PACKET, 1 << 40, &body);
        let bulk = Bulk { endpoint: 0x02, stream: 7, length: 3 };
        let request = Request::Bulk { id: 1 << 40, bulk, data: b"abc" };
        assert_eq!(greeted().next(&bytes).unwrap(), Some((request, bytes.len())));
    }

    #[test]
    fn a_packet_whose_end_is_still_to_come_is_waited_for() {
        let bytes = packet(kind::BULK_PACKET, 1, &[0x02, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        let mut parser = greeted();
        for end in 0..bytes.len() {
            assert_eq!(parser.next(&bytes[..end]).unwrap(), None, "{end} bytes");
        }
    }

    #[test]
    fn a_peer_without_64_bit_ids_and_32_bit_lengths_is_understood() {
        let mut parser = Parser::default();
        parser.next(&hello(RedirCapabilities::BULK_STREAMS)).unwrap();
        let mut bytes = [kind::BULK_PACKET.to_le_bytes(), 9u32.to_le_bytes(), 5u32.to_le_bytes()].concat();
        bytes.extend([0x04, 0, 1, 0, 0, 0, 0, 0, 0xEE]);
        let bulk = Bulk { endpoint: 0x04, stream: 0, length: 1 };
        assert_eq!(parser.next(&bytes).unwrap(), Some((Request::Bulk { id: 5, bulk, data: &[0xEE] }, 21)));
    }

    #[test]
    fn what_comes_before_the_hello_or_as_a_second_one_is_refused() {
        let reset = [kind::RESET.to_le_bytes(), [0; 4], [0; 4]].concat();
        assert_eq!(refusal(Parser::default(), &reset), "the first packet is of type 3, expected a hello (0)");
        let body = vec![0; HELLO_VERSION_LEN + 4];
        let mut again = [kind::HELLO.to_le_bytes(), (body.len() as u32).to_le_bytes()].concat();
        again.extend([0; 8]);
        again.extend(body);
        assert_eq!(refusal(greeted(), &again), "a second hello");
    }

    #[test]
    fn a_packet_that_announces_gigabytes_is_refused_before_they_are_waited_for() {
        let header = [kind::BULK_PACKET.to_le_bytes(), u32::MAX.to_le_bytes(), [0; 4], [0; 4]].concat();
        assert_eq!(
            refusal(greeted(), &header),
            "a packet of type 101 announces 4294967295 bytes, at most 16777216 and a header are possible"
        );
        let asks = packet(kind::BULK_PACKET, 1, &[0x81, 0, 0xFF, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF]);
        assert_eq!(
            refusal(greeted(), &asks),
            "a packet of type 101 for endpoint 0x81 says 4294967295 bytes and carries 0"
        );
    }

    #[test]
    fn a_bulk_packet_that_carries_less_than_it_says_is_refused() {
        let bytes = packet(kind::BULK_PACKET, 1, &[0x02, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(refusal(greeted(), &bytes), "a packet of type 101 for endpoint 0x02 says 4 bytes and carries 1");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic_or_stand_still(mut bytes: Vec<u8>, kind in 0u32..110) {
            let mut parser = greeted();
            if let Some(first) = bytes.first_chunk_mut() {
                *first = kind.to_le_bytes();
            }
            if let Some(length) = bytes.get_mut(6..8) {
                length.fill(0);
            }
            let mut rest = &bytes[..];
            while let Ok(Some((_, used))) = parser.next(rest) {
                proptest::prop_assert!(used > 0);
                rest = &rest[used..];
            }
        }
    }

    const BULK: Bulk = Bulk { endpoint: 0x81, stream: 3, length: 0x2_0000 };

    fn agreed() -> Outbox {
        Outbox { agreed: RedirCapabilities::OURS, ..Outbox::default() }
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
        let body = |agreed: RedirCapabilities, header: usize| {
            let mut out = Outbox { agreed, ..Outbox::default() };
            out.ep_info(&endpoints);
            out.unsent()[header..].to_vec()
        };
        let full = body(RedirCapabilities::OURS, 16);
        assert_eq!(full.len(), 288);
        assert_eq!((full[0], full[16], full[19], full[20]), (0, 0, 2, 255));
        assert_eq!(full[96 + 2 * 19..][..2], [0, 4]);
        assert_eq!(full[160 + 4 * 19..][..4], [32, 0, 0, 0]);
        assert_eq!(body(RedirCapabilities::default(), 12), full[..96]);
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
