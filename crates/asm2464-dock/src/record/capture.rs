//! Reads a record from a capture: a pcapng file with usbmon's headers, as [`crate::pcap`] writes it.

use std::collections::HashMap;
use std::path::PathBuf;

use asm2464::firmware::{BridgeState, InterfaceClass, UAS_CLASS, UsbId};
use asm2464_host::bridge::{BusSpeed, Endpoint, Location, PipeAction, UnitInfo};
use asm2464_host::usb::EndpointInfo;

use super::event::{Data, End, Event};
use super::{MAX_EVENTS, MAX_TRANSFER, Opening, Record, RecordError};
use crate::pcap::pcapng;
use crate::pcap::usbmon::HEADER_LEN;
use crate::virtual_unit::STREAMS;

/// Types of blocks (draft-ietf-opsawg-pcapng, section 4), and the byte order of a little-endian section.
const SECTION_HEADER: u32 = u32::from_le_bytes(pcapng::MAGIC);
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const LITTLE_ENDIAN: u32 = 0x1A2B_3C4D;
/// Bytes of a block around its body, and of an enhanced packet before its data.
const BLOCK_FRAME: usize = 12;
const PACKET_HEAD: usize = 20;
/// bDescriptorType (USB 3.2, table 9-6).
const DEVICE: u8 = 1;
const CONFIGURATION: u8 = 2;
const STRING: u8 = 3;
const INTERFACE: u8 = 4;
const ENDPOINT: u8 = 5;
const BOS: u8 = 15;
/// bRequest of standard requests (USB 3.2, table 9-4), and of Bulk-Only Mass Storage Reset.
const CLEAR_FEATURE: u8 = 1;
const GET_DESCRIPTOR: u8 = 6;
const SET_CONFIGURATION: u8 = 9;
const SET_INTERFACE: u8 = 11;
const MASS_STORAGE_RESET: u8 = 0xFF;

impl Record {
    /// Reads the record of the only unit in a capture, whose bytes are those of the file at `path`. Bus addresses tell its
    /// openings apart.
    ///
    /// # Errors
    /// [`RecordError::Capture`] if the file is no such capture, holds several units, or lacks bytes of a transfer;
    /// otherwise as for [`Record::checked`].
    pub fn of_capture(path: impl Into<PathBuf>, file: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::default();
        let mut rest = file;
        let mut links = Vec::new();
        while !rest.is_empty() {
            let (kind, body, after) = block(rest)?;
            match kind {
                SECTION_HEADER if word(body, 0) != Some(LITTLE_ENDIAN) => {
                    return Err(RecordError::Capture("its byte order is not asmpatch's"));
                }
                SECTION_HEADER => links.clear(),
                INTERFACE_DESCRIPTION => links.push(double(body, 0)),
                ENHANCED_PACKET => {
                    let link = word(body, 0).and_then(|number| links.get(number as usize).copied()).flatten();
                    if link != Some(pcapng::USB_LINUX_MMAPPED) {
                        return Err(RecordError::Capture("it is no capture of USB as asmpatch writes it"));
                    }
                    let len = word(body, 12).unwrap_or(0) as usize;
                    let packet = body.get(PACKET_HEAD..).and_then(|packet| packet.get(..len));
                    reader.packet(packet.ok_or(CUT)?)?;
                }
                _ => {}
            }
            rest = after;
        }
        reader.into_record(Location::Replay(path.into()))
    }
}

const CUT: RecordError = RecordError::Capture("the file is cut off");

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn double(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

/// Splits off a block: its type, its body, and what follows it.
fn block(bytes: &[u8]) -> Result<(u32, &[u8], &[u8]), RecordError> {
    let (kind, len) = (word(bytes, 0).ok_or(CUT)?, word(bytes, 4).ok_or(CUT)? as usize);
    let whole = bytes.get(..len).filter(|_| len >= BLOCK_FRAME && len.is_multiple_of(4)).ok_or(CUT)?;
    Ok((kind, &whole[8..len - 4], &bytes[len..]))
}

/// What a submitted URB is.
enum Urb {
    /// The transfer of this number, whose data go in this direction.
    Transfer { number: usize, is_in: bool },
    /// Something that is done to the unit.
    Action(PipeAction),
    /// A request of the enumeration.
    Enumeration([u8; 8]),
}

#[derive(Default)]
struct Reader {
    bus: Option<u16>,
    /// The address of the last opening.
    address: Option<u8>,
    openings: Vec<Opening>,
    events: usize,
    /// Submissions of the last opening.
    submitted: usize,
    is_configured: bool,
    urbs: HashMap<u64, Urb>,
    descriptors: HashMap<(u8, u8), Vec<u8>>,
}

impl Reader {
    fn packet(&mut self, packet: &[u8]) -> Result<(), RecordError> {
        let (header, data) = packet.split_first_chunk::<HEADER_LEN>().ok_or(CUT)?;
        let [kind, transfer, endpoint, device] = [8, 9, 10, 11].map(|at| header[at]);
        let id = u64::from_le_bytes(*header.first_chunk().ok_or(CUT)?);
        let length = word(header, 32).ok_or(CUT)? as usize;
        let bus = double(header, 12).ok_or(CUT)?;
        if *self.bus.get_or_insert(bus) != bus {
            return Err(RecordError::Capture("it has several units, each on a bus of its own; record one"));
        }
        if length > MAX_TRANSFER {
            return Err(RecordError::TooLarge { what: "bytes in a transfer", limit: MAX_TRANSFER });
        }
        if self.address != Some(device) {
            self.address = Some(device);
            self.openings.push(Opening::default());
            (self.submitted, self.is_configured) = (0, false);
            self.urbs.clear();
        }
        let is_in = endpoint & 0x80 != 0;
        match (kind, transfer) {
            (b'S', 2) => {
                let setup = *header[40..48].first_chunk().ok_or(CUT)?;
                self.control(id, setup, length, data)
            }
            (b'S', 3) => {
                let endpoint = Endpoint::from_address(endpoint)
                    .ok_or(RecordError::Capture("it has transfers on an endpoint that no bridge has"))?;
                let data = if is_in { Data::default() } else { whole(data, length)? };
                self.begin(id, is_in);
                self.push(Event::Bulk { endpoint, len: length, data })
            }
            (b'C' | b'E', 2 | 3) => {
                let status = i32::from_le_bytes(*header[28..32].first_chunk().ok_or(CUT)?);
                self.ended(id, status, (kind == b'C').then_some(length), data)
            }
            _ => Err(RecordError::Capture("it has transfers that are neither control nor bulk")),
        }
    }

    fn control(&mut self, id: u64, setup: [u8; 8], length: usize, data: &[u8]) -> Result<(), RecordError> {
        let urb = match setup {
            [0x02, CLEAR_FEATURE, 0, 0, address, ..] => Endpoint::from_address(address).map(PipeAction::ClearHalt),
            [0x21, MASS_STORAGE_RESET, ..] => Some(PipeAction::MassStorageReset),
            _ => None,
        };
        if let Some(action) = urb {
            self.urbs.insert(id, Urb::Action(action));
        } else if setup[0] & 0x60 == 0 {
            self.urbs.insert(id, Urb::Enumeration(setup));
        } else {
            let is_in = setup[0] & 0x80 != 0;
            let data = if is_in { Data::default() } else { whole(data, length)? };
            self.begin(id, is_in);
            self.push(Event::Control { setup, data })?;
        }
        Ok(())
    }

    fn begin(&mut self, id: u64, is_in: bool) {
        self.urbs.insert(id, Urb::Transfer { number: self.submitted, is_in });
        self.submitted += 1;
    }

    /// Takes the end of an URB; `length` is how many bytes moved, unless its submission was refused.
    fn ended(&mut self, id: u64, status: i32, length: Option<usize>, data: &[u8]) -> Result<(), RecordError> {
        let end = match status {
            0 => End::Done,
            -2 | -104 => End::Cancelled,
            -32 => End::Stall,
            -75 => End::Overflow,
            -108 | -19 => End::Gone,
            _ => End::Failed,
        };
        match self.urbs.remove(&id) {
            Some(Urb::Transfer { number, is_in }) => {
                let Some(length) = length else { return self.push(Event::Refused { transfer: number, end }) };
                let data = if is_in { whole(data, length)? } else { Data::default() };
                self.push(Event::Returned { transfer: number, end, moved: length, data })
            }
            Some(Urb::Action(action)) => {
                let end = if end == End::Cancelled { End::Timeout } else { end };
                self.push(Event::Done { action, end })
            }
            Some(Urb::Enumeration(setup)) => self.enumerated(setup, data),
            // Its submission was before the capture.
            None => Ok(()),
        }
    }

    fn enumerated(&mut self, setup: [u8; 8], data: &[u8]) -> Result<(), RecordError> {
        match setup {
            [0x80, GET_DESCRIPTOR, index, kind, ..] => {
                // The longest says most: a host asks for the start of a descriptor first.
                let known = self.descriptors.entry((kind, index)).or_default();
                if data.len() > known.len() {
                    *known = data.to_vec();
                }
            }
            // A unit is configured again after a reset of its port.
            [0, SET_CONFIGURATION, ..] if self.is_configured => {
                self.push(Event::Done { action: PipeAction::ResetPort, end: End::Done })?;
            }
            [0, SET_CONFIGURATION, ..] => self.is_configured = true,
            [1, SET_INTERFACE, alternate, ..] => {
                let streams = self.streams(alternate);
                if let Some(opening) = self.openings.last_mut() {
                    (opening.alternate, opening.streams) = (alternate, streams);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, event: Event) -> Result<(), RecordError> {
        self.events += 1;
        if self.events > MAX_EVENTS {
            return Err(RecordError::TooLarge { what: "events", limit: MAX_EVENTS });
        }
        if let Some(opening) = self.openings.last_mut() {
            opening.events.push(event);
        }
        Ok(())
    }

    fn descriptor(&self, kind: u8, index: u8) -> &[u8] {
        self.descriptors.get(&(kind, index)).map_or(&[], |bytes| bytes)
    }

    /// Number of streams of an alternate setting, by its first endpoint's companion.
    fn streams(&self, alternate: u8) -> u16 {
        let mut rest = self.descriptor(CONFIGURATION, 0);
        let mut is_meant = false;
        while let [len, kind, body @ ..] = rest
            && *len >= 2
            && usize::from(*len) <= rest.len()
        {
            match (*kind, body) {
                (INTERFACE, [_, number, ..]) => is_meant = *number == alternate,
                (ENDPOINT, [address, ..]) if is_meant && *address == Endpoint::DataIn.address() => {
                    return EndpointInfo::streams_in(&rest[usize::from(*len)..]).min(STREAMS);
                }
                _ => {}
            }
            rest = &rest[usize::from(*len)..];
        }
        0
    }

    /// The classes of the alternate settings. Those that the capture leaves out are one of UAS.
    fn classes(&self) -> Vec<InterfaceClass> {
        let configuration = self.descriptor(CONFIGURATION, 0);
        let mut rest = configuration;
        let mut classes = Vec::new();
        while let [len, kind, ..] = rest
            && *len >= 2
            && usize::from(*len) <= rest.len()
        {
            if let (INTERFACE, [_, _, 0, _, _, class, subclass, protocol, ..]) = (*kind, rest) {
                classes.push((*class, *subclass, *protocol));
            }
            rest = &rest[usize::from(*len)..];
        }
        if double(configuration, 2).is_some_and(|total| usize::from(total) > configuration.len()) {
            classes.push(UAS_CLASS);
        }
        classes
    }

    fn text(&self, index: Option<&u8>) -> String {
        let bytes = index.map_or(&[][..], |index| self.descriptor(STRING, *index));
        let units: Vec<u16> =
            bytes.get(2..).unwrap_or_default().as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
        String::from_utf16_lossy(&units)
    }

    fn into_record(self, location: Location) -> Result<Record, RecordError> {
        let device = self.descriptor(DEVICE, 0);
        let (Some(vendor), Some(product)) = (double(device, 8), double(device, 10)) else {
            return Err(RecordError::Capture("it does not begin with the unit's enumeration"));
        };
        let strings = [14, 15, 16].map(|at| self.text(device.get(at).filter(|index| **index != 0)));
        let [manufacturer, product_name, serial] = strings;
        let is_super = double(device, 2).is_some_and(|version| version >= 0x0300);
        let unit = UnitInfo {
            location,
            id: UsbId { vendor, product },
            state: BridgeState::from_interface(&self.classes(), &product_name),
            manufacturer,
            product: product_name,
            serial: Some(serial).filter(|serial| !serial.is_empty()),
            speed: if is_super { BusSpeed::Super } else { BusSpeed::High },
            driver: None,
        };
        let descriptors = [device, self.descriptor(CONFIGURATION, 0), self.descriptor(BOS, 0)].concat();
        Record::checked(unit, descriptors, self.openings)
    }
}

/// All of a transfer's bytes.
fn whole(data: &[u8], length: usize) -> Result<Data, RecordError> {
    match data.get(..length) {
        Some(data) => Ok(Data::bytes(data)),
        None => Err(RecordError::Capture("it lacks bytes of a transfer: a capture keeps 262,080 of each")),
    }
}
