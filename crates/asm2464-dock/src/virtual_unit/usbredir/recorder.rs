//! Recording of the traffic between a guest and its unit on a bus. Without a bus it records nothing.

use super::protocol::RedirStatus;
use super::request::Bulk;
use crate::pcap::{Bus, Device, End, Urb};

/// Records one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionRecorder {
    bus: Option<Bus>,
    /// The unit on that bus while it is plugged in.
    device: Option<Device>,
}

impl ConnectionRecorder {
    pub(super) fn new(bus: Option<Bus>) -> Self {
        Self { bus, device: None }
    }

    pub(super) fn attached(&mut self) {
        self.device = self.bus.as_ref().map(Bus::attach);
    }

    pub(super) fn detached(&mut self) {
        self.device = None;
    }

    /// Records a control transfer. `data` holds the transferred bytes of either direction.
    pub(super) fn control(&self, setup: [u8; 8], data: &[u8], status: RedirStatus) {
        if let Some(device) = &self.device {
            device.control(setup, data, end_of(status));
        }
    }

    /// Records the submission of a bulk transfer. `data` holds the bytes to the device.
    pub(super) fn submitted(&self, bulk: &Bulk, data: &[u8]) -> Option<Urb> {
        self.device.as_ref().map(|device| device.submit_bulk(bulk.endpoint, bulk.length as usize, data))
    }

    /// Records the end of a bulk transfer. `data` holds the bytes from the device.
    pub(super) fn ended(&self, urb: Option<Urb>, status: RedirStatus, moved: usize, data: &[u8]) {
        if let (Some(device), Some(urb)) = (&self.device, urb) {
            device.complete(urb, end_of(status), moved, data);
        }
    }
}

const fn end_of(status: RedirStatus) -> End {
    match status {
        RedirStatus::Success => End::Done,
        RedirStatus::Cancelled => End::Cancelled,
        RedirStatus::Invalid => End::NoEndpoint,
        RedirStatus::IoError => End::Disconnected,
        RedirStatus::Stall => End::Stall,
        RedirStatus::Babble => End::Babble,
    }
}
