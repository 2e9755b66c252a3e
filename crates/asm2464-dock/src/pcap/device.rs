//! Records a unit's transfers as a monitor of its bus sees them: each URB when it is submitted, and when it ends. [`Bus`]
//! also taps the pipes of an opened unit, real or virtual, after an enumeration like that of a host.
//!
//! A unit is opened after the system has enumerated it, so the enumeration is written from the descriptors that the system
//! keeps. Readers of a capture learn the endpoints' classes from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asm2464_host::bridge::{Monitor, OpenedPipes, PipeAction, PipeError, Submitted, Tap, TransferEnd, TransferId};

use super::capture::Capture;
use super::usbmon::{Header, TransferType, UsbmonEvent};
use crate::virtual_unit::setup;

/// -EINPROGRESS, the status of an URB that has been submitted.
const IN_PROGRESS: i32 = -115;

/// A bus with one unit on it.
#[derive(Debug, Clone)]
pub struct Bus {
    capture: Capture,
    number: u16,
    /// How many addresses have been assigned.
    attached: Arc<AtomicU64>,
}

impl Capture {
    /// Returns a new bus, for one more unit.
    pub fn bus(&self) -> Bus {
        Bus { capture: self.clone(), number: self.next_bus(), attached: Arc::default() }
    }
}

impl Bus {
    /// Adds the unit as a newly found device. Each call assigns the next address.
    pub fn attach(&self) -> Device {
        const ADDRESSES: u64 = 127;
        let address = (self.attached.fetch_add(1, Ordering::Relaxed) % ADDRESSES + 1) as u8;
        Device { capture: self.capture.clone(), bus: self.number, address }
    }
}

/// A device on its bus, whose transfers are recorded.
#[derive(Debug, Clone)]
pub struct Device {
    capture: Capture,
    bus: u16,
    address: u8,
}

/// An URB that has been submitted, with the header of its submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Urb(Header);

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrbEnd {
    /// All the data moved, or a short packet ended the transfer.
    Done,
    /// The endpoint is halted, or endpoint 0 refused the request.
    Stall,
    /// The host cancelled the transfer.
    Cancelled,
    /// The device sent more data than requested.
    Babble,
    /// The device has left the bus.
    Disconnected,
    /// Any other failure.
    Failed,
}

impl UrbEnd {
    /// Returns Linux's error number (Documentation/driver-api/usb/error-codes.rst).
    const fn status(self) -> i32 {
        match self {
            Self::Done => 0,
            Self::Stall => -32,
            Self::Cancelled => -2,
            Self::Babble => -75,
            Self::Disconnected => -108,
            Self::Failed => -71,
        }
    }
}

impl Device {
    /// Records that a bulk transfer is submitted. `length` is how many bytes to read or write; `data` are those to
    /// write.
    pub fn submit_bulk(&self, endpoint: u8, length: usize, data: &[u8]) -> Urb {
        self.submit(TransferType::Bulk, endpoint, None, length, data)
    }

    /// Records that a control request is submitted. `data` are the bytes that go to the device.
    pub fn submit_control(&self, setup: [u8; 8], data: &[u8]) -> Urb {
        let length = usize::from(u16::from_le_bytes([setup[6], setup[7]]));
        self.submit(TransferType::Control, setup[0] & 0x80, Some(setup), length, data)
    }

    /// Records that a transfer has ended. `length` bytes moved; `data` are those that came from the device.
    pub fn complete(&self, urb: Urb, end: UrbEnd, length: usize, data: &[u8]) {
        let event = UsbmonEvent::Completion;
        let (device, bus) = (self.address, self.bus);
        self.capture.record(Header { event, device, bus, setup: None, status: end.status(), ..urb.0 }, length, data);
    }

    /// Records that a transfer was not submitted: the system refused it.
    pub fn refuse(&self, urb: Urb, end: UrbEnd) {
        let (device, bus) = (self.address, self.bus);
        let event = UsbmonEvent::SubmissionError;
        self.capture.record(Header { event, device, bus, setup: None, status: end.status(), ..urb.0 }, 0, &[]);
    }

    /// Records a control transfer from its setup packet to its status. `data` are the bytes that moved, in either
    /// direction.
    pub fn control(&self, setup: [u8; 8], data: &[u8], end: UrbEnd) {
        let is_in = setup[0] & 0x80 != 0;
        let (out, back) = if is_in { (&[][..], data) } else { (data, &[][..]) };
        let urb = self.submit_control(setup, out);
        let moved = if end == UrbEnd::Done || is_in { data.len() } else { 0 };
        self.complete(urb, end, moved, back);
    }

    fn submit(&self, transfer: TransferType, endpoint: u8, setup: Option<[u8; 8]>, length: usize, data: &[u8]) -> Urb {
        let header = Header {
            id: self.capture.next_urb(),
            event: UsbmonEvent::Submission,
            transfer,
            endpoint,
            device: self.address,
            bus: self.bus,
            setup,
            time: Duration::ZERO,
            status: IN_PROGRESS,
            length: 0,
            captured: 0,
        };
        self.capture.record(header, length, data);
        Urb(header)
    }
}

/// bDescriptorType (USB 3.2, table 9-6).
const DEVICE: u8 = 1;
const CONFIGURATION: u8 = 2;
const STRING: u8 = 3;
const INTERFACE: u8 = 4;
const BOS: u8 = 15;
/// Bytes of a device descriptor, and where it has the indices of its strings: manufacturer, product, serial number.
const DEVICE_LEN: usize = 18;
const STRING_INDICES: std::ops::Range<usize> = 14..17;
/// The language of the strings: English (United States).
const LANGUAGE: [u8; 2] = [0x09, 0x04];
/// The most bytes of text in a string descriptor.
const STRING_MAX: usize = 252;

impl Monitor for Bus {
    fn opened(&self, opened: OpenedPipes<'_>) -> Box<dyn Tap> {
        let unit = opened.unit;
        let serial = unit.serial.as_deref().unwrap_or_default();
        Box::new(BusTap {
            bus: self.clone(),
            descriptors: opened.descriptors.to_vec(),
            strings: [&unit.manufacturer, &unit.product, serial].map(str::to_owned),
            alternate: opened.alternate,
            device: None,
            urbs: Vec::new(),
        })
    }
}

struct BusTap {
    bus: Bus,
    descriptors: Vec<u8>,
    /// Manufacturer, product, serial number.
    strings: [String; 3],
    alternate: u8,
    /// The recorded unit, from its first transfer or action on.
    device: Option<Device>,
    /// The URB of each transfer in flight.
    urbs: Vec<Option<Urb>>,
}

impl BusTap {
    fn device(&mut self) -> Device {
        if let Some(device) = &self.device {
            return device.clone();
        }
        let device = self.bus.attach();
        self.enumeration(&device);
        self.device = Some(device.clone());
        device
    }

    /// Records what a host reads and selects when it finds the unit: descriptors and strings, configuration, alternate.
    ///
    /// It leaves out later alternates: if one is UAS, Wireshark 4 treats the interface as UAS whichever alternate is
    /// selected.
    fn enumeration(&self, device: &Device) {
        let read = |kind: u8, index: u8, language: [u8; 2], bytes: &[u8]| {
            let [low, high] = (bytes.len() as u16).to_le_bytes();
            device.control([0x80, 6, index, kind, language[0], language[1], low, high], bytes, UrbEnd::Done);
        };
        let (first, rest) = self.descriptors.split_at(self.descriptors.len().min(DEVICE_LEN));
        let total = rest.get(2..4).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        let (configuration, bos) = rest.split_at(total.min(rest.len()));
        for (kind, bytes) in [(DEVICE, first), (BOS, bos), (CONFIGURATION, up_to(configuration, self.alternate))] {
            if !bytes.is_empty() {
                read(kind, 0, [0, 0], bytes);
            }
        }
        let indices = first.get(STRING_INDICES).unwrap_or_default();
        for (index, text) in indices.iter().zip(&self.strings).filter(|(index, _)| **index != 0) {
            let mut bytes = vec![0, STRING];
            bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes).take(STRING_MAX));
            bytes[0] = bytes.len() as u8;
            read(STRING, *index, LANGUAGE, &bytes);
        }
        device.control(setup::set_configuration(1), &[], UrbEnd::Done);
        if self.alternate > 0 {
            device.control(setup::set_interface(0, self.alternate), &[], UrbEnd::Done);
        }
    }
}

impl Tap for BusTap {
    fn submitted(&mut self, transfer: TransferId, submitted: Submitted<'_>) {
        let device = self.device();
        let urb = match submitted {
            Submitted::Bulk { endpoint, len, data } => device.submit_bulk(endpoint.address(), len, data),
            Submitted::Control { setup, data } => device.submit_control(setup, data),
        };
        self.urbs.resize(self.urbs.len().max(transfer.0 + 1), None);
        self.urbs[transfer.0] = Some(urb);
    }

    fn returned(&mut self, transfer: TransferId, end: &TransferEnd, moved: usize, data: &[u8]) {
        let urb = self.urbs.get_mut(transfer.0).and_then(Option::take);
        if let (Some(device), Some(urb)) = (&self.device, urb) {
            device.complete(urb, UrbEnd::of(end), moved, data);
        }
    }

    fn refused(&mut self, transfer: TransferId, error: &PipeError) {
        let urb = self.urbs.get_mut(transfer.0).and_then(Option::take);
        if let (Some(device), Some(urb)) = (&self.device, urb) {
            device.refuse(urb, UrbEnd::of(&TransferEnd::Failed(error.clone())));
        }
    }

    fn done(&mut self, action: PipeAction, outcome: &Result<(), PipeError>) {
        let device = self.device();
        let end =
            outcome.as_ref().map_or_else(|error| UrbEnd::of(&TransferEnd::Failed(error.clone())), |()| UrbEnd::Done);
        match action {
            PipeAction::ClearHalt(endpoint) => device.control(setup::clear_halt(endpoint), &[], end),
            PipeAction::MassStorageReset => device.control(setup::MASS_STORAGE_RESET, &[], end),
            PipeAction::ResetPort if outcome.is_ok() => self.enumeration(&device),
            PipeAction::ResetPort => {}
        }
    }
}

impl UrbEnd {
    /// How a transfer ended, in Linux's terms.
    fn of(end: &TransferEnd) -> Self {
        match end {
            TransferEnd::Completed => Self::Done,
            // The system cancels a request that is not answered in time.
            TransferEnd::Cancelled | TransferEnd::Failed(PipeError::Timeout) => Self::Cancelled,
            TransferEnd::Failed(PipeError::Stall) => Self::Stall,
            TransferEnd::Failed(PipeError::Overflow) => Self::Babble,
            TransferEnd::Failed(PipeError::Disconnected) => Self::Disconnected,
            TransferEnd::Failed(PipeError::Other(_)) => Self::Failed,
        }
    }
}

/// Cuts off the alternate settings above this one from a configuration.
fn up_to(configuration: &[u8], alternate: u8) -> &[u8] {
    let mut at = 0;
    while let Some(&[len, kind, _, number, ..]) = configuration.get(at..) {
        if len == 0 || (kind == INTERFACE && number > alternate) {
            break;
        }
        at += usize::from(len);
    }
    &configuration[..at.min(configuration.len())]
}
