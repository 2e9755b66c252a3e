//! Records a unit's transfers as a monitor of its bus sees them: each URB when it is submitted, and when it ends.
//! `CapturedBus` also taps the pipes of an opened unit, real or virtual, after an enumeration like that of a host.
//!
//! A unit is opened after the system has enumerated it, so the enumeration is written from the descriptors that the system
//! keeps. Readers of a capture learn the endpoints' classes from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asm2464::firmware::descriptors;
use asm2464_host::bridge::{
    Monitor, PipeAction, PipeError, Submitted, Tap, TransferEnd, TransferId, UnitInfo, is_to_host, setup,
};

use super::capture::Capture;
use super::usbmon::{TransferType, UsbmonEvent, UsbmonHeader};

/// -EINPROGRESS, the status of an URB that has been submitted.
const IN_PROGRESS: i32 = -115;

/// A bus with one unit on it.
#[derive(Debug, Clone)]
pub struct CapturedBus {
    capture: Capture,
    number: u16,
    /// How many addresses have been assigned.
    attached: Arc<AtomicU64>,
}

impl Capture {
    /// Returns a new bus, for one more unit.
    pub fn bus(&self) -> CapturedBus {
        CapturedBus { capture: self.clone(), number: self.next_bus(), attached: Arc::default() }
    }
}

impl CapturedBus {
    /// Adds the unit as a newly found device. Each call assigns the next address.
    pub fn attach(&self) -> CapturedDevice {
        const ADDRESSES: u64 = 127;
        let address = (self.attached.fetch_add(1, Ordering::Relaxed) % ADDRESSES + 1) as u8;
        CapturedDevice { capture: self.capture.clone(), bus: self.number, address }
    }
}

/// A device on its bus, whose transfers are recorded.
#[derive(Debug, Clone)]
pub struct CapturedDevice {
    capture: Capture,
    bus: u16,
    address: u8,
}

/// An URB that has been submitted, with the header of its submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Urb(UsbmonHeader);

/// Returns Linux's error number for how a transfer ended (Documentation/driver-api/usb/error-codes.rst).
const fn status(end: &TransferEnd) -> i32 {
    match end {
        TransferEnd::Completed => 0,
        // The system cancels a request that is not answered in time.
        TransferEnd::Cancelled | TransferEnd::Failed(PipeError::Timeout) => -2,
        TransferEnd::Failed(PipeError::Stall) => -32,
        TransferEnd::Failed(PipeError::Overflow) => -75,
        TransferEnd::Failed(PipeError::Disconnected) => -108,
        TransferEnd::Failed(PipeError::Other(_)) => -71,
    }
}

impl CapturedDevice {
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
    pub fn complete(&self, urb: Urb, end: &TransferEnd, length: usize, data: &[u8]) {
        let (event, status) = (UsbmonEvent::Completion, status(end));
        self.capture.record(UsbmonHeader { event, setup: None, status, ..urb.0 }, length, data);
    }

    /// Records that a transfer was not submitted: the system refused it.
    pub fn refuse(&self, urb: Urb, error: &PipeError) {
        let (event, status) = (UsbmonEvent::SubmissionError, status(&TransferEnd::Failed(error.clone())));
        self.capture.record(UsbmonHeader { event, setup: None, status, ..urb.0 }, 0, &[]);
    }

    /// Records a control transfer from its setup packet to its status. `data` are the bytes that moved, in either
    /// direction.
    pub fn control(&self, setup: [u8; 8], data: &[u8], end: &TransferEnd) {
        let is_in = is_to_host(setup[0]);
        let (out, back) = if is_in { (&[][..], data) } else { (data, &[][..]) };
        let urb = self.submit_control(setup, out);
        let moved = if *end == TransferEnd::Completed || is_in { data.len() } else { 0 };
        self.complete(urb, end, moved, back);
    }

    fn submit(&self, transfer: TransferType, endpoint: u8, setup: Option<[u8; 8]>, length: usize, data: &[u8]) -> Urb {
        let header = UsbmonHeader {
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

impl Monitor for CapturedBus {
    fn opened(&self, unit: &UnitInfo, descriptors: &[u8], alternate: u8) -> Box<dyn Tap> {
        let serial = unit.serial.as_deref().unwrap_or_default();
        Box::new(BusTap {
            bus: self.clone(),
            descriptors: descriptors.to_vec(),
            strings: [&unit.manufacturer, &unit.product, serial].map(str::to_owned),
            alternate,
            device: None,
            urbs: Vec::new(),
        })
    }
}

struct BusTap {
    bus: CapturedBus,
    descriptors: Vec<u8>,
    /// Manufacturer, product, serial number.
    strings: [String; 3],
    alternate: u8,
    /// The recorded unit, from its first transfer or action on.
    device: Option<CapturedDevice>,
    /// The URB of each transfer in flight.
    urbs: Vec<Option<Urb>>,
}

impl BusTap {
    fn device(&mut self) -> CapturedDevice {
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
    fn enumeration(&self, device: &CapturedDevice) {
        let read = |kind: u8, index: u8, language: [u8; 2], bytes: &[u8]| {
            let [low, high] = (bytes.len() as u16).to_le_bytes();
            device.control([0x80, 6, index, kind, language[0], language[1], low, high], bytes, &TransferEnd::Completed);
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
        for (index, text) in indices.iter().zip(&self.strings) {
            if *index == 0 {
                continue;
            }
            let mut bytes = vec![0, STRING];
            bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes).take(STRING_MAX));
            bytes[0] = bytes.len() as u8;
            read(STRING, *index, LANGUAGE, &bytes);
        }
        device.control(setup::set_configuration(1), &[], &TransferEnd::Completed);
        if self.alternate > 0 {
            device.control(setup::set_interface(0, self.alternate), &[], &TransferEnd::Completed);
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
            device.complete(urb, end, moved, data);
        }
    }

    fn refused(&mut self, transfer: TransferId, error: &PipeError) {
        let urb = self.urbs.get_mut(transfer.0).and_then(Option::take);
        if let (Some(device), Some(urb)) = (&self.device, urb) {
            device.refuse(urb, error);
        }
    }

    fn done(&mut self, action: PipeAction, outcome: &Result<(), PipeError>) {
        let device = self.device();
        let end = match outcome {
            Ok(()) => TransferEnd::Completed,
            Err(error) => TransferEnd::Failed(error.clone()),
        };
        match action {
            PipeAction::ClearHalt(endpoint) => device.control(setup::clear_halt(endpoint), &[], &end),
            PipeAction::MassStorageReset => device.control(setup::MASS_STORAGE_RESET, &[], &end),
            PipeAction::ResetPort if outcome.is_ok() => self.enumeration(&device),
            PipeAction::ResetPort => {}
        }
    }
}

/// Cuts off the alternate settings above this one from a configuration.
fn up_to(configuration: &[u8], alternate: u8) -> &[u8] {
    let is_meant = |descriptor: &&[u8]| !matches!(descriptor, [_, INTERFACE, _, number, ..] if *number > alternate);
    let len = descriptors(configuration).take_while(is_meant).map(<[u8]>::len).sum();
    &configuration[..len]
}
