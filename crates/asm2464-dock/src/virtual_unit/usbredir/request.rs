//! Parser of packets from the usb-guest (QEMU).

use thiserror::Error;

use super::protocol::{Capabilities, HELLO_VERSION_LEN, MAX_DATA, kind};

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
        self.packet[0] & 0x80 != 0
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
    Hello(Capabilities),
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

/// Reasons bytes are not valid usbredir for the agreed capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PacketError {
    /// A packet arrived before the hello.
    #[error("the first packet is of type {0}, expected a hello (0)")]
    NoHello(u32),
    /// A second hello arrived.
    #[error("a second hello")]
    SecondHello,
    /// A packet is longer than a transfer can be.
    #[error("a packet of type {kind} announces {length} bytes, at most {MAX_DATA} and a header are possible")]
    TooLong {
        /// The packet's type.
        kind: u32,
        /// The length announced.
        length: u32,
    },
    /// A packet's length does not match its type.
    #[error("a packet of type {kind} has {length} bytes, which is not what that type has")]
    Length {
        /// The packet's type.
        kind: u32,
        /// Its length.
        length: u32,
    },
    /// A data packet's direction, length field and data disagree.
    #[error("a packet of type {kind} for endpoint {endpoint:#04x} says {announced} bytes and carries {carried}")]
    Data {
        /// The packet's type.
        kind: u32,
        /// The endpoint.
        endpoint: u8,
        /// The bytes that its header announces.
        announced: usize,
        /// The bytes that follow.
        carried: usize,
    },
}

/// Parses packets from received bytes.
#[derive(Debug, Default)]
pub struct Parser {
    /// The agreed capabilities, after the hello.
    pub agreed: Option<Capabilities>,
}

impl Parser {
    /// Parses the next packet in `bytes` and returns it with its length; `None` if it is incomplete.
    ///
    /// # Errors
    /// [`PacketError`]. The packets after the invalid one can't be found.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Request<'a>, usize)>, PacketError> {
        let wide = self.agreed.is_some_and(|agreed| agreed.has(Capabilities::IDS_64_BITS));
        let header_len = if wide { 16 } else { 12 };
        let Some((header, rest)) = bytes.split_at_checked(header_len) else { return Ok(None) };
        let (kind, length) = (u32_at(header, 0), u32_at(header, 4));
        if self.agreed.is_none() && kind != kind::HELLO {
            return Err(PacketError::NoHello(kind));
        }
        if length as usize > MAX_DATA + 16 {
            return Err(PacketError::TooLong { kind, length });
        }
        let Some(body) = rest.get(..length as usize) else { return Ok(None) };
        let id = if wide { u64_at(header, 8) } else { u64::from(u32_at(header, 8)) };
        let request = self.request(kind, id, body)?;
        Ok(Some((request, header_len + body.len())))
    }

    fn request<'a>(&mut self, kind: u32, id: u64, body: &'a [u8]) -> Result<Request<'a>, PacketError> {
        let wrong_length = PacketError::Length { kind, length: body.len() as u32 };
        let exactly = |len: usize| if body.len() == len { Ok(()) } else { Err(wrong_length) };
        Ok(match kind {
            kind::HELLO => {
                if self.agreed.is_some() {
                    return Err(PacketError::SecondHello);
                }
                if body.len() < HELLO_VERSION_LEN || !body.len().is_multiple_of(4) {
                    return Err(wrong_length);
                }
                let word = if body.len() > HELLO_VERSION_LEN { u32_at(body, HELLO_VERSION_LEN) } else { 0 };
                self.agreed = Some(Capabilities(Capabilities::OURS.0 & word));
                Request::Hello(Capabilities(word))
            }
            kind::RESET => exactly(0).map(|()| Request::Reset)?,
            kind::SET_CONFIGURATION => exactly(1).map(|()| Request::SetConfiguration { id, value: body[0] })?,
            kind::GET_CONFIGURATION => exactly(0).map(|()| Request::GetConfiguration { id })?,
            kind::SET_ALT_SETTING => {
                exactly(2).map(|()| Request::SetAlternate { id, interface: body[0], alternate: body[1] })?
            }
            kind::GET_ALT_SETTING => exactly(1).map(|()| Request::GetAlternate { id, interface: body[0] })?,
            kind::ALLOC_BULK_STREAMS => {
                exactly(8).map(|()| Request::AllocStreams { id, endpoints: u32_at(body, 0), count: u32_at(body, 4) })?
            }
            kind::FREE_BULK_STREAMS => exactly(4).map(|()| Request::FreeStreams { id, endpoints: u32_at(body, 0) })?,
            kind::CANCEL_DATA_PACKET => exactly(0).map(|()| Request::Cancel { id })?,
            kind::FILTER_REJECT => exactly(0).map(|()| Request::FilterReject)?,
            kind::DEVICE_DISCONNECT_ACK => exactly(0).map(|()| Request::DisconnectAck)?,
            kind::CONTROL_PACKET => control(id, body).ok_or(wrong_length)??,
            kind::BULK_PACKET => self.bulk(id, body).ok_or(wrong_length)??,
            _ => Request::Other { kind },
        })
    }

    fn bulk<'a>(&self, id: u64, body: &'a [u8]) -> Option<Result<Request<'a>, PacketError>> {
        let long = self.agreed.is_some_and(|agreed| agreed.has(Capabilities::BULK_LENGTH_32_BITS));
        let (header, data) = body.split_at_checked(if long { 10 } else { 8 })?;
        let high = if long { u16_at(header, 8) } else { 0 };
        let length = u32::from(u16_at(header, 2)) | u32::from(high) << 16;
        let bulk = Bulk { endpoint: header[0], stream: u32_at(header, 4), length };
        Some(carries(kind::BULK_PACKET, bulk.endpoint, length as usize, data).map(|()| Request::Bulk {
            id,
            bulk,
            data,
        }))
    }
}

fn control(id: u64, body: &[u8]) -> Option<Result<Request<'_>, PacketError>> {
    let (&[endpoint, request, request_type, _, a, b, c, d, e, f], data) = body.split_first_chunk()?;
    let setup = Setup { endpoint, packet: [request_type, request, a, b, c, d, e, f] };
    let carried = carries(kind::CONTROL_PACKET, endpoint, setup.length(), data);
    Some(carried.map(|()| Request::Control { id, setup, data }))
}

/// Checks that a guest's packet carries its data if the transfer goes to the device, and none if it goes to the host,
/// and that the transfer is not too long.
fn carries(kind: u32, endpoint: u8, announced: usize, data: &[u8]) -> Result<(), PacketError> {
    let expected = if endpoint & 0x80 != 0 { 0 } else { announced };
    if data.len() == expected && announced <= MAX_DATA {
        Ok(())
    } else {
        Err(PacketError::Data { kind, endpoint, announced, carried: data.len() })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a packet as QEMU lays it out, with 64-bit ids unless it is the hello.
    fn packet(kind: u32, id: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = [kind.to_le_bytes(), (body.len() as u32).to_le_bytes()].concat();
        let id_len = if kind == kind::HELLO { 4 } else { 8 };
        bytes.extend(&id.to_le_bytes()[..id_len]);
        bytes.extend(body);
        bytes
    }

    fn hello(capabilities: Capabilities) -> Vec<u8> {
        let mut body = vec![0; HELLO_VERSION_LEN];
        body.extend(capabilities.0.to_le_bytes());
        packet(kind::HELLO, 0, &body)
    }

    fn greeted() -> Parser {
        let mut parser = Parser::default();
        assert!(matches!(parser.next(&hello(Capabilities::OURS)), Ok(Some((Request::Hello(_), 80)))));
        parser
    }

    #[test]
    fn a_bulk_packet_to_the_device_brings_its_data_and_its_64_bit_id() {
        let mut body = vec![0x02, 0, 3, 0, 7, 0, 0, 0, 0, 0];
        body.extend(b"abc");
        let bytes = packet(kind::BULK_PACKET, 1 << 40, &body);
        let bulk = Bulk { endpoint: 0x02, stream: 7, length: 3 };
        let request = Request::Bulk { id: 1 << 40, bulk, data: b"abc" };
        assert_eq!(greeted().next(&bytes), Ok(Some((request, bytes.len()))));
    }

    #[test]
    fn a_packet_whose_end_is_still_to_come_is_waited_for() {
        let bytes = packet(kind::BULK_PACKET, 1, &[0x02, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        let mut parser = greeted();
        for end in 0..bytes.len() {
            assert_eq!(parser.next(&bytes[..end]), Ok(None), "{end} bytes");
        }
    }

    #[test]
    fn a_peer_without_64_bit_ids_and_32_bit_lengths_is_understood() {
        let mut parser = Parser::default();
        parser.next(&hello(Capabilities::BULK_STREAMS)).unwrap();
        let mut bytes = [kind::BULK_PACKET.to_le_bytes(), 9u32.to_le_bytes(), 5u32.to_le_bytes()].concat();
        bytes.extend([0x04, 0, 1, 0, 0, 0, 0, 0, 0xEE]);
        let bulk = Bulk { endpoint: 0x04, stream: 0, length: 1 };
        assert_eq!(parser.next(&bytes), Ok(Some((Request::Bulk { id: 5, bulk, data: &[0xEE] }, 21))));
    }

    #[test]
    fn what_comes_before_the_hello_or_as_a_second_one_is_refused() {
        let reset = [kind::RESET.to_le_bytes(), [0; 4], [0; 4]].concat();
        assert_eq!(Parser::default().next(&reset), Err(PacketError::NoHello(kind::RESET)));
        let body = vec![0; HELLO_VERSION_LEN + 4];
        let mut again = [kind::HELLO.to_le_bytes(), (body.len() as u32).to_le_bytes()].concat();
        again.extend([0; 8]);
        again.extend(body);
        assert_eq!(greeted().next(&again), Err(PacketError::SecondHello));
    }

    #[test]
    fn a_packet_that_announces_gigabytes_is_refused_before_they_are_waited_for() {
        let header = [kind::BULK_PACKET.to_le_bytes(), u32::MAX.to_le_bytes(), [0; 4], [0; 4]].concat();
        assert_eq!(greeted().next(&header), Err(PacketError::TooLong { kind: kind::BULK_PACKET, length: u32::MAX }));
        let asks = packet(kind::BULK_PACKET, 1, &[0x81, 0, 0xFF, 0xFF, 0, 0, 0, 0, 0xFF, 0xFF]);
        assert!(matches!(greeted().next(&asks), Err(PacketError::Data { endpoint: 0x81, announced: 0xFFFF_FFFF, .. })));
    }

    #[test]
    fn a_bulk_packet_that_carries_less_than_it_says_is_refused() {
        let bytes = packet(kind::BULK_PACKET, 1, &[0x02, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1]);
        let data = PacketError::Data { kind: kind::BULK_PACKET, endpoint: 2, announced: 4, carried: 1 };
        assert_eq!(greeted().next(&bytes), Err(data));
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
}
