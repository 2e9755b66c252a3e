//! Records a unit's transfers as a monitor of its bus sees them: each URB when it is submitted, and when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::capture::Capture;
use super::usbmon::{Header, TransferType, UsbmonEvent};

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
pub enum End {
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

impl End {
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
    pub fn complete(&self, urb: Urb, end: End, length: usize, data: &[u8]) {
        let event = UsbmonEvent::Completion;
        let (device, bus) = (self.address, self.bus);
        self.capture.record(Header { event, device, bus, setup: None, status: end.status(), ..urb.0 }, length, data);
    }

    /// Records that a transfer was not submitted: the system refused it.
    pub fn refuse(&self, urb: Urb, end: End) {
        let (device, bus) = (self.address, self.bus);
        let event = UsbmonEvent::SubmissionError;
        self.capture.record(Header { event, device, bus, setup: None, status: end.status(), ..urb.0 }, 0, &[]);
    }

    /// Records a control transfer from its setup packet to its status. `data` are the bytes that moved, in either
    /// direction.
    pub fn control(&self, setup: [u8; 8], data: &[u8], end: End) {
        let is_in = setup[0] & 0x80 != 0;
        let (out, back) = if is_in { (&[][..], data) } else { (data, &[][..]) };
        let urb = self.submit_control(setup, out);
        let moved = if end == End::Done || is_in { data.len() } else { 0 };
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
